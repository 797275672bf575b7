//! What a link does when: pacing, refill rules, the time of a scheduler call, shaping,
//! back-pressure, live changes.

use crate::common::{tail, weighted};
use crate::wire::{IP_LEN, Out, TestPacket, assert_conserved, packet};
use evenkeel_core::link::{Handover, Held, Link, LinkConfig, Refill, RingConfig, Translate};
use evenkeel_core::schedule::fifo::{Fifo, FifoConfig};
use evenkeel_core::schedule::lct::{FREEBSD_TICK, Lct, LctConfig};
use evenkeel_core::schedule::wfq_altq::WfqAltq;
use evenkeel_core::schedule::{AnyScheduler, Backlog, DropSink, Meters, Treated, Wake};
use evenkeel_core::settings::{Change, PerClass, SettingError};
use evenkeel_core::shape::ShaperConfig;
use evenkeel_core::{BitRate, Bytes, Class, Nanos, Reason, Scheduler};

const RATE: BitRate = BitRate::from_mbps(100);
/// What a packet of [`IP_LEN`] takes at [`RATE`].
const TIME: u64 = 117_280;

fn fifo() -> Fifo<TestPacket> {
    Fifo::new(FifoConfig::packets(50)).unwrap()
}

fn ring(slots: u32, refill: Refill) -> LinkConfig {
    LinkConfig { ring: RingConfig { slots, refill }, ..LinkConfig::paced(RATE) }
}

/// `n` packets of class 0 arrive at `now`.
fn burst<S: Scheduler<TestPacket>>(
    link: &mut Link<TestPacket, S>,
    now: Nanos,
    n: u64,
    out: &mut Out,
) {
    for id in 0..n {
        let _ = link.enqueue(now, packet(id, 0, IP_LEN, now), out);
    }
}

fn instants(out: &Out) -> Vec<u64> {
    out.sent.iter().map(|(at, _)| at.0).collect()
}

fn ids(out: &Out) -> Vec<u64> {
    out.sent.iter().map(|(_, p)| p.id).collect()
}

#[test]
fn the_wire_takes_each_packet_for_its_time() {
    let mut link = Link::new(LinkConfig::paced(RATE), fifo(), 1).unwrap();
    let mut out = Out::default();
    burst(&mut link, Nanos(1_000), 3, &mut out);
    assert_eq!(link.held().in_ring, 2);
    assert_eq!(link.next_wake(), Some(Nanos(1_000 + TIME)));
    link.advance(Nanos(1_000 + TIME - 1), &mut out);
    assert_eq!(instants(&out), []);
    link.advance(Nanos(1_000 + TIME), &mut out);
    assert_eq!(instants(&out), [1_000 + TIME]);
    link.advance(Nanos(9_000_000), &mut out);
    assert_eq!(instants(&out), [1_000 + TIME, 1_000 + 2 * TIME, 1_000 + 3 * TIME]);
    assert_eq!(link.next_wake(), None);
    // Idle time of the wire is lost: the next packet starts when it comes.
    burst(&mut link, Nanos(10_000_000), 1, &mut out);
    link.advance(Nanos(20_000_000), &mut out);
    assert_eq!(instants(&out)[3], 10_000_000 + TIME);
    assert_conserved(&link, &out);
}

#[test]
fn a_caller_that_comes_late_loses_nothing() {
    let mut link = Link::new(ring(1, Refill::AnySlot), fifo(), 1).unwrap();
    let mut out = Out::default();
    burst(&mut link, Nanos::ZERO, 5, &mut out);
    link.advance(Nanos::SECOND, &mut out);
    assert_eq!(instants(&out), [1, 2, 3, 4, 5].map(|n| n * TIME));
    // Each packet left the queue at the completion before it, not when the caller came.
    let meter = link.qostat().class(Class(0));
    assert_eq!(meter.delay_sum, Nanos((1 + 2 + 3 + 4) * TIME));
    assert_eq!(meter.delay_max, Nanos(4 * TIME));
}

#[test]
fn a_wire_that_is_held_sends_what_is_late_from_then_on() {
    let mut link = Link::new(ring(1, Refill::AnySlot), fifo(), 1).unwrap();
    let mut out = Out::default();
    burst(&mut link, Nanos::ZERO, 5, &mut out);
    link.advance(Nanos(TIME), &mut out);
    // One is on the wire and three wait; the caller is away until 100 packets could have gone, and
    // two of them may go at once.
    link.hold(Nanos(98 * TIME));
    link.advance(Nanos(100 * TIME), &mut out);
    assert_eq!(instants(&out), [1, 98, 99, 100].map(|n| n * TIME));
    // What comes into an idle wire meanwhile starts then, too; and what is not late is not touched.
    link.advance(Nanos(200 * TIME), &mut out);
    link.hold(Nanos(300 * TIME));
    burst(&mut link, Nanos(210 * TIME), 1, &mut out);
    link.hold(Nanos(250 * TIME));
    link.advance(Nanos(400 * TIME), &mut out);
    assert_eq!(instants(&out)[4..], [101, 301].map(|n| n * TIME));
    // It was held for 96 packets' time while there was something to send, and never when idle.
    assert_eq!(link.lost_time(), Nanos(96 * TIME));
    assert_conserved(&link, &out);
}

