//! Packets that are watched on their way: each stage's verdict, while somebody asks for it.
//!
//! What is watched takes the long way of all packets, so that each stage sees it; while nobody
//! watches, this costs a look at an empty option a round, and one where packets leave a link.

use std::fmt::Write as _;

use evenkeel_core::schedule::Scheduler as _;
use evenkeel_core::{FlowKey, Nanos, Reason};
use evenkeel_net::fib::Decision;
use evenkeel_net::policy::{LookupKey, Origin};
use evenkeel_net::{PortIndex, frame};

use super::Pipeline;
use super::packet::{PacketRecord, UnroutedPacket};
use super::parsed::{PacketMeta, Parsed};
use crate::error::CommandError;
use crate::watch::{Point, Sighting, Sightings, Watch};

/// Sightings that wait to be asked for, of each port.
const WAITING: usize = 2_048;
/// Who does not ask for so long does not watch any more.
const LEASE: Nanos = Nanos::from_secs(5);

/// A watch of this worker.
pub(super) struct Watching {
    watch: Watch,
    until: Nanos,
    /// The packet that is on its way now, if it is watched.
    now: Option<Passing>,
}

/// A packet that is watched, between its port and its link.
#[derive(Clone)]
pub(super) struct Passing {
    flow: String,
    arrival: Nanos,
}

/// What a port and its link have seen.
pub(super) struct Seen {
    watch: Watch,
    port: String,
    seen: Vec<Sighting>,
    missed: u64,
}

impl Seen {
    fn tell(&mut self, sighting: Sighting, bytes: &[u8]) {
        let ends = !matches!(sighting.point, Point::Received | Point::Waits | Point::Queued);
        let dropped = sighting.point == Point::Dropped;
        if (self.watch.drops && !dropped) || (self.watch.snap.is_some() && !ends) {
            return;
        }
        if self.seen.len() >= WAITING {
            self.missed += 1;
            return;
        }
        let mut sighting = sighting;
        if let Some(snap) = self.watch.snap {
            for byte in bytes.iter().take(snap as usize) {
                // Writing to a String cannot fail.
                let _ = write!(sighting.bytes, "{byte:02x}");
            }
        }
        self.seen.push(sighting);
    }

    /// A packet has left the link, or was dropped by it; `bytes`: its frame.
    #[cold]
    pub(super) fn left(
        &mut self,
        at: Nanos,
        packet: &PacketRecord,
        bytes: &[u8],
        dropped: Option<Reason>,
    ) {
        let flow = packet.flow.unpack();
        if !self.watch.wants(&flow, dscp_of(bytes)) {
            return;
        }
        let waited = at.saturating_sub(packet.arrival);
        let text = match dropped {
            None if packet.marked => format!("left after {waited}, marked (ECN)"),
            None => format!("left after {waited}"),
            Some(reason) => {
                format!("dropped after {waited}: {}", reason.describe().trim())
            }
        };
        let sighting = Sighting {
            time_ns: at.0,
            arrival_ns: packet.arrival.0,
            port: self.port.clone(),
            point: if dropped.is_some() { Point::Dropped } else { Point::Sent },
            flow: flow.to_string(),
            text,
            reason: dropped.map(|reason| reason.name().to_owned()),
            length: bytes.len() as u32,
            bytes: String::new(),
        };
        self.tell(sighting, bytes);
    }
}

fn dscp_of(bytes: &[u8]) -> u8 {
    match frame::parse(bytes) {
        Ok(frame::Parsed::Ip(headers)) => headers.dscp,
        _ => 0,
    }
}

impl Pipeline {
    /// Watches packets until nobody has asked for a while; who watched before does not any more.
    ///
    /// # Errors
    /// There is no such port.
    pub fn watch(&mut self, now: Nanos, watch: &Watch) -> Result<(), CommandError> {
        let only = watch.port.as_deref().map(|port| self.find(port)).transpose()?;
        for (at, slot) in self.ports.iter_mut().enumerate() {
            let wanted = only.is_none_or(|only| only == at);
            slot.seen = wanted.then(|| {
                let (watch, port) = (watch.clone(), slot.name.clone());
                Box::new(Seen { watch, port, seen: Vec::new(), missed: 0 })
            });
        }
        let until = now + LEASE;
        self.watching = Some(Box::new(Watching { watch: watch.clone(), until, now: None }));
        Ok(())
    }

