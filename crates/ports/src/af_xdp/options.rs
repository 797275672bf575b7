//! How an interface is opened, and what its driver took.

use std::sync::Arc;

use crate::error::PortError;
use crate::heartbeat::Heartbeat;
use crate::pool::{Frame, FramePool};

/// Ethernet header and one VLAN tag.
pub(super) const FRAME_OVERHEAD: usize = 14 + TAG;
const TAG: usize = 4;

/// How an interface is opened.
#[derive(Clone, Debug)]
pub struct AfXdpOptions {
    /// Slots of each ring, per receive queue; a power of two, 64..=16384. A port lends the kernel
    /// up to twice as many buffers per queue.
    pub ring: u32,
    /// How many buffers wait in the rings of all receive queues of this port together, at most:
    /// with several queues rings are shortened to fit, but not below 64 slots. `None`: `ring` for
    /// each, whatever that leaves in the pool for anything else.
    pub buffers: Option<usize>,
    /// Only the driver's own hook, with an error where the driver has none. Otherwise the generic
    /// hook is the second choice.
    pub native_only: bool,
    /// How many receive queues the interface is expected to have; an error if it has another
    /// number. `None`: however many there are.
    pub queues: Option<u32>,
    /// The kernel stamps one in so many frames; a power of two, 1..=64. The others count as arrived
    /// with the stamped one before them, or when their queue was last found empty, whichever is
    /// later: as good as a stamp for a port that is asked all the time, and cheaper for the sender.
    pub stamp_every: u32,
    /// Frames are fetched from the driver in the calls of this port, and not by interrupts, as long
    /// as these [wait](crate::deferral::Deferral) (`SO_PREFER_BUSY_POLL`, Linux 5.11). What has
    /// not been fetched lies in the driver's ring, which [`Port::rx_waiting`] does not see, and
    /// has no stamp yet.
    ///
    /// [`Port::rx_waiting`]: crate::port::Port::rx_waiting
    pub busy_poll: bool,
    /// The kernel gets the frames of a worker that does not beat. `None`: they wait for it.
    pub heart: Option<Arc<Heartbeat>>,
    /// Frames that come here whatever their destination is. `None`: what is sent to all stations
    /// is the kernel's.
    pub own: Option<OwnFrames>,
}

/// Frames of a protocol that the router itself speaks.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct OwnFrames {
    /// The VLAN of their tag; 0: they have none. Where an interface takes tags away, one without a
    /// tag is taken for one of this VLAN, and gets it back.
    pub vlan: u16,
    /// Their Ethertype, or the one after it.
    pub ethertype: u16,
}

impl OwnFrames {
    /// Gives a frame the tag back that the interface took away.
    #[inline(always)] // as `Queue::adopt`
    pub(super) fn restore(self, pool: &mut FramePool, frame: &mut Frame) {
        let kind = pool.bytes(frame).get(12..14).map(|two| u16::from_be_bytes([two[0], two[1]]));
        let bare = kind.is_some_and(|kind| kind.wrapping_sub(self.ethertype) < 2);
        if self.vlan > 0 && bare && pool.prepend(frame, &[0; TAG]) {
            let bytes = pool.bytes_mut(frame);
            bytes.copy_within(TAG..TAG + 12, 0);
            bytes[12..14].copy_from_slice(&0x8100_u16.to_be_bytes());
            bytes[14..16].copy_from_slice(&self.vlan.to_be_bytes());
        }
    }
}

impl Default for AfXdpOptions {
    fn default() -> Self {
        Self {
            ring: 2048,
            buffers: None,
            native_only: false,
            queues: None,
            stamp_every: 1,
            busy_poll: false,
            heart: None,
            own: None,
        }
    }
}

impl AfXdpOptions {
    /// [`stamp_every`](Self::stamp_every) of a port that is asked all the time.
    pub const STAMP_WHEN_POLLED: u32 = 16;

    /// Slots of each ring with so many queues.
    #[must_use]
    pub fn ring_of(&self, queues: usize) -> u32 {
        let each = self.buffers.map_or(usize::MAX, |all| all / queues.max(1));
        let fits = 1 << each.clamp(64, self.ring as usize).ilog2();
        self.ring.min(fits)
    }

    pub(super) fn check(&self) -> Result<(), PortError> {
        for (knob, value, valid, range) in [
            ("ring", self.ring, 64..=16_384, "a power of two, 64 to 16384"),
            ("stamp_every", self.stamp_every, 1..=64, "a power of two, 1 to 64"),
        ] {
            if !(value.is_power_of_two() && valid.contains(&value)) {
                return Err(PortError::OutOfRange { knob, value: u64::from(value), range });
            }
        }
        Ok(())
    }
}

/// What the driver took.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct XdpMode {
    /// The program runs in the driver; else in the generic hook behind it.
    pub native: bool,
    /// The driver reads and writes the buffers itself; else the kernel copies each frame once.
    pub zero_copy: bool,
    /// Frames longer than a buffer come and go in pieces.
    pub pieces: bool,
    /// Whether the port's calls do the driver's work, or would, if the kernel knew by which
    /// instance of NAPI the frames of this driver come; `None`: they are not
    /// [to](AfXdpOptions::busy_poll).
    pub polls: Option<bool>,
    /// Receive queues of this port, a socket for each.
    pub queues: u32,
    /// Receive queues of the interface: more if other workers' ports have the rest.
    pub of: u32,
}

impl std::fmt::Display for XdpMode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let hook = if self.native { "native" } else { "generic" };
        let copy = if self.zero_copy { "zero-copy" } else { "copy" };
        let poll = match self.polls {
            None => "",
            Some(true) => ", busy polling",
            Some(false) => ", no busy polling (no NAPI instance known)",
        };
        let pieces = if self.pieces { ", long frames in pieces" } else { "" };
        write!(f, "AF_XDP, {hook}, {copy}{poll}{pieces}, {}", self.queues)?;
        if self.queues < self.of {
            write!(f, " of {}", self.of)?;
        }
        write!(f, " receive queue{}", if self.of == 1 { "" } else { "s" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rings_of_several_queues_leave_buffers_in_the_pool() {
        let of =
            |buffers, queues| AfXdpOptions { buffers, ..AfXdpOptions::default() }.ring_of(queues);
        assert_eq!((of(None, 16), of(Some(2048), 1), of(Some(100_000), 4)), (2048, 2048, 2048));
        assert_eq!(
            (of(Some(2048), 2), of(Some(2048), 3), of(Some(100), 4), of(Some(0), 0)),
            (1024, 512, 64, 64)
        );
    }
}
