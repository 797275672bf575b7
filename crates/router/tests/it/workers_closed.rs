//! Links closed to new flows that several workers share: lists are cleared by all of them, and
//! flows leave for a second link that all of them, or the first one alone, send on; users start as
//! many flows as they may at all workers together.

use evenkeel_config::parse_change;
use evenkeel_core::Nanos;
use evenkeel_router::{CommandError, Snapshot};

use crate::common::{Bed, Udp, headers};

/// A router with several workers whose port `p1` has 20 Mbit/s, PDRR and admission with these keys,
/// as published; what is in `rest` besides.
fn bed(workers: usize, keys: &str, rest: &str) -> Vec<Bed> {
    let text = format!(
        "[router]\nworkers = {workers}\n[[link]]\nport = \"p1\"\nrate = \"20Mbit/s\"\n\
         discipline = {{ kind = \"pdrr\" }}\n[link.admission]\nmin_fair_rate = 0.1\n\
         max_priority_load = 1.0\nfair_rate_interval = \"100ms\"\nbudget = false\n\
         expected_flows = false\nnewcomer_share = 0.0\neccm = false\n{keys}\n{rest}"
    );
    Bed::workers(3, &text)
}

/// Lets time pass in steps of 1 ms; flow `n`, a port from 5000 on, meets worker `n` of several by
/// turns, and sends 1000 bytes every 2 ms: 4 Mbit/s.
fn offer(workers: &mut [Bed], flows: std::ops::Range<u16>, time: Nanos) {
    let end = workers[0].now + time;
    let mut step = 0;
    while workers[0].now < end {
        step += 1;
        for flow in flows.clone().filter(|flow| (flow + step) % 2 == 0) {
            let at = usize::from(flow) % workers.len();
            workers[at].send(0, 1, Udp { port: 5_000 + flow, payload: 972, ..Udp::default() });
        }
        // The first one comes last: it has what the others hand it.
        for worker in workers.iter_mut().rev() {
            worker.pass(Nanos::from_millis(1));
            // So that the wire to the host is never full.
            let _ = worker.received(1);
        }
    }
}

fn all(workers: &mut [Bed]) -> Vec<Snapshot> {
    workers.iter_mut().map(Bed::snapshot).collect()
}

/// By worker, how many flows a clearing has taken off its list; and how many clearings there were.
fn cleared(workers: &mut [Bed]) -> (Vec<u64>, u64) {
    let mut clearings = 0;
    let mut of = |snapshot: Snapshot| {
        let admission = snapshot.link("p1").unwrap().admission.clone().unwrap();
        clearings += admission.clearings;
        admission.removed.get("flushed").copied().unwrap_or(0)
    };
    let removed = all(workers).into_iter().map(&mut of).collect();
    (removed, clearings)
}

#[test]
fn a_list_is_cleared_by_all_workers_at_once_and_as_often_as_by_one() {
    let mut counts = Vec::new();
    for count in [1, 2] {
        let mut workers = bed(count, "flushing = \"efm\"\nflush_interval = \"500ms\"", "");
        for flows in [4, 12] {
            offer(&mut workers, 0..flows, Nanos::from_millis(400));
        }
        // Whoever is in stays in until the next clearing: it takes newcomers to bring that about.
        for more in 1..=4 {
            offer(&mut workers, 0..12 + 6 * more, Nanos::from_millis(500));
        }
        let (removed, clearings) = cleared(&mut workers);
        assert!(removed.iter().all(|removed| *removed > 5), "{count}: {removed:?}");
        counts.push(clearings);
        workers.iter_mut().rev().for_each(|worker| worker.pipeline.stop(worker.now));
        all(&mut workers);
    }
    assert!((3..=6).contains(&counts[0]) && counts[0].abs_diff(counts[1]) <= 1, "{counts:?}");
}

#[test]
fn flushing_may_be_switched_on_and_off_where_workers_share_but_not_to_the_most_active() {
    let mut workers = bed(2, "", "");
    let set = |workers: &mut [Bed], value: &str| {
        let change = parse_change("admission.flushing", None, value, &[]).unwrap().on("p1");
        let of = |bed: &mut Bed| bed.pipeline.change(bed.now, &change);
        workers.iter_mut().map(of).collect::<Result<Vec<_>, _>>()
    };
    offer(&mut workers, 0..24, Nanos::from_millis(800));
    assert_eq!(cleared(&mut workers), (vec![0, 0], 0));
    set(&mut workers, "efm").unwrap();
    offer(&mut workers, 0..48, Nanos::from_millis(100));
    let (removed, clearings) = cleared(&mut workers);
    assert!(removed.iter().all(|removed| *removed > 0) && clearings == 1, "{removed:?}");
    for kind in ["ramaf", "rmaef"] {
        let refused = set(&mut workers, kind);
        assert!(matches!(refused, Err(CommandError::NeedsReload(_))), "{refused:?}");
    }
    set(&mut workers, "off").unwrap();
    offer(&mut workers, 0..48, Nanos::from_secs(6));
    assert_eq!(cleared(&mut workers), (removed, 1));
}

