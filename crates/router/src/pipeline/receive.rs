//! What the ports have received in a round.

use evenkeel_core::Nanos;
use evenkeel_net::PortIndex;
use evenkeel_ports::{FramePool, Port, RxFrame};

use super::packet::{BURST, UnroutedPacket, VECTOR};
use super::parsed::Parsed;

/// See the module.
pub(super) struct Receiver {
    burst: Vec<RxFrame>,
    /// Received in this round and not yet forwarded.
    inbox: Vec<UnroutedPacket>,
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
            burst: Vec::with_capacity(BURST),
            inbox: Vec::with_capacity(BURST * ports),
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
        let taken = port.rx_burst(pool, now, &mut self.burst, burst);
        let frames = self.burst.len();
        let last = self.burst.last().map(|last| last.arrival);
        let (port, mut order) = (PortIndex(at as u16), self.inbox.len() as u32);
        let mut newest = self.newest;
        self.inbox.extend(self.burst.drain(..).map(|received| {
            self.is_sorted &= newest <= received.arrival;
            newest = received.arrival;
            let packet = UnroutedPacket::received(port, order, received);
            order += 1;
            packet
        }));
        self.newest = newest;
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
        if !self.is_sorted {
            // Not a stable sort, which would allocate.
            self.inbox.sort_unstable_by_key(|packet| (packet.arrival, packet.order));
        }
    }

    /// How many packets are in the inbox.
    pub(super) fn len(&self) -> usize {
        self.inbox.len()
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
