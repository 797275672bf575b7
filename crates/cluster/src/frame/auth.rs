//! Frames that only holders of the key can make, each of which is accepted once, and none of an
//! earlier life of its sender.
//!
//! SipHash-2-4 with 128-bit results is a keyed pseudorandom function for short messages (Aumasson,
//! Bernstein 2012). A frame carries the epoch of its sender (one number for each life of it) and a
//! counter that only grows within the epoch.
//!
//! **Freshness.** Which epoch is the present one of a member, only the member can say: a receiver
//! that hears one that it does not know uses nothing of it, and broadcasts a *challenge*, a number
//! that was never used before. Who holds the key and lives answers with that number, its epoch and
//! its counter. So recorded frames are of no use after a restart of their receiver or of their
//! sender, and a sender whose clock is behind, so that its epochs fall, is believed all the same.
//!
//! A number is used for one challenge; the answers to the last two count, because a challenge may
//! be repeated before the answer is here. While the known life of a member is heard, no other is
//! asked for: replayed frames make nobody send anything.

use core::hash::Hasher;

use siphasher::sip128::{Hasher128, SipHasher24};

use super::{AUTH, FrameError};
use crate::mix::mix64;
use crate::types::NodeId;

/// Answers in one frame at most, and members challenged: both fit the smallest payload.
const ANSWERS: usize = 8;
const CHALLENGED: usize = 24;
/// Longest body of a proof: number, two counts, and what they count.
pub(crate) const PROOF: usize = 8 + 4 + 2 * CHALLENGED + 10 * ANSWERS;

/// Which frame of which life of its sender.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Stamp {
    /// The sender's life.
    pub epoch: u64,
    /// The frame; grows within the epoch.
    pub counter: u64,
}

/// A member's frames are reported as recorded after so many challenges without an answer, or so
/// many frames that were used before.
const UNANSWERED: u32 = 4;
const STALE: u32 = 16;
/// Guests that wait for an answer at one time.
const GUESTS: usize = 16;

/// What is known of another member.
#[derive(Clone, Copy, Debug)]
struct Known {
    id: NodeId,
    /// Its last frame; `None` before it has answered a challenge.
    last: Option<Stamp>,
    /// The next proof challenges it.
    wanted: bool,
    /// Challenges since its last answer.
    asked: u32,
    /// Frames used before that came while it was silent.
    stale: u32,
    /// Its frames were reported as recorded.
    reported: bool,
    /// The number to answer it with.
    owed: Option<u64>,
}

/// What an answer has shown.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Proved {
    pub(crate) node: NodeId,
    /// Its epoch is below the one it had before: its clock is behind.
    pub(crate) behind: bool,
    /// It was asked so often that it was reported.
    pub(crate) reported: bool,
}

/// The key, this node's epoch and counter, and what is known of each other member.
#[derive(Clone)]
pub struct Auth {
    key: [u8; 16],
    epoch: u64,
    next: u64,
    known: Vec<Known>,
    /// Who is no member and is owed an answer: balancers.
    guests: Vec<(NodeId, u64)>,
    /// The numbers of the last two challenges; 0: none.
    numbers: [u64; 2],
    /// Challenges sent.
    challenges: u64,
}

impl core::fmt::Debug for Auth {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Auth")
            .field("epoch", &self.epoch)
            .field("next", &self.next)
            .field("known", &self.known)
            .finish_non_exhaustive()
    }
}

impl Auth {
    /// For these members. No two lives of this node have the same `epoch`.
    #[must_use]
    pub fn new(key: [u8; 16], epoch: u64, members: &[NodeId]) -> Self {
        let mut auth = Self {
            key,
            epoch,
            next: 1,
            known: Vec::with_capacity(members.len()),
            guests: Vec::with_capacity(GUESTS),
            numbers: [0; 2],
            challenges: 0,
        };
        auth.know(members);
        auth
    }

    /// These are members too, from now on or soon.
    pub(crate) fn know(&mut self, members: &[NodeId]) {
        for id in members {
            if self.of(*id).is_none() {
                self.known.push(Known {
                    id: *id,
                    last: None,
                    wanted: true,
                    asked: 0,
                    stale: 0,
                    reported: false,
                    owed: None,
                });
            }
        }
    }

