// Included by `main.rs` after `suite.rs`: several workers on the same interfaces.

use evenkeel_core::{Class, Weight};

const TWO: &str = "[router]\nworkers = 2\n";

/// Receive queues of each interface; with packet sockets it makes no difference.
const QUEUES: u16 = 4;

impl Lab {
    /// A lab whose interfaces have several queues, with the router started.
    fn several(test: &str, rest: &str) -> Option<Self> {
        let mut lab =
            Self::wired(test, |net, left, right| net.wire_of_queues(left, right, QUEUES))?;
        lab.start(rest);
        Some(lab)
    }

    /// `iperf3 -s` behind `wan`, which listens, until it is dropped.
    fn iperf3_server(&self) -> impl Sized + use<> {
        let server = self.net.start("b", "iperf3 -s");
        eventually("iperf3 to listen", || self.net.output("b", "ss -ltn").contains(":5201"));
        server
    }
}

/// What each worker forwarded from a port.
fn by_worker(snapshot: &Snapshot, port: &str) -> Vec<u64> {
    snapshot.workers.iter().map(|worker| worker.port(port).unwrap().forwarded).collect()
}

/// Thirty-two flows at once; both workers forward some of them, both ways. Eight are too few:
/// ports are random, and in one run of some hundred all of them are one worker's.
fn both_forward(lab: &Lab) {
    let before = lab.snapshot();
    let server = lab.iperf3_server();
    let output = lab.net.output("a", "iperf3 -c 10.2.0.2 -P 32 -t 1 -f m");
    assert!(output.contains("receiver"), "{output}");
    drop(server);
    let after = lab.snapshot();
    let by_kernel = lab.forwarded_by_kernel();
    assert_eq!(after.workers.len(), 2);
    for port in ["lan", "wan"] {
        let (before, after) = (by_worker(&before, port), by_worker(&after, port));
        assert!(
            before.iter().zip(&after).all(|(before, after)| after > before),
            "{port}: {before:?} {after:?}, {by_kernel} by the kernel"
        );
    }
}

/// A link with a discipline that cannot be shared is the first worker's: pings that come by the
/// other one wake it each time, and 48 flows together have its rate.
#[test]
fn a_link_of_the_first_worker_carries_what_comes_by_both() {
    if !has_tool("workers_hand", "iperf3", "iperf3") {
        return;
    }
    let lct = "[[link]]\nport = \"wan\"\nrate = \"40Mbit/s\"\n\
               discipline = { kind = \"lct\", module2 = false }\n";
    let Some(lab) = Lab::several("workershand", &format!("{TWO}{lct}")) else { return };
    let handed = |snapshot: &Snapshot| {
        let ports = || snapshot.ports.iter();
        let of = |count: fn(&evenkeel_router::snapshot::PortSnapshot) -> u64| -> u64 {
            ports().map(count).sum()
        };
        (of(|port| port.handed_on), of(|port| port.handed_in), of(|port| port.handed_lost))
    };
    // To each address a flow: of twelve, half come by the second worker.
    let mut trips = 0.0;
    for host in 2..14 {
        if host > 2 {
            lab.net.ip("b", &format!("addr add 10.2.0.{host}/24 dev b0"));
        }
        let said = lab.net.output("a", &format!("ping -n -c 5 -i 0.02 -W 1 10.2.0.{host}"));
        assert!(said.contains(" 0% packet loss"), "{said}");
        trips += said.rsplit('/').nth(2).unwrap().parse::<f64>().unwrap();
    }
    // Without being woken it would look once in 50 ms.
    assert!(trips / 12.0 < 5.0, "{trips} ms for twelve round trips");
    let (on, taken, _) = handed(&lab.snapshot());
    assert!(on > 0 && on == taken, "{on} {taken}");
    let server = lab.iperf3_server();
    let sent = |snapshot: &Snapshot| snapshot.link("wan").unwrap().classes[0].sent_packets;
    let wire = |snapshot: &Snapshot| snapshot.port("wan").unwrap().tx_bytes + 24 * sent(snapshot);
    let load = lab.net.start("a", "iperf3 -c 10.2.0.2 -P 48 -t 9 -C cubic");
    sleep(Duration::from_secs(1));
    // Never above the rate. A second in which a neighbour has the processors may be below it.
    let first = |snapshot: Snapshot| snapshot.workers[0].clone();
    let mut before = first(lab.snapshot());
    let mut rates = Vec::new();
    for _ in 0..4 {
        sleep(Duration::from_millis(1500));
        let after = first(lab.snapshot());
        let bits = (wire(&after) - wire(&before)) as f64 * 8.0;
        rates.push(bits / (after.time_ns - before.time_ns) as f64 * 1e3);
        before = after;
    }
    let after = lab.snapshot();
    drop((load, server));
    println!("{rates:.2?} Mbit/s, {:?}", handed(&after));
    assert!(rates.iter().all(|rate| *rate < 40.5), "{rates:.2?} Mbit/s");
    assert!(rates.iter().any(|rate| *rate > 38.5), "{rates:.2?} Mbit/s");
    assert!(handed(&after).0 > on + 1_000, "{:?}", handed(&after));
    assert_eq!(after.workers[1].link("wan").unwrap().classes[0].sent_packets, 0);
    let (on, taken, lost) = handed(&lab.snapshot());
    assert!(lost < 10 && on - taken - lost < 100, "{on} {taken} {lost}");
}

