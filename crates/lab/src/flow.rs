//! Real senders and receivers: one thread per end of a flow, measuring what was offered and what
//! arrived.
//!
//! A sender sleeps until each packet is due (the thread's timer slack is 1 ns) and sends at once
//! what is overdue; what is overdue by too much is left out and counted ([`Schedule::next`]). Each
//! flow of a sender has a socket with a source port of its own, opened when it sends for the first
//! time.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use evenkeel_core::Nanos;
use evenkeel_ports::sys::{self, NetNs, UdpReceiver, UdpSender, lock};
pub(crate) use evenkeel_world::{Arrived, packet_rate};

use evenkeel_scenario::Party;
use evenkeel_world::payload::{self, Stamp};
use evenkeel_world::{Acceptance, Followed};

use crate::LabError;
use crate::schedule::Schedule;
use crate::stopping::{PATIENCE, Stopping};

/// Receive buffer of sinks: more than a transmit ring and all queues hold, so that losses are the
/// router's and not the lab's.
const RECEIVE_BUFFER: u32 = 8 << 20;
/// One flow between two namespaces.
#[derive(Clone, Debug)]
pub(crate) struct FlowSpec {
    /// Its name, for messages.
    pub(crate) name: String,
    /// Its number in the run.
    pub(crate) number: u32,
    /// Namespace of the sender.
    pub(crate) from: String,
    /// Namespace of the receiver.
    pub(crate) to: String,
    /// Where the packets come from.
    pub(crate) source: SocketAddr,
    /// Where they go.
    pub(crate) destination: SocketAddr,
    /// The people whose flows they are, in turn.
    pub(crate) party: Option<Party>,
    /// Their DSCP.
    pub(crate) dscp: u8,
    /// Whether its sender precedes ordinary threads of the machine, as routers that ask for
    /// `realtime` do: packets that a busy machine bunches are another load than the scenario's.
    pub(crate) realtime: bool,
}

impl FlowSpec {
    /// Where flow number `flow` comes from and where it goes: ports of its own, and the addresses
    /// of whoever of the party it belongs to.
    pub(crate) fn ends(&self, flow: u64) -> (SocketAddr, SocketAddr) {
        let (source, destination) = (self.source, self.destination);
        let (from, to) = evenkeel_world::ports_of_flow(source.port(), destination.port(), flow);
        let hosts = (source.ip(), destination.ip());
        let (source, destination) =
            self.party.as_ref().map_or(hosts, |party| party.ends(flow, hosts));
        ((source, from).into(), (destination, to).into())
    }
}

/// What a sender has counted.
#[derive(Debug, Default)]
struct SenderCounts {
    sent: AtomicU64,
    skipped: AtomicU64,
    refused: AtomicU64,
    worst_late: AtomicU64,
    followed: Mutex<Followed>,
}

/// A thread that sends one flow. Dropping it ends it.
#[derive(Debug)]
pub(crate) struct Sender {
    counts: Arc<SenderCounts>,
    thread: Stopping,
}

/// What a sender has done so far.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Sent {
    /// Packets given to the kernel.
    pub(crate) packets: u64,
    /// Packets left out because the thread was not scheduled in time.
    pub(crate) skipped: u64,
    /// Packets that the sending host's kernel refused.
    pub(crate) refused: u64,
    /// The most that a packet was sent after its time.
    pub(crate) worst_late: Nanos,
}

/// How long the flows of a `[[traffic]]` wait to be let in; shared by its sender and its sink.
/// `None` where they are not asked for.
pub(crate) type Knocks = Option<Arc<Mutex<Acceptance>>>;

/// The number of a flow among its like stands above that of the `[[traffic]]` in stamps.
const SHIFT: u32 = 16;

