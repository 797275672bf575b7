//! The kernel's routing: its tables and rules, and what of it this router cannot follow.

use std::fmt::Write as _;
use std::net::IpAddr;
use std::sync::Arc;

use evenkeel_net::fib::Fib;
use evenkeel_net::policy::{PolicyTables, TableId};

use crate::mirror::decode::NotFollowed;
use crate::mirror::names::TableNames;
use crate::mirror::{MirrorFaults, MirroredRules, RefusedNeighbours};
use crate::snapshot::{RoutingSnapshot, TableSnapshot};

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Routing {
    pub(super) tables: PolicyTables,
    /// As the mirror has read them last.
    rules: Option<Arc<MirroredRules>>,
    not_followed: Vec<NotFollowed>,
    /// How many of them have been reported.
    reported: usize,
    /// Requests that the kernel refused, as the mirror counted them last.
    refused: RefusedNeighbours,
    /// As counted by the mirrors of pipelines that this one has taken over from.
    refused_before: RefusedNeighbours,
    /// What went wrong with following the kernel, and as it was with former mirrors.
    faults: MirrorFaults,
    faults_before: MirrorFaults,
    faults_reported: MirrorFaults,
    /// Whether the tables of IPv4 and IPv6 neighbours have been reported as full.
    full_reported: [bool; 2],
    /// The first destination whose packets went to the kernel to be forwarded, and whether that was
    /// reported.
    elsewhere: Option<(IpAddr, bool)>,
}

impl Routing {
    pub(super) fn set_rules(&mut self, rules: Arc<MirroredRules>) {
        self.tables.set_rules(rules.rules.clone());
        self.rules = Some(rules);
    }

    pub(super) fn not_followed(&mut self, what: NotFollowed) {
        if !self.not_followed.contains(&what) {
            self.not_followed.push(what);
        }
    }

    /// A packet goes to the kernel to be forwarded.
    pub(super) fn goes_elsewhere(&mut self, destination: IpAddr) {
        self.elsewhere.get_or_insert((destination, false));
    }

    /// Whether one ever did.
    pub(super) const fn has_elsewhere(&self) -> bool {
        self.elsewhere.is_some()
    }

    pub(super) fn refused(&mut self, in_all: RefusedNeighbours) {
        self.refused = in_all;
    }

    pub(super) fn refused_neighbours(&self) -> Option<RefusedNeighbours> {
        Some(self.refused_before.plus(self.refused))
            .filter(|refused| *refused != RefusedNeighbours::default())
    }

    pub(super) fn faulted(&mut self, in_all: MirrorFaults) {
        self.faults = in_all;
    }

    pub(super) fn mirror_faults(&self) -> Option<MirrorFaults> {
        Some(self.faults_before.plus(self.faults))
            .filter(|faults| *faults != MirrorFaults::default())
    }

    /// Goes on to count where `old` ends. The mirrors of several workers told them the same.
    pub(super) fn take_over(&mut self, old: &Self) {
        if let Some(refused) = old.refused_neighbours() {
            self.refused_before = refused;
            self.full_reported = old.full_reported;
        }
        if let Some(faults) = old.mirror_faults() {
            (self.faults_before, self.faults_reported) = (faults, faults);
        }
    }

    /// Reports once what is new for the user: routing that is not followed, and neighbours that
    /// the kernel has no room for.
    pub(super) fn drain_news(&mut self, mut report: impl FnMut(&str)) {
        if self.reported < self.not_followed.len() {
            report(&self.not_followed_news());
            self.reported = self.not_followed.len();
        }
        if let Some((destination, told @ false)) = &mut self.elsewhere {
            *told = true;
            report(&format!(
                "routing: packets whose route leaves by an interface that is no port go to the \
                 kernel, which forwards them past all links: the first was for {destination}"
            ));
        }
        if let Some(faults) = self.mirror_faults().filter(|all| *all != self.faults_reported) {
            // Of a kernel that says much that cannot be read, the first is told.
            if faults.begun_again != self.faults_reported.begun_again
                || self.faults_reported.undecodable == 0
            {
                faults.words().iter().for_each(|text| report(&format!("routing: {text}")));
            }
            self.faults_reported = faults;
        }
        let full = self.is_full();
        if full != self.full_reported {
            if let Some(text) = self.full_news(full) {
                report(&text);
            }
            self.full_reported = full;
        }
    }

    /// All that is new of what the kernel does with packets in transit and this router does not.
    fn not_followed_news(&self) -> String {
        let mut text =
            "routing: the kernel is told to route in ways that this router does not follow:"
                .to_owned();
        for what in &self.not_followed[self.reported..] {
            // Writing to a String cannot fail.
            let _ = write!(text, " {what};");
        }
        text.pop();
        text
    }

    /// Which of the kernel's tables of neighbours have become full.
    fn full_news(&self, full: [bool; 2]) -> Option<String> {
        let all = self.refused_neighbours()?;
        let new = |at: usize, count: u64| {
            if full[at] && !self.full_reported[at] { count } else { 0 }
        };
        let new = RefusedNeighbours {
            ipv4_full: new(0, all.ipv4_full),
            ipv6_full: new(1, all.ipv6_full),
            other: 0,
        };
        let words: Vec<String> = new.words().collect();
        let words = words.join("; ");
        (!words.is_empty()).then(|| format!("neighbours: the kernel refuses requests, {words}"))
    }

    /// Whether the kernel's tables of IPv4 and IPv6 neighbours have been full.
    fn is_full(&self) -> [bool; 2] {
        let all = self.refused_before.plus(self.refused);
        [all.ipv4_full > 0, all.ipv6_full > 0]
    }

    pub(super) fn view(&self) -> RoutingSnapshot {
        let usual = TableNames::default();
        let names = self.rules.as_ref().map_or_else(|| usual.all(), |rules| &rules.names);
        let table = |(id, fib): (TableId, &Fib)| TableSnapshot {
            id,
            name: names.get(&id).cloned().unwrap_or_else(|| id.to_string()),
            routes: fib.len() as u64,
        };
        RoutingSnapshot {
            by_rules: self.tables.has_rules(),
            rules: self.rules.as_ref().map_or_else(Vec::new, |rules| rules.words.clone()),
            tables: self.tables.tables().map(table).collect(),
            not_followed: self.not_followed.iter().map(ToString::to_string).collect(),
        }
    }
}
