//! A link shared by hosts over workers: every host has its max-min share of the link whatever
//! workers its flows are on, and within it each flow what its siblings have.

use std::sync::Arc;

use evenkeel_core::aqm::elastic::ElasticAqm;
use evenkeel_core::reference::max_min;
use evenkeel_core::schedule::hosts::Fair;
use evenkeel_core::schedule::pdrr::PdrrConfig;
use evenkeel_core::schedule::pfq::PfqConfig;
use evenkeel_core::schedule::{AnyScheduler, DisciplineConfig};
use evenkeel_core::share::SharedLink;
use evenkeel_core::{BitRate, Bytes, Nanos, Scheduler};

use crate::workers::{PATIENCE, Router, Sends, Sent};

const RATE: BitRate = BitRate::from_mbps(100);

fn pdrr(fair: Fair) -> DisciplineConfig {
    DisciplineConfig::Pdrr(PdrrConfig { fair, ..PdrrConfig::default() })
}

fn pfq(fair: Fair) -> DisciplineConfig {
    DisciplineConfig::Pfq(PfqConfig { fair, ..PfqConfig::default() })
}

const BOTH: [fn(Fair) -> DisciplineConfig; 2] = [pdrr, pfq];

/// As `shared_flows` has it.
fn ahead(workers: u64) -> u64 {
    let window = SharedLink::window_at(RATE).0 * RATE.0 / 8_000_000_000;
    2 * window + workers * 3 * 1538
}

