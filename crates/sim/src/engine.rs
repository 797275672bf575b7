//! Nodes, wires and the loop that lets things happen in the order of time.
//!
//! Everything of one instant happens in two turns: first the events of the queue, which put frames
//! into the receive queues of routers; then one round of each router that got frames or was due, in
//! the order in which they became so. Wires that take no time hand frames over in the same instant;
//! so a packet passes three routers whose links are free without a single event in the queue.

use std::collections::HashMap;

use evenkeel_core::Nanos;
use evenkeel_report::{ConnectionRow, FlowRow};
use evenkeel_scenario::Scenario;
use evenkeel_traffic::emulate::{Emulator, Fate};
use evenkeel_world::capture::WireCapture;
use evenkeel_world::payload::Stamp;
use evenkeel_world::{Acceptance, Arrived, Followed, flow_of_ports};
use foldhash::fast::FixedState;

use crate::error::SimError;
use crate::header;
use crate::host::{Endpoint, EndpointCounters, Outbox};
use crate::port::{ETHERNET, SimFrame};
use crate::queue::{Event, EventQueue};
use crate::router::SimRouter;
use crate::source::{Sender, flow_key};

/// The far end of a direction of a wire.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Target {
    Host(u32),
    /// A host that answers nothing: it only counts what arrives.
    Sink(u32),
    Router(u32, u32),
}

/// One direction of a wire.
pub(crate) struct Direction {
    pub(crate) to: Target,
    /// `None`: it takes no time and loses nothing.
    pub(crate) emulator: Option<Emulator>,
    /// Frames sent into it.
    pub(crate) sent: u64,
    /// Frames that have come out.
    pub(crate) arrived: u64,
    /// Where they are written: a place in `captures`.
    pub(crate) captured: Option<u32>,
}

/// The flows of UDP of a `[[traffic]]`.
#[derive(Clone, Debug, Default)]
pub(crate) struct FollowedFlows {
    /// Ports of the first of them.
    pub(crate) ports: (u16, u16),
    pub(crate) sent: Followed,
    pub(crate) arrived: Followed,
}

/// Packets sent and received of one `[[traffic]]`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    /// The host that receives it.
    pub(crate) to: u32,
    /// Packets sent.
    pub(crate) sent: u64,
    /// Packets received, and their bytes, before this window.
    pub(crate) before: (u64, u64),
    /// What arrived in this window.
    pub(crate) arrived: Arrived,
    /// What was sent and what arrived of each of its flows, if it is UDP's; ports of the first.
    pub(crate) followed: Option<Box<FollowedFlows>>,
    /// How long flows wait to be let in, where that is measured.
    pub(crate) acceptance: Option<Box<Acceptance>>,
    /// What endpoints that are done had counted: senders', receivers'.
    pub(crate) done: [EndpointCounters; 2],
}

/// An end of a conversation, on its host.
pub(crate) struct End {
    pub(crate) endpoint: Box<dyn Endpoint>,
    pub(crate) traffic: u32,
    /// Whether it is the end that opens the conversation, whose packets count as the traffic's.
    pub(crate) opens: bool,
    /// Into which direction it sends, with which Ethernet header.
    pub(crate) direction: u32,
    pub(crate) ethernet: [u8; ETHERNET],
    /// How it is found.
    pub(crate) key: ConversationKey,
    /// The call that has been asked for.
    pub(crate) wake: Nanos,
    /// What will be told of the flow; only the end that opens it has it.
    pub(crate) row: Option<Box<FlowRow>>,
}

impl End {
    /// The flow's row, when it is done or the run ends.
    pub(crate) fn row(&mut self, now: Nanos) -> Option<FlowRow> {
        let row = *self.row.take()?;
        let counters = self.endpoint.counters();
        let done = self.endpoint.is_done();
        Some(FlowRow {
            end_s: (done && row.asked_bytes.is_some()).then(|| now.as_secs_f64()),
            until_s: if done { now.as_secs_f64() } else { row.until_s.min(now.as_secs_f64()) },
            delivered_bytes: counters.acknowledged_bytes,
            sent_packets: Some(counters.data_segments),
            lost_packets: counters.retransmitted,
            timeouts: Some(counters.timeouts),
            rtt_us: (counters.round_trips > 0)
                .then(|| counters.round_trip_time.0 as f64 / 1e3 / counters.round_trips as f64),
            ..row
        })
    }
}

