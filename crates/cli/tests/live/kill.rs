//! A router that is killed again and again under load, and one of whose workers alone hangs.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use evenkeel_netns::testing::eventually;

use crate::gateway::measured;
use crate::hang::{answers, longest_silence};
use crate::run::{CONFIG, Live, TWO_WORKERS, end, start};

/// Between two echo requests, milliseconds.
const EACH: u64 = 5;

/// How long it is killed each second: `make soak` says more.
fn seconds() -> u64 {
    let said = std::env::var("EVENKEEL_KILLS").ok();
    said.map_or(8, |seconds| seconds.parse().expect("EVENKEEL_KILLS: seconds"))
}

/// What a router changes at the interfaces, as everybody sees it.
fn at_interfaces(live: &Live) -> String {
    let look = |line: &str| live.net.output("r", line);
    let offloads = ["lan", "wan"].map(|name| look(&format!("ethtool -k {name}")));
    // Numbers of the programs differ each time: only whether there are any matters.
    let programs = look("ip -d link show").matches("prog/xdp").count();
    offloads.concat() + &look("tc qdisc show") + &format!("{programs} XDP programs\n")
}

fn killed_each_second(test: &str, config: &str, queues: u16) {
    let Some(mut live) = Live::prepared(test, config, queues) else { return };
    let before = at_interfaces(&live);
    live.router = start(&live.net, &live.folder);
    live.wait_until_it_forwards();
    let seconds = seconds();
    // A start can take long on a busy machine, and ends what had begun within the time.
    let (server, mut client) = live.load_for(seconds + 60);
    let count = (seconds + 1) * 1_000 / EACH;
    let line = format!("ping -D -n -c {count} -i 0.00{EACH} -W 1 10.2.0.2");
    let ping = live.net.start_for(seconds + 60, "a", &line);
    let (begin, mut kills) = (Instant::now(), 0);
    while begin.elapsed() < Duration::from_secs(seconds) {
        sleep(Duration::from_millis(500));
        live.router.kill().unwrap();
        live.router.wait().unwrap();
        kills += 1;
        sleep(Duration::from_millis(250));
        live.router = start(&live.net, &live.folder);
        live.wait_until_it_forwards();
    }
    let output = ping.wait();
    assert!(client.try_wait().unwrap().is_none(), "there was load all the time");
    assert!(!output.contains("DUP!"), "nothing is forwarded twice: {output}");
    // By numbers, not by the clock: the sender itself may be kept waiting on a busy machine.
    let number = |line: &str| -> Option<u64> {
        line.split_once("icmp_seq=")?.1.split_once(' ')?.0.parse().ok()
    };
    let mut came: Vec<u64> = output.lines().filter_map(number).collect();
    came.sort_unstable();
    let mut gaps: Vec<u64> =
        came.windows(2).map(|pair| (pair[1] - pair[0]).saturating_sub(1) * EACH).collect();
    gaps.sort_unstable();
    // Two changes of who forwards for each kill: only they can be long.
    let changes = &gaps[gaps.len().saturating_sub(2 * kills)..];
    let p99 = changes[(changes.len() - 1) * 99 / 100];
    let worst = changes[changes.len() - 1];
    let lost = count as usize - came.len();
    let text = format!(
        "{test}: {kills} times kill -9 in {seconds} s, 10 Mbit/s of UDP and an echo request each \
         {EACH} ms:\nwithout an answer for {p99} ms in 99 of 100, {worst} ms at worst; {lost} of \
         {count} lost, none answered twice\n"
    );
    measured(&format!("attacks-{test}"), &text);
    assert!(kills >= seconds as usize / 3, "{kills} kills");
    assert!(worst <= 300, "{worst} ms: {output}");
    assert!(lost <= 20 * kills, "{lost} lost with {kills} kills: {output}");
    end(client);
    end(server);

    // One that is killed leaves no program; the next one that stops puts back the offloads.
    live.signal("-TERM");
    assert!(live.router.wait().unwrap().success());
    assert_eq!(at_interfaces(&live), before);
    // How far the IVs of ESP were must outlive it.
    let left: Vec<_> = fs::read_dir(live.folder.path().join("run"))
        .unwrap()
        .flatten()
        .filter(|file| file.file_name() != "esp-ivs")
        .collect();
    assert!(left.is_empty(), "{left:?}");
    live.ping();
}

