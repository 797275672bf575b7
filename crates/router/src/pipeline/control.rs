//! The dynamic control of outgoing links, in the order of virtual time between arrivals and
//! completions.

use evenkeel_config::LinkConfig;
use evenkeel_core::Nanos;
use evenkeel_core::control::Controller;

use super::port::PortSlot;

impl PortSlot {
    /// Lets the control of the link do what is due up to `now`, each at its own instant. After a
    /// pause of more than an interval it does at once what it missed: what it measures is then as
    /// long as the pause.
    #[inline]
    pub(super) fn control_until(&mut self, now: Nanos, pool: &mut super::store::Store) {
        // Asked for every packet, and rarely due: only then is it worth moving it out.
        if self.controls_by(now) {
            self.control_now(now, pool);
        }
    }

    #[inline]
    pub(super) fn controls_by(&self, now: Nanos) -> bool {
        self.control_due().is_some_and(|due| due <= now)
    }

    #[cold]
    fn control_now(&mut self, now: Nanos, pool: &mut super::store::Store) {
        let Some(mut controller) = self.control.take() else { return };
        while controller.due() <= now {
            let late = now - controller.due() > controller.config().interval;
            let at = if late { now } else { controller.due() };
            let (link, mut egress) = self.outgoing(pool);
            if controller.run(at, link, &mut egress).is_err() {
                // Another discipline is in place, which has no such knobs: there is nothing to
                // control.
                return;
            }
        }
        self.control = Some(controller);
    }

    /// The controller that the link's configuration asks for, starting at `now`.
    pub(super) fn start_control(&mut self, now: Nanos, config: &LinkConfig) {
        let build = |control: &evenkeel_config::LinkControl| {
            control.lct()?.build(now, &config.discipline, self.link.qostat())
        };
        self.control = config.control.as_ref().and_then(build).map(Box::new);
    }

    /// When the control of the link has something to do.
    pub(super) fn control_due(&self) -> Option<Nanos> {
        self.control.as_deref().map(Controller::due)
    }
}
