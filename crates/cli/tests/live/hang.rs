//! A router that hangs is passed by, by the kernel, and takes over again when it is back.

use std::os::unix::net::UnixDatagram;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use evenkeel_netns::testing::eventually;

use crate::run::{CONFIG, Live, TWO_WORKERS, command, start};

/// Between two echo requests, milliseconds.
const EACH: u64 = 10;

/// When answers came that `ping -D` tells of, seconds. What waited in a router that was stopped
/// comes late: that is no sign of life.
pub(super) fn answers(output: &str) -> Vec<f64> {
    let in_time = |line: &str| {
        let (came, rest) = line.strip_prefix('[')?.split_once(']')?;
        let took: f64 = rest.split_once("time=")?.1.split_once(' ')?.0.parse().ok()?;
        (took < 100.0).then_some(came.parse::<f64>().ok()?)
    };
    output.lines().filter_map(in_time).collect()
}

/// The longest time without an answer, milliseconds.
pub(super) fn longest_silence(output: &str) -> f64 {
    let came = answers(output);
    came.windows(2).map(|pair| pair[1] - pair[0]).fold(0.0, f64::max) * 1000.0
}

/// Stops the router for three seconds, which was an outage of three seconds. The heartbeat allows
/// 200 ms.
fn stopped_for_three_seconds(test: &str, config: &str, queues: u16) {
    let Some(mut live) = Live::prepared(test, config, queues) else { return };
    live.start_with(Stdio::null(), Stdio::null());
    let ping = live.net.start("a", &format!("ping -D -n -c 500 -i 0.0{EACH} -W 1 10.2.0.2"));
    sleep(Duration::from_millis(500));
    live.signal("-STOP");
    sleep(Duration::from_secs(3));
    live.signal("-CONT");
    let output = ping.wait();
    let came = answers(&output);
    assert!(!output.contains("DUP!"), "nothing is forwarded twice: {output}");
    let silence = longest_silence(&output);
    println!("{test}: longest silence {silence:.0} ms");
    assert!(silence <= 300.0, "{silence} ms: {output}");
    assert!(came.len() as u64 >= 500 - 300 / EACH, "{} of 500: {output}", came.len());

    let before = live.received_from_wan();
    live.ping();
    eventually("the router has taken over", || live.received_from_wan() > before);
}

#[test]
fn a_router_that_is_stopped_for_three_seconds_is_passed_by() {
    stopped_for_three_seconds("hang_af_packet", CONFIG, 1);
}

#[test]
fn workers_on_af_xdp_that_are_stopped_for_three_seconds_are_passed_by() {
    stopped_for_three_seconds("hang_af_xdp", TWO_WORKERS, 4);
}

/// Waits until the manager of services hears this.
fn hears(socket: &UnixDatagram, wanted: &str) {
    let mut message = [0; 256];
    eventually(wanted, || {
        let length = socket.recv(&mut message).unwrap_or(0);
        String::from_utf8_lossy(&message[..length]).contains(wanted)
    });
}

#[test]
fn a_service_manager_hears_when_packets_pass_and_that_they_still_do() {
    let Some(mut live) = Live::prepared("hang_watchdog", CONFIG, 1) else { return };
    let path = live.folder.path().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_nonblocking(true).unwrap();
    let mut command = command(&live.net, &live.folder);
    command.env("NOTIFY_SOCKET", &path).stdout(Stdio::null()).stderr(Stdio::null());
    live.router = command.spawn().unwrap();
    hears(&socket, "READY=1");
    hears(&socket, "WATCHDOG=1");

    live.signal("-TERM");
    hears(&socket, "STOPPING=1");
}

/// F15: the end of the control socket needed a descriptor.
#[test]
fn f15_a_router_without_descriptors_ends_when_it_is_told_to() {
    let Some(mut live) = Live::prepared("no_descriptors", CONFIG, 1) else { return };
    live.router = start(&live.net, &live.folder);
    live.wait_until_it_forwards();
    let process = live.router.id().to_string();
    let limited = Command::new("prlimit").args(["--pid", &process, "--nofile=5:5"]).status();
    assert!(limited.unwrap().success());
    live.signal("-TERM");
    eventually("it ends", || live.router.try_wait().unwrap().is_some());
    live.ping();
}
