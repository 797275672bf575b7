//! A pipeline goes on in another process: what it holds is put into a parcel, and the pipeline
//! there, which was built from the file, takes it out.
//!
//! | what | becomes |
//! |---|---|
//! | packets in a link | packets in the link of the port of the same name, in the class of the same name: those of the transmit ring first, then the queued ones in the order of arrival, with their stamps |
//! | frames that have left a link | sent before all others |
//! | packets that wait for a neighbour | looked up anew |
//! | protected flows | listed, as far as there is room, with what was known of them |
//! | counters, estimates of admission, the shadows of FairDrop | begin anew |
//!
//! Hashes of flows and places of subscribers are those of the new pipeline: it may have another
//! seed and other lists.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use evenkeel_core::admit::{Pin, ProtectedFlow};
use evenkeel_core::flow_table::PackedFlow;
use evenkeel_core::link::{Handover, Translate};
use evenkeel_core::packet::Ecn;
use evenkeel_core::packet::Places;
use evenkeel_core::{Bytes, Class, FlowKey, Nanos, Reason};
use evenkeel_net::PortIndex;
use evenkeel_ports::parcel::Parcel;
use evenkeel_ports::{FramePool, PortError};

use super::Pipeline;
use super::handover::HandoverSink;
use super::packet::{Acks, PacketRecord, QueuedPacket, UnroutedPacket};

/// What comes next in a parcel.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u64)]
enum Piece {
    /// A frame that had left its link.
    Sent = 1,
    /// A packet of a transmit ring.
    Ring,
    /// A packet in a queue.
    Queued,
    /// A packet that waits for a neighbour.
    Waiting,
    /// A protected flow.
    Flow,
    /// Nothing.
    End,
}

const PIECES: [Piece; 6] =
    [Piece::Sent, Piece::Ring, Piece::Queued, Piece::Waiting, Piece::Flow, Piece::End];
const ECN: [Ecn; 4] = [Ecn::NotCapable, Ecn::Scalable, Ecn::Classic, Ecn::Experienced];

/// Packets of a link that have been translated already.
struct Translated;

impl Translate<QueuedPacket> for Translated {
    fn class(&self, class: Class) -> Class {
        class
    }

    fn packet(&mut self, packet: QueuedPacket) -> Result<QueuedPacket, (QueuedPacket, Reason)> {
        Ok(packet)
    }
}

/// What the pieces of a parcel mean here.
struct Names {
    /// By class of the other pipeline.
    classes: Vec<Class>,
    /// By port of the other pipeline; `None`: there is none of its name.
    ports: Vec<Option<usize>>,
}

impl Names {
    fn port(&self, number: u64) -> Result<Option<usize>, PortError> {
        let port = usize::try_from(number).ok().and_then(|at| self.ports.get(at));
        port.copied().ok_or(PortError::NotPassed("a port has no name"))
    }

    fn class(&self, number: u64) -> Class {
        let class = usize::try_from(number).ok().and_then(|at| self.classes.get(at));
        class.copied().unwrap_or_default()
    }
}

/// What came for a link.
#[derive(Default)]
struct ForLink {
    ring: Vec<QueuedPacket>,
    queued: Vec<QueuedPacket>,
}

impl Pipeline {
    /// Puts what it holds into a parcel. All of it stays here too: either this pipeline goes on,
    /// or the one that takes it out.
    pub(crate) fn pass_on(&mut self, now: Nanos, parcel: &mut Parcel) {
        parcel.put(self.settings.class_names.len() as u64);
        self.settings.class_names.iter().for_each(|name| parcel.put_bytes(name.as_bytes()));
        parcel.put(self.ports.len() as u64);
        self.ports.iter().for_each(|slot| parcel.put_bytes(slot.name.as_bytes()));
        self.finish_shared(now);
        for at in 0..self.ports.len() {
            let (link, mut egress) = self.outgoing(at);
            link.advance(now, &mut egress);
            for frame in &self.ports[at].tx {
                begin(parcel, Piece::Sent, at);
                self.pool.pass_on(frame, parcel);
            }
        }
        for at in 0..self.ports.len() {
            let (link, mut egress) = self.outgoing(at);
            link.show(now, &mut egress, &mut |egress, queued, packet| {
                begin(parcel, if queued { Piece::Queued } else { Piece::Ring }, at);
                packet.pass_on(egress.pool, parcel);
            });
            let flows = self.ports[at].admission.iter().flat_map(|of| of.flows(now));
            for (key, flow) in flows {
                begin(parcel, Piece::Flow, at);
                put_key(&key, parcel);
                put_protected(&flow, parcel);
            }
        }
        self.pass_on_waiting(now, parcel);
        parcel.put(Piece::End as u64);
    }

