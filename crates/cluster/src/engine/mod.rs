//! The cycle of one node: frames and timers in; broadcasts, grants and the next timer out.
//!
//! Source: the paper's section IV; spec sections 4 and 7.3. A cycle has an exchange (this module
//! and `exchange`), a decision ([`crate::scheduler`]) and a window in which what was granted is
//! sent. Two things may be going on at once: with P-DS the exchange of cycle c + 1 runs during the
//! window of cycle c.
//!
//! ```text
//!            master's trigger        T_br                                 trigger of c + 1
//! S, M, L:   |—— exchange c ————————|—— window c ———————————————————————|—— exchange c + 1 …
//! P:         |—— exchange c ——|     |—— window c ———————————————————————|—— window c + 1 ——
//!                                                  |—— exchange c + 1 ——|
//! ```
//!
//! **Out of step.** A node that misses what it needs cannot know what the others decide. It sends
//! nothing in that cycle (abstains), and its next state frame carries the resync flag, which says
//! two things: what was charged to me in the last cycle was not sent, take it back; and set my
//! clocks. The lowest member in step answers at once with a clock frame, so that one lost frame
//! costs one node one cycle. Clocks that differ unnoticed are found by the checksum that the master
//! sends now and then. If nobody is in step, the master declares its own clocks to be everybody's.
//!
//! **Master.** The lowest member. A node that has heard no lower one for three cycles and its index
//! times T_br opens cycles itself; it steps back when it hears a lower master. Cycle numbers are
//! the master's: on a new master's word a node jumps to its number, out of step.
//!
//! **Time.** If the caller's clock goes backwards, engine time stands still instead; if it jumps
//! ahead, timers are due early: a slave may then open a cycle, and steps back when it hears the
//! master.
//!
//! Not implemented: a cluster without any frame loss detection (the checksum cannot be switched
//! off), more than 64 members.

mod admit;
mod change;
mod counters;
mod exchange;
mod role;
mod warn;

pub use counters::{Counters, Unused};

use evenkeel_core::Nanos;

use crate::audit::{Audit, Verdict};
use crate::config::{ClusterConfig, ConfigError, LAZY_PACKET, TRAIN_PACKETS, Variant, Version};
use crate::frame::{
    Auth, Builder, FrameKind, PROOF, Parser, clock_bytes, most_refunds, state_bytes,
};
use crate::scheduler::Scheduler;
use crate::types::{Forwarder, NodeId, Record};

/// A node says something at least so often: then it lives, and its data path too.
pub const BEAT: Nanos = Nanos::from_millis(10);
/// Of a node that took part and says nothing for so many beats, nothing more is awaited.
pub(crate) const BEATS: u64 = 4;

/// Longest packet that a first guess at the length of a cycle reckons with.
const LONG_PACKET: u64 = 1518;

/// What an engine is doing.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct View {
    /// The master that this node obeys; `None` before any was heard.
    pub master: Option<NodeId>,
    /// Whether that is itself.
    pub is_master: bool,
    /// The cycle whose exchange was last opened; `None` before the first.
    pub cycle: Option<u64>,
    /// Whether it has the cluster's clocks.
    pub in_step: bool,
    /// Members that take part, by index.
    pub present: u64,
    /// Begin of the last window decided (the caller's clock).
    pub window_begin: Nanos,
    /// Its length.
    pub window_length: Nanos,
    /// Checksum of the clocks after that window.
    pub checksum: u32,
    /// Hash of the running configuration.
    pub configuration: u32,
    /// Hash of the one that it is ready to change to.
    pub next_configuration: Option<u32>,
    /// Living members that are not ready for it, by index.
    pub waits_for: u64,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Phase {
    /// Between exchanges.
    Idle,
    /// Until the deadline, or until all were heard.
    Exchange { deadline: Nanos },
}

/// Parts of one body that have come.
#[derive(Clone, Debug)]
struct Inbox {
    body: Vec<u8>,
    got: Vec<u64>,
    parts: u32,
    length: usize,
}

