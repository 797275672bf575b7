//! Longest-prefix match: the structure that every packet's destination is looked up in.
//!
//! A tree bitmap (Eatherton, Varghese, Dittia: Tree Bitmap: Hardware/Software IP Lookups with
//! Incremental Updates, 2004). The first sixteen bits of an address choose a node directly; below,
//! every node takes five bits, so that it is 16 bytes and four of them share a line of the cache:
//!
//! | paper | field | meaning |
//! |---|---|---|
//! | internal bitmap | [`Node::inner`] | bit `2^l + p`: there is a prefix of `l` (0 to 4) more bits, whose value is `p` |
//! | extending paths bitmap | [`Node::outer`] | bit `c`: longer prefixes go on with the five bits `c` |
//! | result pointer | [`Node::values`] | where the values of `inner` lie, in the order of their bits; a single value itself |
//! | child pointer | [`Node::children`] | where the nodes of `outer` lie, in the order of their bits |
//!
//! The numbering of `inner` is that of a binary heap: the prefixes that a packet matches in a node
//! are the ancestors of one position, known beforehand as a mask, and the longest is the highest
//! bit that is left. Prefixes of less than sixteen bits are few: they are written to all of the
//! first sixteen bits that they cover, where no longer one stands.
//!
//! Complexity: a look-up reads one root, at most 4 nodes (IPv4; 2 for a /24) or 23 (IPv6; 7 for a
//! /48), and one value. An insertion or removal walks as many and moves at most 32 neighbours of
//! what it changes; no other prefix is touched, except that one of `l` < 16 bits writes `2^(16-l)`
//! words (the default route none). Memory: 256 KiB of roots, of which only what is used is touched;
//! 16 bytes a node, 4 bytes a value unless it is alone, in blocks that are at most half empty. What
//! is freed is used again, and never given back.

use core::fmt;
use core::marker::PhantomData;

use crate::blocks::Blocks;

/// Bits that choose a root.
const FIRST: u32 = 16;
/// Address bits that a node takes.
const STRIDE: u32 = 5;
/// Nodes below one another: an IPv6 address has 112 bits behind the first.
const DEEPEST: usize = 23;
/// Addresses that are looked up side by side: their reads of memory overlap.
const LANES: usize = 16;

/// For each four bits: the positions of a node's prefixes that an address with these bits matches.
const MATCHING: [u32; 16] = {
    let mut masks = [0; 16];
    let mut bits = 0;
    while bits < masks.len() {
        let mut position = 16 | bits;
        while position > 0 {
            masks[bits] |= 1 << position;
            position >>= 1;
        }
        bits += 1;
    }
    masks
};

/// An address as bits.
pub(crate) trait Bits: Copy + Eq {
    /// The first sixteen.
    fn first(self) -> usize;
    /// The five bits from bit `16 + 5 * depth` on, counted from the highest; zeros behind the last.
    fn five(self, depth: u32) -> usize;
    /// The address that begins with `bits`, the last of which is bit `end`, and is zero elsewhere.
    fn ending(bits: usize, end: u32) -> Self;
    /// The bits of both.
    fn with(self, other: Self) -> Self;
}

impl Bits for u32 {
    #[inline]
    fn first(self) -> usize {
        (self >> FIRST) as usize
    }

    #[inline]
    fn five(self, depth: u32) -> usize {
        // Sixteen bits are left; what a shift takes beyond them is zero.
        (((u64::from(self) << 32) << (FIRST + STRIDE * depth)) >> 59) as usize
    }

    fn ending(bits: usize, end: u32) -> Self {
        (bits as Self).checked_shl(Self::BITS - end).unwrap_or(0)
    }

    fn with(self, other: Self) -> Self {
        self | other
    }
}

impl Bits for u128 {
    #[inline]
    fn first(self) -> usize {
        (self >> 112) as usize
    }

    #[inline]
    fn five(self, depth: u32) -> usize {
        ((self << (FIRST + STRIDE * depth)) >> 123) as usize
    }

