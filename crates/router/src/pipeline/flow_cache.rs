//! What was decided for a flow, found again by a few bytes of the headers: class, outgoing port,
//! Ethernet addresses. The second packet of a flow is not looked up in rules, routes and neighbours
//! once more.
//!
//! ```text
//! bucket = hash(addresses, ports, protocol, DSCP, port received by)
//! place  = flow 16 | hash 8 | epoch 4 | class 2 | way 2                  32 bytes
//! guess  = place on the link's list 4 | among its queues 4, of each       8 bytes
//! way    = Ethernet addresses 12 | port 2 | MTU 2
//! ```
//!
//! A flow holds for the epoch of the tables that it was found out in. Whatever changes a table
//! begins a new epoch, and what was remembered before is looked up anew: stale, never wrong. Only
//! what is decided by these bytes and the tables alone is remembered: TCP and UDP in IPv4 without
//! options, tags and fragments, to a next hop whose address the kernel holds for fresh, without
//! service, cluster, or pinned path. Everything else goes the long way, each time.
//!
//! Beside each flow stands where the tables of its link found it last, so that they need not search
//! for it: guesses, which they hold against the whole key.
//!
//! Bounded: four places for each bucket, 4,096 ways, nothing is allocated. A place that holds
//! nothing is all zeros: memory is had for the buckets that flows come to, if the kernel has no
//! huge pages for all of them. A new flow takes a place that is stale or whose flow did not come
//! again. Where all did it is not remembered, and one of them has to come again to keep its place.
//! So a flood of flows of one packet each does not throw out the others. The hash is seeded.
//!
//! What is found for the packets of a vector is copied, and not looked at again while they are
//! forwarded: what is found out meanwhile may take any place.

use std::cell::Cell;

use evenkeel_core::packet::{Ecn, Places};
use evenkeel_core::schedule::tree::UNKNOWN;
use evenkeel_core::{Class, read_ahead};
use evenkeel_net::hash::FlowHasher;
use evenkeel_net::usual::{Usual, UsualFlow};
use evenkeel_net::{MacAddr, PortIndex};
use evenkeel_ports::Frame;
use evenkeel_ports::zeroed::Zeroed;
use zerocopy::FromZeros;

use super::parsed::Parsed;

/// The places of a bucket.
const PLACES: usize = 4;
/// Ways that can be remembered: pairs of a next hop and what it takes whole.
const WAYS: usize = 4_096;
/// Ways that the search for one looks at.
const SEARCH: usize = 8;

/// How the packets of a flow go on.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Way {
    /// Destination and source, as a frame begins with them.
    pub(super) stations: [u8; 12],
    /// The outgoing port.
    pub(super) port: u16,
    /// The longest IP packet that goes there whole.
    pub(super) mtu: u16,
}

impl Way {
    pub(super) fn new(port: usize, mtu: u32, source: MacAddr, destination: MacAddr) -> Self {
        let mut stations = [0; 12];
        stations[..6].copy_from_slice(&destination.0);
        stations[6..].copy_from_slice(&source.0);
        Self { stations, port: port as u16, mtu: mtu.min(u16::MAX.into()) as u16 }
    }

    /// Whether it takes a packet.
    #[inline]
    pub(super) const fn takes(&self, probe: &Probe) -> bool {
        probe.ttl > 1 && probe.ip_len <= self.mtu
    }
}

/// A flow, and what was found out of it.
#[derive(Debug, FromZeros)]
struct Place {
    /// The words of the flow, with the port it is received by.
    flow: (u64, u64),
    hash: u64,
    /// Of the tables; 0: there is no flow.
    epoch: u32,
    class: u16,
    /// Its number; [`CAME`]: a packet came since the place was taken, or asked for last. Looking
    /// for a flow notes that it came.
    way: Cell<u16>,
}

/// See [`Place::way`].
const CAME: u16 = 1 << 15;

/// Two lines of the cache.
#[derive(Debug, FromZeros)]
#[repr(align(128))]
struct Bucket([Place; PLACES]);

