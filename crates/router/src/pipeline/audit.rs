//! The audits of the outgoing links: what each is told, and what it has found.

use evenkeel_config::LinkConfig;
use evenkeel_core::Nanos;
use evenkeel_core::audit::{Breach, Cause, Lag, Promise, Told, Verdict, Violation};
use evenkeel_core::drop::{CyclesVerdict, ShareId};

use super::Pipeline;
use super::port::PortSlot;
use super::sharing::Part;
use crate::snapshot::{
    AuditClass, AuditSnapshot, CyclesSnapshot, CyclesViolationSnapshot, Drops, LagSnapshot,
    ViolationSnapshot,
};

impl Pipeline {
    /// The audit of the link at `at` judges by its configuration as it is now.
    pub(super) fn tell(&mut self, now: Nanos, at: usize) {
        let part = self.settings.part_of(at);
        let classes = self.settings.class_names.len() as u16;
        let (slot, mut link) = (&mut self.ports[at], self.settings.links[at].clone());
        if slot.follow.is_some() {
            // Its law says the rate.
            link.core.rate = slot.link.config().rate;
        }
        slot.tell(now, &link, part, classes);
    }
}

impl PortSlot {
    /// Of a link that several workers share, each sees its own part: that it is not above the rate.
    pub(super) fn tell(&mut self, now: Nanos, link: &LinkConfig, part: Part, classes: u16) {
        let promise = match part {
            Part::All => link.discipline.promise(classes),
            Part::Some => Promise::Nothing,
            Part::Nothing => return,
        };
        if link.core.rate.is_some() || link.core.shaper.is_some() {
            self.link.tell(now, Told { link: link.core, promise });
        }
    }

    /// What the audit has found; `None`: it has not looked, as on links without a rate.
    pub(super) fn audit_view(&self, class_names: &[String]) -> Option<AuditSnapshot> {
        let verdict = self.link.verdict();
        let name = |place: u32| self.behind.as_ref().map(|behind| behind.name_of(place).to_owned());
        (verdict.looks > 0).then(|| view(verdict, class_names, &name))
    }
}

fn view(
    verdict: &Verdict,
    class_names: &[String],
    node: &dyn Fn(u32) -> Option<String>,
) -> AuditSnapshot {
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
        last: verdict.last.map(|last| ViolationSnapshot {
            node: last.node.and_then(node),
            ..violation(&last, class_names)
        }),
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
        priority: lag(&verdict.priority),
        flows_compared: verdict.compared.into(),
        one_flow_of: verdict.one_of,
        caps: lag(&verdict.caps),
        siblings: lag(&verdict.siblings),
        nodes_watched: verdict.nodes.into(),
    }
}

/// What the audit of a core's shares has found.
pub(super) fn cycles(verdict: &CyclesVerdict, class_names: &[String]) -> CyclesSnapshot {
    let name = |share: ShareId| class_names.get(usize::from(share.0)).cloned().unwrap_or_default();
    CyclesSnapshot {
        windows: verdict.overloaded,
        violations: verdict.violations,
        compared: verdict.compared.into(),
        one_flow_of: verdict.one_of,
        worst_ppm: verdict.worst_ppm.into(),
        last: verdict.last.map(|last| CyclesViolationSnapshot {
            class: name(last.share),
            other: name(last.other),
            delivered_ppm: last.delivered_ppm,
            cause: last.cause.name().to_owned(),
        }),
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
        node: None,
        lag_bytes: last.lag.0,
        bound_bytes: last.bound.0,
        told_ppm: last.told_ppm,
        delivered_ppm: last.delivered_ppm,
    }
}
