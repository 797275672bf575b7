//! Packets of [known](super::flow_cache) flows where nobody judges or measures them on their way,
//! from their port to their link.
//!
//! Who sent a packet to whom on the wire is compared, time to live, checksum and addresses are
//! changed, and the link has it. Nearly always the next one comes by the same port and leaves by
//! the same link, so what holds for these is asked once for a run of packets: all are rewritten,
//! then all enter the link, each step in a loop that is small enough for the registers. Where the
//! link has nothing to decide about any of them they pass it together; its admission, if it has
//! one, is asked about all of them before.
//!
//! Whatever is not as expected ends the run and goes [the way of all others](Pipeline::receive),
//! with nothing changed; what both ways do to a packet, a test holds to each other.

use std::vec::Drain;

use evenkeel_core::admit::{Pin, Verdict};
use evenkeel_core::packet::Places;
use evenkeel_core::{Nanos, measure};
use evenkeel_net::{frame, rewrite};

use super::Pipeline;
use super::addresses::Addresses;
use super::fairdrop::FairDrop;
use super::flow_cache::Probe;
use super::known::{KnownPacket, frame_len};
use super::packet::{PacketRecord, UnroutedPacket};
use super::parsed::Parsed;
use super::subscribers::whose_before;
use crate::handing::Taker;

/// Packets of known flows, one after the other, that came by one port and leave by another, and
/// have been rewritten for it.
#[derive(Default)]
struct Run {
    /// How many they are.
    count: usize,
    /// Whether some frame is longer than its packet.
    is_padded: bool,
    /// The port they leave by, and that of its link.
    port: u16,
    link: usize,
}

/// Why packets of a run stopped entering their link.
enum End {
    /// There is no other.
    Over,
    /// The link's admission does not let this one pass, at that time.
    Held(PacketRecord, Verdict, Nanos),
    /// The link is another worker's.
    Others(PacketRecord, Pin),
}

/// Whether a frame came to the port with this address, and from no port of this router.
#[inline(always)] // a few comparisons
pub(super) fn comes_as_usual(frame: &[u8], own: u64, addresses: &Addresses) -> bool {
    frame::station_bits(frame).is_some_and(|(to, from)| to == own && !addresses.is_port(from))
}

impl Pipeline {
    /// Whether nobody looks at packets between their port and their link.
    pub(super) fn goes_straight(&self) -> bool {
        !self.meter.is_on()
            && !self.fairdrop.as_ref().is_some_and(FairDrop::is_on)
            && self.watching.is_none()
    }

    /// Forwards the packets at the head of a vector, up to the first with something unusual.
    /// `parsed` is what was found out of `packets`, and loses what it says of those that are gone.
    #[inline]
    pub(super) fn forward_straight(
        &mut self,
        parsed: &mut &mut [Parsed],
        packets: &mut Drain<'_, UnroutedPacket>,
    ) {
        while !parsed.is_empty() && self.flow_cache.holds() {
            let run = self.rewrite_run(parsed, packets.as_slice());
            if run.count == 0 {
                return;
            }
            let (known, others) = std::mem::take(parsed).split_at_mut(run.count);
            *parsed = others;
            self.enter_run(&run, known, packets);
        }
    }

    /// Rewrites the packets at the head of a vector, as long as all is as usual and they come and
    /// leave by the ports of the first.
    #[inline(never)] // so that it has the registers for itself
    fn rewrite_run(&mut self, parsed: &mut [Parsed], packets: &[UnroutedPacket]) -> Run {
        let Self { pool, ports, flow_cache, addresses, .. } = self;
        let ([Parsed::Known(first), ..], [UnroutedPacket { port: received, .. }, ..]) =
            (&*parsed, packets)
        else {
            return Run::default();
        };
        let from = &ports[received.index()];
        if !from.up || from.peer.is_some() {
            return Run::default();
        }
        let own = from.mac.bits();
        let (mut number, mut way) = (first.way, flow_cache.way_of(first.way));
        let port = way.port;
        let link = ports[usize::from(port)].link_at;
        let behind = ports[link].behind.is_some();
        let (mut count, mut bytes_received, mut bytes_needed) = (0, 0, 0);
        for (parsed, packet) in parsed.iter_mut().zip(packets) {
            let Parsed::Known(probe) = parsed else { break };
            if packet.port != *received {
                break;
            }
            // Asked for once: that they are this frame's is checked each time.
            let bytes = pool.bytes_mut(&packet.frame);
            if !comes_as_usual(bytes, own, addresses) {
                break;
            }
            if number != probe.way {
                number = probe.way;
                way = flow_cache.way_of(number);
                if way.port != port {
                    break;
                }
            }
            if !way.takes(probe) {
                break;
            }
            if behind {
                probe.subscriber = whose_before(&ports[link], bytes);
            }
            if rewrite::forward_usual(bytes, &way.stations).is_err() {
                break;
            }
            count += 1;
            bytes_received += bytes.len();
            bytes_needed += frame_len(probe);
        }
        ports[received.index()].count.forwarded(count as u64, bytes_received as u64);
        Run { count, is_padded: bytes_received > bytes_needed, port, link }
    }

