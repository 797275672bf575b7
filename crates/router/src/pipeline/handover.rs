//! A pipeline takes over from another one while the router runs: for changes that no pipeline can
//! live through, as of its ports, its classes, its frame buffers, or of how many workers there are.
//!
//! **Why a new one.** Ports are numbered, and the numbers are everywhere: in every next hop of the
//! forwarding table, in neighbours, in the mirror. If ports came and went in one pipeline, either
//! holes would be left, which every loop must step over and which must not be filled before every
//! worker has read the last event about the former port. Or a table of a million routes would have
//! to be renumbered. So a new pipeline is built from the new configuration and filled by a mirror
//! of its own, both beside the one that forwards. Then it takes over, by name, what only the old
//! one has. That takes as long as there are queues, not routes, and there is one way for every
//! change.
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
//! **Order.** What a link holds leaves in the order in which it came. A flow that another worker
//! receives from now on may be overtaken once by its own later packets: which worker receives which
//! flow is decided by the kernel or the hardware.
//!
//! **Conservation.** Every identity of the [pipeline](super) holds before and after, with `removed`
//! as one more port and link.

use std::collections::VecDeque;

use evenkeel_config::LinkConfig;
use evenkeel_core::admit::Admission;
use evenkeel_core::link::{LinkSink, Translate};
use evenkeel_core::measure::Tally;
use evenkeel_core::{Class, Nanos, Reason};
use evenkeel_net::PortIndex;
use evenkeel_ports::{Frame, FramePool, PortCounters, RxFrame};

use super::egress::{Egress, TX_QUEUE};
use super::packet::{QueuedPacket, UnroutedPacket};
use super::port::PortSlot;
use super::store::Store;
use super::{Buffers, Pipeline};
use crate::snapshot::{LinkSnapshot, RemovedSnapshot};

/// Translates packets of the old pipeline into packets of the new one.
struct Translator<'a> {
    /// By class of the old one.
    classes: &'a [Class],
    /// By port of the old one.
    ports: &'a [Option<usize>],
    /// Where frames are copied from; `None`: they stay where they are.
    from: Option<&'a FramePool>,
    to: &'a mut FramePool,
}

impl Translator<'_> {
    /// The frame in the new pool. `Err`: there is no room for it.
    fn frame(&mut self, frame: Frame) -> Result<Frame, Frame> {
        let Some(from) = self.from else { return Ok(frame) };
        // The buffer of the original goes with its pool.
        self.to.copy_from(from, &frame).ok_or(frame)
    }
}

impl Translate<QueuedPacket> for Translator<'_> {
    fn class(&self, class: Class) -> Class {
        self.classes.get(class.index()).copied().unwrap_or_default()
    }

    fn packet(&mut self, mut packet: QueuedPacket) -> Result<QueuedPacket, (QueuedPacket, Reason)> {
        packet.class = self.class(packet.class);
        match self.ports.get(packet.port.index()) {
            Some(Some(at)) => packet.port = PortIndex(*at as u16),
            _ => return Err((packet, Reason::LinkDown)),
        }
        let frame = std::mem::replace(&mut packet.frame, Frame::NOTHING);
        let moved = self.frame(frame);
        let is_here = moved.is_ok();
        packet.frame = moved.unwrap_or_else(|frame| frame);
        if is_here { Ok(packet) } else { Err((packet, Reason::NoBuffer)) }
    }
}

/// Takes the frames that leave a link while it takes over: the pool is in use for those that stay.
#[derive(Default)]
pub(super) struct HandoverSink {
    pub(super) sent: VecDeque<QueuedPacket>,
    pub(super) dropped: Vec<QueuedPacket>,
}

impl LinkSink<QueuedPacket> for HandoverSink {
    /// A link without a rate sends with its next round.
    fn room(&self) -> usize {
        0
    }

    fn transmitted(&mut self, _at: Nanos, packet: QueuedPacket) {
        self.sent.push_back(packet);
    }

    fn dropped(&mut self, _at: Nanos, packet: QueuedPacket, _reason: Reason) {
        // The link's meters have counted it.
        self.dropped.push(packet);
    }
}

/// What the old pipeline had, in terms of the new one.
struct Inherited {
    /// The old pool, if frames are copied from it.
    copied_from: Option<Store>,
    /// By class of the old pipeline.
    classes: Vec<Class>,
    /// By port of the old pipeline.
    ports: Vec<Option<usize>>,
    /// Whether links can go on as they are.
    same_links: bool,
}

impl Pipeline {
    /// The interface of a port is given up, or opened anew: adds what its device has counted.
    /// Before another pipeline [takes over](Pipeline::take_over) from this one.
    pub fn port_closed(&mut self, name: &str, counted: &PortCounters) {
        if let Some(slot) = self.ports.iter_mut().find(|slot| slot.name == name) {
            slot.before.add(counted);
        }
    }

