//! `evenkeel scenario`: scenario files checked, listed, shown.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use evenkeel_core::settings::{quantity::rate_text, quantity::size_text};
use evenkeel_report::table::Table;
use evenkeel_router::Disciplines;
use evenkeel_scenario::{Scenario, TrafficKind};
use evenkeel_settings::Diagnostics;
use evenkeel_sim::cluster::{ClusterScenario, describe};
use evenkeel_world::live::LiveScenario;
use evenkeel_world::recording;
use serde_json::{Value, json};

use crate::args::{ScenarioArgs, ScenarioCommand};
use crate::check;
use crate::failure::{Failure, Outcome};
use crate::live::is_live;
use crate::margins;
use crate::out::{print, print_json};
use crate::sim::is_cluster;

/// A scenario file of any kind.
enum AnyScenario {
    Plain(Box<Scenario>),
    Cluster(ClusterScenario),
    Live(LiveScenario),
}

/// What a list says of a scenario.
struct Entry<'a> {
    name: &'a str,
    title: &'a str,
    source: &'a str,
    /// How long traffic runs.
    seconds: f64,
    expectations: usize,
    ablations: usize,
}

impl AnyScenario {
    fn load(file: &Path, disciplines: &Disciplines) -> Result<Self, Diagnostics> {
        if is_live(file) {
            LiveScenario::load(file).map(Self::Live)
        } else if is_cluster(file) {
            ClusterScenario::load(file).map(Self::Cluster)
        } else {
            check::load_scenario(file, disciplines).map(|scenario| Self::Plain(Box::new(scenario)))
        }
    }

    fn entry(&self) -> Entry<'_> {
        match self {
            Self::Plain(s) => Entry {
                name: &s.name,
                title: &s.title,
                source: &s.source,
                seconds: s.duration.as_secs_f64(),
                expectations: s.expectations.len(),
                ablations: s.ablations.len(),
            },
            Self::Cluster(s) => Entry {
                name: &s.name,
                title: &s.title,
                source: &s.source,
                seconds: s.cases.iter().map(|(_, case)| case.duration.as_secs_f64()).sum(),
                expectations: s.expectations.len(),
                ablations: s.ablations.len(),
            },
            Self::Live(s) => Entry {
                name: &s.name,
                title: &s.title,
                source: &s.source,
                seconds: s.steps.iter().map(|step| (step.settle + step.time).as_secs_f64()).sum(),
                expectations: s.expectations.len(),
                ablations: s.ablations.len(),
            },
        }
    }

    /// What the recordings that it sends hold, in words.
    fn recordings(&self) -> Result<Vec<String>, String> {
        let Self::Plain(scenario) = self else { return Ok(Vec::new()) };
        let mut told = Vec::new();
        for traffic in &scenario.traffic {
            let Some(path) = &traffic.recording else { continue };
            let read = recording::read(path);
            let read = read.map_err(|error| format!("{}: {error}", traffic.place))?;
            told.push(read.told(path));
        }
        Ok(told)
    }

    fn text(&self) -> String {
        match self {
            Self::Plain(s) => show(s),
            Self::Cluster(s) => show_cluster(s),
            Self::Live(s) => show_live(s),
        }
    }

    fn json(&self) -> Value {
        match self {
            Self::Plain(s) => scenario_json(s),
            Self::Cluster(s) => cluster_json(s),
            Self::Live(s) => live_json(s),
        }
    }
}

pub(crate) fn scenario(args: &ScenarioArgs, disciplines: &Disciplines) -> Outcome {
    match &args.command {
        ScenarioCommand::Check { files, margins: None, of } if of.is_empty() => {
            check_all(files, args.json, disciplines)
        }
        ScenarioCommand::Check { files, margins, of } => {
            margins::margins(files, margins.unwrap_or_default(), of, args.json, disciplines)
        }
        ScenarioCommand::List { folder } => list(folder, args.json, disciplines),
        ScenarioCommand::Show { file } => {
            let scenario = AnyScenario::load(file, disciplines)?;
            if args.json { print_json(&scenario.json()) } else { print(&scenario.text()) }
        }
    }
}

