//! The audits of the outgoing links: what each is told, and what it has found.

use evenkeel_config::LinkConfig;
use evenkeel_core::Nanos;
use evenkeel_core::audit::{Breach, Cause, Lag, Promise, Told, Verdict, Violation};

use super::Pipeline;
use super::port::PortSlot;
use crate::snapshot::{AuditClass, AuditSnapshot, Drops, LagSnapshot, ViolationSnapshot};

impl Pipeline {
    /// The audit of the link at `at` judges by its configuration as it is now.
    pub(super) fn tell(&mut self, now: Nanos, at: usize) {
        let shared = self.settings.shares.is_some();
        let classes = self.settings.class_names.len() as u16;
        let (slot, mut link) = (&mut self.ports[at], self.settings.links[at].clone());
        if slot.follow.is_some() {
            // Its law says the rate.
            link.core.rate = slot.link.config().rate;
        }
        slot.tell(now, &link, shared, classes);
    }
}

impl PortSlot {
    /// Of a link that several workers share, each sees its own part: that it is not above the rate.
    pub(super) fn tell(&mut self, now: Nanos, link: &LinkConfig, shared: bool, classes: u16) {
        let promise = if shared { Promise::Nothing } else { link.discipline.promise(classes) };
        if link.core.rate.is_some() || link.core.shaper.is_some() {
            self.link.tell(now, Told { link: link.core, promise });
        }
    }

    /// What the audit has found; `None`: it has not looked, as on links without a rate.
    pub(super) fn audit_view(&self, class_names: &[String]) -> Option<AuditSnapshot> {
        let verdict = self.link.verdict();
        (verdict.looks > 0).then(|| view(verdict, class_names))
    }
}

fn view(verdict: &Verdict, class_names: &[String]) -> AuditSnapshot {
    let named = |counts: &[u64], name: &dyn Fn(usize) -> &'static str| -> Drops {
        let met = counts.iter().enumerate().filter(|(_, n)| **n > 0);
        met.map(|(at, n)| (name(at).to_owned(), *n)).collect()
    };
    let classes = verdict.classes.iter().zip(class_names);
    AuditSnapshot {
        looks: verdict.looks,
        watched_ns: verdict.watched.0,
        violations: verdict.violations(),
        by_breach: named(&verdict.breaches, &|at| Breach::ALL[at].name()),
        by_cause: named(&verdict.causes, &|at| Cause::ALL[at].name()),
        last: verdict.last.map(|last| violation(&last, class_names)),
        rate: lag(&verdict.rate),
        excess: lag(&verdict.excess),
        classes: classes
            .map(|(found, name)| AuditClass {
                name: name.clone(),
                told_ppm: found.told_ppm.into(),
                level: found.level.into(),
                lag: lag(&found.lag),
            })
            .collect(),
        flows: lag(&verdict.flows),
        flows_compared: verdict.compared.into(),
        one_flow_of: verdict.one_of,
    }
}

fn lag(lag: &Lag) -> LagSnapshot {
    LagSnapshot {
        lag_bytes: lag.now.0,
        worst_bytes: lag.worst.0,
        bound_bytes: lag.bound.0,
        within_bytes: lag.within.0,
    }
}

fn violation(last: &Violation, class_names: &[String]) -> ViolationSnapshot {
    let class = last.class.and_then(|class| class_names.get(usize::from(class)));
    ViolationSnapshot {
        time_ns: last.at.0,
        breach: last.breach.name().to_owned(),
        cause: last.cause.name().to_owned(),
        class: class.cloned(),
        lag_bytes: last.lag.0,
        bound_bytes: last.bound.0,
        told_ppm: last.told_ppm,
        delivered_ppm: last.delivered_ppm,
    }
}
