//! Neighbours that answer, do not, come and go, and the packets that wait for them.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr};

use evenkeel_core::Nanos;
use evenkeel_net::neighbour::{Known, NeighbourState, NeighbourTable, Resolution, WaitConfig};
use evenkeel_net::{MacAddr, PortIndex};
use proptest::prelude::*;

const PORT: PortIndex = PortIndex(0);
const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 7]);

const NOBODY: [IpAddr; 0] = [];

fn host(n: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(10, 0, 0, n))
}

fn known(stale: bool) -> Known {
    Known { mac: MAC, stale }
}

fn table(config: WaitConfig) -> NeighbourTable<u32> {
    NeighbourTable::new(config, 1).unwrap()
}

fn asks(table: &mut NeighbourTable<u32>) -> Vec<IpAddr> {
    let mut asks = Vec::new();
    table.drain_asks(|_, address| asks.push(address));
    asks
}

#[test]
fn packets_wait_in_order_and_leave_together() {
    let mut t = table(WaitConfig::default());
    for packet in 0..16 {
        assert_eq!(t.resolve(Nanos(0), PORT, host(1), packet), Resolution::Wait);
    }
    assert_eq!(
        t.resolve(Nanos(0), PORT, host(1), 16),
        Resolution::WaitFull(16),
        "16 per neighbour"
    );
    assert_eq!(
        t.resolve(Nanos(0), PORT, host(2), 17),
        Resolution::Wait,
        "another has its own room"
    );
    assert_eq!((t.waiting(), t.len()), (17, 2));
    assert!(t.has_asks());
    assert_eq!(asks(&mut t), [host(1), host(2)], "each once");
    assert!(!t.has_asks());
    assert_eq!(
        (t.state(PORT, host(1)), t.mac(PORT, host(1))),
        (Some(NeighbourState::Incomplete), None)
    );
    let mut released = Vec::new();
    t.learn(PORT, host(1), known(false), |packet| released.push(packet));
    assert_eq!(released, (0..16).collect::<Vec<_>>());
    assert_eq!(t.resolve(Nanos(0), PORT, host(1), 18), Resolution::Mac(MAC, 18));
    assert_eq!(t.state(PORT, host(1)), Some(NeighbourState::Reachable));
    assert_eq!(t.waiting(), 1);
}

#[test]
fn the_same_address_behind_two_ports_is_two_neighbours() {
    let mut t = table(WaitConfig::default());
    t.learn(PortIndex(0), host(1), known(false), drop);
    assert_eq!(t.mac(PortIndex(1), host(1)), None);
    assert_eq!(t.mac(PortIndex(0), host(1)), Some(MAC));
}

#[test]
fn the_common_room_is_bounded_too() {
    let mut t = table(WaitConfig { total: 3, ..WaitConfig::default() });
    for n in 0..3 {
        assert_eq!(t.resolve(Nanos(0), PORT, host(n), n.into()), Resolution::Wait);
    }
    assert_eq!(t.resolve(Nanos(0), PORT, host(3), 3), Resolution::WaitFull(3));
    assert_eq!(
        asks(&mut t).len(),
        4,
        "it is asked for all the same: the next packet may find it known"
    );
}

