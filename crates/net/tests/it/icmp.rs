//! The answers as hosts read them, and the silence where there must be none.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use evenkeel_net::frame::{self, Fragment, Headers};
use evenkeel_net::icmp::{
    IcmpError, MAX_ANSWER_LEN, MAX_V4_ANSWER, MAX_V6_ANSWER, NoAnswer, answer, may_answer,
};
use proptest::prelude::*;
use smoltcp::wire::{
    Icmpv4DstUnreachable, Icmpv4Message, Icmpv4Packet, Icmpv4TimeExceeded, Icmpv6DstUnreachable,
    Icmpv6Message, Icmpv6Packet, Ipv4Packet, Ipv6Packet,
};

use crate::common::{DESTINATION_MAC, Recipe, SOURCE_MAC, Transport, headers, recipe};

const ROUTER_V4: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
const ROUTER_V6: IpAddr = IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1));
const ERRORS: [IcmpError; 5] = [
    IcmpError::TimeExceeded,
    IcmpError::TooBig { mtu: 1400 },
    IcmpError::NoRoute,
    IcmpError::HostUnreachable,
    IcmpError::AdminProhibited,
];

fn v4() -> Recipe {
    Recipe::udp("10.0.0.2", "10.1.0.2")
}

fn v6() -> Recipe {
    Recipe::udp("2001:db8::2", "2001:db8:1::2")
}

fn router(h: &Headers) -> IpAddr {
    if h.flow.source.is_ipv4() { ROUTER_V4 } else { ROUTER_V6 }
}

fn answered(frame: &[u8], h: &Headers, error: IcmpError) -> Result<Vec<u8>, NoAnswer> {
    let mut out = vec![0xcc; MAX_ANSWER_LEN];
    answer(frame, h, error, router(h), &mut out).map(|len| {
        out.truncate(len);
        out
    })
}

#[test]
fn types_and_codes_are_those_of_the_standards() {
    let (frame, h) = v4().parsed();
    let read = |error| {
        let out = answered(&frame, &h, error).unwrap();
        let ip = Ipv4Packet::new_checked(&out[14..]).unwrap();
        let icmp = Icmpv4Packet::new_checked(ip.payload()).unwrap();
        (
            icmp.msg_type(),
            icmp.msg_code(),
            u32::from_be_bytes(ip.payload()[4..8].try_into().unwrap()),
        )
    };
    let unreachable =
        |code: Icmpv4DstUnreachable| (Icmpv4Message::DstUnreachable, u8::from(code), 0);
    assert_eq!(
        read(IcmpError::TimeExceeded),
        (Icmpv4Message::TimeExceeded, u8::from(Icmpv4TimeExceeded::TtlExpired), 0)
    );
    assert_eq!(read(IcmpError::NoRoute), unreachable(Icmpv4DstUnreachable::NetUnreachable));
    assert_eq!(
        read(IcmpError::HostUnreachable),
        unreachable(Icmpv4DstUnreachable::HostUnreachable)
    );
    assert_eq!(read(IcmpError::AdminProhibited), unreachable(Icmpv4DstUnreachable::CommProhibited));
    let frag_required = u8::from(Icmpv4DstUnreachable::FragRequired);
    assert_eq!(
        read(IcmpError::TooBig { mtu: 1400 }),
        (Icmpv4Message::DstUnreachable, frag_required, 1400)
    );
    assert_eq!(read(IcmpError::TooBig { mtu: 70_000 }).2, 65_535, "16 bits hold the MTU");

    let (frame, h) = v6().parsed();
    let read = |error| {
        let out = answered(&frame, &h, error).unwrap();
        let ip = Ipv6Packet::new_checked(&out[14..]).unwrap();
        let icmp = Icmpv6Packet::new_checked(ip.payload()).unwrap();
        (
            icmp.msg_type(),
            icmp.msg_code(),
            u32::from_be_bytes(ip.payload()[4..8].try_into().unwrap()),
        )
    };
    let unreachable =
        |code: Icmpv6DstUnreachable| (Icmpv6Message::DstUnreachable, u8::from(code), 0);
    assert_eq!(read(IcmpError::TimeExceeded), (Icmpv6Message::TimeExceeded, 0, 0));
    assert_eq!(read(IcmpError::NoRoute), unreachable(Icmpv6DstUnreachable::NoRoute));
    assert_eq!(
        read(IcmpError::HostUnreachable),
        unreachable(Icmpv6DstUnreachable::AddrUnreachable)
    );
    assert_eq!(read(IcmpError::AdminProhibited), unreachable(Icmpv6DstUnreachable::AdminProhibit));
    assert_eq!(read(IcmpError::TooBig { mtu: 70_000 }), (Icmpv6Message::PktTooBig, 0, 70_000));
}

