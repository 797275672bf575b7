//! What `evenkeel shape` says of short queues with nothing but two rates: hosts share first, all of
//! the line is used, and nobody waits for others. Real TCP between hosts whose addresses are not
//! translated. Needs root.

use std::time::{Duration, Instant};

use evenkeel_netns::processors::Processors;
use evenkeel_netns::testing::{TestNet, available, has_tool};
use serde_json::Value;

use crate::gateway::{Shaper, iperf3_servers, measured, sent};
use crate::shape::p99;

/// Megabits per second, both ways.
const RATE: f64 = 20.0;
const SERVER: &str = "10.2.0.2";

/// Three hosts behind a router, and a server.
fn campus(test: &str) -> Option<Shaper> {
    let tools = [("iperf3", "iperf3"), ("ping", "iputils-ping")];
    if !available(test) || !tools.iter().all(|(tool, package)| has_tool(test, tool, package)) {
        return None;
    }
    let net = TestNet::new(&["h", "h2", "h3", "g", "s"]);
    for (at, host) in ["h", "h2", "h3"].into_iter().enumerate() {
        net.wire((host, "eth0"), ("g", &format!("lan{at}")));
        net.ip("g", &format!("address add 10.1.{at}.1/24 dev lan{at}"));
        net.ip(host, &format!("address add 10.1.{at}.11/24 dev eth0"));
        net.ip(host, &format!("route add default via 10.1.{at}.1"));
    }
    net.wire(("s", "s0"), ("g", "wan"));
    net.ip("g", "address add 10.2.0.1/24 dev wan");
    net.ip("s", "address add 10.2.0.2/24 dev s0");
    net.ip("s", "route add default via 10.2.0.1");
    net.sysctl("g", "net.ipv4.ip_forward=1");
    Some(Shaper::new(net, "g"))
}

/// A window in which two hosts fill one direction, one with 16 connections, one with one.
#[derive(Debug)]
struct Filled {
    /// Of the rate, in bytes on the wire.
    used: f64,
    /// Mbit/s that arrived of the host with 16 connections, and of the one with one.
    hosts: [f64; 2],
    /// Milliseconds: 99 of 100 echo requests of a third host take at most so long.
    idle: f64,
    busy: f64,
    /// Mean of what TCP takes for its own round-trip time, milliseconds, of the same two hosts;
    /// only their system knows it.
    tcp: Option<[f64; 2]>,
}

fn fill(line: &Shaper, downwards: bool, seconds: u64) -> Filled {
    let net = &line.net;
    let ping = |count: usize| format!("ping -n -c {count} -i 0.01 -W 1 {SERVER}");
    let idle = p99(&net.output("h3", &ping(200)), 200);
    let (servers, ports) = iperf3_servers(net, "s", 2);
    // What they send at first is left out.
    let (omit, back) = (3, if downwards { "-R" } else { "" });
    let clients = [("h", ports[0], 16), ("h2", ports[1], 1)].map(|(host, port, connections)| {
        let what = format!("-P {connections} -t {seconds} -O {omit} -C cubic {back}");
        net.start(host, &format!("iperf3 -c {SERVER} -p {port} -J {what}"))
    });
    std::thread::sleep(Duration::from_secs(omit));
    let during = seconds - 1;
    let count = 100 * during as usize;
    let pings = net.start_for(seconds + 30, "h3", &ping(count));
    let link = if downwards { "wan-ingress" } else { "wan" };
    let (began, first) = (Instant::now(), line.show());
    std::thread::sleep(Duration::from_secs(during));
    let (took, last) = (began.elapsed().as_secs_f64(), line.show());
    let busy = p99(&pings.wait(), count);
    let told = clients.map(|client| rate_and_rtt(&client.wait()));
    drop(servers);
    Filled {
        used: (sent(&last, link).1 - sent(&first, link).1) as f64 * 8.0 / took / (RATE * 1e6),
        hosts: told.map(|(rate, _)| rate),
        idle,
        busy,
        tcp: (!downwards).then(|| told.map(|(_, rtt)| rtt)),
    }
}

/// What iperf3 says: Mbit/s of data that arrived, and what the connections of the sender took for
/// their round-trip time, in milliseconds.
fn rate_and_rtt(told: &str) -> (f64, f64) {
    let result: Value = serde_json::from_str(told).unwrap_or_else(|_| panic!("{told}"));
    let end = &result["end"];
    let rate = end["sum_received"]["bits_per_second"].as_f64();
    let rate = rate.unwrap_or_else(|| panic!("{told}")) / 1e6;
    let streams = end["streams"].as_array().unwrap();
    let rtt = |stream: &Value| stream["sender"]["mean_rtt"].as_f64().unwrap_or(0.0) / 1e3;
    (rate, streams.iter().map(rtt).sum::<f64>() / streams.len() as f64)
}

impl Filled {
    fn holds(&self) -> bool {
        let [many, one] = self.hosts;
        (0.98..1.01).contains(&self.used)
            && (many / one - 1.0).abs() <= 0.03
            && self.busy <= self.idle + 5.0
    }

    /// As the page shows it.
    fn rows(&self, direction: &str) -> String {
        let Self { used, hosts: [many, one], idle, busy, tcp } = self;
        let mut rows = format!(
            "{direction}, of the rate in bytes on the wire      {:.1} %\n  \
               the host with 16 connections, with one       {many:.2} and {one:.2} Mbit/s\n  \
               ping of a third host, 99 of 100 at most      {busy:.1} ms ({idle:.1} with nobody)\n",
            used * 100.0,
        );
        if let Some([many, one]) = tcp {
            let text = format!(
                "  TCP's own round-trip time, mean              {many:.0} and \
                                {one:.0} ms\n"
            );
            rows += &text;
        }
        rows
    }
}

