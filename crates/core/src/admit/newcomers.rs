//! Flows that were let in a moment ago: what the fair rate will be when they are counted, and a
//! share kept for newcomers while the link is closed.
//!
//! **Expected flows.** FR is known every T_FR, and in between admission would be blind: a burst of
//! connections enters an open link and shuts it for all flows. So a new flow enters only while
//!
//! ```text
//! (n + p * k) * min_FR < (1 - PL) * C        that is: FR * n / (n + p * k) >= min_FR
//! ```
//!
//! | symbol | here | unit |
//! |---|---|---|
//! | n | `present`: elastic flows that wait, or as many as FR says, whichever is more | 2^-16 flows |
//! | k | `young`: flows admitted within half of T_FR that have not turned elastic (then n has them) | flows |
//! | p | `chance` that such a flow turns elastic: a mean over about [`MEMORY`] flows, 1 at the start | 2^-16 |
//!
//! A flow that has sent nothing into an elastic queue for half of T_FR is a stream, or gone: its
//! rate is known, and it does not count against FR any more.
//!
//! **A share for newcomers.** While FR closes the link, or what is expected does, a few flows at a
//! time enter all the same, as guests: as many as are likely to fill `newcomer_share` of the places
//! that min_FR has for elastic flows, and one at least; how likely, guests say: a mean over about
//! four. Who has waited for longer than [`NEW`] is no newcomer: a crowd that keeps knocking would
//! take all places, and ECCM is for those. A guest that has not turned elastic after
//! [`GUEST_LOADS`] intervals of the load makes room for the next; one that turns elastic within
//! [`WATCHED`] T_FR of its admission leaves T_FR after it, as ECCM's flows do, and enters again
//! only when the link is open: else those that were refused for good reason would take the places
//! of unknown flows. So a name is looked up, a call set up or a page begun on a link that is full
//! of others' transfers, and FR falls by the share at most.
//!
//! **Several workers** of a link tell each other what they have let in: k and the places of guests
//! are the link's. Each counting for itself gave every worker all the places.
//!
//! Complexity: constant per packet, with several workers a read of what each has told; each
//! estimate of the load looks at no more than [`YOUNG`] and [`GUESTS`] flows. Source: this
//! project's.

use alloc::vec::Vec;

use super::protected::{ProtectedList, age, stamp};
use crate::flow_table::EntryId;
use crate::share::LetIn;
use crate::units::{BitRate, Nanos, Ppm};

/// Young flows that are remembered; further ones count as if they were known.
const YOUNG: usize = 1_024;
/// Guests that are watched.
const GUESTS: usize = 256;
/// How many flows the chance of turning elastic is a mean over.
const MEMORY: u64 = 16;
/// The same of guests: what they are changes with the household.
const GUEST_MEMORY: u64 = 4;
/// Of so many guests one counts as elastic at the start, and of so many at least one always.
const GUESTS_PER_ELASTIC: (u64, u64) = (2, 16);
/// Intervals of the load after which a guest that has not turned elastic makes room for the next.
const GUEST_LOADS: u64 = 2;
/// Who has waited for longer is no newcomer: what a connection that was refused sends next comes
/// after a second.
pub(super) const NEW: Nanos = Nanos::from_millis(1_250);
/// T_FR for which a guest is watched.
const WATCHED: u64 = 2;
/// 1 in fixed point.
const ONE: u64 = 1 << 16;
/// What ECCM's window may bring FR down to, of min_FR, where expected flows count.
pub(super) const LEAST_FAIR: Ppm = Ppm::percent(95);

#[derive(Clone, Copy, Debug)]
struct Guest {
    id: EntryId,
    admitted: u32,
    /// It takes one of the places.
    holds: bool,
    /// Whose it is, where subscribers share the link.
    whose: u32,
}

/// A flow that has just come, when, and whose it is.
type Young = (EntryId, u32, u32);

