//! Expectations: expressions over measured numbers.
//!
//! ```text
//! expectation = comparison { "and" comparison }
//! comparison  = sum { ("<" | "<=" | ">" | ">=") sum }        at least one
//!             | sum { "~" sum } "within" number "%"          each side within that much of the one after it
//! sum         = product { ("+" | "-") product }
//! product     = factor { ("*" | "/") factor }
//! factor      = "-" factor | number | "(" sum ")" | ("abs" | "min" | "max" | "sum" | "mean" | "jain") "(" sum { "," sum } ")"
//!             | statistic "(" flow "(" traffic { "," traffic } ")" [ "@" step ] ")"    p99(fct(web)), jain(flow_goodput(*)@x10)
//!             | statistic "(" subscriber "(" people ")" "@" step ")"                      worst(share_error(town-*)@start)
//!             | metric "(" subject ")" "@" step              delay(class3)@x10, calls_none(sink)@start
//!             | "published" { "." key | "[" index "]" }      published.weights[1]; indices from 0
//! subject     = [ [ router "/" ] link "/" ] class            of calls_*: [ router "/" ] link
//! people      = [ [ router "/" ] link "/" ] name
//! statistic   = "p1" | … | "p99" | "mean" | "sum" | "min" | "max" | "worst" | "jain" | "count"
//! ```
//!
//! Names of steps may hold `-`: put spaces around a minus sign behind one. Where a metric is one of
//! the numbers of a function, its class may hold `*`, and stands for all classes that are meant:
//! `sum(sent(*)@x10)`. So may the `traffic` of flows, and the names of people.

mod compared;
mod flows;
mod lex;
mod metric;
mod parse;
mod room;
mod subscribers;
mod words;

use std::fmt::Write as _;

pub use compared::Compared;
pub(crate) use flows::matches;
pub use flows::{FlowMetric, FlowSet, Fold, OfFlows, Statistic};
pub use metric::Metric;
pub(crate) use parse::{AnyNames, NameError, Names, People, parse};
pub use room::Room;
pub use subscribers::{OfSubscribers, SubscriberMetric, SubscriberSet};

/// What a metric is measured on: always resolved.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Subject {
    /// The router.
    pub router: String,
    /// The link: its port's name.
    pub link: String,
    /// The class; `None` for metrics of a whole link (calls).
    pub class: Option<String>,
}

/// Where the numbers come from: implemented on the results of a world.
pub trait Metrics {
    /// The mean of `metric` over the step with this index (settling time left out); `None` if it
    /// was not measured.
    fn value(&self, metric: Metric, subject: &Subject, step: usize) -> Option<f64>;

    /// The number of each flow of a set, infinite where it was not done within the run; `None` if
    /// nobody followed them.
    fn flows(&self, _flows: &FlowSet) -> Option<Vec<f64>> {
        None
    }

    /// The number of each subscriber of a set; `None` if nobody counted them.
    fn subscribers(&self, _set: &SubscriberSet) -> Option<Vec<f64>> {
        None
    }
}

/// A parsed expectation, its names resolved and published numbers put in.
#[derive(Clone, Debug, PartialEq)]
pub struct Expr {
    comparisons: Vec<Comparison>,
    terms: Vec<Source>,
}

/// Sides and how they must relate.
#[derive(Clone, Debug, PartialEq)]
struct Comparison {
    sides: Vec<Side>,
    relation: Relation,
}

/// An arithmetic expression and its text.
#[derive(Clone, Debug, PartialEq)]
struct Side {
    text: String,
    node: Node,
}

