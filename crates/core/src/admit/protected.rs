//! The list of protected flows of a link (PFL).
//!
//! A bounded table with full keys ([`FlowTable`]); 64 bytes per flow, key, stamps and links
//! included:
//!
//! ```text
//! key 40 | chain links 8 | seen 4 | elastic_at 4 | admitted 3 | next hop 1 | recent bytes 2 | TTL 1 | bits 1
//! ```
//!
//! `seen` and `elastic_at` count 2^16 ns (66 us), `admitted` counts 2^24 ns (17 ms); all wrap after
//! 78 hours and ages are told up to half of that. `recent` counts 64 bytes in an interval T_FR and
//! stays full at 4 MiB.
//!
//! **Expiry.** A flow is given up when it was silent for longer than the flow time-out, which a
//! look-up sees at once. All others are found by a hand that passes over the table, some places at
//! every tick and some at every newcomer that finds the list full. While more than half of the list
//! is taken it also gives up flows that have not proved themselves, after the probation time. A
//! flow proves itself with a packet that comes at least [`PROOF`] estimates of the load after its
//! admission, so that a few packets at once are no proof; without a budget of first packets, with
//! its second packet. Slow flows keep their place as long as places are not rare. It also tells
//! flows that are not elastic any more.
//!
//! **Complexity.** Constant per packet. [`ProtectedList::most_active`] passes over the whole list,
//! once per clearing; [`ProtectedList::busiest`] over at most [`PICK`] places, which is exact in
//! lists of no more. In larger ones places follow the seeded hash of their flows, so those are a
//! random sample: with n flows in it, the chance that a part q of all flows is more active than the
//! one chosen is (1 - q)^n, one in a thousand for 0.17 % with 4,096. [`ProtectedList::oldest`] is
//! exact and constant: while it is wanted, listed flows are a chain in the order of their
//! admission, for 8 bytes more per flow.

use alloc::vec::Vec;

use super::view::{Pin, ProtectedFlow, Removal};
use super::{AdmissionConfig, Backlogs, SecondLinkPolicy};
use crate::flow_table::{EntryId, FlowTable, PackedFlow};
use crate::packet::Packet;
use crate::schedule::flow_list::{Chain, Links};
use crate::settings::SettingError;
use crate::units::{Bytes, Nanos};

/// Most places that the search for one flow looks at.
pub(super) const PICK: u32 = 4_096;
/// After so many intervals of the load a flow that still comes has proved itself.
pub(super) const PROOF: u64 = 2;
/// Places that a newcomer looks at when the list is full.
pub(super) const SEARCH: u32 = 32;

/// It has proved itself.
const PROVED: u8 = 1;
/// A packet entered an elastic queue within the class window.
const ELASTIC: u8 = 2;
/// A packet entered an elastic queue since admission.
const TURNED: u8 = 4;
/// It entered while ECCM held the link open, and is in its table.
const ECCM: u8 = 8;

/// Instants in units of 2^16 ns.
pub(super) const fn stamp(now: Nanos) -> u32 {
    (now.0 >> 16) as u32
}

/// How long ago `then` was, at `now`.
pub(super) const fn age(now: Nanos, then: u32) -> Nanos {
    Nanos((stamp(now).wrapping_sub(then) as u64) << 16)
}

/// A place in the list.
#[derive(Clone, Copy, Debug)]
pub(super) struct FlowRecord {
    seen: u32,
    elastic_at: u32,
    /// Bits 8 to 31: when it was admitted, in units of 2^24 ns. Bits 0 to 7: next hop.
    admitted: u32,
    recent: u16,
    ttl: u8,
    /// Bits 0 to 3: above. Bits 4 to 7: the interval of `recent`, modulo 16.
    bits: u8,
}

impl FlowRecord {
    fn admitted_age(&self, now: Nanos) -> Nanos {
        let then = self.admitted >> 8;
        let ticks = ((now.0 >> 24) as u32).wrapping_sub(then) & 0x00ff_ffff;
        Nanos(u64::from(ticks) << 24)
    }
}

/// What a packet found of its flow.
pub(super) struct Touched {
    /// The flow has proved itself with it.
    pub(super) proves: bool,
    pub(super) states: States,
}

