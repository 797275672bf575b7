//! A window in the numbers that people watch: rates, delays, losses.
//!
//! Pure. The table of `evenkeel top`, the page and the API of `evenkeel serve` show these.

use std::collections::BTreeMap;

use evenkeel_core::measure::add_buckets;
use evenkeel_router::snapshot::{AdmissionSnapshot, ClassSnapshot, LinkSnapshot};
use evenkeel_router::window::Window;
use serde::{Deserialize, Serialize};

/// Classes of a link that are told one by one; of more the busiest are, and the sums of the others.
pub const MAX_CLASSES: usize = 64;
/// What the sums of further classes are called. No class of a file can have this name.
pub const OTHERS: &str = "(others)";

/// What a router did in a window.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct RouterRates {
    /// Its end, ms since 1970 by the clock of who asked.
    pub time_ms: u64,
    /// Its length, s.
    pub length_s: f64,
    /// How long the router has been running at its end, s.
    pub uptime_s: f64,
    /// Frame buffers in use, a part of all.
    pub buffers_used: f64,
    /// Frames that the kernel lost before the router saw them, per second.
    pub ring_loss_pps: f64,
    /// Packets dropped before any link, per second, by reason.
    pub dropped_before: BTreeMap<String, f64>,
    /// The links in the order of the configuration.
    pub links: Vec<LinkRates>,
}

/// What an outgoing link did in a window.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct LinkRates {
    /// Its port.
    pub link: String,
    /// The discipline.
    pub discipline: String,
    /// What its wire may carry, bit/s; `None`: unpaced.
    pub limit_bps: Option<u64>,
    /// All of its classes together.
    #[serde(flatten)]
    pub all: Rates,
    /// Packets dropped per second, by reason.
    pub dropped: BTreeMap<String, f64>,
    /// The part of its time that was lost because the worker came too late.
    #[serde(default)]
    pub lost: f64,
    /// Who may enter; `None`: everybody.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub admission: Option<AdmissionRates>,
    /// The classes in the order of the configuration.
    pub classes: Vec<ClassRates>,
}

/// What a class of a link did in a window.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct ClassRates {
    /// Its name.
    pub class: String,
    /// The numbers.
    #[serde(flatten)]
    pub rates: Rates,
}

/// What left, waits and was lost.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Rates {
    /// What left the wire, bit/s of IP.
    pub sent_bps: f64,
    /// What came, bit/s of IP.
    pub offered_bps: f64,
    /// Packets that left the wire, per second.
    pub sent_pps: f64,
    /// Packets dropped per second.
    pub dropped_pps: f64,
    /// Packets marked (ECN) per second.
    pub marked_pps: f64,
    /// Packets that wait at the end of the window.
    pub queued_packets: u64,
    /// Half of the packets stayed no longer in the router, us; `None`: none left.
    pub p50_us: Option<f64>,
    /// 99 of 100 packets stayed no longer, us.
    pub p99_us: Option<f64>,
}

/// The admission of a link in a window.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct AdmissionRates {
    /// What a flow could have, bit/s.
    pub fair_rate_bps: u64,
    /// Below this new flows are refused, bit/s.
    pub min_fair_rate_bps: u64,
    /// The priority load, a part of the capacity.
    pub priority_load: f64,
    /// Above this new flows are refused.
    pub max_priority_load: f64,
    /// Why new flows are refused now; `None`: they are not.
    pub congested: Option<String>,
    /// Flows that are protected.
    pub protected: u64,
    /// Packets refused per second, by reason.
    pub refused: BTreeMap<String, f64>,
}

impl RouterRates {
    /// Of a window that ended `time_ms` after 1970.
    #[must_use]
    pub fn of(window: &Window, time_ms: u64) -> Self {
        let counted = &window.counted;
        let length_s = window.length_ns as f64 / 1e9;
        let mut dropped_before = BTreeMap::new();
        for (reason, n) in counted.ports.iter().flat_map(|port| &port.dropped) {
            *dropped_before.entry(reason.clone()).or_default() += per_second(*n, length_s);
        }
        let buffers = counted.buffers;
        let used = buffers.total.saturating_sub(buffers.free + buffers.lent);
        Self {
            time_ms,
            length_s,
            uptime_s: counted.uptime_ns as f64 / 1e9,
            buffers_used: used as f64 / buffers.total.max(1) as f64,
            ring_loss_pps: per_second(counted.ports.iter().map(|of| of.ring_loss).sum(), length_s),
            dropped_before,
            links: counted.links.iter().map(|link| LinkRates::of(link, length_s)).collect(),
        }
    }
}

impl LinkRates {
    fn of(link: &LinkSnapshot, length_s: f64) -> Self {
        let mut sum = ClassSnapshot::default();
        for class in &link.classes {
            count_too(&mut sum, class);
        }
        Self {
            link: link.port.clone(),
            discipline: link.discipline.clone(),
            limit_bps: link.rate_bps,
            all: Rates::of(&sum, length_s),
            dropped: by_second(&sum.dropped, length_s),
            lost: per_second(link.lost_ns, length_s) / 1e9,
            admission: link.admission.as_ref().map(|seen| AdmissionRates::of(seen, length_s)),
            classes: classes(link, length_s),
        }
    }
}

impl AdmissionRates {
    fn of(seen: &AdmissionSnapshot, length_s: f64) -> Self {
        Self {
            fair_rate_bps: seen.fair_rate_bps,
            min_fair_rate_bps: seen.min_fair_rate_bps,
            priority_load: seen.priority_load,
            max_priority_load: seen.max_priority_load,
            congested: seen.congested.clone(),
            protected: seen.protected,
            refused: by_second(&seen.refused, length_s),
        }
    }
}

