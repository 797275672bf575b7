//! Where packets go that leave a link; what a discipline drops is counted on the way.

use crate::audit::Ledger;
use crate::measure::Qostat;
use crate::packet::Packet;
use crate::reason::Reason;
use crate::schedule::DropSink;
use crate::units::Nanos;

/// Takes what leaves a link.
pub trait LinkSink<P> {
    /// How many frames the port can take now. Asked only by links without a rate, before each
    /// packet.
    fn room(&self) -> usize {
        usize::MAX
    }

    /// The last bit of `packet` left the wire at `at`, which is virtual time and not after the
    /// `now` of the call.
    fn transmitted(&mut self, at: Nanos, packet: P);

    /// `packet` was dropped at `at` because of `reason`.
    fn dropped(&mut self, at: Nanos, packet: P, reason: Reason);
}

/// Lets every packet go: the link's meters have counted it.
impl<P> LinkSink<P> for () {
    fn transmitted(&mut self, _at: Nanos, _packet: P) {}
    fn dropped(&mut self, _at: Nanos, _packet: P, _reason: Reason) {}
}

/// Counts what a discipline drops and passes it on with the instant.
pub(super) struct Drops<'a, K> {
    pub(super) sink: &'a mut K,
    pub(super) qostat: &'a mut Qostat,
    pub(super) ledger: &'a mut Ledger,
    pub(super) at: Nanos,
    /// Replaces the discipline's own reason.
    pub(super) because: Option<Reason>,
}

impl<P: Packet, K: LinkSink<P>> DropSink<P> for Drops<'_, K> {
    fn dropped(&mut self, packet: P, reason: Reason) {
        let reason = self.because.unwrap_or(reason);
        self.ledger.lost(&packet, self.qostat);
        self.qostat.lost(self.at, &packet, reason);
        self.sink.dropped(self.at, packet, reason);
    }
}
