//! State-exchange frames: what is broadcast in phase 1, and how clocks are set.
//!
//! Version 1 is the published two-byte header (spec 3.3); its spare bits carry the cycle number and
//! flags:
//!
//! ```text
//! Ethernet: 6 destination ff:ff:ff:ff:ff:ff | 6 source | 4 802.1Q (0x8100, PCP 7, VID) | 2 ethertype
//! version 1, state:  2 header (15..8 cycle mod 256, 7 master, 6 resync, 5..0 id)
//!                    6·l·N·K records: link major, then class, then position: 4 stamp, 2 length
//!                    [4 checksum, if master and the cycle number is a multiple of checksum_every]
//! version 1, clock:  2 header with id 63 | body as below
//! version 2:         1 version = 2 | 1 kind (1 state, 2 clock, 3 proof) | 1 flags (0x80 master, 0x40 resync, 0x20 ready) | 1 classes | 2 links
//!                    2 records per queue | 2 id | 2 fragment | 2 fragments | 2 bytes of body in this frame
//!                    8 cycle | 4 configuration hash | 4 checksum of the clocks | 8 set of members      (40 bytes)
//!                    part of the body
//!                    with trains a record has a 7th byte, the number of its packets
//!                    ready: in place of the checksum, the hash of the configuration that the sender is ready to change to
//! clock body:        2 sender | 2 refunds R | 8·N clocks | 8·N clocks before | 8·M·N·K tags | R × (2 queue, 8 tag before)
//! proof:             kind 3 of version 2, always; any configuration hash; without a key it only says that its sender lives; its body is
//!                    8 number (0: no challenge) | 2 challenged C | 2 answers A | C × 2 id | A × (2 id, 8 number answered)
//! authentication:    8 epoch | 8 counter | 16 SipHash-2-4-128 over source, all from the header on, epoch and counter
//! ```
//!
//! All numbers are big-endian. Frames are padded with zeros to Ethernet's 60 bytes.

mod auth;
mod build;
mod parse;

pub(crate) use auth::PROOF;
pub use auth::{Auth, Stamp};
pub use build::Builder;
pub(crate) use parse::proof_header;
pub use parse::{Parsed, Parser};

use thiserror::Error;

use crate::config::{ClusterConfig, ConfigError};
use crate::types::{NodeId, Record};

/// Bytes of the Ethernet header without tag.
pub(crate) const ETHERNET: usize = 14;
/// Bytes of the 802.1Q tag.
pub(crate) const TAG: usize = 4;
/// Smallest Ethernet payload.
pub(crate) const MIN_PAYLOAD: usize = 46;
/// Bytes of the header of version 1.
pub const V1_HEADER: usize = 2;
/// Bytes of the header of version 2.
pub const V2_HEADER: usize = 40;
/// Bytes of authentication.
pub const AUTH: usize = 32;
/// The id of version 1 that says "clock".
pub(crate) const V1_CLOCK: u8 = 63;

/// What a frame is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum FrameKind {
    /// DS: the heads of a forwarder's queues.
    State,
    /// CLOCK: all virtual clocks and tags.
    Clock,
    /// A challenge and answers to challenges: see [`Auth`].
    Proof,
}

/// What a frame says besides its body.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Header {
    /// State or clock.
    pub kind: FrameKind,
    /// Who sent it. In version 1 the sender of a clock frame stands in its body; parsing fills it
    /// in.
    pub from: NodeId,
    /// The cycle; modulo 256 in version 1.
    pub cycle: u64,
    /// The sender is master.
    pub master: bool,
    /// State: the sender did not send in the cycle before and wants its clocks set. Clock: obey
    /// even if in step.
    pub resync: bool,
    /// Number of this fragment, from 0.
    pub fragment: u16,
    /// Fragments in all.
    pub fragments: u16,
    /// Checksum of the sender's clocks, if the frame carries one.
    pub checksum: Option<u32>,
    /// Hash of the configuration that the sender is ready to change to, in version 2; such a frame
    /// has no checksum.
    pub ready: Option<u32>,
    /// Set of members by index, in version 2.
    pub members: Option<u64>,
}

