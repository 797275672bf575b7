//! A recorded schedule, sent again.

use evenkeel_core::{Bytes, Nanos};

/// A packet of a recording.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Recorded {
    /// When it came, or is sent again.
    pub at: Nanos,
    /// Length of the IP packet.
    pub ip_len: Bytes,
    /// The flow that it is of, counted from 0.
    pub flow: u64,
}

/// Packets at the times of a recording, moved to begin at `start`.
#[derive(Clone, Debug)]
pub struct Replay {
    packets: std::vec::IntoIter<Recorded>,
    first: Nanos,
    start: Nanos,
    stop: Nanos,
    latest: Nanos,
}

impl Replay {
    /// Sends `packets` with the gaps they were recorded with, the first at `start`, none at `stop`
    /// or after. Where the recording goes back in time, packets go at once.
    #[must_use]
    pub fn new(packets: Vec<Recorded>, start: Nanos, stop: Nanos) -> Self {
        let first = packets.first().map_or(Nanos::ZERO, |packet| packet.at);
        Self { packets: packets.into_iter(), first, start, stop, latest: start }
    }
}

/// Packet after packet.
impl Iterator for Replay {
    type Item = Recorded;

    fn next(&mut self) -> Option<Self::Item> {
        let packet = self.packets.next()?;
        let at = self.start.saturating_add(packet.at.saturating_sub(self.first));
        self.latest = self.latest.max(at);
        if self.latest >= self.stop {
            self.packets = Vec::new().into_iter();
            return None;
        }
        Some(Recorded { at: self.latest, ..packet })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_and_flows_are_kept_and_time_never_goes_back() {
        let recorded = [(100, 60, 0), (150, 70, 1), (140, 80, 0), (300, 90, 2), (900, 10, 1)];
        let packet = |(at, len, flow)| Recorded { at: Nanos(at), ip_len: Bytes(len), flow };
        let replay = Replay::new(recorded.map(packet).to_vec(), Nanos(1_000), Nanos(1_500));
        let sent: Vec<_> = replay.map(|e| (e.at.0, e.ip_len.0, e.flow)).collect();
        assert_eq!(sent, [(1_000, 60, 0), (1_050, 70, 1), (1_050, 80, 0), (1_200, 90, 2)]);
    }
}
