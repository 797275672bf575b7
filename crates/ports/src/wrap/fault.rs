//! Does frames harm on purpose: loses, corrupts, duplicates and reorders them, repeatably from a
//! seed.

use std::collections::VecDeque;

use evenkeel_core::{Nanos, Reason};

use super::wraps_inner;
use crate::error::PortError;
use crate::pool::{Frame, FramePool};
use crate::port::{Port, PortCounters, RxFrame};

/// How often each kind of harm befalls a frame, per million frames, 0..=1000000.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Faults {
    /// The frame is dropped, as [`Reason::Injected`].
    pub loss: u32,
    /// One bit of the frame is turned.
    pub corrupt: u32,
    /// The frame comes twice.
    pub duplicate: u32,
    /// The frame comes after the one that follows it.
    pub reorder: u32,
}

/// What a [`FaultInjector`] does.
#[derive(Clone, Copy, Debug)]
pub struct FaultOptions {
    /// Where the random numbers begin: the same seed and the same frames give the same faults.
    pub seed: u64,
    /// To frames that are received.
    pub rx: Faults,
    /// To frames that are sent.
    pub tx: Faults,
    /// A frame that is to be overtaken goes on after this time also if none has followed.
    pub max_hold: Nanos,
}

impl Default for FaultOptions {
    fn default() -> Self {
        Self {
            seed: 1,
            rx: Faults::default(),
            tx: Faults::default(),
            max_hold: Nanos::from_millis(10),
        }
    }
}

/// What was done to the frames of one direction.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct FaultCounters {
    /// Frames lost on purpose.
    pub lost: u64,
    /// Frames with a bit turned.
    pub corrupted: u64,
    /// Frames added as copies.
    pub duplicated: u64,
    /// Frames overtaken by their successors, or held back for want of one.
    pub reordered: u64,
}

/// One direction: its faults, its random numbers, the frame held back and what was done.
#[derive(Debug)]
struct Way {
    faults: Faults,
    random: u64,
    done: FaultCounters,
}

impl Way {
    /// SplitMix64: one addition and a finaliser, every state has its own output.
    fn next(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// True in `per_million` of a million cases. Draws also when the answer is known, so that
    /// changing one kind of fault leaves the others where they were.
    fn happens(&mut self, per_million: u32) -> bool {
        let drawn = (u128::from(self.next()) * 1_000_000) >> 64;
        (drawn as u32) < per_million
    }

    /// What befalls the next frame: lost, corrupted, duplicated, reordered.
    fn fate(&mut self) -> [bool; 4] {
        let Faults { loss, corrupt, duplicate, reorder } = self.faults;
        [loss, corrupt, duplicate, reorder].map(|per_million| self.happens(per_million))
    }

    fn turn_a_bit(&mut self, bytes: &mut [u8]) {
        let bit = self.next();
        if bytes.is_empty() {
            return;
        }
        bytes[(bit >> 3) as usize % bytes.len()] ^= 1 << (bit & 7);
        self.done.corrupted += 1;
    }
}

/// A port with faults. At most one frame of each direction is held back to be overtaken.
///
/// For each direction: frames in + duplicated = frames out + lost + held. What is received and then
/// lost or held back is counted by the port inside as received; what is lost appears among the
/// drops as [`Reason::Injected`].
#[derive(Debug)]
pub struct FaultInjector<P> {
    inner: P,
    rx: Way,
    tx: Way,
    max_hold: Nanos,
    overtaken_rx: Option<(Nanos, RxFrame)>,
    overtaken_tx: Option<(Nanos, Frame)>,
    /// Received, and next to be handed over.
    incoming: VecDeque<RxFrame>,
    /// Next to be sent: what the port inside has not taken yet.
    outgoing: VecDeque<Frame>,
    scratch: Vec<RxFrame>,
    now: Nanos,
}

impl<P: Port> FaultInjector<P> {
    /// Wraps a port.
    ///
    /// # Errors
    /// A frequency is above a million.
    pub fn new(inner: P, options: FaultOptions) -> Result<Self, PortError> {
        for faults in [options.rx, options.tx] {
            for (knob, value) in [
                ("loss", faults.loss),
                ("corrupt", faults.corrupt),
                ("duplicate", faults.duplicate),
                ("reorder", faults.reorder),
            ] {
                if value > 1_000_000 {
                    let range = "0 to 1000000 per million";
                    return Err(PortError::OutOfRange { knob, value: u64::from(value), range });
                }
            }
        }
        let way = |faults, random| Way { faults, random, done: FaultCounters::default() };
        Ok(Self {
            inner,
            rx: way(options.rx, options.seed),
            // Far from the other direction's numbers.
            tx: way(options.tx, options.seed ^ 0x6a09_e667_f3bc_c908),
            max_hold: options.max_hold,
            overtaken_rx: None,
            overtaken_tx: None,
            incoming: VecDeque::new(),
            outgoing: VecDeque::new(),
            scratch: Vec::new(),
            now: Nanos::ZERO,
        })
    }

