//! The audit of a core's shares: whether flows that are refused had as many cycles as those that
//! had most.
//!
//! Max-min says so of each flow that asked for more than it got: nobody of its group may have had
//! more, by weight. Some dozens of flows are sampled by their hash. Of each it is counted how often
//! it was refused in each of eight parts of a window of a second, and what its admitted packets
//! cost by what packets of their kind were measured to cost, before they are rescaled. A flow
//! that was refused in every part asked all the time; where the receive ring was full nearly
//! always, so did each flow that was met in every part: all of them lose there.
//!
//! Every flow is promised its max-min share within 5 %, so two flows may differ by 10 %, and by
//! some packets. Only rule `level` promises it: the thresholds of the published rules choose one of
//! many points, see [`fairdrop`](super::fairdrop).
//!
//! Of many packets a part is looked at, drawn at random, some ten thousands in a window; then two
//! flows may differ by what is drawn besides.
//!
//! Not seen: who is not in the sample, or shares its place there with another.
//!
//! Cost: some instructions for each packet to count down to the next that is looked at.

use alloc::vec::Vec;

use super::config::{FlowTableConfig, Rule, ShareId};
use super::fairdrop::CpuFairDrop;
use crate::audit::Cause;
use crate::units::Cycles;

/// Places: as six bits tell apart.
const PLACES: usize = 64;
/// Spreads hashes over all bits (Knuth, 6.4).
const MIXES: u64 = 0x9e37_79b9_7f4a_7c15;
/// Parts of a window, and all of them as bits.
const PARTS: u32 = 8;
const ALL: u32 = (1 << PARTS) - 1;
/// Two flows may differ by so much of what one had,
const DIFFER: f64 = 0.1;
/// and by so many packets.
const PACKETS: u64 = 4;
/// Packets that are looked at in a window, about; if there are fewer, all of them.
const DRAWN: u32 = 50_000;
/// Until it is known how many come in a window, one of so many is.
const FIRST: u32 = 16;
/// Where not all are, by so many standard deviations.
const DEVIATIONS: f64 = 5.0;

#[derive(Clone, Copy, Debug, Default)]
struct Sampled {
    hash: u64,
    share: u8,
    /// In which parts of the window it was met, and refused.
    met: u32,
    refused: u32,
    /// What its admitted packets cost, and the dearest of them, cycles.
    work: u64,
    dearest: u64,
}

/// A flow that had too little.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct CyclesViolation {
    /// When, by the worker's own time.
    pub at: Cycles,
    /// Whose share it has, and the flow's that had more.
    pub share: ShareId,
    /// See there.
    pub other: ShareId,
    /// What it had for each cycle that it should have had, as the other had, millionths.
    pub delivered_ppm: u32,
    /// Why.
    pub cause: Cause,
}

/// What the audit of a core has found.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct CyclesVerdict {
    /// Windows in which some flow asked for more than it got.
    pub overloaded: u64,
    /// Of those, in how many some flow was further behind another than is allowed. Never falls.
    pub violations: u64,
    /// Flows that were compared, in the last of those windows.
    pub compared: u32,
    /// Of how many flows one is looked at.
    pub one_of: u64,
    /// The furthest that a flow was behind another in one of them, millionths of what it should
    /// have had.
    pub worst_ppm: u32,
    /// The last violation.
    pub last: Option<CyclesViolation>,
}

#[derive(Clone, Debug)]
pub(super) struct Audit {
    /// Hashes with none of these bits are in the sample.
    mask: u64,
    places: [Sampled; PLACES],
    /// The place of the packet of the sample that was judged last.
    judged: usize,
    /// One packet of so many is looked at, and how many come before the next; how many will have
    /// been judged by then.
    every: u32,
    left: u32,
    until: u64,
    random: u32,
    /// How many were looked at in this window.
    drawn: u32,
    part: u32,
    /// When the part ends, and how long it is.
    due: Cycles,
    length: u64,
    /// How often a burst was fetched in this part, and how often from a ring without a place.
    polls: [u32; 2],
    /// In which parts the receive ring was full nearly always.
    full: u32,
    unplaced: u64,
    verdict: CyclesVerdict,
}

