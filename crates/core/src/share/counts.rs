//! What a worker counts of its hosts in the table of a link (`hosts.rs`).

use alloc::sync::Arc;
use alloc::vec::Vec;

use super::SharedLink;
use super::hosts::{Counted, Hosts};
use crate::flow_table::PackedFlow;

/// The hosts of one worker: what it counts in the table it takes back when it is dropped.
#[derive(Debug)]
pub(crate) struct Counts {
    link: Arc<SharedLink>,
    seed: u64,
    counted: Vec<Counted>,
}

impl Counts {
    /// For `hosts` hosts at a time. All workers of the link have the same seed.
    pub(crate) fn new(link: Arc<SharedLink>, hosts: usize, seed: u64) -> Self {
        Self { link, seed, counted: (0..hosts).map(|_| Counted::NEW).collect() }
    }

    /// The host at a place of the worker's own list is this one. Nothing of the one before waits.
    pub(crate) fn name(&mut self, host: usize, key: &PackedFlow) {
        self.counted[host].hash = key.seeded(self.seed);
    }

    /// One more flow of a host waits, or one less.
    pub(crate) fn change(&mut self, host: usize, more: bool) {
        self.counted[host].change(&self.link.hosts, more);
    }

    /// How many of its flows wait, at all workers.
    pub(crate) fn all(&mut self, host: usize) -> u32 {
        self.counted[host].all(&self.link.hosts)
    }

    /// How many wait here.
    pub(crate) fn own(&self, host: usize) -> u32 {
        self.counted[host].own
    }

    /// Nothing waits any more.
    pub(crate) fn clear(&mut self) {
        let Self { link, counted, .. } = self;
        counted.iter_mut().for_each(|host| host.leave(&link.hosts));
    }
}

impl Drop for Counts {
    fn drop(&mut self) {
        self.clear();
    }
}

impl SharedLink {
    /// The link with room for fewer hosts, or more: so many lines of eight. To be called before
    /// anybody has a part of it.
    #[must_use]
    pub fn with_lines_of_hosts(self, lines: usize) -> Self {
        Self { hosts: Hosts::with_lines(lines.max(1)), ..self }
    }

    /// How many flows of hosts wait that share the link with others, and in how many places of the
    /// table of hosts they are counted.
    #[must_use]
    pub fn hosts_that_wait(&self) -> (u64, usize) {
        self.hosts.counted()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::hosts::PLACES;
    use super::*;
    use crate::units::Nanos;

    const WORKERS: usize = 3;
    const HOSTS: usize = 24;

    /// Workers of a link with so many lines, and hosts that all of them have in the same places.
    fn workers(lines: usize) -> (Arc<SharedLink>, Vec<Counts>) {
        let link = SharedLink::new(WORKERS, 2, Nanos::ZERO).with_lines_of_hosts(lines);
        let link = Arc::new(link);
        let counts = |_| {
            let mut counts = Counts::new(Arc::clone(&link), HOSTS, 5);
            for host in 0..HOSTS {
                counts.name(host, &PackedFlow::v4((host as u64) << 32, 0, 0).host(true));
            }
            counts
        };
        let counts = (0..WORKERS).map(counts).collect();
        (link, counts)
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

        /// Flows begin and cease to wait at any worker: with room for all hosts each worker sees
        /// what all have; without, never more than that, nor less than its own.
        #[test]
        fn all_see_what_all_have(
            steps in prop::collection::vec((0..WORKERS, 0..HOSTS, any::<bool>()), 1..400),
            roomy in any::<bool>(),
        ) {
            let (link, mut workers) = workers(if roomy { 256 } else { 1 });
            let mut waits = [[0_u32; HOSTS]; WORKERS];
            let all_of = |waits: &[[u32; HOSTS]], host: usize| -> u32 {
                waits.iter().map(|own| own[host]).sum()
            };
            for (worker, host, more) in steps {
                let own = &mut waits[worker][host];
                if more || *own > 0 {
                    workers[worker].change(host, more);
                    *own = if more { *own + 1 } else { *own - 1 };
                }
                let sum = waits.iter().flatten().map(|flows| u64::from(*flows)).sum::<u64>();
                let (flows, places) = link.hosts_that_wait();
                let least = if roomy { sum } else { 0 };
                prop_assert!(least <= flows && flows <= sum);
                prop_assert!(roomy || places <= PLACES);
                for (worker, own) in workers.iter_mut().zip(&waits) {
                    let (seen, all) = (worker.all(host), all_of(&waits, host));
                    let least = if roomy { all } else { own[host] };
                    prop_assert_eq!(worker.own(host), own[host]);
                    prop_assert!(least <= seen && seen <= all);
                }
            }
            // Of the few hosts that are left each finds a place when it is looked at.
            for (worker, waits) in workers.iter_mut().zip(&mut waits) {
                for (host, own) in waits.iter_mut().enumerate().skip(PLACES) {
                    (0..core::mem::take(own)).for_each(|_| worker.change(host, false));
                }
            }
            for worker in &mut workers {
                (0..PLACES).for_each(|host| _ = worker.all(host));
            }
            for host in 0..PLACES {
                let all = all_of(&waits, host);
                prop_assert!(workers.iter_mut().all(|worker| worker.all(host) == all));
            }
            // One says that nothing waits, the others just go.
            workers[0].clear();
            let left = waits[1..].iter().flatten().map(|flows| u64::from(*flows)).sum::<u64>();
            prop_assert_eq!(link.hosts_that_wait().0, left);
            drop(workers);
            prop_assert_eq!(link.hosts_that_wait(), (0, 0));
        }
    }

    /// Two have claimed different places for the same host: who has the later one moves.
    #[test]
    fn a_host_in_two_places_ends_in_the_first() {
        let (link, mut workers) = workers(1);
        let [first, second, ..] = &mut workers[..] else { panic!() };
        first.change(0, true);
        (0..2).for_each(|_| second.change(1, true));
        first.change(0, false);
        // The first one has seen the place free before the other was elsewhere.
        let host = &mut first.counted[1];
        (host.own, host.place) = (3, Some(0));
        link.hosts.put(host.hash, 0, 3);
        assert_eq!(link.hosts_that_wait(), (5, 2));
        assert_eq!((first.all(1), second.all(1), first.all(1)), (3, 5, 5));
        assert_eq!(link.hosts_that_wait(), (5, 1));
        // Nobody who has none of a host counts it twice.
        assert_eq!(workers[2].all(1), 5);
    }
}
