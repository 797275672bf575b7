//! The dynamic control of a link: `[link.control]`.

use evenkeel_core::Nanos;
use evenkeel_core::control::lct::XDelayConfig;
use evenkeel_core::control::queue_limits::QueueLimitConfig;
use evenkeel_core::control::{ControlConfig, Controller};
use evenkeel_core::measure::Qostat;
use evenkeel_core::measure::congestion::{Aggregate, Loss, Sensitivity, Thresholds};

use evenkeel_core::schedule::DisciplineConfig;

use crate::discipline::by_class;
use evenkeel_settings::read::{Fields, Reader, Value};

/// `[link.control]`, defaults filled in, per-class keys resolved to vectors in the order of the
/// classes.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkControl {
    /// Whether it turns knobs from the start; otherwise it only measures.
    pub on: bool,
    /// The core's form.
    pub config: ControlConfig,
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
    let whole = |key: &str| fields.integer(key).and_then(|value| u32::try_from(value).ok());
    let fraction = |key: &str| fields.number(key).map(of_65536);
    let mut config = ControlConfig::new(sensitivities(reader, fields, classes)?);
    config.interval = fields.time("interval")?;
    config.smoothing = fraction("smoothing")?;
    config.aggregate = match fields.text("aggregate")? {
        "mean" => Aggregate::Mean { delay_weight: fraction("delay_weight")? },
        _ => Aggregate::Worst,
    };
    config.x_delay = XDelayConfig {
        gain: fraction("gain")?,
        hysteresis: fraction("hysteresis")?,
        most: fraction("step")?,
        min: fields.time("x_min")?,
        max: fields.time("x_max"),
    };
    let limits = QueueLimitConfig { min: whole("limit_min")?, max: whole("limit_max")? };
    config.queue_limits = fields.switch("limits")?.then_some(limits);
    let control = LinkControl { on: fields.switch("on")?, config };
    // What the table cannot say: that lower bounds lie below upper ones.
    if let Err(error) =
        Controller::new(control.config.clone(), Nanos::ZERO, &[], &[], &Qostat::new(1))
    {
        reader.fail(&fields.at, fields.path.clone(), error.to_string());
        return None;
    }
    Some(control)
}

fn of_65536(fraction: f64) -> u32 {
    // The ranges in the table keep it within 0 to 1.
    (fraction * 65_536.0 + 0.5) as u32
}

fn sensitivities(
    reader: &mut Reader,
    fields: &Fields,
    classes: &[&str],
) -> Option<Vec<Sensitivity>> {
    let word = |value: &Value| match value {
        Value::Text(word) => Some(preset(word)),
        _ => None,
    };
    let time = |value: &Value| match value {
        Value::Time(time) => Some(time.0),
        _ => None,
    };
    let share = |value: &Value| match value {
        Value::Number(share) => Some(u64::from(Loss::from(*share).bits())),
        _ => None,
    };
    let presets = by_class(reader, fields, "preset", classes, word)?;
    let delay = [
        by_class(reader, fields, "delay_normal", classes, time)?,
        by_class(reader, fields, "delay_degraded", classes, time)?,
    ];
    let loss = [
        by_class(reader, fields, "loss_normal", classes, share)?,
        by_class(reader, fields, "loss_degraded", classes, share)?,
    ];
    let mut all = Vec::with_capacity(classes.len());
    for (index, class) in classes.iter().enumerate() {
        let start = presets[index].unwrap_or_else(|| Sensitivity::by_name(class));
        let mut limits = |key: &str, given: [u64; 2], preset: Thresholds| {
            let [normal, degraded] = given;
            let normal = if normal == 0 { preset.normal() } else { normal };
            let degraded = if degraded == 0 { preset.degraded() } else { degraded };
            if normal >= degraded {
                let place = ["normal", "degraded"].map(|end| format!("{key}_{end}"));
                let given = place.iter().find(|key| fields.given(key)).unwrap_or(&place[0]);
                let message = format!("class {class}: {} must be below {}", place[0], place[1]);
                reader.fail(&fields.span(given), fields.path_of(given), message);
            }
            Thresholds::new(normal, degraded).ok()
        };
        let delay = limits("delay", [delay[0][index], delay[1][index]], start.delay);
        let loss = limits("loss", [loss[0][index], loss[1][index]], start.loss);
        all.push(Sensitivity { delay: delay?, loss: loss? });
    }
    Some(all)
}

/// The preset of a word; `None`: that of the class's name.
fn preset(word: &str) -> Option<Sensitivity> {
    Sensitivity::PRESETS.iter().find(|(name, _)| *name == word).map(|(_, preset)| *preset)
}
