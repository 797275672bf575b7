//! Subscribers behind the links of a router: whose a packet is by addresses and by what stands
//! below them, caps in both directions, and lists that change while packets wait.

use std::fs;

use evenkeel_config::RouterConfig;
use evenkeel_core::{BitRate, Nanos};
use evenkeel_router::NodeQuery;
use evenkeel_router::snapshot::NodeSnapshot;

use evenkeel_net::MacAddr;

use crate::common::{Bed, Udp, echo, headers, host_mac, ip, router_mac, udp, v4};

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
    let nodes = bed.pipeline.nodes(bed.now, &NodeQuery::Name(name.to_owned())).unwrap();
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
    assert!(bed.pipeline.nodes(bed.now, &NodeQuery::Name("nobody".into())).is_err());
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

/// People found by what stands below the addresses, some of them by a way that comes before.
const ACCESS: &str = "name,prefixes,macs,vlans,sessions,down
ann,,02:00:00:00:09:01,,,8
bob,,,7.100,,8
kim,,,7,,8
pia,,,,5,8
tom,,,,5@02:00:00:00:09:02,8
zoe,10.0.1.2,,,,8
";

/// Tags, and the header of a session with a number.
fn tags(vlans: &[u16], session: Option<u16>) -> Vec<u8> {
    let tag = |vlan: &u16| [0x81, 0, (vlan >> 8) as u8 | 0xe0, *vlan as u8];
    let mut head: Vec<u8> = vlans.iter().flat_map(tag).collect();
    match session {
        Some(id) => {
            head.extend([0x88, 0x64, 0x11, 0, (id >> 8) as u8, id as u8, 0, 130, 0, 0x21]);
        }
        None => head.extend([8, 0]),
    }
    head
}

#[test]
fn on_a_bridge_sessions_come_before_vlans_and_those_before_stations_and_addresses() {
    let lists = Lists::new(ACCESS);
    let port = |name: &str| {
        format!("[[port]]\nname = {name:?}\ninterface = {name:?}\nattach = \"bridge\"\n")
    };
    let mut bed = Bed::of(&format!("{}{}{}", port("p0"), port("p1"), lists.said()));
    let [ann, other, nobody] = [1, 2, 3].map(|last| MacAddr([2, 0, 0, 0, 9, last]));
    let far = MacAddr([2, 0, 0, 0, 8, 8]);
    let cases = [
        ("ann", ann, tags(&[], None), "10.0.1.9"),
        // Her station, in nobody's VLAN or session; a tag that says a priority alone.
        ("ann", ann, tags(&[8, 100], None), "10.0.1.2"),
        ("ann", ann, tags(&[], Some(6)), "10.0.1.2"),
        ("ann", ann, tags(&[0], None), "10.0.1.2"),
        ("bob", ann, tags(&[7, 100], None), "10.0.1.2"),
        ("bob", nobody, tags(&[7, 100], Some(6)), "10.0.1.9"),
        ("kim", ann, tags(&[7], None), "10.0.1.2"),
        ("kim", ann, tags(&[7, 101], None), "10.0.1.2"),
        ("pia", ann, tags(&[7, 100], Some(5)), "10.0.1.2"),
        ("pia", nobody, tags(&[], Some(5)), "10.0.1.9"),
        ("tom", other, tags(&[9], Some(5)), "10.0.1.2"),
        ("zoe", nobody, tags(&[], None), "10.0.1.2"),
        ("zoe", nobody, tags(&[8], Some(6)), "10.0.1.2"),
        ("unknown", nobody, tags(&[100, 7], None), "10.0.1.9"),
        // The other end of a frame is nobody's business.
        ("unknown", far, tags(&[], None), "10.0.1.9"),
    ];
    for (at, (name, station, head, address)) in cases.iter().enumerate() {
        for (link, from) in [("p1", 0), ("p0", 1)] {
            let (near, peer) = (*station, if *station == far { ann } else { far });
            let (source, destination) = (ip("192.0.2.1"), ip(address));
            let mut frame = match link {
                "p1" => udp((peer, near), source, destination, Udp::default()),
                _ => udp((near, peer), destination, source, Udp::default()),
            };
            frame.splice(12..14, head.iter().copied());
            let before = node(&bed, link, name).sent_packets;
            bed.inject(from, &frame);
            for _ in 0..3 {
                bed.pass(Nanos::from_millis(1));
            }
            assert_eq!(bed.received(1 - from), [frame], "case {at}, link {link}");
            let now = node(&bed, link, name).sent_packets;
            assert_eq!(now, before + 1, "case {at}, {name} on link {link}");
        }
    }
    // What the list could name of whom it does not.
    let links = bed.snapshot().links;
    let stranger = |at: usize| links[at].tree.as_ref().unwrap().last_unknown.clone().unwrap();
    assert_eq!(stranger(1), "10.0.1.9, station 02:00:00:00:08:08");
    let mut frame = udp((nobody, far), ip("10.0.1.9"), ip("192.0.2.1"), Udp::default());
    frame.splice(12..14, tags(&[8, 9], Some(77)));
    bed.inject(1, &frame);
    bed.pass(Nanos::from_millis(1));
    let said = bed.snapshot().links[0].tree.as_ref().unwrap().last_unknown.clone().unwrap();
    assert_eq!(said, "10.0.1.9, session 77, VLAN 8.9, station 02:00:00:00:09:03");
    let found =
        &bed.pipeline.nodes(bed.now, &NodeQuery::Name("tom".to_owned())).unwrap()[0].found_by;
    assert_eq!(found[..], ["PPPoE session 5@02:00:00:00:09:02"]);
}

