//! What an admission control is told: knobs, their units, ranges and defaults, and what cannot be combined.
//!
//! Defaults are those of the flow-aware networking literature where it gives any (min_FR, max_PL, T_FR, T_PL, flow time-out,
//! N of PUF, max_accept_delay); the others are this project's and say so.

use alloc::vec::Vec;
use core::fmt;
use core::ops::RangeInclusive;

use crate::prefix::Prefix;
use crate::schedule::{KnobError, in_range};
use crate::units::{BitRate, Nanos, Ppm};

/// Valid capacities of a link, in bit/s: 1 kbit/s to 1 Tbit/s.
pub const RATE_RANGE: RangeInclusive<u64> = 1_000..=1_000_000_000_000;
/// Valid minimum fair rates, in parts per million of the capacity. At 0 the fair rate never closes the link.
pub const MIN_FAIR_RATE_RANGE: RangeInclusive<u64> = 0..=1_000_000;
/// Valid maximum priority loads, in parts per million of the capacity. At 1 000 000 the load never closes the link.
pub const MAX_PRIORITY_LOAD_RANGE: RangeInclusive<u64> = 1..=1_000_000;
/// Valid intervals between estimates of the fair rate, in nanoseconds: 10 ms to 60 s.
pub const FAIR_RATE_INTERVAL_RANGE: RangeInclusive<u64> = 10_000_000..=60_000_000_000;
/// Valid intervals between estimates of the priority load, in nanoseconds: 1 ms to 10 s.
pub const LOAD_INTERVAL_RANGE: RangeInclusive<u64> = 1_000_000..=10_000_000_000;
/// Valid smoothing factors, in parts per million: 0 (none) to 990 000.
pub const SMOOTHING_RANGE: RangeInclusive<u64> = 0..=990_000;
/// Valid time-outs of flows, in nanoseconds: 10 ms to 1 h.
pub const TIMEOUT_RANGE: RangeInclusive<u64> = 10_000_000..=3_600_000_000_000;
/// Valid delays and periods of the mechanisms, in nanoseconds: 10 ms to 1 h.
pub const PERIOD_RANGE: RangeInclusive<u64> = 10_000_000..=3_600_000_000_000;
/// Valid sizes of lists, in entries.
pub const LIST_RANGE: RangeInclusive<u64> = 1..=16_777_216;
/// Valid numbers of flows a user may start in an interval (PUF).
pub const QUOTA_RANGE: RangeInclusive<u64> = 1..=65_535;
/// Valid numbers of flows that are removed as most active.
pub const MOST_ACTIVE_RANGE: RangeInclusive<u64> = 1..=64;
/// Valid numbers of priority packets in a row before a flow enters the global list.
pub const K_ADD_RANGE: RangeInclusive<u64> = 1..=255;
/// Valid factors on the cost of a congested link.
pub const COST_FACTOR_RANGE: RangeInclusive<u64> = 1..=1_000;
/// Most emergency prefixes.
pub const MAX_PREFIXES: usize = 4_096;

