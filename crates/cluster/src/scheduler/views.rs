//! What an audit asks of a scheduler.

use super::{Granted, Scheduler};

impl Scheduler {
    /// What the last window granted, in order of time.
    #[must_use]
    pub fn granted(&self) -> &[Granted] {
        &self.granted
    }

    /// The links (a set) on which some class, or with rules A and C some queue, was owed more in
    /// the last window than is remembered: its tag lagged the link's clock by more than `max_lag`.
    #[must_use]
    pub fn forgot(&self) -> u64 {
        self.forgot
    }
}
