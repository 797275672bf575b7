//! The rules of admission one by one, with fair rate and priority load chosen by hand.

use crate::admit::{C, Fluid, config, flow, hash, ms};
use evenkeel_core::Prefix;
use evenkeel_core::admit::{
    AdmissionConfig, BudgetConfig, Cause, EccmConfig, EmergencyConfig, EmergencyRule, Event, Flush,
    FlushConfig, Measure, OWN_BURST, PerUserConfig, Pin, PinningConfig, Removal, RouterListsConfig,
    Rule, SecondLinkConfig, SecondLinkPolicy, Verdict,
};
use evenkeel_core::flow_table::PackedFlow;
use evenkeel_core::{BitRate, Bytes, FlowKey, Nanos, Ppm, Reason};

const LOW: Verdict = Verdict::Refuse(Reason::FairRateLow);

fn fluid(change: impl FnOnce(&mut AdmissionConfig)) -> Fluid {
    let mut config = config();
    change(&mut config);
    Fluid::new(config)
}

#[test]
fn thresholds_are_strict() {
    let mut link = fluid(|c| c.budget.on = false);
    for (fair, load, expected) in [
        (500_000, 700_000, Verdict::Pass),
        (499_984, 700_000, LOW),
        (500_000, 700_020, Verdict::Refuse(Reason::PriorityLoadHigh)),
        (499_984, 700_020, LOW),
        (10_000_000, 0, Verdict::Pass),
    ] {
        (link.fair, link.load) = (BitRate(fair), Ppm(load));
        link.until(link.now + ms(1_000));
        let n = link.admission.view().packets as u16;
        assert_eq!(link.packet(flow(n, n), false), expected, "FR {fair} PL {load}");
    }
}

#[test]
fn estimates_come_at_their_instants_and_on_a_silent_link() {
    let mut link = fluid(|_| ());
    link.fair = BitRate(100_000);
    link.load = Ppm::percent(10);
    assert_eq!(link.admission.next_tick(), ms(50));
    link.until(ms(49));
    assert_eq!(link.admission.view().priority_load, Ppm::ZERO);
    link.until(ms(50));
    assert_eq!(link.admission.view().priority_load, Ppm::percent(10));
    link.until(ms(499));
    assert_eq!(link.admission.view().fair_rate, C);
    link.until(ms(500));
    assert_eq!(link.admission.view().fair_rate, BitRate(100_000));
    assert_eq!(link.admission.view().congested, Some(Cause::FairRate));
    // Nothing arrives; the link opens by itself.
    link.fair = C;
    link.until(ms(1_000));
    assert_eq!(link.admission.view().congested, None);
    // A caller that comes late gets one estimate over the longer interval, and the old rhythm after
    // it.
    link.until(ms(1_000));
    let late = Nanos(2_234_567_890);
    let observed = evenkeel_core::admit::Observed { idle: late, ..Default::default() };
    link.admission.tick(late, &observed);
    assert_eq!(link.admission.next_tick(), ms(2_250));
}

#[test]
fn listed_flows_pass_until_they_are_silent_for_too_long() {
    let mut link = fluid(|c| c.flow_timeout = ms(2_000));
    assert_eq!(link.packet(flow(1, 1), false), Verdict::Pass);
    link.close();
    assert_eq!(link.packet(flow(1, 1), false), Verdict::Pass);
    assert_eq!(link.packet(flow(1, 2), false), LOW);
    for n in 0..10 {
        let at = link.now + ms(1_990);
        assert_eq!(link.packet_at(at, flow(1, 1), false), Verdict::Pass, "packet {n}");
    }
    let at = link.now + ms(2_010);
    assert_eq!(link.packet_at(at, flow(1, 1), false), LOW);
    let said = link.admission.explain(link.now, &flow(1, 1), hash(&flow(1, 1)));
    let events: Vec<Event> = said.decisions.iter().map(|decision| decision.event).collect();
    let expected = [
        Event::Admitted(Rule::Open),
        Event::Removed(Removal::Silent),
        Event::Refused(Reason::FairRateLow),
    ];
    assert_eq!(events, expected);
    let last = said.decisions[2];
    assert_eq!((last.measure, last.value, last.threshold), (Measure::FairRate, 250_000, 500_000));
    assert_eq!(
        last.to_string().split(": ").nth(1),
        Some("fair_rate_low (fair rate 250 kbit/s, threshold 500 kbit/s)")
    );
    assert_eq!(link.admission.view().removed[Removal::Silent as usize], 1);
}

