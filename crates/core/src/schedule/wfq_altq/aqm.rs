//! CoDel on the queues of WFQ/ALTQ: off by default, the papers have none.
//!
//! A queue's target is never below the time of a packet and a half at its own rate, which is the
//! link's by the weights of the queues that hold packets. A queue holds packets of many flows: BLUE
//! and the step of L4S, which are for queues of one, have no place here.

use alloc::boxed::Box;

use super::WfqAltq;
use crate::aqm::elastic::packets_at;
use crate::aqm::{AqmConfig, Codel, Taken, Times};
use crate::packet::Packet;
use crate::reason::Reason;
use crate::schedule::DropSink;
use crate::units::{BitRate, Nanos};
use crate::{settings, words};

words! {
    /// What keeps queues of classes short.
    pub enum ClassAqm {
        /// Nothing but their limits, as published.
        #[default]
        None = "none",
        /// CoDel (RFC 8289).
        Codel = "codel",
    }
}

settings! {
    /// What keeps queues of classes short.
    #[derive(Copy, Eq)]
    pub struct ClassAqmConfig: "" {
        /// `codel` drops or marks at the head of a queue that stands, beside the limits. Of several
        /// workers each judges what waits at it.
        live aqm: ClassAqm = ClassAqm::None;
    }
    parts {
        /// When a queue counts as standing, with `aqm`.
        law: AqmConfig,
    }
}

impl ClassAqmConfig {
    /// Whether there is one.
    #[must_use]
    pub const fn is_on(&self) -> bool {
        matches!(self.aqm, ClassAqm::Codel)
    }
}

/// What is remembered of the queues.
#[derive(Clone, Debug)]
pub(super) struct Standing {
    queues: Box<[Codel]>,
    /// The time of a packet and a half at the link's rate.
    packets: Nanos,
    /// For how long packets wait for a grant.
    grants: Nanos,
    /// Of the queues that hold packets, together: with an AQM, which alone asks.
    weights: u64,
}

impl Standing {
    pub(super) fn new(queues: usize) -> Self {
        let queues = alloc::vec![Codel::NEW; queues].into_boxed_slice();
        Self { queues, packets: Nanos::ZERO, grants: Nanos::ZERO, weights: 0 }
    }

    pub(super) fn set_rate(&mut self, rate: Option<BitRate>) {
        self.packets = packets_at(rate);
    }

    pub(super) fn grants_take(&mut self, time: Nanos) {
        self.grants = time;
    }

    /// What a queue of this weight is judged by.
    fn times(&self, law: &AqmConfig, weight: u32) -> Times {
        let own = u128::from(self.packets.0) * u128::from(self.weights) / u128::from(weight.max(1));
        law.at_least(Nanos(u64::try_from(own).unwrap_or(u64::MAX)).max(self.grants))
    }
}

impl<P: Packet> WfqAltq<P> {
    /// Which queues hold packets has changed, or their weights: the sum follows.
    pub(super) fn weigh_all(&mut self) {
        let busy = (0..self.slots.len()).filter(|queue| !self.queues.is_empty(*queue));
        self.standing.weights = busy.map(|queue| u64::from(self.slots[queue].weight.0)).sum();
    }

    /// The first packet of a queue that the AQM lets go.
    pub(super) fn pop_short(
        &mut self,
        now: Nanos,
        queue: usize,
        dropped: &mut dyn DropSink<P>,
    ) -> Option<P> {
        let times = self.standing.times(&self.config.aqm.law, self.slots[queue].weight.0);
        let Self { queues, standing, .. } = self;
        let state = &mut standing.queues[queue];
        let take = || {
            let packet = queues.pop(queue)?;
            Some(Taken { left: queues.backlog(queue).bytes, packet })
        };
        let drop = |packet| dropped.dropped(packet, Reason::StandingQueue);
        let given = state.dequeue(&times, now, take, drop);
        if queues.is_empty(queue) {
            state.emptied();
        }
        self.ends(queue);
        self.weigh(queue);
        given
    }

    /// A packet has left a queue: if that is empty it has no weight.
    #[inline]
    pub(super) fn ends(&mut self, queue: usize) {
        if self.config.aqm.is_on() && self.queues.is_empty(queue) {
            self.standing.weights -= u64::from(self.slots[queue].weight.0);
        }
    }

    /// A packet comes to a queue: if that was empty it has its weight from now on.
    #[inline]
    pub(super) fn begins(&mut self, queue: usize) {
        if self.config.aqm.is_on() && self.queues.is_empty(queue) {
            self.standing.weights += u64::from(self.slots[queue].weight.0);
        }
    }
}
