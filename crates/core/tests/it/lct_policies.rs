//! "An Effective Scheduler for IP Routers": each rule for several waiting classes of which none is
//! due, against each sentence that it touches. The table stands in docs/lct.md; this test makes it
//! again and compares, so that the choice of the default rests on what the code does.

use crate::wire::{IP_LEN, Out, TestPacket, packet};
use evenkeel_core::link::{Link, LinkConfig, Refill, RingConfig};
use evenkeel_core::measure::Qostat;
use evenkeel_core::schedule::lct::MultiBacklog;
use evenkeel_core::schedule::lct::{FREEBSD_TICK, Lct, LctConfig};
use evenkeel_core::settings::{Change, PerClass};
use evenkeel_core::{BitRate, Class, Nanos, Scheduler};

/// What a packet of the testbed takes on the wire: 1466 bytes at 100 Mbit/s.
const PACKET_TIME: u64 = 117_280;
/// Packets a second that the wire carries.
const FULL: f64 = 1e9 / PACKET_TIME as f64;
/// What one source of 45 Mbit/s leaves between two packets.
const INTERVAL: u64 = PACKET_TIME * 100 / 45;
const CLASSES: [u16; 3] = [1, 2, 3];

/// X_DELAY of classes 1 to 3 in microseconds: at first, and from 25 s on.
const START: [u64; 3] = [0; 3];
const GRADED: [u64; 3] = [7_500, 10_000, 0];
/// From 75 s on: classes 1 and 2 exchanged.
const EXCHANGED: [u64; 3] = [10_000, 7_500, 0];

/// What QoStat showed of a class: packets sent and dropped a second, mean delay in microseconds.
#[derive(Clone, Copy, Debug)]
struct Seen {
    sent: f64,
    dropped: f64,
    delay: f64,
}

/// How long each step of a figure lasts, and from when on in it numbers are formed.
const STEP: Nanos = Nanos::from_secs(5);
const SETTLE: Nanos = Nanos::from_secs(2);

/// A step of figures 8 and 9: X_DELAY and module 2.
type Step = ([u64; 3], bool);
/// At first; from 25 s on; from 50 s on; from 75 s on. Queues are not emptied in between.
const FIGURE: [Step; 4] = [(START, true), (GRADED, false), (GRADED, true), (EXCHANGED, true)];

/// Means over three seeds of jittered arrivals, one entry for each step and class.
fn measure(policy: MultiBacklog, limit: u32, steps: &[Step], senders: &[u16]) -> Vec<[Seen; 3]> {
    measure_behind((policy, Refill::WholeRing), limit, steps, senders)
}

/// The same behind a ring with another rule.
fn measure_behind(
    behind: (MultiBacklog, Refill),
    limit: u32,
    steps: &[Step],
    senders: &[u16],
) -> Vec<[Seen; 3]> {
    const SEEDS: u64 = 3;
    let runs: Vec<Vec<Qostat>> =
        (1..=SEEDS).map(|seed| run(behind, limit, steps, senders, seed)).collect();
    let seconds = (STEP - SETTLE).0 as f64 / 1e9;
    let of_step = |step: usize| {
        CLASSES.map(|class| {
            let mean = |of: &dyn Fn(&Qostat) -> f64| {
                runs.iter().map(|run| of(&run[step])).sum::<f64>() / SEEDS as f64
            };
            Seen {
                sent: mean(&|q| q.class(Class(class)).sent_packets as f64) / seconds,
                dropped: mean(&|q| q.class(Class(class)).dropped_packets() as f64) / seconds,
                delay: mean(&|q| {
                    q.class(Class(class)).delay_mean().map_or(0.0, |d| d.0 as f64 / 1e3)
                }),
            }
        })
    };
    (0..steps.len()).map(of_step).collect()
}

fn new_link(policy: MultiBacklog, limit: u32, refill: Refill) -> Link<TestPacket, Lct<TestPacket>> {
    let lct = Lct::new(LctConfig {
        limit: PerClass::all(limit),
        multi_backlog: policy,
        timer_tick: FREEBSD_TICK,
        ..LctConfig::with_delays(vec![Nanos::ZERO; 4])
    });
    let config = LinkConfig {
        ring: RingConfig { slots: 128, refill },
        dequeue_time: Nanos(4_500),
        ..LinkConfig::paced(BitRate::from_mbps(100))
    };
    Link::new(config, lct.unwrap(), 4).unwrap()
}

