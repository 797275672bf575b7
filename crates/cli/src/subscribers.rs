//! `evenkeel ctl subscriber`, `evenkeel ctl tree` and `evenkeel explain subscriber`.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::path::Path;
use std::thread;
use std::time::Duration;

use evenkeel_config::subscribers::SubscriberChange;
use evenkeel_control::{Client, Request};
use evenkeel_core::BitRate;
use evenkeel_core::schedule::tree::NodeMeters;
use evenkeel_core::settings::quantity::rate_text;
use evenkeel_report::table::Table;
use evenkeel_router::NodeQuery;
use evenkeel_router::snapshot::NodeSnapshot;
use serde_json::json;

use crate::args::SubscriberCommand;
use crate::changes::{said, told_json};
use crate::failure::{Failure, Outcome};
use crate::out::{print, print_json};

/// Between the two looks that rates are made of.
const LOOK: Duration = Duration::from_secs(1);

/// A node now, and what it did between the two looks.
struct Seen {
    now: NodeSnapshot,
    /// Of what is counted, what came since the first look.
    since: NodeSnapshot,
}

impl Seen {
    fn rate(&self) -> BitRate {
        BitRate(self.since.sent_bytes * 8 * 1_000 / LOOK.as_millis() as u64)
    }

    /// The time that so many hundredths of the packets waited at most, in words.
    fn delay(&self, hundredths: u64) -> Option<String> {
        let all: u64 = self.since.delays.iter().sum();
        let mut before = 0;
        let bucket = self.since.delays.iter().position(|packets| {
            before += packets;
            before * 100 >= all * hundredths
        })?;
        (all > 0).then(|| match NodeMeters::bucket_end(bucket) {
            Some(end) => format!("{:.1} ms", end.0 as f64 / 1e6),
            None => "more than a second".to_owned(),
        })
    }

    fn is_at_cap(&self) -> bool {
        self.now.capped || self.since.own_cap * 4 > self.since.sent_packets.max(1)
    }
}

/// Two looks at the same nodes.
fn look(client: &mut Client, query: &NodeQuery) -> Result<Vec<Seen>, Failure> {
    let mut all = |first: bool| -> Result<Vec<NodeSnapshot>, Failure> {
        let mut nodes = Vec::new();
        let NodeQuery::From(mut at) = *query else { return Ok(client.nodes(query.clone())?) };
        loop {
            let page = client.nodes(NodeQuery::From(at))?;
            let Some(link) = page.first().map(|node| node.link.clone()) else { break };
            at += page.iter().filter(|node| node.link == link).count();
            nodes.extend(page);
        }
        // Whoever did nothing before the first look is not looked at twice.
        nodes.retain(|node: &NodeSnapshot| !first || node.subscriber);
        Ok(nodes)
    };
    let before = all(true)?;
    thread::sleep(LOOK);
    let after = all(false)?;
    let known: HashMap<_, _> =
        before.into_iter().map(|node| ((node.link.clone(), node.name.clone()), node)).collect();
    let seen = after.into_iter().filter_map(|now| {
        let was = known.get(&(now.link.clone(), now.name.clone()))?;
        let since = NodeSnapshot {
            sent_packets: now.sent_packets.saturating_sub(was.sent_packets),
            sent_bytes: now.sent_bytes.saturating_sub(was.sent_bytes),
            overflow: now.overflow.saturating_sub(was.overflow),
            standing: now.standing.saturating_sub(was.standing),
            marked: now.marked.saturating_sub(was.marked),
            own_cap: now.own_cap.saturating_sub(was.own_cap),
            turns_over: now.turns_over.saturating_sub(was.turns_over),
            delays: now.delays.iter().zip(&was.delays).map(|(a, b)| a.saturating_sub(*b)).collect(),
            ..NodeSnapshot::default()
        };
        Some(Seen { now, since })
    });
    Ok(seen.collect())
}

fn cap(node: &NodeSnapshot) -> String {
    node.cap_bps.map_or_else(|| "–".to_owned(), |bps| rate_text(BitRate(bps)))
}

fn table(seen: &[&Seen]) -> String {
    let mut table = Table::new([
        "name", "behind", "link", "now", "cap", "at cap", "waits", "median", "p95", "dropped",
        "marked",
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
            one.delay(50).unwrap_or_else(none),
            one.delay(95).unwrap_or_else(none),
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
            let nodes = Client::connect(socket)?.nodes(NodeQuery::Name(name.clone()))?;
            let own = nodes.iter().filter(|node| node.name == *name);
            let more = |node: &NodeSnapshot| {
                let field = if node.down { "down" } else { "up" };
                let cap = BitRate((node.cap_bps? as f64 * by) as u64);
                Some((field.to_owned(), rate_text(cap)))
            };
            let fields: Vec<_> = own.filter_map(more).collect();
            if fields.is_empty() {
                return Err(Failure::input(format!("{name} has no cap that could be raised")));
            }
            change(SubscriberChange::Set { name: name.clone(), fields }, Some(*time))
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
    let query = name.map_or(NodeQuery::From(0), |name| NodeQuery::Name(name.to_owned()));
    let mut seen = look(&mut Client::connect(socket)?, &query)?;
    if name.is_none() {
        seen.retain(|one| one.now.subscriber);
        seen.sort_by_key(|one| std::cmp::Reverse(one.since.sent_bytes));
        seen.truncate(top);
    }
    let seen: Vec<&Seen> = seen.iter().collect();
    if json { print_json(&seen_json(&seen)) } else { print(&table(&seen)) }
}

/// `evenkeel explain subscriber`: in words.
pub(crate) fn explain(socket: &Path, name: &str, json: bool) -> Outcome {
    let seen = look(&mut Client::connect(socket)?, &NodeQuery::Name(name.to_owned()))?;
    let mut text = String::new();
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
        "{direction} (link {}): {} now, of {}; {} packets wait\n",
        own.now.link,
        rate_text(BitRate(own.rate().0 / 1_000 * 1_000)),
        own.now.cap_bps.map_or_else(|| "no cap of its own".to_owned(), |_| cap(&own.now)),
        own.now.backlog_packets
    );
    if let (Some(median), Some(late)) = (own.delay(50), own.delay(95)) {
        let _ =
            writeln!(text, "  its packets waited less than {median}, 95 of 100 less than {late}");
    }
    let lost = [
        (own.since.overflow, "had no room: it sends more than it may, without slowing down"),
        (own.since.standing, "were dropped to keep its queue short: TCP slows down by that"),
        (own.since.marked, "were marked to keep its queue short, and lost nothing"),
    ];
    for (packets, why) in lost.iter().filter(|(packets, _)| *packets > 0) {
        let _ = writeln!(text, "  {packets} packets {why}");
    }
    let limit = way.iter().find(|one| one.is_at_cap());
    let waits = own.now.backlog_packets > 0 || own.since.turns_over > 0;
    let _ = match limit {
        Some(limit) if limit.now.name == own.now.name => {
            writeln!(text, "  what limits it: its own cap, {}", cap(&limit.now))
        }
        Some(limit) if waits => writeln!(
            text,
            "  what limits it: {} is at its cap of {}, and all behind it share that",
            limit.now.name,
            cap(&limit.now)
        ),
        _ if waits => writeln!(text, "  what limits it: the link, which all share"),
        _ => writeln!(text, "  what limits it: nothing here; it asks for no more"),
    };
    text
}