impl Sender {
    /// Opens the first socket in the sender's namespace and starts sending; times of the schedule
    /// are `CLOCK_MONOTONIC`.
    ///
    /// # Errors
    /// The namespace, the socket, or packets too short for a stamp.
    pub(crate) fn start(
        spec: &FlowSpec,
        schedule: Schedule,
        knocks: Knocks,
    ) -> Result<Self, LabError> {
        let longest =
            payload::payload_len(schedule.longest(), spec.destination.ip()).ok_or_else(|| {
                let why = format!("{} leaves no room for a time stamp", schedule.longest());
                LabError::BadInput(format!("traffic {}: {why}", spec.name))
            })?;
        let first = open(spec, &spec.from, || flow_socket(spec, 0))?;
        let namespace = NetNs::open(&spec.from).map_err(|source| LabError::System {
            what: format!("enter the network namespace of {}", spec.from),
            source,
        })?;
        let counts = Arc::new(SenderCounts::default());
        let (spec, shared) = (spec.clone(), Arc::clone(&counts));
        let thread = Stopping::spawn(&format!("send {}", spec.name), move |stop| {
            if spec.realtime {
                // As root it may; else it falls behind, and says so.
                let _ = sys::set_precedence(true);
            }
            // Sockets of later flows belong into the namespace too; where that is impossible, they
            // are refused and counted.
            let entered = namespace.enter().is_ok();
            let many = if entered { schedule.flows() as usize } else { 1 };
            let mut sockets: Vec<_> = std::iter::repeat_with(|| None).take(many).collect();
            sockets[0] = Some(first);
            let sockets = Sockets { spec, sockets };
            send(schedule, sockets, longest, (&shared, &knocks), stop);
        })?;
        Ok(Self { counts, thread })
    }

    /// What was sent so far.
    pub(crate) fn sent(&self) -> Sent {
        Sent {
            packets: self.counts.sent.load(Ordering::Relaxed),
            skipped: self.counts.skipped.load(Ordering::Relaxed),
            refused: self.counts.refused.load(Ordering::Relaxed),
            worst_late: Nanos(self.counts.worst_late.load(Ordering::Relaxed)),
        }
    }

    /// What was sent of each of its flows; at the end, once.
    pub(crate) fn followed(&self) -> Followed {
        std::mem::take(&mut lock(&self.counts.followed))
    }

    /// Whether the source has come to its end.
    pub(crate) fn is_finished(&self) -> bool {
        self.thread.is_finished()
    }

    /// Ends the flow and waits for the thread.
    pub(crate) fn stop(&mut self) {
        self.thread.stop();
    }
}

/// The sockets of a sender's flows, by flow.
struct Sockets {
    spec: FlowSpec,
    sockets: Vec<Option<UdpSender>>,
}

impl Sockets {
    /// The socket of a flow; `None` if it cannot be opened.
    fn of(&mut self, flow: u64) -> Option<&mut UdpSender> {
        let place = self.sockets.get_mut(usize::try_from(flow).ok()?)?;
        if place.is_none() {
            *place = Some(flow_socket(&self.spec, flow).ok()?);
        }
        place.as_mut()
    }
}

/// A socket that sends as flow number `flow`. Others may have its port: flows of other destinations
/// are told apart by these.
fn flow_socket(spec: &FlowSpec, flow: u64) -> std::io::Result<UdpSender> {
    let (source, destination) = spec.ends(flow);
    let socket = sys::bind_shared(source)?;
    socket.connect(destination)?;
    sys::set_tos(&socket, spec.dscp)?;
    Ok(UdpSender::new(socket, 1))
}

fn send(
    mut schedule: Schedule,
    mut sockets: Sockets,
    longest: usize,
    (counts, knocks): (&SenderCounts, &Knocks),
    stop: &AtomicBool,
) {
    let mut packet = vec![0; longest];
    let (flow, to) = (sockets.spec.number, sockets.spec.destination.ip());
    while let Some(due) = schedule.next(sys::monotonic_now()) {
        let Some(late) = wait_until(due.at, stop) else { return };
        counts.worst_late.fetch_max(late.0, Ordering::Relaxed);
        let seq = counts.sent.load(Ordering::Relaxed);
        let length = payload::payload_len(due.ip_len, to).unwrap_or(payload::LENGTH).min(longest);
        let at = sys::monotonic_now();
        if let Some(acceptance) = knocks {
            lock(acceptance).sent(due.flow, at);
        }
        // Room for the number of a flow among its like: there are no more of them than ports.
        Stamp { flow: flow | (due.flow as u32) << SHIFT, seq, at }.write(&mut packet);
        match sockets.of(due.flow).map(|socket| socket.send(&packet[..length], length)) {
            Some(Ok(1..)) => {
                counts.sent.store(seq + 1, Ordering::Relaxed);
                lock(&counts.followed).count(due.flow, due.ip_len.0, at);
            }
            _ => {
                counts.refused.fetch_add(1, Ordering::Relaxed);
            }
        }
        counts.skipped.store(schedule.skipped(), Ordering::Relaxed);
    }
    counts.skipped.store(schedule.skipped(), Ordering::Relaxed);
}

