//! How many flows of each host wait, at all workers of a link together.
//!
//! Where hosts share a link, the flows of one host may be on several workers. A worker can give
//! them their part of what the host gets if it knows how many the others have: this table says it.
//!
//! | symbol | field | unit |
//! |---|---|---|
//! | N_h, flows of a host that wait, at all workers | the lower 29 bits of a place | flows |
//! | N_mh, those of worker m | [`Counted::own`] | flows |
//!
//! A place is one word: 35 bits of a hash of the host, and the count. A host may have one of the
//! eight places of its line of the cache; one with count 0 is nobody's. A worker whose first flow
//! of a host begins to wait looks for the host, or claims the first place that is nobody's, by
//! compare-and-swap. While it is counted there nobody else can claim the place, so further flows
//! are one addition. Nothing happens per packet but one read.
//!
//! **Two places.** While another host leaves, two workers may claim different places for the same
//! host. Whoever reads its count looks at the places before its own as well, and moves to that of
//! the host. So all end in the first one; until then a host is counted less than it has flows.
//!
//! **No place.** If all eight are taken, or others were faster several times in a row, a worker
//! takes its own count for that of all, and tries again when it reads next: the host then gets as
//! much there as if it had no flows elsewhere. Of 2000 hosts that wait at a time fewer than one in
//! a thousand has none.
//!
//! **Two hosts in one place.** Hosts whose hashes agree in line and 35 bits are counted together:
//! among 3000 hosts there are such two in one of 10^6 routers. The hash is seeded, so that nobody
//! can choose whom to meet.
//!
//! **Who leaves** takes back what it has counted (`counts.rs`).
//!
//! Bound: no worker waits for another. A count is read as it was at some instant since the last
//! look. Memory: 64 KiB for each link.

use alloc::vec::Vec;
#[cfg(not(loom))]
use core::sync::atomic::{AtomicU64, Ordering};
#[cfg(loom)]
use loom::sync::atomic::{AtomicU64, Ordering};

/// Places of a line. In models of all orders two are enough.
pub(super) const PLACES: usize = if cfg!(loom) { 2 } else { 8 };
/// Lines of a link.
const LINES: usize = if cfg!(loom) { 1 } else { 1024 };
/// How often one tries to get a place.
const TRIES: u32 = 4;
/// Bits of a word that count.
const COUNT: u32 = 29;
/// The most flows that can be counted of one host.
pub(crate) const FLOWS: u64 = (1 << COUNT) - 1;

/// Places that lie in one line of the cache.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct Line(pub(super) [AtomicU64; PLACES]);

/// The hosts of a link.
#[derive(Debug)]
pub(super) struct Hosts(Vec<Line>);

impl Hosts {
    pub(super) fn new() -> Self {
        Self::with_lines(LINES)
    }

    pub(super) fn with_lines(lines: usize) -> Self {
        Self((0..lines).map(|_| Line::default()).collect())
    }

    fn line(&self, hash: u64) -> &[AtomicU64; PLACES] {
        &self.0[(((hash >> 32) * self.0.len() as u64) >> 32) as usize].0
    }

    /// Counts `flows` more of a host at the first place that is its own or nobody's.
    fn enter(&self, hash: u64, flows: u32) -> Option<u8> {
        let (line, name) = (self.line(hash), name(hash));
        for _ in 0..TRIES {
            let words = || line.iter().map(|word| word.load(Ordering::Relaxed)).enumerate();
            let of_host = words().find(|(_, word)| is_of(*word, name));
            let (at, before) = of_host.or_else(|| words().find(|(_, word)| word & FLOWS == 0))?;
            let after = if is_of(before, name) { before } else { name } + u64::from(flows);
            let (failed, relaxed) = (Ordering::Relaxed, Ordering::Relaxed);
            if line[at].compare_exchange(before, after, relaxed, failed).is_ok() {
                return Some(at as u8);
            }
        }
        None
    }

    /// How many flows are counted, and at how many places.
    pub(super) fn counted(&self) -> (u64, usize) {
        let words = self.0.iter().flat_map(|line| &line.0);
        let counts = words.map(|word| word.load(Ordering::Relaxed) & FLOWS);
        counts.filter(|count| *count > 0).fold((0, 0), |(sum, n), count| (sum + count, n + 1))
    }

