//! Who is master, and which cycle a frame belongs to.

use evenkeel_core::Nanos;

use super::warn::warns;
use super::{BEAT, BEATS, Engine};
use crate::config::Version;
use crate::types::{Event, Forwarder};

impl Engine {
    /// The master opens its next cycle.
    pub(super) fn open_next<F: Forwarder>(&mut self, now: Nanos, forwarder: &mut F) {
        let next = self.cycle.map_or(1, |cycle| cycle.wrapping_add(1));
        self.open(now, next, forwarder);
    }

    /// When this node has waited long enough for a lower one (spec: T_dead); in long cycles for so
    /// many beats. Before its first cycle it does not know how long the others' are.
    pub(super) fn takeover_at(&self) -> Nanos {
        let beats = self.config.framing.version == Version::V2 && self.cycle.is_some();
        let most = if beats { BEAT * BEATS } else { Nanos::MAX };
        let silence = (self.cycle_length * 3).min(most.max(self.config.t_br * 4));
        self.lower_heard.saturating_add(silence + self.config.t_br * self.me as u64)
    }

    pub(super) fn take_over<F: Forwarder>(&mut self, now: Nanos, forwarder: &mut F) {
        self.master = Some(self.me);
        self.counters.takeovers += 1;
        forwarder.event(Event::BecameMaster);
        self.open_next(now, forwarder);
    }

    /// A member was heard.
    pub(super) fn hear<F: Forwarder>(&mut self, now: Nanos, member: usize, forwarder: &mut F) {
        let lost_after = self.config.lost_after;
        let peer = &mut self.peers[member];
        peer.heard_at = now;
        if std::mem::replace(&mut peer.silent, 0) >= lost_after {
            forwarder.event(Event::MemberBack(self.config.members[member]));
        }
        if member < self.me {
            self.lower_heard = now;
        }
    }

    /// The cycle of a state frame if it is to be used in it: the open one, or one to be opened now.
    /// Counts it otherwise.
    ///
    /// Only the master's word opens any cycle but the next one.
    pub(super) fn follow<F: Forwarder>(
        &mut self,
        now: Nanos,
        said: u64,
        member: usize,
        claims_master: bool,
        forwarder: &mut F,
    ) -> Option<u64> {
        let changed = if claims_master && self.master != Some(member) {
            if !self.yields_to(now, member) {
                self.unused.second_master += 1;
                let id = self.config.members[member];
                if warns(&mut self.warned, now, id.0.into()) {
                    forwarder.event(Event::SecondMaster(id));
                }
                return None;
            }
            self.master = Some(member);
            forwarder.event(Event::FollowsMaster(self.config.members[member]));
            true
        } else {
            false
        };
        let Some(last) = self.cycle else {
            if claims_master {
                return Some(said);
            }
            self.unused.late += 1;
            return None;
        };
        let steps = match self.config.framing.version {
            Version::V1 => i64::from((said as u8).wrapping_sub(last as u8) as i8),
            Version::V2 => said.wrapping_sub(last) as i64,
        };
        let cycle = last.wrapping_add_signed(steps);
        // A new master may be anywhere; one that is far behind has started anew.
        let jumps = claims_master && (changed && steps != 0 || !(-2..=0).contains(&steps));
        let open = steps == 0 && self.phase != super::Phase::Idle;
        if open || steps == 1 || jumps {
            return Some(cycle);
        }
        self.unused.late += 1;
        None
    }

    /// Whether to obey a node that says it is master.
    fn yields_to(&self, now: Nanos, member: usize) -> bool {
        let Some(master) = self.master else { return true };
        if member < master {
            return true;
        }
        let silent = now.saturating_sub(self.peers[master].heard_at);
        master != self.me && silent > self.cycle_length * 2
    }
}
