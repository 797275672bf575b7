//! What a node is made of: what every packet needs in one line of the cache, the rest elsewhere.

use super::plan::{Brood, PlanNode, WEIGHT_UNIT};
use super::turns::{Members, Turn, Turns, UNIT};
use crate::schedule::longest::ListNumber;
use crate::schedule::slab::NIL;
use crate::units::{BitRate, Bytes, Nanos};

/// Instants are counted in sixteenths of a nanosecond: what a short packet takes at 10 Gbit/s is
/// not rounded away.
const FINE: u32 = 4;
/// Times per byte have so many bits more.
const COST: u32 = 20;
/// A millisecond.
const MILLI: u64 = 1_000_000 << FINE;
/// What every burst has room for four times.
const LONGEST: u64 = 1_538;
/// How far ahead a guarantee is used up at most, and how much of it is kept: 10 ms, in which each
/// of those who share guarantees has several turns.
const ASSURED: u64 = 10 * MILLI;

/// An instant as caps count it.
pub(super) fn fine(now: Nanos) -> u64 {
    now.0.min(u64::MAX >> (FINE + 1)) << FINE
}

/// A rate as a virtual time per byte; zero: none.
///
/// A token bucket as one number (GCRA, ITU-T I.371): when the bucket will be full. Packets may go
/// while that is at most a tolerance ahead.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Pace(u64);

impl Pace {
    pub(super) fn new(rate: Option<BitRate>) -> Self {
        let Some(rate) = rate.filter(|rate| rate.0 > 0) else { return Self(0) };
        let cost = (8_000_000_000u128 << (FINE + COST)).div_ceil(rate.0.into());
        Self(cost as u64)
    }

    pub(super) const fn is_none(self) -> bool {
        self.0 == 0
    }

    /// What so many bytes take, rounded up.
    #[inline]
    pub(super) const fn time(self, bytes: u64) -> u64 {
        (bytes * self.0 + (1 << COST) - 1) >> COST
    }

    /// How far ahead the virtual time may be of a node that may send: three packets, or what a
    /// millisecond has beyond one. So over any time a node sends at most what its cap gives in it,
    /// that, and a packet.
    #[inline]
    pub(super) fn tolerance(self) -> u64 {
        let packet = self.time(LONGEST);
        (3 * packet).max(MILLI.saturating_sub(packet))
    }
}

/// What every packet of a node needs.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(super) struct Hot {
    /// When the bucket of its cap will be full.
    pub(super) full_at: u64,
    pub(super) cap: Pace,
    /// Its place among its siblings.
    pub(super) turn: Turn,
    /// In thousandths; 0: as the smallest of its siblings.
    weight: u32,
    /// Whose turn it is among its children, or flows.
    pub(super) turns: Turns,
    /// Its parent in the low bits, flags in the high ones.
    parent: u32,
}

const _: () = assert!(size_of::<Hot>() == 64);

/// Something below it, or in it, may go, and its cap lets it.
pub(super) const READY: u32 = 1 << 31;
/// It is in a list of its parent's turns.
pub(super) const LISTED: u32 = 1 << 30;
/// It is in its parent's list of those that have not had what is guaranteed.
pub(super) const ASSURED_LISTED: u32 = 1 << 29;
/// It is a subscriber.
pub(super) const LEAF: u32 = 1 << 28;
/// It waits for its own cap.
pub(super) const CAPPED: u32 = 1 << 27;
/// It is in use.
pub(super) const USED: u32 = 1 << 26;
const PARENT: u32 = (1 << 24) - 1;

impl Hot {
    pub(super) const FREE: Self = Self {
        full_at: 0,
        cap: Pace(0),
        turn: Turn::NEW,
        weight: 0,
        turns: Turns::EMPTY,
        parent: 0,
    };

    pub(super) const fn parent(&self) -> u32 {
        self.parent & PARENT
    }

    pub(super) fn set_parent(&mut self, parent: u32) {
        self.parent = self.parent & !PARENT | parent;
    }

