//! Expectations judged against a run.

use evenkeel_scenario::Scenario;

use crate::run::Run;

/// What became of an expectation.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Verdict {
    /// It holds.
    Holds,
    /// It does not hold.
    Fails,
    /// It does not hold, and the scenario says so: a published claim that is not reproduced.
    NotReproduced,
    /// It holds although the scenario says that it is not reproduced.
    ReproducedAfterAll,
    /// It is not meant for this world.
    OtherWorld,
    /// With its mechanism switched off it fails: that is what was asked for.
    FailsWithout,
    /// With its mechanism switched off it still holds: the mechanism is not what makes it hold.
    HoldsWithout,
}

impl Verdict {
    /// Whether this verdict fails the run (exit code 1).
    #[must_use]
    pub fn is_bad(self) -> bool {
        matches!(self, Self::Fails | Self::HoldsWithout)
    }
}

/// A judged expectation.
#[derive(Clone, Debug, PartialEq)]
pub struct Judgement {
    /// The run it was judged on ([`Run::name`]).
    pub run: String,
    /// Its name in the scenario.
    pub name: String,
    /// The sentence it stands for.
    pub claim: String,
    /// The expression.
    pub expression: String,
    /// The numbers behind it, in the order of the expression: `delay(class3)@x10 = 9 120 us`.
    pub measured: Vec<(String, Option<f64>)>,
    /// What became of it.
    pub verdict: Verdict,
    /// Why, where more needs to be said: the scenario's note, or what could not be read.
    pub note: String,
}

/// Judges every expectation of `scenario` for `run.world`. `without` names the `[[without]]` entry that the run was made with, if
/// any: then only the expectations that it names are judged, and they must fail.
#[must_use]
pub fn judge(scenario: &Scenario, run: &Run, without: Option<&str>) -> Vec<Judgement> {
    todo!()
}