    fn pass_on_waiting(&mut self, now: Nanos, parcel: &mut Parcel) {
        self.neighbours.release_all();
        for packet in self.neighbours.take_released() {
            begin(parcel, Piece::Waiting, packet.port.index());
            parcel.put(packet.arrival.0);
            parcel.put(u64::from(packet.originated));
            self.pool.pass_on(&packet.frame, parcel);
            self.no_longer_waiting(&packet);
            self.route(packet, now);
        }
    }

    /// Takes out what another pipeline has [put in](Self::pass_on), by the names of ports and
    /// classes. This one has its tables, its ports are as their interfaces are, and it has
    /// received nothing yet.
    ///
    /// # Errors
    /// It is not whole; what came before that is here.
    pub(crate) fn take_passed(&mut self, now: Nanos, parcel: &mut Parcel) -> Result<(), PortError> {
        self.flow_cache.begin_epoch();
        let names = self.names_of(parcel)?;
        let mut links: Vec<ForLink> = self.ports.iter().map(|_| ForLink::default()).collect();
        let mut waiting = Vec::new();
        let taken = self.take_pieces(now, parcel, &names, &mut links, &mut waiting);
        for (at, ForLink { ring, queued }) in links.into_iter().enumerate() {
            self.take_link(now, at, ring, queued);
        }
        for packet in waiting {
            self.route(packet, now);
        }
        taken
    }

    fn names_of(&self, parcel: &mut Parcel) -> Result<Names, PortError> {
        let classes = (0..parcel.take()?).map(|_| Ok(self.class_called(&parcel.take_text()?)));
        let classes = classes.collect::<Result<_, PortError>>()?;
        let port = |name: String| self.ports.iter().position(|slot| slot.name == name);
        let ports = (0..parcel.take()?).map(|_| Ok(port(parcel.take_text()?)));
        Ok(Names { classes, ports: ports.collect::<Result<_, PortError>>()? })
    }

    fn take_pieces(
        &mut self,
        now: Nanos,
        parcel: &mut Parcel,
        names: &Names,
        links: &mut [ForLink],
        waiting: &mut Vec<UnroutedPacket>,
    ) -> Result<(), PortError> {
        loop {
            let piece = parcel.take()?;
            let piece = PIECES.into_iter().find(|known| *known as u64 == piece);
            let piece = piece.ok_or(PortError::NotPassed("a piece of no known kind"))?;
            if piece == Piece::End {
                return Ok(());
            }
            let port = names.port(parcel.take()?)?;
            match piece {
                Piece::Sent => {
                    let frame = self.pool.take_passed(parcel)?;
                    let Some(at) = port else {
                        frame.into_iter().for_each(|frame| self.pool.release(frame));
                        continue;
                    };
                    let slot = &mut self.ports[at];
                    let none = &mut slot.count.tx_dropped[Reason::NoBuffer.index()];
                    frame.map_or_else(|| *none += 1, |frame| slot.tx.push_back(frame));
                }
                Piece::Ring | Piece::Queued => {
                    let Some(packet) = self.take_packet(parcel, names, port)? else { continue };
                    let link = &mut links[port.unwrap_or_default()];
                    let list = if piece == Piece::Ring { &mut link.ring } else { &mut link.queued };
                    list.push(packet);
                }
                Piece::Waiting => {
                    let (arrival, originated) = (Nanos(parcel.take()?), parcel.take()? != 0);
                    let frame = self.pool.take_passed(parcel)?;
                    if let (Some(frame), Some(at)) = (frame, port) {
                        let port = PortIndex(at as u16);
                        waiting.push(UnroutedPacket { frame, arrival, port, originated });
                    }
                }
                Piece::Flow => {
                    let (key, flow) = (take_key(parcel)?, take_protected(parcel)?);
                    let hash = self.classifier.hash(&key);
                    let admission = port.and_then(|at| self.ports[at].admission.as_mut());
                    admission.into_iter().for_each(|of| of.go_on(now, hash, &key, &flow));
                }
                Piece::End => {}
            }
        }
    }

    /// A packet for the link of a port; `None`: it has no place here, and is counted.
    fn take_packet(
        &mut self,
        parcel: &mut Parcel,
        names: &Names,
        link: Option<usize>,
    ) -> Result<Option<QueuedPacket>, PortError> {
        let (leaves, class) = (names.port(parcel.take()?)?, names.class(parcel.take()?));
        let (arrival, lengths, bits) = (Nanos(parcel.take()?), parcel.take()?, parcel.take()?);
        let key = take_key(parcel)?;
        let frame = self.pool.take_passed(parcel)?;
        let Some(frame) = frame else {
            link.into_iter().for_each(|at| self.count_no_room(at));
            return Ok(None);
        };
        let (Some(link), Some(port)) = (link, leaves) else {
            // Of a port that is no more.
            self.pool.release(frame);
            return Ok(None);
        };
        let flow = PackedFlow::new(&key);
        let bytes = self.pool.bytes(&frame);
        let behind = self.ports[link].behind.as_ref();
        let subscriber = behind.map_or(0, |behind| behind.place_of(&flow, bytes));
        Ok(Some(self.pool.queued(PacketRecord {
            frame,
            flow,
            flow_hash: self.classifier.hash(&key),
            arrival,
            ip_len: lengths as u32,
            wire_len: (lengths >> 32) as u32,
            subscriber,
            queue_place: Places::NOWHERE,
            class,
            port: PortIndex(port as u16),
            originated: bits & 1 != 0,
            marked: bits & 2 != 0,
            acks: Acks::default(),
            ecn: ECN[(bits >> 2 & 3) as usize],
        })))
    }

