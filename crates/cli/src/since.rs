//! What a router.toml of version 0.1 meant where it said nothing, and means otherwise today.
//!
//! No key of 0.1 is gone: every such file is read, and what changed is what stands in no line of
//! it. So nothing can be refused; `check` and `run` say it, and `evenkeel init --from` writes the
//! old meaning down.

use evenkeel_config::RouterConfig;
use evenkeel_settings::Diagnostics;
use toml::{Table, Value};

/// Words that 0.1 did not know: who writes one of them has seen a newer version.
const NEWER: [&str; 25] = [
    "ack_filter",
    "also",
    "aqm",
    "attach",
    "bypass",
    "cells",
    "codel",
    "fair",
    "flow_cache",
    "fq-codel",
    "heartbeat",
    "latency",
    "make_bridge",
    "max_delay",
    "monitor",
    "monitor_group",
    "optional",
    "overhead",
    "overhead_bytes",
    "own_traffic",
    "packets",
    "realtime",
    "round-robin",
    "split_above",
    "tree",
];
/// How files begin that a newer version wrote.
pub(crate) const MADE: &str = "# Made by `evenkeel init`";

/// A file of 0.1 as it was meant.
pub(crate) struct Before {
    /// Where its meaning has changed: what was meant, what is meant without that line, and why.
    pub(crate) changes: Vec<String>,
    /// The file with what it meant in lines.
    pub(crate) file: Table,
}

/// What an old file meant.
///
/// # Errors
/// The file has faults of its own.
pub(crate) fn before(text: &str, name: &str) -> Result<Before, Diagnostics> {
    let today = RouterConfig::parse(text, name)?;
    // It has been read as TOML before.
    let mut file: Table = text.parse().unwrap_or_default();
    let mut changes = Vec::new();
    let router = file.entry("router").or_insert_with(|| Table::new().into());
    let why = "packet sockets; today `auto`: AF_XDP where there is hardware";
    pin(router, "io", "af-packet", "[router] io", why, &mut changes);
    for link in tables(&mut file, "link") {
        let port = link.get("port").and_then(Value::as_str).unwrap_or_default().to_owned();
        let usual = today.link(&port).map_or("fifo", |link| link.discipline.name());
        of_link(link, &port, usual, &mut changes);
    }
    if let Some(fairdrop) = file.get_mut("fairdrop") {
        let rule = nested(fairdrop, "rule", "level");
        let why = "today 3ms: shares of cycles are kept to the hundredth";
        of_kind(rule, "level", "burst", "5ms", "[fairdrop] rule.burst", why, &mut changes);
    }
    Ok(Before { changes, file })
}

/// Whether a file says nothing that only a newer version knows.
pub(crate) fn may_be_old(text: &str) -> bool {
    fn newer(value: &Value) -> bool {
        match value {
            Value::Table(table) => {
                table.iter().any(|(key, value)| NEWER.contains(&key.as_str()) || newer(value))
            }
            Value::Array(items) => items.iter().any(newer),
            Value::String(word) => NEWER.contains(&word.as_str()),
            _ => false,
        }
    }
    let read = text.parse::<Table>();
    !text.contains(MADE) && read.is_ok_and(|table| !newer(&Value::Table(table)))
}

fn of_link(link: &mut Value, port: &str, usual: &str, changes: &mut Vec<String>) {
    let at = |key: &str| format!("link {port}: {key}");
    // With an admission, 0.1 wanted a discipline named.
    if link.get("discipline").is_none() && link.get("admission").is_none() && usual != "fifo" {
        let fifo = Table::from_iter([("kind".to_owned(), Value::from("fifo"))]);
        let why = "one queue for all; today a rate alone means a short queue for each flow";
        pin(link, "discipline", Value::Table(fifo), &at("discipline"), why, changes);
    }
    let discipline = link.get_mut("discipline");
    let why = "today hold-with-module2: a class without packets does not let others overtake";
    of_kind(discipline, "lct", "multi_backlog", "min-x", &at("multi_backlog"), why, changes);
    for kind in ["pfq", "pdrr", "afan"] {
        let said = link.get("discipline").filter(|one| kind_of(one) == Some(kind));
        if let Some(quantum) = said.and_then(|one| one.get("quantum")) {
            changes.push(format!(
                "{} = {quantum} counts what the line adds, too (38 bytes): 1500B is 1538B now; \
                 nothing was changed",
                at("quantum")
            ));
        }
    }
    if let Some(afan) = link.get_mut("discipline").filter(|one| kind_of(one) == Some("afan")) {
        let afd = nested(afan, "afd", "").filter(|afd| afd.get("delay").is_none());
        let why = "today the queue is held at 50 ms, whatever the rate";
        if let Some(afd) = afd {
            pin(afd, "target", 50, &at("afd.target"), why, changes);
        }
    }
    let faster = "today 25ms: it settles in two thirds of the time";
    of_kind(
        link.get_mut("control"),
        "lct",
        "interval",
        "50ms",
        &at("control.interval"),
        faster,
        changes,
    );
    let wider = "today 16 packets of the link if that is longer: slow links can be controlled";
    of_kind(link.get_mut("control"), "lct", "x_max", "20ms", &at("control.x_max"), wider, changes);
    if let Some(admission) = link.get_mut("admission") {
        let why = "today true: a link that is closed for long opens for a moment";
        pin(admission, "eccm", false, &at("admission.eccm"), why, changes);
    }
}

