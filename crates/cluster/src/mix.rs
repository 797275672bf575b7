//! The hash behind ties: the same on every node, and nothing that a sender of packets could steer
//! without the seed.

/// The finaliser of SplitMix64 (Steele, Lea, Flood, 2014): every bit of the word reaches every bit
/// of the result.
#[inline]
#[must_use]
pub const fn mix64(word: u64) -> u64 {
    let mut z = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// What is being decided by a tie; keeps the three kinds of ties apart.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Role {
    /// A link between forwarders.
    Link = 1,
    /// A forwarder between links.
    Forwarder = 2,
    /// A queue between classes.
    Class = 3,
}

/// The order of the tied candidate (a, b) in a round whose seed is `round`.
#[inline]
pub(crate) const fn tie(round: u64, role: Role, a: usize, b: usize, c: usize) -> u32 {
    mix64(round ^ ((role as u64) << 48 | (a as u64) << 32 | (b as u64) << 16 | c as u64)) as u32
}
