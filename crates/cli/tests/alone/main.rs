//! The command on real interfaces, where what is measured needs both cores: one test at a time.
//! Needs root; says so and passes otherwise.

use std::sync::{Mutex, MutexGuard, PoisonError};

mod cluster;
mod qualify;

/// Held by the test that runs.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}
