//! `[cluster]` and `[balancer]`: what is refused, with file, line and valid range.

use evenkeel_cluster::Variant;
use evenkeel_config::{ForwarderState, Io, RouterConfig};

const PORT: &str = "[[port]]\nname = \"sw\"\ninterface = \"eth0\"\n";
const KEY: &str = "key = \"00112233445566778899aabbccddeeff\"\n";

fn forwarder(change: (&str, &str)) -> String {
    let text = format!(
        "{PORT}[cluster]\nnode = 1\nmembers = [1, 2]\nport = \"sw\"\nrate = \"10Mbit/s\"\n{KEY}\
         [[cluster.link]]\nname = \"a\"\nport = \"sw\"\nnext_hops = [\"10.0.0.1\"]\n"
    );
    assert!(text.contains(change.0), "{}", change.0);
    text.replacen(change.0, change.1, 1)
}

fn balancer(change: (&str, &str)) -> String {
    let text = format!(
        "{PORT}[balancer]\nport = \"sw\"\n[[balancer.forwarder]]\nid = 1\nmac = \
         \"02:00:00:00:00:01\"\n"
    );
    assert!(text.contains(change.0), "{}", change.0);
    text.replacen(change.0, change.1, 1)
}

fn error(text: &str) -> String {
    RouterConfig::parse(text, "r.toml").unwrap_err().to_string()
}

#[test]
fn defaults_are_filled_in() {
    let config = RouterConfig::parse(&forwarder(("node", "node")), "r.toml").unwrap();
    let cluster = config.cluster.as_ref().unwrap();
    let said = &cluster.config;
    assert_eq!((said.variant, said.l, said.p), (Variant::Pipelined, 25, 0));
    assert_eq!((said.framing.vlan, said.weights().collect::<Vec<_>>()), (3001, vec![1]));
    let printed = format!("{config:?}");
    assert!(printed.contains("ExchangeKey(..)") && !printed.contains("51"), "keys are not printed");
    let auto = forwarder((PORT, &format!("[router]\nio = \"auto\"\n{PORT}")));
    let config = RouterConfig::parse(&auto, "r.toml").unwrap();
    assert_eq!(config.io_of(&config.ports[0]), Io::AfPacket, "it knows the VLAN of a frame");
    let config = RouterConfig::parse(&balancer(("id", "id")), "r.toml").unwrap();
    assert_eq!(config.balancer.unwrap().forwarders[0].state, ForwarderState::Active);
}

#[test]
fn wrong_values_are_named() {
    for (change, line, says) in [
        (("node = 1", "node = 3"), 5, "3 is not among the members"),
        (("[1, 2]", "[2, 1]"), 6, "ids must ascend"),
        (("[1, 2]", "[]"), 6, "valid: 1 to 64"),
        (("00112233445566778899aabbccddeeff", "00"), 9, "32 hexadecimal digits"),
        (("rate = \"10Mbit/s\"", "rate = \"1bit/s\""), 8, "1kbit/s to"),
        (("10.0.0.1", "10.0.0.0/24"), 13, "is a network, not one address"),
        (("port = \"sw\"", "port = \"sv\""), 7, "did you mean \"sw\"?"),
        (("node = 1", "node = 1\nt_brr = \"1ms\""), 6, "did you mean `t_br`?"),
        (("node = 1", "node = 1\nvariant = \"x-ds\""), 6, "p-ds"),
        (("name = \"a\"", "name = \"a\"\nrate = \"1bit/s\""), 12, "1kbit/s to"),
        (
            ("node = 1", "node = 1\nforwarder_rate = \"9Mbit/s\""),
            6,
            "9 Mbit/s is less than the 10 Mbit/s of the fastest link",
        ),
    ] {
        let text = error(&forwarder(change));
        assert!(text.contains(&format!("r.toml:{line}: ")) && text.contains(says), "{text}");
    }
    for (change, line, says) in [
        (("02:00:00:00:00:01", "03:00:00:00:00:01"), 8, "Ethernet address of a station"),
        (("id = 1", "id = 1\nstate = \"out\""), 6, "all forwarders are out"),
        (("id = 1", "id = 1\nweight = 300"), 8, "1 to 256"),
    ] {
        let text = error(&balancer(change));
        assert!(text.contains(&format!("r.toml:{line}: ")) && text.contains(says), "{text}");
    }
    let both = forwarder(("node", "node")) + &balancer((PORT, ""));
    assert!(error(&both).contains("not both"));
    // AF_XDP hears the exchange, but not always which VLAN a frame was of.
    let xdp = format!("[router]\nio = \"af-xdp\"\nbuffer_size = \"2048B\"\n{PORT}");
    for text in [forwarder((PORT, &xdp)), balancer((PORT, &xdp))] {
        let of = |more: &str| {
            let port = "port = \"sw\"\n";
            let text = text.replace(KEY, "").replacen(port, &format!("{more}{port}"), 1);
            RouterConfig::parse(&text, "r.toml")
        };
        let open = of("").unwrap_err().to_string();
        assert!(open.contains("does not always tell the VLAN"), "{open}");
        let config = of("vlan = 0\n").unwrap();
        assert_eq!(config.exchange_at(&config.ports[0]), Some((0, 0x88b5)));
        let config = of(KEY).unwrap();
        assert_eq!(config.exchange_at(&config.ports[0]), Some((3_001, 0x88b5)));
        assert_eq!(config.io_of(&config.ports[0]), Io::AfXdp);
    }
    let busy = format!("[router]\nmode = \"busy\"\n{PORT}");
    for text in [forwarder((PORT, &busy)), balancer((PORT, &busy))] {
        assert!(error(&text).contains("excludes realtime = true"), "{}", error(&text));
    }
    let plain = format!("[router]\nmode = \"busy\"\nrealtime = true\n{PORT}");
    assert!(error(&plain).contains("excludes realtime = true"), "{}", error(&plain));
    let calm = forwarder((PORT, &busy)).replace("[cluster]\n", "[cluster]\nrealtime = false\n");
    assert!(RouterConfig::parse(&calm, "r.toml").is_ok());
}
