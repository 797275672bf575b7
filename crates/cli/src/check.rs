//! `evenkeel check`: what a router.toml means, or what is wrong with it.

mod fairdrop;
mod meaning;
mod mtu;
mod queues;
mod rules;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use evenkeel_config::subscribers::SubscriberTree;
use evenkeel_config::{BuildError, Change, DisciplineConfig, LinkChange, RouterConfig, Work, diff};
use evenkeel_core::packet::ETHERNET_WIRE_OVERHEAD;
use evenkeel_core::settings::quantity::size_text;
use evenkeel_core::{Bytes, Ppm};
use evenkeel_router::Disciplines;
use evenkeel_router::memory::{self, Footprint, mebibytes};
use evenkeel_scenario::{Router, Scenario};
use evenkeel_settings::typed::plain_of;
use evenkeel_settings::{Diagnostic, Diagnostics};
use serde_json::{Value, json};

use crate::args::CheckArgs;
use crate::failure::{Failure, Outcome};
use crate::out::{paged, print_json};
use crate::since;

pub(crate) use meaning::meaning;

/// Packets that the elastic queue of AFAN has to hold for each greedy flow: with 8, 20 flows share
/// as fairly as the law says; with 2.5 the fair rate is 60 % of that, and elastic packets go with
/// priority.
const AFAN_PACKETS_PER_FLOW: u32 = 8;

/// MTU of an interface that this machine does not have.
const USUAL_MTU: Bytes = Bytes(1_500);

pub(crate) fn check(args: &CheckArgs, disciplines: &Disciplines) -> Outcome {
    let load = |file: &Path| load(file, disciplines);
    let loaded = load(&args.file).and_then(|new| {
        let old = args.against.as_deref().map(load).transpose()?;
        Ok((old.map(|old| diff(&old, &new)), new))
    });
    let (changes, config) = match loaded {
        Err(errors) if args.json => {
            print_json(&json!({ "ok": false,
                    "errors": errors.0.iter().map(error_json).collect::<Vec<_>>() }))?;
            return Ok(2);
        }
        loaded => loaded?,
    };
    if args.json {
        let mut value = meaning_json(&config);
        value["ok"] = json!(true);
        value["advice"] = json!(advice(&config));
        if let Some(changes) = changes {
            value["changes"] = json!(changes);
        }
        return print_json(&value);
    }
    let said = if args.all { config.text() } else { meaning(&config) };
    let mut text = format!("{}: no errors\n\n{said}", args.file.display());
    let advice = advice(&config);
    if !advice.is_empty() {
        text.push('\n');
    }
    for line in advice {
        let _ = writeln!(text, "advice: {line}");
    }
    text += &of_old(&args.file);
    if let Some(changes) = changes {
        text.push_str("\nchanges:\n");
        for change in &changes {
            let _ = writeln!(text, "  {change}");
        }
        if changes.is_empty() {
            text.push_str("  none\n");
        }
    }
    paged(&text)
}

/// Reads and checks a router.toml.
pub(crate) fn load(file: &Path, disciplines: &Disciplines) -> Result<RouterConfig, Diagnostics> {
    let config = RouterConfig::load(file)?;
    disciplines.check(&config).map_err(|error| unbuilt(file, error))?;
    Ok(config)
}

/// What to do about a file that may be of version 0.1; empty, if nothing is.
pub(crate) fn of_old(file: &Path) -> String {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let name = file.display();
    if !since::may_be_old(&text) {
        return String::new();
    }
    match since::before(&text, &name.to_string()) {
        Ok(before) if !before.changes.is_empty() => format!(
            "\nif this file is of version 0.1: {} changed since on which it relies; \
             `evenkeel init --from {name} NEW` says which, and writes a file that means what this \
             one meant\n",
            match before.changes.len() {
                1 => "1 default has".to_owned(),
                count => format!("{count} defaults have"),
            }
        ),
        _ => String::new(),
    }
}

/// Reads and checks a scenario.
pub(crate) fn load_scenario(
    file: &Path,
    disciplines: &Disciplines,
) -> Result<Scenario, Diagnostics> {
    let scenario = Scenario::load(file)?;
    let unbuilt = |error| unbuilt(file, error);
    // What the kernel has, only the lab can ask it for.
    let ours = |router: &&Router| !router.is_kernel();
    for router in scenario.routers.iter().filter(ours) {
        disciplines.check(&router.config).map_err(unbuilt)?;
        let classes = router.config.class_names();
        let steps = scenario.steps.iter().flat_map(|step| &step.set);
        let overrides =
            scenario.ablations.iter().flat_map(|ablation| &ablation.set).map(|change| &change.set);
        for change in steps.chain(overrides).filter(|change| change.router == router.name) {
            if let Change::Link(_, LinkChange::Discipline(discipline)) = &change.change {
                disciplines.build(discipline, &classes).map_err(unbuilt)?;
            }
        }
    }
    Ok(scenario)
}

