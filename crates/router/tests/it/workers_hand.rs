//! Links that several workers cannot share: the first one has them for all, and the others hand it
//! their packets.

use std::collections::BTreeMap;

use evenkeel_config::RouterConfig;
use evenkeel_core::Nanos;
use evenkeel_router::pipeline::{Buffers, WorkerShares};
use evenkeel_router::{NodeQuery, Snapshot};

use crate::common::{Bed, Udp, headers, host_mac, router_mac, udp, v4};

/// What cannot be shared, each on a link of 50 Mbit/s of which it leaves `rate`.
fn links(list: &str) -> Vec<(&'static str, f64, String)> {
    let link = |rest: &str| format!("[[link]]\nport = \"p1\"\nrate = \"50Mbit/s\"\n{rest}");
    let tree = format!(
        "{}[[tree]]\nsubscribers = \"{list}\"\ndown = \"p1\"\nup = \"p0\"\n[[link]]\nport = \
         \"p0\"\nrate = \"1Gbit/s\"\n",
        link("")
    );
    vec![
        ("a tree", 20.0, tree),
        ("LCT-UC", 50.0, link("discipline = { kind = \"lct\", module2 = false }\n")),
        ("hosts", 50.0, link("discipline = { kind = \"pdrr\", fair = \"source\" }\n")),
        (
            "a shaper",
            20.0 * 1066.0 / 1028.0,
            link("shaper = { rate = \"20Mbit/s\", burst = \"2000B\" }\n"),
        ),
        (
            "the most active flows",
            50.0,
            link("discipline = { kind = \"pdrr\" }\n[link.admission]\nflushing = \"ramaf\"\n"),
        ),
    ]
}

const LIST: &str = "name,parent,prefixes,down,up\nann,,10.0.1.0/24,20Mbit/s,20Mbit/s\n";

/// Both workers are offered `each` packets of 1000 bytes in 100 us, of eight flows each, which say
/// their number; for so long. What came: by flow, its numbers.
fn offer(workers: &mut [Bed], each: usize, time: Nanos) -> BTreeMap<u16, Vec<u32>> {
    let mut came: BTreeMap<u16, Vec<u32>> = BTreeMap::new();
    let end = workers[0].now + time;
    let mut number = (workers[0].now.0 / 1_000) as u32;
    while workers[0].now < end {
        for (at, worker) in workers.iter_mut().enumerate() {
            for n in 0..each {
                let port = 5_000 + (at * 8 + n % 8) as u16;
                number += 1;
                let packet = Udp { port, payload: 1_000, ..Udp::default() };
                let macs = (host_mac(0), router_mac(0));
                let mut frame = udp(macs, v4(0, 2), v4(1, 2), packet);
                // The first bytes of the data.
                frame[42..46].copy_from_slice(&number.to_be_bytes());
                worker.inject(0, &frame);
            }
        }
        // In any order.
        let order: Vec<usize> = if number.is_multiple_of(3) { vec![0, 1] } else { vec![1, 0] };
        for at in order {
            workers[at].pass(Nanos::from_micros(100));
        }
        for worker in workers.iter_mut() {
            for frame in worker.received(1) {
                let flow = headers(&frame).flow.source_port;
                let number = frame[42..46].try_into().map(u32::from_be_bytes);
                came.entry(flow).or_default().push(number.unwrap());
            }
        }
    }
    came
}

fn all(workers: &mut [Bed]) -> Vec<Snapshot> {
    workers.iter_mut().map(Bed::snapshot).collect()
}

/// Packets handed on, taken, lost, and what is under way.
fn handed(snapshots: &[Snapshot]) -> [u64; 4] {
    let ports = || snapshots.iter().flat_map(|snapshot| &snapshot.ports);
    let [on, taken, lost] = [
        ports().map(|port| port.handed_on).sum::<u64>(),
        ports().map(|port| port.handed_in).sum::<u64>(),
        ports().map(|port| port.handed_lost).sum::<u64>(),
    ];
    [on, taken, lost, on - taken - lost]
}

#[test]
fn what_cannot_be_shared_is_as_exact_as_with_one_worker_and_keeps_the_order() {
    let folder = tempfile::tempdir().unwrap();
    let list = folder.path().join("list.csv");
    std::fs::write(&list, LIST).unwrap();
    for (what, rate, link) in links(&list.display().to_string()) {
        let mut workers = Bed::workers(2, &format!("[router]\nworkers = 2\n{link}"));
        // 2 x 2 packets in 100 us are 341 Mbit/s.
        offer(&mut workers, 2, Nanos::from_millis(100));
        let came = offer(&mut workers, 2, Nanos::from_millis(400));
        let packets: usize = came.values().map(Vec::len).sum();
        let wanted = rate * 1e6 / 8.0 / 1_066.0 * 0.4;
        assert!((packets as f64 / wanted - 1.0).abs() < 0.01, "{what}: {packets} of {wanted}");
        for (flow, numbers) in &came {
            assert!(numbers.is_sorted(), "{what}: flow {flow} was overtaken: {numbers:?}");
        }
        let snapshots = all(&mut workers);
        let [on, _, lost, under_way] = handed(&snapshots);
        assert!(on > 9_000 && lost == 0 && under_way < 10, "{what}: {:?}", handed(&snapshots));
        // Only the first worker's link has had anything.
        let of = |at: usize| &snapshots[at].link("p1").unwrap().classes[0];
        assert!(of(0).sent_packets > 0 && of(1).in_packets == 0, "{what}");
        assert!(snapshots[1].link("p1").unwrap().tree.is_none());
        // What waits is dropped at the end, and nothing is forgotten.
        workers.iter_mut().rev().for_each(|worker| worker.pipeline.stop(worker.now));
        let [on, taken, lost, under_way] = handed(&all(&mut workers));
        assert_eq!((on, under_way), (taken + lost, 0), "{what}");
    }
}

