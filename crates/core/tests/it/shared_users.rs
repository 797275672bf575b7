//! PUF on a link that several workers share: N is a user's at all of them together, and an interval
//! is the link's.

use std::collections::BTreeMap;
use std::hint::spin_loop;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use evenkeel_core::admit::{AdmissionConfig, EccmConfig, Owner, PerUserConfig, UserBy, Verdict};
use evenkeel_core::share::{SharedLink, Users};
use evenkeel_core::{BitRate, Nanos, Reason};
use proptest::prelude::*;

use crate::admit::{C, Fluid, config, flow, ms};
use crate::workers::PATIENCE;

const QUOTA: Verdict = Verdict::Refuse(Reason::UserQuota);
/// The fair rate is estimated each half second.
const T: Nanos = ms(500);

fn quota(flows: u32) -> AdmissionConfig {
    let mut config = config();
    config.eccm.on = false;
    config.budget.on = false;
    config.fair_rate_interval = T;
    config.per_user = PerUserConfig { on: true, flows, users: 1_000, ..PerUserConfig::default() };
    config
}

/// Workers of a link, from the start.
fn workers(config: &AdmissionConfig, count: usize) -> (Arc<SharedLink>, Arc<Users>, Vec<Fluid>) {
    let link = Arc::new(SharedLink::new(count, 1, PATIENCE));
    let users = Arc::new(Users::new(config.per_user.users, 5));
    let worker = |at| {
        let mut worker = Fluid::of_link(config.clone(), &link, at);
        worker.admission.share_users(Some(Arc::clone(&users)));
        worker
    };
    let all = (0..count).map(worker).collect();
    (link, users, all)
}

fn until(workers: &mut [Fluid], now: Nanos) {
    workers.iter_mut().for_each(|worker| worker.until(now));
}

/// How many of so many new flows of a user a worker admits; the others are refused for its quota.
fn start(worker: &mut Fluid, user: u16, flows: std::ops::Range<u16>) -> u32 {
    let verdicts = flows.map(|n| worker.packet(flow(user, n), false));
    verdicts.fold(0, |admitted, verdict| {
        assert!(matches!(verdict, Verdict::Pass | QUOTA), "{verdict:?}");
        admitted + u32::from(verdict == Verdict::Pass)
    })
}

/// What all workers tell of a user.
fn told(workers: &[Fluid], user: u16) -> u32 {
    let [high, low] = user.to_be_bytes();
    let owner = Owner::Address([10, 0, high, low].into());
    let views = workers.iter().flat_map(|worker| worker.admission.view().users);
    views.filter(|told| told.user == owner).map(|told| told.flows).sum()
}

#[test]
fn a_user_has_n_flows_at_all_workers_together_however_they_fall() {
    for spread in [&[1, 1][..], &[9, 0], &[0, 9], &[1, 2, 6], &[7, 1, 1, 30]] {
        let count = spread.len();
        let (_link, _users, mut workers) = workers(&quota(7), count);
        for interval in 0..5_u16 {
            until(&mut workers, ms(u64::from(interval) * 500));
            let mut admitted = [0; 4];
            for turn in 0..8 {
                for (at, worker) in workers.iter_mut().enumerate() {
                    let from = interval * 1_000 + at as u16 * 250 + turn * spread[at];
                    for user in 0..4 {
                        let flows = from..from + spread[at];
                        admitted[usize::from(user)] += start(worker, user, flows);
                    }
                }
            }
            assert_eq!(admitted, [7; 4], "{spread:?}, interval {interval}");
            assert!((0..4).all(|user| told(&workers, user) == 7), "each tells its own");
        }
    }
}

#[test]
fn an_interval_is_the_links_and_goes_on_when_a_worker_stands_still() {
    let (link, users, mut workers) = workers(&quota(2), 3);
    // The others were built later: their estimates are 123 and 300 ms after those of the first.
    for (at, later) in [(1, 123), (2, 300)] {
        workers[at].until(ms(later));
        workers[at].rebuild(&link, at);
        workers[at].admission.share_users(Some(Arc::clone(&users)));
    }
    until(&mut workers, ms(499));
    assert_eq!(start(&mut workers[1], 1, 0..5), 2);
    assert_eq!(start(&mut workers[0], 1, 0..5), 0);
    // At 500 ms the first begins the next one for all.
    until(&mut workers, ms(500));
    assert!((0..3).all(|at| workers[at].admission.view().users.is_empty()));
    assert_eq!(start(&mut workers[2], 1, 0..1), 1);
    // At 623 and 800 ms nobody does.
    until(&mut workers, ms(999));
    assert_eq!((start(&mut workers[1], 1, 10..15), start(&mut workers[2], 1, 10..15)), (1, 0));
    assert_eq!(workers.iter().map(|worker| worker.admission.view().users.len()).sum::<usize>(), 2);
    // The first comes no more: what it would have begun the second does, 123 ms later.
    until(&mut workers[1..], ms(1_122));
    assert_eq!(start(&mut workers[1], 1, 20..25) + start(&mut workers[2], 1, 20..25), 0);
    for n in 2..12 {
        let now = ms(n * 500 + 123);
        until(&mut workers[1..], now);
        let from = 100 * n as u16;
        assert_eq!(start(&mut workers[2], 1, from..from + 5), 2, "{now}");
        until(&mut workers[1..], now + ms(499));
        assert_eq!(start(&mut workers[1], 1, from..from + 5), 0, "{now}");
    }
    // It comes back, late by ten intervals, in the middle of one: that one goes on.
    until(&mut workers, ms(6_122));
    assert_eq!(start(&mut workers[0], 1, 30..35), 2, "from 6 s on, by the first again");
    until(&mut workers, ms(6_499));
    assert_eq!((0..3).map(|at| start(&mut workers[at], 1, 40..45)).sum::<u32>(), 0);
}

