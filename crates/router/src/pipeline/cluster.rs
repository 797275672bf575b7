//! The forwarder of a cluster: queues that are served when the cycle grants it.
//!
//! Packets to one of the cluster's links (a port and the next hops behind it) do not enter their port's link but a queue of link and class here. The
//! [engine](evenkeel_cluster::Engine) asks for the heads of the queues, and what it grants goes into the port's link at its time, to which
//! nothing but the exchange frames is preferred. Exchange frames come in by the ports' own bursts and go out before what waits at their port.
//!
//! **Conservation.** Over all: `Σ forwarded − Σ fragmented + Σ originated = Σ in_packets of all links + what waits here + what was dropped here`; per
//! queue: `in_packets = granted_packets + Σ dropped + queued`; exchange frames are `exchange_received` and `exchange_sent` of their port.

use std::collections::VecDeque;
use std::net::IpAddr;

use evenkeel_cluster::{
    ClusterConfig, Engine, Event, Forwarder, Grant, NodeId, Record, Timing, mix64, stamp,
};
use evenkeel_config::ClusterSection;
use evenkeel_core::settings::Settings as _;
use evenkeel_core::{Bytes, Nanos, Packet as _, Reason};
use evenkeel_net::PortIndex;
use evenkeel_ports::{Frame, FramePool};

use super::counters::{ByReason, named};
use super::forward::Packet;
use super::packet::QueuedPacket;
use super::{Pipeline, tables::LinkState};
use crate::error::CommandError;
use crate::snapshot::{ClusterLinkSnapshot, ClusterQueueSnapshot, ClusterSnapshot};

/// The role.
pub(super) struct ClusterRole {
    section: ClusterSection,
    engine_config: ClusterConfig,
    /// Made when the port's address is known.
    engine: Option<Engine>,
    /// First counter of the authentication if started at time zero of `now`.
    counter_base: u64,
    around: Around,
}

/// What the engine sees of the forwarder.
struct Around {
    classes: usize,
    queues: Vec<Queue>,
    /// What may leave at its time, in order.
    granted: VecDeque<Granted>,
    outbox: Vec<Frame>,
    news: Vec<Event>,
    /// By link.
    ports: Vec<u16>,
    /// How granted packets follow each other.
    pace: Timing,
    /// Under the configuration that the engine is ready to change to.
    next_pace: Timing,
    limit: usize,
    late: u64,
}

struct Queue {
    packets: VecDeque<QueuedPacket>,
    bytes: u64,
    in_packets: u64,
    granted_packets: u64,
    granted_bytes: u64,
    dropped: ByReason,
}

struct Granted {
    at: Nanos,
    queue: usize,
    port: u16,
    packet: QueuedPacket,
}

/// The forwarder during a call of the engine.
struct Acting<'a> {
    around: &'a mut Around,
    pool: &'a mut FramePool,
}

impl Forwarder for Acting<'_> {
    fn heads(&mut self, link: usize, class: usize, out: &mut [Record]) -> usize {
        let packets = &self.around.queues[link * self.around.classes + class].packets;
        for (record, packet) in out.iter_mut().zip(packets) {
            *record = Record { stamp: stamp(packet.arrival()), length: length(packet) };
        }
        packets.len().min(out.len())
    }

    fn grant(&mut self, grant: Grant) {
        let around = &mut *self.around;
        let queue = grant.link * around.classes + grant.class;
        let (mut left, mut at) = (grant.bytes, grant.at);
        while left > 0 {
            // What a port's fall has taken away meanwhile is not sent.
            let Some(packet) = around.queues[queue].take() else { break };
            left = left.saturating_sub(u32::from(length(&packet)));
            let wire = Bytes(u64::from(length(&packet)) + u64::from(around.pace.overhead));
            let port = around.ports[grant.link];
            around.granted.push_back(Granted { at, queue, port, packet });
            at += around.pace.rate.time_for(wire).max(around.pace.per_packet);
        }
    }

    fn broadcast(&mut self, frame: &[u8]) {
        // Without a buffer it is lost, as on the wire.
        if let Some(frame) = self.pool.alloc_from(frame) {
            self.around.outbox.push(frame);
        }
    }

    fn event(&mut self, event: Event) {
        if let Event::Changed { .. } = event {
            self.around.pace = self.around.next_pace;
        }
        // Steps are lost and gained with every lost frame; they are counted.
        if !matches!(event, Event::LostStep | Event::InStep) && self.around.news.last() != Some(&event) {
            self.around.news.push(event);
        }
    }
}

