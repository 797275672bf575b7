//! Shows every frame that passes a port to a function.

use std::collections::VecDeque;

use evenkeel_core::Nanos;

use super::{Direction, TxClock, wraps_inner};
use crate::pool::{Frame, FramePool};
use crate::port::{Port, RxFrame};

/// One frame that passed.
#[derive(Clone, Copy, Debug)]
pub struct TraceEvent<'a> {
    /// Name of the port.
    pub port: &'a str,
    /// Which way it went.
    pub direction: Direction,
    /// Its arrival, or when it was sent.
    pub at: Nanos,
    /// The frame.
    pub bytes: &'a [u8],
    /// Its transport checksum is still to be completed.
    pub partial_checksum: bool,
}

/// Calls a function for every frame received, and for every frame that the port took to be sent, in
/// order. Frames that the port refuses for good are shown too: they were taken.
#[derive(Debug)]
pub struct Tracer<P, F> {
    inner: P,
    see: F,
    clock: TxClock,
    last_receive: Nanos,
    scratch: Vec<u8>,
    ends: Vec<(usize, bool)>,
}

impl<P: Port, F: FnMut(TraceEvent<'_>) + Send> Tracer<P, F> {
    /// Wraps a port.
    pub const fn new(inner: P, clock: TxClock, see: F) -> Self {
        Self { inner, see, clock, last_receive: Nanos::ZERO, scratch: Vec::new(), ends: Vec::new() }
    }

    /// The port inside.
    pub const fn inner(&mut self) -> &mut P {
        &mut self.inner
    }

    /// The port without the wrapper.
    pub fn into_inner(self) -> P {
        self.inner
    }
}

impl<P: Port, F: FnMut(TraceEvent<'_>) + Send> crate::port::PortWrapper for Tracer<P, F> {
    wraps_inner!(P);

    fn rx_burst(
        &mut self,
        pool: &mut FramePool,
        now: Nanos,
        out: &mut Vec<RxFrame>,
        max: usize,
    ) -> usize {
        self.last_receive = now;
        let before = out.len();
        let received = self.inner.rx_burst(pool, now, out, max);
        for rx in &out[before..] {
            (self.see)(TraceEvent {
                port: self.inner.name(),
                direction: Direction::In,
                at: rx.arrival,
                bytes: pool.bytes(&rx.frame),
                partial_checksum: rx.frame.partial_checksum(),
            });
        }
        received
    }

    fn tx_burst(&mut self, pool: &mut FramePool, frames: &mut VecDeque<Frame>) -> usize {
        // A frame that was taken has no buffer any more, and which will be taken is not known
        // before: look at copies.
        self.scratch.clear();
        self.ends.clear();
        for frame in frames.iter() {
            self.scratch.extend_from_slice(pool.bytes(frame));
            self.ends.push((self.scratch.len(), frame.partial_checksum()));
        }
        let taken = self.inner.tx_burst(pool, frames);
        let at = self.clock.read(self.last_receive);
        let mut start = 0;
        for (end, partial_checksum) in &self.ends[..taken] {
            (self.see)(TraceEvent {
                port: self.inner.name(),
                direction: Direction::Out,
                at,
                bytes: &self.scratch[start..*end],
                partial_checksum: *partial_checksum,
            });
            start = *end;
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{MemoryOptions, MemoryPort};

    #[test]
    fn both_directions_are_seen_and_what_stays_behind_is_not() {
        let options = MemoryOptions { slots: 2, ..Default::default() };
        let (port, mut far) = MemoryPort::pair(options, ("near", [2; 6]), ("far", [4; 6]));
        let seen = std::sync::Mutex::new(Vec::new());
        let mut port = Tracer::new(port, TxClock::LastReceive, |event| {
            assert_eq!(event.port, "near");
            seen.lock().unwrap().push((event.direction, event.at, event.bytes[0]));
        });
        let mut pool = FramePool::new(8);
        let mut out = Vec::new();
        assert!(far.inject(&[9; 60]));
        assert_eq!(port.rx_burst(&mut pool, Nanos(5), &mut out, 8), 1);
        let mut frames: VecDeque<_> = (0..3).map(|i| pool.alloc_from(&[i; 60]).unwrap()).collect();
        assert_eq!(port.tx_burst(&mut pool, &mut frames), 2);
        assert_eq!(
            *seen.lock().unwrap(),
            [
                (Direction::In, Nanos(5), 9),
                (Direction::Out, Nanos(5), 0),
                (Direction::Out, Nanos(5), 1)
            ]
        );
        assert_eq!(port.counters().tx_frames, 2);
        assert_eq!(port.into_inner().name(), "near");
    }
}
