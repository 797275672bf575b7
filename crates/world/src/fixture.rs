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
