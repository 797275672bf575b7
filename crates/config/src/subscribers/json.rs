//! Lists as JSON: an array of tables with the keys that the columns of CSV have.

use serde::Deserialize;
use serde_json::Value;

use super::Faults;
use super::list::{FoundBy, Role, SubscriberList, Texts};

/// An entry as it is written. Numbers of rates are Mbit/s.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Written {
    name: String,
    parent: Option<String>,
    prefixes: Vec<String>,
    macs: Vec<String>,
    vlans: Vec<Value>,
    sessions: Vec<Value>,
    down: Option<Value>,
    up: Option<Value>,
    min_down: Option<Value>,
    min_up: Option<Value>,
    weight: Option<f64>,
}

/// A number or a text, as a text.
fn text_of(value: Option<&Value>) -> String {
    match value {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    }
}

/// Adds what a text says to a list. `role`: what all its entries are. An entry's number, from 1,
/// stands for its line.
pub(super) fn read(text: &str, role: Option<Role>, list: &mut SubscriberList, faults: &mut Faults) {
    let values: Vec<Value> = match serde_json::from_str(text) {
        Ok(values) => values,
        Err(error) => return faults.tell(error.line(), "", format!("not a list: {error}")),
    };
    for (at, value) in values.into_iter().enumerate() {
        let line = at + 1;
        let written: Written = match serde_json::from_value(value) {
            Ok(written) => written,
            Err(error) => {
                faults.tell(0, "", format!("entry {line}: {error}"));
                continue;
            }
        };
        let numbers = |of: &[Value]| of.iter().map(|one| text_of(Some(one))).collect::<Vec<_>>();
        let field = |column: &str| match column {
            "macs" => written.macs.join(","),
            "vlans" => numbers(&written.vlans).join(","),
            "sessions" => numbers(&written.sessions).join(","),
            _ => written.prefixes.join(","),
        };
        let found = FoundBy::read(field, line, role, faults);
        let [down, up, min_down, min_up] =
            [&written.down, &written.up, &written.min_down, &written.min_up]
                .map(|value| text_of(value.as_ref()));
        let weight = written.weight.map_or_else(String::new, |weight| weight.to_string());
        let texts = Texts {
            line,
            name: written.name.trim(),
            parent: written.parent.as_deref().unwrap_or("").trim(),
            down: &down,
            up: &up,
            min_down: &min_down,
            min_up: &min_up,
            weight: &weight,
        };
        list.entries.push(texts.entry(found, role, faults));
    }
}
