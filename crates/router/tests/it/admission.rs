//! Admission in the pipeline: who is refused, diverted or flushed, on which link it counts, and
//! that nothing disappears.

use crate::common::{Bed, Udp, headers, host_mac, ip, router_mac, udp, v4};
use evenkeel_core::Nanos;
use evenkeel_net::PortIndex;
use evenkeel_router::mirror::decode::KernelNeighbourState;
use evenkeel_router::snapshot::AdmissionSnapshot;

/// Payload of packets of 1000 bytes.
const LONG: usize = 972;

/// A router whose port `p1` has 1 Mbit/s, PDRR and admission with these keys; closed below 250
/// kbit/s, so that five greedy flows close it. As published: nobody enters by way of exception.
fn bed(ports: usize, admission: &str, rest: &str) -> Bed {
    let rest = format!(
        "{rest}\n[[link]]\nport = \"p1\"\nrate = \"1Mbit/s\"\nring = {{ slots = 1 }}\ndiscipline = \
         {{ kind = \"pdrr\" }}\n\
         [link.admission]\nmin_fair_rate = 0.25\nbudget = false\nprobation = \"0s\"\n\
         expected_flows = false\nnewcomer_share = 0.0\neccm = false\n{admission}"
    );
    Bed::new(ports, &rest)
}

/// A packet of the flow with this port of host `host` at port 0, to the host at port 1.
fn send(bed: &mut Bed, host: u8, port: u16, payload: usize) {
    let what = Udp { port, payload, ..Udp::default() };
    bed.inject(0, &udp((host_mac(0), router_mac(0)), v4(0, host), v4(1, 2), what));
}

/// `ms` milliseconds in which each of these flows sends 1000 bytes every 8 ms: as much as the link
/// carries, each.
fn greedy(bed: &mut Bed, flows: std::ops::Range<u16>, ms: u64) {
    for _ in 0..ms / 8 {
        flows.clone().for_each(|port| send(bed, 2, port, LONG));
        for _ in 0..8 {
            bed.pass(Nanos::from_millis(1));
        }
    }
}

/// Long enough for what is first in line to leave.
fn settle(bed: &mut Bed) {
    for _ in 0..40 {
        let _ = bed.pass(Nanos::from_millis(1));
    }
}

fn admission(bed: &mut Bed) -> AdmissionSnapshot {
    let seen = bed.snapshot().links[1].admission.clone().expect("the link has one");
    let passed: u64 = seen.passed.values().sum();
    assert_eq!(seen.packets, passed + seen.refused_total() + seen.diverted_packets, "{seen:?}");
    seen
}

/// Packets that passed because the router itself had made them.
fn control(seen: &AdmissionSnapshot) -> u64 {
    seen.passed.get("control").copied().unwrap_or(0)
}

/// Ports that packets have come from, of those that host `i` has received, sorted, each once.
fn sources(bed: &mut Bed, i: usize) -> Vec<u16> {
    let frames = bed.received(i);
    let mut ports: Vec<_> = frames.iter().map(|frame| headers(frame).flow.source_port).collect();
    ports.sort_unstable();
    ports.dedup();
    ports
}

#[test]
fn who_comes_too_late_is_refused_and_counted_by_reason_in_its_class() {
    let classes = "[[class]]\nname = \"rest\"\n[[class]]\nname = \"late\"\nmatch = [{ protocol = \
                   \"udp\", destination_port = 7000 }]";
    let mut bed = bed(2, "", classes);
    greedy(&mut bed, 6000..6005, 1_200);
    assert_eq!(admission(&mut bed).congested.as_deref(), Some("fair_rate_low"));
    assert_eq!(sources(&mut bed, 1), [6000, 6001, 6002, 6003, 6004]);
    for _ in 0..10 {
        send(&mut bed, 2, 7000, 100);
        greedy(&mut bed, 6000..6005, 16);
    }
    let seen = admission(&mut bed);
    assert_eq!(seen.refused.get("fair_rate_low"), Some(&10), "{:?}", seen.refused);
    assert!(!sources(&mut bed, 1).contains(&7000));
    let link = bed.snapshot().links[1].clone();
    let late = &link.classes[1];
    assert_eq!((late.in_packets, late.sent_packets), (10, 0));
    assert_eq!(late.dropped.get("fair_rate_low"), Some(&10));
    // When what is queued has left, silence reopens it, without a packet that asks.
    for _ in 0..10_000 {
        bed.pass(Nanos::from_millis(1));
    }
    assert_eq!(admission(&mut bed).congested, None);
    // The host's ring is full of what came late.
    sources(&mut bed, 1);
    send(&mut bed, 2, 7000, 100);
    settle(&mut bed);
    assert!(sources(&mut bed, 1).contains(&7000));
}

