//! The end of a run: the routers run empty, the wires tell what they did, and every packet that a
//! host sent is accounted for.

use std::time::{Duration, Instant};

use evenkeel_core::Nanos;
use evenkeel_report::{ConnectionRow, FlowRow, Run};
use evenkeel_scenario::TrafficKind;
use evenkeel_world::{audits, followed, sampling, wires};

use super::{Counters, Driver, Lab};
use crate::flow::Sent;
use crate::node::RouterNode;
use crate::wire::WireCounts;
use crate::{LabError, checks};

/// How long queues may take to empty after the last packet was sent.
const DRAIN: Duration = Duration::from_secs(3);
/// A source that leaves out more than this part of its packets did not offer what the scenario
/// says.
const BEHIND: f64 = 0.02;
/// More packets than this part of those sent must not be missing without a trace; fewer, which the
/// hosts' own kernels lose at times, are told and change no claim.
const UNEXPLAINED: f64 = 0.001;

impl Lab<'_> {
    /// Ends the sources, waits until the routers are empty, and checks that nothing disappeared.
    pub(super) fn finish(
        &mut self,
        first: &Counters,
        start: Nanos,
        run: &mut Run,
    ) -> Result<Vec<String>, LabError> {
        self.progress.say("emptying queues");
        for source in &mut self.sources {
            match source {
                Driver::Own(sender) => sender.stop(),
                Driver::Connections(connections) => connections.stop(),
                Driver::Tool(tool) => tool.stop(),
            }
        }
        let begin = Instant::now();
        let mut warnings = Vec::new();
        let patience = DRAIN + self.longest_delay();
        let mut empty = 0;
        let last = loop {
            self.look_for_signals()?;
            let now = self.counters()?;
            // What a router has sent on may come back into another: all must be empty twice.
            let held = self.held(&now)?;
            empty = if held == 0 { empty + 1 } else { 0 };
            if empty == 2 {
                break now;
            }
            if begin.elapsed() > patience {
                warnings.push(format!(
                    "{held} packets were still queued {patience:?} after the last was sent"
                ));
                break now;
            }
            std::thread::sleep(Duration::from_millis(10));
        };
        let last = self.settle(last, start, run, &mut warnings)?;
        run.audits = last.routers.iter().flat_map(audits::of_router).collect();
        warnings.extend(last.routers.iter().flat_map(checks::conservation));
        warnings.extend(
            self.sources.iter().zip(&self.flows).filter_map(|(s, f)| behind(&f.name, s.sent())),
        );
        match self.unexplained(first, &last) {
            Some((part, told)) if part > UNEXPLAINED => warnings.push(told),
            few => run.notes.extend(few.map(|(_, told)| told)),
        }
        warnings.extend(self.tell_wires(run));
        run.notes.append(&mut self.notes);
        for (source, spec) in self.sources.iter().zip(&self.flows) {
            match source {
                Driver::Tool(tool) => run.notes.push(tool.report()),
                Driver::Connections(connections) => {
                    let (note, warning) = connections.report(&spec.name);
                    run.notes.push(note);
                    warnings.extend(warning);
                }
                Driver::Own(_) => {}
            }
        }
        let ours = self.scenario.routers.iter().any(|router| !router.is_kernel());
        let check = if ours {
            "; the kernels of those of Evenkeel forwarded none of the probe packets"
        } else {
            ""
        };
        run.notes.push(format!(
            "{} packets were forwarded by the routers, as their own counters show{check}.",
            forwarded(first, &last)
        ));
        Ok(warnings)
    }

    /// A row for each flow of which its source tells: all but recordings and those of D-ITG.
    pub(super) fn follow(&self, start: Nanos, end: Nanos) -> Vec<FlowRow> {
        let mut rows = Vec::new();
        let ends = self.sources.iter().zip(&self.sinks).zip(&self.flows);
        for (traffic, ((source, sink), spec)) in self.scenario.traffic.iter().zip(ends) {
            match (source, sink) {
                (Driver::Own(sender), Some(sink)) if traffic.kind != TrafficKind::Replay => {
                    let (sent, arrived) = (sender.followed(), sink.followed());
                    let (counts, times) = ((&sent, &arrived), (start, end));
                    rows.extend(followed::rows(self.scenario, traffic, counts, times));
                }
                (Driver::Connections(connections), _) => rows.extend(connections.rows()),
                (Driver::Tool(tool), _) => rows.extend(tool.rows(traffic, spec)),
                (Driver::Own(_), _) => {}
            }
        }
        followed::sort(self.scenario, &mut rows);
        rows
    }

    /// How TCP connections saw their way, window by window.
    pub(super) fn connections(&self) -> Vec<ConnectionRow> {
        let mut rows = Vec::new();
        for (traffic, source) in self.scenario.traffic.iter().zip(&self.sources) {
            match source {
                Driver::Tool(tool) => rows.extend(tool.connections(traffic)),
                Driver::Connections(connections) => rows.extend(connections.windows()),
                Driver::Own(_) => {}
            }
        }
        rows.sort_by(|a, b| a.t_s.total_cmp(&b.t_s));
        rows
    }

    /// From host to host nothing disappears either, as far as the lab's own hosts send.
    fn unexplained(&mut self, first: &Counters, last: &Counters) -> Option<(f64, String)> {
        let unseen = (0..self.flows.len()).any(|flow| self.places.is_encrypted(flow));
        // Of a kernel's own packets nobody tells how many there were.
        if unseen || !self.sources.iter().all(|source| matches!(source, Driver::Own(_))) {
            return None;
        }
        // What is on its way between router and sink is neither here nor there.
        std::thread::sleep(Duration::from_millis(50));
        let rest: u64 = self.sinks.iter().flatten().map(|sink| sink.take().packets).sum();
        let sent = self.sources.iter().map(|source| source.sent().packets).sum();
        let lost = first.routers.iter().zip(&last.routers).map(|(a, b)| checks::lost(a, b)).sum();
        let on_wires = self.wire_counts().map(|(.., counts)| counts.missing).sum();
        disappeared(sent, self.arrived + rest, lost, on_wires)
    }

    /// What each direction of each wire has done: the wire's number, the end it begins at, its
    /// counts.
    fn wire_counts(&self) -> impl Iterator<Item = (usize, usize, WireCounts)> {
        self.wires.iter().flat_map(|(number, wire)| {
            let [there, back] = wire.counts();
            [(*number, 0, there), (*number, 1, back)]
        })
    }

    /// Packets that routers and wires hold.
    fn held(&mut self, counters: &Counters) -> Result<u64, LabError> {
        let links = counters.routers.iter().flat_map(|router| &router.links);
        let in_routers: u64 = links.map(|link| link.queued + link.in_ring).sum();
        let mut kernels = self.routers.iter_mut().filter_map(RouterNode::kernel);
        let in_kernels = kernels.try_fold(0, |held, kernel| Ok(held + kernel.held()?));
        let on_wires: u64 = self.wire_counts().map(|(.., counts)| counts.held).sum();
        in_kernels.map(|in_kernels| in_routers + in_kernels + on_wires)
    }

    /// What became of the packets of routers that are all kernel is known now: the rows of the run
    /// are made whole. Gives the counters at the end, with it.
    fn settle(
        &mut self,
        mut last: Counters,
        start: Nanos,
        run: &mut Run,
        warnings: &mut Vec<String>,
    ) -> Result<Counters, LabError> {
        for (router, counted) in self.routers.iter_mut().zip(&mut last.routers) {
            let Some(kernel) = router.kernel() else { continue };
            let (notes, doubts) = kernel.end()?;
            run.notes.extend(notes);
            warnings.extend(doubts);
            let exact = kernel.exact();
            sampling::recount(&mut run.samples, &exact, start);
            *counted = exact.into_iter().next_back().unwrap_or_default();
        }
        Ok(last)
    }

    /// The sum of the delays of all wires: no packet is longer on its way.
    fn longest_delay(&self) -> Duration {
        let qualities = self.scenario.wires.iter().map(|wire| &wire.quality);
        Duration::from_nanos(qualities.map(|quality| quality.delay.0 + quality.jitter.0).sum())
    }

    /// Puts into the result what the wires have done. Returns what the user should know.
    fn tell_wires(&self, run: &mut Run) -> Vec<String> {
        let mut warnings = Vec::new();
        for (wire, near, counts) in self.wire_counts() {
            let totals = wires::totals(self.scenario, wire, near, &counts.emulator, counts.held);
            let late = counts.worst_late;
            run.notes.push(format!("{} They came out late by up to {late}.", wires::told(&totals)));
            if counts.own_losses > 0 {
                warnings.push(format!(
                    "wire {} to {}: {} frames found the lab's own queues full and were lost: the \
                     machine is too slow for this scenario",
                    totals.from, totals.to, counts.own_losses
                ));
            }
            run.wires.push(totals);
        }
        warnings
    }
}

