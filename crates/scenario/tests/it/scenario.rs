//! What scenarios mean: addresses and routes, time scales, ablations, expressions; and the
//! reference.

use std::collections::HashMap;
use std::net::IpAddr;
use std::path::Path;

use evenkeel_config::DisciplineConfig;
use evenkeel_core::{BitRate, Bytes, Nanos};
use evenkeel_scenario::{
    FlowSizes, Metric, Metrics, Scenario, ScenarioError, Subject, TrafficKind, World,
    reference_markdown, tables,
};

/// h1 – r1 – r2 – sink, h2 at r2 in its own subnet, and a longer way round over r3.
const TEXT: &str = r#"
name = "t"
title = "t"
duration = "20s"
sample = "500ms"
settle = "2s"
[[host]]
name = "h1"
[[host]]
name = "h2"
[[host]]
name = "sink"
[[router]]
name = "r1"
[[router.config.class]]
name = "rest"
[[router.config.class]]
name = "gold"
match = [{ dscp = [46] }]
[[router.config.link]]
port = "r2"
rate = "10Mbit/s"
[router.config.link.discipline]
kind = "lct"
[[router]]
name = "r2"
[[router.config.class]]
name = "rest"
[[router.config.class]]
name = "gold"
match = [{ dscp = [46] }]
[[router]]
name = "r3"
[[router.config.class]]
name = "rest"
[[router.config.class]]
name = "gold"
[[wire]]
ends = ["h1", "r1"]
[[wire]]
ends = ["r1", "r2"]
[[wire]]
ends = ["r2", "sink"]
[[wire]]
ends = ["r2", "h2"]
subnet = "192.168.7.0/28"
[[wire]]
ends = ["r1", "r3"]
[[wire]]
ends = ["r3", "r2"]
[[traffic]]
name = "a"
from = "h1"
to = "sink"
rate = "5Mbit/s"
dscp = 46
class = "gold"
start = "1s"
[[traffic]]
name = "b"
from = "h2"
to = "sink"
rate = "5Mbit/s"
kind = "on-off"
mean_on = "10ms"
ipv6 = true
[[step]]
name = "x10"
at = "10s"
set = [
    { router = "r1", link = "r2", knob = "x_delay", class = "gold", value = "10us" },
    { router = "r1", link = "r2", knob = "limit", value = 7 },
]
[[expect]]
name = "e"
claim = "c"
that = "delay(r1/r2/gold)@x10 > 2 * delay(r1/r2/gold)@start and sent(rest)@x10 ~ sent(sink/rest)@start within 10%"
worlds = ["sim"]
[[without]]
name = "no X"
set = [{ router = "r1", link = "r2", knob = "x_delay", class = "gold", value = "0us" }]
fails = ["e"]
[[without]]
name = "fifo"
set = [{ router = "r1", link = "r2", knob = "discipline", value = { kind = "fifo", limit = 3 } }]
fails = ["e"]
[[without]]
name = "x20 instead"
set = [{ router = "r1", link = "r2", knob = "x_delay", class = "gold", value = "20us", at = "x10" }]
fails = ["e"]
[[without]]
name = "one limit"
set = [{ router = "r1", link = "r2", knob = "limit", class = "gold", value = 9 }]
fails = ["e"]
"#;

