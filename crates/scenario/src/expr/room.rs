//! How near a claim is to failing.

use super::{Expr, Metrics, Order, Relation, Source};

/// Two sides of a comparison that stand beside each other, and what lies between them and failing.
#[derive(Clone, Debug, PartialEq)]
pub struct Room {
    /// The two, as in the expression: `delay(calls)@start < 12000`.
    pub text: String,
    /// The first.
    pub value: f64,
    /// What it must not pass, of what the second is: of `a ~ b within 10%` the nearer of 0.9 and
    /// 1.1 times `b`.
    pub bound: f64,
    /// How far it is from there, in the unit of both; negative where it fails.
    pub left: f64,
}

impl Expr {
    /// The room of every pair of sides, in order; `None` where a number was not measured.
    #[must_use]
    pub fn room(&self, metrics: &dyn Metrics) -> Vec<Option<Room>> {
        let term = |source: &Source| source.term(metrics).value;
        let values: Vec<Option<f64>> = self.terms.iter().map(term).collect();
        let mut all = Vec::new();
        for comparison in &self.comparisons {
            for (at, pair) in comparison.sides.windows(2).enumerate() {
                let [first, second] = pair else { continue };
                let sides = first.node.eval(&values).zip(second.node.eval(&values));
                all.push(sides.map(|(value, other)| {
                    let (bound, left) = comparison.relation.room(at, value, other);
                    let text = comparison.relation.text(at, &first.text, &second.text);
                    Room { text, value, bound, left }
                }));
            }
        }
        all
    }
}

impl Relation {
    /// The bound of a value beside another, and how far it is from it.
    fn room(&self, index: usize, value: f64, other: f64) -> (f64, f64) {
        match self {
            Self::Near(percent) => {
                let most = other.abs() * percent / 100.0;
                let bound = if value < other { other - most } else { other + most };
                (bound, most - (value - other).abs())
            }
            Self::Order(orders) => match orders.get(index) {
                Some(Order::Less | Order::LessEqual) => (other, other - value),
                Some(Order::Greater | Order::GreaterEqual) | None => (other, value - other),
            },
        }
    }

    fn text(&self, index: usize, first: &str, second: &str) -> String {
        let within = match self {
            Self::Near(percent) => format!(" within {percent}%"),
            Self::Order(_) => String::new(),
        };
        format!("{} {} {}{within}", first.trim(), self.symbol(index), second.trim())
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Metric, NameError, Names, Subject, parse};
    use super::*;

    struct Given;

    impl Names for Given {
        fn subject(&self, _metric: Metric, text: &str) -> Result<Subject, NameError> {
            Ok(Subject { router: "r1".into(), link: "sink".into(), class: Some(text.to_owned()) })
        }
        fn all(&self, _metric: Metric, text: &str) -> Result<Vec<String>, NameError> {
            Ok(vec![text.to_owned()])
        }
        fn traffic(
            &self,
            _metric: super::super::FlowMetric,
            text: &str,
        ) -> Result<Vec<String>, NameError> {
            Ok(vec![text.to_owned()])
        }
        fn step(&self, _name: &str) -> Result<usize, NameError> {
            Ok(0)
        }
        fn published(&self, path: &str) -> Result<f64, NameError> {
            Ok(path.len() as f64)
        }
    }

    impl Metrics for Given {
        fn value(&self, metric: Metric, _subject: &Subject, _step: usize) -> Option<f64> {
            (metric == Metric::Sent).then_some(8.0)
        }
    }

    /// Value, bound and room of the one pair of an expression.
    fn room(text: &str) -> Option<(f64, f64, f64)> {
        let rooms = parse(text, &Given).expect("it is an expression").room(&Given);
        let [room] = &rooms[..] else { panic!("one pair: {rooms:?}") };
        let room = room.as_ref()?;
        assert_eq!(room.text, text);
        Some((room.value, room.bound, room.left))
    }

    #[test]
    fn room_is_what_lies_between_a_value_and_failing() {
        assert_eq!(room("sent(a)@start < 10"), Some((8.0, 10.0, 2.0)));
        assert_eq!(room("sent(a)@start >= 10"), Some((8.0, 10.0, -2.0)));
        assert_eq!(room("3 <= sent(a)@start"), Some((3.0, 8.0, 5.0)));
        assert_eq!(room("sent(a)@start ~ 10 within 25%"), Some((8.0, 7.5, 0.5)));
        assert_eq!(room("sent(a)@start ~ 4 within 50%"), Some((8.0, 6.0, -2.0)));
        assert_eq!(room("delay(a)@start < 10"), None);
        let chain = parse("1 < sent(a)@start < 9 and 2 > 1", &Given).expect("it is one");
        let left: Vec<_> = chain.room(&Given).into_iter().flatten().map(|room| room.left).collect();
        assert_eq!(left, [7.0, 1.0, 1.0]);
    }
}
