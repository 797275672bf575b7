//! Weighted fair queueing over forwarders that share outgoing links: one router out of many machines, or many cores.
//!
//! Source: A. J. Khan, A. Sahoo, D. Manjunath, "Implementation of WFQ in a Distributed Open Software Router". M forwarders hang on one
//! switch and send on N outgoing links; each has a queue for each link and class. In cycles they broadcast what waits at the heads of their
//! queues; each then computes the same stable matching of forwarders and links from the same virtual times, and so knows who sends what
//! where. Nothing here does I/O, reads a clock, or allocates in a cycle; all that decides is integer arithmetic, the same on every node.
//!
//! | module | holds |
//! |---|---|
//! | [`types`] | [`Forwarder`](types::Forwarder): what an engine asks of the machine around it; records, grants, events |
//! | [`config`] | what all nodes must agree upon |
//! | [`frame`] | the frames of the exchange, their authentication |
//!
//! # Driving an engine
//!
//! ```text
//! Engine::new(config: ClusterConfig, me: NodeId, mac: [u8; 6], first_counter: u64, now: Nanos) -> Result<Engine, ConfigError>
//! engine.on_frame(now, frame: &[u8], &mut forwarder)         every broadcast that arrives; foreign ones are ignored
//! engine.on_timer(now, &mut forwarder)                       at engine.next_timer(): Nanos, or later
//! engine.counters() -> &Counters, engine.view() -> View       what happened; role, master, cycle, members, in step or not
//! ```
//!
//! Both calls come back to the [`Forwarder`](types::Forwarder) for heads, broadcasts and grants. Threads of one machine need no frames:
//! `Scheduler` (the clocks, tags and rounds alone) takes the records of all of them and gives the grants of a window.
#![forbid(unsafe_code)]

pub mod config;
pub mod frame;
mod mix;
pub mod types;

pub use config::{
    ClusterConfig, ConfigError, Framing, Missing, Proposer, Timing, Variant, Version, WeightRule,
};
pub use mix::mix64;
pub use types::{Event, Forwarder, Grant, NodeId, Record, earlier, stamp};
