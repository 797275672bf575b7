//! The whole pipeline under frames from nowhere: `cases/frames.rs`.
#![no_main]

#[path = "../../crates/router/tests/it/common/mod.rs"]
#[allow(dead_code, missing_docs, unreachable_pub, reason = "a test module of another crate")]
mod common;

#[path = "../cases/frames.rs"]
mod case;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| case::run(bytes));
