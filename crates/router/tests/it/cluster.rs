//! Forwarders and balancers between memory ports: the whole cluster in one thread, with a switch
//! made of copies.

use std::collections::BTreeMap;

use crate::common::{Udp, assert_conserved, headers, ip, udp};
use evenkeel_config::{Change, ForwarderState, RouterConfig};
use evenkeel_core::Nanos;
use evenkeel_net::fib::{NextHop, Route};
use evenkeel_net::frame::{destination_mac, source_mac};
use evenkeel_net::{MacAddr, PortIndex};
use evenkeel_ports::memory::{MemoryOptions, MemoryPort};
use evenkeel_router::Disciplines;
use evenkeel_router::mirror::decode::KernelNeighbourState;
use evenkeel_router::pipeline::{LinkState, Pipeline, WorkerShares};
use evenkeel_router::snapshot::ClusterSnapshot;

/// A router with one port at the switch.
struct Node {
    pipeline: Pipeline,
    ports: Vec<MemoryPort>,
    outside: MemoryPort,
    mac: MacAddr,
    alive: bool,
    /// Its other workers, if it has any. What the first one would be told of the cluster comes to
    /// the last one.
    others: Vec<Node>,
}

fn hop(link: usize) -> (MacAddr, std::net::IpAddr) {
    (MacAddr([2, 0, 0, 0, 9, link as u8]), ip(&format!("10.7.0.{}", 21 + link)))
}

fn switch_port(text: &str) -> String {
    format!("[[port]]\nname = \"switch\"\ninterface = \"eth0\"\n{text}")
}

/// `extra`: of the cluster; behind `[router]`, of that.
fn forwarder_text(id: u16, extra: &str) -> String {
    let (extra, router) = extra.split_once("[router]").unwrap_or((extra, ""));
    let mut text = format!(
        "[router]\nbuffers = 8192{router}\n[[class]]\nname = \"rest\"\n[[class]]\n\
             name = \"voice\"\nmatch = [{{ dscp = 46 }}]\n\
             [cluster]\nnode = {id}\nmembers = [1, 2, 3]\nport = \"switch\"\nrate = \
             \"10Mbit/s\"\nt_br = \"1ms\"\nlimit = 2000\n\
             key = \"00112233445566778899aabbccddeeff\"\nweight = {{ voice = 3 }}\n{extra}\n"
    );
    for link in 0..3 {
        text += &format!(
            "[[cluster.link]]\nname = \"l{link}\"\nport = \"switch\"\nnext_hops = \
             [\"10.7.0.{}\"]\n",
            21 + link
        );
    }
    text
}

impl Node {
    fn new(text: &str, mac: MacAddr) -> Self {
        let config = RouterConfig::parse(&switch_port(text), "test.toml")
            .unwrap_or_else(|error| panic!("{error}"));
        let mut workers = WorkerShares::for_workers(&config).unwrap().into_iter();
        let mut node = Self::worker(&config, workers.next(), mac);
        node.others = workers.map(|share| Self::worker(&config, Some(share), mac)).collect();
        node
    }

    fn worker(config: &RouterConfig, share: Option<WorkerShares>, mac: MacAddr) -> Self {
        let now = Nanos::from_secs(1);
        let own = Disciplines::default();
        let mut pipeline = Pipeline::for_worker(config, now, own, share).unwrap();
        let options = MemoryOptions { slots: 4096, mtu: 9000 };
        let (port, outside) = MemoryPort::pair(options, ("p", mac.0), ("w", [2, 9, 9, 9, 9, 9]));
        let port_index = PortIndex(0);
        pipeline.set_link(now, port_index, Some(LinkState { mac, mtu: 1500, up: true }));
        for link in 0..3 {
            let (mac, address) = hop(link);
            let prefix = format!("10.{}.0.0/16", 100 + link).parse().unwrap();
            let via = NextHop { port: port_index, gateway: Some(address), weight: 1 };
            pipeline.fib_mut().insert(prefix, Route::via(via, 0));
            pipeline.set_neighbour(
                now,
                port_index,
                address,
                Some(KernelNeighbourState::Reachable(mac)),
            );
        }
        Self { pipeline, ports: vec![port], outside, mac, alive: true, others: Vec::new() }
    }

