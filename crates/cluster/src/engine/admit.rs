//! Who sent a frame, really, and not again: what is refused, and what a person hears of it.

use evenkeel_core::Nanos;

use super::warn::warns;
use super::{BEAT, Engine};
use crate::config::Version;
use crate::frame::{FrameError, Parsed, Stamp, proof_header};
use crate::types::{Event, Forwarder, NodeId};

impl Engine {
    /// Whether a frame is of the present life of its sender and was not used yet. Without a key all
    /// are.
    pub(super) fn check_life(
        &mut self,
        now: Nanos,
        id: NodeId,
        stamp: Option<Stamp>,
    ) -> Result<(), FrameError> {
        // Who was heard lately has no other life.
        let heard = self.config.index_of(id).map(|member| self.peers[member].heard_at);
        let silent = heard.is_none_or(|heard| now.saturating_sub(heard) > self.cycle_length * 2);
        match (&mut self.auth, stamp) {
            (Some(auth), Some(stamp)) => auth.check(id, stamp, silent),
            _ => Ok(()),
        }
    }

    /// Who sent it, really, and not again.
    pub(super) fn admit<F: Forwarder>(
        &mut self,
        now: Nanos,
        parsed: &Parsed<'_>,
        forwarder: &mut F,
    ) -> Result<(), FrameError> {
        let Parsed { member, source, stamp, .. } = *parsed;
        if member == self.me {
            let own = source == self.mac;
            return Err(if own { FrameError::Echo } else { FrameError::DuplicateId(self.id.0) });
        }
        let id = self.config.members[member];
        // The same life at another address: its port was replaced.
        let same_life = match (&self.auth, stamp) {
            (Some(auth), Some(stamp)) => auth.is_known(id, stamp),
            _ => false,
        };
        let recent = now.saturating_sub(self.peers[member].heard_at) < self.cycle_length * 3;
        if self.peers[member].mac.is_some_and(|mac| mac != source) && recent && !same_life {
            return Err(FrameError::DuplicateId(id.0));
        }
        let life = self.check_life(now, id, stamp);
        if life.is_err() && self.auth.as_mut().is_some_and(|auth| auth.finds_recorded(id)) {
            forwarder.event(Event::Recorded(id));
        }
        life?;
        if let (Some(auth), Some(stamp)) = (&mut self.auth, stamp) {
            auth.accept(id, stamp);
        }
        self.peers[member].mac = Some(source);
        Ok(())
    }

    /// A frame that is not used.
    pub(super) fn refuse<F: Forwarder>(
        &mut self,
        now: Nanos,
        error: FrameError,
        forwarder: &mut F,
    ) {
        let FrameError::OtherConfiguration { node, theirs, stamp } = error else {
            return self.unused.refuse(error);
        };
        // A recorded frame says nothing of the node's configuration now.
        if let Err(error) = self.check_life(now, NodeId(node), stamp) {
            return self.unused.refuse(error);
        }
        self.unused.refuse(error);
        let ours = self.hash;
        let member = self.config.index_of(NodeId(node));
        if self.next_hash() != Some(theirs)
            && let Some(peer) = member.map(|member| &mut self.peers[member])
            && warns(&mut peer.warned, now, theirs)
        {
            forwarder.event(Event::OtherConfiguration { node: NodeId(node), theirs, ours });
        }
    }

    /// A genuine proof: a challenge to be answered, answers to this node's.
    pub(super) fn on_proof<F: Forwarder>(
        &mut self,
        now: Nanos,
        parsed: &Parsed<'_>,
        forwarder: &mut F,
    ) {
        let from = parsed.header.from;
        if from == self.id {
            let own = parsed.source == self.mac;
            let error = if own { FrameError::Echo } else { FrameError::DuplicateId(from.0) };
            return self.unused.refuse(error);
        }
        // Of a life that is not known yet it is read: it may be what makes that life known.
        let life = self.check_life(now, from, parsed.stamp);
        if life.is_ok() && parsed.configuration == self.hash {
            self.hear_beat(now, from);
        }
        let (Some(auth), Some(stamp)) = (&mut self.auth, parsed.stamp) else {
            return self.counters.proofs += 1;
        };
        let known = auth.is_known(from, stamp);
        match life {
            Err(error) if known => return self.unused.refuse(error),
            Ok(()) => auth.accept(from, stamp),
            Err(_) => {}
        }
        let read = auth.read_proof(self.id, from, stamp, parsed.body);
        match read {
            Ok(proved) => {
                self.counters.proofs += 1;
                let Some(proved) = proved else { return };
                if proved.behind {
                    forwarder.event(Event::ClockBehind(proved.node));
                } else if proved.reported {
                    forwarder.event(Event::Proved(proved.node));
                }
            }
            Err(error) => self.unused.refuse(error),
        }
    }

    /// A member lives that may not take part in the cycles yet.
    fn hear_beat(&mut self, now: Nanos, from: NodeId) {
        let Some(member) = self.config.index_of(from).filter(|member| *member != self.me) else {
            return;
        };
        self.peers[member].heard_at = now;
        if member < self.me {
            self.lower_heard = now;
        }
    }

    /// When challenges and answers are due: no more of them than one frame in `t_br`. And when
    /// nothing was sent for so long that the others might take this node for dead; not in version
    /// 1, which is as published.
    pub(super) fn proof_due(&self) -> Nanos {
        let has = self.auth.as_ref().is_some_and(crate::frame::Auth::has_proof);
        if has {
            self.proof_at
        } else if self.config.framing.version == Version::V2 {
            self.said_at + BEAT
        } else {
            Nanos::MAX
        }
    }

    /// Sends them if they are.
    pub(super) fn prove<F: Forwarder>(&mut self, now: Nanos, forwarder: &mut F) {
        if now < self.proof_due() {
            return;
        }
        self.proof_at = now + self.config.t_br;
        self.said_at = now;
        let length = match &mut self.auth {
            Some(auth) => auth.write_proof(self.id, &mut self.proof),
            None => 0,
        };
        let (sent, body) = (&mut self.counters.sent_frames, &self.proof[..length]);
        self.builder.build(&proof_header(self.id), body, self.auth.as_mut(), |frame| {
            *sent += 1;
            forwarder.broadcast(frame);
        });
    }

    /// The port of the exchange has another address.
    pub fn set_mac(&mut self, mac: [u8; 6]) {
        self.mac = mac;
        self.builder.set_mac(mac);
        if let Some(next) = &mut self.next {
            next.set_mac(mac);
        }
    }
}
