//! `evenkeel-bench cluster-scale DOCS`: how far a cluster scales. Writes DOCS/cluster-scale.md and
//! its figure.
//!
//! Decisions are measured here; frames are counted by the code that builds them; throughput is
//! simulated by the engines that run live, with the paper's forwarders (5.376 us a packet) and the
//! measured cost of decisions, on another core.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use evenkeel_cluster::frame::{Builder, state_bytes};
use evenkeel_cluster::model::{LargeCost, ModelConfig};
use evenkeel_cluster::{ClusterConfig, Counters, Variant};
use evenkeel_core::Nanos;

use crate::cluster::{Deciding, Reading};

/// Forwarders and links (M = N), classes, packets announced per queue (l), decisions measured.
const SIZES: [(u16, usize, u16, u64); 6] = [
    (3, 3, 25, 100_000),
    (4, 4, 16, 50_000),
    (8, 4, 8, 20_000),
    (16, 4, 4, 4_000),
    (32, 8, 4, 600),
    (64, 8, 4, 150),
];
/// Rounds for each exchange at most (l + p).
const ROUNDS: u16 = 120;
/// The switch's rate, nanoseconds per byte.
const BYTE: u64 = 8;
/// Packets per second of a forwarder without weighted fair queueing.
const ALONE: f64 = 186_000.0;

struct Row {
    size: u16,
    classes: usize,
    announced: u16,
    decision: f64,
    state: usize,
    frames: [u16; 2],
    exchange: Nanos,
    rounds: f64,
    part: f64,
}

fn measure(&(size, classes, announced, decisions): &(u16, usize, u16, u64)) -> Row {
    let mut deciding = Deciding::new(size, size.into(), classes, announced);
    deciding.time(decisions / 4);
    let decision = (0..3).map(|_| deciding.time(decisions)).fold(f64::INFINITY, f64::min);
    let mut cluster = ClusterConfig::new(size, size.into(), &vec![1; classes]);
    cluster.set_variant(Variant::Pipelined, announced, ROUNDS - announced);
    let mut frames = [0; 2];
    let mut exchange = Nanos::ZERO;
    for (count, mtu) in frames.iter_mut().zip([9000, 1500]) {
        cluster.framing.mtu = mtu;
        let builder = Builder::new(&cluster, [2; 6]);
        *count = builder.fragments(state_bytes(&cluster));
        exchange = Nanos(builder.state_wire_bytes() as u64 * u64::from(size - 1) * BYTE);
    }
    // What the paper's machines need, and what the frames of all others take on one port. The
    // master hears answers after two of them.
    cluster.t_br = Nanos::from_micros(72).max(exchange + Nanos::from_micros(20));
    cluster.long_wait = true;
    let mut model = ModelConfig::paper(cluster);
    model.broadcast = model.broadcast.max(exchange);
    model.cluster.timing.per_packet = model.per_packet;
    model.cluster.timing.decision = Nanos(decision as u64);
    // Twice as long less once: the first cycles, in which nobody knows anything, are left out.
    let once = (model.per_packet * u64::from(ROUNDS) + model.cluster.lead()) * 8;
    let [before, after] = [once, once * 2].map(|duration| {
        model.duration = duration;
        let outcome = model.run().expect("the sizes are in range");
        let count = |of: fn(&Counters) -> u64| outcome.nodes.iter().map(of).sum::<u64>() as f64;
        let packets: u64 = outcome.packets.iter().sum();
        [packets as f64, count(|node| node.rounds), count(|node| node.decided)]
    });
    let [packets, rounds, decided] = [0, 1, 2].map(|n| after[n] - before[n]);
    Row {
        size,
        classes,
        announced,
        decision,
        state: state_bytes(&model.cluster),
        frames,
        exchange,
        rounds: rounds / decided.max(1.0),
        part: packets / f64::from(size) / once.as_secs_f64() / ALONE,
    }
}

/// Forwarders and links, classes, rounds for each exchange, bytes of a train, whether the core that
/// forwards decides.
const LARGE: [(u16, usize, u16, u64, bool); 5] = [
    (16, 4, 60, 1_500, false),
    (32, 8, 120, 1_500, false),
    (64, 8, 340, 1_500, false),
    (16, 4, 60, 1_500, true),
    (64, 8, 340, 4_096, true),
];

