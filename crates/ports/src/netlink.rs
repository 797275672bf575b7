//! Requests to netlink that wait for their acknowledgement: enough for a tc filter, a veth pair
//! and the interrupts of an interface.

use std::io;

use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};

const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const HEADER: usize = 16;

/// A message under construction.
pub(crate) struct Message {
    bytes: Vec<u8>,
}

impl Message {
    /// A message of `kind` that begins with `body`.
    pub(crate) fn new(kind: u16, flags: libc::c_int, body: &[u8]) -> Self {
        let mut bytes = vec![0; HEADER];
        bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        bytes[6..8].copy_from_slice(&((flags | libc::NLM_F_REQUEST) as u16).to_ne_bytes());
        bytes.extend_from_slice(body);
        Self { bytes }
    }

    /// Adds an attribute.
    pub(crate) fn attribute(mut self, kind: u16, value: &[u8]) -> Self {
        self.bytes.extend_from_slice(&((4 + value.len()) as u16).to_ne_bytes());
        self.bytes.extend_from_slice(&kind.to_ne_bytes());
        self.bytes.extend_from_slice(value);
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
        self
    }

    /// Adds bytes as they are: the structure that some attributes begin with, a multiple of four
    /// bytes long.
    pub(crate) fn raw(mut self, bytes: &[u8]) -> Self {
        self.bytes.extend_from_slice(bytes);
        self
    }

    /// Adds an attribute that holds the attributes which `fill` adds.
    pub(crate) fn nested(self, kind: u16, fill: impl FnOnce(Self) -> Self) -> Self {
        let start = self.bytes.len();
        let mut message = fill(self.attribute(kind, &[]));
        let length = (message.bytes.len() - start) as u16;
        message.bytes[start..start + 2].copy_from_slice(&length.to_ne_bytes());
        message
    }
}

/// Kinds and values of attributes that follow each other.
pub(crate) fn attributes(bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let &[a, b, c, d] = rest.first_chunk()?;
        let (length, kind) = (u16::from_ne_bytes([a, b]), u16::from_ne_bytes([c, d]));
        let length = usize::from(length).clamp(4, rest.len());
        let value = &rest[4..length];
        rest = &rest[length.next_multiple_of(4).min(rest.len())..];
        // Two bits say how it is to be read.
        Some((kind & 0x3fff, value))
    })
}

/// What a message to a family of generic netlink begins with.
pub(crate) const fn generic(command: u8) -> [u8; 4] {
    [command, 1, 0, 0]
}

/// A connection to netlink of the calling thread's namespace.
#[derive(Debug)]
pub(crate) struct NetlinkSocket {
    socket: Socket,
    sequence: u32,
}

impl NetlinkSocket {
    /// To rtnetlink.
    pub(crate) fn open() -> io::Result<Self> {
        Self::open_to(NETLINK_ROUTE)
    }

    /// To another part of the kernel.
    pub(crate) fn open_to(protocol: isize) -> io::Result<Self> {
        let mut socket = Socket::new(protocol)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        Ok(Self { socket, sequence: 0 })
    }

    /// Sends a message and waits for the kernel's answer; gives the bodies of what came before its
    /// end (for a dump).
    pub(crate) fn request(&mut self, message: Message) -> io::Result<Vec<Vec<u8>>> {
        let mut bytes = message.bytes;
        self.sequence += 1;
        // A dump has an end of its own; the two bits that mean "dump" mean "replace" and
        // "exclusive" elsewhere.
        let (flags, all) = (u16::from_ne_bytes([bytes[6], bytes[7]]), libc::NLM_F_DUMP as u16);
        let flags = if flags & all == all { flags } else { flags | libc::NLM_F_ACK as u16 };
        let length = bytes.len() as u32;
        bytes[..4].copy_from_slice(&length.to_ne_bytes());
        bytes[6..8].copy_from_slice(&flags.to_ne_bytes());
        bytes[8..12].copy_from_slice(&self.sequence.to_ne_bytes());
        self.socket.send(&bytes, 0)?;
        let mut bodies = Vec::new();
        loop {
            let (answer, _) = self.socket.recv_from_full()?;
            let mut rest = answer.as_slice();
            while rest.len() >= HEADER {
                let word = |at: usize| {
                    u32::from_ne_bytes([rest[at], rest[at + 1], rest[at + 2], rest[at + 3]])
                };
                let length = word(0) as usize;
                if length < HEADER || length > rest.len() {
                    return Err(io::ErrorKind::InvalidData.into());
                }
                let kind = u16::from_ne_bytes([rest[4], rest[5]]);
                let ours = word(8) == self.sequence;
                let body = &rest[HEADER..length];
                match kind {
                    _ if !ours => {}
                    NLMSG_ERROR => {
                        let code = body
                            .first_chunk()
                            .map(|code| i32::from_ne_bytes(*code))
                            .ok_or(io::ErrorKind::InvalidData)?;
                        return if code == 0 {
                            Ok(bodies)
                        } else {
                            Err(io::Error::from_raw_os_error(-code))
                        };
                    }
                    NLMSG_DONE => return Ok(bodies),
                    _ => bodies.push(body.to_vec()),
                }
                rest = &rest[length.next_multiple_of(4).min(rest.len())..];
            }
        }
    }

    /// The number of a family of generic netlink, which this must be a connection to.
    pub(crate) fn family(&mut self, name: &str) -> io::Result<u16> {
        const CONTROLLER: u16 = 0x10;
        const GET_FAMILY: u8 = 3;
        const FAMILY_ID: u16 = 1;
        const FAMILY_NAME: u16 = 2;
        let name = [name.as_bytes(), &[0]].concat();
        let message = Message::new(CONTROLLER, 0, &generic(GET_FAMILY));
        let answer = self.request(message.attribute(FAMILY_NAME, &name))?;
        let number = answer.iter().flat_map(|body| attributes(body.get(4..).unwrap_or_default()));
        number
            .filter(|(kind, _)| *kind == FAMILY_ID)
            .find_map(|(_, value)| value.first_chunk().map(|two| u16::from_ne_bytes(*two)))
            .ok_or_else(|| io::ErrorKind::InvalidData.into())
    }
}
