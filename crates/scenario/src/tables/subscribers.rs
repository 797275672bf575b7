//! The keys of `[[subscribers]]`.

use std::ops::RangeInclusive;

use evenkeel_config::tables::NAME;
use evenkeel_core::schedule::tree::CAP_RANGE;
use evenkeel_core::{BitRate, settings};

use super::NODE;
use crate::subscribers::MOST;

/// A cap or guarantee.
const RATE: RangeInclusive<u64> = CAP_RANGE;

settings! {
    /// People behind a host, and the node of a tree that they are behind. Each has an address of
    /// its own: those of the n-th `[[subscribers]]` with a host, from 0, are 100.(64+n).0.1 and
    /// fd00:80nn::1 (nn hexadecimal) and on. Their names are NAME-1, NAME-2 and so on.
    pub struct SubscribersSection: "[[subscribers]]" {
        /// The name of the node. Unique, also among those whom others make.
        stated name: String = String::new(), written NAME, is required;
        /// The list that it belongs to: what `subscribers` of a `[[router.config.tree]]` names.
        stated list: String = "subscribers".to_owned(), written NAME;
        /// The node that it is behind, an earlier one of its list.
        stated parent: Option<String> = None, written NAME, absent "the link";
        /// The host that stands for them: it sends and receives for their addresses.
        stated host: Option<String> = None, written NODE,
            absent "only without `count`: others are behind the node";
        /// How many they are.
        stated count: u32 = 0, in 0..=MOST, counting "subscribers";
        /// The most that goes towards all behind the node, bit/s on the wire.
        stated down: Option<BitRate> = None, in RATE, absent "as its parent";
        /// The most that comes from all behind the node.
        stated up: Option<BitRate> = None, in RATE, absent "as its parent";
        /// What they get before others share, towards them.
        stated min_down: Option<BitRate> = None, in RATE, absent "nothing";
        /// What they get before others share, from them.
        stated min_up: Option<BitRate> = None, in RATE, absent "nothing";
        /// Its part of what is shared.
        stated weight: Option<f64> = None, between 0.001..=2e6, absent "its cap in Mbit/s";
        /// The plans that they have.
        stated plans: Vec<PlanSection> = Vec::new(), in 0..=100, absent "all without a cap";
    }
}

settings! {
    /// A plan. Whoever comes next gets the one that is furthest behind its `part`, so that any few
    /// neighbours have all of them.
    pub struct PlanSection: "plans = [{ … }]" {
        /// How many have it, beside the parts of the other plans.
        stated part: f64 = 1.0, between 0.001..=1e6;
        /// The most that goes towards each.
        stated down: Option<BitRate> = None, in RATE, absent "as the node";
        /// The most that comes from each.
        stated up: Option<BitRate> = None, in RATE, absent "as the node";
        /// What each gets before others share, towards it.
        stated min_down: Option<BitRate> = None, in RATE, absent "nothing";
        /// What each gets before others share, from it.
        stated min_up: Option<BitRate> = None, in RATE, absent "nothing";
        /// The part of each of what is shared.
        stated weight: Option<f64> = None, between 0.001..=2e6, absent "its cap in Mbit/s";
    }
}
