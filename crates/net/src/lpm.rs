//! Longest-prefix match: the structure that every packet's destination is looked up in.
//!
//! A tree bitmap (Eatherton, Varghese, Dittia: Tree Bitmap: Hardware/Software IP Lookups with Incremental Updates, 2004) whose nodes take six
//! bits of the address each, so that both of their bitmaps are one word:
//!
//! | paper | field | meaning |
//! |---|---|---|
//! | internal bitmap | [`Node::inner`] | bit `2^l + p`: there is a prefix of `l` (0 to 5) more bits, whose value is `p` |
//! | extending paths bitmap | [`Node::outer`] | bit `c`: longer prefixes go on with the six bits `c` |
//! | result pointer | [`Node::values`] | where the values of `inner` lie, in the order of their bits |
//! | child pointer | [`Node::children`] | where the nodes of `outer` lie, in the order of their bits |
//!
//! The numbering of `inner` is that of a binary heap: the prefixes that a packet matches in a node are the ancestors of one position, known
//! beforehand as a mask, and the longest is the highest bit that is left.
//!
//! Complexity: a look-up reads at most 6 nodes (IPv4) or 22 (IPv6) and one value. An insertion or removal walks as many and moves
//! at most 64 neighbours of what it changes; no other prefix is touched. Memory: 24 bytes a node, 4 bytes a value, in blocks of powers of two:
//! a million IPv4 routes as the Internet has them take some 30 MB. What is freed is used again, and never given back.

use core::fmt;
use core::marker::PhantomData;

/// Address bits that a node takes.
const STRIDE: u32 = 6;

