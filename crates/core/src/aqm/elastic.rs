//! What keeps the queue of a flow short: CoDel for those that answer, BLUE for those that do not,
//! and a step of marks for L4S.
//!
//! Sources: RFC 8289 (CoDel, [`super::Codel`]); Feng, Kandlur, Saha, Shin, "BLUE: A New Class of
//! Active Queue Management Algorithms" (1999), in the form that COBALT has in CAKE; RFC 9331 and
//! RFC 9332 for what L4S expects.
//!
//! | symbol | field | unit |
//! |---|---|---|
//! | p, the probability of a drop | `Blue::probability` | 1/256 |
//! | d1, what it grows by | 1 | 1/256 |
//! | d2, what it falls by | 1/16 | 1/256 |
//! | `freeze_time` | `AqmConfig::target` | time |
//! | step | `ElasticAqm::step` | time |
//!
//! - **The target** is never below the time of one and a half long packets at the queue's own rate:
//!   the link's, divided by the queues that wait. Below that a queue cannot be told from a packet
//!   on its way.
//! - **A flow that does not answer** fills the buffer. Each packet that it loses there, once within
//!   a target, makes p greater. While it does not, p falls, also while the flow is away.
//! - **L4S** (ECT(1)): a packet that has waited beyond the step is marked, whatever CoDel thinks.
//!
//! Complexity: constant time. No division per packet, one per packet lost to a full buffer.
//!
//! Bound: the last packet of a queue is never dropped, so who serves it stays work conserving. What
//! waits less than the target once in an interval is neither dropped nor marked, except by the
//! step.

use core::ops::RangeInclusive;

use super::{AqmConfig, Codel, LONGEST_PACKET, Round, Times, Verdict};
use crate::packet::Ecn;
use crate::units::{BitRate, Bytes, Nanos};
use crate::{settings, words};

/// Valid steps.
pub const STEP_RANGE: RangeInclusive<u64> = 10_000..=1_000_000_000;

words! {
    /// What keeps the queues of flows short.
    pub enum Aqm {
        /// Nothing but the end of the buffer, as published.
        #[default]
        None = "none",
        /// CoDel, and BLUE for flows that do not answer.
        Cobalt = "cobalt",
    }
}

settings! {
    /// What keeps the queues of flows short. Packets with priority are never dropped or marked.
    #[derive(Copy, Eq)]
    pub struct ElasticAqm: "" {
        /// Which law: `cobalt` drops or marks at the head of a flow's queue that stands (CoDel),
        /// and drops from those that do not answer (BLUE).
        live aqm: Aqm = Aqm::None;
        /// With `aqm`: the wait beyond which packets of L4S, ECT(1), are marked; never below that
        /// of a packet and a half at the flow's own rate.
        live step: Nanos = Nanos::from_millis(1), in STEP_RANGE;
    }
    parts {
        /// When a queue counts as standing, with `aqm`.
        law: AqmConfig,
    }
}

impl ElasticAqm {
    /// With everything as it is best for links at the edge.
    #[must_use]
    pub fn cobalt() -> Self {
        Self { aqm: Aqm::Cobalt, ..Self::default() }
    }

    /// Whether there is one.
    #[must_use]
    #[inline]
    pub fn is_on(&self) -> bool {
        self.aqm == Aqm::Cobalt
    }
}

/// How long a packet and a half takes on a link of this rate; no time without a rate.
#[must_use]
pub fn packets_at(rate: Option<BitRate>) -> Nanos {
    let bits = u128::from(LONGEST_PACKET.0) * 8 * 3 / 2;
    let time = rate.and_then(|rate| (bits * 1_000_000_000).checked_div(rate.0.into()));
    Nanos(time.map_or(0, |time| u64::try_from(time).unwrap_or(u64::MAX)))
}

/// How long packets wait that a link serves at once: no queue stands for that.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pace {
    /// A packet and a half on the wire, in the turn of each queue.
    pub packets: Nanos,
    /// A grant, where several workers share.
    pub grants: Nanos,
}

/// What the queues of a link are judged by now.
#[derive(Clone, Copy, Debug)]
pub struct Now {
    times: Times,
    step: Nanos,
    now: Nanos,
}

impl Now {
    /// At `now`, where `queues` queues wait.
    #[must_use]
    #[inline]
    pub fn new(config: &ElasticAqm, pace: Pace, queues: u64, now: Nanos) -> Self {
        let own = Nanos(pace.packets.0.saturating_mul(queues)).max(pace.grants);
        Self { times: config.law.at_least(own), step: config.step.max(own), now }
    }

    /// What becomes of the packet at the head of a queue, which came at `arrival` and has `left`
    /// bytes behind it, and whether BLUE says so. `random` is new for each packet.
    #[inline]
    pub fn judge(
        &self,
        queue: &mut Codel,
        round: &mut Round,
        (arrival, left, ecn): (Nanos, Bytes, Ecn),
        random: u32,
    ) -> (Verdict, bool) {
        let wait = self.now.saturating_sub(arrival);
        // The last packet of a queue goes, as in CAKE: nothing is won by an idle link.
        if left > Bytes::ZERO && queue.blue.drops(random) {
            return (Verdict::Drop, true);
        }
        if ecn == Ecn::Scalable && self.times.ecn {
            let verdict = if wait > self.step { Verdict::Mark } else { Verdict::Send };
            return (verdict, false);
        }
        (queue.judge(round, &self.times, self.now, wait, left, ecn), false)
    }

    /// A queue lost a packet because the buffer was full.
    #[inline]
    pub fn overflowed(&self, queue: &mut Codel) {
        queue.blue.overflowed(self.now, self.times.target);
    }

    /// A queue ran empty.
    #[inline]
    pub fn emptied(&self, queue: &mut Codel) {
        queue.emptied();
        queue.blue.forget(self.now, self.times.target);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_never_below_a_packet_and_a_half_at_the_own_rate() {
        let config = ElasticAqm::cobalt();
        let slow = packets_at(Some(BitRate::from_mbps(1)));
        assert_eq!(slow, Nanos(18_456_000));
        assert_eq!(packets_at(None), Nanos::ZERO);
        let judged = |queues: u64, ms: u64| {
            let (mut queue, mut told) = (Codel::NEW, false);
            for at in 1..500 {
                let now = Nanos::from_millis(1_000 + at);
                let pace = Pace { packets: slow, grants: Nanos::ZERO };
                let judge = Now::new(&config, pace, queues, now);
                let packet = (now - Nanos::from_millis(ms), Bytes(20_000), Ecn::NotCapable);
                let (verdict, _) = judge.judge(&mut queue, &mut Round::default(), packet, 0);
                told |= verdict == Verdict::Drop;
            }
            told
        };
        assert!(!judged(4, 73) && judged(4, 75));
        assert!(!judged(1, 18) && judged(1, 19));
    }

    #[test]
    fn l4s_is_marked_beyond_the_step_and_not_before() {
        let (config, mut queue) = (ElasticAqm::cobalt(), Codel::NEW);
        let mut verdict = |wait: u64| {
            let now = Nanos::from_secs(1);
            let pace = Pace { packets: Nanos(100_000), grants: Nanos::ZERO };
            let judge = Now::new(&config, pace, 3, now);
            let packet = (now - Nanos(wait), Bytes(90_000), Ecn::Scalable);
            judge.judge(&mut queue, &mut Round::default(), packet, 0)
        };
        assert_eq!(verdict(1_000_000), (Verdict::Send, false));
        assert_eq!(verdict(1_000_001), (Verdict::Mark, false));
        assert_eq!(verdict(500_000_000), (Verdict::Mark, false));
    }
}
