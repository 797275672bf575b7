//! What an expression sets against published numbers, for tables and figures that show both.

use super::{Binary, Expr, Metric, Metrics, Node, Origin, Relation, Subject};

/// A measured quantity beside the published number that an expression compares it with.
#[derive(Clone, Debug, PartialEq)]
pub struct Compared {
    /// The quantity, as in the expression: `calls_one(sink)@q50`,
    /// `sent(class3)@w70 / sent(class1)@w70`.
    pub quantity: String,
    /// Its unit where it is a single metric; else empty.
    pub unit: &'static str,
    /// What was published.
    pub published: f64,
    /// What was measured; `None` if something in it was not.
    pub measured: Option<f64>,
    /// What it is measured on, where it is a single metric: metric, subject, step.
    pub of: Option<(Metric, Subject, usize)>,
}

impl Expr {
    /// The quantities that it compares with published numbers: `quantity ~ published…` and
    /// `abs(metric - published…)`, in order. Bounds (`quantity > 0.6 * published…`) are no such
    /// comparison.
    #[must_use]
    pub fn compared(&self, metrics: &dyn Metrics) -> Vec<Compared> {
        let values: Vec<Option<f64>> =
            self.terms.iter().map(|source| source.term(metrics).value).collect();
        let mut found = Vec::new();
        for comparison in &self.comparisons {
            if let Relation::Near(_) = comparison.relation {
                for pair in comparison.sides.windows(2) {
                    self.pair(
                        &pair[0].node,
                        Some(&pair[0].text),
                        &pair[1].node,
                        &values,
                        &mut found,
                    );
                }
            }
            for side in &comparison.sides {
                if let Node::Abs(inner) = &side.node
                    && let Node::Binary(Binary::Subtract, left, right) = inner.as_ref()
                {
                    self.pair(left, None, right, &values, &mut found);
                }
            }
        }
        found
    }

    /// The value of every side of every comparison, in order; `None` where a number was not
    /// measured or is not finite.
    #[must_use]
    pub fn sides(&self, metrics: &dyn Metrics) -> Vec<Option<f64>> {
        let values: Vec<Option<f64>> =
            self.terms.iter().map(|source| source.term(metrics).value).collect();
        let sides = self.comparisons.iter().flat_map(|comparison| &comparison.sides);
        sides.map(|side| side.node.eval(&values)).collect()
    }

    fn pair(
        &self,
        left: &Node,
        text: Option<&str>,
        right: &Node,
        values: &[Option<f64>],
        found: &mut Vec<Compared>,
    ) {
        if self.origins(left) != (true, false) || self.origins(right) != (false, true) {
            return;
        }
        let single = match left {
            Node::Term(index) => self.terms.get(*index),
            _ => None,
        };
        let Some(quantity) = text.map(str::trim).or(single.map(|source| source.text.as_str()))
        else {
            return;
        };
        let of = single.and_then(|source| match &source.origin {
            Origin::Measured(metric, subject, step) => Some((*metric, subject.clone(), *step)),
            Origin::Flows(_) | Origin::Subscribers(_) | Origin::Published(_) => None,
        });
        let Some(published) = right.eval(values) else { return };
        found.push(Compared {
            quantity: quantity.to_owned(),
            unit: single.map_or("", |source| source.origin.unit()),
            published,
            measured: left.eval(values),
            of,
        });
    }

    /// Whether measured and whether published numbers are in it.
    fn origins(&self, node: &Node) -> (bool, bool) {
        let both = |a: (bool, bool), b: (bool, bool)| (a.0 | b.0, a.1 | b.1);
        match node {
            Node::Number(_) => (false, false),
            Node::Term(index) => match self.terms.get(*index).map(|source| &source.origin) {
                Some(Origin::Measured(..) | Origin::Flows(_) | Origin::Subscribers(_)) => {
                    (true, false)
                }
                Some(Origin::Published(_)) => (false, true),
                None => (false, false),
            },
            Node::Negative(inner) | Node::Abs(inner) => self.origins(inner),
            Node::Binary(_, left, right) => both(self.origins(left), self.origins(right)),
            Node::Fold(_, inner) => {
                inner.iter().map(|node| self.origins(node)).fold((false, false), both)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{FlowMetric, NameError, Names, parse};
    use super::*;

    struct Given;

    impl Names for Given {
        fn subject(&self, _metric: Metric, text: &str) -> Result<Subject, NameError> {
            Ok(Subject { router: "r1".into(), link: "sink".into(), class: Some(text.to_owned()) })
        }
        fn all(&self, _metric: Metric, text: &str) -> Result<Vec<String>, NameError> {
            Ok(vec![text.to_owned()])
        }
        fn traffic(&self, _metric: FlowMetric, text: &str) -> Result<Vec<String>, NameError> {
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

    fn compared(text: &str) -> Vec<Compared> {
        parse(text, &Given).unwrap().compared(&Given)
    }

    #[test]
    fn closeness_and_differences_are_found_and_bounds_are_not() {
        let found = compared("sent(a)@start / sent(b)@start ~ published.ab within 5%");
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].quantity, "sent(a)@start / sent(b)@start");
        assert_eq!((found[0].published, found[0].measured, &found[0].of), (2.0, Some(1.0), &None));

        let found = compared(
            "abs(sent(a)@start - published.abc / 2) < 1 and delay(a)@start ~ published.a within 1%",
        );
        let seen: Vec<_> =
            found.iter().map(|c| (c.quantity.as_str(), c.unit, c.published, c.measured)).collect();
        assert_eq!(
            seen,
            [("sent(a)@start", "packets/s", 1.5, Some(8.0)), ("delay(a)@start", "us", 1.0, None)]
        );
        assert_eq!(found[0].of.as_ref().map(|(metric, ..)| *metric), Some(Metric::Sent));

        let sides = parse("sent(a)@start / 16 >= delay(a)@start", &Given).unwrap().sides(&Given);
        assert_eq!(sides, [Some(0.5), None]);
        assert_eq!(compared("sent(a)@start > 0.6 * published.ab"), []);
        assert_eq!(compared("sent(a)@start ~ sent(b)@start within 5%"), []);
    }
}
