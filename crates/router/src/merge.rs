//! The counters of several workers as those of one router.

use crate::command::{Command, Reply};
use crate::snapshot::{
    AdmissionSnapshot, BufferSnapshot, ClassCycles, ClassSnapshot, CycleSnapshot, FairDropClass,
    FairDropLink, FairDropSnapshot, FlowSnapshot, LinkSnapshot, PortSnapshot, RemovedSnapshot,
    ServiceSnapshot, Snapshot, StageCycles,
};
use crate::tally::{Tally, add_buckets, add_fields, add_port_counts};

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
        all.add(worker);
    }
    all.workers = workers;
    all
}

impl Tally for Snapshot {
    fn add(&mut self, worker: &Self) {
        self.time_ns = self.time_ns.max(worker.time_ns);
        add_fields!(self, worker; buffers ports links cycles services fairdrop);
        if let Some(removed) = &worker.removed {
            // Each worker had its part of every port.
            let all = self.removed.get_or_insert_default();
            let ports = all.ports.max(removed.ports);
            all.add(removed);
            all.ports = ports;
        }
    }
}

impl Tally for BufferSnapshot {
    fn add(&mut self, other: &Self) {
        add_fields!(self, other; total free lent);
    }
}

impl Tally for ServiceSnapshot {
    fn add(&mut self, other: &Self) {
        add_fields!(self, other; packets refused rules_visited);
    }
}

impl Tally for RemovedSnapshot {
    fn add(&mut self, other: &Self) {
        add_fields!(self, other; ports port link);
    }
}

impl Tally for PortSnapshot {
    fn add(&mut self, other: &Self) {
        // A port is up when all workers use it.
        self.up &= other.up;
        add_port_counts!(self, other);
        add_fields!(self, other; tx_packets tx_bytes ring_loss tx_waiting);
    }
}

impl Tally for LinkSnapshot {
    fn add(&mut self, other: &Self) {
        add_fields!(self, other; in_ring queued admission calls);
        for class in &other.classes {
            match self.classes.iter_mut().find(|known| known.name == class.name) {
                Some(known) => known.add(class),
                None => self.classes.push(class.clone()),
            }
        }
    }
}

impl Tally for ClassSnapshot {
    fn add(&mut self, other: &Self) {
        add_fields!(self, other;
            in_packets in_bytes out_packets out_bytes sent_packets sent_bytes queued_packets queued_bytes
            delay_sum_ns dropped);
        self.delay_max_ns = self.delay_max_ns.max(other.delay_max_ns);
        add_buckets(&mut self.delay_buckets, &other.delay_buckets);
    }
}

/// Estimates are of the whole link, and those of the first worker; the link counts as closed if it is at any of them.
impl Tally for AdmissionSnapshot {
    fn add(&mut self, other: &Self) {
        self.congested = self.congested.take().or_else(|| other.congested.clone());
        self.forced_until_ns = self.forced_until_ns.max(other.forced_until_ns);
        self.flood |= other.flood;
        add_fields!(self, other;
            protected streaming elastic probation capacity diverted packets passed diverted_packets refused
            admissions removed class_flips openings clearings forgotten memory_bytes);
        add_buckets(&mut self.accept_delay_buckets, &other.accept_delay_buckets);
        self.users.extend(other.users.iter().cloned());
    }
}

impl Tally for CycleSnapshot {
    fn add(&mut self, other: &Self) {
        add_fields!(self, other; busy other stages classes);
    }
}

impl Tally for StageCycles {
    fn add(&mut self, other: &Self) {
        add_fields!(self, other; packets cycles);
    }
}

impl Tally for ClassCycles {
    fn add(&mut self, other: &Self) {
        add_fields!(self, other; packets cycles refused_packets refused_cycles);
    }
}

/// Levels, thresholds and costs stay those of the first worker: each worker is a core of its own.
impl Tally for FairDropSnapshot {
    fn add(&mut self, other: &Self) {
        add_fields!(self, other; unplaced backlogged absurd links classes);
    }
}

impl Tally for FairDropLink {
    fn add(&mut self, other: &Self) {
        add_fields!(self, other; judged refused unplaced backlogged backlog_bytes);
    }
}

impl Tally for FairDropClass {
    fn add(&mut self, other: &Self) {
        add_fields!(self, other; judged refused_cpu refused_bandwidth);
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
