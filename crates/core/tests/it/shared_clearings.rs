//! The flushing family on a link that several workers share: a clearing is one event of the link,
//! each worker follows it with its own part of the list, and what was removed is blocked or awaited
//! until the same instant.

use std::sync::Arc;

use evenkeel_core::admit::{Admission, AdmissionConfig, Flush, FlushConfig, Removal, Verdict};
use evenkeel_core::schedule::DisciplineConfig;
use evenkeel_core::schedule::pdrr::PdrrConfig;
use evenkeel_core::share::SharedLink;
use evenkeel_core::{BitRate, Nanos, Ppm, Reason};
use proptest::prelude::*;

use crate::admit::{C, Fluid, config, flow, ms};
use crate::workers::{PATIENCE, Router, Sends};

const LOW: Verdict = Verdict::Refuse(Reason::FairRateLow);
const BLOCKED: Verdict = Verdict::Refuse(Reason::FlowBlocked);
const OTHERS: Verdict = Verdict::Refuse(Reason::PriorityAccess);

/// What holds a clearing up: the least time between two.
const T_CLEAR: Nanos = Nanos::from_secs(5);

fn clearing(kind: Flush) -> AdmissionConfig {
    let mut config = config();
    config.flushing =
        FlushConfig { interval: T_CLEAR, others_chance: Ppm::ZERO, ..FlushConfig::new(kind) };
    config.eccm.on = false;
    config.budget.on = false;
    config
}

fn link(workers: usize) -> Arc<SharedLink> {
    Arc::new(SharedLink::new(workers, 1, PATIENCE))
}

/// Flow `n` of a worker.
fn of(worker: usize, n: u16) -> evenkeel_core::FlowKey {
    flow(worker as u16 + 1, n)
}

/// Workers of a closed link at 5.103 s, each with ten streams, and as many elastic flows as it is
/// told: these have numbers from 10 on.
fn closed(kind: Flush, elastic: &[u16]) -> (Arc<SharedLink>, Vec<Fluid>) {
    let link = link(elastic.len());
    let mut workers: Vec<Fluid> =
        (0..elastic.len()).map(|at| Fluid::of_link(clearing(kind), &link, at)).collect();
    for (at, (worker, elastic)) in workers.iter_mut().zip(elastic).enumerate() {
        worker.fair = BitRate(250_000);
        for n in 0..10 + elastic {
            assert_eq!(worker.packet(of(at, n), n >= 10), Verdict::Pass);
        }
    }
    go_on_until(&mut workers, ms(5_103));
    (link, workers)
}

/// All that is listed goes on sending until `to`: each 400 ms, and then.
fn go_on_until(workers: &mut [Fluid], to: Nanos) {
    let mut now = workers[0].now;
    while now < to {
        now = (now + ms(400)).min(to);
        go_on(workers, now);
    }
}

/// All that is listed sends at `now`.
fn go_on(workers: &mut [Fluid], now: Nanos) {
    for (at, worker) in workers.iter_mut().enumerate() {
        worker.until(now);
        for n in listed(worker, at) {
            let _ = worker.packet(of(at, n), n >= 10);
        }
    }
}

fn until(workers: &mut [Fluid], now: Nanos) {
    workers.iter_mut().for_each(|worker| worker.until(now));
}

fn listed(worker: &Fluid, at: usize) -> Vec<u16> {
    (0..40).filter(|n| worker.protects(of(at, *n))).collect()
}

/// How many elastic flows each worker protects.
fn elastic(workers: &[Fluid]) -> Vec<u32> {
    workers.iter().map(|worker| worker.admission.view().elastic).collect()
}

fn clearings(workers: &[Fluid]) -> u64 {
    workers.iter().map(|worker| worker.admission.view().clearings).sum()
}

const SHARED: [Flush; 6] =
    [Flush::All, Flush::Efm, Flush::Efmp, Flush::Raef, Flush::Rbaef, Flush::Rpaef];

