//! The routes of the mirror's copy: what the kernel has, and what of it has been told to the worker.
//!
//! A dump is compared with what is known while it is read, prefix by prefix, so that changes are told at once and no second table is needed. What
//! an event has changed meanwhile stands: the dump may be older. At its end, what it did not have is taken away.

use std::collections::HashSet;

use evenkeel_net::Prefix;
use evenkeel_net::prefix_map::PrefixMap;

use super::decode::{IfIndex, KernelNextHop, KernelRoute, KernelRouteKind, LOCAL_TABLE};
use super::state::{MirrorEvent, MirroredNextHop, MirroredRoute, Ports};

/// A route of the kernel without its prefix: what many prefixes have in common.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
struct Entry {
    table: u32,
    metric: u32,
    kind: KernelRouteKind,
    next_hops: Vec<KernelNextHop>,
}

impl From<KernelRoute> for Entry {
    fn from(route: KernelRoute) -> Self {
        let KernelRoute { prefix: _, table, metric, kind, next_hops } = route;
        Self { table, metric, kind, next_hops }
    }
}

/// A dump that is being read.
#[derive(Debug, Default)]
struct Dump {
    /// Prefixes that events have changed since it began.
    touched: HashSet<Prefix>,
    /// What it had: by prefix, [`bit`] of each table.
    seen: PrefixMap<u8>,
    /// The last prefix and table, whose routes come one after the other.
    last: Option<(Prefix, u32, Vec<Entry>)>,
}

