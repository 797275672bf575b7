//! A pair of ports joined by two queues in memory: what goes into one comes out of the other, in
//! order, unchanged.
//!
//! Deterministic: no clock, no thread, no randomness. The queues are bounded and their memory is
//! taken once, so a pipeline between memory ports allocates nothing per packet. The two ends may
//! live in different threads and use different pools; frames are copied from one into the other.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex};

use evenkeel_core::{Nanos, Reason};

use crate::pool::{Frame, FramePool, copy};
use crate::port::{Port, PortCounters, PortState, RxFrame, RxWaiting};
use crate::sys::lock;

/// One direction: a ring of slots of equal size.
#[derive(Debug)]
struct Wire {
    slots: Box<[Slot]>,
    head: usize,
    len: usize,
}

#[derive(Debug)]
struct Slot {
    bytes: Box<[u8]>,
    /// Length of the frame, bytes.
    len: u32,
    partial_checksum: bool,
}

impl Slot {
    fn frame(&self) -> &[u8] {
        &self.bytes[..self.len as usize]
    }
}

impl Wire {
    /// A ring of so many slots, for frames of up to `longest` bytes.
    fn new(slots: usize, longest: usize) -> Self {
        let slot =
            || Slot { bytes: vec![0; longest].into_boxed_slice(), len: 0, partial_checksum: false };
        Self { slots: std::iter::repeat_with(slot).take(slots).collect(), head: 0, len: 0 }
    }

    /// Frames that it still takes.
    fn room(&self) -> usize {
        self.slots.len() - self.len
    }

    /// Sends a frame, for which there is a slot; false if it is too long for that.
    #[inline]
    fn push(&mut self, frame: &[u8], partial_checksum: bool) -> bool {
        let at = self.head + self.len;
        let at = if at < self.slots.len() { at } else { at - self.slots.len() };
        let slot = &mut self.slots[at];
        let Some(place) = slot.bytes.get_mut(..frame.len()) else { return false };
        copy(frame, place);
        (slot.len, slot.partial_checksum) = (frame.len() as u32, partial_checksum);
        self.len += 1;
        true
    }

    /// The slots of the first `count` frames that wait, in order: up to the end of the ring, and
    /// from its beginning on.
    fn waiting(&self, count: usize) -> [&[Slot]; 2] {
        let count = count.min(self.len);
        let first = count.min(self.slots.len() - self.head);
        [&self.slots[self.head..self.head + first], &self.slots[..count - first]]
    }

    fn popped(&mut self, count: usize) {
        self.len -= count;
        self.head = (self.head + count) % self.slots.len();
    }
}

/// The size of a pair of memory ports.
#[derive(Clone, Copy, Debug)]
pub struct MemoryOptions {
    /// Frames each direction holds; 1 or more. A sender that meets a full queue keeps its frames.
    pub slots: usize,
    /// The longest IP packet, bytes; a longer one is refused.
    pub mtu: u32,
}

impl Default for MemoryOptions {
    fn default() -> Self {
        Self { slots: 1024, mtu: 1500 }
    }
}

/// One end of a pair.
#[derive(Debug)]
pub struct MemoryPort {
    name: String,
    mac: [u8; 6],
    mtu: u32,
    receive: Arc<Mutex<Wire>>,
    send: Arc<Mutex<Wire>>,
    state: PortState,
    counters: PortCounters,
}

impl MemoryPort {
    /// Two ports joined with each other, with names and hardware addresses.
    #[must_use]
    pub fn pair(
        options: MemoryOptions,
        (left, left_mac): (&str, [u8; 6]),
        (right, right_mac): (&str, [u8; 6]),
    ) -> (Self, Self) {
        // Ethernet header and up to two tags.
        let longest = options.mtu as usize + 22;
        let wire = || Arc::new(Mutex::new(Wire::new(options.slots.max(1), longest)));
        let (there, back) = (wire(), wire());
        let end = |name: &str, mac, receive, send| Self {
            name: name.to_owned(),
            mac,
            mtu: options.mtu,
            receive,
            send,
            state: PortState::Up,
            counters: PortCounters::default(),
        };
        (
            end(left, left_mac, Arc::clone(&back), Arc::clone(&there)),
            end(right, right_mac, there, back),
        )
    }

    /// Sends bytes as if they had been a frame: what a test's host does. False if the queue is full
    /// or the frame too long.
    pub fn inject(&mut self, frame: &[u8]) -> bool {
        self.inject_flagged(frame, false)
    }

