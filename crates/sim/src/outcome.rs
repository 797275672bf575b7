//! Options of a simulation, and its outcome.

use evenkeel_core::Nanos;
use evenkeel_report::{Judgement, Run, judge};
use evenkeel_router::Disciplines;
use evenkeel_world::capture::Captures;

use crate::host::EndpointCounters;

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
    /// Whether TCP connections are looked at after each window.
    pub connections: bool,
    /// The wires whose frames are written to files.
    pub captures: Captures,
}

impl Default for SimOptions {
    fn default() -> Self {
        Self {
            seed: None,
            without: None,
            time_scale: 1.0,
            disciplines: Disciplines::default(),
            connections: false,
            captures: Captures::default(),
        }
    }
}

/// Result of one flow (`[[traffic]]`), from end to end.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FlowTotals {
    /// Name of the traffic.
    pub name: String,
    /// IP packets that its sending host put on the wire (with TCP: segments with payload and
    /// without).
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
    /// The samples; `world` is `sim`. A warning in it is of counters that do not add up, of a
    /// router, a link, its admission or all of them together: a mistake of this program.
    pub run: Run,
    /// The expectations meant for the simulator, judged.
    pub judgements: Vec<Judgement>,
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
