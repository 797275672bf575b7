//! Whatever the scenario: no packet disappears, and the same seed gives the same bytes.

use std::fmt::Write as _;
use std::path::Path;

use evenkeel_report::csv;
use evenkeel_scenario::Scenario;
use evenkeel_sim::{Outcome, SimOptions};
use proptest::prelude::*;

const DISCIPLINES: [&str; 5] = [
    "kind = \"fifo\"\nlimit = 20",
    "kind = \"wfq-altq\"\nselect = \"class\"\ndrop = \"tail\"\nlimit = 30\nweight = { a = 10, b = \
     300 }",
    "kind = \"wfq-altq\"\nselect = \"hash-full\"\nqueues = 16\ndrop = \"longest\"\nhigh_water = \
     \"20000B\"",
    "kind = \"lct\"\nlimit = 25\nx_delay = { a = \"300us\", b = \"0us\" }\nmodule2 = true",
    "kind = \"lct\"\nlimit = 60\nx_delay = { a = \"1ms\", b = \"50us\" }\nmulti_backlog = \
     \"hold\"\ntimer_tick = \"10ms\"",
];

const KINDS: [&str; 7] = [
    "kind = \"cbr\"\nrate = \"8Mbit/s\"\njitter = 0.3",
    "kind = \"poisson\"\nrate = \"12Mbit/s\"",
    "kind = \"on-off\"\nrate = \"20Mbit/s\"\nmean_on = \"10ms\"\nmean_off = \"20ms\"",
    "kind = \"greedy\"\nrate = \"15Mbit/s\"",
    "kind = \"flows\"\nrate = \"9Mbit/s\"\nflow_size = \"8000B\"\ndistribution = \"pareto\"\nshape \
     = 1.3",
    "kind = \"cbr\"\nrate = \"1Mbit/s\"\nflows = 7",
    "kind = \"tcp\"\ncongestion = \"reno\"",
];

#[derive(Clone, Debug)]
struct Link {
    rate_mbps: Option<u64>,
    slots: u32,
    whole: bool,
    dequeue_ns: u32,
    discipline: usize,
}

#[derive(Clone, Debug)]
struct Wire {
    rate_mbps: Option<u64>,
    queue: u32,
    delay_us: u32,
    jitter_us: u32,
    loss: f64,
    reorder: f64,
}

#[derive(Clone, Debug)]
struct Flow {
    back: bool,
    kind: usize,
    size: u32,
    ipv6: bool,
    marked: bool,
}

fn link() -> impl Strategy<Value = Link> {
    let rate = prop_oneof![Just(None), (1u64..40).prop_map(Some)];
    (rate, 1u32..140, any::<bool>(), prop_oneof![Just(0u32), Just(4_500)], 0..DISCIPLINES.len())
        .prop_map(|(rate_mbps, slots, whole, dequeue_ns, discipline)| Link {
            rate_mbps,
            slots,
            whole,
            dequeue_ns,
            discipline,
        })
}

fn wire() -> impl Strategy<Value = Wire> {
    let rate = prop_oneof![Just(None), (2u64..50).prop_map(Some)];
    let part = || prop_oneof![Just(0.0), 0.0..0.3f64];
    (rate, 1u32..50, 0u32..20_000, 0u32..5_000, part(), part()).prop_map(
        |(rate_mbps, queue, delay_us, jitter_us, loss, reorder)| Wire {
            rate_mbps,
            queue,
            delay_us,
            jitter_us,
            loss,
            reorder,
        },
    )
}

fn flow() -> impl Strategy<Value = Flow> {
    (any::<bool>(), 0..KINDS.len(), 200u32..1500, any::<bool>(), any::<bool>())
        .prop_map(|(back, kind, size, ipv6, marked)| Flow { back, kind, size, ipv6, marked })
}

