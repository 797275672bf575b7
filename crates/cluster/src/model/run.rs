//! The events of a simulated cluster.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use evenkeel_core::Nanos;

use super::source::{Random, Source};
use super::{LinkUse, ModelConfig, Outcome, Sent};
use crate::config::ConfigError;
use crate::engine::Engine;
use crate::types::{Event, Forwarder, Grant, NodeId, Record};

/// What happens. Compared only to give equal times an order.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum What {
    /// A packet of a class comes to the switch for a link.
    Packet { node: usize, link: usize, class: usize, bytes: u16, cycle: u64, round: u32 },
    /// A frame from a node reaches the others.
    Frame { from: usize, buffer: usize },
    /// A node's timer.
    Timer { node: usize },
}

/// Events in order of time, then of their making.
#[derive(Default)]
struct Events {
    heap: BinaryHeap<Reverse<(Nanos, u64, What)>>,
    made: u64,
    buffers: Vec<Vec<u8>>,
    free: Vec<usize>,
    /// When the ports by which broadcasts leave are free.
    wire_free: Nanos,
    /// Forwarders that became master.
    masters: Vec<(usize, Nanos)>,
}

impl Events {
    fn add(&mut self, at: Nanos, what: What) {
        self.made += 1;
        self.heap.push(Reverse((at, self.made, what)));
    }

    fn keep(&mut self, frame: &[u8]) -> usize {
        let buffer = self.free.pop().unwrap_or_else(|| {
            self.buffers.push(Vec::new());
            self.buffers.len() - 1
        });
        self.buffers[buffer].clear();
        self.buffers[buffer].extend_from_slice(frame);
        buffer
    }
}

/// The forwarder around an engine.
struct Node<'m> {
    model: &'m ModelConfig,
    index: usize,
    now: Nanos,
    sources: Vec<Source>,
    /// When its processor has done what it was given.
    free: Nanos,
    /// Time for which its timer is set.
    timer: Nanos,
    rounds: u64,
}

/// A node during a call of its engine.
struct Acting<'a, 'm> {
    node: &'a mut Node<'m>,
    events: &'a mut Events,
}

impl Forwarder for Acting<'_, '_> {
    fn heads(&mut self, link: usize, class: usize, out: &mut [Record]) -> usize {
        let node = &mut *self.node;
        if node.model.holds[node.index] >> class & 1 == 0 {
            return 0;
        }
        let queue = link * node.model.cluster.classes() + class;
        node.sources[queue].heads(node.now, &node.model.sizes, out)
    }

    fn grant(&mut self, grant: Grant) {
        let node = &mut *self.node;
        let queue = grant.link * node.model.cluster.classes() + grant.class;
        let (mut left, mut at) = (grant.bytes, grant.at.max(node.now));
        while left > 0 {
            let Some(record) = node.sources[queue].take() else { break };
            left = left.saturating_sub(record.length.into());
            let (link, class, bytes) = (grant.link, grant.class, record.length);
            let (cycle, round) = (grant.cycle, grant.round);
            self.events
                .add(at, What::Packet { node: node.index, link, class, bytes, cycle, round });
            at += node.model.cluster.timing.per_packet.max(wire_time(node.model, link, bytes));
            node.free += node.model.per_packet;
        }
    }

    fn broadcast(&mut self, frame: &[u8]) {
        let buffer = self.events.keep(frame);
        let model = self.node.model;
        // With check sequence, preamble and gap.
        let takes = model.byte * (frame.len() as u64 + 24);
        let at = (self.node.now + model.broadcast).max(self.events.wire_free) + takes;
        self.events.wire_free = if takes > Nanos::ZERO { at } else { Nanos::ZERO };
        self.events.add(at, What::Frame { from: self.node.index, buffer });
    }

    fn event(&mut self, event: Event) {
        if event == Event::BecameMaster {
            self.events.masters.push((self.node.index, self.node.now));
        }
    }
}

fn wire_time(model: &ModelConfig, link: usize, bytes: u16) -> Nanos {
    let wire = u64::from(bytes) + u64::from(model.cluster.timing.overhead);
    model.cluster.rate_of(link).time_for(evenkeel_core::Bytes(wire))
}

/// A port of the switch.
#[derive(Clone, Default)]
struct Port {
    free: Nanos,
    total: u64,
    packets: u64,
    last: Option<(u64, u32, usize)>,
}

pub(super) fn run(model: &ModelConfig) -> Result<Outcome, ConfigError> {
    let cluster = &model.cluster;
    let (nodes, links) = (cluster.nodes(), cluster.links);
    let mut events = Events::default();
    let mut engines = Vec::new();
    for (index, id) in cluster.members.iter().enumerate() {
        let mac = [2, 0, 0, 0, 0, index as u8];
        engines.push(Engine::new(cluster, NodeId(id.0), mac, 1, Nanos::ZERO)?);
    }
    let mut around: Vec<Node<'_>> = (0..nodes).map(|index| Node::new(model, index)).collect();
    let mut run = Run {
        model,
        random: Random::new(model.seed, u64::MAX),
        ports: vec![Port::default(); links],
        weights: cluster.weights().map(u64::from).sum(),
        last_packet: None,
        outcome: Outcome {
            queues: vec![Sent::default(); cluster.queues()],
            links: vec![LinkUse::default(); links],
            packets: vec![0; nodes],
            time: model.duration,
            ..Outcome::default()
        },
    };
    for index in 0..nodes {
        run.set_timer(index, &engines, &mut around, &mut events);
    }
    while let Some(Reverse((now, _, what))) = events.heap.pop() {
        if now > model.duration {
            break;
        }
        if model.packets.is_some_and(|packets| run.ports[0].packets >= packets) {
            run.outcome.time = now;
            break;
        }
        run.happens(now, what, &mut engines, &mut around, &mut events);
    }
    let mut outcome = run.outcome;
    outcome.masters = events.masters;
    outcome.nodes = engines.iter().map(|engine| *engine.counters()).collect();
    outcome.audits = engines.iter().map(|engine| *engine.verdict()).collect();
    outcome.checksums =
        engines.iter().map(|engine| (engine.view().checksum, engine.view().cycle)).collect();
    Ok(outcome)
}

