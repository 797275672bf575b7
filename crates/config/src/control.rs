//! The dynamic control of a link: `[link.control]`.

use evenkeel_core::control::{ControlConfig, Controller};
use evenkeel_core::measure::Qostat;
use evenkeel_core::{Nanos, settings};

use evenkeel_core::schedule::DisciplineConfig;
use evenkeel_settings::read::{Fields, Reader};
use evenkeel_settings::settings_of;

settings! {
    /// Turns `x_delay` and the queue limits of LCT-UC so that the congestion indexes of all classes
    /// meet: the same impact of delay and loss on all. An index is 0 up to the normal limit and 1
    /// at the degradation threshold. Needs `discipline = { kind = "lct" }`. See
    /// docs/lct-control.md.
    pub struct LinkControl: "control = { kind = \"lct\", … }" {
        /// Whether it turns knobs; otherwise it only measures the indexes. `evenkeel ctl set wan
        /// control off` puts the knobs back.
        live on: bool = true;
    }
    parts {
        /// What the laws are told; its classes are those of the router.
        config: ControlConfig,
    }
}

impl LinkControl {
    /// The controller of a link with this discipline; `None` if the discipline is not LCT-UC, which
    /// has the knobs.
    #[must_use]
    pub fn build(
        &self,
        now: Nanos,
        discipline: &DisciplineConfig,
        meters: &Qostat,
    ) -> Option<Controller> {
        let DisciplineConfig::Lct(lct) = discipline else { return None };
        let classes = self.config.classes.len();
        let delays: Vec<_> = lct.x_delay.first(classes).collect();
        let limits: Vec<_> = lct.limit.first(classes).collect();
        // The parser has checked what `Controller::new` checks.
        let mut controller =
            Controller::new(self.config.clone(), now, &delays, &limits, meters).ok()?;
        if !self.on {
            // It has turned no knob yet that it would have to turn back.
            let _ = controller.enable(false);
        }
        Some(controller)
    }
}

/// Reads the table; `None` after an error that the reader has taken note of.
pub(crate) fn control_of(
    reader: &mut Reader,
    fields: &Fields,
    discipline: &DisciplineConfig,
    classes: &[&str],
) -> Option<LinkControl> {
    if !matches!(discipline, DisciplineConfig::Lct(_)) {
        let message = format!(
            "control = \"lct\" turns knobs that discipline {:?} does not have; use discipline = {{ \
             kind = \"lct\" }}",
            discipline.name()
        );
        reader.fail(&fields.at, fields.path.clone(), message);
        return None;
    }
    let mut control: LinkControl = settings_of(reader, fields, classes)?;
    for (at, class) in classes.iter().enumerate() {
        match control.config.sensitivity.of(at, class) {
            Ok(sensitivity) => control.config.classes.push(sensitivity),
            Err(keys @ [lower, upper]) => {
                let key = keys.iter().find(|key| fields.given(key)).unwrap_or(&keys[0]);
                let message = format!("class {class}: {lower} must be below {upper}");
                reader.fail_at(fields, key, message);
            }
        }
    }
    Some(control)
}