/// For each five bits: the positions of a node's prefixes that an address with these bits matches.
const MATCHING: [u64; 32] = {
    let mut masks = [0; 32];
    let mut bits = 0;
    while bits < masks.len() {
        let mut position = 32 | bits;
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
    /// The six bits from bit `6 * depth` on, counted from the highest; zeros behind the last.
    fn six(self, depth: u32) -> usize;
    /// The address whose bits from `6 * depth` on are `six`, the others zero.
    fn placed(six: usize, depth: u32) -> Self;
    /// The bits of both.
    fn with(self, other: Self) -> Self;
}

impl Bits for u32 {
    #[inline]
    fn six(self, depth: u32) -> usize {
        ((u64::from(self) << 28) >> (54 - STRIDE * depth)) as usize & 63
    }

    fn placed(six: usize, depth: u32) -> Self {
        (((six as u64) << (54 - STRIDE * depth)) >> 28) as Self
    }

    fn with(self, other: Self) -> Self {
        self | other
    }
}

impl Bits for u128 {
    #[inline]
    fn six(self, depth: u32) -> usize {
        // The last node has but two bits left.
        let bits = if depth < 21 { self >> (122 - STRIDE * depth) } else { self << 4 };
        bits as usize & 63
    }

    fn placed(six: usize, depth: u32) -> Self {
        if depth < 21 { (six as Self) << (122 - STRIDE * depth) } else { six as Self >> 4 }
    }

    fn with(self, other: Self) -> Self {
        self | other
    }
}

#[derive(Clone, Copy, Default)]
struct Node {
    inner: u64,
    outer: u64,
    values: u32,
    children: u32,
}

impl Node {
    /// Where the value of position `at` of `inner` lies among all.
    #[inline]
    fn value(&self, at: u32) -> usize {
        self.values as usize + below(self.inner, at)
    }

    /// The same for the child of six bits `six`.
    #[inline]
    fn child(&self, six: usize) -> usize {
        self.children as usize + below(self.outer, six as u32)
    }
}

/// How many bits of `map` are set below bit `at`.
#[inline]
fn below(map: u64, at: u32) -> usize {
    (map & ((1 << at) - 1)).count_ones() as usize
}

/// The node a prefix belongs to and its position there: `len / 6` nodes down, then the remaining bits.
fn place<K: Bits>(bits: K, len: u8) -> (u32, u32) {
    let (depth, more) = (u32::from(len) / STRIDE, u32::from(len) % STRIDE);
    (depth, 1 << more | (bits.six(depth) as u32 >> (STRIDE - more)))
}

/// Prefixes and a number for each.
#[derive(Clone)]
pub(crate) struct Lpm<K> {
    /// The first is the root.
    nodes: Blocks<Node>,
    values: Blocks<u32>,
    key: PhantomData<K>,
}

impl<K> Default for Lpm<K> {
    fn default() -> Self {
        let mut nodes = Blocks::default();
        nodes.insert(0, 0, 0, Node::default());
        Self { nodes, values: Blocks::default(), key: PhantomData }
    }
}

impl<K: Bits> Lpm<K> {
    /// The number of the longest prefix that `address` lies in, and the length of that prefix.
    #[inline]
    pub(crate) fn longest(&self, address: K) -> Option<(u32, u8)> {
        let mut node = &self.nodes.all[0];
        let (mut best, mut depth) = (None, 0);
        loop {
            let six = address.six(depth);
            let matching = node.inner & MATCHING[six >> 1];
            if matching != 0 {
                best = Some((node, matching, depth));
            }
            if node.outer >> six & 1 == 0 {
                break;
            }
            node = &self.nodes.all[node.child(six)];
            depth += 1;
        }
        let (node, matching, depth) = best?;
        let at = matching.ilog2();
        Some((self.values.all[node.value(at)], (depth * STRIDE + at.ilog2()) as u8))
    }

    /// The number of exactly this prefix.
    pub(crate) fn get(&self, bits: K, len: u8) -> Option<u32> {
        let (depth, at) = place(bits, len);
        let mut node = &self.nodes.all[0];
        for six in (0..depth).map(|depth| bits.six(depth)) {
            if node.outer >> six & 1 == 0 {
                return None;
            }
            node = &self.nodes.all[node.child(six)];
        }
        (node.inner >> at & 1 != 0).then(|| self.values.all[node.value(at)])
    }

    /// Adds a prefix that is not there yet.
    pub(crate) fn insert(&mut self, bits: K, len: u8, value: u32) {
        let (depth, at) = place(bits, len);
        let mut index = 0;
        for six in (0..depth).map(|depth| bits.six(depth)) {
            let node = self.nodes.all[index];
            if node.outer >> six & 1 == 0 {
                let (count, rank) = (node.outer.count_ones(), below(node.outer, six as u32));
                let children = self.nodes.insert(node.children, count, rank, Node::default());
                let node = &mut self.nodes.all[index];
                (node.children, node.outer) = (children, node.outer | 1 << six);
            }
            index = self.nodes.all[index].child(six);
        }
        let node = &mut self.nodes.all[index];
        debug_assert!(node.inner >> at & 1 == 0, "it is there already");
        node.values = self.values.insert(node.values, node.inner.count_ones(), below(node.inner, at), value);
        node.inner |= 1 << at;
    }

    /// Removes a prefix; gives its number.
    pub(crate) fn remove(&mut self, bits: K, len: u8) -> Option<u32> {
        let value = self.get(bits, len)?;
        let (depth, at) = place(bits, len);
        let mut path = [0; 22];
        for down in 0..depth {
            let index = path[down as usize];
            path[down as usize + 1] = self.nodes.all[index].child(bits.six(down));
        }
        let node = &mut self.nodes.all[path[depth as usize]];
        node.values = self.values.remove(node.values, node.inner.count_ones(), below(node.inner, at));
        node.inner &= !(1 << at);
        for down in (0..depth).rev() {
            let (parent, index) = (path[down as usize], path[down as usize + 1]);
            if self.nodes.all[index].inner != 0 || self.nodes.all[index].outer != 0 {
                break;
            }
            let (node, six) = (self.nodes.all[parent], bits.six(down));
            let rank = below(node.outer, six as u32);
            let children = self.nodes.remove(node.children, node.outer.count_ones(), rank);
            let node = &mut self.nodes.all[parent];
            (node.children, node.outer) = (children, node.outer & !(1 << six));
        }
        Some(value)
    }

    /// Every prefix with its number, in the order of addresses, shorter before longer.
    pub(crate) fn iter(&self, zero: K) -> Iter<'_, K> {
        Iter { lpm: self, waiting: vec![Step::Node { index: 0, depth: 0, bits: zero }] }
    }
}

/// What an iteration still has to do, the next thing last.
enum Step<K> {
    Node { index: usize, depth: u32, bits: K },
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
                Step::Node { index, depth, bits } => {
                    let node = &self.lpm.nodes.all[index];
                    // By where they begin among the node's 64 addresses; what is shorter first.
                    let mut found: Vec<(usize, u32, Step<K>)> = Vec::new();
                    for at in ones(node.inner) {
                        let more = at.ilog2();
                        let six = (at as usize) << (STRIDE - more) & 63;
                        let (bits, len) = (bits.with(K::placed(six, depth)), (depth * STRIDE + more) as u8);
                        let value = self.lpm.values.all[node.value(at)];
                        found.push((six, more, Step::Prefix { bits, len, value }));
                    }
                    for six in ones(node.outer).map(|six| six as usize) {
                        let bits = bits.with(K::placed(six, depth));
                        let step = Step::Node { index: node.child(six), depth: depth + 1, bits };
                        found.push((six, STRIDE, step));
                    }
                    found.sort_by_key(|(six, more, _)| (*six, *more));
                    self.waiting.extend(found.into_iter().rev().map(|(.., step)| step));
                }
            }
        }
    }
}

