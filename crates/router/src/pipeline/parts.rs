//! What a change needs built: away from the worker, while it forwards.
//!
//! A table of millions of flows takes seconds to build and a tenth of a second to free. Whoever
//! sends a change therefore asks the worker for a [`Blueprint`], refuses what there is no memory
//! for, builds the [`Parts`] from it and gives them along. The worker takes those that are just
//! what it would have built, and gives back what they replace. What it does not find there it
//! builds itself, as a simulated router does.

use evenkeel_config::{Change, LinkChange, LinkConfig, RouterConfig};
use evenkeel_core::Nanos;
use evenkeel_core::admit::{Admission, AdmissionConfig, FlowsConfig, RouterLists};
use evenkeel_core::drop::FairDropConfig;
use evenkeel_core::schedule::{AnyScheduler, DisciplineConfig};
use evenkeel_core::settings::Settings as _;

use super::fairdrop::{FairDrop, Machine};
use super::links::admission_of;
use super::packet::QueuedPacket;
use super::{Directories, Pipeline, Settings};
use crate::command::Command;
use crate::memory;

/// Tables, each with what it was built from.
#[derive(Default)]
pub(crate) struct Parts {
    schedulers: Vec<(usize, DisciplineConfig, AnyScheduler<QueuedPacket>)>,
    admissions: Vec<(usize, Box<Admission>)>,
    /// For the first link that uses them.
    pub(super) lists: Option<RouterLists>,
    fairdrop: Option<Box<BuiltFairDrop>>,
    directories: Directories,
    /// What they have replaced.
    retired: Vec<Box<dyn Send>>,
}

struct BuiltFairDrop {
    machine: Machine,
    links: Vec<LinkConfig>,
    built: FairDrop,
}

impl Parts {
    /// The scheduler of the link at `at`, if one was built for that.
    pub(super) fn scheduler(
        &mut self,
        at: usize,
        config: &DisciplineConfig,
    ) -> Option<AnyScheduler<QueuedPacket>> {
        let found = self.schedulers.iter().position(|(of, from, _)| *of == at && from == config)?;
        Some(self.schedulers.swap_remove(found).2)
    }

    /// The admission of the link at `at`, if one was built for that.
    pub(super) fn admission(
        &mut self,
        at: usize,
        config: &AdmissionConfig,
    ) -> Option<Box<Admission>> {
        let same = |(of, built): &(usize, Box<Admission>)| *of == at && built.config() == config;
        let found = self.admissions.iter().position(same)?;
        Some(self.admissions.swap_remove(found).1)
    }

    /// FairDrop, if it was built for that.
    pub(super) fn fairdrop(
        &mut self,
        config: &FairDropConfig,
        machine: Machine,
        links: &[LinkConfig],
    ) -> Option<FairDrop> {
        let same = |part: &mut Box<BuiltFairDrop>| {
            part.built.config() == config && part.machine == machine && part.links == links
        };
        self.fairdrop.take_if(same).map(|part| part.built)
    }

    /// The directories of trees; `present` are those in use.
    pub(super) fn directories(
        &mut self,
        config: &RouterConfig,
        present: &Directories,
    ) -> Directories {
        if self.directories.are_of(config) {
            return std::mem::take(&mut self.directories);
        }
        Directories::of(config, present)
    }

    /// Takes what is not in use any more.
    pub(super) fn retire(&mut self, former: impl Send + 'static) {
        self.retired.push(Box::new(former));
    }
}

/// What a worker builds tables from.
pub(crate) struct Blueprint {
    settings: Settings,
    flows: FlowsConfig,
    /// By link, whether it has an admission.
    admitted: Vec<bool>,
    /// Whether no link has used the router's lists.
    lacks_lists: bool,
    fairdrop: Option<FairDropConfig>,
    machine: Machine,
    /// By link, the nodes that its tree has room for.
    places: Vec<usize>,
}

/// What there is to be after a change, as far as it is built anew.
struct Wanted {
    links: Vec<LinkConfig>,
    flows: FlowsConfig,
    fairdrop: Option<FairDropConfig>,
    services: usize,
    /// The discipline itself takes the change, and its tables grow.
    grows: u64,
}

