//! Alarms in words: what an operator should know without looking.
//!
//! Each has a condition that is bad, good, or neither, and two times: so long it must be bad to be
//! raised, and so long good to be over. What is neither changes nothing. So an alarm that is raised
//! says something, and one that is over does not come back the next moment.
//!
//! Whether shares are as they should be the router judges itself: its audit.

use std::collections::BTreeMap;
use std::time::Duration;

use evenkeel_control::rates::{LinkRates, RouterRates};
use evenkeel_router::Snapshot;
use evenkeel_router::snapshot::LinkSnapshot;
use serde::Serialize;

/// Alarms that are remembered of a router, those that are over included.
const MOST: usize = 1_024;

/// What is judged.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Kind {
    Silent,
    PortDown,
    NotShaped,
    OverLimit,
    RateLost,
    PromiseBroken,
    TableFull,
    BuffersLow,
    KernelLoss,
    LongDelay,
    FlowsRefused,
    UnknownSubscribers,
    Unguarded,
    RoutesStale,
    LogLost,
    NoHistory,
}

impl Kind {
    /// What is judged by a router's counters.
    const COUNTED: [Self; 14] = [
        Self::PortDown,
        Self::NotShaped,
        Self::OverLimit,
        Self::RateLost,
        Self::PromiseBroken,
        Self::TableFull,
        Self::BuffersLow,
        Self::KernelLoss,
        Self::LongDelay,
        Self::FlowsRefused,
        Self::UnknownSubscribers,
        Self::Unguarded,
        Self::RoutesStale,
        Self::LogLost,
    ];

    /// As label of metrics, in JSON and for hooks.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Silent => "silent",
            Self::PortDown => "port_down",
            Self::NotShaped => "not_shaped",
            Self::OverLimit => "over_limit",
            Self::RateLost => "rate_lost",
            Self::PromiseBroken => "promise_broken",
            Self::TableFull => "table_full",
            Self::BuffersLow => "buffers_low",
            Self::KernelLoss => "kernel_loss",
            Self::LongDelay => "long_delay",
            Self::FlowsRefused => "flows_refused",
            Self::UnknownSubscribers => "unknown_subscribers",
            Self::Unguarded => "unguarded",
            Self::RoutesStale => "routes_stale",
            Self::LogLost => "log_lost",
            Self::NoHistory => "no_history",
        }
    }

    /// How long it must be bad to be raised, and good to be over, s.
    const fn patience(self) -> (u64, u64) {
        match self {
            Self::Silent => (3, 3),
            Self::PortDown | Self::Unguarded => (2, 5),
            Self::NotShaped | Self::OverLimit | Self::RateLost => (10, 15),
            // Counters that moved: a moment is enough, and a minute without another one.
            Self::PromiseBroken | Self::TableFull | Self::RoutesStale | Self::LogLost => (0, 60),
            Self::BuffersLow | Self::KernelLoss => (5, 30),
            Self::LongDelay | Self::FlowsRefused | Self::UnknownSubscribers => (20, 30),
            Self::NoHistory => (0, 60),
        }
    }
}

/// How a condition is.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Sign {
    /// Bad, in words.
    Bad(String),
    /// Not good enough to be over.
    Neither,
}

/// A condition of something: a port, a link, or the router itself, then without a name.
pub(crate) type Signs = Vec<(Kind, String, Sign)>;

/// An alarm as it is told.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Alarm {
    /// Which.
    pub(crate) alarm: &'static str,
    /// The port or link; empty: the router.
    pub(crate) about: String,
    /// Whether it is raised, or over.
    pub(crate) raised: bool,
    /// Since when, ms since 1970.
    pub(crate) since_ms: u64,
    /// In words.
    pub(crate) text: String,
}

/// A condition, and how long it has been so.
#[derive(Debug)]
struct Held {
    bad_since: Option<Duration>,
    good_since: Option<Duration>,
    told: Alarm,
    /// It was raised once.
    known: bool,
}

/// The alarms of a router.
#[derive(Debug, Default)]
pub(crate) struct Alarms {
    held: BTreeMap<(Kind, String), Held>,
}

impl Alarms {
    /// Those that were raised once, whether or not they are over.
    pub(crate) fn known(&self) -> impl Iterator<Item = &Alarm> {
        self.held.values().filter(|held| held.known).map(|held| &held.told)
    }

