//! What is known of flows: at links with admission what that decided, at all of them which rule
//! dropped or marked packets of late.

use std::fmt::Write as _;

use evenkeel_core::admit::Explanation;
use evenkeel_core::flow_table::PackedFlow;
use evenkeel_core::schedule::Scheduler as _;
use evenkeel_core::{FlowKey, Nanos};
use evenkeel_net::PortIndex;
use evenkeel_net::fib::Decision;
use evenkeel_net::policy::{LookupKey, Origin};

use super::{Pipeline, WorkerShares};
use crate::error::CommandError;
use crate::snapshot::FlowSnapshot;

/// Flows that are given at most, busiest first, when a router is asked which it protects.
const MOST_FLOWS: usize = 1_000;

impl Pipeline {
    /// What happened to a flow at every link, or only at that of port `link`: sentences, one a
    /// line. One of several workers tells only what it remembers, which may be nothing.
    ///
    /// # Errors
    /// No such link, or nothing is remembered of the flow where no admission decides.
    pub fn explain(
        &self,
        now: Nanos,
        link: Option<&str>,
        flow: &FlowKey,
    ) -> Result<String, CommandError> {
        let only = link.map(|link| self.find(link)).transpose()?;
        let hash = self.classifier.hash(flow);
        let pinned = self.pinned_port(now, &PackedFlow::new(flow), hash);
        let (mut text, mut told_of) = (String::new(), 0);
        for (at, slot) in self.ports.iter().enumerate() {
            if only.is_some_and(|only| only != at) {
                continue;
            }
            let worker = self.settings.shares.as_ref().map(WorkerShares::worker);
            let lost = slot.losses.explain(now, hash);
            let here = || {
                // Which port its packets come by is not known: as if by none that a rule names.
                let origin = Origin::Host(PortIndex(at as u16));
                let key = || LookupKey { flow: *flow, dscp: 0, origin };
                let route = self.routing.tables.lookup(flow.destination, hash, key);
                let leads =
                    matches!(route, Some(Decision::Forward { port, .. }) if port.index() == at);
                pinned.map_or(leads, |pinned| pinned == at)
            };
            match &slot.admission {
                Some(admission) => {
                    told_of += 1;
                    let told = admission.explain(now, flow, hash);
                    let unknown = told.protected.is_none()
                        && told.first_seen.is_none()
                        && told.decisions.is_empty();
                    if worker.is_some() && unknown && lost.is_empty() {
                        continue;
                    }
                    write(&mut text, &slot.name, worker, here(), &told, now);
                }
                None => {
                    let waits = slot.link.scheduler().flow_backlog(flow, hash);
                    if lost.is_empty() && waits.0 == 0 {
                        continue;
                    }
                    told_of += 1;
                    let worker =
                        worker.map_or(String::new(), |worker| format!(", worker {worker}"));
                    let _ = writeln!(text, "link {}{worker}: {waits} of it wait", slot.name);
                }
            }
            text += &lost;
        }
        // What one of several workers does not know, another may.
        if told_of == 0 && self.settings.shares.is_none() {
            return Err(CommandError::NoAdmission { link: link.map(str::to_owned) });
        }
        Ok(text)
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

/// Writes what the admission of `link` tells of a flow; `worker`: of several, whose admission it
/// is. `here`: the flow's packets take this link now.
fn write(
    text: &mut String,
    link: &str,
    worker: Option<usize>,
    here: bool,
    told: &Explanation,
    now: Nanos,
) {
    let ago = |at: Nanos| now.saturating_sub(at);
    let way = if here {
        "its packets take this link now"
    } else {
        "its packets do not take this link now"
    };
    // Writing to a String cannot fail.
    let worker = worker.map_or(String::new(), |worker| format!(", worker {worker}"));
    let _ = writeln!(text, "link {link}{worker}: {way}");
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
