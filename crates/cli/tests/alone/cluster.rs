//! A cluster of processes on a real Ethernet segment: a kernel bridge as switch, a balancer, three
//! forwarders, three next hops, each in a namespace of its own. Needs root; says so and passes
//! otherwise.

#[cfg(feature = "etcd")]
mod etcd;
mod switch;
mod upgrade;
mod xdp;

use std::fmt::Write as _;
use std::net::UdpSocket;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use evenkeel_netns::processors::Processors;
use evenkeel_netns::testing::{TestNet, available, eventually};
use evenkeel_ports::sys;
use serde_json::Value;

const LINKS: usize = 3;
const FLOWS: u16 = 40;

/// Who the class voice is: a port, or all who live at a site.
const BY_PORT: &str = "match = [{ protocol = \"udp\", destination_port = 5001 }]\n";
const BY_SITE: &str = "nodes = [\"harbour\"]\n";

fn ports_and_classes() -> String {
    format!(
        "[[port]]\nname = \"switch\"\ninterface = \"eth0\"\n[[class]]\nname = \
         \"rest\"\n[[class]]\nname = \"voice\"\n{BY_PORT}"
    )
}

/// Where the packets for a link of one class go.
fn destination(link: usize, class: u16) -> (String, u16) {
    (format!("10.{}.{class}.1", 100 + link), 5000 + class)
}

/// Who lives where, if classes are sites.
const TOWN: &str = "name,parent,prefixes\n\
    harbour,,\nhill,,\n\
    ann,harbour,10.100.1.0/24;10.101.1.0/24\nbob,harbour,10.102.1.1\ncarol,hill,10.100.0.0/16\n";

fn forwarder(id: usize, seed: u64, membership: &str) -> String {
    let mut text = format!(
        "[router]\nname = \"f{id}\"\n{}[cluster]\nnode = {id}\nmembers = [1, 2, 3]\nport = \
         \"switch\"\nrate = \"10Mbit/s\"\n\
         key = \"00112233445566778899aabbccddeeff\"\nweight = {{ voice = 3 }}\nt_br = \"4ms\"\nl = \
         24\np = 12\nlimit = 400\nseed = {seed}\n",
        ports_and_classes()
    );
    for link in 0..LINKS {
        let _ = write!(
            text,
            "[[cluster.link]]\nname = \"l{link}\"\nport = \"switch\"\nnext_hops = \
             [\"10.7.0.{}\"]\n",
            21 + link
        );
    }
    text + membership
}

fn balancer(membership: &str) -> String {
    let mut text = format!(
        "[router]\nname = \"b\"\n{}[balancer]\nport = \"switch\"\nkey = \
                         \"00112233445566778899aabbccddeeff\"\n",
        ports_and_classes()
    );
    for id in 1..=3 {
        let _ = write!(text, "[[balancer.forwarder]]\nid = {id}\nmac = \"02:00:00:00:01:0{id}\"\n");
    }
    text + membership
}

/// Counts of one (link, class).
#[derive(Default)]
struct Sink {
    packets: AtomicU64,
}

struct Cluster {
    /// Two clusters at once are more than two cores carry.
    processes: Vec<(String, Child)>,
    sinks: Vec<Arc<Sink>>,
    sent: Arc<AtomicU64>,
    /// Microseconds between two bursts of the source, one packet of each link and class.
    pause: Arc<AtomicU64>,
    /// Longest pause of arrivals at all sinks together since it was last set to zero, and the last
    /// arrival, in microseconds since `begin`.
    gap: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
    folder: tempfile::TempDir,
    net: TestNet,
}

impl Cluster {
    fn new() -> Self {
        Self::of("", "")
    }

    /// In the file of each router, `router` is added to that table and `membership` at the end.
    fn of(router: &str, membership: &str) -> Self {
        let with = |text: String| text.replacen("[router]\n", &format!("[router]\n{router}"), 1);
        Self::with(|text| with(text) + membership)
    }

    /// The class voice is who lives at the harbour, wherever that is: a prefix behind each link.
    fn of_sites() -> Self {
        let tree = "[[tree]]\nsubscribers = \"town.csv\"\n";
        Self::with(|text| text.replace(BY_PORT, BY_SITE) + tree)
    }

