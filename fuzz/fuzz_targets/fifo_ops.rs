//! FIFO under random operations.
#![no_main]

use evenkeel_core::schedule::fifo::{Fifo, FifoConfig};
use evenkeel_fuzz::{Case, harness};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|case: Case| {
    let limit = 1 + u32::from(case.config[0] % 16);
    harness::run(Fifo::new(FifoConfig::packets(limit)).expect("1 to 16 is in range"), case.ops);
});
