//! The counters of several workers as those of one router.

use evenkeel_core::measure::Tally;

use evenkeel_core::admit::USERS_TOLD;

use crate::command::{Command, Reply};
use crate::snapshot::{BusyFlow, FlowSnapshot, Snapshot};
use crate::watch::Sightings;

/// The answers of several workers to a question about packets and flows, each of which one of them
/// meets: all that they tell.
pub(crate) fn merged_replies(replies: Vec<Reply>, command: &Command) -> Reply {
    let (mut flows, mut busy, mut text) = (Vec::new(), Vec::new(), String::new());
    let mut sightings = Sightings::default();
    for reply in replies {
        match reply {
            Reply::Flows(more) => flows.extend(more),
            Reply::Busiest(more) => busy.extend(more),
            Reply::Text(more) => text.push_str(&more),
            Reply::Sightings(more) => {
                sightings.seen.extend(more.seen);
                sightings.missed += more.missed;
            }
            Reply::Done | Reply::Snapshot(_) | Reply::Nodes(_) => {}
        }
    }
    match command {
        Command::Flows { top, .. } => {
            flows.sort_unstable_by(FlowSnapshot::busiest_first);
            flows.truncate(*top);
            Reply::Flows(flows)
        }
        Command::Busiest { top } => {
            busy.sort_unstable_by(BusyFlow::busiest_first);
            busy.truncate(*top);
            Reply::Busiest(busy)
        }
        Command::Explain { .. } => Reply::Text(text),
        Command::Sightings { .. } => {
            sightings.seen.sort_by_key(|seen| seen.time_ns);
            Reply::Sightings(sightings)
        }
        _ => Reply::Done,
    }
}

/// The sum over the workers of a router, each as it was within the same milliseconds. What is not a
/// count comes from the first, which looks after the interfaces. Of a single worker: its own.
pub(crate) fn merged(mut workers: Vec<Snapshot>) -> Snapshot {
    if workers.len() <= 1 {
        return workers.pop().unwrap_or_default();
    }
    let mut all = workers[0].clone();
    for worker in &workers[1..] {
        all.add(worker);
    }
    for admission in all.links.iter_mut().filter_map(|link| link.admission.as_mut()) {
        // A user's flows met several workers: as one worker has it, the busiest come first.
        admission
            .users
            .sort_by(|one, other| (other.flows, &one.user).cmp(&(one.flows, &other.user)));
        admission.users.truncate(USERS_TOLD);
    }
    if let Some(removed) = &mut all.removed {
        // Each worker had its part of every port.
        let ports = workers
            .iter()
            .filter_map(|worker| worker.removed.as_ref())
            .map(|removed| removed.ports);
        removed.ports = ports.max().unwrap_or(0);
    }
    all.workers = workers;
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::{
        AdmissionSnapshot, ClassSnapshot, LinkSnapshot, PortCounts, PortSnapshot, UserSnapshot,
    };
    use evenkeel_core::measure::ClassCounters;

    #[test]
    fn a_user_whose_flows_met_several_workers_is_told_once_and_the_busiest_first() {
        let worker = |users: &[(&str, u64)]| {
            let users = users.iter().map(|(user, flows)| (user.to_string(), *flows));
            let users = users.map(|(user, flows)| UserSnapshot { user, flows }).collect();
            let admission = Some(AdmissionSnapshot { users, ..AdmissionSnapshot::default() });
            Snapshot {
                links: vec![LinkSnapshot { admission, ..LinkSnapshot::default() }],
                ..Snapshot::default()
            }
        };
        let many: Vec<_> = (0..USERS_TOLD).map(|n| format!("10.0.0.{n:02}")).collect();
        let first: Vec<_> = many.iter().map(|user| (user.as_str(), 5)).collect();
        let all = merged(vec![worker(&first), worker(&[("10.0.1.1", 9), ("10.0.0.31", 1)])]);
        let users = &all.links[0].admission.as_ref().unwrap().users;
        let told: Vec<_> = users.iter().map(|told| (told.user.as_str(), told.flows)).collect();
        assert_eq!(told[..3], [("10.0.1.1", 9), ("10.0.0.31", 6), ("10.0.0.00", 5)]);
        assert_eq!((told.len(), told[31]), (32, ("10.0.0.29", 5)));
    }

    #[test]
    fn counters_add_up_and_the_workers_stay_visible() {
        let worker = |n: u64| Snapshot {
            time_ns: n,
            links: vec![LinkSnapshot {
                classes: vec![ClassSnapshot {
                    counts: ClassCounters { sent_packets: n, ..ClassCounters::default() },
                    delay_max_ns: n,
                    dropped: [("queue_full".to_owned(), n)].into(),
                    delay_buckets: vec![(n, 1), (100, n)],
                    ..ClassSnapshot::default()
                }],
                ..LinkSnapshot::default()
            }],
            ports: vec![PortSnapshot {
                up: n != 3,
                counts: PortCounts { rx_packets: n, ..PortCounts::default() },
                ..PortSnapshot::default()
            }],
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
