//! What the machine's processors did while something was measured: whether that says anything.

use std::time::Instant;

/// More than that part of the CPU time in percent, taken by the host of a virtual machine, and what
/// was measured says nothing: scripts/figures.sh has the same.
const MOST_STOLEN: u64 = 5;
/// More than that part of the time, in percent, in which somebody waited for a processor.
const MOST_WAITED: u64 = 50;

/// More than that part of the CPU time in percent, used by other processes, and nothing is said of
/// how a core was shared.
const MOST_OTHERS: u64 = 5;

/// What the processors did since the machine was started, in hundredths of a second: taken by the
/// host, used by processes, used by this one, and all. And how long those that could run have
/// waited for one, in microseconds.
#[derive(Clone, Copy, Debug)]
pub struct Processors {
    stolen: u64,
    used: u64,
    own: u64,
    all: u64,
    waited: u64,
    at: Instant,
}

impl Processors {
    /// Until now. What the kernel does not tell counts as nothing.
    #[must_use]
    pub fn now() -> Self {
        let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
        let words = stat.lines().next().unwrap_or_default().split_whitespace().skip(1);
        let ticks: Vec<u64> = words.filter_map(|word| word.parse().ok()).collect();
        let pressure = std::fs::read_to_string("/proc/pressure/cpu").unwrap_or_default();
        let total = pressure.lines().next().and_then(|line| line.rsplit_once("total="));
        let waited = total.and_then(|(_, total)| total.trim().parse().ok()).unwrap_or(0);
        let stolen = ticks.get(7).copied().unwrap_or(0);
        // User, nice and system.
        let used = ticks.iter().take(3).sum();
        // The last two are parts of the first.
        let all = ticks.iter().take(8).sum();
        Self { stolen, used, own: own_ticks(), all, waited, at: Instant::now() }
    }

    /// Why what was measured since then says nothing of how this process has shared a core out:
    /// that needs one for itself.
    #[must_use]
    pub fn shared(&self) -> Option<String> {
        let now = Self::now();
        let others = (now.used - self.used).saturating_sub(now.own.saturating_sub(self.own));
        let others = others * 100 / (now.all - self.all).max(1);
        let used = || format!("others used {others} % of the CPU time");
        self.missing().or_else(|| (others > MOST_OTHERS).then(used))
    }

    /// Why what was measured since then says nothing of a router.
    #[must_use]
    pub fn missing(&self) -> Option<String> {
        let now = Self::now();
        let stolen = (now.stolen - self.stolen) * 100 / (now.all - self.all).max(1);
        let time = now.at.duration_since(self.at).as_micros() as u64;
        let waited = (now.waited - self.waited) * 100 / time.max(1);
        if stolen > MOST_STOLEN {
            return Some(format!("the host took {stolen} % of the CPU time"));
        }
        (waited > MOST_WAITED)
            .then(|| format!("others wanted the processors {waited} % of the time"))
    }
}

/// CPU time of this process, hundredths of a second.
fn own_ticks() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The name may hold spaces and ends with a bracket.
    let words = stat.rsplit_once(") ").map_or("", |(_, rest)| rest).split_whitespace();
    words.skip(11).take(2).filter_map(|word| word.parse::<u64>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_this_process_does_is_not_what_others_do() {
        let begun = Processors::now();
        let (begin, mut sum) = (Instant::now(), 0_u64);
        while begin.elapsed().as_millis() < 300 {
            sum = std::hint::black_box(sum.wrapping_add(1));
        }
        let now = Processors::now();
        // Of 30; others may have had the processor meanwhile.
        assert!(now.own - begun.own >= 5, "{begun:?} {now:?}");
        assert!(now.used - begun.used >= now.own - begun.own - 2, "{begun:?} {now:?}");
    }
}
