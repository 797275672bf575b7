//! Packets of several ports enter a link in the order in which they arrived, not in the order in
//! which ports are read.

use std::collections::VecDeque;

use crate::common::{Bed, Udp, headers, host_mac, router_mac, udp, v4};
use evenkeel_core::Nanos;
use evenkeel_ports::memory::MemoryPort;
use evenkeel_ports::{Frame, FramePool, Port, PortCounters, PortState, RxFrame};
use proptest::prelude::*;

/// A memory port whose frames carry stamps.
struct Stamped {
    port: MemoryPort,
    stamps: VecDeque<Nanos>,
}

impl Port for Stamped {
    fn name(&self) -> &str {
        self.port.name()
    }
    fn rx_burst(
        &mut self,
        pool: &mut FramePool,
        now: Nanos,
        out: &mut Vec<RxFrame>,
        max: usize,
    ) -> usize {
        let first = out.len();
        let due = self.stamps.iter().take_while(|stamp| **stamp <= now).count();
        let taken = self.port.rx_burst(pool, now, out, max.min(due));
        for (frame, stamp) in out[first..].iter_mut().zip(self.stamps.drain(..taken)) {
            frame.arrival = stamp;
        }
        taken
    }
    fn tx_burst(&mut self, pool: &mut FramePool, frames: &mut VecDeque<Frame>) -> usize {
        self.port.tx_burst(pool, frames)
    }
    fn fd(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
        None
    }
    fn state(&self) -> PortState {
        self.port.state()
    }
    fn mac(&self) -> [u8; 6] {
        self.port.mac()
    }
    fn mtu(&self) -> u32 {
        self.port.mtu()
    }
    fn counters(&mut self) -> PortCounters {
        self.port.counters()
    }
}

/// Sends packets with these stamps (port, ns) to port 2, whose link has room for `limit` packets
/// besides two in the ring at 100 Mbit/s, in rounds at the times of `rounds`. Gives the places in
/// `arrivals` of the packets that came out, in their order.
fn outcome(arrivals: &[(usize, u64)], limit: u32, rounds: &[u64]) -> Vec<u16> {
    let rest = format!(
        "[[link]]\nport = \"p2\"\nrate = \"100Mbit/s\"\nring = {{ slots = 2, refill = \"any\" \
         }}\ndiscipline = {{ kind = \"fifo\", limit = {limit} }}"
    );
    let Bed { mut pipeline, ports, mut hosts, now } = Bed::new(3, &rest);
    let mut ports: Vec<Stamped> =
        ports.into_iter().map(|port| Stamped { port, stamps: VecDeque::new() }).collect();
    for (place, &(from, stamp)) in arrivals.iter().enumerate() {
        let what = Udp { port: place as u16, ..Udp::default() };
        let frame = udp((host_mac(from), router_mac(from)), v4(from, 2), v4(2, 2), what);
        assert!(hosts[from].inject(&frame));
        ports[from].stamps.push_back(now + Nanos(stamp));
    }
    let mut out = Vec::new();
    for &at in rounds {
        let _ = pipeline.round(now + Nanos(at), &mut ports);
        out.extend(
            std::iter::from_fn(|| hosts[2].take()).map(|frame| headers(&frame).flow.source_port),
        );
    }
    out
}

#[test]
fn the_order_of_arrival_decides() {
    let arrivals = [(0, 100), (0, 300), (0, 500), (1, 0), (1, 200), (1, 400)];
    assert_eq!(outcome(&arrivals, 100, &[1000, 1_000_000]), [3, 0, 4, 1, 5, 2]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None,
        ..ProptestConfig::default() })]

    /// What gets through and in which order does not depend on when the worker wakes, even where
    /// queues overflow.
    #[test]
    fn late_rounds_change_nothing(
        mut left in prop::collection::vec(0u64..400_000, 1..60),
        mut right in prop::collection::vec(0u64..400_000, 1..60),
        mut rounds in prop::collection::vec(0u64..400_000, 0..20),
        limit in 1u32..20,
    ) {
        left.sort_unstable();
        right.sort_unstable();
        rounds.sort_unstable();
        let mut arrivals: Vec<(usize, u64)> = left.into_iter().map(|stamp| (0, stamp)).collect();
        arrivals.extend(right.into_iter().map(|stamp| (1, stamp)));
        let end = 20_000_000;
        rounds.extend([400_000, end]);
        let mut every: Vec<u64> = (0..=400_000).step_by(1_000).collect();
        every.push(end);
        prop_assert_eq!(outcome(&arrivals, limit, &rounds), outcome(&arrivals, limit, &every));
    }
}
