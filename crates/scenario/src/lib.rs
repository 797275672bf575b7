//! The scenario format: topology, routers, traffic, timed steps, samples and expectations.
//!
//! [`Scenario::load`] reads a file and reports *all* its errors at once, with file, line, key,
//! valid range and nearest valid name; addresses, ports and routes of all nodes are worked out, the
//! expectations are parsed, their names resolved. It runs nothing: the worlds (lab, simulator) do,
//! and hand their numbers back through [`Metrics`] to have expectations judged.
#![forbid(unsafe_code)]

pub mod core_model;
pub mod expr;
mod inputs;
pub mod model;
mod parse;
mod published;
pub mod reference;
pub mod subscribers;
pub mod tables;
pub mod template;
pub mod topology;
mod vary;

pub use expr::{
    Compared, Evaluation, Expr, FlowMetric, FlowSet, Fold, Metric, Metrics, OfFlows, OfSubscribers,
    Room, Statistic, Subject, SubscriberMetric, SubscriberSet, Term,
};
pub use inputs::inputs;
pub use model::{
    Ablation, AblationChange, Congestion, Ecn, Expectation, FlowSizes, Host, Published, Router,
    Scenario, ScenarioError, SetChange, Step, Tool, Traffic, TrafficKind, World, linux_of,
};
pub use published::{PublishedError, published_number};
pub use reference::{reference_markdown, scenario_schema};
pub use subscribers::{Party, Subscribers};
pub use template::{Template, Topology};
pub use topology::{End, FIRST_WEIGHT, Interface, Quality, Route, Wire};

pub use evenkeel_settings::{Diagnostic, Diagnostics};
