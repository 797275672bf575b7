//! `evenkeel reference`: the formats' references, generated from the tables that read them.

use evenkeel_sim::cluster::ClusterScenario;
use evenkeel_world::live::LiveScenario;

use crate::args::Format;
use crate::failure::Outcome;
use crate::out::print;

pub(crate) fn reference(format: Format, json_schema: bool) -> Outcome {
    print(&match (format, json_schema) {
        (Format::Router, false) => evenkeel_config::reference_markdown(),
        (Format::Router, true) => evenkeel_config::router_schema(),
        (Format::Scenario, false) => evenkeel_scenario::reference_markdown(),
        (Format::Scenario, true) => evenkeel_scenario::scenario_schema(),
        (Format::Sweep, false) => evenkeel_sweep::tables::reference_markdown(),
        (Format::Sweep, true) => evenkeel_sweep::tables::schema(),
        (Format::Cluster, false) => ClusterScenario::reference_markdown(),
        (Format::Cluster, true) => ClusterScenario::schema(),
        (Format::Live, false) => LiveScenario::reference_markdown(),
        (Format::Live, true) => LiveScenario::schema(),
    })
}
