//! Who hands something over wakes the one who takes it, if that sleeps, and only then: waking is a
//! system call.
//!
//! Each says what it does before it looks what the other does (Dekker 1965), so one of them sees
//! the other.

#[cfg(not(loom))]
use core::sync::atomic::{AtomicU64, Ordering, fence};
#[cfg(loom)]
use loom::sync::atomic::{AtomicU64, Ordering, fence};

/// Of one who takes, and any number of those who hand over.
#[derive(Debug)]
pub struct Wake {
    /// What is under way.
    pub(super) waiting: AtomicU64,
    /// 1: who takes it sleeps, or is about to.
    pub(super) asleep: AtomicU64,
}

impl Default for Wake {
    fn default() -> Self {
        Self { waiting: AtomicU64::new(0), asleep: AtomicU64::new(0) }
    }
}

impl Wake {
    /// Something is about to be where the other finds it.
    pub fn comes(&self) {
        self.waiting.fetch_add(1, Ordering::AcqRel);
    }

    /// It is there. `true`: the other sleeps, and has to be woken by the caller.
    #[must_use]
    pub fn wakes(&self) -> bool {
        fence(Ordering::SeqCst);
        self.asleep.swap(0, Ordering::AcqRel) == 1
    }

    /// It was taken, or could not be put there.
    pub fn gone(&self) {
        self.waiting.fetch_sub(1, Ordering::AcqRel);
    }

    /// Who takes wants to sleep until it is woken. `false`: something is under way.
    #[must_use]
    pub fn may_sleep(&self) -> bool {
        self.asleep.store(1, Ordering::Release);
        fence(Ordering::SeqCst);
        let may = self.waiting.load(Ordering::Acquire) == 0;
        if !may {
            self.awake();
        }
        may
    }

    /// It does not sleep any more.
    pub fn awake(&self) {
        self.asleep.store(0, Ordering::Release);
    }
}
