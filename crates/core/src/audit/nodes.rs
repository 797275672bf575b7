//! Sampled nodes of a tree: whether each is sent no more than its cap, and siblings that always
//! wait their shares.
//!
//! Some dozens of nodes, of all levels, are watched for some seconds, and until others take their
//! places: where few are sent anything, these are watched all the time. What is asked for is what
//! the discipline itself counted of a node, and what it was told; so a packet costs nothing. At
//! each look some places are searched for nodes that were sent something.
//!
//! **Caps**: a bucket for each node.
//!
//! **Shares**: siblings of the sample that had something that may go all through a window should
//! have been sent x = g t + w λ with the same λ. Who is at its cap meanwhile, or has nothing to
//! send, is not compared in that window; nor are nodes that are no subscribers where somebody has a
//! guarantee, because what is guaranteed to those below them counts for them, too; nor who has one
//! where they do not fit.

use alloc::vec::Vec;

use crate::schedule::NodeAccount;
use crate::units::{BitRate, Nanos};

use super::told::bytes_in;

/// Nodes that are watched at a time.
const WATCHED: usize = 32;
/// For so long at least: a whole window of shares is in it.
const TERM: Nanos = Nanos::from_millis(2_000);
/// Shares are compared over so long,
const WINDOW: Nanos = Nanos::from_millis(1_000);
/// and so often within it.
const COMPARED: Nanos = Nanos::from_millis(20);
/// Places that are searched for others at a look: 100,000 within two seconds.
const SEARCHED: u32 = 64;
/// A node may be ahead of its cap by so many of the longest packets, and by what its cap gives in
/// [`BURST`] if that is more: as the header of the tree has it.
const PACKETS: u64 = 4;
const BURST: Nanos = Nanos::from_millis(1);
/// How far a guarantee may be used ahead, and kept.
const ASSURED: Nanos = Nanos::from_millis(20);

#[derive(Clone, Copy, Debug)]
struct Watched {
    place: u32,
    /// At the last look.
    seen: NodeAccount,
    excess: f64,
    until: Nanos,
    /// What had been sent when the window of shares began; `None`: it had not all of the window
    /// something that may go.
    began: Option<u64>,
}

/// The sample.
#[derive(Clone, Debug, Default)]
pub(super) struct Nodes {
    watched: Vec<Watched>,
    next: u32,
    /// When the window of shares began.
    began: Nanos,
    /// When they are compared next.
    compare: Nanos,
}

/// A node that was sent too much, or too little.
#[derive(Clone, Copy, Debug)]
pub(super) struct Off {
    pub(super) place: u32,
    pub(super) bytes: f64,
    pub(super) bound: u64,
    /// Of what a sibling and it should have been sent together, its part, and what it had;
    /// millionths.
    pub(super) told_ppm: u32,
    pub(super) delivered_ppm: u32,
}

impl Off {
    pub(super) fn is_beyond(&self) -> bool {
        self.bytes > self.bound as f64 + 1.0
    }
}

/// What a discipline says of its nodes.
pub(super) struct Told<'a> {
    pub(super) places: u32,
    pub(super) of: &'a dyn Fn(u32) -> Option<NodeAccount>,
}

/// What was found at a look: the nodes that are nearest to a bound, or furthest beyond it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Found {
    pub(super) cap: Option<Off>,
    pub(super) share: Option<Off>,
}

fn worse(worst: &mut Option<Off>, off: Off) {
    let times = |off: &Off| off.bytes / off.bound as f64;
    if worst.as_ref().is_none_or(|worst| times(&off) > times(worst)) {
        *worst = Some(off);
    }
}

impl Watched {
    fn new(place: u32, seen: NodeAccount, until: Nanos) -> Self {
        Self { place, seen, excess: 0.0, until, began: None }
    }

    /// How far it is ahead of its cap, having been sent this in `passed`.
    fn ahead(&mut self, sent: f64, cap: BitRate, passed: Nanos, longest: u64) -> Off {
        self.excess = (self.excess + sent - bytes_in(cap, passed)).max(0.0);
        let burst = (PACKETS * longest).max(bytes_in(cap, BURST) as u64);
        let (told_ppm, delivered_ppm) = (0, 0);
        let (place, bytes) = (self.place, self.excess);
        Off { place, bytes, bound: burst + longest, told_ppm, delivered_ppm }
    }

