//! Why for every packet: what is told of packets that are watched, of flows that are asked for, and
//! of who sends most.

use evenkeel_core::{FlowKey, Nanos};
use evenkeel_router::CommandError;
use evenkeel_router::watch::{Point, Sighting, Watch};

use crate::common::{Bed, Udp, assert_conserved, v4};

/// A link of 1 Mbit/s with a short queue for each class.
const SLOW: &str = "[[class]]\nname = \"rest\"\n[[class]]\nname = \"voice\"\n\
                    match = [{ destination_port = 7 }]\n[[link]]\nport = \"p1\"\n\
                    rate = \"1Mbit/s\"\nring = { slots = 1 }\n\
                    discipline = { kind = \"wfq-altq\", limit = 2 }\n";

fn watch(filter: &str) -> Watch {
    let filter = evenkeel_config::parse_filter(filter).unwrap();
    Watch { id: 7, filter, port: None, drops: false, snap: None }
}

fn points(seen: &[Sighting]) -> Vec<(&str, Point)> {
    seen.iter().map(|seen| (seen.port.as_str(), seen.point)).collect()
}

fn flow(i: usize, j: usize, port: u16) -> FlowKey {
    format!("{}:{port}->{}:{port}/udp", v4(i, 2), v4(j, 2)).parse().unwrap()
}

const WAY: [(&str, Point); 3] =
    [("p0", Point::Received), ("p1", Point::Queued), ("p1", Point::Sent)];

#[test]
fn each_stage_of_a_watched_packet_is_told_and_of_no_other() {
    for rest in ["", SLOW, "[router]\ncycles = true\n", "[fairdrop]\non = true\n"] {
        let mut bed = Bed::new(2, rest);
        // Known by the flow cache before anybody watches.
        for _ in 0..3 {
            bed.send(0, 1, Udp { port: 7, ..Udp::default() });
            bed.pass(Nanos::from_millis(10));
        }
        bed.pass(Nanos::from_millis(10));
        bed.pipeline.watch(bed.now, &watch("{ destination_port = 7 }")).unwrap();
        bed.send(0, 1, Udp { port: 7, ..Udp::default() });
        bed.send(0, 1, Udp::default());
        bed.pass(Nanos::from_millis(10));
        bed.pass(Nanos::from_millis(10));
        let seen = bed.pipeline.sightings(bed.now, 7).unwrap();
        assert_eq!(
            (points(&seen.seen), seen.missed),
            (WAY.to_vec(), 0),
            "{rest}: {:#?}",
            seen.seen
        );
        assert!(seen.seen[0].text.contains("routed to port p1"), "{:#?}", seen.seen);
        assert!(seen.seen.iter().all(|of| of.flow == flow(0, 1, 7).to_string()));
        assert!(bed.pipeline.sightings(bed.now, 7).unwrap().seen.is_empty());
        assert_conserved(&bed.snapshot());
    }
}

/// The answer to its sender was told as a stage of the packet itself: "given to link".
#[test]
fn an_answer_is_no_stage_of_the_packet_that_it_answers() {
    let mut bed = Bed::new(2, "");
    bed.pipeline.watch(bed.now, &watch("{ destination_port = 7 }")).unwrap();
    bed.send(0, 1, Udp { port: 7, ttl: 1, ..Udp::default() });
    bed.pass(Nanos::from_millis(10));
    let seen = bed.pipeline.sightings(bed.now, 7).unwrap().seen;
    assert_eq!(points(&seen), [("p0", Point::Received), ("p0", Point::Dropped)], "{seen:#?}");
    assert!(!bed.received(0).is_empty(), "it was answered");
}

