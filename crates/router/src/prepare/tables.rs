//! Where a worker gets the kernel's tables from when it begins.

use std::sync::mpsc::Receiver;

use evenkeel_config::RouterConfig;
use evenkeel_ports::sys::Notifier;

use super::{Follower, MirrorFeed, denied, system};
use crate::error::StartError;
use crate::mirror::{Mirror, MirrorEvent, MirrorView};
use crate::pipeline::follows_translations;
use crate::worker::MirrorAccess;

/// The mirror of the leader, or a follower's view of it.
pub(super) struct MirrorStart {
    pub(super) access: MirrorAccess,
    pub(super) ready: Notifier,
    pub(super) initial: Vec<MirrorEvent>,
    pub(super) followers: Vec<(Follower, MirrorView)>,
}

impl MirrorStart {
    /// `taken`: the CPUs that are workers' own.
    pub(super) fn leader(
        config: &RouterConfig,
        taken: &[usize],
        followers: Vec<Follower>,
    ) -> Result<Self, StartError> {
        let ready = Notifier::new().map_err(system("making a notifier"))?;
        let interfaces = config.ports.iter().map(|port| port.interface.clone()).collect();
        let notifiers: Vec<_> = followers.iter().map(|(ready, _)| ready.clone()).collect();
        let translations = follows_translations(config);
        let (mirror, initial, views) =
            Mirror::start_for(interfaces, ready.clone(), &notifiers, translations, taken).map_err(
                |source| denied("reading the kernel's routes".into(), "CAP_NET_ADMIN", source),
            )?;
        let followers = followers.into_iter().zip(views).collect();
        Ok(Self { access: MirrorAccess::Leader(mirror), ready, initial, followers })
    }

    pub(super) fn follower(feed: &Receiver<MirrorFeed>) -> Result<Self, StartError> {
        let MirrorFeed { view, ready, initial } =
            feed.recv().map_err(|_gone| StartError::NoLeader)?;
        let access = MirrorAccess::Follower(view);
        Ok(Self { access, ready, initial, followers: Vec::new() })
    }
}
