//! Meters: what passed, what was dropped and why, how long it took, and what that means to a class.

pub mod congestion;
pub mod counters;
mod histogram;
mod qostat;
pub mod round_trips;
mod run;

pub use counters::{Counter, CounterKind, Tally, add_buckets, buckets_since};
pub use histogram::{BadBucket, Histogram};
pub use qostat::{ClassCounters, ClassMeter, Qostat};
pub use run::Run;
