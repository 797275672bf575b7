//! A packet to test with, operations that a few bytes stand for, and a harness that does them to a
//! discipline and checks after each what holds for every discipline. The property tests and the
//! fuzz targets share it.
#![allow(dead_code, unreachable_pub, reason = "each test and each fuzz target uses a part")]

use evenkeel_core::schedule::wfq_altq::DropRule;
use evenkeel_core::schedule::wfq_altq::WfqAltqConfig;
use evenkeel_core::settings::PerClass;
use std::collections::VecDeque;
use std::fmt::Debug;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use evenkeel_core::schedule::afan::{Afan, Afd};
use evenkeel_core::schedule::buffer::Victim;
use evenkeel_core::schedule::codel::Codel;
use evenkeel_core::schedule::drr::Drr;
use evenkeel_core::schedule::fifo::Fifo;
use evenkeel_core::schedule::fq_codel::FqCodel;
use evenkeel_core::schedule::lct::Lct;
use evenkeel_core::schedule::lct::MultiBacklog;
use evenkeel_core::schedule::pdrr::Pdrr;
use evenkeel_core::schedule::pfq::Pfq;
use evenkeel_core::schedule::priority::Priority;
use evenkeel_core::schedule::qfq::Qfq;
use evenkeel_core::schedule::wfq_altq::{QueueSelect, WfqAltq};
use evenkeel_core::schedule::{Backlog, Treated, Wake};
use evenkeel_core::settings::{Change, SettingError};
use evenkeel_core::{Bytes, Class, FlowKey, Nanos, Packet, Reason, Scheduler, Weight};

/// A packet that is known by its number.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct TestPacket {
    pub id: u64,
    pub class: Class,
    pub length: u32,
    pub arrival: Nanos,
    pub flow: FlowKey,
    /// What the wire adds.
    pub overhead: u32,
}

impl TestPacket {
    /// A packet of a class and an IP length; its flow is that of the class.
    pub fn new(id: u64, class: u16, length: u32) -> Self {
        Self {
            id,
            class: Class(class),
            length,
            arrival: Nanos::ZERO,
            flow: flow(class as u8),
            overhead: 38,
        }
    }
}

impl Packet for TestPacket {
    fn ip_len(&self) -> Bytes {
        Bytes(u64::from(self.length))
    }
    fn wire_len(&self) -> Bytes {
        Bytes(u64::from(self.length + self.overhead))
    }
    fn class(&self) -> Class {
        self.class
    }
    fn flow(&self) -> FlowKey {
        self.flow
    }
    fn flow_hash(&self) -> u64 {
        // Several flows to a hash: disciplines must tell them apart by their keys.
        u64::from(self.flow.source_port % 64)
    }
    fn arrival(&self) -> Nanos {
        self.arrival
    }
    /// In a tree classes are subscribers.
    fn subscriber(&self) -> u32 {
        self.class.0.into()
    }
}

/// A packet with a subscriber.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Mail {
    pub packet: TestPacket,
    pub to: u32,
}

impl Packet for Mail {
    fn ip_len(&self) -> Bytes {
        self.packet.ip_len()
    }
    fn wire_len(&self) -> Bytes {
        self.packet.wire_len()
    }
    fn class(&self) -> Class {
        self.packet.class()
    }
    fn flow(&self) -> FlowKey {
        self.packet.flow
    }
    fn flow_hash(&self) -> u64 {
        self.packet.flow_hash()
    }
    fn arrival(&self) -> Nanos {
        self.packet.arrival
    }
    fn subscriber(&self) -> u32 {
        self.to
    }
}

/// One of 256 flows; every fourth is IPv6.
pub fn flow(n: u8) -> FlowKey {
    let (source, destination) = if n % 4 == 3 {
        let host = |last| IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, last));
        (host(u16::from(n)), host(0x100 + u16::from(n)))
    } else {
        (IpAddr::V4(Ipv4Addr::new(10, 0, n, 1)), IpAddr::V4(Ipv4Addr::new(10, 1, 0, n)))
    };
    FlowKey {
        source,
        destination,
        protocol: 17,
        source_port: 5000 + u16::from(n),
        destination_port: 80,
        flow_label: u32::from(n) * 0x1111,
    }
}

