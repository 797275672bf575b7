//! Trees of subscribers: caps at every level, conservation, and no idling below them.

use std::sync::Arc;

use evenkeel_core::aqm::elastic::ElasticAqm;
use evenkeel_core::schedule::tree::{Kind, LINK, Plan, PlanNode, Tree, TreeConfig, UNKNOWN};
use evenkeel_core::{BitRate, Nanos, Packet as _, Reason, Scheduler as _};

use super::{World, all, is_found};
use crate::common::{Mail, TestPacket, flow};

/// 8 Mbit/s: a byte in a microsecond.
const CAP: BitRate = BitRate(8_000_000);
/// A site of 8 Mbit/s with two people, of whom one has half of that; a third beside it.
const SITE: u32 = UNKNOWN + 1;
const PEOPLE: [u32; 3] = [SITE + 1, SITE + 2, SITE + 3];
/// Bytes on the wire.
const LONGEST: u64 = 1_038;

fn plan(site: BitRate) -> Arc<Plan> {
    let node = |kind, parent, cap| PlanNode { kind, parent, cap, guarantee: BitRate(0), weight: 0 };
    let mut plan = Plan::default();
    plan.put(SITE, node(Kind::Inner, LINK, Some(site))).unwrap();
    plan.put(PEOPLE[0], node(Kind::Leaf, SITE, Some(BitRate(CAP.0 / 2)))).unwrap();
    plan.put(PEOPLE[1], node(Kind::Leaf, SITE, None)).unwrap();
    plan.put(PEOPLE[2], node(Kind::Leaf, LINK, None)).unwrap();
    plan.check().unwrap();
    Arc::new(plan)
}

/// A bucket: what was sent beyond a cap, at most its burst.
#[derive(Clone, Copy)]
struct Bucket {
    cap: BitRate,
    /// Bytes in the bucket, times 8e9.
    level: u128,
    at: Nanos,
}

impl Bucket {
    const fn of(cap: BitRate) -> Self {
        Self { cap, level: 0, at: Nanos::ZERO }
    }

    fn put(&mut self, now: Nanos, bytes: u64) {
        let leaked = u128::from((now - self.at).0) * u128::from(self.cap.0);
        self.level = self.level.saturating_sub(leaked) + u128::from(bytes) * 8_000_000_000;
        self.at = now;
        // The header: four of the longest packets, or a millisecond of the cap if that is more.
        let burst = (4 * 1_538).max(self.cap.0 / 8_000);
        let most = u128::from(burst + LONGEST) * 8_000_000_000;
        assert!(self.level <= most, "beyond its cap: {} of {most}", self.level);
    }
}

#[derive(Clone)]
struct Town {
    tree: Tree<Mail>,
    now: Nanos,
    number: u64,
    waiting: [u32; 3],
    site: Bucket,
    first: Bucket,
}

impl Town {
    fn new(site: BitRate) -> Self {
        let (aqm, max_delay) = (ElasticAqm::default(), Nanos::from_secs(1));
        let config =
            TreeConfig { plan: plan(site), aqm, buffer: 200, max_delay, ..TreeConfig::default() };
        let mut tree = Tree::new(config).unwrap();
        tree.set_rate(Some(BitRate::from_mbps(1_000)));
        let site = Bucket::of(CAP);
        let first = Bucket::of(BitRate(CAP.0 / 2));
        Self { tree, now: Nanos::from_secs(1), number: 0, waiting: [0; 3], site, first }
    }

    fn arrive(&mut self, who: usize) {
        self.number += 1;
        let packet = TestPacket {
            arrival: self.now,
            flow: flow(who as u8),
            ..TestPacket::new(self.number, 0, 1_000)
        };
        let mut dropped = 0;
        let packet = Mail::new(packet, PEOPLE[who]);
        let _ = self.tree.enqueue(self.now, packet, &mut |_, _: Reason| dropped += 1);
        self.waiting[who] += 1;
        assert_eq!(dropped, 0, "there is room for all");
    }

    fn send(&mut self) {
        let given = self.tree.dequeue(self.now, &mut |_, reason: Reason| panic!("{reason}"));
        let Some(mail) = given else {
            assert_eq!(self.waiting[2], 0, "who has no cap waits, and the link idles");
            return;
        };
        let who = PEOPLE.iter().position(|place| *place == mail.to).unwrap();
        assert!(self.waiting[who] > 0, "sent twice");
        self.waiting[who] -= 1;
        let bytes = mail.wire_len().0;
        if who == 0 {
            self.first.put(self.now, bytes);
        }
        if who < 2 {
            self.site.put(self.now, bytes);
        }
    }
}

/// What happens.
#[derive(Clone, Copy)]
enum Step {
    Arrive(usize, u32),
    Send(u32),
    Wait(Nanos),
    /// Until the tree says that it has something.
    Wake,
}

impl World for Town {
    type Op = Step;

    fn take(&mut self, step: Step) {
        match step {
            Step::Arrive(who, packets) => (0..packets).for_each(|_| self.arrive(who)),
            Step::Send(packets) => (0..packets).for_each(|_| self.send()),
            Step::Wait(time) => self.now += time,
            Step::Wake => {
                let all: u32 = self.waiting.iter().sum();
                let wake = self.tree.next_wake(self.now);
                assert_eq!(wake.is_some(), all > 0, "what waits has a time, and nothing else");
                self.now = wake.unwrap_or(self.now);
            }
        }
        let all: u32 = self.waiting.iter().sum();
        assert_eq!(self.tree.backlog().packets, u64::from(all), "in = out + held");
    }
}

const STEPS: [Step; 8] = [
    Step::Arrive(0, 1),
    Step::Arrive(0, 12),
    Step::Arrive(1, 12),
    Step::Arrive(2, 1),
    Step::Send(1),
    Step::Send(8),
    Step::Wait(Nanos::from_micros(1_500)),
    Step::Wake,
];

#[test]
fn short_sequences_keep_caps_at_every_level() {
    all(&Town::new(CAP), &STEPS, 4);
}

#[test]
#[ignore = "minutes, optimised: make prove"]
fn all_sequences_of_seven_keep_caps_at_every_level() {
    println!("tree: {} sequences of 7", all(&Town::new(CAP), &STEPS, 7));
}

#[test]
fn a_wrong_cap_of_a_site_is_found() {
    is_found("the site has twice its cap", &Town::new(BitRate(2 * CAP.0)), &STEPS, 5);
}