#[test]
fn a_routed_frame_is_asked_for_its_station_before_it_is_made_anew() {
    let list = format!("name,macs,down,up\nann,{},8,2\n", host_mac(1));
    let lists = Lists::new(&list);
    for flows in [0, 1_024] {
        let mut bed = Bed::new(2, &format!("[router]\nflow_cache = {flows}\n{}", lists.said()));
        flood(&mut bed, 0, 1, 200);
        let down = flood(&mut bed, 0, 1, 500);
        near(down.iter().sum(), 8.0);
        let mut bed = Bed::new(2, &format!("[router]\nflow_cache = {flows}\n{}", lists.said()));
        flood(&mut bed, 1, 0, 200);
        let up = flood(&mut bed, 1, 0, 500);
        near(up.iter().sum(), 2.0);
        for link in ["p0", "p1"] {
            assert_eq!(node(&bed, link, "unknown").sent_packets, 0);
        }
        // Another station with her address is not she.
        let mac = MacAddr([2, 0, 0, 0, 9, 9]);
        let frame = udp((mac, router_mac(1)), ip("10.0.1.2"), ip("10.0.0.2"), Udp::default());
        bed.inject(1, &frame);
        bed.pass(Nanos::from_millis(1));
        assert_eq!(node(&bed, "p0", "unknown").sent_packets, 1);
    }
}

/// Host `from` of a port asks that of the other one, and the reply comes after some time; the link
/// of `from` has the request on its way in.
fn asks(bed: &mut Bed, from: usize, number: u16, after: Nanos) {
    let to = 1 - from;
    let ends = (v4(from, 2), v4(to, 2));
    bed.inject(from, &echo((host_mac(from), router_mac(from)), ends, number, false));
    let ms = Nanos::from_millis(1);
    bed.pass(ms);
    bed.pass(ms);
    assert_eq!(bed.received(to).len(), 1);
    bed.pass(after.saturating_sub(ms).saturating_sub(ms));
    bed.inject(to, &echo((host_mac(to), router_mac(to)), (ends.1, ends.0), number, true));
    bed.pass(ms);
    bed.pass(ms);
    assert_eq!(bed.received(from).len(), 1);
}

