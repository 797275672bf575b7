//! DPDK's testpmd as a forwarder: from one interface to the other, nothing looked up, nothing
//! changed. The upper end of what its drivers give.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use evenkeel_ports::sys;

use super::bed::{Bed, GENERATOR_CPU, NEIGHBOURS, ROUTER_CPU};

/// How long it may take until it forwards.
const START: Duration = Duration::from_secs(10);

/// A running testpmd; killed when dropped.
pub(crate) struct Testpmd {
    child: Child,
    namespace: String,
}

impl Testpmd {
    /// Starts it with the driver `net_af_xdp` or `net_af_packet` and waits until it forwards. The
    /// error says why it does not.
    pub(crate) fn start(bed: &Bed, driver: &str) -> Result<Self, String> {
        let log = bed.file("testpmd.log");
        let output = fs::File::create(&log).map_err(|error| error.to_string())?;
        let errors = output.try_clone().map_err(|error| error.to_string())?;
        let mut command = Command::new("dpdk-testpmd");
        // The main thread only sleeps.
        let cpus = format!("{GENERATOR_CPU},{ROUTER_CPU}");
        command.args([
            "--no-huge",
            "-m",
            "512",
            "--no-pci",
            "--no-telemetry",
            "--no-shconf",
            "-l",
            &cpus,
        ]);
        command.args(["--main-lcore", &GENERATOR_CPU.to_string()]);
        for (number, interface) in ["in", "out"].into_iter().enumerate() {
            command.arg("--vdev").arg(format!("{driver}{number},iface={interface}"));
        }
        command.args(["--", "--forward-mode=io", "--auto-start", "--nb-cores=1", "--burst=64"]);
        command.args(["--stats-period=1000", "--no-mlockall", "--total-num-mbufs=16384"]);
        command.stdin(Stdio::null()).stdout(output).stderr(errors);
        sys::spawn_in_netns(&mut command, &bed.router()).map_err(|error| error.to_string())?;
        let child = sys::die_with_parent(&mut command).spawn().map_err(|error| {
            format!("dpdk-testpmd: {error} (Debian package dpdk-dev; scripts/setup.sh bench)")
        })?;
        let mut testpmd = Self { child, namespace: bed.router() };
        let begin = Instant::now();
        loop {
            let said = fs::read_to_string(&log).unwrap_or_default();
            if said.contains("packet forwarding - ports=2") {
                return Ok(testpmd);
            }
            let ended = !matches!(testpmd.child.try_wait(), Ok(None));
            if ended || begin.elapsed() > START {
                let lines: Vec<&str> =
                    said.lines().filter(|line| !line.trim().is_empty()).collect();
                let tail = lines[lines.len().saturating_sub(4)..].join(" / ");
                return Err(format!("dpdk-testpmd with {driver} does not start: {tail}"));
            }
            sleep(Duration::from_millis(20));
        }
    }

    /// The folder of its forwarding thread under `/proc`.
    pub(crate) fn worker(&self) -> String {
        let pid = self.child.id();
        let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        let mut tasks = tasks.map(|task| task.path().display().to_string());
        // "lcore-worker-1" or, before 23.03, "rte-worker-1".
        let name = format!("-worker-{ROUTER_CPU}");
        let named = |task: &String| {
            fs::read_to_string(format!("{task}/comm"))
                .is_ok_and(|comm| comm.trim().ends_with(&name))
        };
        tasks
            .find(|task| !task.ends_with(&format!("/{pid}")) && named(task))
            .unwrap_or_else(|| format!("/proc/{pid}"))
    }
}

impl Drop for Testpmd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        // Its program stays behind, and no other could take its place; the packet sockets had none.
        for interface in ["in", "out"] {
            let mut detach = Command::new("ip");
            detach.args(["-n", &self.namespace, "link", "set", "dev", interface, "xdp", "off"]);
            let _ = detach.stderr(Stdio::null()).status();
        }
        // It has closed its ports by itself or not, and the kernel has forgotten who was behind
        // them.
        for neighbour in NEIGHBOURS {
            let mut tell = Command::new("ip");
            tell.args(["-n", &self.namespace]).args(neighbour.split(' '));
            let _ = tell.stderr(Stdio::null()).status();
        }
        // The kernel frees the receive queue of an AF_XDP socket a little after it is closed.
        sleep(Duration::from_millis(300));
    }
}