    /// Nobody has more room than the other process had, unless it has fewer buffers.
    fn count_no_room(&mut self, at: usize) {
        self.ports[at].count.tx_dropped[Reason::NoBuffer.index()] += 1;
    }

    /// A link goes on with what came for it.
    fn take_link(
        &mut self,
        now: Nanos,
        at: usize,
        ring: Vec<QueuedPacket>,
        queued: Vec<QueuedPacket>,
    ) {
        let classes = self.settings.class_names.len() as u16;
        let held = Handover::of_packets(now, ring, queued, classes);
        let mut leaving = HandoverSink::default();
        let slot = &mut self.ports[at];
        slot.link.take_over(now, held, &mut Translated, &mut leaving);
        for packet in leaving.sent {
            match packet.port {
                own if own == slot.index => slot.tx.push_back(packet.leave(&mut self.pool)),
                other => slot.crossing.push((other, packet.leave(&mut self.pool))),
            }
        }
        leaving.dropped.into_iter().for_each(|packet| self.pool.discard(packet));
        self.settle(now, at);
    }
}

impl QueuedPacket {
    fn pass_on(&self, pool: &FramePool, parcel: &mut Parcel) {
        parcel.put(self.port.index() as u64);
        parcel.put(self.class.index() as u64);
        parcel.put(self.arrival.0);
        parcel.put(u64::from(self.ip_len) | u64::from(self.wire_len) << 32);
        let ecn = ECN.iter().position(|known| *known == self.ecn).unwrap_or(0) as u64;
        parcel.put(u64::from(self.originated) | u64::from(self.marked) << 1 | ecn << 2);
        put_key(&self.flow.unpack(), parcel);
        pool.pass_on(&self.frame, parcel);
    }
}

fn begin(parcel: &mut Parcel, piece: Piece, port: usize) {
    parcel.put(piece as u64);
    parcel.put(port as u64);
}

fn put_key(key: &FlowKey, parcel: &mut Parcel) {
    for address in [key.source, key.destination] {
        let bits = match address {
            IpAddr::V4(address) => u128::from(address.to_bits()),
            IpAddr::V6(address) => address.to_bits(),
        };
        parcel.put(bits as u64);
        parcel.put((bits >> 64) as u64);
    }
    parcel.put(u64::from(key.source.is_ipv6()) | u64::from(key.protocol) << 8);
    let ports = u64::from(key.source_port) | u64::from(key.destination_port) << 16;
    parcel.put(ports | u64::from(key.flow_label) << 32);
}

fn take_key(parcel: &mut Parcel) -> Result<FlowKey, PortError> {
    let mut bits = || Ok(u128::from(parcel.take()?) | u128::from(parcel.take()?) << 64);
    let (source, destination): (u128, u128) = (bits()?, bits()?);
    let (kind, rest) = (parcel.take()?, parcel.take()?);
    let address = |bits: u128| match kind & 1 {
        0 => IpAddr::V4(Ipv4Addr::from_bits(bits as u32)),
        _ => IpAddr::V6(Ipv6Addr::from_bits(bits)),
    };
    Ok(FlowKey {
        source: address(source),
        destination: address(destination),
        protocol: (kind >> 8) as u8,
        source_port: rest as u16,
        destination_port: (rest >> 16) as u16,
        flow_label: (rest >> 32) as u32,
    })
}

fn put_protected(flow: &ProtectedFlow, parcel: &mut Parcel) {
    let pin = flow.pin.unwrap_or(Pin { next_hop: 0, ttl: 0 });
    parcel.put(flow.admitted.0);
    parcel.put(flow.seen.0);
    parcel.put(flow.recent.0);
    let bits = u64::from(flow.elastic) | u64::from(flow.probation) << 1;
    parcel.put(bits | u64::from(pin.next_hop) << 8 | u64::from(pin.ttl) << 16);
}

fn take_protected(parcel: &mut Parcel) -> Result<ProtectedFlow, PortError> {
    let (admitted, seen) = (Nanos(parcel.take()?), Nanos(parcel.take()?));
    let (recent, bits) = (Bytes(parcel.take()?), parcel.take()?);
    Ok(ProtectedFlow {
        admitted,
        seen,
        recent,
        elastic: bits & 1 != 0,
        probation: bits & 2 != 0,
        pin: Some(Pin { next_hop: (bits >> 8) as u8, ttl: (bits >> 16) as u8 }),
    })
}
