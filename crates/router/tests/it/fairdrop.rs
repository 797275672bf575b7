//! FairDrop and services in the pipeline, on a machine whose cycles pass only when they are spent.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::common::{self, Bed, Udp, headers, set_fairdrop};
use evenkeel_core::{Cycles, Nanos};
use evenkeel_ports::Port;
use evenkeel_router::pipeline::Tunnels;
use evenkeel_router::pipeline::cycles::CycleClock;
use evenkeel_router::snapshot::ClassCycles;

const HERTZ: u64 = 2_000_000_000;
/// What reading the clock takes: about a real machine's work between two readings.
const STEP: u64 = 100;
const BURN: &str = "[[service]]\nname = \"light\"\nwork = { kind = \"spin\", cycles = 20000 }\n\
                    [[service]]\nname = \"heavy\"\nwork = { kind = \"spin\", cycles = 200000 }\n\
                    [[service]]\nname = \"dearest\"\nwork = { kind = \"spin\", cycles = 2000000 \
                    }\n";

/// A machine's cycles, which the test sees too.
#[derive(Clone, Default)]
struct Machine(Arc<AtomicU64>, Others);

/// Somebody else who runs on the core for some cycles, whenever ours has had so many.
#[derive(Clone, Default)]
struct Others {
    every: u64,
    take: u64,
    next: u64,
    ran: u64,
    /// Nobody knows how much they take.
    unknown: bool,
}

impl CycleClock for Machine {
    fn taken(&mut self) -> Option<Cycles> {
        let ran = std::mem::take(&mut self.1.ran);
        (ran == 0 || !self.1.unknown).then_some(Cycles(ran))
    }

    fn now(&mut self) -> Cycles {
        let others = &mut self.1;
        while others.every > 0 && self.0.load(Ordering::Relaxed) >= others.next {
            self.0.fetch_add(others.take, Ordering::Relaxed);
            others.next += others.take + others.every;
            others.ran += others.take;
        }
        Cycles(self.0.fetch_add(STEP, Ordering::Relaxed) + STEP)
    }

    fn spend(&mut self, cycles: Cycles) {
        self.0.fetch_add(cycles.0, Ordering::Relaxed);
    }

    fn hertz(&self) -> u64 {
        HERTZ
    }

    fn source(&self) -> String {
        "test".to_owned()
    }
}

/// 18 light flows, 2 heavy ones: a class each.
fn classes() -> String {
    let class = |at: usize| {
        let service = if at < 18 { "light" } else { "heavy" };
        format!(
            "[[class]]\nname = \"f{at}\"\nservice = \"{service}\"\nmatch = [{{ dscp = {} }}]\n",
            at + 1
        )
    };
    let rest = "[[class]]\nname = \"rest\"\n[[class]]\nname = \"dearest\"\nservice = \
                \"dearest\"\nmatch = [{ dscp = 60 }]\n";
    BURN.to_owned() + rest + &(0..20).map(class).collect::<String>()
}

/// A worker that polls, on a machine of its own.
struct Worker {
    bed: Bed,
    machine: Machine,
    /// Packets that found the ring full.
    lost: u64,
    /// Small flows that send beside the twenty, a packet each every so often, and how many of
    /// their packets were sent and found the ring full.
    mice: Option<Nanos>,
    mice_sent: u64,
    mice_lost: u64,
    /// The host that each of the twenty flows comes from.
    source: fn(usize) -> u8,
}

/// How many small flows there are, if any.
const MICE: u16 = 20;

impl Worker {
    fn new(rest: &str) -> Self {
        Self::of(Bed::new(2, rest))
    }

    fn of(bed: Bed) -> Self {
        Self::beside(bed, Others::default())
    }

    fn beside(mut bed: Bed, others: Others) -> Self {
        let mut machine = Machine(Arc::default(), others);
        machine.1.next = bed.now.0 * (HERTZ / 1_000_000_000);
        machine.spend(Cycles(bed.now.0 * (HERTZ / 1_000_000_000)));
        bed.pipeline
            .set_surroundings(Box::new(machine.clone()), Tunnels::with(0..u64::MAX))
            .unwrap();
        bed.pipeline.set_ring_frames(bed.ports[0].rx_ring().unwrap()).unwrap();
        Self { bed, machine, lost: 0, mice: None, mice_sent: 0, mice_lost: 0, source: |_| 2 }
    }

