//! What `evenkeel shape` cannot take is refused with interface, cause and remedy, and nothing is
//! left half attached; what changes under it is taken again. Needs root.

use std::process::{Command, Stdio};

use evenkeel_netns::testing::{TestNet, available, eventually, has_tool, text};

use crate::gateway::Shaper;

const RATES: &str = "--down 100Mbit/s --up 20Mbit/s";

/// A box `g` with an interface `wan` towards `s`.
fn a_box(test: &str) -> Option<Shaper> {
    if !available(test) {
        return None;
    }
    let net = TestNet::new(&["g", "s"]);
    wire(&net);
    Some(Shaper::new(net, "g"))
}

fn wire(net: &TestNet) {
    net.wire(("s", "s0"), ("g", "wan"));
    net.ip("s", "address add 10.2.0.2/24 dev s0");
    net.ip("g", "address add 10.2.0.1/24 dev wan");
}

fn pings(net: &TestNet, more: &str) -> bool {
    net.try_output("g", &format!("ping -n -c 1 -W 1 {more} 10.2.0.2")).0
}

/// What is at interfaces of the box besides counters.
fn at_interfaces(shaper: &Shaper) -> String {
    let look = |line: &str| shaper.net.output("g", line);
    look("tc qdisc show dev wan") + &look("ip -br address show dev wan")
}

#[test]
fn what_is_taken_or_has_no_header_is_refused_with_the_remedy() {
    let Some(shaper) = a_box("shape_refused") else { return };
    if !has_tool("shape_refused", "tc", "iproute2") {
        return;
    }
    let run = |line: &str| shaper.net.try_output("g", line).0;
    // Commands before, the interface, what must be said, commands after.
    let cases: [(&[&str], &str, &[&str], &str); 4] = [
        (
            &["tc qdisc add dev wan root tbf rate 10mbit burst 10k latency 50ms"],
            "wan",
            &["wan", "qdisc tbf", "tc qdisc del dev wan root"],
            "tc qdisc del dev wan root",
        ),
        (
            &["ip link add br0 type bridge", "ip link set wan master br0"],
            "wan",
            &["wan", "member of the bridge br0", "attach br0"],
            "ip link del br0",
        ),
        (
            &[
                "ip link add bond0 type bond",
                "ip link set wan down",
                "ip link set wan master bond0",
            ],
            "wan",
            &["wan", "member of the bond bond0", "attach bond0"],
            "ip link del bond0",
        ),
        (
            &["ip tuntap add dev tun0 mode tun", "ip link set tun0 up"],
            "tun0",
            &["tun0", "not Ethernet", "the interface below it"],
            "ip link del tun0",
        ),
    ];
    let mut refused = 0;
    for (before, interface, said, after) in cases {
        // What this kernel cannot make, nobody can name.
        if before.iter().all(|line| run(line)) {
            let untouched = at_interfaces(&shaper);
            let output = shaper.command(&format!("{interface} {RATES}")).output().unwrap();
            let told = text(&output);
            assert_eq!(output.status.code(), Some(2), "{told}");
            assert!(said.iter().all(|word| told.contains(word)), "{said:?} in {told}");
            shaper.nothing_is_left();
            assert_eq!(at_interfaces(&shaper), untouched);
            refused += 1;
        }
        let _ = run(after);
        shaper.net.ip("g", "link set wan up");
    }
    assert!(refused >= 2, "{refused} cases");
    eventually("the line is as before", || pings(&shaper.net, ""));
}

#[test]
fn two_at_one_interface_and_one_at_the_pair_of_another_are_refused() {
    let Some(mut shaper) = a_box("shape_twice") else { return };
    shaper.start(&format!("wan {RATES}"));
    let refused = |shaper: &Shaper, interface: &str, code: i32, said: &str| {
        let output = shaper.command(&format!("{interface} {RATES}")).output().unwrap();
        let told = text(&output);
        assert_eq!(output.status.code(), Some(code), "{told}");
        assert!(told.contains(interface) && told.contains(said), "{told}");
    };
    for interface in ["wan", "eku-wan"] {
        refused(&shaper, interface, 1, "another evenkeel");
        let through = shaper.sent("wan").0;
        assert!(pings(&shaper.net, "") && shaper.sent("wan").0 > through, "the first goes on");
    }
    // Its pair is left by one that is killed.
    shaper.kill("-KILL");
    refused(&shaper, "eku-wan", 2, "name wan");
}

