//! Load told by time: how long packets wait, and what follows for the level and for what flows may
//! save up.
//!
//! Where packets are dear, a ring holds more of them than may wait. There the level is steered by a
//! PI controller on the time that the last of them will wait, as PIE (RFC 8033) steers a rate of
//! dropping by it, and AFD (Pan, Breslau, Prabhakar, Shenker, 2003) a fair share by the queue:
//!
//! ```text
//! T      = `wait`, or what a quarter of a full ring takes where that is less
//! e      = waiting time / T - 1
//! level <- level * exp((-INTEGRAL pull dt + UNUSED idle) / (T + delay) + idle after refusing / T)
//! pull   = e up to 1; more where e > 8
//! rate   = level * exp(-PROPORTIONAL e)              at which flows are served in this round
//! saved  = max(burst * level * exp(-SHRINK e),
//!              packets * exp(-SHRINK (e - 8)) - e packets - e T level / 2)
//! ```
//!
//! What answers at once is what flows may save up: as packets wait longer, those flows are refused
//! first that took most lately. A packet fewer is enough for that: flows that are limited are all
//! at the end of their savings, and if they lost more of them, none would come for long, and then
//! all together. While packets wait less than they should, it is more, so that the core does not
//! rest. Only where they wait several times as long, savings are lost as a whole.
//!
//! Another level shows only when flows have used up what they saved: `delay`, which the integral
//! part waits for; without that it swings. Where the core is idle although something was refused,
//! the level was too low, by that much. Idle time as such raises it slowly: flows that are evenly
//! spaced come in bunches, between which the core rests though packets wait for T on average, and
//! what it could have done then is missing from the shares of those who are limited.
//!
//! Nothing is let pass because of an empty ring, and everything that arrives is polled: refusing
//! costs little beside such packets.

use super::config::WaterLevel;
use super::fairdrop::Poll;
use super::level::Level;

/// 1, of errors, exponents and times in targets.
pub(super) const UNIT: i64 = 1 << 16;
const INTEGRAL: i64 = UNIT / 4;
const PROPORTIONAL: i64 = UNIT / 2;
const SHRINK: i64 = UNIT * 7 / 10;
/// Of the core idle, so many parts weigh as much as packets that wait for a target too long.
const UNUSED: i64 = 25 * INTEGRAL;
/// Errors above which savings are lost, and the level falls faster.
const FAR: i64 = 8 * UNIT;
/// Packets more that may be saved up where none waits.
const IDLE_PACKETS: i64 = 8;
/// Longest wait that is told apart from a longer one, in targets: by what answers at once, and by
/// the rest.
const LONGEST: i64 = 4;
const LONGEST_OF_ALL: i64 = 64;
/// Load is told by time where a full ring takes at least this part of the time packets may wait.
const SHORTEST_RING: u128 = 5;
/// Longest time that is told apart from a longer one, in targets.
const MOST: i64 = 1 << 24;

/// What packets cost lately: sums that lose an eighth with each round.
#[derive(Clone, Copy, Debug, Default)]
struct Load {
    polled: u64,
    admitted: u64,
    busy: u64,
    /// Of `busy`, what processing took that packets were admitted for.
    useful: u64,
}

impl Load {
    /// A round is over.
    fn round(&mut self, polled: u32, admitted: u32, busy: u64, useful: u64) {
        if busy > 0 {
            let add = |sum: u64, more: u64| sum - sum / 8 + more;
            self.polled = add(self.polled, u64::from(polled) << 8);
            self.admitted = add(self.admitted, u64::from(admitted) << 8);
            self.busy = add(self.busy, busy.min(1 << 40) << 8);
            self.useful = add(self.useful, useful.min(1 << 40) << 8);
        }
    }

    /// Cycles that so many packets will take, of which as many are refused as lately.
    fn of(&self, packets: u32) -> u64 {
        let all = u128::from(self.busy) * u128::from(packets) / u128::from(self.polled.max(1));
        u64::try_from(all).unwrap_or(u64::MAX)
    }

