//! Another configuration while the cluster runs: at one boundary, or not at all.

use std::collections::BTreeMap;

use evenkeel_cluster::{
    ClusterConfig, ConfigError, Engine, Event, ExchangeKey, Forwarder, Grant, NodeId, Record,
    Variant,
};
use evenkeel_core::Nanos;

const KEY: [u8; 16] = [7; 16];

#[derive(Default)]
pub(crate) struct Around {
    out: Vec<Vec<u8>>,
    /// (cycle, round, link, class).
    pub(crate) grants: Vec<(u64, u32, usize, usize)>,
    pub(crate) events: Vec<Event>,
}

impl Forwarder for Around {
    fn heads(&mut self, link: usize, class: usize, out: &mut [Record]) -> usize {
        for (n, record) in out.iter_mut().enumerate() {
            *record = Record::of_packet((link + 3 * class + 9 * n) as u32, 640);
        }
        out.len()
    }

    fn grant(&mut self, grant: Grant) {
        self.grants.push((grant.cycle, grant.round, grant.link, grant.class));
    }

    fn broadcast(&mut self, frame: &[u8]) {
        self.out.push(frame.to_vec());
    }

    fn event(&mut self, event: Event) {
        self.events.push(event);
    }
}

/// Nodes on one segment; a frame takes 10 us.
pub(crate) struct Segment {
    pub(crate) nodes: Vec<(Engine, Around)>,
    flying: Vec<(u64, usize, Vec<u8>)>,
    pub(crate) micros: u64,
    /// All that ever flew.
    pub(crate) heard: Vec<Vec<u8>>,
}

pub(crate) fn config(members: &[u16], weights: &[u16]) -> ClusterConfig {
    let mut config = ClusterConfig::new(1, 2, weights);
    config.members = members.iter().map(|id| NodeId(*id)).collect();
    config.set_variant(Variant::Pipelined, 12, 4);
    config.framing.key = Some(ExchangeKey(KEY));
    config
}

impl Segment {
    pub(crate) fn new(config: &ClusterConfig) -> Self {
        let mut segment =
            Self { nodes: Vec::new(), flying: Vec::new(), micros: 0, heard: Vec::new() };
        config.members.iter().for_each(|id| segment.join(config, id.0));
        segment
    }

    fn join(&mut self, config: &ClusterConfig, id: u16) {
        self.nodes.push((self.start(config, id, 1000), Around::default()));
    }

    /// A node that starts now, in this life.
    pub(crate) fn start(&self, config: &ClusterConfig, id: u16, epoch: u64) -> Engine {
        let now = Nanos::from_micros(self.micros);
        Engine::new(config, NodeId(id), [2, 0, 0, 0, 0, id as u8], epoch, now).unwrap()
    }

    fn prepare(&mut self, at: usize, config: &ClusterConfig) {
        self.nodes[at].0.prepare(config, Nanos::from_micros(self.micros)).unwrap();
    }

    /// `lost(from, to, frame)`: this one does not arrive there.
    pub(crate) fn run(&mut self, millis: u64, lost: impl Fn(usize, usize, &[u8]) -> bool) {
        for micros in self.micros..self.micros + 1_000 * millis {
            let now = Nanos::from_micros(micros);
            let (due, later) =
                std::mem::take(&mut self.flying).into_iter().partition(|frame| frame.0 <= micros);
            self.flying = later;
            for (_, from, frame) in Vec::from_iter::<Vec<_>>(due) {
                for (to, (engine, around)) in self.nodes.iter_mut().enumerate() {
                    if to != from && !lost(from, to, &frame) {
                        engine.on_frame(now, &frame, around);
                    }
                }
                self.heard.push(frame);
            }
            for (from, (engine, around)) in self.nodes.iter_mut().enumerate() {
                if engine.next_timer() <= now {
                    engine.on_timer(now, around);
                }
                self.flying.extend(around.out.drain(..).map(|frame| (micros + 10, from, frame)));
            }
        }
        self.micros += 1_000 * millis;
    }

    fn hashes(&self) -> Vec<u32> {
        self.nodes.iter().map(|(engine, _)| engine.view().configuration).collect()
    }