/// The flows that came to host 2, and packets of each worker that left by the second link.
fn second(workers: &mut [Bed], flows: std::ops::Range<u16>, time: Nanos) -> (Vec<u16>, Vec<u64>) {
    let end = workers[0].now + time;
    let mut came: Vec<u16> = Vec::new();
    while workers[0].now < end {
        offer(workers, flows.clone(), Nanos::from_millis(20));
        for worker in workers.iter_mut() {
            let out = worker.received(2);
            came.extend(out.iter().map(|frame| headers(frame).flow.source_port - 5_000));
        }
    }
    came.sort_unstable();
    came.dedup();
    let sent = |snapshot: &Snapshot| snapshot.link("p2").unwrap().classes[0].sent_packets;
    (came, all(workers).iter().map(sent).collect())
}

#[test]
fn flows_of_all_workers_leave_by_a_second_link_whoever_has_that() {
    let keys = "second_link = \"p2\"\nsecond_via = \"10.0.2.2\"";
    let link = |rest: &str| format!("[[link]]\nport = \"p2\"\nrate = \"50Mbit/s\"\n{rest}");
    // Its own admission is not asked: who comes by a second link has been let in.
    let most_active = "discipline = { kind = \"pdrr\" }\n[link.admission]\nper_user = true\n\
                       user_flows = 1\nglobal_list = false\nflushing = \"ramaf\"\n";
    for (rest, is_shared) in [(String::new(), true), (most_active.to_owned(), false)] {
        let mut workers = bed(2, keys, &link(&rest));
        offer(&mut workers, 0..12, Nanos::from_millis(800));
        let (came, sent) = second(&mut workers, 0..20, Nanos::from_millis(400));
        assert!(came.len() >= 6, "{came:?}");
        let by = |worker: u16| came.iter().filter(|flow| **flow % 2 == worker).count();
        assert!(by(0) >= 3 && by(1) >= 3, "of both workers: {came:?}");
        assert!(sent[0] > 100 && (sent[1] > 100) == is_shared, "{sent:?}");
        workers.iter_mut().rev().for_each(|worker| worker.pipeline.stop(worker.now));
        all(&mut workers);
    }
}

/// For so long each worker meets a new flow of the same user in each millisecond. How many flows
/// all of them have let in, and refused for the user's quota.
fn start(workers: &mut [Bed], time: Nanos, port: &mut u16) -> [u64; 2] {
    let counts = |workers: &mut [Bed]| {
        let mut sums = [0; 2];
        for snapshot in all(workers) {
            let admission = snapshot.link("p1").unwrap().admission.clone().unwrap();
            sums[0] += admission.admissions;
            sums[1] += admission.refused.get("user_quota").copied().unwrap_or(0);
        }
        sums
    };
    let before = counts(workers);
    let end = workers[0].now + time;
    while workers[0].now < end {
        for worker in workers.iter_mut() {
            *port += 1;
            worker.send(0, 1, Udp { port: *port, payload: 18, ..Udp::default() });
            worker.pass(Nanos::from_millis(1));
        }
    }
    let after = counts(workers);
    [0, 1].map(|at| after[at] - before[at])
}

#[test]
fn a_user_starts_n_flows_at_all_workers_together_and_that_may_be_set_while_they_share() {
    let mut workers = bed(2, "per_user = true\nuser_flows = 3", "");
    let set = |workers: &mut [Bed], key: &str, value: &str| {
        let change = parse_change(key, None, value, &[]).unwrap().on("p1");
        for worker in workers {
            worker.pipeline.change(worker.now, &change).unwrap();
        }
    };
    let (second, port) = (Nanos::from_secs(1), &mut 10_000);
    // Ten intervals, and one that has begun before.
    let all_of = |admitted: u64, most: u64| (10 * most..=11 * most).contains(&admitted);
    let [admitted, refused] = start(&mut workers, second, port);
    assert!(all_of(admitted, 3) && refused == 2_000 - admitted, "{admitted}, {refused}");
    for (key, value, most) in [
        ("admission.user_flows", "5", 5),
        ("admission.users", "50", 5),
        ("admission.user_ipv4_prefix", "24", 5),
    ] {
        set(&mut workers, key, value);
        let [admitted, refused] = start(&mut workers, second, port);
        assert!(all_of(admitted, most), "{key}: {admitted}");
        assert_eq!(admitted + refused, 2_000, "{key}");
    }
    set(&mut workers, "admission.per_user", "false");
    assert_eq!(start(&mut workers, second, port), [2_000, 0]);
    set(&mut workers, "admission.per_user", "true");
    let [admitted, refused] = start(&mut workers, second, port);
    assert!(all_of(admitted, 5), "{admitted}");
    assert_eq!(admitted + refused, 2_000);
    // Both have had some, and each tells its own.
    let users = all(&mut workers).into_iter().map(|snapshot| {
        let admission = snapshot.link("p1").unwrap().admission.clone().unwrap();
        admission.users.iter().map(|user| user.flows).sum::<u64>()
    });
    assert!((1..=5).contains(&users.sum::<u64>()));
}