/// The meters of each step.
fn run(
    (policy, refill): (MultiBacklog, Refill),
    limit: u32,
    steps: &[Step],
    senders: &[u16],
    seed: u64,
) -> Vec<Qostat> {
    let mut link = new_link(policy, limit, refill);
    let mut out = Out::default();
    let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next: Vec<u64> = (0..senders.len() as u64).map(|i| i * INTERVAL / 3).collect();
    let mut id = 0;
    let mut all = Vec::new();
    for (at, (x_us, module2)) in steps.iter().enumerate() {
        let from = Nanos(STEP.0 * at as u64);
        for (class, x) in CLASSES.into_iter().zip(x_us) {
            link.set(from, &Change::of("x_delay", Class(class), Nanos::from_micros(*x)), &mut out)
                .unwrap();
        }
        link.set(from, &Change::new("module2", *module2), &mut out).unwrap();
        let mut before = None;
        loop {
            let i = (0..senders.len()).min_by_key(|i| next[*i]).unwrap();
            let now = Nanos(next[i]);
            if before.is_none() && now >= from + SETTLE {
                link.advance(from + SETTLE, &mut out);
                before = Some(link.qostat().clone());
            }
            if now >= from + STEP {
                break;
            }
            let _ = link.enqueue(now, packet(id, senders[i], IP_LEN, now), &mut out);
            id += 1;
            // Spacing even but for a tenth, as the scenarios have it.
            random ^= random >> 12;
            random ^= random << 25;
            random ^= random >> 27;
            let jitter = random.wrapping_mul(0x2545_f491_4f6c_dd1d) % (INTERVAL / 10);
            next[i] += INTERVAL - INTERVAL / 20 + jitter;
        }
        link.advance(from + STEP, &mut out);
        all.push(link.qostat().since(&before.unwrap()));
    }
    all
}

/// Whether `a` and `b` lie within this part of each other.
fn near(a: f64, b: f64, part: f64) -> bool {
    (a - b).abs() <= part * a.max(b)
}

/// Whether each class is served by 2 % more than the one with the next larger X_DELAY, before
/// classes 1 and 2 are exchanged and after.
fn graded(before: &[Seen; 3], after: &[Seen; 3]) -> bool {
    let in_order = |best: f64, next: f64, last: f64| best > 1.02 * next && next > 1.02 * last;
    in_order(before[2].sent, before[0].sent, before[1].sent)
        && in_order(after[2].sent, after[1].sent, after[0].sent)
}

/// Whether a call with several classes waiting, none of them due, gives a packet; module 2 on.
fn gives_a_packet(policy: MultiBacklog) -> bool {
    let x_delay = vec![Nanos::from_millis(1); 3];
    let mut lct =
        Lct::new(LctConfig { multi_backlog: policy, ..LctConfig::with_delays(x_delay) }).unwrap();
    for id in 0..4 {
        let _ = lct.enqueue(Nanos(1), packet(id, id as u16 % 2, IP_LEN, Nanos(1)), &mut |_, _| ());
    }
    let mut sent = || lct.dequeue(Nanos(1), &mut |_, _| ()).is_some();
    sent() && sent() && sent()
}