#[test]
fn a_full_list_is_congestion() {
    let mut link = fluid(|c| (c.flows, c.budget.on) = (3, false));
    for n in 0..3 {
        assert_eq!(link.packet(flow(n, n), false), Verdict::Pass);
        assert_eq!(link.packet(flow(n, n), false), Verdict::Pass);
    }
    assert_eq!(link.packet(flow(9, 9), false), Verdict::Refuse(Reason::FlowListFull));
    let said = link.admission.explain(link.now, &flow(9, 9), hash(&flow(9, 9)));
    assert_eq!((said.decisions[0].value, said.decisions[0].threshold), (3, 3));
    // One is silent for the flow time-out: its place goes to a newcomer, and only its place.
    for second in (4..=24).step_by(4) {
        for n in 1..3 {
            assert_eq!(link.packet_at(ms(second * 1_000), flow(n, n), false), Verdict::Pass);
        }
    }
    assert_eq!(link.packet(flow(9, 9), false), Verdict::Pass);
    assert_eq!(link.packet(flow(8, 8), false), Verdict::Refuse(Reason::FlowListFull));
}

#[test]
fn probation_gives_places_back_long_before_the_flow_timeout() {
    let mut link = fluid(|c| (c.flows, c.budget.on) = (10, false));
    for n in 0..10 {
        assert_eq!(link.packet(flow(n, n), false), Verdict::Pass);
    }
    assert_eq!(link.packet(flow(0, 0), false), Verdict::Pass, "the first one comes again");
    assert_eq!(link.packet(flow(50, 50), false), Verdict::Refuse(Reason::FlowListFull));
    assert_eq!(link.packet_at(ms(1_100), flow(50, 50), false), Verdict::Pass);
    assert!(link.protects(flow(0, 0)) && link.protects(flow(50, 50)));
    assert_eq!(
        link.admission.view().removed[Removal::OnePacket as usize],
        5,
        "half of the places are free again"
    );
    // On a list with room slow flows keep their places.
    let mut roomy = fluid(|_| ());
    assert_eq!(roomy.packet(flow(1, 1), false), Verdict::Pass);
    roomy.close();
    assert_eq!(roomy.packet_at(ms(15_000), flow(1, 1), false), Verdict::Pass);
}

#[test]
fn the_routers_own_control_packets_need_no_admission_up_to_a_small_share() {
    let mut link = fluid(|c| c.global_list = true);
    link.close();
    let ping = FlowKey { protocol: 1, source_port: 0, destination_port: 0, ..flow(1, 1) };
    let passed = (0..100).filter(|_| link.own_packet(ping) == Verdict::Pass).count();
    assert_eq!(passed as u64, OWN_BURST.0 / 100);
    // 1 % of 10 Mbit/s are 125 packets of 100 bytes in a second.
    let mut passed = 0;
    for n in 0..10_000u64 {
        link.until(link.now + Nanos(100_000));
        passed +=
            u64::from(link.own_packet(FlowKey { source_port: n as u16, ..ping }) == Verdict::Pass);
    }
    assert!((124..=126).contains(&passed), "{passed}");
    assert_eq!(link.lists.len(), 0, "no place on the GPFL");
    let strict = AdmissionConfig { bypass_control: false, ..link.admission.config().clone() };
    link.admission.set(link.now, strict).unwrap();
    assert_eq!(link.own_packet(ping), LOW);
}

#[test]
fn transit_is_ordinary_traffic_whatever_its_protocol_and_port() {
    let mut link = fluid(|c| c.global_list = true);
    link.close();
    let [bfd, bgp, ping] = [(17, 3784), (6, 179), (1, 0)]
        .map(|(protocol, destination_port)| FlowKey { protocol, destination_port, ..flow(1, 1) });
    for transit in [bfd, bgp, ping, FlowKey { source_port: 179, ..bgp }] {
        assert!(transit.is_control());
        assert_eq!(link.packet(transit, false), LOW, "{transit}");
    }
    assert_eq!(link.admission.view().passed[Rule::Control as usize], 0);
    // On an open link it is listed as others are, and the GPFL learns it as any stream.
    link.fair = C;
    link.until(link.now + ms(1_000));
    assert_eq!(link.packet(bfd, false), Verdict::Pass);
    assert!(link.protects(bfd));
}

