//! A link shared by flows over workers: every flow has its max-min share of the link whatever
//! worker it is on, streams keep their priority, fair rate, priority load and admission are those
//! of one worker.

use evenkeel_core::schedule::DisciplineConfig;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::workers::{PATIENCE, Router, Sends, Sent, Source};
use evenkeel_core::admit::{AdmissionConfig, EccmConfig};
use evenkeel_core::aqm::elastic::ElasticAqm;
use evenkeel_core::link::{Link, LinkConfig, LinkSink};
use evenkeel_core::reference::max_min;
use evenkeel_core::schedule::afan::AfanConfig;
use evenkeel_core::schedule::drr::DrrConfig;
use evenkeel_core::schedule::fq_codel::FqCodelConfig;
use evenkeel_core::schedule::pdrr::PdrrConfig;
use evenkeel_core::schedule::pfq::PfqConfig;
use evenkeel_core::share::SharedLink;
use evenkeel_core::{BitRate, Nanos, Reason};

const RATE: BitRate = BitRate::from_mbps(100);

const PFQ: fn() -> DisciplineConfig = || DisciplineConfig::Pfq(PfqConfig::default());
const PDRR: fn() -> DisciplineConfig = || DisciplineConfig::Pdrr(PdrrConfig::default());
/// Queues enough that no two flows meet.
const DRR: fn() -> DisciplineConfig =
    || DisciplineConfig::Drr(DrrConfig { queues: 65_536, ..DrrConfig::default() });
const FQ_CODEL: fn() -> DisciplineConfig =
    || DisciplineConfig::FqCodel(FqCodelConfig { queues: 65_536, ..FqCodelConfig::default() });
const AFAN: fn() -> DisciplineConfig = || DisciplineConfig::Afan(AfanConfig::default());

/// What the workers together may be ahead of the rate: the bytes of a window that may go ahead of
/// grants, those of one that go at once, and long frames of each.
fn ahead(workers: u64) -> u64 {
    let window = SharedLink::window_at(RATE).0 * RATE.0 / 8_000_000_000;
    2 * window + workers * 3 * 1538
}

/// Largest deviation from the max-min share of bytes on the wire over a second, relative; `demands`
/// in Mbit/s of IP bytes, by source.
fn error(router: &mut Router, demands: &[f64]) -> f64 {
    router.run(Nanos::from_millis(500));
    let before = router.sent();
    router.run(Nanos::SECOND);
    let got: Vec<f64> = router
        .sent()
        .iter()
        .zip(before)
        .map(|(after, before)| (after - before) as f64 * 8e-6)
        .collect();
    // What the wire takes for an IP byte of each.
    let wire = |source: &Source| (source.length.max(46) + 38) as f64 / source.length as f64;
    let on_wire = |(rate, source): (&f64, _)| rate * wire(source);
    let got: Vec<f64> = got.iter().zip(&router.sources).map(on_wire).collect();
    let used: f64 = got.iter().sum();
    assert!((0.99..1.005).contains(&(used / 100.0)), "{used} of 100 Mbit/s");
    let wanted = demands.iter().zip(&router.sources).map(on_wire);
    let fair = max_min(used, &wanted.map(|demand| (demand, 1.0)).collect::<Vec<_>>());
    let off = got.iter().zip(fair).map(|(got, fair)| (got / fair - 1.0).abs());
    off.fold(0.0, f64::max)
}

/// The spacing of packets of a flow that sends at this rate of IP bytes.
fn every(length: u64, mbps: f64) -> Sends {
    Sends::Every(Nanos((length as f64 * 8e3 / mbps) as u64))
}

#[test]
fn greedy_flows_share_alike_however_they_fall_on_workers() {
    let spreads: [&[usize]; 5] = [&[3, 30], &[1, 30], &[17, 16], &[1, 2, 10, 20], &[0, 7, 0, 1]];
    for discipline in [PDRR, PFQ, DRR, FQ_CODEL] {
        for spread in spreads {
            let mut router = Router::new(spread.len(), discipline(), RATE, None);
            for (worker, flows) in spread.iter().enumerate() {
                router.add_greedy(worker, *flows, 1_000);
            }
            let flows = router.sources.len();
            let off = error(&mut router, &vec![f64::MAX; flows]);
            assert!(off < 0.02, "{:?} {spread:?}: {off}", discipline());
            router.check(ahead(spread.len() as u64));
        }
    }
}

