//! A balancer hears which forwarders live: by their exchange frames alone.

use evenkeel_cluster::balancer::{Change, Condition, Health};
use evenkeel_cluster::{ClusterConfig, ExchangeKey, NodeId};
use evenkeel_core::Nanos;

use crate::change::{Segment, config};

const SILENCE: Nanos = Nanos::from_millis(50);
const MAC: [u8; 6] = [2, 0, 0, 0, 9, 9];

/// Forwarders and a balancer on one segment.
struct Bed {
    segment: Segment,
    health: Health,
    changes: Vec<(u64, Change)>,
    said: usize,
}

fn health(key: Option<ExchangeKey>, epoch: u64, now: Nanos) -> Health {
    let ids = [1, 2, 3].map(NodeId);
    Health::new(&ids, (3001, key), SILENCE, (MAC, epoch), now)
}

impl Bed {
    fn new(config: &ClusterConfig) -> Self {
        let health = health(config.framing.key, 5, Nanos::ZERO);
        Self { segment: Segment::new(config), health, changes: Vec::new(), said: 0 }
    }

    /// `dead`, by index, are neither heard nor hear.
    fn run(&mut self, millis: u64, dead: &[usize]) {
        for _ in 0..millis {
            let heard = self.segment.heard.len();
            self.segment.run(1, |from, to, _| dead.contains(&from) || dead.contains(&to));
            let now = Nanos::from_micros(self.segment.micros);
            for frame in &self.segment.heard[heard..] {
                if !dead.contains(&(usize::from(frame[11]) - 1)) {
                    self.health.on_frame(now, frame);
                }
            }
            self.health.runs(now);
            self.look(now, dead);
        }
    }

    fn look(&mut self, now: Nanos, dead: &[usize]) {
        if self.health.next_timer() > now {
            return;
        }
        let (mut out, changes, millis) = (Vec::new(), &mut self.changes, now.0 / 1_000_000);
        let send = |frame: &[u8]| out.push(frame.to_vec());
        self.health.on_timer(now, send, |change| changes.push((millis, change)));
        self.said += out.len();
        for frame in out {
            for (at, (engine, around)) in self.segment.nodes.iter_mut().enumerate() {
                if !dead.contains(&at) {
                    engine.on_frame(now, &frame, around);
                }
            }
        }
    }

    fn conditions(&self) -> [Condition; 3] {
        [1, 2, 3].map(|id| self.health.condition(NodeId(id)))
    }
}

use Condition::{Heard, OtherConfiguration, Silent};

/// Cycles so long that three of them take more than 100 ms.
fn long_cycles(key: bool) -> ClusterConfig {
    let mut config = config(&[1, 2, 3], &[1, 3]);
    config.timing.rate = evenkeel_core::BitRate::from_mbps(2);
    if !key {
        config.framing.key = None;
    }
    config
}

#[test]
fn a_forwarder_that_falls_silent_is_out_within_100_ms_also_in_long_cycles() {
    for key in [true, false] {
        for dead in 0..3 {
            let mut bed = Bed::new(&long_cycles(key));
            bed.run(400, &[]);
            assert_eq!(bed.conditions(), [Heard; 3], "key {key}: {:?}", bed.changes);
            bed.changes.clear();
            bed.run(500, &[dead]);
            let id = NodeId(dead as u16 + 1);
            assert_eq!(bed.changes.len(), 1, "once, and nobody else: {:?}", bed.changes);
            let (at, change) = bed.changes[0];
            assert_eq!(change, Change::Of(id, Silent));
            println!("key {key}, node {}: out {} ms after it fell silent", dead + 1, at - 400);
            assert!(at - 400 <= 62, "{at}");
            // Heard again: used again, not at once.
            bed.run(500, &[]);
            assert_eq!(bed.changes.len(), 2, "{:?}", bed.changes);
            let (at, change) = bed.changes[1];
            assert_eq!(change, Change::Of(id, Heard));
            assert!((1000..1020).contains(&at), "{at}");
        }
    }
}

