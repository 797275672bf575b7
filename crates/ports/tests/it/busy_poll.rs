//! AF_XDP ports that do the driver's work themselves. Needs root, and drivers that tell by which
//! instance of NAPI frames come: veth did before Linux 6.13, and with a later kernel two network
//! cards that are wired to each other do, if they are named: `EVENKEEL_NICS="eth1 eth2"`. They must
//! have no other use, and come back as `va` and `vb`.

use std::collections::VecDeque;
use std::thread::sleep;
use std::time::Duration;

use crate::af_xdp::{Pair, TRANSIT, number_of, packet, pair, pair_over, small};
use crate::common::{available, eventually, inside};
use evenkeel_core::Nanos;
use evenkeel_netns::testing::{not_on_this_machine, try_run};
use evenkeel_ports::af_xdp::AfXdpOptions;
use evenkeel_ports::deferral::Deferral;
use evenkeel_ports::sys::monotonic_now;
use evenkeel_ports::{Port, PortError};

/// Longer than a test takes between two polls, however busy the machine is.
const LONG: Nanos = Nanos::from_secs(2);

/// Two network cards that are wired to each other.
fn nics() -> Option<[String; 2]> {
    let named = std::env::var("EVENKEEL_NICS").ok()?;
    let names: Vec<String> = named.split_whitespace().map(str::to_owned).collect();
    Some(names.try_into().expect("two names"))
}

fn run(line: &str) {
    let (done, output) = try_run(line);
    assert!(done, "{line}: {output}");
}

/// A port that polls the driver, whose interrupts wait for `wait`; a frame has passed. `None`: the
/// kernel has no such tests.
fn polling(test: &str, wait: Nanos) -> Option<(Pair, Deferral, tempfile::TempDir)> {
    if !available(test) {
        return None;
    }
    let mut p = pair_over(AfXdpOptions { busy_poll: true, ..small() }, |net| match nics() {
        Some(nics) => {
            for (nic, (node, name)) in nics.iter().zip([("a", "va"), ("b", "vb")]) {
                run(&format!("ip link set {nic} netns {} name {name} up", net.name(node)));
            }
        }
        None => net.wire(("a", "va"), ("b", "vb")),
    });
    let runtime = tempfile::tempdir().unwrap();
    p.wait_until_up();
    // Before Linux 6.13 a socket knows with its first frame which instance of NAPI to ask.
    p.passes(0);
    p.passes(0);
    if !p.near.knows_napi() {
        let needs = "needs a kernel before Linux 6.13, or two cards, EVENKEEL_NICS=\"eth1 eth2\"";
        not_on_this_machine(test, needs);
        return None;
    }
    let deferral = inside(&p.net, "b", || Deferral::set("vb", true, wait, runtime.path())).unwrap();
    // What was on its way when interrupts began to wait.
    p.passes(0);
    Some((p, deferral, runtime))
}

impl Pair {
    fn send_all(&mut self, numbers: std::ops::Range<u32>) {
        let mac = self.near.mac();
        numbers.for_each(|number| self.send(&packet(mac, TRANSIT, number, 100)));
    }

    /// The numbers of the frames of one call.
    fn burst(&mut self, max: usize) -> Vec<u32> {
        let mut out = Vec::new();
        self.near.rx_burst(&mut self.pool, monotonic_now(), &mut out, max);
        let numbers = out.iter().map(|rx| number_of(self.pool.bytes(&rx.frame))).collect();
        out.into_iter().for_each(|rx| self.pool.release(rx.frame));
        numbers
    }

    fn waiting(&self) -> u32 {
        self.near.rx_waiting().unwrap().frames
    }
}

#[test]
fn frames_stay_with_the_driver_until_the_port_asks() {
    let Some((mut p, deferral, _runtime)) = polling("busy polling", LONG) else { return };
    assert_eq!(p.near.io(), "AF_XDP, native, copy, busy polling, 1 receive queue");
    p.burst(64);
    // More than the driver brings at once, and more than are asked for.
    p.send_all(0..200);
    sleep(Duration::from_millis(30));
    assert_eq!(p.waiting(), 0, "no interrupt has brought them");
    assert_eq!(p.burst(150), (0..150).collect::<Vec<_>>(), "and one call has all that it wants");
    assert_eq!(p.burst(150), (150..200).collect::<Vec<_>>());
    assert_eq!(p.burst(150), []);

    // As before, interrupts bring them.
    drop(deferral);
    p.send_all(0..10);
    p.burst(64);
    eventually("the driver is idle", || p.burst(64).is_empty().then_some(()));
    sleep(Duration::from_millis(10));
    p.send_all(0..10);
    eventually("an interrupt", || (p.waiting() == 10).then_some(()));
}

#[test]
fn interrupts_come_back_for_a_port_that_does_not_ask() {
    let Some((mut p, _deferral, _runtime)) =
        polling("busy polling that ends", Nanos::from_millis(1))
    else {
        return;
    };
    for round in 0..20 {
        p.burst(64);
        p.send_all(round..round + 3);
        eventually("an interrupt", || (p.waiting() == 3).then_some(()));
        assert_eq!(p.burst(64), (round..round + 3).collect::<Vec<_>>());
    }
}

#[test]
fn frames_are_sent_while_the_driver_is_polled() {
    let Some((mut p, _deferral, _runtime)) = polling("sending while polling", LONG) else { return };
    let mut out = Vec::new();
    let mut back = VecDeque::new();
    for round in 0..200 {
        p.send_all(round * 16..round * 16 + 16);
        eventually("all of a round", || {
            p.near.rx_burst(&mut p.pool, monotonic_now(), &mut out, 64);
            back.extend(out.drain(..).map(|rx| rx.frame));
            (back.len() == 16).then_some(())
        });
        eventually("sending", || {
            p.near.tx_burst(&mut p.pool, &mut back);
            back.is_empty().then_some(())
        });
        assert_eq!(p.pool.in_use(), p.near.lent());
    }
    assert_eq!(p.near.counters().tx_frames, 3_200);
}

#[test]
fn where_nobody_could_ask_interrupts_go_on() {
    if !available("busy polling in vain") {
        return;
    }
    let mut p = pair(AfXdpOptions { busy_poll: true, ..small() });
    p.passes(0);
    p.passes(1);
    if p.near.knows_napi() {
        return;
    }
    let io = "AF_XDP, native, copy, no busy polling (no NAPI instance known), 1 receive queue";
    assert_eq!(p.near.io(), io);
    let runtime = tempfile::tempdir().unwrap();
    let refused = inside(&p.net, "b", || Deferral::set("vb", false, LONG, runtime.path()));
    let error = refused.unwrap_err();
    assert!(matches!(error, PortError::NoNapi(_)), "{error}");
    p.send_all(0..200);
    eventually("interrupts", || (p.waiting() == 200).then_some(()));
    assert_eq!(p.burst(256), (0..200).collect::<Vec<_>>());
}