/// Of the flows of a bucket: half a line of the cache.
#[derive(Debug, FromZeros)]
#[repr(align(32))]
struct Guesses([Guess; PLACES]);

/// [`Places`]: listed, queue. Zeros, as at the start, are a guess that is wrong, most likely.
#[derive(Debug, FromZeros)]
struct Guess(Cell<[u32; 2]>);

impl Guess {
    #[inline]
    fn get(&self) -> Places {
        let [listed, queue] = self.0.get();
        Places { listed, queue }
    }

    #[inline]
    fn set(&self, Places { listed, queue }: Places) {
        self.0.set([listed, queue]);
    }
}

/// A packet whose flow may be known, and what is known of it once it has been
/// [found](Finder::find).
#[derive(Clone, Copy, Debug)]
pub(super) struct Probe {
    pub(super) flow: UsualFlow,
    pub(super) hash: u64,
    bucket: u32,
    /// Where tables found it last.
    pub(super) places: Places,
    pub(super) class: Class,
    /// The number of its way.
    pub(super) way: u16,
    /// Whose the packet is, on the way to a link with a tree of subscribers.
    pub(super) subscriber: u32,
    /// Its place in the bucket.
    at: u8,
    pub(super) ip_len: u16,
    pub(super) ttl: u8,
    pub(super) ecn: Ecn,
}

impl Probe {
    /// Whether its flow was found.
    #[inline]
    pub(super) const fn is_found(&self) -> bool {
        self.way != NO_WAY
    }
}

/// The number of no way.
const NO_WAY: u16 = u16::MAX;

/// See the module.
pub(crate) struct FlowCache {
    /// None: nothing is remembered.
    buckets: Zeroed<Bucket>,
    /// As many.
    guesses: Zeroed<Guesses>,
    /// Whether there is any guess: where no link looks for flows nobody reads them.
    has_guesses: Cell<bool>,
    /// With the epoch that they were found out in.
    ways: Box<[(Way, u32)]>,
    hasher: FlowHasher,
    epoch: u32,
    /// The epoch that flows were looked for in last.
    looked: u32,
    /// The place of a bucket that a new flow asks for first.
    turn: usize,
}

/// Buckets for so many flows.
const fn buckets(flows: u32) -> usize {
    match flows {
        0 => 0,
        flows => (flows as usize).next_power_of_two().div_ceil(PLACES),
    }
}

impl FlowCache {
    /// Room for so many flows, rounded up to a power of two; 0: none.
    pub(super) fn new(flows: u32, seed: u64) -> Self {
        let ways = if flows == 0 { 0 } else { WAYS };
        Self {
            buckets: Zeroed::new(buckets(flows)),
            guesses: Zeroed::new(buckets(flows)),
            has_guesses: Cell::new(false),
            ways: vec![(Way::default(), 0); ways].into_boxed_slice(),
            hasher: FlowHasher::new(seed),
            epoch: 1,
            looked: 0,
            turn: 0,
        }
    }

    /// Memory of a cache for so many flows, bytes.
    pub(crate) const fn memory(flows: u32) -> u64 {
        let ways = if flows == 0 { 0 } else { WAYS * size_of::<(Way, u32)>() };
        let bucket = size_of::<Bucket>() + size_of::<Guesses>();
        (buckets(flows) * bucket + ways) as u64
    }

    #[inline]
    pub(super) fn is_on(&self) -> bool {
        !self.buckets.is_empty()
    }

    /// What was remembered holds no longer: a table has changed.
    pub(super) fn begin_epoch(&mut self) {
        self.epoch = self.epoch.checked_add(1).unwrap_or_else(|| {
            // What was remembered as many epochs ago must not hold again.
            self.buckets.zero();
            self.ways.fill((Way::default(), 0));
            1
        });
    }

