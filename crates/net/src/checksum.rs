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
    let ([first, second], [last]) = (header.as_chunks().0, header[16..].as_chunks().0) else {
        return false;
    };
    let last = u64::from(u32::from_ne_bytes(*last));
    let (sum, carry) = u64::from_ne_bytes(*first).overflowing_add(u64::from_ne_bytes(*second));
    let (sum, again) = sum.overflowing_add(last + u64::from(carry));
    let sum = sum + u64::from(again);
    // A sum and itself with its halves exchanged: the upper half is the sum of both, carry and all.
    let sum = (sum.wrapping_add(sum.rotate_left(32)) >> 32) as u32;
    let sum = (sum.wrapping_add(sum.rotate_left(16)) >> 16) as u16;
    sum == u16::MAX
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

/// The same, as it lies in the header, where the word is the one with the time to live and is
/// 0x0100 less, whatever it was.
#[inline]
#[must_use]
pub const fn after_hop(checksum: [u8; 2]) -> [u8; 2] {
    // HC' = ~(~HC + ~m + m'), in any order of bytes.
    let before = !u16::from_ne_bytes(checksum);
    let (sum, carry) = before.overflowing_add(!u16::from_ne_bytes([1, 0]));
    (!(sum.wrapping_add(carry as u16))).to_ne_bytes()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hop_changes_the_checksum_as_its_word_does() {
        for checksum in 0..=u16::MAX {
            let after = u16::from_be_bytes(after_hop(checksum.to_be_bytes()));
            assert_eq!(after, update(checksum, 0x0100, 0), "{checksum:#x}");
        }
    }

    #[test]
    fn a_header_is_right_where_its_sum_is() {
        let mut state = 1_u64;
        let mut right = 0;
        for turn in 0..200_000 {
            let mut header = [0; 20];
            for word in header.chunks_mut(4) {
                // Zeros and ones, whose sums are where carries go wrong, as often as anything.
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                let drawn = match state >> 62 {
                    0 => 0,
                    1 => u32::MAX,
                    _ => state as u32,
                };
                word.copy_from_slice(&drawn.to_ne_bytes());
            }
            if turn % 2 == 0 {
                header[10..12].fill(0);
                let checksum = sum(&header).checksum();
                header[10..12].copy_from_slice(&checksum.to_be_bytes());
            }
            let is_right = sum(&header).fold() == u16::MAX;
            assert_eq!(is_right_20(&header), is_right, "{header:?}");
            right += u32::from(is_right);
        }
        assert!((100_000..150_000).contains(&right), "{right}");
        assert!(!is_right_20(&[0; 20]) && is_right_20(&[0xff; 20]));
    }
}
