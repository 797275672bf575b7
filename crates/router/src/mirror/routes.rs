//! The routes of the mirror's copy: what the kernel has, table by table, and what of it has been
//! told to the worker.
//!
//! A dump is compared with what is known while it is read, prefix by prefix, so that changes are
//! told at once and no second copy is needed. What an event has changed meanwhile stands: the dump
//! may be older. At its end, what it did not have is taken away. Mostly there is nothing, which is
//! seen by counting: a million routes are not gone through, for events wait meanwhile.
//!
//! As long as there are no rules but the kernel's own, it keeps the tables local and main together,
//! and so they are told: as one, in which a prefix of local hides the same one of main.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::hash::Hash;

use evenkeel_net::Prefix;
use evenkeel_net::policy::{LOCAL_TABLE, MAIN_TABLE, TableId};
use evenkeel_net::prefix_map::PrefixMap;

use super::decode::{IfIndex, KernelNextHop, KernelRoute, KernelRouteKind};
use super::state::{MirrorEvent, MirroredNextHop, MirroredRoute, Ports};

/// A route of the kernel without prefix and table: what many prefixes have in common.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
struct Entry {
    metric: u32,
    kind: KernelRouteKind,
    mtu: Option<u32>,
    next_hops: Vec<KernelNextHop>,
}

impl From<KernelRoute> for Entry {
    fn from(route: KernelRoute) -> Self {
        let KernelRoute { prefix: _, table: _, metric, kind, mtu, next_hops } = route;
        Self { metric, kind, mtu, next_hops }
    }
}

/// Where a route is.
type Place = (TableId, Prefix);

/// Something by table and prefix. What the tables have for a prefix is kept in one list, and each
/// different list once: so tables cost nothing but what is in them.
#[derive(Debug)]
struct Tables<T: Clone + Eq + Hash> {
    /// Each list by table.
    lists: PrefixMap<Vec<(TableId, T)>>,
    /// How many prefixes a table has; those that have none are not there.
    counts: BTreeMap<TableId, usize>,
}

impl<T: Clone + Eq + Hash> Default for Tables<T> {
    fn default() -> Self {
        Self { lists: PrefixMap::default(), counts: BTreeMap::new() }
    }
}

impl<T: Clone + Eq + Hash> Tables<T> {
    fn get(&self, (table, prefix): Place) -> Option<&T> {
        let list = self.lists.get(prefix)?;
        list.binary_search_by_key(&table, |(of, _)| *of).ok().map(|at| &list[at].1)
    }

    fn set(&mut self, (table, prefix): Place, value: Option<T>) {
        let mut list = self.lists.get(prefix).cloned().unwrap_or_default();
        match (list.binary_search_by_key(&table, |(of, _)| *of), value) {
            (Ok(at), Some(value)) => list[at].1 = value,
            (Err(at), Some(value)) => {
                list.insert(at, (table, value));
                *self.counts.entry(table).or_default() += 1;
            }
            (Ok(at), None) => {
                list.remove(at);
                let left = self.counts.get(&table).map_or(0, |count| count - 1);
                if left == 0 {
                    self.counts.remove(&table);
                } else {
                    self.counts.insert(table, left);
                }
            }
            (Err(_), None) => return,
        }
        if list.is_empty() {
            self.lists.remove(prefix);
        } else {
            self.lists.insert(prefix, list);
        }
    }

    fn len(&self) -> usize {
        self.counts.values().sum()
    }

    /// The places of which `which` says so; none at once if it says so of no value there is. O(n)
    /// else.
    fn places(
        &self,
        which: impl Fn(Place, &T) -> bool,
        of_values: impl Fn(&T) -> bool,
    ) -> Vec<Place> {
        if !self.lists.values().flatten().any(|(_, value)| of_values(value)) {
            return Vec::new();
        }
        let all = self.lists.iter().flat_map(|(prefix, list)| {
            list.iter().map(move |(table, value)| ((*table, prefix), value))
        });
        all.filter(|(place, value)| of_values(value) && which(*place, value))
            .map(|(place, _)| place)
            .collect()
    }
}

/// A dump that is being read.
#[derive(Debug, Default)]
struct Dump {
    /// What events have changed since it began.
    touched: HashSet<Place>,
    /// What it had.
    seen: Tables<()>,
    /// How much of what was known it has not had yet, and no event has changed.
    missing: usize,
    /// The last prefix and table, whose routes come one after the other.
    last: Option<(Place, Vec<Entry>)>,
}