/// What flows are, all of them together.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct States(u8);

impl States {
    #[inline]
    pub(super) fn add(&mut self, other: Self) {
        self.0 |= other.0;
    }

    pub(super) fn add_elastic(&mut self, elastic: bool) {
        self.0 |= if elastic { ELASTIC } else { 0 };
    }

    /// Whether some flow counts as elastic.
    #[inline]
    pub(super) fn some_elastic(self) -> bool {
        self.0 & ELASTIC != 0
    }
}

/// The list. See the [module](self).
#[derive(Clone, Debug)]
pub(super) struct ProtectedList {
    table: FlowTable<FlowRecord>,
    hand: u32,
    elastic: u32,
    unproved: u32,
    flips: u64,
    interval: u8,
    timeout: Nanos,
    probation: Nanos,
    /// Least age of a flow that proves itself.
    proof: Nanos,
    window: Nanos,
    /// The flows in the order of their admission, where MFAN asks for the oldest.
    order: Option<(Links, Chain)>,
}

impl ProtectedList {
    pub(super) fn new(config: &AdmissionConfig, seed: u64) -> Result<Self, SettingError> {
        let mut list = Self {
            table: FlowTable::new(config.flows, seed)?,
            hand: 0,
            elastic: 0,
            unproved: 0,
            flips: 0,
            interval: 0,
            timeout: Nanos::ZERO,
            probation: Nanos::ZERO,
            proof: Nanos::ZERO,
            window: Nanos::ZERO,
            order: None,
        };
        list.configure(config);
        Ok(list)
    }

    pub(super) fn configure(&mut self, config: &AdmissionConfig) {
        self.timeout = config.flow_timeout;
        self.probation = match config.probation {
            Nanos::ZERO => config.flow_timeout,
            probation => probation,
        };
        // Ages are told to 2^24 ns: a unit more is not too early.
        let unit = Nanos(1 << 24);
        let time = Nanos(config.load_interval.0.saturating_mul(PROOF)).saturating_add(unit);
        self.proof = if config.budget.on { time } else { Nanos::ZERO };
        self.window = config.class_window();
        let second = &config.second_link;
        let oldest = second.rate.is_some() && second.policy == SecondLinkPolicy::Oldest;
        if oldest != self.order.is_some() {
            self.order = oldest.then(|| self.ordered());
        }
    }

    /// The chain of flows that are listed already; those of the same 17 ms by place.
    fn ordered(&self) -> (Links, Chain) {
        let now = self.ids().map(|id| self.table.value(id).admitted >> 8).max().unwrap_or(0);
        let mut ids: Vec<EntryId> = self.ids().collect();
        ids.sort_by_key(|id| {
            core::cmp::Reverse(now.wrapping_sub(self.table.value(*id).admitted >> 8) & 0x00ff_ffff)
        });
        let (mut links, mut chain) = (Links::new(self.table.capacity()), Chain::EMPTY);
        ids.iter().for_each(|id| links.push(&mut chain, id.link()));
        (links, chain)
    }

