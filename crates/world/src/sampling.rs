//! From counters of routers, senders and sinks to the rows of a result: pure, given the snapshots.

use std::collections::HashMap;

use evenkeel_config::Work;
use evenkeel_core::schedule::LinuxConfig;
use evenkeel_core::{FlowKey, Nanos};
use evenkeel_report::{AdmissionSample, CallsSample, ControlSample, CycleSample, Delays, Sample};
use evenkeel_router::snapshot::ClassSnapshot;
use evenkeel_router::{Snapshot, window};
use evenkeel_scenario::{Scenario, Tool, Traffic};
use thiserror::Error;

use crate::arrived::{Arrived, HostDelays};

/// A class on an outgoing link of a router.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct ClassAtLink {
    /// The router.
    pub router: String,
    /// The link: its port's name.
    pub link: String,
    /// The class.
    pub class: String,
}

/// No path leads from the source of a flow to its destination.
#[derive(Clone, Debug, Error, PartialEq)]
#[error("traffic {traffic}: no path leads from {from} to {to}")]
pub struct NoPath {
    /// The flow.
    pub traffic: String,
    /// Where it begins.
    pub from: String,
    /// Where it should end.
    pub to: String,
}

/// Which flows pass where.
#[derive(Clone, Debug, Default)]
pub struct Places {
    by_place: HashMap<ClassAtLink, Vec<usize>>,
    by_flow: Vec<Vec<ClassAtLink>>,
    measured: Vec<bool>,
    /// Flows that a router encrypts: their sinks do not see their packets.
    encrypted: Vec<bool>,
}

impl Places {
    /// Follows every flow of the scenario through the routers on its path.
    ///
    /// # Errors
    /// [`NoPath`] if no path leads from its source to its destination.
    pub fn new(scenario: &Scenario) -> Result<Self, NoPath> {
        let mut places = Self::default();
        for (index, traffic) in scenario.traffic.iter().enumerate() {
            let path = scenario.path_between(&traffic.from, &traffic.to).ok_or_else(|| {
                let Traffic { name, from, to, .. } = traffic.clone();
                NoPath { traffic: name, from, to }
            })?;
            let along = follow(scenario, traffic, &path);
            for place in &along {
                places.by_place.entry(place.clone()).or_default().push(index);
            }
            // Where it goes after a failure.
            for other in scenario.paths_between(&traffic.from, &traffic.to).into_iter().skip(1) {
                for place in follow(scenario, traffic, &other) {
                    let flows = places.by_place.entry(place).or_default();
                    if !flows.contains(&index) {
                        flows.push(index);
                    }
                }
            }
            places.encrypted.push(along.iter().any(|place| encrypts(scenario, place)));
            places.by_flow.push(along);
            places.measured.push(traffic.tool == Tool::Evenkeel);
        }
        Ok(places)
    }

    /// The same where every flow's hosts are the world's own, whatever tool real packets would come
    /// from.
    #[must_use]
    pub fn all_measured(mut self) -> Self {
        self.measured.fill(true);
        self
    }

    /// Where a flow passes, in order.
    pub fn of_flow(&self, flow: usize) -> &[ClassAtLink] {
        &self.by_flow[flow]
    }

    /// Whether a router on its path encrypts a flow: then nothing of it arrives that its sink could
    /// read.
    pub fn is_encrypted(&self, flow: usize) -> bool {
        self.encrypted[flow]
    }

    /// Whether any flow leaves `router` by `link`.
    pub fn passes(&self, router: &str, link: &str) -> bool {
        self.by_place.keys().any(|place| place.router == router && place.link == link)
    }

    /// The flows that pass `place`, if all of them are measured by the lab's own hosts.
    fn measured_flows(&self, place: &ClassAtLink) -> Option<&[usize]> {
        let flows = self.by_place.get(place)?;
        flows.iter().all(|flow| self.measured[*flow]).then_some(flows)
    }
}

