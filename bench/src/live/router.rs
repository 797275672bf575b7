//! Evenkeel as a process of its own, as a user starts it.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use evenkeel_control::Client;
use evenkeel_ports::sys;
use evenkeel_router::Snapshot;

use super::bed::{Bed, ROUTER_CPU};

/// What the router is told to do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Task {
    /// `busy`, `adaptive` or `event`.
    pub(crate) mode: &'static str,
    /// The discipline of the outgoing link, as in router.toml; empty: none is named, which is a
    /// FIFO.
    pub(crate) discipline: &'static str,
    /// `af-packet` or `af-xdp`.
    pub(crate) io: &'static str,
    /// Further lines of the link; needs a discipline.
    pub(crate) link: &'static str,
    /// Further tables.
    pub(crate) more: &'static str,
}

/// A running router; killed when dropped.
pub(crate) struct Router {
    child: Child,
    client: Client,
    worker: String,
}

impl Router {
    /// Starts `binary` and waits until it forwards.
    pub(crate) fn start(binary: &Path, bed: &Bed, task: Task) -> Result<Self, String> {
        let link = if task.discipline.is_empty() {
            String::new()
        } else {
            format!(
                "[[link]]\nport = \"out\"\ndiscipline = {{ {} }}\n{}",
                task.discipline, task.link
            )
        };
        let ports = include_str!("../router.toml");
        let text = format!(
            "[router]\nmode = \"{}\"\nio = \"{}\"\nbypass = [\"ip_forward\"]\n{ports}{link}{}",
            task.mode, task.io, task.more
        );
        let (file, socket) = (bed.file("router.toml"), bed.file("control.sock"));
        fs::write(&file, text).map_err(|error| format!("{}: {error}", file.display()))?;
        let log = fs::File::create(bed.file("router.log")).map_err(|error| error.to_string())?;
        let mut command = Command::new(binary);
        command.arg("run").arg(&file).args([
            "--netns",
            &bed.router(),
            "--cpu",
            &ROUTER_CPU.to_string(),
        ]);
        command.arg("--socket").arg(&socket).arg("--runtime-dir").arg(bed.file("runtime"));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let child = sys::die_with_parent(&mut command).spawn();
        let mut child = child.map_err(|error| format!("{}: {error}", binary.display()))?;
        match Client::connect_within(&socket, Duration::from_secs(10)) {
            Ok(client) => {
                let worker = worker_of(child.id());
                Ok(Self { child, client, worker })
            }
            Err(error) => {
                let _ = child.kill();
                let _ = child.wait();
                let said = fs::read_to_string(bed.file("router.log")).unwrap_or_default();
                Err(format!("{} did not start: {error}\n{said}", binary.display()))
            }
        }
    }

    /// Every counter, as `evenkeel ctl show --json` prints them.
    pub(crate) fn show(&mut self) -> Result<Snapshot, String> {
        self.client.show().map_err(|error| error.to_string())
    }

    /// The folder of its worker under `/proc`.
    pub(crate) fn worker(&self) -> &str {
        &self.worker
    }
}

fn worker_of(pid: u32) -> String {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let mut tasks = tasks.map(|task| task.path().display().to_string());
    let is_worker = |task: &String| {
        fs::read_to_string(format!("{task}/comm")).is_ok_and(|name| name.trim() == "worker")
    };
    tasks.find(is_worker).unwrap_or_else(|| format!("/proc/{pid}"))
}

impl Drop for Router {
    fn drop(&mut self) {
        // It has not been waited for, so the number is its own.
        let _ = Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status();
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_secs(3) {
            if matches!(self.child.try_wait(), Ok(Some(_)) | Err(_)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