#[test]
fn windows_of_fifty_microseconds_share_alike_too() {
    let rate = BitRate(6_000_000_000);
    let mut router = Router::new(2, PDRR(), rate, None);
    for n in 0..32 {
        router.add(usize::from(n >= 20), 498, Sends::Greedy(24), Nanos::ZERO);
    }
    router.run(Nanos::from_millis(20));
    let before = router.sent();
    router.run(Nanos::from_millis(60));
    let got: Vec<f64> =
        router.sent().iter().zip(before).map(|(after, before)| (after - before) as f64).collect();
    let fair = got.iter().sum::<f64>() / 32.0;
    assert!(fair * 32.0 > 0.99 * rate.0 as f64 / 8.0 * 0.06 * 498.0 / 536.0, "{fair}");
    assert!(got.iter().all(|got| (got / fair - 1.0).abs() < 0.02), "{got:?}");
}

#[test]
fn lengths_of_packets_do_not_matter_over_workers_as_they_do_not_within_one() {
    for discipline in [PDRR, PFQ, DRR, FQ_CODEL] {
        let mut router = Router::new(3, discipline(), RATE, None);
        // A third of what the first worker's flows send is not IP.
        for (worker, flows, length) in [(0, 9, 80), (1, 3, 1_500), (2, 5, 500)] {
            for _ in 0..flows {
                router.add(worker, length, Sends::Greedy((8_000 / length) as usize), Nanos::ZERO);
            }
        }
        let off = error(&mut router, &[f64::MAX; 17]);
        assert!(off < 0.03, "{:?}: {off}", discipline());
        router.check(ahead(3));
    }
}

#[test]
fn flows_that_ask_for_less_get_it_and_one_alone_on_its_worker_does_not_get_more() {
    for discipline in [PDRR, PFQ, DRR, FQ_CODEL] {
        // Ten times the fair rate: each of its packets finds its worker empty, and the link full.
        let mut router = Router::new(2, discipline(), RATE, None);
        router.add(0, 1_000, every(1_000, 30.0), Nanos::ZERO);
        router.add_greedy(1, 30, 1_000);
        let mut demands = vec![f64::MAX; 31];
        demands[0] = 30.0;
        let off = error(&mut router, &demands);
        assert!(off < 0.02, "{:?}: {off}", discipline());
        router.check(ahead(2));
        // Some below their share, some above; lengths that differ.
        for workers in [1, 2, 4] {
            let mut router = Router::new(workers, discipline(), RATE, None);
            let mut demands = Vec::new();
            for n in 0..24usize {
                let length = [1_500, 300, 800][n % 3];
                let worker = [0, 0, 0, 1, 1, 2, 3][n % 7];
                if n < 12 {
                    let mbps = 0.4 + n as f64 * 0.25;
                    router.add(worker, length, every(length, mbps), Nanos(n as u64 * 77_000));
                    demands.push(mbps);
                } else {
                    router.add(worker, length, Sends::Greedy(12), Nanos::ZERO);
                    demands.push(f64::MAX);
                }
            }
            let off = error(&mut router, &demands);
            assert!(off < 0.02, "{workers} {:?}: {off}", discipline());
            router.check(ahead(workers as u64));
        }
    }
    // Many that ask for half of what the others have, in short packets, beside one of those.
    for discipline in [PDRR, PFQ, DRR, FQ_CODEL] {
        for length in [300, 1_500] {
            let mut router = Router::new(2, discipline(), RATE, None);
            let mut demands = vec![0.7; 80];
            for n in 0..80 {
                router.add(0, length, every(length, 0.7), Nanos(n * 43_000));
            }
            router.add_greedy(0, 1, 1_500);
            router.add_greedy(1, 20, 1_500);
            demands.extend([f64::MAX; 21]);
            let off = error(&mut router, &demands);
            assert!(off < 0.03, "{length} {:?}: {off}", discipline());
        }
    }
    // Sources that do not mind what is lost.
    let mut router = Router::new(2, PDRR(), RATE, None);
    let demands: Vec<f64> = (0..24).map(|n| 0.5 + f64::from(n) * 0.5).collect();
    for (n, mbps) in demands.iter().enumerate() {
        router.add(usize::from(n % 5 == 0), 1_000, every(1_000, *mbps), Nanos(n as u64 * 77_000));
    }
    let off = error(&mut router, &demands);
    assert!(off < 0.02, "{off}");
}

