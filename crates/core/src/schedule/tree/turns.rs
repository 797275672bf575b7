//! Members that take turns: newcomers first, then the others round by round.
//!
//! Deficit round robin (Shreedhar, Varghese, 1995) in which a member may come and go at any time,
//! as it does where caps bind. A member has a quantum in each round. It leaves with what it has
//! left, and in the same round comes back with that, not with more; in a later one it has a quantum
//! besides, and goes first, because it was below its share. What it owes is paid by the rounds that
//! it was away.
//!
//! Complexity: constant time; where a quantum is below a packet, a visit more for each quantum that
//! the packet is long.
//!
//! Bound: in any n rounds a member sends at most n + 1 quanta and a packet. A newcomer waits for
//! the packet on its way and for other newcomers, each with at most [`HEAD_START`], whatever else
//! waits.

use crate::schedule::slab::NIL;

/// Bytes are counted in sixteenths: small quanta need not be rounded.
pub(super) const UNIT: i32 = 16;
/// What a newcomer may send before it stands in line.
pub(super) const HEAD_START: i32 = 1_538 * UNIT;

/// Members of each line that a search looks at.
const SAMPLE: usize = 4;

/// What a member keeps of its turns.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turn {
    /// The member behind it.
    next: u32,
    /// What it may send, in sixteenths of a byte; negative is debt.
    pub(super) deficit: i32,
    /// The round in which it left.
    round: u32,
}

impl Turn {
    pub(super) const NEW: Self = Self { next: NIL, deficit: 0, round: u32::MAX };

    /// The member behind it; beyond all if there is none, or it is in no line.
    pub(super) const fn next(&self) -> u32 {
        self.next
    }

    /// How many packets of this length it has credit for.
    #[inline]
    pub(super) fn packets(&self, length: u32) -> usize {
        let length = (length as i32 * UNIT).max(1);
        match self.deficit {
            ..=0 => 0,
            // As a rule, and without a division.
            few if few <= length => 1,
            few if few <= 2 * length => 2,
            many => many.unsigned_abs().div_ceil(length.unsigned_abs()) as usize,
        }
    }
}

/// Those who may be in the lists of one node.
pub(super) trait Members {
    fn turn(&mut self, member: u32) -> &mut Turn;
    /// What a member gets in each round.
    fn quantum(&self, member: u32) -> i32;
    /// Whether a member has something that may go now.
    fn is_ready(&self, member: u32) -> bool;
    /// A member that is not ready is in no list any more.
    fn left(&mut self, member: u32);
}

/// First in, first out.
#[derive(Clone, Copy, Debug)]
struct Line {
    first: u32,
    last: u32,
}

impl Line {
    const EMPTY: Self = Self { first: NIL, last: NIL };

    fn push(&mut self, members: &mut impl Members, member: u32) {
        members.turn(member).next = NIL;
        if self.first == NIL {
            self.first = member;
        } else {
            members.turn(self.last).next = member;
        }
        self.last = member;
    }

    fn pop(&mut self, members: &mut impl Members) {
        self.first = members.turn(self.first).next;
    }

    /// Takes a member out of the middle. Takes the time of those before it.
    fn unlink(&mut self, members: &mut impl Members, member: u32) -> bool {
        let (mut before, mut at) = (NIL, self.first);
        while at != NIL && at != member {
            (before, at) = (at, members.turn(at).next);
        }
        if at == NIL {
            return false;
        }
        let next = members.turn(at).next;
        if before == NIL {
            self.first = next;
        } else {
            members.turn(before).next = next;
        }
        if self.last == member {
            self.last = before;
        }
        true
    }
}

/// Whose turn it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turns {
    newcomers: Line,
    /// Those whose turn comes in this round, and in the next.
    present: Line,
    next: Line,
    round: u32,
}

impl Turns {
    pub(super) const EMPTY: Self =
        Self { newcomers: Line::EMPTY, present: Line::EMPTY, next: Line::EMPTY, round: 0 };

