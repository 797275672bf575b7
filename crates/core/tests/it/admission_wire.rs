//! Capacity, fair rate and priority load are of one layer, the wire's: on wires that add 38 bytes
//! to each packet, as Ethernet does.

use crate::admit::world::{Sends, Source, World, with_quantum};
use crate::admit::{C, config, flow};
use evenkeel_core::admit::AdmissionConfig;
use evenkeel_core::schedule::AnyScheduler;
use evenkeel_core::schedule::buffer::DEFAULT_QUANTUM;
use evenkeel_core::{Bytes, Nanos, Scheduler};

const OVERHEAD: u64 = 38;

/// What became of streams of 80 kbit/s that come evenly, last 10 s each and offer `load` times what
/// the wire carries: packets accepted, lost, and the 99th percentile of delay.
fn streams(
    scheduler: AnyScheduler<crate::admit::XpPacket>,
    length: u64,
    load: f64,
) -> (u64, u64, Nanos) {
    let mut world = World::new(config(), scheduler);
    world.overhead = OVERHEAD;
    let spacing = Nanos(length * 8 * 1_000_000_000 / 80_000);
    let rate = 80_000.0 * (length + OVERHEAD) as f64 / length as f64;
    let apart = 10.0 * rate / (C.0 as f64 * load);
    for n in 0..(40.0 / apart) as u64 {
        // Their packets do not come in step.
        let phase = n.wrapping_mul(0x9e37_79b9_7f4a_7c15) % spacing.0;
        let from = Nanos((n as f64 * apart * 1e9) as u64 + phase);
        let mut source = Source::new(flow(1, n as u16), length, Sends::Every(spacing), from);
        source.to = from + Nanos::from_secs(10);
        world.add(source);
    }
    world.run(Nanos::from_secs(40));
    let sources = &world.sources;
    let sum = |of: fn(&Source) -> u64| sources.iter().map(of).sum();
    let delays = &mut world.delays;
    delays.sort_unstable();
    let p99 = Nanos(delays[delays.len() * 99 / 100]);
    (sum(|s| s.passed), sum(|s| s.dropped), p99)
}

/// A full wire of packets of 72 bytes is 65 % of its rate in bytes of IP packets: held against 70 %
/// of the wire's rate it never closed, and a quarter of what had been let in was lost.
#[test]
fn streams_of_small_packets_at_1_2_times_the_wire_lose_nothing() {
    for length in [60, 72, 100, 200] {
        for scheduler in with_quantum(DEFAULT_QUANTUM) {
            let name = scheduler.name();
            let (passed, lost, p99) = streams(scheduler, length, 1.2);
            let told =
                format!("{name}, {length} bytes: {passed} accepted, {lost} lost, p99 {p99:?}");
            // Most of what 70 % of the wire carries.
            let full = 40 * C.0 * 7 / 10 / 8 / (length + OVERHEAD);
            assert!(passed > full * 7 / 10, "{told} of {full}");
            assert_eq!(lost, 0, "{told}");
            let packet = C.time_for(Bytes(length + OVERHEAD));
            assert!(p99 < packet * 8, "{told}, a packet takes {packet:?}");
        }
    }
}

/// Greedy flows of short and long packets have the same of the wire, and the fair rate says what.
#[test]
fn the_fair_rate_is_that_of_the_wire() {
    let admission = AdmissionConfig { min_fair_rate: evenkeel_core::Ppm::ZERO, ..config() };
    for scheduler in with_quantum(DEFAULT_QUANTUM) {
        let mut world = World::new(admission.clone(), scheduler);
        world.overhead = OVERHEAD;
        for n in 0..10 {
            let length = if n % 2 == 0 { 100 } else { 1_400 };
            world.add(Source::new(flow(1, n), length, Sends::Greedy(40), Nanos::ZERO));
        }
        world.run(Nanos::from_secs(10));
        let wire: Vec<u64> = world
            .sources
            .iter()
            .map(|s| s.sent_bytes / s.len * (s.len + OVERHEAD) * 8 / 10)
            .collect();
        let name = world.link.scheduler().name();
        for rate in &wire {
            assert!(rate.abs_diff(C.0 / 10) < C.0 / 10 / 50, "{name}: {wire:?}");
        }
        let fair = world.admission.view().fair_rate.0;
        assert!(fair.abs_diff(C.0 / 10) < C.0 / 10 / 20, "{name}: {fair}");
    }
}
