//! The pipeline between memory ports: what becomes of packets, and that every one is accounted for.

use crate::common::{
    Bed, Udp, headers, host_mac, ip, l4_checksum_is_right, router_mac, udp, v4, v6,
};
use evenkeel_config::LinkChange;
use evenkeel_core::settings;
use evenkeel_core::{BitRate, Nanos};
use evenkeel_net::fib::{NextHop, NextHops, Route, RouteKind};
use evenkeel_net::frame::{Fragment, destination_mac, source_mac};
use evenkeel_net::{PortIndex, checksum};
use evenkeel_router::CommandError;
use evenkeel_router::mirror::decode::KernelNeighbourState;
use evenkeel_router::mirror::{MirrorEvent, MirroredLink, NeighbourRequest};
use evenkeel_router::pipeline::{BURST, LinkState};

const SECOND: Nanos = Nanos::SECOND;

/// Type and code of an ICMP or ICMPv6 message, and the four bytes after its checksum.
fn icmp(frame: &[u8]) -> (u8, u8, u32) {
    let at = usize::from(headers(frame).l4);
    let rest = frame[at + 4..at + 8].try_into().unwrap();
    (frame[at], frame[at + 1], u32::from_be_bytes(rest))
}

#[test]
fn packets_of_both_families_are_forwarded() {
    let mut bed = Bed::new(2, "");
    bed.send(0, 1, Udp::default());
    bed.send_v6(0, 1, Udp::default());
    bed.round();
    let frames = bed.received(1);
    assert_eq!(frames.len(), 2);
    for (frame, source) in frames.iter().zip([v4(0, 2), v6(0, 2)]) {
        let headers = headers(frame);
        assert_eq!(headers.ttl, 63);
        assert_eq!(headers.flow.source, source);
        assert_eq!(source_mac(frame), Some(router_mac(1)));
        assert_eq!(destination_mac(frame), Some(host_mac(1)));
        assert!(l4_checksum_is_right(frame));
    }
    let snapshot = bed.snapshot();
    assert_eq!(snapshot.ports[0].forwarded, 2);
    assert_eq!(snapshot.ports[1].tx_packets, 2);
    assert_eq!(snapshot.links[1].classes[0].sent_packets, 2);
}

#[test]
fn ethernet_padding_is_cut_off() {
    let mut bed = Bed::new(2, "");
    let mut frame =
        udp((host_mac(0), router_mac(0)), v4(0, 2), v4(1, 2), Udp { payload: 1, ..Udp::default() });
    let length = frame.len();
    frame.resize(60, 0xaa);
    bed.inject(0, &frame);
    bed.round();
    assert_eq!(bed.one(1).len(), length);
}

#[test]
fn what_is_for_this_machine_is_left_to_the_kernel() {
    let mut bed = Bed::new(2, "");
    let macs = (host_mac(0), router_mac(0));
    bed.inject(0, &udp(macs, v4(0, 2), v4(0, 1), Udp::default()));
    bed.inject(0, &udp(macs, v4(0, 2), v4(1, 1), Udp::default()));
    bed.inject(0, &udp(macs, v6(0, 2), v6(0, 1), Udp::default()));
    // Groups, by Ethernet address and by IP address alone.
    let group = evenkeel_net::MacAddr([0x01, 0, 0x5e, 0, 0, 5]);
    bed.inject(0, &udp((host_mac(0), group), v4(0, 2), ip("224.0.0.5"), Udp::default()));
    bed.inject(0, &udp(macs, v4(0, 2), ip("224.0.0.5"), Udp::default()));
    // ARP, and something that is not IP at all.
    for ethertype in [0x0806_u16, 0x88cc] {
        let mut frame = vec![0xff; 60];
        frame[..6].copy_from_slice(&router_mac(0).0);
        frame[6..12].copy_from_slice(&host_mac(0).0);
        frame[12..14].copy_from_slice(&ethertype.to_be_bytes());
        bed.inject(0, &frame);
    }
    bed.round();
    let snapshot = bed.snapshot();
    assert_eq!((snapshot.ports[0].rx_packets, snapshot.ports[0].to_host), (7, 7));
    assert!(bed.received(0).is_empty() && bed.received(1).is_empty());
}

#[test]
fn time_to_live_ends_here_and_the_sender_hears_of_it() {
    let mut bed = Bed::new(2, "");
    for ttl in [0, 1] {
        bed.send(0, 1, Udp { ttl, ..Udp::default() });
        bed.send_v6(0, 1, Udp { ttl, ..Udp::default() });
    }
    bed.send(0, 1, Udp { ttl: 2, ..Udp::default() });
    bed.round();
    assert_eq!(headers(&bed.one(1)).ttl, 1);
    let answers = bed.received(0);
    assert_eq!(answers.len(), 4);
    for answer in &answers {
        let headers = headers(answer);
        let expected = if headers.flow.source.is_ipv4() {
            (v4(0, 1), (11, 0, 0))
        } else {
            (v6(0, 1), (3, 0, 0))
        };
        assert_eq!((headers.flow.source, icmp(answer)), expected);
        assert!(l4_checksum_is_right(answer));
        assert_eq!(destination_mac(answer), Some(host_mac(0)));
        assert_eq!(source_mac(answer), Some(router_mac(0)));
    }
    assert_eq!(bed.dropped(0, "ttl_expired"), 4);
    assert_eq!(bed.snapshot().ports[0].answered, 4);
}

