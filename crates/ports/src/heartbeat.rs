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
use crate::sys::{ahead_of_the_kernel, keeper, monotonic_now, tick_length};

/// The most workers that a heartbeat has room for.
pub const MAX_WORKERS: usize = 64;

/// A worker stores the time when this part of the limit has passed since it did.
const FRESH: u64 = 16;

/// Each worker has a cache line of its own; all together are a page.
const STRIDE: usize = 64;
const SIZE: usize = STRIDE * MAX_WORKERS;
/// What lies in it, words of 64 bits: when the worker has beaten last, and what the programs have
/// found out about that: which beat they have seen, and the last tick for which that counts.
const BEAT: i16 = 0;
const SEEN: i16 = 8;
const UNTIL: i16 = 16;

/// The helpers that read the clock: to the nanosecond, and to the last tick (Linux 5.11), which
/// costs next to nothing.
pub(crate) const KTIME_GET_NS: i32 = 5;
pub(crate) const KTIME_GET_COARSE_NS: i32 = 160;
/// That which counts ticks.
const JIFFIES64: i32 = 118;

/// Register 0 becomes the time as this process reads it, by one of the helpers above. Registers 1
/// to 5 are lost.
pub(crate) fn read_clock(asm: &mut Assembler, helper: i32) {
    asm.call(helper);
    let ahead = ahead_of_the_kernel();
    if ahead != 0 {
        asm.set_wide(Reg(5), ahead).add_register(Reg(0), Reg(5));
    }
}

/// What the workers of a router share with their programs.
#[derive(Debug)]
pub struct Heartbeat {
    map: Map,
    memory: Mapping,
    limit: Nanos,
    /// From when to when, the last time, no worker gave a sign of life.
    gap: [AtomicU64; 2],
}

const _: () = assert!(SIZE == keeper::ZEROED);

impl Drop for Heartbeat {
    fn drop(&mut self) {
        keeper::forget(self.memory.start());
    }
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
        // A killed process gives no sign of life.
        keeper::zero_at_end(memory.start());
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

    /// Since when, for the programs at the ingress of the stack, a worker is silent; in the future
    /// while none is. Workers that run have the first words; all are silent before the first runs.
    #[must_use]
    pub fn silent_since(&self) -> Nanos {
        let beats = (0..MAX_WORKERS).map(|worker| self.word(worker).load(Ordering::Acquire));
        let oldest = beats.take_while(|beat| *beat > 0).min().unwrap_or(0);
        Nanos(oldest).saturating_add(self.limit)
    }

    /// A first sign of life for the workers that wait for their turn to take over: programs look at
    /// all of them as soon as the first has. One that has given one before is left alone: whether
    /// it was silent for too long is for itself to find.
    pub fn vouch(&self, workers: usize) {
        let now = monotonic_now().0;
        for worker in 0..workers {
            let word = self.word(worker);
            let _beats = word.compare_exchange(0, now, Ordering::AcqRel, Ordering::Relaxed);
        }
    }

    /// Workers from this one on are no more: their silence means nothing.
    pub fn retire(&self, from: usize) {
        (from..MAX_WORKERS).for_each(|worker| self.word(worker).store(0, Ordering::Release));
    }

    /// From when to when the kernel has forwarded the last time.
    fn last_gap(&self) -> Range<Nanos> {
        let [from, until] = &self.gap;
        Nanos(from.load(Ordering::Acquire))..Nanos(until.load(Ordering::Acquire))
    }

