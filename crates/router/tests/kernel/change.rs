// Included by `main.rs` after `workers.rs`: ports, classes, workers, buffers and modes that change
// while packets flow.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Datagrams a second of the flow that must not suffer.
const FLOW: u64 = 4_000;

/// A numbered flow from `a` to `b`, as fast as `FLOW` says, until told to stop.
struct Flow<'a> {
    stop: &'a AtomicBool,
    sent: &'a AtomicU64,
}

impl Flow<'_> {
    fn run(&self, namespace: &str) {
        evenkeel_ports::sys::enter_netns(namespace).unwrap();
        let sockets: Vec<std::net::UdpSocket> =
            (0..8).map(|_| std::net::UdpSocket::bind("10.1.0.2:0").unwrap()).collect();
        let begin = std::time::Instant::now();
        let (mut sent, mut missed) = (0, 0);
        while !self.stop.load(Ordering::Relaxed) {
            let due = begin.elapsed().as_micros() as u64 * FLOW / 1_000_000;
            // What was missed in a pause of this thread is not sent at once: queues hold some
            // hundred packets.
            let late = due - (sent + missed);
            missed += late.saturating_sub(50);
            for _ in 0..late.min(50) {
                let to = ("10.2.0.2", 9_000 + (sent % 3) as u16);
                sockets[sent as usize % sockets.len()].send_to(&[0; 400], to).unwrap();
                sent += 1;
            }
            self.sent.store(sent, Ordering::Relaxed);
            sleep(Duration::from_micros(500));
        }
    }
}

impl Lab {
    /// Datagrams for `b` that got there, whatever became of them then.
    fn arrived(&self) -> u64 {
        let counters = self.net.output("b", "cat /proc/net/snmp");
        let values = counters.lines().filter(|line| line.starts_with("Udp:")).nth(1).unwrap();
        // Delivered, for nobody, and with an error: no room in the buffer, or a wrong checksum.
        let value = |at: usize| values.split_whitespace().nth(at).unwrap().parse::<u64>().unwrap();
        value(1) + value(2) + value(3)
    }

    /// Packets that ring and guards of the router's ports lost.
    fn ring_loss(&self) -> u64 {
        self.snapshot().ports.iter().map(|port| port.ring_loss).sum()
    }

    fn reload(&self, config: &RouterConfig) -> Result<(), CommandError> {
        self.router.as_ref().unwrap().send(Command::Reload(Box::new(config.clone()))).map(drop)
    }

    /// Lets `change` happen while the flow runs; gives what was sent and what got there once it is
    /// over.
    fn under_load(&self, change: impl FnOnce(&Self)) -> (u64, u64) {
        let (stop, sent) = (AtomicBool::new(false), AtomicU64::new(0));
        // While a neighbour is asked for only a few packets wait.
        self.ping("10.2.0.2", 2);
        let before = self.arrived();
        let namespace = self.net.name("a");
        std::thread::scope(|scope| {
            let flow = Flow { stop: &stop, sent: &sent };
            scope.spawn(move || flow.run(&namespace));
            // It ends also when a check fails.
            let changed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                eventually("the flow to arrive", || self.arrived() > before + 200);
                change(self);
                let now = self.arrived();
                eventually("the flow to go on", || self.arrived() > now + 400);
            }));
            stop.store(true, Ordering::Relaxed);
            if let Err(panic) = changed {
                std::panic::resume_unwind(panic);
            }
        });
        let sent = sent.load(Ordering::Relaxed);
        let end = std::time::Instant::now() + Duration::from_secs(2);
        while self.arrived() - before < sent && std::time::Instant::now() < end {
            sleep(Duration::from_millis(20));
        }
        let arrived = self.arrived() - before;
        if arrived != sent {
            let snapshot = self.snapshot();
            for port in &snapshot.ports {
                eprintln!(
                    "{}: {:?} {:?} {:?}",
                    port.name, port.dropped, port.originated_dropped, port.tx_dropped
                );
            }
            for link in &snapshot.links {
                eprintln!(
                    "{}: {:?}",
                    link.port,
                    link.classes.iter().map(|class| &class.dropped).collect::<Vec<_>>()
                );
            }
            eprintln!("by the kernel: {}", self.forwarded_by_kernel());
        }
        (sent, arrived)
    }

    /// A third network behind the router, 10.3.0.0/24, with `b` in it.
    fn wire_third(&self) {
        self.net.wire_of_queues(("b", "b1"), ("r", "opt"), QUEUES);
        self.net.ip("b", "address add 10.3.0.2/24 dev b1");
        self.net.ip("r", "address add 10.3.0.1/24 dev opt");
    }
}

/// Ports beside `lan` and `wan`, and whatever else.
fn with_port(rest: &str) -> RouterConfig {
    Lab::config(&format!("[[port]]\nname = \"opt\"\ninterface = \"opt\"\n{PACED}{rest}"))
}

const PACED: &str = "[[link]]\nport = \"wan\"\nrate = \"50Mbit/s\"\n\
    discipline = { kind = \"wfq-altq\", limit = 1500 }\n";