#[test]
fn how_far_a_subscriber_is_away_is_told_of_each_side_and_stays_when_the_list_changes() {
    let lists = Lists::new(LIST);
    let mut bed = Bed::new(2, &lists.said());
    let running = Bed::config(2, &lists.said());
    let rtt = |bed: &Bed, link: &str, name: &str| {
        let us = node(bed, link, name).rtt_us;
        us.map(|us| (us as f64 / 1e3).round())
    };
    assert_eq!(rtt(&bed, "p1", "ann"), None);
    for number in 0..4 {
        asks(&mut bed, 0, number, Nanos::from_millis(20));
        asks(&mut bed, 1, 100 + number, Nanos::from_millis(70));
    }
    // Down there he is, up whom he talks with.
    assert_eq!((rtt(&bed, "p1", "ann"), rtt(&bed, "p0", "ann")), (Some(20.0), Some(70.0)));
    assert_eq!((rtt(&bed, "p1", "bob"), rtt(&bed, "p1", "site")), (None, None));
    // Somebody is put before her, and one of her name is somebody else.
    lists.put("name,prefixes,down\nkim,10.0.99.0/24,1\nann,10.0.1.0/28,20\n");
    let running = reload(&mut bed, &lists, &running);
    assert_eq!(rtt(&bed, "p1", "ann"), Some(20.0));
    asks(&mut bed, 0, 200, Nanos::from_millis(20));
    assert_eq!((rtt(&bed, "p1", "ann"), rtt(&bed, "p1", "kim")), (Some(20.0), None));
    lists.put("name,prefixes,down\nkim,10.0.99.0/24,1\nzoe,10.0.1.0/28,20\n");
    reload(&mut bed, &lists, &running);
    assert_eq!(rtt(&bed, "p1", "zoe"), None, "that was ann");
    asks(&mut bed, 0, 300, Nanos::from_millis(20));
    assert_eq!(rtt(&bed, "p1", "zoe"), Some(20.0));
    bed.pass(Nanos::from_secs(62));
    assert_eq!(rtt(&bed, "p1", "zoe"), None, "it was long ago");
}

/// Of two workers the second one meets all that comes back.
#[test]
fn how_far_a_subscriber_is_away_is_known_by_what_another_worker_meets() {
    let lists = Lists::new(LIST);
    let said = format!("[router]\nworkers = 2\n{}", lists.said());
    let mut workers = Bed::workers(2, &said);
    let ms = Nanos::from_millis(1);
    let pass = |workers: &mut [Bed], time: Nanos| {
        let end = workers[0].now + time;
        while workers[0].now < end {
            workers.iter_mut().rev().for_each(|worker| {
                worker.pass(ms);
            });
        }
    };
    let ends = (v4(0, 2), v4(1, 2));
    for number in 0..4 {
        let asks = echo((host_mac(0), router_mac(0)), ends, number, false);
        workers[0].inject(0, &asks);
        pass(&mut workers, Nanos::from_millis(20));
        let answers = echo((host_mac(1), router_mac(1)), (ends.1, ends.0), number, true);
        workers[1].inject(1, &answers);
        pass(&mut workers, Nanos::from_millis(5));
        // The first worker has both links.
        assert_eq!((workers[0].received(1).len(), workers[0].received(0).len()), (1, 1));
    }
    let us = node(&workers[0], "p1", "ann").rtt_us.unwrap();
    assert!((18_000..=22_000).contains(&us), "{us}");
}

/// Packets that each class has had on a link.
fn of_classes(bed: &mut Bed, link: usize) -> Vec<u64> {
    bed.snapshot().links[link].classes.iter().map(|class| class.sent_packets).collect()
}

