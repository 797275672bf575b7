//! Which forwarders a balancer may send to: those whose data path is heard.
//!
//! A forwarder's engine broadcasts at least every [`BEAT`], from the same loop that forwards: what
//! is silent does not forward, whatever its process, its lease or its neighbour entry say. The
//! balancer hears the exchange, and leaves out
//!
//! - who is silent for longer than `silence`, while another is heard;
//! - who has another configuration than most (of equal numbers: than the lowest) for longer than
//!   [`AGREEMENT`], which a change takes to reach all: it would send by a schedule of its own.
//!
//! Who is heard again is used again after twice `silence`, so that one that comes and goes does not
//! take flows with it each time. If nobody is heard, the exchange is what fails, not every
//! forwarder: all stay as they are.
//!
//! With a key nothing is believed before its sender has answered a challenge: see [`Auth`]. Then a
//! balancer takes part as a guest, with an id above all that members have.
//!
//! [`BEAT`]: crate::engine::BEAT

use evenkeel_core::Nanos;

use crate::config::{ClusterConfig, ExchangeKey};
use crate::frame::{Auth, Builder, FrameError, FrameKind, PROOF, Parser, proof_header};
use crate::mix::mix64;
use crate::types::NodeId;

/// Ids from here on are guests: they challenge and are answered, and are no members.
const GUESTS: u16 = 0x8000;
/// How long forwarders may differ in their configuration: a change, live or from etcd, does not
/// reach all of them at the same instant.
const AGREEMENT: Nanos = Nanos::SECOND;
/// How long after the first forwarder the others may be heard: they do not start at the same
/// instant.
const START: Nanos = Nanos::from_secs(2);
/// Challenges are sent no closer to each other.
const PAUSE: Nanos = Nanos::from_millis(5);

/// What is known of a forwarder's data path.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Condition {
    /// Nobody was heard yet.
    #[default]
    Unknown,
    /// It is heard.
    Heard,
    /// It is silent.
    Silent,
    /// Most others have another configuration.
    OtherConfiguration,
}

impl Condition {
    /// Whether it may be sent to.
    #[must_use]
    pub const fn is_usable(self) -> bool {
        matches!(self, Self::Unknown | Self::Heard)
    }

    /// In a word.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Heard => "heard",
            Self::Silent => "silent",
            Self::OtherConfiguration => "other-configuration",
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Peer {
    id: NodeId,
    heard: Option<Nanos>,
    configuration: u32,
    condition: Condition,
    /// Since when it would be used again.
    good_since: Option<Nanos>,
    /// Since when its configuration is another than that of most.
    differs_since: Option<Nanos>,
}

/// The conditions of all forwarders.
#[derive(Clone, Debug)]
pub struct Health {
    parser: Parser,
    builder: Builder,
    auth: Option<Auth>,
    me: NodeId,
    peers: Vec<Peer>,
    silence: Nanos,
    /// When it began to listen, or first heard somebody; `None` before the first look.
    started: Option<Nanos>,
    /// Somebody was heard.
    hears: bool,
    /// The last look.
    looked: Nanos,
    proof_at: Nanos,
    /// All are silent, and that was said.
    deaf: bool,
    /// A frame has come that may change a condition.
    news: bool,
    refused: u64,
}

/// What changed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Change {
    /// The condition of a forwarder.
    Of(NodeId, Condition),
    /// None is heard any more: all stay as they are.
    Deaf,
    /// One is heard again.
    NotDeaf,
}

impl Health {
    /// Of these forwarders, whose exchange frames carry the tag `vlan` (0: none) and are signed
    /// with `key`. `mac` is the address of the balancer's port, `epoch` a number that no other life
    /// of it has had.
    #[must_use]
    pub fn new(
        forwarders: &[NodeId],
        framing: (u16, Option<ExchangeKey>),
        silence: Nanos,
        (mac, epoch): ([u8; 6], u64),
        now: Nanos,
    ) -> Self {
        let mut config = ClusterConfig { members: forwarders.to_vec(), ..ClusterConfig::default() };
        config.members.sort_unstable();
        (config.framing.vlan, config.framing.key) = framing;
        let word = mac.iter().fold(0_u64, |word, byte| word << 8 | u64::from(*byte));
        let me = NodeId(GUESTS | mix64(word) as u16);
        let peer = |id: &NodeId| Peer {
            id: *id,
            heard: None,
            configuration: 0,
            condition: Condition::Unknown,
            good_since: None,
            differs_since: None,
        };
        Self {
            parser: Parser::new(&config),
            builder: Builder::new(&config, mac),
            auth: config.framing.key.map(|key| Auth::new(key.0, epoch, &config.members)),
            me,
            peers: config.members.iter().map(peer).collect(),
            silence,
            started: None,
            hears: false,
            looked: now,
            proof_at: now,
            deaf: false,
            news: false,
            refused: 0,
        }
    }

