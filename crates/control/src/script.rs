//! Timed changes: a file of `time command` lines, applied at their times.
//!
//! ```text
//! # QoStat's steps
//! 0s   set sink x_delay class3 0us
//! 25s  set sink x_delay class3 10us
//! 50s  set sink module2 false
//! 75s  discipline sink { kind = "wfq-altq", drop = "tail", limit = 50 }
//! 90s  rate sink 50Mbit/s
//! 95s  ring sink 64 any
//! 97s  fairdrop rule { kind = "kappa", kappa = 1.08 }
//! ```
//!
//! Times count from the start of the script. `set` takes a link, a knob, for knobs of a class its
//! name, and a value. A `#` outside of quotes begins a comment.

use std::fmt;
use std::thread;
use std::time::{Duration, Instant};

use evenkeel_core::settings::quantity::{QuantityError, parse_time};
use thiserror::Error;

use crate::client::{Client, ClientError};
use crate::protocol::Request;

/// What a line may hold, for messages.
const FORMS: &str = "set LINK KNOB [CLASS] VALUE, discipline LINK KIND-OR-TABLE, rate LINK RATE, \
                     ring LINK SLOTS REFILL, fairdrop KEY VALUE, balancer ID STATE";

/// A change and when it is due.
#[derive(Clone, Debug, PartialEq)]
pub struct ScriptEntry {
    /// Line in the file, from 1.
    pub line: usize,
    /// When, after the start of the script.
    pub at: Duration,
    /// What.
    pub request: Request,
    /// The command as it stands in the file.
    pub text: String,
}

/// What is wrong with a line of a script, or with a command, and what would be right.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum LineError {
    /// Only a word.
    #[error("{0:?} is not `time command`: commands are {FORMS}")]
    NoCommand(String),
    /// The time.
    #[error("time {0:?}: {1}")]
    Time(String, QuantityError),
    /// Words are missing.
    #[error("{text:?} is not complete: {form}")]
    Incomplete {
        /// The command.
        text: String,
        /// What it should be like.
        form: &'static str,
    },
    /// Too many words.
    #[error("{0:?} has too many words: set LINK KNOB [CLASS] VALUE")]
    TooLong(String),
    /// The forwarder.
    #[error("forwarder {0:?} is not an id, 0 to 65535")]
    Forwarder(String),
    /// The slots of a ring.
    #[error("slots {0:?} is not a whole number")]
    Slots(String),
    /// Another first word.
    #[error("{0:?} is not a command: commands are {FORMS}")]
    Unknown(String),
}

/// What is wrong with a script.
#[derive(Clone, Debug, PartialEq, Error)]
#[error("{file}:{line}: {error}")]
pub struct ScriptError {
    /// The file's name as given.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// What is wrong with it.
    pub error: LineError,
}

/// Reads a script. Entries come back in order of time; those of equal time in order of lines.
///
/// # Errors
/// Every line that is wrong.
pub fn parse(text: &str, file: &str) -> Result<Vec<ScriptEntry>, Vec<ScriptError>> {
    let mut entries = Vec::new();
    let mut errors = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let line = without_comment(line).trim();
        if line.is_empty() {
            continue;
        }
        match entry(line, number + 1) {
            Ok(entry) => entries.push(entry),
            Err(error) => {
                errors.push(ScriptError { file: file.to_owned(), line: number + 1, error });
            }
        }
    }
    entries.sort_by_key(|entry: &ScriptEntry| entry.at);
    if errors.is_empty() { Ok(entries) } else { Err(errors) }
}

/// The line up to a `#` that does not stand in quotes.
fn without_comment(line: &str) -> &str {
    let mut quoted = false;
    let end = line.find(|c| {
        quoted ^= c == '"';
        c == '#' && !quoted
    });
    &line[..end.unwrap_or(line.len())]
}

fn entry(line: &str, number: usize) -> Result<ScriptEntry, LineError> {
    let (time, text) = line
        .split_once(char::is_whitespace)
        .ok_or_else(|| LineError::NoCommand(line.to_owned()))?;
    let at = parse_time(time).map_err(|error| LineError::Time(time.to_owned(), error))?;
    let text = text.trim();
    Ok(ScriptEntry {
        line: number,
        at: Duration::from_nanos(at.0),
        request: command(text)?,
        text: text.split_whitespace().collect::<Vec<_>>().join(" "),
    })
}