#[test]
fn no_route_and_routes_that_refuse() {
    let mut bed = Bed::new(2, "");
    for (prefix, kind) in [
        ("192.0.2.0/24", RouteKind::Blackhole),
        ("198.51.100.0/24", RouteKind::Unreachable),
        ("203.0.113.0/24", RouteKind::Prohibit),
        ("2001:db8:aaaa::/48", RouteKind::Unreachable),
        ("2001:db8:bbbb::/48", RouteKind::Prohibit),
    ] {
        bed.pipeline.fib_mut().insert(prefix.parse().unwrap(), Route::of(kind));
    }
    let mut tell = |destination: &str| {
        let destination = ip(destination);
        let source = if destination.is_ipv4() { v4(0, 2) } else { v6(0, 2) };
        bed.inject(0, &udp((host_mac(0), router_mac(0)), source, destination, Udp::default()));
        bed.round();
        bed.received(0).first().map(|frame| icmp(frame))
    };
    assert_eq!(tell("8.8.8.8"), Some((3, 0, 0)), "network unreachable");
    assert_eq!(tell("2001:db9::1"), Some((1, 0, 0)), "no route");
    assert_eq!(tell("192.0.2.1"), None, "a black hole is silent");
    assert_eq!(tell("198.51.100.1"), Some((3, 1, 0)));
    assert_eq!(tell("203.0.113.1"), Some((3, 13, 0)));
    assert_eq!(tell("2001:db8:aaaa::1"), Some((1, 0, 0)));
    assert_eq!(tell("2001:db8:bbbb::1"), Some((1, 1, 0)));
    assert_eq!(bed.dropped(0, "no_route"), 2);
    assert_eq!(bed.dropped(0, "route_refuses"), 5);
}

#[test]
fn too_big_with_df_is_told_and_without_df_is_fragmented() {
    let mut bed = Bed::new(2, "");
    let narrow = LinkState { mac: router_mac(1), mtu: 600, up: true };
    bed.pipeline.set_link(bed.now, PortIndex(1), Some(narrow));
    bed.send(0, 1, Udp { payload: 1000, dont_fragment: true, ..Udp::default() });
    bed.send_v6(0, 1, Udp { payload: 1000, ..Udp::default() });
    bed.round();
    let answers = bed.received(0);
    assert_eq!(
        answers.iter().map(|frame| icmp(frame)).collect::<Vec<_>>(),
        [(3, 4, 600), (2, 0, 600)]
    );
    assert_eq!(bed.dropped(0, "too_big"), 2);

    bed.send(0, 1, Udp { payload: 1000, ..Udp::default() });
    bed.round();
    let fragments = bed.received(1);
    assert_eq!(fragments.len(), 2);
    let kinds: Vec<_> = fragments.iter().map(|frame| headers(frame).fragment).collect();
    assert_eq!(kinds, [Fragment::First, Fragment::Later]);
    assert!(fragments.iter().all(|frame| headers(frame).ip_len <= 600 && headers(frame).ttl == 63));
    let payload: usize =
        fragments.iter().map(|frame| frame.len() - usize::from(headers(frame).l4)).sum();
    assert_eq!(payload, 1008);
    let snapshot = bed.snapshot();
    let port = &snapshot.ports[0];
    // Two answers and two fragments were made here.
    assert_eq!((port.forwarded, port.fragmented, port.originated, port.answered), (1, 1, 4, 2));
}

#[test]
fn partial_checksums_are_completed() {
    let mut bed = Bed::new(2, "");
    let mut frame = udp((host_mac(0), router_mac(0)), v4(0, 2), v4(1, 2), Udp::default());
    let whole = frame.clone();
    frame[14 + 20 + 6..][..2].copy_from_slice(&[0x12, 0x34]);
    assert!(bed.hosts[0].inject_flagged(&frame, true));
    bed.round();
    let out = bed.one(1);
    assert_eq!(out[40..42], whole[40..42]);
    assert!(l4_checksum_is_right(&out));
}

