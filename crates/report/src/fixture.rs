//! Small runs with numbers that can be checked by hand.

use evenkeel_core::Bytes;
use evenkeel_core::measure::ClassCounters;

use crate::run::{AuditRow, CallsSample, Delays, Run, Sample, StepMark};

/// `count` packets, all with the same delay.
pub(crate) fn delays(count: u64, each_us: u64) -> Delays {
    let ns = each_us * 1_000;
    if count == 0 {
        return Delays::default();
    }
    Delays { count, sum_ns: count * ns, max_ns: ns, buckets: vec![(ns, count)] }
}

/// Two classes, two steps of 4 s with windows of 1 s and 1 s of settling: in the first both get
/// 1000 packets/s at 100 us, in the second class 3 gets 500 at 400 us and drops 700.
pub(crate) fn two_steps() -> Run {
    let mut run = Run {
        world: "test".to_owned(),
        sample_s: 1.0,
        settle_s: 1.0,
        duration_s: 8.0,
        steps: vec![
            StepMark { name: "start".to_owned(), at_s: 0.0, changes: vec![] },
            StepMark {
                name: "x10".to_owned(),
                at_s: 4.0,
                changes: vec!["x_delay class3 10us".to_owned()],
            },
        ],
        audits: vec![AuditRow {
            router: "r1".to_owned(),
            of: "sink".to_owned(),
            judged: 8.0,
            unit: "s".to_owned(),
            violations: 3,
            by_cause: vec![("ring".to_owned(), 3)],
            nearest: Some(("class class3".to_owned(), 1.3)),
            last: Some("class3 was behind: a smaller ring".to_owned()),
        }],
        ..Run::default()
    };
    for second in 1..=8 {
        for class in ["class1", "class3"] {
            let slowed = second > 4 && class == "class3";
            let (sent, dropped, us) = if slowed { (500, 700, 400) } else { (1000, 200, 100) };
            run.samples.push(Sample {
                t_s: f64::from(second),
                window_s: 1.0,
                router: "r1".to_owned(),
                link: "sink".to_owned(),
                class: class.to_owned(),
                offered: Some(1200),
                counts: ClassCounters::of_sent(sent, Bytes(sent * 1428)),
                dropped: vec![("queue_full".to_owned(), dropped)],
                qlen: if slowed { 20 } else { 50 },
                queue_us: Some(if slowed { 20_000_000 } else { 50_000_000 }),
                queue_most: Some(50),
                transit: delays(sent, us),
                end_to_end: None,
                goodput_bytes: None,
                control: None,
                cycles: None,
                acceptance: None,
                waiting: None,
                core: None,
            });
        }
        run.calls.push(CallsSample {
            t_s: f64::from(second),
            window_s: 1.0,
            router: "r1".to_owned(),
            link: "sink".to_owned(),
            none: 10,
            one: 20,
            many: 70,
            admission: None,
        });
    }
    run
}
