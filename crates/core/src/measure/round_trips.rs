//! Round trips over a line, seen by who only passes packets on: something in a packet that leaves
//! comes back in one that arrives.
//!
//! Source: RFC 7323, section 3 (a receiver echoes the time stamps of TCP), measured in the middle
//! as K. Nichols' pping does; requests and replies of ICMP's echo likewise. Data of TCP by its
//! sequence numbers (RFC 9293): receivers answer every second packet and echo the stamp of the
//! first (RFC 7323, 4.3), so that a stamp comes back later by what the two are apart, which of slow
//! flows is more than what waits. The acknowledgement that names the last byte of a packet is the
//! answer to that packet, unless it echoes a younger stamp: then the packet lay behind a gap, or
//! was sent twice. Where it names one packet alone, its sender may have waited for a second one
//! ([`RoundTrip::late`]).
//!
//! | symbol | here | unit |
//! |---|---|---|
//! | TSval, TSecr; identifier and number of an echo | [`Stamp::value`] | – |
//! | SEG.SEQ + SEG.LEN, SEG.ACK | [`Stamp::number`] | – |
//! | round trip | [`RoundTrip::rtt`] | time |
//! | shortest round trip to the host of late | `Host::base` | time |
//! | what waits on the line, in its time | [`RoundTrip::above`] | time |
//!
//! The first packet of a flow that carries a stamp is remembered, and the first one that brings it
//! back ends the trip; of data two packets in a row, as one of them is answered at once. Each host
//! has its own distance: the shortest trip to it in the last one to two minutes. A host that is met
//! while packets wait on the line gets what others wait taken off, so that a queue is not taken for
//! distance.
//!
//! Bounded: [`FLOWS`] flows with [`PENDING`] stamps each, at least [`SPACING`] apart, and [`HOSTS`]
//! hosts, all by hashes that nobody outside can steer. A flow that finds its place taken by another
//! that was heard lately has to wait until that has been measured for [`TURN`]; the distance of a
//! host whose place is taken is not known. Constant time per packet; no allocation after
//! construction.

use alloc::boxed::Box;
use alloc::vec;

use crate::units::Nanos;

/// Flows that are measured at once.
pub const FLOWS: usize = 1_024;
/// Stamps of a flow that are under way.
pub const PENDING: usize = 8;
/// Time between two of them.
pub const SPACING: Nanos = Nanos::from_millis(8);
/// So long a flow keeps a place that another one asks for, once it has been measured.
pub const TURN: Nanos = Nanos::SECOND;
/// Hosts whose distance is known.
pub const HOSTS: usize = 512;

/// A place that was not used for so long is free. Longer trips are none.
const FORGOTTEN: Nanos = Nanos::from_secs(5);
/// Stamps that have been under way for so long make room if none is left: they are lost.
const LOST: Nanos = Nanos::from_secs(2);
/// The shortest trip is that of this window and of the one before.
const WINDOW: Nanos = Nanos::from_secs(60);
/// What waits on the line is known for so long.
const LATELY: Nanos = Nanos::SECOND;

/// What comes back.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Stamp {
    /// Hash of the flow: the same in both directions.
    pub flow: u64,
    /// Hash of the host at the other end of the line.
    pub host: u64,
    /// What is echoed.
    pub value: u32,
    /// Of TCP: the sequence number after the data of a packet that leaves, and `None` if it has
    /// none; what a packet that comes acknowledges.
    pub number: Option<u32>,
    /// Bytes of data before that number.
    pub data: u32,
}

