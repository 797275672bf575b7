//! Live cluster scenarios: balancers, forwarders and next hops at one switch, in both worlds.
//!
//! A file with `[switch]` is one. It has no wires: all nodes are stations of one Ethernet segment.
//! The lab runs it as processes between namespaces with a kernel bridge as switch, the simulator as
//! engines in virtual time; both fill [`Measured`], and [`judge`] does not know which did.

mod judge;
mod tables;

pub use judge::{Measured, StepMeasured, judge, report};
use tables::{ExpectSection, FileSection, StepSection, SwitchSection};
pub use tables::{Quantity, Relation};

use std::path::Path;

use evenkeel_cluster::Variant;
use evenkeel_config::parse::{Unique, read_file};
use evenkeel_config::{PortSource, RouterConfig, router_from_table};
use evenkeel_core::settings::Settings as _;
use evenkeel_core::{BitRate, Bytes, Nanos};
use evenkeel_scenario::ScenarioError;
use evenkeel_settings::diagnostic::Span;
use evenkeel_settings::read::{Fields, Reader, parse_toml, suggest};
use evenkeel_settings::tree::{Data, KeyValue, SpannedValue, Table};
use evenkeel_settings::{Diagnostics, read_settings};

/// Destination port of the first class.
pub const FIRST_PORT: u16 = 5_000;
/// The port of all routers of a live cluster, and its interface.
pub const PORT: (&str, &str) = ("switch", "eth0");

/// A live cluster scenario.
#[derive(Clone, Debug)]
pub struct LiveScenario {
    /// Its name, path-like: `stsdr/live`.
    pub name: String,
    /// One line for headings.
    pub title: String,
    /// What it reproduces; may be empty.
    pub source: String,
    /// What the reader must know; may be empty.
    pub notes: String,
    /// Seed of the simulation.
    pub seed: u64,
    /// Balancers, forwarders, next hops.
    pub nodes: [usize; 3],
    /// What the switch sends to each next hop; of different ones: to the fastest.
    pub rate: BitRate,
    /// The same by next hop.
    pub rates: Vec<BitRate>,
    /// Length of the IP packets.
    pub size: Bytes,
    /// Flows of each source, class and next hop.
    pub flows: u16,
    /// Names of the classes.
    pub classes: Vec<String>,
    /// The steps.
    pub steps: Vec<LiveStep>,
    /// The claims.
    pub expectations: Vec<LiveClaim>,
    /// Mechanisms that can be switched off: name, the steps then, what must fail.
    pub ablations: Vec<(String, Vec<LiveStep>, Vec<String>)>,
}

/// A part of the run.
#[derive(Clone, Debug)]
pub struct LiveStep {
    /// Its name.
    pub name: String,
    /// How long is measured.
    pub time: Nanos,
    /// How long traffic runs before.
    pub settle: Nanos,
    /// Load of each link in parts of what it carries.
    pub offer: f64,
    /// The first forwarder's configuration; the others differ in `cluster.node`.
    pub config: RouterConfig,
    /// The weights that shares are held against: those of the file, also while a mechanism is
    /// switched off. All alike without a cluster.
    pub weights: Vec<u16>,
    /// What of `[cluster]` differs from the file's, in words.
    pub told: String,
    /// Part of the exchange frames lost.
    pub loss: f64,
    /// Whether a stranger sends frames.
    pub intruder: bool,
    /// Forwarders that do not run; `None`: as before.
    pub absent: Option<Vec<u16>>,
    /// A forwarder to start.
    pub add: Option<u16>,
    /// A forwarder to drain.
    pub drain: Option<u16>,
    /// A forwarder to kill.
    pub kill: Option<u16>,
    /// Whether new flows begin.
    pub new_flows: bool,
}

impl LiveStep {
    /// The configuration of a forwarder.
    #[must_use]
    pub fn forwarder(&self, node: u16) -> RouterConfig {
        let mut config = self.config.clone();
        config.router.name = format!("f{node}");
        if let Some(cluster) = &mut config.cluster {
            cluster.node = node;
        }
        config
    }
}

/// A claim on one number.
#[derive(Clone, Debug)]
pub struct LiveClaim {
    /// Its name.
    pub name: String,
    /// In words.
    pub claim: String,
    /// Index of the step.
    pub step: usize,
    /// Which number.
    pub of: Quantity,
    /// Index of the step to compare with.
    pub to: Option<usize>,
    /// How it must relate to the value.
    pub is: Relation,
    /// What it is compared with.
    pub value: f64,
    /// What else to know.
    pub note: String,
}