    /// The router has answered, and these of its conditions are not good.
    pub(crate) fn counted(&mut self, now: Duration, time_ms: u64, mut signs: Signs) -> Vec<Alarm> {
        signs.retain(|(kind, ..)| Kind::COUNTED.contains(kind));
        self.judge(now, time_ms, &Kind::COUNTED, signs)
    }

    /// Of a single condition, which is bad for this reason, or good.
    pub(crate) fn one(
        &mut self,
        now: Duration,
        time_ms: u64,
        kind: Kind,
        bad: Option<String>,
    ) -> Vec<Alarm> {
        let signs = bad.map(|text| (kind, String::new(), Sign::Bad(text)));
        self.judge(now, time_ms, &[kind], signs.into_iter().collect())
    }

    /// Judges conditions of these kinds; those without a sign are good.
    fn judge(&mut self, now: Duration, time_ms: u64, kinds: &[Kind], signs: Signs) -> Vec<Alarm> {
        let mut told = Vec::new();
        let mut seen = Vec::with_capacity(signs.len());
        for (kind, about, sign) in signs {
            let key = (kind, about);
            if self.held.contains_key(&key) || self.held.len() < MOST {
                let held = self.held.entry(key.clone()).or_insert_with(|| Held::new(&key));
                told.extend(held.is_not_good(now, time_ms, kind, sign));
                seen.push(key);
            }
        }
        for (key, held) in &mut self.held {
            if kinds.contains(&key.0) && !seen.contains(key) {
                told.extend(held.is_good(now, time_ms, key.0));
            }
        }
        self.held.retain(|_, held| held.known || held.bad_since.is_some());
        told
    }
}

impl Held {
    fn new((kind, about): &(Kind, String)) -> Self {
        let told = Alarm {
            alarm: kind.name(),
            about: about.clone(),
            raised: false,
            since_ms: 0,
            text: String::new(),
        };
        Self { bad_since: None, good_since: None, told, known: false }
    }

    fn is_not_good(
        &mut self,
        now: Duration,
        time_ms: u64,
        kind: Kind,
        sign: Sign,
    ) -> Option<Alarm> {
        self.good_since = None;
        let Sign::Bad(text) = sign else {
            self.bad_since = None;
            return None;
        };
        let since = *self.bad_since.get_or_insert(now);
        self.told.text = text;
        if self.told.raised || now.saturating_sub(since).as_secs() < kind.patience().0 {
            return None;
        }
        (self.told.raised, self.told.since_ms, self.known) = (true, time_ms, true);
        Some(self.told.clone())
    }

    fn is_good(&mut self, now: Duration, time_ms: u64, kind: Kind) -> Option<Alarm> {
        self.bad_since = None;
        let since = *self.good_since.get_or_insert(now);
        if !self.told.raised || now.saturating_sub(since).as_secs() < kind.patience().1 {
            return None;
        }
        (self.told.raised, self.told.since_ms) = (false, time_ms);
        Some(self.told.clone())
    }
}

/// What is not good of a router: `now` are its counters, `window` what they counted since `before`,
/// which `rates` tells.
pub(crate) fn signs(
    before: &Snapshot,
    now: &Snapshot,
    window: &Snapshot,
    rates: &RouterRates,
) -> Signs {
    let mut signs = Signs::new();
    let mut bad = |kind, about: &str, text: String| {
        signs.push((kind, about.to_owned(), Sign::Bad(text)));
    };
    for port in &now.ports {
        let name = &port.name;
        if !port.up {
            let text = format!("port {name}: interface {} is down or gone", port.interface);
            bad(Kind::PortDown, name, text);
        } else if port.guard.is_empty() && !port.io.is_empty() {
            let text = format!(
                "port {name}: nothing keeps the kernel from forwarding a second copy of what comes"
            );
            bad(Kind::Unguarded, name, text);
        }
    }
    if let Some(text) = beside(window, rates) {
        bad(Kind::NotShaped, "", text);
    }
    for (name, text) in too_slow(window, rates) {
        bad(Kind::KernelLoss, name, text);
    }
    for (what, text) in broken_promises(window) {
        bad(Kind::PromiseBroken, what, text);
    }
    for text in full_tables(window) {
        bad(Kind::TableFull, "", text);
    }
    let new_faults = now.mirror_faults.filter(|_| now.mirror_faults != before.mirror_faults);
    if let Some(fault) = new_faults.and_then(|faults| faults.words()) {
        bad(Kind::RoutesStale, "", format!("following the kernel's routes: {fault}"));
    }
    if now.log_lost > before.log_lost {
        let text = format!("{} lines of the log could not be written", now.log_lost);
        bad(Kind::LogLost, "", text);
    }
    let buffers = rates.buffers_used;
    if buffers > 0.9 {
        let text = format!(
            "{:.0} % of the frame buffers are in use: have more (`buffers`) than all queue limits \
             together",
            buffers * 100.0
        );
        bad(Kind::BuffersLow, "", text);
    } else if buffers > 0.8 {
        signs.push((Kind::BuffersLow, String::new(), Sign::Neither));
    }
    for link in &rates.links {
        of_link(link, &mut signs);
    }
    for link in &window.links {
        signs.extend(strangers(link, rates.length_s));
    }
    signs
}

