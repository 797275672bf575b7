//! A link under load whose knobs a law turns, in virtual time: the real `Link` and `Lct`, seeded
//! sources, and a second opinion on the indexes, measured over windows of one second as the
//! specification has it, whatever the law measures.
#![allow(unreachable_pub, reason = "shared by the tests of this program")]

use evenkeel_core::control::{ControlConfig, Controller};
use evenkeel_core::link::{Link, LinkConfig, RingConfig};
use evenkeel_core::measure::Qostat;
use evenkeel_core::measure::congestion::{ClassIndex, Loss, Measured, Sensitivity, Smoother};
use evenkeel_core::packet::Descriptor;
use evenkeel_core::schedule::Scheduler;
use evenkeel_core::schedule::lct::MultiBacklog;
use evenkeel_core::schedule::lct::{Lct, LctConfig};
use evenkeel_core::schedule::wfq_altq::{WfqAltq, WfqAltqConfig};
use evenkeel_core::settings::Change;
use evenkeel_core::settings::PerClass;
use evenkeel_core::{BitRate, Bytes, Class, Nanos, Weight};

pub const RATE: BitRate = BitRate(10_000_000);
const SECOND: u64 = 1_000_000_000;
pub type Loop = Link<Descriptor, Lct<Descriptor>>;