/// For each of the two tables that are mirrored, a bit.
const fn bit(table: u32) -> u8 {
    if table == LOCAL_TABLE { 2 } else { 1 }
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Routes {
    kernel: PrefixMap<Vec<Entry>>,
    published: PrefixMap<MirroredRoute>,
    dump: Option<Dump>,
    /// The kernel's indices have come to mean other ports since all routes were published.
    pub(super) remapped: bool,
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
        let prefix = route.prefix;
        self.touch(prefix);
        let mut entries = self.kernel.get(prefix).cloned().unwrap_or_default();
        if replace {
            entries.retain(|old| (old.table, old.metric) != (route.table, route.metric));
        }
        let entry = Entry::from(route);
        if !entries.contains(&entry) {
            entries.push(entry);
        }
        self.put(prefix, entries, ports, events);
    }

    /// A route is gone.
    pub(super) fn remove(&mut self, route: KernelRoute, ports: &Ports, events: &mut Vec<MirrorEvent>) {
        let prefix = route.prefix;
        self.touch(prefix);
        let Some(mut entries) = self.kernel.get(prefix).cloned() else { return };
        let gone = Entry::from(route);
        let same = |old: &Entry| (old.table, old.metric, old.kind) == (gone.table, gone.metric, gone.kind);
        if let Some(place) = entries.iter().position(|old| *old == gone) {
            entries.remove(place);
        } else if let Some(place) = entries.iter().position(|old| {
            // IPv6 says of a multipath route that one of its next hops is gone.
            same(old) && gone.next_hops.iter().all(|hop| old.next_hops.contains(hop))
        }) {
            entries[place].next_hops.retain(|hop| !gone.next_hops.contains(hop));
            if entries[place].next_hops.is_empty() {
                entries.remove(place);
            }
        } else if let Some(place) = entries.iter().position(same) {
            // The next hops differ because some were dead when one of the two messages was made.
            entries.remove(place);
        }
        self.put(prefix, entries, ports, events);
    }

    /// An interface was taken down or is gone: the kernel forgets the next hops behind it, without a word (IPv4). O(n).
    pub(super) fn forget_interface(&mut self, index: IfIndex, ports: &Ports, events: &mut Vec<MirrorEvent>) {
        let behind = |hop: &KernelNextHop| hop.index == index;
        let affected: Vec<Prefix> = self
            .kernel
            .iter()
            .filter(|(_, entries)| entries.iter().any(|entry| entry.next_hops.iter().any(behind)))
            .map(|(prefix, _)| prefix)
            .collect();
        for prefix in affected {
            let mut entries = self.kernel.get(prefix).cloned().unwrap_or_default();
            entries.retain_mut(|entry| {
                let before = entry.next_hops.len();
                entry.next_hops.retain(|hop| !behind(hop));
                before == 0 || !entry.next_hops.is_empty()
            });
            self.put(prefix, entries, ports, events);
        }
    }

    fn touch(&mut self, prefix: Prefix) {
        if let Some(dump) = &mut self.dump {
            dump.touched.insert(prefix);
        }
    }

    /// A dump of both families begins.
    pub(super) fn begin_dump(&mut self) {
        self.dump = Some(Dump::default());
    }

    /// A route of the dump.
    pub(super) fn dumped(&mut self, route: KernelRoute, ports: &Ports, events: &mut Vec<MirrorEvent>) {
        let Some(dump) = &mut self.dump else { return };
        let (prefix, table) = (route.prefix, route.table);
        let next = Some((prefix, table, vec![Entry::from(route)]));
        match &mut dump.last {
            Some((p, t, entries)) if (*p, *t) == (prefix, table) => {
                let entry = next.into_iter().flat_map(|(.., entries)| entries);
                for entry in entry.filter(|entry| !entries.contains(entry)).collect::<Vec<_>>() {
                    entries.push(entry);
                }
            }
            last => {
                let done = std::mem::replace(last, next);
                self.compare(done, ports, events);
            }
        }
    }

    /// All routes that the dump has of a prefix in a table.
    fn compare(
        &mut self,
        done: Option<(Prefix, u32, Vec<Entry>)>,
        ports: &Ports,
        events: &mut Vec<MirrorEvent>,
    ) {
        let (Some((prefix, table, dumped)), Some(dump)) = (done, &mut self.dump) else { return };
        let seen = dump.seen.get(prefix).copied().unwrap_or(0);
        dump.seen.insert(prefix, seen | bit(table));
        if dump.touched.contains(&prefix) {
            return;
        }
        let known = self.kernel.get(prefix).map_or(&[][..], Vec::as_slice);
        if known.iter().filter(|entry| entry.table == table).eq(&dumped) {
            if self.remapped {
                self.publish(prefix, ports, events);
            }
            return;
        }
        let others = known.iter().filter(|entry| entry.table != table).cloned();
        let entries = others.chain(dumped).collect();
        self.put(prefix, entries, ports, events);
    }

    /// The dump is at its end. If it is not `complete`, because a change interrupted it or it failed, what it did not have stays. O(n) if it
    /// is.
    pub(super) fn end_dump(&mut self, complete: bool, ports: &Ports, events: &mut Vec<MirrorEvent>) {
        let last = self.dump.as_mut().and_then(|dump| dump.last.take());
        self.compare(last, ports, events);
        let Some(dump) = self.dump.take() else { return };
        if !complete {
            return;
        }
        self.remapped = false;
        let stays = |prefix: Prefix, entry: &Entry| {
            dump.seen.get(prefix).is_some_and(|seen| seen & bit(entry.table) != 0)
                || dump.touched.contains(&prefix)
        };
        let gone: Vec<Prefix> = self
            .kernel
            .iter()
            .filter(|(prefix, entries)| !entries.iter().all(|entry| stays(*prefix, entry)))
            .map(|(prefix, _)| prefix)
            .collect();
        for prefix in gone {
            let mut entries = self.kernel.get(prefix).cloned().unwrap_or_default();
            entries.retain(|entry| stays(prefix, entry));
            self.put(prefix, entries, ports, events);
        }
    }

    /// The routes of a prefix are these now.
    fn put(&mut self, prefix: Prefix, entries: Vec<Entry>, ports: &Ports, events: &mut Vec<MirrorEvent>) {
        if entries.is_empty() {
            self.kernel.remove(prefix);
        } else {
            self.kernel.insert(prefix, entries);
        }
        self.publish(prefix, ports, events);
    }

    fn publish(&mut self, prefix: Prefix, ports: &Ports, events: &mut Vec<MirrorEvent>) {
        let route = self.effective(prefix, ports);
        if self.published.get(prefix) == route.as_ref() {
            return;
        }
        match route {
            Some(route) => self.published.insert(prefix, route),
            None => self.published.remove(prefix),
        };
        // The one that all prefixes with the same next hops share.
        let route = self.published.get(prefix).cloned();
        events.push(MirrorEvent::Route { prefix, route });
    }

    /// What the kernel would do with packets to `prefix`, as far as one table of longest prefixes can tell it.
    fn effective(&self, prefix: Prefix, ports: &Ports) -> Option<MirroredRoute> {
        let usable = |route: &&Entry| route.kind != KernelRouteKind::Unicast || !route.next_hops.is_empty();
        // `min_by_key` gives the first of equals: the one the kernel listed first.
        let best = self
            .kernel
            .get(prefix)?
            .iter()
            .filter(usable)
            .min_by_key(|route| (route.table != LOCAL_TABLE, route.metric))?;
        let hop = |hop: &KernelNextHop| MirroredNextHop {
            port: ports.port_of(hop.index),
            gateway: hop.gateway,
            weight: hop.weight,
        };
        let next_hops = best.next_hops.iter().map(hop).collect();
        Some(MirroredRoute { kind: best.kind, metric: best.metric, next_hops })
    }
}