impl Rates {
    fn of(class: &ClassSnapshot, length_s: f64) -> Self {
        let counts = &class.counts;
        Self {
            sent_bps: per_second(counts.sent_bytes.0, length_s) * 8.0,
            offered_bps: per_second(counts.in_bytes.0, length_s) * 8.0,
            sent_pps: per_second(counts.sent_packets, length_s),
            dropped_pps: per_second(class.dropped_total(), length_s),
            marked_pps: per_second(counts.marked_packets, length_s),
            queued_packets: class.queued_packets,
            p50_us: class.delay_quantile_us(0.5),
            p99_us: class.delay_quantile_us(0.99),
        }
    }
}

/// The classes of a link, of many the busiest.
fn classes(link: &LinkSnapshot, length_s: f64) -> Vec<ClassRates> {
    let told = |class: &ClassSnapshot| ClassRates {
        class: class.name.clone(),
        rates: Rates::of(class, length_s),
    };
    if link.classes.len() <= MAX_CLASSES {
        return link.classes.iter().map(told).collect();
    }
    let mut busiest: Vec<usize> = (0..link.classes.len()).collect();
    busiest.sort_by_key(|&at| {
        let class = &link.classes[at];
        std::cmp::Reverse((class.in_bytes.0 + class.sent_bytes.0, class.queued_packets))
    });
    let mut others = ClassSnapshot { name: OTHERS.to_owned(), ..ClassSnapshot::default() };
    for &at in &busiest[MAX_CLASSES..] {
        count_too(&mut others, &link.classes[at]);
    }
    busiest.truncate(MAX_CLASSES);
    busiest.sort_unstable();
    busiest.iter().map(|&at| &link.classes[at]).chain([&others]).map(told).collect()
}

/// Adds what another class has counted, and its delays.
fn count_too(sum: &mut ClassSnapshot, class: &ClassSnapshot) {
    use evenkeel_core::measure::Tally as _;
    sum.counts.add(&class.counts);
    sum.dropped.add(&class.dropped);
    sum.queued_packets += class.queued_packets;
    sum.delay_max_ns = sum.delay_max_ns.max(class.delay_max_ns);
    add_buckets(&mut sum.delay_buckets, &class.delay_buckets);
}

fn by_second(counts: &BTreeMap<String, u64>, length_s: f64) -> BTreeMap<String, f64> {
    counts.iter().map(|(name, n)| (name.clone(), per_second(*n, length_s))).collect()
}

fn per_second(count: u64, length_s: f64) -> f64 {
    if length_s > 0.0 { count as f64 / length_s } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_core::Bytes;
    use evenkeel_core::measure::ClassCounters;
    use evenkeel_router::Snapshot;

    fn class(name: String, packets: u64, delay_ns: u64) -> ClassSnapshot {
        ClassSnapshot {
            name,
            counts: ClassCounters {
                in_packets: packets + 2,
                in_bytes: Bytes((packets + 2) * 1_000),
                out_packets: packets,
                marked_packets: 1,
                ..ClassCounters::of_sent(packets, Bytes(packets * 1_000))
            },
            dropped: [("queue_full".to_owned(), 2)].into(),
            delay_max_ns: delay_ns,
            delay_buckets: vec![(delay_ns, packets)],
            ..ClassSnapshot::default()
        }
    }

    fn of(classes: Vec<ClassSnapshot>) -> RouterRates {
        let link = LinkSnapshot { port: "wan".into(), classes, ..LinkSnapshot::default() };
        let counted = Snapshot { links: vec![link], ..Snapshot::default() };
        let window = Window { end_ns: 9, length_ns: 2_000_000_000, counted };
        RouterRates::of(&window, 1)
    }

    #[test]
    fn counts_become_rates_and_links_sum_their_classes() {
        let rates = of(vec![class("a".into(), 100, 1 << 20), class("b".into(), 300, 1 << 22)]);
        let link = &rates.links[0];
        assert_eq!(link.classes[0].rates.sent_bps, 400_000.0);
        assert_eq!(link.all.sent_bps, 1_600_000.0);
        assert_eq!(link.all.sent_pps, 200.0);
        assert_eq!((link.all.dropped_pps, link.all.marked_pps), (2.0, 1.0));
        assert_eq!(link.dropped["queue_full"], 2.0);
        // Three quarters of the packets are of the slower class.
        assert_eq!(link.all.p50_us, link.classes[1].rates.p50_us);
        assert!(link.classes[0].rates.p99_us < link.classes[1].rates.p50_us);
    }

    #[test]
    fn of_many_classes_the_busiest_are_told_and_the_sum_stays() {
        let many: Vec<_> = (0..1_024).map(|n| class(format!("c{n}"), n, 1 << 20)).collect();
        let sum: u64 = many.iter().map(|class| class.sent_packets).sum();
        let rates = of(many);
        let told = &rates.links[0].classes;
        assert_eq!(told.len(), MAX_CLASSES + 1);
        assert_eq!(told[0].class, "c960");
        assert_eq!(told[MAX_CLASSES].class, OTHERS);
        let all: f64 = told.iter().map(|class| class.rates.sent_pps).sum();
        assert_eq!(all, sum as f64 / 2.0);
    }

    #[test]
    fn an_empty_window_divides_by_nothing() {
        let link = LinkSnapshot { classes: vec![ClassSnapshot::default()], ..Default::default() };
        let counted = Snapshot { links: vec![link], ..Snapshot::default() };
        let rates = RouterRates::of(&Window { counted, ..Window::default() }, 0);
        assert_eq!(rates.links[0].all, Rates::default());
        assert_eq!(rates.buffers_used, 0.0);
    }
}
