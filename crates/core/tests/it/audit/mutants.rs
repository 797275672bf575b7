//! Links that are broken on purpose: each is found within a second of traffic, and told with its
//! cause.

use evenkeel_core::audit::{Breach, Cause, Told, Verdict};
use evenkeel_core::link::{Link, LinkConfig, Refill, RingConfig};
use evenkeel_core::schedule::hosts::Fair;
use evenkeel_core::schedule::{AnyScheduler, DisciplineConfig, pdrr, pfq, priority};
use evenkeel_core::settings::PerClass;
use evenkeel_core::{BitRate, Bytes, Nanos, Scheduler};

use super::faults::{Broken, Fault};
use super::{RATE, SECOND, Source, run, wfq};
use crate::common::TestPacket;

/// A link that is `core` with `scheduler`, and is told `told` with `promised`.
fn link<S: Scheduler<TestPacket>>(
    core: LinkConfig,
    scheduler: S,
    told: LinkConfig,
    promised: &DisciplineConfig,
) -> Link<TestPacket, S> {
    let mut link = Link::new(core, scheduler, 3).expect("valid");
    link.tell(Nanos::ZERO, Told { link: told, promise: promised.promise(3) });
    link
}

fn build(discipline: &DisciplineConfig) -> AnyScheduler<TestPacket> {
    discipline.build(3).expect("valid")
}

/// All three classes send half of what the link has.
fn busy() -> Vec<Source> {
    (0..3).map(|class| Source::load(class, 0.5, 1000)).collect()
}

/// Two seconds of it, with a fault in the discipline.
fn broken(promised: &DisciplineConfig, fault: Fault, sources: &[Source]) -> Verdict {
    let core = LinkConfig::paced(RATE);
    let mut link = link(core, Broken::new(build(promised), fault), core, promised);
    run(&mut link, sources, Nanos::ZERO, SECOND, |_, _| {})
}

#[track_caller]
fn found(seen: &Verdict, breach: Breach, cause: Cause) {
    let last = seen.last.unwrap_or_else(|| panic!("nothing was found: {seen:?}"));
    assert!(seen.breaches[breach.index()] > 0, "{seen:?}");
    assert!(seen.causes[cause.index()] > 0, "{seen:?}");
    assert!(last.lag > last.bound, "{last:?}");
    assert_eq!(seen.violations(), seen.causes.iter().sum::<u64>(), "{seen:?}");
}

#[test]
fn a_weight_that_did_not_reach_the_discipline() {
    let core = LinkConfig::paced(RATE);
    let told = wfq(&[100, 100, 150], 50);
    let mut link = link(core, build(&wfq(&[100, 100, 100], 50)), core, &told);
    let seen = run(&mut link, &busy(), Nanos::ZERO, SECOND, |_, _| {});
    found(&seen, Breach::Share, Cause::Discipline);
    let last = seen.last.expect("found");
    assert_eq!(last.class, Some(2));
    assert!((420_000..437_000).contains(&last.told_ppm), "{last:?}");
    assert!((325_000..340_000).contains(&last.delivered_ppm), "{last:?}");
}

/// A step is as long as three queues here, so all that is behind is what was lost.
#[test]
fn a_weight_where_a_queue_is_shorter_than_a_step() {
    let core = LinkConfig::paced(BitRate(10 * RATE.0));
    for (load, of) in [(10.0, [100, 150, 200]), (4.0, [100, 100, 300])] {
        let mut link = link(core, build(&wfq(&of, 20)), core, &wfq(&[100; 3], 20));
        let sources: Vec<_> = (0..3).map(|class| Source::load(class, load, 1000)).collect();
        let seen = run(&mut link, &sources, Nanos::ZERO, SECOND, |_, _| {});
        found(&seen, Breach::Share, Cause::Discipline);
        assert_ne!(seen.last.expect("found").class, Some(2));
    }
}

#[test]
fn a_class_that_starves() {
    let sources = [0.9, 0.9, 0.2].into_iter().zip(0..);
    let sources: Vec<_> = sources.map(|(load, class)| Source::load(class, load, 1000)).collect();
    let seen = broken(&wfq(&[100, 100, 100], 50), Fault::Starves(2), &sources);
    found(&seen, Breach::Share, Cause::Discipline);
    assert_eq!(seen.last.expect("found").class, Some(2));
}

