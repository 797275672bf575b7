//! The dynamic control of outgoing links, in the order of virtual time between arrivals and completions.

use evenkeel_config::LinkConfig;
use evenkeel_core::Nanos;
use evenkeel_core::control::Controller;
use evenkeel_core::settings::Change;

use super::{Pipeline, PortSlot};
use crate::error::CommandError;

impl PortSlot {
    /// Lets the control of the link do what is due up to `now`, each at its own instant. After a pause of more than an
    /// interval it does at once what it missed: what it measures is then as long as the pause.
    #[inline]
    pub(super) fn control_until(&mut self, now: Nanos, pool: &mut evenkeel_ports::FramePool) {
        // Asked for every packet, and rarely due: only then is it worth moving it out.
        if self.control_due().is_some_and(|due| due <= now) {
            self.control_now(now, pool);
        }
    }

    #[cold]
    fn control_now(&mut self, now: Nanos, pool: &mut evenkeel_ports::FramePool) {
        let Some(mut controller) = self.control.take() else { return };
        while controller.due() <= now {
            let late = now - controller.due() > controller.config().interval;
            let at = if late { now } else { controller.due() };
            let (link, mut egress) = self.outgoing(pool);
            if controller.run(at, link, &mut egress).is_err() {
                // Another discipline is in place, which has no such knobs: there is nothing to control.
                return;
            }
        }
        self.control = Some(controller);
    }

    /// The controller that the link's configuration asks for, starting at `now`.
    pub(super) fn start_control(&mut self, now: Nanos, config: &LinkConfig) {
        let build = |control: &evenkeel_config::LinkControl| {
            control.build(now, &config.discipline, self.link.qostat())
        };
        self.control = config.control.as_ref().and_then(build);
    }

    /// When the control of the link has something to do.
    pub(super) fn control_due(&self) -> Option<Nanos> {
        self.control.as_ref().map(Controller::due)
    }
}

impl Pipeline {
    /// Lets the dynamic control of the link of port `link` turn knobs, or only measure. Switched off, it puts them back.
    ///
    /// # Errors
    /// No such link, or it has no control.
    pub fn set_control(&mut self, now: Nanos, link: &str, on: bool) -> Result<(), CommandError> {
        let at = self.find(link)?;
        self.touch(at);
        let slot = &mut self.ports[at];
        let (Some(mut controller), Some(config)) = (slot.control.take(), &mut self.links[at].control) else {
            let hint = "give it [link.control] with kind = \"lct\" and discipline lct";
            return Err(CommandError::Invalid(format!("link {link} has no control: {hint}")));
        };
        config.on = on;
        if on && !controller.is_enabled() {
            // Knobs may have been set since: it starts from those.
            let config = self.links[at].clone();
            self.ports[at].start_control(now, &config);
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
    pub(super) fn refuse_controlled(&self, at: usize, change: &Change) -> Result<(), CommandError> {
        let Some(controller) = self.ports[at].control.as_ref().filter(|control| control.is_enabled()) else {
            return Ok(());
        };
        let limits = controller.config().queue_limits.is_some();
        let controlled = change.key == "x_delay" || limits && change.key == "limit";
        if !controlled {
            return Ok(());
        }
        let link = &self.links[at].port;
        Err(CommandError::Invalid(format!(
            "{} of link {link} is turned by its control: switch it off first (set {link} control off)",
            change.key
        )))
    }
}
