//! Another configuration while the cluster runs: members, weights, and all that is no matter of
//! wires.
//!
//! Each node is [handed](Engine::prepare) the next configuration at its own time and goes on with
//! the old one; its state frames carry the next one's hash ("ready"). When the master has heard so
//! from all members that are alive and stay, it opens its next cycle under the new configuration:
//! that frame, known by its hash, is the boundary. Who hears it and is ready changes before it
//! answers; the clocks come along, so that shares go on where they were. Who misses it changes on a
//! later frame of the master, out of step, and has its clocks set. Nothing is sent by two
//! configurations at once, except by nodes that are not ready and cannot hear those that are.
//!
//! A master that is not a member any more is left behind: the lowest that stays opens the first new
//! cycle. A change that some living member was not told of waits for it, for as long as it takes:
//! [`View::waits_for`](super::View::waits_for).

use evenkeel_core::Nanos;

use super::{Engine, Phase};
use crate::config::{ClusterConfig, ConfigError, Version};
use crate::frame::{FrameError, FrameKind};
use crate::matching::members;
use crate::types::{Event, Forwarder, NodeId};

impl Engine {
    /// The configuration to change to as soon as all members are ready to. The running one again:
    /// the change is called off. Allocates; what was prepared before is forgotten.
    ///
    /// # Errors
    /// It is not valid, this node is not a member of it, or it differs in what cannot change while
    /// a cluster runs: links, the number of classes, version, VLAN, ethertype and key. The running
    /// configuration and what was prepared stay.
    pub fn prepare(&mut self, config: &ClusterConfig, now: Nanos) -> Result<(), ConfigError> {
        let fixed = |config: &ClusterConfig| {
            let framing = config.framing;
            (framing.version, framing.vlan, framing.ethertype, framing.key)
        };
        let old = &self.config;
        let what = if (config.links, config.classes()) != (old.links, old.classes()) {
            "the links and classes"
        } else if fixed(config) != fixed(old) {
            "version, VLAN, ethertype and key of the frames"
        } else if config.framing.version == Version::V1 {
            "a configuration with frames of version 1"
        } else {
            let next = Self::new(config, self.id, self.mac, 1, self.last_now.max(now))?;
            self.ready = 0;
            self.next = (config != old).then(|| Box::new(next));
            if let Some(auth) = &mut self.auth {
                // Who is to come may show that it lives before it takes part.
                auth.know(&config.members);
            }
            return Ok(());
        };
        Err(ConfigError::Fixed(what))
    }

    /// Hash of the configuration that this node is ready to change to.
    pub(super) fn next_hash(&self) -> Option<u32> {
        self.next.as_ref().map(|next| next.hash)
    }

    /// A member said that it is ready for the configuration with this hash, or for none.
    pub(super) fn hear_ready(&mut self, member: usize, hash: Option<u32>) {
        let ready = hash.is_some() && hash == self.next_hash();
        self.ready = self.ready & !(1 << member) | u64::from(ready) << member;
    }

    /// Members of this configuration that stay in the next.
    fn stay(&self) -> u64 {
        let Some(next) = &self.next else { return 0 };
        let stays =
            |(index, id): (usize, &NodeId)| u64::from(next.config.index_of(*id).is_some()) << index;
        self.config.members.iter().enumerate().map(stays).fold(0, |all, one| all | one)
    }

    /// Living members that stay and are not ready, by index.
    pub(super) fn not_ready(&self) -> u64 {
        self.stay() & self.alive() & !self.ready & !(1 << self.me)
    }

    /// Whether all are ready and it is for this node to open the first cycle of the next
    /// configuration.
    pub(super) fn leads_change(&self) -> bool {
        if self.next.is_none() || self.not_ready() != 0 {
            return false;
        }
        let stay = self.stay();
        let lowest = || (stay & self.alive()).trailing_zeros() as usize == self.me;
        self.is_master() || self.master.is_some_and(|master| stay >> master & 1 == 0) && lowest()
    }

    /// Between two cycles: changes if it is for this node to begin.
    pub(super) fn change_if_ready<F: Forwarder>(&mut self, now: Nanos, forwarder: &mut F) {
        if self.leads_change() {
            self.change(now, forwarder);
            self.master = Some(self.me);
        }
    }

    /// A frame of the next configuration, refused by the running one. `true`: it was the master's,
    /// and this node has changed.
    pub(super) fn follow_change<F: Forwarder>(
        &mut self,
        now: Nanos,
        error: FrameError,
        frame: &[u8],
        forwarder: &mut F,
    ) -> bool {
        let FrameError::OtherConfiguration { theirs, .. } = error else { return false };
        if self.next_hash() != Some(theirs) {
            return false;
        }
        let Some(next) = &self.next else { return false };
        let Ok(parsed) = next.parser.parse(frame, self.auth.as_ref()) else { return false };
        let opens = parsed.header.master && parsed.header.kind == FrameKind::State;
        let from = parsed.header.from;
        let stamp = parsed.stamp;
        let fresh = self.check_life(now, from, stamp).is_ok();
        // A newcomer that is alone so far does not speak for the cluster.
        let outranks = self.master.is_none_or(|master| {
            let stays = self.stay() >> master & 1 == 1;
            let silent = now.saturating_sub(self.peers[master].heard_at) > self.cycle_length * 2;
            from <= self.config.members[master] || !stays || master != self.me && silent
        });
        let obeys = opens && fresh && outranks && from != self.id;
        if obeys {
            if self.phase != Phase::Idle {
                self.close(now, forwarder);
            }
            self.change(now, forwarder);
        }
        obeys
    }

    /// The next configuration is the running one from now on; between two cycles.
    fn change<F: Forwarder>(&mut self, now: Nanos, forwarder: &mut F) {
        let Some(mut next) = self.next.take() else { return };
        let old_of = |new: usize| self.config.index_of(next.config.members[new]);
        let places: Vec<Option<usize>> = (0..next.config.nodes()).map(old_of).collect();
        next.scheduler.clocks.carry(&self.scheduler.clocks, &places);
        if let Some(mut auth) = self.auth.take() {
            auth.keep(&next.config.members);
            next.auth = Some(auth);
        }
        (next.proof_at, next.said_at, next.mac) = (self.proof_at, self.said_at, self.mac);
        next.builder.set_mac(self.mac);
        for (new, old) in places.iter().enumerate() {
            let Some(old) = *old else { continue };
            let (new, old) = (&mut next.peers[new], &self.peers[old]);
            (new.mac, new.heard_at, new.silent) = (old.mac, old.heard_at, old.silent);
        }
        next.master =
            self.master.and_then(|old| places.iter().position(|place| *place == Some(old)));
        next.cycle = self.cycle;
        next.trigger = self.trigger;
        (next.window_begin, next.window_end) = (self.window_begin, self.window_end);
        next.next_open = self.next_open;
        next.lower_heard = now;
        next.members = members(self.members).fold(1 << next.me, |all, old| {
            places.iter().position(|place| *place == Some(old)).map_or(all, |new| all | 1 << new)
        });
        (next.in_step, next.waiting) = (self.in_step, self.waiting);
        (next.last_now, next.ahead) = (self.last_now, self.ahead);
        (next.counters, next.unused) = (self.counters, self.unused);
        next.counters.changes += 1;
        next.audit.take_over(&self.audit);
        *self = *next;
        forwarder.event(Event::Changed { hash: self.hash, cycle: self.cycle.unwrap_or(0) });
    }
}
