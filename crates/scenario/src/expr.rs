//! Expectations: expressions over measured numbers.
//!
//! `delay(class3)@x10 < delay(class3)@x15`, `sent(class3)@w1 / sent(class1)@w1 ~ published.ratio within 10%`.

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
    _private: (),
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
        let _ = metrics;
        todo!()
    }

    /// Everything it asks of [`Metrics`]: metric, subject, step; each once.
    #[must_use]
    pub fn needs(&self) -> Vec<(Metric, Subject, usize)> {
        todo!()
    }
}
