//! The mirror's netlink sockets: one for events, one for dumps, and one for requests about
//! neighbours, whose answers must not stand between those of a dump.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};

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
/// A dump that changes interrupted is tried again at most so often; then the last try stands until
/// the next resync.
const DUMP_TRIES: usize = 4;

/// Multicast groups (`enum rtnetlink_groups`): links, neighbours, addresses, routes and rules of
/// both families.
const GROUPS: [u32; 8] = [1, 3, 5, 7, 8, 9, 11, 19];

/// What there may be many of: read in pieces, with [`Kernel::ask_for`] and [`Kernel::read_dump`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Dumped {
    /// The neighbours of both families.
    Neighbours,
    /// The routes of a family, all tables.
    Routes(AddressFamily),
}

/// The sockets, in the network namespace of the thread that opened them.
pub(crate) struct Kernel {
    events: Socket,
    dumps: Socket,
    neighbours: Socket,
    sequence: u32,
    buffer: Vec<u8>,
    /// Messages that could not be decoded so far.
    pub(crate) undecodable: u64,
    /// A test lets the socket of events fail.
    #[cfg(test)]
    pub(crate) fails: std::sync::Arc<std::sync::atomic::AtomicBool>,
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
        let asking = || {
            let mut socket = Socket::new(NETLINK_ROUTE)?;
            socket.bind_auto()?;
            socket.connect(&SocketAddr::new(0, 0))?;
            io::Result::Ok(socket)
        };
        let (dumps, neighbours) = (asking()?, asking()?);
        enlarge(&dumps);
        neighbours.set_non_blocking(true)?;
        let buffer = Vec::with_capacity(DATAGRAM);
        Ok(Self {
            events,
            dumps,
            neighbours,
            sequence: 0,
            buffer,
            undecodable: 0,
            #[cfg(test)]
            fails: std::sync::Arc::default(),
        })
    }

    /// Becomes readable when there are events.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.events.as_fd()
    }

    /// Reads one datagram of events. False: there are none now. Lost events are told as
    /// [`Fact::Overrun`].
    pub(crate) fn read_events(&mut self, facts: &mut Vec<Fact>) -> io::Result<bool> {
        self.buffer.clear();
        #[cfg(test)]
        if self.fails.load(std::sync::atomic::Ordering::Relaxed) {
            return Err(io::ErrorKind::NotConnected.into());
        }
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
        let addresses =
            self.dump_one(&RouteNetlinkMessage::GetAddress(AddressMessage::default()))?;
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
            let sequence = self.send_for_dump(request.clone())?;
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
        self.send_for_dump(request)
    }

    /// Reads one datagram of the dump that was asked for as `sequence`. False: it was the last.
    pub(crate) fn read_dump(&mut self, sequence: u32, facts: &mut Vec<Fact>) -> io::Result<bool> {
        loop {
            self.buffer.clear();
            match self.dumps.recv(&mut self.buffer, 0) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            }
            // What is left of a dump that was given up stands before this one.
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

    /// Has the kernel ask for a neighbour, or confirm one it has not heard of for a while: what
    /// sending a packet to it would do. Whether it answered is seen in later events.
    ///
    /// # Errors
    /// The kernel refuses: its table is full (`ENOBUFS`), or the interface has just gone.
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
        self.sequence = self.sequence.wrapping_add(1);
        let message = RouteNetlinkMessage::NewNeighbour(message);
        send(&self.neighbours, self.sequence, message, NLM_F_REQUEST | NLM_F_CREATE)?;
        refusal(&mut self.buffer, |buffer| self.neighbours.recv(buffer, 0)).map_or(Ok(()), Err)
    }

    fn send_for_dump(&mut self, message: RouteNetlinkMessage) -> io::Result<u32> {
        self.sequence = self.sequence.wrapping_add(1);
        send(&self.dumps, self.sequence, message, NLM_F_REQUEST | NLM_F_DUMP)?;
        Ok(self.sequence)
    }
}