/// Key of a conversation at one of its hosts: host, local port, remote port, remote host, IPv6.
pub(crate) type ConversationKey = (u32, u16, u16, u32, bool);

/// The whole simulated network.
pub(crate) struct Engine {
    pub(crate) now: Nanos,
    /// Nobody asks what has arrived before this instant.
    until: Nanos,
    pub(crate) queue: EventQueue,
    pub(crate) directions: Vec<Direction>,
    pub(crate) routers: Vec<SimRouter>,
    pub(crate) senders: Vec<Sender>,
    pub(crate) ends: Vec<Option<End>>,
    pub(crate) tallies: Vec<Tally>,
    /// Flows of ends that are done.
    pub(crate) flows: Vec<FlowRow>,
    /// What to say of the run besides.
    pub(crate) notes: Vec<String>,
    /// Frames on wires that take time, and free places among them.
    store: Vec<SimFrame>,
    free: Vec<u32>,
    /// Routers whose turn comes in the present instant, those that had it included.
    ready: Vec<u32>,
    found: HashMap<ConversationKey, u32, FixedState>,
    outbox: Outbox,
    /// Files of wires.
    pub(crate) captures: Vec<WireCapture>,
    /// Frames that hosts sent and received.
    pub(crate) hosts_sent: u64,
    pub(crate) hosts_received: u64,
    /// Frames that hosts received and that no flow had sent to them: answers of routers, packets of
    /// forgotten conversations.
    pub(crate) hosts_others: u64,
}

impl Engine {
    pub(crate) fn new(
        routers: Vec<SimRouter>,
        directions: Vec<Direction>,
        tallies: Vec<Tally>,
    ) -> Self {
        Self {
            now: Nanos::ZERO,
            until: Nanos::ZERO,
            queue: EventQueue::default(),
            directions,
            routers,
            senders: Vec::new(),
            ends: Vec::new(),
            tallies,
            flows: Vec::new(),
            notes: Vec::new(),
            store: Vec::new(),
            free: Vec::new(),
            ready: Vec::new(),
            found: HashMap::default(),
            outbox: Outbox::new(),
            captures: Vec::new(),
            hosts_sent: 0,
            hosts_received: 0,
            hosts_others: 0,
        }
    }

    /// The open TCP connections as their senders see them now.
    pub(crate) fn connections(&self) -> impl Iterator<Item = ConnectionRow> {
        self.ends.iter().flatten().filter_map(|end| {
            let (row, way) = (end.row.as_ref()?, end.endpoint.way()?);
            Some(ConnectionRow {
                traffic: row.traffic.clone(),
                flow: row.flow,
                t_s: self.now.as_secs_f64(),
                cwnd_bytes: way.cwnd,
                rtt_us: way.rtt.map(|rtt| rtt.as_secs_f64() * 1e6),
                retransmitted: end.endpoint.counters().retransmitted,
            })
        })
    }

    /// From now on what comes out of these wires is written.
    pub(crate) fn capture(&mut self, captures: Vec<WireCapture>) {
        for (number, capture) in (0..).zip(&captures) {
            let both = &mut self.directions[2 * capture.wire..][..2];
            both.iter_mut().for_each(|direction| direction.captured = Some(number));
        }
        self.captures = captures;
    }

    /// Adds a source; its first packet is put into the queue.
    pub(crate) fn add_sender(&mut self, mut sender: Sender) {
        let number = self.senders.len() as u32;
        if let Some(at) = sender.next(self.now) {
            self.queue.push(at, Event::Source(number));
            self.senders.push(sender);
        }
    }

