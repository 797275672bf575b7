//! `router.toml`: any text is either read or refused with errors that have a line; what is read can
//! be built.
#![no_main]

use evenkeel_config::{RouterConfig, diff, parse_change, parse_discipline};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    match RouterConfig::parse(text, "router.toml") {
        Ok(config) => {
            assert!(diff(&config, &config).is_empty());
            let _ = config.class_map();
            assert_eq!(config.links.len(), config.ports.len());
        }
        Err(errors) => {
            assert!(!errors.0.is_empty());
            assert!(errors.0.iter().all(|error| error.line >= 1 && !error.message.is_empty()));
        }
    }
    let _ = parse_discipline(text, &["a", "b"]);
    if let Some((knob, value)) = text.split_once('=') {
        let _ = parse_change(knob.trim(), None, value, &["a", "b"]);
        let _ = parse_change(knob.trim(), Some("a"), value, &["a", "b"]);
    }
});
