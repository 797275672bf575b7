//! The ACK filter: of the acknowledgements of a connection that wait in one queue, those go that
//! later ones make superfluous. For lines that carry far less one way than the other, where the
//! acknowledgements of what comes fill the way back.
//!
//! Source: the ACK filter of CAKE (Høiland-Jørgensen, Täht, Morton, "Piece of CAKE", LANMAN 2018,
//! section II.D), in its conservative form.
//!
//! When a segment comes that acknowledges, those before it in its queue are looked at, beginning
//! with the last. One is superfluous if it is of the same connection, does nothing but acknowledge,
//! acknowledges less, and says the same of congestion ([`Ack::covers`]). Where two are, the older
//! one goes: so of each connection two still wait, and a sender goes on being clocked. Duplicate
//! acknowledgements, and those with blocks of SACK, all stay: they say what was lost.
//!
//! Complexity: constant time: at most [`MOST_LOOKED_AT`] packets are looked at. No allocation.
//!
//! Not implemented: CAKE's aggressive form; dropping acknowledgements whose blocks of SACK a later
//! one has, too.

use super::slab::{Queue, Slab};
use crate::packet::{Ack, Packet};

/// So many packets of a queue are looked at for each that comes.
const MOST_LOOKED_AT: u32 = 16;

/// The node of the packet in `queue` that goes because of the last one, which has just come.
pub(super) fn superfluous<P: Packet, M: Copy>(slab: &Slab<P, M>, queue: &Queue) -> Option<u32> {
    let mut at = queue.tail();
    let last = slab.packet(at)?;
    let (own, flow) = (last.ack()?, last.packed_flow());
    let goes = |ack: Ack, packet: &P| own.covers(ack) && packet.packed_flow() == flow;
    let mut newer = false;
    for _ in 0..MOST_LOOKED_AT.min(queue.packets - 1) {
        at = slab.before(at);
        let packet = slab.packet(at)?;
        if packet.ack().is_some_and(|ack| goes(ack, packet)) {
            if newer {
                return Some(at);
            }
            newer = true;
        }
    }
    None
}