#[test]
fn time_never_runs_backwards() {
    let mut link = Link::new(LinkConfig::paced(RATE), fifo(), 1).unwrap();
    let mut out = Out::default();
    link.advance(Nanos::SECOND, &mut out);
    burst(&mut link, Nanos::ZERO, 1, &mut out);
    link.advance(Nanos::from_secs(2), &mut out);
    assert_eq!(instants(&out), [1_000_000_000 + TIME]);
}

#[test]
fn any_slot_is_filled_as_soon_as_it_is_free() {
    let mut link = Link::new(ring(3, Refill::AnySlot), fifo(), 1).unwrap();
    let mut out = Out::default();
    burst(&mut link, Nanos::ZERO, 10, &mut out);
    for n in 0..5u64 {
        link.advance(Nanos(n * TIME), &mut out);
        assert_eq!(link.qostat().class(Class(0)).out_packets, 3 + n);
        assert_eq!(link.held().in_ring, 3);
    }
}

#[test]
fn a_whole_ring_is_filled_when_all_of_it_has_been_sent() {
    let mut link = Link::new(ring(3, Refill::WholeRing), fifo(), 1).unwrap();
    let mut out = Out::default();
    burst(&mut link, Nanos::ZERO, 10, &mut out);
    let given: Vec<u64> = (0..8)
        .map(|n| {
            link.advance(Nanos(n * TIME), &mut out);
            link.qostat().class(Class(0)).out_packets
        })
        .collect();
    assert_eq!(given, [3, 3, 3, 6, 6, 6, 9, 9]);
    // The wire never paused.
    assert_eq!(instants(&out), [1, 2, 3, 4, 5, 6, 7].map(|n| n * TIME));
}

#[test]
fn slots_of_a_whole_ring_stay_taken_until_it_is_empty() {
    let mut link = Link::new(ring(3, Refill::WholeRing), fifo(), 1).unwrap();
    let mut out = Out::default();
    burst(&mut link, Nanos::ZERO, 2, &mut out);
    // One of two is sent; a third takes the last slot, a fourth has none although only two are in
    // the ring.
    burst(&mut link, Nanos(TIME), 2, &mut out);
    assert_eq!((link.held().in_ring, link.held().queued), (2, 1));
    link.advance(Nanos(3 * TIME), &mut out);
    assert_eq!((link.held().in_ring, link.held().queued), (1, 0));
}

/// FreeBSD 2.2 filled the ring with interrupts masked; that arrivals came between the calls of a
/// refill moved shares by up to a sixth, without a switch to turn it off.
#[test]
fn a_refill_that_blocks_lets_nothing_in_before_it_is_over() {
    let config = |refill| LinkConfig { dequeue_time: Nanos::from_micros(10), ..ring(8, refill) };
    let calls = |refill| {
        let mut link = Link::new(config(refill), fifo(), 1).unwrap();
        let mut out = Out::default();
        let mut all = Vec::new();
        for (id, us) in [(0, 0), (1, 4), (2, 5), (3, 25)] {
            let now = Nanos::from_micros(us);
            let _ = link.enqueue(now, packet(id, 0, IP_LEN, now), &mut out);
            assert_conserved(&link, &out);
        }
        for us in [39, 40, 1_000] {
            link.advance(Nanos::from_micros(us), &mut out);
            assert_conserved(&link, &out);
            all.push(link.qostat().calls);
        }
        assert_eq!(ids(&out), [0, 1, 2, 3]);
        all
    };
    // Found at 0, 10, 20, 30 us; nothing at 40.
    assert_eq!(calls(Refill::WholeRing), [[0, 4, 0], [1, 4, 0], [1, 4, 0]]);
    // The call at 10 us finds nothing and ends at 20: both that came meanwhile are found then and
    // at 30. What came at 25 waits until the call at 40, in vain, is over: found at 50.
    assert_eq!(calls(Refill::WholeRingBlocking), [[1, 3, 0], [2, 3, 0], [3, 4, 0]]);
}

