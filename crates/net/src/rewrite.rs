//! Changing a frame in place on its way through.

use evenkeel_core::Reason;
use evenkeel_core::packet::Ecn;

use crate::MacAddr;
use crate::checksum;
use crate::frame::{Headers, IpVersion};

/// Takes one off the time to live or hop limit, in the frame and in `headers`; IPv4's header
/// checksum follows incrementally. Gives the new value, which is at least 1.
///
/// # Errors
/// [`Reason::TtlExpired`] if it is 0 or 1, [`Reason::Truncated`] if the frame is shorter than
/// `headers` says. Nothing changed.
#[inline]
pub fn decrement_ttl(frame: &mut [u8], headers: &mut Headers) -> Result<u8, Reason> {
    headers.ttl = decrement_ttl_at(frame, headers.l3, headers.version)?;
    Ok(headers.ttl)
}

/// [`decrement_ttl`] for who knows no more than where the IP header is, and its version.
///
/// # Errors
/// As [`decrement_ttl`].
#[inline]
pub fn decrement_ttl_at(frame: &mut [u8], l3: u16, version: IpVersion) -> Result<u8, Reason> {
    let Some(ip) = frame.get_mut(usize::from(l3)..).and_then(<[u8]>::first_chunk_mut::<20>) else {
        return Err(Reason::Truncated);
    };
    let at = match version {
        IpVersion::V4 => 8,
        IpVersion::V6 => 7,
    };
    let old = ip[at];
    if old <= 1 {
        return Err(Reason::TtlExpired);
    }
    ip[at] = old - 1;
    if version == IpVersion::V4 {
        let word = |ttl: u8| u16::from_be_bytes([ttl, ip[9]]);
        let checksum = u16::from_be_bytes([ip[10], ip[11]]);
        let checksum = checksum::update(checksum, word(old), word(old - 1));
        [ip[10], ip[11]] = checksum.to_be_bytes();
    }
    Ok(old - 1)
}

/// Writes the Ethernet addresses of the next hop's link; tags and type stay.
///
/// # Errors
/// [`Reason::Truncated`] if the frame is shorter than 12 bytes. Nothing changed.
#[inline]
pub fn set_macs(frame: &mut [u8], source: MacAddr, destination: MacAddr) -> Result<(), Reason> {
    let Some(header) = frame.first_chunk_mut::<12>() else {
        return Err(Reason::Truncated);
    };
    header[..6].copy_from_slice(&destination.0);
    header[6..].copy_from_slice(&source.0);
    Ok(())
}

/// Where the IP header of a frame begins, past VLAN tags; `None`: it carries no IP.
#[inline]
fn ip_header(frame: &[u8]) -> Option<(usize, IpVersion)> {
    let mut at = 12;
    loop {
        let kind = u16::from_be_bytes(*frame.get(at..)?.first_chunk()?);
        at += 2;
        match kind {
            0x0800 => return Some((at, IpVersion::V4)),
            0x86dd => return Some((at, IpVersion::V6)),
            // 802.1Q and 802.1ad.
            0x8100 | 0x88a8 => at += 2,
            _not_ip => return None,
        }
    }
}

/// The first two bytes of an IP header as a number, and how far its ECN is shifted in it.
#[inline]
fn ecn_word(frame: &[u8]) -> Option<(usize, IpVersion, u16, u32)> {
    let (at, version) = ip_header(frame)?;
    let word = u16::from_be_bytes(*frame.get(at..)?.first_chunk()?);
    let shift = if version == IpVersion::V4 { 0 } else { 4 };
    Some((at, version, word, shift))
}

/// What the (outer) IP header of a frame says of congestion notification. What is not IP, or too
/// short for it, is not capable of any.
#[inline]
#[must_use]
pub fn ecn(frame: &[u8]) -> Ecn {
    let bits = ecn_word(frame).map_or(0, |(_, _, word, shift)| word >> shift);
    Ecn::from_bits(bits as u8)
}

/// Says in the (outer) IP header of a frame that congestion was experienced; IPv4's header checksum
/// follows incrementally. Only where the sender listens: else nothing changes.
pub fn mark(frame: &mut [u8]) {
    let Some((at, version, old, shift)) = ecn_word(frame) else { return };
    if !Ecn::from_bits((old >> shift) as u8).listens() {
        return;
    }
    let new = old | 3 << shift;
    frame[at..at + 2].copy_from_slice(&new.to_be_bytes());
    if version == IpVersion::V4
        && let Some(field) = frame.get_mut(at + 10..).and_then(<[u8]>::first_chunk_mut::<2>)
    {
        *field = checksum::update(u16::from_be_bytes(*field), old, new).to_be_bytes();
    }
}

/// What [`decrement_ttl`] and [`set_macs`] do, of an IPv4 packet without tag whose time to live is
/// more than 1: for frames of which that is known. `stations` are destination and source.
///
/// # Errors
/// [`Reason::Truncated`] if the frame ends before its IP header does. Nothing changed.
#[inline(always)] // some ten instructions for a packet, which a call would double
pub fn forward_usual(frame: &mut [u8], stations: &[u8; 12]) -> Result<(), Reason> {
    let Some(head) = frame.first_chunk_mut::<34>() else {
        return Err(Reason::Truncated);
    };
    head[..12].copy_from_slice(stations);
    head[22] = head[22].wrapping_sub(1);
    [head[24], head[25]] = checksum::after_hop([head[24], head[25]]);
    Ok(())
}

/// Writes the differentiated services code point (its low 6 bits), in the frame and in `headers`;
/// ECN stays, and IPv4's header checksum follows incrementally.
///
/// # Errors
/// [`Reason::Truncated`] if the frame is shorter than `headers` says. Nothing changed.
#[inline]
pub fn set_dscp(frame: &mut [u8], headers: &mut Headers, dscp: u8) -> Result<(), Reason> {
    let l3 = usize::from(headers.l3);
    let Some(ip) = frame.get_mut(l3..).and_then(<[u8]>::first_chunk_mut::<20>) else {
        return Err(Reason::Truncated);
    };
    let dscp = dscp & 0x3f;
    let old = u16::from_be_bytes([ip[0], ip[1]]);
    let new = match headers.version {
        IpVersion::V4 => old & !0x00fc | u16::from(dscp) << 2,
        IpVersion::V6 => old & !0x0fc0 | u16::from(dscp) << 6,
    };
    [ip[0], ip[1]] = new.to_be_bytes();
    if headers.version == IpVersion::V4 {
        let checksum = checksum::update(u16::from_be_bytes([ip[10], ip[11]]), old, new);
        [ip[10], ip[11]] = checksum.to_be_bytes();
    }
    headers.dscp = dscp;
    Ok(())
}
