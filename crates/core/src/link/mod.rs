//! The outgoing link: scheduler, shaper, transmit ring and paced wire, in virtual time.
//!
//! ```text
//!  enqueue ─▶ scheduler ─▶ [shaper] ─▶ ring (R slots, refill rule) ─▶ wire (rate) ─▶ LinkSink::transmitted
//!                 └──────────── drops ─────────────────────────────────────────────▶ LinkSink::dropped
//! ```
//!
//! The ring is a parameter because it decides whether a scheduler can differentiate at all:
//! whatever is in the ring is out of the scheduler's hands, and a ring that is refilled as a whole
//! empties short queues in bursts ("How Unfair can Weighted Fair Queuing be?"). The wire behind it
//! is paced; a shaper in front of it would keep the ring empty and hide that.
//!
//! **Events.** The link is a machine of events in virtual time: a packet's last bit leaves the
//! wire; the scheduler is called; a time comes that the scheduler or the shaper waits for. Each has
//! its own instant. [`Link::advance`] lets everything due happen in the order of time, each with
//! its own `now`. A call that comes late loses neither time on the wire nor the order of events;
//! only arrivals take effect at the time of the call. At the same instant a completion comes first,
//! then what waits for a time, then an arrival.
//!
//! **The transmit side** is started by an arrival, by a completion that frees slots while something
//! is queued, and by a time the scheduler asked for. It then calls the scheduler until the ring is
//! full or the scheduler gives nothing. Each call takes `dequeue_time`: the packet is in the ring
//! at the instant of the call and the next call comes `dequeue_time` later. So arrivals fall
//! between the calls of a refill, as in a router whose processors share the work. With
//! [`Refill::WholeRingBlocking`] they wait until the calls are over, as in a router with one
//! processor that does not let itself be interrupted: they are counted as they come, held outside
//! of the discipline, at most as many as the ring has slots, and enter it together at the end of
//! the last call. A packet that the discipline then has no room for is dropped at that instant,
//! though it was told as queued.
//!
//! **Cost** per packet: the discipline's own, plus constant time (one 64-bit division on a paced
//! wire). No allocation after construction, except by `swap`, `reconfigure` and `drain`.
//!
//! **Conservation**, after every call: packets in = packets sent + queued + in the ring + sum of
//! drops by reason ([`Link::qostat`], [`Link::held`]).

mod audit;
mod blocking;
mod config;
mod events;
mod framing;
mod handover;
mod pass;
mod ring;
mod sink;
mod stream;
mod wire;

use alloc::collections::VecDeque;
use alloc::vec::Vec;

pub use crate::shape::ShaperConfig;
pub use config::{LinkConfig, Refill, RingConfig};
pub use framing::{Cells, Framing, FramingConfig, Overhead};
pub use handover::{Handover, Translate};
use sink::Drops;
pub use sink::LinkSink;

use crate::audit::Audit;
use crate::measure::Qostat;

use crate::packet::Packet;
use crate::reason::Reason;
use crate::schedule::{DropSink, Scheduler, Treated, Wake};
use crate::settings::{Change, SettingError, Settings, in_range};
use crate::shape::Shaper;
use crate::units::Nanos;
use ring::Ring;
use wire::Wire;

/// How many packets a link holds.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Held {
    /// In the scheduler.
    pub queued: u64,
    /// In the transmit ring, the one on the wire included.
    pub in_ring: u64,
}

/// What the transmit side does next.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Start {
    /// The last call gave nothing. An arrival or a completion starts it, or the time the scheduler
    /// asked for (`Nanos::MAX`: none).
    Idle { wake: Nanos },
    /// The scheduler is called at this instant.
    Due(Nanos),
    /// The shaper lets the next packet pass at this instant.
    Shaped(Nanos),
    /// The ring has no slot. A completion starts it.
    Full,
    /// The link has no rate and its port had no room: tried again by every `advance`.
    Blocked,
}

impl Start {
    fn instant(self) -> Nanos {
        match self {
            Self::Idle { wake } => wake,
            Self::Due(at) | Self::Shaped(at) => at,
            Self::Full | Self::Blocked => Nanos::MAX,
        }
    }
}

/// An outgoing link. See the [module](self) for what happens when.
#[derive(Debug)]
pub struct Link<P, S> {
    config: LinkConfig,
    /// What `config` says of lengths.
    framing: Framing,
    /// Nothing between scheduler and port takes time: see [`LinkConfig::is_straight`].
    is_straight: bool,
    scheduler: S,
    shaper: Option<Shaper>,
    ring: Ring<P>,
    wire: Wire,
    qostat: Qostat,
    audit: Audit,
    start: Start,
    /// When the processor is through with the last scheduler call.
    processor_free: Nanos,
    /// Arrivals that wait for the end of a refill.
    waiting: VecDeque<P>,
    /// When the scheduler's periodic work is due; `Nanos::MAX`: never. `None` before the first call
    /// told us the time.
    tick: Option<Nanos>,
    /// The latest instant that was told.
    clock: Nanos,
}

