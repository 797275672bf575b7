//! The counters of several workers as those of one router.

use crate::command::{Command, Reply};
use crate::snapshot::{
    AdmissionSnapshot, ClassSnapshot, CycleSnapshot, Drops, FairDropSnapshot, FlowSnapshot, LinkSnapshot,
    PortSnapshot, Snapshot,
};

/// The answers of several workers to a question about flows, each of which one of them meets: all that they tell.
pub(crate) fn merged_replies(replies: Vec<Reply>, command: &Command) -> Reply {
    let (mut flows, mut text, mut sentences) = (Vec::new(), String::new(), false);
    for reply in replies {
        match reply {
            Reply::Flows(more) => flows.extend(more),
            Reply::Text(more) => {
                text.push_str(&more);
                sentences = true;
            }
            Reply::Done | Reply::Snapshot(_) => {}
        }
    }
    if let Command::Flows { top, .. } = command {
        flows.sort_unstable_by(FlowSnapshot::busiest_first);
        flows.truncate(*top);
    }
    match (sentences, text.is_empty()) {
        (false, _) => Reply::Flows(flows),
        (true, false) => Reply::Text(text),
        (true, true) => Reply::Text(
            "no worker remembers anything of it: its next packet is decided upon like that of a new flow\n"
                .into(),
        ),
    }
}

/// The sum over the workers of a router, each as it was within the same milliseconds. What is not a count comes from the first, which
/// looks after the interfaces. Of a single worker: its own.
pub(crate) fn merged(mut workers: Vec<Snapshot>) -> Snapshot {
    if workers.len() <= 1 {
        return workers.pop().unwrap_or_default();
    }
    let mut all = workers[0].clone();
    for worker in &workers[1..] {
        add(&mut all, worker);
    }
    all.workers = workers;
    all
}

fn add(all: &mut Snapshot, worker: &Snapshot) {
    all.time_ns = all.time_ns.max(worker.time_ns);
    all.buffers.total += worker.buffers.total;
    all.buffers.free += worker.buffers.free;
    all.buffers.lent += worker.buffers.lent;
    all.ports.iter_mut().zip(&worker.ports).for_each(|(all, port)| add_port(all, port));
    all.links.iter_mut().zip(&worker.links).for_each(|(all, link)| add_link(all, link));
    if let (Some(all), Some(cycles)) = (&mut all.cycles, &worker.cycles) {
        add_cycles(all, cycles);
    }
    for (all, service) in all.services.iter_mut().zip(&worker.services) {
        all.packets += service.packets;
        all.refused += service.refused;
        if let (Some(all), Some(visited)) = (&mut all.rules_visited, service.rules_visited) {
            *all += visited;
        }
    }
    if let Some(removed) = &worker.removed {
        // Each worker had its part of every port.
        let all = all.removed.get_or_insert_default();
        let ports = all.ports.max(removed.ports);
        all.add(removed);
        all.ports = ports;
    }
    if let (Some(all), Some(fairdrop)) = (&mut all.fairdrop, &worker.fairdrop) {
        add_fairdrop(all, fairdrop);
    }
}

fn add_drops(all: &mut Drops, drops: &Drops) {
    for (reason, packets) in drops {
        *all.entry(reason.clone()).or_default() += packets;
    }
}

pub(crate) fn add_port(all: &mut PortSnapshot, port: &PortSnapshot) {
    // A port is up when all workers use it.
    all.up &= port.up;
    all.rx_packets += port.rx_packets;
    all.rx_bytes += port.rx_bytes;
    all.tx_packets += port.tx_packets;
    all.tx_bytes += port.tx_bytes;
    all.to_host += port.to_host;
    all.exchange_received += port.exchange_received;
    all.exchange_sent += port.exchange_sent;
    all.forwarded += port.forwarded;
    all.fragmented += port.fragmented;
    all.originated += port.originated;
    all.originated_waiting += port.originated_waiting;
    all.answered += port.answered;
    all.answers_limited += port.answers_limited;
    all.waiting += port.waiting;
    all.ring_loss += port.ring_loss;
    all.tx_waiting += port.tx_waiting;
    add_drops(&mut all.originated_dropped, &port.originated_dropped);
    add_drops(&mut all.dropped, &port.dropped);
    add_drops(&mut all.tx_dropped, &port.tx_dropped);
}

pub(crate) fn add_link(all: &mut LinkSnapshot, link: &LinkSnapshot) {
    all.in_ring += link.in_ring;
    all.queued += link.queued;
    if let (Some(all), Some(admission)) = (&mut all.admission, &link.admission) {
        add_admission(all, admission);
    }
    all.calls.iter_mut().zip(link.calls).for_each(|(all, calls)| *all += calls);
    for class in &link.classes {
        match all.classes.iter_mut().find(|known| known.name == class.name) {
            Some(known) => add_class(known, class),
            None => all.classes.push(class.clone()),
        }
    }
}

