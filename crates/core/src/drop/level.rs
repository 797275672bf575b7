//! The water level of a core: which part of it a flow of weight 1 may use. Steered by the ring.

/// 1: the whole core.
const ONE: u64 = 1 << 32;
/// Below this nobody could send anything.
const LOWEST: u64 = 1 << 8;
/// Steps are level >> SLOW at least and level >> FAST at most: they double while the direction stays for [`PATIENCE`] rounds.
const SLOW: u32 = 9;
const FAST: u32 = 3;
const PATIENCE: u32 = 16;

/// What one round showed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pressure {
    /// Frames that wait in the ring.
    pub(super) waiting: u32,
    /// What it holds.
    pub(super) ring: u32,
    /// The ring holds more than one burst.
    pub(super) overloaded: bool,
    /// Some flow is below the level.
    pub(super) below: bool,
    /// Fetching and refusing take no larger part of the core than is allowed.
    pub(super) affordable: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Level {
    level: u64,
    rising: bool,
    /// Rounds in the same direction.
    same: u32,
}

impl Default for Level {
    fn default() -> Self {
        Self { level: ONE, rising: true, same: 0 }
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
        let rising = if !seen.overloaded {
            true
        } else if seen.waiting >= seen.ring - seen.ring / 8 {
            // Frames are lost at the ring.
            !(seen.below && seen.affordable)
        } else {
            seen.waiting < seen.ring / 2
        };
        self.same = if rising == self.rising { self.same.saturating_add(1) } else { 0 };
        self.rising = rising;
        let step = SLOW.saturating_sub(self.same / PATIENCE).max(FAST);
        let step = (self.level >> step).max(1);
        self.level =
            if rising { (self.level + step).min(ONE) } else { self.level.saturating_sub(step).max(LOWEST) };
    }
}
