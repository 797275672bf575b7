//! The short way of an idle link without a rate: nobody can tell it from the long one by what the
//! link does or counts.

use crate::common::{longest, tail, weighted};
use crate::wire::{Out, TestPacket, assert_conserved, packet};
use evenkeel_core::audit::{Alike, Promise, Told};
use evenkeel_core::link::{Link, LinkConfig, LinkSink, Refill, RingConfig};
use evenkeel_core::measure::Run;
use evenkeel_core::schedule::buffer::Buffer;
use evenkeel_core::schedule::fifo::{Fifo, FifoConfig};
use evenkeel_core::schedule::lct::{Lct, LctConfig};
use evenkeel_core::schedule::pdrr::{Pdrr, PdrrConfig};
use evenkeel_core::schedule::pfq::{Pfq, PfqConfig};
use evenkeel_core::schedule::priority::{Priority, PriorityConfig};
use evenkeel_core::schedule::wfq_altq::{QueueSelect, WfqAltq, WfqAltqConfig};
use evenkeel_core::schedule::{Backlog, DropSink, Meters, Treated, Wake};
use evenkeel_core::settings::Change;
use evenkeel_core::settings::PerClass;
use evenkeel_core::settings::SettingError;
use evenkeel_core::{BitRate, Bytes, Class, Nanos, Packet, Scheduler};
use proptest::prelude::*;

/// A discipline that does as another one but for this.
pub(crate) struct But<S> {
    queues: S,
    /// Whether it lets packets pass by.
    passes: bool,
    /// How often it has done work of its own, every 3 µs, if it has any.
    pub(crate) ticks: Option<u32>,
    /// How often it was called for a packet, and between which calls it has done its own work.
    calls: u64,
    pub(crate) order: u64,
}

impl<S> But<S> {
    /// Every packet waits in it, and who shares the link hears of each.
    pub(crate) fn long(queues: S) -> Self {
        Self { queues, passes: false, ticks: None, calls: 0, order: 0 }
    }

    pub(crate) fn ticking(queues: S) -> Self {
        Self { passes: true, ticks: Some(0), ..Self::long(queues) }
    }
}

impl<S: Scheduler<TestPacket>> Scheduler<TestPacket> for But<S> {
    fn enqueue(
        &mut self,
        now: Nanos,
        packet: TestPacket,
        dropped: &mut dyn DropSink<TestPacket>,
    ) -> Treated {
        self.queues.enqueue(now, packet, dropped)
    }
    fn bypass(&mut self, now: Nanos, packet: &dyn Packet) -> Option<Treated> {
        if self.passes { self.queues.bypass(now, packet) } else { None }
    }
    fn bypasses_untold(&self) -> bool {
        self.passes && self.queues.bypasses_untold()
    }
    fn dequeue(
        &mut self,
        now: Nanos,
        dropped: &mut dyn DropSink<TestPacket>,
    ) -> Option<TestPacket> {
        self.calls += 1;
        self.queues.dequeue(now, dropped)
    }
    fn call(
        &mut self,
        now: Nanos,
        dropped: &mut dyn DropSink<TestPacket>,
    ) -> (usize, Option<TestPacket>) {
        let (busy, given) = self.queues.call(now, dropped);
        self.queues.publish();
        self.calls += u64::from(busy > 0);
        (busy, given)
    }
    fn next_wake(&self, now: Nanos) -> Option<Nanos> {
        self.queues.next_wake(now)
    }
    fn tick(&mut self, now: Nanos) -> Option<Nanos> {
        *self.ticks.as_mut()? += 1;
        self.order = self.order.wrapping_mul(31).wrapping_add(self.calls);
        Some(Nanos((now.0 / 3_000 + 1) * 3_000))
    }
    fn peek_len(&self, now: Nanos) -> Option<Bytes> {
        self.queues.peek_len(now)
    }
    fn set(&mut self, now: Nanos, change: &Change) -> Result<Wake, SettingError> {
        let wake = self.queues.set(now, change);
        self.queues.publish();
        wake
    }
    fn set_rate(&mut self, rate: Option<BitRate>) {
        self.queues.set_rate(rate);
    }
    fn drain(&mut self, into: &mut dyn FnMut(TestPacket)) {
        self.queues.drain(into);
        self.queues.publish();
    }
    fn meters(&self) -> Meters {
        self.queues.meters()
    }
    fn busy_queues(&self) -> usize {
        self.queues.busy_queues()
    }
    fn class_backlog(&self, class: Class) -> Backlog {
        self.queues.class_backlog(class)
    }
    fn name(&self) -> &'static str {
        self.queues.name()
    }
}