    /// What was done to frames that were received, and to frames that were sent.
    pub const fn done(&self) -> (FaultCounters, FaultCounters) {
        (self.rx.done, self.tx.done)
    }

    /// Frames held back at the moment, received ones and ones to be sent.
    pub fn held(&self) -> (usize, usize) {
        (
            usize::from(self.overtaken_rx.is_some()) + self.incoming.len(),
            usize::from(self.overtaken_tx.is_some()) + self.outgoing.len(),
        )
    }

    /// The port inside.
    pub const fn inner(&mut self) -> &mut P {
        &mut self.inner
    }

    fn due(&self, overtaken_since: Option<Nanos>) -> bool {
        overtaken_since.is_some_and(|since| self.now >= since.saturating_add(self.max_hold))
    }

    fn harm_incoming(&mut self, pool: &mut FramePool, rx: RxFrame) {
        let [lost, corrupt, duplicate, reorder] = self.rx.fate();
        if lost {
            self.rx.done.lost += 1;
            pool.release(rx.frame);
            return;
        }
        if corrupt {
            self.rx.turn_a_bit(pool.bytes_mut(&rx.frame));
        }
        let copy = if duplicate { pool.duplicate(&rx.frame) } else { None };
        self.rx.done.duplicated += u64::from(copy.is_some());
        let copy = copy.map(|frame| RxFrame::new(frame, rx.arrival));
        if reorder && self.overtaken_rx.is_none() {
            self.rx.done.reordered += 1;
            self.overtaken_rx = Some((self.now, rx));
            self.incoming.extend(copy);
            return;
        }
        self.incoming.push_back(rx);
        self.incoming.extend(copy);
        self.incoming.extend(self.overtaken_rx.take().map(|(_, rx)| rx));
    }

    fn harm_outgoing(&mut self, pool: &mut FramePool, frame: Frame) {
        let [lost, corrupt, duplicate, reorder] = self.tx.fate();
        if lost {
            self.tx.done.lost += 1;
            pool.release(frame);
            return;
        }
        if corrupt {
            self.tx.turn_a_bit(pool.bytes_mut(&frame));
        }
        let copy = if duplicate { pool.duplicate(&frame) } else { None };
        self.tx.done.duplicated += u64::from(copy.is_some());
        if reorder && self.overtaken_tx.is_none() {
            self.tx.done.reordered += 1;
            self.overtaken_tx = Some((self.now, frame));
            self.outgoing.extend(copy);
            return;
        }
        self.outgoing.push_back(frame);
        self.outgoing.extend(copy);
        self.outgoing.extend(self.overtaken_tx.take().map(|(_, frame)| frame));
    }

    /// Sends what waits to be sent, and what has been held back long enough.
    fn send_waiting(&mut self, pool: &mut FramePool) {
        if self.due(self.overtaken_tx.as_ref().map(|(since, _)| *since)) {
            self.outgoing.extend(self.overtaken_tx.take().map(|(_, frame)| frame));
        }
        if !self.outgoing.is_empty() {
            self.inner.tx_burst(pool, &mut self.outgoing);
        }
    }
}

impl<P: Port> crate::port::PortWrapper for FaultInjector<P> {
    wraps_inner!(P);

