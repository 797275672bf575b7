//! Expectations: expressions over measured numbers.
//!
//! ```text
//! expectation = comparison { "and" comparison }
//! comparison  = sum { ("<" | "<=" | ">" | ">=") sum }        at least one
//!             | sum { "~" sum } "within" number "%"          each side within that much of the one after it
//! sum         = product { ("+" | "-") product }
//! product     = factor { ("*" | "/") factor }
//! factor      = "-" factor | number | "(" sum ")" | ("abs" | "min" | "max" | "jain") "(" sum { "," sum } ")"
//!             | metric "(" subject ")" "@" step              delay(class3)@x10, calls_none(sink)@start
//!             | "published" { "." key | "[" index "]" }      published.weights[1]; indices from 0
//! subject     = [ [ router "/" ] link "/" ] class            of calls_*: [ router "/" ] link
//! ```
//!
//! Names of steps may hold `-`: put spaces around a minus sign behind one.

mod compared;
mod lex;
mod parse;

use std::fmt::Write as _;

pub use compared::Compared;
pub(crate) use parse::{AnyNames, Names, parse};

/// What is measured. Delays are in microseconds, counts in packets per second.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Metric {
    /// Packets per second that left the wire.
    Sent,
    /// Packets per second dropped on the link.
    Dropped,
    /// Packets per second that the sources offered.
    Offered,
    /// Mean transit delay in the router, us.
    Delay,
    /// Median of the transit delay, us.
    DelayP50,
    /// 99 % quantile of the transit delay, us.
    DelayP99,
    /// Mean delay from host to host, us.
    E2e,
    /// Median of the delay from host to host, us.
    E2eP50,
    /// 99 % quantile of the delay from host to host, us.
    E2eP99,
    /// Mean queue length at the ends of the sampling windows, packets.
    Qlen,
    /// Bits per second of IP packets that the receiving host got.
    Goodput,
    /// Fraction of scheduler calls that found no queue with packets.
    CallsNone,
    /// Fraction of scheduler calls that found one.
    CallsOne,
    /// Fraction of scheduler calls that found several.
    CallsMany,
    /// Congestion index for delay, of a link with control.
    CiDelay,
    /// Congestion index for loss, of a link with control.
    CiLoss,
    /// X_DELAY that the control of the link gives, us.
    XDelay,
    /// Cycles per second that the router spent on packets it forwarded.
    Cycles,
    /// Cycles that the router spent on one such packet.
    CyclesEach,
    /// Packets per second refused before any link.
    Refused,
    /// Mean time that flows waited until the first of their packets got through, us.
    Accept,
    /// The longest of these times, us.
    AcceptMax,
    /// Flows per second that got through for the first time, or anew after a failure.
    Accepted,
    /// Flows that waited at the ends of the sampling windows.
    Waiting,
    /// Fair rate that the admission of a link estimates, bit/s.
    FairRate,
    /// Priority load that it estimates, a part of the link's rate.
    PriorityLoad,
    /// Part of the sampling windows at whose ends it took the link for congested.
    Congested,
    /// Flows on its list of protected flows.
    Protected,
    /// Those of them that are streaming.
    Streaming,
    /// Packets per second that it refused.
    TurnedAway,
    /// Cycles per second that max-min water filling would have given on a polled core.
    FairCycles,
}

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
    /// The mean of `metric` over the step with this index (settling time left out); `None` if it was not measured.
    fn value(&self, metric: Metric, subject: &Subject, step: usize) -> Option<f64>;
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
    Min(Vec<Node>),
    Max(Vec<Node>),
    /// Jain's index of fairness: (sum of x)^2 / (n * sum of x^2), 1 if all are equal.
    Jain(Vec<Node>),
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
    Published(f64),
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

