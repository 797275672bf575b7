//! Shares, against the constants of the disciplines' headers: packets come and go in bursts, long
//! enough that who is treated wrongly is behind by more than his bound.

use evenkeel_core::schedule::Discipline;
use evenkeel_core::schedule::buffer::{Buffer, KnownFlows};
use evenkeel_core::schedule::drr::{Drr, DrrConfig};
use evenkeel_core::schedule::lct::{Lct, LctConfig, MultiBacklog};
use evenkeel_core::schedule::pdrr::{Pdrr, PdrrConfig};
use evenkeel_core::schedule::pfq::{Pfq, PfqConfig};
use evenkeel_core::schedule::priority::{Priority, PriorityConfig};
use evenkeel_core::schedule::qfq::{Qfq, QfqConfig};
use evenkeel_core::schedule::wfq_altq::{WfqAltq, WfqAltqConfig};
use evenkeel_core::settings::PerClass;
use evenkeel_core::{Bytes, Nanos, Weight};

use super::contract::{Judged, Step};
use super::judges::{Apart, ByWeight, Equal, FLOWS, Judge, Levels};
use super::{all, is_found};
use crate::common::Subject;

/// IP lengths.
const LONG: u32 = 1000;
const SHORT: u32 = 300;
/// On the wire.
const LONGEST: u64 = LONG as u64 + 38;
const QUANTUM: Bytes = Bytes(1_200);

/// Flows of long packets and one of short ones, one by one and in bursts, and a link that asks.
const BURSTS: [Step; 8] = [
    Step::Arrive(0, LONG, 1),
    Step::Arrive(1, LONG, 1),
    Step::Arrive(2, SHORT, 1),
    Step::Arrive(0, LONG, 24),
    Step::Arrive(1, LONG, 24),
    Step::Arrive(2, SHORT, 24),
    Step::Send(1),
    Step::Send(11),
];

fn pfq() -> PfqConfig {
    let (buffer, flows) = (Buffer::packets(400), KnownFlows::up_to(4));
    PfqConfig { quantum: QUANTUM, buffer, flows, ..PfqConfig::default() }
}

fn pdrr() -> PdrrConfig {
    let (buffer, flows) = (Buffer::packets(400), KnownFlows::up_to(4));
    PdrrConfig { quantum: QUANTUM, buffer, flows, ..PdrrConfig::default() }
}

fn weights(weights: [u32; FLOWS]) -> PerClass<Weight> {
    PerClass::new(weights.map(Weight).to_vec(), Weight(100))
}

fn wfq(of: [u32; FLOWS]) -> WfqAltqConfig {
    let weights: Vec<_> = of.into_iter().map(Weight).collect();
    WfqAltqConfig { limit: PerClass::all(200), ..WfqAltqConfig::with_weights(weights) }
}

fn qfq(of: [u32; FLOWS]) -> QfqConfig {
    QfqConfig { weight: weights(of), limit: 200, classes: FLOWS as u16 }
}

/// It is judged by what it was told.
fn by_weight<C: Discipline>(config: C) -> Judged<C::Queues<crate::common::TestPacket>, ByWeight>
where
    C::Queues<crate::common::TestPacket>: Subject,
{
    let judge = ByWeight::as_promised(&config.promise(), LONGEST);
    Judged::new(config.build().unwrap(), judge)
}

const WEIGHTS: [u32; FLOWS] = [300, 100, 100];
const X: [Nanos; FLOWS] = [Nanos(0), Nanos(1_000), Nanos(2_500)];

fn lct(x: [Nanos; FLOWS], multi_backlog: MultiBacklog) -> LctConfig {
    let limit = PerClass::all(50);
    LctConfig { limit, module2: true, multi_backlog, ..LctConfig::with_delays(x) }
}

/// Time passes, by less than a class must wait and by more.
const WAITS: [Step; 7] = [
    Step::Arrive(0, LONG, 2),
    Step::Arrive(1, LONG, 2),
    Step::Arrive(2, SHORT, 2),
    Step::Send(1),
    Step::Send(3),
    Step::Wait(Nanos(700)),
    Step::Wait(Nanos(1_500)),
];

