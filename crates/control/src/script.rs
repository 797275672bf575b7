//! Timed changes: a file of `time command` lines, applied at their times.
//!
//! ```text
//! # QoStat's steps
//! 0s   set sink x_delay class3 0us
//! 25s  set sink x_delay class3 10us
//! 50s  set sink module2 false
//! 75s  discipline sink { kind = "wfq-altq", limit = 50 }
//! 90s  rate sink 50Mbit/s
//! 95s  ring sink 64 any
//! ```

use std::fmt;
use std::time::Duration;

use crate::client::ClientError;
use crate::protocol::Request;

/// A change and when it is due.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// Line in the file, from 1.
    pub line: usize,
    /// When, after the start of the script.
    pub at: Duration,
    /// What.
    pub request: Request,
    /// The command as it stands in the file.
    pub text: String,
}

/// What is wrong with a script.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{file}:{line}: {message}")]
pub struct ScriptError {
    /// The file's name as given.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// What is wrong and what would be right.
    pub message: String,
}

/// Reads a script. Entries come back in order of time; those of equal time in order of lines.
///
/// # Errors
/// Every line that is wrong.
pub fn parse(text: &str, file: &str) -> Result<Vec<Entry>, Vec<ScriptError>> {
    todo!()
}

/// What became of an entry.
#[derive(Debug)]
pub struct Applied<'a> {
    /// The entry.
    pub entry: &'a Entry,
    /// When it was applied, after the start of the script.
    pub at: Duration,
    /// The router's answer.
    pub result: Result<(), ClientError>,
}

impl fmt::Display for Applied<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        todo!()
    }
}