impl Inbox {
    fn new(body: usize, fragments: u16) -> Self {
        Self {
            body: vec![0; body],
            got: vec![0; usize::from(fragments).div_ceil(64)],
            parts: 0,
            length: 0,
        }
    }

    fn clear(&mut self) {
        self.got.fill(0);
        self.parts = 0;
        self.length = 0;
    }

    /// Takes a part in; `false` if it was there already or does not fit.
    fn put(&mut self, fragment: u16, offset: usize, part: &[u8]) -> bool {
        let (word, bit) = (usize::from(fragment) / 64, fragment % 64);
        let Some(got) = self.got.get_mut(word) else { return false };
        let Some(place) = self.body.get_mut(offset..offset + part.len()) else { return false };
        if *got >> bit & 1 == 1 {
            return false;
        }
        *got |= 1 << bit;
        place.copy_from_slice(part);
        self.parts += 1;
        self.length = self.length.max(offset + part.len());
        true
    }
}

/// What is known of another member.
#[derive(Clone, Debug)]
struct Peer {
    inbox: Inbox,
    mac: Option<[u8; 6]>,
    heard_at: Nanos,
    /// Cycles since it was heard, up to `lost_after`.
    silent: u16,
    /// Of its configuration.
    warned: warn::Warned,
}

/// One node of a cluster. Allocates when made, never later.
#[derive(Clone, Debug)]
pub struct Engine {
    config: ClusterConfig,
    /// The configuration's.
    hash: u32,
    me: usize,
    id: NodeId,
    mac: [u8; 6],
    parser: Parser,
    builder: Builder,
    auth: Option<Auth>,
    scheduler: Scheduler,
    audit: Audit,
    scratch: Vec<Record>,
    body: Vec<u8>,
    proof: [u8; PROOF],
    peers: Vec<Peer>,
    /// The clock body that is coming in, and whose it is.
    clock: Inbox,
    clock_from: usize,
    phase: Phase,
    cycle: Option<u64>,
    /// When the exchange of `cycle` was opened.
    trigger: Nanos,
    next_open: Nanos,
    window_begin: Nanos,
    window_end: Nanos,
    cycle_length: Nanos,
    master: Option<usize>,
    lower_heard: Nanos,
    /// No proof is sent before.
    proof_at: Nanos,
    /// When this node sent its last state or proof.
    said_at: Nanos,
    /// Of a second master.
    warned: warn::Warned,
    /// Heard completely in this cycle; wants its clocks set in this cycle.
    heard: u64,
    flagged: u64,
    /// Who takes part in this cycle by the master's word (version 2).
    members: u64,
    in_step: bool,
    decided: bool,
    clock_sent: bool,
    /// Cycles since this node is out of step.
    waiting: u16,
    declare: bool,
    last_now: Nanos,
    /// For how long it was not called, until somebody asks.
    away: Option<Nanos>,
    /// Engine time minus the caller's.
    ahead: Nanos,
    counters: Counters,
    unused: Unused,
    /// This node under the configuration that it is ready to change to.
    next: Option<Box<Engine>>,
    /// Members that are ready for that too.
    ready: u64,
}

