//! Pipelines of several workers of one router, stepped by hand: what they share, and what commands
//! do to it.

use crate::common::{self, Bed, Udp, set_fairdrop};
use evenkeel_config::{LinkChange, RouterConfig, parse_discipline};
use evenkeel_core::settings;
use evenkeel_core::{BitRate, Class, Nanos, Weight};
use evenkeel_router::CommandError;
use evenkeel_router::pipeline::Buffers;

const ROUTER: &str = "[router]\nworkers = 2\n[[class]]\nname = \"light\"\n[[class]]\nname = \
                      \"heavy\"\n\
    match = [{ dscp = [8] }]\n\
    [[link]]\nport = \"p1\"\nrate = \"100Mbit/s\"\n\
    discipline = { kind = \"wfq-altq\", limit = 60, weight = { light = 100, heavy = 300 } }\n";

/// Lets time pass; both workers are offered more than the link carries: the first only light
/// packets, the second both.
fn overload(workers: &mut [Bed], time: Nanos) {
    let end = workers[0].now + time;
    while workers[0].now < end {
        for (worker, codes) in [(0, &[0, 0][..]), (1, &[0, 8, 8])] {
            for dscp in codes {
                workers[worker].send(0, 1, Udp { dscp: *dscp, payload: 1000, ..Udp::default() });
            }
            workers[worker].pass(Nanos::from_micros(100));
            workers[worker].received(1);
        }
    }
}

/// Bytes that both have sent by class.
fn sent(workers: &mut [Bed]) -> [u64; 2] {
    let mut all = [0; 2];
    for worker in workers {
        let snapshot = worker.snapshot();
        for (all, class) in all.iter_mut().zip(&snapshot.link("p1").unwrap().classes) {
            *all += class.sent_bytes.0;
        }
    }
    all
}

/// What both send in 200 ms, by class.
fn window(workers: &mut [Bed]) -> [f64; 2] {
    overload(workers, Nanos::from_millis(20));
    let before = sent(workers);
    overload(workers, Nanos::from_millis(200));
    let after = sent(workers);
    [0, 1].map(|class| (after[class] - before[class]) as f64)
}

fn near(value: f64, wanted: f64) {
    assert!((value / wanted - 1.0).abs() < 0.01, "{value}, not {wanted}");
}

#[test]
fn workers_share_a_link_and_every_command_changes_it_for_all() {
    let mut workers = Bed::workers(2, ROUTER);
    // A packet of 1028 bytes takes 1066 on the wire.
    let wire = 1028.0 / 1066.0;
    let [light, heavy] = window(&mut workers);
    near(heavy / light, 3.0);
    near(light + heavy, 2.5e6 * wire);

    let now = workers[0].now;
    for worker in &mut workers {
        worker
            .pipeline
            .change(
                now,
                &LinkChange::Setting(settings::Change::of("weight", Class(0), Weight(300)))
                    .on("p1"),
            )
            .unwrap();
        worker
            .pipeline
            .change(
                now,
                &LinkChange::Wire(settings::Change::new("rate", Some(BitRate::from_mbps(50))))
                    .on("p1"),
            )
            .unwrap();
    }
    let [light, heavy] = window(&mut workers);
    near(heavy / light, 1.0);
    near(light + heavy, 1.25e6 * wire);

    // A FIFO: one class, the rate is common.
    let fifo = parse_discipline("{ kind = \"fifo\", limit = 50 }", &["light", "heavy"]).unwrap();
    let now = workers[0].now;
    for worker in &mut workers {
        worker.pipeline.change(now, &LinkChange::Discipline(fifo.clone()).on("p1")).unwrap();
    }
    let [light, heavy] = window(&mut workers);
    near(light + heavy, 1.25e6 * wire);

    // LCT-UC is shared as long as it holds every class.
    let lct = "{ kind = \"lct\", limit = 50, x_delay = { light = \"4ms\" } }";
    let lct = parse_discipline(lct, &["light", "heavy"]).unwrap();
    for worker in &mut workers {
        worker.pipeline.change(now, &LinkChange::Discipline(lct.clone()).on("p1")).unwrap();
    }
    let [light, heavy] = window(&mut workers);
    near(light + heavy, 1.25e6 * wire);
    assert!((light / 1028.0 - 50.0).abs() < 2.0, "a packet in 4 ms over both: {light}");
    let module2 = settings::Change::new("module2", settings::Value::Switch(false));
    let refused = workers[0].pipeline.change(now, &LinkChange::Setting(module2).on("p1"));
    assert!(matches!(refused, Err(CommandError::NeedsReload(_))), "{refused:?}");
    let lct = parse_discipline("{ kind = \"lct\", module2 = false }", &["light", "heavy"]).unwrap();
    let refused = workers[0].pipeline.change(now, &LinkChange::Discipline(lct).on("p1"));
    assert!(matches!(refused, Err(CommandError::NeedsReload(_))), "{refused:?}");
    // Hosts are told apart by a table of all workers, or one of them has the link.
    for (fair, shared) in [("source-flow", true), ("host-flow", false), ("source", false)] {
        let text = format!("{{ kind = \"pdrr\", fair = {fair:?} }}");
        let pdrr = parse_discipline(&text, &["light", "heavy"]).unwrap();
        let change = LinkChange::Discipline(pdrr).on("p1");
        for worker in &mut workers {
            let changed = worker.pipeline.change(now, &change);
            let refused = matches!(changed, Err(CommandError::NeedsReload(_)));
            assert_eq!((changed.is_ok(), refused), (shared, !shared), "{fair}: {changed:?}");
        }
    }
    let [light, heavy] = window(&mut workers);
    near(light + heavy, 1.25e6 * wire);
    for worker in &mut workers {
        set_fairdrop(worker, "groups", "class").unwrap();
        set_fairdrop(worker, "bandwidth", "false").unwrap();
        set_fairdrop(worker, "on", "true").unwrap();
    }
    let text = ROUTER.to_owned()
        + "[[port]]\nname = \"p0\"\ninterface = \"eth0\"\n[[port]]\nname = \"p1\"\ninterface = \
           \"eth1\"\n";
    let config = RouterConfig::parse(&text, "r.toml").unwrap_or_else(|errors| panic!("{errors}"));
    for worker in &mut workers {
        worker.pipeline.reload(now, &config).unwrap();
    }
    let [light, heavy] = window(&mut workers);
    near(heavy / light, 3.0);
    near(light + heavy, 2.5e6 * wire);
    for worker in &mut workers {
        worker.pipeline.stop(worker.now);
        worker.snapshot();
    }
}

