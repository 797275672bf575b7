//! What one of several workers shares with the others: the outgoing links.

use std::sync::Arc;

use evenkeel_config::workers::{WorkersError, fairdrop_for_workers, link_for_workers};
use evenkeel_config::{DisciplineConfig, LinkConfig, RouterConfig};
use evenkeel_core::drop::{FairDropConfig, SharedShadow};
use evenkeel_core::schedule::AnyScheduler;
use evenkeel_core::share::SharedLink;

use super::packet::QueuedPacket;
use crate::error::CommandError;
use crate::own::Disciplines;

/// A worker's number among several, and the links that all of them send on.
#[derive(Clone, Debug)]
pub struct WorkerShares {
    worker: usize,
    workers: usize,
    links: Arc<[Shares]>,
}

/// What the workers share of an outgoing link.
#[derive(Clone, Debug)]
struct Shares {
    link: Arc<SharedLink>,
    shadow: Arc<SharedShadow>,
}

impl WorkerShares {
    /// By worker, what it shares with the others; empty if there is only one worker.
    ///
    /// # Errors
    /// Several workers cannot share something of it.
    pub fn for_workers(config: &RouterConfig) -> Result<Vec<Self>, CommandError> {
        config.check_workers()?;
        let workers = usize::from(config.router.workers);
        if workers == 1 {
            return Ok(Vec::new());
        }
        let shared = |link: &LinkConfig| {
            let shared = SharedLink::new(workers, config.classes.len(), config.router.max_catch_up);
            shared.set_rate(link.core.rate);
            Shares { link: Arc::new(shared), shadow: Arc::new(SharedShadow::new(workers)) }
        };
        let links: Arc<[_]> = config.links.iter().map(shared).collect();
        Ok((0..workers).map(|worker| Self { worker, workers, links: Arc::clone(&links) }).collect())
    }

    /// Which of the workers it is, from 0.
    #[must_use]
    pub fn worker(&self) -> usize {
        self.worker
    }

    /// This worker's part of what a port may do each second, rounded up.
    pub(super) fn part_of(&self, per_second: u32) -> u32 {
        per_second.div_ceil(self.workers as u32)
    }

    pub(super) fn set_rate(&self, at: usize, link: &LinkConfig) {
        self.links[at].link.set_rate(link.core.rate);
    }

    /// What the admission of the link at `at` shares, and with which number.
    pub(super) fn admission(&self, at: usize) -> (Arc<SharedLink>, usize) {
        (self.link(at), self.worker)
    }

    fn link(&self, at: usize) -> Arc<SharedLink> {
        Arc::clone(&self.links[at].link)
    }

    /// What FairDrop of the link at `at` shares.
    pub(super) fn shadow(&self, at: usize) -> Arc<SharedShadow> {
        Arc::clone(&self.links[at].shadow)
    }
}

/// The discipline of the link of port `at`: a worker's own, or its part of a shared one.
pub(super) fn discipline(
    shares: Option<&WorkerShares>,
    own: &Disciplines,
    at: usize,
    link: &DisciplineConfig,
    classes: &[&str],
) -> Result<AnyScheduler<QueuedPacket>, CommandError> {
    Ok(part(shares, at, own.build(link, classes)?))
}

/// The same from a scheduler that has been built for the link of one worker.
pub(super) fn part(
    shares: Option<&WorkerShares>,
    at: usize,
    built: AnyScheduler<QueuedPacket>,
) -> AnyScheduler<QueuedPacket> {
    match shares {
        None => built,
        Some(shares) => built.shared(shares.link(at), shares.worker),
    }
}

/// Whether a worker with these shares can have this link.
pub(super) fn check_link(
    shares: Option<&WorkerShares>,
    link: &LinkConfig,
) -> Result<(), CommandError> {
    match shares {
        None => Ok(()),
        Some(_) => link_for_workers(link)
            .map_err(|part| WorkersError::Link { link: link.port.clone(), part }.into()),
    }
}

/// Whether a worker with these shares can have FairDrop like this.
pub(super) fn check_fairdrop(
    shares: Option<&WorkerShares>,
    fairdrop: &FairDropConfig,
    classes: usize,
) -> Result<(), CommandError> {
    match shares {
        None => Ok(()),
        Some(_) => Ok(fairdrop_for_workers(fairdrop, classes)?),
    }
}
