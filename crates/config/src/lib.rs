//! The schema of `router.toml`: parsing with file and line, units in text, ranges, defaults, and
//! its generated reference.
//!
//! [`RouterConfig::load`] and [`RouterConfig::parse`] read a file and report *all* its errors at
//! once, each with file, line, key, what is wrong, the valid range and the nearest valid key. One
//! table of keys ([`tables`]) drives parsing, validation, defaults and [`reference_markdown`], so
//! that they cannot disagree. Nothing here knows a thread or a socket.
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
// What blocks or fails where these write would stop packets: the log has a thread (crates/cli).
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]
#![forbid(unsafe_code)]

use evenkeel_settings::json_schema::document;
use evenkeel_settings::reference::markdown;

mod admission;
pub mod attach;
pub mod change;
pub mod cluster;
pub mod control;
pub mod diff;
pub mod discipline;
mod fairdrop;
mod filter;
mod group;
pub mod membership;
pub mod model;
pub mod parse;
pub mod service;
pub mod subscribers;
pub mod tables;
pub mod workers;
mod write;

pub use attach::Attach;
pub use change::{
    Change, ChangeError, LinkChange, LinkChangeError, live_keys, live_names, parse_change,
    parse_knob,
};
pub use cluster::{
    BalancerForwarder, BalancerSection, ClusterLink, ClusterSection, ForwarderState, StationAddress,
};
pub use control::{LatencyControl, LctControl, LinkControl};
pub use diff::{diff, fixed_change, fixed_setting};
pub use discipline::{OwnError, own_settings, parse_discipline, tc_lines};
pub use evenkeel_core::schedule::{BuildError, DisciplineConfig, LinuxConfig, OwnConfig};
pub use fairdrop::parse_fairdrop;
pub use filter::parse_filter;
pub use membership::{MembershipSection, Refusal, overlay};
pub use model::{
    Attachment, Bypass, ClassConfig, Hairpin, Io, LinkConfig, Mode, PortConfig, RouterConfig,
    RouterSection,
};
pub use parse::{PortSource, router_from_table};
pub use service::{
    AclAction, AclConfig, AclRule, EspConfig, EspKey, OuterDf, ServiceConfig, SpinConfig, Work,
};
pub use write::unusual;

/// The JSON schema of `router.toml`, as text.
#[must_use]
pub fn router_schema() -> String {
    document("router.toml", &tables::FILE, &|_words| None)
}

/// The reference of `router.toml`.
#[must_use]
pub fn reference_markdown() -> String {
    let intro = "Every key that `router.toml` can hold. Anything else is an error that names file, \
                 line, key, valid range and the \
                 nearest valid key; all errors of a file are told at once. `evenkeel check \
                 router.toml` checks without running.\n";
    markdown("Reference: router.toml", intro, &tables::all()) + &live_markdown()
}

/// What can change while a router runs, as a section of the reference.
fn live_markdown() -> String {
    let mut page =
        "\n## What changes while a router runs\n\nBy `evenkeel ctl set LINK KEY [CLASS] VALUE` and \
                    by the steps of a scenario. A setting that each class has changes for one \
                    class if it is \
                    named, else for all. `none` takes away what may be left out.\n\n| key | of | \
                    value |\n\
                    |---|---|---|\n"
            .to_owned();
    for name in live_names() {
        let keys: Vec<_> = live_keys().filter(|key| key.name == name).collect();
        let whole = change::WHOLES.iter().find(|(whole, _)| *whole == name);
        let of = if keys.iter().any(|key| key.is_per_class()) { "class or link" } else { "link" };
        let value = whole.map_or_else(
            || keys.first().map_or_else(String::new, |key| key.kind.shape()),
            |(_, what)| (*what).to_owned(),
        );
        page.push_str(&format!("| `{name}` | {of} | {} |\n", value.replace('|', "\\|")));
    }
    page.push_str("| `admission.KEY` | link | as in `[link.admission]` |\n");
    page
}
