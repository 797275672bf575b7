//! `evenkeel ctl subscriber`, `evenkeel ctl tree` and `evenkeel explain subscriber`.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use evenkeel_config::subscribers::SubscriberChange;
use evenkeel_control::look::{Seen, boost, busiest, limit_of, look};
use evenkeel_control::{Client, Request};
use evenkeel_core::BitRate;
use evenkeel_core::settings::quantity::rate_text;
use evenkeel_report::table::Table;
use evenkeel_router::NodeQuery;
use evenkeel_router::snapshot::NodeSnapshot;
use serde_json::json;

use crate::args::SubscriberCommand;
use crate::changes::{said, told_json};
use crate::failure::{Failure, Outcome};
use crate::out::{print, print_json};

/// The time that so many hundredths of its packets waited at most, in words.
fn delay(seen: &Seen, hundredths: u64) -> Option<String> {
    let end = seen.delay(hundredths)?;
    Some(end.map_or_else(|| "more than a second".to_owned(), |end| millis(end.0 / 1_000)))
}

fn millis(us: u64) -> String {
    if us < 100 { format!("{us} us") } else { format!("{:.1} ms", us as f64 / 1e3) }
}

fn cap(node: &NodeSnapshot) -> String {
    node.cap_bps.map_or_else(|| "–".to_owned(), |bps| rate_text(BitRate(bps)))
}

fn table(seen: &[&Seen]) -> String {
    let mut table = Table::new([
        "name", "behind", "link", "now", "cap", "at cap", "waits", "median", "p95", "rtt",
        "dropped", "marked",
    ]);
    for one in seen {
        let none = || "–".to_owned();
        table.row([
            one.now.name.clone(),
            one.now.parent.clone(),
            one.now.link.clone(),
            rate_text(BitRate(one.rate().0 / 1_000 * 1_000)),
            cap(&one.now),
            if one.is_at_cap() { "yes".to_owned() } else { none() },
            one.now.backlog_packets.to_string(),
            delay(one, 50).unwrap_or_else(none),
            delay(one, 95).unwrap_or_else(none),
            one.now.rtt_us.map_or_else(none, millis),
            (one.now.overflow + one.now.standing).to_string(),
            one.now.marked.to_string(),
        ]);
    }
    table.render()
}

fn seen_json(seen: &[&Seen]) -> serde_json::Value {
    let one = |seen: &&Seen| {
        let mut value = json!(seen.now);
        value["now_bps"] = json!(seen.rate().0);
        value["at_cap"] = json!(seen.is_at_cap());
        value
    };
    json!(seen.iter().map(one).collect::<Vec<_>>())
}

/// `evenkeel ctl tree`.
pub(crate) fn tree(socket: &Path, json: bool) -> Outcome {
    let seen = look(&mut Client::connect(socket)?, &NodeQuery::Inner)?;
    let seen: Vec<&Seen> = seen.iter().collect();
    if json { print_json(&seen_json(&seen)) } else { print(&table(&seen)) }
}

/// `evenkeel ctl subscriber`.
pub(crate) fn subscriber(socket: &Path, command: &SubscriberCommand, json: bool) -> Outcome {
    let change = |change: SubscriberChange, time: Option<Duration>| {
        let for_ms = time.map(|time| time.as_millis() as u64);
        let request = Request::Subscriber { change, for_ms };
        let changes = Client::connect(socket)?.change(&request)?;
        if json { print_json(&told_json(&changes)) } else { print(&said(&request, &changes)) }
    };
    match command {
        SubscriberCommand::Show { name, top } => show(socket, name.as_deref(), *top, json),
        SubscriberCommand::Set { name, fields } => {
            change(SubscriberChange::Set { name: name.clone(), fields: fields.clone() }, None)
        }
        SubscriberCommand::Add { name, fields } => {
            change(SubscriberChange::Add { name: name.clone(), fields: fields.clone() }, None)
        }
        SubscriberCommand::Remove { name } => {
            change(SubscriberChange::Remove { name: name.clone() }, None)
        }
        SubscriberCommand::Move { name, parent } => {
            let fields = vec![("parent".to_owned(), parent.clone())];
            change(SubscriberChange::Set { name: name.clone(), fields }, None)
        }
        SubscriberCommand::Boost { name, by, time } => {
            change(boost(&mut Client::connect(socket)?, name, *by)?, Some(*time))
        }
        SubscriberCommand::Save { file, tree } => {
            let text = Client::connect(socket)?.subscribers(tree.as_deref())?;
            match file {
                None => print(&text),
                Some(file) => std::fs::write(file, text).map(|()| 0).map_err(|error| {
                    Failure::new(1, format!("cannot write {}: {error}", file.display()))
                }),
            }
        }
    }
}

