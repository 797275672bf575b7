//! What people send while they talk, play and watch, packet by packet, by published models.
//!
//! | application | packets | model |
//! |---|---|---|
//! | call | speech at 12.2 kbit/s (AMR, RFC 4867): 44 bytes of RTP each 20 ms while one talks, 19 bytes each 160 ms while one is silent; both last 2 s on average, a frame of 20 ms ends either with probability 0.01 | NGMN Alliance, "Radio Access Performance Evaluation Methodology", 2008, Annex A, VoIP |
//! | game, to the player | extreme values: each 55 ms (scale 6 ms) 120 bytes (scale 36) | the same, Gaming; J. Färber, "Network game traffic modelling", NetGames 2002 |
//! | game, from the player | each 40 ms 45 bytes (extreme value, scale 5.7) | the same |
//! | video | frames at a constant rate, each of its packets at once; lengths normal, deviation 10.5 %, within 50 to 150 % of the mean; each up to 4 ms early or late, normal, deviation 2 ms | 3GPP TR 38.838 V17.0.0, Tables 5.1.1.1-1 and 5.1.1.2-1 |
//!
//! Lengths of calls and games are those of UDP payloads. What a distribution gives beyond its
//! bounds is drawn anew, as the models say.

use evenkeel_core::{BitRate, Bytes, Nanos};

use crate::random::{Dice, ONE};
use crate::variates::{extreme, normal};

/// Who sends what.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Application {
    /// One direction of a telephone call.
    Call,
    /// What a server tells a player.
    GameDown,
    /// What a player tells the server.
    GameUp,
    /// Moving pictures of a call, a cloud game or a head-mounted display, at the source's rate.
    Video {
        /// Frames per second, 1 to 120.
        frame_rate: u32,
    },
}

const MILLISECOND: u64 = 1_000_000;
/// Of speech.
const FRAME: u64 = 20 * MILLISECOND;
/// One of so many frames ends a talk, or a silence.
const FRAMES_PER_TURN: u64 = 100;
/// RTP with 244 bits of speech and 10 of RFC 4867.
const SPEECH: u64 = 12 + 32;
/// RTP with 39 bits of comfort noise and 10 of RFC 4867.
const NOISE: u64 = 12 + 7;
/// Frames from one description of noise to the next.
const NOISE_EVERY: u64 = 8;
/// Frames of a video are early or late by this at most.
const JITTER: i128 = 4 * MILLISECOND as i128;

impl Application {
    /// What it offers on average, in bits of IP packets per second, with `headers` of that many
    /// bytes; `None` for video, whose rate is given.
    #[must_use]
    pub fn mean_rate(self, headers: Bytes) -> Option<BitRate> {
        /// Euler's constant in millionths: the mean of an extreme value of scale one.
        const EULER: u64 = 577_216;
        let bits = |bytes: u64| 8 * (bytes + headers.0);
        let per_second = match self {
            Self::Call => (bits(SPEECH) + bits(NOISE) / NOISE_EVERY) * 25,
            Self::GameDown => {
                let bytes = 120 + (36 * EULER).div_ceil(1_000_000);
                bits(bytes) * 1_000_000_000 / (55_000_000 + 6 * EULER)
            }
            Self::GameUp => bits(45 + (57 * EULER).div_ceil(10_000_000)) * 25,
            Self::Video { .. } => return None,
        };
        Some(BitRate(per_second))
    }
}

/// An application that sends: the packet that is due, and what comes after.
#[derive(Clone, Debug)]
pub(crate) struct Model {
    application: Application,
    /// Of IP and UDP, bytes.
    headers: u64,
    /// The longest IP packet.
    longest: u64,
    /// Bits of IP packets per second, of a video.
    rate: BitRate,
    /// When the packet that is due comes, from the start of the source on, and its length.
    at: u64,
    ip_len: u64,
    /// Speech: the next frame. Games: the next packet. Video: frame 0.
    tick: u64,
    talks: bool,
    /// Speech: frames since the last description of noise. Video: frames so far.
    frames: u64,
    /// Bytes of a video's frame that are still to be sent.
    left: u64,
}

