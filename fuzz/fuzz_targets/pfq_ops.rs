//! PFQ under random operations.
#![no_main]

use evenkeel_core::Bytes;
use evenkeel_core::schedule::pfq::{Pfq, PfqConfig};
use evenkeel_fuzz::{Case, buffer, harness, number, start_limit};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|case: Case| {
    let [flows, quantum @ ..] = case.config;
    let (buffer, victim) = buffer(&case);
    let config = PfqConfig {
        quantum: Bytes(number(&quantum[..2], 0, 4_000)),
        buffer,
        victim,
        flows: 1 + u32::from(flows % 40),
        start_limit: start_limit(&case),
        seed: u64::from(flows),
    };
    harness::run(Pfq::new(config).expect("every choice above is in range"), case.ops);
});
