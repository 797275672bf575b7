//! FairDrop's shares of an overloaded core, and of a core and a link at once, held against exact
//! max-min.

use std::collections::VecDeque;

use evenkeel_core::drop::{
    BandwidthConfig, BandwidthFairDrop, CpuConfig, CpuFairDrop, FlowTableConfig, Poll,
    ProcessingClass, Share, ShareId,
};
use evenkeel_core::reference::{TwoFlow, max_min, max_min_of_groups, max_min_of_two};
use evenkeel_core::{BitRate, Bytes, Cycles, Nanos};

const CLOCK: u64 = 2_600_000_000;
const BATCH: usize = 256;
const RING: usize = 2_048;
/// Cycles for each packet fetched, and for each one refused besides.
const POLL: u64 = 26;
const REFUSE: u64 = 10;

/// A flow: packets per second, cycles of a packet, bytes of it on the wire, what it is due.
#[derive(Clone, Copy)]
struct Flow {
    pps: u64,
    cost: u64,
    wire: u64,
    share: Share,
}

const fn flow(pps: u64, cost: u64, weight: u16, group: u8) -> Flow {
    Flow { pps, cost, wire: 84, share: Share { weight, group } }
}

/// SplitMix64.
fn mixed(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// What a flow got: packets offered, admitted.
type Got = (u64, u64);

/// A core that polls a ring, packets of all flows arriving in random order; what each got from 200
/// ms on, for `ms`, and the seconds that were.
fn run(flows: &[Flow], groups: &[u16], link: Option<BitRate>, ms: u64) -> (Vec<Got>, f64) {
    let shares = flows.iter().map(|flow| flow.share).collect();
    let table = FlowTableConfig { flows: 256, shares, groups: groups.to_vec() };
    let costs = flows.iter().map(|flow| Cycles(flow.cost)).collect();
    let config = CpuConfig { table: table.clone(), costs, clock: CLOCK, ..CpuConfig::default() };
    assert_eq!((usize::from(config.batch), config.ring as usize), (BATCH, RING));
    let mut cpu = CpuFairDrop::new(config).unwrap();
    let mut link = link.map(|rate| {
        BandwidthFairDrop::new(BandwidthConfig { table, ..BandwidthConfig::new(rate) }).unwrap()
    });
    // Arrivals of all together are even, whose packet it is is drawn.
    let ends: Vec<u64> = flows
        .iter()
        .scan(0, |sum, flow| {
            *sum += flow.pps;
            Some(*sum)
        })
        .collect();
    let pps = *ends.last().unwrap();
    let mut ring = VecDeque::with_capacity(RING);
    let (mut now, mut busy, mut arrived, mut drawn) = (0u64, 0u64, 0u64, 0u64);
    let mut got = vec![(0, 0); flows.len()];
    let (from, until) = (CLOCK / 5, CLOCK / 5 + CLOCK / 1_000 * ms);
    let mut begin = None;
    while now < until {
        if now >= from && begin.is_none() {
            begin = Some(now);
            got.fill((0, 0));
        }
        let due = (u128::from(now) * u128::from(pps) / u128::from(CLOCK)) as u64;
        for _ in arrived..due {
            drawn += 1;
            let who = mixed(drawn) % pps;
            let who = ends.partition_point(|end| *end <= who);
            got[who].0 += 1;
            if ring.len() < RING {
                ring.push_back(who);
            }
        }
        arrived = due;
        let polled = ring.len().min(BATCH);
        if polled == 0 {
            now += 1_000;
            continue;
        }
        let waiting = (ring.len() - polled) as u32;
        cpu.begin_batch(&Poll {
            now: Cycles(now),
            busy: Cycles(busy),
            polled: polled as u32,
            waiting,
            queued: waiting,
        });
        if let Some(link) = &mut link {
            link.begin_batch(Nanos((u128::from(now) * 1_000_000_000 / u128::from(CLOCK)) as u64));
        }
        busy = POLL * polled as u64;
        for who in ring.drain(..polled) {
            let (hash, share) = (mixed(who as u64 + 1), ShareId(who as u8));
            let Ok(ticket) = cpu.judge(hash, share) else {
                busy += REFUSE;
                continue;
            };
            if let Some(link) = &mut link
                && link.admit(hash, share, Bytes(flows[who].wire)).is_err()
            {
                busy += REFUSE;
                continue;
            }
            cpu.charge(ticket, ProcessingClass(who as u8));
            busy += flows[who].cost;
            got[who].1 += 1;
        }
        now += busy;
    }
    (got, (now - begin.expect("it runs longer than that")) as f64 / CLOCK as f64)
}

/// What each flow was offered and got, in cycles per second.
fn cycles(flows: &[Flow], got: &[Got], seconds: f64) -> (Vec<f64>, Vec<f64>) {
    let of = |packets: u64, flow: &Flow| packets as f64 * flow.cost as f64 / seconds;
    flows.iter().zip(got).map(|(flow, got)| (of(got.0, flow), of(got.1, flow))).unzip()
}

#[track_caller]
fn within(got: &[f64], exact: &[f64], part: f64) {
    for (flow, (got, exact)) in got.iter().zip(exact).enumerate() {
        let off = got / exact - 1.0;
        assert!(off.abs() < part, "flow {flow}: {off:+.4} of {exact}");
    }
}

#[test]
fn weighted_flows_share_a_core_within_one_percent() {
    let cases: [&[Flow]; 5] = [
        // The heaviest offers just a little more than its share, and with it all that arrives is
        // just about polled.
        &[
            flow(2_000_000, 350, 1, 0),
            flow(2_000_000, 350, 1, 0),
            flow(460_000, 3_500, 2, 0),
            flow(980_000, 1_400, 5, 0),
        ],
        &[
            flow(2_000_000, 350, 1, 0),
            flow(2_000_000, 350, 1, 0),
            flow(460_000, 3_500, 2, 0),
            flow(1_010_000, 1_400, 5, 0),
        ],
        // Everybody is limited, and less is polled than arrives.
        &[
            flow(2_000_000, 350, 1, 0),
            flow(2_000_000, 350, 1, 0),
            flow(2_000_000, 3_500, 2, 0),
            flow(2_000_000, 1_400, 5, 0),
        ],
        &[
            flow(1_500_000, 700, 1, 0),
            flow(1_500_000, 1_000, 2, 0),
            flow(1_000_000, 3_500, 3, 0),
            flow(1_500_000, 1_400, 4, 0),
        ],
        // The third is below its share, and what it leaves goes to the others by weight.
        &[
            flow(2_000_000, 350, 1, 0),
            flow(1_500_000, 1_000, 3, 0),
            flow(100_000, 350, 4, 0),
            flow(900_000, 3_500, 10, 0),
        ],
    ];
    for flows in cases {
        let (got, seconds) = run(flows, &[1], None, 600);
        let (offered, got) = cycles(flows, &got, seconds);
        let weights = flows.iter().map(|flow| f64::from(flow.share.weight));
        let demands: Vec<(f64, f64)> = offered.into_iter().zip(weights).collect();
        let useful = got.iter().sum::<f64>();
        within(&got, &max_min(useful, &demands), 0.01);
        // Nothing was idle: the rest went into polling and refusing.
        let packets = flows.iter().map(|flow| flow.pps).sum::<u64>();
        assert!(useful > 0.98 * (CLOCK - packets * (POLL + REFUSE)) as f64, "{useful}");
    }
}

#[test]
fn groups_share_a_core_within_one_percent() {
    let flows = [
        // Weight 1: a third to the first, what it cannot use of it none.
        flow(1_000_000, 350, 1, 0),
        flow(1_000_000, 3_500, 2, 0),
        // Weight 2: the first is below its share, the other two have the rest of the group.
        flow(200_000, 350, 1, 1),
        flow(1_000_000, 1_400, 1, 1),
        flow(2_000_000, 700, 3, 1),
        // Weight 4: a group that needs less than it is due.
        flow(300_000, 350, 1, 2),
        flow(20_000, 3_500, 1, 2),
    ];
    let (got, seconds) = run(&flows, &[1, 2, 4], None, 600);
    let (offered, got) = cycles(&flows, &got, seconds);
    let demand = |(offered, flow): (f64, &Flow)| {
        (offered, f64::from(flow.share.weight), usize::from(flow.share.group))
    };
    let demands: Vec<_> = offered.into_iter().zip(&flows).map(demand).collect();
    within(&got, &max_min_of_groups(got.iter().sum(), &demands, &[1.0, 2.0, 4.0]), 0.01);
}

#[test]
fn each_flow_has_its_share_of_its_own_bottleneck() {
    let of = |pps, cost, wire| Flow { wire, ..flow(pps, cost, 1, 0) };
    // Large cheap packets fill the link, small dear ones the core; two flows need much of either,
    // two are below both shares.
    let flows = [
        of(300_000, 350, 1_520),
        of(300_000, 350, 1_520),
        of(200_000, 700, 1_520),
        of(400_000, 3_500, 84),
        of(400_000, 3_500, 84),
        of(150_000, 3_000, 1_520),
        of(20_000, 350, 84),
        of(5_000, 3_500, 532),
    ];
    let rate = BitRate::from_mbps(5_000);
    let (got, seconds) = run(&flows, &[1], Some(rate), 1_000);
    let useful = cycles(&flows, &got, seconds).1.iter().sum::<f64>();
    let bits: f64 =
        got.iter().zip(&flows).map(|(got, flow)| (got.1 * flow.wire * 8) as f64 / seconds).sum();
    assert!((bits / rate.0 as f64 - 1.0).abs() < 0.005, "the link carries {bits} bit/s");
    let asked: Vec<TwoFlow> = flows
        .iter()
        .zip(&got)
        .map(|(flow, got)| TwoFlow {
            offered: got.0 as f64 / seconds,
            cost: flow.cost as f64,
            bits: (flow.wire * 8) as f64,
        })
        .collect();
    let exact = max_min_of_two(useful, rate.0 as f64, &asked);
    let got: Vec<f64> = got.iter().map(|got| got.1 as f64 / seconds).collect();
    within(&got, &exact, 0.01);
}