#[test]
fn emergency_flows_enter_a_closed_link() {
    let prefix = |addr: &str, len| Prefix::new(addr.parse().unwrap(), len).unwrap();
    let lists = |rule, fair| EmergencyConfig {
        sources: vec![prefix("10.0.7.0", 24)],
        destinations: vec![prefix("10.9.9.9", 32)],
        rule,
        min_fair_rate: Ppm(fair),
        max_priority_load: Ppm::percent(80),
    };
    let mut link = fluid(|c| c.emergency = lists(EmergencyRule::Bypass, 0));
    link.close();
    let emergency = flow(0x0701, 5);
    assert_eq!(link.packet(emergency, false), Verdict::Pass);
    assert_eq!(link.packet(flow(0x0801, 5), false), LOW);
    let called = FlowKey { destination: "10.9.9.9".parse().unwrap(), ..flow(0x0801, 5) };
    assert_eq!(link.packet(called, false), Verdict::Pass);
    assert!(!link.protects(emergency), "no state is kept");
    assert!(link.admission.explain(link.now, &emergency, hash(&emergency)).emergency);
    // The other rule: thresholds of their own. FR is half of min_FR; theirs is a quarter of it.
    let mut config = link.admission.config().clone();
    config.emergency = lists(EmergencyRule::Thresholds, 12_500);
    link.admission.set(link.now, config.clone()).unwrap();
    assert_eq!(link.packet(emergency, false), Verdict::Pass);
    assert!(link.protects(emergency), "they enter the list");
    assert_eq!(link.packet(flow(0x0801, 5), false), LOW);
    config.emergency = lists(EmergencyRule::Thresholds, 25_001);
    link.admission.set(link.now, config).unwrap();
    assert_eq!(link.packet(flow(0x0702, 5), false), LOW, "below their own threshold as well");
}

/// The worked timeline: T_FR 1 s, max_accept_delay 2 s, closed at 0.
#[test]
fn eccm_keeps_its_timeline() {
    let mut link = fluid(|c| {
        c.fair_rate_interval = ms(1_000);
        c.eccm = EccmConfig { on: true, max_accept_delay: ms(2_000), ..EccmConfig::default() };
    });
    link.fair = BitRate(400_000);
    // Estimates at 1 s, 2 s, ...: the link closes at 1 s, which is 0 in the timeline.
    let zero = ms(1_000);
    let at = |t: u64| zero + ms(t);
    assert_eq!(link.packet_at(at(1_999), flow(1, 1), false), LOW);
    let stream = flow(1, 1);
    assert_eq!(
        link.packet_at(at(2_001), stream, false),
        Verdict::Pass,
        "opens for the first one after 2 s"
    );
    let start = at(2_001);
    assert_eq!(link.admission.view().forced_until, Some(start + ms(500)));
    assert_eq!(link.admission.view().fair_rate, BitRate(500_000), "FR = min_FR");
    let elastic = flow(2, 2);
    assert_eq!(link.packet_at(at(2_300), elastic, true), Verdict::Pass);
    let late = flow(3, 3);
    assert_eq!(link.packet_at(start + ms(499), late, true), Verdict::Pass);
    assert_eq!(
        link.packet_at(start + ms(500), flow(4, 4), false),
        LOW,
        "estimated at once, closed"
    );
    assert!(link.admission.view().forced_until.is_none());
    // They stay until T_FR after the opening, then those that turned elastic go.
    assert_eq!(link.packet_at(start + ms(999), elastic, true), Verdict::Pass);
    link.until(start + ms(1_000));
    assert!(link.protects(stream) && !link.protects(elastic) && !link.protects(late));
    assert_eq!(link.admission.view().removed[Removal::Eccm as usize], 2);
    assert_eq!(link.packet(elastic, true), LOW);
    // The clock restarted at the estimate that ended the window: the next opening is 2 s later.
    assert_eq!(link.packet_at(start + ms(2_499), elastic, true), LOW);
    assert_eq!(link.packet_at(start + ms(2_500), elastic, true), Verdict::Pass);
    assert_eq!(link.admission.view().openings, 2);
    // T_FR restarted there too: 2.5, then every second.
    link.until(start + ms(3_000));
    assert_eq!(link.admission.view().congested, Some(Cause::FairRate));
    link.fair = C;
    link.until(start + ms(2_500 + 500 + 1_000) - Nanos(1));
    assert_eq!(link.admission.view().congested, Some(Cause::FairRate));
    link.until(start + ms(2_500 + 500 + 1_000));
    assert_eq!(link.admission.view().congested, None);
}

