//! The dynamic control of a link: `[link.control]`, of one kind or another.

use evenkeel_core::control::follow::FollowConfig;
use evenkeel_core::control::{ControlConfig, Controller};
use evenkeel_core::measure::Qostat;
use evenkeel_core::settings::{Name, Section, Settings as _, quantity};
use evenkeel_core::{Nanos, settings};

use evenkeel_core::schedule::DisciplineConfig;
use evenkeel_settings::read::{Fields, Reader};
use evenkeel_settings::settings_of;

use crate::attach::Attach;
use crate::model::LinkConfig;

/// What turns something of a link while packets flow.
#[derive(Clone, Debug, PartialEq)]
pub enum LinkControl {
    /// The knobs of LCT-UC.
    Lct(Box<LctControl>),
    /// The rate.
    Latency(LatencyControl),
}

impl LinkControl {
    /// The kinds in files.
    pub const KINDS: &'static [(&'static str, &'static Section)] =
        &[("lct", LctControl::SECTION), ("latency", LatencyControl::SECTION)];

    /// The kind in files.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Lct(_) => "lct",
            Self::Latency(_) => "latency",
        }
    }

    /// Whether it turns anything; otherwise it only measures.
    #[must_use]
    pub const fn is_on(&self) -> bool {
        match self {
            Self::Lct(control) => control.on,
            Self::Latency(control) => control.on,
        }
    }

    /// Lets it turn what it turns, or only measure.
    pub fn set_on(&mut self, on: bool) {
        match self {
            Self::Lct(control) => control.on = on,
            Self::Latency(control) => control.on = on,
        }
    }

    /// That of LCT-UC, if it is that.
    #[must_use]
    pub fn lct(&self) -> Option<&LctControl> {
        match self {
            Self::Lct(control) => Some(control),
            Self::Latency(_) => None,
        }
    }

    /// That of the rate, if it is that.
    #[must_use]
    pub const fn latency(&self) -> Option<&LatencyControl> {
        match self {
            Self::Lct(_) => None,
            Self::Latency(control) => Some(control),
        }
    }
}

settings! {
    /// Lets the rate of a link follow its line, by the time that packets of others take there and
    /// back: for lines whose rate changes. The link begins with its `rate`. See
    /// docs/short-queues.md.
    pub struct LatencyControl: "control = { kind = \"latency\", … }" {
        /// Whether it changes the rate; otherwise it says what it would do. `evenkeel ctl set wan
        /// control off` gives the link its configured rate again.
        live on: bool = true;
        /// The port whose line it is.
        reload line: Option<Name> = None,
            absent "the link's own; of an inline port's ingress that port";
    }
    parts {
        /// The law.
        law: FollowConfig,
    }
}

settings! {
    /// Turns `x_delay` and the queue limits of LCT-UC so that the congestion indexes of all classes
    /// meet: the same impact of delay and loss on all. An index is 0 up to the normal limit and 1
    /// at the degradation threshold. Needs `discipline = { kind = "lct" }`. See
    /// docs/lct-control.md.
    pub struct LctControl: "control = { kind = \"lct\", … }" {
        /// Whether it turns knobs; otherwise it only measures the indexes. `evenkeel ctl set wan
        /// control off` puts the knobs back.
        live on: bool = true;
    }
    parts {
        /// What the laws are told; its classes are those of the router.
        config: ControlConfig,
    }
}

impl LatencyControl {
    /// The port whose line a link of port `at` follows. `find` tells where a port of a name is.
    #[must_use]
    pub fn line_of(
        &self,
        at: usize,
        attach: Attach,
        peer: Option<usize>,
        find: impl Fn(&str) -> Option<usize>,
    ) -> usize {
        match &self.line {
            Some(Name(line)) => find(line).unwrap_or(at),
            None => peer.filter(|_| attach == Attach::InlineKernel).unwrap_or(at),
        }
    }
}

impl LctControl {
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

/// Reads the table; `None` after an error that the reader has taken note of. What the other parts
/// of the link are is known by then.
pub(crate) fn control_of(
    reader: &mut Reader,
    fields: &Fields,
    link: &LinkConfig,
    classes: &[&str],
) -> Option<LinkControl> {
    match fields.kind {
        Some("latency") => latency_of(reader, fields, link).map(LinkControl::Latency),
        _ => lct_of(reader, fields, &link.discipline, classes)
            .map(|control| LinkControl::Lct(Box::new(control))),
    }
}

fn latency_of(reader: &mut Reader, fields: &Fields, link: &LinkConfig) -> Option<LatencyControl> {
    let control: LatencyControl = settings_of(reader, fields, &[])?;
    let bounds = control.law.min..=control.law.max;
    match link.core.rate {
        None => {
            let message = "the link has no rate that could follow: say the one to begin with \
                           (`rate` of the link)";
            reader.fail(&fields.at, fields.path.clone(), message.to_owned());
            None
        }
        Some(rate) if !bounds.contains(&rate) => {
            let [min, max, rate] =
                [control.law.min, control.law.max, rate].map(quantity::rate_text);
            let message = format!("the link begins with {rate}: not within {min} to {max}");
            reader.fail(&fields.at, fields.path.clone(), message);
            None
        }
        Some(_) => Some(control),
    }
}

fn lct_of(
    reader: &mut Reader,
    fields: &Fields,
    discipline: &DisciplineConfig,
    classes: &[&str],
) -> Option<LctControl> {
    if !matches!(discipline, DisciplineConfig::Lct(_)) {
        let message = format!(
            "control = \"lct\" turns knobs that discipline {:?} does not have; use discipline = {{ \
             kind = \"lct\" }}",
            discipline.name()
        );
        reader.fail(&fields.at, fields.path.clone(), message);
        return None;
    }
    let mut control: LctControl = settings_of(reader, fields, classes)?;
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
