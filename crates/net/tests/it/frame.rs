//! What is refused, why, and that nothing panics.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use evenkeel_core::{FlowKey, Reason};
use evenkeel_net::frame::{self, Fragment, Headers, IpVersion, Parsed, ethertype};
use evenkeel_net::icmp::{self, IcmpError};
use evenkeel_net::{MacAddr, checksum, fragment, rewrite};
use proptest::prelude::*;

use crate::common::{Recipe, Transport, headers, recipe};

fn v4() -> Recipe {
    Recipe::udp("10.0.0.2", "10.1.0.2")
}

fn v6() -> Recipe {
    Recipe::udp("2001:db8::2", "2001:db8:1::2")
}

/// Recomputes the checksum of an untagged IPv4 frame's header, so that another mistake in it is
/// seen.
fn repair(frame: &mut [u8]) {
    let end = 14 + usize::from(frame[14] & 0xf) * 4;
    frame[24..26].fill(0);
    let sum = checksum::sum(&frame[14..end]).checksum();
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
}

/// The IPv4 frame with one byte of its header changed and the checksum right.
fn v4_with(at: usize, value: u8) -> Vec<u8> {
    let mut frame = v4().build();
    frame[14 + at] = value;
    repair(&mut frame);
    frame
}

/// An IPv6 frame whose chain is `next` and then these bytes, 40 of UDP-like payload behind them.
fn v6_with(next: u8, chain: &[u8]) -> Vec<u8> {
    let mut frame = v6().build();
    frame.truncate(14 + 40);
    frame[20] = next;
    frame.extend_from_slice(chain);
    frame.extend_from_slice(&[0x13, 0x88, 0x17, 0x70]);
    frame.resize(frame.len() + 36, 0);
    let payload_len = (frame.len() - 54) as u16;
    frame[18..20].copy_from_slice(&payload_len.to_be_bytes());
    frame
}

#[test]
fn every_truncation_of_every_shape_is_refused_for_the_right_reason() {
    let shapes = [
        v4(),
        Recipe { vlans: vec![7], options: vec![148, 4, 0, 0, 1, 1, 1, 0], ..v4() },
        Recipe { transport: Transport::Tcp(1, 2), vlans: vec![7, 8], ..v4() },
        v6(),
        Recipe { vlans: vec![7, 8], extensions: [Some(0), Some(2)], atomic_fragment: true, ..v6() },
    ];
    for shape in shapes {
        let (frame, whole) = shape.parsed();
        let l3 = usize::from(whole.l3);
        let fixed = if whole.version == IpVersion::V4 { usize::from(whole.l4) } else { l3 + 40 };
        for cut in 0..frame.len() {
            let expected = if cut < fixed { Reason::Truncated } else { Reason::BadTotalLength };
            assert_eq!(frame::parse(&frame[..cut]), Err(expected), "{cut} bytes of {shape:?}");
        }
        for padding in 0..64 {
            let mut padded = frame.clone();
            padded.resize(frame.len() + padding, 0xff);
            assert_eq!(headers(&padded), whole, "padding must not be seen");
            assert_eq!(whole.frame_len(), frame.len());
        }
    }
}

#[test]
fn every_reason_has_a_frame() {
    assert_eq!(frame::parse(&v4_with(0, 0x55)), Err(Reason::BadVersion));
    assert_eq!(frame::parse(&v4_with(0, 0x44)), Err(Reason::BadHeaderLength));
    assert_eq!(frame::parse(&v4_with(3, 19)), Err(Reason::BadTotalLength), "less than the header");
    assert_eq!(
        frame::parse(&v4_with(3, 41)),
        Err(Reason::BadTotalLength),
        "one more than there is"
    );
    assert_eq!(
        frame::parse(&v4_with(3, 20)).map(|p| matches!(p, Parsed::Ip(_))),
        Ok(true),
        "header only"
    );
    let mut frame = v4().build();
    frame[24] ^= 1;
    assert_eq!(frame::parse(&frame), Err(Reason::BadChecksum));

    let mut frame = v6().build();
    frame[14] = 0x45;
    assert_eq!(frame::parse(&frame), Err(Reason::BadVersion));
    let mut frame = v6().build();
    frame[19] += 1;
    assert_eq!(frame::parse(&frame), Err(Reason::BadTotalLength));
    let mut jumbogram = v6_with(0, &[17, 0, 0xc2, 4, 0, 1, 0, 0]);
    jumbogram[18..20].fill(0);
    assert_eq!(frame::parse(&jumbogram), Err(Reason::BadTotalLength));
}

