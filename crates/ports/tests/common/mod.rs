//! Namespaces for tests: made by `ip`, removed when dropped, also on panic.
#![allow(dead_code, unreachable_pub, reason = "each test binary uses its own part")]

use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

static NEXT: AtomicU32 = AtomicU32::new(0);

/// Whether namespaces can be made; says why not otherwise.
pub fn able(test: &str) -> bool {
    let able = evenkeel_ports::sys::is_root();
    if !able {
        eprintln!("{test}: skipped, needs root");
    }
    able
}

/// Runs a program and gives what it printed; panics if it fails.
pub fn run(line: &str) -> String {
    let (ok, text) = try_run(line);
    assert!(ok, "{line}: {text}");
    text
}

/// Runs a program and gives whether it succeeded and what it printed.
pub fn try_run(line: &str) -> (bool, String) {
    let mut words = line.split_whitespace();
    let output = Command::new(words.next().unwrap()).args(words).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&text).into_owned())
}

/// Some namespaces whose names begin alike.
pub struct Lab {
    prefix: String,
    names: Vec<String>,
}

impl Lab {
    pub fn new(names: &[&str]) -> Self {
        let prefix = format!("ek{}x{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let mut lab = Self { prefix, names: Vec::new() };
        for name in names {
            let full = lab.ns(name);
            run(&format!("ip netns add {full}"));
            lab.names.push(full.clone());
            // No router solicitations, no duplicate address detection: a quiet line.
            run(&format!(
                "ip netns exec {full} sysctl -qw net.ipv6.conf.default.accept_dad=0 net.ipv6.conf.default.router_solicitations=0 net.ipv6.conf.default.autoconf=0"
            ));
            lab.ip(name, "link set lo up");
        }
        lab
    }

    /// The full name of a namespace.
    pub fn ns(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    /// `ip -n <namespace> ...`
    pub fn ip(&self, name: &str, arguments: &str) -> String {
        run(&format!("ip -n {} {arguments}", self.ns(name)))
    }

    /// Runs a program in a namespace.
    pub fn exec(&self, name: &str, line: &str) -> String {
        run(&format!("ip netns exec {} {line}", self.ns(name)))
    }

    pub fn try_exec(&self, name: &str, line: &str) -> (bool, String) {
        try_run(&format!("ip netns exec {} {line}", self.ns(name)))
    }

    /// Joins two namespaces by a veth pair, both ends up.
    pub fn veth(&self, (a, a_if): (&str, &str), (b, b_if): (&str, &str)) {
        let (a_ns, b_ns) = (self.ns(a), self.ns(b));
        run(&format!("ip link add {a_if} netns {a_ns} type veth peer name {b_if} netns {b_ns}"));
        self.ip(a, &format!("link set {a_if} up"));
        self.ip(b, &format!("link set {b_if} up"));
    }

    /// Keeps the kernel from saying anything of its own on an interface.
    pub fn hush(&self, name: &str, interface: &str) {
        self.exec(name, &format!("sysctl -qw net.ipv6.conf.{interface}.disable_ipv6=1"));
    }

    /// A thread that lives in a namespace.
    pub fn inside<T: Send>(&self, name: &str, work: impl FnOnce() -> T + Send) -> T {
        evenkeel_ports::sys::in_netns(&self.ns(name), work).unwrap()
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        for name in &self.names {
            try_run(&format!("ip netns del {name}"));
        }
    }
}

/// Repeats `check` until it gives something, for at most five seconds.
pub fn eventually<T>(what: &str, mut check: impl FnMut() -> Option<T>) -> T {
    let end = std::time::Instant::now() + std::time::Duration::from_secs(5);
    loop {
        if let Some(value) = check() {
            return value;
        }
        assert!(std::time::Instant::now() < end, "{what}: not within five seconds");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}