#[derive(Clone, Debug, PartialEq)]
enum Relation {
    /// Between each side and the next.
    Order(Vec<Order>),
    /// Each side differs from the next by at most this many percent of the next.
    Near(f64),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Order {
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
}

#[derive(Clone, Debug, PartialEq)]
enum Node {
    Number(f64),
    /// An index into the terms.
    Term(usize),
    Negative(Box<Node>),
    Binary(Binary, Box<Node>, Box<Node>),
    Abs(Box<Node>),
    /// Of several numbers, one.
    Fold(Fold, Vec<Node>),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Binary {
    Add,
    Subtract,
    Multiply,
    Divide,
}

/// Where the number of a term comes from.
#[derive(Clone, Debug, PartialEq)]
struct Source {
    text: String,
    origin: Origin,
}

#[derive(Clone, Debug, PartialEq)]
enum Origin {
    Measured(Metric, Subject, usize),
    Flows(OfFlows),
    Subscribers(OfSubscribers),
    Published(f64),
}

impl Origin {
    fn unit(&self) -> &'static str {
        match self {
            Self::Measured(metric, ..) => metric.unit(),
            Self::Flows(of) => of.unit(),
            Self::Subscribers(of) => of.unit(),
            Self::Published(_) => "",
        }
    }
}

/// A number behind an expression.
#[derive(Clone, Debug, PartialEq)]
pub struct Term {
    /// As in the expression: `delay(class3)@x10`, `published.weights[2]`.
    pub text: String,
    /// The number; `None` if it was not measured.
    pub value: Option<f64>,
    /// Its unit: `us`, `packets/s`, `packets`, `bit/s`; empty for fractions and published numbers.
    pub unit: &'static str,
}

/// What an expression came to.
#[derive(Clone, Debug, PartialEq)]
pub struct Evaluation {
    /// Whether it holds; `None` if a number was not measured or a division by zero came up.
    pub holds: Option<bool>,
    /// The numbers behind it, in the order of the expression, each once.
    pub terms: Vec<Term>,
    /// The expression with the value of each side, and why it could not be decided if it could not.
    pub text: String,
}

impl Expr {
    /// Evaluates it on measured numbers.
    #[must_use]
    pub fn eval(&self, metrics: &dyn Metrics) -> Evaluation {
        let terms: Vec<Term> = self.terms.iter().map(|source| source.term(metrics)).collect();
        let values: Vec<Option<f64>> = terms.iter().map(|term| term.value).collect();
        let mut holds = Some(true);
        let mut text = String::new();
        for comparison in &self.comparisons {
            if !text.is_empty() {
                text.push_str(" and ");
            }
            holds = match (holds, comparison.eval(&values, &mut text)) {
                (Some(false), _) | (_, Some(false)) => Some(false),
                (Some(true), Some(true)) => Some(true),
                _ => None,
            };
        }
        if holds.is_none() {
            let missing: Vec<_> = terms
                .iter()
                .filter(|term| term.value.is_none())
                .map(|term| term.text.as_str())
                .collect();
            // Writing to a String cannot fail.
            let _ = match missing.as_slice() {
                [] => write!(text, ": cannot be computed (division by zero)"),
                missing => write!(text, ": not measured: {}", missing.join(", ")),
            };
        }
        Evaluation { holds, terms, text }
    }

    /// Everything it asks of [`Metrics`]: metric, subject, step; each once.
    #[must_use]
    pub fn needs(&self) -> Vec<(Metric, Subject, usize)> {
        let mut needs = Vec::new();
        for source in &self.terms {
            if let Origin::Measured(metric, subject, step) = &source.origin {
                let need = (*metric, subject.clone(), *step);
                if !needs.contains(&need) {
                    needs.push(need);
                }
            }
        }
        needs
    }

    /// Which subscribers it asks for.
    pub fn subscribers(&self) -> impl Iterator<Item = &SubscriberSet> {
        self.terms.iter().filter_map(|source| match &source.origin {
            Origin::Subscribers(of) => Some(&of.set),
            Origin::Measured(..) | Origin::Flows(_) | Origin::Published(_) => None,
        })
    }

