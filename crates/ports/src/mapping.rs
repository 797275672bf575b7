//! Memory mapped from the kernel, unmapped when dropped.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;

/// A mapping that one value owns. What lies in it may be written by the kernel at any time, so it
/// is accessed through pointers and atomics, and never through a reference to the whole.
#[derive(Debug)]
pub(crate) struct Mapping {
    memory: NonNull<u8>,
    length: usize,
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
        let mapping = Self::map(length, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0)?;
        // Miri knows no advice.
        if !cfg!(miri) {
            // SAFETY: the mapping was just made with this length, and what is in it stays as it
            // is. A refusal leaves small pages, which work too.
            unsafe { libc::madvise(mapping.start().cast(), length, libc::MADV_HUGEPAGE) };
        }
        Ok(mapping)
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
        // SAFETY: mapped with this length, and nothing derived from the address outlives `self`.
        unsafe { libc::munmap(self.memory.as_ptr().cast(), self.length) };
    }
}
