//! Exchange and packets by AF_XDP, which leaves other broadcasts to the kernel.

use std::time::Duration;

use evenkeel_netns::testing::{available, eventually};

use super::Cluster;

/// Load 1.5, weights 3 : 1. Without the exchange every forwarder would be a cluster of its own, and
/// the balancer would take nobody's silence for anything.
#[test]
fn a_cluster_on_af_xdp_hears_itself_and_takes_a_dead_forwarder_out() {
    if !available("a_cluster_on_af_xdp_hears_itself_and_takes_a_dead_forwarder_out") {
        return;
    }
    let mut cluster = Cluster::of("io = \"af-xdp\"\nbuffer_size = \"2048B\"\n", "");
    for node in ["f1", "f2", "f3"] {
        // What a dead one's kernel would forward, were the ports not closed.
        cluster.net.output(node, "sysctl -qw net.ipv4.ip_forward=1");
        eventually("in step", || cluster.show(node)["cluster"]["in_step"] == true);
        let io = cluster.show(node)["ports"][0]["io"].to_string();
        assert!(io.contains("AF_XDP"), "{node}: {io}");
    }
    eventually("heard", || (1..=3).all(|id| cluster.health(id) == "heard"));
    cluster.offer(Duration::from_micros(1_107));
    std::thread::sleep(Duration::from_millis(500));
    cluster.assert_scheduled("by AF_XDP", 0.9);

    cluster.kill("f1");
    eventually("silence is noticed", || cluster.health(1) == "silent");
    std::thread::sleep(Duration::from_millis(500));
    cluster.assert_two_scheduled("one killed");
    for node in ["f2", "f3"] {
        let port = &cluster.show(node)["ports"][0];
        assert!(port["exchange_received"].as_u64() > Some(100), "{node}: {port}");
    }
}
