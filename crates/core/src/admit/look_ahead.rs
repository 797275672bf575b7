//! What decisions will read, read ahead; and where they found it, for the next packet of the flow.

use super::{Admission, Last};
use crate::packet::Places;

impl Admission {
    /// Reads what [`decide`](Self::decide) will read first, so that it is in the cache by then: for
    /// all packets of a burst before the first decision.
    #[inline]
    pub fn prefetch(&self, flow_hash: u64) {
        self.list.prefetch(flow_hash);
    }

    /// Reads ahead what [`prefetch`](Self::prefetch) has to know first: for all packets of a burst
    /// before that, if there are many flows.
    #[inline]
    pub fn prefetch_bucket(&self, flow_hash: u64) {
        self.list.prefetch_bucket(flow_hash);
    }

    /// What reads ahead the flow that may be at a [place](Places::listed), instead of the two
    /// steps: asked for once for many places.
    #[inline]
    pub fn places_ahead(&self) -> impl Fn(u32) + use<'_> {
        self.list.places_ahead()
    }

    /// Where the flow of the packet is listed that was decided upon last: for the
    /// [places](crate::Packet::places) of the next packet of the flow. [`Places::NOWHERE`]: it is
    /// not listed.
    #[inline]
    #[must_use]
    pub fn last_place(&self) -> u32 {
        match self.last {
            Last::Listed(id, _) => id.link(),
            Last::Nothing | Last::Unlisted(..) => Places::NOWHERE,
        }
    }
}