    fn rx_burst(
        &mut self,
        pool: &mut FramePool,
        now: Nanos,
        out: &mut Vec<RxFrame>,
        max: usize,
    ) -> usize {
        self.now = now;
        self.send_waiting(pool);
        let mut scratch = std::mem::take(&mut self.scratch);
        let room = max.saturating_sub(self.incoming.len());
        self.inner.rx_burst(pool, now, &mut scratch, room);
        for rx in scratch.drain(..) {
            self.harm_incoming(pool, rx);
        }
        self.scratch = scratch;
        if self.due(self.overtaken_rx.as_ref().map(|(since, _)| *since)) {
            self.incoming.extend(self.overtaken_rx.take().map(|(_, rx)| rx));
        }
        let received = max.min(self.incoming.len());
        out.extend(self.incoming.drain(..received));
        received
    }

    fn tx_burst(&mut self, pool: &mut FramePool, frames: &mut VecDeque<Frame>) -> usize {
        self.send_waiting(pool);
        // A few at a time: what the port inside has no room for shall stay with the caller.
        let mut taken = 0;
        while self.outgoing.is_empty() && !frames.is_empty() {
            let some = frames.len().min(self.inner.tx_room()).clamp(1, 32);
            for frame in frames.drain(..some) {
                self.harm_outgoing(pool, frame);
            }
            taken += some;
            self.inner.tx_burst(pool, &mut self.outgoing);
        }
        taken
    }

    fn counters(&mut self) -> PortCounters {
        let mut counters = self.inner.counters();
        counters.dropped[Reason::Injected.index()] += self.rx.done.lost + self.tx.done.lost;
        counters
    }