/// The places where a flow passes on a path, in order.
fn follow(scenario: &Scenario, traffic: &Traffic, path: &[String]) -> Vec<ClassAtLink> {
    let mut along = Vec::new();
    for pair in path.windows(2) {
        let [node, next] = pair else { continue };
        let Some(router) = scenario.router(node) else { continue };
        let interfaces = scenario.interfaces(node);
        let Some(interface) = interfaces.iter().find(|i| i.peer == *next) else { continue };
        let Some(key) = flow_key(scenario, traffic) else { continue };
        let class = router.config.class_map().classify(&key, traffic.dscp);
        let Some(class) = router.config.classes.get(class.index()) else { continue };
        along.push(ClassAtLink {
            router: node.clone(),
            link: interface.name.clone(),
            class: class.name.clone(),
        });
    }
    along
}

/// Whether the class of a place is sent through an ESP tunnel.
fn encrypts(scenario: &Scenario, place: &ClassAtLink) -> bool {
    let Some(config) = scenario.router(&place.router).map(|router| &router.config) else {
        return false;
    };
    let class = config.classes.iter().find(|class| class.name == place.class);
    let service = class.and_then(|class| config.services.get(usize::from(class.service?)));
    service.is_some_and(|service| matches!(service.work, Work::Esp(_)))
}

/// Addresses, ports and protocol of a flow's packets.
pub fn flow_key(scenario: &Scenario, traffic: &Traffic) -> Option<FlowKey> {
    let (source, destination) = scenario.ends(traffic, 0)?;
    let protocol = if traffic.tcp { 6 } else { 17 };
    Some(FlowKey {
        source,
        destination,
        protocol,
        source_port: traffic.source_port,
        destination_port: traffic.port,
        flow_label: 0,
    })
}

/// What hosts measured in one window, by flow.
#[derive(Clone, Debug, Default)]
pub struct HostWindow {
    /// Packets that each flow's sender gave to its kernel.
    pub sent: Vec<u64>,
    /// What arrived of each flow.
    pub arrived: Vec<Arrived>,
}

/// The rows of one window of one router: for the links that flows pass, and the classes there that
/// flows or other packets were in. `start` is the beginning of the run.
pub fn rows(
    earlier: &Snapshot,
    later: &Snapshot,
    start: Nanos,
    places: &Places,
    hosts: &HostWindow,
) -> (Vec<Sample>, Vec<CallsSample>) {
    let window = window::between(earlier, later);
    let router = &window.counted.router;
    let t_s = seconds(window.end_ns, start);
    let window_s = Nanos(window.length_ns).as_secs_f64();
    let (mut samples, mut calls) = (Vec::new(), Vec::new());
    for link in window.counted.links.iter().filter(|link| places.passes(router, &link.port)) {
        let [none, one, many] = link.calls;
        // Nobody counts the calls of the kernel's disciplines.
        let counted = link.discipline != LinuxConfig::NAME;
        calls.extend(counted.then(|| CallsSample {
            t_s,
            window_s,
            router: router.clone(),
            link: link.port.clone(),
            none,
            one,
            many,
            admission: link.admission.as_ref().map(|seen| AdmissionSample {
                fair_rate_bps: seen.fair_rate_bps as f64,
                priority_load: seen.priority_load,
                congested: seen.congested.is_some(),
                protected: seen.protected,
                streaming: seen.streaming,
                refused: seen.refused_total(),
            }),
        }));
        let now = later.link(&link.port);
        for class in &link.classes {
            let place = ClassAtLink {
                router: router.clone(),
                link: link.port.clone(),
                class: class.name.clone(),
            };
            let ever = now.and_then(|now| now.class(&class.name)).map_or(0, |now| now.in_packets);
            if ever == 0 && !places.by_place.contains_key(&place) {
                continue;
            }
            let hosts = AtHosts::of(places, &place, hosts);
            let cycles = cycles(&window.counted, &class.name);
            samples.push(Sample { t_s, window_s, ..sample(place, class, hosts, cycles) });
        }
    }
    (samples, calls)
}

/// An instant as rows have it.
fn seconds(at_ns: u64, start: Nanos) -> f64 {
    Nanos(at_ns).saturating_sub(start).as_secs_f64()
}

