//! One limit over several ports: their packets wait in one link and leave by their own port.

use evenkeel_config::{Change, RouterConfig, parse_change};
use evenkeel_core::Nanos;
use evenkeel_net::PortIndex;
use evenkeel_router::pipeline::{Buffers, LinkState, Pipeline};

use crate::common::{Bed, Udp, host_mac, router_mac, udp, v4};

/// Port 0 leads to the senders; 1 and 2 share 10 Mbit/s.
const SHARED: &str = "[[link]]\nport = \"p1\"\nalso = [\"p2\"]\nrate = \"10Mbit/s\"\n\
                      discipline = { kind = \"pdrr\", max_delay = \"50ms\" }\n";

/// 962 bytes of payload are 1042 on the wire: 1,200 of them a second are 10 Mbit/s.
const PAYLOAD: usize = 962;
const A_SECOND: f64 = 10e6 / 8.0 / 1042.0;

/// For a second, sources at port 0 send to the hosts of ports 1 and 2 as often as told, in 2,000ths
/// of a second. Returns what has come there.
fn second(bed: &mut Bed, every: [u64; 2]) -> [usize; 2] {
    let mut come = [0, 0];
    for tick in 0..2_000 {
        for (to, every) in [1, 2].into_iter().zip(every) {
            if every != 0 && tick % every == 0 {
                let what = Udp { payload: PAYLOAD, port: 5000 + to as u16, ..Udp::default() };
                bed.send(0, to, what);
            }
        }
        bed.pass(Nanos::from_micros(500));
        for (come, port) in come.iter_mut().zip([1, 2]) {
            *come += bed.received(port).len();
        }
    }
    bed.snapshot();
    come
}

fn near(is: usize, wanted: f64) -> bool {
    (is as f64 - wanted).abs() < 0.03 * A_SECOND
}

#[test]
fn ports_share_one_rate_and_who_is_alone_has_all_of_it() {
    let mut bed = Bed::new(4, SHARED);
    let alone = second(&mut bed, [1, 0]);
    assert!(near(alone[0], A_SECOND) && alone[1] == 0, "{alone:?}");
    let both = second(&mut bed, [1, 1]);
    assert!(near(both[0], A_SECOND / 2.0) && near(both[1], A_SECOND / 2.0), "{both:?}");
    // A fifth of a link is below its share: nothing of it is lost.
    let little = second(&mut bed, [1, 8]);
    assert!(near(little[1], 250.0) && near(little[0] + little[1], A_SECOND), "{little:?}");
    let snapshot = bed.snapshot();
    let lan = &snapshot.ports[1].counts;
    assert_eq!(lan.by_others, snapshot.ports[2].counts.from_others);
    assert!(lan.by_others > 700);
    // Frames have the addresses of their own port, and the fourth port a link without a limit.
    bed.send(0, 2, Udp::default());
    bed.send(0, 3, Udp::default());
    bed.round();
    assert_eq!(bed.received(3).len(), 1);
    bed.pass(Nanos::from_millis(100));
    let last = bed.received(2).pop().unwrap();
    assert_eq!((&last[..6], &last[6..12]), (&host_mac(2).0[..], &router_mac(2).0[..]));
}

#[test]
fn each_alone_would_have_the_whole_rate_without_the_group() {
    let link = |port| {
        format!(
            "[[link]]\nport = \"p{port}\"\nrate = \"10Mbit/s\"\n\
             discipline = {{ kind = \"pdrr\" }}\n"
        )
    };
    let mut bed = Bed::new(3, &(link(1) + &link(2)));
    let both = second(&mut bed, [1, 1]);
    assert!(both.iter().all(|come| near(*come, A_SECOND)), "{both:?}");
}

#[test]
fn a_port_that_goes_down_leaves_the_rate_to_the_others_be_it_the_links_own() {
    for down in [1, 2] {
        let mut bed = Bed::new(3, SHARED);
        second(&mut bed, [1, 1]);
        let state = LinkState { mac: router_mac(down), mtu: 1500, up: false };
        bed.pipeline.set_link(bed.now, PortIndex(down as u16), Some(state));
        let up = 3 - down;
        let come = second(&mut bed, [1, 1]);
        assert_eq!(come[down - 1], 0, "{down}");
        // What waited for the port that is down takes its time on the link yet: 50 ms of it.
        assert!(come[up - 1] as f64 > 0.9 * A_SECOND, "{down}: {come:?}");
        let snapshot = bed.snapshot();
        assert!(snapshot.ports[down].tx_dropped["link_down"] > 0, "{down}");
        bed.pipeline.set_link(bed.now, PortIndex(up as u16), None);
        assert_eq!(bed.snapshot().links[1].queued, 0, "{down}: nobody uses it");
    }
}