    /// A member that is in no list becomes ready. Whether it goes before those in line.
    pub(super) fn enter(&mut self, members: &mut impl Members, member: u32) -> bool {
        let (round, quantum) = (self.round, members.quantum(member));
        let turn = members.turn(member);
        let away = round.wrapping_sub(turn.round);
        if away == 0 {
            // Its turn was broken off, or over.
            let first = turn.deficit > 0;
            if first {
                self.newcomers.push(members, member);
            } else {
                turn.deficit += quantum;
                self.next.push(members, member);
            }
            return first;
        }
        let paid = i64::from(turn.deficit) + i64::from(away) * i64::from(quantum);
        // What it could not send while others went on to the next round is not lost.
        let left = turn.deficit.clamp(0, quantum);
        turn.deficit = paid.min(i64::from(quantum) + i64::from(left)) as i32;
        let first = turn.deficit > 0;
        let line = if first { &mut self.newcomers } else { &mut self.next };
        line.push(members, member);
        first
    }

    /// Whose turn it is; `None`: nobody is ready.
    pub(super) fn pick(&mut self, members: &mut impl Members) -> Option<u32> {
        while self.newcomers.first != NIL {
            let member = self.newcomers.first;
            if members.is_ready(member) {
                return Some(member);
            }
            self.leave(members, member);
        }
        loop {
            let member = self.present.first;
            if member == NIL {
                if self.next.first == NIL {
                    return None;
                }
                self.present = core::mem::replace(&mut self.next, Line::EMPTY);
                self.round = self.round.wrapping_add(1);
            } else if !members.is_ready(member) {
                self.leave(members, member);
            } else if members.turn(member).deficit <= 0 {
                self.again(members, member);
            } else {
                return Some(member);
            }
        }
    }

    /// Whose turn it is after so many packets, and after how many of its own, if nobody comes or
    /// goes. `next` tells the member behind one, and how many packets this one has credit for.
    /// `None`: nobody in line has any.
    #[inline]
    pub(super) fn ahead(
        &self,
        packets: usize,
        next: impl Fn(u32) -> Option<(u32, usize)>,
    ) -> Option<(u32, usize)> {
        let walk = |packets: usize| {
            let mut passed = 0;
            for line in [self.newcomers, self.present, self.next] {
                let mut at = line.first;
                while let Some((behind, has)) = next(at) {
                    if packets < passed + has {
                        return Ok((at, packets - passed, has));
                    }
                    passed += has;
                    at = behind;
                }
            }
            Err(passed)
        };
        let (rounds, found) = match walk(packets) {
            Ok(found) => (0, found),
            Err(all) => (packets.checked_div(all)?, walk(packets % all).ok()?),
        };
        let (member, own, has) = found;
        Some((member, own + rounds * has))
    }

    /// Who is first in line.
    #[inline]
    pub(super) fn first(&self) -> Option<u32> {
        let lines = [self.newcomers, self.present, self.next];
        lines.iter().map(|line| line.first).find(|member| *member != NIL)
    }

    /// The line that the member in turn heads.
    fn line(&mut self, member: u32) -> &mut Line {
        if self.newcomers.first == member { &mut self.newcomers } else { &mut self.present }
    }

    /// The member in turn is not ready any more.
    pub(super) fn leave(&mut self, members: &mut impl Members, member: u32) {
        self.line(member).pop(members);
        members.turn(member).round = self.round;
        members.left(member);
    }

    /// The member in turn has sent something, and is still ready. Its deficit tells.
    pub(super) fn sent(&mut self, members: &mut impl Members, member: u32) {
        let deficit = members.turn(member).deficit;
        if deficit <= 0 {
            self.again(members, member);
        } else if self.newcomers.first == member && deficit <= members.quantum(member) - HEAD_START
        {
            self.newcomers.pop(members);
            self.present.push(members, member);
        }
    }

    /// The member in turn goes on in the next round.
    fn again(&mut self, members: &mut impl Members, member: u32) {
        self.line(member).pop(members);
        let quantum = members.quantum(member);
        members.turn(member).deficit += quantum;
        self.next.push(members, member);
    }

