//! `evenkeel-bench cluster`: what a decision of a cluster costs, and its frames.

use std::hint::black_box;
use std::time::Instant;

use evenkeel_cluster::frame::{Builder, FrameKind, Header, Parser, state_bytes};
use evenkeel_cluster::{ClusterConfig, NodeId, Record, Scheduler, Variant, mix64};

use crate::allocations;
use crate::timing::{Case, Rounds};

const ROUNDS: usize = 7;

/// Forwarders, links, classes; decisions per measurement; what is aimed at, nanoseconds.
const SIZES: [(u16, usize, usize, u64, f64); 3] =
    [(3, 3, 3, 100_000, 100.0), (16, 16, 4, 4_000, 10_000.0), (64, 64, 8, 200, 40_000.0)];

fn config(nodes: u16, links: usize, classes: usize, (variant, l): (Variant, u16)) -> ClusterConfig {
    let mut config = ClusterConfig::new(nodes, links, &vec![1; classes]);
    config.set_variant(variant, l, 0);
    config
}

/// A cluster whose queues are all backlogged, with lengths and arrivals at random.
pub(crate) struct Deciding {
    scheduler: Scheduler,
    present: u64,
    cycle: u64,
    rounds: u64,
}

impl Deciding {
    pub(crate) fn new(nodes: u16, links: usize, classes: usize, rounds: u16) -> Self {
        let variant = (Variant::Multiple, rounds);
        let scheduler = Scheduler::new(&config(nodes, links, classes, variant))
            .expect("the sizes are in range");
        Self { scheduler, present: u64::MAX >> (64 - nodes), cycle: 0, rounds: 0 }
    }

    /// Announces for all and decides one window; what the decision alone took, nanoseconds.
    fn window(&mut self) -> u64 {
        let (nodes, links, classes, depth) = {
            let config = self.scheduler.config();
            (config.nodes(), config.links, config.classes(), config.depth())
        };
        let mut records = [Record::default(); 1000];
        self.cycle += 1;
        for queue in 0..nodes * links * classes {
            for (n, record) in records[..depth].iter_mut().enumerate() {
                let draw = mix64(self.cycle << 40 ^ (queue as u64) << 16 ^ n as u64);
                *record = Record::of_packet(draw as u32, 64 + (draw >> 32) as u16 % 1437);
            }
            let (pair, class) = (queue / classes, queue % classes);
            self.scheduler.announce(pair / links, pair % links, class, &records[..depth]);
        }
        let begin = Instant::now();
        let rounds = black_box(self.scheduler.decide(self.cycle, self.present)).rounds;
        let end = Instant::now();
        self.rounds += u64::from(rounds);
        // The reading of the clock is taken off: a decision of a small cluster takes not much more.
        let reading = end.elapsed();
        (end - begin).saturating_sub(reading).as_nanos() as u64
    }

    /// Nanoseconds per decision, over about so many.
    pub(crate) fn time(&mut self, decisions: u64) -> f64 {
        let (before, mut nanos) = (self.rounds, 0);
        while self.rounds - before < decisions {
            nanos += self.window();
        }
        nanos as f64 / (self.rounds - before) as f64
    }
}

/// The state of one forwarder as it is broadcast, and the scheduler that it is announced to.
pub(crate) struct Reading {
    scheduler: Scheduler,
    parser: Parser,
    frames: Vec<Vec<u8>>,
    records: Vec<Record>,
    body: Vec<u8>,
}

impl Reading {
    /// With this configuration, without a key.
    pub(crate) fn new(config: &ClusterConfig) -> Self {
        let header = state_header(NodeId(1));
        let body: Vec<u8> = (0..state_bytes(config)).map(|n| n as u8 | 1).collect();
        let mut frames = Vec::new();
        Builder::new(config, [2; 6]).build(&header, &body, None, |frame| {
            frames.push(frame.to_vec());
        });
        Self {
            scheduler: Scheduler::new(config).expect("the sizes are in range"),
            parser: Parser::new(config),
            frames,
            records: vec![Record::default(); config.depth()],
            body,
        }
    }

