//! Expectations judged against a run.

use evenkeel_scenario::{Compared, Scenario, Term, World};
use serde::{Deserialize, Serialize};

use crate::run::Run;
use crate::stats::Measured;

/// What became of an expectation.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It holds.
    Holds,
    /// It does not hold.
    Fails,
    /// It does not hold, and the scenario says so: a published claim that is not reproduced.
    NotReproduced,
    /// It holds although the scenario says that it is not reproduced.
    ReproducedAfterAll,
    /// A number that it needs was not measured.
    Undecided,
    /// The machine was not the run's own, or too slow for it ([`Run::warnings`]): whether it held
    /// says nothing of the router.
    NotJudged,
    /// It is not meant for this world.
    OtherWorld,
    /// With its mechanism switched off it fails: that is what was asked for.
    FailsWithout,
    /// With its mechanism switched off it still holds: the mechanism is not what makes it hold.
    HoldsWithout,
    /// With its mechanism switched off it cannot be measured, as the scenario says.
    UnmeasuredWithout,
}

impl Verdict {
    /// Whether this verdict fails the run (exit code 1).
    #[must_use]
    pub fn is_bad(self) -> bool {
        matches!(self, Self::Fails | Self::HoldsWithout | Self::Undecided)
    }

    /// For people.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Self::Holds => "holds",
            Self::Fails => "fails",
            Self::NotReproduced => "not reproduced, as documented",
            Self::ReproducedAfterAll => "holds, though documented as not reproduced",
            Self::Undecided => "undecided",
            Self::NotJudged => "not judged",
            Self::OtherWorld => "not for this world",
            Self::FailsWithout => "fails without its mechanism, as it must",
            Self::HoldsWithout => "still holds without its mechanism",
            Self::UnmeasuredWithout => "not to be measured without its mechanism, as documented",
        }
    }

    /// For programs: stable, `snake_case`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Holds => "holds",
            Self::Fails => "fails",
            Self::NotReproduced => "not_reproduced",
            Self::ReproducedAfterAll => "reproduced_after_all",
            Self::Undecided => "undecided",
            Self::NotJudged => "not_judged",
            Self::OtherWorld => "other_world",
            Self::FailsWithout => "fails_without",
            Self::HoldsWithout => "holds_without",
            Self::UnmeasuredWithout => "unmeasured_without",
        }
    }

    /// Of a claim that `holds` (`None`: that could not be measured) in a run with its mechanism or
    /// `without`; `reproduced`: the scenario says that it holds.
    #[must_use]
    pub fn of(holds: Option<bool>, reproduced: bool, without: bool) -> Self {
        match holds {
            None if reproduced => Self::Undecided,
            None => Self::NotReproduced,
            Some(true) if without => Self::HoldsWithout,
            Some(false) if without => Self::FailsWithout,
            Some(true) if reproduced => Self::Holds,
            Some(true) => Self::ReproducedAfterAll,
            Some(false) if reproduced => Self::Fails,
            Some(false) => Self::NotReproduced,
        }
    }
}

/// A judged expectation.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Judgement {
    /// The run it was judged on ([`Run::name`]).
    pub run: String,
    /// Its name in the scenario.
    pub name: String,
    /// The sentence it stands for.
    pub claim: String,
    /// The expression.
    pub expression: String,
    /// The numbers behind it, in the order of the expression.
    #[serde(with = "crate::saved::terms")]
    pub measured: Vec<Term>,
    /// Quantities that it sets against published numbers.
    #[serde(default)]
    pub published: Vec<PublishedValue>,
    /// What became of it.
    pub verdict: Verdict,
    /// Why, where more needs to be said: the scenario's note, or what could not be read.
    pub note: String,
}

/// Those that fail the run: none, and it went as expected.
#[must_use]
pub fn bad(judgements: &[Judgement]) -> Vec<Judgement> {
    judgements.iter().filter(|judgement| judgement.verdict.is_bad()).cloned().collect()
}

/// A quantity beside the number that was published for it.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct PublishedValue {
    /// The quantity, as in the expression: `calls_one(sink)@q50`.
    pub quantity: String,
    /// Its unit; empty for fractions and ratios.
    pub unit: String,
    /// What was published.
    pub published: f64,
    /// What was measured; `None` if it was not.
    pub measured: Option<f64>,
    /// Where it belongs in a figure, if it is a single metric.
    pub place: Option<FigurePlace>,
}

/// A metric of a class or link in a step: a place in a figure.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct FigurePlace {
    /// The metric's name: `delay`, `calls_one`.
    pub metric: String,
    /// The router.
    pub router: String,
    /// The link.
    pub link: String,
    /// The class; `None` for metrics of a whole link.
    pub class: Option<String>,
    /// The step's index.
    pub step: usize,
}