    fn now(&self) -> Nanos {
        Nanos(self.machine.0.load(Ordering::Relaxed) / (HERTZ / 1_000_000_000))
    }

    /// Polls for `time`, while 20 flows send a packet each every `gap`; `dscp` says by which class
    /// each goes.
    fn run(&mut self, time: Nanos, gap: Nanos, dscp: impl Fn(usize) -> u8) {
        let end = self.now() + time;
        let mut due = self.now();
        let mut next = 0;
        let (mut mouse_due, mut mouse) = (self.now(), 0);
        while self.now() < end {
            while let Some(gap) = self.mice
                && mouse_due <= self.now()
            {
                let what =
                    Udp { dscp: 1, payload: 60, port: 6_000 + mouse % MICE, ..Udp::default() };
                let passed = self.inject(2, what);
                self.mice_sent += 1;
                self.mice_lost += u64::from(!passed);
                mouse += 1;
                mouse_due += Nanos(gap.0 / u64::from(MICE));
            }
            while due <= self.now() {
                let what = Udp {
                    dscp: dscp(next),
                    payload: 60,
                    port: 5_000 + next as u16,
                    ..Udp::default()
                };
                let source = (self.source)(next);
                self.lost += u64::from(!self.inject(source, what));
                next = (next + 1) % 20;
                due += Nanos(gap.0 / 20);
            }
            let now = self.now();
            self.bed.now = now;
            let round = self.bed.pipeline.round(now, &mut self.bed.ports);
            self.bed.received(1);
            if round.received == 0 {
                // An idle poll.
                self.machine.spend(Cycles(1_000));
            }
        }
    }

    /// False: the ring is full.
    fn inject(&mut self, source: u8, what: Udp) -> bool {
        let frame = common::udp(
            (common::host_mac(0), common::router_mac(0)),
            common::v4(0, source),
            common::v4(1, 2),
            what,
        );
        self.bed.hosts[0].inject(&frame)
    }

    fn cycles(&mut self) -> Vec<ClassCycles> {
        self.bed.snapshot().cycles.expect("they are measured").classes
    }

    /// What each of the 20 flows' classes got in `time`.
    fn measure(&mut self, time: Nanos, gap: Nanos) -> Vec<ClassCycles> {
        let before = self.cycles();
        self.run(time, gap, |flow| flow as u8 + 1);
        let difference = |(after, before): (ClassCycles, ClassCycles)| ClassCycles {
            packets: after.packets - before.packets,
            cycles: after.cycles - before.cycles,
            refused_packets: after.refused_packets - before.refused_packets,
            refused_cycles: after.refused_cycles - before.refused_cycles,
            ..after
        };
        self.cycles()
            .into_iter()
            .zip(before)
            .map(difference)
            .filter(|class| class.name.starts_with('f'))
            .collect()
    }
}

fn jain(values: impl Iterator<Item = u64> + Clone) -> f64 {
    let (count, sum) = (values.clone().count() as f64, values.clone().sum::<u64>() as f64);
    sum * sum / (count * values.map(|x| (x as f64).powi(2)).sum::<f64>())
}

fn sum(classes: &[ClassCycles], of: fn(&ClassCycles) -> u64) -> f64 {
    classes.iter().map(of).sum::<u64>() as f64
}

const FAST: Nanos = Nanos::from_micros(125);

