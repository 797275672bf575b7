//! Each rule on a machine that breaks it, and on one that does not.

use std::time::Duration;

use evenkeel_core::BitRate;
use evenkeel_doctor::facts::Interrupt;
use evenkeel_doctor::second::Traffic;
use evenkeel_doctor::{Facts, Finding, Level, Line, Machine, Nic, Second, judge};
use evenkeel_ports::survey::{Qdisc, Rings, Survey};

/// A machine with nothing to say against it.
fn facts() -> Facts {
    let machine = Machine {
        kernel: Some((6, 12)),
        clock: Some("tsc".into()),
        processors: 4,
        available: Some(4 << 30),
        chains: Some(Ok(Vec::new())),
        ipsec: Some(0),
        forwards: true,
        neighbours: Some((3, 1_024)),
        ..Machine::default()
    };
    let survey = Survey {
        driver: Some("igc".into()),
        rings: Some(Rings { receive: (256, 4_096), transmit: (128, 4_096) }),
        queues: Some((4, 4)),
        qdiscs: vec![Qdisc { kind: "mq".into(), root: true }],
        ..Survey::default()
    };
    let interrupts =
        (0..4).map(|cpu| Interrupt { number: 40 + cpu, to: Some(cpu.to_string()) }).collect();
    let nic = Nic {
        name: "eth0".into(),
        survey,
        state: Some("up".into()),
        speed: Some(1_000_000_000),
        duplex: Some("full".into()),
        interrupts,
        ..Nic::default()
    };
    Facts { machine, nics: vec![nic], missing: Vec::new() }
}

fn second() -> Second {
    Second {
        late: Some([20, 90, 300].map(Duration::from_micros)),
        stolen: Some(0),
        nics: vec![Traffic { name: "eth0".into(), bits: (1_000_000, 0), lost: (0, 0) }],
        ..Second::default()
    }
}

fn line() -> Line {
    let rate = Some(BitRate(900_000_000));
    Line { interface: "eth0".into(), rate, weights: None, inline: false }
}

/// The finding about a topic, if it is not fine.
fn found(facts: &Facts, second: &Second, line: &Line, topic: &str) -> Option<Finding> {
    let all = judge(facts, second, std::slice::from_ref(line));
    let mut about = all.into_iter().filter(|finding| finding.topic == topic);
    let finding = about.next().unwrap_or_else(|| panic!("nothing is said about {topic}"));
    Some(finding).filter(|finding| finding.level != Level::Fine)
}

fn machine(change: impl FnOnce(&mut Machine), topic: &str) -> Option<Finding> {
    let mut facts = facts();
    change(&mut facts.machine);
    found(&facts, &second(), &line(), topic)
}

fn nic(change: impl FnOnce(&mut Nic), line: &Line, topic: &str) -> Option<Finding> {
    let mut facts = facts();
    change(&mut facts.nics[0]);
    found(&facts, &second(), line, topic)
}

#[track_caller]
fn says(finding: Option<Finding>, level: Level, words: &[&str]) {
    let finding = finding.expect("it is found");
    assert_eq!(finding.level, level, "{finding:?}");
    let text = format!("{} -> {}", finding.what, finding.remedy.as_deref().unwrap_or_default());
    for word in words {
        assert!(text.contains(word), "{word:?} is not in {text}");
    }
    assert_eq!(finding.remedy.is_some(), level >= Level::Mind, "a remedy for what is to be done");
}

#[test]
fn a_good_machine_has_nothing_but_fine_findings() {
    let all = judge(&facts(), &second(), &[line()]);
    assert!(all.len() >= 15, "{}", all.len());
    let not_fine: Vec<_> = all.iter().filter(|finding| finding.level != Level::Fine).collect();
    assert!(not_fine.is_empty(), "{not_fine:?}");
}