#[test]
fn martians_loops_and_strangers_are_counted() {
    let mut bed = Bed::new(2, "");
    let macs = (host_mac(0), router_mac(0));
    for source in ["127.0.0.1", "0.0.0.0", "224.0.0.9", "255.255.255.255", "240.0.0.1"] {
        bed.inject(0, &udp(macs, ip(source), v4(1, 2), Udp::default()));
    }
    bed.inject(0, &udp(macs, ip("::1"), v6(1, 2), Udp::default()));
    // An own address as source, and a time to live that would be answered.
    bed.inject(0, &udp(macs, v4(1, 1), v4(1, 2), Udp { ttl: 1, ..Udp::default() }));
    let mut source_routed = udp(macs, v4(0, 2), v4(1, 2), Udp::default());
    source_routed[14] = 0x47;
    source_routed[34..42].copy_from_slice(&[131, 7, 4, 10, 0, 0, 1, 0]);
    source_routed[24..26].fill(0);
    let sum = checksum::sum(&source_routed[14..42]).checksum();
    source_routed[24..26].copy_from_slice(&sum.to_be_bytes());
    bed.inject(0, &source_routed);
    for destination in ["127.0.0.1", "0.0.0.1", "169.254.1.1"] {
        bed.inject(0, &udp(macs, v4(0, 2), ip(destination), Udp::default()));
    }
    bed.inject(0, &udp(macs, v6(0, 2), ip("fe80::99"), Udp::default()));
    bed.inject(0, &udp((router_mac(1), router_mac(0)), v4(0, 2), v4(1, 2), Udp::default()));
    bed.inject(0, &udp((host_mac(0), host_mac(1)), v4(0, 2), v4(1, 2), Udp::default()));
    bed.round();
    assert_eq!(bed.dropped(0, "martian_source"), 7);
    assert_eq!(bed.dropped(0, "martian_destination"), 4);
    assert_eq!(bed.dropped(0, "source_routed"), 1);
    assert_eq!(bed.dropped(0, "own_frame"), 1);
    assert_eq!(bed.dropped(0, "other_station"), 1);
    assert!(bed.received(0).is_empty() && bed.received(1).is_empty());
}

#[test]
fn back_by_the_same_port_as_configured() {
    let to_the_same_port = |rest: &str| {
        let mut bed = Bed::new(1, rest);
        let neighbour = KernelNeighbourState::Reachable(host_mac(9));
        bed.pipeline.set_neighbour(bed.now, PortIndex(0), v4(0, 9), Some(neighbour));
        bed.inject(0, &udp((host_mac(0), router_mac(0)), v4(0, 2), v4(0, 9), Udp::default()));
        bed.round();
        (bed.received(0).len(), bed.dropped(0, "same_port"))
    };
    assert_eq!(to_the_same_port("[router]\nhairpin = \"forward\""), (1, 0));
    assert_eq!(to_the_same_port("[router]\nhairpin = \"drop\""), (0, 1));
}

#[test]
fn jumbo_frames_pass_where_they_fit_and_are_counted_where_not() {
    let jumbo = Udp { payload: 8000, dont_fragment: true, ..Udp::default() };
    let mut bed = Bed::with_mtu(2, "[router]\nbuffer_size = \"9216B\"", 9000, 9000);
    bed.send(0, 1, jumbo);
    bed.round();
    assert_eq!(headers(&bed.one(1)).ip_len, 8028);

    let mut bed = Bed::with_mtu(2, "", 9000, 9000);
    bed.send(0, 1, jumbo);
    bed.send(0, 1, Udp::default());
    bed.round();
    assert_eq!(bed.received(1).len(), 1);
    assert_eq!(bed.dropped(0, "frame_too_long"), 1);
}

#[test]
fn frames_cut_at_every_byte_are_counted() {
    let mut bed = Bed::new(2, "");
    let macs = (host_mac(0), router_mac(0));
    let tagged = |frame: Vec<u8>| [&frame[..12], &[0x81, 0, 0, 0], &frame[12..]].concat();
    let frames = [
        udp(macs, v4(0, 2), v4(1, 2), Udp { payload: 20, ..Udp::default() }),
        udp(macs, v6(0, 2), v6(1, 2), Udp { payload: 20, ..Udp::default() }),
        tagged(udp(macs, v4(0, 2), v4(1, 2), Udp { payload: 20, ..Udp::default() })),
    ];
    let mut injected = 0;
    for frame in frames {
        for end in 0..frame.len() {
            bed.inject(0, &frame[..end]);
            bed.round();
            injected += 1;
            assert!(bed.received(1).is_empty(), "cut at {end}");
        }
        bed.inject(0, &frame);
        bed.round();
        injected += 1;
        assert_eq!(bed.one(1).len(), frame.len());
    }
    let snapshot = bed.snapshot();
    assert_eq!(snapshot.ports[0].rx_packets, injected);
    assert_eq!(snapshot.ports[0].forwarded, 3);
    assert_eq!(snapshot.ports[0].to_host, 0);
}

/// They went on with their tag, into a VLAN of the next trunk that their sender had no access to.
#[test]
fn frames_of_a_vlan_are_left_to_the_kernel() {
    let mut bed = Bed::new(2, "");
    let frame = udp((host_mac(0), router_mac(0)), v4(0, 2), v4(1, 2), Udp::default());
    let tagged = |tags: &[u8]| [&frame[..12], tags, &frame[12..]].concat();
    for tags in [
        &[0x81, 0, 0xe0, 7][..],
        &[0x88, 0xa8, 0, 7],
        &[0x81, 0, 0, 0, 0x81, 0, 0, 7],
        &[0x88, 0xa8, 0, 7, 0x81, 0, 0, 0],
    ] {
        let before = bed.snapshot().ports[0].to_host;
        bed.inject(0, &tagged(tags));
        bed.round();
        assert!(bed.received(1).is_empty(), "{tags:x?}");
        assert_eq!(bed.snapshot().ports[0].to_host, before + 1, "{tags:x?}");
    }
    // A priority is no VLAN.
    bed.inject(0, &tagged(&[0x81, 0, 0xe0, 0]));
    bed.round();
    assert_eq!(headers(&bed.one(1)).vlan, Some(0));
}

