//! A warning is given once, and again after a while.

use evenkeel_core::Nanos;

/// The same warning is given again no sooner.
const WARN_AGAIN: Nanos = Nanos::from_secs(60);
/// Nor is a warning of another hash of the same node.
const WARN_OTHER: Nanos = Nanos::from_secs(1);

/// When a warning was given, and of what.
pub(super) type Warned = Option<(Nanos, u32)>;

/// Whether to warn now.
pub(super) fn warns(warned: &mut Warned, now: Nanos, of: u32) -> bool {
    let again = warned.is_none_or(|(at, last)| {
        now.saturating_sub(at) >= if last == of { WARN_AGAIN } else { WARN_OTHER }
    });
    if again {
        *warned = Some((now, of));
    }
    again
}
