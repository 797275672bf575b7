//! How large the window is: Reno (RFC 5681), CUBIC (RFC 9438) and DCTCP (RFC 8257), in whole
//! numbers.
//!
//! | symbol | here | unit |
//! |---|---|---|
//! | cwnd, ssthresh, W_max, W_est, cwnd_prior | fields of those names | bytes |
//! | SMSS | `mss` | bytes |
//! | C = 0.4, beta = 0.7, alpha = 3 (1 - beta) / (1 + beta) = 9/17 | as fractions | segments/s^3, –, – |
//! | t, K | microseconds | |
//!
//! W_cubic(t) = C (t - K)^3 + W_max (eq. 1), K = cbrt((W_max - cwnd_epoch) / C) (eq. 2). No number
//! is a floating-point one, so a run is the same on every machine; the cube root is Newton's, of
//! integers.

use evenkeel_core::Nanos;

/// Initial window in segments (RFC 6928).
const INITIAL_WINDOW: u64 = 10;
/// Smallest ssthresh in segments (RFC 5681, eq. 4).
const SMALLEST: u64 = 2;
/// Windows stay below: no product overflows.
const LARGEST: u64 = 1 << 40;

/// Which congestion control.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Congestion {
    /// RFC 5681.
    Reno,
    /// RFC 9438.
    Cubic {
        /// Give way faster to flows that have just come (4.7). Of no use, and at a cost, to a flow
        /// that meets nothing but random loss.
        fast_convergence: bool,
    },
    /// RFC 8257: Reno that gives way to marks by the part of the bytes that were marked.
    Dctcp,
}

/// 1, of which DCTCP's alpha is a part.
const ONE: u64 = 1 << 20;
/// 1/g of RFC 8257, 3.3.
const GAIN_SHIFT: u32 = 4;

/// The part of the bytes that came marked lately.
#[derive(Clone, Copy, Debug)]
struct Alpha {
    /// Of [`ONE`].
    value: u64,
    acked: u64,
    marked: u64,
}

/// The window of one connection.
#[derive(Clone, Debug)]
pub(super) struct Window {
    mss: u64,
    cwnd: u64,
    ssthresh: u64,
    /// Bytes acknowledged that have not yet made the window grow: in bytes times bytes for CUBIC.
    credit: u128,
    cubic: Option<Cubic>,
    dctcp: Option<Alpha>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Cubic {
    fast_convergence: bool,
    w_max: u64,
    cwnd_prior: u64,
    /// After a time-out W_max is where congestion avoidance begins, and K is 0 (4.8).
    after_timeout: bool,
    /// Since when congestion avoidance lasts, and K; not while slow start or recovery do.
    epoch: Option<(Nanos, u64)>,
    w_est: u64,
    est_credit: u128,
}

impl Window {
    pub(super) fn new(congestion: Congestion, mss: u32) -> Self {
        let mss = u64::from(mss);
        let cubic = match congestion {
            Congestion::Reno | Congestion::Dctcp => None,
            // Without a loss yet, congestion avoidance can only begin where it is.
            Congestion::Cubic { fast_convergence } => {
                Some(Cubic { fast_convergence, after_timeout: true, ..Cubic::default() })
            }
        };
        // Without a window of marks yet the first one halves it (3.3).
        let dctcp =
            (congestion == Congestion::Dctcp).then_some(Alpha { value: ONE, acked: 0, marked: 0 });
        Self { mss, cwnd: INITIAL_WINDOW * mss, ssthresh: u64::MAX, credit: 0, cubic, dctcp }
    }

    /// Bytes that may be in flight.
    pub(super) const fn bytes(&self) -> u64 {
        self.cwnd
    }

    /// `acked` bytes were acknowledged outside of recovery while the window was what held the
    /// sender back.
    pub(super) fn acknowledged(&mut self, now: Nanos, acked: u64, rtt: Nanos) {
        let mut acked = acked;
        if self.cwnd < self.ssthresh {
            let grow = acked.min(2 * self.mss).min(self.ssthresh - self.cwnd);
            self.cwnd = (self.cwnd + grow).min(LARGEST);
            if self.cwnd < self.ssthresh {
                return;
            }
            acked -= grow;
        }
        match self.cubic.as_mut() {
            None => {
                // A segment for each window's worth of bytes.
                self.credit += u128::from(acked);
                if self.credit >= u128::from(self.cwnd) {
                    self.credit -= u128::from(self.cwnd);
                    self.cwnd = (self.cwnd + self.mss).min(LARGEST);
                }
            }
            Some(cubic) => {
                let (cwnd, mss) = (self.cwnd, self.mss);
                self.cwnd =
                    cubic.grown(now, acked, rtt, cwnd, mss, &mut self.credit).clamp(cwnd, LARGEST);
            }
        }
    }

