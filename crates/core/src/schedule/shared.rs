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
//! it again. A queue that is held is passed over, and asks for no more than it may send in the
//! next two windows. On a link without a rate the discipline serves its queues by itself.
//!
//! Complexity: a packet looks at every queue at most twice, and at none while nothing that waits
//! may go; a new window costs what [`crate::share`] says.
//!
//! Bound: shares of the *wire* (bytes with Ethernet overhead, not IP bytes as for one worker), over
//! all workers, within the largest packet per worker and class; added delay: one window. Of levels:
//! a packet waits for what comes before it at its worker, and for the end of the window in which
//! others are served before it. Of queues that are held: as many packets each, not bytes, and none
//! earlier than over one worker.
//!
//! Not implemented: queues by a hash of flows.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::marker::PhantomData;

use super::bitmap::Bitmap;
use super::{Backlog, DropSink, Meters, Scheduler, Treated, Wake};
use crate::packet::{Class, Packet};
use crate::reason::Reason;
use crate::settings::{Change, SettingError};
use crate::share::{Part, SharedLink};
use crate::units::{BitRate, Bytes, Nanos};

/// Which queue goes first.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Order {
    /// There is but one.
    One,
    /// They take turns, and share by weight.
    Turns,
    /// The first one that has packets, always.
    Levels,
    /// They take turns, and each has some time between two of its packets, whoever sends them.
    Held,
}

/// What the workers of a link have in common, and which of them this is.
#[derive(Clone, Debug)]
pub struct Common {
    pub(super) link: Arc<SharedLink>,
    pub(super) worker: usize,
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

    /// Of [`Order::Held`]: its queues are held together with those of the other workers.
    fn join(&mut self, _common: Common) {}

    /// Of [`Order::Held`]: whether a queue has any delay, so that not all that waits is asked for.
    fn is_delayed(&self, _queue: usize) -> bool {
        false
    }

    /// Of [`Order::Held`]: when a queue with packets is to be asked for again that may not be
    /// served at `now`. `None`: it may be.
    fn held_until(&self, _now: Nanos, _queue: usize) -> Option<Nanos> {
        None
    }

    /// Of [`Order::Held`]: how many of the `waiting` bytes of a queue may be sent until `then`.
    fn due_by(&self, _now: Nanos, _then: Nanos, _queue: usize, waiting: u64) -> u64 {
        waiting
    }

    /// Whether nothing waits in `queue`.
    fn is_empty(&self, queue: usize) -> bool;

    /// IP length of the first packet of `queue`.
    fn head_len(&self, queue: usize) -> Option<Bytes>;

    /// The first packet of `queue` that is not dropped, out of turn. `dequeue` is called as well,
    /// but only after the link has lost its rate.
    fn take(&mut self, now: Nanos, queue: usize, dropped: &mut dyn DropSink<P>) -> Option<P>;
}

/// The ways by which packets come to a worker's part of a link, and go: the others hear of each at
/// once, or of a burst when it is over.
macro_rules! tell_once_for_a_burst {
    () => {
        fn enqueue(&mut self, now: Nanos, packet: P, dropped: &mut dyn DropSink<P>) -> Treated {
            let treated = self.enter(now, packet, dropped);
            self.publish();
            treated
        }

        fn dequeue(&mut self, now: Nanos, dropped: &mut dyn DropSink<P>) -> Option<P> {
            let packet = self.next(now, dropped);
            self.publish();
            packet
        }

        fn call(&mut self, now: Nanos, dropped: &mut dyn DropSink<P>) -> (usize, Option<P>) {
            match self.queues.busy_queues() {
                0 => (0, None),
                busy => (busy, self.next(now, dropped)),
            }
        }

        fn take_in(
            &mut self,
            now: Nanos,
            packet: P,
            dropped: &mut dyn DropSink<P>,
        ) -> (Treated, u32) {
            (self.enter(now, packet, dropped), self.last_place())
        }
    };
}
pub(super) use tell_once_for_a_burst;

