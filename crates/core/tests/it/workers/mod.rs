//! Several workers that share a link by flows, each with an admission if wanted, and sources that
//! always meet the same worker, in virtual time.
#![allow(unreachable_pub, reason = "shared by the tests of this program")]

use evenkeel_core::schedule::DisciplineConfig;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use evenkeel_core::admit::{
    Admission, AdmissionConfig, Observed, Pin, RouterLists, RouterListsConfig, Verdict,
};
use evenkeel_core::link::{Link, LinkConfig, LinkSink, Refill, RingConfig};
use evenkeel_core::schedule::AnyScheduler;
use evenkeel_core::share::SharedLink;
use evenkeel_core::{BitRate, Bytes, Class, FlowKey, Nanos, Packet, Reason, Scheduler};

/// For how long a worker that does not come keeps its claim.
pub const PATIENCE: Nanos = Nanos::from_millis(5);

/// A packet with Ethernet's overhead on the wire.
#[derive(Clone, Copy, Debug)]
pub struct Sent {
    pub source: usize,
    /// Whose it is: the host that sends it, and one behind the link that receives it.
    pub host: u32,
    pub length: u64,
    pub arrival: Nanos,
}

impl Packet for Sent {
    fn ip_len(&self) -> Bytes {
        Bytes(self.length)
    }
    fn wire_len(&self) -> Bytes {
        Bytes(self.length.max(46) + 38)
    }
    fn class(&self) -> Class {
        Class(0)
    }
    fn flow(&self) -> FlowKey {
        FlowKey {
            source: IpAddr::V4(Ipv4Addr::from_bits(0x0a00_0000 + self.host)),
            destination: IpAddr::V4(Ipv4Addr::from_bits(0x0b00_0000 + self.host)),
            protocol: 17,
            source_port: self.source as u16,
            destination_port: 80,
            flow_label: 0,
        }
    }
    fn flow_hash(&self) -> u64 {
        (self.source as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }
    fn arrival(&self) -> Nanos {
        self.arrival
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Sends {
    /// Keeps so many packets in the router; tries again after 10 ms when refused.
    Greedy(usize),
    /// A packet every so often.
    Every(Nanos),
}

#[derive(Clone, Debug)]
pub struct Source {
    pub worker: usize,
    pub host: u32,
    pub length: u64,
    pub sends: Sends,
    pub next: Nanos,
    inside: usize,
    pub offered: u64,
    pub passed: u64,
    pub refused: u64,
    /// Packets that went by the second link, and when the last of them did.
    pub diverted: u64,
    pub last_diverted: Nanos,
    pub dropped: u64,
    pub sent_bytes: u64,
    pub worst_delay: Nanos,
    pub first_offered: Option<Nanos>,
    pub first_passed: Option<Nanos>,
}

impl Source {
    fn packet(&self, source: usize, arrival: Nanos) -> Sent {
        Sent { source, host: self.host, length: self.length, arrival }
    }
}

#[derive(Default)]
struct Left {
    sent: Vec<(Nanos, Sent)>,
    dropped: Vec<Sent>,
}

impl LinkSink<Sent> for Left {
    fn transmitted(&mut self, at: Nanos, packet: Sent) {
        self.sent.push((at, packet));
    }
    fn dropped(&mut self, _at: Nanos, packet: Sent, _reason: Reason) {
        self.dropped.push(packet);
    }
}

pub struct Worker {
    pub link: Link<Sent, AnyScheduler<Sent>>,
    pub admission: Option<Admission>,
    lists: RouterLists,
    left: Left,
    /// Does nothing.
    pub asleep: bool,
}

pub struct Router {
    pub workers: Vec<Worker>,
    /// What they share, if there are several.
    pub shared: Option<Arc<SharedLink>>,
    pub sources: Vec<Source>,
    pub now: Nanos,
    rate: BitRate,
    /// Every packet that was sent: when, and its length on the wire.
    pub log: Vec<(Nanos, u64)>,
}

/// The discipline alone, or one worker's part of it.
fn scheduler(
    discipline: &DisciplineConfig,
    link: Option<&Arc<SharedLink>>,
    worker: usize,
) -> AnyScheduler<Sent> {
    match link {
        Some(link) => discipline.build_part(1, Arc::clone(link), worker).unwrap(),
        None => discipline.build(1).unwrap(),
    }
}

impl Router {
    /// One worker has the link for itself: what the others are compared with.
    pub fn new(
        workers: usize,
        discipline: DisciplineConfig,
        rate: BitRate,
        admission: Option<&AdmissionConfig>,
    ) -> Self {
        let shared = SharedLink::new(workers, 1, PATIENCE);
        Self::on(shared, discipline, rate, admission)
    }

    /// The same on this link.
    pub fn on(
        shared: SharedLink,
        discipline: DisciplineConfig,
        rate: BitRate,
        admission: Option<&AdmissionConfig>,
    ) -> Self {
        let workers = shared.workers();
        shared.set_rate(Some(rate));
        let shared = (workers > 1).then(|| Arc::new(shared));
        let worker = |worker| {
            let config = LinkConfig {
                ring: RingConfig { slots: 1, refill: Refill::AnySlot },
                ..LinkConfig::paced(rate)
            };
            let scheduler = scheduler(&discipline, shared.as_ref(), worker);
            let admission = admission.map(|config| {
                let mut admission = Admission::new(config.clone(), 3, Nanos::ZERO).unwrap();
                if let Some(shared) = &shared {
                    admission.share(Some((Arc::clone(shared), worker)));
                }
                admission
            });
            Worker {
                link: Link::new(config, scheduler, 1).unwrap(),
                admission,
                lists: RouterLists::new(RouterListsConfig::default(), 4).unwrap(),
                left: Left::default(),
                asleep: false,
            }
        };
        Self {
            workers: (0..workers).map(worker).collect(),
            shared,
            sources: Vec::new(),
            now: Nanos::ZERO,
            rate,
            log: Vec::new(),
        }
    }

    /// A source whose packets meet this worker, from an instant on. With one worker, that one.
    pub fn add(&mut self, worker: usize, length: u64, sends: Sends, from: Nanos) -> usize {
        self.sources.push(Source {
            worker: worker % self.workers.len(),
            host: self.sources.len() as u32,
            length,
            sends,
            next: from,
            inside: 0,
            offered: 0,
            passed: 0,
            refused: 0,
            diverted: 0,
            last_diverted: Nanos::ZERO,
            dropped: 0,
            sent_bytes: 0,
            worst_delay: Nanos::ZERO,
            first_offered: None,
            first_passed: None,
        });
        self.sources.len() - 1
    }

    /// The same of a host that has several.
    pub fn add_of(&mut self, host: u32, worker: usize, length: u64, sends: Sends) -> usize {
        let index = self.add(worker, length, sends, self.now);
        self.sources[index].host = host;
        index
    }

    pub fn add_greedy(&mut self, worker: usize, flows: usize, length: u64) {
        for _ in 0..flows {
            self.add(worker, length, Sends::Greedy(8), self.now);
        }
    }

    /// A worker goes on with another scheduler.
    pub fn swap(&mut self, worker: usize, scheduler: AnyScheduler<Sent>) {
        let Worker { link, left, .. } = &mut self.workers[worker];
        drop(link.swap(self.now, scheduler, left));
        self.collect();
    }

    /// What waits at a worker is dropped.
    pub fn drain(&mut self, worker: usize) {
        let Worker { link, left, .. } = &mut self.workers[worker];
        link.drain(self.now, Reason::Reconfigured, left);
        self.collect();
    }

    pub fn run(&mut self, time: Nanos) {
        let until = self.now + time;
        loop {
            let source = self.sources.iter().map(|source| source.next).min().unwrap_or(Nanos::MAX);
            let worker = self.workers.iter().filter(|worker| !worker.asleep).map(|worker| {
                let admission = worker.admission.as_ref().map_or(Nanos::MAX, Admission::next_tick);
                worker.link.next_wake().unwrap_or(Nanos::MAX).min(admission)
            });
            let at = worker.fold(source, Nanos::min).max(self.now).min(until);
            self.now = at;
            for worker in self.workers.iter_mut().filter(|worker| !worker.asleep) {
                worker.link.advance(at, &mut worker.left);
                if let Some(admission) = &mut worker.admission
                    && admission.next_tick() <= at
                {
                    let meters = worker.link.scheduler().meters();
                    admission.tick(at, &Observed::new(&meters, worker.link.idle_time(at), at));
                }
            }
            self.collect();
            if at == until {
                return;
            }
            for index in 0..self.sources.len() {
                if self.sources[index].next <= at {
                    self.send(index);
                }
            }
        }
    }

    fn collect(&mut self) {
        for worker in &mut self.workers {
            for (at, packet) in worker.left.sent.drain(..) {
                let source = &mut self.sources[packet.source];
                source.sent_bytes += packet.length;
                source.inside -= 1;
                source.worst_delay = source.worst_delay.max(at - packet.arrival);
                self.log.push((at, packet.wire_len().0));
                if let Sends::Greedy(_) = source.sends {
                    source.next = source.next.min(self.now);
                }
            }
            for packet in worker.left.dropped.drain(..) {
                let source = &mut self.sources[packet.source];
                source.inside -= 1;
                source.dropped += 1;
                if let Sends::Greedy(_) = source.sends {
                    source.next = source.next.min(self.now + Nanos::from_millis(1));
                }
            }
        }
    }

    fn send(&mut self, index: usize) {
        let now = self.now;
        if self.workers[self.sources[index].worker].asleep {
            self.sources[index].next = now + Nanos::from_millis(1);
            return;
        }
        match self.sources[index].sends {
            Sends::Every(spacing) => {
                self.sources[index].next = now + spacing;
                let _ = self.offer(index);
            }
            Sends::Greedy(packets) => {
                self.sources[index].next = Nanos::MAX;
                while self.sources[index].inside < packets {
                    let dropped = self.sources[index].dropped;
                    if !self.offer(index) {
                        self.sources[index].next = now + Nanos::from_millis(10);
                        break;
                    }
                    if self.sources[index].dropped > dropped {
                        break;
                    }
                }
            }
        }
    }

    /// Whether the packet was let in.
    fn offer(&mut self, index: usize) -> bool {
        let now = self.now;
        let source = &mut self.sources[index];
        let packet = source.packet(index, now);
        source.offered += 1;
        source.first_offered = source.first_offered.or(Some(now));
        let worker = &mut self.workers[source.worker];
        if let Some(admission) = &mut worker.admission {
            let pin = Pin { next_hop: 1, ttl: 64 };
            let backlog = |_: &FlowKey| Bytes::ZERO;
            match admission.decide(now, &packet, pin, &backlog, &mut worker.lists) {
                Verdict::Pass => {}
                Verdict::Refuse(_) => {
                    source.refused += 1;
                    return false;
                }
                // It leaves at once, so that who always has some inside tries again later.
                Verdict::Divert => {
                    source.diverted += 1;
                    source.last_diverted = now;
                    return false;
                }
            }
        }
        source.passed += 1;
        source.inside += 1;
        source.first_passed = source.first_passed.or(Some(now));
        let treated = worker.link.enqueue(now, packet, &mut worker.left);
        if let Some(admission) = &mut worker.admission {
            admission.treated(now, treated, &mut worker.lists);
        }
        self.collect();
        true
    }

    /// Bytes of IP packets sent of each source.
    pub fn sent(&self) -> Vec<u64> {
        self.sources.iter().map(|source| source.sent_bytes).collect()
    }

    /// How many flows the admissions of all workers protect.
    pub fn protected(&self) -> u32 {
        self.workers
            .iter()
            .filter_map(|worker| Some(worker.admission.as_ref()?.view().protected))
            .sum()
    }

    /// Every packet is somewhere, and the wire was never ahead of its rate by more than `ahead`
    /// bytes.
    pub fn check(&self, ahead: u64) {
        let held: u64 = self
            .workers
            .iter()
            .map(|worker| worker.link.held())
            .map(|held| held.queued + held.in_ring)
            .sum();
        let inside: usize = self.sources.iter().map(|source| source.inside).sum();
        assert_eq!(held, inside as u64);
        for source in &self.sources {
            assert_eq!(source.offered, source.passed + source.refused + source.diverted);
            let out = source.sent_bytes / source.length + source.dropped + source.inside as u64;
            assert_eq!(source.passed, out);
        }
        // The most that any stretch of time has sent beyond the rate: a bucket that is never below
        // zero.
        let mut log = self.log.clone();
        log.sort_unstable();
        let (mut before, mut level, mut most) = (Nanos::ZERO, 0.0_f64, 0.0_f64);
        for (at, bytes) in log {
            level =
                (level - (at - before).0 as f64 * self.rate.0 as f64 / 8e9).max(0.0) + bytes as f64;
            (before, most) = (at, most.max(level));
        }
        assert!(most <= ahead as f64, "{most} bytes at once, {ahead} are allowed");
    }
}