/// Whether packets pass a link with a list of subscribers that are nobody's in it. A few are: of
/// addresses that only neighbours use.
fn strangers(link: &LinkSnapshot, length_s: f64) -> Option<(Kind, String, Sign)> {
    let (tree, name) = (link.tree.as_ref()?, &link.port);
    let per_second = |n: u64| n as f64 / length_s.max(1e-9);
    let packets = per_second(tree.unknown_packets + tree.unknown_dropped);
    let last = tree.last_unknown.as_deref().unwrap_or("an address that was not seen");
    let text = format!(
        "link {name}: {packets:.0} packets per second belong to nobody in the list {} ({:.1} \
         Mbit/s; last {last}): no plan holds for them. Put them into the list, or give all of them \
         `unknown_down` and `unknown_up`",
        tree.name,
        per_second(tree.unknown_bytes) * 8.0 / 1e6
    );
    let sign = match Level::of(packets, 2.0, 10.0) {
        Level::Bad => Sign::Bad(text),
        Level::Neither => Sign::Neither,
        Level::Good => return None,
    };
    Some((Kind::UnknownSubscribers, name.clone(), sign))
}

fn of_link(link: &LinkRates, signs: &mut Signs) {
    let LinkRates { link: name, all, .. } = link;
    let mut sign = |kind, level: Level, text: String| {
        let sign = match level {
            Level::Bad => Sign::Bad(text),
            Level::Neither => Sign::Neither,
            Level::Good => return,
        };
        signs.push((kind, name.clone(), sign));
    };
    if let Some(limit) = link.limit_bps {
        let part = all.sent_bps / (limit as f64).max(1.0);
        let text = format!("link {name}: {:.0} % of its rate leaves it", part * 100.0);
        sign(Kind::OverLimit, Level::of(part, 1.02, 1.05), text);
    }
    let text = format!(
        "link {name}: {:.1} % of its time is lost because the worker comes too late: others use \
         its core",
        link.lost * 100.0
    );
    sign(Kind::RateLost, Level::of(link.lost, 0.005, 0.01), text);
    if let Some(us) = all.p99_us {
        let text = format!("link {name}: one packet of a hundred waits {:.0} ms", us / 1e3);
        sign(Kind::LongDelay, Level::of(us, 2e5, 5e5), text);
    }
    if let Some(why) = link.admission.as_ref().and_then(|seen| seen.congested.as_ref()) {
        let text = format!("link {name}: new flows are refused ({})", why.replace('_', " "));
        sign(Kind::FlowsRefused, Level::Bad, text);
    }
}

/// Between two limits something is neither good nor bad.
enum Level {
    Good,
    Neither,
    Bad,
}

impl Level {
    fn of(value: f64, good: f64, bad: f64) -> Self {
        match value {
            value if value > bad => Self::Bad,
            value if value > good => Self::Neither,
            _ => Self::Good,
        }
    }
}

/// Whether traffic passes beside all links that have a rate: nothing is shaped although it was
/// told.
fn beside(window: &Snapshot, rates: &RouterRates) -> Option<String> {
    let limited = |link: &&LinkRates| link.limit_bps.is_some();
    let mut limits = rates.links.iter().filter(limited).peekable();
    limits.peek()?;
    let shaped: f64 = limits.map(|link| link.all.sent_pps + link.all.dropped_pps).sum();
    let sum = |of: fn(&evenkeel_router::snapshot::PortSnapshot) -> u64| {
        let all: u64 = window.ports.iter().map(of).sum();
        all as f64 / rates.length_s.max(1e-9)
    };
    let (came, host, elsewhere) =
        (sum(|port| port.rx_packets), sum(|port| port.to_host), sum(|port| port.elsewhere));
    let by_kernel = sum(|port| port.dropped.get("kernel_forwarded").copied().unwrap_or(0));
    // What is for the machine itself is no traffic to be shaped, but a few.
    let nothing = shaped < 1.0 && (came > 100.0 || by_kernel > 10.0);
    nothing.then(|| {
        format!(
            "nothing is shaped although links have rates: {came:.0} packets per second come in, \
             and none goes through a link with a rate (to the kernel {host:.0}, by interfaces that \
             are no ports {elsewhere:.0}, forwarded by the kernel {by_kernel:.0})"
        )
    })
}