/// The numbers of the bits that are set.
fn ones(mut map: u64) -> impl Iterator<Item = u32> {
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

/// Blocks of 1 to 64 elements in one vector. A block of n elements has room for the next power of two, and one of none is nowhere.
#[derive(Clone)]
struct Blocks<T> {
    all: Vec<T>,
    /// Blocks that are not used, by the logarithm of their size.
    free: [Vec<u32>; 7],
}

impl<T> Default for Blocks<T> {
    fn default() -> Self {
        Self { all: Vec::new(), free: Default::default() }
    }
}

/// The logarithm of the size of a block of `len` elements.
fn class(len: u32) -> usize {
    len.next_power_of_two().ilog2() as usize
}

impl<T: Copy + Default> Blocks<T> {
    fn take(&mut self, class: usize) -> u32 {
        self.free[class].pop().unwrap_or_else(|| {
            let start = self.all.len();
            self.all.resize(start + (1 << class), T::default());
            u32::try_from(start).expect("the prefixes of a table are fewer than 2^31")
        })
    }

    /// Puts `value` before element `rank` of the block of `len` elements at `start`; gives where the block is now.
    fn insert(&mut self, start: u32, len: u32, rank: usize, value: T) -> u32 {
        let (old, count) = (start as usize, len as usize);
        let full = len == 0 || len.is_power_of_two();
        let start = if full { self.take(class(len + 1)) } else { start };
        let new = start as usize;
        if full && len > 0 {
            self.all.copy_within(old..old + rank, new);
            self.free[class(len)].push(old as u32);
        }
        self.all.copy_within(old + rank..old + count, new + rank + 1);
        self.all[new + rank] = value;
        start
    }

    /// Takes element `rank` out of the block of `len` elements at `start`; gives where the block is now.
    fn remove(&mut self, start: u32, len: u32, rank: usize) -> u32 {
        let (old, left) = (start as usize, len - 1);
        let smaller = left == 0 || left.is_power_of_two();
        let start = match left {
            0 => 0,
            _ if smaller => self.take(class(left)),
            _ => start,
        };
        let new = start as usize;
        if smaller {
            self.free[class(len)].push(old as u32);
        }
        if left > 0 {
            self.all.copy_within(old..old + rank, new);
            self.all.copy_within(old + rank + 1..old + len as usize, new + rank);
        }
        start
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
                /// After every change: the same prefixes, the same longest matches, the same order.
                #[test]
                fn $name(changes in prop::collection::vec(($bits, 0..=<$key>::BITS as u8, prop::bool::weighted(0.7)), 1..300), probes in prop::collection::vec($bits, 50)) {
                    let (mut lpm, mut oracle) = (Lpm::<$key>::default(), PrefixMap::<($key, u8), u32>::new());
                    for (number, (bits, len, add)) in changes.into_iter().enumerate() {
                        let (bits, number) = (bits & $mask(len), number as u32);
                        prop_assert_eq!(lpm.get(bits, len), oracle.get(&(bits, len)).copied());
                        if add && oracle.get(&(bits, len)).is_none() {
                            lpm.insert(bits, len, number);
                            oracle.insert((bits, len), number);
                        } else {
                            prop_assert_eq!(lpm.remove(bits, len), oracle.remove(&(bits, len)));
                        }
                        for probe in probes.iter().chain([&bits]) {
                            let expected = oracle.get_lpm(&(*probe, <$key>::BITS as u8));
                            prop_assert_eq!(lpm.longest(*probe), expected.map(|((_, len), number)| (*number, len)));
                        }
                    }
                    let expected: Vec<_> = oracle.iter().map(|((bits, len), number)| (bits, len, *number)).collect();
                    prop_assert_eq!(lpm.iter(0).collect::<Vec<_>>(), expected);
                    let all: Vec<_> = lpm.iter(0).collect();
                    for (bits, len, number) in all {
                        prop_assert_eq!(lpm.remove(bits, len), Some(number));
                    }
                    prop_assert_eq!(lpm.iter(0).count(), 0);
                    // Whatever is left is on a list of free blocks, but for the root.
                    let free: usize = lpm.nodes.free.iter().enumerate().map(|(class, free)| free.len() << class).sum();
                    prop_assert_eq!(free + 1, lpm.nodes.all.len());
                }
            }
        };
    }

    oracle!(
        v4_is_as_prefix_trie_has_it,
        u32,
        prop_oneof![any::<u32>(), any::<u32>().prop_map(|bits| bits & 0x8080_8383)],
        |len: u8| u32::MAX.checked_shl(32 - u32::from(len)).unwrap_or(0)
    );
    oracle!(
        v6_is_as_prefix_trie_has_it,
        u128,
        prop_oneof![any::<u128>(), any::<u128>().prop_map(|bits| bits & (3 << 126 | 7 << 60 | 7))],
        |len: u8| u128::MAX.checked_shl(128 - u32::from(len)).unwrap_or(0)
    );
}