    /// Nobody but one ever had a link in a round. Then what each class was granted, and all is
    /// forgotten.
    pub(crate) fn shares(&mut self) -> Vec<u64> {
        let mut uses: BTreeMap<_, u32> = BTreeMap::new();
        let mut classes = vec![0; 2];
        for (cycle, round, link, class) in
            self.nodes.iter_mut().flat_map(|(_, around)| around.grants.drain(..))
        {
            *uses.entry((cycle, round, link)).or_default() += 1;
            classes[class] += 1;
        }
        assert!(uses.values().all(|uses| *uses == 1), "two nodes on one link in a round");
        classes
    }

    /// The last cycle under the old configuration, by node, of the last change.
    fn changed(&self) -> Vec<Option<u64>> {
        let change = |event: &Event| match event {
            Event::Changed { cycle, .. } => Some(*cycle),
            _ => None,
        };
        self.nodes.iter().map(|(_, around)| around.events.iter().rev().find_map(change)).collect()
    }
}

pub(crate) fn none(_: usize, _: usize, _: &[u8]) -> bool {
    false
}

#[test]
fn weights_change_at_one_boundary_and_not_before_all_are_ready() {
    let (old, new) = (config(&[1, 2, 3], &[1, 1]), config(&[1, 2, 3], &[1, 3]));
    let mut segment = Segment::new(&old);
    segment.run(60, none);
    let before = segment.shares();
    assert!(before[0] > 200 && before[0].abs_diff(before[1]) <= 2, "{before:?}");
    segment.prepare(0, &new);
    segment.prepare(2, &new);
    segment.run(20, none);
    assert_eq!(segment.hashes(), [old.hash(); 3], "node 2 is not ready");
    let view = segment.nodes[0].0.view();
    assert_eq!((view.next_configuration, view.waits_for), (Some(new.hash()), 0b010));
    segment.shares();
    segment.prepare(1, &new);
    segment.run(5, none);
    assert_eq!(segment.hashes(), [new.hash(); 3]);
    let changed = segment.changed();
    assert!(
        changed[0].is_some() && changed.iter().all(|cycle| *cycle == changed[0]),
        "{changed:?}"
    );
    segment.shares();
    segment.run(60, none);
    let after = segment.shares();
    assert!(after[1].abs_diff(3 * after[0]) <= 8 && after[0] > 100, "{after:?}");
    for (engine, _) in &segment.nodes {
        let counters = engine.counters();
        assert_eq!(
            (counters.changes, counters.out_of_step),
            (1, 0),
            "nobody loses step by a change"
        );
    }
}

#[test]
fn a_lost_boundary_is_found_by_the_next_frame() {
    let (old, new) = (config(&[1, 2, 3], &[1, 1]), config(&[1, 2, 3], &[1, 3]));
    let mut segment = Segment::new(&old);
    segment.run(30, none);
    (0..3).for_each(|at| segment.prepare(at, &new));
    let hash = new.hash().to_be_bytes();
    // Node 3 does not hear the frames of the first two cycles under the new configuration.
    let is_new = |frame: &[u8]| frame[18 + 24..18 + 28] == hash;
    let first = std::cell::Cell::new(0);
    segment.run(20, |_, to, frame| {
        let loses = to == 2 && is_new(frame) && first.get() < 4;
        first.set(first.get() + u32::from(loses));
        loses
    });
    assert_eq!(segment.hashes(), [new.hash(); 3]);
    assert_eq!(segment.nodes[2].0.counters().out_of_step, 1, "it came late and had its clocks set");
    assert!(segment.nodes.iter().all(|(engine, _)| engine.view().in_step));
    segment.shares();
    segment.run(20, none);
    segment.shares();
}

