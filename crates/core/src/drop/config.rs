//! What FairDrop is told, and from it what each dropper is.

use alloc::vec;
use alloc::vec::Vec;
use core::fmt;
use core::ops::RangeInclusive;

use crate::out_of_range::within;
use crate::settings::{PerClass, SettingError, Settings};
use crate::units::{BitRate, Bytes, Cycles, Nanos, Thousandths};
use crate::{settings, variants, words};

/// What a packet is put through (plain forwarding, encryption, a long ACL ...): packets of one
/// class cost alike. The index of a row in [`CpuConfig::costs`].
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct ProcessingClass(pub u8);

/// Which row of the table of shares a flow has: [`FlowTableConfig::shares`].
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct ShareId(pub u8);

/// What a flow is due, relative to others.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Share {
    /// Its weight among the flows of its group: 1 to [`FlowTableConfig::MAX_WEIGHT`].
    pub weight: u16,
    /// Its group: an index into [`FlowTableConfig::groups`].
    pub group: u8,
}

/// The flows a dropper can tell apart and what they are due.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct FlowTableConfig {
    /// How many flows are remembered at once, 32 bytes each; rounded up to a power of two.
    /// [`Self::MIN_FLOWS`] to [`Self::MAX_FLOWS`]. Flows beyond that many *backlogged* ones share
    /// one fair share, and are counted.
    pub flows: u32,
    /// What the flows of each [`ShareId`] are due; 1 to 256 rows.
    pub shares: Vec<Share>,
    /// Weight of each group of flows; one group: flows share among themselves. 1 to
    /// [`Self::MAX_GROUPS`].
    pub groups: Vec<u16>,
}

impl Default for FlowTableConfig {
    fn default() -> Self {
        Self { flows: 16_384, shares: vec![Share { weight: 1, group: 0 }], groups: vec![1] }
    }
}

impl FlowTableConfig {
    /// Fewest flows.
    pub const MIN_FLOWS: u32 = 8;
    /// Most flows: 512 MiB of them.
    pub const MAX_FLOWS: u32 = 1 << 24;
    /// Heaviest weight of a flow or group.
    pub const MAX_WEIGHT: u16 = 1_000;
    /// Most groups.
    pub const MAX_GROUPS: usize = 64;

    /// Whether every value lies in its range.
    ///
    /// # Errors
    /// [`SettingError`] for the first that does not.
    pub fn check(&self) -> Result<(), SettingError> {
        let weights = (1, u64::from(Self::MAX_WEIGHT), "");
        within(
            "flows",
            self.flows.into(),
            (Self::MIN_FLOWS.into(), Self::MAX_FLOWS.into(), "flows"),
        )?;
        within("groups", self.groups.len() as u64, (1, Self::MAX_GROUPS as u64, "groups"))?;
        within("shares", self.shares.len() as u64, (1, 256, "rows"))?;
        self.groups.iter().try_for_each(|w| within("groups.weight", u64::from(*w), weights))?;
        self.shares.iter().try_for_each(|share| {
            within("shares.weight", u64::from(share.weight), weights)?;
            let most = self.groups.len() as u64 - 1;
            Ok(within("shares.group", u64::from(share.group), (0, most, ""))?)
        })
    }
}

/// Cycles of a packet, or of a threshold.
const CYCLES: RangeInclusive<u64> = 1..=CpuConfig::MAX_CYCLES.0;
/// Frames of a receive ring.
const FRAMES: RangeInclusive<u64> = 1..=1 << 24;
/// Most that may wait for a link, in bytes.
const MOST_BYTES: u64 = 1_000_000_000;

words! {
    /// Between whom shares are.
    pub enum Groups {
        /// all flows share among each other
        #[default]
        None = "none",
        /// classes share by `group_weight`, flows within their class
        Class = "class",
        /// subscribers of the `[[tree]]` share the cycles, whatever flows each has
        Subscriber = "subscriber",
    }
}