/// Nineteen costly flows of one subscriber beside one of another: by subscriber both have half of
/// the core, by flow a twentieth and the rest.
#[test]
fn subscribers_share_the_cycles_whatever_flows_they_have() {
    let folder = tempfile::tempdir().unwrap();
    let list = folder.path().join("list.csv");
    let lines = "name,prefixes,down,up\nann,10.0.0.2,1Gbit/s,1Gbit/s\n\
                 bob,10.0.0.3,1Gbit/s,1Gbit/s\n";
    std::fs::write(&list, lines).unwrap();
    for (groups, part) in [("subscriber", 0.5), ("none", 0.05)] {
        let tree = format!(
            "[[link]]\nport = \"p1\"\nrate = \"1Gbit/s\"\n\
             [[tree]]\nsubscribers = {:?}\nup = \"p1\"\n\
             [fairdrop]\nbandwidth = false\ngroups = \"{groups}\"\n",
            list.display().to_string()
        );
        let mut worker = Worker::new(&(classes() + &tree));
        worker.source = |flow| if flow == 19 { 3 } else { 2 };
        let dscp = |flow: usize| if flow == 19 { 20 } else { 19 };
        worker.run(Nanos::from_millis(300), FAST, dscp);
        let before = worker.cycles();
        worker.run(Nanos::from_millis(500), FAST, dscp);
        let after = worker.cycles();
        let took = |name: &str| {
            let of = |all: &[ClassCycles]| {
                all.iter().find(|class| class.name == name).map(|class| class.cycles).unwrap()
            };
            (of(&after) - of(&before)) as f64
        };
        let (ann, bob) = (took("f18"), took("f19"));
        let off = bob / (ann + bob) / part - 1.0;
        assert!(off.abs() < 0.05, "{groups}: ann {ann} and bob {bob} cycles");
    }
}

#[test]
fn two_heavy_flows_take_the_core_and_fairdrop_gives_it_back() {
    let mut worker =
        Worker::new(&format!("{}[fairdrop]\non = false\n[router]\ncycles = true\n", classes()));
    worker.run(Nanos::from_millis(100), FAST, |flow| flow as u8 + 1);
    let classical = worker.measure(Nanos::from_millis(400), FAST);
    let (light, heavy) = classical.split_at(18);
    assert!(sum(heavy, |c| c.cycles) > sum(light, |c| c.cycles), "{classical:?}");
    assert!(jain(classical.iter().map(|c| c.packets)) > 0.99);
    assert!(worker.lost > 0 && sum(&classical, |c| c.refused_packets) == 0.0);

    set_fairdrop(&mut worker.bed, "on", "true").unwrap();
    worker.run(Nanos::from_millis(400), FAST, |flow| flow as u8 + 1);
    let fair = worker.measure(Nanos::from_millis(400), FAST);
    let index = jain(fair.iter().map(|c| c.cycles));
    assert!(index >= 0.98, "{index}: {fair:?}");
    let gain = sum(&fair[..18], |c| c.packets) / sum(light, |c| c.packets);
    assert!(gain >= 1.5, "{gain}");
    let snapshot = worker.bed.snapshot();
    let fairdrop = snapshot.fairdrop.as_ref().unwrap();
    let refused: u64 = fairdrop.classes.iter().map(|class| class.refused_cpu).sum();
    assert_eq!(snapshot.ports[0].dropped["fairdrop_cpu"], refused);
    for class in &fairdrop.classes {
        let cycles = snapshot
            .cycles
            .as_ref()
            .unwrap()
            .classes
            .iter()
            .find(|c| c.name == class.name)
            .unwrap();
        assert!(class.judged <= cycles.packets + cycles.refused_packets, "{class:?} {cycles:?}");
        assert_eq!(
            class.refused_cpu + class.refused_bandwidth,
            cycles.refused_packets,
            "{class:?}"
        );
    }
    // The accounts are closed: every busy cycle is somebody's, up to the rounding of what bursts
    // share.
    let cycles = snapshot.cycles.unwrap();
    let told =
        cycles.other + cycles.classes.iter().map(|c| c.cycles + c.refused_cycles).sum::<u64>();
    assert!(cycles.busy.abs_diff(told) < cycles.busy / 1_000, "{} {told}", cycles.busy);
}

#[test]
fn below_capacity_nothing_is_refused() {
    let mut worker = Worker::new(&format!("{}[fairdrop]\n", classes()));
    // A fifth of the rate: 76 % of the core.
    let all = worker.measure(Nanos::from_millis(500), Nanos::from_micros(500));
    assert_eq!(sum(&all, |c| c.refused_packets), 0.0, "{all:?}");
    assert_eq!(worker.lost, 0);
}

