//! Everything a packet meets between two ports, without a socket and without a clock.
//!
//! ```text
//!  rx_burst of all ports ─▶ sort by arrival ─▶ parse ─▶ class ─▶ [CPU share?] ─▶ local? ─▶ punt
//!                                                                                 │ no   (to_host)
//!    ┌────────────────────────────────────────────────────────────────────────────┘
//!    └▶ TTL ─▶ route ─▶ port up? ─▶ MTU ─▶ [link share?] ─▶ neighbour ─▶ rewrite ─▶ [service] ─┐
//!        └── ICMP answers, rate-limited, take the same way from "route" on                     │
//!                                              tx_burst ◀─ outgoing link ◀─ [admission] ◀──────┘
//! ```
//!
//! One [`Pipeline::round`] runs to completion over one burst per port. Tests, benches and the
//! simulator drive it with memory ports, a hand-fed table and a time of their own; the
//! [worker](crate) with interfaces, the mirror and the clock.
//!
//! **Time.** `now` is read once per round, before the bursts. A packet enters its outgoing link at
//! its arrival stamp, which lies before `now`, and the packets of a round enter in the order of
//! their stamps, whatever port they came from. Then every link advances to `now`. So the virtual
//! wire stays exact although the worker wakes late: neither queueing delays nor drops depend on how
//! late it was. When a port had more frames than a burst takes, the links advance only to the last
//! stamp seen: what is still unread arrived before `now`.
//!
//! **Conservation**, after every round, as the fields of
//! [`PortSnapshot`](crate::snapshot::PortSnapshot) and
//! [`LinkSnapshot`](crate::snapshot::LinkSnapshot):
//! - per port: `rx_packets = to_host + exchange_received + forwarded + waiting + Σ dropped`;
//! - over all: `Σ forwarded − Σ fragmented + Σ originated = Σ in_packets` of all classes of all
//!   links;
//! - per class: `in_packets = sent_packets + Σ dropped + queued + in the ring`;
//! - of several workers: `Σ handed_on = Σ handed_in + Σ handed_lost + what is under way`, and over
//!   all of one `… = Σ in_packets + Σ handed_on − Σ handed_in`: see `pipeline/hand_on.rs`;
//! - per port: `Σ sent_packets + exchange_sent + from_others = tx_packets + tx_waiting + Σ
//!   tx_dropped + by_others`, of which the third and the last are zero but where ports share a
//!   link ([`group`](self)).
//!
//! **FairDrop** ([`fairdrop`](self), in brackets above) judges received packets only, once each,
//! and before they cost anything: what it refuses is in `dropped` of the port as `fairdrop_cpu` or
//! `fairdrop_bandwidth`. Per class: `judged = Σ refused + what went on`. What a service refuses
//! (`acl_denied`, `esp_exhausted`) is in `dropped` too: services come before `forwarded` is
//! counted. Per service: `packets + refused = packets sent through it`.
//!
//! **Memory.** No allocation per packet after the first rounds: frames live in one pool, queues and
//! bursts keep their capacity.

mod addresses;
mod admission;
mod admit;
mod agenda;
mod ahead;
mod audit;
mod balance;
mod balancer;
mod busiest;
mod change;
mod cluster;
mod control;
mod counters;
pub mod cycles;
mod distances;
mod egress;
mod elsewhere;
mod entering;
mod exchange;
mod explain;
mod fairdrop;
mod first;
mod flow_cache;
mod forward;
mod group;
mod hand;
mod hand_on;
mod handover;
mod known;
mod line;
mod links;
mod lone;
mod losses;
mod neighbours;
mod node_classes;
mod packet;
mod parsed;
mod parts;
mod pass_on;
mod pinning;
mod port;
mod receive;
mod refuse;
mod reverse_path;
mod rewrite;
mod round;
mod routing;
mod service;
mod sharing;
mod store;
mod straight;
mod subscribers;
mod tables;
mod through;
mod translations;
mod tunnels;
mod views;
mod watched;
mod whole;

use std::collections::VecDeque;
use std::sync::Arc;

