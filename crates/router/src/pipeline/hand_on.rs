//! Packets for links that are the first worker's are handed to it by the others.
//!
//! What schedules a link as a whole (a tree of subscribers, LCT-UC, a dynamic control, a shaper, a
//! limit per user) is in one place, and is exact there. The others receive, classify and route,
//! and hand over copies of packets: in batches, one in each of their rounds. The first worker takes
//! them before what it has received itself. Packets of one flow come by one worker, so their order
//! stays.
//!
//! **Bounds.** There are nine batches for each worker but the first, of 1,024 packets each, which
//! are allocated at the start. When all are under way or full, what comes then is lost and counted
//! (`handed_lost`), as at a ring that is full. What is under way is nobody's:
//! `handed_on − handed_in − handed_lost`, over all workers.
//!
//! A cluster's forwarder is the first worker as well: the others hand it what is for its links, and
//! frames of the exchange that came to them.
//!
//! What others meet that was sent by such a link and has come back goes along (see `line.rs`), as
//! much of it as there is room for.
//!
//! **Sleep.** Whoever hands over wakes the first worker if that sleeps.
//!
//! The subscriber that a packet was found to be of is told by its place in the list, which is the
//! same for all workers as long as they have carried out the same commands; else it is looked for
//! again, by address.

use evenkeel_core::Nanos;
use evenkeel_core::admit::Pin;
use evenkeel_core::packet::Places;
use evenkeel_core::schedule::tree::UNKNOWN;
use evenkeel_ports::Frame;
use evenkeel_ports::sys::Notifier;

use super::Pipeline;
use super::packet::{Acks, PacketRecord};
use crate::handing::{Handed, HandedPacket, Taker};

impl Pipeline {
    /// Whether it is the first worker, or the only one.
    pub(super) fn is_first(&self) -> bool {
        self.hand.as_ref().is_none_or(|hand| hand.takes)
    }

    /// Hands a packet for the link of `port`, or for one of the cluster's, to the first worker.
    #[inline(never)] // so that who hands nothing on does not pay for it
    pub(super) fn hand_on(&mut self, port: usize, taker: Taker, queued: PacketRecord, pin: Pin) {
        let count = &mut self.ports[port].count;
        count.handed_on += 1;
        let bytes = self.pool.bytes(&queued.frame);
        let packet = HandedPacket {
            taker,
            port: queued.port,
            pin,
            class: queued.class,
            flow: queued.flow,
            flow_hash: queued.flow_hash,
            arrival: queued.arrival,
            ip_len: queued.ip_len,
            wire_len: queued.wire_len,
            subscriber: queued.subscriber,
            originated: queued.originated,
            ecn: queued.ecn,
            marked: queued.marked,
            frame: self.pool.known(&queued.frame),
        };
        let frame_len = bytes.len() as u32;
        let handed = Handed { port: port as u16, frame_len, packet: Some(packet) };
        let goes = self.hand.as_mut().is_some_and(|hand| hand.put(handed, bytes));
        count.handed_lost += u64::from(!goes);
        self.pool.release(queued.frame);
    }

    /// Hands a frame of the exchange, which came by a port, to the first worker. One that finds no
    /// room is lost, as on the wire.
    pub(super) fn hand_exchange_on(&mut self, port: usize, frame: &Frame) {
        let bytes = self.pool.bytes(frame);
        let handed = Handed { port: port as u16, frame_len: bytes.len() as u32, packet: None };
        if let Some(hand) = &mut self.hand {
            hand.put(handed, bytes);
        }
    }

    /// What was handed on in this round is on its way now, if there is room.
    pub(crate) fn flush_handed(&mut self) {
        if let Some(hand) = self.hand.as_mut().filter(|hand| !hand.pending.is_empty()) {
            hand.flush();
        }
    }

    /// Nobody takes any more what is pending: it is lost.
    pub(super) fn lose_handed(&mut self) {
        let Some(hand) = &mut self.hand else { return };
        for (handed, _) in hand.pending.packets().filter(|(handed, _)| handed.packet.is_some()) {
            self.ports[usize::from(handed.port)].count.handed_lost += 1;
        }
        hand.pending.clear();
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
    #[inline]
    pub(crate) fn take_handed(&mut self, now: Nanos) -> usize {
        if self.hand.is_none() { 0 } else { self.take_batches(now) }
    }

    fn take_batches(&mut self, now: Nanos) -> usize {
        let mut all = 0;
        while let Some(hand) = self.hand.as_ref().filter(|hand| hand.takes)
            && let Some(mut batch) = hand.handing.take()
        {
            let knows = batch.commands == hand.commands;
            self.take_answers(batch.answers());
            batch.packets().for_each(|(handed, bytes)| self.take_one(now, handed, bytes, knows));
            all += batch.len();
            batch.clear();
            if let Some(hand) = &self.hand {
                hand.handing.give_back(batch);
            }
        }
        all
    }

    /// `knows`: places of subscribers are those of this worker.
    fn take_one(&mut self, now: Nanos, handed: &Handed, bytes: &[u8], knows: bool) {
        let port = usize::from(handed.port);
        let Some(handed) = &handed.packet else {
            return self.receive_exchange(now, bytes);
        };
        let Some(frame) = self.pool.alloc_known(&handed.frame, bytes) else {
            self.ports[port].count.handed_lost += 1;
            return;
        };
        self.ports[port].count.handed_in += 1;
        let &HandedPacket { flow, flow_hash, arrival, ip_len, wire_len, class, .. } = handed;
        let &HandedPacket { port: leaves, originated, ecn, marked, pin, .. } = handed;
        let subscriber = if knows { handed.subscriber } else { UNKNOWN };
        let queued = PacketRecord {
            frame,
            flow,
            flow_hash,
            arrival,
            ip_len,
            wire_len,
            subscriber,
            queue_place: Places::NOWHERE,
            class,
            port: leaves,
            originated,
            ecn,
            marked,
            acks: Acks::default(),
        };
        match handed.taker {
            Taker::Link => self.enqueue_at(port, queued, pin, arrival.min(now)),
            Taker::SecondLink => self.enter_second(port, queued, arrival.min(now)),
            Taker::Cluster(link) => self.queue_for_cluster(link, queued),
        }
    }
}