    /// Nobody but these is a member any more.
    pub(crate) fn keep(&mut self, members: &[NodeId]) {
        self.known.retain(|known| members.contains(&known.id));
        self.know(members);
    }

    fn of(&self, id: NodeId) -> Option<usize> {
        self.known.iter().position(|known| known.id == id)
    }

    fn tag(&self, source: &[u8], content: &[u8], stamp: &[u8]) -> [u8; 16] {
        let mut hasher = SipHasher24::new_with_key(&self.key);
        hasher.write(source);
        hasher.write(content);
        hasher.write(stamp);
        hasher.finish128().as_bytes()
    }

    /// The trailer for a frame from `source` with this `content`.
    pub(crate) fn sign(&mut self, source: &[u8], content: &[u8]) -> [u8; AUTH] {
        let mut trailer = [0; AUTH];
        trailer[..8].copy_from_slice(&self.epoch.to_be_bytes());
        trailer[8..16].copy_from_slice(&self.next.to_be_bytes());
        self.next += 1;
        let tag = self.tag(source, content, &trailer[..16]);
        trailer[16..].copy_from_slice(&tag);
        trailer
    }

    /// The stamp of a frame whose trailer is genuine.
    pub(crate) fn verify(
        &self,
        source: &[u8],
        content: &[u8],
        trailer: &[u8],
    ) -> Result<Stamp, FrameError> {
        let (stamp, tag) = trailer.split_at_checked(16).ok_or(FrameError::Forged)?;
        let expected = self.tag(source, content, stamp);
        // All bytes are looked at: how long it takes does not tell how many are right.
        let differs = expected.iter().zip(tag).fold(0, |differs, (a, b)| differs | (a ^ b));
        if differs != 0 || tag.len() != expected.len() {
            return Err(FrameError::Forged);
        }
        let (epoch, counter) = stamp.split_at(8);
        let word = |bytes: &[u8]| bytes.iter().fold(0, |word, byte| word << 8 | u64::from(*byte));
        Ok(Stamp { epoch: word(epoch), counter: word(counter) })
    }

    /// Whether a frame of a member is of its present life and was not used yet. `silent`: the
    /// known life has not been heard for a while, so that there may be another.
    pub(crate) fn check(
        &mut self,
        id: NodeId,
        stamp: Stamp,
        silent: bool,
    ) -> Result<(), FrameError> {
        let Some(at) = self.of(id) else { return Err(FrameError::Stranger(id.0)) };
        let known = &mut self.known[at];
        match known.last {
            Some(last) if last.epoch == stamp.epoch => {
                if stamp.counter > last.counter {
                    return Ok(());
                }
                known.stale += u32::from(silent);
                Err(FrameError::Replayed)
            }
            Some(_) if !silent => Err(FrameError::Replayed),
            Some(_) | None => {
                known.wanted = true;
                Err(FrameError::Unproved(id.0))
            }
        }
    }

    /// Uses up a frame that [passed](Self::check).
    pub(crate) fn accept(&mut self, id: NodeId, stamp: Stamp) {
        if let Some(at) = self.of(id) {
            let known = &mut self.known[at];
            (known.last, known.stale) = (Some(stamp), 0);
        }
    }

    /// Whether it shows for the first time that what comes of a member are recorded frames.
    pub(crate) fn finds_recorded(&mut self, id: NodeId) -> bool {
        let Some(at) = self.of(id) else { return false };
        let known = &mut self.known[at];
        let recorded = known.asked >= UNANSWERED || known.stale >= STALE;
        recorded && !std::mem::replace(&mut known.reported, true)
    }

    /// Whether this is the life of the member that has answered.
    pub(crate) fn is_known(&self, id: NodeId, stamp: Stamp) -> bool {
        let last = self.of(id).and_then(|at| self.known[at].last);
        last.is_some_and(|last| last.epoch == stamp.epoch)
    }

    /// Whether there is somebody to be challenged or answered.
    pub(crate) fn has_proof(&self) -> bool {
        !self.guests.is_empty()
            || self.known.iter().any(|known| known.wanted || known.owed.is_some())
    }

