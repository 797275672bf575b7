//! Checksums that a sender has left to hardware which is not there.
//!
//! A host at the other end of a veth pair leaves transport checksums to the "hardware". A packet
//! socket is told so; an XDP program is not. What such a sender has written is the folded sum over
//! the pseudo header, not inverted, so it can be recognised. A packet whose complete checksum
//! happens to have that value (one in 65,536) is recognised too: completing it gives the same value
//! again, unless it was damaged.

/// Whether the transport checksum of this frame (TCP or UDP, over IPv4 or IPv6 without extension
/// headers, behind up to one VLAN tag) holds the sum over the pseudo header only.
#[inline(always)] // as `Queue::adopt`
pub(super) fn is_partial(frame: &[u8]) -> bool {
    partial(frame).unwrap_or(false)
}

#[inline(always)]
fn partial(frame: &[u8]) -> Option<bool> {
    let half = |at: usize| Some(u16::from_be_bytes([*frame.get(at)?, *frame.get(at + 1)?]));
    let mut l3 = 14;
    let mut kind = half(12)?;
    if kind == 0x8100 || kind == 0x88a8 {
        kind = half(16)?;
        l3 = 18;
    }
    let (addresses, l4, protocol, length) = match kind {
        0x0800 => {
            let header = usize::from(frame.get(l3)? & 0x0f) * 4;
            // Of a fragment only the first has the field, and it covers what is elsewhere: no
            // sender leaves that to hardware.
            if half(l3 + 6)? & 0x3fff != 0 {
                return None;
            }
            (
                l3 + 12..l3 + 20,
                l3 + header,
                *frame.get(l3 + 9)?,
                usize::from(half(l3 + 2)?).checked_sub(header)?,
            )
        }
        0x86dd => (l3 + 8..l3 + 40, l3 + 40, *frame.get(l3 + 6)?, usize::from(half(l3 + 4)?)),
        _ => return None,
    };
    let field = match protocol {
        6 => l4 + 16,
        17 => l4 + 6,
        _ => return None,
    };
    let mut sum = u32::from(protocol) + length as u32;
    for pair in frame.get(addresses)?.chunks_exact(2) {
        sum += u32::from(u16::from_be_bytes([pair[0], pair[1]]));
    }
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    Some(half(field)? == sum as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn udp4(checksum: u16) -> Vec<u8> {
        let mut frame = vec![0; 14 + 20 + 8 + 4];
        frame[12..14].copy_from_slice(&[8, 0]);
        frame[14] = 0x45;
        frame[16..18].copy_from_slice(&32u16.to_be_bytes());
        frame[23] = 17;
        frame[26..30].copy_from_slice(&[10, 0, 0, 1]);
        frame[30..34].copy_from_slice(&[10, 0, 1, 1]);
        frame[40..42].copy_from_slice(&checksum.to_be_bytes());
        frame
    }

    #[test]
    fn only_the_sum_over_the_pseudo_header_is_partial() {
        // 0a00 + 0001 + 0a00 + 0101 + 17 + 12
        let pseudo = 0x0a00 + 0x0001 + 0x0a00 + 0x0101 + 17 + 12;
        assert!(is_partial(&udp4(pseudo)));
        assert!(!is_partial(&udp4(pseudo + 1)));
        assert!(!is_partial(&udp4(0)), "UDP without a checksum");
        let mut fragment = udp4(pseudo);
        fragment[20] = 0x20;
        assert!(!is_partial(&fragment));
        for len in 0..udp4(pseudo).len() - 4 {
            let _ = is_partial(&udp4(pseudo)[..len]);
        }
    }
}