#[test]
fn f15_source_routes_and_options_that_cannot_be_read_are_refused() {
    let with = |options: &[u8]| {
        let frame = Recipe { options: options.to_vec(), ..v4() }.build();
        headers(&frame).check_options(&frame)
    };
    assert_eq!(with(&[1, 1, 148, 4, 0, 0, 0, 131]), Ok(()), "nothing counts after the end");
    assert_eq!(with(&[7, 7, 4, 0, 0, 0, 0, 0]), Ok(()), "record route is followed by no router");
    assert_eq!(with(&[131, 7, 4, 10, 0, 0, 1, 0]), Err(Reason::SourceRouted));
    assert_eq!(with(&[1, 137, 7, 4, 10, 0, 0, 1]), Err(Reason::SourceRouted));
    assert_eq!(with(&[68, 9, 0, 0, 0, 0, 0, 0]), Err(Reason::BadHeaderLength), "too long");
    assert_eq!(with(&[68, 1, 0, 0]), Err(Reason::BadHeaderLength), "shorter than itself");
    assert_eq!(with(&[1, 1, 1, 68]), Err(Reason::BadHeaderLength), "without a length");
}

#[test]
fn what_is_not_ip_is_the_hosts() {
    let mut frame = v4().build();
    for other in [0_u16, 46, ethertype::ARP, 0x8847, 0xffff] {
        frame[12..14].copy_from_slice(&other.to_be_bytes());
        assert_eq!(frame::parse(&frame), Ok(Parsed::Other { ethertype: other }));
        assert_eq!(frame::parse(&frame[..14]), Ok(Parsed::Other { ethertype: other }));
    }
    // A third tag is not followed.
    let mut tagged = v4().build()[..12].to_vec();
    tagged.extend_from_slice(&[
        0x88, 0xa8, 0x00, 0x05, 0x81, 0x00, 0x00, 0x06, 0x81, 0x00, 0x00, 0x07, 0x08, 0x00,
    ]);
    assert_eq!(frame::parse(&tagged), Ok(Parsed::Other { ethertype: ethertype::VLAN }));
}

#[test]
fn tags_are_passed_through_with_priority_bits_apart() {
    let mut frame = Recipe { vlans: vec![0x123, 0x456], ..v4() }.build();
    frame[14] |= 0xe0;
    let h = headers(&frame);
    assert_eq!((h.vlan, h.l3, h.l4), (Some(0x123), 22, 42));
    assert_eq!(frame::source_mac(&frame), Some(MacAddr(crate::common::SOURCE_MAC)));
    assert_eq!(frame::destination_mac(&frame), Some(MacAddr(crate::common::DESTINATION_MAC)));
    assert_eq!(frame::source_mac(&frame[..11]), None);
    assert_eq!(frame::destination_mac(&frame[..5]), None);
}

#[test]
fn only_the_first_fragment_has_ports() {
    let with_flags = |high: u8, low: u8| {
        let mut frame = v4().build();
        frame[20] = high;
        frame[21] = low;
        repair(&mut frame);
        headers(&frame)
    };
    let ports = |h: Headers| (h.flow.source_port, h.flow.destination_port);
    let whole = with_flags(0x40, 0);
    assert_eq!(
        (whole.fragment, whole.dont_fragment, ports(whole)),
        (Fragment::No, true, (5000, 6000))
    );
    let first = with_flags(0x20, 0);
    assert_eq!(
        (first.fragment, first.dont_fragment, ports(first)),
        (Fragment::First, false, (5000, 6000))
    );
    let middle = with_flags(0x20, 1);
    assert_eq!((middle.fragment, ports(middle)), (Fragment::Later, (0, 0)));
    let last = with_flags(0x1f, 0xff);
    assert_eq!((last.fragment, ports(last)), (Fragment::Later, (0, 0)));
    assert_eq!(middle.flow, last.flow, "all later fragments are of one flow");

    let v6 = |low: u8, more: u8| headers(&v6_with(44, &[17, 0, 0, low | more, 0, 0, 0, 9]));
    assert_eq!(
        (v6(0, 0).fragment, ports(v6(0, 0))),
        (Fragment::No, (5000, 6000)),
        "atomic: RFC 6946"
    );
    assert_eq!((v6(0, 1).fragment, ports(v6(0, 1))), (Fragment::First, (5000, 6000)));
    assert_eq!((v6(8, 1).fragment, ports(v6(8, 1))), (Fragment::Later, (0, 0)));
    assert_eq!(v6(8, 0).flow, v6(16, 1).flow);
    assert_eq!((v6(8, 0).protocol, v6(8, 0).l4), (17, 62));
}