impl<P: Packet, S: Scheduler<P>> Link<P, S> {
    /// A link with nothing on it. `classes` is how many classes are metered (1 to
    /// [`LinkConfig::MAX_CLASSES`]); packets of others count as class 0. A shaper starts with a
    /// full bucket.
    ///
    /// # Errors
    /// [`SettingError::OutOfRange`] if a value is out of its range.
    pub fn new(config: LinkConfig, mut scheduler: S, classes: u16) -> Result<Self, SettingError> {
        config.check()?;
        scheduler.set_rate(config.slowest());
        in_range("classes", classes.into(), 1..=LinkConfig::MAX_CLASSES.into(), "classes")?;
        Ok(Self {
            config,
            framing: config.framing.framing(),
            is_straight: config.is_straight(),
            scheduler,
            shaper: config.shaper.map(|shaper| Shaper::new(shaper, Nanos::ZERO)),
            ring: Ring::new(config.ring),
            wire: Wire::new(config.rate),
            qostat: Qostat::new(classes),
            audit: Audit::new(classes),
            start: Start::Idle { wake: Nanos::MAX },
            processor_free: Nanos::ZERO,
            waiting: VecDeque::new(),
            tick: None,
            clock: Nanos::ZERO,
        })
    }

    /// Lets everything happen that is due up to `now`, in the order of time. A `now` before that of
    /// an earlier call counts as that one.
    pub fn advance(&mut self, now: Nanos, sink: &mut impl LinkSink<P>) {
        let now = self.arrive_at(now, sink);
        if self.start == Start::Blocked && sink.room() > 0 {
            self.kick(now);
            self.run(now, sink);
        }
    }

    /// A packet arrives at `now`. First [`advance`](Self::advance)s to `now`; then the packet goes
    /// to the scheduler, and the transmit side starts if it was idle.
    pub fn enqueue(&mut self, now: Nanos, packet: P, sink: &mut impl LinkSink<P>) -> Treated {
        match self.pass(now, &packet, sink.room()) {
            Some(treated) => {
                sink.transmitted(self.clock, packet);
                treated
            }
            None => self.queue(now, packet, sink),
        }
    }

    /// [`enqueue`](Self::enqueue) of a packet that does not [pass](Self::pass).
    pub fn queue(&mut self, now: Nanos, packet: P, sink: &mut impl LinkSink<P>) -> Treated {
        let now = self.arrive_at(now, sink);
        self.take_in(now, packet, sink)
    }

    /// [`queue`](Self::queue) of packets one after the other, each when it arrived, but none before
    /// `floor`. `told` hears of each when that was, how it was treated, and where its flow is
    /// ([`Scheduler::last_place`]).
    #[inline]
    pub fn queue_all(
        &mut self,
        floor: Nanos,
        packets: impl Iterator<Item = P>,
        sink: &mut impl LinkSink<P>,
        mut told: impl FnMut(Nanos, Treated, u32),
    ) {
        let mut packets = packets;
        let mut next = packets.next();
        while let Some(packet) = next {
            let now = self.arrive_at(packet.arrival().max(floor), sink);
            let treated = self.take_in(now, packet, sink);
            told(now, treated, self.scheduler.last_place());
            next = self.queue_quietly(&mut packets, sink, &mut told);
        }
        self.scheduler.publish();
    }

    /// The same of the first packets, up to one with which something else happens: that one.
    #[inline(always)] // a part of a loop
    fn queue_quietly(
        &mut self,
        packets: &mut impl Iterator<Item = P>,
        sink: &mut impl LinkSink<P>,
        told: &mut impl FnMut(Nanos, Treated, u32),
    ) -> Option<P> {
        let quiet = self.quiet_until();
        let Self { scheduler, qostat, audit, clock, .. } = self;
        let ledger = &mut audit.ledger;
        let mut drops = Drops { sink, qostat, ledger, at: *clock, because: None };
        for packet in packets {
            let at = packet.arrival().max(drops.at);
            if at >= quiet {
                return Some(packet);
            }
            (*clock, drops.at) = (at, at);
            drops.qostat.came(at, &packet);
            drops.ledger.came(&packet);
            let (treated, place) = scheduler.take_in(at, packet, &mut drops);
            told(at, treated, place);
        }
        None
    }

