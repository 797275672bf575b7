//! Weighted fair queueing over forwarders that share outgoing links: one router out of many
//! machines, or many cores.
//!
//! Source: A. J. Khan, A. Sahoo, D. Manjunath, "Implementation of WFQ in a Distributed Open
//! Software Router". M forwarders hang on one switch and send on N outgoing links; each has a queue
//! for each link and class. In cycles they broadcast what waits at the heads of their queues; each
//! then computes the same stable matching of forwarders and links from the same virtual times, and
//! so knows who sends what where. Nothing here does I/O, reads a clock, or allocates in a cycle;
//! all that decides is integer arithmetic, the same on every node.
//!
//! | module | holds |
//! |---|---|
//! | [`types`] | [`Forwarder`]: what an engine asks of the machine around it; records, grants, events |
//! | [`audit`] | whether windows keep the shares that the cluster was told |
//! | [`balancer`] | which forwarder gets a flow |
//! | [`config`] | what all nodes must agree upon |
//! | [`engine`] | the cycle of one node: frames and timers in; broadcasts, grants, next timer out |
//! | [`model`] | a whole cluster in virtual time |
//! | [`scheduler`] | clocks, tags, selections and matching: the decision of a window |
//! | [`frame`] | the frames of the exchange, their authentication |
//!
//! # Driving an engine
//!
//! Make an [`Engine`] per node, hand it every broadcast that arrives ([`Engine::on_frame`]) and
//! call [`Engine::on_timer`] at [`Engine::next_timer`]. It comes back to the [`Forwarder`] for
//! heads, broadcasts and grants. Threads of one machine need no frames: a [`Scheduler`] takes the
//! records of all of them and gives the grants of a window.
// What blocks or fails where these write would stop packets: the log has a thread (crates/cli).
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]
#![forbid(unsafe_code)]

pub mod audit;
pub mod balancer;
mod clocks;
pub mod config;
pub mod engine;
pub mod frame;
mod matching;
mod mix;
pub mod model;
pub mod scheduler;
pub mod types;

pub use config::{
    ClusterConfig, ConfigError, ExchangeKey, Framing, Missing, Proposer, Timing, Variant, Version,
    WeightRule,
};
pub use engine::{Counters, Engine, Unused, View};
pub use mix::mix64;
pub use scheduler::{Granted, Scheduler, Window};
pub use types::{Event, Forwarder, Grant, NodeId, Record, earlier, stamp};