/// An admission control of one outgoing link. Every field can be changed while packets flow, except the sizes of the two tables that say so.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct AdmissionConfig {
    /// C: capacity of the link in bits on the wire, as the disciplines count; in [`RATE_RANGE`].
    pub rate: BitRate,
    /// min_FR, a share of `rate`: below it new flows are refused; in [`MIN_FAIR_RATE_RANGE`]. Default 5 %.
    pub min_fair_rate: Ppm,
    /// max_PL, a share of `rate`: above it new flows are refused; in [`MAX_PRIORITY_LOAD_RANGE`]. Default 70 %.
    pub max_priority_load: Ppm,
    /// T_FR: how often the fair rate is estimated; in [`FAIR_RATE_INTERVAL_RANGE`]. Default 0.5 s.
    pub fair_rate_interval: Nanos,
    /// T_PL: how often the priority load is estimated; in [`LOAD_INTERVAL_RANGE`]. Default 50 ms.
    pub load_interval: Nanos,
    /// a in FR <- a*FR + (1-a)*measured; in [`SMOOTHING_RANGE`]. Default 0; 10 % is published for AFAN.
    pub smoothing: Ppm,
    /// A flow that is silent for longer loses its protection; in [`TIMEOUT_RANGE`]. Default 20 s.
    pub flow_timeout: Nanos,
    /// A flow is elastic if a packet of it entered an elastic queue within this time; `None`: within T_FR. In [`TIMEOUT_RANGE`].
    pub class_window: Option<Nanos>,
    /// Size of the list of protected flows; in [`LIST_RANGE`]; fixed. A full list is congestion. Default 100 000.
    pub flows: u32,
    /// Chance that a flow that is let in is also listed; the others are asked again at their next packet. 1 to 1 000 000. Default 100 %.
    pub listing_chance: Ppm,
    /// Packets of ICMP, IGMP, RSVP, OSPF, PIM and VRRP pass without admission. Default true.
    pub bypass_control: bool,
    /// Limits what first packets may take between two estimates. Default on.
    pub budget: Option<BudgetConfig>,
    /// While more than half of the list is taken, a flow of which only one packet was ever seen is given up after this time instead of
    /// `flow_timeout`; in [`TIMEOUT_RANGE`]; `None`: no such rule. Default 1 s.
    pub probation: Option<Nanos>,
    /// Size of the table that remembers what happened to flows lately, refused ones included; in [`LIST_RANGE`]; fixed. Default 4 096.
    pub history: u32,
    /// ECM: emergency flows. Default off.
    pub emergency: Option<EmergencyConfig>,
    /// ECCM: bounds the acceptance delay. Default off.
    pub eccm: Option<EccmConfig>,
    /// Whether flows on the router's global list (GPFL) enter although the link is congested. Default false.
    pub global_list: bool,
    /// PUF: bounds the flows a user starts. Default off.
    pub per_user: Option<PerUserConfig>,
    /// Flushing family: clears the list of protected flows in congestion. Default off.
    pub flushing: Option<FlushConfig>,
    /// MFAN: a second link for some flows. Default off.
    pub second_link: Option<SecondLinkConfig>,
    /// Path pinning. Default off.
    pub pinning: Option<PinningConfig>,
}

/// Limits first packets between two estimates of the priority load: `(max_PL - PL) * C * T_PL / 8` bytes.
///
/// A flow enters while the packets before it have not used the budget up; what the last one takes beyond is taken from the
/// next interval's. While few of the flows let in are ever seen again (a flood of one-packet flows) the budget is at most
/// `flood_share` of the capacity, and half of it is kept for flows that were refused and come again.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct BudgetConfig {
    /// Most of the capacity that first packets may take, at all times; 1 to 1 000 000. Default 100 %: only the formula decides.
    pub share: Ppm,
    /// How much of the interval's budget may be used ahead of time, as a time: 100 us to T_PL, which means all of it at once. Shorter
    /// ones spread the admissions. `None`: a tenth of T_PL.
    pub burst: Option<Nanos>,
    /// Most of the capacity that first packets may take while a flood of one-packet flows goes on; 1 to 1 000 000. Default 3 %.
    pub flood_share: Ppm,
}

impl Default for BudgetConfig {
    fn default() -> Self {
        Self { share: Ppm::ONE, burst: None, flood_share: Ppm::percent(3) }
    }
}

/// What is done for emergency flows (ECM).
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum EmergencyRule {
    /// They go straight to the scheduler: no admission, no state (the published prototype).
    #[default]
    Bypass,
    /// They are admitted by a second pair of thresholds and enter the list like others.
    Thresholds {
        /// min_FR for them, a share of the capacity, below `min_fair_rate`. Half of it is usual.
        min_fair_rate: Ppm,
        /// max_PL for them, above `max_priority_load`. Ten points more is usual.
        max_priority_load: Ppm,
    },
}

/// ECM: emergency flows by address.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct EmergencyConfig {
    /// Flows from these prefixes; at most [`MAX_PREFIXES`].
    pub sources: Vec<Prefix>,
    /// Flows to these prefixes; at most [`MAX_PREFIXES`].
    pub destinations: Vec<Prefix>,
    /// What is done for them.
    pub rule: EmergencyRule,
}

/// ECCM: bounds the acceptance delay of streaming flows.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct EccmConfig {
    /// How long the link may stay closed; in [`PERIOD_RANGE`]. Default 6 s (ITU-T E.721, local calls).
    pub max_accept_delay: Nanos,
    /// Size of the ECCM table: flows that one opening may let in; in [`LIST_RANGE`]; a change empties it. Then the link is closed again. Default 4 096.
    pub table: u32,
}

