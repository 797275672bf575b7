//! One `evenkeel run` per router, inside the router's namespace.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use evenkeel_config::subscribers::ListFormat;
use evenkeel_config::{Change, DisciplineConfig, RouterConfig};
use evenkeel_control::{Client, ClientError, Request};
use evenkeel_ports::sys;
use evenkeel_router::Snapshot;
use evenkeel_router::snapshot::NodeSnapshot;
use evenkeel_scenario::{Router, SetChange};
use evenkeel_world::subscribers::all_nodes;

use crate::LabError;

/// How long a router may take to start forwarding.
const START: Duration = Duration::from_secs(15);
/// How long it may take to stop before it is killed.
const STOP: Duration = Duration::from_secs(3);

/// A running router. Dropping it stops it; the kernel kills it when the lab's thread that started
/// it ends in any other way.
#[derive(Debug)]
pub(crate) struct RouterProcess {
    /// Its name in the scenario.
    pub(crate) name: String,
    child: Child,
    log: PathBuf,
    client: Option<Client>,
}

/// Writes what may hold keys: a router does not start with those that everybody may read.
fn private(file: &Path, text: &str) -> std::io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    options.open(file)?.write_all(text.as_bytes())
}

impl RouterProcess {
    /// Starts the router in `namespace` and waits until it answers. Files go into `folder`.
    ///
    /// # Errors
    /// [`LabError::Router`] with what it printed, if it ends or does not answer.
    pub(crate) fn start(
        router: &Router,
        namespace: &str,
        folder: &Path,
        binary: &Path,
    ) -> Result<Self, LabError> {
        let name = router.name.clone();
        let socket = folder.join(format!("{name}.sock"));
        let file = folder.join(format!("{name}.toml"));
        let log = folder.join(format!("{name}.log"));
        let mut config = router.config.clone();
        // Nothing from elsewhere changes what is measured.
        config.membership = None;
        config.router.control = socket.to_string_lossy().into_owned();
        let cannot = |what: String| move |source| LabError::System { what, source };
        uproot(&mut config);
        for tree in &mut config.trees {
            // Its list may be in no file, or in one beside the scenario.
            let list = folder.join(format!("{name}-{}.csv", tree.section.name));
            fs::write(&list, tree.list.csv())
                .map_err(cannot(format!("write {}", list.display())))?;
            tree.section.subscribers = list.to_string_lossy().into_owned();
            tree.section.nodes = None;
            tree.section.format = ListFormat::Plain;
        }
        private(&file, &config.text()).map_err(cannot(format!("write {}", file.display())))?;
        let output = File::create(&log).map_err(cannot(format!("write {}", log.display())))?;
        let errors = output.try_clone().map_err(cannot(format!("write {}", log.display())))?;

        let mut command = Command::new(binary);
        command.arg("run").arg(&file).stdin(Stdio::null()).stdout(output).stderr(errors);
        command.env("EVENKEEL_RUNTIME_DIR", folder.join(format!("{name}.state")));
        // A Ctrl-C at the terminal is for the lab alone: it stops the routers in order.
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        sys::die_with_parent(&mut command);
        sys::spawn_in_netns(&mut command, namespace)
            .map_err(cannot(format!("enter the network namespace of {name}")))?;
        let child = command.spawn().map_err(cannot(format!("start {}", binary.display())))?;
        let mut process = Self { name, child, log, client: None };
        process.connect(&socket)?;
        Ok(process)
    }

