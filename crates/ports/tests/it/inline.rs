//! An interface inline between namespaces: the kernel routes, filters and answers as before, and
//! every IP packet of the interface goes through the process, both ways. Needs root.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::common::{TestNet, available, beating, eventually, inside, pings, reaches, routed};
use evenkeel_core::Nanos;
use evenkeel_ports::heartbeat::{Beater, Heartbeat};
use evenkeel_ports::inline::{Bridged, Inline, InlinePort, PairNames, Side};
use evenkeel_ports::sys::{in_netns, monotonic_now};
use evenkeel_ports::{FramePool, Port, RxFrame};

/// What a thread does that passes on what comes.
#[derive(Default)]
struct Passing {
    stop: AtomicBool,
    /// Beats are left out.
    hangs: AtomicBool,
    out: AtomicU64,
    inward: AtomicU64,
    longest: AtomicU64,
    /// Super-frames that take the wire at most so many bytes stay whole.
    keeps: AtomicUsize,
    /// Bytes and segments received and sent, both ports together, when it has stopped.
    balance: Mutex<[u64; 4]>,
}

/// Attaches `rb` and passes packets on until told to stop.
fn pass(passing: &Passing) {
    let names = PairNames { kernel: "ekh-rb".into(), ours: "eku-rb".into() };
    let heart = Heartbeat::new(Nanos::from_millis(200)).unwrap();
    let mut beater = Beater::new(Arc::clone(&heart), 0);
    let _inline = Inline::attach("rb", names, &heart).unwrap();
    let mut pool = FramePool::new(8192);
    let mut wire = InlinePort::open("rb", Side::Wire, None).unwrap();
    let mut kernel = InlinePort::open("eku-rb", Side::Kernel, None).unwrap();
    let mut burst: Vec<RxFrame> = Vec::new();
    let (mut out, mut inward) = (VecDeque::new(), VecDeque::new());
    while !passing.stop.load(Ordering::Relaxed) {
        if passing.hangs.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(10));
            continue;
        }
        let now = monotonic_now();
        if let Some(span) = beater.beat(now) {
            wire.passed_by(span);
        }
        let mut idle = true;
        for (from, to, count) in
            [(&mut kernel, &mut out, &passing.out), (&mut wire, &mut inward, &passing.inward)]
        {
            from.keep_whole(passing.keeps.load(Ordering::Relaxed));
            idle &= from.rx_burst(&mut pool, now, &mut burst, 256) == 0;
            count.fetch_add(burst.len() as u64, Ordering::Relaxed);
            for received in burst.drain(..) {
                passing.longest.fetch_max(received.frame.len() as u64, Ordering::Relaxed);
                to.push_back(received.frame);
            }
        }
        wire.tx_burst(&mut pool, &mut out);
        kernel.tx_burst(&mut pool, &mut inward);
        if idle {
            std::thread::sleep(Duration::from_micros(50));
        }
    }
    let [wire, kernel] = [&mut wire, &mut kernel].map(Port::counters);
    let (frames, more) = (wire.rx_frames + kernel.rx_frames, wire.rx_more + kernel.rx_more);
    let (sent, sent_more) = (wire.tx_frames + kernel.tx_frames, wire.tx_more + kernel.tx_more);
    *passing.balance.lock().unwrap() = [
        wire.rx_bytes + kernel.rx_bytes,
        wire.tx_bytes + kernel.tx_bytes,
        frames + more,
        sent + sent_more,
    ];
    assert_eq!(pool.in_use(), out.len() + inward.len());
}

/// Sends `bytes` from `from` to `to` over TCP; what arrives is compared.
fn transfer(lab: &TestNet, from: &str, to: &str, address: &str, bytes: usize) -> Duration {
    let listener = inside(lab, to, || TcpListener::bind(address).unwrap());
    let address = listener.local_addr().unwrap();
    let pattern: Vec<u8> = (0..bytes).map(|at| (at / 7) as u8).collect();
    std::thread::scope(|scope| {
        let received = scope.spawn(|| {
            let (mut stream, _) = listener.accept().unwrap();
            stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
            let mut all = Vec::new();
            stream.read_to_end(&mut all).unwrap();
            all
        });
        let began = Instant::now();
        in_netns(&lab.name(from), || {
            let mut stream = TcpStream::connect(address).unwrap();
            stream.write_all(&pattern).unwrap();
        })
        .unwrap();
        let all = received.join().unwrap();
        assert!(all == pattern, "{} of {bytes} bytes arrived, or others", all.len());
        began.elapsed()
    })
}