#[test]
fn a_group_is_changed_by_its_links_name_and_not_by_another() {
    let mut bed = Bed::new(3, SHARED);
    let change = |link: &str, value| -> Change {
        parse_change("rate", None, value, &["default"]).unwrap().on(link)
    };
    bed.pipeline.change(bed.now, &change("p1", "5Mbit/s")).unwrap();
    let both = second(&mut bed, [1, 1]);
    assert!(near(both[0] + both[1], A_SECOND / 2.0), "{both:?}");
    let error = bed.pipeline.change(bed.now, &change("p2", "5Mbit/s")).unwrap_err().to_string();
    assert!(error.contains("p2") && error.contains("link p1"), "{error}");
    assert!(bed.pipeline.change(bed.now, &change("p1", "none")).is_err());
}

/// Gives the state of `bed` to a pipeline of another configuration of the same ports.
fn replaced(mut bed: Bed, order: [usize; 3], rest: &str, buffers: Buffers) -> Bed {
    let mut text = rest.to_owned();
    for port in order {
        text += &format!("\n[[port]]\nname = \"p{port}\"\ninterface = \"eth{port}\"\n");
    }
    let config = RouterConfig::parse(&text, "other.toml").unwrap_or_else(|error| panic!("{error}"));
    let mut pipeline = Pipeline::new(&config, bed.now).unwrap();
    for (at, port) in order.into_iter().enumerate() {
        let state = LinkState { mac: router_mac(port), mtu: 1500, up: true };
        pipeline.set_link(bed.now, PortIndex(at as u16), Some(state));
    }
    pipeline.take_over(bed.now, bed.pipeline, buffers);
    let mut ports: Vec<_> = bed.ports.drain(..).map(Some).collect();
    let ports = order.iter().map(|port| ports[*port].take().unwrap()).collect();
    Bed { pipeline, ports, hosts: bed.hosts, now: bed.now }
}

#[test]
fn what_waits_goes_on_by_its_own_port_when_groups_come_go_or_are_numbered_anew() {
    let single = "[[link]]\nport = \"p1\"\nrate = \"10Mbit/s\"\n[[link]]\nport = \"p2\"\n\
                  rate = \"10Mbit/s\"\n";
    for (before, order, after) in [
        (SHARED, [0, 1, 2], single),
        (single, [0, 1, 2], SHARED),
        (SHARED, [2, 0, 1], SHARED),
        (SHARED, [1, 2, 0], single),
    ] {
        for buffers in [Buffers::Kept, Buffers::Copied] {
            let mut bed = Bed::new(3, before);
            for _ in 0..20 {
                for to in [1, 2] {
                    let macs = (host_mac(0), router_mac(0));
                    let what = Udp { payload: PAYLOAD, ..Udp::default() };
                    bed.inject(0, &udp(macs, v4(0, 2), v4(to, 2), what));
                }
            }
            bed.round();
            let mut bed = replaced(bed, order, after, buffers);
            bed.snapshot();
            let mut come = [0, 0];
            for _ in 0..100 {
                bed.pass(Nanos::from_millis(1));
                for (come, port) in come.iter_mut().zip([1, 2]) {
                    for frame in bed.received(port) {
                        assert_eq!(frame[..6], host_mac(port).0, "{order:?}");
                        *come += 1;
                    }
                }
            }
            assert_eq!(come, [20, 20], "{order:?} {buffers:?}");
            bed.snapshot();
        }
    }
}

#[test]
fn workers_share_the_rate_of_a_group_too() {
    let mut beds = Bed::workers(3, &format!("[router]\nworkers = 2\n{SHARED}"));
    let mut come = [0, 0];
    for tick in 0..4_000_u32 {
        for (worker, bed) in beds.iter_mut().enumerate() {
            for to in [1, 2] {
                let port = 5000 + (tick % 4) as u16 * 2 + worker as u16;
                bed.send(0, to, Udp { payload: PAYLOAD, port, ..Udp::default() });
            }
            bed.pass(Nanos::from_micros(500));
            for (come, port) in come.iter_mut().zip([1, 2]) {
                *come += bed.received(port).len();
            }
        }
    }
    beds.iter_mut().for_each(|bed| drop(bed.snapshot()));
    let all = come[0] + come[1];
    assert!((all as f64 - 2.0 * A_SECOND).abs() < 0.06 * A_SECOND, "{come:?}");
    assert!((come[0] as f64 - come[1] as f64).abs() < 0.1 * all as f64, "{come:?}");
}
