//! From the text of a cluster scenario to models and claims.

use std::path::Path;

use evenkeel_cluster::model::ModelConfig;
use evenkeel_cluster::{ClusterConfig, Missing, Variant, Version};
use evenkeel_config::parse::{Unique, read_file};
use evenkeel_core::settings::{Settings as _, Value};
use evenkeel_core::{BitRate, Bytes};
use evenkeel_scenario::{PublishedError, published_number};
use evenkeel_settings::read::{Fields, Reader, parse_toml, suggest};
use evenkeel_settings::typed::held;
use evenkeel_settings::{Diagnostics, read_settings};

use super::schema::{self, CaseConfig, ExpectSection, FileSection, Quantity, Relation};

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
    pub of: Quantity,
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
        let fields = reader.table(FileSection::SECTION, &table, 0..0, "");
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
        evenkeel_settings::json_schema::document("cluster scenario", FileSection::SECTION, &|_| {
            None
        })
    }
}

fn scenario(reader: &mut Reader, file: &Fields, folder: &Path) -> ClusterScenario {
    let (section, _sound) = read_settings::<FileSection>(reader, file, &[]);
    let (seed, shared) = (section.seed, file.table("cluster"));
    let mut names = Unique::new("case");
    let mut cases = Vec::new();
    for case in file.tables("case") {
        names.check(reader, case, "name");
        let layers: Vec<&Fields> = std::iter::once(case).chain(shared).collect();
        let name = case.text("name").unwrap_or_default().to_owned();
        cases.push((name, model(reader, &layers, seed)));
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
        name: section.name,
        title: section.title,
        source: section.source,
        notes: section.notes,
        seed,
        cases,
        expectations,
        ablations,
    }
}

/// The settings of a case: the first layer that has a key wins.
fn layered(layers: &[&Fields]) -> CaseConfig {
    let mut case = CaseConfig::default();
    for layer in layers.iter().rev() {
        for key in CaseConfig::SECTION.keys().filter(|key| layer.given(key.name)) {
            // A value of the wrong type has been told already.
            let Some(item) = layer.item(key.name) else { continue };
            case.put(key.name, None, &held(&item.value));
        }
    }
    case
}

/// The model of a case.
fn model(reader: &mut Reader, layers: &[&Fields], seed: u64) -> ModelConfig {
    let case = layered(layers);
    let or = |given: &[u16], default: Vec<u16>| match given {
        [] => default,
        given => given.to_vec(),
    };
    let (nodes, links) = (case.forwarders.unwrap_or(3), case.links.unwrap_or(3));
    let mut cluster =
        ClusterConfig::published(nodes, links.into(), &or(&case.weights, vec![1, 1, 1]));
    cluster.set_variant(Variant::Single, 1, 0);
    cluster.missing = Missing::Abstain;
    cluster.seed = seed;
    cluster.framing.version = case.frames.unwrap_or(Version::V1);
    let mut model = ModelConfig::paper(cluster);
    model.cluster.timing.rate = BitRate::from_mbps(1_000);
    for key in ClusterConfig::SECTION.keys() {
        let value = match case.get(key.name) {
            None | Some(Value::Absent) => continue,
            // In bytes without a unit, here.
            Some(Value::Integer(bytes)) if key.name == "round_bytes" => Bytes(bytes).into(),
            Some(value) => value,
        };
        let taken = model.cluster.put(key.name, None, &value);
        debug_assert_eq!(taken, Some(true), "{}: the same type in both tables", key.name);
    }
    model.cluster.rates.clone_from(&case.link_rates);
    model.broadcast = case.broadcast.unwrap_or(model.broadcast);
    model.loss = (case.loss.unwrap_or(0.0) * 4_294_967_296.0) as u32;
    model.per_packet = case.cpu_per_packet.unwrap_or(model.per_packet);
    model.per_exchange = case.cpu_per_exchange.unwrap_or(model.per_exchange);
    model.per_decision = case.cpu_per_decision.unwrap_or(model.per_decision);
    let sizes = or(&case.sizes, vec![64]);
    let often = or(&case.often, vec![1; sizes.len()]);
    let same = sizes.len() == often.len();
    model.sizes = sizes.into_iter().zip(often.into_iter().map(u32::from)).collect();
    if !case.holds.is_empty() {
        model.holds = case.holds.into_iter().map(|set| set as u8).collect();
    }
    model.interval = case.interval;
    model.seed = seed;
    model.duration = case.duration.unwrap_or(model.duration);
    model.packets = case.packets;
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
        claims.extend(claim(reader, fields, file.text("published"), folder, cases));
    }
    claims
}

/// `published`: the entry that the file's published numbers are of.
fn claim(
    reader: &mut Reader,
    fields: &Fields,
    published: Option<&str>,
    folder: &Path,
    cases: &[(String, ModelConfig)],
) -> Option<Claim> {
    let (section, _sound) = read_settings::<ExpectSection>(reader, fields, &[]);
    let known: Vec<&str> = cases.iter().map(|(name, _)| name.as_str()).collect();
    let Some(case) = known.iter().position(|known| *known == section.case) else {
        let message = format!("no case {:?}; {}", section.case, suggest(&section.case, &known));
        reader.fail_at(fields, "case", message);
        return None;
    };
    let reference = reference(reader, fields, &section, published, folder)?;
    let range = range(reader, fields, &section, reference)?;
    let (link, class) = (usize::from(section.link) - 1, usize::from(section.class) - 1);
    let cluster = &cases[case].1.cluster;
    if link >= cluster.links || class >= cluster.classes() {
        let (name, links, classes) = (&section.case, cluster.links, cluster.classes());
        let message = format!("case {name:?} has {links} links and {classes} classes");
        reader.fail(&fields.at, fields.path.clone(), message);
        return None;
    }
    Some(Claim {
        name: section.name,
        claim: section.claim,
        case,
        of: section.of,
        link,
        class,
        reference,
        published: section.published.is_some(),
        range,
        note: section.note,
    })
}

/// What the number is compared with: a published one, or one that the file states.
fn reference(
    reader: &mut Reader,
    fields: &Fields,
    section: &ExpectSection,
    published: Option<&str>,
    folder: &Path,
) -> Option<f64> {
    let published = section.published.as_ref().map(|path| match published {
        Some(entry) => published_number(folder, entry, path),
        None => Err(PublishedError::NotNamed),
    });
    let number = match (published, section.value) {
        (Some(Ok(number)), None) | (None, Some(number)) => number,
        (Some(Err(error)), _) => {
            reader.fail_at(fields, "published", error.to_string());
            return None;
        }
        (Some(Ok(_)), Some(_)) | (None, None) => {
            let message = "needs one of `published` and `value`";
            reader.fail(&fields.at, fields.path.clone(), message);
            return None;
        }
    };
    Some(number * section.times)
}

/// The smallest and the largest value that are as claimed.
fn range(
    reader: &mut Reader,
    fields: &Fields,
    section: &ExpectSection,
    reference: f64,
) -> Option<(f64, f64)> {
    match (section.is, section.within, section.within_percent) {
        (Relation::Near, Some(within), None) => Some((reference - within, reference + within)),
        (Relation::Near, None, Some(percent)) => {
            Some((reference * (1.0 - percent / 100.0), reference * (1.0 + percent / 100.0)))
        }
        (Relation::AtLeast, None, None) => Some((reference, f64::INFINITY)),
        (Relation::AtMost, None, None) => Some((f64::NEG_INFINITY, reference)),
        _ => {
            let message = "`near` needs one of `within` and `within_percent`, the others none";
            reader.fail(&fields.at, fields.path.clone(), message);
            None
        }
    }
}
