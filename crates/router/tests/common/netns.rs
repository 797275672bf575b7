//! Network namespaces for tests: made with a unique name, removed when dropped, also by a panic.

use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

static NEXT: AtomicU32 = AtomicU32::new(0);

/// Whether namespaces can be made here. If not, says why the test is skipped.
pub fn available(test: &str) -> bool {
    if !evenkeel_ports::sys::is_root() {
        eprintln!("{test}: skipped: making network namespaces needs root");
        return false;
    }
    if Command::new("ip").arg("-V").stdout(Stdio::null()).status().is_err() {
        eprintln!("{test}: skipped: there is no `ip` command (Debian package iproute2)");
        return false;
    }
    true
}

/// Whether a tool is installed. If not, says why the test is skipped.
pub fn has_tool(test: &str, tool: &str, package: &str) -> bool {
    let found = std::env::var_os("PATH").is_some_and(|path| {
        std::env::split_paths(&path)
            .chain(["/usr/sbin".into(), "/sbin".into()])
            .any(|folder| folder.join(tool).is_file())
    });
    if !found {
        eprintln!("{test}: skipped: there is no `{tool}` (Debian package {package})");
    }
    found
}

/// A set of namespaces whose names begin with a prefix of their own.
pub struct Namespaces {
    prefix: String,
    names: Vec<String>,
}

impl Namespaces {
    /// Makes them; `names` are short, and unique in the test only.
    pub fn new(names: &[&str]) -> Self {
        let prefix = format!("ek{}x{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let mut made = Self { prefix, names: Vec::new() };
        for name in names {
            let full = made.name(name);
            ip(&format!("netns add {full}"));
            made.names.push(full.clone());
            ip(&format!("-n {full} link set lo up"));
            // Neighbour discovery's duplicate address detection would make addresses unusable for a second.
            made.sysctl(name, "net.ipv6.conf.all.accept_dad=0");
            made.sysctl(name, "net.ipv6.conf.default.accept_dad=0");
            made.sysctl(name, "net.ipv6.conf.default.router_solicitations=0");
        }
        made
    }

    /// The name that `ip netns` knows.
    pub fn name(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    /// A pair of Ethernet interfaces, up: (namespace, interface) at both ends.
    pub fn wire(&self, left: (&str, &str), right: (&str, &str)) {
        let (from, to) = (self.name(left.0), self.name(right.0));
        ip(&format!("-n {from} link add {} type veth peer name {} netns {to}", left.1, right.1));
        ip(&format!("-n {from} link set {} up", left.1));
        ip(&format!("-n {to} link set {} up", right.1));
    }

    /// `ip` inside a namespace.
    pub fn ip(&self, namespace: &str, arguments: &str) {
        ip(&format!("-n {} {arguments}", self.name(namespace)));
    }

    /// Sets a kernel parameter inside a namespace.
    pub fn sysctl(&self, namespace: &str, setting: &str) {
        let output = self.run(namespace, &format!("sysctl -qw {setting}"));
        assert!(output.status.success(), "sysctl {setting}: {}", text(&output));
    }

    /// A command line inside a namespace, split at spaces.
    pub fn command(&self, namespace: &str, line: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name(namespace)]).args(line.split(' ')).stdin(Stdio::null());
        command
    }

    /// Runs a command inside a namespace to its end, which it must have by itself (bounded by `timeout`, 30 s).
    pub fn run(&self, namespace: &str, line: &str) -> Output {
        self.command(namespace, &format!("timeout 30 {line}")).output().expect("ip can be started")
    }

    /// As [`Namespaces::run`], for its output; it must succeed.
    pub fn output(&self, namespace: &str, line: &str) -> String {
        let output = self.run(namespace, line);
        assert!(output.status.success(), "{line}: {}", text(&output));
        text(&output)
    }

    /// Starts a command inside a namespace; it is killed when dropped.
    pub fn start(&self, namespace: &str, line: &str) -> Running {
        let mut command = self.command(namespace, &format!("timeout 60 {line}"));
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        Running(Some(command.spawn().expect("ip can be started")))
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        for name in &self.names {
            let pids = Command::new("ip").args(["netns", "pids", name]).output();
            for pid in pids.map(|output| text(&output)).unwrap_or_default().split_whitespace() {
                let own = std::process::id().to_string();
                if pid != own {
                    let _ = Command::new("kill").args(["-9", pid]).status();
                }
            }
            let _ = Command::new("ip").args(["netns", "del", name]).stderr(Stdio::null()).status();
        }
    }
}

/// A process that does not outlive its owner.
pub struct Running(Option<Child>);

impl Running {
    /// Asks it to end and gives all it has printed.
    pub fn finish(mut self) -> String {
        let child = self.0.take().expect("taken only here and by drop");
        let _ = Command::new("kill").args(["-INT", &child.id().to_string()]).status();
        child.wait_with_output().map(|output| text(&output)).unwrap_or_default()
    }

    /// Waits for its end and gives all it has printed.
    pub fn wait(mut self) -> String {
        let child = self.0.take().expect("taken only here and by drop");
        child.wait_with_output().map(|output| text(&output)).unwrap_or_default()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// What a process printed.
pub fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

fn ip(arguments: &str) {
    let output = Command::new("ip").args(arguments.split(' ')).output().expect("ip can be started");
    assert!(output.status.success(), "ip {arguments}: {}", text(&output));
}

/// Waits until `condition` holds; fails the test if it does not within some seconds.
pub fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(10);
    while !condition() {
        assert!(Instant::now() < end, "waited in vain: {what}");
        sleep(Duration::from_millis(10));
    }
}