    /// Forwards frames that a port has received outside of a round.
    pub fn forward_received(
        &mut self,
        now: Nanos,
        at: usize,
        frames: impl Iterator<Item = RxFrame>,
    ) {
        self.meter.round_begins();
        let port = PortIndex(at as u16);
        for frame in frames {
            self.receiver.push(RxFrame { arrival: frame.arrival.min(now), port, ..frame });
        }
        self.forward_inbox();
    }

    /// Takes over from `old` at `now`: by name, as far as it has the same ports, classes and
    /// services. This pipeline has been built from the new configuration, has its tables, and has
    /// received nothing yet. With buffers that are copied it may take over from several, one after
    /// the other.
    pub fn take_over(&mut self, now: Nanos, mut old: Self, buffers: Buffers) {
        let kept = buffers == Buffers::Kept;
        old.finish_shared(now);
        self.flow_cache.begin_epoch();
        let old_pool = std::mem::replace(&mut old.pool, Store::new(FramePool::new(0)));
        let copied_from = if kept {
            self.pool = old_pool;
            None
        } else {
            Some(old_pool)
        };
        let names = &old.settings.class_names;
        let ports: Vec<_> = old.ports.iter().map(|slot| self.same_port(slot)).collect();
        // Packets know their port by its number.
        let same_numbers = ports.iter().enumerate().all(|(at, new)| *new == Some(at));
        let mut inherited = Inherited {
            copied_from,
            classes: names.iter().map(|name| self.class_called(name)).collect(),
            ports: ports.clone(),
            same_links: kept
                && (same_numbers || old.shared_links.is_empty())
                && self.settings.class_names == *names
                && self.settings.shares.is_none()
                && old.settings.shares.is_none(),
        };
        self.inherit_shared(&old.shared_links, &ports);
        let waiting =
            old.drain_waiting(&ports, inherited.copied_from.is_none().then_some(&mut self.pool));

        self.started = self.started.min(old.started);
        self.agenda.take_over(&old.agenda);
        self.meter.take_over(&old.meter, &inherited.classes);
        self.services.take_over(old.services);
        self.routing.take_over(&old.routing);
        if let (Some(mine), Some(theirs)) = (&mut self.fairdrop, &old.fairdrop) {
            mine.counts_from_other(theirs, &inherited.classes);
        }
        self.admissions.take_over(old.admissions);
        if let Some(removed) = old.removed {
            self.removed.get_or_insert_default().add(&removed);
        }
        let ports = old.ports.into_iter().zip(old.settings.links).zip(ports);
        for ((slot, config), new_port) in ports {
            match new_port {
                Some(at) => self.take_over_port(now, at, slot, config, &mut inherited),
                None => {
                    let pool = inherited.copied_from.as_mut();
                    self.remove_port(now, slot, &old.settings.class_names, pool);
                }
            }
        }
        for (at, packet) in waiting {
            self.route_again(now, at, packet, &inherited);
        }
    }

    /// Takes the packets that wait for neighbours, with their new ports. Those of a port that is no
    /// more are dropped; `pool` holds their frames if it stays.
    pub(super) fn drain_waiting(
        &mut self,
        new_ports: &[Option<usize>],
        mut pool: Option<&mut Store>,
    ) -> Vec<(usize, UnroutedPacket)> {
        let mut waiting = Vec::new();
        self.neighbours.release_all();
        for packet in self.neighbours.take_released() {
            self.no_longer_waiting(&packet);
            if let Some(at) = new_ports[packet.port.index()] {
                waiting.push((at, packet));
                continue;
            }
            self.ports[packet.port.index()].count_dropped(packet.originated, Reason::LinkDown);
            if let Some(pool) = &mut pool {
                pool.release(packet.frame);
            }
        }
        waiting
    }

    /// The class of this name; the first one if there is none.
    pub(super) fn class_called(&self, name: &str) -> Class {
        let at = self.settings.class_names.iter().position(|known| known == name);
        Class(at.unwrap_or(0) as u16)
    }

    /// Where a port of another pipeline is in this one.
    fn same_port(&self, slot: &PortSlot) -> Option<usize> {
        let same = |mine: &PortSlot| mine.name == slot.name && mine.interface == slot.interface;
        self.ports.iter().position(same)
    }

    /// Takes over a port with its link.
    fn take_over_port(
        &mut self,
        now: Nanos,
        at: usize,
        slot: PortSlot,
        config: LinkConfig,
        inherited: &mut Inherited,
    ) {
        let new = &mut self.ports[at];
        new.count.add(&slot.count);
        new.before.add(&slot.before);
        if inherited.same_links {
            // The link itself goes on: nobody can tell that anything has changed.
            (new.link, new.control, new.admission, new.tx) =
                (slot.link, slot.control, slot.admission, slot.tx);
            new.follow_on(slot.follow, slot.line);
            let wanted = std::mem::replace(&mut self.settings.links[at], config);
            // What the new pipeline could be built with is in range.
            let _ = self.reconfigure(now, at, wanted);
        } else {
            self.take_over_link(now, at, slot, inherited);
        }
        self.settle(now, at);
    }

