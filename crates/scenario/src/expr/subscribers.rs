//! What expectations ask of subscribers one by one: `worst(share_error(town-*)@evening)`.
//!
//! A subscriber is what a row of `subscribers.csv` is: somebody in a list of a `[[tree]]`, on one
//! link of it, during a step.

use super::words::words;
use super::{Statistic, matches};

words! {
    /// What is measured of each subscriber.
    SubscriberMetric:
    /// what the link sent of it, on the wire
    Rate "subscriber_rate", "bit/s";
    /// what it should have had: hierarchical max-min (`tree_filling`), where whoever had something
    /// waiting at nine of ten window ends asks for all that there is, and others for what they had
    Share "subscriber_share", "bit/s";
    /// how far what it had is from what it should have had, of the latter
    ShareError "share_error", "";
    /// what it had, as a part of its cap
    CapUse "cap_use", "";
    /// packets dropped, as a part of those that came
    Loss "subscriber_loss", "";
    /// packets marked, as a part of those sent
    Marked "subscriber_marked", "";
    /// half of its packets waited no longer; in steps of a factor of two
    WaitP50 "subscriber_wait_p50", "us";
    /// 99 of 100 of its packets waited no longer; in steps of a factor of two
    WaitP99 "subscriber_wait_p99", "us";
}

impl SubscriberMetric {
    /// Whether who has less of it fares worse.
    #[must_use]
    pub const fn less_is_worse(self) -> bool {
        matches!(self, Self::Rate | Self::Share | Self::CapUse)
    }
}

/// Which subscribers of a link, and what of each.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct SubscriberSet {
    /// What is measured of each.
    pub metric: SubscriberMetric,
    /// The router.
    pub router: String,
    /// The link: its port's name.
    pub link: String,
    /// Their names, which may hold `*`. One without that names a node means the node itself.
    pub pattern: String,
    /// The step.
    pub step: usize,
}

impl SubscriberSet {
    /// Whether a subscriber, or else a node, with this name is meant.
    #[must_use]
    pub fn means(&self, name: &str, subscriber: bool) -> bool {
        if subscriber { matches(&self.pattern, name) } else { self.pattern == name }
    }
}

/// A statistic of subscribers, as an expectation asks for it.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct OfSubscribers {
    /// What is made of their numbers.
    pub statistic: Statistic,
    /// Which they are.
    pub set: SubscriberSet,
}

impl OfSubscribers {
    pub(super) fn unit(&self) -> &'static str {
        self.statistic.unit(self.set.metric.unit())
    }
}