#[test]
fn who_is_at_a_node_is_a_class_and_changes_it_with_the_list() {
    let classes = "[[class]]\nname = \"rest\"\n\
                   [[class]]\nname = \"voice\"\nmatch = [{ dscp = 46 }]\n\
                   [[class]]\nname = \"site\"\nnodes = [\"site\"]\n";
    let lists = Lists::new(LIST);
    let said = |lists: &Lists| {
        let tree = lists.said();
        let tree = &tree[tree.find("[[tree]]").unwrap()..];
        // On no link: who sends and who receives is asked alike.
        format!("{}{classes}", tree.replace("down = \"p1\"\nup = \"p0\"\n", ""))
    };
    for flows in [0, 1_024] {
        lists.put(LIST);
        let cache = format!("[router]\nflow_cache = {flows}\n");
        let mut bed = Bed::new(2, &(cache.clone() + &said(&lists)));
        let to_ann = || Udp { port: 5_000, ..Udp::default() };
        let all = |bed: &mut Bed| {
            for _ in 0..3 {
                bed.send(0, 1, to_ann());
                bed.send(0, 1, Udp { dscp: 46, port: 5_001, ..Udp::default() });
                bed.send_v6(0, 1, to_ann());
                bed.send(1, 0, to_ann());
                bed.pass(Nanos::from_millis(1));
                let _ = (bed.received(0), bed.received(1));
            }
            (of_classes(bed, 1), of_classes(bed, 0))
        };
        assert_eq!(all(&mut bed), (vec![0, 3, 6], vec![0, 0, 3]), "flow_cache = {flows}");
        // Ann goes elsewhere: with her next packet she is of another class.
        let running = Bed::config(2, &(cache.clone() + &said(&lists)));
        lists.put(&LIST.replace("ann,site", "ann,"));
        let mut config = Bed::config(2, &(cache + &said(&lists)));
        config.keep_places(&running);
        bed.pipeline.reload(bed.now, &config).unwrap();
        assert_eq!(all(&mut bed), (vec![3, 6, 9], vec![3, 0, 3]), "flow_cache = {flows}");
    }
}

#[test]
fn a_subscriber_with_too_many_flows_is_closed_to_new_ones_and_his_neighbour_is_not() {
    let lists = Lists::new(LIST);
    let admission = "admission = { newcomer_share = 0, min_fair_rate = 0.2, per_user = true, \
                     user_flows = 9, user = \"subscriber\" }";
    let said = lists.said().replacen("rate = ", &format!("{admission}\nrate = "), 1);
    let mut bed = Bed::new(2, &said);
    // Six greedy flows of each: five have room in a plan. Bob has two.
    for at in 0..2_200 {
        for port in 0..8 {
            // One after the other, so that each is seen to wait before the next one comes.
            if at > 200 * usize::from(port) {
                bed.send(0, 1, Udp { port: 5_000 + port, payload: 972, ..Udp::default() });
            }
            if port < 2 {
                bed.send_v6(0, 1, Udp { port: 5_000 + port, payload: 952, ..Udp::default() });
            }
        }
        bed.round();
        let _ = bed.received(1);
        bed.now += Nanos::from_millis(1);
    }
    let snapshot = bed.snapshot();
    let seen = snapshot.links[1].admission.as_ref().unwrap();
    assert!(seen.by_subscriber && seen.congested.is_none(), "{seen:?}");
    assert_eq!(seen.protected, 5 + 2, "{seen:?}");
    assert!(seen.refused["fair_rate_low"] > 1_000, "{seen:?}");
    let mut bed = Bed::new(2, &said);
    (0..3).for_each(|port| bed.send(0, 1, Udp { port: 5_000 + port, ..Udp::default() }));
    bed.send_v6(0, 1, Udp::default());
    bed.round();
    let users = bed.snapshot().links[1].admission.as_ref().unwrap().users.clone();
    let told: Vec<_> = users.iter().map(|user| (user.user.as_str(), user.flows)).collect();
    assert_eq!(told, [("ann", 3), ("bob", 1)]);
}