/// A class of LCT-UC goes once in its time, whichever worker its packets meet: 16 flows, which both
/// have, keep it busy.
#[test]
fn a_class_is_held_over_both_workers() {
    if !has_tool("workers_held", "iperf3", "iperf3") {
        return;
    }
    let lct = "[[link]]\nport = \"wan\"\nrate = \"100Mbit/s\"\n\
               discipline = { kind = \"lct\", x_delay = \"2ms\" }\n";
    let Some(lab) = Lab::several("workersheld", &format!("{TWO}{lct}")) else { return };
    lab.ping("10.2.0.2", 5);
    let server = lab.iperf3_server();
    let load = lab.net.start("a", "iperf3 -c 10.2.0.2 -u -P 16 -b 2M -l 500 -t 8");
    let sent = || {
        lab.snapshot().workers.iter().fold((0, Vec::new()), |(_, mut sent), worker| {
            sent.push(worker.link("wan").unwrap().classes[0].sent_packets);
            (worker.time_ns, sent)
        })
    };
    eventually("both workers to send", || sent().1.iter().all(|sent| *sent > 50));
    let (begin, before) = sent();
    sleep(Duration::from_secs(4));
    let (end, after) = sent();
    drop((load, server));
    let sent: Vec<u64> = after.iter().zip(&before).map(|(after, before)| after - before).collect();
    let turns = (end - begin) as f64 / 2e6;
    let all = sent.iter().sum::<u64>() as f64;
    println!("{sent:?} of {turns:.1}");
    assert!(all <= turns + 3.0, "{sent:?} in {turns} times 2 ms");
    // A machine that is busy with other things takes turns away.
    assert!(all > turns * 0.7, "{sent:?} in {turns} times 2 ms");
    assert!(sent.iter().all(|sent| *sent as f64 > all * 0.3), "{sent:?}: both have their turns");
}

