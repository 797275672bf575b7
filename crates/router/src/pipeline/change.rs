//! Changes of the configuration while the pipeline runs. Each is checked as a whole first: what is
//! refused has changed nothing.

use evenkeel_config::{Change, LinkChange, LinkChangeError, LinkConfig, RouterConfig};
use evenkeel_core::Nanos;
use evenkeel_core::drop::FairDropConfig;
use evenkeel_core::settings::{self, Settings as _};

use super::fairdrop::{FairDrop, Machine};
use super::hand::Hand;
use super::packet::BURST;
use super::{Pipeline, sharing};
use crate::error::CommandError;

impl Pipeline {
    /// Makes a change, which was parsed already: all of it or nothing. This is the one place that
    /// knows the kinds of changes, for real routers as for simulated ones.
    ///
    /// # Errors
    /// Something refuses it; nothing changed.
    pub fn change(&mut self, now: Nanos, change: &Change) -> Result<(), CommandError> {
        self.flow_cache.begin_epoch();
        match change {
            Change::Link(link, change) => self.change_link(now, self.find(link)?, change)?,
            Change::FairDrop(change) => self.change_fairdrop(change)?,
            Change::Forwarder { id, state } => {
                let role = self.balancer.as_mut().ok_or(CommandError::NoBalancer)?;
                role.set_state(*id, *state)?;
            }
        }
        self.hand.iter_mut().for_each(Hand::changed);
        Ok(())
    }

    /// A copy of the link's configuration is changed first: what that refuses, the link is not
    /// told.
    fn change_link(
        &mut self,
        now: Nanos,
        at: usize,
        change: &LinkChange,
    ) -> Result<(), CommandError> {
        let classes = self.settings.class_names.len() as u16;
        let wanted = self.settings.links[at].changed(change, classes)?;
        match change {
            LinkChange::Setting(change) => {
                self.refuse_controlled(at, change)?;
                sharing::check_link(self.settings.shares.as_ref(), at, &wanted)?;
                let (link, mut egress) = self.outgoing(at);
                link.set(now, change, &mut egress)?;
                self.settings.links[at] = wanted;
                self.tell(now, at);
                Ok(())
            }
            LinkChange::Control(_)
                if wanted.control.as_ref().is_some_and(|c| c.latency().is_some()) =>
            {
                self.settings.links[at] = wanted;
                self.follow_lines(now);
                Ok(())
            }
            LinkChange::Control(on) => self.switch_control(now, at, *on),
            // A discipline and an admission are built anew as far as they differ.
            LinkChange::Wire(_)
            | LinkChange::Discipline(_)
            | LinkChange::Admission(_)
            | LinkChange::WholeAdmission(_) => self.reconfigure(now, at, wanted),
        }
    }

    /// Lets the control of the link at `at` turn knobs, or only measure. Switched off, it puts them
    /// back.
    pub(super) fn switch_control(
        &mut self,
        now: Nanos,
        at: usize,
        on: bool,
    ) -> Result<(), CommandError> {
        let slot = &mut self.ports[at];
        let configured = &mut self.settings.links[at];
        let Some(mut controller) = slot.control.take() else {
            return Err(LinkChangeError::NoControl(configured.port.clone()).into());
        };
        self.agenda.touch(at);
        if let Some(control) = &mut configured.control {
            control.set_on(on);
        }
        if on && !controller.is_enabled() {
            // Knobs may have been set since: it starts from those.
            slot.start_control(now, configured);
            return Ok(());
        }
        let (link, mut egress) = slot.outgoing(&mut self.pool);
        let mut result = Ok(());
        for change in controller.enable(on) {
            result = result.and(link.set(now, change, &mut egress));
        }
        slot.control = Some(controller);
        Ok(result?)
    }

    /// Refuses a knob that the link's control turns itself.
    fn refuse_controlled(&self, at: usize, change: &settings::Change) -> Result<(), CommandError> {
        let control = self.ports[at].control.as_ref().filter(|control| control.is_enabled());
        let Some(controller) = control else { return Ok(()) };
        let limits = controller.config().queue_limits.on;
        let key = change.key;
        if !(key == "x_delay" || limits && key == "limit") {
            return Ok(());
        }
        Err(CommandError::Controlled { link: self.settings.links[at].port.clone(), key })
    }

    /// A router without `[fairdrop]` gets one with its defaults, and `on` as said.
    fn change_fairdrop(&mut self, change: &settings::Change) -> Result<(), CommandError> {
        let known = self.fairdrop.as_ref().map(FairDrop::config);
        let mut config = known.cloned().unwrap_or_else(FairDropConfig::off);
        let classes = self.settings.classes().len();
        config.set_live(change, classes as u16).map_err(CommandError::FairDrop)?;
        if let (Some(fairdrop), "rule") = (&mut self.fairdrop, change.key) {
            return fairdrop.set_rule(&config).map_err(CommandError::FairDrop);
        }
        self.build_fairdrop(Some(&config))
    }