    /// Its weight, and what it was sent in a window of `passed` beyond what is guaranteed, for a
    /// unit of that.
    fn lambda(&self, passed: Nanos) -> Option<(f64, f64)> {
        let (sent, weight) = ((self.seen.sent.0 - self.began?) as f64, self.seen.weight?);
        Some((weight, (sent - bytes_in(self.seen.guarantee, passed)) / weight))
    }

    /// What a round, or a turn of guarantees, may bring it ahead or behind.
    fn round(&self, longest: u64) -> f64 {
        let NodeAccount { round, guarantee, .. } = self.seen;
        let assured = if guarantee.0 > 0 {
            bytes_in(guarantee, ASSURED) + (PACKETS * longest) as f64
        } else {
            0.0
        };
        2.0 * round.0 as f64 + 2.0 * longest as f64 + assured
    }
}

impl Nodes {
    /// How many nodes are watched now.
    pub(super) fn watched(&self) -> u32 {
        self.watched.len() as u32
    }

    /// `passed`: since the last look; `longest`: the longest packet that is to be expected, bytes
    /// on the wire.
    pub(super) fn look(
        &mut self,
        now: Nanos,
        passed: Nanos,
        longest: u64,
        told: &Told<'_>,
    ) -> Found {
        let mut found = Found::default();
        self.watched.retain_mut(|watched| {
            // With another plan it is looked at anew.
            let Some(node) = (told.of)(watched.place) else { return false };
            if !node.is_told_as(&watched.seen) || node.sent < watched.seen.sent {
                return false;
            }
            let sent = (node.sent.0 - watched.seen.sent.0) as f64;
            if !node.may_go || node.pauses != watched.seen.pauses {
                watched.began = None;
            }
            watched.seen = node;
            if let Some(cap) = node.cap {
                let off = watched.ahead(sent, cap, passed, longest);
                worse(&mut found.cap, off);
                // One that is beyond its bound begins anew.
                if off.is_beyond() {
                    watched.excess = 0.0;
                }
            }
            true
        });
        if now >= self.compare {
            self.compare = now.saturating_add(COMPARED);
            found.share = self.furthest_behind(now, longest);
            let broken = found.share.is_some_and(|off| off.is_beyond());
            if broken || now >= self.began.saturating_add(WINDOW) {
                self.begin(now);
            }
        }
        self.search(now, told);
        found
    }

    /// Another window of shares begins.
    pub(super) fn begin(&mut self, now: Nanos) {
        self.began = now;
        for watched in &mut self.watched {
            watched.began = watched.seen.may_go.then_some(watched.seen.sent.0);
        }
    }

    /// Of all that waited since the window began, the one that is furthest behind a sibling.
    fn furthest_behind(&self, now: Nanos, longest: u64) -> Option<Off> {
        let passed = now.saturating_sub(self.began);
        let mut worst = None;
        for behind in &self.watched {
            let Some((weight, least)) = behind.lambda(passed) else { continue };
            for ahead in &self.watched {
                if ahead.seen.parent != behind.seen.parent {
                    continue;
                }
                let Some((other, most)) = ahead.lambda(passed) else { continue };
                if most <= least {
                    continue;
                }
                let bound = behind.round(longest) + weight / other * ahead.round(longest);
                let part = |of: f64, rest: f64| (of / (of + rest) * 1e6) as u32;
                worse(
                    &mut worst,
                    Off {
                        place: behind.place,
                        bytes: (most - least) * weight,
                        bound: bound as u64,
                        told_ppm: part(weight, other),
                        delivered_ppm: part(weight * least.max(0.0), (other * most).max(1.0)),
                    },
                );
            }
        }
        worst
    }

    /// Others take the places of those that were watched for long enough.
    fn search(&mut self, now: Nanos, told: &Told<'_>) {
        let until = now.saturating_add(TERM);
        self.watched.reserve(WATCHED - self.watched.len());
        for _ in 0..SEARCHED.min(told.places) {
            let room = self.watched.len() < WATCHED;
            let ended = self.watched.iter().position(|watched| watched.until <= now);
            if !room && ended.is_none() {
                return;
            }
            self.next = if self.next + 1 < told.places { self.next + 1 } else { 0 };
            let place = self.next;
            let found = (told.of)(place).filter(|node| node.sent.0 > 0);
            let Some(node) = found else { continue };
            if self.watched.iter().any(|watched| watched.place == place) {
                continue;
            }
            let watched = Watched::new(place, node, until);
            match ended.filter(|_| !room) {
                Some(at) => self.watched[at] = watched,
                None => self.watched.push(watched),
            }
        }
    }
}