#[test]
fn eccm_leaves_a_link_closed_by_its_priority_load_alone() {
    let mut link = fluid(|c| {
        c.eccm = EccmConfig { on: true, max_accept_delay: ms(100), ..EccmConfig::default() }
    });
    link.load = Ppm::percent(80);
    link.fair = BitRate(100_000);
    link.until(ms(2_000));
    assert_eq!(link.packet(flow(1, 1), false), Verdict::Refuse(Reason::PriorityLoadHigh));
    // FR was forced, and still: protecting accepted streams wins.
    assert_eq!(link.admission.view().openings, 1);
}

#[test]
fn a_full_eccm_table_ends_the_window() {
    let mut link =
        fluid(|c| c.eccm = EccmConfig { on: true, max_accept_delay: ms(1_000), table: 3 });
    link.fair = BitRate(400_000);
    let at = ms(1_600);
    for n in 0..3 {
        assert_eq!(link.packet_at(at, flow(n, n), true), Verdict::Pass);
    }
    assert_eq!(link.packet_at(at, flow(3, 3), true), LOW);
    link.until(at + ms(500));
    assert_eq!(link.admission.view().protected, 0, "all three had turned elastic");
    assert_eq!(link.packet_at(at + ms(999), flow(3, 3), true), LOW);
    assert_eq!(link.packet_at(at + ms(1_000), flow(3, 3), true), Verdict::Pass);
}

#[test]
fn the_global_list_carries_streams_over_to_a_congested_link() {
    let mut primary = fluid(|c| c.global_list = true);
    let mut backup = fluid(|c| c.global_list = true);
    backup.lists = evenkeel_core::admit::RouterLists::new(
        RouterListsConfig { k_add: 3, ..RouterListsConfig::default() },
        1,
    )
    .unwrap();
    backup.close();
    let (stream, elastic, short) = (flow(1, 1), flow(2, 2), flow(3, 3));
    let now = backup.now;
    primary.until(now);
    std::mem::swap(&mut primary.lists, &mut backup.lists);
    for n in 0..3 {
        assert_eq!(primary.packet(stream, false), Verdict::Pass);
        assert_eq!(primary.packet(elastic, n == 2), Verdict::Pass);
    }
    assert_eq!(
        primary.packet(elastic, false),
        Verdict::Pass,
        "one priority packet after an elastic one"
    );
    for _ in 0..2 {
        assert_eq!(primary.packet(short, false), Verdict::Pass);
    }
    primary.admission.link_down(now);
    std::mem::swap(&mut primary.lists, &mut backup.lists);
    assert_eq!(backup.packet(stream, false), Verdict::Pass);
    assert!(backup.protects(stream));
    assert_eq!(backup.packet(elastic, false), LOW);
    assert_eq!(backup.packet(short, false), LOW, "two packets are not K_add");
    assert_eq!(backup.admission.view().passed[Rule::GlobalList as usize], 1);
    // Entries expire.
    assert_eq!(backup.packet_at(now + ms(20_100), stream, false), LOW);
    // The failed link keeps its list for a fast repair, not for ever.
    primary.until(now + ms(10_000));
    primary.admission.link_up(primary.now, &Default::default());
    assert!(primary.protects(stream));
    primary.admission.link_down(primary.now);
    let nothing = Default::default();
    primary.admission.link_up(primary.now + ms(20_001), &nothing);
    assert_eq!(primary.admission.view().protected, 0);
}

