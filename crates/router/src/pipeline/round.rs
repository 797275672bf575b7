//! One round: what the ports have received goes as far as it can, and what has left the links goes
//! out.

use evenkeel_core::{Nanos, Reason};
use evenkeel_ports::{Port, RxWaiting};

use super::agenda::Progress;
use super::balancer::BalancerRole;
use super::cluster::ClusterRole;
use super::cycles::processing_class;
use super::egress::TX_QUEUE;
use super::fairdrop::FairDrop;
use super::packet::{BURST, VECTOR};
use super::{Pipeline, Round};

/// A full burst of so many frames at least is taken for a full ring, where a port cannot tell.
const LEAST_THAT_TELLS: usize = 16;

/// Drops before links that are looked into in a round, for `explain`: a flood of them shall not
/// cost more by it.
const REMEMBERED: u8 = 8;

/// What the ports have given in a round.
struct Reception {
    received: usize,
    /// Whether some port had more.
    more: bool,
    /// Up to when links may advance: what arrived before has been read.
    horizon: Nanos,
    /// What the rings still hold.
    waiting: RxWaiting,
}

impl Pipeline {
    /// Receives a burst from every port, takes every packet as far as it can go now, and sends what
    /// has left the links.
    ///
    /// `ports` are those of the configuration, in its order; `now` is not before that of an earlier
    /// call.
    pub fn round<P: Port>(&mut self, now: Nanos, ports: &mut [P]) -> Round {
        self.round_of(now, ports, 0..ports.len())
    }

    /// As [`Pipeline::round`], for a caller that knows which ports have received something. The
    /// others are not asked, and links without a rate see the room that their ports had when last
    /// something was sent or received there. A round then costs what its packets cost, and a
    /// comparison for each port that has something to send.
    pub fn round_of<P: Port>(
        &mut self,
        now: Nanos,
        ports: &mut [P],
        receiving: impl IntoIterator<Item = usize, IntoIter: Clone>,
    ) -> Round {
        self.meter.round_begins();
        self.end_stale_watch(now);
        self.remembers = REMEMBERED;
        if let Some(until) = self.agenda.begin_round(now) {
            for at in 0..self.ports.len() {
                self.outgoing(at).0.hold(until);
            }
        }
        let Reception { received, more, horizon, waiting } =
            self.receive_all(now, ports, receiving.into_iter());
        let handed = self.take_handed(now);
        self.receiver.sort();
        self.meter.fetched(self.receiver.len());
        if received > 0
            && let Some(fairdrop) = self.fairdrop.as_mut().filter(|fairdrop| fairdrop.is_on())
        {
            fairdrop.begin(now, received, waiting, &mut self.meter);
        }
        match self.receiver.len() {
            0 => {}
            1 if self.forward_lone() => {}
            _ => self.forward_inbox(),
        }
        self.hand_over(ports);
        self.expire(now);
        if self.has_role() {
            self.run_roles(now, horizon);
        }
        let mut round = Round { received: received + handed, more, ..Round::default() };
        // What a link without a rate kept back goes while its port takes it.
        if self.follows() {
            self.follow(horizon);
        }
        while self.advance(horizon, ports, &mut round) {}
        self.flush_handed();
        self.end_accounts(&round);
        round
    }

    #[inline]
    fn receive_all<P: Port>(
        &mut self,
        now: Nanos,
        ports: &mut [P],
        receiving: impl Iterator<Item = usize> + Clone,
    ) -> Reception {
        let waiting = RxWaiting::default();
        let mut all = Reception { received: 0, more: false, horizon: now, waiting };
        let ring = self.settings.ring;
        let burst = self.fairdrop.as_ref().map_or(BURST, FairDrop::burst);
        self.keep_whole(ports, receiving.clone());
        for at in receiving {
            let port = &mut ports[at];
            let slot = &mut self.ports[at];
            slot.room = port.tx_room().min(TX_QUEUE);
            slot.kernel_has_copy = port.kernel_has_copy();
            slot.hands_over = port.hands_over();
            // Fewer frames say nothing about a ring that cannot tell how full it is.
            let least = if port.rx_ring().is_none() { LEAST_THAT_TELLS } else { 1 };
            let burst = burst.max(least);
            let read = self.receiver.read(now, at, port, &mut self.pool, burst);
            if read.taken >= burst {
                all.more = true;
                all.horizon = read.last.map_or(all.horizon, |last| last.min(all.horizon));
            }
            if read.taken > 0 && self.fairdrop.is_some() {
                // Of a port that cannot tell, a full burst counts as a full ring.
                let guess = if read.taken >= burst { ring } else { 0 };
                let waiting = port.rx_waiting().unwrap_or(RxWaiting::one(guess));
                all.waiting.frames += waiting.frames;
                // Rings of different length overflow at different numbers.
                let fullest = match port.rx_ring() {
                    Some(own) if own != ring => {
                        (u64::from(waiting.fullest) * u64::from(ring) / u64::from(own.max(1)))
                            as u32
                    }
                    _ => waiting.fullest,
                };
                all.waiting.fullest = all.waiting.fullest.max(fullest);
            }
            all.received += read.frames;
        }
        all
    }