    /// Where the flow of a frame may be found, if it is one that can be remembered; what is there
    /// is on its way from memory.
    #[inline(always)] // what is found out is in registers
    pub(super) fn probe(&self, bytes: &[u8], frame: &Frame, port: PortIndex) -> Option<Probe> {
        if !frame.is_plain() {
            return None;
        }
        let Usual { flow, ip_len, ttl, ecn } = Usual::of(bytes)?;
        let flow = flow.received_by(port);
        let bucket = self.bucket(flow);
        read_ahead(&self.buckets, bucket);
        if self.has_guesses.get() {
            read_ahead(&self.guesses, bucket);
        }
        let (bucket, hash, class, at) = (bucket as u32, 0, Class(0), 0);
        let (places, way, subscriber) = (Places::UNKNOWN, NO_WAY, UNKNOWN);
        Some(Probe { flow, hash, bucket, places, class, way, subscriber, at, ip_len, ttl, ecn })
    }

    #[inline]
    fn bucket(&self, flow: UsualFlow) -> usize {
        self.hasher.words(flow.words()) as usize & (self.buckets.len() - 1)
    }

    /// [Finds](Finder::find) the flows of a vector.
    #[inline(never)] // so that it has the registers for itself
    pub(super) fn find_all(&self, parsed: &mut [Parsed]) -> Found {
        let finder = self.finder();
        let mut found = Found { known: 0, others: 0, ways: (u16::MAX, 0) };
        for parsed in parsed {
            let Parsed::Known(probe) = parsed else {
                found.others += 1;
                continue;
            };
            if finder.find(probe) {
                found.add(probe.way);
            }
        }
        found
    }

    /// [Finds](Finder::find) the flow of a packet.
    #[inline(always)] // as above
    pub(super) fn find(&self, probe: &mut Probe) -> bool {
        self.finder().find(probe)
    }

    #[inline]
    fn finder(&self) -> Finder<'_> {
        let guesses = if self.has_guesses.get() { &self.guesses[..] } else { &[] };
        Finder { buckets: &self.buckets, guesses, epoch: self.epoch }
    }

    /// Where the tables of its link have the flow of a packet that was [found](Finder::find). It
    /// need not be true: also of a flow whose place another has taken meanwhile.
    #[inline]
    pub(super) fn note(&self, probe: &Probe, places: Places) {
        if probe.places != places
            && let Some(Guesses(guesses)) = self.guesses.get(probe.bucket as usize)
        {
            self.has_guesses.set(true);
            guesses.get(usize::from(probe.at)).into_iter().for_each(|guess| guess.set(places));
        }
    }

    /// Whether what was found in this vector still holds.
    #[inline]
    pub(super) const fn holds(&self) -> bool {
        self.looked == self.epoch
    }

    /// The outgoing port of a way.
    #[inline]
    pub(super) fn port(&self, way: u16) -> usize {
        self.way_of(way).port.into()
    }

    /// The way of a packet that was [found](Finder::find); `None`: it does not take this packet.
    #[inline]
    pub(super) fn way(&self, probe: &Probe) -> Option<&Way> {
        let way = self.way_of(probe.way);
        way.takes(probe).then_some(way)
    }

    /// The way of a number.
    #[inline]
    pub(super) fn way_of(&self, way: u16) -> &Way {
        &self.ways[usize::from(way) % WAYS].0
    }

    /// Remembers where the packets go that look like this one.
    #[cold]
    pub(super) fn remember(&mut self, flow: UsualFlow, (class, hash): (Class, u64), way: Way) {
        if let Some(way) = self.number(way) {
            let _ = self.take_in(self.bucket(flow), flow, (class, hash), way);
        }
    }

    /// The same, of a packet whose flow was looked for in vain, by the [number](Self::number) of
    /// its way: it is found now.
    #[inline]
    pub(super) fn learn(&mut self, probe: &mut Probe, (class, hash): (Class, u64), way: u16) {
        (probe.class, probe.hash, probe.way) = (class, hash, way);
        let at = self.take_in(probe.bucket as usize, probe.flow, (class, hash), way);
        // Where every place is another's the flow has none, and there is none to note.
        probe.at = at.map_or(PLACES as u8, |at| at as u8);
    }

    /// The flows of a vector are going to be looked for.
    #[inline]
    pub(super) const fn begin_vector(&mut self) {
        self.looked = self.epoch;
    }

    /// Puts a flow into its bucket, with what is remembered of it; the place that it has there, if
    /// it has one.
    #[inline(always)] // what is remembered is in registers
    fn take_in(
        &mut self,
        bucket: usize,
        flow: UsualFlow,
        (class, hash): (Class, u64),
        way: u16,
    ) -> Option<usize> {
        let (flow, epoch) = (flow.words(), self.epoch);
        let (Bucket(places), turn) = (self.buckets.get_mut(bucket)?, &mut self.turn);
        let present = places.iter().position(|place| place.flow == flow);
        let stale = || places.iter().position(|place| place.epoch != epoch);
        let idle = || {
            *turn = (*turn + 1) % PLACES;
            let is_idle = |at: &usize| places[*at].way.get() & CAME == 0;
            (*turn..*turn + PLACES).map(|at| at % PLACES).find(is_idle)
        };
        let Some(at) = present.or_else(stale).or_else(idle) else {
            *places[*turn].way.get_mut() &= !CAME;
            return None;
        };
        // A flow that a change of some table made stale is where it was, most likely.
        if self.has_guesses.get() && places[at].flow != flow {
            self.guesses[bucket].0[at].set(Places::UNKNOWN);
        }
        places[at] = Place { flow, hash, epoch, class: class.0, way: Cell::new(way) };
        Some(at)
    }

    /// The number of a way; `None`: too many are remembered in this epoch.
    pub(super) fn number(&mut self, way: Way) -> Option<u16> {
        let words = way.stations.as_chunks::<4>().0;
        let [a, b, c] = [words[0], words[1], words[2]].map(u32::from_ne_bytes);
        let about = u64::from(c) << 32 | u64::from(way.port) << 16 | u64::from(way.mtu);
        let first = self.hasher.words((u64::from(a) << 32 | u64::from(b), about)) as usize;
        for at in (first..first + SEARCH).map(|at| at % WAYS) {
            let (held, epoch) = &mut self.ways[at];
            if *epoch != self.epoch {
                (*held, *epoch) = (way, self.epoch);
            }
            if *held == way {
                return Some(at as u16);
            }
        }
        None
    }
}

