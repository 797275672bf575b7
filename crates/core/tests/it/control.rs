//! Dynamic control in closed loop with the real link and LCT-UC, in virtual time.

use crate::closed_loop::{
    Arrivals, Law, Loop, Part, Run, Second, config_for, mixes, new_link, part, run, run_at,
    run_wfq, swing,
};
use evenkeel_core::control::lct::XDelayConfig;
use evenkeel_core::control::queue_limits::QueueLimitConfig;
use evenkeel_core::control::{ControlConfig, ControlError, Controller, Observation};
use evenkeel_core::measure::congestion::{Aggregate, ClassIndex, Index, Sensitivity};
use evenkeel_core::packet::Descriptor;
use evenkeel_core::schedule::lct::X_DELAY_RANGE;
use evenkeel_core::settings::SettingError;
use evenkeel_core::settings::Value;
use evenkeel_core::{BitRate, Bytes, Class, Fraction, Nanos, Reason, Weight};
use proptest::prelude::*;
use std::sync::OnceLock;

const LOADS: [f64; 8] = [0.6, 0.8, 0.9, 1.0, 1.1, 1.2, 1.4, 1.6];
/// Seconds that the loop has to settle.
const SETTLE: usize = 10;
const SECONDS: u64 = 60;

/// An index swings if the sine with the variance that its seconds have has an amplitude above a
/// tenth of an index, or above a tenth of its mean where that is above 1.
fn swings(run: &Run, class: usize) -> bool {
    let (amplitude, mean) = swing(run, class, SETTLE);
    amplitude > 0.1 * mean.max(1.0)
}

/// Sources whose own noise is small: what then swings is the loop.
fn even(parts: &[Part]) -> Vec<Part> {
    parts.iter().map(|part| Part { arrivals: Arrivals::Jittered, ..*part }).collect()
}

/// What came of a mix at a load: name, mean index, amplitude of each class, and whether it swings.
struct Cell {
    mix: &'static str,
    load: f64,
    classes: Vec<(&'static str, f64, f64, bool)>,
}

impl Cell {
    fn of(mix: &'static str, load: f64, parts: &[Part], run: &Run) -> Self {
        let class = |(class, part): (usize, &Part)| {
            let (amplitude, mean) = swing(run, class, SETTLE);
            (part.name, mean, amplitude, swings(run, class))
        };
        Self { mix, load, classes: parts.iter().enumerate().map(class).collect() }
    }

    fn swung(&self) -> usize {
        self.classes.iter().filter(|(.., swings)| *swings).count()
    }

    fn text(&self) -> String {
        let class = |(name, mean, amplitude, _): &(&str, f64, f64, bool)| {
            format!("{name} {mean:.2} ±{amplitude:.2}")
        };
        self.classes.iter().map(class).collect::<Vec<_>>().join("<br>")
    }
}

/// Every mix at every load under the controller, once for all tests.
fn controlled() -> &'static [Cell] {
    static CELLS: OnceLock<Vec<Cell>> = OnceLock::new();
    CELLS.get_or_init(|| {
        let mut cells = Vec::new();
        for (name, parts) in mixes() {
            let parts = even(&parts);
            for load in LOADS {
                let law = Law::Controller(config_for(&parts));
                let run = run(&parts, &|_, _| load, SECONDS, &law, 1, in_range);
                cells.push(Cell::of(name, load, &parts, &run));
            }
        }
        cells
    })
}

/// The same under the law that moves X upward only, above the link's rate.
fn upward_only() -> &'static [Cell] {
    static CELLS: OnceLock<Vec<Cell>> = OnceLock::new();
    CELLS.get_or_init(|| {
        let mut cells = Vec::new();
        for (name, parts) in mixes() {
            let parts = even(&parts);
            for load in LOADS.into_iter().filter(|load| *load > 1.0) {
                let run = run(&parts, &|_, _| load, SECONDS, &Law::Sketch, 1, |_, _| {});
                cells.push(Cell::of(name, load, &parts, &run));
            }
        }
        cells
    })
}

