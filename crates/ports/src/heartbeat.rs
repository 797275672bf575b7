//! The heartbeat of a router, in memory that our programs at the interfaces look at.
//!
//! A process that ends takes its programs along, and the kernel forwards. One that hangs, or is
//! stopped, would leave them, and nobody would forward. So each worker stores the time many times
//! within a limit, and the programs let pass what they would keep once the last store is older than
//! that: the kernel forwards until the worker is back.
//!
//! Packet sockets go on receiving meanwhile: what the kernel has forwarded must not be forwarded
//! again later. [`Beater::beat`] tells from when to when that was.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use evenkeel_core::Nanos;

use crate::bpf::{Assembler, If, Label, MMAPABLE, Map, MapKind, Reg, Width};
use crate::error::PortError;
use crate::mapping::Mapping;
use crate::sys::monotonic_now;

/// The most workers that a heartbeat has room for.
pub const MAX_WORKERS: usize = 64;

/// A worker stores the time when this part of the limit has passed since it did.
const FRESH: u64 = 16;

/// Each worker's word has a cache line of its own; all together are a page.
const STRIDE: usize = 64;
const SIZE: usize = STRIDE * MAX_WORKERS;

/// The helpers that read the clock: to the nanosecond, and to the last tick (Linux 5.11), which
/// costs next to nothing.
pub(crate) const KTIME_GET_NS: i32 = 5;
pub(crate) const KTIME_GET_COARSE_NS: i32 = 160;

/// What the workers of a router share with their programs.
#[derive(Debug)]
pub struct Heartbeat {
    map: Map,
    memory: Mapping,
    limit: Nanos,
    /// From when to when, the last time, no worker gave a sign of life.
    gap: [AtomicU64; 2],
}

impl Heartbeat {
    /// How old the last sign of life may be.
    pub const LIMITS: std::ops::RangeInclusive<Nanos> =
        Nanos::from_millis(20)..=Nanos::from_millis(2000);

    /// A router that is taken for hung when none of its workers has beaten for `limit`, 20 ms to
    /// 2 s. None of them has yet.
    ///
    /// # Errors
    /// The limit is out of range, or the process lacks CAP_BPF.
    pub fn new(limit: Nanos) -> Result<Arc<Self>, PortError> {
        if !Self::LIMITS.contains(&limit) {
            return Err(PortError::OutOfRange {
                knob: "heartbeat",
                value: limit.0,
                range: "20 ms to 2 s",
            });
        }
        let map = Map::create(MapKind::Array, 4, SIZE as u32, 1, MMAPABLE)?;
        let memory = Mapping::shared(map.as_fd(), SIZE, 0, false)
            .map_err(|error| PortError::from_io("mapping a BPF map", error))?;
        Ok(Arc::new(Self { map, memory, limit, gap: [AtomicU64::new(0), AtomicU64::new(0)] }))
    }

    /// How old the last sign of life may be.
    #[must_use]
    pub const fn limit(&self) -> Nanos {
        self.limit
    }

    fn word(&self, worker: usize) -> &AtomicU64 {
        assert!(worker < MAX_WORKERS);
        // SAFETY: aligned and inside the mapping, which lives as long as `self`; the kernel side
        // only reads the word, whole.
        unsafe { AtomicU64::from_ptr(self.memory.start().add(worker * STRIDE).cast()) }
    }

    /// The last sign of life of the worker among the first so many that has been silent longest.
    #[must_use]
    pub fn oldest(&self, workers: usize) -> Nanos {
        let beats = (0..workers.min(MAX_WORKERS)).map(|at| self.word(at).load(Ordering::Acquire));
        Nanos(beats.min().unwrap_or(0))
    }

    fn newest(&self) -> Nanos {
        let beats = (0..MAX_WORKERS).map(|worker| self.word(worker).load(Ordering::Acquire));
        Nanos(beats.max().unwrap_or(0))
    }

    /// Told by a worker that has been silent for too long: since when, and until now, all were.
    /// Whoever comes back first finds it out for the others.
    fn silence(&self, now: Nanos) -> Range<Nanos> {
        let since = self.newest().saturating_add(self.limit);
        let [from, until] = &self.gap;
        if since < now {
            from.store(since.0, Ordering::Release);
            until.store(now.0, Ordering::Release);
        }
        Nanos(from.load(Ordering::Acquire))..Nanos(until.load(Ordering::Acquire))
    }

    /// Goes to `stale` if no worker has beaten lately: what the programs at the ingress of the
    /// stack do, which do not know whose a frame is. Registers 0 to 5 are lost.
    pub(crate) fn any_beats(&self, asm: &mut Assembler, clock: i32, stale: Label) {
        let (r0, r1, r2, r3) = (Reg(0), Reg(1), Reg(2), Reg(3));
        let fresh = asm.label();
        asm.call(clock).map_value(r1, &self.map);
        for worker in 0..MAX_WORKERS {
            // A beat after the clock was read makes the difference negative: fresh.
            asm.load(Width::B8, r2, r1, (worker * STRIDE) as i16);
            asm.copy(r3, r0).subtract(r3, r2);
            asm.jump_if(r3, If::NotGreaterSigned, self.limit.0 as i32, fresh);
        }
        asm.jump(stale);
        asm.place(fresh);
    }