    /// A segment is lost; `flight` bytes were on their way. Called once per window of data.
    pub(super) fn lost(&mut self, flight: u64) {
        self.reduce(flight);
        self.cwnd = self.ssthresh;
    }

    /// So many bytes were acknowledged, by an acknowledgement that told of marks or not; `round`
    /// when all that was in flight at the last one has been.
    pub(super) fn told(&mut self, acked: u64, marked: bool, round: bool) {
        let Some(alpha) = &mut self.dctcp else { return };
        alpha.acked += acked;
        alpha.marked += if marked { acked } else { 0 };
        if round && alpha.acked > 0 {
            let part = alpha.marked.saturating_mul(ONE) / alpha.acked;
            alpha.value = alpha.value - (alpha.value >> GAIN_SHIFT) + (part >> GAIN_SHIFT);
            (alpha.acked, alpha.marked) = (0, 0);
        }
    }

    /// Marks were told of; `flight` bytes were on their way. Called once per window of data.
    pub(super) fn marked(&mut self, flight: u64) {
        let Some(alpha) = self.dctcp else { return self.lost(flight) };
        let less = u128::from(self.cwnd) * u128::from(alpha.value) / u128::from(2 * ONE);
        self.cwnd = (self.cwnd - less as u64).max(SMALLEST * self.mss);
        self.ssthresh = self.cwnd;
    }

    /// Whether it grows while it has just been reduced for marks: where it is reduced in each
    /// round trip it would never grow otherwise.
    pub(super) const fn grows_between_marks(&self) -> bool {
        self.dctcp.is_some()
    }

    /// The retransmission timer has run off; `first` unless it ran off before and nothing has been
    /// acknowledged since.
    pub(super) fn timed_out(&mut self, flight: u64, first: bool) {
        if first {
            self.reduce(flight);
        }
        if let Some(cubic) = &mut self.cubic {
            cubic.after_timeout = true;
        }
        self.cwnd = self.mss;
    }

    fn reduce(&mut self, flight: u64) {
        self.credit = 0;
        let kept = match &mut self.cubic {
            None => flight / 2,
            Some(cubic) => {
                cubic.w_max = if cubic.fast_convergence && flight < cubic.w_max {
                    // W_max = cwnd (1 + beta) / 2.
                    flight * 17 / 20
                } else {
                    flight
                };
                cubic.cwnd_prior = flight;
                cubic.after_timeout = false;
                cubic.epoch = None;
                flight * 7 / 10
            }
        };
        self.ssthresh = kept.max(SMALLEST * self.mss);
    }
}

impl Cubic {
    /// The window after `acked` more bytes.
    fn grown(
        &mut self,
        now: Nanos,
        acked: u64,
        rtt: Nanos,
        cwnd: u64,
        mss: u64,
        credit: &mut u128,
    ) -> u64 {
        let (since, k) = match self.epoch {
            Some(epoch) => epoch,
            None => {
                if self.after_timeout {
                    self.w_max = cwnd;
                    self.after_timeout = false;
                }
                let epoch = (now, root_of_distance(self.w_max.saturating_sub(cwnd), mss));
                self.epoch = Some(epoch);
                self.w_est = cwnd;
                self.est_credit = 0;
                *credit = 0;
                epoch
            }
        };
        let elapsed = now.saturating_sub(since);
        // 4.3: W_est = W_est + alpha acked / cwnd, in segments; alpha is 1 once it has reached the
        // window before the loss.
        let (alpha, of) = if self.w_est < self.cwnd_prior { (9, 17) } else { (1, 1) };
        self.est_credit += u128::from(acked) * u128::from(mss) * alpha;
        let step = self.est_credit / (u128::from(cwnd) * of);
        self.est_credit -= step * u128::from(cwnd) * of;
        self.w_est = self.w_est.saturating_add(step as u64).min(LARGEST);
        if self.curve(elapsed, k, mss) < self.w_est {
            *credit = 0;
            return cwnd.max(self.w_est);
        }
        // 4.4, 4.5: towards the curve one round trip ahead, by at most half a window per window.
        let target = self.curve(elapsed.saturating_add(rtt), k, mss).clamp(cwnd, cwnd + cwnd / 2);
        *credit += u128::from(target - cwnd) * u128::from(acked);
        let step = *credit / u128::from(cwnd);
        *credit -= step * u128::from(cwnd);
        cwnd + step as u64
    }

