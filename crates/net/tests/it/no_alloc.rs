//! The way of a packet through this crate does not allocate.

use std::net::{IpAddr, Ipv4Addr};

use evenkeel_core::Nanos;
use evenkeel_net::fib::{Decision, Fib, NextHop, NextHops, Route, RouteKind};
use evenkeel_net::fragment::fragment_ipv4;
use evenkeel_net::frame::{self, Parsed};
use evenkeel_net::hash::FlowHasher;
use evenkeel_net::icmp::{self, IcmpError, MAX_ANSWER_LEN};
use evenkeel_net::neighbour::{Known, NeighbourTable, Resolution, WaitConfig};
use evenkeel_net::{MacAddr, PortIndex, Prefix, checksum, rewrite};

use crate::common::{Recipe, Transport};

#[test]
fn forwarding_waiting_fragmenting_and_answering_do_not_allocate() {
    let packets: Vec<Vec<u8>> = [("10.0.0.2", "10.1.0.2"), ("2001:db8::2", "2001:db8:1::2")]
        .into_iter()
        .flat_map(|(source, destination)| {
            let plain = Recipe { payload: vec![7; 1800], ..Recipe::udp(source, destination) };
            let extras = Recipe {
                options: vec![148, 4, 0, 0],
                extensions: [Some(1), Some(0)],
                transport: Transport::Tcp(1, 2),
                vlans: vec![5],
                ..plain.clone()
            };
            [plain.build(), extras.build()]
        })
        .collect();
    let hops =
        || NextHops::new((0..3).map(|port| NextHop::connected(PortIndex(port))).collect()).unwrap();
    let route = || Route::of(RouteKind::Unicast(hops()));
    let fib: Fib = [(Prefix::ALL_V4, route()), (Prefix::ALL_V6, route())].into_iter().collect();
    let hasher = FlowHasher::new(1);
    let mut neighbours: NeighbourTable<u32> =
        NeighbourTable::new(WaitConfig::default(), 1).unwrap();
    let mac = MacAddr([2; 6]);
    let mut frame_buffer = vec![0; 2000];
    let mut out = vec![0; MAX_ANSWER_LEN.max(1600)];
    let mut fragments = 0;
    let mut answers = 0;
    let mut waited = 0;
    assert_eq!(
        allocation_counter::measure(|| drop(std::hint::black_box(Box::new(1)))).count_total,
        1
    );

    let allocated = allocation_counter::measure(|| {
        for round in 0..1_000_u32 {
            let original = &packets[round as usize % packets.len()];
            let frame = &mut frame_buffer[..original.len()];
            frame.copy_from_slice(original);
            let Ok(Parsed::Ip(mut h)) = frame::parse(frame) else { panic!("valid") };
            let Some(Decision::Forward { port, next_hop, .. }) =
                fib.lookup(h.flow.destination, hasher.hash(&h.flow))
            else {
                panic!("there is a default route");
            };
            let now = Nanos::from_millis(round.into());
            // A neighbour that is new every time, with a packet that waits; all fall due after 3 s
            // or are learnt now.
            let stranger = IpAddr::V4(Ipv4Addr::from_bits(0x0a02_0000 + round));
            if neighbours.resolve(now, PortIndex(9), stranger, round) == Resolution::Wait {
                waited += 1;
            }
            neighbours.drain_asks(|_, _| {});
            neighbours.fail(now, PortIndex(9), stranger, |_| {});
            neighbours.expire(now, |_, _, _| {});
            assert_eq!(neighbours.mac(port, next_hop), None);
            rewrite::decrement_ttl(frame, &mut h).unwrap();
            rewrite::set_macs(frame, mac, mac).unwrap();
            checksum::complete_l4(frame, &h).unwrap();
            let _ = fragment_ipv4(frame, &h, 600, |piece| {
                fragments += u32::from(piece.write_into(&mut out).is_some());
                Ok(())
            });
            let source =
                if h.flow.source.is_ipv4() { Ipv4Addr::new(10, 0, 0, 1).into() } else { next_hop };
            answers += u32::from(
                icmp::answer(frame, &h, IcmpError::TimeExceeded, source, &mut out).is_ok(),
            );
        }
    });
    assert_eq!(allocated.count_total, 0);
    assert_eq!((fragments, answers, waited), (500 * 4, 1_000, 1_000));
    neighbours.learn(
        PortIndex(0),
        IpAddr::V4(Ipv4Addr::LOCALHOST),
        Known { mac, stale: false },
        |_| {},
    );
}
