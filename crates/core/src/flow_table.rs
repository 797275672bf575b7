//! A table of fixed size from full keys to small values: flow lists that no traffic can make grow,
//! slow or confuse.
//!
//! Source: specs of flow-aware networking store full keys in a chained hash table "so that distinct
//! flows can never be confused". This one has the same meaning with all of its memory taken at
//! construction: an array of places, each of which holds an entry and is, besides, where the chain
//! of the hash bucket with its number begins.
//!
//! | what | bytes | of |
//! |---|---|---|
//! | key | 40 for a [`PackedFlow`] (IPv4 or IPv6) | each of `capacity` places |
//! | value | `size_of::<V>()` | the same |
//! | first entry of the bucket with the place's number | 4 | the same |
//! | next entry of the same bucket | 4 | the same |
//!
//! Places begin at lines of the cache: a flow costs 48 bytes and its value, rounded up to multiples
//! of 64. With a value of at most 16 bytes (4-byte aligned) that is one line. An entry is put into
//! the place of its own bucket if that is free, so that at least half of all look-ups in a table
//! that was filled once read one line in all: the head of the chain and the entry. The places that
//! are free are a list, linked both ways through the places themselves.
//!
//! **Hash.** Callers bring a 64-bit hash of the key that is keyed with a secret seed
//! ([`Packet::flow_hash`](crate::packet::Packet::flow_hash)). The table folds its own seed in and
//! takes the bucket by multiplication, so a capacity need not be a power of two and low-entropy
//! hashes of tests spread too. Only the cost of a look-up depends on the hash; what is found never
//! does, keys are compared in full.
//!
//! **Complexity.** Look-up, insertion and removal take constant expected time: a chain holds one
//! entry on average when the table is full. [`sweep`](Table::sweep) and [`collect`](Table::collect)
//! take the time of the entries they look at. Nothing allocates after construction.
//!
//! **Expiry** is the caller's: values hold the stamps, [`collect`](Table::collect) throws out what
//! is stale in the bucket that an insertion is about to touch, and [`sweep`](Table::sweep) goes
//! round the whole table a few entries at a time, so that a full table frees stale entries in
//! bounded work per arrival.
//!
//! **Bursts.** [`prefetch`](Table::prefetch) reads ahead what a look-up will read. Called for all
//! packets of a burst before the first look-up, the reads wait for memory together instead of one
//! after the other. Where the chain begins has to be known for that;
//! [`prefetch_bucket`](Table::prefetch_bucket), called for all packets before, has it read ahead as
//! well.
//!
//! Not implemented: growth, shrinking, weak keys. An [`EntryId`] of a removed entry may name a
//! later one: a caller that keeps ids must forget them on removal.

mod change;
mod find;
mod index;

use alloc::vec::Vec;
use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::num::NonZeroU32;
use core::ops::RangeInclusive;

use crate::packet::{FlowKey, is_control};
use crate::prefetch;
use crate::settings::{SettingError, in_range};
use index::Index;

/// Valid capacities, in entries.
pub const CAPACITY_RANGE: RangeInclusive<u32> = 1..=16_777_216;

/// A whole [`FlowKey`] in 40 bytes: two keys are equal if and only if their packed forms are.
///
/// ```text
/// source 16 | destination 16 | source port 2, destination port 2 | protocol 8 bits, flow label 20 bits, 4 or 6 in 4 bits
/// ```
///
/// The last word is never zero, which tables use to tell places that hold nothing.
#[derive(Clone, Copy, Debug, Eq)]
pub struct PackedFlow([u32; 9], NonZeroU32);

/// All words at once, in pairs: nearly every comparison is of equal keys, and a loop or a call
/// costs more than it saves.
impl PartialEq for PackedFlow {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        let pairs = |Self(words, last): &Self| {
            let [a, b, c, d, e, f, g, h, i] = *words;
            // As they lie in memory.
            [pair(last.get(), a), pair(b, c), pair(d, e), pair(f, g), pair(h, i)]
        };
        pairs(self).into_iter().zip(pairs(other)).fold(0, |all, (a, b)| all | (a ^ b)) == 0
    }
}

/// Two words of a key as they lie in memory.
#[inline]
const fn pair(a: u32, b: u32) -> u64 {
    a as u64 | (b as u64) << 32
}

/// IPv4, in the last word of a packed key.
const FOUR: NonZeroU32 = NonZeroU32::MIN.saturating_add(3);
/// IPv6.
const SIX: NonZeroU32 = NonZeroU32::MIN.saturating_add(5);