#[test]
fn silence_fails_after_the_timeout_and_is_forgiven_after_the_retry_time() {
    let mut t = table(WaitConfig::default());
    let (timeout, retry) = (Nanos::from_secs(3), Nanos::from_secs(1));
    assert_eq!(t.next_deadline(), None);
    assert_eq!(t.resolve(Nanos(5), PORT, host(1), 1), Resolution::Wait);
    assert_eq!(t.resolve(Nanos(9), PORT, host(2), 2), Resolution::Wait);
    assert_eq!(t.next_deadline(), Some(timeout + Nanos(5)));
    let mut lost = Vec::new();
    t.expire(timeout + Nanos(4), |_, _, packet| lost.push(packet));
    assert_eq!(lost, [0; 0]);
    t.expire(timeout + Nanos(5), |port, address, packet| {
        assert_eq!((port, address), (PORT, host(1)));
        lost.push(packet);
    });
    assert_eq!(lost, [1]);
    assert_eq!(t.state(PORT, host(1)), Some(NeighbourState::Failed));
    let failed = timeout + Nanos(5);
    asks(&mut t);
    assert_eq!(t.resolve(failed, PORT, host(1), 3), Resolution::Unreachable(3));
    assert_eq!(asks(&mut t), NOBODY, "not asked for while it has failed");
    assert_eq!(t.next_deadline(), Some(timeout + Nanos(9)));
    // Forgiven without a call to `expire`.
    assert_eq!(t.resolve(failed + retry, PORT, host(1), 4), Resolution::Wait);
    assert_eq!(asks(&mut t), [host(1)]);
    // And with one: it is forgotten.
    t.expire(Nanos::from_secs(100), |_, _, packet| lost.push(packet));
    assert_eq!(lost, [1, 2, 4]);
    t.expire(Nanos::from_secs(101), |_, _, _| unreachable!("nothing waits"));
    assert_eq!((t.len(), t.next_deadline(), t.is_empty()), (0, None, true));
}

#[test]
fn the_kernel_gives_up() {
    let mut t = table(WaitConfig::default());
    t.fail(Nanos(0), PORT, host(9), |_| unreachable!("nothing waits"));
    assert_eq!(t.state(PORT, host(9)), None, "nobody needed it");
    assert_eq!(t.resolve(Nanos(0), PORT, host(1), 1), Resolution::Wait);
    let mut lost = Vec::new();
    t.fail(Nanos(7), PORT, host(1), |packet| lost.push(packet));
    assert_eq!(lost, [1]);
    assert_eq!(t.resolve(Nanos(8), PORT, host(1), 2), Resolution::Unreachable(2));
    // It comes back, and vanishes again while known.
    t.learn(PORT, host(1), known(false), drop);
    assert_eq!(t.mac(PORT, host(1)), Some(MAC));
    t.fail(Nanos(9), PORT, host(1), drop);
    assert_eq!(t.resolve(Nanos(10), PORT, host(1), 3), Resolution::Unreachable(3));
}

#[test]
fn forgotten_by_the_kernel() {
    let mut t = table(WaitConfig::default());
    t.learn(PORT, host(1), known(false), drop);
    t.remove(PORT, host(1));
    assert_eq!((t.state(PORT, host(1)), t.len()), (None, 0));
    assert_eq!(t.resolve(Nanos(0), PORT, host(1), 1), Resolution::Wait);
    assert_eq!(asks(&mut t), [host(1)]);
    t.remove(PORT, host(1));
    assert_eq!(asks(&mut t), [host(1)], "asked for again: a packet waits");
    assert_eq!(
        (t.waiting(), t.next_deadline()),
        (1, Some(Nanos::from_secs(3))),
        "not longer than before"
    );
    t.remove(PORT, host(200));
}

#[test]
fn stale_neighbours_in_use_are_named_once_per_look() {
    let mut t = table(WaitConfig::default());
    t.learn(PORT, host(1), known(true), drop);
    t.learn(PORT, host(2), known(true), drop);
    t.learn(PORT, host(3), known(false), drop);
    let look = |t: &mut NeighbourTable<u32>| {
        let mut seen = Vec::new();
        t.stale_in_use(|_, address| seen.push(address));
        seen
    };
    assert_eq!(look(&mut t), NOBODY);
    assert_eq!(t.mac(PORT, host(1)), Some(MAC));
    let _ = t.resolve(Nanos(0), PORT, host(3), 0);
    assert_eq!(look(&mut t), [host(1)]);
    assert_eq!(look(&mut t), NOBODY, "not used since");
    assert_eq!(t.resolve(Nanos(0), PORT, host(2), 0), Resolution::Mac(MAC, 0));
    assert_eq!(look(&mut t), [host(2)]);
    assert_eq!(t.state(PORT, host(1)), Some(NeighbourState::Stale));
}

