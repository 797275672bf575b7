//! What one of several workers shares with the others: the outgoing links. Those that cannot be
//! shared are the first worker's, to which the others [hand](super::hand_on) their packets.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use evenkeel_config::workers::unshared_part;
use evenkeel_config::{DisciplineConfig, LinkConfig, RouterConfig};
use evenkeel_core::admit::AdmissionConfig;
use evenkeel_core::drop::SharedShadow;
use evenkeel_core::schedule::AnyScheduler;
use evenkeel_core::share::{SharedLink, Users};

use super::balancer::Unusable;
use super::packet::QueuedPacket;
use crate::error::CommandError;
use crate::handing::{Handing, OWNER};
use crate::own::Disciplines;

/// A worker's number among several, and the links that all of them send on.
#[derive(Clone, Debug)]
pub struct WorkerShares {
    worker: usize,
    workers: usize,
    links: Arc<[Shares]>,
    handing: Arc<Handing>,
    unusable: Arc<Unusable>,
}

/// What of a link is a worker's.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Part {
    /// It is the only one, or has it for all.
    All,
    /// Others have their parts.
    Some,
    /// The first worker has it.
    Nothing,
}

/// What the workers share of an outgoing link.
#[derive(Clone, Debug)]
struct Shares {
    link: Arc<SharedLink>,
    /// It is the first worker's.
    is_one_workers: bool,
    /// What the admissions of all workers count users in, as long as any of them does. Asked for
    /// when an admission is built or changed, never for a packet.
    users: Arc<Mutex<Weak<Users>>>,
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
        let shared = |(link, unshared): (&LinkConfig, Option<_>)| {
            let shared = SharedLink::new(workers, config.classes.len(), config.router.max_catch_up);
            shared.set_rate(link.core.rate);
            Shares {
                link: Arc::new(shared),
                is_one_workers: unshared.is_some(),
                users: Arc::default(),
                shadow: Arc::new(SharedShadow::new(workers)),
            }
        };
        let links: Arc<[_]> =
            config.links.iter().zip(config.unshared_links()).map(shared).collect();
        let buffer = config.router.buffer_size.0 as usize;
        let hands_on = config.hands_on();
        let unusable = Arc::new(Unusable::default());
        let handing = Arc::new(Handing::new(workers, buffer, hands_on));
        let of = |worker| Self {
            worker,
            workers,
            links: Arc::clone(&links),
            handing: Arc::clone(&handing),
            unusable: Arc::clone(&unusable),
        };
        Ok((0..workers).map(of).collect())
    }

    /// Whether the link at `at` is the first worker's.
    pub(super) fn is_one_workers(&self, at: usize) -> bool {
        self.links[at].is_one_workers
    }

    /// Whether the link at `at` is another worker's.
    pub(super) fn is_others(&self, at: usize) -> bool {
        self.is_one_workers(at) && self.worker != OWNER
    }

    /// Where packets for the first worker's links are handed over.
    pub(crate) fn handing(&self) -> &Arc<Handing> {
        &self.handing
    }

    /// Which forwarders of a balancer get nothing.
    pub(super) fn unusable(&self) -> &Arc<Unusable> {
        &self.unusable
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
    pub(super) fn admission(&self, at: usize) -> Option<(Arc<SharedLink>, usize)> {
        (!self.is_one_workers(at)).then(|| (self.link(at), self.worker))
    }

    /// What the admission of the link at `at` counts users in, if it does. The first worker that
    /// asks for one of this size makes it, for all that come after it.
    pub(super) fn users(
        &self,
        at: usize,
        config: &AdmissionConfig,
        seed: u64,
    ) -> Option<Arc<Users>> {
        let own = &config.per_user;
        if self.is_one_workers(at) || !own.on {
            return None;
        }
        let mut known = self.links[at].users.lock().unwrap_or_else(PoisonError::into_inner);
        let same = known.upgrade().filter(|users| users.users() == own.users);
        Some(same.unwrap_or_else(|| {
            let users = Arc::new(Users::new(own.users, seed));
            *known = Arc::downgrade(&users);
            users
        }))
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
    match shares.filter(|shares| !shares.is_one_workers(at)) {
        None => built,
        Some(shares) => built.shared(shares.link(at), shares.worker),
    }
}

/// Whether a link stays a shared one, or the first worker's, with these settings.
pub(super) fn check_link(
    shares: Option<&WorkerShares>,
    at: usize,
    link: &LinkConfig,
) -> Result<(), CommandError> {
    let Some(shares) = shares else { return Ok(()) };
    match (shares.is_one_workers(at), unshared_part(link)) {
        (false, Some(part)) => Err(CommandError::NeedsReload(format!(
            "link {} would be the first worker's: {part}",
            link.port
        ))),
        // It stays the first worker's: that is right for every link, if slower.
        _ => Ok(()),
    }
}
