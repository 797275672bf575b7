//! Values by prefix, many of them equal: a table of a million routes has some hundred different
//! ones.
//!
//! Each different value is kept once and counted; a prefix costs its place in a tree bitmap (module
//! `lpm`), some twenty bytes. Look-ups find the value of the longest prefix that an address lies
//! in; those of a burst can be [read ahead](PrefixMap::read_ahead).

use core::fmt;
use core::hash::{BuildHasher, BuildHasherDefault, Hash};
use core::net::IpAddr;
use std::collections::HashMap;
use std::collections::hash_map::DefaultHasher;

use crate::Prefix;
use crate::lpm::Lpm;

/// No value.
const NONE: u32 = u32::MAX;
/// Addresses that are looked up at a time.
const LANES: usize = 16;

/// A value and how it is found.
#[derive(Clone)]
struct Kept<T> {
    value: T,
    /// Prefixes that have it. Zero: its place is free.
    users: u32,
    /// The next one of the same hash, or the next free place.
    next: u32,
}

/// The different values.
#[derive(Clone)]
struct Values<T> {
    all: Vec<Kept<T>>,
    /// By hash: the first of those that have it.
    by_hash: HashMap<u64, u32, BuildHasherDefault<DefaultHasher>>,
    free: u32,
}

impl<T: Clone + Eq + Hash> Values<T> {
    /// The number of a value, which one more prefix has now.
    fn take(&mut self, value: T) -> u32 {
        let hash = self.by_hash.hasher().hash_one(&value);
        let first = self.by_hash.get(&hash).copied().unwrap_or(NONE);
        let mut at = first;
        while let Some(kept) = self.all.get_mut(at as usize) {
            if kept.value == value {
                kept.users += 1;
                return at;
            }
            at = kept.next;
        }
        let kept = Kept { value, users: 1, next: first };
        let at = self.free;
        let at = match self.all.get_mut(at as usize) {
            Some(free) => {
                self.free = free.next;
                *free = kept;
                at
            }
            None => {
                self.all.push(kept);
                self.all.len() as u32 - 1
            }
        };
        self.by_hash.insert(hash, at);
        at
    }

    /// One prefix less has value `at`.
    fn release(&mut self, at: u32) {
        let kept = &mut self.all[at as usize];
        kept.users -= 1;
        if kept.users > 0 {
            return;
        }
        let next = core::mem::replace(&mut kept.next, self.free);
        self.free = at;
        let hash = self.by_hash.hasher().hash_one(&self.all[at as usize].value);
        let first = self.by_hash.get(&hash).copied().unwrap_or(NONE);
        if first != at {
            let mut before = first;
            while self.all[before as usize].next != at {
                before = self.all[before as usize].next;
            }
            self.all[before as usize].next = next;
        } else if next == NONE {
            self.by_hash.remove(&hash);
        } else {
            self.by_hash.insert(hash, next);
        }
    }
}

/// Values by prefix.
#[derive(Clone)]
pub struct PrefixMap<T> {
    v4: Lpm<u32>,
    v6: Lpm<u128>,
    values: Values<T>,
    len: usize,
}

impl<T> Default for PrefixMap<T> {
    fn default() -> Self {
        let values = Values { all: Vec::new(), by_hash: HashMap::default(), free: NONE };
        Self { v4: Lpm::default(), v6: Lpm::default(), values, len: 0 }
    }
}

impl<T: Clone + Eq + Hash> PrefixMap<T> {
    /// The value of exactly this prefix.
    #[must_use]
    pub fn get(&self, prefix: Prefix) -> Option<&T> {
        let number = match prefix.address() {
            IpAddr::V4(a) => self.v4.get(a.to_bits(), prefix.len()),
            IpAddr::V6(a) => self.v6.get(a.to_bits(), prefix.len()),
        };
        number.map(|number| self.value(number))
    }

    /// Gives a prefix its value. True: it had another one, or the same. Takes what the tree takes,
    /// and hashing the value.
    pub fn insert(&mut self, prefix: Prefix, value: T) -> bool {
        let number = self.values.take(value);
        let before = match prefix.address() {
            IpAddr::V4(a) => self.v4.insert(a.to_bits(), prefix.len(), number),
            IpAddr::V6(a) => self.v6.insert(a.to_bits(), prefix.len(), number),
        };
        match before {
            Some(before) => self.values.release(before),
            None => self.len += 1,
        }
        before.is_some()
    }

