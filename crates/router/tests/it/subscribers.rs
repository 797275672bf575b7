//! Subscribers behind the links of a router: whose a packet is, caps in both directions, and lists
//! that change while packets wait.

use std::fs;

use evenkeel_config::RouterConfig;
use evenkeel_core::{BitRate, Nanos};
use evenkeel_router::NodeQuery;
use evenkeel_router::snapshot::NodeSnapshot;

use crate::common::{Bed, Udp, headers};

/// Hosts of port 1: `ann` by IPv4, `bob` by IPv6, behind one node.
const LIST: &str = "name,parent,prefixes,down,up
site,,,12Mbit/s,20Mbit/s
ann,site,10.0.1.0/28,8Mbit/s,2Mbit/s
bob,site,2001:db8:1::/64,8Mbit/s,4Mbit/s
";

const TREE: &str = "
[[link]]
port = \"p1\"
rate = \"100Mbit/s\"
[[link]]
port = \"p0\"
rate = \"100Mbit/s\"
[[tree]]
subscribers = \"LIST\"
down = \"p1\"
up = \"p0\"
";

/// A folder with a list, and what a router's file says of it.
struct Lists(tempfile::TempDir);

impl Lists {
    fn new(list: &str) -> Self {
        let lists = Self(tempfile::tempdir().unwrap());
        lists.put(list);
        lists
    }

    fn put(&self, list: &str) {
        fs::write(self.0.path().join("list.csv"), list).unwrap();
    }

    fn said(&self) -> String {
        TREE.replace("LIST", &self.0.path().join("list.csv").display().to_string())
    }
}

/// Each host sends without an end for so many milliseconds; bytes of IP that came, IPv4 and IPv6.
fn flood(bed: &mut Bed, from: usize, to: usize, time: u64) -> [u64; 2] {
    let mut came = [0, 0];
    for _ in 0..time {
        for port in 0..6 {
            bed.send(from, to, Udp { port: 5_000 + port, payload: 972, ..Udp::default() });
            bed.send_v6(from, to, Udp { port: 5_000 + port, payload: 952, ..Udp::default() });
        }
        bed.round();
        for frame in bed.received(to) {
            let headers = headers(&frame);
            came[usize::from(!headers.flow.source.is_ipv4())] += u64::from(headers.ip_len);
        }
        bed.now += Nanos::from_millis(1);
    }
    came
}

fn node(bed: &Bed, link: &str, name: &str) -> NodeSnapshot {
    let nodes = bed.pipeline.nodes(&NodeQuery::Name(name.to_owned())).unwrap();
    nodes.into_iter().find(|node| node.link == link && node.name == name).unwrap()
}

/// What comes of so many Mbit/s on the wire in packets of 1000 bytes, for 500 ms.
fn bytes(mbps: f64) -> f64 {
    mbps * 1e6 / 8.0 * 0.5 / 1_038.0 * 1_000.0
}

fn near(came: u64, mbps: f64) {
    let (came, wanted) = (came as f64, bytes(mbps));
    assert!((came - wanted).abs() < wanted * 0.01 + 4_000.0, "{came} bytes, not {wanted}");
}

#[test]
fn everybody_has_his_plan_in_both_directions_and_the_site_its_own() {
    let lists = Lists::new(LIST);
    let mut bed = Bed::new(2, &lists.said());
    flood(&mut bed, 0, 1, 200);
    // Together they have what the site has.
    let down = flood(&mut bed, 0, 1, 500);
    near(down[0], 6.0);
    near(down[1], 6.0);
    let mut bed = Bed::new(2, &lists.said());
    flood(&mut bed, 1, 0, 200);
    let up = flood(&mut bed, 1, 0, 500);
    near(up[0], 2.0);
    near(up[1], 4.0);
    let (ann, site) = (node(&bed, "p0", "ann"), node(&bed, "p0", "site"));
    assert!(ann.subscriber && !site.subscriber && !ann.down);
    assert!(ann.own_cap > 20 && ann.overflow > 100 && ann.cap_bps == Some(2_000_000));
    assert!(site.sent_bytes > ann.sent_bytes && site.own_cap < 10);
    assert_eq!(node(&bed, "p0", "unknown").sent_packets, 0);
    assert!(bed.pipeline.nodes(&NodeQuery::Name("nobody".into())).is_err());
}

