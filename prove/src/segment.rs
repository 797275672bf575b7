//! A cluster's exchange on one Ethernet segment, with everything that can happen to it: frames
//! that do not arrive, arrive twice or late, and nodes that die or start anew.
//!
//! A run begins with a cluster in step. For some cycles, at each thing that happens next, nothing
//! is wrong or one of these is, until a budget of faults is used up; all ways to spend it are
//! tried. Then the cluster is left alone until it must have recovered.

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};

use evenkeel_cluster::{ClusterConfig, ExchangeKey, NodeId, Variant};
use evenkeel_core::Nanos;
use stateright::{Checker as _, Model, Property};

use crate::node::{Fault, Node};

/// A frame is so long on its way.
const FLIGHT: Nanos = Nanos::from_micros(10);
/// One that is late comes so much later: in another part of the cycle.
const LATE: Nanos = Nanos::from_micros(40);
/// A cluster begins for so long.
const BEGIN: Nanos = Nanos::from_millis(20);
/// What must not have been the same in two lives of a node.
const EPOCH: u64 = 1_000;

/// What is tried.
#[derive(Clone, Debug)]
pub struct Scenario {
    pub name: &'static str,
    pub variant: Variant,
    /// How many things may go wrong.
    pub faults: u32,
    /// What may.
    pub kinds: &'static [Choice],
    /// For how long they may.
    pub within: Nanos,
    /// How soon after the last of them all must be well.
    pub recovers: Nanos,
    /// What nodes do besides.
    pub also: Also,
    /// A node, from 1, that is wrong on purpose.
    pub wrong: Option<(u16, Fault)>,
}

/// What one node does at any of the instants of a run.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Also {
    /// Nothing.
    Nothing,
    /// This one starts anew, with an epoch above its last one, or below.
    Restarts(u16, bool),
    /// This one dies.
    Dies(u16),
    /// All are told another configuration, each at any instant.
    Change,
}

/// A frame on its way to a node.
#[derive(Clone, Debug)]
struct Flying {
    due: Nanos,
    to: usize,
    frame: std::sync::Arc<[u8]>,
}

/// What is done with the next thing that happens.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Choice {
    Right,
    Lost,
    Twice,
    Late,
    /// The node of [`Also`] does it now, before that.
    Also,
    /// Nothing goes wrong any more, up to the end.
    Rest,
}

/// A state of the cluster. Two of them are the same if they came about in the same way.
#[derive(Clone, Debug)]
pub struct Run {
    nodes: Vec<Option<Node>>,
    flying: Vec<Flying>,
    now: Nanos,
    left: u32,
    /// How often [`Also`] can still be done.
    also: u32,
    step: u32,
    /// Step and choice, where that was not the right one.
    choices: Vec<(u32, u8)>,
    /// Who used a link in a round of a cycle, of the latest cycles.
    uses: BTreeMap<(u64, u32, usize), usize>,
    /// The configurations that grants of a cycle were made under.
    under: BTreeMap<u64, Option<u32>>,
    broken: Option<&'static str>,
    last_fault: Nanos,
    granted: Vec<Nanos>,
}

impl PartialEq for Run {
    fn eq(&self, other: &Self) -> bool {
        (self.step, &self.choices) == (other.step, &other.choices)
    }
}

impl Eq for Run {}

impl Hash for Run {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.step, &self.choices).hash(state);
    }
}

fn configuration(variant: Variant, weights: &[u16]) -> ClusterConfig {
    let mut config = ClusterConfig::new(1, 2, weights);
    config.members = [1, 2, 3].map(NodeId).to_vec();
    config.set_variant(variant, 3, 2);
    config.framing.key = Some(ExchangeKey([7; 16]));
    config
}

impl Scenario {
    fn config(&self) -> ClusterConfig {
        configuration(self.variant, &[1, 3])
    }

    fn next_config(&self) -> ClusterConfig {
        configuration(self.variant, &[2, 1])
    }

