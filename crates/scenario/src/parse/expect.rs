//! Expectations: expressions whose every name is known, over numbers that will be there.

use evenkeel_config::parse::Unique;
use evenkeel_config::subscribers::Role;
use evenkeel_settings::read::{Fields, Reader, suggest};
use evenkeel_settings::read_settings;

use super::subscribers::UNKNOWN;
use crate::core_model::{CORE, CoreModel, OUT};
use crate::expr::{self, AnyNames, FlowMetric, Metric, NameError, Names, People, Subject};
use crate::model::{Expectation, Scenario, Tool, Traffic, TrafficKind};
use crate::published::{self, PublishedError};
use crate::tables::ExpectSection;

/// Lists of so many subscribers and nodes are told whole.
const FEW: usize = 20;

pub(super) fn read(reader: &mut Reader, file: &Fields, scenario: &mut Scenario) {
    let mut names = Unique::new("expectation");
    // Where what is named has errors itself, names may be missing that are only misspelt there:
    // then syntax alone is checked.
    let known = reader.is_clean_in(&super::NAMED);
    for fields in file.tables("expect") {
        names.check(reader, fields, "name");
        let (section, _sound) = read_settings::<ExpectSection>(reader, fields, &[]);
        if !section.reproduced && section.note.is_empty() {
            let message = "a claim that is not reproduced needs a `note` that says why";
            reader.fail_at(fields, "reproduced", message);
        }
        let Some(that) = fields.text("that") else { continue };
        let names: &dyn Names = if known { &Scope(scenario) } else { &AnyNames };
        let expr = match expr::parse(that, names) {
            Ok(expr) => expr,
            Err(error) => {
                reader.fail_at(fields, "that", error.to_string());
                continue;
            }
        };
        if known {
            for set in expr.subscribers() {
                if let Some(message) = too_short(scenario, set.step) {
                    reader.fail_at(fields, "that", message);
                }
            }
            for (metric, subject, step) in expr.needs() {
                if let Some(message) = never_sampled(scenario, metric, &subject, step) {
                    reader.fail_at(fields, "that", message);
                }
            }
        }
        if fields.text("name").is_some() && fields.text("claim").is_some() {
            let ExpectSection { name, claim, that, worlds, reproduced, note } = section;
            let expect = Expectation { name, claim, that, expr, worlds, reproduced, note };
            scenario.expectations.push(expect);
        }
    }
}

/// Why a number that an expectation asks for will not be there.
fn never_sampled(
    scenario: &Scenario,
    metric: Metric,
    subject: &Subject,
    step: usize,
) -> Option<String> {
    if let Some(message) = too_short(scenario, step) {
        return Some(message);
    }
    let begin = scenario.steps.get(step)?;
    let end = scenario.step_end(step);
    let (from, name) = (begin.at.saturating_add(scenario.settle), &begin.name);
    let class = subject.class.as_ref()?;
    if let Some(core) = &scenario.core {
        let sends = core.flows.iter().any(|f| f.name == *class && f.start < end && f.stop > from);
        return (!sends)
            .then(|| format!("{class:?} sends nothing during step {name:?}: nothing is measured"));
    }
    let flows: Vec<_> = flows_of(scenario, class).collect();
    let during = |traffic: &&&Traffic| traffic.start < end && traffic.stop > from;
    if !flows.iter().any(|traffic| during(&traffic)) {
        return Some(format!(
            "no traffic of class {class:?} is sent during step {name:?}: nothing is measured"
        ));
    }
    if metric.needs_stamps() && !flows.iter().any(|traffic| traffic.tool == Tool::Evenkeel) {
        return Some(format!(
            "{} of class {class:?} is not measured: only tool = \"evenkeel\" stamps its packets",
            metric.name()
        ));
    }
    let link =
        scenario.router(&subject.router).and_then(|router| router.config.link(&subject.link));
    let indexes = || link.and_then(|link| link.control.as_ref()?.lct());
    if metric.needs_control() && indexes().is_none() {
        return Some(format!(
            "{} is not measured: link {:?} has no [link.control] with kind = \"lct\"",
            metric.name(),
            subject.link
        ));
    }
    let measured = |router: &crate::model::Router| {
        router.config.router.cycles || router.config.fairdrop.is_some()
    };
    if metric.needs_cycles() && !scenario.router(&subject.router).is_some_and(measured) {
        return Some(format!(
            "{} is not measured: router {:?} has neither [fairdrop] nor [router] cycles = true",
            metric.name(),
            subject.router
        ));
    }
    None
}

/// Why nothing can be measured of a whole step.
fn too_short(scenario: &Scenario, step: usize) -> Option<String> {
    let begin = scenario.steps.get(step)?;
    let end = scenario.step_end(step);
    let needed = begin.at.saturating_add(scenario.settle).saturating_add(scenario.sample);
    let name = &begin.name;
    (needed > end).then(|| {
        format!(
            "step {name:?} is too short to be measured: settling and one sampling window do not \
             fit into {}",
            evenkeel_core::settings::quantity::time_text(end.saturating_sub(begin.at))
        )
    })
}

