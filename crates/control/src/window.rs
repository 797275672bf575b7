//! What happened between two snapshots of the same router: differences of counters and of delay distributions.
//!
//! Pure: no clock, no socket. `watch`, the lab and later views form their rows here.

use evenkeel_core::Nanos;
use evenkeel_core::measure::Histogram;
use evenkeel_router::snapshot::{
    AdmissionSnapshot, ClassControl, ClassSnapshot, Drops, LinkSnapshot, Snapshot,
};

/// What happened between two snapshots.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Window {
    /// When it ended: the later snapshot's time, ns.
    pub end_ns: u64,
    /// Its length, ns.
    pub length_ns: u64,
    /// Router's name.
    pub router: String,
    /// Links in the order of the later snapshot.
    pub links: Vec<LinkWindow>,
}

/// One link in a window.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LinkWindow {
    /// The port it belongs to.
    pub port: String,
    /// The discipline at the end of the window.
    pub discipline: String,
    /// Scheduler calls that found no, one and several queues busy.
    pub calls: [u64; 3],
    /// The link's admission; `None` on links without.
    pub admission: Option<AdmissionWindow>,
    /// Classes in the order of the configuration.
    pub classes: Vec<ClassWindow>,
}

/// The admission of a link in a window.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AdmissionWindow {
    /// How it stood at the end of the window; counters are since the start.
    pub now: AdmissionSnapshot,
    /// Packets refused in the window, by reason; reasons that did not occur left out.
    pub refused: Drops,
    /// Flows put on the list in the window.
    pub admissions: u64,
}

/// One class of one link in a window. Counts are packets in the window.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClassWindow {
    /// The class's name.
    pub name: String,
    /// Packets offered to the link.
    pub offered: u64,
    /// Packets that left the wire.
    pub sent: u64,
    /// Their IP bytes.
    pub sent_bytes: u64,
    /// Drops by reason; reasons that did not occur in the window left out.
    pub dropped: Drops,
    /// Packets queued at the end of the window.
    pub queued: u64,
    /// Transit delays of the packets that left the queue in the window.
    pub delay: DelayWindow,
    /// What the link's control saw at the end of the window; `None` on links without.
    pub control: Option<ClassControl>,
}

/// Transit delays in a window.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DelayWindow {
    /// Packets measured.
    pub count: u64,
    /// Sum of their delays, ns.
    pub sum_ns: u64,
    /// The largest, ns: exact where it is the largest since the start of the router, else the upper end of its bucket.
    pub max_ns: u64,
    /// (lowest delay of the bucket in ns, packets), ascending, without empty buckets.
    pub buckets: Vec<(u64, u64)>,
}

/// What happened between `earlier` and `later`.
///
/// When the router was started anew in between, everything counts from zero and the window begins with its start. Links and classes
/// that `earlier` lacks, or whose counters went back, count from zero; those that `later` lacks are left out. Linear in the size
/// of the snapshots.
#[must_use]
pub fn between(earlier: &Snapshot, later: &Snapshot) -> Window {
    let elapsed = later.time_ns.saturating_sub(earlier.time_ns);
    let same_life = later.time_ns >= earlier.time_ns && later.uptime_ns >= elapsed;
    let nothing = Snapshot::default();
    let earlier = if same_life { earlier } else { &nothing };
    Window {
        end_ns: later.time_ns,
        length_ns: if same_life { elapsed } else { later.uptime_ns },
        router: later.router.clone(),
        links: later.links.iter().map(|link| link_between(earlier.link(&link.port), link)).collect(),
    }
}