#[test]
fn a_new_flow_that_meets_congestion_leaves_by_the_second_link() {
    for policy in ["newest", "oldest"] {
        let keys = format!(
            "second_link = \"p2\"\nsecond_via = \"10.0.2.2\"\nsecond_link_policy = \
             \"{policy}\"\nflows = 16"
        );
        let second = "[[link]]\nport = \"p2\"\nrate = \"1Mbit/s\"";
        let mut bed = bed(3, &keys, second);
        greedy(&mut bed, 6000..6005, 1_200);
        assert!(admission(&mut bed).congested.is_some());
        assert!(sources(&mut bed, 2).is_empty(), "nobody has left yet");
        sources(&mut bed, 1);
        for _ in 0..20 {
            send(&mut bed, 2, 7000, 100);
            greedy(&mut bed, 6000..6005, 16);
        }
        let seen = admission(&mut bed);
        assert_eq!((seen.refused_total(), seen.diverted), (0, 1), "{policy}");
        assert!(seen.diverted_packets >= 20, "{policy}: {}", seen.diverted_packets);
        let out: Vec<_> = bed.received(2);
        let leaves = headers(&out[0]).flow.source_port;
        assert_eq!(leaves == 7000, policy == "newest", "{leaves}");
        for frame in &out {
            assert_eq!(headers(frame).flow.source_port, leaves, "{policy}");
            assert_eq!(headers(frame).ttl, 63);
            assert_eq!(frame[..6], host_mac(2).0, "to the next hop on the second link");
        }
        assert_eq!(sources(&mut bed, 1).contains(&7000), policy == "oldest", "{policy}");
        // A second link that is down takes nobody: what went there is refused, and told.
        bed.pipeline.set_link(bed.now, PortIndex(2), None);
        send(&mut bed, 2, leaves, 100);
        bed.pass(Nanos::from_millis(1));
        let down: u64 = bed.snapshot().links[1]
            .classes
            .iter()
            .filter_map(|class| class.dropped.get("link_down"))
            .sum();
        assert_eq!(down, 1, "{policy}");
    }
}

#[test]
fn a_second_link_whose_next_hop_is_unknown_is_asked_for_and_takes_nobody() {
    let mut bed = bed(
        3,
        "second_link = \"p2\"\nsecond_via = \"10.0.2.9\"",
        "[[link]]\nport = \"p2\"\nrate = \"1Mbit/s\"",
    );
    greedy(&mut bed, 6000..6005, 1_200);
    send(&mut bed, 2, 7000, 100);
    bed.pass(Nanos::from_millis(1));
    let mut asked = Vec::new();
    bed.pipeline.drain_requests(bed.now, |request| asked.push(request.address));
    assert_eq!(asked, [v4(2, 9)]);
    let known = KernelNeighbourState::Reachable(host_mac(7));
    bed.pipeline.set_neighbour(bed.now, PortIndex(2), v4(2, 9), Some(known));
    send(&mut bed, 2, 7000, 100);
    settle(&mut bed);
    assert_eq!(sources(&mut bed, 2), [7000]);
}

#[test]
fn flushing_lets_a_stream_in_and_elastic_flows_ask_again() {
    let closed = |keys: &str| {
        let mut bed = bed(2, keys, "");
        greedy(&mut bed, 6000..6005, 1_200);
        sources(&mut bed, 1);
        send(&mut bed, 2, 7000, 100);
        settle(&mut bed);
        let seen = admission(&mut bed);
        (sources(&mut bed, 1).contains(&7000), seen.clearings, seen.protected)
    };
    assert_eq!(closed(""), (false, 0, 5));
    assert_eq!(
        closed("flushing = \"efm\"\nflush_interval = \"500ms\""),
        (true, 1, 1),
        "elastic flows are off the list"
    );
    let raef = |time: &str| {
        closed(&format!(
            "flushing = \"raef\"\nflush_interval = \"500ms\"\nactive_time = \"{time}\""
        ))
    };
    assert_eq!(raef("100ms"), (true, 1, 1));
    assert_eq!(raef("30s").2, 5, "nobody has been active for that long");
}

#[test]
fn emergency_flows_enter_by_thresholds_of_their_own() {
    let enters = |keys: &str| {
        let flows = "[flows]\nemergency_sources = [\"10.0.0.99/32\"]";
        let mut bed = bed(2, keys, flows);
        greedy(&mut bed, 6000..6005, 1_200);
        assert!(admission(&mut bed).congested.is_some());
        sources(&mut bed, 1);
        send(&mut bed, 99, 7000, 100);
        send(&mut bed, 98, 7001, 100);
        settle(&mut bed);
        let passed = admission(&mut bed).passed;
        let sources = sources(&mut bed, 1);
        assert!(!sources.contains(&7001), "who has no emergency is refused");
        (sources.contains(&7000), passed.get("emergency").copied().unwrap_or(0))
    };
    assert_eq!(enters("emergency = \"bypass\""), (true, 1));
    assert_eq!(enters("emergency = \"off\""), (false, 0));
    // FR is 200 kbit/s: above 10 %, below 24 % of 1 Mbit/s.
    assert!(enters("emergency = \"thresholds\"\nemergency_min_fair_rate = 0.1").0);
    assert!(!enters("emergency = \"thresholds\"\nemergency_min_fair_rate = 0.24").0);
}