/// One worker's part of a link that several workers share by classes.
#[derive(Debug)]
pub struct Shared<P, Q> {
    queues: Q,
    link: Arc<SharedLink>,
    account: Account,
    /// The queue after the one that was served last.
    after: usize,
    /// Queues that may have packets; all others have none.
    busy: Bitmap,
    /// Until then nothing that waits may go. Of a link that is overloaded most packets come to find
    /// that: they do not look at every queue again.
    held_until: Nanos,
    /// For how long packets may wait for their grants.
    grants_take: Nanos,
    packets: PhantomData<fn() -> P>,
}

impl<P: Packet, Q: ByClass<P>> Shared<P, Q> {
    const IS_ONE: bool = matches!(Q::ORDER, Order::One);
    const IS_HELD: bool = matches!(Q::ORDER, Order::Held);

    /// `worker`'s part, with these queues, empty. Queues beyond the columns of `link` share its
    /// last.
    ///
    /// # Panics
    /// The link has no such worker.
    pub fn new(mut queues: Q, link: Arc<SharedLink>, worker: usize) -> Self {
        let part = match Q::ORDER {
            Order::One | Order::Turns => link.part(worker),
            Order::Levels => link.part_by_levels(worker),
            Order::Held => link.part_by_packets(worker),
        };
        if Self::IS_HELD {
            queues.join(Common { link: Arc::clone(&link), worker });
        }
        let account = Account::new(&queues, part, Self::IS_HELD);
        let busy = Bitmap::new(queues.queues().into());
        let mut this = Self {
            queues,
            link,
            account,
            after: 0,
            busy,
            held_until: Nanos::ZERO,
            grants_take: Nanos::ZERO,
            packets: PhantomData,
        };
        this.weigh();
        this
    }

    fn weigh(&mut self) {
        for queue in 0..self.queues.queues().min(self.link.classes() as u16) {
            self.account.part.set_weight(usize::from(queue), self.queues.weight(queue));
        }
    }

    /// The queues that have packets, the next in turn first.
    fn waiting(&self) -> impl Iterator<Item = usize> + '_ {
        let first = if Q::ORDER == Order::Levels { 0 } else { self.after };
        self.busy.ring(first).filter(|queue| !self.queues.is_empty(*queue))
    }

    /// The queue to be served now, and the column on whose grant.
    #[inline(always)] // a call costs a quarter of it
    fn choose(&self, now: Nanos) -> Option<(usize, usize)> {
        let part = &self.account.part;
        let (may_send_any, has_grants) = (part.may_send_any(now), part.has_grants());
        if !may_send_any && !has_grants {
            return None;
        }
        if Self::IS_ONE {
            let may_send = may_send_any || part.is_granted(0);
            return (may_send && !self.queues.is_empty(0)).then_some((0, 0));
        }
        let mut first = None;
        // A loop, because what finds one by a closure is called for each packet.
        for queue in self.waiting() {
            if self.held_until(now, queue).is_some() {
                continue;
            }
            let column = self.account.column(queue);
            if has_grants && let Some(grant) = grant::<P, Q>(part, column) {
                return Some((queue, grant));
            }
            first = first.or(Some((queue, column)));
            // Nobody's grant is for those behind the first one.
            if !has_grants || Q::ORDER == Order::Levels {
                break;
            }
        }
        // What nobody demanded is for those that have no grant.
        first.filter(|_| may_send_any)
    }

    /// As [`ByClass::held_until`], of queues without a delay not asked.
    #[inline]
    fn held_until(&self, now: Nanos, queue: usize) -> Option<Nanos> {
        let may_be = |waits: Option<&Waits>| waits.is_none_or(|waits| waits.is_delayed);
        (Self::IS_HELD && may_be(self.account.waiting.get(queue)))
            .then(|| self.queues.held_until(now, queue))
            .flatten()
    }

    /// When to look again, none of those that wait being served at `now`: at the next window; of
    /// queues that are held when the first of them has to ask for a grant, or may go.
    fn ready(&self, now: Nanos) -> Nanos {
        let next = self.account.part.until();
        if !Self::IS_HELD {
            return next;
        }
        let of_queue = |queue| match self.held_until(now, queue) {
            None => next,
            Some(due) if due > now + self.grants_take => due - self.grants_take,
            Some(due) => due,
        };
        self.waiting().map(of_queue).min().unwrap_or(next)
    }

    /// Says what of a queue with a delay is to be granted.
    #[inline(always)] // nothing but for queues that are held
    fn restate(&mut self, now: Nanos, queue: usize) {
        if Self::IS_HELD
            && let Some(Waits { bytes, is_delayed: true }) = self.account.waiting.get(queue)
        {
            let due = self.queues.due_by(now, now + self.grants_take, queue, *bytes);
            self.account.part.waits(queue, due);
        }
    }
}