#[test]
fn ports_come_and_go_and_no_packet_of_the_others_is_lost() {
    let Some(lab) = Lab::several("ports_change", PACED) else { return };
    lab.wire_third();
    let before = lab.snapshot();
    let (sent, arrived) = lab.under_load(|lab| {
        lab.reload(&with_port("")).unwrap();
        let snapshot = lab.snapshot();
        assert_eq!(
            snapshot.ports.iter().map(|port| port.name.as_str()).collect::<Vec<_>>(),
            ["lan", "opt", "wan"].map(|name| if name == "opt" {
                "wan"
            } else if name == "wan" {
                "opt"
            } else {
                name
            })
        );
        eventually("the new port to be up", || lab.snapshot().port("opt").unwrap().up);
        lab.ping("10.3.0.2", 5);
        assert!(lab.snapshot().link("opt").unwrap().classes[0].sent_packets >= 5);
        // Not first or last but between: the others are numbered anew.
        let mut config = with_port("");
        config.ports.swap(0, 2);
        config.links.swap(0, 2);
        lab.reload(&config).unwrap();
        lab.ping("10.3.0.2", 5);
        lab.reload(&Lab::config(PACED)).unwrap();
        let snapshot = lab.snapshot();
        assert_eq!(snapshot.ports.len(), 2);
        let removed = snapshot.removed.unwrap();
        assert_eq!(removed.ports, 1);
        assert!(removed.link.classes[0].sent_packets >= 10, "{removed:?}");
        // It is no port any more: what has a route there the kernel forwards.
        lab.ping("10.3.0.2", 5);
        assert!(lab.snapshot().port("lan").unwrap().elsewhere >= 5);
        lab.reload(&with_port("")).unwrap();
        eventually("it to be up again", || lab.snapshot().port("opt").unwrap().up);
        lab.ping("10.3.0.2", 5);
    });
    assert_eq!((sent, lab.ring_loss()), (arrived, 0), "sent and arrived");
    let after = lab.snapshot();
    // The counters go on: nothing of what was counted before is forgotten.
    let grown = |of: fn(&Snapshot) -> u64| of(&after) - of(&before);
    assert!(grown(|snapshot| snapshot.port("lan").unwrap().forwarded) >= sent);
    assert!(grown(|snapshot| snapshot.link("wan").unwrap().classes[0].sent_packets) >= sent);
    assert!(grown(|snapshot| snapshot.port("wan").unwrap().tx_packets) >= sent);
    assert!(after.uptime_ns > before.uptime_ns && after.seed == before.seed);
    // Ten to the port that was none for a while, and back.
    let by_kernel = lab.forwarded_by_kernel();
    assert!(by_kernel <= 14, "the kernel forwarded {by_kernel}");
}

#[test]
fn a_port_that_cannot_be_opened_is_refused_and_everything_goes_on() {
    let Some(lab) = Lab::several("port_refused", PACED) else { return };
    let (sent, arrived) = lab.under_load(|lab| {
        let mut config = with_port("");
        config.ports[2].interface = "nosuch0".into();
        let error = lab.reload(&config).unwrap_err().to_string();
        assert_eq!(
            error,
            "port opt: there is no interface \"nosuch0\": create it or correct `interface`"
        );
        // One that is not Ethernet, one that is another router's.
        config.ports[2].interface = "lo".into();
        lab.reload(&config).unwrap_err();
        lab.wire_third();
        let mut other = with_port("");
        other.ports.drain(..2);
        other.links.drain(..2);
        let options = Options {
            runtime_dir: lab.runtime.path().join("other"),
            netns: Some(lab.net.name("r")),
            ..Options::default()
        };
        let router = Router::start(other, options).unwrap();
        let error = lab.reload(&with_port("")).unwrap_err().to_string();
        assert!(error.contains("another evenkeel forwards from interface opt"), "{error}");
        drop(router);
        for (key, change) in [
            ("router.seed", (|config| config.router.seed = Some(7)) as fn(&mut RouterConfig)),
            ("router.control", |config| config.router.control = "/tmp/x.sock".into()),
        ] {
            let mut config = with_port("");
            change(&mut config);
            let error = lab.reload(&config).unwrap_err();
            assert!(
                matches!(&error, CommandError::NeedsRestart { what, .. } if what == key),
                "{error}"
            );
        }
        assert_eq!(lab.snapshot().ports.len(), 2);
    });
    assert_eq!((sent, lab.ring_loss()), (arrived, 0), "sent and arrived");
    assert!(lab.snapshot().removed.is_none());
}

