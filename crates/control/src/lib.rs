//! The router's control protocol over a Unix socket: newline-delimited JSON, one request, one
//! reply.
//!
//! - [`server`] answers requests with a router's [`Handle`](evenkeel_router::Handle).
//! - [`client`] asks, from another process.
//! - [`watch`] is QoStat: one row per class and interval, as CSV or JSON lines.
//! - [`rates`] makes of a window what people watch, [`fold`] of many windows one.
//! - [`certificate`] states what links were told and delivered in a period, signed.
//! - [`script`] applies changes at given times.
// What blocks or fails where these write would stop packets: the log has a thread (crates/cli).
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]
#![forbid(unsafe_code)]

pub mod certificate;
pub mod client;
mod confirm;
pub mod fold;
mod listen;
pub mod look;
pub mod protocol;
pub mod rates;
pub mod script;
pub mod server;
pub mod watch;

pub use client::{Client, ClientError};
pub use listen::Peer;
pub use protocol::{Changes, JournalLine, Request, Running, Version};
pub use server::{Server, ServerError, Target};