settings! {
    /// Fair shares of the worker's cycles and of the links' bits for every flow, by dropping early
    /// what exceeds them. Without overload nothing is dropped. `evenkeel ctl fairdrop KEY VALUE`
    /// changes a key. See docs/fairdrop-router.md.
    pub struct FairDropConfig: "[fairdrop]" {
        /// Whether it drops. Off, it does nothing and costs nothing.
        live on: bool = true;
        /// Whether flows share the worker's cycles. Refused packets are dropped with the reason
        /// `fairdrop_cpu`.
        live cpu: bool = true;
        /// Whether flows share the bits of each link that has a rate. Reason: `fairdrop_bandwidth`.
        live bandwidth: bool = true;
        /// Flows that are remembered at once, 32 bytes each, for the worker and for each link with
        /// a rate. What finds no place shares one entry and is counted as `unplaced`.
        live flows: u32 = 16_384, in FlowTableConfig::MIN_FLOWS..=FlowTableConfig::MAX_FLOWS,
            counting "flows";
        /// The share of each flow of a class in relation to other flows.
        live weight: PerClass<u16> = PerClass::all(1), in 1..=FlowTableConfig::MAX_WEIGHT;
        /// Whether flows share alone. With `class` shares have two levels, at most 64 classes.
        live groups: Groups = Groups::None;
        /// The share of a class as a whole, with `groups = "class"`.
        live group_weight: PerClass<u16> = PerClass::all(1), in 1..=FlowTableConfig::MAX_WEIGHT;
        /// Cycles that a packet is believed to take until it has been measured; learnt for every
        /// service from then on.
        live cost: Cycles = Cycles(2_000), in CYCLES;
        /// When a flow has used more than its share of the cycles.
        live rule: Rule = Rule::Level(WaterLevel::default());
        /// The part of a link's rate that is shared out: less than 1 drops earlier and keeps the
        /// link's queue short.
        live theta: Thousandths = Thousandths(1_000), between 0.001..=1.0;
        /// What a flow may have waiting for a link, on the wire, before it is refused: at least one
        /// full packet.
        live threshold: Bytes = Bytes(2_400), in 1_538..=MOST_BYTES;
        /// What all flows together may have waiting for a link before any is refused. Shared by the
        /// backlogged flows by weight where that is more than `threshold`.
        live buffer: Bytes = Bytes(256 * 1_538), in 0..=MOST_BYTES;
    }
    check Self::fits
}

settings! {
    /// The water level: each flow may use the same rate of cycles, which is lowered while packets
    /// wait too long, or the receive ring fills, and raised else.
    #[derive(Copy, Eq)]
    pub struct WaterLevel: "rule = { kind = \"level\", … }" {
        /// How much of its rate a flow may save up while it is silent, as time.
        live burst: Nanos = Nanos::from_millis(3), in 100_000..=1_000_000_000;
        /// How many packets of the kind that it last sent a flow may save up, where that is more
        /// and load is told by time. With fewer than come in a train, flows that send trains lose
        /// of their share.
        live packets: u16 = 32, in 4..=1_000, counting "packets";
        /// How long packets should wait when there are more than the core can take; less where a
        /// quarter of a full receive ring takes less. Load is told by this time where a full ring
        /// takes more than a fifth of it to process; else by how full the ring is.
        live wait: Nanos = Nanos::from_millis(5), in 100_000..=1_000_000_000;
        /// Largest part of the core that fetching and refusing may take so that flows below the
        /// level lose nothing at the ring.
        live overhead: Thousandths = Thousandths(250), between 0.0..=0.9;
    }
}

settings! {
    /// As published at IFIP Networking 2018: kappa times what each backlogged flow was served since
    /// the last burst.
    #[derive(Copy, Eq)]
    pub struct Kappa: "rule = { kind = \"kappa\", … }" {
        /// Below 1, flows would be refused that are below their share.
        live kappa: Thousandths = Thousandths(1_080), between 1.0..=10.0;
    }
}

settings! {
    /// As published later: a fixed threshold, charged at the next poll.
    #[derive(Copy, Eq)]
    pub struct Fixed: "rule = { kind = \"fixed\", … }" {
        /// What a flow may have waiting in the shadow system before it is refused.
        live threshold as cycles: Cycles = Cycles(6_000), in CYCLES;
    }
}

settings! {
    /// The authors' simulators: a threshold that shrinks after each full burst and grows after each
    /// other.
    #[derive(Copy, Eq)]
    pub struct MimdBatch: "rule = { kind = \"mimd-batch\", … }" {
        /// Factor after a full burst.
        live down: Thousandths = Thousandths(900), between 0.001..=0.999;
        /// Factor after any other.
        live up: Thousandths = Thousandths(1_100), between 1.001..=10.0;
        /// Smallest threshold.
        live min: Cycles = Cycles(2_000), in CYCLES;
        /// Largest threshold.
        live max: Cycles = Cycles(2_000_000), in CYCLES;
        /// Threshold to begin with.
        live start: Cycles = Cycles(200_000), in CYCLES;
    }
    check |rule: &Self| {
        ordered("min", rule.min, "start", rule.start)?;
        ordered("start", rule.start, "max", rule.max)
    }
}

