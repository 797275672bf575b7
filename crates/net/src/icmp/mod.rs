//! What a router answers when it cannot forward a packet: ICMP errors for IPv4 (RFC 792, RFC
//! 1812, 4.3) and IPv6 (RFC 4443).
//!
//! [`answer`] writes a whole frame into the caller's buffer, or says why there must be no answer.
//! Callers limit the rate with a [`RateLimiter`] per port *after* [`may_answer`] and before
//! building.
//!
//! Not implemented: redirects, parameter problems, multi-part extensions (RFC 4884).

mod build;
mod limit;

pub use build::{answer, may_answer};
pub use limit::{LimitError, RateLimiter};

use core::fmt;

/// Longest frame that [`answer`] writes: Ethernet header, two tags, and IPv6's minimum MTU.
pub const MAX_ANSWER_LEN: usize = 14 + 8 + 1280;

/// Most bytes of an IPv4 answer, headers included (RFC 1812, 4.3.2.3).
pub const MAX_V4_ANSWER: usize = 576;

/// Most bytes of an IPv6 answer, headers included (RFC 4443, 2.4 c).
pub const MAX_V6_ANSWER: usize = 1280;

/// What is wrong.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum IcmpError {
    /// The time to live or hop limit ran out here. Type 11 code 0, type 3 code 0.
    TimeExceeded,
    /// The packet exceeds the next link's MTU and may not be fragmented. Type 3 code 4 (with the
    /// MTU, RFC 1191), type 2.
    TooBig {
        /// Largest IP packet that the next link carries, bytes.
        mtu: u32,
    },
    /// No route leads to the destination. Type 3 code 0, type 1 code 0.
    NoRoute,
    /// The next hop does not answer. Type 3 code 1, type 1 code 3.
    HostUnreachable,
    /// A rule forbids it. Type 3 code 13, type 1 code 1.
    AdminProhibited,
}

/// Why there is no answer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum NoAnswer {
    /// The packet is an ICMP error itself, or an ICMP message of which that cannot be excluded.
    ToIcmpError,
    /// It is a fragment other than the first (IPv4).
    ToLaterFragment,
    /// It was sent to a group or to all: by its IP or its Ethernet destination.
    ToGroup,
    /// Its source address does not name one host.
    ToNobody,
    /// The source address for the answer is of the other IP version.
    WrongFamily,
    /// The buffer is shorter than the answer; [`MAX_ANSWER_LEN`] is always enough.
    BufferTooShort,
    /// The frame is shorter than its headers say.
    Truncated,
}

impl fmt::Display for NoAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ToIcmpError => "ICMP errors are not answered",
            Self::ToLaterFragment => "fragments other than the first are not answered",
            Self::ToGroup => "packets to a group are not answered",
            Self::ToNobody => "the source address does not name one host",
            Self::WrongFamily => "the answer's source address is of the other IP version",
            Self::BufferTooShort => "the buffer is shorter than the answer",
            Self::Truncated => "the frame is shorter than its headers say",
        })
    }
}

impl core::error::Error for NoAnswer {}