    pub(super) const fn is(&self, flag: u32) -> bool {
        self.parent & flag != 0
    }

    pub(super) fn set(&mut self, flag: u32, on: bool) {
        self.parent = self.parent & !flag | if on { flag } else { 0 };
    }

    pub(super) fn plan(&mut self, node: &PlanNode) {
        self.cap = Pace::new(node.cap);
        self.weight = node.stated_weight().unwrap_or(0);
    }

    /// When its cap lets it send again.
    #[inline]
    pub(super) fn may_go_at(&self) -> u64 {
        if self.cap.is_none() { 0 } else { self.full_at.saturating_sub(self.cap.tolerance()) }
    }

    /// Its cap is another one: it owes no more than a packet of that.
    pub(super) fn forgive(&mut self, now: u64) {
        self.full_at = self.full_at.min(now + self.cap.tolerance());
    }

    /// It sends so many bytes at `now`.
    #[inline]
    pub(super) fn charge(&mut self, now: u64, bytes: u64) {
        if !self.cap.is_none() {
            self.full_at = self.full_at.max(now) + self.cap.time(bytes);
        }
    }
}

/// An instant of the caps, in time, rounded up.
pub(super) const fn coarse(at: u64) -> Nanos {
    Nanos(at.div_ceil(1 << FINE))
}

/// Packets over which it is told how many flows share what a subscriber has.
const SEEN: u32 = 32;
/// A flow, where their mean is counted.
pub(super) const SHARED: u32 = 256;

/// What a node has besides.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub(super) struct Cold {
    /// What a thousandth of a weight comes to in a round, in units of 2^-32.
    scale: u64,
    /// The weight of those who state none.
    default_weight: u32,
    /// Children that may go.
    pub(super) ready: u32,
    /// How often nothing more of it could go; wraps.
    pub(super) pauses: u32,
    /// What waits, of a subscriber.
    pub(super) bytes: u32,
    pub(super) packets: u32,
    /// Children, or flows, with something that waits, whether it may go or not.
    pub(super) busy: u32,
    /// The mean of that when a packet of it went, in [`SHARED`]ths: over its last [`SEEN`] packets.
    shared: u32,
    /// Hosts or classes of a subscriber with something that waits, where these share.
    pub(super) groups: u32,
    /// Bytes that may wait of a subscriber.
    pub(super) room: u32,
    /// How long a packet and a half takes at its rate, ns.
    packets_time: u32,
    pub(super) place: ListNumber,
    /// Its own guarantee.
    pub(super) sure: Sure,
}

/// A guarantee, and the list of children that have not had theirs.
///
/// These take turns. In one a subscriber sends a quantum of its guarantee, and a node lets each of
/// those below have a turn, or sends a quantum of its own guarantee if that is more, at most one of
/// its cap. So guarantees that do not fit are cut alike, wherever in the tree they are, and what
/// somebody does not ask for is there for all of them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sure {
    /// Bit/s, at most the cap.
    rate: u64,
    /// The cap.
    most: u64,
    pub(super) pace: Pace,
    /// When all that is guaranteed has been used.
    used_to: u64,
    pub(super) next: u32,
    pub(super) first: u32,
    pub(super) last: u32,
    /// The child with which all in the list have had a turn.
    pub(super) end: u32,
    /// What its guarantee and its cap let it send in this turn, in sixteenths of a byte.
    deficit: i32,
    spare: i32,
    /// How often all below it may have a turn in this one.
    rounds: u8,
}

impl Sure {
    const NONE: Self = Self {
        rate: 0,
        most: u64::MAX,
        pace: Pace(0),
        used_to: 0,
        next: NIL,
        first: NIL,
        last: NIL,
        end: NIL,
        deficit: 0,
        spare: 0,
        rounds: 0,
    };

    /// A quantum of a rate: 2 ms of it.
    fn quantum(rate: u64) -> i32 {
        let of = (rate / 8 * 2 / 1_000).saturating_mul(UNIT as u64);
        if rate == 0 { 0 } else { of.clamp(LEAST_QUANTUM, LARGEST_QUANTUM) as i32 }
    }

