//! What is known of the routing of the kernel besides routes: for views, and for people.

use std::fmt::Write as _;
use std::sync::Arc;

use evenkeel_net::fib::{Decision, Fib};
use evenkeel_net::policy::{Asker, PolicyTables, TableId};

use super::Pipeline;
use crate::mirror::MirroredRules;
use crate::mirror::decode::NotFollowed;
use crate::mirror::names::TableNames;
use crate::snapshot::{RoutingSnapshot, TableSnapshot};

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Routing {
    /// As the mirror told them last.
    pub(super) rules: Option<Arc<MirroredRules>>,
    not_followed: Vec<NotFollowed>,
    /// How many of them people have been told of.
    said: usize,
}

impl Routing {
    pub(super) fn not_followed(&mut self, what: NotFollowed) {
        if !self.not_followed.contains(&what) {
            self.not_followed.push(what);
        }
    }

    pub(super) fn has_news(&self) -> bool {
        self.said < self.not_followed.len()
    }

    pub(super) fn view(&self, tables: &PolicyTables) -> RoutingSnapshot {
        let usual = TableNames::default();
        let names = self.rules.as_ref().map_or_else(|| usual.all(), |rules| &rules.names);
        let table = |(id, fib): (TableId, &Fib)| TableSnapshot {
            id,
            name: names.get(&id).cloned().unwrap_or_else(|| id.to_string()),
            routes: fib.len() as u64,
        };
        RoutingSnapshot {
            by_rules: tables.has_rules(),
            rules: self.rules.as_ref().map_or_else(Vec::new, |rules| rules.words.clone()),
            tables: tables.tables().map(table).collect(),
            not_followed: self.not_followed.iter().map(ToString::to_string).collect(),
        }
    }
}

impl Pipeline {
    /// Where a packet would go, by rules and tables alone. `flow_hash` chooses among several next hops.
    #[must_use]
    pub fn decide(&self, asker: &Asker, flow_hash: u64) -> Option<Decision> {
        self.fib.lookup(asker.flow.destination, flow_hash, || *asker)
    }

    /// What a person should hear once of what the kernel does with packets in transit and this router does not: all that is new in one text.
    pub(super) fn routing_news(&mut self) -> Option<String> {
        let said = std::mem::replace(&mut self.routing.said, self.routing.not_followed.len());
        let new = &self.routing.not_followed[said..];
        // Of several workers the first speaks.
        if new.is_empty() || self.place.as_ref().is_some_and(|place| place.worker() > 0) {
            return None;
        }
        let mut text =
            "routing: the kernel is told to route in ways that this router does not follow:".to_owned();
        for what in new {
            // Writing to a String cannot fail.
            let _ = write!(text, " {what};");
        }
        text.pop();
        Some(text)
    }
}