#[test]
fn no_user_starts_more_flows_than_its_share() {
    let puf = |flows, users| PerUserConfig { on: true, flows, users, ..PerUserConfig::default() };
    let mut link = fluid(|c| (c.per_user, c.fair_rate_interval) = (puf(2, 100), ms(4_000)));
    let quota = Verdict::Refuse(Reason::UserQuota);
    for cycle in 0..10u64 {
        for attempt in 0..20u16 {
            let at = ms(cycle * 4_000 + 10 + u64::from(attempt) * 100);
            let port = cycle as u16 * 100 + attempt;
            // One user cycles ports; another sends one flow per cycle.
            let expected = if attempt < 2 { Verdict::Pass } else { quota };
            assert_eq!(link.packet_at(at, flow(1, port), false), expected);
            if attempt == 10 {
                assert_eq!(link.packet(flow(2, port), false), Verdict::Pass);
            }
            assert_eq!(
                link.packet(flow(1, cycle as u16 * 100), false),
                Verdict::Pass,
                "listed flows are free"
            );
        }
        let users = link.admission.view().users;
        assert_eq!(users.iter().map(|user| user.flows).collect::<Vec<_>>(), [2, 1]);
    }
    assert_eq!(link.admission.view().admissions, 30);
    // More users than can be told apart: nobody gets more than N, also if the list has room again
    // in between.
    let mut crowded = fluid(|c| (c.per_user, c.budget.on) = (puf(2, 3), false));
    let mut admitted = [0; 40];
    for n in 0..40u16 * 8 {
        let user = n % 40;
        let at = ms(u64::from(n));
        admitted[usize::from(user)] +=
            u32::from(crowded.packet_at(at, flow(user, n), false) == Verdict::Pass);
    }
    assert!(admitted.iter().all(|flows| *flows <= 2));
    assert_eq!(
        admitted.iter().filter(|flows| **flows == 2).count(),
        40,
        "shared counters are 1 024"
    );
    // A prefix is a user.
    let mut homes = fluid(|c| {
        c.per_user = PerUserConfig { on: true, ipv4_prefix: 24, ..PerUserConfig::default() };
    });
    let verdicts: Vec<_> = (1..5).map(|host| homes.packet(flow(0x0100 + host, 1), false)).collect();
    assert_eq!(verdicts, [Verdict::Pass, Verdict::Pass, quota, quota]);
}

/// Ten elastic and ten streaming flows, listed at 0; the link closes.
fn crowded(kind: Flush) -> Fluid {
    let mut link = fluid(|c| {
        c.flushing = FlushConfig { most_active: 3, ..FlushConfig::new(kind) };
        c.budget.on = false;
    });
    // The flows with even numbers above 14 have most waiting.
    link.backlog =
        |flow| Bytes(if flow.source_port.is_multiple_of(2) { flow.source_port.into() } else { 0 });
    link.fair = BitRate(250_000);
    for n in 0..20 {
        assert_eq!(link.packet(flow(n, n), n >= 10), Verdict::Pass);
    }
    link
}

/// Which of the twenty are still listed.
fn listed(link: &Fluid) -> Vec<u16> {
    (0..20).filter(|n| link.protects(flow(*n, *n))).collect()
}

/// Lets the flows go on as they are until `to`.
fn go_on(link: &mut Fluid, to: Nanos) {
    while link.now < to {
        let next = (link.now + ms(400)).min(to);
        link.until(next);
        for n in listed(link) {
            let _ = link.packet(flow(n, n), n >= 10);
        }
    }
}

#[test]
fn each_of_the_flushing_family_removes_what_it_says() {
    let streams: Vec<u16> = (0..10).collect();
    let without = |gone: &[u16]| (0..20).filter(|n| !gone.contains(n)).collect::<Vec<u16>>();
    for (kind, left) in [
        (Flush::All, vec![]),
        (Flush::Efm, streams.clone()),
        (Flush::Efmp, streams.clone()),
        (Flush::Raef, streams.clone()),
        (Flush::Rbaef, streams.clone()),
        (Flush::Rpaef, streams),
        (Flush::Ramaf, without(&[18, 16, 14])),
        (Flush::Rmaef, without(&[18, 16, 14])),
    ] {
        let mut link = crowded(kind);
        go_on(&mut link, ms(5_100));
        // A flow that is listed for less than the active time stays with RAEF and its kin.
        assert_eq!(
            link.packet(flow(100, 100), false),
            Verdict::Pass,
            "{kind:?}: triggers and is admitted"
        );
        assert_eq!(listed(&link), left, "{kind:?}");
        let view = link.admission.view();
        assert_eq!(
            (view.clearings, view.congested),
            (1, None),
            "{kind:?}: open until the next estimate"
        );
        assert_eq!(view.removed[Removal::Flushed as usize], 20 - left.len() as u64);
        // Open until the next estimate, then closed; no second clearing before T_clear.
        link.until(ms(6_000));
        assert_eq!(link.packet(flow(101, 101), false), LOW, "{kind:?}");
        assert_eq!(link.packet_at(ms(10_099), flow(101, 101), false), LOW, "{kind:?}");
        assert_eq!(
            link.packet(flow(100, 100), true),
            Verdict::Pass,
            "there is an elastic flow again"
        );
        assert_eq!(link.packet_at(ms(10_150), flow(101, 101), false), Verdict::Pass, "{kind:?}");
        assert_eq!(link.admission.view().clearings, 2);
    }
    let mut young = crowded(Flush::Raef);
    go_on(&mut young, ms(1_000));
    assert_eq!(young.packet(flow(100, 100), false), LOW, "nothing is old enough: nothing opens");
    assert_eq!(young.admission.view().clearings, 0);
    assert_eq!(listed(&young).len(), 20);
}

