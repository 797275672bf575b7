//! A cluster in virtual time: engines around a simulated T-switch, one queue of events, one seed.
//!
//! The engines are those that run live; frames are really built, lost and parsed. Modelled are:
//!
//! - the switch: a broadcast reaches the others after `broadcast`, and if `byte` is given one after
//!   the other, because all of them leave by the same ports; each receiver loses each frame
//!   with `loss`; each outgoing link is a port with a queue, served at the links' rate;
//! - the forwarders' processors (spec 11.1, a *calibration* with two constants fitted to Tables II
//!   to IV, not a prediction): a forwarder opens or answers an exchange no earlier than its work of
//!   the last one is done, `per_packet` for each packet and `per_exchange` for each exchange,
//!   counted from that exchange's begin, because receiving overlaps with it;
//! - the queues: saturated, or fed at an interval; see [`source`].

mod run;
pub mod source;

use evenkeel_core::{Bytes, Nanos};
use thiserror::Error;

use crate::config::{ClusterConfig, ConfigError, TRAIN_PACKETS, Variant};
use crate::frame::{Builder, clock_bytes};

/// A simulated cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelConfig {
    /// What the engines are told.
    pub cluster: ClusterConfig,
    /// From a broadcast to its receipt by all others.
    pub broadcast: Nanos,
    /// What a byte of an exchange frame takes on the wire: a frame to all waits for those of
    /// others. Zero: only `broadcast` counts.
    pub byte: Nanos,
    /// Frames of 2^32 that a receiver loses, each for itself.
    pub loss: u32,
    /// A forwarder's work per packet.
    pub per_packet: Nanos,
    /// A forwarder's work per exchange.
    pub per_exchange: Nanos,
    /// A forwarder's work per decided round; zero if another core decides.
    pub per_decision: Nanos,
    /// Lengths of packets and how often each comes.
    pub sizes: Vec<(u16, u32)>,
    /// Classes (a set) that each forwarder has packets of; one entry per forwarder.
    pub holds: Vec<u8>,
    /// Mean time between two packets of a queue; `None`: always backlogged.
    pub interval: Option<Nanos>,
    /// Nodes that stop, and when.
    pub stops: Vec<(usize, Nanos)>,
    /// Nodes that are cut off from those of the other set from a time until another: (set, from,
    /// until).
    pub splits: Vec<(u64, Nanos, Nanos)>,
    /// Seed of sizes, losses and arrivals.
    pub seed: u64,
    /// Virtual time to run at most.
    pub duration: Nanos,
    /// Ends when the first link has sent so many packets.
    pub packets: Option<u64>,
}

/// What an exchange of a large cluster costs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LargeCost {
    /// Reading what another forwarder announces.
    pub reading: Nanos,
    /// Deciding a round.
    pub decision: Nanos,
    /// The core that forwards decides.
    pub own_core: bool,
}

/// Records that each queue of a large cluster announces.
const LARGE_DEPTH: u16 = 4;

/// What came out.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// By link and class: (j·K + k).
    pub queues: Vec<Sent>,
    /// By link.
    pub links: Vec<LinkUse>,
    /// By forwarder.
    pub nodes: Vec<crate::engine::Counters>,
    /// By forwarder: what its audit has found.
    pub audits: Vec<crate::audit::Verdict>,
    /// By forwarder: checksum of its clocks at the end, and its last cycle.
    pub checksums: Vec<(u32, Option<u64>)>,
    /// By forwarder: packets sent.
    pub packets: Vec<u64>,
    /// Forwarders that became master, and when.
    pub masters: Vec<(usize, Nanos)>,
    /// Packets that a forwarder sent on a link although another one sent on it in the same round.
    pub collisions: u64,
    /// The longest time between two packets, on whatever link.
    pub longest_pause: Nanos,
    /// Virtual time simulated.
    pub time: Nanos,
}

/// What was sent of one class on one link.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Sent {
    /// Packets.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// How one link was used.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct LinkUse {
    /// Time that it was sending.
    pub busy: Nanos,
    /// Largest difference, at any time, between a class's bytes and its weight's part of all bytes.
    pub worst_bytes: u64,
    /// Most packets that waited at the switch's port.
    pub most_waiting: u64,
}

impl ModelConfig {
    /// The paper's forwarders: 3 links, 3 classes of equal weight, 3 forwarders, 64-byte packets,
    /// always backlogged, no loss.
    #[must_use]
    pub fn paper(mut cluster: ClusterConfig) -> Self {
        let nodes = cluster.nodes();
        cluster.timing.per_packet = Nanos(2_850);
        cluster.timing.decision = Nanos(1_050);
        cluster.timing.guard = Nanos::ZERO;
        Self {
            cluster,
            broadcast: Nanos::from_micros(20),
            byte: Nanos::ZERO,
            loss: 0,
            per_packet: Nanos(5_376),
            per_exchange: Nanos(8_500),
            per_decision: Nanos::ZERO,
            sizes: vec![(64, 1)],
            holds: vec![0xff; nodes],
            interval: None,
            stops: Vec::new(),
            splits: Vec::new(),
            seed: 1,
            duration: Nanos::SECOND,
            packets: None,
        }
    }

