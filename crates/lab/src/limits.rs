//! What a scenario may ask for and the lab cannot do, found before anything is made.

use evenkeel_core::Bytes;
use evenkeel_core::packet::ETHERNET_WIRE_OVERHEAD;
use evenkeel_scenario::{Ecn, Scenario, Tool, TrafficKind, Wire};
use evenkeel_world::{SOURCE_PORTS, packet_rate};

use crate::wire::MOST_HELD;
use crate::{LabError, tools};

/// Refuses what real packets on one machine cannot do.
///
/// # Errors
/// [`LabError::BadInput`] with file and line.
pub(crate) fn check(scenario: &Scenario) -> Result<(), LabError> {
    for traffic in &scenario.traffic {
        let refuse = |why: &str| Err(LabError::refused(&traffic.place, &traffic.name, why));
        if let Some(why) = tools::cannot(traffic) {
            return refuse(&why);
        }
        if let TrafficKind::Tcp { ecn, .. }
        | TrafficKind::TcpFlows { ecn, .. }
        | TrafficKind::Users { ecn, .. } = traffic.kind
            && ecn != Ecn::None
        {
            return refuse(
                "a socket cannot ask for ECN, and few kernels have DCTCP; `evenkeel sim` runs it",
            );
        }
        if traffic.tool == Tool::Evenkeel && u64::from(traffic.flows) > SOURCE_PORTS {
            return refuse(&format!(
                "{} flows need a source port each, and a host has {SOURCE_PORTS}; `evenkeel sim` \
                 runs it",
                traffic.flows
            ));
        }
    }
    for wire in scenario.wires.iter().filter(|wire| !wire.quality.is_perfect()) {
        let packets = on_the_way(scenario, wire);
        if packets > (MOST_HELD / 2) as f64 {
            let name = format!("wire {} to {}", wire.ends[0].node, wire.ends[1].node);
            let why = format!(
                "up to {packets:.0} packets would be on their way at once, and the lab holds {} in \
                 each direction; `evenkeel sim` runs it",
                MOST_HELD / 2
            );
            return Err(LabError::refused(&wire.place, &name, &why));
        }
    }
    Ok(())
}

/// About how many packets a direction of a wire has to hold: those that wait, and those that are
/// delayed.
fn on_the_way(scenario: &Scenario, wire: &Wire) -> f64 {
    let quality = &wire.quality;
    let offered = scenario.traffic.iter().filter(|traffic| traffic.kind.has_rate());
    let offered = offered.map(|t| packet_rate(t.rate, t.size) * f64::from(t.flows)).sum();
    let shortest =
        scenario.traffic.iter().map(|traffic| traffic.size).min().unwrap_or(Bytes(1_500));
    let carried = quality.rate.map(|rate| packet_rate(rate, shortest + ETHERNET_WIRE_OVERHEAD));
    let all_have_rates = scenario.traffic.iter().all(|traffic| traffic.kind.has_rate());
    let per_second = match carried {
        Some(carried) if all_have_rates => f64::min(carried, offered),
        Some(carried) => carried,
        None => offered,
    };
    let queued = quality.rate.map_or(0, |_| quality.queue);
    per_second * (quality.delay.as_secs_f64() + quality.jitter.as_secs_f64()) + f64::from(queued)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    fn refused(from: &str, to: &str) -> String {
        let text = fixture::TEXT.replacen(from, to, 1);
        assert_ne!(text, fixture::TEXT);
        let error = check(&fixture::parse(&text)).expect_err("the lab cannot");
        assert_eq!(error.exit_code(), 2);
        error.to_string()
    }

    #[test]
    fn what_the_lab_cannot_do_is_refused_with_file_and_line() {
        check(&fixture::scenario()).expect("it can be run");
        let held = refused("mtu = 1400\n", "mtu = 1400\ndelay = \"30s\"\n");
        assert!(held.starts_with("row.toml:") && held.contains("wire h2 to r1"), "{held}");
        let flows = refused("rate = \"6Mbit/s\"\n", "rate = \"6kbit/s\"\nflows = 70000\n");
        assert!(flows.starts_with("row.toml:") && flows.contains("64512"), "{flows}");
        let streams = refused("tool = \"iperf3\"\n", "tool = \"iperf3\"\nflows = 129\n");
        assert!(streams.contains("at most 128"), "{streams}");
        let one = refused("tool = \"iperf3\"\n", "tool = \"d-itg\"\nflows = 2\n");
        assert!(one.contains("at most 1 "), "{one}");
        let ecn = refused("kind = \"cbr\"\nrate = \"1Mbit/s\"", "kind = \"tcp\"\necn = \"ect0\"");
        assert!(ecn.starts_with("row.toml:") && ecn.contains("cannot ask for ECN"), "{ecn}");
        let kind =
            refused("kind = \"cbr\"\nrate = \"1Mbit/s\"", "kind = \"flows\"\nrate = \"1Mbit/s\"");
        assert!(kind.contains("leave `tool` out"), "{kind}");
    }
}
