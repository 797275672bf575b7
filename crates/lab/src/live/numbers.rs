//! What was captured and counted, as the numbers that expectations are of.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use evenkeel_cluster::Variant;
use evenkeel_core::Nanos;
use evenkeel_core::audit::Cause;
use evenkeel_router::Snapshot;
use evenkeel_router::snapshot::{ClusterAuditSnapshot, ClusterSnapshot};
use evenkeel_router::window::between;
use evenkeel_world::audits;
use evenkeel_world::live::{LiveStep, StepMeasured};

use super::capture::{Packet, Seen, What};

/// What is known from the steps before.
#[derive(Debug, Default)]
pub(super) struct Told {
    /// The forwarder of each flow.
    flows: BTreeMap<(u8, u16, usize, usize), usize>,
    killed: BTreeSet<usize>,
    /// For people: where packets were seen last that did not arrive.
    pub(super) notes: Vec<String>,
}

/// What was seen of a step.
#[derive(Debug)]
pub(super) struct Window {
    pub(super) links: usize,
    pub(super) classes: usize,
    /// What is measured lies between.
    pub(super) begin: Nanos,
    pub(super) end: Nanos,
    /// From the first packet of the step on, until the queues were empty.
    pub(super) seen: Vec<Seen>,
    /// The forwarders' counters at `begin` and `end`.
    pub(super) before: Vec<Option<Snapshot>>,
    pub(super) after: Vec<Option<Snapshot>>,
    /// Ids of the packets of each source: the first, and the first of the next step.
    pub(super) first: Vec<u32>,
    pub(super) last: Vec<u32>,
    /// Source ports of the newest flows.
    pub(super) newest: Range<u16>,
    /// Frames of the stranger between `begin` and `end`.
    pub(super) injected: u64,
    /// Why it says nothing of the routers.
    pub(super) not_judged: Option<String>,
}

impl Window {
    fn within(&self, at: Nanos) -> bool {
        at >= self.begin && at < self.end
    }

    /// The sum of the differences of a counter over forwarders that ran all the time.
    fn counted(&self, count: impl Fn(&ClusterSnapshot) -> u64) -> f64 {
        let of = |snapshot: &Option<Snapshot>| Some(count(snapshot.as_ref()?.cluster.as_ref()?));
        let pairs = self.before.iter().zip(&self.after);
        pairs
            .filter_map(|(before, after)| Some(of(after)?.saturating_sub(of(before)?)))
            .sum::<u64>() as f64
    }
}

impl Told {
    /// All flows may go elsewhere.
    pub(super) fn forget_flows(&mut self) {
        self.flows.clear();
        self.killed.clear();
    }

    /// A forwarder is no more.
    pub(super) fn killed(&mut self, forwarder: usize) {
        self.killed.insert(forwarder);
    }

    pub(super) fn of(&mut self, step: &LiveStep, window: &Window) -> StepMeasured {
        let mut numbers = Vec::new();
        if step.config.cluster.is_some() {
            let variant = step.config.cluster.as_ref().map(|cluster| &cluster.config);
            let variant = variant.map(|config| (config.variant, config.t_br));
            // With others a link may change hands within a cycle.
            if let Some((Variant::Single | Variant::Lazy, t_br)) = variant {
                let (collisions, cycles) = collisions(window, t_br);
                numbers.extend([("collisions", collisions as f64), ("cycles", cycles as f64)]);
            }
            self.service(window, &mut numbers);
            numbers.push(("out_of_step", window.counted(|cluster| cluster.out_of_step)));
            numbers.push(("takeovers", window.counted(|cluster| cluster.takeovers)));
            numbers.push(("missing", window.counted(|cluster| cluster.missing)));
            numbers.push(("abstained", window.counted(|cluster| cluster.abstained)));
            numbers.push(("late", window.counted(|cluster| cluster.late)));
            let unfair = Cause::Discipline.name();
            let broken = |audit: &ClusterAuditSnapshot| audit.by_cause.get(unfair).copied();
            numbers.push(("unfair", window.counted(|it| broken(&it.audit).unwrap_or(0))));
            numbers.push(("judged", window.counted(|it| it.audit.windows)));
        }
        if step.intruder {
            let refused = window.counted(|cluster| {
                ["forged", "replayed"].iter().filter_map(|kind| cluster.refused.get(*kind)).sum()
            });
            // A station does not take a frame with its own address for another's.
            let heard_by = window.after.iter().flatten().count().saturating_sub(1) as f64;
            numbers.push(("injected", window.injected as f64));
            numbers.push(("refused", refused / (window.injected as f64 * heard_by).max(1.0)));
        }
        self.flows(step, window, &mut numbers);
        let told = lost(&self.killed, window, &mut numbers);
        if let Some(told) = told.filter(|_| step.offer < 1.0) {
            self.notes.push(format!("{}: {told}.", step.name));
        }
        let mut arrived = vec![vec![(0, 0); window.classes]; window.links];
        for seen in window.seen.iter().filter(|seen| window.within(seen.at)) {
            if let What::Arrived { packet: Packet { link, class, bytes, .. } } = seen.what {
                let of: &mut (u64, u64) = &mut arrived[link][class];
                *of = (of.0 + 1, of.1 + bytes);
            }
        }
        let time = window.end - window.begin;
        let (before, after) = (window.before.iter().flatten(), window.after.iter().flatten());
        let audits = after.filter_map(|after| {
            let before = before.clone().find(|before| before.router == after.router)?;
            let since = between(before, after).counted;
            Some(audits::of_cluster(&after.router, &since.cluster?.audit))
        });
        let audits = audits.collect();
        StepMeasured { time, arrived, numbers, audits, not_judged: window.not_judged.clone() }
    }

