//! What was decided for a flow, found again by a few bytes of the headers: class, outgoing port,
//! Ethernet addresses. The second packet of a flow is not looked up in rules, routes and neighbours
//! once more.
//!
//! ```text
//! bucket = hash(addresses, ports, protocol, DSCP, port received by)
//!          ┌ first place: a flow that came again ┬ second place: the newest flow ┐
//! ```
//!
//! An entry holds for the epoch of the tables that it was made in. Whatever changes a table begins
//! a new epoch, and what was remembered before is looked up anew: stale, never wrong. Only what is
//! decided by these bytes and the tables alone is remembered: TCP and UDP in IPv4 without options,
//! tags and fragments, to a next hop whose address the kernel holds for fresh, without service,
//! cluster, or pinned path. Everything else goes the long way, each time.
//!
//! Bounded: two places for each bucket, nothing is allocated. New flows take the second place, and
//! are moved to the first if they come again and who is there did not since the last try; so a
//! flood of flows of one packet each does not throw out the others. The hash is seeded.

use evenkeel_core::flow_table::PackedFlow;
use evenkeel_core::{Class, read_ahead};
use evenkeel_net::hash::FlowHasher;
use evenkeel_net::usual::{Usual, UsualFlow};
use evenkeel_net::{MacAddr, PortIndex};
use evenkeel_ports::Frame;

/// The places of a bucket.
const WAYS: usize = 2;

/// Where and how the packets of a flow go on.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Onward {
    pub(super) class: Class,
    pub(super) flow_hash: u64,
    /// The outgoing port.
    pub(super) port: u16,
    /// The longest IP packet that goes there whole.
    pub(super) mtu: u16,
    pub(super) source: MacAddr,
    pub(super) destination: MacAddr,
}

#[derive(Clone, Copy, Debug, Default)]
#[repr(align(64))]
struct Entry {
    /// With the port it is received by.
    flow: UsualFlow,
    onward: Onward,
    /// Of the tables; 0: there is no entry.
    epoch: u32,
    /// A packet came since another flow has tried to take the place.
    used: bool,
}

/// Where a frame's flow may be found.
#[derive(Clone, Copy, Debug)]
pub(super) struct Probe {
    usual: Usual,
    bucket: u32,
}

/// A packet whose way is known.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known {
    pub(super) onward: Onward,
    pub(super) ip_len: u16,
    pub(super) ttl: u8,
    flow: UsualFlow,
    bucket: u32,
    way: u8,
}

impl Known {
    pub(super) fn flow(&self) -> PackedFlow {
        PackedFlow::new(&self.flow.key())
    }
}

/// See the module.
pub(crate) struct FlowCache {
    /// [`WAYS`] for each bucket; none: nothing is remembered.
    entries: Box<[Entry]>,
    hasher: FlowHasher,
    epoch: u32,
}

impl FlowCache {
    /// Room for so many flows, rounded up to a power of two; 0: none.
    pub(super) fn new(flows: u32, seed: u64) -> Self {
        let places = match flows {
            0 => 0,
            flows => (flows as usize).next_power_of_two().max(WAYS),
        };
        Self {
            entries: vec![Entry::default(); places].into_boxed_slice(),
            hasher: FlowHasher::new(seed),
            epoch: 1,
        }
    }

    /// Memory of a cache for so many flows, bytes.
    pub(crate) const fn memory(flows: u32) -> u64 {
        match flows {
            0 => 0,
            flows => flows.next_power_of_two() as u64 * size_of::<Entry>() as u64,
        }
    }

    #[inline]
    pub(super) const fn is_on(&self) -> bool {
        !self.entries.is_empty()
    }

    /// What was remembered holds no longer: a table has changed.
    pub(super) fn begin_epoch(&mut self) {
        self.epoch = self.epoch.checked_add(1).unwrap_or_else(|| {
            // An entry of as many epochs ago must not hold again.
            self.entries.fill(Entry::default());
            1
        });
    }

    /// Where the flow of a frame may be found, if it is one that can be remembered; what is there
    /// is on its way from memory.
    #[inline]
    pub(super) fn probe(&self, bytes: &[u8], frame: &Frame, port: PortIndex) -> Option<Probe> {
        let mut usual = Usual::of(bytes)?;
        if frame.partial_checksum() || frame.segments() != 1 {
            return None;
        }
        usual.flow = usual.flow.received_by(port);
        let bucket = self.bucket(usual.flow);
        for way in 0..WAYS {
            read_ahead(&self.entries, bucket as usize * WAYS + way);
        }
        Some(Probe { usual, bucket })
    }

    #[inline]
    fn bucket(&self, flow: UsualFlow) -> u32 {
        let hash = self.hasher.words(flow.words());
        hash as u32 & (self.entries.len() / WAYS - 1) as u32
    }

    /// The way of a packet, if it was found out before and holds for it.
    #[inline]
    pub(super) fn find(&self, probe: &Probe) -> Option<Known> {
        let at = probe.bucket as usize * WAYS;
        let bucket = self.entries.get(at..at + WAYS)?;
        let Probe { usual, bucket: number } = *probe;
        let way = bucket.iter().position(|e| e.flow == usual.flow && e.epoch == self.epoch)?;
        let onward = bucket[way].onward;
        (usual.ttl > 1 && usual.ip_len <= onward.mtu).then_some(Known {
            onward,
            ip_len: usual.ip_len,
            ttl: usual.ttl,
            flow: usual.flow,
            bucket: number,
            way: way as u8,
        })
    }

    /// A packet of a known flow goes: it keeps its place, or gets a better one.
    #[inline]
    pub(super) fn used(&mut self, known: &Known) {
        let at = known.bucket as usize * WAYS;
        if known.way == 0 {
            self.entries[at].used = true;
        } else {
            self.promote(at);
        }
    }

    /// The flow in the second place has come again.
    #[cold]
    fn promote(&mut self, at: usize) {
        let first = &mut self.entries[at];
        if first.used && first.epoch == self.epoch {
            first.used = false;
        } else {
            self.entries.swap(at, at + 1);
            self.entries[at].used = true;
        }
    }

    /// Remembers where the packets go that look like this one.
    #[cold]
    pub(super) fn remember(&mut self, flow: UsualFlow, port: PortIndex, onward: Onward) {
        let flow = flow.received_by(port);
        let at = self.bucket(flow) as usize * WAYS;
        let epoch = self.epoch;
        let bucket = &mut self.entries[at..at + WAYS];
        let present = bucket.iter().position(|entry| entry.flow == flow);
        let free = || bucket.iter().position(|entry| entry.epoch != epoch);
        let way = present.or_else(free).unwrap_or(WAYS - 1);
        bucket[way] = Entry { flow, onward, epoch, used: false };
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
            let bytes = frame(flow);
            let held = self.pool.alloc_from(&bytes).unwrap();
            let probe = self.cache.probe(&bytes, &held, port).unwrap();
            self.pool.release(held);
            if let Some(known) = self.cache.find(&probe) {
                assert_eq!(known.onward.flow_hash, u64::from(flow));
                self.cache.used(&known);
                return true;
            }
            let onward = Onward { flow_hash: flow.into(), mtu: 1500, ..Onward::default() };
            self.cache.remember(Usual::of(&bytes).unwrap().flow, port, onward);
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
        assert_eq!((FlowCache::memory(0), FlowCache::memory(60_000)), (0, 65_536 * 64));
    }
}
