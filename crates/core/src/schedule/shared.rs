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
//! turn at all as long as bytes are left that no worker demanded. Where queues are levels it is the
//! first queue that has packets, on its own grant or on that of a level below, which then asks for
//! it again. On a link without a rate the discipline serves its queues by itself.
//!
//! Complexity: a packet looks at every queue at most twice, and at none while nothing that waits
//! may go; a new window costs what [`crate::share`] says.
//!
//! Bound: shares of the *wire* (bytes with Ethernet overhead, not IP bytes as for one worker), over
//! all workers, within the largest packet per worker and class; added delay: one window. Of levels:
//! a packet waits for what comes before it at its worker, and for the end of the window in which
//! others are served before it.
//!
//! Not implemented: queues by a hash of flows.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::marker::PhantomData;

use super::{Backlog, DropSink, Meters, Scheduler, Treated, Wake};
use crate::packet::{Class, Packet};
use crate::reason::Reason;
use crate::settings::{Change, SettingError};
use crate::share::{Part, SharedLink};
use crate::units::{BitRate, Bytes, Nanos};

/// Which queue goes first.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Order {
    /// They take turns, and share by weight.
    Turns,
    /// The first one that has packets, always.
    Levels,
}

/// A discipline whose queues are those of classes, so that each can be served when it is granted.
pub trait ByClass<P: Packet>: Scheduler<P> {
    /// Which queue goes first.
    const ORDER: Order = Order::Turns;

    /// How many queues there are.
    fn queues(&self) -> u16;

    /// The queues of the classes, from 0 on; further classes have that of class 0. They never
    /// change.
    fn queues_of_classes(&self) -> Vec<u16> {
        (0..self.queues()).collect()
    }

    /// The weight of a queue, where they take turns.
    fn weight(&self, _queue: u16) -> u32 {
        1
    }

    /// Packets wait so long for a grant, although their queue does not stand.
    fn grants_take(&mut self, _time: Nanos) {}

    /// Whether nothing waits in `queue`.
    fn is_empty(&self, queue: usize) -> bool;

    /// IP length of the first packet of `queue`.
    fn head_len(&self, queue: usize) -> Option<Bytes>;

    /// The first packet of `queue` that is not dropped, out of turn. `dequeue` is called as well,
    /// but only after the link has lost its rate.
    fn take(&mut self, now: Nanos, queue: usize, dropped: &mut dyn DropSink<P>) -> Option<P>;
}

/// One worker's part of a link that several workers share by classes.
#[derive(Debug)]
pub struct Shared<P, Q> {
    queues: Q,
    link: Arc<SharedLink>,
    part: Part,
    /// The column of each class.
    columns: Columns,
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
        let part = match Q::ORDER {
            Order::Turns => link.part(worker),
            Order::Levels => link.part_by_levels(worker),
        };
        let columns = Columns::new(&queues, &link);
        let held_until = Nanos::ZERO;
        let mut this =
            Self { queues, link, part, columns, next: 0, held_until, packets: PhantomData };
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

    /// The queue to be served now, and the column on whose grant.
    fn choose(&self, now: Nanos) -> Option<(usize, usize)> {
        let queues = usize::from(self.queues.queues());
        let first = if Q::ORDER == Order::Turns { self.next } else { 0 };
        let mut waiting = (first..queues)
            .chain(0..first)
            .filter(|queue| !self.queues.is_empty(*queue))
            .map(|queue| (queue, self.column(queue)));
        // What nobody demanded is for those that have no grant.
        let any = self.part.may_send_any(now).then(|| waiting.clone().next()).flatten();
        let grant = |(queue, column)| Some((queue, grant::<P, Q>(&self.part, column)?));
        let granted = match Q::ORDER {
            Order::Turns => waiting.find_map(grant),
            Order::Levels => waiting.next().and_then(grant),
        };
        granted.or(any)
    }
}

/// The column on whose grant a packet of `column` may be sent.
fn grant<P: Packet, Q: ByClass<P>>(part: &Part, column: usize) -> Option<usize> {
    let last = if Q::ORDER == Order::Turns { column } else { part.columns() - 1 };
    (column..=last).find(|column| part.is_granted(*column))
}

/// The columns of a link that the packets of each class are counted in.
#[derive(Debug)]
struct Columns(Box<[u16]>);

impl Columns {
    fn new<P: Packet>(queues: &impl ByClass<P>, link: &SharedLink) -> Self {
        let last = link.classes() as u16 - 1;
        let of_classes = queues.queues_of_classes();
        Self(of_classes.into_iter().map(|queue| queue.min(last)).collect())
    }

    fn of(&self, packet: &impl Packet) -> usize {
        let class = packet.class().index();
        self.0[if class < self.0.len() { class } else { 0 }].into()
    }

    /// Takes dropped packets out of what `part` says that waits, and hands them to `dropped`.
    fn telling<P: Packet>(
        &self,
        part: &mut Part,
        link: &SharedLink,
        dropped: &mut dyn DropSink<P>,
    ) -> impl FnMut(P, Reason) {
        move |packet: P, reason: Reason| {
            part.gone(link, self.of(&packet), packet.wire_len().0);
            dropped.dropped(packet, reason);
        }
    }
}

impl<P: Packet, Q: ByClass<P>> Scheduler<P> for Shared<P, Q> {
    fn enqueue(&mut self, now: Nanos, packet: P, dropped: &mut dyn DropSink<P>) -> Treated {
        let Self { queues, link, part, columns, held_until, .. } = self;
        let column = columns.of(&packet);
        if part.may_send_any(now) || grant::<P, Q>(part, column).is_some() {
            *held_until = Nanos::ZERO;
        }
        part.came(link, column, packet.wire_len().0);
        queues.enqueue(now, packet, &mut columns.telling(part, link, dropped))
    }

    fn dequeue(&mut self, now: Nanos, dropped: &mut dyn DropSink<P>) -> Option<P> {
        let paced = self.link.is_paced();
        if paced && now < self.held_until {
            return None;
        }
        while self.queues.busy_queues() > 0 {
            let mut chosen = None;
            if paced {
                self.part.at(&self.link, now);
                chosen = self.choose(now);
                if chosen.is_none() {
                    self.held_until = self.part.until();
                    return None;
                }
            }
            let Self { queues, link, part, columns, .. } = self;
            let Some((queue, grant)) = chosen else {
                let packet = queues.dequeue(now, &mut columns.telling(part, link, dropped))?;
                part.gone(link, columns.of(&packet), packet.wire_len().0);
                return Some(packet);
            };
            self.next = queue + 1;
            // None is left where all that waited there stood for too long.
            let packet = queues.take(now, queue, &mut columns.telling(part, link, dropped));
            if let Some(packet) = packet {
                part.sent(link, columns.of(&packet), grant, packet.wire_len().0);
                return Some(packet);
            }
        }
        None
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
            self.queues.head_len(self.choose(now)?.0)
        } else {
            self.queues.peek_len(now)
        }
    }

    fn set(&mut self, now: Nanos, change: &Change) -> Result<Wake, SettingError> {
        let wake = self.queues.set(now, change)?;
        self.weigh();
        Ok(wake)
    }

    fn set_rate(&mut self, rate: Option<BitRate>) {
        self.queues.set_rate(rate);
        self.queues.grants_take(SharedLink::grants_take(rate));
    }

    fn drain(&mut self, into: &mut dyn FnMut(P)) {
        let Self { queues, link, part, columns, .. } = self;
        queues.drain(&mut |packet: P| {
            part.gone(link, columns.of(&packet), packet.wire_len().0);
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