    /// Takes how many frames the receive ring of a port holds, for FairDrop; at least a burst.
    /// Before the first round.
    ///
    /// # Errors
    /// More than FairDrop can work with.
    pub fn set_ring_frames(&mut self, frames: u32) -> Result<(), CommandError> {
        self.settings.ring = frames;
        // The tables of the one before are given back first: there may be no memory for both.
        let config = self.fairdrop.take().map(|fairdrop| fairdrop.config().clone());
        self.build_fairdrop(config.as_ref())
    }

    /// Replaces FairDrop by one in which nothing waits. What was counted stays.
    pub(super) fn build_fairdrop(
        &mut self,
        config: Option<&FairDropConfig>,
    ) -> Result<(), CommandError> {
        let links = self.settings.links.clone();
        let built = self.plan_fairdrop(config, &links, self.services.len())?;
        self.put_fairdrop(built);
        Ok(())
    }

    /// FairDrop for these links and so many services.
    fn plan_fairdrop(
        &mut self,
        config: Option<&FairDropConfig>,
        links: &[LinkConfig],
        services: usize,
    ) -> Result<Option<FairDrop>, CommandError> {
        let Some(config) = config else { return Ok(None) };
        let machine = self.machine(services);
        if let Some(built) = self.parts.fairdrop(config, machine, links) {
            return Ok(Some(built));
        }
        let settings = &self.settings;
        let (classes, shares) = (settings.class_names.len(), settings.shares.as_ref());
        FairDrop::new(config, machine, classes, links, shares)
            .map(Some)
            .map_err(CommandError::FairDrop)
    }

    /// What FairDrop has to know of the worker.
    pub(super) fn machine(&self, services: usize) -> Machine {
        let (hertz, ring) = (self.meter.clock.hertz(), self.settings.ring);
        Machine { hertz, ring, batch: BURST as u16, services }
    }

    fn put_fairdrop(&mut self, built: Option<FairDrop>) {
        let before = std::mem::replace(&mut self.fairdrop, built);
        if let (Some(now), Some(before)) = (&mut self.fairdrop, &before) {
            now.counts_from(before);
        }
        if let Some(before) = before {
            self.parts.retire(before);
        }
        let is_on = self.fairdrop.as_ref().is_some_and(FairDrop::is_on);
        self.meter.switch(self.settings.measures || is_on);
    }

    /// Makes links and the rules of classes as `config` says.
    ///
    /// # Errors
    /// Something differs that another pipeline must take over for, see [`Pipeline::take_over`]
    /// (ports, names of classes, and what [`RouterConfig`] says of the router as a whole), or a
    /// value is refused; nothing changed.
    pub fn reload(&mut self, now: Nanos, config: &RouterConfig) -> Result<(), CommandError> {
        self.check_reload(config)?;
        self.flow_cache.begin_epoch();
        let directories = self.parts.directories(config, &self.settings.directories);
        let services = self.services.plan(config)?;
        let fairdrop =
            self.plan_fairdrop(config.fairdrop.as_ref(), &config.links, config.services.len())?;
        let links = self.plan_links(now, config.links.clone(), config.flows.clone())?;
        if let (Some(role), Some(wanted)) = (&mut self.cluster, &config.cluster) {
            role.prepare(now, wanted)?;
        }
        // From here on nothing is refused.
        if let (Some(role), Some(wanted)) = (&mut self.balancer, &config.balancer) {
            role.reload(wanted)?;
        }
        self.apply_links(now, links)?;
        self.put_directories(directories);
        self.services.apply(services);
        self.classifier.set_classes(config.class_map());
        self.settings.hairpin = config.router.hairpin;
        self.put_fairdrop(fairdrop);
        self.hand.iter_mut().for_each(Hand::changed);
        Ok(())
    }

    /// Refuses what this pipeline cannot become.
    fn check_reload(&self, config: &RouterConfig) -> Result<(), CommandError> {
        let restart =
            |what: &str, why| Err(CommandError::NeedsRestart { what: what.to_owned(), why });
        let built = "this pipeline was built for them";
        let present = self.ports.iter().map(|slot| (&slot.name, &slot.interface));
        if !present.eq(config.ports.iter().map(|port| (&port.name, &port.interface))) {
            return restart("the ports", built);
        }
        if !self.settings.class_names.iter().eq(config.classes.iter().map(|class| &class.name)) {
            return restart("the classes (their rules can)", built);
        }
        let shared = (0..self.ports.len()).map(|at| self.ports[at].link_at);
        if !shared.eq((0..config.ports.len()).map(|at| config.link_of(at))) {
            return restart("which ports share a link (`also`)", built);
        }
        if self.admissions.section.lists != config.flows.lists {
            return restart("the global list of [flows]", built);
        }
        match (&self.cluster, &config.cluster) {
            (None, None) => {}
            (Some(role), Some(wanted)) => role.check(wanted)?,
            _ => return restart("cluster", "a router becomes a member when it starts"),
        }
        match (&self.balancer, &config.balancer) {
            (None, None) => {}
            (Some(role), Some(wanted)) => role.check(wanted)?,
            _ => return restart("balancer", "a router becomes a balancer when it starts"),
        }
        self.settings.disciplines.check(config)?;
        if self.settings.shares.is_some() {
            config.check_workers()?;
        }
        Ok(())
    }
}
