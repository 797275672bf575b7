//! A recorded schedule, sent again.

use evenkeel_core::{Bytes, Nanos};

use crate::source::Emission;

/// Packets at the times of a recording, moved to begin at `start`.
#[derive(Clone, Debug)]
pub struct Replay {
    packets: std::vec::IntoIter<(Nanos, Bytes)>,
    first: Nanos,
    start: Nanos,
    stop: Nanos,
    latest: Nanos,
    seq: u64,
}

impl Replay {
    /// Sends `packets` (time, IP length) with the gaps they were recorded with, the first at
    /// `start`, none at `stop` or after. Where the recording goes back in time, packets go at once.
    #[must_use]
    pub fn new(packets: Vec<(Nanos, Bytes)>, start: Nanos, stop: Nanos) -> Self {
        let first = packets.first().map_or(Nanos::ZERO, |(at, _)| *at);
        Self { packets: packets.into_iter(), first, start, stop, latest: start, seq: 0 }
    }
}

/// Packet after packet.
impl Iterator for Replay {
    type Item = Emission;

    fn next(&mut self) -> Option<Self::Item> {
        let (at, ip_len) = self.packets.next()?;
        self.latest = self.latest.max(self.start.saturating_add(at.saturating_sub(self.first)));
        if self.latest >= self.stop {
            self.packets = Vec::new().into_iter();
            return None;
        }
        let seq = self.seq;
        self.seq += 1;
        Some(Emission { at: self.latest, ip_len, seq })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_are_kept_and_time_never_goes_back() {
        let recorded = [(100, 60), (150, 70), (140, 80), (300, 90), (900, 10)];
        let recorded = recorded.map(|(at, len)| (Nanos(at), Bytes(len))).to_vec();
        let replay = Replay::new(recorded, Nanos(1_000), Nanos(1_500));
        let sent: Vec<_> = replay.map(|e| (e.at.0, e.ip_len.0, e.seq)).collect();
        assert_eq!(sent, [(1_000, 60, 0), (1_050, 70, 1), (1_050, 80, 2), (1_200, 90, 3)]);
    }
}
