//! `summary.json`: per-step statistics and judged expectations for programs.

use crate::html::Report;

/// The whole summary as a JSON value. Its shape is described in the format reference.
#[must_use]
pub fn summary(report: &Report) -> serde_json::Value {
    todo!()
}
