//! Meters: what passed, what was dropped and why, and how long it took.

mod histogram;
mod qostat;

pub use histogram::{BadBucket, Histogram};
pub use qostat::{ClassMeter, Qostat};
