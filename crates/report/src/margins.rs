//! How near each claim was to failing, over several runs.
//!
//! A claim that holds in five runs may hold by luck. What lies between each of its comparisons and
//! failing is set against how much it varies from run to run.

use evenkeel_scenario::{Room, Scenario, World};

use crate::numbers::fraction;
use crate::run::Run;
use crate::stats::Measured;
use crate::table::Table;

/// One comparison of a claim over several runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Margin {
    /// The claim's name.
    pub claim: String,
    /// The comparison: `delay(calls)@start < 12000`.
    pub comparison: String,
    /// Mean of the first side.
    pub value: f64,
    /// Mean of what it must not pass.
    pub bound: f64,
    /// Mean of what lies between them; negative where it fails.
    pub margin: f64,
    /// The least of it in any run.
    pub least: f64,
    /// Standard deviation of it over the runs; `None` of a single run.
    pub spread: Option<f64>,
    /// Runs in which it could be measured, of all.
    pub runs: (usize, usize),
}

impl Margin {
    /// The margin in units of its spread; `None` of a single run, or where runs are all alike.
    #[must_use]
    pub fn spreads(&self) -> Option<f64> {
        let spread = self.spread.filter(|spread| *spread > 0.0)?;
        Some(self.margin / spread)
    }
}

/// The margins of the claims that are meant for `world`, on runs of it.
#[must_use]
pub fn margins(scenario: &Scenario, runs: &[&Run], world: World) -> Vec<Margin> {
    let stats: Vec<_> = runs.iter().map(|run| (run.step_stats(), *run)).collect();
    let mut all = Vec::new();
    for claim in scenario.expectations.iter().filter(|claim| claim.worlds.contains(&world)) {
        let rooms: Vec<_> =
            stats.iter().map(|(stats, run)| claim.expr.room(&Measured(stats, run))).collect();
        for at in 0..rooms.first().map_or(0, Vec::len) {
            let measured: Vec<_> =
                rooms.iter().filter_map(|rooms| rooms.get(at)?.as_ref()).collect();
            let Some(first) = measured.first() else { continue };
            let n = measured.len() as f64;
            let mean = |of: fn(&Room) -> f64| measured.iter().map(|room| of(room)).sum::<f64>() / n;
            let margin = mean(|room| room.left);
            let squares: f64 =
                measured.iter().map(|room| (room.left - margin) * (room.left - margin)).sum();
            all.push(Margin {
                claim: claim.name.clone(),
                comparison: first.text.clone(),
                value: mean(|room| room.value),
                bound: mean(|room| room.bound),
                margin,
                least: measured.iter().map(|room| room.left).fold(f64::INFINITY, f64::min),
                spread: (measured.len() > 1).then(|| (squares / (n - 1.0)).sqrt()),
                runs: (measured.len(), runs.len()),
            });
        }
    }
    all
}

/// Margins as a table, the nearest to failing first.
#[must_use]
pub fn table(margins: &[Margin]) -> String {
    let mut table = Table::new([
        "claim",
        "comparison",
        "value",
        "bound",
        "margin",
        "least",
        "spread",
        "margin/spread",
    ]);
    let mut sorted: Vec<&Margin> = margins.iter().collect();
    // Those that failed in any run first, then by spreads; runs that are all alike last.
    let rank = |margin: &Margin| (margin.least >= 0.0, margin.spreads().unwrap_or(f64::INFINITY));
    sorted.sort_by(|a, b| rank(a).partial_cmp(&rank(b)).unwrap_or(std::cmp::Ordering::Equal));
    for margin in sorted {
        let none = "\u{2013}".to_owned();
        table.row([
            margin.claim.clone(),
            margin.comparison.clone(),
            fraction(margin.value),
            fraction(margin.bound),
            fraction(margin.margin),
            fraction(margin.least),
            margin.spread.map_or(none.clone(), fraction),
            margin.spreads().map_or(none, |spreads| format!("{spreads:.1}")),
        ]);
    }
    table.render()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    const TEXT: &str = include_str!("../../../scenarios/lct/fig4.toml");

    /// Figure 4 with other claims.
    fn scenario(claims: &str) -> Scenario {
        let head = &TEXT[..TEXT.find("[[expect]]").expect("it has claims")];
        let folder = std::path::Path::new("../../scenarios/lct");
        Scenario::parse(&format!("{head}{claims}"), "fig4.toml", folder).expect("it is valid")
    }

    #[test]
    fn a_margin_is_told_in_units_of_its_spread_and_what_nearly_failed_comes_first() {
        let scenario = scenario(
            "[[expect]]\nname = \"far\"\nclaim = \"c\"\nthat = \"sent(class3)@start < 900\"\n\
             [[expect]]\nname = \"near\"\nclaim = \"c\"\nthat = \"sent(class3)@start > 495\"\n\
             worlds = [\"sim\"]\n",
        );
        let run = |sent: u64| {
            let mut run = fixture::two_steps();
            for sample in &mut run.samples {
                sample.counts.sent_packets = sent;
            }
            run
        };
        let runs = [run(496), run(500), run(504)];
        let all: Vec<&Run> = runs.iter().collect();
        let found = margins(&scenario, &all, World::Sim);
        let [far, near] = &found[..] else { panic!("two claims: {found:?}") };
        assert_eq!((far.value, far.bound, far.margin, far.least), (500.0, 900.0, 400.0, 396.0));
        assert_eq!((near.margin, near.least, near.spread), (5.0, 1.0, Some(4.0)));
        assert_eq!((near.spreads(), near.runs), (Some(1.25), (3, 3)));
        let text = table(&found);
        let place = |name: &str| text.find(name).expect("it is told");
        assert!(place("near") < place("far"), "{text}");
        assert_eq!(margins(&scenario, &all, World::Lab).len(), 1);
        assert_eq!(margins(&scenario, &all[..1], World::Sim)[1].spreads(), None);
    }
}
