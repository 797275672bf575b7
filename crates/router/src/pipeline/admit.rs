//! A packet enters its outgoing link, or is refused there, or goes by the second link.

use evenkeel_core::admit::{Pin, RouterLists, Verdict, Waiting};
use evenkeel_core::measure::Run;
use evenkeel_core::packet::Places;
use evenkeel_core::schedule::tree::UNKNOWN;
use evenkeel_core::schedule::{AnyScheduler, Scheduler, Sharing, Treated};
use evenkeel_core::{Bytes, FlowKey, Nanos, Packet, Reason};
use evenkeel_net::{PortIndex, rewrite};
use evenkeel_ports::{Frame, FramePool};

use super::Pipeline;
use super::flow_cache::FlowCache;
use super::known::KnownPacket;
use super::packet::{PacketRecord, QueuedPacket, UnroutedPacket, leaving, wire_len_of};
use super::parsed::{Classifier, Parsed};
use super::port::PortSlot;
use super::store::Store;
use super::subscribers::Behind;
use crate::handing::Taker;
use crate::mirror::NeighbourRequest;

/// The queues of a link, as its admission asks them.
struct Queues<'a> {
    scheduler: &'a AnyScheduler<QueuedPacket>,
    classifier: &'a Classifier,
}

impl Waiting for Queues<'_> {
    fn of_flow(&self, flow: &FlowKey) -> Bytes {
        self.scheduler.flow_backlog(flow, self.classifier.hash(flow))
    }

    fn sharing(&self, subscriber: u32) -> Option<Sharing> {
        self.scheduler.sharing(subscriber)
    }
}

/// When the packets of a run arrived, by their numbers.
#[inline]
fn arrivals(packets: &[UnroutedPacket]) -> impl Fn(usize) -> Option<Nanos> {
    |at| Some(packets.get(at)?.arrival)
}

impl PacketRecord {
    /// Looks whose it is, if that is not known.
    #[inline]
    fn find_subscriber(&mut self, behind: &Behind, pool: &FramePool) {
        if self.subscriber == UNKNOWN {
            self.subscriber = behind.place_of(&self.flow, pool.bytes(&self.frame));
        }
    }
}

impl PortSlot {
    /// Lets all happen that is due before a packet enters that arrived at `arrival`.
    #[inline]
    fn catch_up(&mut self, arrival: Nanos, at: Nanos, pool: &mut Store) {
        self.control_until(arrival, pool);
        self.admit_until(at, pool);
    }

    /// As [`catch_up`](Self::catch_up), in a run of packets of known flows.
    #[inline(always)] // or what is asked once for a run of packets is asked for each
    pub(super) fn catch_up_in(
        &mut self,
        run: &mut Run,
        arrival: Nanos,
        at: Nanos,
        pool: &mut Store,
    ) {
        if self.controls_by(arrival) || self.estimates_by(at) {
            self.link.count(run);
            self.catch_up(arrival, at, pool);
        }
    }

    /// Whether a packet whose subscriber has been looked for may enter the link, as its admission
    /// has it.
    #[inline(always)] // or what is asked once for a run of packets is asked for each
    pub(super) fn judge<P: Packet>(
        &mut self,
        packet: &P,
        pin: Pin,
        at: Nanos,
        classifier: &Classifier,
        lists: &mut RouterLists,
    ) -> Verdict {
        let Some(admission) = &mut self.admission else { return Verdict::Pass };
        let waiting = Queues { scheduler: self.link.scheduler(), classifier };
        admission.decide(at, packet, pin, &waiting, lists)
    }

    /// Looks whose a packet of a known flow is, if that is not known.
    #[inline]
    pub(super) fn find_subscriber(
        &self,
        packet: &mut KnownPacket<'_>,
        frame: &Frame,
        pool: &FramePool,
    ) {
        if packet.subscriber == UNKNOWN
            && let Some(behind) = &self.behind
        {
            packet.subscriber = behind.place_of(&packet.packed_flow(), pool.bytes(frame));
        }
    }

    /// Whether nobody but the link has to do with a packet that enters it.
    #[inline]
    pub(super) fn is_plain(&self) -> bool {
        self.is_nobody_elses() && self.admission.is_none()
    }

    /// The same but for the admission of the link, if it has one.
    #[inline]
    pub(super) fn is_nobody_elses(&self) -> bool {
        !self.is_others
            && self.control.is_none()
            && self.behind.is_none()
            && self.line.is_none()
            && self.seen.is_none()
    }

