//! `evenkeel audit`: what the links of a router were told, and what they delivered.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use evenkeel_control::Client;
use evenkeel_control::certificate::{
    Certificate, CertificateError, Payload, Period, SubscriberRecord, generate, hex, public_key,
    read_key,
};
use evenkeel_control::look::between;
use evenkeel_core::BitRate;
use evenkeel_core::settings::quantity::rate_text;
use evenkeel_report::table::Table;
use evenkeel_router::snapshot::{
    AuditSnapshot, ClusterAuditSnapshot, CyclesSnapshot, LagSnapshot, LinkSnapshot, NodeSnapshot,
    ViolationSnapshot,
};
use evenkeel_router::{NodeQuery, Snapshot};
use serde_json::json;

use crate::args::{AuditArgs, AuditCommand};
use crate::check::read;
use crate::failure::{Failure, Outcome};
use crate::out::{print, print_json};

impl From<CertificateError> for Failure {
    fn from(error: CertificateError) -> Self {
        let broken = matches!(error, CertificateError::BadSignature | CertificateError::Restarted);
        Self::new(if broken { 1 } else { 2 }, error)
    }
}

pub(crate) fn audit(args: &AuditArgs) -> Outcome {
    match &args.command {
        None => {
            let snapshot = Client::connect(&args.socket)?.show()?;
            if args.json { print_json(&json(&snapshot)) } else { print(&report(&snapshot)) }
        }
        Some(AuditCommand::Keygen { file }) => {
            let public = hex(generate(file)?.as_bytes());
            print(&format!("{public}\n"))
        }
        Some(AuditCommand::Certify { socket, period, subscribers, key, out }) => {
            certify(socket, *period, subscribers, key, out)
        }
        Some(AuditCommand::Verify { file, key, json }) => {
            let certificate: Certificate = serde_json::from_str(&read(file)?).map_err(|error| {
                Failure::input(format!("{}: no certificate: {error}", file.display()))
            })?;
            let payload = certificate.verify(&public_key(key)?)?;
            if *json { print_json(&json!(payload)) } else { print(&certified(&payload)) }
        }
    }
}

fn certify(
    socket: &Path,
    period: Duration,
    subscribers: &[String],
    key: &Path,
    out: &Path,
) -> Outcome {
    let key = read_key(key)?;
    let mut client = Client::connect(socket)?;
    let before = client.running()?.text;
    let from = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let earlier = client.show()?;
    let people = nodes(&mut client, subscribers)?;
    let begin = Instant::now();
    thread::sleep(period);
    let later = client.show()?;
    let (people_later, over) = (nodes(&mut client, subscribers)?, begin.elapsed());
    let after = client.running()?.text;
    let mut payload = Period {
        earlier: &earlier,
        later: &later,
        before: &before,
        after: &after,
        from_unix_s: from.as_secs_f64(),
    }
    .payload(&key)?;
    payload.subscribers = SubscriberRecord::of(&people, &between(&people, people_later, over));
    let text = format!("{:#}\n", json!(Certificate::new(&payload, &key)));
    fs::write(out, text).map_err(|error| Failure::input(format!("{}: {error}", out.display())))?;
    print(&certified(&payload))
}

/// The subscribers of these names, on all links.
fn nodes(client: &mut Client, names: &[String]) -> Result<Vec<NodeSnapshot>, Failure> {
    let mut found = Vec::new();
    for name in names {
        let nodes = client.nodes(NodeQuery::Name(name.clone()))?;
        if !nodes.iter().any(|node| node.subscriber) {
            return Err(Failure::input(format!("{name} is a node that others are behind")));
        }
        found.extend(nodes);
    }
    Ok(found)
}

fn json(snapshot: &Snapshot) -> serde_json::Value {
    let links = snapshot.links.iter().map(|link| json!({ "link": link.port, "audit": link.audit }));
    let cycles = snapshot.fairdrop.as_ref().map(|fairdrop| &fairdrop.cycles);
    let cluster = snapshot.cluster.as_ref().map(|cluster| &cluster.audit);
    json!({
        "router": snapshot.router,
        "links": links.collect::<Vec<_>>(),
        "cycles": cycles,
        "cluster": cluster,
    })
}