impl PackedFlow {
    /// Packs a key. The addresses are of one family, as [`FlowKey`] says; label bits beyond 20 do
    /// not exist.
    #[must_use]
    pub fn new(key: &FlowKey) -> Self {
        let mut words = [0; 9];
        let family = match (key.source, key.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                words[0] = source.to_bits();
                words[4] = destination.to_bits();
                FOUR
            }
            (source, destination) => {
                put(&mut words[..4], source);
                put(&mut words[4..8], destination);
                SIX
            }
        };
        words[8] = u32::from(key.source_port) << 16 | u32::from(key.destination_port);
        let last = u32::from(key.protocol) << 24 | (key.flow_label & 0xf_ffff) << 4;
        Self(words, family | last)
    }

    /// The host that sent it, or that it is for, as a flow of its own. One that does both is two.
    #[must_use]
    pub(crate) fn host(&self, source: bool) -> Self {
        let mut words = [0; 9];
        let at = if source { 0 } else { 4 };
        words[at..at + 4].copy_from_slice(&self.0[at..at + 4]);
        words[8] = source.into();
        Self(words, if self.is_v4() { FOUR } else { SIX })
    }

    /// A hash of its two hosts.
    pub(crate) fn between(&self) -> u64 {
        self.host(true).mixed() ^ self.host(false).mixed().rotate_left(32)
    }

    /// The flow among those of many subscribers. Of IPv6 several may come to the same.
    #[inline]
    pub(crate) fn of_subscriber(mut self, subscriber: u32) -> Self {
        self.0[1] ^= subscriber;
        self
    }

    /// A hash of it: a table's own seed keeps strangers from choosing who shares a bucket.
    #[must_use]
    pub(crate) fn mixed(&self) -> u64 {
        self.seeded(0)
    }

    /// A hash of it for tables that keep nothing but the hash: what comes to the same is the same
    /// there, and strangers who do not know the seed cannot find it.
    #[must_use]
    pub(crate) fn seeded(&self, seed: u64) -> u64 {
        let fold = |hash: u64, word: &u32| {
            (hash ^ u64::from(*word)).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
        };
        self.0.iter().fold(seed ^ u64::from(self.1.get()), fold)
    }

    /// [`PackedFlow::new`] of an IPv4 flow: addresses and ports in one word each, the source in
    /// the upper half, and the protocol.
    #[inline]
    #[must_use]
    pub fn v4(addresses: u64, ports: u32, protocol: u8) -> Self {
        let (source, destination) = ((addresses >> 32) as u32, addresses as u32);
        let words = [source, 0, 0, 0, destination, 0, 0, 0, ports];
        Self(words, FOUR | u32::from(protocol) << 24)
    }

    /// Whether it is [`PackedFlow::v4`] of these.
    #[inline]
    #[must_use]
    pub fn is_v4_of(&self, addresses: u64, ports: u32, protocol: u8) -> bool {
        let (source, destination) = (addresses >> 32 << 32, addresses as u32);
        let last = FOUR.get() | u32::from(protocol) << 24;
        // Of IPv4 the other words are zero, but for that of a subscriber.
        let same = pair(self.1.get(), self.0[0]) == source | u64::from(last)
            && self.0[4] == destination
            && self.0[8] == ports
            && self.0[1] == 0;
        debug_assert_eq!(same, *self == Self::v4(addresses, ports, protocol));
        same
    }

    /// The key that was packed.
    #[must_use]
    pub fn unpack(&self) -> FlowKey {
        let address = |words: &[u32]| -> IpAddr {
            if self.is_v4() {
                Ipv4Addr::from_bits(words[0]).into()
            } else {
                let bits = words.iter().fold(0, |bits, word| bits << 32 | u128::from(*word));
                Ipv6Addr::from_bits(bits).into()
            }
        };
        FlowKey {
            source: address(&self.0[..4]),
            destination: address(&self.0[4..8]),
            protocol: (self.1.get() >> 24) as u8,
            source_port: (self.0[8] >> 16) as u16,
            destination_port: self.0[8] as u16,
            flow_label: self.1.get() >> 4 & 0xf_ffff,
        }
    }

    /// [`FlowKey::is_control`] of the key that was packed.
    #[must_use]
    #[inline]
    pub const fn is_control(&self) -> bool {
        is_control((self.1.get() >> 24) as u8, (self.0[8] >> 16) as u16, self.0[8] as u16)
    }

    /// A hash of the key, for callers that have no packet with its own at hand. Every bit of it
    /// depends on the seed.
    #[must_use]
    #[inline]
    pub fn hash(&self, seed: u64) -> u64 {
        let word = |a: u32, b: u32| u64::from(a) << 32 | u64::from(b);
        let addresses = if self.is_v4() {
            fold(seed, word(self.0[0], self.0[4]))
        } else {
            self.0.chunks_exact(2).map(|pair| word(pair[0], pair[1])).fold(seed, fold)
        };
        fold(addresses, word(self.0[8], self.1.get()))
    }

    /// Whether it is of IPv4: most of its words are zero then.
    #[inline]
    const fn is_v4(&self) -> bool {
        self.1.get() & 0xf == FOUR.get()
    }
}

