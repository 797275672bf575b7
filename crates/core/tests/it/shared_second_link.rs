//! MFAN on a link that several workers share: the load of the second link is what all have sent
//! there.

use std::sync::Arc;

use evenkeel_core::admit::{AdmissionConfig, SecondLinkConfig, SecondLinkPolicy, Verdict};
use evenkeel_core::schedule::DisciplineConfig;
use evenkeel_core::schedule::pdrr::PdrrConfig;
use evenkeel_core::share::SharedLink;
use evenkeel_core::{BitRate, Bytes, Nanos, Reason};
use proptest::prelude::*;

use crate::admit::{Fluid, config, flow, ms};
use crate::workers::{PATIENCE, Router, Sends};

const LOW: Verdict = Verdict::Refuse(Reason::FairRateLow);

/// 90 % of 1 Mbit/s over T_FR (half a second) are 56 250 bytes: 562 packets, and one beyond.
const FULL: u32 = 563;

fn second(policy: SecondLinkPolicy) -> AdmissionConfig {
    let mut config = config();
    config.eccm.on = false;
    config.budget.on = false;
    config.second_link =
        SecondLinkConfig { policy, ..SecondLinkConfig::new(BitRate::from_mbps(1)) };
    config
}

/// Workers of a closed link, each with these flows, which have just estimated.
fn closed(count: usize, policy: SecondLinkPolicy, flows: u16) -> (Arc<SharedLink>, Vec<Fluid>) {
    let link = Arc::new(SharedLink::new(count, 1, PATIENCE));
    let mut workers: Vec<Fluid> =
        (0..count).map(|at| Fluid::of_link(second(policy), &link, at)).collect();
    for (at, worker) in workers.iter_mut().enumerate() {
        worker.backlog = |flow| Bytes(flow.source_port.into());
        for n in 0..flows {
            let now = ms(u64::from(n) * 40);
            assert_eq!(worker.packet_at(now, of(at, n), n >= 10), Verdict::Pass);
        }
        worker.until(ms(u64::from(flows) * 40));
        worker.close();
        let next = ms(3_000);
        worker.until(next);
    }
    (link, workers)
}

fn of(worker: usize, n: u16) -> evenkeel_core::FlowKey {
    flow(worker as u16 + 1, n)
}

fn until(workers: &mut [Fluid], now: Nanos) {
    workers.iter_mut().for_each(|worker| worker.until(now));
}

/// So many packets of a flow go by the second link.
fn send(worker: &mut Fluid, key: evenkeel_core::FlowKey, packets: u32) {
    for _ in 0..packets {
        assert_eq!(worker.packet(key, false), Verdict::Divert);
    }
}

#[test]
fn the_load_of_the_second_link_is_what_all_send_there() {
    for count in [2, 4] {
        let (_link, mut workers) = closed(count, SecondLinkPolicy::Newest, 0);
        let part = FULL / count as u32;
        for (at, worker) in workers.iter_mut().enumerate() {
            send(worker, of(at, 1), part);
        }
        // Each has its part; together they lack less than a packet of each.
        send(&mut workers[0], of(0, 1), FULL - part * count as u32);
        for (at, worker) in workers.iter_mut().enumerate() {
            assert_eq!(worker.packet(of(at, 2), false), LOW, "{at} of {count}: it is full");
            send(worker, of(at, 1), 1);
        }
        until(&mut workers, ms(3_500));
        for (at, worker) in workers.iter_mut().enumerate() {
            assert_eq!(worker.packet(of(at, 2), false), LOW, "the interval before was full");
        }
        until(&mut workers, ms(4_000));
        for (at, worker) in workers.iter_mut().enumerate() {
            assert_eq!(worker.packet(of(at, 2), false), Verdict::Divert);
        }
    }
}

#[test]
fn one_worker_may_have_all_of_it_while_the_others_send_nothing() {
    let (_link, mut workers) = closed(2, SecondLinkPolicy::Newest, 0);
    send(&mut workers[1], of(1, 1), FULL - 1);
    assert_eq!(workers[1].packet(of(1, 2), false), Verdict::Divert, "there is room for one more");
    for (at, worker) in workers.iter_mut().enumerate() {
        assert_eq!(worker.packet(of(at, 3), false), LOW, "{at}");
    }
}

