//! One flow of packets: constant bit rate, Poisson, on-off or an application's.
//!
//! | process | times | long-run rate |
//! |---|---|---|
//! | `Cbr` | k-th packet at start + phase + floor(k L / r) + jitter, L in bits, r in bit/s; jitter uniform in [0, j L / r) and drawn anew for each packet, so it never adds up | exact: within one packet of r, at any time |
//! | `Poisson` | exponential gaps with mean L / r | r in expectation; no rounding adds up |
//! | `OnOff` | constant bit rate r while on; on and off times exponential with given means; the spacing goes on where the last burst left it | r mean_on / (mean_on + mean_off) in expectation; exactly r per time spent on |
//! | `Application` | those of [its model](crate::applications) | that of its model; `r` for video |
//!
//! Rate and length are those of IP packets. Cost of a packet: constant, up to a few random numbers.

use core::fmt;

use evenkeel_core::{BitRate, Bytes, Nanos};

use crate::applications::{Application, Model};
use crate::random::{Dice, ONE};
use crate::sizes::Sizes;

/// Streams of randomness: each flow of a source has one of its own, that of the source and this
/// times the number of the flow.
pub const FLOW_STREAMS: u64 = 1 << 32;

/// One packet to send.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Emission {
    /// When. Never before the one before it. In the past if the caller has fallen behind: then send
    /// at once.
    pub at: Nanos,
    /// Length of the IP packet, header included.
    pub ip_len: Bytes,
    /// 0 for the first packet of the source, and one more for each.
    pub seq: u64,
}

/// When packets come.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Process {
    /// Constant bit rate.
    Cbr {
        /// Each packet comes up to this much of the spacing late, in millionths (0 to 1 000 000).
        /// Breaks the phase effects by which one of two equal sources takes a whole drop-tail
        /// queue.
        jitter_ppm: u32,
    },
    /// A Poisson process.
    Poisson,
    /// Bursts at the source's rate, and silence between them.
    OnOff {
        /// Mean length of a burst, above zero.
        mean_on: Nanos,
        /// Mean length of a silence.
        mean_off: Nanos,
    },
    /// What somebody sends who talks, plays or watches: lengths are the application's own, at most
    /// the source's, and only a video has the source's rate.
    Application {
        /// What it is.
        application: Application,
        /// Bytes of IP and UDP headers that its payload gets.
        headers: Bytes,
    },
}

/// Settings of a source.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct SourceConfig {
    /// When packets come.
    pub process: Process,
    /// Bits of IP packets per second, 1 to 10^12; while on, for [`Process::OnOff`].
    pub rate: BitRate,
    /// Length of each IP packet, 1 to 65 535 bytes.
    pub ip_len: Bytes,
    /// No packet before.
    pub start: Nanos,
    /// No packet at or after.
    pub stop: Nanos,
    /// Whether the first packet comes at a random part of the spacing after `start` rather than at
    /// `start` (constant bit rate and on-off).
    pub random_phase: bool,
    /// A packet that is this much overdue when [`Source::next`] is called is left out, not sent in
    /// a burst with all others. `Nanos::MAX`: all are sent.
    pub catch_up: Nanos,
    /// Seed of the run.
    pub seed: u64,
    /// Number of this source within the run; sources of one seed with different numbers are
    /// independent.
    pub stream: u64,
}

impl SourceConfig {
    /// Starts at once with a random phase, never stops, leaves nothing out; seed and stream are 0.
    #[must_use]
    pub const fn new(process: Process, rate: BitRate, ip_len: Bytes) -> Self {
        Self {
            process,
            rate,
            ip_len,
            start: Nanos::ZERO,
            stop: Nanos::MAX,
            random_phase: true,
            catch_up: Nanos::MAX,
            seed: 0,
            stream: 0,
        }
    }
}

/// Why there is no such source.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum SourceError {
    /// The rate is not within 1 bit/s to 1 Tbit/s.
    Rate(BitRate),
    /// The packet length is not within 1 to 65 535 bytes.
    Length(Bytes),
    /// The jitter is above 1 000 000 millionths of the spacing.
    Jitter(u32),
    /// Bursts of an on-off source have no length.
    NoBurst,
    /// The mean size of flows is not within 1 byte to 1 TiB, or the shape of their distribution is
    /// out of its range.
    FlowSize(Bytes, Sizes),
}

