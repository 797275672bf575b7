//! The gateway of a home: addresses translated, a firewall with memory and counters, names resolved
//! on the box, a LAN of three hosts, guests, a port passed on to a host inside. And the command at
//! one of its interfaces.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use evenkeel_netns::testing::{Running, TestNet, available, eventually, has_tool, text};
use evenkeel_ports::sys::{die_with_parent, in_netns};
use serde_json::Value;

/// Sources are translated, only what inside began comes in, guests reach the internet alone.
const FIREWALL: &str = "
table ip translation {
  chain pre {
    type nat hook prerouting priority -100;
    iifname \"wan\" tcp dport 8080 dnat to 10.1.0.11:80
  }
  chain post {
    type nat hook postrouting priority 100;
    oifname \"wan\" masquerade
  }
}
table ip firewall {
  counter answered { }
  counter from_lan { }
  counter from_guests { }
  counter passed_on { }
  counter guests_to_lan { }
  counter from_outside { }
  counter names_asked { }
  counter to_the_box { }
  counter own { }
  counter own_icmp { }
  counter pings { }
  chain gate {
    type filter hook forward priority 0; policy drop;
    meta l4proto icmp counter name pings
    meta l4proto udp ct state established counter name answered
    ct state established,related accept
    iifname \"guest\" oifname \"lan\" counter name guests_to_lan drop
    iifname \"lan\" oifname \"wan\" ct state new counter name from_lan accept
    iifname \"guest\" oifname \"wan\" ct state new counter name from_guests accept
    iifname \"wan\" ct status dnat counter name passed_on accept
    counter name from_outside drop
  }
  chain inward {
    type filter hook input priority 0; policy drop;
    iif lo accept
    iifname { \"lan\", \"guest\" } udp dport 53 counter name names_asked accept
    ct state established,related accept
    meta l4proto icmp counter name to_the_box accept
    iifname \"wan\" tcp dport 5300-5399 accept
  }
  chain outward {
    type filter hook output priority 0;
    oifname \"wan\" udp dport 53 counter name own
    oifname \"wan\" meta l4proto icmp counter name own_icmp
  }
}
";

/// A server of the internet, as hosts know it.
pub(crate) const SERVER: &str = "10.2.0.2";
/// The hosts inside.
const HOSTS: [&str; 4] = ["h", "h2", "h3", "u"];

/// The command at an interface of node `node`.
pub(crate) struct Shaper {
    pub(crate) net: TestNet,
    node: &'static str,
    folder: tempfile::TempDir,
    process: Option<Child>,
}

impl Shaper {
    pub(crate) fn new(net: TestNet, node: &'static str) -> Self {
        Self { net, node, folder: tempfile::tempdir().unwrap(), process: None }
    }

    /// The command with its arguments, and the folders of this test.
    pub(crate) fn command(&self, arguments: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_evenkeel"));
        command.arg("shape").args(arguments.split_whitespace());
        command.args(self.places());
        command
    }

    fn socket(&self) -> std::path::PathBuf {
        self.folder.path().join("control.sock")
    }

    pub(crate) fn start(&mut self, arguments: &str) {
        self.spawn(arguments);
        eventually("the shaper answers", || self.try_show().is_some());
    }

    /// Starts it and waits for nothing.
    pub(crate) fn spawn(&mut self, arguments: &str) {
        let log = std::fs::File::create(self.folder.path().join("log")).unwrap();
        let mut command = self.command(arguments);
        command.stdout(log.try_clone().unwrap()).stderr(log);
        let process = die_with_parent(&mut command).spawn();
        self.process = Some(process.unwrap());
    }

    /// Starts what the command stands for, with these sections before it.
    pub(crate) fn start_with(&mut self, sections: &str, arguments: &str) {
        self.start_file(arguments, |file| format!("{sections}\n{file}"));
    }

    /// Starts what the command stands for, changed.
    pub(crate) fn start_file(&mut self, arguments: &str, change: impl Fn(&str) -> String) {
        let printed = self.command(&format!("{arguments} --print")).output().unwrap();
        let file = self.folder.path().join("router.toml");
        std::fs::write(&file, change(&text(&printed))).unwrap();
        let log = std::fs::File::create(self.folder.path().join("log")).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_evenkeel"));
        command.arg("run").arg(file).args(self.places());
        command.stdout(log.try_clone().unwrap()).stderr(log);
        let process = die_with_parent(&mut command).spawn();
        self.process = Some(process.unwrap());
        // What it touches first, the host of a virtual machine may have to find first.
        let begun = std::time::Instant::now();
        while self.try_show().is_none() {
            assert!(begun.elapsed() < Duration::from_secs(90), "{}", self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Where it runs, and where its files are.
    fn places(&self) -> Vec<std::ffi::OsString> {
        let namespace = self.net.name(self.node);
        let folder = self.folder.path();
        vec![
            "--netns".into(),
            namespace.into(),
            "--socket".into(),
            self.socket().into(),
            "--runtime-dir".into(),
            folder.into(),
        ]
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    /// `evenkeel ctl` with these arguments.
    pub(crate) fn ctl(&self, arguments: &str) -> std::process::Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_evenkeel"));
        command.arg("ctl").args(arguments.split_whitespace()).arg("--socket").arg(self.socket());
        command.output().unwrap()
    }

    pub(crate) fn try_show(&self) -> Option<Value> {
        let output = self.ctl("--json show");
        output.status.success().then(|| serde_json::from_slice(&output.stdout).unwrap())
    }

    pub(crate) fn show(&self) -> Value {
        self.try_show().unwrap_or_else(|| panic!("no answer; log: {}", self.log()))
    }

    /// What a link has sent so far: packets as the wire carries them, and their bytes there.
    pub(crate) fn sent(&self, link: &str) -> (u64, u64) {
        sent(&self.show(), link)
    }

    pub(crate) fn signal(&self, signal: &str) {
        let process = self.process.as_ref().expect("it runs").id().to_string();
        assert!(Command::new("kill").args([signal, &process]).status().unwrap().success());
    }

    /// Waits until it has ended by itself; its exit code.
    pub(crate) fn ended(&mut self) -> Option<i32> {
        self.process.take().expect("it runs").wait().unwrap().code()
    }

    /// Ends it by a signal, and waits until it has ended.
    pub(crate) fn kill(&mut self, signal: &str) {
        self.signal(signal);
        self.process.take().unwrap().wait().unwrap();
    }

    /// Nothing of the pair is left in the gateway.
    pub(crate) fn nothing_is_left(&self) {
        let links = self.net.ip(self.node, "-br link");
        assert!(!links.contains("ekh-") && !links.contains("eku-"), "{links}");
    }
}

impl Drop for Shaper {
    fn drop(&mut self) {
        if let Some(mut process) = self.process.take() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

/// What a link has sent, as [`Shaper::sent`], from what `ctl show` told.
pub(crate) fn sent(shown: &Value, link: &str) -> (u64, u64) {
    let links = shown["links"].as_array().unwrap();
    let found = links.iter().find(|one| one["port"] == link).unwrap();
    let class = &found["classes"][0];
    let packets = class["sent_segments"].as_u64().unwrap();
    // Header, check sequence, preamble and gap.
    (packets, class["sent_bytes"].as_u64().unwrap() + 38 * packets)
}

/// Threads of a test that answer until it ends.
#[derive(Default)]
pub(crate) struct Servers {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Servers {
    /// Answers each datagram at this address with what `answer` makes of it.
    fn datagrams(
        &mut self,
        namespace: &str,
        at: &str,
        mut answer: impl FnMut(&[u8], SocketAddr) -> Option<Vec<u8>> + Send + 'static,
    ) {
        let socket = in_netns(namespace, || UdpSocket::bind(at).unwrap()).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        let stop = Arc::clone(&self.stop);
        self.threads.push(std::thread::spawn(move || {
            let mut bytes = [0; 1500];
            while !stop.load(Ordering::Relaxed) {
                if let Ok((length, from)) = socket.recv_from(&mut bytes)
                    && let Some(answer) = answer(&bytes[..length], from)
                {
                    socket.send_to(&answer, from).unwrap();
                }
            }
        }));
    }

    /// Tells everybody who connects which address he has.
    pub(crate) fn who_am_i(&mut self, namespace: &str, at: &str) {
        let listener = in_netns(namespace, || TcpListener::bind(at).unwrap()).unwrap();
        listener.set_nonblocking(true).unwrap();
        let stop = Arc::clone(&self.stop);
        self.threads.push(std::thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                match listener.accept() {
                    Ok((mut stream, from)) => {
                        stream.write_all(from.ip().to_string().as_bytes()).unwrap();
                    }
                    Err(_) => std::thread::sleep(Duration::from_millis(2)),
                }
            }
        }));
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // The test has failed already if one of them has.
            let _ = thread.join();
        }
    }
}

/// The home: hosts `h`, `h2`, `h3` in the LAN, `u` a guest, the gateway `g`, and `s` outside.
pub(crate) struct Home {
    pub(crate) shaper: Shaper,
    /// What the next datagrams are sent from: below the ports that the kernel chooses.
    next_port: AtomicU16,
    _servers: Servers,
}

impl std::ops::Deref for Home {
    type Target = Shaper;

    fn deref(&self) -> &Shaper {
        &self.shaper
    }
}

impl std::ops::DerefMut for Home {
    fn deref_mut(&mut self) -> &mut Shaper {
        &mut self.shaper
    }
}

impl Home {
    /// `None`: it cannot be made here, and that was said.
    pub(crate) fn new(test: &str) -> Option<Self> {
        let tools = [("iperf3", "iperf3"), ("nft", "nftables"), ("ping", "iputils-ping")];
        if !available(test) || !tools.iter().all(|(tool, package)| has_tool(test, tool, package)) {
            return None;
        }
        let net = TestNet::new(&["h", "h2", "h3", "u", "g", "s"]);
        net.ip("g", "link add lan type bridge");
        for (host, port) in [("h", "lan1"), ("h2", "lan2"), ("h3", "lan3")] {
            net.wire((host, "eth0"), ("g", port));
            net.ip("g", &format!("link set {port} master lan"));
        }
        net.ip("g", "link set lan up");
        net.wire(("u", "eth0"), ("g", "guest"));
        net.wire(("s", "s0"), ("g", "wan"));
        net.sysctl("g", "net.ipv4.ip_forward=1 net.ipv4.conf.all.rp_filter=1");
        for (node, interface, address) in [
            ("h", "eth0", "10.1.0.11/24"),
            ("h2", "eth0", "10.1.0.12/24"),
            ("h3", "eth0", "10.1.0.13/24"),
            ("g", "lan", "10.1.0.1/24"),
            ("u", "eth0", "10.3.0.11/24"),
            ("g", "guest", "10.3.0.1/24"),
            ("s", "s0", "10.2.0.2/24"),
            ("g", "wan", "10.2.0.1/24"),
        ] {
            net.ip(node, &format!("address add {address} dev {interface}"));
        }
        // The server knows no way back to hosts: answers find them only if sources are translated.
        for host in HOSTS {
            net.ip(host, &format!("route add default via {}", gateway_of(host)));
        }
        rules(&net, "g", FIREWALL);
        let servers = servers(&net);
        let next_port = AtomicU16::new(20_000);
        Some(Self { shaper: Shaper::new(net, "g"), next_port, _servers: servers })
    }

    /// What must hold always, with an amount of traffic that is the same each time.
    pub(crate) fn is_as_ever(&self, when: &str) {
        let net = &self.shaper.net;
        let pings = |from: &str, to: &str| {
            net.try_output(from, &format!("ping -n -c 3 -i 0.02 -W 2 {to}")).0
        };
        for host in HOSTS {
            assert!(pings(host, SERVER), "{when}: {host} reaches the server");
            let address = connects(net, host, "10.2.0.2:80");
            assert_eq!(address.as_deref(), Some("10.2.0.1"), "{when}: as which {host} is seen");
            assert_eq!(self.asks(host, "10.2.0.2:7"), Some(20), "{when}: datagrams of {host}");
            let resolver = format!("{}:53", gateway_of(host));
            assert_eq!(self.asks(host, &resolver), Some(20), "{when}: names of {host}");
        }
        assert!(pings("g", SERVER), "{when}: the gateway reaches the server");
        assert!(pings("s", "10.2.0.1"), "{when}: the server reaches the gateway");
        // Passed on to the web server of a host, which sees who asks.
        let asked_by = connects(net, "s", "10.2.0.1:8080");
        assert_eq!(asked_by.as_deref(), Some("10.2.0.2"), "{when}: a port passed on");
        let lost = |from: &str, to: &str| {
            !net.try_output(from, &format!("ping -n -c 2 -i 0.02 -W 0.2 {to}")).0
        };
        assert!(lost("u", "10.1.0.12"), "{when}: guests reach the LAN");
        net.ip("s", "route replace 10.1.0.0/24 via 10.2.0.1");
        assert!(lost("s", "10.1.0.12"), "{when}: what nobody inside has begun comes in");
        net.ip("s", "route del 10.1.0.0/24");
    }

    /// How many of twenty datagrams are answered as they must be.
    fn asks(&self, from: &str, to: &str) -> Option<usize> {
        // A port that was used before is a connection that the firewall still remembers.
        let port = self.next_port.fetch_add(1, Ordering::Relaxed);
        in_netns(&self.shaper.net.name(from), || {
            let socket = UdpSocket::bind(("0.0.0.0", port)).ok()?;
            socket.connect(to).ok()?;
            socket.set_read_timeout(Some(Duration::from_secs(2))).ok()?;
            let answered = (0..20_u8).filter(|number| {
                let mut bytes = [0; 64];
                let asked = socket.send(&[*number; 30]).is_ok();
                let length = socket.recv(&mut bytes).unwrap_or(0);
                asked && bytes[..length].starts_with(&[*number; 30])
            });
            Some(answered.count())
        })
        .unwrap()
    }

    /// Packets and bytes of all rules of the firewall.
    pub(crate) fn counted(&self) -> BTreeMap<String, (u64, u64)> {
        let listed = self.shaper.net.output("g", "nft -j list counters table ip firewall");
        let listed: Value = serde_json::from_str(&listed).unwrap();
        let counters = listed["nftables"].as_array().unwrap().iter();
        counters
            .filter_map(|entry| entry.get("counter"))
            .map(|counter| {
                let number = |key: &str| counter[key].as_u64().unwrap();
                let name = counter["name"].as_str().unwrap().to_owned();
                (name, (number("packets"), number("bytes")))
            })
            .collect()
    }

    /// A transfer of two seconds, `streams` connections; Mbit/s that arrived.
    pub(crate) fn transfer(&self, streams: u32, downwards: bool) -> f64 {
        let net = &self.shaper.net;
        let (servers, ports) = iperf3_servers(net, "s", 1);
        let port = ports[0];
        let direction = if downwards { "-R" } else { "" };
        let line =
            format!("iperf3 -c 10.2.0.2 -p {port} -J -t 2 -C cubic -P {streams} {direction}");
        let output = net.run("h", &line);
        assert!(output.status.success(), "{}", text(&output));
        drop(servers);
        let result: Value = serde_json::from_slice(&output.stdout).unwrap();
        result["end"]["sum_received"]["bits_per_second"].as_f64().unwrap() / 1e6
    }
}

/// What a server says to whom connects, or that it cannot be reached.
pub(crate) fn connects(net: &TestNet, from: &str, to: &str) -> Option<String> {
    in_netns(&net.name(from), || {
        let to = to.parse().unwrap();
        let mut stream = TcpStream::connect_timeout(&to, Duration::from_secs(2)).ok()?;
        let mut said = String::new();
        stream.read_to_string(&mut said).ok()?;
        Some(said)
    })
    .unwrap()
}

/// Which address a host knows as its gateway.
fn gateway_of(host: &str) -> &'static str {
    if host == "u" { "10.3.0.1" } else { "10.1.0.1" }
}

/// Gives the rules to nftables.
pub(crate) fn rules(net: &TestNet, node: &str, rules: &str) {
    let mut nft = net.command(node, "nft -f -");
    let mut nft = nft.stdin(Stdio::piped()).spawn().unwrap();
    nft.stdin.take().unwrap().write_all(rules.as_bytes()).unwrap();
    assert!(nft.wait().unwrap().success(), "the rules of nftables");
}

/// Outside: one that echoes, one that resolves names, one that says who asks. On the box: one that
/// passes on what it is asked for names. Inside: a web server.
fn servers(net: &TestNet) -> Servers {
    let mut servers = Servers::default();
    let echo = |bytes: &[u8], from: SocketAddr| {
        // Others than the gateway are not known out here.
        (from.ip().to_string() == "10.2.0.1").then(|| bytes.to_vec())
    };
    let outside = net.name("s");
    servers.datagrams(&outside, "10.2.0.2:7", echo);
    servers.datagrams(&outside, "10.2.0.2:53", echo);
    servers.who_am_i(&outside, "10.2.0.2:80");
    servers.who_am_i(&net.name("h"), "10.1.0.11:80");
    let box_ = net.name("g");
    for at in ["10.1.0.1:53", "10.3.0.1:53"] {
        let upstream = in_netns(&box_, || UdpSocket::bind("0.0.0.0:0").unwrap()).unwrap();
        upstream.connect("10.2.0.2:53").unwrap();
        upstream.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
        servers.datagrams(&box_, at, move |asked, _| {
            let mut answer = [0; 1500];
            upstream.send(asked).ok()?;
            let length = upstream.recv(&mut answer).ok()?;
            Some(answer[..length].to_vec())
        });
    }
    servers
}

/// So many servers of iperf3 in a node, each for one client, and their ports. These are always
/// others: a server that has just been told to end may still listen, and sends clients away.
pub(crate) fn iperf3_servers(net: &TestNet, node: &str, count: u16) -> (Vec<Running>, Vec<u16>) {
    static NEXT: AtomicU16 = AtomicU16::new(5_301);
    let first = NEXT.fetch_add(count, Ordering::Relaxed);
    let ports: Vec<u16> = (first..first + count).collect();
    let start = |port| net.start(node, &format!("iperf3 -s -1 -p {port}"));
    let servers = ports.iter().map(start).collect();
    eventually("the servers listen", || {
        let listening = net.output(node, "ss -Hltn");
        ports.iter().all(|port| listening.contains(&format!(":{port} ")))
    });
    (servers, ports)
}

/// Keeps a measured figure for the page that shows it, where `make soak` asks for it.
pub(crate) fn measured(name: &str, text: &str) {
    println!("{name}:\n{text}");
    if let Some(folder) = std::env::var_os("EVENKEEL_MEASURED") {
        let file = std::path::Path::new(&folder).join(format!("{name}.txt"));
        std::fs::write(file, text).unwrap();
    }
}
