//! Conservation: the counters of a router must add up.

use evenkeel_router::Snapshot;
use evenkeel_router::snapshot::{LinkSnapshot, PortSnapshot};

/// Counters of a router that do not add up, in words; empty if all do.
pub fn conservation(snapshot: &Snapshot) -> Vec<String> {
    let ports = snapshot.ports.iter().filter_map(port_identity);
    let links = snapshot.links.iter().filter_map(link_identity);
    let admissions = snapshot.links.iter().flat_map(admission_identities);
    ports
        .chain(links)
        .chain(admissions)
        .map(|text| format!("router {}: {text}", snapshot.router))
        .collect()
}

fn port_identity(port: &PortSnapshot) -> Option<String> {
    let dropped: u64 = port.dropped.values().sum();
    let out = port.to_host + port.forwarded + port.waiting + dropped;
    (port.rx_packets != out).then(|| {
        format!(
            "port {}: received {} != to host {} + forwarded {} + waiting {} + dropped {dropped}",
            port.name, port.rx_packets, port.to_host, port.forwarded, port.waiting
        )
    })
}

fn link_identity(link: &LinkSnapshot) -> Option<String> {
    let (mut offered, mut sent, mut dropped, mut queued) = (0, 0, 0, 0);
    for class in &link.classes {
        offered += class.in_packets;
        sent += class.sent_packets;
        dropped += class.dropped.values().sum::<u64>();
        queued += class.queued_packets;
    }
    (offered != sent + dropped + queued + link.in_ring).then(|| {
        format!(
            "link {}: in {offered} != sent {sent} + dropped {dropped} + queued {queued} + in the \
             ring {}",
            link.port, link.in_ring
        )
    })
}

/// What the admission of a link decided upon it let pass, sent elsewhere or refused; and what it
/// refused its classes dropped, reason by reason. They may have dropped more: counters of an
/// admission begin anew when it is replaced.
fn admission_identities(link: &LinkSnapshot) -> Vec<String> {
    let Some(admission) = &link.admission else { return Vec::new() };
    let passed: u64 = admission.passed.values().sum();
    let refused: u64 = admission.refused.values().sum();
    let mut wrong = Vec::new();
    if admission.packets != passed + refused + admission.diverted_packets {
        wrong.push(format!(
            "link {}: admission decided upon {} != passed {passed} + refused {refused} + diverted \
             {}",
            link.port, admission.packets, admission.diverted_packets
        ));
    }
    for (reason, refused) in &admission.refused {
        let dropped: u64 = link.classes.iter().filter_map(|class| class.dropped.get(reason)).sum();
        if dropped < *refused {
            wrong.push(format!(
                "link {}: refused {refused} as {reason}, but dropped {dropped}",
                link.port
            ));
        }
    }
    wrong
}

/// Everything that a router dropped or lost between two snapshots, whatever the reason and
/// wherever.
pub fn lost(earlier: &Snapshot, later: &Snapshot) -> u64 {
    let total = |snapshot: &Snapshot| {
        let ports = snapshot.ports.iter().map(|port| {
            port.ring_loss
                + port.handed_lost
                + port.dropped.values().sum::<u64>()
                + port.tx_dropped.values().sum::<u64>()
        });
        let links = snapshot
            .links
            .iter()
            .flat_map(|link| &link.classes)
            .map(|c| c.dropped.values().sum::<u64>());
        ports.chain(links).sum::<u64>()
    };
    total(later).saturating_sub(total(earlier))
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_core::admit::AdmissionCounts;
    use evenkeel_core::measure::ClassCounters;
    use evenkeel_router::snapshot::{AdmissionSnapshot, ClassSnapshot, PortCounts};

    #[test]
    fn one_packet_missing_anywhere_is_noticed() {
        let class = ClassSnapshot {
            counts: ClassCounters { in_packets: 100, sent_packets: 80, ..ClassCounters::default() },
            dropped: [("queue_full".to_owned(), 10)].into(),
            queued_packets: 6,
            ..ClassSnapshot::default()
        };
        let link = LinkSnapshot {
            port: "sink".into(),
            in_ring: 4,
            classes: vec![class],
            ..LinkSnapshot::default()
        };
        let port = PortSnapshot {
            counts: PortCounts {
                rx_packets: 110,
                to_host: 3,
                forwarded: 100,
                waiting: 1,
                ..PortCounts::default()
            },
            dropped: [("ttl_expired".to_owned(), 6)].into(),
            ..PortSnapshot::default()
        };
        let good = Snapshot { ports: vec![port], links: vec![link], ..Snapshot::default() };
        assert_eq!(conservation(&good), Vec::<String>::new());
        let mut bad = good.clone();
        bad.links[0].in_ring = 3;
        assert!(
            conservation(&bad)[0].contains("link sink: in 100 != sent 80"),
            "{:?}",
            conservation(&bad)
        );
        let mut bad = good.clone();
        bad.ports[0].counts.rx_packets = 111;
        assert!(conservation(&bad)[0].contains("received 111"));
        assert_eq!(lost(&Snapshot::default(), &good), 16);
        let mut refusing = good;
        refusing.links[0].classes[0].dropped.insert("fair_rate_low".to_owned(), 7);
        refusing.links[0].classes[0].counts.in_packets += 7;
        refusing.links[0].admission = Some(AdmissionSnapshot {
            counts: AdmissionCounts {
                packets: 107,
                diverted_packets: 1,
                ..AdmissionCounts::default()
            },
            passed: [("protected".to_owned(), 99)].into(),
            refused: [("fair_rate_low".to_owned(), 7)].into(),
            ..AdmissionSnapshot::default()
        });
        assert_eq!(conservation(&refusing), Vec::<String>::new());
        let admission = refusing.links[0].admission.as_mut().unwrap();
        admission.refused.insert("fair_rate_low".to_owned(), 8);
        let told = conservation(&refusing);
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(
            told[0].contains("decided upon 107 != passed 99 + refused 8 + diverted 1"),
            "{told:?}"
        );
        assert!(told[1].contains("refused 8 as fair_rate_low, but dropped 7"), "{told:?}");
    }
}