fn send(
    socket: &Socket,
    sequence: u32,
    message: RouteNetlinkMessage,
    flags: u16,
) -> io::Result<()> {
    let mut header = NetlinkHeader::default();
    header.flags = flags;
    header.sequence_number = sequence;
    let mut message = NetlinkMessage::new(header, NetlinkPayload::from(message));
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    socket.send(&bytes, 0)?;
    Ok(())
}

/// Why a request that nobody waits for was refused: the kernel has decided before sending returns,
/// and answers only if it refuses. Takes all that is there to be received, without waiting.
fn refusal(
    buffer: &mut Vec<u8>,
    mut receive: impl FnMut(&mut Vec<u8>) -> io::Result<usize>,
) -> Option<io::Error> {
    let (mut facts, mut refused) = (Vec::new(), None);
    loop {
        buffer.clear();
        match receive(buffer) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            // There is nothing more. Of an answer that was lost for want of memory nothing is
            // known.
            Err(_) => return refused,
        }
        let _ = decode(buffer, &mut facts);
        for fact in facts.drain(..) {
            if let Fact::Answer(code @ ..=-1) = fact {
                refused = Some(io::Error::from_raw_os_error(-code));
            }
        }
    }
}

const ENOBUFS: i32 = 105;

fn sequence_of(datagram: &[u8]) -> Option<u32> {
    Some(u32::from_ne_bytes(datagram.get(8..12)?.try_into().ok()?))
}

/// The largest buffer we may have. Events that do not fit are repaired by the periodic dump, so a
/// refusal is no error.
fn enlarge(socket: &Socket) {
    let _ = evenkeel_ports::sys::set_receive_buffer(socket, RECEIVE_BUFFER);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An answer of the kernel: a header, the code, and the header of the request.
    fn answer(code: i32) -> Vec<u8> {
        let mut bytes = Vec::new();
        for word in [36u32, 2, 7, 0, code as u32, 28, 0x0401_001c, 7, 0] {
            bytes.extend(word.to_ne_bytes());
        }
        bytes
    }

    fn refused(datagrams: &[Vec<u8>]) -> Option<i32> {
        let mut left = datagrams.iter();
        let receive = |buffer: &mut Vec<u8>| {
            let next = left.next().ok_or(io::ErrorKind::WouldBlock)?;
            buffer.extend(next);
            Ok(next.len())
        };
        let error = refusal(&mut Vec::new(), receive);
        assert_eq!(left.len(), 0, "everything was taken");
        error.and_then(|error| error.raw_os_error())
    }

    #[test]
    fn the_answer_to_a_request_is_a_refusal_or_none() {
        assert_eq!(refused(&[]), None);
        assert_eq!(refused(&[answer(0)]), None, "an acknowledgement");
        assert_eq!(refused(&[answer(-ENOBUFS)]), Some(ENOBUFS));
        assert_eq!(refused(&[answer(-19), answer(-ENOBUFS)]), Some(ENOBUFS));
        assert_eq!(refused(&[answer(-ENOBUFS)[..20].to_vec()]), None, "cut off");
    }

    #[test]
    fn a_refused_request_is_told_while_a_dump_is_read_and_the_dump_is_complete() {
        if !evenkeel_netns::testing::available("a refused request") {
            return;
        }
        let mut kernel = Kernel::open().unwrap();
        let whole = |kernel: &mut Kernel, between: &mut dyn FnMut(&mut Kernel)| {
            let sequence = kernel.ask_for(Dumped::Routes(AddressFamily::Inet6)).unwrap();
            between(kernel);
            let mut facts = Vec::new();
            while kernel.read_dump(sequence, &mut facts).unwrap() {
                between(kernel);
            }
            facts.last().cloned()
        };
        let mut refusals = 0;
        let last = whole(&mut kernel, &mut |kernel| {
            // No interface has that number.
            let error =
                kernel.use_neighbour(i32::MAX as u32, "10.0.0.9".parse().unwrap()).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(19), "{error}");
            refusals += 1;
        });
        assert_eq!(last, Some(Fact::Done));
        assert!(refusals >= 1);
        assert_eq!(kernel.undecodable, 0);
    }
}