/// What the dropper knows besides.
pub(super) struct Outside<'a> {
    pub(super) table: &'a FlowTableConfig,
    /// Packets of flows without a place in the dropper's table.
    pub(super) unplaced: u64,
    /// Whether its rule promises max-min.
    pub(super) promises: bool,
}

impl Audit {
    pub(super) fn new() -> Self {
        Self {
            mask: 0,
            places: [Sampled::default(); PLACES],
            judged: 0,
            every: FIRST,
            left: 1,
            until: 1,
            random: 1,
            drawn: 0,
            part: 0,
            due: Cycles::ZERO,
            length: 0,
            polls: [0; 2],
            full: 0,
            unplaced: 0,
            verdict: CyclesVerdict::default(),
        }
    }

    pub(super) fn verdict(&self) -> CyclesVerdict {
        CyclesVerdict { one_of: self.mask + 1, ..self.verdict.clone() }
    }

    /// A packet is to be judged. Whether it is in the sample.
    #[inline]
    pub(super) fn meets(&mut self, hash: u64, share: ShareId) -> bool {
        self.left -= 1;
        self.left == 0 && self.look_at(hash, share)
    }

    /// How many packets were judged.
    pub(super) fn judged(&self) -> u64 {
        self.until - u64::from(self.left)
    }

    fn look_at(&mut self, hash: u64, share: ShareId) -> bool {
        // Not each n-th: flows may come in turns.
        self.random = self.random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        self.left = 1 + (self.random >> 8) % (2 * self.every - 1);
        self.until += u64::from(self.left);
        self.drawn += 1;
        let mixed = hash.wrapping_mul(MIXES);
        mixed >> 20 & self.mask == 0 && self.find(hash, (mixed >> 58) as usize, share)
    }

    fn find(&mut self, hash: u64, at: usize, share: ShareId) -> bool {
        let place = &mut self.places[at];
        if place.met == 0 {
            *place = Sampled { hash, share: share.0, ..Sampled::default() };
        } else if place.hash != hash {
            return false;
        }
        place.met |= 1 << self.part;
        self.judged = at;
        true
    }

    /// The packet of the sample that was met last is refused.
    #[cold]
    pub(super) fn refused(&mut self) {
        self.places[self.judged].refused |= 1 << self.part;
    }

    /// It is admitted, and costs so much.
    #[cold]
    pub(super) fn charged(&mut self, cycles: u64) {
        let place = &mut self.places[self.judged];
        place.work += cycles;
        place.dearest = place.dearest.max(cycles);
    }

    /// A burst was fetched; `full`: from a ring that had no place.
    #[inline]
    pub(super) fn polled(&mut self, full: bool) {
        self.polls[0] += 1;
        self.polls[1] += u32::from(full);
    }

    /// Whether a part is over, or time runs backwards.
    #[inline]
    pub(super) fn is_due(&self, now: Cycles) -> bool {
        now >= self.due || self.due.0 - now.0 > self.length
    }

    /// Begins the next part, and behind the last of them another window.
    #[cold]
    pub(super) fn look(&mut self, now: Cycles, clock: u64, outside: &Outside<'_>) {
        self.length = clock / u64::from(PARTS);
        // After a pause of more than a part the window begins anew: nobody asked all the time.
        let paused = now < self.due || now.0 - self.due.0 > self.length;
        self.due = Cycles(now.0.saturating_add(self.length));
        let [polls, full] = core::mem::take(&mut self.polls);
        self.full |= u32::from(full > polls / 10 * 9) << self.part;
        if paused {
            self.begin(outside);
        } else if self.part + 1 < PARTS {
            self.part += 1;
        } else {
            if outside.promises {
                self.compare(now, outside);
            }
            self.begin(outside);
        }
    }

    /// Another window; the sample becomes smaller where many share their places.
    fn begin(&mut self, outside: &Outside<'_>) {
        let met = self.places.iter().filter(|place| place.met > 0).count();
        if met > PLACES * 3 / 4 {
            self.mask = self.mask << 1 | 1;
        } else if met < PLACES / 8 {
            self.mask >>= 1;
        }
        let packets = u64::from(self.drawn) * u64::from(self.every);
        self.every = u32::try_from(packets / u64::from(DRAWN)).unwrap_or(u32::MAX >> 1).max(1);
        self.drawn = 0;
        self.places = [Sampled::default(); PLACES];
        self.unplaced = outside.unplaced;
        (self.part, self.full) = (0, 0);
    }

