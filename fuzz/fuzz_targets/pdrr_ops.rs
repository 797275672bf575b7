//! PDRR under random operations.
#![no_main]

use evenkeel_core::schedule::hosts::Fair;
use evenkeel_core::schedule::pdrr::{Pdrr, PdrrConfig};
use evenkeel_core::{Bytes, Nanos};
use evenkeel_fuzz::{Case, aqm, buffer, flows, harness, number};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|case: Case| {
    let [_, quantum @ ..] = case.config;
    let config = PdrrConfig {
        quantum: Bytes(number(&quantum[..2], 256, 4_000)),
        buffer: buffer(&case),
        flows: flows(&case),
        afl_linger: Nanos(number(&quantum[2..4], 0, 60_000)),
        aqm: aqm(&case),
        ack_filter: case.config[7] & 1 != 0,
        fair: Fair::ALL[usize::from(case.config[6]) % Fair::ALL.len()],
    };
    harness::run(Pdrr::new(config).expect("every choice above is in range"), case.ops);
});