    fn ending(bits: usize, end: u32) -> Self {
        (bits as Self).checked_shl(Self::BITS - end).unwrap_or(0)
    }

    fn with(self, other: Self) -> Self {
        self | other
    }
}

#[derive(Clone, Copy, Default)]
struct Node {
    inner: u32,
    outer: u32,
    values: u32,
    children: u32,
}

impl Node {
    /// The longest of its prefixes that an address with these five bits matches, as a position of
    /// `inner`.
    #[inline]
    fn matching(&self, five: usize) -> Option<u32> {
        (self.inner & MATCHING[five >> 1]).checked_ilog2()
    }

    /// Where the node below it lies that the five bits lead to.
    #[inline]
    fn child(&self, five: usize) -> Option<u32> {
        (self.outer >> five & 1 != 0).then(|| self.children + below(self.outer, five as u32))
    }
}

/// How many bits of `map` are set below bit `at`.
#[inline]
fn below(map: u32, at: u32) -> u32 {
    (map & ((1 << at) - 1)).count_ones()
}

/// Where a prefix stands: of less than [`FIRST`] bits in the list of these, else in a node so far
/// below its root, and there at this position.
fn place<K: Bits>(bits: K, len: u8) -> Result<(u32, u32), usize> {
    let len = u32::from(len);
    let Some(more) = len.checked_sub(FIRST) else {
        return Err(1 << len | bits.first() >> (FIRST - len));
    };
    let (depth, more) = (more / STRIDE, more % STRIDE);
    let five = bits.five(depth);
    Ok((depth, 1 << more | (five as u32 >> (STRIDE - more))))
}

/// Where an address leads to.
enum Found {
    /// A node and a position there, and how far below its root it is.
    Node(u32, u32, u32),
    /// A prefix of less than [`FIRST`] bits.
    Short,
}

/// Prefixes and a number for each.
#[derive(Clone)]
pub(crate) struct Lpm<K> {
    /// By the first bits of an address: their node. Zero, or as long as it is empty: none, which is
    /// the first of the nodes, and empty.
    roots: Vec<u32>,
    nodes: Blocks<Node>,
    values: Blocks<u32>,
    /// The prefixes of less than [`FIRST`] bits, numbered as [`Node::inner`] has it: the number of
    /// each plus one; zero, or beyond the end: there is none.
    short: Vec<u32>,
    /// By the first bits of an address: the longest of them that it lies in, as its number plus
    /// one; the default route left out. Empty as long as there are none.
    covering: Vec<u32>,
    key: PhantomData<K>,
}

impl<K> Default for Lpm<K> {
    fn default() -> Self {
        let mut nodes = Blocks::default();
        nodes.insert(0, 0, 0, Node::default());
        // Tables by the first bits are made when they are needed: a table of a few routes stays
        // small.
        Self {
            roots: Vec::new(),
            nodes,
            values: Blocks::default(),
            short: Vec::new(),
            covering: Vec::new(),
            key: PhantomData,
        }
    }
}

impl<K: Bits> Lpm<K> {
    /// The number of the longest prefix that `address` lies in.
    #[inline]
    pub(crate) fn longest(&self, address: K) -> Option<u32> {
        match self.find(address) {
            Found::Node(index, at, _) => Some(self.value(&self.nodes.all[index as usize], at)),
            Found::Short => self.longest_short(address),
        }
    }

    /// The same, and the length of that prefix.
    pub(crate) fn longest_with_len(&self, address: K) -> Option<(u32, u8)> {
        if let Found::Node(index, at, depth) = self.find(address) {
            let len = FIRST + depth * STRIDE + at.ilog2();
            return Some((self.value(&self.nodes.all[index as usize], at), len as u8));
        }
        let len = (0..FIRST)
            .rev()
            .find(|len| self.short(1 << len | address.first() >> (FIRST - len)) != 0)?;
        Some((self.longest_short(address)?, len as u8))
    }