use evenkeel_config::{Hairpin, LinkConfig, PortConfig, RouterConfig};
use evenkeel_core::link::Link;
use evenkeel_core::{Nanos, Reason};
use evenkeel_net::fib::Fib;
use evenkeel_net::icmp::RateLimiter;
use evenkeel_net::neighbour::WaitConfig;
use evenkeel_net::{MacAddr, PortIndex};
use evenkeel_ports::bypass::ReversePath;
use evenkeel_ports::{FramePool, PortCounters};

use crate::error::CommandError;
use crate::mirror::NeighbourRequest;
use crate::own::Disciplines;
use crate::snapshot::RemovedSnapshot;
use addresses::Addresses;
use admission::Admissions;
use agenda::Agenda;
use balancer::BalancerRole;
use busiest::Busiest;
use cluster::ClusterRole;
pub use cluster::cluster_config;
use counters::PortCount;
use cycles::{CycleClock, Meter};
pub use egress::OutgoingLink;
use egress::{Egress, TX_QUEUE};
use fairdrop::FairDrop;
pub(crate) use flow_cache::FlowCache;
use hand::Hand;
use line::Followers;
use losses::Losses;
use neighbours::Neighbours;
use packet::VECTOR;
pub use packet::{BURST, QueuedPacket};
use parsed::Classifier;
pub(crate) use parts::{Blueprint, Parts};
pub use port::LinkState;
use port::PortSlot;
use receive::Receiver;
use routing::Routing;
use service::Services;
use sharing::Part;
pub use sharing::WorkerShares;
pub(crate) use store::Store;
pub(crate) use subscribers::Directories;
pub(crate) use translations::{Translations, wanted as follows_translations};
pub use tunnels::Tunnels;
use watched::Watching;

/// ICMP answers that may go at once; then the configured rate.
const ANSWER_BURST: u32 = 10;

/// The seed where the configuration gives none: simulations and tests are the same every time. A
/// router on real packets chooses one at each start.
const DEFAULT_SEED: u64 = 1;

/// What a round did.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Round {
    /// Frames received.
    pub received: usize,
    /// Frames sent.
    pub sent: usize,
    /// Whether some port had more frames than a burst: do the next round at once.
    pub more: bool,
    /// Whether packets wait for a port to take them, and for nothing else: try again in a while.
    pub blocked: bool,
}

/// Where the frames are after a pipeline has taken over from another.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Buffers {
    /// Where they were: the new pipeline takes the pool of the old one, which must be of the size
    /// that its configuration asks for.
    Kept,
    /// In the pool of the new pipeline. Frames that it has no room for are dropped as
    /// [`Reason::NoBuffer`].
    Copied,
}

/// What a pipeline was built from, and what has been changed since.
#[derive(Clone)]
struct Settings {
    name: String,
    class_names: Vec<String>,
    hairpin: Hairpin,
    links: Vec<LinkConfig>,
    disciplines: Disciplines,
    /// With whom it shares the links; `None`: it is the only worker's.
    shares: Option<WorkerShares>,
    /// For hashes of flow tables: nobody outside knows it.
    seed: u64,
    /// Whether cycles are measured also without FairDrop.
    measures: bool,
    /// Frames that the receive ring of a port holds.
    ring: u32,
    /// How long a super-frame may take the wire that stays whole.
    split_above: Nanos,
    /// The trees of subscribers, and who is in them.
    directories: Directories,
}

impl Settings {
    fn classes(&self) -> Vec<&str> {
        self.class_names.iter().map(String::as_str).collect()
    }
}

