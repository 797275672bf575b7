//! What is known of the routing of the kernel besides routes: for views, and for people.

use std::fmt::Write as _;
use std::sync::Arc;

use evenkeel_net::fib::{Decision, Fib};
use evenkeel_net::policy::{LookupKey, PolicyTables, TableId};

use super::Pipeline;
use crate::mirror::decode::NotFollowed;
use crate::mirror::names::TableNames;
use crate::mirror::{MirroredRules, RefusedNeighbours};
use crate::snapshot::{RoutingSnapshot, TableSnapshot};

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Routing {
    /// As the mirror told them last.
    pub(super) rules: Option<Arc<MirroredRules>>,
    not_followed: Vec<NotFollowed>,
    /// How many of them people have been told of.
    said: usize,
    /// As the mirror told it last.
    refused: RefusedNeighbours,
    /// Told by the mirrors of those whose place this router has taken.
    refused_before: RefusedNeighbours,
    /// Which tables people have been told are full, IPv4 and IPv6.
    full_said: [bool; 2],
}

impl Routing {
    pub(super) fn not_followed(&mut self, what: NotFollowed) {
        if !self.not_followed.contains(&what) {
            self.not_followed.push(what);
        }
    }

    pub(super) fn refused(&mut self, in_all: RefusedNeighbours) {
        self.refused = in_all;
    }

    pub(super) fn refused_neighbours(&self) -> Option<RefusedNeighbours> {
        Some(self.refused_before.plus(self.refused))
            .filter(|refused| *refused != RefusedNeighbours::default())
    }

    /// Goes on to count where `old` ends. Of several workers each was told the same.
    pub(super) fn take_over(&mut self, old: &Self) {
        if let Some(refused) = old.refused_neighbours() {
            self.refused_before = refused;
            self.full_said = old.full_said;
        }
    }

    pub(super) fn has_news(&self) -> bool {
        self.said < self.not_followed.len() || self.is_full() != self.full_said
    }

    /// Whether the kernel's tables of IPv4 and IPv6 neighbours have been full.
    fn is_full(&self) -> [bool; 2] {
        let all = self.refused_before.plus(self.refused);
        [all.ipv4_full > 0, all.ipv6_full > 0]
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
    pub fn decide(&self, key: &LookupKey, flow_hash: u64) -> Option<Decision> {
        self.fib.lookup(key.flow.destination, flow_hash, || *key)
    }

    /// What a person should take_exchange_frame once of the kernel's tables of neighbours.
    pub(super) fn neighbour_news(&mut self) -> Option<String> {
        let routing = &mut self.routing;
        let full = routing.is_full();
        let said = std::mem::replace(&mut routing.full_said, full);
        let all = routing.refused_neighbours()?;
        let new = |at: usize, count: u64| if full[at] && !said[at] { count } else { 0 };
        let new = RefusedNeighbours {
            ipv4_full: new(0, all.ipv4_full),
            ipv6_full: new(1, all.ipv6_full),
            other: 0,
        };
        let words: Vec<String> = new.words().collect();
        if words.is_empty() || self.is_not_the_first() {
            return None;
        }
        Some(format!("neighbours: the kernel refuses requests, {}", words.join("; ")))
    }

    /// Of several workers the first speaks.
    fn is_not_the_first(&self) -> bool {
        self.shares.as_ref().is_some_and(|shares| shares.worker() > 0)
    }

    /// What a person should take_exchange_frame once of what the kernel does with packets in transit and this router does not: all that is new in one text.
    pub(super) fn routing_news(&mut self) -> Option<String> {
        let said = std::mem::replace(&mut self.routing.said, self.routing.not_followed.len());
        let new = &self.routing.not_followed[said..];
        if new.is_empty() || self.is_not_the_first() {
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