    /// Some members, those first whose turn comes soon, told one by one.
    pub(super) fn some(&self, members: &mut impl Members, mut told: impl FnMut(u32)) {
        for line in [self.newcomers, self.present, self.next] {
            let mut at = line.first;
            for _ in 0..SAMPLE {
                if at == NIL {
                    break;
                }
                told(at);
                at = members.turn(at).next;
            }
        }
    }

    /// Takes a member out, wherever it is.
    pub(super) fn remove(&mut self, members: &mut impl Members, member: u32) {
        let _ = self.newcomers.unlink(members, member)
            || self.present.unlink(members, member)
            || self.next.unlink(members, member);
        members.left(member);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Some {
        turns: Vec<Turn>,
        quanta: Vec<i32>,
        ready: Vec<bool>,
        listed: Vec<bool>,
    }

    impl Members for Some {
        fn turn(&mut self, member: u32) -> &mut Turn {
            &mut self.turns[member as usize]
        }
        fn quantum(&self, member: u32) -> i32 {
            self.quanta[member as usize]
        }
        fn is_ready(&self, member: u32) -> bool {
            self.ready[member as usize]
        }
        fn left(&mut self, member: u32) {
            self.listed[member as usize] = false;
        }
    }

    fn some(quanta: &[i32]) -> (Turns, Some) {
        let count = quanta.len();
        let members = Some {
            turns: vec![Turn::NEW; count],
            quanta: quanta.to_vec(),
            ready: vec![false; count],
            listed: vec![false; count],
        };
        (Turns::EMPTY, members)
    }

    fn enter(turns: &mut Turns, members: &mut Some, member: usize) {
        members.ready[member] = true;
        if !std::mem::replace(&mut members.listed[member], true) {
            let _ = turns.enter(members, member as u32);
        }
    }

    /// Sends a packet; who did.
    fn send(turns: &mut Turns, members: &mut Some, length: i32, stays: bool) -> u32 {
        let member = turns.pick(members).unwrap();
        members.turn(member).deficit -= length;
        members.ready[member as usize] = stays;
        if stays {
            turns.sent(members, member);
        } else {
            turns.leave(members, member);
        }
        member
    }

    #[test]
    fn members_share_by_their_quanta() {
        let (mut turns, mut members) = some(&[1_600, 3_200, 200]);
        (0..3).for_each(|member| enter(&mut turns, &mut members, member));
        let mut sent = [0u32; 3];
        for _ in 0..25_000 {
            sent[send(&mut turns, &mut members, 1_600, true) as usize] += 1;
        }
        assert!(sent[0].abs_diff(8_000) < 3 && sent[1].abs_diff(16_000) < 3, "{sent:?}");
        assert!(sent[2].abs_diff(1_000) < 3, "{sent:?}");
    }

    #[test]
    fn who_comes_back_in_the_same_round_has_no_more_than_others() {
        // The first one is away after each packet, for as long as the others send one.
        let (mut turns, mut members) = some(&[16_000, 16_000, 16_000]);
        (0..3).for_each(|member| enter(&mut turns, &mut members, member));
        let mut sent = [0u32; 3];
        for _ in 0..30_000 {
            let first = turns.pick(&mut members) == Some(0);
            sent[send(&mut turns, &mut members, 1_600, !first) as usize] += 1;
            if !first {
                enter(&mut turns, &mut members, 0);
            }
        }
        assert!(sent.iter().all(|sent| sent.abs_diff(10_000) < 30), "{sent:?}");
    }

    #[test]
    fn a_newcomer_goes_first_and_stands_in_line_after_a_packet_or_so() {
        let (mut turns, mut members) = some(&[200_000; 12]);
        (0..10).for_each(|member| enter(&mut turns, &mut members, member));
        for _ in 0..2_000 {
            send(&mut turns, &mut members, HEAD_START, true);
        }
        enter(&mut turns, &mut members, 11);
        assert_eq!(send(&mut turns, &mut members, HEAD_START, true), 11);
        enter(&mut turns, &mut members, 10);
        assert_eq!(send(&mut turns, &mut members, HEAD_START, true), 10);
        assert!(send(&mut turns, &mut members, HEAD_START, true) < 10);
    }
}
