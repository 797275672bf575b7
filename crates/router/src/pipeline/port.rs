//! A port with its outgoing link.

use std::collections::VecDeque;

use evenkeel_config::Attach;
use evenkeel_core::admit::Admission;
use evenkeel_core::control::Controller;
use evenkeel_core::{Nanos, Reason};
use evenkeel_net::icmp::RateLimiter;
use evenkeel_net::{MacAddr, PortIndex};
use evenkeel_ports::bypass::ReversePath;
use evenkeel_ports::{Frame, PortCounters};

use super::busiest::Busiest;
use super::counters::PortCount;
use super::egress::{Egress, OutgoingLink};
use super::line::{Follower, Line};
use super::losses::Losses;
use super::store::Store;
use super::subscribers::Behind;
use super::watched::Seen;
use crate::mirror::MirroredLink;

/// What the pipeline must know of a port's interface.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct LinkState {
    /// Its Ethernet address.
    pub mac: MacAddr,
    /// Longest IP packet, bytes.
    pub mtu: u32,
    /// Up and with carrier.
    pub up: bool,
}

impl From<MirroredLink> for LinkState {
    fn from(link: MirroredLink) -> Self {
        Self { mac: link.mac, mtu: link.mtu, up: link.up }
    }
}

/// A port, its outgoing link, and what decides about that.
pub(super) struct PortSlot {
    pub(super) index: PortIndex,
    /// The port in whose link its packets wait: mostly itself, see [`super::group`].
    pub(super) link_at: usize,
    /// The port that it is joined with: what comes in by one leaves by the other.
    pub(super) peer: Option<usize>,
    pub(super) attach: Attach,
    pub(super) name: String,
    pub(super) interface: String,
    pub(super) mac: MacAddr,
    pub(super) mtu: u32,
    pub(super) up: bool,
    pub(super) count: PortCount,
    /// What was counted by the devices that the port had before the present one.
    pub(super) before: PortCounters,
    pub(super) limiter: RateLimiter,
    pub(super) link: OutgoingLink,
    /// What turns the knobs of the link.
    pub(super) control: Option<Box<Controller>>,
    /// What lets its rate follow a line.
    pub(super) follow: Option<Box<Follower>>,
    /// What the link dropped and marked of late.
    pub(super) losses: Losses,
    /// What is seen of the port's own line, where somebody follows it.
    pub(super) line: Option<Box<Line>>,
    /// Who may enter the link.
    pub(super) admission: Option<Box<Admission>>,
    pub(super) tx: VecDeque<Frame>,
    /// What has left the link and leaves by other ports, until the end of the round.
    pub(super) crossing: Vec<(PortIndex, Frame)>,
    /// How sources are checked.
    pub(super) reverse_path: ReversePath,
    /// What the kernel is to forward, until the end of the round.
    pub(super) elsewhere: VecDeque<Frame>,
    /// Whether the port can give it that.
    pub(super) hands_over: bool,
    /// Whether the kernel's stack gets what is received here too.
    pub(super) kernel_has_copy: bool,
    /// Whether the port sends super-frames, and partial checksums, as they are.
    pub(super) takes_whole: bool,
    /// The longest super-frame that may enter the link, bytes of the wire.
    pub(super) longest: usize,
    /// How many frames `tx` may hold before a link without a rate stops.
    pub(super) room: usize,
    /// Its link is the first worker's, and this is another one.
    pub(super) is_others: bool,
    /// The subscribers behind the link, if it has a tree.
    pub(super) behind: Option<Box<Behind>>,
    /// Who sends most by the link.
    pub(super) busiest: Busiest,
    /// What was dropped of late of what came by the port, before any link.
    pub(super) losses_before: Losses,
    /// What is seen of packets that are watched.
    pub(super) seen: Option<Box<Seen>>,
}

impl PortSlot {
    /// The link, and where it puts what leaves it.
    pub(super) fn outgoing<'a>(
        &'a mut self,
        pool: &'a mut Store,
    ) -> (&'a mut OutgoingLink, Egress<'a>) {
        let egress = Egress {
            pool,
            port: self.index,
            tx: &mut self.tx,
            crossing: &mut self.crossing,
            room: self.room,
            tx_dropped: &mut self.count.tx_dropped,
            losses: &mut self.losses,
            line: self.line.as_deref_mut(),
            seen: self.seen.as_deref_mut(),
        };
        (&mut self.link, egress)
    }

    /// Counts a packet that came by this port, or was made for one that did, as dropped.
    pub(super) fn count_dropped(&mut self, originated: bool, reason: Reason) {
        let count = &mut self.count;
        let dropped = if originated { &mut count.originated_dropped } else { &mut count.dropped };
        dropped[reason.index()] += 1;
    }

    /// Drops the frames that left the link but that the port has not taken.
    pub(super) fn discard_sent(&mut self, pool: &mut Store, reason: Reason) {
        for frame in self.tx.drain(..) {
            self.count.tx_dropped[reason.index()] += 1;
            pool.release(frame);
        }
    }

    /// Lets everything happen that is due up to `now`. Returns when there is more to do,
    /// `Nanos::ZERO` if the link waits for its port.
    pub(super) fn advance(&mut self, now: Nanos, pool: &mut Store) -> Nanos {
        self.control_until(now, pool);
        self.admit_until(now, pool);
        let (link, mut egress) = self.outgoing(pool);
        link.advance(now, &mut egress);
        let unpaced = self.link.config().rate.is_none();
        let no_room = unpaced && self.tx.len() >= self.room;
        let kept_back = (unpaced || self.link.next_wake().is_none()) && self.link.held().queued > 0;
        if no_room || kept_back { Nanos::ZERO } else { self.next_wake() }
    }

    /// When link or control have something to do; `Nanos::MAX`: never.
    pub(super) fn next_wake(&self) -> Nanos {
        let link = self.link.next_wake().unwrap_or(Nanos::MAX);
        let link = link.min(self.control_due().unwrap_or(Nanos::MAX));
        link.min(self.admission_due().unwrap_or(Nanos::MAX))
    }

    /// Whether something waits for nothing but the port: frames that it did not take, or a link
    /// without a rate that it has no room for.
    pub(super) fn is_blocked(&self) -> bool {
        let link_waits = || self.link.held().queued > 0 && self.link.next_wake().is_none();
        self.up && (!self.tx.is_empty() || link_waits())
    }
}
