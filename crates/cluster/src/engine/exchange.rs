//! Phase 1: an exchange is opened, heard, and closed with the decision.

use evenkeel_core::Nanos;

use super::{Engine, Phase};
use crate::audit::Seen;
use crate::config::{TRAIN_PACKETS, Version};
use crate::frame::{FrameKind, Header, Parsed, get_record, put_record, record_bytes};
use crate::matching::members;
use crate::scheduler::Window;
use crate::types::{Event, Forwarder, Record};

impl Engine {
    /// Opens the exchange of `cycle`: says what waits here, and listens.
    pub(super) fn open<F: Forwarder>(&mut self, now: Nanos, cycle: u64, forwarder: &mut F) {
        if self.phase != Phase::Idle {
            self.close(now, forwarder);
        }
        let follows = self.cycle.is_some_and(|last| last.wrapping_add(1) == cycle);
        if !follows || !self.decided {
            // What was used meanwhile of the last announcements is not known.
            (0..self.config.nodes()).for_each(|node| self.scheduler.forget(node));
        }
        if !follows && self.cycle.is_some() {
            self.lose_step(forwarder);
        }
        let declares = std::mem::take(&mut self.declare) && self.is_master();
        if declares {
            self.scheduler.clocks.open();
            self.gain_step(forwarder);
        }
        self.cycle = Some(cycle);
        self.counters.cycles += 1;
        (self.trigger, self.said_at) = (now, now);
        self.heard = 1 << self.me;
        self.flagged = u64::from(!self.in_step) << self.me;
        self.clock_sent = false;
        self.decided = false;
        self.clock.clear();
        self.peers.iter_mut().for_each(|peer| peer.inbox.clear());
        if self.is_master() {
            self.members = self.alive();
        }
        let wait = if self.is_master() { self.config.exchange_time() } else { self.config.t_br };
        self.phase = Phase::Exchange { deadline: now + wait };
        if !self.config.is_pipelined() {
            forwarder.closes_window(now.saturating_sub(self.ahead));
        }
        self.say(cycle, forwarder);
        if declares {
            self.send_clock(cycle, true, forwarder);
        }
    }

    /// Broadcasts this node's state.
    fn say<F: Forwarder>(&mut self, cycle: u64, forwarder: &mut F) {
        let classes = self.config.classes();
        let burst = self.config.burst();
        let train = self.config.train();
        let depth = self.config.depth();
        let size = record_bytes(&self.config);
        for link in 0..self.config.links {
            for class in 0..classes {
                let most = self.scratch.len();
                let mut count = forwarder.heads(link, class, &mut self.scratch).min(most);
                if let Some(burst) = burst {
                    count = into_burst(&mut self.scratch[..count], burst);
                }
                if let Some(train) = train {
                    count = into_trains(&mut self.scratch[..count], train).min(depth);
                }
                let at = (link * classes + class) * depth;
                self.scratch[count..].fill(Record::default());
                for (n, record) in self.scratch[..depth].iter().enumerate() {
                    put_record(&mut self.body[(at + n) * size..][..size], *record);
                }
                self.scheduler.announce(self.me, link, class, &self.scratch[..count]);
                self.audit.announce(self.me, link, class, &self.scratch[..count]);
            }
        }
        let sums = self.is_master() && self.config.compares_in(cycle) && self.in_step;
        let header = Header {
            kind: FrameKind::State,
            from: self.id,
            cycle,
            master: self.is_master(),
            resync: !self.in_step,
            fragment: 0,
            fragments: 1,
            checksum: sums.then(|| self.scheduler.checksum()),
            ready: if sums { None } else { self.next_hash() },
            members: Some(self.members),
        };
        self.send(&header, self.config.queues() * depth * size, forwarder);
    }

    fn send<F: Forwarder>(&mut self, header: &Header, length: usize, forwarder: &mut F) {
        let sent = &mut self.counters.sent_frames;
        self.builder.build(header, &self.body[..length], self.auth.as_mut(), |frame| {
            *sent += 1;
            forwarder.broadcast(frame);
        });
    }

    /// Broadcasts this node's clocks as they were when the exchange was opened.
    fn send_clock<F: Forwarder>(&mut self, cycle: u64, force: bool, forwarder: &mut F) {
        self.clock_sent = true;
        self.counters.sent_clocks += 1;
        self.body[..2].copy_from_slice(&self.id.0.to_be_bytes());
        let length = 2 + self.scheduler.clocks.write(&mut self.body[2..]);
        let header = Header {
            kind: FrameKind::Clock,
            from: self.id,
            cycle,
            master: self.is_master(),
            resync: force,
            fragment: 0,
            fragments: 1,
            checksum: None,
            ready: None,
            members: Some(self.members),
        };
        self.send(&header, length, forwarder);
    }