#[test]
fn a_flow_that_becomes_a_hundred_times_dearer_pays_for_itself_within_100_ms() {
    let mut worker = Worker::new(&format!("{}[fairdrop]\n", classes()));
    worker.run(Nanos::from_millis(400), FAST, |flow| flow as u8 + 1);
    let before = worker.measure(Nanos::from_millis(200), FAST);
    // Flow 0 goes on by another class: the same addresses and ports.
    let dscp = |flow: usize| if flow == 0 { 60 } else { flow as u8 + 1 };
    worker.run(Nanos::from_millis(100), FAST, dscp);
    let start = worker.cycles();
    worker.run(Nanos::from_millis(300), FAST, dscp);
    let end = worker.cycles();
    let spent = |name: &str| {
        let of = |classes: &[ClassCycles]| classes.iter().find(|c| c.name == name).unwrap().cycles;
        of(&end) - of(&start)
    };
    // A twentieth of 300 ms is 30 million cycles, of a packet of 2 million.
    assert!(spent("dearest") < 2 * HERTZ * 300 / 1_000 / 20, "{}", spent("dearest"));
    let others: u64 = (1..18).map(|at| spent(&format!("f{at}"))).sum();
    let were: u64 = before[1..18].iter().map(|c| c.cycles).sum();
    assert!(
        others as f64 > 0.85 * were as f64 * 1.5,
        "{others} of {were} in two thirds of the time"
    );
}

#[test]
fn knobs_change_live_and_absurd_values_are_refused() {
    let mut bed = Bed::new(2, "[router]\ncycles = true\n");
    assert!(bed.snapshot().fairdrop.is_none());
    for (key, value, says) in [
        ("cost", "0", "1 to"),
        ("rule", "{ kind = \"kappa\", kappa = 0.9 }", "1 to 10"),
        ("rule", "{ kind = \"fixed\", cycles = 0 }", "1 to"),
        ("rule", "{ kind = \"mimd-batch\", min = 9, max = 8 }", "max"),
        ("threshold", "1000B", "1538"),
        ("theta", "0", "0.001"),
        ("weight", "0", "1 to 1000"),
        ("kapa", "1", "did you mean"),
        ("flows", "7", "8 to"),
    ] {
        let error = set_fairdrop(&mut bed, key, value).unwrap_err().to_string();
        let hint = says == "did you mean" || error.contains(says);
        assert!(hint, "{key} = {value}: {error}");
    }
    assert!(bed.snapshot().fairdrop.is_none(), "nothing was changed");
    set_fairdrop(&mut bed, "on", "true").unwrap();
    set_fairdrop(&mut bed, "rule", "{ kind = \"kappa\", kappa = 1.2 }").unwrap();
    let settings = bed.snapshot().fairdrop.unwrap().settings;
    let rule = settings.iter().find(|(key, _)| key == "rule").unwrap();
    assert_eq!(rule.1, "{ kind = \"kappa\", kappa = 1.2 }");
    bed.send(0, 1, Udp::default());
    bed.round();
    bed.one(1);
    let view = bed.snapshot().fairdrop.unwrap();
    assert_eq!((view.on, view.classes[0].judged), (true, 1));
}

