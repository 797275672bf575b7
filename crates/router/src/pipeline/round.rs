//! One round: what the ports have received goes as far as it can, and what has left the links goes out.

use evenkeel_core::Nanos;
use evenkeel_net::PortIndex;
use evenkeel_ports::{FramePool, Port};

use super::ahead::VECTOR;
use super::cluster::ClusterRole;
use super::cycles::processing_class;
use super::egress::TX_QUEUE;
use super::fairdrop::FairDrop;
use super::forward::Packet;
use super::{BURST, Pipeline, PortSlot};

/// What a round did.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Round {
    /// Frames received.
    pub received: usize,
    /// Frames sent.
    pub sent: usize,
    /// Whether some port had more frames than a burst: do the next round at once.
    pub more: bool,
    /// Whether packets wait for a port to take them, and for nothing else: try again in a while.
    pub blocked: bool,
}

impl Pipeline {
    /// Receives a burst from every port, takes every packet as far as it can go now, and sends what has left the links.
    ///
    /// `ports` are those of the configuration, in its order; `now` is not before that of an earlier call.
    pub fn round<P: Port>(&mut self, now: Nanos, ports: &mut [P]) -> Round {
        self.round_of(now, ports, 0..ports.len())
    }

    /// As [`Pipeline::round`], for a caller that knows which ports have received something: the others are not asked, and links without a rate
    /// see the room that their ports had when last something was sent or received there. A round then costs what its packets cost, and a
    /// comparison for each port that has something to send.
    pub fn round_of<P: Port>(
        &mut self,
        now: Nanos,
        ports: &mut [P],
        receiving: impl IntoIterator<Item = usize>,
    ) -> Round {
        let mut round = Round::default();
        let (mut horizon, mut waiting) = (now, 0);
        let burst = self.fairdrop.as_ref().map_or(BURST, FairDrop::burst);
        self.senders.clear();
        self.meter.round_begins();
        self.bound_catch_up(now);
        for at in receiving {
            let port = &mut ports[at];
            let slot = &mut self.ports[at];
            slot.room = port.tx_room().min(TX_QUEUE);
            slot.kernel_has_copy = port.kernel_has_copy();
            let taken = port.rx_burst(&mut self.pool, now, &mut self.rx, burst);
            if taken >= burst {
                round.more = true;
                horizon = self.rx.last().map_or(horizon, |last| last.arrival.min(horizon));
            }
            if taken > 0 && self.fairdrop.is_some() {
                // A port that cannot tell has the more waiting the fuller the burst was.
                let least = if taken >= burst { BURST as u32 } else { 0 };
                waiting = waiting.max(port.rx_waiting().unwrap_or(least));
            }
            round.received += self.rx.len();
            for received in self.rx.drain(..) {
                let order = self.inbox.len() as u32;
                self.inbox.push(Packet::received(PortIndex(at as u16), order, received));
            }
        }
        if !self.inbox.is_sorted_by_key(|packet| packet.arrival) {
            // Not a stable sort, which would allocate: the order of reading decides between equal stamps.
            self.inbox.sort_unstable_by_key(|packet| (packet.arrival, packet.order));
        }
        self.meter.fetched(self.inbox.len());
        if round.received > 0
            && let Some(fairdrop) = self.fairdrop.as_mut().filter(|fairdrop| fairdrop.is_on())
        {
            fairdrop.begin(now, round.received, waiting, &mut self.meter);
        }
        self.forward_inbox();
        self.expire(now);
        self.run_cluster(now, horizon);
        // What a link without a rate kept back goes while its port takes it.
        while self.advance(horizon, ports, &mut round) {}
        self.round_measured(&round);
        round
    }

    /// Takes the packets that were received on their way, a vector at a time.
    pub(super) fn forward_inbox(&mut self) {
        let mut inbox = std::mem::take(&mut self.inbox);
        let mut seen = std::mem::take(&mut self.seen);
        let mut packets = inbox.drain(..);
        while !packets.as_slice().is_empty() {
            let waiting = packets.as_slice();
            let vector = &waiting[..waiting.len().min(VECTOR)];
            self.look_ahead(vector, &mut seen);
            self.meter.looked_ahead(vector.len());
            for (seen, packet) in seen.iter().zip(packets.by_ref()) {
                self.receive(packet, seen);
                self.meter.packet_ends();
            }
        }
        drop(packets);
        (self.inbox, self.seen) = (inbox, seen);
    }

    /// Closes the accounts of a round, and tells FairDrop what the classes of processing took.
    #[inline]
    fn round_measured(&mut self, round: &Round) {
        let Self { meter, fairdrop, services, .. } = self;
        meter.round_ends(round.received, round.sent, |class, packets, cycles| {
            if let Some(fairdrop) = fairdrop {
                fairdrop.measured(processing_class(services.of(class)), packets, cycles);
            }
        });
    }

