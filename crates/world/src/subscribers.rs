//! Subscribers one by one: what each had in a step, and what it should have had.

use std::collections::HashMap;

use evenkeel_config::subscribers::{Role, SubscriberTree};
use evenkeel_core::Nanos;
use evenkeel_core::reference::{TreeNode, tree_filling};
use evenkeel_core::schedule::tree::{NodeMeters, WEIGHT_UNIT};
use evenkeel_report::SubscriberRow;
use evenkeel_router::NodeQuery;
use evenkeel_router::snapshot::NodeSnapshot;
use evenkeel_scenario::Scenario;

/// Who has something waiting at so many of the ends of windows asks for all that there is.
const GREEDY: f64 = 0.9;

/// Asks a router for all nodes of its trees, and for whom no line names.
///
/// # Errors
/// What `ask` says.
pub fn all_nodes<E>(
    mut ask: impl FnMut(NodeQuery) -> Result<Vec<NodeSnapshot>, E>,
) -> Result<Vec<NodeSnapshot>, E> {
    let mut nodes = ask(NodeQuery::Inner)?;
    // Those that are in the list come again.
    nodes.retain(|node| node.name == UNKNOWN);
    nodes.extend(NodeQuery::everybody(ask)?);
    Ok(nodes)
}

/// Whom no line names.
const UNKNOWN: &str = "unknown";

/// What the nodes of a router's trees did in a step.
#[derive(Debug)]
struct Looks {
    first: (Nanos, Vec<NodeSnapshot>),
    last: (Nanos, Vec<NodeSnapshot>),
    windows: u32,
    /// At how many ends of windows something of it waited.
    busy: Vec<u32>,
}

/// Whoever writes down what subscribers had.
#[derive(Debug, Default)]
pub struct Ledger {
    /// By router and step.
    looks: HashMap<(usize, usize), Looks>,
}

impl Ledger {
    /// Whether a router of the scenario has people to look at.
    #[must_use]
    pub fn is_wanted(scenario: &Scenario, router: usize) -> bool {
        scenario.routers.get(router).is_some_and(|router| !router.config.trees.is_empty())
    }

    /// The nodes of a router at the end of a window, or before the first. Times count from the
    /// start of the run.
    pub fn window(
        &mut self,
        scenario: &Scenario,
        router: usize,
        now: Nanos,
        nodes: &[NodeSnapshot],
    ) {
        for (index, step) in scenario.steps.iter().enumerate() {
            let from = step.at.saturating_add(scenario.settle);
            if !(from..=scenario.step_end(index)).contains(&now) {
                continue;
            }
            let Some(looks) = self.looks.get_mut(&(router, index)) else {
                let first = (now, nodes.to_vec());
                let busy = vec![0; nodes.len()];
                let looks = Looks { last: first.clone(), first, windows: 0, busy };
                self.looks.insert((router, index), looks);
                continue;
            };
            looks.windows += 1;
            for (busy, node) in looks.busy.iter_mut().zip(nodes) {
                *busy += u32::from(node.backlog_packets > 0 || node.capped);
            }
            looks.last = (now, nodes.to_vec());
        }
    }

    /// A row for each subscriber and node, link and step.
    #[must_use]
    pub fn rows(self, scenario: &Scenario) -> Vec<SubscriberRow> {
        let mut all: Vec<_> =
            self.looks.into_iter().filter(|(_, looks)| looks.windows > 0).collect();
        all.sort_by_key(|((router, step), _)| (*step, *router));
        let rows = all.into_iter().flat_map(|((router, step), looks)| {
            let router = &scenario.routers[router];
            let mut rows = Vec::new();
            for tree in &router.config.trees {
                for link in [&tree.section.down, &tree.section.up].into_iter().flatten() {
                    let rate = router.config.link(link).and_then(|link| link.core.rate);
                    let mut of_link = looks.rows(link);
                    shares(tree, tree.section.down.as_ref() == Some(link), &mut of_link, rate);
                    for row in &mut of_link {
                        row.step.clone_from(&scenario.steps[step].name);
                        row.router.clone_from(&router.name);
                    }
                    rows.extend(of_link);
                }
            }
            rows
        });
        rows.collect()
    }
}

