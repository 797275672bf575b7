//! A router whose kernel forwards, because a link of it has a queueing discipline of Linux: HTB,
//! TBF, fq_codel and whatever else the kernel has, beside ours in one figure.
//!
//! What our router counts, packet sockets at both sides of this one measure: arrival to leaving the
//! queue, by the class map of the same file. What the kernel counts is compared with it at the end.

mod matched;
mod qdisc;
mod tap;

use std::net::IpAddr;

use evenkeel_config::{Change, LinkChange};
use evenkeel_core::Nanos;
use evenkeel_core::Prefix;
use evenkeel_core::schedule::LinuxConfig;
use evenkeel_ports::sys;
use evenkeel_router::Snapshot;
use evenkeel_router::snapshot::{ClassSnapshot, LinkSnapshot};
use evenkeel_scenario::{Router, Scenario, SetChange, linux_of};

use crate::LabError;
use crate::plan::wire_node;
use crate::wire::ENDS;
use matched::{Fate, Place, at_times, fates};
use qdisc::Counted;
use tap::{Spot, Tap, Ways};

/// Packets that the kernel and the meter may disagree by, at least: what the router itself sends,
/// such as neighbour discovery, only the kernel counts.
const OWN_PACKETS: u64 = 50;
/// The same, as a part of all.
const OWN_PART: f64 = 0.001;

/// A link of such a router.
#[derive(Debug)]
struct KernelLink {
    /// Its name, and that of its interface.
    name: String,
    /// The discipline that it has now; `None`: it has no queue.
    discipline: Option<LinuxConfig>,
    /// The roots of all that it has had.
    roots: Vec<String>,
    /// What disciplines that it had before have counted since the beginning.
    before: Counted,
    /// What the present one had counted at the beginning, or when it was put in.
    first: Counted,
}

/// A router that is all kernel.
#[derive(Debug)]
pub(crate) struct KernelRouter {
    pub(crate) name: String,
    namespace: String,
    links: Vec<KernelLink>,
    classes: Vec<String>,
    tap: Tap,
    /// When snapshots were taken.
    times: Vec<Nanos>,
    /// What became of the packets, once the run is over.
    fates: Vec<Fate>,
}

impl KernelRouter {
    /// Puts the disciplines in and begins to measure. `namespace` gives the name that a node's
    /// namespace has.
    ///
    /// # Errors
    /// What the kernel or `tc` refuses.
    pub(crate) fn start(
        scenario: &Scenario,
        router: &Router,
        namespace: impl Fn(&str) -> String,
    ) -> Result<Self, LabError> {
        let own = namespace(&router.name);
        let mut links = Vec::new();
        for interface in scenario.interfaces(&router.name) {
            let link = router.config.link(&interface.name);
            let discipline = link.and_then(|link| linux_of(&link.discipline)).cloned();
            if let Some(discipline) = &discipline {
                qdisc::put(&own, &interface.name, discipline)?;
            }
            let (before, first) = (Counted::default(), Counted::default());
            let roots = discipline.iter().map(root_of).collect();
            links.push(KernelLink { name: interface.name, discipline, roots, before, first });
        }
        let tap = Tap::start(spots(scenario, router, &namespace), ways(scenario, router, &links))?;
        Ok(Self {
            name: router.name.clone(),
            namespace: own,
            links,
            classes: router.config.class_names().into_iter().map(str::to_owned).collect(),
            tap,
            times: Vec::new(),
            fates: Vec::new(),
        })
    }

    /// Forgets what was seen so far.
    ///
    /// # Errors
    /// `tc` fails.
    pub(crate) fn begin(&mut self) -> Result<(), LabError> {
        self.tap.begin();
        self.times.clear();
        for link in &mut self.links {
            link.first = link.counted(&self.namespace)?;
        }
        Ok(())
    }