#[test]
fn the_kernel_routes_as_before_and_every_packet_passes_the_process() {
    if !available("inline") {
        return;
    }
    let lab = routed();
    for to in ["10.77.2.2", "fd77:2::2"] {
        eventually("the kernel forwarding", || pings(&lab, "a", to).then_some(()));
    }
    let passing = Passing::default();
    std::thread::scope(|scope| {
        scope.spawn(|| in_netns(&lab.name("r"), || pass(&passing)).unwrap());
        eventually("the programs at work", || {
            pings(&lab, "a", "10.77.2.2");
            (passing.inward.load(Ordering::Relaxed) > 0).then_some(())
        });
        // Neighbours are found again, by the kernel itself.
        lab.ip("b", "neigh flush dev vb");
        lab.ip("r", "neigh flush dev rb");
        let before = [&passing.out, &passing.inward].map(|count| count.load(Ordering::Relaxed));
        for (from, to) in [
            ("a", "10.77.2.2"),
            ("a", "fd77:2::2"),
            ("r", "10.77.2.2"),
            ("b", "10.77.2.1"),
            ("b", "fd77:2::1"),
        ] {
            assert!(reaches(&lab, from, to), "{from} to {to}");
        }
        let after = [&passing.out, &passing.inward].map(|count| count.load(Ordering::Relaxed));
        assert!(after[0] >= before[0] + 5 && after[1] >= before[1] + 5, "{before:?} {after:?}");
        for (from, to, address) in [
            ("a", "b", "10.77.2.2:0"),
            ("b", "a", "10.77.1.2:0"),
            ("r", "b", "[fd77:2::2]:0"),
            ("b", "r", "[fd77:2::1]:0"),
        ] {
            let took = transfer(&lab, from, to, address, 20_000_000);
            eprintln!("{from} to {to}: {:.0} Mbit/s", 160.0 / took.as_secs_f64());
        }
        assert_eq!(passing.longest.load(Ordering::Relaxed), 1514, "super-frames were cut");
        // Whole they arrive as well, forwarded and at the box itself, and again cut where they are
        // longer than may be.
        passing.keeps.store(usize::MAX, Ordering::Relaxed);
        for (from, to, address) in [
            ("a", "b", "10.77.2.2:0"),
            ("b", "a", "[fd77:1::2]:0"),
            ("r", "b", "[fd77:2::2]:0"),
            ("b", "r", "10.77.2.1:0"),
        ] {
            passing.longest.store(0, Ordering::Relaxed);
            let took = transfer(&lab, from, to, address, 20_000_000);
            let longest = passing.longest.load(Ordering::Relaxed);
            eprintln!("{from} to {to}, whole: {:.0} Mbit/s", 160.0 / took.as_secs_f64());
            assert!(longest > 10_000, "{from} to {to}: {longest} bytes at most");
        }
        passing.keeps.store(20_000, Ordering::Relaxed);
        passing.longest.store(0, Ordering::Relaxed);
        transfer(&lab, "a", "b", "10.77.2.2:0", 5_000_000);
        let longest = passing.longest.load(Ordering::Relaxed);
        assert!((1514..20_000).contains(&longest), "{longest}");
        // A process that hangs is passed by.
        passing.hangs.store(true, Ordering::Relaxed);
        std::thread::sleep(Duration::from_millis(250));
        assert!(reaches(&lab, "a", "10.77.2.2"), "the kernel passes by a router that hangs");
        passing.hangs.store(false, Ordering::Relaxed);
        eventually("the router taking over again", || {
            let before = passing.inward.load(Ordering::Relaxed);
            pings(&lab, "a", "10.77.2.2");
            (passing.inward.load(Ordering::Relaxed) > before).then_some(())
        });
        passing.stop.store(true, Ordering::Relaxed);
    });
    let [received, sent, segments, sent_segments] = *passing.balance.lock().unwrap();
    assert!(segments > 10_000, "{segments}");
    assert_eq!((received, segments), (sent, sent_segments), "bytes and segments balance");
    assert!(reaches(&lab, "a", "10.77.2.2"), "forwarding goes on afterwards");
    assert!(!lab.output("r", "ip -br link").contains("ek"), "the pair is gone");
}

#[test]
fn programs_of_others_see_each_packet_once_after_it_has_waited() {
    if !available("inline_order") {
        return;
    }
    let lab = routed();
    eventually("the kernel forwarding", || pings(&lab, "a", "10.77.2.2").then_some(()));
    // Somebody's program was there first. It takes whatever comes in.
    let (heart, _pulse) = beating(1_000);
    let other = inside(&lab, "r", || Bridged::attach("rb", &heart).unwrap());
    let passing = Passing::default();
    let inward = || passing.inward.load(Ordering::Relaxed);
    std::thread::scope(|scope| {
        scope.spawn(|| in_netns(&lab.name("r"), || pass(&passing)).unwrap());
        eventually("the programs at work", || {
            pings(&lab, "a", "10.77.2.2");
            (inward() > 0).then_some(())
        });
        let before = (inward(), other.taken());
        let answered = lab.try_output("a", "ping -n -c 20 -i 0.02 -W 1 10.77.2.2").0;
        let (waited, seen) = (inward() - before.0, other.taken() - before.1);
        passing.stop.store(true, Ordering::Relaxed);
        assert!(!answered, "the other's program takes what it sees");
        // Neighbours ask one another past us.
        assert!(waited >= 20 && (waited..waited + 10).contains(&seen), "{waited} and {seen}");
    });
}
