//! Whose a namespace is, from its name.

use std::collections::HashSet;
use std::fs;
use std::path::Path;

/// Head of the names of all namespaces.
const HEAD: &str = "ekl";

/// The head of the names of a set of this process: its number and start time (so that a reused
/// process number is not taken for it), and the number of the set.
pub(crate) fn prefix(number: u32) -> String {
    let pid = std::process::id();
    // Zero, where `/proc` is missing, is nobody's start time: the next sweep takes it for a dead
    // one's.
    let start = start_time(pid).unwrap_or(0);
    format!("{HEAD}{pid}-{start}-{number}-")
}

/// The entries of a folder that are named after owners that are no longer there: namespaces, and
/// folders that were named like them.
#[must_use]
pub fn left_behind_in(folder: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let names: Vec<String> =
        entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
    left_behind(&names, start_time)
}

/// Those of `names` whose owner is gone. `start_of` gives the start time of a process if it exists.
fn left_behind(names: &[String], start_of: impl Fn(u32) -> Option<u64>) -> Vec<String> {
    let mut alive = HashSet::new();
    let mut dead = Vec::new();
    for name in names {
        let Some(owner) = owner(name) else { continue };
        // A tick apart by rounding, where one of the two was told in a namespace of time.
        let lives = start_of(owner.0).is_some_and(|start| start.abs_diff(owner.1) <= 1);
        if alive.contains(&owner) || lives {
            alive.insert(owner);
        } else {
            dead.push(name.clone());
        }
    }
    dead
}

/// Process number and start time in the name of a namespace of ours.
fn owner(name: &str) -> Option<(u32, u64)> {
    let mut parts = name.strip_prefix(HEAD)?.splitn(4, '-');
    let pid = parts.next()?.parse().ok()?;
    let start = parts.next()?.parse().ok()?;
    let _number: u32 = parts.next()?.parse().ok()?;
    parts.next()?;
    Some((pid, start))
}

/// When a process started, in clock ticks since boot; `None` if there is no such process. By the
/// kernel's own clock: in a namespace of time it is told by that of the reader, and who compared
/// would take all others for dead.
fn start_time(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field is the program's name in parentheses and may hold anything, so count from
    // its end.
    let after = &stat[stat.rfind(')')? + 1..];
    let told: u64 = after.split_whitespace().nth(19)?.parse().ok()?;
    let offsets = fs::read_to_string("/proc/self/timens_offsets").unwrap_or_default();
    told.checked_add_signed(-boot_offset(&offsets).unwrap_or(0))
}

/// By how many clock ticks, hundredths of a second, a namespace of time is ahead of the kernel:
/// `boottime <seconds> <nanoseconds>`, a line of several.
fn boot_offset(text: &str) -> Option<i64> {
    let line = text.lines().find_map(|line| line.strip_prefix("boottime"))?;
    let mut numbers = line.split_whitespace().map(str::parse::<i64>);
    let (seconds, nanos) = (numbers.next()?.ok()?, numbers.next()?.ok()?);
    seconds.checked_mul(100)?.checked_add(nanos.div_euclid(10_000_000))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_namespaces_of_dead_owners_are_swept() {
        let names = [
            "ekl10-500-0-h1",   // alive
            "ekl11-500-0-h1",   // no such process
            "ekl12-500-3-r-1",  // the number belongs to a younger process
            "ekl10-402-0-h1",   // an older life of process 10
            "ekl11-500-h1",     // not ours: no number of the set
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
        assert_eq!(
            left_behind(&names, start_of),
            ["ekl11-500-0-h1", "ekl12-500-3-r-1", "ekl10-402-0-h1"]
        );
    }

    #[test]
    fn in_a_namespace_of_time_start_times_are_the_kernels() {
        let text = "monotonic           7         0\nboottime         -30 250000000\n";
        assert_eq!(boot_offset(text), Some(-2_975));
        assert_eq!(boot_offset("boottime            0         0\n"), Some(0));
        assert_eq!(boot_offset(""), None);
    }

    #[test]
    fn a_process_that_runs_has_a_start_time() {
        assert!(start_time(std::process::id()).is_some_and(|start| start > 0));
        assert_eq!(start_time(u32::MAX), None);
        assert_eq!(owner(&(prefix(3) + "h1")).map(|owner| owner.0), Some(std::process::id()));
    }
}