    #[inline]
    fn find(&self, address: K) -> Found {
        let mut index = self.root(address.first());
        let (mut best, mut depth) = (Found::Short, 0);
        loop {
            let node = &self.nodes.all[index as usize];
            let five = address.five(depth);
            if let Some(at) = node.matching(five) {
                best = Found::Node(index, at, depth);
            }
            match node.child(five) {
                Some(child) => index = child,
                None => return best,
            }
            depth += 1;
        }
    }

    #[inline]
    fn longest_short(&self, address: K) -> Option<u32> {
        match self.covering.get(address.first()) {
            None | Some(0) => self.short(1).checked_sub(1),
            Some(number) => Some(number - 1),
        }
    }

    #[inline]
    fn root(&self, first: usize) -> u32 {
        self.roots.get(first).copied().unwrap_or(0)
    }

    #[inline]
    fn short(&self, place: usize) -> u32 {
        self.short.get(place).copied().unwrap_or(0)
    }

    #[inline]
    fn value(&self, node: &Node, at: u32) -> u32 {
        if node.inner.is_power_of_two() {
            return node.values;
        }
        self.values.all[(node.values + below(node.inner, at)) as usize]
    }

    /// [`Lpm::longest`] for many addresses: in the time of a few of them where the table is larger
    /// than the cache, because what they read is read side by side. `found` gets one element for
    /// each.
    pub(crate) fn longest_of(&self, addresses: &[K], found: &mut [Option<u32>]) {
        for (addresses, found) in addresses.chunks(LANES).zip(found.chunks_mut(LANES)) {
            self.longest_of_few(addresses, found);
        }
    }

    fn longest_of_few(&self, addresses: &[K], found: &mut [Option<u32>]) {
        let count = addresses.len();
        let mut at_node = [0; LANES];
        for (index, address) in at_node.iter_mut().zip(addresses) {
            *index = self.root(address.first());
        }
        let mut lanes: [u8; LANES] = core::array::from_fn(|lane| lane as u8);
        let (mut left, mut depth) = (count, 0);
        // The node and position that each has come to; no address matches at position zero.
        let mut best = [(Node::default(), 0); LANES];
        while left > 0 {
            // First all reads, which do not wait for each other; then all that depends on what was
            // read.
            let mut nodes = [Node::default(); LANES];
            for (node, lane) in nodes.iter_mut().zip(&lanes[..left]) {
                *node = self.nodes.all[at_node[usize::from(*lane)] as usize];
            }
            let mut go_on = 0;
            for turn in 0..left {
                let (node, lane) = (nodes[turn], usize::from(lanes[turn]));
                let five = addresses[lane].five(depth);
                if let Some(at) = node.matching(five) {
                    best[lane] = (node, at);
                }
                if let Some(child) = node.child(five) {
                    at_node[lane] = child;
                    lanes[go_on] = lane as u8;
                    go_on += 1;
                }
            }
            left = go_on;
            depth += 1;
        }
        for ((found, address), (node, at)) in found.iter_mut().zip(addresses).zip(&best) {
            *found =
                if *at == 0 { self.longest_short(*address) } else { Some(self.value(node, *at)) };
        }
    }

    /// The number of exactly this prefix.
    pub(crate) fn get(&self, bits: K, len: u8) -> Option<u32> {
        let (depth, at) = match place(bits, len) {
            Ok(place) => place,
            Err(short) => return self.short(short).checked_sub(1),
        };
        let mut node = &self.nodes.all[self.root(bits.first()) as usize];
        for down in 0..depth {
            node = &self.nodes.all[node.child(bits.five(down))? as usize];
        }
        (node.inner >> at & 1 != 0).then(|| self.value(node, at))
    }