#[test]
fn what_waits_for_a_refill_is_counted_bounded_and_moves_with_the_link() {
    let config =
        LinkConfig { dequeue_time: Nanos::from_micros(10), ..ring(2, Refill::WholeRingBlocking) };
    let mut link = Link::new(config, fifo(), 1).unwrap();
    let mut out = Out::default();
    burst(&mut link, Nanos(0), 1, &mut out);
    // As many as the ring has slots wait; one more is lost.
    burst(&mut link, Nanos(5_000), 3, &mut out);
    assert_eq!((link.held().queued, link.qostat().class(Class(0)).dropped_packets()), (2, 1));
    assert_conserved(&link, &out);
    // Another discipline gets them.
    link.swap(Nanos(6_000), fifo(), &mut out);
    assert_eq!((link.held().queued, link.scheduler().backlog().packets), (2, 2));
    burst(&mut link, Nanos(7_000), 1, &mut out);
    assert_eq!((link.held().queued, link.scheduler().backlog().packets), (3, 2));
    link.drain(Nanos(8_000), Reason::Reconfigured, &mut out);
    assert_eq!(link.held().queued, 0);
    assert_conserved(&link, &out);
}

#[test]
fn scheduler_calls_are_counted_by_busy_queues_and_take_their_time() {
    let config = LinkConfig { dequeue_time: Nanos::from_micros(10), ..ring(8, Refill::AnySlot) };
    let scheduler = WfqAltq::new(weighted(&[100, 100], tail(10))).unwrap();
    let mut link = Link::new(config, scheduler, 2).unwrap();
    let mut out = Out::default();
    let mut arrive = |link: &mut Link<_, _>, id, class, us| {
        let now = Nanos::from_micros(us);
        let _ = link.enqueue(now, packet(id, class, IP_LEN, now), &mut out);
        link.qostat().calls
    };
    // The first call finds one queue; the second, 10 us later, finds what came in between.
    assert_eq!(arrive(&mut link, 0, 0, 0), [0, 1, 0]);
    assert_eq!(arrive(&mut link, 1, 0, 4), [0, 1, 0]);
    assert_eq!(arrive(&mut link, 2, 1, 6), [0, 1, 0]);
    assert_eq!(link.next_wake(), Some(Nanos::from_micros(10)));
    // At 10 us both, at 20 us one, at 30 us nothing; then an arrival at 35 us waits until the
    // processor is free.
    assert_eq!(arrive(&mut link, 3, 1, 35), [1, 2, 1]);
    assert_eq!(link.next_wake(), Some(Nanos::from_micros(40)));
    assert_eq!(arrive(&mut link, 4, 1, 41), [1, 3, 1]);
    link.advance(Nanos::SECOND, &mut out);
    assert_conserved(&link, &out);
    // 4 is found at 50 us, and nothing at 60 us. Completions find nothing queued and call nothing.
    assert_eq!(link.qostat().calls, [2, 4, 1]);
    let delays = [10 - 4, 20 - 6, 40 - 35, 50 - 41].map(Nanos::from_micros);
    let meters = link.qostat().classes();
    assert_eq!(meters[0].delay_sum + meters[1].delay_sum, delays.into_iter().sum());
}

#[test]
fn a_shaper_lets_a_burst_and_then_its_rate_pass() {
    let shaper = ShaperConfig { rate: BitRate::from_mbps(10), burst: Bytes(2 * 1428) };
    let config = LinkConfig { shaper: Some(shaper), ..ring(16, Refill::AnySlot) };
    let mut link = Link::new(config, fifo(), 1).unwrap();
    let mut out = Out::default();
    burst(&mut link, Nanos::ZERO, 6, &mut out);
    // 1428 bytes at 10 Mbit/s: 1142.4 us.
    assert_eq!((link.held().in_ring, link.held().queued), (2, 4));
    link.advance(Nanos(2 * TIME), &mut out);
    assert_eq!(link.next_wake(), Some(Nanos(1_142_400)));
    // After each of the first two a call found nothing; the shaper's waiting is no scheduler call.
    assert_eq!(link.qostat().calls, [2, 2, 0]);
    link.advance(Nanos::SECOND, &mut out);
    let expected = [TIME, 2 * TIME].into_iter().chain((1..=4).map(|n| n * 1_142_400 + TIME));
    assert_eq!(instants(&out), expected.collect::<Vec<_>>());
}

