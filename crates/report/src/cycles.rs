//! Where packets and cycles of a router went, step by step: what the demonstration of FairDrop
//! shows, as numbers.

use crate::numbers::grouped;
use crate::run::Run;
use crate::stats::{ClassStats, StepStats};
use crate::table::Table;

/// A class loses something if it loses more than this part of what it offers: then it is
/// backlogged.
const BACKLOGGED: f64 = 0.01;
/// Classes whose packets differ by less than this factor in cost are all of one kind.
const ALIKE: f64 = 1.5;

/// One step of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Account {
    /// The step's name.
    pub step: String,
    /// Flows with cheap packets, and flows with dear ones if there are some.
    pub kinds: Vec<KindAccount>,
    /// Jain's index of the cycles of the flows that lost packets; `None` if fewer than two did.
    /// Flows of a simulated core that are counted together are told apart window by window: the
    /// index is never too good.
    pub jain: Option<f64>,
    /// Cycles that the router has in a second.
    pub hertz: f64,
}

/// The flows of one kind together. Packets and cycles are per second.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KindAccount {
    /// Whether their packets are the dear ones.
    pub dear: bool,
    /// How many flows there are: classes, or what a class of a simulated core holds.
    pub flows: u32,
    /// Packets that their sources sent.
    pub offered: f64,
    /// Packets that were lost before the router saw them: its receive ring was full.
    pub lost: f64,
    /// Packets refused by the router before any link.
    pub refused: f64,
    /// Packets handed to a link.
    pub passed: f64,
    /// Cycles of those.
    pub cycles: f64,
}

impl KindAccount {
    /// Cycles of one packet.
    #[must_use]
    pub fn each(&self) -> f64 {
        self.cycles / self.passed.max(1e-9)
    }

    /// What the flows are called in pictures and tables.
    #[must_use]
    pub fn name(&self) -> String {
        let kind = if self.dear { "heavy" } else { "light" };
        if self.flows == 1 { kind.to_owned() } else { format!("{} {kind}", self.flows) }
    }
}

/// The accounts of the steps of a run; empty if it has not measured cycles.
#[must_use]
pub fn accounts(run: &Run) -> Vec<Account> {
    let steps = run.step_stats();
    let dear = dear_classes(&steps);
    steps.iter().filter_map(|step| account(step, &dear)).collect()
}

fn measured(step: &StepStats) -> impl Iterator<Item = (&ClassStats, f64)> {
    let has_passed = |class: &&ClassStats| class.cycles.is_some_and(|cycles| cycles.passed > 0.0);
    step.classes.iter().filter(has_passed).filter_map(|class| {
        let cycles = class.cycles?;
        Some((class, cycles.spent / cycles.passed))
    })
}

/// The classes whose packets are dear, as the step shows it in which costs differ most: they are on
/// the far side of the middle, by ratio, between the cheapest and the dearest. (Where most packets
/// are refused, what all share hides what tells them apart.)
fn dear_classes(steps: &[StepStats]) -> Vec<&str> {
    let span = |step: &StepStats| {
        let each = measured(step).map(|(_, each)| each);
        each.fold((f64::INFINITY, 0.0_f64), |(least, most), each| (least.min(each), most.max(each)))
    };
    let widest = steps
        .iter()
        .map(|step| (step, span(step)))
        .filter(|(_, (least, most))| *most >= ALIKE * *least)
        .max_by(|(_, (a, b)), (_, (c, d))| (b / a).total_cmp(&(d / c)));
    let Some((step, (least, most))) = widest else { return Vec::new() };
    let limit = (least * most).sqrt();
    measured(step)
        .filter(|(_, each)| *each >= limit)
        .map(|(class, _)| class.class.as_str())
        .collect()
}

fn account(step: &StepStats, dear: &[&str]) -> Option<Account> {
    let mut kinds = [KindAccount::default(), KindAccount { dear: true, ..KindAccount::default() }];
    let (mut hertz, mut backlogged) = (0.0, Cycles::default());
    for (class, _) in measured(step) {
        let cycles = class.cycles?;
        let kind = &mut kinds[usize::from(dear.contains(&class.class.as_str()))];
        // Packets of sources that are not counted cannot be missed.
        let offered = class.offered.unwrap_or(cycles.passed + cycles.refused);
        let lost = (offered - cycles.passed - cycles.refused).max(0.0);
        let flows = class.core.map_or(1, |core| core.flows.max(1));
        kind.flows += flows;
        kind.offered += offered;
        kind.lost += lost;
        kind.refused += cycles.refused;
        kind.passed += cycles.passed;
        kind.cycles += cycles.spent;
        hertz = cycles.hertz;
        if lost + cycles.refused > BACKLOGGED * offered {
            backlogged.flows += flows;
            backlogged.sum += cycles.spent;
            backlogged.squares +=
                class.core.map_or(cycles.spent * cycles.spent, |core| core.squares);
        }
    }
    let kinds: Vec<_> = kinds.into_iter().filter(|kind| kind.flows > 0).collect();
    (!kinds.is_empty()).then(|| Account {
        step: step.step.clone(),
        kinds,
        jain: backlogged.jain(),
        hertz,
    })
}