    /// A large cluster, P-DS with rule B: `size` forwarders of the paper's (5.376 us a packet) on
    /// as many links, an exchange frame by frame at 1 Gbit/s, and what it costs: reading the state
    /// of another forwarder, and each decision, on the core that forwards or before the window.
    #[must_use]
    pub fn large(size: u16, classes: usize, rounds: u16, train: u64, cost: LargeCost) -> Self {
        let mut cluster = ClusterConfig::new(size, size.into(), &vec![1; classes]);
        cluster.set_variant(Variant::Pipelined, LARGE_DEPTH, rounds - LARGE_DEPTH);
        cluster.train = Bytes(train);
        // In one exchange all say their state, and one the clocks.
        let state = Builder::new(&cluster, [2; 6]).state_wire_bytes();
        let clock = clock_bytes(&cluster, usize::from(rounds) * usize::from(size)) * 11 / 10;
        let bytes = (state * usize::from(size) + clock) as u64;
        cluster.t_br = Nanos(bytes * 8) + Nanos::from_micros(100);
        let mut model = Self::paper(cluster);
        // As many short packets as a train holds.
        let in_train = (train / 64).clamp(1, TRAIN_PACKETS as u64);
        let reading = cost.reading * u64::from(size - 1);
        let mut work = Nanos(reading.0 / (u64::from(rounds) * in_train));
        if cost.own_core {
            work += Nanos(cost.decision.0 / in_train);
        }
        model.cluster.timing.per_packet = model.per_packet + work;
        model.cluster.timing.decision = cost.decision;
        // All of a forwarder's work is in the pace of its packets.
        (model.per_packet, model.per_exchange) = (Nanos::ZERO, Nanos::ZERO);
        model.byte = Nanos(8);
        model
    }

    /// Packets sent in two windows, or some exchanges, in parts of what the forwarders send without
    /// weighted fair queueing, `alone` each, and all that came out. The time in which the cluster
    /// looks for its master and nobody knows anything is left out.
    ///
    /// # Errors
    /// The model is [wrong](Self::check).
    pub fn part_of(&mut self, alone: Nanos) -> Result<(f64, Outcome), ModelError> {
        let cluster = &self.cluster;
        let train = (cluster.train.0 / 64).clamp(1, TRAIN_PACKETS as u64);
        let window = alone * train * u64::from(cluster.rounds());
        // It waits for three of the longest cycles there could be.
        let packet = Nanos::from_micros(13) + cluster.timing.decision;
        let packets = cluster.train.0.div_ceil(64).max(1);
        let guess = packet * packets * u64::from(cluster.rounds());
        let begin = (guess.min(Nanos::SECOND) + cluster.t_br) * 3 + window + cluster.t_br * 8;
        let time = (window * 2).max(cluster.t_br * 8);
        self.duration = begin;
        let before: u64 = self.run()?.packets.iter().sum();
        self.duration = begin + time;
        let after = self.run()?;
        let sent = after.packets.iter().sum::<u64>() - before;
        let most = time.as_secs_f64() / alone.as_secs_f64() * after.packets.len() as f64;
        Ok((sent as f64 / most, after))
    }

    /// Checks it.
    ///
    /// # Errors
    /// What is wrong.
    pub fn check(&self) -> Result<(), ModelError> {
        if self.sizes.iter().all(|(_, often)| *often == 0)
            || self.sizes.iter().any(|(size, _)| *size == 0)
        {
            return Err(ModelError::Sizes);
        }
        if self.holds.len() != self.cluster.nodes() {
            return Err(ModelError::Holds {
                found: self.holds.len(),
                needed: self.cluster.nodes(),
            });
        }
        Ok(self.cluster.validate()?)
    }

    /// Runs it.
    ///
    /// # Errors
    /// It is [wrong](Self::check).
    pub fn run(&self) -> Result<Outcome, ModelError> {
        self.check()?;
        Ok(run::run(self)?)
    }
}

/// A model that cannot be run.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
pub enum ModelError {
    /// The cluster's configuration.
    #[error(transparent)]
    Cluster(#[from] ConfigError),
    /// No sizes.
    #[error("sizes must be at least 1 byte, and one of them must come")]
    Sizes,
    /// Which classes each forwarder holds.
    #[error("{found} sets of classes for {needed} forwarders")]
    Holds {
        /// What was given.
        found: usize,
        /// What is needed.
        needed: usize,
    },
}

impl Outcome {
    /// Bytes of a class on a link.
    #[must_use]
    pub fn sent(&self, link: usize, class: usize) -> Sent {
        self.queues[link * (self.queues.len() / self.links.len()) + class]
    }

    /// Packets per second of one forwarder, on average.
    #[must_use]
    pub fn rate(&self) -> f64 {
        let packets: u64 = self.packets.iter().sum();
        packets as f64 / self.packets.len() as f64 / self.time.as_secs_f64()
    }

    /// Part of the time that the links were sending, on average.
    #[must_use]
    pub fn link_use(&self) -> f64 {
        let busy: Nanos = self.links.iter().map(|link| link.busy).sum();
        busy.as_secs_f64() / self.links.len() as f64 / self.time.as_secs_f64()
    }
}