impl Default for EccmConfig {
    fn default() -> Self {
        Self { max_accept_delay: Nanos::from_secs(6), table: 4_096 }
    }
}

/// PUF: how many flows a user may start between two estimates of the fair rate.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct PerUserConfig {
    /// N; in [`QUOTA_RANGE`]. Default 2.
    pub flows: u32,
    /// Bits of an IPv4 source address that make a user; 1 to 32. Default 32.
    pub ipv4_prefix: u8,
    /// Bits of an IPv6 source address that make a user; 1 to 128. Default 64: what one subscriber's host can choose from.
    pub ipv6_prefix: u8,
    /// Users told apart in an interval; in [`LIST_RANGE`]; a change empties it. Beyond it users share counters. Default 16 384.
    pub users: u32,
}

impl Default for PerUserConfig {
    fn default() -> Self {
        Self { flows: 2, ipv4_prefix: 32, ipv6_prefix: 64, users: 16_384 }
    }
}

/// Which protected flows are removed when a clearing happens, and what becomes of them.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Flush {
    /// All flows.
    All,
    /// EFM: all elastic flows.
    Efm,
    /// EFMP: all elastic flows, with priority access afterwards.
    Efmp,
    /// RAEF: elastic flows listed for at least the active time.
    Raef,
    /// RBAEF: as RAEF, blocked afterwards for the blocking time.
    Rbaef,
    /// RPAEF: as RAEF, with priority access afterwards.
    Rpaef,
    /// RAMAF: the K most active elastic flows, with priority access afterwards.
    Ramaf,
    /// RMAEF: the K most active elastic flows.
    Rmaef,
}

/// The flushing family.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct FlushConfig {
    /// Which.
    pub kind: Flush,
    /// T_clear: least time between two clearings; in [`PERIOD_RANGE`]. Default 5 s.
    pub interval: Nanos,
    /// Least time on the list (RAEF, RBAEF, RPAEF); in [`PERIOD_RANGE`]. Default 5 s.
    pub active_time: Nanos,
    /// How long removed flows are blocked (RBAEF); in [`PERIOD_RANGE`]. Default 0.5 s.
    pub blocking_time: Nanos,
    /// How long removed flows go first (EFMP, RPAEF, RAMAF); in [`PERIOD_RANGE`]. Default 1 s.
    pub priority_access_time: Nanos,
    /// P: chance of another new flow while such flows are awaited; 0 to 1 000 000. Default 3 %.
    pub others_chance: Ppm,
    /// K of RAMAF and RMAEF; in [`MOST_ACTIVE_RANGE`]. Default 10.
    pub most_active: u32,
    /// Size of the list of blocked or awaited flows; in [`LIST_RANGE`]; a change empties it. Flows beyond are removed and forgotten. Default 4 096.
    pub table: u32,
}

impl FlushConfig {
    /// The defaults, for this kind.
    #[must_use]
    pub const fn new(kind: Flush) -> Self {
        Self {
            kind,
            interval: Nanos::from_secs(5),
            active_time: Nanos::from_secs(5),
            blocking_time: Nanos::from_millis(500),
            priority_access_time: Nanos::from_secs(1),
            others_chance: Ppm::percent(3),
            most_active: 10,
            table: 4_096,
        }
    }
}

/// Which flow leaves for the second link when a new one meets congestion (MFAN).
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum SecondLinkPolicy {
    /// The new one.
    #[default]
    Newest,
    /// The protected flow with the largest backlog.
    MostActive,
    /// The flow protected longest.
    Oldest,
}

/// MFAN: a second link beside this one.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct SecondLinkConfig {
    /// Which flow goes there.
    pub policy: SecondLinkPolicy,
    /// Its capacity; in [`RATE_RANGE`].
    pub rate: BitRate,
    /// Above this load over T_FR it takes no more flows; 1 to 1 000 000. Default 90 %.
    pub max_load: Ppm,
    /// Size of its list of flows; in [`LIST_RANGE`]; a change empties it. Default 16 384.
    pub flows: u32,
}

impl SecondLinkConfig {
    /// The defaults, for a link of this capacity.
    #[must_use]
    pub const fn new(rate: BitRate) -> Self {
        Self { policy: SecondLinkPolicy::Newest, rate, max_load: Ppm::percent(90), flows: 16_384 }
    }
}