#[test]
fn a_clearing_is_one_event_and_reaches_workers_without_new_flows() {
    for kind in SHARED {
        for count in [2, 4] {
            let (_link, mut workers) = closed(kind, &vec![10; count]);
            assert_eq!(workers[0].packet(of(0, 30), false), Verdict::Pass, "{kind:?}");
            assert_eq!(elastic(&workers)[1..], vec![10; count - 1], "nobody has come yet");
            // The next estimate of the load is at 5.15 s.
            until(&mut workers, ms(5_150));
            assert_eq!(elastic(&workers), vec![0; count], "{kind:?}");
            assert_eq!(clearings(&workers), 1, "{kind:?}");
            for worker in &workers {
                let view = worker.admission.view();
                let gone = if kind == Flush::All { 20 } else { 10 };
                assert_eq!(view.removed[Removal::Flushed as usize], gone, "{kind:?}");
                assert!(view.congested.is_none(), "{kind:?}: open");
            }
            // Awaited flows go first; others enter until the next estimate, at 5.5 s.
            if !matches!(kind, Flush::Efmp | Flush::Rpaef) {
                assert_eq!(workers[1].packet(of(1, 31), false), Verdict::Pass, "{kind:?}");
            }
            until(&mut workers, ms(5_500));
            for (at, worker) in workers.iter_mut().enumerate() {
                assert_eq!(worker.packet(of(at, 32), false), LOW, "{kind:?}");
            }
            // An elastic flow that was let in when the list was cleared.
            assert_eq!(workers[0].packet(of(0, 30), true), Verdict::Pass);
            // T_clear is the link's.
            go_on(&mut workers, ms(7_000));
            for now in (7_400..10_103).step_by(400).map(ms).chain([ms(10_102)]) {
                go_on(&mut workers, now);
                for (at, worker) in workers.iter_mut().enumerate() {
                    assert_eq!(worker.packet(of(at, 32), false), LOW, "{kind:?} {now}");
                }
            }
            until(&mut workers, ms(10_149));
            let verdicts: Vec<_> =
                (0..count).map(|at| workers[at].packet(of(at, 32), false)).collect();
            assert_eq!(verdicts[0], Verdict::Pass, "{kind:?}: T_clear is over");
            assert_eq!(clearings(&workers), 2, "{kind:?}: by one of them");
        }
    }
}

#[test]
fn a_new_flow_of_another_worker_follows_at_once() {
    for first in [0, 1] {
        let other = 1 - first;
        let (_link, mut workers) = closed(Flush::Efm, &[10, 10]);
        assert_eq!(workers[first].packet(of(first, 30), false), Verdict::Pass);
        assert_eq!(workers[other].packet(of(other, 30), false), Verdict::Pass);
        assert_eq!(elastic(&workers), [0, 0]);
        assert_eq!(clearings(&workers), 1);
    }
}

#[test]
fn who_asks_may_have_nothing_to_clear_itself() {
    let (_link, mut workers) = closed(Flush::Efm, &[0, 10]);
    let opens = |worker: &Fluid| worker.admission.view().congested.is_none();
    // Whether the others have something is not known yet.
    assert_eq!(workers[0].packet(of(0, 30), false), LOW);
    workers[1].until(ms(5_150));
    assert_eq!((elastic(&workers), clearings(&workers)), (vec![0, 0], 1));
    assert!(opens(&workers[1]));
    assert_eq!(workers[0].packet(of(0, 30), false), Verdict::Pass, "they had");
    until(&mut workers, ms(5_500));
    assert_eq!(workers[0].packet(of(0, 31), false), LOW);
    // The other way round: it hears of it, has nothing, and is open all the same.
    let (_link, mut workers) = closed(Flush::Efm, &[0, 10]);
    assert_eq!(workers[1].packet(of(1, 30), false), Verdict::Pass);
    workers[0].until(ms(5_150));
    assert!(opens(&workers[0]));
    // Nobody has anything: nothing opens, and the next try comes after T_clear.
    let (_link, mut workers) = closed(Flush::Efm, &[0, 0]);
    assert_eq!(workers[0].packet(of(0, 30), false), LOW);
    until(&mut workers, ms(5_150));
    assert!(!workers.iter().any(opens));
    assert_eq!(workers[1].packet(of(1, 3), true), Verdict::Pass, "it turns elastic");
    assert_eq!(workers[1].packet(of(1, 30), false), LOW);
    go_on_until(&mut workers, ms(10_104));
    assert_eq!(workers[1].packet(of(1, 3), true), Verdict::Pass);
    assert_eq!(workers[0].packet(of(0, 30), false), LOW);
    workers[1].until(ms(10_150));
    assert_eq!(workers[0].packet(of(0, 30), false), Verdict::Pass);
    assert_eq!(clearings(&workers), 1);
}

#[test]
fn flows_of_all_workers_are_blocked_until_the_same_instant() {
    let (_link, mut workers) = closed(Flush::Rbaef, &[10, 10]);
    assert_eq!(workers[0].packet(of(0, 30), false), Verdict::Pass);
    workers.iter_mut().for_each(|worker| worker.fair = C);
    until(&mut workers, ms(5_602));
    for at in [0, 1] {
        assert_eq!(workers[at].packet(of(at, 15), true), BLOCKED, "although the link is open");
        let view = workers[at].admission.explain(ms(5_602), &of(at, 15), 0);
        assert_eq!(view.blocked_until, Some(ms(5_603)), "since the clearing, not since it heard");
        workers[at].until(ms(5_603));
        assert_eq!(workers[at].packet(of(at, 15), true), Verdict::Pass);
    }
}