impl Engine {
    /// The node `me`, whose port has the address `mac`, starting at `now`. `epoch` is a
    /// number that no other life of this node has had (see [`Auth::new`]); without a key it does
    /// not matter.
    ///
    /// # Errors
    /// The configuration is not valid, or `me` is not a member.
    pub fn new(
        config: &ClusterConfig,
        me: NodeId,
        mac: [u8; 6],
        epoch: u64,
        now: Nanos,
    ) -> Result<Self, ConfigError> {
        let scheduler = Scheduler::new(config)?;
        let index = config.index_of(me).ok_or(ConfigError::NotAMember(me.0))?;
        let builder = Builder::new(config, mac);
        let clock_body = clock_bytes(config, most_refunds(config));
        let state_body = state_bytes(config);
        let peer = Peer {
            inbox: Inbox::new(state_body, builder.fragments(state_body)),
            mac: None,
            heard_at: now,
            silent: config.lost_after,
            warned: None,
        };
        Ok(Self {
            me: index,
            id: me,
            mac,
            parser: Parser::new(config),
            auth: config.framing.key.map(|key| Auth::new(key.0, epoch, &config.members)),
            proof: [0; PROOF],
            scheduler,
            audit: Audit::new(config, index),
            scratch: vec![Record::default(); scratch(config)],
            body: vec![0; state_body.max(clock_body)],
            peers: vec![peer; config.nodes()],
            clock: Inbox::new(clock_body, builder.fragments(clock_body)),
            clock_from: index,
            builder,
            phase: Phase::Idle,
            cycle: None,
            trigger: now,
            next_open: now,
            window_begin: now,
            window_end: now,
            cycle_length: config
                .exchange_time()
                .saturating_add(longest_window(config))
                .min(Nanos::SECOND)
                .max(config.min_cycle),
            master: None,
            lower_heard: now,
            proof_at: now,
            said_at: now,
            warned: None,
            heard: 0,
            flagged: 0,
            members: 1 << index,
            in_step: false,
            decided: false,
            clock_sent: false,
            waiting: 0,
            declare: false,
            last_now: now,
            away: None,
            ahead: Nanos::ZERO,
            counters: Counters::default(),
            unused: Unused::default(),
            next: None,
            ready: 0,
            hash: config.hash(),
            config: config.clone(),
        })
    }

    /// A broadcast came in: a whole Ethernet frame, with its VLAN tag, without check sequence.
    pub fn on_frame<F: Forwarder>(&mut self, now: Nanos, frame: &[u8], forwarder: &mut F) {
        let now = self.engine_time(now);
        self.counters.frames += 1;
        self.on_frame_now(now, frame, forwarder);
    }

    fn on_frame_now<F: Forwarder>(&mut self, now: Nanos, frame: &[u8], forwarder: &mut F) {
        let parsed = match self.parser.parse(frame, self.auth.as_ref()) {
            Ok(parsed) => parsed,
            Err(error) => {
                if self.follow_change(now, error, frame, forwarder) {
                    self.on_frame_now(now, frame, forwarder);
                } else {
                    self.refuse(now, error, forwarder);
                    self.prove(now, forwarder);
                }
                return;
            }
        };
        if parsed.header.kind == FrameKind::Proof {
            self.on_proof(now, &parsed, forwarder);
            return self.prove(now, forwarder);
        }
        if let Err(error) = self.admit(now, &parsed, forwarder) {
            self.refuse(now, error, forwarder);
            return self.prove(now, forwarder);
        }
        match parsed.header.kind {
            FrameKind::State => self.on_state(now, &parsed, forwarder),
            FrameKind::Clock => self.on_clock(&parsed, forwarder),
            // Dealt with above.
            FrameKind::Proof => {}
        }
        self.close_early(now, forwarder);
    }

    /// For how long this node stood still, if that was so long that the others have taken it for
    /// dead. Says it once.
    pub fn take_away(&mut self) -> Option<Nanos> {
        self.away.take()
    }

    /// Time passed: to be called at [`next_timer`](Self::next_timer). Calls at other times do no
    /// harm.
    pub fn on_timer<F: Forwarder>(&mut self, now: Nanos, forwarder: &mut F) {
        let now = self.engine_time(now);
        self.prove(now, forwarder);
        if let Phase::Exchange { deadline } = self.phase
            && now >= deadline
        {
            self.close(now, forwarder);
        }
        // A change may make this node the master. A master that is left behind does not wait: this
        // must come before its next cycle.
        if self.phase == Phase::Idle && (!self.is_master() || now >= self.next_open) {
            self.change_if_ready(now, forwarder);
        }
        if self.phase == Phase::Idle && self.is_master() && now >= self.next_open {
            self.open_next(now, forwarder);
        } else if !self.is_master() && now >= self.takeover_at() {
            self.take_over(now, forwarder);
        }
    }

