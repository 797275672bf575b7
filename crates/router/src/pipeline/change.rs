//! Changes of the configuration while the pipeline runs. Each is checked as a whole first: what is
//! refused has changed nothing.

use evenkeel_config::{DisciplineConfig, ForwarderState, LinkConfig, RouterConfig};
use evenkeel_core::Nanos;
use evenkeel_core::admit::AdmissionConfig;
use evenkeel_core::drop::FairDropConfig;
use evenkeel_core::settings::{Change, SettingError, Settings as _};

use super::fairdrop::{FairDrop, Machine};
use super::packet::BURST;
use super::{Pipeline, invalid, sharing};
use crate::error::CommandError;

impl Pipeline {
    /// Changes a setting of the discipline of the link of port `link`.
    ///
    /// # Errors
    /// No such link, or the discipline refuses; nothing changed.
    pub fn set(&mut self, now: Nanos, link: &str, change: &Change) -> Result<(), CommandError> {
        let at = self.find(link)?;
        self.refuse_controlled(at, change)?;
        // The link is not told what the configuration refuses.
        let mut discipline = self.settings.links[at].discipline.clone();
        discipline.set_live(change, self.settings.class_names.len() as u16)?;
        let (link, mut egress) = self.outgoing(at);
        link.set(now, change, &mut egress)?;
        self.settings.links[at].discipline = discipline;
        Ok(())
    }

    /// Changes a setting of a link's wire: its rate, its transmit ring.
    ///
    /// # Errors
    /// No such link, or the value is not valid; nothing changed.
    pub fn set_wire(
        &mut self,
        now: Nanos,
        link: &str,
        change: &Change,
    ) -> Result<(), CommandError> {
        let at = self.find(link)?;
        let mut wanted = self.settings.links[at].clone();
        wanted.core.set_live(change, 0)?;
        self.reconfigure(now, at, wanted)
    }

    /// Puts another discipline in place of a link's, which keeps what is queued as far as it fits.
    ///
    /// # Errors
    /// No such link, or a value is out of range; nothing changed.
    pub fn swap(
        &mut self,
        now: Nanos,
        link: &str,
        discipline: DisciplineConfig,
    ) -> Result<(), CommandError> {
        let at = self.find(link)?;
        self.reconfigure(now, at, LinkConfig { discipline, ..self.settings.links[at].clone() })
    }

    /// Changes a key of the admission of the link of port `link`.
    ///
    /// # Errors
    /// No such link, it has no admission, or the change is refused; nothing changed.
    pub fn set_admission(
        &mut self,
        now: Nanos,
        link: &str,
        change: &Change,
    ) -> Result<(), CommandError> {
        let at = self.find(link)?;
        let Some(admission) = &self.settings.links[at].admission else {
            return Err(CommandError::Invalid(format!(
                "link {link} has no admission: switch it on first (set {link} admission on)"
            )));
        };
        let mut changed = admission.clone();
        changed.set_live(change, 0).map_err(|error| invalid(format!("admission.{error}")))?;
        let admission = Some(changed);
        self.reconfigure(now, at, LinkConfig { admission, ..self.settings.links[at].clone() })
    }

    /// Puts another admission in place of that of the link of port `link`; `None`: all flows may
    /// enter.
    ///
    /// # Errors
    /// No such link, or it is refused; nothing changed.
    pub fn swap_admission(
        &mut self,
        now: Nanos,
        link: &str,
        admission: Option<AdmissionConfig>,
    ) -> Result<(), CommandError> {
        let at = self.find(link)?;
        self.reconfigure(now, at, LinkConfig { admission, ..self.settings.links[at].clone() })
    }

    /// Lets the dynamic control of the link of port `link` turn knobs, or only measure. Switched
    /// off, it puts them back.
    ///
    /// # Errors
    /// No such link, or it has no control; nothing changed.
    pub fn set_control(&mut self, now: Nanos, link: &str, on: bool) -> Result<(), CommandError> {
        let at = self.find(link)?;
        if self.ports[at].control.is_none() || self.settings.links[at].control.is_none() {
            let hint = "give it [link.control] with kind = \"lct\" and discipline lct";
            return Err(CommandError::Invalid(format!("link {link} has no control: {hint}")));
        }
        self.switch_control(now, at, on)
    }