    /// A frame of the exchange comes to it.
    fn hears(&mut self, frame: &[u8]) -> bool {
        self.others.last_mut().map_or(&mut self.outside, |last| &mut last.outside).inject(frame)
    }

    /// A round of each worker, in any order.
    fn round(&mut self, now: Nanos) {
        let Self { pipeline, ports, others, .. } = self;
        let before = (now.0 / 50_000).is_multiple_of(3);
        others.iter_mut().filter(|_| before).for_each(|other| other.round(now));
        pipeline.round(now, ports);
        for other in others {
            if !before {
                other.round(now);
            }
            assert!(other.outside.take().is_none(), "the first worker sends for all");
        }
    }

    fn assert_conserved(&mut self, now: Nanos) {
        assert_conserved(&self.pipeline.snapshot(now, &mut self.ports));
        self.others.iter_mut().for_each(|other| other.assert_conserved(now));
    }

    fn forwarder(id: u16, extra: &str) -> Self {
        Self::new(&forwarder_text(id, extra), MacAddr([2, 0, 0, 0, 1, id as u8]))
    }

    fn view(&mut self, now: Nanos) -> ClusterSnapshot {
        self.pipeline.snapshot(now, &mut self.ports).cluster.unwrap()
    }

    /// Fills the queues of all links and classes.
    fn load(&mut self, packets: usize) {
        for link in 0..3 {
            for dscp in [0, 46] {
                let macs = (MacAddr([2, 0, 0, 0, 5, 5]), self.mac);
                let to = ip(&format!("10.{}.0.1", 100 + link));
                let frame =
                    udp(macs, ip("192.0.2.1"), to, Udp { dscp, payload: 972, ..Udp::default() });
                // By the workers in turn, of which the first one has no more than the others.
                for n in 0..packets {
                    let workers = self.others.len() + 1;
                    let other = (n % workers).checked_sub(1).map(|at| &mut self.others[at].outside);
                    assert!(other.unwrap_or(&mut self.outside).inject(&frame), "the wire is full");
                }
            }
        }
    }
}

/// Frames that went to next hops: (time, forwarder, link, class).
type Sent = Vec<(Nanos, MacAddr, usize, usize)>;

/// Runs the nodes for `time` in steps of 50 us; `lost` is asked for each copy of a broadcast.
fn run(nodes: &mut [Node], from: Nanos, time: Nanos, mut lost: impl FnMut() -> bool) -> Sent {
    let mut sent = Vec::new();
    let mut now = from;
    while now < from + time {
        now += Nanos::from_micros(50);
        for at in 0..nodes.len() {
            if nodes[at].alive {
                nodes[at].round(now);
            }
            while let Some(frame) = nodes[at].outside.take() {
                let to = destination_mac(&frame).unwrap();
                if to.is_group() {
                    for other in (0..nodes.len()).filter(|other| *other != at) {
                        if nodes[other].alive && !lost() {
                            assert!(nodes[other].hears(&frame));
                        }
                    }
                } else if let Some(link) = (0..3).find(|link| hop(*link).0 == to) {
                    let class = usize::from(headers(&frame).dscp == 46);
                    sent.push((now, source_mac(&frame).unwrap(), link, class));
                }
            }
        }
    }
    for node in nodes.iter_mut().filter(|node| node.alive) {
        node.assert_conserved(now);
    }
    sent
}

fn shares(sent: &Sent, link: usize) -> [usize; 2] {
    [0, 1].map(|class| sent.iter().filter(|(_, _, l, c)| (*l, *c) == (link, class)).count())
}

const START: Nanos = Nanos(1_000_000_000);

fn cluster(extra: &str) -> Vec<Node> {
    let mut nodes: Vec<_> = (1..=3).map(|id| Node::forwarder(id, extra)).collect();
    for node in &mut nodes {
        node.load(400);
    }
    nodes
}

