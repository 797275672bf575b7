//! The discipline of a link and its knobs.

use evenkeel_core::Packet;
use evenkeel_core::schedule::fifo::FifoConfig;
use evenkeel_core::schedule::lct::LctConfig;
use evenkeel_core::schedule::wfq_altq::WfqAltqConfig;
use evenkeel_core::schedule::{AnyScheduler, Knob, KnobError};

use crate::change::ChangeError;

/// `[link.discipline]`: per-class knobs resolved to vectors in the order of the classes, defaults filled in.
#[derive(Clone, Debug, PartialEq)]
pub enum DisciplineConfig {
    /// First in, first out.
    Fifo(FifoConfig),
    /// Weighted fair queueing as ALTQ has it.
    WfqAltq(WfqAltqConfig),
    /// LCT-UC.
    Lct(LctConfig),
}

impl DisciplineConfig {
    /// The name in configuration files: `fifo`, `wfq-altq`, `lct`.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Fifo(_) => "fifo",
            Self::WfqAltq(_) => "wfq-altq",
            Self::Lct(_) => "lct",
        }
    }

    /// The scheduler, empty.
    ///
    /// # Errors
    /// A value that the core refuses; none that came through this crate's parser.
    pub fn build<P: Packet>(&self, classes: u16) -> Result<AnyScheduler<P>, KnobError> {
        let _ = classes;
        todo!()
    }

    /// Changes this configuration as [`Scheduler::set`](evenkeel_core::schedule::Scheduler::set) changes the scheduler.
    ///
    /// # Errors
    /// The discipline has no such knob, or there is no such class.
    pub fn apply(&mut self, knob: Knob) -> Result<(), KnobError> {
        let _ = knob;
        todo!()
    }
}

/// Reads a discipline from the text of a TOML inline table (`{ kind = "lct", limit = 50 }`) or of a table's body.
///
/// # Errors
/// Everything that is wrong with it, in one message.
pub fn parse_discipline(text: &str, classes: &[&str]) -> Result<DisciplineConfig, ChangeError> {
    let _ = (text, classes);
    Err(ChangeError(String::new()))
}