#[test]
fn one_packet_more_for_a_class_in_each_round() {
    let fault = Fault::Favours { class: 1, every: 4 };
    let seen = broken(&wfq(&[100, 100, 100], 50), fault, &busy());
    found(&seen, Breach::Share, Cause::Discipline);
    assert_ne!(seen.last.expect("found").class, Some(1));
}

#[test]
fn a_discipline_that_sleeps_while_packets_wait() {
    let seen = broken(&wfq(&[100; 3], 50), Fault::Sleeps { every: 500, calls: 60 }, &busy());
    found(&seen, Breach::UnderRate, Cause::Discipline);
}

#[test]
fn a_packet_that_disappears() {
    let seen = broken(&wfq(&[100; 3], 50), Fault::Loses(3_000), &busy());
    found(&seen, Breach::Conservation, Cause::Discipline);
}

#[test]
fn a_lost_credit_long_packets_pay_nothing_back() {
    // Packets of one length by turns: what a quantum of bytes would have evened out is not.
    let core = LinkConfig::paced(RATE);
    let fifo = DisciplineConfig::Fifo(Default::default());
    let mut link = link(core, build(&fifo), core, &wfq(&[100, 100, 100], 50));
    let mut sources = busy();
    // As many packets of each class, of different lengths.
    for source in &mut sources {
        source.length = 400 + 500 * u32::from(source.class);
    }
    let seen = run(&mut link, &sources, Nanos::ZERO, SECOND, |_, _| {});
    found(&seen, Breach::Share, Cause::Discipline);
    assert_ne!(seen.last.expect("found").class, Some(2));
}

#[test]
fn a_cap_off_by_a_packet_per_round_of_a_hundred() {
    let core = LinkConfig::paced(BitRate(RATE.0 / 100 * 101));
    let told = LinkConfig::paced(RATE);
    let fifo = DisciplineConfig::Fifo(Default::default());
    let mut link = link(core, build(&fifo), told, &fifo);
    let seen = run(&mut link, &busy(), Nanos::ZERO, SECOND, |_, _| {});
    found(&seen, Breach::OverRate, Cause::Wire);
}

#[test]
fn a_rate_that_is_not_reached() {
    let core = LinkConfig::paced(BitRate(RATE.0 / 100 * 97));
    let told = LinkConfig::paced(RATE);
    let fifo = DisciplineConfig::Fifo(Default::default());
    let mut link = link(core, build(&fifo), told, &fifo);
    let seen = run(&mut link, &busy(), Nanos::ZERO, SECOND, |_, _| {});
    found(&seen, Breach::UnderRate, Cause::Discipline);
}

#[test]
fn a_worker_that_comes_too_late() {
    let core = LinkConfig::paced(RATE);
    let told = wfq(&[100; 3], 200);
    let mut link = link(core, build(&told), core, &told);
    let mut last = Nanos::ZERO;
    // Each 100 ms it stands still for 20, and does not catch up. What came meanwhile it looks at
    // in the order of its time.
    let mut pauses = 0;
    let seen = run(&mut link, &busy(), Nanos::ZERO, SECOND, |link, now| {
        if now - last > Nanos(SECOND.0 / 10) {
            link.hold(now + Nanos(SECOND.0 / 50));
            (last, pauses) = (now, pauses + 1);
        }
    });
    found(&seen, Breach::UnderRate, Cause::WorkerLate);
    // One for each, and nothing that is put down to anything else.
    assert_eq!(seen.violations(), pauses, "{seen:?}");
    assert_eq!(seen.causes[Cause::WorkerLate.index()], pauses, "{seen:?}");
}

#[test]
fn a_ring_of_128_that_is_refilled_as_a_whole() {
    let ring = RingConfig { slots: 128, refill: Refill::WholeRing };
    let core = LinkConfig { ring, ..LinkConfig::paced(RATE) };
    let wanted = wfq(&[100, 100, 800], 50);
    for told in [core, LinkConfig::paced(RATE)] {
        let mut link = link(core, build(&wanted), told, &wanted);
        let mut sources = busy();
        sources[2] = Source::load(2, 1.0, 1000);
        let seen = run(&mut link, &sources, Nanos::ZERO, SECOND, |_, _| {});
        found(&seen, Breach::Share, Cause::Ring);
        assert_eq!(seen.last.expect("found").class, Some(2));
    }
}