    /// Forwards the packets that were received, a vector at a time.
    pub(super) fn forward_inbox(&mut self) {
        let (straight, looks) = (self.goes_straight(), self.looks_at_lines());
        let watched = self.watching.is_some();
        let (mut inbox, mut parsed) = self.receiver.take();
        let mut packets = inbox.drain(..);
        while !packets.as_slice().is_empty() {
            let waiting = packets.as_slice();
            let vector = &waiting[..waiting.len().min(VECTOR)];
            if looks {
                self.look_for_stamps(vector);
            }
            self.look_ahead(vector, &mut parsed);
            self.meter.looked_ahead(vector.len());
            let mut parsed = parsed.as_mut_slice();
            loop {
                if straight {
                    self.forward_straight(&mut parsed, &mut packets);
                }
                let Some((first, others)) = std::mem::take(&mut parsed).split_first_mut() else {
                    break;
                };
                let Some(packet) = packets.next() else { break };
                parsed = others;
                if watched {
                    self.watch_received(&packet);
                }
                self.receive(packet, first);
                self.meter.packet_ends();
            }
        }
        drop(packets);
        self.nobody_passes();
        self.receiver.reuse(inbox, parsed);
    }

    /// Closes the accounts of a round, and tells FairDrop what each class of processing took.
    #[inline]
    fn end_accounts(&mut self, round: &Round) {
        let Self { meter, fairdrop, services, .. } = self;
        meter.round_ends(round.received, round.sent, |class, packets, cycles| {
            if let Some(fairdrop) = fairdrop {
                fairdrop.measured(processing_class(services.of(class)), packets, cycles);
            }
        });
    }

    /// Bounds what leaves the links at once after a pause between rounds. Without a bound, paced
    /// links keep their rate exactly in the long run however long the pause was, by sending all
    /// that is late at once. With it they send at most what `bound` takes them, and the capacity of
    /// the rest of the pause is lost. `None`, as at the start, is for callers that come when they
    /// are asked to.
    pub fn set_max_catch_up(&mut self, bound: Option<Nanos>) {
        self.agenda.set_max_catch_up(bound);
    }

    /// Lets everything happen on the links that is due up to `now`, and gives the ports what has
    /// left. True: again at once.
    fn advance<P: Port>(&mut self, now: Nanos, ports: &mut [P], round: &mut Round) -> bool {
        let (mut sent, mut kept_back, mut blocked) = (0, false, false);
        let Self { agenda, ports: slots, pool, .. } = self;
        agenda.advance(now, |at| {
            let (slot, port) = (&mut slots[at], &mut ports[at]);
            let mut due = slot.advance(now, pool);
            let waits = due == Nanos::ZERO;
            if !slot.up {
                // Its link goes on for others.
                slot.discard_sent(pool, Reason::LinkDown);
            }
            let sends = !slot.tx.is_empty();
            if sends {
                sent += port.tx_burst(pool, &mut slot.tx);
                if !slot.tx.is_empty() {
                    due = Nanos::ZERO;
                }
            }
            slot.room = port.tx_room().min(TX_QUEUE);
            kept_back |= waits && slot.link.config().rate.is_none() && slot.link.held().queued > 0;
            // What waits for its port has been asked to be looked at again.
            blocked |= due == Nanos::ZERO && slot.is_blocked();
            Progress { due, sent: sends }
        });
        round.blocked = blocked;
        round.sent += sent;
        self.cross() || sent > 0 && kept_back
    }

    /// The ports that frames were given to in the last round, in their order; one that had to be
    /// asked again is there again.
    #[must_use]
    pub fn senders(&self) -> &[u16] {
        self.agenda.senders()
    }

    /// When [`Pipeline::round`] has something to do although no frame arrives.
    #[must_use]
    pub fn next_wake(&self) -> Option<Nanos> {
        let wake = self.agenda.next_wake(|at| self.ports[at].next_wake());
        let wake = wake.min(self.cluster.as_ref().map_or(Nanos::MAX, ClusterRole::next_wake));
        let wake = wake.min(self.balancer.as_ref().map_or(Nanos::MAX, BalancerRole::next_wake));
        let wake = wake.min(self.follow_due());
        let wake = wake.min(self.neighbours.next_deadline().unwrap_or(Nanos::MAX));
        (wake != Nanos::MAX).then_some(wake)
    }
}
