//! Flow hashes are the same for a flow, differ between flows, and fill buckets evenly.

use std::collections::HashSet;
use std::hash::{BuildHasher, Hash};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use evenkeel_core::FlowKey;
use evenkeel_net::hash::{FlowHasher, SeededState};

fn v4() -> FlowKey {
    FlowKey {
        source: IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)),
        destination: IpAddr::V4(Ipv4Addr::new(10, 1, 0, 1)),
        protocol: 17,
        source_port: 5000,
        destination_port: 6000,
        flow_label: 0,
    }
}

fn v6() -> FlowKey {
    FlowKey {
        source: IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1)),
        destination: IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 1)),
        flow_label: 0x12345,
        ..v4()
    }
}

/// The flow with one bit changed: addresses from both ends, ports, protocol, label.
fn flip(key: FlowKey, bit: u32) -> FlowKey {
    let address = |address: IpAddr, bit: u32| match address {
        IpAddr::V4(a) => IpAddr::V4(Ipv4Addr::from_bits(a.to_bits() ^ 1 << (bit % 32))),
        IpAddr::V6(a) => IpAddr::V6(Ipv6Addr::from_bits(a.to_bits() ^ 1 << bit)),
    };
    match bit {
        0..128 => FlowKey { source: address(key.source, bit), ..key },
        128..256 => FlowKey { destination: address(key.destination, bit - 128), ..key },
        256..272 => FlowKey { source_port: key.source_port ^ 1 << (bit - 256), ..key },
        272..288 => FlowKey { destination_port: key.destination_port ^ 1 << (bit - 272), ..key },
        288..296 => FlowKey { protocol: key.protocol ^ 1 << (bit - 288), ..key },
        _ => FlowKey { flow_label: key.flow_label ^ 1 << (bit - 296), ..key },
    }
}

#[test]
fn every_bit_of_the_key_and_of_the_seed_moves_about_half_of_the_hash() {
    for key in [v4(), v6()] {
        for bit in 0..316 {
            let mut moved = 0;
            for seed in 0..64 {
                let hasher = FlowHasher::new(seed);
                assert_eq!(hasher.hash(&key), FlowHasher::new(seed).hash(&key));
                moved += (hasher.hash(&key) ^ hasher.hash(&flip(key, bit))).count_ones();
            }
            let mean = f64::from(moved) / 64.0;
            assert!((28.0..36.0).contains(&mean), "bit {bit}: {mean} of 64");
        }
        for bit in 0..64 {
            let moved: u32 = (0..64_u64)
                .map(|seed| {
                    (FlowHasher::new(seed).hash(&key) ^ FlowHasher::new(seed ^ 1 << bit).hash(&key))
                        .count_ones()
                })
                .sum();
            let mean = f64::from(moved) / 64.0;
            assert!((28.0..36.0).contains(&mean), "seed bit {bit}: {mean} of 64");
        }
    }
}

/// Chi-squared of `hashes` over 1024 buckets, by some bits of each.
fn chi_squared(hashes: &[u64], shift: u32) -> f64 {
    let mut buckets = [0_u32; 1024];
    for hash in hashes {
        buckets[(hash >> shift) as usize % 1024] += 1;
    }
    let expected = hashes.len() as f64 / 1024.0;
    buckets.iter().map(|count| (f64::from(*count) - expected).powi(2) / expected).sum()
}

#[test]
fn orderly_keys_fill_buckets_evenly() {
    let hasher = FlowHasher::new(42);
    let host =
        |i: u32| FlowKey { source: IpAddr::V4(Ipv4Addr::from_bits(0x0a00_0000 + i)), ..v4() };
    let port =
        |i: u32| FlowKey { source_port: i as u16, destination_port: (i >> 16) as u16, ..v4() };
    let label = |i: u32| FlowKey { flow_label: i, ..v6() };
    let subnet = |i: u32| FlowKey {
        source: IpAddr::V6(Ipv6Addr::from_bits(u128::from(i) << 64 | 1)),
        ..v6()
    };
    // Both ends count together: sums and exclusive ors of their parts collide.
    let pair = |i: u32| FlowKey {
        source: IpAddr::V4(Ipv4Addr::from_bits(0x0a00_0000 + i)),
        destination: IpAddr::V4(Ipv4Addr::from_bits(0x0a00_0000 + i)),
        ..v4()
    };
    let kinds: [(&str, &dyn Fn(u32) -> FlowKey); 5] = [
        ("hosts", &host),
        ("ports", &port),
        ("labels", &label),
        ("subnets", &subnet),
        ("pairs", &pair),
    ];
    for (name, key) in kinds {
        let hashes: Vec<u64> = (0..65_536).map(|i| hasher.hash(&key(i))).collect();
        assert_eq!(
            hashes.iter().collect::<HashSet<_>>().len(),
            hashes.len(),
            "{name}: no collision in 64 bits"
        );
        for shift in [0, 10, 22, 32, 43, 54] {
            // 1023 degrees of freedom: mean 1023, standard deviation 45.
            let chi = chi_squared(&hashes, shift);
            assert!((800.0..1250.0).contains(&chi), "{name}, bits from {shift}: {chi}");
        }
    }
}

#[test]
fn the_two_directions_are_two_flows() {
    let there = v4();
    let back = FlowKey {
        source: there.destination,
        destination: there.source,
        source_port: there.destination_port,
        destination_port: there.source_port,
        ..there
    };
    assert_ne!(FlowHasher::new(1).hash(&there), FlowHasher::new(1).hash(&back));
}

#[test]
fn map_hashes_are_even_and_seeded() {
    let hash = |seed, key: (u128, u16)| SeededState::new(seed).hash_one(key);
    let hashes: Vec<u64> =
        (0..65_536_u32).map(|i| hash(5, (0xffff_0a00_0000 + u128::from(i), 1))).collect();
    for shift in [0, 10, 54] {
        let chi = chi_squared(&hashes, shift);
        assert!((800.0..1250.0).contains(&chi), "bits from {shift}: {chi}");
    }
    assert_ne!(hash(5, (1, 1)), hash(6, (1, 1)));
    assert_ne!(hash(5, (1, 2)), hash(5, (2, 1)));
    // All ways to write to it count.
    let state = SeededState::new(5);
    fn one<T: Hash>(state: &SeededState, value: T) -> u64 {
        state.hash_one(value)
    }
    assert_ne!(one(&state, "ab"), one(&state, "ba"));
    assert_ne!(one(&state, [1_u8, 0]), one(&state, [0_u8, 1]));
    assert_ne!(one(&state, 1_u32), one(&state, 2_u32));
}