/// Folds a word into a hash: both halves of a product.
pub(crate) fn fold(state: u64, word: u64) -> u64 {
    let product = u128::from(state ^ word ^ 0x2545_f491_4f6c_dd1d) * 0x9e37_79b9_7f4a_7c15;
    (product >> 64) as u64 ^ (product as u64).wrapping_add(word.rotate_left(32))
}

impl From<&FlowKey> for PackedFlow {
    fn from(key: &FlowKey) -> Self {
        Self::new(key)
    }
}

/// An address as four words, IPv4 mapped into IPv6.
fn put(words: &mut [u32], address: IpAddr) {
    let bits = match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().to_bits(),
        IpAddr::V6(v6) => v6.to_bits(),
    };
    for (i, word) in words.iter_mut().enumerate() {
        *word = (bits >> (96 - 32 * i)) as u32;
    }
}

/// Where an entry is: valid from its insertion to its removal. A number below the capacity, so
/// parallel arrays and intrusive lists can use [`index`](Self::index).
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct EntryId(u32);

impl EntryId {
    /// The place of the entry in an array of `capacity` places.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// The id as a 32-bit link.
    #[must_use]
    pub const fn link(self) -> u32 {
        self.0
    }

    /// The id that [`link`](Self::link) gave.
    #[must_use]
    pub const fn from_link(link: u32) -> Self {
        Self(link)
    }
}

/// The table is full: nothing was inserted. What that means is the caller's rule (an admission
/// control takes it for congestion).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Full;

impl fmt::Display for Full {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the flow table is full")
    }
}

impl core::error::Error for Full {}

/// No place: ends the list of free places, begins an empty bucket.
const NIL: u32 = u32::MAX;
/// Ends a chain; the other bits are the bucket, so an entry's bucket is found without its hash.
const END: u32 = 1 << 31;

/// What a place holds. Keys that are never all zero take no room for the difference.
#[derive(Clone, Copy, Debug)]
enum Held<K, V> {
    Entry {
        key: K,
        value: V,
    },
    /// The free place before this one in the list of those.
    Nothing {
        before: u32,
    },
}

#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
struct Slot<K, V> {
    /// The first entry of the bucket with the number of this place; `NIL`: it is empty.
    head: u32,
    held: Held<K, V>,
    /// Of an entry: the next one of its bucket, or `END | bucket`. Of a free place: the next free
    /// one, or `NIL`.
    next: u32,
}

/// The table. See the [module](self).
#[derive(Clone, Debug)]
pub struct Table<K, V> {
    places: Vec<Slot<K, V>>,
    /// The first free place.
    free: u32,
    len: u32,
    seed: u64,
    /// Where `sweep` goes on.
    hand: u32,
    index: Option<Index>,
}

/// A table of flows.
pub type FlowTable<V> = Table<PackedFlow, V>;

impl<K: Copy + Eq, V: Copy> Table<K, V> {
    /// What an entry costs in all, in bytes: key, value and links.
    pub const BYTES_PER_ENTRY: usize = size_of::<Slot<K, V>>();

    /// An empty table. `seed` should be random per boot where keys come from strangers.
    ///
    /// # Errors
    /// [`SettingError::OutOfRange`] if `capacity` is not in [`CAPACITY_RANGE`].
    pub fn new(capacity: u32, seed: u64) -> Result<Self, SettingError> {
        let (min, max) = (u64::from(*CAPACITY_RANGE.start()), u64::from(*CAPACITY_RANGE.end()));
        in_range("flows", u64::from(capacity), min..=max, "flows")?;
        let places = (0..capacity).map(|at| free_place(at, capacity)).collect();
        Ok(Self { places, free: 0, len: 0, seed, hand: 0, index: None })
    }

