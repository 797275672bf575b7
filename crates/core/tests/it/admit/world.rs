//! An admission control in front of a paced link with a flow-aware scheduler, and sources, in
//! virtual time.

use evenkeel_core::admit::{
    Admission, AdmissionConfig, Observed, RouterLists, RouterListsConfig, Verdict, Waiting,
};
use evenkeel_core::link::{Link, LinkConfig, LinkSink, Refill, RingConfig};
use evenkeel_core::schedule::afan::{Afan, AfanConfig};
use evenkeel_core::schedule::pdrr::{Pdrr, PdrrConfig};
use evenkeel_core::schedule::pfq::{Pfq, PfqConfig};
use evenkeel_core::schedule::{AnyScheduler, Sharing};
use evenkeel_core::{Bytes, FlowKey, Nanos, Reason, Scheduler};

use super::{PIN, XpPacket, hash};

/// How a source sends.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Sends {
    /// A packet every so often.
    Every(Nanos),
    /// Always has so many packets in the router; tries again after 10 ms when refused.
    Greedy(u32),
    /// Another flow each time, from a random source, with so many packets at once.
    Flood(Nanos, u32),
}

/// A source and what became of its packets.
#[derive(Clone, Debug)]
pub struct Source {
    pub flow: FlowKey,
    pub len: u64,
    pub sends: Sends,
    pub from: Nanos,
    pub to: Nanos,
    /// So many bytes pass, and then nothing comes any more.
    pub size: u64,
    next: Nanos,
    inside: u32,
    pub offered: u64,
    pub passed: u64,
    pub refused: u64,
    pub last_reason: Option<Reason>,
    pub sent_bytes: u64,
    pub dropped: u64,
    pub first_offered: Option<Nanos>,
    pub first_passed: Option<Nanos>,
    pub worst_delay: Nanos,
}

impl Source {
    pub fn new(flow: FlowKey, len: u64, sends: Sends, from: Nanos) -> Self {
        Self {
            flow,
            len,
            sends,
            from,
            to: Nanos::MAX,
            size: u64::MAX,
            next: from,
            inside: 0,
            offered: 0,
            passed: 0,
            refused: 0,
            last_reason: None,
            sent_bytes: 0,
            dropped: 0,
            first_offered: None,
            first_passed: None,
            worst_delay: Nanos::ZERO,
        }
    }

    /// From the first packet offered to the first that passed.
    pub fn accept_delay(&self) -> Option<Nanos> {
        Some(self.first_passed? - self.first_offered?)
    }
}

#[derive(Default)]
struct Left {
    sent: Vec<(Nanos, XpPacket)>,
    dropped: Vec<XpPacket>,
}

impl LinkSink<XpPacket> for Left {
    fn transmitted(&mut self, at: Nanos, packet: XpPacket) {
        self.sent.push((at, packet));
    }
    fn dropped(&mut self, _: Nanos, packet: XpPacket, _: Reason) {
        self.dropped.push(packet);
    }
}

/// What an admission asks.
struct Queues<'a>(&'a AnyScheduler<XpPacket>);

impl Waiting for Queues<'_> {
    fn of_flow(&self, flow: &FlowKey) -> Bytes {
        self.0.flow_backlog(flow, hash(flow))
    }
    fn sharing(&self, subscriber: u32) -> Option<Sharing> {
        self.0.sharing(subscriber)
    }
}

/// The two schedulers that the tests run over, with the published quantum, of IP packets.
pub fn schedulers() -> [AnyScheduler<XpPacket>; 2] {
    with_quantum(Bytes(1_500))
}

pub fn with_quantum(quantum: Bytes) -> [AnyScheduler<XpPacket>; 2] {
    [
        AnyScheduler::Pfq(Pfq::new(PfqConfig { quantum, ..PfqConfig::default() }).unwrap()),
        AnyScheduler::Pdrr(Pdrr::new(PdrrConfig { quantum, ..PdrrConfig::default() }).unwrap()),
    ]
}

/// AFAN with its defaults but this quantum.
pub fn afan(quantum: Bytes) -> AnyScheduler<XpPacket> {
    AnyScheduler::Afan(Afan::new(AfanConfig { quantum, ..AfanConfig::default() }).unwrap())
}

pub struct World {
    pub link: Link<XpPacket, AnyScheduler<XpPacket>>,
    pub admission: Admission,
    pub lists: RouterLists,
    pub sources: Vec<Source>,
    pub now: Nanos,
    pub diverted: u64,
    /// What the wire adds to a packet.
    pub overhead: u64,
    /// Of all packets sent, in nanoseconds.
    pub delays: Vec<u64>,
    left: Left,
    random: u64,
}

impl World {
    pub fn new(config: AdmissionConfig, scheduler: AnyScheduler<XpPacket>) -> Self {
        let link = LinkConfig {
            ring: RingConfig { slots: 1, refill: Refill::AnySlot },
            ..LinkConfig::paced(config.rate)
        };
        Self {
            link: Link::new(link, scheduler, 1).unwrap(),
            admission: Admission::new(config, 3, Nanos::ZERO).unwrap(),
            lists: RouterLists::new(RouterListsConfig::default(), 4).unwrap(),
            sources: Vec::new(),
            now: Nanos::ZERO,
            diverted: 0,
            overhead: 0,
            delays: Vec::new(),
            left: Left::default(),
            random: 1,
        }
    }

