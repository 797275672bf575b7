//! Fair packet scheduling, dropping and measuring as pure state machines.
//!
//! Nothing here reads a clock, does I/O or allocates per packet: `now` is an argument, and whatever is dropped is
//! handed back with a [`Reason`](reason::Reason). A router, a simulator, a bench and a fuzzer run the same code.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod class_map;
pub mod link;
pub mod measure;
pub mod packet;
pub mod queue;
pub mod reason;
pub mod reference;
pub mod schedule;
pub mod shape;
pub mod units;

pub use packet::{Class, FlowKey, Packet};
pub use reason::Reason;
pub use schedule::{DropSink, Scheduler};
pub use units::{BitRate, Bytes, Cycles, Nanos, Weight};
