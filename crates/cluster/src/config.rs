//! What all nodes of a cluster must agree upon, its ranges, and its hash.

use evenkeel_core::{BitRate, Bytes, Nanos};
use thiserror::Error;

use crate::mix::mix64;
use crate::types::NodeId;

/// Most forwarders (M) and outgoing links (N): sets of them are single words.
pub const MAX_NODES: usize = 64;
/// Most outgoing links (N).
pub const MAX_LINKS: usize = 64;
/// Most classes (K).
pub const MAX_CLASSES: usize = 8;
/// The largest id that fits version 1; 63 says "clock".
pub const MAX_V1_ID: u16 = 62;
/// Most rounds of a window (l + p).
pub const MAX_ROUNDS: u32 = 4096;
/// Bytes that lazy scheduling counts per packet of `l` (spec 8.4).
pub const LAZY_PACKET: u32 = 64;

/// How much is decided with one exchange (spec 8).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Variant {
    /// S-DS: the head of each queue is announced, one packet per forwarder and cycle.
    Single,
    /// M-DS: the first `announced` packets (l) of each queue are announced, then up to `announced + extra` (l + p) rounds of one
    /// packet each.
    Multiple {
        /// l, 1 to 1000.
        announced: u16,
        /// p, 0 to 4095.
        extra: u16,
    },
    /// L-DS: one selection, then a burst of `packets`·64 bytes from the selected queue, the last packet crossing that mark. The exchange
    /// announces the bytes that the burst will have.
    Lazy {
        /// l, 1 to 800.
        packets: u16,
    },
    /// P-DS: as `Multiple`, but the exchange for the next window runs while this window is sent, and announces what will then be
    /// at the heads.
    Pipelined {
        /// l, 1 to 1000.
        announced: u16,
        /// p, 0 to 4095.
        extra: u16,
    },
}

/// What a virtual-time flow is (spec 5.3).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum WeightRule {
    /// A: every queue of every forwarder is a flow with its class's weight: the literal reading of the paper. A class that is backlogged on
    /// fewer forwarders gets less.
    PerQueue,
    /// B: one tag per link and class for all forwarders, who share inside a class by the ties' seed: class shares are exact whenever the
    /// forwarders together can give them.
    PerClass,
    /// C: the class's weight is divided among the forwarders on which it is backlogged, who share inside a class by tags: class shares
    /// are exact as long as no forwarder's parts of all links add up to more than one link, because it serves one at a time.
    Divided,
}

/// Which side proposes in the stable matching (spec 6.3).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Proposer {
    /// Links: each gets the smallest virtual finish time that a stable matching can give it.
    Links,
    /// Forwarders: each sends the oldest packet that a stable matching lets it send.
    Forwarders,
}

/// What a node does that did not hear another in this exchange (spec P1.6).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Missing {
    /// Uses what it last heard, although it may have been sent since: as in the paper. Two nodes may then use one link.
    Stale,
    /// Uses it if the other was not matched in the cycle before; otherwise sends nothing in this cycle and has its clocks set.
    Abstain,
    /// Uses the next packet that the other announced, if there is one; otherwise as `Abstain`.
    Next,
}

/// How long a window's sendings take; the same on all nodes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Timing {
    /// Rate of each outgoing link.
    pub rate: BitRate,
    /// Bytes that a packet takes on the wire beyond its length (24 for whole frames without check sequence).
    pub overhead: u16,
    /// A packet takes at least this long (a forwarder's processor).
    pub per_packet: Nanos,
    /// One selection and matching: set aside before each round; pipelined, for all rounds before the window: see
    /// [`lead`](ClusterConfig::lead).
    pub decision: Nanos,
    /// Left between rounds (spec 13: 1 us).
    pub guard: Nanos,
}