/// Sleeps until `due`. Returns how late it is then, or `None` if the thread shall end.
fn wait_until(due: Nanos, stop: &AtomicBool) -> Option<Nanos> {
    loop {
        if stop.load(Ordering::Relaxed) {
            return None;
        }
        let now = sys::monotonic_now();
        if now >= due {
            return Some(now - due);
        }
        thread::sleep(Duration::from_nanos((due - now).0).min(PATIENCE));
    }
}

/// A thread that receives one flow. Dropping it ends it.
#[derive(Debug)]
pub(crate) struct Sink {
    window: Arc<Mutex<(Arrived, Followed)>>,
    _thread: Stopping,
}

impl Sink {
    /// Opens the socket in the receiver's namespace and starts receiving.
    ///
    /// # Errors
    /// The namespace or the socket.
    pub(crate) fn start(spec: &FlowSpec, knocks: Knocks) -> Result<Self, LabError> {
        let receiver = open(spec, &spec.to, || {
            let mut own = spec.destination;
            // Somebody else's address for each flow.
            if spec.party.as_ref().is_some_and(|party| !party.sends) {
                own.set_ip(if own.is_ipv6() {
                    Ipv6Addr::UNSPECIFIED.into()
                } else {
                    Ipv4Addr::UNSPECIFIED.into()
                });
            }
            let socket = UdpSocket::bind(own)?;
            sys::set_receive_buffer(&socket, RECEIVE_BUFFER)?;
            socket.set_read_timeout(Some(PATIENCE))?;
            UdpReceiver::new(socket, payload::LENGTH)
        })?;
        let window = Arc::<Mutex<(Arrived, Followed)>>::default();
        let (flow, overhead) = (spec.number, payload::headers(spec.destination.ip()));
        let shared = Arc::clone(&window);
        let thread = Stopping::spawn(&format!("sink {}", spec.name), move |stop| {
            receive(receiver, (flow, overhead), &shared, &knocks, stop);
        })?;
        Ok(Self { window, _thread: thread })
    }

    /// What arrived since the last call.
    pub(crate) fn take(&self) -> Arrived {
        std::mem::take(&mut lock(&self.window).0)
    }

    /// What arrived of each of its flows; at the end, once.
    pub(crate) fn followed(&self) -> Followed {
        std::mem::take(&mut lock(&self.window).1)
    }
}

fn receive(
    mut receiver: UdpReceiver,
    (flow, overhead): (u32, u64),
    window: &Mutex<(Arrived, Followed)>,
    knocks: &Knocks,
    stop: &AtomicBool,
) {
    let ours = |stamp: &Stamp| stamp.flow & ((1 << SHIFT) - 1) == flow;
    let mut next = 0;
    while !stop.load(Ordering::Relaxed) {
        // An error here is a report about a datagram that was sent; a sink sends none.
        let Ok(burst) = receiver.receive(true) else { continue };
        let mut burst = burst.peekable();
        if burst.peek().is_none() {
            continue;
        }
        let (arrived, followed) = &mut *lock(window);
        for datagram in burst {
            let Some(stamp) = Stamp::read(datagram.bytes).filter(ours) else {
                continue;
            };
            arrived.packets += 1;
            let (flow, ip_len) = (u64::from(stamp.flow >> SHIFT), datagram.len as u64 + overhead);
            arrived.bytes += ip_len;
            followed.count(flow, ip_len, datagram.arrival);
            if stamp.seq + 1 == next {
                arrived.repeated += 1;
            } else if stamp.seq < next {
                arrived.reordered += 1;
            }
            next = next.max(stamp.seq + 1);
            arrived.delays.record(datagram.arrival.saturating_sub(stamp.at));
            if let Some(acceptance) = knocks {
                lock(acceptance).arrived(flow, stamp.at);
            }
        }
    }
}

