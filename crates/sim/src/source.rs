//! A host's sources: packets of a `[[traffic]]` without answers.

use std::net::SocketAddr;

use evenkeel_core::{Bytes, Nanos};
use evenkeel_scenario::Party;
use evenkeel_traffic::{FlowArrivals, Replay, Source};
use evenkeel_world::payload::{SHORTEST, Stamp};
use evenkeel_world::ports_of_flow;

use crate::header;
use crate::port::{ETHERNET, SimFrame};

/// What says when the next packet comes.
pub(crate) enum Schedule {
    /// One flow.
    Flow(Box<Source>),
    /// Many that come and go.
    Flows(Box<FlowArrivals>),
    /// A recording.
    Replay(Box<Replay>),
}

/// Where packets go and where they say they come from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Addresses {
    pub(crate) ethernet: [u8; ETHERNET],
    pub(crate) source: SocketAddr,
    pub(crate) destination: SocketAddr,
    pub(crate) dscp: u8,
}

impl Addresses {
    fn ports(&self) -> (u16, u16) {
        (self.source.port(), self.destination.port())
    }
}

/// A source on its host. Only what each of its packets needs: there may be many sources, whose
/// turns come far apart.
pub(crate) struct Sender {
    pub(crate) traffic: u32,
    /// The direction of a wire it sends into.
    pub(crate) direction: u32,
    schedule: Schedule,
    /// What another flow's frames are made from.
    template: Box<(Addresses, Option<Party>)>,
    /// The frame of the packet that is due, and where its stamp is.
    frame: SimFrame,
    stamp_at: u16,
    /// Its length, the number of its flow, and the ports of that.
    due: (Bytes, u64),
    ports: (u16, u16),
    sent: u64,
}

/// What tells the flows of a traffic apart.
pub(crate) fn flow_key(source_port: u16, destination_port: u16) -> u64 {
    u64::from(source_port) << 16 | u64::from(destination_port)
}

/// The addresses of flow number `flow` among many alike: other ports, from the first flow's on, and
/// whoever of the party it belongs to.
pub(crate) fn numbered(addresses: Addresses, party: Option<&Party>, flow: u64) -> Addresses {
    let mut numbered = addresses;
    let (source, destination) =
        ports_of_flow(addresses.source.port(), addresses.destination.port(), flow);
    numbered.source.set_port(source);
    numbered.destination.set_port(destination);
    if let Some(party) = party {
        let hosts = (addresses.source.ip(), addresses.destination.ip());
        let (source, destination) = party.ends(flow, hosts);
        numbered.source.set_ip(source);
        numbered.destination.set_ip(destination);
    }
    numbered
}

impl Sender {
    pub(crate) fn new(
        traffic: u32,
        direction: u32,
        addresses: Addresses,
        schedule: Schedule,
        (size, party): (Bytes, Option<Party>),
    ) -> Self {
        let first = numbered(addresses, party.as_ref(), 0);
        let (frame, stamp_at) = frame_of(&first, size);
        let (due, ports) = ((size, 0), first.ports());
        let template = Box::new((addresses, party));
        Self { traffic, direction, schedule, template, frame, stamp_at, due, ports, sent: 0 }
    }

    /// When the next packet is due, which is to be sent then; `None`: there is none. To be called
    /// again after its frame was taken.
    pub(crate) fn next(&mut self, now: Nanos) -> Option<Nanos> {
        let (at, ip_len, flow) = match &mut self.schedule {
            Schedule::Flow(source) => source.next(now).map(|e| (e.at, e.ip_len, 0))?,
            Schedule::Flows(flows) => flows.next().map(|e| (e.at, e.ip_len, e.flow))?,
            Schedule::Replay(replay) => replay.next().map(|e| (e.at, e.ip_len, e.flow))?,
        };
        let (at, ip_len) = (at.max(now), ip_len.max(SHORTEST));
        if (ip_len, flow) != self.due {
            let addresses = numbered(self.template.0, self.template.1.as_ref(), flow);
            (self.due, self.ports) = ((ip_len, flow), addresses.ports());
            (self.frame, self.stamp_at) = frame_of(&addresses, ip_len);
        }
        // Long before the frame is copied: a copy would wait for pieces that were just written.
        Stamp { flow: self.traffic, seq: self.sent, at }
            .write(&mut self.frame.bytes[usize::from(self.stamp_at)..]);
        self.sent += 1;
        Some(at)
    }

    /// What tells the flow of the packet that is due from others of its traffic.
    pub(crate) fn flow_key(&self) -> u64 {
        let (source, destination) = self.ports;
        flow_key(source, destination)
    }

    /// The ports of the packet that is due.
    pub(crate) const fn ports(&self) -> (u16, u16) {
        self.ports
    }

    /// The length of the packet that is due.
    pub(crate) fn ip_len(&self) -> u64 {
        self.due.0.0
    }

    /// The frame of the packet that is due.
    pub(crate) const fn frame(&self) -> SimFrame {
        self.frame
    }
}

fn frame_of(addresses: &Addresses, size: Bytes) -> (SimFrame, u16) {
    let Addresses { ethernet, source, destination, dscp } = *addresses;
    let (frame, stamp_at) = header::udp(ethernet, source, destination, dscp, size.0 as u32);
    (frame, stamp_at as u16)
}