    /// Like [`MemoryPort::inject`], with the mark of a frame whose transport checksum is still to
    /// be completed.
    pub fn inject_flagged(&mut self, frame: &[u8], partial_checksum: bool) -> bool {
        let mut wire = lock(&self.send);
        if wire.room() == 0 || !wire.push(frame, partial_checksum) {
            return false;
        }
        self.counters.tx_frames += 1;
        self.counters.tx_bytes += frame.len() as u64;
        true
    }

    /// Receives one frame as bytes: what a test's host does.
    pub fn take(&mut self) -> Option<Vec<u8>> {
        let mut wire = lock(&self.receive);
        let bytes = wire.waiting(1)[0].first()?.frame().to_vec();
        wire.popped(1);
        self.counters.rx_frames += 1;
        self.counters.rx_bytes += bytes.len() as u64;
        Some(bytes)
    }

    /// Frames that wait to be received here.
    #[must_use]
    pub fn waiting(&self) -> usize {
        lock(&self.receive).len
    }

    /// Takes the link down, up, or away: a port that is not up neither receives nor sends.
    pub const fn set_state(&mut self, state: PortState) {
        self.state = state;
    }
}

/// Counts a frame that `pool` has no buffer for.
#[cold]
fn refuse(counters: &mut PortCounters, slot: &Slot, pool: &FramePool) {
    let too_long = slot.len as usize > pool.max_frame();
    counters.drop_one(if too_long { Reason::FrameTooLong } else { Reason::NoBuffer });
}

impl Port for MemoryPort {
    fn name(&self) -> &str {
        &self.name
    }

    fn rx_burst(
        &mut self,
        pool: &mut FramePool,
        now: Nanos,
        out: &mut Vec<RxFrame>,
        max: usize,
    ) -> usize {
        if self.state != PortState::Up {
            return 0;
        }
        let mut wire = lock(&self.receive);
        let (before, taken) = (out.len(), max.min(wire.len));
        if taken == 0 {
            return 0;
        }
        out.reserve(taken);
        for part in wire.waiting(taken) {
            for slot in part {
                match pool.alloc_from(slot.frame()) {
                    Some(mut frame) => {
                        frame.set_partial_checksum(slot.partial_checksum);
                        out.push(RxFrame::new(frame, now));
                    }
                    None => refuse(&mut self.counters, slot, pool),
                }
            }
        }
        wire.popped(taken);
        let received = &out[before..];
        self.counters.rx_frames += received.len() as u64;
        self.counters.rx_bytes += received.iter().map(|rx| rx.frame.len() as u64).sum::<u64>();
        received.len()
    }

    fn tx_burst(&mut self, pool: &mut FramePool, frames: &mut VecDeque<Frame>) -> usize {
        if self.state != PortState::Up {
            return 0;
        }
        let mut wire = lock(&self.send);
        let wire = &mut *wire;
        let taken = frames.len().min(wire.room());
        if taken < frames.len() {
            self.counters.tx_blocked += 1;
        }
        let (mut sent, mut bytes) = (0, 0);
        frames.range(..taken).for_each(|frame| {
            if wire.push(pool.bytes(frame), frame.partial_checksum()) {
                bytes += frame.len() as u64;
                sent += 1;
            }
            pool.take_back(frame);
        });
        frames.drain(..taken);
        for _ in sent..taken {
            self.counters.drop_one(Reason::PortRefused);
        }
        self.counters.tx_frames += sent as u64;
        self.counters.tx_bytes += bytes;
        taken
    }

    /// A kernel that takes what it is given, and forwards it nowhere.
    fn hands_over(&self) -> bool {
        true
    }

