//! Who may enter an outgoing link: admission between the choice of the link and its scheduler.
//!
//! ```text
//!  class ─▶ admission: estimates due? ─▶ decide ─ pass ──▶ scheduler ─▶ treated (priority or not)
//!                                          ├─ divert ────▶ scheduler of the second link
//!                                          └─ refuse ────▶ dropped, counted at the link by reason
//! ```
//!
//! Estimates are taken in the order of virtual time between arrivals and completions, as the dynamic control's are: the link advances to the
//! instant of an estimate before its meters are read, however late the worker comes. A link without admission asks one `Option`.
//!
//! **Conservation.** A packet that is refused counts as offered to its link and as dropped there, by reason, in its class; one that is
//! diverted counts at the second link only. So the identities of the [pipeline](super) hold unchanged, and per link
//! `packets = Σ passed + Σ refused + diverted` of [`AdmissionSnapshot`](crate::snapshot::AdmissionSnapshot).

use evenkeel_config::LinkConfig;
use evenkeel_core::admit::{Admission, AdmissionConfig, Observed, Pin, Verdict};
use evenkeel_core::flow_table::PackedFlow;
use evenkeel_core::schedule::Scheduler;
use evenkeel_core::settings::{Change, SettingError, Settings};
use evenkeel_core::{Bytes, FlowKey, Nanos, Reason};
use evenkeel_net::policy::{LookupKey, Origin};
use evenkeel_net::{PortIndex, rewrite};
use evenkeel_ports::FramePool;

use super::packet::QueuedPacket;
use super::{Pipeline, PortSlot, WorkerShares};
use crate::error::CommandError;
use crate::mirror::NeighbourRequest;
use crate::snapshot::{AdmissionSnapshot, FlowSnapshot};

/// Flows that are told at most, busiest first, when a router is asked which it protects.
const MOST_FLOWS: usize = 1_000;

impl PortSlot {
    /// Lets the admission of the link do what is due up to `now`, each at its own instant.
    #[inline]
    pub(super) fn admit_until(&mut self, now: Nanos, pool: &mut FramePool) {
        // Asked for every packet, and rarely due: only then is it worth moving it out.
        if self.admission_due().is_some_and(|due| due <= now) {
            self.estimate_now(now, pool);
        }
    }

    #[cold]
    fn estimate_now(&mut self, now: Nanos, pool: &mut FramePool) {
        let Some(mut admission) = self.admission.take() else { return };
        while admission.next_tick() <= now {
            let at = admission.next_tick();
            let (link, mut egress) = self.outgoing(pool);
            link.advance(at, &mut egress);
            admission.tick(at, &observed(link, at));
        }
        self.admission = Some(admission);
    }

    /// Begins to read what finds the flow of this hash in admission and scheduler. False: neither will look for it.
    #[inline]
    pub(super) fn prefetch_buckets(&self, flow_hash: u64) -> bool {
        if let Some(admission) = &self.admission {
            admission.prefetch_bucket(flow_hash);
        }
        self.link.prefetch_bucket(flow_hash) || self.admission.is_some()
    }

    /// Begins to read what admission and scheduler keep of the flow of this hash, once [that](Self::prefetch_buckets) has come.
    #[inline]
    pub(super) fn prefetch(&self, flow_hash: u64) {
        if let Some(admission) = &self.admission {
            admission.prefetch(flow_hash);
        }
        self.link.prefetch(flow_hash);
    }

    /// When the admission of the link has something to do.
    pub(super) fn admission_due(&self) -> Option<Nanos> {
        self.admission.as_ref().map(|admission| admission.next_tick())
    }

    /// The link went down or came up.
    pub(super) fn notify_admission(&mut self, now: Nanos, up: bool) {
        let Some(admission) = &mut self.admission else { return };
        if up {
            admission.link_up(now, &observed(&self.link, now));
        } else {
            admission.link_down(now);
        }
    }
}

/// What scheduler and wire have done up to `at`, to which the link has advanced; of a link that several workers share, what all of them have.
fn observed(link: &super::OutgoingLink, at: Nanos) -> Observed {
    Observed::new(&link.scheduler().meters(), link.idle_time(at), at)
}