#[test]
fn no_index_swings_ten_seconds_after_the_start_at_any_load() {
    for cell in controlled() {
        assert_eq!(cell.swung(), 0, "{} at {}: {}", cell.mix, cell.load, cell.text());
    }
}

#[test]
fn raising_x_only_swings_in_the_same_loop() {
    let swung: usize = upward_only().iter().map(Cell::swung).sum();
    let cells: usize = upward_only().iter().map(|cell| cell.classes.len()).sum();
    println!("the one-sided law swings in {swung} of {cells}");
    assert!(swung * 3 > cells, "{swung} of {cells}");
}

/// The page had the numbers of an interval that was no longer the default.
#[test]
fn the_table_of_indexes_in_the_page_is_what_is_measured() {
    const BEGIN: &str = "<!-- measured: begin -->\n";
    const END: &str = "<!-- measured: end -->";
    let mut table = "| mix | load | signed law | upward only |\n|---|---|---|---|\n".to_owned();
    for upward in upward_only() {
        let same = |cell: &&Cell| (cell.mix, cell.load) == (upward.mix, upward.load);
        let signed = controlled().iter().find(same).unwrap();
        let (mix, load) = (upward.mix, upward.load);
        table += &format!("| {mix} | {load:.1} | {} | {} |\n", signed.text(), upward.text());
    }
    let quiet = controlled().iter().filter(|cell| cell.load <= 1.0);
    let most = quiet.flat_map(|cell| &cell.classes).map(|class| class.1).fold(0.0, f64::max);
    assert!(most < 0.015, "the page says 0.01 up to load 1.0: {most}");
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/lct-control.md");
    let page = std::fs::read_to_string(path).unwrap();
    let (before, rest) = page.split_once(BEGIN).unwrap();
    let (_, after) = rest.split_once(END).unwrap();
    let wanted = format!("{before}{BEGIN}{table}{END}{after}");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(path, &wanted).unwrap();
    }
    let now = std::fs::read_to_string(path).unwrap();
    assert!(now == wanted, "docs/lct-control.md is not what is measured; UPDATE_DOCS=1:\n{table}");
}

/// With bursty arrivals the indexes swing by themselves; the loop must not add to it.
#[test]
fn random_arrivals_do_not_rock_the_loop() {
    let spread = |law: &dyn Fn(&[Part]) -> Law| {
        let mut sum = 0.0;
        for (_, parts) in mixes() {
            for load in [0.8, 1.2, 1.6] {
                let run = run(&parts, &|_, _| load, SECONDS, &law(&parts), 2, |_, _| {});
                sum +=
                    (0..parts.len()).map(|class| swing(&run, class, SETTLE).0.powi(2)).sum::<f64>();
            }
        }
        sum
    };
    let (with, without) =
        (spread(&|parts| Law::Controller(config_for(parts))), spread(&|_| Law::Off));
    println!("sum of squared amplitudes: {with:.2} with control, {without:.2} without");
    assert!(with < without * 1.1, "{with} with, {without} without");
}

fn in_range(controller: &Controller, link: &Loop) {
    let config = controller.config();
    let (x, limits) = (config.x_delay, config.queue_limits);
    let classes = config.classes.len() as u16;
    for class in (0..classes).map(Class) {
        let told = link.scheduler().x_delay(class).unwrap();
        assert!(
            told == Nanos::ZERO
                || (x.min..=x.max.unwrap_or(XDelayConfig::max_for(Nanos(1_230_400))))
                    .contains(&told),
            "{told}"
        );
        assert!((limits.min..=limits.max).contains(&link.scheduler().limit(class).unwrap()));
    }
    let sum: u32 = (0..classes).map(|class| link.scheduler().limit(Class(class)).unwrap()).sum();
    assert!(sum <= 50 * u32::from(classes), "{sum}");
}

