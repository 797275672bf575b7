//! The guard between namespaces, with a kernel that forwards. Needs root.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::process::{Child, Command, Stdio};

use crate::common::{self, Pulse, TestNet, available, beating, eventually, inside, routed};
use evenkeel_core::Nanos;
use evenkeel_netns::testing::try_run;
use evenkeel_ports::af_packet::{AfPacketOptions, AfPacketPort};
use evenkeel_ports::guard::{Guard, GuardKind};
use evenkeel_ports::heartbeat::Heartbeat;
use evenkeel_ports::sys::spawn_in_netns;
use evenkeel_ports::{FramePool, Port};

fn local() -> Vec<IpAddr> {
    ["10.77.1.1", "10.77.2.1", "10.77.1.255", "10.77.2.255", "fd77:1::1", "fd77:2::1"]
        .map(|text| text.parse().unwrap())
        .to_vec()
}

fn pings(lab: &TestNet, to: &str) -> bool {
    common::pings(lab, "a", to)
}

fn reaches(lab: &TestNet, to: &str) -> bool {
    common::reaches(lab, "a", to)
}

/// Neighbours known, so that one lost ping means what it says.
fn warm_up(lab: &TestNet) {
    for to in ["10.77.2.2", "fd77:2::2"] {
        eventually("the kernel forwarding", || pings(lab, to).then_some(()));
    }
}

fn guards(lab: &TestNet, kind: GuardKind, heart: &Heartbeat) -> Vec<Guard> {
    inside(lab, "r", || {
        ["ra", "rb"].map(|name| Guard::attach(name, kind, &local(), heart).unwrap()).into()
    })
}

#[test]
fn while_the_guard_lives_the_kernel_answers_but_does_not_forward() {
    if !available("guard") {
        return;
    }
    let lab = routed();
    warm_up(&lab);
    for kind in [GuardKind::Link, GuardKind::Filter] {
        let (heart, _pulse) = beating(2000);
        let guards = guards(&lab, kind, &heart);
        assert!(guards.iter().all(|guard| guard.kind() == kind));
        for to in ["10.77.1.1", "10.77.2.1", "fd77:1::1", "fd77:2::1"] {
            assert!(reaches(&lab, to), "{kind:?}: the router itself answers at {to}");
        }
        // Neighbour discovery is for the router itself, link-local addresses and multicast too.
        lab.ip("a", "neigh flush dev va");
        assert!(reaches(&lab, "10.77.1.1") && reaches(&lab, "fd77:1::1"));
        for (to, count) in [("10.77.2.2", 1), ("fd77:2::2", 2)] {
            assert!(!pings(&lab, to), "{kind:?}: nothing is forwarded to {to}");
            assert_eq!(guards[0].dropped(), count);
        }
        drop(guards);
        assert!(reaches(&lab, "10.77.2.2"), "{kind:?}: forwarding goes on afterwards");
        assert!(reaches(&lab, "fd77:2::2"));
        let left = lab.output("r", "tc qdisc show dev ra");
        assert!(!left.contains("clsact"), "{kind:?} leaves nothing behind: {left}");
    }
}

/// A link knew nothing of a process that hangs: nobody forwarded for as long as that took.
#[test]
fn a_router_that_hangs_is_passed_by_and_takes_over_again() {
    if !available("guard of a router that hangs") {
        return;
    }
    let lab = routed();
    warm_up(&lab);
    for kind in [GuardKind::Link, GuardKind::Filter] {
        let heart = Heartbeat::new(Nanos::from_millis(500)).unwrap();
        let mut pulse = Pulse::of(&heart);
        let _guards = guards(&lab, kind, &heart);
        for _ in 0..2 {
            eventually("the router is there", || (!pings(&lab, "10.77.2.2")).then_some(()));
            drop(pulse);
            eventually("the kernel forwarding", || pings(&lab, "10.77.2.2").then_some(()));
            pulse = Pulse::of(&heart);
        }
    }
}