#[test]
fn links_are_full_and_classes_get_their_weights() {
    // Lazy scheduling reckons with 64-byte packets: their overhead is left out of its reckoning. An
    // exchange of 1 ms costs it a sixth here.
    let workers = "[router]\nworkers = 2";
    for (extra, least) in [
        ("variant = \"p-ds\"\nl = 30".to_owned(), 0.97),
        ("variant = \"l-ds\"\nl = 100\noverhead = 0".to_owned(), 0.8),
        ("variant = \"m-ds\"\nl = 30".to_owned(), 0.9),
        (format!("variant = \"p-ds\"\nl = 30\n{workers}"), 0.97),
        (format!("variant = \"p-ds\"\nl = 30\n{}", workers.replace('2', "3")), 0.97),
    ] {
        let mut nodes = cluster(&extra);
        let sent = run(&mut nodes, START, Nanos::from_millis(1_200), || false);
        let begin = sent[0].0 + Nanos::from_millis(50);
        let during = begin..begin + Nanos::from_millis(600);
        let steady: Sent = sent.iter().copied().filter(|(at, ..)| during.contains(at)).collect();
        for link in 0..3 {
            let [rest, voice] = shares(&steady, link);
            assert!(
                (voice as f64 / rest as f64 / 3.0 - 1.0).abs() < 0.12,
                "{extra}: {rest} {voice}"
            );
            // 600 ms at 10 Mbit/s, 1038 bytes each.
            let full = 0.6 * 10e6 / 8.0 / 1038.0;
            let used = (rest + voice) as f64 / full;
            assert!((least..1.02).contains(&used), "{extra}: link {link} used {used}");
        }
        let view = nodes[1].view(START + Nanos::SECOND);
        assert_eq!((view.master, view.in_step, view.present.len()), (Some(1), true, 3));
    }
}

/// Packets per second of 1,038 bytes on links of this rate that were carried of each link, in parts
/// of what it can carry, and voice : rest.
fn carried(sent: &Sent, rates: [f64; 3]) -> [(f64, f64); 3] {
    let begin = sent[0].0 + Nanos::from_millis(50);
    let during = begin..begin + Nanos::from_millis(200);
    let steady: Sent = sent.iter().copied().filter(|(at, ..)| during.contains(at)).collect();
    [0, 1, 2].map(|link| {
        let [rest, voice] = shares(&steady, link).map(|packets| packets as f64);
        let full = 0.2 * rates[link] * 1e6 / 8.0 / 1038.0;
        ((rest + voice) / full, voice / rest)
    })
}

#[test]
fn links_of_different_rates_are_full_and_a_forwarder_serves_several_where_it_can() {
    let nodes = |text: fn(u16) -> String, loads: usize| {
        let node = |id| Node::new(&text(id), MacAddr([2, 0, 0, 0, 1, id as u8]));
        let mut nodes: Vec<Node> = (1..=3).map(node).collect();
        nodes.iter_mut().for_each(|node| node.load(loads));
        nodes
    };
    let rates = |id| {
        let text = forwarder_text(id, "variant = \"p-ds\"\nl = 100");
        text.replace("name = \"l2\"", "name = \"l2\"\nrate = \"40Mbit/s\"")
    };
    let sent = run(&mut nodes(rates, 600), START, Nanos::from_millis(900), || false);
    for (busy, ratio) in carried(&sent, [10.0, 10.0, 40.0]) {
        assert!((0.93..1.02).contains(&busy), "{busy}");
        assert!((ratio / 3.0 - 1.0).abs() < 0.12, "{ratio}");
    }
    // One of three is left.
    let alone =
        |id| forwarder_text(id, "variant = \"p-ds\"\nl = 60\nforwarder_rate = \"30Mbit/s\"");
    let single = |id| forwarder_text(id, "variant = \"p-ds\"\nl = 60");
    for (text, least, most) in [(alone as fn(u16) -> String, 0.93, 1.02), (single, 0.3, 0.34)] {
        let mut nodes = nodes(text, 600);
        nodes[1].alive = false;
        nodes[2].alive = false;
        let sent = run(&mut nodes, START, Nanos::from_millis(1_000), || false);
        let links = carried(&sent, [10.0; 3]);
        let busy = links.iter().map(|(busy, _)| busy).sum::<f64>() / 3.0;
        assert!((least..most).contains(&busy), "{links:?}");
        // One at a time, the links that have the oldest packets are first.
        let shared = links.iter().all(|(_, ratio)| (ratio / 3.0 - 1.0).abs() < 0.12);
        assert!(shared || most < 1.0, "{links:?}");
        // In order of time: what is granted on one link does not hold up another's.
        assert_eq!(nodes[0].view(START + Nanos::SECOND).late, 0);
    }
}

