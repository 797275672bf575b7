//! Allocations are counted by an allocator that otherwise asks the system for what it is asked for:
//! memory that is to be zero, too, of which pages that nobody writes to need not be there.

use std::alloc::System;

use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// What was allocated.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Allocated {
    /// How often memory was asked for, also to grow.
    pub(crate) count: u64,
    /// Bytes that stay.
    pub(crate) bytes: i64,
}

/// What `run` allocates, and all other threads meanwhile.
pub(crate) fn measure(run: impl FnOnce()) -> Allocated {
    let region = Region::new(ALLOCATOR);
    run();
    let change = region.change();
    // Growth is among the bytes of both.
    let bytes = change.bytes_allocated as i64 - change.bytes_deallocated as i64;
    Allocated { count: (change.allocations + change.reallocations) as u64, bytes }
}