fn scenario() -> Scenario {
    Scenario::parse(TEXT, "t.toml", Path::new(".")).unwrap_or_else(|errors| panic!("{errors}"))
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

#[test]
fn addresses_follow_from_the_order_of_the_wires() {
    let scenario = scenario();
    let addresses = |node: &str| -> Vec<_> {
        scenario
            .interfaces(node)
            .into_iter()
            .map(|i| (i.name, i.v4.to_string(), i.v6.to_string()))
            .collect()
    };
    let row = |name: &str, v4: &str, v6: &str| (name.to_owned(), v4.to_owned(), v6.to_owned());
    assert_eq!(addresses("h1"), [row("r1", "10.1.0.1", "fd00:1::1")]);
    assert_eq!(addresses("h2"), [row("r2", "192.168.7.1", "fd00:4::1")]);
    assert_eq!(
        addresses("r2"),
        [
            row("r1", "10.2.0.253", "fd00:2::fd"),
            row("sink", "10.3.0.254", "fd00:3::fe"),
            row("h2", "192.168.7.14", "fd00:4::fe"),
            row("r3", "10.6.0.253", "fd00:6::fd"),
        ]
    );
    assert_eq!(scenario.address("sink", false), Some(ip("10.3.0.1")));
    assert_eq!(scenario.address("sink", true), Some(ip("fd00:3::1")));
}

#[test]
fn routes_lead_everywhere_on_the_shortest_way() {
    let scenario = scenario();
    let via = |node: &str, destination: &str| {
        let routes = scenario.routes(node);
        let route = routes.iter().find(|route| route.destination == ip(destination)).unwrap();
        (route.via, route.prefix, route.interface.clone())
    };
    assert_eq!(via("h1", "10.3.0.0"), (ip("10.1.0.254"), 24, "r1".to_owned()));
    assert_eq!(via("r1", "10.3.0.0"), (ip("10.2.0.253"), 24, "r2".to_owned()));
    assert_eq!(via("r1", "192.168.7.0"), (ip("10.2.0.253"), 28, "r2".to_owned()));
    assert_eq!(via("r1", "fd00:3::"), (ip("fd00:2::fd"), 64, "r2".to_owned()));
    assert_eq!(via("sink", "10.1.0.0"), (ip("10.3.0.254"), 24, "r2".to_owned()));
    for node in ["h1", "h2", "sink", "r1", "r2", "r3"] {
        let reached = scenario.interfaces(node).len() * 2 + scenario.routes(node).len();
        assert_eq!(
            reached,
            scenario.wires.len() * 2,
            "{node} reaches every subnet of both versions"
        );
    }
    assert_eq!(scenario.path_between("h1", "sink").unwrap(), ["h1", "r1", "r2", "sink"]);
    assert_eq!(scenario.path_between("sink", "h2").unwrap(), ["sink", "r2", "h2"]);
}

#[test]
fn ports_are_made_from_the_wires() {
    let scenario = scenario();
    let r1 = &scenario.router("r1").unwrap().config;
    let ports: Vec<_> =
        r1.ports.iter().map(|port| (port.name.as_str(), port.interface.as_str())).collect();
    assert_eq!(ports, [("h1", "h1"), ("r2", "r2"), ("r3", "r3")]);
    assert_eq!(r1.router.name, "r1");
    assert_eq!(r1.link("r2").unwrap().discipline.name(), "lct");
    assert_eq!(r1.link("h1").unwrap().discipline.name(), "fifo");
}

#[test]
fn traffic_has_its_defaults() {
    let scenario = scenario();
    let [a, b] = &scenario.traffic[..] else { panic!() };
    assert_eq!(
        (a.kind, a.size, a.port, a.source_port),
        (TrafficKind::Cbr, Bytes(1428), 5001, 40_001)
    );
    assert_eq!((a.start, a.stop), (Nanos::SECOND, Nanos::from_secs(20)));
    assert_eq!(
        b.kind,
        TrafficKind::OnOff { mean_on: Nanos::from_millis(10), mean_off: Nanos::from_millis(500) }
    );
    assert_eq!((b.port, b.class.as_deref()), (5002, Some("rest")));
    assert_eq!(scenario.expectations[0].worlds, [World::Sim]);
}

#[test]
fn a_time_scale_leaves_everything_but_time() {
    let whole = scenario();
    let fast = whole.scaled(0.1).unwrap();
    assert_eq!((fast.sample, fast.settle), (Nanos::from_millis(50), Nanos::from_millis(200)));
    assert_eq!((fast.duration, fast.steps[1].at), (Nanos::from_secs(2), Nanos::SECOND));
    assert_eq!(
        (fast.traffic[0].start, fast.traffic[0].stop),
        (Nanos::from_millis(100), Nanos::from_secs(2))
    );
    assert_eq!(fast.steps[1].set, whole.steps[1].set);
    assert_eq!(fast.routers, whole.routers);
    assert_eq!(fast.traffic[1].kind, whole.traffic[1].kind);
    assert_eq!(fast.time_scale, 0.1);
    assert_eq!(fast.step_end(0), Nanos::SECOND);
    for bad in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e-4, 0.01] {
        assert!(matches!(whole.scaled(bad), Err(ScenarioError::TimeScale { .. })), "{bad}");
    }
}

#[test]
fn an_override_holds_from_the_start_and_is_not_changed_back() {
    let without = scenario().with_ablation("no X").unwrap();
    let knobs: Vec<_> = without.steps[1].set.iter().map(|set| set.knob.as_str()).collect();
    assert_eq!(knobs, ["limit"], "x_delay of gold is no longer set, the rest is");
    assert_eq!(without.without.as_deref(), Some("no X"));
    let error = scenario().with_ablation("no Y").unwrap_err().to_string();
    assert!(error.contains("did you mean \"no X\"?"), "{error}");
}

#[test]
fn another_discipline_drops_the_knobs_it_has_not() {
    let without = scenario().with_ablation("fifo").unwrap();
    let link = without.router("r1").unwrap().config.link("r2").unwrap();
    assert!(matches!(link.discipline, DisciplineConfig::Fifo(config) if config.limit == 3));
    let knobs: Vec<_> = without.steps[1].set.iter().map(|set| set.knob.as_str()).collect();
    assert_eq!(knobs, ["limit"]);
}

