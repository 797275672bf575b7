//! Network namespaces that go when their owner goes.
//!
//! A namespace is called `ekl<pid>-<start>-<n>-<node>`: process number and start time of the lab that made it (so that a reused process
//! number is not taken for it), a number per run, and the node. What a killed lab left is found by that name and removed
//! by the next one; nothing else is ever touched.

use std::collections::HashSet;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::LabError;
use crate::shell;

/// Head of the names of all namespaces of all labs.
const HEAD: &str = "ekl";
/// Where named namespaces are.
const FOLDER: &str = "/run/netns";

/// The namespaces of one run. Dropping it removes them, and whatever still runs inside.
#[derive(Debug)]
pub(crate) struct Namespaces {
    prefix: String,
    names: Vec<String>,
}

impl Namespaces {
    /// No namespace yet, but a prefix that nobody else has.
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let pid = std::process::id();
        let start = start_time(pid).unwrap_or(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Self { prefix: format!("{HEAD}{pid}-{start}-{number}-"), names: Vec::new() }
    }

    /// The name that the namespace of `node` has or would have.
    pub(crate) fn name_of(&self, node: &str) -> String {
        format!("{}{node}", self.prefix)
    }

    /// Makes the namespace of `node`.
    ///
    /// # Errors
    /// [`LabError::Kernel`] when the kernel does not let us.
    pub(crate) fn add(&mut self, node: &str) -> Result<(), LabError> {
        let name = self.name_of(node);
        // First into the list: a command that fails half-way may have made it.
        self.names.push(name.clone());
        shell::output(&["ip", "netns", "add", &name]).map(drop).map_err(|error| LabError::Kernel {
            what: format!("make a network namespace for {node}"),
            said: match error {
                LabError::Command { said, .. } => said,
                other => other.to_string(),
            },
        })
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        for name in self.names.drain(..).rev() {
            remove(&name);
        }
    }
}

/// Ends what runs inside a namespace, then removes it. Errors are left alone: there is nobody to tell, and the next sweep tries again.
fn remove(name: &str) {
    if !Path::new(FOLDER).join(name).exists() {
        return;
    }
    if let Ok(pids) = shell::output(&["ip", "netns", "pids", name]) {
        // A thread of ours that is still inside makes us one of them.
        let own = std::process::id().to_string();
        for pid in pids.split_whitespace().filter(|pid| *pid != own) {
            let _ = shell::output(&["sh", "-c", &format!("kill -9 {pid}")]);
        }
    }
    let _ = shell::output(&["ip", "netns", "del", name]);
}

/// Removes the namespaces of labs that are no longer there.
pub(crate) fn sweep() {
    for name in left_behind_in(Path::new(FOLDER)) {
        remove(&name);
    }
}

/// The entries of a folder that are named after labs that are no longer there.
pub(crate) fn left_behind_in(folder: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let names: Vec<String> = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
    left_behind(&names, start_time)
}

/// Those of `names` whose lab is gone. `start_of` gives the start time of a process if it exists.
fn left_behind(names: &[String], start_of: impl Fn(u32) -> Option<u64>) -> Vec<String> {
    let mut alive = HashSet::new();
    let mut dead = Vec::new();
    for name in names {
        let Some(owner) = owner(name) else { continue };
        if alive.contains(&owner) || start_of(owner.0) == Some(owner.1) {
            alive.insert(owner);
        } else {
            dead.push(name.clone());
        }
    }
    dead
}

/// Process number and start time in the name of a lab's namespace.
fn owner(name: &str) -> Option<(u32, u64)> {
    let mut parts = name.strip_prefix(HEAD)?.splitn(4, '-');
    let pid = parts.next()?.parse().ok()?;
    let start = parts.next()?.parse().ok()?;
    let _number: u32 = parts.next()?.parse().ok()?;
    parts.next()?;
    Some((pid, start))
}

/// When a process started, in clock ticks since boot; `None` if there is no such process.
fn start_time(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field is the program's name in parentheses and may hold anything, so count from its end.
    let after = &stat[stat.rfind(')')? + 1..];
    after.split_whitespace().nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_namespaces_of_dead_labs_are_swept() {
        let names = [
            "ekl10-500-0-h1",   // alive
            "ekl11-500-0-h1",   // no such process
            "ekl12-500-3-r-1",  // the number belongs to a younger process
            "ekl10-501-0-h1",   // an older life of process 10
            "ekl11-500-h1",     // not ours: no run number
            "ekl11",            // not ours
            "customer-vrf-red", // not ours
            "eklipse-1-2-3",    // not ours
        ]
        .map(str::to_owned);
        let start_of = |pid| match pid {
            10 => Some(500),
            12 => Some(900),
            _ => None,
        };
        assert_eq!(left_behind(&names, start_of), ["ekl11-500-0-h1", "ekl12-500-3-r-1", "ekl10-501-0-h1"]);
    }

    #[test]
    fn a_process_that_runs_has_a_start_time() {
        assert!(start_time(std::process::id()).is_some_and(|start| start > 0));
        assert_eq!(start_time(u32::MAX), None);
    }

    #[test]
    fn two_runs_of_one_process_do_not_share_names() {
        let (a, b) = (Namespaces::new(), Namespaces::new());
        assert_ne!(a.name_of("h1"), b.name_of("h1"));
        assert_eq!(owner(&a.name_of("h1")).map(|o| o.0), Some(std::process::id()));
    }
}
