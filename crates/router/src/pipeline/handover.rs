//! A pipeline that takes the place of another one while the router runs: for changes that no pipeline can live through, as of its ports, its
//! classes, its frame buffers, or of how many workers there are.
//!
//! **Why a new one.** Ports are numbered, and the numbers are everywhere: in every next hop of the forwarding table, in neighbours, in the mirror. So
//! ports that come and go would either leave holes, which every loop must step over and which must not be filled before the last event about their former owner has
//! been read by every worker, or be renumbered in a table of a million routes. A new pipeline is built from the new configuration and filled
//! by a mirror of its own, both beside the one that forwards; then it takes over, by name, what only the old one has. That takes as long
//! as there are queues, not routes, and there is one way for every change.
//!
//! | of the old pipeline | goes to |
//! |---|---|
//! | a port's counters, queue, ring, transmit queue | the port of the same name and interface |
//! | … of a port that is no more | dropped as [`Reason::LinkDown`], counted; its counters go on in [`Snapshot::removed`](crate::Snapshot) |
//! | control and admission of a link | the link, if its discipline stays; protected flows also if it does not |
//! | a class's counters and packets | the class of the same name; of a class that is no more: the first one |
//! | packets that wait for a neighbour | looked up anew; of a port that is no more: dropped as [`Reason::LinkDown`] |
//! | state of services (sequence numbers of tunnels) | the service of the same settings |
//! | frame buffers | stay, or every frame that is held is copied: [`Buffers`] |
//!
//! **Order.** What a link holds leaves in the order in which it came. A flow that belongs to another worker from now on may be overtaken once by what that worker
//! receives: who receives which flow is decided by the kernel or the hardware, and nobody can ask them.
//!
//! **Conservation.** Every identity of the [pipeline](super) holds before and after, with `removed` as one more port and link.

use std::collections::VecDeque;

use evenkeel_core::link::{LinkSink, Translate};
use evenkeel_core::measure::Tally;
use evenkeel_core::{Class, Nanos, Reason};
use evenkeel_ports::{Frame, FramePool, PortCounters};

use super::egress::{Egress, TX_QUEUE};
use super::forward::Packet;
use super::packet::QueuedPacket;
use super::{Pipeline, PortSlot};
use crate::snapshot::{LinkSnapshot, RemovedSnapshot};

/// Where the frames are after a pipeline has taken the place of another.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Buffers {
    /// Where they were: the new pipeline takes the old one's pool, which must be of the size that its configuration asks for.
    Kept,
    /// In the pool of the new pipeline, which has room or not: what has none is dropped as [`Reason::NoBuffer`].
    Copied,
}

/// Makes packets of the old pipeline ones of the new.
struct Translator<'a> {
    /// By class of the old one.
    classes: &'a [Class],
    /// Where frames are copied from; `None`: they stay where they are.
    from: Option<&'a FramePool>,
    to: &'a mut FramePool,
}

impl Translator<'_> {
    /// The frame in the new pool. `None`: there is no room for it.
    fn frame(&mut self, frame: Frame) -> Result<Frame, Frame> {
        let Some(from) = self.from else { return Ok(frame) };
        let Some(mut copy) = self.to.alloc_from(from.bytes(&frame)) else { return Err(frame) };
        copy.set_partial_checksum(frame.partial_checksum());
        // The buffer of the original goes with its pool.
        Ok(copy)
    }
}

impl Translate<QueuedPacket> for Translator<'_> {
    fn class(&self, class: Class) -> Class {
        self.classes.get(class.index()).copied().unwrap_or_default()
    }

    fn packet(&mut self, mut packet: QueuedPacket) -> Result<QueuedPacket, (QueuedPacket, Reason)> {
        packet.class = self.class(packet.class);
        match self.frame(packet.frame) {
            Ok(frame) => Ok(QueuedPacket { frame, ..packet }),
            Err(frame) => Err((QueuedPacket { frame, ..packet }, Reason::NoBuffer)),
        }
    }
}

/// Frames that leave a link while it changes hands: the pool is in use for the frames that stay.
#[derive(Default)]
struct HandoverSink {
    sent: VecDeque<Frame>,
    dropped: Vec<Frame>,
}

impl LinkSink<QueuedPacket> for HandoverSink {
    /// A link without a rate sends with its next round.
    fn room(&self) -> usize {
        0
    }

