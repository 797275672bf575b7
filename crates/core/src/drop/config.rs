//! The knobs of FairDrop, their ranges and what is wrong with them.

use alloc::vec;
use alloc::vec::Vec;
use core::fmt;

use crate::out_of_range::{OutOfRange, within};
use crate::units::{BitRate, Bytes, Cycles, Nanos};

/// What a packet is put through (plain forwarding, encryption, a long ACL ...): packets of one class cost alike. The index of a row in
/// [`CpuConfig::costs`].
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
    /// How many flows are remembered at once, 32 bytes each; rounded up to a power of two. [`Self::MIN_FLOWS`] to
    /// [`Self::MAX_FLOWS`]. Flows beyond that many *backlogged* ones share one fair share, and are counted.
    pub flows: u32,
    /// What the flows of each [`ShareId`] are due; 1 to 256 rows.
    pub shares: Vec<Share>,
    /// Weight of each group of flows; one group: flows share among themselves. 1 to [`Self::MAX_GROUPS`].
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
    /// [`OutOfRange`] for the first that does not.
    pub fn check(&self) -> Result<(), OutOfRange> {
        let weights = (1, u64::from(Self::MAX_WEIGHT), "");
        within("flows", self.flows.into(), (Self::MIN_FLOWS.into(), Self::MAX_FLOWS.into(), "flows"))?;
        within("groups", self.groups.len() as u64, (1, Self::MAX_GROUPS as u64, "groups"))?;
        within("shares", self.shares.len() as u64, (1, 256, "rows"))?;
        self.groups.iter().try_for_each(|w| within("groups.weight", u64::from(*w), weights))?;
        self.shares.iter().try_for_each(|share| {
            within("shares.weight", u64::from(share.weight), weights)?;
            within("shares.group", u64::from(share.group), (0, self.groups.len() as u64 - 1, ""))
        })
    }
}

/// How the threshold of a core's dropper follows the load. `docs/fairdrop.md` compares them.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Rule {
    /// Ours: the water level. Every flow may use the same rate of cycles by weight; the rate is lowered while the ring fills and some
    /// flow is below it, and raised while the ring empties or no flow is below it.
    Level {
        /// How much of its rate a flow may save up while it is silent, as time: 100 us to 1 s.
        burst: Nanos,
        /// Largest part of the core, in thousandths, that fetching and refusing may take so that flows below the level lose nothing
        /// at the ring: 0 to 900.
        overhead: u16,
    },
    /// IFIP Networking 2018: threshold = kappa x credit / backlogged flows.
    Kappa {
        /// kappa in thousandths: 1000 to 10 000. Below 1 light flows are refused although they are below their share.
        kappa: u16,
    },
    /// The journal version: a fixed threshold, charged at the next poll.
    Fixed {
        /// The threshold: 1 to 2^32.
        threshold: Cycles,
    },
    /// The authors' simulators: threshold x down after a full batch, x up after another.
    MimdBatch {
        /// Factors in thousandths: `down` 1 to 999, `up` 1001 to 10 000.
        down: u16,
        /// See `down`.
        up: u16,
        /// Smallest and largest threshold, both at least one cycle.
        min: Cycles,
        /// See `min`.
        max: Cycles,
    },
    /// The authors' branch `adth`: threshold x down while more than `high` frames wait in the ring, x up while some do but fewer than
    /// `low`.
    MimdRing {
        /// Factors in thousandths: `down` 1 to 999, `up` 1001 to 10 000.
        down: u16,
        /// See `down`.
        up: u16,
        /// Frames.
        high: u32,
        /// Frames, at most `high`.
        low: u32,
        /// Threshold to begin with: 1 to 2^32.
        start: Cycles,
    },
}

impl Rule {
    /// kappa 1.08.
    pub const KAPPA: Self = Self::Kappa { kappa: 1_080 };
    /// 6000 cycles.
    pub const JOURNAL: Self = Self::Fixed { threshold: Cycles(6_000) };
    /// x 0.7 above 512 frames, x 1.3 below 256, from 6000 cycles.
    pub const MIMD_RING: Self =
        Self::MimdRing { down: 700, up: 1_300, high: 512, low: 256, start: Cycles(6_000) };
}

impl Rule {
    /// The name in configuration files.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Level { .. } => "level",
            Self::Kappa { .. } => "kappa",
            Self::Fixed { .. } => "fixed",
            Self::MimdBatch { .. } => "mimd-batch",
            Self::MimdRing { .. } => "mimd-ring",
        }
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        match *self {
            Self::Level { burst, .. } => write!(f, ", burst {burst}"),
            Self::Kappa { kappa } => write!(f, " {}.{:03}", kappa / 1_000, kappa % 1_000),
            Self::Fixed { threshold } => write!(f, ", threshold {threshold}"),
            Self::MimdBatch { min, max, .. } => write!(f, ", threshold {min} to {max}"),
            Self::MimdRing { start, .. } => write!(f, ", threshold from {start}"),
        }
    }
}