/// Hosts left and right of a row of routers.
fn text(links: &[Link], wires: &[Wire], flows: &[Flow], seed: u64) -> String {
    let routers = links.len();
    let mut text = format!(
        "name = \"random\"\ntitle = \"random\"\nseed = {seed}\nsample = \"50ms\"\nsettle = \
         \"0s\"\nduration = \"200ms\"\n\
         [[host]]\nname = \"left\"\n[[host]]\nname = \"right\"\n"
    );
    let node = |n: usize| match n {
        0 => "left".to_owned(),
        n if n > routers => "right".to_owned(),
        n => format!("r{n}"),
    };
    for (n, link) in links.iter().enumerate() {
        let Link { rate_mbps, slots, whole, dequeue_ns, discipline } = link;
        let rate = rate_mbps.map(|rate| format!("rate = \"{rate}Mbit/s\"\n")).unwrap_or_default();
        let refill = if *whole { "whole" } else { "any" };
        let _ = write!(
            text,
            "[[router]]\nname = \"{}\"\n[[router.config.class]]\nname = \
             \"a\"\n[[router.config.class]]\nname = \"b\"\n\
             match = [{{ dscp = [46] }}]\n[[router.config.link]]\nport = \"{}\"\n{rate}ring = {{ \
             slots = {slots}, refill = \"{refill}\" }}\n\
             dequeue_time = \"{dequeue_ns}ns\"\n[router.config.link.discipline]\n{}\n",
            node(n + 1),
            node(n + 2),
            DISCIPLINES[*discipline]
        );
    }
    for (n, wire) in wires.iter().take(routers + 1).enumerate() {
        let Wire { rate_mbps, queue, delay_us, jitter_us, loss, reorder } = wire;
        let rate = rate_mbps.map(|rate| format!("rate = \"{rate}Mbit/s\"\n")).unwrap_or_default();
        let _ = write!(
            text,
            "[[wire]]\nends = [\"{}\", \"{}\"]\n{rate}queue = {queue}\ndelay = \
             \"{delay_us}us\"\njitter = \"{jitter_us}us\"\n\
             loss = {loss:.6}\nreorder = {reorder:.6}\n",
            node(n),
            node(n + 1)
        );
    }
    for (n, flow) in flows.iter().enumerate() {
        let (from, to) = if flow.back { ("right", "left") } else { ("left", "right") };
        let dscp = if flow.marked { 46 } else { 0 };
        let _ = write!(
            text,
            "[[traffic]]\nname = \"f{n}\"\nfrom = \"{from}\"\nto = \"{to}\"\n{}\nsize = \
             \"{}B\"\nipv6 = {}\ndscp = {dscp}\nport = {}\n",
            KINDS[flow.kind],
            flow.size,
            flow.ipv6,
            5_000 + 100 * n
        );
    }
    text
}

fn simulate(scenario: &Scenario, seed: Option<u64>) -> Outcome {
    evenkeel_sim::run(scenario, &SimOptions { seed, ..SimOptions::default() })
        .expect("it can be simulated")
}

fn bytes(outcome: &Outcome) -> Vec<u8> {
    let mut all = Vec::new();
    let report = evenkeel_report::Report { runs: vec![outcome.run.clone()], ..Default::default() };
    csv::write_samples(&mut all, &report).expect("memory takes it");
    csv::write_calls(&mut all, &report).expect("memory takes it");
    all
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None,
        ..ProptestConfig::default() })]

    #[test]
    fn any_scenario_conserves_packets_and_is_reproduced_bit_for_bit(
        links in prop::collection::vec(link(), 1..4),
        wires in prop::collection::vec(wire(), 4),
        flows in prop::collection::vec(flow(), 1..6),
        seed in 0u64..1 << 40,
    ) {
        let text = text(&links, &wires, &flows, seed);
        let scenario = Scenario::parse(&text, "random.toml", Path::new("."));
        let scenario = scenario.unwrap_or_else(|errors| panic!("{errors}\n{text}"));
        let first = simulate(&scenario, None);
        // Every wire, router and host adds up: what does not is a warning.
        prop_assert_eq!(&first.run.warnings, &Vec::<String>::new());
        for flow in &first.flows {
            prop_assert!(flow.received_packets <= flow.sent_packets, "{:?}", flow);
        }
        let again = simulate(&scenario, None);
        prop_assert_eq!(bytes(&first), bytes(&again));
        prop_assert_eq!(&first.flows, &again.flows);
        prop_assert_eq!((first.events, first.packets), (again.events, again.packets));
        prop_assert!(first.packets > 0);
    }
}

#[test]
fn another_seed_is_another_run() {
    let links = [Link { rate_mbps: Some(5), slots: 4, whole: false, dequeue_ns: 0, discipline: 0 }];
    let wires = [(); 2].map(|()| Wire {
        rate_mbps: None,
        queue: 10,
        delay_us: 100,
        jitter_us: 50,
        loss: 0.1,
        reorder: 0.0,
    });
    let flows = [Flow { back: false, kind: 1, size: 500, ipv6: false, marked: false }];
    let text = text(&links, &wires, &flows, 1);
    let scenario = Scenario::parse(&text, "seeds.toml", Path::new(".")).expect("it is valid");
    assert_ne!(bytes(&simulate(&scenario, None)), bytes(&simulate(&scenario, Some(2))));
    assert_eq!(bytes(&simulate(&scenario, None)), bytes(&simulate(&scenario, Some(1))));
}

#[test]
fn a_discipline_of_linux_is_refused_with_where_it_can_be_had() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios/baselines/linux.toml");
    let scenario = Scenario::load(Path::new(file)).unwrap();
    let refused = evenkeel_sim::run(&scenario, &SimOptions::default()).err();
    let error = refused.expect("there is no kernel in the simulator");
    assert_eq!(error.exit_code(), 2, "{error}");
    assert!(error.to_string().contains("only the lab can have"), "{error}");
    assert!(error.to_string().contains("linux.toml:"), "{error}");
}