#[test]
fn flows_that_any_worker_awaits_go_before_others_of_all() {
    for count in [2, 4] {
        let mut elastic = vec![0; count];
        elastic[1] = 10;
        let (_link, mut workers) = closed(Flush::Efmp, &elastic);
        assert_eq!(workers[1].packet(of(1, 30), false), Verdict::Pass);
        workers.iter_mut().for_each(|worker| worker.fair = C);
        until(&mut workers, ms(5_150));
        for n in 10..20 {
            for (at, worker) in workers.iter_mut().enumerate() {
                assert_eq!(worker.packet(of(at, 31), false), OTHERS, "{n} is awaited");
            }
            assert_eq!(workers[1].packet(of(1, n), true), Verdict::Pass);
        }
        for (at, worker) in workers.iter_mut().enumerate() {
            assert_eq!(worker.packet(of(at, 31), false), Verdict::Pass, "all are back");
        }
        // Who does not come back is not waited for for ever.
        let (_link, mut workers) = closed(Flush::Efmp, &elastic);
        assert_eq!(workers[1].packet(of(1, 30), false), Verdict::Pass);
        workers.iter_mut().for_each(|worker| worker.fair = C);
        until(&mut workers, ms(6_102));
        assert_eq!(workers[0].packet(of(0, 31), false), OTHERS);
        until(&mut workers, ms(6_103));
        assert_eq!(workers[0].packet(of(0, 31), false), Verdict::Pass);
    }
}

#[test]
fn who_is_built_anew_does_not_repeat_a_clearing_and_keeps_t_clear() {
    let (link, mut workers) = closed(Flush::Efm, &[10, 10]);
    assert_eq!(workers[0].packet(of(0, 30), true), Verdict::Pass);
    until(&mut workers, ms(5_200));
    workers[1].rebuild(&link, 1);
    for n in 10..20 {
        assert_eq!(workers[1].packet(of(1, n), true), Verdict::Pass);
    }
    go_on_until(&mut workers, ms(6_500));
    assert_eq!(elastic(&workers), [1, 10]);
    assert_eq!(workers[1].packet(of(1, 31), false), LOW, "T_clear is not over");
    // Workers take the place of others: the link is another one.
    let next = Arc::new(SharedLink::new(3, 1, PATIENCE));
    for (at, worker) in workers.iter_mut().enumerate() {
        worker.admission.share(Some((Arc::clone(&next), at)));
    }
    let mut last = Fluid::new(clearing(Flush::Efm));
    last.fair = BitRate(250_000);
    last.until(ms(6_500));
    last.rebuild(&next, 2);
    for n in 10..20 {
        assert_eq!(last.packet(of(2, n), true), Verdict::Pass);
    }
    workers.push(last);
    go_on_until(&mut workers, ms(7_000));
    for now in (7_400..10_103).step_by(400).map(ms).chain([ms(10_102)]) {
        go_on(&mut workers, now);
        assert_eq!(workers[2].packet(of(2, 31), false), LOW, "{now}: T_clear is not over");
    }
    assert_eq!(elastic(&workers), [1, 10, 10]);
    until(&mut workers, ms(10_103));
    assert_eq!(workers[2].packet(of(2, 31), false), Verdict::Pass);
    until(&mut workers, ms(10_150));
    assert_eq!((elastic(&workers), clearings(&workers)), (vec![0, 0, 0], 2));
}

#[test]
fn who_stands_still_follows_the_last_clearing_once() {
    let (_link, mut workers) = closed(Flush::Rbaef, &[10, 10]);
    assert_eq!(workers[0].packet(of(0, 30), true), Verdict::Pass);
    // The second worker does not come; meanwhile there is another clearing.
    go_on_until(&mut workers[..1], ms(10_150));
    assert_eq!(workers[0].packet(of(0, 31), false), Verdict::Pass);
    go_on_until(&mut workers[..1], ms(12_500));
    assert_eq!((elastic(&workers), clearings(&workers)), (vec![1, 10], 2));
    workers[1].until(ms(12_500));
    assert_eq!((elastic(&workers), clearings(&workers)), (vec![1, 0], 2));
    assert_eq!(workers[1].packet(of(1, 31), false), LOW, "it has estimated since");
    workers[1].fair = C;
    workers[1].until(ms(13_100));
    for n in 10..20 {
        let verdict = workers[1].packet(of(1, n), true);
        assert_eq!(verdict, Verdict::Pass, "blocked until half a second after the clearing");
    }
    workers[1].until(ms(13_500));
    assert_eq!(elastic(&workers), [1, 10], "it does not follow a second time");
}

