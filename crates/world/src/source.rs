//! The sources of a scenario.

use evenkeel_core::{BitRate, Bytes, Nanos};
use evenkeel_scenario::{FlowSizes, Scenario, Traffic, TrafficKind};
use evenkeel_traffic::{
    Application, Beginnings, FlowsConfig, Habit, Process, Sizes, SourceConfig, SourceError, Users,
    UsersConfig,
};

use crate::payload::SHORTEST;

/// The source that times the packets of a `[[traffic]]`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SourceKind {
    /// One flow at a time.
    Flow(SourceConfig),
    /// Flows that come and go.
    Flows(FlowsConfig),
    /// Its recording.
    Recording,
    /// TCP.
    Tcp,
    /// TCP connections that come and go.
    Connections(Demand),
}

/// When TCP connections begin, and how much payload each carries.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Demand {
    /// Exponential gaps between them.
    Flows(FlowsConfig),
    /// As people read or computers fetch.
    Users(UsersConfig),
}

impl Demand {
    /// Connection after connection, in order of time.
    ///
    /// # Errors
    /// A value outside of its range.
    pub fn connections(
        self,
    ) -> Result<Box<dyn Iterator<Item = (Nanos, Bytes)> + Send>, SourceError> {
        Ok(match self {
            Self::Flows(config) => Box::new(Beginnings::new(config)?),
            Self::Users(config) => Box::new(Users::new(config)),
        })
    }
}

/// Source ports that flows are given one after another.
pub const SOURCE_PORTS: u64 = 65_536 - FIRST_PORT;
/// The first of them.
const FIRST_PORT: u64 = 1_024;

/// Source and destination port of flow number `flow` among many alike, of which the first has the
/// given ones: source ports count up, and where they are through, the destination port does.
#[must_use]
pub const fn ports_of_flow(source: u16, destination: u16, flow: u64) -> (u16, u16) {
    const fn shifted(port: u16, by: u64) -> u16 {
        (FIRST_PORT + (port as u64 - FIRST_PORT + by) % SOURCE_PORTS) as u16
    }
    (shifted(source, flow % SOURCE_PORTS), shifted(destination, flow / SOURCE_PORTS % SOURCE_PORTS))
}

/// Which flow has these ports where the first has `source` and `destination`: the other way round
/// than [`ports_of_flow`].
#[must_use]
pub const fn flow_of_ports((source, destination): (u16, u16), ports: (u16, u16)) -> u64 {
    const fn shift(from: u16, to: u16) -> u64 {
        (to as u64 + SOURCE_PORTS - from as u64) % SOURCE_PORTS
    }
    shift(source, ports.0) + SOURCE_PORTS * shift(destination, ports.1)
}

/// The source of a flow. `stream` tells it from others of the run; times count from `start`.
#[must_use]
pub fn source_of(scenario: &Scenario, traffic: &Traffic, stream: u64, start: Nanos) -> SourceKind {
    let (begin, stop) = (start.saturating_add(traffic.start), start.saturating_add(traffic.stop));
    let flows = |mean_size, sizes, peak| {
        let milli = |shape: f64| (shape * 1e3).round() as u32;
        let sizes = match sizes {
            FlowSizes::Fixed => Sizes::Fixed,
            FlowSizes::Pareto(shape) => Sizes::Pareto { shape_milli: milli(shape) },
            FlowSizes::Lognormal(shape) => Sizes::Lognormal { shape_milli: milli(shape) },
        };
        FlowsConfig {
            load: traffic.rate,
            mean_size,
            sizes,
            peak,
            ip_len: traffic.size,
            min_len: SHORTEST,
            start: begin,
            stop,
            seed: scenario.seed,
            stream,
        }
    };
    let process = match traffic.kind {
        // Connections have no peak rate; any valid one will do.
        TrafficKind::TcpFlows { mean_size, sizes, .. } => {
            let config = flows(mean_size, sizes, traffic.rate);
            return SourceKind::Connections(Demand::Flows(config));
        }
        TrafficKind::Users { web, users, .. } => {
            let habit = if web { Habit::Web } else { Habit::Update };
            let seed = scenario.seed;
            let config = UsersConfig { habit, users, start: begin, stop, seed, stream };
            return SourceKind::Connections(Demand::Users(config));
        }
        _ if traffic.tcp => return SourceKind::Tcp,
        TrafficKind::Replay => return SourceKind::Recording,
        TrafficKind::Flows { mean_size, sizes, peak } => {
            return SourceKind::Flows(flows(mean_size, sizes, peak));
        }
        TrafficKind::Cbr => Process::Cbr { jitter_ppm: (traffic.jitter * 1e6) as u32 },
        TrafficKind::Greedy => Process::Cbr { jitter_ppm: 0 },
        TrafficKind::Poisson => Process::Poisson,
        TrafficKind::OnOff { mean_on, mean_off } => Process::OnOff { mean_on, mean_off },
        _ => match application(traffic) {
            Some((application, headers)) => Process::Application { application, headers },
            None => return SourceKind::Tcp,
        },
    };
    // Where the kind has no rate, nothing is made of it.
    let rate = traffic.rate.max(BitRate(1));
    SourceKind::Flow(SourceConfig {
        start: begin,
        stop,
        seed: scenario.seed,
        stream,
        ..SourceConfig::new(process, rate, traffic.size)
    })
}

/// What a `[[traffic]]` sends that is somebody's call, game or video, and the bytes of its headers.
pub(crate) fn application(traffic: &Traffic) -> Option<(Application, Bytes)> {
    let application = match traffic.kind {
        TrafficKind::Call => Application::Call,
        TrafficKind::Game { down: true } => Application::GameDown,
        TrafficKind::Game { down: false } => Application::GameUp,
        TrafficKind::Video { frame_rate } => Application::Video { frame_rate },
        _ => return None,
    };
    Some((application, Bytes(if traffic.ipv6 { 48 } else { 28 })))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flow_has_ports_of_its_own() {
        assert_eq!(ports_of_flow(40_001, 5_001, 0), (40_001, 5_001));
        assert_eq!(ports_of_flow(40_001, 5_001, 25_534), (65_535, 5_001));
        assert_eq!(ports_of_flow(40_001, 5_001, 25_535), (1_024, 5_001));
        assert_eq!(ports_of_flow(40_001, 5_001, SOURCE_PORTS), (40_001, 5_002));
        for flow in [0, 1, 30_000, SOURCE_PORTS - 1, SOURCE_PORTS, 3 * SOURCE_PORTS + 7] {
            let ports = ports_of_flow(40_001, 65_535, flow);
            assert_eq!(flow_of_ports((40_001, 65_535), ports), flow);
        }
    }
}
