//! The payload of the lab's own UDP sources, from which sinks measure.
//!
//! ```text
//!  0        4        8                16               24
//!  +--------+--------+----------------+----------------+----------
//!  | "EKL1" |  flow  |    sequence    |     stamp      |  zeros
//!  +--------+--------+----------------+----------------+----------
//! ```
//! Big-endian. `stamp` is `CLOCK_MONOTONIC` in nanoseconds just before the packet was given to the
//! kernel; hosts are namespaces of one machine and share that clock.

use std::net::IpAddr;

use evenkeel_core::{Bytes, Nanos};

/// Marks our packets among whatever else arrives at the port.
const MAGIC: [u8; 4] = *b"EKL1";
/// Bytes that are written.
pub const LENGTH: usize = 24;

/// The shortest IP packet, of either version, that a stamp fits into.
pub const SHORTEST: Bytes = Bytes(40 + 8 + LENGTH as u64);

/// The measuring part of a payload.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Stamp {
    /// Number of the flow in the run.
    pub flow: u32,
    /// Number of the packet in its flow, from 0.
    pub seq: u64,
    /// When it was sent.
    pub at: Nanos,
}

impl Stamp {
    /// Writes it at the head of `payload`, which holds at least [`LENGTH`] bytes.
    pub fn write(self, payload: &mut [u8]) {
        payload[..4].copy_from_slice(&MAGIC);
        payload[4..8].copy_from_slice(&self.flow.to_be_bytes());
        payload[8..16].copy_from_slice(&self.seq.to_be_bytes());
        payload[16..LENGTH].copy_from_slice(&self.at.0.to_be_bytes());
    }

    /// Reads it; `None` if the payload is not ours.
    pub fn read(payload: &[u8]) -> Option<Self> {
        let head: &[u8; LENGTH] = payload.first_chunk()?;
        let (magic, rest) = head.split_first_chunk::<4>()?;
        let (flow, rest) = rest.split_first_chunk::<4>()?;
        let (seq, rest) = rest.split_first_chunk::<8>()?;
        let at = rest.first_chunk::<8>()?;
        (*magic == MAGIC).then(|| Self {
            flow: u32::from_be_bytes(*flow),
            seq: u64::from_be_bytes(*seq),
            at: Nanos(u64::from_be_bytes(*at)),
        })
    }
}

/// What IP and UDP headers take of an IP packet.
pub const fn headers(address: IpAddr) -> u64 {
    match address {
        IpAddr::V4(_) => 20 + 8,
        IpAddr::V6(_) => 40 + 8,
    }
}

/// Length of the UDP payload of an IP packet of `ip_len`; `None` if there is no room for a stamp.
pub fn payload_len(ip_len: Bytes, address: IpAddr) -> Option<usize> {
    let length = usize::try_from(ip_len.0.checked_sub(headers(address))?).ok()?;
    (length >= LENGTH).then_some(length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_survives_and_noise_is_not_taken_for_one() {
        let stamp = Stamp { flow: 3, seq: 1 << 40, at: Nanos(123_456_789_012) };
        let mut payload = [0; 30];
        stamp.write(&mut payload);
        assert_eq!(Stamp::read(&payload), Some(stamp));
        assert_eq!(Stamp::read(&payload[..LENGTH - 1]), None);
        payload[0] = b'X';
        assert_eq!(Stamp::read(&payload), None);
    }

    #[test]
    fn the_ip_length_is_what_the_scenario_says() {
        let v4 = IpAddr::from([10, 0, 0, 1]);
        let v6 = IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, 1]);
        assert_eq!(payload_len(Bytes(1428), v4), Some(1400));
        assert_eq!(payload_len(Bytes(1428), v6), Some(1380));
        assert_eq!(payload_len(Bytes(52), v4), Some(24));
        assert_eq!(payload_len(Bytes(51), v4), None);
        assert_eq!(payload_len(Bytes(10), v4), None);
    }
}