fn add_class(all: &mut ClassSnapshot, class: &ClassSnapshot) {
    all.in_packets += class.in_packets;
    all.in_bytes += class.in_bytes;
    all.out_packets += class.out_packets;
    all.out_bytes += class.out_bytes;
    all.sent_packets += class.sent_packets;
    all.sent_bytes += class.sent_bytes;
    all.queued_packets += class.queued_packets;
    all.queued_bytes += class.queued_bytes;
    all.delay_sum_ns += class.delay_sum_ns;
    all.delay_max_ns = all.delay_max_ns.max(class.delay_max_ns);
    add_drops(&mut all.dropped, &class.dropped);
    add_buckets(&mut all.delay_buckets, &class.delay_buckets);
}

fn add_buckets(all: &mut Vec<(u64, u64)>, buckets: &[(u64, u64)]) {
    for (lowest, packets) in buckets {
        match all.binary_search_by_key(lowest, |(lowest, _)| *lowest) {
            Ok(at) => all[at].1 += packets,
            Err(at) => all.insert(at, (*lowest, *packets)),
        }
    }
}

/// Estimates are of the whole link, and those of the first worker; the link counts as closed if it is at any of them.
fn add_admission(all: &mut AdmissionSnapshot, admission: &AdmissionSnapshot) {
    all.congested = all.congested.take().or_else(|| admission.congested.clone());
    all.forced_until_ns = all.forced_until_ns.max(admission.forced_until_ns);
    all.protected += admission.protected;
    all.streaming += admission.streaming;
    all.elastic += admission.elastic;
    all.probation += admission.probation;
    all.capacity += admission.capacity;
    all.diverted += admission.diverted;
    all.packets += admission.packets;
    add_drops(&mut all.passed, &admission.passed);
    all.diverted_packets += admission.diverted_packets;
    add_drops(&mut all.refused, &admission.refused);
    all.admissions += admission.admissions;
    add_drops(&mut all.removed, &admission.removed);
    all.class_flips += admission.class_flips;
    all.openings += admission.openings;
    all.clearings += admission.clearings;
    all.flood |= admission.flood;
    add_buckets(&mut all.accept_delay_buckets, &admission.accept_delay_buckets);
    all.forgotten += admission.forgotten;
    all.users.extend(admission.users.iter().cloned());
    all.memory_bytes += admission.memory_bytes;
}

fn add_cycles(all: &mut CycleSnapshot, cycles: &CycleSnapshot) {
    all.busy += cycles.busy;
    all.other += cycles.other;
    for (all, stage) in all.stages.iter_mut().zip(&cycles.stages) {
        all.packets += stage.packets;
        all.cycles += stage.cycles;
    }
    for (all, class) in all.classes.iter_mut().zip(&cycles.classes) {
        all.packets += class.packets;
        all.cycles += class.cycles;
        all.refused_packets += class.refused_packets;
        all.refused_cycles += class.refused_cycles;
    }
}

/// Levels, thresholds and costs stay those of the first worker: each worker is a core of its own.
fn add_fairdrop(all: &mut FairDropSnapshot, fairdrop: &FairDropSnapshot) {
    all.unplaced += fairdrop.unplaced;
    all.backlogged += fairdrop.backlogged;
    all.absurd += fairdrop.absurd;
    for (all, link) in all.links.iter_mut().zip(&fairdrop.links) {
        all.judged += link.judged;
        all.refused += link.refused;
        all.unplaced += link.unplaced;
        all.backlogged += link.backlogged;
        all.backlog_bytes += link.backlog_bytes;
    }
    for (all, class) in all.classes.iter_mut().zip(&fairdrop.classes) {
        all.judged += class.judged;
        all.refused_cpu += class.refused_cpu;
        all.refused_bandwidth += class.refused_bandwidth;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_add_up_and_the_workers_stay_visible() {
        let worker = |n: u64| Snapshot {
            time_ns: n,
            links: vec![LinkSnapshot {
                classes: vec![ClassSnapshot {
                    sent_packets: n,
                    delay_max_ns: n,
                    dropped: [("queue_full".to_owned(), n)].into(),
                    delay_buckets: vec![(n, 1), (100, n)],
                    ..ClassSnapshot::default()
                }],
                ..LinkSnapshot::default()
            }],
            ports: vec![PortSnapshot { up: n != 3, rx_packets: n, ..PortSnapshot::default() }],
            ..Snapshot::default()
        };
        let all = merged(vec![worker(2), worker(3)]);
        let class = &all.links[0].classes[0];
        assert_eq!((class.sent_packets, class.delay_max_ns, all.time_ns), (5, 3, 3));
        assert_eq!(class.dropped["queue_full"], 5);
        assert_eq!(class.delay_buckets, [(2, 1), (3, 1), (100, 5)]);
        assert_eq!((all.ports[0].rx_packets, all.ports[0].up), (5, false));
        assert_eq!(all.workers, [worker(2), worker(3)]);
        assert_eq!(merged(vec![worker(7)]), worker(7));
    }
}
