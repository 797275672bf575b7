//! FairDrop for the cycles of one core. (The interface; the rules follow with the shadow system.)

use alloc::vec::Vec;

use super::config::{CpuConfig, FairDropError, ProcessingClass, Rule, ShareId};
use crate::reason::Reason;
use crate::units::Cycles;

/// What the worker knows right after it fetched a non-empty burst.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Poll {
    /// The cycle counter at the fetch. Monotone; the first call sets the start.
    pub now: Cycles,
    /// Cycles the previous round took from its fetch to its end, idle polls left out: what its packets are charged together.
    pub busy: Cycles,
    /// Frames fetched.
    pub polled: u32,
    /// Frames that still wait in the port's ring after the fetch. A port that cannot tell gives 0 after a burst below the maximum
    /// and the ring's capacity after a full one.
    pub waiting: u32,
}

/// A packet that was judged: what [`CpuFairDrop::charge`] needs to find its flow again. Valid until the next `begin_batch`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Ticket {
    pub(super) slot: u32,
    /// The class that the flow's packet before it really took: the guess that costs are judged by.
    pub class: ProcessingClass,
}

/// One flow of a dropper's table.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct FlowView {
    /// The upper half of its hash.
    pub tag: u32,
    /// What it is due.
    pub share: ShareId,
    /// The class its last packet took.
    pub class: ProcessingClass,
    /// Cycles (or bits) charged to it since it entered the table.
    pub charged: u64,
    /// Packets refused since then (saturates).
    pub refused: u32,
    /// Its shadow queue now, in cycles (or bits).
    pub backlog: u64,
}

/// Counters and estimates of a core's dropper.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct CpuView {
    /// Packets judged, admitted (charged), refused.
    pub judged: u64,
    /// See `judged`.
    pub admitted: u64,
    /// See `judged`.
    pub refused: u64,
    /// Packets of flows that found no place in the table and were charged to the common entry.
    pub unplaced: u64,
    /// Flows with a shadow backlog.
    pub backlogged: u32,
    /// The threshold now, in cycles of a flow of weight 1; `u64::MAX` while nothing is refused.
    pub threshold: u64,
    /// The water level: millionths of the core that a flow of weight 1 may use (rule `Level`).
    pub level: u32,
    /// Busy cycles per cycle that the classes' costs explain, in thousandths (T_busy / S).
    pub scale: u32,
    /// Cost estimate of each class, cycles.
    pub costs: Vec<u64>,
    /// Measurements that were absurd (zero or beyond the largest cost) and were clamped.
    pub absurd: u64,
}

/// The dropper of one worker.
#[derive(Clone, Debug)]
pub struct CpuFairDrop {
    config: CpuConfig,
}

impl CpuFairDrop {
    /// A dropper with an empty shadow system. Allocates all it will ever need.
    ///
    /// # Errors
    /// A value out of its range.
    pub fn new(config: CpuConfig) -> Result<Self, FairDropError> {
        config.check()?;
        Ok(Self { config })
    }

    /// Right after a non-empty fetch: costs are rescaled by what the previous round really took, the shadow is served for the time that
    /// passed, the threshold follows its rule. Before the first [`judge`](Self::judge).
    pub fn begin_batch(&mut self, poll: &Poll) {
        let _ = poll;
    }

    /// Whether a packet of this flow is within its share. Charges nothing.
    ///
    /// # Errors
    /// [`Reason::FairdropCpu`]: refuse it.
    pub fn judge(&mut self, flow_hash: u64, share: ShareId) -> Result<Ticket, Reason> {
        let _ = (flow_hash, share);
        Ok(Ticket { slot: 0, class: ProcessingClass(0) })
    }

    /// The packet is admitted by all: its flow pays for the class of processing that it really takes. At once after `judge` where
    /// that is known, else (and again, if the guess was wrong) later in the same round.
    pub fn charge(&mut self, ticket: Ticket, class: ProcessingClass) {
        let _ = (ticket, class);
    }

    /// [`judge`](Self::judge) and [`charge`](Self::charge) in one.
    ///
    /// # Errors
    /// [`Reason::FairdropCpu`]: refuse it.
    pub fn admit(&mut self, flow_hash: u64, share: ShareId, class: ProcessingClass) -> Result<(), Reason> {
        let ticket = self.judge(flow_hash, share)?;
        self.charge(ticket, class);
        Ok(())
    }

    /// `packets` of `class` took `cycles` together, in the stages that depend on the class: what the class's cost is learnt from.
    /// Once per class and round, or for a sample of rounds.
    pub fn measured(&mut self, class: ProcessingClass, packets: u32, cycles: Cycles) {
        let _ = (class, packets, cycles);
    }

    /// Changes the rule. What flows are charged for stays.
    ///
    /// # Errors
    /// A value out of its range; nothing changes then.
    pub fn set_rule(&mut self, rule: Rule) -> Result<(), FairDropError> {
        rule.check()?;
        self.config.rule = rule;
        Ok(())
    }

    /// The configuration as it is now.
    #[must_use]
    pub fn config(&self) -> &CpuConfig {
        &self.config
    }

    /// Counters and estimates.
    #[must_use]
    pub fn view(&self) -> CpuView {
        CpuView::default()
    }

    /// The flows of the table, in the order of their slots.
    pub fn flows(&self) -> impl Iterator<Item = FlowView> + '_ {
        core::iter::empty()
    }
}