    /// Goes to `stale` if a worker has not beaten lately: what the programs at the ingress of the
    /// stack do, which do not know whose a frame is. Registers 0 to 5 are lost.
    pub(crate) fn all_beat(&self, asm: &mut Assembler, clock: i32, stale: Label) {
        let (r0, r1, r2, r3) = (Reg(0), Reg(1), Reg(2), Reg(3));
        let fresh = asm.label();
        read_clock(asm, clock);
        asm.map_value(r1, &self.map);
        for worker in 0..MAX_WORKERS {
            let nobody = if worker == 0 { stale } else { fresh };
            asm.load(Width::B8, r2, r1, (worker * STRIDE) as i16);
            asm.jump_if(r2, If::Equal, 0, nobody);
            // A beat after the clock was read makes the difference negative: fresh.
            asm.copy(r3, r0).subtract(r3, r2);
            asm.jump_if(r3, If::GreaterSigned, self.limit.0 as i32, stale);
        }
        asm.place(fresh);
    }

    /// Goes to `stale` if the worker whose queue this is has not beaten lately: that whose number
    /// is the queue's, in `queue`, modulo their number. Registers 0 to 5, 8 and 9 are lost.
    ///
    /// The clock is read once for each beat. From it follows until which tick the beat counts, and
    /// the number of the tick is a load from memory, to which the kernel turns the call for it.
    pub(crate) fn owner_beats(&self, asm: &mut Assembler, queue: Reg, workers: u32, stale: Label) {
        let (r0, r1, r2) = (Reg(0), Reg(1), Reg(2));
        let (line, tick) = (Reg(8), Reg(9));
        let (another, fresh) = (asm.label(), asm.label());
        let limit = self.limit.0 as i32;
        asm.map_value(line, &self.map);
        if workers > 1 {
            // The bound is for the verifier, which does not know what a remainder is.
            asm.copy(r1, queue).modulo(r1, workers as i32).and(r1, MAX_WORKERS as i32 - 1);
            asm.shift_left(r1, STRIDE.ilog2() as i32).add_register(line, r1);
        }
        asm.call(JIFFIES64).load(Width::B8, r1, line, BEAT).load(Width::B8, r2, line, SEEN);
        asm.jump_if_register(r1, If::NotEqual, r2, another);
        asm.load(Width::B8, r2, line, UNTIL).jump_if_register(r0, If::Greater, r2, stale);
        asm.jump(fresh);

        asm.place(another).copy(tick, r0);
        read_clock(asm, KTIME_GET_COARSE_NS);
        asm.load(Width::B8, r1, line, BEAT).subtract(r0, r1);
        asm.jump_if(r0, If::GreaterSigned, limit, stale);
        asm.set(r2, limit)
            .subtract(r2, r0)
            .divide(r2, tick_length().0 as i32)
            .add_register(tick, r2);
        // In this order: another CPU that knows the beat knows how long it counts.
        asm.store_register(Width::B8, line, UNTIL, tick);
        asm.store_register(Width::B8, line, SEEN, r1);
        asm.place(fresh);
    }
}

/// Gives the signs of life of one worker.
#[derive(Debug)]
pub struct Beater {
    heart: Arc<Heartbeat>,
    worker: usize,
    /// A store that is not older need not be repeated.
    fresh: Nanos,
    /// No worker is silent for too long before that.
    calm: Nanos,
    /// Somebody was, when it was looked the last time: the kernel forwards.
    silent: bool,
}

impl Beater {
    /// For worker `worker`, below [`MAX_WORKERS`]. It beats for the first time now.
    #[must_use]
    pub fn new(heart: Arc<Heartbeat>, worker: usize) -> Self {
        heart.word(worker).store(monotonic_now().0, Ordering::Release);
        Self::waiting(heart, worker)
    }

    /// The same; until it [beats](Self::beat), it is not a worker that could be silent.
    #[must_use]
    pub fn waiting(heart: Arc<Heartbeat>, worker: usize) -> Self {
        let fresh = Nanos(heart.limit.0 / FRESH);
        Self { heart, worker, fresh, calm: Nanos::ZERO, silent: false }
    }

    /// The heart.
    #[must_use]
    pub const fn heart(&self) -> &Arc<Heartbeat> {
        &self.heart
    }

