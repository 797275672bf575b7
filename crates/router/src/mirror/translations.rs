//! Which host is behind which translated connection (NAT): the kernel's connection tracking,
//! followed by netlink.
//!
//! Where addresses are translated, packets at the outer interface have the gateway's address,
//! whoever sent them. The kernel knows each connection by two tuples: as it began, and as its
//! answers come. From these follows which packets at the outer interface are of which host inside:
//!
//! | | answers come as | packets come in as | the host |
//! |---|---|---|---|
//! | begun inside, source translated | (peer → gateway) | the tuple of the answers | the source it began with |
//! | begun outside, passed on to a host | (host → peer) | the tuple it began with | the source of the answers |
//!
//! TCP, UDP and their like in IPv4. Connections that are not translated are left out.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::{AsFd, BorrowedFd};

use evenkeel_core::FlowKey;
use netlink_packet_core::{
    NLM_F_DUMP, NLM_F_REQUEST, NLMSG_DONE, NLMSG_ERROR, NetlinkBuffer, NlasIterator,
};
use netlink_sys::constants::NETLINK_NETFILTER;
use netlink_sys::{Socket, SocketAddr};

use super::MirrorEvent;

/// `NFNLGRP_CONNTRACK_NEW` and `NFNLGRP_CONNTRACK_DESTROY`.
const GROUPS: [u32; 2] = [1, 3];
/// Messages of connection tracking (`NFNL_SUBSYS_CTNETLINK`): a connection is there, asks for
/// connections, a connection is gone.
const NEW: u16 = 1 << 8;
const GET: u16 = NEW | 1;
const DELETE: u16 = NEW | 2;
/// `struct nfgenmsg`: family, version, resource.
const HEAD: usize = 4;
const AF_INET: u8 = 2;

const CTA_TUPLE_ORIG: u16 = 1;
const CTA_TUPLE_REPLY: u16 = 2;
const CTA_TUPLE_IP: u16 = 1;
const CTA_TUPLE_PROTO: u16 = 2;
const CTA_IP_V4_SRC: u16 = 1;
const CTA_IP_V4_DST: u16 = 2;
const CTA_PROTO_NUM: u16 = 1;
const CTA_PROTO_SRC_PORT: u16 = 2;
const CTA_PROTO_DST_PORT: u16 = 3;

const RECEIVE_BUFFER: u32 = 8 << 20;
const DATAGRAM: usize = 64 << 10;
/// Datagrams read before others have their turn.
const AT_ONCE: usize = 64;
const ENOBUFS: i32 = 105;

/// The socket, in the network namespace of the thread that opened it.
pub(crate) struct Translations {
    socket: Socket,
    buffer: Vec<u8>,
    /// What others have told before, or was missed, is to be forgotten.
    anew: bool,
}

