//! Building the answers.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{IcmpError, MAX_V4_ANSWER, MAX_V6_ANSWER, NoAnswer};
use crate::checksum;
use crate::frame::{self, Fragment, Headers, IpVersion, protocol};

/// Class selector 6: RFC 1812, 4.3.2.5 wants errors to travel as internetwork control.
const TRAFFIC_CLASS: u8 = 0xc0;
/// RFC 1812, 4.2.2.9 leaves it to us; what hosts use today.
const HOP_LIMIT: u8 = 64;
const ICMP_HEADER: usize = 8;

/// Whether this packet may be answered with an error: the rules of RFC 1812, 4.3.2.7 (IPv4) and RFC
/// 4443, 2.4 e (IPv6).
///
/// The destination being the broadcast address of a connected network is not seen here: only the
/// forwarding table knows. IPv6 differs from IPv4 in two points: fragments other than the first are
/// answered unless they may be part of an ICMP error, and [`IcmpError::TooBig`] is sent even for
/// packets to groups, since path MTU discovery of multicast needs it.
///
/// # Errors
/// [`NoAnswer`] says which rule forbids it.
pub fn may_answer(frame: &[u8], headers: &Headers, error: IcmpError) -> Result<(), NoAnswer> {
    let to_group = headers.link_group || frame::is_group(headers.flow.destination);
    let group_allowed =
        headers.version == IpVersion::V6 && matches!(error, IcmpError::TooBig { .. });
    if to_group && !group_allowed {
        return Err(NoAnswer::ToGroup);
    }
    if !frame::is_routable(headers.flow.source) {
        return Err(NoAnswer::ToNobody);
    }
    if headers.version == IpVersion::V4 && headers.fragment == Fragment::Later {
        return Err(NoAnswer::ToLaterFragment);
    }
    match headers.protocol {
        protocol::ICMP | protocol::ICMPV6 if headers.fragment == Fragment::Later => {
            Err(NoAnswer::ToIcmpError)
        }
        protocol::ICMP | protocol::ICMPV6 => {
            let end = headers.frame_len();
            let kind = frame.get(usize::from(headers.l4)..end).and_then(<[u8]>::first);
            match kind {
                Some(&kind) if is_query(headers.protocol, kind) => Ok(()),
                _ => Err(NoAnswer::ToIcmpError),
            }
        }
        _ => Ok(()),
    }
}

/// Whether ICMP messages of this type are certainly not errors.
const fn is_query(protocol: u8, kind: u8) -> bool {
    match protocol {
        // Echo, router discovery, timestamp, information, address mask, extended echo.
        protocol::ICMP => matches!(kind, 0 | 8 | 9 | 10 | 13..=18 | 42 | 43),
        // The upper half are not errors (RFC 4443, 2.1), but redirects are not answered either.
        _ => kind >= 128 && kind != 137,
    }
}

/// Writes the frame that tells the sender of the packet in `frame` about `error`, and gives its
/// length.
///
/// It goes back the way the packet came: Ethernet addresses swapped, tags kept; callers that route
/// answers themselves write other addresses over it. `source` is the answer's source address, by
/// custom that of the port the packet came in by. As much of the packet is quoted as fits into 576
/// bytes (IPv4) or 1280 bytes (IPv6); it is quoted as it is in `frame`, so call this before
/// rewriting it. O(length of the answer); no allocation.
///
/// # Errors
/// [`NoAnswer`]: a rule forbids it (see [`may_answer`]), or the arguments do not fit together.
/// `out` may have been written to.
pub fn answer(
    frame: &[u8],
    headers: &Headers,
    error: IcmpError,
    source: IpAddr,
    out: &mut [u8],
) -> Result<usize, NoAnswer> {
    may_answer(frame, headers, error)?;
    let l3 = usize::from(headers.l3);
    let (Some(link), Some(packet)) = (frame.get(..l3), frame.get(l3..headers.frame_len())) else {
        return Err(NoAnswer::Truncated);
    };
    if link.len() < frame::ETHERNET_HEADER {
        return Err(NoAnswer::Truncated);
    }
    let (header_len, most) = match headers.version {
        IpVersion::V4 => (20 + ICMP_HEADER, MAX_V4_ANSWER),
        IpVersion::V6 => (40 + ICMP_HEADER, MAX_V6_ANSWER),
    };
    let quote = &packet[..packet.len().min(most - header_len)];
    let len = l3 + header_len + quote.len();
    let out = out.get_mut(..len).ok_or(NoAnswer::BufferTooShort)?;
    let (out_link, out_ip) = out.split_at_mut(l3);
    out_link.copy_from_slice(link);
    out_link[..6].copy_from_slice(&link[6..12]);
    out_link[6..12].copy_from_slice(&link[..6]);
    match (source, headers.flow.source) {
        (IpAddr::V4(from), IpAddr::V4(to)) if headers.version == IpVersion::V4 => {
            build_v4(out_ip, error, from, to, quote);
        }
        (IpAddr::V6(from), IpAddr::V6(to)) if headers.version == IpVersion::V6 => {
            build_v6(out_ip, error, from, to, quote);
        }
        _ => return Err(NoAnswer::WrongFamily),
    }
    Ok(len)
}