impl Looks {
    fn rows(&self, link: &str) -> Vec<SubscriberRow> {
        let seconds = (self.last.0 - self.first.0).as_secs_f64();
        let pairs = self.first.1.iter().zip(&self.last.1).zip(&self.busy);
        let here = pairs.filter(|((was, now), _)| now.link == link && was.name == now.name);
        let row = |((was, now), busy): ((&NodeSnapshot, &NodeSnapshot), &u32)| {
            let since = |then: u64, now: u64| now.saturating_sub(then);
            // These go round.
            let short = |then: u64, now: u64| u64::from((now as u32).wrapping_sub(then as u32));
            let delays: Vec<u64> =
                was.delays.iter().zip(&now.delays).map(|(was, now)| short(*was, *now)).collect();
            SubscriberRow {
                from_s: self.first.0.as_secs_f64(),
                until_s: self.last.0.as_secs_f64(),
                link: now.link.clone(),
                name: now.name.clone(),
                parent: now.parent.clone(),
                subscriber: now.subscriber,
                cap_bps: now.cap_bps,
                rate_bps: since(was.sent_bytes, now.sent_bytes) as f64 * 8.0 / seconds,
                greedy: f64::from(*busy) >= GREEDY * f64::from(self.windows),
                sent_packets: since(was.sent_packets, now.sent_packets),
                dropped: since(was.overflow, now.overflow) + short(was.standing, now.standing),
                marked: short(was.marked, now.marked),
                wait_p50_us: waited(&delays, 0.5),
                wait_p99_us: waited(&delays, 0.99),
                ..SubscriberRow::default()
            }
        };
        here.map(row).collect()
    }
}

/// The end of the bucket in which this part of the packets has waited, microseconds; `None`: there
/// were none. The last bucket has no end, and counts as twice the one before.
fn waited(delays: &[u64], part: f64) -> Option<f64> {
    let all: u64 = delays.iter().sum();
    let mut before = 0;
    let bucket = delays.iter().position(|packets| {
        before += packets;
        before as f64 >= all as f64 * part
    })?;
    let end = |bucket: usize| NodeMeters::bucket_end(bucket).map(|end| end.0 as f64 / 1e3);
    (all > 0).then(|| end(bucket).or_else(|| Some(end(bucket.checked_sub(1)?)? * 2.0))).flatten()
}

