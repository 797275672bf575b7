//! Sampled flows: whether those that always wait are sent the same.
//!
//! Of all flows those whose hash, mixed, has enough zeros have a place in a small table, so that a
//! packet of any other costs a comparison. In a window, the flows that waited all the time are
//! compared: what the discipline gave of the most favoured less that of the least is the spread,
//! exactly. Flows that are not in the sample are not seen: of n flows, f of which are treated
//! wrongly, a sample of k misses all of them with a probability of about (1 - f/n)^k, and another
//! sample is taken in the next window.
//!
//! A flow that gets a place may have packets waiting already: the discipline is asked for them at
//! the next look, and until then the flow is not compared.

use crate::packet::{FlowKey, Packet};
use crate::units::Nanos;

/// Places: as six bits tell apart.
const PLACES: usize = 64;
/// Spreads hashes over all bits (Knuth, 6.4).
const MIXES: u64 = 0x9e37_79b9_7f4a_7c15;
/// So many packets of flows whose place was taken, and the sample becomes smaller before the window
/// is over.
const CROWD: u32 = 2 * PLACES as u32;
/// Until then a window begins anew for flows that began to wait in it.
const SETTLES: Nanos = Nanos::from_millis(20);
/// How long flows are compared before others may take their places.
const WINDOW: Nanos = Nanos::from_millis(1_000);

/// Which flows are sent the same.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Alike {
    /// All.
    #[default]
    All,
    /// Those between the same two hosts: hosts share, and within them flows.
    SameHosts,
}

#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
struct Sampled {
    hash: u64,
    /// Until the discipline has been asked what waits.
    fresh: Option<FlowKey>,
    /// Waiting in the discipline, bytes on the wire.
    waits: u64,
    /// Given since the window began.
    given: u64,
    /// Has waited since the window began.
    always: bool,
    /// A hash of those that it is compared with.
    peers: u64,
}

/// The sample.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Flows {
    /// Which flows are to be alike; `None`: nobody asks.
    alike: Option<Alike>,
    /// Hashes with none of these bits are in the sample.
    mask: u64,
    /// Changes with each window, so that the sample does.
    turn: u64,
    places: [Sampled; PLACES],
    crowded: u32,
    began: Nanos,
}

/// What a sample shows.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Spread {
    /// How many flows were compared.
    pub flows: u32,
    /// What was sent of the most favoured less of the least, bytes on the wire.
    pub bytes: u64,
    /// What was sent of the least favoured.
    pub least: u64,
    /// Of how many flows one was sampled.
    pub one_of: u64,
}

impl Default for Flows {
    fn default() -> Self {
        Self {
            alike: None,
            mask: 0,
            turn: 0,
            places: [Sampled::default(); PLACES],
            crowded: 0,
            began: Nanos::ZERO,
        }
    }
}

impl Flows {
    pub(super) fn switch(&mut self, alike: Option<Alike>) {
        self.alike = alike;
    }

    /// Whether flows are compared.
    #[inline]
    pub(super) fn watches(&self) -> bool {
        self.alike.is_some()
    }

    /// The place of a packet's flow, if it is of the sample.
    #[inline]
    fn find<P: Packet>(&mut self, packet: &P) -> Option<&mut Sampled> {
        self.alike?;
        let mixed = packet.flow_hash().wrapping_mul(MIXES);
        if (mixed >> 32 ^ self.turn) & self.mask != 0 {
            return None;
        }
        Some(&mut self.places[(mixed >> 58) as usize])
    }

    #[inline]
    pub(super) fn came<P: Packet>(&mut self, packet: &P) {
        let Some(place) = self.find(packet) else { return };
        if place.hash == packet.flow_hash() {
            place.waits += packet.wire_len().0;
        } else if place.waits > 0 {
            self.crowded += 1;
            if self.crowded.is_multiple_of(CROWD) {
                self.crowd();
            }
        } else {
            self.sample(packet);
        }
    }

    /// Many flows have no place: nobody waits for the window's end, because each of their packets
    /// is looked at.
    #[cold]
    fn crowd(&mut self) {
        if self.taken() > PLACES / 2 {
            self.draw(self.mask << 1 | 1);
        }
    }

    /// How many places have a flow that waits.
    fn taken(&self) -> usize {
        self.places.iter().filter(|place| place.waits > 0).count()
    }