/// The worker that a flow meets: three of four the first.
fn meets(flow: usize, workers: usize) -> usize {
    usize::from(flow % 4 == 3) % workers
}

/// Lets time pass in steps of 100 us; each flow is a port, and sends a packet of `payload` bytes
/// every `spacing` steps.
fn flows_send(workers: &mut [Bed], flows: usize, spacing: usize, time: Nanos) {
    let end = workers[0].now + time;
    let mut step = 0;
    while workers[0].now < end {
        for flow in (0..flows).filter(|flow| (flow + step) % spacing == 0) {
            let packet = Udp { port: 5000 + flow as u16, payload: 1000, ..Udp::default() };
            let at = meets(flow, workers.len());
            workers[at].send(0, 1, packet);
        }
        for worker in workers.iter_mut() {
            worker.pass(Nanos::from_micros(100));
        }
        step += 1;
    }
}

/// Packets received since the last call, by flow.
fn by_flow(workers: &mut [Bed], flows: usize) -> Vec<f64> {
    let mut counts = vec![0.0; flows];
    for worker in workers {
        for frame in worker.received(1) {
            counts[usize::from(common::headers(&frame).flow.source_port) - 5000] += 1.0;
        }
    }
    counts
}

fn several(workers: usize, rest: &str) -> Vec<Bed> {
    let router = format!("[router]\nworkers = {workers}\n{rest}");
    Bed::workers(2, &router)
}

/// What flows receive per second, having let the queues fill: read often, as the wire to the host
/// is short.
fn settled(workers: &mut [Bed], flows: usize) -> Vec<f64> {
    let mut sum = vec![0.0; flows];
    for part in 0..60 {
        flows_send(workers, flows, 4, Nanos::from_millis(10));
        let counts = by_flow(workers, flows);
        if part >= 20 {
            sum.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count / 0.4);
        }
    }
    sum
}

#[test]
fn flows_share_a_link_by_pdrr_drr_and_fairdrop_wherever_they_are() {
    let drr = "discipline = { kind = \"drr\", queues = 65536 }\n";
    let fq_codel = "discipline = { kind = \"fq-codel\", queues = 65536 }\n";
    let pdrr = "discipline = { kind = \"pdrr\" }\n";
    // All are of one host, which both workers know as the same.
    let host = "discipline = { kind = \"pdrr\", fair = \"source-flow\" }\n";
    let fairdrop = "discipline = { kind = \"fifo\", limit = 400 }\n[fairdrop]\ncpu = false\n";
    for rest in [pdrr, host, drr, fq_codel, fairdrop] {
        for count in [1, 2] {
            let rest = format!("[[link]]\nport = \"p1\"\nrate = \"100Mbit/s\"\n{rest}");
            let mut workers = several(count, &rest);
            // 12 flows that offer 2.5 times what there is, nine of them at the first worker.
            let got = settled(&mut workers, 12);
            let fair = 100e6 / 8.0 / 1066.0 / 12.0;
            for (flow, got) in got.iter().enumerate() {
                assert!(
                    (got / fair - 1.0).abs() < 0.05,
                    "{count} workers, flow {flow}: {got} of {fair}: {rest}"
                );
            }
            for worker in &mut workers {
                worker.pipeline.stop(worker.now);
                worker.snapshot();
            }
        }
    }
}

