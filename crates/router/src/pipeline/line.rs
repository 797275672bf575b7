//! Round trips over the line of a port: links whose rate follows them (`[link.control]` with
//! `kind = "latency"`), and subscribers that are told how far away they are.
//!
//! ```text
//!  leaves by the line's port ─▶ stamp noted ╮                    ╭▶ Follow of the link that sends there
//!                                           ├▶ round trip ended ─┤
//!  arrives by it ──────────────▶ stamp back ╯                    ├▶ Follow of links that send on what
//!                                                                │  comes from there
//!                                                                ╰▶ the subscriber behind the link
//! ```
//!
//! Whose links follow nothing and have no tree pays a comparison for each vector of packets, and
//! one for each that leaves. A stamp is looked for in frames of ports whose line is looked at only;
//! for subscribers in those of a sample of flows, another one each second.
//!
//! Of several workers the first one has such a link, notes what leaves and turns the rates; the
//! others tell it what comes back to them, with the packets that they hand on.

use std::mem::Discriminant;

use evenkeel_config::{LatencyControl, LinkConfig, LinkControl};
use evenkeel_core::control::follow::{Did, Follow, Step, Way, Why};
use evenkeel_core::link::LinkConfig as Core;
use evenkeel_core::measure::round_trips::{RoundTrips, Stamp};
use evenkeel_core::settings::quantity::rate_text;
use evenkeel_core::{BitRate, Bytes, Class, FlowKey, Nanos};
use evenkeel_net::hash::FlowHasher;
use evenkeel_net::stamps::Stamps;

use super::Pipeline;
use super::packet::{PacketRecord, UnroutedPacket};
use super::port::PortSlot;
use crate::handing::Answer;
use crate::snapshot::{FollowSnapshot, FollowStep};

/// Steps that go the same way are reported together, at the latest after this.
const TOGETHER: Nanos = Nanos::from_secs(10);
/// Reports that wait; more are left out.
const NEWS: usize = 64;
/// Packets that are looked at in a second, where all that follows is what subscribers are told.
const LOOKS: u64 = 16_384;
/// Time of a [`Portion`]: a power of two of nanoseconds.
const PORTION: u32 = 24;

/// What passes the line of a port.
pub(super) struct Line {
    trips: RoundTrips,
    hasher: FlowHasher,
    /// What left by it, bytes on the wire.
    bytes: u64,
    /// Whose links follow it.
    followers: Vec<usize>,
    sample: Sample,
    portion: Portion,
}

/// Which flows are looked at, where not all need be.
#[derive(Default)]
struct Sample {
    second: u64,
    /// Packets that left in it.
    packets: u64,
    /// Of flows one in so many and one is looked at.
    others: u64,
}

impl Sample {
    /// Whether a packet of a flow that leaves at `at` is looked at.
    fn has(&mut self, at: Nanos, flow_hash: u64) -> bool {
        let second = at.0 / Nanos::SECOND.0;
        if second != self.second {
            let parts = (self.packets / LOOKS + 1).next_power_of_two();
            *self = Self { second, packets: 0, others: parts - 1 };
        }
        self.packets += 1;
        flow_hash.wrapping_add(second) & self.others == 0
    }
}

/// What another worker tells the first one of, where all that follows is what subscribers are
/// told: some packets of each 17 ms, so that answers to what left at any time are among them.
#[derive(Default)]
struct Portion {
    part: u64,
    packets: u64,
}

impl Portion {
    fn has(&mut self, at: Nanos, followers: &[usize]) -> bool {
        let part = at.0 >> PORTION;
        if part != self.part {
            *self = Self { part, packets: 0 };
        }
        self.packets += 1;
        !followers.is_empty() || self.packets <= (LOOKS << PORTION) / Nanos::SECOND.0
    }
}