#[test]
fn packets_go_through_a_tunnel_and_too_long_ones_are_told_its_mtu() {
    let esp = "[[service]]\nname = \"vpn\"\n[service.work]\nkind = \"esp\"\nlocal = \
               \"10.0.2.1\"\nremote = \"10.0.2.2\"\nspi = 4096\n\
               key = \"0x4c80cdefbb5d10da906ac73c3613a6342e443b68\"\n[[class]]\nname = \"rest\"\n\
               [[class]]\nname = \"secret\"\nservice = \"vpn\"\nmatch = [{ dscp = 10 }]\n";
    let mut bed = Bed::new(3, esp);
    bed.send(0, 1, Udp { dscp: 10, ..Udp::default() });
    bed.send(0, 1, Udp::default());
    bed.round();
    bed.one(1);
    let sealed = bed.one(2);
    let outer = headers(&sealed);
    assert_eq!((outer.protocol, outer.dscp, outer.flow.destination), (50, 10, common::v4(2, 2)));
    assert_eq!(outer.ip_len as usize, 20 + 8 + 8 + (128 + 2_usize).next_multiple_of(4) + 16);
    // 1446 bytes fit into the tunnel's 1500, more do not.
    for (payload, passes) in [(1_418, true), (1_419, false)] {
        bed.send(0, 1, Udp { dscp: 10, payload, dont_fragment: true, ..Udp::default() });
        bed.round();
        assert_eq!(bed.received(2).len(), usize::from(passes), "{payload}");
    }
    let answer = bed.one(0);
    let icmp = usize::from(headers(&answer).l4);
    assert_eq!((answer[icmp], answer[icmp + 1]), (3, 4), "fragmentation needed");
    assert_eq!(u16::from_be_bytes([answer[icmp + 6], answer[icmp + 7]]), 1_446);
    // Without DF the tunnel's packet is cut.
    bed.send(0, 1, Udp { dscp: 10, payload: 1_440, ..Udp::default() });
    bed.round();
    assert_eq!(bed.received(2).len(), 2);
    let snapshot = bed.snapshot();
    assert_eq!((snapshot.services[0].packets, snapshot.services[0].sequence), (3, Some(3)));
    assert_eq!(snapshot.links[2].class("secret").unwrap().sent_packets, 4);
}

#[test]
fn a_list_refuses_and_is_counted() {
    let list = "[[service]]\nname = \"filter\"\n[service.work]\nkind = \"acl\"\nfill = 100\n\
                rules = [{ action = \"deny\", destination_port = 25 }]\n[[class]]\nname = \
                \"all\"\nservice = \"filter\"\n";
    let mut bed = Bed::new(2, list);
    bed.send(0, 1, Udp { port: 25, ..Udp::default() });
    bed.send(0, 1, Udp { port: 26, ..Udp::default() });
    bed.round();
    bed.one(1);
    assert_eq!(bed.dropped(0, "acl_denied"), 1);
    let service = &bed.snapshot().services[0];
    assert_eq!((service.packets, service.refused, service.rules_visited), (1, 1, Some(202)));
}

#[test]
fn nothing_is_allocated_per_packet() {
    let mut worker = Worker::new(&format!(
        "{}[fairdrop]\n[[link]]\nport = \"p1\"\nrate = \"5Mbit/s\"\n",
        classes()
    ));
    worker.run(Nanos::from_millis(50), FAST, |flow| flow as u8 + 1);
    let mut allocated = 0;
    // What is left in the ring goes first.
    while worker.bed.pass(Nanos::from_millis(1)).received > 0 {
        worker.bed.received(1);
    }
    for _ in 0..200 {
        for flow in 0..20 {
            let what =
                Udp { dscp: flow as u8 + 1, payload: 60, port: 5_000 + flow, ..Udp::default() };
            worker.bed.send(0, 1, what);
        }
        worker.bed.now += Nanos::from_millis(1);
        let now = worker.bed.now;
        let Bed { pipeline, ports, .. } = &mut worker.bed;
        allocated += allocation_counter::measure(|| {
            pipeline.round(now, ports);
        })
        .count_total;
        worker.bed.received(1);
    }
    assert_eq!(allocated, 0);
    assert!(worker.bed.snapshot().fairdrop.unwrap().links[0].judged > 0);
}