/// What was found of the flows of a vector.
pub(super) struct Found {
    /// Packets whose flow is known, and those of which none can be.
    pub(super) known: usize,
    pub(super) others: usize,
    /// The least and the greatest number of their ways.
    pub(super) ways: (u16, u16),
}

impl Found {
    /// The flow of another packet is known, which goes by this way.
    #[inline]
    pub(super) fn add(&mut self, way: u16) {
        self.known += 1;
        let (least, most) = self.ways;
        self.ways = (way.min(least), way.max(most));
    }
}

/// Finds flows in a [`FlowCache`].
struct Finder<'a> {
    buckets: &'a [Bucket],
    /// None where nobody reads them.
    guesses: &'a [Guesses],
    epoch: u32,
}

impl Finder<'_> {
    /// Finds the flow of a packet, if its way was found out before; whether it was. The flow keeps
    /// its place. What is found [holds](FlowCache::holds) for the packets of a vector.
    #[inline(always)] // as above
    fn find(&self, probe: &mut Probe) -> bool {
        let Some(Bucket(places)) = self.buckets.get(probe.bucket as usize) else { return false };
        let flow = probe.flow.words();
        let holds = |place: &Place| place.flow == flow && place.epoch == self.epoch;
        let Some((at, place)) = places.iter().enumerate().find(|(_, place)| holds(place)) else {
            return false;
        };
        probe.at = at as u8;
        if let Some(Guesses(guesses)) = self.guesses.get(probe.bucket as usize) {
            probe.places = guesses[at].get();
        }
        let way = place.way.get() & !CAME;
        place.way.set(way | CAME);
        (probe.hash, probe.class, probe.way) = (place.hash, Class(place.class), way);
        true
    }
}

