//! What an operator sees of a running router: who changed what, what happens to packets, who sends
//! most, and what is kept of it.

use std::process::Command;

use evenkeel_netns::testing::{eventually, has_tool, text};

use crate::run::{CONFIG, Live, TWO_WORKERS};

impl Live {
    fn said(&self, arguments: &[&str]) -> String {
        let output = self.ctl(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", text(&output));
        String::from_utf8(output.stdout).unwrap()
    }

    /// What `ctl` prints while a ping goes through.
    fn said_under_ping(&self, arguments: &[&str]) -> std::process::Output {
        let mut ping = self.net.command("a", "ping -n -i 0.2 -w 60 10.2.0.2");
        let mut ping = ping.stdout(std::process::Stdio::null()).spawn().unwrap();
        let output = self.ctl(arguments);
        ping.kill().unwrap();
        ping.wait().unwrap();
        output
    }
}

#[test]
fn the_journal_says_who_changed_what_and_what_was_refused() {
    let Some(live) = Live::with("journal", CONFIG, 1) else { return };
    live.said(&["rate", "wan", "33Mbit/s"]);
    assert!(!live.ctl(&["rate", "nowhere", "33Mbit/s"]).status.success());
    live.net.ip("r", "link set lan down");
    live.net.ip("r", "link set lan up");
    let mut journal = String::new();
    eventually("the journal has it all", || {
        journal = live.said(&["journal"]);
        journal.contains("port lan: interface lan is up")
    });
    let line = |what: &str| {
        let found = journal.lines().find(|line| line.contains(what));
        found.unwrap_or_else(|| panic!("{what} is not in {journal}")).to_owned()
    };
    let change = line("33Mbit/s");
    assert!(change.contains(" INFO ") && change.contains("by root (uid 0, process "), "{change}");
    // Each begins with its time.
    assert!(change.starts_with("20") && change.as_bytes()[19] == b'Z', "{change}");
    assert!(line("refused, and nothing changed").contains("nowhere"));
    line("port lan: interface lan is down");
    let log = std::fs::read_to_string(live.folder.path().join("router.log")).unwrap();
    assert!(log.contains(&change), "{change} is not in {log}");
}

#[test]
fn packets_are_traced_and_captured_while_they_pass_with_one_and_two_workers() {
    for (name, config, queues) in [("traced", CONFIG, 1), ("traced2", TWO_WORKERS, 2)] {
        let Some(live) = Live::with(name, config, queues) else { return };
        let filter = "{ protocol = \"icmp\", source = \"10.1.0.2\" }";
        let output = live.said_under_ping(&["trace", filter, "--packets", "6", "--for", "30s"]);
        assert!(output.status.success(), "{}", text(&output));
        let told = String::from_utf8(output.stdout).unwrap();
        for stage in ["received by", "given to link", "left link"] {
            assert!(told.contains(stage), "{stage}: {told}");
        }
        assert!(told.contains("class rest") && told.contains("routed to port wan"), "{told}");
        let file = live.folder.path().join("some.pcapng");
        let path = file.display().to_string();
        let output = live.said_under_ping(&["capture", &path, filter, "-n", "3", "--for", "30s"]);
        assert!(output.status.success(), "{}", text(&output));
        let bytes = std::fs::read(&file).unwrap();
        let has = |what: &str| bytes.windows(what.len()).any(|part| part == what.as_bytes());
        assert!(has("left after"), "no comment in the capture");
        if has_tool("traced", "tcpdump", "tcpdump") {
            let output = Command::new("tcpdump").args(["-n", "-r", &path]).output().unwrap();
            let packets = String::from_utf8_lossy(&output.stdout).lines().count();
            assert_eq!(packets, 3, "{}", text(&output));
        }
        // A full disk is told, by who writes; the router does not notice.
        let output = live.said_under_ping(&["capture", "/dev/full", filter, "--for", "30s"]);
        assert_eq!(output.status.code(), Some(1), "{}", text(&output));
        assert!(text(&output).contains("/dev/full: No space left"), "{}", text(&output));
        let (mut server, mut client) = live.load_for(8);
        eventually("the load is among the busiest", || live.said(&["busiest"]).contains(":5002"));
        let _ = (client.kill(), client.wait(), server.kill(), server.wait());
        live.ping();
    }
}