fn flows_of<'s>(scenario: &'s Scenario, class: &'s str) -> impl Iterator<Item = &'s Traffic> {
    scenario.traffic.iter().filter(move |traffic| traffic.class.as_deref() == Some(class))
}

/// The names that a scenario has.
struct Scope<'s>(&'s Scenario);

impl Scope<'_> {
    /// Router and outgoing link of every hop of the flows of a class; of all flows if `None`. Each
    /// once.
    fn hops(&self, class: Option<&str>) -> Vec<(String, String)> {
        let mut hops = Vec::new();
        let flows = self
            .0
            .traffic
            .iter()
            .filter(|traffic| class.is_none() || traffic.class.as_deref() == class);
        for traffic in flows {
            for path in self.0.paths_between(&traffic.from, &traffic.to) {
                for pair in path.windows(2) {
                    let hop = (pair[0].clone(), pair[1].clone());
                    if self.0.router(&pair[0]).is_some() && !hops.contains(&hop) {
                        hops.push(hop);
                    }
                }
            }
        }
        hops
    }

    fn one(&self, hops: Vec<(String, String)>, text: &str) -> Result<(String, String), NameError> {
        match <[_; 1]>::try_from(hops) {
            Ok([hop]) => Ok(hop),
            Err(hops) if hops.is_empty() => Err(NameError::NotPassed(text.to_owned())),
            Err(hops) => Err(NameError::Several { name: text.to_owned(), links: names_of(&hops) }),
        }
    }
}

