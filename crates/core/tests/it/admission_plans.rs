//! Admission where subscribers share a link: each is open or closed for itself.

use crate::admit::world::{Sends, Source, World, accounts};
use crate::admit::{XpPacket, config, defaults, flow, ms};
use crate::tree::{leaf, mbps, plan};
use evenkeel_core::admit::{AdmissionConfig, Owner, PerUserConfig, Rule, UserBy};
use evenkeel_core::aqm::elastic::ElasticAqm;
use evenkeel_core::schedule::AnyScheduler;
use evenkeel_core::schedule::tree::{LINK, Tree, TreeConfig, UNKNOWN};
use evenkeel_core::{BitRate, Nanos, Ppm, Reason};

/// Subscribers with these caps on a link of 100 Mbit/s.
fn world(config: AdmissionConfig, caps: &[Option<BitRate>]) -> World {
    let leaves: Vec<_> = caps.iter().map(|cap| leaf(LINK, *cap)).collect();
    let tree = TreeConfig {
        plan: plan(&leaves),
        aqm: ElasticAqm::cobalt(),
        max_delay: Nanos::SECOND,
        ..TreeConfig::default()
    };
    let tree: Tree<XpPacket> = Tree::new(tree).unwrap();
    let rate = BitRate::from_mbps(100);
    let config = AdmissionConfig { rate, by_subscriber: true, ..config };
    World::new(config, AnyScheduler::Tree(tree))
}

/// Flow `n` of a subscriber, from a host of its own.
fn of(subscriber: u16, n: u16, sends: Sends, from: Nanos) -> Source {
    let len = if matches!(sends, Sends::Every(_)) { 100 } else { 1_000 };
    Source::new(flow((subscriber << 8) | (n % 200), n), len, sends, from)
}

fn greedy(subscriber: u16, n: u16, from: Nanos) -> Source {
    of(subscriber, n, Sends::Greedy(8), from)
}

/// A stream of 80 kbit/s.
fn stream(subscriber: u16, n: u16, from: Nanos) -> Source {
    of(subscriber, n, Sends::Every(ms(10)), from)
}

#[test]
fn who_has_too_many_flows_is_closed_and_nobody_else() {
    for config in [config(), defaults()] {
        let newcomers = config.newcomer_share.0 > 0;
        let mut world = world(config, &[mbps(10), mbps(2), None]);
        // The first has more than 1 / min_FR; the second as many as that leaves room for; the
        // third has what is left of the link, and no cap of its own.
        for n in 0..30 {
            world.add(greedy(1, n, ms(u64::from(n) * 1_100)));
        }
        let second: Vec<_> =
            (0..18).map(|n| world.add(greedy(2, n, ms(u64::from(n) * 1_100)))).collect();
        let third: Vec<_> =
            (0..12).map(|n| world.add(greedy(3, n, ms(20_000 + u64::from(n) * 300)))).collect();
        world.run(ms(40_000));
        let flows = world.sources[..30].iter().filter(|one| one.sent_bytes > 1_000_000).count();
        assert!((19..=22).contains(&flows), "{flows} of 30 flows");
        assert_eq!(world.sources[29].last_reason, Some(Reason::FairRateLow));
        for at in second.iter().chain(&third) {
            let one = &world.sources[*at];
            assert_eq!(one.refused, 0, "{}: {:?}", one.flow, one.last_reason);
        }
        assert_eq!(world.admission.view().congested, None, "the link is not closed");
        // What is new is let in where it is open; where it is closed it is a guest, and as it does
        // not become elastic it stays.
        let calls = [1, 2, 3].map(|of| world.add(stream(of, 150, ms(41_000))));
        let bulk = world.add(greedy(1, 151, ms(43_000)));
        world.run(ms(60_000));
        for (at, open) in calls.into_iter().zip([newcomers, true, true]) {
            let call = &world.sources[at];
            if open {
                assert_eq!(call.refused, 0, "{}", call.flow);
                let slack = if at == calls[1] { ms(30) } else { ms(10) };
                assert!(call.worst_delay < slack, "{}: {}", call.flow, call.worst_delay);
            } else {
                assert_eq!(call.passed, 0, "as published");
            }
        }
        let bulk = &world.sources[bulk];
        assert!(bulk.refused > 1_000 && bulk.sent_bytes < 1_000_000, "{bulk:?}");
        accounts(&world.admission);
    }
}