    /// W_cubic at `t`, with `k` in microseconds.
    fn curve(&self, t: Nanos, k: u64, mss: u64) -> u64 {
        // An hour past the plateau the window is beyond every bound, and the cube still fits.
        let distance =
            (i128::from(t.0 / 1_000) - i128::from(k)).clamp(-3_600_000_000, 3_600_000_000);
        let cube = distance * distance * distance;
        // C = 0.4 segments per cubic second.
        let offset = cube / 1_000_000 * i128::from(4 * mss) / 10_000_000_000_000;
        (i128::from(self.w_max) + offset).clamp(0, i128::from(LARGEST)) as u64
    }
}

/// K for a distance of `bytes` from W_max, in microseconds.
fn root_of_distance(bytes: u64, mss: u64) -> u64 {
    // segments / 0.4 in cubic seconds, in cubic microseconds.
    cube_root(u128::from(bytes) * 10_u128.pow(18) * 5 / (2 * u128::from(mss)))
}

/// The largest whole number whose cube is not above `n`: Newton's method from above, which then
/// only falls.
fn cube_root(n: u128) -> u64 {
    if n == 0 {
        return 0;
    }
    let mut root: u128 = 1 << (128 - n.leading_zeros()).div_ceil(3);
    loop {
        let next = (2 * root + n / (root * root)) / 3;
        if next >= root {
            return root as u64;
        }
        root = next;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MSS: u64 = 1_000;

    #[test]
    fn cube_roots_are_exact() {
        for root in (0..2_000u128).chain([10_000_019, (1 << 41) + 7]) {
            let cube = root * root * root;
            assert_eq!(u128::from(cube_root(cube)), root);
            assert_eq!(u128::from(cube_root(cube + 3 * root * root)), root);
            if root > 0 {
                assert_eq!(u128::from(cube_root(cube - 1)), root - 1);
            }
        }
    }

    /// Acknowledges a whole window, segment by segment.
    fn round(window: &mut Window, now: Nanos, rtt: Nanos) {
        for _ in 0..window.bytes() / MSS {
            window.acknowledged(now, MSS, rtt);
        }
    }

    #[test]
    fn reno_doubles_then_adds_one_segment_per_round_and_halves() {
        let mut window = Window::new(Congestion::Reno, MSS as u32);
        assert_eq!(window.bytes(), 10 * MSS);
        round(&mut window, Nanos::ZERO, Nanos::ZERO);
        assert_eq!(window.bytes(), 20 * MSS);
        window.lost(20 * MSS);
        assert_eq!(window.bytes(), 10 * MSS);
        for segments in 11..=30 {
            round(&mut window, Nanos::ZERO, Nanos::ZERO);
            assert_eq!(window.bytes(), segments * MSS);
        }
        window.timed_out(30 * MSS, true);
        assert_eq!((window.bytes(), window.ssthresh), (MSS, 15 * MSS));
        window.timed_out(MSS, false);
        assert_eq!(window.ssthresh, 15 * MSS, "held while the same segment times out");
        window.lost(MSS);
        assert_eq!(window.bytes(), 2 * MSS, "never below two segments");
    }

    #[test]
    fn cubic_comes_back_to_its_plateau_after_k_and_stays_there_a_while() {
        let rtt = Nanos::from_millis(100);
        let mut window = Window::new(Congestion::Cubic { fast_convergence: false }, MSS as u32);
        window.cwnd = 1_000 * MSS;
        window.lost(1_000 * MSS);
        assert_eq!(window.bytes(), 700 * MSS);
        // K = cbrt(300 / 0.4) = 9.0856 s. Half way: 1000 - 0.4 (K/2)^3 = 962.5 segments.
        let mut at = |from: u64, to: u64| {
            for tenth in from..to {
                round(&mut window, Nanos::from_millis(100 * tenth), rtt);
            }
            window.bytes() as f64 / MSS as f64
        };
        assert!((at(0, 45) - 962.5).abs() < 4.0);
        assert!((at(45, 91) - 1_000.0).abs() < 1.0);
        // As far past K as the loss was before it: 1000 + 300.
        assert!((at(91, 182) - 1_300.0).abs() < 12.0);
    }

    #[test]
    fn fast_convergence_lowers_the_plateau_only_on_the_way_down() {
        let mut window = Window::new(Congestion::Cubic { fast_convergence: true }, MSS as u32);
        window.lost(100 * MSS);
        assert_eq!(window.cubic.expect("it is").w_max, 100 * MSS);
        window.lost(80 * MSS);
        assert_eq!(window.cubic.expect("it is").w_max, 68 * MSS);
        window.lost(90 * MSS);
        assert_eq!(window.cubic.expect("it is").w_max, 90 * MSS);
    }

    #[test]
    fn cubic_is_never_slower_than_reno_would_be() {
        // 10 ms and 20 segments: the cubic curve is far below the Reno-friendly estimate.
        let rtt = Nanos::from_millis(10);
        let mut window = Window::new(Congestion::Cubic { fast_convergence: false }, MSS as u32);
        window.lost(20 * MSS);
        assert_eq!(window.bytes(), 14 * MSS);
        for n in 0..12 {
            round(&mut window, Nanos::from_millis(10 * n), rtt);
        }
        // 9/17 of a segment per round.
        let segments = window.bytes() as f64 / MSS as f64;
        assert!((segments - (14.0 + 12.0 * 9.0 / 17.0)).abs() < 0.6, "{segments}");
    }
}