impl Default for Rule {
    fn default() -> Self {
        Self::Level { burst: Nanos::from_millis(3), overhead: 250 }
    }
}

/// A dropper for the cycles of one core.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct CpuConfig {
    /// Flows and what they are due.
    pub table: FlowTableConfig,
    /// Cycles of a packet of each [`ProcessingClass`], to begin with: learnt online from then on. 1 to 2^32 each; 1 to 64 rows.
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
    /// [`OutOfRange`] for the first that does not.
    pub fn check(&self) -> Result<(), OutOfRange> {
        self.table.check()?;
        within("costs", self.costs.len() as u64, (1, Self::MAX_CLASSES as u64, "rows"))?;
        self.costs.iter().try_for_each(|c| within("costs", c.0, (1, Self::MAX_CYCLES.0, "cycles")))?;
        within("clock", self.clock, (1_000_000, 100_000_000_000, "Hz"))?;
        within("batch", self.batch.into(), (1, u16::MAX.into(), "frames"))?;
        within("ring", self.ring.into(), (self.batch.into(), 1 << 24, "frames"))?;
        self.rule.check()
    }
}

impl Rule {
    /// Whether every value lies in its range.
    ///
    /// # Errors
    /// [`OutOfRange`] for the first that does not.
    pub fn check(&self) -> Result<(), OutOfRange> {
        let cycles = (1, CpuConfig::MAX_CYCLES.0, "cycles");
        let factors = |down: u16, up: u16| {
            within("down", down.into(), (1, 999, "thousandths"))?;
            within("up", up.into(), (1_001, 10_000, "thousandths"))
        };
        match *self {
            Self::Level { burst, overhead } => {
                within("burst", burst.0, (100_000, 1_000_000_000, "ns"))?;
                within("overhead", overhead.into(), (0, 900, "thousandths"))
            }
            Self::Kappa { kappa } => within("kappa", kappa.into(), (1_000, 10_000, "thousandths")),
            Self::Fixed { threshold } => within("threshold", threshold.0, cycles),
            Self::MimdBatch { down, up, min, max } => {
                factors(down, up)?;
                within("min", min.0, cycles)?;
                within("max", max.0, (min.0, cycles.1, "cycles"))
            }
            Self::MimdRing { down, up, high, low, start } => {
                factors(down, up)?;
                within("high", high.into(), (1, 1 << 24, "frames"))?;
                within("low", low.into(), (0, high.into(), "frames"))?;
                within("start", start.0, cycles)
            }
        }
    }
}

/// A dropper for the bits of one outgoing link.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct BandwidthConfig {
    /// Flows and what they are due.
    pub table: FlowTableConfig,
    /// Rate of the link, in bits on the wire.
    pub rate: BitRate,
    /// theta, in thousandths: the shadow is served at this part of `rate`, to keep the real queue short. 1 to 1000.
    pub theta: u16,
    /// A flow is refused only while its shadow queue is longer than this: at least one full packet, up to 1 GB.
    pub threshold: Bytes,
    /// Nothing is refused while all shadow queues together are shorter than this: how much the real queue may hold. Shared by
    /// the backlogged flows by weight where that is more than `threshold`. 0 to 1 GB.
    pub buffer: Bytes,
}

impl BandwidthConfig {
    /// The published threshold of 19 200 bits, and a buffer of one burst of full frames.
    #[must_use]
    pub fn new(rate: BitRate) -> Self {
        Self {
            table: FlowTableConfig::default(),
            rate,
            theta: 1_000,
            threshold: Bytes(2_400),
            buffer: Bytes(256 * 1_538),
        }
    }

    /// Smallest threshold: a full packet on the wire.
    pub const MIN_THRESHOLD: Bytes = Bytes(1_538);

    /// Whether every value lies in its range.
    ///
    /// # Errors
    /// [`OutOfRange`] for the first that does not.
    pub fn check(&self) -> Result<(), OutOfRange> {
        self.table.check()?;
        within("rate", self.rate.0, (1_000, 1_000_000_000_000, "bit/s"))?;
        within("theta", self.theta.into(), (1, 1_000, "thousandths"))?;
        within("threshold", self.threshold.0, (Self::MIN_THRESHOLD.0, 1_000_000_000, "bytes"))?;
        within("buffer", self.buffer.0, (0, 1_000_000_000, "bytes"))
    }
}
