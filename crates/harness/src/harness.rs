//! A discipline beside a copy of what its queues must hold.

use std::collections::VecDeque;

use evenkeel_core::schedule::{Backlog, Treated, Wake};
use evenkeel_core::settings::{Change, SettingError};
use evenkeel_core::{Bytes, Class, Nanos, Packet, Reason};

use crate::{Op, Subject, TestPacket, flow};

/// What an operation did.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Outcome {
    /// A packet came.
    Arrived {
        /// It.
        packet: TestPacket,
        /// What the discipline says of it.
        treated: Treated,
        /// The numbers of the packets that were dropped for it.
        dropped: Vec<u64>,
    },
    /// The link has this packet.
    Sent(Option<TestPacket>),
    /// Time passed.
    Waited,
    /// A setting was changed or refused.
    Set(Result<Wake, SettingError>),
    /// Nothing waits any more.
    Drained,
}

/// A discipline, its clock, and a copy of what its queues must hold.
#[derive(Clone, Debug)]
pub struct Harness<S> {
    /// The discipline.
    pub scheduler: S,
    /// Its clock.
    pub now: Nanos,
    queues: Vec<VecDeque<TestPacket>>,
    next_id: u64,
    counts: [u64; 4],
    /// `priority_bytes` after the last operation.
    priority_bytes: Bytes,
}

/// Places in the harness's counts: every packet is in one of the last three, or queued.
const ARRIVED: usize = 0;
const SENT: usize = 1;
const DROPPED: usize = 2;
const DRAINED: usize = 3;

impl<S: Subject> Harness<S> {
    /// Of a discipline in which nothing waits.
    pub fn new(scheduler: S) -> Self {
        let priority_bytes = Bytes::ZERO;
        Self {
            scheduler,
            now: Nanos(1),
            queues: Vec::new(),
            next_id: 0,
            counts: [0; 4],
            priority_bytes,
        }
    }

    /// Does `op` and checks everything that holds for every discipline.
    ///
    /// # Panics
    /// Something does not hold.
    pub fn step(&mut self, op: Op) -> Outcome {
        let before = self.scheduler.meters();
        let outcome = match op {
            Op::Arrive { class, length, flow } => self.arrive(class, length, flow),
            Op::Send => self.send(),
            Op::Wait(time) => {
                self.now += time;
                Outcome::Waited
            }
            Op::WaitForWake => {
                if let Some(at) = self.scheduler.next_wake(self.now) {
                    self.now = at;
                }
                Outcome::Waited
            }
            Op::Set(change) => self.set(&change),
            Op::Drain => self.drain(),
        };
        let after = self.scheduler.meters();
        assert!(after.fair_bytes >= before.fair_bytes && after.class_flips >= before.class_flips);
        self.priority_bytes = after.priority_bytes.unwrap_or_default();
        self.check();
        outcome
    }

    /// Sends what is queued, asking at the times told.
    ///
    /// # Panics
    /// Something does not hold, or a packet does not come out.
    pub fn send_all(&mut self) {
        while self.queued() > 0 {
            self.step(Op::WaitForWake);
            assert_ne!(
                self.step(Op::Send),
                Outcome::Sent(None),
                "waiting for next_wake was in vain"
            );
        }
    }

    /// Packets that wait.
    pub fn queued(&self) -> u64 {
        self.queues.iter().map(|q| q.len() as u64).sum()
    }

    fn arrive(&mut self, class: u16, length: u32, flow_number: u8) -> Outcome {
        let id = self.next_id;
        self.next_id += 1;
        self.counts[ARRIVED] += 1;
        let packet = TestPacket {
            arrival: self.now,
            flow: flow(flow_number),
            ..TestPacket::new(id, class, length)
        };
        let queue = self.scheduler.queue_of(&packet);
        if self.queues.len() <= queue {
            self.queues.resize(queue + 1, VecDeque::new());
        }
        self.queues[queue].push_back(packet.clone());
        let mut dropped = Vec::new();
        let treated = self
            .scheduler
            .enqueue(self.now, packet.clone(), &mut |p, reason| dropped.push((p, reason)));
        for (victim, reason) in &dropped {
            let q = &mut self.queues[self.scheduler.queue_of(victim)];
            let expected = match reason {
                Reason::QueueFull | Reason::PriorityFull | Reason::FairShare => {
                    assert_eq!(victim.id, id, "tail drop takes the arriving packet");
                    q.pop_back()
                }
                Reason::LongestQueue => q.pop_front(),
                Reason::LongestFlow => {
                    q.iter().position(|p| p == victim).and_then(|at| q.remove(at))
                }
                other => panic!("{other} is no reason of a discipline"),
            };
            assert_eq!(
                expected.as_ref(),
                Some(victim),
                "a packet that stood elsewhere was dropped"
            );
        }
        let own = dropped.iter().find(|(p, _)| p.id == id).map(|(_, reason)| *reason);
        let priority = self.scheduler.meters().priority_bytes;
        let gained = priority.map(|p| p - self.priority_bytes);
        match (own, treated) {
            (Some(reason), told) => assert_eq!(told, Treated::Dropped(reason)),
            (None, Treated::Priority) => {
                let length = self.scheduler.counted(&packet);
                assert!(gained.is_none_or(|gained| gained == length), "{gained:?}: {length:?}");
            }
            (None, told) => {
                assert_eq!((told, gained.unwrap_or_default()), (Treated::Queued, Bytes::ZERO));
            }
        }
        self.counts[DROPPED] += dropped.len() as u64;
        Outcome::Arrived { packet, treated, dropped: dropped.iter().map(|(p, _)| p.id).collect() }
    }

