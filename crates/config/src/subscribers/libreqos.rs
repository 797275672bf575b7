//! The two files of LibreQoS: `ShapedDevices.csv`, a line for each device of a circuit, and
//! `network.json`, sites and access points in one another.
//!
//! A circuit is a subscriber, with the addresses of all its devices; its caps are the maxima, its
//! guarantees the minima. A parent that is empty or `none` is the link: LibreQoS chooses one of its
//! queues then. Addresses with bits beyond their length are taken as their prefixes, as there. MACs
//! and comments are not read there either. A column `sqm` chooses a queue there, and is not read.

use std::collections::HashMap;

use evenkeel_core::Prefix;
use serde_json::{Map, Value};

use super::csv::Rows;
use super::list::{FoundBy, Role, SubscriberList, Texts};
use super::{Faults, wrong};

/// The columns that are read.
const COLUMNS: [&str; 10] = [
    "Circuit ID",
    "Circuit Name",
    "Device ID",
    "Parent Node",
    "IPv4",
    "IPv6",
    "Download Min Mbps",
    "Upload Min Mbps",
    "Download Max Mbps",
    "Upload Max Mbps",
];

/// Adds the circuits of a `ShapedDevices.csv` to a list.
pub(super) fn read_devices(text: &str, list: &mut SubscriberList, faults: &mut Faults) {
    let rows = Rows::of(text, faults);
    for column in COLUMNS {
        if !rows.columns.iter().any(|known| known == column) {
            faults.tell(1, column, "the column is missing: is this a ShapedDevices.csv?");
        }
    }
    if !faults.is_empty() {
        return;
    }
    let mut circuits: HashMap<String, usize> = HashMap::new();
    let mut names: HashMap<String, usize> = HashMap::new();
    for (line, row) in &rows.rows {
        let field = |column: &str| rows.field(row, column);
        let mut found = addresses(field("IPv4"), *line, "IPv4", faults);
        found.extend(addresses(field("IPv6"), *line, "IPv6", faults));
        let circuit = field("Circuit ID");
        if circuit.is_empty() {
            faults.tell(*line, "Circuit ID", "is missing: each line needs one");
            continue;
        }
        if let Some(known) = circuits.get(circuit) {
            list.entries[*known].prefixes.extend(found);
            continue;
        }
        // Two circuits may have one name there; here a name is unique.
        let mut name = field("Circuit Name").to_owned();
        if name.is_empty() || names.contains_key(&name) {
            name = if name.is_empty() { circuit.to_owned() } else { format!("{name} ({circuit})") };
        }
        let parent = field("Parent Node");
        let parent = if parent.eq_ignore_ascii_case("none") { "" } else { parent };
        let texts = Texts {
            line: *line,
            name: &name,
            parent,
            down: field("Download Max Mbps"),
            up: field("Upload Max Mbps"),
            min_down: field("Download Min Mbps"),
            min_up: field("Upload Min Mbps"),
            weight: "",
        };
        circuits.insert(circuit.to_owned(), list.entries.len());
        names.insert(name.clone(), *line);
        let found = FoundBy { prefixes: found, l2: Vec::new() };
        list.entries.push(texts.entry(found, Some(Role::Subscriber), faults));
    }
    for entry in list.entries.iter().filter(|entry| entry.role == Role::Subscriber) {
        if entry.prefixes.is_empty() {
            faults.tell(entry.line, "IPv4", "the circuit has no address at all");
        }
    }
}

/// Addresses as LibreQoS takes them: bits beyond the length do not matter.
fn addresses(text: &str, line: usize, key: &str, faults: &mut Faults) -> Vec<Prefix> {
    let mut found = Vec::new();
    let bare = text.trim_matches(|c: char| c == '[' || c == ']');
    for word in bare.split([',', ';', ' ']).map(|word| word.trim_matches('\'')) {
        if word.is_empty() {
            continue;
        }
        match word.parse::<Prefix>() {
            Ok(prefix) if prefix.len() > 0 => found.push(prefix),
            Ok(_) => faults.tell(line, key, wrong(word, "these are all addresses there are")),
            Err(error) => faults.tell(line, key, wrong(word, error)),
        }
    }
    found
}

/// Adds the nodes of a `network.json` to a list.
pub(super) fn read_network(text: &str, list: &mut SubscriberList, faults: &mut Faults) {
    match serde_json::from_str::<Map<String, Value>>(text) {
        Ok(nodes) => read_nodes(&nodes, "", 0, list, faults),
        Err(error) => faults.tell(error.line(), "", format!("not a network.json: {error}")),
    }
}

fn read_nodes(
    nodes: &Map<String, Value>,
    parent: &str,
    level: usize,
    list: &mut SubscriberList,
    faults: &mut Faults,
) {
    if level > evenkeel_core::schedule::tree::MOST_LEVELS {
        return faults.tell(0, parent, "too many levels");
    }
    for (name, node) in nodes {
        let Some(node) = node.as_object() else {
            faults.tell(0, name, "not a node: a table with its bandwidths and children is");
            continue;
        };
        let rate = |key: &str| {
            let value = node.get(key).or_else(|| node.get(&key.replace("Mbps", "")));
            value.filter(|value| !value.is_null()).map_or_else(String::new, |value| {
                value.as_str().map_or_else(|| value.to_string(), str::to_owned)
            })
        };
        let (down, up) = (rate("downloadBandwidthMbps"), rate("uploadBandwidthMbps"));
        let texts = Texts { name, parent, down: &down, up: &up, ..Texts::default() };
        list.entries.push(texts.entry(FoundBy::default(), Some(Role::Node), faults));
        if let Some(children) = node.get("children").and_then(Value::as_object) {
            read_nodes(children, name, level + 1, list, faults);
        }
    }
}
