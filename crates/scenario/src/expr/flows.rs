//! What expectations ask of flows one by one: `p99(fct(web))`, `jain(flow_goodput(bulk-*)@load)`.
//!
//! A flow is what a row of `flows.csv` is. What is asked has a statistic around it, since there is
//! no number for "the flows" as such, and no mean is taken where nobody asked for it.

use super::words::words;

words! {
    /// What is measured of each flow.
    FlowMetric:
    /// flow completion time: from the beginning of a flow that has something to carry until the
    /// last of it was acknowledged; a flow that was not done by the end of the run took longer than
    /// all others
    Fct "fct", "us";
    /// payload delivered over the flow's time (RFC 2647)
    Goodput "flow_goodput", "bit/s";
    /// payload delivered
    Bytes "flow_bytes", "bytes";
    /// packets lost (UDP) or sent again (TCP), as a part of those sent
    Loss "flow_loss", "";
    /// retransmission time-outs
    Timeouts "flow_timeouts", "";
    /// mean round-trip time that the sender of a TCP connection measured, of the handshake on
    Rtt "flow_rtt", "us";
    /// responsiveness (draft-ietf-ippm-responsiveness): round trips per minute, 60 s by `flow_rtt`.
    /// Of connections that fill a link that is their own, of short ones beside them the foreign one
    Rpm "rpm", "1/min";
}

words! {
    /// What is made of the numbers of several flows or subscribers, but quantiles.
    Fold:
    /// their mean
    Mean "mean";
    /// their sum
    Sum "sum";
    /// the least of them
    Min "min";
    /// the greatest of them
    Max "max";
    /// of the flow or subscriber that fared worst: the greatest, of `flow_goodput`, `flow_bytes`,
    /// `rpm`, `subscriber_rate` and `cap_use` the least
    Worst "worst";
    /// Jain's index of fairness (Jain, Chiu, Hawe 1984): 1 where all are equal, 1/n where one of n
    /// has all
    Jain "jain";
    /// how many there are
    Count "count";
}

/// A statistic over flows or subscribers.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Statistic {
    /// `p1` to `p99`: the nearest rank, which is the number of a flow that there was.
    Quantile(u8),
    /// All others.
    Fold(Fold),
}

impl FlowMetric {
    /// Whether who has less of it fares worse.
    #[must_use]
    pub const fn less_is_worse(self) -> bool {
        matches!(self, Self::Goodput | Self::Bytes | Self::Rpm)
    }
}

impl Statistic {
    pub(super) fn named(name: &str) -> Option<Self> {
        let quantile = || match name.strip_prefix('p')?.parse().ok()? {
            percent @ 1..=99 if !name.starts_with("p0") => Some(Self::Quantile(percent)),
            _ => None,
        };
        Fold::named(name).map(Self::Fold).or_else(quantile)
    }

    /// Of numbers of flows, infinite where a flow was not done, or of subscribers; `None` if there
    /// are none, or if those that were not done leave it unknown.
    #[must_use]
    pub fn of(self, less_is_worse: bool, mut values: Vec<f64>) -> Option<f64> {
        if let Self::Fold(Fold::Count) = self {
            return Some(values.len() as f64);
        }
        if values.is_empty() {
            return None;
        }
        let value = match self {
            Self::Quantile(percent) => {
                values.sort_by(f64::total_cmp);
                let rank = (usize::from(percent) * values.len()).div_ceil(100);
                values[rank.max(1) - 1]
            }
            Self::Fold(fold) => fold.of(less_is_worse, &values)?,
        };
        value.is_finite().then_some(value)
    }

    /// The unit of it, of numbers in this one.
    pub(super) const fn unit(self, unit: &'static str) -> &'static str {
        match self {
            Self::Fold(Fold::Jain | Fold::Count) => "",
            _ => unit,
        }
    }
}

impl Fold {
    /// Those that numbers have that are not of flows: nobody knows which of them is the worse, and
    /// how many they are stands in the expression.
    pub(super) fn is_of_numbers(self) -> bool {
        !matches!(self, Self::Worst | Self::Count)
    }

