//! A router goes on in another process, under load: nothing is lost, and the kernel forwards
//! nothing meanwhile. Needs root; says so and passes otherwise.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use evenkeel_netns::processors::Processors;
use evenkeel_netns::testing::eventually;
use serde_json::Value;

use super::run::{CONFIG, Live, end};

/// How often each router goes on in another process.
const TIMES: u32 = 10;
/// A packet of the load leaves so often, with 1,000 bytes of data.
const EACH: Duration = Duration::from_micros(500);
/// The most that may pass unshaped.
const UNSHAPED: Duration = Duration::from_millis(50);

/// A link that drops nothing but what it has no room for: on a busy machine queues grow.
const LINK: &str = r#"
[[link]]
port = "wan"
rate = "20Mbit/s"
discipline = { kind = "fifo", limit = 10000 }
"#;

const ROUTED: &str = r#"
[[port]]
name = "lan"
interface = "lan"
[[port]]
name = "wan"
interface = "wan"
"#;

/// The kernel routes, and the queues of the outer interface are ours.
const INLINE: &str = r#"
[[port]]
name = "wan"
interface = "wan"
attach = "inline"
"#;

/// `evenkeel run`, which takes over if there is something to take over from.
fn run(live: &Live, name: &str, takes_over: bool) -> Child {
    let path = |name: &str| live.folder.path().join(name).display().to_string();
    let mut command = Command::new(env!("CARGO_BIN_EXE_evenkeel"));
    command.args(["run", &path("router.toml"), "--socket", &path("control.sock")]);
    command.args(["--runtime-dir", &path("run"), "--netns", &live.net.name("r")]);
    if takes_over {
        command.arg("--take-over");
    }
    File::create(path(name)).unwrap();
    let log = || File::options().append(true).open(path(name)).unwrap();
    command.stdout(log()).stderr(log());
    command.spawn().unwrap()
}

fn log(live: &Live, name: &str) -> String {
    std::fs::read_to_string(live.folder.path().join(name)).unwrap_or_default()
}

/// How many packets the kernel of the router has forwarded itself.
fn forwarded(live: &Live) -> u64 {
    let told = live.net.output("r", "cat /proc/net/snmp");
    let mut rows = told.lines().filter(|line| line.starts_with("Ip:"));
    let (names, values) = (rows.next().unwrap(), rows.next().unwrap());
    let at = names.split(' ').position(|name| name == "ForwDatagrams").unwrap();
    values.split(' ').nth(at).unwrap().parse().unwrap()
}

/// What ten upgrades under load came to.
#[derive(Debug)]
struct Came {
    sent: u64,
    lost: u64,
    /// Packets that the kernel forwarded although the router runs.
    unshaped: u64,
    /// The longest from the start of a new process until it answers.
    slowest: Duration,
}

/// Has the router go on in another process again and again, while 16 Mbit/s of 20 pass.
fn upgraded(live: &mut Live, data: u32) -> Came {
    let before = forwarded(live);
    let server = live.net.start_for(60, "b", "iperf3 -s -1 -p 5002");
    eventually("iperf3 listens", || live.net.output("b", "ss -ltn").contains(":5002"));
    // Of several flows, so that some come in every queue.
    let load = format!("iperf3 -c 10.2.0.2 -p 5002 -u -P 8 -b 2M -l {data} -t 14 -J");
    let load = live.net.start_for(60, "a", &load);
    let mut slowest = Duration::ZERO;
    std::thread::sleep(Duration::from_secs(1));
    for number in 0..TIMES {
        let name = format!("log-{number}");
        let begun = Instant::now();
        let new = run(live, &name, true);
        let mut old = std::mem::replace(&mut live.router, new);
        eventually("the former router ends", || {
            if let Some(status) = live.router.try_wait().unwrap() {
                panic!("the new router ended with {status}: {}", log(live, &name));
            }
            old.try_wait().unwrap().map(|status| assert!(status.success(), "{status}")).is_some()
        });
        live.wait_until_it_forwards();
        slowest = slowest.max(begun.elapsed());
        std::thread::sleep(Duration::from_millis(300));
    }
    let told = load.wait();
    drop(server);
    let result: Value = serde_json::from_str(&told).unwrap_or_else(|_| panic!("{told}"));
    let sum = &result["end"]["sum"];
    let number = |name: &str| sum[name].as_u64().unwrap_or_else(|| panic!("{name}: {told}"));
    Came {
        sent: number("packets"),
        lost: number("lost_packets"),
        unshaped: forwarded(live).saturating_sub(before),
        slowest,
    }
}

/// Ten upgrades of a router with this configuration, until they are as promised, at most three
/// times. `routed`: the kernel forwards nothing of what passes.
fn goes_on(test: &str, config: &str, queues: u16, routed: bool) {
    goes_on_with(test, config, queues, routed, 1_000);
}