    fn transmitted(&mut self, _at: Nanos, packet: QueuedPacket) {
        self.sent.push_back(packet.into_frame());
    }

    fn dropped(&mut self, _at: Nanos, packet: QueuedPacket, _reason: Reason) {
        // The link's meters have counted it.
        self.dropped.push(packet.into_frame());
    }
}

impl Pipeline {
    /// The interface of a port is given up, or opened anew: what its device had counted goes on to be counted. Before [`Pipeline::take_over`] of the pipeline that
    /// takes this one's place.
    pub fn port_closed(&mut self, name: &str, counted: &PortCounters) {
        if let Some(slot) = self.ports.iter_mut().find(|slot| slot.name == name) {
            slot.before.add(counted);
        }
    }

    /// Frames that a port handed over before it is given up go their way.
    pub fn forward_received(
        &mut self,
        now: Nanos,
        at: usize,
        frames: impl Iterator<Item = evenkeel_ports::RxFrame>,
    ) {
        self.meter.round_begins();
        for (order, received) in frames.enumerate() {
            let packet = Packet::received(evenkeel_net::PortIndex(at as u16), order as u32, received);
            self.inbox.push(Packet { arrival: packet.arrival.min(now), ..packet });
        }
        self.forward_inbox();
    }

    /// Takes the place of `old` at `now`: by name, as far as it has the same ports, classes and services. This pipeline has been built from the configuration that is to be, has its tables, and has
    /// received nothing yet. With buffers that are copied it may take the place of several, one after the other.
    pub fn take_over(&mut self, now: Nanos, mut old: Self, buffers: Buffers) {
        let mut left = std::mem::replace(&mut old.pool, FramePool::new(0));
        if buffers == Buffers::Kept {
            std::mem::swap(&mut self.pool, &mut left);
        }
        let kept = buffers == Buffers::Kept;
        let classes: Vec<Class> = old.class_names.iter().map(|name| self.class_called(name)).collect();
        let same_classes = self.class_names == old.class_names;

        self.started = self.started.min(old.started);
        self.advanced = self.advanced.max(old.advanced);
        self.last_round = old.last_round;
        self.meter.take_over(&old.meter, &classes);
        self.services.take_over(old.services);
        self.routing.take_over(&old.routing);
        if let (Some(mine), Some(theirs)) = (&mut self.fairdrop, &old.fairdrop) {
            mine.counts_from_other(theirs, &classes);
        }
        if self.flows.lists == old.flows.lists {
            self.lists = old.lists;
        }
        if let Some(removed) = old.removed {
            self.removed.get_or_insert_default().add(&removed);
        }

        let places: Vec<Option<usize>> = old.ports.iter().map(|slot| self.place_of(slot)).collect();
        let mut waiting = Vec::new();
        old.neighbours.drain(|packet| {
            let count = &mut old.ports[packet.port.index()].count;
            let (waits, dropped) = if packet.originated {
                (&mut count.counts.originated_waiting, &mut count.originated_dropped)
            } else {
                (&mut count.counts.waiting, &mut count.dropped)
            };
            *waits -= 1;
            match places[packet.port.index()] {
                Some(place) => waiting.push((place, packet)),
                None => {
                    dropped[Reason::LinkDown.index()] += 1;
                    if kept {
                        self.pool.release(packet.frame);
                    }
                }
            }
        });
        for ((mut slot, config), place) in old.ports.into_iter().zip(old.links).zip(places) {
            let from = if kept { None } else { Some(&mut left) };
            let Some(at) = place else {
                self.remove(now, slot, &old.class_names, from);
                continue;
            };
            let mine = &mut self.ports[at];
            mine.count.add(&slot.count);
            mine.before.add(&slot.before);
            if kept && same_classes && self.shares.is_none() && old.shares.is_none() {
                // The link itself goes on: nobody can tell that anything has changed.
                (mine.link, mine.control, mine.admission, mine.tx) =
                    (slot.link, slot.control, slot.admission, slot.tx);
                let wanted = std::mem::replace(&mut self.links[at], config);
                // What the new pipeline could be built with is in range.
                let _ = self.reconfigure(now, at, wanted);
            } else {
                let mut translator = Translator { classes: &classes, from: None, to: &mut self.pool };
                let handover = {
                    let (tx, tx_dropped) = (&mut slot.tx, &mut slot.count.tx_dropped);
                    let pool = if kept { &mut *translator.to } else { &mut left };
                    let before = *tx_dropped;
                    let handover =
                        slot.link.hand_over(now, &mut Egress { pool, tx, room: slot.room, tx_dropped });
                    for (mine, (after, before)) in
                        mine.count.tx_dropped.iter_mut().zip(tx_dropped.iter().zip(before))
                    {
                        *mine += after - before;
                    }
                    handover
                };
                translator.from = (!kept).then_some(&left);
                let mut leaving = HandoverSink::default();
                mine.link.take_over(now, handover, &mut translator, &mut leaving);
                for frame in slot.tx.drain(..) {
                    match translator.frame(frame) {
                        Ok(frame) => mine.tx.push_back(frame),
                        Err(_gone) => mine.count.tx_dropped[Reason::NoBuffer.index()] += 1,
                    }
                }
                mine.tx.extend(leaving.sent);
                for frame in leaving.dropped {
                    if self.pool.owns(&frame) {
                        self.pool.release(frame);
                    }
                }
                self.take_over_admission(now, at, slot.admission);
            }
            self.settle(now, at);
        }
        for (place, packet) in waiting {
            let mut translator =
                Translator { classes: &classes, from: (!kept).then_some(&left), to: &mut self.pool };
            match translator.frame(packet.frame) {
                Ok(frame) => {
                    let port = evenkeel_net::PortIndex(place as u16);
                    self.route(Packet { frame, port, ..packet }, now);
                }
                Err(_gone) => {
                    let count = &mut self.ports[place].count;
                    let dropped =
                        if packet.originated { &mut count.originated_dropped } else { &mut count.dropped };
                    dropped[Reason::NoBuffer.index()] += 1;
                }
            }
        }
    }