    /// The file of each router as `edit` makes it.
    fn with(edit: impl Fn(String) -> String) -> Self {
        let nodes = ["sw", "f1", "f2", "f3", "n0", "n1", "n2", "lb", "src", "ed"];
        let net = TestNet::new(&nodes);
        net.ip("sw", "link add br0 type bridge");
        net.ip("sw", "link set br0 up");
        let hosts = [
            ("f1", 11, "01:01"),
            ("f2", 12, "01:02"),
            ("f3", 13, "01:03"),
            ("n0", 21, "02:01"),
            ("n1", 22, "02:02"),
            ("n2", 23, "02:03"),
            ("lb", 1, "03:01"),
            ("src", 9, "04:01"),
            ("ed", 2, "05:01"),
        ];
        for (node, address, mac) in hosts {
            net.wire((node, "eth0"), ("sw", node));
            net.ip("sw", &format!("link set {node} master br0"));
            net.ip(node, &format!("link set eth0 address 02:00:00:00:{mac}"));
            net.ip(node, &format!("address add 10.7.0.{address}/24 dev eth0"));
            net.hush(node, "eth0");
        }
        for link in 0..LINKS {
            for class in 0..2 {
                let address = destination(link, class).0;
                net.ip(&format!("n{link}"), &format!("address add {address}/32 dev lo"));
            }
            net.ip(&format!("n{link}"), "route add 192.0.2.0/24 via 10.7.0.9");
            net.ip("src", &format!("route add 10.{}.0.0/16 via 10.7.0.1", 100 + link));
            for forwarder in ["f1", "f2", "f3"] {
                let via = format!("route add 10.{}.0.0/16 via 10.7.0.{}", 100 + link, 21 + link);
                net.ip(forwarder, &via);
            }
        }
        let mut cluster = Self {
            processes: Vec::new(),
            sinks: Vec::new(),
            sent: Arc::default(),
            pause: Arc::new(AtomicU64::new(0)),
            gap: Arc::default(),
            stop: Arc::default(),
            threads: Vec::new(),
            folder: tempfile::tempdir().unwrap(),
            net,
        };
        std::fs::write(cluster.folder.path().join("town.csv"), TOWN).unwrap();
        for id in 1..=3 {
            cluster.start(&format!("f{id}"), &edit(forwarder(id, 1, "")));
        }
        cluster.start("lb", &edit(balancer("")));
        cluster.traffic();
        cluster
    }

    fn start(&mut self, node: &str, text: &str) {
        let file = self.folder.path().join(format!("{node}.toml"));
        std::fs::write(&file, text).unwrap();
        let log = std::fs::File::create(self.folder.path().join(format!("{node}.log"))).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_evenkeel"));
        command.arg("run").arg(&file).arg("--socket").arg(self.socket(node));
        for folder in ["EVENKEEL_RUNTIME_DIR", "EVENKEEL_STATE_DIR"] {
            command.env(folder, self.folder.path().join(format!("{node}.state")));
        }
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        sys::die_with_parent(&mut command);
        sys::spawn_in_netns(&mut command, &self.net.name(node)).unwrap();
        self.processes.push((node.to_owned(), command.spawn().unwrap()));
        eventually("the router answers", || self.ctl(node, &["show"]).0);
    }

    fn socket(&self, node: &str) -> std::path::PathBuf {
        self.folder.path().join(format!("{node}.sock"))
    }

    fn ctl(&self, node: &str, arguments: &[&str]) -> (bool, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_evenkeel"));
        let output = command
            .args(["ctl", "--socket"])
            .arg(self.socket(node))
            .args(arguments)
            .output()
            .unwrap();
        (output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned())
    }

    fn show(&self, node: &str) -> Value {
        serde_json::from_str(&self.ctl(node, &["show", "--json"]).1).unwrap()
    }

    fn log(&self, node: &str) -> String {
        std::fs::read_to_string(self.folder.path().join(format!("{node}.log"))).unwrap()
    }

    /// Ends a router in good order.
    fn stop(&mut self, node: &str) {
        self.signal(node, "-TERM");
        let at = self.processes.iter().position(|(name, _)| name == node).unwrap();
        let (_, mut child) = self.processes.remove(at);
        assert!(child.wait().unwrap().success(), "{node}: {}", self.log(node));
    }

