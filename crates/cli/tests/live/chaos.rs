//! Everything around a router misbehaves at once, for as long as `EVENKEEL_CHAOS` says, seconds:
//! interfaces, routes, neighbours, files, commands, the log, the disk, and the process itself. In
//! between it must forward and its counters balance; in a long life its memory is what it was.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::process::{Child, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use evenkeel_control::{Client, Request};
use evenkeel_netns::testing::eventually;
use evenkeel_router::Snapshot;

use crate::gateway::measured;
use crate::memory::Random;
use crate::run::{CONFIG, Live, TWO_WORKERS, command, end};

/// Address space that it may have.
const ALLOWED: &str = "--as=1650000000";
/// Its memory may grow by so much from the first quarter of a life to its end, kilobytes.
const GROWTH: u64 = 24 << 10;
/// A life in which nobody kills it.
const LIFE: Duration = Duration::from_secs(20);

fn seconds() -> u64 {
    let said = std::env::var("EVENKEEL_CHAOS").ok();
    said.map_or(12, |seconds| seconds.parse().expect("EVENKEEL_CHAOS: seconds"))
}

struct Chaos {
    live: Live,
    random: Random,
    config: &'static str,
    /// What was done, how often.
    done: BTreeMap<&'static str, u64>,
}

/// The log goes where nobody reads, or to a full disk.
fn limited(live: &Live, random: &mut Random) -> Child {
    let plain = command(&live.net, &live.folder);
    let arguments = plain.get_args().take_while(|argument| *argument != "--capture");
    let mut command = std::process::Command::new("prlimit");
    command.arg(ALLOWED).arg("--").arg(plain.get_program()).args(arguments);
    let log = match random.below(3) {
        0 => Stdio::from(File::options().write(true).open("/dev/full").unwrap()),
        1 => Stdio::piped(),
        _ => Stdio::null(),
    };
    command.stdout(Stdio::null()).stderr(log).spawn().unwrap()
}

impl Chaos {
    fn new(test: &str, config: &'static str, queues: u16) -> Option<Self> {
        let mut live = Live::prepared(test, config, queues)?;
        let mut random = Random(5);
        live.router = limited(&live, &mut random);
        live.wait_until_it_forwards();
        Some(Self { live, random, config, done: BTreeMap::new() })
    }

    fn client(&self) -> Option<Client> {
        Client::connect(&self.live.folder.path().join("control.sock")).ok()
    }

    /// Something goes wrong.
    fn step(&mut self) {
        let port = self.random.one(&["lan", "wan"]);
        let own = if port == "lan" { "10.1.0.1/24" } else { "10.2.0.1/24" };
        let number = self.random.below(200);
        let ip = |line: &str| self.live.net.ip("r", line);
        let what = match self.random.below(10) {
            0 => {
                ip(&format!("link set {port} down"));
                sleep(Duration::from_millis(30));
                ip(&format!("link set {port} up"));
                "an interface down and up"
            }
            1 => {
                self.live.interface_leaves(port, own);
                "an interface away and back"
            }
            2 => {
                ip(&format!("link set {port} mtu {}", 1_280 + number));
                ip(&format!("link set {port} mtu 1500"));
                "another MTU"
            }
            3 => {
                for net in 0..50 {
                    ip(&format!("route replace 10.{}.{net}.0/24 via 10.2.0.2", 100 + number % 50));
                }
                ip("neighbour flush all");
                "routes and neighbours"
            }
            4 => {
                self.live.signal("-STOP");
                sleep(Duration::from_millis(50 + 2 * number));
                self.live.signal("-CONT");
                "stopped for a while"
            }
            5 => {
                self.live.router.kill().unwrap();
                self.live.router.wait().unwrap();
                self.live.router = limited(&self.live, &mut self.random);
                self.live.wait_until_it_forwards();
                "killed"
            }
            6 => {
                let mut text = self.config.replace("20Mbit/s", &format!("{}Mbit/s", 10 + number));
                if number.is_multiple_of(3) {
                    text.truncate(text.len() * number as usize / 200);
                }
                fs::write(self.live.folder.path().join("router.toml"), text).unwrap();
                self.live.signal("-HUP");
                fs::write(self.live.folder.path().join("router.toml"), self.config).unwrap();
                "files, right and wrong"
            }
            7 => {
                // Half of a request, and gone.
                use std::io::Write as _;
                use std::os::unix::net::UnixStream;
                let path = self.live.folder.path().join("control.sock");
                let stream = UnixStream::connect(path);
                let _ = stream.and_then(|mut stream| stream.write_all(b"{\"cmd\":\"sh"));
                "half a request"
            }
            8 => {
                let flows = 1_u64 << (number % 22);
                let value = format!("{{ kind = \"pdrr\", flows = {flows}, buffer = {flows} }}");
                let request = Request::Discipline { link: port.to_owned(), value };
                let _ = self.client().map(|mut client| client.send(&request));
                "a discipline, of any size"
            }
            _ => {
                sleep(Duration::from_millis(number));
                "nothing"
            }
        };
        *self.done.entry(what).or_default() += 1;
    }

