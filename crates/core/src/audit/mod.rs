//! The audit of a link: whether it delivers what it was told, while it runs.
//!
//! | promise | held against | bound |
//! |---|---|---|
//! | rate and burst, never more | a token bucket | a longest packet; of a shaper its burst and the ring |
//! | rate, not less while something waits | rate x time, while the link was never empty | two longest packets |
//! | shares of classes | fluid processor sharing ([`fluid`](self)) | the discipline's constant, and the ring |
//! | order of levels | the same, by levels | a longest packet, and the ring |
//! | flows that always wait get the same | each other, sampled | the discipline's constant |
//! | packets of flows with priority go first ([`order`](self)) | the same, by levels | a longest packet, and the ring |
//! | nodes of a tree get no more than their caps | a bucket each, sampled | four longest packets or a millisecond, and one |
//! | siblings of a tree that always wait share by weight, beyond what is guaranteed | each other, sampled | two rounds of each, and packets |
//! | no packet disappears | counting | none |
//!
//! **Steps.** Once in a step, of a millisecond or
//! the time of a few packets, the fluid goes on by what the link's meters
//! have grown, and two sums that are kept per packet ([`ledger`](self)). So a class that begins
//! to wait within a step is served in the fluid from its beginning: by no more than the bytes of a
//! step too early. That is told as `within` and allowed on top of the bound. After a pause of many
//! steps shares are not judged: the fluid begins anew with what waits. The rate is.
//!
//! **A violation** is a lag beyond bound and `within`. After it the fluid begins anew, so their
//! number says how many bounds a link has fallen behind: an unfair one has many each second.
//!
//! **Told** is the configuration ([`Told`]), not what became of it: a weight that did not reach the
//! discipline is found.
//!
//! Not audited: shares where a discipline promises none (FIFO, LCT-UC, AFAN, hashed queues); a link
//! with neither rate nor promise.

mod flows;
mod fluid;
mod ledger;
mod nodes;
mod order;
mod told;
mod verdict;

use alloc::vec::Vec;

use crate::measure::Qostat;
use crate::packet::FlowKey;
use crate::schedule::{Meters, NodeAccount};
use crate::units::{BitRate, Bytes, Nanos};
pub use flows::{Alike, Spread};
use fluid::Fluid;
use ledger::Account;
pub(crate) use ledger::Ledger;
pub use ledger::Unit;
use nodes::{Nodes, Off};
use order::Order;
use told::bytes_in;
pub use told::{Promise, Told};
pub use verdict::{Breach, Cause, ClassLag, Lag, Verdict, Violation};

/// The shortest step.
const STEP: Nanos = Nanos::from_millis(1);
/// A step takes at least so many long packets of the wire.
const STEP_PACKETS: u64 = 4;
/// After so many steps without a look shares are not judged.
const BLIND: u64 = 8;
/// How often a full table of flows is a violation.
const AGAIN: Nanos = Nanos::from_millis(500);
/// For how long after a change a violation is put down to it.
const SETTLES: Nanos = Nanos::from_millis(200);
/// What comes in a step is a burst if it is so many times what the link sends in one.
const BURST: f64 = 16.0;
/// The longest frame that everybody sends, bytes on the wire.
const USUAL: u64 = 1_538;

/// What the link says of itself at a look.
pub(crate) struct Outside<'a> {
    /// Its meters.
    pub(crate) qostat: &'a Qostat,
    /// Packets in discipline and ring.
    pub(crate) held: u64,
    /// Packets in the ring.
    pub(crate) in_ring: u64,
    /// What the discipline says of itself.
    pub(crate) meters: Meters,
    /// What waits of a flow.
    pub(crate) flow_backlog: &'a dyn Fn(&FlowKey, u64) -> u64,
    /// How many places for nodes it has, and what it knows of one.
    pub(crate) nodes: (u32, &'a dyn Fn(u32) -> Option<NodeAccount>),
}