#[test]
fn whom_no_line_names_is_unknown_and_has_a_cap_of_his_own() {
    let lists = Lists::new(&LIST.replace("2001:db8:1::/64", "2001:db8:77::/64"));
    let said = lists.said().replace("down =", "unknown_down = \"3Mbit/s\"\ndown =");
    let mut bed = Bed::new(2, &said);
    flood(&mut bed, 0, 1, 200);
    let down = flood(&mut bed, 0, 1, 500);
    near(down[0], 8.0);
    near(down[1], 3.0);
    assert!(node(&bed, "p1", "unknown").sent_packets > 200);
    assert_eq!(node(&bed, "p1", "bob").sent_packets, 0);
}

#[test]
fn a_reload_changes_plans_and_loses_nothing_of_those_who_stay() {
    let lists = Lists::new(LIST);
    let mut bed = Bed::new(2, &lists.said());
    let running = Bed::config(2, &lists.said());
    flood(&mut bed, 0, 1, 300);
    let before = [node(&bed, "p1", "ann"), node(&bed, "p1", "bob")];
    assert!(before.iter().all(|node| node.backlog_packets > 10));
    // Ann is faster, bob is behind the link itself, and somebody is new.
    lists.put(
        "name,parent,prefixes,down,up\nsite,,,40Mbit/s,20Mbit/s\nann,site,10.0.1.0/28,20Mbit/s,\n\
         bob,,2001:db8:1::/64,10Mbit/s,\nkim,site,10.0.99.0/24,1Mbit/s,\n",
    );
    let running = reload(&mut bed, &lists, &running);
    // What was due meanwhile was sent; meters go on, and queues stay, also of who has moved.
    let all = |node: &NodeSnapshot| node.sent_packets + node.standing + node.backlog_packets;
    for before in &before {
        let now = node(&bed, "p1", &before.name);
        assert_eq!((all(&now), now.overflow), (all(before), before.overflow), "{}", now.name);
        assert!(now.sent_packets - before.sent_packets < 10 && now.backlog_packets > 10);
    }
    flood(&mut bed, 0, 1, 300);
    let down = flood(&mut bed, 0, 1, 500);
    near(down[0], 20.0);
    near(down[1], 10.0);
    // Bob goes: what waits of him is nobody's, and not lost.
    let waits = node(&bed, "p1", "bob").backlog_packets;
    let lost = |bed: &mut Bed| {
        let dropped = &bed.snapshot().links[1].classes[0].dropped;
        dropped.get("reconfigured").copied().unwrap_or(0)
    };
    lists.put("name,prefixes,down\nann,10.0.1.0/28,20Mbit/s\n");
    reload(&mut bed, &lists, &running);
    let unknown = node(&bed, "p1", "unknown");
    assert!(waits > 10 && all(&unknown).abs_diff(waits) < 10, "{waits}: {unknown:?}");
    assert_eq!(lost(&mut bed), 0);
    let down = flood(&mut bed, 0, 1, 500);
    near(down[0], 20.0);
    assert!(down[1] > 1_000_000, "without a plan he has the rest: {}", down[1]);
}

/// Reads the list anew; gives what runs then.
fn reload(bed: &mut Bed, lists: &Lists, running: &RouterConfig) -> RouterConfig {
    let mut config = Bed::config(2, &lists.said());
    config.keep_places(running);
    bed.pipeline.reload(bed.now, &config).unwrap();
    config
}

#[test]
fn a_cap_that_is_raised_counts_at_once() {
    let slow = LIST.replace("10.0.1.0/28,8Mbit/s", "10.0.1.0/28,16kbit/s");
    let lists = Lists::new(&slow);
    let mut bed = Bed::new(2, &lists.said());
    let running = Bed::config(2, &lists.said());
    flood(&mut bed, 0, 1, 100);
    lists.put(LIST);
    reload(&mut bed, &lists, &running);
    let down = flood(&mut bed, 0, 1, 50);
    // At the old rate its next packet were due in half a second.
    assert!(down[0] > 20_000, "{}", down[0]);
    assert_eq!(node(&bed, "p1", "ann").cap_bps, Some(BitRate::from_mbps(8).0));
}