    /// Whether somebody looks at what leaves the link without waiting.
    pub(super) fn is_looked_at(&self) -> bool {
        self.line.is_some() || self.seen.is_some()
    }

    /// A packet of a known flow enters a link that [nobody looks at](Self::is_looked_at), in a run
    /// of such packets. How it was treated, and where its flow is among the queues.
    #[inline(always)] // most of it is not made if it passes
    pub(super) fn enter_known(
        &mut self,
        run: &mut Run,
        packet: &KnownPacket<'_>,
        frame: Frame,
        at: Nanos,
        pool: &mut Store,
    ) -> (Treated, u32) {
        self.busiest.see(packet);
        let passed = self.link.pass_on(run, at, packet, self.tx_room());
        self.pass_or_queue(passed, packet, frame, at, pool)
    }

    /// The same of a packet that comes alone.
    #[inline(always)] // as above
    pub(super) fn enter_lone(
        &mut self,
        packet: &KnownPacket<'_>,
        frame: Frame,
        at: Nanos,
        pool: &mut Store,
    ) -> (Treated, u32) {
        self.busiest.see(packet);
        let passed = self.link.pass(at, packet, self.tx_room());
        self.pass_or_queue(passed, packet, frame, at, pool)
    }

    /// A packet of a known flow leaves, if it has passed its link, or waits in it, if it may.
    #[inline(always)] // as above
    fn pass_or_queue(
        &mut self,
        passed: Option<Treated>,
        packet: &KnownPacket<'_>,
        frame: Frame,
        at: Nanos,
        pool: &mut Store,
    ) -> (Treated, u32) {
        if let Some(treated) = passed {
            self.tx.push_back(frame);
            return (treated, packet.places().queue);
        }
        let treated = self.queue(pool.queued(packet.record(frame)), at, pool);
        let queue = match treated {
            // The discipline need not have looked for its flow.
            Treated::Dropped(_) => packet.places().queue,
            _ => self.link.scheduler().last_place(),
        };
        (treated, queue)
    }

    /// Lets a run of packets of known flows pass a [plain](Self::is_plain) link together, if
    /// nothing has to be decided of any: the caller gives their frames to `tx`. Nothing enters
    /// before `advanced`. False: nothing has changed.
    #[inline]
    pub(super) fn passes_all(
        &mut self,
        parsed: &[Parsed],
        packets: &[UnroutedPacket],
        advanced: Nanos,
    ) -> bool {
        let (count, known) = (parsed.len(), self.known(parsed, arrivals(packets)));
        let Some(last) = packets[..count].last().map(|packet| packet.arrival) else { return true };
        let all = (0..count).map_while(&known);
        if self.tx_room() <= count || !self.link.pass_all(advanced, all, last) {
            return false;
        }
        self.busiest.see_all(count, known);
        true
    }

    /// Asks the admission of a link that [nobody else](Self::is_nobody_elses) has to do with about
    /// the packets of a run, as long as they may pass together: nothing else has to be decided, and
    /// nothing enters before `advanced`. How many may, and what becomes of the next if that is not
    /// to pass.
    #[inline(never)] // so that it has the registers for itself
    pub(super) fn judge_some(
        &mut self,
        (parsed, packets): (&[Parsed], &[UnroutedPacket]),
        advanced: Nanos,
        classifier: &Classifier,
        lists: &mut RouterLists,
        flow_cache: &FlowCache,
    ) -> (usize, Verdict) {
        let mut count = 0;
        let Some((longest, treated)) = self.passes_up_to(&packets[..parsed.len()], advanced) else {
            return (count, Verdict::Pass);
        };
        let (framing, port) = (self.link.framing(), self.index.0);
        let Some(admission) = &mut self.admission else { return (count, Verdict::Pass) };
        let waiting = Queues { scheduler: self.link.scheduler(), classifier };
        for (parsed, packet) in parsed.iter().zip(packets) {
            let (Parsed::Known(probe), at) = (parsed, packet.arrival) else { break };
            let packet = KnownPacket::new(probe, at, port, framing);
            let is_usual = packet.wire_len() <= longest && Run::takes_kind(&packet);
            if !is_usual || admission.next_tick() <= at {
                break;
            }
            let verdict = admission.decide(at, &packet, packet.pin(), &waiting, lists);
            if verdict != Verdict::Pass {
                return (count, verdict);
            }
            admission.treated(at, treated, lists);
            flow_cache.note(probe, Places { listed: admission.last_place(), ..probe.places });
            count += 1;
        }
        (count, Verdict::Pass)
    }