#[test]
fn afan_drops_fairly_over_workers_as_it_does_in_one() {
    // Each flow offers twice its share. What AFAN drops is drawn, so a flow is off its share by
    // some chance, as in one worker; what flows are due in all their worker has.
    for spread in [&[3, 30][..], &[1, 2, 10, 20]] {
        let off = |workers: usize| {
            let mut router = Router::new(workers, AFAN(), RATE, None);
            for (worker, flows) in spread.iter().enumerate() {
                for _ in 0..*flows {
                    let from = Nanos(1_000 * router.sources.len() as u64);
                    router.add(worker, 1_000, every(1_000, 2.0 * 100.0 / 33.0), from);
                }
            }
            router.run(Nanos::SECOND);
            let before = router.sent();
            router.run(Nanos::from_secs(4));
            router.check(ahead(4));
            let got: Vec<f64> = router
                .sent()
                .iter()
                .zip(&before)
                .map(|(after, before)| (after - before) as f64)
                .collect();
            let fair = got.iter().sum::<f64>() / 33.0;
            let part =
                |flows: &[f64]| (flows.iter().sum::<f64>() / flows.len() as f64 / fair - 1.0).abs();
            let (mut from, mut worker) = (0, 0.0_f64);
            for flows in spread {
                worker = worker.max(part(&got[from..from + *flows as usize]));
                from += *flows as usize;
            }
            (worker, got.iter().map(|flow| part(&[*flow])).fold(0.0, f64::max))
        };
        let (alone, together) = (off(1), off(spread.len()));
        assert!(together.0 < 0.02, "{spread:?} {together:?}");
        assert!(together.1 < alone.1 + 0.03, "{spread:?} {alone:?} {together:?}");
    }
}

#[test]
fn streams_keep_their_priority() {
    for discipline in [PDRR, PFQ, AFAN] {
        for workers in [1, 2, 4] {
            let mut router = Router::new(workers, discipline(), RATE, None);
            let streams: Vec<usize> = (0..12)
                .map(|n| {
                    router.add(
                        n,
                        160,
                        Sends::Every(Nanos::from_millis(10)),
                        Nanos(n as u64 * 830_000),
                    )
                })
                .collect();
            // Elastic flows on every worker but the last, and most on the first.
            for (worker, flows) in [20, 5, 1].into_iter().take(workers).enumerate() {
                router.add_greedy(worker, flows, 1_500);
            }
            router.run(Nanos::from_millis(500));
            router.sources.iter_mut().for_each(|source| source.worst_delay = Nanos::ZERO);
            router.run(Nanos::from_secs(2));
            router.check(ahead(workers as u64));
            // The packet on the wire of its worker, its own, and others that came before it: no
            // window, no grant.
            let long = RATE.time_for(evenkeel_core::Bytes(1_538));
            for stream in streams {
                let source = &router.sources[stream];
                assert_eq!(source.dropped, 0);
                // AFAN gives elastic flows that have nothing waiting priority, too, from time to
                // time.
                let others = if matches!(discipline(), DisciplineConfig::Afan(_)) { 4 } else { 2 };
                assert!(
                    source.worst_delay < long * others,
                    "{workers} {:?}: {}",
                    discipline(),
                    source.worst_delay
                );
            }
        }
    }
}