#[derive(Clone, Debug)]
enum Op {
    /// A packet of a flow arrives this much later.
    Arrive { gap: u64, flow: u16, length: u64 },
    /// The caller looks in this much later.
    Advance { gap: u64 },
    /// The port says how many frames it can take.
    Room(usize),
    /// The link gets a rate, or loses it.
    Rate(Option<BitRate>),
}

/// Of a link that never has a rate.
fn unpaced() -> impl Strategy<Value = Op> {
    prop_oneof![
        12 => (0u64..2_000, 0u16..4, 64u64..1_500)
            .prop_map(|(gap, flow, length)| Op::Arrive { gap, flow, length }),
        3 => (0u64..5_000).prop_map(|gap| Op::Advance { gap }),
        4 => prop_oneof![Just(usize::MAX), 0usize..6].prop_map(Op::Room),
    ]
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        19 => unpaced(),
        1 => prop_oneof![Just(None), Just(Some(BitRate::from_mbps(10_000)))].prop_map(Op::Rate),
    ]
}

/// Does the same to a link with the short way and to one without. `alike` compares them after each
/// step.
fn both_ways<S: Scheduler<TestPacket>>(
    build: impl Fn() -> S,
    ops: &[Op],
    alike: impl Fn(&Link<TestPacket, S>, &Out, &Link<TestPacket, But<S>>, &Out),
) {
    let mut short = Link::new(LinkConfig::default(), build(), 4).unwrap();
    let mut long = Link::new(LinkConfig::default(), But::long(build()), 4).unwrap();
    let (mut short_out, mut long_out) = (Out::default(), Out::default());
    let mut now = Nanos::ZERO;
    for (id, op) in (0..).zip(ops) {
        match *op {
            Op::Arrive { gap, flow, length } => {
                now += Nanos(gap);
                let packet = packet(id, flow, Bytes(length), now);
                let _ = short.enqueue(now, packet.clone(), &mut short_out);
                let _ = long.enqueue(now, packet, &mut long_out);
            }
            Op::Advance { gap } => {
                now += Nanos(gap);
                short.advance(now, &mut short_out);
                long.advance(now, &mut long_out);
            }
            Op::Room(room) => (short_out.room, long_out.room) = (room, room),
            Op::Rate(rate) => {
                let config = LinkConfig { rate, ..*short.config() };
                short.reconfigure(now, config, &mut short_out).unwrap();
                long.reconfigure(now, config, &mut long_out).unwrap();
            }
        }
        assert_conserved(&short, &short_out);
        alike(&short, &short_out, &long, &long_out);
    }
}

/// Same packets at the same instants, same meters.
fn exactly<S: Scheduler<TestPacket>>(
    short: &Link<TestPacket, S>,
    short_out: &Out,
    long: &Link<TestPacket, But<S>>,
    long_out: &Out,
) {
    assert_eq!(short_out.sent, long_out.sent);
    assert_eq!(short_out.dropped, long_out.dropped);
    assert_eq!(short.qostat(), long.qostat());
    assert_eq!((short.held(), short.next_wake()), (long.held(), long.next_wake()));
    assert_eq!(short.scheduler().meters().priority_bytes, long.scheduler().meters().priority_bytes);
}