    /// Takes over a link by what it holds.
    fn take_over_link(&mut self, now: Nanos, at: usize, slot: PortSlot, inherited: &mut Inherited) {
        let new = &mut self.ports[at];
        let PortSlot {
            index, link, mut tx, mut crossing, room, count, admission, mut losses, ..
        } = slot;
        let (before, mut tx_dropped) = (count.tx_dropped, count.tx_dropped);
        let pool = inherited.copied_from.as_mut().unwrap_or(&mut self.pool);
        // What it had for other ports has crossed over already.
        let handover = link.hand_over(
            now,
            &mut Egress {
                pool,
                port: index,
                tx: &mut tx,
                crossing: &mut crossing,
                room,
                tx_dropped: &mut tx_dropped,
                losses: &mut losses,
                line: None,
                seen: None,
            },
        );
        for (new, (after, before)) in
            new.count.tx_dropped.iter_mut().zip(tx_dropped.iter().zip(before))
        {
            *new += after - before;
        }
        let mut translator = Translator {
            classes: &inherited.classes,
            ports: &inherited.ports,
            from: inherited.copied_from.as_deref(),
            to: &mut self.pool,
        };
        let mut leaving = HandoverSink::default();
        new.link.take_over(now, handover, &mut translator, &mut leaving);
        for frame in tx.drain(..) {
            match translator.frame(frame) {
                Ok(frame) => new.tx.push_back(frame),
                Err(_gone) => new.count.tx_dropped[Reason::NoBuffer.index()] += 1,
            }
        }
        for packet in leaving.sent {
            match packet.port {
                own if own == new.index => new.tx.push_back(packet.leave(&mut self.pool)),
                other => new.crossing.push((other, packet.leave(&mut self.pool))),
            }
        }
        for packet in leaving.dropped {
            if self.pool.owns(&packet.frame) {
                self.pool.discard(packet);
            }
        }
        self.take_over_admission(now, at, admission);
    }

    /// Routes a packet that waited for a neighbour in the old pipeline.
    fn route_again(
        &mut self,
        now: Nanos,
        at: usize,
        packet: UnroutedPacket,
        inherited: &Inherited,
    ) {
        let UnroutedPacket { frame, arrival, port: _, originated } = packet;
        let port = PortIndex(at as u16);
        let from = inherited.copied_from.as_deref();
        let Inherited { classes, ports, .. } = inherited;
        let mut translator = Translator { classes, ports, from, to: &mut self.pool };
        match translator.frame(frame) {
            Ok(frame) => {
                self.route(UnroutedPacket { frame, arrival, port, originated }, now);
            }
            Err(_gone) => self.ports[at].count_dropped(originated, Reason::NoBuffer),
        }
    }

    /// Drops what waits for a port that is no more, and keeps what it has counted. `pool`: where
    /// its frames are, if not in this pipeline's pool.
    fn remove_port(
        &mut self,
        now: Nanos,
        mut slot: PortSlot,
        classes: &[String],
        pool: Option<&mut Store>,
    ) {
        let pool = pool.unwrap_or(&mut self.pool);
        let (link, mut egress) = slot.outgoing(pool);
        link.drain(now, Reason::LinkDown, &mut egress);
        slot.discard_sent(pool, Reason::LinkDown);
        let removed = RemovedSnapshot {
            ports: 1,
            port: slot.view(&PortCounters::default()),
            // Protected flows of a link that is no more are of no interest.
            link: LinkSnapshot { admission: None, ..slot.link_view(now, classes) },
        };
        self.removed.get_or_insert_default().add(&removed);
    }

    /// Takes over the protected flows of a link. The scheduler's meters begin anew.
    fn take_over_admission(&mut self, now: Nanos, at: usize, old: Option<Box<Admission>>) {
        let new = &mut self.ports[at].admission;
        if let (Some(fresh), Some(mut old)) = (new.as_ref(), old) {
            // Lists of another size cannot be made from the old ones: then the new ones stay.
            if old.config() == fresh.config() || old.set(now, fresh.config().clone()).is_ok() {
                // There may be other workers now, or none.
                let shares = self.settings.shares.as_ref();
                let seed = self.settings.seed.wrapping_add(at as u64);
                let users = shares.and_then(|shares| shares.users(at, fresh.config(), seed));
                old.share(shares.and_then(|shares| shares.admission(at)));
                old.share_users(users);
                *new = Some(old);
            }
        }
        self.ports[at].notify_admission(now, true);
    }

    /// Has the next round look at the port. If it has gone down meanwhile, nothing can wait for it.
    pub(super) fn settle(&mut self, now: Nanos, at: usize) {
        self.agenda.touch(at);
        let slot = &mut self.ports[at];
        while slot.tx.len() > TX_QUEUE
            && let Some(frame) = slot.tx.pop_back()
        {
            slot.count.tx_dropped[Reason::PortRefused.index()] += 1;
            self.pool.release(frame);
        }
        if !slot.up {
            self.drain_unless_used(now, at);
            self.ports[at].discard_sent(&mut self.pool, Reason::LinkDown);
        }
    }
}
