//! Outgoing links as they are to be: checked and built as a whole, then put in place.

use std::sync::Arc;

use evenkeel_config::LinkConfig;
use evenkeel_core::Nanos;
use evenkeel_core::admit::{Admission, AdmissionConfig, FlowsConfig};
use evenkeel_core::control::Controller;
use evenkeel_core::schedule::{AnyScheduler, DisciplineConfig};
use evenkeel_core::settings::{SettingError, Settings as _};

use super::packet::QueuedPacket;
use super::port::PortSlot;
use super::{Pipeline, sharing};
use crate::error::CommandError;

/// The links of a router as they are to be. Nothing of it can be refused any more.
pub(super) struct LinksPlan {
    links: Vec<LinkPlan>,
    flows: FlowsConfig,
}

struct LinkPlan {
    wanted: LinkConfig,
    /// `None`: the discipline stays.
    scheduler: Option<AnyScheduler<QueuedPacket>>,
    admission: Option<AdmissionConfig>,
}

impl Pipeline {
    /// Makes the link at `at` as `wanted` says.
    ///
    /// # Errors
    /// A value of it is refused, here or by a link that has this one as its second; nothing
    /// changed.
    pub(super) fn reconfigure(
        &mut self,
        now: Nanos,
        at: usize,
        wanted: LinkConfig,
    ) -> Result<(), CommandError> {
        let mut links = self.settings.links.clone();
        links[at] = wanted;
        let flows = self.admissions.section.clone();
        let plan = self.plan_links(now, links, flows)?;
        self.apply_links(now, plan)
    }

    /// Checks links that are to be, and builds what they need.
    ///
    /// # Errors
    /// A value is refused; nothing changed.
    pub(super) fn plan_links(
        &mut self,
        now: Nanos,
        wanted: Vec<LinkConfig>,
        flows: FlowsConfig,
    ) -> Result<LinksPlan, CommandError> {
        let admissions: Result<Vec<_>, _> =
            (0..wanted.len()).map(|at| self.plan_admission(at, &wanted, &flows)).collect();
        let mut links = Vec::with_capacity(wanted.len());
        for ((at, wanted), admission) in wanted.into_iter().enumerate().zip(admissions?) {
            let scheduler = self.plan_scheduler(now, at, &wanted)?;
            links.push(LinkPlan { wanted, scheduler, admission });
        }
        Ok(LinksPlan { links, flows })
    }

    /// Checks a link except for its admission, and builds its discipline if that is another one.
    fn plan_scheduler(
        &mut self,
        now: Nanos,
        at: usize,
        wanted: &LinkConfig,
    ) -> Result<Option<AnyScheduler<QueuedPacket>>, CommandError> {
        wanted.core.check()?;
        sharing::check_link(self.settings.shares.as_ref(), at, wanted)?;
        if let (Some(fairdrop), Some(rate)) = (&self.fairdrop, wanted.core.rate) {
            fairdrop.check_rate(rate)?;
        }
        if wanted.discipline == self.settings.links[at].discipline
            || self.replants(at, &wanted.discipline)
        {
            return Ok(None);
        }
        // A discipline that takes over the part of another begins with what that one has sent.
        if self.settings.shares.is_some() {
            let (link, mut egress) = self.outgoing(at);
            link.advance(now, &mut egress);
        }
        let settings = &self.settings;
        let discipline = wanted.discipline.seeded(settings.seed);
        let (shares, classes) = (settings.shares.as_ref(), settings.classes());
        if let Some(built) = self.parts.scheduler(at, &discipline) {
            return Ok(Some(sharing::part(shares, at, built)));
        }
        sharing::discipline(shares, &settings.disciplines, at, &discipline, &classes).map(Some)
    }

    /// The core's form of a link's admission.
    pub(super) fn plan_admission(
        &self,
        at: usize,
        links: &[LinkConfig],
        flows: &FlowsConfig,
    ) -> Result<Option<AdmissionConfig>, CommandError> {
        let wanted = &links[at];
        let Some(admission) = &wanted.admission else { return Ok(None) };
        if !wanted.discipline.measures_fair_rate() {
            let (link, discipline) = (wanted.port.clone(), wanted.discipline.name());
            return Err(CommandError::NoFairRate { link, discipline });
        }
        let config = admission_of(wanted, admission, links, flows)?;
        if let Some(present) = &self.ports[at].admission {
            present.config().keeps_fixed(&config)?;
        }
        Ok(Some(config))
    }