#[test]
fn more_streams_than_go_ahead_wait_for_a_window_and_not_for_elastic_flows() {
    let mut router = Router::new(2, PDRR(), RATE, None);
    router.add_greedy(1, 20, 1_500);
    router.run(Nanos::from_millis(500));
    // 60 flows begin at the first worker at the same instant: 92 kbytes with priority, 7.4 ms of
    // the link.
    let from = router.now;
    let streams: Vec<usize> =
        (0..60).map(|_| router.add(0, 1_500, Sends::Every(Nanos::SECOND), from)).collect();
    router.run(Nanos::from_millis(500));
    router.check(ahead(2));
    let burst = RATE.time_for(evenkeel_core::Bytes(60 * 1_538));
    let bound = burst + SharedLink::window_at(RATE) * 2;
    let worst = streams.iter().map(|stream| router.sources[*stream].worst_delay).max().unwrap();
    assert!(worst <= bound, "{worst} of {bound}");
}

/// Without priority over workers: a sparse flow waits for its grant, which is a window, and not for
/// the packets of the others.
#[test]
fn a_sparse_flow_of_drr_and_fq_codel_waits_for_a_window_and_its_turn() {
    for discipline in [DRR, FQ_CODEL] {
        for workers in [2, 4] {
            let mut router = Router::new(workers, discipline(), RATE, None);
            // One of them is alone on its worker.
            let sparse: Vec<usize> = (0..workers)
                .map(|n| {
                    let from = Nanos(n as u64 * 3_430_000);
                    router.add(n, 160, Sends::Every(Nanos::from_millis(13)), from)
                })
                .collect();
            router.add_greedy(0, 4, 1_500);
            router.run(Nanos::from_millis(500));
            router.sources.iter_mut().for_each(|source| source.worst_delay = Nanos::ZERO);
            router.run(Nanos::from_secs(2));
            router.check(ahead(workers as u64));
            let turn = RATE.time_for(evenkeel_core::Bytes(1_538)) * 6;
            let bound = SharedLink::window_at(RATE) + turn;
            for flow in sparse {
                let source = &router.sources[flow];
                assert_eq!(source.dropped, 0);
                let name = format!("{workers} workers, {:?}, {flow}", discipline());
                assert!(source.worst_delay <= bound, "{name}: {}", source.worst_delay);
            }
        }
    }
}

#[test]
fn a_queue_that_waits_for_its_grants_does_not_stand() {
    // A window of 9.8 ms, twice the target of CoDel, at which a flow has less than two windows.
    let rate = BitRate::from_mbps(10);
    let aqm = ElasticAqm::cobalt();
    let disciplines = [
        FQ_CODEL(),
        DisciplineConfig::Pdrr(PdrrConfig { aqm, ..PdrrConfig::default() }),
        DisciplineConfig::Pfq(PfqConfig { aqm, ..PfqConfig::default() }),
    ];
    for discipline in disciplines {
        let mut router = Router::new(2, discipline.clone(), rate, None);
        let flow = router.add(0, 1_500, Sends::Greedy(11), Nanos::ZERO);
        router.run(Nanos::from_secs(10));
        let source = &router.sources[flow];
        assert_eq!(source.dropped, 0, "{discipline:?}");
        let wire = source.sent_bytes as f64 * 1_538.0 / 1_500.0;
        assert!(wire > 0.99 * 12.5e6, "{discipline:?}: {wire}");
    }
}