    /// A cluster that has been in step for a while.
    fn begin(&self) -> Run {
        let config = self.config();
        let node = |id| Node::new(&config, id, EPOCH, Nanos::ZERO);
        let also = match self.also {
            Also::Nothing => 0,
            Also::Restarts(..) | Also::Dies(_) => 1,
            Also::Change => 3,
        };
        let mut run = Run {
            nodes: [1, 2, 3].map(|id| Some(node(id))).to_vec(),
            flying: Vec::new(),
            now: Nanos::ZERO,
            left: 0,
            also,
            step: 0,
            choices: Vec::new(),
            uses: BTreeMap::new(),
            under: BTreeMap::new(),
            broken: None,
            last_fault: Nanos::ZERO,
            granted: vec![Nanos::ZERO; 3],
        };
        run.rest(BEGIN);
        assert!(run.is_well(Nanos::from_millis(1)), "{}: it does not begin well", self.name);
        (run.left, run.step, run.last_fault) = (self.faults, 0, run.now);
        if let Some((wrong, fault)) = self.wrong
            && let Some(node) = &mut run.nodes[usize::from(wrong) - 1]
        {
            node.goes_wrong_by(fault);
        }
        run
    }

    fn ends(&self, run: &Run) -> bool {
        run.left == 0 && run.also == 0 || run.now >= BEGIN + self.within
    }

    fn do_also(&self, run: &mut Run) {
        run.also -= 1;
        match self.also {
            Also::Nothing => {}
            Also::Restarts(id, ahead) => {
                let epoch = if ahead { EPOCH + 1 } else { EPOCH - 1 };
                let node = Node::new(&self.config(), id, epoch, run.now);
                run.nodes[usize::from(id) - 1] = Some(node);
            }
            Also::Dies(id) => run.nodes[usize::from(id) - 1] = None,
            Also::Change => {
                let at = run.also as usize;
                let config = self.next_config();
                let now = run.now;
                if let Some(node) = &mut run.nodes[at] {
                    node.engine.prepare(&config, now).expect("it is valid");
                }
            }
        }
    }
}

/// What happens next.
enum Next {
    Frame(usize),
    Timer(usize, Nanos),
}

impl Run {
    fn next(&self) -> Next {
        let frame = self.flying.iter().enumerate().min_by_key(|(_, flying)| flying.due);
        let timers = self.nodes.iter().enumerate();
        let timer = timers
            .filter_map(|(at, node)| Some((at, node.as_ref()?.engine.next_timer())))
            .min_by_key(|(_, due)| *due)
            .expect("somebody lives");
        match frame {
            Some((at, flying)) if flying.due <= timer.1 => Next::Frame(at),
            _ => Next::Timer(timer.0, timer.1),
        }
    }

    /// What happens next happens, well or not.
    fn take(&mut self, choice: Choice) {
        let happened = match self.next() {
            Next::Frame(at) => {
                let flying = self.flying.remove(at);
                self.now = self.now.max(flying.due);
                let now = self.now;
                match choice {
                    Choice::Lost => {}
                    Choice::Late => self.flying.push(Flying { due: now + LATE, ..flying }),
                    _ => {
                        if choice == Choice::Twice {
                            let again = Flying { due: now + LATE, ..flying.clone() };
                            self.flying.push(again);
                        }
                        if let Some(node) = &mut self.nodes[flying.to] {
                            node.hears(now, &flying.frame);
                        }
                    }
                }
                flying.to
            }
            Next::Timer(at, due) => {
                // A timer may be due for a while with nothing to be done.
                self.now = due.max(self.now + Nanos::from_micros(1));
                let now = self.now;
                if let Some(node) = &mut self.nodes[at] {
                    node.wakes(now);
                }
                at
            }
        };
        self.collect(happened);
    }

    /// Sends what a node has to say, and looks at what it was granted.
    fn collect(&mut self, from: usize) {
        let Some(node) = &mut self.nodes[from] else { return };
        for frame in node.around.out.drain(..) {
            let frame: std::sync::Arc<[u8]> = frame.into();
            for to in (0..self.granted.len()).filter(|to| *to != from) {
                let frame = std::sync::Arc::clone(&frame);
                self.flying.push(Flying { due: self.now + FLIGHT, to, frame });
            }
        }
        let changed = node.around.changed;
        for grant in node.around.grants.drain(..) {
            self.granted[from] = self.now;
            let place = (grant.cycle, grant.round, grant.link);
            if self.uses.insert(place, from).is_some_and(|other| other != from) {
                self.broken = Some("two nodes on one link in a round");
            }
            // Its first one, up to the cycle after which it says that it has changed.
            let configuration =
                changed.filter(|(_, last)| grant.cycle > *last).map(|(hash, _)| hash);
            if *self.under.entry(grant.cycle).or_insert(configuration) != configuration {
                self.broken = Some("two configurations in one cycle");
            }
            let old = grant.cycle.saturating_sub(8);
            while self.uses.first_key_value().is_some_and(|((cycle, ..), _)| *cycle < old) {
                self.uses.pop_first();
            }
            while self.under.first_key_value().is_some_and(|(cycle, _)| *cycle < old) {
                self.under.pop_first();
            }
        }
    }

