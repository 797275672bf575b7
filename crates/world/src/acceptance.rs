//! Acceptance delays, as the sources of flows see them: how long a flow knocks before the first of
//! its packets gets through.
//!
//! The delay of a flow is the time from its first packet to the first packet that arrives, both as
//! they were *sent*: what the network does to a packet that it lets in does not count, and a flow
//! whose first packet gets through has waited for nothing. Its resolution is the spacing of the
//! flow's packets. When the layout of the network changes every flow knocks anew; what is measured
//! then is its switchover time.

use std::collections::HashMap;

use evenkeel_core::Nanos;

use crate::HostDelays;

/// The flows of one `[[traffic]]`, told apart by a number that their ports give.
#[derive(Clone, Debug, Default)]
pub struct Acceptance {
    /// When a flow's first packet was sent; `None`: one has got through. Looked up only, so that
    /// its order does not matter.
    flows: HashMap<u64, Option<Nanos>>,
    waiting: u64,
    delays: HostDelays,
}

impl Acceptance {
    /// A flow sends a packet at `at`.
    pub fn sent(&mut self, flow: u64, at: Nanos) {
        self.flows.entry(flow).or_insert_with(|| {
            self.waiting += 1;
            Some(at)
        });
    }

    /// A packet of a flow that was sent at `sent` has arrived.
    pub fn arrived(&mut self, flow: u64, sent: Nanos) {
        // Packets sent before all flows had to knock anew tell nothing.
        let Some(first) = self.flows.get_mut(&flow) else { return };
        if first.is_some_and(|first| sent >= first)
            && let Some(first) = first.take()
        {
            self.waiting -= 1;
            self.delays.record(sent.saturating_sub(first));
        }
    }

    /// Every flow knocks anew.
    pub fn anew(&mut self) {
        self.flows.clear();
        self.waiting = 0;
    }

    /// The delays of the flows that got through since the last call.
    pub fn take(&mut self) -> HostDelays {
        std::mem::take(&mut self.delays)
    }

    /// Flows of which nothing has got through.
    #[must_use]
    pub fn waiting(&self) -> u64 {
        self.waiting
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Nanos {
        Nanos::from_millis(ms)
    }

    #[test]
    fn a_flow_waits_from_its_first_packet_to_the_first_that_gets_through() {
        let mut acceptance = Acceptance::default();
        for at in [0, 10, 20, 30] {
            acceptance.sent(7, ms(at));
        }
        acceptance.sent(8, ms(30));
        acceptance.arrived(7, ms(20));
        acceptance.arrived(7, ms(30));
        assert_eq!(acceptance.waiting(), 1);
        let delays = acceptance.take().told();
        assert_eq!((delays.count, delays.sum_ns), (1, ms(20).0));
        assert_eq!(acceptance.take().told().count, 0);
    }

    #[test]
    fn who_knocks_anew_is_not_let_in_by_an_old_packet() {
        let mut acceptance = Acceptance::default();
        acceptance.sent(7, ms(0));
        acceptance.anew();
        acceptance.arrived(7, ms(0));
        acceptance.sent(7, ms(10));
        acceptance.arrived(7, ms(5));
        assert_eq!((acceptance.waiting(), acceptance.take().told().count), (1, 0));
        acceptance.sent(7, ms(11));
        acceptance.arrived(7, ms(11));
        assert_eq!(acceptance.take().told().max_ns, ms(1).0);
    }
}
