//! An axis of the grid, and its values.

use evenkeel_settings::tree::Data;
use serde::{Deserialize, Serialize};
use toml::{Table, Value};

/// An axis of the grid.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Axis {
    /// Its name.
    pub name: String,
    /// What figures call it.
    pub label: String,
    /// The paths it sets.
    pub set: Vec<String>,
    /// Its values.
    pub values: Vec<Value>,
    /// What each value puts besides: paths and values. Empty if no value puts anything.
    pub put: Vec<Vec<(String, Value)>>,
}

/// A value of a file as the library for writing files has it.
pub(crate) fn value(data: &Data) -> Option<Value> {
    let mut table: Table = format!("value = {}", data.inline()).parse().ok()?;
    table.remove("value")
}

/// A value as people write it.
pub(crate) fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// A value that is a number.
pub(crate) fn number(value: &Value) -> Option<f64> {
    value.as_float().or_else(|| value.as_integer().map(|whole| whole as f64))
}