    pub(super) fn len(&self) -> u32 {
        self.table.len()
    }
    pub(super) fn capacity(&self) -> u32 {
        self.table.capacity()
    }
    pub(super) fn is_full(&self) -> bool {
        self.table.is_full()
    }
    pub(super) fn elastic(&self) -> u32 {
        self.elastic
    }
    pub(super) fn unproved(&self) -> u32 {
        self.unproved
    }
    pub(super) fn flips(&self) -> u64 {
        self.flips
    }
    pub(super) fn memory(&self) -> usize {
        let order = self.order.as_ref().map_or(0, |_| self.table.capacity() as usize * 8);
        self.table.memory() + order
    }
    #[inline]
    pub(super) fn prefetch_bucket(&self, hash: u64) {
        self.table.prefetch_bucket(hash);
    }
    #[inline]
    pub(super) fn prefetch(&self, hash: u64) {
        self.table.prefetch(hash);
    }
    #[inline]
    pub(super) fn places_ahead(&self) -> impl Fn(u32) + use<'_> {
        let places = self.table.places_ahead();
        move |place| places(place as usize)
    }
    /// The flow of a packet, if it is where the one before of it was.
    #[inline]
    pub(super) fn guessed(&self, packet: &impl Packet) -> Option<EntryId> {
        self.table.guessed(packet.places().listed, |flow| packet.is_of(flow))
    }
    #[inline]
    pub(super) fn find(&self, hash: u64, key: &PackedFlow) -> Option<EntryId> {
        self.table.find(hash, key)
    }
    pub(super) fn key(&self, id: EntryId) -> &PackedFlow {
        self.table.key(id)
    }

    /// Whether the flow was silent for too long: for how long, against the time-out.
    #[inline]
    pub(super) fn expired(&self, id: EntryId, now: Nanos) -> Option<(Nanos, Nanos)> {
        let silent = age(now, self.table.value(id).seen);
        (silent > self.timeout).then_some((silent, self.timeout))
    }

    /// Whether the entry must go: the flow was silent for too long, or it does not prove itself and
    /// places are rare.
    fn stale(&self, id: EntryId, now: Nanos) -> Option<(Removal, Nanos, Nanos)> {
        if let Some((silent, allowed)) = self.expired(id, now) {
            return Some((Removal::Silent, silent, allowed));
        }
        let entry = self.table.value(id);
        let silent = age(now, entry.seen);
        let rare = self.table.len() > self.table.capacity() / 2;
        (rare && entry.bits & PROVED == 0 && silent > self.probation).then_some((
            Removal::OnePacket,
            silent,
            self.probation,
        ))
    }

    /// A packet of a listed flow came. `None`: it was silent for too long, see
    /// [`expired`](Self::expired), and nothing changed.
    #[inline]
    pub(super) fn touch(&mut self, id: EntryId, now: Nanos, length: Bytes) -> Option<Touched> {
        let (interval, proof, timeout) = (self.interval, self.proof, self.timeout);
        let entry = self.table.value_mut(id);
        if age(now, entry.seen) > timeout {
            return None;
        }
        entry.seen = stamp(now);
        if entry.bits >> 4 != interval {
            entry.recent = 0;
            entry.bits = entry.bits & 0x0f | interval << 4;
        }
        entry.recent = entry.recent.saturating_add(units(length));
        let proves = entry.bits & PROVED == 0 && entry.admitted_age(now) >= proof;
        if proves {
            entry.bits |= PROVED;
            self.unproved -= 1;
        }
        Some(Touched { proves, states: States(entry.bits) })
    }

    /// Lists a flow that is not listed; `None` if the list is full.
    #[inline(always)] // what is listed is in registers
    pub(super) fn insert(
        &mut self,
        hash: u64,
        key: PackedFlow,
        now: Nanos,
        pin: Pin,
        length: Bytes,
    ) -> Option<EntryId> {
        let entry = FlowRecord {
            seen: stamp(now),
            elastic_at: stamp(now),
            admitted: ((now.0 >> 24) as u32) << 8 | u32::from(pin.next_hop),
            recent: units(length),
            ttl: pin.ttl,
            bits: self.interval << 4,
        };
        let id = self.table.insert(hash, key, entry).ok()?;
        self.unproved += 1;
        if let Some((links, chain)) = &mut self.order {
            links.push(chain, id.link());
        }
        Some(id)
    }

    /// Lists a flow that was listed elsewhere, as it was known there, if there is room.
    pub(super) fn go_on(&mut self, hash: u64, key: PackedFlow, known: &ProtectedFlow, now: Nanos) {
        let pin = known.pin.unwrap_or(Pin { next_hop: 0, ttl: 0 });
        let Some(id) = self.insert(hash, key, known.admitted.min(now), pin, known.recent) else {
            return;
        };
        self.table.value_mut(id).seen = stamp(known.seen.min(now));
        if !known.probation {
            self.table.value_mut(id).bits |= PROVED;
            self.unproved -= 1;
        }
        if known.elastic {
            self.treated(id, known.seen.min(now), true);
        }
    }

    /// Takes a flow off the list.
    pub(super) fn remove(&mut self, id: EntryId) {
        let entry = self.table.remove(id);
        if let Some((links, chain)) = &mut self.order {
            links.unlink(chain, id.link());
        }
        self.unproved -= u32::from(entry.bits & PROVED == 0);
        self.elastic -= u32::from(entry.bits & ELASTIC != 0);
    }

    /// The scheduler put a packet of the flow into an elastic queue, or among the priority packets.
    #[inline]
    pub(super) fn treated(&mut self, id: EntryId, now: Nanos, elastic: bool) {
        let entry = self.table.value_mut(id);
        if elastic {
            entry.elastic_at = stamp(now);
            if entry.bits & ELASTIC == 0 {
                self.elastic += 1;
                self.flips += 1;
            }
            entry.bits |= ELASTIC | TURNED;
        } else {
            self.reclass(id, now);
        }
    }

    /// Tells whether the flow is elastic at `now`.
    #[inline]
    fn reclass(&mut self, id: EntryId, now: Nanos) -> bool {
        let window = self.window;
        let entry = self.table.value_mut(id);
        if entry.bits & ELASTIC != 0 && age(now, entry.elastic_at) > window {
            entry.bits &= !ELASTIC;
            self.elastic -= 1;
            self.flips += 1;
        }
        entry.bits & ELASTIC != 0
    }

    /// Marks the flow as one that ECCM let in.
    pub(super) fn mark_eccm(&mut self, id: EntryId) {
        self.table.value_mut(id).bits |= ECCM;
    }

    /// Takes ECCM's mark off; whether it was there and the flow has turned elastic since its
    /// admission.
    pub(super) fn unmark_eccm(&mut self, id: EntryId) -> bool {
        if !self.table.contains(id) {
            return false;
        }
        let entry = self.table.value_mut(id);
        let goes = entry.bits & (ECCM | TURNED) == ECCM | TURNED;
        entry.bits &= !ECCM;
        goes
    }

    /// Whether a packet of the flow at a place entered an elastic queue since its admission.
    pub(super) fn has_turned(&self, id: EntryId) -> bool {
        self.table.contains(id) && self.table.value(id).bits & TURNED != 0
    }

    /// Whether the flow at a place is one that was let in while the link was closed.
    pub(super) fn is_guest(&self, id: EntryId) -> bool {
        self.table.contains(id) && self.table.value(id).bits & ECCM != 0
    }

    /// A new interval T_FR begins.
    pub(super) fn next_interval(&mut self) {
        self.interval = self.interval.wrapping_add(1) & 0x0f;
    }

    /// The next place of the hand that holds a flow which must go, looking at no more than `left`
    /// places.
    pub(super) fn next_stale(
        &mut self,
        now: Nanos,
        left: &mut u32,
    ) -> Option<(EntryId, Removal, Nanos, Nanos)> {
        while *left > 0 {
            *left -= 1;
            let id = EntryId::from_link(self.hand);
            self.hand = if self.hand + 1 < self.table.capacity() { self.hand + 1 } else { 0 };
            if !self.table.contains(id) {
                continue;
            }
            if let Some((removal, silent, allowed)) = self.stale(id, now) {
                return Some((id, removal, silent, allowed));
            }
            self.reclass(id, now);
            // Ages are told up to 39 hours; what is older is as old as that.
            let entry = self.table.value_mut(id);
            if entry.admitted_age(now) > OLDEST {
                let then = ((now.0 >> 24) as u32).wrapping_sub((OLDEST.0 >> 24) as u32);
                entry.admitted = then << 8 | entry.admitted & 0xff;
            }
        }
        None
    }

    /// Every flow, by place.
    fn ids(&self) -> impl Iterator<Item = EntryId> + '_ {
        (0..self.table.capacity()).map(EntryId::from_link).filter(|id| self.table.contains(*id))
    }

    /// Whether the flow at a place is to be cleared: every one, or elastic ones listed for at least
    /// `active`.
    pub(super) fn selected(
        &mut self,
        place: u32,
        now: Nanos,
        all: bool,
        active: Nanos,
    ) -> Option<EntryId> {
        let id = EntryId::from_link(place);
        if !self.table.contains(id) {
            return None;
        }
        let elastic = self.reclass(id, now);
        let old = self.table.value(id).admitted_age(now) >= active;
        (all || elastic && old).then_some(id)
    }

    /// Puts the elastic flows with the largest backlogs into `found`, up to its capacity, the first
    /// first; among equals those that sent most in the last T_FR.
    pub(super) fn most_active(
        &mut self,
        now: Nanos,
        backlogs: Backlogs<'_>,
        most: usize,
        found: &mut Vec<Active>,
    ) {
        found.clear();
        for place in 0..self.table.capacity() {
            let Some(id) = self.selected(place, now, false, Nanos::ZERO) else { continue };
            let active = self.active(id, backlogs);
            let at = found.partition_point(|other| other.rank() >= active.rank());
            if at < most {
                if found.len() >= most {
                    found.pop();
                }
                found.insert(at, active);
            }
        }
    }

    fn active(&self, id: EntryId, backlogs: Backlogs<'_>) -> Active {
        Active {
            id,
            backlog: backlogs.of_flow(&self.table.key(id).unpack()),
            recent: self.recent(id),
        }
    }

    /// The flow with the largest backlog among [`PICK`] places from the hand on, among equals the
    /// one that sent most of late: see the [module](self).
    pub(super) fn busiest(&mut self, backlogs: Backlogs<'_>) -> Option<EntryId> {
        let places = self.table.capacity();
        let (from, looked) = (self.hand, PICK.min(places));
        let place = |n: u32| ((u64::from(from) + u64::from(n)) % u64::from(places)) as u32;
        self.hand = place(looked);
        let held =
            (0..looked).map(|n| EntryId::from_link(place(n))).filter(|id| self.table.contains(*id));
        held.max_by_key(|id| (self.active(*id, backlogs).rank(), core::cmp::Reverse(id.link())))
    }

    /// The flow listed longest, where that is kept.
    pub(super) fn oldest(&self) -> Option<EntryId> {
        self.order.as_ref().and_then(|(_, chain)| chain.head()).map(EntryId::from_link)
    }

    /// Bytes in the present interval, or in the last one if none came in this.
    fn recent(&self, id: EntryId) -> Bytes {
        let entry = self.table.value(id);
        let before = self.interval.wrapping_sub(1) & 0x0f;
        let told = [self.interval, before].contains(&(entry.bits >> 4));
        Bytes(if told { u64::from(entry.recent) * 64 } else { 0 })
    }

    /// What is known of a flow.
    pub(super) fn describe(&self, id: EntryId, now: Nanos) -> ProtectedFlow {
        let entry = self.table.value(id);
        ProtectedFlow {
            admitted: now.saturating_sub(entry.admitted_age(now)),
            seen: now.saturating_sub(age(now, entry.seen)),
            elastic: entry.bits & ELASTIC != 0 && age(now, entry.elastic_at) <= self.window,
            probation: entry.bits & PROVED == 0,
            recent: self.recent(id),
            pin: Some(self.pin(id)),
        }
    }

    /// The path of a flow.
    pub(super) fn pin(&self, id: EntryId) -> Pin {
        let entry = self.table.value(id);
        Pin { next_hop: (entry.admitted & 0xff) as u8, ttl: entry.ttl }
    }

    /// Every flow that is listed, with what is known of it.
    pub(super) fn flows(
        &self,
        now: Nanos,
    ) -> impl Iterator<Item = (&PackedFlow, ProtectedFlow)> + '_ {
        self.ids().map(move |id| (self.table.key(id), self.describe(id, now)))
    }
}

/// Ages beyond are not told.
const OLDEST: Nanos = Nanos(1 << 47);

/// A flow and what it has waiting.
#[derive(Clone, Copy, Debug)]
pub(super) struct Active {
    pub(super) id: EntryId,
    backlog: Bytes,
    recent: Bytes,
}

impl Active {
    fn rank(&self) -> (Bytes, Bytes) {
        (self.backlog, self.recent)
    }
}

/// Bytes in units of 64, rounded up, as far as they can be told.
fn units(length: Bytes) -> u16 {
    u16::try_from(length.0.div_ceil(64)).unwrap_or(u16::MAX)
}
