//! The JSON Schema of scenarios: up to date, and true to the scenarios that are shipped.

use std::path::{Path, PathBuf};

use evenkeel_scenario::scenario_schema;
use serde_json::Value;

fn project(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

#[test]
fn the_json_schema_is_up_to_date_reference() {
    let path = project("docs/schema/scenario.schema.json");
    let generated = scenario_schema();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, &generated).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        written == generated,
        "{} is out of date: UPDATE_DOCS=1 cargo test -p evenkeel-scenario reference",
        path.display()
    );
}

/// What a validator would say, for the words that our schemas use; patterns are left out.
fn refused(schema: &Value, value: &Value, at: &str) -> Option<String> {
    let is = |name: &str| match name {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "boolean" => value.is_boolean(),
        other => panic!("no type {other}"),
    };
    let known = match &schema["type"] {
        Value::String(name) => is(name),
        Value::Array(names) => names.iter().any(|name| is(name.as_str().unwrap())),
        _ => true,
    };
    if !known {
        return Some(format!("{at}: {value} is no {}", schema["type"]));
    }
    if let Some(word) = schema.get("const").filter(|word| *word != value) {
        return Some(format!("{at}: {value} is not {word}"));
    }
    for (key, exactly) in [("anyOf", false), ("oneOf", true)] {
        if let Some(each) = schema[key].as_array() {
            let refusals: Vec<_> =
                each.iter().filter_map(|schema| refused(schema, value, at)).collect();
            let taken = each.len() - refusals.len();
            if taken == 0 || (exactly && taken > 1) {
                return Some(format!("{at}: {taken} of {key} take it: {refusals:?}"));
            }
        }
    }
    let outside = |bound: &str, wrong: fn(f64, f64) -> bool| {
        value.as_f64().zip(schema[bound].as_f64()).is_some_and(|(value, bound)| wrong(value, bound))
    };
    if outside("minimum", |v, b| v < b) || outside("maximum", |v, b| v > b) {
        return Some(format!("{at}: {value} is out of range"));
    }
    if let Some(table) = value.as_object() {
        let missing = schema["required"].as_array().into_iter().flatten();
        if let Some(key) =
            missing.map(|key| key.as_str().unwrap()).find(|key| !table.contains_key(*key))
        {
            return Some(format!("{at}: no {key}"));
        }
        for (key, value) in table {
            let inner = schema["properties"].get(key).unwrap_or(&schema["additionalProperties"]);
            let refusal = match inner {
                Value::Bool(false) => Some(format!("{at}: no key {key}")),
                schema => refused(schema, value, &format!("{at}.{key}")),
            };
            if refusal.is_some() {
                return refusal;
            }
        }
    }
    let items = value.as_array().into_iter().flatten();
    if schema.get("items").is_some() {
        return items.clone().find_map(|item| refused(&schema["items"], item, at));
    }
    None
}

fn scenarios() -> Vec<(PathBuf, Value)> {
    let mut files = Vec::new();
    for folder in ["scenarios/lct", "scenarios/wfq-altq", "scenarios/demo"] {
        for entry in std::fs::read_dir(project(folder)).unwrap() {
            let path = entry.unwrap().path();
            let table: toml::Table = std::fs::read_to_string(&path).unwrap().parse().unwrap();
            files.push((path, serde_json::to_value(table).unwrap()));
        }
    }
    assert!(files.len() > 10);
    files
}

#[test]
fn it_takes_every_scenario_that_is_shipped() {
    let schema: Value = serde_json::from_str(&scenario_schema()).unwrap();
    for (path, value) in scenarios() {
        assert_eq!(refused(&schema, &value, ""), None, "{}", path.display());
    }
}

#[test]
fn it_refuses_what_the_format_does_not_know() {
    let schema: Value = serde_json::from_str(&scenario_schema()).unwrap();
    let (_, good) =
        scenarios().into_iter().find(|(path, _)| path.ends_with("lct/fig4.toml")).unwrap();
    let wrong = |change: fn(&mut Value)| {
        let mut value = good.clone();
        change(&mut value);
        refused(&schema, &value, "").expect("refused")
    };
    assert_eq!(wrong(|v| v["wires"] = 1.into()), ": no key wires");
    assert!(wrong(|v| v["duration"] = 5.into()).contains("5 is no"));
    assert!(
        wrong(|v| v["router"][0]["config"]["link"][0]["ring"]["slots"] = 5_000.into())
            .contains("out of range")
    );
    assert!(
        wrong(|v| v["router"][0]["config"]["link"][0]["discipline"]["limt"] = 5.into())
            .contains("no key limt")
    );
    assert!(wrong(|v| drop(v.as_object_mut().unwrap().remove("title"))).contains("no title"));
}
