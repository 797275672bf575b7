//! FairDrop's droppers under random operations: nothing panics, counters add up, a shadow without
//! backlog refuses nothing.
#![no_main]

use evenkeel_core::drop::{
    BandwidthConfig, BandwidthFairDrop, CpuConfig, CpuFairDrop, FlowTableConfig, MimdBatch, Poll,
    ProcessingClass, Rule, Share, ShareId,
};
use evenkeel_core::{BitRate, Bytes, Cycles, Nanos};
use libfuzzer_sys::fuzz_target;

#[derive(Debug)]
enum Op {
    Poll { gap: u64, busy: u64, polled: u32, waiting: u32 },
    Packet { flow: u8, share: u8, class: u8, length: u16, link: bool },
    Measured { class: u8, packets: u32, cycles: u64 },
    Rule(u8),
    Weights([u8; 4]),
    Rate(u32),
}

impl Op {
    /// An operation from whatever numbers the fuzzer makes up.
    fn new((which, bytes, a, b): (u8, [u8; 4], u64, u64)) -> Self {
        match which % 6 {
            0 => Self::Poll {
                gap: a,
                busy: b,
                polled: u32::from(bytes[0]),
                waiting: u32::from_le_bytes(bytes),
            },
            1 => Self::Measured { class: bytes[0], packets: a as u32, cycles: b },
            2 => Self::Rule(bytes[0]),
            3 => Self::Weights(bytes),
            4 => Self::Rate(a as u32),
            _ => Self::Packet {
                flow: bytes[0],
                share: bytes[1],
                class: bytes[2],
                length: a as u16,
                link: bytes[3].is_multiple_of(2),
            },
        }
    }
}

fn rule(which: u8) -> Rule {
    match which % 5 {
        0 => Rule::default(),
        1 => Rule::KAPPA,
        2 => Rule::JOURNAL,
        3 => Rule::MIMD_RING,
        _ => Rule::MimdBatch(MimdBatch {
            min: Cycles(1),
            max: Cycles(1 << 32),
            ..MimdBatch::default()
        }),
    }
}

fn table(weights: [u8; 4]) -> FlowTableConfig {
    let share =
        |(n, weight): (usize, u8)| Share { weight: 1 + u16::from(weight), group: (n % 2) as u8 };
    FlowTableConfig {
        flows: 16,
        shares: weights.into_iter().enumerate().map(share).collect(),
        groups: vec![1 + u16::from(weights[0]), 7],
    }
}

fuzz_target!(|case: (u8, [u8; 4], Vec<(u8, [u8; 4], u64, u64)>)| {
    let (first, weights, ops) = case;
    let config = CpuConfig {
        table: table(weights),
        costs: vec![Cycles(1), Cycles(350), Cycles(1 << 32)],
        batch: 8,
        ring: 64,
        rule: rule(first),
        ..CpuConfig::default()
    };
    let mut cpu = CpuFairDrop::new(config).expect("every choice above is in range");
    let config =
        BandwidthConfig { table: table(weights), ..BandwidthConfig::new(BitRate::from_mbps(10)) };
    let mut link = BandwidthFairDrop::new(config).expect("every choice above is in range");
    let mut now = 0u64;
    for op in ops.into_iter().map(Op::new) {
        match op {
            Op::Poll { gap, busy, polled, waiting } => {
                now = now.saturating_add(gap);
                cpu.begin_batch(&Poll {
                    now: Cycles(now),
                    busy: Cycles(busy),
                    polled,
                    waiting,
                    queued: waiting,
                });
                link.begin_batch(Nanos(now));
            }
            Op::Packet { flow, share, class, length, link: and_link } => {
                let hash = (u64::from(flow) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                let Ok(ticket) = cpu.judge(hash, ShareId(share)) else { continue };
                if !and_link || link.admit(hash, ShareId(share), Bytes(length.into())).is_ok() {
                    cpu.charge(ticket, ProcessingClass(class));
                }
            }
            Op::Measured { class, packets, cycles } => {
                cpu.measured(ProcessingClass(class), packets, Cycles(cycles));
            }
            Op::Rule(which) => cpu.set_rule(rule(which)).expect("every rule above is in range"),
            Op::Weights(weights) => {
                cpu.set_shares(&table(weights)).expect("every weight is in range");
                link.set_shares(&table(weights)).expect("every weight is in range");
            }
            Op::Rate(mbps) => {
                let _ = link.set_rate(Nanos(now), BitRate::from_mbps(mbps.into()));
            }
        }
        let view = cpu.view();
        assert!(view.charged + view.refused <= view.judged);
        assert!(view.costs.iter().all(|cost| (1..=1 << 32).contains(cost)));
        let view = link.view();
        assert_eq!(view.charged + view.refused, view.judged);
        assert!(view.backlogged <= 17);
        assert!(
            (view.backlogged == 0) == link.flows().all(|flow| flow.backlog == 0)
                || view.unplaced > 0
                || view.backlog == Bytes(0)
        );
    }
});
