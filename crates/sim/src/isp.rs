//! An evening at a small ISP, in virtual time: 2,000 subscribers at three sites, of which one has
//! less backhaul than is asked for, and a customer who floods; without and with a tree.
//!
//! ```text
//! Internet ─▶ the router's link, 2 Gbit/s ─┬▶ North: backhaul 300 Mbit/s, 700 subscribers
//!                                          ├▶ South: 900 Mbit/s, 700
//!                                          └▶ East:  900 Mbit/s, 600
//! ```
//!
//! Only what goes down is looked at. A backhaul is a radio link: a wire of its rate behind a FIFO
//! of 1,000 packets, which nobody but the router can keep short. The scheduler is the core's own;
//! the connections are simple ones: slow start, one packet more each round trip, half at a loss.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use evenkeel_core::aqm::elastic::ElasticAqm;
use evenkeel_core::link::{Link, LinkConfig, LinkSink};
use evenkeel_core::schedule::fifo::FifoConfig;
use evenkeel_core::schedule::tree::{Kind, LINK, Plan, PlanNode, TreeConfig, UNKNOWN};
use evenkeel_core::schedule::{AnyScheduler, DisciplineConfig};
use evenkeel_core::{BitRate, Bytes, Class, FlowKey, Nanos, Packet, Reason};

/// How long the evening lasts.
const LONG: Nanos = Nanos::from_secs(8);
/// What is measured begins after that.
const WARM: Nanos = Nanos::from_secs(2);
/// The router's link.
const RATE: u64 = 2_000_000_000;
/// The sites: name, backhaul in Mbit/s, subscribers.
const SITES: [(&str, u64, u32); 3] = [("North", 300, 700), ("South", 900, 700), ("East", 900, 600)];
/// Part of a backhaul that the tree gives its site: the rest keeps the radio's queue empty.
const PART: f64 = 0.97;
/// There and back without queues.
const ROUND_TRIP: Nanos = Nanos::from_millis(20);
/// Packets that a backhaul holds.
const BACKHAUL: usize = 1_000;
/// IP bytes of a full packet.
const FULL: u64 = 1_500;
/// A film: so much of it each period.
const FILM: Nanos = Nanos::from_secs(2);
const FILM_BYTES: u64 = 1_000_000;

/// What somebody does this evening.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Does {
    /// 50 packets of 200 bytes a second.
    Call,
    /// 4 Mbit/s in pieces of two seconds.
    Film,
    /// As fast as it goes, by six connections.
    Download,
    /// 400 Mbit/s of UDP that nobody asked for.
    Flood,
}

#[derive(Clone, Debug)]
struct Mail {
    to: u32,
    flow: u32,
    ip_len: u64,
    arrival: Nanos,
    sent: Nanos,
}

impl Packet for Mail {
    fn ip_len(&self) -> Bytes {
        Bytes(self.ip_len)
    }
    fn wire_len(&self) -> Bytes {
        Bytes(self.ip_len + 38)
    }
    fn class(&self) -> Class {
        Class(0)
    }
    fn flow(&self) -> FlowKey {
        FlowKey {
            source: IpAddr::V4(Ipv4Addr::from_bits(self.flow)),
            destination: IpAddr::V4(Ipv4Addr::from_bits(self.to)),
            protocol: 6,
            source_port: 0,
            destination_port: 0,
            flow_label: 0,
        }
    }
    fn flow_hash(&self) -> u64 {
        u64::from(self.flow).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }
    fn arrival(&self) -> Nanos {
        self.arrival
    }
    fn subscriber(&self) -> u32 {
        self.to
    }
}

/// A connection, or a source that does not listen.
#[derive(Clone, Debug)]
struct Flow {
    to: u32,
    does: Does,
    /// Packets that may be on their way, and that are.
    window: f64,
    slow_start: f64,
    on_way: u32,
    /// A loss before this was answered already.
    answered: Nanos,
    /// Bytes that are still to be sent; of a piece of a film.
    left: u64,
    /// When the piece began.
    piece: Nanos,
    /// What is still missing of it at the other end.
    missing: u64,
}

/// Somebody who lives at a site.
struct Person {
    site: usize,
    plan: u64,
    does: Option<Does>,
}

/// What happens next.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Event {
    /// A source that keeps time sends.
    Tick(u32),
    /// A backhaul has sent a packet.
    Sent(usize),
    /// A packet that went through is known of, or one that was lost.
    Acknowledged(u32),
    Lost(u32),
    /// The router's link has something to do.
    Link,
}