/// Ports of which more than one packet in a thousand is lost because a worker is too slow.
fn too_slow<'a>(window: &'a Snapshot, rates: &RouterRates) -> Vec<(&'a str, String)> {
    let per_second = |lost: u64| lost as f64 / rates.length_s.max(1e-9);
    let many = |lost: u64, of: u64| lost as f64 > of as f64 / 1e3;
    let mut found = Vec::new();
    for port in &window.ports {
        let name = port.name.as_str();
        if many(port.ring_loss, port.rx_packets) {
            let text = format!(
                "port {name}: the kernel loses {:.0} frames per second before the router sees \
                 them: it is too slow for what comes",
                per_second(port.ring_loss)
            );
            found.push((name, text));
        }
        if many(port.handed_lost, port.handed_on) {
            let text = format!(
                "port {name}: the first worker, which has its link, is too slow for what the \
                 others hand it: {:.0} packets per second are lost",
                per_second(port.handed_lost)
            );
            found.push((name, text));
        }
    }
    found
}

/// What the audits found broken: the link, and the sentence.
fn broken_promises(window: &Snapshot) -> Vec<(&str, String)> {
    let links = window.links.iter().filter_map(|link| {
        let audit = link.audit.as_ref().filter(|audit| audit.violations > 0)?;
        let last = audit.last.as_ref()?;
        Some((link.port.as_str(), format!("link {}: {}", link.port, last.words())))
    });
    let cycles = window.fairdrop.as_ref().map(|fairdrop| &fairdrop.cycles);
    let cycles = cycles.filter(|cycles| cycles.violations > 0).map(|cycles| {
        let text = cycles.last.as_ref().map_or_else(String::new, |last| last.words());
        ("", format!("cycles: {text}"))
    });
    let cluster = window.cluster.as_ref().map(|cluster| &cluster.audit);
    let cluster = cluster.filter(|audit| audit.violations > 0);
    let cluster = cluster.map(|audit| ("", format!("cluster: {}", audit.words())));
    links.chain(cycles).chain(cluster).collect()
}

