//! The router: one worker's run-to-completion pipeline, the worker thread, and the mirror of the
//! kernel's tables.
//!
//! - [`pipeline`] does everything a packet meets between two ports, without a socket and without a
//!   clock: tests, benches and the simulator drive the same object as the router.
//! - [`mirror`] follows the kernel's links, addresses, routes and neighbours through netlink.
//! - [`Router::start`] puts both on real ports in a worker thread; the [`Handle`] talks to it.
// What blocks or fails where these write would stop packets: the log has a thread (crates/cli).
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]
#![forbid(unsafe_code)]

mod attachment;
mod claim;
mod clock;
mod command;
mod counted;
mod error;
mod handing;
mod handover;
mod idle;
mod leave;
pub mod memory;
mod merge;
pub mod mirror;
mod options;
mod own;
mod passing;
pub mod pipeline;
mod prepare;
pub mod snapshot;
mod start;
pub mod watch;
pub mod window;
mod worker;
mod workers;

pub use command::{Command, NodeQuery, Reply};
pub use error::{CommandError, ServiceError, StartError, StopError, WorkerError};
pub use evenkeel_config::OwnError;
pub use evenkeel_ports::sys::lock;
pub use leave::{Left, leave_cluster};
pub use options::Options;
pub use own::{Boxed, Build, Disciplines, Setup};
pub use passing::Predecessor;
pub use pipeline::cluster_config;
pub use snapshot::Snapshot;
pub use start::{Handle, Router};