    /// Other forwarders; those that stay keep their condition.
    pub fn set_forwarders(&mut self, forwarders: &[NodeId], silence: Nanos) {
        self.silence = silence;
        self.peers.retain(|peer| forwarders.contains(&peer.id));
        for id in forwarders {
            if self.peers.iter().all(|peer| peer.id != *id) {
                self.peers.push(Peer {
                    id: *id,
                    heard: None,
                    configuration: 0,
                    condition: Condition::Unknown,
                    good_since: None,
                    differs_since: None,
                });
            }
        }
        self.peers.sort_unstable_by_key(|peer| peer.id);
        if let Some(auth) = &mut self.auth {
            let ids: Vec<_> = self.peers.iter().map(|peer| peer.id).collect();
            auth.keep(&ids);
        }
    }

    /// The port has another address.
    pub fn set_mac(&mut self, mac: [u8; 6]) {
        self.builder.set_mac(mac);
    }

    /// A frame of the exchange.
    pub fn on_frame(&mut self, now: Nanos, frame: &[u8]) {
        // Its own configuration is nobody's: a state frame is one of another configuration.
        let (from, configuration, stamp, proof) = match self.parser.parse(frame, self.auth.as_ref())
        {
            Ok(parsed) => {
                let proof = (parsed.header.kind == FrameKind::Proof).then_some(parsed.body);
                (parsed.header.from, parsed.configuration, parsed.stamp, proof)
            }
            Err(FrameError::OtherConfiguration { node, theirs, stamp }) => {
                (NodeId(node), theirs, stamp, None)
            }
            Err(_) => return self.refused += 1,
        };
        if from == self.me {
            return;
        }
        let Some(at) = self.peers.iter().position(|peer| peer.id == from) else { return };
        let heard = self.peers[at].heard;
        let silent = heard.is_none_or(|heard| now.saturating_sub(heard) > self.silence);
        if let (Some(auth), Some(stamp)) = (&mut self.auth, stamp) {
            let mut fresh = auth.check(from, stamp, silent);
            if let (Err(FrameError::Unproved(_)), Some(body)) = (fresh, proof)
                && auth.read_proof(self.me, from, stamp, body).is_ok_and(|proved| proved.is_some())
            {
                fresh = Ok(());
            }
            if fresh.is_err() {
                return self.refused += 1;
            }
            auth.accept(from, stamp);
        }
        let peer = &mut self.peers[at];
        let waits = peer.condition != Condition::Heard && peer.good_since.is_none();
        self.news |= self.deaf || waits || peer.configuration != configuration;
        (peer.heard, peer.configuration) = (Some(now), configuration);
    }

    /// When [`on_timer`](Self::on_timer) wants to be called.
    #[must_use]
    pub fn next_timer(&self) -> Nanos {
        let Some(started) = self.started.filter(|_| !self.news) else { return Nanos::ZERO };
        let due = |peer: &Peer| {
            let silent = match peer.heard {
                Some(heard) if peer.condition.is_usable() => heard + self.silence,
                None if self.hears && peer.condition.is_usable() => started + START,
                Some(_) | None => Nanos::MAX,
            };
            let good = peer.good_since.map_or(Nanos::MAX, |since| since + self.silence * 2);
            let differs = peer.differs_since.filter(|_| peer.condition.is_usable());
            let differs = differs.map_or(Nanos::MAX, |since| since + AGREEMENT);
            silent.min(good).min(differs)
        };
        // One tick later than due: then it is longer than `silence`.
        let silent = self.peers.iter().map(due).min().unwrap_or(Nanos::MAX);
        let challenge = self.auth.as_ref().is_some_and(Auth::has_proof);
        let silent = if self.deaf { Nanos::MAX } else { silent.saturating_add(Nanos(1)) };
        if challenge { silent.min(self.proof_at) } else { silent }
    }