proptest! {
    #[test]
    fn fifo_and_pfq_are_the_same_by_both_ways(ops in prop::collection::vec(op(), 1..200)) {
        both_ways(|| Fifo::new(FifoConfig::packets(5)).unwrap(), &ops, exactly);
        let pfq = || Pfq::new(PfqConfig { buffer: Buffer::packets(5), ..PfqConfig::default() })
            .unwrap();
        both_ways(pfq, &ops, exactly);
    }

    /// Whose turn it is, and with what quota, is the same too: after each step every queue of the
    /// ring stands alike.
    #[test]
    fn wfq_is_the_same_by_both_ways(
        ops in prop::collection::vec(op(), 1..200),
        weights in prop::collection::vec(1u32..400, 4),
        high_water in prop::option::of(1_500u64..4_000),
    ) {
        let config = weighted(&weights, high_water.map_or_else(|| tail(5), longest));
        // By the hash of the destination, as ALTQ ships it: the packets here have one each class.
        let select = QueueSelect::HashDestination;
        let config = WfqAltqConfig { select, queues: 4, ..config };
        let build = || WfqAltq::new(config.clone()).unwrap();
        both_ways(build, &ops, |short, short_out, long, long_out| {
            exactly(short, short_out, long, long_out);
            let (short, long) = (short.scheduler(), &long.scheduler().queues);
            assert!(short.ring().eq(long.ring()));
            assert!((0..4).all(|queue| short.quota(queue) == long.quota(queue)));
        });
    }

    /// Also when which class may be served again is the same, with module 2 or without.
    #[test]
    fn lct_is_the_same_by_both_ways(
        ops in prop::collection::vec(op(), 1..200),
        x in prop::collection::vec(0u64..3_000, 1..5),
        module2 in any::<bool>(),
        rearm_empty in any::<bool>(),
    ) {
        let x_delay: Vec<Nanos> = x.into_iter().map(Nanos).collect();
        let classes = x_delay.len() as u16;
        let build = || Lct::new(LctConfig { limit: PerClass::all(5), module2, rearm_empty,
            ..LctConfig::with_delays(x_delay.clone()) }).unwrap();
        both_ways(build, &ops, |short, short_out, long, long_out| {
            exactly(short, short_out, long, long_out);
            let (short, long) = (short.scheduler(), &long.scheduler().queues);
            assert!((0..classes).map(Class)
                .all(|class| short.dequeue_time(class) == long.dequeue_time(class)));
        });
    }

    /// A flow that passes an idle link keeps what it has to spare, so its next packets may go
    /// before others: how many leave when is the same, as long as no wire takes longer for one
    /// packet than for another.
    #[test]
    fn pdrr_sends_as_much_by_both_ways(ops in prop::collection::vec(unpaced(), 1..200)) {
        let pdrr = || Pdrr::new(PdrrConfig { buffer: Buffer::packets(5), ..PdrrConfig::default() })
            .unwrap();
        both_ways(pdrr, &ops, |short, short_out, long, long_out| {
            assert_eq!(short_out.sent.len(), long_out.sent.len());
            assert_eq!(short.qostat().class(Class(0)).in_packets,
                long.qostat().class(Class(0)).in_packets);
        });
    }
}

/// In a run: how much later a packet comes, how long it was under way, its class, its length, the
/// room of the port, and whether the run ends with it.
type Step = (u64, u64, u16, u64, usize, bool);

fn step() -> impl Strategy<Value = Step> {
    let room = prop_oneof![3 => Just(usize::MAX), 2 => 0usize..4];
    // Counted together: stamps that are now, and classes below 8.
    let lag = prop_oneof![4 => Just(0u64), 1 => 1u64..5_000];
    (0u64..2_000, lag, 0u16..11, 64u64..1_500, room, prop::bool::weighted(0.15))
}