/// Packets that hosts sent, that did not arrive, and that no router and no wire counted as dropped
/// or lost: what part of all they are, and a sentence about them.
fn disappeared(sent: u64, arrived: u64, lost: u64, on_wires: u64) -> Option<(f64, String)> {
    let told = arrived + lost + on_wires;
    (sent != told).then(|| {
        let difference = sent as i128 - told as i128;
        let sentence = format!(
            "hosts sent {sent} packets, {arrived} arrived, routers dropped {lost} and wires lost \
             {on_wires}: {difference} unexplained (lost in the hosts' own kernels)"
        );
        (difference.unsigned_abs() as f64 / sent.max(1) as f64, sentence)
    })
}

/// Packets that left the links of the routers between two instants.
fn forwarded(first: &Counters, last: &Counters) -> u64 {
    let sent = |counters: &Counters| -> u64 {
        let links = counters.routers.iter().flat_map(|router| &router.links);
        links.flat_map(|link| &link.classes).map(|class| class.sent_packets).sum()
    };
    sent(last).saturating_sub(sent(first))
}

/// A warning if a source offered clearly less than it was told to.
fn behind(flow: &str, sent: Sent) -> Option<String> {
    let asked = sent.packets + sent.skipped + sent.refused;
    let missing = (sent.skipped + sent.refused) as f64 / asked.max(1) as f64;
    (missing > BEHIND).then(|| {
        format!(
            "{flow} fell behind its schedule: {:.1} % of {asked} packets were not sent in time \
             (late by up to {}); the machine is too slow for this scenario",
            missing * 100.0,
            sent.worst_late
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_that_a_host_lost_is_told_and_voids_nothing() {
        assert_eq!(disappeared(1_000, 900, 90, 10), None);
        let part = |sent, arrived| disappeared(sent, arrived, 0, 0).unwrap().0;
        assert!(part(21_748, 21_747) < UNEXPLAINED && part(21_748, 21_749) < UNEXPLAINED);
        assert!(part(1_000, 997) > UNEXPLAINED);
    }

    #[test]
    fn a_source_that_falls_behind_is_named() {
        let sent = |packets, skipped| Sent { packets, skipped, ..Sent::default() };
        assert_eq!(behind("a", sent(1_000, 0)), None);
        assert_eq!(behind("a", sent(980, 20)), None);
        let text = behind("a", sent(970, 30)).expect("3 % is too much");
        assert!(text.starts_with("a fell behind its schedule: 3.0 % of 1000 packets"), "{text}");
        assert_eq!(behind("a", Sent::default()), None);
    }
}
