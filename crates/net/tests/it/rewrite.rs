//! What forwarding changes, and that every checksum stays right.

use evenkeel_core::Reason;
use evenkeel_core::packet::Ecn;
use evenkeel_net::checksum;
use evenkeel_net::frame::{Headers, IpVersion};
use evenkeel_net::{MacAddr, rewrite};
use proptest::prelude::*;
use smoltcp::wire::{Icmpv4Packet, Icmpv6Packet, IpAddress, TcpPacket, UdpPacket};

use crate::common::{Recipe, Transport, headers, recipe};

/// What smoltcp says about the transport checksum of a frame.
fn transport_checksum_is_right(frame: &[u8], h: &Headers) -> bool {
    let transport = &frame[usize::from(h.l4)..h.frame_len()];
    let (source, destination) =
        (IpAddress::from(h.flow.source), IpAddress::from(h.flow.destination));
    match h.protocol {
        6 => TcpPacket::new_unchecked(transport).verify_checksum(&source, &destination),
        17 => UdpPacket::new_unchecked(transport).verify_checksum(&source, &destination),
        1 => Icmpv4Packet::new_unchecked(transport).verify_checksum(),
        58 => match (h.flow.source, h.flow.destination) {
            (std::net::IpAddr::V6(s), std::net::IpAddr::V6(d)) => {
                Icmpv6Packet::new_unchecked(transport).verify_checksum(&s, &d)
            }
            _ => false,
        },
        _ => false,
    }
}

fn field_offset(h: &Headers) -> usize {
    usize::from(h.l4)
        + match h.protocol {
            6 => 16,
            17 => 6,
            _ => 2,
        }
}

#[test]
fn the_last_hop_is_counted_exactly() {
    for (source, destination) in [("10.0.0.2", "10.1.0.2"), ("2001:db8::2", "2001:db8:1::2")] {
        for ttl in [0, 1] {
            let (mut frame, mut h) = Recipe { ttl, ..Recipe::udp(source, destination) }.parsed();
            let before = (frame.clone(), h);
            assert_eq!(rewrite::decrement_ttl(&mut frame, &mut h), Err(Reason::TtlExpired));
            assert_eq!((frame, h), before);
        }
        let (mut frame, mut h) = Recipe { ttl: 2, ..Recipe::udp(source, destination) }.parsed();
        assert_eq!(rewrite::decrement_ttl(&mut frame, &mut h), Ok(1));
        assert_eq!(headers(&frame), h);
        assert_eq!(h.ttl, 1);
    }
}

#[test]
fn frames_shorter_than_promised_are_left_alone() {
    let (frame, mut h) = Recipe::udp("10.0.0.2", "10.1.0.2").parsed();
    let mut short = frame[..33].to_vec();
    assert_eq!(rewrite::decrement_ttl(&mut short, &mut h), Err(Reason::Truncated));
    assert_eq!(rewrite::set_dscp(&mut short, &mut h, 46), Err(Reason::Truncated));
    assert_eq!(checksum::complete_l4(&mut short, &h), Err(Reason::Truncated));
    assert_eq!(
        rewrite::set_macs(&mut short[..11], MacAddr::BROADCAST, MacAddr::BROADCAST),
        Err(Reason::Truncated)
    );
    assert_eq!(short, &frame[..33]);
}

#[test]
fn udp_never_says_it_has_no_checksum() {
    let (mut frame, h) =
        Recipe { payload: vec![0, 0], ..Recipe::udp("10.0.0.2", "10.1.0.2") }.parsed();
    let at = field_offset(&h);
    // A payload of the checksum over a payload of zeros makes the sum 0xffff, whose complement is
    // zero.
    frame.copy_within(at..at + 2, at + 2);
    assert_eq!(checksum::complete_l4(&mut frame, &h), Ok(true));
    assert_eq!(&frame[at..at + 2], &[0xff, 0xff]);
    assert!(transport_checksum_is_right(&frame, &h));
}

