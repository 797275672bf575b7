//! Why a scenario cannot be simulated.

use evenkeel_cluster::model::ModelError;
use evenkeel_core::settings::SettingError;
use evenkeel_router::CommandError;
use evenkeel_scenario::{ScenarioError, Traffic};
use evenkeel_traffic::{EmulatorError, SourceError};
use evenkeel_world::capture::CaptureError;
use evenkeel_world::recording::RecordingError;
use evenkeel_world::sampling::NoPath;
use thiserror::Error;

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
    /// A wire cannot be captured.
    #[error(transparent)]
    Capture(#[from] CaptureError),
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
    /// A link has a queueing discipline of Linux.
    #[error(
        "{place}: link {link} of {router} has a queueing discipline of Linux, which only the lab \
         can have: `evenkeel lab` runs it"
    )]
    Linux {
        /// Where it stands, `file:line`.
        place: String,
        /// The router.
        router: String,
        /// The link.
        link: String,
    },
    /// Traffic has a congestion control that only the kernel has.
    #[error(
        "{place}: traffic {traffic}: congestion = {congestion:?} is the kernel's: `evenkeel lab` \
         runs it"
    )]
    Congestion {
        /// Where it stands, `file:line`.
        place: String,
        /// The traffic.
        traffic: String,
        /// The congestion control.
        congestion: &'static str,
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
    /// A router does not tell of its subscribers.
    #[error("router {router}: {source}")]
    Subscribers {
        /// Its name.
        router: String,
        /// What it says.
        source: Box<CommandError>,
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
    FairDrop(#[from] SettingError),
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
    pub(crate) fn of(self, traffic: &Traffic) -> SimError {
        SimError::Traffic { traffic: traffic.name.clone(), source: self }
    }
}

impl SimError {
    /// The exit code a command should end with: 2, for all of them are bad input.
    #[must_use]
    pub const fn exit_code(&self) -> u8 {
        match self {
            Self::Capture(CaptureError::Write { .. }) => 1,
            _ => 2,
        }
    }
}
