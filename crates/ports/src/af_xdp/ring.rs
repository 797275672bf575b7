//! The four rings that a socket shares with the kernel, each with one writer and one reader.
//!
//! ```text
//!           producer, consumer, flags: 32-bit words, free-running; entry i lies at i mod size
//!  fill        we write   the kernel reads    addresses of buffers to receive into
//!  rx          the kernel writes    we read   received frames
//!  tx          we write   the kernel reads    frames to send
//!  completion  the kernel writes    we read   addresses of buffers that have been sent
//! ```
//!
//! The word of the other side is read only when what is known of it does not suffice, so that a
//! burst costs one exchange of cache lines.

use std::io;
use std::marker::PhantomData;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::net::sockopt;
use rustix::net::xdp::{XdpMmapOffsets, XdpRingOffset};

use crate::error::PortError;
use crate::mapping::Mapping;
use crate::sys::set_option;

/// Which of the four rings.
#[derive(Clone, Copy, Debug)]
pub(super) enum RingKind {
    Fill,
    Completion,
    Rx,
    Tx,
}

impl RingKind {
    const fn option(self) -> libc::c_int {
        match self {
            Self::Fill => libc::XDP_UMEM_FILL_RING,
            Self::Completion => libc::XDP_UMEM_COMPLETION_RING,
            Self::Rx => libc::XDP_RX_RING,
            Self::Tx => libc::XDP_TX_RING,
        }
    }

    const fn page_offset(self) -> libc::off_t {
        match self {
            Self::Fill => libc::XDP_UMEM_PGOFF_FILL_RING as libc::off_t,
            Self::Completion => libc::XDP_UMEM_PGOFF_COMPLETION_RING as libc::off_t,
            Self::Rx => libc::XDP_PGOFF_RX_RING,
            Self::Tx => libc::XDP_PGOFF_TX_RING,
        }
    }

    const fn of(self, all: &XdpMmapOffsets) -> &XdpRingOffset {
        match self {
            Self::Fill => &all.fr,
            Self::Completion => &all.cr,
            Self::Rx => &all.rx,
            Self::Tx => &all.tx,
        }
    }
}

/// What both sides of a ring need. `T` is plain data that the kernel defines.
#[derive(Debug)]
struct Ring<T> {
    memory: Mapping,
    producer: usize,
    consumer: usize,
    flags: usize,
    entries: usize,
    size: u32,
    /// The producer's and the consumer's word as far as we know them.
    head: u32,
    tail: u32,
    entry: PhantomData<T>,
}

impl<T: Copy> Ring<T> {
    fn create(socket: BorrowedFd<'_>, kind: RingKind, size: u32) -> Result<Self, PortError> {
        let failed = |what: &'static str| {
            move |error| {
                PortError::from_io(format!("{what} the {kind:?} ring of an AF_XDP socket"), error)
            }
        };
        set_option(socket, libc::SOL_XDP, kind.option(), &size).map_err(failed("making"))?;
        Self::map(socket, kind, size)
    }

    /// The ring of a socket that another process has had: it goes on where that has stopped. A
    /// socket that is bound gives all four to be mapped again since Linux 6.4.
    fn adopt(socket: BorrowedFd<'_>, kind: RingKind, size: u32) -> Result<Self, PortError> {
        let mut ring = Self::map(socket, kind, size)?;
        ring.head = ring.word(ring.producer).load(Ordering::Acquire);
        ring.tail = ring.word(ring.consumer).load(Ordering::Acquire);
        Ok(ring)
    }

    fn map(socket: BorrowedFd<'_>, kind: RingKind, size: u32) -> Result<Self, PortError> {
        let failed = |what: &'static str| {
            move |error| {
                PortError::from_io(format!("{what} the {kind:?} ring of an AF_XDP socket"), error)
            }
        };
        let all =
            sockopt::xdp_mmap_offsets(socket).map_err(|error| failed("measuring")(error.into()))?;
        let at = kind.of(&all);
        let length = at.desc as usize + size as usize * size_of::<T>();
        let memory =
            Mapping::shared(socket, length, kind.page_offset(), true).map_err(failed("mapping"))?;
        let place = |offset: u64| {
            assert!(
                offset as usize + 4 <= memory.len() && offset.is_multiple_of(4),
                "the kernel's own layout"
            );
            offset as usize
        };
        Ok(Self {
            producer: place(at.producer),
            consumer: place(at.consumer),
            flags: place(
                at.flags.ok_or_else(|| failed("waking")(io::ErrorKind::Unsupported.into()))?,
            ),
            entries: at.desc as usize,
            size,
            head: 0,
            tail: 0,
            memory,
            entry: PhantomData,
        })
    }

    fn word(&self, offset: usize) -> &AtomicU32 {
        // SAFETY: aligned and inside the mapping, as `create` checked; both sides access the word
        // only whole.
        unsafe { AtomicU32::from_ptr(self.memory.start().add(offset).cast()) }
    }

    fn slot(&self, at: u32) -> *mut T {
        let offset = self.entries + (at & (self.size - 1)) as usize * size_of::<T>();
        // SAFETY: the mapping is as long as `entries` and `size` of them, and the index is below
        // `size`.
        unsafe { self.memory.start().add(offset).cast() }
    }
}