#[test]
fn who_leaves_is_of_the_worker_whose_new_flow_comes() {
    for (policy, leaves) in [(SecondLinkPolicy::MostActive, 14), (SecondLinkPolicy::Oldest, 0)] {
        let (_link, mut workers) = closed(2, policy, 15);
        for (at, worker) in workers.iter_mut().enumerate() {
            assert_eq!(worker.packet(of(at, 30), false), Verdict::Pass, "{policy:?}");
            assert!(!worker.protects(of(at, leaves)), "{policy:?}: its own");
            send(worker, of(at, leaves), FULL / 2 + 1);
        }
        assert_eq!(workers[0].packet(of(0, 31), false), LOW, "{policy:?}");
    }
}

#[test]
fn who_is_built_anew_or_stands_still_counts_what_the_others_send_from_then_on() {
    let (link, mut workers) = closed(2, SecondLinkPolicy::Newest, 0);
    send(&mut workers[0], of(0, 1), FULL);
    workers[1].rebuild(&link, 1);
    workers[1].close();
    // A second later nothing of that counts.
    assert_eq!(workers[1].packet(of(1, 1), false), Verdict::Divert);
    send(&mut workers[1], of(1, 1), 99);
    // The first one has stood still: it does what was due at 3.5 and at 4 s.
    let now = workers[1].now;
    workers[0].until(now);
    assert_eq!(workers[0].packet(of(0, 2), false), Verdict::Divert);
    // What the second has told goes on where it was, and what it sends is added to it.
    until(&mut workers, ms(6_000));
    send(&mut workers[0], of(0, 1), 300);
    workers[1].rebuild(&link, 1);
    workers[1].close();
    send(&mut workers[1], of(1, 9), 100);
    assert_eq!(workers[0].packet(of(0, 3), false), Verdict::Divert, "401 packets");
    send(&mut workers[1], of(1, 9), 162);
    assert_eq!(workers[0].packet(of(0, 4), false), LOW, "563 packets");
}

/// In virtual time: twenty greedy flows close the link, and packets of streams come that it has no
/// room for, one more each 50 ms. Bytes that went by the second link in the last 10 s, of the most
/// that it may have.
fn load(workers: usize) -> f64 {
    let rate = BitRate::from_mbps(20);
    let mut config =
        AdmissionConfig { flows: 1_000, history: 512, ..AdmissionConfig::published(rate) };
    config.eccm.on = false;
    config.second_link = SecondLinkConfig::new(BitRate::from_mbps(2));
    let discipline = DisciplineConfig::Pdrr(PdrrConfig::default());
    let mut router = Router::new(workers, discipline, rate, Some(&config));
    for n in 0..28 {
        router.add([0, 0, 0, 1, 0, 2, 0, 3][n % 8], 1_000, Sends::Greedy(8), Nanos::ZERO);
    }
    router.run(Nanos::from_secs(2));
    for n in 0..100_u64 {
        let from = router.now + ms(50 * n);
        router.add(n as usize, 500, Sends::Every(ms(100)), from);
    }
    router.run(Nanos::from_secs(6));
    let sent = |router: &Router| -> u64 {
        router.sources.iter().map(|source| source.diverted * (source.length + 38)).sum()
    };
    let before = sent(&router);
    router.run(Nanos::from_secs(10));
    router.check(u64::MAX);
    (sent(&router) - before) as f64 / (0.9 * 2.5e6)
}

#[test]
fn the_second_link_takes_as_much_as_with_one_worker() {
    let one = load(1);
    assert!((0.9..1.6).contains(&one), "{one}");
    for workers in [2, 4] {
        let several = load(workers);
        println!("{workers}: {several:.3}, one {one:.3}");
        assert!((several / one - 1.0).abs() < 0.05, "{workers}: {several}, one {one}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Workers that estimate at the same instants decide about each packet as one would.
    #[test]
    fn several_workers_fill_the_second_link_as_one_does(
        script in proptest::collection::vec((0_u64..60, 0_u16..24, 1_u32..120), 20..120),
        count in 2_usize..5,
    ) {
        let (_one_link, mut one) = closed(1, SecondLinkPolicy::Newest, 0);
        let (_link, mut workers) = closed(count, SecondLinkPolicy::Newest, 0);
        let mut now = ms(3_000);
        for (wait, n, packets) in script {
            now += ms(wait);
            until(&mut one, now);
            until(&mut workers, now);
            for _ in 0..packets {
                let alone = one[0].packet(of(0, n), false);
                let together = workers[usize::from(n) % count].packet(of(0, n), false);
                prop_assert_eq!(alone, together, "flow {} at {}", n, now);
            }
        }
    }
}
