//! An endpoint on a host: one end of a conversation, as a state machine without sockets and without
//! a clock.
//!
//! The engine owns the hosts. It gives an [`Endpoint`] the IP packets that arrive for it, calls it
//! when the time it asked for has come, and sends what it puts into its [`Outbox`]. Packets
//! are *heads*: headers as bytes, and a length. The bytes of a payload do not matter in a
//! simulation, so it is not made, copied or checked; only as many bytes as [`HEAD`] travel.
//! Transport checksums may be left zero.

use evenkeel_core::Nanos;

/// Bytes of an IP packet that travel: all headers (IPv6 40, TCP with every option 60), and a little
/// for measuring.
pub const HEAD: usize = 106;

/// An IP packet that has arrived.
#[derive(Clone, Copy, Debug)]
pub struct IpPacket<'a> {
    /// Its bytes from the IP header on, [`HEAD`] at most. What stands behind the transport header
    /// means nothing.
    pub head: &'a [u8],
    /// The length of all of it, as in its IP header.
    pub ip_len: u32,
}

/// An IP packet to be sent.
#[derive(Clone, Copy, Debug)]
pub struct Outgoing {
    pub(crate) head: [u8; HEAD],
    pub(crate) head_len: u8,
    pub(crate) ip_len: u32,
}

/// Takes what an endpoint sends, in order. Keeps its memory from call to call.
#[derive(Debug, Default)]
pub struct Outbox {
    pub(crate) packets: Vec<Outgoing>,
}

impl Outbox {
    /// An empty one: for tests of endpoints.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sends an IP packet of `ip_len` bytes that begins with `head` (IP and transport header).
    /// False, and nothing sent, if the head is longer than [`HEAD`] or than the packet.
    pub fn send(&mut self, head: &[u8], ip_len: u32) -> bool {
        if head.len() > HEAD || head.len() > ip_len as usize {
            return false;
        }
        self.write(|place| {
            place[..head.len()].copy_from_slice(head);
            (head.len(), ip_len)
        });
        true
    }

    /// Sends the IP packet whose head `write` writes where it is to lie. It gives the length of the
    /// head and of all, which is no shorter.
    pub(crate) fn write(&mut self, write: impl FnOnce(&mut [u8; HEAD]) -> (usize, u32)) {
        self.packets.push(Outgoing { head: [0; HEAD], head_len: 0, ip_len: 0 });
        if let Some(packet) = self.packets.last_mut() {
            let (head_len, ip_len) = write(&mut packet.head);
            (packet.head_len, packet.ip_len) = (head_len as u8, ip_len);
        }
    }

    /// What waits to be sent, as it will arrive at the other end: for tests of endpoints, and to
    /// join two without a network.
    pub fn packets(&self) -> impl Iterator<Item = IpPacket<'_>> {
        self.packets
            .iter()
            .map(|p| IpPacket { head: &p.head[..usize::from(p.head_len)], ip_len: p.ip_len })
    }

    /// Forgets what waits to be sent.
    pub fn clear(&mut self) {
        self.packets.clear();
    }
}

/// What an endpoint has done so far. Counts never go back.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct EndpointCounters {
    /// Bytes of payload handed over in order at this end, each once: goodput.
    pub delivered_bytes: u64,
    /// Bytes of payload of this end that the other has acknowledged.
    pub acknowledged_bytes: u64,
    /// Segments sent by this end that carried payload, retransmissions included.
    pub data_segments: u64,
    /// Segments sent again.
    pub retransmitted: u64,
    /// Retransmission time-outs.
    pub timeouts: u64,
    /// Round trips that this end measured.
    pub round_trips: u64,
    /// How long they took together.
    pub round_trip_time: Nanos,
}

/// What a sender thinks of the way to the other end.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct SenderWay {
    /// Congestion window, bytes.
    pub cwnd: u64,
    /// Smoothed round-trip time; `None` before it was measured.
    pub rtt: Option<Nanos>,
}

/// One end of a conversation between two hosts.
///
/// `now` is virtual time and never goes back. Whatever the call, packets go into `out`; they leave
/// at `now`, in their order.
pub trait Endpoint {
    /// The conversation begins: the end that opens it is called once, when its traffic starts.
    /// Others are not called.
    fn start(&mut self, now: Nanos, out: &mut Outbox);

    /// A packet for this end has arrived: its addresses, protocol and ports fit.
    fn receive(&mut self, now: Nanos, packet: IpPacket<'_>, out: &mut Outbox);

    /// The time that [`next_wake`](Self::next_wake) named has come, or a later one.
    fn wake(&mut self, now: Nanos, out: &mut Outbox);

    /// When to call [`wake`](Self::wake) although nothing arrives; asked after each call. A time in
    /// the past means at once.
    fn next_wake(&self) -> Option<Nanos>;

    /// Nothing new to be sent from `now` on: the traffic stops. What is on its way may be finished
    /// or left.
    fn stop(&mut self, now: Nanos);

    /// Whether it has nothing more to do: all it had to send is acknowledged and it waits for
    /// nothing. The engine then forgets it.
    fn is_done(&self) -> bool;

    /// What it has done.
    fn counters(&self) -> EndpointCounters;

    /// What it thinks of its way, if it sends by TCP and the connection is open.
    fn way(&self) -> Option<SenderWay> {
        None
    }
}