    /// Call it in each round of the loop that forwards; costs a load, and now and then a store. If
    /// the kernel forwards because a worker, this one or another, was silent: from when to when;
    /// until [`Nanos::MAX`] while another still is.
    #[inline]
    pub fn beat(&mut self, now: Nanos) -> Option<Range<Nanos>> {
        // Nobody else writes it.
        let last = Nanos(self.heart.word(self.worker).load(Ordering::Relaxed));
        if now.saturating_sub(last) < self.fresh && now < self.calm {
            return None;
        }
        self.look(now, last)
    }

    fn look(&mut self, now: Nanos, last: Nanos) -> Option<Range<Nanos>> {
        let Heartbeat { limit, gap: [from, until], .. } = &*self.heart;
        let word = self.heart.word(self.worker);
        if now.saturating_sub(last) <= *limit {
            word.store(now.0, Ordering::Release);
        } else {
            let since = self.heart.silent_since();
            // Read again, as close to the store as can be: until then the kernel forwards.
            let back = monotonic_now().max(now);
            if since < back {
                from.store(since.0, Ordering::Release);
                until.store(back.0, Ordering::Release);
            }
            word.store(back.0, Ordering::Release);
        }
        self.calm = self.heart.silent_since();
        let was_silent = std::mem::replace(&mut self.silent, self.calm <= now);
        if self.silent {
            return (!was_silent).then_some(self.calm..Nanos::MAX);
        }
        let gap = self.heart.last_gap();
        let told = !was_silent && gap.end <= last;
        (!told && !gap.is_empty()).then_some(gap)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f10_each_worker_learns_from_when_to_when_one_was_away() {
        if !evenkeel_netns::testing::available("heartbeat") {
            return;
        }
        let limit = Nanos::from_millis(20);
        let heart = Heartbeat::new(limit).unwrap();
        let mut beaters = [0, 1].map(|worker| Beater::new(Arc::clone(&heart), worker));
        std::thread::sleep(std::time::Duration::from_millis(2));
        let start = monotonic_now();
        assert!(beaters.iter_mut().all(|beater| beater.beat(start).is_none()));
        // The next store is not due yet.
        assert!(beaters.iter_mut().all(|beater| beater.beat(start + Nanos(1)).is_none()));
        assert_eq!(heart.oldest(2), start);
        let pause = || std::thread::sleep(std::time::Duration::from_millis(30));
        pause();
        // Both were away, and the first that is back cannot forward alone.
        let back = monotonic_now();
        assert_eq!(beaters[0].beat(back), Some(start + limit..Nanos::MAX));
        assert_eq!(beaters[0].beat(monotonic_now()), None, "it was told");
        let all = beaters[1].beat(monotonic_now()).expect("nobody was there");
        assert!(all.start == start + limit && all.end > back, "{all:?}");
        assert_eq!(beaters[0].beat(monotonic_now()), Some(all.clone()));
        assert!(beaters.iter_mut().all(|beater| beater.beat(monotonic_now()).is_none()));

        // One alone was away.
        let alone = heart.oldest(2);
        pause();
        beaters[0].beat(monotonic_now());
        let away = beaters[0].beat(monotonic_now());
        assert!(away.is_none(), "told when it beat before: {away:?}");
        let gap = beaters[1].beat(monotonic_now()).expect("the kernel forwarded");
        assert!(gap.start >= alone + limit && gap.end > all.end, "{gap:?} {all:?}");
        assert_eq!(beaters[0].beat(monotonic_now()), Some(gap));

        // One that is no more is not waited for.
        heart.retire(1);
        pause();
        assert!(beaters[0].beat(monotonic_now()).is_some_and(|gap| gap.end < Nanos::MAX));
        assert_eq!(beaters[0].beat(monotonic_now()), None);
    }

    #[test]
    fn limits_have_a_range() {
        for limit in [Nanos::from_millis(19), Nanos::from_millis(2001)] {
            let error = Heartbeat::new(limit).unwrap_err().to_string();
            assert!(error.contains("20 ms to 2 s"), "{error}");
        }
    }
}
