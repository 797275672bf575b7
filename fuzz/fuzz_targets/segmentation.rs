//! Cutting of super-frames: see `cases/segmentation.rs`.
#![no_main]

#[path = "../cases/segmentation.rs"]
mod case;
#[path = "../../crates/ports/src/segment.rs"]
#[allow(dead_code, reason = "a module of another crate")]
mod segment;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| case::run(bytes));
