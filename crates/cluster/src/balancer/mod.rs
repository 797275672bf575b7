//! Which forwarder gets a flow: the balancer's stage, as a pure structure.
//!
//! Source: Maglev (Eisenbud et al., NSDI 2016), spec 12. [`Maglev`] is the table that all balancers
//! with the same members compute alike; [`Balancer`] adds a bounded table of connections, so that
//! flows that are established stay where they are when forwarders join or drain.
//!
//! Look-up: two reads of the connection table's buckets (4 places each), one of the Maglev table. A
//! new table costs O(T·log T) on average and is made at human speed. A forwarder that [`Health`]
//! finds silent changes no table: only its flows go elsewhere, and come back if it is well again
//! for [`WELL`], at most once in [`PAUSE`].

mod connections;
mod health;
mod maglev;

pub use connections::Connections;
pub use health::{Change, Condition, Health};
pub use maglev::{FULL, Maglev, TABLE};

use evenkeel_core::{Nanos, counters};
use thiserror::Error;

use crate::config::MAX_NODES;
use crate::mix::mix64;
use crate::types::NodeId;

/// What a forwarder gets.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum State {
    /// New flows, as many as its weight (1 to 256) says.
    Active(u16),
    /// No new flows; those it has stay.
    Draining,
}

/// A forwarder as the balancer sees it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Target {
    /// Who.
    pub id: NodeId,
    /// Where its frames go.
    pub mac: [u8; 6],
    /// What it gets.
    pub state: State,
}

/// Targets that cannot be.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
pub enum TargetError {
    /// None or too many.
    #[error("{0} forwarders; 1 to 64 are possible")]
    Number(usize),
    /// One is there twice.
    #[error("forwarder {0} is there twice")]
    Twice(u16),
    /// A weight out of range.
    #[error("the weight {0} is not from 1 to 256")]
    Weight(u16),
}

/// Flows to forwarders. Allocates when its targets change, never on the packet path.
#[derive(Clone, Debug)]
pub struct Balancer {
    seed: u64,
    targets: Vec<Target>,
    maglev: Maglev,
    connections: Connections,
    /// Forwarders that are not to be used, whatever their state.
    out: Vec<NodeId>,
    /// Those that were out and are well, which get back the flows that were taken from them.
    back: Vec<Back>,
    /// When none of them does any more.
    back_until: Nanos,
    counters: BalancerCounters,
}

counters! {
    /// What a balancer did.
    #[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
    pub struct BalancerCounters {
        /// Packets of flows in the table of connections.
        count known: u64, "packets";
        /// Packets of new flows.
        count new: u64, "packets";
        /// New flows that found no place in the table: they follow the Maglev table alone.
        count untracked: u64, "packets";
        /// Flows whose forwarder had gone.
        count moved: u64, "flows";
        /// Flows that went back to a forwarder that had been silent.
        count returned: u64, "flows";
    }
}

impl Balancer {
    /// All balancers of a router have the same `seed`. `flows` is rounded up to a power of two, at
    /// most 2^24; 16 bytes each. A flow idle for `idle` may be forgotten (spec 12.3: 60 s).
    #[must_use]
    pub fn new(seed: u64, flows: usize, idle: Nanos) -> Self {
        Self {
            seed,
            targets: Vec::new(),
            maglev: Maglev::default(),
            connections: Connections::new(flows, idle),
            out: Vec::with_capacity(MAX_NODES),
            back: Vec::with_capacity(MAX_NODES),
            back_until: Nanos::ZERO,
            counters: BalancerCounters::default(),
        }
    }

    /// Whether these can be the targets of a balancer.
    ///
    /// # Errors
    /// None or too many of them, one named twice, or a weight out of range.
    pub fn check_targets(targets: &[Target]) -> Result<(), TargetError> {
        if targets.is_empty() || targets.len() > MAX_NODES {
            return Err(TargetError::Number(targets.len()));
        }
        for (n, target) in targets.iter().enumerate() {
            if targets[..n].iter().any(|other| other.id == target.id) {
                return Err(TargetError::Twice(target.id.0));
            }
            if let State::Active(weight) = target.state
                && !(1..=FULL).contains(&weight)
            {
                return Err(TargetError::Weight(weight));
            }
        }
        Ok(())
    }

    /// Changes who takes part. Flows in the table of connections stay where they are if their
    /// forwarder is still among `targets`, draining ones included.
    ///
    /// # Errors
    /// The targets cannot be; then nothing changes.
    pub fn set_targets(&mut self, targets: &[Target]) -> Result<(), TargetError> {
        Self::check_targets(targets)?;
        let active = targets.iter().filter_map(|target| match target.state {
            State::Active(weight) => Some((target.id, weight)),
            State::Draining => None,
        });
        self.maglev = Maglev::new(self.seed, active);
        self.targets = targets.to_vec();
        Ok(())
    }