impl<'m> Node<'m> {
    fn new(model: &'m ModelConfig, index: usize) -> Self {
        let queues = model.cluster.queues();
        let source =
            |queue| Source::new(model.seed, (index * queues + queue) as u64, model.interval);
        Self {
            model,
            index,
            now: Nanos::ZERO,
            sources: (0..queues).map(source).collect(),
            free: Nanos::ZERO,
            timer: Nanos::MAX,
            rounds: 0,
        }
    }
}

struct Run<'m> {
    model: &'m ModelConfig,
    random: Random,
    ports: Vec<Port>,
    weights: u64,
    last_packet: Option<Nanos>,
    outcome: Outcome,
}

impl Run<'_> {
    fn happens<'m>(
        &mut self,
        now: Nanos,
        what: What,
        engines: &mut [Engine],
        around: &mut [Node<'m>],
        events: &mut Events,
    ) {
        match what {
            What::Packet { node, link, class, bytes, cycle, round } => {
                self.packet(now, node, link, class, bytes, (cycle, round));
            }
            What::Frame { from, buffer } => {
                let frame = std::mem::take(&mut events.buffers[buffer]);
                for to in (0..engines.len()).filter(|to| *to != from) {
                    if self.arrives(now, from, to) {
                        self.act(to, now, engines, around, events, |engine, now, acting| {
                            engine.on_frame(now, &frame, acting);
                        });
                    }
                }
                events.buffers[buffer] = frame;
                events.free.push(buffer);
            }
            What::Timer { node } if around[node].timer == now => {
                self.act(node, now, engines, around, events, |engine, now, acting| {
                    engine.on_timer(now, acting);
                });
            }
            What::Timer { .. } => {}
        }
    }

    fn stopped(&self, node: usize, now: Nanos) -> bool {
        self.model.stops.iter().any(|(who, when)| *who == node && now >= *when)
    }

    fn arrives(&mut self, now: Nanos, from: usize, to: usize) -> bool {
        let cut = |(set, begin, end): &(u64, Nanos, Nanos)| {
            (*begin..*end).contains(&now) && set >> from & 1 != set >> to & 1
        };
        let lost = self.model.loss > 0 && self.random.next() < self.model.loss;
        !(lost || self.model.splits.iter().any(cut) || self.stopped(to, now))
    }

    /// Lets a node's engine act, no earlier than its processor is free.
    fn act<'m>(
        &self,
        index: usize,
        now: Nanos,
        engines: &mut [Engine],
        around: &mut [Node<'m>],
        events: &mut Events,
        call: impl FnOnce(&mut Engine, Nanos, &mut Acting<'_, 'm>),
    ) {
        if self.stopped(index, now) {
            return;
        }
        let (engine, node) = (&mut engines[index], &mut around[index]);
        let before = *engine.counters();
        node.now = now.max(node.free);
        call(engine, node.now, &mut Acting { node, events });
        let after = engine.counters();
        if after.cycles > before.cycles {
            // What was granted in this call too counts from the begin of its exchange.
            node.free = node.free.max(node.now) + self.model.per_exchange;
        }
        node.free += self.model.per_decision * (after.rounds - before.rounds);
        node.rounds = after.rounds;
        self.set_timer(index, engines, around, events);
    }

    fn set_timer(
        &self,
        index: usize,
        engines: &[Engine],
        around: &mut [Node<'_>],
        events: &mut Events,
    ) {
        let node = &mut around[index];
        let at = engines[index].next_timer().max(node.now).max(node.free);
        if at != node.timer || at <= node.now {
            node.timer = at;
            events.add(at, What::Timer { node: index });
        }
    }

    fn packet(
        &mut self,
        now: Nanos,
        node: usize,
        link: usize,
        class: usize,
        bytes: u16,
        slot: (u64, u32),
    ) {
        let cluster = &self.model.cluster;
        let (outcome, port) = (&mut self.outcome, &mut self.ports[link]);
        outcome.packets[node] += 1;
        // The first packet ends no pause: a cluster that has just started looks for its master.
        let last = self.last_packet.replace(now).unwrap_or(now);
        outcome.longest_pause = outcome.longest_pause.max(now.saturating_sub(last));
        let (cycle, round) = slot;
        let other = |(c, r, n): (u64, u32, usize)| (c, r) == (cycle, round) && n != node;
        outcome.collisions += u64::from(port.last.is_some_and(other));
        port.last = Some((cycle, round, node));
        let wire = wire_time(self.model, link, bytes);
        let usage = &mut outcome.links[link];
        if wire > Nanos::ZERO {
            usage.most_waiting =
                usage.most_waiting.max(port.free.saturating_sub(now).0.div_ceil(wire.0));
        }
        port.free = port.free.max(now) + wire;
        usage.busy += wire;
        let classes = cluster.classes();
        let queues = &mut outcome.queues[link * classes..(link + 1) * classes];
        queues[class].packets += 1;
        queues[class].bytes += u64::from(bytes);
        port.total += u64::from(bytes);
        port.packets += 1;
        for (sent, weight) in queues.iter().zip(cluster.weights()) {
            let fair = port.total * u64::from(weight) / self.weights;
            usage.worst_bytes = usage.worst_bytes.max(sent.bytes.abs_diff(fair));
        }
    }
}
