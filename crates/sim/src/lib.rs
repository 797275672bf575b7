//! Scenarios in virtual time.
//!
//! One thread, one queue of events, one seed: the same scenario and seed give the same bytes of
//! output on every machine. Routers are the router's own
//! [`Pipeline`](evenkeel_router::pipeline::Pipeline)s, driven through ports in memory; wires are
//! [`Emulator`](evenkeel_traffic::emulate::Emulator)s; hosts hold the sources of `evenkeel-traffic`
//! and [`Endpoint`]s such as TCP.
#![forbid(unsafe_code)]

pub mod cluster;
mod connection;
mod engine;
mod error;
mod header;
pub mod host;
mod live;
mod network;
mod outcome;
pub mod polled;
mod port;
mod queue;
mod router;
mod run;
mod source;
pub mod tcp;
mod way;

pub use error::{SimError, TrafficError};
pub use host::{Endpoint, EndpointCounters, IpPacket, Outbox};
pub use live::run_live;
pub use outcome::{FlowTotals, Outcome, SimOptions};
pub use run::{report, run};
