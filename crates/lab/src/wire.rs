//! Wires that are slow, long, lossy or untidy: a bridge between two veth pairs that treats packets
//! as the simulator's wires do.
//!
//! ```text
//!  node a ══ veth ══ end0 [ namespace of the wire ] end1 ══ veth ══ node b
//! ```
//!
//! The element is the simulator's own ([`evenkeel_traffic::emulate`]), one for each direction with
//! the randomness it has there, fed with the kernel's receive stamps; so what becomes of the n-th
//! packet is the same in both worlds. A thread waits for frames and for the next one to come out
//! (`epoll`, a timer); it lets out what is due, late by what the scheduler of the machine makes it
//! late, never early.
//!
//! Only IP packets on their way between nodes are treated. ARP, neighbour discovery and other
//! conversations of the kernels on the link pass at once: the simulated world has none. Until
//! [`Wire::engage`] everything does, so that what is checked before the measurement is not lost.
//!
//! Memory: [`MOST_HELD`] frames, taken as they are needed. Frames that find none free are counted
//! as the lab's own losses, and told.

use std::cmp::Ordering as Order;
use std::collections::{BinaryHeap, VecDeque};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use evenkeel_core::packet::{ETHERNET_MIN_PAYLOAD, ETHERNET_WIRE_OVERHEAD};
use evenkeel_core::{Bytes, Nanos};
use evenkeel_net::checksum;
use evenkeel_net::frame::{Headers, Parsed, parse, protocol};
use evenkeel_ports::af_packet::{AfPacketOptions, AfPacketPort};
use evenkeel_ports::offload::Offloads;
use evenkeel_ports::sys::{self, Poller, Timer};
use evenkeel_ports::{Frame, FramePool, Port, PortError, RxFrame};
use evenkeel_traffic::emulate::{Emulator, EmulatorCounters, Fate};
use evenkeel_world::payload::Stamp;

use crate::LabError;
use crate::stopping::{PATIENCE, Stopping};

/// The interfaces in the namespace of a wire: that which is joined to its first end, and to its
/// second.
pub(crate) const ENDS: [&str; 2] = ["end0", "end1"];
/// Frames that both directions of a wire hold at most.
pub(crate) const MOST_HELD: usize = 32_768;
/// Frames read from one end before the other is looked at.
const BURST: usize = 64;
/// Ethernet header and a VLAN tag.
const FRAME_HEADERS: u32 = 18;
/// How long to wait after the driver had no room.
const RETRY: Nanos = Nanos::from_micros(200);
/// How often the ports are asked what they lost themselves.
const LOOK_EVERY: Nanos = Nanos::from_millis(10);

/// What a direction of a wire has done since it was engaged.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WireCounts {
    /// What the element counted.
    pub(crate) emulator: EmulatorCounters,
    /// Packets that it has on their way.
    pub(crate) held: u64,
    /// Packets of the lab's own sources that it did not let through (among `lost` and
    /// `overflowed`).
    pub(crate) missing: u64,
    /// Frames lost for want of memory or time, by the lab and not by the wire.
    pub(crate) own_losses: u64,
    /// The most that a packet came out after its time.
    pub(crate) worst_late: Nanos,
}

/// A thread that is a wire. Dropping it ends it, and restores the offloads of its interfaces.
#[derive(Debug)]
pub(crate) struct Wire {
    shared: Arc<Shared>,
    _thread: Stopping,
}

#[derive(Debug, Default)]
struct Shared {
    engaged: AtomicBool,
    counts: Mutex<[WireCounts; 2]>,
}