impl Translations {
    /// Follows, and has the kernel tell all connections that there are.
    ///
    /// # Errors
    /// The kernel has no connection tracking that can be followed.
    pub(crate) fn open() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_NETFILTER)?;
        socket.bind_auto()?;
        for group in GROUPS {
            socket.add_membership(group)?;
        }
        socket.set_non_blocking(true)?;
        let _ = evenkeel_ports::sys::set_receive_buffer(&socket, RECEIVE_BUFFER);
        let translations = Self { socket, buffer: Vec::with_capacity(DATAGRAM), anew: true };
        translations.ask()?;
        Ok(translations)
    }

    /// Becomes readable when there is something to [`read`](Self::read).
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    fn ask(&self) -> io::Result<()> {
        let mut message = [0; 16 + HEAD];
        let mut header = NetlinkBuffer::new(&mut message[..]);
        header.set_length(16 + HEAD as u32);
        header.set_message_type(GET);
        header.set_flags(NLM_F_REQUEST | NLM_F_DUMP);
        message[16] = AF_INET;
        self.socket.send_to(&message, &SocketAddr::new(0, 0), 0).map(drop)
    }

    /// Takes what the kernel tells, connections that there were before and those that come and go.
    /// What it could not tell for want of room is asked for again, all of it. True: there may be
    /// more.
    ///
    /// # Errors
    /// The socket failed.
    pub(crate) fn read(&mut self, changes: &mut Vec<MirrorEvent>) -> io::Result<bool> {
        for _ in 0..AT_ONCE {
            if std::mem::take(&mut self.anew) {
                changes.push(MirrorEvent::NoTranslations);
            }
            self.buffer.clear();
            match self.socket.recv(&mut self.buffer, 0) {
                Ok(_) => decode(&self.buffer, changes),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.raw_os_error() == Some(ENOBUFS) => {
                    self.anew = true;
                    self.ask()?;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }
}

/// What the messages of a datagram tell of translated connections; what cannot be read is of none.
fn decode(mut datagram: &[u8], changes: &mut Vec<MirrorEvent>) {
    while let Ok(message) = NetlinkBuffer::new_checked(&datagram) {
        let kind = message.message_type();
        if kind == NLMSG_DONE || kind == NLMSG_ERROR {
            return;
        }
        if matches!(kind, NEW | DELETE)
            && let Some((flow, inside)) = message.payload().get(HEAD..).and_then(translation)
        {
            changes
                .push(MirrorEvent::Translation { flow, inside: (kind == NEW).then_some(inside) });
        }
        let length = (message.length() as usize).next_multiple_of(4);
        datagram = datagram.get(length..).unwrap_or_default();
    }
}

/// How packets of a translated connection come in at the outer interface, and the host inside.
fn translation(attributes: &[u8]) -> Option<(FlowKey, Ipv4Addr)> {
    let (mut begun, mut answers) = (None, None);
    for (kind, value) in each(attributes) {
        match kind {
            CTA_TUPLE_ORIG => begun = tuple(value),
            CTA_TUPLE_REPLY => answers = tuple(value),
            _ => {}
        }
    }
    let (begun, answers) = (begun?, answers?);
    let (flow, inside) = if answers.destination != begun.source {
        (answers, begun.source)
    } else if answers.source != begun.destination {
        (begun, answers.source)
    } else {
        return None;
    };
    match inside {
        IpAddr::V4(inside) => Some((flow, inside)),
        IpAddr::V6(_) => None,
    }
}

/// A tuple of IPv4 with ports.
fn tuple(attributes: &[u8]) -> Option<FlowKey> {
    let (mut source, mut destination) = (None, None);
    let (mut protocol, mut source_port, mut destination_port) = (None, None, None);
    let address = |value: &[u8]| <[u8; 4]>::try_from(value).ok().map(|it| IpAddr::V4(it.into()));
    let port = |value: &[u8]| <[u8; 2]>::try_from(value).ok().map(u16::from_be_bytes);
    for (part, value) in each(attributes) {
        for (kind, value) in each(value) {
            match (part, kind) {
                (CTA_TUPLE_IP, CTA_IP_V4_SRC) => source = address(value),
                (CTA_TUPLE_IP, CTA_IP_V4_DST) => destination = address(value),
                (CTA_TUPLE_PROTO, CTA_PROTO_NUM) => protocol = value.first().copied(),
                (CTA_TUPLE_PROTO, CTA_PROTO_SRC_PORT) => source_port = port(value),
                (CTA_TUPLE_PROTO, CTA_PROTO_DST_PORT) => destination_port = port(value),
                _ => {}
            }
        }
    }
    Some(FlowKey {
        source: source?,
        destination: destination?,
        protocol: protocol?,
        source_port: source_port?,
        destination_port: destination_port?,
        flow_label: 0,
    })
}

/// The attributes of a message, or of an attribute, up to the first that cannot be read.
fn each(attributes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    let read = NlasIterator::new(attributes).map_while(Result::ok);
    read.map(|one| {
        let kind = one.kind();
        let bytes = one.into_inner();
        let end = usize::from(u16::from_ne_bytes([bytes[0], bytes[1]]));
        (kind, &bytes[4..end.max(4)])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let mut bytes = ((value.len() + 4) as u16).to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(value);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    fn nested(kind: u16, parts: &[Vec<u8>]) -> Vec<u8> {
        attribute(kind | 1 << 15, &parts.concat())
    }

    fn side(kind: u16, (from, from_port): (&str, u16), (to, to_port): (&str, u16)) -> Vec<u8> {
        let address = |text: &str| text.parse::<Ipv4Addr>().unwrap().octets();
        let ip = [attribute(CTA_IP_V4_SRC, &address(from)), attribute(CTA_IP_V4_DST, &address(to))];
        let ports = [
            attribute(CTA_PROTO_NUM, &[6]),
            attribute(CTA_PROTO_SRC_PORT, &from_port.to_be_bytes()),
            attribute(CTA_PROTO_DST_PORT, &to_port.to_be_bytes()),
        ];
        nested(kind, &[nested(CTA_TUPLE_IP, &ip), nested(CTA_TUPLE_PROTO, &ports)])
    }

    fn message(kind: u16, sides: &[Vec<u8>]) -> Vec<u8> {
        let body = [vec![AF_INET, 0, 0, 0], sides.concat()].concat();
        let mut bytes = (16 + body.len() as u32).to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend([0; 10]);
        bytes.extend(body);
        bytes
    }

    const HOST: (&str, u16) = ("192.168.1.7", 5000);
    const GATEWAY: (&str, u16) = ("203.0.113.1", 61_000);
    const PEER: (&str, u16) = ("198.51.100.9", 443);

    fn told(datagram: &[u8]) -> Vec<(String, Option<String>)> {
        let mut changes = Vec::new();
        decode(datagram, &mut changes);
        let of = |event: MirrorEvent| match event {
            MirrorEvent::Translation { flow, inside } => {
                (flow.to_string(), inside.map(|inside| inside.to_string()))
            }
            other => panic!("{other:?}"),
        };
        changes.into_iter().map(of).collect()
    }

    #[test]
    fn the_host_inside_is_told_of_connections_begun_on_either_side() {
        let inside = Some("192.168.1.7".to_owned());
        let begun_inside = [side(CTA_TUPLE_ORIG, HOST, PEER), side(CTA_TUPLE_REPLY, PEER, GATEWAY)];
        let passed_on = [side(CTA_TUPLE_ORIG, PEER, GATEWAY), side(CTA_TUPLE_REPLY, HOST, PEER)];
        for sides in [&begun_inside, &passed_on] {
            let there = told(&message(NEW, sides));
            assert_eq!(there.len(), 1);
            // As it comes in by the outer interface: from the peer to the gateway.
            assert!(there[0].0.contains("198.51.100.9") && there[0].0.contains("203.0.113.1"));
            assert_eq!(there[0].1, inside);
            assert_eq!(told(&message(DELETE, sides)), [(there[0].0.clone(), None)]);
        }
        let plain = [side(CTA_TUPLE_ORIG, HOST, PEER), side(CTA_TUPLE_REPLY, PEER, HOST)];
        let both = [message(NEW, &plain), message(NEW, &begun_inside)].concat();
        assert_eq!(told(&both).len(), 1, "what is not translated is left out");
    }

    #[test]
    fn what_cannot_be_read_is_of_no_connection() {
        let sides = [side(CTA_TUPLE_ORIG, HOST, PEER), side(CTA_TUPLE_REPLY, PEER, GATEWAY)];
        let whole = message(NEW, &sides);
        for end in 0..whole.len() {
            assert_eq!(told(&whole[..end]), [], "cut at {end}");
        }
        for at in 16..whole.len() {
            for value in [0, 1, 2, 3, 5, 255] {
                let mut wrong = whole.clone();
                wrong[at] = value;
                let _ = told(&wrong);
            }
        }
    }
}
