//! `evenkeel ctl`: a running router asked and changed.

mod follow;
pub(crate) mod save;
mod watched;

use std::fmt::Write as _;
use std::io::{self, IsTerminal as _, Write as _};
use std::path::Path;
use std::thread;
use std::time::Duration;

use evenkeel_control::watch::{Format, RowWriter, WatchError, watch};
use evenkeel_control::{Client, ClientError, JournalLine, Request, script};
use evenkeel_core::BitRate;
use evenkeel_core::measure::{ClassCounters, Tally};
use evenkeel_core::settings::quantity::rate_text;
use evenkeel_history::rfc3339;
use evenkeel_report::table::Table;
use evenkeel_router::Snapshot;
use evenkeel_router::snapshot::{
    BusyFlow, LinkSnapshot, MirrorFaults, RoutingSnapshot, TableSnapshot,
};
use serde_json::json;

use crate::admission;
use crate::args::{CtlArgs, CtlCommand};
use crate::audit;
use crate::changes::{said, told_json};
use crate::check::{absolute, read};
use crate::cluster;
use crate::failure::{Failure, Outcome};
use crate::out::{closed, print, print_json};
use crate::subscribers;
use crate::top;

/// How often a journal that is followed is asked.
const FOLLOW: Duration = Duration::from_millis(500);

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        Self::new(error.exit_code(), error)
    }
}

pub(crate) fn ctl(args: &CtlArgs) -> Outcome {
    let connect = || Client::connect(&args.socket);
    let change = |request: &Request| {
        let changes = connect()?.change(request)?;
        if args.json { print_json(&told_json(&changes)) } else { print(&said(request, &changes)) }
    };
    match &args.command {
        CtlCommand::Show => {
            let snapshot = connect()?.show()?;
            if args.json {
                return print_json(&json!(snapshot));
            }
            print(&show(&snapshot))
        }
        CtlCommand::Busiest { top } => {
            let flows = connect()?.busiest(*top)?;
            if args.json { print_json(&json!(flows)) } else { print(&busiest(&flows)) }
        }
        CtlCommand::Trace(watch) => watched::trace(&args.socket, watch, args.json),
        CtlCommand::Capture(capture) => watched::capture(&args.socket, capture),
        CtlCommand::Journal { follow } => journal(&mut connect()?, *follow, args.json),
        CtlCommand::Set { link, knob, class_and_value } => {
            let (value, class) =
                class_and_value.split_last().expect("the parser asks for one at least");
            change(&Request::Set {
                link: link.clone(),
                knob: knob.clone(),
                class: class.first().cloned(),
                value: value.clone(),
            })
        }
        CtlCommand::Discipline { link, value } => {
            change(&Request::Discipline { link: link.clone(), value: value.clone() })
        }
        CtlCommand::Rate { link, value } => {
            change(&Request::Rate { link: link.clone(), value: value.clone() })
        }
        CtlCommand::Ring { link, slots, refill } => {
            change(&Request::Ring { link: link.clone(), slots: *slots, refill: refill.clone() })
        }
        CtlCommand::Fairdrop { key, value } => {
            change(&Request::Fairdrop { key: key.clone(), value: value.clone() })
        }
        CtlCommand::Balancer { forwarder, state } => {
            change(&Request::Balancer { forwarder: *forwarder, state: state.clone() })
        }
        CtlCommand::Empty { within } => cluster::empty(&mut connect()?, *within, args.json),
        CtlCommand::Subscriber(command) => {
            subscribers::subscriber(&args.socket, command, args.json)
        }
        CtlCommand::Tree => subscribers::tree(&args.socket, args.json),
        CtlCommand::Reload { file, confirm, yes } => change(&reload(file, *confirm, *yes)?),
        CtlCommand::Confirm => change(&Request::Confirm),
        CtlCommand::Diff { file } => {
            change(&Request::Diff { text: read(file)?, file: absolute(file).display().to_string() })
        }
        CtlCommand::Running => save::print_running(&connect()?.running()?, args.json),
        CtlCommand::Save { file } => save::save(&connect()?.running()?, file.as_deref(), args.json),
        // Who watches on a terminal wants rates; files and programs get the columns.
        CtlCommand::Watch { interval, count, link } if !args.json && io::stdout().is_terminal() => {
            top::tables(&args.socket, *interval, *count, link.as_deref())
        }
        CtlCommand::Watch { interval, count, link } => {
            rows(&mut connect()?, *interval, *count, link.as_deref(), args.json)
        }
        CtlCommand::Explain { flow, link } => {
            explain(&args.socket, flow, link.as_deref(), args.json)
        }
        CtlCommand::Flows { top, link } => {
            let flows = connect()?.flows(*top, link.as_deref())?;
            if args.json { print_json(&json!(flows)) } else { print(&admission::flows(&flows)) }
        }
        CtlCommand::Script { file } => run_script(file, &mut connect()?, args.json),
    }
}