#[test]
fn a_packet_that_comes_to_the_front_is_looked_at_while_the_shaper_waits() {
    let shaper = ShaperConfig { rate: BitRate::from_mbps(8), burst: Bytes(1_000) };
    let config = LinkConfig { shaper: Some(shaper), ..LinkConfig::default() };
    let x_delay = vec![Nanos::ZERO, Nanos::from_secs(1)];
    let scheduler =
        Lct::new(LctConfig { module2: false, ..LctConfig::with_delays(x_delay) }).unwrap();
    let mut link = Link::new(config, scheduler, 2).unwrap();
    let mut out = Out::default();
    let _ = link.enqueue(Nanos::ZERO, packet(0, 1, Bytes(900), Nanos::ZERO), &mut out);
    let _ = link.enqueue(Nanos::ZERO, packet(1, 1, Bytes(900), Nanos::ZERO), &mut out);
    assert_eq!(ids(&out), [0]);
    assert_eq!(link.next_wake(), Some(Nanos::from_micros(800)));
    // 110 bytes of credit at 10 us: too little for the 900, enough for the 60 of the more urgent
    // class.
    let now = Nanos::from_micros(10);
    let _ = link.enqueue(now, packet(2, 0, Bytes(60), now), &mut out);
    assert_eq!(ids(&out), [0, 2]);
    assert_eq!(link.next_wake(), Some(Nanos::from_micros(860)));
}

#[test]
fn without_a_rate_packets_leave_while_the_port_has_room() {
    let mut link = Link::new(LinkConfig::default(), fifo(), 1).unwrap();
    let mut out = Out { room: 2, ..Out::default() };
    burst(&mut link, Nanos(5), 4, &mut out);
    assert_eq!(instants(&out), [5, 5]);
    // What does not fit stays in the scheduler's hands.
    assert_eq!((link.held().in_ring, link.held().queued), (0, 2));
    assert_eq!(link.next_wake(), None);
    link.advance(Nanos(6), &mut out);
    assert_eq!(out.sent.len(), 2);
    out.room = 1;
    link.advance(Nanos(7), &mut out);
    out.room = 5;
    link.advance(Nanos(8), &mut out);
    assert_eq!(instants(&out), [5, 5, 7, 8]);
    assert_eq!(ids(&out), [0, 1, 2, 3]);
    assert_conserved(&link, &out);
}

/// Two classes of which the second is held by module 2.
fn held_class(tick: Nanos) -> Lct<TestPacket> {
    let x_delay = vec![Nanos::ZERO, Nanos::from_millis(5)];
    Lct::new(LctConfig {
        limit: PerClass::all(2),
        timer_tick: tick,
        ..LctConfig::with_delays(x_delay)
    })
    .unwrap()
}

/// Three packets of class 1 arrive; the first leaves at once, the others are held.
fn hold_two(link: &mut Link<TestPacket, Lct<TestPacket>>, out: &mut Out) {
    for id in 0..3 {
        let _ = link.enqueue(Nanos(id), packet(id, 1, IP_LEN, Nanos(id)), out);
    }
    assert_eq!(link.held().queued, 2);
}

#[test]
fn held_packets_leave_at_their_time_without_an_arrival() {
    let mut link = Link::new(LinkConfig::paced(RATE), held_class(Nanos::ZERO), 2).unwrap();
    let mut out = Out::default();
    hold_two(&mut link, &mut out);
    link.advance(Nanos::SECOND, &mut out);
    assert_eq!(instants(&out), [TIME, 5_000_000 + TIME, 10_000_000 + TIME]);
}

#[test]
fn turning_module_2_off_starts_the_transmit_side() {
    let mut link = Link::new(LinkConfig::paced(RATE), held_class(Nanos::ZERO), 2).unwrap();
    let mut out = Out::default();
    hold_two(&mut link, &mut out);
    link.set(Nanos(1_000_000), &Change::new("module2", false), &mut out).unwrap();
    link.advance(Nanos::SECOND, &mut out);
    assert_eq!(instants(&out), [TIME, 1_000_000 + TIME, 1_000_000 + 2 * TIME]);
}

#[test]
fn a_wrong_knob_changes_nothing() {
    let mut link = Link::new(LinkConfig::paced(RATE), held_class(Nanos::ZERO), 2).unwrap();
    let mut out = Out::default();
    hold_two(&mut link, &mut out);
    let wrong = Change::of("x_delay", Class(7), Nanos::ZERO);
    let error = link.set(Nanos(1_000_000), &wrong, &mut out).unwrap_err();
    assert_eq!(error, SettingError::NoSuchClass { class: Class(7), classes: 2 });
    link.advance(Nanos::SECOND, &mut out);
    assert_eq!(instants(&out), [TIME, 5_000_000 + TIME, 10_000_000 + TIME]);
}

