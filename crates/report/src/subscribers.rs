//! Subscribers of a run, one by one and by the nodes that they are behind.

use evenkeel_scenario::{Fold, Statistic, SubscriberMetric};
use serde_json::{Value, json};

use crate::run::{Run, SubscriberRow};

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
