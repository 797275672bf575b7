//! What the machine itself sends by a routed port goes through its link, too.

use std::process::Stdio;
use std::thread::sleep;
use std::time::Duration;

use evenkeel_netns::testing::eventually;
use serde_json::Value;

use crate::hang::longest_silence;
use crate::run::Live;

/// A router that sends 20 Mbit/s by `wan`.
fn config(io: &str, own: bool) -> String {
    format!(
        "[router]\nio = \"{io}\"\n[[port]]\nname = \"lan\"\ninterface = \"lan\"\n[[port]]\n\
         name = \"wan\"\ninterface = \"wan\"\nown_traffic = {own}\n[[link]]\nport = \"wan\"\n\
         rate = \"20Mbit/s\"\n"
    )
}

/// Mbit/s of TCP from a node to `b`, for two seconds; it would send 100.
fn tcp(live: &Live, node: &str, port: u16) -> f64 {
    let server = live.net.start("b", &format!("iperf3 -s -1 -p {port}"));
    eventually("iperf3 listens", || live.net.output("b", "ss -ltn").contains(&format!(":{port}")));
    let said = live.net.output(node, &format!("iperf3 -c 10.2.0.2 -p {port} -t 2 -b 100M -J"));
    drop(server);
    let said: Value = serde_json::from_str(&said).unwrap();
    said["end"]["sum_received"]["bits_per_second"].as_f64().unwrap() / 1e6
}

/// Without the setting it passes by the link, and by its rate.
#[test]
fn without_own_traffic_it_passes_by_the_link() {
    let Some(live) = Live::with("own_by", &config("af-packet", false), 1) else { return };
    let rate = tcp(&live, "r", 5301);
    assert!(rate > 60.0, "{rate} Mbit/s");
}

fn goes_through_the_link(test: &str, io: &str) {
    let Some(mut live) = Live::with(test, &config(io, true), 1) else { return };
    let rate = tcp(&live, "r", 5302);
    assert!((10.0..20.0).contains(&rate), "{rate} Mbit/s");
    // What is forwarded goes as before.
    let rate = tcp(&live, "a", 5303);
    assert!((10.0..20.0).contains(&rate), "{rate} Mbit/s");
    let own = |show: &Value| {
        let ports = show["ports"].as_array().unwrap();
        let own = ports.iter().find(|port| port["name"] == "wan-own").unwrap();
        own["forwarded"].as_u64().unwrap()
    };
    assert!(own(&live.show()) > 1_000);

    // Hanging or killed it is in nobody's way.
    let ping = live.net.start("r", "ping -D -n -c 300 -i 0.01 -W 1 10.2.0.2");
    sleep(Duration::from_millis(500));
    live.signal("-STOP");
    sleep(Duration::from_secs(1));
    live.signal("-CONT");
    sleep(Duration::from_millis(500));
    live.signal("-KILL");
    let output = ping.wait();
    let silence = longest_silence(&output);
    assert!(silence <= 300.0 && !output.contains("DUP!"), "{silence} ms: {output}");
    live.router.wait().unwrap();
    assert!(tcp(&live, "r", 5304) > 60.0);

    // The next start finds what was left, and the end leaves nothing.
    live.start_with(Stdio::null(), Stdio::null());
    let rate = tcp(&live, "r", 5305);
    assert!((10.0..20.0).contains(&rate), "{rate} Mbit/s");
    live.signal("-TERM");
    live.router.wait().unwrap();
    let links = live.net.ip("r", "-br link");
    assert!(!links.contains("eku-") && !links.contains("ekh-"), "{links}");
}

#[test]
fn what_the_machine_sends_goes_through_the_link_of_packet_sockets() {
    goes_through_the_link("own_packet", "af-packet");
}

#[test]
fn what_the_machine_sends_goes_through_the_link_of_an_af_xdp_port() {
    goes_through_the_link("own_xdp", "af-xdp");
}