/// What an audit keeps while it judges.
#[derive(Clone, Debug)]
struct Judge {
    told: Told,
    step: Nanos,
    /// At the last look.
    at: Nanos,
    sent: u64,
    ip_sent: u64,
    /// Whether something waited.
    waited: bool,
    /// Packets that were missing.
    missing: u64,
    /// By class, in the promise's unit.
    classes: Vec<Account>,
    /// What happened since the look before.
    moved: Vec<Account>,
    /// How often the link had been empty.
    emptied: u64,
    /// What the link could have sent and has not, since something has waited all the time, bytes.
    owed: f64,
    /// What its classes should be sent.
    fluid: Fluid,
    /// Nodes of its tree.
    nodes: Nodes,
    /// Priority packets of a discipline of flows.
    order: Order,
    /// What left beyond the rate, bytes, of the wire and of the shaper.
    excess: [f64; 2],
    /// The most that a step has moved, bytes.
    coarse: f64,
    /// When its table of flows was last found full.
    full: Nanos,
    /// When it was told something else; `None`: it has been told this from the start.
    changed: Option<Nanos>,
    /// How late the worker has been since the fluids began.
    late: Nanos,
    /// Nothing leaves before this, because it was late: what came meanwhile is looked at in the
    /// order of its time.
    held: Nanos,
    /// The most that came in a step since then, bytes.
    burst: u64,
    /// The most packets seen in the ring since then.
    ring: u64,
}

/// The audit of one link. It does nothing until it is told what to expect.
#[derive(Clone, Debug)]
pub(crate) struct Audit {
    pub(crate) ledger: Ledger,
    pub(crate) verdict: Verdict,
    /// When it looks next; `Nanos::MAX`: never.
    pub(crate) due: Nanos,
    judge: Option<Judge>,
}

impl Audit {
    pub(crate) fn new(classes: u16) -> Self {
        Self {
            ledger: Ledger::new(classes),
            verdict: Verdict::default(),
            due: Nanos::MAX,
            judge: None,
        }
    }

    /// Judges by this from `now` on.
    pub(crate) fn tell(&mut self, now: Nanos, told: Told, qostat: &Qostat) {
        self.ledger.flows.switch(match told.promise {
            Promise::Flows { alike, .. } => Some(alike),
            _ => None,
        });
        let classes = told.promise.classes();
        self.verdict.classes.resize(classes.len(), ClassLag::default());
        for (seen, (level, weight)) in self.verdict.classes.iter_mut().zip(&classes) {
            let peers = classes.iter().filter(|(other, _)| other == level);
            let all: f64 = peers.map(|(_, weight)| weight).sum();
            (seen.level, seen.told_ppm) = (*level, (weight / all.max(1e-9) * 1e6) as u32);
        }
        let mut accounts = Vec::new();
        self.ledger.count_by(told.promise.unit(), !classes.is_empty());
        self.ledger.read(qostat, &mut accounts);
        let mut judge = Judge {
            step: step_of(told.link.slowest()),
            at: now,
            sent: self.ledger.sent,
            ip_sent: ip_sent(qostat),
            waited: false,
            missing: self.judge.as_ref().map_or(0, |judge| judge.missing),
            moved: accounts.clone(),
            classes: accounts,
            emptied: self.ledger.emptied,
            owed: 0.0,
            fluid: Fluid::new(classes.into_iter()),
            nodes: Nodes::default(),
            order: Order::default(),
            excess: [0.0; 2],
            coarse: 0.0,
            full: Nanos::ZERO,
            changed: self.judge.is_some().then_some(now),
            late: Nanos::ZERO,
            held: Nanos::ZERO,
            burst: 0,
            ring: 0,
            told,
        };
        judge.begin();
        self.ledger.flows.begin(now);
        self.due = now.saturating_add(judge.step);
        self.judge = Some(judge);
    }

    /// The meters have grown by what another link had counted.
    pub(crate) fn took_over(&mut self, qostat: &Qostat) {
        let Some(judge) = &mut self.judge else { return };
        self.ledger.read(qostat, &mut judge.classes);
        judge.ip_sent = ip_sent(qostat);
        judge.begin();
    }

    /// The worker was late by this, and nothing leaves before `until`.
    pub(crate) fn late(&mut self, by: Nanos, until: Nanos) {
        if let Some(judge) = &mut self.judge {
            judge.late = judge.late.saturating_add(by);
            judge.held = judge.held.max(until);
        }
    }