/// Something that happens to a discipline.
#[derive(Clone, Debug)]
pub enum Op {
    Arrive { class: u16, length: u32, flow: u8 },
    Send,
    Wait(Nanos),
    WaitForWake,
    Set(Change),
    Drain,
}

/// How many bytes stand for an operation.
pub const OP_BYTES: usize = 6;

impl Op {
    /// The operation that these bytes stand for: mostly arrivals and departures, of sensible
    /// lengths, with knobs in and out of range, and classes in and out of existence (0 to 9).
    pub fn from_bytes(code: [u8; OP_BYTES]) -> Self {
        let [op, a, b, c, d, e] = code;
        let number = u32::from(u16::from_le_bytes([b, c]));
        match op {
            0..=99 => Self::Arrive {
                class: u16::from(a % 10),
                length: 20 + if d < 8 { number } else { number % 1481 },
                flow: e,
            },
            100..=199 => Self::Send,
            200..=229 => Self::Wait(Nanos(u64::from(number) << (a % 20))),
            230..=241 => Self::WaitForWake,
            242..=254 => Self::Set(change(a, b, u64::from(c), u32::from(d), e)),
            255 => Self::Drain,
        }
    }
}

/// A change of a setting, in and out of its range.
fn change(kind: u8, class: u8, value: u64, exponent: u32, small: u8) -> Change {
    let scaled = |largest: u32| value * 10u64.pow(exponent % (largest + 1));
    let which = Class(u16::from(class % 10));
    match kind % 14 {
        7 => Change::new("quantum", Bytes(scaled(3))),
        8 if class < 128 => {
            Change::new("buffer", if small < 220 { value % 16 } else { scaled(4) } as u32)
        }
        8 => Change::new("buffer_bytes", Bytes(if small < 220 { 100 * value } else { scaled(7) })),
        9 => {
            Change::new("victim", if value.is_multiple_of(2) { Victim::Head } else { Victim::Tail })
        }
        10 => Change::new("afl_linger", Nanos(scaled(9))),
        11 => Change::new("start_limit", (value > 0).then_some(Bytes(scaled(4)))),
        12 => {
            let afd = Afd {
                target: (!class.is_multiple_of(3)).then_some(scaled(3) as u32),
                sample: u32::from(small),
                ..Afd::default()
            };
            let afd = Afd { shadow: u32::from(class), interval: Nanos(1_000 * scaled(3)), ..afd };
            Change::new("afd", afd)
        }
        13 => Change::new("window", Nanos(1_000 * scaled(6))),
        0 => Change::of("weight", which, Weight(scaled(2) as u32)),
        1 | 2 => Change::of("x_delay", which, Nanos(scaled(9))),
        3 => {
            let limit = if small < 220 { value % 16 } else { scaled(3) } as u32;
            Change { class: (class < 200).then_some(which), ..Change::new("limit", limit) }
        }
        4 => Change::new("module2", value % 2 == 1),
        5 => match value % 6 {
            at @ 0..5 => Change::new("multi_backlog", MultiBacklog::ALL[at as usize]),
            _ => Change::new("rearm_empty", value % 12 == 5),
        },
        _ => Change::new("high_water", Bytes(100 * scaled(6))),
    }
}

/// WFQ/ALTQ that drops the arriving packet of a queue of so many.
pub fn tail(limit: u32) -> WfqAltqConfig {
    WfqAltqConfig { limit: PerClass::all(limit), ..WfqAltqConfig::default() }
}

/// WFQ/ALTQ that drops from the longest queue above so many bytes.
pub fn longest(high_water: u64) -> WfqAltqConfig {
    let high_water = Bytes(high_water);
    WfqAltqConfig { drop: DropRule::Longest, high_water, ..WfqAltqConfig::default() }
}

/// `config` with a queue for each of these weights.
pub fn weighted(weights: &[u32], config: WfqAltqConfig) -> WfqAltqConfig {
    let weights: Vec<Weight> = weights.iter().copied().map(Weight).collect();
    let WfqAltqConfig { classes, weight, .. } = WfqAltqConfig::with_weights(weights);
    WfqAltqConfig { classes, weight, ..config }
}

