//! One thread that sends frames at a rate and receives those that come through, each with a stamp
//! in its payload.

use std::collections::VecDeque;
use std::time::Duration;

use evenkeel_core::Nanos;
use evenkeel_core::measure::Histogram;
use evenkeel_net::checksum;
use evenkeel_ports::af_packet::{AfPacketOptions, AfPacketPort};
use evenkeel_ports::af_xdp::{AfXdpOptions, AfXdpPort};
use evenkeel_ports::{FramePool, Port, PortError, RxFrame, sys};

use super::noise::CpuTime;

/// Frames sent with one call, at most.
const BURST: u64 = 32;
/// Frames received between two bursts, at most.
const TAKEN: usize = 256;
/// Flows, told apart by their source port.
const FLOWS: u16 = 64;
/// When the tester comes late (it had to wait for its CPU), it sends at once what belongs to this
/// time and leaves out the rest: a burst would be another measurement.
const CATCH_UP: Nanos = Nanos::from_millis(1);
/// How long the receive ring is still read after the last instant that counts.
const READ_ON: Nanos = Nanos::from_millis(5);
/// After a trial it is quiet when nothing came for so long; and it is waited for that at most so
/// long.
const QUIET: Nanos = Nanos::from_millis(30);
const PATIENCE: Nanos = Nanos::from_millis(2_000);
/// Room that the receive ring has, frames.
const RING: u32 = 16_384;

const HEADERS: usize = 14 + 20 + 8;
/// Marks our packets.
const MAGIC: u16 = 0x454b;

/// What stands in the payload: 16 bytes, because a frame of 64 has room for 18 (the stamps of
/// scenarios take 24).
///
/// ```text
///  0        2         4          8                16
///  +--------+---------+----------+----------------+
///  | "EK"   |  trial  | sequence |     stamp      |   big-endian; CLOCK_MONOTONIC in nanoseconds
///  +--------+---------+----------+----------------+
/// ```
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Stamp {
    trial: u16,
    seq: u32,
    at: Nanos,
}

impl Stamp {
    const LENGTH: usize = 16;

    fn write(self, frame: &mut [u8]) {
        let payload = &mut frame[HEADERS..HEADERS + Self::LENGTH];
        payload[..2].copy_from_slice(&MAGIC.to_be_bytes());
        payload[2..4].copy_from_slice(&self.trial.to_be_bytes());
        payload[4..8].copy_from_slice(&self.seq.to_be_bytes());
        payload[8..].copy_from_slice(&self.at.0.to_be_bytes());
    }

    fn read(frame: &[u8]) -> Option<Self> {
        let (magic, rest) = frame.get(HEADERS..)?.split_first_chunk::<2>()?;
        let (trial, rest) = rest.split_first_chunk::<2>()?;
        let (seq, rest) = rest.split_first_chunk::<4>()?;
        let at = rest.first_chunk::<8>()?;
        (u16::from_be_bytes(*magic) == MAGIC).then(|| Self {
            trial: u16::from_be_bytes(*trial),
            seq: u32::from_be_bytes(*seq),
            at: Nanos(u64::from_be_bytes(*at)),
        })
    }
}

/// Addresses of the frames that are sent.
#[derive(Clone, Copy, Debug)]
pub struct Addresses {
    /// Hardware address of the device's port.
    pub device: [u8; 6],
    /// Source of the packets.
    pub source: std::net::Ipv4Addr,
    /// Their destination.
    pub destination: std::net::Ipv4Addr,
}

/// A UDP packet of flow `flow` in a frame of `size` bytes, frame check sequence included.
fn template(from: [u8; 6], to: &Addresses, flow: u16, size: u16) -> Vec<u8> {
    let size = usize::from(size) - 4;
    let ip_len = (size - 14) as u16;
    let mut frame = Vec::with_capacity(size);
    frame.extend_from_slice(&to.device);
    frame.extend_from_slice(&from);
    frame.extend_from_slice(&[0x08, 0x00, 0x45, 0]);
    frame.extend_from_slice(&ip_len.to_be_bytes());
    frame.extend_from_slice(&[0, 0, 0x40, 0, 64, 17, 0, 0]);
    frame.extend_from_slice(&to.source.octets());
    frame.extend_from_slice(&to.destination.octets());
    let sum = checksum::sum(&frame[14..34]).checksum();
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    frame.extend_from_slice(&(5_000 + flow).to_be_bytes());
    // The discard port.
    frame.extend_from_slice(&9_u16.to_be_bytes());
    frame.extend_from_slice(&(ip_len - 20).to_be_bytes());
    frame.resize(size, 0);
    frame
}