    /// Looks. `now` is when everything up to it has happened.
    #[cold]
    pub(crate) fn look(&mut self, now: Nanos, outside: &Outside<'_>) {
        let Some(judge) = &mut self.judge else { return };
        let passed = now.saturating_sub(judge.at);
        let blind = passed.0 > judge.step.0 * BLIND;
        self.due = now.saturating_add(judge.step);
        self.verdict.looks += 1;
        if !blind {
            self.verdict.watched = self.verdict.watched.saturating_add(passed);
        }
        judge.account(&mut self.ledger, outside);
        judge.rate(now, passed, &self.ledger, outside, &mut self.verdict);
        judge.shares(now, blind, &self.ledger, &mut self.verdict);
        judge.flows(now, &mut self.ledger, outside, &mut self.verdict);
        judge.priority(now, blind, &self.ledger, outside, &mut self.verdict);
        judge.nodes(now, passed, &self.ledger, outside, &mut self.verdict);
        judge.conservation(now, &self.ledger, outside, &mut self.verdict);
        judge.at = now;
        judge.sent = self.ledger.sent;
        judge.ip_sent = ip_sent(outside.qostat);
        judge.waited = outside.held > 0;
        judge.emptied = self.ledger.emptied;
    }
}

fn step_of(rate: Option<BitRate>) -> Nanos {
    let packets = rate.map_or(0, |rate| STEP_PACKETS * USUAL * 8_000_000_000 / rate.0.max(1));
    STEP.max(Nanos(packets))
}

fn ip_sent(qostat: &Qostat) -> u64 {
    qostat.classes().iter().map(|class| class.sent_bytes.0).sum()
}

impl Judge {
    /// The fluids begin with what waits.
    fn begin(&mut self) {
        self.owed = 0.0;
        self.fluid.align(&self.classes);
        self.order.begin();
        self.coarse = 0.0;
        self.late = Nanos::ZERO;
        self.burst = 0;
        self.ring = 0;
    }

    fn account(&mut self, ledger: &mut Ledger, outside: &Outside<'_>) {
        core::mem::swap(&mut self.moved, &mut self.classes);
        ledger.read(outside.qostat, &mut self.classes);
        for (moved, now) in self.moved.iter_mut().zip(&self.classes) {
            *moved = now.since(moved);
        }
        let all = |of: fn(&Account) -> u64| self.moved.iter().map(of).sum::<u64>();
        self.coarse = self.coarse.max(all(|moved| moved.sent) as f64);
        self.burst = self.burst.max(all(|moved| moved.offered));
        self.ring = self.ring.max(outside.in_ring);
    }

    /// Rate and burst: not more, and not less.
    fn rate(
        &mut self,
        now: Nanos,
        passed: Nanos,
        ledger: &Ledger,
        outside: &Outside<'_>,
        verdict: &mut Verdict,
    ) {
        let sent = ledger.sent - self.sent;
        let longest = ledger.longest.max(USUAL);
        let ring = u64::from(self.told.link.ring.slots) * longest;
        let limits = [
            self.told.link.rate.map(|rate| (rate, sent, longest)),
            self.told.link.shaper.map(|shaper| {
                let sent = ip_sent(outside.qostat) - self.ip_sent;
                (shaper.rate, sent, shaper.burst.0 + longest + ring)
            }),
        ];
        for (excess, limit) in self.excess.iter_mut().zip(limits) {
            let Some((rate, sent, burst)) = limit else { continue };
            // Bits of a packet that ends now may have left before the last look; a byte for what is
            // rounded.
            *excess = (*excess + sent as f64 - bytes_in(rate, passed)).max(0.0);
            verdict.excess.look(*excess, burst, 1);
            if *excess > burst as f64 + 1.0 {
                let (lag, bound) = (Bytes(*excess as u64), Bytes(burst));
                *excess = 0.0;
                let cause = self.cause(now, Cause::Wire);
                verdict.note(violation(now, Breach::OverRate, cause, lag, bound));
                break;
            }
        }
        let Some(rate) = self.told.link.rate else { return };
        let link = &self.told.link;
        let waits = link.shaper.is_some() || link.dequeue_time > Nanos::ZERO;
        if waits || !self.told.promise.is_work_conserving() {
            return;
        }
        // Exact, as the rate is: in a step in which the link was empty for a while nothing is owed.
        let busy = self.emptied == ledger.emptied && self.waited;
        self.owed =
            if busy { (self.owed + bytes_in(rate, passed) - sent as f64).max(0.0) } else { 0.0 };
        verdict.rate.look(self.owed, 2 * longest, 0);
        // One pause is one violation, of its whole length.
        if self.owed > (2 * longest) as f64 && now >= self.held {
            let cause = self.cause(now, Cause::Discipline);
            let (lag, bound) = (Bytes(self.owed as u64), Bytes(2 * longest));
            verdict.note(violation(now, Breach::UnderRate, cause, lag, bound));
            self.begin();
        }
    }