/// The rows of large clusters with trains, at what was measured here.
fn large() -> String {
    let mut rows = String::new();
    for (size, classes, rounds, train, own_core) in LARGE {
        let mut deciding = Deciding::new(size, size.into(), classes, 4);
        let decision = (0..3).map(|_| deciding.time(600)).fold(f64::INFINITY, f64::min);
        let nothing = LargeCost { reading: Nanos::ZERO, decision: Nanos::ZERO, own_core: false };
        let cluster = ModelConfig::large(size, classes, rounds, train, nothing).cluster;
        let mut reading = Reading::new(&cluster);
        let reading = (0..3).map(|_| reading.time(500)).fold(f64::INFINITY, f64::min);
        let cost = LargeCost {
            reading: Nanos(reading as u64),
            decision: Nanos(decision as u64),
            own_core,
        };
        let mut model = ModelConfig::large(size, classes, rounds, train, cost);
        let alone = Nanos((1e9 / ALONE) as u64);
        let (part, _) = model.part_of(alone).expect("the sizes are in range");
        let _ = writeln!(
            rows,
            "| {size} | {classes} | {rounds} | {train} | {} | {:.2} | {:.1} | {:.1} |",
            if own_core { "the one that forwards" } else { "another" },
            decision / 1e3,
            reading / 1e3,
            part * 100.0
        );
    }
    rows
}

/// Writes the page and its figure below `docs`.
pub(crate) fn run(docs: &Path) {
    let rows: Vec<Row> = SIZES.iter().map(measure).collect();
    let mut page = String::from(
        "# How far a cluster scales\n\nWritten by `evenkeel-bench cluster-scale docs`: decisions \
         measured on one core of the machine it ran on, frames counted, throughput\nsimulated \
         (64-byte packets, always backlogged, P-DS with rule B, the paper's forwarders, exchange \
         at 1 Gbit/s, decisions on another core; \
         the router decides on its own, which costs 5 to 6 %).\n\n",
    );
    page += "| M = N | K | l | one decision, us | announced, bytes per forwarder | frames (1500) | \
             frames (9000) | exchange, us | rounds per exchange | throughput, % of no WFQ \
             |\n|---|---|---|---|---|---|---|---|---|---|\n";
    for row in &rows {
        let _ = writeln!(
            page,
            "| {} | {} | {} | {:.2} | {} | {} | {} | {:.0} | {:.0} | {:.1} |",
            row.size,
            row.classes,
            row.announced,
            row.decision / 1e3,
            row.state,
            row.frames[1],
            row.frames[0],
            row.exchange.0 as f64 / 1e3,
            row.rounds,
            row.part * 100.0
        );
    }
    page += TEXT;
    page += "\n## With trains, at measured costs\n\nThe exchange frame by frame at 1 Gbit/s, clock \
             frames included; a decision, and what reading the state of one other forwarder costs \
             (frames parsed, records announced), measured here.\n\n| M = N | K | rounds per \
             exchange | train, bytes | core that decides | one decision, us | one state read, us | \
             throughput, % of no WFQ |\n|---|---|---|---|---|---|---|---|\n";
    page += &large();
    page += REST;
    fs::write(docs.join("cluster-scale.md"), &page).expect("the folder can be written");
    fs::write(docs.join("images/cluster-scale.svg"), figure(&rows))
        .expect("the folder can be written");
    print!("{page}");
}

const TEXT: &str = "
![One decision, the exchange and the slot of a packet by size](images/cluster-scale.svg)

Exchange: the frames of all other forwarders one after the other on one port; T_br is that and 20 \
us, at least 72 us.

## Where it stops

P-DS hides an exchange and its decisions behind the window before. That works as long as both take \
less time than the window:

- **Decisions.** One per round, so one must take less than a packet's slot (5.4 us for the paper's \
forwarders, 0.67 us for 64 bytes at 1 Gbit/s, 12.3 us for
  1500). Where the line of decisions crosses that of the slot in the figure, a deciding core is \
  full.
- **Frames.** A forwarder hears 6·l·N·K bytes from each of M − 1 others for each window. This \
grows with the cube of the size; where the line of exchanges crosses
  120 slots, the wire of the exchange is full.

## What to do then

