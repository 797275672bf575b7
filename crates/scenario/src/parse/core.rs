//! `[core]`.

use evenkeel_config::parse::Unique;
use evenkeel_core::Thousandths;
use evenkeel_core::drop::{Fixed, Kappa, MimdBatch, MimdRing, Rule, WaterLevel};
use evenkeel_core::{Cycles, Nanos};
use evenkeel_settings::read::{Fields, Reader};

use crate::core_model::{CoreFlows, CoreLink, CoreModel};
use crate::model::Scenario;

/// What a scenario is made of without `[core]`.
const NETWORK: [&str; 4] = ["host", "router", "wire", "traffic"];

pub(super) fn read(reader: &mut Reader, file: &Fields, scenario: &mut Scenario) {
    for key in NETWORK {
        let network = file.tables(key).next().is_some();
        if file.given("core") && network {
            reader.fail(&file.span(key), key, "a scenario has either [core] or a network");
        } else if !file.given("core") && !network && !file.given(key) {
            reader.fail(
                &file.at,
                key,
                "this required key is missing: a list of tables (only [core] does without)",
            );
        }
    }
    let Some(core) = file.table("core") else { return };
    let number = |key: &str| core.integer(key).unwrap_or(1);
    if core.integer("ring").zip(core.integer("batch")).is_some_and(|(ring, batch)| ring < batch) {
        reader.fail(
            &core.span("ring"),
            core.path_of("ring"),
            "the ring must hold a burst at least",
        );
    }
    let threshold = Cycles(number("threshold"));
    let rule = match core.text("rule").unwrap_or("level") {
        "none" => None,
        "kappa" => {
            let kappa = (core.number("kappa").unwrap_or(1.08) * 1_000.0).round() as u32;
            Some(Rule::Kappa(Kappa { kappa: Thousandths(kappa) }))
        }
        "fixed" => Some(Rule::Fixed(Fixed { threshold })),
        "mimd-batch" => {
            let rule = MimdBatch { min: Cycles(1), max: threshold, ..MimdBatch::default() };
            Some(Rule::MimdBatch(rule))
        }
        "mimd-ring" => Some(Rule::MimdRing(MimdRing { start: threshold, ..MimdRing::default() })),
        _ => match Rule::default() {
            Rule::Level(level) => {
                let burst = core.time("burst").unwrap_or(level.burst);
                Some(Rule::Level(WaterLevel { burst, ..level }))
            }
            other => Some(other),
        },
    };
    let mut names = Unique::new("flow");
    let mut flows = Vec::new();
    for fields in core.tables("flow") {
        names.check(reader, fields, "name");
        if fields.given("changes") != fields.given("cost_then") {
            reader.fail(&fields.at, fields.path.clone(), "`changes` and `cost_then` go together");
        }
        let (Some(name), Some(pps), Some(cost)) =
            (fields.text("name"), fields.integer("pps"), fields.integer("cost"))
        else {
            continue;
        };
        flows.push(CoreFlows {
            name: name.to_owned(),
            flows: fields.integer("flows").unwrap_or(1) as u32,
            pps,
            size: fields.size("size").unwrap_or(evenkeel_core::Bytes(64)),
            cost,
            weight: fields.integer("weight").unwrap_or(1) as u16,
            poisson: fields.text("spacing") == Some("poisson"),
            change: fields.time("changes").zip(fields.integer("cost_then")),
            start: fields.time("start").unwrap_or(Nanos::ZERO),
            stop: fields.time("stop").unwrap_or(scenario.duration),
        });
    }
    let link = core.table("link").and_then(|link| {
        Some(CoreLink {
            rate: link.rate("rate")?,
            buffer: link.size("buffer")?,
            fair: link.switch("fairdrop").unwrap_or(true),
        })
    });
    scenario.core = Some(CoreModel {
        clock: number("clock"),
        batch: number("batch") as u16,
        ring: number("ring") as u32,
        poll: core.integer("poll").unwrap_or(0) as u32,
        refuse: core.integer("refuse").unwrap_or(0) as u32,
        round: core.integer("round").unwrap_or(0) as u32,
        rule,
        link,
        flows,
    });
}
