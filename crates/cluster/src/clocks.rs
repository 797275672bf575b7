//! Virtual clocks and tags: the state that every node keeps alike.
//!
//! Self-clocked fair queueing (spec 5.2). Symbols: V_j → `clock[j]`, finish tag of the last packet
//! sent on link j; F_ijk → `finish[q]`, finish tag of the last packet sent from a queue; w_k → the
//! class's weight; m_jk → `spread`.
//!
//! ```text
//! tag or clock (u64):  bit 63        always 0
//!                      bits 62..20   bytes / weight, whole
//!                      bits 19..0    its fraction
//! increment            floor(L · m · 2^20 / w), L < 2^16, m <= 64, 1 <= w < 2^16
//! ```
//!
//! When a clock passes 2^62, 2^61 is taken from it and from its link's tags: on all nodes in the
//! same round, because the values are equal. It is done link by link, so that an idle link does not
//! stand in the way.
//!
//! Not in the paper: a tag lags its clock by at most `max_lag` bytes of its class. Without this
//! bound, what a class could not be given for an hour (a forwarder serves one link at a time) would
//! be owed to it at the cost of all others.

use crate::config::{ClusterConfig, WeightRule};
use crate::mix::mix64;

/// Fraction bits of tags.
const FRACTION: u32 = 20;
/// Where clocks are set back, and by how much.
const HIGH: u64 = 1 << 62;
const BACK: u64 = 1 << 61;
/// In a clock frame: the queue was backlogged at the end of the last window.
pub(crate) const BACKLOGGED: u64 = 1 << 63;

/// floor(n / w) by one multiplication: exact for n·w < 2^64.
#[derive(Clone, Copy, Debug)]
struct Divisor {
    /// ceil(2^64 / w); 0 stands for w = 1.
    magic: u64,
    /// Most that a tag of this class lags.
    lag: u64,
}

impl Divisor {
    fn new(weight: u16, max_lag: u64) -> Self {
        let w = u64::from(weight);
        let magic = if w == 1 { 0 } else { u64::MAX / w + 1 };
        Self { magic, lag: (max_lag << FRACTION) / w }
    }

    #[inline]
    fn quotient(self, n: u64) -> u64 {
        if self.magic == 0 { n } else { ((u128::from(n) * u128::from(self.magic)) >> 64) as u64 }
    }
}

/// What a cycle charged to a queue, so that it can be given back.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Refund {
    /// Queue of all queues: (i·N + j)·K + k.
    pub(crate) queue: u16,
    /// Its tag before.
    pub(crate) before: u64,
}

/// Clocks, tags, and what the last window charged.
#[derive(Clone, Debug)]
pub(crate) struct Clocks {
    links: usize,
    classes: usize,
    per_class: bool,
    divisors: Vec<Divisor>,
    pub(crate) clock: Vec<u64>,
    /// The clocks before the last window.
    pub(crate) clock_before: Vec<u64>,
    /// By flow: see [`flow`](Self::flow).
    pub(crate) finish: Vec<u64>,
    /// By forwarder and link (i·N + j): the classes that were backlogged at the end of the last
    /// window.
    pub(crate) backlogged: Vec<u8>,
    pub(crate) refunds: Vec<Refund>,
    /// By queue: whether it is among `refunds`.
    charged: Vec<bool>,
    /// Forwarders that the last window charged on each link.
    senders: Vec<u64>,
}

impl Clocks {
    pub(crate) fn new(config: &ClusterConfig) -> Self {
        let queues = config.nodes() * config.queues();
        Self {
            links: config.links,
            classes: config.classes(),
            per_class: config.rule == WeightRule::PerClass,
            divisors: config.weights().map(|w| Divisor::new(w, config.max_lag.0)).collect(),
            clock: vec![0; config.links],
            clock_before: vec![0; config.links],
            finish: vec![0; queues],
            backlogged: vec![0; queues / config.classes()],
            refunds: Vec::with_capacity(queues),
            charged: vec![false; queues],
            senders: vec![0; config.links],
        }
    }

    /// Where the tag of a queue is kept: with rule B that of the first forwarder's stands for all.
    #[inline]
    fn flow(&self, queue: usize) -> usize {
        if self.per_class { queue % (self.links * self.classes) } else { queue }
    }

