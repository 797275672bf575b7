//! A second of counting: how late a thread wakes, what others take of the machine, what is lost.

use std::thread::sleep;
use std::time::{Duration, Instant};

use evenkeel_core::Nanos;
use evenkeel_ports::sys::set_timer_slack;

use crate::files::Files;

/// How long a sleep is that is measured: the time of a full packet at 12 Mbit/s.
const NAP: Duration = Duration::from_millis(1);

/// What a second showed.
#[derive(Clone, Debug, Default)]
pub struct Second {
    /// How much later than asked for a thread woke: half of the times at most, 99 of 100 at most,
    /// and the worst.
    pub late: Option<[Duration; 3]>,
    /// Parts of a thousand of the processors' time that the hypervisor gave to others.
    pub stolen: Option<u64>,
    /// Packets that the kernel dropped because a processor's backlog was full.
    pub backlog_drops: u64,
    /// Times that a processor left frames waiting because its turn was over.
    pub squeezed: u64,
    /// By interface.
    pub nics: Vec<Traffic>,
}

/// What an interface did in that time.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Traffic {
    /// Its name.
    pub name: String,
    /// Bits per second received and sent.
    pub bits: (u64, u64),
    /// Frames that were dropped or broken: received and sent.
    pub lost: (u64, u64),
}

/// Counters at an instant.
#[derive(Debug, Default)]
struct Counters {
    /// Ticks of all processors, and those that were stolen.
    ticks: Option<(u64, u64)>,
    backlog_drops: u64,
    squeezed: u64,
    /// By interface: bytes and losses, received and sent.
    nics: Vec<[u64; 4]>,
}

impl Second {
    /// Measures for so long.
    pub(crate) fn measure(files: &Files, interfaces: &[String], length: Duration) -> Self {
        let before = Counters::read(files, interfaces);
        // As a worker has it. It belongs to the thread, so one of its own.
        let naps = std::thread::scope(|scope| scope.spawn(|| naps(length)).join());
        Self::between(&before, &Counters::read(files, interfaces), interfaces, length)
            .with_naps(naps.unwrap_or_default())
    }

    fn with_naps(self, mut naps: Vec<Duration>) -> Self {
        naps.sort_unstable();
        let last = naps.len().checked_sub(1);
        let late = last.map(|last| [last / 2, last * 99 / 100, last].map(|at| naps[at]));
        Self { late, ..self }
    }

    fn between(before: &Counters, after: &Counters, names: &[String], length: Duration) -> Self {
        let millis = u64::try_from(length.as_millis()).unwrap_or(u64::MAX).max(1);
        let stolen = before.ticks.zip(after.ticks).and_then(|((all, stolen), (now, then))| {
            (then.saturating_sub(stolen) * 1_000).checked_div(now.saturating_sub(all))
        });
        let of = |(name, (then, now)): (&String, (&[u64; 4], &[u64; 4]))| {
            let grown = |at: usize| now[at].saturating_sub(then[at]);
            let rate = |at| grown(at).saturating_mul(8_000) / millis;
            Traffic { name: name.clone(), bits: (rate(0), rate(1)), lost: (grown(2), grown(3)) }
        };
        let counted = before.nics.iter().zip(&after.nics);
        Self {
            late: None,
            stolen,
            backlog_drops: after.backlog_drops.saturating_sub(before.backlog_drops),
            squeezed: after.squeezed.saturating_sub(before.squeezed),
            nics: names.iter().zip(counted).map(of).collect(),
        }
    }
}

/// Sleeps again and again, and says how much longer than asked for each time.
fn naps(length: Duration) -> Vec<Duration> {
    // Without a right to it there is none needed.
    let _ = set_timer_slack(Nanos(1));
    let begun = Instant::now();
    let mut late = Vec::with_capacity(1_024);
    while begun.elapsed() < length {
        let asleep = Instant::now();
        sleep(NAP);
        late.push(asleep.elapsed().saturating_sub(NAP));
    }
    late
}

impl Counters {
    fn read(files: &Files, interfaces: &[String]) -> Self {
        let softnet = files.text("/proc/net/softnet_stat").unwrap_or_default();
        let column = |at: usize| -> u64 {
            let word = |line: &str| line.split_whitespace().nth(at).map(str::to_owned);
            let number = |word: String| u64::from_str_radix(&word, 16).ok();
            softnet.lines().filter_map(word).filter_map(number).sum()
        };
        let of = |name: &String| {
            let count = |of: &str| -> u64 {
                files.number(&format!("/sys/class/net/{name}/statistics/{of}")).unwrap_or(0)
            };
            [
                count("rx_bytes"),
                count("tx_bytes"),
                count("rx_dropped") + count("rx_errors") + count("rx_missed_errors"),
                count("tx_dropped") + count("tx_errors"),
            ]
        };
        Self {
            ticks: files.text("/proc/stat").and_then(|text| ticks(&text)),
            backlog_drops: column(1),
            squeezed: column(2),
            nics: interfaces.iter().map(of).collect(),
        }
    }
}

/// All ticks of `/proc/stat`, and the stolen ones: the eighth number.
fn ticks(stat: &str) -> Option<(u64, u64)> {
    let numbers: Vec<u64> =
        stat.lines().next()?.split_whitespace().skip(1).filter_map(|n| n.parse().ok()).collect();
    // The last two, guests, are in the first two already.
    Some((numbers.iter().take(8).sum(), *numbers.get(7)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_grew_between_two_readings_is_what_the_second_had() {
        let names = ["eth0".to_owned()];
        let at = |ticks, drops, nic| Counters {
            ticks: Some(ticks),
            backlog_drops: drops,
            squeezed: 2 * drops,
            nics: vec![nic],
        };
        let before = at((1_000, 10), 3, [0, 500, 7, 0]);
        let after = at((1_200, 20), 5, [125_000, 1_500, 7, 4]);
        let second = Second::between(&before, &after, &names, Duration::from_millis(500));
        assert_eq!((second.stolen, second.backlog_drops, second.squeezed), (Some(50), 2, 4));
        let traffic = Traffic { name: "eth0".into(), bits: (2_000_000, 16_000), lost: (0, 4) };
        assert_eq!(second.nics, [traffic]);
        let naps = (1..=200).map(Duration::from_micros).collect();
        let late = second.with_naps(naps).late.unwrap();
        assert_eq!(late, [100, 198, 200].map(Duration::from_micros));
    }

    #[test]
    fn ticks_leave_guests_out_and_a_strange_file_says_nothing() {
        let stat = "cpu  1 2 3 4 5 6 7 8 100 100\ncpu0 1\n";
        assert_eq!(ticks(stat), Some((36, 8)));
        assert_eq!(ticks("cpu 1 2\n"), None);
        assert_eq!(ticks(""), None);
    }

    #[test]
    fn this_machine_is_measured() {
        let files = Files::of_this_machine();
        let length = Duration::from_millis(20);
        let second = Second::measure(&files, &["lo".to_owned()], length);
        let [half, most, worst] = second.late.unwrap();
        assert!(half <= most && most <= worst, "{second:?}");
        assert_eq!(second.nics.len(), 1);
    }
}
