//! `evenkeel-bench fib`: the forwarding table with the routes of the whole Internet: memory,
//! look-ups, changes.
//!
//! A million IPv4 and 200,000 IPv6 prefixes whose lengths are spread as those of the Internet's
//! tables are, at random places, through 256 next hops. Real prefixes lie closer together, so real
//! tables are smaller and warmer. What is looked up is random too: the worst case. Beside it, what
//! the memory of this machine allows at best in the same run: as many reads as a look-up of a /24
//! needs, one waiting for the other, at random in as much memory; and the trie of a well-kept
//! crate.

use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Instant;

use evenkeel_net::fib::{Fib, NextHop, Route};
use evenkeel_net::{PortIndex, Prefix};
use prefix_trie::PrefixMap;

use crate::allocations;
use crate::timing::{Case, Rounds};

const V4: usize = 1_000_000;
const V6: usize = 200_000;
const NEXT_HOPS: u64 = 256;
const BURST: usize = 32;
const LOOKUPS: usize = 1_000_000;
const READINGS: usize = 50_000;
const CHANGES: usize = 50_000;
const ROUNDS: usize = 7;

/// Length and how many of a thousand prefixes have it, as public route collectors report them.
const LENGTHS_V4: [(u8, u64); 15] = [
    (24, 600),
    (22, 112),
    (23, 104),
    (21, 50),
    (20, 46),
    (19, 27),
    (18, 15),
    (16, 14),
    (17, 9),
    (15, 6),
    (14, 6),
    (13, 4),
    (12, 3),
    (11, 2),
    (10, 2),
];
const LENGTHS_V6: [(u8, u64); 14] = [
    (48, 470),
    (32, 115),
    (44, 95),
    (40, 80),
    (36, 45),
    (46, 45),
    (29, 30),
    (42, 25),
    (47, 20),
    (45, 20),
    (38, 17),
    (34, 15),
    (33, 13),
    (64, 10),
];

/// A generator of numbers, the same on every machine.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// 64 random bits (SplitMix64).
    pub(crate) fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(end)) >> 64) as u64
    }

    fn length(&mut self, lengths: &[(u8, u64)]) -> u8 {
        let mut at = self.below(lengths.iter().map(|(_, share)| share).sum());
        let chosen = lengths.iter().find(|(_, share)| {
            let here = at < *share;
            at = at.saturating_sub(*share);
            here
        });
        chosen.map_or(24, |(len, _)| *len)
    }

    fn v4(&mut self) -> IpAddr {
        // 1.0.0.0 to 223.255.255.255, but for what routing daemons take from nobody, and our own.
        loop {
            let address = Ipv4Addr::from_bits((1 << 24) + self.below(223 << 24) as u32);
            if !matches!(address.octets()[0], 8..=15 | 126..=127) {
                return IpAddr::V4(address);
            }
        }
    }

    fn v6(&mut self) -> IpAddr {
        // The first sixteen bits are those of the registries' blocks; an allocation is one of
        // 40,000.
        const BLOCKS: [u128; 8] = [0x2001, 0x2400, 0x2404, 0x2600, 0x2605, 0x2804, 0x2a00, 0x2a0c];
        let allocation = Self::new(self.below(40_000)).bits();
        let block = BLOCKS[(allocation & 7) as usize] << 112 | u128::from(allocation >> 48) << 96;
        IpAddr::V6(Ipv6Addr::from_bits(block | u128::from(self.bits()) << 32))
    }
}

/// As many different prefixes of both families.
pub(crate) fn prefixes(v4: usize, v6: usize) -> Vec<Prefix> {
    let mut random = Random::new(1);
    let mut all = std::collections::HashSet::with_capacity(v4 + v6);
    let mut list = Vec::with_capacity(v4 + v6);
    while list.len() < v4 + v6 {
        let (address, len) = if list.len() < v4 {
            (random.v4(), random.length(&LENGTHS_V4))
        } else {
            (random.v6(), random.length(&LENGTHS_V6))
        };
        let prefix = Prefix::new(address, len).expect("a length of its family");
        if all.insert(prefix) {
            list.push(prefix);
        }
    }
    list
}

fn route(random: &mut Random) -> Route {
    let hop = random.below(NEXT_HOPS) as u32;
    let gateway = IpAddr::V4(Ipv4Addr::from_bits(0x0a00_0002 + hop));
    Route::via(NextHop::gateway(PortIndex(hop as u16 % 8), gateway), 20)
}

