//! An oracle: what could be had if every flow's share were known in advance. Deviations and waiting
//! that remain with it come from the arrivals, and no dropper avoids them.

/// Lets each flow have its share, and holds nothing against it that it did not use.
#[derive(Debug)]
pub(super) struct Meters {
    /// Packets per cycle that a flow may have.
    shares: Vec<f64>,
    admitted: Vec<u64>,
    /// Most cycles of a round, and the packets that are fetched for one.
    longest: u64,
    burst: u16,
    batch: u16,
}

impl Meters {
    /// `shares` in packets per second. Rounds are as short as the router's.
    pub(super) fn new(shares: &[f64], clock: u64, batch: u16) -> Self {
        Self {
            shares: shares.iter().map(|share| share / clock as f64).collect(),
            admitted: vec![0; shares.len()],
            longest: clock / 2_000,
            burst: batch,
            batch,
        }
    }

    /// Packets to fetch, after a round of so many cycles.
    pub(super) fn burst_after(&mut self, busy: u64) -> usize {
        if busy > self.longest {
            self.burst = (self.burst / 2).max(1);
        } else if busy < self.longest / 4 {
            self.burst = self.burst.saturating_mul(2).min(self.batch);
        }
        self.burst.into()
    }

    /// Whether a packet is within its flow's share until `now`, cycles.
    pub(super) fn admits(&mut self, flow: u32, now: u64) -> bool {
        let at = flow as usize;
        let admits = (self.admitted[at] as f64) < self.shares[at] * now as f64 + 1.0;
        self.admitted[at] += u64::from(admits);
        admits
    }
}
