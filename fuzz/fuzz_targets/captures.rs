//! Files that are read as captures: `cases/captures.rs`.
#![no_main]

#[path = "../cases/captures.rs"]
mod case;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| case::run(bytes));
