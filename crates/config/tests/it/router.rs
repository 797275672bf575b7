//! What files mean: defaults, classes, disciplines, live changes, differences.

use evenkeel_config::{
    DisciplineConfig, Hairpin, LinkChange, Mode, RouterConfig, diff, parse_change,
    parse_discipline, parse_knob,
};
use evenkeel_core::class_map::DscpSet;
use evenkeel_core::link::{LinkConfig, Refill, RingConfig};
use evenkeel_core::schedule::Scheduler;
use evenkeel_core::schedule::hosts::Fair;
use evenkeel_core::schedule::lct::MultiBacklog;
use evenkeel_core::schedule::wfq_altq::{DropRule, QueueSelect};
use evenkeel_core::settings::{self, PerClass};
use evenkeel_core::{BitRate, Bytes, Class, FlowKey, Nanos, Packet, Weight};

struct Nothing;

impl Packet for Nothing {
    fn ip_len(&self) -> Bytes {
        Bytes(20)
    }
    fn wire_len(&self) -> Bytes {
        Bytes(84)
    }
    fn class(&self) -> Class {
        Class(0)
    }
    fn flow(&self) -> FlowKey {
        unreachable!("no discipline here looks at flows")
    }
    fn flow_hash(&self) -> u64 {
        0
    }
    fn arrival(&self) -> Nanos {
        Nanos::ZERO
    }
}

fn parse(text: &str) -> RouterConfig {
    RouterConfig::parse(text, "r.toml").unwrap_or_else(|errors| panic!("{errors}"))
}

const MINIMAL: &str = "[[port]]\nname = \"lan\"\ninterface = \"eth1\"\n";
const CLASSES: &[&str] = &["rest", "voice"];

#[test]
fn one_port_is_a_router() {
    let config = parse(MINIMAL);
    assert_eq!(config.class_names(), ["default"]);
    assert_eq!((config.router.mode, config.router.hairpin), (Mode::Event, Hairpin::Forward));
    let link = config.link("lan").unwrap();
    assert_eq!(link.core, LinkConfig::default());
    assert_eq!(link.discipline.build::<Nothing>(1).unwrap().name(), "fifo");
}

#[test]
fn a_line_with_a_rate_and_nothing_else_has_short_queues() {
    let of = |rest: &str| {
        let ports = "[[port]]\nname = \"wan\"\ninterface = \"eth0\"\n";
        let config = parse(&format!("{ports}{rest}"));
        config.link("wan").unwrap().discipline.clone()
    };
    let link = |rest: &str| of(&format!("[[link]]\nport = \"wan\"\n{rest}\n"));
    let shaper = "shaper = { rate = \"20Mbit/s\" }";
    for rate in ["rate = \"20Mbit/s\"", shaper] {
        let DisciplineConfig::Pdrr(pdrr) = link(rate) else { panic!("{:?}", link(rate)) };
        assert!(pdrr.aqm.is_on());
        assert_eq!(pdrr.fair, Fair::HostFlow);
        assert_eq!(pdrr.buffer.max_delay, Some(Nanos::from_millis(50)));
        // What is said counts, and nothing is added to it.
        let said = link(&format!("{rate}\ndiscipline = {{ kind = \"pdrr\" }}"));
        let DisciplineConfig::Pdrr(said) = said else { panic!("{said:?}") };
        assert!(!said.aqm.is_on());
        assert_eq!(link(&format!("{rate}\ndiscipline = {{ kind = \"fifo\" }}")).name(), "fifo");
    }
    // Nothing waits for a line that is not known.
    assert_eq!((of("").name(), link("").name()), ("fifo", "fifo"));
}

/// Who shares a link that names no discipline, by what else the file says.
#[test]
fn hosts_share_a_line_that_names_nobody_where_that_can_be() {
    let fair = |port: &str, rest: &str| {
        let ports = format!("[[port]]\nname = \"wan\"\ninterface = \"eth0\"\n{port}\n");
        let link = "[[link]]\nport = \"wan\"\nrate = \"20Mbit/s\"\n";
        let config = parse(&format!("{ports}{link}{rest}"));
        let DisciplineConfig::Pdrr(pdrr) = config.link("wan").unwrap().discipline else { panic!() };
        pdrr.fair
    };
    let inline = "attach = \"inline\"";
    let two = "[router]\nworkers = 2\n";
    assert_eq!(fair("", "[router]\nworkers = 1\n"), Fair::HostFlow);
    assert_eq!(fair("", two), Fair::Flow);
    assert_eq!(fair("", "admission = {}\n"), Fair::Flow);
    assert_eq!(fair(inline, ""), Fair::SourceFlow);
    assert_eq!(fair(inline, two), Fair::SourceFlow);
}