    /// Shares and levels.
    fn shares(&mut self, now: Nanos, blind: bool, ledger: &Ledger, verdict: &mut Verdict) {
        if self.fluid.shares.is_empty() {
            return;
        }
        if blind {
            self.fluid.align(&self.classes);
            return;
        }
        let sent: u64 = self.moved.iter().map(|moved| moved.sent).sum();
        self.fluid.step(sent as f64, &self.moved, &self.classes);
        let longest = ledger.longest.max(USUAL);
        let ring = u64::from(self.told.link.ring.slots) * longest;
        let within = 2 * self.coarse as u64;
        let promise = &self.told.promise;
        let bound = |class: usize| promise.lag(class, longest).saturating_add(ring);
        for (at, (share, lag)) in self.fluid.shares.iter().zip(&mut verdict.classes).enumerate() {
            lag.lag.look(share.lag, bound(at), within);
        }
        let Some((class, times)) = self.fluid.worst(|at| (bound(at) + within) as f64) else {
            return;
        };
        if times <= 1.0 {
            return;
        }
        let share = self.fluid.shares[class];
        let breach = match promise {
            _ if share.had == 0.0 => Breach::Starved,
            Promise::Levels { .. } => Breach::Order,
            _ => Breach::Share,
        };
        let (told_ppm, delivered_ppm) = self.fluid.parts(class);
        let cause = self.cause_of(now, class, ledger);
        verdict.note(Violation {
            class: Some(class as u16),
            told_ppm,
            delivered_ppm,
            ..violation(now, breach, cause, Bytes(share.lag as u64), Bytes(bound(class) + within))
        });
        self.begin();
    }

    fn flows(
        &mut self,
        now: Nanos,
        ledger: &mut Ledger,
        outside: &Outside<'_>,
        verdict: &mut Verdict,
    ) {
        let Promise::Flows { spread: bound, places, .. } = self.told.promise else { return };
        let seen = ledger.flows.look(now, outside.flow_backlog);
        verdict.compared = seen.flows;
        verdict.one_of = seen.one_of;
        let bound = bound.0 + 2 * ledger.longest.max(USUAL);
        verdict.flows.look(seen.bytes as f64, bound, 0);
        // Flows beyond those that it can tell apart go first, before all that are compared.
        let waits: u64 = self.classes.iter().map(Account::waits).sum();
        let full = outside.meters.flows.is_some_and(|flows| flows >= places) && waits > bound;
        if full && now.saturating_sub(self.full) >= AGAIN {
            self.full = now;
            let (lag, bound) = (Bytes(waits), Bytes(bound));
            verdict.note(violation(now, Breach::Flows, Cause::TableFull, lag, bound));
        } else if seen.bytes > bound && !full {
            let cause = self.cause(now, Cause::Discipline);
            verdict.note(violation(now, Breach::Flows, cause, Bytes(seen.bytes), Bytes(bound)));
            ledger.flows.begin(now);
        }
    }