/// What each should have had of a link of this rate, by [`tree_filling`].
fn shares(
    tree: &SubscriberTree,
    down: bool,
    rows: &mut [SubscriberRow],
    rate: Option<evenkeel_core::BitRate>,
) {
    let entries: HashMap<&str, _> =
        tree.list.entries.iter().map(|entry| (entry.name.as_str(), entry)).collect();
    let depth = |row: &SubscriberRow| {
        let mut depth = 0;
        let mut at = entries.get(row.name.as_str());
        while let Some(entry) = at {
            depth += 1;
            at = entries.get(entry.parent.as_str());
        }
        depth
    };
    // Parents come before who is behind them.
    let mut order: Vec<usize> = (0..rows.len()).collect();
    order.sort_by_key(|at| depth(&rows[*at]));
    let place: HashMap<&str, usize> =
        order.iter().enumerate().map(|(place, at)| (rows[*at].name.as_str(), place)).collect();
    let node = |at: &usize| {
        let row = &rows[*at];
        let entry = entries.get(row.name.as_str());
        let demand = if row.greedy { f64::INFINITY } else { row.rate_bps };
        TreeNode {
            parent: entry.and_then(|entry| place.get(entry.parent.as_str()).copied()),
            cap: row.cap_bps.map(|cap| cap as f64),
            guarantee: entry.map_or(0.0, |entry| {
                let rates = if down { entry.down } else { entry.up };
                rates.guarantee.0 as f64
            }),
            weight: entry
                .filter(|entry| entry.weight > 0)
                .map(|entry| f64::from(entry.weight) / f64::from(WEIGHT_UNIT)),
            demand: match entry.map(|entry| entry.role) {
                Some(Role::Node) => 0.0,
                Some(Role::Subscriber) | None => demand,
            },
        }
    };
    let nodes: Vec<TreeNode> = order.iter().map(node).collect();
    // More than all together can ask for, where the link has no rate.
    let capacity = rate.map_or(1e15, |rate| rate.0 as f64);
    let filled = tree_filling(capacity, &nodes);
    for (at, share) in order.into_iter().zip(filled) {
        rows[at].share_bps = share.is_finite().then_some(share);
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use evenkeel_scenario::Scenario;

    use super::*;

    const TEXT: &str = r#"name = "t/people"
title = "people"
duration = "10s"
settle = "2s"
[[host]]
name = "net"
[[host]]
name = "town"
[[wire]]
ends = ["net", "r1"]
[[wire]]
ends = ["r1", "town"]
[[subscribers]]
name = "farm"
host = "town"
count = 3
plans = [{ down = "4Mbit/s" }]
[[router]]
name = "r1"
[[router.config.tree]]
subscribers = "subscribers"
down = "town"
[[router.config.link]]
port = "town"
rate = "9Mbit/s"
[[traffic]]
name = "t"
from = "net"
to = "town"
rate = "1Mbit/s"
[[step]]
name = "late"
at = "5s"
"#;

    /// `unknown` and the nodes of the list, each with these bytes, of which these wait.
    fn nodes(scenario: &Scenario, of: impl Fn(&str) -> (u64, u64)) -> Vec<NodeSnapshot> {
        let tree = &scenario.routers[0].config.trees[0];
        let listed = tree.list.entries.iter().map(|entry| {
            let subscriber = entry.role == Role::Subscriber;
            (entry.name.as_str(), entry.parent.as_str(), subscriber, entry.down.cap)
        });
        let all = std::iter::once((UNKNOWN, "", true, None)).chain(listed);
        let node = |(name, parent, subscriber, cap): (&str, &str, bool, Option<_>)| NodeSnapshot {
            link: "town".to_owned(),
            down: true,
            name: name.to_owned(),
            parent: parent.to_owned(),
            subscriber,
            cap_bps: cap.map(|cap: evenkeel_core::BitRate| cap.0),
            sent_bytes: of(name).0,
            sent_packets: of(name).0 / 1_000,
            backlog_packets: of(name).1,
            // Goes round.
            standing: of(name).0 & 0xffff_ffff,
            delays: vec![0, of(name).0 / 1_000, 0],
            ..NodeSnapshot::default()
        };
        all.map(node).collect()
    }

    #[test]
    fn rates_are_those_of_a_step_without_settling_and_shares_follow_from_who_waits() {
        let scenario = Scenario::parse(TEXT, "t.toml", Path::new(".")).unwrap();
        let mut ledger = Ledger::default();
        for second in 0..=10_u64 {
            // Two send 4 and 3 Mbit/s and wait, from 5 s on; one sends 1 and never waits.
            let late = second.saturating_sub(5);
            let of = |name: &str| match name {
                "farm-1" => (500_000 * late, 3),
                "farm-2" => (375_000 * late + (u64::from(u32::MAX) - 1_000_000), 3),
                "farm-3" => (125_000 * second, 0),
                _ => (0, 0),
            };
            ledger.window(&scenario, 0, Nanos::from_secs(second), &nodes(&scenario, of));
        }
        assert!(Ledger::is_wanted(&scenario, 0));
        let rows = ledger.rows(&scenario);
        let row = |step: &str, name: &str| {
            rows.iter().find(|row| row.step == step && row.name == name).expect("it is there")
        };
        let [first, second, third] =
            ["farm-1", "farm-2", "farm-3"].map(|name| row("late", name).clone());
        assert_eq!((first.from_s, first.until_s, first.greedy), (7.0, 10.0, true));
        assert_eq!((first.rate_bps, third.rate_bps, third.greedy), (4e6, 1e6, false));
        // Plans of 4 share what one leaves of 9: both have the whole of their plans.
        assert_eq!(
            (first.share_bps, second.share_bps, third.share_bps),
            (Some(4e6), Some(4e6), Some(1e6))
        );
        // The counter of what was dropped has gone round.
        assert_eq!((second.dropped, second.sent_packets), (1_125_000, 1_125));
        assert_eq!(first.wait_p99_us, Some(131.072));
        // Before, nobody but one had anything: a step has what was counted in it alone.
        assert_eq!((row("start", "farm-1").rate_bps, row("start", "farm-3").rate_bps), (0.0, 1e6));
        assert_eq!((row("start", "farm-1").from_s, row("start", "farm-1").until_s), (2.0, 5.0));
        assert_eq!(row("start", "farm").share_bps, Some(9e6));
    }

    #[test]
    fn the_last_bucket_counts_as_twice_the_one_before() {
        assert_eq!(waited(&[1, 0, 0], 0.99), Some(65.536));
        let mut delays = [0; 16];
        delays[15] = 1;
        assert_eq!(waited(&delays, 0.5), Some(2.0 * f64::from(1_u32 << 30) / 1e3));
        assert_eq!(waited(&[0; 16], 0.5), None);
    }
}
