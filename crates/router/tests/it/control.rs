//! Dynamic control of a link in the router's pipeline: it runs between arrivals at its own
//! instants, is switched live, and shows what it sees.

use crate::common::{Bed, Udp};
use evenkeel_config::{LinkChange, parse_discipline};
use evenkeel_core::settings;
use evenkeel_core::{Class, Nanos};
use evenkeel_router::snapshot::ClassControl;

const CONTROLLED: &str = "[[class]]\nname = \"bulk\"\n[[class]]\nname = \"voice\"\nmatch = [{ dscp \
                          = [46] }]\n\
    [[link]]\nport = \"p2\"\nrate = \"10Mbit/s\"\ndiscipline = { kind = \"lct\" }\ncontrol = { \
    kind = \"lct\" }\n";

/// Bulk from host 0 at 0.8 of the link, voice from host 1 at as much, for so long; one round each
/// 500 us.
fn overload(bed: &mut Bed, time: Nanos) {
    let end = bed.now + time;
    let mut turn = 0;
    while bed.now < end {
        // 8.4 kbit of bulk and of voice each millisecond, 1046 bytes on the wire.
        let (from, dscp) = if turn % 2 == 0 { (0, 0) } else { (1, 46) };
        bed.send(from, 2, Udp { payload: 980, dscp, ..Udp::default() });
        bed.pass(Nanos::from_micros(500));
        let _ = bed.received(2);
        turn += 1;
    }
}

fn seen(bed: &mut Bed, class: &str) -> ClassControl {
    let snapshot = bed.snapshot();
    snapshot.link("p2").unwrap().class(class).unwrap().control.unwrap()
}

#[test]
fn it_steers_between_arrivals_and_is_switched_live() {
    let mut bed = Bed::new(3, CONTROLLED);
    assert!(bed.pipeline.next_wake().is_some_and(|wake| wake <= bed.now + Nanos::from_millis(50)));
    overload(&mut bed, Nanos::from_secs(8));
    let worst = |control: ClassControl| control.ci_delay.max(control.ci_loss);
    let (bulk, voice) = (seen(&mut bed, "bulk"), seen(&mut bed, "voice"));
    assert!((worst(bulk) - worst(voice)).abs() < 0.2, "{bulk:?} {voice:?}");
    assert!(bulk.x_delay_ns > 0 && voice.x_delay_ns == 0, "{bulk:?} {voice:?}");

    // What it turns others may not turn; what it does not turn they may.
    let error = bed
        .pipeline
        .change(
            bed.now,
            &LinkChange::Setting(settings::Change::of("x_delay", Class(0), Nanos(1))).on("p2"),
        )
        .unwrap_err()
        .to_string();
    assert!(error.contains("set p2 control off"), "{error}");
    bed.pipeline
        .change(bed.now, &LinkChange::Setting(settings::Change::new("rearm_empty", false)).on("p2"))
        .unwrap();

    bed.pipeline.change(bed.now, &LinkChange::Control(false).on("p2")).unwrap();
    assert_eq!(seen(&mut bed, "bulk").x_delay_ns, 0);
    overload(&mut bed, Nanos::from_secs(4));
    let (bulk, voice) = (seen(&mut bed, "bulk"), seen(&mut bed, "voice"));
    assert!(worst(voice) > worst(bulk) + 1.0, "not steered, still measured: {bulk:?} {voice:?}");
    assert_eq!((bulk.x_delay_ns, bulk.limit), (0, Some(50)));

    bed.pipeline
        .change(bed.now, &LinkChange::Setting(settings::Change::new("limit", 40_u32)).on("p2"))
        .unwrap();
    bed.pipeline.change(bed.now, &LinkChange::Control(true).on("p2")).unwrap();
    overload(&mut bed, Nanos::from_secs(8));
    let (bulk, voice) = (seen(&mut bed, "bulk"), seen(&mut bed, "voice"));
    assert!((worst(bulk) - worst(voice)).abs() < 0.2, "{bulk:?} {voice:?}");
    assert!(bulk.limit.unwrap() + voice.limit.unwrap() <= 80, "{bulk:?} {voice:?}");
}

#[test]
fn another_discipline_ends_it_and_lct_brings_it_back() {
    let mut bed = Bed::new(3, CONTROLLED);
    overload(&mut bed, Nanos::from_secs(1));
    let classes = &["bulk", "voice"];
    bed.pipeline
        .change(
            bed.now,
            &LinkChange::Discipline(parse_discipline("kind = \"fifo\"", classes).unwrap()).on("p2"),
        )
        .unwrap();
    overload(&mut bed, Nanos::from_secs(1));
    let snapshot = bed.snapshot();
    assert!(snapshot.link("p2").unwrap().classes.iter().all(|class| class.control.is_none()));
    let error =
        bed.pipeline.change(bed.now, &LinkChange::Control(true).on("p2")).unwrap_err().to_string();
    assert!(error.contains("has no control"), "{error}");
    bed.pipeline
        .change(
            bed.now,
            &LinkChange::Discipline(parse_discipline("kind = \"lct\"", classes).unwrap()).on("p2"),
        )
        .unwrap();
    overload(&mut bed, Nanos::from_secs(4));
    assert!(seen(&mut bed, "bulk").x_delay_ns > 0);
}

#[test]
fn links_without_control_have_none() {
    let mut bed = Bed::new(2, "");
    let error =
        bed.pipeline.change(bed.now, &LinkChange::Control(true).on("p0")).unwrap_err().to_string();
    assert!(error.contains("link p0 has no control"), "{error}");
    assert!(
        bed.snapshot()
            .links
            .iter()
            .all(|link| link.classes.iter().all(|class| class.control.is_none()))
    );
}
