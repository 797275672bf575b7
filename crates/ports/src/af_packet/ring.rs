//! The receive ring that the kernel and we share: TPACKET_V2.
//!
//! ```text
//! slot:  tpacket2_hdr (32)  sockaddr_ll (20)  ...  frame at tp_mac .. tp_mac + tp_snaplen
//! ```
//!
//! Version 3 batches, which costs about a millisecond of latency at low rates; version 2 hands each
//! frame over at once. A slot belongs to the kernel while its status word is zero. We read the word
//! with acquire order before we look at the slot, and write it with release order after we have
//! copied the frame.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::error::PortError;
use crate::mapping::Mapping;
use crate::parcel::Parcel;
use crate::segment::{HEADER, VnetHeader};
use crate::sys::set_option;

/// What the kernel puts before a frame: header (32) and address (20), room for 16 bytes of link
/// header, alignment.
const OVERHEAD: u32 = 96;
/// Blocks are allocated by the kernel in one piece each; this size is always to be had.
const BLOCK: u32 = 1 << 16;

/// A frame that waits in the ring.
pub(super) struct Waiting<'a> {
    /// What was kept of it, from the Ethernet header on, without the tag the kernel has taken out.
    pub(super) bytes: &'a [u8],
    /// Its length, bytes, without that tag.
    pub(super) length: usize,
    /// It was longer than its slot, and lies whole in the socket's queue.
    pub(super) queued: bool,
    /// What the kernel says of it, if it was asked to.
    pub(super) header: VnetHeader,
    /// Stamp, nanoseconds of CLOCK_REALTIME.
    pub(super) stamp: i64,
    /// Type and control information of the tag that was taken out.
    pub(super) tag: Option<[u8; 4]>,
    pub(super) partial_checksum: bool,
    /// The kernel has lost frames since the statistics were read.
    pub(super) losing: bool,
}

/// The mapped ring.
#[derive(Debug)]
pub(super) struct Ring {
    memory: Mapping,
    slot: usize,
    slots: usize,
    next: usize,
    /// The kernel's header lies before each frame.
    described: bool,
}

impl Ring {
    /// Sets the ring up on a packet socket that is not bound yet.
    pub(super) fn create(
        socket: BorrowedFd<'_>,
        frames: u32,
        max_frame: u32,
        described: bool,
    ) -> Result<Self, PortError> {
        // The order matters: the version cannot be changed once there is a ring.
        let version = libc::tpacket_versions::TPACKET_V2 as libc::c_int;
        set_option(socket, libc::SOL_PACKET, libc::PACKET_VERSION, &version)
            .map_err(|error| PortError::from_io("choosing TPACKET_V2", error))?;
        let slot = (max_frame + OVERHEAD).next_power_of_two().max(2048);
        let block = slot.max(BLOCK);
        let blocks = frames.div_ceil(block / slot).max(1);
        let request = libc::tpacket_req {
            tp_block_size: block,
            tp_block_nr: blocks,
            tp_frame_size: slot,
            tp_frame_nr: blocks * (block / slot),
        };
        set_option(socket, libc::SOL_PACKET, libc::PACKET_RX_RING, &request)
            .map_err(|error| PortError::from_io("making a receive ring", error))?;
        let length = block as usize * blocks as usize;
        let memory = Mapping::shared(socket.as_fd(), length, 0, true)
            .map_err(|error| PortError::from_io("mapping a receive ring", error))?;
        Ok(Self {
            memory,
            slot: slot as usize,
            slots: request.tp_frame_nr as usize,
            next: 0,
            described,
        })
    }

    /// The ring of a socket that another process has had, as that has [told](Self::pass_on) of it.
    pub(super) fn adopt(socket: BorrowedFd<'_>, parcel: &mut Parcel) -> Result<Self, PortError> {
        let mut number = || parcel.take().map(|number| number as usize);
        let (slot, slots, next, described) = (number()?, number()?, number()?, number()? != 0);
        let fits = slot.is_power_of_two() && (2048..=1 << 20).contains(&slot);
        if !fits || !(1..=1 << 20).contains(&slots) || next >= slots {
            return Err(PortError::NotPassed("its receive ring is none of ours"));
        }
        // The kernel refuses to map another length than the ring has.
        let memory = Mapping::shared(socket, slot * slots, 0, true)
            .map_err(|error| PortError::from_io("mapping a receive ring", error))?;
        Ok(Self { memory, slot, slots, next, described })
    }