    fn send(&mut self) -> Outcome {
        let now = self.now;
        let peeked = self.scheduler.peek_len(now);
        let mut dropped = Vec::new();
        let sent =
            self.scheduler.dequeue(now, &mut |packet, reason| dropped.push((packet, reason)));
        for (packet, reason) in &dropped {
            assert!(self.scheduler.drops_at_the_head(), "dequeue dropped {packet:?}");
            assert!(matches!(reason, Reason::StandingQueue | Reason::Unresponsive), "{reason}");
            let head = self.queues[self.scheduler.queue_of(packet)].pop_front();
            assert_eq!(head.as_ref(), Some(packet), "not the head of its queue");
            self.counts[DROPPED] += 1;
        }
        if dropped.is_empty() {
            assert_eq!(peeked, sent.as_ref().map(Packet::ip_len), "peek_len is what dequeue gives");
        }
        match &sent {
            Some(packet) => {
                let queue = self.scheduler.queue_of(packet);
                let head = self.queues[queue].pop_front();
                assert_eq!(head.as_ref(), Some(packet), "not the head of its queue");
                self.counts[SENT] += 1;
            }
            None if self.queued() > 0 => {
                assert!(!self.scheduler.work_conserving(), "a packet waits and the link asked");
                let at = self.scheduler.next_wake(now).expect("held packets have a time");
                assert!(at > now, "nothing goes at {now:?}, but it shall be asked for at {at:?}");
                let later = self.scheduler.clone().dequeue(at, &mut |_, _| ());
                assert!(later.is_some(), "nothing goes at the time told");
            }
            None => assert_eq!(self.scheduler.next_wake(now), None),
        }
        Outcome::Sent(sent)
    }

    fn set(&mut self, change: &Change) -> Outcome {
        let before = self.scheduler.clone();
        let result = self.scheduler.set(self.now, change);
        match result {
            Err(_) => {
                let (before, after) = (format!("{before:?}"), format!("{:?}", self.scheduler));
                assert_eq!(before, after, "a refused change changes nothing");
            }
            Ok(wake) => {
                let was_sendable = before.peek_len(self.now).is_some();
                if self.scheduler.peek_len(self.now).is_some() && !was_sendable {
                    assert_eq!(wake, Wake::Now, "{change:?} released a packet and nobody was told");
                }
            }
        }
        Outcome::Set(result)
    }

    fn drain(&mut self) -> Outcome {
        let mut out = Vec::new();
        self.scheduler.drain(&mut |p| out.push(p));
        self.counts[DRAINED] += out.len() as u64;
        for packet in &out {
            let queue = self.scheduler.queue_of(packet);
            assert_eq!(
                self.queues[queue].pop_front().as_ref(),
                Some(packet),
                "drain keeps the order"
            );
        }
        assert_eq!(self.queued(), 0, "drain hands everything over");
        Outcome::Drained
    }

    fn check(&self) {
        let of = |q: &VecDeque<TestPacket>| Backlog {
            packets: q.len() as u64,
            bytes: q.iter().map(|packet| self.scheduler.counted(packet)).sum(),
        };
        let [arrived, gone @ ..] = self.counts;
        assert_eq!(arrived, gone.iter().sum::<u64>() + self.queued(), "in = out + dropped + held");
        let total = Backlog {
            packets: self.queued(),
            bytes: self.queues.iter().map(|q| of(q).bytes).sum(),
        };
        assert_eq!(self.scheduler.meters().backlog, total);
        let busy = self.scheduler.busy_queues();
        if self.scheduler.queues_are_counted() {
            assert_eq!(busy, self.queues.iter().filter(|q| !q.is_empty()).count());
        } else {
            assert_eq!(busy > 0, total.packets > 0);
        }
        if self.scheduler.by_class() {
            for (class, queue) in self.queues.iter().enumerate() {
                assert_eq!(self.scheduler.class_backlog(Class(class as u16)), of(queue));
            }
        } else {
            assert_eq!(self.scheduler.class_backlog(Class(0)), total);
            assert_eq!(self.scheduler.class_backlog(Class(1)), Backlog::default());
        }
        let wake = self.scheduler.next_wake(self.now);
        assert_eq!(wake.is_some(), total.packets > 0);
        assert!(wake.is_none_or(|at| at >= self.now));
        let sendable = self.scheduler.peek_len(self.now).is_some();
        assert_eq!(wake == Some(self.now), sendable, "next_wake and peek_len disagree");
    }
}

/// Does all of `ops` to `scheduler`, then sends what is left.
///
/// # Panics
/// Something does not hold that must for every discipline: the test has failed.
pub fn run<S: Subject>(scheduler: S, ops: impl IntoIterator<Item = Op>) {
    let mut harness = Harness::new(scheduler);
    for op in ops {
        harness.step(op);
    }
    harness.send_all();
}
