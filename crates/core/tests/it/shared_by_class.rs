//! What disciplines by class do of their own where several workers share a link: levels, queues
//! that do not stand, and a rate that comes and goes.

use crate::common::{tail, weighted};
use crate::shared::{RATE, Router, STEP, qfq, wfq_altq};
use evenkeel_core::link::LinkConfig;
use evenkeel_core::schedule::DisciplineConfig;
use evenkeel_core::schedule::codel::CodelConfig;
use evenkeel_core::schedule::priority::PriorityConfig;
use evenkeel_core::schedule::wfq_altq::ClassAqm;
use evenkeel_core::settings::PerClass;
use evenkeel_core::share::SharedLink;
use evenkeel_core::{BitRate, Bytes, Class, Nanos, Scheduler as _};

/// Class 0 is the lowest level, classes 1 and 2 the one above, class 3 the highest.
fn levels() -> DisciplineConfig {
    let level = PerClass::new(vec![0, 5, 5, 63], 0);
    DisciplineConfig::Priority(PriorityConfig { level, limit: 100, ..PriorityConfig::default() })
}

fn codel() -> DisciplineConfig {
    DisciplineConfig::Codel(CodelConfig::default())
}

/// WFQ/ALTQ of two classes with CoDel on their queues.
fn short_queues() -> DisciplineConfig {
    let mut config = weighted(&[100, 100], tail(1_000));
    config.aqm.aqm = ClassAqm::Codel;
    DisciplineConfig::WfqAltq(config)
}

fn bytes_in(time: Nanos, rate: BitRate) -> f64 {
    rate.bytes_in(time).0 as f64
}

#[test]
fn a_level_goes_before_those_below_it_whatever_worker_they_are_on() {
    let mut router = Router::with(3, &levels(), &[1; 4], RATE);
    // Everybody has the lowest level, and the highest asks for a tenth of the link.
    let greedy = [(0, 0, 1_500), (1, 0, 1_500), (2, 0, 1_500)];
    let mut offered = [0; 4];
    for turn in 0..5_000_u64 {
        router.step(&greedy, &[]);
        if turn.is_multiple_of(5) {
            // At a worker that changes.
            let at = (turn / 5 % 3) as usize;
            router.offer(at, 3, 1_211);
            router.offer(at, 1, 587);
            offered[3] += 1_249;
            offered[1] += 625;
        }
    }
    router.run(Nanos::from_millis(1), &greedy, &[]);
    for class in [1, 3] {
        assert_eq!(router.sent(class), offered[usize::from(class)]);
    }
    let wire = bytes_in(router.now, RATE);
    assert!((router.total() as f64 / wire - 1.0).abs() < 0.005, "{} of {wire}", router.total());
    // Both wait for a window at most, and for what is on the wire and in the ring.
    let window = SharedLink::window_at(RATE);
    for (link, class) in router.links.iter().flat_map(|link| [(link, 1), (link, 3)]) {
        let waited = link.qostat().class(Class(class)).delay_max;
        assert!(waited <= window * 2 + STEP, "{class}: {waited}");
    }
    router.check_conservation();
}

#[test]
fn a_level_that_wants_the_whole_link_leaves_nothing_to_those_below() {
    // The highest on one worker, the middle one on two, the lowest on all.
    let all = [(0, 3, 1_500), (1, 1, 700), (2, 2, 1_500), (0, 0, 64), (1, 0, 64), (2, 0, 64)];
    let mut router = Router::with(3, &levels(), &[1; 4], RATE);
    router.run(Nanos::from_millis(5), &all, &[]);
    let before = router.all_sent();
    router.run(Nanos::from_millis(50), &all, &[]);
    let sent: Vec<u64> =
        router.all_sent().iter().zip(&before).map(|(now, before)| now - before).collect();
    let wire = bytes_in(Nanos::from_millis(50), RATE);
    assert!((sent[3] as f64 / wire - 1.0).abs() < 0.005, "{sent:?} of {wire}");
    assert_eq!(sent[..3], [0, 0, 0]);
    // Without it the two of the next level have the same, for their workers have.
    router.run(Nanos::from_millis(5), &all[1..], &[]);
    let before = router.all_sent();
    router.run(Nanos::from_millis(50), &all[1..], &[]);
    let sent: Vec<u64> =
        router.all_sent().iter().zip(&before).map(|(now, before)| now - before).collect();
    for class in [1, 2] {
        assert!((sent[class] as f64 / wire * 2.0 - 1.0).abs() < 0.01, "{sent:?} of {wire}");
    }
    assert_eq!((sent[0], sent[3]), (0, 0));
    router.check_conservation();
}

#[test]
fn a_packet_of_a_high_level_goes_on_what_was_granted_to_lower_ones_of_its_worker() {
    let mut router = Router::with(2, &levels(), &[1; 4], RATE);
    let greedy = [(0, 0, 1_500), (1, 0, 1_500)];
    router.run(Nanos::from_millis(10), &greedy, &[]);
    for _ in 0..400 {
        router.offer(0, 3, 100);
        router.run(STEP * 5, &greedy, &[]);
    }
    // Both send what they are granted in the first half of a window. What comes in the other half
    // waits for the next, and all for what is on the wire and in the ring.
    let waited = router.links[0].qostat().class(Class(3)).delay_max;
    let half = Nanos(SharedLink::window_at(RATE).0 / 2);
    assert!(waited <= half + RATE.time_for(Bytes(1_538)) * 2 + STEP, "{waited}");
    // What it took is not lost to those it took it from: both workers sent the same in all.
    let sent = [0, 1].map(|worker| router.sent_by(worker));
    assert!((sent[0] as f64 / sent[1] as f64 - 1.0).abs() < 0.02, "{sent:?}");
    router.check_conservation();
}