#[test]
fn fragments_and_unknown_protocols_have_no_checksum_to_complete() {
    let (mut frame, mut h) = Recipe::udp("10.0.0.2", "10.1.0.2").parsed();
    let before = frame.clone();
    for fragment in [evenkeel_net::frame::Fragment::First, evenkeel_net::frame::Fragment::Later] {
        assert_eq!(checksum::complete_l4(&mut frame, &Headers { fragment, ..h }), Ok(false));
    }
    h.protocol = 132;
    assert_eq!(checksum::complete_l4(&mut frame, &h), Ok(false));
    h.protocol = 58; // ICMPv6 over IPv4 does not exist
    assert_eq!(checksum::complete_l4(&mut frame, &h), Ok(false));
    assert_eq!(frame, before);
}

proptest! {
    #[test]
    fn incremental_updates_equal_whole_computation(data in prop::collection::vec(any::<u8>(), 20),
        at in 0_usize..9, new in any::<u16>()) {
        let mut data = data;
        data[19] |= 1; // not all zeros, as no header is
        let before = checksum::sum(&data).checksum();
        let old = u16::from_be_bytes([data[2 * at], data[2 * at + 1]]);
        data[2 * at..2 * at + 2].copy_from_slice(&new.to_be_bytes());
        prop_assert_eq!(checksum::update(before, old, new), checksum::sum(&data).checksum());
    }

    #[test]
    fn sums_do_not_depend_on_how_they_are_cut(data in prop::collection::vec(any::<u8>(), 0..200),
        cut in 0_usize..100) {
        let cut = (2 * cut).min(data.len() & !1);
        let (head, tail) = data.split_at(cut);
        prop_assert_eq!(checksum::sum(head).plus(checksum::sum(tail)).fold(),
            checksum::sum(&data).fold());
        // RFC 1071, as written.
        let mut slow = 0_u64;
        for pair in data.chunks(2) {
            slow += u64::from(pair[0]) << 8 | u64::from(pair.get(1).copied().unwrap_or(0));
        }
        while slow > 0xffff {
            slow = (slow >> 16) + (slow & 0xffff);
        }
        prop_assert_eq!(u64::from(checksum::sum(&data).fold()), slow);
    }

    /// A mark is two bits and the checksum over them, behind tags as before them, and only where
    /// the sender listens.
    #[test]
    fn a_mark_changes_two_bits_and_the_checksum(recipe in recipe(), ecn in 0_u8..4) {
        let (mut frame, h) = recipe.parsed();
        let (l3, v4) = (usize::from(h.l3), h.version == IpVersion::V4);
        // As a sender makes it.
        let old = u16::from_be_bytes([frame[l3], frame[l3 + 1]]);
        let bits = u16::from(ecn) << if v4 { 0 } else { 4 };
        let new = old & !(3 << if v4 { 0 } else { 4 }) | bits;
        frame[l3..l3 + 2].copy_from_slice(&new.to_be_bytes());
        if v4 {
            let sum = u16::from_be_bytes([frame[l3 + 10], frame[l3 + 11]]);
            let sum = checksum::update(sum, old, new);
            frame[l3 + 10..l3 + 12].copy_from_slice(&sum.to_be_bytes());
        }
        let sent = Headers { ecn, ..h };
        prop_assert_eq!(headers(&frame), sent);
        prop_assert_eq!(rewrite::ecn(&frame), Ecn::from_bits(ecn));
        let mut marked = frame.clone();
        rewrite::mark(&mut marked);
        let expected = if ecn == 0 { 0 } else { 3 };
        prop_assert_eq!(headers(&marked), Headers { ecn: expected, ..sent });
        let differ = |at: &usize| marked[*at] != frame[*at];
        let touched: Vec<usize> = (0..frame.len()).filter(differ).map(|at| at - l3).collect();
        prop_assert!(touched.iter().all(|at| [1, 10, 11].contains(at)), "{touched:?}");
        prop_assert!(transport_checksum_is_right(&marked, &sent));
    }

    #[test]
    fn forwarding_changes_what_it_must_and_nothing_else(recipe in recipe(), dscp in any::<u8>()) {
        let (original, before) = recipe.parsed();
        let (mut frame, mut h) = (original.clone(), before);
        prop_assume!(recipe.ttl > 1);
        prop_assert_eq!(rewrite::decrement_ttl(&mut frame, &mut h), Ok(recipe.ttl - 1));
        prop_assert_eq!(headers(&frame), h, "headers follow the frame, and its checksum is right");
        prop_assert_eq!(h, Headers { ttl: recipe.ttl - 1, ..before });
        rewrite::set_dscp(&mut frame, &mut h, dscp).unwrap();
        prop_assert_eq!(headers(&frame), h);
        prop_assert_eq!(h, Headers { ttl: recipe.ttl - 1, dscp: dscp & 0x3f, ..before });
        let (from, to) = (MacAddr([2, 1, 1, 1, 1, 1]), MacAddr([2, 2, 2, 2, 2, 2]));
        rewrite::set_macs(&mut frame, from, to).unwrap();
        prop_assert_eq!(evenkeel_net::frame::source_mac(&frame), Some(from));
        prop_assert_eq!(evenkeel_net::frame::destination_mac(&frame), Some(to));
        prop_assert!(transport_checksum_is_right(&frame, &h));

        // Undone by hand, the frame is the old one: no other byte changed.
        let l3 = usize::from(h.l3);
        frame[..12].copy_from_slice(&original[..12]);
        let touched: &[usize] =
            if h.version == IpVersion::V4 { &[1, 8, 10, 11] } else { &[0, 1, 7] };
        for at in touched {
            frame[l3 + at] = original[l3 + at];
        }
        prop_assert_eq!(frame, original);
    }

    /// As Linux hands frames over: the field holds the sum over the pseudo-header.
    #[test]
    fn partial_checksums_are_completed(recipe in recipe()) {
        let (original, h) = recipe.parsed();
        let mut frame = original.clone();
        let at = field_offset(&h);
        let len = (h.frame_len() - usize::from(h.l4)) as u32;
        let partial = if h.protocol == 1 {
            0
        } else {
            checksum::pseudo_header(h.flow.source, h.flow.destination, h.protocol, len).fold()
        };
        frame[at..at + 2].copy_from_slice(&partial.to_be_bytes());
        prop_assert_eq!(checksum::complete_l4(&mut frame, &h), Ok(true));
        prop_assert!(transport_checksum_is_right(&frame, &h));
        prop_assert_eq!(&frame, &original, "etherparse computed the same");
        if recipe.extensions == [None; 2] && !recipe.atomic_fragment {
            // Without extension headers it is computed anew, whatever the field held.
            frame[at] ^= 0x5a;
            prop_assert_eq!(checksum::complete_l4(&mut frame, &h), Ok(true));
            prop_assert_eq!(&frame, &original);
        }
    }
}

