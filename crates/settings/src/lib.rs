//! Files of settings: TOML is read by declarations ([`evenkeel_core::settings::schema`]) with *all*
//! its errors at once, each with file, line, key, what is wrong, the valid range and the nearest
//! valid key. The same declarations give JSON schemas and reference pages, so that they cannot
//! disagree. Nothing here knows what is set.
// What blocks or fails where these write would stop packets: the log has a thread (crates/cli).
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]
#![forbid(unsafe_code)]

pub mod diagnostic;
pub mod json_schema;
pub mod place;
pub mod read;
pub mod reference;
pub mod scalar;
pub mod tree;
pub mod typed;

pub use diagnostic::{Diagnostic, Diagnostics, ValueError};
pub use place::key_line;
pub use typed::{Changed, change_of, changes, entries, plain_entries, read_settings, settings_of};
