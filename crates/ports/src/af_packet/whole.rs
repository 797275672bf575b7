//! Receiving with super-frames: what the kernel tells of each frame lies before it in the ring, and
//! what is longer than a slot lies whole in the socket's queue.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use evenkeel_core::{Nanos, Reason};

use super::ring::Waiting;
use crate::pool::{Frame, FramePool};
use crate::port::{PortCounters, RxFrame};
use crate::segment::{HEADER, Segments, VnetHeader};
use crate::super_frame::{alloc_whole, single};

/// Room for the longest frame with two tags.
const LONGEST: usize = 14 + 8 + 65_536;

/// A frame that could not be handed over as it was, and what is left of it.
#[derive(Debug)]
pub(super) struct Unpacker {
    /// The frame, its tag in its place.
    frame: Vec<u8>,
    header: VnetHeader,
    segments: Option<Segments>,
    arrival: Nanos,
    /// The next segment, and how many there are.
    next: usize,
    count: usize,
    /// The longest super-frame that is handed over whole, bytes on the wire.
    pub(super) longest: usize,
}

/// What became of a frame in the ring.
pub(super) enum Taken {
    /// It was handed over, or dropped and counted.
    Done,
    /// Its segments are taken from the [`Unpacker`].
    Cut,
}

impl Unpacker {
    pub(super) fn new() -> Self {
        Self {
            frame: Vec::with_capacity(LONGEST),
            header: VnetHeader::default(),
            segments: None,
            arrival: Nanos::ZERO,
            next: 0,
            count: 0,
            longest: 0,
        }
    }

    /// Whether segments are left.
    pub(super) const fn holds(&self) -> bool {
        self.next < self.count
    }

    /// Hands over a frame of the ring that is no single frame without anything to say of it.
    pub(super) fn take(
        &mut self,
        waiting: &Waiting<'_>,
        socket: BorrowedFd<'_>,
        (pool, counters, out): (&mut FramePool, &mut PortCounters, &mut Vec<RxFrame>),
        arrival: Nanos,
    ) -> Taken {
        let is_whole = waiting.length == waiting.bytes.len();
        if !is_whole && !waiting.queued {
            // The socket's queue had no room for it.
            counters.ring_loss += 1;
            return Taken::Done;
        }
        if waiting.header.is_super() && waiting.tag.is_none() {
            let segments = Segments::of_head(waiting.header, waiting.bytes, waiting.length).ok();
            let whole =
                alloc_whole(pool, waiting.header, segments.as_ref(), waiting.bytes, self.longest);
            if let Some(frame) = whole {
                let bytes = pool.bytes_mut(&frame);
                let read = if is_whole {
                    bytes.copy_from_slice(waiting.bytes);
                    true
                } else {
                    receive(socket, bytes).is_ok_and(|length| length == bytes.len())
                };
                if read {
                    counters.rx_frames += 1;
                    counters.rx_bytes += frame.cut_len() as u64;
                    counters.rx_more += u64::from(frame.segments() - 1);
                    out.push(RxFrame::new(frame, arrival));
                } else {
                    counters.ring_loss += 1;
                    pool.release(frame);
                }
                return Taken::Done;
            }
        }
        if !self.keep(waiting, socket, is_whole) {
            counters.drop_one(Reason::FrameTooLong);
            return Taken::Done;
        }
        counters.cut += u64::from(self.segments.is_some());
        self.arrival = arrival;
        Taken::Cut
    }

    /// Keeps a frame with its tag, to be handed over in pieces. False: nothing can be done with it.
    fn keep(&mut self, waiting: &Waiting<'_>, socket: BorrowedFd<'_>, is_whole: bool) -> bool {
        self.frame.clear();
        if is_whole {
            self.frame.extend_from_slice(waiting.bytes);
        } else {
            self.frame.resize(waiting.length.min(LONGEST), 0);
            if receive(socket, &mut self.frame).ok() != Some(waiting.length) {
                return false;
            }
        }
        self.header = waiting.header;
        if let Some(tag) = waiting.tag {
            // It goes between the addresses and the type.
            let at = self.frame.len().min(12);
            self.frame.splice(at..at, tag);
            self.header = self.header.moved(tag.len() as u16);
        }
        self.segments = match self.header.is_super() {
            false => None,
            true => match Segments::of(self.header, &self.frame) {
                Ok(segments) => Some(segments),
                // Nothing can be told of its segments but that there are some.
                Err(_) => return false,
            },
        };
        (self.next, self.count) = (0, self.segments.as_ref().map_or(1, Segments::count));
        true
    }

    /// Hands over at most `most` of the segments that are left. Returns how many, dropped ones
    /// included.
    pub(super) fn hand_over(
        &mut self,
        (pool, counters, out): (&mut FramePool, &mut PortCounters, &mut Vec<RxFrame>),
        most: usize,
    ) -> usize {
        let from = self.next;
        while self.holds() && self.next - from < most {
            let at = self.next;
            self.next += 1;
            match single(pool, &self.frame, self.segments.as_ref(), at, self.header) {
                Ok(frame) => {
                    counters.rx_frames += 1;
                    counters.rx_bytes += frame.len() as u64;
                    out.push(RxFrame::new(frame, self.arrival));
                }
                Err(reason) => counters.drop_one(reason),
            }
        }
        self.next - from
    }
}

/// Takes the front frame of the socket's queue, behind its header.
fn receive(socket: BorrowedFd<'_>, frame: &mut [u8]) -> io::Result<usize> {
    let mut header = [0; HEADER];
    let mut parts = [
        libc::iovec { iov_base: header.as_mut_ptr().cast(), iov_len: HEADER },
        libc::iovec { iov_base: frame.as_mut_ptr().cast(), iov_len: frame.len() },
    ];
    // SAFETY: msghdr is plain data; null pointers with zero lengths are valid in it.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    (message.msg_iov, message.msg_iovlen) = (parts.as_mut_ptr(), parts.len() as _);
    // SAFETY: both parts are writable for as long as they say, and nothing else is written.
    let length = unsafe {
        libc::recvmsg(socket.as_raw_fd(), &raw mut message, libc::MSG_DONTWAIT | libc::MSG_TRUNC)
    };
    if length < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok((length as usize).saturating_sub(HEADER))
}

/// Throws the front frame of the socket's queue away.
pub(super) fn discard(socket: BorrowedFd<'_>) {
    let _ = receive(socket, &mut []);
}

/// Whether all there is to say of a frame of the ring is that it is there.
pub(super) const fn is_plain(waiting: &Waiting<'_>, longest: usize) -> bool {
    waiting.length == waiting.bytes.len() && !waiting.header.is_super() && waiting.length <= longest
}

/// Keeps with a frame that is plain what the kernel says of its checksum.
pub(super) fn describe(pool: &mut FramePool, frame: &mut Frame, waiting: &Waiting<'_>) {
    if waiting.header.needs_checksum() {
        let moved = waiting.tag.map_or(0, |tag| tag.len() as u16);
        crate::super_frame::say_checksum(pool, frame, waiting.header.moved(moved));
    }
}
