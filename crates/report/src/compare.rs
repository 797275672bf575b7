//! Results of one scenario from several worlds and seeds, put side by side.

use crate::confidence::Estimate;
use crate::html::Report;
use crate::judge::{Judgement, PublishedValue};
use crate::run::{Run, StepMark};
use crate::slug::slug;

/// One scenario: what every world and seed made of it.
#[derive(Clone, Debug, Default)]
pub struct Comparison {
    /// `lct/fig4`.
    pub name: String,
    /// The mechanism that was switched off in these runs, if one was.
    pub without: Option<String>,
    /// The worlds, the simulation first.
    pub worlds: Vec<WorldResults>,
}

/// The results of one world, one for each seed.
#[derive(Clone, Debug, Default)]
pub struct WorldResults {
    /// `sim`, `lab`; with the scale of times where they were scaled: `lab, times × 0.06`.
    pub label: String,
    /// `sim`, `lab`.
    pub world: String,
    /// Factor by which times were multiplied.
    pub time_scale: f64,
    /// In order of their seeds; each holds one run.
    pub results: Vec<Report>,
}

/// Puts results that belong together into comparisons, in the order of their names. Of two results
/// of the same scenario, world, seed and time scale the later in `reports` counts. Results of
/// several runs (a demo) stay by themselves: second part.
#[must_use]
pub fn group(reports: Vec<Report>) -> (Vec<Comparison>, Vec<Report>) {
    let mut comparisons: Vec<Comparison> = Vec::new();
    let mut alone = Vec::new();
    for report in reports {
        let [run] = report.runs.as_slice() else {
            alone.push(report);
            continue;
        };
        let world = run.world.clone();
        let same = |c: &Comparison| c.name == report.name && c.without == report.without;
        let at = comparisons.iter().position(same).unwrap_or_else(|| {
            comparisons.push(Comparison {
                name: report.name.clone(),
                without: report.without.clone(),
                worlds: Vec::new(),
            });
            comparisons.len() - 1
        });
        let worlds = &mut comparisons[at].worlds;
        let same = |w: &WorldResults| w.world == world && w.time_scale == report.time_scale;
        let at = worlds.iter().position(same).unwrap_or_else(|| {
            let scaled = (report.time_scale - 1.0).abs() > 1e-9;
            let label = match world.as_str() {
                "sim" => "simulation",
                other => other,
            };
            let label = if scaled {
                format!("{label}, times × {}", report.time_scale)
            } else {
                label.to_owned()
            };
            let time_scale = report.time_scale;
            worlds.push(WorldResults { label, world, time_scale, results: Vec::new() });
            worlds.len() - 1
        });
        worlds[at].results.retain(|other| other.seed != report.seed);
        worlds[at].results.push(report);
    }
    comparisons.sort_by(|a, b| (&a.name, &a.without).cmp(&(&b.name, &b.without)));
    for comparison in &mut comparisons {
        // The simulation first, then by name; whole times before scaled ones.
        comparison.worlds.sort_by(|a, b| {
            let key = |w: &WorldResults| (w.world != "sim", w.world.clone());
            key(a).cmp(&key(b)).then(b.time_scale.total_cmp(&a.time_scale))
        });
        for world in &mut comparison.worlds {
            world.results.sort_by_key(|report| report.seed);
        }
    }
    (comparisons, alone)
}

/// Puts results beside each other as they were given, under a heading: for each name its results,
/// each of which has been read from a folder of that name. What differs in scenario, mechanism or
/// world, or is one of several runs of a result, is a run of its own, with a label that says so.
#[must_use]
pub fn beside(title: &str, named: Vec<(String, Vec<Report>)>) -> Comparison {
    let mut worlds: Vec<WorldResults> = Vec::new();
    for (name, reports) in named {
        let parts: Vec<(Vec<String>, Report)> = reports.into_iter().flat_map(each_run).collect();
        // Only what tells them apart stands in the label.
        let differs: Vec<bool> = (0..PARTS)
            .map(|part| parts.iter().any(|(of, _)| of[part] != parts[0].0[part]))
            .collect();
        for (of, mut report) in parts {
            let told = of.iter().zip(&differs).filter(|(text, told)| **told && !text.is_empty());
            let told: Vec<&str> = told.map(|(text, _)| text.as_str()).collect();
            let label =
                if told.is_empty() { name.clone() } else { format!("{name}: {}", told.join(", ")) };
            for run in &mut report.runs {
                run.name.clone_from(&label);
            }
            match worlds.iter_mut().find(|world| world.label == label) {
                Some(world) => world.results.push(report),
                None => {
                    let world = report.runs.first().map(|run| run.world.clone());
                    worlds.push(WorldResults {
                        label,
                        world: world.unwrap_or_default(),
                        time_scale: report.time_scale,
                        results: vec![report],
                    });
                }
            }
        }
    }
    Comparison { name: title.to_owned(), without: None, worlds }
}

