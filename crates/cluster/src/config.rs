//! What all nodes of a cluster must agree upon, its ranges, and its hash.

use std::fmt;
use std::ops::RangeInclusive;

use evenkeel_core::settings::{Held, Kind, PerClass, SettingError, Settings as _, Value};
use evenkeel_core::{BitRate, Bytes, Nanos, settings, words};
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
/// Most bytes of a train: as many short packets as it can hold.
const MAX_TRAIN: u64 = LAZY_PACKET as u64 * TRAIN_PACKETS as u64;
/// Most packets of a train.
pub const TRAIN_PACKETS: usize = 255;

words! {
    /// How much is decided with one exchange (spec 8).
    pub enum Variant {
        /// One packet per exchange.
        Single = "s-ds",
        /// `l` packets announced, up to `l + p` rounds per exchange.
        Multiple = "m-ds",
        /// One decision and a burst of `l`·64 bytes per exchange. The last packet crosses that
        /// mark; the exchange announces the bytes that the burst will have.
        Lazy = "l-ds",
        /// As m-ds, but the next exchange runs while this window is sent, and announces what will
        /// then be at the heads.
        #[default]
        Pipelined = "p-ds",
    }
}

words! {
    /// What a virtual-time flow is (spec 5.3).
    pub enum WeightRule {
        /// Every queue of every forwarder has its class's weight: the literal reading of the paper.
        /// A class that is backlogged on fewer forwarders gets less.
        PerQueue = "a",
        /// A class has its weight on a link, whichever forwarders hold it: one tag per link and
        /// class; the forwarders share inside a class by the ties' seed. Class shares are exact
        /// whenever the forwarders together can give them.
        #[default]
        PerClass = "b",
        /// A class's weight is divided among the forwarders that hold it, who share inside a class
        /// by tags. Class shares are exact as long as no forwarder's parts of all links add up to
        /// more than one link, because it serves one at a time.
        Divided = "c",
    }
}

words! {
    /// Which side proposes in the stable matching (spec 6.3).
    pub enum Proposer {
        /// Each link gets the smallest virtual finish time that a stable matching can give it.
        #[default]
        Links = "links",
        /// Each forwarder sends the oldest packet that a stable matching lets it send.
        Forwarders = "forwarders",
    }
}

words! {
    /// What a node does that did not hear another in this exchange (spec P1.6).
    pub enum Missing {
        /// Use what was last heard, as in the paper: two forwarders may then use one link.
        Stale = "stale",
        /// Use it if the other was not matched in the cycle before; otherwise send nothing in this
        /// cycle and have the clocks set.
        #[default]
        Abstain = "abstain",
        /// Use the next packet that was announced, if there is one; otherwise as `abstain`.
        Next = "next",
    }
}

words! {
    /// Version of the frames (spec 3).
    pub enum Version {
        /// Two bytes of header, as published: up to 63 forwarders, one frame each.
        V1 = "v1",
        /// Wider ids, fragments, a configuration hash, a checksum and the set of members.
        #[default]
        V2 = "v2",
    }
}

settings! {
    /// How long a window's sendings take; the same on all nodes.
    #[derive(Copy)]
    pub struct Timing: "[cluster]" {
        /// The rate of each of the cluster's links that has none of its own.
        reload rate: BitRate = BitRate::from_mbps(1_000), in 1_000..=1_000_000_000_000_u64,
            is required;
        /// What a packet takes on the wire beyond its IP length.
        reload overhead: u16 = 38, in 0..=65_535, counting "bytes";
        /// A packet takes at least this long (a forwarder's processor).
        reload per_packet: Nanos = Nanos::ZERO, in SHORT;
        /// Set aside for the decision of each round; pipelined, for all rounds before the window.
        reload decision: Nanos = Nanos::from_micros(1), in SHORT;
        /// Left between rounds.
        reload guard: Nanos = Nanos::from_micros(1), in SHORT;
    }
}

settings! {
    /// How the exchange looks on the wire.
    #[derive(Copy)]
    pub struct Framing: "[cluster]" {
        /// The internal VLAN of the exchange frames, which carry its tag; 0: untagged.
        fixed vlan: u16 = 3_001, in 0..=4_094;
        /// Key of the frames' authentication: 32 hexadecimal digits. Without it anybody on the
        /// segment can steer the schedule.
        fixed key: Option<ExchangeKey> = None, absent "not authenticated";
        /// Longest payload of an exchange frame; longer announcements are cut.
        reload mtu: u16 = 1_500, in 256..=9_000, counting "bytes";
    }
    plain {
        /// The version of the frames.
        version: Version = Version::V2;
        /// Ethertype; version 2 uses the one after it. 0x88B5 and 0x88B6 are set aside for local
        /// experiments.
        ethertype: u16 = 0x88b5;
    }
}

