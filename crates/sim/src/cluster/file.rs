//! From the text of a cluster scenario to models and claims.

use std::path::Path;

use evenkeel_cluster::model::ModelConfig;
use evenkeel_cluster::{ClusterConfig, Missing, Variant, Version};
use evenkeel_config::parse::{Unique, read_file};
use evenkeel_core::settings::Settings as _;
use evenkeel_core::{BitRate, Bytes, Nanos};
use evenkeel_scenario::{PublishedError, published_number};
use evenkeel_settings::Diagnostics;
use evenkeel_settings::read::{Fields, Reader, Value, parse_toml, suggest};
use evenkeel_settings::typed::held;

use super::schema;

/// A cluster scenario.
#[derive(Clone, Debug)]
pub struct ClusterScenario {
    /// Its name, path-like: `stsdr/table1`.
    pub name: String,
    /// One line for headings.
    pub title: String,
    /// What it reproduces; may be empty.
    pub source: String,
    /// What the reader must know; may be empty.
    pub notes: String,
    /// Seed of everything random.
    pub seed: u64,
    /// The simulations, by name.
    pub cases: Vec<(String, ModelConfig)>,
    /// The claims.
    pub expectations: Vec<Claim>,
    /// Mechanisms that can be switched off: name, the cases then, what must fail.
    pub ablations: Vec<(String, Vec<ModelConfig>, Vec<String>)>,
}

/// A claim on one number.
#[derive(Clone, Debug)]
pub struct Claim {
    /// Its name.
    pub name: String,
    /// In words.
    pub claim: String,
    /// Index of the case.
    pub case: usize,
    /// Which number.
    pub of: String,
    /// Of which link, from 0.
    pub link: usize,
    /// Of which class, from 0.
    pub class: usize,
    /// What it is compared with.
    pub reference: f64,
    /// Whether that was published.
    pub published: bool,
    /// Smallest and largest value that are as claimed.
    pub range: (f64, f64),
    /// What else to know.
    pub note: String,
}

impl ClusterScenario {
    /// Whether a text is meant to be a cluster scenario: it has cases.
    #[must_use]
    pub fn is_meant(text: &str) -> bool {
        text.lines().any(|line| line.trim_start().starts_with("[[case]]"))
    }

    /// Reads and checks a file.
    ///
    /// # Errors
    /// All that is wrong with it.
    pub fn load(path: &Path) -> Result<Self, Diagnostics> {
        let text = read_file(path)?;
        Self::parse(&text, &path.display().to_string(), path.parent().unwrap_or(Path::new("")))
    }

    /// Checks a text; published numbers are looked for beside and above `folder`.
    ///
    /// # Errors
    /// All that is wrong with it.
    pub fn parse(text: &str, file: &str, folder: &Path) -> Result<Self, Diagnostics> {
        let (table, mut reader) = parse_toml(text, file);
        let fields = reader.table(&schema::FILE, &table, 0..0, "");
        let scenario = scenario(&mut reader, &fields, folder);
        reader.finish(Some(scenario))
    }

    /// The reference of the format as Markdown.
    #[must_use]
    pub fn reference_markdown() -> String {
        let intro = "A file with `[[case]]` is a cluster scenario: forwarders behind one switch, \
                     in virtual time, each case for itself.\n";
        evenkeel_settings::reference::markdown("Reference: cluster scenarios", intro, schema::ALL)
    }

    /// The format as a JSON schema.
    #[must_use]
    pub fn schema() -> String {
        evenkeel_settings::json_schema::document("cluster scenario", &schema::FILE, &|_words| None)
    }
}