/// Each packet of a burst that does not fit has one end, and its reason is that of the counters.
#[test]
fn drops_are_told_with_their_reasons_and_nothing_else_is_if_that_is_asked() {
    let mut bed = Bed::new(2, SLOW);
    let what = Watch { drops: true, snap: Some(64), ..watch("") };
    bed.pipeline.watch(bed.now, &what).unwrap();
    for _ in 0..8 {
        bed.send(0, 1, Udp::default());
    }
    bed.send(0, 1, Udp { ttl: 1, ..Udp::default() });
    bed.send(1, 0, Udp { ttl: 1, ..Udp::default() });
    bed.pass(Nanos::from_millis(50));
    let seen = bed.pipeline.sightings(bed.now, 7).unwrap().seen;
    let snapshot = bed.snapshot();
    let full: u64 = snapshot.link("p1").unwrap().classes[0].dropped.values().sum();
    assert!(full >= 4, "{full}");
    let of = |reason: &str| seen.iter().filter(|of| of.reason.as_deref() == Some(reason)).count();
    assert_eq!((of("queue_full") as u64, of("ttl_expired")), (full, 2));
    assert_eq!(seen.len() as u64, full + 2);
    assert!(seen.iter().all(|of| of.point == Point::Dropped && of.bytes.len() == 128));
    assert!(seen.iter().any(|of| of.text.contains("tail drop")), "{:#?}", seen[0]);
    // The last ones are remembered without anybody watching.
    bed.pipeline.unwatch();
    bed.send(0, 1, Udp { ttl: 1, port: 9, ..Udp::default() });
    bed.pass(Nanos::from_millis(50));
    let told = bed.pipeline.explain(bed.now, None, &flow(0, 1, 9)).unwrap();
    assert!(told.contains("before any link") && told.contains("1 of the latest"), "{told}");
    let told = bed.pipeline.explain(bed.now, Some("p1"), &flow(0, 1, 5_000)).unwrap();
    assert!(told.contains("of the latest") && told.contains("dropped, queue_full"), "{told}");
    assert!(told.contains("class rest") && told.contains("routed to port p1"), "{told}");
    assert_conserved(&snapshot);
}

#[test]
fn a_watch_ends_when_nobody_asks_and_gives_way_to_another() {
    let mut bed = Bed::new(2, "");
    bed.pipeline.watch(bed.now, &watch("")).unwrap();
    bed.pipeline.watch(bed.now, &Watch { id: 8, ..watch("") }).unwrap();
    let gone = bed.pipeline.sightings(bed.now, 7);
    assert!(matches!(gone, Err(CommandError::NotWatching)), "{gone:?}");
    bed.pass(Nanos::from_millis(4_000));
    bed.pipeline.sightings(bed.now, 8).unwrap();
    bed.pass(Nanos::from_millis(4_000));
    bed.pipeline.sightings(bed.now, 8).unwrap();
    bed.pass(Nanos::from_millis(6_000));
    assert!(bed.pipeline.sightings(bed.now, 8).is_err());
    let nowhere = Watch { port: Some("p9".into()), ..watch("") };
    assert!(bed.pipeline.watch(bed.now, &nowhere).is_err());
}

#[test]
fn what_comes_faster_than_it_is_asked_for_is_counted() {
    let mut bed = Bed::new(2, "");
    bed.pipeline.watch(bed.now, &watch("")).unwrap();
    for _ in 0..60 {
        for _ in 0..50 {
            bed.send(0, 1, Udp::default());
        }
        bed.pass(Nanos::from_millis(1));
        bed.received(1);
    }
    let seen = bed.pipeline.sightings(bed.now, 7).unwrap();
    assert_eq!(seen.seen.len() as u64 + seen.missed, 3_000 * 3);
    assert!(seen.missed > 0);
}

/// Two flows in turn, packet by packet, and one that sends a tenth of them.
#[test]
fn the_busiest_flows_are_estimated_also_when_they_take_turns() {
    let mut bed = Bed::new(2, SLOW.replace("1Mbit/s", "100Mbit/s").as_str());
    for n in 0..6_000_u32 {
        bed.send(0, 1, Udp { port: 1, payload: 972, ..Udp::default() });
        bed.send(0, 1, Udp { port: 7, payload: 972, ..Udp::default() });
        if n % 10 == 0 {
            bed.send(0, 1, Udp { port: 3, payload: 972, ..Udp::default() });
        }
        bed.pass(Nanos::from_millis(1));
        bed.received(1);
    }
    let busy = bed.pipeline.busiest(bed.now, 10);
    assert_eq!(busy.len(), 3, "{busy:#?}");
    for (of, mbps) in busy.iter().zip([8.0, 8.0, 0.8]) {
        let told = of.bps / 1e6;
        assert!((told / mbps - 1.0).abs() < 0.3, "{told} for {mbps}: {busy:#?}");
        assert_eq!(of.class, if of.flow.ends_with(":7/udp") { "voice" } else { "rest" });
    }
    assert_eq!(bed.pipeline.busiest(bed.now, 1).len(), 1);
    // Who has stopped is forgotten.
    bed.pass(Nanos::from_secs(60));
    assert!(bed.pipeline.busiest(bed.now, 10).is_empty());
}
