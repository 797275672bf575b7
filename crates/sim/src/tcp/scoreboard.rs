//! The sender's scoreboard: the state of each segment in flight (RFC 6675, with the segment as its
//! unit).
//!
//! | RFC 6675 | here |
//! |---|---|
//! | HighACK, HighData | the first segment held, the one after the last |
//! | IsLost(), DupThresh = 3 | three segments above it are acknowledged: marked [`LOST`] once, when that becomes so |
//! | pipe, SetPipe() | [`Scoreboard::pipe`], kept up to date at each change |
//! | HighRxt | a mark per segment: [`RESENT`] |
//!
//! One byte per segment in flight; each is marked and looked at a bounded number of times.

use std::collections::VecDeque;

/// Acknowledged selectively.
const SACKED: u8 = 1;
/// Taken for lost.
const LOST: u8 = 2;
/// Sent again since it was taken for lost.
const RESENT: u8 = 4;

/// Segments acknowledged above one that make it lost.
const DUP_THRESH: u64 = 3;

/// All segments in flight, by their number in the connection.
#[derive(Clone, Debug, Default)]
pub(super) struct Scoreboard {
    first: u64,
    marks: VecDeque<u8>,
    sacked: u64,
    /// Lost ones, not acknowledged since: all, and those that were sent again.
    lost: u64,
    resent: u64,
    /// One after the highest acknowledged selectively.
    highest: u64,
    /// Segments below have been looked at for loss.
    judged: u64,
    /// No segment below waits to be sent again.
    hint: u64,
    /// Blocks of the acknowledgement before: most of each one has been seen.
    seen: [Option<(u64, u64)>; super::segment::SACK_BLOCKS],
}

impl Scoreboard {
    /// Number of the next segment never sent.
    pub(super) fn end(&self) -> u64 {
        self.first + self.marks.len() as u64
    }

    /// Segments thought to be on their way.
    pub(super) fn pipe(&self) -> u64 {
        self.marks.len() as u64 - self.sacked - self.lost + self.resent
    }

    /// Segments sent and not acknowledged all the way.
    pub(super) fn flight(&self) -> u64 {
        self.marks.len() as u64
    }

    /// Whether anything is lost and not yet made good.
    pub(super) const fn has_losses(&self) -> bool {
        self.lost > 0
    }

    /// A segment never sent goes out.
    pub(super) fn push(&mut self) {
        self.marks.push_back(0);
    }

    /// Everything below `first` has arrived.
    pub(super) fn advance(&mut self, first: u64) {
        while self.first < first {
            let Some(marks) = self.marks.pop_front() else { break };
            self.first += 1;
            self.sacked -= u64::from(marks & SACKED != 0);
            self.lost -= u64::from(marks & LOST != 0);
            self.resent -= u64::from(marks & RESENT != 0);
        }
        self.judged = self.judged.max(self.first);
        self.hint = self.hint.max(self.first);
        self.highest = self.highest.max(self.first);
    }

    /// Takes in SACK blocks, as numbers of segments: first, and one after the last. True if
    /// anything new was in them.
    pub(super) fn sack(
        &mut self,
        blocks: [Option<(u64, u64)>; super::segment::SACK_BLOCKS],
    ) -> bool {
        let before = self.sacked;
        for (left, right) in blocks.into_iter().flatten() {
            let (mut left, mut right) = (left.max(self.first), right.min(self.end()));
            for (seen_left, seen_right) in self.seen.iter().flatten() {
                if *seen_left <= left && left < *seen_right {
                    left = *seen_right;
                }
                if *seen_left < right && right <= *seen_right {
                    right = *seen_left;
                }
            }
            for number in left..right {
                let marks = &mut self.marks[(number - self.first) as usize];
                if *marks & SACKED == 0 {
                    self.sacked += 1;
                    self.lost -= u64::from(*marks & LOST != 0);
                    self.resent -= u64::from(*marks & RESENT != 0);
                    *marks = SACKED;
                }
            }
            self.highest = self.highest.max(right);
        }
        self.seen = blocks;
        if self.sacked == before {
            return false;
        }
        self.judge();
        true
    }