/// What the router counts of a class on a link.
fn count(row: &mut Sample, class: &ClassSnapshot) {
    row.counts = class.counts;
    row.dropped = class.dropped.iter().map(|(reason, n)| (reason.clone(), *n)).collect();
    row.qlen = class.queued_packets;
    row.queue_us = Some(class.queue_us);
    row.queue_most = Some(class.queue_most);
    row.transit = Delays {
        count: class.out_packets,
        sum_ns: class.delay_sum_ns,
        max_ns: class.delay_max_ns,
        buckets: class.delay_buckets.clone(),
    };
}

/// The row of a class on a link: its counters, and what the hosts saw of its flows.
fn sample(
    place: ClassAtLink,
    class: &ClassSnapshot,
    hosts: AtHosts,
    cycles: Option<CycleSample>,
) -> Sample {
    let mut row = Sample {
        router: place.router,
        link: place.link,
        class: place.class,
        offered: hosts.offered,
        end_to_end: hosts.end_to_end,
        goodput_bytes: hosts.goodput_bytes,
        control: class.control.map(|control| ControlSample {
            ci_delay: control.ci_delay,
            ci_loss: control.ci_loss,
            x_delay_us: control.x_delay_ns as f64 / 1e3,
        }),
        cycles,
        acceptance: hosts.acceptance,
        waiting: hosts.waiting,
        ..Sample::default()
    };
    count(&mut row, class);
    row
}

/// Puts the counters of one router, which has become known after the run, into its rows; what the
/// hosts saw stays. `exact` are its snapshots, of which there is one at the end of each row's
/// window.
pub fn recount(samples: &mut [Sample], exact: &[Snapshot], start: Nanos) {
    for pair in exact.windows(2) {
        let [earlier, later] = pair else { continue };
        let window = window::between(earlier, later);
        let t_s = seconds(window.end_ns, start);
        let here = |sample: &&mut Sample| sample.router == later.router && sample.t_s == t_s;
        let rows = samples.iter_mut().filter(here);
        for row in rows {
            let link = window.counted.links.iter().find(|link| link.port == row.link);
            if let Some(class) = link.and_then(|link| link.class(&row.class)) {
                count(row, class);
            }
        }
    }
}

/// What the hosts saw in a window of the flows of a class on a link; each number is `None` where
/// they cannot know it of all these flows.
#[derive(Default)]
struct AtHosts {
    offered: Option<u64>,
    end_to_end: Option<Delays>,
    goodput_bytes: Option<u64>,
    acceptance: Option<Delays>,
    waiting: Option<u64>,
}

impl AtHosts {
    fn of(places: &Places, place: &ClassAtLink, hosts: &HostWindow) -> Self {
        let Some(flows) = places.measured_flows(place) else { return Self::default() };
        let arrived = || flows.iter().map(|flow| &hosts.arrived[*flow]);
        // Sinks cannot read what a router encrypts, and only some flows knock to be let in.
        let readable = !flows.iter().any(|flow| places.is_encrypted(*flow));
        let knocked = arrived().all(|flow| flow.accepted.is_some());
        Self {
            offered: Some(flows.iter().map(|flow| hosts.sent[*flow]).sum()),
            end_to_end: readable.then(|| merged(arrived().map(|flow| &flow.delays))),
            goodput_bytes: readable.then(|| arrived().map(|flow| flow.bytes).sum()),
            acceptance: knocked
                .then(|| merged(arrived().filter_map(|flow| flow.accepted.as_ref()))),
            waiting: knocked.then(|| arrived().map(|flow| flow.waiting).sum()),
        }
    }
}

fn merged<'d>(delays: impl Iterator<Item = &'d HostDelays>) -> Delays {
    let mut all = HostDelays::default();
    delays.for_each(|delays| all.merge(delays));
    all.told()
}