/// Cycles per second of some flows.
#[derive(Default)]
struct Cycles {
    flows: u32,
    sum: f64,
    squares: f64,
}

impl Cycles {
    /// Jain, Chiu, Hawe 1984.
    fn jain(&self) -> Option<f64> {
        let known = self.flows > 1 && self.squares > 0.0;
        known.then(|| self.sum * self.sum / (f64::from(self.flows) * self.squares))
    }
}

/// The accounts as a table for the terminal; empty if the run has not measured cycles.
#[must_use]
pub fn table(run: &Run) -> String {
    let accounts = accounts(run);
    if accounts.is_empty() {
        return String::new();
    }
    let mut table = Table::new([
        "step",
        "flows",
        "sent to it/s",
        "lost at the ring",
        "dropped by FairDrop",
        "forwarded",
        "each flow",
        "cycles each",
        "share of cycles",
        "Jain",
    ]);
    for account in &accounts {
        let all: f64 = account.kinds.iter().map(|kind| kind.cycles).sum();
        for (at, kind) in account.kinds.iter().enumerate() {
            let first = |text: String| if at == 0 { text } else { String::new() };
            table.row([
                first(account.step.clone()),
                kind.name(),
                grouped(kind.offered),
                grouped(kind.lost),
                grouped(kind.refused),
                grouped(kind.passed),
                grouped(kind.passed / f64::from(kind.flows)),
                grouped(kind.each()),
                format!("{:.0} %", kind.cycles / all.max(1e-9) * 100.0),
                first(account.jain.map_or_else(|| "–".to_owned(), |jain| format!("{jain:.3}"))),
            ]);
        }
        table.rule();
    }
    table.render()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::{CoreSample, CycleSample, Sample, StepMark};

    /// Two cheap flows of 10 cycles and a dear one of 100, in one window of a second.
    fn run(offered: u64, passed: [u64; 3], refused: [u64; 3]) -> Run {
        let samples = (0..3).map(|at| Sample {
            t_s: 1.0,
            window_s: 1.0,
            class: format!("c{at}"),
            offered: Some(offered),
            cycles: Some(CycleSample {
                spent: passed[at] * if at == 2 { 100 } else { 10 },
                passed: passed[at],
                refused: refused[at],
                refused_cycles: refused[at],
                hertz: 1_000,
            }),
            ..Sample::default()
        });
        let steps = vec![StepMark { name: "start".into(), at_s: 0.0, changes: Vec::new() }];
        Run { sample_s: 1.0, duration_s: 1.0, steps, samples: samples.collect(), ..Run::default() }
    }

    #[test]
    fn packets_are_lost_refused_or_forwarded_and_the_dear_ones_are_told_apart() {
        let accounts = accounts(&run(50, [40, 40, 4], [0, 0, 30]));
        let [account] = accounts.as_slice() else { panic!("{accounts:?}") };
        let [light, heavy] = account.kinds.as_slice() else { panic!("{account:?}") };
        assert_eq!((light.flows, light.offered, light.lost, light.passed), (2, 100.0, 20.0, 80.0));
        assert_eq!((heavy.flows, heavy.lost, heavy.refused, heavy.passed), (1, 16.0, 30.0, 4.0));
        assert!((heavy.each() - 100.0).abs() < 1e-9);
        // All three lost something, and each has 400 cycles.
        assert!((account.jain.unwrap() - 1.0).abs() < 1e-12, "{account:?}");
    }

    /// A class of a simulated core is many flows: they are counted, and what is unfair among them
    /// shows.
    #[test]
    fn flows_that_are_counted_together_are_told_apart() {
        let index = |shares: [[f64; 3]; 2]| {
            let mut run = run(50, [40, 40, 4], [0, 0, 30]);
            run.samples.retain(|sample| sample.class != "c1");
            for (sample, shares) in run.samples.iter_mut().zip(shares) {
                let squares = shares.iter().map(|x| x * x).sum();
                sample.core = Some(CoreSample { fair_cycles: 400.0, flows: 3, squares });
            }
            let accounts = accounts(&run);
            assert_eq!(accounts[0].kinds[0].name(), "3 light");
            assert_eq!(accounts[0].kinds[1].flows, 3);
            accounts[0].jain.unwrap()
        };
        let third = 400.0 / 3.0;
        assert!((index([[third; 3], [third; 3]]) - 1.0).abs() < 1e-9);
        // 2 x 400 cycles in all: 640 000 / (6 x 320 000).
        assert!((index([[400.0, 0.0, 0.0], [400.0, 0.0, 0.0]]) - 1.0 / 3.0).abs() < 1e-9);
    }

    #[test]
    fn who_loses_nothing_does_not_count_for_fairness() {
        let accounts = accounts(&run(40, [40, 40, 10], [0; 3]));
        assert_eq!(accounts[0].jain, None, "only the dear flow is backlogged");
        assert!(table(&run(40, [40, 40, 10], [0; 3])).contains("heavy"));
    }

    #[test]
    fn a_run_without_cycles_has_no_accounts() {
        let mut run = run(40, [40; 3], [0; 3]);
        run.samples.iter_mut().for_each(|sample| sample.cycles = None);
        assert!(accounts(&run).is_empty() && table(&run).is_empty());
    }
}