impl Line {
    fn new(seed: u64) -> Self {
        let (trips, hasher) = (RoundTrips::default(), FlowHasher::new(seed));
        let (sample, portion) = (Sample::default(), Portion::default());
        Self { trips, hasher, bytes: 0, followers: Vec::new(), sample, portion }
    }

    /// The frame of a packet leaves.
    pub(super) fn leaves(&mut self, at: Nanos, packet: &PacketRecord, frame: &[u8]) {
        if self.followers.is_empty() && !self.sample.has(at, packet.flow_hash) {
            return;
        }
        if let Some(stamps) = Stamps::of(frame)
            && let Some(own) = stamps.own
        {
            let far = stamps.flow.destination;
            let stamp =
                Stamp { number: stamps.end, data: stamps.data, ..self.stamp(&stamps, own, far) };
            self.trips.sent(at, stamp, self.bytes);
        }
        self.bytes += u64::from(packet.wire_len);
    }

    /// What a frame that arrives brings back, and its flow.
    fn answer(&self, frame: &[u8]) -> Option<(Stamp, FlowKey)> {
        let stamps = Stamps::of(frame)?;
        let stamp = self.stamp(&stamps, stamps.echo?, stamps.flow.source);
        Some((Stamp { number: stamps.acknowledged, ..stamp }, stamps.flow))
    }

    fn stamp(&self, stamps: &Stamps, value: u32, far: std::net::IpAddr) -> Stamp {
        let flow = self.hasher.hash(&stamps.both_ways());
        Stamp { flow, host: self.hasher.hash(&Stamps::host(far)), value, number: None, data: 0 }
    }
}

/// The law of a link, and what of it was not reported yet.
pub(super) struct Follower {
    law: Follow,
    /// The line's port.
    line: usize,
    /// Steps up that were not reported: from which rate, how many.
    rose: Option<(BitRate, u32)>,
    /// Of which kind the last step was, and when something was reported.
    kind: Option<Discriminant<Why>>,
    told: Nanos,
}

/// Who follows which line, and what is to be reported.
pub(super) struct Followers {
    ports: Vec<usize>,
    /// Some line is looked at, by them or for subscribers.
    lines: bool,
    /// When the first of them is due.
    due: Nanos,
    news: Vec<String>,
}

impl Followers {
    pub(super) const NONE: Self =
        Self { ports: Vec::new(), lines: false, due: Nanos::MAX, news: Vec::new() };

    pub(super) fn drain_news(&mut self, mut report: impl FnMut(&str)) {
        self.news.drain(..).for_each(|text| report(&text));
    }

    fn report(&mut self, text: String) {
        if self.news.len() < NEWS {
            self.news.push(text);
        }
    }
}

impl PortSlot {
    /// Goes on with what another pipeline knew of the link and the line, where both follow one.
    pub(super) fn follow_on(&mut self, follower: Option<Box<Follower>>, line: Option<Box<Line>>) {
        if let (Some(own), Some(known)) = (&mut self.follow, follower) {
            **own = Follower { line: own.line, ..*known };
        }
        if let (Some(own), Some(known)) = (&mut self.line, line) {
            (own.trips, own.bytes, own.hasher) = (known.trips, known.bytes, known.hasher);
        }
    }

    /// What the link has done since it is there.
    fn did(&self, now: Nanos, classes: usize) -> Did {
        let meters = (0..classes).map(|class| self.link.qostat().class(Class(class as u16)));
        let framing = self.link.framing();
        let overhead = framing.of(1_000).0.saturating_sub(1_000);
        let offered = meters
            .map(|meter| meter.counts.in_bytes.0 + meter.counts.in_segments * overhead)
            .sum::<u64>();
        let left = Bytes(self.line.as_ref().map_or(0, |line| line.bytes));
        let idle = self.link.idle_time(now);
        Did { idle, offered: Bytes(offered), left, line_idle: idle }
    }