#[test]
fn all_packets_of_a_flow_have_one_identity() {
    let flow = |text: &str| text.parse::<FlowKey>().unwrap();
    // IPv4: what is fragmented has no ports, the first fragment neither.
    let fragment = |high: u8, low: u8| {
        let mut frame = v4().build();
        (frame[20], frame[21]) = (high, low);
        repair(&mut frame);
        headers(&frame).flow_id()
    };
    assert_eq!(fragment(0x40, 0), flow("10.0.0.2:5000->10.1.0.2:6000/udp"));
    for (high, low) in [(0x20, 0), (0x20, 1), (0x00, 9)] {
        assert_eq!(fragment(high, low), flow("10.0.0.2:0->10.1.0.2:0/17"));
    }
    let echo = Recipe { transport: Transport::Echo(7), ..v4() };
    assert_eq!(headers(&echo.build()).flow_id(), flow("10.0.0.2:0->10.1.0.2:0/icmp"));

    // IPv6 without a label: whatever extension headers stand before the ports.
    let plain = flow("[2001:db8::2]:5000->[2001:db8:1::2]:6000/udp");
    let unlabelled = |next: u8, chain: &[u8]| {
        let mut frame = v6_with(next, chain);
        frame[15..18].fill(0);
        headers(&frame).flow_id()
    };
    assert_eq!(unlabelled(17, &[]), plain);
    assert_eq!(unlabelled(0, &[60, 0, 0, 0, 0, 0, 0, 0, 17, 0, 0, 0, 0, 0, 0, 0]), plain);
    assert_eq!(unlabelled(44, &[17, 0, 0, 0, 0, 0, 0, 9]), plain, "an atomic fragment is whole");
    // The first fragment shows that UDP follows its destination options, the later ones do not.
    let first = unlabelled(44, &[60, 0, 0, 1, 0, 0, 0, 9, 17, 0, 0, 0, 0, 0, 0, 0]);
    let later = unlabelled(44, &[60, 0, 0, 9, 0, 0, 0, 9]);
    assert_eq!((first, later), (later, flow("[2001:db8::2]:0->[2001:db8:1::2]:0/44")));

    // With one: nothing else counts, in fragments or whole.
    let labelled = |next: u8, chain: &[u8]| {
        let mut frame = v6_with(next, chain);
        frame[15..18].copy_from_slice(&[0x01, 0x23, 0x45]);
        headers(&frame).flow_id()
    };
    let of_label = flow("[2001:db8::2]->[2001:db8:1::2]/label:0x12345");
    for (next, chain) in [
        (17, &[][..]),
        (6, &[]),
        (44, &[17, 0, 0, 1, 0, 0, 0, 9]),
        (44, &[17, 0, 0, 8, 0, 0, 0, 9]),
        (60, &[17, 0, 0, 0, 0, 0, 0, 0]),
    ] {
        assert_eq!(labelled(next, chain), of_label);
    }
    // Except for what must be told as what keeps the network running.
    assert!(
        labelled(58, &[]).is_control() && labelled(44, &[58, 0, 0, 8, 0, 0, 0, 9]).is_control()
    );
}