/// The same with packets of so many bytes of data.
fn goes_on_with(test: &str, config: &str, queues: u16, routed: bool, data: u32) {
    let Some(mut live) = Live::prepared(test, config, queues) else { return };
    if data > 1_400 {
        for (node, interface) in [("a", "a0"), ("r", "lan"), ("r", "wan"), ("b", "b0")] {
            live.net.ip(node, &format!("link set {interface} mtu {}", data + 1_000));
        }
    }
    live.router = run(&live, "log", false);
    live.wait_until_it_forwards();
    live.ping();
    let mut tries = 0;
    loop {
        let begun = Processors::now();
        let came = upgraded(&mut live, data);
        let missing = begun.missing();
        println!("{test}: {came:?}; {missing:?}");
        assert!(
            came.sent > 20_000_000 / u64::from(data) && came.slowest < Duration::from_secs(20),
            "{came:?}"
        );
        let unshaped = EACH * data / 1_000 * u32::try_from(came.unshaped).unwrap();
        if came.lost == 0 && (!routed || unshaped <= UNSHAPED) {
            break;
        }
        tries += 1;
        if tries == 3 {
            let Some(why) = missing else { panic!("{test}: {came:?}") };
            println!("not judged: {test}: {why}");
            break;
        }
    }
    live.ping();
    // What it took over is whole: it ends like one that has made everything itself.
    live.signal("-TERM");
    assert!(live.router.wait().unwrap().success(), "{}", log(&live, "log-9"));
    let links = live.net.output("r", "ip -o link");
    assert!(!links.contains("eku-") && !links.contains("ekh-"), "{links}");
    live.ping();
}

#[test]
fn it_goes_on_in_another_process_on_packet_sockets() {
    goes_on("upgrade, packet sockets", &format!("{ROUTED}{LINK}"), 1, true);
}

#[test]
fn it_goes_on_in_another_process_inline() {
    goes_on("upgrade, inline", &format!("{INLINE}{LINK}"), 1, false);
}

#[test]
#[ignore = "ten more upgrades, half a minute; one worker is tried always: make soak"]
fn it_goes_on_in_another_process_inline_with_two_workers() {
    let config = format!("[router]\nworkers = 2\n{INLINE}{LINK}");
    goes_on("upgrade, inline, two workers", &config, 1, false);
}

#[test]
fn it_goes_on_in_another_process_on_af_xdp_with_two_workers() {
    let config = format!("[router]\nio = \"af-xdp\"\nworkers = 2\n{ROUTED}{LINK}");
    goes_on("upgrade, AF_XDP, two workers", &config, 2, true);
}

#[test]
#[ignore = "ten more upgrades, half a minute; rings with long frames are handed over always: make \
            soak"]
fn it_goes_on_in_another_process_on_af_xdp_with_frames_in_pieces() {
    let config = format!("[router]\nio = \"af-xdp\"\nworkers = 2\n{ROUTED}{LINK}");
    goes_on_with("upgrade, AF_XDP, frames in pieces", &config, 2, true, 8_000);
}

/// Half an upgrade: the new process ends when it has been given everything, and has not said so.
#[test]
fn the_former_router_goes_on_where_the_new_one_ends_half_way() {
    let Some(mut live) = Live::prepared("half an upgrade", CONFIG, 1) else { return };
    live.router = run(&live, "log", false);
    live.wait_until_it_forwards();
    let place = live.folder.path().join("place");
    let listener = UnixListener::bind(&place).unwrap();
    let control = live.folder.path().join("control.sock");
    let asked = std::thread::spawn(move || {
        let mut control = UnixStream::connect(control).unwrap();
        writeln!(control, r#"{{"cmd":"pass_on","place":"{}"}}"#, place.display()).unwrap();
        let mut answer = String::new();
        BufReader::new(control).read_line(&mut answer).unwrap();
        answer
    });
    let (mut stream, _) = listener.accept().unwrap();
    // An empty parcel: it is ready.
    stream.write_all(&[0; 24]).unwrap();
    let mut some = [0; 4096];
    while stream.read(&mut some).unwrap() == some.len() {}
    drop(stream);
    let answer = asked.join().unwrap();
    assert!(answer.contains("the router goes on"), "{answer}");
    live.ping();
    // Nothing was given up: it can still go on elsewhere, and ends well there.
    let new = run(&live, "log-new", true);
    let mut old = std::mem::replace(&mut live.router, new);
    eventually("the former router ends", || old.try_wait().unwrap().is_some());
    live.wait_until_it_forwards();
    live.ping();
    end(old);
}

/// What cannot go on elsewhere is refused, and the running router goes on.
#[test]
fn a_new_process_that_does_not_fit_ends_and_says_why() {
    let Some(mut live) = Live::prepared("upgrade refused", CONFIG, 1) else { return };
    let refused = |live: &Live, wanted: &str| {
        let mut new = run(live, "log-new", true);
        let mut status = None;
        eventually("it ends", || {
            status = new.try_wait().unwrap();
            status.is_some()
        });
        let said = log(live, "log-new");
        assert!(!status.unwrap().success() && said.contains(wanted), "{wanted}: {said}");
    };
    refused(&live, "no router listens");
    live.router = run(&live, "log", false);
    live.wait_until_it_forwards();
    let file = live.folder.path().join("router.toml");
    std::fs::write(&file, format!("[router]\nworkers = 2\n{ROUTED}{LINK}")).unwrap();
    refused(&live, "other ports or workers");
    live.ping();
    std::fs::write(&file, CONFIG).unwrap();
    let reloaded = live.ctl(&["reload", &file.display().to_string(), "--confirm", "20s"]);
    assert!(reloaded.status.success());
    refused(&live, "confirm");
    live.ping();
}