/// Why a frame was not accepted. Each is counted by the engine.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
pub enum FrameError {
    /// Another ethertype, VLAN or destination: not meant for us.
    #[error("not a frame of this cluster")]
    Foreign,
    /// It ends before what it must hold.
    #[error("{found} bytes of payload where {needed} are needed")]
    Short {
        /// What is there.
        found: usize,
        /// What must be there.
        needed: usize,
    },
    /// It holds more than it may, or padding that is not zero.
    #[error("{found} bytes of payload where at most {allowed} may be")]
    Long {
        /// What is there.
        found: usize,
        /// What may be there.
        allowed: usize,
    },
    /// Version 2's ethertype, and a version that is not known.
    #[error("version {0} is not known")]
    Version(u8),
    /// A kind that is not known.
    #[error("kind {0} is not known")]
    Kind(u8),
    /// Links, classes, records or fragments do not fit the configuration although its hash does.
    #[error("its dimensions are not those of the cluster")]
    Dimensions,
    /// The sender is no member.
    #[error("node {0} is no member")]
    Stranger(u16),
    /// Another node uses this node's id, or two others share one.
    #[error("two nodes use the id {0}")]
    DuplicateId(u16),
    /// This node's own frame came back.
    #[error("own frame")]
    Echo,
    /// The sender has another configuration.
    #[error("node {node} has configuration {theirs:08x}")]
    OtherConfiguration {
        /// Who.
        node: u16,
        /// Its hash.
        theirs: u32,
        /// Of its authentication, which is genuine.
        stamp: Option<Stamp>,
    },
    /// The authentication is missing or wrong.
    #[error("its authentication is wrong")]
    Forged,
    /// Its counter is not above the last one of this sender.
    #[error("its counter was used before")]
    Replayed,
    /// It is of a life of its sender that has not answered a challenge.
    #[error("node {0} has not shown that the frame is not a recorded one")]
    Unproved(u16),
}

/// Bytes of a state body.
#[must_use]
pub fn state_bytes(config: &ClusterConfig) -> usize {
    record_bytes(config) * config.depth() * config.queues()
}

/// Bytes of a record.
pub(crate) fn record_bytes(config: &ClusterConfig) -> usize {
    if config.train().is_some() { 7 } else { 6 }
}

/// Bytes of a clock body with so many refunds.
#[must_use]
pub fn clock_bytes(config: &ClusterConfig, refunds: usize) -> usize {
    4 + 16 * config.links + 8 * config.nodes() * config.queues() + 10 * refunds
}

/// Refunds that a clock frame has room for at most: one for each queue of each forwarder.
pub(crate) fn most_refunds(config: &ClusterConfig) -> usize {
    let at_once = config.links.min(config.nodes() * config.links_at_once());
    let charged = config.rounds() as usize * at_once;
    let per_record = config.depth() * config.nodes() * config.queues();
    charged
        .max(if config.fills_rounds() { per_record } else { 0 })
        .min(config.nodes() * config.queues())
}

/// Bytes of authentication in each frame of this configuration.
pub(crate) fn auth_bytes(config: &ClusterConfig) -> usize {
    if config.framing.key.is_some() { AUTH } else { 0 }
}

/// Bytes of body in a frame of version 2 at most.
pub(crate) fn fragment_bytes(config: &ClusterConfig) -> usize {
    usize::from(config.framing.mtu) - V2_HEADER - auth_bytes(config)
}

/// Whether version 1 carries a checksum in this frame.
pub(crate) fn v1_checksum(config: &ClusterConfig, cycle: u64, master: bool) -> bool {
    master && config.compares_in(cycle)
}

pub(crate) fn fits_v1(config: &ClusterConfig) -> Result<(), ConfigError> {
    let auth = auth_bytes(config);
    let state = V1_HEADER + state_bytes(config) + 4 + auth;
    let clock = V1_HEADER + clock_bytes(config, most_refunds(config)) + auth;
    for (what, bytes) in [("a state frame", state), ("a clock frame", clock)] {
        if bytes > config.framing.mtu.into() {
            return Err(ConfigError::TooLarge { what, bytes });
        }
    }
    Ok(())
}

/// Writes a record.
#[inline]
pub(crate) fn put_record(out: &mut [u8], record: Record) {
    out[..4].copy_from_slice(&record.stamp.to_be_bytes());
    out[4..6].copy_from_slice(&record.length.to_be_bytes());
    if let Some(packets) = out.get_mut(6) {
        *packets = record.packets;
    }
}

/// Reads a record.
#[inline]
pub(crate) fn get_record(from: &[u8]) -> Record {
    Record {
        stamp: u32::from_be_bytes([from[0], from[1], from[2], from[3]]),
        length: u16::from_be_bytes([from[4], from[5]]),
        packets: from.get(6).copied().unwrap_or(1),
    }
}