fn scenario(reader: &mut Reader, file: &Fields, folder: &Path) -> ClusterScenario {
    let text = |key| file.text(key).unwrap_or_default().to_owned();
    let seed = file.integer("seed").unwrap_or(1);
    let shared = file.table("cluster");
    let mut names = Unique::new("case");
    let mut cases = Vec::new();
    for case in file.tables("case") {
        names.check(reader, case, "name");
        let layers: Vec<&Fields> = std::iter::once(case).chain(shared).collect();
        cases
            .push((case.text("name").unwrap_or_default().to_owned(), model(reader, &layers, seed)));
    }
    let expectations = expectations(reader, file, folder, &cases);
    let mut ablations = Vec::new();
    for without in file.tables("without") {
        let Some(set) = without.table("set") else { continue };
        let changed = file.tables("case").map(|case| {
            let layers: Vec<&Fields> = [set, case].into_iter().chain(shared).collect();
            model(reader, &layers, seed)
        });
        let changed = changed.collect();
        let mut fails = Vec::new();
        for (name, at) in without.texts("fails") {
            if !expectations.iter().any(|claim: &Claim| claim.name == name) {
                let known: Vec<_> = expectations.iter().map(|claim| claim.name.as_str()).collect();
                let message = format!("no expectation {name:?}; {}", suggest(name, &known));
                reader.fail(at, without.path_of("fails"), message);
            }
            fails.push(name.to_owned());
        }
        ablations.push((without.text("name").unwrap_or_default().to_owned(), changed, fails));
    }
    ClusterScenario {
        name: text("name"),
        title: text("title"),
        source: text("source"),
        notes: text("notes"),
        seed,
        cases,
        expectations,
        ablations,
    }
}

/// The settings of a case: the first layer that has a key wins.
fn model(reader: &mut Reader, layers: &[&Fields], seed: u64) -> ModelConfig {
    let find = |key: &str| layers.iter().find(|layer| layer.given(key));
    let integer = |key, default: u64| find(key).and_then(|l| l.integer(key)).unwrap_or(default);
    let time = |key, default: Nanos| find(key).and_then(|l| l.time(key)).unwrap_or(default);
    let list = |key: &str| -> Option<Vec<u16>> {
        let items = find(key)?.list(key).iter();
        Some(
            items
                .filter_map(|item| match item.value {
                    Value::Integer(number) => u16::try_from(number).ok(),
                    _ => None,
                })
                .collect(),
        )
    };
    let weights = list("weights").unwrap_or_else(|| vec![1, 1, 1]);
    let (nodes, links) = (integer("forwarders", 3) as u16, integer("links", 3) as usize);
    let mut cluster = ClusterConfig::published(nodes, links, &weights);
    cluster.set_variant(Variant::Single, 1, 0);
    cluster.missing = Missing::Abstain;
    cluster.seed = seed;
    let frames = find("frames").and_then(|layer| Version::from_name(layer.text("frames")?));
    cluster.framing.version = frames.unwrap_or(Version::V1);
    let mut model = ModelConfig::paper(cluster);
    model.cluster.timing.rate = BitRate::from_mbps(1_000);
    for key in ClusterConfig::SECTION.keys() {
        let Some(item) = find(key.name).and_then(|layer| layer.item(key.name)) else { continue };
        let value = match (key.name, &item.value) {
            // In bytes without a unit, here.
            ("round_bytes", Value::Integer(bytes)) => Bytes(*bytes).into(),
            (_, value) => held(value),
        };
        let taken = model.cluster.put(key.name, None, &value);
        debug_assert_eq!(taken, Some(true), "{}: the same type in both tables", key.name);
    }
    model.broadcast = time("broadcast", model.broadcast);
    let loss = find("loss").and_then(|l| l.number("loss")).unwrap_or(0.0);
    model.loss = (loss * 4_294_967_296.0) as u32;
    model.per_packet = time("cpu_per_packet", model.per_packet);
    model.per_exchange = time("cpu_per_exchange", model.per_exchange);
    model.per_decision = time("cpu_per_decision", model.per_decision);
    let sizes = list("sizes").unwrap_or_else(|| vec![64]);
    let often = list("often").unwrap_or_else(|| vec![1; sizes.len()]);
    let same = sizes.len() == often.len();
    model.sizes = sizes.into_iter().zip(often.into_iter().map(u32::from)).collect();
    if let Some(holds) = list("holds") {
        model.holds = holds.into_iter().map(|set| set as u8).collect();
    }
    model.interval = find("interval").and_then(|l| l.time("interval"));
    model.seed = seed;
    model.duration = time("duration", model.duration);
    model.packets = find("packets").and_then(|l| l.integer("packets"));
    if let Some(layer) = layers.first() {
        let wrong = model.check().err().map(|error| error.to_string());
        let wrong = wrong
            .or_else(|| (!same).then(|| "`often` needs a number for each of `sizes`".to_owned()));
        if let Some(wrong) = wrong {
            reader.fail(&layer.at, layer.path.clone(), wrong);
        }
    }
    model
}