/// Q >= R * w_max / sum(w), of "How Unfair can WFQ be?": 128 slots and weights of 10 : 1 need 117.
#[test]
fn weights_above_an_unpaced_ring_are_judged_by_the_rule_of_how_unfair() {
    let weights = |limit| Line { rate: None, weights: Some((1_000, 1_100, limit)), ..line() };
    says(nic(|_| {}, &weights(116), "ring below"), Level::Bad, &["116", "117", "limit = 117"]);
    assert_eq!(nic(|_| {}, &weights(117), "ring below"), None);
    // What BQL lets in is what one refill takes.
    let held = |nic: &mut Nic| nic.bytes_below = vec![64 * 1_538];
    assert_eq!(nic(held, &weights(59), "ring below"), None);
    says(nic(held, &weights(58), "ring below"), Level::Bad, &["BQL lets in 64", "59"]);
    // With a rate below the wire's it stays empty.
    let paced = Line { rate: Some(BitRate(9_000_000)), ..weights(2) };
    assert_eq!(nic(|_| {}, &paced, "ring below"), None);
    // Nobody said what is to run: 10 to 1.
    let none = Line { interface: "eth9".into(), ..line() };
    says(nic(|_| {}, &none, "ring below"), Level::Mind, &["117", "ethtool -G eth0 tx 64"]);
}

#[test]
fn a_ring_that_nobody_knows_is_unseen_and_a_virtual_interface_has_none() {
    let unpaced = Line { rate: None, ..line() };
    let driver = |name: &'static str| {
        move |nic: &mut Nic| (nic.survey.rings, nic.survey.driver) = (None, Some(name.into()))
    };
    says(nic(driver("virtio_net"), &unpaced, "ring below"), Level::Unseen, &["does not say"]);
    assert_eq!(nic(driver("veth"), &unpaced, "ring below"), None);
}

#[test]
fn what_keeps_a_wire_from_being_shaped_is_found() {
    let at = |rate| Line { rate: Some(BitRate(rate)), ..line() };
    says(nic(|_| {}, &at(1_000_000_000), "rate"), Level::Bad, &["1Gbit/s", "980Mbit/s"]);
    says(nic(|nic| nic.duplex = Some("half".into()), &line(), "wire"), Level::Bad, &["autoneg"]);
    says(nic(|nic| nic.state = Some("down".into()), &line(), "wire"), Level::Mind, &["ip link"]);
    let htb = |nic: &mut Nic| nic.survey.qdiscs[0].kind = "htb".into();
    says(nic(htb, &line(), "other queues"), Level::Bad, &["tc qdisc del dev eth0 root"]);
    let lro = |nic: &mut Nic| nic.survey.super_frames = vec!["rx-lro".into()];
    says(nic(lro, &line(), "offloads"), Level::Mind, &["lro off"]);
    let gro = |nic: &mut Nic| nic.survey.super_frames = vec!["rx-gro".into()];
    assert_eq!(nic(gro, &line(), "offloads"), None);
    let xdp = |nic: &mut Nic| nic.survey.xdp = true;
    says(nic(xdp, &line(), "XDP"), Level::Mind, &["xdp off"]);
    let bridge = |nic: &mut Nic| nic.survey.member_of = Some("bridge".into());
    says(nic(bridge, &line(), "member of a bridge"), Level::Mind, &["attach = \"bridge\""]);
    let one = |nic: &mut Nic| nic.interrupts.truncate(1);
    says(nic(one, &line(), "interrupts"), Level::Mind, &["processor 0", "cpus = [1]"]);
    says(nic(|nic| nic.interrupts.clear(), &line(), "interrupts"), Level::Unseen, &[]);
}

#[test]
fn an_mtu_that_af_xdp_lacks_is_found() {
    let at = |kernel, mtu| {
        let mut facts = facts();
        facts.machine.kernel = Some(kernel);
        facts.nics[0].mtu = Some(mtu);
        facts
    };
    let found = |facts| found(&facts, &second(), &line(), "MTU");
    let remedy = ["1774", "3822", "newer kernel", "packet sockets"];
    says(found(at((6, 5), 1_775)), Level::Mind, &remedy);
    assert_eq!(found(at((6, 6), 9_000)), None);
    let all = judge(&at((6, 5), 1_774), &second(), &[line()]);
    assert!(all.iter().all(|finding| finding.topic != "MTU"), "every kernel has those");
}