    /// Bounds what leaves the links at once after a pause of whoever calls [`Pipeline::round`]. Without a bound, paced links keep their rate exactly
    /// in the long run however long he was away, by sending all that he missed at once. With it they send at most what `bound` takes them, and
    /// the capacity of the rest of the pause is lost. `None`, as at the start, is for callers that come when they are asked to.
    pub fn set_max_catch_up(&mut self, bound: Option<Nanos>) {
        self.max_catch_up = bound;
    }

    /// What is late by more than the bound is late by the bound. The pause counts from the round before, not from what has been read: frames
    /// that wait to be received do not hold the links up.
    fn bound_catch_up(&mut self, now: Nanos) {
        let pause = now.saturating_sub(std::mem::replace(&mut self.last_round, now));
        let Some(bound) = self.max_catch_up.filter(|bound| pause > *bound) else { return };
        let until = self.advanced.saturating_add(pause - bound);
        for at in 0..self.ports.len() {
            self.outgoing(at).0.hold(until);
        }
    }

    /// Lets everything happen on the links that is due up to `now`, and gives the ports what has left. True: again at once.
    fn advance<P: Port>(&mut self, now: Nanos, ports: &mut [P], round: &mut Round) -> bool {
        self.advanced = self.advanced.max(now);
        round.blocked = false;
        let (mut sent, mut kept_back, mut soonest) = (0, false, Nanos::MAX);
        self.active.retain(|active| {
            let at = usize::from(*active);
            let due = &mut self.due[at];
            if *due <= now {
                let (slot, port) = (&mut self.ports[at], &mut ports[at]);
                *due = slot.advance(now, &mut self.pool);
                if !slot.tx.is_empty() {
                    sent += port.tx_burst(&mut self.pool, &mut slot.tx);
                    self.senders.push(*active);
                }
                if !slot.tx.is_empty() {
                    *due = Nanos::ZERO;
                }
                slot.room = port.tx_room().min(TX_QUEUE);
                kept_back |= slot.link.config().rate.is_none() && slot.link.held().queued > 0;
                round.blocked |= slot.is_blocked();
            }
            soonest = soonest.min(*due);
            *due != Nanos::MAX
        });
        self.soonest = soonest;
        round.sent += sent;
        sent > 0 && kept_back
    }

    /// The ports that frames were given to in the last round, in their order; one that had to be asked again is there again.
    #[must_use]
    pub fn senders(&self) -> &[u16] {
        &self.senders
    }

    /// When [`Pipeline::round`] has something to do although no frame arrives.
    #[must_use]
    pub fn next_wake(&self) -> Option<Nanos> {
        let mut wake = self.soonest;
        if wake == Nanos::ZERO {
            let due = |active: &u16| match self.due[usize::from(*active)] {
                Nanos::ZERO => self.ports[usize::from(*active)].next_wake(),
                known => known,
            };
            wake = self.active.iter().map(due).fold(Nanos::MAX, Nanos::min);
        }
        let wake = wake.min(self.cluster.as_ref().map_or(Nanos::MAX, ClusterRole::next_wake));
        let wake = wake.min(self.neighbours.next_deadline().unwrap_or(Nanos::MAX));
        (wake != Nanos::MAX).then_some(wake)
    }
}

impl PortSlot {
    /// Lets everything happen that is due up to `now`. Returns when there is more to do, `Nanos::ZERO` if the link waits for its port.
    fn advance(&mut self, now: Nanos, pool: &mut FramePool) -> Nanos {
        self.control_until(now, pool);
        self.admit_until(now, pool);
        let (link, mut egress) = self.outgoing(pool);
        link.advance(now, &mut egress);
        let unpaced = self.link.config().rate.is_none();
        let no_room = unpaced && self.tx.len() >= self.room;
        let kept_back = self.link.held().queued > 0 && (unpaced || self.link.next_wake().is_none());
        if no_room || kept_back { Nanos::ZERO } else { self.next_wake() }
    }

    /// When link or control have something to do; `Nanos::MAX`: never.
    fn next_wake(&self) -> Nanos {
        let link = self.link.next_wake().unwrap_or(Nanos::MAX);
        let link = link.min(self.control_due().unwrap_or(Nanos::MAX));
        link.min(self.admission_due().unwrap_or(Nanos::MAX))
    }

    /// Whether something waits for nothing but the port: frames that it did not take, or a link without a rate that it has no room for.
    fn is_blocked(&self) -> bool {
        let link_waits = || self.link.held().queued > 0 && self.link.next_wake().is_none();
        self.up && (!self.tx.is_empty() || link_waits())
    }
}