#[test]
fn with_lost_frames_nobody_sends_on_anothers_link() {
    let mut nodes = cluster("variant = \"s-ds\"");
    let mut state = 1_u64;
    let lost = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        state >> 33 < (1 << 31) / 50
    };
    let sent = run(&mut nodes, START, Nanos::from_millis(700), lost);
    let mut last: BTreeMap<usize, (Nanos, MacAddr)> = BTreeMap::new();
    for (at, from, link, _) in &sent {
        if let Some((before, other)) = last.insert(*link, (*at, *from)) {
            // A window takes 0.83 ms, an exchange 1 ms: frames of two cycles are further apart.
            assert!(
                other == *from || at.0 - before.0 > 500_000,
                "two forwarders on link {link} at {at:?}"
            );
        }
    }
    assert!(sent.len() > 800, "{}", sent.len());
    let abstained: u64 = nodes.iter_mut().map(|node| node.view(START).abstained).sum();
    assert!(abstained > 3, "frames were lost: {abstained}");
}

/// L-DS: whoever has begun a burst of voice on link 0 gets no processor for 3 ms (`t_br` is 1 ms).
#[test]
fn a_late_packet_does_not_make_its_whole_burst_free() {
    let mut nodes = cluster("variant = \"l-ds\"\nl = 200\noverhead = 0");
    nodes.iter_mut().for_each(|node| node.load(250));
    let mut sent: Sent = Vec::new();
    let mut now = START;
    let (mut hang, mut last, mut hangs) = ((usize::MAX, START), None, 0);
    // Before its first cycle it waits for three of the longest possible ones, 0.7 s.
    while now < START + Nanos::from_millis(2_000) {
        now += Nanos::from_micros(50);
        for at in 0..nodes.len() {
            if at == hang.0 && now < hang.1 {
                continue;
            }
            let Node { pipeline, ports, .. } = &mut nodes[at];
            pipeline.round(now, ports);
            while let Some(frame) = nodes[at].outside.take() {
                let to = destination_mac(&frame).unwrap();
                if to.is_group() {
                    for other in (0..nodes.len()).filter(|other| *other != at) {
                        assert!(nodes[other].outside.inject(&frame));
                    }
                } else if let Some(link) = (0..3).find(|link| hop(*link).0 == to) {
                    let class = usize::from(headers(&frame).dscp == 46);
                    sent.push((now, source_mac(&frame).unwrap(), link, class));
                    let begins = link == 0 && last.replace((at, class)) != Some((at, class));
                    if begins && class == 1 {
                        (hang, hangs) = ((at, now + Nanos::from_millis(3)), hangs + 1);
                    }
                }
            }
        }
    }
    let late: u64 = nodes.iter_mut().map(|node| node.view(now).late).sum();
    // What was late stays charged, and here it is always voice.
    let [rest, voice] = shares(&sent, 0);
    let ratio = (voice as f64 + late as f64) / rest as f64;
    println!("{hangs} times, {late} late: {voice} : {rest} = {ratio:.2}");
    assert!(hangs > 20 && late > 20, "{hangs} {late}");
    assert!((2.8..3.3).contains(&ratio), "voice had bursts for nothing: {voice} : {rest}");
}

