//! How many flows each user has started since the last estimate of the fair rate, at all workers of
//! a link together (PUF, `admit/per_user.rs`).
//!
//! | symbol | here | unit |
//! |---|---|---|
//! | N | `most` of [`Users::enter`] | flows |
//! | when the present interval began | `began` | ns, named by 24 of its bits |
//! | a user's flows in it | the lower 16 bits of a place | flows |
//!
//! A place is one word: 24 bits of a hash of the user, 24 that name an interval, and the count. One
//! that names another interval than the present one is nobody's. A flow is counted by one
//! compare-and-swap, and only below N: of two workers that find one flow left, one admits it.
//!
//! **One place.** A user has an order of places: those of the line of its hash, then of the next
//! lines. Who counts it takes the first that is its own or nobody's. In an interval no place is
//! given back, so all places before a user's are others' until the interval ends, and who looks for
//! it later, anywhere, comes to the same. Of two that claim a place at once one does, and the other
//! looks again. So there are no two places of a user, and no count beyond N.
//!
//! **No place.** If all of them are others', the user shares one of [`SHARED`] counters, for as
//! long as the interval lasts: it gets N at most, and less if others are counted there. There are
//! two places for each user that is told apart; of so many users as that fewer than one in a
//! thousand has none.
//!
//! **Who is late.** A worker that has read when the interval began, and then stood still, must not
//! take a place from the next one. So who is about to claim a place reads it again: what it found
//! there was put by one who knew when that interval had begun, so it knows that too now, and begins
//! anew. What names the same interval it counts on: that flow is the last one's, as is its packet.
//!
//! **Intervals.** The first worker that estimates once an interval is over begins the next, by
//! compare-and-swap, as of when the last one was over: however workers' estimates lie, and however
//! late they are, intervals follow each other as one worker's do, and nobody waits for one that
//! does not come. The end of a window of ECCM begins one there and then, unless the present one has
//! lasted for less than half of it: windows of several workers end together, or nearly so.
//!
//! **Collisions.** Users whose hashes agree in 24 bits and nearly the same line are counted
//! together: of 16 384 users one in a million is. A name of an interval comes again after 73
//! minutes; who was counted then, at a place that nobody has taken since, gets less in one
//! interval.
//!
//! Bound: no user has more than N flows in an interval, whatever workers it meets. Nobody waits;
//! who loses a compare-and-swap has lost it to one that counted a flow or began an interval. A new
//! flow reads a line of the cache, or a few, and nothing else costs anything. Memory: 16 bytes for
//! each user, and 8 KiB.

use alloc::vec::Vec;
#[cfg(not(loom))]
use core::sync::atomic::{AtomicU64, Ordering};
#[cfg(loom)]
use loom::sync::atomic::{AtomicU64, Ordering};

use super::cells::Row;
use super::hosts::{Line, PLACES};
use crate::flow_table::fold;
use crate::units::Nanos;

/// Lines that a user may have its place in.
const LINES: usize = 4;
/// Counters for users that have no place.
const SHARED: usize = if cfg!(loom) { 1 } else { 1_024 };
/// Bits of a word that count, and that name the interval.
pub(super) const COUNT: u32 = 16;
const INTERVAL: u32 = 24;
/// The most flows that can be counted of one user.
pub(crate) const FLOWS: u64 = (1 << COUNT) - 1;
/// What of a word is neither the count nor the interval.
const NAME: u64 = u64::MAX << (COUNT + INTERVAL);
/// No interval began there.
const NEVER: u64 = u64::MAX;
/// Intervals are further apart than 2^18 ns: their beginnings differ in what is left of them.
const APART: u32 = 18;

/// The users of a link that several workers let flows in to.
#[derive(Debug)]
pub struct Users {
    users: u32,
    seed: u64,
    /// When the present interval began; [`NEVER`]: nobody has said so yet.
    began: Row,
    lines: Vec<Line>,
    shared: Vec<AtomicU64>,
}

