//! What schedules promise: exact long-run rates, order, determinism, nothing lost silently.

use evenkeel_core::{BitRate, Bytes, Nanos};
use evenkeel_traffic::{Process, Source, SourceConfig, SourceError};
use proptest::prelude::*;

fn cbr(rate: u64, ip_len: u64, jitter_ppm: u32, seed: u64) -> SourceConfig {
    SourceConfig {
        seed,
        ..SourceConfig::new(Process::Cbr { jitter_ppm }, BitRate(rate), Bytes(ip_len))
    }
}

fn times(config: SourceConfig, count: usize) -> Vec<u64> {
    let mut source = Source::new(config).expect("a valid source");
    std::iter::from_fn(|| source.next(Nanos::ZERO)).take(count).map(|e| e.at.0).collect()
}

/// Frozen: a schedule must never change with the machine, the compiler or a library.
#[test]
fn schedules_are_the_same_everywhere() {
    let base = cbr(45_000_000, 1428, 100_000, 1);
    let poisson = SourceConfig { process: Process::Poisson, ..base };
    let on_off = SourceConfig {
        process: Process::OnOff { mean_on: Nanos::from_millis(1), mean_off: Nanos::from_millis(2) },
        ..base
    };
    assert_eq!(times(base, 5), GOLDEN_CBR);
    assert_eq!(times(poisson, 5), GOLDEN_POISSON);
    assert_eq!(times(on_off, 8), GOLDEN_ON_OFF);
}

const GOLDEN_CBR: [u64; 5] = [104_217, 371_187, 615_477, 870_978, 1_135_682];
const GOLDEN_POISSON: [u64; 5] = [309_545, 489_946, 769_062, 1_254_545, 1_288_371];
const GOLDEN_ON_OFF: [u64; 8] =
    [540_826, 794_692, 1_048_559, 3_501_345, 3_755_211, 4_009_078, 4_262_945, 4_516_811];

#[test]
fn a_spacing_that_is_no_whole_number_of_nanoseconds_does_not_drift() {
    // 1428 bytes at 45 Mbit/s: 253 866.67 ns. After 3 n packets exactly 761 600 n ns have passed.
    let config = SourceConfig { random_phase: false, ..cbr(45_000_000, 1428, 0, 1) };
    let times = times(config, 300_001);
    assert_eq!(times[1], 253_866);
    assert_eq!(times[2], 507_733);
    assert_eq!(times[300_000], 761_600 * 100_000);
}

#[test]
fn poisson_packets_come_at_the_mean_rate_with_exponential_gaps() {
    let config = SourceConfig { process: Process::Poisson, ..cbr(100_000_000, 1250, 0, 9) };
    let times = times(config, 200_001);
    let mean = times[200_000] as f64 / 200_001.0;
    assert!((mean / 100_000.0 - 1.0).abs() < 0.01, "mean gap {mean} ns");
    // Of an exponential distribution 63.2 % of the gaps are below the mean; of constant spacing
    // with jitter about half.
    let below = times.windows(2).filter(|w| w[1] - w[0] < 100_000).count() as f64 / 200_000.0;
    assert!((below - 0.632).abs() < 0.005, "{below}");
}

#[test]
fn bursts_run_at_the_full_rate_and_the_average_follows_the_duty_cycle() {
    let config = SourceConfig {
        process: Process::OnOff {
            mean_on: Nanos::from_millis(10),
            mean_off: Nanos::from_millis(30),
        },
        ..cbr(100_000_000, 1250, 0, 5)
    };
    let times = times(config, 400_000);
    let spacing = 100_000;
    assert!(times.windows(2).all(|w| w[1] - w[0] >= spacing), "never above the rate");
    let in_burst = times.windows(2).filter(|w| w[1] - w[0] == spacing).count();
    assert!(in_burst > 390_000 * 9 / 10, "{in_burst} packets inside bursts");
    let average = 400_000.0 * 100_000.0 / times[399_999] as f64;
    assert!((average - 0.25).abs() < 0.015, "duty cycle {average}");
}

#[test]
fn a_caller_that_slept_leaves_out_what_is_too_old_and_counts_it() {
    let config = SourceConfig {
        random_phase: false,
        catch_up: Nanos::from_millis(1),
        ..cbr(80_000_000, 1000, 0, 1)
    };
    let mut source = Source::new(config).expect("a valid source"); // every 100 us
    let first = source.next(Nanos::ZERO).expect("it never stops");
    assert_eq!((first.at, first.seq), (Nanos::ZERO, 0));
    // Woken at 50 ms: packets of 0.1 to 48.9 ms are too old, that of 49 ms is exactly 1 ms late.
    let late = source.next(Nanos::from_millis(50)).expect("it never stops");
    assert_eq!((late.at, late.seq), (Nanos::from_millis(49), 1));
    assert_eq!(source.skipped(), 489);
    assert_eq!(source.emitted(), 2);
}

