//! The mirror's netlink sockets: one for events, one for dumps and requests.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, RawFd};

use netlink_packet_core::{
    NLM_F_CREATE, NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::address::AddressMessage;
use netlink_packet_route::link::LinkMessage;
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourFlags, NeighbourHeader, NeighbourMessage,
};
use netlink_packet_route::route::RouteMessage;
use netlink_packet_route::rule::RuleMessage;
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};

use super::decode::{Fact, IfIndex, decode};
use super::rules::KernelRule;
use super::state::Tables;

/// What the kernel may queue for us: a burst of some 100,000 events.
const RECEIVE_BUFFER: u32 = 64 << 20;
/// The kernel fills datagrams of a dump up to 32 KiB; single messages are smaller.
const DATAGRAM: usize = 64 << 10;
/// A dump that changes interrupted is tried again at most so often; then the last try stands until the next resync.
const DUMP_TRIES: usize = 4;

/// Multicast groups (`enum rtnetlink_groups`): links, neighbours, addresses, routes and rules of both families.
const GROUPS: [u32; 8] = [1, 3, 5, 7, 8, 9, 11, 19];

/// What there may be many of: read in pieces, with [`Kernel::ask_for`] and [`Kernel::read_dump`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Dumped {
    /// The neighbours of both families.
    Neighbours,
    /// The routes of a family, all tables.
    Routes(AddressFamily),
}

/// Both sockets, in the network namespace of the thread that opened them.
pub(crate) struct Kernel {
    events: Socket,
    requests: Socket,
    sequence: u32,
    buffer: Vec<u8>,
    /// Messages that could not be decoded so far.
    pub(crate) undecodable: u64,
}

impl Kernel {
    pub(crate) fn open() -> io::Result<Self> {
        let mut events = Socket::new(NETLINK_ROUTE)?;
        events.bind_auto()?;
        for group in GROUPS {
            events.add_membership(group)?;
        }
        events.set_non_blocking(true)?;
        enlarge(&events);
        let mut requests = Socket::new(NETLINK_ROUTE)?;
        requests.bind_auto()?;
        requests.connect(&SocketAddr::new(0, 0))?;
        enlarge(&requests);
        Ok(Self { events, requests, sequence: 0, buffer: Vec::with_capacity(DATAGRAM), undecodable: 0 })
    }

    /// Becomes readable when there are events.
    pub(crate) fn fd(&self) -> RawFd {
        self.events.as_raw_fd()
    }

