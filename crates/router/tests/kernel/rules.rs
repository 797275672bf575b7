//! Rules and tables against what the kernel itself answers: `ip route get`, for rules and packets
//! drawn at random.

use std::net::IpAddr;

use evenkeel_config::RouterConfig;
use evenkeel_core::{FlowKey, Nanos};
use evenkeel_net::PortIndex;
use evenkeel_net::fib::Decision;
use evenkeel_net::policy::{LookupKey, Origin};
use evenkeel_netns::testing::{TestNet, available, eventually};
use evenkeel_ports::sys::{self, Notifier};
use evenkeel_router::mirror::Mirror;
use evenkeel_router::pipeline::Pipeline;

const PORTS: [&str; 3] = ["lan", "wan", "dmz"];
const ROUNDS: usize = 12;
const PACKETS: usize = 16;

/// A generator of numbers, the same on every machine.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % end
    }

    fn of<'a>(&mut self, list: &[&'a str]) -> &'a str {
        list[self.below(list.len())]
    }
}

/// What `ip` and the router have in common to say of a packet.
#[derive(Clone, Debug, Eq, PartialEq)]
enum Way {
    Forward(String, IpAddr),
    Local,
    NoRoute,
    Unreachable,
    Prohibit,
    Blackhole,
}

/// What `ip route get` answers.
fn kernel_way(text: &str, destination: IpAddr) -> Way {
    let after = |word: &str| {
        let mut words = text.split_whitespace().skip_while(|known| *known != word);
        words.nth(1)
    };
    for (answer, way) in [
        ("Network is unreachable", Way::NoRoute),
        ("No route to host", Way::Unreachable),
        ("Permission denied", Way::Prohibit),
        ("Invalid argument", Way::Blackhole),
    ] {
        if text.contains(answer) {
            return way;
        }
    }
    if text.starts_with("local ") {
        return Way::Local;
    }
    let device = after("dev").unwrap_or_else(|| panic!("no device: {text}"));
    let gateway = after("via").map_or(destination, |gateway| gateway.parse().unwrap());
    Way::Forward(device.to_owned(), gateway)
}

fn our_way(decision: Option<Decision>) -> Way {
    match decision {
        Some(Decision::Forward { port, next_hop, .. }) => {
            Way::Forward(PORTS[port.index()].to_owned(), next_hop)
        }
        Some(Decision::Local) => Way::Local,
        Some(Decision::Unreachable) => Way::Unreachable,
        Some(Decision::Prohibit) => Way::Prohibit,
        Some(Decision::Blackhole) => Way::Blackhole,
        None => Way::NoRoute,
        other => panic!("{other:?}"),
    }
}

/// A rule, but for its priority.
fn rule(random: &mut Random, v4: bool, priorities: &[usize], own: usize) -> String {
    let mut text = String::new();
    if random.below(6) == 0 {
        text += "not ";
    }
    let (sources, destinations) = if v4 {
        (["10.1.0.0/24", "10.1.0.2", "10.1.0.0/30"], ["10.9.0.0/16", "10.9.1.0/24", "10.9.1.1"])
    } else {
        (["fd01::/64", "fd01::2", "fd01::/126"], ["fd09::/32", "fd09:0:1::/48", "fd09:0:1::1"])
    };
    let tos = random.of(&["0x08", "0x10", "0x04"]);
    let mut selectors = vec![
        format!("from {}", random.of(&sources)),
        format!("to {}", random.of(&destinations)),
        format!("iif {}", random.of(&["lan", "dmz", "lo", "absent"])),
        format!("ipproto {}", random.of(&["udp", "tcp"])),
        format!("dport {}", random.of(&["53", "50-60", "54"])),
        format!("sport {}", random.of(&["1000", "900-1100", "7"])),
        format!("tos {tos}"),
        // Of packets in transit all belong to user 0; `ip -6 route get` asks on behalf of nobody.
        format!("uidrange {}", random.of(if v4 { &["0-0", "5-9"] } else { &["5-9", "7-8"] })),
        format!("oif {}", random.of(&["wan", "lan"])),
        format!("fwmark {}", random.of(&["5", "0x10/0xf0"])),
    ];
    for _ in 0..1 + random.below(2) {
        let at = random.below(selectors.len());
        text += &selectors.swap_remove(at);
        text += " ";
    }
    let later: Vec<usize> = priorities.iter().copied().filter(|other| *other > own).collect();
    let suppress = random.of(&["", "", "suppress_prefixlength 0", "suppress_prefixlength 16"]);
    text += &match random.below(9) {
        0 => "prohibit".to_owned(),
        1 => "unreachable".to_owned(),
        2 => "blackhole".to_owned(),
        3 if !later.is_empty() => format!("goto {}", later[random.below(later.len())]),
        4 => "nop".to_owned(),
        5 => format!("lookup main {suppress}"),
        6 => format!("lookup 101 {suppress}"),
        _ => format!("lookup 100 {suppress}"),
    };
    text
}