    /// Priority packets go before those of elastic flows.
    fn priority(
        &mut self,
        now: Nanos,
        blind: bool,
        ledger: &Ledger,
        outside: &Outside<'_>,
        verdict: &mut Verdict,
    ) {
        if !matches!(self.told.promise, Promise::Flows { .. }) {
            return;
        }
        let Some(seen) = self.order.look(&outside.meters, ledger.sent, blind) else { return };
        // A packet that is on its way is not interrupted, and the ring is served in its order.
        let bound = (u64::from(self.told.link.ring.slots) + 1) * ledger.longest.max(USUAL);
        verdict.priority.look(seen.lag, bound, seen.within);
        let allowed = bound + seen.within;
        if seen.lag > allowed as f64 {
            let cause = self.cause(now, Cause::Discipline);
            let (lag, bound) = (Bytes(seen.lag as u64), Bytes(allowed));
            let (told_ppm, delivered_ppm) = seen.parts;
            let broken = violation(now, Breach::Order, cause, lag, bound);
            verdict.note(Violation { told_ppm, delivered_ppm, ..broken });
            self.begin();
        }
    }

    /// Caps of nodes, and shares of siblings.
    fn nodes(
        &mut self,
        now: Nanos,
        passed: Nanos,
        ledger: &Ledger,
        outside: &Outside<'_>,
        verdict: &mut Verdict,
    ) {
        if self.told.promise != Promise::Nodes {
            return;
        }
        let (places, of) = outside.nodes;
        let told = nodes::Told { places, of };
        let found = self.nodes.look(now, passed, ledger.longest.max(USUAL), &told);
        verdict.nodes = self.nodes.watched();
        let judge = |off: Option<Off>, lag: &mut Lag, breach| {
            let off = off?;
            lag.look(off.bytes, off.bound, 1);
            let cause = off.is_beyond().then(|| self.cause(now, Cause::Discipline))?;
            let (lag, bound) = (Bytes(off.bytes as u64), Bytes(off.bound));
            let broken = violation(now, breach, cause, lag, bound);
            let Off { place, told_ppm, delivered_ppm, .. } = off;
            Some(Violation { node: Some(place), told_ppm, delivered_ppm, ..broken })
        };
        let over_cap = judge(found.cap, &mut verdict.caps, Breach::OverCap);
        let share = judge(found.share, &mut verdict.siblings, Breach::Share);
        over_cap.into_iter().chain(share).for_each(|broken| verdict.note(broken));
    }

    fn conservation(
        &mut self,
        now: Nanos,
        ledger: &Ledger,
        outside: &Outside<'_>,
        verdict: &mut Verdict,
    ) {
        let counted: u64 = outside.qostat.classes().iter().map(ledger::held).sum();
        let now_missing = counted.abs_diff(outside.held);
        let missing = now_missing.abs_diff(self.missing);
        if missing > 0 {
            let cause = self.cause(now, Cause::Discipline);
            let lag = Bytes(missing * ledger.longest);
            verdict.note(violation(now, Breach::Conservation, cause, lag, Bytes::ZERO));
            self.missing = now_missing;
        }
    }

    /// Why, for violations of the whole link; `else_it_is` if nothing is known.
    fn cause(&self, now: Nanos, else_it_is: Cause) -> Cause {
        if self.late > Nanos::ZERO {
            Cause::WorkerLate
        } else if self.changed.is_some_and(|at| now.saturating_sub(at) < SETTLES) {
            Cause::Changed
        } else if self.burst as f64 > BURST * self.coarse {
            Cause::Burst
        } else {
            else_it_is
        }
    }

    /// Why a class is behind.
    fn cause_of(&self, now: Nanos, class: usize, ledger: &Ledger) -> Cause {
        let slots = u64::from(self.told.link.ring.slots);
        // "How Unfair can WFQ be?": the ring as a whole takes R w / sum(w) packets of a class, and
        // a queue that holds fewer runs empty, whatever its weight.
        let weights: f64 = self.fluid.shares.iter().map(|share| share.weight).sum();
        let ring = self.ring.max(slots) as f64;
        let needs = ring * self.fluid.shares[class].weight / weights.max(f64::MIN_POSITIVE);
        let holds = self.classes[class].full as f64 / ledger.longest.max(1) as f64;
        if self.ring > slots || ring > 4.0 && holds < needs + ring {
            Cause::Ring
        } else {
            self.cause(now, Cause::Discipline)
        }
    }
}

fn violation(at: Nanos, breach: Breach, cause: Cause, lag: Bytes, bound: Bytes) -> Violation {
    Violation {
        at,
        breach,
        cause,
        class: None,
        node: None,
        lag,
        bound,
        told_ppm: 0,
        delivered_ppm: 0,
    }
}
