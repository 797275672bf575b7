// Included by `main.rs` after `suite.rs`: receive queues of AF_XDP ports and workers.

#[test]
fn fewer_queues_than_workers_are_refused_or_served_by_packet_sockets() {
    let two = "[router]\nworkers = 2\n";
    let Some(mut lab) = Lab::new("few_queues") else { return };
    let options = Options {
        runtime_dir: lab.runtime.path().to_owned(),
        netns: Some(lab.net.name("r")),
        ..Options::default()
    };
    let error = Router::start(Lab::config(two), options).unwrap_err();
    assert_eq!(error.exit_code(), 3);
    let text = error.to_string();
    assert!(text.contains("interface lan has 1 receive") && text.contains("2 workers"), "{text}");
    // What had been begun is undone.
    lab.ping("10.2.0.2", 2);
    assert!(lab.forwarded_by_kernel() >= 4);

    // One interface has enough, the other has not: each does what it can, and all workers do the same.
    lab.net.ip("r", "link del wan");
    lab.net.wire_of_queues(("b", "b0"), ("r", "wan"), 3);
    lab.net.ip("b", "address add 10.2.0.2/24 dev b0");
    lab.net.ip("b", "route add default via 10.2.0.1");
    lab.net.ip("r", "address add 10.2.0.1/24 dev wan");
    let mut config = Lab::config(two);
    config.router.io = evenkeel_config::Io::Auto;
    lab.start_with(config);
    let snapshot = lab.snapshot();
    let io = |worker: usize, port: &str| snapshot.workers[worker].port(port).unwrap().io.clone();
    for worker in [0, 1] {
        assert!(!io(worker, "lan").contains("AF_XDP"), "{}", io(worker, "lan"));
        assert!(io(worker, "wan").contains("AF_XDP"), "{}", io(worker, "wan"));
    }
    // The first worker has queues 0 and 2.
    assert!(io(0, "wan").contains("2 of 3 receive queues"), "{}", io(0, "wan"));
    assert!(io(1, "wan").contains("1 of 3 receive queues"), "{}", io(1, "wan"));
    let before = lab.forwarded_by_kernel();
    lab.ping("10.2.0.2", 10);
    assert!(lab.forwarded_by_kernel() <= before + 2);
}