fn asked(bed: &mut Bed) -> Vec<NeighbourRequest> {
    let mut requests = Vec::new();
    bed.pipeline.drain_requests(bed.now, |request| requests.push(request));
    requests
}

#[test]
fn packets_wait_for_a_neighbour_in_bounded_number_and_in_order() {
    let mut bed = Bed::new(2, "[router]\nneighbour_wait = 3");
    let to = v4(1, 77);
    let frame =
        |port| udp((host_mac(0), router_mac(0)), v4(0, 2), to, Udp { port, ..Udp::default() });
    for port in 1..=5 {
        bed.inject(0, &frame(port));
    }
    bed.round();
    assert_eq!(asked(&mut bed), [NeighbourRequest { port: PortIndex(1), address: to }]);
    let snapshot = bed.snapshot();
    assert_eq!(snapshot.ports[0].waiting, 3);
    assert_eq!(bed.dropped(0, "neighbour_wait_full"), 2);

    bed.pipeline.set_neighbour(
        bed.now,
        PortIndex(1),
        to,
        Some(KernelNeighbourState::Reachable(host_mac(7))),
    );
    bed.round();
    let frames = bed.received(1);
    assert_eq!(
        frames.iter().map(|frame| headers(frame).flow.source_port).collect::<Vec<_>>(),
        [1, 2, 3]
    );
    assert!(
        frames
            .iter()
            .all(|frame| destination_mac(frame) == Some(host_mac(7)) && headers(frame).ttl == 63)
    );
    assert_eq!(bed.snapshot().ports[0].waiting, 0);
}

#[test]
fn a_neighbour_that_does_not_answer() {
    let mut bed = Bed::new(2, "");
    let to = v4(1, 77);
    let frame = udp((host_mac(0), router_mac(0)), v4(0, 2), to, Udp::default());
    bed.inject(0, &frame);
    bed.round();
    let _ = asked(&mut bed);
    bed.pipeline.set_neighbour(bed.now, PortIndex(1), to, Some(KernelNeighbourState::Failed));
    bed.round();
    let answer = bed.one(0);
    assert_eq!(icmp(&answer), (3, 1, 0));
    // What is quoted is the packet as it came: its time to live has not been touched.
    assert_eq!(answer[usize::from(headers(&answer).l4) + 8 + 8], 64);
    // For a while nobody is asked again.
    bed.inject(0, &frame);
    bed.round();
    assert_eq!(icmp(&bed.one(0)), (3, 1, 0));
    assert_eq!(asked(&mut bed), []);
    assert_eq!(bed.dropped(0, "host_unreachable"), 2);
    bed.pass(SECOND * 2);
    bed.inject(0, &frame);
    bed.round();
    assert_eq!(asked(&mut bed).len(), 1);
    assert_eq!(bed.snapshot().ports[0].waiting, 1);
}

#[test]
fn a_kernel_that_says_nothing_does_not_hold_packets_for_ever() {
    let mut bed = Bed::new(2, "");
    bed.inject(0, &udp((host_mac(0), router_mac(0)), v6(0, 2), v6(1, 0x77), Udp::default()));
    bed.round();
    let wake = bed.pipeline.next_wake().expect("something is due");
    bed.pass(wake - bed.now);
    assert_eq!(icmp(&bed.one(0)), (1, 3, 0));
    assert_eq!(bed.dropped(0, "host_unreachable"), 1);
}

#[test]
fn a_stale_neighbour_in_use_is_named_about_once_a_second() {
    let mut bed = Bed::new(2, "");
    bed.pipeline.set_neighbour(
        bed.now,
        PortIndex(1),
        v4(1, 2),
        Some(KernelNeighbourState::Stale(host_mac(1))),
    );
    let mut named = 0;
    for _ in 0..100 {
        bed.send(0, 1, Udp::default());
        bed.pass(SECOND.saturating_sub(Nanos(SECOND.0 / 10 * 9)));
        named += asked(&mut bed).len();
    }
    assert_eq!(bed.received(1).len(), 100, "they are used all the same");
    assert!((9..=11).contains(&named), "{named} in 10 s");
}

#[test]
fn answers_are_limited() {
    let mut bed = Bed::new(2, "[router]\nicmp_per_second = 100");
    for _ in 0..50 {
        bed.send(0, 1, Udp { ttl: 1, ..Udp::default() });
    }
    bed.round();
    assert_eq!(bed.received(0).len(), 10, "a burst of ten");
    let snapshot = bed.snapshot();
    assert_eq!((snapshot.ports[0].answered, snapshot.ports[0].answers_limited), (10, 40));
    bed.pass(SECOND);
    for _ in 0..50 {
        bed.send(0, 1, Udp { ttl: 1, ..Udp::default() });
        bed.pass(Nanos::from_millis(10));
    }
    assert_eq!(bed.received(0).len(), 50);
}

