//! The schema of `router.toml`: parsing with file and line, units in text, ranges, defaults, and its generated reference.
//!
//! [`RouterConfig::load`] and [`RouterConfig::parse`] read a file and report *all* its errors at once, each with file,
//! line, key, what is wrong, the valid range and the nearest valid key. One table of keys ([`tables`]) drives parsing,
//! validation, defaults and [`reference_markdown`], so that they cannot disagree. Nothing here knows a thread or a socket.
//!
//! ```
//! use evenkeel_config::RouterConfig;
//!
//! let config = RouterConfig::parse("[[port]]\nname = \"lan\"\ninterface = \"eth1\"", "router.toml").unwrap();
//! assert_eq!(config.link("lan").unwrap().discipline.name(), "fifo");
//!
//! let wrong = RouterConfig::parse("[[port]]\nname = \"lan\"\ninterfce = \"eth1\"", "router.toml").unwrap_err();
//! assert!(wrong.to_string().starts_with("router.toml:3: port.interfce: unknown key; did you mean `interface`?"));
//! ```
#![forbid(unsafe_code)]

pub mod admission;
pub mod change;
pub mod cluster;
pub mod control;
pub mod diagnostic;
pub mod diff;
pub mod discipline;
pub mod fairdrop;
mod flow_aware;
pub mod json_schema;
pub mod membership;
pub mod model;
pub mod parse;
pub mod place;
pub mod quantity;
pub mod read;
pub mod reference;
mod scalar;
pub mod schema;
pub mod service;
pub mod tables;
pub mod tree;
pub mod workers;

pub use admission::{AdmissionChange, FlowsSection, LinkAdmission, SecondLink};
pub use change::{Change, ChangeError, parse_change, parse_knob};
pub use cluster::{
    BalancerForwarder, BalancerSection, ClusterLink, ClusterMissing, ClusterRule, ClusterSection,
    ClusterVariant, ForwarderState,
};
pub use control::LinkControl;
pub use diagnostic::{Diagnostic, Diagnostics};
pub use diff::diff;
pub use discipline::{BuildError, DisciplineConfig, OwnConfig, parse_discipline};
pub use fairdrop::FairDropConfig;
pub use json_schema::router_schema;
pub use membership::{MembershipSection, Refusal, overlay};
pub use model::{ClassConfig, Hairpin, Io, LinkConfig, Mode, PortConfig, RouterConfig, RouterSection};
pub use parse::{PortSource, router_from_table};
pub use place::key_line;
pub use quantity::{QuantityError, parse_rate, parse_size, parse_time, rate_text, size_text, time_text};
pub use reference::reference_markdown;
pub use service::{AclConfig, EspConfig, OuterDf, ServiceConfig, Work, key_text};