#[test]
fn wrong_values_are_refused_with_their_range() {
    let refused = |config| Source::new(config).expect_err("it must be refused");
    let good = cbr(1_000_000, 100, 0, 1);
    assert_eq!(refused(SourceConfig { rate: BitRate(0), ..good }), SourceError::Rate(BitRate(0)));
    let fast = BitRate(1_000_000_000_001);
    assert_eq!(refused(SourceConfig { rate: fast, ..good }), SourceError::Rate(fast));
    assert_eq!(refused(SourceConfig { ip_len: Bytes(0), ..good }), SourceError::Length(Bytes(0)));
    assert_eq!(
        refused(SourceConfig { ip_len: Bytes(65_536), ..good }),
        SourceError::Length(Bytes(65_536))
    );
    let process = Process::Cbr { jitter_ppm: 1_000_001 };
    assert_eq!(refused(SourceConfig { process, ..good }), SourceError::Jitter(1_000_001));
    let process = Process::OnOff { mean_on: Nanos::ZERO, mean_off: Nanos::ZERO };
    assert_eq!(refused(SourceConfig { process, ..good }), SourceError::NoBurst);
    assert!(refused(SourceConfig { rate: BitRate(0), ..good }).to_string().contains("1 bit/s"));
}

fn processes() -> impl Strategy<Value = Process> {
    prop_oneof![
        (0u32..=1_000_000).prop_map(|jitter_ppm| Process::Cbr { jitter_ppm }),
        Just(Process::Poisson),
        (1u64..50_000_000, 0u64..50_000_000)
            .prop_map(|(on, off)| Process::OnOff { mean_on: Nanos(on), mean_off: Nanos(off) }),
    ]
}

proptest! {
    /// At any time the bits sent are those of the rate, to within a packet: counted, not averaged.
    #[test]
    fn constant_rate_is_exact_at_every_packet(
        rate in 1_000u64..=1_000_000_000_000, ip_len in 1u64..=65_535,
            jitter_ppm in 0u32..=1_000_000,
        seed: u64, phase: bool, count in 2usize..400,
    ) {
        let config = SourceConfig { random_phase: phase, ..cbr(rate, ip_len, jitter_ppm, seed) };
        let times = times(config, count);
        let spacing = ip_len as f64 * 8e9 / rate as f64;
        for (k, at) in times.iter().enumerate() {
            let nominal = k as f64 * spacing;
            let ahead = nominal - *at as f64;
            // Phase and jitter add up to less than two spacings; flooring takes at most a
            // nanosecond.
            prop_assert!(ahead <= 1.0 + nominal * 1e-12, "packet {k} is {ahead} ns early");
            prop_assert!(ahead >= -2.0 * spacing - 1.0 - nominal * 1e-12, "packet {k} is {ahead} \
                                                            ns late");
        }
    }

    #[test]
    fn order_numbers_limits_and_repetition(
        process in processes(), rate in 1_000_000u64..=1_000_000_000, ip_len in 20u64..=9_000,
            seed: u64,
        start in 0u64..1_000_000_000, length in 0u64..20_000_000,
    ) {
        let config = SourceConfig {
            process,
            start: Nanos(start),
            stop: Nanos(start + length),
            seed,
            ..cbr(rate, ip_len, 0, 0)
        };
        let all = |config| {
            let mut source = Source::new(config).expect("a valid source");
            let mut got = Vec::new();
            while let Some(emission) = source.next(Nanos::ZERO) {
                got.push(emission);
            }
            assert_eq!(source.next(Nanos::ZERO), None, "a source that has stopped stays stopped");
            assert_eq!(source.emitted(), got.len() as u64);
            assert_eq!(source.skipped(), 0);
            got
        };
        let first = all(config);
        prop_assert_eq!(&first, &all(config));
        for (k, emission) in first.iter().enumerate() {
            prop_assert_eq!(emission.seq, k as u64);
            prop_assert_eq!(emission.ip_len, Bytes(ip_len));
            prop_assert!(emission.at >= config.start && emission.at < config.stop);
        }
        prop_assert!(first.windows(2).all(|w| w[0].at <= w[1].at));
    }
}
