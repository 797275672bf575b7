//! Everything a packet meets between two ports, without a socket and without a clock.
//!
//! ```text
//!  rx_burst of every port ─▶ sorted by arrival ─▶ parse ─▶ class ─▶ [CPU share?] ─▶ for this machine? ──▶ left to the kernel (to_host)
//!                                                                                     │ no
//!    TTL ─▶ route ─▶ port up? ─▶ MTU ─▶ [link share?] ─▶ neighbour ─▶ rewrite ─▶ [service] ─▶ [admission] ─▶ outgoing link ─▶ tx_burst
//!     └── ICMP answers, rate-limited, take the same way from "route" on
//! ```
//!
//! One [`Pipeline::round`] runs to completion over one burst per port. Tests, benches and the simulator drive it with memory ports,
//! a hand-fed table and a time of their own; the [worker](crate) with interfaces, the mirror and the clock.
//!
//! **Time.** `now` is read once per round, before the bursts. A packet enters its outgoing link at its arrival stamp, which lies
//! before `now`, and the packets of a round enter in the order of their stamps, whatever port they came from. Then every link advances to `now`.
//! So the virtual wire stays exact although the worker wakes late: neither queueing delays nor drops depend on how late it was. When a port had
//! more frames than a burst takes, the links advance only to the last stamp seen: what is still unread arrived before `now`.
//!
//! **Conservation**, after every round, as the fields of [`PortSnapshot`](crate::snapshot::PortSnapshot) and
//! [`LinkSnapshot`](crate::snapshot::LinkSnapshot):
//! - per port: `rx_packets = to_host + exchange_received + forwarded + waiting + Σ dropped`;
//! - over all: `Σ forwarded − Σ fragmented + Σ originated = Σ in_packets` of all classes of all links;
//! - per class: `in_packets = sent_packets + Σ dropped + queued + in the ring`;
//! - per port: `Σ sent_packets + exchange_sent = tx_packets + tx_waiting + Σ tx_dropped`.
//!
//! **FairDrop** ([`fairdrop`](self), in brackets above) judges received packets only, once each, and before they cost anything: what it refuses is in
//! `dropped` of the port as `fairdrop_cpu` or `fairdrop_bandwidth`. Per class: `judged = Σ refused + what went on`. What a service refuses (`acl_denied`,
//! `esp_exhausted`) is in `dropped` too: services come before `forwarded` is counted. Per service: `packets + refused = packets sent through it`.
//!
//! **Memory.** No allocation per packet after the first rounds: frames live in one pool, queues and bursts keep their capacity.

mod admission;
mod ahead;
mod balancer;
mod cluster;
mod control;
mod counters;
pub mod cycles;
mod egress;
mod explain;
mod fairdrop;
mod forward;
mod handover;
mod packet;
mod pinning;
mod round;
mod routing;
mod service;
mod sharing;
mod tables;
mod views;

use std::collections::VecDeque;

use evenkeel_config::{DisciplineConfig, Hairpin, LinkConfig, RouterConfig};
use evenkeel_core::admit::{Admission, FlowsConfig, RouterLists};
use evenkeel_core::class_map::ClassMap;
use evenkeel_core::control::Controller;
use evenkeel_core::link::Link;
use evenkeel_core::settings::{Change, Settings};
use evenkeel_core::{Nanos, Reason};
use evenkeel_net::fib::Fib;
use evenkeel_net::hash::FlowHasher;
use evenkeel_net::icmp::RateLimiter;
use evenkeel_net::neighbour::{NeighbourTable, WaitConfig};
use evenkeel_net::policy::PolicyTables;
use evenkeel_net::{MacAddr, PortIndex};
use evenkeel_ports::{Frame, FramePool, PortCounters, RxFrame};

use crate::error::CommandError;
use crate::mirror::NeighbourRequest;
use crate::own::Disciplines;
use crate::snapshot::RemovedSnapshot;
use ahead::Parsed;
use balancer::BalancerRole;
use cluster::ClusterRole;
pub use cluster::cluster_config;
use counters::PortCount;
use cycles::{CycleClock, Meter};
pub use egress::OutgoingLink;
use egress::{Egress, TX_QUEUE};
use fairdrop::FairDrop;
use forward::Packet;
pub use handover::Buffers;
pub use packet::QueuedPacket;
pub use round::Round;
use routing::Routing;
use service::Services;
pub use sharing::WorkerShares;
pub use tables::LinkState;
use tables::OwnAddresses;

