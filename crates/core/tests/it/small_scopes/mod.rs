//! Small scopes, all of them: every sequence of a few operations over three flows, on the code of
//! the disciplines itself. `make test` tries the short ones, `make prove` all up to eight.
//!
//! Two kinds of scope. In the first, packets of two lengths come one by one into buffers that are
//! soon full: conservation, order, no idling, honest peeks and wake-up times, which
//! [`Harness`](crate::common::Harness) looks at after each operation. In the second, they also come
//! and go in bursts, so that one who is treated wrongly is behind by more than his bound: shares
//! are held against the constants of each discipline's header.
//!
//! Each property has a planted fault, which must be found.

mod contract;
mod judges;
mod shares;
mod trees;

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Something that operations are tried on; it panics where one breaks a promise.
trait World: Clone {
    type Op: Copy;

    fn take(&mut self, op: Self::Op);
}

/// Tries every sequence of so many operations, and with it all shorter ones; how many there are.
fn all<W: World>(world: &W, ops: &[W::Op], depth: u32) -> u64 {
    if depth == 0 {
        return 1;
    }
    let after = |op: &W::Op| {
        let mut next = world.clone();
        next.take(*op);
        all(&next, ops, depth - 1)
    };
    ops.iter().map(after).sum()
}

/// A fault is found by one of these sequences.
fn is_found<W: World>(what: &str, faulty: &W, ops: &[W::Op], depth: u32) {
    let found = catch_unwind(AssertUnwindSafe(|| all(faulty, ops, depth)));
    assert!(found.is_err(), "a planted fault was not found: {what}");
}