#[test]
fn a_start_that_nobody_confirms_undoes_itself() {
    let Some(mut shaper) = a_box("shape_confirm") else { return };
    shaper.start(&format!("wan {RATES} --confirm 2s"));
    let through = shaper.sent("wan").0;
    assert!(pings(&shaper.net, "") && shaper.sent("wan").0 > through);
    assert_eq!(shaper.ended(), Some(1), "{}", shaper.log());
    assert!(shaper.log().contains("nobody confirmed"), "{}", shaper.log());
    shaper.nothing_is_left();
    assert!(pings(&shaper.net, ""), "as before");
    shaper.start(&format!("wan {RATES} --confirm 2s"));
    let said = shaper.ctl("confirm");
    assert!(said.status.success(), "{}", text(&said));
    std::thread::sleep(std::time::Duration::from_millis(3_500));
    let through = shaper.sent("wan").0;
    assert!(pings(&shaper.net, "") && shaper.sent("wan").0 > through, "it goes on");
    let again = shaper.ctl("confirm");
    assert!(!again.status.success(), "nothing waits any more: {}", text(&again));
}

#[test]
fn an_interface_that_changes_goes_or_has_another_name_is_taken_again() {
    let Some(mut shaper) = a_box("shape_changes") else { return };
    shaper.start(&format!("wan {RATES}"));
    let mtu = |shaper: &Shaper, mtu: u32| {
        shaper.net.ip("g", &format!("link set wan mtu {mtu}"));
        shaper.net.ip("s", &format!("link set s0 mtu {mtu}"));
    };
    let is_shaped = |shaper: &Shaper, when: &str| {
        eventually(when, || {
            let through = [shaper.sent("wan").0, shaper.sent("wan-ingress").0];
            let answered = pings(&shaper.net, "");
            let now = [shaper.sent("wan").0, shaper.sent("wan-ingress").0];
            answered && now[0] > through[0] && now[1] > through[1]
        });
    };
    is_shaped(&shaper, "at first");
    for (size, longest) in [(1300, 1272), (9000, 8972), (1500, 1472)] {
        mtu(&shaper, size);
        let through = shaper.sent("wan");
        let fits = pings(&shaper.net, &format!("-M do -s {longest}"));
        assert!(fits, "{longest} bytes at an MTU of {size}: {}", shaper.log());
        assert!(shaper.sent("wan").1 - through.1 > u64::from(size), "one packet through the link");
        assert!(!pings(&shaper.net, &format!("-M do -s {}", longest + 1)), "{size}");
        let dropped: u64 = ["wan", "wan-ingress"]
            .map(|link| {
                let shown = shaper.show();
                let links = shown["links"].as_array().unwrap().clone();
                let found = links.iter().find(|one| one["port"] == link).unwrap().clone();
                found["classes"][0]["dropped_segments"].as_u64().unwrap()
            })
            .iter()
            .sum();
        assert_eq!(dropped, 0);
    }
    // Under another name it is another interface: the kernel goes on with it.
    let rename = |from: &str, to: &str| {
        shaper.net.ip("g", &format!("link set {from} down"));
        shaper.net.ip("g", &format!("link set {from} name {to}"));
        shaper.net.ip("g", &format!("link set {to} up"));
    };
    rename("wan", "uplink");
    eventually("it goes on under another name", || pings(&shaper.net, ""));
    eventually("that is said", || shaper.log().contains("interface wan is gone"));
    rename("uplink", "wan");
    is_shaped(&shaper, "its name is back");
    shaper.net.ip("g", "link set wan down");
    shaper.net.ip("g", "link set wan up");
    is_shaped(&shaper, "down and up");
    shaper.net.ip("g", "link del wan");
    eventually("that it is gone is said", || {
        shaper.log().matches("interface wan is gone").count() >= 2
    });
    wire(&shaper.net);
    is_shaped(&shaper, "gone and back");
    shaper.kill("-TERM");
    shaper.nothing_is_left();
    assert!(pings(&shaper.net, ""), "afterwards");
}

