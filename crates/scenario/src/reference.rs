//! The reference of the format, from the same tables that read it.

use evenkeel_core::settings::Settings;
use evenkeel_settings::json_schema;

use crate::expr::Metric;
use crate::tables;

/// The reference of scenarios as Markdown.
#[must_use]
pub fn reference_markdown() -> String {
    let intro = "Every key that a scenario can hold. Anything else is an error that names file, \
                 line, key, valid range and the nearest valid \
                 name; all errors of a file are told at once. Routers are configured as in \
                 [router.toml](reference-router.md).\n";
    let mut page =
        evenkeel_settings::reference::markdown("Reference: scenario.toml", intro, tables::ALL);
    page.push_str(EXPRESSIONS);
    for metric in Metric::all() {
        let unit = if metric.unit().is_empty() { "fraction" } else { metric.unit() };
        let of = if metric.is_of_link() { "link" } else { "class" };
        page.push_str(&format!(
            "| `{}({of})@step` | {unit} | {} |\n",
            metric.name(),
            metric.meaning()
        ));
    }
    page
}

/// The JSON Schema (2020-12) of scenarios, as text.
#[must_use]
pub fn scenario_schema() -> String {
    json_schema::document("scenario.toml", tables::ScenarioSection::SECTION, &|words| {
        (words == tables::ROUTER_CONFIG).then(|| {
            // As router.toml, but the ports are made from the wires.
            let mut router = json_schema::section(&evenkeel_config::tables::FILE, &|_words| None);
            if let Some(properties) = router["properties"].as_object_mut() {
                properties.remove("port");
            }
            if let Some(required) = router["required"].as_array_mut() {
                required.retain(|key| key != "port");
            }
            router
        })
    })
}

const EXPRESSIONS: &str = "
## Expressions

`that` of an expectation is one comparison, or several joined by `and`:

- chains of `<`, `<=`, `>`, `>=`: `delay(class3)@x10 < delay(class3)@x15 < delay(class3)@x50`;
- closeness: `sent(class3)@w1 / sent(class1)@w1 ~ 1 within 10%`, each side within that much of the \
one after it.

Sides are made of numbers, `+`, `-`, `*`, `/`, parentheses, `abs( )`, `min( , )`, `max( , )`, \
published numbers `published.weights[1]` (indices from 0), and
metrics. A metric is the mean over a step, its settling time left out. Where a class or link is \
measured at several places, say which: `sent(r1/sink/class3)@start`. \
Names of steps may hold `-`: put spaces around a minus sign behind one.

| metric | unit | what it is |
|---|---|---|
";