impl Wire {
    /// Opens both ends in the namespace of the wire and begins to carry frames, none of them
    /// treated yet. `emulators` are those from the first end to the second and back; `folder` is
    /// for notes about what was switched off.
    ///
    /// # Errors
    /// The interfaces cannot be opened, or their offloads cannot be switched off.
    pub(crate) fn start(
        namespace: &str,
        emulators: [Emulator; 2],
        mtu: u16,
        folder: &Path,
    ) -> Result<Self, LabError> {
        let cannot =
            |source| LabError::System { what: format!("open the ends of {namespace}"), source };
        let max_frame = (u32::from(mtu) + FRAME_HEADERS).max(1518);
        let opened = sys::in_netns(namespace, || -> Result<_, PortError> {
            let offloads =
                [Offloads::disable(ENDS[0], folder)?, Offloads::disable(ENDS[1], folder)?];
            let options =
                AfPacketOptions { max_frame, promiscuous: true, ..AfPacketOptions::default() };
            Ok((
                offloads,
                [AfPacketPort::open(ENDS[0], options)?, AfPacketPort::open(ENDS[1], options)?],
            ))
        });
        let (offloads, ports) =
            opened.map_err(cannot)?.map_err(|error| cannot(std::io::Error::other(error)))?;
        let (poller, timer) = (Poller::new().map_err(cannot)?, Timer::new().map_err(cannot)?);
        for fd in [ports[0].fd(), ports[1].fd(), Some(timer.fd())].into_iter().flatten() {
            poller.add(fd, 0).map_err(cannot)?;
        }
        let shared = Arc::new(Shared::default());
        let mut bridge = Bridge {
            ports,
            pool: FramePool::for_frames_of(MOST_HELD, max_frame as usize),
            directions: emulators.map(Direction::new),
            shared: Arc::clone(&shared),
            received: Vec::with_capacity(BURST),
            looked: Nanos::ZERO,
            lost_before: None,
        };
        let thread = Stopping::spawn("wire", move |stop| {
            // Held as long as the wire is there.
            let _offloads = offloads;
            bridge.carry(poller, &timer, stop);
        })?;
        Ok(Self { shared, _thread: thread })
    }

    /// From now on packets are treated.
    pub(crate) fn engage(&self) {
        self.shared.engaged.store(true, Ordering::Release);
    }

    /// What both directions have done: from the first end, and back.
    pub(crate) fn counts(&self) -> [WireCounts; 2] {
        *sys::lock(&self.shared.counts)
    }
}

/// One direction: into the end with its number, out of the other.
struct Direction {
    emulator: Emulator,
    on_the_way: BinaryHeap<OnTheWay>,
    /// What is due, and frames that are not treated.
    out: VecDeque<Frame>,
    /// The instant of the last packet sent into it: the element's time does not go back.
    latest: Nanos,
    number: u64,
    counts: WireCounts,
}

impl Direction {
    fn new(emulator: Emulator) -> Self {
        Self {
            emulator,
            on_the_way: BinaryHeap::new(),
            out: VecDeque::new(),
            latest: Nanos::ZERO,
            number: 0,
            counts: WireCounts::default(),
        }
    }
}

/// A frame on its way. The greatest is the one that comes out first.
struct OnTheWay {
    at: Nanos,
    number: u64,
    frame: Frame,
}

impl Ord for OnTheWay {
    fn cmp(&self, other: &Self) -> Order {
        (other.at, other.number).cmp(&(self.at, self.number))
    }
}

impl PartialOrd for OnTheWay {
    fn partial_cmp(&self, other: &Self) -> Option<Order> {
        Some(self.cmp(other))
    }
}

impl PartialEq for OnTheWay {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Order::Equal
    }
}

impl Eq for OnTheWay {}

struct Bridge {
    ports: [AfPacketPort; 2],
    pool: FramePool,
    directions: [Direction; 2],
    shared: Arc<Shared>,
    received: Vec<RxFrame>,
    looked: Nanos,
    /// What the ports had lost when the wire was engaged.
    lost_before: Option<[u64; 2]>,
}