/// Frames taken from one port in one round.
pub const BURST: usize = 256;
/// ICMP answers that may go at once; then the configured rate.
const ANSWER_BURST: u32 = 10;
/// How often neighbours in use that the kernel has not confirmed for a while are named to it.
const CONFIRM_EVERY: Nanos = Nanos::SECOND;

/// The seed where the configuration gives none and nobody chose one: simulations and tests are the same every time. A router on real
/// packets chooses one at each start.
const DEFAULT_SEED: u64 = 1;

/// One worker's pipeline: ports, tables, outgoing links and frame buffers.
pub struct Pipeline {
    name: String,
    class_names: Vec<String>,
    started: Nanos,
    hairpin: Hairpin,
    pool: FramePool,
    ports: Vec<PortSlot>,
    fib: PolicyTables,
    routing: Routing,
    neighbours: NeighbourTable<Packet>,
    own: OwnAddresses,
    class_map: ClassMap,
    hasher: FlowHasher,
    /// The links' configurations as they are now: what a reload is compared with.
    links: Vec<LinkConfig>,
    disciplines: Disciplines,
    /// Among several workers.
    shares: Option<WorkerShares>,
    services: Services,
    fairdrop: Option<FairDrop>,
    cluster: Option<ClusterRole>,
    balancer: Option<BalancerRole>,
    meter: Meter,
    /// Whether cycles are measured also without FairDrop.
    measures: bool,
    /// Frames that the receive ring of a port holds.
    ring: u32,
    /// What all admissions share: as configured, and the lists.
    flows: FlowsConfig,
    lists: RouterLists,
    /// Whether some link pins flows to their paths.
    pins: bool,
    /// What nobody outside knows: for hashes of flow tables.
    seed: u64,
    /// A neighbour on a second link that is not known, and is not asked for by any packet that waits.
    wanted: Option<NeighbourRequest>,
    confirm_due: Nanos,
    /// Up to when the links have advanced, those that had nothing to do included: nothing enters them before.
    advanced: Nanos,
    /// By port, when there is something to do at its link or its control. `Nanos::ZERO`: not known, because one of them was touched since the
    /// last round, or because the link waits for its port. `Nanos::MAX`: never.
    due: Vec<Nanos>,
    /// The ports for which that is not never, in their order: a round looks at no others.
    active: Vec<u16>,
    /// The least of their times.
    soonest: Nanos,
    /// The ports that sent something in the last round.
    senders: Vec<u16>,
    /// The Ethernet addresses of the ports that are up.
    port_macs: Vec<u64>,
    /// What ports counted that are no more.
    removed: Option<RemovedSnapshot>,
    /// When the last round was, and by how much of its pause the links may catch up.
    last_round: Nanos,
    max_catch_up: Option<Nanos>,
    rx: Vec<RxFrame>,
    inbox: Vec<Packet>,
    seen: Vec<Parsed>,
    released: Vec<Packet>,
    scratch: Vec<u8>,
}

/// A port as the pipeline sees it.
struct PortSlot {
    name: String,
    interface: String,
    mac: MacAddr,
    mtu: u32,
    up: bool,
    count: PortCount,
    /// What was counted by the devices that the port had before the present one.
    before: PortCounters,
    limiter: RateLimiter,
    link: OutgoingLink,
    /// What turns the knobs of the link.
    control: Option<Controller>,
    /// Who may enter the link.
    admission: Option<Box<Admission>>,
    tx: VecDeque<Frame>,
    /// Whether the kernel's stack gets what is received here too.
    kernel_has_copy: bool,
    /// How many frames `tx` may hold before a link without a rate stops.
    room: usize,
}

impl PortSlot {
    /// The link, and where it puts what leaves it.
    fn outgoing<'a>(&'a mut self, pool: &'a mut FramePool) -> (&'a mut OutgoingLink, Egress<'a>) {
        let egress =
            Egress { pool, tx: &mut self.tx, room: self.room, tx_dropped: &mut self.count.tx_dropped };
        (&mut self.link, egress)
    }
}

impl Pipeline {
    /// A pipeline for the ports, classes and links of `config`, with empty tables and all ports down: see [`Pipeline::apply`] and
    /// [`Pipeline::set_link`]. `now` is when it starts to count.
    ///
    /// # Errors
    /// A value of the configuration that the core refuses; none that came through the parser.
    pub fn new(config: &RouterConfig, now: Nanos) -> Result<Self, CommandError> {
        Self::with_disciplines(config, now, Disciplines::default())
    }