impl fmt::Display for SourceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rate(rate) => write!(f, "rate {rate} is out of range: 1 bit/s to 1000 Gbit/s"),
            Self::Length(length) => {
                write!(f, "packet length {length} is out of range: 1 to 65535 B")
            }
            Self::Jitter(ppm) => {
                write!(f, "jitter of {ppm} millionths of the spacing is out of range: 0 to 1000000")
            }
            Self::FlowSize(mean, sizes) => {
                write!(
                    f,
                    "flows of {mean} on average, {sizes:?}: the mean is 1 B to 1 TiB, shapes of \
                     Pareto 1.001 to 100, of lognormal 0 to 4"
                )
            }
            Self::NoBurst => f.write_str("an on-off source needs a mean on time above zero"),
        }
    }
}

impl core::error::Error for SourceError {}

/// Highest rate of a source: bits times nanoseconds per second stay far from the end of the number
/// range.
const MAX_RATE: u64 = 1_000_000_000_000;

/// A point in time that advances by fractions of a nanosecond which are never lost:
/// `nanos + rest / parts`.
#[derive(Clone, Copy, Debug)]
struct ExactClock {
    nanos: u64,
    rest: u128,
    parts: u128,
}

impl ExactClock {
    /// By whole nanoseconds, and a part of one.
    fn step(&mut self, (nanos, rest): (u64, u128)) {
        self.rest += rest;
        let carried = self.rest >= self.parts;
        self.rest -= if carried { self.parts } else { 0 };
        self.nanos = self.nanos.saturating_add(nanos + u64::from(carried));
    }

    fn advance(&mut self, by: u128) {
        let sum = self.rest + by;
        let whole = u64::try_from(sum / self.parts).unwrap_or(u64::MAX);
        self.nanos = self.nanos.saturating_add(whole);
        self.rest = sum % self.parts;
    }
}

/// One flow: call [`Source::next`] for packet after packet.
#[derive(Clone, Debug)]
pub struct Source {
    config: SourceConfig,
    dice: Dice,
    seq: u64,
    skipped: u64,
    stopped: bool,
    /// When the next packet is due, without jitter; on-off: in time spent on.
    due: ExactClock,
    /// Mean spacing, in the parts of `due`, and divided: in nanoseconds, and what is left of it.
    spacing: u128,
    step: (u64, u128),
    /// Constant bit rate: packets come later by less than this; zero: none does.
    jitter: Nanos,
    /// On-off: time spent on at the end of the burst, and time spent off before it.
    burst_end: Nanos,
    silence: Nanos,
    model: Option<Model>,
}

impl Source {
    /// A source that has sent nothing.
    ///
    /// # Errors
    /// A value outside of its range.
    pub fn new(config: SourceConfig) -> Result<Self, SourceError> {
        if config.rate.0 == 0 || config.rate.0 > MAX_RATE {
            return Err(SourceError::Rate(config.rate));
        }
        if config.ip_len.0 == 0 || config.ip_len.0 > 65_535 {
            return Err(SourceError::Length(config.ip_len));
        }
        match config.process {
            Process::Cbr { jitter_ppm } if jitter_ppm > 1_000_000 => {
                return Err(SourceError::Jitter(jitter_ppm));
            }
            Process::OnOff { mean_on: Nanos::ZERO, .. } => return Err(SourceError::NoBurst),
            _ => {}
        }
        // Times are counted in 1 / (rate x 2^32) ns: both L / r and its product with an exponential
        // variate are whole numbers there.
        let parts = u128::from(config.rate.0) << 32;
        let spacing = (u128::from(config.ip_len.0) * 8 * 1_000_000_000) << 32;
        let jitter = match config.process {
            Process::Cbr { jitter_ppm } => {
                (spacing / parts * u128::from(jitter_ppm) / 1_000_000) as u64
            }
            _ => 0,
        };
        let mut source = Self {
            dice: Dice::new(config.seed, config.stream),
            seq: 0,
            skipped: 0,
            stopped: false,
            due: ExactClock { nanos: 0, rest: 0, parts },
            spacing,
            step: ((spacing / parts) as u64, spacing % parts),
            jitter: Nanos(jitter),
            burst_end: Nanos::ZERO,
            silence: Nanos::ZERO,
            model: None,
            config,
        };
        match config.process {
            Process::Application { application, headers } => {
                let limits = (config.ip_len, config.rate);
                let model = Model::new(
                    (application, headers),
                    limits,
                    config.random_phase,
                    &mut source.dice,
                );
                source.model = Some(model);
            }
            Process::Poisson => source.step(),
            Process::Cbr { .. } | Process::OnOff { .. } if config.random_phase => {
                let phase = source.dice.within(0..(spacing / parts) as u64);
                source.due.nanos = phase;
            }
            Process::Cbr { .. } | Process::OnOff { .. } => {}
        }
        Ok(source)
    }

