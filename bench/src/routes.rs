//! `evenkeel-bench routes`: the routes of the whole Internet by way of FRR and the kernel, on a
//! router that runs.
//!
//! Host `a` announces them by BGP to FRR beside the router, which sets them in the kernel, which
//! the router follows. Measured: how long until the router has all of them and how far it is behind
//! the kernel meanwhile, how fast they came, what memory they take, that packets find their way,
//! and how long a change by `ip route` takes until packets follow it: from the moment that `ip` is
//! told to the first packet at host `b`, of one sent each 0.1 ms. Changes are measured while
//! nothing else goes on, while the table is loaded, and while the worker is offered more than it
//! can take.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{IpAddr, UdpSocket};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::sync::Mutex;
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
use crate::live::generator::Generator;
use crate::pipeline::frame_between;
use crate::timing::Spread;

const CONFIG: &str = "[[port]]\nname = \"lan\"\ninterface = \"lan\"\n[[port]]\nname = \
                      \"wan\"\ninterface = \"wan\"\n";
const CHANGES: usize = 50;
/// A network behind `b` whose route comes and goes.
const PROBED: &str = "198.18.0.0/24";
const PROBED_HOST: &str = "198.18.0.1:9";
/// Counting the kernel's routes holds a CPU that it gives to nobody meanwhile: no change is timed
/// then.
static COUNTING: Mutex<()> = Mutex::new(());
/// Longer than any of this takes on a machine that works.
const PATIENCE: Duration = Duration::from_secs(150);

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
        net.exec(
            node,
            "sysctl -qw net.ipv6.conf.all.accept_dad=0 net.ipv6.conf.default.accept_dad=0",
        )?;
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
    let lines: String =
        list.iter().map(|prefix| format!("route add blackhole {prefix}\n")).collect();
    ip_batch(&net, "a", &lines, folder)?;
    Ok(net)
}

fn bgp(number: u32, id: &str, peer: (&str, &str, u32), announces: bool) -> String {
    let (v4, v6, remote) = peer;
    let mut text = format!(
        "router bgp {number}\n bgp router-id {id}\n no bgp ebgp-requires-policy\n timers bgp 10 \
         60\n"
    );
    for address in [v4, v6] {
        text += &format!(
            " neighbor {address} remote-as {remote}\n neighbor {address} timers connect 1\n \
             neighbor {address} advertisement-interval 0\n"
        );
    }
    let redistribute = if announces { "  redistribute kernel\n" } else { "" };
    text += &format!(
        " address-family ipv4 unicast\n{redistribute}  no neighbor {v6} activate\n \
         exit-address-family\n \
         address-family ipv6 unicast\n{redistribute}  neighbor {v6} activate\n \
         exit-address-family\n"
    );
    text
}

fn routes(router: &Handle) -> Result<u64, Failure> {
    Ok(router.snapshot()?.routes)
}

/// How many routes the kernel of the router's namespace has, by its own statistics. It goes through
/// the whole of IPv4's tree for it.
fn kernel_routes(net: &Namespaces) -> Result<u64, Failure> {
    let read = |file: &str| std::fs::read_to_string(format!("/proc/thread-self/net/{file}"));
    let (v4, v6) = sys::in_netns(&net.name_of("r"), || {
        read("fib_triestat").and_then(|v4| Ok((v4, read("rt6_stats")?)))
    })??;
    // As long as there are no rules, the tables local and main are one, and shown twice.
    let prefixes = v4
        .lines()
        .filter_map(|line| line.trim().strip_prefix("Prefixes:")?.trim().parse::<u64>().ok());
    let entries = v6.split_whitespace().nth(3).and_then(|hex| u64::from_str_radix(hex, 16).ok());
    Ok(prefixes.max().unwrap_or(0) + entries.ok_or("rt6_stats has another form")?)
}

