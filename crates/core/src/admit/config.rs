//! What an admission control is told: thresholds, intervals and sizes here, the settings of each
//! mechanism beside it.
//!
//! Defaults are those of the flow-aware networking literature where it gives any (min_FR, max_PL,
//! T_FR, T_PL, flow time-out, N of PUF, max_accept_delay); the others are this project's and say
//! so.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::ops::RangeInclusive;

use super::budget::BudgetConfig;
use super::eccm::EccmConfig;
use super::emergency::{EmergencyConfig, EmergencyRule};
use super::flush::{Flush, FlushConfig};
use super::global::RouterListsConfig;
use super::per_user::{PerUserConfig, UserBy};
use super::pinning::PinningConfig;
use super::second_link::SecondLinkConfig;
use crate::prefix::Prefix;
use crate::settings;
use crate::settings::{Held, SettingError, Settings, Value};
use crate::units::{BitRate, Bytes, Nanos, Ppm};

/// Valid capacities of a link, in bit/s: 1 kbit/s to 1 Tbit/s.
const RATE_RANGE: RangeInclusive<u64> = 1_000..=1_000_000_000_000;
/// Valid intervals between estimates of the priority load, in nanoseconds: 1 ms to 10 s.
const LOAD_INTERVAL_RANGE: RangeInclusive<u64> = 1_000_000..=10_000_000_000;
/// Valid time-outs, delays and periods, in nanoseconds: 10 ms to 1 h.
pub(super) const PERIOD_RANGE: RangeInclusive<u64> = 10_000_000..=3_600_000_000_000;
/// As [`PERIOD_RANGE`], where 0 stands for none.
const PERIOD_OR_NONE: RangeInclusive<u64> = 0..=*PERIOD_RANGE.end();
/// Valid sizes of lists, in entries.
pub(super) const LIST_RANGE: RangeInclusive<u64> = 1..=16_777_216;
/// How much of the rate the router's own control packets may take without being admitted.
pub const OWN_SHARE: Ppm = Ppm::percent(1);
/// What of it may go at once.
pub const OWN_BURST: Bytes = Bytes(3_076);
/// Most emergency prefixes of a list.
const MAX_PREFIXES: usize = 4_096;
/// Shortest time for which a budget may be used ahead.
const SHORTEST_BURST: Nanos = Nanos(100_000);

settings! {
    /// Who may enter a link: while it is congested (fair rate below the minimum, or priority load
    /// above the maximum), packets of flows that are not on its list of protected flows are
    /// refused. `evenkeel ctl set wan admission.max_accept_delay 2s` changes a key. See
    /// docs/cross-protect.md.
    pub struct AdmissionConfig: "[link.admission]" {
        /// Capacity in bits on the wire, that the two thresholds are shares of. Needed on links
        /// without a rate.
        live own_rate as rate: Option<BitRate> = None, in RATE_RANGE, absent "that of the link";
        /// min_FR: below this share of the rate for one more flow, new flows are refused.
        live min_fair_rate: Ppm = Ppm::percent(5);
        /// max_PL: above this load by streaming flows, new flows are refused.
        live max_priority_load: Ppm = Ppm::percent(70), between 0.000_001..=1.0;
        /// T_FR: how often the fair rate is estimated.
        live fair_rate_interval: Nanos = Nanos::from_millis(500),
            in 10_000_000_u64..=60_000_000_000;
        /// T_PL: how often the priority load is estimated.
        live load_interval: Nanos = Nanos::from_millis(50), in LOAD_INTERVAL_RANGE;
        /// Weight of the old fair rate in the new one. 0.1 is published for AFAN.
        live smoothing: Ppm = Ppm::ZERO, between 0.0..=0.99;
        /// A flow that is silent for longer loses its protection.
        live flow_timeout: Nanos = Nanos::from_secs(20), in PERIOD_RANGE;
        /// A flow is elastic if a packet of it had no priority within this time, from 10 ms.
        /// 0: within `fair_rate_interval`.
        live class_window: Nanos = Nanos::ZERO, in PERIOD_OR_NONE;
        /// Size of the list of protected flows; a full list is congestion.
        fixed flows: u32 = 100_000, in LIST_RANGE, counting "flows";
        /// Chance that a flow that is let in is also listed; the others are asked again at their
        /// next packet.
        live listing_chance: Ppm = Ppm::ONE, between 0.000_001..=1.0;
        /// Whether what the router itself sends to keep the network running, its answers by ICMP,
        /// needs no admission, up to 1 % of the rate. Sessions of the kernel do not come through
        /// the link, and what only passes through is ordinary traffic, whatever its protocol, ports
        /// and TTL.
        live bypass_control: bool = true;
        /// Whether flows that came after the last estimate count against `min_fair_rate` before it
        /// is measured what they take, so that a burst of connections does not shut the link.
        /// `false`: as published.
        live expected_flows: bool = true;
        /// What newcomers may have of the link while `min_fair_rate` closes it, so that names are
        /// looked up and connections begin; those that turn elastic go again. 0: nothing, as
        /// published.
        live newcomer_share: Ppm = Ppm::percent(10);
        /// A flow of which only one packet was ever seen is given up after this time, from 10 ms;
        /// at most `flow_timeout`. 0: no such rule.
        live probation: Nanos = Nanos::from_secs(1), in PERIOD_OR_NONE;
        /// Flows, refused ones included, of which it is remembered what happened to them: what
        /// `explain flow` tells, and how long they waited.
        fixed history: u32 = 4_096, in LIST_RANGE, counting "flows";
        /// GPFL: streaming flows that are protected on any link of this router enter this one at
        /// once, congested or not.
        live global_list: bool = false;
    }
    parts {
        /// The budget of first packets.
        budget: BudgetConfig,
        /// ECM: emergency flows.
        emergency: EmergencyConfig,
        /// ECCM: bounds the acceptance delay.
        eccm: EccmConfig,
        /// PUF: bounds the flows a user starts.
        per_user: PerUserConfig,
        /// Flushing family: clears the list of protected flows in congestion.
        flushing: FlushConfig,
        /// Path pinning.
        pinning: PinningConfig,
        /// MFAN: a second link for some flows.
        second_link: SecondLinkConfig,
    }
    plain {
        /// C, in bits on the wire: `own_rate`, or what [`on_link`](Self::on_link) was told.
        rate: BitRate = BitRate::ZERO;
        /// Subscribers share the link: `min_fair_rate` is of what each has.
        by_subscriber: bool = false;
    }
    check Self::fits
}