impl Metric {
    /// Every metric.
    pub const ALL: &'static [Self] = &[
        Self::Sent,
        Self::Dropped,
        Self::Offered,
        Self::Delay,
        Self::DelayP50,
        Self::DelayP99,
        Self::E2e,
        Self::E2eP50,
        Self::E2eP99,
        Self::Qlen,
        Self::Goodput,
        Self::CallsNone,
        Self::CallsOne,
        Self::CallsMany,
        Self::CiDelay,
        Self::CiLoss,
        Self::XDelay,
        Self::Cycles,
        Self::CyclesEach,
        Self::Refused,
        Self::Accept,
        Self::AcceptMax,
        Self::Accepted,
        Self::Waiting,
        Self::FairRate,
        Self::PriorityLoad,
        Self::Congested,
        Self::Protected,
        Self::Streaming,
        Self::TurnedAway,
        Self::FairCycles,
    ];

    /// The name in expressions.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sent => "sent",
            Self::Dropped => "dropped",
            Self::Offered => "offered",
            Self::Delay => "delay",
            Self::DelayP50 => "delay_p50",
            Self::DelayP99 => "delay_p99",
            Self::E2e => "e2e",
            Self::E2eP50 => "e2e_p50",
            Self::E2eP99 => "e2e_p99",
            Self::Qlen => "qlen",
            Self::Goodput => "goodput",
            Self::CallsNone => "calls_none",
            Self::CallsOne => "calls_one",
            Self::CallsMany => "calls_many",
            Self::CiDelay => "ci_delay",
            Self::CiLoss => "ci_loss",
            Self::XDelay => "x_delay",
            Self::Cycles => "cycles",
            Self::CyclesEach => "cycles_each",
            Self::Refused => "refused",
            Self::Accept => "accept",
            Self::AcceptMax => "accept_max",
            Self::Accepted => "accepted",
            Self::Waiting => "waiting",
            Self::FairRate => "fair_rate",
            Self::PriorityLoad => "priority_load",
            Self::Congested => "congested",
            Self::Protected => "protected",
            Self::Streaming => "streaming",
            Self::TurnedAway => "turned_away",
            Self::FairCycles => "fair_cycles",
        }
    }

    /// What it is, in words.
    #[must_use]
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::Sent => "packets that left the wire",
            Self::Dropped => "packets dropped on the link",
            Self::Offered => "packets that the sources of the class sent",
            Self::Delay => "mean transit delay: arrival in the router to leaving the queue",
            Self::DelayP50 => "median of the transit delay",
            Self::DelayP99 => "99 % of packets had a transit delay of at most this",
            Self::E2e => "mean delay from sending to receiving host",
            Self::E2eP50 => "median of the delay from host to host",
            Self::E2eP99 => "99 % of packets had a delay from host to host of at most this",
            Self::Qlen => "queue length at the ends of the sampling windows",
            Self::Goodput => "IP packets that the receiving hosts got",
            Self::CallsNone => "scheduler calls that found every queue empty",
            Self::CallsOne => "scheduler calls that found packets in one queue",
            Self::CallsMany => "scheduler calls that found packets in several queues",
            Self::CiDelay => {
                "mean congestion index for delay, on a link with control: 0 normal, 1 at the degradation threshold"
            }
            Self::CiLoss => "mean congestion index for loss, on a link with control",
            Self::XDelay => "mean X_DELAY that the control of the link gives the class",
            Self::Cycles => {
                "cycles that the router spent on packets it forwarded, with their parts of fetching and sending"
            }
            Self::CyclesEach => "cycles that the router spent on each packet it forwarded",
            Self::Refused => "packets refused before any link, by FairDrop or by a service",
            Self::Accept => {
                "mean time from the first packet of a flow to the first that got through, both as they were sent; after a step with \
                 `down` or `up`, of every flow anew: its switchover time"
            }
            Self::AcceptMax => "the longest of these times",
            Self::Accepted => "flows that got through for the first time, or anew after a failure",
            Self::Waiting => "flows of which nothing had got through, at the ends of the sampling windows",
            Self::FairRate => "mean fair rate, on a link with admission",
            Self::PriorityLoad => "mean priority load, on a link with admission: a part of its rate",
            Self::Congested => "sampling windows at whose ends the admission took the link for congested",
            Self::Protected => "flows on the link's list of protected flows",
            Self::Streaming => "protected flows that are streaming",
            Self::TurnedAway => "packets that the admission of the link refused",
            Self::FairCycles => {
                "what exact max-min water filling gives the class of a `[core]`, of what arrived, at the same costs of polling and refusing"
            }
        }
    }

    /// The unit; empty for fractions.
    #[must_use]
    pub const fn unit(self) -> &'static str {
        match self {
            Self::Sent | Self::Dropped | Self::Offered | Self::Refused | Self::TurnedAway => "packets/s",
            Self::Cycles | Self::FairCycles => "cycles/s",
            Self::CyclesEach => "cycles",
            Self::Delay
            | Self::DelayP50
            | Self::DelayP99
            | Self::E2e
            | Self::E2eP50
            | Self::E2eP99
            | Self::XDelay
            | Self::Accept
            | Self::AcceptMax => "us",
            Self::Qlen => "packets",
            Self::Goodput | Self::FairRate => "bit/s",
            Self::Accepted => "flows/s",
            Self::Waiting | Self::Protected | Self::Streaming => "flows",
            Self::CallsNone
            | Self::CallsOne
            | Self::CallsMany
            | Self::CiDelay
            | Self::CiLoss
            | Self::PriorityLoad
            | Self::Congested => "",
        }
    }

    /// Whether it is measured on a link as a whole, not by class.
    #[must_use]
    pub const fn is_of_link(self) -> bool {
        self.needs_admission() || matches!(self, Self::CallsNone | Self::CallsOne | Self::CallsMany)
    }

    /// Whether the dynamic control of a link measures it.
    #[must_use]
    pub const fn needs_control(self) -> bool {
        matches!(self, Self::CiDelay | Self::CiLoss | Self::XDelay)
    }

    /// Whether it comes from the cycles that a router measures.
    #[must_use]
    pub const fn needs_cycles(self) -> bool {
        matches!(self, Self::Cycles | Self::CyclesEach | Self::Refused)
    }

    /// Whether the admission of a link measures it.
    #[must_use]
    pub const fn needs_admission(self) -> bool {
        matches!(
            self,
            Self::FairRate
                | Self::PriorityLoad
                | Self::Congested
                | Self::Protected
                | Self::Streaming
                | Self::TurnedAway
        )
    }

    /// Whether it is measured only where flows may have to wait.
    #[must_use]
    pub const fn is_of_acceptance(self) -> bool {
        matches!(self, Self::Accept | Self::AcceptMax | Self::Accepted | Self::Waiting)
    }

    /// Whether a polled core alone measures it.
    #[must_use]
    pub const fn needs_core(self) -> bool {
        matches!(self, Self::FairCycles)
    }

    /// Whether hosts measure it from stamps in the packets, which only the project's own sources write.
    #[must_use]
    pub const fn needs_stamps(self) -> bool {
        matches!(self, Self::E2e | Self::E2eP50 | Self::E2eP99)
    }
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
            let missing: Vec<_> =
                terms.iter().filter(|term| term.value.is_none()).map(|term| term.text.as_str()).collect();
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
}