/// How the routes came, or went: seconds since `begin` and how many there were, in the router and
/// in the kernel.
struct Progress {
    begin: Instant,
    /// What the router counts that the kernel's statistics do not, before anything happens.
    apart: i64,
    router: Vec<(f64, u64)>,
    kernel: Vec<(f64, u64)>,
}

impl Progress {
    const LOOK: Duration = Duration::from_millis(20);
    /// Counting the kernel's routes takes some 0.1 s of a CPU.
    const LOOK_AT_KERNEL: Duration = Duration::from_millis(1_000);

    fn new(net: &Namespaces, router: &Handle) -> Result<Self, Failure> {
        let apart = routes(router)? as i64 - kernel_routes(net)? as i64;
        Ok(Self { begin: Instant::now(), apart, router: Vec::new(), kernel: Vec::new() })
    }

    fn look(&mut self, net: &Namespaces, router: &Handle) -> Result<(), Failure> {
        sleep(Self::LOOK);
        self.router.push((self.begin.elapsed().as_secs_f64(), routes(router)?));
        let last = self.kernel.last().map_or(0.0, |(at, _)| *at);
        if self.begin.elapsed().as_secs_f64() - last >= Self::LOOK_AT_KERNEL.as_secs_f64() {
            let _alone = COUNTING.lock();
            let before = self.begin.elapsed();
            let count = kernel_routes(net)?.saturating_add_signed(self.apart);
            // Counting takes a while, in which more come: this is what it was in the middle of it.
            self.kernel.push(((before + self.begin.elapsed()).as_secs_f64() / 2.0, count));
        }
        if self.begin.elapsed() > PATIENCE {
            return Err(format!(
                "after {PATIENCE:?}: router {:?}, kernel {:?}",
                self.router.last(),
                self.kernel.last()
            )
            .into());
        }
        Ok(())
    }

    /// Whether the kernel's routes have not changed for as many looks, and are as many as `enough`
    /// asks.
    fn is_quiet(&self, looks: usize, enough: impl Fn(u64) -> bool) -> bool {
        let mut last = self.kernel.iter().rev().take(looks).map(|(_, count)| *count);
        let Some(first) = last.next().filter(|_| self.kernel.len() >= looks) else { return false };
        enough(first) && last.all(|count| count == first)
    }

    /// When the router came to `count`, from whichever side.
    fn reached(&self, count: u64) -> Option<f64> {
        let up = self.router.first()?.1 <= count;
        let there = |(_, now): &&(f64, u64)| if up { *now >= count } else { *now <= count };
        self.router.iter().find(there).map(|(at, _)| *at)
    }

    /// By how much the router was behind the kernel, seconds: the largest of all looks at the
    /// kernel while routes came or went. Not less than nothing: the statistics take their time.
    fn lag(&self) -> f64 {
        let behind =
            |(at, count): &(f64, u64)| self.reached(*count).map(|reached| (reached - at).max(0.0));
        self.kernel.iter().filter_map(behind).fold(0.0, f64::max)
    }

    /// Routes per second in the fastest second of the router.
    fn fastest(&self) -> f64 {
        let rate = |(at, count): &(f64, u64)| {
            let later = self.router.iter().find(|(then, _)| *then >= at + 1.0)?;
            Some(later.1.abs_diff(*count) as f64 / (later.0 - at))
        };
        self.router.iter().filter_map(rate).fold(0.0, f64::max)
    }

    /// From the first change to the last, seconds.
    fn took(&self) -> Option<f64> {
        let (first, last) = (self.router.first()?.1, self.router.last()?.1);
        let begin = self.router.iter().find(|(_, count)| *count != first)?.0;
        Some(self.reached(last)? - begin)
    }
}