    /// Writes the body of a proof: a challenge, and answers. Its length.
    pub(crate) fn write_proof(&mut self, me: NodeId, body: &mut [u8]) -> usize {
        let mut number = 0;
        if self.known.iter().any(|known| known.wanted && known.id != me) {
            self.challenges += 1;
            // No two lives have an epoch in common, and no two challenges of a life their count.
            number = mix64(self.epoch ^ mix64(self.challenges)).max(1);
            self.numbers = [number, self.numbers[0]];
        }
        body[..8].copy_from_slice(&number.to_be_bytes());
        let (mut challenged, mut answers, mut at) = (0_u16, 0_u16, 12);
        for known in &mut self.known {
            if known.id == me {
                known.wanted = false;
            } else if known.wanted && usize::from(challenged) < CHALLENGED {
                known.wanted = false;
                known.asked += 1;
                body[at..at + 2].copy_from_slice(&known.id.0.to_be_bytes());
                at += 2;
                challenged += 1;
            }
        }
        let mut answer = |id: NodeId, number: u64| {
            body[at..at + 2].copy_from_slice(&id.0.to_be_bytes());
            body[at + 2..at + 10].copy_from_slice(&number.to_be_bytes());
            at += 10;
            answers += 1;
            usize::from(answers) == ANSWERS
        };
        let mut full = false;
        for known in self.known.iter_mut().filter(|known| known.owed.is_some()) {
            if full {
                break;
            }
            full = known.owed.take().is_some_and(|number| answer(known.id, number));
        }
        while !full && let Some((id, number)) = self.guests.pop() {
            full = answer(id, number);
        }
        body[8..10].copy_from_slice(&challenged.to_be_bytes());
        body[10..12].copy_from_slice(&answers.to_be_bytes());
        at
    }

    /// Reads a genuine proof of another member: answers are owed to its challenge; an answer to
    /// this node's challenge says which life of it is the present one.
    ///
    /// # Errors
    /// Its lengths do not fit.
    pub(crate) fn read_proof(
        &mut self,
        me: NodeId,
        from: NodeId,
        stamp: Stamp,
        body: &[u8],
    ) -> Result<Option<Proved>, FrameError> {
        let word = |at: usize| body.get(at..at + 2).map(|two| u16::from_be_bytes([two[0], two[1]]));
        let long = |at: usize| {
            let bytes = body.get(at..at + 8)?;
            Some(bytes.iter().fold(0_u64, |long, byte| long << 8 | u64::from(*byte)))
        };
        let read = || Some((long(0)?, word(8)?, word(10)?));
        let (number, challenged, answers) = read().ok_or(FrameError::Dimensions)?;
        let (challenged, answers) = (usize::from(challenged), usize::from(answers));
        let end = 12 + 2 * challenged + 10 * answers;
        if challenged > CHALLENGED || answers > ANSWERS || body.len() != end {
            return Err(FrameError::Dimensions);
        }
        let to_me = (0..challenged).any(|n| word(12 + 2 * n) == Some(me.0));
        let Some(at) = self.of(from) else {
            self.guests.retain(|guest| guest.0 != from);
            if to_me && self.guests.len() < GUESTS {
                self.guests.push((from, number));
            }
            return Ok(None);
        };
        if to_me {
            self.known[at].owed = Some(number);
        }
        let answer = (0..answers)
            .map(|n| 12 + 2 * challenged + 10 * n)
            .find(|begin| word(*begin) == Some(me.0))
            .and_then(|begin| long(begin + 2));
        let asked = self.known[at].asked > 0;
        if !(asked && answer.is_some_and(|number| number != 0 && self.numbers.contains(&number))) {
            return Ok(None);
        }
        let known = &mut self.known[at];
        let before = known.last.replace(stamp);
        let reported = std::mem::take(&mut known.reported);
        (known.wanted, known.asked, known.stale) = (false, 0, 0);
        let behind = before.is_some_and(|before| before.epoch > stamp.epoch);
        Ok(Some(Proved { node: from, behind, reported }))
    }
}