impl Dump {
    fn had(&self, place: Place) -> bool {
        self.seen.get(place).is_some()
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct Routes {
    kernel: Tables<Vec<Entry>>,
    /// The prefixes of the table local: those that are told otherwise when rules come.
    local: BTreeSet<Prefix>,
    published: Tables<MirroredRoute>,
    dump: Option<Dump>,
    /// The kernel's indices have come to mean other ports since all routes were published.
    pub(super) remapped: bool,
    /// The tables local and main are told as one.
    merged: bool,
}

impl Default for Routes {
    fn default() -> Self {
        Self {
            kernel: Tables::default(),
            local: BTreeSet::new(),
            published: Tables::default(),
            dump: None,
            remapped: false,
            merged: true,
        }
    }
}

impl Routes {
    /// A route is there; with `replace`, instead of those of the same prefix, table and metric.
    pub(super) fn add(
        &mut self,
        route: KernelRoute,
        replace: bool,
        ports: &Ports,
        events: &mut Vec<MirrorEvent>,
    ) {
        let place = (route.table, route.prefix);
        self.touch(place);
        let mut entries = self.known(place).to_vec();
        if replace {
            entries.retain(|old| old.metric != route.metric);
        }
        let entry = Entry::from(route);
        if !entries.contains(&entry) {
            entries.push(entry);
        }
        self.put(place, entries, ports, events);
    }

    /// A route is gone.
    pub(super) fn remove(
        &mut self,
        route: KernelRoute,
        ports: &Ports,
        events: &mut Vec<MirrorEvent>,
    ) {
        let place = (route.table, route.prefix);
        self.touch(place);
        let mut entries = self.known(place).to_vec();
        let gone = Entry::from(route);
        let same = |old: &Entry| (old.metric, old.kind) == (gone.metric, gone.kind);
        if let Some(at) = entries.iter().position(|old| *old == gone) {
            entries.remove(at);
        } else if let Some(at) = entries.iter().position(|old| {
            // IPv6 says of a multipath route that one of its next hops is gone.
            same(old) && gone.next_hops.iter().all(|hop| old.next_hops.contains(hop))
        }) {
            entries[at].next_hops.retain(|hop| !gone.next_hops.contains(hop));
            if entries[at].next_hops.is_empty() {
                entries.remove(at);
            }
        } else if let Some(at) = entries.iter().position(same) {
            // The next hops differ because some were dead when one of the two messages was made.
            entries.remove(at);
        } else {
            return;
        }
        self.put(place, entries, ports, events);
    }

    /// An interface was taken down or is gone: the kernel forgets the next hops behind it, without
    /// a word (IPv4). O(n).
    pub(super) fn forget_interface(
        &mut self,
        index: IfIndex,
        ports: &Ports,
        events: &mut Vec<MirrorEvent>,
    ) {
        let behind = |hop: &KernelNextHop| hop.index == index;
        let concerned =
            |entries: &Vec<Entry>| entries.iter().any(|entry| entry.next_hops.iter().any(behind));
        let affected = self.kernel.places(|_, _| true, concerned);
        for place in affected {
            let mut entries = self.known(place).to_vec();
            entries.retain_mut(|entry| {
                let before = entry.next_hops.len();
                entry.next_hops.retain(|hop| !behind(hop));
                before == 0 || !entry.next_hops.is_empty()
            });
            self.put(place, entries, ports, events);
        }
    }

    /// Whether a table has no routes.
    pub(super) fn is_empty(&self, table: TableId) -> bool {
        !self.kernel.counts.contains_key(&table)
    }

    /// Whether the tables local and main are told as one.
    pub(super) fn is_merged(&self) -> bool {
        self.merged
    }

    /// Tells the tables local and main as one from now on, or apart, and calls `between` when the
    /// worker has all that it needs for both. O(n) in the routes of local.
    pub(super) fn set_merged(
        &mut self,
        merged: bool,
        ports: &Ports,
        events: &mut Vec<MirrorEvent>,
        between: impl FnOnce(&mut Vec<MirrorEvent>),
    ) {
        let local: Vec<Prefix> = self.local.iter().copied().collect();
        self.merged = merged;
        // Apart, local is told first and leaves main last; together, the other way round.
        let (first, last) =
            if merged { (MAIN_TABLE, LOCAL_TABLE) } else { (LOCAL_TABLE, MAIN_TABLE) };
        for prefix in &local {
            self.publish((first, *prefix), ports, events);
        }
        between(events);
        for prefix in &local {
            self.publish((last, *prefix), ports, events);
        }
    }

    fn known(&self, place: Place) -> &[Entry] {
        self.kernel.get(place).map_or(&[], Vec::as_slice)
    }

    /// To be called before an event changes a place.
    fn touch(&mut self, place: Place) {
        let known = !self.known(place).is_empty();
        if let Some(dump) = &mut self.dump
            && dump.touched.insert(place)
            && known
            && !dump.had(place)
        {
            dump.missing = dump.missing.saturating_sub(1);
        }
    }

    /// A dump of both families begins.
    pub(super) fn begin_dump(&mut self) {
        let missing = self.kernel.len();
        self.dump = Some(Dump { missing, ..Dump::default() });
    }

    /// A route of the dump.
    pub(super) fn dumped(
        &mut self,
        route: KernelRoute,
        ports: &Ports,
        events: &mut Vec<MirrorEvent>,
    ) {
        let Some(dump) = &mut self.dump else { return };
        let place = (route.table, route.prefix);
        let entry = Entry::from(route);
        match &mut dump.last {
            Some((last, entries)) if *last == place => {
                if !entries.contains(&entry) {
                    entries.push(entry);
                }
            }
            last => {
                let done = last.replace((place, vec![entry]));
                self.compare(done, ports, events);
            }
        }
    }

    /// All routes that the dump has of a prefix in a table.
    fn compare(
        &mut self,
        done: Option<(Place, Vec<Entry>)>,
        ports: &Ports,
        events: &mut Vec<MirrorEvent>,
    ) {
        let Some((place, dumped)) = done else { return };
        let known = !self.known(place).is_empty();
        let Some(dump) = &mut self.dump else { return };
        let again = dump.had(place);
        dump.seen.set(place, Some(()));
        if dump.touched.contains(&place) {
            return;
        }
        if known && !again {
            dump.missing = dump.missing.saturating_sub(1);
        }
        if *self.known(place) == *dumped {
            if self.remapped {
                self.publish(place, ports, events);
            }
            return;
        }
        self.put(place, dumped, ports, events);
    }

    /// The dump is at its end. If it is not `complete`, because a change interrupted it or it
    /// failed, what it did not have stays. O(n) if something is to be taken away.
    pub(super) fn end_dump(
        &mut self,
        complete: bool,
        ports: &Ports,
        events: &mut Vec<MirrorEvent>,
    ) {
        let last = self.dump.as_mut().and_then(|dump| dump.last.take());
        self.compare(last, ports, events);
        let Some(dump) = self.dump.take() else { return };
        if !complete {
            return;
        }
        self.remapped = false;
        if dump.missing == 0 {
            return;
        }
        let gone = |place, _: &Vec<Entry>| !dump.had(place) && !dump.touched.contains(&place);
        for place in self.kernel.places(gone, |_| true) {
            self.put(place, Vec::new(), ports, events);
        }
    }

    /// The routes of a prefix in a table are these now.
    fn put(
        &mut self,
        place: Place,
        entries: Vec<Entry>,
        ports: &Ports,
        events: &mut Vec<MirrorEvent>,
    ) {
        if place.0 == LOCAL_TABLE {
            if entries.is_empty() {
                self.local.remove(&place.1)
            } else {
                self.local.insert(place.1)
            };
        }
        self.kernel.set(place, (!entries.is_empty()).then_some(entries));
        let told =
            if self.merged && place.0 == LOCAL_TABLE { (MAIN_TABLE, place.1) } else { place };
        self.publish(told, ports, events);
    }

    /// Tells the worker of a prefix in a table, if it does not know already.
    fn publish(&mut self, place: Place, ports: &Ports, events: &mut Vec<MirrorEvent>) {
        let route = self.effective(place, ports);
        if self.published.get(place) == route.as_ref() {
            return;
        }
        self.published.set(place, route);
        // The one that all prefixes with the same next hops share.
        let route = self.published.get(place).cloned();
        let (table, prefix) = place;
        events.push(MirrorEvent::Route { table, prefix, route });
    }

    /// What the worker should have for a prefix in a table: what the kernel would do with packets
    /// to it, had the table no longer ones.
    fn effective(&self, (table, prefix): Place, ports: &Ports) -> Option<MirroredRoute> {
        let best = match (self.merged, table) {
            (true, LOCAL_TABLE) => None,
            (true, MAIN_TABLE) => {
                self.best((LOCAL_TABLE, prefix)).or_else(|| self.best((table, prefix)))
            }
            _ => self.best((table, prefix)),
        }?;
        let hop = |hop: &KernelNextHop| MirroredNextHop {
            port: ports.port_of(hop.index),
            gateway: hop.gateway,
            weight: hop.weight,
        };
        let next_hops = best.next_hops.iter().map(hop).collect();
        Some(MirroredRoute { kind: best.kind, metric: best.metric, mtu: best.mtu, next_hops })
    }

    fn best(&self, place: Place) -> Option<&Entry> {
        let usable =
            |route: &&Entry| route.kind != KernelRouteKind::Unicast || !route.next_hops.is_empty();
        // `min_by_key` gives the first of equals: the one the kernel listed first.
        self.known(place).iter().filter(usable).min_by_key(|route| route.metric)
    }
}
