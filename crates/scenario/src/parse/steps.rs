//! Steps and ablations: timed changes, each checked against the discipline that the link has at
//! that time.

use std::collections::HashMap;

use evenkeel_config::change::FAIRDROP;
use evenkeel_config::parse::Unique;
use evenkeel_config::{
    Change, ChangeError, DisciplineConfig, LinkChange, RouterConfig, parse_change, parse_fairdrop,
};
use evenkeel_core::Nanos;
use evenkeel_core::drop::FairDropConfig;
use evenkeel_core::settings::{SettingError, Settings};
use evenkeel_settings::read::{Fields, Reader, suggest};
use thiserror::Error;

use crate::model::{Ablation, AblationChange, Router, Scenario, SetChange, Step, linux_of};

/// The step that is there in any case.
const FIRST: &str = "start";
/// When an override holds from the start and is never changed back.
const ALWAYS: &str = "always";

pub(super) fn read(reader: &mut Reader, file: &Fields, scenario: &mut Scenario) {
    let mut names = Unique::new("step");
    let mut disciplines = Disciplines::of(scenario);
    for fields in file.tables("step") {
        names.check(reader, fields, "name");
        let at = fields.time("at");
        if let (Some(at), true) = (at, scenario.steps.is_empty())
            && at > Nanos::ZERO
        {
            scenario.steps.push(first());
            if fields.text("name") == Some(FIRST) {
                reader.fail_at(fields, "name", "the step at 0 is named `start`");
            }
        }
        if let (Some(at), Some(last)) = (at, scenario.steps.last())
            && at <= last.at
        {
            let message =
                format!("steps stand in order of time: this is not after {:?}", last.name);
            reader.fail_at(fields, "at", message);
        }
        if at.is_some_and(|at| at >= scenario.duration) {
            reader.fail_at(fields, "at", "the step is not before the end of the run");
        }
        let set = fields
            .tables("set")
            .filter_map(|set| set_change(reader, set, scenario, Some(&mut disciplines)));
        let set = set.collect();
        let [down, up] = ["down", "up"].map(|key| wires(reader, fields, key, scenario));
        if let (Some(name), Some(at)) = (fields.text("name"), at) {
            scenario.steps.push(Step { name: name.to_owned(), at, down, up, set });
        }
    }
    if scenario.steps.is_empty() {
        scenario.steps.push(first());
    }
}

/// The step that nothing but the begin of the run makes.
fn first() -> Step {
    Step {
        name: FIRST.to_owned(),
        at: Nanos::ZERO,
        down: Vec::new(),
        up: Vec::new(),
        set: Vec::new(),
    }
}

/// The wires that a key of a step names.
fn wires(reader: &mut Reader, fields: &Fields, key: &str, scenario: &Scenario) -> Vec<usize> {
    let router = |node: &str| scenario.routers.iter().any(|router| router.name == node);
    let mut found = Vec::new();
    // Wires whose nodes have errors are missing here; their errors have been told.
    if !fields.given(key) || !reader.is_clean_in(&super::LAYOUT) {
        return found;
    }
    for (text, at) in fields.texts(key) {
        let wire = match scenario.wire(text) {
            Ok(wire) => wire,
            Err(message) => {
                reader.fail(at, fields.path_of(key), message);
                continue;
            }
        };
        if !scenario.wires[wire].ends.iter().any(|end| router(&end.node)) {
            reader.fail(at, fields.path_of(key), format!("{text:?} has no router at either end"));
        }
        found.push(wire);
    }
    found
}

pub(super) fn read_ablations(reader: &mut Reader, file: &Fields, scenario: &mut Scenario) {
    let mut names = Unique::new("without");
    for fields in file.tables("without") {
        names.check(reader, fields, "name");
        let set: Vec<_> =
            fields.tables("set").filter_map(|set| override_of(reader, set, scenario)).collect();
        let [fails, unmeasured] =
            ["fails", "unmeasured"].map(|key| claims(reader, fields, key, scenario));
        if let Some(name) = fields.text("name") {
            scenario.ablations.push(Ablation { name: name.to_owned(), set, fails, unmeasured });
        }
    }
}

/// The expectations that a key of an ablation names.
fn claims(reader: &mut Reader, fields: &Fields, key: &str, scenario: &Scenario) -> Vec<String> {
    let known: Vec<_> = scenario.expectations.iter().map(|expect| expect.name.as_str()).collect();
    let mut claims = Vec::new();
    for (name, at) in fields.texts(key) {
        match scenario.expectations.iter().find(|expect| expect.name == name) {
            // An expectation with an error of its own is missing here; its error has been told.
            None if reader.is_clean_in(&["expect"]) => {
                let message = format!("no expectation {name:?}; {}", suggest(name, &known));
                reader.fail(at, fields.path_of(key), message);
            }
            Some(expect) if !expect.reproduced => {
                let message = format!("{name:?} is not reproduced: that it fails proves nothing");
                reader.fail(at, fields.path_of(key), message);
            }
            _ => {}
        }
        claims.push(name.to_owned());
    }
    claims
}

fn override_of(
    reader: &mut Reader,
    fields: &Fields,
    scenario: &Scenario,
) -> Option<AblationChange> {
    // Whatever discipline an ablation meets, knobs that it has not are left out there.
    let set = set_change(reader, fields, scenario, None);
    let at = fields.text("at")?;
    let steps: Vec<_> =
        scenario.steps.iter().map(|step| step.name.as_str()).chain([ALWAYS]).collect();
    if !steps.contains(&at) {
        reader.fail_at(fields, "at", format!("no step {at:?}; {}", suggest(at, &steps)));
    }
    Some(AblationChange { set: set?, at: (at != ALWAYS).then(|| at.to_owned()) })
}