/// Reads a command as it stands in a script: `set LINK KNOB [CLASS] VALUE`,
/// `discipline LINK KIND-OR-TABLE`, `rate LINK RATE`, `ring LINK SLOTS REFILL`,
/// `fairdrop KEY VALUE`, `balancer ID STATE`.
///
/// # Errors
/// What is wrong and what would be right. Knobs and values are judged by the router, which knows
/// the classes.
pub fn command(text: &str) -> Result<Request, LineError> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let rest = |n: usize| rest_after(text, n);
    let wanted = |form| Err(LineError::Incomplete { text: text.to_owned(), form });
    let link = || words[1].to_owned();
    match words.first().copied() {
        Some("set") => match words.len() {
            4 => Ok(set(link(), words[2], None, words[3])),
            // A table has spaces; it follows knobs that belong to the link.
            n if n > 4 && words[3].starts_with('{') => Ok(set(link(), words[2], None, rest(3))),
            5 => Ok(set(link(), words[2], Some(words[3]), words[4])),
            n if n > 5 => Err(LineError::TooLong(text.to_owned())),
            _ => wanted("set LINK KNOB [CLASS] VALUE"),
        },
        Some("fairdrop") if words.len() >= 3 => {
            Ok(Request::Fairdrop { key: words[1].to_owned(), value: rest(2).to_owned() })
        }
        Some("fairdrop") => wanted("fairdrop KEY VALUE, as in fairdrop on true"),
        Some("balancer") if words.len() == 3 => match words[1].parse() {
            Ok(forwarder) => Ok(Request::Balancer { forwarder, state: words[2].to_owned() }),
            Err(_) => Err(LineError::Forwarder(words[1].to_owned())),
        },
        Some("balancer") => wanted("balancer ID STATE, as in balancer 3 draining"),
        Some("discipline") if words.len() >= 3 => {
            Ok(Request::Discipline { link: link(), value: rest(2).to_owned() })
        }
        Some("discipline") => wanted("discipline LINK KIND-OR-TABLE"),
        Some("rate") if words.len() == 3 => {
            Ok(Request::Rate { link: link(), value: words[2].to_owned() })
        }
        Some("rate") => wanted("rate LINK RATE, as in rate sink 100Mbit/s"),
        Some("ring") if words.len() == 4 => match words[2].parse() {
            Ok(slots) => Ok(Request::Ring { link: link(), slots, refill: words[3].to_owned() }),
            Err(_) => Err(LineError::Slots(words[2].to_owned())),
        },
        Some("ring") => wanted("ring LINK SLOTS REFILL, as in ring sink 128 whole"),
        _ => Err(LineError::Unknown(text.to_owned())),
    }
}

fn set(link: String, knob: &str, class: Option<&str>, value: &str) -> Request {
    Request::Set {
        link,
        knob: knob.to_owned(),
        class: class.map(str::to_owned),
        value: value.to_owned(),
    }
}

/// What follows the first `n` words, as it stands.
fn rest_after(text: &str, n: usize) -> &str {
    let mut rest = text.trim();
    for _ in 0..n {
        rest = rest.split_once(char::is_whitespace).map_or("", |(_, rest)| rest.trim_start());
    }
    rest
}

/// What became of an entry.
#[derive(Debug)]
pub struct Applied<'a> {
    /// The entry.
    pub entry: &'a ScriptEntry,
    /// When it was applied, after the start of the script.
    pub at: Duration,
    /// The router's answer.
    pub result: Result<(), ClientError>,
}

impl fmt::Display for Applied<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:9.3} s  {}", self.at.as_secs_f64(), self.entry.text)?;
        match &self.result {
            Ok(()) => Ok(()),
            Err(error) => write!(f, "  refused (line {}): {error}", self.entry.line),
        }
    }
}

