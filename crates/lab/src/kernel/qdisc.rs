//! Queueing disciplines of Linux, by `tc`.

use evenkeel_config::tc_lines;
use evenkeel_core::schedule::LinuxConfig;
use evenkeel_netns::ShellError;
use evenkeel_netns::shell;
use serde_json::Value;

use crate::LabError;

/// Disciplines that a kernel may have, with the least that each wants to be told, to find out which
/// are there.
const KINDS: [&str; 21] = [
    "bfifo",
    "cake",
    "choke limit 1000 bandwidth 10Mbit min 10 max 30",
    "codel",
    "drr",
    "dualpi2",
    "ets bands 3",
    "fq",
    "fq_codel",
    "fq_pie",
    "gred setup DPs 3 default 2",
    "hfsc default 1",
    "hhf",
    "htb default 1",
    "netem delay 1ms",
    "pfifo",
    "pie",
    "qfq",
    "red limit 400000 min 30000 max 90000 avpkt 1000 burst 55 bandwidth 10Mbit",
    "sfq",
    "tbf rate 5mbit burst 10k latency 50ms",
];

/// What the kernel counts of a root discipline, since it was put in.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Counted {
    /// Packets that it has sent.
    pub(super) packets: u64,
    /// Packets that it has dropped, those of the disciplines below it included.
    pub(super) drops: u64,
    /// How often it held a packet back for its rate.
    pub(super) overlimits: u64,
    /// Packets that wait in it and below.
    pub(super) waiting: u64,
}

impl Counted {
    /// What the last readings of two disciplines of one link come to.
    pub(super) fn and(self, later: Self) -> Self {
        Self {
            packets: self.packets + later.packets,
            drops: self.drops + later.drops,
            overlimits: self.overlimits + later.overlimits,
            waiting: later.waiting,
        }
    }

    /// What has been counted since an earlier reading.
    pub(super) fn since(self, earlier: Self) -> Self {
        Self {
            packets: self.packets.saturating_sub(earlier.packets),
            drops: self.drops.saturating_sub(earlier.drops),
            overlimits: self.overlimits.saturating_sub(earlier.overlimits),
            waiting: self.waiting,
        }
    }
}

/// Gives an interface a discipline, in place of whatever it had.
///
/// # Errors
/// [`LabError::NoQdisc`] with the disciplines that this kernel has, if it has not this one; else
/// [`LabError::BadInput`] with the line that `tc` refused.
pub(super) fn put(
    namespace: &str,
    interface: &str,
    discipline: &LinuxConfig,
) -> Result<(), LabError> {
    let bad = |why: &str| LabError::refused(&discipline.place, "discipline \"linux\"", why);
    let lines = tc_lines(&discipline.command, interface).map_err(|why| bad(&why))?;
    // A discipline of another kind does not take the place of one that is there.
    remove(namespace, interface);
    for line in lines {
        let words: Vec<&str> = line.iter().map(String::as_str).collect();
        let Err(error) = tc(namespace, &words) else { continue };
        let ShellError::Failed { said, .. } = error else { return Err(error.into()) };
        remove(namespace, interface);
        return Err(if said.contains("unknown") {
            let has = kinds(namespace, interface).join(", ");
            // A step's has none of its own.
            let place = if discipline.place.is_empty() { "step" } else { &discipline.place };
            LabError::NoQdisc { place: place.to_owned(), line: words.join(" "), said, has }
        } else {
            bad(&format!("`tc {}`: {said}", words.join(" ")))
        });
    }
    Ok(())
}

/// Takes away what an interface has, if it has anything.
fn remove(namespace: &str, interface: &str) {
    // One that has none says so.
    let _ = tc(namespace, &["qdisc", "del", "dev", interface, "root"]);
}

/// The disciplines that this kernel has, of those that can stand at the root.
fn kinds(namespace: &str, interface: &str) -> Vec<&'static str> {
    let has = |kind: &&&str| {
        let mut words = vec!["qdisc", "add", "dev", interface, "root", "handle", "1:"];
        words.extend(kind.split_whitespace());
        let there = tc(namespace, &words).is_ok();
        remove(namespace, interface);
        there
    };
    let found = KINDS.iter().filter(has);
    found.map(|kind| kind.split_whitespace().next().unwrap_or_default()).collect()
}

/// Reads what the kernel counts at an interface.
///
/// # Errors
/// `tc` fails, or says what is not understood.
pub(super) fn counted(namespace: &str, interface: &str) -> Result<Counted, LabError> {
    let text = tc(namespace, &["-s", "-j", "qdisc", "show", "dev", interface])?;
    root(&text).ok_or_else(|| {
        LabError::Check(format!("`tc -s -j qdisc show dev {interface}` has no root: {text}"))
    })
}

/// The counters of the root discipline in what `tc -s -j qdisc` prints.
fn root(text: &str) -> Option<Counted> {
    let all: Value = serde_json::from_str(text).ok()?;
    let root = all.as_array()?.iter().find(|one| one["root"] == true)?;
    Some(Counted {
        packets: root["packets"].as_u64()?,
        drops: root["drops"].as_u64()?,
        overlimits: root["overlimits"].as_u64()?,
        waiting: root["qlen"].as_u64()?,
    })
}

fn tc(namespace: &str, arguments: &[&str]) -> Result<String, ShellError> {
    let mut words = vec!["tc", "-n", namespace];
    words.extend(arguments);
    shell::output(&words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_is_read_beside_what_is_below_it() {
        let text = r#"[{"kind":"pfifo","handle":"10:","parent":"1:10","bytes":1,"packets":1,
            "drops":9,"overlimits":0,"requeues":0,"backlog":0,"qlen":5},
            {"kind":"htb","handle":"1:","root":true,"refcnt":2,"options":{},"bytes":83600,
            "packets":78,"drops":12,"overlimits":51,"requeues":0,"backlog":4000,"qlen":4}]"#;
        let counted = Counted { packets: 78, drops: 12, overlimits: 51, waiting: 4 };
        assert_eq!(root(text), Some(counted));
        let first = Counted { packets: 70, drops: 12, ..counted };
        assert_eq!((counted.since(first).packets, counted.since(first).drops), (8, 0));
        assert_eq!(first.and(counted).packets, 148);
        for broken in ["", "{}", "[]", &text.replace("78", "\"x\""), &text.replace("true", "1")] {
            assert_eq!(root(broken), None, "{broken}");
        }
    }
}
