//! WFQ/ALTQ under random operations.
#![no_main]

use evenkeel_core::schedule::wfq_altq::{
    ClassAqm, ClassAqmConfig, DropRule, QueueSelect, WfqAltq, WfqAltqConfig,
};
use evenkeel_core::settings::PerClass;
use evenkeel_core::{Bytes, Weight};
use evenkeel_fuzz::{Case, aqm, harness};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|case: Case| {
    let [queues, select, drop, size, weights @ ..] = case.config;
    let queues = 1 + u16::from(queues % 12);
    let select = match select % 8 {
        0 => QueueSelect::HashDestination,
        1 => QueueSelect::HashSourcePort,
        2 => QueueSelect::HashFull,
        3 => QueueSelect::HashSource,
        _ => QueueSelect::Class,
    };
    let drop = if drop % 2 == 0 { DropRule::Longest } else { DropRule::Tail };
    let weight = |w: u8| Weight([1, 2, 19, 20, 30, 100, 1_000, 10_000][usize::from(w % 8)]);
    let weights: Vec<_> = weights.into_iter().map(weight).take(usize::from(queues)).collect();
    let kept_short = if size % 2 == 0 { ClassAqm::Codel } else { ClassAqm::None };
    let config = WfqAltqConfig {
        queues,
        classes: queues,
        select,
        drop,
        high_water: Bytes(1_500 + 100 * u64::from(size)),
        limit: PerClass::all(1 + u32::from(size % 16)),
        aqm: ClassAqmConfig { aqm: kept_short, law: aqm(&case).law },
        ..WfqAltqConfig::with_weights(weights)
    };
    harness::run(WfqAltq::new(config).expect("every choice above is in range"), case.ops);
});