#[test]
fn queues_do_not_stand_at_any_worker_and_the_link_is_used() {
    for (discipline, classes) in [(codel(), 1_u16), (short_queues(), 2)] {
        let name = discipline.name();
        let weights = vec![100; classes.into()];
        let mut router = Router::with(2, &discipline, &weights, RATE);
        // Each worker's sources keep more and more packets in it until some are dropped, then half.
        let (mut keeps, mut dropped) = ([10; 2], [0; 2]);
        let mut run = |router: &mut Router, steps: u64| {
            for turn in 0..steps {
                for worker in 0..2 {
                    if turn.is_multiple_of(50) {
                        let now = router.outs[worker].dropped;
                        let before = core::mem::replace(&mut dropped[worker], now);
                        let kept = &mut keeps[worker];
                        *kept = if now > before { *kept / 2 } else { *kept + 1 };
                    }
                    for class in 0..classes {
                        let inside = |router: &Router| {
                            router.links[worker].scheduler().class_backlog(Class(class)).packets
                        };
                        while inside(router) < keeps[worker] {
                            router.offer(worker, class, 1_500);
                        }
                    }
                }
                router.step(&[], &[]);
            }
        };
        run(&mut router, 50_000);
        let before = router.total();
        router.outs.iter_mut().for_each(|out| out.longest_wait = Nanos::ZERO);
        run(&mut router, 50_000);
        let wire = bytes_in(STEP * 50_000, RATE);
        let sent = (router.total() - before) as f64;
        assert!((sent / wire - 1.0).abs() < 0.01, "{name}: {sent} of {wire}");
        // Twice the target and what comes in an interval, not the 24 ms and more that fit in.
        let waited = router.outs.iter().map(|out| out.longest_wait).max().unwrap();
        assert!(waited < Nanos::from_millis(12), "{name}: {waited}");
        assert!(router.outs.iter().all(|out| out.dropped > 0), "{name}");
        router.check_conservation();
    }
}

#[test]
fn a_queue_that_waits_for_its_grants_does_not_stand() {
    // A window of 9.8 ms, twice the target. What waits is less than two windows: nobody drops.
    let rate = BitRate::from_mbps(10);
    for (discipline, classes) in [(codel(), 1), (short_queues(), 2)] {
        let mut router = Router::with(2, &discipline, &vec![100; classes], rate);
        for turn in 0..250_000_u64 {
            while router.links[0].scheduler().class_backlog(Class(0)).packets < 11 {
                router.offer(0, 0, 1_500);
            }
            router.step(&[], &[]);
            if turn.is_multiple_of(1_000) {
                router.check_conservation();
            }
        }
        assert_eq!(router.outs[0].dropped, 0, "{}", discipline.name());
        let wire = bytes_in(router.now, rate);
        assert!((router.total() as f64 / wire - 1.0).abs() < 0.01, "{}", router.total());
    }
}

#[test]
fn a_rate_that_goes_and_comes_back_changes_the_shares_and_loses_no_packet() {
    let weights = [100, 300];
    let disciplines = [
        (wfq_altq(&weights), true),
        (qfq(&weights), true),
        (levels(), false),
        (codel(), false),
        (short_queues(), false),
    ];
    for (discipline, by_weight) in disciplines {
        let name = discipline.name();
        let mut greedy = vec![(0, 0, 1_500), (1, 0, 700), (0, 1, 1_500), (1, 1, 1_500)];
        if name == "codel" {
            // It has one queue.
            greedy.truncate(2);
        }
        let mut router = Router::with(2, &discipline, &weights, RATE);
        for round in 0..6 {
            if router.shared.is_paced() {
                router.run(Nanos::from_millis(10), &greedy, &[]);
            } else {
                // Without a rate nothing waits.
                for turn in 0..100 {
                    router.offer(turn % 2, (turn / 2 % 2) as u16, 1_000);
                    router.step(&[], &[]);
                }
                assert!(router.links.iter().all(|link| link.held().queued == 0), "{name}");
            }
            let rate = (round % 2 == 1).then_some(RATE);
            router.shared.set_rate(rate);
            for at in 0..2 {
                let config = LinkConfig { rate, ..LinkConfig::paced(RATE) };
                let (now, out) = (router.now, &mut router.outs[at]);
                router.links[at].reconfigure(now, config, out).unwrap();
            }
            router.check_conservation();
        }
        let before = router.all_sent();
        router.run(Nanos::from_millis(50), &greedy, &[]);
        if by_weight {
            router.check_shares(&before, Nanos::from_millis(50));
        }
        let wire = bytes_in(Nanos::from_millis(50), RATE);
        let sent = (router.total() - before.iter().sum::<u64>()) as f64;
        assert!((sent / wire - 1.0).abs() < 0.01, "{name}: {sent} of {wire}");
        // What is left goes, and nothing is forgotten.
        router.run(Nanos::from_millis(100), &[], &[]);
        assert!(router.links.iter().all(|link| link.held().queued == 0), "{name}");
        router.check_conservation();
    }
}
