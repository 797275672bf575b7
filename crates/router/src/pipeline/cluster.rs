//! The forwarder of a cluster: queues that are served when the cycle grants it.
//!
//! Packets to one of the cluster's links (a port and the next hops behind it) do not enter their
//! port's link but a queue of link and class here. The [engine](evenkeel_cluster::Engine) asks for
//! the heads of the queues, and what it grants goes into the port's link at its time, to which
//! nothing but the exchange frames is preferred. Exchange frames come in by the ports' own bursts
//! and go out before what waits at their port.
//!
//! **Conservation.** Over all: `Σ forwarded − Σ fragmented + Σ originated = Σ in_packets of all
//! links + what waits here + what was dropped here`; per queue:
//! `in_packets = granted_packets + Σ dropped + queued`; exchange frames are `exchange_received` and
//! `exchange_sent` of their port.

mod news;

use std::collections::VecDeque;
use std::net::IpAddr;

use evenkeel_cluster::{
    ClusterConfig, Engine, Event, Forwarder, Grant, NodeId, Record, mix64, stamp,
};
use evenkeel_config::ClusterSection;
use evenkeel_core::settings::{SettingError, Settings as _};
use evenkeel_core::{BitRate, Bytes, Nanos, Packet as _, Reason};
use evenkeel_net::PortIndex;
use evenkeel_ports::Frame;

use super::counters::ByReason;
use super::packet::QueuedPacket;
use super::store::Store;
use crate::error::CommandError;

/// After an event the living share as configured again within this time.
const SHARES_HOLD_AFTER: Nanos = Nanos::from_millis(100);
/// Packets that are late within so much of each other are so for one reason.
const ONE_PAUSE: Nanos = Nanos::from_millis(10);

/// The role.
pub(super) struct ClusterRole {
    section: ClusterSection,
    engine_config: ClusterConfig,
    /// Made when the port's address is known.
    engine: Option<Engine>,
    /// Of this life's frames.
    epoch: u64,
    around: Around,
}

/// What the engine sees of the forwarder.
struct Around {
    classes: usize,
    queues: Vec<Queue>,
    /// What may leave at its time, in order.
    granted: VecDeque<Granted>,
    /// How many of these, the first ones, are of a window that is over.
    of_old_window: usize,
    outbox: Vec<Frame>,
    news: Vec<Event>,
    /// By link.
    ports: Vec<u16>,
    /// How granted packets follow each other.
    pace: Pace,
    /// Under the configuration that the engine is ready to change to.
    next_pace: Pace,
    limit: usize,
    late: u64,
    /// How often that was: one pause is one time, however many packets it made late.
    pauses: u64,
    late_at: Nanos,
    /// How long after its time a packet may still be sent.
    bound: Nanos,
    /// For how long, and how many packets had waited: not told yet.
    stood_still: Option<(Nanos, usize)>,
}

/// How long packets take.
#[derive(Clone)]
struct Pace {
    /// By link.
    rates: Vec<BitRate>,
    overhead: u16,
    per_packet: Nanos,
}

impl Pace {
    fn of(config: &ClusterConfig) -> Self {
        let (overhead, per_packet) = (config.timing.overhead, config.timing.per_packet);
        Self { rates: config.link_rates().collect(), overhead, per_packet }
    }

    /// Until the next packet on a link after one of this length.
    fn slot(&self, link: usize, length: u16) -> Nanos {
        let wire = Bytes(u64::from(length) + u64::from(self.overhead));
        self.rates[link].time_for(wire).max(self.per_packet)
    }
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

impl Around {
    /// What was granted waits again, before all others of its queue.
    fn give_back(&mut self, granted: Granted) {
        let queue = &mut self.queues[granted.queue];
        queue.granted_packets -= 1;
        queue.granted_bytes -= granted.packet.ip_len().0;
        queue.bytes += granted.packet.ip_len().0;
        queue.packets.push_front(granted.packet);
    }

    /// Those whose time is over by more than the bound wait again: another forwarder may have their
    /// link by then. They stay charged to their class. To say that nothing was sent would take back
    /// what the whole window had charged, most of which was sent: a burst of 52 packets went free
    /// for one that was late.
    fn give_back_what_is_late(&mut self, now: Nanos) {
        let is_late = |granted: &&Granted| now.saturating_sub(granted.at) > self.bound;
        let late = self.granted.iter().take_while(is_late).count();
        for at in (0..late).rev() {
            // The last one first, so that the queue is as it was.
            if let Some(granted) = self.granted.remove(at) {
                self.give_back(granted);
            }
        }
        self.were_late(now, late as u64);
    }