/// Path pinning: new flows avoid congested links, flows that run stay where they are.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct PinningConfig {
    /// k: factor on the cost of a congested link; in [`COST_FACTOR_RANGE`]. Default 10.
    pub cost_factor: u32,
}

impl Default for PinningConfig {
    fn default() -> Self {
        Self { cost_factor: 10 }
    }
}

impl AdmissionConfig {
    /// The defaults for a link of this capacity: plain admission with the rules against floods.
    #[must_use]
    pub const fn new(rate: BitRate) -> Self {
        Self {
            rate,
            min_fair_rate: Ppm::percent(5),
            max_priority_load: Ppm::percent(70),
            fair_rate_interval: Nanos::from_millis(500),
            load_interval: Nanos::from_millis(50),
            smoothing: Ppm::ZERO,
            flow_timeout: Nanos::from_secs(20),
            class_window: None,
            flows: 100_000,
            listing_chance: Ppm::ONE,
            bypass_control: true,
            budget: Some(BudgetConfig { share: Ppm::ONE, burst: None, flood_share: Ppm::percent(3) }),
            probation: Some(Nanos::from_secs(1)),
            history: 4_096,
            emergency: None,
            eccm: None,
            global_list: false,
            per_user: None,
            flushing: None,
            second_link: None,
            pinning: None,
        }
    }

    /// Refuses values out of their ranges and combinations that make no sense.
    ///
    /// # Errors
    /// [`AdmissionError`] naming the knob and its valid range, or what contradicts what.
    pub fn check(&self) -> Result<(), AdmissionError> {
        let share = |name, value: Ppm| in_range(name, value.0.into(), 1..=1_000_000, "ppm");
        in_range("rate", self.rate.0, RATE_RANGE, "bit/s")?;
        in_range("min_fair_rate", self.min_fair_rate.0.into(), MIN_FAIR_RATE_RANGE, "ppm of the rate")?;
        let load = self.max_priority_load.0.into();
        in_range("max_priority_load", load, MAX_PRIORITY_LOAD_RANGE, "ppm of the rate")?;
        in_range("fair_rate_interval", self.fair_rate_interval.0, FAIR_RATE_INTERVAL_RANGE, "ns")?;
        in_range("load_interval", self.load_interval.0, LOAD_INTERVAL_RANGE, "ns")?;
        in_range("smoothing", self.smoothing.0.into(), SMOOTHING_RANGE, "ppm")?;
        in_range("flow_timeout", self.flow_timeout.0, TIMEOUT_RANGE, "ns")?;
        if let Some(window) = self.class_window {
            in_range("class_window", window.0, TIMEOUT_RANGE, "ns")?;
        }
        in_range("flows", self.flows.into(), LIST_RANGE, "flows")?;
        share("listing_chance", self.listing_chance)?;
        in_range("history", self.history.into(), LIST_RANGE, "flows")?;
        if let Some(budget) = &self.budget {
            share("budget_share", budget.share)?;
            share("flood_share", budget.flood_share)?;
            if let Some(burst) = budget.burst {
                in_range("budget_burst", burst.0, 100_000..=self.load_interval.0, "ns")?;
            }
        }
        if let Some(probation) = self.probation {
            in_range("probation", probation.0, TIMEOUT_RANGE, "ns")?;
            below(
                "probation",
                probation.0,
                "flow_timeout",
                self.flow_timeout.0,
                "a new flow would be kept longer than a known one",
            )?;
        }
        if let Some(emergency) = &self.emergency {
            self.check_emergency(emergency)?;
        }
        if let Some(eccm) = &self.eccm {
            in_range("max_accept_delay", eccm.max_accept_delay.0, PERIOD_RANGE, "ns")?;
            in_range("eccm_table", eccm.table.into(), LIST_RANGE, "flows")?;
        }
        if let Some(user) = &self.per_user {
            in_range("user_flows", user.flows.into(), QUOTA_RANGE, "flows")?;
            in_range("user_ipv4_prefix", user.ipv4_prefix.into(), 1..=32, "bits")?;
            in_range("user_ipv6_prefix", user.ipv6_prefix.into(), 1..=128, "bits")?;
            in_range("users", user.users.into(), LIST_RANGE, "users")?;
        }
        if let Some(flush) = &self.flushing {
            in_range("flush_interval", flush.interval.0, PERIOD_RANGE, "ns")?;
            in_range("active_time", flush.active_time.0, PERIOD_RANGE, "ns")?;
            in_range("blocking_time", flush.blocking_time.0, PERIOD_RANGE, "ns")?;
            in_range("priority_access_time", flush.priority_access_time.0, PERIOD_RANGE, "ns")?;
            in_range("others_chance", flush.others_chance.0.into(), 0..=1_000_000, "ppm")?;
            in_range("most_active", flush.most_active.into(), MOST_ACTIVE_RANGE, "flows")?;
            in_range("flush_table", flush.table.into(), LIST_RANGE, "flows")?;
        }
        if let Some(second) = &self.second_link {
            in_range("second_link_rate", second.rate.0, RATE_RANGE, "bit/s")?;
            share("second_link_max_load", second.max_load)?;
            in_range("second_link_flows", second.flows.into(), LIST_RANGE, "flows")?;
        }
        if let Some(pinning) = &self.pinning {
            in_range("cost_factor", pinning.cost_factor.into(), COST_FACTOR_RANGE, "")?;
        }
        Ok(())
    }

