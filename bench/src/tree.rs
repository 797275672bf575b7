//! `evenkeel-bench tree`: what a tree of subscribers costs per packet, in time and in instructions,
//! beside flat PDRR of the same run with as many flows, all of them backlogged; and its memory.

use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Instant;

use evenkeel_core::flow_table::PackedFlow;
use evenkeel_core::packet::Places;
use evenkeel_core::schedule::buffer::{Buffer, KnownFlows};
use evenkeel_core::schedule::pdrr::PdrrConfig;
use evenkeel_core::schedule::tree::{Kind, LINK, Plan, PlanNode, TreeConfig, UNKNOWN};
use evenkeel_core::schedule::{AnyScheduler, DisciplineConfig};
use evenkeel_core::{BitRate, Class, Cycles, FlowKey, Nanos, Packet, Reason, Scheduler};
use evenkeel_ports::tsc::Tsc;

use crate::allocations;
use crate::handle::{Handle, Record, Spare};
use crate::instructions;
use crate::timing::{Case, Rounds};

const PEOPLE: [u32; 3] = [1_000, 10_000, 100_000];
/// Children of a site, and of a sector below it: link, site, sector, subscriber are four levels.
const SECTORS: u32 = 10;
const IN_SECTOR: u32 = 25;
const ROUNDS: usize = 5;
const PACKETS: u64 = 200_000;
const BURST: u64 = 32;
/// The wire takes a packet of 1,000 bytes each 100 ns.
const SPACING: u64 = 100;

