//! What holds for every discipline, as a test of your own one.
//!
//! [`run`] does random operations to a discipline beside a copy of what its queues must hold, and
//! checks after each that no packet is lost or made, that every queue keeps its order, that what is
//! told (`peek_len`, `next_wake`, `meters`, `class_backlog`, `busy_queues`) is so, that a change
//! that is refused changes nothing, and that nothing waits for ever. It is what the disciplines of
//! Evenkeel are held to, by property tests and fuzzers.
//!
//! ```
//! use evenkeel_core::schedule::fifo::{Fifo, FifoConfig};
//! use proptest::prelude::*;
//!
//! proptest! {
//!     fn fifo_keeps_the_contract(limit in 1u32..20, ops in evenkeel_harness::ops(200)) {
//!         evenkeel_harness::run(Fifo::new(FifoConfig::packets(limit)).unwrap(), ops);
//!     }
//! }
//! # fifo_keeps_the_contract();
//! ```
//!
//! A discipline of your own says first what the harness must know of it: [`Subject`]. See
//! `docs/write-a-discipline.md`.
#![forbid(unsafe_code)]

mod built_in;
mod harness;
mod op;
mod packet;
mod subject;

pub use harness::{Harness, Outcome, run};
pub use op::{OP_BYTES, Op, op, ops};
pub use packet::{Mail, TestPacket, flow};
pub use subject::Subject;
