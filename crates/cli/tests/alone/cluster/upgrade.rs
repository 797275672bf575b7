//! The operator's page, tried: two balancers behind BGP and ECMP, and every node ended and started
//! anew, one after the other.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};

use evenkeel_netns::frr::Frr;

use super::*;

const CONNECTIONS: usize = 12;
const TCP_PORT: u16 = 7_000;

/// The gateway hears of the networks from both balancers, and uses both.
fn of_gateway() -> String {
    let neighbours = ["10.7.0.1", "10.7.0.2"].map(|address| {
        format!(" neighbor {address} remote-as 65001\n neighbor {address} timers connect 1\n")
    });
    format!(
        "router bgp 65000\n bgp router-id 10.7.0.9\n no bgp ebgp-requires-policy\n timers bgp 1 \
         3\n{}",
        neighbours.concat()
    )
}

fn of_balancer(address: &str) -> String {
    let networks: String =
        (0..LINKS).map(|link| format!("  network 10.{}.0.0/16\n", 100 + link)).collect();
    format!(
        "router bgp 65001\n bgp router-id {address}\n no bgp ebgp-requires-policy\n no bgp network \
         import-check\n timers bgp 1 3\n neighbor 10.7.0.9 remote-as 65000\n neighbor 10.7.0.9 \
         timers connect 1\n address-family ipv4 unicast\n{networks} exit-address-family\n"
    )
}

/// Connections that say something all the time, and hear it back.
struct Talks {
    answers: Arc<Vec<AtomicU64>>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<std::io::Result<()>>>,
}

impl Talks {
    fn new(cluster: &Cluster) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let answers: Arc<Vec<AtomicU64>> =
            Arc::new((0..CONNECTIONS).map(|_| AtomicU64::new(0)).collect());
        let mut threads = Vec::new();
        for link in 0..LINKS {
            let at = (format!("10.{}.0.1", 100 + link), TCP_PORT);
            let namespace = cluster.net.name(&format!("n{link}"));
            let bind = || TcpListener::bind((at.0.as_str(), at.1)).unwrap();
            let listener = sys::in_netns(&namespace, bind).unwrap();
            for _ in (link..CONNECTIONS).step_by(LINKS) {
                let listener = listener.try_clone().unwrap();
                threads.push(std::thread::spawn(move || {
                    let (mut stream, _) = listener.accept()?;
                    let mut word = [0; 8];
                    // The other side ends it.
                    while stream.read_exact(&mut word).is_ok() {
                        stream.write_all(&word)?;
                    }
                    Ok(())
                }));
            }
        }
        for talk in 0..CONNECTIONS {
            let (stop, answers) = (Arc::clone(&stop), Arc::clone(&answers));
            let namespace = cluster.net.name("src");
            let to = format!("10.{}.0.1:{TCP_PORT}", 100 + talk % LINKS);
            threads.push(std::thread::spawn(move || {
                sys::enter_netns(&namespace).unwrap();
                let mut stream = TcpStream::connect(to)?;
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(Duration::from_secs(5)))?;
                let mut number = 0_u64;
                while !stop.load(Ordering::Relaxed) {
                    number += 1;
                    stream.write_all(&number.to_be_bytes())?;
                    let mut word = [0; 8];
                    stream.read_exact(&mut word)?;
                    assert_eq!(u64::from_be_bytes(word), number);
                    answers[talk].fetch_add(1, Ordering::Relaxed);
                    std::thread::sleep(Duration::from_millis(20));
                }
                Ok(())
            }));
        }
        Self { answers, stop, threads }
    }

    /// All of them go on.
    fn assert_alive(&self, what: &str) {
        let now = || self.answers.iter().map(|one| one.load(Ordering::Relaxed)).collect::<Vec<_>>();
        let before = now();
        eventually(&format!("{what}: every connection goes on"), || {
            now().iter().zip(&before).all(|(now, before)| now > &(before + 2))
        });
    }

    fn end(self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads {
            thread.join().unwrap().unwrap_or_else(|error| panic!("a connection broke: {error}"));
        }
    }
}

