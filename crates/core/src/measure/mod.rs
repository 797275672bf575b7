//! Meters: what passed, what was dropped and why, how long it took, and what that means to a class.

pub mod congestion;
mod histogram;
mod qostat;

pub use histogram::{BadBucket, Histogram};
pub use qostat::{ClassMeter, Qostat};