#[test]
fn blocked_flows_wait_and_awaited_flows_go_first() {
    let mut blocking = crowded(Flush::Rbaef);
    go_on(&mut blocking, ms(5_100));
    assert_eq!(blocking.packet(flow(100, 100), false), Verdict::Pass);
    blocking.fair = C;
    let blocked = Verdict::Refuse(Reason::FlowBlocked);
    assert_eq!(blocking.packet(flow(15, 15), true), blocked, "although the link is open");
    assert_eq!(blocking.packet_at(ms(5_599), flow(15, 15), true), blocked);
    assert_eq!(blocking.packet_at(ms(5_600), flow(15, 15), true), Verdict::Pass);

    let mut awaiting = crowded(Flush::Ramaf);
    go_on(&mut awaiting, ms(5_100));
    assert_eq!(awaiting.packet(flow(100, 100), false), Verdict::Pass);
    awaiting.fair = C;
    let others =
        (200..1_000).filter(|n| awaiting.packet(flow(*n, *n), false) == Verdict::Pass).count();
    assert!((8..50).contains(&others), "{others} of 800 with a chance of 3 %");
    assert_eq!(
        awaiting.admission.view().refused[Reason::PriorityAccess.index()],
        800 - others as u64
    );
    assert_eq!(awaiting.packet(flow(16, 16), true), Verdict::Pass);
    assert_eq!(awaiting.admission.view().passed[Rule::PriorityAccess as usize], 1);
    // The time for it is over.
    assert_eq!(awaiting.packet_at(ms(6_100), flow(2_000, 2), false), Verdict::Pass);
    assert_eq!(awaiting.admission.view().passed[Rule::Open as usize], 21);
}

#[test]
fn flows_leave_for_the_second_link() {
    for (policy, leaves) in [
        (SecondLinkPolicy::Newest, 100),
        (SecondLinkPolicy::MostActive, 18),
        (SecondLinkPolicy::Oldest, 0),
    ] {
        let mut link = fluid(|c| {
            c.budget.on = false;
            c.second_link =
                SecondLinkConfig { policy, ..SecondLinkConfig::new(BitRate::from_mbps(1)) };
        });
        link.backlog = |flow| {
            Bytes(if flow.source_port.is_multiple_of(2) { flow.source_port.into() } else { 0 })
        };
        for n in 0..20 {
            assert_eq!(link.packet_at(ms(u64::from(n) * 40), flow(n, n), n >= 10), Verdict::Pass);
        }
        link.close();
        let first = link.packet(flow(100, 100), false);
        let newest = policy == SecondLinkPolicy::Newest;
        assert_eq!(first, if newest { Verdict::Divert } else { Verdict::Pass }, "{policy:?}");
        assert_eq!(link.packet(flow(leaves, leaves), false), Verdict::Divert, "{policy:?}");
        assert!(!link.protects(flow(leaves, leaves)));
        assert_eq!(link.admission.view().diverted, 1);
        assert_eq!(listed(&link).len(), if newest { 20 } else { 19 });
        // 90 % of 1 Mbit/s over T_FR are 56 250 bytes; then it takes no more flows, and keeps those
        // it has.
        for _ in 0..600 {
            assert_eq!(link.packet(flow(leaves, leaves), false), Verdict::Divert);
        }
        assert_eq!(link.packet(flow(300, 300), false), LOW, "{policy:?}");
        link.until(link.now + ms(500));
        assert_eq!(link.packet(flow(300, 300), false), LOW, "the interval before was full");
        link.until(link.now + ms(500));
        assert_ne!(link.packet(flow(300, 300), false), LOW);
        assert_eq!(link.packet(flow(leaves, leaves), false), Verdict::Divert);
    }
}

