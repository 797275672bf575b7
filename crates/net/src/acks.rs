//! What a frame of TCP acknowledges (RFC 9293, 3.1), for the ACK filter of a link.

use evenkeel_core::packet::Ack;

use crate::below::parse_below;
use crate::frame::{self, Fragment, Parsed};

const TCP: u8 = 6;
/// Header of TCP without options.
const TCP_HEADER: usize = 20;
/// Most options that are looked at: a segment has room for 40 bytes of them.
const MOST_OPTIONS: usize = 40;

/// What a frame acknowledges; `None`: nothing. Whatever is not known does more than acknowledge.
#[must_use]
pub fn ack_of(frame: &[u8]) -> Option<Ack> {
    const ACK: u8 = 0x10;
    const SYN: u8 = 0x02;
    const CONGESTION: u8 = 0xc0;
    let headers = match frame::parse(frame) {
        Ok(Parsed::Ip(headers)) if headers.is_untagged() => headers,
        Ok(_) => parse_below(frame)?,
        Err(_) => return None,
    };
    if headers.protocol != TCP || headers.fragment != Fragment::No {
        return None;
    }
    let tcp = frame.get(usize::from(headers.l4)..)?;
    let (fixed, _) = tcp.split_first_chunk::<TCP_HEADER>()?;
    let (flags, length) = (fixed[13], usize::from(fixed[12] >> 4) * 4);
    if flags & (ACK | SYN) != ACK {
        return None;
    }
    let options = tcp.get(TCP_HEADER..length)?;
    let up_to_data = u32::from(headers.l4 - headers.l3) + length as u32;
    Some(Ack {
        number: u32::from_be_bytes([fixed[8], fixed[9], fixed[10], fixed[11]]),
        // AE is the last bit of the byte before (AccECN), and two bits there are nobody's.
        flags: flags >> 6 | (fixed[12] & 0xf) << 2,
        is_bare: flags & !CONGESTION == ACK && headers.ip_len == up_to_data && are_plain(options),
    })
}

/// Whether there is no option but time stamps and what fills up.
fn are_plain(mut options: &[u8]) -> bool {
    for _ in 0..MOST_OPTIONS {
        let length = match options {
            [] | [0, ..] => return true,
            [1, ..] => 1,
            [8, 10, ..] => 10,
            _ => return false,
        };
        match options.get(length..) {
            Some(rest) => options = rest,
            None => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use etherparse::{PacketBuilder, TcpHeader};

    use super::*;

    fn segment(options: &[u8], data: &[u8], set: impl FnOnce(&mut TcpHeader)) -> Vec<u8> {
        let mut tcp = TcpHeader::new(5_000, 80, 1, 1_000);
        (tcp.ack, tcp.acknowledgment_number) = (true, 7);
        tcp.set_options_raw(options).unwrap();
        set(&mut tcp);
        let ip = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4([10, 0, 0, 1], [10, 0, 0, 9], 64);
        let mut frame = Vec::new();
        ip.tcp_header(tcp).write(&mut frame, data).unwrap();
        frame
    }

    #[test]
    fn what_only_acknowledges_is_bare() {
        let stamps = [1, 1, 8, 10, 0, 0, 1, 0, 0, 0, 2, 0];
        let bare = |options: &[u8], data: &[u8], set: fn(&mut TcpHeader)| {
            let frame = segment(options, data, set);
            (0..frame.len()).for_each(|cut| {
                // Whatever is cut, nothing is read that is not there.
                let _ = ack_of(&frame[..cut]);
            });
            ack_of(&frame).map(|ack| (ack.number, ack.flags, ack.is_bare))
        };
        assert_eq!(bare(&[], &[], |_| ()), Some((7, 0, true)));
        assert_eq!(bare(&stamps, &[], |_| ()), Some((7, 0, true)));
        assert_eq!(bare(&stamps, &[1], |_| ()), Some((7, 0, false)));
        let sack = [1, 1, 5, 10, 0, 0, 0, 1, 0, 0, 0, 2];
        assert_eq!(bare(&sack, &[], |_| ()), Some((7, 0, false)));
        // Multipath TCP.
        assert_eq!(bare(&[30, 4, 0, 0], &[], |_| ()), Some((7, 0, false)));
        assert_eq!(bare(&[], &[], |tcp| tcp.fin = true), Some((7, 0, false)));
        assert_eq!(bare(&[], &[], |tcp| tcp.psh = true), Some((7, 0, false)));
        assert_eq!(bare(&[], &[], |tcp| tcp.ece = true), Some((7, 1, true)));
        assert_eq!(bare(&[], &[], |tcp| tcp.cwr = true), Some((7, 2, true)));
        assert_eq!(bare(&[], &[], |tcp| tcp.ns = true), Some((7, 4, true)));
        assert_eq!(bare(&[], &[], |tcp| tcp.syn = true), None);
        assert_eq!(bare(&[], &[], |tcp| tcp.ack = false), None);
    }

    #[test]
    fn a_later_one_covers_a_bare_one_that_says_the_same_of_congestion() {
        let ack = |number, flags, is_bare| Ack { number, flags, is_bare };
        let (old, new) = (ack(u32::MAX - 9, 0, true), ack(10, 0, false));
        assert!(new.covers(old) && !old.covers(old) && !old.covers(new));
        assert!(!new.covers(ack(5, 0, false)) && !new.covers(ack(5, 1, true)));
        assert!(new.covers(ack(5, 0, true)));
    }
}