    /// So many packets could not be sent in the time that was granted to them.
    fn were_late(&mut self, now: Nanos, packets: u64) {
        if packets == 0 {
            return;
        }
        self.late += packets;
        self.pauses += u64::from(now.saturating_sub(self.late_at) > ONE_PAUSE);
        self.late_at = now;
    }

    /// What was granted is dropped instead.
    fn take_back(&mut self, granted: Granted, reason: Reason, pool: &mut Store) {
        let queue = &mut self.queues[granted.queue];
        queue.granted_packets -= 1;
        queue.granted_bytes -= granted.packet.ip_len().0;
        queue.dropped[reason.index()] += 1;
        pool.discard(granted.packet);
    }
}

/// The forwarder during a call of the engine.
struct Acting<'a> {
    around: &'a mut Around,
    pool: &'a mut Store,
}

impl Forwarder for Acting<'_> {
    fn heads(&mut self, link: usize, class: usize, out: &mut [Record]) -> usize {
        let packets = &self.around.queues[link * self.around.classes + class].packets;
        for (record, packet) in out.iter_mut().zip(packets) {
            *record = Record::of_packet(stamp(packet.arrival()), length(packet));
        }
        packets.len().min(out.len())
    }

    fn grant(&mut self, grant: Grant) {
        let around = &mut *self.around;
        let queue = grant.link * around.classes + grant.class;
        let (mut left, mut at) = (grant.bytes, grant.at);
        while left > 0 {
            // What a port's fall has taken away meanwhile is not sent; nor is a packet that came
            // back to the head since and is longer than what the link's time is reserved for.
            let Some(packet) = around.queues[queue].take_up_to(left) else { break };
            left = left.saturating_sub(u32::from(length(&packet)));
            let slot = around.pace.slot(grant.link, length(&packet));
            let port = around.ports[grant.link];
            // In order of time also where several links are served in one round.
            let new = around.granted.partition_point(|other| other.at <= at);
            let place = new.max(around.of_old_window);
            around.granted.insert(place, Granted { at, queue, port, packet });
            at += slot;
        }
    }

    fn closes_window(&mut self, now: Nanos) {
        let around = &mut *self.around;
        around.give_back_what_is_late(now);
        // Its window began late by less than the bound, and ends as late.
        let soon = now + around.bound;
        while around.granted.back().is_some_and(|last| last.at > soon) {
            let Some(granted) = around.granted.pop_back() else { break };
            around.give_back(granted);
            around.were_late(now, 1);
        }
        around.granted.iter_mut().for_each(|granted| granted.at = granted.at.min(now));
        around.of_old_window = around.granted.len();
    }

    fn broadcast(&mut self, frame: &[u8]) {
        // Without a buffer it is lost, as on the wire.
        if let Some(frame) = self.pool.alloc_from(frame) {
            self.around.outbox.push(frame);
        }
    }

    fn event(&mut self, event: Event) {
        if let Event::Changed { .. } = event {
            self.around.pace = self.around.next_pace.clone();
        }
        // Steps are lost and gained with every lost frame; they are counted.
        if !matches!(event, Event::LostStep | Event::InStep)
            && self.around.news.last() != Some(&event)
        {
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

    fn take_up_to(&mut self, bytes: u32) -> Option<QueuedPacket> {
        self.packets.front().filter(|first| u32::from(length(first)) <= bytes)?;
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
    // Links are known by their numbers: a member whose links have other names is not of this
    // cluster.
    let names = section.links.iter().flat_map(|link| link.name.bytes().chain([0]));
    let names = names.fold(0, |hash, byte| mix64(hash ^ u64::from(byte)));
    let mut config = section.config.clone();
    config.seed ^= names;
    config
}

impl ClusterRole {
    pub(super) fn new(section: &ClusterSection) -> Result<Self, CommandError> {
        let engine_config = cluster_config(section);
        engine_config.validate()?;
        let classes = section.config.classes();
        let queues = section.links.len() * classes;
        Ok(Self {
            engine: None,
            epoch: 1,
            around: Around {
                classes,
                queues: std::iter::repeat_with(Queue::new).take(queues).collect(),
                granted: VecDeque::new(),
                of_old_window: 0,
                outbox: Vec::new(),
                news: Vec::new(),
                ports: section.links.iter().map(|link| link.port).collect(),
                pace: Pace::of(&section.config),
                next_pace: Pace::of(&section.config),
                limit: section.limit as usize,
                late: 0,
                pauses: 0,
                late_at: Nanos::ZERO,
                bound: section.config.t_br,
                stood_still: None,
            },
            section: section.clone(),
            engine_config,
        })
    }

    /// Refuses what cannot change while the router runs.
    pub(super) fn check(&self, wanted: &ClusterSection) -> Result<(), CommandError> {
        if let Err(SettingError::Fixed { key }) = self.section.keeps_fixed(wanted) {
            return Err(CommandError::fixed(format!("cluster.{key}")));
        }
        if self.section.config.classes != wanted.config.classes {
            return Err(CommandError::NeedsRestart {
                what: "cluster".to_owned(),
                why: "all members must agree on the classes",
            });
        }
        Ok(cluster_config(wanted).validate()?)
    }

    /// Other settings: `limit` at once, all else when all members are ready for it.
    pub(super) fn prepare(
        &mut self,
        now: Nanos,
        wanted: &ClusterSection,
    ) -> Result<(), CommandError> {
        if self.section == *wanted {
            return Ok(());
        }
        let config = cluster_config(wanted);
        match &mut self.engine {
            Some(engine) => engine.prepare(&config, now)?,
            None => {
                config.validate()?;
                self.around.pace = Pace::of(&config);
            }
        }
        self.around.next_pace = Pace::of(&config);
        self.around.limit = wanted.limit as usize;
        self.around.bound = wanted.config.t_br;
        self.engine_config = config;
        self.section = wanted.clone();
        Ok(())
    }

    /// Of this life's frames: no other life of this node has had it. Before the port is up.
    pub(super) fn begin_epoch(&mut self, epoch: u64) {
        self.epoch = epoch;
    }

    /// The link that a packet for this next hop takes, if it is one of the cluster's.
    pub(super) fn link_of(&self, port: PortIndex, next_hop: IpAddr) -> Option<u16> {
        let links =
            || self.section.links.iter().enumerate().filter(|(_, link)| link.port == port.0);
        let named = links().find(|(_, link)| link.next_hops.contains(&next_hop));
        let found = named.or_else(|| links().find(|(_, link)| link.next_hops.is_empty()));
        found.and_then(|(at, _)| u16::try_from(at).ok())
    }

    /// The port of the exchange is up and has this Ethernet address.
    pub(super) fn set_port_address(
        &mut self,
        now: Nanos,
        mac: [u8; 6],
    ) -> Result<(), CommandError> {
        if let Some(engine) = &mut self.engine {
            engine.set_mac(mac);
            return Ok(());
        }
        let node = NodeId(self.section.node);
        let engine = Engine::new(&self.engine_config, node, mac, self.epoch, now)?;
        self.engine = Some(engine);
        Ok(())
    }

    pub(super) fn is_exchange(&self, port: PortIndex, frame: &[u8]) -> bool {
        let framing = &self.section.config.framing;
        port.0 == self.section.port && has_kind(frame, framing.vlan, framing.ethertype)
    }

    pub(super) fn next_wake(&self) -> Nanos {
        let timer = self.engine.as_ref().map_or(Nanos::MAX, Engine::next_timer);
        self.around.granted.front().map_or(timer, |first| first.at.min(timer))
    }

    /// The port of the exchange.
    pub(super) fn port(&self) -> usize {
        usize::from(self.section.port)
    }

    /// Takes a frame of the exchange. The engine may broadcast while it reads.
    pub(super) fn receive(&mut self, now: Nanos, frame: &[u8], pool: &mut Store) {
        if let Some(engine) = &mut self.engine {
            engine.on_frame(now, frame, &mut Acting { around: &mut self.around, pool });
        }
    }

    /// A packet enters the queue of one of the links.
    pub(super) fn enqueue(&mut self, link: u16, packet: QueuedPacket, pool: &mut Store) {
        let around = &mut self.around;
        let queue = &mut around.queues[usize::from(link) * around.classes + packet.class().index()];
        queue.in_packets += 1;
        if queue.packets.len() >= around.limit {
            queue.dropped[Reason::QueueFull.index()] += 1;
            return pool.discard(packet);
        }
        queue.bytes += packet.ip_len().0;
        queue.packets.push_back(packet);
    }

    /// Runs what the engine has to do up to `now`.
    pub(super) fn run_engine(&mut self, now: Nanos, pool: &mut Store) {
        self.drop_what_is_stale(pool);
        let Some(engine) = &mut self.engine else { return };
        let mut acting = Acting { around: &mut self.around, pool };
        // A call may set a timer that is due already; two do all that can be due at one time.
        for _ in 0..2 {
            if engine.next_timer() <= now {
                engine.on_timer(now, &mut acting);
            }
        }
    }

    /// After a pause in which the balancers have given its flows to others: what waits here is of
    /// the class that could not be sent, and nothing comes after it. It would take a forwarder, and
    /// with it a link of each round, from the class that is owed it. What is sent in no time stays.
    fn drop_what_is_stale(&mut self, pool: &mut Store) {
        let Some(time) = self.engine.as_mut().and_then(Engine::take_away) else { return };
        let around = &self.around;
        let packets = around.queues.iter().map(|queue| queue.packets.len()).sum::<usize>();
        let links = around.queues.chunks(around.classes).zip(&around.pace.rates);
        let of_link = |(queues, rate): (&[Queue], &BitRate)| {
            rate.time_for(Bytes(queues.iter().map(|queue| queue.bytes).sum()))
        };
        let takes = links.map(of_link).sum::<Nanos>() + around.pace.per_packet * packets as u64;
        let stale = takes > SHARES_HOLD_AFTER;
        if stale {
            self.drop_queues(None, Reason::Stopped, pool);
        }
        self.around.stood_still = Some((time, if stale { packets } else { 0 }));
    }

    /// The frames to be broadcast, the last one first.
    pub(super) fn drain_outbox(&mut self) -> impl Iterator<Item = Frame> {
        self.around.outbox.drain(..).rev()
    }

    pub(super) fn has_outbox(&self) -> bool {
        !self.around.outbox.is_empty()
    }

    /// The next packet that may leave at `now`, and its port.
    pub(super) fn pop_granted(&mut self, now: Nanos) -> Option<(usize, QueuedPacket)> {
        let around = &mut self.around;
        around.give_back_what_is_late(now);
        around.granted.front().filter(|first| first.at <= now)?;
        let granted = around.granted.pop_front()?;
        Some((usize::from(granted.port), granted.packet))
    }

    /// The next packet of a window that is over, and its port: it goes before what the engine says.
    pub(super) fn pop_of_old_window(&mut self) -> Option<(usize, QueuedPacket)> {
        let around = &mut self.around;
        around.of_old_window = around.of_old_window.checked_sub(1)?;
        let granted = around.granted.pop_front()?;
        Some((usize::from(granted.port), granted.packet))
    }

    /// Drops what waits for the links of a port, or of all.
    pub(super) fn drop_queues(
        &mut self,
        port: Option<PortIndex>,
        reason: Reason,
        pool: &mut Store,
    ) {
        let around = &mut self.around;
        let meant = |of: u16| port.is_none_or(|port| port.0 == of);
        for (at, queue) in around.queues.iter_mut().enumerate() {
            if !meant(around.ports[at / around.classes]) {
                continue;
            }
            queue.bytes = 0;
            for packet in queue.packets.drain(..) {
                queue.dropped[reason.index()] += 1;
                pool.discard(packet);
            }
        }
        around.of_old_window = 0;
        for _ in 0..around.granted.len() {
            let Some(granted) = around.granted.pop_front() else { break };
            if !meant(granted.port) {
                around.granted.push_back(granted);
                continue;
            }
            around.take_back(granted, reason, pool);
        }
    }
}

/// Whether a frame has the tag (0: none) and the ethertype of the exchange, or the one after it.
pub(super) fn has_kind(frame: &[u8], vlan: u16, ethertype: u16) -> bool {
    let kind = |at: usize| frame.get(at..at + 2).map(|two| u16::from_be_bytes([two[0], two[1]]));
    let ours =
        |kind: Option<u16>| kind.is_some_and(|kind| (0..2).contains(&kind.wrapping_sub(ethertype)));
    match vlan {
        0 => ours(kind(12)),
        vlan => {
            kind(12) == Some(0x8100)
                && kind(14).is_some_and(|tag| tag & 0xfff == vlan)
                && ours(kind(16))
        }
    }
}