#[test]
fn an_override_of_one_step_takes_the_place_of_what_it_sets() {
    let without = scenario().with_ablation("x20 instead").unwrap();
    let set: Vec<_> =
        without.steps[1].set.iter().map(|set| (set.knob.as_str(), set.value.as_str())).collect();
    assert_eq!(set, [("limit", "7"), ("x_delay", "20us")]);
}

#[test]
fn a_limit_of_one_class_is_said_in_the_configuration() {
    let without = scenario().with_ablation("one limit").unwrap();
    let router = &without.router("r1").unwrap().config;
    let DisciplineConfig::Lct(lct) = &router.link("r2").unwrap().discipline else {
        panic!("{router:?}")
    };
    let gold = router.class_names().iter().position(|name| *name == "gold").unwrap();
    assert_eq!((lct.limit.get(gold), lct.limit.rest()), (9, 50));
    assert_eq!(without.steps[1].set.len(), 2, "a limit of all classes is not the same knob");
}

/// Numbers by metric, class and step.
struct Table(HashMap<(Metric, String, usize), f64>);

impl Metrics for Table {
    fn value(&self, metric: Metric, subject: &Subject, step: usize) -> Option<f64> {
        self.0.get(&(metric, subject.class.clone().unwrap_or_default(), step)).copied()
    }
}

fn eval(that: &str, numbers: &[(Metric, &str, usize, f64)]) -> evenkeel_scenario::Evaluation {
    let begin = TEXT.find("that = ").unwrap();
    let end = begin + TEXT[begin..].find('\n').unwrap();
    let text = format!("{}that = {that:?}{}", &TEXT[..begin], &TEXT[end..]);
    let scenario = Scenario::parse(&text, "t.toml", Path::new("."))
        .unwrap_or_else(|errors| panic!("{errors}"));
    let table = numbers
        .iter()
        .map(|(metric, class, step, value)| ((*metric, (*class).to_owned(), *step), *value));
    scenario.expectations[0].expr.eval(&Table(table.collect()))
}

#[test]
fn expressions_follow_the_usual_rules() {
    let holds = |that: &str| {
        eval(that, &[(Metric::Sent, "rest", 0, 12.0), (Metric::Sent, "rest", 1, 8.0)]).holds
    };
    for (that, expected) in [
        ("1 + 2 * 3 <= 7 < 8", true),
        ("(1 + 2) * 3 <= 7", false),
        ("8 - 2 - 1 >= 5 and 8 / 2 / 2 <= 2", true),
        ("-2 * -3 > 5", true),
        ("max(1, 3, 2) - min(4, 3) >= 0", true),
        ("abs(1 - 3) <= 2", true),
        ("1 < 2 < 2", false),
        ("1 < 2 and 2 < 1", false),
        ("109 ~ 100 within 10%", true),
        ("111 ~ 100 within 10%", false),
        ("100 ~ 105 ~ 112 within 10%", true),
        ("0.001 > 0", true),
        ("sent(rest)@start / sent(rest)@x10 ~ 1.5 within 0%", true),
        ("sent(sink/rest)@start - sent(r2/sink/rest)@x10 >= 4", true),
    ] {
        assert_eq!(holds(that), Some(expected), "{that}");
    }
}

#[test]
fn an_evaluation_shows_the_numbers_behind_it() {
    let came = eval(
        "sent(rest)@start > 2 * sent(rest)@x10 and sent(rest)@x10 > 5",
        &[(Metric::Sent, "rest", 0, 1234.4), (Metric::Sent, "rest", 1, 7.77)],
    );
    assert_eq!(came.holds, Some(true));
    assert_eq!(
        came.text,
        "sent(rest)@start [1234] > 2 * sent(rest)@x10 [15.54] and sent(rest)@x10 [7.770] > 5"
    );
    let terms: Vec<_> =
        came.terms.iter().map(|term| (term.text.as_str(), term.value, term.unit)).collect();
    assert_eq!(
        terms,
        [
            ("sent(rest)@start", Some(1234.4), "packets/s"),
            ("sent(rest)@x10", Some(7.77), "packets/s")
        ]
    );
}

#[test]
fn what_was_not_measured_decides_nothing() {
    let one = [(Metric::Sent, "rest", 0, 1.0), (Metric::Dropped, "rest", 0, 0.0)];
    let came = eval("sent(rest)@start < sent(rest)@x10", &one);
    assert_eq!(came.holds, None);
    assert_eq!(
        came.text,
        "sent(rest)@start [1.000] < sent(rest)@x10 [?]: not measured: sent(rest)@x10"
    );
    assert_eq!(
        eval("sent(rest)@start / dropped(rest)@start > 1", &one).holds,
        None,
        "division by zero"
    );
    assert_eq!(
        eval("sent(rest)@start > 2 and sent(rest)@x10 > 1", &one).holds,
        Some(false),
        "one side is enough"
    );
}

