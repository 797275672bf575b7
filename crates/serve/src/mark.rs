//! What happened, as it is told and noted.

use std::time::{SystemTime, UNIX_EPOCH};

use evenkeel_history::Happened;
use serde::Serialize;

/// Something that happened: the router said it, it was seen from its counters, or it is an alarm.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub(crate) struct Mark {
    /// When, ms since 1970.
    pub(crate) time_ms: u64,
    /// `change`, `raised` or `cleared`.
    pub(crate) kind: String,
    /// What, in words.
    pub(crate) text: String,
}

impl Mark {
    pub(crate) fn change(time_ms: u64, text: String) -> Self {
        Self { time_ms, kind: "change".to_owned(), text }
    }
}

impl From<Happened> for Mark {
    fn from(Happened { time_ms, kind, text }: Happened) -> Self {
        Self { time_ms, kind, text }
    }
}

impl From<&Mark> for Happened {
    fn from(Mark { time_ms, kind, text }: &Mark) -> Self {
        Self { time_ms: *time_ms, kind: kind.clone(), text: text.clone() }
    }
}

/// Now, ms since 1970.
pub(crate) fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
