//! Members, weights and roles of a cluster from etcd, at human speed.
//!
//! The router's file is the base; what etcd says is laid over it ([`evenkeel_config::overlay`]) and
//! handed on as one whole, checked configuration, which the cluster brings into force in band. The
//! client has a thread of its own and never touches the packet path: if etcd is away, slow or says
//! what cannot be, the router goes on with what it has.
//!
//! A router tells that it is alive by a key on a lease. When a forwarder's key goes while etcd is
//! there, balancers give it nothing until it is back. After etcd was away, nobody counts as gone
//! before one lease is over: all come back at their own time. Failover among forwarders does not
//! wait for any of this; it is in band, within a few cycles.
//!
//! With `https://` etcd shows who it is by a certificate, and the router by one of its own, a
//! password, or both; neither goes to an etcd that has shown nothing.
// What blocks or fails where these write would stop packets: the log has a thread (crates/cli).
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]
#![forbid(unsafe_code)]

#[cfg(feature = "etcd")]
mod client;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use evenkeel_config::membership::OverlayError;
use evenkeel_config::{Change, RouterConfig, fixed_setting, overlay};
use thiserror::Error;

#[cfg(feature = "etcd")]
pub use client::Client;

/// Whether this build can talk to etcd.
pub const BUILT_IN: bool = cfg!(feature = "etcd");

/// What etcd said last, by key after the prefix and its slash.
pub type Keys = BTreeMap<String, String>;

/// The file of a router and what is laid over it.
#[derive(Debug)]
pub struct Merger {
    base: RouterConfig,
    keys: Keys,
    gone: BTreeSet<u16>,
    /// Forwarders that were alive at some time.
    seen: BTreeSet<u16>,
    running: RouterConfig,
}

/// Takes a configuration over: gives it to the router, and says why it did not take it.
pub type Apply<'a, E> = &'a mut dyn FnMut(&RouterConfig) -> Result<(), E>;

/// Why a configuration is not in force. Nothing has changed.
#[derive(Debug, Error, PartialEq)]
pub enum MergeError<E> {
    /// A setting of `[membership]` differs, by its key; or only one of the files has the table.
    #[error("{0} cannot change while the router runs: restart it")]
    Fixed(String),
    /// What etcd says does not fit the file.
    #[error("{0}")]
    Overlay(#[from] OverlayError),
    /// The router did not take it.
    #[error("{0}")]
    Apply(E),
}

impl Merger {
    /// Nothing is laid over `base` yet.
    #[must_use]
    pub fn new(base: &RouterConfig) -> Self {
        Self {
            base: base.clone(),
            keys: Keys::new(),
            gone: BTreeSet::new(),
            seen: BTreeSet::new(),
            running: base.clone(),
        }
    }

    /// The same for several threads.
    #[must_use]
    pub fn shared(base: &RouterConfig) -> Arc<Mutex<Self>> {
        Arc::new(Mutex::new(Self::new(base)))
    }

    /// The file was read again. What etcd said last is laid over it.
    ///
    /// # Errors
    /// `[membership]` differs, which needs a restart; keys that do not fit the file; or what
    /// `apply` says. Then nothing has changed.
    pub fn rebase<E>(
        &mut self,
        base: &RouterConfig,
        apply: Apply<'_, E>,
    ) -> Result<(), MergeError<E>> {
        if let (Some(old), Some(new)) = (&self.base.membership, &base.membership)
            && let Some(key) = fixed_setting(old, new)
        {
            return Err(MergeError::Fixed(format!("membership.{key}")));
        }
        if base.membership != self.base.membership {
            return Err(MergeError::Fixed("membership".to_owned()));
        }
        let merged = overlay(base, &self.keys, &self.gone)?;
        apply(&merged).map_err(MergeError::Apply)?;
        (self.base, self.running) = (base.clone(), merged);
        Ok(())
    }

    /// The router was changed beside its file, which what etcd says next must not undo. A forwarder
    /// that only etcd names stays as etcd says.
    pub fn changed(&mut self, change: &Change) {
        for config in [&mut self.base, &mut self.running] {
            if let Ok(after) = config.changed(change) {
                *config = after;
            }
        }
    }

    /// What etcd says now. With `leases`, a forwarder that was alive and has no key any more is
    /// gone. `true`: something has changed.
    ///
    /// # Errors
    /// Each wrong key with its value and what is valid, or what `apply` says. Then the router goes
    /// on as before.
    pub fn keys<E>(
        &mut self,
        keys: Keys,
        leases: bool,
        apply: Apply<'_, E>,
    ) -> Result<bool, MergeError<E>> {
        let alive: BTreeSet<u16> = keys
            .keys()
            .filter_map(|key| key.strip_prefix("alive/forwarder/")?.parse().ok())
            .collect();
        let mut gone: BTreeSet<u16> = self.seen.difference(&alive).copied().collect();
        if !leases {
            gone.retain(|id| self.gone.contains(id));
        }
        self.seen.extend(alive);
        let merged = overlay(&self.base, &keys, &gone)?;
        let changed = merged != self.running;
        if changed {
            apply(&merged).map_err(MergeError::Apply)?;
        }
        (self.keys, self.gone, self.running) = (keys, gone, merged);
        Ok(changed)
    }

