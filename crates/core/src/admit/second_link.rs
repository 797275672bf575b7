//! MFAN, multilayer flow-aware networking: when a new flow meets congestion, a flow leaves for a
//! second link.
//!
//! Source: Domzal et al.: the policies Newest, Most-Active and Oldest (QoSIP 2008); the second link
//! stands for a transparent lightpath. A flow on the second link's list is sent there whatever
//! happens on the first; look-ups ask that list before the list of protected flows.
//!
//! | symbol | here |
//! |---|---|
//! | optical list | `table` |
//! | C_opt, max_opt_load | [`SecondLinkConfig::rate`], [`SecondLinkConfig::max_load`] |
//!
//! The second link is a queue of its own behind the caller's
//! [`Verdict::Divert`](super::Verdict::Divert). Its load is what was sent there since the last
//! estimate of the fair rate and in the interval before; above the maximum it takes no more flows,
//! and a new one is treated as if there were no second link. A flow that changes links may be
//! overtaken by its own packets.
//!
//! Of several workers each has a list of those of its flows that leave, the newest, oldest or most
//! active that it has itself. The load is what all have sent there in a worker's interval.
//!
//! Constant time per packet, also for the oldest; a new flow that meets congestion looks at up to
//! [`PICK`](super::protected::PICK) places of the list for the most active: exact in lists of no
//! more, a random sample in larger ones, whose bound is said there. Not implemented: EHOT, of which
//! no details are public; setting up and taking down lightpaths.

use super::config::LIST_RANGE;
use core::net::IpAddr;

use super::peers::Peers;
use super::protected::{SEARCH, age, stamp};
use crate::flow_table::{FlowTable, PackedFlow};
use crate::settings::{Name, SettingError};
use crate::units::{BitRate, Bytes, Nanos, Ppm};
use crate::{settings, words};

words! {
    /// Which flow leaves for the second link when a new one meets congestion (MFAN).
    pub enum SecondLinkPolicy {
        /// the new one
        #[default]
        Newest = "newest",
        /// the one with most bytes waiting
        MostActive = "most-active",
        /// the one protected longest
        Oldest = "oldest",
    }
}

settings! {
    /// MFAN: a second link beside this one.
    pub struct SecondLinkConfig: "" {
        /// MFAN: the port of a second link to the same next router, for flows that this one has no
        /// room for.
        reload port as second_link: Option<Name> = None, absent "none";
        /// The next router's address on the second link.
        reload via as second_via: Option<IpAddr> = None, absent "the destination itself is the \
                                                            neighbour";
        /// Which flow leaves for the second link when a new one meets congestion.
        live policy as second_link_policy: SecondLinkPolicy = SecondLinkPolicy::Newest;
        /// Above this load over T_FR the second link takes no more flows.
        live max_load as second_link_max_load: Ppm = Ppm::percent(90), between 0.000_001..=1.0;
        /// Size of its list of flows. A change empties it.
        live flows as second_link_flows: u32 = 16_384, in LIST_RANGE, counting "flows";
    }
    plain {
        /// Its capacity; `None`: there is no second link.
        rate: Option<BitRate> = None;
    }
    check Self::has_port
}

impl SecondLinkConfig {
    /// The defaults, for a link of this capacity.
    #[must_use]
    pub fn new(rate: BitRate) -> Self {
        Self { rate: Some(rate), ..Self::default() }
    }

    fn has_port(&self) -> Result<(), SettingError> {
        if self.via.is_some() && self.port.is_none() {
            let message = "only together with `second_link`".into();
            return Err(SettingError::Contradiction { key: "second_via", message });
        }
        Ok(())
    }
}

/// The list of the second link, and its load.
#[derive(Clone, Debug)]
pub(super) struct SecondLink {
    pub(super) config: SecondLinkConfig,
    table: FlowTable<u32>,
    /// Since when `sent` counts.
    from: Nanos,
    sent: Bytes,
    /// Other workers that send there, and what they had when the interval began.
    peers: Option<Peers>,
    elsewhere: u64,
    /// The interval before was above the maximum.
    full: bool,
}

impl SecondLink {
    pub(super) fn new(
        config: SecondLinkConfig,
        seed: u64,
        now: Nanos,
    ) -> Result<Self, SettingError> {
        let table = FlowTable::new(config.flows, seed)?;
        let sent = Bytes::ZERO;
        Ok(Self { config, table, from: now, sent, peers: None, elsewhere: 0, full: false })
    }

    /// From now on these send there, too.
    pub(super) fn share(&mut self, peers: Option<Peers>) {
        self.elsewhere = peers.as_ref().map_or(0, Peers::diverted);
        self.peers = peers;
    }

    /// A packet goes there.
    fn send(&mut self, length: Bytes) {
        self.sent = self.sent.saturating_add(length);
        if let Some(peers) = &self.peers {
            peers.tell_diverted(length);
        }
    }

    /// What all have sent there since the interval began.
    fn load(&self) -> Bytes {
        let elsewhere = self.peers.as_ref().map_or(0, Peers::diverted);
        self.sent.saturating_add(Bytes(elsewhere.wrapping_sub(self.elsewhere)))
    }

    /// Most bytes in a time.
    fn most(&self, time: Nanos) -> Bytes {
        Bytes(self.config.max_load.of(self.config.rate.unwrap_or_default().bytes_in(time).0))
    }

    /// Whether a packet belongs there; then it is counted. A flow that was silent for too long is
    /// forgotten.
    #[inline]
    pub(super) fn carries(
        &mut self,
        now: Nanos,
        timeout: Nanos,
        hash: u64,
        key: &PackedFlow,
        length: Bytes,
    ) -> bool {
        let Some(id) = self.table.find(hash, key) else { return false };
        if age(now, *self.table.value(id)) > timeout {
            self.table.remove(id);
            return false;
        }
        *self.table.value_mut(id) = stamp(now);
        self.send(length);
        true
    }

    /// Whether it is known to carry a flow.
    pub(super) fn lists(&self, hash: u64, key: &PackedFlow) -> bool {
        self.table.find(hash, key).is_some()
    }

    /// Whether it takes another flow.
    pub(super) fn takes(&mut self, now: Nanos, timeout: Nanos, interval: Nanos) -> bool {
        if self.table.is_full() {
            self.table.sweep(SEARCH, |_, seen| age(now, *seen) > timeout);
        }
        !self.full && self.load() <= self.most(interval) && !self.table.is_full()
    }

    /// A flow moves there. `length`: of its packet that goes there now, if any.
    pub(super) fn add(&mut self, now: Nanos, hash: u64, key: PackedFlow, length: Bytes) {
        if self.table.find(hash, &key).is_none() {
            // `takes` was asked before.
            let _ = self.table.insert(hash, key, stamp(now));
        }
        self.send(length);
    }

    /// The fair rate was estimated: the next interval begins.
    pub(super) fn next_interval(&mut self, now: Nanos, timeout: Nanos) {
        self.full = self.load() > self.most(now.saturating_sub(self.from));
        (self.sent, self.from) = (Bytes::ZERO, now);
        self.elsewhere = self.peers.as_ref().map_or(0, Peers::diverted);
        self.table.sweep(SEARCH, |_, seen| age(now, *seen) > timeout);
    }

    pub(super) fn len(&self) -> u32 {
        self.table.len()
    }
    pub(super) fn memory(&self) -> usize {
        self.table.memory()
    }
}
