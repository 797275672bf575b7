//! What a link is told to deliver.

use alloc::vec::Vec;

use super::flows::Alike;
use super::ledger::Unit;
use crate::link::LinkConfig;
use crate::units::{BitRate, Bytes, Nanos};

/// What a discipline promises to classes or flows.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Promise {
    /// Nothing but to send while something waits.
    #[default]
    WorkConserving,
    /// Nothing at all: it may hold packets back.
    Nothing,
    /// Nodes of a tree are sent no more than their caps, and siblings that always wait their
    /// shares; it may hold packets back.
    Nodes,
    /// Classes share by weight.
    Shares {
        /// Their weights; classes beyond have none and are not judged.
        weights: Vec<f64>,
        /// In what it counts.
        unit: Unit,
        /// How far a class may be behind the fluid: so many bytes,
        bytes: u64,
        /// and so many of the longest packets.
        packets: u64,
    },
    /// Classes of a higher level go first.
    Levels {
        /// The level of each class.
        levels: Vec<u32>,
    },
    /// Flows that always wait are sent the same.
    Flows {
        /// By how much two may differ in any time, bytes on the wire beyond two of the longest
        /// packets.
        spread: Bytes,
        /// How many flows it can tell apart.
        places: u32,
        /// Which of them.
        alike: Alike,
    },
}

/// What a link is told: by its configuration, not by what became of that.
#[derive(Clone, Debug, PartialEq)]
pub struct Told {
    /// Rate, ring, shaper.
    pub link: LinkConfig,
    /// Of the discipline.
    pub promise: Promise,
}

/// What a rate gives in a time, bytes.
pub(super) fn bytes_in(rate: BitRate, time: Nanos) -> f64 {
    rate.0 as f64 * time.0 as f64 / 8e9
}

impl Promise {
    pub(super) fn is_work_conserving(&self) -> bool {
        !matches!(self, Self::Nothing | Self::Nodes)
    }

    pub(super) fn unit(&self) -> Unit {
        match self {
            Self::Shares { unit, .. } => *unit,
            _ => Unit::Ip,
        }
    }

    /// (level, weight) of each class.
    pub(super) fn classes(&self) -> Vec<(u32, f64)> {
        match self {
            Self::Shares { weights, .. } => weights.iter().map(|w| (0, *w)).collect(),
            Self::Levels { levels } => levels.iter().map(|level| (*level, 1.0)).collect(),
            _ => Vec::new(),
        }
    }

    /// How far a class may be behind the fluid, bytes, before what waits in the ring.
    pub(super) fn lag(&self, class: usize, longest: u64) -> u64 {
        match self {
            Self::Shares { bytes, packets, .. } => bytes + packets * longest,
            // A packet that is on its way is not interrupted; within a level it is first in, first
            // out, so classes of one level are not told apart.
            Self::Levels { levels } => {
                let alone = levels.iter().filter(|l| **l == levels[class]).count() == 1;
                if alone { longest } else { u64::MAX / 4 }
            }
            _ => u64::MAX / 4,
        }
    }
}
