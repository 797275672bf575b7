//! What the user sees of the cluster: counters, and what has happened.

use evenkeel_cluster::{Event, NodeId};
use evenkeel_core::audit::Cause;

use super::{ClusterRole, Queue};
use crate::pipeline::counters::named;
use crate::snapshot::{
    ClusterAuditSnapshot, ClusterLinkSnapshot, ClusterQueueSnapshot, ClusterSnapshot,
    ClusterViolationSnapshot,
};

impl ClusterRole {
    pub(in crate::pipeline) fn view(
        &self,
        links: &[String],
        classes: &[String],
    ) -> ClusterSnapshot {
        let mut view = ClusterSnapshot {
            node: self.section.node,
            granted_waiting: self.around.granted.len() as u64,
            late: self.around.late,
            ..ClusterSnapshot::default()
        };
        if let Some(engine) = &self.engine {
            let now = engine.view();
            view.master = now.master.map(|id| id.0);
            view.cycle = now.cycle.unwrap_or(0);
            view.in_step = now.in_step;
            let members = |set: u64| -> Vec<u16> {
                let inside = |(at, id): (usize, &NodeId)| (set >> at & 1 == 1).then_some(id.0);
                engine.config().members.iter().enumerate().filter_map(inside).collect()
            };
            view.present = members(now.present);
            view.configuration = format!("{:08x}", now.configuration);
            view.next_configuration = now.next_configuration.map(|hash| format!("{hash:08x}"));
            view.waits_for = members(now.waits_for);
            view.counts = *engine.counters();
            view.used_frames = view.states + view.clocks;
            view.refused = engine.unused().met().map(|(name, n)| (name.to_owned(), n)).collect();
        }
        view.audit = self.audit(classes);
        for (at, link) in self.section.links.iter().enumerate() {
            let queues = &self.around.queues[at * self.around.classes..][..self.around.classes];
            let queue = |(queue, name): (&Queue, &String)| ClusterQueueSnapshot {
                name: name.clone(),
                in_packets: queue.in_packets,
                granted_packets: queue.granted_packets,
                granted_bytes: queue.granted_bytes,
                dropped: named(&queue.dropped),
                queued_packets: queue.packets.len() as u64,
                queued_bytes: queue.bytes,
            };
            view.links.push(ClusterLinkSnapshot {
                name: link.name.clone(),
                port: links.get(usize::from(link.port)).cloned().unwrap_or_default(),
                classes: queues.iter().zip(classes).map(queue).collect(),
            });
        }
        view
    }

    fn audit(&self, classes: &[String]) -> ClusterAuditSnapshot {
        let verdict = self.engine.as_ref().map(|engine| *engine.verdict()).unwrap_or_default();
        let pauses = self.around.pauses;
        let causes = [(Cause::Discipline, verdict.violations), (Cause::WorkerLate, pauses)];
        let met = causes.iter().filter(|(_, times)| *times > 0);
        let class = |class: usize| classes.get(class).cloned().unwrap_or_default();
        ClusterAuditSnapshot {
            windows: verdict.windows,
            blind: verdict.blind,
            violations: verdict.violations + pauses,
            by_cause: met.map(|(cause, times)| (cause.name().to_owned(), *times)).collect(),
            worst_ppm: verdict.worst_ppm,
            last: verdict.last.map(|last| ClusterViolationSnapshot {
                cycle: last.cycle,
                link: self
                    .section
                    .links
                    .get(last.link)
                    .map_or_else(String::new, |l| l.name.clone()),
                class: class(last.class),
                other: class(last.other),
                lag_bytes: last.lag.0,
                bound_bytes: last.bound.0,
                told_ppm: last.told_ppm,
                delivered_ppm: last.delivered_ppm,
            }),
        }
    }

    /// Reports once what has happened.
    pub(in crate::pipeline) fn drain_news(&mut self, mut report: impl FnMut(&str)) {
        if let Some((time, packets)) = self.around.stood_still.take() {
            report(&format!(
                "cluster: this node stood still for {} ms, and the others have taken its links and \
                 its flows: {packets} packets that waited here are dropped",
                time.0 / 1_000_000
            ));
        }
        for event in self.around.news.drain(..) {
            report(&text(&event));
        }
    }
}

fn text(event: &Event) -> String {
    match event {
        Event::BecameMaster => "cluster: this node opens the cycles from now on".to_owned(),
        Event::FollowsMaster(id) => {
            format!("cluster: node {} opens the cycles from now on", id.0)
        }
        Event::SecondMaster(id) => {
            format!("cluster: node {} claims to be master and is not obeyed", id.0)
        }
        Event::Changed { hash, cycle } => {
            format!("cluster: configuration {hash:08x} is in force from cycle {} on", cycle + 1)
        }
        Event::LostStep => "cluster: out of step".to_owned(),
        Event::InStep => "cluster: in step".to_owned(),
        Event::MemberLost(id) => format!("cluster: node {} is silent and counts as empty", id.0),
        Event::MemberBack(id) => format!("cluster: node {} is heard", id.0),
        Event::ClockBehind(id) => format!(
            "cluster: node {} started anew with a clock that is behind its last life's; it has \
             answered a challenge, and its frames are used",
            id.0
        ),
        Event::Recorded(id) => format!(
            "cluster: frames of node {} come that were recorded earlier: they are not used; it is \
             silent and does not answer challenges",
            id.0
        ),
        Event::Proved(id) => {
            format!("cluster: node {} has answered a challenge, and its frames are used", id.0)
        }
        Event::OtherConfiguration { node, theirs, ours } => format!(
            "cluster: node {} has another configuration ({theirs:08x}, here it is {ours:08x}): its \
             frames are refused until [cluster], the classes and the names of the links are the \
             same on all nodes",
            node.0
        ),
    }
}