    /// The same table, looked up faster, for another eleven bytes per place.
    pub(crate) fn indexed(capacity: u32, seed: u64) -> Result<Self, SettingError> {
        let table = Self::new(capacity, seed)?;
        Ok(Self { index: Some(Index::new(capacity)), ..table })
    }

    /// Entries it can hold.
    #[must_use]
    pub fn capacity(&self) -> u32 {
        self.places.len() as u32
    }

    /// Entries it holds.
    #[must_use]
    pub const fn len(&self) -> u32 {
        self.len
    }

    /// Whether it holds none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether nothing more can be inserted.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.len == self.capacity()
    }

    /// All memory of the table, in bytes: constant from construction on.
    #[must_use]
    pub fn memory(&self) -> usize {
        self.places.len() * Self::BYTES_PER_ENTRY + self.index.as_ref().map_or(0, Index::memory)
    }

    #[inline]
    fn mixed(&self, hash: u64) -> u64 {
        (hash ^ self.seed).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    #[inline]
    fn bucket(&self, hash: u64) -> usize {
        (((self.mixed(hash) >> 32) * self.places.len() as u64) >> 32) as usize
    }

    /// Reads ahead where the chain of the bucket of `hash` begins. [`prefetch`](Self::prefetch)
    /// waits for that.
    #[inline]
    pub fn prefetch_bucket(&self, hash: u64) {
        match &self.index {
            Some(index) => index.prefetch(self.bucket(hash) as u32),
            None => prefetch::existing(&self.places, self.bucket(hash)),
        }
    }

    /// Reads ahead what a look-up of `hash` will read, so that it is in the cache by then.
    #[inline]
    pub fn prefetch(&self, hash: u64) {
        self.prefetch_first(self.first(hash));
    }

    /// Reads ahead the place of this number, which may be beyond all.
    #[inline]
    pub(crate) fn prefetch_first(&self, place: usize) {
        prefetch::element(&self.places, place);
    }

    /// Reads ahead the place of this number.
    #[inline]
    pub(crate) fn prefetch_place(&self, place: usize) {
        prefetch::existing(&self.places, place);
    }

    /// The same of one after the other.
    #[inline]
    pub(crate) fn places_ahead(&self) -> impl Fn(usize) + use<'_, K, V> {
        let places = &*self.places;
        move |place| prefetch::existing(places, place)
    }

    /// The number of the place where a search for `hash` looks first: of the entry that is looked
    /// for, or of another one. Beyond all places if there is none.
    #[inline]
    pub(crate) fn first(&self, hash: u64) -> usize {
        let bucket = self.bucket(hash);
        match &self.index {
            Some(index) => {
                let mut candidates = index.candidates(bucket as u32, index::tag(self.mixed(hash)));
                candidates.next().map_or(self.places.len(), |place| place as usize)
            }
            None => self.places[bucket].head as usize,
        }
    }

    /// Whether `id` names an entry at present.
    #[must_use]
    pub fn contains(&self, id: EntryId) -> bool {
        self.places.get(id.index()).is_some_and(|place| matches!(place.held, Held::Entry { .. }))
    }

    /// The key of an entry.
    ///
    /// # Panics
    /// If there is no such entry.
    #[must_use]
    #[inline]
    pub fn key(&self, id: EntryId) -> &K {
        match &self.places[id.index()].held {
            Held::Entry { key, .. } => key,
            Held::Nothing { .. } => gone(id),
        }
    }

    /// The value of an entry.
    ///
    /// # Panics
    /// If there is no such entry.
    #[must_use]
    #[inline]
    pub fn value(&self, id: EntryId) -> &V {
        match &self.places[id.index()].held {
            Held::Entry { value, .. } => value,
            Held::Nothing { .. } => gone(id),
        }
    }

    /// The value of an entry, to change.
    ///
    /// # Panics
    /// If there is no such entry.
    #[inline]
    pub fn value_mut(&mut self, id: EntryId) -> &mut V {
        match &mut self.places[id.index()].held {
            Held::Entry { value, .. } => value,
            Held::Nothing { .. } => gone(id),
        }
    }

    /// Looks at all entries of the bucket of `hash` and removes those that are `stale`. How many
    /// went.
    pub fn collect(&mut self, hash: u64, mut stale: impl FnMut(&K, &V) -> bool) -> u32 {
        let mut gone = 0;
        let mut at = self.places[self.bucket(hash)].head;
        while let Some(Slot { held: Held::Entry { key, value }, next, .. }) =
            self.places.get(at as usize)
        {
            let (id, next) = (EntryId(at), *next);
            if stale(key, value) {
                self.remove(id);
                gone += 1;
            }
            at = next;
        }
        gone
    }

    /// Looks at the next `count` places of the table, going round, and removes entries that are
    /// `stale`. How many went.
    pub fn sweep(&mut self, count: u32, mut stale: impl FnMut(&K, &V) -> bool) -> u32 {
        let mut gone = 0;
        for _ in 0..count.min(self.capacity()) {
            let at = self.hand;
            self.hand = if at + 1 < self.capacity() { at + 1 } else { 0 };
            if let Held::Entry { key, value } = &self.places[at as usize].held
                && stale(key, value)
            {
                self.remove(EntryId(at));
                gone += 1;
            }
        }
        gone
    }

    /// Removes everything.
    pub fn clear(&mut self) {
        let capacity = self.capacity();
        for (at, place) in self.places.iter_mut().enumerate() {
            *place = free_place(at as u32, capacity);
        }
        if let Some(index) = &mut self.index {
            index.clear();
        }
        (self.free, self.len, self.hand) = (0, 0, 0);
    }

    /// Every entry, in the order of their places.
    pub fn iter(&self) -> impl Iterator<Item = (EntryId, &K, &V)> {
        self.places.iter().enumerate().filter_map(|(at, place)| match &place.held {
            Held::Entry { key, value } => Some((EntryId(at as u32), key, value)),
            Held::Nothing { .. } => None,
        })
    }
}