/// A discipline and what the harness must know of it.
pub trait Subject: Scheduler<TestPacket> + Clone + Debug {
    /// The index of the queue that a packet joins: order is kept within it.
    fn queue_of(&self, packet: &TestPacket) -> usize;
    /// Whether it never holds a packet while the link asks.
    fn work_conserving(&self) -> bool;
    /// Whether there is a queue per class.
    fn by_class(&self) -> bool;
    /// Whether `queue_of` names what `busy_queues` counts. Else it only names what keeps its order.
    fn queues_are_counted(&self) -> bool {
        true
    }
    /// Whether it drops packets of queues that stand when it is asked for one.
    fn drops_at_the_head(&self) -> bool {
        false
    }
    /// The bytes that it counts of a packet.
    fn counted(&self, packet: &TestPacket) -> Bytes {
        packet.ip_len()
    }
}

macro_rules! subject_by_flow {
    ($($name:ident $drops:expr),+) => {$(
        impl Subject for $name<TestPacket> {
            fn queue_of(&self, packet: &TestPacket) -> usize {
                usize::from(packet.flow.source_port - 5000)
            }
            fn work_conserving(&self) -> bool {
                true
            }
            fn by_class(&self) -> bool {
                false
            }
            fn queues_are_counted(&self) -> bool {
                false
            }
            fn drops_at_the_head(&self) -> bool {
                let drops: fn(&Self) -> bool = $drops;
                drops(self)
            }
            fn counted(&self, packet: &TestPacket) -> Bytes {
                packet.wire_len()
            }
        }
    )+};
}
subject_by_flow!(
    Pfq | pfq | pfq.config().aqm.is_on(),
    Pdrr | pdrr | pdrr.config().aqm.is_on(),
    Afan | _ | false,
    Drr | _ | false,
    FqCodel | _ | true
);

macro_rules! subject_of_one_queue {
    ($($name:ident $drops:literal),+) => {$(
        impl Subject for $name<TestPacket> {
            fn queue_of(&self, _: &TestPacket) -> usize {
                0
            }
            fn work_conserving(&self) -> bool {
                true
            }
            fn by_class(&self) -> bool {
                false
            }
            fn drops_at_the_head(&self) -> bool {
                $drops
            }
        }
    )+};
}
subject_of_one_queue!(Fifo false, Codel true);

macro_rules! subject_by_class {
    ($($name:ident),+) => {$(
        impl Subject for $name<TestPacket> {
            fn queue_of(&self, packet: &TestPacket) -> usize {
                let classes = usize::from(self.config().classes);
                Some(packet.class.index()).filter(|class| *class < classes).unwrap_or(0)
            }
            fn work_conserving(&self) -> bool {
                true
            }
            fn by_class(&self) -> bool {
                true
            }
        }
    )+};
}
// Priority with a level for each class.
subject_by_class!(Priority, Qfq);

impl Subject for WfqAltq<TestPacket> {
    fn queue_of(&self, packet: &TestPacket) -> usize {
        let queues = usize::from(self.queues());
        match self.config().select.hash(&packet.flow) {
            None => Some(packet.class.index()).filter(|q| *q < queues).unwrap_or(0),
            Some(hash) => hash as usize % queues,
        }
    }
    fn work_conserving(&self) -> bool {
        true
    }
    fn by_class(&self) -> bool {
        self.config().select == QueueSelect::Class
    }
    fn drops_at_the_head(&self) -> bool {
        self.config().aqm.is_on()
    }
}

impl Subject for Lct<TestPacket> {
    fn queue_of(&self, packet: &TestPacket) -> usize {
        Some(packet.class.index()).filter(|k| *k < usize::from(self.classes())).unwrap_or(0)
    }
    fn work_conserving(&self) -> bool {
        !self.config().module2 && !self.config().multi_backlog.holds(false)
    }
    fn by_class(&self) -> bool {
        true
    }
}

/// What an operation did.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Outcome {
    Arrived { packet: TestPacket, treated: Treated, dropped: Vec<u64> },
    Sent(Option<TestPacket>),
    Waited,
    Set(Result<Wake, SettingError>),
    Drained,
}

/// A discipline, its clock, and a copy of what its queues must hold.
#[derive(Clone)]
pub struct Harness<S> {
    pub scheduler: S,
    pub now: Nanos,
    queues: Vec<VecDeque<TestPacket>>,
    next_id: u64,
    counts: [u64; 4],
    /// `priority_bytes` after the last operation.
    priority_bytes: Bytes,
}

/// Places in the harness's counts: every packet is in one of the last three, or queued.
const ARRIVED: usize = 0;
const SENT: usize = 1;
const DROPPED: usize = 2;
const DRAINED: usize = 3;