fn mean(run: &Run, class: usize) -> f64 {
    swing(run, class, SETTLE).1
}

#[test]
fn the_indexes_of_all_classes_meet() {
    let (_, parts) = mixes().swap_remove(4);
    let parts = even(&parts);
    for load in [1.1, 1.2, 1.4, 1.6] {
        let spread = |law: &Law| {
            let run = run(&parts, &|_, _| load, SECONDS, law, 3, |_, _| {});
            let means: Vec<f64> = (0..parts.len()).map(|class| mean(&run, class)).collect();
            let max = means.iter().copied().fold(0.0, f64::max);
            let min = means.iter().copied().fold(4.0, f64::min);
            (max - min, max)
        };
        let (with, at) = spread(&Law::Controller(config_for(&parts)));
        let (without, _) = spread(&Law::Off);
        println!("load {load}: spread {with:.2} around {at:.2} with control, {without:.2} without");
        assert!(with < 0.25 && without > 8.0 * with, "load {load}: {with} with, {without} without");
    }
}

#[test]
fn identical_classes_keep_x_at_zero_and_alternate() {
    let parts = [part("video", 0.5, 1200, Arrivals::Jittered); 2];
    let law = Law::Controller(config_for(&parts));
    let run = run(&parts, &|_, _| 1.1, 30, &law, 1, |_, _| {});
    let last = run.seconds.last().unwrap();
    assert!(last.x.iter().all(|x| *x <= Nanos::from_millis(2)), "{:?}", last.x);
    let sent = [0, 1].map(|class| run.link.qostat().class(Class(class)).sent_packets as f64);
    assert!((sent[0] / sent[1] - 1.0).abs() < 0.02, "{sent:?}");
}

#[test]
fn a_class_with_half_the_limits_of_delay_is_level_within_ten_seconds() {
    use evenkeel_core::measure::congestion::Thresholds;
    let mut parts = [part("bulk", 0.5, 1500, Arrivals::Jittered); 2];
    let halved = Thresholds::new(50_000_000, 1_000_000_000).unwrap();
    parts[0].sensitivity = Sensitivity { delay: halved, ..Sensitivity::BULK };
    let law = Law::Controller(config_for(&parts));
    let run = run(&parts, &|_, _| 1.3, 12, &law, 1, |_, _| {});
    let index = |class: usize| run.seconds[9].index[class].worst().as_f64();
    assert!((index(0) - index(1)).abs() < 0.05, "{} and {}", index(0), index(1));
}

#[test]
fn loads_that_shift_are_followed() {
    let (_, parts) = mixes().swap_remove(0);
    let parts = even(&parts);
    // Every 20 s another class is the one that sends too much.
    let load =
        |second: u64, class: usize| if (second / 20) as usize % 3 == class { 2.0 } else { 0.9 };
    let law = Law::Controller(config_for(&parts));
    let run = run(&parts, &load, 60, &law, 1, in_range);
    for end in [20, 40, 60] {
        for class in 0..parts.len() {
            let tail = Run {
                seconds: run.seconds[end - 8..end].to_vec(),
                link: new_link(3, 50),
                controller: None,
            };
            let (amplitude, mean) = swing(&tail, class, 0);
            assert!(
                amplitude <= 0.1 * mean.max(1.0),
                "before {end} s, class {class}: {mean} ±{amplitude}"
            );
        }
    }
}

#[test]
fn without_congestion_x_and_limits_return() {
    let (_, parts) = mixes().swap_remove(0);
    let parts = even(&parts);
    let law = Law::Controller(config_for(&parts));
    let run = run(&parts, &|second, _| if second < 20 { 1.4 } else { 0.5 }, 40, &law, 1, |_, _| {});
    assert!(run.seconds[19].x.iter().any(|x| *x > Nanos::ZERO));
    let last = run.seconds.last().unwrap();
    assert_eq!(last.x, vec![Nanos::ZERO; 3]);
    assert_eq!(last.limit, vec![50; 3]);
    assert_eq!(last.index, vec![Default::default(); 3]);
}