/// The column on whose grant a packet of `column` may be sent.
fn grant<P: Packet, Q: ByClass<P>>(part: &Part, column: usize) -> Option<usize> {
    let last = if Q::ORDER == Order::Levels { part.columns() - 1 } else { column };
    (column..=last).find(|column| part.is_granted(*column))
}

/// What waits, and what is told of it.
#[derive(Debug)]
struct Account {
    part: Part,
    /// The queue of each class.
    queues: Box<[u16]>,
    /// What waits in each queue that may be held, and has a column for itself.
    waiting: Box<[Waits]>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Waits {
    /// Bytes on the wire.
    bytes: u64,
    /// Not all of it is told: see [`Shared::restate`].
    is_delayed: bool,
}

impl Account {
    fn new<P: Packet>(queues: &impl ByClass<P>, part: Part, is_held: bool) -> Self {
        let of_classes = queues.queues_of_classes().into();
        let (all, columns) = (usize::from(queues.queues()), part.columns());
        let alone = if all > columns { columns - 1 } else { all };
        let waiting = (0..if is_held { alone } else { 0 })
            .map(|queue| Waits { bytes: 0, is_delayed: queues.is_delayed(queue) });
        let waiting = waiting.collect();
        Self { part, queues: of_classes, waiting }
    }

    /// The column of a link that the packets of a queue are counted in.
    #[inline]
    fn column(&self, queue: usize) -> usize {
        queue.min(self.part.columns() - 1)
    }

    #[inline]
    fn queue_of(&self, packet: &impl Packet) -> usize {
        let class = packet.class().index();
        self.queues[if class < self.queues.len() { class } else { 0 }].into()
    }

    #[inline]
    fn came(&mut self, queue: usize, bytes: u64) {
        if let Some(waiting) = self.waiting.get_mut(queue) {
            waiting.bytes += bytes;
            if waiting.is_delayed {
                return;
            }
        }
        self.part.came(self.column(queue), bytes);
    }

    /// A packet is gone that nobody sent.
    #[inline]
    fn gone(&mut self, queue: usize, bytes: u64) {
        if let Some(waiting) = self.waiting.get_mut(queue) {
            waiting.bytes -= bytes;
            if waiting.is_delayed {
                return;
            }
        }
        self.part.gone(self.column(queue), bytes);
    }

    #[inline(always)] // as above
    fn sent(&mut self, queue: usize, grant: usize, bytes: u64) {
        self.part.sent(self.column(queue), grant, bytes);
        if let Some(waiting) = self.waiting.get_mut(queue) {
            waiting.bytes -= bytes;
        }
    }

    /// Takes dropped packets out of what waits, and hands them to `dropped`.
    fn telling<P: Packet>(&mut self, dropped: &mut dyn DropSink<P>) -> impl FnMut(P, Reason) {
        move |packet: P, reason: Reason| {
            self.gone(self.queue_of(&packet), packet.wire_len().0);
            dropped.dropped(packet, reason);
        }
    }
}

impl<P: Packet, Q: ByClass<P>> Shared<P, Q> {
    /// A packet comes, of which the others are not told yet.
    #[inline]
    fn enter(&mut self, now: Nanos, packet: P, dropped: &mut dyn DropSink<P>) -> Treated {
        let Self { queues, account, busy, held_until, .. } = self;
        let queue = if Self::IS_ONE { 0 } else { account.queue_of(&packet) };
        if !Self::IS_HELD && now >= *held_until {
            // Whoever calls looks at what waits already.
        } else if account.part.may_send_any(now)
            || grant::<P, Q>(&account.part, account.column(queue)).is_some()
        {
            *held_until = Nanos::ZERO;
        } else if Self::IS_HELD {
            *held_until = (*held_until).min(account.part.until());
        }
        account.came(queue, packet.wire_len().0);
        if !Self::IS_ONE {
            busy.insert(queue);
        }
        let treated = queues.enqueue(now, packet, &mut account.telling(dropped));
        self.restate(now, queue);
        treated
    }

