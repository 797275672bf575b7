// Included by `main.rs` after `suite.rs`: several workers on the same interfaces.

const TWO: &str = "[router]\nworkers = 2\n";

/// What each worker forwarded from a port.
fn by_worker(snapshot: &Snapshot, port: &str) -> Vec<u64> {
    snapshot.workers.iter().map(|worker| worker.port(port).unwrap().forwarded).collect()
}

#[test]
fn two_workers_forward_each_flow_by_one_of_them_and_leave_nothing_behind() {
    if !has_tool("workers", "iperf3", "iperf3") {
        return;
    }
    let Some(mut lab) = Lab::started("workers", TWO) else { return };
    for to in ["10.2.0.2", "2001:db8:2::2"] {
        lab.ping(to, 10);
    }
    let before = by_worker(&lab.snapshot(), "lan");
    // One ping more is one flow more, both ways on one worker.
    lab.ping("10.2.0.2", 10);
    let snapshot = lab.snapshot();
    let grown = |port: &str, before: &[u64]| {
        by_worker(&snapshot, port).iter().zip(before).filter(|(now, before)| **now >= **before + 10).count()
    };
    assert_eq!(grown("lan", &before), 1, "{before:?} {:?}", by_worker(&snapshot, "lan"));
    let by_kernel = lab.forwarded_by_kernel();
    assert!(by_kernel <= 2, "the kernel forwarded {by_kernel} packets");

    let server = lab.net.start("b", "iperf3 -s");
    sleep(Duration::from_millis(300));
    let output = lab.net.output("a", "iperf3 -c 10.2.0.2 -P 8 -t 1 -f m");
    assert!(output.contains("receiver"), "{output}");
    drop(server);
    let snapshot = lab.snapshot();
    assert_eq!(snapshot.workers.len(), 2);
    for port in ["lan", "wan"] {
        let spread = by_worker(&snapshot, port);
        assert!(spread.iter().all(|packets| *packets > 0), "{port}: {spread:?}");
        assert_eq!(spread.iter().sum::<u64>(), snapshot.port(port).unwrap().forwarded);
    }

    let router = lab.router.as_ref().unwrap();
    let rate = |rate| Command::SetRate { link: "wan".into(), rate };
    router.send(rate(Some(BitRate::from_mbps(50)))).unwrap();
    router.send(rate(Some(BitRate(10)))).unwrap_err();
    let lct = evenkeel_config::parse_discipline("{ kind = \"lct\" }", &["default"]).unwrap();
    let error = router.send(Command::SwapDiscipline { link: "wan".into(), discipline: lct }).unwrap_err();
    assert!(error.to_string().contains("workers = 1"), "{error}");
    let wfq = evenkeel_config::parse_discipline("{ kind = \"wfq-altq\" }", &["default"]).unwrap();
    router.send(Command::SwapDiscipline { link: "wan".into(), discipline: wfq }).unwrap();
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

    let last = lab.router.take().unwrap().stop().unwrap();
    assert_eq!(last.workers.len(), 2);
    assert_conserved(&last);
    let before = lab.forwarded_by_kernel();
    lab.ping("10.2.0.2", 5);
    assert!(lab.forwarded_by_kernel() >= before + 10);
    lab.start(TWO);
    lab.ping("10.2.0.2", 5);
}

#[test]
fn two_workers_share_a_link_by_the_weights_of_its_classes() {
    if !has_tool("workers_wfq", "iperf3", "iperf3") {
        return;
    }
    let rest = "[router]\nworkers = 2\n[[class]]\nname = \"light\"\n[[class]]\nname = \"heavy\"\n\
                match = [{ protocol = \"udp\", destination_port = 5202 }]\n\
                [[link]]\nport = \"wan\"\nrate = \"20Mbit/s\"\n\
                discipline = { kind = \"wfq-altq\", limit = 100, weight = { light = 100, heavy = 300 } }\n";
    let Some(lab) = Lab::started("workers_wfq", rest) else { return };
    let _servers = [5201, 5202].map(|port| lab.net.start("b", &format!("iperf3 -s -p {port}")));
    sleep(Duration::from_millis(300));
    // Flows of each class fall on workers as their ports are hashed: four of each, on both with good chances, on one at worst.
    let clients = [5201, 5202].map(|port| {
        lab.net.start("a", &format!("iperf3 -c 10.2.0.2 -p {port} -u -b 8M -l 1400 -P 4 -t 20"))
    });
    let sent = || {
        let snapshot = lab.snapshot();
        let link = snapshot.link("wan").unwrap();
        let bytes = |class| link.class(class).unwrap().sent_bytes;
        (bytes("light"), bytes("heavy"), snapshot.time_ns)
    };
    eventually("both classes to queue", || {
        let snapshot = lab.snapshot();
        snapshot.link("wan").unwrap().classes.iter().all(|class| !class.dropped.is_empty())
    });
    let before = sent();
    sleep(Duration::from_millis(2500));
    let after = sent();
    let (light, heavy) = ((after.0 - before.0) as f64, (after.1 - before.1) as f64);
    // 1400 bytes are 1466 on the wire, 1428 as IP packets.
    let rate = (light + heavy) * 8e9 / (after.2 - before.2) as f64;
    // Never above; below only where the machine does not run the senders or the workers.
    let part = rate / 20e6 / (1428.0 / 1466.0);
    assert!((0.3..1.02).contains(&part), "{rate}");
    assert!((heavy / light / 3.0 - 1.0).abs() < 0.03, "{heavy} {light}");
    drop(clients);
}
