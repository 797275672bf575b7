//! LCT-UC: sequences worked by hand, a model that is the published pseudocode, and what must hold
//! under any sequence.

use evenkeel_core::settings::PerClass;
use evenkeel_core::settings::Value;
use std::collections::VecDeque;

use crate::common::{Harness, Op, Outcome, Subject, TestPacket, ops};
use evenkeel_core::schedule::lct::MultiBacklog;
use evenkeel_core::schedule::lct::{FREEBSD_TICK, Lct, LctConfig};
use evenkeel_core::schedule::{Treated, Wake};
use evenkeel_core::settings::Change;
use evenkeel_core::{Class, Nanos, Reason, Scheduler};
use proptest::prelude::*;

/// A discipline with these X in microseconds; time below is in microseconds too.
struct Bench {
    lct: Lct<TestPacket>,
    next: u64,
}

const US: u64 = 1_000;

fn us(n: u64) -> Nanos {
    Nanos(n * US)
}

impl Bench {
    fn new(x: &[u64], change: impl FnOnce(&mut LctConfig)) -> Self {
        let mut config = LctConfig::with_delays(x.iter().map(|x| us(*x)).collect::<Vec<_>>());
        change(&mut config);
        Self { lct: Lct::new(config).unwrap(), next: 0 }
    }

    fn arrive(&mut self, class: u16) {
        let packet = TestPacket::new(self.next, class, 100);
        self.next += 1;
        assert_eq!(self.lct.enqueue(Nanos::ZERO, packet, &mut |_, _| ()), Treated::Queued);
    }

    fn send(&mut self, at: u64) -> Option<u64> {
        self.lct.dequeue(us(at), &mut |_, _| ()).map(|p| p.id)
    }

    /// DEQUEUE_TIME of every class, in microseconds.
    fn due(&self) -> Vec<u64> {
        (0..self.lct.classes()).map(|c| self.lct.dequeue_time(Class(c)).unwrap().0 / US).collect()
    }

    fn wake(&self, at: u64) -> Option<u64> {
        self.lct.next_wake(us(at)).map(|t| t.0 / US)
    }
}

#[test]
fn positions_one_and_two_give_visited_empty_classes_a_new_time() {
    let mut b = Bench::new(&[0, 50, 200], |_| ());
    // Alone, from the pointer at 0: class 0 is visited empty and due, 10 + 0; class 1 too, 10 + 50;
    // class 2 is served, 10 + 200.
    b.arrive(2); // 0
    assert_eq!((b.send(10), b.due()), (Some(0), vec![10, 60, 210]));
    // The pointer went round to 0. Class 0 waits and is due: nobody else is visited.
    b.arrive(0); // 1
    assert_eq!((b.send(100), b.due()), (Some(1), vec![100, 60, 210]));
    // From 1: class 1 is empty and past 60, so 110 + 50; class 2 is empty and not past 210; class 0
    // is served.
    b.arrive(0); // 2
    assert_eq!((b.send(110), b.due()), (Some(2), vec![110, 160, 210]));
    // Several wait: classes 0 and 2. From 1: class 1 is empty and past 160, class 2 is past 210 and
    // served: the first from the pointer.
    b.arrive(0); // 3
    b.arrive(2); // 4
    assert_eq!((b.send(300), b.due()), (Some(4), vec![110, 350, 500]));
    // A packet of class 1 finds the time that was given while it was empty: it waits until 350
    // (module 2).
    assert_eq!(b.send(300), Some(3));
    b.arrive(1); // 5
    assert_eq!((b.send(301), b.wake(301)), (None, Some(350)));
    assert_eq!((b.send(350), b.due()), (Some(5), vec![300, 400, 500]));
    // Nothing waits: nothing is visited.
    assert_eq!((b.send(900), b.due(), b.wake(900)), (None, vec![300, 400, 500], None));
}

#[test]
fn without_rearming_only_service_sets_a_time() {
    let mut b = Bench::new(&[0, 50], |c| c.rearm_empty = false);
    b.arrive(0); // 0
    b.arrive(0); // 1
    assert_eq!((b.send(10), b.send(15), b.due()), (Some(0), Some(1), vec![15, 0]));
    b.arrive(1); // 2
    assert_eq!((b.send(16), b.due()), (Some(2), vec![15, 66]));
}

