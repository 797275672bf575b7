//! TCP traffic of a scenario as two endpoints of the engine.

use std::net::SocketAddr;

use evenkeel_core::Nanos;
use evenkeel_report::FlowRow;
use evenkeel_scenario::{Congestion, Ecn, Scenario, Traffic, TrafficKind};
use evenkeel_traffic::random::Dice;
use evenkeel_traffic::{FLOW_STREAMS, SourceError};
use evenkeel_world::Demand;

use crate::engine::{End, Engine, host_number};
use crate::error::{SimError, TrafficError};
use crate::host::Endpoint;
use crate::queue::Event;
use crate::source::numbered;
use crate::tcp::{self, Codepoint, EcnEcho, ReceiverConfig, SenderConfig, TcpReceiver, TcpSender};
use crate::way::{address_key, way};

/// What a connection is to carry, and when it is opened.
#[derive(Clone, Copy)]
struct Job {
    congestion: Congestion,
    ecn: Ecn,
    bytes: Option<u64>,
    start: Nanos,
    /// Nothing new is sent from then on.
    stop: Nanos,
}

/// The only connection of its traffic, or number `flow` of those alike.
pub(crate) fn add(
    engine: &mut Engine,
    scenario: &Scenario,
    number: u32,
    traffic: &Traffic,
    flow: u64,
) -> Result<(), SimError> {
    let TrafficKind::Tcp { congestion, ecn, bytes } = traffic.kind else {
        return Err(TrafficError::TcpAtRate.of(traffic));
    };
    let job = Job {
        congestion,
        ecn,
        bytes: bytes.map(|bytes| bytes.0),
        start: traffic.start,
        stop: traffic.stop,
    };
    connect(engine, scenario, number, traffic, flow, job)
}

/// All the connections of a traffic of which many come and go. Ends that are done are forgotten.
pub(crate) fn add_many(
    engine: &mut Engine,
    scenario: &Scenario,
    number: u32,
    traffic: &Traffic,
    demand: Demand,
) -> Result<(), SimError> {
    let (TrafficKind::TcpFlows { congestion, ecn, .. }
    | TrafficKind::Users { congestion, ecn, .. }) = traffic.kind
    else {
        return Ok(());
    };
    let refused = |error: SourceError| TrafficError::from(error).of(traffic);
    for (flow, (start, size)) in (0..).zip(demand.connections().map_err(refused)?) {
        // What was begun in time is finished.
        let job = Job { congestion, ecn, bytes: Some(size.0), start, stop: scenario.duration };
        connect(engine, scenario, number, traffic, flow, job)?;
    }
    Ok(())
}

/// What is known of a connection before it begins.
fn row(traffic: &Traffic, flow: u64, job: Job, near: SocketAddr, far: SocketAddr) -> FlowRow {
    FlowRow {
        traffic: traffic.name.clone(),
        flow,
        transport: "tcp".to_owned(),
        source: near.to_string(),
        destination: far.to_string(),
        start_s: job.start.as_secs_f64(),
        until_s: job.stop.as_secs_f64(),
        asked_bytes: job.bytes,
        ..FlowRow::default()
    }
}

/// Both ends of a TCP connection, number `flow` of its traffic; the first opens it when it is time.
fn connect(
    engine: &mut Engine,
    scenario: &Scenario,
    number: u32,
    traffic: &Traffic,
    flow: u64,
    job: Job,
) -> Result<(), SimError> {
    // A full packet without options is as long as the scenario says.
    let headers = if traffic.ipv6 { 60 } else { 40 };
    let mss = traffic.size.0.saturating_sub(headers).min(u64::from(u16::MAX)) as u16;
    let congestion = match job.congestion {
        Congestion::Reno => tcp::Congestion::Reno,
        Congestion::Cubic => tcp::Congestion::Cubic { fast_convergence: true },
        Congestion::Dctcp => tcp::Congestion::Dctcp,
        Congestion::Bbr => {
            return Err(SimError::Congestion {
                place: traffic.place.clone(),
                traffic: traffic.name.clone(),
                congestion: job.congestion.name(),
            });
        }
    };
    let ecn = match job.ecn {
        Ecn::None => Codepoint::NotEct,
        Ecn::Ect0 => Codepoint::Ect0,
        Ecn::Ect1 => Codepoint::Ect1,
    };
    let echo = match (ecn, congestion) {
        (Codepoint::NotEct, _) => EcnEcho::No,
        (_, tcp::Congestion::Dctcp) => EcnEcho::Each,
        _ => EcnEcho::UntilReduced,
    };
    let mut dice = Dice::new(scenario.seed, u64::from(number) + flow.wrapping_mul(FLOW_STREAMS));
    let [isn, peer_isn] = [dice.fraction() as u32, dice.fraction() as u32];
    let (direction, there) = way(scenario, traffic, false)?;
    let there = numbered(there, traffic.party.as_ref(), flow);
    let (direction_back, back) = way(scenario, traffic, true)?;
    let addresses =
        tcp::Addresses { source: there.source, destination: there.destination, dscp: traffic.dscp };
    let sender =
        SenderConfig { mss, congestion, bytes: job.bytes, isn, ecn, ..SenderConfig::default() };
    let receiver = ReceiverConfig { mss, isn: peer_isn, echo, ..ReceiverConfig::default() };
    let end =
        |endpoint: Box<dyn Endpoint>, opens, host: &str, near: SocketAddr, far: SocketAddr| {
            let (direction, ethernet) =
                if opens { (direction, there.ethernet) } else { (direction_back, back.ethernet) };
            let host = host_number(scenario, host)?;
            let key = (host, near.port(), far.port(), address_key(far.ip()), traffic.ipv6);
            Ok::<_, SimError>(End {
                endpoint,
                traffic: number,
                opens,
                direction,
                ethernet,
                key,
                wake: Nanos::MAX,
                row: opens.then(|| Box::new(row(traffic, flow, job, near, far))),
            })
        };
    let (near, far) = (there.source, there.destination);
    engine.add_end(end(
        Box::new(TcpReceiver::new(receiver, &addresses)),
        false,
        &traffic.to,
        far,
        near,
    )?);
    let opening = engine.add_end(end(
        Box::new(TcpSender::new(sender, &addresses)),
        true,
        &traffic.from,
        near,
        far,
    )?);
    engine.queue.push(job.start, Event::Begin(opening));
    engine.queue.push(job.stop, Event::End(opening));
    Ok(())
}
