//! Tables in memory that the kernel gives page by page, when something is written there.
//!
//! An allocator clears what is asked of it with an alignment above its own, and so touches all of
//! it. A table for 65,536 flows of which a hundred come then takes its ten megabytes, too.

use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use zerocopy::FromZeros;

use crate::mapping::Mapping;

/// So many elements, all of them zero bytes at first; elements are not dropped.
#[derive(Debug)]
pub struct Zeroed<T> {
    /// Where `memory` begins; if there are none, wherever.
    start: NonNull<T>,
    count: usize,
    memory: Option<Mapping>,
}

// SAFETY: it owns its elements, as a boxed slice does.
unsafe impl<T: Send> Send for Zeroed<T> {}
// SAFETY: the same; nobody gets at an element but by a reference to the table.
unsafe impl<T: Sync> Sync for Zeroed<T> {}

impl<T: FromZeros> Zeroed<T> {
    /// A table of `count` elements, which begins at a page. Where no such memory can be had it is
    /// empty.
    #[must_use]
    pub fn new(count: usize) -> Self {
        const { assert!(!std::mem::needs_drop::<T>() && align_of::<T>() <= 4_096) };
        let bytes = count.checked_mul(size_of::<T>()).filter(|bytes| *bytes > 0);
        let memory = bytes.and_then(|bytes| Mapping::zeros(bytes).ok());
        let start = memory.as_ref().and_then(|memory| NonNull::new(memory.start().cast()));
        let count = if start.is_some() { count } else { 0 };
        Self { start: start.unwrap_or(NonNull::dangling()), count, memory }
    }

    /// Bytes of memory that it lies in.
    #[must_use]
    pub fn memory(&self) -> usize {
        self.memory.as_ref().map_or(0, Mapping::len)
    }
}

impl<T: FromZeros> Deref for Zeroed<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        // SAFETY: the memory is private, begins at a page, has room for `count` elements, and was
        // zeros, which are elements; without memory there are none. It stays as long as `self`,
        // and only references of that lifetime are made to it.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.count) }
    }
}

impl<T: FromZeros> DerefMut for Zeroed<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as for `deref`; `self` is borrowed alone.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.count) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, FromZeros)]
    #[repr(align(128))]
    struct Line([u64; 16]);

    #[test]
    fn it_is_zeros_at_a_line_and_holds_what_is_written() {
        let mut table = Zeroed::<Line>::new(1_000);
        assert_eq!((table.len(), table.as_ptr().addr() % 4_096), (1_000, 0));
        assert!(table.iter().all(|line| line.0 == [0; 16]));
        for (line, n) in table.iter_mut().zip(1..) {
            line.0[n as usize % 16] = n;
        }
        assert!(table.iter().zip(1..).all(|(line, n)| line.0.iter().sum::<u64>() == n));
        assert_eq!(table.memory(), 128_000);
        assert!(Zeroed::<Line>::new(0).is_empty());
        assert!(Zeroed::<Line>::new(usize::MAX).is_empty(), "there is not so much");
        assert!(Zeroed::<Line>::new(usize::MAX / 256).is_empty(), "nor so much");
    }

    /// Kibibytes of this process that are present.
    fn present() -> u64 {
        let status = std::fs::read_to_string("/proc/self/statm").unwrap();
        status.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4
    }

    #[test]
    fn memory_is_had_where_something_is_written() {
        let before = present();
        let mut table = Zeroed::<Line>::new(1 << 20);
        assert!(table.iter().step_by(32).all(|line| line.0[0] == 0));
        for line in table.iter_mut().step_by(1 << 16) {
            line.0[3] = 1;
        }
        let took = present().saturating_sub(before);
        assert!(took < 64 << 10, "{took} KiB of 128 MiB, with 16 pages of it written to");
    }
}