#[test]
fn position_four_holds_a_class_alone_until_its_time() {
    let mut b = Bench::new(&[0, 50], |_| ());
    b.arrive(1); // 0
    b.arrive(1); // 1
    assert_eq!((b.send(10), b.due()), (Some(0), vec![10, 60]));
    assert_eq!((b.send(59), b.wake(59)), (None, Some(60)));
    // A packet of class 0 goes meanwhile.
    b.arrive(0); // 2
    assert_eq!((b.wake(59), b.send(59)), (Some(59), Some(2)));
    assert_eq!((b.send(60), b.due()), (Some(1), vec![59, 110]));
}

#[test]
fn position_five_serves_a_class_alone_without_module_two() {
    let mut b = Bench::new(&[0, 50], |c| c.module2 = false);
    (0..3).for_each(|_| b.arrive(1));
    assert_eq!((b.send(10), b.send(11), b.send(12)), (Some(0), Some(1), Some(2)));
    assert_eq!(b.due(), [12, 62]);
}

#[test]
fn several_wait_and_none_is_due_is_a_matter_of_policy() {
    let b = |policy| {
        // Class 0 was served at 10 (due 110), class 1 at 20 (due 100), class 2 at 90 (due 170).
        let mut b = Bench::new(&[100, 80, 80], |c| c.multi_backlog = policy);
        for (class, at) in [(0, 10), (1, 20), (2, 90)] {
            b.arrive(class);
            assert!(b.send(at).is_some());
        }
        assert_eq!(b.due(), [110, 100, 170]);
        (0..3).for_each(|class| b.arrive(class)); // 3, 4, 5
        b
    };
    // Classes 1 and 2 have the smallest X; 1 comes first from the pointer at 0. Then 2 comes first
    // from the pointer at 2.
    let mut min_x = b(MultiBacklog::MinX);
    assert_eq!((min_x.send(95), min_x.due()), (Some(4), vec![110, 175, 170]));
    min_x.arrive(1); // 6
    assert_eq!(min_x.send(96), Some(5));
    // Class 1 is due first.
    let mut earliest = b(MultiBacklog::EarliestDue);
    assert_eq!(
        (earliest.send(95), earliest.send(96), earliest.due()),
        (Some(4), Some(3), vec![196, 175, 170])
    );
    // Nothing goes before 100; class 1 goes then, class 0 at 110.
    let mut hold = b(MultiBacklog::Hold);
    assert_eq!((hold.send(95), hold.wake(95)), (None, Some(100)));
    assert_eq!((hold.send(100), hold.wake(100)), (Some(4), Some(110)));
    assert_eq!((hold.send(105), hold.send(110)), (None, Some(3)));
    // The next in the ring, due or not: 0, 1. Then 2 is alone, and held.
    let mut round = b(MultiBacklog::RoundRobin);
    assert_eq!([95, 96, 97].map(|at| round.send(at)), [Some(3), Some(4), None]);
    // One or the other, as module 2 says.
    let mut both = b(MultiBacklog::HoldWithModule2);
    assert_eq!((both.send(95), both.wake(95)), (None, Some(100)));
    assert_eq!(both.lct.set(us(95), &Change::new("module2", false)), Ok(Wake::Now));
    assert_eq!((both.send(95), both.send(96)), (Some(3), Some(4)));
}

/// Packets that each class sends in a second in which all but class 0 always wait, asked every 100
/// us.
fn served(x: &[u64], classes: &[u16], change: impl FnOnce(&mut LctConfig)) -> Vec<u64> {
    let mut b = Bench::new(x, change);
    let mut owner = Vec::new();
    let mut served = vec![0; x.len()];
    for class in classes {
        b.arrive(*class);
        owner.push(*class);
    }
    for at in (0..1_000_000).step_by(100) {
        while let Some(id) = b.send(at) {
            let class = owner[id as usize];
            served[usize::from(class)] += 1;
            b.arrive(class);
            owner.push(class);
            if x[usize::from(class)] == 0 {
                break;
            }
        }
    }
    served
}