impl PublishedValue {
    fn of(compared: Compared) -> Self {
        let place = compared.of.map(|(metric, subject, step)| FigurePlace {
            metric: metric.name().to_owned(),
            router: subject.router,
            link: subject.link,
            class: subject.class,
            step,
        });
        Self {
            quantity: compared.quantity,
            unit: compared.unit.to_owned(),
            published: compared.published,
            measured: compared.measured,
            place,
        }
    }
}

/// Judges the expectations of `scenario` on a run of it in `world`. If a mechanism was switched off
/// ([`Scenario::without`]), only the expectations named by that ablation are judged, and they must
/// fail.
#[must_use]
pub fn judge(scenario: &Scenario, run: &Run, world: World) -> Vec<Judgement> {
    let without = scenario.without.as_deref();
    let ablation = without.and_then(|name| scenario.ablations.iter().find(|a| a.name == name));
    let (must_fail, unmeasured) =
        ablation.map_or((&[][..], &[][..]), |ablation| (&*ablation.fails, &*ablation.unmeasured));
    let stats = run.step_stats();
    scenario
        .expectations
        .iter()
        .filter(|e| {
            let named = must_fail.contains(&e.name) || unmeasured.contains(&e.name);
            without.is_none() || named
        })
        .map(|expectation| {
            let mut judgement = Judgement {
                run: run.name.clone(),
                name: expectation.name.clone(),
                claim: expectation.claim.clone(),
                expression: expectation.that.clone(),
                measured: Vec::new(),
                published: expectation
                    .expr
                    .compared(&Measured(&stats, run))
                    .into_iter()
                    .map(PublishedValue::of)
                    .collect(),
                verdict: Verdict::OtherWorld,
                note: expectation.note.clone(),
            };
            if expectation.worlds.contains(&world) {
                let evaluation = expectation.expr.eval(&Measured(&stats, run));
                judgement.verdict =
                    Verdict::of(evaluation.holds, expectation.reproduced, without.is_some());
                if evaluation.holds.is_none() && unmeasured.contains(&expectation.name) {
                    judgement.verdict = Verdict::UnmeasuredWithout;
                }
                if evaluation.holds.is_none() {
                    judgement.note =
                        [judgement.note.as_str(), &evaluation.text].join(" ").trim().to_owned();
                }
                judgement.measured = evaluation.terms;
                // A simulator has no machine to blame: what does not add up there is its mistake.
                if world == World::Lab
                    && let Some(why) = run.warnings.first()
                {
                    judgement.verdict = Verdict::NotJudged;
                    judgement.note = format!("not judged: {why}");
                }
            }
            judgement
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_documented_deviation_fails_nothing_and_a_surprise_is_told() {
        assert_eq!(Verdict::of(Some(false), false, false), Verdict::NotReproduced);
        assert_eq!(Verdict::of(Some(true), false, false), Verdict::ReproducedAfterAll);
        assert!(!Verdict::NotReproduced.is_bad() && !Verdict::ReproducedAfterAll.is_bad());
    }

    #[test]
    fn a_lab_that_was_too_slow_judges_nothing_and_its_page_says_so_first() {
        let scenario = Scenario::parse(
            include_str!("../../../scenarios/examples/tcp-dumbbell.toml"),
            "tcp-dumbbell.toml",
            std::path::Path::new("../../scenarios/examples"),
        )
        .unwrap();
        let warnings = vec!["a fell behind its schedule: the machine is too slow".to_owned()];
        let run = Run { warnings, ..crate::fixture::two_steps() };
        let verdicts = |world| {
            let judged = judge(&scenario, &run, world);
            judged.into_iter().map(|judgement| judgement.verdict).collect::<Vec<_>>()
        };
        assert!(verdicts(World::Lab).iter().all(|verdict| *verdict == Verdict::NotJudged));
        assert!(!verdicts(World::Sim).contains(&Verdict::NotJudged));
        assert!(!verdicts(World::Sim).is_empty());
        let report = crate::Report { runs: vec![run], ..crate::Report::default() };
        let page = report.to_html();
        let (warned, measured) = (page.find("fell behind"), page.find("<figure"));
        assert!(warned.is_some() && warned < measured, "before every figure");
        assert!(crate::summary::summary(&report).to_string().contains("fell behind"));
    }

    #[test]
    fn without_its_mechanism_holding_is_what_fails() {
        assert_eq!(Verdict::of(Some(true), true, true), Verdict::HoldsWithout);
        assert_eq!(Verdict::of(Some(false), true, true), Verdict::FailsWithout);
        assert!(Verdict::HoldsWithout.is_bad() && !Verdict::FailsWithout.is_bad());
    }

    #[test]
    fn numbers_that_are_missing_are_no_success() {
        assert!(Verdict::of(None, true, false).is_bad());
        assert!(Verdict::of(None, true, true).is_bad());
    }
}