/// Something in the kernel's ear: `ip`, ready to be told.
struct Ip {
    process: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Ip {
    fn start(net: &Namespaces) -> Result<Self, Failure> {
        let mut command = net.command("r", "ip -force -batch -");
        let mut process =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let input = process.stdin.take().ok_or("ip has no input")?;
        let output = BufReader::new(process.stdout.take().ok_or("ip has no output")?);
        Ok(Self { process, input, output })
    }

    /// Returns when the kernel has carried it out: `ip` shows something else then.
    fn tell(&mut self, line: &str) -> Result<(), Failure> {
        writeln!(self.input, "{line}\nlink show lo").and_then(|()| self.input.flush())?;
        let mut shown = String::new();
        while !shown.contains("link/loopback") {
            shown.clear();
            if self.output.read_line(&mut shown)? == 0 {
                return Err("ip has ended".into());
            }
        }
        Ok(())
    }
}

impl Drop for Ip {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// How long a change took, milliseconds.
struct Change {
    /// From telling `ip` of a route to the first packet that takes it.
    all: f64,
    /// Of that, from when the kernel had it.
    ours: f64,
    /// From asking the worker for all its counters, as `evenkeel ctl show` does, to the answer.
    shown: f64,
}

/// Adds and removes a route and looks when packets take it, as often as `go_on` says of the number
/// so far.
fn changes(
    net: &Namespaces,
    router: &Handle,
    go_on: impl Fn(usize) -> bool + Send,
) -> Result<Vec<Change>, Failure> {
    let stop = AtomicBool::new(false);
    let (sender, arrivals) = channel();
    let (a, b) = (net.name_of("a"), net.name_of("b"));
    std::thread::scope(|scope| {
        scope.spawn(|| -> std::io::Result<()> {
            sys::enter_netns(&a)?;
            come_first();
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
            come_first();
            let socket = UdpSocket::bind(PROBED_HOST)?;
            socket.set_read_timeout(Some(Duration::from_millis(100)))?;
            while !stopped.load(Ordering::Relaxed) {
                if socket.recv(&mut [0; 16]).is_ok() && sender.send(Instant::now()).is_err() {
                    break;
                }
            }
            Ok(())
        });
        let told = scope.spawn(move || {
            come_first();
            each_change(net, router, go_on, &arrivals).map_err(|error| error.to_string())
        });
        let result = told.join();
        stop.store(true, Ordering::Relaxed);
        Ok(result.map_err(|_panic| "the changes ended in a panic")??)
    })
}

/// Who measures does not wait for those that are measured: neither do the programs that the thread
/// starts. Where that is not allowed, he waits.
fn come_first() {
    let _ = sys::set_precedence(true);
}

fn each_change(
    net: &Namespaces,
    router: &Handle,
    go_on: impl Fn(usize) -> bool,
    arrivals: &Receiver<Instant>,
) -> Result<Vec<Change>, Failure> {
    let mut ip = Ip::start(net)?;
    let mut times = Vec::with_capacity(CHANGES);
    while go_on(times.len()) {
        let alone = COUNTING.lock();
        let told = Instant::now();
        ip.tell(&format!("route add {PROBED} via 10.2.0.2"))?;
        let done = Instant::now();
        let first = arrivals.recv_timeout(Duration::from_secs(10))?;
        let ms = |since, until: Instant| until.saturating_duration_since(since).as_secs_f64() * 1e3;
        let asked = Instant::now();
        router.snapshot()?;
        let shown = ms(asked, Instant::now());
        drop(alone);
        times.push(Change { all: ms(told, first), ours: ms(done, first), shown });
        ip.tell(&format!("route del {PROBED}"))?;
        while arrivals.recv_timeout(Duration::from_millis(50)).is_ok() {}
    }
    Ok(times)
}

fn print_changes(what: &str, times: &[Change]) {
    if times.is_empty() {
        println!("  a change by `ip route`, {what} none was made");
        return;
    }
    let row = |name: &str, of: fn(&Change) -> f64| {
        let mut all: Vec<f64> = times.iter().map(of).collect();
        all.sort_by(f64::total_cmp);
        let late = all.iter().filter(|time| **time > 10.0).count();
        let p99 = all[(all.len() * 99).div_ceil(100) - 1];
        let Spread { median, min, max } = Spread::of(all);
        println!(
            "    {name:<34} {median:>7.2} ms ({min:.2} to {max:.2}, p99 {p99:.2}; {late} of {} \
             took more than 10 ms)",
            times.len()
        );
    };
    println!("  a change by `ip route`, {what}");
    row("from `ip` to the first packet:", |time| time.all);
    row("of it from when the kernel had it:", |time| time.ours);
    row("the answer to `ctl show`:", |time| time.shown);
}

/// The same while more packets come than the worker can take.
fn changes_under_overload(net: &Namespaces, router: &Handle, what: &str) -> Result<(), Failure> {
    let mac = |node: &str, interface: &str| {
        net.exec(node, &format!("cat /sys/class/net/{interface}/address"))
    };
    let (lan, b0) = (mac("r", "lan")?, mac("b", "b0")?);
    net.ip("r", &format!("neigh replace 10.2.0.9 lladdr {} dev wan nud permanent", b0.trim()))?;
    let lan: Vec<u8> =
        lan.trim().split(':').map(|part| u8::from_str_radix(part, 16)).collect::<Result<_, _>>()?;
    let frames = (0..64).map(|flow| frame_between(&lan, [10, 2, 0, 9], flow, 60)).collect();
    let generator = Generator::start(net.name_of("a"), "a0", 0, frames);
    let lost = || -> Result<u64, Failure> {
        Ok(router.snapshot()?.port("lan").map_or(0, |port| port.ring_loss))
    };
    generator.send(true);
    sleep(Duration::from_millis(200));
    let (begin, before, offered) = (Instant::now(), lost()?, generator.sent());
    let times = changes(net, router, |made| made < CHANGES)?;
    let (lost, offered) = (lost()? - before, generator.sent() - offered);
    let (share, rate) = (
        lost as f64 * 100.0 / offered as f64,
        offered as f64 / begin.elapsed().as_secs_f64() / 1e3,
    );
    print_changes(&format!("{what} ({rate:.0} kpps offered, {share:.0} % lost):"), &times);
    Ok(())
}

fn measure(v4: usize, v6: usize) -> Result<(), Failure> {
    println!(
        "A full table by FRR ({v4} IPv4 and {v6} IPv6 routes by BGP, set in the kernel, followed \
         by the router)"
    );
    let folder = tempfile::tempdir()?;
    let list = prefixes(v4, v6);
    let began = Instant::now();
    let net = bed(folder.path(), &list)?;
    println!("  (made for the neighbour to announce in {:.0} s)", began.elapsed().as_secs_f64());
    let options = Options {
        runtime_dir: folder.path().to_owned(),
        netns: Some(net.name_of("r")),
        report: Some(|text| eprintln!("  router: {text}")),
        cpu: Some(1)
            .filter(|_| std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() > 1)),
        ..Options::default()
    };
    let own = std::process::id();
    let router = Router::start(
        RouterConfig::parse(CONFIG, "routes.toml").map_err(|e| e.to_string())?,
        options,
    )?;
    print_changes("nothing else going on:", &changes(&net, &router, |made| made < CHANGES)?);
    changes_under_overload(&net, &router, "overloaded")?;
    // The flood has gone; what it left in the rings too.
    sleep(Duration::from_millis(500));
    let memory_before = resident(own);