/// Sets a key of a table of this kind, unless the file says it.
fn of_kind(
    table: Option<&mut Value>,
    kind: &str,
    key: &str,
    value: &str,
    at: &str,
    why: &str,
    changes: &mut Vec<String>,
) {
    if let Some(table) = table.filter(|table| kind_of(table) == Some(kind)) {
        pin(table, key, value, at, why, changes);
    }
}

fn kind_of(table: &Value) -> Option<&str> {
    table.get("kind").and_then(Value::as_str)
}

/// Sets a key, unless the file says it.
fn pin(
    table: &mut Value,
    key: &str,
    value: impl Into<Value>,
    at: &str,
    why: &str,
    changes: &mut Vec<String>,
) {
    let Some(table) = table.as_table_mut().filter(|table| !table.contains_key(key)) else { return };
    let value = value.into();
    changes.push(format!("{at} was {value}: {why}"));
    table.insert(key.to_owned(), value);
}

/// A table within another, made if it is not there.
fn nested<'a>(table: &'a mut Value, key: &str, kind: &str) -> Option<&'a mut Value> {
    let usual = || {
        let kind = (!kind.is_empty()).then(|| ("kind".to_owned(), Value::from(kind)));
        Value::Table(kind.into_iter().collect())
    };
    Some(table.as_table_mut()?.entry(key).or_insert_with(usual))
}

fn tables<'a>(file: &'a mut Table, key: &str) -> impl Iterator<Item = &'a mut Value> {
    file.get_mut(key).and_then(Value::as_array_mut).into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use evenkeel_config::DisciplineConfig;

    use super::*;

    const OLD: &str = r#"
[[port]]
name = "wan"
interface = "eth0"
[[port]]
name = "lan"
interface = "eth1"
[[class]]
name = "rest"
[[link]]
port = "wan"
rate = "20Mbit/s"
[[link]]
port = "lan"
rate = "100Mbit/s"
[link.discipline]
kind = "pdrr"
quantum = "1500B"
[link.admission]
min_fair_rate = 0.1
[fairdrop]
cpu = false
"#;

    #[test]
    fn an_old_file_keeps_its_meaning_and_is_told_of_each_change() {
        let old = before(OLD, "old.toml").unwrap();
        let said = old.changes.join("\n");
        for wanted in [
            "[router] io",
            "link wan: discipline",
            "link lan: admission.eccm",
            "lan: quantum",
            "[fairdrop] rule.burst",
        ] {
            assert!(said.contains(wanted), "{wanted}: {said}");
        }
        assert_eq!(old.changes.len(), 5, "{said}");
        let pinned = old.file.to_string();
        let config = RouterConfig::parse(&pinned, "new.toml").unwrap();
        let wan = config.link("wan").unwrap();
        assert!(matches!(wan.discipline, DisciplineConfig::Fifo(_)), "{pinned}");
        assert!(config.short_text().contains("io = \"af-packet\""));
        // Said once, it is not told again but for what was left as it was.
        let again = before(&pinned, "new.toml").unwrap();
        assert_eq!(again.changes.len(), 1, "{:?}", again.changes);
    }

    #[test]
    fn lct_and_afan_are_as_they_were() {
        let text = OLD.replace("kind = \"pdrr\"\nquantum = \"1500B\"", "kind = \"lct\"");
        let text = text.replace("[link.admission]\nmin_fair_rate = 0.1\n", "");
        let text = text.replace("[fairdrop]", "[link.control]\nkind = \"lct\"\n[fairdrop]");
        let old = before(&text, "old.toml").unwrap();
        let pinned = old.file.to_string();
        for line in ["multi_backlog = \"min-x\"", "interval = \"50ms\"", "x_max = \"20ms\""] {
            assert!(pinned.contains(line), "{pinned}");
        }
        let text = OLD.replace("kind = \"pdrr\"\nquantum = \"1500B\"", "kind = \"afan\"");
        let old = before(&text, "old.toml").unwrap();
        assert!(old.file.to_string().contains("target = 50"));
        RouterConfig::parse(&old.file.to_string(), "new.toml").unwrap();
    }

    #[test]
    fn who_knows_newer_words_is_not_taken_for_old() {
        assert!(may_be_old(OLD));
        assert!(!may_be_old(&OLD.replace("[[class]]", "[[link]]\nport = \"x\"\naqm = \"codel\"")));
        assert!(!may_be_old(&format!("{MADE} for a line\n{OLD}")));
        assert!(!may_be_old("this is no TOML"));
    }
}