fn link_between(earlier: Option<&LinkSnapshot>, later: &LinkSnapshot) -> LinkWindow {
    let calls_before = earlier.map_or([0; 3], |link| link.calls);
    let went_back = calls_before.iter().zip(&later.calls).any(|(before, after)| before > after);
    let calls_before = if went_back { [0; 3] } else { calls_before };
    LinkWindow {
        port: later.port.clone(),
        discipline: later.discipline.clone(),
        calls: std::array::from_fn(|i| later.calls[i] - calls_before[i]),
        admission: later.admission.as_ref().map(|now| {
            // One that was switched off and on again counts from zero.
            let before = earlier.and_then(|link| link.admission.as_ref());
            let before = before.filter(|before| before.packets <= now.packets);
            AdmissionWindow {
                refused: more(before.map(|before| &before.refused), &now.refused),
                admissions: now.admissions - before.map_or(0, |before| before.admissions),
                now: now.clone(),
            }
        }),
        classes: later
            .classes
            .iter()
            .map(|class| class_between(earlier.and_then(|link| link.class(&class.name)), class))
            .collect(),
    }
}

fn class_between(earlier: Option<&ClassSnapshot>, later: &ClassSnapshot) -> ClassWindow {
    let nothing = ClassSnapshot::default();
    let went_back = |before: &ClassSnapshot| {
        before.in_packets > later.in_packets
            || before.out_packets > later.out_packets
            || before.sent_packets > later.sent_packets
    };
    let before = earlier.filter(|before| !went_back(before)).unwrap_or(&nothing);
    let dropped = more(Some(&before.dropped), &later.dropped);
    ClassWindow {
        name: later.name.clone(),
        offered: later.in_packets - before.in_packets,
        sent: later.sent_packets - before.sent_packets,
        sent_bytes: later.sent_bytes.saturating_sub(before.sent_bytes),
        dropped,
        queued: later.queued_packets,
        delay: delay_between(before, later),
        control: later.control,
    }
}

/// What was added to each counter; those that were not left out.
fn more(before: Option<&Drops>, now: &Drops) -> Drops {
    let had = |reason: &str| before.and_then(|before| before.get(reason)).copied().unwrap_or(0);
    let added = now.iter().map(|(reason, packets)| (reason.clone(), packets.saturating_sub(had(reason))));
    added.filter(|(_, packets)| *packets > 0).collect()
}

fn delay_between(before: &ClassSnapshot, later: &ClassSnapshot) -> DelayWindow {
    let mut old = before.delay_buckets.iter().copied().peekable();
    let mut buckets = Vec::new();
    for &(lowest, packets) in &later.delay_buckets {
        while old.peek().is_some_and(|&(l, _)| l < lowest) {
            old.next();
        }
        let had = old.next_if(|&(l, _)| l == lowest).map_or(0, |(_, n)| n);
        if packets > had {
            buckets.push((lowest, packets - had));
        }
    }
    let max_ns = if later.delay_max_ns > before.delay_max_ns {
        later.delay_max_ns
    } else {
        buckets.last().map_or(0, |&(lowest, _)| upper_end(lowest).min(later.delay_max_ns))
    };
    DelayWindow {
        count: later.out_packets - before.out_packets,
        sum_ns: later.delay_sum_ns.saturating_sub(before.delay_sum_ns),
        max_ns,
        buckets,
    }
}

/// The first delay, ns, that is no longer in the bucket that begins with `lowest`.
fn upper_end(lowest: u64) -> u64 {
    let at = (0..Histogram::BUCKETS).find(|&i| Histogram::bounds(i).1.0 > lowest);
    at.map_or(u64::MAX, |i| Histogram::bounds(i).1.0)
}

impl ClassWindow {
    /// Drops of all reasons.
    #[must_use]
    pub fn dropped_total(&self) -> u64 {
        self.dropped.values().sum()
    }
}