#[test]
fn a_port_takes_its_neighbours_along() {
    let mut t = table(WaitConfig::default());
    let other = PortIndex(1);
    assert_eq!(t.resolve(Nanos(0), PORT, host(1), 1), Resolution::Wait);
    assert_eq!(t.resolve(Nanos(0), other, host(1), 2), Resolution::Wait);
    t.learn(PORT, host(2), known(false), drop);
    t.learn(other, host(2), known(false), drop);
    let mut lost = Vec::new();
    t.remove_port(PORT, |packet| lost.push(packet));
    assert_eq!((lost, t.len(), t.waiting()), (vec![1], 2, 1));
    let mut asked = Vec::new();
    t.drain_asks(|port, address| asked.push((port, address)));
    assert_eq!(asked, [(other, host(1))]);
    let mut rest = Vec::new();
    t.drain(|packet| rest.push(packet));
    assert_eq!((rest, t.waiting(), t.len()), (vec![2], 0, 2));
}

#[test]
fn a_scan_of_a_whole_network_stays_within_bounds() {
    let config = WaitConfig { unresolved: 8, ..WaitConfig::default() };
    let mut t = table(config);
    for n in 0..8 {
        assert_eq!(t.resolve(Nanos(n.into()), PORT, host(n), n.into()), Resolution::Wait);
    }
    assert_eq!(t.resolve(Nanos(9), PORT, host(8), 8), Resolution::WaitFull(8));
    assert_eq!((t.len(), asks(&mut t).len()), (8, 8));
    // Those that failed make room, the first one first; those still asked for do not.
    t.fail(Nanos(10), PORT, host(5), drop);
    t.fail(Nanos(11), PORT, host(2), drop);
    assert_eq!(t.resolve(Nanos(12), PORT, host(8), 8), Resolution::Wait);
    assert_eq!(
        (t.state(PORT, host(5)), t.state(PORT, host(2))),
        (None, Some(NeighbourState::Failed))
    );
    // What the kernel knows is not bounded by this.
    for n in 100..200 {
        t.learn(PORT, host(n), known(false), drop);
    }
    assert_eq!(t.len(), 108);
    // One that is known and fails takes the place of the oldest failure.
    t.fail(Nanos(13), PORT, host(100), drop);
    assert_eq!(
        (t.state(PORT, host(2)), t.state(PORT, host(100))),
        (None, Some(NeighbourState::Failed))
    );
}

#[test]
fn bounds_out_of_range_are_refused() {
    let good = WaitConfig::default();
    let ms = Nanos::from_millis(1);
    for (config, what) in [
        (WaitConfig { per_neighbour: 0, ..good }, "per_neighbour"),
        (WaitConfig { total: 65_537, ..good }, "total"),
        (WaitConfig { unresolved: 0, ..good }, "unresolved"),
        (WaitConfig { timeout: Nanos(999_999), ..good }, "timeout"),
        (WaitConfig { retry: Nanos::from_secs(61), ..good }, "retry"),
    ] {
        assert_eq!(NeighbourTable::<u32>::new(config, 0).map(drop).unwrap_err().what, what);
    }
    let smallest = WaitConfig { per_neighbour: 1, total: 1, unresolved: 1, timeout: ms, retry: ms };
    let mut t = table(smallest);
    assert_eq!(t.resolve(Nanos(0), PORT, host(1), 1), Resolution::Wait);
    assert_eq!(t.resolve(Nanos(0), PORT, host(1), 2), Resolution::WaitFull(2));
}

/// What the table should do, said without lists of slots.
#[derive(Default)]
struct Model {
    known: BTreeMap<u8, bool>,
    waiting: BTreeMap<u8, (Nanos, VecDeque<u32>)>,
    failed: BTreeMap<u8, Nanos>,
}

impl Model {
    fn in_room(&self) -> usize {
        self.waiting.values().map(|(_, line)| line.len()).sum()
    }
}

#[derive(Clone, Debug)]
enum Operation {
    Resolve(u8),
    Learn(u8, bool),
    Fail(u8),
    Remove(u8),
    Expire,
}

