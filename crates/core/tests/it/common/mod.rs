//! What tests of the core share: the harness of every discipline, and configurations of WFQ/ALTQ.

use evenkeel_core::schedule::wfq_altq::{DropRule, WfqAltqConfig};
use evenkeel_core::settings::PerClass;
use evenkeel_core::{Bytes, Weight};

pub(crate) use evenkeel_harness::{
    Harness, Mail, Op, Outcome, Subject, TestPacket, flow, op, ops, run,
};

/// WFQ/ALTQ that drops the arriving packet of a queue of so many.
pub(crate) fn tail(limit: u32) -> WfqAltqConfig {
    WfqAltqConfig { limit: PerClass::all(limit), ..WfqAltqConfig::default() }
}

/// WFQ/ALTQ that drops from the longest queue above so many bytes.
pub(crate) fn longest(high_water: u64) -> WfqAltqConfig {
    let high_water = Bytes(high_water);
    WfqAltqConfig { drop: DropRule::Longest, high_water, ..WfqAltqConfig::default() }
}

/// `config` with a queue for each of these weights.
pub(crate) fn weighted(weights: &[u32], config: WfqAltqConfig) -> WfqAltqConfig {
    let weights: Vec<Weight> = weights.iter().copied().map(Weight).collect();
    let WfqAltqConfig { classes, weight, .. } = WfqAltqConfig::with_weights(weights);
    WfqAltqConfig { classes, weight, ..config }
}