    /// Gives a prefix its number; the one that it had is given back.
    pub(crate) fn insert(&mut self, bits: K, len: u8, value: u32) -> Option<u32> {
        let (depth, at) = match place(bits, len) {
            Ok(place) => place,
            Err(short) => return self.set_short(short, value + 1),
        };
        let root = bits.first();
        if self.roots.is_empty() {
            self.roots = vec![0; 1 << FIRST];
        }
        if self.roots[root] == 0 {
            self.roots[root] = self.nodes.insert(0, 0, 0, Node::default());
        }
        let mut index = self.roots[root] as usize;
        for five in (0..depth).map(|down| bits.five(down)) {
            let node = self.nodes.all[index];
            if node.outer >> five & 1 == 0 {
                let (count, rank) = (node.outer.count_ones(), below(node.outer, five as u32));
                let children =
                    self.nodes.insert(node.children, count, rank as usize, Node::default());
                let node = &mut self.nodes.all[index];
                (node.children, node.outer) = (children, node.outer | 1 << five);
            }
            let node = &self.nodes.all[index];
            index = (node.children + below(node.outer, five as u32)) as usize;
        }
        let node = &mut self.nodes.all[index];
        let (count, rank) = (node.inner.count_ones(), below(node.inner, at) as usize);
        if node.inner >> at & 1 != 0 {
            let place = match count {
                1 => &mut node.values,
                _ => &mut self.values.all[node.values as usize + rank],
            };
            return Some(core::mem::replace(place, value));
        }
        node.values = match count {
            0 => value,
            1 => {
                // The one that was alone and this one.
                let start = self.values.insert(0, 0, 0, node.values);
                self.values.insert(start, 1, rank, value)
            }
            _ => self.values.insert(node.values, count, rank, value),
        };
        node.inner |= 1 << at;
        None
    }

    /// Removes a prefix; gives its number.
    pub(crate) fn remove(&mut self, bits: K, len: u8) -> Option<u32> {
        let (depth, at) = match place(bits, len) {
            Ok(place) => place,
            Err(short) => return self.set_short(short, 0),
        };
        let value = self.get(bits, len)?;
        let root = bits.first();
        let mut path = [self.roots[root]; DEEPEST];
        for down in 0..depth {
            let node = &self.nodes.all[path[down as usize] as usize];
            path[down as usize + 1] = node.children + below(node.outer, bits.five(down) as u32);
        }
        let node = &mut self.nodes.all[path[depth as usize] as usize];
        let (count, rank) = (node.inner.count_ones(), below(node.inner, at) as usize);
        node.values = match count {
            1 => 0,
            2 => {
                let start = self.values.remove(node.values, 2, rank);
                let last = self.values.all[start as usize];
                self.values.remove(start, 1, 0);
                last
            }
            _ => self.values.remove(node.values, count, rank),
        };
        node.inner &= !(1 << at);
        for down in (0..=depth as usize).rev() {
            let node = self.nodes.all[path[down] as usize];
            if node.inner != 0 || node.outer != 0 {
                break;
            }
            let Some(up) = down.checked_sub(1) else {
                self.nodes.remove(path[0], 1, 0);
                self.roots[root] = 0;
                break;
            };
            let (node, five) = (self.nodes.all[path[up] as usize], bits.five(up as u32));
            let rank = below(node.outer, five as u32) as usize;
            let children = self.nodes.remove(node.children, node.outer.count_ones(), rank);
            let node = &mut self.nodes.all[path[up] as usize];
            (node.children, node.outer) = (children, node.outer & !(1 << five));
        }
        Some(value)
    }