    fn compare(&mut self, now: Cycles, outside: &Outside<'_>) {
        let lost = self.full == ALL;
        let met: Vec<&Sampled> = self.places.iter().filter(|place| place.met > 0).collect();
        let asks = |place: &&&Sampled| place.refused == ALL || lost && place.met == ALL;
        let shares = &outside.table.shares;
        let of = |place: &Sampled| *shares.get(usize::from(place.share)).unwrap_or(&shares[0]);
        let (mut compared, mut worst) = (0, None::<(f64, CyclesViolation)>);
        for behind in met.iter().filter(asks) {
            compared += 1;
            let (share, had) = (of(behind), behind.work as f64);
            for ahead in &met {
                let other = of(ahead);
                if other.group != share.group {
                    continue;
                }
                let times = f64::from(share.weight) / f64::from(other.weight);
                let due = ahead.work as f64 * times;
                let packets = behind.dearest as f64 + ahead.dearest as f64 * times;
                let chance = if self.every > 1 {
                    let of =
                        |work: f64, cost: u64| (work as u64).saturating_mul(cost).isqrt() as f64;
                    let other = ahead.work as f64;
                    DEVIATIONS * (of(due, behind.dearest) + times * of(other, ahead.dearest))
                } else {
                    0.0
                };
                let allowed = DIFFER * due + PACKETS as f64 * packets + chance;
                let behind_by = (due - had) / due.max(1.0);
                self.verdict.worst_ppm = self.verdict.worst_ppm.max((behind_by * 1e6) as u32);
                let beyond = (due - had) / allowed.max(1.0);
                if beyond <= 1.0 || worst.as_ref().is_some_and(|(most, _)| *most >= beyond) {
                    continue;
                }
                let cause = if outside.unplaced > self.unplaced {
                    Cause::TableFull
                } else if behind.refused != ALL {
                    Cause::ReceiveRing
                } else {
                    Cause::Discipline
                };
                let delivered_ppm = ((1.0 - behind_by) * 1e6) as u32;
                let (share, other) = (ShareId(behind.share), ShareId(ahead.share));
                worst =
                    Some((beyond, CyclesViolation { at: now, share, other, delivered_ppm, cause }));
            }
        }
        if compared > 0 {
            self.verdict.overloaded += 1;
            self.verdict.compared = compared;
        }
        if let Some((_, broken)) = worst {
            self.verdict.violations += 1;
            self.verdict.last = Some(broken);
        }
    }
}

impl CpuFairDrop {
    /// The audit looks.
    #[cold]
    pub(super) fn look(&mut self, now: Cycles) {
        let outside = Outside {
            table: &self.config.table,
            unplaced: self.shadow.table.unplaced,
            promises: matches!(self.config.rule, Rule::Level(_)),
        };
        self.audit.look(now, self.config.clock, &outside);
    }

    /// Counts what the audit of another dropper of this core had found; its last violation is
    /// forgotten.
    pub fn take_over(&mut self, earlier: &CyclesVerdict) {
        let verdict = &mut self.audit.verdict;
        verdict.overloaded += earlier.overloaded;
        verdict.violations += earlier.violations;
        verdict.worst_ppm = verdict.worst_ppm.max(earlier.worst_ppm);
    }