/// What a kind of customers of a site had.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Had {
    /// Waits of packets of calls, ms, sorted.
    pub calls: Vec<f64>,
    /// Packets of calls that were lost, of so many.
    pub lost: (u64, u64),
    /// Pieces of films that came too late, of so many.
    pub late: (u64, u64),
    /// Mbit/s of each download.
    pub downloads: Vec<f64>,
}

/// What an evening came to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Evening {
    /// By site.
    pub sites: Vec<Had>,
    /// Mbit/s that came of the flood, of a plan of 50.
    pub flood: f64,
    /// The most that somebody had for his plan.
    pub most: f64,
}

impl Had {
    /// Of the packets of calls, what so many hundredths waited at most, ms.
    #[must_use]
    pub fn wait(&self, hundredths: usize) -> f64 {
        let at = (self.calls.len() * hundredths / 100).min(self.calls.len().saturating_sub(1));
        self.calls.get(at).copied().unwrap_or(0.0)
    }
}

/// A part of so many, in hundredths.
#[must_use]
pub fn hundredths((part, of): (u64, u64)) -> f64 {
    if of == 0 { 0.0 } else { part as f64 * 100.0 / of as f64 }
}

/// The names of the sites, with backhaul in Mbit/s and subscribers.
pub const TOWN: [(&str, u64, u32); 3] = SITES;

fn people() -> Vec<Person> {
    let mut state = 7u64;
    let mut random = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as u32 % 100
    };
    let mut people = Vec::new();
    for (site, (_, _, count)) in SITES.iter().enumerate() {
        for number in 0..*count {
            let plan = [20, 50, 100, 300][(random() % 4) as usize];
            let does = match random() {
                0..=5 => Some(Does::Call),
                6..=10 => Some(Does::Film),
                11..=13 => Some(Does::Download),
                _ => None,
            };
            let floods = site == 0 && number == 0;
            let (plan, does) = if floods { (50, Some(Does::Flood)) } else { (plan, does) };
            people.push(Person { site, plan, does });
        }
    }
    people
}

/// The place of a person in the tree.
fn place(person: usize) -> u32 {
    UNKNOWN + 1 + SITES.len() as u32 + person as u32
}

fn tree(people: &[Person]) -> DisciplineConfig {
    let mut plan = Plan::default();
    let node = |kind, parent, bps: u64| PlanNode {
        kind,
        parent,
        cap: Some(BitRate(bps)),
        ..PlanNode::default()
    };
    let mut put = |at, node| plan.put(at, node).expect("the places are in range");
    for (at, (_, mbps, _)) in (0..).zip(SITES) {
        let cap = (mbps as f64 * 1e6 * PART) as u64;
        put(UNKNOWN + 1 + at, node(Kind::Inner, LINK, cap));
    }
    for (at, person) in people.iter().enumerate() {
        let parent = UNKNOWN + 1 + person.site as u32;
        put(place(at), node(Kind::Leaf, parent, person.plan * 1_000_000));
    }
    let config =
        TreeConfig { plan: Arc::new(plan), aqm: ElasticAqm::cobalt(), ..TreeConfig::default() };
    DisciplineConfig::Tree(config)
}

/// What leaves the router's link.
#[derive(Default)]
struct Leaves {
    sent: Vec<(Nanos, Mail)>,
    dropped: Vec<Mail>,
}

impl LinkSink<Mail> for Leaves {
    fn transmitted(&mut self, at: Nanos, packet: Mail) {
        self.sent.push((at, packet));
    }
    fn dropped(&mut self, _at: Nanos, packet: Mail, _reason: Reason) {
        self.dropped.push(packet);
    }
}

struct Town {
    people: Vec<Person>,
    flows: Vec<Flow>,
    link: Link<Mail, AnyScheduler<Mail>>,
    leaves: Leaves,
    backhauls: Vec<VecDeque<Mail>>,
    events: BinaryHeap<Reverse<(Nanos, Event)>>,
    now: Nanos,
    link_wakes: Nanos,
    had: Vec<Had>,
    bytes: Vec<u64>,
}