    /// Tells how the ring is made, and how far it is.
    pub(super) fn pass_on(&self, parcel: &mut Parcel) {
        for number in [self.slot, self.slots, self.next, usize::from(self.described)] {
            parcel.put(number as u64);
        }
    }

    fn status(&self) -> &AtomicU32 {
        self.status_of(self.next)
    }

    /// The status word of the slot `at`, counted round the ring.
    fn status_of(&self, at: usize) -> &AtomicU32 {
        let at = at % self.slots;
        // SAFETY: `at` is below the number of slots, so the word lies in the mapping, which lives
        // as long as `self`; slots are aligned to 2048 bytes, and the status is the first word of
        // the header.
        unsafe { AtomicU32::from_ptr(self.memory.start().add(at * self.slot).cast()) }
    }

    /// How many frames it holds.
    pub(super) const fn frames(&self) -> u32 {
        self.slots as u32
    }

    /// How many frames wait. The kernel fills slots in order, so a bisection finds the first that
    /// it has not: 12 looks at a ring of 4096.
    pub(super) fn waiting(&self) -> u32 {
        let ours = |at: usize| {
            self.status_of(self.next + at).load(Ordering::Relaxed) & libc::TP_STATUS_USER != 0
        };
        let (mut filled, mut free) = (0, self.slots);
        while filled < free {
            let middle = filled.midpoint(free);
            if ours(middle) { filled = middle + 1 } else { free = middle }
        }
        filled as u32
    }

    /// The next frame, if one waits. It stays in the ring until [`Ring::advance`].
    pub(super) fn front(&self) -> Option<Waiting<'_>> {
        let status = self.status().load(Ordering::Acquire);
        if status & libc::TP_STATUS_USER == 0 {
            return None;
        }
        // SAFETY: the status says that the slot is ours, and the acquire load has made the kernel's
        // writes visible; the header is at the start of the slot and aligned.
        let header = unsafe {
            self.memory.start().add(self.next * self.slot).cast::<libc::tpacket2_hdr>().read()
        };
        let (offset, kept) = (usize::from(header.tp_mac), header.tp_snaplen as usize);
        // The kernel keeps frames inside their slots; should it ever not, an empty frame is better
        // than a wild read.
        let (offset, kept) = if offset + kept <= self.slot { (offset, kept) } else { (0, 0) };
        let described = self.described && offset >= HEADER;
        // SAFETY: inside the slot, which is ours until `advance`, and `advance` needs this borrow
        // to have ended.
        let bytes = unsafe {
            std::slice::from_raw_parts(
                self.memory.start().add(self.next * self.slot + offset),
                kept,
            )
        };
        let header_of = |at: usize| {
            // SAFETY: the bytes before the frame, inside the slot, which is ours.
            unsafe { self.memory.start().add(at).cast::<[u8; HEADER]>().read() }
        };
        let told = if described {
            VnetHeader::read(&header_of(self.next * self.slot + offset - HEADER))
        } else {
            VnetHeader::default()
        };
        let tag = (status & libc::TP_STATUS_VLAN_VALID != 0).then(|| {
            let kind = if status & libc::TP_STATUS_VLAN_TPID_VALID != 0 {
                header.tp_vlan_tpid
            } else {
                0x8100
            };
            let ([a, b], [c, d]) = (kind.to_be_bytes(), header.tp_vlan_tci.to_be_bytes());
            [a, b, c, d]
        });
        Some(Waiting {
            bytes,
            length: header.tp_len as usize,
            queued: status & libc::TP_STATUS_COPY != 0,
            header: told,
            stamp: i64::from(header.tp_sec) * 1_000_000_000 + i64::from(header.tp_nsec),
            tag,
            partial_checksum: status & libc::TP_STATUS_CSUMNOTREADY != 0,
            losing: status & libc::TP_STATUS_LOSING != 0,
        })
    }

    /// Gives the slot of [`Ring::front`] back to the kernel.
    pub(super) fn advance(&mut self) {
        self.status().store(libc::TP_STATUS_KERNEL, Ordering::Release);
        self.next += 1;
        if self.next == self.slots {
            self.next = 0;
        }
    }
}
