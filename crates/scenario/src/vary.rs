//! The same scenario, varied: faster, or with a mechanism switched off.

use evenkeel_config::{Change, LinkChange, LinkControl, RouterConfig};
use evenkeel_core::Nanos;
use evenkeel_core::control::INTERVAL_RANGE;
use evenkeel_core::drop::FairDropConfig;
use evenkeel_core::settings::Settings;

use crate::model::{AblationChange, Scenario, ScenarioError, SetChange};
use crate::tables::SHORTEST_SAMPLE;

impl Scenario {
    /// The same scenario with the times of steps, traffic, settling, sampling and the whole run
    /// multiplied, and with them the intervals of dynamic controls, whose steps are steps per
    /// interval. `X_DELAY`, rates, rings, queue limits and on- and off-times stay.
    ///
    /// # Errors
    /// `scale` is not within 0.001 to 100, or shrinks the sampling window or the interval of a
    /// control below 10 ms.
    pub fn scaled(&self, scale: f64) -> Result<Self, ScenarioError> {
        let refused = |why: String| Err(ScenarioError::TimeScale { scale, why });
        if !(0.001..=100.0).contains(&scale) {
            return refused("valid: 0.001 to 100".to_owned());
        }
        // 24 hours times 100 are far below 2^53 us: exact to the nanosecond after rounding.
        let times = |time: Nanos| Nanos((time.0 as f64 * scale).round() as u64);
        let mut scaled = self.clone();
        scaled.sample = times(self.sample);
        if scaled.sample < SHORTEST_SAMPLE {
            let least = SHORTEST_SAMPLE.0 as f64 / self.sample.0 as f64;
            return refused(format!(
                "the sampling window would be shorter than 10 ms; valid: from {least} on"
            ));
        }
        scaled.settle = times(self.settle);
        scaled.duration = times(self.duration);
        for step in &mut scaled.steps {
            step.at = times(step.at);
        }
        for traffic in &mut scaled.traffic {
            traffic.start = times(traffic.start);
            traffic.stop = times(traffic.stop);
        }
        let controls = scaled.routers.iter_mut().flat_map(|router| &mut router.config.links);
        for control in controls.filter_map(|link| link.control.as_mut()) {
            let interval = match control {
                LinkControl::Lct(control) => &mut control.config.interval,
                // Round trips do not scale.
                LinkControl::Latency(_) => continue,
            };
            let (before, after) = (*interval, times(*interval));
            if !INTERVAL_RANGE.contains(&after.0) {
                let least = *INTERVAL_RANGE.start() as f64 / before.0 as f64;
                return refused(format!(
                    "the interval of a control would be {after}, and 10 ms to 60 s are valid; from \
                     {least} on"
                ));
            }
            *interval = after;
        }
        scaled.time_scale = self.time_scale * scale;
        Ok(scaled)
    }

    /// The same scenario with a mechanism switched off. Overrides that hold always are put into the
    /// routers' configurations, and steps no longer change those knobs; of a discipline put in
    /// always, steps no longer set knobs that it has not.
    ///
    /// # Errors
    /// There is no such ablation.
    pub fn with_ablation(&self, name: &str) -> Result<Self, ScenarioError> {
        let Some(ablation) = self.ablations.iter().find(|ablation| ablation.name == name) else {
            let known = self.ablations.iter().map(|ablation| ablation.name.as_str());
            return Err(ScenarioError::no_such_ablation(name, known));
        };
        let mut varied = self.clone();
        for AblationChange { set, at } in &ablation.set {
            match at {
                None => varied.always(set),
                Some(step) => {
                    if let Some(step) = varied.steps.iter_mut().find(|known| known.name == *step) {
                        step.set.retain(|other| !same_knob(other, set));
                        step.set.push(set.clone());
                    }
                }
            }
        }
        varied.leave_out_missing_knobs();
        varied.without = Some(name.to_owned());
        Ok(varied)
    }

    fn always(&mut self, set: &SetChange) {
        for step in &mut self.steps {
            step.set.retain(|other| !same_knob(other, set));
        }
        let router = self.routers.iter_mut().find(|router| router.name == set.router);
        let held = router.is_some_and(|router| put(&mut router.config, set));
        if !held && let Some(first) = self.steps.first_mut() {
            first.set.push(set.clone());
        }
    }

    /// Steps do not set what the discipline at their time does not have.
    fn leave_out_missing_knobs(&mut self) {
        for router in &self.routers {
            for link in &router.config.links {
                let mut discipline = link.discipline.clone();
                for step in &mut self.steps {
                    step.set.retain(|set| {
                        if set.router != router.name || set.link != link.port {
                            return true;
                        }
                        let Change::Link(_, change) = &set.change else { return true };
                        match change {
                            LinkChange::Discipline(other) => {
                                discipline = other.clone();
                                true
                            }
                            LinkChange::Setting(change) => discipline.has(change),
                            // Nothing else is of a discipline.
                            _ => true,
                        }
                    });
                }
            }
        }
    }
}

fn same_knob(a: &SetChange, b: &SetChange) -> bool {
    // A limit for all classes takes the place of limits of single ones.
    let class = a.class == b.class || b.class.is_none();
    a.router == b.router && a.link == b.link && a.knob == b.knob && class
}

/// Puts a change into a configuration; false if a configuration cannot say it.
fn put(config: &mut RouterConfig, set: &SetChange) -> bool {
    if let Change::FairDrop(change) = &set.change {
        let classes = config.class_count();
        let mut changed = config.fairdrop.clone().unwrap_or_else(FairDropConfig::off);
        let held = changed.set_live(change, classes).is_ok();
        config.fairdrop = if held { Some(changed) } else { config.fairdrop.take() };
        return held;
    }
    let Change::Link(name, change) = &set.change else { return false };
    let Some(link) = config.link_mut(name) else { return false };
    // The names of classes were looked up: each of their numbers is valid.
    let changed = link.changed(change, u16::MAX);
    changed.map(|changed| *link = changed).is_ok()
}
