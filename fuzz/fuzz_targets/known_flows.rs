//! The cache of flows against the long way: `cases/known_flows.rs`.
#![no_main]

#[path = "../../crates/router/tests/it/common/mod.rs"]
#[allow(dead_code, missing_docs, unreachable_pub, reason = "a test module of another crate")]
mod common;

#[path = "../cases/known_flows.rs"]
mod case;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| case::run(bytes));
