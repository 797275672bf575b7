//! Histories over real files: what is noted is read, whatever happened to the file.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use evenkeel_control::rates::{ClassRates, LinkRates, RouterRates};
use evenkeel_history::{Happened, History, HistoryError, Step};
use proptest::prelude::*;

const SMALL: u64 = 64 << 10;
const ALL: (u64, u64) = (0, u64::MAX);

fn window(time_ms: u64, bps: f64) -> RouterRates {
    let mut link = LinkRates { link: "wan".into(), ..LinkRates::default() };
    link.all.sent_bps = bps;
    link.all.p99_us = Some(bps / 1e4);
    link.classes = vec![ClassRates { class: "rest".into(), rates: link.all }];
    RouterRates { time_ms, length_s: 1.0, links: vec![link], ..RouterRates::default() }
}

fn happened(time_ms: u64) -> Happened {
    Happened { time_ms, kind: "change".into(), text: format!("it became {time_ms}") }
}

fn times(history: &History, step: Step) -> Vec<u64> {
    let windows = history.windows(step, ALL.0, ALL.1).unwrap();
    windows.iter().map(|window| window.time_ms).collect()
}

fn filled(path: &Path, windows: u64) -> History {
    let mut history = History::open(path, SMALL).unwrap();
    for n in 1..=windows {
        history.window(Step::Seconds, &window(n * 1_000, n as f64)).unwrap();
        if n % 60 == 0 {
            history.window(Step::Minutes, &window(n * 1_000, n as f64)).unwrap();
            history.happened(&happened(n * 1_000)).unwrap();
        }
    }
    history
}

fn place() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("deep/edge.history");
    (folder, path)
}

#[test]
fn the_newest_stays_and_the_file_does_not_grow() {
    let (_folder, path) = place();
    let history = filled(&path, 6_000);
    assert_eq!(fs::metadata(&path).unwrap().len(), SMALL);
    let seconds = times(&history, Step::Seconds);
    assert_eq!(seconds.last(), Some(&6_000_000));
    assert!(seconds.len() > 15, "{}", seconds.len());
    assert!(seconds.windows(2).all(|two| two[1] == two[0] + 1_000), "{seconds:?}");
    assert_eq!(times(&history, Step::Minutes).len(), 100);
    assert_eq!(history.events(0, 120_000).unwrap(), [happened(60_000), happened(120_000)]);
    assert_eq!(history.reach(Step::Minutes), Some((60_000, 6_000_000)));
    let one = &history.windows(Step::Seconds, 6_000_000, 6_000_000).unwrap()[0];
    assert_eq!(*one, window(6_000_000, 6_000.0));
    // As another process sees it, while it is written.
    let reader = History::read_only(&path).unwrap();
    assert_eq!(times(&reader, Step::Seconds), seconds);
    assert!(matches!(History::open(&path, SMALL), Err(HistoryError::InUse(_))));
    drop(history);
    // And after a restart, which goes on.
    let mut again = History::open(&path, SMALL).unwrap();
    assert_eq!(times(&again, Step::Seconds), seconds);
    again.window(Step::Seconds, &window(6_001_000, 1.0)).unwrap();
    let more = times(&again, Step::Seconds);
    assert_eq!(more.last(), Some(&6_001_000));
    assert!(more.windows(2).all(|two| two[1] == two[0] + 1_000), "{more:?}");
}

#[test]
fn a_file_that_ends_anywhere_is_read_as_far_as_it_goes_and_goes_on() {
    let (folder, path) = place();
    let whole = times(&filled(&path, 200), Step::Seconds);
    let bytes = fs::read(&path).unwrap();
    let cut = folder.path().join("cut.history");
    // Each byte of the header and of the first records, then some.
    let lengths = (0..640).chain((640..bytes.len()).step_by(499));
    for length in lengths {
        fs::write(&cut, &bytes[..length]).unwrap();
        if let Ok(reader) = History::read_only(&cut) {
            let seen = times(&reader, Step::Seconds);
            assert!(seen.iter().all(|time| whole.contains(time)), "cut at {length}: {seen:?}");
        }
        let mut history = History::open(&cut, SMALL).unwrap();
        history.window(Step::Seconds, &window(999_000, 1.0)).unwrap();
        assert_eq!(times(&history, Step::Seconds).last(), Some(&999_000), "cut at {length}");
        drop(history);
        assert_eq!(fs::metadata(&cut).unwrap().len(), SMALL);
    }
}

