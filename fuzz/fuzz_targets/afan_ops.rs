//! AFAN under random operations.
#![no_main]

use evenkeel_core::schedule::afan::{Afan, AfanConfig, Afd};
use evenkeel_core::{Bytes, Nanos};
use evenkeel_fuzz::{Case, flows, harness, number};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|case: Case| {
    let [_, limit, shadow, sample, target, rest @ ..] = case.config;
    let afd = Afd {
        shadow: 1 + u32::from(shadow),
        sample: 1 + u32::from(sample % 8),
        target: (target % 33).checked_sub(1).map(|target| 1 + u32::from(target)),
        interval: Nanos(number(&rest[..2], 10_000, 60_000)),
        ..Afd::default()
    };
    let config = AfanConfig {
        quantum: Bytes(number(&rest[2..4], 256, 4_000)),
        limit: 1 + u32::from(limit % 60),
        flows: flows(&case),
        afd,
        window: Nanos::from_millis(1),
    };
    harness::run(Afan::new(config).expect("every choice above is in range"), case.ops);
});