/// The length that the exchange announces: that of the IP packet.
fn length(packet: &QueuedPacket) -> u16 {
    u16::try_from(packet.ip_len().0).unwrap_or(u16::MAX)
}

impl Queue {
    fn new() -> Self {
        Self {
            packets: VecDeque::new(),
            bytes: 0,
            in_packets: 0,
            granted_packets: 0,
            granted_bytes: 0,
            dropped: [0; Reason::COUNT],
        }
    }

    fn take(&mut self) -> Option<QueuedPacket> {
        let packet = self.packets.pop_front()?;
        self.bytes -= packet.ip_len().0;
        self.granted_packets += 1;
        self.granted_bytes += packet.ip_len().0;
        Some(packet)
    }
}

/// What the engines of all members must agree upon.
#[must_use]
pub fn cluster_config(section: &ClusterSection) -> ClusterConfig {
    // Links are known by their places: a member whose links have other names is not of this cluster.
    let names = section.links.iter().flat_map(|link| link.name.bytes().chain([0]));
    let names = names.fold(0, |hash, byte| mix64(hash ^ u64::from(byte)));
    let mut config = section.config.clone();
    config.seed ^= names;
    config
}

impl ClusterRole {
    pub(super) fn new(section: &ClusterSection) -> Result<Self, CommandError> {
        let engine_config = cluster_config(section);
        engine_config.validate().map_err(|error| CommandError::Invalid(format!("cluster: {error}")))?;
        let classes = section.config.classes();
        let queues = section.links.len() * classes;
        Ok(Self {
            engine: None,
            counter_base: 1,
            around: Around {
                classes,
                queues: std::iter::repeat_with(Queue::new).take(queues).collect(),
                granted: VecDeque::new(),
                outbox: Vec::new(),
                news: Vec::new(),
                ports: section.links.iter().map(|link| link.port).collect(),
                pace: section.config.timing,
                next_pace: section.config.timing,
                limit: section.limit as usize,
                late: 0,
            },
            section: section.clone(),
            engine_config,
        })
    }

    /// Refuses what cannot change while the router runs.
    fn check(&self, wanted: &ClusterSection) -> Result<(), CommandError> {
        let fixed = |section: &ClusterSection| (section.port, section.config.classes);
        if self.section.keeps_fixed(wanted).is_ok() && fixed(&self.section) == fixed(wanted) {
            return Ok(());
        }
        Err(CommandError::NeedsRestart {
            what: "cluster".to_owned(),
            why: "all members must agree on node, port, vlan, key and links",
        })
    }

    /// Other settings: `limit` at once, all else when all members are ready for it.
    fn prepare(&mut self, now: Nanos, wanted: &ClusterSection) -> Result<(), CommandError> {
        if self.section == *wanted {
            return Ok(());
        }
        let config = cluster_config(wanted);
        let invalid = |error| CommandError::Invalid(format!("cluster: {error}"));
        match &mut self.engine {
            Some(engine) => engine.prepare(&config, now).map_err(invalid)?,
            None => {
                config.validate().map_err(invalid)?;
                self.around.pace = wanted.config.timing;
            }
        }
        self.around.next_pace = wanted.config.timing;
        self.around.limit = wanted.limit as usize;
        self.engine_config = config;
        self.section = wanted.clone();
        Ok(())
    }

    /// `first` is the time since 1970 at `now` zero, nanoseconds: counters of an earlier life are below.
    pub(super) fn begin_counters(&mut self, first: u64, now: Nanos) {
        self.counter_base = first.saturating_sub(now.0) / 1_000;
    }

    /// The link that a packet for this next hop takes, if it is one of the cluster's.
    pub(super) fn link_of(&self, port: PortIndex, next_hop: IpAddr) -> Option<u16> {
        let links = || self.section.links.iter().enumerate().filter(|(_, link)| link.port == port.0);
        let named = links().find(|(_, link)| link.next_hops.contains(&next_hop));
        let found = named.or_else(|| links().find(|(_, link)| link.next_hops.is_empty()));
        found.and_then(|(at, _)| u16::try_from(at).ok())
    }