    fn hand_over(&mut self, pool: &mut FramePool, frames: &mut VecDeque<Frame>) -> usize {
        pool.release_first(frames, frames.len());
        0
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn state(&self) -> PortState {
        self.state
    }

    fn mac(&self) -> [u8; 6] {
        self.mac
    }

    fn mtu(&self) -> u32 {
        self.mtu
    }

    fn counters(&mut self) -> PortCounters {
        self.counters
    }

    fn rx_waiting(&self) -> Option<RxWaiting> {
        Some(RxWaiting::one(self.waiting() as u32))
    }

    fn rx_ring(&self) -> Option<u32> {
        Some(lock(&self.receive).slots.len() as u32)
    }

    fn tx_room(&self) -> usize {
        lock(&self.send).room()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(slots: usize) -> (MemoryPort, MemoryPort) {
        let options = MemoryOptions { slots, mtu: 1500 };
        MemoryPort::pair(options, ("left", [2, 0, 0, 0, 0, 1]), ("right", [2, 0, 0, 0, 0, 2]))
    }

    #[test]
    fn a_million_numbered_frames_pass_in_order() {
        // Each takes Miri a while.
        let frames: u32 = if cfg!(miri) { 2_000 } else { 1_000_000 };
        let (mut left, mut right) = pair(256);
        let (mut ours, mut theirs) = (FramePool::new(300), FramePool::new(64));
        let (mut outgoing, mut incoming) = (VecDeque::new(), Vec::new());
        let (mut sent, mut expected) = (0u32, 0u32);
        while expected < frames {
            while sent < frames && outgoing.len() < 256 {
                let mut bytes = [0; 60];
                bytes[20..24].copy_from_slice(&sent.to_be_bytes());
                outgoing.push_back(ours.alloc_from(&bytes).unwrap());
                sent += 1;
            }
            left.tx_burst(&mut ours, &mut outgoing);
            right.rx_burst(&mut theirs, Nanos(u64::from(expected)), &mut incoming, 64);
            for rx in incoming.drain(..) {
                assert_eq!(theirs.bytes(&rx.frame)[20..24], expected.to_be_bytes());
                expected += 1;
                theirs.release(rx.frame);
            }
        }
        assert_eq!((ours.in_use(), theirs.in_use()), (0, 0));
        assert_eq!(left.counters().tx_frames, u64::from(frames));
        assert_eq!(right.counters().rx_bytes, u64::from(frames) * 60);
    }

    #[test]
    fn what_does_not_fit_stays_with_the_sender() {
        let (mut left, mut right) = pair(2);
        let mut pool = FramePool::new(4);
        let mut frames: VecDeque<_> = (0..3).map(|i| pool.alloc_from(&[i; 60]).unwrap()).collect();
        assert_eq!(left.tx_room(), 2);
        assert_eq!(left.tx_burst(&mut pool, &mut frames), 2);
        assert_eq!((frames.len(), left.tx_room(), right.waiting()), (1, 0, 2));
        assert_eq!(right.take().unwrap()[0], 0);
        assert_eq!(left.tx_burst(&mut pool, &mut frames), 1);
        assert_eq!(left.counters().tx_blocked, 1);
        assert_eq!(pool.in_use(), 0);
    }

    #[test]
    fn long_frames_and_an_empty_pool_are_counted() {
        let (mut left, mut right) = pair(8);
        let mut small = FramePool::with_buffer_size(1, 256);
        for len in [100, 1000, 100] {
            assert!(left.inject(&vec![0; len]));
        }
        assert!(!left.inject(&[0; 1600]));
        let mut out = Vec::new();
        assert_eq!(right.rx_burst(&mut small, Nanos(5), &mut out, 10), 1);
        let counters = right.counters();
        assert_eq!(counters.dropped_for(Reason::FrameTooLong), 1);
        assert_eq!(counters.dropped_for(Reason::NoBuffer), 1);
        assert_eq!((counters.rx_frames, out[0].arrival), (1, Nanos(5)));

        let mut pool = FramePool::for_frames_of(1, 9000);
        let mut jumbo = VecDeque::from([pool.alloc_from(&[0; 1600]).unwrap()]);
        assert_eq!(left.tx_burst(&mut pool, &mut jumbo), 1);
        assert_eq!((left.counters().dropped_for(Reason::PortRefused), pool.in_use()), (1, 0));
    }

    #[test]
    fn flags_and_tags_cross_the_wire_and_a_link_that_is_down_passes_nothing() {
        let (mut left, mut right) = pair(8);
        let mut pool = FramePool::new(2);
        let mut tagged = [0; 60];
        tagged[12..16].copy_from_slice(&[0x81, 0x00, 0x20, 0x05]);
        assert!(left.inject_flagged(&tagged, true));
        right.set_state(PortState::Down);
        let mut out = Vec::new();
        assert_eq!(right.rx_burst(&mut pool, Nanos(0), &mut out, 10), 0);
        right.set_state(PortState::Up);
        assert_eq!(right.rx_burst(&mut pool, Nanos(0), &mut out, 10), 1);
        assert_eq!(pool.bytes(&out[0].frame)[12..16], tagged[12..16]);
        assert!(out[0].frame.partial_checksum());
    }
}
