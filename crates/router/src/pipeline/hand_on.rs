//! Packets for links that are the first worker's are handed to it by the others.
//!
//! What schedules a link as a whole (a tree of subscribers, LCT-UC, a dynamic control, a shaper, a
//! limit per user) is in one place, and is exact there. The others receive, classify and route,
//! and hand over copies of packets: in batches, one in each of their rounds, in the form in which
//! they go to another process ([`pass_on`](super::pass_on)). The first worker takes them before
//! what it has received itself. Packets of one flow come by one worker, so their order stays.
//!
//! **Bounds.** A worker has eight batches under way at most, and keeps back another
//! [`MOST`] packets; what comes then is lost and counted (`handed_lost`), as at a ring that is
//! full. What is under way is nobody's: `handed_on − handed_in − handed_lost`, over all workers.
//!
//! **Sleep.** Whoever hands over wakes the first worker if that sleeps.
//!
//! The subscriber that a packet was found to be of is told by its place in the list, which is the
//! same for all workers as long as they have carried out the same commands; else it is looked for
//! again, by address.

use evenkeel_core::Nanos;
use evenkeel_core::admit::Pin;
use evenkeel_core::schedule::tree::UNKNOWN;
use evenkeel_ports::parcel::Parcel;
use evenkeel_ports::sys::Notifier;

use super::Pipeline;
use super::hand::Hand;
use super::names::Names;
use super::packet::QueuedPacket;
use crate::handing::MOST;

impl Pipeline {
    /// Hands a packet for the link of `port` to the first worker.
    #[cold]
    pub(super) fn hand_on(&mut self, port: usize, queued: QueuedPacket, pin: Pin) {
        let count = &mut self.ports[port].count;
        count.handed_on += 1;
        let hand = self.hand.as_mut().filter(|hand| hand.pending.packets < MOST);
        let Some(Hand { pending, commands, .. }) = hand else {
            count.handed_lost += 1;
            return self.pool.release(queued.into_frame());
        };
        if pending.packets == 0 {
            pending.commands = *commands;
        }
        let subscriber = if pending.commands == *commands { queued.subscriber } else { UNKNOWN };
        pending.packets += 1;
        let parcel = &mut pending.parcel;
        parcel.put(port as u64 | u64::from(subscriber) << 32);
        parcel.put(u64::from(pin.next_hop) | u64::from(pin.ttl) << 8);
        queued.pass_on(&self.pool, parcel);
        self.pool.release(queued.into_frame());
    }

    /// What was handed on in this round is on its way now, if there is room.
    pub(super) fn flush_handed(&mut self) {
        let Some(hand) = self.hand.as_mut().filter(|hand| hand.pending.packets > 0) else { return };
        let (Ok(batch) | Err(batch)) = hand.handing.put(std::mem::take(&mut hand.pending));
        hand.pending = batch;
    }

    /// What wakes this worker when others have handed something on.
    pub(crate) fn set_waker(&self, waker: &Notifier) {
        if let Some(hand) = self.hand.as_ref().filter(|hand| hand.takes) {
            hand.handing.set_waker(waker);
        }
    }

    /// This worker wants to sleep. `false`: others have handed something on.
    pub(crate) fn may_sleep(&self) -> bool {
        let takes = self.hand.as_ref().filter(|hand| hand.takes);
        takes.is_none_or(|hand| hand.handing.may_sleep())
    }

    /// It has slept.
    pub(crate) fn is_awake(&self) {
        if let Some(hand) = self.hand.as_ref().filter(|hand| hand.takes) {
            hand.handing.is_awake();
        }
    }

    /// Takes what other workers have handed on, as having arrived when it came to them; how many
    /// packets.
    pub(crate) fn take_handed(&mut self, now: Nanos) -> usize {
        let Some(hand) = self.hand.as_mut().filter(|hand| hand.takes) else { return 0 };
        let Some(names) = hand.names.take() else { return 0 };
        let mut all = 0;
        while let Some(mut batch) = self.hand.as_ref().and_then(|hand| hand.handing.take()) {
            let commands = self.hand.as_ref().map_or(0, |hand| hand.commands);
            all += batch.packets;
            for _ in 0..std::mem::take(&mut batch.packets) {
                let knows = batch.commands == commands;
                self.take_one(now, &mut batch.parcel, &names, knows);
            }
            batch.parcel.clear();
            if let Some(hand) = &self.hand {
                hand.handing.give_back(batch);
            }
        }
        if let Some(hand) = &mut self.hand {
            hand.names = Some(names);
        }
        all
    }

    fn take_one(&mut self, now: Nanos, parcel: &mut Parcel, names: &Names, knows: bool) {
        // What workers of this process put in is whole.
        let (Ok(place), Ok(pin)) = (parcel.take(), parcel.take()) else { return };
        let port = place as u32 as usize;
        let pin = Pin { next_hop: pin as u8, ttl: (pin >> 8) as u8 };
        let Ok(Ok(mut queued)) = self.take_packet(parcel, names, Some(port)) else {
            self.ports[port].count.handed_lost += 1;
            return;
        };
        let subscriber = (place >> 32) as u32;
        if knows && subscriber != UNKNOWN {
            queued.subscriber = subscriber;
        }
        self.ports[port].count.handed_in += 1;
        let arrival = queued.arrival.min(now);
        self.enqueue_at(port, queued, pin, arrival);
    }
}