    /// Puts planned links in place.
    pub(super) fn apply_links(&mut self, now: Nanos, plan: LinksPlan) -> Result<(), CommandError> {
        self.admissions.section = plan.flows;
        for (at, link) in plan.links.into_iter().enumerate() {
            let present = self.ports[at].admission.as_deref().map(Admission::config);
            if present != link.admission.as_ref() {
                self.put_admission(now, at, link.admission)?;
            }
            if link.wanted != self.settings.links[at] {
                self.apply_link(now, at, link.wanted, link.scheduler)?;
            }
        }
        Ok(())
    }

    fn apply_link(
        &mut self,
        now: Nanos,
        at: usize,
        wanted: LinkConfig,
        scheduler: Option<AnyScheduler<QueuedPacket>>,
    ) -> Result<(), CommandError> {
        if self.settings.shares.is_some() {
            // What the link may have sent until now, it has sent at the old rate.
            let (link, mut egress) = self.outgoing(at);
            link.advance(now, &mut egress);
        }
        if let Some(shares) = &self.settings.shares {
            shares.set_rate(at, &wanted);
        }
        let core = self.wire_of(at, &wanted);
        let present = &self.settings.links[at];
        let present_discipline = present.discipline.clone();
        let control_stays = scheduler.is_none() && wanted.control == present.control;
        if let Some(fairdrop) =
            self.fairdrop.as_mut().filter(|_| wanted.core.rate != present.core.rate)
        {
            fairdrop.set_rate(now, at, wanted.core.rate)?;
        }
        let (link, mut egress) = self.outgoing(at);
        if core != *link.config() {
            link.reconfigure(now, core, &mut egress)?;
        }
        if let (DisciplineConfig::Tree(tree), None) = (&wanted.discipline, &scheduler)
            && wanted.discipline != present_discipline
        {
            link.alter(now, &mut egress, |queues, now, dropped| match queues {
                AnyScheduler::Tree(queues) => queues.replant(now, Arc::clone(&tree.plan), dropped),
                _ => Ok(()),
            })?;
        }
        if let Some(scheduler) = scheduler {
            let former = link.swap(now, scheduler, &mut egress);
            self.parts.retire(former);
            // Its meters begin anew.
            self.ports[at].notify_admission(now, true);
        }
        if !control_stays {
            // The knobs that the old control turned go back first: the new one starts from the
            // configuration.
            if self.ports[at].control.as_deref().is_some_and(Controller::is_enabled) {
                // A discipline that has just come in may lack the knobs.
                let _ = self.switch_control(now, at, false);
            }
            self.ports[at].start_control(now, &wanted);
        }
        self.settings.links[at] = wanted;
        if !control_stays {
            self.follow_lines(now);
        }
        self.tell(now, at);
        Ok(())
    }

    /// Makes the admission of the link at `at` as `config` says.
    pub(super) fn put_admission(
        &mut self,
        now: Nanos,
        at: usize,
        config: Option<AdmissionConfig>,
    ) -> Result<(), CommandError> {
        // Links whose lists were attacked with the same seed would fail together.
        let seed = self.settings.seed.wrapping_add(at as u64);
        let users = self.settings.shares.as_ref().zip(config.as_ref());
        let users = users.and_then(|(shares, config)| shares.users(at, config, seed));
        if config.as_ref().is_some_and(|config| config.global_list) {
            self.admissions.provide(self.parts.lists.take(), self.settings.seed)?;
        }
        self.agenda.touch(at);
        let slot = &mut self.ports[at];
        match (&mut slot.admission, config) {
            (Some(admission), Some(config)) => {
                if *admission.config() != config {
                    admission.set(now, config)?;
                    admission.share_users(users);
                }
            }
            (admission, Some(config)) => {
                let mut built = match self.parts.admission(at, &config) {
                    Some(built) => built,
                    None => Box::new(Admission::new(config, seed, now)?),
                };
                built.share(self.settings.shares.as_ref().and_then(|shares| shares.admission(at)));
                built.share_users(users);
                *admission = Some(built);
                // What the link has counted so far is not of this admission's time.
                slot.notify_admission(now, true);
            }
            (admission, None) => {
                if let Some(former) = admission.take() {
                    self.parts.retire(former);
                }
            }
        }
        let pins = |slot: &PortSlot| slot.admission.as_ref().is_some_and(|a| a.config().pinning.on);
        self.admissions.pins = self.ports.iter().any(pins);
        Ok(())
    }
}

/// What an admission of a link is told, from all links and the router's lists.
pub(super) fn admission_of(
    link: &LinkConfig,
    admission: &AdmissionConfig,
    links: &[LinkConfig],
    flows: &FlowsConfig,
) -> Result<AdmissionConfig, SettingError> {
    let second = admission.second_link.port.as_ref().and_then(|second| {
        links.iter().find(|link| link.port == second.0).and_then(|link| link.core.rate)
    });
    admission.on_link(link.to_admission(second), flows)
}