#[test]
fn a_discipline_named_and_nothing_else_has_the_documented_defaults() {
    let fifo = parse_discipline("{ kind = \"fifo\" }", CLASSES).unwrap();
    assert!(matches!(fifo, DisciplineConfig::Fifo(config) if config.limit == 1000));
    let DisciplineConfig::WfqAltq(wfq) = parse_discipline("kind = \"wfq-altq\"", CLASSES).unwrap()
    else {
        panic!()
    };
    assert_eq!(
        (&wfq.limit, wfq.select, wfq.drop),
        (&PerClass::all(50), QueueSelect::Class, DropRule::Tail)
    );
    assert_eq!(wfq.weight, PerClass::all(Weight(100)));
    let DisciplineConfig::Lct(lct) = parse_discipline("kind = \"lct\"", CLASSES).unwrap() else {
        panic!()
    };
    assert_eq!((&lct.x_delay, &lct.limit), (&PerClass::all(Nanos::ZERO), &PerClass::all(50)));
    assert!(lct.module2 && lct.rearm_empty && lct.multi_backlog == MultiBacklog::HoldWithModule2);
}

#[test]
fn hashed_queues_and_the_shipped_drop_rule() {
    let text = "{ kind = \"wfq-altq\", select = \"hash-source-port\", queues = 16, drop = \
                \"longest\", high_water = \"3KiB\" }";
    let DisciplineConfig::WfqAltq(wfq) = parse_discipline(text, CLASSES).unwrap() else { panic!() };
    assert_eq!((wfq.queues, wfq.select), (16, QueueSelect::HashSourcePort));
    assert_eq!((wfq.drop, wfq.high_water), (DropRule::Longest, Bytes(3_072)));
}

#[test]
fn every_discipline_is_built() {
    for kind in ["fifo", "wfq-altq", "lct"] {
        let config = parse_discipline(&format!("kind = \"{kind}\""), CLASSES).unwrap();
        assert_eq!(config.name(), kind);
        assert_eq!(config.build::<Nothing>(2).unwrap().name(), kind);
    }
}

#[test]
fn classes_take_packets_in_the_order_of_the_file() {
    let config = parse(&format!(
        "{MINIMAL}[[class]]\nname = \"rest\"\n\
         [[class]]\nname = \"voice\"\nmatch = [{{ dscp = [46] }}, {{ source = \"10.0.1.0/24\", \
         protocol = \"udp\", destination_port = \"5000-5010\" }}]\n\
         [[class]]\nname = \"lan\"\nmatch = [{{ source = \"10.0.0.0/8\" }}]\n"
    ));
    let map = config.class_map();
    let flow = |source: &str, protocol, destination_port| FlowKey {
        source: source.parse().unwrap(),
        destination: "192.0.2.1".parse().unwrap(),
        protocol,
        source_port: 9,
        destination_port,
        flow_label: 0,
    };
    assert_eq!(map.classify(&flow("10.0.1.7", 17, 5_010), 0), Class(1));
    assert_eq!(map.classify(&flow("10.0.1.7", 17, 5_011), 0), Class(2));
    assert_eq!(map.classify(&flow("10.0.1.7", 6, 5_010), 0), Class(2));
    assert_eq!(map.classify(&flow("192.0.2.9", 6, 1), 46), Class(1));
    assert_eq!(map.classify(&flow("192.0.2.9", 6, 1), 0), Class(0));
    assert_eq!(config.classes[1].rules[0].dscp, Some(DscpSet::EMPTY.with(46)));
}

#[test]
fn changes_are_read_as_in_the_file() {
    let knob = |name, class, value| parse_knob(name, class, value, CLASSES).unwrap();
    assert_eq!(
        knob("x_delay", Some("voice"), "200us"),
        settings::Change::of("x_delay", Class(1), Nanos::from_micros(200))
    );
    assert_eq!(
        knob("weight", Some("rest"), "1000"),
        settings::Change::of("weight", Class(0), Weight(1000))
    );
    assert_eq!(knob("limit", None, "20"), settings::Change::new("limit", 20_u32));
    assert_eq!(knob("limit", Some("voice"), "20"), settings::Change::of("limit", Class(1), 20_u32));
    assert_eq!(knob("module2", None, "false"), settings::Change::new("module2", false));
    assert_eq!(knob("rearm_empty", None, "true"), settings::Change::new("rearm_empty", true));
    for (word, _) in MultiBacklog::WORDS {
        let rule = MultiBacklog::from_name(word).unwrap();
        assert_eq!(knob("multi_backlog", None, word), settings::Change::new("multi_backlog", rule));
    }
    assert_eq!(
        knob("high_water", None, "64KiB"),
        settings::Change::new("high_water", Bytes(65_536))
    );
    let change = |name, value| parse_change(name, None, value, CLASSES).unwrap();
    let wire = |key, value: settings::Value| LinkChange::Wire(settings::Change::new(key, value));
    assert_eq!(change("rate", "10Mbit/s"), wire("rate", BitRate::from_mbps(10).into()));
    assert_eq!(change("rate", "unpaced"), wire("rate", settings::Value::Absent));
    let ring = RingConfig { slots: 4, refill: Refill::WholeRing };
    assert_eq!(change("ring", "{ slots = 4, refill = \"whole\" }"), wire("ring", ring.into()));
    let lct = change("discipline", "{ kind = \"lct\", x_delay = { voice = \"5us\" } }");
    assert!(matches!(lct, LinkChange::Discipline(DisciplineConfig::Lct(config))
            if config.x_delay.get(1) == Nanos(5_000)));
}

