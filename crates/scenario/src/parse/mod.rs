//! From the text of a scenario to [`Scenario`]: one pass that goes on after errors, so that all of
//! them are told.

mod core;
mod expect;
mod nodes;
mod steps;
mod subscribers;
mod traffic;

use std::path::Path;

use evenkeel_config::parse::read_file;
use evenkeel_settings::Diagnostics;
use evenkeel_settings::read::{Fields, Reader, parse_toml};

use crate::model::Scenario;
use crate::published;
use crate::tables::ScenarioSection;
use evenkeel_core::settings::Settings;

/// Top-level keys that lay out nodes and wires: what stands on them cannot be judged while they
/// have errors.
const LAYOUT: [&str; 4] = ["host", "router", "wire", "subscribers"];
/// Top-level keys that give names and times to what expectations speak of.
const NAMED: [&str; 11] = [
    "core",
    "host",
    "router",
    "wire",
    "subscribers",
    "traffic",
    "step",
    "published",
    "sample",
    "settle",
    "duration",
];

impl Scenario {
    /// Reads and checks a file, the router files and published numbers it names.
    ///
    /// # Errors
    /// All that is wrong with it.
    pub fn load(path: &Path) -> Result<Self, Diagnostics> {
        let text = read_file(path)?;
        let folder = path.parent().unwrap_or(Path::new(""));
        let mut scenario = Self::parse(&text, &path.display().to_string(), folder)?;
        scenario.path = Some(path.to_owned());
        Ok(scenario)
    }

    /// Checks a text; `file` is the name that errors say; files that it names are looked for beside
    /// and above `folder`.
    ///
    /// # Errors
    /// All that is wrong with it.
    pub fn parse(text: &str, file: &str, folder: &Path) -> Result<Self, Diagnostics> {
        let (table, mut reader) = parse_toml(text, file);
        let fields = reader.table(ScenarioSection::SECTION, &table, 0..0, "");
        let scenario = scenario_of(&mut reader, &fields, folder);
        reader.finish(scenario)
    }
}

fn scenario_of(reader: &mut Reader, fields: &Fields, folder: &Path) -> Option<Scenario> {
    let name = fields.text("name").unwrap_or_default();
    let valid = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
    if fields.given("name")
        && (name.is_empty() || !name.chars().all(valid) || name.split('/').any(str::is_empty))
    {
        let message = format!(
            "expected letters, digits, `-`, `_`, `.`, in parts between `/`, found {name:?}"
        );
        reader.fail(&fields.span("name"), "name", message);
    }
    // What is wrong with these was told by the reader; stand-ins let the rest be checked.
    let duration = fields.time("duration").unwrap_or(evenkeel_core::Nanos::MAX);
    let mut scenario = Scenario {
        path: None,
        name: name.to_owned(),
        title: fields.text("title").unwrap_or_default().to_owned(),
        source: fields.text("source").unwrap_or_default().to_owned(),
        notes: fields.text("notes").unwrap_or_default().to_owned(),
        published: published::load(reader, fields, folder),
        seed: fields.integer("seed")?,
        sample: fields.time("sample")?,
        settle: fields.time("settle")?,
        duration,
        time_scale: 1.0,
        without: None,
        hosts: Vec::new(),
        routers: Vec::new(),
        wires: Vec::new(),
        subscribers: Vec::new(),
        core: None,
        traffic: Vec::new(),
        steps: Vec::new(),
        expectations: Vec::new(),
        ablations: Vec::new(),
    };
    core::read(reader, fields, &mut scenario);
    nodes::read(reader, fields, folder, &mut scenario);
    traffic::read(reader, fields, folder, &mut scenario);
    steps::read(reader, fields, &mut scenario);
    expect::read(reader, fields, &mut scenario);
    steps::read_ablations(reader, fields, &mut scenario);
    Some(scenario)
}
