//! What moves frames: bursts in and out, and the calls that make the kernel send.

use std::collections::VecDeque;
use std::os::fd::AsFd;

use evenkeel_core::{Nanos, Reason};

use super::options::FRAME_OVERHEAD;
use super::{AfXdpPort, checksum};
use crate::pool::{Frame, FramePool};
use crate::port::{PortState, RxFrame};
use crate::sys::take_error;

/// How often a port whose link is down looks at it.
const LOOK_EVERY: Nanos = Nanos(1_000_000);
/// How far a stamp may lie in the past before it is taken for a leftover.
const STAMP_CREDIBLE: Nanos = Nanos(10_000_000_000);
/// System calls that one burst may take to be sent.
const KICKS: u32 = 16;

impl AfXdpPort {
    /// With several queues the frames of one call are in order of arrival, but a frame left for the
    /// next call may have come earlier.
    pub(super) fn receive(
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
        let oldest = now.saturating_sub(STAMP_CREDIBLE);
        let sampled = self.options.stamp_every > 1;
        self.last_call = now;
        for index in self.orphans.drain(..) {
            pool.returned(index);
        }
        if self.unsent {
            self.kick();
        }
        // In turns: a burst that one full queue can fill must not leave out the others for ever.
        let turn = self.first.min(self.queues.len());
        let (before, from) = self.queues.split_at_mut(turn);
        let queues = from.len();
        for queue in from.iter_mut().chain(before) {
            let mut taken = 0;
            queue.poll_driver((max - (out.len() - first)) as u32);
            while out.len() - first < max
                && let Some(received) = queue.socket.rx.next()
            {
                taken += 1;
                let (mut frame, stamp) = queue.adopt(pool, buffer, received);
                let stamp = stamp.filter(|stamp| *stamp >= oldest);
                let arrival = if sampled {
                    queue.sampled(pool, &frame, stamp, now)
                } else {
                    stamp.map_or(now, |stamp| stamp.min(now))
                };
                if let Some(own) = self.options.own {
                    own.restore(pool, &mut frame);
                }
                let bytes = pool.bytes(&frame);
                frame.set_partial_checksum(self.checksums && checksum::is_partial(bytes));
                self.counters.rx_frames += 1;
                self.counters.rx_bytes += u64::from(received.len);
                out.push(RxFrame::new(frame, arrival));
            }
            if taken > 0 {
                queue.filled -= taken;
                queue.socket.rx.release();
            }
            if out.len() - first < max {
                queue.since = now;
            }
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
        let longest = self.interface.mtu as usize + FRAME_OVERHEAD;
        let queue = &mut self.queues[0];
        queue.reclaim(pool, buffer);
        let mut room = queue.socket.tx.room(frames.len() as u32);
        let (mut taken, mut pushed) = (0, 0);
        while room > 0
            && let Some(frame) = frames.pop_front()
        {
            taken += 1;
            if frame.len() > longest || pool.is_super(&frame) {
                self.counters.drop_one(Reason::PortRefused);
                pool.release(frame);
                continue;
            }
            let len = frame.len() as u32;
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
