//! What is to be said of `[fairdrop]`.

use evenkeel_config::{DisciplineConfig, Io, RouterConfig};
use evenkeel_core::Nanos;
use evenkeel_core::drop::{Groups, Rule};
use evenkeel_ports::af_packet::AfPacketOptions;
use evenkeel_ports::af_xdp::AfXdpOptions;
use evenkeel_ports::tsc::{Source, Tsc};
use evenkeel_router::pipeline::BURST;

/// Long enough to see whether the counter can be trusted.
const CALIBRATION: Nanos = Nanos::from_millis(5);

/// Where it cannot do what it is for.
pub(super) fn advice(config: &RouterConfig) -> Vec<String> {
    let Some(fairdrop) = config.fairdrop.as_ref().filter(|fairdrop| fairdrop.on) else {
        return Vec::new();
    };
    let mut said = Vec::new();
    let router = &config.router;
    if fairdrop.cpu && router.cpu.is_none() && router.cpus.is_empty() {
        said.push(
            "fairdrop: no cpu is named: while other threads run on the worker's CPU nobody knows \
             what packets cost; set cpu (cpus with several workers) to a core of its own"
                .to_owned(),
        );
    }
    if fairdrop.cpu && router.workers > 1 {
        said.push(format!(
            "fairdrop: each of {} workers shares out its own core: flows on a worker with many \
             others have less than those on one with few",
            router.workers
        ));
    }
    if fairdrop.cpu && !matches!(fairdrop.rule, Rule::Level(_)) {
        said.push(format!(
            "fairdrop: the published rule ({}) leaves heavy flows up to twice their share, \
             depending on costs and load; kind = \"level\" does not",
            fairdrop.rule
        ));
    }
    said.extend(fairdrop.cpu.then(|| of_rings(config, fairdrop.rule)).into_iter().flatten());
    if fairdrop.cpu {
        said.extend(of_counter(&Tsc::calibrate(CALIBRATION).source()));
    }
    if fairdrop.groups == Groups::Class && config.classes.len() < 2 {
        said.push("fairdrop: groups = \"class\" does nothing with a single class".to_owned());
    }
    let is_fair = |link: &&evenkeel_config::LinkConfig| {
        let discipline = &link.discipline;
        link.core.rate.is_some()
            && matches!(discipline, DisciplineConfig::Pfq(_) | DisciplineConfig::Pdrr(_))
    };
    if let Some(link) = config.links.iter().find(is_fair).filter(|_| fairdrop.bandwidth) {
        said.push(format!(
            "fairdrop: the discipline of link {} shares its bits among flows already, and has less \
             to choose from: set bandwidth = false",
            link.port
        ));
    }
    said
}

/// What follows from how many frames wait in the receive ring of a port.
fn of_rings(config: &RouterConfig, rule: Rule) -> Vec<String> {
    let mut said = Vec::new();
    let is_xdp = |io: Io| matches!(io, Io::AfXdp | Io::Auto);
    let router = &config.router;
    let by_xdp = config.ports.iter().any(|port| is_xdp(port.io.unwrap_or(router.io)));
    // Half of the buffers wait for frames: those of all ports together.
    let ports = config.ports.len().max(1);
    let ring = match by_xdp {
        true => AfXdpOptions {
            buffers: Some(router.buffers as usize / 2 / ports),
            ..AfXdpOptions::default()
        }
        .ring_of(1),
        false => AfPacketOptions::default().ring_frames,
    };
    if by_xdp && (ring as usize) < 2 * BURST {
        said.push(format!(
            "fairdrop: with {} buffers the receive ring of an AF_XDP port holds {ring} frames, \
             less than two bursts of {BURST}: what comes at once is lost before anybody judges it; \
             set buffers to {} or more",
            router.buffers,
            4 * BURST * ports
        ));
    }
    if let Rule::MimdRing(rule) = rule
        && rule.high >= ring
    {
        said.push(format!(
            "fairdrop: rule mimd-ring waits for more than {} frames, and the receive ring holds \
             {ring}: its threshold never shrinks; set high below that",
            rule.high
        ));
    }
    said
}

/// Whether this machine's cycles cannot be measured.
fn of_counter(source: &Source) -> Option<String> {
    let Source::Clock(reason) = source else { return None };
    Some(format!(
        "fairdrop: what packets cost is measured by the clock on this machine, in whole \
         nanoseconds, each reading a system call's time: {reason}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_by_the_clock_are_told() {
        assert_eq!(of_counter(&Source::Counter), None);
        assert!(of_counter(&Source::Clock("no counter")).unwrap().contains("no counter"));
    }
}