#[test]
fn more_users_than_there_is_room_for_get_no_more_than_n() {
    let mut config = quota(2);
    config.per_user.users = 3;
    let (_link, _users, mut workers) = workers(&config, 2);
    for interval in 0..3_u16 {
        until(&mut workers, ms(u64::from(interval) * 500));
        let mut admitted = BTreeMap::<u16, u32>::new();
        for n in 0..4 {
            for user in 0..60 {
                let worker = &mut workers[usize::from((user + n) % 2)];
                let flow = interval * 10 + n;
                *admitted.entry(user).or_default() += start(worker, user, flow..flow + 1);
            }
        }
        assert!(admitted.values().all(|flows| *flows <= 2), "{admitted:?}");
        let whole = admitted.values().filter(|flows| **flows == 2).count();
        assert!(whole >= 50, "eight have places, the others 1 024 counters: {whole}");
    }
}

/// Workers that really run at once each meet a new flow of one user after the other, all at the
/// same time: of each user the flows that are left are admitted, and whoever finds the last one
/// gone refuses for that.
#[test]
fn workers_that_run_at_once_admit_n() {
    let mut config = quota(1);
    config.fair_rate_interval = Nanos::from_secs(60);
    (config.flows, config.per_user.users) = (50_000, 50_000);
    let (_link, _users, workers) = workers(&config, 2);
    let (arrived, count) = (Arc::new(AtomicUsize::new(0)), workers.len());
    let run = |mut worker: Fluid| {
        let arrived = Arc::clone(&arrived);
        thread::spawn(move || {
            let meets = |user: u16| {
                arrived.fetch_add(1, Ordering::Relaxed);
                let all = (usize::from(user) + 1) * count;
                for tries in 0.. {
                    if arrived.load(Ordering::Relaxed) >= all {
                        break;
                    }
                    // Both have a CPU, or the other one must be let go.
                    if tries > 1_000 { thread::yield_now() } else { spin_loop() }
                }
                start(&mut worker, user, 0..1)
            };
            (0..20_000).map(meets).collect()
        })
    };
    let runs: Vec<_> = workers.into_iter().map(run).collect();
    let admitted: Vec<Vec<u32>> = runs.into_iter().map(|run| run.join().unwrap()).collect();
    assert!(admitted[0].iter().zip(&admitted[1]).all(|(one, other)| one + other == 1));
}

#[test]
fn who_has_started_n_flows_is_refused_for_that_before_the_budget_is_asked() {
    let mut config = quota(2);
    config.budget.on = true;
    let (_link, _users, mut workers) = workers(&config, 2);
    assert_eq!(start(&mut workers[0], 1, 0..2), 2);
    let mut low = 0;
    for user in 2..3_000 {
        let verdict = workers[usize::from(user % 2)].packet(flow(user, 0), false);
        low += u32::from(verdict == Verdict::Refuse(Reason::FirstPacketBudget));
    }
    assert!(low > 100, "{low}");
    assert!(workers.iter_mut().all(|worker| worker.packet(flow(1, 9), false) == QUOTA));
}

