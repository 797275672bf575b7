//! The audit of a cluster: whether its windows keep the shares that it was told.
//!
//! It is given what the nodes announced and what was granted, and knows nothing of clocks and
//! tags, so that a scheduler that is wrong does not excuse itself.
//!
//! **What is promised** under a matching. A forwarder serves one link at a time, so a class that
//! waits only at forwarders which are busy for other links may get less than its share; no
//! scheduler of matchings can help that. What holds whatever is matched: a pair of forwarder and
//! link sends the smallest tag that it has. So of two classes of a link, *l* gets nothing more
//! while it is ahead of *k* and *k* waits at every forwarder at which *l* does. With W the bytes
//! granted since their tags were last known to be level, w the weights and L the longest records,
//!
//! W_l / w_l − W_k / w_k ≤ 2 (L_l / w_l + L_k / w_k)
//!
//! at the end of each such window: the bound of self-clocked fair queueing (Golestani 1994), and as
//! much for what "level" leaves open. Tags are level at the end of a window in which both waited at
//! the same forwarders, to its end, and both were granted something: the one whose tag was higher
//! was granted only when the other's had come up to it. They are not any more when one of them
//! waits nowhere. What *l* gains in windows in which *k* cannot be served beside it does not count.
//!
//! With rule B, W and the conditions are of all forwarders, for each link. With rules A and C,
//! where each forwarder's queue is a flow of its own, they are of this node's own queues: each node
//! answers for itself.
//!
//! **Not level** yet, or any more: *l* may be owed up to `max_lag` bytes, and is allowed as much on
//! top of the bound. A class that is owed more has it forgotten by the scheduler, and while that is
//! so its link is not judged.
//!
//! **Not judged** are windows in which a member was not heard in full, or charges were taken back,
//! or this node was out of step: the sums begin anew after them. Shares of forwarders inside of a
//! class have no promise.
//!
//! That what was granted is sent in its time is for who sends: see the router.
//!
//! A window costs N K² steps and one for each grant; nothing allocates.

use evenkeel_core::Bytes;

use crate::config::{ClusterConfig, WeightRule};
use crate::matching::members;
use crate::scheduler::Granted;
use crate::types::Record;

/// A class that had too little of a link.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Behind {
    /// The cycle in which it was seen.
    pub cycle: u64,
    /// The link.
    pub link: usize,
    /// The class that is behind.
    pub class: usize,
    /// The one that is ahead of it.
    pub other: usize,
    /// By how much, bytes of `class`.
    pub lag: Bytes,
    /// How much was allowed.
    pub bound: Bytes,
    /// The part of what both should have had that is the class's, millionths.
    pub told_ppm: u32,
    /// And of what they had.
    pub delivered_ppm: u32,
}

/// A window that was decided.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'s> {
    /// Its cycle.
    pub cycle: u64,
    /// Who takes part, by index.
    pub present: u64,
    /// Who said all that it had.
    pub heard: u64,
    /// Everything that decided was known, and nothing taken back.
    pub whole: bool,
    /// Links on which a class was owed more than is remembered: see
    /// [`Scheduler::forgot`](crate::Scheduler::forgot).
    pub forgot: u64,
    /// What was granted, in order of time.
    pub grants: &'s [Granted],
}

/// What the audit has found since the start.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Verdict {
    /// Windows that were judged.
    pub windows: u64,
    /// Windows that were not.
    pub blind: u64,
    /// Times that a class was behind by more than its bound; after each its sums begin anew.
    pub violations: u64,
    /// The last of these.
    pub last: Option<Behind>,
    /// The furthest that one was behind, in millionths of its bound.
    pub worst_ppm: u64,
}

impl Verdict {
    /// What was found after `earlier`; the furthest stays that since the start.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let violations = self.violations - earlier.violations;
        Self {
            windows: self.windows - earlier.windows,
            blind: self.blind - earlier.blind,
            violations,
            last: self.last.filter(|_| violations > 0),
            worst_ppm: self.worst_ppm,
        }
    }
}

/// What two classes had since their tags were level.
#[derive(Clone, Copy, Debug, Default)]
struct Pair {
    /// They were, and both have waited since.
    level: bool,
    /// How far the second is ahead of the first, bytes per weight.
    ahead: f64,
    /// What they were granted, bytes: the first, the second.
    had: [f64; 2],
}