fn show(socket: &Path, name: Option<&str>, top: usize, json: bool) -> Outcome {
    let mut client = Client::connect(socket)?;
    let seen = match name {
        Some(name) => look(&mut client, &NodeQuery::Name(name.to_owned()))?,
        None => busiest(&mut client)?.into_iter().take(top).map(|busy| busy.seen).collect(),
    };
    let seen: Vec<&Seen> = seen.iter().collect();
    if json { print_json(&seen_json(&seen)) } else { print(&table(&seen)) }
}

/// `evenkeel explain subscriber`: in words.
pub(crate) fn explain(socket: &Path, name: &str, json: bool) -> Outcome {
    let seen = look(&mut Client::connect(socket)?, &NodeQuery::Name(name.to_owned()))?;
    let mut text = String::new();
    if let Some(own) = seen.first().filter(|one| !one.now.found_by.is_empty()) {
        let _ = writeln!(text, "found by {}", own.now.found_by.join(", "));
    }
    let mut links: Vec<&str> = seen.iter().map(|one| one.now.link.as_str()).collect();
    links.dedup();
    for link in links {
        let way: Vec<&Seen> = seen.iter().filter(|one| one.now.link == link).collect();
        text += &words(&way);
    }
    if json {
        let lines = text.lines().collect::<Vec<_>>();
        return print_json(&json!({ "subscriber": name, "lines": lines }));
    }
    print(&text)
}

/// What one direction of a subscriber met, who is the first of `way`; the link is the last.
fn words(way: &[&Seen]) -> String {
    let Some(own) = way.first() else { return String::new() };
    let direction = if own.now.down { "down" } else { "up" };
    let mut text = format!(
        "{direction} (link {}): {} now, of {}{}; {} packets wait\n",
        own.now.link,
        rate_text(BitRate(own.rate().0 / 1_000 * 1_000)),
        own.now.cap_bps.map_or_else(|| "no cap of its own".to_owned(), |_| cap(&own.now)),
        match own.now.guarantee_bps {
            0 => String::new(),
            bps => format!(", {} of it guaranteed", rate_text(BitRate(bps))),
        },
        own.now.backlog_packets
    );
    if let (Some(median), Some(late)) = (delay(own, 50), delay(own, 95)) {
        let _ =
            writeln!(text, "  its packets waited less than {median}, 95 of 100 less than {late}");
    }
    if let Some(us) = own.now.rtt_us {
        let whom = if own.now.down { "from there" } else { "from whom it talks with" };
        let _ = writeln!(text, "  answers come back {whom} after {}", millis(us));
    }
    let lost = [
        (own.since.overflow, "had no room: it sends more than it may, without slowing down"),
        (own.since.standing, "were dropped to keep its queue short: TCP slows down by that"),
        (own.since.marked, "were marked to keep its queue short, and lost nothing"),
    ];
    for (packets, why) in lost.iter().filter(|(packets, _)| *packets > 0) {
        let _ = writeln!(text, "  {packets} packets {why}");
    }
    let _ = match limit_of(way) {
        Some(limit) if limit.now.name == own.now.name => {
            writeln!(text, "  what limits it: its own cap, {}", cap(&limit.now))
        }
        Some(limit) => writeln!(
            text,
            "  what limits it: {} is at its cap of {}, and all behind it share that",
            limit.now.name,
            cap(&limit.now)
        ),
        None if own.waits() => writeln!(text, "  what limits it: the link, which all share"),
        None => writeln!(text, "  what limits it: nothing here; it asks for no more"),
    };
    text
}
