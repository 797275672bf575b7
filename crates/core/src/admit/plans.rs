//! Subscribers that share a link: each has a fair rate of its own, and new flows of who has too
//! many are refused, whatever the others do.
//!
//! ```text
//! closed  <=>  R / n < min_FR * R  or  (n + p * k) * min_FR >= 1
//! ```
//!
//! | symbol | here | unit |
//! |---|---|---|
//! | R | [`Sharing::rate`]: what the subscriber may have | bit/s |
//! | n | [`Sharing::flows`]: its flows that wait, a mean over its last packets | flows |
//! | p, k | as of [newcomers](super::newcomers), of its own flows | – |
//! | min_FR | `min_fair_rate`, a share of R | – |
//!
//! A tree gives each subscriber what it should have whatever others start, so there is no fair rate
//! of the link to be held against a threshold, and no priority load: who only streams stays below
//! its cap, or waits behind it. While a subscriber is closed its newcomers enter as guests, in
//! places of its own: a name is looked up, a call is set up. Who has waited for longer than ECCM's
//! bound may have such a place, too; there is no window of ECCM, which would be the link's.
//!
//! Complexity: constant for flows that are listed; for a new one what is young is looked through.
//! Source: this project's, after cross-protect's rule for a link.

use super::{Admission, Backlogs};
use crate::schedule::Sharing;
use crate::units::BitRate;

/// What a new flow's subscriber has.
#[derive(Clone, Copy, Debug)]
pub(super) struct OwnPlan {
    /// R.
    pub(super) rate: BitRate,
    /// What a flow has now.
    pub(super) fair: BitRate,
    /// What a flow would have with those that have just come.
    pub(super) expected: BitRate,
    /// min_FR of R.
    pub(super) least: BitRate,
}

impl OwnPlan {
    /// New flows of the subscriber are refused.
    pub(super) fn is_closed(&self) -> bool {
        self.fair < self.least || self.expected <= self.least
    }
}

impl Admission {
    /// What the subscriber has, where `min_fair` is what a flow must have of the link; `None`: no
    /// subscribers share it.
    pub(super) fn own_plan(
        &self,
        subscriber: u32,
        min_fair: BitRate,
        backlogs: Backlogs<'_>,
    ) -> Option<OwnPlan> {
        if !self.config.by_subscriber {
            return None;
        }
        let Sharing { rate, flows, whole } = backlogs.sharing(subscriber)?;
        let present = (u64::from(flows) << 16) / u64::from(whole.max(1));
        let of = |flows: u64| {
            let each = (u128::from(rate.0) << 16) / u128::from(flows.max(1 << 16));
            BitRate(u64::try_from(each).unwrap_or(u64::MAX))
        };
        let fair = of(present);
        let expected = if self.config.expected_flows {
            of(present.saturating_add(self.newcomers.coming_of(subscriber)))
        } else {
            BitRate(u64::MAX)
        };
        let least = u128::from(rate.0) * u128::from(min_fair.0) / u128::from(self.config.rate.0);
        Some(OwnPlan { rate, fair, expected, least: BitRate(least as u64) })
    }
}