/// All links, for people.
fn report(snapshot: &Snapshot) -> String {
    let mut text = String::new();
    for link in &snapshot.links {
        text += &of_link(link, snapshot.time_ns);
        text.push('\n');
    }
    if let Some(fairdrop) = snapshot.fairdrop.as_ref().filter(|fairdrop| fairdrop.on) {
        text += &of_core(&fairdrop.cycles);
    }
    text + &snapshot.cluster.as_ref().map(|it| of_cluster(&it.audit)).unwrap_or_default()
}

/// The cluster that the router is a forwarder of.
fn of_cluster(audit: &ClusterAuditSnapshot) -> String {
    let windows = format!(
        "{} windows judged, {} not, as not everything was known",
        audit.windows, audit.blind
    );
    match audit.violations {
        0 => format!(
            "cluster: every class had its share of every link; {windows}; the furthest was behind \
             by {:.0} % of its bound\n",
            audit.worst_ppm as f64 / 1e4
        ),
        broken => format!("cluster: {broken} violations; {windows}\n  {}\n", audit.words()),
    }
}

/// The cores that FairDrop shares.
fn of_core(cycles: &CyclesSnapshot) -> String {
    let mut text = format!(
        "cycles: {}\n",
        match cycles.violations {
            0 if cycles.windows == 0 => "nobody has asked for more than was there".to_owned(),
            0 => format!("every flow had its share, in {} seconds of overload", cycles.windows),
            broken => format!("{broken} violations in {} seconds of overload", cycles.windows),
        }
    );
    if let Some(last) = &cycles.last {
        let _ = writeln!(text, "  last: {}", last.words());
    }
    if cycles.windows > 0 {
        let _ = writeln!(
            text,
            "  {} flows compared, {}; the furthest was {:.1} % behind another (allowed: 10 %, and \
             some packets)",
            cycles.compared,
            sampled(cycles.one_flow_of),
            cycles.worst_ppm as f64 / 1e4
        );
    }
    text
}

/// One link, for people: also of `ctl show`.
fn of_link(link: &LinkSnapshot, now_ns: u64) -> String {
    let Some(audit) = &link.audit else {
        return format!(
            "link {}: not audited, as it has no rate that it could be held against\n",
            link.port
        );
    };
    let rate = link.rate_bps.map_or_else(|| "shaped".to_owned(), |bps| rate_text(BitRate(bps)));
    let mut text = format!("link {}: {rate}, {}: {}\n", link.port, link.discipline, words(audit));
    if let Some(last) = &audit.last {
        let _ = writeln!(text, "  last, {:.1} s ago: {}", ago(now_ns, last), last.words());
    }
    let mut table =
        Table::new(["promise", "told", "delivered", "behind now", "worst", "bound", "within"]);
    let bits = link.rate_bps.unwrap_or(0);
    let row = |what: String, told: String, delivered: String, lag: &LagSnapshot| {
        let [now, worst] = [lag.lag_bytes, lag.worst_bytes].map(|bytes| with_time(bytes, bits));
        let [bound, within] = [lag.bound_bytes, lag.within_bytes].map(|bytes| format!("{bytes} B"));
        [what, told, delivered, now, worst, bound, within]
    };
    table.row(row("not above the rate".into(), rate.clone(), String::new(), &audit.excess));
    if audit.rate.bound_bytes > 0 {
        table.row(row("all of the rate".into(), rate, String::new(), &audit.rate));
    }
    let sent: u64 = link.classes.iter().map(|class| class.sent_bytes.0).sum();
    for class in &audit.classes {
        let told = if audit.classes.iter().any(|other| other.level != class.level) {
            format!("level {}", class.level)
        } else {
            format!("{:.1} %", class.told_ppm as f64 / 1e4)
        };
        let had = link.class(&class.name).map_or(0, |class| class.sent_bytes.0);
        let delivered = format!("{:.1} %", had as f64 * 100.0 / sent.max(1) as f64);
        table.row(row(format!("class {}", class.name), told, delivered, &class.lag));
    }
    if audit.flows.bound_bytes > 0 {
        let compared = format!("{} compared", audit.flows_compared);
        table.row(row("flows alike".into(), sampled(audit.one_flow_of), compared, &audit.flows));
    }
    if audit.priority.bound_bytes > 0 {
        let none = String::new;
        table.row(row("priority goes first".into(), none(), none(), &audit.priority));
    }
    if audit.caps.bound_bytes > 0 {
        let told = format!("{} nodes now", audit.nodes_watched);
        table.row(row("caps of nodes".into(), told, String::new(), &audit.caps));
    }
    if audit.siblings.bound_bytes > 0 {
        let told = format!("{} nodes now", audit.nodes_watched);
        table.row(row("shares of siblings".into(), told, String::new(), &audit.siblings));
    }
    text += &table.render();
    text
}