/// The router is to be as a file says.
fn reload(file: &Path, confirm: Option<Duration>, yes: bool) -> Result<Request, Failure> {
    Ok(Request::Reload {
        text: read(file)?,
        file: absolute(file).display().to_string(),
        confirm_ms: confirm.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX)),
        yes,
    })
}

/// One row per class and interval, for files and programs.
fn rows(
    client: &mut Client,
    interval: Duration,
    count: Option<u64>,
    link: Option<&str>,
    json: bool,
) -> Outcome {
    let format = if json { Format::Json } else { Format::Csv };
    let rows = RowWriter::new(io::stdout().lock(), format).map_err(WatchError::Write);
    match rows.and_then(|mut rows| watch(client, &mut rows, interval, count, link)) {
        Ok(()) => Ok(0),
        Err(WatchError::Write(error)) => closed(Err(error)),
        Err(WatchError::Client(error)) => Err(error.into()),
        Err(error @ WatchError::NoSuchLink { .. }) => Err(Failure::input(error)),
    }
}

/// Flows as a table.
fn busiest(flows: &[BusyFlow]) -> String {
    let mut table = Table::new(["link", "flow", "class", "Mbit/s", "packets/s", "waiting bytes"]);
    for of in flows {
        table.row([
            of.link.clone(),
            of.flow.clone(),
            of.class.clone(),
            format!("{:.3}", of.bps / 1e6),
            format!("{:.0}", of.pps),
            of.waiting_bytes.to_string(),
        ]);
    }
    table.render()
}

/// The router's log as far as it is kept, and what is added.
fn journal(client: &mut Client, follow: bool, json: bool) -> Outcome {
    let mut after = 0;
    loop {
        for line in client.journal(after)? {
            after = line.number;
            let text = if json {
                format!("{}\n", json!(line))
            } else {
                let JournalLine { time_ms, level, text, .. } = &line;
                format!("{} {:5} {text}\n", rfc3339(*time_ms), level.to_uppercase())
            };
            let written = io::stdout().write_all(text.as_bytes());
            if written.is_err() {
                return closed(written);
            }
        }
        if !follow {
            return Ok(0);
        }
        thread::sleep(FOLLOW);
    }
}

/// The history of a flow's packets: `evenkeel explain flow` and `evenkeel ctl explain`.
pub(crate) fn explain(socket: &Path, flow: &str, link: Option<&str>, json: bool) -> Outcome {
    let text = Client::connect(socket)?.explain(flow, link)?;
    if json {
        print_json(&json!({ "flow": flow, "lines": text.lines().collect::<Vec<_>>() }))
    } else {
        print(&text)
    }
}

fn run_script(file: &Path, client: &mut Client, json: bool) -> Outcome {
    let entries =
        script::parse(&read(file)?, &file.display().to_string()).map_err(|errors| Failure {
            text: errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"),
            code: 2,
        })?;
    let refused = script::run(client, &entries, |applied| {
        if json {
            let error = applied.result.as_ref().err().map(ToString::to_string);
            println!(
                "{}",
                json!({ "t": applied.at.as_secs_f64(), "line": applied.entry.line,
                    "command": applied.entry.text, "error": error })
            );
        } else {
            println!("{applied}");
        }
    })?;
    match refused {
        0 => Ok(0),
        n => Err(Failure::input(format!("{n} of {} changes were refused", entries.len()))),
    }
}

