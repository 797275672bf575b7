//! The audit of a link: quiet where a link delivers what it was told, and told with its cause where
//! it does not.

pub(crate) mod faults;
mod mutants;
mod nodes;
mod random;

use evenkeel_core::audit::{Told, Verdict};
use evenkeel_core::link::{Link, LinkConfig};
use evenkeel_core::schedule::wfq_altq::WfqAltqConfig;
use evenkeel_core::schedule::{AnyScheduler, DisciplineConfig};
use evenkeel_core::settings::PerClass;
use evenkeel_core::{BitRate, Bytes, Class, FlowKey, Nanos, Scheduler, Weight};

use crate::common::{TestPacket, flow};

/// What comes of one class.
#[derive(Clone, Copy, Debug)]
struct Source {
    class: u16,
    flow: u8,
    length: u32,
    every: Nanos,
    /// Packets that come together.
    burst: u64,
    /// It sends and pauses in turns of this; `None`: always.
    pauses: Option<Nanos>,
    /// The flow whose hosts its own are; `None`: it has its own.
    hosts: Option<u8>,
}

impl Source {
    /// `load` of 100 Mbit/s in packets of `length`.
    fn load(class: u16, load: f64, length: u32) -> Self {
        let every = Nanos((f64::from(length + 38) * 80.0 / load) as u64);
        Self { class, flow: class as u8, length, every, burst: 1, pauses: None, hosts: None }
    }
}

const RATE: BitRate = BitRate(100_000_000);
const SECOND: Nanos = Nanos(1_000_000_000);

/// Runs the sources over the link for `time`; `each` is called before each arrival.
fn run<S: Scheduler<TestPacket>>(
    link: &mut Link<TestPacket, S>,
    sources: &[Source],
    from: Nanos,
    time: Nanos,
    mut each: impl FnMut(&mut Link<TestPacket, S>, Nanos),
) -> Verdict {
    let mut next: Vec<Nanos> =
        sources.iter().map(|s| from + Nanos(s.every.0 * u64::from(s.flow % 7) / 7)).collect();
    let mut id = 0;
    loop {
        let at = (0..sources.len()).min_by_key(|at| next[*at]).expect("there are some");
        let (source, now) = (sources[at], next[at]);
        if now >= from + time {
            break;
        }
        next[at] = now + Nanos(source.every.0 * source.burst);
        if source.pauses.is_some_and(|pause| now.0 / pause.0 % 2 == 1) {
            continue;
        }
        each(link, now);
        for _ in 0..source.burst {
            id += 1;
            let mut packet = TestPacket::new(id, source.class, source.length);
            let FlowKey { source: from, destination, .. } =
                flow(source.hosts.unwrap_or(source.flow));
            let flow = FlowKey { source: from, destination, ..flow(source.flow) };
            (packet.arrival, packet.flow) = (now, flow);
            let _ = link.enqueue(now, packet, &mut ());
        }
    }
    link.advance(from + time, &mut ());
    link.verdict().clone()
}

/// A link with this discipline that is told what it is.
fn honest(
    core: LinkConfig,
    discipline: &DisciplineConfig,
    classes: u16,
) -> Link<TestPacket, AnyScheduler<TestPacket>> {
    let scheduler = discipline.build(classes).expect("valid");
    let mut link = Link::new(core, scheduler, classes).expect("valid");
    link.tell(Nanos::ZERO, Told { link: core, promise: discipline.promise(classes) });
    link
}

fn wfq(weights: &[u32], limit: u32) -> DisciplineConfig {
    let weights: Vec<Weight> = weights.iter().map(|w| Weight(*w)).collect();
    let mut config = WfqAltqConfig::with_weights(weights);
    config.limit = PerClass::all(limit);
    DisciplineConfig::WfqAltq(config)
}

/// All built-in ones, three classes.
fn disciplines() -> Vec<DisciplineConfig> {
    use evenkeel_core::schedule::*;
    use hosts::Fair;
    let pfq = |fair| DisciplineConfig::Pfq(pfq::PfqConfig { fair, ..Default::default() });
    let pdrr = |fair| DisciplineConfig::Pdrr(pdrr::PdrrConfig { fair, ..Default::default() });
    let weights = || PerClass::new([Weight(400), Weight(100), Weight(200)], Weight(100));
    vec![
        wfq(&[400, 100, 200], 50),
        DisciplineConfig::Qfq(qfq::QfqConfig { weight: weights(), ..Default::default() }),
        DisciplineConfig::Priority(priority::PriorityConfig {
            level: PerClass::new([1, 0, 2], 0),
            ..Default::default()
        }),
        DisciplineConfig::Fifo(Default::default()),
        DisciplineConfig::Lct(Default::default()),
        DisciplineConfig::Pfq(Default::default()),
        DisciplineConfig::Pdrr(Default::default()),
        DisciplineConfig::Afan(Default::default()),
        DisciplineConfig::Drr(Default::default()),
        DisciplineConfig::Codel(Default::default()),
        DisciplineConfig::FqCodel(Default::default()),
        pfq(Fair::SourceFlow),
        pfq(Fair::HostFlow),
        pdrr(Fair::DestinationFlow),
        pdrr(Fair::HostFlow),
    ]
}

