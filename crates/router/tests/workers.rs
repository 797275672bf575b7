//! Pipelines of several workers of one router, stepped by hand: what they share, and what commands do to it.

mod common;

use common::{Bed, Udp};
use evenkeel_config::{RouterConfig, parse_discipline};
use evenkeel_core::schedule::Knob;
use evenkeel_core::{BitRate, Class, Nanos, Weight};
use evenkeel_router::CommandError;

const ROUTER: &str = "[router]\nworkers = 2\n[[class]]\nname = \"light\"\n[[class]]\nname = \"heavy\"\n\
    match = [{ dscp = [8] }]\n\
    [[link]]\nport = \"p1\"\nrate = \"100Mbit/s\"\n\
    discipline = { kind = \"wfq-altq\", limit = 60, weight = { light = 100, heavy = 300 } }\n";

/// Lets time pass; both workers are offered more than the link carries: the first only light packets, the second both.
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
            *all += class.sent_bytes;
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
        worker.pipeline.set(now, "p1", Knob::Weight(Class(0), Weight(300))).unwrap();
        worker.pipeline.set_rate(now, "p1", Some(BitRate::from_mbps(50))).unwrap();
    }
    let [light, heavy] = window(&mut workers);
    near(heavy / light, 1.0);
    near(light + heavy, 1.25e6 * wire);

    // A FIFO: one class, the rate is common.
    let fifo = parse_discipline("{ kind = \"fifo\", limit = 50 }", &["light", "heavy"]).unwrap();
    let now = workers[0].now;
    for worker in &mut workers {
        worker.pipeline.swap(now, "p1", fifo.clone()).unwrap();
    }
    let [light, heavy] = window(&mut workers);
    near(light + heavy, 1.25e6 * wire);

    let lct = parse_discipline("{ kind = \"lct\" }", &["light", "heavy"]).unwrap();
    let refused = workers[0].pipeline.swap(now, "p1", lct);
    assert!(matches!(refused, Err(CommandError::Invalid(text)) if text.contains("workers = 1")));
    let refused = workers[0].pipeline.set_fairdrop("on", "true");
    assert!(matches!(refused, Err(CommandError::Invalid(text)) if text.contains("workers = 1")));
    for worker in &mut workers {
        worker.pipeline.set_fairdrop("bandwidth", "false").unwrap();
        worker.pipeline.set_fairdrop("on", "true").unwrap();
    }
    let text = ROUTER.to_owned()
        + "[[port]]\nname = \"p0\"\ninterface = \"eth0\"\n[[port]]\nname = \"p1\"\ninterface = \"eth1\"\n";
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