#[test]
fn a_new_address_is_local_at_once_and_an_old_one_no_longer() {
    if !available("guard's addresses") {
        return;
    }
    let lab = routed();
    warm_up(&lab);
    let (heart, _pulse) = beating(2000);
    let mut guards = guards(&lab, GuardKind::Auto, &heart);
    lab.ip("r", "addr add 10.77.3.1/32 dev lo");
    assert!(!pings(&lab, "10.77.3.1"));
    let mut more = local();
    more.push("10.77.3.1".parse().unwrap());
    guards[0].set_local(&more).unwrap();
    assert!(reaches(&lab, "10.77.3.1"));
    guards[0].set_local(&local()).unwrap();
    assert!(!pings(&lab, "10.77.3.1") && reaches(&lab, "10.77.1.1"));
    // Others whose last four bytes are those of a local address are not local for that.
    let alike = ["fd77:9::10.77.2.2", "0.0.0.2"].map(|text| text.parse().unwrap());
    guards[0].set_local(&[local(), alike.into()].concat()).unwrap();
    assert!(!pings(&lab, "10.77.2.2") && !pings(&lab, "fd77:2::2"));
    assert!(reaches(&lab, "10.77.1.1") && reaches(&lab, "fd77:1::1"));
    let many: Vec<IpAddr> = (0..5000u32).map(|i| IpAddr::from(i.to_be_bytes())).collect();
    assert!(guards[0].set_local(&many).unwrap_err().to_string().contains("0 to 4096"));
    assert!(reaches(&lab, "10.77.1.1"), "a refused set changes nothing");
    // A full set can be exchanged for another full one.
    guards[0].set_local(&many[..4096]).unwrap();
    guards[0].set_local(&many[904..]).unwrap();
    guards[0].set_local(&local()).unwrap();
    assert!(reaches(&lab, "10.77.1.1"));
}

/// An IPv4 or IPv6 frame behind some tags.
fn frame(to: [u8; 6], tags: &[[u8; 4]], destination: IpAddr) -> Vec<u8> {
    let mut frame = Vec::from(to);
    frame.extend([2, 0, 0, 0, 0, 1]);
    frame.extend(tags.iter().flatten());
    match destination {
        IpAddr::V4(v4) => {
            frame.extend([8, 0, 0x45, 0, 0, 20, 0, 0, 0, 0, 64, 253, 0, 0, 10, 77, 1, 2]);
            frame.extend(v4.octets());
        }
        IpAddr::V6(v6) => {
            frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 0, 59, 64]);
            frame.extend([0xfd, 0x77, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2]);
            frame.extend(v6.octets());
        }
    }
    frame.resize(frame.len().max(60), 0);
    frame
}

#[test]
fn the_guard_looks_behind_one_tag_and_lets_pass_what_is_not_transit() {
    if !available("guard's rules") {
        return;
    }
    let lab = routed();
    let mut port =
        inside(&lab, "a", || AfPacketPort::open("va", AfPacketOptions::default())).unwrap();
    let router =
        inside(&lab, "r", || AfPacketPort::open("ra", AfPacketOptions::default()).unwrap().mac());
    let broadcast = [0xff; 6];
    let priority = [0x81, 0x00, 0xa0, 0x00];
    let vlan = [0x81, 0x00, 0x00, 0x05];
    let service = [0x88, 0xa8, 0x00, 0x06];
    // Station, tags, destination, how many are dropped.
    type Case<'a> = ([u8; 6], &'a [[u8; 4]], &'a str, u64);
    let cases: &[Case<'_>] = &[
        (router, &[], "10.77.2.2", 1),
        // The frames of a VLAN are for its interface here, or for nobody.
        (router, &[vlan], "10.77.2.2", 0),
        (router, &[service], "10.77.2.2", 0),
        (router, &[service, vlan], "10.77.2.2", 0),
        (router, &[priority, vlan], "10.77.2.2", 0),
        (router, &[priority], "10.77.2.2", 1),
        (router, &[priority], "fd77:2::2", 1),
        (router, &[priority], "10.77.1.1", 0),
        (router, &[vlan, vlan, vlan], "10.77.2.2", 0),
        (router, &[], "fd77:2::2", 1),
        (router, &[vlan], "fd77:2::2", 0),
        (router, &[], "10.77.1.1", 0),
        (router, &[vlan], "10.77.1.1", 0),
        (router, &[], "10.77.2.255", 0),
        (router, &[], "fd77:2::1", 0),
        (router, &[], "224.0.0.5", 0),
        (router, &[], "239.255.255.255", 0),
        (router, &[], "240.0.0.1", 1),
        (router, &[], "255.255.255.255", 0),
        (router, &[], "255.255.255.254", 1),
        (router, &[], "ff02::5", 0),
        (router, &[], "fe80::1234", 0),
        (router, &[], "febf::1", 0),
        (router, &[], "fec0::1", 1),
        (broadcast, &[], "10.77.2.2", 0),
        ([2, 9, 9, 9, 9, 9], &[], "10.77.2.2", 0),
    ];
    let mut pool = FramePool::new(4);
    for kind in [GuardKind::Link, GuardKind::Filter] {
        let (heart, _pulse) = beating(2000);
        let guard = inside(&lab, "r", || Guard::attach("ra", kind, &local(), &heart).unwrap());
        for (to, tags, destination, expected) in cases {
            let bytes = frame(*to, tags, destination.parse().unwrap());
            let mut frames = VecDeque::from([pool.alloc_from(&bytes).unwrap()]);
            let before = guard.dropped();
            // On a veth pair the far end has treated the frame when this returns, or very soon
            // after.
            assert_eq!(port.tx_burst(&mut pool, &mut frames), 1);
            let what = format!("{kind:?}: {destination} behind {} tags to {to:x?}", tags.len());
            if *expected > 0 {
                eventually(&what, || (guard.dropped() - before == *expected).then_some(()));
            } else {
                std::thread::sleep(std::time::Duration::from_millis(10));
                assert_eq!(guard.dropped(), before, "{what}");
            }
        }
    }
}