impl Pipeline {
    /// What tables for a change are built from.
    pub(crate) fn blueprint(&self) -> Blueprint {
        Blueprint {
            settings: self.settings.clone(),
            flows: self.admissions.section.clone(),
            admitted: self.ports.iter().map(|slot| slot.admission.is_some()).collect(),
            lacks_lists: self.admissions.lists.is_unused(),
            fairdrop: self.fairdrop.as_ref().map(|fairdrop| fairdrop.config().clone()),
            machine: self.machine(self.services.len()),
            places: self.places(),
        }
    }

    /// Takes what was built for the next change.
    pub(crate) fn lend(&mut self, parts: Parts) {
        self.parts = parts;
    }

    /// Gives back what the change did not need, and what it has replaced.
    pub(crate) fn take_parts(&mut self) -> Parts {
        std::mem::take(&mut self.parts)
    }
}

impl Blueprint {
    /// Upper bound of the memory that the command allocates, bytes.
    pub(crate) fn memory(&self, command: &Command) -> u64 {
        let Some(wanted) = self.wanted(command) else { return 0 };
        let classes = self.settings.class_names.len();
        let present = &self.settings.links;
        let mut bytes = wanted.grows;
        for (at, (link, present)) in wanted.links.iter().zip(present).enumerate() {
            if self.is_built(at, link) && wanted.grows == 0 {
                bytes += memory::discipline(&link.discipline, classes);
            }
            if let Some(admission) = link.admission.as_ref()
                && link.admission != present.admission
            {
                let together =
                    if self.settings.shares.is_some() { memory::users(admission) } else { 0 };
                bytes += memory::admission(admission) + together;
            }
        }
        if self.lacks_lists && memory::use_lists(&wanted.links) {
            bytes += memory::lists(&wanted.flows);
        }
        let fairdrop = wanted.fairdrop.as_ref();
        bytes + fairdrop.map_or(0, |config| memory::shadows(config.flows, present.len()))
    }

    /// Builds what the command needs. What is refused is left out: the worker refuses it too, and
    /// says why.
    pub(crate) fn build(&self, command: &Command, now: Nanos) -> Parts {
        let mut parts = Parts::default();
        let Some(wanted) = self.wanted(command) else { return parts };
        let settings = &self.settings;
        let classes = settings.classes();
        if let Command::Reload(config) = command {
            parts.directories = Directories::of(config, &settings.directories);
        }
        for (at, link) in wanted.links.iter().enumerate().take(settings.links.len()) {
            if self.is_built(at, link) && wanted.grows == 0 {
                let discipline = link.discipline.seeded(settings.seed);
                if let Ok(built) = settings.disciplines.build(&discipline, &classes) {
                    parts.schedulers.push((at, discipline, built));
                }
            }
            let config = link
                .admission
                .as_ref()
                .filter(|_| !self.admitted[at])
                .and_then(|own| admission_of(link, own, &wanted.links, &wanted.flows).ok());
            // As the pipeline does.
            let seed = settings.seed.wrapping_add(at as u64);
            if let Some(Ok(built)) = config.map(|config| Admission::new(config, seed, now)) {
                parts.admissions.push((at, Box::new(built)));
            }
        }
        if self.lacks_lists && memory::use_lists(&wanted.links) {
            parts.lists = RouterLists::new(wanted.flows.lists, settings.seed).ok();
        }
        if let Some(config) = &wanted.fairdrop {
            let machine = Machine { services: wanted.services, ..self.machine };
            let shares = settings.shares.as_ref();
            let built = FairDrop::new(config, machine, classes.len(), &wanted.links, shares);
            let links = wanted.links;
            parts.fairdrop =
                built.ok().map(|built| Box::new(BuiltFairDrop { machine, links, built }));
        }
        parts
    }

