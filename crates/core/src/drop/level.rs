//! The water level of a core: which part of it a flow of weight 1 may use. Steered by the ring
//! here, and where rings are long for their packets by time: [`wait`](super::wait).

use super::wait::grown;

/// 1: the whole core.
const ONE: u64 = 1 << 32;
/// Below this no flow could send anything.
const LOWEST: u64 = 1 << 8;
/// A round raises the level by level >> UP or lowers it by level >> DOWN. While the ring overflows
/// and the level must fall, steps double every [`PATIENCE`] rounds up to level >> FASTEST. Rising
/// is never urgent: with a level that is too low the ring runs empty, and then nothing is refused
/// at all.
///
/// In a full ring the level rises by level >> WARY only, as long as someone was below it in the
/// last [`RECENT`] rounds: so one flow of a thousand that is below it, and shows so in every
/// twentieth round, is enough to hold it; and once nobody is, the level does not take seconds to
/// recover.
const UP: u32 = 10;
const WARY: u32 = 12;
const RECENT: u32 = 160;
const DOWN: u32 = 7;
const FASTEST: u32 = 3;
const PATIENCE: u32 = 24;

/// What one round showed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pressure {
    /// Frames that waited in the ring before the fetch.
    pub(super) waiting: u32,
    /// What it holds.
    pub(super) ring: u32,
    /// The ring held a burst at least.
    pub(super) overloaded: bool,
    /// Some flow's shadow queue was found empty: it is below the level. (A limited flow empties now
    /// and then by chance, the more rarely the more it may save up.)
    pub(super) below: bool,
    /// Fetching and refusing take no larger part of the core than is allowed.
    pub(super) affordable: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Level {
    level: u64,
    /// Rounds in a row that fell while the ring overflowed.
    falling: u32,
    /// Rounds since some flow was below the level; 0: in the last round.
    quiet: u32,
}

impl Default for Level {
    fn default() -> Self {
        Self { level: ONE, falling: 0, quiet: 0 }
    }
}

impl Level {
    pub(super) fn level(&self) -> u64 {
        self.level
    }

    /// Multiplies the level by exp(`exponent`), 16 fraction bits.
    pub(super) fn grow(&mut self, exponent: i64) {
        self.level = grown(self.level, exponent).clamp(LOWEST, ONE);
        (self.falling, self.quiet) = (0, 0);
    }

    /// The rate at which flows are served in this round: the level, a quarter more with an empty
    /// ring and a quarter less with a full one; and an eighth less if some flow was below the level
    /// in the last round, an eighth more if not. This answers at once, while the level itself moves
    /// slowly: without the first the ring, itself an integrator, would swing; without the second
    /// the shadow queue of a flow whose share is just about what it offers would, and the level
    /// with it.
    pub(super) fn rate(&self, waiting: u32, ring: u32) -> u64 {
        let (waiting, ring) = (u64::from(waiting.min(ring)), u64::from(ring));
        let rate = self.level / 4 * (5 * ring - 2 * waiting) / ring;
        if self.quiet == 0 { rate - self.level / 8 } else { rate + self.level / 8 }
    }

    pub(super) fn follow(&mut self, seen: &Pressure) {
        self.quiet = if seen.below { 0 } else { self.quiet.saturating_add(1) };
        let filled = seen.waiting > seen.ring / 2;
        let falls = seen.overloaded && filled && seen.below && seen.affordable;
        let up = self.level >> if filled && self.quiet < RECENT { WARY } else { UP };
        let overflows = seen.waiting >= seen.ring - seen.ring / 16;
        self.falling = if falls && overflows { self.falling.saturating_add(1) } else { 0 };
        let down = self.level >> DOWN.saturating_sub(self.falling / PATIENCE).max(FASTEST);
        self.level = match falls {
            true => self.level.saturating_sub(down.max(1)).max(LOWEST),
            false => (self.level + up.max(1)).min(ONE),
        };
    }
}
