//! The outgoing side of a port: its link, and the frames that left the link and wait for the port
//! to take them.

use std::collections::VecDeque;

use evenkeel_core::link::{Link, LinkSink};
use evenkeel_core::schedule::AnyScheduler;
use evenkeel_core::{Nanos, Reason};
use evenkeel_net::{PortIndex, rewrite};
use evenkeel_ports::Frame;

use super::counters::ByReason;
use super::line::Line;
use super::losses::Losses;
use super::packet::QueuedPacket;
use super::store::Store;
use super::watched::Seen;

/// The link of a port, with one of the built-in disciplines or a user's own.
pub type OutgoingLink = Link<QueuedPacket, AnyScheduler<QueuedPacket>>;

/// Frames that may wait between a link and its port. A link without a rate stops before that; a
/// paced one is faster than its port if it gets here, and what does not fit is dropped as refused
/// by the port.
pub(super) const TX_QUEUE: usize = 1024;

/// Takes what leaves a link.
pub(super) struct Egress<'a> {
    pub(super) pool: &'a mut Store,
    /// The port whose link it is.
    pub(super) port: PortIndex,
    pub(super) tx: &'a mut VecDeque<Frame>,
    pub(super) crossing: &'a mut Vec<(PortIndex, Frame)>,
    pub(super) room: usize,
    pub(super) tx_dropped: &'a mut ByReason,
    pub(super) losses: &'a mut Losses,
    /// Who looks at what leaves, if somebody does.
    pub(super) line: Option<&'a mut Line>,
    /// Who watches.
    pub(super) seen: Option<&'a mut Seen>,
}

impl Egress<'_> {
    /// Who looks at what leaves is shown a packet.
    #[inline(never)] // mostly nobody does
    fn show(&mut self, at: Nanos, packet: &QueuedPacket) {
        let bytes = self.pool.bytes(&packet.frame);
        if let Some(line) = &mut self.line {
            line.leaves(at, packet, bytes);
        }
        if let Some(seen) = &mut self.seen {
            seen.left(at, packet, bytes, None);
        }
    }
}

impl LinkSink<QueuedPacket> for Egress<'_> {
    fn room(&self) -> usize {
        self.room.saturating_sub(self.tx.len())
    }

    #[inline(always)] // or the packet is copied once more
    fn transmitted(&mut self, at: Nanos, packet: QueuedPacket) {
        if self.line.is_some() | self.seen.is_some() {
            self.show(at, &packet);
        }
        if packet.marked {
            self.losses.marked(at, packet.flow_hash);
            rewrite::mark(self.pool.bytes_mut(&packet.frame));
        }
        if packet.port != self.port {
            self.crossing.push((packet.port, self.pool.taken(packet)));
        } else if self.tx.len() < TX_QUEUE {
            self.tx.push_back(self.pool.taken(packet));
        } else {
            self.tx_dropped[Reason::PortRefused.index()] += 1;
            self.pool.discard(packet);
        }
    }

    fn dropped(&mut self, at: Nanos, packet: QueuedPacket, reason: Reason) {
        if let Some(seen) = &mut self.seen {
            seen.left(at, &packet, self.pool.bytes(&packet.frame), Some(reason));
        }
        // The link's meters have counted it.
        self.losses.dropped(at, packet.flow_hash, reason);
        self.pool.discard(packet);
    }
}