settings! {
    /// The authors' branch `adth`: a threshold that shrinks while many frames wait in the receive
    /// ring and grows while few do.
    #[derive(Copy, Eq)]
    pub struct MimdRing: "rule = { kind = \"mimd-ring\", … }" {
        /// Factor above `high`.
        live down: Thousandths = Thousandths(700), between 0.001..=0.999;
        /// Factor below `low`.
        live up: Thousandths = Thousandths(1_300), between 1.001..=10.0;
        /// Many.
        live high: u32 = 512, in FRAMES, counting "frames";
        /// Few; at most `high`.
        live low: u32 = 256, in FRAMES, counting "frames";
        /// Threshold to begin with.
        live start: Cycles = Cycles(6_000), in CYCLES;
    }
    check |rule: &Self| ordered("low", rule.low, "high", rule.high)
}

variants! {
    /// How the threshold of a core's dropper follows the load. `docs/fairdrop.md` compares them.
    #[derive(Copy, Eq)]
    pub enum Rule {
        /// Ours: the water level.
        Level(WaterLevel) = "level",
        /// IFIP Networking 2018: threshold = kappa x credit / backlogged flows.
        Kappa(Kappa) = "kappa",
        /// The journal version: a fixed threshold.
        Fixed(Fixed) = "fixed",
        /// The authors' simulators: threshold x down after a full batch, x up after another.
        MimdBatch(MimdBatch) = "mimd-batch",
        /// The authors' branch `adth`: threshold x down while more than `high` frames wait in the
        /// ring, x up while some do but fewer than `low`.
        MimdRing(MimdRing) = "mimd-ring",
    }
}

impl FairDropConfig {
    /// Every default, but switched off.
    #[must_use]
    pub fn off() -> Self {
        Self { on: false, ..Self::default() }
    }

    fn fits(&self) -> Result<(), SettingError> {
        if self.groups != Groups::Class && self.group_weight != PerClass::all(1) {
            let message = "it needs groups = \"class\", and several classes".into();
            return Err(SettingError::Contradiction { key: "group_weight", message });
        }
        Ok(())
    }

    /// Whether shares have two levels, where there are so many classes.
    #[must_use]
    pub fn is_grouped(&self, classes: usize) -> bool {
        self.groups == Groups::Class && classes > 1
    }

    /// The flows, and what those of each class are due; the row of a class is its index. Classes
    /// beyond the 256 rows share the last.
    #[must_use]
    pub fn table(&self, classes: usize) -> FlowTableConfig {
        let grouped = self.is_grouped(classes);
        let rows = self.weight.first(classes.clamp(1, 256)).enumerate();
        let row = |(at, weight)| Share { weight, group: if grouped { at as u8 } else { 0 } };
        let groups = if grouped { self.group_weight.first(classes).collect() } else { vec![1] };
        FlowTableConfig { flows: self.flows, shares: rows.map(row).collect(), groups }
    }

    /// What the dropper of a worker is told that has `services` services, whose clock has `hertz`
    /// cycles per second, whose ports' receive rings hold `ring` frames and who fetches at most
    /// `batch` at once. Class 0 of processing is plain forwarding, class `n` service `n - 1`.
    /// A ring of 0 frames cannot be told; of one that is shorter than two bursts half is fetched:
    /// else it would never hold a burst, and the core never seem too small.
    #[must_use]
    pub fn cpu(
        &self,
        classes: usize,
        services: usize,
        hertz: u64,
        batch: u16,
        ring: u32,
    ) -> CpuConfig {
        let batch = if ring == 0 { batch } else { batch.min((ring / 2).clamp(1, 1 << 15) as u16) };
        CpuConfig {
            table: self.table(classes),
            costs: vec![self.cost; services + 1],
            clock: hertz,
            batch,
            ring: ring.max(batch.into()),
            rule: self.rule,
        }
    }

    /// What the dropper of a link of `rate` is told.
    #[must_use]
    pub fn link(&self, classes: usize, rate: BitRate) -> BandwidthConfig {
        let Self { theta, threshold, buffer, .. } = *self;
        BandwidthConfig { table: self.table(classes), rate, theta, threshold, buffer }
    }
}

/// Refuses `low` above `high`.
fn ordered<T: PartialOrd>(
    lower: &'static str,
    low: T,
    upper: &'static str,
    high: T,
) -> Result<(), SettingError> {
    let message = || alloc::format!("above {upper}");
    if low <= high {
        Ok(())
    } else {
        Err(SettingError::Contradiction { key: lower, message: message() })
    }
}