    /// Cycles, masters, and the longest time in which no forwarder that lives sent a packet.
    fn service(&self, window: &Window, numbers: &mut Vec<(&'static str, f64)>) {
        let (mut cycles, mut masters) = (BTreeSet::new(), BTreeSet::new());
        let mut sent: Vec<Nanos> = Vec::new();
        for seen in window.seen.iter().filter(|seen| window.within(seen.at)) {
            match seen.what {
                What::Exchange { forwarder, cycle, master } => {
                    cycles.insert(cycle);
                    masters.extend(master.then_some(forwarder));
                }
                What::From { forwarder, .. } if !self.killed.contains(&forwarder) => {
                    sent.push(seen.at);
                }
                _ => {}
            }
        }
        sent.sort_unstable();
        let ends = std::iter::once(window.begin).chain(sent.iter().copied());
        let longest = ends
            .zip(sent.iter().copied().chain([window.end]))
            .map(|(a, b)| b.saturating_sub(a))
            .max();
        let silence = longest.unwrap_or_default().as_secs_f64() * 1e3;
        numbers.push(("silence_ms", silence));
        if let Some(longest) = longest_cycle(window) {
            numbers.push(("silence_cycles", silence / (longest.as_secs_f64() * 1e3)));
        }
        numbers.push(("masters", masters.len() as f64));
        let time = (window.end - window.begin).as_secs_f64() * 1e3;
        numbers.push(("cycle_ms", time / cycles.len().max(1) as f64));
    }

    /// Who has which flow, and which have moved although their forwarder lives.
    fn flows(&mut self, step: &LiveStep, window: &Window, numbers: &mut Vec<(&'static str, f64)>) {
        let mut moved = BTreeSet::new();
        let (mut new, mut there) = (BTreeSet::new(), BTreeSet::new());
        let target = step.add.or(step.drain).map(|number| usize::from(number) - 1);
        for seen in &window.seen {
            let What::To { forwarder, packet } = seen.what else { continue };
            let flow = packet.flow();
            let before = self.flows.insert(flow, forwarder);
            if before.is_some_and(|before| before != forwarder && !self.killed.contains(&before)) {
                moved.insert(flow);
            }
            if window.newest.contains(&flow.1) {
                new.insert(flow);
                if target == Some(forwarder) {
                    there.insert(flow);
                }
            }
        }
        numbers.push(("moved", moved.len() as f64));
        if step.new_flows && target.is_some() {
            numbers.push(("new_flows_there", there.len() as f64 / new.len().max(1) as f64));
        }
    }
}

/// The longest cycle before the step did what it does.
fn longest_cycle(window: &Window) -> Option<Nanos> {
    let mut opened = BTreeMap::new();
    for seen in window.seen.iter().filter(|seen| seen.at < window.begin) {
        if let What::Exchange { cycle, .. } = seen.what {
            let first = opened.entry(cycle).or_insert(seen.at);
            *first = seen.at.min(*first);
        }
    }
    let opened: Vec<Nanos> = opened.into_values().collect();
    opened.windows(2).map(|pair| pair[1].saturating_sub(pair[0])).max()
}

/// Packets that did not arrive; and of these, those that were not in a killed process. For people:
/// where those were seen last.
fn lost(
    killed: &BTreeSet<usize>,
    window: &Window,
    numbers: &mut Vec<(&'static str, f64)>,
) -> Option<String> {
    let mut missing: BTreeSet<u32> =
        window.first.iter().zip(&window.last).flat_map(|(first, last)| *first..*last).collect();
    for seen in &window.seen {
        if let What::Arrived { packet } = seen.what {
            missing.remove(&packet.id);
        }
    }
    let (mut into, mut out_of) = (BTreeMap::new(), BTreeMap::new());
    for seen in &window.seen {
        match seen.what {
            What::To { forwarder, packet } if missing.contains(&packet.id) => {
                into.insert(packet.id, (forwarder, seen.at));
            }
            What::From { forwarder, packet } if missing.contains(&packet.id) => {
                out_of.insert(packet.id, (forwarder, seen.at));
            }
            _ => {}
        }
    }
    let mut places: BTreeMap<String, (usize, Nanos)> = BTreeMap::new();
    let mut elsewhere = 0;
    for id in &missing {
        let (place, at) = match (out_of.get(id), into.get(id)) {
            (Some((by, at)), _) => (format!("after forwarder {}", by + 1), *at),
            (None, Some((to, _))) if killed.contains(to) => continue,
            (None, Some((to, at))) => (format!("on the way to forwarder {}", to + 1), *at),
            (None, None) => ("nowhere".to_owned(), window.begin),
        };
        elsewhere += 1;
        let of = places.entry(place).or_default();
        *of = (of.0 + 1, at);
    }
    numbers.extend([("lost", missing.len() as f64), ("lost_elsewhere", f64::from(elsewhere))]);
    let told = places.into_iter().map(|(place, (packets, at))| {
        let at = (at.0 as f64 - window.begin.0 as f64) / 1e6;
        format!("{packets} seen last {place}, the last of them at {at:.1} ms")
    });
    let told: Vec<_> = told.collect();
    (!told.is_empty()).then(|| format!("packets that did not arrive: {}", told.join("; ")))
}

/// Packets that went to a link which another forwarder had used in the same cycle, and the cycles
/// looked at.
///
/// A forwarder's packet is of the cycle whose state it sent last; but before it can have decided
/// (all states of that cycle had passed the switch, or `t_br` was over since its own) it still
/// sends what the cycle before granted.
fn collisions(window: &Window, t_br: Nanos) -> (u64, u64) {
    let mut states: BTreeMap<u64, BTreeMap<usize, Nanos>> = BTreeMap::new();
    for seen in &window.seen {
        if let What::Exchange { forwarder, cycle, .. } = seen.what {
            states.entry(cycle).or_default().entry(forwarder).or_insert(seen.at);
        }
    }
    let all = states.values().map(BTreeMap::len).max().unwrap_or(0);
    let complete = |cycle: u64| {
        let heard = states.get(&cycle).filter(|heard| heard.len() == all)?;
        heard.values().max().copied()
    };
    // By forwarder: its last two states.
    let mut last: BTreeMap<usize, [Option<(u64, Nanos)>; 2]> = BTreeMap::new();
    let mut used: BTreeMap<(u64, usize), BTreeMap<usize, u64>> = BTreeMap::new();
    let mut cycles = BTreeSet::new();
    for seen in &window.seen {
        match seen.what {
            What::Exchange { forwarder, cycle, .. } => {
                let two = last.entry(forwarder).or_default();
                *two = [two[1], Some((cycle, seen.at))];
            }
            What::From { forwarder, packet } if window.within(seen.at) => {
                let Some([before, Some((cycle, at))]) = last.get(&forwarder).copied() else {
                    continue;
                };
                let decided = complete(cycle).unwrap_or(Nanos::MAX).min(at.saturating_add(t_br));
                let cycle =
                    if seen.at >= decided { Some(cycle) } else { before.map(|(cycle, _)| cycle) };
                let Some(cycle) = cycle else { continue };
                cycles.insert(cycle);
                *used.entry((cycle, packet.link)).or_default().entry(forwarder).or_default() += 1;
            }
            _ => {}
        }
    }
    let collisions = |by: &BTreeMap<usize, u64>| {
        by.values().sum::<u64>() - by.values().max().copied().unwrap_or(0)
    };
    (used.values().map(collisions).sum(), cycles.len() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const T_BR: Nanos = Nanos::from_millis(2);

    fn packet(id: u32, link: usize) -> Packet {
        Packet { id, link, class: 0, bytes: 1000, source: (41, 20_000) }
    }

    /// Microseconds, and what was seen then.
    fn window(seen: &[(u64, What)]) -> Window {
        Window {
            links: 2,
            classes: 1,
            begin: Nanos::ZERO,
            end: Nanos::from_secs(1),
            seen: seen
                .iter()
                .map(|(at, what)| Seen { at: Nanos::from_micros(*at), what: *what })
                .collect(),
            before: Vec::new(),
            after: Vec::new(),
            first: vec![1],
            last: vec![4],
            newest: 0..0,
            injected: 0,
            not_judged: None,
        }
    }

    fn state(forwarder: usize, cycle: u64) -> What {
        What::Exchange { forwarder, cycle, master: forwarder == 0 }
    }

    fn from(forwarder: usize, link: usize) -> What {
        What::From { forwarder, packet: packet(0, link) }
    }

    #[test]
    fn two_forwarders_on_one_link_in_one_cycle_are_noticed() {
        let states = [(0, state(0, 7)), (50, state(1, 7))];
        let seen = |more: &[(u64, What)]| {
            let all: Vec<_> = states.iter().chain(more).copied().collect();
            collisions(&window(&all), T_BR)
        };
        assert_eq!(seen(&[(100, from(0, 0)), (120, from(1, 1))]), (0, 1), "each has its link");
        assert_eq!(seen(&[(100, from(0, 0)), (900, from(0, 0)), (910, from(1, 0))]), (1, 1));
        // The next cycle: they change links.
        let next =
            [(1_000, state(0, 8)), (1_050, state(1, 8)), (1_100, from(0, 1)), (1_110, from(1, 0))];
        let first = [(100, from(0, 0)), (120, from(1, 1))];
        assert_eq!(seen(&[first.as_slice(), &next].concat()), (0, 2));
        // Frames that leave before any node can have decided belong to the cycle before.
        let late =
            [(1_000, state(0, 8)), (1_010, from(0, 0)), (1_050, state(1, 8)), (1_110, from(1, 0))];
        assert_eq!(seen(&[first.as_slice(), &late].concat()), (0, 2));
        // Not all were heard: it has decided after t_br.
        let waited =
            [(1_000, state(0, 8)), (2_900, from(0, 1)), (3_100, from(0, 1)), (3_200, from(1, 1))];
        assert_eq!(
            seen(&[first.as_slice(), &waited].concat()),
            (1, 2),
            "the first packet of two is of cycle 7"
        );
    }

    #[test]
    fn packets_of_a_killed_process_are_told_from_others() {
        let counted = |seen: &[(u64, What)], killed: &[usize]| {
            let mut numbers = Vec::new();
            lost(&killed.iter().copied().collect(), &window(seen), &mut numbers);
            (numbers[0].1, numbers[1].1)
        };
        let to = |id| (10, What::To { forwarder: 1, packet: packet(id, 0) });
        let arrived = |id| (30, What::Arrived { packet: packet(id, 0) });
        assert_eq!(counted(&[arrived(1), arrived(2), arrived(3)], &[]), (0.0, 0.0));
        assert_eq!(
            counted(&[arrived(1), to(2), arrived(3)], &[1]),
            (1.0, 0.0),
            "it was in the killed process"
        );
        assert_eq!(
            counted(&[arrived(1), to(2), arrived(3)], &[]),
            (1.0, 1.0),
            "that forwarder lives"
        );
        let left = (20, What::From { forwarder: 1, packet: packet(2, 0) });
        assert_eq!(
            counted(&[arrived(1), to(2), left, arrived(3)], &[1]),
            (1.0, 1.0),
            "it had left it"
        );
        assert_eq!(counted(&[arrived(1), to(2)], &[1]), (2.0, 1.0), "nobody has seen the third");
    }
}
