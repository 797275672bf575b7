//! Common parts of the two worlds, lab and simulator: everything between a scenario and its rows
//! that does not depend on how packets travel.
//!
//! - [`sampling`] follows flows through routers and forms the rows of a window from two snapshots
//!   and what hosts measured;
//! - [`describe`] puts a scenario into words, parameters and a drawing;
//! - [`payload`] is what sources write into packets so that sinks can measure; [`Arrived`] what
//!   sinks measure;
//! - [`wires`] makes what a wire does to packets, [`recording`] reads schedules from capture files;
//! - [`capture`] writes what passes a wire into a file;
//! - [`live`] are scenarios of a whole cluster at one switch;
//! - [`demo`] is what `evenkeel demo` shows in both;
//! - [`Acceptance`] measures how long flows wait to be let in, or to go on after a failure;
//! - [`followed`] counts the packets of each flow, and puts flows into rows;
//! - [`subscribers`] puts what each subscriber had, and should have had, into rows;
//! - [`audits`] puts what the routers' audits found into rows;
//! - [`checks`] says whether the counters of a router add up.
#![forbid(unsafe_code)]

mod acceptance;
mod arrived;
pub mod audits;
pub mod capture;
pub mod checks;
pub mod demo;
pub mod describe;
pub mod fairdrop_demo;
#[cfg(test)]
mod fixture;
pub mod followed;
pub mod live;
pub mod payload;
pub mod recording;
pub mod sampling;
mod source;
pub mod subscribers;
pub mod wires;

pub use acceptance::Acceptance;
pub use arrived::{Arrived, HostDelays, packet_rate};
pub use followed::Followed;
pub use source::{Demand, SOURCE_PORTS, SourceKind, flow_of_ports, ports_of_flow, source_of};