/// The dark corners: load below, at and above what the link has, small and long packets, bursts,
/// pauses, flows that come and go.
fn traffic(load: f64) -> Vec<(&'static str, Vec<Source>)> {
    let third = load / 3.0;
    let plain = |lengths: [u32; 3]| -> Vec<Source> {
        lengths.iter().zip(0..).map(|(l, class)| Source::load(class, third, *l)).collect()
    };
    let with = |mut sources: Vec<Source>, change: &dyn Fn(&mut Source)| {
        sources.iter_mut().for_each(change);
        sources
    };
    let many = (0..60u8).map(|n| {
        let source = Source::load(u16::from(n % 3), load / 60.0, 300 + u32::from(n) * 20);
        Source { flow: n, ..source }
    });
    vec![
        ("equal packets", plain([1000, 1000, 1000])),
        ("small and long ones", plain([40, 1500, 576])),
        ("bursts of 30", with(plain([1500, 200, 900]), &|s| s.burst = 30)),
        (
            "pauses",
            with(plain([700, 1500, 100]), &|s| {
                s.pauses = Some(Nanos::from_millis(3 + 4 * u64::from(s.class)));
            }),
        ),
        ("sixty flows", many.collect()),
    ]
}

#[test]
fn a_link_that_does_what_it_was_told_is_never_accused() {
    for load in [0.5, 0.9, 0.99, 1.0, 1.1, 2.0] {
        for discipline in disciplines() {
            for slots in [1, 2, 32] {
                for (name, sources) in traffic(load) {
                    let mut core = LinkConfig::paced(RATE);
                    core.ring.slots = slots;
                    let mut link = honest(core, &discipline, 3);
                    let seen =
                        run(&mut link, &sources, Nanos::ZERO, Nanos(SECOND.0 / 2), |_, _| {});
                    let what = format!("{} ring {slots} load {load} {name}", discipline.name());
                    assert!(seen.looks > 20, "{what}: {seen:?}");
                    assert_eq!(seen.violations(), 0, "{what}: {seen:?}");
                }
            }
        }
    }
}

#[test]
fn slow_and_fast_links_and_shapers_are_not_accused_either() {
    for (rate, load) in [(1_000_000, 1.2), (10_000_000_000, 1.1)] {
        for discipline in disciplines() {
            let scale = rate as f64 / RATE.0 as f64;
            let mut sources = traffic(load).remove(1).1;
            for source in &mut sources {
                source.every = Nanos((source.every.0 as f64 / scale).max(1.0) as u64);
            }
            let time = if scale > 1.0 { Nanos(SECOND.0 / 50) } else { SECOND * 4 };
            let mut link = honest(LinkConfig::paced(BitRate(rate)), &discipline, 3);
            let seen = run(&mut link, &sources, Nanos::ZERO, time, |_, _| {});
            assert_eq!(seen.violations(), 0, "{} {rate}: {seen:?}", discipline.name());
        }
    }
    let shaper = evenkeel_core::link::ShaperConfig { rate: RATE, burst: Bytes(20_000) };
    let core = LinkConfig { shaper: Some(shaper), ..LinkConfig::paced(RATE * 2) };
    let mut link = honest(core, &wfq(&[100, 100, 100], 50), 3);
    let seen = run(&mut link, &traffic(1.5).remove(2).1, Nanos::ZERO, SECOND, |_, _| {});
    assert_eq!(seen.violations(), 0, "{seen:?}");
}

#[test]
fn a_changed_weight_is_judged_by_the_new_one() {
    let core = LinkConfig::paced(RATE);
    let mut link = honest(core, &wfq(&[100, 100], 50), 2);
    let sources = [Source::load(0, 0.9, 1000), Source::load(1, 0.9, 1000)];
    run(&mut link, &sources, Nanos::ZERO, SECOND, |_, _| {});
    let change = evenkeel_core::settings::Change {
        class: Some(Class(1)),
        ..evenkeel_core::settings::Change::new("weight", 500u64)
    };
    link.set(SECOND, &change, &mut ()).expect("valid");
    // Not told, it is accused; told, it is not.
    let mut told = false;
    for begins in [SECOND, SECOND * 2] {
        if told {
            let promise = wfq(&[100, 500], 50).promise(2);
            link.tell(begins, Told { link: core, promise });
        }
        let before = link.verdict().violations();
        let seen = run(&mut link, &sources, begins, SECOND, |_, _| {});
        assert_eq!(seen.violations() > before, !told, "{seen:?}");
        told = true;
    }
}

#[test]
fn a_pause_of_the_caller_or_a_clock_that_jumps_accuses_nobody() {
    let sources = [Source::load(0, 0.9, 1000), Source::load(1, 0.9, 400)];
    let mut link = honest(LinkConfig::paced(RATE), &wfq(&[100, 300], 50), 2);
    let mut now = Nanos::ZERO;
    for pause in [Nanos(1), Nanos(SECOND.0 / 10), SECOND * 3600, SECOND * 86_400 * 365] {
        run(&mut link, &sources, now, Nanos(SECOND.0 / 10), |_, _| {});
        now = now + Nanos(SECOND.0 / 10) + pause;
        link.advance(now, &mut ());
        // An earlier `now` counts as that of before.
        link.advance(Nanos(now.0 / 2), &mut ());
    }
    let seen = run(&mut link, &sources, now, SECOND, |_, _| {});
    assert_eq!(seen.violations(), 0, "{seen:?}");
}
