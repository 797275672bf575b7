//! Who sends most by a link: a sample of its packets, remembered by flow.
//!
//! One packet of sixteen is looked at on average, after a gap that is drawn, because packets of
//! flows that are served in turn would meet a fixed one always or never. A flow with a tenth of a
//! link of 1000 packets per second is told to 15 % after ten seconds. Fixed memory, a comparison a
//! packet.

use evenkeel_core::flow_table::PackedFlow;
use evenkeel_core::{Class, Nanos, Packet};

/// Gaps are 1 to this, so one packet of `(1 + GAP) / 2` is looked at.
const GAP: u64 = 31;
const WEIGHT: u64 = GAP.div_ceil(2);
/// Flows that are remembered, in sets of [`WAYS`].
const PLACES: usize = 256;
const WAYS: usize = 4;
/// What is told is of the last one to two such times.
const SPAN: Nanos = Nanos::from_secs(5);

/// Packets and bytes of the sample.
#[derive(Clone, Copy, Default)]
struct Sum {
    packets: u64,
    bytes: u64,
}

#[derive(Clone, Copy)]
struct Place {
    flow: PackedFlow,
    hash: u64,
    class: Class,
    before: Sum,
    now: Sum,
}

/// A flow as it is estimated.
pub(super) struct Estimate {
    pub(super) flow: PackedFlow,
    pub(super) hash: u64,
    pub(super) class: Class,
    pub(super) bps: f64,
    pub(super) pps: f64,
    /// The time that the rates are of, s.
    pub(super) seconds: f64,
}

/// The busiest flows of a link.
pub(super) struct Busiest {
    /// Packets until the next that is looked at.
    left: u64,
    drawn: u64,
    /// None before the first packet is looked at; room for them is there.
    places: Vec<Option<Place>>,
    began: Nanos,
    /// How long the span before lasted; zero: there was none.
    before: Nanos,
}

impl Busiest {
    pub(super) fn new(seed: u64, now: Nanos) -> Self {
        let places = Vec::with_capacity(PLACES);
        Self { left: 1, drawn: seed | 1, places, began: now, before: Nanos::ZERO }
    }

    /// A packet is given to the link.
    #[inline(always)] // a decrement and a branch
    pub(super) fn see(&mut self, packet: &dyn Packet) {
        self.left -= 1;
        if self.left == 0 {
            self.look(packet);
        }
    }

    /// The same of `count` packets, one after the other; `packet` makes one of them.
    #[inline]
    pub(super) fn see_all<P: Packet>(
        &mut self,
        count: usize,
        mut packet: impl FnMut(usize) -> Option<P>,
    ) {
        let (mut at, count) = (self.left, count as u64);
        while at <= count {
            packet(at as usize - 1).iter().for_each(|packet| self.look(packet));
            at += self.left;
        }
        self.left = at - count;
    }

    #[cold]
    fn look(&mut self, packet: &dyn Packet) {
        // xorshift64: nobody gains by knowing it.
        self.drawn ^= self.drawn << 13;
        self.drawn ^= self.drawn >> 7;
        self.drawn ^= self.drawn << 17;
        self.left = 1 + self.drawn % GAP;
        self.turn(packet.arrival());
        self.places.resize(PLACES, None);
        let (flow, hash, class) = (packet.packed_flow(), packet.flow_hash(), packet.class());
        let set = hash as usize % (PLACES / WAYS) * WAYS;
        let set = &mut self.places[set..set + WAYS];
        let same = |place: &Option<Place>| {
            place.as_ref().is_some_and(|of| of.hash == hash && of.flow == flow)
        };
        let weight =
            |place: &Option<Place>| place.as_ref().map_or(0, |of| of.now.bytes + of.before.bytes);
        let at = set.iter().position(same).unwrap_or_else(|| {
            // The least loses its place.
            (0..WAYS).min_by_key(|at| weight(&set[*at])).unwrap_or(0)
        });
        let place = &mut set[at];
        if !same(place) {
            let (before, now) = (Sum::default(), Sum::default());
            *place = Some(Place { flow, hash, class, before, now });
        }
        if let Some(of) = place {
            of.class = class;
            of.now.packets += u64::from(packet.segments());
            of.now.bytes += packet.ip_len().0;
        }
    }

    /// Begins another span when one is over.
    fn turn(&mut self, now: Nanos) {
        let length = now.saturating_sub(self.began);
        if length < SPAN {
            return;
        }
        // After a pause of more than a span nothing of before is of these seconds.
        let fresh = length < SPAN + SPAN;
        for place in &mut self.places {
            if let Some(of) = place {
                of.before = if fresh { of.now } else { Sum::default() };
                of.now = Sum::default();
                if of.before.packets == 0 {
                    *place = None;
                }
            }
        }
        self.before = if fresh { length } else { Nanos::ZERO };
        self.began = now;
    }

    /// What is known at `now`, in no order.
    pub(super) fn estimates(&mut self, now: Nanos) -> impl Iterator<Item = Estimate> {
        self.turn(now);
        let seconds = (self.before + now.saturating_sub(self.began)).0 as f64 / 1e9;
        let rate = move |sample: u64| (sample * WEIGHT) as f64 / seconds.max(1e-3);
        self.places.iter().flatten().map(move |of| Estimate {
            flow: of.flow,
            hash: of.hash,
            class: of.class,
            bps: rate(of.now.bytes + of.before.bytes) * 8.0,
            pps: rate(of.now.packets + of.before.packets),
            seconds,
        })
    }
}
