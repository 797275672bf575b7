//! What went wrong while the kernel's tables were followed.

use serde::{Deserialize, Serialize};

/// Faults of the mirror since the start.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct MirrorFaults {
    /// Messages of the kernel that could not be read: a newer kernel, or a defect. What they would
    /// have said may be missing.
    pub undecodable: u64,
    /// How often a socket failed, so that everything was read again by another.
    pub begun_again: u64,
}

impl MirrorFaults {
    /// What was counted before and what was counted since.
    #[must_use]
    pub fn plus(self, since: Self) -> Self {
        Self {
            undecodable: self.undecodable + since.undecodable,
            begun_again: self.begun_again + since.begun_again,
        }
    }

    /// For people; `None`: nothing went wrong.
    #[must_use]
    pub fn words(self) -> Option<String> {
        let Self { undecodable, begun_again } = self;
        (self != Self::default()).then(|| {
            format!(
                "{undecodable} of the kernel's messages on routes and neighbours could not be \
                 read, and {begun_again} times its socket failed and everything was read again"
            )
        })
    }
}