/// See the [module](self).
#[derive(Clone, Debug)]
pub(super) struct Newcomers {
    young: Vec<Young>,
    chance: u64,
    present: u64,
    guests: Vec<Guest>,
    /// Guests that take a place, and the chance that one turns elastic.
    held: u64,
    guest_chance: u64,
    /// What the other workers have let in: by now, and when flows were counted.
    others: LetIn,
    others_counted: LetIn,
}

impl Newcomers {
    pub(super) fn new() -> Self {
        Self {
            young: Vec::with_capacity(YOUNG),
            chance: ONE,
            present: 0,
            guests: Vec::with_capacity(GUESTS),
            held: 0,
            guest_chance: ONE / GUESTS_PER_ELASTIC.0,
            others: LetIn::default(),
            others_counted: LetIn::default(),
        }
    }

    /// FR or PL was estimated, `elastic` flows have packets that wait.
    pub(super) fn estimated(
        &mut self,
        rate: BitRate,
        fair: BitRate,
        load: Ppm,
        elastic: Option<u32>,
    ) {
        let left = u128::from(elastic_rate(rate, load)) << 16;
        let by_rate = u64::try_from(left / u128::from(fair.0.max(1))).unwrap_or(u64::MAX);
        self.present = by_rate.max(u64::from(elastic.unwrap_or(0)) << 16);
    }

    /// What this worker has let in of late.
    pub(super) fn let_in(&self) -> LetIn {
        let young = self.young.len() as u64;
        LetIn {
            young,
            coming: self.chance * young,
            guests: self.held,
            likely: self.guest_chance * self.held,
        }
    }

    /// What the other workers have let in, now that flows are counted.
    pub(super) fn counted_with(&mut self, others: LetIn) {
        (self.others, self.others_counted) = (others, others);
    }

    /// What the other workers have let in by now. Those that have turned elastic there since flows
    /// were counted here are in neither: so it is never less than it was then.
    pub(super) fn hear(&mut self, others: LetIn) {
        self.others = others.max(self.others_counted);
    }

    /// Whether flows would have less than `least` with those that have just come.
    pub(super) fn crowd(&self, rate: BitRate, least: BitRate, load: Ppm) -> bool {
        self.crowd_with(self.coming(), rate, least, load)
    }

    /// The same if each of them turned elastic.
    pub(super) fn crowd_at_worst(&self, rate: BitRate, least: BitRate, load: Ppm) -> bool {
        let young = self.young.len() as u64 + self.others.young;
        self.crowd_with(young << 16, rate, least, load)
    }

    fn crowd_with(&self, coming: u64, rate: BitRate, least: BitRate, load: Ppm) -> bool {
        let flows = u128::from(self.present.saturating_add(coming));
        flows * u128::from(least.0) >= u128::from(elastic_rate(rate, load)) << 16
    }

    /// How many of the flows that have just come probably turn elastic, in 2^-16.
    fn coming(&self) -> u64 {
        self.let_in().coming + self.others.coming
    }

    /// FR as it will be with those that have just come.
    pub(super) fn expected(&self, rate: BitRate, load: Ppm) -> BitRate {
        let flows = u128::from(self.present.saturating_add(self.coming())).max(1);
        let fair = (u128::from(elastic_rate(rate, load)) << 16) / flows;
        BitRate(u64::try_from(fair).unwrap_or(u64::MAX)).min(rate)
    }

    /// The same of a subscriber's.
    pub(super) fn coming_of(&self, whose: u32) -> u64 {
        let young = self.young.iter().filter(|(.., of)| *of == whose).count();
        self.chance * young as u64
    }

    /// A flow was listed.
    pub(super) fn came(&mut self, now: Nanos, id: EntryId, whose: u32) {
        if self.young.len() < YOUNG {
            self.young.push((id, stamp(now), whose));
        }
    }

    /// Whether another guest can be watched.
    pub(super) fn has_room(&self) -> bool {
        self.guests.len() < GUESTS
    }