#[test]
fn pinned_flows_stay_and_new_ones_go_around() {
    let pinning = |c: &mut AdmissionConfig| {
        c.pinning = PinningConfig { on: true, ..PinningConfig::default() }
    };
    let mut best = fluid(pinning);
    let (key, hash) = (PackedFlow::new(&flow(1, 1)), hash(&flow(1, 1)));
    assert_eq!(best.admission.pinned(best.now, hash, &key, 64), None);
    assert_eq!(best.packet(flow(1, 1), false), Verdict::Pass);
    assert_eq!(best.admission.pinned(best.now, hash, &key, 64), Some(Pin { next_hop: 1, ttl: 64 }));
    assert_eq!(best.admission.pinned(best.now, hash, &key, 63), None, "another TTL is a loop");
    assert_eq!((best.admission.path_cost(best.now, 5), best.admission.takes_rerouted()), (5, true));
    // FR between min_FR and twice that: open to its own, not to others.
    best.fair = BitRate(1_000_000);
    best.until(ms(500));
    assert!(!best.admission.takes_rerouted());
    assert_eq!(best.admission.view().congested, None);
    best.fair = BitRate(1_000_016);
    best.until(ms(1_000));
    assert!(best.admission.takes_rerouted());
    // Congested: ten times the cost, held for three intervals after the last estimate that says so.
    best.fair = BitRate(400_000);
    best.until(ms(1_500));
    assert_eq!(
        (best.admission.path_cost(best.now, 5), best.admission.takes_rerouted()),
        (50, false)
    );
    assert!(best.admission.pinned(best.now, hash, &key, 64).is_some(), "flows that run stay");
    best.fair = C;
    best.until(ms(2_000));
    assert!(best.admission.takes_rerouted());
    // The last estimate (of the load, with FR still low) that said congested came at 1.95 s.
    assert_eq!(best.admission.path_cost(ms(1_950 + 1_499), 5), 50);
    assert_eq!(best.admission.path_cost(ms(1_950 + 1_500), 5), 5);
    assert_eq!(best.admission.pinned(ms(25_000), hash, &key, 64), None, "expired");
    // Off: nothing.
    let mut config = best.admission.config().clone();
    config.pinning.on = false;
    best.admission.set(best.now, config).unwrap();
    assert_eq!(best.admission.pinned(best.now, hash, &key, 64), None);
    assert!(!best.admission.takes_rerouted());
}

#[test]
fn first_packets_have_a_budget() {
    let at_once = BudgetConfig { burst: ms(50), ..BudgetConfig::default() };
    let mut link = fluid(|c| c.budget = at_once);
    link.load = Ppm::percent(30);
    link.until(ms(50));
    // (0.7 - 0.3) * 10 Mbit/s * 50 ms / 8 = 25 000 bytes of 100 each.
    let admitted = (0..400).filter(|n| link.packet(flow(*n, *n), false) == Verdict::Pass).count();
    assert_eq!(admitted, 250);
    assert_eq!(link.admission.view().refused[Reason::FirstPacketBudget.index()], 150);
    let said = link.admission.explain(link.now, &flow(399, 399), hash(&flow(399, 399)));
    assert_eq!((said.decisions[0].value, said.decisions[0].threshold), (25_000, 25_000));
    assert_eq!(link.packet(flow(3, 3), false), Verdict::Pass, "listed flows pay nothing");
    link.until(ms(100));
    assert_eq!(link.packet(flow(399, 399), false), Verdict::Pass);
    assert_eq!(link.admission.view().accept_delay.count(), 251);
    let config = AdmissionConfig {
        budget: BudgetConfig { on: false, ..BudgetConfig::default() },
        ..link.admission.config().clone()
    };
    link.admission.set(link.now, config).unwrap();
    assert!((400..800).all(|n| link.packet(flow(n, n), false) == Verdict::Pass));
}

#[test]
fn unlisted_flows_are_asked_again() {
    let mut link = fluid(|c| (c.listing_chance, c.budget.on) = (Ppm::percent(10), false));
    for n in 0..900 {
        assert_eq!(link.packet(flow(n, n), false), Verdict::Pass);
    }
    let listed = link.admission.view().protected;
    assert!((60..130).contains(&listed), "{listed} of 900 with a chance of 10 %");
}