/// L-DS: a forwarder that gets its processor 0.8 ms late (`t_br` is 1 ms) has a window that ends
/// later than the others'. What it still has of it when the next cycle is opened goes before its
/// state does, not after: with that state another one may have the link, and two sent on it.
#[test]
fn what_a_late_window_still_has_leaves_before_the_next_state_does() {
    let mut nodes = cluster("variant = \"l-ds\"\nl = 200\noverhead = 0\nearly_close = true");
    let mut now = START;
    let (mut late_until, mut turn, mut collisions, mut seen) = (START, 0_u64, 0, 0);
    // By node: whether it has sent its state since the others last began.
    let mut stated = [false; 3];
    let mut users: BTreeMap<usize, usize> = BTreeMap::new();
    while now < START + Nanos::from_millis(1_700) {
        now += Nanos::from_micros(50);
        for at in 0..nodes.len() {
            // Node 3 comes 0.8 ms late each time that all states are there.
            if at == 2 && now < late_until {
                continue;
            }
            let Node { pipeline, ports, .. } = &mut nodes[at];
            pipeline.round(now, ports);
            while let Some(frame) = nodes[at].outside.take() {
                let to = destination_mac(&frame).unwrap();
                if to.is_group() {
                    // The first byte of the header is the version, the second 1 for a state.
                    stated[at] |= frame[19] == 1;
                    if stated == [true; 3] {
                        (stated, turn) = ([false; 3], turn + 1);
                        users.clear();
                        if turn % 2 == 0 {
                            late_until = now + Nanos::from_micros(800);
                        }
                    }
                    for other in (0..nodes.len()).filter(|other| *other != at) {
                        assert!(nodes[other].outside.inject(&frame));
                    }
                } else if let Some(link) = (0..3).find(|link| hop(*link).0 == to) {
                    seen += 1;
                    // Once it has said its next state, what it sends is of the next cycle.
                    if !stated[at] {
                        collisions += usize::from(*users.entry(link).or_insert(at) != at);
                    } else {
                        collisions += 1;
                    }
                }
            }
        }
    }
    println!("{turn} cycles, {seen} packets, {collisions} where another may send");
    assert!(turn > 20 && seen > 500, "{turn} {seen}");
    assert_eq!(collisions, 0);
    assert_eq!(nodes.iter_mut().map(|node| node.view(now).late).sum::<u64>(), 0);
}

/// A process that is stopped for so long that balancers have given its flows to others comes back
/// with queues that hold what they could not send: of one class only, which then takes a forwarder.
#[test]
fn what_a_stopped_forwarder_had_kept_does_not_take_the_shares_of_the_living() {
    let mut nodes = cluster("l = 10");
    run(&mut nodes, START, Nanos::from_millis(200), || false);
    let kept = |node: &mut Node, now| -> u64 {
        node.view(now).links.iter().flat_map(|link| &link.classes).map(|of| of.queued_packets).sum()
    };
    let begin = START + Nanos::from_millis(200);
    assert!(kept(&mut nodes[1], begin) > 500);
    // Stopped, not dead: what is sent to it waits at its port.
    nodes[1].alive = false;
    run(&mut nodes, begin, Nanos::from_millis(300), || false);
    nodes[1].alive = true;
    let back = begin + Nanos::from_millis(300);
    run(&mut nodes, back, Nanos::from_millis(2), || false);
    let now = back + Nanos::from_millis(2);
    assert_eq!(kept(&mut nodes[1], now), 0);
    let view = nodes[1].view(now);
    let dropped = |class: usize| view.links[0].classes[class].dropped["stopped"];
    assert!(dropped(0) > 50, "{view:?}");
    let mut news = Vec::new();
    nodes[1].pipeline.drain_news(|text| news.push(text.to_owned()));
    let said = news.iter().filter(|text| text.contains("stood still for 30")).count();
    assert_eq!(said, 1, "{news:?}");
    // A pause that balancers do not act upon costs nothing.
    nodes[2].alive = false;
    let before = kept(&mut nodes[2], now);
    run(&mut nodes, now, Nanos::from_millis(30), || false);
    nodes[2].alive = true;
    run(&mut nodes, now + Nanos::from_millis(30), Nanos::from_millis(2), || false);
    let after = kept(&mut nodes[2], now + Nanos::from_millis(32));
    assert!(after > 0 && after + 20 > before, "{before} {after}");
}

