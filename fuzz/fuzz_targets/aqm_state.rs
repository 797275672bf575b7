//! What an AQM remembers of a queue under any clock: one that jumps, stands still, and goes round.
//! It never drops the last packet of a queue, marks nobody who does not listen, and drops nothing
//! of a queue that waits less than its target once the buffer has not overflowed.
#![no_main]

use arbitrary::Arbitrary;
use evenkeel_core::aqm::elastic::{Aqm, ElasticAqm, Now, Pace};
use evenkeel_core::aqm::{AqmConfig, Codel, INTERVAL_RANGE, Round, TARGET_RANGE, Verdict};
use evenkeel_core::packet::Ecn;
use evenkeel_core::{Bytes, Nanos};
use libfuzzer_sys::fuzz_target;

#[derive(Arbitrary, Debug)]
enum Op {
    /// A packet is at the head: how long the clock jumps, how long it waited, bytes behind it, its
    /// ECN bits, a coin.
    Head {
        jump: u64,
        wait: u64,
        left: u32,
        ecn: u8,
        coin: u32,
    },
    Overflow,
    Empty,
}

#[derive(Arbitrary, Debug)]
struct Case {
    target: u64,
    interval: u64,
    step: u64,
    ecn: bool,
    packets: u32,
    grants: u32,
    queues: u16,
    start: u64,
    ops: Vec<Op>,
}

fn within(value: u64, range: std::ops::RangeInclusive<u64>) -> Nanos {
    Nanos(range.start() + value % (range.end() - range.start() + 1))
}

fuzz_target!(|case: Case| {
    let law = AqmConfig {
        target: within(case.target, TARGET_RANGE),
        interval: within(case.interval, INTERVAL_RANGE),
        ecn: case.ecn,
    };
    let config = ElasticAqm { aqm: Aqm::Cobalt, step: Nanos(case.step), law };
    let (mut queue, mut now, mut overflowed) = (Codel::NEW, Nanos(case.start), false);
    let pace = Pace { packets: Nanos(case.packets.into()), grants: Nanos(case.grants.into()) };
    let turn = Nanos(pace.packets.0 * u64::from(case.queues));
    let target = law.target.max(turn).max(pace.grants);
    for op in case.ops {
        let judge = Now::new(&config, pace, case.queues.into(), now);
        match op {
            Op::Head { jump, wait, left, ecn, coin } => {
                now = Nanos(now.0.wrapping_add(jump));
                let judge = Now::new(&config, pace, case.queues.into(), now);
                let ecn = Ecn::from_bits(ecn);
                let head = (now.saturating_sub(Nanos(wait)), Bytes(left.into()), ecn);
                let (verdict, blue) = judge.judge(&mut queue, &mut Round::default(), head, coin);
                assert!(verdict != Verdict::Drop || left > 0, "the last one goes");
                assert!(verdict != Verdict::Mark || ecn.listens() && law.ecn);
                assert!(!blue || overflowed);
                let short = Nanos(wait.min(now.0)) < target;
                assert!(!(short && verdict == Verdict::Drop && !blue), "it waits below its target");
            }
            Op::Overflow => {
                judge.overflowed(&mut queue);
                overflowed = true;
            }
            Op::Empty => judge.emptied(&mut queue),
        }
    }
});