#[test]
fn of_several_workers_each_shares_its_own_core() {
    let rest =
        format!("{}[fairdrop]\non = true\nbandwidth = false\n[router]\nworkers = 2\n", classes());
    let mut workers: Vec<Worker> = Bed::workers(2, &rest).into_iter().map(Worker::of).collect();
    // The first one's core is wanted by light and heavy flows, the second one's by less light ones
    // than it can carry.
    workers[0].run(Nanos::from_millis(400), FAST, |flow| flow as u8 + 1);
    let fair = workers[0].measure(Nanos::from_millis(400), FAST);
    let calm = workers[1].measure(Nanos::from_millis(400), Nanos(FAST.0 * 16));
    let refused = |classes: &[ClassCycles]| sum(classes, |c| c.refused_packets);
    let (light, heavy) = fair.split_at(18);
    assert!(
        refused(heavy) > 0.0
            && refused(light) / sum(light, |c| c.packets)
                < refused(heavy) / sum(heavy, |c| c.packets)
    );
    assert!(sum(heavy, |c| c.cycles) < sum(light, |c| c.cycles), "{fair:?}");
    assert_eq!(refused(&calm), 0.0, "{calm:?}");
    assert!(sum(&calm, |c| c.packets) > 1_000.0);
}

/// Where the port did not tell how many frames wait, one small flow beside them was enough for
/// heavy flows to have twelve times the cycles of light ones, as without FairDrop.
#[test]
fn small_flows_beside_them_do_not_void_the_shares_of_large_ones() {
    for workers in [1, 2] {
        let rest =
            format!("{}[fairdrop]\n[router]\ncycles = true\nworkers = {workers}\n", classes());
        for bed in Bed::workers(2, &rest) {
            let mut worker = Worker::of(bed);
            worker.mice = Some(Nanos::from_millis(10));
            worker.run(Nanos::from_millis(600), FAST, |flow| flow as u8 + 1);
            (worker.mice_sent, worker.mice_lost) = (0, 0);
            let classes = worker.measure(Nanos::from_millis(1_000), FAST);
            // The class of the first flow is the mice's too.
            let (light, heavy) = classes[1..].split_at(17);
            let each = |classes: &[ClassCycles]| sum(classes, |c| c.cycles) / classes.len() as f64;
            let ratio = each(heavy) / each(light);
            assert!((0.9..1.1).contains(&ratio), "of {workers}: {ratio}: {classes:?}");
            let lost = worker.mice_lost as f64 / worker.mice_sent as f64;
            assert!(lost < 0.08, "{lost} of the small flows' packets");
        }
    }
}

/// Half of the core is others': what they take in the middle of a packet is not that packet's.
fn beside_others(every: u64, unknown: bool) -> (Vec<ClassCycles>, Worker) {
    let others = Others { every, take: every, unknown, ..Others::default() };
    let bed = Bed::new(2, &format!("{}[fairdrop]\n[router]\ncycles = true\n", classes()));
    let mut worker = Worker::beside(bed, others);
    worker.run(Nanos::from_millis(800), FAST, |flow| flow as u8 + 1);
    let classes = worker.measure(Nanos::from_millis(2_000), FAST);
    for (class, cost) in classes.iter().zip([[20_000; 18].as_slice(), &[200_000; 2]].concat()) {
        let each = class.cycles as f64 / class.packets as f64;
        assert!((0.9..1.1).contains(&(each / f64::from(cost))), "{each}: {class:?}");
    }
    for (service, cost) in &worker.bed.snapshot().fairdrop.unwrap().costs[1..3] {
        let real = if service == "light" { 20_000.0 } else { 200_000.0 };
        assert!((0.9..1.1).contains(&(*cost as f64 / real)), "{service} {cost}");
    }
    (classes, worker)
}

#[test]
fn what_others_take_of_the_core_is_charged_to_nobody() {
    for unknown in [false, true] {
        beside_others(HERTZ / 250, unknown);
    }
}

/// Rounds with a heavy packet were left out altogether, because others came between in each of
/// them: the core seemed to have cheap packets alone, and heavy flows had half of their share.
#[test]
fn shares_are_fair_where_others_come_between_each_of_the_dear_packets() {
    let (classes, _) = beside_others(HERTZ / 12_000, false);
    let (light, heavy) = classes.split_at(18);
    let ratio = (sum(heavy, |c| c.cycles) / 2.0) / (sum(light, |c| c.cycles) / 18.0);
    assert!((0.95..1.05).contains(&ratio), "{ratio}: {classes:?}");
}