#[test]
fn another_takes_over_from_a_dead_master() {
    let mut nodes = cluster("l = 10");
    run(&mut nodes, START, Nanos::from_millis(200), || false);
    nodes[0].alive = false;
    let begin = START + Nanos::from_millis(200);
    let sent = run(&mut nodes, begin, Nanos::from_millis(300), || false);
    let now = begin + Nanos::from_millis(300);
    for node in &mut nodes[1..] {
        let view = node.view(now);
        assert_eq!((view.master, view.present.as_slice()), (Some(2), [2, 3].as_slice()));
        let mut news = Vec::new();
        node.pipeline.drain_news(|text| news.push(text.to_owned()));
        assert!(news.iter().any(|text| text.contains("node 1 is silent")), "{news:?}");
    }
    let late = sent.iter().filter(|(at, ..)| *at > begin + Nanos::from_millis(150)).count();
    assert!(late > 200, "service resumed: {late}");
}

#[test]
fn frames_of_strangers_and_old_ones_are_counted_and_change_nothing() {
    let mut nodes = cluster("l = 10");
    let mut now = START;
    let mut old = Vec::new();
    // What node 1 says is noted, and said again by somebody else later.
    for _ in 0..2_000 {
        now += Nanos::from_micros(50);
        for at in 0..3 {
            let Node { pipeline, ports, .. } = &mut nodes[at];
            pipeline.round(now, ports);
            while let Some(frame) = nodes[at].outside.take() {
                if destination_mac(&frame).unwrap().is_group() {
                    if at == 0 && old.len() < 5 {
                        old.push(frame.clone());
                    }
                    (0..3).filter(|other| *other != at).for_each(|other| {
                        nodes[other].outside.inject(&frame);
                    });
                }
            }
        }
    }
    let mut forged = old[0].clone();
    let last = forged.len() - 1;
    forged[last] ^= 1;
    for frame in old.iter().chain([&forged]) {
        nodes[1].outside.inject(frame);
    }
    run(&mut nodes, now, Nanos::from_millis(50), || false);
    let view = nodes[1].view(now);
    assert_eq!(view.refused.get("replayed"), Some(&5), "{:?}", view.refused);
    assert_eq!(view.refused.get("forged"), Some(&1), "{:?}", view.refused);
    assert!(view.in_step && view.out_of_step == 0, "{view:?}");
}

#[test]
fn a_node_with_another_configuration_is_refused_and_named() {
    let mut nodes =
        vec![Node::forwarder(1, ""), Node::forwarder(2, ""), Node::forwarder(3, "seed = 7")];
    run(&mut nodes, START, Nanos::from_millis(100), || false);
    let mut news = Vec::new();
    nodes[0].pipeline.drain_news(|text| news.push(text.to_owned()));
    assert!(news.iter().any(|text| text.contains("node 3 has another configuration")), "{news:?}");
    let view = nodes[0].view(START);
    assert!(view.refused["other_configuration"] > 0);
    assert_eq!(view.present, [1, 2]);
}

/// The same file with other settings, read again by a running forwarder.
fn reload(node: &mut Node, id: u16, weight: u32, now: Nanos) -> Result<(), String> {
    let router = format!("[router]\nworkers = {}", node.others.len() + 1);
    let text = forwarder_text(id, &format!("l = 10\n{router}"));
    let text = text.replace("voice = 3", &format!("voice = {weight}"));
    let config = RouterConfig::parse(&switch_port(&text), "test.toml").unwrap();
    for pipeline in node.others.iter_mut().map(|other| &mut other.pipeline) {
        pipeline.reload(now, &config).map_err(|error| error.to_string())?;
    }
    node.pipeline.reload(now, &config).map_err(|error| error.to_string())
}

