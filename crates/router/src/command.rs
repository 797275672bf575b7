//! What can be asked of a running router. The worker executes commands between two bursts.

use evenkeel_config::{DisciplineConfig, RouterConfig};
use evenkeel_core::FlowKey;
use evenkeel_core::admit::AdmissionConfig;
use evenkeel_core::settings::Change;

use crate::snapshot::{FlowSnapshot, Snapshot};

/// A request to the worker. Links are named by their port.
#[derive(Clone, Debug)]
pub enum Command {
    /// Every counter, at one instant.
    Show,
    /// Changes one knob of a link's discipline.
    Set {
        /// The port of the link.
        link: String,
        /// The setting and its new value.
        change: Change,
    },
    /// Changes a setting of a link's wire: its rate, its transmit ring.
    SetWire {
        /// The port of the link.
        link: String,
        /// The setting and its new value.
        change: Change,
    },
    /// Lets the dynamic control of a link turn knobs, or only measure.
    SetControl {
        /// The port of the link.
        link: String,
        /// Whether it turns knobs.
        on: bool,
    },
    /// Puts another discipline in place of a link's; what is queued is kept as far as it fits.
    SwapDiscipline {
        /// The port of the link.
        link: String,
        /// The new discipline.
        discipline: DisciplineConfig,
    },
    /// Changes a key of `[fairdrop]`.
    FairDrop(Change),
    /// Changes a key of the admission of a link.
    SetAdmission {
        /// The port of the link.
        link: String,
        /// The key and its new value.
        change: Change,
    },
    /// Puts another admission in place of a link's; `None`: everybody may enter.
    SwapAdmission {
        /// The port of the link.
        link: String,
        /// The new admission.
        admission: Option<Box<AdmissionConfig>>,
    },
    /// What happened to a flow's packets.
    Explain {
        /// The port of the link; `None`: every link with admission.
        link: Option<String>,
        /// The flow.
        flow: FlowKey,
    },
    /// The protected flows, busiest first.
    Flows {
        /// The port of the link; `None`: every link with admission.
        link: Option<String>,
        /// How many at most.
        top: usize,
    },
    /// Changes what a forwarder gets from this balancer.
    Forwarder {
        /// The forwarder.
        id: u16,
        /// What it gets.
        state: evenkeel_config::ForwarderState,
    },
    /// Makes the running router as the file says. What cannot change while it runs is refused:
    /// [`CommandError::NeedsRestart`](crate::CommandError::NeedsRestart).
    Reload(Box<RouterConfig>),
}

/// The answer to a [`Command`] that was carried out.
#[derive(Clone, Debug)]
pub enum Reply {
    /// It is done.
    Done,
    /// The counters.
    Snapshot(Box<Snapshot>),
    /// Sentences, one a line.
    Text(String),
    /// Flows.
    Flows(Vec<FlowSnapshot>),
}
