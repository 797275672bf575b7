//! Sending: one `sendmmsg` per burst, straight from the frame buffers.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use crate::pool::{DESCRIPTION, Frame, FramePool};

/// The most frames one system call sends.
const BATCH: usize = 64;

/// Of a frame of which there is nothing to say.
static PLAIN: [u8; DESCRIPTION] = [0; DESCRIPTION];

/// The headers of one call, made once.
pub(crate) struct Batch {
    parts: Box<[libc::iovec]>,
    headers: Box<[libc::mmsghdr]>,
}

// SAFETY: the raw pointers inside are set before each call and not read after it.
unsafe impl Send for Batch {}

impl std::fmt::Debug for Batch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Batch").finish_non_exhaustive()
    }
}

/// Why a call sent fewer than it was given.
pub(crate) enum Stop {
    /// All there was is sent.
    Empty,
    /// The socket or the driver has no room: try again later.
    Full,
    /// The first frame that was not sent can never be.
    Refused,
    /// The interface is down or gone.
    Dead,
}

impl Batch {
    pub(crate) fn new() -> Self {
        let part = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        // SAFETY: mmsghdr is plain data; null pointers with zero lengths are valid in it.
        let header: libc::mmsghdr = unsafe { std::mem::zeroed() };
        Self {
            parts: vec![part; 2 * BATCH].into_boxed_slice(),
            headers: vec![header; BATCH].into_boxed_slice(),
        }
    }

    /// Sends from the front of `frames` up to a whole batch. Returns how many were sent and why no
    /// more. `described`: the socket wants the kernel's header before each frame.
    pub(crate) fn send(
        &mut self,
        socket: BorrowedFd<'_>,
        pool: &FramePool,
        frames: &VecDeque<Frame>,
        described: bool,
    ) -> (usize, Stop) {
        let part = |bytes: &[u8]| libc::iovec {
            iov_base: bytes.as_ptr().cast_mut().cast(),
            iov_len: bytes.len(),
        };
        let mut count = 0;
        for frame in frames.iter().take(BATCH) {
            let skipped = usize::from(!described);
            self.parts[2 * count] = part(pool.description(frame).unwrap_or(&PLAIN));
            self.parts[2 * count + 1] = part(pool.bytes(frame));
            let header = &mut self.headers[count].msg_hdr;
            header.msg_iov = &raw mut self.parts[2 * count + skipped];
            // Its type, and that of the flags below, depend on the C library.
            header.msg_iovlen = (2 - skipped) as _;
            count += 1;
        }
        if count == 0 {
            return (0, Stop::Empty);
        }
        // SAFETY: `count` headers are valid; each has one part or two, which point into a buffer of
        // `pool`, borrowed until the call returns, or to `PLAIN`; the kernel only reads them.
        let sent = unsafe {
            libc::sendmmsg(
                socket.as_raw_fd(),
                self.headers.as_mut_ptr(),
                count as libc::c_uint,
                libc::MSG_DONTWAIT as _,
            )
        };
        if sent > 0 {
            // An error after the first frame is not told; the next call meets it first.
            return (sent as usize, Stop::Empty);
        }
        let stop = match io::Error::last_os_error().raw_os_error() {
            Some(libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM | libc::EINTR) => Stop::Full,
            Some(libc::ENETDOWN | libc::ENXIO | libc::ENODEV) => Stop::Dead,
            _ => Stop::Refused,
        };
        (0, stop)
    }
}