    /// `flow` was empty and has a packet: it is owed nothing of the time in which it had none.
    #[inline]
    pub(crate) fn wake(&mut self, flow: usize, link: usize) {
        self.finish[flow] = self.finish[flow].max(self.clock[link]);
    }

    /// The virtual start time of the next packet of `flow`.
    #[inline]
    pub(crate) fn start(&self, flow: usize, link: usize, class: usize) -> u64 {
        self.finish[flow].max(self.clock[link].saturating_sub(self.divisors[class].lag))
    }

    /// The most that the class with the largest weight may lag.
    pub(crate) fn smallest_lag(&self) -> u64 {
        self.divisors.iter().map(|divisor| divisor.lag).min().unwrap_or(0)
    }

    /// What a packet of `length` bytes adds to it.
    #[inline]
    pub(crate) fn increment(&self, class: usize, length: u16, spread: u32) -> u64 {
        self.divisors[class].quotient(u64::from(u32::from(length) * spread) << FRACTION)
    }

    /// Goes on where `old` is, under another configuration: of each member at its place there. Who
    /// was not there begins anew, as a queue that comes back does. If flows are something else now,
    /// so do all.
    pub(crate) fn carry(&mut self, old: &Self, places: &[Option<usize>]) {
        if self.per_class != old.per_class {
            return;
        }
        self.clock.copy_from_slice(&old.clock);
        self.clock_before.copy_from_slice(&old.clock);
        let per_node = self.links * self.classes;
        if self.per_class {
            // Those of the first member stand for all.
            self.finish[..per_node].copy_from_slice(&old.finish[..per_node]);
        }
        for (new, place) in places.iter().enumerate() {
            let Some(place) = *place else { continue };
            if !self.per_class {
                let from = &old.finish[place * per_node..(place + 1) * per_node];
                self.finish[new * per_node..(new + 1) * per_node].copy_from_slice(from);
            }
            let from = &old.backlogged[place * self.links..(place + 1) * self.links];
            self.backlogged[new * self.links..(new + 1) * self.links].copy_from_slice(from);
        }
    }

    /// Begins a window: what is charged from now on can be given back.
    pub(crate) fn open(&mut self) {
        for refund in self.refunds.drain(..) {
            self.charged[usize::from(refund.queue)] = false;
        }
        self.clock_before.copy_from_slice(&self.clock);
        self.senders.fill(0);
    }

    /// The packet with this tag, of `queue` and so of `flow`, is sent. `true`: the link's clock and
    /// tags were set back, tags computed before are void.
    #[inline]
    pub(crate) fn charge(
        &mut self,
        node: usize,
        queue: usize,
        flow: usize,
        link: usize,
        tag: u64,
    ) -> bool {
        if !self.charged[queue] {
            self.charged[queue] = true;
            self.refunds.push(Refund { queue: queue as u16, before: self.finish[flow] });
        }
        self.senders[link] |= 1 << node;
        self.finish[flow] = tag;
        self.clock[link] = tag;
        if tag > HIGH {
            self.set_back(link);
        }
        tag > HIGH
    }

    #[cold]
    fn set_back(&mut self, link: usize) {
        self.clock[link] -= BACK;
        self.clock_before[link] = self.clock_before[link].saturating_sub(BACK);
        let (classes, per_node) = (self.classes, self.links * self.classes);
        for (queue, finish) in self.finish.iter_mut().enumerate() {
            if queue % per_node / classes == link {
                *finish = finish.saturating_sub(BACK);
            }
        }
        for refund in &mut self.refunds {
            if usize::from(refund.queue) % per_node / classes == link {
                refund.before = refund.before.saturating_sub(BACK);
            }
        }
    }

    /// Forwarders that the last window let send.
    pub(crate) fn senders(&self) -> u64 {
        self.senders.iter().fold(0, |all, nodes| all | nodes)
    }

    /// Takes back what the last window charged to the forwarders in `nodes`: they say that they did
    /// not send. A clock that others advanced too stays.
    pub(crate) fn refund(&mut self, nodes: u64) {
        let per_node = self.links * self.classes;
        for n in 0..self.refunds.len() {
            let Refund { queue, before } = self.refunds[n];
            let (node, link) =
                (usize::from(queue) / per_node, usize::from(queue) % per_node / self.classes);
            if nodes >> node & 1 == 0 {
                continue;
            }
            let alone = self.senders[link] == 1 << node;
            let flow = self.flow(queue.into());
            if alone || !self.per_class {
                self.finish[flow] = before;
            }
            if alone {
                self.clock[link] = self.clock_before[link];
            }
        }
    }