    /// As [`Pipeline::new`]; `own` knows the disciplines of `kind = "own"`.
    ///
    /// # Errors
    /// As [`Pipeline::new`]; also such a discipline that `own` does not know, or that refuses its settings.
    pub fn with_disciplines(
        config: &RouterConfig,
        now: Nanos,
        own: Disciplines,
    ) -> Result<Self, CommandError> {
        Self::for_worker(config, now, own, None)
    }

    /// As [`Pipeline::with_disciplines`], for one of several workers, which share the rates of the links; `None`: the only one.
    ///
    /// # Errors
    /// As [`Pipeline::with_disciplines`].
    pub fn for_worker(
        config: &RouterConfig,
        now: Nanos,
        own: Disciplines,
        shares: Option<WorkerShares>,
    ) -> Result<Self, CommandError> {
        let invalid = |error: &dyn std::fmt::Display| CommandError::Invalid(error.to_string());
        let classes = config.class_count();
        let section = &config.router;
        let seed = section.seed.unwrap_or(DEFAULT_SEED);
        let mut ports = Vec::with_capacity(config.ports.len());
        for (at, (port, link)) in config.ports.iter().zip(&config.links).enumerate() {
            let discipline = link.discipline.seeded(seed);
            let scheduler =
                sharing::discipline(shares.as_ref(), &own, at, &discipline, &config.class_names())?;
            let mut slot = PortSlot {
                name: port.name.clone(),
                interface: port.interface.clone(),
                mac: MacAddr::default(),
                mtu: 1500,
                up: false,
                count: PortCount::new(),
                before: PortCounters::default(),
                limiter: RateLimiter::new(section.icmp_per_second, ANSWER_BURST.min(section.icmp_per_second))
                    .map_err(|error| invalid(&error))?,
                link: Link::new(link.core, scheduler, classes).map_err(|error| invalid(&error))?,
                control: None,
                admission: None,
                tx: VecDeque::with_capacity(TX_QUEUE),
                kernel_has_copy: true,
                room: TX_QUEUE,
            };
            slot.start_control(now, link);
            ports.push(slot);
        }
        let services = Services::new(config, 0)?;
        let wait = WaitConfig { per_neighbour: section.neighbour_wait, ..WaitConfig::default() };
        let pool = FramePool::with_buffer_size(section.buffers as usize, section.buffer_size.0 as usize);
        let mut pipeline = Self {
            name: section.name.clone(),
            class_names: config.classes.iter().map(|class| class.name.clone()).collect(),
            started: now,
            hairpin: section.hairpin,
            fib: PolicyTables::new(),
            routing: Routing::default(),
            neighbours: NeighbourTable::new(wait, seed).map_err(|error| invalid(&error))?,
            own: OwnAddresses::default(),
            class_map: config.class_map(),
            hasher: FlowHasher::new(seed),
            links: config.links.clone(),
            disciplines: own,
            shares,
            services,
            fairdrop: None,
            cluster: config.cluster.as_ref().map(ClusterRole::new).transpose()?,
            balancer: config.balancer.as_ref().map(BalancerRole::new).transpose()?,
            meter: Meter::new(section.cycles, config.classes.len()),
            measures: section.cycles,
            ring: BURST as u32,
            flows: config.flows.clone(),
            lists: RouterLists::new(config.flows.lists, seed).map_err(|error| invalid(&error))?,
            pins: false,
            seed,
            wanted: None,
            confirm_due: now,
            advanced: Nanos::ZERO,
            due: vec![Nanos::ZERO; ports.len()],
            active: (0..ports.len() as u16).collect(),
            senders: Vec::with_capacity(ports.len()),
            soonest: Nanos::ZERO,
            port_macs: Vec::with_capacity(ports.len()),
            removed: None,
            last_round: now,
            max_catch_up: None,
            rx: Vec::with_capacity(BURST),
            inbox: Vec::with_capacity(BURST * ports.len()),
            seen: Vec::with_capacity(ahead::VECTOR),
            released: Vec::with_capacity(BURST),
            scratch: Vec::with_capacity(pool.max_frame()),
            ports,
            pool,
        };
        pipeline.build_fairdrop(config.fairdrop.as_ref())?;
        for at in 0..pipeline.ports.len() {
            let admission = pipeline.admission_config(&pipeline.links[at])?;
            pipeline.put_admission(now, at, admission)?;
        }
        Ok(pipeline)
    }

