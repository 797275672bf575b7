//! The flows a discipline knows: a [`FlowTable`] of bounded size whose entries are each in use or
//! idle.
//!
//! A flow that is idle keeps its entry, and with it the count of its changes of class, until
//! another one needs the room. Which one has to go is told by a hand that goes round (the rule of
//! second chance): an order of all idle flows by time would cost several accesses to memory each
//! time a flow comes or goes, two bits cost none.

use alloc::vec::Vec;

use super::slab::NIL;
use crate::flow_table::{EntryId, FlowTable, PackedFlow};
use crate::packet::Packet;
use crate::prefetch;
use crate::settings::SettingError;

/// How often a flow was found in the other class than before. The class of a flow is that of its
/// last packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flips {
    /// Bytes, so that it leaves no gap.
    count: [u8; 4],
    elastic: Option<bool>,
}

impl Flips {
    pub(super) const NEW: Self = Self { elastic: None, count: [0; 4] };

    /// How often.
    pub(super) fn count(self) -> u32 {
        u32::from_ne_bytes(self.count)
    }

    /// A packet of the flow was treated; whether that was a change.
    #[inline]
    pub(super) fn note(&mut self, elastic: bool) -> bool {
        // Mostly it is as it was.
        self.elastic != Some(elastic) && self.change(elastic)
    }

    fn change(&mut self, elastic: bool) -> bool {
        let flipped = self.elastic.is_some();
        self.elastic = Some(elastic);
        self.count = self.count().saturating_add(u32::from(flipped)).to_ne_bytes();
        flipped
    }
}

/// A list through [`Links`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chain {
    head: u32,
    tail: u32,
}

impl Chain {
    pub(crate) const EMPTY: Self = Self { head: NIL, tail: NIL };

    /// The first member.
    pub(crate) fn head(&self) -> Option<u32> {
        (self.head != NIL).then_some(self.head)
    }
}

/// Doubly linked lists of small numbers, each in at most one. Constant time.
#[derive(Clone, Debug)]
pub(crate) struct Links {
    /// Previous and next.
    links: Vec<[u32; 2]>,
}

impl Links {
    pub(crate) fn new(members: u32) -> Self {
        Self { links: alloc::vec![[NIL; 2]; members as usize] }
    }

    pub(crate) fn push(&mut self, chain: &mut Chain, member: u32) {
        self.links[member as usize] = [chain.tail, NIL];
        match self.links.get_mut(chain.tail as usize) {
            Some(tail) => tail[1] = member,
            None => chain.head = member,
        }
        chain.tail = member;
    }

    /// Takes `member`, which is in it, out of `chain`.
    pub(crate) fn unlink(&mut self, chain: &mut Chain, member: u32) {
        let [prev, next] = self.links[member as usize];
        match self.links.get_mut(prev as usize) {
            Some(prev) => prev[1] = next,
            None => chain.head = next,
        }
        match self.links.get_mut(next as usize) {
            Some(next) => next[0] = prev,
            None => chain.tail = prev,
        }
    }
}

/// Numbers in the order in which they came, in fixed memory: what comes after the next ones can be
/// read ahead.
#[derive(Clone, Debug)]
pub(super) struct Ring {
    /// A power of two of places.
    places: Vec<u32>,
    first: usize,
    len: usize,
}

impl Ring {
    /// Room for `numbers` numbers.
    pub(super) fn new(numbers: u32) -> Self {
        Self { places: alloc::vec![NIL; (numbers as usize).next_power_of_two()], first: 0, len: 0 }
    }

    #[inline]
    fn place(&self, at: usize) -> usize {
        self.first.wrapping_add(at) & (self.places.len() - 1)
    }

    /// Puts a number behind the others, of which there are fewer than there is room for.
    #[inline]
    pub(super) fn push(&mut self, number: u32) {
        debug_assert!(self.len < self.places.len(), "there is room for each flow once");
        let at = self.place(self.len);
        self.places[at] = number;
        self.len += 1;
    }