/// Cut at each byte of its header and of its seconds, from the last to the first: what is read is
/// what was noted, and less and less.
#[test]
fn a_file_that_is_cut_at_each_byte_tells_nothing_else() {
    let (_folder, path) = place();
    let whole = times(&filled(&path, 125), Step::Seconds);
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    let mut most = whole.len();
    // Minutes come after the eighth that seconds have, and are records of the same kind.
    let (size, seconds) = (SMALL as u32, SMALL as u32 / 8 + 64);
    let lengths = (0..seconds).chain((seconds..size).step_by(499));
    for length in lengths.rev().map(u64::from) {
        file.set_len(length).unwrap();
        let Ok(reader) = History::read_only(&path) else {
            // Its header is gone.
            assert!(length < 64, "cut at {length}");
            most = 0;
            continue;
        };
        let seen = times(&reader, Step::Seconds);
        assert!(seen.len() <= most, "cut at {length}: {seen:?}");
        assert!(seen.iter().all(|time| whole.contains(time)), "cut at {length}: {seen:?}");
        most = seen.len();
    }
    assert_eq!(most, 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn a_byte_that_changed_loses_one_record_and_makes_none(at in 0..SMALL, by in 1..=255u8) {
        let (_folder, path) = place();
        let whole = times(&filled(&path, 30), Step::Seconds);
        let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).unwrap();
        file.write_all_at(&[byte[0] ^ by], at).unwrap();
        match History::read_only(&path) {
            Ok(reader) => {
                let seen = times(&reader, Step::Seconds);
                prop_assert!(seen.len() + 1 >= whole.len());
                prop_assert!(seen.iter().all(|time| whole.contains(time)));
            }
            Err(error) => prop_assert!(at < 64, "{error}"),
        }
    }
}

#[test]
fn a_clock_that_is_set_back_hides_what_it_showed_before() {
    let (_folder, path) = place();
    let mut history = History::open(&path, SMALL).unwrap();
    for time_ms in [1_000, 2_000, 3_000, 2_500, 3_500, 9_000_000, 4_500] {
        history.window(Step::Seconds, &window(time_ms, 1.0)).unwrap();
    }
    assert_eq!(times(&history, Step::Seconds), [1_000, 2_000, 2_500, 3_500, 4_500]);
    // The order is that of the numbers also after a restart.
    drop(history);
    let history = History::open(&path, SMALL).unwrap();
    assert_eq!(times(&history, Step::Seconds), [1_000, 2_000, 2_500, 3_500, 4_500]);
}

#[test]
fn another_size_keeps_what_fits() {
    let (_folder, path) = place();
    drop(filled(&path, 600));
    let larger = History::open(&path, 4 * SMALL).unwrap();
    let kept = times(&larger, Step::Seconds);
    assert_eq!((kept.last(), larger.events(0, u64::MAX).unwrap().len()), (Some(&600_000), 10));
    drop(larger);
    let smaller = History::open(&path, SMALL).unwrap();
    assert_eq!(times(&smaller, Step::Seconds), kept);
    assert_eq!(fs::metadata(&path).unwrap().len(), SMALL);
}

#[test]
fn other_files_are_not_touched_and_odd_sizes_refused() {
    let (folder, _) = place();
    let path = folder.path().join("diary.txt");
    fs::write(&path, "dear diary").unwrap();
    assert!(matches!(History::open(&path, SMALL), Err(HistoryError::NotAHistory(_))));
    assert!(matches!(History::read_only(&path), Err(HistoryError::NotAHistory(_))));
    assert_eq!(fs::read_to_string(&path).unwrap(), "dear diary");
    for size in [0, SMALL - 1, u64::MAX] {
        assert!(matches!(History::open(&path, size), Err(HistoryError::Size(_))));
    }
}

#[test]
fn a_router_too_large_for_the_file_is_said() {
    let (_folder, path) = place();
    let mut history = History::open(&path, SMALL).unwrap();
    let class = |n: u32| {
        let rates = window(1, f64::from(n.wrapping_mul(2_654_435_761))).links[0].all;
        ClassRates { class: format!("{:x}", n.wrapping_mul(2_246_822_519)), rates }
    };
    let link = LinkRates { classes: (0..2_000).map(class).collect(), ..LinkRates::default() };
    let large = RouterRates { links: vec![link], ..window(1_000, 1.0) };
    let error = history.window(Step::Seconds, &large).unwrap_err();
    assert!(error.to_string().contains("too small"), "{error}");
    history.window(Step::Seconds, &window(2_000, 1.0)).unwrap();
    assert_eq!(times(&history, Step::Seconds), [2_000]);
}
