//! Maglev hashing: a table that spreads evenly and changes little.
//!
//! Each forwarder has a permutation of the places, offset + n·skip mod T; they take turns to claim
//! their next free place (a forwarder with a smaller weight sits out turns in proportion). Shares
//! of forwarders with equal weights differ by at most one place.

use crate::mix::mix64;
use crate::types::NodeId;

/// Full weight of a forwarder.
pub const FULL: u16 = 256;

/// Places: a prime, more than 1000 for each of 64 forwarders.
pub const TABLE: usize = 65_537;

/// The table.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Maglev {
    /// Index into `nodes`; empty without any.
    places: Vec<u8>,
    nodes: Vec<NodeId>,
    /// Places of each, kept: whoever asks for them is answered on the packet path.
    shares: Vec<usize>,
}

struct Claim {
    offset: u64,
    skip: u64,
    next: u64,
    weight: u16,
    credit: u16,
}

impl Maglev {
    /// For these forwarders and weights. Their order does not matter.
    #[must_use]
    pub fn new(seed: u64, members: impl Iterator<Item = (NodeId, u16)>) -> Self {
        let mut members: Vec<_> = members.collect();
        members.sort_unstable();
        let claim = |(id, weight): &(NodeId, u16)| {
            let first = mix64(seed ^ u64::from(id.0));
            let skip = mix64(first) % (TABLE as u64 - 1) + 1;
            Claim { offset: first % TABLE as u64, skip, next: 0, weight: *weight, credit: 0 }
        };
        let mut claims: Vec<Claim> = members.iter().map(claim).collect();
        let mut places = vec![u8::MAX; if claims.is_empty() { 0 } else { TABLE }];
        let mut left = places.len();
        while left > 0 {
            for (index, claim) in claims.iter_mut().enumerate() {
                claim.credit += claim.weight;
                if claim.credit < FULL || left == 0 {
                    continue;
                }
                claim.credit -= FULL;
                loop {
                    let place = ((claim.offset + claim.next * claim.skip) % TABLE as u64) as usize;
                    claim.next += 1;
                    if places[place] == u8::MAX {
                        places[place] = index as u8;
                        break;
                    }
                }
                left -= 1;
            }
        }
        let mut shares = vec![0; members.len()];
        places.iter().for_each(|place| shares[usize::from(*place)] += 1);
        Self { places, nodes: members.into_iter().map(|(id, _)| id).collect(), shares }
    }

    /// The forwarder of a new flow; `None` if there is none.
    #[inline]
    #[must_use]
    pub fn lookup(&self, hash: u64) -> Option<NodeId> {
        let place = self.places.get((hash % TABLE as u64) as usize)?;
        self.nodes.get(usize::from(*place)).copied()
    }

    /// Places of each forwarder, by ascending id.
    #[must_use]
    pub fn shares(&self) -> Vec<(NodeId, usize)> {
        self.nodes.iter().copied().zip(self.shares.iter().copied()).collect()
    }
}