/// The audit of one node's engine.
#[derive(Clone, Debug)]
pub struct Audit {
    weights: Vec<f64>,
    rule: WeightRule,
    links: usize,
    classes: usize,
    depth: usize,
    /// Whose grants count.
    scope: u64,
    /// By forwarder, link and class: records announced, and granted since.
    announced: Vec<u16>,
    used: Vec<u16>,
    /// Who has announced for this window.
    fresh: u64,
    /// By forwarder and link: classes that have no record left.
    spent: Vec<u8>,
    /// By link and class: who waits at the begin of the window; who had none left and sent others.
    holders: Vec<u64>,
    gone: Vec<u64>,
    /// By link and class: bytes granted in this window.
    granted: Vec<f64>,
    /// Most that a class is owed, bytes.
    max_lag: f64,
    /// By class: the longest record.
    longest: Vec<f64>,
    /// By link and two classes.
    pairs: Vec<Pair>,
    verdict: Verdict,
}

impl Audit {
    /// Judges by this configuration, at the node of this index.
    #[must_use]
    pub fn new(config: &ClusterConfig, me: usize) -> Self {
        let (links, classes) = (config.links, config.classes());
        let (flows, queues) = (links * classes, config.nodes() * links * classes);
        Self {
            weights: (0..classes).map(|class| f64::from(config.weight.get(class))).collect(),
            rule: config.rule,
            links,
            classes,
            depth: config.depth(),
            scope: if config.rule == WeightRule::PerClass { u64::MAX } else { 1 << me },
            announced: vec![0; queues],
            used: vec![0; queues],
            fresh: 0,
            spent: vec![0; config.nodes() * links],
            holders: vec![0; flows],
            gone: vec![0; flows],
            granted: vec![0.0; flows],
            max_lag: config.max_lag.0 as f64,
            longest: vec![0.0; classes],
            pairs: vec![Pair::default(); flows * classes],
            verdict: Verdict::default(),
        }
    }

    /// What a node said of a queue: see [`Scheduler::announce`](crate::Scheduler::announce).
    pub fn announce(&mut self, node: usize, link: usize, class: usize, heads: &[Record]) {
        let heads = heads.iter().take(self.depth).take_while(|record| record.length > 0);
        let (mut count, mut longest) = (0, 0);
        for record in heads {
            (count, longest) = (count + 1, record.length.max(longest));
        }
        let queue = (node * self.links + link) * self.classes + class;
        (self.announced[queue], self.used[queue]) = (count, 0);
        self.longest[class] = self.longest[class].max(longest.into());
        self.fresh |= 1 << node;
    }

    /// A window was decided.
    pub fn window(&mut self, seen: &Seen<'_>) {
        let known = std::mem::take(&mut self.fresh) & seen.heard;
        if !seen.whole || seen.present & !known != 0 {
            self.pairs.fill(Pair::default());
            self.verdict.blind += 1;
            return;
        }
        self.verdict.windows += 1;
        self.begin(seen.present);
        seen.grants.iter().for_each(|granted| self.take(granted));
        for link in 0..self.links {
            if seen.forgot >> link & 1 == 1 {
                let of_link = self.classes * self.classes;
                self.pairs[link * of_link..(link + 1) * of_link].fill(Pair::default());
                continue;
            }
            for class in 0..self.classes {
                for other in (0..self.classes).filter(|other| *other != class) {
                    self.judge(seen.cycle, link, class, other);
                }
            }
            for class in 0..self.classes {
                if self.goes_on(link, class) {
                    continue;
                }
                for other in 0..self.classes {
                    *self.pair(link, class, other) = Pair::default();
                    *self.pair(link, other, class) = Pair::default();
                }
            }
        }
    }

    /// Whether a class still waits somewhere at the end of the window, for all that is known. What
    /// comes later is owed nothing of what was before.
    fn goes_on(&self, link: usize, class: usize) -> bool {
        let flow = link * self.classes + class;
        members(self.holders[flow] & self.scope).any(|node| {
            let queue = node * self.links * self.classes + flow;
            let announced = self.announced[queue];
            self.used[queue] < announced || usize::from(announced) == self.depth
        })
    }

    fn pair(&mut self, link: usize, class: usize, other: usize) -> &mut Pair {
        &mut self.pairs[(link * self.classes + class) * self.classes + other]
    }

