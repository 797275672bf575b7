//! What happened between two snapshots of the same router: differences of counters and of delay
//! distributions.
//!
//! Pure: no clock, no socket. `watch`, the worlds and later views form their rows here.

use evenkeel_core::measure::Tally;

use crate::Snapshot;

/// What happened between two snapshots.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Window {
    /// When it ended: the later snapshot's time, ns.
    pub end_ns: u64,
    /// Its length, ns.
    pub length_ns: u64,
    /// What was counted in it; what is no count is as it was at its end.
    pub counted: Snapshot,
}

/// What happened between `earlier` and `later`.
///
/// When the router was started anew in between, everything counts from zero and the window begins
/// with its start. Links and classes that `earlier` lacks, or whose counters went back, count from
/// zero; those that `later` lacks are left out. Linear in the size of the snapshots.
#[must_use]
pub fn between(earlier: &Snapshot, later: &Snapshot) -> Window {
    let elapsed = later.time_ns.saturating_sub(earlier.time_ns);
    let same_life = later.time_ns >= earlier.time_ns && later.uptime_ns >= elapsed;
    Window {
        end_ns: later.time_ns,
        length_ns: if same_life { elapsed } else { later.uptime_ns },
        counted: if same_life { later.since(earlier) } else { later.clone() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::{ClassSnapshot, LinkSnapshot};
    use evenkeel_core::measure::{ClassCounters, Histogram};
    use evenkeel_core::{Bytes, Nanos};

    /// Packets with these delays (us) have left one class called `bulk` on the link `wan`; one drop
    /// per 4 packets.
    fn snapshot(time_s: u64, uptime_s: u64, delays_us: &[u64]) -> Snapshot {
        let mut histogram = Histogram::new();
        for us in delays_us {
            histogram.record(Nanos::from_micros(*us));
        }
        let n = delays_us.len() as u64;
        Snapshot {
            time_ns: time_s * 1_000_000_000,
            uptime_ns: uptime_s * 1_000_000_000,
            router: "r1".to_owned(),
            links: vec![LinkSnapshot {
                port: "wan".to_owned(),
                discipline: "lct".to_owned(),
                calls: [n, 2 * n, 3 * n],
                classes: vec![ClassSnapshot {
                    name: "bulk".to_owned(),
                    counts: ClassCounters {
                        in_packets: n + n / 4 + 1,
                        out_packets: n,
                        sent_packets: n,
                        sent_bytes: Bytes(n * 1428),
                        ..ClassCounters::default()
                    },
                    dropped: [("queue_full".to_owned(), n / 4)].into(),
                    queued_packets: 1,
                    delay_sum_ns: delays_us.iter().sum::<u64>() * 1_000,
                    delay_max_ns: delays_us.iter().max().copied().unwrap_or(0) * 1_000,
                    delay_buckets: histogram
                        .buckets()
                        .map(|(i, packets)| (Histogram::bounds(i).0.0, packets))
                        .collect(),
                    ..ClassSnapshot::default()
                }],
                ..LinkSnapshot::default()
            }],
            ..Snapshot::default()
        }
    }

    #[test]
    fn a_window_holds_what_was_added_and_nothing_else() {
        let first = snapshot(10, 10, &[100, 100, 100, 5000]);
        let second = snapshot(11, 11, &[100, 100, 100, 5000, 200, 200, 200, 400]);
        let window = between(&first, &second);
        assert_eq!((window.end_ns, window.length_ns), (11_000_000_000, 1_000_000_000));
        let link = &window.counted.links[0];
        assert_eq!(link.calls, [4, 8, 12]);
        let class = &link.classes[0];
        assert_eq!(
            (class.in_packets, class.sent_packets, class.sent_bytes.0, class.dropped_total()),
            (5, 4, 4 * 1428, 1)
        );
        assert_eq!(class.queued_packets, 1);
        assert_eq!(class.out_packets, 4);
        assert_eq!(class.delay_mean_us(), Some(250.0));
        let p50 = class.delay_quantile_us(0.5).unwrap();
        assert!((p50 - 200.0).abs() < 200.0 / 32.0 + 0.1, "{p50}");
        // The 5 ms of the window before is not this window's.
        let max = class.delay_max_ns;
        assert!((400_000..=425_000).contains(&max), "{max}");
    }

    #[test]
    fn a_new_maximum_is_exact() {
        let window = between(&snapshot(1, 1, &[100]), &snapshot(2, 2, &[100, 777]));
        assert_eq!(window.counted.links[0].classes[0].delay_max_ns, 777_000);
    }

    #[test]
    fn an_idle_window_has_no_delays() {
        let same = snapshot(1, 1, &[100, 200]);
        let mut later = same.clone();
        later.time_ns += 1_000_000_000;
        later.uptime_ns += 1_000_000_000;
        let class = &between(&same, &later).counted.links[0].classes[0];
        assert_eq!(class.delay_mean_us(), None);
        assert_eq!(class.delay_quantile_us(0.99), None);
        assert_eq!((class.sent_packets, class.delay_max_ns), (0, 0));
        assert!(class.dropped.is_empty(), "{:?}", class.dropped);
    }

    #[test]
    fn a_router_started_anew_counts_from_zero() {
        // Counters are higher than before, so only the uptime tells.
        let window = between(&snapshot(10, 10, &[100]), &snapshot(12, 1, &[300, 300, 300]));
        assert_eq!(window.length_ns, 1_000_000_000);
        assert_eq!(window.counted.links[0].classes[0].sent_packets, 3);
        assert_eq!(window.counted.links[0].classes[0].delay_mean_us(), Some(300.0));
    }

    #[test]
    fn a_link_that_was_made_anew_counts_from_zero() {
        let window = between(&snapshot(10, 10, &[100, 100, 100]), &snapshot(11, 11, &[300]));
        assert_eq!(window.counted.links[0].classes[0].sent_packets, 1);
        assert_eq!(window.counted.links[0].calls, [1, 2, 3]);
        let mut before = snapshot(10, 10, &[100]);
        before.links.clear();
        assert_eq!(
            between(&before, &snapshot(11, 11, &[300])).counted.links[0].classes[0].sent_packets,
            1
        );
    }

    #[test]
    fn consecutive_windows_add_up_to_the_whole() {
        let delays: Vec<u64> = (0..60).map(|i| 50 + i * 37 % 900).collect();
        let at = |n: usize| snapshot(n as u64, n as u64, &delays[..n]);
        let whole = between(&at(0), &at(60));
        let mut sent = 0;
        let mut packets = 0;
        for (from, to) in [(0, 7), (7, 7), (7, 31), (31, 60)] {
            let class = between(&at(from), &at(to)).counted.links[0].classes[0].clone();
            sent += class.sent_packets;
            packets += class.delay_buckets.iter().map(|(_, n)| n).sum::<u64>();
        }
        assert_eq!(sent, whole.counted.links[0].classes[0].sent_packets);
        assert_eq!(packets, 60);
    }
}