/// Makes a socket inside a namespace: it belongs there for good, whichever thread uses it.
pub(crate) fn open<T: Send>(
    spec: &FlowSpec,
    namespace: &str,
    make: impl FnOnce() -> std::io::Result<T> + Send,
) -> Result<T, LabError> {
    sys::in_netns(namespace, make).and_then(|made| made).map_err(|source| LabError::System {
        what: format!("open a socket for traffic {}", spec.name),
        source,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{NodePlan, Ping, Plan};
    use crate::world::World;
    use evenkeel_core::{BitRate, Bytes};
    use evenkeel_netns::testing::available;
    use evenkeel_traffic::{Process, SourceConfig};

    /// Two hosts on one wire, no router between them.
    fn two_hosts() -> Option<World> {
        if !available("two hosts on one wire") {
            return None;
        }
        let mut world = World::new().expect("a folder");
        let host = |node: &str, peer: &str, address: &str| NodePlan {
            node: node.into(),
            settings: vec![
                ("ipv6/conf/all/accept_dad", "0"),
                ("ipv6/conf/default/accept_dad", "0"),
            ],
            batch: vec![
                "link set dev lo up".into(),
                format!("addr add 10.1.0.{address}/24 dev {peer}"),
                format!("addr add fd00:1::{address}/64 dev {peer} nodad"),
                format!("link set dev {peer} up"),
            ],
            offloads: vec![peer.into()],
        };
        let (a, b) = (world.namespace("a"), world.namespace("b"));
        let plan = Plan {
            nodes: vec![host("a", "b", "1"), host("b", "a", "2")],
            wires: vec![format!("link add name b netns {a} type veth peer name a netns {b}")],
            pings: ["10.1.0.2", "fd00:1::2"]
                .map(|to| Ping { from: "a".into(), to: to.parse().expect("an address") })
                .to_vec(),
        };
        world.build(&plan).expect("namespaces");
        world.warm_up(&plan.pings).expect("both answer");
        Some(world)
    }

    fn spec(world: &World, from: &str, to: &str) -> FlowSpec {
        FlowSpec {
            name: "flow".into(),
            number: 7,
            from: world.namespace("a"),
            to: world.namespace("b"),
            source: from.parse().expect("an address"),
            destination: to.parse().expect("an address"),
            dscp: 46,
            party: None,
            realtime: false,
        }
    }

    #[test]
    fn all_that_is_sent_arrives_in_order_and_is_counted_on_both_sides() {
        let Some(world) = two_hosts() else { return };
        for (from, to) in
            [("10.1.0.1:4000", "10.1.0.2:5000"), ("[fd00:1::1]:4000", "[fd00:1::2]:5000")]
        {
            let spec = spec(&world, from, to);
            let sink = Sink::start(&spec, None).expect("a sink");
            let start = sys::monotonic_now() + Nanos::from_millis(50);
            let config = SourceConfig {
                start,
                stop: start + Nanos::from_millis(300),
                random_phase: false,
                ..SourceConfig::new(
                    Process::Cbr { jitter_ppm: 0 },
                    BitRate::from_mbps(40),
                    Bytes(1000),
                )
            };
            let mut sender = Sender::start(&spec, Schedule::flow(config).expect("valid"), None)
                .expect("a sender");
            while !sender.is_finished() {
                thread::sleep(Duration::from_millis(10));
            }
            sender.stop();
            thread::sleep(Duration::from_millis(100));
            let (sent, arrived) = (sender.sent(), sink.take());
            // 5000 packets/s for 0.3 s; those that a slow machine left out are counted.
            assert_eq!(sent.packets + sent.skipped + sent.refused, 1_500);
            assert_eq!(arrived.packets, sent.packets, "to {to}");
            assert_eq!(arrived.bytes, sent.packets * 1_000, "bytes are those of IP packets");
            assert_eq!((arrived.reordered, arrived.repeated), (0, 0));
            assert_eq!(arrived.delays.told().count, sent.packets);
            assert!(arrived.delays.told().max_ns > 0);
            assert_eq!(sink.take().packets, 0, "a window is taken once");
        }
    }

    #[test]
    fn nothing_is_left_when_the_world_goes_even_in_a_panic() {
        let Some(world) = two_hosts() else { return };
        let (name, folder) = (world.namespace("a"), world.folder().to_owned());
        let mut sleeper = std::process::Command::new("sleep");
        sys::spawn_in_netns(sleeper.arg("1000"), &name).expect("the namespace is there");
        let mut sleeper = sleeper.spawn().expect("sleep starts");
        assert!(std::path::Path::new("/run/netns").join(&name).exists() && folder.exists());
        let panic = thread::spawn(move || {
            let _world = world;
            panic!("on purpose");
        })
        .join();
        assert!(panic.is_err());
        assert!(!std::path::Path::new("/run/netns").join(&name).exists(), "the namespace is gone");
        assert!(!folder.exists(), "its files are gone");
        assert!(!sleeper.wait().expect("it ended").success(), "what ran inside was ended");
    }
}