    /// Marks as lost what has three acknowledged segments above it.
    fn judge(&mut self) {
        let mut above = 0;
        let mut bound = self.highest;
        while bound > self.judged && above < DUP_THRESH {
            bound -= 1;
            above += u64::from(self.marks[(bound - self.first) as usize] & SACKED != 0);
        }
        if above < DUP_THRESH {
            return;
        }
        for number in self.judged..bound {
            let marks = &mut self.marks[(number - self.first) as usize];
            if *marks & (SACKED | LOST) == 0 {
                *marks = LOST;
                self.lost += 1;
            }
        }
        self.judged = self.judged.max(bound);
    }

    /// The retransmission timer has run off: all that is not acknowledged is lost, whatever was
    /// sent again with it.
    pub(super) fn lose_all(&mut self) {
        self.lost = 0;
        for marks in &mut self.marks {
            if *marks & SACKED == 0 {
                *marks = LOST;
                self.lost += 1;
            }
        }
        self.resent = 0;
        self.hint = self.first;
        self.judged = self.end();
    }

    /// NextSeg() (1): the first lost segment that was not sent again, which it is from now on.
    pub(super) fn resend_lost(&mut self) -> Option<u64> {
        if self.lost == self.resent {
            return None;
        }
        self.resend(|marks| marks & (LOST | RESENT) == LOST)
    }

    /// NextSeg() (3): the first segment below the highest acknowledged one of which nothing is
    /// known, taken for lost from now on.
    pub(super) fn resend_doubtful(&mut self) -> Option<u64> {
        let number = (self.judged.max(self.first)..self.highest)
            .find(|number| self.marks[(number - self.first) as usize] == 0)?;
        self.marks[(number - self.first) as usize] = LOST | RESENT;
        self.lost += 1;
        self.resent += 1;
        Some(number)
    }

    fn resend(&mut self, wanted: impl Fn(u8) -> bool) -> Option<u64> {
        let from = (self.hint - self.first) as usize;
        let at = from + self.marks.range(from..).position(|marks| wanted(*marks))?;
        self.marks[at] |= RESENT;
        self.resent += 1;
        self.hint = self.first + at as u64 + 1;
        Some(self.hint - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn board(segments: u64) -> Scoreboard {
        let mut board = Scoreboard::default();
        (0..segments).for_each(|_| board.push());
        board
    }

    #[test]
    fn a_segment_is_lost_when_three_above_it_have_arrived() {
        let mut board = board(10);
        assert!(board.sack([Some((2, 4)), None, None]));
        assert_eq!((board.pipe(), board.has_losses()), (8, false));
        assert!(board.sack([Some((6, 7)), Some((2, 4)), None]));
        // 2, 3 and 6 are above 0 and 1; one is above 4 and 5.
        assert_eq!((board.pipe(), board.lost), (5, 2));
        assert!(!board.sack([Some((6, 7)), Some((2, 4)), None]), "nothing new");
        assert_eq!(
            [board.resend_lost(), board.resend_lost(), board.resend_lost()],
            [Some(0), Some(1), None]
        );
        assert_eq!(board.pipe(), 7);
        assert_eq!(
            [board.resend_doubtful(), board.resend_doubtful(), board.resend_doubtful()],
            [Some(4), Some(5), None]
        );
        board.advance(7);
        assert_eq!((board.pipe(), board.flight(), board.has_losses()), (3, 3, false));
        assert_eq!(board.end(), 10);
    }

    #[test]
    fn a_timeout_takes_all_for_lost_but_what_has_arrived() {
        let mut board = board(6);
        board.sack([Some((1, 2)), Some((3, 4)), None]);
        board.lose_all();
        assert_eq!(board.pipe(), 0);
        let again: Vec<_> = core::iter::from_fn(|| board.resend_lost()).collect();
        assert_eq!(again, [0, 2, 4, 5]);
        assert_eq!(board.pipe(), 4);
        board.lose_all();
        assert_eq!(
            (board.pipe(), board.resend_lost()),
            (0, Some(0)),
            "what was sent again can be lost again"
        );
    }
}
