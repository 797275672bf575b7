//! No allocation per packet once the first rounds are over.

use crate::common::{Bed, Udp};
use evenkeel_core::Nanos;
use evenkeel_ports::{FramePool, Port};

#[test]
fn forwarding_does_not_allocate() {
    let rest = "[[class]]\nname = \"rest\"\n[[class]]\nname = \"voice\"\nmatch = [{ dscp = [46] \
                }]\n\
        [[link]]\nport = \"p1\"\nrate = \"100Mbit/s\"\ndiscipline = { kind = \"wfq-altq\", limit = \
        50 }\n\
        [[link]]\nport = \"p2\"\ndiscipline = { kind = \"lct\", limit = 50 }";
    let mut bed = Bed::with_mtu(3, rest, 2000, 1500);
    // The hosts' ends are emptied into a pool of their own: taking bytes out would allocate.
    let mut far_pool = FramePool::new(1024);
    let mut far = Vec::with_capacity(1024);
    let mut turn = |bed: &mut Bed| {
        for dscp in [0, 46] {
            for to in [1, 2] {
                bed.send(0, to, Udp { dscp, ..Udp::default() });
                bed.send_v6(0, to, Udp { dscp, ..Udp::default() });
            }
            // Answered.
            bed.send(0, 1, Udp { ttl: 1, ..Udp::default() });
            // Too long for the far link and cut into fragments.
            bed.send(0, 1, Udp { payload: 1600, ..Udp::default() });
        }
        let allocated = allocation_counter::measure(|| {
            let _ = bed.pass(Nanos::from_micros(250));
            bed.pipeline.drain_requests(bed.now, |request| panic!("{request:?}"));
        });
        for host in &mut bed.hosts {
            host.rx_burst(&mut far_pool, bed.now, &mut far, 1024);
            far.drain(..).for_each(|received| far_pool.release(received.frame));
        }
        allocated.count_total
    };
    for _ in 0..20 {
        turn(&mut bed);
    }
    let allocations: u64 = (0..500).map(|_| turn(&mut bed)).sum();
    assert_eq!(allocations, 0);
    let snapshot = bed.snapshot();
    assert_eq!(snapshot.ports[0].rx_packets, 520 * 12);
    let full: u64 = snapshot.links[1].classes.iter().flat_map(|class| class.dropped.values()).sum();
    assert!(full > 500, "drops do not allocate either: {full}");
    assert!(snapshot.ports[0].fragmented > 500 && snapshot.ports[0].answered > 0);
    // That the counter counts.
    assert!(allocation_counter::measure(|| drop(std::hint::black_box(vec![1]))).count_total > 0);
}

#[test]
fn admission_does_not_allocate() {
    let rest = "[flows]\nemergency_sources = [\"10.0.0.99/32\"]\n[[link]]\nport = \"p1\"\nrate = \
                \"10Mbit/s\"\n\
        discipline = { kind = \"pdrr\" }\n[link.admission]\neccm = true\nmax_accept_delay = \
        \"50ms\"\nfair_rate_interval = \"20ms\"\n\
        per_user = true\nuser_flows = 4\nglobal_list = true\nflushing = \"rbaef\"\nflush_interval \
        = \"50ms\"\nactive_time = \"10ms\"\nflows = 256\n\
        second_link = \"p2\"\n[[link]]\nport = \"p2\"\nrate = \"1Mbit/s\"\n";
    let mut bed = Bed::new(3, rest);
    let mut far_pool = FramePool::new(1024);
    let mut far = Vec::with_capacity(1024);
    let mut flow = 0_u16;
    let mut turn = |bed: &mut Bed| {
        // Thirty that stay, and four that nobody has seen.
        for port in (6_000..6_030).chain((0..4).map(|n| 10_000 + flow + n)) {
            bed.send(0, 1, Udp { port, payload: 900, ..Udp::default() });
        }
        flow = (flow + 4) % 40_000;
        let allocated = allocation_counter::measure(|| {
            let _ = bed.pass(Nanos::from_micros(1_000));
            bed.pipeline.drain_requests(bed.now, |_| ());
        });
        for host in &mut bed.hosts {
            host.rx_burst(&mut far_pool, bed.now, &mut far, 1024);
            far.drain(..).for_each(|received| far_pool.release(received.frame));
        }
        allocated.count_total
    };
    for _ in 0..200 {
        turn(&mut bed);
    }
    let allocations: u64 = (0..1_000).map(|_| turn(&mut bed)).sum();
    assert_eq!(allocations, 0);
    let seen = bed.snapshot().links[1].admission.clone().expect("the link has one");
    assert!(seen.refused_total() > 1_000 && seen.clearings > 3, "{seen:?}");
}