    /// Which flows it asks for.
    pub fn flows(&self) -> impl Iterator<Item = &FlowSet> {
        self.terms.iter().filter_map(|source| match &source.origin {
            Origin::Flows(of) => Some(&of.flows),
            Origin::Measured(..) | Origin::Subscribers(_) | Origin::Published(_) => None,
        })
    }
}

impl Source {
    fn term(&self, metrics: &dyn Metrics) -> Term {
        let value = match &self.origin {
            Origin::Measured(metric, subject, step) => {
                metrics.value(*metric, subject, *step).filter(|value| value.is_finite())
            }
            Origin::Flows(of) => {
                let values = metrics.flows(&of.flows);
                values.and_then(|values| of.statistic.of(of.flows.metric.less_is_worse(), values))
            }
            Origin::Subscribers(of) => {
                let values = metrics.subscribers(&of.set);
                values.and_then(|values| of.statistic.of(of.set.metric.less_is_worse(), values))
            }
            Origin::Published(value) => Some(*value),
        };
        Term { text: self.text.clone(), value, unit: self.origin.unit() }
    }
}

impl Comparison {
    fn eval(&self, terms: &[Option<f64>], text: &mut String) -> Option<bool> {
        let values: Vec<Option<f64>> =
            self.sides.iter().map(|side| side.node.eval(terms)).collect();
        let mut holds = Some(true);
        for (i, (side, value)) in self.sides.iter().zip(&values).enumerate() {
            if i > 0 {
                let _ = write!(text, " {} ", self.relation.symbol(i - 1));
                let pair = values[i - 1]
                    .zip(*value)
                    .map(|(left, right)| self.relation.holds(i - 1, left, right));
                holds = match (holds, pair) {
                    (Some(false), _) | (_, Some(false)) => Some(false),
                    (Some(true), Some(true)) => Some(true),
                    _ => None,
                };
            }
            let plain = matches!(side.node, Node::Number(_));
            let _ = match value {
                _ if plain => write!(text, "{}", side.text),
                Some(value) => write!(text, "{} [{}]", side.text, number_text(*value)),
                None => write!(text, "{} [?]", side.text),
            };
        }
        if let Relation::Near(percent) = self.relation {
            let _ = write!(text, " within {percent}%");
        }
        holds
    }
}

/// Four significant digits, or all digits of the whole part.
fn number_text(value: f64) -> String {
    let magnitude = value.abs();
    let decimals = if magnitude >= 1000.0 || value == 0.0 {
        0
    } else if magnitude >= 100.0 {
        1
    } else if magnitude >= 10.0 {
        2
    } else if magnitude >= 1.0 {
        3
    } else {
        4
    };
    format!("{value:.decimals$}")
}

impl Relation {
    fn symbol(&self, index: usize) -> &'static str {
        match self {
            Self::Near(_) => "~",
            Self::Order(orders) => match orders.get(index) {
                Some(Order::Less) => "<",
                Some(Order::LessEqual) => "<=",
                Some(Order::Greater) => ">",
                Some(Order::GreaterEqual) | None => ">=",
            },
        }
    }

    fn holds(&self, index: usize, left: f64, right: f64) -> bool {
        match self {
            Self::Near(percent) => (left - right).abs() <= right.abs() * percent / 100.0,
            Self::Order(orders) => match orders.get(index) {
                Some(Order::Less) => left < right,
                Some(Order::LessEqual) => left <= right,
                Some(Order::Greater) => left > right,
                Some(Order::GreaterEqual) | None => left >= right,
            },
        }
    }
}

impl Node {
    /// The value; `None` if a term has none or the result is not finite.
    fn eval(&self, terms: &[Option<f64>]) -> Option<f64> {
        let value = match self {
            Self::Number(value) => *value,
            Self::Term(index) => terms.get(*index).copied().flatten()?,
            Self::Negative(inner) => -inner.eval(terms)?,
            Self::Abs(inner) => inner.eval(terms)?.abs(),
            Self::Binary(operation, left, right) => {
                let (left, right) = (left.eval(terms)?, right.eval(terms)?);
                match operation {
                    Binary::Add => left + right,
                    Binary::Subtract => left - right,
                    Binary::Multiply => left * right,
                    Binary::Divide => left / right,
                }
            }
            Self::Fold(fold, inner) => {
                let values: Option<Vec<f64>> = inner.iter().map(|node| node.eval(terms)).collect();
                fold.of_numbers(&values?)?
            }
        };
        value.is_finite().then_some(value)
    }
}
