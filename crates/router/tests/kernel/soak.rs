//! Everything changes under load, for as long as `EVENKEEL_SOAK` says (seconds; ten by default, ten
//! minutes in `make soak`): routes, neighbours, interfaces, ports, disciplines, rates, classes,
//! workers, buffers and the way to exchange frames, of one router that never stops. Nothing may
//! leak or get stuck.

use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::common::assert_conserved;
use evenkeel_config::RouterConfig;
use evenkeel_netns::frr::ip_batch;
use evenkeel_netns::testing::{available, eventually};
use evenkeel_netns::{Namespaces, ShellError};
use evenkeel_ports::sys;
use evenkeel_router::{Command, Handle, Options, Router, Snapshot};

/// Changes under load; then the load pauses, and everything must drain.
const EPOCH: Duration = Duration::from_secs(1);
/// What the process may have grown by between the leanest rest of the second quarter and that of
/// the second half, KiB.
const GROWTH: u64 = 16 << 10;
/// Neighbours of a network.
const NEIGHBOURS: u64 = 10_000;
const PORTS: [(&str, &str, &str, u8); 3] =
    [("a", "a0", "lan", 1), ("b", "b0", "wan", 2), ("c", "c0", "opt", 3)];

const DISCIPLINES: [&str; 6] = [
    "{ kind = \"fifo\", limit = 200 }",
    "{ kind = \"wfq-altq\", limit = 100, weight = { fast = 300 } }",
    "{ kind = \"wfq-altq\", limit = 30, weight = { fast = 7 } }",
    "{ kind = \"lct\", limit = 200 }",
    "{ kind = \"pdrr\", buffer = 300 }",
    "{ kind = \"afan\", limit = 300 }",
];

/// The same changes each time.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

