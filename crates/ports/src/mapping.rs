//! Memory mapped from the kernel, unmapped when dropped.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;

use crate::sys::new_fd;

/// Where a huge page can begin, on machines with pages of 4 KiB.
const HUGE_PAGE: usize = 2 << 20;
/// Linux 6.1.
const MADV_COLLAPSE: libc::c_int = 25;

/// A mapping that one value owns. What lies in it may be written by the kernel at any time, so it
/// is accessed through pointers and atomics, and never through a reference to the whole.
#[derive(Debug)]
pub(crate) struct Mapping {
    memory: NonNull<u8>,
    length: usize,
    /// The mapping that this one lies in, and goes with.
    room: Option<Box<Mapping>>,
}

// SAFETY: a mapping is not tied to the thread that made it.
unsafe impl Send for Mapping {}
// SAFETY: the value itself only gives out its address; whoever follows that must say why it may.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// `length` bytes (more than zero) of zeroed memory that begin at a page, in huge pages if the
    /// kernel has some to spare: buffers are used in an order that makes every small page a miss of
    /// the address cache.
    pub(crate) fn anonymous(length: usize) -> io::Result<Self> {
        let mapping = Self::zeros(length)?;
        // Miri knows no advice.
        if !cfg!(miri) {
            // SAFETY: the mapping was just made with this length, and what is in it stays as it
            // is. A refusal leaves small pages, which work too.
            unsafe { libc::madvise(mapping.start().cast(), length, libc::MADV_HUGEPAGE) };
        }
        Ok(mapping)
    }

    /// As [`anonymous`](Self::anonymous), in pages of which each comes when it is written to. Only
    /// the process writes to it.
    pub(crate) fn zeros(length: usize) -> io::Result<Self> {
        Self::map(length, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0)
    }

    /// As [`anonymous`](Self::anonymous), in a file without a name: another process that is given
    /// that can map the same memory.
    pub(crate) fn in_file(length: usize) -> io::Result<(Self, OwnedFd)> {
        // SAFETY: the name is a C string.
        let file =
            new_fd(unsafe { libc::memfd_create(c"evenkeel-frames".as_ptr(), libc::MFD_CLOEXEC) })?;
        let size =
            libc::off_t::try_from(length).map_err(|_too_long| io::ErrorKind::InvalidInput)?;
        // SAFETY: the descriptor is open.
        if unsafe { libc::ftruncate(file.as_raw_fd(), size) } < 0 {
            return Err(io::Error::last_os_error());
        }
        let mapping = Self::of_file(file.as_fd(), length)?;
        Ok((mapping, file))
    }

    /// The first `length` bytes of such a file. They begin where a huge page can begin, as the file
    /// does: otherwise it could have none.
    pub(crate) fn of_file(file: BorrowedFd<'_>, length: usize) -> io::Result<Self> {
        let unused = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let room = Self::map(length + HUGE_PAGE, unused, -1, 0)?;
        let skipped = (room.start() as usize).next_multiple_of(HUGE_PAGE) - room.start() as usize;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_SHARED | libc::MAP_FIXED;
        // SAFETY: `room` is longer than `length` by more than what is skipped.
        let start = unsafe { room.start().add(skipped) };
        // SAFETY: inside `room`, which was just made and is nobody else's; whatever lies there goes
        // with it.
        let memory =
            unsafe { libc::mmap(start.cast(), length, access, flags, file.as_raw_fd(), 0) };
        if memory == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let memory = NonNull::new(start).expect("a mapping is not at address zero");
        Ok(Self { memory, length, room: Some(Box::new(room)) })
    }

    /// Has the first `length` bytes present, with what is in them.
    pub(crate) fn populate(&self, length: usize) {
        self.advise(length, libc::MADV_POPULATE_WRITE);
    }

    /// Puts the first `length` bytes of memory in a file into huge pages, if the kernel has some:
    /// it gives files none by itself. Before anybody else has it.
    pub(crate) fn gather(&self, length: usize) {
        self.advise(length, MADV_COLLAPSE);
    }

    /// A refusal leaves small pages, or such as come when they are needed.
    fn advise(&self, length: usize, advice: libc::c_int) {
        // SAFETY: inside the mapping, and what is in it stays as it is.
        unsafe { libc::madvise(self.start().cast(), length.min(self.length), advice) };
    }

    /// `length` bytes (more than zero) that the kernel shares through a descriptor, at `offset`;
    /// present from the start if `populate`.
    pub(crate) fn shared(
        fd: BorrowedFd<'_>,
        length: usize,
        offset: libc::off_t,
        populate: bool,
    ) -> io::Result<Self> {
        let populate = if populate { libc::MAP_POPULATE } else { 0 };
        Self::map(length, libc::MAP_SHARED | populate, fd.as_raw_fd(), offset)
    }

    fn map(
        length: usize,
        flags: libc::c_int,
        fd: libc::c_int,
        offset: libc::off_t,
    ) -> io::Result<Self> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a fresh mapping at an address that the kernel chooses; nothing that exists is
        // touched.
        let memory = unsafe { libc::mmap(std::ptr::null_mut(), length, access, flags, fd, offset) };
        if memory == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self {
            memory: NonNull::new(memory.cast()).expect("a mapping is not at address zero"),
            length,
            room: None,
        })
    }

    pub(crate) const fn len(&self) -> usize {
        self.length
    }

    /// The first byte; valid for [`Mapping::len`] bytes for as long as `self` lives.
    pub(crate) const fn start(&self) -> *mut u8 {
        self.memory.as_ptr()
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if self.room.is_some() {
            // What would be unmapped here somebody else could have before the room goes.
            return;
        }
        // SAFETY: mapped with this length, and nothing derived from the address outlives `self`.
        unsafe { libc::munmap(self.memory.as_ptr().cast(), self.length) };
    }
}