#[test]
fn flows_are_spread_over_next_hops_and_stay_together() {
    let mut bed = Bed::new(3, "");
    let hops = NextHops::new(vec![
        NextHop::gateway(PortIndex(1), v4(1, 2)),
        NextHop { weight: 3, ..NextHop::gateway(PortIndex(2), v4(2, 2)) },
    ]);
    let route = Route::of(RouteKind::Unicast(hops.unwrap()));
    bed.pipeline.fib_mut().insert("192.0.2.0/24".parse().unwrap(), route);
    let mut counts = [0, 0];
    for port in 0..400 {
        for _ in 0..2 {
            let frame = udp(
                (host_mac(0), router_mac(0)),
                v4(0, 2),
                ip("192.0.2.9"),
                Udp { port, ..Udp::default() },
            );
            bed.inject(0, &frame);
        }
        bed.round();
        let (first, second) = (bed.received(1).len(), bed.received(2).len());
        assert!(first == 2 && second == 0 || first == 0 && second == 2, "a flow was split");
        counts[0] += first;
        counts[1] += second;
    }
    assert!((120..=280).contains(&counts[0]), "a quarter of 800, not {counts:?}");
}

#[test]
fn a_paced_link_sends_at_its_rate_however_late_the_worker_is() {
    let rest = "[[link]]\nport = \"p1\"\nrate = \"100Mbit/s\"\ndiscipline = { kind = \"fifo\", \
                limit = 1000 }";
    // 1462 bytes of payload: 1490 bytes of IP, 1528 on the wire, 122.24 us at 100 Mbit/s.
    let what = Udp { payload: 1462, ..Udp::default() };
    let last_one = |step: Nanos| {
        let mut bed = Bed::new(2, rest);
        for _ in 0..100 {
            bed.send(0, 1, what);
        }
        bed.pass(Nanos(1));
        let start = bed.now;
        let mut seen = 0;
        while seen < 100 {
            let wake = bed.pipeline.next_wake().expect("the wire is busy");
            let late = (wake - start).round_up_to(step) + start;
            bed.now = late;
            let _ = bed.pipeline.round(late, &mut bed.ports);
            seen += bed.received(1).len();
        }
        let class = bed.snapshot().links[1].classes[0].clone();
        ((bed.now - start).0, class.delay_sum_ns, class.sent_packets)
    };
    let (end, delays, sent) = last_one(Nanos(1));
    assert_eq!((end, sent), (100 * 122_240, 100));
    let (late_end, late_delays, _) = last_one(Nanos::from_millis(5));
    assert_eq!(late_delays, delays, "queueing delays do not depend on how late the worker is");
    assert_eq!(late_end, 15_000_000);
}

/// A link that counted Ethernet's bytes gave a modem a third too much of small packets.
#[test]
fn a_link_counts_what_its_line_adds_also_of_known_flows() {
    for (overhead, each) in [("ethernet", 166), ("docsis", 146), ("adsl-pppoe", 4 * 53)] {
        let rest = format!(
            "[[link]]\nport = \"p1\"\nrate = \"8Mbit/s\"\noverhead = \"{overhead}\"\n\
             discipline = {{ kind = \"pdrr\" }}"
        );
        let mut bed = Bed::new(2, &rest);
        // 100 bytes of payload, 128 of IP; the first packet makes the flow known.
        let start = bed.now;
        for _ in 0..100 {
            bed.send(0, 1, Udp::default());
            bed.round();
        }
        let mut sent = bed.received(1).len() as u64;
        while sent < 100 {
            bed.now = bed.pipeline.next_wake().expect("the wire is busy");
            bed.round();
            sent += bed.received(1).len() as u64;
        }
        let took = (bed.now - start).0 / 1_000;
        assert!(took.abs_diff(100 * each) <= 2, "{overhead}: {took} us for 100 packets");
    }
}

#[test]
fn a_worker_that_was_away_catches_up_by_no_more_than_its_bound() {
    let rest = "[[link]]\nport = \"p1\"\nrate = \"100Mbit/s\"\ndiscipline = { kind = \"fifo\", \
                limit = 1000 }";
    // 122.24 us on the wire each.
    let what = Udp { payload: 1462, ..Udp::default() };
    let burst = |bound: Option<Nanos>, pause: Nanos| {
        let mut bed = Bed::new(2, rest);
        bed.pipeline.set_max_catch_up(bound);
        for _ in 0..200 {
            bed.send(0, 1, what);
        }
        bed.pass(Nanos(1));
        bed.pass(pause);
        bed.received(1).len()
    };
    let bound = Some(Nanos::from_millis(5));
    assert_eq!(burst(None, Nanos::from_millis(20)), 163, "20 ms / 122.24 us");
    assert_eq!(burst(bound, Nanos::from_millis(4)), 32, "a short pause is made good");
    assert_eq!(
        burst(bound, Nanos::from_millis(20)),
        41,
        "5 ms / 122.24 us, and the one that was on the wire"
    );
    assert_eq!(burst(bound, Nanos::SECOND), 41, "however long the pause");
}