/// How the exchange looks on the wire.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Framing {
    /// The version of the frames.
    pub version: Version,
    /// VLAN of the exchange; `None`: untagged.
    pub vlan: Option<u16>,
    /// Ethertype; version 2 uses the one after it. 0x88B5 and 0x88B6 are set aside for local experiments.
    pub ethertype: u16,
    /// Largest Ethernet payload, 256 to 9000.
    pub mtu: u16,
    /// Key of the frames' authentication; `None`: not authenticated.
    pub key: Option<[u8; 16]>,
}

/// Version of the frames (spec 3).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Version {
    /// Two bytes of header, as published: up to 63 forwarders, one frame each.
    V1,
    /// Wider ids, fragments, a configuration hash, a checksum and the set of members.
    V2,
}

/// A cluster's configuration.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ClusterConfig {
    /// Ids of the forwarders, ascending, 1 to 64 of them.
    pub members: Vec<NodeId>,
    /// Outgoing links (N), 1 to 64.
    pub links: usize,
    /// Weights of the classes (K), 1 to 8 of them, each 1 to 65535.
    pub weights: Vec<u16>,
    /// How much is decided with one exchange.
    pub variant: Variant,
    /// What a virtual-time flow is.
    pub rule: WeightRule,
    /// Which side proposes.
    pub proposer: Proposer,
    /// Links and forwarders left idle by the stable matching are matched along augmenting paths.
    pub second_pass: bool,
    /// With several packets announced: a matched pair goes on sending in its round until so many bytes are sent, instead of waiting for the
    /// longest packet of the round. 0: one packet per round.
    pub round_bytes: u32,
    /// What to do about a frame that did not come.
    pub missing: Missing,
    /// Bound on the time from one node's sending to all others' receiving.
    pub t_br: Nanos,
    /// The master waits for 2 `t_br` instead of one.
    pub long_wait: bool,
    /// Go on as soon as all members were heard.
    pub early_close: bool,
    /// A cycle takes at least this long: the pause between exchanges when there is nothing to send.
    pub min_cycle: Nanos,
    /// How long sendings take.
    pub timing: Timing,
    /// Seed of the ties.
    pub seed: u64,
    /// A queue's tag lags its link's clock by at most so many bytes of its class: what a class could not be given because a forwarder
    /// serves one link at a time is not owed for ever.
    pub max_lag: Bytes,
    /// The clocks' checksum is sent every so many cycles, 1 to 65535.
    pub checksum_every: u16,
    /// A member unheard for so many cycles counts as empty, 1 to 100.
    pub lost_after: u16,
    /// The frames.
    pub framing: Framing,
}

/// A configuration that cannot work.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
pub enum ConfigError {
    /// A number is out of its range.
    #[error("{what} is {found}; it must be {range}")]
    Range {
        /// Which.
        what: &'static str,
        /// What was given.
        found: u64,
        /// What is valid.
        range: &'static str,
    },
    /// Members are not in ascending order, or one is there twice.
    #[error("members must be ascending and distinct: {0} is not above the one before")]
    Members(u16),
    /// This node is not among the members.
    #[error("node {0} is not among the members")]
    NotAMember(u16),
    /// A change that a running cluster cannot make.
    #[error("{0} cannot change while the cluster runs")]
    Fixed(&'static str),
    /// The frames of version 1 do not hold this cluster.
    #[error(
        "{what} takes {bytes} bytes and version 1 has no fragments: use version 2, or an mtu of at least that (at most 9000)"
    )]
    TooLarge {
        /// Which frame.
        what: &'static str,
        /// Its payload.
        bytes: usize,
    },
}