/// Why the discipline that a link has at a step refuses a change.
#[derive(Debug, Error)]
enum StepError {
    #[error("the link's discipline is then {discipline}, which has no {key}")]
    NoSetting { discipline: &'static str, key: &'static str },
    #[error("{0}")]
    Setting(#[from] SettingError),
}

/// The discipline that each link has while the steps go by.
struct Disciplines(HashMap<(String, String), DisciplineConfig>);

impl Disciplines {
    fn of(scenario: &Scenario) -> Self {
        let links = scenario.routers.iter().flat_map(|router| {
            router
                .config
                .links
                .iter()
                .map(|link| ((router.name.clone(), link.port.clone()), link.discipline.clone()))
        });
        Self(links.collect())
    }

    /// Follows a change, which the discipline at that time may refuse.
    fn follow(&mut self, router: &str, change: &Change) -> Result<(), StepError> {
        let Change::Link(link, change) = change else { return Ok(()) };
        let Some(discipline) = self.0.get_mut(&(router.to_owned(), link.clone())) else {
            return Ok(());
        };
        match change {
            LinkChange::Discipline(other) => *discipline = other.clone(),
            LinkChange::Setting(change) if !discipline.has(change) => {
                return Err(StepError::NoSetting {
                    discipline: discipline.name(),
                    key: change.key,
                });
            }
            // The names of classes were looked up: each of their numbers is valid.
            LinkChange::Setting(change) => discipline.set_live(change, u16::MAX)?,
            // Nothing else changes the discipline.
            _ => {}
        }
        Ok(())
    }
}

fn set_change(
    reader: &mut Reader,
    fields: &Fields,
    scenario: &Scenario,
    disciplines: Option<&mut Disciplines>,
) -> Option<SetChange> {
    let known: Vec<_> = scenario.routers.iter().map(|router| router.name.as_str()).collect();
    let router = match (fields.text("router"), known.as_slice()) {
        (Some(router), _) => router,
        (None, _) if fields.given("router") || !reader.is_clean_in(&super::LAYOUT) => return None,
        (None, [only]) => only,
        (None, _) => {
            reader.fail(
                &fields.at,
                fields.path.clone(),
                "there are several routers: say which with `router`",
            );
            return None;
        }
    };
    let Some(config) = scenario.router(router).map(|router| &router.config) else {
        // A router with an error of its own is missing here; its error has been told.
        if reader.is_clean_in(&super::LAYOUT) {
            let message = format!("no router {router:?}; {}", suggest(router, &known));
            reader.fail_at(fields, "router", message);
        }
        return None;
    };
    let link = fields.text("link")?;
    let of_fairdrop = link == FAIRDROP && config.link(link).is_none();
    if config.link(link).is_none() && !of_fairdrop {
        let links: Vec<_> = config.links.iter().map(|link| link.port.as_str()).collect();
        let message = format!("router {router:?} has no link {link:?}; {}", suggest(link, &links));
        reader.fail_at(fields, "link", message);
        return None;
    }
    let (knob, class) = (fields.text("knob")?, fields.text("class"));
    let value = fields.foreign("value")?.data.plain();
    let parsed = if of_fairdrop {
        fairdrop_change(config, knob, class, &value)
    } else {
        let change = parse_change(knob, class, &value, &config.class_names());
        change.map(|change| change.on(link))
    };
    let change = match parsed {
        Ok(change) => change,
        Err(error) => {
            reader.fail(&fields.span("value"), fields.path.clone(), error.0);
            return None;
        }
    };
    if let Some(message) = across(scenario.router(router)?, &change) {
        reader.fail_at(fields, "knob", message);
        return None;
    }
    if let Some(disciplines) = disciplines
        && reader.is_clean_in(&super::LAYOUT)
        && let Err(error) = disciplines.follow(router, &change)
    {
        reader.fail_at(fields, "knob", error.to_string());
    }
    Some(SetChange {
        router: router.to_owned(),
        link: link.to_owned(),
        knob: knob.to_owned(),
        class: class.map(str::to_owned),
        value,
        change,
    })
}

/// Why a change does not go with who forwards: our router, or the kernel.
fn across(router: &Router, change: &Change) -> Option<&'static str> {
    let to_linux = match change {
        Change::Link(link, LinkChange::Discipline(discipline)) => {
            let has = router.config.link(link).map(|link| &link.discipline);
            linux_of(discipline).map(|_| has.and_then(linux_of).is_some())
        }
        _ => None,
    };
    match (router.is_kernel(), to_linux) {
        (true, Some(true)) | (false, None) => None,
        (true, Some(false)) => Some("the link has no queueing discipline of Linux to begin with"),
        (true, None) => Some(
            "the kernel of this router forwards: only the discipline of its links that are \
             `kind = \"linux\"` changes, to another of Linux",
        ),
        (false, Some(_)) => Some(
            "this router forwards itself and cannot become the kernel while packets flow: give a \
             router of its own `kind = \"linux\"` from the start",
        ),
    }
}

/// A change of `[fairdrop]`, which has to fit what the file says of it.
fn fairdrop_change(
    config: &RouterConfig,
    key: &str,
    class: Option<&str>,
    value: &str,
) -> Result<Change, ChangeError> {
    if class.is_some() {
        return Err(ChangeError(format!(
            "{key} of fairdrop takes no class: give a table by class as its value"
        )));
    }
    let classes = config.class_names();
    let change = parse_fairdrop(key, value, &classes)?;
    let mut changed = config.fairdrop.clone().unwrap_or_else(FairDropConfig::off);
    changed
        .set_live(&change, config.class_count())
        .map_err(|error| ChangeError(error.to_string()))?;
    Ok(Change::FairDrop(change))
}