#[test]
fn two_workers_forward_each_flow_by_one_of_them_and_leave_nothing_behind() {
    if !has_tool("workers", "iperf3", "iperf3") {
        return;
    }
    let Some(mut lab) = Lab::several("workers", TWO) else { return };
    for to in ["10.2.0.2", "2001:db8:2::2"] {
        lab.ping(to, 10);
    }
    let before = by_worker(&lab.snapshot(), "lan");
    // One ping more is one flow more, both ways on one worker.
    lab.ping("10.2.0.2", 10);
    let snapshot = lab.snapshot();
    let grown = |port: &str, before: &[u64]| {
        by_worker(&snapshot, port)
            .iter()
            .zip(before)
            .filter(|(now, before)| **now >= **before + 10)
            .count()
    };
    assert_eq!(grown("lan", &before), 1, "{before:?} {:?}", by_worker(&snapshot, "lan"));
    let by_kernel = lab.forwarded_by_kernel();
    assert!(by_kernel <= 2, "the kernel forwarded {by_kernel} packets");

    both_forward(&lab);
    let snapshot = lab.snapshot();
    for port in ["lan", "wan"] {
        let forwarded = snapshot.port(port).unwrap().forwarded;
        assert_eq!(by_worker(&snapshot, port).iter().sum::<u64>(), forwarded);
    }

    let router = lab.router.as_ref().unwrap();
    let rate = |rate| {
        Command::Change(LinkChange::Wire(settings::Change::new("rate", rate)).on("wan"))
    };
    router.send(rate(Some(BitRate::from_mbps(50)))).unwrap();
    router.send(rate(Some(BitRate(10)))).unwrap_err();
    let lct = "{ kind = \"lct\", module2 = false }";
    let lct = evenkeel_config::parse_discipline(lct, &["default"]).unwrap();
    let error =
        router.send(Command::Change(LinkChange::Discipline(lct).on("wan"))).unwrap_err();
    assert!(error.to_string().contains("reload"), "{error}");
    let wfq = evenkeel_config::parse_discipline("{ kind = \"wfq-altq\" }", &["default"]).unwrap();
    router.send(Command::Change(LinkChange::Discipline(wfq).on("wan"))).unwrap();
    for worker in lab.snapshot().workers {
        let link = worker.link("wan").unwrap();
        assert_eq!((link.rate_bps, link.discipline.as_str()), (Some(50_000_000), "wfq-altq"));
    }
    lab.ping("10.2.0.2", 5);

    // The interface goes and comes back: both workers use it again.
    lab.net.ip("r", "link set wan down");
    eventually("the port to be down", || !lab.snapshot().port("wan").unwrap().up);
    lab.net.ip("r", "link set wan up");
    eventually("all workers to use the port", || lab.snapshot().port("wan").unwrap().up);
    lab.net.ip("r", "-6 address replace 2001:db8:2::1/64 dev wan nodad");
    lab.ping("10.2.0.2", 5);

    // It is deleted, and made anew.
    lab.net.ip("r", "link del wan");
    eventually("the port to be gone", || !lab.snapshot().port("wan").unwrap().up);
    lab.net.wire_of_queues(("b", "b0"), ("r", "wan"), QUEUES);
    lab.net.ip("b", "address add 10.2.0.2/24 dev b0");
    lab.net.ip("b", "route add default via 10.2.0.1");
    lab.net.ip("r", "address add 10.2.0.1/24 dev wan");
    eventually("all workers to use the new one", || lab.snapshot().port("wan").unwrap().up);
    lab.ping("10.2.0.2", 5);
    both_forward(&lab);

    let last = lab.router.take().unwrap().stop().unwrap();
    assert_eq!(last.workers.len(), 2);
    assert_conserved(&last);
    let before = lab.forwarded_by_kernel();
    lab.ping("10.2.0.2", 5);
    assert!(lab.forwarded_by_kernel() >= before + 10);
    lab.start(TWO);
    lab.ping("10.2.0.2", 5);
}

/// F13: one interface of three was missing at boot, and nothing was forwarded.
#[test]
fn a_router_starts_without_an_optional_interface_and_uses_it_once_it_is_there() {
    for (test, rest) in [("late", ""), ("late2", TWO)] {
        let Some(mut lab) = Lab::wired(test, |net, left, right| {
            net.wire_of_queues(left, right, QUEUES);
        }) else {
            return;
        };
        lab.net.ip("r", "link del wan");
        let mut config = Lab::config(rest);
        config.ports[1].optional = true;
        lab.start_with(config);
        assert_eq!([0, 1].map(|at| lab.snapshot().ports[at].up), [true, false]);
        // Then it goes once more, as any other.
        for _ in 0..2 {
            lab.net.wire_of_queues(("b", "b0"), ("r", "wan"), QUEUES);
            lab.net.ip("b", "address add 10.2.0.2/24 dev b0");
            lab.net.ip("b", "route add default via 10.2.0.1");
            lab.net.ip("r", "address add 10.2.0.1/24 dev wan");
            eventually("the port to be up", || lab.snapshot().port("wan").unwrap().up);
            // The mirror tells of its network a moment later.
            let ping = "ping -n -c 1 -W 1 10.2.0.2";
            eventually("the way to b", || {
                lab.net.try_output("a", ping).1.contains(" 0% packet loss")
            });
            let before = lab.forwarded("wan");
            lab.ping("10.2.0.2", 5);
            assert!(lab.forwarded("wan") >= before + 5, "the kernel did it");
            lab.net.ip("r", "link del wan");
            eventually("the port to be down", || !lab.snapshot().port("wan").unwrap().up);
        }
        assert_conserved(&lab.router.take().unwrap().stop().unwrap());
    }
}

/// Bytes sent and waiting, by class; when.
struct Look {
    sent: [u64; 2],
    waiting: [u64; 2],
    at: u64,
    /// Between the looks at the first and at the second worker, nanoseconds.
    apart: u64,
}