impl Names for Scope<'_> {
    fn subject(&self, metric: Metric, text: &str) -> Result<Subject, NameError> {
        if let Some(core) = &self.0.core {
            return core_subject(core, metric, text);
        }
        if metric.needs_core() {
            return Err(NameError::OfACore(metric.name()));
        }
        let mut parts: Vec<_> = text.split('/').map(str::trim).collect();
        let class = if metric.is_of_link() { None } else { parts.pop() };
        if let Some(class) = class {
            let known: Vec<_> =
                self.0.traffic.iter().filter_map(|traffic| traffic.class.as_deref()).collect();
            if !known.contains(&class) {
                let exists = self
                    .0
                    .routers
                    .iter()
                    .any(|router| router.config.class_names().contains(&class));
                return Err(match exists {
                    true => NameError::NoTraffic(class.to_owned()),
                    false => unknown("class", class, &distinct(&known)),
                });
            }
        }
        let hops = self.hops(class);
        let (router, link) = match parts.as_slice() {
            [] => self.one(hops, text)?,
            [link] => {
                let here: Vec<_> = hops.iter().filter(|(_, l)| l == link).cloned().collect();
                if here.is_empty() {
                    return Err(no_link(link, &hops));
                }
                self.one(here, text)?
            }
            [router, link] => {
                let hop = ((*router).to_owned(), (*link).to_owned());
                if !hops.contains(&hop) {
                    return Err(no_link(&format!("{router}/{link}"), &hops));
                }
                hop
            }
            _ => return Err(NameError::TooManyParts(text.to_owned())),
        };
        Ok(Subject { router, link, class: class.map(str::to_owned) })
    }

    fn all(&self, metric: Metric, text: &str) -> Result<Vec<String>, NameError> {
        let (place, pattern) = match text.rsplit_once('/') {
            Some((place, pattern)) => (format!("{place}/"), pattern.trim()),
            None => (String::new(), text),
        };
        let known: Vec<&str> = match &self.0.core {
            Some(core) => core.flows.iter().map(|flows| flows.name.as_str()).collect(),
            None => self.0.traffic.iter().filter_map(|t| t.class.as_deref()).collect(),
        };
        let known = distinct(&known);
        let meant = known.iter().filter(|class| expr::matches(pattern, class));
        let meant: Vec<_> = meant.map(|class| format!("{place}{class}")).collect();
        if meant.is_empty() {
            return Err(unknown("class", pattern, &known));
        }
        // Behind the place of one class others may not pass.
        let passing =
            meant.iter().filter(|text| place.is_empty() || self.subject(metric, text).is_ok());
        let passing: Vec<_> = passing.cloned().collect();
        if passing.is_empty() { Ok(meant) } else { Ok(passing) }
    }

    fn traffic(&self, metric: FlowMetric, text: &str) -> Result<Vec<String>, NameError> {
        if self.0.core.is_some() {
            return Err(NameError::NoFlowsOfACore(metric.name()));
        }
        let ends = |traffic: &Traffic| match traffic.kind {
            TrafficKind::Tcp { bytes, .. } => bytes.is_some(),
            kind => kind.are_connections(),
        };
        let mut found: Vec<String> = Vec::new();
        for pattern in text.split(',').map(str::trim) {
            let meant = |traffic: &&Traffic| expr::matches(pattern, &traffic.name);
            let named: Vec<_> = self.0.traffic.iter().filter(meant).collect();
            if named.is_empty() {
                let known: Vec<_> = self.0.traffic.iter().map(|t| t.name.as_str()).collect();
                return Err(unknown("traffic", pattern, &known));
            }
            let followed = |traffic: &&&Traffic| traffic.kind != TrafficKind::Replay;
            let ending = |traffic: &&&Traffic| metric != FlowMetric::Fct || ends(traffic);
            if !named.iter().any(|traffic| followed(&traffic)) {
                return Err(NameError::Recording(pattern.to_owned()));
            }
            if !named.iter().any(|traffic| ending(&traffic)) {
                return Err(NameError::NoEnd(pattern.to_owned()));
            }
            for traffic in named.iter().filter(followed).filter(ending) {
                if !found.contains(&traffic.name) {
                    found.push(traffic.name.clone());
                }
            }
        }
        Ok(found)
    }

    fn people(&self, text: &str) -> Result<People, NameError> {
        let (place, pattern) = text.rsplit_once('/').unwrap_or(("", text));
        let (place, pattern) = (place.trim(), pattern.trim());
        let mut trees = Vec::new();
        for router in &self.0.routers {
            for tree in &router.config.trees {
                let links = [&tree.section.down, &tree.section.up].into_iter().flatten();
                trees.extend(links.map(|link| (&router.name, link, tree)));
            }
        }
        let text_of = |(router, link, _): &(&String, &String, _)| format!("{router}/{link}");
        let there = |tree: &&(&String, &String, _)| {
            place.is_empty() || *tree.1 == place || text_of(tree) == place
        };
        let found: Vec<_> = trees.iter().filter(there).collect();
        let [(router, link, tree)] = found[..] else {
            let links: Vec<String> = trees.iter().map(text_of).collect();
            return Err(match (links.is_empty(), found.is_empty()) {
                (true, _) => NameError::NoTree,
                (_, true) => NameError::NoTreeThere { link: place.to_owned(), links },
                _ => NameError::Several { name: text.to_owned(), links },
            });
        };
        let entries = &tree.list.entries;
        let names = entries.iter().map(|entry| entry.name.as_str()).chain([UNKNOWN]);
        if !names.clone().any(|name| expr::matches(pattern, name)) {
            // Of a long list a hint has the nodes.
            let few = entries.len() <= FEW;
            let nodes = entries.iter().filter(|entry| few || entry.role == Role::Node);
            let known: Vec<_> = nodes.map(|entry| entry.name.as_str()).collect();
            return Err(unknown("subscriber", pattern, &known));
        }
        let (router, link) = (router.to_string(), link.to_string());
        Ok(People { router, link, pattern: pattern.to_owned() })
    }

    fn step(&self, name: &str) -> Result<usize, NameError> {
        if let Some(index) = self.0.step(name) {
            return Ok(index);
        }
        let known: Vec<_> = self.0.steps.iter().map(|step| step.name.as_str()).collect();
        match name.split_once('-').filter(|(first, _)| known.contains(first)) {
            Some((first, _)) => {
                Err(NameError::Difference { name: name.to_owned(), first: first.to_owned() })
            }
            None => Err(unknown("step", name, &known)),
        }
    }

    fn published(&self, path: &str) -> Result<f64, NameError> {
        match &self.0.published {
            Some(entry) => Ok(published::number(&entry.entry, path)?),
            None => Err(PublishedError::NotNamed.into()),
        }
    }
}

/// Flows of a core, by the name of their class alone.
fn core_subject(core: &CoreModel, metric: Metric, text: &str) -> Result<Subject, NameError> {
    let measured = [
        Metric::Sent,
        Metric::Dropped,
        Metric::Offered,
        Metric::Goodput,
        Metric::Cycles,
        Metric::FairCycles,
    ];
    if !measured.contains(&metric) {
        return Err(NameError::NotOfACore(metric.name()));
    }
    let known: Vec<_> = core.flows.iter().map(|flows| flows.name.as_str()).collect();
    if !known.contains(&text.trim()) {
        return Err(unknown("[[core.flow]]", text, &known));
    }
    let class = Some(text.trim().to_owned());
    Ok(Subject { router: CORE.to_owned(), link: OUT.to_owned(), class })
}

fn unknown(what: &'static str, name: &str, known: &[&str]) -> NameError {
    NameError::Unknown { what, name: name.to_owned(), hint: suggest(name, known) }
}

fn no_link(link: &str, hops: &[(String, String)]) -> NameError {
    NameError::NoLink { link: link.to_owned(), passed: names_of(hops) }
}

fn names_of(hops: &[(String, String)]) -> Vec<String> {
    hops.iter().map(|(router, link)| format!("{router}/{link}")).collect()
}

fn distinct<'n>(names: &[&'n str]) -> Vec<&'n str> {
    let mut distinct: Vec<&str> = Vec::new();
    for name in names {
        if !distinct.contains(name) {
            distinct.push(name);
        }
    }
    distinct
}