fn mail(person: u32, to: u32, queue: u32, now: Nanos) -> Record {
    let hash = (u64::from(person) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let address = |bits: u32| IpAddr::V4(Ipv4Addr::from_bits(bits));
    let flow = FlowKey {
        source: address(0xac10_0001),
        destination: address(0x0a00_0000 | person),
        protocol: 6,
        source_port: 443,
        destination_port: 50_000,
        flow_label: 0,
    };
    Record {
        flow: PackedFlow::new(&flow),
        hash: hash ^ hash >> 29,
        arrival: now,
        places: Places { queue, ..Places::UNKNOWN },
        subscriber: to,
        len: 1_000,
        class: Class(0),
    }
}

/// Sites of sectors of people, with caps of these and of a sector, and the people's places.
fn town(people: u32, cap: Option<BitRate>, of_sector: Option<BitRate>) -> (Plan, Vec<u32>) {
    let mut plan = Plan::default();
    let mut at = UNKNOWN;
    let mut put = |kind, parent, cap, weight| {
        at += 1;
        plan.put(at, PlanNode { kind, parent, cap, weight, ..PlanNode::default() })
            .expect("there is room");
        at
    };
    let mut places = Vec::new();
    let (mut site, mut sector) = (LINK, LINK);
    for person in 0..people {
        if person % (SECTORS * IN_SECTOR) == 0 {
            site = put(Kind::Inner, LINK, None, 1_000);
        }
        if person % IN_SECTOR == 0 {
            sector = put(Kind::Inner, site, of_sector, 1_000);
        }
        places.push(put(Kind::Leaf, sector, cap, 1_000 + person % 4 * 500));
    }
    (plan, places)
}

/// Flat PDRR first: what the others are compared with.
pub(crate) const KINDS: [&str; 3] = ["pdrr", "tree", "tree-caps"];
/// Caps of people and of sectors: token buckets at two levels, as `rte_sched` has them.
pub(crate) const TWO_LEVELS: &str = "tree-two-caps";
/// Numbers of subscribers of which instructions are counted.
pub(crate) const COUNTED: [u32; 2] = [1_000, 100_000];

/// A scheduler with room for three packets of each, and the places of all.
fn config(kind: &str, people: u32) -> (DisciplineConfig, Vec<u32>) {
    let buffer = people * 3;
    // Each may send a tenth more than its part: caps are looked at, and bind now and then.
    let part = 1_038 * 8 * 1_000_000_000 / SPACING / u64::from(people);
    let cap = (kind != "tree").then_some(BitRate(part * 11 / 10));
    let of_sector = (kind == TWO_LEVELS).then(|| BitRate(part * u64::from(IN_SECTOR) * 11 / 10));
    let (plan, places) = town(people, cap, of_sector);
    let config = match kind {
        "pdrr" => DisciplineConfig::Pdrr(PdrrConfig {
            buffer: Buffer::packets(buffer),
            flows: KnownFlows::up_to(people),
            ..PdrrConfig::default()
        }),
        _ => DisciplineConfig::Tree(TreeConfig {
            plan: Arc::new(plan),
            buffer,
            ..TreeConfig::default()
        }),
    };
    (config, places)
}

/// All of them backlogged.
pub(crate) struct Full {
    scheduler: AnyScheduler<Handle>,
    spare: Spare,
    places: Vec<u32>,
    /// Where the packet before of each was queued, as the router's cache of flows tells it.
    queues: Vec<u32>,
    now: Nanos,
}

impl Full {
    pub(crate) fn new(kind: &str, people: u32) -> Self {
        let (config, places) = config(kind, people);
        let scheduler = config.build(1).expect("the settings are in range");
        let now = Nanos::from_secs(1);
        let queues = vec![Places::NOWHERE; places.len()];
        let mut full = Self { scheduler, spare: Spare::default(), places, queues, now };
        for _ in 0..2 {
            for person in 0..people {
                full.arrive(person);
            }
        }
        full
    }

    fn packet(&mut self, person: u32) -> Handle {
        let at = person as usize;
        self.spare.packet(mail(person, self.places[at], self.queues[at], self.now))
    }

    fn arrive(&mut self, person: u32) {
        let mut lost = |_, reason: Reason| unreachable!("nothing is dropped: {reason}");
        let packet = self.packet(person);
        self.queues[person as usize] =
            black_box(self.scheduler.take_in(self.now, packet, &mut lost)).1;
    }

    /// What leaves in the time of a burst.
    fn leave(&mut self) -> [Option<Handle>; BURST as usize] {
        self.now += Nanos(SPACING * BURST);
        let mut lost = |_, reason: Reason| unreachable!("nothing is dropped: {reason}");
        std::array::from_fn(|_| self.scheduler.dequeue(self.now, &mut lost))
    }

    /// Who that was for, and how many packets.
    fn take(&mut self, gone: [Option<Handle>; BURST as usize]) -> ([u32; BURST as usize], usize) {
        let (mut people, mut count) = ([0; BURST as usize], 0);
        for packet in gone.into_iter().flatten() {
            if let IpAddr::V4(address) = packet.flow().destination {
                people[count] = address.to_bits() & 0xff_ffff;
                count += 1;
            }
            self.spare.take(packet);
        }
        (people, count)
    }

    /// A packet leaves, and another of the same person comes: all stay backlogged.
    pub(crate) fn run(&mut self, packets: u64) {
        for _ in 0..packets / BURST {
            let gone = self.leave();
            let (people, count) = self.take(gone);
            let people = &people[..count];
            let queues = people.iter().map(|person| self.queues[*person as usize]);
            queues.for_each(|queue| self.scheduler.prefetch_place(queue));
            people.iter().for_each(|person| self.arrive(*person));
        }
    }

    /// Nanoseconds per packet of `bursts` bursts that leave and are replaced: the calls alone, and
    /// not how the packets that come are made up.
    pub(crate) fn time_calls(&mut self, bursts: u64, tsc: &Tsc) -> f64 {
        let (mut cycles, mut packets) = (0, 0);
        for _ in 0..bursts {
            let begin = tsc.now();
            let gone = self.leave();
            cycles += tsc.now().0.saturating_sub(begin.0);
            let (people, count) = self.take(gone);
            let mails: Vec<Handle> =
                people[..count].iter().map(|person| self.packet(*person)).collect();
            let begin = tsc.now();
            mails.iter().for_each(|mail| self.scheduler.prefetch_place(mail.places().queue));
            for mail in mails {
                let mut lost = |_, reason: Reason| unreachable!("nothing is dropped: {reason}");
                let _ = black_box(self.scheduler.take_in(self.now, mail, &mut lost));
            }
            cycles += tsc.now().0.saturating_sub(begin.0);
            packets += count as u64;
        }
        tsc.to_nanos(Cycles(cycles)).0 as f64 / packets.max(1) as f64
    }

    fn time(&mut self) -> f64 {
        let begin = Instant::now();
        self.run(PACKETS);
        begin.elapsed().as_nanos() as f64 / PACKETS as f64
    }
}

pub(crate) fn run() {
    println!(
        "A tree of four levels beside flat PDRR with as many flows, all backlogged: a packet out \
         and one in ({ROUNDS} rounds in turn)"
    );
    println!(
        "  {:>9} {:<12} {:>10} {:>17} {:>7}",
        "people", "", "ns/packet", "(min to max)", "to PDRR"
    );
    for people in PEOPLE {
        let mut fulls = KINDS.map(|kind| (kind, Full::new(kind, people)));
        for (kind, full) in &mut fulls {
            full.run(PACKETS);
            let counted = allocations::measure(|| full.run(PACKETS)).count;
            assert_eq!(counted, 0, "{kind} allocates per packet");
        }
        let mut cases: Vec<Case<'_>> = fulls
            .iter_mut()
            .map(|(kind, full)| -> Case<'_> { ((*kind).to_owned(), Box::new(|| full.time())) })
            .collect();
        let rounds = Rounds::run(ROUNDS, &mut cases);
        for (index, (kind, spread)) in rounds.rows().enumerate() {
            let spread = spread.expect("nothing is refused here");
            println!(
                "  {people:>9} {kind:<12} {:>10.1} {:>17} {:>7.2}",
                spread.median,
                format!("({:.1} to {:.1})", spread.min, spread.max),
                rounds.ratio(index, 0)
            );
        }
        println!("  {}", rounds.verdict());
    }
    memory();
    instructions();
}

/// What the allocator is asked for, one direction: of a tree without room for packets to speak of.
fn memory() {
    println!("Memory of one direction, without traffic: names and prefixes apart");
    for people in PEOPLE {
        let (plan, _) = town(people, Some(BitRate::from_mbps(100)), None);
        let (plan, buffer) = (Arc::new(plan), 64);
        let config = DisciplineConfig::Tree(TreeConfig { plan, buffer, ..TreeConfig::default() });
        let mut built = None;
        let counted = allocations::measure(|| built = config.build::<Handle>(1).ok());
        assert!(built.is_some(), "the settings are in range");
        println!(
            "  {people:>9} subscribers {:>12} bytes, {:>4} each",
            counted.bytes,
            counted.bytes / i64::from(people)
        );
    }
}

fn instructions() {
    println!("Instructions per packet (valgrind)");
    for kind in KINDS {
        for people in COUNTED {
            let Some(each) = instructions::per_packet(&format!("people:{kind}:{people}")) else {
                println!("  skipped: valgrind is missing or failed (make setup installs it)");
                return;
            };
            println!("  {people:>9} {kind:<12} {each:>10.0}");
        }
    }
}