/// One worker's pipeline: ports, tables, outgoing links and frame buffers.
pub struct Pipeline {
    settings: Settings,
    started: Nanos,
    pool: Store,
    ports: Vec<PortSlot>,
    /// The ports whose links others use, too.
    shared_links: Vec<usize>,
    agenda: Agenda,
    receiver: Receiver,
    classifier: Classifier,
    routing: Routing,
    neighbours: Neighbours,
    addresses: Addresses,
    translations: Translations,
    services: Services,
    admissions: Admissions,
    fairdrop: Option<FairDrop>,
    flow_cache: FlowCache,
    followers: Followers,
    cluster: Option<ClusterRole>,
    balancer: Option<BalancerRole>,
    meter: Meter,
    /// A copy of a frame while its buffer is in use.
    scratch: Vec<u8>,
    /// Packets of a run on their way into a link where they wait.
    waiting: Vec<QueuedPacket>,
    /// Counters of ports that are no more.
    removed: Option<RemovedSnapshot>,
    /// What was built elsewhere for the change in progress.
    parts: Parts,
    /// Who watches packets on their way.
    watching: Option<Box<Watching>>,
    /// Drops before links that may still be looked into in this round.
    remembers: u8,
    /// The way of packets to the first of several workers.
    hand: Option<Hand>,
}

impl Settings {
    /// What of the link at `at` is this worker's.
    fn part_of(&self, at: usize) -> Part {
        match &self.shares {
            Some(shares) if shares.is_others(at) => Part::Nothing,
            Some(shares) if !shares.is_one_workers(at) => Part::Some,
            _ => Part::All,
        }
    }

    fn new(config: &RouterConfig, disciplines: Disciplines, shares: Option<WorkerShares>) -> Self {
        let section = &config.router;
        Self {
            name: section.name.clone(),
            class_names: config.classes.iter().map(|class| class.name.clone()).collect(),
            hairpin: section.hairpin,
            links: config.links.clone(),
            disciplines,
            shares,
            seed: section.seed.unwrap_or(DEFAULT_SEED),
            measures: section.cycles,
            ring: BURST as u32,
            split_above: section.split_above,
            directories: Directories::default(),
        }
    }

    /// A port that is down, with its outgoing link, which nothing has entered.
    fn port(
        &self,
        at: usize,
        port: &PortConfig,
        icmp_per_second: u32,
    ) -> Result<PortSlot, CommandError> {
        let link = &self.links[at];
        let discipline = link.discipline.seeded(self.seed);
        let shares = self.shares.as_ref();
        let classes = self.classes();
        let scheduler = sharing::discipline(shares, &self.disciplines, at, &discipline, &classes)?;
        // The limit is the port's, and each worker has a part of its packets.
        let icmp_per_second =
            shares.map_or(icmp_per_second, |shares| shares.part_of(icmp_per_second));
        let burst = ANSWER_BURST.min(icmp_per_second);
        Ok(PortSlot {
            index: PortIndex(at as u16),
            link_at: at,
            peer: None,
            attach: port.attach(),
            name: port.name.clone(),
            interface: port.interface.clone(),
            mac: MacAddr::default(),
            mtu: 1500,
            up: false,
            count: PortCount::new(),
            before: PortCounters::default(),
            limiter: RateLimiter::new(icmp_per_second, burst)?,
            link: Link::new(link.core, scheduler, self.class_names.len() as u16)?,
            control: None,
            follow: None,
            losses: Losses::new(),
            line: None,
            admission: None,
            tx: VecDeque::with_capacity(TX_QUEUE),
            crossing: Vec::new(),
            reverse_path: ReversePath::Off,
            elsewhere: VecDeque::new(),
            hands_over: false,
            kernel_has_copy: true,
            takes_whole: false,
            longest: 0,
            room: TX_QUEUE,
            behind: None,
            is_others: shares.is_some_and(|shares| shares.is_others(at)),
            busiest: Busiest::new(self.seed.wrapping_add(at as u64), Nanos::ZERO),
            losses_before: Losses::new(),
            seen: None,
        })
    }
}

impl Pipeline {
    /// A pipeline for the ports, classes and links of `config`, with empty tables and all ports
    /// down: see [`Pipeline::apply`] and [`Pipeline::set_link`]. `now` is when it starts to count.
    ///
    /// # Errors
    /// A value of the configuration that the core refuses; none that came through the parser.
    pub fn new(config: &RouterConfig, now: Nanos) -> Result<Self, CommandError> {
        Self::with_disciplines(config, now, Disciplines::default())
    }

