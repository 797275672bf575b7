//! The reference of the format, from the same tables that read it.

use evenkeel_core::settings::Settings;
use evenkeel_settings::json_schema;

use crate::expr::{FlowMetric, Fold, Metric, SubscriberMetric};
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
    page.push_str(FLOWS);
    for metric in FlowMetric::ALL {
        let unit = if metric.unit().is_empty() { "fraction or count" } else { metric.unit() };
        page.push_str(&format!(
            "| `{}(traffic)` | {unit} | {} |\n",
            metric.name(),
            metric.meaning()
        ));
    }
    page.push_str(SUBSCRIBERS);
    for metric in SubscriberMetric::ALL {
        let unit = if metric.unit().is_empty() { "fraction" } else { metric.unit() };
        page.push_str(&format!(
            "| `{}(subscriber)@step` | {unit} | {} |\n",
            metric.name(),
            metric.meaning()
        ));
    }
    page.push_str("\n| statistic | what it is |\n|---|---|\n");
    page.push_str("| `p1` to `p99` | percentile, of the nearest rank: one that there was |\n");
    for fold in Fold::ALL {
        page.push_str(&format!("| `{}` | {} |\n", fold.name(), fold.meaning()));
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
`sum( , )`, `mean( , )`, `jain( , )` (Jain's index of fairness), published numbers \
`published.weights[1]` (indices from 0), and metrics. \
A metric is the mean over a step, its settling time left out. Where a class or link is \
measured at several places, say which: `sent(r1/sink/class3)@start`. \
Names of steps may hold `-`: put spaces around a minus sign behind one. Where a metric is a number \
of a function, its class may hold `*` and stands for all that are meant: `jain(sent(flow*)@start)`.

| metric | unit | what it is |
|---|---|---|
";

const SUBSCRIBERS: &str = "
Subscribers one by one, as in `subscribers.csv`, where a router has a `[[tree]]`: \
`worst(share_error(town-*)@evening)`, `jain(subscriber_rate(r1/lan/*)@start)`. Names may hold `*`, \
and then mean subscribers; the name of a node means the node. Where trees are on several links, \
say which.

| of a subscriber | unit | what it is |
|---|---|---|
";

const FLOWS: &str = "
Flows one by one, as in `flows.csv`, come with a statistic around them: `p99(fct(web))`, \
`jain(flow_goodput(up*, down*))`, `worst(flow_loss(*)@busy)`. Names are those of `[[traffic]]` \
and may hold `*`; of several those count that have such a number. With `@step` the flows count \
that began during the step, without all of the run. A flow that was not done by its end is the \
slowest of all: a percentile among such flows, and a mean with one of them, is *undecided*, never \
too good.

| of a flow | unit | what it is |
|---|---|---|
";
