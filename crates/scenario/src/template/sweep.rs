//! A sweep over what can differ on the first slow link of a scenario.

use std::fmt::Write as _;

use evenkeel_core::BitRate;
use evenkeel_core::settings::quantity::rate_text;

use super::text::quoted;
use crate::model::{Scenario, TrafficKind};

/// Why no sweep can be made of a scenario.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum SweepError {
    /// None of its routers has a link with a rate.
    #[error(
        "it has no [[router.config.link]] with a `rate`: there is nothing that a sweep could vary"
    )]
    NoLink,
}

/// Disciplines that need to know nothing of the traffic.
const DISCIPLINES: [(&str, &str); 4] = [
    ("fifo", "{ kind = \"fifo\", limit = 1000 }"),
    ("codel", "{ kind = \"codel\" }"),
    ("pdrr", "{ kind = \"pdrr\", aqm = \"cobalt\", max_delay = \"50ms\" }"),
    ("pfq", "{ kind = \"pfq\", aqm = \"cobalt\", max_delay = \"50ms\" }"),
];

/// A sweep.toml over `scenario`, which `path` leads to from the file: disciplines and rates of its
/// first link with a rate, three seeds, what packets wait and how equal connections are.
///
/// # Errors
/// [`SweepError::NoLink`].
pub fn sweep(name: &str, path: &str, scenario: &Scenario) -> Result<String, SweepError> {
    let routers = scenario.routers.iter();
    let mut links = routers.flat_map(|router| {
        router.config.links.iter().filter_map(move |link| Some((router, link, link.core.rate?)))
    });
    let (router, link, rate) = links.next().ok_or(SweepError::NoLink)?;
    let link = &link.port;
    let router_name = &router.name;
    let place = format!("router[{router_name}].config.link[{link}]");
    let step = scenario.steps.first().map_or("start", |step| step.name.as_str());

    let mut text = String::from(
        "# evenkeel sweep FILE --dry-run     says what would run\n\
         # evenkeel sweep FILE               runs it on all cores; again after Ctrl-C: goes on\n\
         # evenkeel reference sweep          tells every key\n\n",
    );
    quoted(&mut text, "name", name);
    quoted(&mut text, "title", &format!("{}, by discipline and rate", scenario.title));
    quoted(&mut text, "scenario", path);
    text.push_str("seeds = [1, 2, 3]\n");
    text.push_str("\n[[vary]]\nname = \"discipline\"\n");
    let names: Vec<_> = DISCIPLINES.iter().map(|(name, _)| format!("\"{name}\"")).collect();
    let _ = writeln!(text, "values = [{}]\nput = [", names.join(", "));
    for (_, discipline) in DISCIPLINES {
        let _ = writeln!(text, "  {{ \"{place}.discipline\" = {discipline} }},");
    }
    text.push_str("]\n\n[[vary]]\nname = \"rate\"\nlabel = \"Mbit/s\"\n");
    let rates = [rate.0 / 2, rate.0, rate.0.saturating_mul(2)];
    let values: Vec<_> = rates.map(|rate| format!("{}", rate as f64 / 1e6)).into();
    let _ = writeln!(text, "values = [{}]\nput = [", values.join(", "));
    for rate in rates {
        let rate = rate_text(BitRate(rate));
        let _ = writeln!(text, "  {{ \"{place}.rate\" = \"{rate}\" }},");
    }
    text.push_str(
        "]\n\n# Numbers formed of each run: milliseconds, and Jain's index.\n[measure]\n",
    );
    for class in &router.config.classes {
        let class = &class.name;
        let _ = writeln!(
            text,
            "p99_{} = \"delay_p99({router_name}/{link}/{class})@{step} / 1000\"",
            key(class)
        );
    }
    let tcp = scenario.traffic.iter().filter(|t| matches!(t.kind, TrafficKind::Tcp { .. }));
    let tcp: Vec<_> = tcp.map(|traffic| traffic.name.as_str()).collect();
    if !tcp.is_empty() {
        let _ = writeln!(text, "fairness = \"jain(flow_goodput({}))\"", tcp.join(", "));
    }
    for class in &router.config.classes {
        let (class, key) = (&class.name, key(&class.name));
        let _ = write!(
            text,
            "\n[[chart]]\nname = \"wait-{class}\"\ntitle = \"What 99 of 100 packets of class \
             {class} wait at most\"\nx = \"rate\"\ncurves = \"discipline\"\nvalue = \
             \"p99_{key}\"\nlabel = \"ms\"\n"
        );
    }
    Ok(text)
}

/// A name as a bare key.
fn key(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect()
}
