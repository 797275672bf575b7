//! From text to [`Expr`]: recursive descent, names resolved on the way.

use evenkeel_settings::read::suggest;
use thiserror::Error;

use super::lex::{ExprError, Token, Word, words};
use super::{
    Binary, Comparison, Expr, FlowMetric, FlowSet, Fold, Metric, Node, OfFlows, OfSubscribers,
    Order, Origin, Relation, Side, Source, Statistic, Subject, SubscriberMetric, SubscriberSet,
};
use crate::published::PublishedError;

/// Deepest nesting of parentheses and minus signs.
const DEPTH: usize = 50;

/// Most words: bounds the depth of the tree, which sums build to the left.
const WORDS: usize = 1000;

/// Why a name in an expression names nothing, or not one thing clearly.
#[derive(Clone, Debug, Error, PartialEq)]
pub(crate) enum NameError {
    #[error("no {what} {name:?}; {hint}")]
    Unknown { what: &'static str, name: String, hint: String },
    #[error("no step {name:?}; for a difference write `@{first} - …` with spaces")]
    Difference { name: String, first: String },
    #[error("no traffic is of class {0:?}: nothing is measured")]
    NoTraffic(String),
    #[error("no traffic passes {0:?}: nothing is measured")]
    NotPassed(String),
    #[error("no traffic passes link {link:?}; traffic passes {}", passed.join(", "))]
    NoLink { link: String, passed: Vec<String> },
    #[error("{name:?} is measured on several links: say which of {}", links.join(", "))]
    Several { name: String, links: Vec<String> },
    #[error("{0:?} has too many parts: write router/link/class")]
    TooManyParts(String),
    #[error("{0} is measured with [core] only")]
    OfACore(&'static str),
    #[error("{0} is not measured on a core")]
    NotOfACore(&'static str),
    #[error("a core has no flows to follow: {0} is not measured")]
    NoFlowsOfACore(&'static str),
    #[error("{0:?} has no flows that end: fct is that of `tcp` with `bytes`, and of `tcp-flows`")]
    NoEnd(String),
    #[error("{0:?} is a recording: its flows are not followed")]
    Recording(String),
    #[error("no router of the scenario has a [[tree]]: nobody is counted")]
    NoTree,
    #[error("no [[tree]] is on link {link:?}; there is one on {}", links.join(", "))]
    NoTreeThere { link: String, links: Vec<String> },
    #[error("{0}")]
    Published(#[from] PublishedError),
}

/// Subscribers of a link, as they are named.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct People {
    pub(crate) router: String,
    pub(crate) link: String,
    pub(crate) pattern: String,
}

/// What the names in an expression may be.
pub(crate) trait Names {
    /// The subject that a text names for a metric.
    ///
    /// # Errors
    /// It names none, or not one clearly; says what there is.
    fn subject(&self, metric: Metric, text: &str) -> Result<Subject, NameError>;
    /// The subjects that a text with `*` in its class stands for, each as text.
    ///
    /// # Errors
    /// There is none; says what there is.
    fn all(&self, metric: Metric, text: &str) -> Result<Vec<String>, NameError>;
    /// The `[[traffic]]` that a list of names stands for, each of which may hold `*`.
    ///
    /// # Errors
    /// One of them names none, or none of which this is measured; says what there is.
    fn traffic(&self, metric: FlowMetric, text: &str) -> Result<Vec<String>, NameError>;
    /// The subscribers that a text names, which may hold `*`.
    ///
    /// # Errors
    /// It names nobody, or is not clear about the link; says what there is.
    fn people(&self, _text: &str) -> Result<People, NameError> {
        Err(NameError::NoTree)
    }
    /// The index of a step.
    ///
    /// # Errors
    /// There is none with this name; says what there is.
    fn step(&self, name: &str) -> Result<usize, NameError>;
    /// The number at a path of the published entry, `weights[1]`.
    ///
    /// # Errors
    /// There is none; says what there is.
    fn published(&self, path: &str) -> Result<f64, NameError>;
}

/// Takes every name for good: for texts whose names cannot be known, because what they name has
/// errors itself.
pub(crate) struct AnyNames;

impl Names for AnyNames {
    fn subject(&self, _metric: Metric, _text: &str) -> Result<Subject, NameError> {
        Ok(Subject { router: String::new(), link: String::new(), class: None })
    }
    fn all(&self, _metric: Metric, text: &str) -> Result<Vec<String>, NameError> {
        Ok(vec![text.to_owned()])
    }
    fn traffic(&self, _metric: FlowMetric, text: &str) -> Result<Vec<String>, NameError> {
        Ok(vec![text.to_owned()])
    }
    fn people(&self, text: &str) -> Result<People, NameError> {
        Ok(People { router: String::new(), link: String::new(), pattern: text.to_owned() })
    }
    fn step(&self, _name: &str) -> Result<usize, NameError> {
        Ok(0)
    }
    fn published(&self, _path: &str) -> Result<f64, NameError> {
        Ok(1.0)
    }
}

/// Parses an expectation.
pub(crate) fn parse(text: &str, names: &dyn Names) -> Result<Expr, ExprError> {
    let words = words(text, |name| metric_of(name).is_some() || Each::named(name).is_some())?;
    if let Some(word) = words.get(WORDS) {
        return Err(ExprError::new(word.at, format!("longer than {WORDS} words")));
    }
    let mut parser = Parser { text, words, next: 0, depth: 0, names, terms: Vec::new() };
    let mut comparisons = vec![parser.comparison()?];
    while parser.take_name("and") {
        comparisons.push(parser.comparison()?);
    }
    match parser.words.get(parser.next) {
        None => Ok(Expr { comparisons, terms: parser.terms }),
        Some(word) => Err(ExprError::new(word.at, "an operator or `and` is expected here")),
    }
}

/// What is measured of each of many.
#[derive(Clone, Copy)]
enum Each {
    Flow(FlowMetric),
    Subscriber(SubscriberMetric),
}

impl Each {
    fn named(name: &str) -> Option<Self> {
        let subscriber = || SubscriberMetric::named(name).map(Self::Subscriber);
        FlowMetric::named(name).map(Self::Flow).or_else(subscriber)
    }

    fn all() -> impl Iterator<Item = &'static str> {
        let subscribers = SubscriberMetric::ALL.iter().map(|metric| metric.name());
        FlowMetric::ALL.iter().map(|metric| metric.name()).chain(subscribers)
    }
}

fn metric_of(name: &str) -> Option<Metric> {
    Metric::all().find(|metric| metric.name() == name)
}

struct Parser<'t, 'n> {
    text: &'t str,
    words: Vec<Word<'t>>,
    next: usize,
    depth: usize,
    names: &'n dyn Names,
    terms: Vec<Source>,
}

impl<'t> Parser<'t, '_> {
    fn peek(&self) -> Option<Token<'t>> {
        self.words.get(self.next).map(|word| word.token)
    }

    fn at(&self) -> usize {
        self.words.get(self.next).map_or(self.text.len(), |word| word.at)
    }

    fn take_symbol(&mut self, symbol: &str) -> bool {
        let found = matches!(self.peek(), Some(Token::Symbol(s)) if s == symbol);
        self.next += usize::from(found);
        found
    }

    fn take_name(&mut self, name: &str) -> bool {
        let found = matches!(self.peek(), Some(Token::Name(n)) if n == name);
        self.next += usize::from(found);
        found
    }

    fn expect_symbol(&mut self, symbol: &str) -> Result<(), ExprError> {
        let at = self.at();
        if self.take_symbol(symbol) {
            Ok(())
        } else {
            Err(ExprError::new(at, format!("`{symbol}` is expected here")))
        }
    }

    fn comparison(&mut self) -> Result<Comparison, ExprError> {
        let mut sides = vec![self.side()?];
        if self.take_symbol("~") {
            sides.push(self.side()?);
            while self.take_symbol("~") {
                sides.push(self.side()?);
            }
            return Ok(Comparison { sides, relation: Relation::Near(self.tolerance()?) });
        }
        let mut orders = Vec::new();
        while let Some(order) = self.order() {
            orders.push(order);
            sides.push(self.side()?);
        }
        if orders.is_empty() {
            return Err(ExprError::new(
                self.at(),
                "a comparison is expected here: <, <=, >, >= or ~ … within …%",
            ));
        }
        Ok(Comparison { sides, relation: Relation::Order(orders) })
    }

    fn order(&mut self) -> Option<Order> {
        let order = match self.peek()? {
            Token::Symbol("<") => Order::Less,
            Token::Symbol("<=") => Order::LessEqual,
            Token::Symbol(">") => Order::Greater,
            Token::Symbol(">=") => Order::GreaterEqual,
            _ => return None,
        };
        self.next += 1;
        Some(order)
    }

    fn tolerance(&mut self) -> Result<f64, ExprError> {
        let at = self.at();
        if !self.take_name("within") {
            return Err(ExprError::new(
                at,
                "`within`, a number and `%` must follow a comparison with ~",
            ));
        }
        match self.peek() {
            Some(Token::Number(percent)) => {
                self.next += 1;
                self.expect_symbol("%")?;
                Ok(percent)
            }
            _ => Err(ExprError::new(self.at(), "a number is expected here")),
        }
    }

    fn side(&mut self) -> Result<Side, ExprError> {
        let from = self.at();
        let node = self.sum()?;
        let to = self.words.get(self.next.wrapping_sub(1)).map_or(from, |word| word.end);
        Ok(Side { text: self.text.get(from..to).unwrap_or("").to_owned(), node })
    }

    fn sum(&mut self) -> Result<Node, ExprError> {
        let mut node = self.product()?;
        loop {
            let operation = match self.peek() {
                Some(Token::Symbol("+")) => Binary::Add,
                Some(Token::Symbol("-")) => Binary::Subtract,
                _ => return Ok(node),
            };
            self.next += 1;
            node = Node::Binary(operation, Box::new(node), Box::new(self.product()?));
        }
    }

    fn product(&mut self) -> Result<Node, ExprError> {
        let mut node = self.factor()?;
        loop {
            let operation = match self.peek() {
                Some(Token::Symbol("*")) => Binary::Multiply,
                Some(Token::Symbol("/")) => Binary::Divide,
                _ => return Ok(node),
            };
            self.next += 1;
            node = Node::Binary(operation, Box::new(node), Box::new(self.factor()?));
        }
    }

    fn factor(&mut self) -> Result<Node, ExprError> {
        self.depth += 1;
        if self.depth > DEPTH {
            return Err(ExprError::new(self.at(), format!("nested more than {DEPTH} deep")));
        }
        let at = self.at();
        let node = match self.peek() {
            Some(Token::Symbol("-")) => {
                self.next += 1;
                Node::Negative(Box::new(self.factor()?))
            }
            Some(Token::Symbol("(")) => {
                self.next += 1;
                let inner = self.sum()?;
                self.expect_symbol(")")?;
                inner
            }
            Some(Token::Number(number)) => {
                self.next += 1;
                Node::Number(number)
            }
            Some(Token::Name(name)) => {
                self.next += 1;
                self.named(name, at)?
            }
            _ => {
                return Err(ExprError::new(
                    at,
                    "a number, a metric, `published` or a parenthesis is expected here",
                ));
            }
        };
        self.depth -= 1;
        Ok(node)
    }

    fn named(&mut self, name: &'t str, at: usize) -> Result<Node, ExprError> {
        if let Some(metric) = metric_of(name) {
            return self.measured(metric, at);
        }
        if let Some(each) = Each::named(name) {
            let what = match each {
                Each::Flow(_) => "flow",
                Each::Subscriber(_) => "subscriber",
            };
            let message = format!(
                "{name} is a number of each {what}: say which you want, as in p99({name}(…)); \
                 there are p1 to p99, mean, sum, min, max, worst, jain, count"
            );
            return Err(ExprError::new(at, message));
        }
        if let Some(statistic) = Statistic::named(name)
            && let Some(each) = self.each()
        {
            self.next += 2;
            return match each {
                Each::Flow(metric) => self.of_flows(statistic, metric, at),
                Each::Subscriber(metric) => self.of_subscribers(statistic, metric, at),
            };
        }
        match (name, Fold::named(name)) {
            ("published", _) => self.published(at),
            ("abs", _) => {
                let [inner] = <[Node; 1]>::try_from(self.arguments()?)
                    .map_err(|_several| ExprError::new(at, "abs takes one number"))?;
                Ok(Node::Abs(Box::new(inner)))
            }
            (_, Some(fold)) if fold.is_of_numbers() => {
                self.arguments().map(|numbers| Node::Fold(fold, numbers))
            }
            _ if Statistic::named(name).is_some() => {
                let each: Vec<_> = Each::all().collect();
                let message =
                    format!("{name} is one of many: {name}({}(…))", each.join("(…)), …("));
                Err(ExprError::new(at, message))
            }
            _ => {
                let known = Metric::all().map(Metric::name);
                let each = Each::all();
                let folds = Fold::ALL.iter().map(|fold| fold.name());
                let known: Vec<_> =
                    known.chain(each).chain(folds).chain(["published", "abs"]).collect();
                Err(ExprError::new(at, format!("no metric {name:?}; {}", suggest(name, &known))))
            }
        }
    }

    /// What of many stands in the parentheses that follow, if it is that.
    fn each(&self) -> Option<Each> {
        let ahead = |places: usize| self.words.get(self.next + places).map(|word| word.token);
        match (ahead(0)?, ahead(1)?) {
            (Token::Symbol("("), Token::Name(name)) => Each::named(name),
            _ => None,
        }
    }

    /// What stands behind a statistic: `(fct(web)@x10)`.
    fn of_flows(
        &mut self,
        statistic: Statistic,
        metric: FlowMetric,
        at: usize,
    ) -> Result<Node, ExprError> {
        let named = |at: usize| move |error: NameError| ExprError::new(at, error.to_string());
        let Some(Token::Subject(text)) = self.peek() else {
            let message = format!("`(traffic)` must follow {}", metric.name());
            return Err(ExprError::new(self.at(), message));
        };
        let traffic = self.names.traffic(metric, text).map_err(named(self.at()))?;
        self.next += 1;
        let step = match self.peek() {
            Some(Token::Step(step)) => Some(self.names.step(step).map_err(named(self.at()))?),
            _ => None,
        };
        self.next += usize::from(step.is_some());
        self.expect_symbol(")")?;
        let flows = FlowSet { metric, traffic, step };
        Ok(self.term(at, Origin::Flows(OfFlows { statistic, flows })))
    }

    /// What stands behind a statistic: `(subscriber_rate(town-*)@x10)`.
    fn of_subscribers(
        &mut self,
        statistic: Statistic,
        metric: SubscriberMetric,
        at: usize,
    ) -> Result<Node, ExprError> {
        let named = |at: usize| move |error: NameError| ExprError::new(at, error.to_string());
        let Some(Token::Subject(text)) = self.peek() else {
            let message = format!("`(subscriber)` must follow {}", metric.name());
            return Err(ExprError::new(self.at(), message));
        };
        let People { router, link, pattern } = self.names.people(text).map_err(named(self.at()))?;
        self.next += 1;
        let Some(Token::Step(step)) = self.peek() else {
            return Err(ExprError::new(self.at(), "`@` and the name of a step must follow"));
        };
        let step = self.names.step(step).map_err(named(self.at()))?;
        self.next += 1;
        self.expect_symbol(")")?;
        let set = SubscriberSet { metric, router, link, pattern, step };
        Ok(self.term(at, Origin::Subscribers(OfSubscribers { statistic, set })))
    }

    fn arguments(&mut self) -> Result<Vec<Node>, ExprError> {
        self.expect_symbol("(")?;
        let mut arguments = self.argument()?;
        while self.take_symbol(",") {
            arguments.extend(self.argument()?);
        }
        self.expect_symbol(")")?;
        Ok(arguments)
    }

    /// A number of a function, or all that a class with `*` stands for.
    fn argument(&mut self) -> Result<Vec<Node>, ExprError> {
        let ahead = |places: usize| self.words.get(self.next + places).map(|word| word.token);
        let (Some(Token::Name(name)), Some(Token::Subject(text)), Some(Token::Step(step))) =
            (ahead(0), ahead(1), ahead(2))
        else {
            return Ok(vec![self.sum()?]);
        };
        let Some(metric) = metric_of(name).filter(|metric| {
            !metric.is_of_link()
                && text.contains('*')
                && !matches!(ahead(3), Some(Token::Symbol(s)) if s != "," && s != ")")
        }) else {
            return Ok(vec![self.sum()?]);
        };
        let at = self.words.get(self.next + 1).map_or(0, |word| word.at);
        let named = |at: usize| move |error: NameError| ExprError::new(at, error.to_string());
        let step_at = self.words.get(self.next + 2).map_or(0, |word| word.at);
        let index = self.names.step(step).map_err(named(step_at))?;
        self.next += 3;
        let mut found = Vec::new();
        for one in self.names.all(metric, text).map_err(named(at))? {
            let subject = self.names.subject(metric, &one).map_err(named(at))?;
            let text = format!("{name}({one})@{step}");
            found.push(self.known_term(text, Origin::Measured(metric, subject, index)));
        }
        Ok(found)
    }

    fn measured(&mut self, metric: Metric, at: usize) -> Result<Node, ExprError> {
        let Some(Token::Subject(subject)) = self.peek() else {
            let what = if metric.is_of_link() { "link" } else { "class" };
            return Err(ExprError::new(
                self.at(),
                format!("`({what})@step` must follow {}", metric.name()),
            ));
        };
        let subject_at = self.at();
        self.next += 1;
        let Some(Token::Step(step)) = self.peek() else {
            return Err(ExprError::new(self.at(), "`@` and the name of a step must follow"));
        };
        let step_at = self.at();
        self.next += 1;
        let resolved = self
            .names
            .subject(metric, subject)
            .map_err(|error| ExprError::new(subject_at, error.to_string()))?;
        let index =
            self.names.step(step).map_err(|error| ExprError::new(step_at, error.to_string()))?;
        Ok(self.term(at, Origin::Measured(metric, resolved, index)))
    }

    fn published(&mut self, at: usize) -> Result<Node, ExprError> {
        let Some(Token::Path(path)) = self.peek() else {
            return Err(ExprError::new(
                self.at(),
                "`.` and a key of the published entry must follow",
            ));
        };
        let path_at = self.at();
        self.next += 1;
        let number = self
            .names
            .published(path.trim_start_matches('.'))
            .map_err(|error| ExprError::new(path_at, error.to_string()))?;
        Ok(self.term(at, Origin::Published(number)))
    }

    /// The term that ends before the next word; the same one if it was there before.
    fn term(&mut self, from: usize, origin: Origin) -> Node {
        let to = self.words.get(self.next.wrapping_sub(1)).map_or(from, |word| word.end);
        let text = self.text.get(from..to).unwrap_or("").to_owned();
        self.known_term(text, origin)
    }

    fn known_term(&mut self, text: String, origin: Origin) -> Node {
        let index =
            self.terms.iter().position(|known| known.origin == origin && known.text == text);
        Node::Term(index.unwrap_or_else(|| {
            self.terms.push(Source { text, origin });
            self.terms.len() - 1
        }))
    }
}