fn check_all(files: &[PathBuf], as_json: bool, disciplines: &Disciplines) -> Outcome {
    let mut code = 0;
    let mut values = Vec::new();
    for file in files {
        match AnyScenario::load(file, disciplines) {
            Ok(scenario) => {
                let name = scenario.entry().name;
                let recordings = match scenario.recordings() {
                    Ok(told) => told,
                    Err(error) => {
                        code = 2;
                        if as_json {
                            values.push(json!({ "file": file, "ok": false, "errors": [error] }));
                        } else {
                            eprintln!("{error}");
                        }
                        continue;
                    }
                };
                if as_json {
                    values.push(json!({ "file": file, "ok": true, "name": name,
                        "recordings": recordings }));
                } else {
                    print(&format!("{}: no errors ({name})\n", file.display()))?;
                    for told in recordings {
                        print(&format!("  {told}\n"))?;
                    }
                }
            }
            Err(errors) => {
                code = 2;
                if as_json {
                    values.push(failed(file, &errors));
                } else {
                    eprintln!("{errors}");
                }
            }
        }
    }
    if as_json {
        print_json(&Value::Array(values))?;
    }
    Ok(code)
}

fn list(folder: &Path, as_json: bool, disciplines: &Disciplines) -> Outcome {
    let mut files = Vec::new();
    collect(folder, &mut files)
        .map_err(|error| Failure::input(format!("cannot read {}: {error}", folder.display())))?;
    files.sort();
    let mut table = Table::new(["file", "title", "seconds", "expectations", "without"]);
    let mut values = Vec::new();
    let mut code = 0;
    for file in &files {
        match AnyScenario::load(file, disciplines) {
            Ok(scenario) => {
                let Entry { name, title, source, seconds, expectations, ablations } =
                    scenario.entry();
                table.row([
                    file.display().to_string(),
                    title.to_owned(),
                    format!("{seconds:.0}"),
                    expectations.to_string(),
                    ablations.to_string(),
                ]);
                values.push(json!({ "file": file, "name": name, "title": title, "source": source,
                    "duration_s": seconds }));
            }
            Err(errors) => {
                code = 2;
                eprintln!("{errors}");
            }
        }
    }
    if as_json {
        print_json(&Value::Array(values))?;
    } else {
        print(&table.render())?;
    }
    Ok(code)
}

/// A file that is not valid.
fn failed(file: &Path, errors: &Diagnostics) -> Value {
    json!({ "file": file, "ok": false,
        "errors": errors.0.iter().map(ToString::to_string).collect::<Vec<_>>() })
}

fn show_live(s: &LiveScenario) -> String {
    let [balancers, forwarders, hops] = s.nodes;
    let mut text = format!("{}: {}\n{}\n", s.name, s.title, s.notes.trim());
    let _ = writeln!(
        text,
        "\n{balancers} balancers, {forwarders} forwarders, {hops} next hops at one switch that \
         sends {} to each; packets of {}, classes {}\n",
        rate_text(s.rate),
        size_text(s.size),
        s.classes.join(", ")
    );
    let mut steps = Table::new(["step", "seconds", "offered", "what"]);
    for step in &s.steps {
        let node = |word: &str, node: Option<u16>| node.map(|node| format!("{word} {node}"));
        let loss = (step.loss > 0.0).then(|| format!("loses {} of the exchange frames", step.loss));
        let what = [
            (!step.told.is_empty()).then(|| step.told.clone()),
            step.absent.as_ref().map(|absent| format!("without {absent:?}")),
            node("add", step.add),
            node("drain", step.drain),
            node("kill", step.kill),
            loss,
            step.intruder.then(|| "a stranger".to_owned()),
        ];
        let what: Vec<_> = what.into_iter().flatten().collect();
        let seconds = (step.settle + step.time).as_secs_f64();
        steps.row([
            step.name.clone(),
            format!("{seconds}"),
            format!("{}", step.offer),
            what.join("; "),
        ]);
    }
    text += &steps.render();
    let claims =
        s.expectations.iter().map(|claim| [&claim.name, &s.steps[claim.step].name, &claim.claim]);
    text + &claimed("step", claims, &s.ablations)
}

