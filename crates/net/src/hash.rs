//! Seeded hashes of flow keys and table keys.
//!
//! Built on the folded multiplication that wyhash and its kin use: the 128-bit product of two
//! words, its halves combined by exclusive or, mixes every bit of one word with every bit of the
//! other in a few cycles. It spreads keys evenly and cannot be steered without the seed, but it
//! is *not* a cryptographic function: do not publish hashes made with a seed that must stay secret.
//! Routers draw the seed at start; simulators take it from the scenario.
//!
//! Cost: 4 multiplications for IPv4, 6 for IPv6; constant time, no allocation.

use core::hash::{BuildHasher, Hasher};
use core::net::IpAddr;

use evenkeel_core::FlowKey;

/// Hashes flow keys with one seed.
#[derive(Clone, Copy, Debug)]
pub struct FlowHasher {
    keys: [u64; 4],
}

impl FlowHasher {
    /// A hasher whose results depend on every bit of `seed`.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        let mut keys = [0; 4];
        let mut state = seed;
        let mut i = 0;
        while i < keys.len() {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            keys[i] = split_mix(state);
            i += 1;
        }
        Self { keys }
    }

    /// The hash of `flow`. The two directions of a conversation have different hashes.
    #[inline]
    #[must_use]
    pub fn hash(&self, flow: &FlowKey) -> u64 {
        let [k0, k1, k2, k3] = self.keys;
        let ports = u32::from(flow.source_port) << 16 | u32::from(flow.destination_port);
        let rest = u64::from(flow.flow_label) << 40 | rest(ports, flow.protocol);
        let addresses = match (flow.source, flow.destination) {
            (IpAddr::V4(s), IpAddr::V4(d)) => {
                fold(u64::from(s.to_bits()) << 32 | u64::from(d.to_bits()), k0)
            }
            (s, d) => {
                let (s, d) = (wide(s), wide(d));
                fold(s.0 ^ k0, s.1 ^ k1) ^ fold(d.0 ^ k2, d.1 ^ k3).rotate_left(32)
            }
        };
        self.mixed(addresses, rest)
    }

    /// The same of an IPv4 flow in a few words, as
    /// [`PackedFlow::v4`](evenkeel_core::flow_table::PackedFlow::v4) has them.
    #[inline]
    #[must_use]
    pub const fn v4(&self, addresses: u64, ports: u32, protocol: u8) -> u64 {
        self.mixed(fold(addresses, self.keys[0]), rest(ports, protocol))
    }

    /// Both words enter both products: where a factor of one is zero, and the other word lost, the
    /// second still tells keys apart.
    #[inline]
    const fn mixed(&self, addresses: u64, rest: u64) -> u64 {
        let [k0, k1, k2, k3] = self.keys;
        let mixed = fold(addresses ^ k1, rest ^ k2);
        fold(mixed ^ rest.wrapping_add(k3), addresses ^ k0 ^ 0x2545_f491_4f6c_dd1d)
    }

    /// A hash of two words, for tables that find flows by less than a [key](Self::hash).
    #[inline]
    #[must_use]
    pub const fn words(&self, (a, b): (u64, u64)) -> u64 {
        let [k0, k1, ..] = self.keys;
        fold(a ^ k0, b ^ k1)
    }
}

/// What is hashed besides the addresses.
#[inline]
const fn rest(ports: u32, protocol: u8) -> u64 {
    (protocol as u64) << 32 | ports as u64
}

/// Both halves of an address as an IPv6 address.
#[inline]
fn wide(address: IpAddr) -> (u64, u64) {
    let bits = match address {
        IpAddr::V4(a) => a.to_ipv6_mapped().to_bits(),
        IpAddr::V6(a) => a.to_bits(),
    };
    ((bits >> 64) as u64, bits as u64)
}

/// The folded product: low half exclusive-or high half.
#[inline]
const fn fold(a: u64, b: u64) -> u64 {
    let product = (a as u128).wrapping_mul(b as u128);
    product as u64 ^ (product >> 64) as u64
}

/// The finaliser of the SplitMix64 generator (Steele, Lea, Flood: Fast Splittable Pseudorandom
/// Number Generators, 2014).
const fn split_mix(state: u64) -> u64 {
    let mut z = state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Makes [`SeededHasher`]s for hash maps whose keys come from packets.
#[derive(Clone, Copy, Debug)]
pub struct SeededState(u64);

impl SeededState {
    /// Hashers whose results depend on every bit of `seed`.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(split_mix(seed.wrapping_add(0x9e37_79b9_7f4a_7c15)))
    }
}

impl BuildHasher for SeededState {
    type Hasher = SeededHasher;

    fn build_hasher(&self) -> SeededHasher {
        SeededHasher { state: self.0, seed: self.0.rotate_left(17) | 1 }
    }
}

/// A [`Hasher`] that folds each word written to it into its state; meant for keys of a few
/// integers.
#[derive(Clone, Copy, Debug)]
pub struct SeededHasher {
    state: u64,
    seed: u64,
}

impl Hasher for SeededHasher {
    fn finish(&self) -> u64 {
        fold(self.state ^ 0x2545_f491_4f6c_dd1d, self.seed)
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u64(&mut self, word: u64) {
        self.state = fold(self.state ^ word, self.seed ^ 0x9e37_79b9_7f4a_7c15).wrapping_add(word);
    }

    fn write_u8(&mut self, word: u8) {
        self.write_u64(word.into());
    }

    fn write_u16(&mut self, word: u16) {
        self.write_u64(word.into());
    }

    fn write_u32(&mut self, word: u32) {
        self.write_u64(word.into());
    }

    fn write_u128(&mut self, word: u128) {
        self.write_u64(word as u64);
        self.write_u64((word >> 64) as u64);
    }

    fn write_usize(&mut self, word: usize) {
        self.write_u64(word as u64);
    }
}
