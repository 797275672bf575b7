//! Outgoing links and their classes, as plain data.

use std::ops::Deref;

use evenkeel_core::Nanos;
use evenkeel_core::counters;
use evenkeel_core::measure::{ClassCounters, Histogram};
use serde::{Deserialize, Serialize};

use super::{AdmissionSnapshot, AuditSnapshot, Drops, TreeSnapshot};

counters! {
    /// One outgoing link.
    #[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
    pub struct LinkSnapshot {
        /// The port it belongs to.
        key port: String;
        /// The discipline's name as in configuration files.
        state discipline: String;
        /// Rate of the paced wire, bit/s; `None` if unpaced.
        state rate_bps: Option<u64>, "bit/s";
        /// Slots of the transmit ring.
        state ring_slots: u32, "packets";
        /// Packets in the transmit ring.
        gauge in_ring: u64, "packets";
        /// Packets queued in the discipline.
        gauge queued: u64, "packets";
        /// Scheduler calls that found no, one and several queues busy.
        count calls: [u64; 3], "calls";
        /// Time of the paced wire that was lost while something waited for it, because the worker
        /// came too late (`max_catch_up`), ns; of several workers the sum.
        #[serde(default)]
        count lost_ns: u64, "ns";
        /// What it was told, held against what it delivered; `None`: nothing to hold it against.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        each audit: Option<AuditSnapshot>;
        /// Who may enter; `None`: everybody.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        each admission: Option<AdmissionSnapshot>;
        /// What lets its rate follow a line; `None`: nothing does.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        each follow: Option<FollowSnapshot>;
        /// The subscribers that share it; `None`: flows or classes do.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        each tree: Option<TreeSnapshot>;
        /// Classes in the order of the configuration.
        each classes: Vec<ClassSnapshot>;
    }
}

counters! {
    /// One class of one outgoing link: what QoStat reads.
    ///
    /// Conservation: `in_packets = sent_packets + sum(dropped) + queued + in the ring`.
    #[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
    pub struct ClassSnapshot {
        /// Name from the configuration.
        key name: String;
        /// What the link counts of it.
        #[serde(flatten, with = "crate::counted")]
        part counts: ClassCounters;
        /// Drops by reason.
        part dropped: Drops, "packets";
        /// Packets queued now.
        gauge queued_packets: u64, "packets";
        /// Their IP bytes.
        gauge queued_bytes: u64, "bytes";
        /// The most packets queued at once since the start.
        #[serde(default)]
        most queue_most: u64, "packets";
        /// Sum of transit delays (arrival to dequeue) of the packets in `out_packets`, ns.
        count delay_sum_ns: u64, "ns";
        /// Largest transit delay since the start, ns.
        most delay_max_ns: u64, "ns";
        /// Transit delays: (lowest delay of the bucket in ns, packets), ascending, buckets without
        /// packets left out.
        buckets delay_buckets: Vec<(u64, u64)>, "ns";
        /// What the link's control sees of it; `None` on links without.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        each control: Option<ClassControl>;
    }
    after Self::longest_of_window
}

counters! {
    /// What the dynamic control of a link sees of a class, and what it makes of it.
    #[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
    pub struct ClassControl {
        /// Congestion index for delay: 0 is normal, 1 the degradation threshold, at most 4. Of its
        /// last traffic if it has none now.
        state ci_delay: f64;
        /// Congestion index for loss.
        state ci_loss: f64;
        /// X_DELAY that it has, without the dither, ns.
        state x_delay_ns: u64, "ns";
        /// Its queue limit; `None` if limits are not controlled.
        state limit: Option<u32>, "packets";
    }
}

counters! {
    /// A rate that follows a line.
    #[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
    pub struct FollowSnapshot {
        /// Whether it changes the rate; otherwise it says what it would do.
        state on: bool;
        /// The rate that the link should have, bit/s.
        state wanted_bps: u64, "bit/s";
        /// How long packets last waited on the line, ns; `None`: none has come back yet.
        state waits_ns: Option<u64>, "ns";
        /// Changes of the rate since the start.
        count steps: u64, "steps";
        /// Intervals in which the link was busy and no packet came back.
        count silent: u64, "intervals";
        /// The latest steps, the oldest first.
        state latest: Vec<FollowStep>;
    }
}

/// A change of a rate that follows a line.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct FollowStep {
    /// When, `CLOCK_MONOTONIC`, ns.
    pub at_ns: u64,
    /// From this rate, bit/s.
    pub from_bps: u64,
    /// To this one.
    pub to_bps: u64,
    /// Why.
    pub why: String,
}

impl LinkSnapshot {
    /// The class called `name`.
    #[must_use]
    pub fn class(&self, name: &str) -> Option<&ClassSnapshot> {
        self.classes.iter().find(|class| class.name == name)
    }
}

/// The counts are read like fields of the snapshot.
impl Deref for ClassSnapshot {
    type Target = ClassCounters;

    fn deref(&self) -> &ClassCounters {
        &self.counts
    }
}

impl ClassSnapshot {
    /// Drops of all reasons.
    #[must_use]
    pub fn dropped_total(&self) -> u64 {
        self.dropped.values().sum()
    }

    /// Mean transit delay, microseconds; `None` if no packet left the queue.
    #[must_use]
    pub fn delay_mean_us(&self) -> Option<f64> {
        (self.out_packets > 0).then(|| self.delay_sum_ns as f64 / self.out_packets as f64 / 1e3)
    }

    /// Quantile `q` (0 to 1) of the transit delay, microseconds, to 3 % and never above the
    /// largest; `None` if no packet left the queue.
    #[must_use]
    pub fn delay_quantile_us(&self, q: f64) -> Option<f64> {
        let mut histogram = Histogram::new();
        for &(lowest, packets) in &self.delay_buckets {
            histogram.record_many(Nanos(lowest), packets);
        }
        histogram.quantile(q).map(|delay| delay.0.min(self.delay_max_ns) as f64 / 1e3)
    }

    /// The longest delay of a window: exact where it is the longest since the start, else the upper
    /// end of its bucket.
    fn longest_of_window(&mut self, now: &Self, before: &Self) {
        if now.delay_max_ns <= before.delay_max_ns {
            let upper = self.delay_buckets.last().map_or(0, |&(lowest, _)| upper_end(lowest));
            self.delay_max_ns = upper.min(now.delay_max_ns);
        }
    }
}

/// The first delay, ns, that is no longer in the bucket that begins with `lowest`.
fn upper_end(lowest: u64) -> u64 {
    let at = (0..Histogram::BUCKETS).find(|&i| Histogram::bounds(i).1.0 > lowest);
    at.map_or(u64::MAX, |i| Histogram::bounds(i).1.0)
}