/// With `min-x` a class of 8 ms sent 812 packets a second while one of 16 ms waited with it, 125
/// when that one was silent: more load from the least class made another one faster.
#[test]
fn x_delay_is_the_least_time_between_two_packets_whoever_else_waits() {
    let x = [0, 8_000, 16_000];
    assert_eq!(served(&x, &[1], |_| ()), [0, 125, 0]);
    assert_eq!(served(&x, &[1, 2], |_| ()), [0, 125, 63]);
    // Class 1, better than class 2, is graded against class 0 too.
    let [best, next, last] = served(&x, &[0, 1, 2], |_| ())[..] else { panic!() };
    assert!(best > 5 * next && next > last, "{best} {next} {last}");
}

#[test]
fn timers_round_up_to_the_tick() {
    let mut b = Bench::new(&[0, 50], |c| c.timer_tick = FREEBSD_TICK);
    b.arrive(1);
    b.arrive(1);
    assert_eq!((b.send(10), b.wake(10)), (Some(0), Some(10_000)));
    // The transmit side may ask in between: then it is served at once, as by any arrival.
    assert_eq!((b.wake(60), b.send(60)), (Some(60), Some(1)));
}

#[test]
fn a_lowered_x_acts_at_once() {
    let mut b = Bench::new(&[0, 20_000], |_| ());
    b.arrive(1);
    b.arrive(1);
    assert_eq!((b.send(10), b.wake(10)), (Some(0), Some(20_010)));
    // Raised: from the next service on.
    assert_eq!(b.lct.set(us(20), &Change::of("x_delay", Class(1), us(30_000))), Ok(Wake::No));
    assert_eq!(b.wake(20), Some(20_010));
    // Lowered: no later than 20 + 100, and the transmit side must look again.
    assert_eq!(b.lct.set(us(20), &Change::of("x_delay", Class(1), us(100))), Ok(Wake::Now));
    assert_eq!((b.send(119), b.wake(119)), (None, Some(120)));
    // Lowered to none: now.
    assert_eq!(b.lct.set(us(119), &Change::of("x_delay", Class(1), us(0))), Ok(Wake::Now));
    assert_eq!(b.send(119), Some(1));
    // Nothing waits: nobody need be woken.
    assert_eq!(b.lct.set(us(119), &Change::of("x_delay", Class(1), us(9))), Ok(Wake::No));
    assert_eq!(b.lct.set(us(119), &Change::of("x_delay", Class(1), us(0))), Ok(Wake::No));
}

#[test]
fn what_a_switch_releases_wakes_the_transmit_side() {
    let mut b = Bench::new(&[100, 100], |_| ());
    (0..2).for_each(|class| b.arrive(class));
    assert!(b.send(10).is_some());
    assert!(b.send(10).is_some());
    b.arrive(0); // 2
    assert_eq!(b.send(20), None);
    assert_eq!(b.lct.set(us(20), &Change::new("module2", true)), Ok(Wake::No));
    assert_eq!(b.lct.set(us(20), &Change::new("module2", false)), Ok(Wake::Now));
    assert_eq!(b.lct.set(us(20), &Change::new("multi_backlog", MultiBacklog::Hold)), Ok(Wake::No));
    b.arrive(1); // 3
    assert_eq!(b.send(20), None);
    assert_eq!(b.lct.set(us(20), &Change::new("multi_backlog", MultiBacklog::MinX)), Ok(Wake::Now));
    assert!(b.send(20).is_some());
}

#[test]
fn each_class_has_its_own_limit() {
    let mut b = Bench::new(&[0, 0], |c| c.limit = PerClass::all(2));
    assert!(b.lct.set(us(0), &Change::of("limit", Class(1), 1_u32)).is_ok());
    b.arrive(0);
    b.arrive(0);
    b.arrive(1);
    for class in 0..2 {
        let mut dropped = 0;
        let packet = TestPacket::new(9, class, 100);
        let treated = b.lct.enqueue(us(1), packet, &mut |_, reason| {
            assert_eq!(reason, Reason::QueueFull);
            dropped += 1;
        });
        assert_eq!((treated, dropped), (Treated::Dropped(Reason::QueueFull), 1));
    }
    assert_eq!(
        (b.lct.limit(Class(0)), b.lct.limit(Class(1)), b.lct.limit(Class(2))),
        (Some(2), Some(1), None)
    );
}