    /// Whether the discipline of a link is built anew.
    fn is_built(&self, at: usize, wanted: &LinkConfig) -> bool {
        let present = &self.settings.links[at].discipline;
        let replants = match (present, &wanted.discipline) {
            (DisciplineConfig::Tree(present), DisciplineConfig::Tree(wanted)) => {
                let nodes = wanted.plan.nodes().len();
                present.differs_by_plan(wanted) && nodes <= self.places[at]
            }
            _ => false,
        };
        wanted.discipline != *present && !replants
    }

    /// `None`: nothing is built for the command, or it will be refused.
    fn wanted(&self, command: &Command) -> Option<Wanted> {
        let present = &self.settings.links;
        let mut wanted = Wanted {
            links: present.clone(),
            flows: self.flows.clone(),
            fairdrop: None,
            services: self.machine.services,
            grows: 0,
        };
        let classes = self.settings.class_names.len();
        match command {
            Command::Change(Change::Link(name, change)) => {
                let at = present.iter().position(|link| link.port == *name)?;
                wanted.links[at] = present[at].changed(change, classes as u16).ok()?;
                if matches!(change, LinkChange::Setting(_)) {
                    let of = |link: &LinkConfig| memory::discipline(&link.discipline, classes);
                    let (before, after) = (of(&present[at]), of(&wanted.links[at]));
                    // Memory that grows may have to be had twice while it is moved.
                    wanted.grows = if after > before { after } else { return None };
                }
            }
            Command::Change(Change::FairDrop(change)) => {
                let mut config = self.fairdrop.clone().unwrap_or_else(FairDropConfig::off);
                config.set_live(change, classes as u16).ok()?;
                wanted.fairdrop =
                    Some(config).filter(|_| self.fairdrop.is_none() || change.key != "rule");
            }
            Command::Reload(config) => {
                wanted.links.clone_from(&config.links);
                wanted.flows = config.flows.clone();
                wanted.fairdrop.clone_from(&config.fairdrop);
                wanted.services = config.services.len();
            }
            _ => return None,
        }
        Some(wanted)
    }
}

#[cfg(test)]
mod tests {
    use allocation_counter::measure;

    use super::*;

    const ADMITTED: &str = r#"
[[port]]
name = "a"
interface = "a"
[[port]]
name = "b"
interface = "b"
[[link]]
port = "a"
rate = "5Mbit/s"
discipline = { kind = "pdrr" }
[link.admission]
[[link]]
port = "b"
rate = "5Mbit/s"
discipline = { kind = "pdrr" }
[link.admission]
"#;
    /// The router's lists of 100,000 flows take more than this.
    const LISTS: u64 = 6 << 20;

    fn pipeline() -> Pipeline {
        let config = RouterConfig::parse(ADMITTED, "test").unwrap_or_else(|e| panic!("{e}"));
        Pipeline::new(&config, Nanos::ZERO).unwrap()
    }

    fn uses_lists(link: &str) -> Change {
        let names: [&str; 0] = [];
        evenkeel_config::parse_change("admission.global_list", None, "true", &names)
            .unwrap()
            .on(link)
    }

    /// Bytes that the change allocates, of which so many were built before.
    fn allocated(pipeline: &mut Pipeline, change: &Change, built: bool) -> u64 {
        let command = Command::Change(change.clone());
        if built {
            let blueprint = pipeline.blueprint();
            let needed = blueprint.memory(&command);
            let mut parts = Parts::default();
            let took = measure(|| parts = blueprint.build(&command, Nanos::ZERO)).bytes_max;
            assert!(took <= needed + (1 << 16), "{took} bytes, {needed} were asked for");
            pipeline.lend(parts);
        }
        measure(|| pipeline.change(Nanos::ZERO, change).unwrap()).bytes_max
    }

    #[test]
    fn the_routers_lists_are_had_when_the_first_link_uses_them() {
        for built in [false, true] {
            let mut pipeline = pipeline();
            let first = allocated(&mut pipeline, &uses_lists("a"), built);
            assert_eq!(first > LISTS, !built, "{first} bytes");
            let second = allocated(&mut pipeline, &uses_lists("b"), built);
            assert!(second < LISTS, "{second} bytes: they are there");
        }
    }
}