/// Tables and rules, where there are others than the kernel's own, and what is not followed of
/// them.
fn routing(routing: &RoutingSnapshot) -> String {
    let mut text = String::new();
    if routing.by_rules || routing.tables.len() > 1 {
        let table = |table: &TableSnapshot| format!("{} ({} routes)", table.name, table.routes);
        let tables: Vec<String> = routing.tables.iter().map(table).collect();
        let _ = writeln!(text, "tables: {}", tables.join(", "));
        for rule in &routing.rules {
            let _ = writeln!(text, "rule {rule}");
        }
    }
    for what in &routing.not_followed {
        let _ = writeln!(text, "not followed: {what}");
    }
    if !text.is_empty() {
        text.push('\n');
    }
    text
}

/// Ports and links as tables.
fn show(snapshot: &Snapshot) -> String {
    let uptime = snapshot.uptime_ns as f64 / 1e9;
    let mut text = format!(
        "router {}: up {uptime:.1} s, {} routes, {} neighbours, {} of {} buffers free, {} with the \
         kernel, seed {}\n\n",
        snapshot.router,
        snapshot.routes,
        snapshot.neighbours,
        snapshot.buffers.free,
        snapshot.buffers.total,
        snapshot.buffers.lent,
        snapshot.seed
    );
    for why in snapshot.refused_neighbours.iter().flat_map(|refused| refused.words()) {
        let _ = writeln!(text, "neighbours refused by the kernel: {why}\n");
    }
    if let Some(fault) = snapshot.mirror_faults.and_then(MirrorFaults::words) {
        let _ = writeln!(text, "routing: {fault}\n");
    }
    text += &routing(&snapshot.routing);
    let mut ports = Table::new([
        "port",
        "interface",
        "state",
        "received",
        "forwarded",
        "to kernel",
        "sent",
        "dropped",
        "lost",
    ]);
    for port in &snapshot.ports {
        let counts = [
            port.rx_packets,
            port.forwarded,
            port.to_host,
            port.tx_packets,
            port.dropped.values().chain(port.tx_dropped.values()).sum(),
            port.ring_loss + port.handed_lost,
        ];
        let state = if port.up { "up" } else { "down" };
        let names = [port.name.clone(), port.interface.clone(), state.to_owned()];
        ports.row(names.into_iter().chain(counts.map(|n| n.to_string())));
    }
    text += &ports.render();
    text += &super_frames(snapshot);
    for link in &snapshot.links {
        let rate =
            link.rate_bps.map_or_else(|| "unpaced".to_owned(), |bps| rate_text(BitRate(bps)));
        let [none, one, many] = link.calls;
        let _ = writeln!(
            text,
            "\nlink {}: {}, {rate}, {} of {} ring slots in use; scheduler calls: {none} none, \
             {one} one, {many} several queues busy",
            link.port, link.discipline, link.in_ring, link.ring_slots
        );
        text += &classes(link).render();
        text += &audit::line(link, snapshot.time_ns).unwrap_or_default();
        if let Some(seen) = &link.admission {
            text += &admission::view(seen, snapshot.time_ns);
        }
        if let Some(seen) = &link.follow {
            text += &follow::view(seen, snapshot.time_ns);
        }
        if link.classes.iter().any(|class| class.control.is_some()) {
            text += &control_table(link);
        }
    }
    text += &workers(snapshot);
    text += &crate::cycles::show(snapshot);
    text += &cluster::show(snapshot);
    if let Some(dropped) = drops_before_links(snapshot) {
        let _ = writeln!(text, "\ndropped before any link: {dropped}");
    }
    text
}