    /// As [`Pipeline::new`]; `disciplines` are those of `kind = "own"`. What packets need while
    /// they wait is allocated as it is needed.
    ///
    /// # Errors
    /// As [`Pipeline::new`]; also such a discipline that is not known, or refuses its settings.
    pub fn with_disciplines(
        config: &RouterConfig,
        now: Nanos,
        disciplines: Disciplines,
    ) -> Result<Self, CommandError> {
        Self::build(config, now, disciplines, None)
    }

    /// As [`Pipeline::with_disciplines`], for one of several workers, which share the rates of the
    /// links; `None`: the only one. All that its packets will need is allocated.
    ///
    /// # Errors
    /// As [`Pipeline::with_disciplines`].
    pub fn for_worker(
        config: &RouterConfig,
        now: Nanos,
        disciplines: Disciplines,
        shares: Option<WorkerShares>,
    ) -> Result<Self, CommandError> {
        let mut pipeline = Self::build(config, now, disciplines, shares)?;
        pipeline.pool.make_records();
        Ok(pipeline)
    }

    fn build(
        config: &RouterConfig,
        now: Nanos,
        disciplines: Disciplines,
        shares: Option<WorkerShares>,
    ) -> Result<Self, CommandError> {
        let settings = Settings::new(config, disciplines, shares);
        let section = &config.router;
        let (seed, classes) = (settings.seed, settings.classes().len() as u16);
        let mut ports = Vec::with_capacity(config.ports.len());
        for (at, (port, link)) in config.ports.iter().zip(&config.links).enumerate() {
            let mut slot = settings.port(at, port, section.icmp_per_second)?;
            slot.start_control(now, link);
            slot.tell(now, link, settings.part_of(at), classes);
            slot.peer = config.peer_of(at);
            slot.link_at = config.link_of(at);
            ports.push(slot);
        }
        let wait = WaitConfig { per_neighbour: section.neighbour_wait, ..WaitConfig::default() };
        let buffer_size = section.buffer_size.0 as usize;
        let pool = FramePool::with_buffer_size(section.buffers as usize, buffer_size);
        let pool = Store::new(pool);
        let unusable = || Some(Arc::clone(settings.shares.as_ref()?.unusable()));
        let balancer = |section| BalancerRole::new(section, unusable());
        let mut pipeline = Self {
            started: now,
            shared_links: group::shared(&ports),
            agenda: Agenda::new(ports.len(), now),
            receiver: Receiver::new(ports.len()),
            classifier: Classifier::new(config.class_map(), seed),
            routing: Routing::default(),
            neighbours: Neighbours::new(wait, seed, now, BURST)?,
            addresses: Addresses::default(),
            translations: Translations::new(config, seed)?,
            services: Services::new(config, Tunnels::with(0..u64::MAX))?,
            admissions: Admissions::new(&config.flows)?,
            fairdrop: None,
            flow_cache: FlowCache::new(section.flow_cache, seed),
            followers: Followers::NONE,
            cluster: config.cluster.as_ref().map(ClusterRole::new).transpose()?,
            balancer: config.balancer.as_ref().map(balancer).transpose()?,
            meter: Meter::new(section.cycles, config.classes.len()),
            scratch: Vec::with_capacity(pool.max_frame()),
            waiting: Vec::with_capacity(VECTOR),
            removed: None,
            parts: Parts::default(),
            watching: None,
            remembers: 0,
            hand: settings.shares.as_ref().map(Hand::new),
            settings,
            ports,
            pool,
        };
        let present = Directories::default();
        pipeline.put_directories(Directories::of(config, &present));
        pipeline.build_fairdrop(config.fairdrop.as_ref())?;
        for at in 0..pipeline.ports.len() {
            let links = &pipeline.settings.links;
            let admission = pipeline.plan_admission(at, links, &config.flows)?;
            pipeline.put_admission(now, at, admission)?;
        }
        pipeline.follow_lines(now);
        Ok(pipeline)
    }