impl ClusterConfig {
    /// A cluster of `members` forwarders with ids from 0, `links` links and these weights, with the recommended settings: P-DS, rule B,
    /// abstaining, version 2.
    #[must_use]
    pub fn new(members: u16, links: usize, weights: &[u16]) -> Self {
        Self {
            members: (0..members).map(NodeId).collect(),
            links,
            weights: weights.to_vec(),
            variant: Variant::Pipelined { announced: 25, extra: 95 },
            rule: WeightRule::PerClass,
            proposer: Proposer::Links,
            second_pass: true,
            round_bytes: 0,
            missing: Missing::Abstain,
            t_br: Nanos::from_micros(72),
            long_wait: false,
            early_close: false,
            min_cycle: Nanos::ZERO,
            timing: Timing {
                rate: BitRate::from_mbps(1_000),
                overhead: 24,
                per_packet: Nanos::ZERO,
                decision: Nanos::ZERO,
                guard: Nanos::from_micros(1),
            },
            seed: 1,
            max_lag: Bytes(1 << 20),
            checksum_every: 64,
            lost_after: 3,
            framing: Framing {
                version: Version::V2,
                vlan: Some(3001),
                ethertype: 0x88b5,
                mtu: 1500,
                key: None,
            },
        }
    }

    /// As the paper has it: S-DS, rule A, stale data used, version 1, no authentication.
    #[must_use]
    pub fn published(members: u16, links: usize, weights: &[u16]) -> Self {
        let mut config = Self::new(members, links, weights);
        config.variant = Variant::Single;
        config.rule = WeightRule::PerQueue;
        config.second_pass = false;
        config.missing = Missing::Stale;
        config.framing.version = Version::V1;
        config
    }

    /// Forwarders (M).
    #[must_use]
    pub fn nodes(&self) -> usize {
        self.members.len()
    }

    /// Classes (K).
    #[must_use]
    pub fn classes(&self) -> usize {
        self.weights.len()
    }

    /// Queues of one forwarder (N·K).
    #[must_use]
    pub fn queues(&self) -> usize {
        self.links * self.classes()
    }

    /// Records announced per queue.
    #[must_use]
    pub fn depth(&self) -> usize {
        match self.variant {
            Variant::Single | Variant::Lazy { .. } => 1,
            Variant::Multiple { announced, .. } | Variant::Pipelined { announced, .. } => announced.into(),
        }
    }

    /// Rounds of a window at most (l + p).
    #[must_use]
    pub fn rounds(&self) -> u32 {
        match self.variant {
            Variant::Single | Variant::Lazy { .. } => 1,
            Variant::Multiple { announced, extra } | Variant::Pipelined { announced, extra } => {
                u32::from(announced) + u32::from(extra)
            }
        }
    }

    /// Bytes at which a burst of lazy scheduling ends.
    #[must_use]
    pub fn burst(&self) -> Option<u32> {
        match self.variant {
            Variant::Lazy { packets } => Some(u32::from(packets) * LAZY_PACKET),
            _ => None,
        }
    }

    /// Whether the next exchange runs while the window is sent.
    #[must_use]
    pub fn is_pipelined(&self) -> bool {
        matches!(self.variant, Variant::Pipelined { .. })
    }

    /// From a cycle's trigger to the end of its exchange on the master.
    #[must_use]
    pub fn exchange_time(&self) -> Nanos {
        if self.long_wait { self.t_br * 2 } else { self.t_br }
    }

    /// From a cycle's trigger to the begin of its window when exchanges run ahead of windows: the exchange on the slowest node and the
    /// decisions of all rounds.
    #[must_use]
    pub fn lead(&self) -> Nanos {
        self.t_br * 2 + self.timing.decision * u64::from(self.rounds())
    }

    /// The index of a member.
    #[must_use]
    pub fn index_of(&self, id: NodeId) -> Option<usize> {
        self.members.binary_search(&id).ok()
    }