#[test]
fn fair_rate_and_priority_load_are_the_links() {
    let config = AdmissionConfig { flows: 1_000, history: 512, ..AdmissionConfig::new(RATE) };
    for discipline in [PDRR, PFQ] {
        for (workers, greedy, streams) in
            [(1, 15, 20), (2, 15, 20), (4, 15, 20), (2, 4, 0), (4, 1, 0)]
        {
            let mut router = Router::new(workers, discipline(), RATE, Some(&config));
            for n in 0..streams {
                let from = Nanos(n as u64 * 430_000);
                router.add([0, 1, 1, 3][n % 4], 500, every(500, 0.4), from);
            }
            for n in 0..greedy {
                // Enough for two windows, also of one flow alone.
                let packets = 8.max(32 / greedy);
                router.add(
                    [0, 0, 0, 0, 1, 2][n % 6],
                    1_000,
                    Sends::Greedy(packets),
                    Nanos::from_millis(100),
                );
            }
            router.run(Nanos::from_secs(2));
            let wire = |length: f64| (length + 38.0) / length;
            let law = (100.0 - streams as f64 * 0.4 * wire(500.0)) / greedy as f64;
            let (mut rates, mut looks) = (0.0, 0.0);
            for _ in 0..6 {
                router.run(Nanos::from_millis(500));
                for worker in &router.workers {
                    let view = worker.admission.as_ref().unwrap().view();
                    let rate = view.fair_rate.0 as f64 / 1e6;
                    (rates, looks) = (rates + rate, looks + 1.0);
                    assert!(
                        (rate / law - 1.0).abs() < 0.04,
                        "{workers} {:?}: {rate} of {law}",
                        discipline()
                    );
                    let load = view.priority_load.0 as f64 / 1e6;
                    let offered = streams as f64 * 0.4 * wire(500.0) / 100.0;
                    assert!(
                        (load - offered).abs() <= 0.004,
                        "{workers} {:?}: {load} of {offered}",
                        discipline()
                    );
                }
            }
            let mean: f64 = rates / looks;
            assert!(
                (mean / law - 1.0).abs() < 0.015,
                "{workers} {:?}: {mean} of {law}",
                discipline()
            );
        }
    }
}

#[test]
fn an_idle_link_has_its_whole_rate_to_give() {
    let config = AdmissionConfig { flows: 1_000, history: 512, ..AdmissionConfig::new(RATE) };
    let mut router = Router::new(2, PDRR(), RATE, Some(&config));
    let last = router.add(1, 1_000, every(1_000, 20.0), Nanos::ZERO);
    router.run(Nanos::from_secs(2));
    // 20.8 % of the wire is used, by a stream.
    for worker in &router.workers {
        let rate = worker.admission.as_ref().unwrap().view().fair_rate.0;
        assert!((78_000_000..=80_000_000).contains(&rate), "{rate}");
    }
    assert!(router.sources[last].worst_delay < RATE.time_for(evenkeel_core::Bytes(1_100)));
    router.check(ahead(2));
}

/// New greedy flows and streams come all the time; who is in at the end?
fn admitted(workers: usize, discipline: DisciplineConfig, eccm: bool) -> (u32, f64) {
    let mut config =
        AdmissionConfig { flows: 1_000, history: 512, ..AdmissionConfig::published(RATE) };
    config.eccm =
        EccmConfig { on: eccm, max_accept_delay: Nanos::from_secs(2), ..EccmConfig::default() };
    let mut router = Router::new(workers, discipline, RATE, Some(&config));
    for n in 0..60u64 {
        // Three of four meet the first worker.
        let worker = [0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3][n as usize % 12];
        router.add(worker, 1_000, Sends::Greedy(8), Nanos::from_millis(137 * n));
    }
    let stream =
        router.add(1, 160, Sends::Every(Nanos::from_millis(10)), Nanos::from_millis(9_050));
    router.run(Nanos::from_secs(14));
    router.check(ahead(workers as u64));
    let waited = router.sources[stream].first_passed.map_or(f64::MAX, |passed| {
        (passed - router.sources[stream].first_offered.unwrap()).0 as f64 / 1e9
    });
    (router.protected(), waited)
}

#[test]
fn admission_lets_as_many_in_as_with_one_worker() {
    for discipline in [PDRR, PFQ] {
        let (one, waited) = admitted(1, discipline(), false);
        assert!((19..=26).contains(&one) && waited > 4.0, "{one} {waited}");
        for workers in [2, 4] {
            let (several, waited) = admitted(workers, discipline(), false);
            // Estimates are the same within their steps; a flow may come before or after one.
            assert!(
                several.abs_diff(one) <= 2,
                "{workers} {:?}: {several}, one worker {one}",
                discipline()
            );
            assert!(waited > 4.0, "{waited}");
            // ECCM opens each worker's door when flows there have waited long enough.
            let (_, waited) = admitted(workers, discipline(), true);
            assert!(waited <= 2.02, "{workers} {:?}: {waited}", discipline());
        }
    }
}

