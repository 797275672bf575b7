//! What a change of a running router has come to, in words.

use std::fmt::Write as _;

use evenkeel_control::{Changes, Request};
use serde_json::{Value, json};

/// What changed, for the log: a line.
pub(crate) fn told(changes: &Changes) -> String {
    let mut text = String::new();
    if let Some(file) = &changes.file {
        let _ = write!(text, "{file}");
        if let Some(other) = &changes.instead_of {
            let _ = write!(text, " instead of {other}");
        }
        text += ": ";
    }
    text +=
        &if changes.changes.is_empty() { "no change".into() } else { changes.changes.join("; ") };
    if let Some(by) = &changes.by {
        let _ = write!(text, "; by {by}");
    }
    text + &changes.undone_in_ms.map_or_else(String::new, |left| format!("; {}", undone(left)))
}

/// When a change is undone.
pub(crate) fn undone(left: u64) -> String {
    format!("undone in {} unless `evenkeel ctl confirm` comes before", seconds(left))
}

fn seconds(milliseconds: u64) -> String {
    if milliseconds < 1_000 {
        format!("{milliseconds} ms")
    } else {
        format!("{} s", milliseconds / 1_000)
    }
}

/// What a request has come to, for who asked.
pub(crate) fn said(request: &Request, changes: &Changes) -> String {
    let mut text = String::new();
    let file = changes.file.as_deref().unwrap_or("the router");
    if matches!(request, Request::Confirm) {
        let left = changes.undone_in_ms.map_or_else(String::new, |left| {
            format!(" ({} before it would have been undone)", seconds(left))
        });
        return format!("kept: {file}{left}\n");
    }
    if let Some(file) = &changes.file {
        let _ = write!(text, "{file}");
        if let Some(other) = &changes.instead_of {
            let _ = write!(text, ", instead of {other}");
        }
        text.push('\n');
    }
    for change in &changes.changes {
        let _ = writeln!(text, "  {change}");
    }
    if changes.changes.is_empty() {
        text += "  nothing changes: it is so already\n";
    }
    if let Some(left) = changes.undone_in_ms {
        let _ = writeln!(text, "{}", undone(left));
    }
    text
}

/// The same for programs.
pub(crate) fn told_json(changes: &Changes) -> Value {
    let mut value = json!(changes);
    value["ok"] = json!(true);
    value
}