    /// What its link follows, as the user sees it.
    pub(super) fn follow_view(&self) -> Option<FollowSnapshot> {
        let follower = self.follow.as_ref()?;
        let law = &follower.law;
        Some(FollowSnapshot {
            on: law.is_on(),
            wanted_bps: law.rate().0,
            waits_ns: law.waits().map(|waits| waits.0),
            steps: law.count(),
            silent: law.silent(),
            latest: law.steps().map(told).collect(),
        })
    }
}

fn told(step: &Step) -> FollowStep {
    let Step { at, from, to, why } = step;
    FollowStep { at_ns: at.0, from_bps: from.0, to_bps: to.0, why: why.to_string() }
}

impl Pipeline {
    /// Begins to follow lines as the links say that do not do so yet, and ends what they no longer
    /// say: that link has its configured rate again.
    pub(super) fn follow_lines(&mut self, now: Nanos) {
        let mut wanted: Vec<_> = self.settings.links.iter().map(latency).collect();
        for (slot, wanted) in self.ports.iter().zip(&mut wanted) {
            // The first worker turns it for all.
            wanted.take_if(|_| slot.is_others);
        }
        for (at, wanted) in wanted.iter().enumerate() {
            let line = wanted.as_ref().map(|control| self.line_of(at, control));
            let (slot, config) = (&mut self.ports[at], &self.settings.links[at]);
            let same = match (&slot.follow, wanted) {
                (Some(follower), Some(control)) => {
                    let law = &follower.law;
                    Some(follower.line) == line
                        && *law.config() == control.law
                        && law.is_on() == control.on
                }
                (None, None) => true,
                _ => false,
            };
            if same {
                continue;
            }
            let classes = self.settings.class_names.len();
            slot.follow = None;
            let core = config.core;
            if slot.link.config().rate != core.rate {
                self.set_line_rate(now, at, core);
            }
            if let (Some(control), Some(line), Some(rate)) = (wanted, line, core.rate) {
                let way = if line == at { Way::Out } else { Way::In };
                let did = self.did(now, at, line, classes);
                // The parser has checked what it checks.
                let law = Follow::new(control.law, way, control.on, now, rate, did).ok();
                self.ports[at].follow = law
                    .map(|law| Box::new(Follower { law, line, rose: None, kind: None, told: now }));
            }
            self.agenda.touch(at);
        }
        self.note_lines();
    }

    /// Which lines are looked at, and who follows them.
    pub(super) fn note_lines(&mut self) {
        let following = |(at, link)| Some(self.line_of(at, &latency(link)?));
        let lines: Vec<_> = self.settings.links.iter().enumerate().map(following).collect();
        self.followers.ports.clear();
        let turns = |at: &usize| self.ports[*at].follow.is_some();
        self.followers.ports.extend((0..lines.len()).filter(turns));
        let seed = self.settings.seed;
        for (port, slot) in self.ports.iter_mut().enumerate() {
            let followers: Vec<_> =
                (0..lines.len()).filter(|at| lines[*at] == Some(port)).collect();
            if followers.is_empty() && slot.behind.is_none() {
                slot.line = None;
                continue;
            }
            let line = slot.line.get_or_insert_with(|| Box::new(Line::new(seed)));
            line.followers = followers;
        }
        self.followers.lines = self.ports.iter().any(|slot| slot.line.is_some());
        self.note_due();
    }

    /// The port whose line the link of a port follows.
    fn line_of(&self, at: usize, control: &LatencyControl) -> usize {
        let slot = &self.ports[at];
        control.line_of(at, slot.attach, slot.peer, |name| self.find(name).ok())
    }

    /// Whether some link follows a line.
    #[inline]
    pub(super) fn follows(&self) -> bool {
        !self.followers.ports.is_empty()
    }

    /// Whether some line is looked at.
    #[inline]
    pub(super) fn looks_at_lines(&self) -> bool {
        self.followers.lines
    }