    /// To be called in each round. What was not heard while this balancer itself did not run says
    /// nothing of a forwarder.
    pub fn runs(&mut self, now: Nanos) {
        let away = now.saturating_sub(self.looked);
        self.looked = now;
        // It sleeps until somebody may be silent, at most.
        if away <= Nanos(self.silence.0 * 5 / 4) {
            return;
        }
        self.started = self.started.map(|started| started + away);
        for heard in self.peers.iter_mut().filter_map(|peer| peer.heard.as_mut()) {
            *heard = (*heard + away).min(now);
        }
    }

    /// Looks at all forwarders; challenges those whose frames are not known to be fresh. The
    /// changes are handed to `changed`, frames to `send`.
    pub fn on_timer(
        &mut self,
        now: Nanos,
        mut send: impl FnMut(&[u8]),
        mut changed: impl FnMut(Change),
    ) {
        if let Some(auth) = self.auth.as_mut().filter(|auth| auth.has_proof())
            && now >= self.proof_at
        {
            self.proof_at = now + PAUSE;
            let mut body = [0; PROOF];
            let length = auth.write_proof(self.me, &mut body);
            self.builder.build(&proof_header(self.me), &body[..length], Some(auth), &mut send);
        }
        self.news = false;
        self.started.get_or_insert(now);
        let silence = self.silence;
        let alive =
            |peer: &Peer| peer.heard.is_some_and(|heard| now.saturating_sub(heard) <= silence);
        if !self.peers.iter().any(alive) {
            let ever = self.peers.iter().any(|peer| peer.heard.is_some());
            if ever && !std::mem::replace(&mut self.deaf, true) {
                changed(Change::Deaf);
            }
            return;
        }
        if !std::mem::replace(&mut self.hears, true) {
            self.started = Some(now);
        }
        if std::mem::take(&mut self.deaf) {
            // What was not heard meanwhile says nothing of the others.
            self.started = Some(now);
            for peer in self.peers.iter_mut().filter(|peer| !alive(peer)) {
                peer.heard = None;
            }
            changed(Change::NotDeaf);
        }
        let most = self.most(alive);
        let started = self.started.unwrap_or(now);
        let patience = now.saturating_sub(started) <= START;
        for peer in &mut self.peers {
            let differs = alive(peer) && peer.configuration != most;
            peer.differs_since = differs.then(|| peer.differs_since.unwrap_or(now));
            let agrees = peer.differs_since.is_none_or(|since| {
                peer.condition.is_usable() && now.saturating_sub(since) <= AGREEMENT
            });
            let condition = match (alive(peer), peer.heard) {
                (true, _) if agrees => Condition::Heard,
                (true, _) => Condition::OtherConfiguration,
                (false, None) if patience => peer.condition,
                (false, _) => Condition::Silent,
            };
            let good = condition == Condition::Heard;
            peer.good_since = good.then(|| peer.good_since.unwrap_or(now));
            let waits = good
                && !peer.condition.is_usable()
                && peer.good_since.is_some_and(|since| now.saturating_sub(since) <= silence * 2);
            if condition != peer.condition && !waits {
                peer.condition = condition;
                changed(Change::Of(peer.id, condition));
            }
            if peer.condition.is_usable() {
                peer.good_since = None;
            }
        }
    }

    /// The configuration of most of the living; of equally many, that of the lowest.
    fn most(&self, alive: impl Fn(&Peer) -> bool) -> u32 {
        let living = || self.peers.iter().filter(|peer| alive(peer));
        let count = |of: u32| living().filter(|peer| peer.configuration == of).count();
        let mut most = (0, 0);
        for peer in living() {
            let votes = count(peer.configuration);
            if votes > most.0 {
                most = (votes, peer.configuration);
            }
        }
        most.1
    }

    /// The condition of a forwarder.
    #[must_use]
    pub fn condition(&self, id: NodeId) -> Condition {
        self.peers
            .iter()
            .find(|peer| peer.id == id)
            .map_or_else(Condition::default, |peer| peer.condition)
    }

    /// Frames of the exchange that were not believed.
    #[must_use]
    pub const fn refused(&self) -> u64 {
        self.refused
    }
}
