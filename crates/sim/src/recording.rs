//! Capture files as schedules.

use std::path::Path;

use evenkeel_core::{Bytes, Nanos};
use evenkeel_net::frame::{Parsed, parse};
use evenkeel_ports::pcap::{Pace, PcapReadPort};
use evenkeel_ports::{FramePool, Port};

/// Frames read at once.
const BURST: usize = 64;
/// Longest frame that is read.
const LONGEST: usize = 9_100;

/// When the IP packets of a capture came, from the first on, and how long they were. Whatever else it holds is left out.
///
/// # Errors
/// It cannot be read, is no capture, or holds no IP packet.
pub(crate) fn read(path: &Path) -> Result<Vec<(Nanos, Bytes)>, String> {
    let mut port = PcapReadPort::open(path, Pace::Captured).map_err(|error| error.to_string())?;
    let mut pool = FramePool::for_frames_of(BURST, LONGEST);
    let (mut packets, mut frames) = (Vec::new(), Vec::new());
    // The first call says when the recording begins, the others come after all of it.
    let mut now = Nanos::ZERO;
    while !port.is_finished() {
        port.rx_burst(&mut pool, now, &mut frames, BURST);
        now = Nanos(u64::MAX / 2);
        for received in frames.drain(..) {
            if let Ok(Parsed::Ip(headers)) = parse(pool.bytes(&received.frame)) {
                packets.push((received.arrival, Bytes(u64::from(headers.ip_len))));
            }
            pool.release(received.frame);
        }
    }
    match port.error() {
        Some(error) => Err(error.to_string()),
        None if packets.is_empty() => Err(format!("{} holds no IP packets", path.display())),
        None => Ok(packets),
    }
}