    /// The next packet; `None` when the source has stopped, and from then on.
    ///
    /// `now` only matters to a caller that has fallen behind: packets overdue by more than
    /// `catch_up` are left out and counted by [`Source::skipped`]. A caller that is never late gets
    /// the same packets whatever `now` it gives.
    pub fn next(&mut self, now: Nanos) -> Option<Emission> {
        while !self.stopped {
            let (at, ip_len) = self.due();
            if at >= self.config.stop {
                self.stopped = true;
                break;
            }
            self.step();
            if at.saturating_add(self.config.catch_up) < now {
                self.skipped += 1;
                continue;
            }
            let seq = self.seq;
            self.seq += 1;
            return Some(Emission { at, ip_len, seq });
        }
        None
    }

    /// Packets left out because the caller came too late for them.
    #[must_use]
    pub const fn skipped(&self) -> u64 {
        self.skipped
    }

    /// Packets given out.
    #[must_use]
    pub const fn emitted(&self) -> u64 {
        self.seq
    }

    /// The settings it was made from.
    #[must_use]
    pub const fn config(&self) -> &SourceConfig {
        &self.config
    }

    /// When the packet that is due comes, jitter and silences included, and how long it is.
    fn due(&mut self) -> (Nanos, Bytes) {
        let (offset, ip_len) = match &self.model {
            Some(model) => model.due(),
            None => (self.due_time(), self.config.ip_len),
        };
        (self.config.start.saturating_add(offset), ip_len)
    }

    /// When it comes, from the start of the source on.
    fn due_time(&mut self) -> Nanos {
        let due = Nanos(self.due.nanos);
        match self.config.process {
            Process::Poisson | Process::Application { .. } => due,
            Process::Cbr { .. } if self.jitter == Nanos::ZERO => due,
            Process::Cbr { .. } => due.saturating_add(Nanos(self.dice.within(0..self.jitter.0))),
            Process::OnOff { mean_on, mean_off } => {
                while due >= self.burst_end {
                    if self.burst_end > Nanos::ZERO {
                        let off = self.exponential_time(mean_off);
                        self.silence = self.silence.saturating_add(off);
                    }
                    // A burst that rounds to nothing would be drawn again for ever at the end of
                    // time.
                    let on = self.exponential_time(mean_on).max(Nanos(1));
                    self.burst_end = self.burst_end.saturating_add(on);
                    if self.burst_end == Nanos::MAX {
                        break;
                    }
                }
                due.saturating_add(self.silence)
            }
        }
    }

    /// Moves on to the packet after.
    fn step(&mut self) {
        if let Some(model) = &mut self.model {
            return model.step(&mut self.dice);
        }
        match self.config.process {
            Process::Poisson => {
                let gap = (self.spacing >> 32) * u128::from(self.dice.exponential());
                self.due.advance(gap);
            }
            _ => self.due.step(self.step),
        }
    }

    fn exponential_time(&mut self, mean: Nanos) -> Nanos {
        let product = u128::from(mean.0) * u128::from(self.dice.exponential());
        Nanos(u64::try_from(product / u128::from(ONE)).unwrap_or(u64::MAX))
    }
}