/// A length of time that is none of the exchange's, in nanoseconds.
const SHORT: RangeInclusive<u64> = 0..=10_000_000_000;

/// Key of the exchange frames' authentication.
#[derive(Clone, Copy, Eq, PartialEq)]
pub struct ExchangeKey(pub [u8; 16]);

impl fmt::Debug for ExchangeKey {
    /// Without the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ExchangeKey(..)")
    }
}

impl Held for ExchangeKey {
    const KIND: Kind = Kind::Secret("32 hexadecimal digits", |text| {
        text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
    });

    fn to_value(&self) -> Value {
        Value::Text(self.0.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}")))
    }

    fn from_value(value: &Value) -> Option<Self> {
        let Value::Text(text) = value else { return None };
        u128::from_str_radix(text, 16).ok().map(|key| Self(key.to_be_bytes()))
    }
}

settings! {
    /// What all forwarders of a cluster must agree upon.
    pub struct ClusterConfig: "[cluster]" {
        /// The ids of all forwarders, ascending, 1 to 64 of them. The lowest that is alive is
        /// master. A member that is not there counts as empty.
        reload members: Vec<NodeId> = Vec::new(), is required;
        /// How much is decided with one exchange.
        reload variant: Variant = Variant::Pipelined;
        /// Packets announced per queue, or the length of a burst.
        reload l: u16 = 25, in 1..=800, counting "packets";
        /// Rounds beyond `l` while what is announced lasts.
        reload p: u16 = 0, in 0..=3_000, counting "rounds";
        /// What a class's weight is of.
        reload rule: WeightRule = WeightRule::PerClass;
        /// The weight of each class on each link.
        reload weight: PerClass<u16> = PerClass::all(1), in 1..=65_535;
        /// Which side proposes in the stable matching.
        reload proposer: Proposer = Proposer::Links;
        /// Whether links and forwarders left idle are matched in a second pass, along augmenting
        /// paths.
        reload second_pass: bool = true;
        /// With several packets announced, a matched pair sends so many bytes in its round instead
        /// of one packet, and does not wait for the longest packet of the round.
        reload round_bytes: Bytes = Bytes(0), in 0..=1 << 20;
        /// Consecutive packets of a queue are announced and granted together, up to so many bytes:
        /// what is announced and decided then costs as much for small packets as for large ones.
        /// Shares are by trains, as exact as with packets of that size. 0: each packet by itself;
        /// lazy scheduling has its own bursts.
        reload train: Bytes = Bytes(0), in 0..=MAX_TRAIN;
        /// What each forwarder can send: in a round it serves links whose rates together are no
        /// more than this. What the weakest of them can.
        reload forwarder_rate: Option<BitRate> = None, in 1_000..=1_000_000_000_000_u64,
            absent "one link at a time";
        /// What to do about a frame that did not come.
        reload missing: Missing = Missing::Abstain;
        /// Bound on the time from one node's sending to all others' hearing, waking up included.
        reload t_br: Nanos = Nanos::from_millis(2), in 1_000..=10_000_000_000_u64;
        /// Whether the master waits for twice `t_br`.
        reload long_wait: bool = false;
        /// Whether an exchange ends as soon as all members were heard.
        reload early_close: bool = false;
        /// A cycle takes at least this long: the pause between exchanges when there is nothing to
        /// send.
        reload min_cycle: Nanos = Nanos::from_millis(2), in SHORT;
        /// What a class that could not be served is owed at most: a queue's tag lags its link's
        /// clock by no more than this.
        reload max_lag: Bytes = Bytes(1 << 20), in 1 << 16..=1_u64 << 32;
        /// How often the clocks are compared.
        reload checksum_every: u16 = 64, in 1..=65_535, counting "cycles";
        /// A member unheard for so long counts as empty.
        reload lost_after: u16 = 3, in 1..=100, counting "cycles";
        /// Seed of the ties.
        reload seed: u64 = 1;
    }
    parts {
        /// How long sendings take.
        timing: Timing,
        /// The frames.
        framing: Framing,
    }
    plain {
        /// Outgoing links (N), 1 to 64.
        links: usize = 1;
        /// The rate of each of them; none: all have [`Timing::rate`].
        rates: Vec<BitRate> = Vec::new();
        /// Classes (K), 1 to 8.
        classes: u16 = 1;
    }
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
    /// A setting is out of its range.
    #[error(transparent)]
    Setting(#[from] SettingError),
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
        "{what} takes {bytes} bytes and version 1 has no fragments: use version 2, or an mtu of at \
         least that (at most 9000)"
    )]
    TooLarge {
        /// Which frame.
        what: &'static str,
        /// Its payload.
        bytes: usize,
    },
}

