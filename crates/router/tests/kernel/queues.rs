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

    // One interface has enough, the other has not: each does what it can, and all workers do the
    // same.
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

#[test]
fn what_stands_in_the_way_of_af_xdp_is_said_and_packet_sockets_do_where_they_may() {
    let Some(mut lab) = Lab::new("no_xdp") else { return };
    let options = |lab: &Lab| Options {
        runtime_dir: lab.runtime.path().to_owned(),
        netns: Some(lab.net.name("r")),
        ..Options::default()
    };
    let refused = |lab: &Lab, says: &str| {
        let error = Router::start(Lab::config(""), options(lab)).unwrap_err();
        let text = error.to_string();
        assert_eq!(error.exit_code(), 3, "{text}");
        assert_eq!(error.port(), Some(("lan", "interface")), "{text}");
        assert!(text.contains(says) && text.contains("af-packet"), "{text}");
    };
    let falls_back = |lab: &mut Lab| {
        let mut config = Lab::config("");
        config.router.io = evenkeel_config::Io::Auto;
        lab.start_with(config);
        let snapshot = lab.snapshot();
        let io = |port: &str| snapshot.port(port).unwrap().io.clone();
        assert!(
            !io("lan").contains("AF_XDP") && io("wan").contains("AF_XDP"),
            "{} {}",
            io("lan"),
            io("wan")
        );
        lab.ping("10.2.0.2", 3);
        lab.router = None;
    };
    // The MTU is beyond as many buffers as a frame may have.
    lab.net.ip("a", "link set a0 mtu 40000");
    lab.net.ip("r", "link set lan mtu 40000");
    refused(&lab, "MTU of 40000");
    falls_back(&mut lab);
    lab.net.ip("r", "link set lan mtu 1500");
    // Somebody else's program is there, one that lets everything pass: it has no buffers.
    let pool = evenkeel_ports::FramePool::new(512);
    let small = evenkeel_ports::af_xdp::AfXdpOptions { ring: 64, ..Default::default() };
    let open =
        || evenkeel_ports::af_xdp::AfXdpPort::open_beside("lan", small, pool.umem(), &[], None);
    let other = evenkeel_ports::sys::in_netns(&lab.net.name("r"), open).unwrap().unwrap();
    refused(&lab, "has another XDP program already");
    falls_back(&mut lab);
    drop(other);
    lab.start("");
    lab.ping("10.2.0.2", 3);
}

/// Whether this kernel's veth can be polled or not, packets pass at once, and all is as before.
#[test]
fn busy_polling_begins_and_ends_by_reload_and_holds_nothing_up() {
    let Some(mut lab) = Lab::new("busy polling by reload") else { return };
    let settings = |lab: &Lab| {
        let folder = "/sys/class/net/lan";
        let files = format!("{folder}/napi_defer_hard_irqs {folder}/gro_flush_timeout");
        lab.net.output("r", &format!("cat {files}"))
    };
    let before = settings(&lab);
    let polled =
        |mode: &str| Lab::config(&format!("[router]\nmode = {mode:?}\nbusy_poll = \"1ms\"\n"));
    let io = |lab: &Lab| lab.snapshot().port("lan").unwrap().io.clone();
    lab.start_with(polled("adaptive"));
    for _ in 0..2 {
        for to in ["10.2.0.2", "2001:db8:2::2"] {
            lab.ping(to, 20);
        }
        assert!(io(&lab).contains("busy polling"), "{}", io(&lab));
        lab.reload(&Lab::config("")).unwrap();
        lab.ping("10.2.0.2", 20);
        assert!(!io(&lab).contains("busy polling"), "{}", io(&lab));
        assert_eq!(settings(&lab), before);
        lab.reload(&polled("busy")).unwrap();
    }
    lab.router.take().unwrap().stop().unwrap();
    assert_eq!(settings(&lab), before);
    let left = std::fs::read_dir(lab.runtime.path()).unwrap();
    let is_note = |name: &str| name.starts_with("interrupts") || name.starts_with("offloads");
    assert!(left.flatten().all(|file| !is_note(&file.file_name().to_string_lossy())));
}
