//! What moves frames: bursts in and out, and the calls that make the kernel send.

use std::collections::VecDeque;
use std::os::fd::AsFd;

use evenkeel_core::Nanos;

use super::options::{FRAME_OVERHEAD, OwnFrames};
use super::pieces::{self, Rest};
use super::queue::Queue;
use super::{AfXdpPort, checksum};
use crate::pool::{Frame, FramePool};
use crate::port::{PortCounters, PortState, RxFrame};
use crate::sys::take_error;

/// How often a port whose link is down looks at it.
const LOOK_EVERY: Nanos = Nanos(1_000_000);
/// How far a stamp may lie in the past before it is taken for a leftover.
const STAMP_CREDIBLE: Nanos = Nanos(10_000_000_000);
/// System calls that one burst may take to be sent.
const KICKS: u32 = 16;

/// What a call looks for in each queue.
struct Burst {
    now: Nanos,
    /// Stamps before this are leftovers.
    oldest: Nanos,
    buffer: usize,
    /// The longest frame of the interface, bytes.
    longest: usize,
    /// Only some frames have stamps.
    sampled: bool,
    checksums: bool,
    own: Option<OwnFrames>,
}

impl Burst {
    /// Takes what waits in a queue, up to `max` frames, dropped ones included. Returns how many.
    #[inline]
    fn fetch<const PIECES: bool>(
        &self,
        queue: &mut Queue,
        (pool, counters, out): (&mut FramePool, &mut PortCounters, &mut Vec<RxFrame>),
        max: usize,
    ) -> usize {
        let &Self { now, buffer, .. } = self;
        let (mut seen, mut taken, mut goes_on) = (0, 0, false);
        while seen < max
            && let Some(received) = queue.socket.rx.next()
        {
            let mut rest = Rest::default();
            if PIECES && queue.is_left_over(&received) {
                taken += 1;
                pool.release(queue.adopt(pool, buffer, received).0);
                continue;
            }
            if PIECES && pieces::goes_on(&received) {
                let Some(there) = queue.rest() else {
                    goes_on = true;
                    break;
                };
                rest = there;
            }
            seen += 1;
            taken += 1 + rest.pieces;
            let (mut frame, stamp) = queue.adopt(pool, buffer, received);
            let stamp = stamp.filter(|stamp| *stamp >= self.oldest);
            let arrival = if self.sampled {
                queue.sampled(pool, &frame, stamp, now)
            } else {
                stamp.map_or(now, |stamp| stamp.min(now))
            };
            let mut len = received.len;
            if PIECES && rest.pieces > 0 {
                match queue.join(pool, buffer, frame, rest, self.longest) {
                    Ok(whole) => frame = whole,
                    Err(reason) => {
                        counters.drop_one(reason);
                        continue;
                    }
                }
                len = frame.len() as u32;
            }
            if let Some(own) = self.own {
                own.restore(pool, &mut frame);
            }
            let bytes = pool.bytes(&frame);
            frame.set_partial_checksum(self.checksums && checksum::is_partial(bytes));
            counters.rx_frames += 1;
            counters.rx_bytes += u64::from(len);
            out.push(RxFrame::new(frame, arrival));
        }
        if taken > 0 {
            queue.filled -= taken;
            queue.socket.rx.release();
        }
        if seen < max && !goes_on {
            queue.since = now;
        }
        seen
    }
}

