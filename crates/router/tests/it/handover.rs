//! Pipelines that take the place of others: what goes on by its name, what is copied, and what is
//! counted of what cannot go on.

use crate::common::{self, Bed, Udp, assert_conserved, host_mac, ip, router_mac, udp, v4};
use evenkeel_core::Nanos;
use evenkeel_ports::Port as _;
use evenkeel_router::Snapshot;
use evenkeel_router::mirror::{MirrorEvent, RefusedNeighbours};
use evenkeel_router::pipeline::Buffers;

const CLASSES: &str =
    "[[class]]\nname = \"rest\"\n[[class]]\nname = \"fast\"\nmatch = [{ dscp = [46] }]\n";
const SLOW: &str = "[[link]]\nport = \"p1\"\nrate = \"10Mbit/s\"\ndiscipline = { kind = \
                    \"wfq-altq\", limit = 100 }\n";

/// `new` takes the place of `old`, with its memory ports as far as it has them.
fn hand_over(mut new: Bed, old: Bed, buffers: Buffers) -> Bed {
    let Bed { pipeline, ports, hosts, now } = old;
    let mut pipeline = pipeline;
    for (at, (mut port, host)) in ports.into_iter().zip(hosts).enumerate() {
        if at < new.ports.len() {
            (new.ports[at], new.hosts[at]) = (port, host);
        } else {
            pipeline.port_closed(&format!("p{at}"), &port.counters());
        }
    }
    new.now = now;
    new.pipeline.take_over(now, pipeline, buffers);
    new
}

/// The numbers of the packets that a host received, in their order.
fn numbers(bed: &mut Bed, at: usize) -> Vec<u16> {
    let port = |frame: &Vec<u8>| u16::from_be_bytes([frame[36], frame[37]]);
    bed.received(at).iter().map(port).collect()
}

/// `count` packets from the host at `p0` to that at `p1`, each of a flow of its own that tells its
/// number.
fn send(bed: &mut Bed, first: u16, count: u16, dscp: u8) {
    for number in first..first + count {
        bed.send(0, 1, Udp { port: number, dscp, payload: 500, ..Udp::default() });
    }
    bed.round();
}

fn class<'a>(snapshot: &'a Snapshot, name: &str) -> &'a evenkeel_router::snapshot::ClassSnapshot {
    snapshot.link("p1").unwrap().class(name).unwrap()
}

#[test]
fn queues_rings_and_counters_go_on_and_a_removed_port_is_accounted_for() {
    for buffers in [Buffers::Kept, Buffers::Copied] {
        let text = format!("{CLASSES}{SLOW}[[link]]\nport = \"p2\"\nrate = \"1Mbit/s\"\n");
        let mut old = Bed::new(3, &text);
        send(&mut old, 100, 40, 0);
        send(&mut old, 140, 20, 46);
        for _ in 0..30 {
            old.send(0, 2, Udp::default());
        }
        old.pass(Nanos::from_millis(1));
        let before = old.snapshot();
        let first = numbers(&mut old, 1);
        assert!(before.link("p1").unwrap().queued > 20 && before.link("p2").unwrap().queued > 20);

        let mut new = hand_over(Bed::new(2, &format!("{CLASSES}{SLOW}")), old, buffers);
        let after = new.snapshot();
        for name in ["rest", "fast"] {
            let (before, after) = (class(&before, name), class(&after, name));
            assert_eq!(
                (after.in_packets, after.dropped.len()),
                (before.in_packets, 0),
                "{buffers:?}"
            );
            assert_eq!(after.queued_packets, before.queued_packets, "{buffers:?}");
        }
        assert_eq!(after.ports[0].rx_packets, before.ports[0].rx_packets);
        let removed = after.removed.as_ref().unwrap();
        let (there, gone) = (&before.links[2].classes[0], &removed.link.classes[0]);
        assert_eq!((removed.ports, gone.in_packets), (1, there.in_packets));
        assert_eq!(gone.dropped["link_down"], there.in_packets - there.sent_packets);

        // What waited comes first, and in its order.
        send(&mut new, 200, 10, 0);
        new.pass(Nanos::SECOND);
        let second = numbers(&mut new, 1);
        let of = |fast: bool| -> Vec<u16> {
            first
                .iter()
                .chain(&second)
                .copied()
                .filter(|n| (140..200).contains(n) == fast)
                .collect()
        };
        assert_eq!(of(true), (140..160).collect::<Vec<_>>());
        assert_eq!(of(false), (100..140).chain(200..210).collect::<Vec<_>>());
        let last = new.snapshot();
        assert_eq!(last.buffers.free, last.buffers.total, "{buffers:?}");
    }
}