/// The evening, with a tree or with a FIFO.
///
/// # Panics
/// Never: what is built here is in range.
#[must_use]
pub fn evening(with_tree: bool) -> Evening {
    let people = people();
    let discipline =
        if with_tree { tree(&people) } else { DisciplineConfig::Fifo(FifoConfig::packets(1_000)) };
    let scheduler = discipline.build(1).expect("the settings are in range");
    let config = LinkConfig { rate: Some(BitRate(RATE)), ..LinkConfig::default() };
    let mut town = Town {
        flows: Vec::new(),
        link: Link::new(config, scheduler, 1).expect("the settings are in range"),
        leaves: Leaves::default(),
        backhauls: SITES.iter().map(|_| VecDeque::with_capacity(BACKHAUL)).collect(),
        events: BinaryHeap::new(),
        now: Nanos::ZERO,
        link_wakes: Nanos::MAX,
        had: vec![Had::default(); SITES.len()],
        bytes: vec![0; people.len()],
        people,
    };
    town.begin();
    town.run();
    town.sum()
}

impl Town {
    fn begin(&mut self) {
        for person in 0..self.people.len() {
            let Some(does) = self.people[person].does else { continue };
            let flows = if does == Does::Download { 6 } else { 1 };
            for _ in 0..flows {
                let number = self.flows.len() as u32;
                self.flows.push(Flow {
                    to: person as u32,
                    does,
                    window: 10.0,
                    slow_start: f64::MAX,
                    on_way: 0,
                    answered: Nanos::ZERO,
                    left: if does == Does::Download { u64::MAX } else { 0 },
                    piece: Nanos::ZERO,
                    missing: 0,
                });
                // Everybody begins within the first second.
                let at = Nanos(u64::from(number).wrapping_mul(7_919_777) % 1_000_000_000);
                self.events.push(Reverse((at, Event::Tick(number))));
            }
        }
    }

    fn run(&mut self) {
        while let Some(Reverse((at, event))) = self.events.pop() {
            if at >= LONG {
                return;
            }
            self.now = at;
            match event {
                Event::Tick(flow) => self.tick(flow),
                Event::Sent(site) => self.backhaul_sent(site),
                Event::Acknowledged(flow) => self.acknowledged(flow),
                Event::Lost(flow) => self.lost(flow),
                Event::Link => {
                    self.link_wakes = Nanos::MAX;
                    self.link.advance(at, &mut self.leaves);
                }
            }
            self.hand_on();
        }
    }

    fn after(&mut self, time: Nanos, event: Event) {
        self.events.push(Reverse((self.now + time, event)));
    }

    fn tick(&mut self, number: u32) {
        let flow = &mut self.flows[number as usize];
        match flow.does {
            Does::Call => {
                self.after(Nanos::from_millis(20), Event::Tick(number));
                self.send(number, 200);
            }
            Does::Flood => {
                self.after(Nanos((FULL + 38) * 8 * 1_000 / 400), Event::Tick(number));
                self.send(number, FULL);
            }
            Does::Film => {
                let late = flow.missing > 0;
                let (since, piece) = (flow.piece, flow.missing + FILM_BYTES);
                (flow.piece, flow.missing, flow.left) = (self.now, piece, flow.left + FILM_BYTES);
                let site = self.people[flow.to as usize].site;
                if since >= WARM {
                    let count = &mut self.had[site].late;
                    *count = (count.0 + u64::from(late), count.1 + 1);
                }
                self.after(FILM, Event::Tick(number));
                self.fill(number);
            }
            Does::Download => self.fill(number),
        }
    }

    /// Sends what the window lets go.
    fn fill(&mut self, number: u32) {
        loop {
            let flow = &mut self.flows[number as usize];
            if flow.left == 0 || f64::from(flow.on_way) >= flow.window {
                return;
            }
            flow.left = flow.left.saturating_sub(FULL - 40);
            flow.on_way += 1;
            self.send(number, FULL);
        }
    }

    fn send(&mut self, number: u32, ip_len: u64) {
        let person = self.flows[number as usize].to as usize;
        let (now, to) = (self.now, place(person));
        let packet = Mail { to, flow: number, ip_len, arrival: now, sent: now };
        let _ = self.link.enqueue(now, packet, &mut self.leaves);
    }

