//! The latest packets that a link dropped or marked, so that it can be said of a flow which rule it
//! was.

use std::fmt::Write as _;

use evenkeel_core::{Nanos, Reason};

/// Packets that are remembered for each link.
const REMEMBERED: usize = 512;

/// What became of a packet.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Fate {
    Dropped(Reason),
    Marked,
}

#[derive(Clone, Copy, Debug)]
struct Loss {
    at: Nanos,
    flow: u64,
    fate: Fate,
}

/// See the module.
pub(super) struct Losses {
    ring: Vec<Loss>,
    /// Of a full ring the oldest, whose place the next one gets.
    oldest: usize,
}

impl Losses {
    pub(super) fn new() -> Self {
        Self { ring: Vec::with_capacity(REMEMBERED), oldest: 0 }
    }

    pub(super) fn dropped(&mut self, at: Nanos, flow: u64, reason: Reason) {
        self.note(Loss { at, flow, fate: Fate::Dropped(reason) });
    }

    pub(super) fn marked(&mut self, at: Nanos, flow: u64) {
        self.note(Loss { at, flow, fate: Fate::Marked });
    }

    #[cold]
    fn note(&mut self, loss: Loss) {
        if self.ring.len() < REMEMBERED {
            self.ring.push(loss);
        } else {
            self.ring[self.oldest] = loss;
            self.oldest = (self.oldest + 1) % REMEMBERED;
        }
    }

    /// Sentences about a flow, a line each; none if nothing of it is among those.
    pub(super) fn explain(&self, now: Nanos, flow: u64) -> String {
        let mut by: Vec<(Fate, u32, Nanos)> = Vec::new();
        for loss in self.ring.iter().filter(|loss| loss.flow == flow) {
            match by.iter_mut().find(|(fate, ..)| *fate == loss.fate) {
                Some((_, count, last)) => (*count, *last) = (*count + 1, loss.at.max(*last)),
                None => by.push((loss.fate, 1, loss.at)),
            }
        }
        by.sort_by_key(|(_, _, last)| std::cmp::Reverse(*last));
        let mut text = String::new();
        for (fate, count, last) in by {
            let (what, why) = match fate {
                Fate::Dropped(reason) => (format!("dropped, {reason}"), reason.describe()),
                Fate::Marked => (
                    "marked".to_owned(),
                    " Its queue stood or had waited for longer than the step, and its sender \
                     listens (ECN).",
                ),
            };
            let ago = now.saturating_sub(last);
            let of = self.ring.len();
            let _ = writeln!(
                text,
                "  {count} of the latest {of} dropped or marked here, the last {ago} ago: \
                 {what}:{why}"
            );
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flow_is_told_which_rule_it_was_and_old_ones_are_forgotten() {
        let mut losses = Losses::new();
        assert_eq!(losses.explain(Nanos(9), 1), "");
        losses.dropped(Nanos(1_000), 1, Reason::StandingQueue);
        losses.dropped(Nanos(3_000), 1, Reason::StandingQueue);
        losses.marked(Nanos(2_000), 1);
        losses.dropped(Nanos(2_500), 2, Reason::Unresponsive);
        let told = losses.explain(Nanos(5_000), 1);
        let lines: Vec<_> = told.lines().collect();
        assert_eq!(lines.len(), 2, "{told}");
        assert!(lines[0].starts_with("  2 of the latest 4") && lines[0].contains("standing_queue"));
        assert!(lines[1].starts_with("  1 of the latest 4") && lines[1].contains("marked"));
        for n in 0..REMEMBERED as u64 {
            losses.marked(Nanos(9_000 + n), 3);
        }
        assert_eq!(losses.explain(Nanos(9_999), 1), "");
        assert!(losses.explain(Nanos(9_999), 3).contains("512 of the latest 512"));
    }
}