    let mut progress = Progress::new(&net, &router)?;
    let (before, all) = (routes(&router)?, (v4 + v6) as u64);
    let daemon = |node: &str, bgp: String| Frr::start(&net, node, &[("bgpd", &bgp)]);
    let r = daemon("r", bgp(65_000, "10.1.0.1", ("10.1.0.2", "fd01::2", 65_001), false))?;
    let a = daemon("a", bgp(65_001, "10.1.0.2", ("10.1.0.1", "fd01::1", 65_000), true))?;
    while progress.router.last().is_none_or(|(_, count)| *count <= before + all / 1_000) {
        progress.look(&net, &router)?;
    }
    let loading = AtomicBool::new(true);
    let during = std::thread::scope(|scope| -> Result<Vec<Change>, Failure> {
        let during = scope.spawn(|| {
            changes(&net, &router, |_| loading.load(Ordering::Relaxed))
                .map_err(|error| error.to_string())
        });
        let followed = (|| -> Result<(), Failure> {
            while progress.router.last().is_none_or(|(_, count)| *count < before + all * 99 / 100) {
                progress.look(&net, &router)?;
            }
            Ok(())
        })();
        loading.store(false, Ordering::Relaxed);
        let times = during.join().map_err(|_panic| "the changes ended in a panic")?;
        followed?;
        Ok(times?)
    })?;
    // Some are refused on the way, by FRR or by the kernel: what counts is that the router has what
    // the kernel has.
    while !progress.is_quiet(3, |count| count >= before + all * 99 / 100) {
        progress.look(&net, &router)?;
    }
    let (ours, theirs) =
        (routes(&router)?, kernel_routes(&net)?.saturating_add_signed(progress.apart));
    println!(
        "  converged in {:.1} s from the first route to the last; fastest second: {:.0} routes; of \
         {all} announced the kernel has {}, the router {}",
        progress.took().unwrap_or(f64::NAN),
        progress.fastest(),
        theirs - before,
        ours - before
    );
    println!("  the router was behind the kernel by at most {:.2} s", progress.lag());
    print_changes("while they came:", &during);
    let grown = resident(own).saturating_sub(memory_before) as f64 / 1024.0;
    println!(
        "  memory of the router with its copy of the kernel's table: {grown:.0} MiB more than \
         before"
    );
    print_memory_of(&r);
    find_their_way(&net, &router, &list)?;
    print_changes("the table full:", &changes(&net, &router, |made| made < CHANGES)?);
    changes_under_overload(&net, &router, "the table full and overloaded")?;