#[test]
fn hosts_share_a_line_whatever_they_open_and_nobody_waits() {
    let Some(mut line) = campus("short_queues") else { return };
    line.start("wan --down 20Mbit/s --up 20Mbit/s");
    let seconds = std::env::var("EVENKEEL_LOADED").map_or(5, |text| text.parse().unwrap());
    let mut table = String::from("evenkeel shape wan --down 20Mbit/s --up 20Mbit/s\n\n");
    for (downwards, direction) in [(false, "up  "), (true, "down")] {
        let mut tries = 0;
        loop {
            let begun = Processors::now();
            let filled = fill(&line, downwards, seconds);
            let missing = begun.missing();
            println!("short queues, {direction}: {filled:.3?}, {missing:?}");
            if filled.holds() {
                table += &filled.rows(direction);
                break;
            }
            tries += 1;
            if tries == 3 {
                let Some(why) = missing else { panic!("{filled:?}") };
                println!("not judged: short queues: {why}");
                return;
            }
        }
    }
    measured("short-queues-live", &table);

    // By flow the host with 16 connections has nearly all: it is `fair` that makes the difference.
    line.kill("-TERM");
    line.start_file("wan --down 20Mbit/s --up 20Mbit/s", |file| {
        file.replace(", fair = \"source-flow\"", "")
    });
    let [many, one] = fill(&line, false, 4).hosts;
    assert!(many > 4.0 * one, "by flow: {many} and {one} Mbit/s");
    line.kill("-TERM");
    line.nothing_is_left();
}

/// What shapes a line, and what was seen on it while 16 connections filled it upwards.
#[derive(Debug)]
struct Way {
    name: &'static str,
    /// Mbit/s of data.
    data: f64,
    /// Milliseconds: 99 of 100 echo requests of another host take at most so long.
    ping: f64,
    /// Mean of what TCP takes for its round-trip time, milliseconds.
    tcp: f64,
}

/// Sixteen connections of one host fill the line for so long; another one pings.
fn upload(net: &TestNet, name: &'static str, seconds: u64) -> Way {
    let omit = 2;
    let (servers, ports) = iperf3_servers(net, "s", 1);
    let port = ports[0];
    let what = format!("iperf3 -c {SERVER} -p {port} -J -P 16 -t {seconds} -O {omit} -C cubic");
    let client = net.start("h", &what);
    std::thread::sleep(Duration::from_secs(omit));
    let count = 100 * (seconds - 1) as usize;
    let ping = format!("ping -n -c {count} -i 0.01 -W 2 {SERVER}");
    let ping = p99(&net.start_for(seconds + 30, "h3", &ping).wait(), count);
    let (data, tcp) = rate_and_rtt(&client.wait());
    drop(servers);
    Way { name, data, ping, tcp }
}

/// The same line with what this kernel has for it: a rate and one queue.
fn kernels_own(net: &TestNet, rate: u32, seconds: u64) -> [Way; 2] {
    let htb = [
        "root handle 1: htb default 1".to_owned(),
        format!("class add dev wan parent 1: classid 1:1 htb rate {rate}mbit"),
        "parent 1:1 pfifo limit 1000".to_owned(),
    ];
    let tbf = [format!("root tbf rate {rate}mbit burst 16k latency 50ms")];
    [("HTB and pfifo", &htb[..]), ("TBF", &tbf[..])].map(|(name, commands)| {
        for command in commands {
            match command.strip_prefix("class ") {
                Some(class) => net.output("g", &format!("tc class {class}")),
                None => net.output("g", &format!("tc qdisc add dev wan {command}")),
            };
        }
        let way = upload(net, name, seconds);
        net.output("g", "tc qdisc del dev wan root");
        way
    })
}

/// Sixteen connections on a line of 20 and of 100 Mbit/s, with what the kernel has for it and with
/// one line of ours, in the same run.
#[test]
fn sixteen_uploads_leave_pings_alone_as_no_single_queue_does() {
    let Some(mut line) = campus("short_queues_rivals") else { return };
    let asked = std::env::var("EVENKEEL_LOADED").ok();
    // At 20 Mbit/s what HTB's queue holds takes seconds to leave.
    let rates: &[u32] = if asked.is_some() { &[20, 100] } else { &[100] };
    let seconds = asked.map_or(3, |text| text.parse().unwrap());
    let mut table = String::from("16 connections up, CUBIC\n\n");
    for rate in rates.iter().copied() {
        let mut tries = 0;
        loop {
            let begun = Processors::now();
            let [htb, tbf] = kernels_own(&line.net, rate, seconds);
            line.start(&format!("wan --down {rate}Mbit/s --up {rate}Mbit/s"));
            let ours = upload(&line.net, "evenkeel shape", seconds);
            line.kill("-TERM");
            let missing = begun.missing();
            println!("short queues at {rate}: {htb:.3?}, {tbf:.3?}, {ours:.3?}, {missing:?}");
            let least = f64::from(rate) * 0.93;
            if ours.ping < 0.2 * htb.ping.min(tbf.ping) && ours.data > least {
                for Way { name, data, ping, tcp } in [htb, tbf, ours] {
                    table += &format!(
                        "{rate:>3} Mbit/s, {name:<15} {data:>5.1} Mbit/s of data, ping p99 \
                         {ping:>5.1} ms, TCP's own round trip {tcp:>4.0} ms\n"
                    );
                }
                break;
            }
            tries += 1;
            if tries == 3 {
                let Some(why) = missing else { panic!("{htb:?} {tbf:?} {ours:?}") };
                println!("not judged: short queues beside the kernel's: {why}");
                return;
            }
        }
    }
    measured("short-queues-beside", &table);
    line.nothing_is_left();
}
