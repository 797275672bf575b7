//! A timer that is put off more often than it runs off.
//!
//! Each acknowledgement puts the retransmission timer off. If each time the engine were asked for
//! another call, its queue would hold one event per acknowledgement of the last round trips; so the
//! call already asked for stays, and when it comes the next is asked for.

use evenkeel_core::Nanos;

/// A timer.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Alarm {
    due: Option<Nanos>,
    /// The call asked for: never after `due`, perhaps although there is none.
    call: Option<Nanos>,
}

impl Alarm {
    /// It shall run off at `at`, and not when it should have before.
    pub(super) fn set(&mut self, at: Nanos) {
        self.due = Some(at);
        self.call = Some(self.call.map_or(at, |call| call.min(at)));
    }

    /// It shall not run off.
    pub(super) fn clear(&mut self) {
        self.due = None;
    }

    /// Whether it is to run off.
    pub(super) const fn is_set(&self) -> bool {
        self.due.is_some()
    }

    /// Whether it has run off by now; if so, it is no longer set.
    pub(super) fn runs_off(&mut self, now: Nanos) -> bool {
        if self.call.is_none_or(|call| call > now) {
            return false;
        }
        self.call = self.due.filter(|due| *due > now);
        self.due.take_if(|due| *due <= now).is_some()
    }

    /// When [`runs_off`](Self::runs_off) is to be asked.
    pub(super) const fn call(&self) -> Option<Nanos> {
        self.call
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timer_put_off_is_asked_once_and_runs_off_once() {
        let mut alarm = Alarm::default();
        alarm.set(Nanos(10));
        alarm.set(Nanos(20));
        assert_eq!(alarm.call(), Some(Nanos(10)), "the call asked for stays");
        assert!(!alarm.runs_off(Nanos(10)) && alarm.is_set());
        assert_eq!(alarm.call(), Some(Nanos(20)));
        assert!(alarm.runs_off(Nanos(25)) && !alarm.is_set());
        assert!(!alarm.runs_off(Nanos(30)));
        alarm.set(Nanos(40));
        alarm.clear();
        assert!(!alarm.runs_off(Nanos(40)) && alarm.call().is_none());
        alarm.set(Nanos(60));
        alarm.set(Nanos(50));
        assert_eq!(alarm.call(), Some(Nanos(50)), "an earlier one is not missed");
    }
}