#[test]
fn what_the_machine_does_to_shaping_is_found() {
    says(machine(|m| m.kernel = Some((6, 1)), "kernel"), Level::Mind, &["6.1", "6.6"]);
    says(machine(|m| m.kernel = None, "kernel"), Level::Unseen, &[]);
    says(machine(|m| m.clock = Some("hpet".into()), "clock"), Level::Mind, &["clocksource=tsc"]);
    says(machine(|m| m.lacks = vec!["CAP_BPF"], "privileges"), Level::Mind, &["CAP_BPF"]);
    says(machine(|m| m.locked = Some(8 << 20), "locked memory"), Level::Mind, &["LimitMEMLOCK"]);
    says(machine(|m| m.governor = Some("powersave".into()), "processors"), Level::Mind, &[]);
    says(machine(|m| m.neighbours = Some((800, 1_024)), "neighbours"), Level::Bad, &["8192"]);
    says(machine(|m| m.connections = Some((9, 10)), "connections"), Level::Mind, &["=20"]);
    says(machine(|m| m.available = Some(1 << 20), "memory"), Level::Mind, &["buffers"]);
    says(machine(|m| m.read_only = vec!["/run/evenkeel"], "file systems"), Level::Mind, &["tmpfs"]);
    says(machine(|m| m.forwards = false, "forwarding"), Level::Mind, &["ip_forward=1"]);
}

#[test]
fn a_firewall_matters_where_packets_are_routed_past_it() {
    let rules = |machine: &mut Machine| machine.chains = Some(Ok(vec!["table ip nat".into()]));
    says(machine(rules, "firewall and NAT"), Level::Mind, &["table ip nat", "inline", "bypass"]);
    let mut kept = facts();
    rules(&mut kept.machine);
    let inline = Line { inline: true, ..line() };
    assert_eq!(found(&kept, &second(), &inline, "firewall and NAT"), None);
    let refused = |machine: &mut Machine| machine.chains = Some(Err("not permitted".into()));
    says(machine(refused, "firewall and NAT"), Level::Unseen, &["not permitted"]);
}

#[test]
fn what_a_second_showed_is_judged() {
    let with = |change: fn(&mut Second), topic| {
        let mut second = second();
        change(&mut second);
        found(&facts(), &second, &line(), topic)
    };
    let late = |second: &mut Second| {
        second.late = Some([50, 900, 4_000].map(Duration::from_micros));
    };
    says(with(late, "wake-ups"), Level::Mind, &["900 us", "realtime"]);
    says(with(|second| second.late = None, "wake-ups"), Level::Unseen, &[]);
    says(with(|second| second.backlog_drops = 3, "backlog"), Level::Mind, &["3 packets"]);
    says(with(|second| second.squeezed = 3, "backlog"), Level::Mind, &["netdev_budget"]);
    says(with(|second| second.nics[0].lost = (2, 5), "traffic"), Level::Mind, &["2 frames", "5"]);
    let mut guest = facts();
    guest.machine.hypervisor = Some("QEMU".into());
    assert_eq!(found(&guest, &second(), &line(), "virtual machine"), None);
    let stolen = Second { stolen: Some(123), ..second() };
    says(found(&guest, &stolen, &line(), "virtual machine"), Level::Mind, &["QEMU", "12.3 %"]);
}

#[test]
fn an_interface_that_is_not_there_is_named_with_those_that_are() {
    let mut facts = facts();
    facts.missing = vec![("wan7".into(), vec!["eth0".into(), "lo".into()])];
    let found = judge(&facts, &second(), &[]).pop();
    says(found, Level::Bad, &["eth0"]);
}