#[test]
fn admission_refuses_by_the_load_of_the_whole_link() {
    let rest = "[[link]]\nport = \"p1\"\nrate = \"100Mbit/s\"\ndiscipline = { kind = \"pdrr\" }\n\
                [link.admission]\nfair_rate_interval = \"100ms\"\nmin_fair_rate = \
                0.1\nmax_priority_load = 1.0\n";
    let mut protected = Vec::new();
    for count in [1, 2] {
        let mut workers = several(count, rest);
        // One more flow every 200 ms: with more than ten the fair rate is too low.
        for flows in 1..=20 {
            for _ in 0..20 {
                flows_send(&mut workers, flows, 4, Nanos::from_millis(10));
                by_flow(&mut workers, flows);
            }
        }
        let (mut sum, mut refused) = (0, 0);
        for worker in &mut workers {
            let snapshot = worker.snapshot();
            let admission = snapshot.link("p1").unwrap().admission.clone().unwrap();
            assert_eq!(
                admission.packets,
                admission.passed.values().sum::<u64>() + admission.refused_total()
            );
            assert!(admission.fair_rate_bps < 10_000_000, "{}", admission.fair_rate_bps);
            sum += admission.protected;
            refused += admission.refused_total();
            // Each knows of its own flows, and says that it does.
            let told = worker.pipeline.flows(worker.now, Some("p1"), 100).unwrap();
            assert_eq!(told.len() as u64, admission.protected);
            let ours = told[0].flow.parse().unwrap();
            let text = worker.pipeline.explain(worker.now, Some("p1"), &ours).unwrap();
            assert_eq!(text.contains(", worker "), count > 1, "{text}");
            let other = "10.0.0.2:1->10.0.1.2:1/udp".parse().unwrap();
            let text = worker.pipeline.explain(worker.now, Some("p1"), &other).unwrap();
            assert_eq!(text.contains("link p1"), count == 1, "{text}");
        }
        assert!(refused > 0);
        protected.push(sum);
    }
    assert!(
        (9..=12).contains(&protected[0]) && protected[0].abs_diff(protected[1]) <= 1,
        "{protected:?}"
    );
}

#[test]
fn a_link_changes_from_classes_to_flows_and_back_while_it_is_full() {
    let mut workers = several(
        2,
        "[[link]]\nport = \"p1\"\nrate = \"100Mbit/s\"\ndiscipline = { kind = \"fifo\", limit = \
         200 }\n",
    );
    let kinds =
        ["pfq", "wfq-altq", "drr", "fifo", "priority", "fq-codel", "afan", "codel", "qfq", "pdrr"];
    for kind in kinds {
        for turn in 0..3 {
            flows_send(&mut workers, 12, 4, Nanos::from_millis(10));
            by_flow(&mut workers, 12);
            if turn == 1 {
                let discipline =
                    parse_discipline(&format!("{{ kind = {kind:?} }}"), &["default"]).unwrap();
                for worker in &mut workers {
                    worker
                        .pipeline
                        .change(worker.now, &LinkChange::Discipline(discipline.clone()).on("p1"))
                        .unwrap();
                }
            }
        }
        for worker in &mut workers {
            worker.snapshot();
        }
    }
    let got = settled(&mut workers, 12);
    let fair = 100e6 / 8.0 / 1066.0 / 12.0;
    for (flow, got) in got.iter().enumerate() {
        assert!((got / fair - 1.0).abs() < 0.05, "flow {flow}: {got} of {fair}");
    }
}

#[test]
fn the_budget_of_first_packets_is_one_also_after_workers_have_taken_the_place_of_one() {
    let rest = "[[link]]\nport = \"p1\"\nrate = \"10Mbit/s\"\ndiscipline = { kind = \"pdrr\" \
                }\n[link.admission]\n";
    // 200 flows want in at once.
    let admitted = |workers: &mut [Bed]| -> u64 {
        let count = workers.len();
        for flow in 0..200 {
            let packet = Udp { port: 6000 + flow as u16, payload: 900, ..Udp::default() };
            workers[flow % count].send(0, 1, packet);
        }
        for worker in workers.iter_mut() {
            worker.pass(Nanos::from_micros(100));
        }
        let admissions = |worker: &mut Bed| {
            worker.snapshot().link("p1").unwrap().admission.as_ref().unwrap().admissions
        };
        workers.iter_mut().map(admissions).sum()
    };
    let one = admitted(&mut several(1, rest));
    assert!((2..100).contains(&one), "{one}");
    let mut workers = several(2, rest);
    let old = several(1, rest).remove(0);
    let now = workers[0].now;
    workers[0].pipeline.take_over(now, old.pipeline, Buffers::Copied);
    let two = admitted(&mut workers);
    assert!(two.abs_diff(one) <= 1, "{two}, one worker {one}");
}

/// F15: each worker answered as often as the port may.
#[test]
fn f15_what_a_port_may_answer_each_second_is_the_ports_not_each_workers() {
    let mut workers = Bed::workers(4, "[router]\nworkers = 4\nicmp_per_second = 100");
    let mut answered = 0;
    // The burst of ten is each worker's.
    for second in 0..2 {
        for _ in 0..100 {
            for worker in &mut workers {
                worker.send(0, 1, Udp { ttl: 1, ..Udp::default() });
                worker.pass(Nanos::from_millis(10));
                let came = worker.received(0).len();
                answered += if second == 1 { came } else { 0 };
            }
        }
    }
    assert_eq!(answered, 100);
}
