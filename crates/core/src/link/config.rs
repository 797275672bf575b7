//! What a link is told to be, and the ranges it must lie in.

use crate::out_of_range::{OutOfRange, within};
use crate::shape::ShaperConfig;
use crate::units::{BitRate, Bytes, Nanos};

/// When the transmit ring is filled again.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Refill {
    /// Whenever a slot is free; a slot is free as soon as its packet has left the wire.
    #[default]
    AnySlot,
    /// All slots become free together, when the last packet of the ring has left the wire. So a ring that was filled is not
    /// filled again until all of it has been sent: what network cards of the 1990s did that interrupt once per batch.
    WholeRing,
}

/// The ring between scheduler and wire.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct RingConfig {
    /// How many packets it holds, the one on the wire included: 1 to 4096.
    pub slots: u32,
    /// When it is filled again.
    pub refill: Refill,
}

impl Default for RingConfig {
    /// Two slots: the wire never waits for the scheduler, and almost nothing is out of its hands.
    fn default() -> Self {
        Self { slots: 2, refill: Refill::AnySlot }
    }
}

/// What a link is told to be.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct LinkConfig {
    /// Bits per second of the wire, 1 kbit/s to 1 Tbit/s. `None`: not paced, packets leave while the port has room, and the
    /// ring is not used.
    pub rate: Option<BitRate>,
    /// The transmit ring.
    pub ring: RingConfig,
    /// How long one scheduler call takes: 0 to 1 ms. The next one starts that much later.
    pub dequeue_time: Nanos,
    /// A shaper between scheduler and ring: rate 1 kbit/s to 1 Tbit/s, burst 64 bytes to 1 GB.
    pub shaper: Option<ShaperConfig>,
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

    /// A paced link with the default ring.
    #[must_use]
    pub fn paced(rate: BitRate) -> Self {
        Self { rate: Some(rate), ..Self::default() }
    }

    /// Whether every value lies in its range.
    ///
    /// # Errors
    /// [`OutOfRange`] for the first that does not.
    pub fn check(&self) -> Result<(), OutOfRange> {
        let rates = (Self::MIN_RATE.0, Self::MAX_RATE.0, "bit/s");
        if let Some(rate) = self.rate {
            within("rate", rate.0, rates)?;
        }
        within("slots", u64::from(self.ring.slots), (1, u64::from(Self::MAX_SLOTS), "packets"))?;
        within("dequeue_time", self.dequeue_time.0, (0, Self::MAX_DEQUEUE_TIME.0, "ns"))?;
        if let Some(shaper) = self.shaper {
            within("shaper.rate", shaper.rate.0, rates)?;
            within("shaper.burst", shaper.burst.0, (Self::MIN_BURST.0, Self::MAX_BURST.0, "bytes"))?;
        }
        Ok(())
    }
}
