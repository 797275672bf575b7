//! Ports that are attached inline: two ports of one entry, and what they cannot have.

use evenkeel_config::{Attach, RouterConfig, diff};

const INLINE: &str = "[[port]]\nname = \"wan\"\ninterface = \"eth0\"\nattach = \"inline\"\n";

fn parsed(rest: &str) -> Result<RouterConfig, String> {
    // Tables of their own come behind the port.
    RouterConfig::parse(&format!("{INLINE}{rest}"), "router.toml")
        .map_err(|errors| errors.to_string())
}

#[test]
fn one_entry_is_two_ports_that_are_joined_each_with_a_link() {
    let lan = "[[port]]\nname = \"lan\"\ninterface = \"eth1\"\n";
    let link = "[[link]]\nport = \"wan-ingress\"\nrate = \"95Mbit/s\"\n";
    let config = parsed(&format!("{lan}{link}")).unwrap();
    let ports: Vec<_> = config
        .ports
        .iter()
        .map(|port| (port.name.as_str(), port.interface.as_str(), port.attach()))
        .collect();
    assert_eq!(
        ports,
        [
            ("wan", "eth0", Attach::InlineWire),
            ("wan-ingress", "eku-eth0", Attach::InlineKernel),
            ("lan", "eth1", Attach::Route),
        ]
    );
    let peers: Vec<_> = (0..4).map(|port| config.peer_of(port)).collect();
    assert_eq!(peers, [Some(1), Some(0), None, None]);
    assert_eq!(config.link("wan-ingress").unwrap().core.rate.map(|rate| rate.0), Some(95_000_000));
    assert_eq!(config.link("wan").unwrap().core.rate, None);
}

#[test]
fn what_an_inline_port_cannot_have_is_refused_with_its_line() {
    for (rest, wanted) in [
        ("io = \"af-xdp\"\n", "router.toml:5: port.io: "),
        (
            "[balancer]\nport = \"wan\"\n[[balancer.forwarder]]\nid = 1\n\
             mac = \"02:00:00:00:01:01\"\n",
            "balancer",
        ),
        (
            "[[service]]\nname = \"s\"\nkind = \"spin\"\ncycles = 1000\n\
             [[class]]\nname = \"rest\"\nservice = \"s\"\n",
            "class.service: ",
        ),
        ("[[port]]\nname = \"wan-ingress\"\ninterface = \"eth9\"\n", "router.toml:6: port.name: "),
    ] {
        let errors = parsed(rest).unwrap_err();
        assert!(errors.contains(wanted), "{rest}: {errors}");
        assert!(errors.contains("inline") || errors.contains("wan-ingress"), "{rest}: {errors}");
    }
    let errors = RouterConfig::parse(&INLINE.replace("inline", "online"), "router.toml");
    let errors = errors.unwrap_err().to_string();
    assert!(errors.contains("router.toml:4: port.attach: ") && errors.contains("inline"));
}

fn bridge(second: &str) -> Result<RouterConfig, String> {
    let ports = format!(
        "[[port]]\nname = \"a\"\ninterface = \"eth0\"\nattach = \"bridge\"\n\
         [[port]]\nname = \"m\"\ninterface = \"eth9\"\n\
         [[port]]\nname = \"b\"\ninterface = \"eth1\"\n{second}"
    );
    RouterConfig::parse(&ports, "router.toml").map_err(|errors| errors.to_string())
}

#[test]
fn two_ports_are_bridged_neither_one_nor_three() {
    let config = bridge("attach = \"bridge\"\n").unwrap();
    let peers: Vec<_> = (0..3).map(|port| config.peer_of(port)).collect();
    assert_eq!(peers, [Some(2), None, Some(0)]);
    assert_eq!(config.ports[0].attach(), Attach::Bridge);
    assert_eq!(config.made_bridge(), None);
    let making = bridge("attach = \"bridge\"\n[router]\nmake_bridge = true\n").unwrap();
    assert_eq!(making.made_bridge().as_deref(), Some("ekb-eth0"));
    let third = "attach = \"bridge\"\n\
                 [[port]]\nname = \"c\"\ninterface = \"eth2\"\nattach = \"bridge\"\n";
    for (rest, wanted) in [
        ("", "router.toml:4: port.attach: attach = \"bridge\" joins two ports: 1 has it"),
        (third, "3 have it"),
        ("attach = \"bridge\"\nio = \"af-xdp\"\n", "router.toml:12: port.io: "),
    ] {
        let errors = bridge(rest).unwrap_err();
        assert!(errors.contains(wanted), "{rest}: {errors}");
    }
}

#[test]
fn a_change_of_attachment_is_told() {
    let routed = RouterConfig::parse(&INLINE.replace("inline", "route"), "router.toml").unwrap();
    let inline = parsed("").unwrap();
    let told = diff(&routed, &inline);
    assert!(told.iter().any(|line| line.contains("attach")), "{told:?}");
}

#[test]
fn own_traffic_comes_by_a_port_of_its_own_to_the_link_of_a_routed_one() {
    let routed = "[[port]]\nname = \"wan\"\ninterface = \"eth0\"\nown_traffic = true\n";
    let parsed = |rest: &str| RouterConfig::parse(&format!("{routed}{rest}"), "router.toml");
    let config = parsed("[[port]]\nname = \"lan\"\ninterface = \"eth1\"\n").unwrap();
    let ports: Vec<_> =
        config.ports.iter().map(|port| (port.name.as_str(), port.attach())).collect();
    let (route, kernel) = (Attach::Route, Attach::RouteKernel);
    assert_eq!(ports, [("wan", route), ("wan-own", kernel), ("lan", route)]);
    // What comes in by the interface goes where its route says.
    assert_eq!([0, 1, 2].map(|port| config.peer_of(port)), [None, Some(0), None]);
    for text in [config.text(), config.short_text()] {
        assert_eq!(RouterConfig::parse(&text, "again").unwrap(), config, "{text}");
    }
    for (rest, wanted) in [
        ("optional = true\n", "router.toml:4: port.own_traffic: not together with `optional`"),
        ("attach = \"inline\"\n", "router.toml:4: port.own_traffic: "),
        ("[[port]]\nname = \"wan-own\"\ninterface = \"eth9\"\n", "router.toml:6: port.name: "),
    ] {
        let errors = parsed(rest).unwrap_err().to_string();
        assert!(errors.contains(wanted), "{rest}: {errors}");
    }
}