/// What is expected of a cluster, and what must fail without one of its mechanisms. A claim is its
/// name, where it is looked at, and itself.
fn claimed<'a, T>(
    at: &str,
    claims: impl Iterator<Item = [&'a String; 3]>,
    ablations: &[(String, T, Vec<String>)],
) -> String {
    let mut table = Table::new(["expectation", at, "claim"]);
    for claim in claims {
        table.row(claim.map(String::clone));
    }
    let mut text = format!("\n{}", table.render());
    for (name, _, fails) in ablations {
        let _ = writeln!(text, "without {name}: {} must fail", fails.join(", "));
    }
    text
}

/// As [`claimed`].
fn claimed_json<'a, T>(
    at: &str,
    claims: impl Iterator<Item = [&'a String; 3]>,
    ablations: &[(String, T, Vec<String>)],
) -> [Value; 2] {
    let claims =
        claims.map(|[name, place, claim]| json!({ "name": name, (at): place, "claim": claim }));
    let without = ablations.iter().map(|(name, _, fails)| json!({ "name": name, "fails": fails }));
    [claims.collect(), without.collect()]
}

fn live_json(s: &LiveScenario) -> Value {
    let steps = s.steps.iter().map(|step| {
        json!({ "name": step.name, "duration_s": (step.settle + step.time).as_secs_f64(),
            "offered": step.offer, "settings": step.told })
    });
    let claims =
        s.expectations.iter().map(|claim| [&claim.name, &s.steps[claim.step].name, &claim.claim]);
    let [claims, without] = claimed_json("step", claims, &s.ablations);
    json!({
        "name": s.name, "title": s.title, "source": s.source, "seed": s.seed,
        "balancers": s.nodes[0], "forwarders": s.nodes[1], "next_hops": s.nodes[2],
            "classes": s.classes,
        "steps": steps.collect::<Vec<_>>(), "expectations": claims, "without": without,
    })
}

fn show_cluster(s: &ClusterScenario) -> String {
    let mut text = format!("{}: {}\n", s.name, s.title);
    for line in [&s.source, &s.notes].into_iter().filter(|line| !line.is_empty()) {
        let _ = writeln!(text, "{line}");
    }
    let mut cases = Table::new(["case", "forwarders, links, classes", "settings", "at most"]);
    for (name, case) in &s.cases {
        let cluster = &case.cluster;
        cases.row([
            name.clone(),
            format!("{}, {}, {}", cluster.nodes(), cluster.links, cluster.classes()),
            describe(case),
            case.duration.to_string(),
        ]);
    }
    let _ = write!(text, "\nseed {}\n\n{}", s.seed, cases.render());
    let claims =
        s.expectations.iter().map(|claim| [&claim.name, &s.cases[claim.case].0, &claim.claim]);
    text + &claimed("case", claims, &s.ablations)
}

fn cluster_json(s: &ClusterScenario) -> Value {
    let cases = s.cases.iter().map(|(name, case)| {
        let cluster = &case.cluster;
        json!({ "name": name, "forwarders": cluster.nodes(), "links": cluster.links,
            "classes": cluster.classes(), "settings": describe(case),
                "duration_s": case.duration.as_secs_f64() })
    });
    let claims =
        s.expectations.iter().map(|claim| [&claim.name, &s.cases[claim.case].0, &claim.claim]);
    let [claims, without] = claimed_json("case", claims, &s.ablations);
    json!({
        "name": s.name, "title": s.title, "source": s.source, "seed": s.seed,
        "cases": cases.collect::<Vec<_>>(), "expectations": claims, "without": without,
    })
}

