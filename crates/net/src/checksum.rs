//! The Internet checksum: whole, incremental, and completed for frames that came with a partial
//! one.
//!
//! Sources: RFC 1071 (computing it), RFC 1624 (updating it), RFC 768 (UDP's zero), RFC 8200, 8.1
//! (IPv6 pseudo-header).

use core::net::IpAddr;

use evenkeel_core::Reason;

use crate::frame::{Fragment, Headers, IpVersion, protocol};

/// A one's complement sum under way. 64 bits hold the sum of 32-bit words of more than 16 GiB
/// without overflow.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[must_use]
pub struct Sum(u64);

impl Sum {
    /// Adds a 16-bit word.
    pub const fn add_u16(self, word: u16) -> Self {
        Self(self.0 + word as u64)
    }

    /// Adds two 16-bit words.
    pub const fn add_u32(self, words: u32) -> Self {
        Self(self.0 + words as u64)
    }

    /// Adds another sum. Both must have started at an even offset of the data.
    pub const fn plus(self, other: Self) -> Self {
        Self(self.0 + other.fold() as u64)
    }

    /// The sum as 16 bits: 0xffff over data with a correct checksum.
    #[must_use]
    pub const fn fold(self) -> u16 {
        let mut sum = (self.0 >> 32) + (self.0 & 0xffff_ffff);
        sum = (sum >> 32) + (sum & 0xffff_ffff);
        sum = (sum >> 16) + (sum & 0xffff);
        sum = (sum >> 16) + (sum & 0xffff);
        sum as u16
    }

    /// The checksum: the complement of the sum.
    #[must_use]
    pub const fn checksum(self) -> u16 {
        !self.fold()
    }
}

/// The sum over `data` as big-endian words; an odd last byte counts as if a zero followed.
pub fn sum(data: &[u8]) -> Sum {
    let (quads, tail) = data.as_chunks::<4>();
    let mut total: u64 = quads.iter().map(|quad| u64::from(u32::from_be_bytes(*quad))).sum();
    let mut last = [0; 4];
    for (to, from) in last.iter_mut().zip(tail) {
        *to = *from;
    }
    total += u64::from(u32::from_be_bytes(last));
    Sum(total)
}

/// The sum over an IPv4 header without options.
#[inline]
pub fn sum_20(header: &[u8; 20]) -> Sum {
    let (quads, _) = header.as_chunks::<4>();
    Sum(quads.iter().map(|quad| u64::from(u32::from_be_bytes(*quad))).sum())
}

/// Whether the checksum of an IPv4 header without options is right. The sum is taken in the byte
/// order of the machine: all ones are so in any (RFC 1071, 2).
#[inline]
#[must_use]
pub fn is_right_20(header: &[u8; 20]) -> bool {
    let (quads, _) = header.as_chunks::<4>();
    let sum: u64 = quads.iter().map(|quad| u64::from(u32::from_ne_bytes(*quad))).sum();
    // Five words: 35 bits, then 33, then 18.
    let sum = (sum >> 32) + (sum & 0xffff_ffff);
    let sum = (sum >> 16) + (sum & 0xffff);
    sum != 0 && sum.is_multiple_of(0xffff)
}

/// The sum over the pseudo-header of a transport packet of `len` bytes.
pub fn pseudo_header(source: IpAddr, destination: IpAddr, protocol: u8, len: u32) -> Sum {
    let address = |address: IpAddr| match address {
        IpAddr::V4(a) => Sum::default().add_u32(a.to_bits()),
        IpAddr::V6(a) => sum(&a.octets()),
    };
    address(source).plus(address(destination)).add_u32(len).add_u16(protocol.into())
}

/// The checksum after one of the words under it changed from `old` to `new` (RFC 1624, equation 3).
#[inline]
#[must_use]
pub const fn update(checksum: u16, old: u16, new: u16) -> u16 {
    Sum(0).add_u16(!checksum).add_u16(!old).add_u16(new).checksum()
}

/// Computes the transport checksum of a whole IP packet anew, for frames that hosts handed over
/// with a partial one (checksum offload), and says whether there was one to compute.
///
/// TCP, UDP, ICMP and ICMPv6 are known. `Ok(false)`, and nothing changed: another protocol, a
/// fragment (its checksum covers parts that are elsewhere), or a packet too short for the field.
/// Call it before [`fragment_ipv4`](crate::fragment::fragment_ipv4).
///
/// # Errors
/// [`Reason::Truncated`] if the frame is shorter than `headers` says.
pub fn complete_l4(frame: &mut [u8], headers: &Headers) -> Result<bool, Reason> {
    let (l3, l4) = (usize::from(headers.l3), usize::from(headers.l4));
    let Some(transport) = frame.get_mut(l4..headers.frame_len()) else {
        return Err(Reason::Truncated);
    };
    if headers.fragment != Fragment::No {
        return Ok(false);
    }
    let at = match (headers.protocol, headers.version) {
        (protocol::TCP, _) => 16,
        (protocol::UDP, _) => 6,
        (protocol::ICMP, IpVersion::V4) | (protocol::ICMPV6, IpVersion::V6) => 2,
        _ => return Ok(false),
    };
    let Some(&[high, low]) = transport.get(at..).and_then(<[u8]>::first_chunk::<2>) else {
        return Ok(false);
    };
    let has_extensions = headers.version == IpVersion::V6 && l4 > l3 + 40;
    let before = if headers.protocol == protocol::ICMP {
        Sum::default()
    } else if has_extensions {
        // A routing header can hide the final destination, which is the one that counts (RFC
        // 8200, 8.1). The partial checksum is the sum over the right pseudo-header: whoever left it
        // there knew.
        Sum::default().add_u16(u16::from_be_bytes([high, low]))
    } else {
        let len = transport.len() as u32;
        pseudo_header(headers.flow.source, headers.flow.destination, headers.protocol, len)
    };
    transport[at..at + 2].fill(0);
    let checksum = match before.plus(sum(transport)).checksum() {
        // UDP: zero would mean "no checksum" (RFC 768).
        0 if headers.protocol == protocol::UDP => 0xffff,
        checksum => checksum,
    };
    transport[at..at + 2].copy_from_slice(&checksum.to_be_bytes());
    Ok(true)
}