    /// Reads one datagram of events. False: there are none now. Lost events are told as [`Fact::Overrun`].
    pub(crate) fn read_events(&mut self, facts: &mut Vec<Fact>) -> io::Result<bool> {
        self.buffer.clear();
        match self.events.recv(&mut self.buffer, 0) {
            Ok(_) => {
                self.undecodable += decode(&self.buffer, facts) as u64;
                Ok(true)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(true),
            Err(error) if error.raw_os_error() == Some(ENOBUFS) => {
                facts.push(Fact::Overrun);
                Ok(true)
            }
            Err(error) => Err(error),
        }
    }

    /// Reads links and addresses of both families.
    pub(crate) fn dump(&mut self) -> io::Result<Tables> {
        let mut tables = Tables::default();
        let links = self.dump_one(&RouteNetlinkMessage::GetLink(LinkMessage::default()))?;
        let addresses = self.dump_one(&RouteNetlinkMessage::GetAddress(AddressMessage::default()))?;
        links.into_iter().chain(addresses).for_each(|fact| tables.add(fact));
        Ok(tables)
    }

    /// Reads the rules of both families, in their order.
    pub(crate) fn dump_rules(&mut self) -> io::Result<Vec<KernelRule>> {
        let mut rules = Vec::new();
        for family in [AddressFamily::Inet, AddressFamily::Inet6] {
            let mut message = RuleMessage::default();
            message.header.family = family;
            let facts = self.dump_one(&RouteNetlinkMessage::GetRule(message))?;
            rules.extend(facts.into_iter().filter_map(|fact| match fact {
                Fact::Rule(rule) => Some(rule),
                _ => None,
            }));
        }
        Ok(rules)
    }

    /// All that a dump says; it is asked for again when a change interrupts it.
    fn dump_one(&mut self, request: &RouteNetlinkMessage) -> io::Result<Vec<Fact>> {
        for attempt in 1.. {
            let sequence = self.send(request.clone(), NLM_F_REQUEST | NLM_F_DUMP)?;
            let mut facts = Vec::new();
            while self.read_dump(sequence, &mut facts)? {}
            if !facts.contains(&Fact::Interrupted) || attempt == DUMP_TRIES {
                return Ok(facts);
            }
        }
        Ok(Vec::new())
    }

    /// Asks for a dump; to be read with [`Kernel::read_dump`] to its end.
    pub(crate) fn ask_for(&mut self, what: Dumped) -> io::Result<u32> {
        let request = match what {
            Dumped::Neighbours => RouteNetlinkMessage::GetNeighbour(NeighbourMessage::default()),
            Dumped::Routes(family) => {
                let mut message = RouteMessage::default();
                message.header.address_family = family;
                RouteNetlinkMessage::GetRoute(message)
            }
        };
        self.send(request, NLM_F_REQUEST | NLM_F_DUMP)
    }

    /// Reads one datagram of the dump that was asked for as `sequence`. False: it was the last.
    pub(crate) fn read_dump(&mut self, sequence: u32, facts: &mut Vec<Fact>) -> io::Result<bool> {
        loop {
            self.buffer.clear();
            match self.requests.recv(&mut self.buffer, 0) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            }
            // Answers to earlier requests (a neighbour that could not be asked for) stand before the dump.
            if sequence_of(&self.buffer) != Some(sequence) {
                continue;
            }
            self.undecodable += decode(&self.buffer, facts) as u64;
            return match facts.last() {
                Some(Fact::Done) => Ok(false),
                Some(Fact::Answer(code)) => Err(io::Error::from_raw_os_error(code.abs())),
                _ => Ok(true),
            };
        }
    }

    /// Has the kernel ask for a neighbour, or confirm one it has not heard of for a while: what sending a packet to it
    /// would do. Whether it answered is seen in later events.
    pub(crate) fn use_neighbour(&mut self, index: IfIndex, address: IpAddr) -> io::Result<()> {
        let (family, address) = match address {
            IpAddr::V4(ip) => (AddressFamily::Inet, NeighbourAddress::Inet(ip)),
            IpAddr::V6(ip) => (AddressFamily::Inet6, NeighbourAddress::Inet6(ip)),
        };
        let mut message = NeighbourMessage::default();
        message.header = NeighbourHeader {
            family,
            ifindex: index,
            flags: NeighbourFlags::Use,
            ..NeighbourHeader::default()
        };
        message.attributes = vec![NeighbourAttribute::Destination(address)];
        self.send(RouteNetlinkMessage::NewNeighbour(message), NLM_F_REQUEST | NLM_F_CREATE)?;
        Ok(())
    }

    fn send(&mut self, message: RouteNetlinkMessage, flags: u16) -> io::Result<u32> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut header = NetlinkHeader::default();
        header.flags = flags;
        header.sequence_number = self.sequence;
        let mut message = NetlinkMessage::new(header, NetlinkPayload::from(message));
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        self.requests.send(&bytes, 0)?;
        Ok(self.sequence)
    }
}

const ENOBUFS: i32 = 105;

fn sequence_of(datagram: &[u8]) -> Option<u32> {
    Some(u32::from_ne_bytes(datagram.get(8..12)?.try_into().ok()?))
}

/// The largest buffer we may have. Events that do not fit are repaired by the periodic dump, so a refusal is no error.
fn enlarge(socket: &Socket) {
    let _ = evenkeel_ports::sys::set_receive_buffer(socket, RECEIVE_BUFFER);
}