impl Rule {
    /// kappa 1.08.
    pub const KAPPA: Self = Self::Kappa(Kappa { kappa: Thousandths(1_080) });
    /// 6000 cycles.
    pub const JOURNAL: Self = Self::Fixed(Fixed { threshold: Cycles(6_000) });
    /// x 0.7 above 512 frames, x 1.3 below 256, from 6000 cycles.
    pub const MIMD_RING: Self = Self::MimdRing(MimdRing {
        down: Thousandths(700),
        up: Thousandths(1_300),
        high: 512,
        low: 256,
        start: Cycles(6_000),
    });
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        match *self {
            Self::Level(WaterLevel { burst, .. }) => write!(f, ", burst {burst}"),
            Self::Kappa(Kappa { kappa }) => {
                write!(f, " {}.{:03}", kappa.0 / 1_000, kappa.0 % 1_000)
            }
            Self::Fixed(Fixed { threshold }) => write!(f, ", threshold {threshold}"),
            Self::MimdBatch(MimdBatch { min, max, .. }) => write!(f, ", threshold {min} to {max}"),
            Self::MimdRing(MimdRing { start, .. }) => write!(f, ", threshold from {start}"),
        }
    }
}

// Of a polled core alone, as it was measured; a router's, whose pauses are longer, is
// `WaterLevel::default()`.
impl Default for Rule {
    fn default() -> Self {
        Self::Level(WaterLevel { burst: Nanos::from_millis(3), ..WaterLevel::default() })
    }
}

/// A dropper for the cycles of one core.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct CpuConfig {
    /// Flows and what they are due.
    pub table: FlowTableConfig,
    /// Cycles of a packet of each [`ProcessingClass`], to begin with: learnt online from then on. 1
    /// to 2^32 each; 1 to 64 rows.
    pub costs: Vec<Cycles>,
    /// Cycles in a second: 1 MHz to 100 GHz.
    pub clock: u64,
    /// Most frames of a burst: 1 to 65 535.
    pub batch: u16,
    /// Frames that the port's ring holds: at least one batch, up to 2^24.
    pub ring: u32,
    /// The rule of the threshold.
    pub rule: Rule,
}

impl Default for CpuConfig {
    fn default() -> Self {
        Self {
            table: FlowTableConfig::default(),
            costs: vec![Cycles(350)],
            clock: 2_600_000_000,
            batch: 256,
            ring: 2_048,
            rule: Rule::default(),
        }
    }
}

impl CpuConfig {
    /// Most classes of processing.
    pub const MAX_CLASSES: usize = 64;
    /// Largest cost of a packet and largest threshold.
    pub const MAX_CYCLES: Cycles = Cycles(1 << 32);

    /// Whether every value lies in its range.
    ///
    /// # Errors
    /// [`SettingError`] for the first that does not.
    pub fn check(&self) -> Result<(), SettingError> {
        self.table.check()?;
        within("costs", self.costs.len() as u64, (1, Self::MAX_CLASSES as u64, "rows"))?;
        let (least, most) = (*CYCLES.start(), *CYCLES.end());
        self.costs.iter().try_for_each(|c| within("costs", c.0, (least, most, "cycles")))?;
        within("clock", self.clock, (1_000_000, 100_000_000_000, "Hz"))?;
        within("batch", self.batch.into(), (1, u16::MAX.into(), "frames"))?;
        within("ring", self.ring.into(), (self.batch.into(), 1 << 24, "frames"))?;
        self.rule.check()
    }
}

/// A dropper for the bits of one outgoing link.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct BandwidthConfig {
    /// Flows and what they are due.
    pub table: FlowTableConfig,
    /// Rate of the link, in bits on the wire.
    pub rate: BitRate,
    /// theta: the shadow is served at this part of `rate`, to keep the real queue short.
    pub theta: Thousandths,
    /// A flow is refused only while its shadow queue is longer than this.
    pub threshold: Bytes,
    /// Nothing is refused while all shadow queues together are shorter than this: how much the real
    /// queue may hold.
    pub buffer: Bytes,
}

impl BandwidthConfig {
    /// The published threshold of 19 200 bits, and a buffer of one burst of full frames.
    #[must_use]
    pub fn new(rate: BitRate) -> Self {
        Self { table: FlowTableConfig::default(), ..FairDropConfig::default().link(1, rate) }
    }

    /// Whether every value lies in its range.
    ///
    /// # Errors
    /// [`SettingError`] for the first that does not.
    pub fn check(&self) -> Result<(), SettingError> {
        self.table.check()?;
        within("rate", self.rate.0, (1_000, 1_000_000_000_000, "bit/s"))?;
        let Self { theta, threshold, buffer, .. } = *self;
        FairDropConfig { theta, threshold, buffer, ..FairDropConfig::default() }.check()
    }
}