/// Kibibytes of memory of this process.
pub(crate) fn resident(process: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

/// Addresses within the prefixes: random ones, and no two tables have seen them in the same order.
fn probes(prefixes: &[Prefix], count: usize) -> Vec<IpAddr> {
    let mut random = Random::new(2);
    let probe = |_| {
        let prefix = prefixes[random.below(prefixes.len() as u64) as usize];
        match prefix.address() {
            IpAddr::V4(a) => {
                let host = (random.bits() as u32).checked_shr(u32::from(prefix.len())).unwrap_or(0);
                IpAddr::V4(Ipv4Addr::from_bits(a.to_bits() | host))
            }
            IpAddr::V6(a) => {
                IpAddr::V6(Ipv6Addr::from_bits(a.to_bits() | u128::from(random.bits())))
            }
        }
    };
    (0..count).map(probe).collect()
}

/// Seconds taken by `run`, as nanoseconds for each of `times`.
fn timed(times: usize, run: impl FnOnce()) -> f64 {
    let begin = Instant::now();
    run();
    begin.elapsed().as_nanos() as f64 / times as f64
}

pub(crate) fn run() {
    let list = prefixes(V4, V6);
    let before = resident(std::process::id());
    let (mut fib, mut random) = (Fib::new(), Random::new(3));
    let built = timed(list.len(), || {
        for prefix in &list {
            fib.insert(*prefix, route(&mut random));
        }
    });
    let grown = resident(std::process::id()).saturating_sub(before) as f64 / 1024.0;
    println!("The forwarding table with {V4} IPv4 and {V6} IPv6 prefixes, {NEXT_HOPS} next hops");
    println!(
        "  memory {:.1} MiB by its own count, {grown:.1} MiB of the process; filled at {built:.0} \
         ns a route",
        fib.memory() as f64 / f64::from(1 << 20)
    );

    // Room to read from as large as the table's share of IPv4, for the comparison.
    let words = (fib.memory() / 4).next_power_of_two() / 2;
    let mut chain: Vec<u32> = (0..words as u32).collect();
    for at in (1..words).rev() {
        // One cycle through all (Sattolo).
        chain.swap(at, random.below(at as u64) as usize);
    }
    let v4 = probes(&list[..V4], LOOKUPS);
    let v6 = probes(&list[V4..], LOOKUPS);
    let mut trie = PrefixMap::<(u32, u8), u32>::new();
    for (number, prefix) in list[..V4].iter().enumerate() {
        if let IpAddr::V4(a) = prefix.address() {
            trie.insert((a.to_bits(), prefix.len()), number as u32);
        }
    }
    let singly = |addresses: &[IpAddr]| {
        timed(addresses.len(), || {
            for address in addresses {
                black_box(fib.lookup(*address, 7));
            }
        })
    };
    let in_bursts = |addresses: &[IpAddr]| {
        timed(addresses.len(), || {
            for burst in addresses.chunks(BURST) {
                fib.read_ahead(burst);
                for address in burst {
                    black_box(fib.lookup(*address, 7));
                }
            }
        })
    };
    let mut cases: Vec<Case<'_>> = vec![
        (
            "4 reads of memory, each waiting for the last".into(),
            Box::new(|| {
                let mut at = 0;
                timed(READINGS, || {
                    for _ in 0..4 * READINGS {
                        at = chain[at as usize];
                    }
                    black_box(at);
                })
            }),
        ),
        (
            "4 reads of memory, none waiting".into(),
            Box::new(|| {
                let (mut at, mut sum) = (0_usize, 0_u32);
                timed(READINGS, || {
                    for _ in 0..4 * READINGS {
                        at = at.wrapping_mul(0x9e37_79b9).wrapping_add(0x7f4a_7c15) % words;
                        sum = sum.wrapping_add(chain[at]);
                    }
                    black_box(sum);
                })
            }),
        ),
        ("IPv4, one by one".into(), Box::new(|| singly(&v4))),
        (format!("IPv4, bursts of {BURST} read ahead"), Box::new(|| in_bursts(&v4))),
        ("IPv6, one by one".into(), Box::new(|| singly(&v6))),
        (format!("IPv6, bursts of {BURST} read ahead"), Box::new(|| in_bursts(&v6))),
        (
            "IPv4, one by one, crate prefix-trie".into(),
            Box::new(|| {
                timed(v4.len(), || {
                    for address in &v4 {
                        if let IpAddr::V4(a) = address {
                            black_box(trie.get_lpm(&(a.to_bits(), 32)));
                        }
                    }
                })
            }),
        ),
    ];
    let rounds = Rounds::run(ROUNDS, &mut cases);
    drop(cases);
    print(&rounds, "look-up");

    let allocated = allocations::measure(|| {
        fib.read_ahead(&v4[..BURST]);
        black_box(fib.lookup(v6[0], 7));
    });
    assert_eq!(allocated.count, 0, "a look-up allocates");
    let changed: Vec<Prefix> =
        (0..CHANGES).map(|_| list[random.below(list.len() as u64) as usize]).collect();
    let mut routes = Random::new(4);
    let mut case: [Case<'_>; 1] = [(
        "one route replaced by another".into(),
        Box::new(|| {
            timed(CHANGES, || {
                for prefix in &changed {
                    fib.insert(*prefix, route(&mut routes));
                }
            })
        }),
    )];
    print(&Rounds::run(ROUNDS, &mut case), "change");
}

fn print(rounds: &Rounds, what: &str) {
    println!("  {:<46} {:>10}  {:>19} {:>7}", "", format!("ns/{what}"), "(min to max)", "ratio");
    for (index, (name, spread)) in rounds.rows().enumerate() {
        let spread = spread.expect("nothing is refused here");
        let range = format!("({:.0} to {:.0})", spread.min, spread.max);
        println!(
            "  {name:<46} {:>10.0}  {range:>19} {:>7.2}",
            spread.median,
            rounds.ratio(index, 0)
        );
    }
    println!("  ratio: to the first row, round by round; {}", rounds.verdict());
}
