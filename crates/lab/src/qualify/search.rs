//! The search for the highest rate at which a device loses no more than a given part of the frames.
//!
//! Bisection over trials, as RFC 2544 section 26.1 and its descendants have it, begun where the
//! device delivers when it is overloaded. What disturbs a measurement makes frames get lost and
//! never brings them back; so a rate counts as reached if it was reached once.

/// Loss that the non-drop rate tolerates: a part of the frames.
pub const NDR_LOSS: f64 = 1e-5;
/// Loss that the partial drop rate tolerates.
pub const PDR_LOSS: f64 = 0.005;

/// A trial as the search sees it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Frames per second that were really sent.
    pub offered: f64,
    /// Part of them that did not arrive in time, 0 to 1.
    pub loss: f64,
}

impl Point {
    /// Frames per second that arrived.
    #[must_use]
    pub fn delivered(self) -> f64 {
        self.offered * (1.0 - self.loss)
    }
}

/// What a search ended with, in frames per second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Found {
    /// The highest rate that was reached; 0: none was.
    pub rate: f64,
    /// The lowest rate above it that was not; `None`: the tester could not send faster, the device
    /// may do more.
    pub above: Option<f64>,
}

/// Trials at most, for one search.
const TRIALS: usize = 16;
/// Where nothing was reached at any rate, nothing is looked for below this part of what the tester
/// can send.
const LOWEST: f64 = 1e-4;

/// What is known for a tolerated loss.
#[must_use]
pub fn known(points: &[Point], tolerated: f64) -> Found {
    let reached = points.iter().filter(|point| point.loss <= tolerated).map(|point| point.offered);
    let rate = reached.fold(0.0, f64::max);
    let failed = points.iter().filter(|point| point.loss > tolerated && point.offered > rate);
    let above = failed.map(|point| point.offered).reduce(f64::min);
    Found { rate, above }
}

/// Searches until the rate is known as exactly as `precision` (0.01: one percent) says, `trial`
/// (given a rate) returns `None`, or too many trials were run. `points` holds trials already run,
/// the first of them as fast as the tester can; those run now are added.
pub fn search(
    points: &mut Vec<Point>,
    tolerated: f64,
    precision: f64,
    mut trial: impl FnMut(f64) -> Option<Point>,
) -> Found {
    let Some(fastest) = points.first().copied() else { return Found { rate: 0.0, above: None } };
    let mut step = precision * 2.0;
    for _ in 0..TRIALS {
        let found = known(points, tolerated);
        let Some(above) = found.above else { break };
        let nothing_reached = found.rate == 0.0 && above < fastest.offered * LOWEST;
        if above <= found.rate * (1.0 + precision) || nothing_reached {
            break;
        }
        let middle = if found.rate > 0.0 { (found.rate * above).sqrt() } else { above / 2.0 };
        // From the last trial in small steps that grow: the first guess is a good one.
        let next = match points.last() {
            Some(_) if points.len() == 1 => fastest.delivered(),
            Some(last) if last.loss <= tolerated => found.rate * (1.0 + step),
            _ => above * (1.0 - step),
        };
        let inside = next > found.rate && next < above;
        let next = if inside { next } else { middle };
        step *= 2.0;
        let Some(point) = trial(next) else { break };
        points.push(point);
    }
    known(points, tolerated)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A device that forwards up to `capacity`, and a tester that sends up to `fastest`.
    fn device(capacity: f64, fastest: f64) -> impl Fn(f64) -> Point {
        move |rate| {
            let offered = rate.min(fastest);
            Point { offered, loss: (1.0 - capacity / offered).max(0.0) }
        }
    }

    #[test]
    fn the_capacity_is_found_as_exactly_as_was_asked() {
        for (capacity, precision) in
            [(2_350.0, 0.01), (812_743.0, 0.005), (17.0, 0.02), (999_000.0, 0.01)]
        {
            let device = device(capacity, 1e6);
            let mut points = vec![device(f64::INFINITY)];
            let found = search(&mut points, 1e-5, precision, |rate| Some(device(rate)));
            assert!(found.rate <= capacity * 1.000_011, "{capacity}: {found:?}");
            assert!(found.rate >= capacity / (1.0 + precision) * 0.999, "{capacity}: {found:?}");
            assert!(
                found.above.is_some_and(|above| above <= found.rate * (1.0 + precision)),
                "{found:?}"
            );
            assert!(points.len() <= 1 + TRIALS, "{} trials", points.len());
        }
    }

    #[test]
    fn some_loss_is_tolerated_where_it_may_be() {
        let device = device(100_000.0, 1e6);
        let mut points = vec![device(f64::INFINITY)];
        let partial = search(&mut points, 0.005, 0.002, |rate| Some(device(rate)));
        let none = search(&mut points, 1e-5, 0.002, |rate| Some(device(rate)));
        assert!(partial.rate > 100_100.0 && partial.rate <= 100_510.0, "{partial:?}");
        assert!(none.rate <= 100_001.1 && none.rate > 99_700.0, "{none:?}");
    }

    #[test]
    fn a_device_that_collapses_under_overload_is_searched_upwards() {
        let collapsing = |rate: f64| {
            let offered = rate.min(1e6);
            let delivered = if offered > 400_000.0 { 20_000.0 } else { offered };
            Point { offered, loss: 1.0 - delivered / offered }
        };
        let mut points = vec![collapsing(f64::INFINITY)];
        let found = search(&mut points, 1e-5, 0.01, |rate| Some(collapsing(rate)));
        assert!((390_000.0..=400_000.0).contains(&found.rate), "{found:?}");
    }

    #[test]
    fn a_tester_that_is_too_slow_and_a_device_that_is_dead_are_told() {
        let fast = device(2e6, 1e6);
        let mut points = vec![fast(f64::INFINITY)];
        let found =
            search(&mut points, 1e-5, 0.01, |_| unreachable!("there is nothing to look for"));
        assert_eq!(found, Found { rate: 1e6, above: None });
        let mut points = vec![Point { offered: 1e6, loss: 1.0 }];
        let found = search(&mut points, 1e-5, 0.01, |offered| Some(Point { offered, loss: 1.0 }));
        assert!(found.rate == 0.0 && found.above.is_some(), "{found:?}");
        assert!(points.len() <= 1 + TRIALS);
    }

    #[test]
    fn a_search_that_runs_out_of_time_says_what_it_knows() {
        let device = device(100_000.0, 1e6);
        let mut points = vec![device(f64::INFINITY), device(50_000.0)];
        assert_eq!(
            search(&mut points, 1e-5, 0.01, |_| None),
            Found { rate: 50_000.0, above: Some(1e6) }
        );
    }
}