#[test]
fn acceptance_delay_is_told_from_the_first_packet_on() {
    let mut link = fluid(|_| ());
    link.close();
    let waits = flow(1, 1);
    let from = link.now;
    for n in 0..50 {
        assert_eq!(link.packet_at(from + ms(n * 10), waits, false), LOW);
    }
    assert_eq!(link.admission.explain(link.now, &waits, hash(&waits)).waiting_since, Some(from));
    link.until(from + ms(500));
    link.fair = C;
    link.until(from + ms(1_000));
    assert_eq!(link.packet(waits, false), Verdict::Pass);
    let delay = link.admission.view().accept_delay.quantile(1.0).unwrap();
    assert!(delay.0.abs_diff(ms(1_000).0) < ms(1_000).0 / 32, "{delay}");
    let said = link.admission.explain(link.now, &waits, hash(&waits));
    assert_eq!((said.refused, said.waiting_since, said.decisions.len()), (50, None, 2));
    assert_eq!(said.decisions[0].count, 50);
    assert_eq!((said.decisions[0].first, said.decisions[0].last), (from, from + ms(490)));
}

#[test]
fn classes_follow_the_queues_with_a_window() {
    let mut link = fluid(|_| ());
    let view = |link: &Fluid| {
        let view = link.admission.view();
        (view.streaming, view.elastic, view.class_flips)
    };
    assert_eq!(link.packet(flow(1, 1), false), Verdict::Pass);
    assert_eq!(view(&link), (1, 0, 0));
    assert_eq!(link.packet(flow(1, 1), true), Verdict::Pass);
    assert_eq!(view(&link), (0, 1, 1));
    assert_eq!(link.packet_at(ms(400), flow(1, 1), false), Verdict::Pass);
    assert_eq!(view(&link), (0, 1, 1), "one priority packet does not make a stream");
    assert_eq!(link.packet_at(ms(600), flow(1, 1), false), Verdict::Pass);
    assert_eq!(view(&link), (1, 0, 2));
    let flows: Vec<_> = link.admission.flows(link.now).collect();
    assert_eq!(flows.len(), 1);
    assert!(!flows[0].1.elastic && !flows[0].1.probation && flows[0].1.pin.is_none());
    assert_eq!(BudgetConfig::default().flood_share, Ppm::percent(3));
}

#[test]
fn of_a_large_list_the_oldest_leaves_exactly_and_the_most_active_to_its_bound() {
    for policy in [SecondLinkPolicy::MostActive, SecondLinkPolicy::Oldest] {
        let mut link = fluid(|c| {
            (c.flows, c.budget.on, c.probation) = (20_100, false, Nanos::ZERO);
            c.second_link =
                SecondLinkConfig { policy, ..SecondLinkConfig::new(BitRate::from_mbps(1)) };
        });
        link.backlog = |flow| Bytes(hash(flow) >> 20);
        let mut all: Vec<_> = (0..20_000_u16).map(|n| flow(n / 100, n % 100)).collect();
        for (n, key) in (0..).zip(&all) {
            assert_eq!(link.packet_at(Nanos::from_micros(100 * n), *key, false), Verdict::Pass);
        }
        link.close();
        for n in 0..50 {
            let newcomer = flow(500, n);
            assert_eq!(link.packet(newcomer, false), Verdict::Pass);
            all.push(newcomer);
        }
        assert_eq!(link.admission.view().diverted, 50);
        let listed: std::collections::BTreeSet<_> =
            link.admission.flows(link.now).map(|(key, _)| key).collect();
        if policy == SecondLinkPolicy::Oldest {
            assert!(all[..50].iter().all(|key| !listed.contains(key)), "the first fifty");
        }
        // 4,096 places of 20,100 hold a flow of the most active 0.17 % but for one time in a
        // thousand.
        all.sort_by_key(|key| core::cmp::Reverse(hash(key) >> 20));
        let ranks: Vec<_> = (0..all.len()).filter(|at| !listed.contains(&all[*at])).collect();
        assert_eq!(ranks.len(), 50, "{policy:?}");
        if policy == SecondLinkPolicy::MostActive {
            assert!(ranks[49] < 34 + 50, "{ranks:?}");
        }
    }
}
