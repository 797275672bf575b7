//! What is known of flows: where their packets go and why, what was dropped of them, who lets them
//! in.

use std::fmt::Write as _;

use evenkeel_core::admit::Explanation;
use evenkeel_core::flow_table::PackedFlow;
use evenkeel_core::schedule::Scheduler as _;
use evenkeel_core::{FlowKey, Nanos};
use evenkeel_net::fib::Decision;

use super::{Pipeline, WorkerShares};
use crate::error::CommandError;
use crate::snapshot::{BusyFlow, FlowSnapshot};

/// Flows that are given at most, busiest first, when a router is asked for flows.
const MOST_FLOWS: usize = 1_000;

impl Pipeline {
    /// What happens to a flow's packets, and what happened to the last ones: where they go by
    /// class, tables and neighbours; for every link, or only that of port `link`, what waits and
    /// what was dropped of them; and what an admission decided. Sentences, one a line. One of
    /// several workers tells what it knows; the first, what all know.
    ///
    /// # Errors
    /// No such link.
    pub fn explain(
        &mut self,
        now: Nanos,
        link: Option<&str>,
        flow: &FlowKey,
    ) -> Result<String, CommandError> {
        let only = link.map(|link| self.find(link)).transpose()?;
        let hash = self.classifier.hash(flow);
        let packed = PackedFlow::new(flow);
        let pinned = self.pinned_port(now, &packed, hash);
        let worker = self.settings.shares.as_ref().map(WorkerShares::worker);
        let mut text = String::new();
        if worker.is_none_or(|worker| worker == 0) {
            text += &self.told_by_tables(flow, hash);
        }
        let route = self.route_of(flow, hash);
        for at in 0..self.ports.len() {
            if only.is_some_and(|only| only != at) || self.ports[at].is_others {
                continue;
            }
            let leads = matches!(route, Some(Decision::Forward { port, .. }) if port.index() == at);
            let here = pinned.map_or(leads, |pinned| pinned == at);
            self.told_by_link(&mut text, now, at, flow, hash, (worker, here));
        }
        Ok(text)
    }

    /// What every packet of the flow would meet.
    fn told_by_tables(&mut self, flow: &FlowKey, hash: u64) -> String {
        let mut text = String::new();
        let class = self.class_name(self.classifier.class(flow, 0));
        // Writing to a String cannot fail.
        let _ = writeln!(text, "class {class}, if its packets have DSCP 0");
        if self.ports.iter().all(|slot| slot.peer.is_some()) {
            text += "passes through: who routes is not this router\n";
            return text;
        }
        let route = self.route_of(flow, hash);
        let _ = writeln!(text, "{}", self.routed(route));
        if let Some(Decision::Forward { port, next_hop, .. }) = route
            && let Some(up) = self.ports.get(port.index()).map(|out| out.up)
        {
            let state = match (up, self.neighbours.known(port, next_hop).is_some()) {
                (false, _) => "the port is down: its packets are dropped".to_owned(),
                (true, true) => format!("{next_hop} has answered with its address"),
                (true, false) => {
                    format!("{next_hop} has not answered with its address: packets wait for it")
                }
            };
            let _ = writeln!(text, "{state}");
        }
        text
    }

    /// What a link, and the port that it belongs to, know of the flow; `here`: its packets take it.
    fn told_by_link(
        &mut self,
        text: &mut String,
        now: Nanos,
        at: usize,
        flow: &FlowKey,
        hash: u64,
        (worker, here): (Option<usize>, bool),
    ) {
        let packed = PackedFlow::new(flow);
        let slot = &mut self.ports[at];
        let mut told = String::new();
        if let Some(busy) = slot.busiest.estimates(now).find(|busy| busy.flow == packed) {
            let _ = writeln!(
                told,
                "  sends about {:.3} Mbit/s here, {:.0} packets/s (a sample of the last {:.0} s)",
                busy.bps / 1e6,
                busy.pps,
                busy.seconds
            );
        }
        told += &slot.losses.explain(now, hash);
        let before = slot.losses_before.explain(now, hash);
        if !before.is_empty() {
            let _ = write!(told, "  before any link, of what came by this port:\n{before}");
        }
        let scheduler = slot.link.scheduler();
        let (own, all) = (scheduler.flow_backlog(flow, hash).0, scheduler.backlog());
        let mut met = own > 0 || !told.is_empty();
        if own > 0 || here {
            let limit = slot
                .link
                .config()
                .rate
                .map_or_else(String::new, |rate| format!(", {} Mbit/s", rate.0 as f64 / 1e6));
            let _ = writeln!(
                told,
                "  {own} bytes of it wait, of {} packets in all ({}{limit})",
                all.packets,
                scheduler.name()
            );
        }
        let admission = slot.admission.as_ref().map(|of| of.explain(now, flow, hash));
        if let Some(admission) = &admission {
            let unknown = admission.protected.is_none()
                && admission.first_seen.is_none()
                && admission.decisions.is_empty();
            if worker.is_none() || !unknown {
                write(&mut told, admission, now);
                met = true;
            }
        }
        // Of several workers, one meets the flow; of links that it does not take nothing is told.
        if told.is_empty() || (worker.is_some() && !met) {
            return;
        }
        let way = match (slot.peer, here) {
            // Who routes is not this router.
            (Some(_), _) => "",
            (None, true) => "its packets take this link now",
            (None, false) => "its packets do not take this link now",
        };
        let worker = worker.map_or(String::new(), |worker| format!(", worker {worker}"));
        let _ = write!(text, "link {}{worker}: {way}\n{told}", slot.name);
    }