- **Trains.** `train` announces and grants consecutive packets of a queue together: small packets \
then cost the exchange and the decisions as much as large ones. With `train = \"1500B\"`, the
  exchange frame by frame at 1 Gbit/s, clock frames, and what decisions and reading cost, the \
  model carries what the last table says (`cargo test -p evenkeel-cluster --test it scale` holds \
  it to
  95 % at 40 us for a decision of 64 x 64 x 8); a cycle of 64 takes 42 \
  ms. Shares are by trains: as exact as with packets of that size.
- **Groups.** Split the links among groups of forwarders, each with an exchange of its own: M and \
N fall, and with them decisions (as their product) and frames. What
  is lost: a forwarder only sends on its group's links, so the balancer must choose the group by \
  destination.
- **Longer slots.** `round_bytes` lets a pair go on for many packets for one decision, with shares \
as exact as before. It is the first thing to try when decisions are
  what is full.
- **Jumbo frames** save headers and interrupts, not bytes: see the two columns of frames. They \
need a larger T_br.
- **Pipelining and p.** Announce little (l) and decide many rounds (p): a queue is used every N·K \
rounds or so, so l = 4 lasts for a long time. When the
  first queue is used up that nobody else could stand in for, the window ends.
- **A faster exchange.** The exchange may have its own port: 10 Gbit/s move the second limit by ten.
";

const REST: &str = "
The router decides on the core that forwards: at 64 x 64 x 8 a decision takes as long as six of \
the paper's packets, and a train of 4096 bytes has 64 of them, so that 95 % are missed there. \
Trains of 16,320 bytes hold 255: with them 97 % are carried at 40 us a decision, on the core \
that forwards (`cargo test -p evenkeel-cluster --test it scale`), and shares are as exact as \
with packets of that size.
Aims of a decision: 0.1 us at 3 x 3 x 3, just missed (first table), and 40 us at 64 x 64 x 8.
";

/// Both axes logarithmic.
fn figure(rows: &[Row]) -> String {
    let (left, top, width, height) = (70.0, 20.0, 470.0, 280.0);
    let x = |size: f64| left + (size / 3.0).log2() / (64.0_f64 / 3.0).log2() * width;
    // 0.1 us to 100 ms.
    let y = |nanos: f64| top + height - (nanos / 100.0).log10().clamp(0.0, 6.0) / 6.0 * height;
    let mut svg = String::from(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 760 350\" \
         font-family=\"sans-serif\" font-size=\"13\">\n<rect width=\"760\" height=\"350\" \
         fill=\"white\"/>\n",
    );
    for (n, label) in
        ["0.1 us", "1 us", "10 us", "100 us", "1 ms", "10 ms", "100 ms"].iter().enumerate()
    {
        let at = top + height - n as f64 / 6.0 * height;
        let _ = writeln!(
            svg,
            "<path d=\"M{left} {at:.1}h{width}\" stroke=\"#ddd\"/><text x=\"{:.0}\" y=\"{:.1}\" \
             text-anchor=\"end\">{label}</text>",
            left - 6.0,
            at + 4.0
        );
    }
    for row in rows {
        let at = x(row.size.into());
        let _ = writeln!(
            svg,
            "<text x=\"{at:.1}\" y=\"{:.0}\" text-anchor=\"middle\">{}</text>",
            top + height + 20.0,
            row.size
        );
    }
    let _ = writeln!(
        svg,
        "<text x=\"{:.0}\" y=\"345\" text-anchor=\"middle\">forwarders and links</text>",
        left + width / 2.0
    );
    let slot = 5_376.0;
    type Line<'l> = (&'l str, &'l str, &'l dyn Fn(&Row) -> f64);
    let lines: [Line<'_>; 4] = [
        ("one decision", "#1f5fa8", &|row| row.decision),
        ("slot of a packet", "#888888", &|_| slot),
        ("exchange", "#b3541e", &|row| row.exchange.0 as f64),
        ("window of 120 slots", "#3c7a3c", &|_| slot * f64::from(ROUNDS)),
    ];
    for (name, colour, value) in lines {
        let points: Vec<String> = rows
            .iter()
            .map(|row| format!("{:.1},{:.1}", x(row.size.into()), y(value(row))))
            .collect();
        let end = rows.last().map_or(0.0, |row| y(value(row)));
        let _ = writeln!(
            svg,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/><text \
             x=\"{:.0}\" y=\"{:.1}\" fill=\"{colour}\">{name}</text>",
            points.join(" "),
            left + width + 8.0,
            end + 4.0
        );
    }
    svg + "</svg>\n"
}