fn look(lab: &Lab) -> Look {
    let snapshot = lab.snapshot();
    let link = snapshot.link("wan").unwrap();
    let class = |name| link.class(name).unwrap();
    let times = [0, 1].map(|worker: usize| snapshot.workers[worker].time_ns);
    Look {
        sent: ["light", "heavy"].map(|name| class(name).sent_bytes.0),
        waiting: ["light", "heavy"].map(|name| class(name).queued_bytes),
        at: snapshot.time_ns,
        apart: times[0].abs_diff(times[1]),
    }
}

/// A stretch of time in which both classes send `bytes` together and never ran empty, as their own
/// counters prove: at each look more waited than was sent until the next. However busy the machine
/// is, and whatever it does to the senders, weights must hold there.
fn backlogged(lab: &Lab, bytes: u64) -> (Look, Look) {
    let start = std::time::Instant::now();
    let sharp = |look: &Look| look.apart < 1_000_000;
    let (mut first, mut last) = (None, look(lab));
    loop {
        assert!(
            start.elapsed() < Duration::from_secs(25),
            "both classes never had enough waiting for long enough"
        );
        sleep(Duration::from_millis(15));
        let now = look(lab);
        let proved =
            [0, 1].iter().all(|class| last.waiting[*class] > now.sent[*class] - last.sent[*class]);
        if !proved {
            first = None;
        } else if first.is_none() && sharp(&last) {
            first = Some(last);
        }
        match first {
            Some(first)
                if sharp(&now)
                    && (now.sent[0] + now.sent[1]) - (first.sent[0] + first.sent[1]) >= bytes =>
            {
                return (first, now);
            }
            _ => last = now,
        }
    }
}

#[test]
fn two_workers_share_a_link_by_the_weights_of_its_classes() {
    if !has_tool("workers_wfq", "iperf3", "iperf3") {
        return;
    }
    // A worker that the machine does not run for less than a second sends later what it missed.
    let rest = "[router]\nworkers = 2\nmax_catch_up = \"1s\"\n[[class]]\nname = \
                \"light\"\n[[class]]\nname = \"heavy\"\n\
                match = [{ protocol = \"udp\", destination_port = 5202 }]\n\
                [[link]]\nport = \"wan\"\nrate = \"20Mbit/s\"\n\
                discipline = { kind = \"wfq-altq\", limit = 400, weight = { light = 100, heavy = \
                300 } }\n";
    let Some(lab) = Lab::several("workers_wfq", rest) else { return };
    let _servers = [5201, 5202].map(|port| lab.net.start("b", &format!("iperf3 -s -p {port}")));
    sleep(Duration::from_millis(300));
    // Flows of each class fall on workers as their ports are hashed: four of each, on both with
    // good chances, on one at worst.
    let clients = [5201, 5202].map(|port| {
        lab.net.start("a", &format!("iperf3 -c 10.2.0.2 -p {port} -u -b 8M -l 1400 -P 4 -t 30"))
    });
    let (first, last) = backlogged(&lab, 3_000_000);
    let [light, heavy] = [0, 1].map(|class| (last.sent[class] - first.sent[class]) as f64);
    // Both workers are looked at within a millisecond of each other, which is 2.5 kB at this rate,
    // and stop in the middle of a packet.
    assert!((heavy / light / 3.0 - 1.0).abs() < 0.01, "{heavy} {light}");
    // 1400 bytes are 1466 on the wire, 1428 as IP packets.
    let rate = (light + heavy) * 8e9 / (last.at - first.at) as f64 / (1428.0 / 1466.0);
    assert!((0.97..1.03).contains(&(rate / 20e6)), "{rate}");

    // The weights change for both workers, under load.
    let even = LinkChange::Setting(settings::Change::of("weight", Class(0), Weight(300)));
    lab.router.as_ref().unwrap().send(Command::Change(even.on("wan"))).unwrap();
    sleep(Duration::from_millis(50));
    let (first, last) = backlogged(&lab, 2_000_000);
    let [light, heavy] = [0, 1].map(|class| (last.sent[class] - first.sent[class]) as f64);
    assert!((heavy / light - 1.0).abs() < 0.01, "{heavy} {light}");
    drop(clients);
}

/// Sockets of senders in `a`, each a flow to one socket in `b`.
struct Flows {
    senders: Vec<std::net::UdpSocket>,
    receiver: std::net::UdpSocket,
    /// By flow, packets received.
    received: Vec<u64>,
}