/// Tables that had no place for somebody.
fn full_tables(window: &Snapshot) -> Vec<String> {
    let mut texts = Vec::new();
    if let Some(fairdrop) = window.fairdrop.as_ref().filter(|fairdrop| fairdrop.unplaced > 0) {
        texts.push(format!(
            "FairDrop's table is full: {} packets of flows without a place",
            fairdrop.unplaced
        ));
    }
    for link in &window.links {
        let full = |name: &str| {
            let by_class = link.classes.iter().map(|class| class.dropped.get(name));
            let refused = link.admission.as_ref().map(|seen| seen.refused.get(name));
            by_class.chain(refused).flatten().sum::<u64>()
        };
        let refused = full("flow_list_full");
        if refused > 0 {
            texts.push(format!(
                "link {}: the list of protected flows is full: {refused} packets refused",
                link.port
            ));
        }
    }
    // One alarm for all of them.
    if texts.is_empty() { texts } else { vec![texts.join("; ")] }
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_control::rates::Rates;
    use evenkeel_router::snapshot::{
        AuditSnapshot, PortCounts, PortSnapshot, TreeSnapshot, ViolationSnapshot,
    };

    fn link(limit: u64, sent: f64) -> LinkRates {
        let all = Rates { sent_bps: sent, sent_pps: sent / 1e4, ..Rates::default() };
        LinkRates { link: "wan".into(), limit_bps: Some(limit), all, ..LinkRates::default() }
    }

    fn rates(links: Vec<LinkRates>) -> RouterRates {
        RouterRates { length_s: 1.0, links, ..RouterRates::default() }
    }

    fn of_all(window: &Snapshot, rates: &RouterRates) -> Signs {
        signs(window, window, window, rates)
    }

    fn names(signs: &Signs) -> Vec<&'static str> {
        let bad = signs.iter().filter(|(.., sign)| matches!(sign, Sign::Bad(_)));
        bad.map(|(kind, ..)| kind.name()).collect()
    }

    #[test]
    fn an_alarm_is_raised_late_and_over_late() {
        let mut alarms = Alarms::default();
        let mut at = |s: u64, bad: bool| {
            let text = bad.then(|| "it is gone".to_owned());
            let told = alarms.one(Duration::from_secs(s), s * 1_000, Kind::Silent, text);
            told.first().map(|alarm| (alarm.raised, alarm.since_ms))
        };
        assert_eq!([at(0, true), at(1, true), at(2, false), at(3, true), at(5, true)], [None; 5]);
        assert_eq!(at(6, true), Some((true, 6_000)));
        assert_eq!([at(7, true), at(8, false), at(9, true), at(10, false)], [None; 4]);
        assert_eq!([at(12, false), at(13, false)], [None, Some((false, 13_000))]);
        assert_eq!(alarms.known().map(|alarm| alarm.raised).collect::<Vec<_>>(), [false]);
    }

    #[test]
    fn what_is_neither_good_nor_bad_keeps_an_alarm_as_it_is() {
        let mut alarms = Alarms::default();
        let mut at = |s: u64, p99_ms: f64| {
            let mut slow = link(10_000_000, 1e6);
            slow.all.p99_us = Some(p99_ms * 1e3);
            let signs = of_all(&Snapshot::default(), &rates(vec![slow]));
            let told = alarms.counted(Duration::from_secs(s), s * 1_000, signs);
            told.first().map(|alarm| alarm.raised)
        };
        assert_eq!([at(0, 600.0), at(19, 600.0), at(20, 600.0)], [None, None, Some(true)]);
        assert_eq!([at(21, 300.0), at(90, 300.0), at(91, 100.0)], [None; 3]);
        assert_eq!([at(110, 300.0), at(120, 100.0), at(151, 100.0)], [None, None, Some(false)]);
    }

    #[test]
    fn while_a_router_is_silent_its_other_alarms_stay() {
        let mut alarms = Alarms::default();
        let down = PortSnapshot { name: "wan".into(), ..PortSnapshot::default() };
        let now = Snapshot { ports: vec![down], ..Snapshot::default() };
        let of = || signs(&now, &now, &Snapshot::default(), &rates(Vec::new()));
        assert!(alarms.counted(Duration::from_secs(0), 0, of()).is_empty());
        assert_eq!(alarms.counted(Duration::from_secs(2), 2, of()).len(), 1);
        for s in 3..60 {
            let text = Some("gone".to_owned());
            alarms.one(Duration::from_secs(s), s, Kind::Silent, text);
        }
        let raised: Vec<_> = alarms.known().filter(|of| of.raised).map(|of| of.alarm).collect();
        assert_eq!(raised, ["silent", "port_down"]);
    }

    #[test]
    fn traffic_beside_the_links_is_not_shaped_and_a_quiet_line_is_no_alarm() {
        let window = |rx: u64| {
            let counts = PortCounts { rx_packets: rx, to_host: rx, ..PortCounts::default() };
            let (name, up) = ("lan".into(), true);
            let port = PortSnapshot { name, up, counts, ..PortSnapshot::default() };
            Snapshot { ports: vec![port], ..Snapshot::default() }
        };
        let of = |rx, sent| {
            let window = window(rx);
            names(&of_all(&window, &rates(vec![link(10_000_000, sent)])))
        };
        assert_eq!(of(5_000, 0.0), ["not_shaped"]);
        assert!(of(50, 0.0).is_empty());
        assert!(of(5_000, 9e6).is_empty());
        assert_eq!(of(5_000, 12e6), ["over_limit"]);
        let unpaced = LinkRates { limit_bps: None, ..link(0, 0.0) };
        let window = window(5_000);
        assert!(of_all(&window, &rates(vec![unpaced])).is_empty());
    }

    #[test]
    fn packets_that_are_nobodys_are_told_with_their_address() {
        let seen = |packets| {
            let tree = TreeSnapshot {
                name: "people".into(),
                unknown_packets: packets,
                unknown_bytes: packets * 1_000,
                last_unknown: Some("10.1.7.9".into()),
                ..TreeSnapshot::default()
            };
            let link = LinkSnapshot { port: "lan".into(), tree: Some(tree), ..Default::default() };
            of_all(&Snapshot { links: vec![link], ..Snapshot::default() }, &rates(vec![]))
        };
        assert!(seen(1).is_empty());
        assert!(matches!(&seen(5)[..], [(_, _, Sign::Neither)]));
        let signs = seen(500);
        assert_eq!(names(&signs), ["unknown_subscribers"]);
        let (_, about, Sign::Bad(text)) = &signs[0] else { panic!("{signs:?}") };
        assert!(about == "lan" && text.contains("500 packets per second"), "{text}");
        assert!(text.contains("4.0 Mbit/s; last 10.1.7.9"), "{text}");
    }

    #[test]
    fn a_promise_broken_in_the_window_is_told_with_its_cause() {
        let last = ViolationSnapshot {
            breach: "share".into(),
            cause: "ring".into(),
            class: Some("voice".into()),
            ..ViolationSnapshot::default()
        };
        let of = |violations| {
            let last = Some(last.clone());
            let audit = Some(AuditSnapshot { violations, last, ..AuditSnapshot::default() });
            let link = LinkSnapshot { port: "wan".into(), audit, ..LinkSnapshot::default() };
            let window = Snapshot { links: vec![link], ..Snapshot::default() };
            of_all(&window, &rates(Vec::new()))
        };
        assert!(of(0).is_empty());
        let told = of(2);
        assert_eq!(names(&told), ["promise_broken"]);
        let Sign::Bad(text) = &told[0].2 else { panic!("{told:?}") };
        assert!(text.contains("link wan") && text.contains("voice"), "{text}");
        assert!(text.contains("transmit ring"), "{text}");
    }

    #[test]
    fn a_core_that_was_not_shared_is_told() {
        let mut fairdrop = evenkeel_router::snapshot::FairDropSnapshot::default();
        fairdrop.cycles.violations = 1;
        fairdrop.cycles.last = Some(evenkeel_router::snapshot::CyclesViolationSnapshot {
            class: "bulk".into(),
            delivered_ppm: 430_000,
            cause: "receive_ring".into(),
            ..Default::default()
        });
        let window = Snapshot { fairdrop: Some(fairdrop), ..Snapshot::default() };
        let told = of_all(&window, &rates(Vec::new()));
        let [(Kind::PromiseBroken, _, Sign::Bad(text))] = &told[..] else { panic!("{told:?}") };
        assert!(text.contains("class bulk had 43.0 %") && text.contains("receive ring"), "{text}");
    }

    #[test]
    fn a_cluster_that_was_not_shared_is_told() {
        let mut cluster = evenkeel_router::snapshot::ClusterSnapshot::default();
        cluster.audit.violations = 3;
        cluster.audit.by_cause =
            [("worker_late".to_owned(), 2), ("discipline".to_owned(), 1)].into();
        cluster.audit.last = Some(evenkeel_router::snapshot::ClusterViolationSnapshot {
            link: "uplink".into(),
            class: "voice".into(),
            other: "bulk".into(),
            delivered_ppm: 430_000,
            ..Default::default()
        });
        let window = Snapshot { cluster: Some(cluster), ..Snapshot::default() };
        let told = of_all(&window, &rates(Vec::new()));
        let [(Kind::PromiseBroken, _, Sign::Bad(text))] = &told[..] else { panic!("{told:?}") };
        assert!(text.contains("uplink") && text.contains("had 43.0 %"), "{text}");
        assert!(text.contains("2 times this node was too late"), "{text}");
    }

    #[test]
    fn lost_time_full_tables_and_lost_frames_are_told() {
        let late = LinkRates { lost: 0.02, ..link(10_000_000, 9e6) };
        let mut window = Snapshot::default();
        let counts = PortCounts { rx_packets: 1_000, ..PortCounts::default() };
        let (name, up) = ("lan".into(), true);
        window.ports =
            vec![PortSnapshot { name, up, counts, ring_loss: 2, ..PortSnapshot::default() }];
        let mut handed = PortCounts { handed_on: 1_000, ..PortCounts::default() };
        for (lost, told) in [(1, 0), (2, 1)] {
            handed.handed_lost = lost;
            let port = PortSnapshot { counts: handed, ..PortSnapshot::default() };
            let only = Snapshot { ports: vec![port], ..Snapshot::default() };
            assert_eq!(too_slow(&only, &rates(Vec::new())).len(), told);
        }
        window.fairdrop =
            Some(evenkeel_router::snapshot::FairDropSnapshot { unplaced: 3, ..Default::default() });
        let signs = of_all(&window, &rates(vec![late]));
        assert_eq!(names(&signs), ["kernel_loss", "table_full", "rate_lost"]);
    }
}