    /// Of any numbers, of which there is one at least; `None`: there is none.
    pub(super) fn of_numbers(self, values: &[f64]) -> Option<f64> {
        let sum = || values.iter().sum::<f64>();
        Some(match self {
            Self::Mean => sum() / values.len() as f64,
            Self::Sum => sum(),
            Self::Min => values.iter().copied().fold(f64::INFINITY, f64::min),
            Self::Max | Self::Worst => values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            Self::Jain => {
                let squares: f64 = values.iter().map(|x| x * x).sum();
                // Where all are zero nothing was shared.
                return (squares > 0.0).then(|| sum() * sum() / (values.len() as f64 * squares));
            }
            Self::Count => values.len() as f64,
        })
    }

    fn of(self, less_is_worse: bool, values: &[f64]) -> Option<f64> {
        let fold = if self == Self::Worst && less_is_worse { Self::Min } else { self };
        fold.of_numbers(values)
    }
}

/// Which flows, and what of each.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct FlowSet {
    /// What is measured of each.
    pub metric: FlowMetric,
    /// The `[[traffic]]` that they belong to, by name.
    pub traffic: Vec<String>,
    /// Those that began during this step; `None`: all of the run.
    pub step: Option<usize>,
}

/// A statistic of flows, as an expectation asks for it.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct OfFlows {
    /// What is made of their numbers.
    pub statistic: Statistic,
    /// Which they are.
    pub flows: FlowSet,
}

impl OfFlows {
    pub(super) fn unit(&self) -> &'static str {
        self.statistic.unit(self.flows.metric.unit())
    }
}

/// Whether `name` is meant by `pattern`, in which a `*` stands for any text.
pub(crate) fn matches(pattern: &str, name: &str) -> bool {
    let Some((head, rest)) = pattern.split_once('*') else { return pattern == name };
    let Some(mut left) = name.strip_prefix(head) else { return false };
    let mut parts: Vec<_> = rest.split('*').collect();
    let last = parts.pop().unwrap_or_default();
    for part in parts {
        let Some(at) = left.find(part) else { return false };
        left = &left[at + part.len()..];
    }
    left.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics_are_those_of_flows_that_there_were() {
        let of = |name: &str, metric, values: &[f64]| {
            Statistic::named(name).unwrap().of(FlowMetric::less_is_worse(metric), values.to_vec())
        };
        let five = [50.0, 10.0, 40.0, 20.0, 30.0];
        for (name, expected) in [
            ("p1", 10.0),
            ("p50", 30.0),
            ("p80", 40.0),
            ("p81", 50.0),
            ("p99", 50.0),
            ("mean", 30.0),
            ("sum", 150.0),
            ("min", 10.0),
            ("max", 50.0),
            ("count", 5.0),
        ] {
            assert_eq!(of(name, FlowMetric::Fct, &five), Some(expected), "{name}");
        }
        assert_eq!(of("worst", FlowMetric::Fct, &five), Some(50.0));
        assert_eq!(of("worst", FlowMetric::Goodput, &five), Some(10.0));
        assert_eq!(of("jain", FlowMetric::Goodput, &[4.0, 0.0]), Some(0.5));
        assert_eq!(of("jain", FlowMetric::Goodput, &[0.0, 0.0]), None);
        for none in ["p0", "p100", "p05", "p", "p-1", "median"] {
            assert_eq!(Statistic::named(none), None, "{none}");
        }
    }

    #[test]
    fn flows_that_were_not_done_are_the_slowest_and_no_mean_hides_them() {
        let of = |name: &str| {
            let values = vec![1.0, f64::INFINITY, 2.0, 3.0];
            Statistic::named(name).unwrap().of(false, values)
        };
        assert_eq!((of("p50"), of("p75"), of("min")), (Some(2.0), Some(3.0), Some(1.0)));
        assert_eq!((of("p76"), of("mean"), of("max"), of("worst")), (None, None, None, None));
        assert_eq!((of("sum"), of("jain"), of("count")), (None, None, Some(4.0)));
    }

    #[test]
    fn a_star_stands_for_any_text() {
        for (pattern, name, meant) in [
            ("*", "web", true),
            ("web", "web", true),
            ("web", "web2", false),
            ("web*", "web2", true),
            ("*2", "web2", true),
            ("w*b*2", "web2", true),
            ("w*b*2", "wb", false),
            ("aa*a", "aa", false),
            ("*e*b*", "web", true),
            ("*x*", "web", false),
        ] {
            assert_eq!(matches(pattern, name), meant, "{pattern} {name}");
        }
    }
}
