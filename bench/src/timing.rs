//! Timing that admits noise: rounds in turn, medians with their range, and a calibration loop that
//! notices when the machine itself is slow.

use evenkeel_lab::qualify::calibrate;

/// Median, smallest and largest of some measurements.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
}

impl Spread {
    /// Of a non-empty set.
    pub(crate) fn of(mut values: Vec<f64>) -> Self {
        assert!(!values.is_empty(), "a spread of nothing");
        values.sort_by(f64::total_cmp);
        Self { median: values[values.len() / 2], min: values[0], max: values[values.len() - 1] }
    }
}

/// A name, and what takes one measurement.
pub(crate) type Case<'a> = (String, Box<dyn FnMut() -> f64 + 'a>);

/// Measurements of several cases, taken in turn so that a slow phase of the machine meets all of
/// them.
pub(crate) struct Rounds {
    names: Vec<String>,
    values: Vec<Vec<f64>>,
    speed: Vec<f64>,
}

impl Rounds {
    /// Runs every case `rounds` times, one after the other, the calibration loop before and after
    /// each round.
    pub(crate) fn run(rounds: usize, cases: &mut [Case<'_>]) -> Self {
        let names = cases.iter().map(|(name, _)| name.clone()).collect();
        let mut values = vec![Vec::with_capacity(rounds); cases.len()];
        let mut speed = vec![calibrate()];
        for _ in 0..rounds {
            for ((_, case), values) in cases.iter_mut().zip(&mut values) {
                values.push(case());
            }
            speed.push(calibrate());
        }
        Self { names, values, speed }
    }

    /// Name and spread of every case, in their order. Measurements that are not numbers were
    /// refused; `None` if all were.
    pub(crate) fn rows(&self) -> impl Iterator<Item = (&str, Option<Spread>)> {
        let spread = |values: &Vec<f64>| {
            let accepted: Vec<f64> =
                values.iter().copied().filter(|value| !value.is_nan()).collect();
            (!accepted.is_empty()).then(|| Spread::of(accepted))
        };
        self.names.iter().map(String::as_str).zip(self.values.iter().map(spread))
    }

    /// The median over rounds of case `index` divided by case `base` of the same round.
    pub(crate) fn ratio(&self, index: usize, base: usize) -> f64 {
        self.ratio_to_best(index, &[base])
    }

    /// The median over rounds of case `index` divided by the largest of `bases` of the same round;
    /// not a number without a round in which all were accepted.
    pub(crate) fn ratio_to_best(&self, index: usize, bases: &[usize]) -> f64 {
        let ratio = |(round, value): (usize, &f64)| {
            let bases = bases.iter().map(|base| self.values[*base][round]);
            value / bases.reduce(|a, b| if a > b || a.is_nan() { a } else { b }).unwrap_or(f64::NAN)
        };
        let ratios =
            self.values[index].iter().enumerate().map(ratio).filter(|ratio| !ratio.is_nan());
        let ratios: Vec<f64> = ratios.collect();
        if ratios.is_empty() { f64::NAN } else { Spread::of(ratios).median }
    }

    /// What the calibration loop saw: whether absolute numbers of this run can be trusted.
    pub(crate) fn verdict(&self) -> String {
        let s = Spread::of(self.speed.clone());
        let steady = s.max / s.min < 1.25;
        format!(
            "calibration loop {:.2} ns a step ({:.2} to {:.2}): {}",
            s.median,
            s.min,
            s.max,
            if steady {
                "the machine was steady"
            } else {
                "the machine changed its speed during the run; trust ratios, not nanoseconds"
            }
        )
    }
}
