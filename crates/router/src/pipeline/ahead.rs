//! Looking ahead: what depends on nothing but a frame and the tables is found out for a vector of packets at a time, so that what they read from
//! memory is waited for together and each piece of code stays in the cache for the whole vector.
//!
//! ```text
//! vector of up to 32 ─▶ headers fetched ─▶ parsed, hashed, classed ─▶ routes looked up ─▶ state of flows fetched ─▶ packet by packet: forward
//! ```
//!
//! Nothing here changes anything: counters, queues and decisions that depend on the packets before are the matter of each packet's own turn. Tables
//! change between rounds only, so what is found out for a vector holds for all of its packets. With FairDrop on, routes are looked up in each packet's turn:
//! what it refuses shall not have cost a look-up.

use std::net::{IpAddr, Ipv4Addr};

use evenkeel_core::flow_table::PackedFlow;
use evenkeel_core::{Class, Reason};
use evenkeel_net::fib::Decision;
use evenkeel_net::frame::{self, Headers, IpVersion, Parsed};
use evenkeel_net::policy::{Asker, LARGE_TABLE, Origin};
use evenkeel_ports::Frame;

use super::fairdrop::FairDrop;
use super::forward::Packet;
use super::{Pipeline, PortSlot};

/// Packets that are looked at together: their headers and the state of their flows, some 300 bytes each, fit the nearest cache beside the code's own data.
pub(super) const VECTOR: usize = 32;
/// Packets for which reading routes side by side is not worth its time.
const FEW: usize = 4;

/// What every packet's way needs of its headers. Who needs more, on the ways that few packets take, [parses again](Pipeline::headers).
pub(super) struct Known {
    pub(super) flow: PackedFlow,
    pub(super) flow_hash: u64,
    pub(super) destination: IpAddr,
    /// What the table says of the destination; `None`: it has not been asked yet.
    pub(super) route: Option<Option<Decision>>,
    pub(super) ip_len: u32,
    pub(super) class: Class,
    /// Where the IP header is.
    pub(super) l3: u16,
    pub(super) version: IpVersion,
    pub(super) ttl: u8,
    pub(super) dont_fragment: bool,
    /// Why it may not be forwarded, by its addresses.
    pub(super) martian: Option<Reason>,
}

impl Known {
    /// Bytes of the frame up to the end of the IP packet.
    pub(super) const fn frame_len(&self) -> usize {
        self.l3 as usize + self.ip_len as usize
    }
}

/// What a frame is.
pub(super) enum Seen {
    /// A packet.
    Packet(Known),
    /// Nothing that is forwarded: the host's.
    Other,
    /// Broken.
    Bad(Reason),
}

impl Pipeline {
    /// Finds out about the packets of a vector, in their order.
    pub(super) fn look_ahead(&self, packets: &[Packet], seen: &mut Vec<Seen>) {
        for packet in packets {
            self.pool.prefetch(&packet.frame);
        }
        seen.clear();
        seen.extend(packets.iter().map(|packet| self.see(&packet.frame)));
        if self.fairdrop.as_ref().is_some_and(FairDrop::is_on) {
            return;
        }
        if self.fib.len() >= LARGE_TABLE && packets.len() >= FEW {
            self.read_routes_ahead(seen);
        }
        let mut fetches = false;
        for (known, packet) in seen.iter_mut().zip(packets) {
            let Seen::Packet(known) = known else { continue };
            let route = self.fib.lookup(known.destination, known.flow_hash, || self.asker(packet, known));
            known.route = Some(route);
            if let Some(out) = self.way_out(known) {
                fetches |= out.prefetch_buckets(known.flow_hash);
            }
        }
        if !fetches {
            return;
        }
        // Where the state of a flow is, its bucket says: that has come by now for the first ones.
        for known in seen.iter() {
            if let Seen::Packet(known) = known
                && let Some(out) = self.way_out(known)
            {
                out.prefetch(known.flow_hash);
            }
        }
    }

    /// The port that the route of a packet leads to, where one does.
    #[inline]
    fn way_out(&self, known: &Known) -> Option<&PortSlot> {
        match known.route {
            Some(Some(Decision::Forward { port, .. })) => self.ports.get(port.index()),
            _ => None,
        }
    }

    /// Parses, hashes and classifies a frame.
    #[inline]
    pub(super) fn see(&self, frame: &Frame) -> Seen {
        let bytes = self.pool.bytes(frame);
        match frame::parse_usual(bytes) {
            Some(headers) => Seen::Packet(self.know(&headers)),
            None => self.see_unusual(bytes),
        }
    }

    #[cold]
    fn see_unusual(&self, bytes: &[u8]) -> Seen {
        match frame::parse(bytes) {
            Ok(Parsed::Ip(headers)) => Seen::Packet(self.know(&headers)),
            Ok(Parsed::Other { .. }) => Seen::Other,
            Err(reason) => Seen::Bad(reason),
        }
    }

    /// Inlined also where the headers have just been made, so that most of them never are.
    #[inline(always)]
    fn know(&self, headers: &Headers) -> Known {
        let id = headers.flow_id();
        let flow_hash = self.hasher.hash(&id);
        if let Some(fairdrop) = &self.fairdrop {
            fairdrop.prefetch(flow_hash);
        }
        Known {
            flow: PackedFlow::new(&id),
            flow_hash,
            destination: headers.flow.destination,
            route: None,
            ip_len: headers.ip_len,
            class: self.class_map.classify(&headers.flow, headers.dscp),
            l3: headers.l3,
            version: headers.version,
            ttl: headers.ttl,
            dont_fragment: headers.dont_fragment,
            martian: headers.check_transit().err(),
        }
    }

    /// All of the headers of a packet that has been [seen](Pipeline::see) and not been changed since. `None` for no such packet.
    #[cold]
    pub(super) fn headers(&self, packet: &Packet) -> Option<Headers> {
        match frame::parse(self.pool.bytes(&packet.frame)) {
            Ok(Parsed::Ip(headers)) => Some(headers),
            _ => None,
        }
    }

    /// What rules of routing ask of a packet that has not been changed.
    #[cold]
    pub(super) fn asker(&self, packet: &Packet, known: &Known) -> Asker {
        let origin = if packet.originated { Origin::Host(packet.port) } else { Origin::Port(packet.port) };
        match self.headers(packet) {
            Some(headers) => Asker::new(&headers, origin),
            None => Asker { flow: known.flow.unpack(), dscp: 0, origin },
        }
    }

    /// Has the routes of a vector read side by side, where the table is too large for the nearer caches.
    fn read_routes_ahead(&self, seen: &[Seen]) {
        let mut destinations = [IpAddr::V4(Ipv4Addr::UNSPECIFIED); VECTOR];
        let mut count = 0;
        for known in seen.iter().take(VECTOR) {
            if let Seen::Packet(known) = known {
                destinations[count] = known.destination;
                count += 1;
            }
        }
        self.fib.read_ahead(&destinations[..count]);
    }
}
