//! Whether the numbers will mean, and did mean, what they say.
//!
//! Before: some packets of each flow are sent, and the router's own counters must show them; so it was the router, and not the
//! kernel beside it, that forwarded. None may arrive twice. After: nothing disappeared, at each port, on each link, and from host to host.

use std::time::{Duration, Instant};

use evenkeel_core::{BitRate, Bytes, Nanos};
use evenkeel_ports::sys;
use evenkeel_router::Snapshot;
use evenkeel_router::snapshot::{LinkSnapshot, PortSnapshot};
use evenkeel_traffic::{Process, SourceConfig};

use crate::LabError;
use crate::flow::{FlowSpec, Sender, Sink};
use crate::router_process::RouterProcess;
use crate::sampling::Place;

/// Packets of the check.
const PROBES: u64 = 10;
/// Length of each: enough for a stamp behind IPv6 headers.
const PROBE_LEN: Bytes = Bytes(128);
/// How long the last of them may take. A class may be held for long.
const PATIENCE: Duration = Duration::from_secs(5);

/// Sends some packets of a flow and compares what the routers on its path counted with what arrived. Returns the packets that the
/// routers forwarded.
///
/// # Errors
/// [`LabError::Check`] if a router did not forward them, none arrived, or more arrived than were sent.
pub(crate) fn router_forwards(
    spec: &FlowSpec,
    along: &[Place],
    routers: &mut [RouterProcess],
) -> Result<u64, LabError> {
    let before = counted(along, routers)?;
    let sink = Sink::start(spec)?;
    let now = sys::monotonic_now();
    let config = SourceConfig {
        start: now,
        // One packet each millisecond.
        stop: now + Nanos::from_millis(PROBES),
        random_phase: false,
        ..SourceConfig::new(Process::Cbr { jitter_ppm: 0 }, BitRate(PROBE_LEN.0 * 8 * 1_000), PROBE_LEN)
    };
    let sender = Sender::start(spec, config)?;
    let begin = Instant::now();
    let mut arrived = 0;
    loop {
        std::thread::sleep(Duration::from_millis(20));
        arrived += sink.take().packets;
        let done = sender.is_finished() && arrived >= sender.sent().packets;
        if done || begin.elapsed() > PATIENCE {
            break;
        }
    }
    // A second copy made by the kernel would have come by now, or comes within this.
    std::thread::sleep(Duration::from_millis(20));
    arrived += sink.take().packets;
    let sent = sender.sent().packets;
    let after = counted(along, routers)?;
    verdict(&spec.name, along, sent, arrived, &before, &after)
}

/// Packets that each place's class was offered so far.
fn counted(along: &[Place], routers: &mut [RouterProcess]) -> Result<Vec<u64>, LabError> {
    along
        .iter()
        .map(|place| {
            let router = routers.iter_mut().find(|router| router.name == place.router).ok_or_else(|| {
                LabError::Check(format!("router {} of the path does not run", place.router))
            })?;
            let snapshot = router.snapshot()?;
            let class = snapshot.link(&place.link).and_then(|link| link.class(&place.class));
            Ok(class.map_or(0, |class| class.in_packets))
        })
        .collect()
}

fn verdict(
    flow: &str,
    along: &[Place],
    sent: u64,
    arrived: u64,
    before: &[u64],
    after: &[u64],
) -> Result<u64, LabError> {
    let mut forwarded = 0;
    for ((place, before), after) in along.iter().zip(before).zip(after) {
        let Place { router, link, class } = place;
        let count = after.saturating_sub(*before);
        if count < sent {
            let who = if arrived > 0 { "the kernel forwarded the others" } else { "none arrived" };
            return Err(LabError::Check(format!(
                "{flow}: router {router} counted {count} of {sent} probe packets in class {class} of link {link}; {who}"
            )));
        }
        forwarded += count;
    }
    if arrived == 0 {
        return Err(LabError::Check(format!("{flow}: none of {sent} probe packets arrived")));
    }
    if arrived > sent {
        return Err(LabError::Check(format!(
            "{flow}: {arrived} packets arrived of {sent} probe packets: the kernel forwards a second copy"
        )));
    }
    Ok(forwarded)
}

/// What does not add up in the counters of a router; empty if all does.
pub(crate) fn conservation(snapshot: &Snapshot) -> Vec<String> {
    let ports = snapshot.ports.iter().filter_map(port_identity);
    let links = snapshot.links.iter().filter_map(link_identity);
    ports.chain(links).map(|text| format!("router {}: {text}", snapshot.router)).collect()
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
            "link {}: in {offered} != sent {sent} + dropped {dropped} + queued {queued} + in the ring {}",
            link.port, link.in_ring
        )
    })
}

/// Everything that a router dropped or lost between two snapshots, whatever the reason and wherever.
pub(crate) fn lost(earlier: &Snapshot, later: &Snapshot) -> u64 {
    let total = |snapshot: &Snapshot| {
        let ports = snapshot.ports.iter().map(|port| {
            port.ring_loss + port.dropped.values().sum::<u64>() + port.tx_dropped.values().sum::<u64>()
        });
        let links =
            snapshot.links.iter().flat_map(|link| &link.classes).map(|c| c.dropped.values().sum::<u64>());
        ports.chain(links).sum::<u64>()
    };
    total(later).saturating_sub(total(earlier))
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_router::snapshot::ClassSnapshot;

    fn place() -> [Place; 1] {
        [Place { router: "r1".into(), link: "sink".into(), class: "c".into() }]
    }

    #[test]
    fn probes_tell_who_forwarded() {
        let check = |sent, arrived, after: u64| verdict("a", &place(), sent, arrived, &[5], &[5 + after]);
        assert_eq!(check(10, 10, 10).expect("as it should be"), 10);
        assert_eq!(check(10, 9, 12).expect("a drop and foreign packets are no error"), 12);
        let text = |result: Result<u64, LabError>| result.expect_err("it must be noticed").to_string();
        assert!(text(check(10, 10, 0)).contains("the kernel forwarded"));
        assert!(text(check(10, 0, 0)).contains("none arrived"));
        assert!(text(check(10, 0, 10)).contains("none of 10"));
        assert!(text(check(10, 20, 10)).contains("second copy"));
    }

    #[test]
    fn one_packet_missing_anywhere_is_noticed() {
        let class = ClassSnapshot {
            in_packets: 100,
            sent_packets: 80,
            dropped: [("queue_full".to_owned(), 10)].into(),
            queued_packets: 6,
            ..ClassSnapshot::default()
        };
        let link =
            LinkSnapshot { port: "sink".into(), in_ring: 4, classes: vec![class], ..LinkSnapshot::default() };
        let port = PortSnapshot {
            rx_packets: 110,
            to_host: 3,
            forwarded: 100,
            waiting: 1,
            dropped: [("ttl_expired".to_owned(), 6)].into(),
            ..PortSnapshot::default()
        };
        let good = Snapshot { ports: vec![port], links: vec![link], ..Snapshot::default() };
        assert_eq!(conservation(&good), Vec::<String>::new());
        let mut bad = good.clone();
        bad.links[0].in_ring = 3;
        assert!(conservation(&bad)[0].contains("link sink: in 100 != sent 80"), "{:?}", conservation(&bad));
        let mut bad = good.clone();
        bad.ports[0].rx_packets = 111;
        assert!(conservation(&bad)[0].contains("received 111"));
        assert_eq!(lost(&Snapshot::default(), &good), 16);
    }
}