    /// Nothing goes wrong for so long.
    fn rest(&mut self, time: Nanos) {
        let end = self.now + time;
        while self.now < end && self.broken.is_none() {
            self.take(Choice::Right);
        }
    }

    /// All that live are in step, obey one master, run one configuration, and were granted
    /// something within the time.
    fn is_well(&self, within: Nanos) -> bool {
        let views: Vec<_> = self.nodes.iter().flatten().map(|node| node.engine.view()).collect();
        let first = &views[0];
        let alike = |view: &evenkeel_cluster::View| {
            (view.master, view.configuration, view.present)
                == (first.master, first.configuration, first.present)
        };
        let granted = self
            .nodes
            .iter()
            .zip(&self.granted)
            .all(|(node, at)| node.is_none() || self.now.saturating_sub(*at) <= within);
        let present = self
            .nodes
            .iter()
            .enumerate()
            .fold(0, |all, (at, node)| all | u64::from(node.is_some()) << at);
        views.iter().all(|view| view.in_step && alike(view)) && first.present == present && granted
    }
}

impl Model for Scenario {
    type State = Run;
    type Action = Choice;

    fn init_states(&self) -> Vec<Run> {
        vec![self.begin()]
    }

    fn actions(&self, run: &Run, choices: &mut Vec<Choice>) {
        if run.broken.is_some() || run.choices.last().is_some_and(|(_, last)| *last == 9) {
            return;
        }
        if self.ends(run) {
            choices.push(Choice::Rest);
            return;
        }
        choices.push(Choice::Right);
        if run.left > 0 && matches!(run.next(), Next::Frame(_)) {
            choices.extend(self.kinds);
        }
        if run.also > 0 {
            choices.push(Choice::Also);
        }
    }

    fn next_state(&self, run: &Run, choice: Choice) -> Option<Run> {
        let mut run = run.clone();
        let number = match choice {
            Choice::Right => 0,
            Choice::Lost => 1,
            Choice::Twice => 2,
            Choice::Late => 3,
            Choice::Also => 4,
            Choice::Rest => 9,
        };
        if number > 0 {
            run.choices.push((run.step, number));
        }
        run.step += 1;
        match choice {
            Choice::Rest => {
                // What could still be done is done, so that a change ends.
                while run.also > 0 && self.also == Also::Change {
                    self.do_also(&mut run);
                }
                run.rest(self.recovers);
            }
            Choice::Also => {
                self.do_also(&mut run);
                run.last_fault = run.now;
            }
            Choice::Right => run.take(choice),
            _ => {
                run.left -= 1;
                run.last_fault = run.now;
                run.take(choice);
            }
        }
        Some(run)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(
                "never two on a link, nor two configurations in a cycle",
                |_, run: &Run| run.broken.is_none(),
            ),
            Property::always("all that live are well in time", |_, run: &Run| {
                let rested = run.choices.last().is_some_and(|(_, last)| *last == 9);
                !rested || run.broken.is_some() || run.is_well(Nanos::from_millis(1))
            }),
        ]
    }
}

/// What a check came to.
pub struct Outcome {
    /// States that were looked at.
    pub states: usize,
    /// Broken properties, each with how it came about.
    pub broken: Vec<(&'static str, String)>,
}

/// Tries all of a scenario.
pub fn check(scenario: &Scenario) -> Outcome {
    let checker = scenario.clone().checker().threads(2).spawn_dfs().join();
    let told = |(name, path): (&'static str, stateright::Path<Run, Choice>)| {
        let last = path.last_state();
        let how = last.broken.map_or_else(
            || format!("{:?}", last.choices),
            |broken| format!("{broken}: {:?}", last.choices),
        );
        (name, how)
    };
    let broken = checker.discoveries().into_iter().map(told).collect();
    Outcome { states: checker.unique_state_count(), broken }
}