impl<S: Subject> Harness<S> {
    pub fn new(scheduler: S) -> Self {
        let priority_bytes = Bytes::ZERO;
        Self {
            scheduler,
            now: Nanos(1),
            queues: Vec::new(),
            next_id: 0,
            counts: [0; 4],
            priority_bytes,
        }
    }

    /// Does `op` and checks everything that holds for every discipline.
    pub fn step(&mut self, op: Op) -> Outcome {
        let before = self.scheduler.meters();
        let outcome = match op {
            Op::Arrive { class, length, flow } => self.arrive(class, length, flow),
            Op::Send => self.send(),
            Op::Wait(time) => {
                self.now += time;
                Outcome::Waited
            }
            Op::WaitForWake => {
                if let Some(at) = self.scheduler.next_wake(self.now) {
                    self.now = at;
                }
                Outcome::Waited
            }
            Op::Set(change) => self.set(&change),
            Op::Drain => self.drain(),
        };
        let after = self.scheduler.meters();
        assert!(after.fair_bytes >= before.fair_bytes && after.class_flips >= before.class_flips);
        self.priority_bytes = after.priority_bytes.unwrap_or_default();
        self.check();
        outcome
    }

    /// Sends what is queued, asking at the times told.
    pub fn send_all(&mut self) {
        while self.queued() > 0 {
            self.step(Op::WaitForWake);
            assert_ne!(
                self.step(Op::Send),
                Outcome::Sent(None),
                "waiting for next_wake was in vain"
            );
        }
    }

    /// Packets that wait.
    pub fn queued(&self) -> u64 {
        self.queues.iter().map(|q| q.len() as u64).sum()
    }

    fn arrive(&mut self, class: u16, length: u32, flow_number: u8) -> Outcome {
        let id = self.next_id;
        self.next_id += 1;
        self.counts[ARRIVED] += 1;
        let packet = TestPacket {
            arrival: self.now,
            flow: flow(flow_number),
            ..TestPacket::new(id, class, length)
        };
        let queue = self.scheduler.queue_of(&packet);
        if self.queues.len() <= queue {
            self.queues.resize(queue + 1, VecDeque::new());
        }
        self.queues[queue].push_back(packet.clone());
        let mut dropped = Vec::new();
        let treated = self
            .scheduler
            .enqueue(self.now, packet.clone(), &mut |p, reason| dropped.push((p, reason)));
        for (victim, reason) in &dropped {
            let q = &mut self.queues[self.scheduler.queue_of(victim)];
            let expected = match reason {
                Reason::QueueFull | Reason::PriorityFull | Reason::FairShare => {
                    assert_eq!(victim.id, id, "tail drop takes the arriving packet");
                    q.pop_back()
                }
                Reason::LongestQueue => q.pop_front(),
                Reason::LongestFlow => {
                    q.iter().position(|p| p == victim).and_then(|at| q.remove(at))
                }
                other => panic!("{other} is no reason of a discipline"),
            };
            assert_eq!(
                expected.as_ref(),
                Some(victim),
                "a packet that stood elsewhere was dropped"
            );
        }
        let own = dropped.iter().find(|(p, _)| p.id == id).map(|(_, reason)| *reason);
        let priority = self.scheduler.meters().priority_bytes;
        let gained = priority.map(|p| p - self.priority_bytes);
        match (own, treated) {
            (Some(reason), told) => assert_eq!(told, Treated::Dropped(reason)),
            (None, Treated::Priority) => {
                assert_eq!(gained, Some(self.scheduler.counted(&packet)));
            }
            (None, told) => {
                assert_eq!((told, gained.unwrap_or_default()), (Treated::Queued, Bytes::ZERO));
            }
        }
        self.counts[DROPPED] += dropped.len() as u64;
        Outcome::Arrived { packet, treated, dropped: dropped.iter().map(|(p, _)| p.id).collect() }
    }

