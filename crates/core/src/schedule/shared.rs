//! One worker's part of a link that several workers share by classes: any discipline [`ByClass`].
//!
//! Source: see [`crate::share`], which decides how much this worker may send of each class; here is
//! only the order. Queues, their limits, weights and drops are the discipline's own, per worker.
//!
//! | symbol | field | unit |
//! |---|---|---|
//! | grants, T, S | `part` | 2^-16 bytes on the wire |
//! | C, W, what the others have | `link` | – |
//!
//! A packet is sent from the next queue in turn whose class has grants left, else from the next in
//! turn at all as long as bytes are left that no worker demanded. On a link without a rate the
//! discipline serves its queues by itself.
//!
//! Complexity: a packet looks at every queue at most twice, and at none while nothing that waits
//! may go; a new window costs what [`crate::share`] says.
//!
//! Bound: shares of the *wire* (bytes with Ethernet overhead, not IP bytes as for one worker), over
//! all workers, within the largest packet per worker and class; added delay: one window.
//!
//! Not implemented: queues by a hash of flows, and other disciplines: their state per flow lies in
//! one worker.

use alloc::sync::Arc;
use core::marker::PhantomData;

use super::{Backlog, DropSink, Meters, Scheduler, Treated, Wake};
use crate::packet::{Class, Packet};
use crate::reason::Reason;
use crate::settings::{Change, SettingError};
use crate::share::{Part, SharedLink};
use crate::units::{Bytes, Nanos};

/// A discipline whose queues are those of classes, so that each can be served when it is granted.
pub trait ByClass<P: Packet>: Scheduler<P> {
    /// How many queues there are; queue `n` is that of class `n`, and 0 that of all beyond.
    fn queues(&self) -> u16;

    /// The weight of a queue.
    fn weight(&self, queue: u16) -> u32;

    /// Whether nothing waits in `queue`.
    fn is_empty(&self, queue: usize) -> bool;

    /// IP length of the first packet of `queue`.
    fn head_len(&self, queue: usize) -> Option<Bytes>;

    /// The first packet of `queue`, out of turn: `dequeue` is never called then.
    fn take(&mut self, queue: usize) -> Option<P>;
}

/// One worker's part of a link that several workers share by classes.
#[derive(Debug)]
pub struct Shared<P, Q> {
    queues: Q,
    link: Arc<SharedLink>,
    part: Part,
    /// The queue after the one that was served last.
    next: usize,
    /// Until then nothing that waits may go. Of a link that is overloaded most packets come to find
    /// that: they do not look at every queue again.
    held_until: Nanos,
    packets: PhantomData<fn() -> P>,
}

impl<P: Packet, Q: ByClass<P>> Shared<P, Q> {
    /// `worker`'s part, with these queues, empty. Queues beyond the columns of `link` share its
    /// last.
    ///
    /// # Panics
    /// The link has no such worker.
    pub fn new(queues: Q, link: Arc<SharedLink>, worker: usize) -> Self {
        let part = link.part(worker);
        let held_until = Nanos::ZERO;
        let mut this = Self { queues, link, part, next: 0, held_until, packets: PhantomData };
        this.weigh();
        this
    }

    fn weigh(&mut self) {
        for queue in 0..self.queues.queues().min(self.link.classes() as u16) {
            self.part.set_weight(usize::from(queue), self.queues.weight(queue));
        }
    }

    fn column(&self, queue: usize) -> usize {
        queue.min(self.link.classes() - 1)
    }

    /// The queue to be served now.
    fn choose(&self, now: Nanos) -> Option<usize> {
        let queues = usize::from(self.queues.queues());
        let turn = || {
            let ring = (self.next..queues).chain(0..self.next);
            ring.filter(|queue| !self.queues.is_empty(*queue))
        };
        turn()
            .find(|queue| self.part.is_granted(self.column(*queue)))
            .or_else(|| self.part.may_send_any(now).then(|| turn().next()).flatten())
    }
}

/// How many queues there are, and the last column of the link.
fn columns<P: Packet>(queues: &impl ByClass<P>, link: &SharedLink) -> (usize, usize) {
    (usize::from(queues.queues()), link.classes() - 1)
}

/// The column of the queue that a packet goes to by its class.
fn column_of<P: Packet>(packet: &P, (queues, last): (usize, usize)) -> usize {
    let class = packet.class().index();
    if class < queues { class.min(last) } else { 0 }
}

impl<P: Packet, Q: ByClass<P>> Scheduler<P> for Shared<P, Q> {
    fn enqueue(&mut self, now: Nanos, packet: P, dropped: &mut dyn DropSink<P>) -> Treated {
        let Self { queues, link, part, held_until, .. } = self;
        let columns = columns(queues, link);
        let column = column_of(&packet, columns);
        if part.is_granted(column) || part.may_send_any(now) {
            *held_until = Nanos::ZERO;
        }
        part.came(link, column, packet.wire_len().0);
        queues.enqueue(now, packet, &mut |packet: P, reason: Reason| {
            part.gone(link, column_of(&packet, columns), packet.wire_len().0);
            dropped.dropped(packet, reason);
        })
    }

    fn dequeue(&mut self, now: Nanos, dropped: &mut dyn DropSink<P>) -> Option<P> {
        if self.queues.busy_queues() == 0 {
            return None;
        }
        if !self.link.is_paced() {
            let packet = self.queues.dequeue(now, dropped)?;
            let column = column_of(&packet, columns(&self.queues, &self.link));
            self.part.gone(&self.link, column, packet.wire_len().0);
            return Some(packet);
        }
        if now < self.held_until {
            return None;
        }
        self.part.at(&self.link, now);
        let Some(queue) = self.choose(now) else {
            self.held_until = self.part.until();
            return None;
        };
        self.next = queue + 1;
        let packet = self.queues.take(queue)?;
        let column = self.column(queue);
        self.part.sent(&self.link, column, packet.wire_len().0);
        Some(packet)
    }

    fn next_wake(&self, now: Nanos) -> Option<Nanos> {
        if self.queues.busy_queues() == 0 {
            return None;
        }
        let paced = self.link.is_paced();
        if paced && now < self.held_until {
            return Some(self.held_until);
        }
        let sendable = !paced || self.choose(now).is_some();
        Some(if sendable { now } else { self.part.until().max(now) })
    }

    fn peek_len(&self, now: Nanos) -> Option<Bytes> {
        if self.link.is_paced() {
            self.queues.head_len(self.choose(now)?)
        } else {
            self.queues.peek_len(now)
        }
    }

    fn set(&mut self, now: Nanos, change: &Change) -> Result<Wake, SettingError> {
        let wake = self.queues.set(now, change)?;
        self.weigh();
        Ok(wake)
    }

    fn drain(&mut self, into: &mut dyn FnMut(P)) {
        let Self { queues, link, part, .. } = self;
        let columns = columns(queues, link);
        queues.drain(&mut |packet: P| {
            part.gone(link, column_of(&packet, columns), packet.wire_len().0);
            into(packet);
        });
    }

    fn meters(&self) -> Meters {
        self.queues.meters()
    }

    fn busy_queues(&self) -> usize {
        self.queues.busy_queues()
    }

    fn class_backlog(&self, class: Class) -> Backlog {
        self.queues.class_backlog(class)
    }

    fn name(&self) -> &'static str {
        self.queues.name()
    }
}