#[test]
fn a_plan_opens_again_when_flows_end_or_the_plan_grows() {
    let mut world = world(config(), &[mbps(10)]);
    for n in 0..25 {
        let mut source = greedy(1, n, ms(u64::from(n) * 1_100));
        source.size = if n < 10 { 5_000_000 } else { u64::MAX };
        world.add(source);
    }
    world.run(ms(30_000));
    let late = |world: &World| world.sources[20..].iter().filter(|s| s.passed > 0).count();
    assert!(late(&world) < 3);
    // Ten have had what they wanted after some 100 s.
    world.run(ms(150_000));
    assert_eq!(late(&world), 5);
}

#[test]
fn who_is_idle_is_open_whatever_it_was_before() {
    let mut world = world(config(), &[mbps(10)]);
    for n in 0..25 {
        let at = world.add(greedy(1, n, ms(u64::from(n) * 1_100)));
        world.sources[at].to = ms(30_000);
    }
    let again = world.add(greedy(1, 100, ms(32_000)));
    world.run(ms(31_000));
    assert!(world.sources[24].refused > 0);
    world.run(ms(33_000));
    assert_eq!(world.sources[again].refused, 0);
}

#[test]
fn a_crowd_of_one_subscriber_takes_no_place_of_another() {
    // Both closed; the first has new connections all the time.
    let mut world = world(defaults(), &[mbps(10), mbps(10)]);
    for subscriber in [1, 2] {
        for n in 0..25 {
            world.add(greedy(subscriber, n, ms(u64::from(n) * 1_100)));
        }
    }
    for n in 0..200 {
        let from = ms(35_000 + u64::from(n) * 37);
        world.add(of(1, 200 + n, Sends::Greedy(8), from));
    }
    let calls: Vec<_> =
        (0..5).map(|n| world.add(stream(2, 170 + n, ms(37_000 + u64::from(n) * 1_000)))).collect();
    world.run(ms(50_000));
    for at in calls {
        assert_eq!(world.sources[at].refused, 0, "{}", world.sources[at].flow);
    }
    assert!(world.admission.view().passed[Rule::Newcomer as usize] > 5);
    accounts(&world.admission);
}

#[test]
fn a_burst_of_connections_closes_whose_they_are_and_nobody_else() {
    let strict = AdmissionConfig { newcomer_share: Ppm::ZERO, ..defaults() };
    let mut world = world(strict, &[mbps(10), mbps(10)]);
    let burst: Vec<_> = (0..60).map(|n| world.add(greedy(2, n, ms(1_000)))).collect();
    let first: Vec<_> = (0..3).map(|n| world.add(greedy(1, n, ms(1_001)))).collect();
    world.run(ms(1_040));
    let passed = |of: &[usize]| of.iter().filter(|at| world.sources[**at].passed > 0).count();
    // Each may turn elastic, and so many are what 1 / min_FR leaves room for.
    assert_eq!((passed(&burst), passed(&first)), (20, 3));
}

#[test]
fn who_was_refused_for_the_bound_of_eccm_may_be_a_guest() {
    let mut world = world(defaults(), &[mbps(10)]);
    for n in 0..25 {
        world.add(greedy(1, n, ms(u64::from(n) * 1_100)));
    }
    // Others take the places just before it comes, and again when they have waited for as long;
    // from its second packet on it is no newcomer.
    for n in 0..20 {
        world.add(greedy(1, 100 + n, ms(35_000)));
    }
    let rare = world.add(of(1, 150, Sends::Every(ms(2_000)), ms(35_001)));
    world.run(ms(50_000));
    let waited = world.sources[rare].accept_delay().unwrap();
    let bound = world.admission.config().eccm.max_accept_delay;
    assert!((bound..bound + ms(5_000)).contains(&waited), "{waited}");
}

#[test]
fn all_hosts_of_a_subscriber_are_one_user() {
    let per_user =
        PerUserConfig { on: true, flows: 3, by: UserBy::Subscriber, ..PerUserConfig::default() };
    let config = AdmissionConfig { per_user, fair_rate_interval: ms(4_000), ..config() };
    let mut world = world(config, &[mbps(10), mbps(10)]);
    let mut add = |subscriber, hosts: u16| -> Vec<usize> {
        (0..hosts).map(|n| world.add(stream(subscriber, n, ms(100 + u64::from(n))))).collect()
    };
    // The third is of nobody's list: all such are one.
    let all = [(1, 5), (2, 2), (0, 4)].map(|(subscriber, hosts)| add(subscriber, hosts));
    world.run(ms(1_000));
    let passed = all.map(|of| of.iter().filter(|at| world.sources[**at].passed > 0).count());
    assert_eq!(passed, [3, 2, 3]);
    let users = world.admission.view().users;
    let told: Vec<_> = users.iter().map(|user| (user.user, user.flows)).collect();
    let who = |place| Owner::Subscriber(UNKNOWN + place);
    assert_eq!(told, [(who(0), 3), (who(1), 3), (who(2), 2)]);
}
