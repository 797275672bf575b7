//! What the ports have received in a round.

use evenkeel_core::Nanos;
use evenkeel_net::PortIndex;
use evenkeel_ports::{Frame, FramePool, Port};

use super::packet::{BURST, UnroutedPacket, VECTOR};
use super::parsed::Parsed;

/// See the module.
pub(super) struct Receiver {
    /// Received in this round and not yet forwarded.
    inbox: Vec<UnroutedPacket>,
    /// Empty, with the room for sorting these: when each arrived and where it stands, and the
    /// packets in that order.
    arrivals: Vec<(Nanos, u32)>,
    sorted: Vec<UnroutedPacket>,
    /// When the last of these arrived, and whether they stand in the order of that.
    newest: Nanos,
    is_sorted: bool,
    /// Of the vector of packets that is being forwarded.
    parsed: Vec<Parsed>,
}

/// What was read from a port.
pub(super) struct Burst {
    /// Frames taken from the port.
    pub(super) taken: usize,
    /// Of them, those that can be forwarded.
    pub(super) frames: usize,
    /// When the last frame arrived.
    pub(super) last: Option<Nanos>,
}

impl Receiver {
    pub(super) fn new(ports: usize) -> Self {
        Self {
            inbox: Vec::with_capacity(BURST * ports),
            arrivals: Vec::with_capacity(BURST * ports),
            sorted: Vec::with_capacity(BURST * ports),
            newest: Nanos::ZERO,
            is_sorted: true,
            parsed: Vec::with_capacity(VECTOR),
        }
    }

    /// Reads at most `burst` frames from port `at`.
    #[inline]
    pub(super) fn read<P: Port>(
        &mut self,
        now: Nanos,
        at: usize,
        port: &mut P,
        pool: &mut FramePool,
        burst: usize,
    ) -> Burst {
        let before = self.inbox.len();
        let taken = port.rx_burst(pool, now, &mut self.inbox, burst);
        let received = &mut self.inbox[before..];
        let (frames, last) = (received.len(), received.last().map(|last| last.arrival));
        let (port, mut newest, mut is_sorted) = (PortIndex(at as u16), self.newest, true);
        for packet in received {
            packet.port = port;
            is_sorted &= newest <= packet.arrival;
            newest = packet.arrival;
        }
        self.newest = newest;
        self.is_sorted &= is_sorted;
        Burst { taken, frames, last }
    }

    /// Puts a packet into the inbox that was not read by [`Receiver::read`].
    pub(super) fn push(&mut self, packet: UnroutedPacket) {
        self.is_sorted &= self.newest <= packet.arrival;
        self.newest = packet.arrival;
        self.inbox.push(packet);
    }

    /// Sorts the inbox by arrival. The order of reading decides between equal stamps.
    #[inline]
    pub(super) fn sort(&mut self) {
        if self.is_sorted {
            return;
        }
        let Self { inbox, arrivals, sorted, .. } = self;
        // A stable sort would allocate.
        let places = inbox.iter().zip(0..).map(|(packet, at)| (packet.arrival, at));
        arrivals.extend(places);
        arrivals.sort_unstable();
        sorted.extend(arrivals.drain(..).map(|(_, at)| {
            let nothing = UnroutedPacket::new(Frame::NOTHING, Nanos::ZERO);
            std::mem::replace(&mut inbox[at as usize], nothing)
        }));
        inbox.clear();
        std::mem::swap(inbox, sorted);
    }

    /// How many packets are in the inbox.
    pub(super) fn len(&self) -> usize {
        self.inbox.len()
    }

    /// The packet of the inbox, if there is one and no other.
    #[inline]
    pub(super) fn lone(&self) -> Option<&UnroutedPacket> {
        match self.inbox.as_slice() {
            [packet] => Some(packet),
            _ => None,
        }
    }

    /// Takes the frame of the last packet out of the inbox.
    #[inline]
    pub(super) fn take_lone(&mut self) -> Option<Frame> {
        (self.newest, self.is_sorted) = (Nanos::ZERO, true);
        self.inbox.pop().map(|packet| packet.frame)
    }

    /// The inbox and the room for what is parsed of it. Both are [given back](Self::reuse).
    #[inline]
    pub(super) fn take(&mut self) -> (Vec<UnroutedPacket>, Vec<Parsed>) {
        (self.newest, self.is_sorted) = (Nanos::ZERO, true);
        (std::mem::take(&mut self.inbox), std::mem::take(&mut self.parsed))
    }

    #[inline]
    pub(super) fn reuse(&mut self, emptied: Vec<UnroutedPacket>, parsed: Vec<Parsed>) {
        (self.inbox, self.parsed) = (emptied, parsed);
    }
}