    /// When [`on_timer`](Self::on_timer) wants to be called, by the caller's clock. May be in the
    /// past.
    #[must_use]
    pub fn next_timer(&self) -> Nanos {
        let timer = match self.phase {
            Phase::Exchange { deadline } if self.is_master() => deadline,
            Phase::Exchange { deadline } => deadline.min(self.takeover_at()),
            Phase::Idle if self.is_master() => self.next_open,
            Phase::Idle => self.takeover_at(),
        };
        timer.min(self.proof_due()).saturating_sub(self.ahead)
    }

    /// What happened.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Frames handed in that were not used.
    #[must_use]
    pub fn unused(&self) -> &Unused {
        &self.unused
    }

    /// Whether the windows keep the shares that the cluster was told.
    #[must_use]
    pub fn verdict(&self) -> &Verdict {
        self.audit.verdict()
    }

    /// What goes on.
    #[must_use]
    pub fn view(&self) -> View {
        View {
            master: self.master.map(|index| self.config.members[index]),
            is_master: self.is_master(),
            cycle: self.cycle,
            in_step: self.in_step,
            present: self.present(),
            window_begin: self.window_begin.saturating_sub(self.ahead),
            window_length: self.window_end.saturating_sub(self.window_begin),
            checksum: self.scheduler.checksum(),
            configuration: self.hash,
            next_configuration: self.next_hash(),
            waits_for: self.not_ready(),
        }
    }

    /// The configuration.
    #[must_use]
    pub fn config(&self) -> &ClusterConfig {
        &self.config
    }

    fn is_master(&self) -> bool {
        self.master == Some(self.me)
    }

    fn engine_time(&mut self, now: Nanos) -> Nanos {
        let time = now.saturating_add(self.ahead);
        if time < self.last_now {
            self.counters.clock_backwards += 1;
            self.ahead = self.last_now.saturating_sub(now);
            return self.last_now;
        }
        // It is called at least each beat. Who was away for long has old frames before it, whose
        // cycles are over: it decides nothing before its clocks are set.
        let away = time.saturating_sub(self.last_now);
        let bound = (BEAT * BEATS).max(self.config.t_br * 4);
        if away > bound && self.config.framing.version == Version::V2 && self.cycle.is_some() {
            self.away = Some(away);
            // What was granted to it was not sent: the others take back what they charged it.
            self.counters.out_of_step += u64::from(std::mem::replace(&mut self.in_step, false));
        }
        self.last_now = time;
        time
    }

    /// Members that take part in this cycle.
    fn present(&self) -> u64 {
        match self.config.framing.version {
            Version::V2 => self.members,
            Version::V1 => self.alive(),
        }
    }

    /// Members that were heard lately, and this node.
    fn alive(&self) -> u64 {
        let heard = |(index, peer): (usize, &Peer)| {
            u64::from(index == self.me || peer.silent < self.config.lost_after) << index
        };
        self.peers.iter().enumerate().map(heard).fold(0, |all, one| all | one)
    }
}

/// As long as a window can be, for a first guess at the length of a cycle.
fn longest_window(config: &ClusterConfig) -> Nanos {
    let timing = &config.timing;
    let wire = config.slowest().time_for(evenkeel_core::Bytes(LONG_PACKET));
    let longest = wire.max(timing.per_packet * config.links_at_once() as u64);
    let round = longest.saturating_add(timing.decision).saturating_add(timing.guard);
    let bytes = config.burst().or(config.train());
    let packets = bytes.map_or(1, |bytes| u64::from(bytes).div_ceil(LAZY_PACKET.into()));
    Nanos(round.0.saturating_mul(u64::from(config.rounds())).saturating_mul(packets))
}

/// Heads that are looked at of one queue.
fn scratch(config: &ClusterConfig) -> usize {
    match config.variant {
        Variant::Lazy => config.l.into(),
        Variant::Single | Variant::Multiple | Variant::Pipelined => {
            config.depth() * if config.train().is_some() { TRAIN_PACKETS } else { 1 }
        }
    }
}
