//! Many windows as one, for curves of days and months.
//!
//! Rates are means over the time; delays and what waits are those of the worst window, which is
//! what a curve of a month must not hide.

use std::collections::BTreeMap;

use crate::rates::{AdmissionRates, ClassRates, LinkRates, Rates, RouterRates};

/// Windows that follow each other as one, with the links and classes of the last; `None` of none.
#[must_use]
pub fn folded(windows: &[RouterRates]) -> Option<RouterRates> {
    let last = windows.last()?;
    let length_s: f64 = windows.iter().map(|window| window.length_s).sum();
    let part = |window: &RouterRates| window.length_s / length_s.max(f64::MIN_POSITIVE);
    let mut all = RouterRates {
        buffers_used: 0.0,
        ring_loss_pps: 0.0,
        dropped_before: BTreeMap::new(),
        length_s,
        links: last.links.iter().map(emptied).collect(),
        ..last.clone()
    };
    for window in windows {
        let part = part(window);
        all.buffers_used = all.buffers_used.max(window.buffers_used);
        all.ring_loss_pps += window.ring_loss_pps * part;
        add_all(&mut all.dropped_before, &window.dropped_before, part);
        for link in &mut all.links {
            if let Some(of) = window.links.iter().find(|of| of.link == link.link) {
                add_link(link, of, part);
            }
        }
    }
    Some(all)
}

/// The link with nothing counted.
fn emptied(link: &LinkRates) -> LinkRates {
    let class = |of: &ClassRates| ClassRates { class: of.class.clone(), rates: Rates::default() };
    let admission = |of: &AdmissionRates| AdmissionRates { refused: [].into(), ..of.clone() };
    LinkRates {
        all: Rates::default(),
        dropped: BTreeMap::new(),
        lost: 0.0,
        admission: link.admission.as_ref().map(admission),
        classes: link.classes.iter().map(class).collect(),
        ..link.clone()
    }
}

fn add_link(link: &mut LinkRates, of: &LinkRates, part: f64) {
    add(&mut link.all, &of.all, part);
    add_all(&mut link.dropped, &of.dropped, part);
    link.lost += of.lost * part;
    if let (Some(admission), Some(of)) = (&mut link.admission, &of.admission) {
        add_all(&mut admission.refused, &of.refused, part);
    }
    for (at, class) in link.classes.iter_mut().enumerate() {
        // Nearly always at the same place.
        let named = |of: &&ClassRates| of.class == class.class;
        let found = of.classes.get(at).filter(named).or_else(|| of.classes.iter().find(named));
        if let Some(of) = found {
            add(&mut class.rates, &of.rates, part);
        }
    }
}

fn add(to: &mut Rates, of: &Rates, part: f64) {
    to.sent_bps += of.sent_bps * part;
    to.offered_bps += of.offered_bps * part;
    to.sent_pps += of.sent_pps * part;
    to.dropped_pps += of.dropped_pps * part;
    to.marked_pps += of.marked_pps * part;
    to.queued_packets = to.queued_packets.max(of.queued_packets);
    let worst = |a: Option<f64>, b: Option<f64>| match (a, b) {
        (Some(a), Some(b)) => Some(a.max(b)),
        (a, b) => a.or(b),
    };
    to.p50_us = worst(to.p50_us, of.p50_us);
    to.p99_us = worst(to.p99_us, of.p99_us);
}

fn add_all(to: &mut BTreeMap<String, f64>, of: &BTreeMap<String, f64>, part: f64) {
    for (name, rate) in of {
        *to.entry(name.clone()).or_default() += rate * part;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(length_s: f64, bps: f64, p99_us: Option<f64>, classes: &[&str]) -> RouterRates {
        let rates = Rates { sent_bps: bps, p99_us, queued_packets: 3, ..Rates::default() };
        let class = |name: &&str| ClassRates { class: (*name).to_owned(), rates };
        let link = LinkRates {
            link: "wan".into(),
            all: rates,
            dropped: [("queue_full".to_owned(), bps)].into(),
            classes: classes.iter().map(class).collect(),
            ..LinkRates::default()
        };
        RouterRates { length_s, links: vec![link], ..RouterRates::default() }
    }

    #[test]
    fn rates_are_means_over_the_time_and_delays_the_worst() {
        let windows = [
            window(1.0, 40.0, Some(9.0), &["a", "gone", "b"]),
            window(3.0, 0.0, None, &["a", "b"]),
        ];
        let all = folded(&windows).unwrap();
        let link = &all.links[0];
        assert_eq!((all.length_s, link.all.sent_bps), (4.0, 10.0));
        assert_eq!((link.all.p99_us, link.all.queued_packets), (Some(9.0), 3));
        assert_eq!(link.dropped["queue_full"], 10.0);
        let names: Vec<_> = link.classes.iter().map(|class| class.class.as_str()).collect();
        assert_eq!(names, ["a", "b"]);
        assert!(link.classes.iter().all(|class| class.rates.sent_bps == 10.0), "{link:?}");
        assert_eq!(folded(&[]), None);
    }
}