proptest! {
    #[test]
    fn behaves_like_its_model(
        operations in prop::collection::vec((prop_oneof![
            5 => (0_u8..6).prop_map(Operation::Resolve),
            2 => (0_u8..6, any::<bool>()).prop_map(|(n, stale)| Operation::Learn(n, stale)),
            1 => (0_u8..6).prop_map(Operation::Fail),
            1 => (0_u8..6).prop_map(Operation::Remove),
            1 => Just(Operation::Expire),
        ], 0_u64..2_000), 0..200)
    ) {
        // Six neighbours, six unresolved at most: eviction has its own test.
        let ms = Nanos::from_millis(1);
        let config = WaitConfig { per_neighbour: 3, total: 8, unresolved: 6, timeout: ms * 4,
            retry: ms };
        let mut t = table(config);
        let mut model = Model::default();
        let mut now = Nanos::ZERO;
        for (number, (operation, pause)) in (0..).zip(operations) {
            now += Nanos::from_micros(pause);
            let mut out = VecDeque::new();
            match operation {
                Operation::Resolve(n) => {
                    let result = t.resolve(now, PORT, host(n), number);
                    let room = model.in_room();
                    if model.known.contains_key(&n) {
                        prop_assert_eq!(result, Resolution::Mac(MAC, number));
                    } else if model.failed.get(&n).is_some_and(|until| now < *until) {
                        prop_assert_eq!(result, Resolution::Unreachable(number));
                    } else {
                        model.failed.remove(&n);
                        let (_, line) = model.waiting.entry(n)
                            .or_insert((now + config.timeout, VecDeque::new()));
                        if line.len() < 3 && room < 8 {
                            line.push_back(number);
                            prop_assert_eq!(result, Resolution::Wait);
                        } else {
                            prop_assert_eq!(result, Resolution::WaitFull(number));
                        }
                    }
                }
                Operation::Learn(n, stale) => {
                    t.learn(PORT, host(n), known(stale), |packet| out.push_back(packet));
                    let line = model.waiting.remove(&n).map(|(_, line)| line).unwrap_or_default();
                    prop_assert_eq!(out, line);
                    model.failed.remove(&n);
                    model.known.insert(n, stale);
                }
                Operation::Fail(n) => {
                    t.fail(now, PORT, host(n), |packet| out.push_back(packet));
                    let line = model.waiting.remove(&n).map(|(_, line)| line);
                    if model.known.remove(&n).is_some() || line.is_some() {
                        model.failed.insert(n, now + config.retry);
                    }
                    prop_assert_eq!(out, line.unwrap_or_default());
                }
                Operation::Remove(n) => {
                    t.remove(PORT, host(n));
                    model.known.remove(&n);
                    model.failed.remove(&n);
                }
                Operation::Expire => {
                    let mut expected = Vec::new();
                    model.failed.retain(|_, until| now < *until);
                    let mut due: Vec<_> = model.waiting.iter().map(|(n, (until, _))| (*until, *n))
                        .collect();
                    due.retain(|(until, _)| *until <= now);
                    for (_, n) in due {
                        expected.extend(model.waiting.remove(&n).unwrap().1);
                        model.failed.insert(n, now + config.retry);
                    }
                    t.expire(now, |_, _, packet| out.push_back(packet));
                    let mut out: Vec<_> = out.into();
                    // Two that began at the same instant fall due in the order in which they began.
                    out.sort_unstable();
                    expected.sort_unstable();
                    prop_assert_eq!(out, expected);
                }
            }
            for n in 0..6 {
                let state = t.state(PORT, host(n));
                let expected = if let Some(stale) = model.known.get(&n) {
                    Some(if *stale { NeighbourState::Stale } else { NeighbourState::Reachable })
                } else if model.waiting.contains_key(&n) {
                    Some(NeighbourState::Incomplete)
                } else {
                    model.failed.get(&n).map(|_| NeighbourState::Failed)
                };
                prop_assert_eq!(state, expected, "neighbour {}", n);
            }
            prop_assert_eq!(t.waiting() as usize, model.in_room());
            prop_assert_eq!(t.len(), model.known.len() + model.waiting.len() + model.failed.len());
            prop_assert_eq!(t.iter().map(|view| view.waiting).sum::<u32>(), t.waiting());
            let deadlines = model.waiting.values().map(|(until, _)| *until)
                .chain(model.failed.values().copied());
            prop_assert_eq!(t.next_deadline(), deadlines.min());
        }
    }
}