    /// Gives the pipeline a clock for its cycles, and the tunnels that it shares with the router's
    /// other workers. Without, cycles are [virtual](cycles::VirtualCycles), tunnels its own and IVs
    /// start at zero: for tests and simulations. Before the first round.
    pub fn set_surroundings(
        &mut self,
        clock: Box<dyn CycleClock>,
        tunnels: Arc<Tunnels>,
    ) -> Result<(), CommandError> {
        self.meter.set_clock(clock);
        self.services.share(tunnels)?;
        let config = self.fairdrop.as_ref().map(|fairdrop| fairdrop.config().clone());
        self.build_fairdrop(config.as_ref())
    }

    /// The epoch of this life of a cluster's forwarder or balancer: one that no other life of it
    /// has had. Before its port is up.
    pub fn begin_epoch(&mut self, epoch: u64) {
        if let Some(cluster) = &mut self.cluster {
            cluster.begin_epoch(epoch);
        }
        if let Some(balancer) = &mut self.balancer {
            balancer.begin_epoch(epoch);
        }
    }

    /// The frame buffers: for what feeds ports in memory.
    pub fn pool_mut(&mut self) -> &mut FramePool {
        &mut self.pool
    }

    /// The main forwarding table, to be filled by hand where there is no mirror.
    pub fn fib_mut(&mut self) -> &mut Fib {
        self.flow_cache.begin_epoch();
        self.routing.tables.main_mut()
    }

    /// The outgoing link of a port.
    #[must_use]
    pub fn link(&self, port: PortIndex) -> Option<&OutgoingLink> {
        self.ports.get(port.index()).map(|slot| &slot.link)
    }

    /// The link of a port, and where it puts what leaves it. The next round looks at the port.
    fn outgoing(&mut self, at: usize) -> (&mut OutgoingLink, Egress<'_>) {
        self.agenda.touch(at);
        self.ports[at].outgoing(&mut self.pool)
    }

    fn find(&self, link: &str) -> Result<usize, CommandError> {
        let at = self.find_port(link)?;
        match self.ports[at].link_at {
            own if own == at => Ok(at),
            other => Err(CommandError::LinkOfOther {
                port: link.to_owned(),
                link: self.ports[other].name.clone(),
            }),
        }
    }

    fn find_port(&self, link: &str) -> Result<usize, CommandError> {
        self.ports.iter().position(|slot| slot.name == link).ok_or_else(|| {
            CommandError::NoSuchLink {
                name: link.to_owned(),
                known: self.ports.iter().map(|slot| slot.name.clone()).collect(),
            }
        })
    }

    /// Names the neighbours that the kernel should be asked for: those that packets wait for, and
    /// once a second those in use that it has not confirmed for a while.
    pub fn drain_requests(&mut self, now: Nanos, ask: impl FnMut(NeighbourRequest)) {
        self.neighbours.drain_requests(now, ask);
    }

    /// Reports once what is new for the user: of the kernel's routing, and of the cluster.
    pub fn drain_news(&mut self, mut report: impl FnMut(&str)) {
        // The mirrors of several workers tell them the same: the first one reports it.
        let first = self.is_first();
        self.routing.drain_news(|text| {
            if first {
                report(text);
            }
        });
        self.followers.drain_news(&mut report);
        if let Some(cluster) = &mut self.cluster {
            cluster.drain_news(&mut report);
        }
        if let Some(balancer) = &mut self.balancer {
            balancer.drain_news(report);
        }
    }

    /// Drops everything that is held, as [`Reason::Stopped`]: the router stops.
    pub fn stop(&mut self, now: Nanos) {
        self.flush_handed();
        self.lose_handed();
        self.take_handed(now);
        if let Some(cluster) = &mut self.cluster {
            cluster.drop_queues(None, Reason::Stopped, &mut self.pool);
        }
        self.neighbours.release_all();
        let mut released = self.neighbours.take_released();
        for packet in released.drain(..) {
            self.no_longer_waiting(&packet);
            self.drop(packet, Reason::Stopped);
        }
        self.neighbours.reuse(released);
        for at in 0..self.ports.len() {
            let (link, mut egress) = self.outgoing(at);
            link.drain(now, Reason::Stopped, &mut egress);
            self.ports[at].discard_sent(&mut self.pool, Reason::Stopped);
        }
    }
}