impl Users {
    /// Tells so many users apart. `seed` should be random per boot.
    #[must_use]
    pub fn new(users: u32, seed: u64) -> Self {
        let lines = (2 * users as usize).div_ceil(PLACES).max(1);
        let began = Row::new(1);
        began.set(0, NEVER);
        Self {
            users,
            seed,
            began,
            lines: (0..lines).map(|_| Line::default()).collect(),
            shared: (0..SHARED).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// How many users it tells apart.
    #[must_use]
    pub fn users(&self) -> u32 {
        self.users
    }

    /// What a table for so many users takes, in bytes.
    #[must_use]
    pub fn memory(users: u32) -> u64 {
        let lines = (2 * u64::from(users)).div_ceil(PLACES as u64).max(1);
        lines * size_of::<Line>() as u64 + (SHARED * size_of::<AtomicU64>()) as u64
    }

    /// The hash of a user, for all workers.
    pub(crate) fn hash(&self, user: u128) -> u64 {
        fold(fold(self.seed, (user >> 64) as u64), user as u64)
    }

    pub(super) fn began(&self) -> u64 {
        self.began.get(0)
    }

    /// What names the present interval.
    pub(crate) fn interval(&self) -> u32 {
        (name_of(self.began()) >> COUNT) as u32
    }

    /// A worker that comes says when its interval began, which is the link's if it is the first.
    pub(crate) fn begin(&self, since: Nanos) {
        let (relaxed, began) = (Ordering::Relaxed, self.began.cell(0));
        let _ = began.compare_exchange(NEVER, since.0, relaxed, relaxed);
    }

    /// A worker estimates at `now`: the next interval begins if the present one has lasted for
    /// `interval`, as of when it had; with `restart`, there and then, if it has for half of that.
    pub(crate) fn next_interval(&self, now: Nanos, interval: Nanos, restart: bool) {
        let mut before = self.began();
        loop {
            let lasted = now.0.saturating_sub(before);
            let begins = match lasted / interval.0.max(1) {
                _ if restart && lasted >= interval.0 / 2 => now.0,
                whole @ 1.. if !restart => before + whole * interval.0,
                _ => return,
            };
            let (relaxed, began) = (Ordering::Relaxed, self.began.cell(0));
            match began.compare_exchange(before, begins, relaxed, relaxed) {
                Ok(_) => return,
                Err(other) => before = other,
            }
        }
    }

    /// Where the user is counted in an interval, or will be, and what stands there.
    pub(super) fn find(&self, hash: u64, interval: u64) -> (&AtomicU64, u64) {
        let first = (((hash >> 32) * self.lines.len() as u64) >> 32) as usize;
        let lines = self.lines[first..].iter().chain(&self.lines[..first]).take(LINES);
        for place in lines.flat_map(|line| &line.0) {
            let word = place.load(Ordering::Acquire);
            if !is_of(word, interval) || (word ^ name(hash)) & NAME == 0 {
                return (place, word);
            }
        }
        let place = &self.shared[hash as usize % SHARED];
        (place, place.load(Ordering::Acquire))
    }

    /// How many flows the user has in this interval.
    pub(crate) fn flows(&self, hash: u64) -> u32 {
        let interval = name_of(self.began());
        let (_, word) = self.find(hash, interval);
        if is_of(word, interval) { (word & FLOWS) as u32 } else { 0 }
    }

    /// Counts a flow more of the user, if it has fewer than `most`. Gives what names the interval.
    ///
    /// # Errors
    /// How many it has: no flow more is counted.
    pub(crate) fn enter(&self, hash: u64, most: u32) -> Result<u32, u32> {
        loop {
            let began = self.began();
            let interval = name_of(began);
            let (place, word) = self.find(hash, interval);
            let own = is_of(word, interval);
            let flows = if own { word & FLOWS } else { 0 };
            if flows >= u64::from(most) || flows == FLOWS {
                return Err(flows as u32);
            }
            // Nobody's place, or one of an interval that has begun meanwhile.
            if !own && self.began() != began {
                continue;
            }
            let counted = if own { word + 1 } else { name(hash) | interval | 1 };
            let (release, relaxed) = (Ordering::Release, Ordering::Relaxed);
            if place.compare_exchange(word, counted, release, relaxed).is_ok() {
                return Ok((interval >> COUNT) as u32);
            }
        }
    }
}

/// What of a user's hash stands in a word.
pub(super) fn name(hash: u64) -> u64 {
    hash << (COUNT + INTERVAL)
}

/// What of the beginning of an interval stands in a word.
pub(super) fn name_of(began: u64) -> u64 {
    ((began >> APART) % (1 << INTERVAL)) << COUNT
}

/// Whether a word counts flows in this interval.
pub(super) fn is_of(word: u64, interval: u64) -> bool {
    word & !NAME & !FLOWS == interval && word & FLOWS != 0
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    const T: Nanos = Nanos::from_millis(500);

    fn at(ms: u64) -> Nanos {
        Nanos::from_millis(ms)
    }

    fn table(users: u32) -> Users {
        let table = Users::new(users, 5);
        table.begin(at(1_000));
        table
    }

    #[test]
    fn intervals_are_as_long_as_one_workers_whoever_comes() {
        let users = table(1);
        let began = |users: &Users| Nanos(users.began());
        users.begin(at(1_200));
        assert_eq!(began(&users), at(1_000), "there is one that has said so");
        // Of workers that estimate at 0, 2 and 499 ms after it, the first begins each.
        for n in 1..20 {
            for offset in [0, 2, 499] {
                users.next_interval(at(1_000 + 500 * n + offset), T, false);
                assert_eq!(began(&users), at(1_000 + 500 * n));
            }
        }
        // It stands still: the others begin them, as of when it would have, and it comes too late.
        for n in 20..40 {
            for offset in [2, 499, 0] {
                users.next_interval(at(1_000 + 500 * n + offset), T, false);
                assert_eq!(began(&users), at(1_000 + 500 * n));
            }
        }
        users.next_interval(at(22_499), T, false);
        assert_eq!(began(&users), at(22_000), "one for all that nobody began");
        // A window of ECCM that opened at 22.05 s ends at 22.3 s.
        users.next_interval(at(22_300), T, true);
        users.next_interval(at(22_301), T, true);
        assert_eq!(began(&users), at(22_300), "a second one is the same window");
        users.next_interval(at(22_799), T, false);
        assert_eq!(began(&users), at(22_300), "the grid begins there");
        users.next_interval(at(22_801), T, false);
        assert_eq!(began(&users), at(22_800));
        users.next_interval(at(23_049), T, true);
        assert_eq!(began(&users), at(22_800), "not within half of an interval");
    }

    #[test]
    fn a_word_holds_the_most_that_can_be_set_and_no_more() {
        let users = table(1);
        (0..65_535).for_each(|n| assert!(users.enter(9, 65_535).is_ok(), "{n}"));
        assert_eq!(users.enter(9, 65_535), Err(65_535));
        assert_eq!(users.enter(9, u32::MAX), Err(65_535), "nor does it run over");
        users.next_interval(at(1_500), T, false);
        assert_eq!((users.flows(9), users.enter(9, 1).is_ok(), users.flows(9)), (0, true, 1));
    }

    #[test]
    fn as_many_users_are_told_apart_as_it_has_room_for() {
        for users in [1, 3, 64, 1_000, 16_384] {
            let table = table(users);
            let (mut shares, counters) = (0, table.shared.as_ptr_range());
            for interval in 0..10_u64 {
                for user in 0..u128::from(users) {
                    // Of a prefix with one user after the other fewer would meet in a line.
                    let hash = table.hash(u128::from(fold(interval, user as u64)));
                    let (place, _) = table.find(hash, name_of(table.began()));
                    shares += u32::from(counters.contains(&core::ptr::from_ref(place)));
                    let _ = table.enter(hash, 1);
                }
                table.next_interval(at(1_500 + 500 * interval), T, false);
            }
            println!("{users}: {shares} of {} share a counter", 10 * users);
            assert!(shares * 1_000 <= 10 * users, "{users}: {shares}");
            let taken = size_of::<Line>() * table.lines.len() + 8 * table.shared.len();
            assert_eq!(Users::memory(users), taken as u64);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

        /// Nobody gets more than N in an interval, also where more users come than there is room
        /// for; where there is, everybody gets N.
        #[test]
        fn nobody_has_more_than_n(
            steps in prop::collection::vec((0..40_u128, 0..12_u32), 1..400),
            most in 1..4_u32,
            roomy in any::<bool>(),
        ) {
            let users = table(if roomy { 400 } else { 1 });
            let mut had = BTreeMap::<(u64, u128), u32>::new();
            let mut interval = 0;
            for (user, next) in steps {
                if next == 0 {
                    interval += 1;
                    users.next_interval(at(1_000 + 500 * interval), T, false);
                }
                let hash = users.hash(user);
                let had = had.entry((interval, user)).or_default();
                prop_assert!(users.flows(hash) >= *had, "what it has is seen");
                let enters = users.enter(hash, most).is_ok();
                *had += u32::from(enters);
                prop_assert!(*had <= most);
                prop_assert!(!roomy || enters || *had == most, "there was a flow left");
            }
        }
    }
}