    /// What is known while packets flow: how many came in. The rest follows when the run is over
    /// ([`exact`](Self::exact)).
    pub(crate) fn snapshot(&mut self) -> Snapshot {
        let now = sys::monotonic_now();
        self.times.push(now);
        let of_class = |link, (class, name): (usize, &String)| {
            let mut known = ClassSnapshot { name: name.clone(), ..ClassSnapshot::default() };
            known.counts.in_packets = self.tap.came(Place { link, class });
            // Until it is known what became of them.
            known.queued_packets = known.counts.in_packets;
            known
        };
        let of_link = |link| self.classes.iter().enumerate().map(|at| of_class(link, at)).collect();
        let links = (0..self.links.len()).map(of_link).collect();
        self.told(now, links)
    }

    fn told(&self, at: Nanos, classes: Vec<Vec<ClassSnapshot>>) -> Snapshot {
        let links = self.links.iter().zip(classes).map(|(link, classes)| LinkSnapshot {
            port: link.name.clone(),
            discipline: LinuxConfig::NAME.to_owned(),
            classes,
            ..LinkSnapshot::default()
        });
        let links = links.collect();
        Snapshot {
            time_ns: at.0,
            uptime_ns: at.0,
            router: self.name.clone(),
            links,
            ..Snapshot::default()
        }
    }

    /// Packets that wait in its queues.
    ///
    /// # Errors
    /// `tc` fails.
    pub(crate) fn held(&self) -> Result<u64, LabError> {
        let held = self.links.iter().map(|link| link.counted(&self.namespace));
        held.map(|counted| counted.map(|counted| counted.waiting)).sum()
    }

    /// Changes the discipline of a link.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub(crate) fn set(&mut self, change: &SetChange) -> Result<(), LabError> {
        let link = self.links.iter_mut().find(|link| link.name == change.link);
        let (Some(link), Change::Link(_, LinkChange::Discipline(to))) = (link, &change.change)
        else {
            return Ok(());
        };
        let Some(to) = linux_of(to) else { return Ok(()) };
        let last = link.counted(&self.namespace)?;
        qdisc::put(&self.namespace, &link.name, to)?;
        // What waits in a discipline that goes is dropped with it, and not counted as such.
        let gone = Counted { drops: last.drops + last.waiting, ..last };
        link.before = link.before.and(gone.since(link.first));
        link.first = Counted::default();
        link.roots.push(root_of(to));
        link.discipline = Some(to.clone());
        Ok(())
    }

    /// Ends measuring, when the queues are empty: what to say of it, and what makes it doubtful.
    ///
    /// # Errors
    /// `tc` fails.
    pub(crate) fn end(&mut self) -> Result<(Vec<String>, Vec<String>), LabError> {
        let log = self.tap.end();
        let (mut notes, mut warnings) = (Vec::new(), Vec::new());
        if log.lost > 0 {
            warnings.push(format!(
                "router {}: the meter at its interfaces missed {} frames: the machine is too slow \
                 for this scenario",
                self.name, log.lost
            ));
        }
        self.fates = fates(log.arrivals, log.departures);
        for (at, link) in self.links.iter().enumerate() {
            if link.discipline.is_none() {
                continue;
            }
            let kernel = link.before.and(link.counted(&self.namespace)?.since(link.first));
            let of_link = || self.fates.iter().filter(|fate| fate.is_of(at));
            let dropped = of_link().filter(|fate| fate.is_dropped()).count() as u64;
            let sent = of_link().count() as u64 - dropped;
            let place = format!("link {} of {}", link.name, self.name);
            notes.push(format!(
                "The kernel of {place} ({}) counted {} packets sent, {} dropped, {} times held \
                 back for its rate.",
                link.roots.join(", then "),
                kernel.packets,
                kernel.drops,
                kernel.overlimits
            ));
            warnings.extend(disagree(&place, kernel, sent, dropped));
        }
        Ok((notes, warnings))
    }

    /// The counters at the instants of all snapshots, once the run has [ended](Self::end).
    pub(crate) fn exact(&self) -> Vec<Snapshot> {
        let classes: Vec<&str> = self.classes.iter().map(String::as_str).collect();
        let of_link = |link| at_times(&self.fates, link, &classes, &self.times);
        let mut links: Vec<_> =
            (0..self.links.len()).map(|link| of_link(link).into_iter()).collect();
        let at = |time: &Nanos| {
            let now = links.iter_mut().map(|link| link.next().unwrap_or_default()).collect();
            self.told(*time, now)
        };
        self.times.iter().map(at).collect()
    }
}