/// With FreeBSD's coarse timer a packet held beyond its time waits for the tick; an arrival that is
/// dropped does not start the transmit side, nor does a knob that releases nothing, and neither may
/// move the timer.
#[test]
fn a_coarse_timer_is_not_hurried_by_a_drop() {
    let mut link = Link::new(LinkConfig::paced(RATE), held_class(FREEBSD_TICK), 2).unwrap();
    let mut out = Out::default();
    hold_two(&mut link, &mut out);
    let now = Nanos::from_millis(7);
    let treated = link.enqueue(now, packet(9, 1, IP_LEN, now), &mut out);
    assert_eq!(treated, Treated::Dropped(Reason::QueueFull));
    link.set(now, &Change::new("rearm_empty", true), &mut out).unwrap();
    assert_eq!(link.next_wake(), Some(FREEBSD_TICK));
    link.advance(Nanos::SECOND, &mut out);
    assert_eq!(instants(&out), [TIME, 10_000_000 + TIME, 20_000_000 + TIME]);
}

#[test]
fn swapping_the_discipline_keeps_what_is_queued() {
    let wfq = WfqAltq::new(weighted(&[100, 100], tail(50)));
    let mut link =
        Link::new(ring(1, Refill::AnySlot), AnyScheduler::WfqAltq(wfq.unwrap()), 2).unwrap();
    let mut out = Out::default();
    for id in 0..10 {
        let now = Nanos(id * 10);
        let _ = link.enqueue(now, packet(id, (id % 2) as u16, IP_LEN, now), &mut out);
    }
    // The ring has the first; the others move over in the order of their arrival, the last three
    // find no room.
    let small = AnyScheduler::Fifo(Fifo::new(FifoConfig::packets(6)).unwrap());
    link.swap(Nanos(1_000), small, &mut out);
    assert_eq!(link.scheduler().name(), "fifo");
    assert_conserved(&link, &out);
    let dropped: Vec<_> = out.dropped.iter().map(|(at, p, reason)| (at.0, p.id, *reason)).collect();
    assert_eq!(dropped, [7, 8, 9].map(|id| (1_000, id, Reason::Reconfigured)));
    link.advance(Nanos::SECOND, &mut out);
    assert_eq!(ids(&out), [0, 1, 2, 3, 4, 5, 6]);
    // Arrival stamps were kept: the delay is that of the whole stay.
    assert_eq!(
        link.qostat().classes().iter().map(|m| m.delay_max).max(),
        Some(Nanos(6 * TIME - 60))
    );
}

#[test]
fn a_swap_releases_what_the_old_discipline_held() {
    let mut link =
        Link::new(LinkConfig::paced(RATE), AnyScheduler::Lct(held_class(Nanos::ZERO)), 2).unwrap();
    let mut out = Out::default();
    for id in 0..3 {
        let _ = link.enqueue(Nanos::ZERO, packet(id, 1, IP_LEN, Nanos::ZERO), &mut out);
    }
    link.swap(Nanos(1_000_000), AnyScheduler::Fifo(fifo()), &mut out);
    link.advance(Nanos::SECOND, &mut out);
    assert_eq!(instants(&out), [TIME, 1_000_000 + TIME, 1_000_000 + 2 * TIME]);
}

#[test]
fn a_new_rate_rules_from_its_instant_on() {
    let mut link = Link::new(LinkConfig::paced(BitRate(1_000_000)), fifo(), 1).unwrap();
    let mut out = Out::default();
    burst(&mut link, Nanos::ZERO, 2, &mut out);
    // 11.728 ms at 1 Mbit/s; half of it is left when the rate is raised a hundredfold.
    link.reconfigure(Nanos(5_864_000), LinkConfig::paced(RATE), &mut out).unwrap();
    link.advance(Nanos::SECOND, &mut out);
    assert_eq!(instants(&out), [5_864_000 + TIME / 2, 5_864_000 + TIME / 2 + TIME]);
}

#[test]
fn a_ring_may_shrink_and_grow_under_its_packets() {
    let mut link = Link::new(ring(8, Refill::AnySlot), fifo(), 1).unwrap();
    let mut out = Out::default();
    burst(&mut link, Nanos::ZERO, 12, &mut out);
    link.reconfigure(Nanos(1), ring(2, Refill::AnySlot), &mut out).unwrap();
    assert_eq!((link.held().in_ring, link.held().queued), (8, 4));
    link.advance(Nanos(6 * TIME), &mut out);
    assert_eq!((link.held().in_ring, link.held().queued), (2, 4));
    link.advance(Nanos(7 * TIME), &mut out);
    assert_eq!((link.held().in_ring, link.held().queued), (2, 3));
    link.reconfigure(Nanos(7 * TIME), ring(4, Refill::WholeRing), &mut out).unwrap();
    assert_eq!((link.held().in_ring, link.held().queued), (4, 1));
    link.advance(Nanos(10 * TIME), &mut out);
    assert_eq!((link.held().in_ring, link.held().queued), (1, 1));
    link.advance(Nanos::SECOND, &mut out);
    assert_eq!(ids(&out), (0..12).collect::<Vec<_>>());
    assert_eq!(instants(&out), (1..=12).map(|n| n * TIME).collect::<Vec<_>>());
}