    /// Rewritten packets, of which is known what `known` says, enter their link.
    #[inline]
    fn enter_run(
        &mut self,
        run: &Run,
        mut known: &[Parsed],
        packets: &mut Drain<'_, UnroutedPacket>,
    ) {
        let slot = &mut self.ports[run.link];
        if slot.is_plain() {
            if slot.passes_all(known, packets.as_slice(), self.agenda.advanced()) {
                return self.send_all(run, known, packets);
            }
        } else if slot.is_nobody_elses() {
            self.enter_judged(run, &mut known, packets);
        }
        while self.ports[run.link].makes_wait() && !known.is_empty() {
            let count = self.enter_waiting((run.port, run.link), known, packets);
            // Of the next one something is to be decided.
            let (mut next, others) = known[count..].split_at((known.len() - count).min(1));
            self.enter_singly(run, &mut next, packets);
            known = others;
        }
        self.enter_singly(run, &mut known, packets);
    }

    /// Packets of a run enter their link one by one.
    #[inline]
    fn enter_singly(
        &mut self,
        run: &Run,
        known: &mut &[Parsed],
        packets: &mut Drain<'_, UnroutedPacket>,
    ) {
        loop {
            match self.enter_some(run, known, packets) {
                End::Over => return,
                End::Held(queued, verdict, at) => self.hold(run.link, queued, verdict, at),
                End::Others(queued, pin) => self.hand_on(run.link, Taker::Link, queued, pin),
            }
        }
    }

    /// The first packets of a run enter a link that only its admission has to do with, as long as
    /// they pass together.
    #[inline(never)] // so that links without an admission do not pay for it
    fn enter_judged(
        &mut self,
        run: &Run,
        known: &mut &[Parsed],
        packets: &mut Drain<'_, UnroutedPacket>,
    ) {
        let Self { ports, flow_cache, agenda, admissions, classifier, .. } = self;
        let (slot, lists) = (&mut ports[run.link], &mut admissions.lists);
        let asked = (*known, packets.as_slice());
        let (count, verdict) =
            slot.judge_some(asked, agenda.advanced(), classifier, lists, flow_cache);
        let (passed, others) = known.split_at(count);
        *known = others;
        if count > 0 {
            slot.passed(passed, packets.as_slice());
            self.send_all(run, passed, packets);
        }
        if verdict != Verdict::Pass
            && let ([Parsed::Known(probe), others @ ..], Some(packet)) = (others, packets.next())
        {
            *known = others;
            self.hold_known(run, probe, packet, verdict);
        }
    }

    /// The first packets of a run have passed their link.
    #[inline(always)] // a loop over their frames
    fn send_all(&mut self, run: &Run, known: &[Parsed], packets: &mut Drain<'_, UnroutedPacket>) {
        let tx = &mut self.ports[run.link].tx;
        let packets = packets.by_ref().take(known.len());
        if run.is_padded {
            tx.extend(packets.zip(known).map(|(mut packet, parsed)| {
                if let Parsed::Known(probe) = parsed {
                    packet.frame.trim(frame_len(probe));
                }
                packet.frame
            }));
        } else {
            tx.extend(packets.map(|packet| packet.frame));
        }
        self.agenda.touch(run.link);
    }

    /// A packet of a run is not to pass its link.
    #[cold]
    fn hold_known(&mut self, run: &Run, probe: &Probe, packet: UnroutedPacket, verdict: Verdict) {
        let UnroutedPacket { mut frame, arrival, .. } = packet;
        frame.trim(frame_len(probe));
        let framing = self.ports[run.link].link.framing();
        let record = KnownPacket::new(probe, arrival, run.port, framing).record(frame);
        self.hold(run.link, record, verdict, self.agenda.entry_time(arrival));
    }

    /// The same as long as it takes them.
    #[inline]
    fn enter_some(
        &mut self,
        &Run { port, link, .. }: &Run,
        known: &mut &[Parsed],
        packets: &mut Drain<'_, UnroutedPacket>,
    ) -> End {
        let Self { pool, ports, flow_cache, agenda, admissions, classifier, .. } = self;
        let slot = &mut ports[link];
        let framing = slot.link.framing();
        let (plain, looked_at) = (slot.is_plain(), slot.is_looked_at());
        let (mut entered, mut run) = (false, measure::Run::default());
        let end = loop {
            let [Parsed::Known(probe), others @ ..] = *known else { break End::Over };
            *known = others;
            let Some(UnroutedPacket { mut frame, arrival, .. }) = packets.next() else {
                break End::Over;
            };
            frame.trim(frame_len(probe));
            let mut packet = KnownPacket::new(probe, arrival, port, framing);
            let at = agenda.entry_time(arrival);
            if plain {
                let (_, queue) = slot.enter_known(&mut run, &packet, frame, at, pool);
                flow_cache.note(probe, Places { queue, ..probe.places });
                entered = true;
                continue;
            }
            if slot.is_others {
                break End::Others(packet.record(frame), packet.pin());
            }
            slot.catch_up_in(&mut run, arrival, at, pool);
            slot.find_subscriber(&mut packet, &frame, pool);
            let lists = &mut admissions.lists;
            let verdict = slot.judge(&packet, packet.pin(), at, classifier, lists);
            if verdict != Verdict::Pass {
                break End::Held(packet.record(frame), verdict, at);
            }
            let (treated, queue) = if looked_at {
                (slot.enter(packet.record(frame), at, pool), probe.places.queue)
            } else {
                slot.enter_known(&mut run, &packet, frame, at, pool)
            };
            slot.tell_treated(at, treated, lists);
            flow_cache.note(probe, Places { listed: slot.last_listed(), queue });
            entered = true;
        };
        slot.link.count(&mut run);
        if entered {
            agenda.touch(link);
        }
        end
    }
}