    /// A state frame.
    pub(super) fn on_state<F: Forwarder>(
        &mut self,
        now: Nanos,
        parsed: &Parsed<'_>,
        forwarder: &mut F,
    ) {
        let Parsed { header, member, .. } = *parsed;
        self.hear(now, member, forwarder);
        let Some(cycle) = self.follow(now, header.cycle, member, header.master, forwarder) else {
            return;
        };
        // Before this node says anything in this cycle: then it can say that it is out of step.
        let opens = self.cycle != Some(cycle);
        if opens && self.phase != Phase::Idle {
            self.close(now, forwarder);
        }
        if header.master && !header.resync && self.in_step && opens {
            self.compare(header.checksum, forwarder);
        }
        if opens {
            self.open(now, cycle, forwarder);
        }
        if header.master && self.config.framing.version == Version::V2 {
            // Bits beyond the members are nobody.
            let all = u64::MAX >> (64 - self.config.nodes());
            self.members = header.members.unwrap_or(0) & all | 1 << member;
        }
        self.flagged |= u64::from(header.resync) << member;
        self.hear_ready(member, header.ready);
        let peer = &mut self.peers[member];
        if !peer.inbox.put(header.fragment, parsed.offset, parsed.body) {
            self.unused.repeated += 1;
            return;
        }
        self.counters.states += 1;
        if peer.inbox.parts == u32::from(header.fragments) {
            self.announced(member);
        }
        self.help(cycle, forwarder);
    }

    /// All of a member's state is there.
    fn announced(&mut self, member: usize) {
        self.heard |= 1 << member;
        let depth = self.config.depth();
        let size = record_bytes(&self.config);
        let body = &self.peers[member].inbox.body;
        for link in 0..self.config.links {
            for class in 0..self.config.classes() {
                let at = (link * self.config.classes() + class) * depth;
                for (n, record) in self.scratch[..depth].iter_mut().enumerate() {
                    *record = get_record(&body[(at + n) * size..][..size]);
                }
                self.scheduler.announce(member, link, class, &self.scratch[..depth]);
                self.audit.announce(member, link, class, &self.scratch[..depth]);
            }
        }
    }

    /// Sets the clocks of those out of step, if that is for this node to do: the lowest in step
    /// does it.
    fn help<F: Forwarder>(&mut self, cycle: u64, forwarder: &mut F) {
        let lower = (1_u64 << self.me) - 1;
        let able = self.alive() & lower & !self.flagged;
        let asked = self.flagged & !(1 << self.me) != 0;
        if asked
            && able == 0
            && self.flagged >> self.me & 1 == 0
            && self.in_step
            && !self.clock_sent
        {
            self.send_clock(cycle, false, forwarder);
        }
    }

    /// A clock frame: used by a node out of step, and by all if a master declares its clocks to be
    /// everybody's.
    pub(super) fn on_clock<F: Forwarder>(&mut self, parsed: &Parsed<'_>, forwarder: &mut F) {
        let Parsed { header, member, .. } = *parsed;
        let current = self.cycle.filter(|_| self.phase != Phase::Idle);
        let now_open = match self.config.framing.version {
            Version::V1 => current.is_some_and(|cycle| cycle as u8 == header.cycle as u8),
            Version::V2 => current == Some(header.cycle),
        };
        let forced = header.resync && header.master && self.master == Some(member);
        if !(now_open && (forced || !self.in_step)) {
            self.unused.unwanted_clocks += 1;
            return;
        }
        if member != self.clock_from {
            self.clock.clear();
            self.clock_from = member;
        }
        if !self.clock.put(header.fragment, parsed.offset, parsed.body) {
            self.unused.repeated += 1;
            return;
        }
        if self.clock.parts < u32::from(header.fragments) {
            self.counters.clocks += 1;
            return;
        }
        if self.scheduler.clocks.read(&self.clock.body[2..self.clock.length]) {
            self.counters.clocks += 1;
            self.gain_step(forwarder);
        } else {
            self.unused.malformed += 1;
            self.clock.clear();
        }
    }

    fn compare<F: Forwarder>(&mut self, theirs: Option<u32>, forwarder: &mut F) {
        // 0 is "none" in version 2, which has a place for it in every frame.
        if theirs.is_some_and(|theirs| theirs != 0 && theirs != self.scheduler.checksum()) {
            self.lose_step(forwarder);
        }
    }

    pub(super) fn lose_step<F: Forwarder>(&mut self, forwarder: &mut F) {
        if std::mem::replace(&mut self.in_step, false) {
            self.counters.out_of_step += 1;
            forwarder.event(Event::LostStep);
        }
    }

    pub(super) fn gain_step<F: Forwarder>(&mut self, forwarder: &mut F) {
        self.waiting = 0;
        if !std::mem::replace(&mut self.in_step, true) {
            forwarder.event(Event::InStep);
        }
    }