impl ClusterConfig {
    /// A cluster of `members` forwarders with ids from 0, `links` links and these weights, with the
    /// recommended settings: P-DS, rule B, abstaining, version 2.
    #[must_use]
    pub fn new(members: u16, links: usize, weights: &[u16]) -> Self {
        let mut config = Self {
            members: (0..members).map(NodeId).collect(),
            links,
            p: 95,
            t_br: Nanos::from_micros(72),
            min_cycle: Nanos::ZERO,
            ..Self::default()
        };
        config.timing.overhead = 24;
        config.timing.decision = Nanos::ZERO;
        config.set_weights(weights);
        config
    }

    /// Classes with these weights.
    pub fn set_weights(&mut self, weights: &[u16]) {
        self.classes = u16::try_from(weights.len()).unwrap_or(u16::MAX);
        self.weight = PerClass::new(weights, 1);
    }

    /// The weights of the classes.
    pub fn weights(&self) -> impl Iterator<Item = u16> + '_ {
        self.weight.first(self.classes())
    }

    /// A variant with its `l` and `p`.
    pub fn set_variant(&mut self, variant: Variant, l: u16, p: u16) {
        (self.variant, self.l, self.p) = (variant, l, p);
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
        self.classes.into()
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
            Variant::Single | Variant::Lazy => 1,
            Variant::Multiple | Variant::Pipelined => self.l.into(),
        }
    }

    /// Rounds of a window at most (l + p).
    #[must_use]
    pub fn rounds(&self) -> u32 {
        match self.variant {
            Variant::Single | Variant::Lazy => 1,
            Variant::Multiple | Variant::Pipelined => u32::from(self.l) + u32::from(self.p),
        }
    }

    /// Bytes at which a burst of lazy scheduling ends.
    #[must_use]
    pub fn burst(&self) -> Option<u32> {
        (self.variant == Variant::Lazy).then(|| u32::from(self.l) * LAZY_PACKET)
    }

    /// Bytes of a train at most.
    #[must_use]
    pub fn train(&self) -> Option<u32> {
        let bytes = u32::try_from(self.train.0).unwrap_or(u32::MAX);
        (self.train.0 > 0 && self.variant != Variant::Lazy).then_some(bytes)
    }

    /// Whether the next exchange runs while the window is sent.
    #[must_use]
    pub fn is_pipelined(&self) -> bool {
        self.variant == Variant::Pipelined
    }

    /// The same without what its variant has no use for.
    #[must_use]
    pub fn reduced(mut self) -> Self {
        let default = Self::default();
        match self.variant {
            Variant::Single => (self.l, self.p) = (default.l, default.p),
            Variant::Lazy => self.p = default.p,
            Variant::Multiple | Variant::Pipelined => {}
        }
        self
    }

    /// Whether clocks are compared in this cycle.
    #[must_use]
    pub fn compares_in(&self, cycle: u64) -> bool {
        cycle.is_multiple_of(self.checksum_every.into())
    }

    /// From a cycle's trigger to the end of its exchange on the master.
    #[must_use]
    pub fn exchange_time(&self) -> Nanos {
        if self.long_wait { self.t_br * 2 } else { self.t_br }
    }

    /// From a cycle's trigger to the begin of its window when exchanges run ahead of windows: the
    /// exchange on the slowest node and the decisions of all rounds.
    #[must_use]
    pub fn lead(&self) -> Nanos {
        self.t_br * 2 + self.timing.decision * u64::from(self.rounds())
    }

    /// The rate of a link.
    #[must_use]
    pub fn rate_of(&self, link: usize) -> BitRate {
        self.rates.get(link).copied().unwrap_or(self.timing.rate)
    }

    /// The rates of all links.
    pub fn link_rates(&self) -> impl Iterator<Item = BitRate> + '_ {
        (0..self.links).map(|link| self.rate_of(link))
    }

    /// The rate of the slowest link.
    #[must_use]
    pub fn slowest(&self) -> BitRate {
        self.link_rates().min().unwrap_or(self.timing.rate)
    }

    /// Whether a matched pair goes on sending until its round is over: because it is told to, or
    /// because a fast link would wait for what a slow one sends.
    #[must_use]
    pub fn fills_rounds(&self) -> bool {
        self.round_bytes.0 > 0 || self.link_rates().any(|rate| rate != self.rate_of(0))
    }

    /// Links that a forwarder serves in a round at most.
    #[must_use]
    pub fn links_at_once(&self) -> usize {
        let Some(room) = self.forwarder_rate else { return 1 };
        let mut rates: Vec<u64> = self.link_rates().map(|rate| rate.0).collect();
        rates.sort_unstable();
        let sum = |sum: &mut u64, rate: u64| {
            *sum = sum.saturating_add(rate);
            Some(*sum)
        };
        rates.into_iter().scan(0, sum).take_while(|sum| *sum <= room.0).count().max(1)
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
        // Files hold less of these: `l` and `p` that fit each other whatever the variant, and seeds
        // that are numbers of TOML.
        let narrower = ["l", "p", "seed"];
        for key in Self::SECTION.keys().filter(|key| !narrower.contains(&key.name)) {
            key.admits(&self.get(key.name).unwrap_or(Value::Absent))?;
        }
        if !self.rates.is_empty() {
            let links = self.links as u64;
            range("the number of rates", self.rates.len() as u64, links, links, "that of links")?;
        }
        let fastest = self.link_rates().max().unwrap_or_default().0;
        for rate in self.rates.iter().map(|rate| rate.0) {
            range("a link's rate", rate, 1_000, 1_000_000_000_000, "1 kbit/s to 1 Tbit/s")?;
        }
        if let Some(rate) = self.forwarder_rate {
            let valid = "at least the rate of the fastest link";
            range("forwarder_rate", rate.0, fastest, u64::MAX, valid)?;
        }
        for pair in self.members.windows(2) {
            if pair[0] >= pair[1] {
                return Err(ConfigError::Members(pair[1].0));
            }
        }
        range("l", self.depth() as u64, 1, 1000, "1 to 1000")?;
        range("l + p", u64::from(self.rounds()), 1, u64::from(MAX_ROUNDS), "1 to 4096")?;
        if self.variant == Variant::Lazy {
            range("l", self.l.into(), 1, 800, "1 to 800")?;
        }
        range("ethertype", self.framing.ethertype.into(), 0x0600, 0xfffe, "0x0600 to 0xfffe")?;
        if self.framing.version == Version::V1 {
            let largest = self.members.last().map_or(0, |id| id.0);
            // Its frames say the cycle modulo 256 only.
            let divides = u64::from(256 % self.checksum_every);
            range("256 modulo checksum_every in version 1", divides, 0, 0, "0")?;
            range("an id in version 1", largest.into(), 0, MAX_V1_ID.into(), "0 to 62")?;
            range("train in version 1", self.train.0, 0, 0, "0")?;
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
        // What a variant has no use for may differ.
        let (l, p) = match self.variant {
            Variant::Single => (1, 0),
            Variant::Lazy => (self.l, 0),
            Variant::Multiple | Variant::Pipelined => (self.l, self.p),
        };
        all(&[self.members.len() as u64, self.links as u64, self.classes.into()]);
        self.members.iter().for_each(|id| all(&[id.0.into()]));
        self.weights().for_each(|weight| all(&[weight.into()]));
        all(&[self.variant as u64, l.into(), p.into(), self.rule as u64, self.proposer as u64]);
        all(&[self.second_pass.into(), self.round_bytes.0, self.missing as u64]);
        all(&[self.t_br.0, self.long_wait.into(), self.early_close.into(), self.min_cycle.0]);
        let timing = &self.timing;
        all(&[
            timing.rate.0,
            timing.overhead.into(),
            timing.per_packet.0,
            timing.decision.0,
            timing.guard.0,
        ]);
        all(&[self.seed, self.max_lag.0, self.checksum_every.into(), self.lost_after.into()]);
        all(&[self.framing.version as u64, self.framing.mtu.into()]);
        // Without it the hash is that of routers that do not know it: they agree.
        self.train().into_iter().for_each(|bytes| all(&[bytes.into()]));
        if self.link_rates().any(|rate| rate != self.timing.rate) {
            self.link_rates().for_each(|rate| all(&[1, rate.0]));
        }
        let several = self.forwarder_rate.filter(|_| self.links_at_once() > 1);
        several.into_iter().for_each(|rate| all(&[2, rate.0]));
        (state ^ (state >> 32)) as u32
    }
}