#[test]
fn three_hundred_classes_are_served_in_ring_order() {
    let mut b = Bench::new(&[0; 300], |_| ());
    for class in [299, 64, 63, 0, 128] {
        b.arrive(class);
    }
    assert_eq!([1; 5].map(|at| b.send(at)), [Some(3), Some(2), Some(1), Some(4), Some(0)]);
    // The pointer went round to 0; after class 130 it stands at 131.
    b.arrive(130); // 5
    assert_eq!(b.send(2), Some(5));
    b.arrive(130); // 6
    b.arrive(131); // 7
    b.arrive(2); // 8
    assert_eq!([3; 3].map(|at| b.send(at)), [Some(7), Some(8), Some(6)]);
}

/// The published pseudocode, class by class.
struct Published {
    queues: Vec<VecDeque<u64>>,
    x: Vec<u64>,
    dt: Vec<u64>,
    rr: usize,
}

enum Decision {
    Serve(usize),
    Hold(u64),
    Nothing,
}

impl Published {
    fn like(lct: &Lct<TestPacket>) -> Self {
        let classes = usize::from(lct.classes());
        let mut model = Self {
            queues: vec![VecDeque::new(); classes],
            x: Vec::new(),
            dt: vec![0; classes],
            rr: 0,
        };
        model.read_x(lct);
        model
    }

    fn read_x(&mut self, lct: &Lct<TestPacket>) {
        self.x = (0..lct.classes()).map(|c| lct.x_delay(Class(c)).unwrap().0).collect();
    }

    fn visit_empty(&mut self, lct: &Lct<TestPacket>, now: u64, k: usize) {
        if lct.config().rearm_empty && now >= self.dt[k] {
            self.dt[k] = now + self.x[k];
        }
    }

    fn schedule(&mut self, lct: &Lct<TestPacket>, now: u64) -> Decision {
        let n = self.queues.len();
        let waiting: Vec<usize> =
            (0..n).map(|i| (self.rr + i) % n).filter(|k| !self.queues[*k].is_empty()).collect();
        match waiting[..] {
            [] => return Decision::Nothing,
            [_] => {
                let mut k = self.rr;
                while self.queues[k].is_empty() {
                    self.visit_empty(lct, now, k);
                    k = (k + 1) % n;
                }
                if now >= self.dt[k] || !lct.config().module2 {
                    return Decision::Serve(k);
                }
                return Decision::Hold(self.dt[k]);
            }
            _ => {}
        }
        let rr = self.rr;
        for k in (0..n).map(|i| (rr + i) % n) {
            if self.queues[k].is_empty() {
                self.visit_empty(lct, now, k);
            } else if now >= self.dt[k] {
                return Decision::Serve(k);
            }
        }
        let first_least =
            |of: &[u64]| waiting.iter().copied().reduce(|a, b| if of[b] < of[a] { b } else { a });
        match lct.config().multi_backlog {
            MultiBacklog::MinX => Decision::Serve(first_least(&self.x).unwrap()),
            MultiBacklog::EarliestDue => Decision::Serve(first_least(&self.dt).unwrap()),
            MultiBacklog::Hold => Decision::Hold(self.dt[first_least(&self.dt).unwrap()]),
            MultiBacklog::RoundRobin => Decision::Serve(waiting[0]),
            MultiBacklog::HoldWithModule2 if lct.config().module2 => {
                Decision::Hold(self.dt[first_least(&self.dt).unwrap()])
            }
            MultiBacklog::HoldWithModule2 => Decision::Serve(waiting[0]),
        }
    }

    fn serve(&mut self, now: u64, k: usize) -> u64 {
        self.dt[k] = now + self.x[k];
        self.rr = (k + 1) % self.queues.len();
        self.queues[k].pop_front().unwrap()
    }
}

/// What happened so far, for what must hold under any sequence.
struct Witness {
    model: Published,
    /// When each class was last served, unless its X was changed since.
    last: Vec<Option<u64>>,
}