#[test]
fn classes_go_by_name_and_what_has_no_class_any_more_joins_the_first() {
    let mut old = Bed::new(2, &format!("{CLASSES}{SLOW}"));
    send(&mut old, 100, 20, 0);
    send(&mut old, 120, 20, 46);
    let before = old.snapshot();
    // `fast` has another number.
    let three = "[[class]]\nname = \"rest\"\n[[class]]\nname = \"new\"\nmatch = [{ dscp = [8] }]\n\
        [[class]]\nname = \"fast\"\nmatch = [{ dscp = [46] }]\n";
    let mut new = hand_over(Bed::new(2, &format!("{three}{SLOW}")), old, Buffers::Kept);
    let after = new.snapshot();
    for name in ["rest", "fast"] {
        assert_eq!(class(&after, name).in_packets, class(&before, name).in_packets);
        assert_eq!(class(&after, name).queued_packets, class(&before, name).queued_packets);
    }
    assert_eq!(class(&after, "new").in_packets, 0);
    let one = "[[class]]\nname = \"rest\"\n";
    let mut new = hand_over(Bed::new(2, &format!("{one}{SLOW}")), new, Buffers::Kept);
    let last = new.snapshot();
    assert_eq!(class(&last, "rest").in_packets, 40);
    new.pass(Nanos::SECOND);
    assert_eq!(numbers(&mut new, 1).len(), 40);
    assert_eq!(class(&new.snapshot(), "rest").sent_packets, 40);
}

#[test]
fn packets_that_wait_for_a_neighbour_wait_on_or_go_with_their_port() {
    let mut old = Bed::new(3, "");
    let unknown = v4(1, 77);
    for from in [0, 2] {
        let frame = udp((host_mac(from), router_mac(from)), v4(from, 2), unknown, Udp::default());
        old.inject(from, &frame);
    }
    old.round();
    assert_eq!((old.snapshot().ports[0].waiting, old.snapshot().ports[2].waiting), (1, 1));
    let mut new = hand_over(Bed::new(2, ""), old, Buffers::Copied);
    let snapshot = new.snapshot();
    assert_eq!(snapshot.ports[0].waiting, 1);
    let removed = snapshot.removed.unwrap().port;
    assert_eq!((removed.waiting, removed.dropped["link_down"]), (0, 1));
    // It is asked for anew, and found.
    let mut asked = Vec::new();
    new.pipeline.drain_requests(new.now, |request| asked.push(request.address));
    assert_eq!(asked, [unknown]);
    let state = evenkeel_router::mirror::decode::KernelNeighbourState::Reachable(host_mac(1));
    new.pipeline.set_neighbour(new.now, evenkeel_net::PortIndex(1), unknown, Some(state));
    new.round();
    assert_eq!(common::headers(&new.one(1)).flow.destination, ip("10.0.1.77"));
    let last = new.snapshot();
    assert_eq!(last.ports[0].forwarded, 1);
}

#[test]
fn buffers_that_do_not_suffice_are_a_reason_and_nothing_else() {
    let deep = SLOW.replace("limit = 100", "limit = 1000");
    let mut old = Bed::new(2, &deep);
    // A round takes 256 packets of a port at most.
    send(&mut old, 100, 150, 0);
    send(&mut old, 250, 150, 0);
    let new = Bed::new(2, &format!("[router]\nbuffers = 256\n{deep}"));
    let mut new = hand_over(new, old, Buffers::Copied);
    let snapshot = new.snapshot();
    let all = &snapshot.links[1].classes[0];
    assert_eq!((snapshot.buffers.total, snapshot.buffers.free), (256, 0));
    assert_eq!(all.in_packets, 300);
    assert_eq!(all.dropped["no_buffer"], 300 - 256 - all.sent_packets);
    new.pass(Nanos::SECOND);
    let last = new.snapshot();
    assert_eq!(last.buffers.free, 256);
    assert_conserved(&last);
}