    /// Looks at packets that have arrived for stamps that come back. Who has not the link by which
    /// they left tells them to the first worker, which has it.
    pub(super) fn look_for_stamps(&mut self, packets: &[UnroutedPacket]) {
        for packet in packets {
            let port = self.ports[packet.port.index()].link_at;
            let slot = &mut self.ports[port];
            let Some(line) = &mut slot.line else { continue };
            if slot.is_others && !line.portion.has(packet.arrival, &line.followers) {
                continue;
            }
            let frame = self.pool.bytes(&packet.frame);
            let Some((stamp, flow)) = line.answer(frame) else { continue };
            if !slot.is_others {
                came_back(&mut self.ports, port, packet.arrival, stamp, &flow, frame);
            } else if let Some(hand) = &mut self.hand {
                hand.tell(Answer::new(port, packet.arrival, stamp, flow, frame));
            }
        }
    }

    /// The same of stamps that another worker has met.
    pub(super) fn take_answers(&mut self, answers: &[Answer]) {
        for answer in answers {
            let &Answer { port, at, stamp, ref flow, .. } = answer;
            came_back(&mut self.ports, usize::from(port), at, stamp, flow, answer.frame());
        }
    }

    /// Lets the rates follow that are due at `now`.
    pub(super) fn follow(&mut self, now: Nanos) {
        if self.followers.due > now {
            return;
        }
        for index in 0..self.followers.ports.len() {
            let at = self.followers.ports[index];
            if self.ports[at].follow.as_ref().is_none_or(|follower| follower.law.due() > now) {
                continue;
            }
            let (link, mut egress) = self.outgoing(at);
            link.advance(now, &mut egress);
            let Some(follower) = &self.ports[at].follow else { continue };
            let did = self.did(now, at, follower.line, self.settings.class_names.len());
            let Some(follower) = &mut self.ports[at].follow else { continue };
            let step = follower.law.run(now, did);
            let on = follower.law.is_on();
            let text = follower.news(now, step.as_ref(), &self.settings.links[at].port);
            if let Some(text) = text {
                self.followers.report(text);
            }
            if let Some(step) = step.filter(|_| on) {
                let core = Core { rate: Some(step.to), ..self.settings.links[at].core };
                self.set_line_rate(now, at, core);
            }
            // One that was built meanwhile knows the configured rate.
            self.judge_by_line_rate(now, at);
        }
        self.note_due();
    }

    /// What the link of a port has done, and what was sent into the line that it follows.
    fn did(&self, now: Nanos, at: usize, line: usize, classes: usize) -> Did {
        let line_idle = self.ports[line].link.idle_time(now);
        Did { line_idle, ..self.ports[at].did(now, classes) }
    }

    /// Gives a link another rate than the configured one, or that one again.
    fn set_line_rate(&mut self, now: Nanos, at: usize, core: Core) {
        let (link, mut egress) = self.outgoing(at);
        // What lies within the bounds that were checked is taken.
        let _ = link.reconfigure(now, core, &mut egress);
        self.judge_by_line_rate(now, at);
        self.tell(now, at);
    }

    /// FairDrop of the bits of a link judges by the rate that this has now.
    fn judge_by_line_rate(&mut self, now: Nanos, at: usize) {
        let rate = self.ports[at].link.config().rate;
        if let Some(fairdrop) = self.fairdrop.as_mut().filter(|known| known.rate(at) != rate) {
            let _ = fairdrop.set_rate(now, at, rate);
        }
    }

    /// When a rate may change next.
    pub(super) const fn follow_due(&self) -> Nanos {
        self.followers.due
    }

    fn note_due(&mut self) {
        let due = |at: &usize| self.ports[*at].follow.as_ref().map(|follower| follower.law.due());
        self.followers.due =
            self.followers.ports.iter().filter_map(due).min().unwrap_or(Nanos::MAX);
    }

