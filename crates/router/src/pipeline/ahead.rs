//! Looking ahead: what depends on nothing but a frame and the tables is found out for a vector of
//! packets at a time. So what they read from memory is waited for together, and each piece of code
//! stays in the cache for the whole vector.
//!
//! ```text
//! up to 32 packets ─▶ fetch headers ─▶ look up flows ┬ known ─────────────────────┬▶ fetch flow state
//!                                                    └ parse, classify, look up ──┘        │
//!                                                      routes            packet by packet: forward
//! ```
//!
//! Nothing here changes anything but what the cache of flows remembers: counters, queues and
//! decisions that depend on the packets before belong to each packet's own turn. Tables change
//! between rounds only, so what is found out for a vector holds for all of its packets. With
//! FairDrop on, routes are looked up in each packet's turn: what it refuses shall not have cost a
//! look-up.

use std::net::{IpAddr, Ipv4Addr};

use evenkeel_core::packet::Places;
use evenkeel_net::fib::Decision;
use evenkeel_net::frame::{self, Headers};
use evenkeel_net::policy::{LARGE_TABLE, LookupKey, Origin};
use evenkeel_ports::Frame;

use super::Pipeline;
use super::admission::FlowTables;
use super::fairdrop::FairDrop;
use super::flow_cache::Probe;
use super::packet::{UnroutedPacket, VECTOR};
use super::parsed::{PacketMeta, Parsed};
use super::port::PortSlot;

/// Packets for which prefetching routes is not worth its time.
const FEW: usize = 4;

/// The flows that are known.
#[inline]
fn known_flows(parsed: &[Parsed]) -> impl Iterator<Item = &Probe> {
    parsed.iter().filter_map(|parsed| match parsed {
        Parsed::Known(probe) if probe.is_found() => Some(probe),
        _ => None,
    })
}

impl Pipeline {
    /// Parses a vector of packets and looks up their routes, in their order.
    pub(super) fn look_ahead(&mut self, packets: &[UnroutedPacket], parsed: &mut Vec<Parsed>) {
        for packet in packets {
            self.pool.prefetch(&packet.frame);
        }
        self.flow_cache.begin_vector();
        parsed.clear();
        let (mut fetches, mut known) = (false, 0);
        if self.flow_cache.is_on() {
            (fetches, known) = self.look_up_flows(packets, parsed);
        } else {
            parsed.extend(packets.iter().map(|packet| self.parse(&packet.frame)));
        }
        // What FairDrop refuses shall not have cost a look-up.
        if self.fairdrop.as_ref().is_some_and(FairDrop::is_on) {
            return;
        }
        if known < packets.len() {
            fetches |= self.look_up_routes(packets, parsed);
        }
        if fetches {
            self.prefetch_flows(packets, parsed);
        }
    }

    /// Looks up the routes of parsed packets. Whether what links keep of some flow is on its way
    /// from memory.
    fn look_up_routes(&self, packets: &[UnroutedPacket], parsed: &mut [Parsed]) -> bool {
        self.prefetch_routes(parsed);
        let mut fetches = false;
        for (parsed, packet) in parsed.iter_mut().zip(packets) {
            let Parsed::Ip(meta) = parsed else { continue };
            if self.ports[packet.port.index()].peer.is_none() {
                let key = || self.lookup_key(packet, meta);
                let route = self.routing.tables.lookup(meta.destination, meta.flow_hash, key);
                meta.route = Some(route);
            }
            if let Some(out) = self.port_after(packet, meta) {
                fetches |= out.tables().begin(meta.flow_hash, Places::UNKNOWN);
            }
        }
        fetches
    }

    /// Begins to read what links keep of the flows. The bucket says where that is; for the first
    /// flows it has come by now.
    fn prefetch_flows(&self, packets: &[UnroutedPacket], parsed: &[Parsed]) {
        let mut last = None;
        for (parsed, packet) in parsed.iter().zip(packets) {
            match parsed {
                Parsed::Ip(meta) => {
                    if let Some(out) = self.port_after(packet, meta) {
                        out.tables().prefetch(meta.flow_hash, Places::UNKNOWN);
                    }
                }
                Parsed::Known(probe) => {
                    self.tables_after(probe, &mut last).prefetch(probe.hash, probe.places);
                }
                Parsed::Other | Parsed::Invalid(_) => {}
            }
        }
    }