impl Model {
    /// Before its first packet; with a random phase unless that is switched off.
    pub(crate) fn new(
        (application, headers): (Application, Bytes),
        (longest, rate): (Bytes, BitRate),
        random_phase: bool,
        dice: &mut Dice,
    ) -> Self {
        let period = match application {
            Application::Call => FRAME,
            // The first packet of a game: uniform within 40 ms.
            Application::GameDown | Application::GameUp => 40 * MILLISECOND,
            Application::Video { frame_rate } => 1_000 * MILLISECOND / u64::from(frame_rate.max(1)),
        };
        let mut model = Self {
            application,
            headers: headers.0,
            longest: longest.0,
            rate,
            at: 0,
            ip_len: 0,
            tick: if random_phase { dice.within(0..period) } else { 0 },
            talks: dice.fraction() >> 63 == 0,
            frames: 0,
            left: 0,
        };
        model.step(dice);
        model
    }

    /// When the packet that is due comes, from the start of the source on, and how long it is.
    pub(crate) const fn due(&self) -> (Nanos, Bytes) {
        (Nanos(self.at), Bytes(self.ip_len))
    }

    /// On to the packet after.
    pub(crate) fn step(&mut self, dice: &mut Dice) {
        match self.application {
            Application::Call => self.speak(dice),
            Application::GameDown => self.play((55, 6_000_000), (120, 36_000), dice),
            Application::GameUp => self.play((40, 0), (45, 5_700), dice),
            Application::Video { frame_rate } => self.show(u64::from(frame_rate.max(1)), dice),
        }
    }

    fn packet(&mut self, payload: u64) {
        self.at = self.tick;
        self.ip_len = (self.headers + payload).clamp(1, self.longest);
    }

    fn speak(&mut self, dice: &mut Dice) {
        loop {
            if dice.within(0..FRAMES_PER_TURN) == 0 {
                (self.talks, self.frames) = (!self.talks, 0);
            }
            let told = !self.talks && self.frames.is_multiple_of(NOISE_EVERY);
            if self.talks || told {
                self.packet(if self.talks { SPEECH } else { NOISE });
            }
            self.tick = self.tick.saturating_add(FRAME);
            self.frames += 1;
            // At the end of time nothing more is due.
            if self.talks || told || self.tick == u64::MAX {
                return;
            }
        }
    }

    /// A gap of so many milliseconds (scale in nanoseconds), a payload of so many bytes (scale in
    /// thousandths).
    fn play(&mut self, gap: (u64, i128), payload: (u64, i128), dice: &mut Dice) {
        let one = i128::from(ONE);
        let bytes = i128::from(payload.0) + payload.1 * extreme(dice) / one / 1_000;
        self.packet(bytes.clamp(0, i128::from(self.longest)) as u64);
        let mut nanos = i128::from(gap.0 * MILLISECOND);
        if gap.1 > 0 {
            nanos += gap.1 * extreme(dice) / one;
        }
        self.tick = self.tick.saturating_add(nanos.max(0) as u64);
    }

    fn show(&mut self, frame_rate: u64, dice: &mut Dice) {
        if self.left == 0 {
            let times = u128::from(self.frames) * 1_000_000_000 / u128::from(frame_rate);
            let regular = self.tick.saturating_add(u64::try_from(times).unwrap_or(u64::MAX));
            let late = JITTER + within(JITTER, || 2 * i128::from(MILLISECOND) * normal(dice));
            self.at = regular.saturating_add(late as u64);
            // Its deviation from the mean, in thousandths.
            let deviation = within(500, || 105 * normal(dice));
            let bits = i128::from(self.rate.0) * (1_000 + deviation);
            self.left = (bits / 8_000 / i128::from(frame_rate)).max(1) as u64;
            self.frames += 1;
        }
        self.ip_len = self.left.min(self.longest);
        self.left -= self.ip_len;
    }
}

/// A variate in units of 2^-32 that is drawn again until its whole part is within ± `bound`.
fn within(bound: i128, mut draw: impl FnMut() -> i128) -> i128 {
    loop {
        let drawn = draw() / i128::from(ONE);
        if drawn.abs() <= bound {
            return drawn;
        }
    }
}