    /// The wire of a link as it is to be: where its rate follows a line and the configuration of
    /// the rate stays, the rate stays too.
    pub(super) fn wire_of(&mut self, at: usize, wanted: &LinkConfig) -> Core {
        let present = &self.settings.links[at];
        let slot = &mut self.ports[at];
        let Some(follower) = &mut slot.follow else { return wanted.core };
        if wanted.core.rate == present.core.rate && wanted.control == present.control {
            return Core { rate: slot.link.config().rate, ..wanted.core };
        }
        if let Some(rate) = wanted.core.rate {
            follower.law.set_rate(rate);
        }
        wanted.core
    }
}

impl Follower {
    /// What is to be said of a step. Those that go on as the one before are told together: what
    /// rises when it ends, what falls when it begins.
    fn news(&mut self, now: Nanos, step: Option<&Step>, link: &str) -> Option<String> {
        let kind = step.map(|step| std::mem::discriminant(&step.why));
        let long = self.told + TOGETHER <= now;
        let rises = step.is_some_and(|step| step.to > step.from);
        if rises && let Some(step) = step.filter(|step| matches!(step.why, Why::Room { .. })) {
            self.rose.get_or_insert((step.from, 0)).1 += 1;
        }
        if kind.is_none() && !(long && self.rose.is_some()) || kind == self.kind && !long {
            return None;
        }
        let rising = matches!(step, Some(Step { why: Why::Room { .. }, .. }));
        self.kind = kind.or(self.kind);
        if rising && !long {
            return None;
        }
        self.told = now;
        let would = if self.law.is_on() { "" } else { " would be" };
        let before = self.rose.take().map(|(from, steps)| {
            let to = step.map_or(self.law.rate(), |step| if rising { step.to } else { step.from });
            let [from, to] = [from, to].map(rate_text);
            format!("link {link}: rate{would} raised from {from} to {to} in {steps} steps: room")
        });
        let cut = step.filter(|_| !rising).map(|step| {
            let [from, to] = [step.from, step.to].map(rate_text);
            format!("link {link}: rate{would} changed from {from} to {to}: {}", step.why)
        });
        match (before, cut) {
            (Some(before), Some(cut)) => Some(format!("{before}\n{cut}")),
            (before, cut) => before.or(cut),
        }
    }
}

/// A stamp has come back by the line of a port, in a frame of this flow: who is told if it is one
/// of those that left.
fn came_back(
    ports: &mut [PortSlot],
    port: usize,
    at: Nanos,
    stamp: Stamp,
    flow: &FlowKey,
    frame: &[u8],
) {
    let slot = &mut ports[port];
    let Some(line) = &mut slot.line else { return };
    let Some(trip) = line.trips.came(at, stamp) else { return };
    if let Some(behind) = &slot.behind {
        behind.came_back(at, &trip, flow, frame);
    }
    let followers = std::mem::take(&mut line.followers);
    for follower in &followers {
        if let Some(follower) = &mut ports[*follower].follow {
            follower.law.came_back(&trip);
        }
    }
    if let Some(line) = &mut ports[port].line {
        line.followers = followers;
    }
}

fn latency(link: &LinkConfig) -> Option<LatencyControl> {
    link.control.as_ref().and_then(LinkControl::latency).cloned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_what_only_subscribers_are_told_there_is_a_part_at_any_time() {
        let mut portion = Portion::default();
        let step = Nanos::from_micros(5);
        let mut has = |followers: &[usize], from: Nanos, time: Nanos| {
            let times = (0..time.0 / step.0).map(|n| from + Nanos(n * step.0));
            times.filter(|at| portion.has(*at, followers)).count() as u64
        };
        let second = has(&[], Nanos::SECOND, Nanos::SECOND);
        assert!(second <= LOOKS + LOOKS / 30 && second > LOOKS / 2, "{second}");
        for n in 0..10 {
            let from = Nanos::from_secs(3) + Nanos::from_millis(17 * n);
            assert!(has(&[], from, Nanos::from_millis(17)) > 100, "{n}");
        }
        assert_eq!(has(&[0], Nanos::from_secs(9), Nanos::SECOND), 200_000);
    }
}