    /// Where the link of a packet's way looks up flows. Nearly all packets of a vector go the way
    /// of the one before, which is the `last`.
    #[inline]
    fn tables_after<'a>(
        &'a self,
        probe: &Probe,
        last: &mut Option<(u16, FlowTables<'a>)>,
    ) -> FlowTables<'a> {
        match *last {
            Some((way, tables)) if way == probe.way => tables,
            _ => {
                let tables = self.tables_of(probe.way);
                *last = Some((probe.way, tables));
                tables
            }
        }
    }

    fn tables_of(&self, way: u16) -> FlowTables<'_> {
        self.ports[self.ports[self.flow_cache.port(way)].link_at].tables()
    }

    /// Finds the packets of known flows, and those whose flows become known, and parses the others.
    /// Whether what links keep of some flow is on its way from memory, and how many are known.
    #[inline]
    fn look_up_flows(
        &mut self,
        packets: &[UnroutedPacket],
        parsed: &mut Vec<Parsed>,
    ) -> (bool, usize) {
        self.probe_all(packets, parsed);
        let mut found = self.flow_cache.find_all(parsed);
        if found.others > 0 {
            for (parsed, packet) in parsed.iter_mut().zip(packets) {
                if let Parsed::Other = parsed {
                    *parsed = self.parse(&packet.frame);
                }
            }
        }
        if found.known + found.others < packets.len() {
            found = self.find_out(packets, parsed, found);
        }
        if let Some(fairdrop) = &self.fairdrop {
            known_flows(parsed).for_each(|probe| fairdrop.prefetch(probe.hash));
        }
        (self.begin_flows(parsed, found.ways), found.known)
    }

    /// Says of which packets a flow may be known.
    #[inline(never)] // so that it has the registers for itself
    fn probe_all(&self, packets: &[UnroutedPacket], parsed: &mut Vec<Parsed>) {
        parsed.extend(packets.iter().map(|packet| {
            let bytes = self.pool.bytes(&packet.frame);
            let probe = self.flow_cache.probe(bytes, &packet.frame, packet.port);
            probe.map_or(Parsed::Other, Parsed::Known)
        }));
    }

    /// Begins to look for known flows, which go by the ways from `least` to `most`, where links
    /// keep something of them. Whether something is on its way from memory.
    #[inline]
    fn begin_flows(&self, parsed: &[Parsed], (least, most): (u16, u16)) -> bool {
        // Nearly always all go one way.
        if least == most {
            let tables = self.tables_of(least);
            return tables.are_asked() && tables.begin_all(known_flows(parsed));
        }
        let (mut fetches, mut last) = (false, None);
        for probe in known_flows(parsed) {
            let tables = self.tables_after(probe, &mut last);
            if tables.are_asked() {
                fetches |= tables.begin(probe.hash, probe.places);
            }
        }
        fetches
    }

    /// The port with the link that a packet leaves by: of the port that its own is joined with, or
    /// that its route leads to, where one does.
    #[inline]
    fn port_after(&self, packet: &UnroutedPacket, meta: &PacketMeta) -> Option<&PortSlot> {
        let port = match (self.ports[packet.port.index()].peer, meta.route) {
            (Some(peer), _) => self.ports.get(peer),
            (None, Some(Some(Decision::Forward { port, .. }))) => self.ports.get(port.index()),
            _ => None,
        };
        port.map(|slot| &self.ports[slot.link_at])
    }

    /// Parses, hashes and classifies a frame.
    #[inline]
    pub(super) fn parse(&self, frame: &Frame) -> Parsed {
        self.classifier.parse(self.pool.bytes(frame), |flow_hash| {
            if let Some(fairdrop) = &self.fairdrop {
                fairdrop.prefetch(flow_hash);
            }
        })
    }

    /// All headers of a packet that has been [parsed](Pipeline::parse) and not been changed since.
    #[cold]
    pub(super) fn headers(&self, packet: &UnroutedPacket) -> Option<Headers> {
        match frame::parse(self.pool.bytes(&packet.frame)) {
            Ok(frame::Parsed::Ip(headers)) => Some(headers),
            _ => None,
        }
    }

    /// The key that routing rules look at, for a packet that has not been changed.
    #[cold]
    pub(super) fn lookup_key(&self, packet: &UnroutedPacket, meta: &PacketMeta) -> LookupKey {
        let origin =
            if packet.originated { Origin::Host(packet.port) } else { Origin::Port(packet.port) };
        match self.headers(packet) {
            Some(headers) => LookupKey::new(&headers, origin),
            None => LookupKey { flow: meta.flow.unpack(), dscp: 0, origin },
        }
    }

    /// Prefetches the routes of a vector, where the table is too large for the nearer caches.
    pub(super) fn prefetch_routes(&self, parsed: &[Parsed]) {
        if self.routing.tables.len() < LARGE_TABLE || parsed.len() < FEW {
            return;
        }
        let mut destinations = [IpAddr::V4(Ipv4Addr::UNSPECIFIED); VECTOR];
        let mut count = 0;
        for parsed in parsed.iter().take(VECTOR) {
            destinations[count] = match parsed {
                Parsed::Ip(meta) => meta.destination,
                Parsed::Known(probe) if !probe.is_found() => probe.flow.key().destination,
                _ => continue,
            };
            count += 1;
        }
        self.routing.tables.read_ahead(&destinations[..count]);
    }
}
