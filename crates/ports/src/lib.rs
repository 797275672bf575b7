//! Frames in and out: the Port trait, AF_PACKET, pcap and memory ports, wrappers; clocks, pollers
//! and all of the project's unsafe code.
//!
//! | module | holds |
//! |---|---|
//! | [`pool`] | [`FramePool`] and [`Frame`]: one region of fixed-size buffers, handles that cannot be freed twice |
//! | [`port`] | the trait [`Port`], what every back end counts, [`RxFrame`] |
//! | [`af_packet`], [`af_xdp`], [`memory`], [`pcap`] | back ends: a Linux interface, one with zero to one copies per frame, a pair of queues, a capture file |
//! | [`wrap`] | middleware around any port: [`wrap::Tracer`], [`wrap::PcapTap`], [`wrap::FaultInjector`] |
//! | [`deferral`] | has interrupts of an interface wait for whoever polls it, and restores them |
//! | [`guard`] | keeps the kernel from forwarding a second copy of what the router forwards; ends with the process |
//! | [`huge_pages`] | large tables in pages of 2 MiB |
//! | [`inline`] | takes over the queues of an interface and leaves everything else to the kernel |
//! | [`lose`] | loses frames of a VLAN at random, for tests |
//! | [`offload`] | switches off what hands over super-frames, and restores it |
//! | [`survey`] | what there is at an interface and below it, for whoever only looks |
//! | [`zeroed`] | tables of zeros, which take memory where they are written to |
//! | [`sys`], [`tsc`] | clock, epoll, timerfd, eventfd, signalfd, namespaces, UDP batches; the time-stamp counter |
//!
//! Two rules hold everywhere: a frame that is not delivered is counted under a
//! [`Reason`](evenkeel_core::Reason), and whatever a port changes in the kernel ends with the
//! process, however it ends, or is undone by the next start.
// What blocks or fails where these write would stop packets: the log has a thread (crates/cli).
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

pub mod af_packet;
pub mod af_xdp;
pub mod bypass;
pub mod capture_file;
pub mod deferral;
pub mod error;
pub mod gate;
pub mod guard;
pub mod heartbeat;
pub mod huge_pages;
pub mod inline;
pub mod lose;
pub mod memory;
pub mod offload;
pub mod parcel;
pub mod pcap;
pub mod pool;
pub mod port;
pub mod survey;
pub mod sys;
pub mod tsc;
pub mod wrap;
pub mod zeroed;

mod bpf;
mod classify;
mod ethtool;
mod interface;
mod mapping;
mod netlink;
mod note;
mod segment;
#[cfg(test)]
#[path = "../../../fuzz/cases/segmentation.rs"]
#[allow(unreachable_pub, reason = "the fuzz target takes it in, too")]
mod segmentation_case;
mod super_frame;
mod words;

pub use error::{BadCapture, PortError};
pub use ethtool::virtual_driver;
pub use pool::{Frame, FramePool, Umem};
pub use port::{Port, PortCounters, PortState, RxFrame, RxWaiting};
