//! A scenario for unit tests: two hosts, two routers in a row, a sink.

use std::path::Path;

use evenkeel_scenario::Scenario;

pub(crate) const TEXT: &str = r#"
name = "test/row"
title = "two routers in a row"
seed = 3
sample = "100ms"
settle = "0s"
duration = "1s"

[[host]]
name = "b"
[[host]]
name = "h2"
[[host]]
name = "sink"
[[router]]
name = "r1"
[[router.config.class]]
name = "rest"
[[router.config.class]]
name = "marked"
match = [{ dscp = [10, 46] }, { source = "fd00:2::/64", destination_port = "6000-6010", protocol = "udp" }]
[[router.config.link]]
port = "r2"
rate = "10Mbit/s"
ring = { slots = 128, refill = "whole" }
dequeue_time = "4500ns"
[router.config.link.discipline]
kind = "lct"
limit = 20
x_delay = { rest = "200us" }
module2 = false
multi_backlog = "hold"
timer_tick = "10ms"
[[router.config.link]]
port = "b"
shaper = { rate = "5Mbit/s", burst = "3000B" }
[router.config.link.discipline]
kind = "wfq-altq"
select = "hash-full"
queues = 64
drop = "longest"
high_water = "32KiB"
[[router]]
name = "r2"
[[router.config.class]]
name = "rest"
[[router.config.class]]
name = "marked"
match = [{ dscp = 46 }, { destination_port = "6000" }]
[[router.config.link]]
port = "sink"
rate = "8Mbit/s"
[router.config.link.discipline]
kind = "wfq-altq"
weight = { rest = 30, marked = 1000 }
limit = 150
[[wire]]
ends = ["b", "r1"]
[[wire]]
ends = ["h2", "r1"]
mtu = 1400
[[wire]]
ends = ["r1", "r2"]
[[wire]]
ends = ["r2", "sink"]
[[traffic]]
name = "plain"
from = "b"
to = "sink"
kind = "cbr"
rate = "6Mbit/s"
size = "500B"
class = "rest"
[[traffic]]
name = "six"
from = "h2"
to = "sink"
kind = "poisson"
rate = "4Mbit/s"
size = "500B"
class = "marked"
ipv6 = true
port = 6000
[[traffic]]
name = "stop"
from = "h2"
to = "sink"
kind = "cbr"
rate = "1Mbit/s"
size = "500B"
class = "marked"
dscp = 46
tool = "iperf3"
"#;

/// The scenario.
pub(crate) fn scenario() -> Scenario {
    parse(TEXT)
}

/// A scenario of this text.
pub(crate) fn parse(text: &str) -> Scenario {
    Scenario::parse(text, "row.toml", Path::new(".")).unwrap_or_else(|errors| panic!("{errors}"))
}

/// A capture file of UDP packets over IPv4: (microseconds since the second 1000, IP length), an ARP
/// frame before them.
pub(crate) fn capture(packets: &[(u32, u16)]) -> Vec<u8> {
    let mut file = Vec::new();
    file.extend(0xa1b2_c3d4u32.to_le_bytes());
    file.extend([2, 0, 4, 0]);
    file.extend([0; 8]);
    file.extend(65_535u32.to_le_bytes());
    file.extend(1u32.to_le_bytes());
    let mut frame = |micros: u32, bytes: &[u8]| {
        for word in [1_000, micros, bytes.len() as u32, bytes.len() as u32] {
            file.extend(word.to_le_bytes());
        }
        file.extend(bytes);
    };
    let mut arp = [0; 42];
    arp[12..14].copy_from_slice(&[8, 6]);
    frame(0, &arp);
    for (micros, ip_len) in packets {
        let mut bytes = vec![0; 14 + usize::from(*ip_len)];
        bytes[12] = 8;
        let ip = &mut bytes[14..];
        ip[0] = 0x45;
        ip[2..4].copy_from_slice(&ip_len.to_be_bytes());
        ip[8..10].copy_from_slice(&[64, 17]);
        ip[12..20].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
        let sum = evenkeel_net::checksum::sum(&ip[..20]).checksum();
        ip[10..12].copy_from_slice(&sum.to_be_bytes());
        ip[24..26].copy_from_slice(&(ip_len - 20).to_be_bytes());
        frame(*micros, &bytes);
    }
    file
}