proptest! {
    /// Packets that pass in runs are counted as if each had passed by itself, also where the port
    /// has little room, a packet is late or has a class that no run knows, and where one waits.
    #[test]
    fn a_run_is_counted_as_its_packets_one_by_one(
        steps in prop::collection::vec(step(), 1..200),
        x_delay in prop::collection::vec((0u64..1_500).prop_map(Nanos), 10),
    ) {
        let lct = || Lct::new(LctConfig::with_delays(x_delay.clone())).unwrap();
        let mut alone = Link::new(LinkConfig::default(), lct(), 10).unwrap();
        let mut together = Link::new(LinkConfig::default(), lct(), 10).unwrap();
        let (mut alone_out, mut together_out) = (Out::default(), Out::default());
        let (mut run, mut now) = (Run::default(), Nanos::ZERO);
        for (id, (gap, lag, class, length, room, ends)) in (0..).zip(steps) {
            now += Nanos(gap);
            (alone_out.room, together_out.room) = (room, room);
            let packet = packet(id, class, Bytes(length), now.saturating_sub(Nanos(lag)));
            let passed = alone.pass(now, &packet, room);
            prop_assert_eq!(passed, together.pass_on(&mut run, now, &packet, room));
            if passed.is_none() {
                let _ = alone.queue(now, packet.clone(), &mut alone_out);
                let _ = together.queue(now, packet, &mut together_out);
            }
            if ends {
                together.count(&mut run);
                alone.advance(now, &mut alone_out);
                together.advance(now, &mut together_out);
            }
            if ends || passed.is_none() {
                prop_assert_eq!(alone.qostat(), together.qostat());
            }
            prop_assert_eq!(alone.next_wake(), together.next_wake());
        }
        together.count(&mut run);
        prop_assert_eq!(alone.qostat(), together.qostat());
        prop_assert_eq!(&alone_out.sent, &together_out.sent);
    }
}

/// A run: how much later each of its packets comes, its class and length; how much later than its
/// first one links have advanced, and the room of the port.
type Together = (Vec<(u64, u16, u64)>, Option<u64>, usize);

fn together() -> impl Strategy<Value = Together> {
    let class = prop_oneof![9 => 0u16..8, 1 => 8u16..10];
    let gap = prop_oneof![14 => 0u64..900, 1 => 0u64..1_500_000];
    let packets = prop::collection::vec((gap, class, 64u64..1_500), 1..6);
    let room = prop_oneof![4 => Just(usize::MAX), 1 => 0usize..4];
    (packets, prop::option::weighted(0.2, 1u64..2_000), room)
}

/// The packets of a run, and the instant up to which links have advanced.
fn run_of(
    packets: &[(u64, u16, u64)],
    late: Option<u64>,
    (now, id): (&mut Nanos, &mut u64),
) -> (Vec<TestPacket>, Nanos) {
    let mut run = Vec::new();
    for (gap, class, length) in packets {
        *now += Nanos(*gap);
        run.push(packet(*id, *class, Bytes(*length), *now));
        *id += 1;
    }
    let floor = late.map_or(Nanos::ZERO, |late| run[0].arrival() + Nanos(late));
    (run, floor)
}