impl Bridge {
    fn carry(&mut self, poller: Poller, timer: &Timer, stop: &AtomicBool) {
        let mut events = Vec::new();
        let mut due = None;
        while !stop.load(Ordering::Relaxed) {
            // A poller that fails would fail for ever; what the wire then does not carry is told at
            // the end.
            let armed = due.map_or_else(|| timer.disarm(), |at| timer.arm(at));
            if armed.and_then(|()| poller.wait(&mut events, Some(nanos(PATIENCE)))).is_err() {
                return;
            }
            timer.take();
            due = self.round();
        }
    }

    /// Takes in what has arrived and lets out what is due; returns when the next call is.
    fn round(&mut self) -> Option<Nanos> {
        let engaged = self.shared.engaged.load(Ordering::Acquire);
        let mut next = None;
        for near in 0..2 {
            let now = sys::monotonic_now();
            while self.ports[near].rx_burst(&mut self.pool, now, &mut self.received, BURST) == BURST
            {
                self.take_in(near, engaged);
            }
            self.take_in(near, engaged);
            let direction = &mut self.directions[near];
            let now = sys::monotonic_now();
            while direction.on_the_way.peek().is_some_and(|first| first.at <= now) {
                let Some(OnTheWay { at, frame, .. }) = direction.on_the_way.pop() else { break };
                direction.counts.worst_late = direction.counts.worst_late.max(now - at);
                direction.out.push_back(frame);
            }
            self.ports[1 - near].tx_burst(&mut self.pool, &mut direction.out);
            let due = direction.on_the_way.peek().map(|first| first.at);
            let retry = (!direction.out.is_empty()).then(|| now + RETRY);
            next = [next, due, retry].into_iter().flatten().min();
        }
        self.tell(engaged);
        next
    }

    fn take_in(&mut self, near: usize, engaged: bool) {
        let Self { pool, directions, received, .. } = self;
        let direction = &mut directions[near];
        for RxFrame { mut frame, arrival, .. } in received.drain(..) {
            let headers = match parse(pool.bytes(&frame)) {
                Ok(Parsed::Ip(headers)) => Some(headers),
                _ => None,
            };
            if let Some(headers) = headers.as_ref().filter(|_| frame.partial_checksum())
                && checksum::complete_l4(pool.bytes_mut(&frame), headers).is_ok()
            {
                frame.set_partial_checksum(false);
            }
            let Some(headers) =
                headers.filter(|headers| engaged && is_traffic(pool.bytes(&frame), headers))
            else {
                direction.out.push_back(frame);
                continue;
            };
            direction.latest = direction.latest.max(arrival);
            let ip_len = Bytes(u64::from(headers.ip_len));
            let wire_len = ip_len.max(ETHERNET_MIN_PAYLOAD) + ETHERNET_WIRE_OVERHEAD;
            if let Fate::Arrives(at) = direction.emulator.send(direction.latest, wire_len) {
                let number = direction.number;
                direction.number += 1;
                direction.on_the_way.push(OnTheWay { at, number, frame });
            } else {
                direction.counts.missing += u64::from(is_of_a_source(pool.bytes(&frame), &headers));
                pool.release(frame);
            }
        }
    }

    /// Puts the counts where the lab reads them.
    fn tell(&mut self, engaged: bool) {
        let now = sys::monotonic_now();
        if engaged && (self.lost_before.is_none() || now >= self.looked.saturating_add(LOOK_EVERY))
        {
            self.looked = now;
            let lost = [lost_by(&mut self.ports[0]), lost_by(&mut self.ports[1])];
            let before = *self.lost_before.get_or_insert(lost);
            for near in 0..2 {
                self.directions[near].counts.own_losses = lost[near] - before[near];
            }
        }
        let mut counts = sys::lock(&self.shared.counts);
        for (told, direction) in counts.iter_mut().zip(&self.directions) {
            let held = (direction.on_the_way.len() + direction.out.len()) as u64;
            *told =
                WireCounts { emulator: *direction.emulator.counters(), held, ..direction.counts };
        }
    }
}

/// Frames that a port itself lost, on the way in or out.
fn lost_by(port: &mut AfPacketPort) -> u64 {
    let counters = port.counters();
    counters.ring_loss + counters.dropped.iter().sum::<u64>()
}