    /// Switches the control of the link at `at`, if it has one.
    pub(super) fn switch_control(
        &mut self,
        now: Nanos,
        at: usize,
        on: bool,
    ) -> Result<(), CommandError> {
        let slot = &mut self.ports[at];
        let configured = &mut self.settings.links[at];
        let Some(mut controller) = slot.control.take() else { return Ok(()) };
        self.agenda.touch(at);
        if let Some(control) = &mut configured.control {
            control.on = on;
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
    fn refuse_controlled(&self, at: usize, change: &Change) -> Result<(), CommandError> {
        let control = self.ports[at].control.as_ref().filter(|control| control.is_enabled());
        let Some(controller) = control else { return Ok(()) };
        let limits = controller.config().queue_limits.on;
        let key = change.key;
        if !(key == "x_delay" || limits && key == "limit") {
            return Ok(());
        }
        let link = &self.settings.links[at].port;
        Err(CommandError::Invalid(format!(
            "{key} of link {link} is turned by its control: switch it off first (set {link} \
             control off)"
        )))
    }

    /// Says what a forwarder gets from now on. Established flows stay where they are, except those
    /// of one that is out.
    ///
    /// # Errors
    /// This router is no balancer, there is no such forwarder, or none would be left; nothing
    /// changed.
    pub fn set_forwarder(&mut self, id: u16, state: ForwarderState) -> Result<(), CommandError> {
        match &mut self.balancer {
            Some(role) => role.set_state(id, state),
            None => Err(CommandError::Invalid(
                "this router is no balancer: it has no [balancer]".to_owned(),
            )),
        }
    }

    /// Changes a key of `[fairdrop]`. A router without the table gets one with its defaults, and
    /// `on` as said.
    ///
    /// # Errors
    /// A value out of its range, or what several workers cannot have; nothing changed.
    pub fn set_fairdrop(&mut self, change: &Change) -> Result<(), CommandError> {
        let known = self.fairdrop.as_ref().map(FairDrop::config);
        let mut config = known.cloned().unwrap_or_else(FairDropConfig::off);
        let classes = self.settings.classes().len();
        config.set_live(change, classes as u16).map_err(refused_fairdrop)?;
        sharing::check_fairdrop(self.settings.shares.as_ref(), &config, classes)?;
        if let (Some(fairdrop), "rule") = (&mut self.fairdrop, change.key) {
            return fairdrop.set_rule(&config).map_err(refused_fairdrop);
        }
        self.build_fairdrop(Some(&config))
    }

    /// Takes how many frames the receive ring of a port holds, for FairDrop; at least a burst.
    /// Before the first round.
    ///
    /// # Errors
    /// More than FairDrop can work with.
    pub fn set_ring_frames(&mut self, frames: u32) -> Result<(), CommandError> {
        self.settings.ring = frames.max(BURST as u32);
        let config = self.fairdrop.as_ref().map(|fairdrop| fairdrop.config().clone());
        self.build_fairdrop(config.as_ref())
    }

    /// Replaces FairDrop by one in which nothing waits. What was counted stays.
    pub(super) fn build_fairdrop(
        &mut self,
        config: Option<&FairDropConfig>,
    ) -> Result<(), CommandError> {
        let built = self.plan_fairdrop(config, &self.settings.links, self.services.len())?;
        self.put_fairdrop(built);
        Ok(())
    }

    /// FairDrop for these links and so many services.
    fn plan_fairdrop(
        &self,
        config: Option<&FairDropConfig>,
        links: &[LinkConfig],
        services: usize,
    ) -> Result<Option<FairDrop>, CommandError> {
        let Some(config) = config else { return Ok(None) };
        let settings = &self.settings;
        let machine = Machine {
            hertz: self.meter.clock.hertz(),
            ring: settings.ring,
            batch: BURST as u16,
            services,
        };
        let (classes, shares) = (settings.class_names.len(), settings.shares.as_ref());
        FairDrop::new(config, machine, classes, links, shares).map(Some).map_err(refused_fairdrop)
    }

    fn put_fairdrop(&mut self, built: Option<FairDrop>) {
        let before = std::mem::replace(&mut self.fairdrop, built);
        if let (Some(now), Some(before)) = (&mut self.fairdrop, &before) {
            now.counts_from(before);
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
        self.services.apply(services);
        self.classifier.set_classes(config.class_map());
        self.settings.hairpin = config.router.hairpin;
        self.put_fairdrop(fairdrop);
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
            config.check_workers().map_err(CommandError::Invalid)?;
        }
        Ok(())
    }
}

fn refused_fairdrop(error: SettingError) -> CommandError {
    CommandError::Invalid(format!("fairdrop: {error}"))
}