    /// How many flows of a host are counted that this worker has none of.
    fn look(&self, hash: u64) -> u32 {
        let words = self.line(hash).iter().map(|word| word.load(Ordering::Relaxed));
        let counted = words.filter(|word| is_of(*word, name(hash)));
        counted.map(|word| word & FLOWS).sum::<u64>() as u32
    }

    /// For tests: what another may have put there.
    #[cfg(test)]
    pub(super) fn put(&self, hash: u64, at: usize, flows: u64) {
        self.line(hash)[at].store(name(hash) + flows, Ordering::Relaxed);
    }
}

/// What of a hash stands in a word.
fn name(hash: u64) -> u64 {
    hash << COUNT
}

/// Whether a word is a host's, and counts flows.
fn is_of(word: u64, name: u64) -> bool {
    word & !FLOWS == name && word & FLOWS != 0
}

/// A host's flows that wait at one worker.
#[derive(Debug)]
pub(super) struct Counted {
    pub(super) hash: u64,
    /// N_mh.
    pub(super) own: u32,
    /// Where in its line they are counted; `None`: nowhere.
    pub(super) place: Option<u8>,
}

impl Counted {
    pub(super) const NEW: Self = Self { hash: 0, own: 0, place: None };

    /// So many more flows wait, or less.
    pub(super) fn change(&mut self, hosts: &Hosts, more: bool) {
        let (had, line) = (self.own, hosts.line(self.hash));
        self.own = if more { had + 1 } else { had - 1 };
        match self.place {
            Some(at) if more => _ = line[usize::from(at)].fetch_add(1, Ordering::Relaxed),
            Some(at) => _ = line[usize::from(at)].fetch_sub(1, Ordering::Relaxed),
            None if more => self.place = hosts.enter(self.hash, self.own),
            None => {}
        }
        if self.own == 0 {
            self.place = None;
        }
    }

    /// None waits any more.
    pub(super) fn leave(&mut self, hosts: &Hosts) {
        if let Some(at) = self.place.take() {
            hosts.line(self.hash)[usize::from(at)].fetch_sub(self.own.into(), Ordering::Relaxed);
        }
        self.own = 0;
    }

    /// How many flows of the host wait at all workers.
    pub(super) fn all(&mut self, hosts: &Hosts) -> u32 {
        if self.own == 0 {
            return hosts.look(self.hash);
        }
        let line = hosts.line(self.hash);
        let at = self.place.map_or(PLACES, usize::from);
        let name = name(self.hash);
        // Counted nowhere, or another worker has counted the host at a place before this one.
        let earlier = line[..at].iter().any(|word| is_of(word.load(Ordering::Relaxed), name));
        if at == PLACES || earlier {
            let moved = hosts.enter(self.hash, self.own);
            if let (Some(at), true) = (self.place, moved.is_some()) {
                line[usize::from(at)].fetch_sub(self.own.into(), Ordering::Relaxed);
            }
            self.place = moved.or(self.place);
        }
        let counted = self.place.map(|at| line[usize::from(at)].load(Ordering::Relaxed) & FLOWS);
        // It counts itself at least.
        counted.map_or(self.own, |counted| counted as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow_table::PackedFlow;

    #[test]
    fn the_hash_of_a_host_is_the_seeds() {
        let key = |host: u64| PackedFlow::v4(host << 32, 7, 17).host(true);
        assert_ne!(key(1).seeded(1), key(1).seeded(2));
        let (lines, mut names) = (1024, std::collections::BTreeMap::new());
        (0..10_000).for_each(|host| {
            let hash = key(host).seeded(9);
            *names.entry((((hash >> 32) * lines) >> 32, name(hash))).or_insert(0) += 1;
        });
        assert!(names.len() == 10_000);
        let in_line = |line| names.keys().filter(|(at, _)| *at == line).count();
        assert!((0..lines).all(|line| in_line(line) < 30), "10 each on average");
    }
}
