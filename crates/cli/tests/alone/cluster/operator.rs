//! What docs/cluster-operator.md tells an operator to do, done: two switches with a trunk, a router
//! before two balancers that has learned both by BGP, and every node upgraded in turn under load.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use evenkeel_netns::frr::Frr;
use evenkeel_netns::testing::{available, eventually};
use evenkeel_ports::sys;

use super::{Cluster, LINKS, balancer, forwarder};

/// All networks behind the next hops.
const NETWORK: &str = "10.100.0.0/14";
const CONNECTIONS: u16 = 6;
const BALANCERS: [&str; 2] = ["lb", "lb2"];

/// The configuration that stands in docs/cluster-operator.md, of that node.
fn of_page(begin: &str) -> String {
    let page = include_str!("../../../../../docs/cluster-operator.md");
    let at = page.find(begin).unwrap_or_else(|| panic!("{begin:?} is not on the page"));
    page[at..].split("```").next().unwrap().to_owned()
}

/// TCP connections through the cluster: each answer was asked for once the last one had come.
struct Connections {
    answers: Arc<Vec<AtomicU64>>,
    /// The longest time in which some connection had no answer, microseconds.
    longest: Arc<AtomicU64>,
}

impl Connections {
    fn open(cluster: &mut Cluster) -> Self {
        for link in 0..LINKS {
            let stop = Arc::clone(&cluster.stop);
            let namespace = cluster.net.name(&format!("n{link}"));
            cluster.threads.push(std::thread::spawn(move || {
                sys::enter_netns(&namespace).unwrap();
                let listener =
                    TcpListener::bind((format!("10.{}.0.1", 100 + link), 6_000)).unwrap();
                listener.set_nonblocking(true).unwrap();
                let mut accepted: Vec<TcpStream> = Vec::new();
                let mut buffer = [0; 512];
                while !stop.load(Ordering::Relaxed) {
                    if let Ok((stream, _)) = listener.accept() {
                        stream.set_nonblocking(true).unwrap();
                        stream.set_nodelay(true).unwrap();
                        accepted.push(stream);
                    }
                    for stream in &mut accepted {
                        if let Ok(length) = stream.read(&mut buffer) {
                            let _ = stream.write_all(&buffer[..length]);
                        }
                    }
                    std::thread::sleep(Duration::from_millis(2));
                }
            }));
        }
        let answers: Arc<Vec<AtomicU64>> =
            Arc::new((0..CONNECTIONS).map(|_| AtomicU64::new(0)).collect());
        let longest = Arc::new(AtomicU64::new(0));
        for n in 0..CONNECTIONS {
            let (stop, answers) = (Arc::clone(&cluster.stop), Arc::clone(&answers));
            let longest = Arc::clone(&longest);
            let namespace = cluster.net.name("src");
            cluster.threads.push(std::thread::spawn(move || {
                sys::enter_netns(&namespace).unwrap();
                let host = format!("10.{}.0.1", 100 + usize::from(n) % LINKS);
                let Ok(mut stream) = TcpStream::connect((host.as_str(), 6_000)) else { return };
                stream.set_nodelay(true).unwrap();
                stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
                let mut buffer = [7; 256];
                while !stop.load(Ordering::Relaxed) {
                    let asked = Instant::now();
                    if stream.write_all(&buffer).is_err() || stream.read_exact(&mut buffer).is_err()
                    {
                        return;
                    }
                    longest.fetch_max(asked.elapsed().as_micros() as u64, Ordering::Relaxed);
                    answers[usize::from(n)].fetch_add(1, Ordering::Relaxed);
                    std::thread::sleep(Duration::from_millis(5));
                }
            }));
        }
        let opened = Self { answers, longest };
        opened.assert_all_live("at the start");
        opened
    }

    /// Every connection is answered still.
    fn assert_all_live(&self, when: &str) {
        let count = || -> Vec<u64> {
            self.answers.iter().map(|answers| answers.load(Ordering::Relaxed)).collect()
        };
        let before = count();
        eventually(&format!("every connection goes on {when}"), || {
            count().iter().zip(&before).all(|(now, before)| now > before)
        });
        let longest = self.longest.swap(0, Ordering::Relaxed);
        println!("{when}: no answer for {} ms at most", longest / 1_000);
    }
}

/// The script of the page, which announces a balancer while it is healthy.
struct Announcer(Child);

impl Announcer {
    fn start(cluster: &Cluster, node: &str) -> Self {
        let script =
            concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/examples/cluster-announce.sh");
        let mut command = Command::new(script);
        command.arg(cluster.socket(node)).arg(NETWORK).stdin(Stdio::null());
        command.env("EVENKEEL", env!("CARGO_BIN_EXE_evenkeel"));
        sys::die_with_parent(&mut command);
        sys::spawn_in_netns(&mut command, &cluster.net.name(node)).unwrap();
        Self(command.spawn().unwrap())
    }

    /// The balancer is withdrawn.
    fn end(&mut self) {
        let done = Command::new("kill").args(["-TERM", &self.0.id().to_string()]).status();
        assert!(done.unwrap().success());
        self.0.wait().unwrap();
    }
}

impl Drop for Announcer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Cluster {
    /// The balancers that the router before them knows.
    fn announced(&self) -> usize {
        self.net.ip("src", &format!("route show {NETWORK}")).matches("via 10.7.0.").count()
    }