    fn check_emergency(&self, emergency: &EmergencyConfig) -> Result<(), AdmissionError> {
        for (name, list) in
            [("emergency sources", &emergency.sources), ("emergency destinations", &emergency.destinations)]
        {
            in_range(name, list.len() as u64, 0..=MAX_PREFIXES as u64, "prefixes")?;
        }
        if let EmergencyRule::Thresholds { min_fair_rate, max_priority_load } = emergency.rule {
            in_range(
                "emergency_max_priority_load",
                max_priority_load.0.into(),
                MAX_PRIORITY_LOAD_RANGE,
                "ppm",
            )?;
            let why = "emergency flows would be refused before others";
            let (own, others) = (min_fair_rate.0.into(), self.min_fair_rate.0.into());
            below("emergency_min_fair_rate", own, "min_fair_rate", others, why)?;
            let (own, others) = (max_priority_load.0.into(), self.max_priority_load.0.into());
            below("max_priority_load", others, "emergency_max_priority_load", own, why)?;
        }
        Ok(())
    }

    /// Refuses a change from `self` to `wanted` that would need other tables.
    pub(super) fn check_change(&self, wanted: &Self) -> Result<(), AdmissionError> {
        wanted.check()?;
        let fixed = |knob, built: u32, wanted: u32| {
            if built == wanted { Ok(()) } else { Err(AdmissionError::Fixed { knob, built, wanted }) }
        };
        fixed("flows", self.flows, wanted.flows)?;
        fixed("history", self.history, wanted.history)?;
        Ok(())
    }

    /// min_FR in bit/s.
    #[must_use]
    pub const fn min_fair_bits(&self) -> u64 {
        self.min_fair_rate.of(self.rate.0)
    }

    /// The class window that holds.
    #[must_use]
    pub fn class_window(&self) -> Nanos {
        self.class_window.unwrap_or(self.fair_rate_interval)
    }
}

/// Refuses `low` above `high`.
fn below(
    lower: &'static str,
    low: u64,
    upper: &'static str,
    high: u64,
    why: &'static str,
) -> Result<(), AdmissionError> {
    if low <= high { Ok(()) } else { Err(AdmissionError::Order { lower, upper, why }) }
}

/// Why an admission control cannot be as it was told. Nothing changed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum AdmissionError {
    /// A value lies outside of its range.
    Range(KnobError),
    /// Two values that must be in an order are not.
    Order {
        /// What must not be above.
        lower: &'static str,
        /// What must not be below.
        upper: &'static str,
        /// What would happen.
        why: &'static str,
    },
    /// The size of a list cannot be changed while it is in use.
    Fixed {
        /// The knob.
        knob: &'static str,
        /// What it is.
        built: u32,
        /// What was asked for.
        wanted: u32,
    },
}

impl fmt::Display for AdmissionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Range(error) => error.fmt(f),
            Self::Order { lower, upper, why } => write!(f, "{lower} is above {upper}: {why}"),
            Self::Fixed { knob, built, wanted } => {
                write!(f, "{knob} is {built} since the start and cannot become {wanted} while packets flow")
            }
        }
    }
}

impl core::error::Error for AdmissionError {}

impl From<KnobError> for AdmissionError {
    fn from(error: KnobError) -> Self {
        Self::Range(error)
    }
}
