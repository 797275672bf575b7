//! A stand-in for a router, and a plain client of `evenkeel serve`.

use std::fs;
use std::io::{BufRead, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use evenkeel_config::RouterConfig;
use evenkeel_control::{JournalLine, Server as Control, Target};
use evenkeel_core::Bytes;
use evenkeel_core::measure::ClassCounters;
use evenkeel_router::snapshot::{
    AdmissionSnapshot, ClassSnapshot, LinkSnapshot, NodeSnapshot, PortSnapshot, Snapshot,
    TreeSnapshot,
};
use evenkeel_router::{Command, CommandError, NodeQuery, Reply};
use evenkeel_serve::{Options, Server, Watched};
use serde_json::Value;

const CONFIG: &str = "
[[port]]
name = \"wan\"
interface = \"eth0\"
[[port]]
name = \"lan\"
interface = \"eth1\"
[[link]]
port = \"wan\"
rate = \"10Mbit/s\"
[[link]]
port = \"lan\"
rate = \"1Gbit/s\"
[[tree]]
subscribers = \"list.csv\"
down = \"lan\"
";
const LIST: &str = "name,prefixes,down,up\nann,10.1.0.1,10,5\n";
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Every time it is asked, a second has passed and 1000 packets more have left. Notes all else.
#[derive(Default)]
pub(crate) struct Ticking {
    pub(crate) asked: Mutex<u64>,
    /// Its port.
    pub(crate) down: Mutex<bool>,
    /// What it says that has happened, if it keeps that.
    pub(crate) journal: Mutex<Option<Vec<JournalLine>>>,
    pub(crate) changes: Mutex<Vec<String>>,
    /// Its subscribers, besides those of a small site; and how often a part of them was told.
    pub(crate) crowd: AtomicUsize,
    pub(crate) told: AtomicUsize,
}

impl Target for Ticking {
    fn send(&self, command: Command) -> Result<Reply, CommandError> {
        match command {
            Command::Show => {}
            Command::Explain { flow, .. } => {
                return Ok(Reply::Text(format!("nothing of {flow}\nat all\n")));
            }
            Command::Busiest { .. } => return Ok(Reply::Busiest(Vec::new())),
            Command::Nodes(NodeQuery::From(at)) => {
                self.told.fetch_add(1, Ordering::Relaxed);
                return Ok(Reply::Nodes(people(at, self.crowd.load(Ordering::Relaxed))));
            }
            Command::Nodes(NodeQuery::Name(name)) => {
                let mut nodes = people(0, 0);
                nodes.retain(|node| node.name == name);
                return Ok(Reply::Nodes(nodes));
            }
            Command::Reload(config) => {
                self.changes.lock().unwrap().push(config.trees[0].list.csv());
                return Ok(Reply::Done);
            }
            change => {
                self.changes.lock().unwrap().push(format!("{change:?}"));
                return Ok(Reply::Done);
            }
        }
        let mut asked = self.asked.lock().unwrap();
        *asked += 1;
        let mut snapshot = snapshot(*asked);
        snapshot.ports[0].up = !*self.down.lock().unwrap();
        Ok(Reply::Snapshot(Box::new(snapshot)))
    }

    fn journal(&self, after: u64) -> Option<Vec<JournalLine>> {
        let lines = self.journal.lock().unwrap().clone()?;
        Some(lines.into_iter().filter(|line| line.number > after).collect())
    }
}

fn snapshot(second: u64) -> Snapshot {
    let packets = second * 1_000;
    let class = ClassSnapshot {
        name: "rest".into(),
        counts: ClassCounters {
            in_packets: packets,
            out_packets: packets,
            ..ClassCounters::of_sent(packets, Bytes(packets * 1_000))
        },
        dropped: [("queue_full".to_owned(), second)].into(),
        delay_sum_ns: packets * 100_000,
        delay_max_ns: 100_000,
        delay_buckets: vec![(98_304, packets)],
        ..ClassSnapshot::default()
    };
    let admission = AdmissionSnapshot {
        refused: [("admission_fair_rate".to_owned(), second)].into(),
        ..AdmissionSnapshot::default()
    };
    let link = LinkSnapshot {
        port: "wan".into(),
        discipline: "pdrr".into(),
        rate_bps: Some(10_000_000),
        admission: Some(admission),
        tree: Some(TreeSnapshot::default()),
        classes: vec![class],
        ..LinkSnapshot::default()
    };
    let port = PortSnapshot {
        name: "wan".into(),
        up: true,
        dropped: [("no_route".to_owned(), second)].into(),
        ..PortSnapshot::default()
    };
    let time_ns = second * 1_000_000_000;
    Snapshot {
        time_ns,
        uptime_ns: time_ns,
        router: "r1".into(),
        ports: vec![port],
        links: vec![link],
        ..Snapshot::default()
    }
}

/// So many nodes are told at once.
const TOLD: usize = 1_024;

/// Those behind a site that is at its cap, and a crowd behind nothing: each time they are asked
/// for, ann has sent more.
fn people(from: usize, crowd: usize) -> Vec<NodeSnapshot> {
    static SENT: AtomicU64 = AtomicU64::new(0);
    let more = SENT.fetch_add(1_000, Ordering::Relaxed);
    let node = |name: &str, parent: &str, backlog_packets| NodeSnapshot {
        name: name.into(),
        parent: parent.into(),
        link: "lan".into(),
        subscriber: name != "north",
        capped: name == "north",
        down: true,
        cap_bps: (name == "ann").then_some(10_000_000),
        rtt_us: (name == "ann").then_some(23_500),
        sent_bytes: if name == "ann" { more } else { 0 },
        backlog_packets,
        ..NodeSnapshot::default()
    };
    let site = [("north", "the link", 0), ("carol", "north", 0), ("ann", "north", 4)];
    let site = site.map(|(name, parent, backlog)| node(name, parent, backlog)).into_iter();
    let crowd = (0..crowd).map(|n| node(&format!("house{n:05}"), "the link", 0));
    site.chain(crowd).skip(from).take(TOLD).collect()
}

pub(crate) struct Setup {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) target: Arc<Ticking>,
}

