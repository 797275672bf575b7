//! The transmit ring: a bounded queue between scheduler and wire.

use alloc::collections::VecDeque;

use super::{Refill, RingConfig};

/// Packets that the scheduler has given and that have not left the wire; the first one is on it.
#[derive(Debug)]
pub(super) struct Ring<P> {
    packets: VecDeque<P>,
    config: RingConfig,
    /// Slots taken. With [`Refill::WholeRing`] slots of packets that were sent stay taken until the
    /// ring is empty.
    used: u32,
}

impl<P> Ring<P> {
    pub(super) fn new(config: RingConfig) -> Self {
        Self { packets: VecDeque::with_capacity(config.slots as usize), config, used: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.packets.len()
    }

    pub(super) fn front(&self) -> Option<&P> {
        self.packets.front()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &P> {
        self.packets.iter()
    }

    pub(super) fn has_slot(&self) -> bool {
        self.used < self.config.slots
    }

    /// Takes a packet; the caller has seen that there is a slot.
    pub(super) fn push(&mut self, packet: P) {
        self.used += 1;
        self.packets.push_back(packet);
    }

    /// The first packet has been sent. Says whether that set slots free.
    pub(super) fn pop(&mut self) -> Option<(P, bool)> {
        let packet = self.packets.pop_front()?;
        let freed = match self.config.refill {
            Refill::AnySlot => {
                self.used -= 1;
                true
            }
            Refill::WholeRing | Refill::WholeRingBlocking => {
                let empty = self.packets.is_empty();
                if empty {
                    self.used = 0;
                }
                empty
            }
        };
        Some((packet, freed))
    }

    /// Takes both packets of a ring that has two slots, each free as soon as its packet has left,
    /// and is full. They are to be [pushed](Self::push) again, or others for them.
    #[inline]
    pub(super) fn take_pair(&mut self) -> Option<(P, P)> {
        let usual = RingConfig { slots: 2, refill: Refill::AnySlot };
        if self.config != usual || self.packets.len() != 2 {
            return None;
        }
        self.used = 0;
        self.packets.pop_front().zip(self.packets.pop_front())
    }

    /// Changes size and rule. What is in the ring stays, also if there is more of it than slots.
    pub(super) fn reconfigure(&mut self, config: RingConfig) {
        let wanted = config.slots as usize;
        self.packets.reserve(wanted.saturating_sub(self.packets.len()));
        if config.refill != self.config.refill {
            self.used = self.packets.len() as u32;
        }
        self.config = config;
    }
}
