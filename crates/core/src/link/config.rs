//! What a link is told to be, and the ranges it must lie in.

use super::framing::FramingConfig;
use crate::shape::ShaperConfig;
use crate::units::{BitRate, Bytes, Nanos};
use crate::{settings, words};

words! {
    /// When the transmit ring is filled again.
    pub enum Refill {
        /// Whenever a slot is free; a slot is free as soon as its packet has left the wire.
        #[default]
        AnySlot = "any",
        /// All slots become free together, when the last packet of the ring has left the wire. So a
        /// ring that was filled is not filled again until all of it has been sent: what network
        /// cards of the 1990s did that interrupt once per batch.
        WholeRing = "whole",
        /// As `whole`, and packets that arrive during a refill wait until it is over, as behind the
        /// masked interrupts of FreeBSD 2.2; matters with a `dequeue_time`.
        WholeRingBlocking = "whole-blocking",
    }
}

settings! {
    /// What is in the ring is out of the scheduler's hands: a ring that is large against the
    /// queues, refilled as a whole, keeps any work-conserving discipline from telling classes
    /// apart. With two slots the wire never waits for the scheduler, and almost nothing is out of
    /// its hands.
    #[derive(Copy, Eq)]
    pub struct RingConfig: "ring = { … }" {
        /// How many packets it holds, the one on the wire included.
        live slots: u32 = 2, in 1..=LinkConfig::MAX_SLOTS, counting "packets";
        /// When it is filled again.
        live refill: Refill = Refill::AnySlot;
    }
}

settings! {
    /// What a link is told to be.
    #[derive(Copy, Eq)]
    pub struct LinkConfig: "" {
        /// The rate of the line, with everything that it adds to a packet (`overhead`: Ethernet's
        /// 38 bytes by default). Set it a little below the real one, or queues build up behind the
        /// router, out of its hands.
        live rate: Option<BitRate> = None, in LinkConfig::MIN_RATE.0..=LinkConfig::MAX_RATE.0,
            absent "unpaced: as fast as the port takes frames, and the ring is not used";
        /// The transmit ring between scheduler and wire. Used on links with a rate.
        live ring: RingConfig = RingConfig::default();
        /// How long one scheduler call takes while the ring is refilled; the next starts that much
        /// later. For reproducing slow machines.
        reload dequeue_time: Nanos = Nanos::ZERO, in 0..=LinkConfig::MAX_DEQUEUE_TIME.0;
        /// A token bucket between scheduler and ring.
        reload shaper: Option<ShaperConfig> = None, absent "none";
    }
    parts {
        /// What the line adds to a packet.
        framing: FramingConfig,
    }
}

impl LinkConfig {
    /// Slowest rate of a wire or shaper.
    pub const MIN_RATE: BitRate = BitRate(1_000);
    /// Fastest rate of a wire or shaper.
    pub const MAX_RATE: BitRate = BitRate(1_000_000_000_000);
    /// Most slots of a ring.
    pub const MAX_SLOTS: u32 = 4096;
    /// Longest time of a scheduler call.
    pub const MAX_DEQUEUE_TIME: Nanos = Nanos(1_000_000);
    /// Smallest burst of a shaper.
    pub const MIN_BURST: Bytes = Bytes(64);
    /// Largest burst of a shaper.
    pub const MAX_BURST: Bytes = Bytes(1_000_000_000);
    /// Most classes of a link.
    pub const MAX_CLASSES: u16 = 1024;

    /// What goes through at most: of wire and shaper the slower.
    #[must_use]
    pub fn slowest(&self) -> Option<BitRate> {
        self.rate.into_iter().chain(self.shaper.map(|shaper| shaper.rate)).min()
    }

    /// Whether it has no wire, no shaper, and scheduler calls that take no time.
    pub(super) fn is_straight(&self) -> bool {
        self.rate.is_none() && self.shaper.is_none() && self.dequeue_time == Nanos::ZERO
    }

    /// A paced link with the default ring.
    #[must_use]
    pub fn paced(rate: BitRate) -> Self {
        Self { rate: Some(rate), ..Self::default() }
    }
}