    /// Until when arrivals do nothing but enter the discipline: nothing else is due before, and the
    /// transmit side has to do already.
    fn quiet_until(&self) -> Nanos {
        let starts = !matches!(self.start, Start::Due(_) | Start::Full);
        if starts || self.blocks() || !self.waiting.is_empty() {
            return Nanos::ZERO;
        }
        self.next_event().min(self.audit.due)
    }

    /// A packet goes to the scheduler at `now`, to which the link has advanced.
    #[inline(always)] // or what a run of packets asks for is loaded for each
    fn take_in(&mut self, now: Nanos, packet: P, sink: &mut impl LinkSink<P>) -> Treated {
        self.qostat.came(now, &packet);
        self.audit.ledger.came(&packet);
        let blocked = self.blocks() && now < self.processor_free;
        // Behind those that wait already, whatever the rule is by now: the order of a flow is kept.
        if blocked || !self.waiting.is_empty() {
            return self.wait(now, packet, sink);
        }
        let (qostat, ledger) = (&mut self.qostat, &mut self.audit.ledger);
        let drops = &mut Drops { sink, qostat, ledger, at: now, because: None };
        let treated = self.scheduler.enqueue(now, packet, drops);
        match (self.start, treated) {
            (Start::Idle { .. }, Treated::Dropped(_)) => self.still_idle(now),
            // While the shaper waits, another packet may have come to the front.
            (Start::Idle { .. } | Start::Shaped(_) | Start::Blocked, _) => self.kick(now),
            // Nothing more is due than before.
            (Start::Due(_) | Start::Full, _) => return treated,
        }
        self.run(now, sink);
        treated
    }

    /// Forgets the capacity of a paced wire before `until`, as if the computer had stopped: packets
    /// that were due earlier leave from `until` on. After a pause, a caller bounds the burst that
    /// leaves at once to the bits of the time from `until` to its next `now`, and a packet. Call it
    /// before [`advance`](Self::advance).
    pub fn hold(&mut self, until: Nanos) {
        self.audit.late(until.saturating_sub(self.wire.done().min(self.clock)), until);
        self.wire.hold(until);
    }

    /// A packet that is not let in arrives at `now`: it counts as offered and as dropped for
    /// `reason`; the discipline never sees it.
    pub fn refuse(&mut self, now: Nanos, packet: P, reason: Reason, sink: &mut impl LinkSink<P>) {
        let now = self.arrive_at(now, sink);
        self.qostat.came(now, &packet);
        self.qostat.lost(now, &packet, reason);
        sink.dropped(now, packet, reason);
    }

    /// When something happens next although nothing arrives: the instant to call
    /// [`advance`](Self::advance) at. After the latest `now` told. A link without a rate whose port
    /// had no room cannot tell: `advance` it when the port has.
    #[must_use]
    pub fn next_wake(&self) -> Option<Nanos> {
        let at = self.next_event();
        (at != Nanos::MAX).then_some(at)
    }

    /// Changes a knob of the discipline and starts the transmit side if that released something.
    ///
    /// # Errors
    /// [`SettingError`] as the discipline says; nothing changed then.
    pub fn set(
        &mut self,
        now: Nanos,
        change: &Change,
        sink: &mut impl LinkSink<P>,
    ) -> Result<(), SettingError> {
        let now = self.arrive_at(now, sink);
        let wake = self.scheduler.set(now, change)?;
        match (self.start, wake) {
            (Start::Idle { .. } | Start::Shaped(_), Wake::Now) => self.kick(now),
            (Start::Idle { .. }, Wake::No) => self.still_idle(now),
            _ => {}
        }
        self.run(now, sink);
        Ok(())
    }

    /// Changes the discipline otherwise than by a setting, and starts the transmit side if
    /// something waits. What it drops is counted.
    pub fn alter<R>(
        &mut self,
        now: Nanos,
        sink: &mut impl LinkSink<P>,
        change: impl FnOnce(&mut S, Nanos, &mut dyn DropSink<P>) -> R,
    ) -> R {
        let now = self.arrive_at(now, sink);
        let because = Some(Reason::Reconfigured);
        let (qostat, ledger) = (&mut self.qostat, &mut self.audit.ledger);
        let drops = &mut Drops { sink, qostat, ledger, at: now, because };
        let result = change(&mut self.scheduler, now, drops);
        self.restart(now);
        self.run(now, sink);
        result
    }

    /// Puts another discipline in place of the present one, which it gives back empty: its memory
    /// takes time to free. What is queued moves over in the order of its arrival, stamps kept; what
    /// the new one has no room for is dropped as [`Reason::Reconfigured`]. The ring and the wire
    /// are not touched.
    pub fn swap(&mut self, now: Nanos, scheduler: S, sink: &mut impl LinkSink<P>) -> S {
        let now = self.arrive_at(now, sink);
        let moved = self.unqueue();
        let former = core::mem::replace(&mut self.scheduler, scheduler);
        self.scheduler.set_rate(self.config.slowest());
        for packet in moved {
            let because = Some(Reason::Reconfigured);
            let (qostat, ledger) = (&mut self.qostat, &mut self.audit.ledger);
            let drops = &mut Drops { sink, qostat, ledger, at: now, because };
            let _ = self.scheduler.enqueue(now, packet, drops);
        }
        self.tick = Some(self.ticked(now));
        self.restart(now);
        self.run(now, sink);
        former
    }