    /// Gives the pipeline a clock for its cycles, and the first IV that no earlier life of the router has used (nanoseconds since 1970). Without,
    /// cycles are [virtual](cycles::VirtualCycles) and IVs start at zero: for tests and simulations. Before the first round.
    pub fn set_surroundings(
        &mut self,
        clock: Box<dyn CycleClock>,
        first_iv: u64,
    ) -> Result<(), CommandError> {
        self.meter.clock = clock;
        self.services.begin_nonces(first_iv);
        if let Some(cluster) = &mut self.cluster {
            cluster.begin_counters(first_iv, self.started);
        }
        let config = self.fairdrop.as_ref().map(|fairdrop| fairdrop.config().clone());
        self.build_fairdrop(config.as_ref())
    }

    /// The frame buffers: for what feeds ports in memory.
    pub fn pool_mut(&mut self) -> &mut FramePool {
        &mut self.pool
    }

    /// The main forwarding table, to be filled by hand where there is no mirror.
    pub fn fib_mut(&mut self) -> &mut Fib {
        self.fib.main_mut()
    }

    /// The outgoing link of a port.
    #[must_use]
    pub fn link(&self, port: PortIndex) -> Option<&OutgoingLink> {
        self.ports.get(port.index()).map(|slot| &slot.link)
    }

    /// The next round looks at what the link and the control of a port have become.
    #[inline]
    fn touch(&mut self, at: usize) {
        if self.due[at] != Nanos::ZERO {
            self.wake_now(at);
        }
    }

    fn wake_now(&mut self, at: usize) {
        if self.due[at] == Nanos::MAX {
            let place = self.active.partition_point(|active| usize::from(*active) < at);
            self.active.insert(place, at as u16);
        }
        self.due[at] = Nanos::ZERO;
        self.soonest = Nanos::ZERO;
    }

    /// The link of a port, and where it puts what leaves it. The next round looks at what it has become.
    fn outgoing(&mut self, at: usize) -> (&mut OutgoingLink, Egress<'_>) {
        self.touch(at);
        self.ports[at].outgoing(&mut self.pool)
    }

    fn find(&self, link: &str) -> Result<usize, CommandError> {
        self.ports.iter().position(|slot| slot.name == link).ok_or_else(|| CommandError::NoSuchLink {
            name: link.to_owned(),
            known: self.ports.iter().map(|slot| slot.name.clone()).collect(),
        })
    }

    /// Changes a setting of the discipline of the link of port `link`.
    ///
    /// # Errors
    /// No such link, or the discipline refuses; nothing changed.
    pub fn set(&mut self, now: Nanos, link: &str, change: &Change) -> Result<(), CommandError> {
        let at = self.find(link)?;
        self.refuse_controlled(at, change)?;
        // What the configuration refuses, the link is not told.
        let mut discipline = self.links[at].discipline.clone();
        discipline.set_live(change, self.class_names.len() as u16)?;
        let (link, mut egress) = self.outgoing(at);
        link.set(now, change, &mut egress)?;
        self.links[at].discipline = discipline;
        Ok(())
    }

    /// Changes a setting of a link's wire: its rate, its transmit ring.
    ///
    /// # Errors
    /// No such link, or the value is not valid; nothing changed.
    pub fn set_wire(&mut self, now: Nanos, link: &str, change: &Change) -> Result<(), CommandError> {
        let at = self.find(link)?;
        let mut wanted = self.links[at].clone();
        wanted.core.set_live(change, 0)?;
        self.reconfigure(now, at, wanted)
    }

    /// Puts another discipline in place of a link's, which keeps what is queued as far as it fits.
    ///
    /// # Errors
    /// No such link, or a value is out of range; nothing changed.
    pub fn swap(&mut self, now: Nanos, link: &str, discipline: DisciplineConfig) -> Result<(), CommandError> {
        let at = self.find(link)?;
        self.reconfigure(now, at, LinkConfig { discipline, ..self.links[at].clone() })
    }