    /// Another turn begins. A node whose children have sent more than it is guaranteed itself owes
    /// some packets of that at most; of what its cap would let it send it keeps as much. (A turn of
    /// its children is longer or shorter by a packet of each.) Where that cap ended turns, those
    /// below go on where they were.
    pub(super) fn begin_turn(&mut self, is_leaf: bool) {
        const SOME: i32 = 16 * LONGEST as i32 * UNIT;
        let owed = if is_leaf { i32::MIN / 2 } else { -SOME };
        self.deficit = self.deficit.clamp(owed, 0) + Self::quantum(self.rate);
        self.spare = self.spare.min(SOME) + Self::quantum(self.most);
        self.rounds = (self.rounds + 1).min(4);
    }

    /// It is its turn no more: what it owes stays.
    pub(super) fn end_turn(&mut self) {
        (self.deficit, self.rounds) = (self.deficit.min(0), 0);
    }

    pub(super) const fn is_turn(&self) -> bool {
        self.spare > 0 && (self.deficit > 0 || self.rounds > 0 && self.first != NIL)
    }

    /// A child has had its turn, or is no more in the list: perhaps all have had one.
    pub(super) fn had_turn(&mut self, child: u32) {
        if self.end == child {
            self.end = self.last;
            self.rounds = self.rounds.saturating_sub(1);
        }
    }

    pub(super) fn pay(&mut self, spent: i32) {
        self.deficit -= spent;
        self.spare -= spent;
    }

    /// Something waits, and nothing did: what was not asked for before is not owed, but for a
    /// packet of those that come one by one.
    pub(super) fn begin(&mut self, now: u64) {
        self.used_to = self.used_to.max(now.saturating_sub(self.pace.time(LONGEST)));
    }

    /// Whether less than what is guaranteed was sent.
    pub(super) const fn is_due(&self, now: u64) -> bool {
        !self.pace.is_none() && self.used_to <= now
    }

    pub(super) const fn used_to(&self) -> u64 {
        self.used_to
    }

    pub(super) fn charge(&mut self, now: u64, bytes: u64) {
        if !self.pace.is_none() {
            let packet = self.pace.time(bytes);
            // Who has to wait for others with guarantees keeps a claim to four packets at least.
            let kept = ASSURED.max(4 * self.pace.time(LONGEST));
            let from = self.used_to.max(now.saturating_sub(kept));
            // What children are guaranteed uses it up, and not for long ahead.
            let most = self.used_to.max(now + packet.max(ASSURED));
            self.used_to = (from + packet).min(most);
        }
    }
}

/// Most that a quantum comes to: 8 MiB.
const LARGEST_QUANTUM: u64 = (8 << 20) * UNIT as u64;
/// Least that a quantum should come to: 64 bytes.
const LEAST_QUANTUM: u64 = 64 * UNIT as u64;

impl Cold {
    pub(super) const FREE: Self = Self {
        scale: 0,
        default_weight: WEIGHT_UNIT,
        ready: 0,
        pauses: 0,
        bytes: 0,
        packets: 0,
        busy: 0,
        shared: 0,
        groups: 0,
        room: 0,
        packets_time: 0,
        place: ListNumber::OUT,
        sure: Sure::NONE,
    };

    /// Takes what a thousandth of a weight comes to. The largest of the children sends a quantum in
    /// a round, and smaller ones gather credit over rounds; so that they need not gather for long,
    /// they have 64 bytes at least.
    pub(super) fn scale(&mut self, brood: &Brood, quantum: Bytes) {
        let Brood { smallest, largest } = *brood;
        self.default_weight = if smallest > 0 { smallest } else { WEIGHT_UNIT };
        let (small, large) =
            (u64::from(self.default_weight), u64::from(largest.max(self.default_weight)));
        let wanted = (quantum.0 * UNIT as u64).max(LEAST_QUANTUM * large / small);
        self.scale = (wanted.min(LARGEST_QUANTUM) << 32) / large;
    }

