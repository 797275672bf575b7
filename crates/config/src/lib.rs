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

use evenkeel_settings::json_schema::document;
use evenkeel_settings::reference::markdown;

mod admission;
pub mod change;
pub mod cluster;
pub mod control;
pub mod diff;
pub mod discipline;
pub mod fairdrop;
mod flow_aware;
pub mod membership;
pub mod model;
pub mod parse;
pub mod service;
pub mod tables;
pub mod workers;

pub use change::{Change, ChangeError, parse_change, parse_knob};
pub use cluster::{
    BalancerForwarder, BalancerSection, ClusterLink, ClusterSection, ForwarderState, StationAddress,
};
pub use control::LinkControl;
pub use diff::diff;
pub use discipline::{BuildError, DisciplineConfig, OwnConfig, parse_discipline};
pub use fairdrop::FairDropConfig;
pub use membership::{MembershipSection, Refusal, overlay};
pub use model::{ClassConfig, Hairpin, Io, LinkConfig, Mode, PortConfig, RouterConfig, RouterSection};
pub use parse::{PortSource, router_from_table};
pub use service::{AclConfig, EspConfig, OuterDf, ServiceConfig, Work, key_text};

/// The JSON schema of `router.toml`, as text.
#[must_use]
pub fn router_schema() -> String {
    document("router.toml", &tables::FILE, &|_words| None)
}

/// The reference of `router.toml`.
#[must_use]
pub fn reference_markdown() -> String {
    let intro = "Every key that `router.toml` can hold. Anything else is an error that names file, line, key, valid range and the \
                 nearest valid key; all errors of a file are told at once. `evenkeel check router.toml` checks without running.\n";
    markdown("Reference: router.toml", intro, tables::ALL)
}