    /// Up to which length a run of packets may pass the link one after the other, and how all of
    /// them are treated, if nothing has to be decided of any.
    #[inline]
    fn passes_up_to(
        &self,
        packets: &[UnroutedPacket],
        advanced: Nanos,
    ) -> Option<(Bytes, Treated)> {
        let ([first, ..], [.., last]) = (packets, packets) else { return None };
        if self.tx_room() <= packets.len() || first.arrival < advanced {
            return None;
        }
        self.link.passes_up_to(first.arrival, last.arrival)
    }

    /// A run of packets of known flows that [may](Self::judge_some) have passed the link: the
    /// caller gives their frames to `tx`.
    #[inline]
    pub(super) fn passed(&mut self, parsed: &[Parsed], packets: &[UnroutedPacket]) {
        let (count, known) = (parsed.len(), self.known(parsed, arrivals(packets)));
        if let Some(last) = packets[..count].last() {
            self.link.passed((0..count).map_while(&known), last.arrival);
            self.busiest.see_all(count, known);
        }
    }

    /// Makes the packets of a run by their numbers, as they arrived.
    #[inline]
    pub(super) fn known<'a, A: Fn(usize) -> Option<Nanos>>(
        &self,
        parsed: &'a [Parsed],
        arrival: A,
    ) -> impl Fn(usize) -> Option<KnownPacket<'a>> + use<'a, A> {
        let (framing, port) = (self.link.framing(), self.index.0);
        move |at| match parsed.get(at)? {
            Parsed::Known(probe) => Some(KnownPacket::new(probe, arrival(at)?, port, framing)),
            _ => None,
        }
    }

    /// Frames that `tx` still takes.
    #[inline]
    fn tx_room(&self) -> usize {
        self.room.saturating_sub(self.tx.len())
    }

    /// Lets a packet whose subscriber has been looked for pass the link, if nothing has to be
    /// decided: it leaves at once. `None`: it has to [queue](Self::queue).
    #[inline(always)] // in a run of packets most of it is known
    fn passes(&mut self, queued: &PacketRecord, at: Nanos, pool: &FramePool) -> Option<Treated> {
        self.busiest.see(queued);
        let treated = self.link.pass(at, queued, self.tx_room())?;
        if let Some(line) = &mut self.line {
            line.leaves(at, queued, pool.bytes(&queued.frame));
        }
        if let Some(seen) = &mut self.seen {
            seen.left(at, queued, pool.bytes(&queued.frame), None);
        }
        Some(treated)
    }

    /// A packet whose subscriber has been looked for enters the link without being asked.
    #[inline(always)] // or the packet is copied once more
    pub(super) fn enter(&mut self, queued: PacketRecord, at: Nanos, pool: &mut Store) -> Treated {
        let Some(treated) = self.passes(&queued, at, pool) else {
            return self.queue(pool.queued(queued), at, pool);
        };
        let PacketRecord { frame, marked, .. } = queued;
        self.tx.push_back(leaving(frame, marked, pool));
        treated
    }

    /// A packet that does not pass the link waits in it, if it may.
    #[inline]
    fn queue(&mut self, mut queued: QueuedPacket, at: Nanos, pool: &mut Store) -> Treated {
        if self.link.scheduler().reads_acks() {
            let bytes = pool.bytes(&queued.frame);
            queued.note_ack(bytes);
        }
        let (link, mut egress) = self.outgoing(pool);
        link.queue(at, queued, &mut egress)
    }

    /// Where the flow of the packet is listed that the admission was asked about last.
    #[inline]
    pub(super) fn last_listed(&self) -> u32 {
        self.admission.as_ref().map_or(Places::NOWHERE, |admission| admission.last_place())
    }

    /// How a packet was treated that the admission has let in.
    #[inline]
    pub(super) fn tell_treated(&mut self, at: Nanos, treated: Treated, lists: &mut RouterLists) {
        if let Some(admission) = &mut self.admission {
            admission.treated(at, treated, lists);
        }
    }
}