    /// Takes a prefix out. False: it was not there.
    pub fn remove(&mut self, prefix: Prefix) -> bool {
        let before = match prefix.address() {
            IpAddr::V4(a) => self.v4.remove(a.to_bits(), prefix.len()),
            IpAddr::V6(a) => self.v6.remove(a.to_bits(), prefix.len()),
        };
        if let Some(before) = before {
            self.values.release(before);
            self.len -= 1;
        }
        before.is_some()
    }

    #[inline]
    fn value(&self, number: u32) -> &T {
        &self.values.all[number as usize].value
    }

    /// The value of the longest prefix that an address lies in. Allocates nothing.
    #[inline]
    #[must_use]
    pub fn longest(&self, address: IpAddr) -> Option<&T> {
        let number = match address {
            IpAddr::V4(a) => self.v4.longest(a.to_bits()),
            IpAddr::V6(a) => self.v6.longest(a.to_bits()),
        };
        number.map(|number| self.value(number))
    }

    /// The same, with that prefix.
    #[must_use]
    pub fn longest_with_prefix(&self, address: IpAddr) -> Option<(Prefix, &T)> {
        let (number, len) = match address {
            IpAddr::V4(a) => self.v4.longest_with_len(a.to_bits()),
            IpAddr::V6(a) => self.v6.longest_with_len(a.to_bits()),
        }?;
        Some((Prefix::new(address, len)?, self.value(number)))
    }

    /// Reads what [`PrefixMap::longest`] of these addresses will read, so that it is in the cache
    /// by then. In tables larger than the cache the look-ups of a burst then take a fraction of the
    /// time, because what different ones read is read side by side. Allocates nothing.
    pub fn read_ahead(&self, addresses: &[IpAddr]) {
        for addresses in addresses.chunks(LANES) {
            let (mut v4, mut v6) = ([0; LANES], [0; LANES]);
            let (mut fours, mut sixes) = (0, 0);
            for address in addresses {
                match address {
                    IpAddr::V4(a) => {
                        v4[fours] = a.to_bits();
                        fours += 1;
                    }
                    IpAddr::V6(a) => {
                        v6[sixes] = a.to_bits();
                        sixes += 1;
                    }
                }
            }
            let mut found = [None; LANES];
            self.v4.longest_of(&v4[..fours], &mut found);
            for number in found[..fours].iter().flatten() {
                core::hint::black_box(&self.values.all[*number as usize].users);
            }
            self.v6.longest_of(&v6[..sixes], &mut found);
            for number in found[..sixes].iter().flatten() {
                core::hint::black_box(&self.values.all[*number as usize].users);
            }
        }
    }

    /// Every prefix with its value, by family and address, shorter before longer.
    pub fn iter(&self) -> impl Iterator<Item = (Prefix, &T)> {
        let prefix = |address, len| {
            Prefix::new(address, len).expect("the tree keeps lengths that its family has")
        };
        let v4 =
            self.v4.iter().map(move |(bits, len, n)| (prefix(IpAddr::V4(bits.into()), len), n));
        let v6 =
            self.v6.iter().map(move |(bits, len, n)| (prefix(IpAddr::V6(bits.into()), len), n));
        v4.chain(v6).map(|(prefix, number)| (prefix, self.value(number)))
    }

    /// How many prefixes there are.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The different values that they have, in no particular order.
    pub fn values(&self) -> impl Iterator<Item = &T> {
        self.values.all.iter().filter(|kept| kept.users > 0).map(|kept| &kept.value)
    }

    /// How many different values they have. O(that number).
    #[must_use]
    pub fn different(&self) -> usize {
        self.values().count()
    }

    /// Bytes of memory that it has, what values own elsewhere left out.
    #[must_use]
    pub fn memory(&self) -> usize {
        let values =
            self.values.all.capacity() * size_of::<Kept<T>>() + self.values.by_hash.capacity() * 16;
        self.v4.memory() + self.v6.memory() + values
    }
}

impl<T: Clone + Eq + Hash + fmt::Debug> fmt::Debug for PrefixMap<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}