#[test]
fn a_class_without_traffic_is_frozen() {
    let (_, parts) = mixes().swap_remove(0);
    let parts = even(&parts);
    let law = Law::Controller(config_for(&parts));
    let load = |second: u64, class: usize| if class == 0 && second >= 20 { 0.0 } else { 2.0 };
    let mut frozen = vec![];
    let run = run(&parts, &load, 40, &law, 1, |controller, _| {
        if !controller.seen()[0].active && controller.seen()[1].active {
            frozen.push(controller.x_delay(Class(0)));
        }
    });
    let controller = run.controller.unwrap();
    assert!(!controller.seen()[0].active && controller.seen()[1].active);
    assert!(frozen.len() > 1_000 && frozen.iter().all(|x| *x == frozen[0]), "{frozen:?}");
    // The others share what is left: 1.32 of the link.
    let indexes = [1, 2].map(|class| run.seconds[39].index[class].worst().as_f64());
    assert!((indexes[0] - indexes[1]).abs() < 0.3, "{indexes:?}");
}

#[test]
fn switched_off_it_puts_back_what_it_found_and_goes_on_measuring() {
    let (_, parts) = mixes().swap_remove(0);
    let parts = even(&parts);
    let law = Law::Controller(config_for(&parts));
    let run = run(&parts, &|_, _| 1.4, 10, &law, 1, |_, _| {});
    let (mut controller, mut link) = (run.controller.unwrap(), run.link);
    assert!(
        link.scheduler().x_delay(Class(2)).unwrap() > Nanos::ZERO
            || controller.x_delay(Class(1)) > Nanos::ZERO
    );
    let now = Nanos::from_secs(10);
    for change in controller.enable(false) {
        link.set(now, change, &mut ()).unwrap();
    }
    assert!(!controller.is_enabled());
    for _ in 0..40 {
        controller.run(controller.due(), &mut link, &mut ()).unwrap();
    }
    for class in [0, 1, 2].map(Class) {
        assert_eq!(link.scheduler().x_delay(class), Some(Nanos::ZERO));
        assert_eq!(link.scheduler().limit(class), Some(50));
    }
    assert!(controller.seen().iter().all(|seen| !seen.active), "the queues have drained");
}

#[test]
fn what_cannot_be_is_refused() {
    let make = |config: ControlConfig| {
        Controller::new(config, Nanos::ZERO, &[], &[], new_link(1, 50).qostat()).map(|_| ())
    };
    let good = ControlConfig::new(vec![Sensitivity::VOICE]);
    assert_eq!(make(good.clone()), Ok(()));
    assert_eq!(make(ControlConfig::new(vec![])), Err(ControlError::NoClass));
    let mut bad = good.clone();
    bad.interval = Nanos(1);
    assert!(matches!(
        make(bad),
        Err(ControlError::Setting(SettingError::OutOfRange { key: "interval", .. }))
    ));
    let mut bad = good.clone();
    bad.x_delay.max = Some(Nanos(5));
    assert_eq!(make(bad).unwrap_err().to_string(), "x_min: x_min is above x_max");
    let mut bad = good.clone();
    bad.queue_limits = QueueLimitConfig { on: true, min: 10, max: 9 };
    assert_eq!(make(bad).unwrap_err().to_string(), "limit_min: limit_min is above limit_max");
    for (gain, hysteresis, most) in
        [(1, 0, 1_024), (65_537, 0, 1_024), (66, 65_537, 1_024), (66, 0, 1)]
    {
        let mut bad = good.clone();
        (bad.x_delay.gain, bad.x_delay.hysteresis, bad.x_delay.most) =
            (Fraction(gain), Fraction(hysteresis), Fraction(most));
        assert!(make(bad).is_err(), "{gain} {hysteresis} {most}");
    }
}