#[test]
fn rules_drawn_at_random_lead_where_the_kernel_says() {
    if !available("rules") {
        return;
    }
    let net = TestNet::new(&["r", "others"]);
    for (at, port) in PORTS.iter().enumerate() {
        net.wire(("r", port), ("others", &format!("o{at}")));
        net.ip("r", &format!("address add 10.{}.0.1/24 dev {port}", at + 1));
        net.ip("r", &format!("address add fd0{}::1/64 dev {port} nodad", at + 1));
    }
    net.sysctl("r", "net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1");
    for route in [
        "10.9.0.0/16 via 10.2.0.2",
        "10.9.1.0/24 via 10.3.0.2",
        "default via 10.2.0.9",
        "prohibit 10.9.3.0/24",
        "throw 10.9.4.0/24",
        "10.9.0.0/16 via 10.3.0.3 table 100",
        "unreachable 10.9.1.1 table 100",
        "throw 10.9.2.0/24 table 100",
        "default via 10.3.0.4 table 101",
        "blackhole 10.9.2.0/24 table 101",
    ] {
        net.ip("r", &format!("route add {route}"));
        let v6 = route.replace("10.9.0.0/16", "fd09::/32").replace("10.9.1.1", "fd09:0:1::1");
        let v6 = (1..=4).fold(v6, |text, n| {
            text.replace(&format!("10.9.{n}.0/24"), &format!("fd09:0:{n}::/48"))
        });
        let v6 =
            (2..=3).fold(v6, |text, n| text.replace(&format!("10.{n}.0."), &format!("fd0{n}::")));
        net.ip("r", &format!("-6 route add {v6}"));
    }

    let text: String = PORTS
        .iter()
        .map(|port| format!("[[port]]\nname = \"{port}\"\ninterface = \"{port}\"\n"))
        .collect();
    let config = RouterConfig::parse(&text, "rules.toml").unwrap();
    let mut pipeline = Pipeline::new(&config, Nanos::ZERO).unwrap();
    let interfaces = PORTS.map(str::to_owned).to_vec();
    let namespace = net.name("r");
    let ready = Notifier::new().unwrap();
    let (mirror, initial) =
        sys::in_netns(&namespace, || Mirror::start(interfaces, ready)).unwrap().unwrap();
    for event in initial {
        pipeline.apply(Nanos::ZERO, event);
    }
    let mut random = Random(7);
    let mut met: Vec<Way> = Vec::new();
    for round in 0..ROUNDS {
        let v4 = round % 2 == 0;
        let family = if v4 { "-4" } else { "-6" };
        let priorities: Vec<usize> = (0..6).map(|n| 100 + 10 * n).collect();
        let rules: Vec<String> =
            priorities.iter().map(|own| rule(&mut random, v4, &priorities, *own)).collect();
        for (priority, rule) in priorities.iter().zip(&rules) {
            net.ip("r", &format!("{family} rule add priority {priority} {rule}"));
        }
        // Twice without the local table before the others: then main is asked alone.
        let late_local = round < 4;
        if late_local {
            net.ip("r", &format!("{family} rule add priority 40000 lookup local"));
            net.ip("r", &format!("{family} rule del priority 0"));
        }
        let listed = net.ip("r", &format!("{family} rule")).lines().count();
        eventually("the rules to be followed", || {
            while let Some(batch) = mirror.poll().unwrap() {
                batch.into_iter().for_each(|event| pipeline.apply(Nanos::ZERO, event));
            }
            let word = if v4 { "IPv4" } else { "IPv6" };
            let snapshot =
                pipeline.snapshot::<evenkeel_ports::memory::MemoryPort>(Nanos::ZERO, &mut []);
            let known = &snapshot.routing.rules;
            known.iter().filter(|rule| rule.starts_with(word)).count() == listed
                && known.iter().any(|rule| rule.contains("40000")) == late_local
        });
        for _ in 0..PACKETS {
            let (source, destination) = if v4 {
                let destinations = [
                    "10.9.0.1",
                    "10.9.1.1",
                    "10.9.1.2",
                    "10.9.2.1",
                    "10.9.3.1",
                    "10.9.4.1",
                    "8.8.8.8",
                    "10.2.0.1",
                    "10.2.0.77",
                ];
                (random.of(&["10.1.0.2", "10.1.0.9"]), random.of(&destinations))
            } else {
                let destinations = [
                    "fd09::1",
                    "fd09:0:1::1",
                    "fd09:0:1::2",
                    "fd09:0:2::1",
                    "fd09:0:3::1",
                    "fd09:0:4::1",
                    "2001:db8::8",
                    "fd02::1",
                    "fd02::77",
                ];
                (random.of(&["fd01::2", "fd01::9"]), random.of(&destinations))
            };
            let (port, tos) = (random.below(2) * 2, [0_u8, 0x08, 0x10, 0x30][random.below(4)]);
            let (protocol, number) = [("udp", 17), ("tcp", 6)][random.below(2)];
            let (sport, dport) = ([1000, 950, 7][random.below(3)], [53, 54, 60][random.below(3)]);
            let query = format!(
                "{family} route get {destination} from {source} iif {} tos {tos:#x} ipproto \
                 {protocol} sport {sport} dport {dport}",
                PORTS[port]
            );
            let (_, answer) = net.try_output("r", &format!("ip {query}"));
            let destination: IpAddr = destination.parse().unwrap();
            let flow = FlowKey {
                source: source.parse().unwrap(),
                destination,
                protocol: number,
                source_port: sport,
                destination_port: dport,
                flow_label: 0,
            };
            let key =
                LookupKey { flow, dscp: tos >> 2, origin: Origin::Port(PortIndex(port as u16)) };
            let (theirs, ours) =
                (kernel_way(&answer, destination), our_way(pipeline.decide(&key, 0)));
            assert_eq!(
                ours, theirs,
                "{query}: {answer}\nrules: {rules:#?}, local last: {late_local}"
            );
            if !met.contains(&theirs) {
                met.push(theirs);
            }
        }
        if late_local {
            net.ip("r", &format!("{family} rule add priority 0 lookup local"));
            net.ip("r", &format!("{family} rule del priority 40000"));
        }
        for priority in &priorities {
            net.ip("r", &format!("{family} rule del priority {priority}"));
        }
    }
    // It was not always the same.
    for way in [Way::Local, Way::NoRoute, Way::Unreachable, Way::Prohibit, Way::Blackhole] {
        assert!(met.contains(&way), "{way:?} was never met: {met:?}");
    }
    assert!(met.iter().filter(|way| matches!(way, Way::Forward(..))).count() >= 8, "{met:?}");
    // The kernel's own rules again: one table says everything.
    eventually("the kernel's own rules", || {
        while let Some(batch) = mirror.poll().unwrap() {
            batch.into_iter().for_each(|event| pipeline.apply(Nanos::ZERO, event));
        }
        let snapshot =
            pipeline.snapshot::<evenkeel_ports::memory::MemoryPort>(Nanos::ZERO, &mut []);
        !snapshot.routing.by_rules
            && snapshot.routing.tables.iter().all(|table| table.name != "local")
    });
}