/// Runs that pass at once, or do not, against their packets one by one. How many passed.
fn by_runs<S: Scheduler<TestPacket>>(build: impl Fn() -> S, runs: &[Together]) -> u32 {
    let mut alone = Link::new(LinkConfig::default(), But::ticking(build()), 10).unwrap();
    let mut all = Link::new(LinkConfig::default(), But::ticking(build()), 10).unwrap();
    let (mut alone_out, mut all_out) = (Out::default(), Out::default());
    let (mut now, mut id, mut passed) = (Nanos::ZERO, 0, 0);
    for (packets, late, room) in runs {
        (alone_out.room, all_out.room) = (*room, *room);
        let (run, floor) = run_of(packets, *late, (&mut now, &mut id));
        let passes = *room > run.len() && all.pass_all(floor, run.iter().cloned(), now);
        passed += u32::from(passes);
        for packet in run {
            let at = floor.max(packet.arrival());
            let _ = alone.enqueue(at, packet.clone(), &mut alone_out);
            if passes {
                all_out.transmitted(at, packet);
            } else {
                let _ = all.enqueue(at, packet, &mut all_out);
            }
        }
        now = now.max(floor);
        assert_eq!(alone.qostat(), all.qostat());
        assert_eq!((alone.held(), alone.next_wake()), (all.held(), all.next_wake()));
        assert_eq!(alone.scheduler().ticks, all.scheduler().ticks, "ticks");
        assert_eq!(alone_out.sent, all_out.sent);
        // What the port had no room for goes when it has.
        (alone_out.room, all_out.room) = (usize::MAX, usize::MAX);
        if id % 3 == 0 {
            alone.advance(now, &mut alone_out);
            all.advance(now, &mut all_out);
        }
    }
    passed
}

proptest! {
    /// Packets that pass together are sent and counted as one by one: where the port has little
    /// room, some are late or have a class that no run knows, one waits, or the discipline has
    /// something to do meanwhile.
    #[test]
    fn a_run_that_passes_at_once_is_as_its_packets_one_by_one(
        runs in prop::collection::vec(together(), 1..60),
    ) {
        by_runs(|| Fifo::new(FifoConfig::packets(5)).unwrap(), &runs);
        let priority = || {
            let level = PerClass::new(vec![3, 1, 2], 0);
            let config = PriorityConfig { level, limit: 5, classes: 10 };
            Priority::new(config).unwrap()
        };
        by_runs(priority, &runs);
        let lct = || Lct::new(LctConfig::with_delays(vec![Nanos(700); 10])).unwrap();
        assert_eq!(by_runs(lct, &runs), 0, "a discipline that has to be told of each");
    }
}

/// What links are audited against, so that all that audits are told of packets is compared.
pub(crate) const PROMISE: Promise =
    Promise::Flows { spread: Bytes(3_000), places: 100, alike: Alike::All };

/// Runs that wait, against their packets one by one, on links with such rings and rates.
fn by_waiting_runs<S: Scheduler<TestPacket>>(
    config: LinkConfig,
    build: impl Fn() -> S,
    runs: &[Together],
) {
    let [mut alone, mut all] = [(); 2].map(|()| {
        let mut link = Link::new(config, build(), 10).unwrap();
        link.tell(Nanos::ZERO, Told { link: config, promise: PROMISE });
        link
    });
    let (mut alone_out, mut all_out) = (Out::default(), Out::default());
    let (mut now, mut id, mut last) = (Nanos::ZERO, 0, Nanos::ZERO);
    for (packets, late, room) in runs {
        (alone_out.room, all_out.room) = (*room, *room);
        let (mut run, floor) = run_of(packets, *late, (&mut now, &mut id));
        // Of two ports one may be asked later.
        let first = run[0].arrival();
        if let Some(packet) = run.iter_mut().find(|packet| packet.class() == Class(7)) {
            packet.arrival = first.saturating_sub(Nanos(400));
        }
        let mut told = Vec::new();
        all.queue_all(floor, run.iter().cloned(), &mut all_out, |at, treated, place| {
            told.push((at, treated, place));
        });
        let singly = run.into_iter().map(|packet| {
            last = last.max(floor).max(packet.arrival());
            let treated = alone.queue(last, packet, &mut alone_out);
            (last, treated, alone.scheduler().last_place())
        });
        assert_eq!(told, singly.collect::<Vec<_>>());
        now = now.max(floor);
        assert_eq!(alone.qostat(), all.qostat());
        assert_eq!((alone.held(), alone.next_wake()), (all.held(), all.next_wake()));
        assert_eq!((&alone_out.sent, &alone_out.dropped), (&all_out.sent, &all_out.dropped));
        assert_eq!(alone.verdict(), all.verdict());
        assert_conserved(&all, &all_out);
        // The audit looks every millisecond.
        now += Nanos(id % 5 / 4 * 300_000);
    }
}