impl Source {
    fn term(&self, metrics: &dyn Metrics) -> Term {
        let (value, unit) = match &self.origin {
            Origin::Measured(metric, subject, step) => {
                (metrics.value(*metric, subject, *step).filter(|value| value.is_finite()), metric.unit())
            }
            Origin::Published(value) => (Some(*value), ""),
        };
        Term { text: self.text.clone(), value, unit }
    }
}

impl Comparison {
    fn eval(&self, terms: &[Option<f64>], text: &mut String) -> Option<bool> {
        let values: Vec<Option<f64>> = self.sides.iter().map(|side| side.node.eval(terms)).collect();
        let mut holds = Some(true);
        for (i, (side, value)) in self.sides.iter().zip(&values).enumerate() {
            if i > 0 {
                let _ = write!(text, " {} ", self.relation.symbol(i - 1));
                let pair =
                    values[i - 1].zip(*value).map(|(left, right)| self.relation.holds(i - 1, left, right));
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
            Self::Min(inner) => fold(inner, terms, f64::min)?,
            Self::Max(inner) => fold(inner, terms, f64::max)?,
            Self::Jain(inner) => jain(inner, terms)?,
        };
        value.is_finite().then_some(value)
    }
}

/// Jain, Chiu, Hawe 1984; `None` if all are zero: nothing was shared.
fn jain(nodes: &[Node], terms: &[Option<f64>]) -> Option<f64> {
    let values: Vec<f64> = nodes.iter().map(|node| node.eval(terms)).collect::<Option<_>>()?;
    let (sum, squares) = values.iter().fold((0.0, 0.0), |(sum, squares), x| (sum + x, squares + x * x));
    (squares > 0.0).then(|| sum * sum / (values.len() as f64 * squares))
}

fn fold(nodes: &[Node], terms: &[Option<f64>], pick: fn(f64, f64) -> f64) -> Option<f64> {
    let mut values = nodes.iter().map(|node| node.eval(terms));
    let first = values.next()??;
    values.try_fold(first, |picked, value| value.map(|value| pick(picked, value)))
}