#[test]
fn what_is_queued_for_a_link_that_goes_down_is_dropped_and_the_others_go_on() {
    let rest =
        "[[link]]\nport = \"p1\"\nrate = \"1Mbit/s\"\ndiscipline = { kind = \"fifo\", limit = 50 }";
    let mut bed = Bed::new(3, rest);
    for _ in 0..20 {
        bed.send(0, 1, Udp::default());
    }
    bed.round();
    let link = |index, up| MirroredLink { index, mac: router_mac(1), mtu: 1500, up };
    bed.pipeline
        .apply(bed.now, MirrorEvent::Link { port: PortIndex(1), link: Some(link(5, false)) });
    assert_eq!(bed.snapshot().links[1].classes[0].dropped["link_down"], 20);
    bed.send(0, 1, Udp::default());
    bed.send(0, 2, Udp::default());
    bed.round();
    assert_eq!(bed.dropped(0, "link_down"), 1);
    assert_eq!(bed.received(2).len(), 1);

    bed.pipeline.apply(bed.now, MirrorEvent::Link { port: PortIndex(1), link: None });
    bed.send(0, 1, Udp::default());
    bed.round();
    assert_eq!(bed.dropped(0, "link_down"), 2);

    // Its neighbours went with it: the first packet asks again.
    bed.pipeline
        .apply(bed.now, MirrorEvent::Link { port: PortIndex(1), link: Some(link(9, true)) });
    bed.send(0, 1, Udp::default());
    bed.round();
    assert_eq!(asked(&mut bed), [NeighbourRequest { port: PortIndex(1), address: v4(1, 2) }]);
    bed.pipeline.set_neighbour(
        bed.now,
        PortIndex(1),
        v4(1, 2),
        Some(KernelNeighbourState::Reachable(host_mac(1))),
    );
    bed.pass(Nanos::from_millis(10));
    assert_eq!(bed.received(1).len(), 1);
    bed.snapshot();
}

#[test]
fn packets_that_wait_for_a_neighbour_of_a_port_that_goes_are_dropped() {
    let mut bed = Bed::new(2, "");
    bed.inject(0, &udp((host_mac(0), router_mac(0)), v4(0, 2), v4(1, 77), Udp::default()));
    bed.round();
    bed.pipeline.apply(bed.now, MirrorEvent::Link { port: PortIndex(1), link: None });
    assert_eq!(bed.snapshot().ports[0].waiting, 0);
    assert_eq!(bed.dropped(0, "link_down"), 1);
}

#[test]
fn more_than_a_burst_takes_several_rounds_and_an_unpaced_link_waits_for_its_port() {
    let mut bed =
        Bed::new(2, "[[link]]\nport = \"p1\"\ndiscipline = { kind = \"fifo\", limit = 2000 }");
    let mut sent = 0;
    let mut round = Default::default();
    // The wire to the far host holds 512 frames; nobody takes any.
    for _ in 0..3 {
        for _ in 0..BURST {
            bed.send(0, 1, Udp::default());
            sent += 1;
        }
        round = bed.round();
        assert!(round.more);
    }
    assert!(round.blocked && bed.snapshot().links[1].queued > 0);
    assert_eq!(bed.hosts[1].waiting(), 512);
    assert_eq!(bed.received(1).len(), 512);
    bed.round();
    assert_eq!(bed.received(1).len(), sent - 512, "nothing was lost");
    let snapshot = bed.snapshot();
    assert_eq!(snapshot.ports[1].tx_packets as usize, sent);
}

#[test]
fn classes_are_told_apart() {
    let rest = "[[class]]\nname = \"rest\"\n[[class]]\nname = \"voice\"\nmatch = [{ dscp = [46] }]";
    let mut bed = Bed::new(2, rest);
    bed.send(0, 1, Udp { dscp: 46, ..Udp::default() });
    bed.send_v6(0, 1, Udp { dscp: 46, ..Udp::default() });
    bed.send(0, 1, Udp::default());
    bed.round();
    let snapshot = bed.snapshot();
    let count = |class: &str| snapshot.link("p1").unwrap().class(class).unwrap().sent_packets;
    assert_eq!((count("voice"), count("rest")), (2, 1));
}

