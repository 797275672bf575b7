//! How counters add up.

use std::collections::BTreeMap;

/// Counters that add up with others of their kind.
pub(crate) trait Tally {
    /// Counts what `other` has counted too.
    fn add(&mut self, other: &Self);
}

/// Adds the fields named.
macro_rules! add_fields {
    ($all:expr, $other:expr; $($field:ident)+) => {
        $($crate::tally::Tally::add(&mut $all.$field, &$other.$field);)+
    };
}
pub(crate) use add_fields;

/// Adds what the pipeline counts at a port, which a snapshot of the port has by the same names.
macro_rules! add_port_counts {
    ($all:expr, $other:expr) => {
        $crate::tally::add_fields!($all, $other;
            rx_packets rx_bytes to_host exchange_received exchange_sent forwarded fragmented waiting dropped
            answered answers_limited originated originated_waiting originated_dropped tx_dropped)
    };
}
pub(crate) use add_port_counts;

impl Tally for u64 {
    fn add(&mut self, other: &Self) {
        *self += other;
    }
}

impl<const N: usize> Tally for [u64; N] {
    fn add(&mut self, other: &Self) {
        self.iter_mut().zip(other).for_each(|(all, more)| *all += more);
    }
}

/// By name; who lacks a name has counted none.
impl Tally for BTreeMap<String, u64> {
    fn add(&mut self, other: &Self) {
        for (name, more) in other {
            *self.entry(name.clone()).or_default() += more;
        }
    }
}

/// If both count at all.
impl<T: Tally> Tally for Option<T> {
    fn add(&mut self, other: &Self) {
        if let (Some(all), Some(more)) = (self, other) {
            all.add(more);
        }
    }
}

/// Place by place: both are in the order of the configuration.
impl<T: Tally> Tally for Vec<T> {
    fn add(&mut self, other: &Self) {
        self.iter_mut().zip(other).for_each(|(all, more)| all.add(more));
    }
}

/// The buckets of a histogram, lowest value and number, in order.
pub(crate) fn add_buckets(all: &mut Vec<(u64, u64)>, buckets: &[(u64, u64)]) {
    for (lowest, packets) in buckets {
        match all.binary_search_by_key(lowest, |(lowest, _)| *lowest) {
            Ok(at) => all[at].1 += packets,
            Err(at) => all.insert(at, (*lowest, *packets)),
        }
    }
}