/// A discipline that cannot be built as an error of the file that asks for it.
fn unbuilt(file: &Path, error: BuildError) -> Diagnostics {
    let (place, message) = match error {
        BuildError::Own { place, name, message } => (place, format!("{name:?}: {message}")),
        BuildError::Setting(error) => (String::new(), error.to_string()),
    };
    let (named, line) = place.rsplit_once(':').unwrap_or_default();
    let file = if named.is_empty() { file.display().to_string() } else { named.to_owned() };
    let line = line.parse().unwrap_or(0);
    Diagnostics(vec![Diagnostic { file, line, key: "discipline".to_owned(), message }])
}

fn error_json(error: &Diagnostic) -> Value {
    json!({ "file": error.file, "line": error.line, "key": error.key, "message": error.message })
}

/// Warnings: configurations that are allowed, and yet do not do what their settings promise.
fn advice(config: &RouterConfig) -> Vec<String> {
    let of_link = |link: &evenkeel_config::LinkConfig| {
        let quantum = match &link.discipline {
            DisciplineConfig::Pfq(own) => own.quantum,
            DisciplineConfig::Pdrr(own) => own.quantum,
            DisciplineConfig::Afan(own) => own.quantum,
            _ => return Vec::new(),
        };
        let mut said = Vec::new();
        let longest = mtu::mtu_of(config, &link.port).unwrap_or(USUAL_MTU);
        let on_wire = longest + ETHERNET_WIRE_OVERHEAD;
        if quantum < on_wire {
            said.push(format!(
                "link {}: a quantum of {} is less than a packet of {} bytes on the wire ({}): \
                 shares and the priority of streams are those of flows of shorter packets",
                link.port,
                size_text(quantum),
                longest.0,
                size_text(on_wire)
            ));
        }
        if let (DisciplineConfig::Afan(own), Some(admission)) = (&link.discipline, &link.admission)
        {
            // One flow in so many parts of the link is what closes it.
            let flows = Ppm::ONE.0 / admission.min_fair_rate.0.max(1);
            if let Some(target) = own.afd.target
                && target < flows.saturating_mul(AFAN_PACKETS_PER_FLOW)
            {
                said.push(format!(
                    "link {}: afan shares fairly among about {} greedy flows with afd.target = \
                     {target}, and min_fair_rate lets {flows} in: leave afd.target out (afd.delay \
                     holds for any number), or set it to {} or more and limit to twice that",
                    link.port,
                    target / AFAN_PACKETS_PER_FLOW,
                    flows.saturating_mul(AFAN_PACKETS_PER_FLOW)
                ));
            }
        }
        said
    };
    config
        .links
        .iter()
        .flat_map(of_link)
        .chain(lists(config))
        .chain(too_large(config))
        .chain(mtu::advice(config))
        .chain(queues::advice(config))
        .chain(rules::advice(config))
        .chain(fairdrop::advice(config))
        .collect()
}

/// What is odd about lists of subscribers.
fn lists(config: &RouterConfig) -> Vec<String> {
    let of_tree = |tree: &SubscriberTree| {
        let at = tree.section.subscribers.clone();
        let odd = tree.list.warnings.iter().map(move |text| format!("{at}: {text}"));
        odd.collect::<Vec<_>>()
    };
    config.trees.iter().flat_map(of_tree).collect()
}

/// Whether this machine lacks the memory that the file takes.
fn too_large(config: &RouterConfig) -> Option<String> {
    let (needed, available) = (Footprint::of(config).total(), memory::available()?);
    (needed > available).then(|| {
        format!(
            "it takes up to {} of memory, and {} are left here: it would not start on this machine",
            mebibytes(needed),
            mebibytes(available)
        )
    })
}

fn meaning_json(config: &RouterConfig) -> Value {
    let classes = config.class_names();
    json!({
        "router": { "name": config.router.name, "control": config.router.control,
            "buffers": config.router.buffers },
        "memory_bytes": Footprint::of(config).total(),
        "classes": config.classes.iter().map(|c| json!({ "name": c.name, "rules": c.rules.len() }))
            .collect::<Vec<_>>(),
        "ports": config.ports.iter().map(|p| json!({ "name": p.name, "interface": p.interface }))
            .collect::<Vec<_>>(),
        "links": config.links.iter().map(|link| json!({
            "port": link.port,
            "rate_bps": link.core.rate.map(|rate| rate.0),
            "ring_slots": link.core.ring.slots,
            "discipline": link.discipline.name(),
            "settings": plain_of(link.discipline.entries(), &classes).into_iter()
                .collect::<std::collections::BTreeMap<_, _>>(),
        })).collect::<Vec<_>>(),
    })
}

/// Whether the file holds a key that nobody else may read.
pub(crate) fn has_key(config: &RouterConfig) -> bool {
    config.services.iter().any(|service| matches!(service.work, Work::Esp(_)))
}

/// A file as it is named wherever one is.
pub(crate) fn absolute(file: &Path) -> PathBuf {
    std::path::absolute(file).unwrap_or_else(|_| file.to_owned())
}

/// Reads a file that is not TOML.
pub(crate) fn read(file: &Path) -> Result<String, Failure> {
    std::fs::read_to_string(file)
        .map_err(|error| Failure::input(format!("cannot read {}: {error}", file.display())))
}