impl Witness {
    fn step(&mut self, harness: &mut Harness<Lct<TestPacket>>, op: Op) {
        let before = harness.scheduler.clone();
        let (now, model) = (harness.now.0, &mut self.model);
        match (op.clone(), harness.step(op)) {
            (_, Outcome::Arrived { packet, treated: Treated::Queued, .. }) => {
                model.queues[before.queue_of(&packet)].push_back(packet.id);
            }
            (_, Outcome::Sent(sent)) => {
                let (busy, wake) = (before.busy_queues(), harness.scheduler.next_wake(harness.now));
                let expected = match model.schedule(&before, now) {
                    Decision::Serve(k) => Some(model.serve(now, k)),
                    Decision::Hold(until) => {
                        let holds = match before.config().multi_backlog {
                            MultiBacklog::Hold => true,
                            MultiBacklog::HoldWithModule2 => before.config().module2,
                            _ => false,
                        };
                        assert!(holds || busy == 1 && before.config().module2);
                        let until = Nanos(until.max(now));
                        assert!(wake.is_some_and(|t| t >= until && t.0 - until.0 < FREEBSD_TICK.0));
                        // An X of zero is never held.
                        let held = (0..model.x.len()).filter(|k| !model.queues[*k].is_empty());
                        assert!(held.into_iter().all(|k| model.x[k] > 0));
                        None
                    }
                    Decision::Nothing => None,
                };
                assert_eq!(expected, sent.as_ref().map(|p| p.id));
                if let Some(packet) = sent {
                    let k = before.queue_of(&packet);
                    // Alone, with module 2: at most one packet per X. With the default: alone or
                    // not.
                    let held =
                        busy == 1 || before.config().multi_backlog == MultiBacklog::HoldWithModule2;
                    if before.config().module2 && held {
                        assert!(self.last[k].is_none_or(|last| now - last >= model.x[k]));
                    }
                    self.last[k] = Some(now);
                }
            }
            (
                Op::Set(Change { key: "x_delay", class: Some(class), value }),
                Outcome::Set(Ok(_)),
            ) => {
                let Value::Time(x) = value else { panic!("{value:?} is no time") };
                let k = class.index();
                model.read_x(&harness.scheduler);
                model.dt[k] = model.dt[k].min(now + x.0);
                self.last[k] = None;
            }
            (_, Outcome::Drained) => model.queues.iter_mut().for_each(VecDeque::clear),
            _ => {}
        }
        let lct = &harness.scheduler;
        let due: Vec<u64> =
            (0..lct.classes()).map(|c| lct.dequeue_time(Class(c)).unwrap().0).collect();
        assert_eq!(due, self.model.dt);
    }
}

fn configs() -> impl Strategy<Value = LctConfig> {
    let x =
        prop_oneof![Just(0u64), Just(10 * US), Just(200 * US), Just(20_000 * US), 0..1_000 * US];
    let policy = prop::sample::select(MultiBacklog::ALL);
    let tick = prop_oneof![Just(Nanos::ZERO), Just(FREEBSD_TICK)];
    // Up to nine classes, or enough for several words of the bitmap.
    let x = prop_oneof![
        4 => prop::collection::vec(x, 1..9),
        1 => prop::collection::vec(0..400 * US, 60..140),
    ];
    (x, 1u32..8, any::<bool>(), policy, any::<bool>(), tick).prop_map(
        |(x, limit, module2, multi_backlog, rearm_empty, timer_tick)| LctConfig {
            limit: PerClass::all(limit),
            module2,
            multi_backlog,
            rearm_empty,
            timer_tick,
            ..LctConfig::with_delays(x.into_iter().map(Nanos).collect::<Vec<_>>())
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn the_discipline_is_the_published_one(config in configs(), spread in 1u16..30,
        ops in ops(200)) {
        let mut harness = Harness::new(Lct::new(config).unwrap());
        let model = Published::like(&harness.scheduler);
        let mut witness = Witness { last: vec![None; model.x.len()], model };
        let spread_out = |op| match op {
            Op::Arrive { class, length, flow } =>
                Op::Arrive { class: class * spread, length, flow },
            other => other,
        };
        for op in ops {
            witness.step(&mut harness, spread_out(op));
        }
        while harness.queued() > 0 {
            witness.step(&mut harness, Op::WaitForWake);
            witness.step(&mut harness, Op::Send);
        }
    }
}