settings! {
    /// What the admissions of all links share: the list of streaming flows that survive a change of
    /// path, and who may always enter.
    pub struct FlowsConfig: "[flows]" {
        /// Packets from these prefixes are of emergency flows (ECM).
        reload emergency_sources: Vec<Prefix> = Vec::new(), absent "none";
        /// Packets to these prefixes are of emergency flows (ECM).
        reload emergency_destinations: Vec<Prefix> = Vec::new(), absent "none";
        /// The hosts on the inside, for `user = "inside"`.
        reload inside: Vec<Prefix> = Vec::new(), absent "none";
    }
    parts {
        /// The global list of streaming flows.
        lists: RouterListsConfig,
    }
}

/// What a link is to its admission.
#[derive(Clone, Copy, Debug, Default)]
pub struct OnLink {
    /// Its rate.
    pub rate: Option<BitRate>,
    /// That of its second link.
    pub second_rate: Option<BitRate>,
    /// Subscribers share it.
    pub by_subscriber: bool,
}

impl AdmissionConfig {
    /// The defaults for a link of this capacity: plain admission with the rules against floods.
    #[must_use]
    pub fn new(rate: BitRate) -> Self {
        Self { rate, ..Self::default() }
    }

    /// The same without what the publications do not have, or have as an option: no count of
    /// expected flows, no share for newcomers, no ECCM.
    #[must_use]
    pub fn published(rate: BitRate) -> Self {
        let eccm = EccmConfig { on: false, ..EccmConfig::default() };
        Self { expected_flows: false, newcomer_share: Ppm::ZERO, eccm, ..Self::new(rate) }
    }

    /// Completed by what it is not told itself: what its link is, and the emergency prefixes of the
    /// router.
    ///
    /// # Errors
    /// No capacity is known, or what [`check_on_link`](Self::check_on_link) finds.
    pub fn on_link(&self, link: OnLink, flows: &FlowsConfig) -> Result<Self, SettingError> {
        let OnLink { rate, second_rate, by_subscriber } = link;
        let mut config = Self { by_subscriber, ..self.clone() };
        config.rate = self.own_rate.or(rate).ok_or_else(|| {
            contradiction(
                "rate",
                "the link has no rate: give admission a `rate` to hold thresholds against",
            )
        })?;
        config.second_link.rate = match &self.second_link.port {
            Some(_) if second_rate.is_none() => {
                return Err(contradiction("second_link", "its second link has no rate"));
            }
            Some(_) => second_rate,
            None => None,
        };
        config.emergency.sources.clone_from(&flows.emergency_sources);
        config.emergency.destinations.clone_from(&flows.emergency_destinations);
        config.per_user.inside.clone_from(&flows.inside);
        config.check_on_link()?;
        Ok(config)
    }