    /// The class of this name; the first one if there is none.
    fn class_called(&self, name: &str) -> Class {
        let place = self.class_names.iter().position(|known| known == name);
        Class(place.unwrap_or(0) as u16)
    }

    /// Where a port of another pipeline is in this one.
    fn place_of(&self, slot: &PortSlot) -> Option<usize> {
        self.ports.iter().position(|mine| mine.name == slot.name && mine.interface == slot.interface)
    }

    /// A port that is no more: what waits for it is dropped, what it has counted is kept. `from`: its pool, if that is not this pipeline's.
    fn remove(&mut self, now: Nanos, mut slot: PortSlot, classes: &[String], from: Option<&mut FramePool>) {
        let pool = from.unwrap_or(&mut self.pool);
        let (link, mut egress) = slot.outgoing(pool);
        link.drain(now, Reason::LinkDown, &mut egress);
        slot.discard_sent(pool, Reason::LinkDown);
        let removed = RemovedSnapshot {
            ports: 1,
            port: slot.view(&PortCounters::default()),
            // Who might enter it is nobody's business any more.
            link: LinkSnapshot { admission: None, ..slot.link_view(classes) },
        };
        self.removed.get_or_insert_default().add(&removed);
    }

    /// Who may enter the link at `at` is who might before; the scheduler's meters begin anew.
    fn take_over_admission(
        &mut self,
        now: Nanos,
        at: usize,
        known: Option<Box<evenkeel_core::admit::Admission>>,
    ) {
        let mine = &mut self.ports[at].admission;
        if let (Some(fresh), Some(mut known)) = (mine.as_ref(), known) {
            // Lists of another size cannot be had from the old ones: then the new ones stay.
            if known.config() == fresh.config() || known.set(now, fresh.config().clone()).is_ok() {
                // There may be other workers now, or none.
                known.share(self.shares.as_ref().map(|shares| (shares.link(at), shares.worker())));
                *mine = Some(known);
            }
        }
        self.ports[at].notify_admission(now, true);
    }

    /// The next round looks at the port. If it has gone down meanwhile, nothing can wait for it.
    fn settle(&mut self, now: Nanos, at: usize) {
        self.touch(at);
        let slot = &mut self.ports[at];
        while slot.tx.len() > TX_QUEUE
            && let Some(frame) = slot.tx.pop_back()
        {
            slot.count.tx_dropped[Reason::PortRefused.index()] += 1;
            self.pool.release(frame);
        }
        if !slot.up {
            let (link, mut egress) = self.outgoing(at);
            link.drain(now, Reason::LinkDown, &mut egress);
            self.ports[at].discard_sent(&mut self.pool, Reason::LinkDown);
        }
    }
}