    /// Sets or removes (zero) a prefix of less than [`FIRST`] bits; gives the number that it had.
    fn set_short(&mut self, place: usize, value: u32) -> Option<u32> {
        if place >= self.short.len() {
            if value == 0 {
                return None;
            }
            // All prefixes of that length: the default route alone takes two words.
            self.short.resize(2 << place.ilog2(), 0);
        }
        let before = core::mem::replace(&mut self.short[place], value);
        let len = place.ilog2();
        if len > 0 {
            if self.covering.is_empty() {
                self.covering = vec![0; 1 << FIRST];
            }
            // What lies under it sees it wherever no longer one covers it.
            let (first, count) =
                ((place << (FIRST - len)) & ((1 << FIRST) - 1), 1 << (FIRST - len));
            let shorter = |len: u32| self.short(place >> len);
            let covers = (0..len).map(shorter).find(|value| *value != 0).unwrap_or(0);
            self.covering[first..first + count].fill(covers);
            for longer in len + 1..FIRST {
                let more = longer - len;
                for at in place << more..(place + 1) << more {
                    let short = self.short(at);
                    if short != 0 {
                        let first = (at << (FIRST - longer)) & ((1 << FIRST) - 1);
                        self.covering[first..first + (1 << (FIRST - longer))].fill(short);
                    }
                }
            }
        }
        before.checked_sub(1)
    }

    /// Every prefix with its number, in the order of addresses, shorter before longer.
    pub(crate) fn iter(&self) -> Iter<'_, K> {
        let mut found: Vec<(usize, u32, Step<K>)> = Vec::new();
        for (place, number) in self.short.iter().enumerate().filter(|(_, number)| **number != 0) {
            let len = place.ilog2();
            let first = (place << (FIRST - len)) & ((1 << FIRST) - 1);
            let bits = K::ending(first, FIRST);
            found.push((first, len, Step::Prefix { bits, len: len as u8, value: number - 1 }));
        }
        for (first, index) in self.roots.iter().enumerate().filter(|(_, index)| **index != 0) {
            let bits = K::ending(first, FIRST);
            found.push((first, FIRST, Step::Node { index: *index, depth: 0, bits }));
        }
        Iter { lpm: self, waiting: last_first(found) }
    }

    /// Bytes of memory that it has.
    pub(crate) fn memory(&self) -> usize {
        let words = self.roots.capacity() + self.short.capacity() + self.covering.capacity();
        4 * words + self.nodes.memory() + self.values.memory()
    }
}

/// What an iteration still has to do, the next thing last.
enum Step<K> {
    Node { index: u32, depth: u32, bits: K },
    Prefix { bits: K, len: u8, value: u32 },
}

/// See [`Lpm::iter`].
pub(crate) struct Iter<'a, K> {
    lpm: &'a Lpm<K>,
    waiting: Vec<Step<K>>,
}

impl<K: Bits> Iterator for Iter<'_, K> {
    type Item = (K, u8, u32);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match self.waiting.pop()? {
                Step::Prefix { bits, len, value } => return Some((bits, len, value)),
                Step::Node { index, depth, bits } => self.node(index, depth, bits),
            }
        }
    }
}

impl<K: Bits> Iter<'_, K> {
    fn node(&mut self, index: u32, depth: u32, bits: K) {
        let node = &self.lpm.nodes.all[index as usize];
        let above = FIRST + STRIDE * depth;
        // By where they begin among the node's 32 addresses; what is shorter first.
        let mut found: Vec<(usize, u32, Step<K>)> = Vec::new();
        for at in ones(node.inner) {
            let more = at.ilog2();
            let value = at as usize & ((1 << more) - 1);
            let (bits, len) = (bits.with(K::ending(value, above + more)), (above + more) as u8);
            let step = Step::Prefix { bits, len, value: self.lpm.value(node, at) };
            found.push((value << (STRIDE - more), more, step));
        }
        for five in ones(node.outer).map(|five| five as usize) {
            let bits = bits.with(K::ending(five, above + STRIDE));
            let index = node.children + below(node.outer, five as u32);
            found.push((five, STRIDE, Step::Node { index, depth: depth + 1, bits }));
        }
        self.waiting.extend(last_first(found));
    }
}

/// Steps by where what they lead to begins, what is shorter first, and the first of all at the end.
fn last_first<K>(mut steps: Vec<(usize, u32, Step<K>)>) -> Vec<Step<K>> {
    steps.sort_by_key(|(first, more, _)| (*first, *more));
    steps.into_iter().rev().map(|(.., step)| step).collect()
}

