//! Ideal systems to measure real ones against: for tests and views, not for the packet path.

mod gps;

pub use gps::Gps;