/// Not a test of its own: what the test below starts as a process and kills.
#[test]
fn helper_that_holds_guards() {
    let Ok(kind) = std::env::var("EVENKEEL_TEST_HOLD_GUARDS") else { return };
    let kind = if kind == "link" { GuardKind::Link } else { GuardKind::Filter };
    let (heart, _pulse) = beating(1000);
    let _guards = ["ra", "rb"].map(|name| Guard::attach(name, kind, &local(), &heart).unwrap());
    // Standard output belongs to the test harness until the process ends.
    eprintln!("holding");
    loop {
        std::thread::sleep(std::time::Duration::from_secs(1));
    }
}

/// A process that is killed when its owner is dropped.
struct Holder(Child);

impl Holder {
    fn start(lab: &TestNet, kind: &str) -> Self {
        use std::io::BufRead;
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", "guard::helper_that_holds_guards", "--nocapture"])
            .env("EVENKEEL_TEST_HOLD_GUARDS", kind)
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let child = spawn_in_netns(&mut command, &lab.name("r")).unwrap().spawn().unwrap();
        let mut holder = Self(child);
        let lines = std::io::BufReader::new(holder.0.stderr.take().unwrap()).lines();
        assert!(lines.map_while(Result::ok).any(|line| line.contains("holding")));
        holder
    }

    fn kill(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        self.kill();
    }
}

#[test]
fn after_kill_9_the_kernel_forwards_again() {
    if !available("kill -9") {
        return;
    }
    let lab = routed();
    warm_up(&lab);
    for kind in ["link", "filter"] {
        let mut holder = Holder::start(&lab, kind);
        assert!(!pings(&lab, "10.77.2.2"), "{kind}: held");
        assert!(reaches(&lab, "10.77.1.1"), "{kind}: local");
        holder.kill();
        eventually("forwarding after a kill", || pings(&lab, "10.77.2.2").then_some(()));
    }
    // The filter is still there, inert; the next start takes its place, and a clean stop removes
    // all of it.
    let filters = lab.output("r", "tc filter show dev ra ingress");
    assert_eq!(filters.matches("evenkeel-guard").count(), 1, "{filters}");
    let (heart, _pulse) = beating(2000);
    let guards = guards(&lab, GuardKind::Filter, &heart);
    let filters = lab.output("r", "tc filter show dev ra ingress");
    assert_eq!(filters.matches("evenkeel-guard").count(), 1, "{filters}");
    assert!(!pings(&lab, "10.77.2.2"));
    drop(guards);
    assert!(reaches(&lab, "10.77.2.2"));
    assert!(!lab.output("r", "tc qdisc show dev ra").contains("clsact"));
}

#[test]
fn somebody_elses_qdisc_stays() {
    if !available("foreign clsact") {
        return;
    }
    let lab = routed();
    lab.output("r", "tc qdisc add dev ra clsact");
    lab.output("r", "tc filter add dev ra ingress protocol ip prio 5 u32 match u32 0 0 flowid 1:1");
    let (heart, _pulse) = beating(2000);
    drop(inside(&lab, "r", || Guard::attach("ra", GuardKind::Filter, &local(), &heart).unwrap()));
    let (ok, left) = try_run(&format!("tc -n {} filter show dev ra ingress", lab.name("r")));
    assert!(ok && left.contains("u32") && !left.contains("evenkeel"), "{left}");
}