/// The numbers of the bits that are set.
fn ones(mut map: u32) -> impl Iterator<Item = u32> {
    core::iter::from_fn(move || {
        let at = (map != 0).then(|| map.trailing_zeros())?;
        map &= map - 1;
        Some(at)
    })
}

impl<K> fmt::Debug for Lpm<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Lpm({} nodes, {} values)", self.nodes.all.len(), self.values.all.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prefix_trie::PrefixMap;
    use proptest::prelude::*;

    macro_rules! oracle {
        ($name:ident, $key:ty, $bits:expr, $mask:expr) => {
            proptest! {
                /// After every change: the same prefixes, the same longest matches (one by one and
                /// side by side), the same order.
                #[test]
                fn $name(
                    changes in prop::collection::vec((($bits, 0..=<$key>::BITS as u8),
                        prop::bool::weighted(0.7)), 1..200),
                    probes in prop::collection::vec($bits, 40),
                ) {
                    let (mut lpm, mut oracle) =
                        (Lpm::<$key>::default(), PrefixMap::<($key, u8), u32>::new());
                    let mut found = vec![None; probes.len()];
                    for (number, ((bits, len), add)) in changes.into_iter().enumerate() {
                        let (bits, number) = (bits & $mask(len), number as u32);
                        prop_assert_eq!(lpm.get(bits, len), oracle.get(&(bits, len)).copied());
                        if add {
                            prop_assert_eq!(lpm.insert(bits, len, number),
                                oracle.insert((bits, len), number));
                        } else {
                            prop_assert_eq!(lpm.remove(bits, len), oracle.remove(&(bits, len)));
                        }
                        for probe in probes.iter().chain([&bits]) {
                            let expected = oracle.get_lpm(&(*probe, <$key>::BITS as u8));
                            let expected = expected.map(|((_, len), number)| (*number, len));
                            prop_assert_eq!(lpm.longest_with_len(*probe), expected);
                            prop_assert_eq!(lpm.longest(*probe),
                                expected.map(|(number, _)| number));
                        }
                        lpm.longest_of(&probes, &mut found);
                        prop_assert!(probes.iter().map(|probe| lpm.longest(*probe))
                            .eq(found.iter().copied()));
                    }
                    let expected: Vec<_> = oracle.iter()
                        .map(|((bits, len), number)| (bits, len, *number)).collect();
                    prop_assert_eq!(lpm.iter().collect::<Vec<_>>(), expected);
                    let all: Vec<_> = lpm.iter().collect();
                    for (bits, len, number) in all {
                        prop_assert_eq!(lpm.remove(bits, len), Some(number));
                    }
                    prop_assert_eq!(lpm.iter().count(), 0);
                    // Whatever is left is on a list of free blocks, but for the empty node.
                    prop_assert_eq!(lpm.nodes.unused() + 1, lpm.nodes.all.len());
                    prop_assert_eq!(lpm.values.unused(), lpm.values.all.len());
                    prop_assert!(lpm.roots.iter().chain(&lpm.short).chain(&lpm.covering)
                        .all(|word| *word == 0));
                }
            }
        };
    }

    oracle!(
        v4_is_as_prefix_trie_has_it,
        u32,
        prop_oneof![any::<u32>(), any::<u32>().prop_map(|bits| bits & 0x8081_8383)],
        |len: u8| u32::MAX.checked_shl(32 - u32::from(len)).unwrap_or(0)
    );
    oracle!(
        v6_is_as_prefix_trie_has_it,
        u128,
        prop_oneof![any::<u128>(), any::<u128>().prop_map(|bits| bits & (3 << 126 | 7 << 60 | 7))],
        |len: u8| u128::MAX.checked_shl(128 - u32::from(len)).unwrap_or(0)
    );
}