#[test]
fn switched_off_and_on_again_an_old_clearing_is_not_repeated() {
    let (_link, mut workers) = closed(Flush::Efm, &[10, 10]);
    assert_eq!(workers[0].packet(of(0, 30), true), Verdict::Pass);
    let set = |workers: &mut [Fluid], kind: Flush| {
        for worker in workers {
            let mut config = worker.admission.config().clone();
            config.flushing.kind = kind;
            worker.admission.set(worker.now, config).unwrap();
        }
    };
    // Off before the second has followed.
    set(&mut workers, Flush::Off);
    go_on_until(&mut workers, ms(5_600));
    assert_eq!(elastic(&workers), [1, 10]);
    assert_eq!(workers[1].packet(of(1, 31), false), LOW);
    set(&mut workers, Flush::Raef);
    go_on_until(&mut workers, ms(6_000));
    assert_eq!(elastic(&workers), [1, 10], "that clearing was before");
    assert_eq!(workers[1].packet(of(1, 31), false), LOW, "T_clear counts from it");
    go_on_until(&mut workers, ms(10_103));
    assert_eq!(workers[1].packet(of(1, 31), false), Verdict::Pass);
    until(&mut workers, ms(10_150));
    // The one that was let in at 5.103 s has been listed for five seconds, told in steps of 17 ms.
    assert_eq!(elastic(&workers)[1], 0);
    assert_eq!(clearings(&workers), 2);
}

#[test]
fn a_tick_that_is_late_does_not_follow_what_came_after_it() {
    let (_link, mut workers) = closed(Flush::Efm, &[10, 10]);
    until(&mut workers[..1], ms(5_520));
    assert_eq!(workers[0].packet(of(0, 30), false), Verdict::Pass);
    // The second one does at 5.52 s what was due at 5.5 s, the estimate of the fair rate included:
    // that one was before the clearing, and does not end what that opens.
    workers[1].until(ms(5_521));
    assert_eq!(workers[1].packet(of(1, 30), false), Verdict::Pass);
    assert_eq!(elastic(&workers), [0, 0]);
}

/// In virtual time, in front of a link: more greedy flows come than it has room for. How many
/// clearings there were in 20 s, how many flows are in at the end, and when a stream got in that
/// came at 9 s.
fn load(workers: usize, kind: Flush, spread: &[usize]) -> (u64, u32, f64) {
    let rate = BitRate::from_mbps(20);
    let mut config =
        AdmissionConfig { flows: 1_000, history: 512, ..AdmissionConfig::published(rate) };
    config.eccm.on = false;
    config.flushing = FlushConfig {
        interval: Nanos::from_secs(2),
        active_time: Nanos::from_millis(100),
        ..FlushConfig::new(kind)
    };
    let discipline = DisciplineConfig::Pdrr(PdrrConfig::default());
    let mut router = Router::new(workers, discipline, rate, Some(&config));
    for n in 0..120u64 {
        let worker = spread[n as usize % spread.len()];
        router.add(worker, 1_000, Sends::Greedy(8), Nanos::from_millis(157 * n));
    }
    let every = Sends::Every(Nanos::from_millis(10));
    let stream = router.add(1, 160, every, Nanos::from_millis(9_050));
    router.run(Nanos::from_secs(20));
    let views = || router.workers.iter().filter_map(|worker| worker.admission.as_ref());
    let clearings = views().map(|admission| Admission::view(admission).clearings).sum();
    let source = &router.sources[stream];
    let waited = source
        .first_passed
        .map_or(f64::MAX, |passed| (passed - source.first_offered.unwrap()).0 as f64 / 1e9);
    (clearings, router.protected(), waited)
}

#[test]
fn a_link_is_cleared_as_often_as_with_one_worker() {
    for kind in [Flush::All, Flush::Efm, Flush::Rbaef, Flush::Rpaef] {
        let one = load(1, kind, &[0]);
        assert!((5..=9).contains(&one.0) && one.2 < 2.1, "{kind:?} {one:?}");
        let uneven = [0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3];
        for (workers, spread) in [(2, &uneven[..]), (4, &[0, 1, 2, 3]), (2, &[0])] {
            let several = load(workers, kind, spread);
            let name = format!("{kind:?} {workers} {spread:?}: {several:?}, one {one:?}");
            println!("{name}");
            assert!(several.0.abs_diff(one.0) <= 1, "{name}");
            assert!(several.2 <= 2.1, "{name}");
        }
    }
}