#[test]
fn f10_a_router_killed_each_second_under_load_on_packet_sockets() {
    killed_each_second("kill_af_packet", CONFIG, 1);
}

#[test]
fn f10_a_router_killed_each_second_under_load_on_af_xdp() {
    killed_each_second("kill_af_xdp", TWO_WORKERS, 4);
}

/// Stops one thread for a while, as a page that does not come from the disk would.
const STOP_THREAD: &str = "
import ctypes, os, sys, time
libc = ctypes.CDLL(None, use_errno=True)
thread = int(sys.argv[1])
assert libc.ptrace(16, thread, 0, 0) == 0, os.strerror(ctypes.get_errno())
os.waitpid(thread, 0x40000000)
time.sleep(float(sys.argv[2]))
assert libc.ptrace(17, thread, 0, 0) == 0
";

/// Begins to stop the worker whose thread has this name for so many seconds; ends with it.
fn stop_worker(live: &Live, name: &str, seconds: f64) -> Child {
    let tasks = fs::read_dir(format!("/proc/{}/task", live.router.id())).unwrap().flatten();
    let is_it = |task: &fs::DirEntry| {
        fs::read_to_string(task.path().join("comm")).is_ok_and(|comm| comm.trim() == name)
    };
    let thread = tasks.into_iter().find(is_it).expect("it runs").file_name();
    let mut python = Command::new("python3");
    python.args(["-c", STOP_THREAD]).arg(thread).arg(seconds.to_string()).spawn().unwrap()
}

/// The second worker, slow to see that the interface had left, gave its sockets to the program
/// that the first had put there before it left once more: it was dead for good, and shown as up.
#[test]
fn an_interface_that_leaves_twice_while_a_worker_hangs_is_used_by_both_again() {
    let Some(mut live) = Live::prepared("leaves_twice", TWO_WORKERS, 4) else { return };
    live.start_with(Stdio::null(), Stdio::null());
    // By address, so that both workers have some.
    for last in 3..10 {
        live.net.ip("b", &format!("address add 10.2.0.{last}/24 dev b0"));
    }
    let mut second = stop_worker(&live, "worker-1", 1.6);
    sleep(Duration::from_millis(300));
    live.interface_leaves("wan", "10.2.0.1/24");
    // The first one takes it into use.
    sleep(Duration::from_millis(700));
    let mut first = stop_worker(&live, "worker", 1.6);
    sleep(Duration::from_millis(300));
    live.interface_leaves("wan", "10.2.0.1/24");
    assert!(second.wait().unwrap().success() && first.wait().unwrap().success());
    for last in 2..10 {
        let ping = format!("ping -n -c 1 -W 1 10.2.0.{last}");
        eventually("both forward again", || {
            let before = live.received_from_wan();
            live.net.try_output("a", &ping).0 && live.received_from_wan() > before
        });
    }
}

#[test]
fn f10_one_of_two_workers_on_packet_sockets_that_alone_hangs_is_passed_by() {
    let config = TWO_WORKERS.replace("af-xdp", "af-packet");
    let Some(mut live) = Live::prepared("hang_alone", &config, 1) else { return };
    live.start_with(Stdio::null(), Stdio::null());
    // By address, so that both workers have some.
    for last in 3..20 {
        live.net.ip("b", &format!("address add 10.2.0.{last}/24 dev b0"));
    }
    let pings: Vec<_> = (2..20)
        .map(|last| live.net.start("a", &format!("ping -D -n -c 350 -i 0.02 -W 1 10.2.0.{last}")))
        .collect();
    sleep(Duration::from_millis(500));
    for name in ["worker", "worker-1"] {
        assert!(stop_worker(&live, name, 2.0).wait().unwrap().success());
        sleep(Duration::from_millis(700));
    }
    let (mut worst, mut lost) = (0.0_f64, 0);
    for output in pings.into_iter().map(|ping| ping.wait()) {
        assert!(!output.contains("DUP!"), "nothing is forwarded twice: {output}");
        worst = worst.max(longest_silence(&output));
        lost += 350 - answers(&output).len();
    }
    println!("hang_alone: longest silence {worst:.0} ms, {lost} of {} lost", 350 * 18);
    assert!(worst <= 300.0, "{worst} ms");
    eventually("both forward again", || {
        let before = live.received_from_wan();
        live.ping();
        live.received_from_wan() > before
    });
}