    fn send(&mut self) -> Outcome {
        let now = self.now;
        let peeked = self.scheduler.peek_len(now);
        let mut dropped = Vec::new();
        let sent =
            self.scheduler.dequeue(now, &mut |packet, reason| dropped.push((packet, reason)));
        for (packet, reason) in &dropped {
            assert!(self.scheduler.drops_at_the_head(), "dequeue dropped {packet:?}");
            assert!(matches!(reason, Reason::StandingQueue | Reason::Unresponsive), "{reason}");
            let head = self.queues[self.scheduler.queue_of(packet)].pop_front();
            assert_eq!(head.as_ref(), Some(packet), "not the head of its queue");
            self.counts[DROPPED] += 1;
        }
        if dropped.is_empty() {
            assert_eq!(peeked, sent.as_ref().map(Packet::ip_len), "peek_len is what dequeue gives");
        }
        match &sent {
            Some(packet) => {
                let queue = self.scheduler.queue_of(packet);
                let head = self.queues[queue].pop_front();
                assert_eq!(head.as_ref(), Some(packet), "not the head of its queue");
                self.counts[SENT] += 1;
            }
            None if self.queued() > 0 => {
                assert!(!self.scheduler.work_conserving(), "a packet waits and the link asked");
                let at = self.scheduler.next_wake(now).expect("held packets have a time");
                assert!(at > now, "nothing goes at {now:?}, but it shall be asked for at {at:?}");
                let later = self.scheduler.clone().dequeue(at, &mut |_, _| ());
                assert!(later.is_some(), "nothing goes at the time told");
            }
            None => assert_eq!(self.scheduler.next_wake(now), None),
        }
        Outcome::Sent(sent)
    }

    fn set(&mut self, change: &Change) -> Outcome {
        let before = self.scheduler.clone();
        let result = self.scheduler.set(self.now, change);
        match result {
            Err(_) => {
                let (before, after) = (format!("{before:?}"), format!("{:?}", self.scheduler));
                assert_eq!(before, after, "a refused change changes nothing");
            }
            Ok(wake) => {
                let was_sendable = before.peek_len(self.now).is_some();
                if self.scheduler.peek_len(self.now).is_some() && !was_sendable {
                    assert_eq!(wake, Wake::Now, "{change:?} released a packet and nobody was told");
                }
            }
        }
        Outcome::Set(result)
    }

    fn drain(&mut self) -> Outcome {
        let mut out = Vec::new();
        self.scheduler.drain(&mut |p| out.push(p));
        self.counts[DRAINED] += out.len() as u64;
        for packet in &out {
            let queue = self.scheduler.queue_of(packet);
            assert_eq!(
                self.queues[queue].pop_front().as_ref(),
                Some(packet),
                "drain keeps the order"
            );
        }
        assert_eq!(self.queued(), 0, "drain hands everything over");
        Outcome::Drained
    }

    fn check(&self) {
        let of = |q: &VecDeque<TestPacket>| Backlog {
            packets: q.len() as u64,
            bytes: q.iter().map(|packet| self.scheduler.counted(packet)).sum(),
        };
        let [arrived, gone @ ..] = self.counts;
        assert_eq!(arrived, gone.iter().sum::<u64>() + self.queued(), "in = out + dropped + held");
        let total = Backlog {
            packets: self.queued(),
            bytes: self.queues.iter().map(|q| of(q).bytes).sum(),
        };
        assert_eq!(self.scheduler.meters().backlog, total);
        let busy = self.scheduler.busy_queues();
        if self.scheduler.queues_are_counted() {
            assert_eq!(busy, self.queues.iter().filter(|q| !q.is_empty()).count());
        } else {
            assert_eq!(busy > 0, total.packets > 0);
        }
        if self.scheduler.by_class() {
            for (class, queue) in self.queues.iter().enumerate() {
                assert_eq!(self.scheduler.class_backlog(Class(class as u16)), of(queue));
            }
        } else {
            assert_eq!(self.scheduler.class_backlog(Class(0)), total);
            assert_eq!(self.scheduler.class_backlog(Class(1)), Backlog::default());
        }
        let wake = self.scheduler.next_wake(self.now);
        assert_eq!(wake.is_some(), total.packets > 0);
        assert!(wake.is_none_or(|at| at >= self.now));
        let sendable = self.scheduler.peek_len(self.now).is_some();
        assert_eq!(wake == Some(self.now), sendable, "next_wake and peek_len disagree");
    }
}

/// Does all of `ops` to `scheduler`, then sends what is left.
pub fn run<S: Subject>(scheduler: S, ops: impl IntoIterator<Item = Op>) {
    let mut harness = Harness::new(scheduler);
    for op in ops {
        harness.step(op);
    }
    harness.send_all();
}