    /// Nobody watches any more.
    pub fn unwatch(&mut self) {
        self.watching = None;
        self.ports.iter_mut().for_each(|slot| slot.seen = None);
    }

    /// What was seen since this was asked last.
    ///
    /// # Errors
    /// The watch has ended, or another has taken its place.
    pub fn sightings(&mut self, now: Nanos, id: u64) -> Result<Sightings, CommandError> {
        let watching = self.watching.as_mut().filter(|watching| watching.watch.id == id);
        watching.ok_or(CommandError::NotWatching)?.until = now + LEASE;
        let mut all = Sightings::default();
        for seen in self.ports.iter_mut().filter_map(|slot| slot.seen.as_deref_mut()) {
            all.seen.append(&mut seen.seen);
            all.missed += std::mem::take(&mut seen.missed);
        }
        all.seen.sort_by_key(|seen| seen.time_ns);
        Ok(all)
    }

    /// Ends a watch that nobody asks for. At the beginning of a round.
    #[inline]
    pub(super) fn end_stale_watch(&mut self, now: Nanos) {
        if self.watching.as_ref().is_some_and(|watching| watching.until < now) {
            self.unwatch();
        }
    }

    /// A packet was received: what will be decided on its way, as far as it is decided by tables.
    #[cold]
    pub(super) fn watch_received(&mut self, packet: &UnroutedPacket) {
        let parsed = self.parse(&packet.frame);
        let bytes = self.pool.bytes(&packet.frame);
        let below = match &parsed {
            Parsed::Other => self.classifier.parse_below(bytes),
            _ => None,
        };
        let meta = match &parsed {
            Parsed::Ip(meta) => Some(meta),
            _ => below.as_ref(),
        };
        let flow = meta.map(|meta| meta.flow.unpack());
        let Some(watching) = &self.watching else { return };
        let wanted = match &flow {
            Some(flow) => watching.watch.wants(flow, dscp_of(bytes)),
            None => watching.watch.filter.is_empty(),
        };
        let passing = wanted.then(|| Passing {
            flow: flow.map_or_else(String::new, |flow| flow.to_string()),
            arrival: packet.arrival,
        });
        if passing.is_some() {
            let text = match (&parsed, meta) {
                (Parsed::Invalid(reason), _) => format!("malformed: {}", reason.describe().trim()),
                (_, Some(meta)) => self.narrated(packet, meta),
                _ => "not IP: of the first class, for the kernel where it routes".to_owned(),
            };
            let text = format!("{} bytes: {text}", bytes.len());
            self.set_passing(passing);
            self.seen_at(packet.port.index(), packet.arrival, Point::Received, text, None, None);
        } else {
            self.set_passing(None);
        }
    }

    pub(super) fn set_passing(&mut self, passing: Option<Passing>) {
        if let Some(watching) = &mut self.watching {
            watching.now = passing;
        }
    }

    /// The packet on its way, if it is watched, is not while something else passes: until it is
    /// [set](Self::set_passing) again.
    pub(super) fn take_passing(&mut self) -> Option<Passing> {
        self.watching.as_mut()?.now.take()
    }

    /// The packet that is watched has come to a stage of its way at a port.
    #[cold]
    pub(super) fn seen_at(
        &mut self,
        port: usize,
        at: Nanos,
        stage: Point,
        text: String,
        reason: Option<Reason>,
        packet: Option<&UnroutedPacket>,
    ) {
        let Some(watching) = &mut self.watching else { return };
        let Some(Passing { flow, arrival }) = watching.now.clone() else { return };
        if !matches!(stage, Point::Received | Point::Queued) {
            watching.now = None;
        }
        let Some(seen) = &mut self.ports[port].seen else { return };
        let bytes = packet.map_or(&[][..], |packet| self.pool.bytes(&packet.frame));
        let sighting = Sighting {
            time_ns: at.0.max(arrival.0),
            arrival_ns: arrival.0,
            port: seen.port.clone(),
            point: stage,
            flow,
            text,
            reason: reason.map(|reason| reason.name().to_owned()),
            length: bytes.len() as u32,
            bytes: String::new(),
        };
        seen.tell(sighting, bytes);
    }