    /// What has left the link goes to its backhaul; what was dropped is found out later.
    fn hand_on(&mut self) {
        let mut leaves = std::mem::take(&mut self.leaves);
        for (_, packet) in leaves.sent.drain(..) {
            let site = self.people[(packet.to - place(0)) as usize].site;
            if self.backhauls[site].len() == BACKHAUL {
                self.drop(&packet);
                continue;
            }
            self.backhauls[site].push_back(packet);
            if self.backhauls[site].len() == 1 {
                self.begin_sending(site);
            }
        }
        for packet in leaves.dropped.drain(..) {
            self.drop(&packet);
        }
        self.leaves = leaves;
        let wake = self.link.next_wake().unwrap_or(Nanos::MAX);
        if wake < self.link_wakes {
            self.link_wakes = wake;
            self.events.push(Reverse((wake, Event::Link)));
        }
    }

    fn begin_sending(&mut self, site: usize) {
        if let Some(packet) = self.backhauls[site].front() {
            let time = Nanos(packet.wire_len().0 * 8 * 1_000 / SITES[site].1);
            self.after(time, Event::Sent(site));
        }
    }

    fn drop(&mut self, packet: &Mail) {
        let does = self.flows[packet.flow as usize].does;
        if does == Does::Call && packet.sent >= WARM {
            let site = self.people[self.flows[packet.flow as usize].to as usize].site;
            let lost = &mut self.had[site].lost;
            *lost = (lost.0 + 1, lost.1 + 1);
        }
        self.after(ROUND_TRIP, Event::Lost(packet.flow));
    }

    fn backhaul_sent(&mut self, site: usize) {
        let Some(packet) = self.backhauls[site].pop_front() else { return };
        self.begin_sending(site);
        let flow = &mut self.flows[packet.flow as usize];
        if packet.sent >= WARM {
            self.bytes[flow.to as usize] += packet.wire_len().0;
            if flow.does == Does::Call {
                self.had[site].calls.push((self.now - packet.sent).0 as f64 / 1e6);
                self.had[site].lost.1 += 1;
            }
        }
        if flow.does == Does::Film {
            flow.missing = flow.missing.saturating_sub(FULL - 40);
        }
        self.after(ROUND_TRIP, Event::Acknowledged(packet.flow));
    }

    fn acknowledged(&mut self, number: u32) {
        let flow = &mut self.flows[number as usize];
        if matches!(flow.does, Does::Call | Does::Flood) {
            return;
        }
        flow.on_way -= 1;
        flow.window += if flow.window < flow.slow_start { 1.0 } else { 1.0 / flow.window };
        self.fill(number);
    }

    fn lost(&mut self, number: u32) {
        let now = self.now;
        let flow = &mut self.flows[number as usize];
        if matches!(flow.does, Does::Call | Does::Flood) {
            return;
        }
        flow.on_way -= 1;
        flow.left = flow.left.saturating_add(FULL - 40);
        if now >= flow.answered {
            flow.window = (flow.window / 2.0).max(2.0);
            flow.slow_start = flow.window;
            flow.answered = now + ROUND_TRIP;
        }
        self.fill(number);
    }

    fn sum(mut self) -> Evening {
        let seconds = (LONG - WARM).0 as f64 / 1e9;
        let mut evening = Evening::default();
        for (person, bytes) in self.people.iter().zip(&self.bytes) {
            let mbps = *bytes as f64 * 8.0 / 1e6 / seconds;
            match person.does {
                Some(Does::Download) => self.had[person.site].downloads.push(mbps),
                Some(Does::Flood) => evening.flood = mbps,
                _ => {}
            }
            evening.most = evening.most.max(mbps / person.plan as f64);
        }
        for had in &mut self.had {
            had.calls.sort_by(f64::total_cmp);
        }
        evening.sites = self.had;
        evening
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tree_keeps_plans_calls_and_films_where_a_fifo_keeps_none() {
        let (without, with) = (evening(false), evening(true));
        let north = |evening: &Evening| evening.sites[0].clone();
        assert!(without.flood > 80.0, "{}", without.flood);
        assert!(with.flood < 50.5, "{}", with.flood);
        assert!(with.most < 1.01, "{}", with.most);
        assert!(north(&without).wait(99) > 20.0, "{}", north(&without).wait(99));
        assert!(north(&with).wait(99) < 10.0, "{}", north(&with).wait(99));
        assert!(hundredths(north(&without).lost) > 1.0);
        assert_eq!(hundredths(north(&with).lost), 0.0);
        assert!(hundredths(north(&with).late) < hundredths(north(&without).late));
    }
}
