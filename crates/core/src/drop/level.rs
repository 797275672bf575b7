//! The water level of a core: which part of it a flow of weight 1 may use. Steered by the ring.

/// 1: the whole core.
const ONE: u64 = 1 << 32;
/// Below this nobody could send anything.
const LOWEST: u64 = 1 << 8;
/// A round raises the level by level >> UP or lowers it by level >> DOWN. While the ring overflows and the level must fall, steps double every
/// [`PATIENCE`] rounds up to level >> FASTEST. Rising is never urgent: with a level that is too low the ring runs empty, and then nothing is
/// refused at all.
const UP: u32 = 10;
const DOWN: u32 = 8;
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
    /// Some flow's shadow queue ran empty: it is below the level. (A limited flow empties now and then by chance, the more rarely the more it
    /// may save up.)
    pub(super) below: bool,
    /// Fetching and refusing take no larger part of the core than is allowed.
    pub(super) affordable: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Level {
    level: u64,
    /// Rounds in a row that fell while the ring overflowed.
    falling: u32,
}

impl Default for Level {
    fn default() -> Self {
        Self { level: ONE, falling: 0 }
    }
}

impl Level {
    pub(super) fn level(&self) -> u64 {
        self.level
    }

    /// The rate at which flows are served in this round: the level, times 3/2 with an empty ring to 1/2 with a full one. This answers at once,
    /// while the level itself moves slowly: without it the ring, itself an integrator, would swing.
    pub(super) fn rate(&self, waiting: u32, ring: u32) -> u64 {
        let (waiting, ring) = (u64::from(waiting.min(ring)), u64::from(ring));
        self.level / 2 * (3 * ring - 2 * waiting) / ring
    }

    pub(super) fn follow(&mut self, seen: &Pressure) {
        let falls = seen.overloaded && seen.waiting > seen.ring / 2 && seen.below && seen.affordable;
        let overflows = seen.waiting >= seen.ring - seen.ring / 16;
        self.falling = if falls && overflows { self.falling.saturating_add(1) } else { 0 };
        let down = self.level >> DOWN.saturating_sub(self.falling / PATIENCE).max(FASTEST);
        self.level = match falls {
            true => self.level.saturating_sub(down.max(1)).max(LOWEST),
            false => (self.level + (self.level >> UP).max(1)).min(ONE),
        };
    }
}
