//! What a qualification is told.

use std::path::PathBuf;
use std::time::Duration;

use evenkeel_core::Nanos;

/// How it is measured.
#[derive(Clone, Debug)]
pub struct Options {
    /// The `evenkeel` command itself, which the router is started with.
    pub binary: PathBuf,
    /// Lengths of frames, each within [`FRAMES`](super::FRAMES).
    pub frames: Vec<u16>,
    /// How long one trial sends.
    pub trial: Nanos,
    /// How exactly rates are looked for: 0.01 is one percent.
    pub precision: f64,
    /// No trial is begun after this time; what is known then is told.
    pub budget: Duration,
}