    let mut progress = Progress::new(&net, &router)?;
    let full = routes(&router)?;
    progress.router.push((0.0, full));
    drop(a);
    while routes(&router)? > before + all / 1_000 {
        progress.look(&net, &router)?;
    }
    println!(
        "  withdrawn (their neighbour is gone) in {:.1} s; fastest second: {:.0} routes; behind \
         the kernel by at most {:.2} s",
        progress.took().unwrap_or(f64::NAN),
        progress.fastest(),
        progress.lag()
    );
    router.stop()?;
    Ok(())
}

fn print_memory_of(frr: &Frr) {
    for (name, process) in [("zebra", 0), ("bgpd", 1)] {
        let mib = resident(frr.processes()[process]) / 1024;
        println!("  for comparison, FRR's {name} beside it: {mib} MiB");
    }
}

/// Packets from `b` to a thousand of the routes: the router sends them on to `a`.
fn find_their_way(net: &Namespaces, router: &Handle, list: &[Prefix]) -> Result<(), Failure> {
    const PACKETS: u64 = 1_000;
    let forwarded = || -> Result<u64, Failure> {
        Ok(router.snapshot()?.port("wan").map_or(0, |port| port.forwarded))
    };
    let before = forwarded()?;
    let mut random = Random::new(9);
    let targets: Vec<IpAddr> =
        (0..PACKETS).map(|_| list[random.bits() as usize % list.len()].address()).collect();
    sys::in_netns(&net.name_of("b"), || -> std::io::Result<()> {
        let (v4, v6) = (UdpSocket::bind("10.2.0.2:0")?, UdpSocket::bind("[fd02::2]:0")?);
        for target in &targets {
            let socket = if target.is_ipv4() { &v4 } else { &v6 };
            // A host that is told of an earlier packet's fate says so once: then again.
            let _ = socket
                .send_to(b"found", (*target, 9))
                .or_else(|_| socket.send_to(b"found", (*target, 9)));
            sleep(Duration::from_micros(200));
        }
        Ok(())
    })??;
    sleep(Duration::from_millis(200));
    let found = forwarded()? - before;
    println!("  {found} packets of {PACKETS} to random routes were sent on");
    Ok(())
}