impl KernelLink {
    fn counted(&self, namespace: &str) -> Result<Counted, LabError> {
        match self.discipline {
            Some(_) => qdisc::counted(namespace, &self.name),
            None => Ok(Counted::default()),
        }
    }
}

/// What stands first in the words of a discipline.
fn root_of(discipline: &LinuxConfig) -> String {
    let mut lines = discipline.command.lines().map(str::trim);
    lines.find(|line| !line.is_empty()).unwrap_or_default().to_owned()
}

/// A warning if the kernel counts otherwise than the meter at the interfaces.
fn disagree(place: &str, kernel: Counted, sent: u64, dropped: u64) -> Option<String> {
    let tolerated = ((sent + dropped) as f64 * OWN_PART) as u64 + OWN_PACKETS;
    let far = |a: u64, b: u64| a.abs_diff(b) > tolerated;
    (far(kernel.packets, sent) || far(kernel.drops, dropped)).then(|| {
        format!(
            "{place}: the kernel counted {} packets sent and {} dropped, the meter at its \
             interfaces {sent} and {dropped}",
            kernel.packets, kernel.drops
        )
    })
}

/// Where packets come in, and where those that have left a queue arrive.
fn spots(scenario: &Scenario, router: &Router, namespace: &impl Fn(&str) -> String) -> Vec<Spot> {
    let mut spots = Vec::new();
    for (link, interface) in scenario.interfaces(&router.name).into_iter().enumerate() {
        let wire = &scenario.wires[interface.wire];
        let behind = if wire.quality.is_perfect() {
            (namespace(&interface.peer), router.name.clone())
        } else {
            let near = usize::from(wire.ends[0].node != router.name);
            (namespace(&wire_node(interface.wire)), ENDS[near].to_owned())
        };
        let mtu = interface.mtu;
        let own = (namespace(&router.name), interface.name);
        spots.push(Spot { at: own, mtu, behind: None });
        spots.push(Spot { at: behind, mtu, behind: Some(link) });
    }
    spots
}

fn ways(scenario: &Scenario, router: &Router, links: &[KernelLink]) -> Ways {
    let interfaces = scenario.interfaces(&router.name);
    let mut to: Vec<(IpAddr, u8, usize)> = Vec::new();
    let mut own = Vec::new();
    for (link, interface) in interfaces.iter().enumerate() {
        own.extend([IpAddr::from(interface.v4), interface.v6.into()]);
        let subnets =
            [(interface.v4.into(), interface.prefix4), (interface.v6.into(), interface.prefix6)];
        to.extend(subnets.map(|(address, length)| (address, length, link)));
    }
    for route in scenario.routes(&router.name) {
        let link = links.iter().position(|link| link.name == route.interface);
        to.extend(link.map(|link| (route.destination, route.prefix, link)));
    }
    let mut to: Vec<(Prefix, usize)> = to
        .into_iter()
        .filter_map(|(address, length, link)| Some((Prefix::new(address, length)?, link)))
        .collect();
    to.sort_by_key(|(prefix, _)| std::cmp::Reverse(prefix.len()));
    Ways { to, own, classes: router.config.class_map() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_that_counts_otherwise_is_told_of() {
        let kernel = Counted { packets: 10_000, drops: 500, ..Counted::default() };
        assert_eq!(disagree("x", kernel, 9_990, 505), None);
        assert!(disagree("x", kernel, 9_900, 500).is_some());
        let text = disagree("link s of r", kernel, 10_000, 400).expect("drops that nobody saw");
        assert!(text.starts_with("link s of r: the kernel counted 10000 packets sent"), "{text}");
    }
}
