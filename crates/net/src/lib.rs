//! Wire formats, flow keys, forwarding tables and the ICMP answers of a router, without sockets.
//!
//! Nothing here does I/O, reads a clock or allocates per packet: frames are byte slices, `now` is
//! an argument, and what is built goes into the caller's buffer. No input makes any of it panic.
//!
//! The path of a packet through this crate:
//!
//! 1. [`frame::parse`] checks the frame and finds its headers and flow key;
//! 2. [`fib::Fib::lookup`] says where the destination is. What is for the machine itself or for a
//!    group goes to the host; what is in transit must pass [`frame::Headers::check_transit`];
//! 3. [`rewrite::decrement_ttl`], then [`neighbour::NeighbourTable::mac`] and
//!    [`rewrite::set_macs`];
//! 4. what its class asks for in [`service`];
//! 5. [`fragment::fragment_ipv4`] where the packet exceeds the next link's MTU;
//! 6. [`icmp::answer`] where it cannot be forwarded.
//!
//! ```
//! use core::net::IpAddr;
//! use evenkeel_net::fib::{Decision, Fib, NextHop, Route};
//! use evenkeel_net::PortIndex;
//!
//! let mut fib = Fib::new();
//! let wan = PortIndex(1);
//! fib.insert("0.0.0.0/0".parse()?, Route::via(NextHop::gateway(wan, "192.0.2.1".parse()?), 0));
//! let destination: IpAddr = "198.51.100.7".parse()?;
//! let decision = fib.lookup(destination, 0);
//! let gateway: IpAddr = "192.0.2.1".parse()?;
//! assert!(matches!(decision, Some(Decision::Forward { port, next_hop, .. }) if port == wan && next_hop == gateway));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
// What blocks or fails where these write would stop packets: the log has a thread (crates/cli).
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]
#![forbid(unsafe_code)]

pub mod access;
pub mod acks;
pub mod below;
mod blocks;
pub mod checksum;
pub mod fib;
pub mod fragment;
pub mod frame;
pub mod hash;
pub mod icmp;
mod lpm;
pub mod neighbour;
pub mod policy;
pub mod prefix_map;
pub mod rewrite;
pub mod service;
pub mod stamps;
pub mod usual;

pub use evenkeel_core::{MacAddr, ParseMacError, ParsePrefixError, PortIndex, Prefix};
