//! `[core]`.

use evenkeel_config::parse::Unique;
use evenkeel_core::Cycles;
use evenkeel_core::drop::{Fixed, Kappa, MimdBatch, MimdRing, Rule, WaterLevel};
use evenkeel_settings::read::{Fields, Reader};
use evenkeel_settings::read_settings;

use crate::core_model::{CoreFlows, CoreModel};
use crate::model::Scenario;
use crate::tables::core::{CoreSection, Dropper, FlowSection, Spacing};

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
    let (section, _sound) = read_settings::<CoreSection>(reader, core, &[]);
    if section.ring < section.batch.into() {
        reader.fail_at(core, "ring", "the ring must hold a burst at least");
    }
    let mut names = Unique::new("flow");
    let mut flows = Vec::new();
    for fields in core.tables("flow") {
        names.check(reader, fields, "name");
        if fields.given("changes") != fields.given("cost_then") {
            reader.fail(&fields.at, fields.path.clone(), "`changes` and `cost_then` go together");
        }
        if !["name", "pps", "cost"].iter().all(|key| fields.item(key).is_some()) {
            continue;
        }
        let (flow, _sound) = read_settings::<FlowSection>(reader, fields, &[]);
        flows.push(CoreFlows {
            name: flow.name,
            flows: flow.flows,
            pps: flow.pps as f64,
            size: flow.size,
            cost: flow.cost,
            weight: flow.weight,
            poisson: flow.spacing == Spacing::Poisson,
            train: flow.train,
            change: flow.changes.zip(flow.cost_then),
            start: flow.start,
            stop: flow.stop.unwrap_or(scenario.duration),
        });
    }
    let CoreSection { clock, batch, ring, poll, refuse, round, link, .. } = section;
    let rule = rule(&section);
    scenario.core = Some(CoreModel { clock, batch, ring, poll, refuse, round, rule, link, flows });
}

fn rule(section: &CoreSection) -> Option<Rule> {
    let CoreSection { kappa, threshold, burst, .. } = *section;
    Some(match section.rule {
        Dropper::None => return None,
        Dropper::Level => Rule::Level(WaterLevel { burst, ..WaterLevel::default() }),
        Dropper::Kappa => Rule::Kappa(Kappa { kappa }),
        Dropper::Fixed => Rule::Fixed(Fixed { threshold }),
        Dropper::MimdBatch => {
            // As published, it begins at a tenth of its largest.
            let start = Cycles((threshold.0 / 10).max(1));
            let (min, max) = (Cycles(1), threshold);
            Rule::MimdBatch(MimdBatch { min, max, start, ..MimdBatch::default() })
        }
        Dropper::MimdRing => Rule::MimdRing(MimdRing { start: threshold, ..MimdRing::default() }),
    })
}
