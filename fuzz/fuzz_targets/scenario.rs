//! `scenario.toml`: any text is either read or refused with errors; what is read can be scaled,
//! varied and routed.
#![no_main]

use std::path::Path;

use evenkeel_scenario::{Metric, Metrics, Scenario, Subject};
use libfuzzer_sys::fuzz_target;

/// Every number is the same: divisions by zero come up.
struct Zero;

impl Metrics for Zero {
    fn value(&self, _metric: Metric, _subject: &Subject, _step: usize) -> Option<f64> {
        Some(0.0)
    }
}

fuzz_target!(|text: &str| {
    match Scenario::parse(text, "scenario.toml", Path::new("/nonexistent")) {
        Ok(scenario) => {
            let _ = scenario.scaled(0.5);
            for ablation in &scenario.ablations {
                assert!(scenario.with_ablation(&ablation.name).is_ok());
            }
            for expectation in &scenario.expectations {
                let _ = expectation.expr.eval(&Zero);
            }
            for host in &scenario.hosts {
                let _ = scenario.routes(&host.name);
            }
        }
        Err(errors) => assert!(!errors.0.is_empty()),
    }
});