    /// A packet of a subscriber goes.
    #[inline]
    pub(super) fn shares(&mut self) {
        self.shared = self.shared - self.shared / SEEN + self.busy * (SHARED / SEEN);
    }

    /// How many flows share what a subscriber has, in [`SHARED`]ths.
    pub(super) fn shared(&self) -> u32 {
        if self.busy == 0 { 0 } else { self.shared }
    }

    /// How long a packet and a half takes at its rate, ns.
    pub(super) fn packets_time(&self) -> u64 {
        self.packets_time.into()
    }

    pub(super) fn set_packets_time(&mut self, time: Nanos) {
        self.packets_time = u32::try_from(time.0).unwrap_or(u32::MAX);
    }

    /// The weight of a child, in thousandths.
    pub(super) fn weight(&self, child: &PlanNode) -> u32 {
        child.stated_weight().unwrap_or(self.default_weight)
    }

    /// What a child gets in a round, as its plan has it.
    pub(super) fn quantum_of(&self, child: &PlanNode) -> i32 {
        self.quantum(self.weight(child))
    }

    /// What a child gets in a round.
    fn quantum(&self, weight: u32) -> i32 {
        let weight = if weight == 0 { self.default_weight } else { weight };
        ((u64::from(weight) * self.scale + (1 << 31)) >> 32).max(1) as i32
    }

    pub(super) fn plan(&mut self, node: &PlanNode) {
        let most = node.cap.map_or(u64::MAX, |cap| cap.0);
        let rate = node.guarantee.0.min(most);
        (self.sure.rate, self.sure.most) = (rate, most);
        self.sure.pace = Pace::new(Some(BitRate(rate)));
    }
}

/// The children of a node.
pub(super) struct Children<'a> {
    pub(super) hot: &'a mut [Hot],
    /// The node itself.
    pub(super) cold: &'a Cold,
}

impl Members for Children<'_> {
    #[inline]
    fn turn(&mut self, member: u32) -> &mut Turn {
        &mut self.hot[member as usize].turn
    }

    #[inline]
    fn quantum(&self, member: u32) -> i32 {
        self.cold.quantum(self.hot[member as usize].weight)
    }

    #[inline]
    fn is_ready(&self, member: u32) -> bool {
        self.hot[member as usize].is(READY)
    }

    #[inline]
    fn left(&mut self, member: u32) {
        self.hot[member as usize].set(LISTED, false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pace_is_never_above_its_rate_and_hardly_below() {
        for rate in [8_000u64, 1_000_000, 999_999, 33_333_333, 10_000_000_000, 1_000_000_000_000] {
            let pace = Pace::new(Some(BitRate(rate)));
            for bytes in [64u64, 84, 1_538, 65_536 + 38] {
                let exact = bytes as f64 * 8e9 / rate as f64 * f64::from(1 << FINE);
                let time = pace.time(bytes) as f64;
                assert!(time >= exact - 1e-3 && time <= exact * 1.001 + 1.01, "{rate} {bytes}");
            }
        }
        assert!(Pace::new(None).is_none());
    }

    #[test]
    fn quanta_are_in_proportion_to_weights() {
        let quanta = |small: u32, large: u32| {
            let mut cold = Cold::FREE;
            let brood = Brood { smallest: small, largest: large };
            cold.scale(&brood, Bytes(1_538));
            (cold.quantum(small) / UNIT, cold.quantum(large) / UNIT, cold.quantum(0) / UNIT)
        };
        // Alike: a packet each.
        assert_eq!(quanta(1_000, 1_000), (1_538, 1_538, 1_538));
        // A tenth: it gathers credit over ten rounds.
        assert_eq!(quanta(100_000, 1_000_000), (153, 1_538, 153));
        // Not below 64 bytes.
        assert_eq!(quanta(1_000, 100_000), (64, 6_400, 64));
    }
}
