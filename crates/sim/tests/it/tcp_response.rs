//! TCP over random loss, and over random marks, follows the published response functions.
//!
//! | symbol | here |
//! |---|---|
//! | s | 1448 bytes of payload |
//! | R | round-trip time of the path, which has no queue that matters |
//! | p | loss events per segment sent, counted by the sender (RFC 5348, 5.2): losses of one window are one event. The path loses each data segment by itself |
//! | b | 1: acknowledgements are delayed, but the sender counts bytes |
//! | m | part of the data segments that the path marks instead |
//! | `t_RTO` | 4 R, as RFC 5348 simplifies it (3.1) |
//!
//! CUBIC's function (RFC 9438, 5.1) stands for losses at equal distances, and for where the cubic
//! curve rules. It is asserted where it gives at least 1.3 times what Reno would get; nearer to the
//! border the larger of two windows counts at each moment, which is more than either function says.
//!
//! Marks: Reno's window is that of losses without time-outs, sqrt(3 / 2p) with p the windows of
//! data that were reduced per segment. DCTCP's grows by a segment in each round trip and shrinks by
//! m / 2 of itself for each window of data with a mark: 2 / m segments where each round trip has
//! one (Briscoe and De Schepper, PI2, B.12). Random marks are 1 / mW of a round trip late, so that
//! mW / 2 = 1 + 1 / mW, and W = (1 + sqrt 3) / m.
//!
//! The table also tells the ratio to the function at the path's own loss. Reno's is asserted as
//! well. CUBIC's is up to a fifth too high, and must be: of random losses several fall into one
//! window, and a cubic curve gains more by a late loss than it suffers from an early one.

use std::collections::VecDeque;
use std::fmt::Write as _;

use evenkeel_core::Nanos;
use evenkeel_sim::tcp::{
    Codepoint, Congestion, EcnEcho, Receiver, ReceiverConfig, Segment, Sender, SenderConfig,
};
use evenkeel_traffic::random::Dice;

const PAYLOAD: f64 = 1448.0;
/// A segment at 10 Gbit/s: the link is far from being the limit.
const SERIALISATION: Nanos = Nanos(1_200);
const SEEDS: u64 = 3;
const LOSSES_PER_SEED: f64 = 250.0;

/// The two ends of a connection.
#[derive(Clone, Copy)]
struct Ends {
    congestion: Congestion,
    ecn: Codepoint,
    echo: EcnEcho,
}

/// What came of one cell.
#[derive(Default)]
struct Total {
    seconds: f64,
    delivered: u64,
    segments: u64,
    events: u64,
}

/// A segment that has come to the end of its way.
fn arrived(way: &mut VecDeque<(Nanos, Segment)>, now: Nanos) -> Option<Segment> {
    way.front().filter(|(at, _)| *at <= now)?;
    way.pop_front().map(|(_, segment)| segment)
}

/// One connection over a path that loses data segments at random, or marks those that may be, from
/// its twentieth part on.
fn run(part: f64, rtt: Nanos, ends: Ends, seed: u64, total: &mut Total) {
    // DCTCP's alpha takes some hundred round trips, of a mark or two each, to come down from 1.
    let more = if ends.congestion == Congestion::Dctcp { 40.0 } else { 1.0 };
    let segments = (LOSSES_PER_SEED * more / part) as u64;
    let mut dice = Dice::new(seed, 0);
    let threshold = (part * 18_446_744_073_709_551_616.0) as u64;
    let Ends { congestion, ecn, echo } = ends;
    let mut sender = Sender::new(SenderConfig { congestion, ecn, ..SenderConfig::default() });
    let mut receiver =
        Receiver::new(ReceiverConfig { buffer: 64 << 20, echo, ..ReceiverConfig::default() });
    let mut there: VecDeque<(Nanos, Segment)> = VecDeque::new();
    let mut back: VecDeque<(Nanos, Segment)> = VecDeque::new();
    let half = Nanos(rtt.0 / 2);
    let (mut now, mut free) = (Nanos::ZERO, Nanos::ZERO);
    let mut begin = None;
    sender.open();
    loop {
        while let Some(mut segment) = sender.transmit(now) {
            free = free.max(now) + SERIALISATION;
            let is_met = segment.payload > 0 && dice.fraction() < threshold;
            if is_met && segment.ecn != Codepoint::NotEct {
                segment.ecn = Codepoint::Ce;
            } else if is_met {
                continue;
            }
            there.push_back((free + half, segment));
        }
        while let Some(segment) = receiver.transmit(now) {
            back.push_back((now + half, segment));
        }
        let counts = sender.counts();
        if begin.is_none() && counts.segments >= segments / 20 {
            begin = Some((now, receiver.delivered(), counts));
        }
        if counts.segments >= segments {
            let (then, delivered, before) = begin.expect("the run has a twentieth part");
            total.seconds += (now - then).as_secs_f64();
            total.delivered += receiver.delivered() - delivered;
            total.segments += counts.segments - before.segments;
            total.events += counts.reductions - before.reductions;
            return;
        }
        let arrivals = [there.front(), back.front()].map(|head| head.map(|(at, _)| *at));
        let wakes = [sender.next_wake(), receiver.next_wake()];
        now = arrivals
            .into_iter()
            .chain(wakes)
            .flatten()
            .min()
            .expect("something is always to come")
            .max(now);
        if let Some(segment) = arrived(&mut there, now) {
            receiver.receive(now, &segment);
        }
        if let Some(segment) = arrived(&mut back, now) {
            sender.receive(now, &segment);
        }
    }
}

