//! When which port has something to do, and up to when the links have advanced.

use evenkeel_core::Nanos;

/// Nothing is known of what a port has to do: it was touched since the last round, or its link
/// waits for the port.
const UNKNOWN: Nanos = Nanos::ZERO;
/// A port has nothing to do until it is touched.
const NEVER: Nanos = Nanos::MAX;

/// What a port did when it was advanced.
pub(super) struct Progress {
    /// When it has more to do; `Nanos::ZERO`: it waits for its port; `Nanos::MAX`: never.
    pub(super) due: Nanos,
    /// Whether it gave frames to its port.
    pub(super) sent: bool,
}

/// See the module.
pub(super) struct Agenda {
    /// By port, when its link, control or admission has something to do; or [`UNKNOWN`], [`NEVER`].
    due: Vec<Nanos>,
    /// The ports with something to do, a bit of a word for each: a round looks at no others.
    active: Vec<u64>,
    /// The least of their times.
    soonest: Nanos,
    /// The ports that sent something in the last round.
    senders: Vec<u16>,
    /// The time up to which all links have advanced: nothing enters them before it.
    advanced: Nanos,
    last_round: Nanos,
    /// By how much of a pause between rounds the links may catch up; `None`: all of it.
    max_catch_up: Option<Nanos>,
}

/// Bits of a word.
const WORD: usize = u64::BITS as usize;

/// The numbers of the bits that are set, from the lowest on.
fn set_bits(mut word: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let bit = word.trailing_zeros() as usize;
        word &= word.wrapping_sub(1);
        (bit < WORD).then_some(bit)
    })
}

impl Agenda {
    pub(super) fn new(ports: usize, now: Nanos) -> Self {
        let all =
            (0..ports).step_by(WORD).map(|first| u64::MAX >> (WORD - WORD.min(ports - first)));
        Self {
            due: vec![UNKNOWN; ports],
            active: all.collect(),
            soonest: UNKNOWN,
            senders: Vec::with_capacity(ports),
            advanced: Nanos::ZERO,
            last_round: now,
            max_catch_up: None,
        }
    }

    /// Has the next round look at the port: its link, control or admission was changed.
    #[inline]
    pub(super) fn touch(&mut self, at: usize) {
        self.due[at] = UNKNOWN;
        self.active[at / WORD] |= 1 << (at % WORD);
        self.soonest = UNKNOWN;
    }

    pub(super) fn set_max_catch_up(&mut self, bound: Option<Nanos>) {
        self.max_catch_up = bound;
    }

    /// A round begins. Gives the time up to which links may not catch up, if the pause before was
    /// longer than the bound: what is late by more is late by the bound.
    ///
    /// The pause counts from the round before, not from what has been read: frames that wait to be
    /// received do not hold the links up.
    pub(super) fn begin_round(&mut self, now: Nanos) -> Option<Nanos> {
        self.senders.clear();
        let pause = now.saturating_sub(std::mem::replace(&mut self.last_round, now));
        let bound = self.max_catch_up.filter(|bound| pause > *bound)?;
        Some(self.advanced.saturating_add(pause - bound))
    }

    pub(super) fn last_round(&self) -> Nanos {
        self.last_round
    }

    /// The time up to which all links have advanced.
    #[inline]
    pub(super) const fn advanced(&self) -> Nanos {
        self.advanced
    }

    /// The time at which a packet that arrived at `arrival` enters its link.
    #[inline]
    pub(super) fn entry_time(&self, arrival: Nanos) -> Nanos {
        arrival.max(self.advanced)
    }

    /// Has `advance` bring every port that is due up to `now`.
    #[inline]
    pub(super) fn advance(&mut self, now: Nanos, mut advance: impl FnMut(usize) -> Progress) {
        self.advanced = self.advanced.max(now);
        let mut soonest = NEVER;
        let Self { due, active, senders, .. } = self;
        for (first, word) in (0..).step_by(WORD).zip(active) {
            for bit in set_bits(*word) {
                let at = first + bit;
                let due = &mut due[at];
                if *due <= now {
                    let progress = advance(at);
                    *due = progress.due;
                    if progress.sent {
                        senders.push(at as u16);
                    }
                }
                soonest = soonest.min(*due);
                if *due == NEVER {
                    *word &= !(1 << bit);
                }
            }
        }
        self.soonest = soonest;
    }

    /// The ports that sent something in the last round; one that was asked twice is there twice.
    pub(super) fn senders(&self) -> &[u16] {
        &self.senders
    }

    /// When the first port has something to do; `Nanos::MAX`: never. `ask` is asked for the time
    /// of ports of which it is not known.
    pub(super) fn next_wake(&self, ask: impl Fn(usize) -> Nanos) -> Nanos {
        if self.soonest != UNKNOWN {
            return self.soonest;
        }
        let due = |at| match self.due[at] {
            UNKNOWN => ask(at),
            known => known,
        };
        let words = (0..).step_by(WORD).zip(&self.active);
        let active = words.flat_map(|(first, word)| set_bits(*word).map(move |bit| first + bit));
        active.map(due).fold(NEVER, Nanos::min)
    }

    /// Goes on from where another pipeline has got to.
    pub(super) fn take_over(&mut self, old: &Self) {
        self.advanced = self.advanced.max(old.advanced);
        self.last_round = old.last_round;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn advance(agenda: &mut Agenda, now: u64, due: Nanos) -> Vec<usize> {
        let mut asked = Vec::new();
        agenda.advance(Nanos(now), |at| {
            asked.push(at);
            Progress { due, sent: at == 1 }
        });
        asked
    }

    #[test]
    fn only_ports_that_are_due_or_were_touched_are_advanced() {
        let mut agenda = Agenda::new(3, Nanos::ZERO);
        assert_eq!(agenda.next_wake(|at| Nanos(5 + at as u64)), Nanos(5), "nothing is known yet");
        assert_eq!(advance(&mut agenda, 1, NEVER), [0, 1, 2]);
        assert_eq!((agenda.senders(), agenda.next_wake(|_| Nanos::ZERO)), (&[1_u16][..], NEVER));
        agenda.touch(2);
        agenda.touch(0);
        assert_eq!(advance(&mut agenda, 2, Nanos(10)), [0, 2], "in the order of ports");
        assert_eq!(advance(&mut agenda, 9, NEVER), [0; 0]);
        assert_eq!(agenda.next_wake(|_| Nanos::ZERO), Nanos(10));
        assert_eq!(advance(&mut agenda, 10, NEVER), [0, 2]);
        assert_eq!(agenda.entry_time(Nanos(3)), Nanos(10), "nothing enters where links have been");
    }

    #[test]
    fn links_catch_up_with_a_part_of_a_long_pause_only() {
        let mut agenda = Agenda::new(1, Nanos(100));
        agenda.advance(Nanos(100), |_| Progress { due: NEVER, sent: true });
        assert_eq!(agenda.begin_round(Nanos(1_000)), None, "without a bound");
        assert_eq!(agenda.senders(), [0_u16; 0]);
        agenda.set_max_catch_up(Some(Nanos(10)));
        assert_eq!(agenda.begin_round(Nanos(1_010)), None);
        assert_eq!(agenda.begin_round(Nanos(1_060)), Some(Nanos(140)), "50 late, 40 are lost");
    }
}