/// The sentences, and whether each holds under `policy`.
fn judge(policy: MultiBacklog) -> Vec<(&'static str, bool)> {
    let [start8, off8, on8, exchanged8] = measure(policy, 50, &FIGURE, &CLASSES)[..] else {
        panic!()
    };
    let [start9, off9, on9, exchanged9] = measure(policy, 20, &FIGURE, &CLASSES)[..] else {
        panic!()
    };
    let [alone] = measure(policy, 20, &[(GRADED, true)], &[1, 2])[..] else { panic!() };
    for (at, seen) in [start8, off8, on8, start9, off9, on9, alone].into_iter().enumerate() {
        println!("{policy:?} {at}: {seen:.1?}");
    }
    for start in [start8, start9] {
        assert!(CLASSES.map(|c| usize::from(c) - 1).iter().all(|c| near(
            start[*c].sent,
            FULL / 3.0,
            0.01
        )));
    }
    let gain = start9[2].delay - on9[2].delay;
    let penalty = on9[0].delay + on9[1].delay - start9[0].delay - start9[1].delay;
    vec![
        (
            "Module 1 alone is work conserving",
            off9.iter().map(|s| s.sent).sum::<f64>() > 0.99 * FULL,
        ),
        (
            "Module 2: all classes but the most important are not work conserving",
            (0..2).all(|c| alone[c].sent < 1.1 * 1e6 / GRADED[c] as f64),
        ),
        ("Position 4 is the only exit without a packet", gives_a_packet(policy)),
        (
            "The best class is better off than the next, that than the next: figure 8",
            graded(&on8, &exchanged8),
        ),
        ("The same: figure 9", graded(&on9, &exchanged9)),
        (
            "Figure 8, module 2 off: classes differ in delay, drops and packets sent",
            off8[2].sent > 1.2 * off8[1].sent
                && off8[1].dropped > 1.2 * off8[2].dropped
                && off8[1].delay > 1.2 * off8[2].delay,
        ),
        (
            "Figure 8: module 2 makes no large difference",
            (0..3).all(|c| near(on8[c].sent, off8[c].sent, 0.25)),
        ),
        (
            "Figure 9, module 2 off: packets sent and dropped are equal",
            (0..2).all(|c| {
                near(off9[c].sent, off9[2].sent, 0.03)
                    && near(off9[c].dropped, off9[2].dropped, 0.1)
            }),
        ),
        (
            "Figure 9, module 2 off: classes 1 and 2 wait longer, class 3 gains nothing",
            (0..2).all(|c| off9[c].delay > 1.01 * off9[2].delay)
                && near(off9[2].delay, start9[2].delay, 0.05),
        ),
        (
            "Figure 9, module 2 on: class 3 waits less, a small gain against what the others pay",
            gain > 0.1 * start9[2].delay && gain < 0.1 * penalty,
        ),
        (
            "Figure 9, module 2 on: strong penalty of both other classes",
            (0..2).all(|c| on9[c].sent < 0.5 * on9[2].sent && on9[c].delay > 2.0 * start9[c].delay),
        ),
    ]
}

/// Words of configuration files, in the order of [`MultiBacklog::ALL`].
const WORDS: [&str; 5] = ["hold-with-module2", "round-robin", "min-x", "hold", "earliest-due"];

#[test]
fn the_table_of_policies_and_sentences_is_what_the_code_does() {
    let judged = MultiBacklog::ALL.iter().map(|policy| judge(*policy)).collect::<Vec<_>>();
    let mut table =
        format!("| sentence | {} |\n", WORDS.map(|word| format!("`{word}`")).join(" | "));
    table += &format!("|---|{}\n", "---|".repeat(WORDS.len()));
    for (row, (sentence, _)) in judged[0].iter().enumerate() {
        let cells: Vec<_> =
            judged.iter().map(|policy| if policy[row].1 { "✓" } else { "✗" }).collect();
        table += &format!("| {sentence} | {} |\n", cells.join(" | "));
    }
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/lct.md");
    let text = std::fs::read_to_string(page).unwrap();
    assert!(text.contains(&table), "docs/lct.md does not have this table:\n{table}");
}

/// The default is the rule under which most of the paper holds.
#[test]
fn no_rule_fits_more_sentences_than_the_default() {
    let fits = |policy| judge(policy).iter().filter(|(_, holds)| *holds).count();
    let default = fits(MultiBacklog::default());
    for policy in MultiBacklog::ALL.iter().copied().skip(1) {
        assert!(
            fits(policy) < default,
            "{policy:?} fits {} sentences, the default {default}",
            fits(policy)
        );
    }
}

/// What a refill that blocks arrivals changes; docs/lct.md has these numbers. The place in the
/// ring, which tells classes 1 and 2 apart without module 2, acts between the packets of a refill
/// only.
#[test]
fn a_refill_that_blocks_arrivals_moves_shares_without_module_2() {
    let of = |policy, limit, refill| {
        let seen =
            measure_behind((policy, refill), limit, &FIGURE[..2], &CLASSES)[1].map(|s| s.sent);
        println!("queue {limit}, {policy:?}, {refill:?}: {seen:.0?}");
        seen
    };
    let both = |policy, limit| {
        (of(policy, limit, Refill::WholeRing), of(policy, limit, Refill::WholeRingBlocking))
    };
    let (open, blocking) = both(MultiBacklog::HoldWithModule2, 50);
    assert!(open[0] > 1.02 * open[1] && near(blocking[0], blocking[1], 0.005));
    assert!((0.93..0.98).contains(&(blocking[2] / open[2])));
    let (open, blocking) = both(MultiBacklog::MinX, 50);
    assert!(
        (1.15..1.25).contains(&(blocking[1] / open[1])) && near(blocking[0], blocking[2], 0.01)
    );
    // Queue 20: next to nothing.
    let (open, blocking) = both(MultiBacklog::HoldWithModule2, 20);
    assert!((0..3).all(|c| near(open[c], blocking[c], 0.015)));
}
