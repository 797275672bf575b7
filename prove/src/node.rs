//! One forwarder of a model: the router's engine, and what it was granted.

use evenkeel_cluster::{ClusterConfig, Engine, Event, Forwarder, Grant, NodeId, Record};
use evenkeel_core::Nanos;

/// What is wrong with a node, on purpose: a property that does not find it proves nothing.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Fault {
    /// In a cycle that it could not decide it sends what it did in the last one.
    SendsUndecided,
    /// It never hears clocks that others tell.
    DeafToClocks,
    /// It changes its configuration a cycle after the others.
    ChangesLate,
}

/// What surrounds an engine: queues that always have packets, and what came out.
#[derive(Clone, Debug, Default)]
pub struct Around {
    /// Frames to be sent.
    pub out: Vec<Vec<u8>>,
    /// What was granted in the cycle that is going on.
    pub grants: Vec<Grant>,
    /// The cycle of these, and of those before.
    last: Vec<Grant>,
    /// The configuration that it changed to, and the last cycle of the one before.
    pub changed: Option<(u32, u64)>,
}

impl Forwarder for Around {
    fn heads(&mut self, link: usize, class: usize, out: &mut [Record]) -> usize {
        for (n, record) in out.iter_mut().enumerate() {
            *record = Record::of_packet((link + 3 * class + 9 * n) as u32, 640);
        }
        out.len()
    }

    fn grant(&mut self, grant: Grant) {
        self.grants.push(grant);
    }

    fn broadcast(&mut self, frame: &[u8]) {
        self.out.push(frame.to_vec());
    }

    fn event(&mut self, event: Event) {
        if let Event::Changed { hash, cycle } = event {
            self.changed = Some((hash, cycle));
        }
    }
}

/// A node that lives.
#[derive(Clone, Debug)]
pub struct Node {
    pub engine: Engine,
    pub around: Around,
    fault: Option<Fault>,
    /// It has changed late.
    was_late: bool,
}

/// Where the kind of a frame stands in it.
const KIND: usize = 18 + 1;
/// A frame that tells clocks.
const CLOCK: u8 = 2;

impl Node {
    /// The node with this number, from 1, that starts now with this epoch.
    pub fn new(config: &ClusterConfig, id: u16, epoch: u64, now: Nanos) -> Self {
        let mac = [2, 0, 0, 0, 0, id as u8];
        let engine = Engine::new(config, NodeId(id), mac, epoch, now);
        let engine = engine.expect("a configuration that is valid");
        Self { engine, around: Around::default(), fault: None, was_late: false }
    }

    /// From now on something is wrong with it.
    pub fn goes_wrong_by(&mut self, fault: Fault) {
        self.fault = Some(fault);
    }

    /// A frame comes.
    pub fn hears(&mut self, now: Nanos, frame: &[u8]) {
        if self.fault == Some(Fault::DeafToClocks) && frame.get(KIND) == Some(&CLOCK) {
            return;
        }
        self.engine.on_frame(now, frame, &mut self.around);
        self.goes_wrong();
    }

    /// Its timer is due.
    pub fn wakes(&mut self, now: Nanos) {
        self.engine.on_timer(now, &mut self.around);
        self.goes_wrong();
    }

    fn goes_wrong(&mut self) {
        if self.fault == Some(Fault::ChangesLate)
            && !self.was_late
            && let Some((_, last)) = &mut self.around.changed
        {
            (*last, self.was_late) = (*last + 1, true);
        }
        if self.fault != Some(Fault::SendsUndecided) {
            return;
        }
        let Some(cycle) = self.engine.view().cycle else { return };
        if !self.around.grants.is_empty() {
            self.around.last = self.around.grants.clone();
        } else if self.around.last.first().is_some_and(|last| last.cycle + 1 < cycle) {
            // The exchange of the cycle after those grants is over, and gave none.
            let next = |grant: &Grant| Grant { cycle: grant.cycle + 1, ..*grant };
            self.around.last = self.around.last.iter().map(next).collect();
            self.around.grants = self.around.last.clone();
        }
    }
}
