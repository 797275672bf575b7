//! PDRR under random operations.
#![no_main]

use evenkeel_core::schedule::pdrr::{Pdrr, PdrrConfig};
use evenkeel_core::{Bytes, Nanos};
use evenkeel_fuzz::{Case, buffer, harness, number, start_limit};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|case: Case| {
    let [flows, quantum @ ..] = case.config;
    let (buffer, victim) = buffer(&case);
    let config = PdrrConfig {
        quantum: Bytes(number(&quantum[..2], 256, 4_000)),
        buffer,
        victim,
        flows: 1 + u32::from(flows % 40),
        afl_linger: Nanos(number(&quantum[2..4], 0, 60_000)),
        start_limit: start_limit(&case),
        seed: u64::from(flows),
    };
    harness::run(Pdrr::new(config).expect("every choice above is in range"), case.ops);
});
