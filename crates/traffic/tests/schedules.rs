//! What schedules promise: exact long-run rates, order, determinism, nothing lost silently.

use evenkeel_core::{BitRate, Bytes, Nanos};
use evenkeel_traffic::{Application, Process, Source, SourceConfig, SourceError};
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

/// An application over IPv4, from second 2 to second 602.
fn application(application: Application, seed: u64) -> Vec<(u64, u64)> {
    let process = Process::Application { application, headers: Bytes(28) };
    let config = SourceConfig {
        seed,
        start: Nanos::from_secs(2),
        stop: Nanos::from_secs(602),
        ..SourceConfig::new(process, BitRate::from_mbps(8), Bytes(1_428))
    };
    let mut source = Source::new(config).expect("a valid source");
    std::iter::from_fn(|| source.next(Nanos::ZERO)).map(|e| (e.at.0, e.ip_len.0)).collect()
}

fn rate_of(packets: &[(u64, u64)]) -> f64 {
    packets.iter().map(|packet| packet.1 * 8).sum::<u64>() as f64 / 600.0
}

#[test]
fn a_call_talks_half_of_the_time_and_turns_each_two_seconds() {
    let mean = Application::Call.mean_rate(Bytes(28)).unwrap().0 as f64;
    let (mut turns, mut rates) = (0, 0.0);
    for seed in 0..10 {
        let packets = application(Application::Call, seed);
        assert!(packets.iter().all(|(_, ip_len)| [47, 72].contains(ip_len)));
        let gaps: Vec<_> = packets.windows(2).map(|pair| pair[1].0 - pair[0].0).collect();
        assert!(gaps.iter().all(|gap| gap.is_multiple_of(20_000_000) && *gap <= 160_000_000));
        turns += packets.windows(2).filter(|pair| pair[0].1 != pair[1].1).count();
        rates += rate_of(&packets) / 10.0;
    }
    // 300 turns in 600 s each, deviation of the sum 55.
    assert!((2_800..=3_200).contains(&turns), "{turns}");
    // Noise is described at once in each silence, so a little more often than each 160 ms.
    assert!((rates / mean - 1.03).abs() < 0.07, "{rates} of {mean}");
}

#[test]
fn a_game_is_what_was_measured_in_both_directions() {
    for (direction, gap, bytes) in [
        (Application::GameDown, 55e6 + 6e6 * 0.577_2, 120.0 + 36.0 * 0.577_2 + 28.0),
        (Application::GameUp, 40e6, 45.0 + 5.7 * 0.577_2 + 28.0),
    ] {
        let packets = application(direction, 3);
        let n = packets.len() as f64;
        assert!((600e9 / n / gap - 1.0).abs() < 0.005, "{n}");
        let mean = packets.iter().map(|packet| packet.1).sum::<u64>() as f64 / n;
        // Whole bytes: half of one less.
        assert!((mean + 0.5 - bytes).abs() < 1.5, "{mean}, not {bytes}");
        let told = direction.mean_rate(Bytes(28)).unwrap().0 as f64;
        assert!((rate_of(&packets) / told - 1.0).abs() < 0.02);
    }
}

#[test]
fn a_video_has_its_rate_and_frames_within_their_bounds() {
    let packets = application(Application::Video { frame_rate: 60 }, 5);
    assert!((rate_of(&packets) / 8e6 - 1.0).abs() < 0.002, "{}", rate_of(&packets));
    let mut frames: Vec<(u64, u64)> = Vec::new();
    for (at, ip_len) in packets {
        match frames.last_mut().filter(|frame| frame.0 == at) {
            Some(frame) => frame.1 += ip_len,
            None => frames.push((at, ip_len)),
        }
    }
    assert!((frames.len() as i64 - 36_000).abs() <= 1, "{}", frames.len());
    let mean = 8e6 / 60.0 / 8.0;
    assert!(frames.iter().all(|frame| (0.5..=1.5).contains(&(frame.1 as f64 / mean))));
    let square = |frame: &(u64, u64)| (frame.1 as f64 / mean - 1.0).powi(2);
    let deviation = (frames.iter().map(square).sum::<f64>() / frames.len() as f64).sqrt();
    assert!((deviation - 0.105).abs() < 0.003, "{deviation}");
    // Against an even spacing that starts with the first: each within 4 ms of its time, so two
    // within 8 ms of each other.
    let (first, spacing) = (frames[0].0 as f64, 1e9 / 60.0);
    let late = |n: usize| frames[n].0 as f64 - first - n as f64 * spacing;
    assert!((0..frames.len()).all(|n| late(n).abs() <= 8e6));
    assert!((0..frames.len()).any(|n| late(n).abs() > 1e6), "jitter");
}

/// Frozen, like [`schedules_are_the_same_everywhere`].
#[test]
fn applications_are_the_same_everywhere() {
    let told = |kind| {
        let packets = application(kind, 1);
        let bytes = packets.iter().map(|packet| packet.1).sum::<u64>();
        (packets[0].0, packets[packets.len() - 1].0, bytes)
    };
    assert_eq!(told(Application::Call), (2_008_049_713, 601_948_049_713, 1_188_822));
    assert_eq!(told(Application::GameDown), (2_016_099_426, 601_983_610_479, 1_729_685));
    assert_eq!(
        told(Application::Video { frame_rate: 60 }),
        (2_014_129_314, 601_994_471_277, 599_711_135)
    );
}