/// `out` is exactly as long as the answer.
fn build_v4(out: &mut [u8], error: IcmpError, from: Ipv4Addr, to: Ipv4Addr, quote: &[u8]) {
    const DONT_FRAGMENT: u8 = 0x40;
    let (kind, code, rest) = match error {
        IcmpError::TimeExceeded => (11, 0, 0),
        // RFC 1191, 4: the MTU is in the low 16 bits.
        IcmpError::TooBig { mtu } => (3, 4, mtu.min(u32::from(u16::MAX))),
        IcmpError::NoRoute => (3, 0, 0),
        IcmpError::HostUnreachable => (3, 1, 0),
        IcmpError::AdminProhibited => (3, 13, 0),
    };
    let total = out.len() as u16;
    let (ip, icmp) = out.split_at_mut(20);
    ip.fill(0);
    ip[0] = 0x45;
    ip[1] = TRAFFIC_CLASS;
    ip[2..4].copy_from_slice(&total.to_be_bytes());
    // Never fragmented, so its identification may stay zero (RFC 6864, 4.1).
    ip[6] = DONT_FRAGMENT;
    ip[8] = HOP_LIMIT;
    ip[9] = protocol::ICMP;
    ip[12..16].copy_from_slice(&from.octets());
    ip[16..20].copy_from_slice(&to.octets());
    let header_checksum = checksum::sum(ip).checksum();
    ip[10..12].copy_from_slice(&header_checksum.to_be_bytes());
    fill_icmp(icmp, kind, code, rest, quote, checksum::Sum::default());
}

/// `out` is exactly as long as the answer.
fn build_v6(out: &mut [u8], error: IcmpError, from: Ipv6Addr, to: Ipv6Addr, quote: &[u8]) {
    let (kind, code, rest) = match error {
        IcmpError::TimeExceeded => (3, 0, 0),
        IcmpError::TooBig { mtu } => (2, 0, mtu),
        IcmpError::NoRoute => (1, 0, 0),
        IcmpError::HostUnreachable => (1, 3, 0),
        IcmpError::AdminProhibited => (1, 1, 0),
    };
    let (ip, icmp) = out.split_at_mut(40);
    let payload_len = icmp.len() as u16;
    ip.fill(0);
    ip[0] = 0x60 | TRAFFIC_CLASS >> 4;
    ip[1] = TRAFFIC_CLASS << 4;
    ip[4..6].copy_from_slice(&payload_len.to_be_bytes());
    ip[6] = protocol::ICMPV6;
    ip[7] = HOP_LIMIT;
    ip[8..24].copy_from_slice(&from.octets());
    ip[24..40].copy_from_slice(&to.octets());
    let pseudo = checksum::pseudo_header(
        IpAddr::V6(from),
        IpAddr::V6(to),
        protocol::ICMPV6,
        payload_len.into(),
    );
    fill_icmp(icmp, kind, code, rest, quote, pseudo);
}

/// The ICMP message: 8 bytes of header and the quote.
fn fill_icmp(icmp: &mut [u8], kind: u8, code: u8, rest: u32, quote: &[u8], pseudo: checksum::Sum) {
    let (header, body) = icmp.split_at_mut(ICMP_HEADER);
    header[..4].copy_from_slice(&[kind, code, 0, 0]);
    header[4..].copy_from_slice(&rest.to_be_bytes());
    body.copy_from_slice(quote);
    let checksum = pseudo.plus(checksum::sum(icmp)).checksum();
    icmp[2..4].copy_from_slice(&checksum.to_be_bytes());
}