    /// Cycles of a packet that is admitted, all others on its back.
    fn each(&self) -> u64 {
        self.busy / self.admitted.max(1)
    }
}

/// The controller of a core.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct WaitControl {
    load: Load,
    /// Load is told by time: the ring is long enough for that.
    on: bool,
    /// Frames that the ring holds.
    ring: u32,
    /// T, cycles.
    target: u64,
    /// e.
    error: i64,
    /// What is left in this round of what flows may save up of their rate, and of their packets, 16
    /// fraction bits; and how many of the latter are lacking.
    patience: u64,
    kept: u64,
    lacking: i64,
    /// Work besides that is lacking, 16 fraction bits: what brings the wait back if all flows are
    /// limited.
    excess: i64,
    /// [`WaterLevel::packets`].
    packets: u64,
    /// Frames fetched in the round before, and all that were refused until then.
    polled: u32,
    refused: u64,
}

impl WaitControl {
    pub(super) fn is_on(&self) -> bool {
        self.on
    }

    /// The rule begins anew; what packets cost stays known.
    pub(super) fn restart(&mut self) {
        *self = Self { load: self.load, polled: self.polled, ..Self::default() };
    }

    /// The round before is over: so many of its packets were admitted, for work of so many cycles.
    pub(super) fn round_ends(&mut self, poll: &Poll, admitted: u32, useful: u64) {
        self.load.round(self.polled, admitted, poll.busy.0, useful);
        self.polled = poll.polled;
    }

    /// Whether load is told by time, with packets that may wait for `wait` cycles: a ring full of
    /// packets that are admitted takes more than a part of that; if it was so, it remains so down
    /// to half of it: as dear packets are refused, those that are admitted become cheaper. Not
    /// where refusing takes a twentieth of the core, or a tenth once it is so: less is polled where
    /// the ring tells load. The target is such that a ring has room for three times as many.
    pub(super) fn choose(&mut self, ring: u32, wait: u64, rule: &WaterLevel) -> bool {
        (self.ring, self.packets) = (ring.max(1), rule.packets.into());
        self.target = wait.min(self.load.of(ring) / 4).max(1);
        let each = self.load.useful / self.load.admitted.max(1);
        let full = u128::from(each) * u128::from(ring) * SHORTEST_RING;
        let (least, part) = if self.on { (wait / 2, 90) } else { (wait, 95) };
        self.on = full > u128::from(least) && self.load.useful * 100 >= self.load.busy * part;
        self.on
    }

    fn in_targets(&self, cycles: u64) -> i64 {
        let targets = u128::from(cycles) * UNIT as u128 / u128::from(self.target);
        i64::try_from(targets).unwrap_or(MOST).min(MOST)
    }

    /// Takes up what the fetch showed, and moves the level. `elapsed` cycles since the one before;
    /// `refused` until now; `affordable`: refusing takes no larger part of the core than it may.
    pub(super) fn follow(
        &mut self,
        level: &mut Level,
        poll: &Poll,
        elapsed: u64,
        refused: u64,
        affordable: bool,
    ) {
        let wait = self.in_targets(self.load.of(poll.queued.saturating_add(poll.polled)));
        // A ring that is half full is as bad as the target: it must not overflow before packets
        // have waited for so long.
        let waiting = i64::from(poll.waiting) + i64::from(poll.polled);
        let filled = waiting * 2 * UNIT / i64::from(self.ring);
        let far = wait.max(filled).min(LONGEST_OF_ALL * UNIT) - UNIT;
        self.error = far.min((LONGEST - 1) * UNIT);
        self.patience = grown(UNIT as u64, -(SHRINK * self.error) >> 16);
        self.kept = grown(UNIT as u64, -(SHRINK * (far - FAR).max(0)) >> 16);
        self.lacking = if far < 0 { far * IDLE_PACKETS } else { far };
        let part = (u128::from(self.target) * u128::from(level.level())) >> 33;
        self.excess = (part as i64).saturating_mul(self.error);

        let delay = u128::from(self.packets.saturating_mul(self.load.each())) << 32;
        let delay = u64::try_from(delay / u128::from(level.level())).unwrap_or(u64::MAX);
        let slow = UNIT + self.in_targets(delay);
        let pull = far.min(UNIT.max(far - (FAR - UNIT)));
        let fall = ((INTEGRAL * pull / slow) * self.in_targets(elapsed)) >> 16;
        let fall = if affordable { fall } else { fall.min(0) };
        let idle = match poll.busy.0 {
            0 => 0,
            busy => self.in_targets(elapsed.saturating_sub(busy)),
        };
        let wasted = if refused > self.refused { idle } else { 0 };
        self.refused = refused;
        level.grow(wasted + UNUSED * idle / slow - fall);
    }