/// What one trial gave.
#[derive(Clone, Debug)]
pub struct Trial {
    /// Frames sent.
    pub sent: u64,
    /// Those of them that arrived in time.
    pub received: u64,
    /// How long was sent.
    pub time: Duration,
    /// From the tester's clock before sending to the kernel's stamp of arrival.
    pub latency: Histogram,
    /// Frames that the tester itself had no room for.
    pub tester_lost: u64,
    /// How long the tester had to wait for its CPU.
    pub waited: Duration,
}

/// The tester: the ports it was given stay in their namespaces, whichever thread drives them.
pub struct Tester {
    /// The time, monotonic: that of the stamps of arrival.
    clock: Box<dyn FnMut() -> Nanos>,
    pool: FramePool,
    tx: Box<dyn Port>,
    rx: Box<dyn Port>,
    addresses: Addresses,
    trials: u16,
    received: Vec<RxFrame>,
}

/// Where the tester's ports are.
#[derive(Clone, Debug)]
pub struct PortPlace {
    /// A name under `/run/netns`; `None`: the caller's own.
    pub namespace: Option<String>,
    /// The interface.
    pub interface: String,
}

impl PortPlace {
    /// Opens a port there. The threads of ports need not stay in their namespace.
    fn open(
        &self,
        work: impl FnOnce() -> Result<Box<dyn Port>, PortError> + Send,
    ) -> Result<Box<dyn Port>, PortError> {
        match &self.namespace {
            Some(name) => sys::in_netns(name, work).map_err(|source| PortError::Io {
                what: format!("entering namespace {name}"),
                source,
            })?,
            None => work(),
        }
    }
}

impl Tester {
    /// Opens both ports. With `xdp` the sending one is an AF_XDP port if the driver takes it: it
    /// sends faster.
    ///
    /// # Errors
    /// No such interface, or no right to open it.
    pub fn open(
        tx: &PortPlace,
        rx: &PortPlace,
        addresses: Addresses,
        xdp: bool,
    ) -> Result<Self, PortError> {
        let mut pool = FramePool::new(8_192);
        pool.prefault();
        let packet = |place: &PortPlace, options| {
            place.open(|| {
                AfPacketPort::open(&place.interface, options)
                    .map(|port| Box::new(port) as Box<dyn Port>)
            })
        };
        let sending =
            AfPacketOptions { qdisc_bypass: true, ring_frames: 64, ..AfPacketOptions::default() };
        let by_xdp = if xdp {
            let shared = &mut pool;
            tx.open(move || {
                AfXdpPort::open(&tx.interface, AfXdpOptions::default(), shared, &[])
                    .map(|port| Box::new(port) as Box<dyn Port>)
            })
            .ok()
        } else {
            None
        };
        let tx = by_xdp.map_or_else(|| packet(tx, sending), Ok)?;
        let receiving =
            AfPacketOptions { ring_frames: RING, promiscuous: true, ..AfPacketOptions::default() };
        let rx = packet(rx, receiving)?;
        Ok(Self::between(tx, rx, pool, addresses, Box::new(sys::monotonic_now)))
    }

    /// A tester on two ports, whose frames lie in `pool` and whose stamps are in the time of
    /// `clock`.
    pub(super) fn between(
        tx: Box<dyn Port>,
        rx: Box<dyn Port>,
        pool: FramePool,
        addresses: Addresses,
        clock: Box<dyn FnMut() -> Nanos>,
    ) -> Self {
        Self { clock, pool, tx, rx, addresses, trials: 0, received: Vec::with_capacity(TAKEN) }
    }