/// How many parts a label has.
const PARTS: usize = 5;

/// A result for each run of a result, and what may tell it from others.
fn each_run(report: Report) -> Vec<(Vec<String>, Report)> {
    let of_run = |run: &Run| {
        let without = report.without.as_ref().map(|name| format!("without {name}"));
        let scaled = (report.time_scale - 1.0).abs() > 1e-9;
        let scale = scaled.then(|| format!("times × {}", report.time_scale));
        let label: [String; PARTS] = [
            report.name.clone(),
            run.name.clone(),
            without.unwrap_or_default(),
            run.world.clone(),
            scale.unwrap_or_default(),
        ];
        let of_it = report.judgements.iter().filter(|judgement| judgement.run == run.name);
        let judgements = of_it.cloned().collect();
        let alone = Report { runs: vec![run.clone()], judgements, ..report.clone() };
        (label.to_vec(), alone)
    };
    report.runs.iter().map(of_run).collect()
}

/// A quantity over time: at the middle of each window, in unscaled seconds, the estimate over all
/// seeds.
pub(crate) type Curve = Vec<(f64, Option<Estimate>)>;

impl WorldResults {
    /// The runs, one for each seed.
    pub fn runs(&self) -> impl Iterator<Item = &Run> {
        self.results.iter().flat_map(|report| &report.runs)
    }

    /// Time in the scenario, as if it had not been scaled.
    pub(crate) fn unscaled(&self, t_s: f64) -> f64 {
        if self.time_scale > 0.0 { t_s / self.time_scale } else { t_s }
    }

    /// The steps as they are in the scenario, times unscaled.
    #[must_use]
    pub fn steps(&self) -> Vec<StepMark> {
        let steps = self.runs().next().map(|run| run.steps.clone()).unwrap_or_default();
        steps.into_iter().map(|step| StepMark { at_s: self.unscaled(step.at_s), ..step }).collect()
    }

    /// The seeds' windows put together: `rows` gives end, length and value of the windows of a run.
    pub(crate) fn curve(&self, rows: impl Fn(&Run) -> Vec<(f64, f64, Option<f64>)>) -> Curve {
        let mut windows: Vec<(f64, Vec<f64>)> = Vec::new();
        for run in self.runs() {
            for (index, (t_s, window_s, value)) in rows(run).into_iter().enumerate() {
                if windows.len() <= index {
                    windows.push((self.unscaled(t_s - window_s / 2.0), Vec::new()));
                }
                windows[index].1.extend(value);
            }
        }
        windows.into_iter().map(|(t_s, values)| (t_s, Estimate::of(&values))).collect()
    }

    /// The judgements of the expectation with this name, one for each seed.
    pub(crate) fn judgements(&self, name: &str) -> Vec<&Judgement> {
        self.results
            .iter()
            .flat_map(|report| &report.judgements)
            .filter(|j| j.name == name)
            .collect()
    }

    /// An estimate over seeds of a number behind an expectation.
    pub(crate) fn term(&self, expectation: &str, text: &str) -> Option<Estimate> {
        let value =
            |judgement: &Judgement| judgement.measured.iter().find(|term| term.text == text)?.value;
        let values: Vec<f64> = self.judgements(expectation).into_iter().filter_map(value).collect();
        Estimate::of(&values)
    }

    /// An estimate over seeds of a quantity for which a number was published.
    pub(crate) fn published(&self, quantity: &str) -> Option<Estimate> {
        let all =
            self.results.iter().flat_map(|report| &report.judgements).flat_map(|j| &j.published);
        let values: Vec<f64> =
            all.filter(|p| p.quantity == quantity).filter_map(|p| p.measured).collect();
        Estimate::of(&values)
    }

    /// How many of all results have a bad verdict.
    #[must_use]
    pub fn failed(&self) -> usize {
        self.results.iter().filter(|report| report.failed()).count()
    }
}

impl Comparison {
    /// Links with packets, in the order in which they first appear.
    pub(crate) fn links(&self) -> Vec<(String, String)> {
        let mut links: Vec<(String, String)> = Vec::new();
        for sample in self.worlds.iter().flat_map(WorldResults::runs).flat_map(|run| &run.samples) {
            let link = (sample.router.clone(), sample.link.clone());
            if sample.sent_packets + sample.dropped_total() > 0 && !links.contains(&link) {
                links.push(link);
            }
        }
        links
    }

    /// Classes with packets, in the order in which they first appear.
    pub(crate) fn classes(&self) -> Vec<String> {
        let mut classes: Vec<String> = Vec::new();
        for sample in self.worlds.iter().flat_map(WorldResults::runs).flat_map(|run| &run.samples) {
            if sample.sent_packets + sample.dropped_total() + sample.qlen > 0
                && !classes.contains(&sample.class)
            {
                classes.push(sample.class.clone());
            }
        }
        classes
    }

