//! From a scenario to the engine's nodes, wires and sources.

use evenkeel_core::Nanos;
use evenkeel_router::Disciplines;
use evenkeel_scenario::{Scenario, Traffic, TrafficKind};
use evenkeel_traffic::{FLOW_STREAMS, FlowArrivals, Replay, Source, SourceError};
use evenkeel_world::{SourceKind, recording, sampling, source_of, wires};

use crate::connection;
use crate::engine::{Direction, Engine, FollowedFlows, Tally, Target, host_number};
use crate::error::{SimError, TrafficError};
use crate::router::SimRouter;
use crate::source::{Schedule, Sender, numbered};
use crate::way::way;

/// Builds everything; the seed is the scenario's.
pub(crate) fn engine(scenario: &Scenario, disciplines: &Disciplines) -> Result<Engine, SimError> {
    let routers = scenario
        .routers
        .iter()
        .map(|router| SimRouter::new(scenario, &router.name, disciplines))
        .collect::<Result<Vec<_>, _>>()?;
    let mut directions = Vec::with_capacity(2 * scenario.wires.len());
    for (number, wire) in scenario.wires.iter().enumerate() {
        for near in 0..2 {
            let far = &wire.ends[1 - near];
            directions.push(Direction {
                to: target(scenario, &routers, far)?,
                emulator: wires::emulator(scenario, number, near)?,
                sent: 0,
                arrived: 0,
                captured: None,
            });
        }
    }
    let mut tallies = Vec::with_capacity(scenario.traffic.len());
    for traffic in &scenario.traffic {
        // Elsewhere it is not looked at: it costs a look-up for each packet.
        let acceptance = scenario.measures_acceptance().then(Box::default);
        // A recording holds flows of whatever kind.
        let followed = !traffic.kind.is_tcp() && traffic.kind != TrafficKind::Replay;
        let key = sampling::flow_key(scenario, traffic).filter(|_| followed);
        tallies.push(Tally {
            to: host_number(scenario, &traffic.to)?,
            followed: key.map(|key| {
                let ports = (key.source_port, key.destination_port);
                Box::new(FollowedFlows { ports, ..FollowedFlows::default() })
            }),
            acceptance,
            ..Tally::default()
        });
    }
    let mut engine = Engine::new(routers, directions, tallies);
    for (number, traffic) in scenario.traffic.iter().enumerate() {
        add_traffic(&mut engine, scenario, number as u32, traffic)?;
    }
    Ok(engine)
}

fn target(
    scenario: &Scenario,
    routers: &[SimRouter],
    end: &evenkeel_scenario::End,
) -> Result<Target, SimError> {
    let Some(router) = scenario.routers.iter().position(|router| router.name == end.node) else {
        let host = host_number(scenario, &end.node)?;
        let talks = |of: &Traffic| {
            (of.tcp || of.kind.is_tcp()) && (of.from == end.node || of.to == end.node)
        };
        let answers = scenario.traffic.iter().any(talks);
        return Ok(if answers { Target::Host(host) } else { Target::Sink(host) });
    };
    let ports = &scenario.routers[router].config.ports;
    let port = ports.iter().position(|port| port.interface == end.interface);
    let port = port.filter(|port| *port < routers[router].ports.len());
    let port = port.ok_or_else(|| SimError::NoPort {
        node: end.node.clone(),
        interface: end.interface.clone(),
    })?;
    Ok(Target::Router(router as u32, port as u32))
}

fn add_traffic(
    engine: &mut Engine,
    scenario: &Scenario,
    number: u32,
    traffic: &Traffic,
) -> Result<(), SimError> {
    let invalid = |error: SourceError| TrafficError::from(error).of(traffic);
    let (direction, addresses) = way(scenario, traffic, false)?;
    for flow in 0..u64::from(traffic.flows) {
        let addresses = numbered(addresses, traffic.party.as_ref(), flow);
        // The first flow of each has the stream that the lab's has.
        let stream = u64::from(number) + flow * FLOW_STREAMS;
        let schedule = match source_of(scenario, traffic, stream, Nanos::ZERO) {
            SourceKind::Flow(config) => {
                Schedule::Flow(Box::new(Source::new(config).map_err(invalid)?))
            }
            SourceKind::Flows(config) => {
                Schedule::Flows(Box::new(FlowArrivals::new(config).map_err(invalid)?))
            }
            SourceKind::Recording => {
                let path = traffic
                    .recording
                    .as_deref()
                    .ok_or_else(|| TrafficError::NoRecording.of(traffic))?;
                let recording =
                    recording::read(path).map_err(|error| TrafficError::from(error).of(traffic))?;
                engine.notes.push(recording.told(path));
                Schedule::Replay(Box::new(Replay::new(
                    recording.packets,
                    traffic.start,
                    traffic.stop,
                )))
            }
            SourceKind::Tcp => {
                connection::add(engine, scenario, number, traffic, flow)?;
                continue;
            }
            SourceKind::Connections(demand) => {
                connection::add_many(engine, scenario, number, traffic, demand)?;
                continue;
            }
        };
        // Of many that come and go it gives each its addresses.
        let party = traffic.party.clone().filter(|_| matches!(schedule, Schedule::Flows(_)));
        let packets = (traffic.size, party);
        engine.add_sender(Sender::new(number, direction, addresses, schedule, packets));
    }
    Ok(())
}
