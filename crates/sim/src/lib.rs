//! Scenarios in virtual time.
//!
//! One thread, one queue of events, one seed: the same scenario and seed give the same bytes of output on every machine. Routers are the
//! router's own [`Pipeline`](evenkeel_router::pipeline::Pipeline)s, driven through ports in memory; wires are
//! [`Emulator`](evenkeel_traffic::emulate::Emulator)s; hosts hold the sources of `evenkeel-traffic` and [`Endpoint`]s such as TCP.
#![forbid(unsafe_code)]

pub mod cluster;
mod connection;
mod engine;
mod header;
pub mod host;
mod live;
mod network;
pub mod polled;
mod port;
mod queue;
mod router;
mod run;
mod source;
pub mod tcp;

pub use host::{Endpoint, EndpointCounters, IpPacket, Outbox};
pub use live::run_live;

use evenkeel_cluster::model::ModelError;
use evenkeel_core::{Nanos, OutOfRange};
use evenkeel_report::{Judgement, Run, judge};
use evenkeel_router::{CommandError, Disciplines};
use evenkeel_scenario::{Scenario, ScenarioError};
use evenkeel_traffic::{EmulatorError, SourceError};
use evenkeel_world::recording::RecordingError;
use evenkeel_world::sampling::NoPath;
use thiserror::Error;

/// How a scenario is run.
#[derive(Clone, Debug)]
pub struct SimOptions {
    /// In place of the scenario's seed.
    pub seed: Option<u64>,
    /// The mechanism that is switched off: the name of a `[[without]]`.
    pub without: Option<String>,
    /// Times of steps, traffic, settling, sampling and the run are multiplied by this.
    pub time_scale: f64,
    /// The disciplines of `kind = "own"`.
    pub disciplines: Disciplines,
}

impl Default for SimOptions {
    fn default() -> Self {
        Self { seed: None, without: None, time_scale: 1.0, disciplines: Disciplines::default() }
    }
}

/// Why a scenario was not simulated, or not to its end.
#[derive(Debug, Error)]
pub enum SimError {
    /// An option does not fit the scenario.
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
    /// Packets of a flow have no way.
    #[error(transparent)]
    NoPath(#[from] NoPath),
    /// A wire cannot be emulated.
    #[error(transparent)]
    Wire(#[from] EmulatorError),
    /// A node that is named somewhere does not exist.
    #[error("there is no node {0}")]
    NoNode(String),
    /// A wire ends at a port that its router does not have, or a port has no wire.
    #[error("no port {interface} at {node} that a wire leads to")]
    NoPort {
        /// The router.
        node: String,
        /// The interface of the port.
        interface: String,
    },
    /// A router's pipeline refuses its configuration.
    #[error("router {router}: {source}")]
    Router {
        /// Its name.
        router: String,
        /// What it says.
        source: Box<CommandError>,
    },
    /// A step names a router that does not exist.
    #[error("step {step}: there is no router {router}")]
    NoRouter {
        /// The step.
        step: String,
        /// The name.
        router: String,
    },
    /// A router refuses a change of a step.
    #[error("{change}: {source}")]
    Change {
        /// The router, its link, and what should change.
        change: String,
        /// What the router says.
        source: Box<CommandError>,
    },
    /// A flow cannot be sent.
    #[error("traffic {traffic}: {source}")]
    Traffic {
        /// Its name.
        traffic: String,
        /// Why.
        source: TrafficError,
    },
    /// FairDrop of a `[core]` refuses its configuration.
    #[error("fairdrop: {0}")]
    FairDrop(#[from] OutOfRange),
    /// A step or a case of a cluster cannot be run.
    #[error("{part}: {source}")]
    Cluster {
        /// Which: "step x", "case y".
        part: String,
        /// What the model says.
        source: ModelError,
    },
}

/// Why a flow cannot be sent.
#[derive(Debug, Error)]
pub enum TrafficError {
    /// Its pattern is out of range.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// Its recording cannot be replayed.
    #[error(transparent)]
    Recording(#[from] RecordingError),
    /// It replays a recording, and none is named.
    #[error("no recording")]
    NoRecording,
    /// No wires lead from one host to the other.
    #[error("its hosts do not reach each other")]
    Unreachable,
    /// TCP with a rate is sent by real hosts only.
    #[error("TCP at a rate is for real packets only; use kind = \"tcp\"")]
    TcpAtRate,
}

impl TrafficError {
    pub(crate) fn of(self, traffic: &evenkeel_scenario::Traffic) -> SimError {
        SimError::Traffic { traffic: traffic.name.clone(), source: self }
    }
}

impl SimError {
    /// The exit code a command should end with: 2, for all of them are bad input.
    #[must_use]
    pub const fn exit_code(&self) -> u8 {
        2
    }
}

/// What became of one flow (`[[traffic]]`), from end to end.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FlowTotals {
    /// Name of the traffic.
    pub name: String,
    /// IP packets that its sending host put on the wire (with TCP: segments with payload and without).
    pub sent_packets: u64,
    /// IP packets of them that arrived at its receiving host.
    pub received_packets: u64,
    /// Their IP bytes.
    pub received_bytes: u64,
    /// With TCP: what the sending ends did, added up.
    pub sender: EndpointCounters,
    /// With TCP: what the receiving ends did, added up.
    pub receiver: EndpointCounters,
}

/// What came out of a simulation.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The samples; `world` is `sim`.
    pub run: Run,
    /// The expectations meant for the simulator, judged.
    pub judgements: Vec<Judgement>,
    /// Counters that do not add up, of a router, a link, its admission or all of them together: a mistake of this program.
    pub warnings: Vec<String>,
    /// The flows in the order of the scenario.
    pub flows: Vec<FlowTotals>,
    /// Events processed.
    pub events: u64,
    /// Packets that hosts sent.
    pub packets: u64,
    /// Virtual time simulated.
    pub simulated: Nanos,
}

impl Outcome {
    /// Whether all went as expected; in a run without a mechanism: whether what had to fail failed.
    #[must_use]
    pub fn passed(&self) -> bool {
        judge::bad(&self.judgements).is_empty()
    }

    /// 0 if [`passed`](Self::passed), else 1.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        u8::from(!self.passed())
    }
}

/// Simulates `scenario` to its end. Takes no time into account but its own.
///
/// # Errors
/// If an option does not fit the scenario, or something in it exists on real packets only.
pub fn run(scenario: &Scenario, options: &SimOptions) -> Result<Outcome, SimError> {
    run::run(scenario, options)
}