/// The fair rate of each interval from 1.25 s on, least first, in parts of min_FR, while so many
/// connections begin within half a second and go on, three of four at the first worker; and how
/// long ten streams that come at 3 s waited to be let in.
fn burst(
    workers: usize,
    discipline: DisciplineConfig,
    connections: u64,
    sends: Sends,
) -> (Vec<f64>, Vec<f64>) {
    let config = AdmissionConfig {
        flows: 1_000,
        history: 512,
        ..AdmissionConfig::new(BitRate::from_mbps(10))
    };
    let least = config.min_fair_bits() as f64;
    let mut router = Router::new(workers, discipline, config.rate, Some(&config));
    for n in 0..connections {
        let worker = usize::from(n % 4 == 3);
        let from = Nanos::from_millis(n * 500 / connections);
        router.add(worker, 1_462, sends, from);
    }
    let streams: Vec<usize> = (0..10)
        .map(|n| {
            let from = Nanos::from_millis(3_000 + 37 * n);
            router.add(n as usize, 100, Sends::Every(Nanos::from_millis(10)), from)
        })
        .collect();
    router.run(Nanos::from_millis(1_250));
    let mut rates = Vec::new();
    for _ in 0..58 {
        for worker in &router.workers {
            let view = worker.admission.as_ref().unwrap().view();
            // While it is forced, FR is not what was measured.
            if view.forced_until.is_none() {
                rates.push(view.fair_rate.0 as f64 / least);
            }
        }
        router.run(Nanos::from_millis(500));
    }
    rates.sort_by(f64::total_cmp);
    let waited = |stream: &usize| {
        let source = &router.sources[*stream];
        source
            .first_passed
            .map_or(f64::MAX, |passed| (passed - source.first_offered.unwrap()).0 as f64 / 1e9)
    };
    (rates, streams.iter().map(waited).collect())
}

#[test]
fn a_burst_of_connections_over_several_workers_does_not_lock_everybody_out() {
    for discipline in [PDRR, PFQ, AFAN] {
        for (workers, connections) in [(1, 35), (1, 100), (2, 35), (2, 100), (4, 35), (4, 100)] {
            let (rates, waited) = burst(workers, discipline(), connections, Sends::Greedy(16));
            let p5 = rates[rates.len() / 20];
            let longest = waited.iter().copied().fold(0.0, f64::max);
            let name = format!("{:?}, {workers} workers, {connections}", discipline());
            assert!(p5 >= 0.8 && longest <= 1.0, "{name}: p5 {p5:.2}, longest wait {longest:.2}");
        }
    }
}

/// Each worker has a buffer of its own. With 1000 packets in it the flows that were let in as
/// guests, and refused again, went on for seconds with what they had left there: FR's 5th
/// percentile was 0.74 of its minimum.
#[test]
fn flows_that_do_not_answer_leave_little_behind_in_buffers_bounded_in_time() {
    // 2 Mbit/s each, four times what admission promises.
    let sends = Sends::Every(Nanos::from_millis(6));
    let mut short = PdrrConfig::default();
    short.buffer.max_delay = Some(Nanos::from_millis(50));
    for (workers, connections) in [(2, 35), (2, 100), (4, 35)] {
        let discipline = DisciplineConfig::Pdrr(short);
        let (rates, waited) = burst(workers, discipline, connections, sends);
        let p5 = rates[rates.len() / 20];
        let longest = waited.iter().copied().fold(0.0, f64::max);
        let name = format!("{workers} workers, {connections}");
        assert!(p5 >= 0.8 && longest <= 1.0, "{name}: p5 {p5:.2}, longest wait {longest:.2}");
    }
}

#[test]
fn flows_that_begin_together_have_one_budget() {
    // 400 streams want in at once: what first packets may take is the link's, whoever lets them in.
    let passed = |workers: usize| {
        let config = AdmissionConfig {
            flows: 1_000,
            history: 512,
            ..AdmissionConfig::new(BitRate::from_mbps(10))
        };
        let mut router = Router::new(workers, PDRR(), BitRate::from_mbps(10), Some(&config));
        for n in 0..400 {
            router.add(n, 1_000, Sends::Every(Nanos::SECOND), Nanos::from_millis(7));
        }
        router.run(Nanos::from_millis(8));
        router.sources.iter().filter(|source| source.passed > 0).count()
    };
    let one = passed(1);
    assert!(one > 5 && one < 100, "{one}");
    for workers in [2, 4] {
        assert!(
            passed(workers).abs_diff(one) <= workers,
            "{workers}: {} of {one}",
            passed(workers)
        );
    }
}