#[test]
fn a_priority_that_is_none() {
    let told = DisciplineConfig::Priority(priority::PriorityConfig {
        level: PerClass::new([0, 1, 2], 0),
        ..Default::default()
    });
    let core = LinkConfig::paced(RATE);
    let mut link = link(core, build(&DisciplineConfig::Fifo(Default::default())), core, &told);
    let seen = run(&mut link, &busy(), Nanos::ZERO, SECOND, |_, _| {});
    found(&seen, Breach::Order, Cause::Discipline);
    // Of the two that go before it, one as much as the other.
    assert_ne!(seen.last.expect("found").class, Some(0));
}

#[test]
fn a_flow_that_is_favoured() {
    let sources: Vec<_> = (0..12u8)
        .map(|n| Source { flow: n, ..Source::load(0, 0.4, 700 + 60 * u32::from(n)) })
        .collect();
    for promised in [
        DisciplineConfig::Pdrr(pdrr::PdrrConfig::default()),
        DisciplineConfig::Pfq(pfq::PfqConfig::default()),
    ] {
        let seen = broken(&promised, Fault::FavoursFlow { port: 5003, every: 6 }, &sources);
        found(&seen, Breach::Flows, Cause::Discipline);
        assert!(seen.compared >= 4, "{seen:?}");
    }
}

/// Where hosts share, flows between the same two are compared: twelve of two hosts, beside one of
/// two others that has as much as all of them.
#[test]
fn a_flow_that_is_favoured_among_those_of_its_host() {
    let many = (0..12u8).map(|n| {
        let load = Source::load(0, 0.4, 700 + 60 * u32::from(n));
        Source { flow: n, hosts: Some(0), ..load }
    });
    let sources: Vec<_> =
        many.chain([Source { flow: 20, ..Source::load(0, 0.9, 1_200) }]).collect();
    for fair in [Fair::SourceFlow, Fair::DestinationFlow] {
        let promised =
            DisciplineConfig::Pdrr(pdrr::PdrrConfig { fair, ..pdrr::PdrrConfig::default() });
        let seen = broken(&promised, Fault::FavoursFlow { port: 5003, every: 6 }, &sources);
        found(&seen, Breach::Flows, Cause::Discipline);
        assert!(seen.compared >= 4, "{seen:?}");
        let mut link = super::honest(LinkConfig::paced(RATE), &promised, 3);
        let seen = run(&mut link, &sources, Nanos::ZERO, SECOND, |_, _| {});
        assert_eq!(seen.violations(), 0, "{seen:?}");
        assert!(seen.compared >= 4 && seen.flows.bound > Bytes::ZERO, "{seen:?}");
    }
}

/// A call of 2 Mbit/s among downloads, which waits for them.
#[test]
fn a_call_that_is_set_back() {
    let call = Source { flow: 40, ..Source::load(0, 0.02, 200) };
    let bulk = (0..12u8).map(|n| Source { flow: n, ..Source::load(0, 0.2, 1200) });
    let sources: Vec<_> = bulk.chain([call]).collect();
    for promised in [
        DisciplineConfig::Pdrr(pdrr::PdrrConfig::default()),
        DisciplineConfig::Pfq(pfq::PfqConfig::default()),
    ] {
        let seen = broken(&promised, Fault::SetsBack { port: 5040 }, &sources);
        found(&seen, Breach::Order, Cause::Discipline);
        // Without the fault it is looked at, and goes first.
        let mut link = super::honest(LinkConfig::paced(RATE), &promised, 3);
        let seen = run(&mut link, &sources, Nanos::ZERO, SECOND, |_, _| {});
        assert_eq!(seen.violations(), 0, "{seen:?}");
        assert!(seen.priority.bound > Bytes::ZERO, "{seen:?}");
        assert!(seen.priority.worst < Bytes(10_000), "{seen:?}");
    }
}

#[test]
fn more_flows_than_the_table_holds() {
    let flows = evenkeel_core::schedule::buffer::KnownFlows::up_to(8);
    let config = pfq::PfqConfig { flows, ..pfq::PfqConfig::default() };
    let promised = DisciplineConfig::Pfq(config);
    let sources: Vec<_> =
        (0..24u8).map(|n| Source { flow: n, ..Source::load(0, 0.06, 1000) }).collect();
    let core = LinkConfig::paced(RATE);
    let mut link = link(core, build(&promised), core, &promised);
    let seen = run(&mut link, &sources, Nanos::ZERO, SECOND, |_, _| {});
    found(&seen, Breach::Flows, Cause::TableFull);
}
