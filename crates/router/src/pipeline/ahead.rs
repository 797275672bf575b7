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
use evenkeel_net::frame::{self, Headers, IpVersion};
use evenkeel_net::policy::{LARGE_TABLE, LookupKey, Origin};
use evenkeel_ports::Frame;

use super::fairdrop::FairDrop;
use super::forward::Packet;
use super::{Pipeline, PortSlot};

/// Packets that are looked at together: their headers and the state of their flows, some 300 bytes each, fit the nearest cache beside the code's own data.
pub(super) const VECTOR: usize = 32;
/// Packets for which reading routes side by side is not worth its time.
const FEW: usize = 4;

/// What forwarding needs of a packet's headers. The few packets that need more are
/// [parsed again](Pipeline::headers).
pub(super) struct PacketMeta {
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

impl PacketMeta {
    /// Bytes of the frame up to the end of the IP packet.
    pub(super) const fn frame_len(&self) -> usize {
        self.l3 as usize + self.ip_len as usize
    }
}

/// What parsing a frame gave.
pub(super) enum Parsed {
    /// An IP packet.
    Ip(PacketMeta),
    /// Nothing that is forwarded: for the kernel.
    Other,
    /// A broken packet.
    Invalid(Reason),
}

impl Pipeline {
    /// Parses a vector of packets and looks up their routes, in their order.
    pub(super) fn look_ahead(&self, packets: &[Packet], parsed: &mut Vec<Parsed>) {
        for packet in packets {
            self.pool.prefetch(&packet.frame);
        }
        parsed.clear();
        parsed.extend(packets.iter().map(|packet| self.parse(&packet.frame)));
        if self.fairdrop.as_ref().is_some_and(FairDrop::is_on) {
            return;
        }
        if self.fib.len() >= LARGE_TABLE && packets.len() >= FEW {
            self.prefetch_routes(parsed);
        }
        let mut fetches = false;
        for (meta, packet) in parsed.iter_mut().zip(packets) {
            let Parsed::Ip(meta) = meta else { continue };
            let route = self.fib.lookup(meta.destination, meta.flow_hash, || self.lookup_key(packet, meta));
            meta.route = Some(route);
            if let Some(out) = self.port_of_route(meta) {
                fetches |= out.prefetch_buckets(meta.flow_hash);
            }
        }
        if !fetches {
            return;
        }
        // Where the state of a flow is, its bucket says: that has come by now for the first ones.
        for meta in parsed.iter() {
            if let Parsed::Ip(meta) = meta
                && let Some(out) = self.port_of_route(meta)
            {
                out.prefetch(meta.flow_hash);
            }
        }
    }

    /// The port that the route of a packet leads to, where one does.
    #[inline]
    fn port_of_route(&self, meta: &PacketMeta) -> Option<&PortSlot> {
        match meta.route {
            Some(Some(Decision::Forward { port, .. })) => self.ports.get(port.index()),
            _ => None,
        }
    }

    /// Parses, hashes and classifies a frame.
    #[inline]
    pub(super) fn parse(&self, frame: &Frame) -> Parsed {
        let bytes = self.pool.bytes(frame);
        match frame::parse_usual(bytes) {
            Some(headers) => Parsed::Ip(self.metadata(&headers)),
            None => self.parse_unusual(bytes),
        }
    }

    #[cold]
    fn parse_unusual(&self, bytes: &[u8]) -> Parsed {
        match frame::parse(bytes) {
            Ok(frame::Parsed::Ip(headers)) => Parsed::Ip(self.metadata(&headers)),
            Ok(frame::Parsed::Other { .. }) => Parsed::Other,
            Err(reason) => Parsed::Invalid(reason),
        }
    }

    /// Inlined also where the headers have just been made, so that most of them never are.
    #[inline(always)]
    fn metadata(&self, headers: &Headers) -> PacketMeta {
        let id = headers.flow_id();
        let flow_hash = self.hasher.hash(&id);
        if let Some(fairdrop) = &self.fairdrop {
            fairdrop.prefetch(flow_hash);
        }
        PacketMeta {
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

    /// All headers of a packet that has been [parsed](Pipeline::parse) and not been changed since.
    #[cold]
    pub(super) fn headers(&self, packet: &Packet) -> Option<Headers> {
        match frame::parse(self.pool.bytes(&packet.frame)) {
            Ok(frame::Parsed::Ip(headers)) => Some(headers),
            _ => None,
        }
    }

    /// The key that routing rules look at, for a packet that has not been changed.
    #[cold]
    pub(super) fn lookup_key(&self, packet: &Packet, meta: &PacketMeta) -> LookupKey {
        let origin = if packet.originated { Origin::Host(packet.port) } else { Origin::Port(packet.port) };
        match self.headers(packet) {
            Some(headers) => LookupKey::new(&headers, origin),
            None => LookupKey { flow: meta.flow.unpack(), dscp: 0, origin },
        }
    }

    /// Has the routes of a vector read side by side, where the table is too large for the nearer caches.
    fn prefetch_routes(&self, parsed: &[Parsed]) {
        let mut destinations = [IpAddr::V4(Ipv4Addr::UNSPECIFIED); VECTOR];
        let mut count = 0;
        for meta in parsed.iter().take(VECTOR) {
            if let Parsed::Ip(meta) = meta {
                destinations[count] = meta.destination;
                count += 1;
            }
        }
        self.fib.read_ahead(&destinations[..count]);
    }
}