impl LiveScenario {
    /// Whether a text is meant to be a live cluster scenario: it has a switch.
    #[must_use]
    pub fn is_meant(text: &str) -> bool {
        text.lines().any(|line| line.trim() == "[switch]")
    }

    /// Reads and checks a file.
    ///
    /// # Errors
    /// All that is wrong with it.
    pub fn load(path: &Path) -> Result<Self, Diagnostics> {
        Self::parse(&read_file(path)?, &path.display().to_string())
    }

    /// Checks a text; `file` is the name that errors say.
    ///
    /// # Errors
    /// All that is wrong with it.
    pub fn parse(text: &str, file: &str) -> Result<Self, Diagnostics> {
        let (table, mut reader) = parse_toml(text, file);
        let fields = reader.table(FileSection::SECTION, &table, 0..0, "");
        let scenario = scenario(&mut reader, &fields);
        reader.finish(scenario)
    }

    /// The reference of the format as Markdown.
    #[must_use]
    pub fn reference_markdown() -> String {
        let intro = "A file with `[switch]` is a live cluster scenario: `evenkeel lab` runs it as \
                     processes behind a bridge, `evenkeel sim` in virtual time.\n";
        evenkeel_settings::reference::markdown(
            "Reference: live cluster scenarios",
            intro,
            tables::ALL,
        )
    }

    /// The format as a JSON schema.
    #[must_use]
    pub fn schema() -> String {
        evenkeel_settings::json_schema::document(
            "live cluster scenario",
            FileSection::SECTION,
            &|_| None,
        )
    }

    /// The scenario with a mechanism switched off: the steps whose expectations must fail, and
    /// those.
    ///
    /// # Errors
    /// There is no such mechanism: says which there are.
    pub fn without(&self, name: &str) -> Result<Self, ScenarioError> {
        let Some((_, steps, fails)) = self.ablations.iter().find(|(known, _, _)| known == name)
        else {
            let known = self.ablations.iter().map(|(known, _, _)| known.as_str());
            return Err(ScenarioError::no_such_ablation(name, known));
        };
        let mut then = self.clone();
        let needed = |index: usize| {
            self.expectations.iter().any(|claim| {
                fails.contains(&claim.name) && (claim.step == index || claim.to == Some(index))
            })
        };
        let kept: Vec<usize> = (0..steps.len()).filter(|index| needed(*index)).collect();
        let place = |index: usize| kept.iter().position(|kept| *kept == index);
        let step = |index: &usize| LiveStep {
            weights: self.steps[*index].weights.clone(),
            ..steps[*index].clone()
        };
        then.steps = kept.iter().map(step).collect();
        then.expectations.retain(|claim| fails.contains(&claim.name));
        for claim in &mut then.expectations {
            claim.step = place(claim.step).unwrap_or_default();
            claim.to = claim.to.and_then(place);
        }
        Ok(then)
    }
}

fn scenario(reader: &mut Reader, file: &Fields) -> Option<LiveScenario> {
    let (section, _sound) = read_settings::<FileSection>(reader, file, &[]);
    let (switch, _sound) = read_settings::<SwitchSection>(reader, file.table("switch")?, &[]);
    let nodes = [switch.balancers, switch.forwarders, switch.next_hops].map(usize::from);
    let mut names = Unique::new("class");
    let mut classes = Vec::new();
    for class in file.tables("class") {
        names.check(reader, class, "name");
        classes.push(class.text("name")?.to_owned());
    }
    if !switch.rates.is_empty() && switch.rates.len() != nodes[2] {
        let message = format!("{} rates for {} next hops", switch.rates.len(), nodes[2]);
        reader.fail_at(file.table("switch")?, "rates", message);
    }
    if switch.rates.iter().any(|rate| !(100_000..=1_000_000_000).contains(&rate.0)) {
        let message = "a rate is not from 100kbit/s to 1Gbit/s";
        reader.fail_at(file.table("switch")?, "rates", message);
    }
    let base = overrides(reader, file, "cluster")?;
    let at_switch = AtSwitch { nodes, rates: &switch.rates, classes: &classes };
    let steps = steps(reader, file, &base, None, &at_switch)?;
    let expectations = expectations(reader, file, &steps);
    let mut ablations = Vec::new();
    for without in file.tables("without") {
        let set = overrides(reader, without, "cluster")?;
        let then = self::steps(reader, file, &base, Some(&set), &at_switch)?;
        for (name, at) in without.texts("fails") {
            let known: Vec<_> = expectations.iter().map(|claim| claim.name.as_str()).collect();
            if !known.contains(&name) {
                let message = format!("no expectation {name:?}; {}", suggest(name, &known));
                reader.fail(at, without.path_of("fails"), message);
            }
        }
        let fails = without.texts("fails").map(|(name, _)| name.to_owned()).collect();
        ablations.push((without.text("name").unwrap_or_default().to_owned(), then, fails));
    }
    Some(LiveScenario {
        name: section.name,
        title: section.title,
        source: section.source,
        notes: section.notes,
        seed: section.seed,
        nodes,
        rate: switch.rates.iter().copied().max().unwrap_or(switch.rate),
        rates: match switch.rates.len() {
            0 => vec![switch.rate; nodes[2]],
            _ => switch.rates,
        },
        size: switch.size,
        flows: switch.flows,
        classes,
        steps,
        expectations,
        ablations,
    })
}