    /// The exchange has a port with this address, at last or again.
    fn port_is(&mut self, now: Nanos, mac: [u8; 6]) -> Result<(), CommandError> {
        // One count for each microsecond: no node sends that many frames.
        let first = self.counter_base + now.0 / 1_000;
        let engine = Engine::new(&self.engine_config, NodeId(self.section.node), mac, first, now)
            .map_err(|error| CommandError::Invalid(format!("cluster: {error}")))?;
        self.engine = Some(engine);
        Ok(())
    }

    fn is_exchange(&self, port: PortIndex, frame: &[u8]) -> bool {
        let kind = |at: usize| frame.get(at..at + 2).map(|two| u16::from_be_bytes([two[0], two[1]]));
        let first = self.section.config.framing.ethertype;
        let ours = |kind: Option<u16>| kind.is_some_and(|kind| kind == first || kind == first + 1);
        port.0 == self.section.port
            && match self.section.config.framing.vlan {
                0 => ours(kind(12)),
                vlan => {
                    kind(12) == Some(0x8100)
                        && kind(14).is_some_and(|tag| tag & 0xfff == vlan)
                        && ours(kind(16))
                }
            }
    }

    pub(super) fn next_wake(&self) -> Nanos {
        let timer = self.engine.as_ref().map_or(Nanos::MAX, Engine::next_timer);
        self.around.granted.front().map_or(timer, |first| first.at.min(timer))
    }

    pub(super) fn view(&self, links: &[String], classes: &[String]) -> ClusterSnapshot {
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
            let those = |set: u64| -> Vec<u16> {
                let inside = |(at, id): (usize, &NodeId)| (set >> at & 1 == 1).then_some(id.0);
                engine.config().members.iter().enumerate().filter_map(inside).collect()
            };
            view.present = those(now.present);
            view.configuration = format!("{:08x}", now.configuration);
            view.next_configuration = now.next_configuration.map(|hash| format!("{hash:08x}"));
            view.waits_for = those(now.waits_for);
            view.counts = *engine.counters();
            view.used_frames = view.states + view.clocks;
            view.refused = engine.unused().met().map(|(name, n)| (name.to_owned(), n)).collect();
        }
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
}

impl Pipeline {
    /// Takes a frame of the exchange; gives any other back.
    pub(super) fn take_exchange_frame(&mut self, packet: Packet) -> Option<Packet> {
        let Some(role) = &mut self.cluster else { return Some(packet) };
        let frame = self.pool.bytes(&packet.frame);
        if !role.is_exchange(packet.port, frame) {
            return Some(packet);
        }
        self.ports[packet.port.index()].count.exchange_received += 1;
        if let Some(engine) = &mut role.engine {
            // The engine may broadcast while it reads: the frame needs a place of its own.
            self.scratch.clear();
            self.scratch.extend_from_slice(frame);
            let mut acting = Acting { around: &mut role.around, pool: &mut self.pool };
            engine.on_frame(self.last_round, &self.scratch, &mut acting);
        }
        self.pool.release(packet.frame);
        None
    }

    /// A packet enters the queue of one of the cluster's links.
    pub(super) fn queue_for_cluster(&mut self, link: u16, packet: QueuedPacket) {
        let Some(role) = &mut self.cluster else { return self.pool.release(packet.into_frame()) };
        let limit = role.around.limit;
        let queue = &mut role.around.queues[usize::from(link) * role.around.classes + packet.class().index()];
        queue.in_packets += 1;
        if queue.packets.len() >= limit {
            queue.dropped[Reason::QueueFull.index()] += 1;
            return self.pool.release(packet.into_frame());
        }
        queue.bytes += packet.ip_len().0;
        queue.packets.push_back(packet);
    }

    /// The engine's timer, what is granted, and what is to be broadcast. `horizon` is where the links have got to.
    pub(super) fn run_cluster(&mut self, now: Nanos, horizon: Nanos) {
        let Some(role) = &mut self.cluster else { return };
        if let Some(engine) = &mut role.engine {
            let mut acting = Acting { around: &mut role.around, pool: &mut self.pool };
            // A call may set a timer that is due already; two do all that can be due at one time.
            for _ in 0..2 {
                if engine.next_timer() <= now {
                    engine.on_timer(now, &mut acting);
                }
            }
        }
        self.send_exchange();
        while let Some(role) = &mut self.cluster
            && role.around.granted.front().is_some_and(|first| first.at <= now)
            && let Some(Granted { at, port, packet, .. }) = role.around.granted.pop_front()
        {
            role.around.late += u64::from(now.saturating_sub(at) > role.section.config.t_br);
            let at = horizon.max(self.advanced);
            let (link, mut egress) = self.outgoing(usize::from(port));
            // How it was treated is in the link's meters.
            let _ = link.enqueue(at, packet, &mut egress);
        }
    }