#[test]
fn a_port_that_is_down_when_it_is_taken_over_holds_nothing() {
    let mut old = Bed::new(2, SLOW);
    send(&mut old, 100, 20, 0);
    let mut new = Bed::new(2, SLOW);
    let down = evenkeel_router::pipeline::LinkState { mac: router_mac(1), mtu: 1500, up: false };
    new.pipeline.set_link(new.now, evenkeel_net::PortIndex(1), Some(down));
    let mut new = hand_over(new, old, Buffers::Kept);
    let snapshot = new.snapshot();
    assert_eq!(snapshot.links[1].queued + snapshot.links[1].in_ring, 0);
    let all = &snapshot.links[1].classes[0];
    assert_eq!(all.dropped["link_down"], 20 - all.sent_packets);
}

#[test]
fn two_workers_become_one_and_one_becomes_two() {
    let one = format!("{CLASSES}{SLOW}");
    let two = format!("[router]\nworkers = 2\n{one}");
    let mut workers = Bed::workers(2, &two);
    for (worker, first) in workers.iter_mut().zip([100, 200]) {
        send(worker, first, 20, 0);
        send(worker, first + 20, 10, 46);
    }
    let counted: u64 = workers.iter_mut().map(|worker| worker.snapshot().ports[0].forwarded).sum();
    let mut new = Bed::new(2, &one);
    let mut seen = Vec::new();
    for mut old in workers {
        seen.extend(numbers(&mut old, 1));
        let Bed { mut pipeline, mut ports, .. } = old;
        for (at, port) in ports.iter_mut().enumerate() {
            pipeline.port_closed(&format!("p{at}"), &port.counters());
        }
        new.now = new.now.max(old.now);
        new.pipeline.take_over(new.now, pipeline, Buffers::Copied);
    }
    let snapshot = new.snapshot();
    assert_eq!((snapshot.ports[0].forwarded, counted), (60, 60));
    let mut workers = Bed::workers(2, &two).into_iter();
    let mut first = workers.next().unwrap();
    let (pipeline, mut ports) = (new.pipeline, new.ports);
    let mut pipeline = pipeline;
    for (at, port) in ports.iter_mut().enumerate() {
        pipeline.port_closed(&format!("p{at}"), &port.counters());
    }
    first.now = new.now;
    first.pipeline.take_over(first.now, pipeline, Buffers::Copied);
    let mut second = workers.next().unwrap();
    for _ in 0..200 {
        first.pass(Nanos::from_millis(5));
        second.now = first.now;
        second.round();
    }
    seen.extend(numbers(&mut first, 1));
    for (from, to) in [(100, 120), (120, 130), (200, 220), (220, 230)] {
        let of: Vec<u16> = seen.iter().copied().filter(|n| (from..to).contains(n)).collect();
        assert_eq!(
            of,
            (from..to).collect::<Vec<_>>(),
            "each worker's packets of a class keep their order"
        );
    }
    assert_eq!(
        first.snapshot().links[1].classes.iter().map(|class| class.sent_packets).sum::<u64>(),
        60
    );
}

#[test]
fn neighbours_that_the_kernel_has_no_room_for_are_counted_on_and_said_once() {
    let news = |bed: &mut Bed| {
        let mut news = Vec::new();
        bed.pipeline.drain_news(|text| news.push(text.to_owned()));
        news
    };
    let tell = |bed: &mut Bed, ipv4_full: u64, ipv6_full: u64| {
        let refused = RefusedNeighbours { ipv4_full, ipv6_full, other: 1 };
        bed.pipeline.apply(bed.now, MirrorEvent::RefusedNeighbours(refused));
    };
    let mut old = Bed::new(2, "");
    assert_eq!(old.snapshot().refused_neighbours, None);
    // What a link that has just gone refuses is nobody's concern.
    tell(&mut old, 0, 0);
    assert_eq!(news(&mut old), [""; 0]);
    tell(&mut old, 3, 0);
    let said = news(&mut old);
    assert!(said.len() == 1 && said[0].contains("3 of IPv4"), "{said:?}");
    assert!(said[0].contains("raise net.ipv4.neigh.default.gc_thresh3"), "{said:?}");
    tell(&mut old, 9, 0);
    assert_eq!(news(&mut old), [""; 0]);

    // Another mirror begins to count anew.
    let mut new = hand_over(Bed::new(2, ""), old, Buffers::Kept);
    tell(&mut new, 2, 5);
    let said = news(&mut new);
    assert!(
        said.len() == 1 && said[0].contains("5 of IPv6") && !said[0].contains("IPv4"),
        "{said:?}"
    );
    let all = RefusedNeighbours { ipv4_full: 11, ipv6_full: 5, other: 2 };
    assert_eq!(new.snapshot().refused_neighbours, Some(all));
}