#[test]
fn if_nobody_is_heard_the_exchange_has_failed_and_all_stay() {
    let mut bed = Bed::new(&long_cycles(true));
    bed.run(400, &[]);
    bed.changes.clear();
    bed.run(300, &[0, 1, 2]);
    let said: Vec<_> = bed.changes.iter().map(|(_, change)| *change).collect();
    assert!(said.contains(&Change::Deaf), "{said:?}");
    assert!(bed.conditions().iter().all(|condition| condition.is_usable()), "{said:?}");
    bed.run(300, &[]);
    assert!(bed.changes.iter().any(|(_, change)| *change == Change::NotDeaf));
    assert_eq!(bed.conditions(), [Heard; 3]);
}

#[test]
fn recorded_frames_of_a_dead_forwarder_do_not_keep_it() {
    let mut bed = Bed::new(&long_cycles(true));
    bed.run(400, &[]);
    let of_two = |frame: &&Vec<u8>| frame[11] == 2;
    let recorded: Vec<_> = bed.segment.heard.iter().filter(of_two).cloned().collect();
    // The balancer restarts too: it has no memory of what was used.
    bed.health = health(bed.segment.nodes[0].0.config().framing.key, 6, {
        Nanos::from_micros(bed.segment.micros)
    });
    let mut again = recorded.iter().cycle();
    // Longer than a forwarder that was never heard has time to start.
    for _ in 0..2_500 {
        bed.run(1, &[1]);
        let now = Nanos::from_micros(bed.segment.micros);
        (0..3).for_each(|_| bed.health.on_frame(now, again.next().unwrap()));
    }
    assert_eq!(bed.conditions(), [Heard, Silent, Heard], "{:?}", bed.changes);
    assert!(bed.health.refused() > 500);
    assert!(bed.said < 750, "{} challenges in two and a half seconds", bed.said);
}

#[test]
fn a_forwarder_of_another_configuration_is_out_and_most_decide() {
    let ours = long_cycles(true);
    let mut theirs = ours.clone();
    theirs.set_weights(&[2, 3]);
    let mut bed = Bed::new(&ours);
    bed.run(300, &[]);
    bed.segment.nodes[0].0 = bed.segment.start(&theirs, 1, 1001);
    bed.run(500, &[]);
    assert_eq!(bed.conditions(), [OtherConfiguration, Heard, Heard], "{:?}", bed.changes);
    bed.segment.nodes[0].0 = bed.segment.start(&ours, 1, 1002);
    bed.run(600, &[]);
    assert_eq!(bed.conditions(), [Heard; 3], "{:?}", bed.changes);
}

#[test]
fn a_change_that_has_not_reached_all_moves_no_flows() {
    // Without a key a forwarder is heard at once with its new configuration, as after a change.
    let ours = long_cycles(false);
    let mut theirs = ours.clone();
    theirs.set_weights(&[2, 3]);
    let mut bed = Bed::new(&ours);
    bed.run(300, &[]);
    bed.changes.clear();
    bed.segment.nodes[0].0 = bed.segment.start(&theirs, 1, 1001);
    bed.run(900, &[]);
    assert_eq!((bed.conditions(), bed.changes.len()), ([Heard; 3], 0), "{:?}", bed.changes);
    // It never reaches the others: then it is out.
    bed.run(300, &[]);
    assert_eq!(bed.conditions(), [OtherConfiguration, Heard, Heard], "{:?}", bed.changes);
}

#[test]
fn a_balancer_that_did_not_run_itself_blames_nobody() {
    let mut bed = Bed::new(&long_cycles(true));
    bed.run(400, &[]);
    bed.changes.clear();
    // For 300 ms it runs nothing; then it hears one of them before the others.
    bed.segment.run(300, |_, _, _| false);
    let heard = bed.segment.heard.len();
    bed.segment.run(12, |_, _, _| false);
    let now = Nanos::from_micros(bed.segment.micros);
    let of_two = bed.segment.heard[heard..].iter().find(|frame| frame[11] == 2);
    bed.health.runs(now);
    bed.health.on_frame(now, of_two.unwrap());
    bed.look(now, &[]);
    bed.run(200, &[]);
    assert_eq!(bed.changes, []);
    // A start that takes long: it counts from the first look.
    bed.health = health(bed.segment.nodes[0].0.config().framing.key, 6, Nanos::ZERO);
    bed.run(300, &[]);
    let silent = |(_, change): &(u64, Change)| matches!(change, Change::Of(_, Silent));
    assert!(!bed.changes.iter().any(silent), "{:?}", bed.changes);
}
