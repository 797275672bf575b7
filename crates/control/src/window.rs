//! What happened between two snapshots of the same router: differences of counters and of delay distributions.
//!
//! Pure: no clock, no socket. `watch`, the lab and later views form their rows here.

use evenkeel_router::snapshot::{Drops, LinkSnapshot, Snapshot};

/// What happened between two snapshots.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Window {
    /// When it ended: the later snapshot's time, ns.
    pub end_ns: u64,
    /// Its length, ns.
    pub length_ns: u64,
    /// Router's name.
    pub router: String,
    /// Links in the order of the later snapshot.
    pub links: Vec<LinkWindow>,
}

/// One link in a window.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LinkWindow {
    /// The port it belongs to.
    pub port: String,
    /// The discipline at the end of the window.
    pub discipline: String,
    /// Scheduler calls that found no, one and several queues busy.
    pub calls: [u64; 3],
    /// Classes in the order of the configuration.
    pub classes: Vec<ClassWindow>,
}

/// One class of one link in a window. Counts are packets in the window.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClassWindow {
    /// The class's name.
    pub name: String,
    /// Packets offered to the link.
    pub offered: u64,
    /// Packets that left the wire.
    pub sent: u64,
    /// Their IP bytes.
    pub sent_bytes: u64,
    /// Drops by reason; reasons that did not occur in the window left out.
    pub dropped: Drops,
    /// Packets queued at the end of the window.
    pub queued: u64,
    /// Transit delays of the packets that left the queue in the window.
    pub delay: DelayWindow,
}

/// Transit delays in a window.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DelayWindow {
    /// Packets measured.
    pub count: u64,
    /// Sum of their delays, ns.
    pub sum_ns: u64,
    /// Upper estimate of the largest, ns: exact when it was passed in this window, else the last bucket that grew.
    pub max_ns: u64,
    /// (lowest delay of the bucket in ns, packets), ascending, without empty buckets.
    pub buckets: Vec<(u64, u64)>,
}

/// What happened between `earlier` and `later`.
///
/// A counter that went back (the router was started anew in between, or the link was) counts from zero. Links and classes
/// that `earlier` lacks count from zero; those that `later` lacks are left out. Linear in the size of the snapshots.
#[must_use]
pub fn between(earlier: &Snapshot, later: &Snapshot) -> Window {
    todo!()
}

impl ClassWindow {
    /// Drops of all reasons.
    #[must_use]
    pub fn dropped_total(&self) -> u64 {
        self.dropped.values().sum()
    }
}

impl DelayWindow {
    /// Mean, microseconds; `None` if no packet left the queue.
    #[must_use]
    pub fn mean_us(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum_ns as f64 / self.count as f64 / 1e3)
    }

    /// Quantile `q` (0 to 1), microseconds; `None` if no packet left the queue.
    #[must_use]
    pub fn quantile_us(&self, q: f64) -> Option<f64> {
        todo!()
    }
}