    /// Puts a number behind the others, if there is one.
    #[inline]
    pub(super) fn extend(&mut self, number: Option<u32>) {
        if let Some(number) = number {
            self.push(number);
        }
    }

    #[inline]
    pub(super) fn pop(&mut self) -> Option<u32> {
        self.len = self.len.checked_sub(1)?;
        let number = self.places[self.place(0)];
        self.first = self.place(1);
        Some(number)
    }

    /// The number that `pop` gives.
    pub(super) fn first(&self) -> Option<u32> {
        (self.len > 0).then(|| self.ahead(0))
    }

    /// A guess at the number that `pop` will give after `at` others: what it gives if there are so
    /// many, else any.
    #[inline]
    pub(super) fn ahead(&self, at: usize) -> u32 {
        self.places[self.place(at)]
    }

    pub(super) fn clear(&mut self) {
        self.len = 0;
    }

    /// The numbers in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        (0..self.len).map(|at| self.places[self.place(at)])
    }
}

/// 64 places: a bit of each.
#[derive(Clone, Copy, Debug)]
struct Word {
    /// In use, or no place at all.
    used: u64,
    /// It came into use since the hand passed it.
    touched: u64,
}

/// Which places are in use, and which of the others is to be given away: the first one that the
/// hand, which goes round, finds neither in use nor touched since it passed the last time.
#[derive(Clone, Debug)]
struct Uses {
    words: Vec<Word>,
    /// Bit of each word that has a place which is not in use.
    open: Vec<u64>,
    /// The word where the search goes on.
    hand: usize,
    len: u32,
}

impl Uses {
    fn new(places: u32) -> Self {
        let words = (places as usize).div_ceil(64);
        let mut uses = Self {
            words: alloc::vec![Word { used: 0, touched: 0 }; words],
            open: alloc::vec![0; words.div_ceil(64)],
            hand: 0,
            len: 0,
        };
        uses.open_all(places);
        uses
    }

    /// No place is in use.
    fn open_all(&mut self, places: u32) {
        self.words.iter_mut().for_each(|word| word.used = 0);
        if !places.is_multiple_of(64)
            && let Some(last) = self.words.last_mut()
        {
            last.used = u64::MAX << (places % 64);
        }
        (0..self.words.len()).for_each(|word| self.open[word / 64] |= 1 << (word % 64));
        self.len = 0;
    }

    #[inline]
    fn contains(&self, place: u32) -> bool {
        self.words[place as usize / 64].used >> (place % 64) & 1 != 0
    }

    /// A place comes into use; false: it was.
    #[inline]
    fn insert(&mut self, place: u32) -> bool {
        let (at, bit) = (place as usize / 64, 1 << (place % 64));
        let word = &mut self.words[at];
        if word.used & bit != 0 {
            return false;
        }
        word.used |= bit;
        word.touched |= bit;
        if word.used == u64::MAX {
            self.open[at / 64] &= !(1 << (at % 64));
        }
        self.len += 1;
        true
    }

    #[inline]
    fn remove(&mut self, place: u32) {
        let at = place as usize / 64;
        self.words[at].used &= !(1 << (place % 64));
        self.open[at / 64] |= 1 << (at % 64);
        self.len -= 1;
    }

    /// The first word from `at` on, going round, that has a place not in use.
    fn next_open(&self, at: usize) -> Option<usize> {
        let words = self.open.len();
        let here = self.open[at / 64] & u64::MAX << (at % 64);
        if here != 0 {
            return Some(at / 64 * 64 + here.trailing_zeros() as usize);
        }
        let mut groups = (1..=words).map(|n| (at / 64 + n) % words);
        let group = groups.find(|group| self.open[*group] != 0)?;
        Some(group * 64 + self.open[group].trailing_zeros() as usize)
    }