fn all_have_their_shares(depth: u32) {
    let tell = |name: &str, count: u64| println!("{name}: {count} sequences of {depth}");
    let equal = Equal::as_promised(&pfq().promise(), LONGEST);
    tell("pfq", all(&Judged::new(Pfq::new(pfq()).unwrap(), equal), &BURSTS, depth));
    let equal = Equal::as_promised(&pdrr().promise(), LONGEST);
    tell("pdrr", all(&Judged::new(Pdrr::new(pdrr()).unwrap(), equal), &BURSTS, depth));
    let drr = DrrConfig { quantum: QUANTUM, queues: 64, buffer: 400 };
    // Its header: three of the larger of quantum and longest packet.
    let equal = Equal::within(3 * QUANTUM.0.max(LONGEST));
    tell("drr", all(&Judged::new(Drr::new(drr).unwrap(), equal), &BURSTS, depth));
    tell("wfq-altq", all(&by_weight(wfq(WEIGHTS)), &BURSTS, depth));
    tell("qfq", all(&by_weight(qfq(WEIGHTS)), &BURSTS, depth));
    let levels = [3, 2, 1];
    let priority = PriorityConfig {
        level: PerClass::new(levels.to_vec(), 0),
        limit: 200,
        classes: FLOWS as u16,
    };
    let priority = Priority::new(priority).unwrap();
    tell("priority", all(&Judged::new(priority, Levels(levels)), &BURSTS, depth));
    for multi_backlog in [MultiBacklog::Hold, MultiBacklog::HoldWithModule2] {
        let lct = Lct::new(lct(X, multi_backlog)).unwrap();
        tell("lct", all(&Judged::new(lct, Apart::by(X)), &WAITS, depth));
    }
}

#[test]
fn short_sequences_of_bursts_keep_every_bound() {
    all_have_their_shares(3);
}

#[test]
#[ignore = "minutes, optimised: make prove"]
fn all_sequences_of_six_bursts_keep_every_bound() {
    all_have_their_shares(6);
}

/// Who is judged by what another one was told.
fn told<S: Subject, J: Judge>(scheduler: S, judge: J) -> Judged<S, J> {
    Judged::new(scheduler, judge)
}

#[test]
fn wrong_quanta_weights_levels_and_times_are_found() {
    let large = Bytes(12_000);
    let by = |promise| Equal::as_promised(&promise, LONGEST);
    let wrong = Pfq::new(PfqConfig { quantum: large, ..pfq() }).unwrap();
    is_found("pfq, ten times the quantum", &told(wrong, by(pfq().promise())), &BURSTS, 4);
    let wrong = Pdrr::new(PdrrConfig { quantum: large, ..pdrr() }).unwrap();
    is_found("pdrr, ten times the quantum", &told(wrong, by(pdrr().promise())), &BURSTS, 4);
    let wrong = Drr::new(DrrConfig { quantum: large, queues: 64, buffer: 400 }).unwrap();
    is_found("drr, ten times the quantum", &told(wrong, Equal::within(3_600)), &BURSTS, 4);
    let judge = || ByWeight::as_promised(&wfq(WEIGHTS).promise(), LONGEST);
    let wrong = WfqAltq::new(wfq([100, 300, 100])).unwrap();
    is_found("wfq-altq, weights exchanged", &told(wrong, judge()), &BURSTS, 6);
    let judge = ByWeight::as_promised(&qfq(WEIGHTS).promise(), LONGEST);
    let wrong = Qfq::new(qfq([100, 300, 100])).unwrap();
    is_found("qfq, weights exchanged", &told(wrong, judge), &BURSTS, 6);
    let level = PerClass::new(vec![2, 3, 1], 0);
    let wrong = Priority::new(PriorityConfig { level, limit: 200, classes: 3 }).unwrap();
    is_found("priority, levels exchanged", &told(wrong, Levels([3, 2, 1])), &BURSTS, 3);
    let wrong = Lct::new(lct([X[0], X[1] - Nanos(1), X[2]], MultiBacklog::Hold)).unwrap();
    let sequence = [Step::Arrive(1, LONG, 2), Step::Send(1), Step::Wait(X[1] - Nanos(1))];
    is_found("lct, a nanosecond less", &told(wrong, Apart::by(X)), &sequence, 4);
    // And without module 2 a class alone is not held.
    let config = LctConfig { module2: false, ..lct(X, MultiBacklog::HoldWithModule2) };
    let wrong = Lct::new(config).unwrap();
    is_found("lct, without module 2", &told(wrong, Apart::by(X)), &WAITS, 4);
}