#[test]
fn chains_are_followed_to_their_bound_and_not_out_of_the_packet() {
    let options = |next: u8| [next, 0, 1, 4, 0, 0, 0, 0];
    // Hop-by-hop, then 7 headers of destination options: the eighth ends at UDP.
    let mut chain = options(60).to_vec();
    for _ in 0..6 {
        chain.extend(options(60));
    }
    chain.extend(options(17));
    let h = headers(&v6_with(0, &chain));
    assert_eq!((h.protocol, h.flow.source_port, usize::from(h.l4)), (17, 5000, 54 + 64));
    let mut longer = options(60).to_vec();
    longer.extend(&chain[..56]);
    longer.extend(options(17));
    assert_eq!(frame::parse(&v6_with(60, &longer)), Err(Reason::BadExtensionHeader), "nine");
    // Hop-by-hop options not at the start.
    let mut late = options(0).to_vec();
    late.extend(options(17));
    assert_eq!(frame::parse(&v6_with(60, &late)), Err(Reason::BadExtensionHeader));
    // A header that says it is longer than the packet.
    assert_eq!(
        frame::parse(&v6_with(60, &[17, 5, 0, 0, 0, 0, 0, 0])).map(drop),
        Ok(()),
        "ends with the packet"
    );
    assert_eq!(
        frame::parse(&v6_with(60, &[17, 6, 0, 0, 0, 0, 0, 0])),
        Err(Reason::BadExtensionHeader)
    );
    assert_eq!(
        frame::parse(&v6_with(60, &[17, 255, 0, 0, 0, 0, 0, 0])),
        Err(Reason::BadExtensionHeader)
    );
    // Authentication headers count in units of 4 bytes.
    let h = headers(&v6_with(51, &[17, 2, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0]));
    assert_eq!((h.protocol, h.flow.destination_port, h.l4), (17, 6000, 70));
    // Encrypted payload hides what follows; "no next header" is an end as well.
    for end in [50, 59, 253] {
        let h = headers(&v6_with(60, &options(end)));
        assert_eq!((h.protocol, h.flow.source_port, h.l4), (end, 0, 62));
    }
    // A chain that the packet ends in the middle of.
    let mut cut = v6_with(60, &options(60));
    cut.truncate(54 + 10);
    cut[18..20].copy_from_slice(&10_u16.to_be_bytes());
    assert_eq!(frame::parse(&cut), Err(Reason::BadExtensionHeader));
}

#[test]
fn transport_headers_too_short_for_ports_are_not_ours_to_judge() {
    let mut frame = v4().build();
    frame.truncate(14 + 20 + 3);
    frame[16..18].copy_from_slice(&23_u16.to_be_bytes());
    repair(&mut frame);
    let h = headers(&frame);
    assert_eq!((h.protocol, h.flow.source_port, h.flow.destination_port), (17, 0, 0));
}

#[test]
fn addresses_that_may_not_pass() {
    let check = |source: &str, destination: &str| {
        Recipe::udp(source, destination).parsed().1.check_transit()
    };
    for bad in [
        "0.0.0.0",
        "0.1.2.3",
        "127.0.0.1",
        "127.255.0.1",
        "169.254.1.1",
        "224.0.0.5",
        "239.1.1.1",
        "240.0.0.1",
        "255.255.255.255",
    ] {
        assert_eq!(check(bad, "10.0.0.1"), Err(Reason::MartianSource), "{bad}");
        assert_eq!(check("10.0.0.1", bad), Err(Reason::MartianDestination), "{bad}");
    }
    for good in [
        "1.0.0.0",
        "10.255.255.255",
        "126.1.1.1",
        "128.0.0.1",
        "169.253.0.1",
        "169.255.0.1",
        "192.168.1.1",
        "223.255.255.254",
    ] {
        assert_eq!(check(good, good), Ok(()), "{good}");
    }
    for bad in ["::", "::1", "fe80::1", "febf::1", "ff02::1", "ff0e::1", "::ffff:10.0.0.1"] {
        assert_eq!(check(bad, "2001:db8::1"), Err(Reason::MartianSource), "{bad}");
        assert_eq!(check("2001:db8::1", bad), Err(Reason::MartianDestination), "{bad}");
    }
    for good in [
        "::2",
        "2001:db8::1",
        "fc00::1",
        "fec0::1",
        "64:ff9b::a00:1",
        "::fffe:10.0.0.1",
        "1::ffff:10.0.0.1",
    ] {
        assert_eq!(check(good, good), Ok(()), "{good}");
    }
}

fn address() -> impl Strategy<Value = IpAddr> {
    prop_oneof![
        any::<u32>().prop_map(|bits| IpAddr::V4(Ipv4Addr::from_bits(bits))),
        any::<u128>().prop_map(|bits| IpAddr::V6(Ipv6Addr::from_bits(bits))),
    ]
}

