//! Traffic sources as state machines: when to send what, without sockets.
//!
//! A [`Source`] says when the next packet of a flow is due and how long it is. It reads no clock
//! and opens no socket: real senders sleep until [`Emission::at`], simulated ones put it into their
//! event list, and both send the same packets.
//!
//! All arithmetic is in integers, including the exponential variates
//! ([`random::Dice::exponential`]), so a schedule follows from its seed alone and is the same, bit
//! for bit, on every machine.
//!
//! ```
//! use evenkeel_core::{BitRate, Bytes, Nanos};
//! use evenkeel_traffic::{Process, Source, SourceConfig};
//!
//! let config = SourceConfig::new(Process::Cbr { jitter_ppm: 0 }, BitRate::from_mbps(100), Bytes(1250));
//! let mut source = Source::new(SourceConfig { random_phase: false, ..config })?;
//! let times: Vec<u64> = (0..3).filter_map(|_| source.next(Nanos::ZERO)).map(|e| e.at.0).collect();
//! assert_eq!(times, [0, 100_000, 200_000]); // 10 000 bits at 100 Mbit/s
//! # Ok::<(), evenkeel_traffic::SourceError>(())
//! ```
#![forbid(unsafe_code)]

pub mod applications;
pub mod emulate;
pub mod flows;
pub mod random;
pub mod replay;
pub mod sizes;
pub mod source;
pub mod users;
mod variates;

pub use applications::Application;
pub use emulate::{Emulator, EmulatorConfig, EmulatorError, Fate};
pub use flows::{Beginnings, FlowArrivals, FlowEmission, FlowsConfig};
pub use replay::{Recorded, Replay};
pub use sizes::Sizes;
pub use source::{Emission, FLOW_STREAMS, Process, Source, SourceConfig, SourceError};
pub use users::{Habit, Users, UsersConfig};
