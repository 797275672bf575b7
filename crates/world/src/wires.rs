//! Wires that do something to packets: the same element, with the same randomness, in both worlds.

use evenkeel_report::run::WireTotals;
use evenkeel_scenario::{Quality, Scenario};
use evenkeel_traffic::emulate::EmulatorCounters;
use evenkeel_traffic::{Emulator, EmulatorConfig, EmulatorError};

/// Streams of randomness of wires begin here; below are those of sources.
const STREAMS_OF_WIRES: u64 = 1 << 63;

/// What the direction of wire number `wire` that begins at its end `near` (0 or 1) does to packets;
/// `None`: nothing.
///
/// # Errors
/// A value outside of the element's range.
pub fn emulator(
    scenario: &Scenario,
    wire: usize,
    near: usize,
) -> Result<Option<Emulator>, EmulatorError> {
    let quality = &scenario.wires[wire].quality;
    if quality.is_perfect() {
        return Ok(None);
    }
    let Quality { rate, queue, delay, jitter, loss, reorder } = *quality;
    let config = EmulatorConfig { rate, queue, delay, jitter, loss, reorder };
    let stream = STREAMS_OF_WIRES + (2 * wire + near) as u64;
    Emulator::new(config, scenario.seed, stream).map(Some)
}

/// What a direction of a wire has done, as results carry it. `held` packets are still on their way.
#[must_use]
pub fn totals(
    scenario: &Scenario,
    wire: usize,
    near: usize,
    counters: &EmulatorCounters,
    held: u64,
) -> WireTotals {
    let ends = &scenario.wires[wire].ends;
    WireTotals {
        from: ends[near].node.clone(),
        to: ends[1 - near].node.clone(),
        sent: counters.sent,
        arrived: counters.carried.saturating_sub(held),
        held,
        lost: counters.lost,
        overflowed: counters.overflowed,
        overtaking: counters.overtaking,
    }
}

/// The same as a sentence.
#[must_use]
pub fn told(wire: &WireTotals) -> String {
    let WireTotals { from, to, sent, arrived, held, lost, overflowed, overtaking } = wire;
    format!(
        "Wire {from} to {to}: {sent} packets in, {arrived} out ({overtaking} of them overtook), \
         {lost} lost, {overflowed} met a full queue, {held} on their way."
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;
    use evenkeel_core::{Bytes, Nanos};

    #[test]
    fn only_wires_that_ask_for_it_do_something_and_each_direction_has_its_own_randomness() {
        let text = fixture::TEXT.replace("mtu = 1400\n", "mtu = 1400\nloss = 0.5\n");
        let scenario = fixture::parse(&text);
        assert!(emulator(&scenario, 0, 0).expect("valid").is_none());
        let fates = |near| {
            let mut wire = emulator(&scenario, 1, near).expect("valid").expect("it loses packets");
            let fates: Vec<_> = (0..64).map(|n| wire.send(Nanos(n), Bytes(100))).collect();
            let totals = totals(&scenario, 1, near, wire.counters(), 3);
            assert_eq!(totals.sent, totals.arrived + totals.held + totals.lost + totals.overflowed);
            (fates, totals.from)
        };
        let (there, back) = (fates(0), fates(1));
        assert_eq!((there.1.as_str(), back.1.as_str()), ("h2", "r1"));
        assert_ne!(there.0, back.0);
        assert_eq!(there, fates(0));
    }
}