#[test]
fn pacing_can_be_turned_off_and_on() {
    let mut link = Link::new(ring(4, Refill::WholeRing), fifo(), 1).unwrap();
    let mut out = Out { room: 2, ..Out::default() };
    burst(&mut link, Nanos::ZERO, 8, &mut out);
    link.reconfigure(Nanos(10), LinkConfig::default(), &mut out).unwrap();
    // The ring goes first, as far as the port has room.
    assert_eq!(instants(&out), [10, 10]);
    assert_eq!((link.held().in_ring, link.held().queued), (2, 4));
    out.room = usize::MAX;
    link.reconfigure(Nanos(20), ring(4, Refill::AnySlot), &mut out).unwrap();
    assert_eq!((link.held().in_ring, link.held().queued), (4, 2));
    link.advance(Nanos::SECOND, &mut out);
    assert_eq!(ids(&out), (0..8).collect::<Vec<_>>());
    assert_eq!(instants(&out)[2..], [1, 2, 3, 4, 5, 6].map(|n| 20 + n * TIME));
    assert_conserved(&link, &out);
}

#[test]
fn what_a_full_port_left_in_the_ring_is_paced_again() {
    let mut link = Link::new(ring(4, Refill::AnySlot), fifo(), 1).unwrap();
    let mut out = Out { room: 0, ..Out::default() };
    burst(&mut link, Nanos::ZERO, 2, &mut out);
    link.reconfigure(Nanos(10), LinkConfig::default(), &mut out).unwrap();
    link.reconfigure(Nanos(20), ring(1, Refill::AnySlot), &mut out).unwrap();
    link.advance(Nanos::SECOND, &mut out);
    assert_eq!(instants(&out), [20 + TIME, 20 + 2 * TIME]);
}

#[test]
fn a_drained_link_gives_everything_back_and_works_again() {
    for refill in [Refill::AnySlot, Refill::WholeRing] {
        let mut link = Link::new(ring(4, refill), fifo(), 1).unwrap();
        let mut out = Out::default();
        burst(&mut link, Nanos::ZERO, 10, &mut out);
        link.drain(Nanos(TIME), Reason::LinkDown, &mut out);
        assert_eq!((out.sent.len(), out.dropped.len()), (1, 9));
        assert!(out.dropped.iter().all(|(at, _, r)| *at == Nanos(TIME) && *r == Reason::LinkDown));
        assert_eq!(link.next_wake(), None);
        assert_conserved(&link, &out);
        burst(&mut link, Nanos(2 * TIME), 1, &mut out);
        link.advance(Nanos::SECOND, &mut out);
        assert_eq!(instants(&out), [TIME, 3 * TIME]);
    }
}

#[test]
fn packets_of_unknown_classes_count_as_class_0() {
    let mut link = Link::new(LinkConfig::default(), fifo(), 2).unwrap();
    let mut out = Out::default();
    let _ = link.enqueue(Nanos::ZERO, packet(0, 900, IP_LEN, Nanos::ZERO), &mut out);
    assert_eq!(link.qostat().class(Class(0)).sent_packets, 1);
    assert_conserved(&link, &out);
}

