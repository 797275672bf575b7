//! `[[tree]]`: the people behind a router, each with a plan, and the sites that they are at.
//!
//! A list says who there is: `list` what a list holds and what may not stand in it, `csv` and
//! `json` how it is written, `libreqos` two files of LibreQoS, read as they are, `seen` what of it
//! the frames of which ports do not say, `classes` which of them are of which class. A
//! [`SubscriberTree`] is a list in the places of the core's trees, one for each direction.

mod change;
mod classes;
mod csv;
mod json;
mod libreqos;
mod list;
mod seen;
mod tree;

pub use change::{FIELDS, SubscriberChange, SubscriberChangeError};
pub use list::{Entry, GivenList, Rates, Role, SubscriberList};
pub use tree::{ListFormat, Shares, SubscriberTree, TreeSection, name_of};
pub(crate) use tree::{check, plant, trees_of};

use std::fmt::Display;
use std::path::Path;

use evenkeel_settings::{Diagnostic, Diagnostics};

/// Mistakes of a list that are told one by one.
const TOLD: usize = 20;

/// The mistakes of a file.
#[derive(Debug)]
struct Faults {
    file: String,
    told: Vec<Diagnostic>,
    /// How many there are beyond those.
    more: usize,
}

impl Faults {
    fn new(file: &Path) -> Self {
        Self { file: file.display().to_string(), told: Vec::new(), more: 0 }
    }

    fn tell(&mut self, line: usize, key: &str, message: impl Into<String>) {
        if self.told.len() == TOLD {
            self.more += 1;
            return;
        }
        let (file, key) = (self.file.clone(), key.to_owned());
        self.told.push(Diagnostic { file, line, key, message: message.into() });
    }

    /// Whether what comes is only counted: then no remedy need be looked for.
    fn are_many(&self) -> bool {
        self.told.len() == TOLD
    }

    fn is_empty(&self) -> bool {
        self.told.is_empty()
    }

    fn into_diagnostics(mut self) -> Diagnostics {
        if self.more > 0 {
            let message =
                format!("and {} mistakes more: only the first {TOLD} are told", self.more);
            let (file, key) = (self.file.clone(), String::new());
            self.told.push(Diagnostic { file, line: usize::MAX, key, message });
        }
        // The count has no line of its own, and comes last.
        for fault in &mut self.told {
            if fault.line == usize::MAX {
                fault.line = 0;
            }
        }
        Diagnostics(self.told)
    }
}

/// A file's text, without the mark that some programs put in front of it.
fn text_of(file: &Path) -> Result<String, Diagnostics> {
    let failed = |line: usize, message: String| {
        let file = file.display().to_string();
        Diagnostics(vec![Diagnostic { file, line, key: String::new(), message }])
    };
    let bytes =
        std::fs::read(file).map_err(|error| failed(0, format!("cannot be read: {error}")))?;
    let text = String::from_utf8(bytes).map_err(|error| {
        let good = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = good.iter().filter(|byte| **byte == b'\n').count() + 1;
        failed(line, "not UTF-8: save the list as UTF-8".to_owned())
    })?;
    Ok(text.strip_prefix('\u{feff}').map_or_else(|| text.clone(), str::to_owned))
}

/// A word that is wrong, and what would be right.
fn wrong(text: &str, why: impl Display) -> String {
    format!("{text:?}: {why}")
}