    /// The key, after prefix and slash, by which this router says that it is alive.
    #[must_use]
    pub fn alive_key(&self) -> String {
        match &self.base.cluster {
            Some(cluster) => format!("alive/forwarder/{}", cluster.node),
            None => format!("alive/balancer/{}", self.base.router.name),
        }
    }
}

/// Nothing that is done under this lock can leave what it guards half changed.
pub fn lock(merger: &Mutex<Merger>) -> MutexGuard<'_, Merger> {
    merger.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_config::{ForwarderState, parse_change};

    const BALANCER: &str = "[[port]]\nname = \"sw\"\ninterface = \"e0\"\n[balancer]\nport = \
                            \"sw\"\n[[balancer.forwarder]]\nid = 1\nmac = \"02:00:00:00:00:01\"\n\
         [membership]\nendpoints = [\"http://10.0.0.1:2379\"]\n";

    fn keys(alive: &[u16], extra: &[(&str, &str)]) -> Keys {
        let mut keys = Keys::new();
        for id in 1..=2 {
            keys.insert(format!("members/{id}/mac"), format!("02:00:00:00:00:0{id}"));
        }
        keys.extend(alive.iter().map(|id| (format!("alive/forwarder/{id}"), String::new())));
        keys.extend(extra.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())));
        keys
    }

    fn states(config: &RouterConfig) -> Vec<(u16, &'static str)> {
        config
            .balancer
            .iter()
            .flat_map(|of| &of.forwarders)
            .map(|one| (one.id, one.state.name()))
            .collect()
    }

    #[test]
    fn who_was_alive_and_is_not_gets_nothing_once_leases_count() {
        let base = RouterConfig::parse(BALANCER, "r.toml").unwrap();
        let mut merger = Merger::new(&base);
        let mut last = Vec::new();
        let mut say = |merger: &mut Merger, keys, leases| {
            let changed = merger.keys(keys, leases, &mut |config| {
                last = states(config);
                Ok::<_, &str>(())
            });
            (changed.unwrap(), last.clone())
        };
        let both = vec![(1, "active"), (2, "active")];
        assert_eq!(
            say(&mut merger, keys(&[], &[]), true),
            (true, both.clone()),
            "never seen: as the keys say"
        );
        assert_eq!(say(&mut merger, keys(&[1, 2], &[]), true), (false, both.clone()));
        assert_eq!(
            say(&mut merger, keys(&[1], &[]), false),
            (false, both.clone()),
            "etcd has just come back"
        );
        let out = vec![(1, "active"), (2, "out")];
        assert_eq!(say(&mut merger, keys(&[1], &[]), true), (true, out.clone()));
        assert_eq!(
            say(&mut merger, keys(&[], &[]), false),
            (false, out),
            "who was gone stays gone, nobody else goes"
        );
        assert_eq!(say(&mut merger, keys(&[1, 2], &[]), false), (true, both));
    }

    /// The first key of etcd that changed put the rate of the file back.
    #[test]
    fn what_was_changed_beside_the_file_outlives_the_next_keys() {
        let base = RouterConfig::parse(BALANCER, "r.toml").unwrap();
        let mut merger = Merger::new(&base);
        let rate = parse_change("rate", None, "5Mbit/s", &[]).unwrap();
        let wanted = base.changed(&rate.clone().on("sw")).unwrap();
        merger.changed(&rate.on("sw"));
        merger.changed(&Change::Forwarder { id: 7, state: ForwarderState::Out });
        let mut seen = None;
        let mut apply = |config: &RouterConfig| {
            seen = config.link("sw").unwrap().core.rate;
            Ok::<_, &str>(())
        };
        assert!(merger.keys(keys(&[1, 2], &[]), true, &mut apply).unwrap());
        assert!(seen.is_some() && seen == wanted.link("sw").unwrap().core.rate);
    }

    #[test]
    fn what_is_refused_leaves_everything_as_it_was() {
        let base = RouterConfig::parse(BALANCER, "r.toml").unwrap();
        let mut merger = Merger::new(&base);
        let mut taken = 0;
        let mut apply = |_: &RouterConfig| {
            taken += 1;
            Ok::<_, &str>(())
        };
        merger.keys(keys(&[1], &[]), true, &mut apply).unwrap();
        let bad =
            merger.keys(keys(&[1], &[("members/1/weight", "999")]), true, &mut apply).unwrap_err();
        let bad = bad.to_string();
        assert!(bad.contains("members/1/weight = \"999\"") && bad.contains("1 to 256"), "{bad}");
        assert_eq!(merger.keys, keys(&[1], &[]));
        let mut other = base.clone();
        other.membership.as_mut().unwrap().prefix = "/other".to_owned();
        let fixed = merger.rebase(&other, &mut apply).unwrap_err();
        assert_eq!(fixed, MergeError::Fixed("membership.prefix".to_owned()));
        other.membership = None;
        let fixed = merger.rebase(&other, &mut apply).unwrap_err();
        assert_eq!(fixed, MergeError::Fixed("membership".to_owned()));
        merger.rebase(&base, &mut apply).unwrap();
        assert_eq!(taken, 2, "the keys once, the file once");
        let refused =
            merger.keys(keys(&[1], &[("members/1/weight", "9")]), true, &mut |_| Err("busy"));
        assert_eq!(refused, Err(MergeError::Apply("busy")));
        assert_eq!(states(&merger.running), [(1, "active"), (2, "active")]);
        assert_eq!(merger.alive_key(), format!("alive/balancer/{}", base.router.name));
    }
}