/// What a router is to be next; everything is drawn.
fn config(random: &mut Random) -> RouterConfig {
    let mut pick = |from: &[&'static str]| from[random.below(from.len() as u64) as usize];
    let io = pick(&["af-packet", "af-xdp", "auto"]);
    let (workers, mode) = (pick(&["1", "2"]), pick(&["event", "event", "adaptive"]));
    let (buffers, hairpin) = (pick(&["4096", "6144"]), pick(&["forward", "drop"]));
    let mut text = format!(
        "[router]\nio = \"{io}\"\nworkers = {workers}\nmode = \"{mode}\"\nbuffers = \
         {buffers}\nhairpin = \"{hairpin}\"\nseed = 1\n"
    );
    // The third interface is a port or not, and the ports are numbered one way or the other.
    let mut ports: Vec<&str> = PORTS.iter().map(|(_, _, interface, _)| *interface).collect();
    match pick(&["all", "turned", "without", "without"]) {
        "all" => {}
        "turned" => ports.reverse(),
        _ => ports.retain(|port| *port != "opt"),
    }
    for port in &ports {
        text += &format!("[[port]]\nname = \"{port}\"\ninterface = \"{port}\"\n");
    }
    let dscp = pick(&["8", "46"]);
    text += &format!(
        "[[class]]\nname = \"slow\"\n[[class]]\nname = \"fast\"\nmatch = [{{ dscp = [{dscp}] }}]\n"
    );
    if pick(&["two", "two", "three"]) == "three" {
        text += "[[class]]\nname = \"third\"\nmatch = [{ destination_port = \"10\" , protocol = \
                 \"udp\" }]\n";
    }
    for port in ports.iter().filter(|port| **port != "lan") {
        let rate = 2 + random.below(30);
        let discipline = DISCIPLINES[random.below(DISCIPLINES.len() as u64) as usize];
        text += &format!(
            "[[link]]\nport = \"{port}\"\nrate = \"{rate}Mbit/s\"\ndiscipline = {discipline}\n"
        );
    }
    if workers == "1" {
        text += &format!("[fairdrop]\non = {}\n", random.below(2) == 0);
    }
    RouterConfig::parse(&text, "soak.toml").unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// What it is to be when its memory is looked at: the same each time.
fn at_rest() -> RouterConfig {
    let mut text = "[router]\nbuffers = 4096\nseed = 1\n".to_owned();
    for (_, _, interface, _) in PORTS {
        text += &format!("[[port]]\nname = \"{interface}\"\ninterface = \"{interface}\"\n");
    }
    RouterConfig::parse(&text, "soak.toml").unwrap_or_else(|error| panic!("{error}"))
}

fn reload(router: &Handle, config: RouterConfig) {
    let text = format!("{:?} {:?}", config.router, config.ports);
    let done = router.send(Command::Reload(Box::new(config)));
    done.unwrap_or_else(|error| panic!("{error}\n{text}"));
}

fn ok<T>(result: Result<T, ShellError>) -> T {
    result.unwrap_or_else(|error| panic!("{error}"))
}

fn wire(net: &Namespaces, (host, end, interface, number): (&str, &str, &str, u8)) {
    // Two workers need two queues.
    ok(net.wire_of_queues((host, end), ("r", interface), 2));
    ok(net.ip("r", &format!("address add 10.{number}.0.1/16 dev {interface}")));
    ok(net.ip(host, &format!("address add 10.{number}.0.2/16 dev {end}")));
    ok(net.ip(host, &format!("route add default via 10.{number}.0.1")));
}

/// Many flows to both links, more than they carry.
fn load(namespace: &str, stop: &AtomicBool, sent: &AtomicU64) {
    sys::enter_netns(namespace).unwrap();
    let sockets: Vec<UdpSocket> = (0..16).map(|_| UdpSocket::bind("10.1.0.2:0").unwrap()).collect();
    let mut random = Random(3);
    while !stop.load(Ordering::Relaxed) {
        for socket in &sockets {
            // Half to the hosts, half to anybody: of whom some are known, for a while, and most are
            // asked for in vain. They are few enough for the kernel's table of neighbours (1,024 by
            // default), which all namespaces of a machine have together: other tests are running.
            let host =
                if random.below(2) == 0 { (0, 2) } else { (random.below(40), 2 + random.below(5)) };
            let to = format!("10.{}.{}.{}:9", 2 + random.below(2), host.0, host.1);
            let payload = [0; 1_400];
            let len = 18 + random.below(1_300) as usize;
            // Refusals of the router come back as errors of later sends.
            if socket.send_to(&payload[..len], to).is_ok() {
                sent.fetch_add(1, Ordering::Relaxed);
            }
        }
        sleep(Duration::from_millis(2));
    }
}

/// Turns one thing or another.
fn churn(net: &Namespaces, router: &Handle, random: &mut Random, folder: &std::path::Path) {
    match random.below(8) {
        0..=2 => reload(router, config(random)),
        3 => {
            let (half, via) = (random.below(4), 2 + random.below(2));
            if random.below(2) == 0 {
                ok(net.ip("r", &format!("route flush root 100.{half}.0.0/16")));
                return;
            }
            let route = |i| format!("route replace 100.{half}.{i}.0/24 via 10.{via}.0.2\n");
            let lines: String = (0..256).map(route).collect();
            // The interface may have just been made anew: then its network is not there for a
            // moment.
            let _ = ip_batch(net, "r", &lines, folder);
        }
        4 => {
            let lines: String = (0..NEIGHBOURS / 20)
                .map(|i| {
                    format!(
                        "neigh replace 10.2.{}.{} lladdr 02:00:00:00:{:02x}:{:02x} dev wan nud \
                         permanent\n",
                        random.below(40),
                        3 + i % 250,
                        i / 256,
                        i % 256
                    )
                })
                .collect();
            ip_batch(net, "r", &lines, folder).unwrap();
        }
        5 => {
            let nud = ["permanent", "all"][random.below(2) as usize];
            let _ = net.ip("r", &format!("neigh flush all nud {nud}"));
        }
        6 => {
            ok(net.ip("r", "link set opt down"));
            ok(net.ip("r", "link set opt up"));
        }
        _ => {
            ok(net.ip("r", "link del opt"));
            wire(net, PORTS[2]);
        }
    }
}

/// Resident memory of this process, KiB.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}

/// The load is over: everything that is queued leaves, and what waits for a neighbour in vain, to
/// the `last`, is given up.
fn drains(router: &Handle, last: bool) {
    let empty =
        |snapshot: &Snapshot| snapshot.links.iter().all(|link| link.queued + link.in_ring == 0);
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        let snapshot = router.snapshot().unwrap();
        assert_conserved(&snapshot);
        let held = |port: &evenkeel_router::snapshot::PortSnapshot| {
            port.waiting + port.originated_waiting + port.tx_waiting
        };
        let waiting = snapshot.ports.iter().map(held).sum::<u64>();
        if empty(&snapshot) && (waiting == 0 || !last) {
            let buffers = &snapshot.buffers;
            let total = buffers.total + buffers.super_frames;
            assert_eq!(buffers.free + buffers.lent + waiting, total, "buffers are missing");
            return;
        }
        assert!(Instant::now() < end, "a queue is stuck: {:?}", snapshot.links);
        sleep(Duration::from_millis(20));
    }
}

#[test]
fn everything_changes_under_load_and_nothing_leaks_or_gets_stuck() {
    if !available("soak") {
        return;
    }
    let seconds = std::env::var("EVENKEEL_SOAK")
        .ok()
        .map_or(10, |text| text.parse().expect("EVENKEEL_SOAK: seconds"));
    let mut net = Namespaces::new();
    for node in ["a", "b", "c", "r"] {
        ok(net.add(node));
    }
    PORTS.iter().for_each(|port| wire(&net, *port));
    ok(net.exec("r", "sysctl -qw net.ipv4.ip_forward=1"));
    let folder = tempfile::tempdir().unwrap();
    let (stop, sent) = (AtomicBool::new(false), AtomicU64::new(0));
    let namespace = net.name_of("a");
    let mut random = Random(1);
    let options = Options {
        runtime_dir: folder.path().to_owned(),
        netns: Some(net.name_of("r")),
        report: Some(|text| eprintln!("report: {text}")),
        ..Options::default()
    };
    let router = Router::start(at_rest(), options).unwrap_or_else(|error| panic!("{error}"));
    let (begin, mut epoch, mut changes, mut sizes) = (Instant::now(), 0, 0, Vec::new());
    let mut counted = 0;
    while begin.elapsed() < Duration::from_secs(seconds) || epoch < 4 {
        stop.store(false, Ordering::Relaxed);
        std::thread::scope(|scope| {
            scope.spawn(|| load(&namespace, &stop, &sent));
            let life = Instant::now();
            // It ends also when a check fails.
            let changed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                while life.elapsed() < EPOCH {
                    churn(&net, &router, &mut random, folder.path());
                    let snapshot = router.snapshot().unwrap();
                    assert_conserved(&snapshot);
                    let now = snapshot.port("lan").unwrap().forwarded;
                    assert!(now >= counted, "counters go on: {now} after {counted}");
                    counted = now;
                    changes += 1;
                }
            }));
            stop.store(true, Ordering::Relaxed);
            if let Err(panic) = changed {
                std::panic::resume_unwind(panic);
            }
        });
        // It takes seconds until nobody is asked for any more.
        let rests = epoch % 4 == 3;
        if rests {
            reload(&router, at_rest());
        }
        drains(&router, rests);
        if rests {
            sizes.push(resident());
        }
        epoch += 1;
    }
    let last = router.snapshot().unwrap();
    let removed = last.removed.as_ref().map_or(0, |removed| removed.ports);
    println!(
        "{changes} changes in {epoch} epochs, {removed} ports removed, {counted} of {} packets \
         forwarded, {sizes:?} KiB",
        sent.load(Ordering::Relaxed)
    );
    // Threads come and go, and allocators keep some of what they had: it goes up and down, but a
    // leak lifts the least of it. The memory of the process is that of this test only where it runs
    // alone.
    let alone = std::env::var_os("EVENKEEL_SOAK").is_some();
    // First allocations are over after a quarter.
    let (early, late) = sizes[sizes.len() / 4..].split_at(sizes.len() / 4);
    if let (true, Some(early), Some(late)) = (alone, early.iter().min(), late.iter().min()) {
        assert!(*late < early + GROWTH, "memory grows: {sizes:?} KiB");
    }
    assert!(counted > 500 * epoch, "too few packets passed: {counted} in {epoch} epochs");
    // And after all of that it works.
    reload(&router, at_rest());
    eventually("a ping to pass", || net.exec("a", "ping -n -c 1 -W 1 10.2.0.2").is_ok());
    let last = router.stop().unwrap_or_else(|error| panic!("{error}"));
    assert_conserved(&last);
    assert_eq!(last.buffers.free, last.buffers.total, "what is held when it stops is given back");
}
