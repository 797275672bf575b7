//! What strangers send at the switch, and a switch that falls apart.

use std::time::{Duration, Instant};

use evenkeel_netns::testing::{available, eventually};
use evenkeel_ports::af_packet::{AfPacketOptions, AfPacketPort};
use evenkeel_ports::{FramePool, Port as _, sys};

use super::{Cluster, forwarder};

/// A station at the switch that hears the exchange frames and sends its own.
struct Stranger {
    port: AfPacketPort,
    pool: FramePool,
}

impl Stranger {
    fn new(cluster: &Cluster) -> Self {
        let options =
            AfPacketOptions { promiscuous: true, ring_frames: 512, ..AfPacketOptions::default() };
        let open = || AfPacketPort::open("eth0", options).unwrap();
        let port = sys::in_netns(&cluster.net.name("ed"), open).unwrap();
        Self { port, pool: FramePool::for_frames_of(1_024, 2_048) }
    }

    /// Exchange frames of a forwarder, which carry the tag of their VLAN.
    fn record(&mut self, id: u8, least: usize) -> Vec<Vec<u8>> {
        let (mut kept, mut heard) = (Vec::new(), Vec::new());
        eventually("its frames are heard", || {
            self.port.rx_burst(&mut self.pool, sys::monotonic_now(), &mut heard, 256);
            for received in heard.drain(..) {
                let frame = self.pool.bytes(&received.frame);
                if frame[6..14] == [2, 0, 0, 0, 1, id, 0x81, 0] {
                    kept.push(frame.to_vec());
                }
                self.pool.release(received.frame);
            }
            kept.len() >= least
        });
        kept
    }

    /// Sends these in turn, one each millisecond.
    fn send(&mut self, frames: &[Vec<u8>], time: Duration) {
        let begin = Instant::now();
        for frame in frames.iter().cycle() {
            if begin.elapsed() > time {
                return;
            }
            let mut out = self.pool.alloc_from(frame).into_iter().collect();
            self.port.tx_burst(&mut self.pool, &mut out);
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Load 1.5, weights 3 : 1: strangers, a member of another configuration, and a switch that falls
/// apart. Each is one line in the log that says what it was.
#[test]
fn whatever_happens_at_the_switch_nothing_is_sent_unscheduled_and_shares_hold() {
    let name = "whatever_happens_at_the_switch_nothing_is_sent_unscheduled_and_shares_hold";
    if !available(name) {
        return;
    }
    let mut cluster = Cluster::new();
    cluster.net.output("src", "sysctl -qw net.ipv4.conf.all.accept_redirects=0");
    cluster.net.output("src", "sysctl -qw net.ipv4.conf.eth0.accept_redirects=0");
    for node in ["f1", "f2", "f3"] {
        cluster.net.output(node, "sysctl -qw net.ipv4.ip_forward=1");
        eventually("in step", || cluster.show(node)["cluster"]["in_step"] == true);
    }
    eventually("heard", || (1..=3).all(|id| cluster.health(id) == "heard"));
    cluster.offer(Duration::from_micros(1_107));
    std::thread::sleep(Duration::from_millis(500));
    cluster.assert_scheduled("undisturbed", 0.9);
    // Who takes the address of a forwarder gets its frames from any switch that lets him.
    cluster.net.output("sw", "bridge link set dev ed learning off");
    let mut stranger = Stranger::new(&cluster);
    let refused = |cluster: &Cluster, node: &str, kind: &str| {
        cluster.show(node)["cluster"]["refused"][kind].as_u64().unwrap_or(0)
    };

    // The master's own frames, again, and with one byte changed.
    let recorded = stranger.record(1, 100);
    let mut forged = recorded.clone();
    forged.iter_mut().for_each(|frame| *frame.last_mut().unwrap() ^= 1);
    let both = [recorded.clone(), forged].concat();
    std::thread::scope(|scope| {
        let attack = scope.spawn(|| stranger.send(&both, Duration::from_millis(2_200)));
        std::thread::sleep(Duration::from_millis(100));
        cluster.assert_scheduled("recorded and forged frames", 0.9);
        attack.join().unwrap();
    });
    for node in ["f2", "f3"] {
        for kind in ["forged", "replayed"] {
            assert!(refused(&cluster, node, kind) > 100, "{node} {kind}");
        }
    }

    // And after it has died: the next one is master, and is not led by a ghost.
    cluster.kill("f1");
    eventually("the balancer has heard it", || cluster.health(1) == "silent");
    std::thread::scope(|scope| {
        let attack = scope.spawn(|| stranger.send(&recorded, Duration::from_millis(2_200)));
        std::thread::sleep(Duration::from_millis(100));
        cluster.assert_two_scheduled("recorded frames of a dead master");
        attack.join().unwrap();
    });
    assert_eq!(cluster.show("f3")["cluster"]["master"], 2);
    let ghost = "frames of node 1 come that were recorded earlier";
    assert_eq!(cluster.log("f2").matches(ghost).count(), 1, "{}", cluster.log("f2"));

    // It comes back with another configuration, and gets nothing to send.
    cluster.start("f1", &forwarder(1, 7, ""));
    eventually("it is named", || cluster.log("f2").contains("node 1 has another configuration"));
    std::thread::sleep(Duration::from_millis(1_500));
    cluster.assert_two_scheduled("another configuration");
    let named = cluster.log("f2").matches("node 1 has another configuration").count();
    assert_eq!(named, 1, "{}", cluster.log("f2"));
    cluster.kill("f1");
    cluster.start("f1", &forwarder(1, 1, ""));
    eventually("it is used again", || cluster.health(1) == "heard");

    // The switch falls apart: forwarder 3 is on the other side, and comes back.
    cluster.net.ip("sw", "link set f3 nomaster");
    eventually("the balancer has heard it", || cluster.health(3) == "silent");
    std::thread::sleep(Duration::from_millis(100));
    cluster.assert_two_scheduled("split");
    let lost = |cluster: &Cluster| cluster.log("f2").matches("node 3 is silent").count();
    assert_eq!(lost(&cluster), 1, "{}", cluster.log("f2"));
    cluster.net.ip("sw", "link set f3 master br0");
    eventually("it follows", || cluster.show("f3")["cluster"]["master"] == 1);
    eventually("it is used again", || cluster.health(3) == "heard");
    // Its flows go back to it after a second, within one.
    std::thread::sleep(Duration::from_millis(2_500));
    cluster.assert_scheduled("healed", 0.8);
    assert!(cluster.log("f2").contains("node 3 is heard"), "{}", cluster.log("f2"));
}
