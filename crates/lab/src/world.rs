//! Namespaces and wires of one run, made from a [`Plan`].

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use evenkeel_netns::{Namespaces, ShellError, shell};
use evenkeel_ports::sys;

use crate::LabError;
use crate::plan::{NodePlan, Ping, Plan};

/// Removes what killed labs have left: namespaces with what runs inside, and folders.
pub(crate) fn sweep() {
    evenkeel_netns::sweep();
    let folder = std::env::temp_dir();
    for name in evenkeel_netns::left_behind_in(&folder) {
        // What cannot be removed is tried again by the next lab.
        let _ = fs::remove_dir_all(folder.join(name));
    }
}

/// The namespaces with their wires, and a folder for sockets and logs. Dropping it removes both.
#[derive(Debug)]
pub(crate) struct World {
    // Order matters: what runs inside ends with the namespaces, then its files go.
    namespaces: Namespaces,
    folder: Folder,
}

/// A folder that goes with its owner.
#[derive(Debug)]
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        // No caller is left to be told; a folder that stays is swept by the next lab.
        let _ = fs::remove_dir_all(&self.0);
    }
}

impl World {
    /// Names for a new run; makes nothing but the folder.
    ///
    /// # Errors
    /// The folder cannot be made.
    pub(crate) fn new() -> Result<Self, LabError> {
        let namespaces = Namespaces::new();
        let path = std::env::temp_dir().join(namespaces.name_of("files"));
        fs::create_dir_all(&path).map_err(|source| LabError::System {
            what: format!("make {}", path.display()),
            source,
        })?;
        Ok(Self { namespaces, folder: Folder(path) })
    }

    /// The namespace of a node.
    pub(crate) fn namespace(&self, node: &str) -> String {
        self.namespaces.name_of(node)
    }

    /// Where sockets, configurations and logs of this run are.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder.0
    }

    /// Makes namespaces, wires, addresses and routes.
    ///
    /// # Errors
    /// The first thing that the kernel refuses.
    pub(crate) fn build(&mut self, plan: &Plan) -> Result<(), LabError> {
        for node in &plan.nodes {
            self.namespaces.add(&node.node).map_err(|error| {
                refused(format!("make a network namespace for {}", node.node), error)
            })?;
            self.set(node)?;
        }
        shell::feed(&["ip", "-batch", "-"], &lines(&plan.wires))
            .map_err(|error| refused("make a veth pair".into(), error))?;
        for node in &plan.nodes {
            let namespace = self.namespace(&node.node);
            shell::feed(&["ip", "-n", &namespace, "-batch", "-"], &lines(&node.batch))?;
            for interface in &node.offloads {
                let words = [
                    "ip", "netns", "exec", &namespace, "ethtool", "-K", interface, "tx", "off",
                    "tso", "off", "gso", "off",
                ];
                shell::output(&words)?;
            }
        }
        Ok(())
    }

    /// Has `ip` carry out commands in the namespace of a node.
    ///
    /// # Errors
    /// What the kernel refuses.
    pub(crate) fn change(&self, node: &str, commands: &[String]) -> Result<(), LabError> {
        if !commands.is_empty() {
            shell::feed(&["ip", "-n", &self.namespace(node), "-batch", "-"], &lines(commands))?;
        }
        Ok(())
    }

    /// Writes the kernel settings of a node, from inside its namespace: `/proc/sys/net` shows that
    /// of the reader.
    fn set(&self, node: &NodePlan) -> Result<(), LabError> {
        let namespace = self.namespace(&node.node);
        let written = sys::in_netns(&namespace, || {
            node.settings.iter().try_for_each(|(path, value)| {
                let path = Path::new("/proc/sys/net").join(path);
                match fs::write(&path, value) {
                    // A kernel without IPv6 has none of its settings.
                    Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
                    Err(source) => {
                        Err(LabError::System { what: format!("write {}", path.display()), source })
                    }
                    Ok(()) => Ok(()),
                }
            })
        });
        written.map_err(|error| LabError::Kernel {
            what: format!("enter the network namespace of {}", node.node),
            said: error.to_string(),
        })?
    }

    /// Tries every path until it answers, so that neighbours are known before anything is measured.
    ///
    /// # Errors
    /// [`LabError::Check`] for a path that does not answer within some seconds.
    pub(crate) fn warm_up(&self, pings: &[Ping]) -> Result<(), LabError> {
        for ping in pings {
            let namespace = self.namespace(&ping.from);
            let to = ping.to.to_string();
            let words =
                ["ip", "netns", "exec", &namespace, "ping", "-n", "-q", "-c", "1", "-W", "1", &to];
            let begin = Instant::now();
            while let Err(error) = shell::output(&words) {
                if begin.elapsed() > Duration::from_secs(5) {
                    return Err(LabError::Check(format!(
                        "{} does not reach {to} through the kernel, before any router was started: \
                         {error}",
                        ping.from
                    )));
                }
                std::thread::sleep(Duration::from_millis(50));
            }
        }
        Ok(())
    }
}

/// What a failed command means that only a kernel feature or a capability makes succeed.
pub(crate) fn refused(what: String, error: ShellError) -> LabError {
    match error {
        ShellError::Failed { said, .. } => LabError::Kernel { what, said },
        other => other.into(),
    }
}

fn lines(commands: &[String]) -> String {
    commands.iter().fold(String::new(), |text, line| text + line + "\n")
}