#[test]
fn changes_while_packets_are_queued_lose_nothing_that_fits() {
    let rest = "[[class]]\nname = \"a\"\n[[class]]\nname = \"b\"\nmatch = [{ dscp = [46] }]\n\
        [[link]]\nport = \"p1\"\nrate = \"1Mbit/s\"\ndiscipline = { kind = \"fifo\", limit = 100 }";
    let mut bed = Bed::new(2, rest);
    for dscp in [0, 46].repeat(20) {
        bed.send(0, 1, Udp { dscp, ..Udp::default() });
    }
    bed.round();
    let discipline =
        evenkeel_config::parse_discipline("{ kind = \"wfq-altq\", limit = 15 }", &["a", "b"])
            .unwrap();
    let now = bed.now;
    bed.pipeline.change(now, &LinkChange::Discipline(discipline).on("p1")).unwrap();
    let snapshot = bed.snapshot();
    let link = &snapshot.links[1];
    assert_eq!(link.discipline, "wfq-altq");
    let dropped: u64 = link
        .classes
        .iter()
        .map(|class| class.dropped.get("reconfigured").copied().unwrap_or(0))
        .sum();
    assert_eq!(link.queued, 30);
    assert_eq!(dropped + link.queued + link.in_ring, 40);
    assert_eq!(dropped, 8, "of each class 19 were queued and 15 fit");

    bed.pipeline
        .change(
            now,
            &LinkChange::Wire(settings::Change::new("rate", Some(BitRate::from_mbps(100))))
                .on("p1"),
        )
        .unwrap();
    bed.pass(SECOND);
    assert_eq!(bed.received(1).len(), 32);

    let error = bed
        .pipeline
        .change(now, &LinkChange::Wire(settings::Change::new("rate", None::<BitRate>)).on("p7"))
        .unwrap_err();
    assert!(matches!(error, CommandError::NoSuchLink { .. }));
    assert_eq!(error.to_string(), "no link \"p7\": links are p0, p1");
    let error = bed
        .pipeline
        .change(now, &LinkChange::Wire(settings::Change::new("rate", Some(BitRate(1)))).on("p1"))
        .unwrap_err();
    assert!(error.to_string().contains("out of range"), "{error}");
    assert_eq!(bed.snapshot().links[1].rate_bps, Some(100_000_000), "nothing changed");
}

#[test]
fn no_change_of_discipline_loses_a_packet_or_reorders_a_flow() {
    const KINDS: [&str; 6] = [
        "{ kind = \"fifo\", limit = 500 }",
        "{ kind = \"wfq-altq\", limit = 500, weight = { b = 300 } }",
        "{ kind = \"lct\", limit = 500 }",
        "{ kind = \"pfq\" }",
        "{ kind = \"pdrr\" }",
        "{ kind = \"afan\", limit = 500 }",
    ];
    for from in KINDS {
        for to in KINDS {
            let rest = format!(
                "[[class]]\nname = \"a\"\n[[class]]\nname = \"b\"\nmatch = [{{ dscp = [46] }}]\n\
                 [[link]]\nport = \"p1\"\nrate = \"10Mbit/s\"\ndiscipline = {from}"
            );
            let mut bed = Bed::new(2, &rest);
            // Eight flows, each of one class; the length tells which of its packets it is.
            for packet in 0..96 {
                let flow = packet % 8;
                let dscp = if flow % 2 == 0 { 46 } else { 0 };
                let port = 5000 + flow as u16;
                bed.send(0, 1, Udp { dscp, port, payload: 100 + packet, ..Udp::default() });
            }
            bed.round();
            let discipline = evenkeel_config::parse_discipline(to, &["a", "b"]).unwrap();
            let now = bed.now;
            bed.pipeline.change(now, &LinkChange::Discipline(discipline).on("p1")).unwrap();
            bed.snapshot();
            bed.pass(SECOND);
            let mut last = [0; 8];
            let received = bed.received(1);
            for frame in &received {
                let flow = usize::from(headers(frame).flow.source_port) - 5000;
                assert!(frame.len() > last[flow], "{from} to {to}: flow {flow} is out of order");
                last[flow] = frame.len();
            }
            assert_eq!(received.len(), 96, "{from} to {to}: {:?}", bed.snapshot().links[1].classes);
        }
    }
}

#[test]
fn a_table_that_is_read_ahead_forwards_alike() {
    let mut bed = Bed::new(3, "");
    let via = |port: u16, host| Route::via(NextHop::gateway(PortIndex(port), host), 0);
    for i in 0..20_000_u32 {
        let prefix = format!("100.{}.{}.0/24", i / 256, i % 256).parse().unwrap();
        bed.pipeline.fib_mut().insert(prefix, via(1 + (i % 2) as u16, v4(1 + i as usize % 2, 2)));
    }
    for i in 0..40 {
        let to = ip(&format!("100.{}.{}.9", i, 5 * i));
        bed.inject(0, &udp((host_mac(0), router_mac(0)), v4(0, 2), to, Udp::default()));
        bed.send_v6(0, 1, Udp::default());
    }
    // Neither is IP, and one is cut off.
    bed.inject(0, &[&router_mac(0).0[..], &host_mac(0).0, &[0x08, 0x00, 0x45]].concat());
    bed.inject(0, &[&router_mac(0).0[..], &host_mac(0).0, &[0x88, 0xb5, 1, 2, 3]].concat());
    bed.round();
    bed.round();
    // Third bytes are even and odd in turn, and so are the routes.
    assert_eq!((bed.received(1).len(), bed.received(2).len()), (60, 20));
    assert_eq!(bed.dropped(0, "truncated"), 1);
}