#[test]
fn tcp_and_echo_are_covered() {
    for transport in [Transport::Tcp(1, 2), Transport::Echo(3)] {
        for (source, destination) in [("10.0.0.2", "10.1.0.2"), ("2001:db8::2", "2001:db8:1::2")] {
            let (mut frame, h) = Recipe { transport, ..Recipe::udp(source, destination) }.parsed();
            let at = field_offset(&h);
            frame[at] ^= 0xff;
            assert!(!transport_checksum_is_right(&frame, &h), "the check can fail");
            assert_eq!(checksum::complete_l4(&mut frame, &h), Ok(true));
            assert!(transport_checksum_is_right(&frame, &h));
        }
    }
}

#[test]
fn what_is_not_ip_is_neither_heard_nor_marked() {
    let arp = [&[2_u8; 12][..], &[0x08, 0x06], &[0xff; 28]].concat();
    let short = [&[2_u8; 12][..], &[0x08, 0x00], &[0x45]].concat();
    let tags = [&[2_u8; 12][..], &[0x81, 0x00, 0, 1].repeat(3)].concat();
    for frame in [arp, short, tags, Vec::new()] {
        assert_eq!(rewrite::ecn(&frame), Ecn::NotCapable);
        let mut copy = frame.clone();
        rewrite::mark(&mut copy);
        assert_eq!(copy, frame);
    }
}
