//! A station at the switch that is not of the cluster, hears its frames, and sends its own.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use evenkeel_ports::af_packet::{AfPacketOptions, AfPacketPort};
use evenkeel_ports::sys;
use evenkeel_ports::{FramePool, Port};
use evenkeel_world::live::PORT;

use super::segment::STRANGER;
use crate::LabError;
use crate::stopping::Stopping;
use crate::world::World;

/// Frames that it remembers: what it sends again is so many old.
const OLD: usize = 32;
const PAUSE: Duration = Duration::from_millis(2);
/// The last byte of the cycle's number in a frame with a tag: the forged ones are of another cycle.
const CYCLE: usize = 18 + 23;

/// The thread that sends. Dropping it ends it.
#[derive(Debug)]
pub(super) struct Stranger {
    sent: Arc<AtomicU64>,
    _thread: Stopping,
}

impl Stranger {
    pub(super) fn start(world: &World) -> Result<Self, LabError> {
        let cannot = |source| LabError::System {
            what: "open a packet socket for the stranger".into(),
            source,
        };
        let options =
            AfPacketOptions { promiscuous: true, ring_frames: 256, ..AfPacketOptions::default() };
        let mut port =
            sys::in_netns(&world.namespace(STRANGER), || AfPacketPort::open(PORT.1, options))
                .map_err(cannot)?
                .map_err(|error| cannot(std::io::Error::other(error)))?;
        let sent = Arc::new(AtomicU64::new(0));
        let told = Arc::clone(&sent);
        let thread = Stopping::spawn("stranger", move |stop| {
            let mut pool = FramePool::for_frames_of(128, 2_048);
            let (mut heard, mut old) = (Vec::new(), VecDeque::<Vec<u8>>::new());
            let mut out = VecDeque::new();
            while !stop.load(Ordering::Relaxed) {
                port.rx_burst(&mut pool, sys::monotonic_now(), &mut heard, 64);
                for received in heard.drain(..) {
                    old.push_back(pool.bytes(&received.frame).to_vec());
                    pool.release(received.frame);
                }
                if let (Some(first), Some(last)) = (old.front(), old.back())
                    && old.len() > OLD
                {
                    let mut forged = last.clone();
                    if let Some(byte) = forged.get_mut(CYCLE) {
                        *byte = byte.wrapping_add(1);
                    }
                    out.extend(
                        [first, &forged].into_iter().filter_map(|frame| pool.alloc_from(frame)),
                    );
                    told.fetch_add(port.tx_burst(&mut pool, &mut out) as u64, Ordering::Relaxed);
                }
                while old.len() > OLD + 1 {
                    old.pop_front();
                }
                std::thread::sleep(PAUSE);
            }
        })?;
        Ok(Self { sent, _thread: thread })
    }

    /// Frames sent.
    pub(super) fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }
}