    /// Adds an end of a conversation; returns its number.
    pub(crate) fn add_end(&mut self, end: End) -> u32 {
        let number = self.ends.len() as u32;
        self.found.insert(end.key, number);
        self.ends.push(Some(end));
        number
    }

    /// Lets everything happen up to `until`, that instant included.
    pub(crate) fn run_until(&mut self, until: Nanos) {
        self.until = until;
        while self.queue.go_on(until) {
            self.now = self.queue.now();
            while let Some(event) = self.queue.pop() {
                self.happen(event);
            }
            if !self.ready.is_empty() {
                self.turns();
            }
        }
        self.now = until;
    }

    /// Lets a router go on that was changed from outside.
    pub(crate) fn touched(&mut self, router: u32) {
        self.make_ready(router);
        self.turns();
    }

    /// The turns of the routers that are ready, and of those that become so by them.
    fn turns(&mut self) {
        let mut nth = 0;
        while let Some(&router) = self.ready.get(nth) {
            self.round(router);
            nth += 1;
        }
        self.ready.clear();
    }

    /// Frames on wires.
    pub(crate) fn on_wires(&self) -> u64 {
        (self.store.len() - self.free.len()) as u64
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Arrival(direction, place) => {
                self.free.push(place);
                let wire = &mut self.directions[direction as usize];
                if let (Target::Router(router, port), None) = (wire.to, wire.captured) {
                    wire.arrived += 1;
                    let node = &mut self.routers[router as usize];
                    node.arrived(port, &self.store[place as usize]);
                    self.make_ready(router);
                    return;
                }
                let frame = self.store[place as usize];
                self.arrive(direction, &frame);
            }
            Event::Router(router) => {
                let node = &mut self.routers[router as usize];
                // Calls that were asked for and then put off are still in the queue.
                if node.wake == self.now {
                    node.wake = Nanos::MAX;
                    self.make_ready(router);
                }
            }
            Event::Source(number) => {
                let sender = &mut self.senders[number as usize];
                let (direction, traffic) = (sender.direction, sender.traffic);
                if let Some(acceptance) = &mut self.tallies[traffic as usize].acceptance {
                    acceptance.sent(sender.flow_key(), self.now);
                }
                if let Some(followed) = &mut self.tallies[traffic as usize].followed {
                    let flow = flow_of_ports(followed.ports, sender.ports());
                    followed.sent.count(flow, sender.ip_len(), self.now);
                }
                let frame = sender.frame();
                let next = sender.next(self.now);
                if let Some(at) = next {
                    self.queue.push(at, Event::Source(number));
                }
                self.tallies[traffic as usize].sent += 1;
                self.hosts_sent += 1;
                self.send(direction, &frame);
            }
            Event::Endpoint(number) => {
                if self.ends[number as usize].as_ref().is_some_and(|end| end.wake == self.now) {
                    self.with_end(number, |endpoint, now, out| endpoint.wake(now, out));
                }
            }
            Event::Begin(number) => {
                self.with_end(number, |endpoint, now, out| endpoint.start(now, out));
            }
            Event::End(number) => self.with_end(number, |endpoint, now, _| endpoint.stop(now)),
        }
    }

    /// Calls an endpoint, sends what it says, notes when it wants to be called again; forgets it
    /// when it is done.
    fn with_end(&mut self, number: u32, call: impl FnOnce(&mut dyn Endpoint, Nanos, &mut Outbox)) {
        let mut outbox = std::mem::take(&mut self.outbox);
        let Some(end) = self.ends[number as usize].as_mut() else {
            self.outbox = outbox;
            return;
        };
        call(&mut *end.endpoint, self.now, &mut outbox);
        let (direction, ethernet, traffic, opens) =
            (end.direction, end.ethernet, end.traffic, end.opens);
        if opens
            && !outbox.packets.is_empty()
            && let Some(acceptance) = &mut self.tallies[traffic as usize].acceptance
        {
            acceptance.sent(flow_key(end.key.1, end.key.2), self.now);
        }
        // An end that asks for the past is called in the next turn of this instant.
        let wake = end.endpoint.next_wake().map_or(Nanos::MAX, |at| at.max(self.now));
        if wake != end.wake {
            end.wake = wake;
            if wake != Nanos::MAX {
                self.queue.push(wake, Event::Endpoint(number));
            }
        } else if wake == self.now {
            self.queue.push(wake, Event::Endpoint(number));
        }
        if end.endpoint.is_done() {
            let counters = end.endpoint.counters();
            let key = end.key;
            self.flows.extend(end.row(self.now));
            let tally = &mut self.tallies[traffic as usize];
            add(&mut tally.done[usize::from(!opens)], &counters);
            self.found.remove(&key);
            self.ends[number as usize] = None;
        }
        let sent = outbox.packets.len() as u64;
        self.hosts_sent += sent;
        self.tallies[traffic as usize].sent += if opens { sent } else { 0 };
        for packet in &outbox.packets {
            let frame = header::framed(ethernet, packet, traffic, self.now);
            self.send(direction, &frame);
        }
        outbox.clear();
        self.outbox = outbox;
    }

    /// A frame goes into a direction of a wire.
    fn send(&mut self, direction: u32, frame: &SimFrame) {
        let wire = &mut self.directions[direction as usize];
        wire.sent += 1;
        let Some(emulator) = &mut wire.emulator else { return self.arrive(direction, frame) };
        if let Fate::Arrives(at) = emulator.send(self.now, frame.wire_len()) {
            if let (Target::Sink(host), None) = (wire.to, wire.captured)
                && at <= self.until
                && self.is_counted_ahead(host, frame, at)
            {
                self.directions[direction as usize].arrived += 1;
                return;
            }
            let place = if let Some(place) = self.free.pop() {
                self.store[place as usize] = *frame;
                place
            } else {
                self.store.push(*frame);
                self.store.len() as u32 - 1
            };
            self.queue.push(at, Event::Arrival(direction, place));
        }
    }

    /// A frame comes out of a direction of a wire.
    fn arrive(&mut self, direction: u32, frame: &SimFrame) {
        let wire = &mut self.directions[direction as usize];
        wire.arrived += 1;
        if let Some(file) = wire.captured {
            // The directions of a wire follow each other; the first leads to its second end.
            let end = 1 - direction as usize % 2;
            self.captures[file as usize].came(end, self.now, frame.head(), frame.len);
        }
        match wire.to {
            Target::Router(router, port) => {
                self.routers[router as usize].arrived(port, frame);
                self.make_ready(router);
            }
            Target::Host(host) | Target::Sink(host) => self.receive(host, frame),
        }
    }

    /// Counts a frame that arrives at a sink at `at`, before anybody asks for counts, without an
    /// event; false: more comes of it, or it matters when it is counted.
    fn is_counted_ahead(&mut self, host: u32, frame: &SimFrame, at: Nanos) -> bool {
        let Some(read) = header::read(frame) else { return false };
        let Some((stamp, tally)) = stamped(&mut self.tallies, host, &read, frame) else {
            return false;
        };
        if tally.acceptance.is_some() {
            return false;
        }
        count(tally, &read, Some(stamp), at);
        self.hosts_received += 1;
        self.queue.tell();
        true
    }

    fn make_ready(&mut self, router: u32) {
        let node = &mut self.routers[router as usize];
        if !node.ready {
            node.ready = true;
            self.ready.push(router);
        }
    }

    /// A router's turn.
    fn round(&mut self, router: u32) {
        loop {
            let node = &mut self.routers[router as usize];
            node.ready = false;
            let round = node.round(self.now);
            self.collect(router);
            if !round.more {
                break;
            }
        }
        let node = &mut self.routers[router as usize];
        let wake = node.pipeline.next_wake().unwrap_or(Nanos::MAX);
        if wake != node.wake {
            node.wake = wake;
            if wake != Nanos::MAX {
                self.queue.push(wake, Event::Router(router));
            }
        }
    }

    /// Sends the frames that have left a router.
    fn collect(&mut self, router: u32) {
        for nth in 0.. {
            let node = &mut self.routers[router as usize];
            let Some(port) = node.pipeline.senders().get(nth).map(|port| usize::from(*port)) else {
                return;
            };
            let direction = node.outward[port];
            let mut sent = std::mem::take(&mut node.ports[port].tx);
            for frame in &sent {
                self.send(direction, frame);
            }
            sent.clear();
            // A frame never comes back to the same queue within this call: routers take their turns
            // one after another.
            self.routers[router as usize].ports[port].tx = sent;
        }
    }

    /// A frame has arrived at a host.
    fn receive(&mut self, host: u32, frame: &SimFrame) {
        self.hosts_received += 1;
        let Some(read) = header::read(frame) else {
            self.hosts_others += 1;
            return;
        };
        if !read.tcp {
            match stamped(&mut self.tallies, host, &read, frame) {
                Some((stamp, tally)) => count(tally, &read, Some(stamp), self.now),
                None => self.hosts_others += 1,
            }
            return;
        }
        let key = (host, read.destination_port, read.source_port, read.remote, read.ipv6);
        let Some(&number) = self.found.get(&key) else {
            self.hosts_others += 1;
            return;
        };
        if let Some(Some(end)) = self.ends.get(number as usize)
            && !end.opens
        {
            let stamp = read.stamp(frame);
            count(&mut self.tallies[end.traffic as usize], &read, stamp, self.now);
        }
        let packet = crate::host::IpPacket { head: &frame.head()[ETHERNET..], ip_len: read.ip_len };
        self.with_end(number, |endpoint, now, out| endpoint.receive(now, packet, out));
    }
}