/// What happens: after so many milliseconds a packet of a flow, as the scheduler treats it.
type Step = (u64, u16, bool);

/// When there were clearings; so many workers meet the flows by turns.
fn steps(count: usize, kind: Flush, steps: &[Step]) -> Vec<Nanos> {
    let link = link(count);
    let mut workers: Vec<Fluid> =
        (0..count).map(|at| Fluid::of_link(clearing(kind), &link, at)).collect();
    workers.iter_mut().for_each(|worker| worker.fair = BitRate(250_000));
    let (mut now, mut instants) = (Nanos::ZERO, Vec::new());
    for (wait, n, is_elastic) in steps {
        now += ms(*wait);
        until(&mut workers, now);
        let _ = workers[usize::from(*n) % count].packet(of(0, *n), *is_elastic);
        if clearings(&workers) > instants.len() as u64 {
            instants.push(now);
            // Everybody has followed by the next estimate of the load.
            now += ms(50);
            until(&mut workers, now);
            let left: u32 = elastic(&workers).iter().sum();
            assert!(left <= 1, "{left} are left: at most who was let in then");
        }
    }
    assert_eq!(clearings(&workers), instants.len() as u64);
    instants
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Over all workers clearings are T_clear apart. What another worker finds than the one that
    /// asked for it is counted when it comes.
    #[test]
    fn clearings_of_several_workers_are_apart(
        script in proptest::collection::vec((0_u64..600, 0_u16..24, any::<bool>()), 60..200),
        kind in proptest::sample::select(vec![Flush::Efm, Flush::Efmp]),
        count in 2_usize..5,
    ) {
        let instants = steps(count, kind, &script);
        for pair in instants.windows(2) {
            prop_assert!(pair[1] - pair[0] >= T_CLEAR - ms(600), "{:?}", instants);
        }
    }

    /// A clearing takes the flows off the lists of several workers that it takes off that of one,
    /// and opens all if it opens that: whatever flows there are, wherever they are, and whoever
    /// meets congestion.
    #[test]
    fn a_clearing_of_several_workers_is_that_of_one(
        flows in proptest::collection::vec((0_u64..16, any::<bool>(), any::<bool>()), 0..30),
        kind in proptest::sample::select(SHARED.to_vec()),
        asks in 0_usize..4,
        count in 2_usize..5,
    ) {
        let link = link(count);
        let mut workers: Vec<Fluid> =
            (0..count).map(|at| Fluid::of_link(clearing(kind), &link, at)).collect();
        workers.push(Fluid::new(clearing(kind)));
        // Flows are listed in the first 1.5 s, or from 3 s on, and go on; those older than 5 s
        // count as active.
        let begins = |(tenth, is_young, _): &(u64, bool, bool)| {
            ms(tenth * 100 + if *is_young { 3_000 } else { 0 })
        };
        let meets = |n: usize| [n * 7 % count, count];
        for now in (0..=7_200).step_by(100).map(ms) {
            until(&mut workers, now);
            for (n, flow) in flows.iter().enumerate().filter(|(_, flow)| begins(flow) <= now) {
                for at in meets(n) {
                    let _ = workers[at].packet(of(0, n as u16), flow.2);
                }
            }
            if now == ms(5_000) {
                workers.iter_mut().for_each(|worker| worker.fair = BitRate(250_000));
            }
        }
        until(&mut workers, ms(7_203));
        let alone = workers[count].packet(of(0, 100), false);
        let together = workers[asks % count].packet(of(0, 100), false);
        prop_assert!(together == alone || together == LOW, "{:?} {:?}", together, alone);
        until(&mut workers, ms(7_253));
        for n in 0..flows.len() {
            let [some, one] = meets(n).map(|at| workers[at].protects(of(0, n as u16)));
            prop_assert_eq!(some, one, "flow {}", n);
        }
        prop_assert_eq!(clearings(&workers[..count]), clearings(&workers[count..]));
        // An estimate of the load later who had nothing itself knows what the others had.
        until(&mut workers, ms(7_303));
        let opens = |worker: &Fluid| worker.admission.view().forced_until.is_some();
        for (at, worker) in workers[..count].iter().enumerate() {
            prop_assert_eq!(opens(worker), opens(&workers[count]), "worker {}", at);
        }
    }
}
