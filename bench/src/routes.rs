//! `evenkeel-bench routes`: the routes of the whole Internet by way of FRR and the kernel, on a router that runs.
//!
//! Host `a` announces them by BGP to FRR beside the router, which sets them in the kernel, which the router follows. Measured: how long until the router
//! has all of them, how fast they came, what memory they take, that packets find their way, and how long a change by `ip route` takes until packets
//! follow it: from the moment that `ip` is told to the first packet at host `b`, of one sent each 0.1 ms.

use std::io::Write as _;
use std::net::{IpAddr, UdpSocket};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread::sleep;
use std::time::{Duration, Instant};

use evenkeel_config::RouterConfig;
use evenkeel_net::Prefix;
use evenkeel_netns::Namespaces;
use evenkeel_netns::frr::{Frr, ip_batch};
use evenkeel_ports::sys;
use evenkeel_router::{Handle, Options, Router};

use crate::fib::{Random, prefixes, resident};
use crate::timing::Spread;

const CONFIG: &str =
    "[[port]]\nname = \"lan\"\ninterface = \"lan\"\n[[port]]\nname = \"wan\"\ninterface = \"wan\"\n";
const CHANGES: usize = 20;
/// A network behind `b` whose route comes and goes.
const PROBED: &str = "198.18.0.0/24";
const PROBED_HOST: &str = "198.18.0.1:9";
/// Longer than any of this takes on a machine that works.
const PATIENCE: Duration = Duration::from_secs(300);

type Failure = Box<dyn std::error::Error>;

/// As many routes of each family.
pub(crate) fn run(v4: usize, v6: usize) {
    if !evenkeel_netns::testing::available("routes") || !Frr::available("routes") {
        return;
    }
    if let Err(error) = measure(v4, v6) {
        println!("  failed: {error}");
    }
}

fn bed(folder: &std::path::Path, list: &[Prefix]) -> Result<Namespaces, Failure> {
    let mut net = Namespaces::new();
    for node in ["a", "r", "b"] {
        net.add(node)?;
        net.exec(node, "sysctl -qw net.ipv6.conf.all.accept_dad=0 net.ipv6.conf.default.accept_dad=0")?;
        // IPv6 routes are few by default.
        net.exec(node, "sysctl -qw net.ipv6.route.max_size=2147483647")?;
    }
    net.wire(("a", "a0"), ("r", "lan"))?;
    net.wire(("b", "b0"), ("r", "wan"))?;
    for (node, address) in [
        ("a", "10.1.0.2/24 dev a0"),
        ("a", "fd01::2/64 dev a0"),
        ("r", "10.1.0.1/24 dev lan"),
        ("r", "fd01::1/64 dev lan"),
        ("r", "10.2.0.1/24 dev wan"),
        ("r", "fd02::1/64 dev wan"),
        ("b", "10.2.0.2/24 dev b0"),
        ("b", "fd02::2/64 dev b0"),
        ("b", "198.18.0.1/32 dev lo"),
    ] {
        net.ip(node, &format!("address add {address}"))?;
    }
    net.ip("a", "route add 198.18.0.0/24 via 10.1.0.1")?;
    net.ip("b", "route add default via 10.2.0.1")?;
    net.ip("b", "-6 route add default via fd02::1")?;
    net.exec("r", "sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1")?;
    let lines: String = list.iter().map(|prefix| format!("route add blackhole {prefix}\n")).collect();
    ip_batch(&net, "a", &lines, folder)?;
    Ok(net)
}

fn bgp(number: u32, id: &str, peer: (&str, &str, u32), announces: bool) -> String {
    let (v4, v6, remote) = peer;
    let mut text = format!(
        "router bgp {number}\n bgp router-id {id}\n no bgp ebgp-requires-policy\n timers bgp 10 60\n"
    );
    for address in [v4, v6] {
        text += &format!(
            " neighbor {address} remote-as {remote}\n neighbor {address} timers connect 1\n neighbor {address} advertisement-interval 0\n"
        );
    }
    let redistribute = if announces { "  redistribute kernel\n" } else { "" };
    text += &format!(
        " address-family ipv4 unicast\n{redistribute}  no neighbor {v6} activate\n exit-address-family\n \
         address-family ipv6 unicast\n{redistribute}  neighbor {v6} activate\n exit-address-family\n"
    );
    text
}