/// Headers that nobody parsed: public fields can hold anything.
fn any_headers() -> impl Strategy<Value = Headers> {
    let small = || prop_oneof![0_u16..100, any::<u16>()];
    let flow = (
        address(),
        address(),
        prop::sample::select(vec![1_u8, 6, 17, 58, 99]),
        any::<(u16, u16, u32)>(),
    );
    let offsets = (small(), small(), prop_oneof![0_u32..2000, any::<u32>()]);
    let fragment = prop::sample::select(vec![Fragment::No, Fragment::First, Fragment::Later]);
    (flow, offsets, fragment, any::<(u8, u8, u8, bool, bool, bool)>()).prop_map(
        |(flow, offsets, fragment, bits)| {
            let (source, destination, protocol, (source_port, destination_port, flow_label)) = flow;
            Headers {
                l3: offsets.0,
                l4: offsets.1,
                ip_len: offsets.2,
                version: if bits.3 { IpVersion::V4 } else { IpVersion::V6 },
                dscp: bits.0,
                ecn: bits.1,
                ttl: bits.2,
                protocol,
                flow: FlowKey {
                    source,
                    destination,
                    protocol,
                    source_port,
                    destination_port,
                    flow_label,
                },
                dont_fragment: bits.4,
                fragment,
                vlan: None,
                link_group: bits.5,
            }
        },
    )
}

/// Calls everything that takes a frame and headers.
fn exercise(frame: &[u8], headers: &Headers, mtu: u32, out: &mut [u8]) {
    let mut copy = frame.to_vec();
    let mut h = *headers;
    let _ = rewrite::decrement_ttl(&mut copy, &mut h);
    let _ = rewrite::set_dscp(&mut copy, &mut h, mtu as u8);
    let _ = rewrite::set_macs(&mut copy, MacAddr::BROADCAST, MacAddr::default());
    let _ = checksum::complete_l4(&mut copy, &h);
    let _ = h.check_transit();
    let _ = fragment::fragment_ipv4(frame, headers, mtu, |piece| {
        let _ = piece.write_into(out);
        Ok(())
    });
    for error in [IcmpError::TimeExceeded, IcmpError::TooBig { mtu }] {
        for source in [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)] {
            let _ = icmp::answer(frame, headers, error, source, out);
        }
    }
}

proptest! {
    #[test]
    fn any_bytes_are_judged_without_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..200),
        kind in 0..4) {
        if let Some(field) = bytes.get_mut(12..14) {
            match kind {
                0 => field.copy_from_slice(&ethertype::IPV4.to_be_bytes()),
                1 => field.copy_from_slice(&ethertype::IPV6.to_be_bytes()),
                2 => field.copy_from_slice(&ethertype::VLAN.to_be_bytes()),
                _ => {}
            }
        }
        if let Ok(Parsed::Ip(h)) = frame::parse(&bytes) {
            prop_assert!(usize::from(h.l3) < usize::from(h.l4));
            prop_assert!(usize::from(h.l4) <= h.frame_len());
            prop_assert!(h.frame_len() <= bytes.len());
            exercise(&bytes, &h, 100, &mut [0; 1400]);
        }
    }

    /// Damage that leaves most of a frame right reaches the deep places.
    #[test]
    fn damaged_frames_are_judged_without_panic(
        recipe in recipe(),
        damage in prop::collection::vec((0_usize..120, any::<u8>()), 0..4),
        cut in 0_usize..200,
        mtu in 0_u32..3000,
    ) {
        let mut frame = recipe.build();
        for (at, value) in damage {
            if let Some(byte) = frame.get_mut(at) {
                *byte = value;
            }
        }
        frame.truncate(frame.len().saturating_sub(cut));
        if recipe.vlans.is_empty() && recipe.source.is_ipv4() && frame.len() >= 14 + 60 {
            repair(&mut frame);
        }
        if let Ok(Parsed::Ip(h)) = frame::parse(&frame) {
            prop_assert!(h.l3 < h.l4 && usize::from(h.l4) <= h.frame_len()
                && h.frame_len() <= frame.len());
            exercise(&frame, &h, mtu, &mut [0; 1400]);
        }
    }

    #[test]
    fn headers_that_do_not_belong_to_the_frame_do_no_harm(
        frame in prop::collection::vec(any::<u8>(), 0..300),
        headers in any_headers(),
        mtu in prop_oneof![0_u32..300, any::<u32>()],
        out in 0_usize..400,
    ) {
        exercise(&frame, &headers, mtu, &mut vec![0; out]);
    }
}