#[test]
fn stopping_accounts_for_everything_that_was_held() {
    let rest =
        "[[link]]\nport = \"p1\"\nrate = \"1Mbit/s\"\ndiscipline = { kind = \"fifo\", limit = 50 }";
    let mut bed = Bed::new(2, rest);
    for _ in 0..20 {
        bed.send(0, 1, Udp::default());
    }
    bed.inject(0, &udp((host_mac(0), router_mac(0)), v4(0, 2), v4(1, 77), Udp::default()));
    bed.round();
    bed.pipeline.stop(bed.now);
    let snapshot = bed.snapshot();
    assert_eq!(snapshot.links[1].classes[0].dropped["stopped"], 20);
    assert_eq!(snapshot.ports[0].dropped["stopped"], 1);
    assert_eq!(snapshot.buffers.free, snapshot.buffers.total);
}

mod anything {
    use super::*;
    use proptest::prelude::*;

    /// A good frame with some bytes changed and perhaps cut, or any bytes at all behind our
    /// address.
    fn frame() -> impl Strategy<Value = Vec<u8>> {
        let changes = prop::collection::vec((12usize..120, any::<u8>()), 0..6);
        let damaged = (any::<bool>(), changes, 14usize..200).prop_map(|(six, changes, cut)| {
            let (from, to) = if six { (v6(0, 2), v6(1, 2)) } else { (v4(0, 2), v4(1, 2)) };
            let mut frame =
                udp((host_mac(0), router_mac(0)), from, to, Udp { payload: 60, ..Udp::default() });
            for (at, value) in changes {
                if let Some(byte) = frame.get_mut(at) {
                    *byte = value;
                }
            }
            frame.truncate(cut);
            frame
        });
        let noise = prop::collection::vec(any::<u8>(), 0..120).prop_map(|bytes| {
            let mut frame = router_mac(0).0.to_vec();
            frame.extend_from_slice(&host_mac(0).0);
            frame.extend_from_slice(&bytes);
            frame
        });
        prop_oneof![3 => damaged, 1 => noise]
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None,
            ..ProptestConfig::default() })]

        /// Whatever comes in, nothing panics and every frame is accounted for.
        #[test]
        fn every_frame_is_accounted_for(frames in prop::collection::vec((frame(), any::<bool>()),
            1..60)) {
            let mut bed = Bed::new(2, "[[link]]\nport = \"p1\"\nrate = \"10Mbit/s\"\ndiscipline = \
                                       { kind = \"fifo\", limit = 5 }");
            for (frame, partial) in &frames {
                assert!(bed.hosts[0].inject_flagged(frame, *partial));
                bed.pass(Nanos::from_micros(20));
            }
            bed.snapshot();
            // An answer that nobody could be found for may itself have waited.
            for _ in 0..3 {
                bed.pass(SECOND * 10);
            }
            let snapshot = bed.snapshot();
            prop_assert_eq!(snapshot.ports[0].rx_packets, frames.len() as u64);
            prop_assert_eq!(snapshot.buffers.free, snapshot.buffers.total, "nothing is held for \
                                                            ever");
        }
    }
}

#[test]
fn fragments_and_labels_make_one_protected_flow_each_and_control_protocols_one_as_others() {
    const GUARDED: &str = "[[link]]\nport = \"p1\"\nrate = \"10Mbit/s\"\n[link.discipline]\nkind = \
                           \"pdrr\"\n[link.admission]\n";
    let mut bed = Bed::new(2, GUARDED);
    let macs = (host_mac(0), router_mac(0));
    // The same datagram in three fragments; the later ones begin with what would be ports in the
    // first.
    for (flags, protocol) in [([0x20, 0], 17), ([0x20, 20], 17), ([0, 40], 17), ([0, 0], 1)] {
        let mut frame = udp(macs, v4(0, 2), v4(1, 2), Udp::default());
        frame[20..22].copy_from_slice(&flags);
        (frame[23], frame[24], frame[25]) = (protocol, 0, 0);
        let sum = checksum::sum(&frame[14..34]).checksum();
        frame[24..26].copy_from_slice(&sum.to_be_bytes());
        bed.inject(0, &frame);
    }
    // One label, whatever the ports.
    for port in [5000, 5001, 5002] {
        let mut frame = udp(macs, v6(0, 2), v6(1, 2), Udp { port, ..Udp::default() });
        frame[15..18].copy_from_slice(&[0x01, 0x23, 0x45]);
        bed.inject(0, &frame);
    }
    bed.round();
    let mut flows: Vec<String> =
        bed.pipeline.flows(bed.now, None, 10).unwrap().into_iter().map(|flow| flow.flow).collect();
    flows.sort_unstable();
    let labelled = "[2001:db8::2]->[2001:db8:1::2]/label:0x12345";
    let [ping, fragment] = ["icmp", "udp"].map(|name| format!("10.0.0.2:0->10.0.1.2:0/{name}"));
    assert_eq!(flows, [&ping, &fragment, labelled]);
    for flow in &flows {
        let told = bed.pipeline.explain(bed.now, None, &flow.parse().unwrap()).unwrap();
        assert!(told.contains("protected since"), "{told}");
    }
    let admission = bed.snapshot().links[1].admission.clone().unwrap();
    assert_eq!((admission.packets, admission.protected), (7, 3));
}