    fn role(&self, node: &str, arguments: &[&str]) -> (bool, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_evenkeel"));
        command.arg("cluster").args(arguments).arg("--socket").arg(self.socket(node));
        let output = command.output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8(said).unwrap())
    }

    fn of_balancer(&self, node: &str, id: usize, what: &str) -> String {
        self.show(node)["balancer"]["forwarders"][id - 1][what].to_string().replace('"', "")
    }

    /// Drained at both balancers, ended, and started again: all its flows were elsewhere meanwhile.
    fn upgrade_forwarder(&mut self, id: usize) {
        let node = format!("f{id}");
        let number = id.to_string();
        let drain = |lb| self.role(lb, &["drain", &number, "--wait", "500ms"]);
        std::thread::scope(|scope| {
            let drain = &drain;
            let drains = BALANCERS.map(|lb| scope.spawn(move || drain(lb)));
            for drained in drains {
                let (ok, said) = drained.join().unwrap();
                assert!(ok && said.contains("gets none"), "{said}");
            }
        });
        for lb in BALANCERS {
            assert_eq!(self.of_balancer(lb, id, "state"), "out");
        }
        // What had waited in it leaves.
        let queued = |cluster: &Self| -> u64 {
            let show = cluster.show(&node);
            let links = show["cluster"]["links"].as_array().unwrap().iter();
            let classes = links.flat_map(|link| link["classes"].as_array().unwrap());
            classes.map(|class| class["queued_packets"].as_u64().unwrap()).sum()
        };
        eventually("its queues are empty", || queued(self) == 0);
        std::thread::sleep(Duration::from_millis(50));
        self.end(&node);
        self.start(&node, &forwarder(id, 1, ""));
        eventually("it is healthy", || self.role(&node, &["health"]).0);
        for lb in BALANCERS {
            eventually("it is heard", || self.of_balancer(lb, id, "health") == "heard");
            assert!(self.ctl(lb, &["balancer", &number, "active"]).0);
        }
    }
}

#[test]
fn every_node_is_upgraded_in_turn_and_no_connection_breaks() {
    let name = "every_node_is_upgraded_in_turn_and_no_connection_breaks";
    if !available(name) || !Frr::available(name) {
        return;
    }
    let mut cluster = Cluster::segment(&["sw", "sw2"]);
    for id in 1..=3 {
        cluster.start(&format!("f{id}"), &forwarder(id, 1, ""));
    }
    // Flows over both balancers by their ports; and the hosts answer by the way they are known.
    cluster.net.sysctl("src", "net.ipv4.fib_multipath_hash_policy=1");
    let mut routing = vec![cluster.net.frr("src", &of_page("router bgp 65000"))];
    let mut announcers = Vec::new();
    for (at, lb) in BALANCERS.into_iter().enumerate() {
        cluster.start(lb, &balancer(""));
        let own = of_page("router bgp 65001").replace("10.7.0.1", ["10.7.0.1", "10.7.0.3"][at]);
        routing.push(cluster.net.frr(lb, &own));
        announcers.push(Announcer::start(&cluster, lb));
    }
    eventually("both are known", || cluster.announced() == 2);
    cluster.traffic();
    let connections = Connections::open(&mut cluster);
    cluster.offer(Duration::from_millis(5));

    for id in 1..=3 {
        cluster.upgrade_forwarder(id);
        connections.assert_all_live(&format!("while forwarder {id} is upgraded"));
    }
    for (at, lb) in BALANCERS.into_iter().enumerate() {
        announcers[at].end();
        eventually("it is withdrawn", || cluster.announced() == 1);
        std::thread::sleep(Duration::from_millis(50));
        cluster.end(lb);
        cluster.start(lb, &balancer(""));
        announcers[at] = Announcer::start(&cluster, lb);
        eventually("it is announced", || cluster.announced() == 2);
        connections.assert_all_live(&format!("while balancer {lb} is upgraded"));
    }
    cluster.offer(Duration::ZERO);
    let sent = || cluster.sent.load(Ordering::Relaxed);
    eventually("not one packet was lost", || cluster.counts().iter().sum::<u64>() == sent());
    assert!(sent() > 2_000, "{}", sent());

    // What nobody has planned: a balancer dies, and is withdrawn by its health.
    cluster.offer(Duration::from_millis(5));
    let began = Instant::now();
    cluster.kill("lb");
    eventually("it is withdrawn", || cluster.announced() == 1);
    println!("withdrawn after {} ms", began.elapsed().as_millis());
    assert!(!cluster.role("lb", &["health"]).0);
    connections.assert_all_live("after a balancer's death");
    cluster.start("lb", &balancer(""));
    eventually("it is announced", || cluster.announced() == 2);

    // The second switch dies, with a forwarder and a balancer; BGP notices after its hold time.
    cluster.net.ip("sw", "link set trunk down");
    eventually("it is withdrawn", || cluster.announced() == 1);
    eventually("its forwarder gets nothing", || cluster.health(2) == "silent");
    connections.assert_all_live("after the death of a switch");
    cluster.net.ip("sw", "link set trunk up");
    eventually("both are known", || cluster.announced() == 2);
    connections.assert_all_live("after its return");
}