fn expectations(
    reader: &mut Reader,
    file: &Fields,
    folder: &Path,
    cases: &[(String, ModelConfig)],
) -> Vec<Claim> {
    let mut names = Unique::new("expectation");
    let mut claims = Vec::new();
    for fields in file.tables("expect") {
        names.check(reader, fields, "name");
        let known: Vec<&str> = cases.iter().map(|(name, _)| name.as_str()).collect();
        let name = fields.text("case").unwrap_or_default();
        let Some(case) = known.iter().position(|known| *known == name) else {
            let message = format!("no case {name:?}; {}", suggest(name, &known));
            reader.fail(&fields.span("case"), fields.path_of("case"), message);
            continue;
        };
        let number = |key| fields.number(key);
        let published = match (fields.text("published"), file.text("published")) {
            (Some(path), Some(entry)) => Some(published_number(folder, entry, path)),
            (Some(_), None) => Some(Err(PublishedError::NotNamed)),
            (None, _) => None,
        };
        let reference = match (published.clone(), number("value")) {
            (Some(Ok(number)), None) | (None, Some(number)) => {
                number * number_or(fields, "times", 1.0)
            }
            (Some(Err(error)), _) => {
                let path = fields.path_of("published");
                reader.fail(&fields.span("published"), path, error.to_string());
                continue;
            }
            _ => {
                reader.fail(
                    &fields.at,
                    fields.path.clone(),
                    "needs one of `published` and `value`",
                );
                continue;
            }
        };
        let is = fields.text("is").unwrap_or("near");
        let range = match (is, number("within"), number("within_percent")) {
            ("near", Some(within), None) => (reference - within, reference + within),
            ("near", None, Some(percent)) => {
                (reference * (1.0 - percent / 100.0), reference * (1.0 + percent / 100.0))
            }
            ("at-least", None, None) => (reference, f64::INFINITY),
            ("at-most", None, None) => (f64::NEG_INFINITY, reference),
            _ => {
                let message = "`near` needs one of `within` and `within_percent`, the others none";
                reader.fail(&fields.at, fields.path.clone(), message);
                continue;
            }
        };
        let index = |key| fields.integer(key).map_or(0, |number| number as usize - 1);
        let (link, class) = (index("link"), index("class"));
        let cluster = &cases[case].1.cluster;
        if link >= cluster.links || class >= cluster.classes() {
            let message = format!(
                "case {name:?} has {} links and {} classes",
                cluster.links,
                cluster.classes()
            );
            reader.fail(&fields.at, fields.path.clone(), message);
            continue;
        }
        let text = |key| fields.text(key).unwrap_or_default().to_owned();
        claims.push(Claim {
            name: text("name"),
            claim: text("claim"),
            case,
            of: text("of"),
            link,
            class,
            reference,
            published: published.is_some(),
            range,
            note: text("note"),
        });
    }
    claims
}

fn number_or(fields: &Fields, key: &str, default: f64) -> f64 {
    fields.number(key).unwrap_or(default)
}