/// Applies the entries at their times and reports each as it is done. A refused change does not
/// stop the script; a broken connection does. Returns how many were refused.
///
/// # Errors
/// The router no longer answers.
pub fn run(
    client: &mut Client,
    entries: &[ScriptEntry],
    mut report: impl FnMut(&Applied<'_>),
) -> Result<usize, ClientError> {
    let start = Instant::now();
    let mut refused = 0;
    for entry in entries {
        thread::sleep((start + entry.at).saturating_duration_since(Instant::now()));
        let at = start.elapsed();
        match client.send(&entry.request) {
            result @ (Ok(()) | Err(ClientError::Refused(_))) => {
                refused += usize::from(result.is_err());
                report(&Applied { entry, at, result });
            }
            Err(error) => return Err(error),
        }
    }
    Ok(refused)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documented_script_is_read() {
        let text = include_str!("script.rs");
        let script: String = text
            .lines()
            .skip_while(|l| *l != "//! ```text")
            .skip(1)
            .take_while(|l| *l != "//! ```")
            .map(|l| format!("{}\n", l.trim_start_matches("//!")))
            .collect();
        let entries = parse(&script, "steps").unwrap();
        assert_eq!(entries.len(), 7);
        assert_eq!(entries[1].line, 3);
        assert_eq!(entries[1].at, Duration::from_secs(25));
        assert_eq!(entries[1].request, set("sink".into(), "x_delay", Some("class3"), "10us"));
        assert_eq!(entries[2].request, set("sink".into(), "module2", None, "false"));
        assert_eq!(
            entries[3].request,
            Request::Discipline {
                link: "sink".into(),
                value: r#"{ kind = "wfq-altq", drop = "tail", limit = 50 }"#.into()
            }
        );
        assert_eq!(
            entries[5].request,
            Request::Ring { link: "sink".into(), slots: 64, refill: "any".into() }
        );
    }

    #[test]
    fn fairdrop_takes_a_table() {
        let wanted =
            |key: &str, value: &str| Request::Fairdrop { key: key.into(), value: value.into() };
        assert_eq!(command("fairdrop on false").unwrap(), wanted("on", "false"));
        let table = r#"{ kind = "kappa", kappa = 1.08 }"#;
        assert_eq!(command(&format!("fairdrop rule {table}")).unwrap(), wanted("rule", table));
        assert!(command("fairdrop on").unwrap_err().to_string().contains("fairdrop KEY VALUE"));
    }

    #[test]
    fn every_wrong_line_is_named() {
        let text = "0s set sink\n\n# fine\n10 rate sink 1Mbit/s\n1s rte sink 1Mbit/s\n2s\n3s ring \
                    sink x any\n4s set a b c d e";
        let errors = parse(text, "steps.txt").unwrap_err();
        let lines: Vec<usize> = errors.iter().map(|e| e.line).collect();
        assert_eq!(lines, [1, 4, 5, 6, 7, 8]);
        assert!(errors[0].to_string().starts_with("steps.txt:1: "), "{}", errors[0]);
        assert!(errors[0].to_string().contains("set LINK KNOB [CLASS] VALUE"));
        assert!(errors[2].to_string().contains("not a command"));
        assert!(errors[4].to_string().contains("not a whole number"));
    }

    #[test]
    fn entries_are_sorted_by_time_and_keep_the_order_of_lines() {
        let entries =
            parse("2s rate a 1Mbit/s\n1s rate b 1Mbit/s\n2s rate c 1Mbit/s", "f").unwrap();
        let lines: Vec<usize> = entries.iter().map(|e| e.line).collect();
        assert_eq!(lines, [2, 1, 3]);
    }

    #[test]
    fn a_hash_in_quotes_is_no_comment() {
        let entries = parse("1s discipline a { kind = \"x#y\" } # really", "f").unwrap();
        assert_eq!(
            entries[0].request,
            Request::Discipline { link: "a".into(), value: "{ kind = \"x#y\" }".into() }
        );
    }

    #[test]
    fn a_table_may_follow_set() {
        assert_eq!(
            command("set sink ring { slots = 4, refill = \"any\" }").unwrap(),
            set("sink".into(), "ring", None, "{ slots = 4, refill = \"any\" }")
        );
    }
}