fn observation() -> impl Strategy<Value = Observation> {
    (any::<bool>(), any::<u64>(), any::<u64>(), any::<u64>(), any::<u64>(), 0u32..64).prop_map(
        |(active, given, dropped, delay, wire, shift)| Observation {
            active,
            given: given >> shift,
            dropped: dropped >> shift,
            delay_sum: Nanos(delay >> shift),
            wire_time: Nanos(wire >> shift),
        },
    )
}

proptest! {
    #[test]
    fn whatever_is_measured_the_knobs_stay_in_range(
        intervals in prop::collection::vec((any::<u64>(),
            prop::collection::vec(observation(), 0..5)), 1..60),
        gain in 66u32..=65_536,
        smoothing in 1_024u32..=65_536,
        hysteresis in 0u32..=65_536,
        most in 1_024u32..=65_536,
        mean in any::<bool>(),
        min in 1u64..=1_000_000, max in 1_000_000u64..=60_000_000_000,
        x in prop::collection::vec(0u64..=60_000_000_000, 0..5),
        limits in prop::collection::vec(1u32..=65_536, 0..5),
    ) {
        let mut config = ControlConfig::new(Sensitivity::PRESETS.iter().map(|(_, class)| *class)
            .collect());
        config.smoothing = Fraction(smoothing);
        if mean {
            (config.aggregate, config.delay_weight) = (Aggregate::Mean, Fraction(hysteresis));
        }
        config.x_delay.gain = Fraction(gain);
        config.x_delay.hysteresis = Fraction(hysteresis);
        config.x_delay.most = Fraction(most);
        (config.x_delay.min, config.x_delay.max) = (Nanos(min), Some(Nanos(max)));
        let x: Vec<Nanos> = x.into_iter().map(Nanos).collect();
        let bounds = config.queue_limits;
        let mut controller = Controller::new(config, Nanos::ZERO, &x, &limits,
            new_link(4, 50).qostat()).unwrap();
        let total = |controller: &Controller| -> u64 { (0..4)
            .map(|c| u64::from(controller.limit(Class(c)).unwrap())).sum() };
        let most = total(&controller);
        for (now, (elapsed, observed)) in intervals.into_iter().enumerate() {
            controller.take(Nanos(elapsed), &observed);
            for knob in controller.advance(Nanos(now as u64)) {
                let class = knob.class.unwrap();
                match (knob.key, &knob.value) {
                    ("x_delay", Value::Time(x)) => {
                        prop_assert!(class.0 < 4 && X_DELAY_RANGE.contains(&x.0));
                        prop_assert!(*x == Nanos::ZERO || (min..=max).contains(&x.0), "{x}");
                    }
                    ("limit", Value::Integer(limit)) => {
                        let valid = u64::from(bounds.min)..=bounds.max.into();
                        prop_assert!(class.0 < 4 && valid.contains(limit), "{limit}");
                    }
                    other => prop_assert!(false, "{other:?}"),
                }
            }
            prop_assert!(total(&controller) <= most);
            for (class, seen) in controller.seen().iter().enumerate() {
                prop_assert!(seen.index.worst() <= Index::CAP);
                prop_assert!(controller.x_delay(Class(class as u16)) <= Nanos(max));
            }
        }
    }
}

/// Means from the 15th second on of each class's index: voice, video, bulk, which together
/// offer 1.4 times the link.
fn settled_at(rate: BitRate, config: impl Fn(&mut ControlConfig)) -> Vec<f64> {
    let (_, parts) = mixes().swap_remove(0);
    let parts = even(&parts);
    let mut control = config_for(&parts);
    config(&mut control);
    let run = run_at(rate, &parts, &|_, _| 1.4, 40, &Law::Controller(control), 1, |_, _| {});
    let means = (0..parts.len()).map(|class| {
        let late = &run.seconds[15..];
        late.iter().map(|s| s.index[class].worst().as_f64()).sum::<f64>() / late.len() as f64
    });
    means.collect()
}