/// What a class took of the router's cycles in a window.
fn cycles(counted: &Snapshot, class: &str) -> Option<CycleSample> {
    let cycles = counted.cycles.as_ref()?;
    let class = cycles.classes.iter().find(|known| known.name == class)?;
    Some(CycleSample {
        spent: class.cycles,
        passed: class.packets,
        refused: class.refused_packets,
        refused_cycles: class.refused_cycles,
        hertz: cycles.hertz,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;
    use evenkeel_core::Bytes;
    use evenkeel_core::measure::ClassCounters;
    use evenkeel_router::snapshot::LinkSnapshot;

    fn place(router: &str, link: &str, class: &str) -> ClassAtLink {
        ClassAtLink { router: router.into(), link: link.into(), class: class.into() }
    }

    #[test]
    fn flows_are_followed_through_every_router_by_its_own_class_map() {
        let places = Places::new(&fixture::scenario()).expect("paths exist");
        assert_eq!(places.of_flow(0), [place("r1", "r2", "rest"), place("r2", "sink", "rest")]);
        assert_eq!(places.of_flow(1), [place("r1", "r2", "marked"), place("r2", "sink", "marked")]);
        assert!(places.passes("r1", "r2") && places.passes("r2", "sink"));
        assert!(!places.passes("r1", "b"), "nothing flows back");
        assert_eq!(places.measured_flows(&place("r1", "r2", "rest")), Some(&[0][..]));
        // Class `marked` also carries a flow of iperf3, whose packets the lab does not count.
        assert_eq!(places.measured_flows(&place("r1", "r2", "marked")), None);
    }

    fn snapshot(time_ns: u64, in_packets: u64, sent: u64, calls: u64) -> Snapshot {
        let class = ClassSnapshot {
            name: "rest".into(),
            counts: ClassCounters {
                in_packets,
                out_packets: sent,
                sent_packets: sent,
                sent_bytes: Bytes(sent * 500),
                ..ClassCounters::default()
            },
            dropped: [("queue_full".to_owned(), in_packets - sent)].into(),
            queued_packets: 4,
            delay_sum_ns: sent * 2_000,
            delay_max_ns: 2_000,
            delay_buckets: vec![(1984, sent)],
            ..ClassSnapshot::default()
        };
        let idle = ClassSnapshot { name: "idle".into(), ..ClassSnapshot::default() };
        let link = |port: &str| LinkSnapshot {
            port: port.into(),
            calls: [calls, 2 * calls, 3 * calls],
            classes: vec![class.clone(), idle.clone()],
            ..LinkSnapshot::default()
        };
        let links = vec![link("b"), link("r2")];
        Snapshot { time_ns, uptime_ns: time_ns, router: "r1".into(), links, ..Snapshot::default() }
    }

    #[test]
    fn a_window_is_the_difference_of_two_snapshots_beside_what_the_hosts_saw() {
        let scenario = fixture::scenario();
        let places = Places::new(&scenario).expect("paths exist");
        let (earlier, later) =
            (snapshot(5_000_000_000, 100, 90, 10), snapshot(5_500_000_000, 160, 130, 25));
        let mut arrived = vec![Arrived::default(); 3];
        arrived[0].bytes = 40 * 500;
        let hosts = HostWindow { sent: vec![61, 7, 0], arrived };
        let (samples, calls) = rows(&earlier, &later, Nanos::from_secs(4), &places, &hosts);

        assert_eq!(calls.len(), 1, "links that no flow passes have no rows");
        assert_eq!(
            (calls[0].link.as_str(), calls[0].none, calls[0].one, calls[0].many),
            ("r2", 15, 30, 45)
        );
        assert_eq!(samples.len(), 1, "a class that nothing was in has no rows");
        let sample = &samples[0];
        assert_eq!(
            (sample.router.as_str(), sample.link.as_str(), sample.class.as_str()),
            ("r1", "r2", "rest")
        );
        assert!((sample.t_s - 1.5).abs() < 1e-9 && (sample.window_s - 0.5).abs() < 1e-9);
        assert_eq!(
            (sample.offered, sample.sent_packets, sample.sent_bytes),
            (Some(61), 40, Bytes(20_000))
        );
        assert_eq!(sample.dropped, [("queue_full".to_owned(), 20)]);
        assert_eq!((sample.qlen, sample.goodput_bytes), (4, Some(20_000)));
        assert_eq!((sample.transit.count, sample.transit.sum_ns), (40, 80_000));
        assert_eq!(sample.transit.buckets, [(1984, 40)]);
        assert_eq!(sample.end_to_end.as_ref().map(|delays| delays.count), Some(0));
    }
}