    /// Whether another guest may enter where `share` of the flows that min_FR has room for may be:
    /// half as many while FR has already fallen by as much.
    pub(super) fn has_place(
        &self,
        share: Ppm,
        rate: BitRate,
        least: BitRate,
        fair: BitRate,
    ) -> bool {
        let (own, others) = (self.let_in(), self.others);
        let (guests, likely) = (own.guests + others.guests, own.likely + others.likely);
        self.is_free((guests, likely), share, rate, least, fair)
    }

    /// The same of a subscriber's own places, where these are the rates of what it has.
    pub(super) fn has_place_of(
        &self,
        whose: u32,
        share: Ppm,
        rate: BitRate,
        least: BitRate,
        fair: BitRate,
    ) -> bool {
        let guests = self.guests.iter().filter(|guest| guest.holds && guest.whose == whose).count();
        self.is_free((guests as u64, self.guest_chance * guests as u64), share, rate, least, fair)
    }

    /// Whether there is a place beside these guests, of whom so many are likely to turn elastic.
    fn is_free(
        &self,
        (guests, likely): (u64, u64),
        share: Ppm,
        rate: BitRate,
        least: BitRate,
        fair: BitRate,
    ) -> bool {
        let low = fair.0 < least.0.saturating_sub(share.of(least.0));
        let taken = u128::from(likely) * u128::from(least.0);
        let more = taken < u128::from(share.of(rate.0) >> u32::from(low)) << 16;
        share > Ppm::ZERO && (guests == 0 || more) && self.has_room()
    }

    /// A flow was listed as a guest.
    pub(super) fn invite(&mut self, now: Nanos, id: EntryId, whose: u32) {
        self.guests.push(Guest { id, admitted: stamp(now), holds: true, whose });
        self.held += 1;
    }

    /// The load was estimated: looks at what the young flows have become.
    pub(super) fn classify(&mut self, now: Nanos, interval: Nanos, list: &ProtectedList) {
        let (known, chance) = (Nanos(interval.0 / 2), &mut self.chance);
        self.young.retain(|(id, admitted, _)| {
            if list.has_turned(*id) {
                *chance += (ONE - *chance).div_ceil(MEMORY);
                return false;
            }
            let old = age(now, *admitted) >= known;
            if old {
                *chance -= *chance / MEMORY;
            }
            !old
        });
    }

    /// The next guest that has to leave: it turned elastic, T_FR ago it was let in. Those that are
    /// known make room.
    pub(super) fn next_to_leave(
        &mut self,
        now: Nanos,
        interval: Nanos,
        load_interval: Nanos,
        list: &mut ProtectedList,
    ) -> Option<EntryId> {
        let (leaves, watched) = (interval, Nanos(interval.0.saturating_mul(WATCHED)));
        let known = Nanos(load_interval.0.saturating_mul(GUEST_LOADS));
        let mut at = 0;
        while let Some(guest) = self.guests.get_mut(at) {
            let (age, turned) = (age(now, guest.admitted), list.has_turned(guest.id));
            if guest.holds && !turned && age >= known {
                guest.holds = false;
                self.held -= 1;
                self.guest_chance -= self.guest_chance / GUEST_MEMORY;
                self.guest_chance = self.guest_chance.max(ONE / GUESTS_PER_ELASTIC.1);
            }
            let gone = !list.is_guest(guest.id);
            if gone || (turned && age >= leaves) || age >= watched {
                let guest = self.guests.swap_remove(at);
                self.held -= u64::from(guest.holds);
                if list.unmark_eccm(guest.id) {
                    self.guest_chance += (ONE - self.guest_chance).div_ceil(GUEST_MEMORY);
                    return Some(guest.id);
                }
                continue;
            }
            at += 1;
        }
        None
    }

    pub(super) fn memory() -> usize {
        YOUNG * size_of::<Young>() + GUESTS * size_of::<Guest>()
    }
}

/// What priority packets leave of the rate.
const fn elastic_rate(rate: BitRate, load: Ppm) -> u64 {
    rate.0 - load.of(rate.0)
}