    /// The rate at which flows are served in this round.
    pub(super) fn rate(&self, level: u64) -> u64 {
        grown(level, -(PROPORTIONAL * self.error) >> 16)
    }

    /// What is left of what a flow may save up in this round.
    pub(super) fn left_of(&self, saved: u64) -> u64 {
        ((u128::from(saved) * u128::from(self.patience)) >> 16) as u64
    }

    /// How far a flow whose packets are charged `each` (2^-16 cycles) may be ahead of its rate in
    /// this round, whatever its rate. A flow that could save up less than some packets would lose
    /// of its rate whenever its next packets come a little later.
    pub(super) fn saved(&self, each: u64) -> u64 {
        let each = i128::from(each);
        let all = (each * i128::from(self.packets * self.kept)) >> 16;
        let lacking = ((each * i128::from(self.lacking)) >> 16) + i128::from(self.excess);
        // A quarter is left, for trains.
        u64::try_from((all - lacking).max(all / 4)).unwrap_or(u64::MAX)
    }
}

/// Whether a flow that is `ahead` of its rate may have a packet more, charged `each`, where
/// such flows may be ahead by `saved`. Flows that are limited alike would all come in the same
/// round, and none in the next: each has a part of a packet more, by its tag.
#[inline]
pub(super) fn is_within(ahead: u64, saved: u64, each: u64, tag: u32) -> bool {
    let apart = (u128::from(each) * u128::from(tag)) >> 32;
    ahead <= saved.saturating_add(apart as u64)
}

/// log2(e).
const LOG2_E: i64 = 94_548;

/// `value * exp(exponent)`; 16 fraction bits of the exponent, 11 bits of precision.
pub(super) fn grown(value: u64, exponent: i64) -> u64 {
    let power = (exponent.clamp(-16 * UNIT, 16 * UNIT) * LOG2_E) >> 16;
    let (whole, part) = (power >> 16, (power & 0xffff) as u64);
    // 2^x = 1 + 0.6955 x + 0.2262 x^2 + 0.0783 x^3 for x in 0..1.
    let cubic = 14_825 + ((5_131 * part) >> 16);
    let factor = 65_536 + ((part * (45_580 + ((part * cubic) >> 16))) >> 16);
    let value = (u128::from(value) * u128::from(factor)) >> 16;
    let grown = if whole < 0 { value >> -whole } else { value << whole };
    u64::try_from(grown).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grows_by_the_exponential() {
        for exponent in [-500_000, -65_536, -40_000, -700, -1, 0, 1, 700, 40_000, 65_536, 500_000] {
            let exact = 1e9 * (f64::from(exponent) / 65_536.0).exp();
            let got = grown(1_000_000_000, i64::from(exponent)) as f64;
            assert!((got / exact - 1.0).abs() < 1e-3, "{exponent}: {got} for {exact}");
        }
        assert_eq!((grown(u64::MAX, i64::MAX >> 20), grown(1, i64::MIN >> 20)), (u64::MAX, 0));
    }
}