/// A place of an empty table: the list of free ones goes from the first to the last.
fn free_place<K, V>(at: u32, capacity: u32) -> Slot<K, V> {
    let next = if at + 1 < capacity { at + 1 } else { NIL };
    Slot { held: Held::Nothing { before: at.wrapping_sub(1) }, head: NIL, next }
}

#[cold]
fn gone(id: EntryId) -> ! {
    panic!("there is no entry {id:?}, or not any more")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn next(state: &mut u64) -> u64 {
        *state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        *state >> 33
    }

    /// Each part counts, and so does what makes it the flow of a subscriber, a host, or IPv6.
    #[test]
    fn a_flow_of_ipv4_is_told_from_what_differs_anywhere() {
        let (addresses, ports, protocol) = (0x0a00_0101_0a00_0201_u64, 5_000 << 16 | 80, 17);
        let own = PackedFlow::v4(addresses, ports, protocol);
        assert!(own.is_v4_of(addresses, ports, protocol));
        for bit in 0..64 {
            assert!(!own.is_v4_of(addresses ^ 1 << bit, ports, protocol));
            assert!(!own.is_v4_of(addresses, ports ^ 1 << (bit % 32), protocol));
            assert!(!own.is_v4_of(addresses, ports, protocol ^ 1 << (bit % 8)));
            assert!(!own.of_subscriber(1 << (bit % 32)).is_v4_of(addresses, ports, protocol));
        }
        let six = FlowKey {
            source: "::ffff:10.0.1.1".parse().unwrap(),
            destination: "2001:db8::1".parse().unwrap(),
            ..own.unpack()
        };
        for other in [own.host(true), own.host(false), PackedFlow::new(&six)] {
            assert!(!other.is_v4_of(addresses, ports, protocol));
        }
    }

    #[test]
    fn it_agrees_with_a_map_whatever_the_hash() {
        // All in one bucket, few buckets, many buckets.
        let sizes =
            [(1, 0), (7, 0), (64, 0), (64, 3), (64, u64::MAX), (90, 1 << 30), (90, u64::MAX)];
        for ((capacity, hash_mask), indexed) in
            sizes.into_iter().flat_map(|size| [(size, false), (size, true)])
        {
            let make = if indexed { Table::indexed } else { Table::new };
            let mut table: Table<u64, u64> = make(capacity, 99).unwrap();
            let mut map = BTreeMap::new();
            let mut state = u64::from(capacity);
            for step in 0..20_000u64 {
                let key = next(&mut state) % 100;
                let hash = key.wrapping_mul(0x1234_5678_9abc_def1) & hash_mask;
                match (next(&mut state) % 8, table.find(hash, &key)) {
                    (0..=3, None) => {
                        let inserted = table.insert(hash, key, step);
                        assert_eq!(inserted.is_err(), map.len() == capacity as usize);
                        if inserted.is_err() {
                            let any = table.iter().nth(step as usize % map.len());
                            let (id, old) = any.map(|(id, old, _)| (id, *old)).unwrap();
                            assert_eq!(Some(table.replace(id, hash, key, step)), map.remove(&old));
                        }
                        map.insert(key, step);
                    }
                    (0..=3, Some(id)) => *table.value_mut(id) = *map.get_mut(&key).unwrap(),
                    (4, _) => {
                        let old = |_: &u64, v: &u64| step - v > 60;
                        let gone = table.collect(hash, old);
                        let before = map.len();
                        // The bucket of this key at least; maybe others share it.
                        map.retain(|k, v| {
                            let h = k.wrapping_mul(0x1234_5678_9abc_def1) & hash_mask;
                            table.find(h, k).is_some() || !old(k, v)
                        });
                        assert_eq!(before - map.len(), gone as usize);
                    }
                    (5, _) => {
                        let gone = table.sweep(capacity, |_, v| step - v > 90);
                        let before = map.len();
                        map.retain(|_, v| step - *v <= 90);
                        assert_eq!(before - map.len(), gone as usize);
                    }
                    (_, found) => {
                        assert_eq!(found.map(|id| table.remove(id)), map.remove(&key));
                    }
                }
                assert_eq!((table.len() as usize, table.is_empty()), (map.len(), map.is_empty()));
            }
            let mut held: Vec<_> = table.iter().map(|(_, k, v)| (*k, *v)).collect();
            held.sort_unstable();
            assert_eq!(held, map.into_iter().collect::<Vec<_>>());
            table.clear();
            assert_eq!(table.iter().count(), 0);
            assert!(table.insert(0, 5, 5).is_ok());
        }
    }

    #[test]
    fn a_flow_with_sixteen_bytes_of_state_takes_sixty_four() {
        assert_eq!(FlowTable::<[u32; 4]>::BYTES_PER_ENTRY, 64);
        assert_eq!(FlowTable::<[u32; 4]>::new(100_000, 1).unwrap().memory(), 6_400_000);
        assert!(FlowTable::<u32>::new(0, 1).is_err());
        assert!(FlowTable::<u32>::new(16_777_217, 1).is_err());
    }

    #[test]
    fn packed_keys_are_as_different_as_keys() {
        let v4 = FlowKey {
            source: "10.0.0.1".parse().unwrap(),
            destination: "10.0.1.1".parse().unwrap(),
            protocol: 17,
            source_port: 5000,
            destination_port: 80,
            flow_label: 0,
        };
        let v6 = FlowKey {
            source: "2001:db8::1".parse().unwrap(),
            destination: "2001:db8:1:2:3:4:5:6".parse().unwrap(),
            flow_label: 0xf_edcb,
            ..v4
        };
        let mapped = FlowKey {
            source: "::ffff:10.0.0.1".parse().unwrap(),
            destination: "::ffff:10.0.1.1".parse().unwrap(),
            ..v4
        };
        let keys = [
            v4,
            v6,
            mapped,
            FlowKey { protocol: 6, ..v4 },
            FlowKey { source_port: 5001, ..v4 },
            FlowKey { destination_port: 81, ..v4 },
            FlowKey { source: v4.destination, destination: v4.source, ..v4 },
            FlowKey { flow_label: 0, ..v6 },
            FlowKey { source: v6.destination, destination: v6.source, ..v6 },
        ];
        for (i, a) in keys.iter().enumerate() {
            assert_eq!(PackedFlow::new(a).unpack(), *a);
            for (j, b) in keys.iter().enumerate() {
                assert_eq!(PackedFlow::from(a) == PackedFlow::from(b), i == j);
            }
        }
    }

    #[test]
    fn chains_stay_short_also_for_counting_hashes() {
        for multiplier in [1, 0x1_0000_0000, 0x9e37_79b9_7f4a_7c15u64] {
            let mut table: Table<u64, ()> = Table::new(10_000, 0xfeed).unwrap();
            for key in 0..10_000 {
                table.prefetch_bucket(key);
                table.prefetch(key);
                table.insert(key.wrapping_mul(multiplier), key, ()).unwrap();
            }
            let longest = (0..10_000u64).map(|key| {
                let mut chain = 0;
                table.collect(key.wrapping_mul(multiplier), |_, ()| {
                    chain += 1;
                    false
                });
                chain
            });
            assert!(longest.max() < Some(16));
        }
    }
}