    fn connect(&mut self, socket: &Path) -> Result<(), LabError> {
        let begin = Instant::now();
        loop {
            if let Ok(mut client) = Client::connect_within(socket, Duration::from_millis(100))
                && client.show().is_ok()
            {
                self.client = Some(client);
                return Ok(());
            }
            self.check_alive()?;
            if begin.elapsed() > START {
                return Err(self.failed("did not answer on its control socket", None));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// # Errors
    /// [`LabError::Router`] if the process has ended.
    pub(crate) fn check_alive(&mut self) -> Result<(), LabError> {
        match self.child.try_wait() {
            Ok(Some(status)) => {
                let code = status.code().and_then(|code| u8::try_from(code).ok());
                Err(self.failed(&format!("ended by itself ({status})"), code))
            }
            Ok(None) => Ok(()),
            Err(source) => {
                Err(LabError::System { what: format!("look after router {}", self.name), source })
            }
        }
    }

    /// Every counter, at one instant.
    ///
    /// # Errors
    /// The router is gone or does not answer.
    pub(crate) fn snapshot(&mut self) -> Result<Snapshot, LabError> {
        let shown = self.client.as_mut().map(Client::show);
        self.answer("show", shown)
    }

    /// Every subscriber and node.
    ///
    /// # Errors
    /// The router is gone or does not answer.
    pub(crate) fn nodes(&mut self) -> Result<Vec<NodeSnapshot>, LabError> {
        let client = self.client.as_mut();
        let told = client.map(|client| all_nodes(|query| client.nodes(query)));
        self.answer("subscribers", told)
    }

    /// Applies one change of a step.
    ///
    /// # Errors
    /// [`LabError::Refused`] with the valid range, or the router is gone.
    pub(crate) fn set(&mut self, change: &SetChange) -> Result<(), LabError> {
        let SetChange { link, knob, class, value, .. } = change;
        let done = self.client.as_mut().map(|client| match &change.change {
            Change::FairDrop(_) => {
                client.send(&Request::Fairdrop { key: knob.clone(), value: value.clone() })
            }
            _ => client.set(link, knob, class.as_deref(), value),
        });
        self.answer(&format!("{link}: {knob} = {value}"), done)
    }

    /// Sends a request that is answered with nothing.
    ///
    /// # Errors
    /// [`LabError::Refused`], or the router is gone.
    pub(crate) fn request(&mut self, what: &str, request: &Request) -> Result<(), LabError> {
        let done = self.client.as_mut().map(|client| client.send(request));
        self.answer(what, done)
    }

    /// Ends it as a crash would.
    pub(crate) fn kill(&mut self) {
        self.client = None;
        // One that has ended already has nothing to be killed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    fn answer<T>(
        &mut self,
        command: &str,
        answer: Option<Result<T, ClientError>>,
    ) -> Result<T, LabError> {
        match answer {
            Some(Ok(value)) => Ok(value),
            Some(Err(ClientError::Refused(said))) => Err(LabError::Refused {
                router: self.name.clone(),
                command: command.to_owned(),
                said,
            }),
            Some(Err(error)) => {
                self.check_alive()?;
                Err(self.failed(&format!("does not answer: {error}"), None))
            }
            None => Err(self.failed("was never connected", None)),
        }
    }

    /// Processor time used so far, all threads.
    pub(crate) fn cpu_time(&self) -> Duration {
        cpu_time(&self.child.id().to_string())
    }

    fn failed(&self, what: &str, code: Option<u8>) -> LabError {
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        let tail = lines[lines.len().saturating_sub(20)..].join("\n");
        LabError::Router { router: self.name.clone(), what: what.to_owned(), log: tail, code }
    }

    /// Asks the router to stop, and kills it if it does not.
    pub(crate) fn stop(&mut self) {
        self.client = None;
        if matches!(self.child.try_wait(), Ok(Some(_)) | Err(_)) {
            return;
        }
        let pid = self.child.id().to_string();
        // The child has not been waited for, so the number is still its own.
        let _ = evenkeel_netns::shell::output(&["sh", "-c", &format!("kill -TERM {pid}")]);
        let begin = Instant::now();
        while begin.elapsed() < STOP {
            if matches!(self.child.try_wait(), Ok(Some(_)) | Err(_)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for RouterProcess {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Takes trees off links that have another discipline: a run without the mechanism.
fn uproot(config: &mut RouterConfig) {
    let RouterConfig { trees, links, .. } = config;
    let has_none = |port: &mut String| {
        let own = links.iter().find(|link| link.port == *port);
        own.is_some_and(|link| !matches!(link.discipline, DisciplineConfig::Tree(_)))
    };
    trees.retain_mut(|tree| {
        let section = &mut tree.section;
        drop(section.down.take_if(has_none));
        drop(section.up.take_if(has_none));
        section.down.is_some() || section.up.is_some()
    });
}

/// Processor time of a process (`self` or a number), user and system; zero if it is gone.
pub(crate) fn cpu_time(process: &str) -> Duration {
    // Clock ticks of /proc are 1/100 s on every Linux that runs Rust's standard library.
    const TICK: Duration = Duration::from_millis(10);
    let ticks = || -> Option<u32> {
        let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
        let mut fields = stat[stat.rfind(')')? + 1..].split_whitespace().skip(11);
        let user: u32 = fields.next()?.parse().ok()?;
        let system: u32 = fields.next()?.parse().ok()?;
        Some(user + system)
    };
    TICK * ticks().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::private;

    #[test]
    fn only_its_owner_reads_what_a_router_is_started_with() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("r1.toml");
        private(&file, "key = 1").expect("written");
        let mode = std::fs::metadata(&file).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
}
