//! The words of an expression.

use std::fmt;

/// What is wrong with an expression.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct ExprError {
    /// Where: bytes from the begin of the text.
    pub(crate) at: usize,
    /// What.
    pub(crate) message: String,
}

impl ExprError {
    pub(super) fn new(at: usize, message: impl Into<String>) -> Self {
        Self { at, message: message.into() }
    }
}

impl fmt::Display for ExprError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at character {}: {}", self.at + 1, self.message)
    }
}

impl std::error::Error for ExprError {}

/// A word, and where it begins and ends (bytes).
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Word<'t> {
    pub(super) token: Token<'t>,
    pub(super) at: usize,
    pub(super) end: usize,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Token<'t> {
    Number(f64),
    /// A metric, a function, `and`, `within`, `published`.
    Name(&'t str),
    /// What stands behind `@`, without it.
    Step(&'t str),
    /// What stands in the parentheses of a metric.
    Subject(&'t str),
    /// The path behind `published`, with its first dot or bracket.
    Path(&'t str),
    /// An operator or parenthesis.
    Symbol(&'static str),
}

/// Symbols; longer ones first.
const SYMBOLS: &[&str] = &["<=", ">=", "<", ">", "~", "+", "-", "*", "/", "(", ")", ",", "%"];

fn is_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// Splits a text into words. `is_metric` says which names take a subject.
pub(super) fn words<'t>(
    text: &'t str,
    is_metric: impl Fn(&str) -> bool,
) -> Result<Vec<Word<'t>>, ExprError> {
    let mut words: Vec<Word<'t>> = Vec::new();
    let mut at = 0;
    while let Some(c) = text[at..].chars().next() {
        if c.is_whitespace() {
            at += c.len_utf8();
            continue;
        }
        let (token, end) = word(text, at, c, words.last().map(|word| &word.token), &is_metric)?;
        words.push(Word { token, at, end });
        at = end;
    }
    Ok(words)
}

fn word<'t>(
    text: &'t str,
    at: usize,
    c: char,
    before: Option<&Token<'t>>,
    is_metric: &impl Fn(&str) -> bool,
) -> Result<(Token<'t>, usize), ExprError> {
    let rest = &text[at..];
    let run = |from: &'t str, belongs: fn(char) -> bool| {
        &from[..from.find(|c| !belongs(c)).unwrap_or(from.len())]
    };
    if let Some(Token::Name(name)) = before {
        if *name == "published" && (c == '.' || c == '[') {
            let path = run(rest, |c| is_name(c) || ".[]-".contains(c));
            return Ok((Token::Path(path), at + path.len()));
        }
        if is_metric(name) && c == '(' {
            let Some(close) = rest.find(')') else {
                return Err(ExprError::new(at, "the parenthesis is not closed"));
            };
            return Ok((Token::Subject(rest[1..close].trim()), at + close + 1));
        }
    }
    if c == '@' {
        let step = run(&rest[1..], |c| is_name(c) || c == '-' || c == '.');
        if step.is_empty() {
            return Err(ExprError::new(at, "the name of a step must follow the @"));
        }
        return Ok((Token::Step(step), at + 1 + step.len()));
    }
    if c.is_ascii_digit() {
        let digits = run(rest, |c| c.is_ascii_digit() || c == '.' || c == '_');
        let plain: String = digits.chars().filter(|c| *c != '_').collect();
        return match plain.parse() {
            Ok(number) => Ok((Token::Number(number), at + digits.len())),
            Err(_) => Err(ExprError::new(at, format!("{digits:?} is not a number"))),
        };
    }
    if c.is_ascii_alphabetic() {
        let name = run(rest, is_name);
        return Ok((Token::Name(name), at + name.len()));
    }
    match SYMBOLS.iter().find(|symbol| rest.starts_with(**symbol)) {
        Some(symbol) => Ok((Token::Symbol(symbol), at + symbol.len())),
        None => Err(ExprError::new(at, format!("{c:?} has no meaning here"))),
    }
}