    /// Closes the exchange before its time if all were heard and nobody is out of step.
    pub(super) fn close_early<F: Forwarder>(&mut self, now: Nanos, forwarder: &mut F) {
        let open = self.phase != Phase::Idle;
        let heard_all = self.present() & !self.heard == 0;
        if open && self.config.early_close && heard_all && self.in_step && self.flagged == 0 {
            self.close(now, forwarder);
        }
    }

    /// Ends the exchange and decides.
    pub(super) fn close<F: Forwarder>(&mut self, now: Nanos, forwarder: &mut F) {
        self.phase = Phase::Idle;
        self.count_silence(forwarder);
        let cycle = self.cycle.unwrap_or(0);
        let present = self.present();
        self.counters.missing += u64::from((present & !self.heard).count_ones());
        let mut length = self.window_end.saturating_sub(self.window_begin);
        let begin = match self.config.is_pipelined() {
            true => now.max(self.trigger + self.config.lead()).max(self.window_end),
            false => now.max(self.window_end),
        };
        if self.in_step {
            self.counters.refunds += u64::from(self.flagged.count_ones());
            self.scheduler.clocks.refund(self.flagged);
            let Window { rounds, length: takes, exact, .. } = self.scheduler.decide(cycle, present);
            let (heard, whole) = (self.heard, exact && self.flagged == 0);
            let (forgot, grants) = (self.scheduler.forgot(), self.scheduler.granted());
            self.audit.window(&Seen { cycle, present, heard, whole, forgot, grants });
            if exact {
                length = takes;
                self.counters.decided += 1;
                self.counters.rounds += u64::from(rounds);
                for granted in grants.iter().filter(|granted| granted.node == self.me) {
                    let mut grant = granted.grant;
                    self.counters.grants += 1;
                    self.counters.granted_bytes += u64::from(grant.bytes);
                    grant.at = (grant.at + begin).saturating_sub(self.ahead);
                    forwarder.grant(grant);
                }
                self.decided = true;
            } else {
                self.lose_step(forwarder);
            }
        }
        if !self.decided {
            self.counters.abstained += 1;
            self.waiting = self.waiting.saturating_add(1);
            let nobody_else =
                members(self.alive() & !(1 << self.me)).all(|node| self.flagged >> node & 1 == 1);
            self.declare =
                self.is_master() && (nobody_else && self.waiting > 1 || self.waiting > 3);
        }
        self.window_begin = begin;
        self.window_end = begin + length;
        let due = match self.config.is_pipelined() {
            true => now.max(self.window_end.saturating_sub(self.config.lead())),
            false => self.window_end,
        };
        self.next_open = due.max(self.trigger + self.config.min_cycle);
        // As planned, not as it went: a clock that jumped must not make this node patient for ever.
        let planned = match self.config.is_pipelined() {
            true => length.max(self.config.exchange_time()),
            false => self.config.exchange_time() + length,
        };
        self.cycle_length = planned.max(self.config.min_cycle).max(self.config.t_br);
    }

    /// Who was not heard in the exchange that ends.
    fn count_silence<F: Forwarder>(&mut self, forwarder: &mut F) {
        let lost_after = self.config.lost_after;
        for (index, peer) in self.peers.iter_mut().enumerate() {
            if index == self.me || self.heard >> index & 1 == 1 || peer.silent >= lost_after {
                continue;
            }
            peer.silent += 1;
            if peer.silent == lost_after {
                forwarder.event(Event::MemberLost(self.config.members[index]));
            }
        }
    }
}

/// Adds up the records of packets to those of trains; how many trains there are.
fn into_trains(records: &mut [Record], bytes: u32) -> usize {
    let mut trains = 0_usize;
    for n in 0..records.len() {
        let next = records[n];
        let last = trains.checked_sub(1).map(|last: usize| &mut records[last]);
        let room = |train: &&mut Record| {
            u32::from(train.length) + u32::from(next.length) <= bytes
                && usize::from(train.packets) < TRAIN_PACKETS
        };
        if let Some(train) = last.filter(room) {
            // At most `bytes`, which is far below what 16 bits hold.
            train.length += next.length;
            train.packets += 1;
        } else {
            records[trains] = Record { packets: 1, ..next };
            trains += 1;
        }
    }
    trains
}

/// Adds up the records of a burst in the first one; how many records are left: 0 or 1.
fn into_burst(records: &mut [Record], burst: u32) -> usize {
    let mut sum = 0;
    for record in records.iter() {
        sum += u32::from(record.length);
        if sum >= burst {
            break;
        }
    }
    match records.first_mut() {
        Some(first) => {
            // At most 800 * 64 bytes and one packet: see `ClusterConfig::validate`.
            first.length = sum.min(u32::from(u16::MAX)) as u16;
            1
        }
        None => 0,
    }
}