/// A table of settings of `[cluster]`; empty if left out, `None` if it is none.
fn overrides(reader: &mut Reader, fields: &Fields, key: &str) -> Option<Table> {
    let Some(node) = fields.foreign(key) else { return Some(Table::default()) };
    let Data::Table(table) = &node.data else {
        let message = format!("expected a table, found {}", node.data.found());
        reader.fail_at(fields, key, message);
        return None;
    };
    for entry in &table.entries {
        if ["node", "members", "port", "link"].contains(&entry.name.as_str()) {
            let path = format!("{}.{}", fields.path_of(key), entry.name);
            reader.fail(&entry.at, path, format!("`{}` follows from [switch]", entry.name));
        }
    }
    Some(table.clone())
}

/// What `[switch]` says of the routers, and the names of the classes.
struct AtSwitch<'a> {
    nodes: [usize; 3],
    /// By next hop; empty: `rate` of `[cluster]`.
    rates: &'a [BitRate],
    classes: &'a [String],
}

fn steps(
    reader: &mut Reader,
    file: &Fields,
    base: &Table,
    always: Option<&Table>,
    switch: &AtSwitch<'_>,
) -> Option<Vec<LiveStep>> {
    let AtSwitch { nodes, classes, .. } = *switch;
    let mut names = Unique::new("step");
    let mut steps = Vec::new();
    let mut set = Table::default();
    for fields in file.tables("step") {
        if always.is_none() {
            names.check(reader, fields, "name");
        }
        if fields.given("cluster") {
            set = overrides(reader, fields, "cluster")?;
        }
        let (step, _sound) = read_settings::<StepSection>(reader, fields, &[]);
        for (key, node) in [("add", step.add), ("drain", step.drain), ("kill", step.kill)] {
            if node.is_some_and(|node| usize::from(node) > nodes[1]) {
                reader.fail_at(fields, key, format!("there are {} forwarders", nodes[1]));
            }
        }
        let mut merged = base.clone();
        for layer in [Some(&set), always].into_iter().flatten() {
            for entry in &layer.entries {
                merged.entries.retain(|known| known.name != entry.name);
                merged.entries.push(entry.clone());
            }
        }
        let changed: Vec<String> = set
            .entries
            .iter()
            .chain(always.iter().flat_map(|table| &table.entries))
            .map(|entry| format!("{} = {}", entry.name, entry.value.data.inline()))
            .collect();
        let at = fields.at.clone();
        let config = router(reader, step.wfq.then_some(&merged), at, switch)?;
        let alike = || vec![1; classes.len()];
        let weights = config
            .cluster
            .as_ref()
            .map_or_else(alike, |cluster| cluster.config.weights().collect());
        steps.push(LiveStep {
            weights,
            name: step.name,
            time: step.time,
            settle: step.settle,
            offer: step.offer,
            config,
            told: if step.wfq { changed.join(", ") } else { "no [cluster]".to_owned() },
            loss: step.loss,
            intruder: step.intruder,
            absent: fields.given("absent").then_some(step.absent),
            add: step.add,
            drain: step.drain,
            kill: step.kill,
            new_flows: step.new_flows,
        });
    }
    Some(steps)
}

