//! How long nothing passes when the process is killed under load, again and again. Needs root.

use std::collections::BTreeSet;
use std::net::UdpSocket;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use evenkeel_netns::processors::Processors;
use evenkeel_netns::testing::eventually;
use evenkeel_ports::sys::{die_with_parent, in_netns};

use crate::gateway::{Home, measured};

const LINE: &str = "wan --down 100Mbit/s --up 20Mbit/s";
/// Between two probes.
const EACH: Duration = Duration::from_millis(1);
/// What is lost so long after a kill is lost by it, or by the start that follows.
const AFTER: Duration = Duration::from_millis(300);
/// At most so long nothing passes in 99 of 100 kills, milliseconds.
const MOST: f64 = 20.0;

/// How often it is killed, if not as often as here: `make soak` says more.
fn said() -> Option<usize> {
    let said = std::env::var("EVENKEEL_KILLED").ok();
    said.map(|kills| kills.parse().expect("EVENKEEL_KILLED: a number"))
}

/// Sends numbered probes to the echo outside until it is told to stop. Returns when each was sent,
/// and the numbers that came back.
fn probe(stop: &AtomicBool) -> (Vec<Instant>, BTreeSet<u32>) {
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    socket.connect("10.2.0.2:7").unwrap();
    socket.set_nonblocking(true).unwrap();
    let (mut sent, mut came) = (Vec::new(), BTreeSet::new());
    let mut receive = |socket: &UdpSocket| {
        let mut bytes = [0; 64];
        while let Ok(length) = socket.recv(&mut bytes) {
            came.extend(bytes[..length].first_chunk().map(|number| u32::from_be_bytes(*number)));
        }
    };
    while !stop.load(Ordering::Relaxed) {
        let number = sent.len() as u32;
        sent.push(Instant::now());
        let _ = socket.send(&number.to_be_bytes());
        std::thread::sleep(EACH);
        receive(&socket);
    }
    std::thread::sleep(Duration::from_millis(500));
    receive(&socket);
    (sent, came)
}

/// Ends the prober, also when an assertion fails.
struct Stops<'a>(&'a AtomicBool);

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The longest time without an answer among probes sent within `AFTER` of each of these moments,
/// milliseconds.
fn silences(sent: &[Instant], came: &BTreeSet<u32>, moments: &[Instant]) -> Vec<f64> {
    let longest = |moment: &Instant| {
        let within = |at: &Instant| *at >= *moment && *at < *moment + AFTER;
        let (mut worst, mut since) = (Duration::ZERO, None);
        for (number, at) in sent.iter().enumerate().filter(|(_, at)| within(at)) {
            if came.contains(&(number as u32)) {
                worst = worst.max(since.map_or(Duration::ZERO, |since| *at - since));
                since = None;
            } else {
                since = since.or(Some(*at));
            }
        }
        worst.max(since.map_or(Duration::ZERO, |since| *moment + AFTER - since))
    };
    moments.iter().map(|moment| longest(moment).as_secs_f64() * 1e3).collect()
}

/// 99 of 100 are at most that.
fn p99(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[(sorted.len() - 1) * 99 / 100]
}

/// One that ends with the test, whatever becomes of that.
fn spawn(home: &Home, node: &str, line: &str) -> Child {
    let mut command = home.net.command(node, line);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    die_with_parent(&mut command).spawn().unwrap()
}

/// Kills and starts again, under load; silences after the kills and after the starts.
fn killed(home: &mut Home, kills: usize, start: &dyn Fn(&mut Home)) -> [Vec<f64>; 2] {
    // It is ended before: how long a start takes is not known.
    let lasts = 3600;
    let servers: Vec<_> = (5301..5303)
        .map(|port| {
            let line = format!("iperf3 -s -1 -p {port}");
            spawn(home, "s", &line)
        })
        .collect();
    eventually("the servers listen", || {
        home.net.output("s", "ss -Hltn").matches(":530").count() == 2
    });
    let client = |node: &str, port: u16, more: &str| {
        let line = format!("iperf3 -c 10.2.0.2 -p {port} -t {lasts} -C cubic {more}");
        spawn(home, node, &line)
    };
    let clients = [client("h", 5301, "-P 8"), client("h2", 5302, "-P 8 -R")];
    let (stop, namespace) = (AtomicBool::new(false), home.net.name("h3"));
    let (mut ends, mut starts) = (Vec::new(), Vec::new());
    let (sent, came) = std::thread::scope(|scope| {
        let prober = scope.spawn(|| in_netns(&namespace, || probe(&stop)).unwrap());
        let _stops = Stops(&stop);
        for _ in 0..kills {
            starts.push(Instant::now());
            start(home);
            std::thread::sleep(AFTER);
            ends.push(Instant::now());
            home.kill("-KILL");
            std::thread::sleep(AFTER);
        }
        stop.store(true, Ordering::Relaxed);
        prober.join().unwrap()
    });
    for mut process in clients.into_iter().chain(servers) {
        let _ = process.kill();
        let _ = process.wait();
    }
    [silences(&sent, &came, &ends), silences(&sent, &came, &starts)]
}

/// Kills until the bar is kept, at most three times.
fn outages(test: &str, kills: usize, start: &dyn Fn(&mut Home)) -> Option<String> {
    let mut home = Home::new(test)?;
    let mut tries = 0;
    loop {
        let begun = Processors::now();
        let [ends, starts] = killed(&mut home, kills, start);
        let missing = begun.missing();
        let worst = |values: &[f64]| values.iter().copied().fold(0.0, f64::max);
        let told = format!(
            "killed {} times: nothing passed for {:.0} ms in 99 of 100, {:.0} ms at worst; \
             started: {:.0} and {:.0} ms",
            ends.len(),
            p99(&ends),
            worst(&ends),
            p99(&starts),
            worst(&starts),
        );
        println!("{test}: {told}; {missing:?}");
        if p99(&ends) <= MOST && p99(&starts) <= MOST {
            home.is_as_ever("after all kills");
            return Some(told);
        }
        tries += 1;
        if tries == 3 {
            let Some(why) = missing else { panic!("{test}: {ends:.1?} {starts:.1?}") };
            println!("not judged: {test}: {why}");
            return Some(told);
        }
    }
}

#[test]
fn killed_under_load_it_is_out_of_the_way_at_once() {
    let kills = said().unwrap_or(4);
    let Some(usual) = outages("killed", kills, &|home| home.start(LINE)) else { return };
    // To write 4 GiB once takes a virtual machine many seconds.
    let (kills, buffers) = said().map_or((2, 100_000_u32), |kills| (kills, 1_000_000));
    let memory = format!("[router]\nbuffers = {buffers}\nbuffer_size = \"4KiB\"\n");
    let large = outages("killed_large", kills, &|home| home.start_with(&memory, LINE)).unwrap();
    let size = f64::from(buffers) * 4096.0 / f64::from(1 << 30);
    let lines = format!("usual tables\n  {usual}\n{size:.1} GiB of buffers\n  {large}\n");
    measured("inline-killed", &lines);
}
