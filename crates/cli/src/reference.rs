//! `evenkeel reference`: the formats' references, generated from the tables that read them.

use crate::args::Format;
use crate::failure::Outcome;
use crate::out::print;

pub(crate) fn reference(format: Format) -> Outcome {
    print(&match format {
        Format::Router => evenkeel_config::reference_markdown(),
        Format::Scenario => evenkeel_scenario::reference_markdown(),
    })
}