#[test]
fn a_table_of_another_size_begins_anew_and_other_settings_hold_at_once() {
    let (_link, users, mut workers) = workers(&quota(2), 2);
    assert_eq!(start(&mut workers[0], 0x0101, 0..5), 2);
    let set = |workers: &mut [Fluid], users: &Arc<Users>, turn: fn(&mut PerUserConfig)| {
        for worker in workers {
            let mut config = worker.admission.config().clone();
            turn(&mut config.per_user);
            worker.admission.set(worker.now, config).unwrap();
            worker.admission.share_users(Some(Arc::clone(users)));
        }
    };
    for worker in &mut workers {
        let mut config = worker.admission.config().clone();
        config.per_user.flows = 3;
        worker.admission.set(worker.now, config).unwrap();
    }
    assert_eq!(start(&mut workers[1], 0x0101, 10..15), 1, "two are counted, in the same table");
    set(&mut workers, &users, |own| own.ipv4_prefix = 24);
    assert_eq!(start(&mut workers[0], 0x0102, 10..15) + start(&mut workers[1], 0x0103, 0..5), 3);
    set(&mut workers, &Arc::new(Users::new(50, 9)), |own| own.users = 50);
    assert_eq!(start(&mut workers[0], 0x0101, 20..25) + start(&mut workers[1], 0x0103, 20..25), 3);
    // Off, and on again.
    for worker in &mut workers {
        let mut config = worker.admission.config().clone();
        config.per_user.on = false;
        worker.admission.set(worker.now, config).unwrap();
        worker.admission.share_users(None);
        assert_eq!(start(worker, 0x0101, 30..60), 30);
    }
    set(&mut workers, &Arc::new(Users::new(50, 9)), |own| own.on = true);
    assert_eq!(start(&mut workers[1], 0x0101, 70..75) + start(&mut workers[0], 0x0101, 70..75), 3);
    until(&mut workers, T);
    assert_eq!(start(&mut workers[1], 0x0101, 80..85) + start(&mut workers[0], 0x0101, 80..85), 3);
}

#[test]
fn what_a_worker_has_let_in_counts_where_it_goes_on() {
    let mut config = quota(3);
    config.per_user.by = UserBy::Source;
    let mut alone = Fluid::new(config.clone());
    alone.until(T);
    assert_eq!(start(&mut alone, 1, 0..2), 2);
    // It was one, and is one of two.
    let (link, users, mut workers) = workers(&config, 2);
    until(&mut workers, T);
    alone.admission.share(Some((Arc::clone(&link), 0)));
    for _ in 0..2 {
        alone.admission.share_users(Some(Arc::clone(&users)));
    }
    assert_eq!(told(core::slice::from_ref(&alone), 1), 2);
    assert_eq!(start(&mut workers[1], 1, 0..5), 1, "two were let in before");
    assert_eq!(start(&mut alone, 1, 10..15), 0);
    // Other workers take over from both, and then one alone from the first.
    let next = Arc::new(Users::new(1_000, 6));
    alone.admission.share_users(Some(Arc::clone(&next)));
    workers[1].admission.share_users(Some(Arc::clone(&next)));
    assert_eq!(start(&mut workers[1], 1, 10..15) + start(&mut alone, 1, 10..15), 0);
    alone.admission.share(None);
    alone.admission.share_users(None);
    assert_eq!(start(&mut alone, 1, 20..25), 1, "it knows of the two that it has let in");
    alone.until(T * 2);
    assert_eq!(start(&mut alone, 1, 30..35), 3);
    // Nor does it count what was let in before the interval in which it is alone again.
    alone.admission.share_users(Some(Arc::clone(&next)));
    alone.until(T * 3);
    assert_eq!(start(&mut alone, 1, 50..55), 3);
    alone.until(T * 4);
    alone.admission.share_users(None);
    assert_eq!(start(&mut alone, 1, 40..45), 3);
}

#[test]
fn counting_with_others_allocates_nothing() {
    let mut config = quota(2);
    config.per_user.users = 16;
    let (_link, _users, mut workers) = workers(&config, 2);
    let allocated = allocation_counter::measure(|| {
        for n in 0..200_u16 {
            let worker = &mut workers[usize::from(n % 2)];
            let _ = worker.packet_at(ms(u64::from(n) * 20), flow(n % 50, n), false);
        }
    });
    assert_eq!(allocated.count_total, 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// Workers that estimate at the same instants admit of each user what one would, also while
    /// ECCM opens a closed link, lets those in that have waited for long, and closes it again.
    #[test]
    fn several_workers_admit_as_one_does(
        script in proptest::collection::vec((0_u64..90, 0_u16..12, 1_u16..8), 20..150),
        count in 2_usize..5,
        most in 1_u32..5,
        ports in prop_oneof![Just(10_u16), Just(1_000)],
        closed in any::<bool>(),
        until_open in 10_usize..200,
    ) {
        let mut config = quota(most);
        config.eccm = EccmConfig { on: closed, max_accept_delay: ms(600), ..config.eccm };
        let mut one = Fluid::new(config.clone());
        let (_link, _users, mut several) = workers(&config, count);
        if closed {
            one.fair = BitRate(1_000);
            several.iter_mut().for_each(|worker| worker.fair = BitRate(1_000));
        }
        let (mut now, mut port) = (ms(0), 0);
        for (step, (wait, user, flows)) in script.into_iter().enumerate() {
            if step == until_open {
                one.fair = C;
                several.iter_mut().for_each(|worker| worker.fair = C);
            }
            now += ms(wait);
            one.until(now);
            until(&mut several, now);
            for _ in 0..flows {
                port = (port + 1) % ports;
                let alone = one.packet(flow(user, port), false);
                let together = several[usize::from(port) % count].packet(flow(user, port), false);
                prop_assert_eq!(alone, together, "user {} at {}", user, now);
            }
        }
    }
}