    /// What the audit of its shares has found.
    #[must_use]
    pub fn verdict(&self) -> CyclesVerdict {
        self.audit.verdict()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drop::{CpuConfig, Poll, ProcessingClass, Share};

    const CLOCK: u64 = 2_000_000_000;
    /// Cycles of a packet of each of three flows, which offer three times what there is together.
    const COSTS: [u64; 3] = [500, 2_000, 8_000];

    /// A core that is driven for three seconds; `breaks` is done after each fetch.
    fn run(breaks: impl FnMut(&mut CpuFairDrop)) -> CyclesVerdict {
        run_of(COSTS, breaks)
    }

    fn run_of(costs: [u64; 3], mut breaks: impl FnMut(&mut CpuFairDrop)) -> CyclesVerdict {
        let shares = vec![Share { weight: 1, group: 0 }; 3];
        let mut cpu = CpuFairDrop::new(CpuConfig {
            table: FlowTableConfig { flows: 64, shares, groups: vec![1] },
            costs: costs.map(Cycles).into(),
            clock: CLOCK,
            ..CpuConfig::default()
        })
        .unwrap();
        let ring = u64::from(cpu.config().ring);
        let (mut now, mut busy, mut waiting, mut drawn) = (0, 0, 0, 0_u64);
        while now < 3 * CLOCK {
            // As many packets of each, so that all cycles of the second would do for a third.
            waiting = ring.min(waiting + 1 + busy * 9 / costs.iter().sum::<u64>());
            let polled = waiting.min(256);
            waiting -= polled;
            let seen = waiting as u32;
            cpu.begin_batch(&Poll {
                now: Cycles(now),
                busy: Cycles(busy),
                polled: polled as u32,
                waiting: seen,
                queued: seen,
            });
            breaks(&mut cpu);
            busy = 20 * polled;
            for _ in 0..polled {
                drawn += 1;
                let flow = (drawn.wrapping_mul(MIXES) >> 40) as usize % 3;
                let (hash, share) = (MIXES.wrapping_mul(flow as u64 + 1), ShareId(flow as u8));
                if cpu.admit(hash, share, ProcessingClass(flow as u8)).is_ok() {
                    busy += costs[flow];
                }
            }
            now += busy;
        }
        cpu.verdict()
    }

    #[test]
    fn a_core_that_is_shared_is_not_accused() {
        // The lightest flow has all that it asks for.
        let seen = run(|_| ());
        assert_eq!((seen.violations, seen.overloaded, seen.compared), (0, 2, 2), "{seen:?}");
    }

    #[test]
    fn of_many_packets_a_part_is_looked_at() {
        let seen = run_of([50, 200, 800], |_| ());
        assert_eq!((seen.violations, seen.compared), (0, 2), "{seen:?}");
        let seen = run_of([50, 200, 800], |cpu| {
            cpu.config.table.shares[1].weight = 2;
            // Once it is known how many come, no more are looked at than needed.
            assert!(cpu.audit.drawn < 4 * DRAWN || cpu.verdict().overloaded == 0);
        });
        assert_eq!(seen.last.map(|last| last.share), Some(ShareId(1)), "{seen:?}");
        assert_eq!(seen.violations, 2, "{seen:?}");
    }

    #[test]
    fn time_that_runs_backwards_or_stands_still_is_not_a_window() {
        let outside = Outside { table: &FlowTableConfig::default(), unplaced: 0, promises: true };
        let mut audit = Audit::new();
        let mut looks = 0;
        for now in [1_000, 500, u64::MAX, 0, CLOCK, CLOCK, u64::MAX, 1, CLOCK / PARTS as u64] {
            audit.polled(true);
            if audit.is_due(Cycles(now)) {
                audit.look(Cycles(now), CLOCK, &outside);
                looks += 1;
            }
        }
        // All but the one that stands still and the one that goes back by less than a part.
        assert_eq!((looks, audit.verdict().overloaded, audit.part), (7, 0, 0));
    }

    #[test]
    fn a_weight_that_did_not_reach_the_shadow_is_found() {
        let seen = run(|cpu| cpu.config.table.shares[1].weight = 2);
        let last = seen.last.unwrap_or_else(|| panic!("{seen:?}"));
        assert_eq!((last.share, last.cause), (ShareId(1), Cause::Discipline), "{last:?}");
        assert!((400_000..600_000).contains(&last.delivered_ppm), "{last:?}");
    }

    #[test]
    fn a_dropper_that_refuses_nothing_is_found() {
        let seen = run(|cpu| cpu.shadow.groups[0].limit = u64::MAX);
        let last = seen.last.unwrap_or_else(|| panic!("{seen:?}"));
        assert_eq!((last.share, last.cause), (ShareId(0), Cause::ReceiveRing), "{last:?}");
        assert!(last.delivered_ppm < 100_000, "{last:?}");
    }
}