#[test]
fn icmp_errors_and_what_might_be_one_are_not_answered() {
    let with_type = |recipe: Recipe, kind: u8| {
        let (mut frame, h) = Recipe { transport: Transport::Echo(1), ..recipe }.parsed();
        frame[usize::from(h.l4)] = kind;
        may_answer(&frame, &h, IcmpError::TimeExceeded)
    };
    for kind in 0..=255 {
        let v4_query = [0, 8, 9, 10, 13, 14, 15, 16, 17, 18, 42, 43].contains(&kind);
        let expected = if v4_query { Ok(()) } else { Err(NoAnswer::ToIcmpError) };
        assert_eq!(with_type(v4(), kind), expected, "IPv4 type {kind}");
        let expected = if kind >= 128 && kind != 137 { Ok(()) } else { Err(NoAnswer::ToIcmpError) };
        assert_eq!(with_type(v6(), kind), expected, "IPv6 type {kind}");
    }
    // Our own answers least of all: two routers would talk for ever.
    for recipe in [v4(), v6()] {
        let (frame, h) = recipe.parsed();
        for error in ERRORS {
            let out = answered(&frame, &h, error).unwrap();
            assert_eq!(answered(&out, &headers(&out), error), Err(NoAnswer::ToIcmpError));
        }
    }
    // No type to look at.
    let (frame, mut h) = Recipe { transport: Transport::Echo(1), ..v4() }.parsed();
    h.ip_len = 20;
    assert_eq!(may_answer(&frame, &h, IcmpError::NoRoute), Err(NoAnswer::ToIcmpError));
}

#[test]
fn groups_and_nobodies_are_not_answered() {
    let judge = |recipe: Recipe, error| {
        let (frame, h) = recipe.parsed();
        answered(&frame, &h, error).map(drop)
    };
    for error in ERRORS {
        for group in ["224.0.0.1", "239.255.255.250", "255.255.255.255"] {
            assert_eq!(
                judge(Recipe::udp("10.0.0.2", group), error),
                Err(NoAnswer::ToGroup),
                "{group}"
            );
        }
        for nobody in ["0.0.0.0", "127.0.0.1", "224.0.0.1", "255.255.255.255", "240.0.0.1"] {
            assert_eq!(
                judge(Recipe::udp(nobody, "10.0.0.2"), error),
                Err(NoAnswer::ToNobody),
                "{nobody}"
            );
        }
        for nobody in ["::", "::1", "ff02::1"] {
            assert_eq!(
                judge(Recipe::udp(nobody, "2001:db8::2"), error),
                Err(NoAnswer::ToNobody),
                "{nobody}"
            );
        }
        // RFC 4443, 2.4 e.3: only "packet too big" may answer a multicast.
        let too_big = matches!(error, IcmpError::TooBig { .. });
        let expected = if too_big { Ok(()) } else { Err(NoAnswer::ToGroup) };
        assert_eq!(judge(Recipe::udp("2001:db8::2", "ff0e::1"), error), expected);

        // A unicast packet in a frame to all.
        for (recipe, allowed) in [(v4(), false), (v6(), too_big)] {
            let mut frame = recipe.build();
            frame[..6].fill(0xff);
            let expected = if allowed { Ok(()) } else { Err(NoAnswer::ToGroup) };
            assert_eq!(answered(&frame, &headers(&frame), error).map(drop), expected);
        }
    }
}