    /// No packet is on its way between a port and a link.
    #[inline]
    pub(super) fn nobody_passes(&mut self) {
        if self.watching.is_some() {
            self.set_passing(None);
        }
    }

    /// Whether the packet on its way is watched.
    #[inline]
    pub(super) fn is_watched(&self) -> bool {
        self.watching.as_ref().is_some_and(|watching| watching.now.is_some())
    }

    /// A packet is given to a link.
    #[cold]
    pub(super) fn watch_queued(&mut self, port: usize, packet: &PacketRecord, at: Nanos) {
        if !self.is_watched() {
            return;
        }
        let scheduler = self.ports[port].link.scheduler();
        let own = scheduler.flow_backlog(&packet.flow.unpack(), packet.flow_hash).0;
        let waiting = scheduler.backlog().packets;
        let of_it = if own > 0 { format!(", {own} bytes of its flow") } else { String::new() };
        let whose = self.ports[port].behind.as_ref().map_or_else(String::new, |behind| {
            format!("of subscriber {}: ", behind.name_of(packet.subscriber))
        });
        let text = match waiting {
            0 => format!("{whose}nothing waits before it"),
            waiting => format!("{whose}{waiting} packets wait{of_it}"),
        };
        self.seen_at(port, at, Point::Queued, text, None, None);
    }

    /// A packet is dropped before any link.
    #[cold]
    pub(super) fn remember_drop(&mut self, packet: &UnroutedPacket, reason: Reason) {
        if packet.originated {
            return;
        }
        if self.remembers > 0 {
            self.remembers -= 1;
            if let Parsed::Ip(meta) = self.parse(&packet.frame) {
                let slot = &mut self.ports[packet.port.index()];
                slot.losses_before.dropped(packet.arrival, meta.flow_hash, reason);
            }
        }
        if self.is_watched() {
            let (port, at) = (packet.port.index(), packet.arrival);
            let text = format!("dropped: {}", reason.describe().trim());
            self.seen_at(port, at, Point::Dropped, text, Some(reason), Some(packet));
        }
    }

    /// Where the tables send a packet, in words.
    fn narrated(&self, packet: &UnroutedPacket, meta: &PacketMeta) -> String {
        let class = self.class_name(meta.class);
        let slot = &self.ports[packet.port.index()];
        if let Some(peer) = slot.peer {
            return format!("class {class}, passes on to link {}", self.ports[peer].name);
        }
        let decision = self.decision(packet, meta);
        format!("class {class}, TTL {}, {}", meta.ttl, self.routed(decision))
    }

    /// A decision of the tables in words.
    pub(super) fn routed(&self, decision: Option<Decision>) -> String {
        match decision {
            Some(Decision::Forward { port, next_hop, mtu }) => {
                let Some(out) = self.ports.get(port.index()) else {
                    return "routed to a port that is no more".to_owned();
                };
                let mtu = out.mtu.min(mtu);
                format!("routed to port {} by {next_hop} (MTU {mtu})", out.name)
            }
            Some(Decision::Local) => "for this machine: the kernel has it".to_owned(),
            Some(Decision::Broadcast | Decision::Multicast) => {
                "for a group: the kernel has it".to_owned()
            }
            Some(Decision::Elsewhere) => {
                "its route leaves by an interface that is no port: the kernel forwards it"
                    .to_owned()
            }
            Some(Decision::Blackhole | Decision::Prohibit | Decision::Unreachable) => {
                "a route says that it is refused".to_owned()
            }
            None => "no route leads there".to_owned(),
        }
    }

    pub(super) fn class_name(&self, class: evenkeel_core::Class) -> &str {
        self.settings.class_names.get(class.index()).map_or("?", String::as_str)
    }

    /// What the tables say of a flow whose port of arrival is not known.
    pub(super) fn route_of(&self, flow: &FlowKey, hash: u64) -> Option<Decision> {
        let key = || LookupKey { flow: *flow, dscp: 0, origin: Origin::Host(PortIndex(0)) };
        self.routing.tables.lookup(flow.destination, hash, key)
    }
}