/// The configuration of the first forwarder: what the file says of the cluster, and what follows
/// from the switch.
fn router(
    reader: &mut Reader,
    cluster: Option<&Table>,
    at: Span,
    &AtSwitch { nodes, rates, classes }: &AtSwitch<'_>,
) -> Option<RouterConfig> {
    let node = |data| SpannedValue { at: at.clone(), data };
    let entry =
        |name: &str, data| KeyValue { name: name.to_owned(), at: at.clone(), value: node(data) };
    let text = |text: &str| Data::Text(text.to_owned());
    let number = |number: usize| Data::Integer(number as i128);
    let rule = |class: usize| {
        let port = text(&format!("{0}-{0}", usize::from(FIRST_PORT) + class));
        let rule = Table {
            entries: vec![entry("protocol", text("udp")), entry("destination_port", port)],
        };
        Data::List(vec![node(Data::Table(rule))])
    };
    let classes = classes.iter().enumerate().map(|(index, name)| {
        node(Data::Table(Table {
            entries: vec![entry("name", text(name)), entry("match", rule(index))],
        }))
    });
    let port =
        Table { entries: vec![entry("name", text(PORT.0)), entry("interface", text(PORT.1))] };
    let mut entries = vec![
        entry("port", Data::List(vec![node(Data::Table(port))])),
        entry("class", Data::List(classes.collect())),
    ];
    if let Some(cluster) = cluster {
        let members = (1..=nodes[1]).map(|id| node(number(id))).collect();
        let links = (1..=nodes[2]).map(|link| {
            let hops = vec![node(text(&next_hop(link)))];
            let name = entry("name", text(&format!("ol{link}")));
            let mut entries =
                vec![name, entry("port", text(PORT.0)), entry("next_hops", Data::List(hops))];
            let rate = rates.get(link - 1);
            entries.extend(rate.map(|rate| entry("rate", text(&format!("{}bit/s", rate.0)))));
            node(Data::Table(Table { entries }))
        });
        let links = Data::List(links.collect());
        let follows = [
            entry("node", number(1)),
            entry("members", Data::List(members)),
            entry("port", text(PORT.0)),
            entry("link", links),
        ];
        let entries_of = cluster.entries.iter().cloned().chain(follows).collect();
        entries.push(entry("cluster", Data::Table(Table { entries: entries_of })));
    }
    router_from_table(reader, &Table { entries }, at.clone(), "", PortSource::File)
}

/// The address of a next hop, from 1.
#[must_use]
pub fn next_hop(link: usize) -> String {
    format!("10.7.0.{}", 20 + link)
}

fn expectations(reader: &mut Reader, file: &Fields, steps: &[LiveStep]) -> Vec<LiveClaim> {
    let mut names = Unique::new("expectation");
    let known: Vec<&str> = steps.iter().map(|step| step.name.as_str()).collect();
    let mut claims = Vec::new();
    for fields in file.tables("expect") {
        names.check(reader, fields, "name");
        let mut step_of = |key| {
            let name = fields.text(key)?;
            let step = known.iter().position(|known| *known == name);
            if step.is_none() {
                let message = format!("no step {name:?}; {}", suggest(name, &known));
                reader.fail_at(fields, key, message);
            }
            step
        };
        let (step, to) = (step_of("step"), step_of("to"));
        let (section, _sound) = read_settings::<ExpectSection>(reader, fields, &[]);
        // Without a quantity it says nothing; that it is missing or wrong has been told.
        let Some(step) = step.filter(|_| fields.text("of").is_some()) else { continue };
        let of = section.of;
        if (of == Quantity::RelativeThroughput) != fields.given("to") {
            let message =
                "`relative_throughput` needs a step to compare with in `to`, the others none";
            reader.fail(&fields.at, fields.path.clone(), message);
        }
        let variant = steps[step].config.cluster.as_ref().map(|cluster| cluster.config.variant);
        let one_pair = matches!(variant, Some(Variant::Single | Variant::Lazy));
        if matches!(of, Quantity::Collisions | Quantity::Cycles) && !one_pair {
            let message =
                "a link may change hands within a cycle of this variant: valid with s-ds and l-ds";
            reader.fail_at(fields, "of", message);
        }
        let ExpectSection { name, claim, is, value, note, .. } = section;
        claims.push(LiveClaim { name, claim, step, of, to, is, value, note });
    }
    claims
}