    /// Nanoseconds to parse all frames of a state, take its records apart and announce them.
    pub(crate) fn time(&mut self, times: u64) -> f64 {
        let begin = Instant::now();
        for _ in 0..times {
            for frame in &self.frames {
                let parsed = self.parser.parse(black_box(frame), None).expect("it was built here");
                self.body[parsed.offset..parsed.offset + parsed.body.len()]
                    .copy_from_slice(parsed.body);
            }
            let (links, classes, depth) = {
                let config = self.scheduler.config();
                (config.links, config.classes(), config.depth())
            };
            let size = self.body.len() / (links * classes * depth);
            for queue in 0..links * classes {
                for (n, record) in self.records.iter_mut().enumerate() {
                    let at = &self.body[(queue * depth + n) * size..][..size];
                    *record = Record {
                        stamp: u32::from_be_bytes([at[0], at[1], at[2], at[3]]),
                        length: u16::from_be_bytes([at[4], at[5]]),
                        packets: at.get(6).copied().unwrap_or(1),
                    };
                }
                self.scheduler.announce(1, queue / classes, queue % classes, &self.records);
            }
        }
        begin.elapsed().as_nanos() as f64 / times as f64
    }
}

fn state_header(from: NodeId) -> Header {
    Header {
        kind: FrameKind::State,
        from,
        cycle: 0,
        master: false,
        resync: false,
        fragment: 0,
        fragments: 1,
        checksum: None,
        ready: None,
        members: None,
    }
}

pub(crate) fn run() {
    println!(
        "Cluster: one decision (selection, preferences, matching, second pass); lengths and \
         arrivals at random ({ROUNDS} rounds in turn)"
    );
    let mut cases: Vec<Case<'_>> = Vec::new();
    for (nodes, links, classes, decisions, _) in SIZES {
        for (rounds, what) in [(1, "from new records"), (25, "one of 25 in a window")] {
            if rounds > 1 && nodes == 64 {
                continue;
            }
            let mut deciding = Deciding::new(nodes, links, classes, rounds);
            deciding.time(decisions);
            let allocated = allocations::measure(|| {
                deciding.window();
            });
            assert_eq!(allocated.count, 0, "a decision allocates");
            let name = format!("{nodes} x {links} x {classes}, {what}");
            cases.push((name, Box::new(move || deciding.time(decisions))));
        }
    }
    let decisions = cases.len();
    for l in [1, 25] {
        let (mut build, mut parse) = (frames(l), frames(l));
        cases.push((format!("frame built, l = {l}"), Box::new(move || build.build(100_000))));
        cases.push((format!("frame parsed, l = {l}"), Box::new(move || parse.parse(100_000))));
    }
    let rounds = Rounds::run(ROUNDS, &mut cases);
    println!("  {:<46} {:>10}  {:>19} {:>12}", "", "ns", "(min to max)", "per second");
    for (index, (name, spread)) in rounds.rows().enumerate() {
        let spread = spread.expect("nothing is refused here");
        let range = format!("({:.0} to {:.0})", spread.min, spread.max);
        println!("  {name:<46} {:>10.0}  {range:>19} {:>12.0}", spread.median, 1e9 / spread.median);
        if index + 1 == decisions {
            let aims: Vec<String> = SIZES.iter().map(|size| format!("{:.0}", size.4)).collect();
            println!("  aims, ns: {}; nothing allocates", aims.join(", "));
        }
    }
    println!("  {}", rounds.verdict());
}

/// A state frame of 3 x 3 queues in version 1.
struct Frames {
    builder: Builder,
    parser: Parser,
    body: Vec<u8>,
    frame: Vec<u8>,
}

fn frames(l: u16) -> Frames {
    let mut config = ClusterConfig::published(3, 3, &[1, 1, 1]);
    config.set_variant(Variant::Multiple, l, 0);
    let body = (0..state_bytes(&config)).map(|n| n as u8).collect();
    let mut frames = Frames {
        builder: Builder::new(&config, [2; 6]),
        parser: Parser::new(&config),
        body,
        frame: Vec::new(),
    };
    frames.build(1);
    frames
}

impl Frames {
    fn build(&mut self, times: u64) -> f64 {
        let mut header = state_header(NodeId(1));
        let (kept, begin) = (&mut self.frame, Instant::now());
        for cycle in 0..times {
            header.cycle = cycle;
            self.builder.build(&header, black_box(&self.body), None, |frame| {
                kept.clear();
                kept.extend_from_slice(frame);
            });
        }
        begin.elapsed().as_nanos() as f64 / times as f64
    }

    fn parse(&mut self, times: u64) -> f64 {
        let begin = Instant::now();
        for _ in 0..times {
            let parsed =
                self.parser.parse(black_box(&self.frame), None).expect("it was built here");
            black_box(parsed.body.len());
        }
        begin.elapsed().as_nanos() as f64 / times as f64
    }
}