const fn nanos(time: std::time::Duration) -> Nanos {
    Nanos(time.as_nanos() as u64)
}

/// Whether a packet is on its way between nodes, rather than part of what kernels say to their
/// neighbours on the link.
fn is_traffic(frame: &[u8], headers: &Headers) -> bool {
    // RFC 4861: router and neighbour solicitation and advertisement, redirect.
    let discovery = headers.flow.protocol == protocol::ICMPV6
        && frame.get(usize::from(headers.l4)).is_some_and(|kind| (133..=137).contains(kind));
    !headers.link_group && !discovery && headers.check_transit().is_ok()
}

/// Whether a packet was sent by a source of the lab.
fn is_of_a_source(frame: &[u8], headers: &Headers) -> bool {
    const UDP_HEADER: usize = 8;
    let payload = frame.get(usize::from(headers.l4) + UDP_HEADER..);
    headers.flow.protocol == protocol::UDP && payload.and_then(Stamp::read).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;
    use crate::flow::{FlowSpec, Sender, Sink};
    use crate::plan::{Plan, wire_node};
    use crate::schedule::Schedule;
    use crate::world::World;
    use evenkeel_netns::testing::available;
    use evenkeel_scenario::Scenario;
    use evenkeel_world::{Arrived, wires};
    use std::time::Duration;

    /// Two hosts, one wire between them; and a router, without which there is no scenario,
    /// elsewhere.
    fn two_hosts(quality: &str, traffic: &str) -> Scenario {
        fixture::parse(&format!(
            "name = \"test/wire\"\ntitle = \"one wire\"\nseed = 5\nduration = \"1s\"\nsample = \
             \"100ms\"\nsettle = \"0s\"\n\
             [[host]]\nname = \"a\"\n[[host]]\nname = \"b\"\n[[router]]\nname = \"r\"\n\
             [[wire]]\nends = [\"a\", \"b\"]\n{quality}\n[[wire]]\nends = [\"b\", \"r\"]\n\
             [[traffic]]\nname = \"f\"\nfrom = \"a\"\nto = \"b\"\n{traffic}\n"
        ))
    }

    /// What arrived of the scenario's traffic, what was sent of it, and what the wire did; `None`
    /// without root.
    fn carried(quality: &str, traffic: &str) -> Option<(Arrived, u64, WireCounts)> {
        if !available(&format!("a wire with {quality}")) {
            return None;
        }
        let scenario = two_hosts(quality, traffic);
        let mut world = World::new().expect("a folder");
        let plan = Plan::new(&scenario, |node| world.namespace(node)).expect("it can be planned");
        world.build(&plan).expect("namespaces");
        let emulators =
            [0, 1].map(|near| wires::emulator(&scenario, 0, near).expect("valid").expect("one"));
        let namespace = world.namespace(&wire_node(0));
        let wire = Wire::start(&namespace, emulators, 1500, world.folder()).expect("it carries");
        // Not lost, whatever the wire does to what comes later.
        world.warm_up(&plan.pings).expect("both answer");
        assert_eq!(wire.counts()[0].emulator.sent, 0);
        wire.engage();
        let traffic = &scenario.traffic[0];
        let key = evenkeel_world::sampling::flow_key(&scenario, traffic).expect("addresses");
        let spec = FlowSpec {
            name: "f".into(),
            number: 0,
            from: world.namespace("a"),
            to: world.namespace("b"),
            source: (key.source, key.source_port).into(),
            destination: (key.destination, key.destination_port).into(),
            party: None,
            dscp: 0,
            realtime: false,
        };
        let sink = Sink::start(&spec, None).expect("a sink");
        let start = sys::monotonic_now() + Nanos::from_millis(50);
        let schedule = Schedule::of(&scenario, traffic, 0, start).expect("valid").expect("our own");
        let mut sender = Sender::start(&spec, schedule, None).expect("a sender");
        while !sender.is_finished() || wire.counts()[0].held > 0 {
            std::thread::sleep(Duration::from_millis(10));
        }
        sender.stop();
        std::thread::sleep(Duration::from_millis(100));
        let (arrived, counts) = (sink.take(), wire.counts()[0]);
        let element = counts.emulator;
        assert_eq!(element.sent, sender.sent().packets, "every packet that was sent was treated");
        assert_eq!(element.carried, arrived.packets, "every packet that was carried has arrived");
        assert_eq!(element.sent, element.carried + element.lost + element.overflowed);
        assert_eq!((counts.missing, counts.own_losses), (element.lost + element.overflowed, 0));
        Some((arrived, sender.sent().packets, counts))
    }

    const FAST: &str = "rate = \"20Mbit/s\"\nsize = \"500B\"";

    #[test]
    fn packets_are_lost_as_in_the_simulator() {
        let Some((arrived, sent, counts)) = carried("loss = 0.1", FAST) else { return };
        let scenario = two_hosts("loss = 0.1", FAST);
        let mut same = wires::emulator(&scenario, 0, 0).expect("valid").expect("it loses packets");
        let lost =
            (0..sent).filter(|n| same.send(Nanos(*n), Bytes(538)) == Fate::Lost).count() as u64;
        assert_eq!(counts.emulator.lost, lost, "the same packets are lost, of {sent}");
        assert_eq!(arrived.packets, sent - lost);
        assert!(lost > sent / 20 && lost < sent / 5, "{lost} of {sent}");
        assert_eq!(arrived.reordered, 0);
    }

    #[test]
    fn packets_come_late_by_the_delay_and_those_that_overtake_do_not() {
        let quality = "delay = \"20ms\"\njitter = \"5ms\"\nreorder = 0.1";
        let Some((arrived, sent, counts)) =
            carried(quality, "rate = \"2Mbit/s\"\nsize = \"500B\"\nipv6 = true")
        else {
            return;
        };
        let delays = arrived.delays.told();
        let overtaking = counts.emulator.overtaking;
        assert!(
            overtaking > 0 && arrived.reordered > 0,
            "{overtaking} overtook, {}",
            arrived.reordered
        );
        // Each that took the delay took all of it.
        let least = (sent - overtaking) * 20_000_000;
        assert!(delays.sum_ns >= least, "{} us of {}", delays.sum_ns / 1000, least / 1000);
        let early = delays
            .buckets
            .iter()
            .filter(|(from, _)| *from < 15_000_000)
            .map(|(_, n)| n)
            .sum::<u64>();
        assert!(
            early.abs_diff(overtaking) <= sent / 50,
            "{early} came early, {overtaking} overtook"
        );
    }

    #[test]
    fn a_slow_wire_carries_its_rate_and_its_queue_is_bounded() {
        let quality = "rate = \"4Mbit/s\"\nqueue = 10";
        let Some((arrived, _, counts)) =
            carried(quality, "rate = \"8Mbit/s\"\nsize = \"962B\"\njitter = 0")
        else {
            return;
        };
        // 1000 bytes on the wire: 500 packets/s for a second, and the queue.
        assert!((480..=512).contains(&arrived.packets), "{}", arrived.packets);
        assert!(counts.emulator.overflowed > 400, "{:?}", counts.emulator);
        let max = arrived.delays.told().max_ns;
        // Ten packets of 2 ms each, and what a busy machine adds.
        assert!((18_000_000..60_000_000).contains(&max), "{max} ns");
    }

    #[test]
    fn many_flows_come_from_ports_of_their_own() {
        let flows = "rate = \"200kbit/s\"\nsize = \"500B\"\nflows = 40";
        let Some((arrived, sent, _)) = carried("delay = \"1ms\"", flows) else { return };
        assert_eq!(arrived.packets, sent);
        // 40 times 50 packets/s.
        assert!((1_900..=2_001).contains(&sent), "{sent}");
    }
}