/// The stamp of a packet of UDP, and what counts it at the host where it arrives.
fn stamped<'a>(
    tallies: &'a mut [Tally],
    host: u32,
    read: &header::Read,
    frame: &SimFrame,
) -> Option<(Stamp, &'a mut Tally)> {
    let stamp = read.stamp(frame).filter(|_| !read.tcp)?;
    let tally = tallies.get_mut(stamp.flow as usize)?;
    (tally.to == host).then_some((stamp, tally))
}

fn count(tally: &mut Tally, read: &header::Read, stamp: Option<Stamp>, now: Nanos) {
    tally.arrived.packets += 1;
    tally.arrived.bytes += u64::from(read.ip_len);
    if let Some(followed) = &mut tally.followed {
        let flow = flow_of_ports(followed.ports, (read.source_port, read.destination_port));
        followed.arrived.count(flow, u64::from(read.ip_len), now);
    }
    if let Some(acceptance) = &mut tally.acceptance {
        // A SYN carries no stamp: for it, the way through the network counts too.
        let sent = stamp.map_or(now, |stamp| stamp.at);
        acceptance.arrived(flow_key(read.source_port, read.destination_port), sent);
    }
    if let Some(stamp) = stamp {
        tally.arrived.delays.record(now.saturating_sub(stamp.at));
    }
}

/// Adds counters up.
pub(crate) fn add(sum: &mut EndpointCounters, more: &EndpointCounters) {
    sum.delivered_bytes += more.delivered_bytes;
    sum.acknowledged_bytes += more.acknowledged_bytes;
    sum.data_segments += more.data_segments;
    sum.retransmitted += more.retransmitted;
    sum.timeouts += more.timeouts;
    sum.round_trips += more.round_trips;
    sum.round_trip_time = sum.round_trip_time.saturating_add(more.round_trip_time);
}

/// The number of a host in the scenario.
pub(crate) fn host_number(scenario: &Scenario, name: &str) -> Result<u32, SimError> {
    let number = scenario.hosts.iter().position(|host| host.name == name);
    number.map(|n| n as u32).ok_or_else(|| SimError::NoNode(name.to_owned()))
}