    /// A place not in use that may be given away. `None` if all are in use.
    fn oldest(&mut self) -> Option<u32> {
        loop {
            let at = self.next_open(self.hand)?;
            let word = &mut self.words[at];
            let found = !word.used & !word.touched;
            if found != 0 {
                self.hand = at;
                return Some((at * 64) as u32 + found.trailing_zeros());
            }
            // Each bit that goes here came with a use: so a search takes constant time on average.
            word.touched &= word.used;
            self.hand = if at + 1 < self.words.len() { at + 1 } else { 0 };
        }
    }
}

/// Lists of so many flows fit into a second cache of 1 MiB, which is near enough for a processor
/// that goes on meanwhile.
const NEAR: usize = 4_096;

/// Flows with a state `S` each. A state lies apart from the key, so that who serves a flow reads
/// nothing that only a look-up needs; with an `S` of one line of the cache a flow costs that and
/// the [`FlowTable`]'s line.
#[derive(Clone, Debug)]
pub(super) struct FlowList<S> {
    table: FlowTable<()>,
    states: Vec<S>,
    uses: Uses,
}

impl<S: Copy> FlowList<S> {
    /// An empty list. `blank` fills places that hold no flow.
    pub(super) fn new(flows: u32, seed: u64, blank: S) -> Result<Self, SettingError> {
        let table = FlowTable::indexed(flows, seed)?;
        Ok(Self { table, states: alloc::vec![blank; flows as usize], uses: Uses::new(flows) })
    }

    /// Whether reading ahead is worth its instructions.
    #[inline]
    pub(super) fn is_long(&self) -> bool {
        self.states.len() > NEAR
    }

    #[inline]
    pub(super) fn prefetch_bucket(&self, hash: u64) {
        if self.is_long() {
            self.table.prefetch_bucket(hash);
        }
    }

    /// Which flow it took the hash for, if reading ahead is worth it; the number may be beyond all.
    #[inline]
    pub(super) fn prefetch(&self, hash: u64) -> Option<u32> {
        self.is_long().then(|| {
            let place = self.table.first(hash);
            self.table.prefetch_first(place);
            prefetch::element(&self.states, place);
            place as u32
        })
    }

    /// Reads ahead the state of a flow; a number that is none is as good as any.
    #[inline]
    pub(super) fn prefetch_state(&self, flow: u32) {
        prefetch::element(&self.states, flow as usize);
    }

    /// The state of a flow if there may be one of this number.
    #[inline]
    pub(super) fn guess(&self, flow: u32) -> Option<&S> {
        self.states.get(flow as usize)
    }

    /// How many flows are in use.
    pub(super) const fn len(&self) -> u32 {
        self.uses.len
    }

    /// Whether a flow is in use.
    #[inline]
    pub(super) fn in_use(&self, id: EntryId) -> bool {
        self.uses.contains(id.link())
    }

    /// Reads ahead the flow that may be at a place, if that is worth it.
    #[inline]
    pub(super) fn prefetch_place(&self, place: u32) {
        if self.is_long() {
            self.table.prefetch_place(place as usize);
            prefetch::existing(&self.states, place as usize);
        }
    }

    #[inline]
    pub(super) fn find(&self, hash: u64, key: &PackedFlow) -> Option<EntryId> {
        self.table.find(hash, key)
    }

    /// The flow of a packet, if it is where the one before of it was.
    #[inline]
    pub(super) fn guessed(&self, packet: &impl Packet) -> Option<EntryId> {
        self.table.guessed(packet.places().queue, |flow| packet.is_of(flow))
    }

    /// Whether this is the place of the flow of `key`.
    #[inline]
    pub(super) fn is_of(&self, id: EntryId, key: &PackedFlow) -> bool {
        self.table.is_of(id, key)
    }

    /// A place for a flow that is not in the table, as an idle flow; that of one long idle if there
    /// is no other, which `forget` is told. `None` if all are in use.
    pub(super) fn insert(
        &mut self,
        hash: u64,
        key: PackedFlow,
        state: S,
        forget: impl FnOnce(EntryId, &mut S),
    ) -> Option<EntryId> {
        let id = if self.table.is_full() {
            let oldest = EntryId::from_link(self.uses.oldest()?);
            forget(oldest, &mut self.states[oldest.index()]);
            self.table.replace(oldest, hash, key, ());
            oldest
        } else {
            self.table.insert(hash, key, ()).ok()?
        };
        self.states[id.index()] = state;
        Some(id)
    }

