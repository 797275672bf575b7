//! LCT-UC under random operations.
#![no_main]

use evenkeel_core::Nanos;
use evenkeel_core::schedule::lct::{FREEBSD_TICK, Lct, LctConfig, MultiBacklog};
use evenkeel_core::settings::PerClass;
use evenkeel_fuzz::{Case, harness};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|case: Case| {
    let [classes, limit, switches, policy, x @ ..] = case.config;
    let delay =
        |x: u8| Nanos([0, 1, 10_000, 200_000, 20_000_000, 60_000_000_000][usize::from(x % 6)]);
    let classes = 1 + usize::from(classes % 12);
    let delays: Vec<_> = x.into_iter().map(delay).take(classes).collect();
    let config = LctConfig {
        limit: PerClass::all(1 + u32::from(limit % 16)),
        module2: switches & 1 != 0,
        rearm_empty: switches & 2 != 0,
        timer_tick: if switches & 4 != 0 { FREEBSD_TICK } else { Nanos::ZERO },
        multi_backlog: MultiBacklog::ALL[usize::from(policy) % MultiBacklog::ALL.len()],
        ..LctConfig::with_delays(delays)
    };
    harness::run(Lct::new(config).expect("every choice above is in range"), case.ops);
});