/// A ring that we write.
#[derive(Debug)]
pub(super) struct Producer<T>(Ring<T>);

impl<T: Copy> Producer<T> {
    /// `size` is a power of two.
    pub(super) fn create(
        socket: BorrowedFd<'_>,
        kind: RingKind,
        size: u32,
    ) -> Result<Self, PortError> {
        Ring::create(socket, kind, size).map(Self)
    }

    /// That of another process's socket.
    pub(super) fn adopt(
        socket: BorrowedFd<'_>,
        kind: RingKind,
        size: u32,
    ) -> Result<Self, PortError> {
        Ring::adopt(socket, kind, size).map(Self)
    }

    /// How many entries can be pushed, as far as known; asks the other side if that is less than
    /// `wanted`.
    pub(super) fn room(&mut self, wanted: u32) -> u32 {
        let ring = &mut self.0;
        if ring.size - ring.head.wrapping_sub(ring.tail) < wanted {
            ring.tail = ring.word(ring.consumer).load(Ordering::Acquire);
        }
        ring.size - ring.head.wrapping_sub(ring.tail)
    }

    /// Writes an entry, which the other side sees after [`Producer::publish`]. There is room for
    /// it.
    pub(super) fn push(&mut self, entry: T) {
        let ring = &mut self.0;
        debug_assert!(ring.head.wrapping_sub(ring.tail) < ring.size, "room was asked for");
        // SAFETY: the slot is free, so the kernel does not read it before the new producer word
        // says so.
        unsafe { ring.slot(ring.head).write(entry) };
        ring.head = ring.head.wrapping_add(1);
    }

    pub(super) fn publish(&self) {
        self.0.word(self.0.producer).store(self.0.head, Ordering::Release);
    }

    /// How many published entries the kernel has not taken.
    pub(super) fn waiting(&mut self) -> u32 {
        self.0.tail = self.0.word(self.0.consumer).load(Ordering::Acquire);
        self.0.head.wrapping_sub(self.0.tail)
    }

    /// Whether the kernel sleeps on this ring until a system call wakes it.
    pub(super) fn wants_wakeup(&self) -> bool {
        self.0.word(self.0.flags).load(Ordering::Relaxed) & libc::XDP_RING_NEED_WAKEUP != 0
    }
}

/// A ring that the kernel writes.
#[derive(Debug)]
pub(super) struct Consumer<T>(Ring<T>);

impl<T: Copy> Consumer<T> {
    /// `size` is a power of two.
    pub(super) fn create(
        socket: BorrowedFd<'_>,
        kind: RingKind,
        size: u32,
    ) -> Result<Self, PortError> {
        Ring::create(socket, kind, size).map(Self)
    }

    /// That of another process's socket.
    pub(super) fn adopt(
        socket: BorrowedFd<'_>,
        kind: RingKind,
        size: u32,
    ) -> Result<Self, PortError> {
        Ring::adopt(socket, kind, size).map(Self)
    }

    /// The next entry, if there is one. The kernel gets its slot back with [`Consumer::release`].
    pub(super) fn next(&mut self) -> Option<T> {
        let ring = &mut self.0;
        if ring.head == ring.tail {
            ring.head = ring.word(ring.producer).load(Ordering::Acquire);
            if ring.head == ring.tail {
                return None;
            }
        }
        // SAFETY: the producer word says that the slot was written, and the acquire load has made
        // that visible; the kernel leaves it alone until `release`.
        let entry = unsafe { ring.slot(ring.tail).read() };
        ring.tail = ring.tail.wrapping_add(1);
        Some(entry)
    }

    /// The entry so many behind the next one, if it is there.
    pub(super) fn peek(&mut self, behind: u32) -> Option<T> {
        let ring = &mut self.0;
        if ring.head.wrapping_sub(ring.tail) <= behind {
            ring.head = ring.word(ring.producer).load(Ordering::Acquire);
            if ring.head.wrapping_sub(ring.tail) <= behind {
                return None;
            }
        }
        // SAFETY: as in `next`: the entry was written before the producer word, and is not released
        // yet.
        Some(unsafe { ring.slot(ring.tail.wrapping_add(behind)).read() })
    }

    /// Has the entry that [`Consumer::next`] gave be the next one again. It has not been released.
    pub(super) const fn put_back(&mut self) {
        self.0.tail = self.0.tail.wrapping_sub(1);
    }

    /// Writes entries as the kernel would.
    #[cfg(test)]
    pub(super) fn write(&self, entries: &[T]) {
        let word = self.0.word(self.0.producer);
        for entry in entries {
            let head = word.load(Ordering::Relaxed);
            // SAFETY: the slot is in the mapping, and nobody reads it before the word says so.
            unsafe { self.0.slot(head).write(*entry) };
            word.store(head.wrapping_add(1), Ordering::Release);
        }
    }

    pub(super) const fn size(&self) -> u32 {
        self.0.size
    }

    /// How many entries wait to be read.
    pub(super) fn waiting(&self) -> u32 {
        let head = self.0.word(self.0.producer).load(Ordering::Relaxed);
        head.wrapping_sub(self.0.tail).min(self.0.size)
    }

    pub(super) fn release(&self) {
        self.0.word(self.0.consumer).store(self.0.tail, Ordering::Release);
    }
}