/// Runs a command and kills it before its system call number `argv[1]` of those that change
/// something: bpf, requests by netlink, ioctl, options and names of sockets. Prints how many there
/// were before it was ready, where it came so far.
const KILL_AT: &str = "
import ctypes, os, signal, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
GET_INFO, SYSCALL, SETOPTIONS = 0x420e, 24, 0x4200
machine = os.uname().machine
calls = {'x86_64': (321, 44, 46, 16, 54, 49), 'aarch64': (280, 206, 211, 29, 208, 200)}[machine]
at = int(sys.argv[1])
child = os.fork()
if child == 0:
    libc.ptrace(0, 0, None, None)
    os.kill(os.getpid(), signal.SIGSTOP)
    os.execv(sys.argv[2], sys.argv[2:])
os.waitpid(child, 0)
# Clones too; a call is told from a signal; all end with the tracer.
libc.ptrace(SETOPTIONS, child, None, 0x1 | 0x2 | 0x4 | 0x8 | 0x10 | 0x100000)
libc.ptrace(SYSCALL, child, None, None)
count, info = 0, (ctypes.c_uint8 * 88)()
while True:
    try:
        pid, status = os.waitpid(-1, 0x40000000)
    except ChildProcessError:
        break
    if not os.WIFSTOPPED(status):
        if pid == child: break
        continue
    stop, deliver = os.WSTOPSIG(status), 0
    if stop == signal.SIGTRAP | 0x80:
        libc.ptrace(GET_INFO, pid, ctypes.sizeof(info), ctypes.addressof(info))
        number = int.from_bytes(bytes(info[24:32]), 'little')
        if info[0] == 1 and number in calls:
            count += 1
            if count == at:
                os.kill(child, signal.SIGKILL)
    elif stop not in (signal.SIGTRAP, signal.SIGSTOP):
        deliver = stop
    libc.ptrace(SYSCALL, pid, None, deliver)
print(count)
";

#[test]
fn killed_at_any_step_of_attaching_it_leaves_the_line_as_it_was() {
    let Some(mut shaper) = a_box("kill_at_each_step") else { return };
    if !has_tool("kill_at_each_step", "python3", "python3") {
        return;
    }
    let before = at_interfaces(&shaper);
    // Some steps in `make test`, all of them in `make soak`.
    let each = if std::env::var_os("EVENKEEL_KILLED").is_some() { 1 } else { 12 };
    let (mut step, mut killed) = (1, 0);
    loop {
        let shape = shaper.command(&format!("wan {RATES}"));
        let mut traced = Command::new("python3");
        traced.args(["-c", KILL_AT, &step.to_string()]).arg(shape.get_program());
        traced.args(shape.get_args()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut traced = evenkeel_ports::sys::die_with_parent(&mut traced).spawn().unwrap();
        let begun = std::time::Instant::now();
        let ready = loop {
            if traced.try_wait().unwrap().is_some() {
                break false;
            }
            if shaper.try_show().is_some() {
                break true;
            }
            assert!(begun.elapsed().as_secs() < 30, "step {step}");
            std::thread::sleep(std::time::Duration::from_millis(20));
        };
        if ready {
            // All of it was behind it: the tracer ends with its tracee.
            traced.kill().unwrap();
        }
        let output = traced.wait_with_output().unwrap();
        // The programs are gone with it; no qdisc, no address, no other state is left.
        eventually("the line is free", || pings(&shaper.net, ""));
        assert_eq!(at_interfaces(&shaper), before, "step {step}: {}", text(&output));
        if ready {
            break;
        }
        killed += 1;
        step += each;
    }
    println!("kill_at_each_step: {killed} kills in {step} steps");
    assert!(killed >= 5, "{killed} kills in {step} steps");
    // What a killed one has left is no obstacle.
    shaper.start(&format!("wan {RATES}"));
    let through = shaper.sent("wan").0;
    assert!(pings(&shaper.net, "") && shaper.sent("wan").0 > through);
    shaper.kill("-TERM");
    shaper.nothing_is_left();
}
