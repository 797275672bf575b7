//! What can stand in the way of AF_XDP, met by the command on real interfaces: it is told with
//! interface, cause and remedy, `io = "af-xdp"` ends with exit code 3, and `io = "auto"` forwards
//! by packet sockets and says why. Needs root; says so and passes otherwise.

use std::fs::File;
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};

use evenkeel_netns::testing::{TestNet, available, eventually, eventually_some, has_tool, text};
use evenkeel_ports::FramePool;
use evenkeel_ports::af_xdp::{AfXdpOptions, AfXdpPort};
use evenkeel_ports::sys::{AF_XDP, in_netns, refuse_binds, refuse_sockets};
use serde_json::Value;

/// How the command is started.
#[derive(Clone, Copy)]
enum Start {
    Plainly,
    /// It may lock so much memory, MiB.
    WithLittleMemory(u64),
    /// As by a kernel that has no AF_XDP.
    WithoutXdpSockets,
    /// As by a kernel that has frames in one piece only.
    WithoutPieces,
}

/// Hosts `a` and `b` with router `r` between them, which forwards.
struct Bed {
    net: TestNet,
    folder: tempfile::TempDir,
    start: Start,
    /// What `[router]` has besides `io`.
    section: &'static str,
}

/// An `evenkeel run` that does not outlive its test.
struct Run {
    child: Child,
    said: PathBuf,
}

impl Drop for Run {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Run {
    fn ended(&mut self) -> ExitStatus {
        eventually_some("the command to end", || self.child.try_wait().unwrap())
    }