    fn send_exchange(&mut self) {
        let Some(role) = self.cluster.as_mut().filter(|role| !role.around.outbox.is_empty()) else { return };
        let at = usize::from(role.section.port);
        let slot = &mut self.ports[at];
        for frame in role.around.outbox.drain(..).rev() {
            if slot.up {
                slot.count.exchange_sent += 1;
                slot.tx.push_front(frame);
            } else {
                self.pool.release(frame);
            }
        }
        self.touch(at);
    }

    /// A port has come up or has another address: the exchange begins anew there. A port went down: what was to leave by it is dropped.
    pub(super) fn cluster_port_changed(&mut self, now: Nanos, port: PortIndex, link: Option<LinkState>) {
        let Some(role) = &mut self.cluster else { return };
        let up = link.filter(|link| link.up);
        if let Some(link) = up
            && port.0 == role.section.port
            && role.engine.is_none()
            && let Err(error) = role.port_is(now, link.mac.0)
        {
            // `ClusterRole::new` has checked all that it checks.
            debug_assert!(false, "{error}");
        }
        if up.is_none() {
            self.drop_cluster_queues(Some(port), Reason::LinkDown);
        }
    }

    /// Drops what waits for the links of a port, or of all.
    pub(super) fn drop_cluster_queues(&mut self, port: Option<PortIndex>, reason: Reason) {
        let Some(role) = &mut self.cluster else { return };
        let around = &mut role.around;
        let meant = |of: u16| port.is_none_or(|port| port.0 == of);
        for (at, queue) in around.queues.iter_mut().enumerate() {
            if !meant(around.ports[at / around.classes]) {
                continue;
            }
            queue.bytes = 0;
            for packet in queue.packets.drain(..) {
                queue.dropped[reason.index()] += 1;
                self.pool.release(packet.into_frame());
            }
        }
        for _ in 0..around.granted.len() {
            let Some(granted) = around.granted.pop_front() else { break };
            if !meant(granted.port) {
                around.granted.push_back(granted);
                continue;
            }
            let queue = &mut around.queues[granted.queue];
            queue.granted_packets -= 1;
            queue.granted_bytes -= granted.packet.ip_len().0;
            queue.dropped[reason.index()] += 1;
            self.pool.release(granted.packet.into_frame());
        }
    }

    /// Refuses changes of `[cluster]` that need a restart.
    pub(super) fn check_cluster(&self, wanted: Option<&ClusterSection>) -> Result<(), CommandError> {
        match (&self.cluster, wanted) {
            (None, None) => Ok(()),
            (Some(role), Some(wanted)) => role.check(wanted),
            _ => Err(CommandError::NeedsRestart {
                what: "cluster".to_owned(),
                why: "a router becomes a member when it starts",
            }),
        }
    }

    /// Gets ready for another configuration of the cluster.
    pub(super) fn reload_cluster(
        &mut self,
        now: Nanos,
        wanted: Option<&ClusterSection>,
    ) -> Result<(), CommandError> {
        match (&mut self.cluster, wanted) {
            (Some(role), Some(wanted)) => role.prepare(now, wanted),
            _ => Ok(()),
        }
    }

    /// What a person should take_exchange_frame: of the cluster, of routing that is not followed, and of neighbours that the kernel has no room for.
    pub fn drain_news(&mut self, mut tell: impl FnMut(&str)) {
        if self.routing.has_news() {
            [self.routing_news(), self.neighbour_news()].iter().flatten().for_each(|text| tell(text));
        }
        let Some(role) = &mut self.cluster else { return };
        for event in role.around.news.drain(..) {
            tell(&match event {
                Event::BecameMaster => "cluster: this node opens the cycles from now on".to_owned(),
                Event::FollowsMaster(id) => format!("cluster: node {} opens the cycles from now on", id.0),
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
                Event::OtherConfiguration { node, theirs, ours } => format!(
                    "cluster: node {} has another configuration ({theirs:08x}, here it is {ours:08x}): its frames are refused until [cluster], the \
                     classes and the names of the links are the same on all nodes",
                    node.0
                ),
            });
        }
    }
}