#[test]
fn every_node_is_upgraded_and_no_connection_breaks() {
    let name = "every_node_is_upgraded_and_no_connection_breaks";
    if !available(name) || !Frr::available(name) {
        return;
    }
    let mut cluster = Cluster::new();
    let policy = "net.ipv4.conf.all.accept_redirects=0 net.ipv4.conf.eth0.accept_redirects=0 \
                  net.ipv4.fib_multipath_hash_policy=1";
    cluster.net.output("src", &format!("sysctl -qw {policy}"));
    cluster.start("ed", &balancer(""));
    for link in 0..LINKS {
        cluster.net.ip("src", &format!("route del 10.{}.0.0/16", 100 + link));
    }
    let _gateway = cluster.net.frr("src", &of_gateway());
    let nodes = [("lb", "10.7.0.1"), ("ed", "10.7.0.2")];
    let daemons = nodes.map(|(node, address)| cluster.net.frr(node, &of_balancer(address)));
    let uses = |cluster: &Cluster, address: &str| {
        let via = format!("via {address} ");
        let routes = |link| cluster.net.ip("src", &format!("route show 10.{}.0.0/16", 100 + link));
        (0..LINKS).filter(|link| routes(*link).contains(&via)).count()
    };
    let heard = |cluster: &Cluster, node: &str| {
        let show = cluster.show(node);
        let all = show["balancer"]["forwarders"].as_array().unwrap().clone();
        all.iter().all(|forwarder| forwarder["health"] == "heard")
    };
    for (node, address) in nodes {
        eventually("the gateway uses it", || uses(&cluster, address) == LINKS);
        eventually("all are heard", || heard(&cluster, node));
    }
    cluster.offer(Duration::from_millis(8));
    let talks = Talks::new(&cluster);
    talks.assert_alive("at first");
    for (node, _) in nodes {
        let flows = |forwarder: &Value| forwarder["flows"].as_u64().unwrap();
        let show = cluster.show(node);
        let flows: u64 = show["balancer"]["forwarders"].as_array().unwrap().iter().map(flows).sum();
        assert!(flows > 10, "{node} has {flows} flows");
    }

    // Who asks too early is told what to do.
    assert!(!cluster.ctl("f1", &["empty", "--within", "500ms"]).0);
    for id in 1..=3 {
        let node = format!("f{id}");
        let state = |cluster: &Cluster, state: &str| {
            for (balancer, _) in nodes {
                assert!(cluster.ctl(balancer, &["balancer", &id.to_string(), state]).0);
            }
        };
        state(&cluster, "out");
        let (empty, said) = cluster.ctl(&node, &["empty", "--within", "8s"]);
        assert!(empty, "{node}: {said}");
        cluster.stop(&node);
        talks.assert_alive(&node);
        cluster.start(&node, &forwarder(id, 1, ""));
        eventually("in step", || cluster.show(&node)["cluster"]["in_step"] == true);
        nodes.iter().for_each(|(node, _)| eventually("heard", || heard(&cluster, node)));
        state(&cluster, "active");
    }
    for ((node, address), frr) in nodes.into_iter().zip(&daemons) {
        frr.configure(&["router bgp 65001", "neighbor 10.7.0.9 shutdown"]).unwrap();
        eventually("the gateway uses the other", || uses(&cluster, address) == 0);
        std::thread::sleep(Duration::from_millis(200));
        cluster.stop(node);
        talks.assert_alive(node);
        cluster.start(node, &balancer(""));
        eventually("all are heard", || heard(&cluster, node));
        frr.configure(&["router bgp 65001", "no neighbor 10.7.0.9 shutdown"]).unwrap();
        eventually("the gateway uses it again", || uses(&cluster, address) == LINKS);
        talks.assert_alive(node);
    }
    talks.end();
    cluster.offer(Duration::ZERO);
    let sent = || cluster.sent.load(Ordering::Relaxed);
    let arrived = || cluster.counts().iter().sum::<u64>();
    let end = Instant::now() + Duration::from_secs(3);
    while arrived() < sent() && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(50));
    }
    println!("{} of {} datagrams arrived, five nodes anew", arrived(), sent());
    assert!(sent() > 1_000);
    assert_eq!(arrived(), sent(), "a node was ended with packets in it");
}