impl Pipeline {
    /// A packet that is ready for the link of `port`, where it arrives at `at`. `pin` is the path that was chosen and the TTL that it came with.
    #[inline]
    pub(super) fn admit(&mut self, port: usize, queued: QueuedPacket, pin: Pin, at: Nanos) {
        let slot = &mut self.ports[port];
        slot.admit_until(at, &mut self.pool);
        let at = at.max(self.advanced);
        let Some(admission) = &mut slot.admission else { return self.enter(port, queued, at) };
        let scheduler = slot.link.scheduler();
        let hasher = &self.hasher;
        let backlog = |flow: &FlowKey| -> Bytes { scheduler.flow_backlog(flow, hasher.hash(flow)) };
        match admission.decide(at, &queued, pin, &backlog, &mut self.lists) {
            Verdict::Pass => {
                let (link, mut egress) = self.outgoing(port);
                let treated = link.enqueue(at, queued, &mut egress);
                if let Some(admission) = &mut self.ports[port].admission {
                    admission.treated(at, treated, &mut self.lists);
                }
            }
            Verdict::Refuse(reason) => self.refuse_at_link(port, queued, reason, at),
            Verdict::Divert => self.divert(port, queued, at),
        }
    }

    /// A packet enters a link, whoever it is.
    #[inline]
    pub(super) fn enter(&mut self, port: usize, queued: QueuedPacket, at: Nanos) {
        let (link, mut egress) = self.outgoing(port);
        // How it was treated is in the link's meters.
        let _ = link.enqueue(at, queued, &mut egress);
    }

    fn refuse_at_link(&mut self, port: usize, queued: QueuedPacket, reason: Reason, at: Nanos) {
        let (link, mut egress) = self.outgoing(port);
        link.refuse(at, queued, reason, &mut egress);
    }

    /// A packet of a flow that goes by the second link of `port`. Its next hop there must be known: nothing waits for it.
    fn divert(&mut self, port: usize, queued: QueuedPacket, at: Nanos) {
        let second = self.links[port].admission.as_ref().map(|admission| &admission.second_link);
        let to = second.and_then(|second| {
            let second_port = second.port.as_ref()?;
            let to = self.ports.iter().position(|slot| slot.name == second_port.0)?;
            Some((to, second.via.unwrap_or(queued.flow.unpack().destination)))
        });
        let Some((to, via)) = to.filter(|(to, _)| self.ports[*to].up) else {
            return self.refuse_at_link(port, queued, Reason::LinkDown, at);
        };
        let Some(mac) = self.neighbours.mac(PortIndex(to as u16), via) else {
            self.wanted = Some(NeighbourRequest { port: PortIndex(to as u16), address: via });
            return self.refuse_at_link(port, queued, Reason::HostUnreachable, at);
        };
        if queued.ip_len > self.ports[to].mtu {
            return self.refuse_at_link(port, queued, Reason::TooBig, at);
        }
        let bytes = self.pool.bytes_mut(&queued.frame);
        if let Err(reason) = rewrite::set_macs(bytes, self.ports[to].mac, mac) {
            return self.refuse_at_link(port, queued, reason, at);
        }
        let slot = &mut self.ports[to];
        slot.control_until(at, &mut self.pool);
        slot.admit_until(at, &mut self.pool);
        self.enter(to, queued, at);
    }

    /// The core's form of a link's admission.
    pub(super) fn admission_config(
        &self,
        wanted: &LinkConfig,
    ) -> Result<Option<AdmissionConfig>, CommandError> {
        let Some(admission) = &wanted.admission else { return Ok(None) };
        if !wanted.discipline.measures_fair_rate() {
            let (port, discipline) = (&wanted.port, wanted.discipline.name());
            return Err(CommandError::Invalid(format!(
                "link {port} has an admission, and discipline {discipline:?} measures no fair rate: use pfq, pdrr or afan, \
                 or switch admission off first (set {port} admission off)"
            )));
        }
        let second = admission.second_link.port.as_ref().and_then(|second| {
            self.links.iter().find(|link| link.port == second.0).and_then(|link| link.core.rate)
        });
        let complete = admission.on_link(wanted.core.rate, second, &self.flows);
        complete.map(Some).map_err(|error| CommandError::Invalid(error.to_string()))
    }

    /// Makes the admission of the link at `at` as `config` says.
    pub(super) fn put_admission(
        &mut self,
        now: Nanos,
        at: usize,
        config: Option<AdmissionConfig>,
    ) -> Result<(), CommandError> {
        let invalid = |error: SettingError| CommandError::Invalid(error.to_string());
        self.touch(at);
        let slot = &mut self.ports[at];
        match (&mut slot.admission, config) {
            (Some(admission), Some(config)) => {
                if *admission.config() != config {
                    admission.set(now, config).map_err(invalid)?;
                }
            }
            (admission, Some(config)) => {
                // Links whose lists were attacked with the same seed would fail together.
                let seed = self.seed.wrapping_add(at as u64);
                let mut built = Admission::new(config, seed, now).map_err(invalid)?;
                built.share(self.shares.as_ref().map(|shares| (shares.link(at), shares.worker())));
                *admission = Some(Box::new(built));
                // What the link has counted so far is not of this admission's time.
                slot.notify_admission(now, true);
            }
            (admission, None) => *admission = None,
        }
        let pins = |slot: &PortSlot| slot.admission.as_ref().is_some_and(|a| a.config().pinning.on);
        self.pins = self.ports.iter().any(pins);
        Ok(())
    }