#[test]
fn classes_and_lists_change_and_no_packet_is_lost() {
    let classes = |list: &str| {
        let text: String = list
            .split(' ')
            .map(|name| {
                let rule = if name == "rest" {
                    ""
                } else {
                    &format!(
                        "match = [{{ protocol = \"udp\", destination_port = \"{}\" }}]\n",
                        if name == "one" { 9_000 } else { 9_001 }
                    )
                };
                format!("[[class]]\nname = \"{name}\"\n{rule}")
            })
            .collect();
        // The link is too slow for the flow: packets wait when the classes change.
        Lab::config(&format!(
            "{text}[[link]]\nport = \"wan\"\nrate = \"13Mbit/s\"\ndiscipline = {{ kind = \
             \"wfq-altq\", limit = 6000 }}\n"
        ))
    };
    let Some(mut lab) =
        Lab::wired("classes_change", |net, left, right| net.wire_of_queues(left, right, QUEUES))
    else {
        return;
    };
    lab.start_with(classes("rest one"));
    let (sent, arrived) = lab.under_load(|lab| {
        let waits = |lab: &Lab| lab.snapshot().link("wan").unwrap().queued > 50;
        eventually("packets to wait", || waits(lab));
        lab.reload(&classes("rest two one")).unwrap();
        let snapshot = lab.snapshot();
        let link = snapshot.link("wan").unwrap();
        assert_eq!(
            link.classes.iter().map(|class| class.name.as_str()).collect::<Vec<_>>(),
            ["rest", "two", "one"]
        );
        assert!(link.class("one").unwrap().sent_packets > 20, "counters by name: {link:?}");
        eventually("the new class to be served", || {
            lab.snapshot().link("wan").unwrap().class("two").unwrap().sent_packets > 20
        });
        eventually("packets to wait", || waits(lab));
        let before = lab.snapshot().link("wan").unwrap().class("rest").unwrap().sent_packets;
        let mut config = classes("rest two");
        config.flows.lists.flows = 1_000;
        lab.reload(&config).unwrap();
        let snapshot = lab.snapshot();
        let link = snapshot.link("wan").unwrap();
        assert_eq!(link.classes.len(), 2);
        // What the class that went had counted is the first one's now.
        assert!(link.class("rest").unwrap().sent_packets >= before + 20);
        let mut config = classes("rest two");
        config.links[1].core.rate = Some(BitRate::from_mbps(100));
        lab.reload(&config).unwrap();
    });
    assert_eq!((sent, lab.ring_loss()), (arrived, 0), "sent and arrived");
}

#[test]
fn workers_buffers_and_sockets_change_under_load() {
    let Some(lab) = Lab::several("workers_change", PACED) else { return };
    let several = |section: &str| Lab::config(&format!("[router]\n{section}\n{PACED}"));
    for (section, workers) in [
        ("workers = 2", 2),
        ("workers = 3\nbuffers = 2048", 3),
        ("workers = 1\nbuffer_size = \"4096B\"", 1),
        ("workers = 1\ncpu = 0", 1),
        ("mode = \"busy\"", 1),
        ("mode = \"event\"", 1),
    ] {
        let before = lab.snapshot();
        let kernel = lab.forwarded_by_kernel();
        let (sent, arrived) = lab.under_load(|lab| {
            lab.reload(&several(section)).unwrap();
            let snapshot = lab.snapshot();
            assert_eq!(snapshot.workers.len().max(1), workers, "{section}");
            let buffers = &snapshot.buffers;
            assert!(buffers.total >= 2048 * workers as u64, "{buffers:?}");
        });
        eprintln!(
            "{IO}, {}: {sent} sent, {arrived} arrived, {} of them by the kernel",
            section.replace('\n', ", "),
            lab.forwarded_by_kernel() - kernel
        );
        // Two packet sockets stamp the same frame within a microsecond: one that comes at the very
        // instant of the change may be taken by both, or by none. With AF_XDP the kernel forwards
        // meanwhile, but what is in the driver when the program goes is lost: a veth holds up to
        // 256 frames.
        let most = if IO == "af-packet" { 3 } else { 256 };
        assert!(
            arrived <= sent + 3 && sent - arrived.min(sent) <= most,
            "{section}: {sent} sent, {arrived} arrived"
        );
        let after = lab.snapshot();
        let forwarded = |snapshot: &Snapshot| snapshot.port("lan").unwrap().forwarded;
        assert!(forwarded(&after) > forwarded(&before), "{section}");
    }
}

#[test]
fn a_port_changes_between_packet_sockets_and_af_xdp() {
    let Some(lab) = Lab::several("io_change", PACED) else { return };
    for io in [evenkeel_config::Io::AfXdp, evenkeel_config::Io::AfPacket, evenkeel_config::Io::Auto]
    {
        let kernel = lab.forwarded_by_kernel();
        let (sent, arrived) = lab.under_load(|lab| {
            let mut config = Lab::config(PACED);
            config.ports[0].io = Some(io);
            lab.reload(&config).unwrap();
            let snapshot = lab.snapshot();
            let is_xdp = snapshot.port("lan").unwrap().io.contains("AF_XDP");
            assert_eq!(
                is_xdp,
                io != evenkeel_config::Io::AfPacket,
                "{}",
                snapshot.port("lan").unwrap().io
            );
        });
        eprintln!(
            "{IO} to {}: {sent} sent, {arrived} arrived, {} of them by the kernel",
            io.name(),
            lab.forwarded_by_kernel() - kernel
        );
        // Three: as where packet sockets are opened anew.
        assert!(
            arrived <= sent + 3 && sent.saturating_sub(arrived) <= FLOW / 20,
            "{io:?}: {sent} sent, {arrived} arrived"
        );
    }
    lab.ping("10.2.0.2", 5);
}