    /// Makes a link as `wanted` says.
    fn reconfigure(&mut self, now: Nanos, at: usize, wanted: LinkConfig) -> Result<(), CommandError> {
        let core = wanted.core;
        core.check()?;
        sharing::check_link(self.shares.as_ref(), &wanted)?;
        // A discipline that takes over the part of another begins with what that one has sent.
        if self.shares.is_some() {
            let (link, mut egress) = self.outgoing(at);
            link.advance(now, &mut egress);
        }
        let scheduler = if wanted.discipline == self.links[at].discipline {
            None
        } else {
            let classes: Vec<_> = self.class_names.iter().map(String::as_str).collect();
            let wanted = wanted.discipline.seeded(self.seed);
            Some(sharing::discipline(self.shares.as_ref(), &self.disciplines, at, &wanted, &classes)?)
        };
        if let Some(shares) = &self.shares {
            shares.set_rate(at, &wanted);
        }
        self.touch(at);
        let admission = self.admission_config(&wanted)?;
        self.put_admission(now, at, admission)?;
        let (link, mut egress) = self.ports[at].outgoing(&mut self.pool);
        if core != *link.config() {
            link.reconfigure(now, core, &mut egress)
                .map_err(|error| CommandError::Invalid(error.to_string()))?;
        }
        if let Some(fairdrop) =
            self.fairdrop.as_mut().filter(|_| wanted.core.rate != self.links[at].core.rate)
        {
            fairdrop
                .set_rate(now, at, wanted.core.rate)
                .map_err(|error| CommandError::Invalid(error.to_string()))?;
        }
        let control_stays = scheduler.is_none() && wanted.control == self.links[at].control;
        if let Some(scheduler) = scheduler {
            link.swap(now, scheduler, &mut egress);
            // Its meters begin anew.
            self.ports[at].notify_admission(now, true);
        }
        if !control_stays {
            // What the old control turned goes back first: the new one starts from the configuration.
            if self.ports[at].control.as_ref().is_some_and(Controller::is_enabled) {
                let name = self.links[at].port.clone();
                // A discipline that has just come in may lack the knobs.
                let _ = self.set_control(now, &name, false);
            }
            self.ports[at].start_control(now, &wanted);
        }
        self.links[at] = wanted;
        self.follow_second_links(now, at)
    }

    /// Makes links and the rules of classes as `config` says.
    ///
    /// # Errors
    /// Something differs that another pipeline must take over for, see [`Pipeline::take_over`] (ports, names of classes, and what [`RouterConfig`] says of the
    /// router as a whole), or a value is refused. In the first case nothing changed; in the second, which a parsed file does not meet, links before the one
    /// refused have.
    pub fn reload(&mut self, now: Nanos, config: &RouterConfig) -> Result<(), CommandError> {
        let restart = |what: &str| {
            let why = "this pipeline was built for them";
            Err(CommandError::NeedsRestart { what: what.to_owned(), why })
        };
        let ports = |slot: &PortSlot| (slot.name.clone(), slot.interface.clone());
        if !self
            .ports
            .iter()
            .map(ports)
            .eq(config.ports.iter().map(|port| (port.name.clone(), port.interface.clone())))
        {
            return restart("the ports");
        }
        if !self.class_names.iter().eq(config.classes.iter().map(|class| &class.name)) {
            return restart("the classes (their rules can)");
        }
        if self.flows.lists != config.flows.lists {
            return restart("the global list of [flows]");
        }
        self.check_cluster(config.cluster.as_ref())?;
        self.disciplines.check(config)?;
        if self.shares.is_some() {
            config.check_workers().map_err(CommandError::Invalid)?;
        }
        self.reload_balancer(config.balancer.as_ref())?;
        self.reload_cluster(now, config.cluster.as_ref())?;
        self.flows = config.flows.clone();
        for (at, wanted) in config.links.iter().enumerate() {
            self.reconfigure(now, at, wanted.clone())?;
        }
        self.services.reload(config)?;
        self.class_map = config.class_map();
        self.hairpin = config.router.hairpin;
        // Its costs are by service, and its shares by class.
        self.build_fairdrop(config.fairdrop.as_ref())
    }

    /// Drops everything that is held, as [`Reason::Stopped`]: the router stops.
    pub fn stop(&mut self, now: Nanos) {
        self.drop_cluster_queues(None, Reason::Stopped);
        let mut released = std::mem::take(&mut self.released);
        self.neighbours.drain(|packet| released.push(packet));
        for packet in released.drain(..) {
            self.no_longer_waiting(&packet);
            self.drop(packet, Reason::Stopped);
        }
        self.released = released;
        for at in 0..self.ports.len() {
            let (link, mut egress) = self.outgoing(at);
            link.drain(now, Reason::Stopped, &mut egress);
            self.ports[at].discard_sent(&mut self.pool, Reason::Stopped);
        }
    }
}

impl PortSlot {
    /// Drops the frames that left the link but that the port has not taken.
    fn discard_sent(&mut self, pool: &mut FramePool, reason: Reason) {
        for frame in self.tx.drain(..) {
            self.count.tx_dropped[reason.index()] += 1;
            pool.release(frame);
        }
    }
}