    /// Sends frames of `size` bytes for `time` at `rate` per second (infinite: as fast as it can),
    /// and counts those that arrived within `allowance` after the last was sent.
    pub fn trial(&mut self, size: u16, rate: f64, time: Nanos, allowance: Nanos) -> Trial {
        self.trials = self.trials.wrapping_add(1);
        let templates: Vec<Vec<u8>> =
            (0..FLOWS).map(|flow| template(self.tx.mac(), &self.addresses, flow, size)).collect();
        let cpu = CpuTime::of("/proc/thread-self");
        let lost = self.rx.counters().ring_loss;
        let mut trial = Trial {
            sent: 0,
            received: 0,
            time: Duration::ZERO,
            latency: Histogram::new(),
            tester_lost: 0,
            waited: Duration::ZERO,
        };
        let mut burst = VecDeque::with_capacity(BURST as usize);
        let begin = (self.clock)();
        let mut now = begin;
        // What was left out because the tester came late.
        let mut skipped = 0;
        while now < begin + time {
            let due = (rate * (now - begin).as_secs_f64()) as u64;
            let behind = due.saturating_sub(trial.sent + skipped);
            let most = ((rate * CATCH_UP.as_secs_f64()) as u64).saturating_add(1);
            if rate.is_finite() && behind > most.saturating_add(BURST) {
                skipped += behind - most;
            }
            let wanted = behind.min(BURST) as usize;
            while burst.len() < wanted {
                let seq = trial.sent + burst.len() as u64;
                let Some(frame) =
                    self.pool.alloc_from(&templates[(seq % u64::from(FLOWS)) as usize])
                else {
                    break;
                };
                burst.push_back(frame);
            }
            for (frame, seq) in burst.iter().zip(trial.sent..) {
                let stamp = Stamp { trial: self.trials, seq: seq as u32, at: now };
                stamp.write(self.pool.bytes_mut(frame));
            }
            if !burst.is_empty() {
                trial.sent += self.tx.tx_burst(&mut self.pool, &mut burst) as u64;
            }
            now = (self.clock)();
            self.receive(now, None, &mut trial);
        }
        trial.time = Duration::from_nanos((now - begin).0);
        burst.drain(..).for_each(|frame| self.pool.release(frame));
        let deadline = now + allowance;
        while now < deadline + READ_ON && trial.received < trial.sent {
            now = (self.clock)();
            self.receive(now, Some(deadline), &mut trial);
        }
        trial.waited = CpuTime::of("/proc/thread-self").since(cpu).waited;
        self.settle();
        trial.tester_lost = self.rx.counters().ring_loss - lost;
        trial
    }

    fn receive(&mut self, now: Nanos, deadline: Option<Nanos>, trial: &mut Trial) -> usize {
        self.rx.rx_burst(&mut self.pool, now, &mut self.received, TAKEN);
        let count = self.received.len();
        for received in self.received.drain(..) {
            if let Some(stamp) = Stamp::read(self.pool.bytes(&received.frame))
                && stamp.trial == self.trials
                && deadline.is_none_or(|deadline| received.arrival <= deadline)
            {
                trial.received += 1;
                trial.latency.record(received.arrival.saturating_sub(stamp.at));
            }
            self.pool.release(received.frame);
        }
        count
    }

    /// Waits until queues have emptied.
    fn settle(&mut self) {
        let begin = (self.clock)();
        let (mut now, mut last) = (begin, begin);
        while now < last + QUIET && now < begin + PATIENCE {
            now = (self.clock)();
            self.rx.rx_burst(&mut self.pool, now, &mut self.received, TAKEN);
            if !self.received.is_empty() {
                last = now;
            }
            self.received.drain(..).for_each(|received| self.pool.release(received.frame));
            let mut nothing = VecDeque::new();
            self.tx.tx_burst(&mut self.pool, &mut nothing);
            self.drop_answers(now);
        }
    }

    /// What comes back to the sending port is not measured.
    fn drop_answers(&mut self, now: Nanos) {
        self.tx.rx_burst(&mut self.pool, now, &mut self.received, TAKEN);
        self.received.drain(..).for_each(|received| self.pool.release(received.frame));
    }

    /// How frames are sent and received, in words.
    pub(super) fn io(&self) -> String {
        let sending = self.tx.io();
        let sending = if sending.is_empty() { "packet socket".to_owned() } else { sending };
        format!("sends by {sending}, receives by packet socket with a ring of {RING} frames")
    }
}

/// `02:00:00:00:00:99` as bytes.
#[must_use]
pub fn parse_mac(text: &str) -> Option<[u8; 6]> {
    let parts: Vec<u8> =
        text.split(':').map(|part| u8::from_str_radix(part, 16).ok()).collect::<Option<_>>()?;
    parts.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shortest_frame_holds_a_stamp_and_noise_is_none() {
        let to = Addresses {
            device: [2; 6],
            source: [198, 18, 0, 2].into(),
            destination: [198, 19, 0, 2].into(),
        };
        let mut frame = template([4; 6], &to, 3, 64);
        assert_eq!(frame.len(), 60);
        let stamp = Stamp { trial: 7, seq: u32::MAX, at: Nanos(1 << 60) };
        stamp.write(&mut frame);
        assert_eq!(Stamp::read(&frame), Some(stamp));
        assert_eq!(Stamp::read(&frame[..HEADERS + Stamp::LENGTH - 1]), None);
        frame[HEADERS] = 0;
        assert_eq!(Stamp::read(&frame), None);
        assert_eq!(checksum::sum(&frame[14..34]).checksum(), 0, "the header's checksum fits");
    }

    #[test]
    fn hardware_addresses_are_read() {
        assert_eq!(parse_mac("02:00:00:00:00:9f"), Some([2, 0, 0, 0, 0, 0x9f]));
        assert_eq!(parse_mac("02:00:00:00:00"), None);
        assert_eq!(parse_mac("02:00:00:00:00:xx"), None);
    }
}