fn routes(router: &Handle) -> Result<u64, Failure> {
    Ok(router.snapshot()?.routes)
}

/// Waits until `done` says so of the number of routes; gives the time it took, and the most that came or went in a second.
fn follow(router: &Handle, done: impl Fn(u64) -> bool) -> Result<(Duration, f64), Failure> {
    const WINDOW: Duration = Duration::from_secs(1);
    let begin = Instant::now();
    let first = routes(router)?;
    let (mut fastest, mut at, mut count) = (0.0_f64, begin, first);
    loop {
        sleep(Duration::from_millis(20));
        let now = routes(router)?;
        let since = at.elapsed();
        if since >= WINDOW || done(now) {
            if since >= WINDOW {
                fastest = fastest.max(now.abs_diff(count) as f64 / since.as_secs_f64());
            }
            (at, count) = (Instant::now(), now);
        }
        if done(now) {
            // Where it took less than a second: all of it.
            let took = begin.elapsed();
            return Ok((took, fastest.max(now.abs_diff(first) as f64 / took.as_secs_f64())));
        }
        if begin.elapsed() > PATIENCE {
            return Err(format!("the router has {now} routes after {PATIENCE:?}").into());
        }
    }
}

/// Something in the kernel's ear: `ip`, ready to be told.
struct Ip {
    process: Child,
    input: ChildStdin,
}

impl Ip {
    fn start(net: &Namespaces) -> Result<Self, Failure> {
        let mut command = net.command("r", "ip -force -batch -");
        let mut process =
            command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        let input = process.stdin.take().ok_or("ip has no input")?;
        Ok(Self { process, input })
    }

    fn tell(&mut self, line: &str) -> Result<(), Failure> {
        Ok(writeln!(self.input, "{line}").and_then(|()| self.input.flush())?)
    }
}