#[test]
fn configurations_are_checked_at_both_ends_of_each_range() {
    type Change<'a> = &'a dyn Fn(&mut LinkConfig, u64);
    let good = LinkConfig {
        rate: Some(RATE),
        shaper: Some(ShaperConfig { rate: RATE, burst: Bytes(3_000) }),
        ..LinkConfig::default()
    };
    let with = |change: Change<'_>, value| {
        let mut config = good;
        change(&mut config, value);
        Link::new(config, fifo(), 1).map(|_| ())
    };
    let cases: [(&str, u64, u64, Change<'_>); 5] = [
        ("rate", 1_000, 1_000_000_000_000, &|c, v| c.rate = Some(BitRate(v))),
        ("ring.slots", 1, 4_096, &|c, v| c.ring.slots = v as u32),
        ("dequeue_time", 0, 1_000_000, &|c, v| c.dequeue_time = Nanos(v)),
        ("shaper.rate", 1_000, 1_000_000_000_000, &|c, v| {
            c.shaper.as_mut().unwrap().rate = BitRate(v);
        }),
        ("shaper.burst", 64, 1_000_000_000, &|c, v| c.shaper.as_mut().unwrap().burst = Bytes(v)),
    ];
    for (name, low, high, change) in cases {
        assert_eq!(with(change, low), Ok(()));
        assert_eq!(with(change, high), Ok(()));
        for wrong in [low.checked_sub(1), Some(high + 1)].into_iter().flatten() {
            // Keys of nested tables are named with their table.
            let refused = with(change, wrong).unwrap_err().to_string();
            assert!(refused.starts_with(&format!("{name}: ")), "{refused}");
        }
    }
    for classes in [0, LinkConfig::MAX_CLASSES + 1] {
        let error = Link::new(good, fifo(), classes).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("classes: {classes} classes is out of range; valid: 1 to 1024 classes")
        );
    }
    // A refused change leaves the link as it was.
    let mut link = Link::new(good, fifo(), 1).unwrap();
    let wrong = LinkConfig { rate: Some(BitRate(1)), ..good };
    assert!(link.reconfigure(Nanos::ZERO, wrong, &mut Out::default()).is_err());
    assert_eq!(link.config(), &good);
}

/// Gives one packet per tick: a discipline whose periodic work releases what waits.
struct Metronome {
    queue: std::collections::VecDeque<TestPacket>,
    ticks: Vec<Nanos>,
    allowed: usize,
}

impl Scheduler<TestPacket> for Metronome {
    fn enqueue(
        &mut self,
        _: Nanos,
        packet: TestPacket,
        _: &mut dyn DropSink<TestPacket>,
    ) -> Treated {
        self.queue.push_back(packet);
        Treated::Queued
    }
    fn dequeue(&mut self, _: Nanos, _: &mut dyn DropSink<TestPacket>) -> Option<TestPacket> {
        self.allowed = self.allowed.checked_sub(1)?;
        self.queue.pop_front()
    }
    fn next_wake(&self, now: Nanos) -> Option<Nanos> {
        (self.allowed > 0 && !self.queue.is_empty()).then_some(now)
    }
    fn tick(&mut self, now: Nanos) -> Option<Nanos> {
        self.ticks.push(now);
        self.allowed = 1;
        Some(now + Nanos::from_millis(1))
    }
    fn peek_len(&self, _: Nanos) -> Option<Bytes> {
        self.queue.front().filter(|_| self.allowed > 0).map(|p| p.ip_len)
    }
    fn set(&mut self, _: Nanos, change: &Change) -> Result<Wake, SettingError> {
        Err(SettingError::NoSuchSetting { key: change.key, of: "metronome" })
    }
    fn drain(&mut self, into: &mut dyn FnMut(TestPacket)) {
        self.queue.drain(..).for_each(into);
    }
    fn meters(&self) -> Meters {
        let packets = self.queue.len() as u64;
        Meters { backlog: Backlog { packets, bytes: Bytes::ZERO }, ..Meters::default() }
    }
    fn busy_queues(&self) -> usize {
        usize::from(!self.queue.is_empty())
    }
    fn class_backlog(&self, _: Class) -> Backlog {
        self.meters().backlog
    }
    fn name(&self) -> &'static str {
        "metronome"
    }
}

#[test]
fn periodic_work_is_done_at_its_times_and_may_release_packets() {
    let metronome = Metronome { queue: Default::default(), ticks: Vec::new(), allowed: 0 };
    let mut link = Link::new(LinkConfig::default(), metronome, 1).unwrap();
    let mut out = Out::default();
    // The first tick is when the link first hears the time.
    burst(&mut link, Nanos::from_millis(3), 3, &mut out);
    assert_eq!(link.next_wake(), Some(Nanos::from_millis(4)));
    link.advance(Nanos(5_500_000), &mut out);
    assert_eq!(link.scheduler().ticks, [3, 4, 5].map(Nanos::from_millis));
    assert_eq!(instants(&out), [3_000_000, 4_000_000, 5_000_000]);
}

/// Packets of class 0 become ones of class 1; those with an odd number are not wanted.
struct Picky;

impl Translate<TestPacket> for Picky {
    fn class(&self, class: Class) -> Class {
        Class(class.0 + 1)
    }

    fn packet(&mut self, mut packet: TestPacket) -> Result<TestPacket, (TestPacket, Reason)> {
        packet.class = self.class(packet.class);
        if packet.id % 2 == 1 { Err((packet, Reason::NoBuffer)) } else { Ok(packet) }
    }
}

