//! Hosts of a home share its line: behind translated addresses, and over two networks.

use evenkeel_netns::testing::text;
use serde_json::Value;

use crate::gateway::{Home, iperf3_servers};

/// Mbit/s that arrive for a while of several hosts at once, each with so many connections; from
/// the server (`downwards`) or to it.
fn at_once(home: &Home, hosts: &[(&str, u32)], downwards: bool) -> Vec<f64> {
    let net = &home.net;
    let (servers, ports) = iperf3_servers(net, "s", hosts.len() as u16);
    let direction = if downwards { "-R" } else { "" };
    let clients: Vec<_> = hosts
        .iter()
        .zip(&ports)
        .map(|((host, streams), port)| {
            let more = format!("-t 4 -O 1 -C cubic -P {streams} {direction}");
            net.start(host, &format!("iperf3 -c 10.2.0.2 -p {port} -J {more}"))
        })
        .collect();
    let rate = |told: String| {
        let result: Value = serde_json::from_str(&told).unwrap_or_else(|_| panic!("{told}"));
        result["end"]["sum_received"]["bits_per_second"].as_f64().unwrap() / 1e6
    };
    let rates = clients.into_iter().map(|client| rate(client.wait())).collect();
    drop(servers);
    rates
}

/// All of them have the interface's address outside: one with 16 connections had 16 times the part
/// of one with a single one.
#[test]
fn hosts_behind_translated_addresses_have_the_same_both_ways() {
    let Some(mut home) = Home::new("hosts_translated") else { return };
    home.start("wan --down 20Mbit/s --up 20Mbit/s");
    for downwards in [false, true] {
        let rates = at_once(&home, &[("h", 16), ("h2", 1)], downwards);
        println!("downwards {downwards}: {rates:.1?} Mbit/s");
        assert!(rates[1] > 0.7 * rates[0], "downwards {downwards}: {rates:?}");
        assert!(rates[0] + rates[1] > 15.0, "downwards {downwards}: {rates:?}");
    }
    assert!(home.show()["translations"].as_u64().unwrap() >= 17);
    // The address outside has the port that was passed on, too.
    home.is_as_ever("while it runs");
}

/// LAN and guests, each attached inline, share one download and one upload.
#[test]
fn two_networks_behind_a_gateway_share_one_line() {
    let Some(mut home) = Home::new("hosts_networks") else { return };
    home.start("lan guest --inside --down 20Mbit/s --up 20Mbit/s");
    for downwards in [false, true] {
        let rates = at_once(&home, &[("h", 8), ("u", 1)], downwards);
        println!("downwards {downwards}: {rates:.1?} Mbit/s");
        assert!(rates[1] > 0.7 * rates[0], "downwards {downwards}: {rates:?}");
        let all = rates[0] + rates[1];
        assert!((15.0..20.0).contains(&all), "downwards {downwards}: {rates:?}");
    }
    home.is_as_ever("while it runs");
    let shown = home.show();
    let ports = shown["ports"].as_array().unwrap();
    let of = |name: &str, number: &str| {
        ports.iter().find(|port| port["name"] == name).unwrap()[number].as_u64().unwrap()
    };
    assert!(of("lan", "by_others") > 1_000);
    assert_eq!(of("lan", "by_others"), of("guest", "from_others"));
    let said = text(&home.ctl("rate guest 5Mbit/s"));
    assert!(said.contains("link lan"), "{said}");
    home.kill("-KILL");
    home.is_as_ever("after kill -9");
}
