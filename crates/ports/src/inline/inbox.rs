//! Receiving frames of up to 64 KiB with what the kernel says of them: one `recvmmsg` per burst.

use std::os::fd::{AsRawFd, BorrowedFd};

use crate::segment::{HEADER, VnetHeader};

/// The most frames one system call gives. Their buffers are 2 MiB.
const BATCH: usize = 32;
/// Room for the longest super-frame with its header.
const BUFFER: usize = HEADER + 14 + 65_536 + 8;
/// A stride that does not make all buffers share the same lines of the cache.
const STRIDE: usize = BUFFER.next_multiple_of(64) + 64;
/// Room for a stamp and what a packet socket tells, bytes.
const CONTROL: usize = 96;

/// A frame as the kernel has handed it over.
pub(super) struct Received<'a> {
    /// From the Ethernet header on, without the tag the kernel has taken out.
    pub(super) bytes: &'a [u8],
    pub(super) header: VnetHeader,
    /// Type and control information of that tag.
    pub(super) tag: Option<[u8; 4]>,
    /// When the kernel received it, nanoseconds of CLOCK_REALTIME.
    pub(super) stamp: Option<i64>,
    /// It was longer than its buffer.
    pub(super) cut: bool,
}

/// Buffers for a burst, and the burst that lies in them.
pub(super) struct Inbox {
    bytes: Box<[u8]>,
    control: Box<[[u64; CONTROL / 8]]>,
    parts: Box<[libc::iovec]>,
    headers: Box<[libc::mmsghdr]>,
    /// Frames that lie in the buffers.
    held: usize,
    /// The next of them.
    next: usize,
}

// SAFETY: the raw pointers inside `parts` and `headers` are set before each call and not read after
// it.
unsafe impl Send for Inbox {}

impl std::fmt::Debug for Inbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inbox").field("held", &self.held).finish_non_exhaustive()
    }
}

impl Inbox {
    pub(super) fn new() -> Self {
        let part = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        // SAFETY: mmsghdr is plain data; null pointers with zero lengths are valid in it.
        let header: libc::mmsghdr = unsafe { std::mem::zeroed() };
        Self {
            bytes: vec![0; STRIDE * BATCH].into_boxed_slice(),
            control: vec![[0; CONTROL / 8]; BATCH].into_boxed_slice(),
            parts: vec![part; BATCH].into_boxed_slice(),
            headers: vec![header; BATCH].into_boxed_slice(),
            held: 0,
            next: 0,
        }
    }

    /// Receives what waits, if nothing is held. False: the socket has nothing more, or an error.
    pub(super) fn fill(&mut self, socket: BorrowedFd<'_>) -> bool {
        if self.next < self.held {
            return true;
        }
        (self.held, self.next) = (0, 0);
        for i in 0..BATCH {
            self.parts[i] = libc::iovec {
                iov_base: self.bytes[i * STRIDE..].as_mut_ptr().cast(),
                iov_len: BUFFER,
            };
            let header = &mut self.headers[i].msg_hdr;
            header.msg_iov = &raw mut self.parts[i];
            header.msg_iovlen = 1;
            header.msg_control = self.control[i].as_mut_ptr().cast();
            header.msg_controllen = CONTROL as _;
            header.msg_flags = 0;
        }
        // SAFETY: every header has one part of BUFFER writable bytes and CONTROL writable bytes for
        // control messages, and the kernel writes no more.
        let received = unsafe {
            libc::recvmmsg(
                socket.as_raw_fd(),
                self.headers.as_mut_ptr(),
                BATCH as libc::c_uint,
                libc::MSG_DONTWAIT as _,
                std::ptr::null_mut(),
            )
        };
        if received <= 0 {
            return false;
        }
        self.held = received as usize;
        true
    }

    /// Frames that lie in the buffers and were not gone past.
    pub(super) const fn held(&self) -> usize {
        self.held - self.next
    }

    /// The next frame, if one is held.
    pub(super) fn front(&self) -> Option<Received<'_>> {
        if self.next >= self.held {
            return None;
        }
        let message = &self.headers[self.next];
        let length = (message.msg_len as usize).min(BUFFER);
        let bytes = &self.bytes[self.next * STRIDE..][..length];
        let (header, bytes) = bytes.split_first_chunk::<HEADER>()?;
        let told = Told::of(&message.msg_hdr);
        Some(Received {
            bytes,
            header: VnetHeader::read(header),
            tag: told.tag,
            stamp: told.stamp,
            cut: message.msg_hdr.msg_flags & libc::MSG_TRUNC != 0,
        })
    }

    /// Goes past the frame of [`Inbox::front`].
    pub(super) const fn advance(&mut self) {
        self.next += 1;
    }
}

/// What came beside a frame.
#[derive(Default)]
struct Told {
    tag: Option<[u8; 4]>,
    stamp: Option<i64>,
}

impl Told {
    fn of(header: &libc::msghdr) -> Self {
        let mut told = Self::default();
        // SAFETY: the kernel has filled `header`, whose control buffer lives in the inbox and is
        // aligned for cmsghdr.
        let mut message = unsafe { libc::CMSG_FIRSTHDR(header) };
        while !message.is_null() {
            // SAFETY: CMSG_FIRSTHDR and CMSG_NXTHDR give null or a whole message inside the control
            // buffer.
            let (level, kind) = unsafe { ((*message).cmsg_level, (*message).cmsg_type) };
            // SAFETY: as above.
            let data = unsafe { libc::CMSG_DATA(message) };
            if level == libc::SOL_SOCKET && kind == libc::SCM_TIMESTAMPNS {
                // SAFETY: a message of this kind holds a timespec, at no particular alignment.
                let time: libc::timespec = unsafe { std::ptr::read_unaligned(data.cast()) };
                told.stamp = Some(time.tv_sec * 1_000_000_000 + time.tv_nsec);
            } else if level == libc::SOL_PACKET && kind == libc::PACKET_AUXDATA {
                // SAFETY: a message of this kind holds a tpacket_auxdata.
                let aux: libc::tpacket_auxdata = unsafe { std::ptr::read_unaligned(data.cast()) };
                if aux.tp_status & libc::TP_STATUS_VLAN_VALID != 0 {
                    let known = aux.tp_status & libc::TP_STATUS_VLAN_TPID_VALID != 0;
                    let kind = if known { aux.tp_vlan_tpid } else { 0x8100 };
                    let ([a, b], [c, d]) = (kind.to_be_bytes(), aux.tp_vlan_tci.to_be_bytes());
                    told.tag = Some([a, b, c, d]);
                }
            }
            // SAFETY: as above.
            message = unsafe { libc::CMSG_NXTHDR(header, message) };
        }
        told
    }
}