/// `x_max` was 20 ms on every link: on one of 1 Mbit/s less than what packets of bulk are apart
/// anyway, so that nothing happened: voice useless (4), bulk untouched.
#[test]
fn by_default_it_works_from_1_mbit_per_second_up() {
    for mbps in [1, 2, 5, 10, 100] {
        let indexes = settled_at(BitRate::from_mbps(mbps), |_| ());
        println!("{mbps} Mbit/s: {indexes:.2?}");
        let [least, most] =
            [f64::min, f64::max].map(|of| indexes.iter().copied().reduce(of).unwrap());
        assert!(most < 3.0 && most - least < 1.0, "{mbps} Mbit/s: {indexes:.2?}");
    }
    let stuck = settled_at(BitRate::from_mbps(1), |c| c.x_delay.max = Some(Nanos::from_millis(20)));
    println!("1 Mbit/s, 20 ms: {stuck:.2?}");
    assert!(stuck[0] > 3.0 && stuck[2] < 0.5, "{stuck:.2?}");
}

/// With an interval of 50 ms it took 3 s.
#[test]
fn indexes_meet_within_two_seconds() {
    let (_, parts) = mixes().swap_remove(0);
    let parts = even(&parts);
    for mbps in [5, 10, 100] {
        let law = Law::Controller(config_for(&parts));
        let mut apart = Vec::new();
        run_at(BitRate::from_mbps(mbps), &parts, &|_, _| 1.4, 6, &law, 1, |controller, _| {
            if controller.due() > Nanos::from_secs(2) {
                let indexes = controller.seen().iter().map(|seen| seen.index.worst().as_f64());
                let (least, most) =
                    indexes.fold((9.0, 0.0), |(l, m): (f64, f64), i| (l.min(i), m.max(i)));
                apart.push(most - least);
            }
        });
        let mean = apart.iter().sum::<f64>() / apart.len() as f64;
        println!("{mbps} Mbit/s, from 2 s to 6 s: {mean:.2} apart");
        assert!(mean < 1.0, "{mbps} Mbit/s: {mean:.2} apart");
    }
}

/// The mean of the worst index over these seconds.
fn worst_in(seconds: &[Second], of: fn(&Second) -> &[ClassIndex]) -> f64 {
    let worst = |second| of(second).iter().map(|i| i.worst().as_f64()).fold(0.0, f64::max);
    seconds.iter().map(worst).sum::<f64>() / seconds.len() as f64
}

/// The least worst index of static settings, chosen with hindsight: X in packet times, limits.
fn best_static(run: impl Fn(&Law) -> Run, packet: Nanos) -> f64 {
    let mut best = f64::MAX;
    for (voice, video) in [0, 1, 2, 4].into_iter().flat_map(|v| [0, 1, 2, 4].map(|w| (v, w))) {
        for (bulk, limit) in [(0, 10), (0, 50), (2, 10), (2, 50)] {
            let law = Law::Static([voice, video, bulk].map(|n| packet * n).to_vec(), limit);
            best = best.min(worst_in(&run(&law).seconds[4..20], |second| &second.index));
        }
    }
    best
}