    /// The tag of each queue, and whether the queue was backlogged.
    fn words(&self) -> impl Iterator<Item = u64> {
        let queues = self.finish.chunks(self.classes).zip(&self.backlogged);
        queues.flat_map(|(finish, backlogged)| {
            let word = move |(class, finish): (usize, &u64)| {
                finish | u64::from(backlogged >> class & 1) << 63
            };
            finish.iter().enumerate().map(word)
        })
    }

    /// A hash of all clocks and tags: equal on nodes in step.
    pub(crate) fn checksum(&self) -> u32 {
        let mut state = 0x636c_6f63_6b73;
        for clock in &self.clock {
            state = mix64(state ^ clock);
        }
        for word in self.words() {
            state = mix64(state ^ word);
        }
        (state ^ (state >> 32)) as u32
    }

    /// Writes the body of a clock frame after its first two bytes; returns what it takes.
    pub(crate) fn write(&self, out: &mut [u8]) -> usize {
        out[..2].copy_from_slice(&(self.refunds.len() as u16).to_be_bytes());
        let mut at = 2;
        let mut put = |bytes: &[u8]| {
            out[at..at + bytes.len()].copy_from_slice(bytes);
            at += bytes.len();
        };
        for word in self.clock.iter().chain(&self.clock_before) {
            put(&word.to_be_bytes());
        }
        for word in self.words() {
            put(&word.to_be_bytes());
        }
        for refund in &self.refunds {
            put(&refund.queue.to_be_bytes());
            put(&refund.before.to_be_bytes());
        }
        at
    }

    /// Takes over a clock body after its first two bytes; `false` if it is malformed: then nothing
    /// has changed.
    pub(crate) fn read(&mut self, body: &[u8]) -> bool {
        let word = |at: usize| {
            body.get(at..at + 8).and_then(|word| word.try_into().ok()).map(u64::from_be_bytes)
        };
        let short =
            |at: usize| body.get(at..at + 2).map(|word| u16::from_be_bytes([word[0], word[1]]));
        let Some(refunds) = short(0) else { return false };
        let refunds = usize::from(refunds);
        let words = 2 * self.links + self.finish.len();
        let begin = 2 + 8 * words;
        let queues = self.finish.len();
        let clocks_fit =
            (0..2 * self.links).all(|n| word(2 + 8 * n).is_some_and(|clock| clock <= HIGH));
        let tags_fit = (2 * self.links..words)
            .all(|n| word(2 + 8 * n).is_some_and(|tag| tag & !BACKLOGGED <= HIGH));
        let mut last = None;
        let refunds_fit = (0..refunds).all(|n| {
            let queue = short(begin + 10 * n).map(usize::from);
            let fits =
                queue.is_some_and(|queue| queue < queues) && word(begin + 10 * n + 2) <= Some(HIGH);
            let distinct = queue != last;
            last = queue;
            fits && distinct
        });
        if body.len() != begin + 10 * refunds
            || refunds > queues
            || !(clocks_fit && tags_fit && refunds_fit)
        {
            return false;
        }
        self.open();
        let word = |at: usize| word(at).unwrap_or_default();
        for link in 0..self.links {
            self.clock[link] = word(2 + 8 * link);
            self.clock_before[link] = word(2 + 8 * (self.links + link));
        }
        for queue in 0..queues {
            let tag = word(2 + 8 * (2 * self.links + queue));
            self.finish[queue] = tag & !BACKLOGGED;
            let (pair, class) = (queue / self.classes, queue % self.classes);
            self.backlogged[pair] &= !(1 << class);
            self.backlogged[pair] |= u8::from(tag & BACKLOGGED != 0) << class;
        }
        let per_node = self.links * self.classes;
        for n in 0..refunds {
            let queue = short(begin + 10 * n).unwrap_or_default();
            let index = usize::from(queue);
            if self.charged[index] {
                continue;
            }
            self.charged[index] = true;
            self.refunds.push(Refund { queue, before: word(begin + 10 * n + 2) });
            self.senders[index % per_node / self.classes] |= 1 << (index / per_node);
        }
        true
    }
}