    fn next_due(&self) -> Option<Nanos> {
        let overtaken = [
            self.overtaken_rx.as_ref().map(|(since, _)| *since),
            self.overtaken_tx.as_ref().map(|(since, _)| *since),
        ];
        let overtaken = overtaken.into_iter().flatten().map(|at| at.saturating_add(self.max_hold));
        let waiting = (!self.incoming.is_empty()).then_some(self.now);
        overtaken.chain(waiting).chain(self.inner.next_due()).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{MemoryOptions, MemoryPort};

    /// Sends numbered frames through a faulty port and gives what arrives, as numbers, and what was
    /// done.
    fn run(options: FaultOptions, count: u32) -> (Vec<u32>, FaultInjector<MemoryPort>) {
        let (near, mut far) =
            MemoryPort::pair(MemoryOptions::default(), ("near", [2; 6]), ("far", [4; 6]));
        let mut near = FaultInjector::new(near, options).unwrap();
        let mut pool = FramePool::new(64);
        let (mut frames, mut arrived) = (VecDeque::new(), Vec::new());
        for number in 0..count {
            let mut bytes = [0; 60];
            bytes[..4].copy_from_slice(&number.to_be_bytes());
            frames.push_back(pool.alloc_from(&bytes).unwrap());
            assert_eq!(near.tx_burst(&mut pool, &mut frames), 1);
            while let Some(bytes) = far.take() {
                arrived.push(u32::from_be_bytes(bytes[..4].try_into().unwrap()));
            }
        }
        assert_eq!(pool.in_use(), near.held().1, "no buffer is lost");
        (arrived, near)
    }

    fn tx(tx: Faults) -> FaultOptions {
        FaultOptions { tx, ..Default::default() }
    }

    #[test]
    fn without_faults_nothing_happens() {
        let (arrived, port) = run(FaultOptions::default(), 1000);
        assert_eq!(arrived, (0..1000).collect::<Vec<_>>());
        assert_eq!(port.done().1, FaultCounters::default());
    }

    #[test]
    fn each_fault_is_as_frequent_as_asked_counted_and_repeatable() {
        let faults = Faults { loss: 100_000, duplicate: 50_000, reorder: 20_000, corrupt: 0 };
        let (arrived, mut port) = run(tx(faults), 20_000);
        let done = port.done().1;
        for (count, expected) in [(done.lost, 2000), (done.duplicated, 900), (done.reordered, 360)]
        {
            assert!(count.abs_diff(expected) < expected / 5, "{done:?}");
        }
        let held = port.held().1 as u64;
        assert_eq!(20_000 + done.duplicated, arrived.len() as u64 + done.lost + held);
        assert_eq!(port.counters().dropped_for(Reason::Injected), done.lost);
        let overtaken = arrived.windows(2).filter(|two| two[1] < two[0]).count() as u64;
        assert!(overtaken.abs_diff(done.reordered) <= 2, "{overtaken} {done:?}");
        assert_eq!(run(tx(faults), 20_000).0, arrived);
        let other = FaultOptions { seed: 2, ..tx(faults) };
        assert_ne!(run(other, 20_000).0, arrived);
    }

    #[test]
    fn a_corrupted_frame_differs_in_one_bit() {
        let (near, mut far) =
            MemoryPort::pair(MemoryOptions::default(), ("near", [2; 6]), ("far", [4; 6]));
        let rx = Faults { corrupt: 1_000_000, ..Default::default() };
        let options = FaultOptions { rx, ..Default::default() };
        let mut near = FaultInjector::new(near, options).unwrap();
        let mut pool = FramePool::new(4);
        let mut out = Vec::new();
        for _ in 0..100 {
            assert!(far.inject(&[0xaa; 100]));
            assert_eq!(near.rx_burst(&mut pool, Nanos(0), &mut out, 8), 1);
            let rx = out.pop().unwrap();
            let turned: u32 =
                pool.bytes(&rx.frame).iter().map(|byte| (byte ^ 0xaa).count_ones()).sum();
            assert_eq!(turned, 1);
            pool.release(rx.frame);
        }
    }

    #[test]
    fn a_burst_is_never_longer_than_asked_and_what_nobody_overtakes_goes_on_after_a_while() {
        let (near, mut far) =
            MemoryPort::pair(MemoryOptions::default(), ("near", [2; 6]), ("far", [4; 6]));
        let rx = Faults { duplicate: 1_000_000, reorder: 1_000_000, ..Default::default() };
        let options = FaultOptions { rx, ..Default::default() };
        let mut near = FaultInjector::new(near, options).unwrap();
        let mut pool = FramePool::new(16);
        let mut out = Vec::new();
        assert!(far.inject(&[1; 60]) && far.inject(&[2; 60]) && far.inject(&[3; 60]));
        for _ in 0..5 {
            assert_eq!(near.rx_burst(&mut pool, Nanos(7), &mut out, 1), 1);
        }
        assert_eq!(near.rx_burst(&mut pool, Nanos(7), &mut out, 1), 0);
        let due = near.next_due().unwrap();
        assert_eq!(due, Nanos(7) + Nanos::from_millis(10));
        assert_eq!(near.rx_burst(&mut pool, due, &mut out, 1), 1);
        let order: Vec<u8> = out.iter().map(|rx| pool.bytes(&rx.frame)[0]).collect();
        assert_eq!(order, [1, 2, 2, 1, 3, 3]);
        assert_eq!((near.held(), near.next_due()), ((0, 0), None));
    }

    #[test]
    fn a_full_port_leaves_frames_with_the_caller() {
        let small = MemoryOptions { slots: 2, ..Default::default() };
        let (near, mut far) = MemoryPort::pair(small, ("near", [2; 6]), ("far", [4; 6]));
        let mut near = FaultInjector::new(near, FaultOptions::default()).unwrap();
        let mut pool = FramePool::new(8);
        let mut frames: VecDeque<_> = (0..5).map(|i| pool.alloc_from(&[i; 60]).unwrap()).collect();
        let mut arrived = Vec::new();
        while arrived.len() < 5 {
            near.tx_burst(&mut pool, &mut frames);
            arrived.push(far.take().unwrap()[0]);
        }
        assert_eq!(arrived, [0, 1, 2, 3, 4]);
        assert_eq!(pool.in_use(), 0);
    }

    #[test]
    fn a_frequency_above_a_million_is_refused() {
        let (near, _far) =
            MemoryPort::pair(MemoryOptions::default(), ("near", [2; 6]), ("far", [4; 6]));
        let faults = Faults { loss: 1_000_001, ..Default::default() };
        let error = FaultInjector::new(near, tx(faults)).unwrap_err().to_string();
        assert!(error.contains("loss = 1000001") && error.contains("0 to 1000000"), "{error}");
    }
}