impl AfXdpPort {
    /// With several queues the frames of one call are in order of arrival, but a frame left for the
    /// next call may have come earlier.
    ///
    /// `PIECES`: the port has frames longer than a buffer. What that takes is no part of the bursts
    /// of others.
    #[inline(never)]
    pub(super) fn receive<const PIECES: bool>(
        &mut self,
        pool: &mut FramePool,
        now: Nanos,
        out: &mut Vec<RxFrame>,
        max: usize,
    ) -> usize {
        // Buffers of another pool have numbers, too, but the kernel would write into these.
        assert!(pool.is_in(&self.umem), "the pool that the port was opened with");
        let first = out.len();
        let buffer = self.umem.buffer();
        self.last_call = now;
        for index in self.orphans.drain(..) {
            pool.returned(index);
        }
        if self.unsent {
            self.kick();
        }
        let burst = Burst {
            now,
            oldest: now.saturating_sub(STAMP_CREDIBLE),
            buffer,
            longest: self.longest(),
            sampled: self.options.stamp_every > 1,
            checksums: self.checksums,
            own: self.options.own,
        };
        let mut seen = 0;
        // In turns: a burst that one full queue can fill must not leave out the others for ever.
        let turn = self.first.min(self.queues.len());
        let (before, from) = self.queues.split_at_mut(turn);
        let queues = from.len();
        for queue in from.iter_mut().chain(before) {
            queue.poll_driver((max - seen) as u32);
            let to = (&mut *pool, &mut self.counters, &mut *out);
            seen += burst.fetch::<PIECES>(queue, to, max - seen);
            queue.reclaim(pool, buffer);
            queue.refill(pool, buffer, self.ring);
        }
        self.first = if queues > 1 { self.first + 1 } else { 0 };
        if !self.stopped && self.queues.iter().any(|queue| !queue.seated) {
            // Refused, the kernel goes on receiving, and it is tried again with the next burst.
            let _ = self.begin(pool);
        }
        let received = out.len() - first;
        if self.queues.len() > 1 {
            out[first..].sort_by_key(|frame| frame.arrival);
        }
        if received > 0 {
            self.state = PortState::Up;
        } else if now >= self.looked + LOOK_EVERY {
            self.looked = now;
            let failed = self.queues.iter().any(|queue| take_error(queue.socket.fd().as_fd()));
            // A link that is not up has to be looked at again: no frame and no error tells that it
            // is back.
            if failed || self.state == PortState::Down {
                self.look();
            }
        }
        received
    }

    pub(super) fn send(&mut self, pool: &mut FramePool, frames: &mut VecDeque<Frame>) -> usize {
        if self.state == PortState::Gone {
            return 0;
        }
        assert!(pool.is_in(&self.umem), "the pool that the port was opened with");
        let buffer = self.umem.buffer();
        let longest = self.longest();
        let queue = &mut self.queues[0];
        queue.reclaim(pool, buffer);
        let mut room = queue.socket.tx.room(frames.len() as u32);
        let most = if self.pieces { pieces::MOST } else { 1 };
        let (mut taken, mut pushed) = (0, 0);
        while room > 0
            && let Some(frame) = frames.pop_front()
        {
            taken += 1;
            let len = frame.len() as u32;
            if frame.len() > longest || pool.is_super(&frame) {
                let sends = queue.sending + pushed > 0;
                match queue.push_long(pool, buffer, &frame, (longest, most), sends) {
                    Ok(pieces) => {
                        self.counters.tx_frames += 1;
                        self.counters.tx_bytes += u64::from(len);
                        pushed += pieces;
                        room = queue.socket.tx.room(1);
                    }
                    Err(Some(reason)) => self.counters.drop_one(reason),
                    Err(None) => {
                        taken -= 1;
                        frames.push_front(frame);
                        break;
                    }
                }
                pool.release(frame);
                continue;
            }
            let (index, start) = pool.lend_frame(frame);
            queue.socket.tx.push(libc::xdp_desc { addr: start as u64, len, options: 0 });
            queue.lend(index);
            self.counters.tx_frames += 1;
            self.counters.tx_bytes += u64::from(len);
            pushed += 1;
            room -= 1;
        }
        if pushed > 0 {
            queue.sending += pushed;
            queue.socket.tx.publish();
        }
        if pushed > 0 || self.unsent {
            self.kick();
            self.queues[0].reclaim(pool, buffer);
        }
        if !frames.is_empty() {
            self.counters.tx_blocked += 1;
        }
        taken
    }

    /// The longest frame of the interface, bytes.
    const fn longest(&self) -> usize {
        self.interface.mtu as usize + FRAME_OVERHEAD
    }

    /// Makes the kernel send what lies in the transmit ring, as far as it takes it now.
    pub(super) fn kick(&mut self) {
        let socket = &mut self.queues[0].socket;
        let mut dead = false;
        for _ in 0..KICKS {
            if socket.tx.waiting() == 0 {
                self.unsent = false;
                return;
            }
            if !(socket.tx.wants_wakeup() || self.options.busy_poll) {
                break;
            }
            match socket.kick().map_err(|error| error.raw_os_error()) {
                // One call sends a part, or the driver is busy.
                Ok(()) | Err(Some(libc::EAGAIN | libc::EBUSY)) => {}
                Err(Some(libc::ENOBUFS)) => break,
                Err(_) => {
                    dead = true;
                    break;
                }
            }
        }
        self.unsent = true;
        if dead {
            self.look();
        }
    }
}