    /// What another audit of this node had found before this one began.
    pub fn take_over(&mut self, earlier: &Self) {
        let Verdict { windows, blind, violations, last, worst_ppm } = earlier.verdict;
        let mine = &mut self.verdict;
        (mine.windows, mine.blind) = (mine.windows + windows, mine.blind + blind);
        mine.violations += violations;
        mine.last = mine.last.or(last);
        mine.worst_ppm = mine.worst_ppm.max(worst_ppm);
    }

    /// What was found.
    #[must_use]
    pub fn verdict(&self) -> &Verdict {
        &self.verdict
    }

    fn begin(&mut self, present: u64) {
        self.spent.fill(0);
        self.holders.fill(0);
        self.gone.fill(0);
        self.granted.fill(0.0);
        let flows = self.links * self.classes;
        for node in members(present) {
            let queues = &self.announced[node * flows..(node + 1) * flows];
            for (holders, count) in self.holders.iter_mut().zip(queues) {
                *holders |= u64::from(*count > 0) << node;
            }
        }
    }

    fn take(&mut self, &Granted { node, grant }: &Granted) {
        let (pair, flow) =
            (node * self.links + grant.link, grant.link * self.classes + grant.class);
        for class in members(self.spent[pair].into()) {
            self.gone[grant.link * self.classes + class] |= 1 << node;
        }
        let queue = pair * self.classes + grant.class;
        self.used[queue] += 1;
        self.spent[pair] |= u8::from(self.used[queue] >= self.announced[queue]) << grant.class;
        if self.scope >> node & 1 == 1 {
            self.granted[flow] += f64::from(grant.bytes);
        }
    }

    /// Whether `class` is too far behind `other`.
    fn judge(&mut self, cycle: u64, link: usize, class: usize, other: usize) {
        let flow = |class: usize| link * self.classes + class;
        let (mine, theirs) = (flow(class), flow(other));
        let [waits, also] = [theirs, mine].map(|flow| self.holders[flow] & self.scope);
        let [they_stay, we_stay] = [theirs, mine].map(|flow| self.holders[flow] & !self.gone[flow]);
        let pair = &mut self.pairs[mine * self.classes + other];
        if waits == 0 || also == 0 {
            *pair = Pair::default();
            return;
        }
        // With rule C a class's weight is divided among those that hold it.
        let parts = |flow: usize| match self.rule {
            WeightRule::Divided => f64::from(self.holders[flow].count_ones()),
            WeightRule::PerQueue | WeightRule::PerClass => 1.0,
        };
        let weights = [self.weights[class] / parts(mine), self.weights[other] / parts(theirs)];
        let had = [self.granted[mine], self.granted[theirs]];
        let gains = had[1] / weights[1] - had[0] / weights[0];
        let beside = waits & !we_stay == 0;
        if !pair.level {
            // Both at the same forwarders to the end, and both were granted something.
            let same = waits == also && waits & !(they_stay & we_stay) == 0;
            if same && had.iter().all(|had| *had > 0.0) {
                *pair = Pair { level: true, ..Pair::default() };
                return;
            }
        }
        pair.ahead = match (pair.level, beside) {
            (true, true) => pair.ahead + gains,
            (false, true) => (pair.ahead + gains).max(0.0),
            (_, false) => (pair.ahead + gains).min(pair.ahead.max(0.0)),
        };
        for (sum, had) in pair.had.iter_mut().zip(had) {
            *sum += had;
        }
        let credit = if pair.level { 0.0 } else { self.max_lag / self.weights[other] };
        let bound =
            2.0 * (self.longest[class] / weights[0] + self.longest[other] / weights[1]) + credit;
        if !beside {
            return;
        }
        let ppm = (pair.ahead.max(0.0) / bound.max(f64::MIN_POSITIVE) * 1e6) as u64;
        self.verdict.worst_ppm = self.verdict.worst_ppm.max(ppm);
        if pair.ahead <= bound {
            return;
        }
        let part = |[mine, all]: [f64; 2]| (mine / all.max(f64::MIN_POSITIVE) * 1e6) as u32;
        self.verdict.violations += 1;
        self.verdict.last = Some(Behind {
            cycle,
            link,
            class,
            other,
            lag: Bytes((pair.ahead * weights[0]) as u64),
            bound: Bytes((bound * weights[0]) as u64),
            told_ppm: part([weights[0], weights[0] + weights[1]]),
            delivered_ppm: part([pair.had[0], pair.had[0] + pair.had[1]]),
        });
        *pair = Pair::default();
    }
}