impl Setup {
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), target: Arc::default() }
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.path().join("monitor.sock")
    }

    /// Where it can be changed, too.
    pub(crate) fn control(&self) -> PathBuf {
        self.folder.path().join("control.sock")
    }

    /// The router, which is asked at its monitoring socket.
    pub(crate) fn router(&self) -> Control {
        let file = self.folder.path().join("router.toml");
        fs::write(self.folder.path().join("list.csv"), LIST).unwrap();
        fs::write(&file, CONFIG).unwrap();
        let config = RouterConfig::load(&file).unwrap();
        let path = self.control();
        let mut control = Control::start(&path, &config, None, Arc::clone(&self.target)).unwrap();
        control.monitor(&self.socket(), None).unwrap();
        control
    }

    pub(crate) fn serve(&self) -> Server {
        Server::start(self.options()).unwrap()
    }

    /// With files of the past.
    pub(crate) fn options(&self) -> Options {
        let history = Some((self.folder.path().join("past"), 256 << 10));
        Options { history, ..options(vec![watched("edge", &self.socket())]) }
    }
}

pub(crate) fn watched(name: &str, socket: &Path) -> Watched {
    Watched { name: name.to_owned(), socket: socket.to_owned() }
}

pub(crate) fn options(routers: Vec<Watched>) -> Options {
    Options {
        routers,
        listen: "127.0.0.1:0".parse().unwrap(),
        interval: Duration::from_millis(200),
        hosts: vec!["router.lan".to_owned()],
        history: None,
        hook: None,
        token: None,
    }
}

pub(crate) fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Sends bytes as they are; the status and everything that comes back.
pub(crate) fn raw(address: SocketAddr, request: &[u8]) -> (u16, String) {
    let mut stream = connect(address);
    // It may hang up before it has read everything.
    let _ = stream.write_all(request);
    let mut reply = Vec::new();
    let _ = stream.read_to_end(&mut reply);
    let reply = String::from_utf8_lossy(&reply).into_owned();
    let status = reply.get(9..12).and_then(|code| code.parse().ok()).unwrap_or(0);
    (status, reply)
}

pub(crate) fn ask(address: SocketAddr, method: &str, path: &str, host: &str) -> (u16, String) {
    let request = format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    raw(address, request.as_bytes())
}

pub(crate) fn get(address: SocketAddr, path: &str) -> (u16, String) {
    let (status, reply) = ask(address, "GET", path, "127.0.0.1");
    (status, reply.split_once("\r\n\r\n").map_or(String::new(), |(_, body)| body.to_owned()))
}

pub(crate) fn json(address: SocketAddr, path: &str) -> Value {
    let (status, body) = get(address, path);
    assert_eq!(status, 200, "{path}: {body}");
    serde_json::from_str(&body).unwrap_or_else(|error| panic!("{path}: {error}: {body}"))
}

/// Waits until something is so; it may take its time on a busy machine.
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < end, "{what}");
        thread::sleep(Duration::from_millis(50));
    }
}

pub(crate) fn status(server: &Server) -> Value {
    json(server.address(), "/api/v1/routers")["routers"][0].clone()
}

/// Reads events until one of this kind comes; its data.
pub(crate) fn event(lines: &mut impl BufRead, kind: &str) -> Value {
    let mut line = String::new();
    let mut found = false;
    loop {
        line.clear();
        assert!(lines.read_line(&mut line).unwrap() > 0, "the stream has ended");
        if let Some(data) = line.trim_end().strip_prefix("data: ").filter(|_| found) {
            return serde_json::from_str(data).unwrap();
        }
        found = line.trim_end() == format!("event: {kind}") || (found && line.trim() != "");
    }
}