#[cfg(test)]
mod tests {
    use evenkeel_ports::FramePool;

    use super::*;

    /// A frame of one of many flows.
    fn frame(flow: u16) -> Vec<u8> {
        let mut frame = vec![0; 60];
        frame[12..16].copy_from_slice(&[0x08, 0, 0x45, 0]);
        frame[17] = 46;
        (frame[22], frame[23], frame[26], frame[30]) = (64, 17, 10, 11);
        frame[34..36].copy_from_slice(&flow.to_be_bytes());
        let sum = evenkeel_net::checksum::sum(&frame[14..34]).checksum();
        frame[24..26].copy_from_slice(&sum.to_be_bytes());
        frame
    }

    struct Bed {
        cache: FlowCache,
        pool: FramePool,
    }

    impl Bed {
        fn new(flows: u32) -> Self {
            Self { cache: FlowCache::new(flows, 1), pool: FramePool::new(1) }
        }

        /// A packet comes; whether its way was known. It is remembered in any case.
        fn comes(&mut self, flow: u16, port: PortIndex) -> bool {
            self.cache.begin_vector();
            let bytes = frame(flow);
            let held = self.pool.alloc_from(&bytes).unwrap();
            let mut probe = self.cache.probe(&bytes, &held, port).unwrap();
            self.pool.release(held);
            if self.cache.find(&mut probe) {
                let way = self.cache.way(&probe).unwrap();
                assert_eq!((way.port, probe.hash), (flow % 3, u64::from(flow)));
                assert_eq!(self.cache.port(probe.way), usize::from(flow % 3));
                return true;
            }
            let way = Way { mtu: 1500, port: flow % 3, ..Way::default() };
            let known = (Class(0), u64::from(flow));
            if flow.is_multiple_of(2) {
                self.cache.remember(probe.flow, known, way);
            } else {
                let way = self.cache.number(way).unwrap();
                self.cache.learn(&mut probe, known, way);
                assert!(probe.is_found());
            }
            false
        }
    }

    #[test]
    fn a_flow_is_known_from_its_second_packet_on_by_the_port_it_came_by() {
        let mut bed = Bed::new(64);
        let (here, there) = (PortIndex(3), PortIndex(4));
        assert_eq!([(); 3].map(|()| bed.comes(7, here)), [false, true, true]);
        assert!(!bed.comes(7, there) && bed.comes(7, there) && bed.comes(7, here));
        bed.cache.begin_epoch();
        assert!(!bed.comes(7, here) && bed.comes(7, here));
    }

    #[test]
    fn what_was_known_2_to_the_32_epochs_ago_is_not_known_again() {
        let mut bed = Bed::new(64);
        assert!(!bed.comes(7, PortIndex(0)) && bed.comes(7, PortIndex(0)));
        bed.cache.epoch = u32::MAX;
        bed.cache.begin_epoch();
        assert_eq!(bed.cache.epoch, 1);
        assert!(!bed.comes(7, PortIndex(0)));
    }

    #[test]
    fn a_flood_of_flows_of_one_packet_does_not_throw_out_the_others() {
        let mut bed = Bed::new(256);
        let port = PortIndex(0);
        let (mut known, mut asked) = (0, 0);
        for flow in 0..50_000_u16 {
            // A tenth as many flows as there are places, each with every 10th packet.
            let regular = 60_000 + flow / 10 % 26;
            if flow % 10 == 0 {
                asked += 1;
                known += u32::from(bed.comes(regular, port));
            } else {
                bed.comes(flow, port);
            }
        }
        assert!(known * 100 > asked * 95, "{known} of {asked}");
    }

    #[test]
    fn without_room_nothing_is_remembered() {
        assert!(!FlowCache::new(0, 1).is_on() && FlowCache::new(1, 1).is_on());
        assert_eq!(
            (FlowCache::memory(0), FlowCache::memory(60_000)),
            (0, 65_536 * 40 + 4_096 * 20)
        );
    }
}