#[test]
fn later_fragments() {
    let (frame, h) = v4().parsed();
    for (fragment, expected) in
        [(Fragment::First, Ok(())), (Fragment::Later, Err(NoAnswer::ToLaterFragment))]
    {
        assert_eq!(
            may_answer(&frame, &Headers { fragment, ..h }, IcmpError::TimeExceeded),
            expected
        );
    }
    // IPv6 answers them unless they may belong to an ICMP error.
    let (frame, h) = v6().parsed();
    let later = Headers { fragment: Fragment::Later, ..h };
    assert_eq!(may_answer(&frame, &later, IcmpError::TooBig { mtu: 1280 }), Ok(()));
    let unknowable = Headers { protocol: 58, ..later };
    assert_eq!(
        may_answer(&frame, &unknowable, IcmpError::TimeExceeded),
        Err(NoAnswer::ToIcmpError)
    );
}

#[test]
fn arguments_that_do_not_fit() {
    let (frame, h) = v4().parsed();
    let mut out = [0; MAX_ANSWER_LEN];
    assert_eq!(
        answer(&frame, &h, IcmpError::NoRoute, ROUTER_V6, &mut out),
        Err(NoAnswer::WrongFamily)
    );
    let len = answer(&frame, &h, IcmpError::NoRoute, ROUTER_V4, &mut out).unwrap();
    assert_eq!(answer(&frame, &h, IcmpError::NoRoute, ROUTER_V4, &mut out[..len]), Ok(len));
    assert_eq!(
        answer(&frame, &h, IcmpError::NoRoute, ROUTER_V4, &mut out[..len - 1]),
        Err(NoAnswer::BufferTooShort)
    );
    assert_eq!(
        answer(&frame[..40], &h, IcmpError::NoRoute, ROUTER_V4, &mut out),
        Err(NoAnswer::Truncated)
    );
}

proptest! {
    #[test]
    fn answers_are_valid_and_quote_as_much_as_they_may(recipe in recipe(), which in 0_usize..5) {
        let (frame, h) = recipe.parsed();
        let out = answered(&frame, &h, ERRORS[which]).unwrap();
        let a = headers(&out);
        prop_assert_eq!((a.l3, a.vlan), (h.l3, h.vlan));
        prop_assert_eq!((a.flow.source, a.flow.destination), (router(&h), h.flow.source));
        prop_assert_eq!((a.ttl, a.dscp, a.frame_len()), (64, 48, out.len()));
        prop_assert_eq!(frame::destination_mac(&out).unwrap().0, SOURCE_MAC);
        prop_assert_eq!(frame::source_mac(&out).unwrap().0, DESTINATION_MAC);
        let packet = &frame[usize::from(h.l3)..h.frame_len()];
        let ip = &out[usize::from(a.l3)..];
        let (quote, most) = match (a.flow.source, a.flow.destination) {
            (IpAddr::V4(_), IpAddr::V4(_)) => {
                let icmp = Icmpv4Packet::new_checked(Ipv4Packet::new_checked(ip).unwrap()
                    .payload()).unwrap();
                prop_assert!(icmp.verify_checksum());
                (&ip[28..], MAX_V4_ANSWER)
            }
            (IpAddr::V6(from), IpAddr::V6(to)) => {
                let icmp = Icmpv6Packet::new_checked(Ipv6Packet::new_checked(ip).unwrap()
                    .payload()).unwrap();
                prop_assert!(icmp.verify_checksum(&from, &to));
                (&ip[48..], MAX_V6_ANSWER)
            }
            mixed => panic!("{mixed:?}"),
        };
        prop_assert_eq!(quote, &packet[..quote.len()]);
        prop_assert!(quote.len() == packet.len() || ip.len() == most);
        prop_assert!(ip.len() <= most);
    }
}