/// RFC 5348, 3.1, in bytes per second.
fn reno(p: f64, r: f64) -> f64 {
    let timeouts = 4.0 * r * 3.0 * (3.0 * p / 8.0).sqrt() * p * (1.0 + 32.0 * p * p);
    PAYLOAD / (r * (2.0 * p / 3.0).sqrt() + timeouts)
}

/// RFC 9438, 5.1, eq. 6 with C = 0.4 and beta = 0.7, in bytes per second. A power of 3/4 is two
/// square roots.
fn cubic(p: f64, r: f64) -> f64 {
    let root = |x: f64| x.sqrt() * x.sqrt().sqrt();
    let constant = (0.4_f64 * 3.7 / 1.2).sqrt().sqrt();
    constant * root(r) / root(p) * PAYLOAD / r
}

#[test]
fn goodput_over_random_loss_follows_the_response_functions() {
    let mut table = String::from(
        "         loss RTT/ms  events/segment   Mbit/s  formula    ratio  (at loss)\n",
    );
    let mut held = 0;
    for (name, congestion, rtts) in [
        ("reno", Congestion::Reno, &[10, 50, 100][..]),
        ("cubic", Congestion::Cubic { fast_convergence: true }, &[10, 50, 100, 200, 400, 800]),
    ] {
        for loss in [1e-4, 3e-4, 1e-3, 3e-3, 1e-2] {
            for &rtt in rtts {
                let mut total = Total::default();
                for seed in 1..=SEEDS {
                    let ends = Ends { congestion, ecn: Codepoint::NotEct, echo: EcnEcho::No };
                    run(loss, Nanos::from_millis(rtt), ends, seed, &mut total);
                }
                let (p, r) = (total.events as f64 / total.segments as f64, rtt as f64 / 1e3);
                let goodput = total.delivered as f64 / total.seconds;
                let is_reno = congestion == Congestion::Reno;
                let judged = is_reno || cubic(p, r) >= 1.3 * reno(p, r);
                let function = if is_reno || !judged { reno } else { cubic };
                let (ratio, at_loss) = (goodput / function(p, r), goodput / function(loss, r));
                let _ = writeln!(
                    table,
                    "{name:5} {loss:7.4} {rtt:6} {p:15.6} {:8.3} {:8.3} {ratio:8.3}   \
                     ({at_loss:.3}){}",
                    goodput * 8e-6,
                    function(p, r) * 8e-6,
                    if judged { "" } else { " Reno-friendly: to Reno's" }
                );
                let close = |ratio| (0.85..=1.15).contains(&ratio);
                assert!(!judged || close(ratio), "{name}, {loss}, {rtt} ms\n{table}");
                assert!(!is_reno || close(at_loss), "{name}, {loss}, {rtt} ms\n{table}");
                assert!(judged || ratio > 0.95, "CUBIC gets what Reno does\n{table}");
                held += u32::from(judged);
            }
        }
    }
    assert!(held >= 15 + 10, "{held} cells judged\n{table}");
    insta::assert_snapshot!(table);
}

#[test]
fn windows_over_random_marks_follow_the_response_functions() {
    let mut table =
        String::from("            marked RTT/ms  reductions/segment   window  formula\n");
    let (reno, dctcp) = (Congestion::Reno, Congestion::Dctcp);
    for (name, congestion, ecn, echo) in [
        ("reno ect0", reno, Codepoint::Ect0, EcnEcho::UntilReduced),
        ("dctcp ect0", dctcp, Codepoint::Ect0, EcnEcho::Each),
        ("dctcp ect1", dctcp, Codepoint::Ect1, EcnEcho::Each),
    ] {
        // Of a few segments a round trip without growth takes more than the functions know.
        let parts = if congestion == reno { [1e-3, 3e-3, 1e-2] } else { [1e-2, 3e-2, 1e-1] };
        for marked in parts {
            for rtt in [10, 100] {
                let mut total = Total::default();
                for seed in 1..=SEEDS {
                    let ends = Ends { congestion, ecn, echo };
                    run(marked, Nanos::from_millis(rtt), ends, seed, &mut total);
                }
                let p = total.events as f64 / total.segments as f64;
                let window = total.delivered as f64 / PAYLOAD / total.seconds * rtt as f64 / 1e3;
                let formula = if congestion == reno {
                    (1.5 / p).sqrt()
                } else {
                    (1.0 + 3_f64.sqrt()) / marked
                };
                let _ = writeln!(
                    table,
                    "{name:10} {marked:7.4} {rtt:6} {p:19.6} {window:8.2} {formula:8.2}"
                );
                let ratio = window / formula;
                assert!((0.8..=1.2).contains(&ratio), "{name}, {marked}, {rtt} ms\n{table}");
            }
        }
    }
    insta::assert_snapshot!(table);
}