#[test]
fn weights_change_when_all_have_read_them() {
    for workers in 1..=2 {
        weights_change(&format!("l = 10\n[router]\nworkers = {workers}"));
    }
}

fn weights_change(extra: &str) {
    let mut nodes = cluster(extra);
    let mut now = START;
    let mut go = |nodes: &mut Vec<Node>, millis: u64| {
        let sent = run(nodes, now, Nanos::from_millis(millis), || false);
        now += Nanos::from_millis(millis);
        (now, sent.len())
    };
    let (at, _) = go(&mut nodes, 200);
    let before = nodes[0].view(at).configuration;
    for (index, node) in nodes.iter_mut().enumerate().take(2) {
        reload(node, 1 + index as u16, 1, at).unwrap();
    }
    let (at, _) = go(&mut nodes, 50);
    let view = nodes[0].view(at);
    assert_eq!(
        (view.configuration.as_str(), view.waits_for.as_slice()),
        (before.as_str(), [3].as_slice())
    );
    reload(&mut nodes[2], 3, 1, at).unwrap();
    let (at, _) = go(&mut nodes, 100);
    let granted = |nodes: &mut Vec<Node>, at| {
        let mut sums = [0; 2];
        for node in nodes {
            for link in node.view(at).links {
                sums.iter_mut()
                    .zip(&link.classes)
                    .for_each(|(sum, class)| *sum += class.granted_bytes);
            }
        }
        sums
    };
    let middle = granted(&mut nodes, at);
    let (at, sent) = go(&mut nodes, 400);
    let end = granted(&mut nodes, at);
    let [rest, voice] = [end[0] - middle[0], end[1] - middle[1]];
    assert!(
        sent > 900 && rest.abs_diff(voice) * 50 < rest,
        "{sent} sent: {rest} to {voice}, were 1 to 3"
    );
    for node in &mut nodes {
        let view = node.view(at);
        assert!(
            view.configuration != before
                && view.next_configuration.is_none()
                && view.out_of_step == 0
        );
        node.assert_conserved(at);
    }
    let error = reload(&mut nodes[0], 2, 1, at).unwrap_err();
    assert!(
        error.starts_with("cluster.node cannot change") && error.contains("restart"),
        "{error}"
    );
}

fn balancer(workers: u16, extra: &str) -> Node {
    let mut text =
        format!("[router]\nworkers = {workers}\n[balancer]\nport = \"switch\"\n{extra}\n");
    for id in 1..=3 {
        text += &format!("[[balancer.forwarder]]\nid = {id}\nmac = \"02:00:00:00:01:0{id}\"\n");
    }
    Node::new(&text, MacAddr([2, 0, 0, 0, 3, 1]))
}

/// What forwarders broadcast comes to the last worker; the flows come to all.
#[test]
fn all_workers_of_a_balancer_give_nothing_to_a_forwarder_that_is_silent() {
    for workers in 1..=3 {
        let mut nodes: Vec<_> = (1..=3).map(|id| Node::forwarder(id, "l = 10")).collect();
        nodes.push(balancer(workers, "key = \"00112233445566778899aabbccddeeff\""));
        let mut now = START;
        let mut go = |nodes: &mut [Node], millis: u64| {
            let time = Nanos::from_millis(millis);
            run(nodes, now, time, || false);
            now += time;
            now
        };
        // Flows of one packet to each worker, and how many of them each forwarder gets.
        let flows = |nodes: &mut [Node], at: Nanos, first: u16| {
            let node = &mut nodes[3];
            let macs = (MacAddr([2, 0, 0, 0, 5, 5]), node.mac);
            let mut all = Vec::new();
            for worker in 0..=node.others.len() {
                let Node { pipeline, ports, outside, .. } = match worker.checked_sub(1) {
                    Some(at) => &mut node.others[at],
                    None => &mut *node,
                };
                for port in first..first + 200 {
                    let what = Udp { port, ..Udp::default() };
                    assert!(outside.inject(&udp(macs, ip("192.0.2.1"), ip("10.100.0.1"), what)));
                }
                for n in 1..4 {
                    pipeline.round(at + Nanos(n), ports);
                }
                let mut to = BTreeMap::<u8, usize>::new();
                while let Some(frame) = outside.take() {
                    let mac = destination_mac(&frame).unwrap();
                    if !mac.is_group() {
                        *to.entry(mac.0[5]).or_default() += 1;
                    }
                }
                assert_eq!(to.values().sum::<usize>(), 200, "worker {worker}: {to:?}");
                all.push(to);
            }
            all
        };
        let at = go(&mut nodes, 300);
        let before = flows(&mut nodes, at, 1);
        assert!(before.iter().all(|to| to.len() == 3 && to == &before[0]), "{before:?}");
        nodes[0].alive = false;
        let at = go(&mut nodes, 400);
        let after = flows(&mut nodes, at, 1);
        assert!(after.iter().all(|to| to.len() == 2 && to == &after[0]), "{workers}: {after:?}");
        nodes[0].alive = true;
        let at = go(&mut nodes, 4_000);
        let new = flows(&mut nodes, at, 1_001);
        assert!(new.iter().all(|to| to.len() == 3 && to == &new[0]), "{workers}: {new:?}");
    }
}