fn sampled(one_of: u64) -> String {
    match one_of {
        0 | 1 => "all of them".to_owned(),
        n => format!("one of {n}"),
    }
}

/// What was found in all.
fn words(audit: &AuditSnapshot) -> String {
    if audit.violations == 0 {
        return format!("every promise kept, of {:.1} s watched", audit.watched_ns as f64 / 1e9);
    }
    let list = |counts: &evenkeel_router::snapshot::Drops| {
        let each: Vec<_> = counts.iter().map(|(name, n)| format!("{name} {n}")).collect();
        each.join(", ")
    };
    format!(
        "{} violations ({}; because of: {})",
        audit.violations,
        list(&audit.by_breach),
        list(&audit.by_cause)
    )
}

fn ago(now_ns: u64, last: &ViolationSnapshot) -> f64 {
    now_ns.saturating_sub(last.time_ns) as f64 / 1e9
}

/// Bytes, and how long the link needs for them.
fn with_time(bytes: u64, bits: u64) -> String {
    if bits == 0 || bytes == 0 {
        return format!("{bytes} B");
    }
    format!("{bytes} B, {:.2} ms", bytes as f64 * 8e3 / bits as f64)
}

/// A certificate, for people.
fn certified(payload: &Payload) -> String {
    let mut text = format!(
        "router {}, {:.1} s from {:.0} s after 1970: {}\nconfiguration {}{}\n",
        payload.router,
        payload.seconds,
        payload.from_unix_s,
        if payload.kept { "every promise kept" } else { "promises broken" },
        payload.configuration_sha256,
        if payload.configuration_changed { ", changed within the period" } else { "" },
    );
    let mut table =
        Table::new(["link", "class", "told", "delivered", "Mbit/s", "offered", "violations"]);
    let mbps = |bits: u64| format!("{:.3}", bits as f64 / 1e6);
    for link in &payload.links {
        let told =
            link.told_bps.map_or_else(|| "unpaced".to_owned(), |bps| rate_text(BitRate(bps)));
        let found =
            if link.audited { link.violations.to_string() } else { "not audited".to_owned() };
        let cells = ["", &told, "", &mbps(link.delivered_bps), "", &found].map(str::to_owned);
        table.row([link.link.clone()].into_iter().chain(cells));
        for class in &link.classes {
            let part = |ppm: u64| format!("{:.1} %", ppm as f64 / 1e4);
            table.row([
                String::new(),
                class.class.clone(),
                class.told_ppm.map_or_else(String::new, part),
                part(class.delivered_ppm),
                mbps(class.delivered_bps),
                mbps(class.offered_bps),
            ]);
        }
    }
    text += &table.render();
    if !payload.subscribers.is_empty() {
        text += &of_subscribers(&payload.subscribers);
    }
    text += &payload.cycles.as_ref().map(of_core).unwrap_or_default();
    text + &payload.cluster.as_ref().map(of_cluster).unwrap_or_default()
}

fn of_subscribers(records: &[SubscriberRecord]) -> String {
    let mut table = Table::new([
        "subscriber",
        "link",
        "told",
        "guaranteed",
        "delivered",
        "dropped",
        "99 of 100 waited",
    ]);
    for record in records {
        let rate = |bps: u64| rate_text(BitRate(bps));
        let mut told = record.told_bps.map_or_else(|| "no cap".to_owned(), rate);
        if record.changed {
            told += ", changed";
        }
        table.row([
            record.subscriber.clone(),
            record.link.clone(),
            told,
            rate(record.guaranteed_bps),
            format!("{:.3} Mbit/s", record.delivered_bps as f64 / 1e6),
            (record.overflow + record.standing).to_string(),
            record.wait_us[1]
                .map_or_else(String::new, |us| format!("<= {:.1} ms", us as f64 / 1e3)),
        ]);
    }
    table.render()
}

/// One line of a link in `ctl show`.
pub(crate) fn line(link: &LinkSnapshot, now_ns: u64) -> Option<String> {
    let audit = link.audit.as_ref()?;
    let last = audit.last.as_ref();
    let last = last.map_or_else(String::new, |last| {
        format!("; last, {:.1} s ago: {}", ago(now_ns, last), last.words())
    });
    Some(format!("audit: {}{last}\n", words(audit)))
}