    #[inline]
    pub(super) fn get(&self, id: EntryId) -> &S {
        &self.states[id.index()]
    }

    #[inline]
    pub(super) fn get_mut(&mut self, id: EntryId) -> &mut S {
        &mut self.states[id.index()]
    }

    /// A flow comes into use; false: it was.
    #[inline]
    pub(super) fn begin(&mut self, id: EntryId) -> bool {
        self.uses.insert(id.link())
    }

    /// A flow in use becomes idle.
    #[inline]
    pub(super) fn end(&mut self, id: EntryId) {
        self.uses.remove(id.link());
    }

    /// All flows become idle: those in use, which the caller names. Takes the time of naming them
    /// or of passing over the list's bits, whichever is less.
    pub(super) fn end_all(&mut self, used: impl Iterator<Item = u32>) {
        if self.uses.len as usize > self.uses.words.len() {
            self.uses.open_all(self.table.capacity());
        } else {
            used.for_each(|flow| self.uses.remove(flow));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    #[test]
    fn a_ring_is_a_queue() {
        let (mut ring, mut queue) = (Ring::new(5), VecDeque::new());
        let mut state = 3u64;
        for number in 0..10_000u32 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(99);
            match state >> 61 {
                0..=3 if queue.len() < 5 => {
                    ring.push(number);
                    queue.push_back(number);
                }
                7 if state >> 55 & 63 == 0 => {
                    ring.clear();
                    queue.clear();
                }
                _ => assert_eq!(ring.pop(), queue.pop_front()),
            }
            assert!(ring.iter().eq(queue.iter().copied()));
            assert!((0..queue.len()).all(|at| ring.ahead(at) == queue[at]));
        }
    }

    #[test]
    fn a_place_in_use_is_never_given_away_and_any_other_is_in_the_end() {
        for places in [1u32, 63, 64, 65, 5_000] {
            let mut uses = Uses::new(places);
            let mut used = alloc::vec![false; places as usize];
            let mut state = u64::from(places);
            for step in 0..20_000u32 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(99);
                let place = (state >> 33) as u32 % places;
                match (state >> 61, used[place as usize]) {
                    // Most in use at times, few at others.
                    (kind, false) if kind > 2 || step % 4_000 < 2_000 => {
                        assert!(uses.insert(place));
                        used[place as usize] = true;
                    }
                    (kind, true) if kind < 4 => {
                        uses.remove(place);
                        used[place as usize] = false;
                    }
                    (7, _) if step % 1_000 == 0 => {
                        uses.open_all(places);
                        used.fill(false);
                    }
                    _ => {}
                }
                assert_eq!(uses.contains(place), used[place as usize]);
                assert_eq!(uses.len as usize, used.iter().filter(|used| **used).count());
                let idle = used.iter().any(|used| !used);
                match uses.oldest() {
                    None => assert!(!idle),
                    Some(found) => assert!(!used[found as usize]),
                }
            }
        }
    }

    #[test]
    fn who_came_into_use_of_late_keeps_its_place_longer() {
        let mut uses = Uses::new(256);
        assert!((0..256).all(|place| uses.insert(place)) && !uses.insert(7));
        (0..256).for_each(|place| uses.remove(place));
        // The hand goes round once, and then takes what was not in use since.
        assert_eq!(uses.oldest(), Some(0));
        for place in [0, 1, 5] {
            uses.insert(place);
            uses.remove(place);
        }
        assert_eq!(uses.oldest(), Some(2));
        let all: Vec<u32> = (0..256)
            .map(|_| {
                let place = uses.oldest().unwrap();
                uses.insert(place);
                place
            })
            .collect();
        assert_eq!(all.len(), 256);
        assert_eq!(uses.oldest(), None);
    }
}