    /// What a router held, kilobytes, once it forwards and its counters balance.
    fn check(&mut self) -> u64 {
        self.live.still_forwards();
        let snapshot = self.client().unwrap().show().unwrap();
        balances(&snapshot);
        let status = fs::read_to_string(format!("/proc/{}/status", self.live.router.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches("kB").trim().parse().unwrap()
    }
}

fn balances(snapshot: &Snapshot) {
    for (port, link) in snapshot.ports.iter().zip(&snapshot.links) {
        let dropped: u64 = port.dropped.values().sum();
        let known = port.to_host + port.exchange_received + port.forwarded + port.waiting + dropped;
        assert_eq!(port.rx_packets, known, "{port:?}");
        let held: u64 = link
            .classes
            .iter()
            .map(|class| {
                class.in_packets - class.sent_packets - class.dropped.values().sum::<u64>()
            })
            .sum();
        assert_eq!(held, link.queued + link.in_ring, "{link:?}");
    }
}

fn chaos(test: &str, config: &'static str, queues: u16) {
    let Some(mut chaos) = Chaos::new(test, config, queues) else { return };
    // A step can take long on a busy machine.
    let (server, mut client) = chaos.live.load_for(seconds() + 120);
    let (begin, mut steps, mut checks) = (Instant::now(), 0, 0);
    while begin.elapsed() < Duration::from_secs(seconds()) {
        for _ in 0..5 {
            chaos.step();
            steps += 1;
        }
        chaos.check();
        checks += 1;
    }
    assert!(client.try_wait().unwrap().is_none(), "there was load all the time");
    end(client);
    end(server);

    // A life under changes only: its memory is flat.
    let small = "{ kind = \"fifo\" }".to_owned();
    let (mut early, mut late) = (0, 0);
    let life = LIFE.min(Duration::from_secs(seconds() / 2));
    let begin = Instant::now();
    while begin.elapsed() < life {
        let mut client = chaos.client().unwrap();
        for link in ["lan", "wan"] {
            for value in ["{ kind = \"pdrr\", flows = 65536, buffer = 65536 }", &small] {
                let (link, value) = (link.to_owned(), value.to_owned());
                client.send(&Request::Discipline { link, value }).unwrap();
            }
        }
        let held = chaos.check();
        if begin.elapsed() < life / 4 {
            early = early.max(held);
        }
        late = held;
    }
    let mut text =
        format!("{test}: {steps} steps in {} s, {checks} checks, all balanced:\n", seconds());
    let each: Vec<String> =
        chaos.done.iter().map(|(what, times)| format!("{times} {what}")).collect();
    each.chunks(5).for_each(|some| text += &format!("  {}\n", some.join(", ")));
    text += &format!(
        "memory {early} kB early, {late} kB at the end of {} s of changes\n",
        life.as_secs()
    );
    measured(&format!("attacks-{test}"), &text);
    // The allocator keeps what threads have freed, up to a plateau beyond a short life.
    assert!(life < LIFE || late <= early + GROWTH, "{early} kB, then {late} kB");
    chaos.live.signal("-TERM");
    eventually("it ends", || chaos.live.router.try_wait().unwrap().is_some());
}

#[test]
fn f17_chaos_on_packet_sockets_stops_nothing_and_memory_is_flat() {
    chaos("chaos_af_packet", CONFIG, 1);
}

#[test]
fn f17_chaos_on_af_xdp_stops_nothing_and_memory_is_flat() {
    chaos("chaos_af_xdp", TWO_WORKERS, 4);
}