#[test]
fn a_balancer_changes_nothing_but_the_address_and_keeps_flows() {
    let mut balancer = balancer(1, "");
    let mut now = START;
    let mut flows = |balancer: &mut Node, ports: std::ops::Range<u16>| -> Vec<MacAddr> {
        let macs = (MacAddr([2, 0, 0, 0, 5, 5]), balancer.mac);
        for port in ports {
            let frame =
                udp(macs, ip("192.0.2.1"), ip("10.100.0.1"), Udp { port, ..Udp::default() });
            assert!(balancer.outside.inject(&frame));
        }
        let mut to = Vec::new();
        for _ in 0..4 {
            now += Nanos::from_millis(1);
            let Node { pipeline, ports, .. } = balancer;
            pipeline.round(now, ports);
        }
        while let Some(frame) = balancer.outside.take() {
            assert_eq!(headers(&frame).ttl, 64, "the forwarder decrements it");
            assert_eq!(source_mac(&frame), Some(balancer.mac));
            to.push(destination_mac(&frame).unwrap());
        }
        to
    };
    let third = MacAddr([2, 0, 0, 0, 1, 3]);
    let before = flows(&mut balancer, 1..301);
    assert_eq!(before.len(), 300);
    let on_third = before.iter().filter(|mac| **mac == third).count();
    assert!((60..140).contains(&on_third), "{on_third} of 300");

    balancer
        .pipeline
        .change(Nanos::from_secs(2), &Change::Forwarder { id: 3, state: ForwarderState::Draining })
        .unwrap();
    assert_eq!(flows(&mut balancer, 1..301), before, "established flows stay");
    assert!(!flows(&mut balancer, 301..601).contains(&third), "new ones go elsewhere");
    balancer
        .pipeline
        .change(Nanos::from_secs(2), &Change::Forwarder { id: 3, state: ForwarderState::Out })
        .unwrap();
    let moved = flows(&mut balancer, 1..301);
    let changed = moved.iter().zip(&before).filter(|(now, was)| now != was).count();
    assert_eq!(changed, on_third, "only its own flows move");
    balancer
        .pipeline
        .change(Nanos::from_secs(2), &Change::Forwarder { id: 3, state: ForwarderState::Active })
        .unwrap();
    assert_eq!(flows(&mut balancer, 1..301), moved, "and none moves back");

    let snapshot = balancer.pipeline.snapshot(START + Nanos::SECOND, &mut balancer.ports);
    assert_conserved(&snapshot);
    assert_eq!(snapshot.balancer.unwrap().moved, on_third as u64);
    let error = balancer
        .pipeline
        .change(Nanos::from_secs(2), &Change::Forwarder { id: 4, state: ForwarderState::Out })
        .unwrap_err()
        .to_string();
    assert!(error.contains("no forwarder 4: there are 1, 2, 3"), "{error}");
}
