//! The two ends as the engine sees them: packets in, packets out.

use core::net::SocketAddr;

use evenkeel_core::Nanos;

use super::receiver::{Receiver, ReceiverConfig};
use super::segment::{Route, Segment};
use super::sender::{Sender, SenderConfig};
use crate::host::{Endpoint, EndpointCounters, IpPacket, Outbox, SenderWay};

/// Where a connection runs, as the sending end sees it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Addresses {
    /// The end that sends data.
    pub source: SocketAddr,
    /// The end that receives it; of the same family.
    pub destination: SocketAddr,
    /// DSCP of all packets, 0 to 63.
    pub dscp: u8,
}

impl Addresses {
    fn route(&self, back: bool) -> Route {
        let (from, to) =
            if back { (self.destination, self.source) } else { (self.source, self.destination) };
        Route {
            source: from.ip(),
            destination: to.ip(),
            source_port: from.port(),
            destination_port: to.port(),
            dscp: self.dscp & 0x3f,
        }
    }
}

/// Numbers packets and writes them.
#[derive(Debug)]
struct Writer {
    route: Route,
    identification: u16,
}

impl Writer {
    fn write(&mut self, segment: &Segment, out: &mut Outbox) {
        out.write(|head| segment.write(&self.route, self.identification, head));
        self.identification = self.identification.wrapping_add(1);
    }
}

/// The sending end: opens the connection when it is started.
#[derive(Debug)]
pub struct TcpSender {
    sender: Sender,
    writer: Writer,
}

impl TcpSender {
    /// Not yet started.
    #[must_use]
    pub fn new(config: SenderConfig, addresses: &Addresses) -> Self {
        Self {
            sender: Sender::new(config),
            writer: Writer { route: addresses.route(false), identification: 0 },
        }
    }

    fn flush(&mut self, now: Nanos, out: &mut Outbox) {
        while let Some(segment) = self.sender.transmit(now) {
            self.writer.write(&segment, out);
        }
    }
}

impl Endpoint for TcpSender {
    fn start(&mut self, now: Nanos, out: &mut Outbox) {
        self.sender.open();
        self.flush(now, out);
    }

    fn receive(&mut self, now: Nanos, packet: IpPacket<'_>, out: &mut Outbox) {
        if let Some(segment) = Segment::read(packet) {
            self.sender.receive(now, &segment);
            self.flush(now, out);
        }
    }

    fn wake(&mut self, now: Nanos, out: &mut Outbox) {
        self.flush(now, out);
    }

    fn next_wake(&self) -> Option<Nanos> {
        self.sender.next_wake()
    }

    fn stop(&mut self, _now: Nanos) {
        self.sender.stop();
    }

    fn is_done(&self) -> bool {
        self.sender.is_done()
    }

    fn way(&self) -> Option<SenderWay> {
        let rtt = self.sender.round_trip();
        self.sender.is_open().then(|| SenderWay { cwnd: self.sender.cwnd(), rtt })
    }

    fn counters(&self) -> EndpointCounters {
        let counts = self.sender.counts();
        let (round_trip_time, round_trips) = self.sender.round_trips();
        EndpointCounters {
            round_trip_time,
            round_trips,
            acknowledged_bytes: self.sender.acknowledged(),
            data_segments: counts.segments,
            retransmitted: counts.retransmitted,
            timeouts: counts.timeouts,
            ..EndpointCounters::default()
        }
    }
}

/// The receiving end: listens from the beginning and is never done, as it cannot know what is still
/// to come.
#[derive(Debug)]
pub struct TcpReceiver {
    receiver: Receiver,
    writer: Writer,
}

impl TcpReceiver {
    /// Listens.
    #[must_use]
    pub fn new(config: ReceiverConfig, addresses: &Addresses) -> Self {
        Self {
            receiver: Receiver::new(config),
            writer: Writer { route: addresses.route(true), identification: 0 },
        }
    }

    fn flush(&mut self, now: Nanos, out: &mut Outbox) {
        while let Some(segment) = self.receiver.transmit(now) {
            self.writer.write(&segment, out);
        }
    }
}

impl Endpoint for TcpReceiver {
    fn start(&mut self, _now: Nanos, _out: &mut Outbox) {}

    fn receive(&mut self, now: Nanos, packet: IpPacket<'_>, out: &mut Outbox) {
        if let Some(segment) = Segment::read(packet) {
            self.receiver.receive(now, &segment);
            self.flush(now, out);
        }
    }

    fn wake(&mut self, now: Nanos, out: &mut Outbox) {
        self.flush(now, out);
    }

    fn next_wake(&self) -> Option<Nanos> {
        self.receiver.next_wake()
    }

    fn stop(&mut self, _now: Nanos) {}

    fn is_done(&self) -> bool {
        false
    }

    fn counters(&self) -> EndpointCounters {
        EndpointCounters {
            delivered_bytes: self.receiver.delivered(),
            ..EndpointCounters::default()
        }
    }
}
