//! Generalised processor sharing: the fluid that every weighted fair scheduler approximates.
//!
//! At every instant each backlogged flow i is served at `C * w_i / sum of w_j over backlogged j`
//! (Parekh and Gallager, 1993). Fluid bytes are `f64`: this is a reference to bound shares and lag
//! against, not a discipline. Cost per event is linear in the number of flows.
//!
//! Not implemented: per-packet finish times (the lag of a scheduler follows from served bytes
//! alone).

use alloc::vec::Vec;

use crate::units::{BitRate, Bytes, Nanos, Weight};

#[derive(Clone, Copy, Debug)]
struct Flow {
    weight: f64,
    backlog: f64,
    served: f64,
}

/// A fluid link shared by weight.
///
/// ```
/// use evenkeel_core::reference::Gps;
/// use evenkeel_core::{BitRate, Bytes, Nanos, Weight};
///
/// // 8 Mbit/s is a byte in a microsecond; weights 1 : 3.
/// let mut gps = Gps::new(BitRate::from_mbps(8), &[Weight(1), Weight(3)]);
/// gps.arrive(Nanos::ZERO, 0, Bytes(1000));
/// gps.arrive(Nanos::ZERO, 1, Bytes(300));
/// gps.advance(Nanos::from_micros(400));
/// assert_eq!((gps.served(0), gps.served(1)), (100.0, 300.0));
/// // Flow 1 is through: flow 0 has the link for itself.
/// gps.advance(Nanos::from_micros(500));
/// assert_eq!(gps.served(0), 200.0);
/// ```
#[derive(Clone, Debug)]
pub struct Gps {
    /// Bytes in a nanosecond.
    rate: f64,
    flows: Vec<Flow>,
    now: Nanos,
}

/// Less than this many bytes is rounding, not backlog.
const DUST: f64 = 1e-6;

impl Gps {
    /// A link of `rate` for one flow per weight. All weights must be above zero for the flow to be
    /// served.
    #[must_use]
    pub fn new(rate: BitRate, weights: &[Weight]) -> Self {
        let flow = |w: &Weight| Flow { weight: f64::from(w.0), backlog: 0.0, served: 0.0 };
        Self {
            rate: rate.0 as f64 / 8e9,
            flows: weights.iter().map(flow).collect(),
            now: Nanos::ZERO,
        }
    }

    /// `length` bytes of `flow` arrive at `now`. Flows that do not exist are ignored.
    pub fn arrive(&mut self, now: Nanos, flow: usize, length: Bytes) {
        self.advance(now);
        if let Some(flow) = self.flows.get_mut(flow) {
            flow.backlog += length.0 as f64;
        }
    }

    /// Serves up to `now`.
    pub fn advance(&mut self, now: Nanos) {
        let mut left = now.saturating_sub(self.now).0 as f64;
        self.now = self.now.max(now);
        while left > 0.0 {
            let busy = |f: &&Flow| f.backlog > 0.0 && f.weight > 0.0;
            let weights: f64 = self.flows.iter().filter(busy).map(|f| f.weight).sum();
            if weights == 0.0 {
                return;
            }
            let share = self.rate / weights;
            // Up to the instant when the first backlog ends the shares do not change.
            let first = self
                .flows
                .iter()
                .filter(busy)
                .map(|f| f.backlog / (share * f.weight))
                .fold(f64::INFINITY, f64::min);
            let step = first.min(left);
            for flow in self.flows.iter_mut().filter(|f| f.backlog > 0.0) {
                let bytes = (share * flow.weight * step).min(flow.backlog);
                flow.served += bytes;
                flow.backlog -= bytes;
                if flow.backlog < DUST {
                    flow.served += flow.backlog;
                    flow.backlog = 0.0;
                }
            }
            left -= step;
        }
    }

    /// Bytes of a flow served so far.
    #[must_use]
    pub fn served(&self, flow: usize) -> f64 {
        self.flows.get(flow).map_or(0.0, |f| f.served)
    }

    /// Bytes of a flow that wait.
    #[must_use]
    pub fn backlog(&self, flow: usize) -> f64 {
        self.flows.get(flow).map_or(0.0, |f| f.backlog)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn capacity_left_by_a_flow_goes_to_the_others_by_weight() {
        let mut gps = Gps::new(BitRate::from_mbps(8), &[Weight(1), Weight(2), Weight(5)]);
        gps.arrive(Nanos::ZERO, 0, Bytes(10_000));
        gps.arrive(Nanos::ZERO, 1, Bytes(10_000));
        gps.advance(Nanos::from_micros(3_000));
        assert!((gps.served(0) - 1_000.0).abs() < 1e-3);
        assert!((gps.served(1) - 2_000.0).abs() < 1e-3);
        gps.arrive(Nanos::from_micros(3_000), 2, Bytes(500));
        gps.advance(Nanos::from_micros(3_800));
        assert!((gps.served(0) - 1_100.0).abs() < 1e-3);
        assert!((gps.served(2) - 500.0).abs() < 1e-3);
    }

    proptest! {
        /// Work conserving: what was served is what the link could serve while anything waited;
        /// nothing is invented.
        #[test]
        fn serves_at_the_rate_while_busy(
            arrivals in prop::collection::vec((0u64..2_000_000, 0usize..3, 40u64..1_500), 1..80),
        ) {
            let mut gps = Gps::new(BitRate::from_mbps(8), &[Weight(1), Weight(10), Weight(3)]);
            let (mut now, mut came, mut work) = (0u64, 0.0, 0.0f64);
            let mut could = 0.0;
            for (gap, flow, length) in arrivals {
                let used = work.min(gap as f64 / 1_000.0);
                work -= used;
                could += used;
                now += gap;
                gps.arrive(Nanos(now), flow, Bytes(length));
                work += length as f64;
                came += length as f64;
                let served: f64 = (0..3).map(|f| gps.served(f)).sum();
                let waits: f64 = (0..3).map(|f| gps.backlog(f)).sum();
                prop_assert!((served - could).abs() < 1e-2, "{served} of {could}");
                prop_assert!((served + waits - came).abs() < 1e-2);
            }
        }
    }
}