#[test]
fn the_reference_is_up_to_date() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference-scenario.md");
    let generated = reference_markdown();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, &generated).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        written == generated,
        "{} is out of date: UPDATE_DOCS=1 cargo test -p evenkeel-scenario",
        path.display()
    );
    for section in tables::ALL {
        assert!(generated.contains(section.heading));
        assert!(section.keys().all(|key| key.doc.ends_with('.') && generated.contains(key.doc)));
    }
}

#[test]
fn wires_and_sources_of_virtual_time() {
    let text = |wire: &str, traffic: &str| {
        format!(
            "name = \"t\"\ntitle = \"t\"\nsample = \"1s\"\nsettle = \"0s\"\nduration = \
             \"9s\"\n[[host]]\nname = \"a\"\n[[host]]\nname = \"b\"\n\
             [[router]]\nname = \"r\"\n[[wire]]\nends = [\"a\", \"r\"]\n{wire}\n[[wire]]\nends = \
             [\"r\", \"b\"]\n\
             [[traffic]]\nname = \"f\"\nfrom = \"a\"\nto = \"b\"\n{traffic}\n"
        )
    };
    let parse = |wire: &str, traffic: &str| {
        Scenario::parse(&text(wire, traffic), "t.toml", Path::new("folder"))
            .map_err(|errors| errors.to_string())
    };
    let slow = "rate = \"100Mbit/s\"\ndelay = \"3ms\"\njitter = \"1ms\"\nloss = 0.001\nreorder = \
                0.25\nqueue = 7";
    let greedy = parse(slow, "kind = \"greedy\"").expect("it is valid");
    let quality = greedy.wires[0].quality;
    assert_eq!((quality.rate, quality.queue), (Some(BitRate::from_mbps(100)), 7));
    assert_eq!((quality.delay, quality.jitter), (Nanos::from_millis(3), Nanos::from_millis(1)));
    assert_eq!((quality.loss, quality.reorder), (1_000_000, 250_000_000));
    assert!(!quality.is_perfect() && greedy.wires[1].quality.is_perfect());
    // 1428 of the 1466 bytes that the wire takes for each packet.
    assert_eq!(greedy.traffic[0].rate, BitRate(97_407_912));
    assert!(parse("", "kind = \"greedy\"").expect_err("no wire says how fast").contains("rate"));

    let flows = "kind = \"flows\"\nrate = \"5Mbit/s\"\nflow_size = \"20000B\"\ndistribution = \
                 \"pareto\"\nshape = 1.5";
    let flows = parse("", flows).expect("it is valid");
    let TrafficKind::Flows { mean_size, sizes, peak } = flows.traffic[0].kind else {
        panic!("{flows:?}")
    };
    assert_eq!(
        (mean_size, sizes, peak),
        (Bytes(20_000), FlowSizes::Pareto(1.5), BitRate::from_mbps(10))
    );
    let replay = parse("", "kind = \"replay\"\nfile = \"x.pcap\"").expect("it is valid");
    assert_eq!(replay.traffic[0].recording.as_deref(), Some(Path::new("folder/x.pcap")));
    assert_eq!(
        parse("", "rate = \"1Mbit/s\"\nflows = 40").expect("it is valid").traffic[0].flows,
        40
    );

    for (wire, traffic, told) in [
        ("rate = \"0bit/s\"", "rate = \"1Mbit/s\"", "1kbit/s"),
        ("loss = 1.5", "rate = \"1Mbit/s\"", "0 to 1"),
        (
            "",
            "kind = \"flows\"\nrate = \"1Mbit/s\"\ndistribution = \"pareto\"\nshape = 1.0",
            "1.001 to 100",
        ),
        (
            "",
            "kind = \"flows\"\nrate = \"1Mbit/s\"\nshape = 2.0",
            "only together with distribution",
        ),
        ("", "rate = \"1Mbit/s\"\nflow_size = \"100B\"", "only together with kind = \"flows\""),
        ("", "kind = \"replay\"", "this required key is missing: the capture file"),
        ("", "kind = \"replay\"\nfile = \"x\"\nrate = \"1Mbit/s\"", "a recording has its own rate"),
        ("", "kind = \"replay\"\nfile = \"x\"\nflows = 2", "a kind that is one flow by itself"),
    ] {
        let error = parse(wire, traffic).expect_err(traffic);
        assert!(error.contains(told) && error.contains("t.toml:"), "{error}");
    }
}