proptest! {
    /// Packets that wait enter a link in runs as they would one by one, each when it arrived: also
    /// where some are dropped, or wait for the end of a refill.
    #[test]
    fn a_run_that_waits_is_as_its_packets_one_by_one(
        runs in prop::collection::vec(together(), 1..60),
        mbps in prop_oneof![
            Just(None), (100u64..20_000).prop_map(Some), (2u64..20).prop_map(Some)
        ],
        slots in 1u32..6,
        refill in prop_oneof![
            Just(Refill::AnySlot), Just(Refill::WholeRing), Just(Refill::WholeRingBlocking)
        ],
        call in prop_oneof![Just(0u64), 1u64..700],
    ) {
        let rate = mbps.map(BitRate::from_mbps);
        let (ring, dequeue_time) = (RingConfig { slots, refill }, Nanos(call));
        let config = LinkConfig { rate, ring, dequeue_time, ..LinkConfig::default() };
        by_waiting_runs(config, || Fifo::new(FifoConfig::packets(5)).unwrap(), &runs);
        let buffer = Buffer::packets(6);
        let pdrr = || Pdrr::new(PdrrConfig { buffer, ..PdrrConfig::default() }).unwrap();
        by_waiting_runs(config, pdrr, &runs);
        let pfq = || Pfq::new(PfqConfig { buffer, ..PfqConfig::default() }).unwrap();
        by_waiting_runs(config, pfq, &runs);
        let lct = || Lct::new(LctConfig::with_delays(vec![Nanos(700); 10])).unwrap();
        by_waiting_runs(config, lct, &runs);
    }
}

#[test]
fn most_runs_pass_at_once() {
    let run = || (vec![(90, 0, 64), (0, 1, 300), (5, 7, 1_500)], None, usize::MAX);
    let runs: Vec<Together> = std::iter::repeat_with(run).take(100).collect();
    let passed = by_runs(|| Fifo::new(FifoConfig::packets(5)).unwrap(), &runs);
    // All but the first and those that meet a tick, every 3 µs of 9.5.
    assert!((94..=97).contains(&passed), "{passed}");
}

#[test]
fn pdrr_lets_pass_only_where_nothing_has_to_be_decided() {
    let now = Nanos::ZERO;
    let one = packet(0, 0, Bytes(1_000), now);
    let mut idle = Pdrr::<TestPacket>::new(PdrrConfig::default()).unwrap();
    assert!(idle.bypasses());
    assert_eq!(idle.bypass(now, &one), Some(Treated::Priority));
    assert_eq!(idle.meters().priority_bytes, Some(Bytes(1_038)));
    assert_eq!(idle.meters().backlog, Backlog::default());

    let mut busy = Pdrr::new(PdrrConfig::default()).unwrap();
    let _ = busy.enqueue(now, one.clone(), &mut |_, _| unreachable!("there is room"));
    assert_eq!((busy.bypasses(), busy.bypass(now, &one)), (false, None));

    // A flow that ran empty a moment ago has to be looked up; a packet that the buffer does not
    // take has to be dropped.
    let afl_linger = Nanos::from_millis(1);
    let mut lingering =
        Pdrr::<TestPacket>::new(PdrrConfig { afl_linger, ..PdrrConfig::default() }).unwrap();
    assert_eq!(lingering.bypass(now, &one), None);
    let buffer = Buffer::bytes(Bytes(1_538));
    let mut small =
        Pdrr::<TestPacket>::new(PdrrConfig { buffer, ..PdrrConfig::default() }).unwrap();
    assert_eq!(small.bypass(now, &packet(1, 0, Bytes(1_501), now)), None);
}