#[test]
fn wrong_changes_say_what_would_be_valid() {
    let error = |name, class, value| parse_change(name, class, value, CLASSES).unwrap_err().0;
    assert_eq!(
        error("x_dely", Some("voice"), "1us"),
        "no knob \"x_dely\"; did you mean \"x_delay\"?"
    );
    assert_eq!(
        error("x_delay", Some("voise"), "1us"),
        "no class \"voise\"; did you mean \"voice\"?"
    );
    assert_eq!(
        error("timer_tick", None, "10ms"),
        "timer_tick does not change alone while the router runs: reload the file"
    );
    assert_eq!(
        error("module2", Some("voice"), "true"),
        "module2 is of the whole link, not of a class"
    );
    assert!(error("x_delay", Some("voice"), "2min").contains("units: ns, us, ms, s"));
    assert_eq!(
        error("x_delay", Some("voice"), "100s"),
        "x_delay: 100s is out of range; valid: 0s to 60s"
    );
    assert_eq!(error("weight", Some("voice"), "0"), "weight: 0 is out of range; valid: 1 to 10000");
    assert!(
        error("module2", None, "maybe").contains("expected `true` or `false`, found \"maybe\"")
    );
    assert!(
        error("ring", None, "{ slots = 0 }")
            .contains("ring.slots: 0 is out of range; valid: 1 to 4096")
    );
    assert!(error("multi_backlog", None, "mix-x").contains("did you mean \"min-x\"?"));
    let two =
        error("discipline", None, "{ kind = \"lct\", limit = 0, x_delay = { voise = \"1us\" } }");
    assert!(
        two.contains("discipline.limit: 0 is out of range")
            && two.contains("did you mean \"voice\"?"),
        "{two}"
    );
    assert!(parse_knob("rate", None, "1Mbit/s", CLASSES).is_err());
}

#[test]
fn a_configuration_follows_the_knobs() {
    let mut lct = parse_discipline("kind = \"lct\"", CLASSES).unwrap();
    lct.set_live(&settings::Change::of("x_delay", Class(1), Nanos(7)), 2).unwrap();
    lct.set_live(&settings::Change::new("module2", false), 2).unwrap();
    let expected = parse_discipline(
        "{ kind = \"lct\", x_delay = { voice = \"7ns\" }, module2 = false }",
        CLASSES,
    )
    .unwrap();
    assert_eq!(lct, expected);
    assert!(lct.set_live(&settings::Change::of("weight", Class(0), Weight(1)), 2).is_err());
    assert!(lct.set_live(&settings::Change::of("x_delay", Class(2), Nanos(7)), 2).is_err());
    assert_eq!(lct, expected);
    let limit = settings::Change::of("limit", Class(1), 3_u32);
    assert!(lct.has(&limit) && !lct.has(&settings::Change::new("high_water", Bytes(3))));
}

#[test]
fn differences_are_told_one_by_one() {
    let old = parse(&format!(
        "{MINIMAL}[[link]]\nport = \"lan\"\nrate = \"10Mbit/s\"\ndiscipline = {{ kind = \"lct\" }}"
    ));
    let new = parse(&format!(
        "{MINIMAL}[router]\nmode = \"busy\"\n[[link]]\nport = \"lan\"\nring = {{ slots = 8 \
         }}\ndiscipline = {{ kind = \"lct\", x_delay = \"10us\" }}"
    ));
    assert_eq!(
        diff(&old, &new),
        [
            "router.mode: event becomes busy",
            "link lan: rate: 10Mbit/s becomes none",
            "link lan: ring: { slots = 2, refill = \"any\" } becomes { slots = 8, refill = \"any\" \
             }",
            "link lan: x_delay.default: 0s becomes 10us",
        ]
    );
    let wfq = parse(&format!(
        "{MINIMAL}[[link]]\nport = \"lan\"\ndiscipline = {{ kind = \"wfq-altq\" }}"
    ));
    assert!(diff(&new, &wfq).contains(&"link lan: discipline: lct becomes wfq-altq".to_owned()));
}