#[test]
fn who_gets_in_is_on_the_wire_within_as_many_packet_times_as_the_ring_has_slots_and_one() {
    // 1000 bytes and what Ethernet adds take 8.304 ms at 1 Mbit/s.
    const PACKET: Nanos = Nanos(8_304_000);
    for slots in [1, 4] {
        let rest = format!(
            "[flows]\nemergency_sources = [\"10.0.0.99/32\"]\n[[link]]\nport = \"p1\"\nrate = \
             \"1Mbit/s\"\n\
             ring = {{ slots = {slots} }}\ndiscipline = {{ kind = \"pdrr\" \
             }}\n[link.admission]\nmin_fair_rate = 0.25"
        );
        let mut bed = Bed::new(2, &rest);
        greedy(&mut bed, 6000..6005, 1_200);
        assert!(admission(&mut bed).congested.is_some());
        let mut worst = Nanos::ZERO;
        for probe in 0..20 {
            greedy(&mut bed, 6000..6005, 24 + 8 * (probe % 3));
            sources(&mut bed, 1);
            send(&mut bed, 99, 7000 + probe as u16, 100);
            let begin = bed.now;
            let mut step = 0;
            while !sources(&mut bed, 1).contains(&(7000 + probe as u16)) {
                bed.pass(Nanos::from_micros(100));
                step += 1;
                assert!(step < 1_000, "it never came out");
            }
            worst = worst.max(bed.now - begin);
        }
        let bound = Nanos(PACKET.0 * (slots + 1) + 200_000);
        assert!(worst <= bound, "ring of {slots}: {worst} after arrival, bound {bound}");
        assert!(worst.0 > PACKET.0 / 2, "the link was busy: {worst}");
    }
}

/// Eight megabits per second of UDP to port 3784 took the whole link: what only passes through is
/// ordinary traffic, also with the TTL of a neighbour.
#[test]
fn transit_to_ports_of_control_protocols_waits_for_admission_whatever_its_ttl() {
    let mut bed = bed(2, "global_list = true", "");
    greedy(&mut bed, 6000..6005, 1_200);
    assert!(admission(&mut bed).congested.is_some());
    let before = admission(&mut bed);
    for (port, ttl) in [(3784, 255), (3784, 64), (4784, 255), (520, 2), (521, 255)] {
        for _ in 0..4 {
            let what = Udp { port, ttl, payload: 100, ..Udp::default() };
            bed.inject(0, &udp((host_mac(0), router_mac(0)), v4(0, 9), v4(1, 2), what));
            bed.pass(Nanos::from_millis(1));
        }
    }
    let after = admission(&mut bed);
    assert_eq!(control(&after), 0);
    assert_eq!(after.refused_total() - before.refused_total(), 20);
}

/// What has a link-local address goes through no link, so it cannot take any of one.
#[test]
fn link_local_control_packets_are_not_forwarded() {
    let mut bed = bed(2, "", "");
    let local = ["224.0.0.5", "169.254.0.7"].map(ip);
    for destination in local {
        let what = Udp { port: 3784, ttl: 255, ..Udp::default() };
        bed.inject(0, &udp((host_mac(0), router_mac(0)), v4(0, 2), destination, what));
    }
    bed.round();
    assert_eq!(admission(&mut bed).packets, 0);
    assert!(bed.received(1).is_empty());
}

/// What the router answers itself enters a closed link, in a bucket of its own: whoever makes it
/// answer cannot fill the link with answers either.
#[test]
fn own_answers_enter_a_closed_link_in_a_small_bucket() {
    let mut bed = bed(2, "global_list = true", "");
    greedy(&mut bed, 6000..6005, 1_200);
    assert!(admission(&mut bed).congested.is_some());
    let before = admission(&mut bed);
    // Answers to what comes from the other side go out by the closed link.
    let asks = |bed: &mut Bed, times: u16| {
        for n in 0..times {
            let what = Udp { port: n, ttl: 1, payload: 100, ..Udp::default() };
            let frame = udp((host_mac(1), router_mac(1)), v4(1, 2), v4(0, 2), what);
            bed.inject(1, &frame);
            greedy(bed, 6000..6005, 8);
        }
    };
    asks(&mut bed, 500);
    let after = admission(&mut bed);
    // 1 % of 1 Mbit/s in four seconds are 5 kB, and 3 kB may go at once: answers have 142 bytes or
    // more on the wire.
    let passed = control(&after) - control(&before);
    assert!((10..=60).contains(&passed), "{passed}");
}