    /// Checks all ranges.
    ///
    /// # Errors
    /// The first that does not hold.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let range = |what, found: u64, low: u64, high: u64, range| {
            if (low..=high).contains(&found) {
                Ok(())
            } else {
                Err(ConfigError::Range { what, found, range })
            }
        };
        range("the number of members", self.nodes() as u64, 1, MAX_NODES as u64, "1 to 64")?;
        range("the number of links", self.links as u64, 1, MAX_LINKS as u64, "1 to 64")?;
        range("the number of classes", self.classes() as u64, 1, MAX_CLASSES as u64, "1 to 8")?;
        for weight in &self.weights {
            range("a weight", u64::from(*weight), 1, 65_535, "1 to 65535")?;
        }
        for pair in self.members.windows(2) {
            if pair[0] >= pair[1] {
                return Err(ConfigError::Members(pair[1].0));
            }
        }
        range("l", self.depth() as u64, 1, 1000, "1 to 1000")?;
        range("l + p", u64::from(self.rounds()), 1, u64::from(MAX_ROUNDS), "1 to 4096")?;
        if let Variant::Lazy { packets } = self.variant {
            range("l", u64::from(packets), 1, 800, "1 to 800")?;
        }
        range("round_bytes", u64::from(self.round_bytes), 0, 1 << 20, "0 to 1048576")?;
        range("t_br in nanoseconds", self.t_br.0, 1_000, 10_000_000_000, "1 us to 10 s")?;
        let time = 10_000_000_000;
        range("per_packet in nanoseconds", self.timing.per_packet.0, 0, time, "at most 10 s")?;
        range("decision in nanoseconds", self.timing.decision.0, 0, time, "at most 10 s")?;
        range("guard in nanoseconds", self.timing.guard.0, 0, time, "at most 10 s")?;
        range("min_cycle in nanoseconds", self.min_cycle.0, 0, time, "at most 10 s")?;
        range("the rate in bit/s", self.timing.rate.0, 1_000, u64::MAX, "at least 1 kbit/s")?;
        range("max_lag in bytes", self.max_lag.0, 1 << 16, 1 << 32, "64 KiB to 4 GiB")?;
        range("checksum_every", self.checksum_every.into(), 1, 65_535, "1 to 65535")?;
        range("lost_after", self.lost_after.into(), 1, 100, "1 to 100")?;
        range("mtu", self.framing.mtu.into(), 256, 9_000, "256 to 9000")?;
        range("ethertype", self.framing.ethertype.into(), 0x0600, 0xfffe, "0x0600 to 0xfffe")?;
        if let Some(vlan) = self.framing.vlan {
            range("vlan", vlan.into(), 1, 4094, "1 to 4094")?;
        }
        if self.framing.version == Version::V1 {
            let largest = self.members.last().map_or(0, |id| id.0);
            range("an id in version 1", largest.into(), 0, MAX_V1_ID.into(), "0 to 62")?;
            crate::frame::fits_v1(self)?;
        }
        Ok(())
    }

    /// A hash of all that nodes must agree upon (not of the key, which proves itself).
    #[must_use]
    pub fn hash(&self) -> u32 {
        let mut state = 0x6576_656e_6b65_656c;
        let mut all = |values: &[u64]| {
            for value in values {
                state = mix64(state ^ value).wrapping_add(value.rotate_left(32));
            }
        };
        let (variant, l, p) = match self.variant {
            Variant::Single => (0, 1, 0),
            Variant::Multiple { announced, extra } => (1, announced, extra),
            Variant::Lazy { packets } => (2, packets, 0),
            Variant::Pipelined { announced, extra } => (3, announced, extra),
        };
        all(&[self.members.len() as u64, self.links as u64, self.weights.len() as u64]);
        self.members.iter().for_each(|id| all(&[id.0.into()]));
        self.weights.iter().for_each(|weight| all(&[(*weight).into()]));
        all(&[variant, l.into(), p.into(), self.rule as u64, self.proposer as u64]);
        all(&[self.second_pass.into(), self.round_bytes.into(), self.missing as u64]);
        all(&[self.t_br.0, self.long_wait.into(), self.early_close.into(), self.min_cycle.0]);
        let timing = &self.timing;
        all(&[timing.rate.0, timing.overhead.into(), timing.per_packet.0, timing.decision.0, timing.guard.0]);
        all(&[self.seed, self.max_lag.0, self.checksum_every.into(), self.lost_after.into()]);
        all(&[self.framing.version as u64, self.framing.mtu.into()]);
        (state ^ (state >> 32)) as u32
    }
}
