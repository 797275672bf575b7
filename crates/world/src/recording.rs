//! Capture files as schedules.

use std::path::{Path, PathBuf};

use evenkeel_core::{Bytes, Nanos};
use evenkeel_net::frame::{Parsed, parse};
use evenkeel_ports::pcap::{Pace, PcapReadPort};
use evenkeel_ports::{FramePool, Port, PortError};

/// Frames read at once.
const BURST: usize = 64;
/// Longest frame that is read.
const LONGEST: usize = 9_100;

/// Why a capture gives no schedule.
#[derive(Debug, thiserror::Error)]
pub enum RecordingError {
    /// It cannot be read, or is no capture.
    #[error(transparent)]
    Capture(#[from] PortError),
    /// It holds no IP packet.
    #[error("{file} holds no IP packets", file = .0.display())]
    NoPackets(PathBuf),
}

/// When the IP packets of a capture came, from the first on, and how long they were. Whatever else
/// it holds is left out.
///
/// # Errors
/// It cannot be read, is no capture, or holds no IP packet.
pub fn read(path: &Path) -> Result<Vec<(Nanos, Bytes)>, RecordingError> {
    let mut port = PcapReadPort::open(path, Pace::Captured)?;
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
    match port.into_error() {
        Some(error) => Err(error.into()),
        None if packets.is_empty() => Err(RecordingError::NoPackets(path.to_owned())),
        None => Ok(packets),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_lengths_of_ip_packets_are_read() {
        let path =
            std::env::temp_dir().join(format!("evenkeel-recording-{}.pcap", std::process::id()));
        std::fs::write(&path, crate::fixture::capture(&[(500, 100), (2_500, 300)])).unwrap();
        let packets = read(&path);
        std::fs::remove_file(&path).unwrap();
        let gaps = packets.unwrap();
        assert_eq!(gaps.iter().map(|(_, len)| len.0).collect::<Vec<_>>(), [100, 300]);
        assert_eq!(gaps[1].0 - gaps[0].0, Nanos::from_millis(2));
        assert!(read(&path).is_err(), "it is gone");
    }
}
