//! A log that cannot be written costs lines, never packets: a full disk, a pipe whose reader is
//! gone, one that is never read. Each killed the router, or stopped all forwarding.

use std::fs::File;
use std::io::PipeReader;
use std::process::Stdio;

use evenkeel_netns::testing::eventually;

use crate::run::{CONFIG, Live, TWO_WORKERS, command};

impl Live {
    /// Starts the router with these as standard output and standard error.
    pub(super) fn start_with(&mut self, out: Stdio, err: Stdio) {
        let mut command = command(&self.net, &self.folder);
        self.router = command.stdout(out).stderr(err).spawn().unwrap();
        self.wait_until_it_forwards();
        self.ping();
    }

    /// The router has something to say: an interface goes and comes back, with its number. It was
    /// dead from then on, and shown as up.
    pub(super) fn interface_leaves(&self, name: &str, address: &str) {
        let (r, elsewhere) = (self.net.name("r"), self.net.name("elsewhere"));
        self.net.ip("r", &format!("link set {name} netns {elsewhere}"));
        self.net.ip("elsewhere", &format!("link set {name} netns {r}"));
        self.net.ip("r", &format!("link set {name} up"));
        self.net.ip("r", &format!("address add {address} dev {name}"));
    }

    pub(super) fn still_forwards(&mut self) {
        // Through the router: the kernel would pass them too.
        eventually("packets pass", || {
            let before = self.received_from_wan();
            self.try_ping() && self.received_from_wan() > before
        });
        assert!(self.router.try_wait().unwrap().is_none(), "the router runs");
    }

    fn try_ping(&self) -> bool {
        let mut command = self.net.command("a", "ping -n -c 1 -W 1 10.2.0.2");
        command.stdout(Stdio::null()).status().is_ok_and(|status| status.success())
    }

    pub(super) fn received_from_wan(&self) -> u64 {
        self.show()["ports"][1]["rx_packets"].as_u64().unwrap()
    }

    fn lost(&self) -> u64 {
        self.show()["log_lost"].as_u64().unwrap()
    }

    fn ends(&mut self) {
        self.signal("-TERM");
        let mut status = None;
        eventually("the router ends", || {
            status = self.router.try_wait().unwrap();
            status.is_some()
        });
        assert!(status.unwrap().success());
    }
}

/// A pipe of one page.
fn small_pipe() -> (PipeReader, Stdio) {
    let (reader, writer) = std::io::pipe().unwrap();
    rustix::pipe::fcntl_setpipe_size(&writer, 4096).unwrap();
    (reader, writer.into())
}

/// A router whose standard output and standard error take nothing forwards, counts the lines that
/// it could not write, and ends as it should.
fn costs_lines_only(name: &str, config: &str, queues: u16, closed: impl Fn() -> Stdio) {
    let Some(mut live) = Live::prepared(name, config, queues) else { return };
    live.start_with(closed(), closed());
    live.interface_leaves("wan", "10.2.0.1/24");
    live.still_forwards();
    live.signal("-HUP");
    eventually("the lines are counted", || live.lost() >= 4);
    live.still_forwards();
    live.ends();
}

#[test]
fn a_full_disk_costs_lines_of_the_log_and_nothing_else() {
    costs_lines_only("log_full_disk", CONFIG, 1, || File::create("/dev/full").unwrap().into());
}

#[test]
fn a_pipe_whose_reader_is_gone_costs_lines_of_the_log_and_nothing_else() {
    costs_lines_only("log_closed_pipe", TWO_WORKERS, 4, || std::io::pipe().unwrap().1.into());
}

#[test]
fn a_pipe_that_nobody_reads_costs_lines_of_the_log_and_nothing_else() {
    let Some(mut live) = Live::prepared("log_unread_pipe", CONFIG, 1) else { return };
    let ((_out, out), (_err, err)) = (small_pipe(), small_pipe());
    live.start_with(out, err);
    // Some 60 bytes each time, twice: the pipe is full long before the queue of lines is.
    for _ in 0..200 {
        live.net.ip("r", "link set wan down");
        live.net.ip("r", "link set wan name nawa");
        live.net.ip("r", "link set nawa name wan");
        live.net.ip("r", "link set wan up");
    }
    live.interface_leaves("wan", "10.2.0.1/24");
    live.still_forwards();
    eventually("lines found no room", || {
        live.signal("-HUP");
        live.lost() > 0
    });
    live.still_forwards();
    live.ends();
}
