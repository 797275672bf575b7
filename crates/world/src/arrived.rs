//! Measurements of a receiving host.

use evenkeel_core::measure::Histogram;
use evenkeel_core::{BitRate, Bytes, Nanos};
use evenkeel_report::Delays;

/// Packets that arrived at a sink.
#[derive(Clone, Debug, Default)]
pub struct Arrived {
    /// Packets.
    pub packets: u64,
    /// Their IP bytes.
    pub bytes: u64,
    /// Packets with a lower number than one that came before.
    pub reordered: u64,
    /// Packets whose number came right after itself.
    pub repeated: u64,
    /// From the sender's stamp to the kernel of the receiving host.
    pub delays: HostDelays,
    /// Flows that got through for the first time, or anew, and how long they waited; `None` where
    /// nobody looked.
    pub accepted: Option<HostDelays>,
    /// Flows of which nothing has got through at the end of the window.
    pub waiting: u64,
}

/// Delays from host to host.
#[derive(Clone, Debug, Default)]
pub struct HostDelays {
    count: u64,
    sum: Nanos,
    max: Nanos,
    histogram: Histogram,
}

impl HostDelays {
    /// Takes one packet in.
    pub fn record(&mut self, delay: Nanos) {
        self.count += 1;
        self.sum += delay;
        self.max = self.max.max(delay);
        self.histogram.record(delay);
    }

    /// Adds the packets of `other`.
    pub fn merge(&mut self, other: &Self) {
        self.count += other.count;
        self.sum += other.sum;
        self.max = self.max.max(other.max);
        self.histogram.merge(&other.histogram);
    }

    /// As results carry them.
    pub fn told(&self) -> Delays {
        let buckets =
            self.histogram.buckets().map(|(index, n)| (Histogram::bounds(index).0.0, n)).collect();
        Delays { count: self.count, sum_ns: self.sum.0, max_ns: self.max.0, buckets }
    }
}

/// Bits of IP packets per second as packets per second.
pub fn packet_rate(rate: BitRate, ip_len: Bytes) -> f64 {
    rate.0 as f64 / (ip_len.0 as f64 * 8.0)
}