/// Seeded, the same on every machine (xorshift64*).
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32
    }
    /// Exponentially distributed around `mean`, by comparisons alone (von Neumann, 1951).
    pub fn exponential(&mut self, mean: u64) -> u64 {
        let mut whole = 0;
        loop {
            let first = self.next();
            let (mut last, mut run) = (first, 1);
            loop {
                let next = self.next();
                if next >= last {
                    break;
                }
                last = next;
                run += 1;
            }
            if run % 2 == 1 {
                return whole * mean + ((u128::from(first) * u128::from(mean)) >> 32) as u64;
            }
            whole += 1;
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Arrivals {
    Poisson,
    /// Spacing even but for a tenth.
    Jittered,
    /// Bursts of ten packets, Poisson.
    Bursts,
}

/// A class and its share of the offered load.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    pub name: &'static str,
    pub sensitivity: Sensitivity,
    pub share: f64,
    pub size: u64,
    pub arrivals: Arrivals,
}

pub fn part(name: &'static str, share: f64, size: u64, arrivals: Arrivals) -> Part {
    Part { name, sensitivity: Sensitivity::by_name(name), share, size, arrivals }
}

/// Who turns the knobs.
#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant, reason = "a test has a few of them")]
pub enum Law {
    Off,
    Controller(ControlConfig),
    Sketch,
    /// Nobody: these X, and this queue limit of each class, all the time.
    Static(Vec<Nanos>, u32),
}

/// X upward only: the law as it was first written down. Every second: the neediest class has X = 0,
/// all others X + 200 us times what their index lies below its, within 10 us and 20 ms.
struct Sketch {
    x: Vec<u64>,
    neediest: Option<usize>,
}

impl Sketch {
    fn step(&mut self, index: &[(bool, ClassIndex)]) -> Vec<Change> {
        let ci = |c: usize| index[c].1.delay.as_f64();
        let active: Vec<usize> = (0..index.len()).filter(|c| index[*c].0).collect();
        let Some(worst) =
            active.iter().copied().max_by(|a, b| ci(*a).total_cmp(&ci(*b)).then(b.cmp(a)))
        else {
            return Vec::new();
        };
        if ci(worst) == 0.0 {
            active.iter().for_each(|c| self.x[*c] /= 2);
        } else {
            let kept = self.neediest.filter(|m| active.contains(m) && ci(worst) <= 1.1 * ci(*m));
            let m = kept.unwrap_or(worst);
            self.neediest = Some(m);
            for c in active {
                let raised = self.x[c] as f64 + 200_000.0 * (ci(m) - ci(c));
                self.x[c] = if c == m { 0 } else { (raised as u64).clamp(10_000, 20_000_000) };
            }
        }
        self.x
            .iter()
            .enumerate()
            .map(|(c, x)| Change::of("x_delay", Class(c as u16), Nanos(*x)))
            .collect()
    }
}

/// One second of one run.
#[derive(Clone, Debug)]
pub struct Second {
    pub index: Vec<ClassIndex>,
    /// Of this second alone: the indexes above remember some four.
    pub alone: Vec<ClassIndex>,
    pub x: Vec<Nanos>,
    pub limit: Vec<u32>,
}

pub struct Run {
    pub seconds: Vec<Second>,
    pub link: Loop,
    pub controller: Option<Controller>,
}

pub fn new_link(classes: usize, limit: u32) -> Loop {
    new_link_of(RATE, vec![Nanos::ZERO; classes], limit)
}

fn new_link_of(rate: BitRate, x: Vec<Nanos>, limit: u32) -> Loop {
    let classes = x.len();
    let lct = Lct::new(LctConfig {
        limit: PerClass::all(limit),
        multi_backlog: MultiBacklog::MinX,
        ..LctConfig::with_delays(x)
    });
    Link::new(link_of(rate), lct.unwrap(), classes as u16).unwrap()
}

fn link_of(rate: BitRate) -> LinkConfig {
    LinkConfig { ring: RingConfig { slots: 2, ..RingConfig::default() }, ..LinkConfig::paced(rate) }
}

pub fn config_for(parts: &[Part]) -> ControlConfig {
    ControlConfig::new(parts.iter().map(|p| p.sensitivity).collect())
}

/// Runs `parts` at `load(second, class)` times their share of the link for so many seconds under
/// `law`. `check` sees the link after every step of control.
pub fn run(
    parts: &[Part],
    load: &dyn Fn(u64, usize) -> f64,
    seconds: u64,
    law: &Law,
    seed: u64,
    check: impl FnMut(&Controller, &Loop),
) -> Run {
    run_at(RATE, parts, load, seconds, law, seed, check)
}

/// The same on a link of another rate.
pub fn run_at(
    rate: BitRate,
    parts: &[Part],
    load: &dyn Fn(u64, usize) -> f64,
    seconds: u64,
    law: &Law,
    seed: u64,
    mut check: impl FnMut(&Controller, &Loop),
) -> Run {
    let classes = parts.len();
    let mut link = match law {
        Law::Static(x, limit) => new_link_of(rate, x.clone(), *limit),
        _ => new_link_of(rate, vec![Nanos::ZERO; classes], 50),
    };
    let mut controller = match law {
        Law::Controller(config) => Some(
            Controller::new(
                config.clone(),
                Nanos::ZERO,
                &vec![Nanos::ZERO; classes],
                &vec![50; classes],
                link.qostat(),
            )
            .unwrap(),
        ),
        _ => None,
    };
    let mut sketch = Sketch { x: vec![0; classes], neediest: None };
    let turn = |link: &mut Loop, tick: Tick| {
        match (tick, &mut controller) {
            (Tick::Due(now), Some(controller)) => {
                controller.run(now, link, &mut ()).unwrap();
                check(controller, link);
            }
            (Tick::Second(now, seen), _) if matches!(law, Law::Sketch) => {
                for knob in sketch.step(seen) {
                    link.set(now, &knob, &mut ()).unwrap();
                }
            }
            _ => {}
        }
        controller.as_ref().map_or(Nanos(u64::MAX), Controller::due)
    };
    let knobs = |link: &Loop| {
        let classes = (0..classes as u16).map(Class);
        let x = classes.clone().map(|c| link.scheduler().x_delay(c).unwrap());
        (x.collect(), classes.map(|c| link.scheduler().limit(c).unwrap()).collect())
    };
    let seconds = drive(&mut link, (parts, load, seed), seconds, turn, knobs);
    Run { seconds, link, controller }
}

/// The same under WFQ/ALTQ with these weights and this queue limit of each class.
pub fn run_wfq(
    parts: &[Part],
    load: &dyn Fn(u64, usize) -> f64,
    seconds: u64,
    (weights, limit): (Vec<Weight>, u32),
    seed: u64,
) -> Vec<Second> {
    let config =
        WfqAltqConfig { limit: PerClass::all(limit), ..WfqAltqConfig::with_weights(weights) };
    let mut link =
        Link::new(link_of(RATE), WfqAltq::new(config).unwrap(), parts.len() as u16).unwrap();
    let knobs = |_: &Link<_, _>| (Vec::new(), Vec::new());
    drive(&mut link, (parts, load, seed), seconds, |_, _| Nanos(u64::MAX), knobs)
}

/// What whoever turns the knobs hears of.
enum Tick<'a> {
    Start,
    /// What it wanted to do by now.
    Due(Nanos),
    /// The end of a second: who had traffic, and the indexes.
    Second(Nanos, &'a [(bool, ClassIndex)]),
}

/// Runs a link under load. `turn` gives the time it wants to be called again.
fn drive<S: Scheduler<Descriptor>>(
    link: &mut Link<Descriptor, S>,
    (parts, load, seed): (&[Part], &dyn Fn(u64, usize) -> f64, u64),
    seconds: u64,
    mut turn: impl FnMut(&mut Link<Descriptor, S>, Tick<'_>) -> Nanos,
    knobs: impl Fn(&Link<Descriptor, S>) -> (Vec<Nanos>, Vec<u32>),
) -> Vec<Second> {
    let classes = parts.len();
    let rate = link.config().rate.unwrap();
    let mut random: Vec<Random> =
        (0..classes).map(|c| Random::new(seed * 101 + c as u64)).collect();
    let mut next: Vec<u64> = (0..classes as u64).map(|c| 1_000 + c * 37_000).collect();
    let mut smooth = vec![(Smoother::default(), Smoother::default()); classes];
    let mut before = Qostat::new(classes as u16);
    let mut out = Vec::new();
    let mut end_of_second = SECOND;
    let mut due = turn(link, Tick::Start);
    loop {
        let (class, arrival) = next.iter().copied().enumerate().min_by_key(|(_, at)| *at).unwrap();
        let now = arrival.min(due.0).min(end_of_second);
        if now == end_of_second {
            link.advance(Nanos(now), &mut ());
            let window = link.qostat().since(&before);
            before = link.qostat().clone();
            let (mut seen, mut alone) = (Vec::new(), Vec::new());
            for (c, part) in parts.iter().enumerate() {
                let meter = window.class(Class(c as u16));
                let (delay, loss) = &mut smooth[c];
                if let Some(mean) = meter.delay_mean() {
                    delay.take(mean.0, 1 << 14);
                }
                let all = meter.out_packets + meter.dropped_packets();
                let lost = Loss::of(meter.dropped_packets(), all);
                loss.take(lost.bits().into(), 1 << 14);
                let index = |delay, loss| part.sensitivity.index(Measured { delay, loss });
                alone.push(index(meter.delay_mean().unwrap_or_default(), lost));
                let delay = Nanos(delay.value().unwrap_or(0));
                let loss = Loss::from_bits(loss.value().unwrap_or(0) as u32);
                seen.push((meter.in_packets > 0, index(delay, loss)));
            }
            due = turn(link, Tick::Second(Nanos(now), &seen));
            let (x, limit) = knobs(link);
            let index = seen.into_iter().map(|(_, index)| index).collect();
            out.push(Second { index, alone, x, limit });
            if out.len() as u64 == seconds {
                return out;
            }
            end_of_second += SECOND;
            continue;
        }
        if now == due.0 {
            due = turn(link, Tick::Due(due));
            continue;
        }
        let part = &parts[class];
        let load = load(now / SECOND, class) * part.share;
        if load <= 0.0 {
            next[class] = (now / SECOND + 1) * SECOND + class as u64;
            continue;
        }
        let train = if part.arrivals == Arrivals::Bursts { 10 } else { 1 };
        for _ in 0..train {
            let packet = Descriptor::new(Class(class as u16), Bytes(part.size), Nanos(now));
            let _ = link.enqueue(Nanos(now), packet, &mut ());
        }
        let mean = (rate.time_for(Bytes(part.size + 38)).0 as f64 / load) as u64 * train;
        let r = &mut random[class];
        next[class] = now
            + 1
            + match part.arrivals {
                Arrivals::Jittered => mean - mean / 20 + r.next() % (mean / 10 + 1),
                Arrivals::Poisson | Arrivals::Bursts => r.exponential(mean),
            };
    }
}

/// The mixes of the sweep.
pub fn mixes() -> Vec<(&'static str, Vec<Part>)> {
    use Arrivals::{Bursts, Jittered, Poisson};
    vec![
        (
            "even",
            vec![
                part("voice", 0.33, 200, Poisson),
                part("video", 0.33, 1200, Poisson),
                part("bulk", 0.34, 1500, Poisson),
            ],
        ),
        (
            "voice-heavy",
            vec![
                part("voice", 0.6, 200, Poisson),
                part("video", 0.2, 1200, Poisson),
                part("bulk", 0.2, 1500, Poisson),
            ],
        ),
        (
            "bulk-heavy",
            vec![
                part("voice", 0.05, 200, Jittered),
                part("video", 0.25, 1200, Poisson),
                part("bulk", 0.7, 1500, Poisson),
            ],
        ),
        (
            "video-heavy",
            vec![
                part("voice", 0.1, 200, Jittered),
                part("video", 0.7, 1200, Poisson),
                part("bulk", 0.2, 1500, Poisson),
            ],
        ),
        (
            "four",
            vec![
                part("bulk", 0.4, 1500, Poisson),
                part("voice", 0.1, 200, Jittered),
                part("video", 0.3, 1200, Bursts),
                part("interactive", 0.2, 600, Poisson),
            ],
        ),
        ("same", vec![part("video", 0.5, 1200, Poisson), part("video", 0.5, 1200, Poisson)]),
        ("one size", vec![part("voice", 0.5, 1428, Jittered), part("bulk", 0.5, 1428, Jittered)]),
    ]
}

/// How far the index of a class swings in the seconds from `from` on: the amplitude of the sine
/// with the same variance, and the mean it swings about.
pub fn swing(run: &Run, class: usize, from: usize) -> (f64, f64) {
    let values: Vec<f64> =
        run.seconds[from..].iter().map(|s| s.index[class].worst().as_f64()).collect();
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let variance = values.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / n;
    ((2.0 * variance).sqrt(), mean)
}