/// Scenario files below `folder`: TOML files, without those in folders that hold published numbers
/// or sweeps.
fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> std::io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let path = entry.path();
        if entry.file_type()?.is_dir() {
            if !["published", "maps", "sweeps"].iter().any(|other| entry.file_name() == *other) {
                collect(&path, files)?;
            }
        } else if path.extension().is_some_and(|extension| extension == "toml") {
            files.push(path);
        }
    }
    Ok(())
}

fn show(s: &Scenario) -> String {
    let mut text = format!("{}: {}\n", s.name, s.title);
    for line in [&s.source, &s.notes].into_iter().filter(|line| !line.is_empty()) {
        let _ = writeln!(text, "{line}");
    }
    let _ = writeln!(
        text,
        "\n{:.1} s, windows of {}, {} left out after each step, seed {}\n",
        s.duration.as_secs_f64(),
        s.sample,
        s.settle,
        s.seed
    );
    let mut wires = Table::new(["wire", "addresses", ""]);
    for wire in &s.wires {
        let [a, b] = &wire.ends;
        wires.row([
            format!("{} – {}", a.node, b.node),
            format!("{}/{} – {}", a.v4, wire.prefix4, b.v4),
            format!("{}/{} – {}", a.v6, wire.prefix6, b.v6),
        ]);
    }
    text += &wires.render();
    for router in &s.routers {
        let _ = write!(text, "\n{}", check::meaning(&router.config));
    }
    let mut traffic = Table::new(["traffic", "from", "to", "class", "rate", "size"]);
    for t in &s.traffic {
        let class = t.class.clone().unwrap_or_default();
        traffic.row([
            t.name.clone(),
            t.from.clone(),
            t.to.clone(),
            class,
            match t.kind {
                TrafficKind::Tcp { congestion, .. } => format!("tcp, {}", congestion.name()),
                kind if kind.has_rate() => rate_text(t.rate),
                _ => evenkeel_world::describe::pace(t),
            },
            size_text(t.size),
        ]);
    }
    let _ = write!(text, "\n{}", traffic.render());
    let mut steps = Table::new(["at", "step", "changes"]);
    for step in &s.steps {
        let changes: Vec<String> = step
            .set
            .iter()
            .map(|c| {
                format!("{} {} {} {}", c.link, c.knob, c.class.as_deref().unwrap_or(""), c.value)
                    .replace("  ", " ")
            })
            .collect();
        steps.row([step.at.to_string(), step.name.clone(), changes.join("; ")]);
    }
    let _ = write!(text, "\n{}", steps.render());
    for expectation in &s.expectations {
        let _ = writeln!(text, "\nexpects {}: {}", expectation.name, expectation.claim);
        for line in expectation.that.lines() {
            let _ = writeln!(text, "  {}", line.trim());
        }
        if !expectation.note.is_empty() {
            let _ = writeln!(text, "  {}", expectation.note);
        }
    }
    for ablation in &s.ablations {
        let _ =
            write!(text, "\nwithout {}: must fail: {}\n", ablation.name, ablation.fails.join(", "));
    }
    text
}

fn scenario_json(s: &Scenario) -> Value {
    json!({
        "name": s.name,
        "title": s.title,
        "source": s.source,
        "duration_s": s.duration.as_secs_f64(),
        "hosts": s.hosts.iter().map(|h| &h.name).collect::<Vec<_>>(),
        "routers": s.routers.iter().map(|r| &r.name).collect::<Vec<_>>(),
        "steps": s.steps.iter()
            .map(|step| json!({ "name": step.name, "at_s": step.at.as_secs_f64() }))
                .collect::<Vec<_>>(),
        "traffic": s.traffic.iter()
            .map(|t| json!({ "name": t.name, "from": t.from, "to": t.to, "rate_bps": t.rate.0,
                "size": t.size.0 })).collect::<Vec<_>>(),
        "expectations": s.expectations.iter()
            .map(|e| json!({ "name": e.name, "claim": e.claim, "that": e.that,
                "reproduced": e.reproduced })).collect::<Vec<_>>(),
        "without": s.ablations.iter().map(|a| json!({ "name": a.name, "fails": a.fails }))
            .collect::<Vec<_>>(),
    })
}
