//! Packets of [known](super::flow_cache) flows where nobody judges or measures them on their way,
//! from their port to their link.
//!
//! One look at a packet is enough: who sent it to whom on the wire is compared, time to live,
//! checksum and addresses are changed, and the link has it. Nearly always the next one comes by the
//! same port and leaves by the same link, so what holds for these is asked once for a run of
//! packets. Whatever is not as expected ends the run and goes
//! [the way of all others](Pipeline::receive), with nothing changed; what both ways do to a packet,
//! a test holds to each other.

use std::vec::Drain;

use evenkeel_core::Nanos;
use evenkeel_core::admit::{Pin, Verdict};
use evenkeel_core::measure::Run;
use evenkeel_core::packet::Places;
use evenkeel_core::schedule::tree::UNKNOWN;
use evenkeel_net::{PortIndex, frame, rewrite};

use super::Pipeline;
use super::fairdrop::FairDrop;
use super::known::{KnownPacket, frame_len};
use super::packet::{PacketRecord, UnroutedPacket};
use super::parsed::Parsed;
use super::subscribers::whose_before;

/// Why a run of packets ended.
enum End {
    /// There is no other packet, or the next one takes another way.
    Over,
    /// Something about the next packet is not as usual. Nothing has changed.
    Unusual,
    /// The link's admission does not let this one pass, at that time.
    Held(PacketRecord, Verdict, Nanos),
    /// The link is another worker's.
    Others(PacketRecord, Pin),
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
        parsed: &mut &[Parsed],
        packets: &mut Drain<'_, UnroutedPacket>,
    ) {
        while let [Parsed::Known(probe), ..] = parsed
            && let Some(received) = packets.as_slice().first().map(|packet| packet.port)
            && self.flow_cache.holds()
        {
            let port = self.flow_cache.port(probe.way);
            let link = self.ports[port].link_at;
            match self.forward_run(parsed, packets, received, (port as u16, link)) {
                End::Over => {}
                End::Unusual => return,
                End::Held(queued, verdict, at) => self.hold(link, queued, verdict, at),
                End::Others(queued, pin) => self.hand_on(link, None, queued, pin),
            }
        }
    }

    /// Forwards packets that come by the port `received` and leave by `port`, as long as all is as
    /// usual. Their link is that of the port `link`.
    #[inline]
    fn forward_run(
        &mut self,
        parsed: &mut &[Parsed],
        packets: &mut Drain<'_, UnroutedPacket>,
        received: PortIndex,
        (port, link): (u16, usize),
    ) -> End {
        let from = &self.ports[received.index()];
        let own = from.mac.bits();
        if !from.up || from.peer.is_some() {
            return End::Unusual;
        }
        let Self { pool, ports, flow_cache, addresses, agenda, admissions, classifier, .. } = self;
        let slot = &mut ports[link];
        let framing = slot.link.framing();
        let (plain, looked_at) = (slot.is_plain(), slot.is_looked_at());
        let (mut count, mut bytes_received) = (0, 0);
        let mut run = Run::default();
        let end = loop {
            let (Some(packet), [next, others @ ..]) = (packets.as_slice().first(), *parsed) else {
                break End::Over;
            };
            let Parsed::Known(probe) = next else { break End::Unusual };
            if packet.port != received {
                break End::Over;
            }
            // Asked for once: that they are this frame's is checked each time.
            let bytes = pool.bytes_mut(&packet.frame);
            let stations = frame::station_bits(bytes);
            if stations.is_none_or(|(to, from)| to != own || addresses.is_port(from)) {
                break End::Unusual;
            }
            let Some(way) = flow_cache.way(probe) else { break End::Unusual };
            if way.port != port {
                break End::Over;
            }
            let subscriber = if plain { UNKNOWN } else { whose_before(slot, bytes) };
            if rewrite::forward_usual(bytes, &way.stations).is_err() {
                break End::Unusual;
            }
            *parsed = others;
            let Some(UnroutedPacket { mut frame, arrival, .. }) = packets.next() else {
                break End::Over;
            };
            count += 1;
            bytes_received += frame.len() as u64;
            pool.trim(&mut frame, frame_len(probe));
            let wire_len = framing.of(probe.ip_len.into()).0 as u32;
            let mut packet = KnownPacket { probe, port, arrival, wire_len, subscriber };
            let at = agenda.entry_time(arrival);
            if plain {
                let (_, queue) = slot.enter_known(&mut run, &packet, frame, at, pool);
                flow_cache.note(probe, Places { queue, ..probe.places });
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
        };
        slot.link.count(&mut run);
        if count > u64::from(matches!(end, End::Held(..) | End::Others(..))) {
            agenda.touch(link);
        }
        ports[received.index()].count.forwarded(count, bytes_received);
        end
    }
}