impl Drop for Ip {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Milliseconds from telling `ip` of a route to the first packet that takes it.
fn changes(net: &Namespaces, router: &Handle) -> Result<Spread, Failure> {
    let stop = AtomicBool::new(false);
    let (sender, arrivals) = channel();
    let (a, b) = (net.name_of("a"), net.name_of("b"));
    std::thread::scope(|scope| {
        scope.spawn(|| -> std::io::Result<()> {
            sys::enter_netns(&a)?;
            let socket = UdpSocket::bind("10.1.0.2:0")?;
            while !stop.load(Ordering::Relaxed) {
                // What the router answers while there is no route comes back as an error.
                let _ = socket.send_to(b"probe", PROBED_HOST);
                sleep(Duration::from_micros(100));
            }
            Ok(())
        });
        let stopped = &stop;
        scope.spawn(move || -> std::io::Result<()> {
            sys::enter_netns(&b)?;
            let socket = UdpSocket::bind(PROBED_HOST)?;
            socket.set_read_timeout(Some(Duration::from_millis(100)))?;
            while !stopped.load(Ordering::Relaxed) {
                if socket.recv(&mut [0; 16]).is_ok() && sender.send(Instant::now()).is_err() {
                    break;
                }
            }
            Ok(())
        });
        let result = each_change(net, router, &arrivals);
        stop.store(true, Ordering::Relaxed);
        result
    })
}

fn each_change(net: &Namespaces, router: &Handle, arrivals: &Receiver<Instant>) -> Result<Spread, Failure> {
    let mut ip = Ip::start(net)?;
    let mut times = Vec::with_capacity(CHANGES);
    for _ in 0..CHANGES {
        let told = Instant::now();
        ip.tell(&format!("route add {PROBED} via 10.2.0.2"))?;
        let first = arrivals.recv_timeout(Duration::from_secs(10))?;
        times.push(first.duration_since(told).as_secs_f64() * 1e3);
        ip.tell(&format!("route del {PROBED}"))?;
        while arrivals.recv_timeout(Duration::from_millis(50)).is_ok() {}
        let _ = routes(router)?;
    }
    Ok(Spread::of(times))
}

fn print_changes(what: &str, changes: &Spread) {
    println!(
        "  a change by `ip route` until packets follow, {what:<26} {:>8.2} ms  ({:.2} to {:.2}, {CHANGES} changes)",
        changes.median, changes.min, changes.max
    );
}

fn measure(v4: usize, v6: usize) -> Result<(), Failure> {
    println!(
        "A full table by FRR ({v4} IPv4 and {v6} IPv6 routes by BGP, set in the kernel, followed by the router)"
    );
    let folder = tempfile::tempdir()?;
    let list = prefixes(v4, v6);
    let net = bed(folder.path(), &list)?;
    let options = Options {
        runtime_dir: folder.path().to_owned(),
        netns: Some(net.name_of("r")),
        report: Some(|text| eprintln!("  router: {text}")),
        ..Options::default()
    };
    let own = std::process::id();
    let memory_before = resident(own);
    let router =
        Router::start(RouterConfig::parse(CONFIG, "routes.toml").map_err(|e| e.to_string())?, options)?;
    print_changes("nothing else going on:", &changes(&net, &router)?);

    let before = routes(&router)?;
    let all = before + (v4 + v6) as u64;
    let r = Frr::start(&net, "r", &bgp(65_000, "10.1.0.1", ("10.1.0.2", "fd01::2", 65_001), false))?;
    let a = Frr::start(&net, "a", &bgp(65_001, "10.1.0.2", ("10.1.0.1", "fd01::1", 65_000), true))?;
    let (first, _) = follow(&router, |count| count > before)?;
    let (took, fastest) = follow(&router, |count| count >= all)?;
    println!(
        "  converged in {:.1} s after the first route (that one {:.1} s after FRR's start); fastest second: {:.0} routes",
        took.as_secs_f64(),
        first.as_secs_f64(),
        fastest
    );
    let grown = resident(own).saturating_sub(memory_before) as f64 / 1024.0;
    println!("  memory of the router with its copy of the kernel's table: {grown:.0} MiB more than before");
    for (name, process) in [("zebra", 0), ("bgpd", 1)] {
        let mib = resident(r.processes()[process]) / 1024;
        println!("  for comparison, FRR's {name} beside it: {mib} MiB");
    }
    find_their_way(&net, &router, &list)?;
    print_changes("the table full:", &changes(&net, &router)?);

    drop(a);
    let begin = Instant::now();
    let (took, fastest) = follow(&router, |count| count <= before)?;
    println!(
        "  withdrawn (their neighbour is gone) in {:.1} s; fastest second: {fastest:.0} routes; {:.1} s in all",
        took.as_secs_f64(),
        begin.elapsed().as_secs_f64()
    );
    router.stop()?;
    Ok(())
}

/// Packets from `b` to a thousand of the routes: the router sends them on to `a`.
fn find_their_way(net: &Namespaces, router: &Handle, list: &[Prefix]) -> Result<(), Failure> {
    const PACKETS: u64 = 1_000;
    let forwarded =
        || -> Result<u64, Failure> { Ok(router.snapshot()?.port("wan").map_or(0, |port| port.forwarded)) };
    let before = forwarded()?;
    let mut random = Random::new(9);
    let targets: Vec<IpAddr> =
        (0..PACKETS).map(|_| list[random.bits() as usize % list.len()].address()).collect();
    sys::in_netns(&net.name_of("b"), || -> std::io::Result<()> {
        let (v4, v6) = (UdpSocket::bind("10.2.0.2:0")?, UdpSocket::bind("[fd02::2]:0")?);
        for target in &targets {
            let socket = if target.is_ipv4() { &v4 } else { &v6 };
            // A host that is told of an earlier packet's fate says so once: then again.
            let _ =
                socket.send_to(b"found", (*target, 9)).or_else(|_| socket.send_to(b"found", (*target, 9)));
            sleep(Duration::from_micros(200));
        }
        Ok(())
    })??;
    sleep(Duration::from_millis(200));
    let found = forwarded()? - before;
    println!("  {found} packets of {PACKETS} to random routes were sent on");
    Ok(())
}