#[test]
fn members_come_and_go_even_the_master() {
    let old = config(&[1, 2, 3], &[1, 1]);
    let mut segment = Segment::new(&old);
    segment.run(30, none);
    // Node 4 is started with the configuration in which it is; the others are told.
    let four = config(&[1, 2, 3, 4], &[1, 1]);
    segment.join(&four, 4);
    segment.run(10, none);
    assert_eq!(segment.hashes()[..3], [old.hash(); 3], "a newcomer does not speak for the cluster");
    (0..3).for_each(|at| segment.prepare(at, &four));
    segment.run(20, none);
    assert_eq!(segment.hashes(), [four.hash(); 4]);
    assert!(
        segment
            .nodes
            .iter()
            .all(|(engine, _)| engine.view().present == 0b1111 && engine.view().in_step)
    );
    for (_, around) in &mut segment.nodes {
        around.grants.clear();
    }
    segment.run(20, none);
    assert!(segment.nodes.iter().all(|(_, around)| !around.grants.is_empty()));
    segment.shares();
    // The master leaves: it cannot be told, as it is not a member of what comes.
    let without = config(&[2, 3, 4], &[1, 1]);
    let refused = segment.nodes[0].0.prepare(&without, Nanos::from_micros(segment.micros));
    assert_eq!(refused, Err(ConfigError::NotAMember(1)));
    (1..4).for_each(|at| segment.prepare(at, &without));
    segment.run(20, none);
    assert_eq!(segment.hashes()[1..], [without.hash(); 3]);
    assert!(segment.nodes[1].0.view().is_master && segment.nodes[3].0.view().in_step);
}

#[test]
fn a_stranger_cannot_bring_a_change_about() {
    let (old, new) = (config(&[1, 2, 3], &[1, 1]), config(&[1, 2, 3], &[1, 3]));
    // A cluster elsewhere under the new configuration, with another key: its frames have the right
    // hash.
    let mut other = new.clone();
    other.framing.key = Some(ExchangeKey([8; 16]));
    let mut elsewhere = Segment::new(&other);
    elsewhere.run(10, none);
    let mut segment = Segment::new(&old);
    segment.run(10, none);
    segment.prepare(1, &new);
    for frame in &elsewhere.heard {
        let (engine, around) = &mut segment.nodes[1];
        engine.on_frame(Nanos::from_micros(segment.micros), frame, around);
    }
    assert_eq!(segment.hashes(), [old.hash(); 3]);
    assert!(segment.nodes[1].0.unused().forged > 10);
    // Nor can frames of an earlier time, replayed.
    (0..3).for_each(|at| segment.prepare(at, &new));
    segment.run(10, none);
    assert_eq!(segment.hashes(), [new.hash(); 3]);
    let recorded = std::mem::take(&mut segment.heard);
    (0..3).for_each(|at| segment.prepare(at, &old));
    segment.run(10, none);
    assert_eq!(segment.hashes(), [old.hash(); 3]);
    segment.prepare(2, &new);
    for frame in &recorded {
        let (engine, around) = &mut segment.nodes[2];
        engine.on_frame(Nanos::from_micros(segment.micros), frame, around);
    }
    assert_eq!(segment.hashes(), [old.hash(); 3], "replayed frames change nothing");
}

#[test]
fn what_cannot_change_is_refused_and_the_same_calls_a_change_off() {
    let old = config(&[1, 2], &[1, 1]);
    let mut engine = Engine::new(&old, NodeId(1), [2, 0, 0, 0, 0, 1], 1, Nanos::ZERO).unwrap();
    let mut links = old.clone();
    links.links = 3;
    let mut key = old.clone();
    key.framing.key = None;
    for config in [links, key, config(&[1, 2], &[1, 1, 1])] {
        assert!(matches!(engine.prepare(&config, Nanos::ZERO), Err(ConfigError::Fixed(_))));
    }
    let new = config(&[1, 2], &[5, 1]);
    engine.prepare(&new, Nanos::ZERO).unwrap();
    assert_eq!(engine.view().next_configuration, Some(new.hash()));
    engine.prepare(&config(&[2, 3], &[1, 1]), Nanos::ZERO).unwrap_err();
    assert_eq!(engine.view().next_configuration, Some(new.hash()), "what was prepared stays");
    engine.prepare(&old, Nanos::ZERO).unwrap();
    assert_eq!(engine.view().next_configuration, None);
}