    /// What is queued, in the order of its arrival.
    fn unqueue(&mut self) -> Vec<P> {
        let mut queued = Vec::with_capacity(self.held().queued as usize);
        self.scheduler.drain(&mut |packet| queued.push(packet));
        queued.extend(self.waiting.drain(..));
        // Stable, so a flow whose packets carry equal stamps keeps its order.
        queued.sort_by_key(|packet: &P| packet.arrival());
        queued
    }

    /// Changes rate, ring, dequeue time and shaper. Nothing is lost: a ring that becomes smaller
    /// keeps what it has; the bits of the packet on the wire that have not left go at the new rate;
    /// a shaper keeps its credit up to the new burst, a new one starts with a full bucket. Without
    /// a rate the ring's packets leave while the port has room.
    ///
    /// # Errors
    /// [`SettingError::OutOfRange`] if a value is out of its range; nothing changed then.
    pub fn reconfigure(
        &mut self,
        now: Nanos,
        config: LinkConfig,
        sink: &mut impl LinkSink<P>,
    ) -> Result<(), SettingError> {
        config.check()?;
        let now = self.arrive_at(now, sink);
        match (&mut self.shaper, config.shaper) {
            (Some(shaper), Some(wanted)) => shaper.reconfigure(now, wanted),
            (shaper, wanted) => *shaper = wanted.map(|wanted| Shaper::new(wanted, now)),
        }
        self.ring.reconfigure(config.ring);
        self.wire.set_rate(now, config.rate);
        if self.wire.is_idle() {
            self.begin(now);
        }
        self.config = config;
        self.framing = config.framing.framing();
        self.scheduler.set_rate(config.slowest());
        self.is_straight = config.is_straight();
        self.restart(now);
        self.run(now, sink);
        Ok(())
    }

    /// Everything still held at `now` is dropped for `reason`: the link went down, or stops.
    pub fn drain(&mut self, now: Nanos, reason: Reason, sink: &mut impl LinkSink<P>) {
        let now = self.arrive_at(now, sink);
        self.wire.abort(now);
        let (qostat, ledger) = (&mut self.qostat, &mut self.audit.ledger);
        while let Some((packet, _)) = self.ring.pop() {
            ledger.lost(&packet, qostat);
            qostat.lost_behind(&packet, reason);
            sink.dropped(now, packet, reason);
        }
        let mut drop = |packet: P| {
            ledger.lost(&packet, qostat);
            qostat.lost(now, &packet, reason);
            sink.dropped(now, packet, reason);
        };
        self.scheduler.drain(&mut drop);
        self.waiting.drain(..).for_each(drop);
        self.restart(now);
    }

    /// The meters.
    #[must_use]
    pub fn qostat(&self) -> &Qostat {
        &self.qostat
    }

    /// The discipline.
    #[must_use]
    pub fn scheduler(&self) -> &S {
        &self.scheduler
    }

    /// What the link was told to be.
    #[must_use]
    pub fn config(&self) -> &LinkConfig {
        &self.config
    }

    /// How long packets are on its line: for whoever hands them over, see
    /// [`Packet::wire_len`]. Those that wait keep the length that they came with.
    #[must_use]
    pub const fn framing(&self) -> Framing {
        self.framing
    }

    /// How much of the wire's time was lost because whoever drives the link came too late:
    /// [`hold`](Self::hold) kept it from catching up while something was on it.
    #[must_use]
    pub fn lost_time(&self) -> Nanos {
        self.wire.lost_time()
    }

    /// How long the wire has been idle since the start of time (`Nanos::ZERO`), up to the latest
    /// instant told or `now`, whichever is later. Never falls. It is the wire that counts: a
    /// scheduler whose last packet went into the ring is empty, the link is not idle. A link
    /// without a rate has no wire and is always idle. [`advance`](Self::advance) to `now` first.
    #[must_use]
    pub fn idle_time(&self, now: Nanos) -> Nanos {
        self.wire.idle_time(now.max(self.clock))
    }

    /// How many packets it holds.
    #[must_use]
    pub fn held(&self) -> Held {
        Held {
            queued: self.scheduler.backlog().packets + self.waiting.len() as u64,
            in_ring: self.ring.len() as u64,
        }
    }
}
