//! Every number of every snapshot adds up over workers and has a difference, as its line says.

use evenkeel_cluster::Counters;
use evenkeel_cluster::balancer::BalancerCounters;
use evenkeel_core::admit::AdmissionCounts;
use evenkeel_core::measure::{ClassCounters, CounterKind, Tally};
use evenkeel_router::Snapshot;
use evenkeel_router::snapshot::{
    AdmissionSnapshot, BufferSnapshot, ClassCycles, ClassSnapshot, ClusterQueueSnapshot,
    ClusterSnapshot, CycleSnapshot, FairDropClass, FairDropLink, FairDropSnapshot,
    ForwarderSnapshot, LinkSnapshot, PortCounts, PortSnapshot, RemovedSnapshot, ServiceSnapshot,
    StageCycles, UserSnapshot,
};

/// How many numbers of `T` were checked.
fn check<T: Tally + Default>() -> usize {
    let mut checked = 0;
    for counter in T::COUNTERS {
        let of = |value: u64| {
            let mut all = T::default();
            all.set_value(counter.name, value);
            all
        };
        if of(5).value(counter.name).is_none() {
            continue;
        }
        let name = counter.name;
        let mut sum = of(5);
        sum.add(&of(7));
        assert_eq!(sum.value(name), Some(12), "{name} of two workers");
        let in_window = if counter.kind == CounterKind::Count { 2 } else { 7 };
        assert_eq!(of(7).since(&of(5)).value(name), Some(in_window), "{name} in a window");
        assert_eq!(of(5).since(&of(7)).value(name), Some(5), "{name} begun anew");
        checked += 1;
    }
    checked
}

#[test]
fn every_number_adds_up_and_has_a_difference() {
    let links = check::<ClassCounters>() + check::<ClassSnapshot>() + check::<LinkSnapshot>();
    let ports = check::<PortCounts>() + check::<PortSnapshot>() + check::<BufferSnapshot>();
    let cycles = check::<CycleSnapshot>() + check::<StageCycles>() + check::<ClassCycles>();
    let fairdrop = check::<FairDropSnapshot>() + check::<FairDropClass>() + check::<FairDropLink>();
    let cluster =
        check::<ClusterSnapshot>() + check::<ClusterQueueSnapshot>() + check::<Counters>();
    let balancer = check::<BalancerCounters>() + check::<ForwarderSnapshot>();
    let rest = check::<ServiceSnapshot>() + check::<RemovedSnapshot>() + check::<Snapshot>();
    let admission =
        check::<AdmissionCounts>() + check::<AdmissionSnapshot>() + check::<UserSnapshot>();
    for (part, known) in [
        (links, 11),
        (ports, 19),
        (cycles, 8),
        (fairdrop, 11),
        (cluster, 23),
        (balancer, 7),
        (admission, 15),
        (rest, 3),
    ] {
        assert!(part >= known, "{part} numbers where {known} were");
    }
}
