//! Files that are no captures, or captures of anything: read to the end or to an error.

use std::io::Write as _;

use evenkeel_core::Nanos;
use evenkeel_ports::pcap::{Pace, PcapReadPort};
use evenkeel_ports::{FramePool, Port};

/// The bytes of a file.
pub(super) fn run(bytes: &[u8]) {
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    file.write_all(bytes).expect("it is written");
    let Ok(mut port) = PcapReadPort::open(file.path(), Pace::Fast) else { return };
    let (mut pool, mut frames) = (FramePool::new(64), Vec::new());
    // Each frame takes at least a header in the file.
    for _ in 0..=bytes.len() {
        port.rx_burst(&mut pool, Nanos(1), &mut frames, 32);
        for received in frames.drain(..) {
            pool.release(received.frame);
        }
        if port.is_finished() {
            break;
        }
    }
    assert!(port.is_finished(), "it ends");
    assert_eq!(pool.free(), pool.buffers(), "no buffer is lost");
}