    /// The forwarder of a flow; `hash` is that of its five-tuple (fragments: of its addresses),
    /// seeded alike on all balancers. `None` if no forwarder takes new flows and this one is new.
    pub fn pick(&mut self, now: Nanos, hash: u64) -> Option<Target> {
        let known = self.connections.find(now, hash);
        if let Some(target) = known.and_then(|id| self.usable(id)) {
            self.counters.known += 1;
            if now >= self.back_until {
                return Some(target);
            }
            return Some(self.former(now, hash).unwrap_or(target));
        }
        self.counters.new += 1;
        self.counters.moved += u64::from(known.is_some());
        // One that was taken away is not asked for its flows: nobody says that it comes back.
        let from = known.filter(|id| self.out.contains(id));
        let from = from.and_then(|id| self.connections.taken_from(hash).or(Some(id)));
        let id = self.place(hash)?;
        if !self.connections.insert_taken(now, hash, id, from) {
            self.counters.untracked += 1;
        }
        self.target(id)
    }

    /// The forwarder that this flow was taken from, if it is well; the flow goes back.
    #[cold]
    fn former(&mut self, now: Nanos, hash: u64) -> Option<Target> {
        let from = self.connections.taken_from(hash)?;
        let back = self.back.iter().find(|back| back.id == from)?;
        if now < back.begins || now >= back.begins.saturating_add(WELL) {
            return None;
        }
        let target = self.usable(from)?;
        self.counters.returned += 1;
        self.connections.insert(now, hash, from);
        Some(target)
    }

    /// Flows of a forwarder that were seen within the idle time, and at most an eighth of it
    /// longer: zero means that it is drained.
    #[must_use]
    pub fn flows(&self, id: NodeId) -> usize {
        self.connections.count(id)
    }

    /// Forgets flows that are idle, some at a time: to be called in each round.
    pub fn sweep(&mut self, now: Nanos) {
        self.connections.sweep(now);
    }

    /// The table of new flows.
    #[must_use]
    pub fn table(&self) -> &Maglev {
        &self.maglev
    }

    /// What it did.
    #[must_use]
    pub fn counters(&self) -> &BalancerCounters {
        &self.counters
    }

    /// Places of the table of connections that were looked at, for packets and for idle flows:
    /// what it costs. Nothing else may look at them.
    #[must_use]
    pub fn looked_at(&self) -> u64 {
        self.connections.looked_at()
    }

    /// Whether a forwarder may be used. Flows of one that may not go to others, and no other flow
    /// moves: its places of the table are dealt out by another hash, the same on all balancers.
    ///
    /// One that has been usable again for [`WELL`] gets its former flows back, those that send
    /// within as long: a pause of a busy machine does not leave it without work. No more often than
    /// once in [`PAUSE`], so that one that comes and goes does not take flows with it each time.
    pub fn set_usable(&mut self, now: Nanos, id: NodeId, usable: bool) {
        let was_out = self.out.contains(&id);
        self.out.retain(|out| *out != id);
        if !usable {
            self.out.push(id);
        }
        match self.back.iter_mut().find(|back| back.id == id) {
            Some(back) if usable && was_out => {
                let earliest = back.last.map_or(Nanos::ZERO, |last| last + PAUSE);
                back.begins = (now + WELL).max(earliest);
            }
            Some(back) if !usable => {
                if back.begins <= now {
                    back.last = Some(back.begins);
                }
                back.begins = Nanos::MAX;
            }
            None if !usable => self.back.push(Back { id, last: None, begins: Nanos::MAX }),
            Some(_) | None => {}
        }
        let ends = self.back.iter().filter(|back| back.begins < Nanos::MAX);
        let ends = ends.map(|back| back.begins.saturating_add(WELL)).max();
        self.back_until = ends.unwrap_or(Nanos::ZERO);
    }

    /// The forwarder of a new flow: the table's, or if that one is out, the table's for another
    /// hash of the flow.
    fn place(&self, hash: u64) -> Option<NodeId> {
        let mut turn = hash;
        for _ in 0..TURNS {
            let id = self.maglev.lookup(turn)?;
            if !self.out.contains(&id) {
                return Some(id);
            }
            turn = mix64(turn ^ self.seed);
        }
        // Nearly all are out: the first that is not; rather one that drains than nobody.
        let living = || self.targets.iter().filter(|target| !self.out.contains(&target.id));
        let active = living().find(|target| matches!(target.state, State::Active(_)));
        active.or_else(|| living().next()).map(|target| target.id)
    }

    fn usable(&self, id: NodeId) -> Option<Target> {
        if self.out.contains(&id) { None } else { self.target(id) }
    }

    fn target(&self, id: NodeId) -> Option<Target> {
        self.targets.iter().copied().find(|target| target.id == id)
    }
}

/// How long a forwarder that was out must be usable before its former flows go back to it, and how
/// long they then do.
pub const WELL: Nanos = Nanos::SECOND;
/// Between two times that the flows of one forwarder go back.
pub const PAUSE: Nanos = Nanos::from_secs(10);

/// A forwarder that was out.
#[derive(Clone, Copy, Debug)]
struct Back {
    id: NodeId,
    /// When its flows began to go back, the last time.
    last: Option<Nanos>,
    /// When they begin to do so; never, while it is out.
    begins: Nanos,
}

/// Hashes of a flow that are tried.
const TURNS: u32 = 64;