    /// Links whose second link is that at `at` take over its rate.
    pub(super) fn follow_second_links(&mut self, now: Nanos, at: usize) -> Result<(), CommandError> {
        for other in 0..self.links.len() {
            let admission = self.links[other].admission.as_ref();
            let second = admission.and_then(|admission| admission.second_link.port.as_ref());
            if second.is_some_and(|second| second.0 == self.links[at].port) {
                let config = self.admission_config(&self.links[other])?;
                self.put_admission(now, other, config)?;
            }
        }
        Ok(())
    }

    /// Changes a key of the admission of the link of port `link`.
    ///
    /// # Errors
    /// No such link, it has no admission, or the change is refused; nothing changed.
    pub fn set_admission(&mut self, now: Nanos, link: &str, change: &Change) -> Result<(), CommandError> {
        let at = self.find(link)?;
        let Some(admission) = &self.links[at].admission else {
            return Err(CommandError::Invalid(format!(
                "link {link} has no admission: switch it on first (set {link} admission on)"
            )));
        };
        let mut changed = admission.clone();
        let refused = |error: SettingError| CommandError::Invalid(format!("admission.{error}"));
        changed.set_live(change, 0).map_err(refused)?;
        self.reconfigure(now, at, LinkConfig { admission: Some(changed), ..self.links[at].clone() })
    }

    /// Puts another admission in place of that of the link of port `link`; `None`: everybody may enter.
    ///
    /// # Errors
    /// No such link, or it is refused; nothing changed.
    pub fn swap_admission(
        &mut self,
        now: Nanos,
        link: &str,
        admission: Option<AdmissionConfig>,
    ) -> Result<(), CommandError> {
        let at = self.find(link)?;
        self.reconfigure(now, at, LinkConfig { admission, ..self.links[at].clone() })
    }

    /// What happened to a flow at every link with admission, or only at that of port `link`: sentences, one a line. One of several workers
    /// tells only what it remembers, which may be nothing.
    ///
    /// # Errors
    /// No such link, or none has an admission.
    pub fn explain(&self, now: Nanos, link: Option<&str>, flow: &FlowKey) -> Result<String, CommandError> {
        let only = link.map(|link| self.find(link)).transpose()?;
        let hash = self.hasher.hash(flow);
        let pinned = self.pinned_port(now, &PackedFlow::new(flow), hash);
        let (mut text, mut admissions) = (String::new(), 0);
        for (at, slot) in self.ports.iter().enumerate() {
            let Some(admission) = slot.admission.as_ref().filter(|_| only.is_none_or(|only| only == at))
            else {
                continue;
            };
            let told = admission.explain(now, flow, hash);
            admissions += 1;
            let unknown = told.protected.is_none() && told.first_seen.is_none() && told.decisions.is_empty();
            if self.shares.is_some() && unknown {
                continue;
            }
            // Which port its packets come by is not known: as if by none that a rule names.
            let origin = Origin::Host(PortIndex(at as u16));
            let route =
                self.fib.lookup(flow.destination, hash, || LookupKey { flow: *flow, dscp: 0, origin });
            let leads = matches!(route, Some(evenkeel_net::fib::Decision::Forward { port, .. }) if port.index() == at);
            let here = pinned.map_or(leads, |pinned| pinned == at);
            let worker = self.shares.as_ref().map(WorkerShares::worker);
            super::explain::write(&mut text, &slot.name, worker, here, &told, now);
        }
        if admissions == 0 {
            let what = link.map_or("no link of this router".to_owned(), |link| format!("link {link}"));
            let has = if link.is_some() { "has no admission" } else { "has an admission" };
            return Err(CommandError::Invalid(format!(
                "{what} {has}: nothing is refused or remembered there"
            )));
        }
        Ok(text)
    }

    /// The protected flows of every link with admission, or only of that of port `link`: those with most bytes of late first, at
    /// most `top`.
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
            let Some(admission) = slot.admission.as_ref().filter(|_| only.is_none_or(|only| only == at))
            else {
                continue;
            };
            flows.extend(admission.flows(now).map(|(flow, protected)| FlowSnapshot {
                link: slot.name.clone(),
                flow: flow.to_string(),
                elastic: protected.elastic,
                recent_bytes: protected.recent.0,
                backlog_bytes: slot.link.scheduler().flow_backlog(&flow, self.hasher.hash(&flow)).0,
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

impl PortSlot {
    /// The admission of the link as plain data.
    pub(super) fn admission_view(&self) -> Option<AdmissionSnapshot> {
        self.admission.as_ref().map(|admission| AdmissionSnapshot::of(&admission.view()))
    }
}