/// A packet went and came back.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct RoundTrip {
    /// [`Stamp::host`].
    pub host: u64,
    /// When it left.
    pub sent: Nanos,
    /// How long it took.
    pub rtt: Nanos,
    /// How much longer than the shortest one of late to this host; `None`: there is no room to
    /// remember that one.
    pub above: Option<Nanos>,
    /// Bytes that had left before it.
    pub bytes: u64,
    /// Whether the answer may have waited for a second packet of data (RFC 9293, 3.8.6.3).
    pub late: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Pending {
    value: u32,
    /// What acknowledges it; else what echoes `value` ends the trip.
    number: Option<u32>,
    data: u32,
    sent: Nanos,
    bytes: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Flow {
    hash: u64,
    used: Nanos,
    /// When it came by its place, and whether a trip of it was measured there.
    since: Nanos,
    measured: bool,
    /// When a stamp was noted last; of data, that of the first of two packets in a row.
    noted: Nanos,
    /// The next packet of data is the second of them.
    second: bool,
    /// What was acknowledged last.
    acknowledged: Option<u32>,
    /// In the order in which they left.
    waiting: [Pending; PENDING],
    under_way: u8,
}

#[derive(Clone, Copy, Debug)]
struct Host {
    hash: u64,
    used: Nanos,
    /// When this window began, and the shortest trips of it and of the one before.
    since: Nanos,
    shortest: [Nanos; 2],
}

impl Host {
    const FREE: Self =
        Self { hash: 0, used: Nanos::ZERO, since: Nanos::ZERO, shortest: [Nanos::MAX; 2] };

    fn base(&self) -> Nanos {
        self.shortest[0].min(self.shortest[1])
    }
}

/// See the module.
#[derive(Clone, Debug)]
pub struct RoundTrips {
    flows: Box<[Flow]>,
    hosts: Box<[Host]>,
    /// What waits on the line, smoothed, and when that was known.
    standing: Nanos,
    known: Nanos,
    /// Trips that were measured.
    count: u64,
}

impl Default for RoundTrips {
    fn default() -> Self {
        Self {
            flows: vec![Flow::default(); FLOWS].into_boxed_slice(),
            hosts: vec![Host::FREE; HOSTS].into_boxed_slice(),
            standing: Nanos::ZERO,
            known: Nanos::ZERO,
            count: 0,
        }
    }
}

impl RoundTrips {
    /// Trips that were measured so far.
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// A packet that carries a stamp leaves at `at`, after `bytes` of others.
    pub fn sent(&mut self, at: Nanos, stamp: Stamp, bytes: u64) {
        let flow = &mut self.flows[stamp.flow as usize % FLOWS];
        if flow.hash != stamp.flow {
            let had_its_turn = flow.measured && flow.since + TURN <= at;
            if flow.used.0 > 0 && flow.used + FORGOTTEN > at && !had_its_turn {
                return;
            }
            *flow = Flow { hash: stamp.flow, since: at, ..Flow::default() };
        }
        let mut under_way = usize::from(flow.under_way);
        if under_way == PENDING && flow.waiting[0].sent + LOST < at {
            under_way = 0;
        }
        let Stamp { value, number, data, .. } = stamp;
        let same = |one: &Pending| match number {
            Some(_) => one.number == number,
            None => one.number.is_none() && one.value == value,
        };
        let second = flow.second && number.is_some();
        let soon = flow.noted.0 > 0 && flow.noted + SPACING > at && !second;
        if soon || under_way == PENDING || flow.waiting[..under_way].iter().any(same) {
            return;
        }
        flow.waiting[under_way] = Pending { value, number, data, sent: at, bytes };
        flow.noted = if second { flow.noted } else { at };
        flow.second = number.is_some() && !second;
        (flow.used, flow.under_way) = (at, under_way as u8 + 1);
    }

    /// A packet that brings a stamp back arrives at `at`. Only the first one says how long it took.
    pub fn came(&mut self, at: Nanos, stamp: Stamp) -> Option<RoundTrip> {
        let flow = &mut self.flows[stamp.flow as usize % FLOWS];
        if flow.hash != stamp.flow {
            return None;
        }
        let before = flow.acknowledged;
        flow.acknowledged = stamp.number.or(before);
        let waiting = &mut flow.waiting[..usize::from(flow.under_way)];
        let back = waiting.iter().position(|one| match (one.number, stamp.number) {
            (None, _) => one.value == stamp.value,
            (Some(number), Some(acknowledged)) => is_at_most(number, acknowledged),
            (Some(_), None) => false,
        })?;
        // Of data the last packet that is acknowledged.
        let back = match (waiting[back].number, stamp.number) {
            (Some(_), Some(acknowledged)) => {
                let is = |one: &Pending| one.number.is_some_and(|n| is_at_most(n, acknowledged));
                waiting.iter().rposition(is).unwrap_or(back)
            }
            _ => back,
        };
        let Pending { value, number, data, sent, bytes } = waiting[back];
        // Those that left before it are lost, or were passed.
        waiting.rotate_left(back + 1);
        flow.under_way -= back as u8 + 1;
        if number.is_some() && (number != stamp.number || !is_at_most(stamp.value, value)) {
            return None;
        }
        let alone = |end: u32| before.is_none_or(|all| is_at_most(end.wrapping_sub(data), all));
        let late = number.is_some_and(alone);
        let rtt = at.saturating_sub(sent);
        if rtt > FORGOTTEN {
            return None;
        }
        flow.measured = true;
        let above = self.base(at, stamp.host, rtt).map(|base| rtt.saturating_sub(base));
        if let Some(above) = above.filter(|_| !late) {
            self.standing = Nanos((7 * self.standing.0 + above.0) / 8);
            self.known = at;
        }
        self.count += 1;
        Some(RoundTrip { host: stamp.host, sent, rtt, above, bytes, late })
    }

    /// The distance of a host, of which a trip has just been measured. `None`: there is no room for
    /// it.
    fn base(&mut self, at: Nanos, hash: u64, rtt: Nanos) -> Option<Nanos> {
        let host = &mut self.hosts[hash as usize % HOSTS];
        let is_new = host.hash != hash || host.since.0 == 0 || host.used + WINDOW * 2 < at;
        if is_new {
            if host.hash != hash && host.since.0 > 0 && host.used + FORGOTTEN > at {
                return None;
            }
            let waits = if self.known + LATELY > at { self.standing } else { Nanos::ZERO };
            // At least a part of it is distance.
            let base = rtt.saturating_sub(waits).max(Nanos(rtt.0 / 8));
            *host = Host { hash, since: at.max(Nanos(1)), shortest: [base; 2], used: at };
        } else if host.since + WINDOW <= at {
            host.shortest = [Nanos::MAX, host.shortest[0]];
            host.since = at;
        }
        host.used = at;
        host.shortest[0] = host.shortest[0].min(rtt);
        Some(host.base())
    }
}

/// Whether a number that wraps is not after another one.
fn is_at_most(number: u32, other: u32) -> bool {
    other.wrapping_sub(number) < 1 << 31
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    const MS: u64 = 1_000_000;

    fn stamp(flow: u64, value: u32) -> Stamp {
        Stamp { flow, host: 7, value, number: None, data: 0 }
    }

    #[test]
    fn the_first_that_goes_and_the_first_that_comes_make_a_trip() {
        let mut trips = RoundTrips::default();
        trips.sent(Nanos(MS), stamp(1, 40), 1_000);
        // The same stamp again, and one that comes too soon after it.
        trips.sent(Nanos(2 * MS), stamp(1, 40), 2_000);
        trips.sent(Nanos(3 * MS), stamp(1, 42), 3_000);
        assert_eq!(trips.came(Nanos(20 * MS), stamp(1, 42)), None);
        assert_eq!(trips.came(Nanos(20 * MS), stamp(2, 40)), None, "another flow");
        let trip = trips.came(Nanos(21 * MS), stamp(1, 40)).unwrap();
        assert_eq!((trip.rtt, trip.above, trip.bytes), (Nanos(20 * MS), Some(Nanos::ZERO), 1_000));
        assert_eq!(trips.came(Nanos(22 * MS), stamp(1, 40)), None, "it has come back");
        trips.sent(Nanos(30 * MS), stamp(1, 50), 0);
        assert_eq!(trips.came(Nanos(75 * MS), stamp(1, 50)).unwrap().above, Some(Nanos(25 * MS)));
        assert_eq!(trips.count(), 2);
    }

    fn data(value: u32, number: u32) -> Stamp {
        Stamp { number: Some(number), data: 1_000, ..stamp(1, value) }
    }

    /// Every second packet is answered, with the stamp of the first, and the two are 30 ms apart.
    #[test]
    fn data_is_answered_by_what_names_its_last_byte() {
        for odd in [0, 1] {
            let mut trips = RoundTrips::default();
            let mut seen = Vec::new();
            for n in 0..40u32 {
                let at = u64::from(n) * 30 + 1;
                // Stamps and numbers that wrap.
                let stamp = |n: u32| data(n.wrapping_sub(7), (n * 1_000).wrapping_sub(20_000));
                trips.sent(Nanos(at * MS), stamp(n), u64::from(n));
                if n % 2 == odd && n > 0 {
                    let answer = Stamp { value: stamp(n - 1).value, ..stamp(n) };
                    seen.extend(trips.came(Nanos((at + 20) * MS), answer));
                }
            }
            assert!(seen.len() > 15, "{}", seen.len());
            for trip in &seen {
                assert_eq!((trip.rtt, trip.above), (Nanos(20 * MS), Some(Nanos::ZERO)), "{trip:?}");
            }
            assert!(seen[1..].iter().all(|trip| !trip.late), "{seen:?}");
        }
    }

    /// One packet at a time is answered when the receiver is tired of waiting for another.
    #[test]
    fn what_is_acknowledged_alone_may_be_late() {
        let mut trips = RoundTrips::default();
        for n in 1..9u32 {
            let at = Nanos(u64::from(n) * 100 * MS);
            trips.sent(at, data(n, n * 1_000), 0);
            let trip = trips.came(at + Nanos(60 * MS), data(n, n * 1_000)).unwrap();
            assert!(trip.late, "{trip:?}");
        }
    }

    /// A packet that lay behind a gap, and one that was sent twice, say nothing; what they leave
    /// behind is gone.
    #[test]
    fn what_is_acknowledged_late_or_was_sent_twice_makes_no_trip() {
        let mut trips = RoundTrips::default();
        trips.sent(Nanos(MS), data(10, 1_000), 0);
        trips.sent(Nanos(2 * MS), data(11, 2_000), 0);
        // The first was lost, and is sent again with a younger stamp.
        trips.sent(Nanos(60 * MS), data(70, 1_000), 0);
        assert_eq!(trips.came(Nanos(90 * MS), data(70, 2_000)), None);
        trips.sent(Nanos(100 * MS), data(100, 3_000), 0);
        trips.sent(Nanos(101 * MS), data(101, 4_000), 0);
        // More than what is remembered is acknowledged: nobody knows what was answered.
        assert_eq!(trips.came(Nanos(120 * MS), data(101, 9_000)), None);
        trips.sent(Nanos(130 * MS), data(130, 10_000), 5);
        let trip = trips.came(Nanos(150 * MS), data(130, 10_000)).unwrap();
        assert_eq!((trip.rtt, trip.bytes), (Nanos(20 * MS), 5));
    }

    #[test]
    fn a_host_met_behind_a_queue_is_not_taken_for_far() {
        let mut trips = RoundTrips::default();
        for n in 0..40 {
            let (at, wait) = (n * 100 * MS, if n < 5 { 20 } else { 120 });
            trips.sent(Nanos(at), stamp(1, n as u32), 0);
            let _ = trips.came(Nanos(at + wait * MS), stamp(1, n as u32));
        }
        // 30 ms away, behind the 100 ms that others wait.
        let other = Stamp { flow: 2, host: 8, value: 1, number: None, data: 0 };
        trips.sent(Nanos(4_030 * MS), other, 0);
        let trip = trips.came(Nanos(4_160 * MS), other).unwrap();
        assert!((80 * MS..=110 * MS).contains(&trip.above.unwrap().0), "{trip:?}");
    }

    #[test]
    fn distance_is_forgotten_after_two_windows_and_trips_of_many_seconds_are_none() {
        let mut trips = RoundTrips::default();
        let mut ask = |at: u64, took: u64| {
            trips.sent(Nanos(at * MS), stamp(1, at as u32), 0);
            trips
                .came(Nanos((at + took) * MS), stamp(1, at as u32))
                .map(|trip| trip.above.unwrap().0 / MS)
        };
        assert_eq!(ask(1, 10), Some(0));
        // The way is longer now.
        assert_eq!(ask(30_000, 50), Some(40));
        assert_eq!(ask(61_000, 50), Some(40));
        assert_eq!(ask(122_000, 50), Some(0));
        assert_eq!(ask(123_000, 5_001), None);
    }

    /// A flood of flows and hosts takes no place from those that are heard, and no memory.
    #[test]
    fn whoever_is_heard_keeps_its_place() {
        let mut trips = RoundTrips::default();
        let mine = Stamp { flow: 5, host: 5, value: 0, number: None, data: 0 };
        for n in 0..20_000u64 {
            let at = Nanos(n * MS);
            let other =
                Stamp { flow: n * 3 + 1, host: n * 7 + 1, value: n as u32, number: None, data: 0 };
            trips.sent(at, other, 0);
            let _ = trips.came(at + Nanos(MS), other);
            if n % 10 == 0 {
                let mine = Stamp { value: n as u32, ..mine };
                trips.sent(at, mine, 0);
                let trip = trips.came(at + Nanos(10 * MS), mine);
                assert!(n > 100 || trip.is_some(), "{n}");
            }
        }
        assert!(trips.count() > 2_000);
    }
}