    fn kill(&mut self, node: &str) {
        let at = self.processes.iter().position(|(name, _)| name == node).unwrap();
        let (_, mut child) = self.processes.remove(at);
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// A source that goes on until the end, and a counting sink for each link and class.
    fn traffic(&mut self) {
        let begin = Instant::now();
        let last = Arc::new(AtomicU64::new(0));
        for link in 0..LINKS {
            for class in 0..2_u16 {
                let sink = Arc::new(Sink::default());
                self.sinks.push(Arc::clone(&sink));
                let (stop, gap, last) =
                    (Arc::clone(&self.stop), Arc::clone(&self.gap), Arc::clone(&last));
                let namespace = self.net.name(&format!("n{link}"));
                self.threads.push(std::thread::spawn(move || {
                    sys::enter_netns(&namespace).unwrap();
                    let socket = UdpSocket::bind(destination(link, class)).unwrap();
                    socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
                    let mut buffer = [0; 2048];
                    while !stop.load(Ordering::Relaxed) {
                        if socket.recv(&mut buffer).is_ok() {
                            sink.packets.fetch_add(1, Ordering::Relaxed);
                            let now = begin.elapsed().as_micros() as u64;
                            let before = last.fetch_max(now, Ordering::Relaxed);
                            gap.fetch_max(now.saturating_sub(before), Ordering::Relaxed);
                        }
                    }
                }));
            }
        }
        let (stop, sent, pause) =
            (Arc::clone(&self.stop), Arc::clone(&self.sent), Arc::clone(&self.pause));
        let namespace = self.net.name("src");
        self.threads.push(std::thread::spawn(move || {
            sys::enter_netns(&namespace).unwrap();
            let sockets: Vec<_> = (0..FLOWS)
                .map(|flow| UdpSocket::bind(("10.7.0.9", 20_000 + flow)).unwrap())
                .collect();
            let mut turn = 0;
            let mut due = Instant::now();
            while !stop.load(Ordering::Relaxed) {
                let pause = Duration::from_micros(pause.load(Ordering::Relaxed));
                if pause.is_zero() {
                    std::thread::sleep(Duration::from_millis(5));
                    due = Instant::now();
                    continue;
                }
                for link in 0..LINKS {
                    for class in 0..2_u16 {
                        let to = destination(link, class);
                        let done = sockets[turn % sockets.len()].send_to(&[0; 972], to);
                        sent.fetch_add(u64::from(done.is_ok()), Ordering::Relaxed);
                    }
                }
                turn += 1;
                due += pause;
                std::thread::sleep(due.saturating_duration_since(Instant::now()));
            }
        }));
    }

    /// What the balancer says of a forwarder.
    fn health(&self, id: usize) -> String {
        let show = self.show("lb");
        show["balancer"]["forwarders"][id - 1]["health"].as_str().unwrap_or_default().to_owned()
    }

    fn signal(&self, node: &str, signal: &str) {
        let (_, child) = self.processes.iter().find(|(name, _)| name == node).unwrap();
        let status = Command::new("kill").args([signal, &child.id().to_string()]).status();
        assert!(status.unwrap().success());
    }

    /// Every link is full, has no more than its rate, and classes have 3 : 1. A window in which the
    /// host took CPU time away, or others of the machine wanted more than there is, is not judged;
    /// any other one is.
    fn assert_scheduled(&self, what: &str, least: f64) {
        self.assert_shares(what, least, 0.02);
    }

    /// The same with two forwarders, which send on two of the three links at a time. Links have
    /// two thirds of their rates together; each by itself has more as long as more waits for it.
    fn assert_two_scheduled(&self, what: &str) {
        self.assert_links(what, 0.5, 0.63, 0.02);
    }

    /// The same with shares within `tolerance`, for where a forwarder has less than it could send:
    /// its classes get what they ask for.
    fn assert_shares(&self, what: &str, least: f64, tolerance: f64) {
        self.assert_links(what, least, least, tolerance);
    }

    /// Each link has `least` of its rate, and all of them `together` on average.
    fn assert_links(&self, what: &str, least: f64, together: f64, tolerance: f64) {
        let mut tries = 0;
        loop {
            let before = Processors::now();
            let counts = self.during(Duration::from_millis(1_500));
            let missing = before.missing();
            let full = 1.5 * 10e6 / 8.0 / 1_038.0;
            let of = |link: usize| (counts[2 * link] as f64, counts[2 * link + 1] as f64);
            let links: Vec<_> = (0..LINKS)
                .map(of)
                .map(|(rest, voice)| ((rest + voice) / full, voice / (rest + voice)))
                .collect();
            println!("{what}: parts of the rates, of voice: {links:.3?}");
            // More than its rate, and a window of packets (2 %), is never an accident: something
            // was sent unscheduled.
            assert!(links.iter().all(|(used, _)| *used < 1.05), "{what}: unscheduled {links:?}");
            let fair = |(used, voice): &(f64, f64)| {
                *used > least && (voice / 0.75 - 1.0).abs() <= tolerance
            };
            let mean = links.iter().map(|(used, _)| used).sum::<f64>() / LINKS as f64;
            if mean > together && links.iter().all(fair) {
                return;
            }
            tries += 1;
            let Some(why) = missing else { panic!("{what}: {links:?}") };
            println!("{what}: not judged: {why}");
            if tries == 4 {
                return;
            }
        }
    }

    /// Bursts of a packet for each link and class, so far apart; zero: silence.
    fn offer(&self, pause: Duration) {
        self.pause.store(pause.as_micros() as u64, Ordering::Relaxed);
    }

    fn counts(&self) -> Vec<u64> {
        self.sinks.iter().map(|sink| sink.packets.load(Ordering::Relaxed)).collect()
    }

    /// Packets of each link and class within `time`.
    fn during(&self, time: Duration) -> Vec<u64> {
        let before = self.counts();
        std::thread::sleep(time);
        self.counts().iter().zip(before).map(|(now, before)| now - before).collect()
    }

    /// Whether voice has this part of each link, within `tolerance`.
    fn assert_share(&self, what: &str, counts: &[u64], part: f64, tolerance: f64) {
        for link in 0..LINKS {
            let (rest, voice) = (counts[2 * link] as f64, counts[2 * link + 1] as f64);
            let share = voice / (rest + voice);
            println!(
                "{what}: link {link}: {rest} and {voice} packets, voice has {share:.4} of {part}"
            );
            assert!((share / part - 1.0).abs() <= tolerance, "{what}: {counts:?}");
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for (_, child) in &mut self.processes {
            let _ = child.kill();
            let _ = child.wait();
        }
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

#[test]
fn three_processes_behind_a_bridge_are_one_router() {
    if !available("three_processes_behind_a_bridge_are_one_router") {
        return;
    }
    let mut cluster = Cluster::new();
    let master = |cluster: &Cluster, node: &str| cluster.show(node)["cluster"]["master"].as_u64();
    eventually("all follow node 1", || {
        ["f1", "f2", "f3"].iter().all(|node| master(&cluster, node) == Some(1))
    });

    // Little is offered: everything arrives, also while forwarder 3 is drained and comes back.
    cluster.offer(Duration::from_millis(4));
    std::thread::sleep(Duration::from_millis(800));
    assert!(cluster.ctl("lb", &["balancer", "3", "draining"]).0);
    std::thread::sleep(Duration::from_millis(400));
    assert!(cluster.ctl("lb", &["balancer", "3", "active"]).0);
    std::thread::sleep(Duration::from_millis(400));
    cluster.offer(Duration::ZERO);
    let sent = || cluster.sent.load(Ordering::Relaxed);
    eventually("all that was sent has arrived", || cluster.counts().iter().sum::<u64>() == sent());
    assert!(sent() > 1_000);
    let balancer = &cluster.show("lb")["balancer"];
    assert_eq!(balancer["moved"], 0);
    assert!(
        balancer["forwarders"]
            .as_array()
            .unwrap()
            .iter()
            .all(|one| one["packets"].as_u64() > Some(0))
    );

    // More than the links carry.
    cluster.offer(Duration::from_micros(600));
    std::thread::sleep(Duration::from_millis(1_000));
    let counts = cluster.during(Duration::from_secs(3));
    cluster.assert_share("backlogged", &counts, 0.75, 0.01);
    let full = 3.0 * 10e6 / 8.0 / 1_038.0 * LINKS as f64;
    let used = counts.iter().sum::<u64>() as f64 / full;
    println!("use of the links: {used:.3}");

    // The master is killed: the next one goes on, and the balancer hears it.
    let before = cluster.show("f2")["cluster"]["cycle"].as_u64().unwrap();
    cluster.gap.store(0, Ordering::Relaxed);
    cluster.kill("f1");
    eventually("node 2 is master", || master(&cluster, "f3") == Some(2));
    eventually("the balancer has heard it", || cluster.health(1) == "silent");
    std::thread::sleep(Duration::from_millis(500));
    let pause = cluster.gap.load(Ordering::Relaxed);
    let after = cluster.show("f2")["cluster"]["cycle"].as_u64().unwrap();
    println!(
        "no packet for {} ms after the master was killed; cycles {before} to {after}",
        pause / 1_000
    );
    assert!(pause < 2_000_000, "service stopped for {pause} us");
    assert!(cluster.show("lb")["balancer"]["moved"].as_u64() > Some(0));
    assert!(cluster.log("f2").contains("node 1 is silent"), "{}", cluster.log("f2"));

    // It comes back with another configuration: refused, and named.
    cluster.start("f1", &forwarder(1, 7, ""));
    eventually("node 1 is named", || {
        cluster.log("f2").contains("node 1 has another configuration")
    });
    assert_eq!(master(&cluster, "f3"), Some(2));
    let refused = &cluster.show("f2")["cluster"]["refused"];
    assert!(refused["other_configuration"].as_u64() > Some(0), "{refused}");
}

/// Of a forwarder with several workers the first one speaks in the exchange, whatever worker its
/// frames come to, and sends what the cluster grants; of a balancer it hears for all.
#[test]
fn routers_with_several_workers_are_members_as_others_are() {
    if !available("routers_with_several_workers_are_members_as_others_are") {
        return;
    }
    let mut cluster = Cluster::of("workers = 2\n", "");
    cluster.offer(Duration::from_micros(600));
    std::thread::sleep(Duration::from_millis(1_500));
    cluster.assert_scheduled("two workers", 0.9);
    let show = cluster.show("f2");
    let workers = show["workers"].as_array().unwrap();
    let count = |of: &Value, what: &str| of["ports"][0][what].as_u64().unwrap();
    println!(
        "exchange and packets by worker: {:?}",
        workers
            .iter()
            .map(|of| {
                (count(of, "exchange_received"), count(of, "forwarded"), count(of, "exchange_sent"))
            })
            .collect::<Vec<_>>()
    );
    assert!(count(&workers[1], "forwarded") > 500);
    assert_eq!(count(&workers[1], "exchange_sent"), 0);
    assert_eq!(count(&show, "handed_lost"), 0, "{show}");
    cluster.kill("f1");
    eventually("node 2 is master", || cluster.show("f3")["cluster"]["master"].as_u64() == Some(2));
    std::thread::sleep(Duration::from_millis(500));
    cluster.assert_two_scheduled("two workers, the master dead");
    let show = cluster.show("lb");
    for worker in show["workers"].as_array().unwrap() {
        let balancer = &worker["balancer"];
        assert!(balancer["moved"].as_u64() > Some(0), "{balancer}");
        let packets = balancer["forwarders"][1]["packets"].as_u64();
        assert!(packets > Some(500), "{balancer}");
    }
    assert_eq!(show["balancer"]["forwarders"][0]["health"], "silent", "{show}");
}

/// Sites of a list of subscribers are the classes of a cluster; who moves is in another one.
#[test]
fn sites_of_subscribers_share_the_links_of_a_cluster() {
    if !available("sites_of_subscribers_share_the_links_of_a_cluster") {
        return;
    }
    let cluster = Cluster::of_sites();
    cluster.offer(Duration::from_micros(600));
    std::thread::sleep(Duration::from_millis(1_500));
    cluster.assert_scheduled("sites", 0.9);
    for node in ["lb", "f1", "f2", "f3"] {
        let (is_done, said) = cluster.ctl(node, &["subscriber", "move", "bob", "hill"]);
        assert!(is_done, "{node}: {said}");
    }
    std::thread::sleep(Duration::from_millis(500));
    let counts = cluster.during(Duration::from_millis(1_500));
    let voice = |link: usize| counts[2 * link + 1] as f64 / counts[2 * link] as f64;
    assert!(voice(0) > 2.8 && voice(1) > 2.8, "{counts:?}");
    // Behind the last link both are of hill now and come as often. They have one queue: when it is
    // full, who comes just after a packet has left has more.
    assert!((0.5..1.5).contains(&voice(2)), "{counts:?}");
}

/// Load 1.5, weights 3 : 1, and everything that can happen to a process; nothing is sent
/// unscheduled, and the living share as configured.
#[test]
fn whatever_happens_to_a_forwarder_nothing_is_sent_unscheduled_and_shares_hold() {
    let name = "whatever_happens_to_a_forwarder_nothing_is_sent_unscheduled_and_shares_hold";
    if !available(name) {
        return;
    }
    let mut cluster = Cluster::new();
    // A kernel that forwards back by the same interface tells the source to go round it.
    cluster.net.output("src", "sysctl -qw net.ipv4.conf.all.accept_redirects=0");
    cluster.net.output("src", "sysctl -qw net.ipv4.conf.eth0.accept_redirects=0");
    for node in ["f1", "f2", "f3"] {
        // Their kernels would forward, as those of routers do.
        cluster.net.output(node, "sysctl -qw net.ipv4.ip_forward=1");
        eventually("in step", || cluster.show(node)["cluster"]["in_step"] == true);
        assert!(cluster.log(node).contains("precedes ordinary"), "{}", cluster.log(node));
    }
    eventually("heard", || (1..=3).all(|id| cluster.health(id) == "heard"));
    cluster.offer(Duration::from_micros(1_107));
    std::thread::sleep(Duration::from_millis(500));
    cluster.assert_scheduled("undisturbed", 0.9);

    let began = Instant::now();
    cluster.kill("f1");
    eventually("the balancer has heard it", || cluster.health(1) == "silent");
    println!("out after {} ms, as far as it was asked", began.elapsed().as_millis());
    std::thread::sleep(Duration::from_millis(100));
    cluster.assert_two_scheduled("the master killed");
    let log = cluster.log("lb");
    let said = log.matches("forwarder 1: its exchange frames are silent").count();
    assert_eq!(said, 1, "{log}");

    // It comes back; the second time with a clock an hour behind that of its last life.
    let epoch = cluster.folder.path().join("f1.state/cluster-epoch-1");
    let before: u64 = std::fs::read_to_string(&epoch).unwrap().trim().parse().unwrap();
    std::fs::write(&epoch, (before + 3_600_000_000).to_string()).unwrap();
    let back = |cluster: &mut Cluster| {
        cluster.start("f1", &forwarder(1, 1, ""));
        eventually("in step", || cluster.show("f1")["cluster"]["in_step"] == true);
        eventually("it is used again", || cluster.health(1) == "heard");
    };
    back(&mut cluster);
    assert!(cluster.log("f1").contains("behind this forwarder's last start"));
    cluster.kill("f1");
    std::fs::remove_file(&epoch).unwrap();
    eventually("the balancer has heard it", || cluster.health(1) == "silent");
    back(&mut cluster);
    for node in ["f2", "f3"] {
        let said = "node 1 started anew with a clock that is behind";
        eventually("it is named", || cluster.log(node).matches(said).count() == 1);
    }
    // Its former flows go back to it after a second, within one.
    std::thread::sleep(Duration::from_millis(2_500));
    cluster.assert_scheduled("it is back", 0.8);
    assert!(cluster.show("lb")["balancer"]["returned"].as_u64() > Some(0));

    cluster.signal("f2", "-STOP");
    eventually("the balancer has heard it", || cluster.health(2) == "silent");
    std::thread::sleep(Duration::from_millis(100));
    cluster.assert_two_scheduled("one stopped");
    cluster.signal("f2", "-CONT");
    eventually("it is used again", || cluster.health(2) == "heard");
    // What had waited in it is dropped: it was of one class, and took a forwarder from the other.
    std::thread::sleep(Duration::from_millis(2_500));
    cluster.assert_scheduled("it goes on", 0.8);
    // Of a busy machine it may have had to say that it stood still for some milliseconds.
    let milliseconds = |said: &str| said.split(' ').next()?.parse::<u32>().ok();
    let stood = || {
        let log = cluster.log("f2");
        let said = log.split("stood still for ").skip(1).filter_map(milliseconds);
        said.filter(|time| *time > 100).count()
    };
    eventually("it says so", || stood() == 1);

    // Without the balancer nothing reaches a next hop: its kernel would forward all of it.
    cluster.net.output("lb", "sysctl -qw net.ipv4.ip_forward=1");
    for link in 0..LINKS {
        let route = format!("route add 10.{}.0.0/16 via 10.7.0.{}", 100 + link, 21 + link);
        cluster.net.ip("lb", &route);
    }
    cluster.kill("lb");
    // The forwarders' queues empty first: 2400 packets for a link at 1204 packets a second.
    std::thread::sleep(Duration::from_millis(3_500));
    let counts = cluster.during(Duration::from_millis(500));
    assert_eq!(counts.iter().sum::<u64>(), 0, "the balancer's kernel has forwarded: {counts:?}");
    cluster.start("lb", &balancer(""));
    std::thread::sleep(Duration::from_millis(500));
    cluster.assert_scheduled("the balancer is back", 0.9);
}

#[cfg(not(feature = "etcd"))]
#[test]
fn etcd_leads_and_is_not_missed() {
    let how = "this build has no etcd: cargo test -p evenkeel --features etcd --test alone \
               cluster:: (Debian packages protobuf-compiler, libprotobuf-dev, etcd-server)";
    evenkeel_netns::testing::skip("etcd_leads_and_is_not_missed", how);
}