impl DelayWindow {
    /// Mean, microseconds; `None` if no packet left the queue.
    #[must_use]
    pub fn mean_us(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum_ns as f64 / self.count as f64 / 1e3)
    }

    /// Quantile `q` (0 to 1), microseconds, to 3 % and never above the largest; `None` if no packet left the queue.
    #[must_use]
    pub fn quantile_us(&self, q: f64) -> Option<f64> {
        let mut histogram = Histogram::new();
        for &(lowest, packets) in &self.buckets {
            histogram.record_many(Nanos(lowest), packets);
        }
        histogram.quantile(q).map(|delay| delay.0.min(self.max_ns) as f64 / 1e3)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Packets with these delays (us) have left one class called `bulk` on the link `wan`; one drop per 4 packets.
    pub(crate) fn snapshot(time_s: u64, uptime_s: u64, delays_us: &[u64]) -> Snapshot {
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
                    in_packets: n + n / 4 + 1,
                    out_packets: n,
                    sent_packets: n,
                    sent_bytes: n * 1428,
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
        let link = &window.links[0];
        assert_eq!(link.calls, [4, 8, 12]);
        let class = &link.classes[0];
        assert_eq!((class.offered, class.sent, class.sent_bytes, class.dropped_total()), (5, 4, 4 * 1428, 1));
        assert_eq!(class.queued, 1);
        assert_eq!(class.delay.count, 4);
        assert_eq!(class.delay.mean_us(), Some(250.0));
        let p50 = class.delay.quantile_us(0.5).unwrap();
        assert!((p50 - 200.0).abs() < 200.0 / 32.0 + 0.1, "{p50}");
        // The 5 ms of the window before is not this window's.
        let max = class.delay.max_ns;
        assert!((400_000..=425_000).contains(&max), "{max}");
    }

    #[test]
    fn a_new_maximum_is_exact() {
        let window = between(&snapshot(1, 1, &[100]), &snapshot(2, 2, &[100, 777]));
        assert_eq!(window.links[0].classes[0].delay.max_ns, 777_000);
    }

    #[test]
    fn an_idle_window_has_no_delays() {
        let same = snapshot(1, 1, &[100, 200]);
        let mut later = same.clone();
        later.time_ns += 1_000_000_000;
        later.uptime_ns += 1_000_000_000;
        let class = &between(&same, &later).links[0].classes[0];
        assert_eq!(class.delay.mean_us(), None);
        assert_eq!(class.delay.quantile_us(0.99), None);
        assert_eq!((class.sent, class.delay.max_ns), (0, 0));
        assert!(class.dropped.is_empty(), "{:?}", class.dropped);
    }

    #[test]
    fn a_router_started_anew_counts_from_zero() {
        // Counters are higher than before, so only the uptime tells.
        let window = between(&snapshot(10, 10, &[100]), &snapshot(12, 1, &[300, 300, 300]));
        assert_eq!(window.length_ns, 1_000_000_000);
        assert_eq!(window.links[0].classes[0].sent, 3);
        assert_eq!(window.links[0].classes[0].delay.mean_us(), Some(300.0));
    }

    #[test]
    fn a_link_that_was_made_anew_counts_from_zero() {
        let window = between(&snapshot(10, 10, &[100, 100, 100]), &snapshot(11, 11, &[300]));
        assert_eq!(window.links[0].classes[0].sent, 1);
        assert_eq!(window.links[0].calls, [1, 2, 3]);
        let mut before = snapshot(10, 10, &[100]);
        before.links.clear();
        assert_eq!(between(&before, &snapshot(11, 11, &[300])).links[0].classes[0].sent, 1);
    }

    #[test]
    fn consecutive_windows_add_up_to_the_whole() {
        let delays: Vec<u64> = (0..60).map(|i| 50 + i * 37 % 900).collect();
        let at = |n: usize| snapshot(n as u64, n as u64, &delays[..n]);
        let whole = between(&at(0), &at(60));
        let mut sent = 0;
        let mut packets = 0;
        for (from, to) in [(0, 7), (7, 7), (7, 31), (31, 60)] {
            let class = between(&at(from), &at(to)).links[0].classes[0].clone();
            sent += class.sent;
            packets += class.delay.buckets.iter().map(|(_, n)| n).sum::<u64>();
        }
        assert_eq!(sent, whole.links[0].classes[0].sent);
        assert_eq!(packets, 60);
    }
}