    /// What it has written to standard error.
    fn said(&self) -> String {
        std::fs::read_to_string(&self.said).unwrap()
    }
}

impl Bed {
    /// `queues`: of the router's interfaces `lan` and `wan`.
    fn new(test: &str, queues: [u16; 2]) -> Option<Self> {
        if !available(test) {
            return None;
        }
        let net = TestNet::new(&["a", "r", "b"]);
        net.wire_of_queues(("a", "a0"), ("r", "lan"), queues[0]);
        net.wire_of_queues(("b", "b0"), ("r", "wan"), queues[1]);
        net.sysctl("r", "net.ipv4.ip_forward=1");
        for (node, interface, address) in [
            ("a", "a0", "10.1.0.2/24"),
            ("r", "lan", "10.1.0.1/24"),
            ("b", "b0", "10.2.0.2/24"),
            ("r", "wan", "10.2.0.1/24"),
        ] {
            net.ip(node, &format!("address add {address} dev {interface}"));
        }
        net.ip("a", "route add default via 10.1.0.1");
        net.ip("b", "route add default via 10.2.0.1");
        let folder = tempfile::tempdir().unwrap();
        Some(Self { net, folder, start: Start::Plainly, section: "" })
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    fn run(&self, io: &str) -> Run {
        let Self { section, .. } = self;
        let config = format!(
            "[[port]]\nname = \"lan\"\ninterface = \"lan\"\n[[port]]\nname = \"wan\"\ninterface = \
             \"wan\"\n[router]\nio = \"{io}\"\n{section}\n"
        );
        std::fs::write(self.path("router.toml"), config).unwrap();
        let evenkeel = env!("CARGO_BIN_EXE_evenkeel");
        let mut command = match self.start {
            Start::Plainly | Start::WithoutXdpSockets | Start::WithoutPieces => {
                Command::new(evenkeel)
            }
            Start::WithLittleMemory(mebibytes) => {
                let mut command = Command::new("setpriv");
                command.args(["--bounding-set", "-ipc_lock", "--inh-caps", "-ipc_lock"]);
                let limit = mebibytes << 20;
                command.args(["prlimit", &format!("--memlock={limit}:{limit}"), evenkeel]);
                command
            }
        };
        command.args(["run", &self.path("router.toml"), "--socket", &self.path("control.sock")]);
        command.args(["--runtime-dir", &self.path("run"), "--netns", &self.net.name("r")]);
        let said = self.folder.path().join(format!("{io}.log"));
        command.stdout(Stdio::null()).stderr(File::create(&said).unwrap());
        let start = self.start;
        let spawned = std::thread::scope(|scope| {
            let spawn = scope.spawn(move || {
                match start {
                    Start::WithoutXdpSockets => refuse_sockets(AF_XDP)?,
                    // So long is the address of such a socket, and no other one here.
                    Start::WithoutPieces => refuse_binds(16)?,
                    Start::Plainly | Start::WithLittleMemory(_) => {}
                }
                command.spawn()
            });
            spawn.join().unwrap()
        });
        Run { child: spawned.unwrap(), said }
    }

    fn ping(&self) {
        let output = self.net.output("a", "ping -n -c 3 -i 0.1 -W 2 10.2.0.2");
        assert!(output.contains(" 0% packet loss") && !output.contains("DUP!"), "{output}");
    }

    /// How the ports exchange frames, once the router answers.
    fn io(&self) -> [String; 2] {
        let socket = self.path("control.sock");
        let show = || {
            let mut ctl = Command::new(env!("CARGO_BIN_EXE_evenkeel"));
            let output = ctl.args(["ctl", "--socket", &socket, "show", "--json"]).output().unwrap();
            output
                .status
                .success()
                .then(|| serde_json::from_slice::<Value>(&output.stdout).unwrap())
        };
        let show = eventually_some("the router to answer", show);
        [0, 1].map(|at| show["ports"][at]["io"].as_str().unwrap().to_owned())
    }

    fn stop(&self, mut run: Run) {
        let kill = Command::new("kill").arg(run.child.id().to_string()).output().unwrap();
        assert!(kill.status.success(), "{}", text(&kill));
        assert!(run.ended().success(), "{}", run.said());
    }

    /// Port `lan` cannot be had by AF_XDP: `says` why, and what helps. `wan` can, or cannot either.
    fn told_and_got_round(&self, says: &[&str]) {
        let complete = |said: &str| {
            for part in says {
                assert!(said.contains(part), "no {part:?} in\n{said}");
            }
        };
        let mut refused = self.run("af-xdp");
        let status = refused.ended();
        let said = refused.said();
        assert_eq!(status.code(), Some(3), "{said}");
        let place =
            format!("{}:3: port.interface: port lan: interface lan", self.path("router.toml"));
        assert!(said.contains(&place), "{said}");
        complete(&said);
        assert!(said.contains("io = \"af-packet\" for this port"), "{said}");
        assert!(said.contains("io = \"auto\" falls back"), "{said}");
        // The kernel forwards as before.
        self.ping();

        // There is no hardware behind these interfaces.
        let run = self.run("auto");
        assert_eq!(self.io(), ["AF_PACKET with super-frames"; 2]);
        let said = run.said();
        for port in ["lan", "wan"] {
            let why = format!(
                "port {port}: packet sockets with super-frames: interface {port} is virtual (veth)"
            );
            assert!(said.contains(&why), "{said}");
        }
        self.ping();
        self.stop(run);
        self.ping();
    }
}

#[test]
fn a_kernel_without_af_xdp() {
    let Some(mut bed) = Bed::new("no_af_xdp", [1, 1]) else { return };
    bed.start = Start::WithoutXdpSockets;
    bed.told_and_got_round(&[
        "this kernel has no AF_XDP",
        "Linux 5.18 or newer, CONFIG_XDP_SOCKETS",
    ]);
}

#[test]
fn too_little_locked_memory() {
    if !has_tool("locked_memory", "setpriv", "util-linux")
        || !has_tool("locked_memory", "prlimit", "util-linux")
    {
        return;
    }
    let Some(mut bed) = Bed::new("locked_memory", [2, 2]) else { return };
    let cause = "the frame buffers take 2048 KiB that must be locked";
    let remedies = ["LimitMEMLOCK=infinity", "CAP_IPC_LOCK", "lower `buffers`"];
    let says = |limit: &'static str| [&[cause, limit], &remedies[..]].concat();
    bed.section = "buffers = 1024";
    bed.start = Start::WithLittleMemory(1);
    bed.told_and_got_round(&says("this process may lock 1024 KiB"));
    // Enough for the queue of the first worker, and not for that of the second.
    bed.section = "buffers = 1024\nworkers = 2";
    bed.start = Start::WithLittleMemory(3);
    bed.told_and_got_round(&says("this process may lock 3072 KiB"));
}

#[test]
fn an_interface_that_another_xdp_program_has() {
    let Some(bed) = Bed::new("xdp_taken", [1, 1]) else { return };
    // It lets everything pass: it has not been given a buffer.
    let pool = FramePool::new(256);
    let none: &[IpAddr] = &[];
    let open = || AfXdpPort::open_beside("lan", AfXdpOptions::default(), pool.umem(), none, None);
    let other = in_netns(&bed.net.name("r"), open).unwrap().unwrap();
    bed.told_and_got_round(&["has another XDP program already", "`ip link show lan`", "detach it"]);
    drop(other);
    let run = bed.run("af-xdp");
    eventually("AF_XDP at last", || bed.io().iter().all(|io| io.starts_with("AF_XDP")));
    bed.stop(run);
}

#[test]
fn an_mtu_beyond_a_buffer() {
    let Some(mut bed) = Bed::new("mtu_beyond", [1, 1]) else { return };
    bed.net.ip("a", "link set a0 mtu 3000");
    bed.net.ip("r", "link set lan mtu 3000");
    let remedy = "set buffer_size = \"4096B\" under [router]";
    bed.start = Start::WithoutPieces;
    bed.told_and_got_round(&["MTU of 3000", "up to 1774", "Linux 6.6", remedy, "lower the MTU"]);
    bed.start = Start::Plainly;
    // What it says helps, and a kernel that has pieces needs neither.
    for (section, in_pieces) in [("buffer_size = \"4096B\"", false), ("", true)] {
        bed.section = section;
        let run = bed.run("af-xdp");
        let [lan, wan] = bed.io();
        assert!(lan.starts_with("AF_XDP") && wan.starts_with("AF_XDP"), "{}", run.said());
        assert_eq!(lan.contains("long frames in pieces"), in_pieces, "{lan}");
        assert!(!wan.contains("long frames in pieces"), "{wan}");
        bed.ping();
        bed.stop(run);
    }
    let check = format!("{} check {}", env!("CARGO_BIN_EXE_evenkeel"), bed.path("router.toml"));
    let told = bed.net.output("r", &check);
    assert!(told.contains("of an MTU of 3000, take up to 2 buffers each"), "{told}");
    assert!(!told.contains("advice: port wan"), "{told}");
}

#[test]
fn fewer_queues_than_workers() {
    let Some(mut bed) = Bed::new("queues_and_workers", [1, 2]) else { return };
    bed.section = "workers = 2";
    let cause = "has 1 receive and transmit queues for 2 workers";
    bed.told_and_got_round(&[cause, "`ethtool -L` makes more", "fewer workers"]);
}