#[test]
fn a_worker_that_does_not_come_costs_counted_packets_and_no_memory() {
    let link = "[router]\nworkers = 2\n[[link]]\nport = \"p1\"\nrate = \"50Mbit/s\"\n\
                discipline = { kind = \"lct\", module2 = false }\n";
    let mut workers = Bed::workers(2, link);
    offer(&mut workers, 2, Nanos::from_millis(20));
    let before = handed(&all(&mut workers));
    // The first worker stands still.
    for _ in 0..400 {
        for n in 0..20 {
            workers[1].send(0, 1, Udp { port: 5_000 + n, payload: 1_000, ..Udp::default() });
        }
        workers[1].pass(Nanos::from_micros(100));
    }
    let after = handed(&all(&mut workers));
    let [on, lost, under_way] = [0, 2, 3].map(|at| after[at] - before[at]);
    assert_eq!(on, 8_000);
    assert!(lost > 0 && under_way <= 17 * 1_024, "{after:?}");
    workers[0].now = workers[1].now;
    workers[0].round();
    workers[1].round();
    workers[0].round();
    let [on, taken, lost, under_way] = handed(&all(&mut workers));
    assert_eq!((under_way, on), (0, taken + lost));
    // It goes on as before, once it has caught up.
    offer(&mut workers, 2, Nanos::from_millis(100));
    let came = offer(&mut workers, 2, Nanos::from_millis(400));
    let packets: usize = came.values().map(Vec::len).sum();
    let wanted = 50e6 / 8.0 / 1_066.0 * 0.4;
    assert!((packets as f64 / wanted - 1.0).abs() < 0.02, "{packets} of {wanted}");
}

#[test]
fn commands_reach_the_link_and_its_subscribers_whoever_has_it() {
    let folder = tempfile::tempdir().unwrap();
    let list = folder.path().join("list.csv");
    std::fs::write(&list, LIST).unwrap();
    let (_, _, link) = links(&list.display().to_string()).remove(0);
    let text = format!("[router]\nworkers = 2\n{link}");
    let mut workers = Bed::workers(2, &text);
    offer(&mut workers, 2, Nanos::from_millis(100));
    std::fs::write(&list, LIST.replace("20Mbit/s,20", "10Mbit/s,20")).unwrap();
    let config: RouterConfig = Bed::config(2, &text);
    // One after the other, with packets between.
    for at in 0..2 {
        let now = workers[at].now;
        workers[at].pipeline.reload(now, &config).unwrap();
        offer(&mut workers, 2, Nanos::from_millis(10));
    }
    offer(&mut workers, 2, Nanos::from_millis(200));
    let packets: usize =
        offer(&mut workers, 2, Nanos::from_millis(400)).values().map(Vec::len).sum();
    let wanted = 10e6 / 8.0 / 1_066.0 * 0.4;
    assert!((packets as f64 / wanted - 1.0).abs() < 0.01, "{packets} of {wanted}");
    let nodes = workers[0].pipeline.nodes(workers[0].now, &NodeQuery::Name("ann".into())).unwrap();
    assert!(nodes.iter().any(|node| node.link == "p1" && node.cap_bps == Some(10_000_000)));
}

#[test]
fn workers_take_over_from_one_and_one_from_them() {
    let link = "[[link]]\nport = \"p1\"\nrate = \"50Mbit/s\"\n\
                discipline = { kind = \"lct\", module2 = false }\n";
    let two = format!("[router]\nworkers = 2\n{link}");
    let mut one = Bed::new(2, link);
    for n in 0..200 {
        one.send(0, 1, Udp { port: 5_000 + n % 8, payload: 1_000, ..Udp::default() });
    }
    one.pass(Nanos::from_micros(100));
    let mut workers = Bed::workers(2, &two);
    let now = one.now;
    workers.iter_mut().for_each(|worker| worker.now = now);
    workers[0].pipeline.take_over(now, one.pipeline, Buffers::Copied);
    let packets: usize =
        offer(&mut workers, 2, Nanos::from_millis(400)).values().map(Vec::len).sum();
    let wanted = 50e6 / 8.0 / 1_066.0 * 0.4;
    assert!((packets as f64 / wanted - 1.0).abs() < 0.02, "{packets} of {wanted}");
    assert!(WorkerShares::for_workers(&Bed::config(2, link)).unwrap().is_empty());
}