    /// Goes to `stale` if the worker whose queue this is has not beaten lately: that whose number
    /// is the queue's, in `queue`, modulo their number. Registers 0 to 5 are lost.
    pub(crate) fn owner_beats(&self, asm: &mut Assembler, queue: Reg, workers: u32, stale: Label) {
        let (r0, r1, r2) = (Reg(0), Reg(1), Reg(2));
        let place = Reg(8);
        asm.set(place, 0);
        if workers > 1 {
            // The bound is for the verifier, which does not know what a remainder is.
            asm.copy(place, queue).modulo(place, workers as i32).and(place, MAX_WORKERS as i32 - 1);
            asm.shift_left(place, STRIDE.ilog2() as i32);
        }
        asm.call(KTIME_GET_COARSE_NS).map_value(r1, &self.map).add_register(r1, place);
        asm.load(Width::B8, r2, r1, 0).subtract(r0, r2);
        asm.jump_if(r0, If::GreaterSigned, self.limit.0 as i32, stale);
    }
}

/// Gives the signs of life of one worker.
#[derive(Debug)]
pub struct Beater {
    heart: Arc<Heartbeat>,
    worker: usize,
    /// A store that is not older need not be repeated.
    fresh: Nanos,
}

impl Beater {
    /// For worker `worker`, below [`MAX_WORKERS`]. It beats for the first time now.
    #[must_use]
    pub fn new(heart: Arc<Heartbeat>, worker: usize) -> Self {
        heart.word(worker).store(monotonic_now().0, Ordering::Release);
        let fresh = Nanos(heart.limit.0 / FRESH);
        Self { heart, worker, fresh }
    }

    /// The heart.
    #[must_use]
    pub const fn heart(&self) -> &Arc<Heartbeat> {
        &self.heart
    }

    /// Call it in each round of the loop that forwards; costs a load, and now and then a store. If
    /// the kernel has forwarded because all workers were silent, and this one was: from when to
    /// when.
    #[inline]
    pub fn beat(&self, now: Nanos) -> Option<Range<Nanos>> {
        let word = self.heart.word(self.worker);
        // Nobody else writes it.
        let last = Nanos(word.load(Ordering::Relaxed));
        if now.saturating_sub(last) < self.fresh {
            return None;
        }
        let late = now.saturating_sub(last) > self.heart.limit;
        let silence = if late { self.back(last) } else { None };
        // Not before the end of the silence, lest it be told twice.
        let beat = silence.as_ref().map_or(now, |silence| silence.end.max(now));
        word.store(beat.0, Ordering::Release);
        silence
    }

    #[cold]
    fn back(&self, last: Nanos) -> Option<Range<Nanos>> {
        // Read again, as close to the store as can be: until then the kernel forwards.
        let silence = self.heart.silence(monotonic_now());
        (silence.end > last && !silence.is_empty()).then_some(silence)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_worker_that_is_back_tells_the_others_how_long_nobody_was_there() {
        if !evenkeel_netns::testing::available("heartbeat") {
            return;
        }
        let limit = Nanos::from_millis(20);
        let heart = Heartbeat::new(limit).unwrap();
        let beaters = [0, 1].map(|worker| Beater::new(Arc::clone(&heart), worker));
        std::thread::sleep(std::time::Duration::from_millis(2));
        let start = monotonic_now();
        assert!(beaters.iter().all(|beater| beater.beat(start).is_none()));
        // The next store is not due yet.
        assert!(beaters.iter().all(|beater| beater.beat(start + Nanos(1)).is_none()));
        assert_eq!(heart.newest(), start);
        std::thread::sleep(std::time::Duration::from_millis(30));
        let back = monotonic_now();
        let first = beaters[0].beat(back).expect("nobody was there");
        assert_eq!(first.start, start + limit);
        assert!(first.end >= back);
        assert_eq!(beaters[1].beat(monotonic_now()), Some(first));

        // One alone was away: the kernel did not forward.
        beaters[0].beat(monotonic_now());
        std::thread::sleep(std::time::Duration::from_millis(30));
        heart.word(1).store(monotonic_now().0, Ordering::Release);
        assert_eq!(beaters[0].beat(monotonic_now()), None);
        assert!(heart.oldest(2) > start);
    }

    #[test]
    fn limits_have_a_range() {
        for limit in [Nanos::from_millis(19), Nanos::from_millis(2001)] {
            let error = Heartbeat::new(limit).unwrap_err().to_string();
            assert!(error.contains("20 ms to 2 s"), "{error}");
        }
    }
}
