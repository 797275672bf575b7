//! Packet sockets that listen at interfaces of several namespaces and are read in turn, by one
//! thread. The kernel stamps each frame, so that it does not matter when that is.

use std::time::Duration;

use evenkeel_core::Nanos;
use evenkeel_ports::af_packet::{AfPacketOptions, AfPacketPort};
use evenkeel_ports::{FramePool, Port, RxFrame, sys};

use crate::LabError;

/// How often the rings should be emptied.
pub(crate) const SWEEP: Duration = Duration::from_millis(2);
/// Frames that are read at once.
const BURST: usize = 256;
/// Room for a frame at least.
const LEAST: usize = 2_048;
/// Ethernet header and a tag.
const BEFORE_IP: u32 = 18;

/// Sockets, each for something of its owner's.
#[derive(Debug)]
pub(crate) struct Listeners<T> {
    sockets: Vec<(T, AfPacketPort)>,
    longest: usize,
    /// Made when it is known how long frames can be.
    pool: Option<FramePool>,
}

impl<T> Default for Listeners<T> {
    fn default() -> Self {
        Self { sockets: Vec::new(), longest: LEAST, pool: None }
    }
}

/// A socket for IP packets of up to `mtu` bytes, with a ring of so many frames.
pub(crate) fn for_mtu(mtu: u16, ring_frames: u32) -> AfPacketOptions {
    let max_frame = (u32::from(mtu) + BEFORE_IP).max(1_518);
    AfPacketOptions { ring_frames, max_frame, ..AfPacketOptions::default() }
}

impl<T> Listeners<T> {
    /// Listens at an interface of a namespace, too.
    ///
    /// # Errors
    /// The kernel refuses.
    pub(crate) fn listen(
        &mut self,
        of: T,
        (namespace, interface): (&str, &str),
        options: AfPacketOptions,
    ) -> Result<(), LabError> {
        let cannot = |source| LabError::System { what: format!("capture at {interface}"), source };
        let port = sys::in_netns(namespace, || AfPacketPort::open(interface, options))
            .map_err(cannot)?
            .map_err(|error| cannot(std::io::Error::other(error)))?;
        self.longest = self.longest.max(options.max_frame as usize + 64);
        self.sockets.push((of, port));
        Ok(())
    }

    /// Empties the rings, one after the other: `see` has every frame and when it came. Returns how
    /// many frames they had no room for since the beginning.
    pub(crate) fn sweep(&mut self, mut see: impl FnMut(&T, Nanos, &[u8])) -> u64 {
        let longest = self.longest;
        let pool = self.pool.get_or_insert_with(|| FramePool::for_frames_of(BURST, longest));
        let mut frames: Vec<RxFrame> = Vec::with_capacity(BURST);
        let mut lost = 0;
        for (of, port) in &mut self.sockets {
            loop {
                let got = port.rx_burst(pool, sys::monotonic_now(), &mut frames, BURST);
                for received in frames.drain(..) {
                    see(of, received.arrival, pool.bytes(&received.frame));
                    pool.release(received.frame);
                }
                if got < BURST {
                    break;
                }
            }
            let counters = port.counters();
            lost += counters.ring_loss + counters.dropped.iter().sum::<u64>();
        }
        lost
    }
}