impl Pipeline {
    /// Hands a packet that arrived at `at` to the link of a port. `pin` is the chosen path and the
    /// TTL that it came with.
    #[inline]
    pub(super) fn enqueue_at(
        &mut self,
        port: usize,
        mut queued: PacketRecord,
        pin: Pin,
        at: Nanos,
    ) {
        if self.ports[port].is_others {
            return self.hand_on(port, Taker::Link, queued, pin);
        }
        let Self { ports, pool, classifier, admissions, agenda, .. } = self;
        let slot = &mut ports[port];
        let arrival = at;
        let at = agenda.entry_time(arrival);
        slot.catch_up(arrival, at, pool);
        if let Some(behind) = &slot.behind {
            queued.find_subscriber(behind, pool);
        }
        match slot.judge(&queued, pin, at, classifier, &mut admissions.lists) {
            Verdict::Pass => {
                self.enters(port, &queued, at);
                let Self { ports, pool, admissions, .. } = self;
                let treated = ports[port].enter(queued, at, pool);
                ports[port].tell_treated(at, treated, &mut admissions.lists);
            }
            verdict => self.hold(port, queued, verdict, at),
        }
    }

    /// A packet enters a link without being asked. How it was treated is in the link's meters, too.
    pub(super) fn enter(&mut self, port: usize, mut queued: PacketRecord, at: Nanos) -> Treated {
        if let Some(behind) = &self.ports[port].behind {
            queued.find_subscriber(behind, &self.pool);
        }
        self.enters(port, &queued, at);
        self.ports[port].enter(queued, at, &mut self.pool)
    }

    /// A packet is about to enter a link.
    #[inline]
    fn enters(&mut self, port: usize, queued: &PacketRecord, at: Nanos) {
        self.agenda.touch(port);
        if self.watching.is_some() {
            self.watch_queued(port, queued, at);
        }
    }

    /// A packet that the admission of a link does not let pass is refused, or goes by the second
    /// link.
    #[cold]
    pub(super) fn hold(&mut self, port: usize, queued: PacketRecord, verdict: Verdict, at: Nanos) {
        match verdict {
            Verdict::Refuse(reason) => self.refuse_at_link(port, queued, reason, at),
            Verdict::Divert => self.divert(port, queued, at),
            Verdict::Pass => drop(self.enter(port, queued, at)),
        }
    }

    fn refuse_at_link(&mut self, port: usize, queued: PacketRecord, reason: Reason, at: Nanos) {
        let queued = self.pool.queued(queued);
        let (link, mut egress) = self.outgoing(port);
        link.refuse(at, queued, reason, &mut egress);
    }

    /// Sends a packet by the second link of `port`. Its next hop there must be known: no packet
    /// waits for it.
    fn divert(&mut self, port: usize, queued: PacketRecord, at: Nanos) {
        let admission = self.settings.links[port].admission.as_ref();
        let to = admission.and_then(|admission| {
            let second = &admission.second_link;
            let name = &second.port.as_ref()?.0;
            let to = self.ports.iter().position(|slot| slot.name == *name)?;
            Some((to, second.via.unwrap_or(queued.flow.unpack().destination)))
        });
        let Some((to, via)) = to.filter(|(to, _)| self.ports[*to].up) else {
            return self.refuse_at_link(port, queued, Reason::LinkDown, at);
        };
        let Some(mac) = self.neighbours.mac(PortIndex(to as u16), via) else {
            let request = NeighbourRequest { port: PortIndex(to as u16), address: via };
            self.neighbours.want(request);
            return self.refuse_at_link(port, queued, Reason::HostUnreachable, at);
        };
        if queued.ip_len > self.ports[to].mtu {
            return self.refuse_at_link(port, queued, Reason::TooBig, at);
        }
        let bytes = self.pool.bytes_mut(&queued.frame);
        if let Err(reason) = rewrite::set_macs(bytes, self.ports[to].mac, mac) {
            return self.refuse_at_link(port, queued, reason, at);
        }
        let slot = &self.ports[to];
        let wire_len = wire_len_of(slot.link.framing(), &queued.frame).0 as u32;
        let queued =
            PacketRecord { wire_len, subscriber: UNKNOWN, port: PortIndex(to as u16), ..queued };
        if slot.is_others {
            // Who has that link has no use for what path the flow has on this one.
            return self.hand_on(to, Taker::SecondLink, queued, Pin { next_hop: 0, ttl: 0 });
        }
        self.enter_second(to, queued, at);
    }

    /// A packet enters a link as the second one of that whose admission has sent it there.
    pub(super) fn enter_second(&mut self, port: usize, queued: PacketRecord, at: Nanos) {
        let slot = &mut self.ports[port];
        slot.control_until(at, &mut self.pool);
        slot.admit_until(at, &mut self.pool);
        let _ = self.enter(port, queued, at);
    }
}