impl Flows {
    fn new(lab: &Lab, count: usize) -> Self {
        use std::net::UdpSocket;
        let at = |node: &str, address: &'static str, count: usize| {
            let open =
                move || (0..count).map(|_| UdpSocket::bind(address).unwrap()).collect::<Vec<_>>();
            evenkeel_ports::sys::in_netns(&lab.net.name(node), open).unwrap()
        };
        let receiver = at("b", "10.2.0.2:7000", 1).remove(0);
        receiver.set_nonblocking(true).unwrap();
        let senders = at("a", "10.1.0.2:0", count);
        for sender in &senders {
            sender.set_nonblocking(true).unwrap();
            sender.connect("10.2.0.2:7000").unwrap();
        }
        Self { senders, receiver, received: vec![0; count] }
    }

    /// These flows send 1400 bytes every 2 ms each, for a time.
    fn send(&mut self, flows: &[usize], time: Duration) {
        let begin = std::time::Instant::now();
        let ports: Vec<u16> = self.senders.iter().map(|s| s.local_addr().unwrap().port()).collect();
        let mut turns = 0;
        while begin.elapsed() < time {
            if begin.elapsed().as_millis() >= 2 * turns {
                turns += 1;
                for flow in flows {
                    // What does not go is not sent: they send more than passes anyway.
                    let _ = self.senders[*flow].send(&[0; 1400]);
                }
            }
            let mut packet = [0; 1500];
            while let Ok((_, from)) = self.receiver.recv_from(&mut packet) {
                let flow = ports.iter().position(|port| *port == from.port()).unwrap();
                self.received[flow] += 1;
            }
            sleep(Duration::from_micros(200));
        }
    }
}

#[test]
fn two_workers_share_a_link_by_flows_and_refuse_by_the_load_of_both() {
    let rest = "[router]\nworkers = 2\nmax_catch_up = \"1s\"\n\
                [[link]]\nport = \"wan\"\nrate = \"20Mbit/s\"\ndiscipline = { kind = \"pdrr\" }\n\
                [link.admission]\nmin_fair_rate = 0.1\nmax_priority_load = 1.0\nfair_rate_interval \
                = \"100ms\"\nexpected_flows = false\nnewcomer_share = 0.0\neccm = false\n";
    let Some(lab) = Lab::several("workers_flows", rest) else { return };
    lab.ping("10.2.0.2", 1);
    let mut flows = Flows::new(&lab, 16);
    // Each alone offers more than a quarter of the link; with ten of them the fair rate is below a
    // tenth. Who is refused for a quarter of a second gives up: if all tried on, one moment in
    // which the sender is not run would let all of them in.
    let mut inside: Vec<usize> = Vec::new();
    for newcomer in 0..16 {
        inside.push(newcomer);
        flows.send(&inside, Duration::from_millis(250));
        inside.retain(|flow| flows.received[*flow] > 0);
    }
    assert!((9..=13).contains(&inside.len()), "{inside:?}");
    flows.received.fill(0);
    let before = lab.snapshot();
    flows.send(&inside, Duration::from_secs(3));
    let after = lab.snapshot();

    let admission = after.link("wan").unwrap().admission.clone().unwrap();
    // Not the fair rate of this moment: while one worker is not run the other has it all.
    assert!(admission.refused_total() > 0, "{admission:?}");
    assert_eq!(
        admission.packets,
        admission.passed.values().sum::<u64>() + admission.refused_total()
    );
    let received: Vec<u64> = inside.iter().map(|flow| flows.received[*flow]).collect();
    // They share alike, on whichever of the workers they are. Each has seconds of its share
    // waiting, so that a sender that was not run shows nowhere.
    let (least, most) =
        (*received.iter().min().unwrap() as f64, *received.iter().max().unwrap() as f64);
    assert!(least / most > 0.95, "{received:?}");
    let [sent_before, sent_after] = [&before, &after].map(|snapshot| by_worker(snapshot, "lan"));
    assert!(
        sent_before.iter().zip(&sent_after).all(|(before, after)| after > before),
        "both have flows"
    );

    // Who protects a flow is asked of both workers.
    let router = lab.router.as_ref().unwrap();
    let told = match router.send(Command::Flows { link: Some("wan".into()), top: 100 }).unwrap() {
        evenkeel_router::Reply::Flows(told) => told,
        other => panic!("{other:?}"),
    };
    assert_eq!(told.len() as u64, admission.protected);
    for flow in &told {
        let explain = Command::Explain { link: None, flow: flow.flow.parse().unwrap() };
        let text = match router.send(explain).unwrap() {
            evenkeel_router::Reply::Text(text) => text,
            other => panic!("{other:?}"),
        };
        assert!(text.contains("protected since") && text.matches("worker").count() == 1, "{text}");
    }
}
