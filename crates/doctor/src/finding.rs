//! What was found, and what to do about it.

use std::fmt;

/// How much a finding matters.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Level {
    /// As it should be.
    Fine,
    /// It could not be seen.
    Unseen,
    /// It costs something, or will under load.
    Mind,
    /// While it is so, shaping does not work here.
    Bad,
}

impl fmt::Display for Level {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(match self {
            Self::Fine => "ok",
            Self::Unseen => "unseen",
            Self::Mind => "mind",
            Self::Bad => "BAD",
        })
    }
}

/// One thing that was looked at.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Finding {
    /// How much it matters.
    pub level: Level,
    /// What it is about: `machine`, or an interface.
    pub about: String,
    /// What was looked at: `clock`, `ring below`.
    pub topic: &'static str,
    /// What was found, in a sentence.
    pub what: String,
    /// What to do, if there is something.
    pub remedy: Option<String>,
}

/// Findings about one thing, as they are gathered.
#[derive(Debug)]
pub(crate) struct Findings<'a> {
    about: &'a str,
    pub(crate) found: Vec<Finding>,
}

impl<'a> Findings<'a> {
    pub(crate) fn about(about: &'a str) -> Self {
        Self { about, found: Vec::new() }
    }

    pub(crate) fn fine(&mut self, topic: &'static str, what: impl Into<String>) {
        self.add(Level::Fine, topic, what.into(), None);
    }

    pub(crate) fn unseen(&mut self, topic: &'static str, what: impl Into<String>) {
        self.add(Level::Unseen, topic, what.into(), None);
    }

    pub(crate) fn mind(
        &mut self,
        topic: &'static str,
        what: impl Into<String>,
        remedy: impl Into<String>,
    ) {
        self.add(Level::Mind, topic, what.into(), Some(remedy.into()));
    }

    pub(crate) fn bad(
        &mut self,
        topic: &'static str,
        what: impl Into<String>,
        remedy: impl Into<String>,
    ) {
        self.add(Level::Bad, topic, what.into(), Some(remedy.into()));
    }

    fn add(&mut self, level: Level, topic: &'static str, what: String, remedy: Option<String>) {
        let about = self.about.to_owned();
        self.found.push(Finding { level, about, topic, what, remedy });
    }
}
