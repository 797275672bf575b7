//! Packets that pass a link one after the other, counted together.

use crate::packet::{Class, Packet};
use crate::units::{Bytes, Nanos};

/// Classes whose packets are counted together: the first ones. Those of others are counted one by
/// one.
const CLASSES: usize = 8;

/// Packets that have left a link as soon as they came, and of which its meters do not know yet.
#[derive(Debug, Default)]
#[must_use = "what is not counted is missing in the meters"]
pub struct Run {
    is_open: bool,
    passed: [Together; CLASSES],
}

/// What the meters are told of the packets of a class.
#[derive(Clone, Copy, Debug, Default)]
struct Together {
    packets: u64,
    bytes: Bytes,
}

impl Run {
    /// Packets that come now are of a run, the first of which is counted.
    #[inline]
    pub(crate) fn begin(&mut self) {
        self.is_open = true;
    }

    /// Whether a packet that would leave at `at` can be counted with these.
    #[inline]
    pub(crate) fn takes(&self, at: Nanos, packet: &impl Packet) -> bool {
        self.is_open && at <= packet.arrival() && Self::takes_kind(packet)
    }

    /// Whether such packets are counted together.
    #[inline]
    pub fn takes_kind(packet: &impl Packet) -> bool {
        packet.class().index() < CLASSES && packet.segments() == 1
    }

    /// Adds a packet that it [takes](Self::takes).
    #[inline]
    pub(crate) fn add(&mut self, packet: &impl Packet) {
        let passed = &mut self.passed[packet.class().index() % CLASSES];
        passed.packets += 1;
        passed.bytes += packet.ip_len();
    }

    /// Ends it: gives packets and their IP bytes, by class.
    #[inline]
    pub(crate) fn end(&mut self, mut tell: impl FnMut(Class, u64, Bytes)) {
        if !core::mem::take(&mut self.is_open) {
            return;
        }
        for (passed, class) in self.passed.iter_mut().zip(0..) {
            if passed.packets > 0 {
                let Together { packets, bytes } = core::mem::take(passed);
                tell(Class(class), packets, bytes);
            }
        }
    }
}
