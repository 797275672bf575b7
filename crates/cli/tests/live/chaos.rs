//! Everything around a router misbehaves at once, for as long as `EVENKEEL_CHAOS` says, seconds:
//! interfaces, routes, neighbours, files, commands, the log, the disk, the clock, and the process
//! itself, lists of subscribers. In between it must forward, its counters balance, and whatever its
//! audit finds broken has a cause that is known; in a long life its memory is what it was.

use std::collections::{BTreeMap, VecDeque};
use std::fs::{self, File};
use std::process::{Child, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use evenkeel_config::subscribers::SubscriberChange;
use evenkeel_control::{Client, Request};
use evenkeel_netns::testing::{eventually, text};
use evenkeel_router::Snapshot;

use crate::clocks::set_clock;
use crate::gateway::measured;
use crate::memory::Random;
use crate::run::{CONFIG, Live, TWO_WORKERS, command, end};

/// Address space that it may have.
const ALLOWED: &str = "--as=1200000000";
/// Its memory may grow by so much from the third quarter of a life to its end, kilobytes.
const GROWTH: u64 = 8 << 10;
/// Rounds of changes in a life in which nobody kills it, and how many there are between two looks
/// at its memory. The allocator keeps what threads have freed, up to a plateau that it reaches
/// after some 300 rounds of four changes, however fast they come.
const ROUNDS: usize = 800;
const BETWEEN: usize = 10;

fn seconds() -> u64 {
    let said = std::env::var("EVENKEEL_CHAOS").ok();
    said.map_or(12, |seconds| seconds.parse().expect("EVENKEEL_CHAOS: seconds"))
}

struct Chaos {
    live: Live,
    random: Random,
    config: String,
    /// What was done, how often.
    done: BTreeMap<&'static str, u64>,
    /// What the audits found, by cause: of routers that are no more, and of the one that runs.
    broken: [BTreeMap<String, u64>; 2],
    /// The last of it, for who wonders what went wrong.
    last: VecDeque<String>,
}

/// Steps that are told when something goes wrong.
const TOLD: usize = 20;

/// As [`CONFIG`], and who is behind `wan` has plans; the second worker hands the first one what it
/// receives for them.
fn subscribers() -> String {
    let (before, _) = CONFIG.split_once("discipline").expect("its link has one");
    format!(
        "[router]\nworkers = 2\n{before}[[tree]]\nsubscribers = \"people.csv\"\ndown = \"wan\"\n"
    )
}

/// Those who are on every list: the host behind `wan`, at a site that it may fill.
const ALWAYS: &str = "name,parent,prefixes,down,up\nsite,,,15,15\nb,site,10.2.0.2,12,12\n";
/// The most of others.
const PEOPLE: u64 = 20_000;

/// A list with so many more.
fn list(people: u64) -> String {
    let mut list = ALWAYS.to_owned();
    for at in 0..people {
        let (high, low) = (at >> 8, at & 255);
        list += &format!("host-{at},site,10.{}.{}.{low},5,5\n", 16 + (high >> 8), high & 255);
    }
    list
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
    fn new(test: &str, config: String, queues: u16) -> Option<Self> {
        let mut live = Live::prepared(test, &config, queues)?;
        let mut random = Random(5);
        fs::write(live.folder.path().join("people.csv"), list(0)).unwrap();
        live.router = limited(&live, &mut random);
        live.wait_until_it_forwards();
        let (done, broken, last) = Default::default();
        Some(Self { live, random, config, done, broken, last })
    }

    fn has_subscribers(&self) -> bool {
        self.config.contains("[[tree]]")
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
        let kinds = if self.has_subscribers() { 13 } else { 11 };
        let what = match self.random.below(kinds) {
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
                let [before, now] = &mut self.broken;
                for (cause, times) in std::mem::take(now) {
                    *before.entry(cause).or_default() += times;
                }
                self.live.router = limited(&self.live, &mut self.random);
                self.live.wait_until_it_forwards();
                "killed"
            }
            6 => {
                let mut text = self.config.replace("20Mbit/s", &format!("{}Mbit/s", 10 + number));
                if number.is_multiple_of(3) {
                    text.truncate(text.len() * number as usize / 200);
                    // Without this it may be a right file, of a router with one port.
                    text += "\n[[";
                }
                fs::write(self.live.folder.path().join("router.toml"), text).unwrap();
                self.live.signal("-HUP");
                fs::write(self.live.folder.path().join("router.toml"), &self.config).unwrap();
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
            9 => {
                // By up to an hour. The kernel's stamps do not go along, so not ahead by what they
                // are believed: that is for a moment only where the kernel's clock is set.
                let far = self.random.below(3_600) as i64;
                let ahead = if number.is_multiple_of(2) { -1 - far } else { 11 + far };
                match set_clock(self.live.router.id(), ahead) {
                    true => {
                        self.last.push_back(format!("{ahead} s ahead:"));
                        "the clock of the day set"
                    }
                    false => "nothing",
                }
            }
            11 => {
                // Every third is cut off somewhere; it is refused, or a list without some.
                let mut list = list(self.random.below(PEOPLE));
                if number.is_multiple_of(3) {
                    list.truncate(ALWAYS.len().max(list.len() * number as usize / 200));
                }
                self.reload(&list, number.is_multiple_of(2));
                "a list of subscribers, right and wrong"
            }
            12 => {
                let rate = format!("{}Mbit/s", 1 + number);
                let name = self.random.one(&["b", "site", "host-7", "nobody"]).to_owned();
                let change = match number % 4 {
                    0 => SubscriberChange::Remove { name },
                    1 => {
                        let place = format!("10.99.0.{number}");
                        let fields = [("prefixes", place), ("down", rate), ("up", "1".to_owned())];
                        let fields = fields.map(|(field, value)| (field.to_owned(), value));
                        SubscriberChange::Add {
                            name: format!("new-{number}"),
                            fields: fields.into(),
                        }
                    }
                    _ => SubscriberChange::Set { name, fields: vec![("down".to_owned(), rate)] },
                };
                let for_ms = number.is_multiple_of(5).then_some(20 + number);
                let request = Request::Subscriber { change, for_ms };
                let _ = self.client().map(|mut client| client.send(&request));
                "a subscriber changed"
            }
            _ => {
                sleep(Duration::from_millis(number));
                "nothing"
            }
        };
        *self.done.entry(what).or_default() += 1;
        self.last.push_back(format!("{what} ({port}, {number})"));
        self.last.drain(..self.last.len().saturating_sub(TOLD));
    }

    /// Another list; `yes`: it may be shorter by more than a tenth. Who starts next reads a right
    /// one.
    fn reload(&self, people: &str, yes: bool) {
        let place = self.live.folder.path().join("people.csv");
        fs::write(&place, people).unwrap();
        let file = self.live.folder.path().join("router.toml").display().to_string();
        let request = Request::Reload { text: self.config.clone(), file, confirm_ms: None, yes };
        let _ = self.client().map(|mut client| client.send(&request));
        fs::write(&place, list(0)).unwrap();
    }

    /// What a router held, kilobytes, once it forwards and its counters balance.
    fn check(&mut self) -> u64 {
        self.live.still_forwards();
        let snapshot = self.client().unwrap().show().unwrap();
        balances(&snapshot);
        self.broken[1].clear();
        for audit in snapshot.links.iter().filter_map(|link| link.audit.as_ref()) {
            for (cause, times) in &audit.by_cause {
                *self.broken[1].entry(cause.clone()).or_default() += times;
            }
            assert!(!audit.by_cause.contains_key("discipline"), "{audit:?}");
        }
        let status = fs::read_to_string(format!("/proc/{}/status", self.live.router.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches("kB").trim().parse().unwrap()
    }
}

impl Drop for Chaos {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("done at last:\n  {}", Vec::from(self.last.clone()).join("\n  "));
            eprintln!("{}", text(&self.live.ctl(&["show", "--json"])));
        }
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

fn chaos(test: &str, config: &str, queues: u16) {
    let Some(mut chaos) = Chaos::new(test, config.to_owned(), queues) else { return };
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
    let small = "{ kind = \"fifo\" }";
    let short = seconds() < 40;
    let rounds = if short { ROUNDS / 80 } else { ROUNDS };
    let set = |client: &mut Client, link: &str, value: &str| {
        let (link, value) = (link.to_owned(), value.to_owned());
        client.send(&Request::Discipline { link, value }).unwrap();
    };
    // Tables of any size that chaos has left may leave no room for others.
    let mut client = chaos.client().unwrap();
    ["lan", "wan"].iter().for_each(|link| set(&mut client, link, small));
    let mut held = Vec::new();
    for round in 0..rounds {
        if chaos.has_subscribers() {
            [PEOPLE, 0].iter().for_each(|people| chaos.reload(&list(*people), true));
        }
        let mut client = chaos.client().unwrap();
        for link in ["lan", "wan"] {
            for value in ["{ kind = \"pdrr\", flows = 65536, buffer = 65536 }", small] {
                set(&mut client, link, value);
            }
        }
        if short || round % BETWEEN == 0 {
            held.push(chaos.check());
        }
    }
    // A table that was replaced may not have gone yet when it is looked: what grows shows in the
    // least that it holds at last.
    let (early, late) = held[held.len() / 2..].split_at(held.len() / 4);
    let (early, late) = (early.iter().max().unwrap(), late.iter().min().unwrap());
    let mut text =
        format!("{test}: {steps} steps in {} s, {checks} checks, all balanced:\n", seconds());
    let each: Vec<String> =
        chaos.done.iter().map(|(what, times)| format!("{times} {what}")).collect();
    each.chunks(5).for_each(|some| text += &format!("  {}\n", some.join(", ")));
    let mut broken: BTreeMap<&str, u64> = BTreeMap::new();
    for (cause, times) in chaos.broken.iter().flatten() {
        *broken.entry(cause).or_default() += times;
    }
    let broken: Vec<String> =
        broken.iter().map(|(cause, times)| format!("{times} {cause}")).collect();
    text += &format!("promises broken, by cause: {}\n", broken.join(", "));
    text += &format!(
        "memory at most {early} kB in the third quarter of {} changes of tables, at least {late} \
         kB in the last\n",
        4 * rounds
    );
    measured(&format!("attacks-{test}"), &text);
    // A short life does not reach the plateau.
    assert!(short || *late <= early + GROWTH, "{early} kB, then {late} kB");
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

#[test]
fn f17_chaos_among_subscribers_stops_nothing_and_memory_is_flat() {
    chaos("chaos_subscribers", &subscribers(), 1);
}
