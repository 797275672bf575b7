//! Subscribers of a run, one by one and by the nodes that they are behind.

use evenkeel_scenario::{Fold, Statistic, SubscriberMetric};
use serde_json::{Value, json};

use crate::run::Run;

/// What a subscriber, or a node that others are behind, had on one link in one step.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SubscriberRow {
    /// The step.
    pub step: String,
    /// When counting began, seconds since the start of the run.
    pub from_s: f64,
    /// When it ended.
    pub until_s: f64,
    /// The router.
    pub router: String,
    /// The link: its port's name.
    pub link: String,
    /// Its name in the list.
    pub name: String,
    /// The name of what it is behind.
    pub parent: String,
    /// Whether it is a subscriber; else others are behind it.
    pub subscriber: bool,
    /// The most it may have, bit/s on the wire; `None`: as much as what it is behind.
    pub cap_bps: Option<u64>,
    /// What it had, bit/s on the wire.
    pub rate_bps: f64,
    /// What it should have had (`tree_filling`), bit/s on the wire; `None`: no bound is known.
    pub share_bps: Option<f64>,
    /// Whether something of it waited at nine of ten window ends at least.
    pub greedy: bool,
    /// Packets sent.
    pub sent_packets: u64,
    /// Packets dropped.
    pub dropped: u64,
    /// Packets marked.
    pub marked: u64,
    /// Half of its packets waited no longer, microseconds: the end of a bucket, each of which is
    /// twice as long as the one before; `None`: there were none.
    pub wait_p50_us: Option<f64>,
    /// 99 of 100 of them.
    pub wait_p99_us: Option<f64>,
}

impl SubscriberRow {
    /// What expectations ask of it, in the units of theirs; `None`: it has no such number.
    #[must_use]
    pub fn value(&self, metric: SubscriberMetric) -> Option<f64> {
        let part = |of: u64, all: u64| (all > 0).then(|| of as f64 / all as f64);
        match metric {
            SubscriberMetric::Rate => Some(self.rate_bps),
            SubscriberMetric::Share => self.share_bps,
            SubscriberMetric::ShareError => {
                let share = self.share_bps.filter(|share| *share > 0.0)?;
                Some((self.rate_bps - share).abs() / share)
            }
            SubscriberMetric::CapUse => Some(self.rate_bps / self.cap_bps? as f64),
            SubscriberMetric::Loss => part(self.dropped, self.dropped + self.sent_packets),
            SubscriberMetric::Marked => part(self.marked, self.sent_packets),
            SubscriberMetric::WaitP50 => self.wait_p50_us,
            SubscriberMetric::WaitP99 => self.wait_p99_us,
        }
    }
}

/// Those behind a node, on one link in one step.
#[derive(Clone, Debug, PartialEq)]
pub struct Neighbourhood<'r> {
    /// The step.
    pub step: &'r str,
    /// Router and link.
    pub place: (&'r str, &'r str),
    /// The node.
    pub node: &'r str,
    /// They had something sent.
    pub rows: Vec<&'r SubscriberRow>,
}

impl Neighbourhood<'_> {
    /// A statistic of them; `None` where none has the number.
    #[must_use]
    pub fn of(&self, statistic: Statistic, metric: SubscriberMetric) -> Option<f64> {
        let values = self.rows.iter().filter_map(|row| row.value(metric)).collect();
        statistic.of(metric.less_is_worse(), values)
    }

    fn json(&self) -> Value {
        let all = SubscriberMetric::ALL.iter().map(|metric| {
            let [p1, p50, p99] = [1, 50, 99].map(|p| self.of(Statistic::Quantile(p), *metric));
            let worst = self.of(Statistic::Fold(Fold::Worst), *metric);
            (metric.name().to_owned(), json!({ "p1": p1, "p50": p50, "p99": p99, "worst": worst }))
        });
        json!({
            "step": self.step,
            "router": self.place.0,
            "link": self.place.1,
            "node": self.node,
            "subscribers": self.rows.len(),
            "greedy": self.rows.iter().filter(|row| row.greedy).count(),
            "jain": self.of(Statistic::Fold(Fold::Jain), SubscriberMetric::Rate),
            "of": all.collect::<serde_json::Map<_, _>>(),
        })
    }
}

/// The subscribers of a run of which something was sent, by step, link and the node that they are
/// behind, in the order of the rows.
#[must_use]
pub fn neighbourhoods(run: &Run) -> Vec<Neighbourhood<'_>> {
    let mut found: Vec<Neighbourhood<'_>> = Vec::new();
    for row in run.subscribers.iter().filter(|row| row.subscriber && row.sent_packets > 0) {
        let (step, place) = (row.step.as_str(), (row.router.as_str(), row.link.as_str()));
        let same = |one: &&mut Neighbourhood<'_>| {
            (one.step, one.place, one.node) == (step, place, row.parent.as_str())
        };
        match found.iter_mut().rev().find(same) {
            Some(one) => one.rows.push(row),
            None => found.push(Neighbourhood { step, place, node: &row.parent, rows: vec![row] }),
        }
    }
    found
}

/// For `summary.json`.
pub(crate) fn summary(run: &Run) -> Vec<Value> {
    neighbourhoods(run).iter().map(Neighbourhood::json).collect()
}