    /// The steps of the first world, unscaled.
    pub(crate) fn steps(&self) -> Vec<StepMark> {
        self.worlds.first().map(WorldResults::steps).unwrap_or_default()
    }

    /// What is the same in all results: heading, source, claim, notes.
    #[must_use]
    pub fn head(&self) -> Option<&Report> {
        self.worlds.first()?.results.first()
    }

    /// Every quantity for which a number was published, once.
    #[must_use]
    pub fn published(&self) -> Vec<&PublishedValue> {
        let mut found: Vec<&PublishedValue> = Vec::new();
        let results = self.worlds.iter().flat_map(|world| &world.results);
        for value in results.flat_map(|report| &report.judgements).flat_map(|j| &j.published) {
            if !found.iter().any(|known| known.quantity == value.quantity) {
                found.push(value);
            }
        }
        found
    }

    /// All results.
    pub fn results(&self) -> impl Iterator<Item = &Report> {
        self.worlds.iter().flat_map(|world| &world.results)
    }

    /// The name of its page and data files: `lct-fig4`.
    #[must_use]
    pub fn slug(&self) -> String {
        let name = match &self.without {
            Some(without) => format!("{}-without-{without}", self.name),
            None => self.name.clone(),
        };
        slug(&name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    fn result(world: &str, seed: u64, time_scale: f64, sent: u64) -> Report {
        let mut run = fixture::two_steps();
        run.world = world.to_owned();
        for sample in &mut run.samples {
            sample.sent_packets = sent;
            sample.t_s *= time_scale;
            sample.window_s *= time_scale;
        }
        Report {
            name: "x".to_owned(),
            seed: Some(seed),
            time_scale,
            runs: vec![run],
            ..Report::default()
        }
    }

    #[test]
    fn seeds_of_a_world_are_one_curve_and_a_repeated_seed_counts_once() {
        let reports = vec![
            result("lab", 1, 0.5, 7),
            result("sim", 2, 1.0, 20),
            result("sim", 1, 1.0, 99),
            result("sim", 1, 1.0, 10),
        ];
        let (comparisons, alone) = group(reports);
        assert!(alone.is_empty());
        assert_eq!(comparisons.len(), 1);
        let worlds = &comparisons[0].worlds;
        assert_eq!(
            worlds.iter().map(|w| w.label.as_str()).collect::<Vec<_>>(),
            ["simulation", "lab, times × 0.5"]
        );
        let rows = |run: &Run| -> Vec<(f64, f64, Option<f64>)> {
            run.samples
                .iter()
                .filter(|s| s.class == "class1")
                .map(|s| (s.t_s, s.window_s, Some(s.sent_packets as f64)))
                .collect()
        };
        let curve = worlds[0].curve(rows);
        assert_eq!((curve.len(), curve[0].0), (8, 0.5));
        let first = curve[0].1.unwrap();
        assert_eq!((first.mean, first.count), (15.0, 2));
        assert_eq!(worlds[1].curve(rows)[7].0, 7.5, "scaled times are shown unscaled");
    }

    #[test]
    fn runs_without_a_mechanism_and_runs_of_several_stay_apart() {
        let mut without = result("sim", 1, 1.0, 1);
        without.without = Some("a ring".to_owned());
        let mut several = result("lab", 1, 1.0, 1);
        several.runs.push(fixture::two_steps());
        let (comparisons, alone) = group(vec![without, result("sim", 1, 1.0, 1), several]);
        assert_eq!(
            comparisons.iter().map(Comparison::slug).collect::<Vec<_>>(),
            ["x", "x-without-a-ring"]
        );
        assert_eq!(alone.len(), 1);
    }

    #[test]
    fn results_stand_beside_each_other_by_what_tells_them_apart() {
        let named = vec![
            ("fifo".to_owned(), vec![result("sim", 1, 1.0, 1), result("sim", 2, 1.0, 3)]),
            ("wfq".to_owned(), vec![result("sim", 1, 1.0, 2), result("lab", 1, 1.0, 2)]),
        ];
        let comparison = beside("Two", named);
        let told: Vec<_> =
            comparison.worlds.iter().map(|w| (w.label.as_str(), w.results.len())).collect();
        assert_eq!(told, [("fifo", 2), ("wfq: sim", 1), ("wfq: lab", 1)]);
        let page = crate::html::beside(&comparison, &["samples.csv".to_owned()]);
        for text in ["fifo", "wfq: lab", "CDF", "95 % confidence", "href=\"samples.csv\""] {
            assert!(page.contains(text), "{text}");
        }
        // A run alone is a comparison of one.
        let one = beside("One", vec![("a".to_owned(), vec![result("sim", 1, 1.0, 1)])]);
        assert_eq!(one.worlds.len(), 1);
        assert!(!crate::html::beside(&one, &[]).contains("95 % confidence"));
    }
}