    /// The next packet, of which the others are not told yet.
    #[inline]
    fn next(&mut self, now: Nanos, dropped: &mut dyn DropSink<P>) -> Option<P> {
        let paced = self.link.is_paced();
        if paced && now < self.held_until {
            return None;
        }
        if Self::IS_HELD && (now >= self.account.part.until() || self.held_until > Nanos::ZERO) {
            (0..self.account.waiting.len()).for_each(|queue| self.restate(now, queue));
            self.held_until = Nanos::ZERO;
        }
        while self.queues.busy_queues() > 0 {
            let mut chosen = None;
            if paced {
                self.account.part.at(&self.link, now);
                chosen = self.choose(now);
                if chosen.is_none() {
                    self.held_until = self.ready(now);
                    return None;
                }
            }
            let Self { queues, account, .. } = self;
            let Some((queue, grant)) = chosen else {
                let packet = queues.dequeue(now, &mut account.telling(dropped))?;
                account.gone(account.queue_of(&packet), packet.wire_len().0);
                return Some(packet);
            };
            if matches!(Q::ORDER, Order::Turns | Order::Held) {
                self.after = if queue + 1 < usize::from(queues.queues()) { queue + 1 } else { 0 };
            }
            // None is left where all that waited there stood for too long, or another worker took
            // the turn of a queue that is held.
            let packet = queues.take(now, queue, &mut account.telling(dropped));
            if let Some(packet) = packet {
                account.sent(queue, grant, packet.wire_len().0);
                self.restate(now, queue);
                if !Self::IS_ONE && self.queues.is_empty(queue) {
                    self.busy.remove(queue);
                }
                return Some(packet);
            }
        }
        None
    }
}

impl<P: Packet, Q: ByClass<P>> Scheduler<P> for Shared<P, Q> {
    tell_once_for_a_burst!();

    fn publish(&mut self) {
        self.account.part.publish(&self.link);
    }

    fn next_wake(&self, now: Nanos) -> Option<Nanos> {
        if self.queues.busy_queues() == 0 {
            return None;
        }
        if !self.link.is_paced() {
            return self.queues.next_wake(now);
        }
        if now < self.held_until {
            return Some(self.held_until);
        }
        Some(if self.choose(now).is_some() { now } else { self.ready(now).max(now) })
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
        for (queue, waiting) in self.account.waiting.iter_mut().enumerate() {
            waiting.is_delayed = self.queues.is_delayed(queue);
            // One with a delay tells less of it when it is looked at next.
            self.account.part.waits(queue, waiting.bytes);
            self.held_until = Nanos::ZERO;
        }
        self.publish();
        // Of a queue that is held the others know as much as this one.
        Ok(if Self::IS_HELD { Wake::Now } else { wake })
    }

    fn set_rate(&mut self, rate: Option<BitRate>) {
        self.queues.set_rate(rate);
        self.grants_take = SharedLink::grants_take(rate);
        self.queues.grants_take(self.grants_take);
    }

    fn drain(&mut self, into: &mut dyn FnMut(P)) {
        let Self { queues, account, .. } = self;
        queues.drain(&mut |packet: P| {
            account.gone(account.queue_of(&packet), packet.wire_len().0);
            into(packet);
        });
        if Self::IS_HELD {
            (0..account.waiting.len()).for_each(|queue| account.part.waits(queue, 0));
        }
        self.publish();
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