/// Below 5 Mbit/s, with bulk the class in need, or the one that sends too much: means over seeds,
/// as few packets make a second. Whether it is settled each second tells alone, as an average over
/// seconds remembers how it began: at 1 Mbit/s, bulk sending too much, the worst index of second 2
/// was 1.4 and that of second 5 2.0, while a step of X could ask for less than a packet. For the
/// comparison with static settings the average is fairer: of the few packets of a second one that
/// is lost is an index of 1.
#[test]
fn on_slow_links_the_worst_index_settles_within_two_seconds() {
    const SEEDS: u64 = 8;
    for (name, mix) in [("bulk in need", 2), ("bulk sends too much", 0)] {
        let (_, parts) = mixes().swap_remove(mix);
        let parts = even(&parts);
        let loads = |_: u64, class: usize| if mix == 0 && class != 2 { 0.95 } else { 1.4 };
        for mbps in [1, 2, 3, 5] {
            let rate = BitRate::from_mbps(mbps);
            let mut mean = [0.0; 5];
            for seed in 1..=SEEDS {
                let run = |law: &Law| run_at(rate, &parts, &loads, 20, law, seed, |_, _| {});
                let control = run(&Law::Controller(config_for(&parts)));
                let fixed = best_static(run, rate.time_for(Bytes(1_538)));
                let average = |run: &Run| worst_in(&run.seconds[4..20], |second| &second.index);
                let off = average(&run(&Law::Off));
                let [soon, late] = [2..6, 10..20]
                    .map(|range| worst_in(&control.seconds[range], |second| &second.alone));
                for (sum, value) in mean.iter_mut().zip([soon, late, average(&control), fixed, off])
                {
                    *sum += value / SEEDS as f64;
                }
            }
            let [soon, late, all, fixed, off] = mean;
            let case = format!(
                "{name}, {mbps} Mbit/s: {soon:.2} from 2 to 6 s, {late:.2} from 10 s; control \
                 {all:.2}, best static {fixed:.2}, off {off:.2}"
            );
            println!("{case}");
            assert!(soon < late + 0.35 && all < fixed - 0.01, "{case}");
        }
    }
}

/// Where load moves faster than the control settles, static settings win: of every four seconds two
/// have too much of one class, each time of another.
#[test]
fn under_loads_that_jump_short_queues_with_weights_are_better() {
    let (_, parts) = mixes().swap_remove(0);
    let parts = even(&parts);
    let load = |second: u64, class: usize| {
        let jumps = second % 4 < 2 && (second / 4) as usize % 3 == class;
        if jumps { 2.2 } else { 0.95 }
    };
    let law = Law::Controller(config_for(&parts));
    let control = run(&parts, &load, 60, &law, 1, |_, _| {}).seconds;
    let off = run(&parts, &load, 60, &Law::Off, 1, |_, _| {}).seconds;
    let wfq = run_wfq(&parts, &load, 60, ([100, 200, 10].map(Weight).to_vec(), 10), 1);
    let [control, off, wfq] =
        [control, off, wfq].map(|seconds| worst_in(&seconds[4..], |second| &second.alone));
    println!("control {control:.2}, WFQ/ALTQ {wfq:.2}, off {off:.2}");
    assert!(wfq < control && control < off, "control {control:.2}, {wfq:.2}, {off:.2}");
}

/// A link that goes down, and a queue that a change leaves no room for, are no congestion.
#[test]
fn only_full_queues_count_as_loss() {
    let mut link = new_link(1, 50);
    let config = ControlConfig::new(vec![Sensitivity::VOICE]);
    let mut controller =
        Controller::new(config, Nanos::ZERO, &[Nanos::ZERO], &[50], link.qostat()).unwrap();
    let now = Nanos::from_millis(1);
    let packet = || Descriptor::new(Class(0), Bytes(200), now);
    for _ in 0..10 {
        let _ = link.enqueue(now, packet(), &mut ());
    }
    link.drain(now, Reason::LinkDown, &mut ());
    (0..20).for_each(|_| controller.run(controller.due(), &mut link, &mut ()).unwrap());
    assert_eq!(controller.seen()[0].measured.loss.bits(), 0);
    let later = controller.due();
    for _ in 0..100 {
        let _ = link.enqueue(later, packet(), &mut ());
    }
    (0..20).for_each(|_| controller.run(controller.due(), &mut link, &mut ()).unwrap());
    assert!(controller.seen()[0].measured.loss.bits() > 0);
}
