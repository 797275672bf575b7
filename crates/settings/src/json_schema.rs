//! JSON Schema (2020-12) of a format, from the same tables that read it: for completion and checks
//! in editors.
//!
//! Quantities are texts with a unit; their ranges stand in the description, as a schema cannot
//! compare them. The program's own check says more: what a schema accepts may still be refused with
//! file and line.

use serde_json::{Map, Value, json};

use evenkeel_core::settings::schema::{Kind, Presence, Section};

/// What a [`Kind::Foreign`] holds, by the words that say so; anything where `None`.
pub type Foreign<'a> = &'a dyn Fn(&str) -> Option<Value>;

/// A whole schema as text: a section as the root, its title.
#[must_use]
pub fn document(title: &str, root: &Section, foreign: Foreign<'_>) -> String {
    let mut schema = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$comment": "Generated from the table of keys; a test compares. Update: UPDATE_DOCS=1 \
                     cargo test reference",
        "title": title,
    });
    if let (Value::Object(schema), Value::Object(table)) = (&mut schema, section(root, foreign)) {
        schema.extend(table);
    }
    format!("{schema:#}\n")
}

/// The schema of a table.
#[must_use]
pub fn section(section: &Section, foreign: Foreign<'_>) -> Value {
    let mut properties = Map::new();
    let mut required = Vec::new();
    for key in section.keys() {
        let mut of = kind(&key.kind, foreign);
        if let Value::Object(of) = &mut of {
            let range = match key.kind {
                Kind::Time { .. } | Kind::Rate { .. } | Kind::Size { .. } | Kind::ByClass(..) => {
                    key.kind.range()
                }
                _ => String::new(),
            };
            let valid = if range.is_empty() { range } else { format!(" Valid: {range}.") };
            of.insert("description".to_owned(), json!(format!("{}{valid}", key.doc)));
            if let Some(text) = key.presence.default_text()
                && let Some(value) = default(&text)
            {
                of.insert("default".to_owned(), value);
            }
        }
        if matches!(key.presence, Presence::Required) {
            required.push(key.name);
        }
        properties.insert(key.name.to_owned(), of);
    }
    json!({
        "type": "object",
        "description": section.doc,
        "properties": properties,
        "required": required,
        "additionalProperties": false,
    })
}

/// A default is given as it would stand in a TOML file.
fn default(text: &str) -> Option<Value> {
    let table: toml::Table = format!("value = {text}").parse().ok()?;
    serde_json::to_value(table.get("value")?).ok()
}

fn kind(of: &Kind, foreign: Foreign<'_>) -> Value {
    const TIME: &str = r"^ *[0-9_]+(\.[0-9_]+)? *(ns|us|ms|s) *$";
    const RATE: &str = r"^ *[0-9_]+(\.[0-9_]+)? *(bit|kbit|Mbit|Gbit)/s *$";
    const SIZE: &str = r"^ *[0-9_]+(\.[0-9_]+)? *(B|KiB|MiB|GiB) *$";
    match of {
        Kind::Text
        | Kind::Form(..)
        | Kind::Secret(..)
        | Kind::Path
        | Kind::Prefix
        | Kind::Address => {
            json!({ "type": "string" })
        }
        Kind::Name(most) => {
            json!({ "type": "string", "pattern": "^[A-Za-z][A-Za-z0-9_.-]*$", "maxLength": most })
        }
        Kind::Interface => json!({ "type": "string", "pattern": r"^[^/:\s]{1,15}$" }),
        Kind::Switch => json!({ "type": "boolean" }),
        Kind::Integer { min, max, .. } => {
            json!({ "type": "integer", "minimum": min, "maximum": max })
        }
        Kind::Number { min, max } => json!({ "type": "number", "minimum": min, "maximum": max }),
        Kind::Time { .. } => json!({ "type": "string", "pattern": TIME }),
        Kind::Rate { .. } => json!({ "type": "string", "pattern": RATE }),
        Kind::Size { .. } => json!({ "type": "string", "pattern": SIZE }),
        Kind::Choice(words) => {
            let each: Vec<Value> = words
                .iter()
                .map(|(word, what)| json!({ "const": word, "description": what }))
                .collect();
            json!({ "oneOf": each })
        }
        Kind::Named { max, .. } => {
            json!({ "type": ["string", "integer"], "minimum": 0, "maximum": max })
        }
        Kind::Ports => json!({ "type": ["string", "integer"], "minimum": 0, "maximum": 65535 }),
        Kind::List(item) => {
            let item = kind(item, foreign);
            json!({ "anyOf": [item, { "type": "array", "items": item }] })
        }
        Kind::Table(of) => section(of, foreign),
        Kind::Tables { section: of, min, max } => {
            json!({ "type": "array", "items": section(of, foreign), "minItems": min,
                "maxItems": max })
        }
        Kind::Variants(variants) => {
            let each: Vec<Value> = variants
                .iter()
                .map(|(name, of)| {
                    let mut table = section(of, foreign);
                    table["properties"]["kind"] = json!({ "const": name });
                    if let Some(required) = table["required"].as_array_mut() {
                        required.insert(0, json!("kind"));
                    }
                    table
                })
                .collect();
            json!({ "oneOf": each })
        }
        Kind::ByClass(of, _) => {
            let one = kind(of, foreign);
            json!({ "anyOf": [one, { "type": "object", "additionalProperties": one }] })
        }
        Kind::Foreign(words) => foreign(words).unwrap_or_else(|| json!({})),
    }
}