#[test]
fn a_link_goes_on_where_the_one_it_takes_over_ended() {
    let mut link = Link::new(ring(4, Refill::AnySlot), fifo(), 1).unwrap();
    let mut out = Out::default();
    burst(&mut link, Nanos::ZERO, 12, &mut out);
    // Two and a half packets later: one is on the wire, three more in the ring.
    let now = Nanos(TIME * 5 / 2);
    let handover = link.hand_over(now, &mut out);
    assert_eq!(ids(&out), [0, 1]);
    let mut new = Link::new(ring(2, Refill::AnySlot), fifo(), 2).unwrap();
    new.take_over(now, handover, &mut Picky, &mut out);
    assert_eq!((new.held().in_ring, new.held().queued), (2, 3));
    let counted = new.qostat().class(Class(1));
    assert_eq!((counted.in_packets, counted.sent_packets), (12, 2));
    assert_eq!(counted.dropped[Reason::NoBuffer.index()], 5);
    assert_eq!(new.qostat().class(Class(0)).in_packets, 0);
    new.advance(Nanos::SECOND, &mut out);
    // In their order, the one on the wire from its beginning.
    assert_eq!(ids(&out), [0, 1, 2, 4, 6, 8, 10]);
    assert_eq!(instants(&out)[2..], [1, 2, 3, 4, 5].map(|n| now.0 + n * TIME));
    let counted = new.qostat().class(Class(1));
    assert_eq!((counted.sent_packets, counted.delay_max), (7, Nanos(instants(&out)[5] - TIME)));
    assert_eq!(new.held(), Held::default());
}

/// Packets that stay as they are.
struct Same;

impl Translate<TestPacket> for Same {
    fn class(&self, class: Class) -> Class {
        class
    }

    fn packet(&mut self, packet: TestPacket) -> Result<TestPacket, (TestPacket, Reason)> {
        Ok(packet)
    }
}

#[test]
fn a_link_goes_on_elsewhere_with_what_another_one_has_shown_and_that_one_could_go_on_too() {
    let mut link = Link::new(ring(4, Refill::AnySlot), fifo(), 1).unwrap();
    let mut out = Out::default();
    burst(&mut link, Nanos::ZERO, 12, &mut out);
    let now = Nanos(TIME * 5 / 2);
    let (mut in_ring, mut queued) = (Vec::new(), Vec::new());
    link.show(now, &mut out, &mut |_out, waits, packet: &TestPacket| {
        let list = if waits { &mut queued } else { &mut in_ring };
        list.push(packet.clone());
    });
    let shown = |packets: &[TestPacket]| packets.iter().map(|packet| packet.id).collect::<Vec<_>>();
    assert_eq!((shown(&in_ring), shown(&queued)), (vec![2, 3, 4, 5], (6..12).collect()));
    assert_eq!((link.held().in_ring, link.held().queued), (4, 6), "all of it stays");

    let mut elsewhere = Out::default();
    let mut new = Link::new(ring(4, Refill::AnySlot), fifo(), 1).unwrap();
    let handover = Handover::of_packets(now, in_ring, queued, 1);
    new.take_over(now, handover, &mut Same, &mut elsewhere);
    assert_eq!((new.held().in_ring, new.held().queued), (4, 6));
    for (link, out, before) in [(&mut link, &mut out, 2), (&mut new, &mut elsewhere, 0)] {
        link.advance(Nanos::SECOND, out);
        assert_eq!(ids(out)[before..], (2..12).collect::<Vec<_>>());
        let counted = link.qostat().class(Class(0));
        assert_eq!(counted.in_packets, counted.sent_packets, "nothing is lost or made");
        assert_eq!(link.held(), Held::default());
    }
    // The same delays: packets keep their stamps, the one on the wire begins again.
    let longest = |link: &Link<TestPacket, _>| link.qostat().class(Class(0)).delay_max;
    assert_eq!(longest(&new), longest(&link) + Nanos(TIME / 2));
}

#[test]
fn a_link_without_a_rate_that_takes_over_sends_when_its_port_has_room() {
    let mut link = Link::new(ring(4, Refill::WholeRing), fifo(), 1).unwrap();
    let mut out = Out::default();
    burst(&mut link, Nanos::ZERO, 6, &mut out);
    let handover = link.hand_over(Nanos(1), &mut out);
    let mut new = Link::new(LinkConfig::default(), fifo(), 2).unwrap();
    out.room = 0;
    new.take_over(Nanos(1), handover, &mut Picky, &mut out);
    assert_eq!(ids(&out), []);
    out.room = usize::MAX;
    new.advance(Nanos(2), &mut out);
    assert_eq!(ids(&out), [0, 2, 4]);
}