#[test]
fn a_worker_that_stands_still_keeps_nobody_waiting() {
    for discipline in [PDRR, PFQ, AFAN, DRR, FQ_CODEL] {
        let mut router = Router::new(3, discipline(), RATE, None);
        for worker in 0..3 {
            router.add_greedy(worker, 10, 1_000);
        }
        router.run(Nanos::from_millis(300));
        router.workers[1].asleep = true;
        router.run(Nanos::from_millis(50));
        let before: u64 = router.sent().iter().sum();
        router.run(Nanos::from_millis(200));
        let sent = router.sent().iter().sum::<u64>() - before;
        let most = RATE.bytes_in(Nanos::from_millis(200)).0 * 1_000 / 1_038;
        assert!(
            sent * 100 >= most * 99 && sent * 100 <= most * 101,
            "{:?}: {sent} of {most}",
            discipline()
        );
        router.workers[1].asleep = false;
        router.run(Nanos::from_millis(50));
        let off = error(&mut router, &[f64::MAX; 30]);
        assert!(
            off < if matches!(discipline(), DisciplineConfig::Afan(_)) { 0.2 } else { 0.02 },
            "{off}"
        );
    }
}

#[test]
fn threads_keep_the_rate_and_every_packet() {
    // Each thread has a time of its own that goes at its own pace: what differs from run to run is
    // who opens a window.
    let (workers, rate) = (4, BitRate(10_000_000_000));
    let shared = Arc::new(SharedLink::new(workers, 1, PATIENCE));
    shared.set_rate(Some(rate));
    let start = std::time::Instant::now();
    let stop = AtomicBool::new(false);
    let results: Vec<u64> = std::thread::scope(|scope| {
        let run = |worker: usize| {
            let (shared, stop) = (Arc::clone(&shared), &stop);
            move || {
                let part = PDRR().build_part(1, shared, worker).unwrap();
                let mut link = Link::new(LinkConfig::paced(rate), part, 1).unwrap();
                let mut out = Count::default();
                let (mut offered, mut flow) = (0, 0);
                while !stop.load(Ordering::Relaxed) {
                    let now = Nanos(start.elapsed().as_nanos() as u64 + 1_000_000_000);
                    for _ in 0..32 {
                        flow = (flow + 1) % 100;
                        let source = flow * workers + worker;
                        let host = source as u32;
                        let packet = Sent { source, host, length: 1_500, arrival: now };
                        let _ = link.enqueue(now, packet, &mut out);
                        offered += 1;
                    }
                    link.advance(now, &mut out);
                }
                let held = link.held();
                assert_eq!(offered, out.sent + out.dropped + held.queued + held.in_ring);
                out.sent
            }
        };
        let threads: Vec<_> = (0..workers).map(|worker| scope.spawn(run(worker))).collect();
        std::thread::sleep(std::time::Duration::from_millis(300));
        stop.store(true, Ordering::Relaxed);
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let passed = start.elapsed().as_nanos() as f64;
    assert!(results.iter().all(|sent| *sent > 0), "{results:?}");
    // The rate, and what every worker may have saved.
    let saved = PATIENCE.0 as f64 * (workers + 1) as f64;
    let most = rate.0 as f64 / 8e9 * (passed + saved);
    let sum = results.iter().sum::<u64>() as f64 * 1_538.0;
    assert!(sum < most, "{sum} of {most}");
}

#[derive(Default)]
struct Count {
    sent: u64,
    dropped: u64,
}

impl LinkSink<Sent> for Count {
    fn transmitted(&mut self, _at: Nanos, _packet: Sent) {
        self.sent += 1;
    }
    fn dropped(&mut self, _at: Nanos, _packet: Sent, _reason: Reason) {
        self.dropped += 1;
    }
}