/// By host, and of each by worker, how many flows it has.
type Spread<'a> = &'a [&'a [usize]];

const SPREADS: [Spread; 10] = [
    // Even.
    &[&[1, 0], &[2, 1], &[15, 15]],
    &[&[0, 1], &[1, 1], &[15, 15], &[15, 15]],
    // All of one at one worker, and of another nearly all, or some.
    &[&[1, 0], &[3, 0], &[1, 29]],
    &[&[30, 0], &[0, 1], &[1, 2], &[29, 1]],
    &[&[1, 29], &[29, 1], &[0, 3]],
    &[&[30, 0], &[15, 15]],
    // Of four.
    &[&[1, 0, 0, 0], &[0, 1, 1, 1], &[8, 8, 7, 7]],
    &[&[1, 0, 0, 0], &[0, 0, 3, 0], &[27, 1, 1, 1], &[0, 0, 1, 29]],
    &[&[30, 0, 0, 0], &[1, 0, 1, 1], &[0, 1, 0, 0], &[0, 15, 15, 0]],
    &[&[1, 1, 1, 0], &[1, 1, 1, 27], &[0, 0, 0, 1]],
];

fn router(discipline: DisciplineConfig, spread: Spread) -> Router {
    let mut router = Router::new(spread[0].len(), discipline, RATE, None);
    add(&mut router, spread);
    router
}

fn add(router: &mut Router, spread: Spread) {
    for (host, workers) in spread.iter().enumerate() {
        for (worker, flows) in workers.iter().enumerate() {
            for _ in 0..*flows {
                router.add_of(host as u32, worker, 1_000, Sends::Greedy(12));
            }
        }
    }
}

/// What is off in a second: hosts their max-min shares, and flows those of their hosts, relative.
#[derive(Clone, Copy, Debug, Default)]
struct Off {
    hosts: f64,
    flows: f64,
}

impl Off {
    fn max(self, other: Self) -> Self {
        Self { hosts: self.hosts.max(other.hosts), flows: self.flows.max(other.flows) }
    }
}

/// Megabits of IP packets that each source is sent in a second.
fn second(router: &mut Router) -> Vec<f64> {
    let before = router.sent();
    router.run(Nanos::SECOND);
    router.sent().iter().zip(before).map(|(after, before)| (after - before) as f64 * 8e-6).collect()
}

/// By host, what its sources got that are greedy, where all have packets of one length.
fn off(router: &mut Router) -> Off {
    let got = second(router);
    let used = got.iter().sum::<f64>() * 1_038.0 / 1_000.0;
    assert!((0.99..1.005).contains(&(used / 100.0)), "{used} of 100 Mbit/s");
    let hosts = 1 + router.sources.iter().map(|source| source.host).max().unwrap();
    let mean = got.iter().sum::<f64>() / f64::from(hosts);
    let mut off = Off::default();
    for host in 0..hosts {
        let of_host = router.sources.iter().zip(&got).filter(|(source, _)| source.host == host);
        let own: Vec<f64> = of_host.map(|(_, got)| *got).collect();
        let all: f64 = own.iter().sum();
        let each = all / own.len() as f64;
        off.hosts = off.hosts.max((all / mean - 1.0).abs());
        off.flows = own.iter().map(|own| (own / each - 1.0).abs()).fold(off.flows, f64::max);
    }
    off
}

#[test]
fn hosts_share_alike_however_their_flows_fall_on_workers() {
    for discipline in BOTH {
        let mut worst = Off::default();
        for fair in [Fair::SourceFlow, Fair::DestinationFlow] {
            for spread in SPREADS {
                let mut router = router(discipline(fair), spread);
                router.run(Nanos::from_millis(500));
                let off = off(&mut router);
                let name = format!("{:?} {spread:?}: {off:?}", discipline(fair).name());
                assert!(off.hosts < 0.03 && off.flows < 0.04, "{name}");
                router.check(ahead(spread[0].len() as u64));
                println!("{name}");
                worst = worst.max(off);
            }
        }
        println!("{} {worst:?}", discipline(Fair::Flow).name());
    }
}

/// What the tests above see where hosts are not counted over workers: each gives a host as much as
/// it has there.
#[test]
fn by_flow_a_host_gets_as_much_as_it_has_flows() {
    for discipline in BOTH {
        let mut router = router(discipline(Fair::Flow), &[&[1, 0], &[3, 0], &[1, 29]]);
        router.run(Nanos::from_millis(500));
        let off = off(&mut router);
        assert!((off.hosts - 30.0 / 34.0 * 3.0 + 1.0).abs() < 0.05, "{off:?}");
    }
}

#[test]
fn of_hosts_that_ask_for_less_the_others_have_the_rest() {
    for discipline in BOTH {
        let mut router = Router::new(3, discipline(Fair::SourceFlow), RATE, None);
        let mut demands = [f64::MAX; 5];
        let every = |mbps: f64| Sends::Every(Nanos((1_000.0 * 8e3 / mbps) as u64));
        // Ten times what it gets, by one flow that is alone on its worker.
        router.add_of(0, 2, 1_000, every(90.0));
        demands[0] = 90.0;
        // A little, in six flows on all workers; as much in one.
        for n in 0..6 {
            let flow = router.add_of(1, n % 3, 1_000, every(1.5));
            router.sources[flow].next = Nanos(n as u64 * 770_000);
        }
        router.add_of(2, 1, 1_000, every(9.0));
        (demands[1], demands[2]) = (9.0, 9.0);
        for n in 0..30 {
            router.add_of(3, usize::from(n > 0), 1_000, Sends::Greedy(12));
        }
        router.add_of(4, 0, 1_000, Sends::Greedy(24));
        router.run(Nanos::from_millis(500));
        let got = second(&mut router);
        let of_host = |host: u32| -> f64 {
            let own = router.sources.iter().zip(&got).filter(|(source, _)| source.host == host);
            own.map(|(_, got)| got).sum()
        };
        let hosts: Vec<f64> = (0..5).map(of_host).collect();
        let used: f64 = hosts.iter().sum();
        assert!(used > 0.99 * 100.0 * 1_000.0 / 1_038.0, "{used}");
        let fair = max_min(used, &demands.iter().map(|asks| (*asks, 1.0)).collect::<Vec<_>>());
        for (got, fair) in hosts.iter().zip(&fair) {
            let name = discipline(Fair::SourceFlow).name();
            assert!((got / fair - 1.0).abs() < 0.03, "{name}: {hosts:?} of {fair:?}");
        }
        router.check(ahead(3));
    }
}

#[test]
fn lengths_of_packets_do_not_matter_to_hosts() {
    for discipline in BOTH {
        let mut router = Router::new(2, discipline(Fair::SourceFlow), RATE, None);
        for (host, worker, length) in [(0, 0, 1_500), (0, 1, 200), (1, 0, 300), (2, 1, 1_500)] {
            router.add_of(host, worker, length, Sends::Greedy((30_000 / length) as usize));
        }
        router.run(Nanos::from_millis(500));
        let got = second(&mut router);
        let wire: Vec<f64> = router
            .sources
            .iter()
            .zip(&got)
            .map(|(source, got)| got * (source.length + 38) as f64 / source.length as f64)
            .collect();
        let hosts = [wire[0] + wire[1], wire[2], wire[3]];
        let mean = hosts.iter().sum::<f64>() / 3.0;
        assert!(mean * 3.0 > 99.0, "{hosts:?}");
        let off = hosts.iter().map(|host| (host / mean - 1.0).abs()).fold(0.0, f64::max);
        let within = (wire[0] / wire[1] - 1.0).abs();
        let name = discipline(Fair::SourceFlow).name();
        assert!(off < 0.03 && within < 0.04, "{name}: {wire:?}");
    }
}

/// The flows of which elastic packets wait, at all workers.
fn waiting(router: &Router) -> u64 {
    let of_worker = |scheduler: &AnyScheduler<Sent>| {
        let urgent = scheduler.meters().priority_backlog.unwrap().0 > 0;
        (scheduler.busy_queues() - usize::from(urgent)) as u64
    };
    router.workers.iter().map(|worker| of_worker(worker.link.scheduler())).sum()
}

/// Flows that the table of hosts counts, and its places that are taken.
fn counted(router: &Router) -> (u64, usize) {
    router.shared.as_ref().unwrap().hosts_that_wait()
}

/// Who sent all the time stops, and what waits of him goes: nothing is left of it.
fn stop(router: &mut Router) {
    router.sources.iter_mut().for_each(|source| source.sends = Sends::Greedy(0));
    router.run(Nanos::from_secs(1));
    assert_eq!(counted(router), (0, 0));
    let together = router.shared.as_ref().unwrap().together();
    assert_eq!(together.elastic_flows, 0);
}

/// All sources that stopped send again.
fn go_on(router: &mut Router) {
    let now = router.now;
    router.sources.iter_mut().for_each(|source| {
        (source.sends, source.next) = (Sends::Greedy(12), now);
    });
    router.run(Nanos::from_millis(500));
}

#[test]
fn flows_that_come_and_go_are_counted_and_leave_nothing() {
    for discipline in BOTH {
        let mut router = router(
            discipline(Fair::SourceFlow),
            &[&[3, 1, 1], &[0, 1, 10], &[9, 0, 9], &[1, 0, 0]],
        );
        let mut state = 7u64;
        for _ in 0..1_000 {
            router.run(Nanos::from_micros(700));
            assert_eq!(counted(&router).0, waiting(&router));
            assert!(counted(&router).1 <= 4, "a place of each host");
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(99);
            let index = (state >> 33) as usize % router.sources.len();
            let source = &mut router.sources[index];
            let sends = source.sends;
            source.sends = Sends::Greedy(if sends == Sends::Greedy(0) { 12 } else { 0 });
            source.next = router.now;
        }
        router.check(ahead(3));
        stop(&mut router);
        // And all is as it was before.
        go_on(&mut router);
        let off = off(&mut router);
        assert!(off.hosts < 0.03 && off.flows < 0.04, "{off:?}");
    }
}

/// What a worker does not send the others do, and when it comes back all is as before.
#[test]
fn a_worker_that_stands_still_or_is_idle_costs_the_link_nothing() {
    for discipline in BOTH {
        let mut router =
            router(discipline(Fair::SourceFlow), &[&[1, 4], &[10, 2], &[0, 3], &[3, 0]]);
        router.run(Nanos::from_millis(300));
        // Two hosts have half of what others have, or so, while one of their workers sends nothing:
        // their flows there still wait.
        router.workers[1].asleep = true;
        router.run(Nanos::from_millis(50));
        let rate: f64 = second(&mut router).iter().sum::<f64>() * 1.038;
        assert!((0.99..1.005).contains(&(rate / 100.0)), "{rate}");
        router.workers[1].asleep = false;
        router.run(Nanos::from_millis(100));
        let found = off(&mut router);
        assert!(found.hosts < 0.03 && found.flows < 0.04, "{found:?}");
        // Nothing comes to it any more.
        for source in router.sources.iter_mut().filter(|source| source.worker == 1) {
            source.sends = Sends::Greedy(0);
        }
        router.run(Nanos::from_millis(300));
        let got = second(&mut router);
        let of_host = |host: u32| -> f64 {
            let own = router.sources.iter().zip(&got).filter(|(source, _)| source.host == host);
            own.map(|(_, got)| got).sum()
        };
        let hosts = [0, 1, 3].map(of_host);
        let third = 100.0 / 1.038 / 3.0;
        assert!(hosts.iter().all(|got| (got / third - 1.0).abs() < 0.02), "{hosts:?}");
    }
}

#[test]
fn a_worker_that_is_built_anew_counts_its_flows_anew() {
    for discipline in BOTH {
        let discipline = discipline(Fair::SourceFlow);
        let mut router = router(discipline.clone(), &[&[2, 5], &[7, 0], &[1, 0]]);
        for _ in 0..5 {
            router.run(Nanos::from_millis(100));
            for worker in 0..2 {
                let shared = Arc::clone(router.shared.as_ref().unwrap());
                let part = discipline.build_part(1, shared, worker).unwrap();
                router.swap(worker, part);
                assert_eq!(counted(&router).0, waiting(&router));
            }
        }
        router.run(Nanos::from_millis(500));
        let found = off(&mut router);
        assert!(found.hosts < 0.03 && found.flows < 0.04, "{found:?}");
        // One that is emptied and goes on.
        router.drain(0);
        assert_eq!(counted(&router).0, waiting(&router));
        assert!(waiting(&router) > 4);
        router.drain(1);
        assert_eq!(counted(&router), (0, 0));
        assert_eq!(router.shared.as_ref().unwrap().together().elastic_flows, 0);
        go_on(&mut router);
        let found = off(&mut router);
        assert!(found.hosts < 0.03 && found.flows < 0.04, "{found:?}");
        // One that goes without a word takes back what it counted.
        router.workers.pop();
        assert_eq!(counted(&router).0, waiting(&router));
        assert!(waiting(&router) > 8);
        router.workers.clear();
        assert_eq!(counted(&router), (0, 0));
    }
}

/// Eight places for twelve hosts: those that find none have as much as if all of them were at one
/// worker, and twice as much if they are at two.
#[test]
fn hosts_that_find_no_place_go_on_by_what_their_workers_know() {
    for discipline in BOTH {
        let shared = SharedLink::new(2, 1, PATIENCE).with_lines_of_hosts(1);
        let mut router = Router::on(shared, discipline(Fair::SourceFlow), RATE, None);
        add(&mut router, &[[2_usize, 2].as_slice(); 12]);
        router.run(Nanos::from_millis(500));
        assert_eq!(counted(&router).1, 8);
        let got = second(&mut router);
        assert!(got.iter().sum::<f64>() * 1.038 > 99.0);
        let hosts: Vec<f64> = got.chunks(4).map(|own| own.iter().sum()).collect();
        let least = hosts.iter().copied().fold(f64::MAX, f64::min);
        let twice = hosts.iter().filter(|host| (*host / least - 2.0).abs() < 0.06).count();
        let once = hosts.iter().filter(|host| (*host / least - 1.0).abs() < 0.03).count();
        assert_eq!((once, twice), (8, 4), "{hosts:?}");
        router.check(ahead(2));
        // When there is room again, all have the same.
        for source in router.sources.iter_mut().filter(|source| source.host < 4) {
            source.sends = Sends::Greedy(0);
        }
        router.run(Nanos::from_millis(500));
        let got = second(&mut router);
        let hosts: Vec<f64> = got[16..].chunks(4).map(|own| own.iter().sum()).collect();
        let mean = hosts.iter().sum::<f64>() / 8.0;
        assert!(hosts.iter().all(|host| (host / mean - 1.0).abs() < 0.03), "{hosts:?}");
        stop(&mut router);
    }
}

/// A flow alone at its worker, of a host that has 199 elsewhere: PDRR gives it a 64th of the host,
/// and so visits the host no more than 64 times for a quantum; PFQ needs no such bound.
#[test]
fn a_worker_has_at_least_a_64th_of_a_host_with_pdrr() {
    for (discipline, part) in [(pdrr as fn(Fair) -> _, 64.0), (pfq, 200.0)] {
        let mut router = Router::new(2, discipline(Fair::SourceFlow), RATE, None);
        for n in 0..200 {
            router.add_of(0, usize::from(n == 0), 500, Sends::Greedy(4));
        }
        router.add_of(1, 1, 500, Sends::Greedy(48));
        router.run(Nanos::from_secs(1));
        let before = router.sent();
        router.run(Nanos::from_secs(4));
        let got: Vec<u64> = router.sent().iter().zip(before).map(|(now, was)| now - was).collect();
        let (flow, host) = (got[0] as f64, got[..200].iter().sum::<u64>() as f64);
        let name = discipline(Fair::SourceFlow).name();
        assert!((flow / host * part - 1.0).abs() < 0.05, "{name}: {flow} of {host}");
        assert!((host / got[200] as f64 - 1.0).abs() < 0.02, "{name}: {host}, {}", got[200]);
    }
}

/// What a queue is judged by is the time of its turn, in which all flows of its host go, and all
/// hosts.
#[test]
fn a_queue_does_not_stand_for_as_long_as_its_turn_takes() {
    let aqm = ElasticAqm::cobalt();
    let fair = Fair::SourceFlow;
    for discipline in [
        DisciplineConfig::Pdrr(PdrrConfig { aqm, fair, ..PdrrConfig::default() }),
        DisciplineConfig::Pfq(PfqConfig { aqm, fair, ..PfqConfig::default() }),
    ] {
        let mut router = Router::new(2, discipline.clone(), RATE, None);
        // It has more than a long packet left, and less than what long packets of all come to.
        router.add_of(7, 1, 100, Sends::Greedy(14));
        for _ in 0..49 {
            router.add_of(7, 0, 1_500, Sends::Greedy(3));
        }
        router.add_of(8, 0, 1_500, Sends::Greedy(24));
        router.run(Nanos::from_secs(4));
        assert!(router.sources[0].sent_bytes > 2_000 * 100);
        let dropped = router.sources[0].dropped;
        assert_eq!(dropped, 0, "{discipline:?}");
    }
}

#[test]
fn the_fair_rate_is_that_of_a_host() {
    for discipline in BOTH {
        let mut router = router(discipline(Fair::SourceFlow), &[&[1, 0], &[3, 4], &[1, 29]]);
        router.run(Nanos::from_millis(500));
        let shared = Arc::clone(router.shared.as_ref().unwrap());
        let before = shared.together().fair_bytes;
        router.run(Nanos::SECOND);
        let together = shared.together();
        let rate = (together.fair_bytes - before).0 as f64 * 8e-6;
        assert!((rate / (100.0 / 3.0) - 1.0).abs() < 0.02, "{rate}");
        assert_eq!(together.elastic_flows, 3);
    }
}

/// A stream is sent before what waits, also of a host with many flows elsewhere.
#[test]
fn streams_of_hosts_keep_their_priority() {
    for discipline in BOTH {
        for workers in [2, 4] {
            let mut router = Router::new(workers, discipline(Fair::SourceFlow), RATE, None);
            let streams: Vec<usize> = (0..8)
                .map(|n| {
                    let sends = Sends::Every(Nanos::from_millis(10));
                    let stream = router.add_of(n as u32, n, 160, sends);
                    router.sources[stream].next = Nanos(n as u64 * 830_000);
                    stream
                })
                .collect();
            for (host, worker, flows) in [(0, 0, 5), (1, 0, 1), (9, 1, 3)] {
                for _ in 0..flows {
                    router.add_of(host, worker, 1_500, Sends::Greedy(12));
                }
            }
            router.run(Nanos::from_millis(500));
            router.sources.iter_mut().for_each(|source| source.worst_delay = Nanos::ZERO);
            router.run(Nanos::from_secs(2));
            router.check(ahead(workers as u64));
            let long = RATE.time_for(Bytes(1_538));
            for stream in streams {
                let source = &router.sources[stream];
                let name = format!("{workers} {:?}", discipline(Fair::SourceFlow).name());
                assert_eq!(source.dropped, 0);
                assert!(source.worst_delay < long * 2, "{name}: {}", source.worst_delay);
            }
        }
    }
}

/// Of a host of which a worker has a small part, all that it asks for may be granted at once: that
/// does not count as if its whole host had been sent as much by each of its flows.
#[test]
fn a_host_is_never_counted_more_than_the_link_sends() {
    for discipline in BOTH {
        let mut router = Router::new(2, discipline(Fair::SourceFlow), RATE, None);
        for n in 0..6 {
            router.add_of(7, usize::from(n == 0), 1_000, Sends::Greedy(0));
        }
        let shared = Arc::clone(router.shared.as_ref().unwrap());
        for _ in 0..100 {
            for (n, source) in router.sources.iter_mut().enumerate() {
                (source.sends, source.next) =
                    (Sends::Greedy(if n == 0 { 8 } else { 3 }), router.now);
            }
            router.run(Nanos(1_000));
            router.sources.iter_mut().for_each(|source| source.sends = Sends::Greedy(0));
            router.run(Nanos::from_millis(20));
        }
        let sent = router.sent().iter().sum::<u64>() as f64 * 1.038;
        let level = shared.together().fair_bytes.0 as f64;
        assert!(level > 0.1 * sent && level < 1.05 * sent, "{level} of {sent}");
        assert_eq!(counted(&router), (0, 0));
    }
}
