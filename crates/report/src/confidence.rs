//! Means over seeds and how sure they are: 95 % intervals after Student's t distribution.

/// Upper 97.5 % points of Student's t distribution for 1 to 30 degrees of freedom.
const STUDENT: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
    2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
    2.052, 2.048, 2.045, 2.042,
];

/// Further points: degrees of freedom, point. Between them the inverse of the degrees is
/// interpolated.
const BEYOND: [(f64, f64); 5] =
    [(30.0, 2.042), (40.0, 2.021), (60.0, 2.000), (120.0, 1.980), (f64::INFINITY, 1.960)];

/// A mean and the half width of its 95 % confidence interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The mean.
    pub mean: f64,
    /// Half the width of the interval; `None` for a single value, which says nothing about its
    /// spread.
    pub half: Option<f64>,
    /// Values behind it.
    pub count: usize,
}

impl Estimate {
    /// From independent values; `None` if there are none. Takes them for normally distributed about
    /// a common mean.
    #[must_use]
    pub fn of(values: &[f64]) -> Option<Self> {
        let count = values.len();
        if count == 0 {
            return None;
        }
        let n = count as f64;
        let mean = values.iter().sum::<f64>() / n;
        let half = (count > 1).then(|| {
            let squares: f64 = values.iter().map(|value| (value - mean) * (value - mean)).sum();
            student(count - 1) * (squares / (n - 1.0) / n).sqrt()
        });
        Some(Self { mean, half, count })
    }
}

/// The point for so many degrees of freedom, at least one.
fn student(degrees: usize) -> f64 {
    if let Some(point) = STUDENT.get(degrees.max(1) - 1) {
        return *point;
    }
    let inverse = 1.0 / degrees as f64;
    let pair = BEYOND.windows(2).find(|pair| 1.0 / pair[1].0 <= inverse).unwrap_or(&BEYOND[3..]);
    let (from, to) = (1.0 / pair[0].0, 1.0 / pair[1].0);
    pair[1].1 + (pair[0].1 - pair[1].1) * (inverse - to) / (from - to)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_textbook_interval() {
        // Mean 3, standard deviation sqrt(2.5), five values: 3 +- 2.776 * sqrt(2.5 / 5).
        let estimate = Estimate::of(&[1.0, 2.0, 3.0, 4.0, 5.0]).unwrap();
        assert_eq!(estimate.mean, 3.0);
        assert!((estimate.half.unwrap() - 2.776 * 0.5_f64.sqrt()).abs() < 1e-12);
    }

    #[test]
    fn one_value_has_no_interval_and_equal_values_one_of_no_width() {
        assert_eq!(Estimate::of(&[7.0]).unwrap().half, None);
        assert_eq!(Estimate::of(&[7.0, 7.0, 7.0]).unwrap().half, Some(0.0));
        assert_eq!(Estimate::of(&[]), None);
    }

    #[test]
    fn beyond_the_table_the_points_go_on_falling() {
        assert_eq!(student(40), 2.021);
        assert!((student(35) - 2.030).abs() < 0.001);
        assert!(student(1000) > 1.960 && student(1000) < 1.963);
    }
}