    pub fn add(&mut self, source: Source) -> usize {
        self.sources.push(source);
        self.sources.len() - 1
    }

    pub fn draw(&mut self) -> u64 {
        self.random = self
            .random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        self.random >> 32
    }

    pub fn run(&mut self, until: Nanos) {
        loop {
            let source = self.sources.iter().map(|source| source.next).min().unwrap_or(Nanos::MAX);
            let link = self.link.next_wake().unwrap_or(Nanos::MAX);
            let at = source.min(link).min(self.admission.next_tick()).max(self.now);
            if at > until {
                self.now = until;
                self.link.advance(until, &mut self.left);
                self.collect();
                return;
            }
            self.now = at;
            self.link.advance(at, &mut self.left);
            if self.admission.next_tick() <= at {
                let meters = self.link.scheduler().meters();
                self.admission.tick(at, &Observed::new(&meters, self.link.idle_time(at), at));
            }
            self.collect();
            for index in 0..self.sources.len() {
                if self.sources[index].next <= at {
                    self.send(index);
                }
            }
        }
    }

    /// What left the link makes room for greedy sources.
    fn collect(&mut self) {
        for (at, packet) in std::mem::take(&mut self.left.sent) {
            let source = &mut self.sources[packet.source as usize];
            source.sent_bytes += packet.len;
            source.inside -= 1;
            self.delays.push((at - packet.arrival).0);
            source.worst_delay = source.worst_delay.max(at - packet.arrival);
            if let Sends::Greedy(_) = source.sends {
                source.next = source.next.min(self.now);
            }
        }
        for packet in std::mem::take(&mut self.left.dropped) {
            let source = &mut self.sources[packet.source as usize];
            source.inside -= 1;
            source.dropped += 1;
        }
    }

    fn send(&mut self, index: usize) {
        let now = self.now;
        let source = &self.sources[index];
        // What is dropped is sent again.
        if now >= source.to || (source.passed - source.dropped) * source.len >= source.size {
            self.sources[index].next = Nanos::MAX;
            return;
        }
        match self.sources[index].sends {
            Sends::Every(spacing) => {
                self.sources[index].next = now + spacing;
                let _ = self.offer(index);
            }
            Sends::Flood(spacing, packets) => {
                self.sources[index].next = now + spacing;
                let bits = self.draw() as u32;
                let port = self.draw() as u16;
                let flow = &mut self.sources[index].flow;
                flow.source = std::net::Ipv4Addr::from_bits(0x6400_0000 | bits >> 4).into();
                flow.source_port = port;
                for _ in 0..packets {
                    let _ = self.offer(index);
                }
            }
            Sends::Greedy(packets) => {
                self.sources[index].next = Nanos::MAX;
                let dropped = self.sources[index].dropped;
                while self.sources[index].inside < packets
                    && (self.sources[index].passed - self.sources[index].dropped)
                        * self.sources[index].len
                        < self.sources[index].size
                {
                    if self.offer(index) != Verdict::Pass {
                        self.sources[index].next = now + Nanos::from_millis(10);
                        break;
                    }
                    // A full buffer takes from the longest queue, its own: it would fill that
                    // place for ever, and no time would pass.
                    if self.sources[index].dropped > dropped {
                        self.sources[index].next = now + Nanos::from_millis(1);
                        break;
                    }
                }
            }
        }
    }

    fn offer(&mut self, index: usize) -> Verdict {
        let now = self.now;
        let source = &mut self.sources[index];
        let packet = XpPacket {
            flow: source.flow,
            len: source.len,
            overhead: self.overhead,
            arrival: now,
            source: index as u32,
            own: false,
        };
        source.offered += 1;
        source.first_offered = source.first_offered.or(Some(now));
        let queues = Queues(self.link.scheduler());
        let verdict = self.admission.decide(now, &packet, PIN, &queues, &mut self.lists);
        let source = &mut self.sources[index];
        match verdict {
            Verdict::Pass => {
                source.passed += 1;
                source.inside += 1;
                source.first_passed = source.first_passed.or(Some(now));
                let treated = self.link.enqueue(now, packet, &mut self.left);
                self.admission.treated(now, treated, &mut self.lists);
                self.collect();
            }
            Verdict::Refuse(reason) => {
                source.refused += 1;
                source.last_reason = Some(reason);
            }
            Verdict::Divert => self.diverted += 1,
        }
        verdict
    }
}

/// Checks that the view accounts for every packet and flow.
pub fn accounts(admission: &Admission) {
    let view = admission.view();
    let sum = |counts: &[u64]| counts.iter().sum::<u64>();
    assert_eq!(view.packets, sum(&view.passed) + view.diverted_packets + sum(&view.refused));
    assert_eq!(view.admissions, u64::from(view.protected) + sum(&view.removed));
    assert_eq!(view.protected, view.streaming + view.elastic);
    assert!(view.protected <= view.capacity && view.probation <= view.protected);
}
