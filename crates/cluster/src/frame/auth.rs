//! Frames that only holders of the key can make, each of which is accepted once.
//!
//! SipHash-2-4 with 128-bit results is a keyed pseudorandom function for short messages (Aumasson,
//! Bernstein 2012). The counter of a sender only grows: a frame whose counter is not above the last
//! accepted one is a replay. A receiver that has just started has heard no counter and takes the
//! first.

use core::hash::Hasher;

use siphasher::sip128::{Hasher128, SipHasher24};

use super::{AUTH, FrameError};

/// The key, this node's counter and the last counter of each other member.
#[derive(Clone)]
pub struct Auth {
    key: [u8; 16],
    next: u64,
    last: Vec<u64>,
}

impl core::fmt::Debug for Auth {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Auth")
            .field("next", &self.next)
            .field("last", &self.last)
            .finish_non_exhaustive()
    }
}

impl Auth {
    /// For `members` nodes. `first` is this node's first counter: above all that it has ever used,
    /// also before a restart. Microseconds since 1970 will do, as no node sends a million frames a
    /// second.
    #[must_use]
    pub fn new(key: [u8; 16], first: u64, members: usize) -> Self {
        Self { key, next: first.max(1), last: vec![0; members] }
    }

    fn tag(&self, source: &[u8], content: &[u8], counter: &[u8; 8]) -> [u8; 16] {
        let mut hasher = SipHasher24::new_with_key(&self.key);
        hasher.write(source);
        hasher.write(content);
        hasher.write(counter);
        hasher.finish128().as_bytes()
    }

    /// The trailer for a frame from `source` with this `content`.
    pub(crate) fn sign(&mut self, source: &[u8], content: &[u8]) -> [u8; AUTH] {
        let counter = self.next.to_be_bytes();
        self.next += 1;
        let mut trailer = [0; AUTH];
        trailer[..8].copy_from_slice(&counter);
        trailer[8..].copy_from_slice(&self.tag(source, content, &counter));
        trailer
    }

    /// The counter of a frame whose trailer is genuine.
    pub(crate) fn verify(
        &self,
        source: &[u8],
        content: &[u8],
        trailer: &[u8],
    ) -> Result<u64, FrameError> {
        let counter: [u8; 8] =
            trailer[..8].try_into().map_err(|_wrong_length| FrameError::Forged)?;
        let expected = self.tag(source, content, &counter);
        // All bytes are looked at: how long it takes does not tell how many are right.
        let differs =
            expected.iter().zip(&trailer[8..]).fold(0, |differs, (a, b)| differs | (a ^ b));
        if differs == 0 { Ok(u64::from_be_bytes(counter)) } else { Err(FrameError::Forged) }
    }

    /// Goes on with the counters of `old`: of each member at its place there.
    pub(crate) fn carried(old: &Self, places: &[Option<usize>]) -> Self {
        let last = places.iter().map(|place| place.map_or(0, |place| old.last[place])).collect();
        Self { last, ..old.clone() }
    }

    /// Whether a counter of a member was not used yet.
    pub(crate) fn is_fresh(&self, member: usize, counter: u64) -> bool {
        counter > self.last[member]
    }

    /// Uses up a counter of a member.
    pub(crate) fn accept(&mut self, member: usize, counter: u64) -> Result<(), FrameError> {
        if !self.is_fresh(member, counter) {
            return Err(FrameError::Replayed);
        }
        self.last[member] = counter;
        Ok(())
    }
}
