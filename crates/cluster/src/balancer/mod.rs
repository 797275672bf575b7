//! Which forwarder gets a flow: the balancer's stage, as a pure structure.
//!
//! Source: Maglev (Eisenbud et al., NSDI 2016), spec 12. [`Maglev`] is the table that all balancers
//! with the same members compute alike; [`Balancer`] adds a bounded table of connections, so that
//! flows that are established stay where they are when forwarders join or drain.
//!
//! Look-up: two reads of the connection table's buckets (4 places each), one of the Maglev table. A
//! new table costs O(T·log T) on average and is made at human speed. A forwarder that [`Health`]
//! finds silent changes no table: only its flows go elsewhere.

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
            return Some(target);
        }
        self.counters.new += 1;
        self.counters.moved += u64::from(known.is_some());
        let id = self.place(hash)?;
        if !self.connections.insert(now, hash, id) {
            self.counters.untracked += 1;
        }
        self.target(id)
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
    pub fn set_usable(&mut self, id: NodeId, usable: bool) {
        self.out.retain(|out| *out != id);
        if !usable {
            self.out.push(id);
        }
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
        // Nearly all are out: the first that is not.
        let first = self.targets.iter().find(|target| {
            matches!(target.state, State::Active(_)) && !self.out.contains(&target.id)
        });
        first.map(|target| target.id)
    }

    fn usable(&self, id: NodeId) -> Option<Target> {
        if self.out.contains(&id) { None } else { self.target(id) }
    }

    fn target(&self, id: NodeId) -> Option<Target> {
        self.targets.iter().copied().find(|target| target.id == id)
    }
}

/// Hashes of a flow that are tried.
const TURNS: u32 = 64;