/// What ports received and sent whole, in packets and on the wire; empty where there was nothing
/// but plain frames.
fn super_frames(snapshot: &Snapshot) -> String {
    let mut text = String::new();
    for port in &snapshot.ports {
        let whole = [(port.rx_segments, port.rx_packets), (port.tx_segments, port.tx_packets)];
        if port.cut > 0 || whole.iter().any(|(segments, packets)| segments > packets) {
            let _ = writeln!(
                text,
                "super-frames of {}: {} segments received, {} sent, {} super-frames cut",
                port.name, port.rx_segments, port.tx_segments, port.cut
            );
        }
    }
    text
}

/// The link's counters of each class.
fn classes(link: &LinkSnapshot) -> Table {
    let shown: Vec<_> =
        ClassCounters::COUNTERS.iter().filter(|counter| counter.is_shown()).collect();
    let mut header = vec!["class", "offered"];
    header.extend(shown.iter().map(|counter| counter.column));
    header.extend(["dropped", "queued", "mean delay us", "max us", "drops by reason"]);
    let mut table = Table::new(header);
    for class in &link.classes {
        let by: Vec<String> =
            class.dropped.iter().map(|(reason, n)| format!("{reason} {n}")).collect();
        let mean = class.delay_mean_us().map_or_else(|| "–".to_owned(), |us| format!("{us:.1}"));
        let mut row = vec![class.name.clone(), class.in_packets.to_string()];
        row.extend(shown.iter().map(|of| class.counts.value(of.name).unwrap_or(0).to_string()));
        row.extend([
            class.dropped_total().to_string(),
            class.queued_packets.to_string(),
            mean,
            format!("{:.1}", class.delay_max_ns as f64 / 1e3),
            by.join(", "),
        ]);
        table.row(row);
    }
    table
}

/// The counters of each of several workers; empty for one.
fn workers(snapshot: &Snapshot) -> String {
    if snapshot.workers.is_empty() {
        return String::new();
    }
    let mut table = Table::new([
        "worker",
        "received",
        "forwarded",
        "sent",
        "dropped",
        "lost",
        "queued",
        "buffers free",
    ]);
    for (number, worker) in snapshot.workers.iter().enumerate() {
        let ports = |count: fn(&evenkeel_router::snapshot::PortSnapshot) -> u64| {
            worker.ports.iter().map(count).sum::<u64>()
        };
        let links = worker.links.iter().flat_map(|link| &link.classes);
        let counts = [
            ports(|port| port.rx_packets),
            ports(|port| port.forwarded),
            ports(|port| port.tx_packets),
            ports(|port| port.dropped.values().chain(port.tx_dropped.values()).sum())
                + links.flat_map(|class| class.dropped.values()).sum::<u64>(),
            ports(|port| port.ring_loss + port.handed_lost),
            worker.links.iter().map(|link| link.queued).sum(),
            worker.buffers.free,
        ];
        table.row([number.to_string()].into_iter().chain(counts.map(|n| n.to_string())));
    }
    format!("\n{}", table.render())
}

/// Inputs and actions of the dynamic control of a link.
fn control_table(link: &LinkSnapshot) -> String {
    let mut table = Table::new(["control", "index for delay", "for loss", "x_delay us", "limit"]);
    for class in &link.classes {
        let Some(control) = class.control else { continue };
        table.row([
            class.name.clone(),
            format!("{:.3}", control.ci_delay),
            format!("{:.3}", control.ci_loss),
            format!("{:.1}", control.x_delay_ns as f64 / 1e3),
            control.limit.map_or_else(|| "–".to_owned(), |limit| limit.to_string()),
        ]);
    }
    table.render()
}

/// Drops of the ports by reason; `None` if there are none.
fn drops_before_links(snapshot: &Snapshot) -> Option<String> {
    let of_port = |port: &evenkeel_router::snapshot::PortSnapshot| {
        let by: Vec<String> =
            port.dropped.iter().map(|(reason, n)| format!("{reason} {n}")).collect();
        (!by.is_empty()).then(|| format!("{}: {}", port.name, by.join(", ")))
    };
    let all: Vec<String> = snapshot.ports.iter().filter_map(of_port).collect();
    (!all.is_empty()).then(|| all.join("; "))
}