    /// Takes another sample, of flows whose hashes have none of these bits.
    fn draw(&mut self, mask: u64) {
        self.mask = mask;
        self.turn = self.turn.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1) & mask;
        self.places = [Sampled::default(); PLACES];
        self.crowded = 0;
    }

    /// The flow of a packet gets its place.
    #[cold]
    fn sample<P: Packet>(&mut self, packet: &P) {
        let by_hosts = self.alike == Some(Alike::SameHosts);
        let Some(place) = self.find(packet) else { return };
        let peers = if by_hosts { packet.packed_flow().between() } else { 0 };
        *place = Sampled {
            hash: packet.flow_hash(),
            fresh: Some(packet.flow()),
            waits: packet.wire_len().0,
            peers,
            ..Sampled::default()
        };
    }

    #[inline]
    pub(super) fn given<P: Packet>(&mut self, packet: &P) {
        let Some(place) = self.find(packet) else { return };
        if place.hash == packet.flow_hash() {
            place.given += packet.wire_len().0;
            place.leaves(packet.wire_len().0);
        }
    }

    #[inline]
    pub(super) fn lost<P: Packet>(&mut self, packet: &P) {
        let Some(place) = self.find(packet) else { return };
        if place.hash == packet.flow_hash() {
            place.leaves(packet.wire_len().0);
        }
    }

    /// What the window has shown so far; begins another if it is over or shows nothing. `waits`
    /// says what waits of a flow in the discipline.
    pub(super) fn look(&mut self, now: Nanos, waits: impl Fn(&FlowKey, u64) -> u64) -> Spread {
        if self.alike.is_none() {
            return Spread::default();
        }
        for place in &mut self.places {
            if let Some(flow) = place.fresh.take() {
                place.waits = waits(&flow, place.hash);
            }
        }
        let spread = self.spread();
        // Of many that wait by now few did when the window began.
        let waiting = self.taken();
        let always = self.places.iter().filter(|place| place.always).count();
        let few = waiting > 2 * always && spread.bytes == 0
            || now.saturating_sub(self.began) < SETTLES && waiting > always;
        if few || always < 2 || now.saturating_sub(self.began) >= WINDOW {
            self.begin(now);
        }
        spread
    }

    fn spread(&self) -> Spread {
        let mut found = Spread { one_of: self.mask + 1, ..Spread::default() };
        let mut left = self.places;
        for at in 0..PLACES {
            let peers = left[at].peers;
            let (mut least, mut most, mut flows) = (u64::MAX, 0, 0);
            for place in left[at..].iter_mut().filter(|one| one.always && one.peers == peers) {
                (least, most) = (least.min(place.given), most.max(place.given));
                flows += 1;
                place.always = false;
            }
            // Of those that were not alike, and else of the most.
            let bytes = most.saturating_sub(least);
            if flows > 0 && (bytes, flows) > (found.bytes, found.flows) {
                found = Spread { flows, bytes, least, ..found };
            }
        }
        found
    }

    /// A window begins. A sample that has had no place for many flows becomes smaller, one that
    /// found few becomes larger; a window that was full of other flows takes others.
    pub(super) fn begin(&mut self, now: Nanos) {
        let taken = self.taken();
        let over = now.saturating_sub(self.began) >= WINDOW;
        self.began = now;
        let crowded = self.crowded > 8 && taken > PLACES / 2;
        self.crowded = 0;
        if crowded || over && self.mask != 0 {
            self.draw(match taken {
                _ if crowded => self.mask << 1 | 1,
                few if few < PLACES / 8 => self.mask >> 1,
                _ => self.mask,
            });
            return;
        }
        for place in &mut self.places {
            (place.given, place.always) = (0, place.waits > 0);
        }
    }
}

impl Sampled {
    fn leaves(&mut self, length: u64) {
        self.waits = self.waits.saturating_sub(length);
        self.always &= self.waits > 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::{Class, Descriptor};
    use crate::units::Bytes;

    /// The sample when so many packets of each of so many flows have come since the last look.
    fn sample_of(flows: impl Iterator<Item = u16> + Clone, packets: u32) -> Flows {
        let mut all = Flows::default();
        all.switch(Some(Alike::All));
        for _ in 0..packets {
            for flow in flows.clone() {
                all.came(&Descriptor::new(Class(flow), Bytes(100), Nanos::ZERO));
            }
        }
        all
    }

    #[test]
    fn a_crowd_makes_the_sample_smaller_before_the_next_look() {
        let crowd = sample_of(0..8_192, 2);
        assert!((64..=512).contains(&crowd.spread().one_of), "one of {}", crowd.spread().one_of);
        // As many packets of a few flows leave it as it is, though some of them share a place: of
        // numbers by Fibonacci the last ones are near each other there.
        let few = sample_of([34, 55, 89, 144, 233, 377, 610].into_iter(), 2_341);
        assert_eq!(few.spread().one_of, 1);
        assert!(few.crowded > CROWD && few.taken() < 7, "{} places", few.taken());
    }
}