    /// As [`check`](Settings::check), with what is not of its table: capacities and emergency
    /// prefixes.
    ///
    /// # Errors
    /// [`SettingError`]: a value out of its range, or values that contradict each other.
    pub fn check_on_link(&self) -> Result<(), SettingError> {
        self.check()?;
        for (key, rate) in [("rate", Some(self.rate)), ("second_link_rate", self.second_link.rate)]
        {
            if let Some(rate) = rate.filter(|rate| !RATE_RANGE.contains(&rate.0)) {
                let valid = BitRate::KIND.within(*RATE_RANGE.start(), *RATE_RANGE.end());
                return Err(out_of_range(key, rate.into(), valid.range()));
            }
        }
        let EmergencyConfig { sources, destinations, .. } = &self.emergency;
        let inside = &self.per_user.inside;
        self.fits_subscribers()?;
        if self.per_user.on && self.per_user.by == UserBy::Inside && inside.is_empty() {
            return Err(contradiction("user", "\"inside\" needs [flows] inside: nobody is there"));
        }
        for (key, list) in [
            ("emergency_sources", sources),
            ("emergency_destinations", destinations),
            ("inside", inside),
        ] {
            if list.len() > MAX_PREFIXES {
                let valid = format!("0 to {MAX_PREFIXES} prefixes");
                return Err(out_of_range(key, (list.len() as u64).into(), valid));
            }
        }
        Ok(())
    }

    /// What goes with subscribers, and what needs them.
    fn fits_subscribers(&self) -> Result<(), SettingError> {
        if !self.by_subscriber {
            let unknown = self.per_user.on && self.per_user.by == UserBy::Subscriber;
            let message = "\"subscriber\" needs a [[tree]] on this link, which says who there is";
            return if unknown { Err(contradiction("user", message)) } else { Ok(()) };
        }
        if self.flushing.kind != Flush::Off {
            let message = "not on a link with a [[tree]]: flows of all subscribers would be \
                           cleared for the sake of one";
            return Err(contradiction("flushing", message));
        }
        if self.second_link.port.is_some() {
            let message = "not on a link with a [[tree]]: flows of other subscribers would leave \
                           for the sake of one";
            return Err(contradiction("second_link", message));
        }
        Ok(())
    }

    fn fits(&self) -> Result<(), SettingError> {
        none_or_from("class_window", self.class_window, Nanos(*PERIOD_RANGE.start()))?;
        none_or_from("probation", self.probation, Nanos(*PERIOD_RANGE.start()))?;
        if self.budget.on {
            none_or_from("budget_burst", self.budget.burst, SHORTEST_BURST)?;
            let why = "it would be more than an interval's budget";
            at_most("budget_burst", self.budget.burst, "load_interval", self.load_interval, why)?;
        }
        let why = "a new flow would be kept longer than a known one";
        at_most("probation", self.probation, "flow_timeout", self.flow_timeout, why)?;
        if self.emergency.rule == EmergencyRule::Thresholds {
            let why = "emergency flows would be refused before others";
            let own = &self.emergency;
            at_most(
                "emergency_min_fair_rate",
                own.min_fair_rate,
                "min_fair_rate",
                self.min_fair_rate,
                why,
            )?;
            let (most, others) = (own.max_priority_load, self.max_priority_load);
            at_most("max_priority_load", others, "emergency_max_priority_load", most, why)?;
        }
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
        if self.class_window == Nanos::ZERO { self.fair_rate_interval } else { self.class_window }
    }
}

/// The longest budget that may be used ahead: the longest interval of it.
pub(super) const BURST_OR_NONE: RangeInclusive<u64> = 0..=*LOAD_INTERVAL_RANGE.end();

fn contradiction(key: &'static str, message: &str) -> SettingError {
    SettingError::Contradiction { key, message: message.to_string() }
}

fn out_of_range(key: &'static str, value: Value, valid: String) -> SettingError {
    SettingError::OutOfRange { key, value: value.plain(&[]), valid }
}

/// Refuses a time that is neither zero nor at least `least`.
fn none_or_from(key: &'static str, time: Nanos, least: Nanos) -> Result<(), SettingError> {
    if time == Nanos::ZERO || time >= least {
        return Ok(());
    }
    let valid = format!("0, or at least {}", Value::from(least).plain(&[]));
    Err(out_of_range(key, time.into(), valid))
}

/// Refuses `low` above `high`.
fn at_most<T: PartialOrd>(
    lower: &'static str,
    low: T,
    upper: &'static str,
    high: T,
    why: &'static str,
) -> Result<(), SettingError> {
    if low <= high { Ok(()) } else { Err(contradiction(lower, &format!("above {upper}: {why}"))) }
}