    /// The flows that send most by each link, from a sample: the busiest first, at most `top`.
    pub fn busiest(&mut self, now: Nanos, top: usize) -> Vec<BusyFlow> {
        let Self { ports, settings, .. } = self;
        let mut flows = Vec::new();
        for slot in ports {
            let scheduler = slot.link.scheduler();
            for busy in slot.busiest.estimates(now) {
                let flow = busy.flow.unpack();
                let class = settings.class_names.get(busy.class.index());
                flows.push(BusyFlow {
                    link: slot.name.clone(),
                    flow: flow.to_string(),
                    class: class.cloned().unwrap_or_default(),
                    bps: busy.bps,
                    pps: busy.pps,
                    waiting_bytes: scheduler.flow_backlog(&flow, busy.hash).0,
                    seconds: busy.seconds,
                });
            }
        }
        flows.sort_unstable_by(BusyFlow::busiest_first);
        flows.truncate(top.min(MOST_FLOWS));
        flows
    }

    /// The protected flows of every link with admission, or only of that of port `link`: those with
    /// most bytes of late first, at most `top`.
    ///
    /// # Errors
    /// No such link.
    pub fn flows(
        &self,
        now: Nanos,
        link: Option<&str>,
        top: usize,
    ) -> Result<Vec<FlowSnapshot>, CommandError> {
        let only = link.map(|link| self.find(link)).transpose()?;
        let mut flows = Vec::new();
        for (at, slot) in self.ports.iter().enumerate() {
            let Some(admission) =
                slot.admission.as_ref().filter(|_| only.is_none_or(|only| only == at))
            else {
                continue;
            };
            flows.extend(admission.flows(now).map(|(flow, protected)| FlowSnapshot {
                link: slot.name.clone(),
                flow: flow.to_string(),
                elastic: protected.elastic,
                recent_bytes: protected.recent.0,
                backlog_bytes:
                    slot.link.scheduler().flow_backlog(&flow, self.classifier.hash(&flow)).0,
                protected_ns: now.saturating_sub(protected.admitted).0,
                silent_ns: now.saturating_sub(protected.seen).0,
                next_hop: protected.pin.map(|pin| pin.next_hop),
            }));
            // Lists of a million flows are not sorted as a whole.
            flows.sort_unstable_by(FlowSnapshot::busiest_first);
            flows.truncate(top.min(MOST_FLOWS));
        }
        Ok(flows)
    }
}

/// Writes what an admission tells of a flow.
fn write(text: &mut String, told: &Explanation, now: Nanos) {
    let ago = |at: Nanos| now.saturating_sub(at);
    if told.emergency {
        let _ = writeln!(text, "  an emergency flow");
    }
    match told.protected {
        Some(flow) => {
            let class = if flow.elastic { "elastic" } else { "streaming" };
            let probation = if flow.probation { ", on probation until it comes again" } else { "" };
            let _ = writeln!(
                text,
                "  protected since {} ago, {class}{probation}; last packet {} ago, {} in this or \
                 the last interval",
                ago(flow.admitted),
                ago(flow.seen),
                flow.recent
            );
            if let Some(pin) = flow.pin {
                let _ = writeln!(
                    text,
                    "  pinned to this path: next hop {} of its route, TTL {} on arrival",
                    pin.next_hop, pin.ttl
                );
            }
        }
        None => {
            let _ = writeln!(
                text,
                "  not protected: its next packet is decided upon like that of a new flow"
            );
        }
    }
    if told.diverted {
        let _ = writeln!(text, "  goes by the second link");
    }
    if let Some(until) = told.blocked_until {
        let _ = writeln!(text, "  blocked for {} more", until.saturating_sub(now));
    }
    if let Some(since) = told.waiting_since {
        let _ = writeln!(text, "  waits to be let in since {} ago", ago(since));
    }
    match told.first_seen {
        Some(first) => {
            let _ = writeln!(
                text,
                "  first seen {} ago, {} of its packets refused since",
                ago(first),
                told.refused
            );
        }
        None if told.decisions.is_empty() => {
            let _ = writeln!(text, "  nothing is remembered of it");
        }
        None => {}
    }
    for decision in &told.decisions {
        let _ = writeln!(text, "  {} ago: {decision}", ago(decision.last));
    }
}
