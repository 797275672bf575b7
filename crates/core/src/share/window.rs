//! A window is over: whoever finds it so opens the next, and takes its grants over.

use super::{
    AHEAD, BUSY, BYTE, CARRY, CONTENDED, LEVEL, LEVEL_PART, OPENED, Ordering, POT, Part, SENT,
    SPARE, SharedLink, Sharing, Told, UNIT, UNUSED, WINDOW, fence,
};
use crate::units::{BitRate, Bytes, Nanos};

impl SharedLink {
    /// Opens the next window if the present one is over at `at`, and it is not being opened by
    /// another.
    pub(super) fn open(&self, part: &mut Part, at: Nanos) {
        part.publish(self);
        let current = self.current.load(Ordering::Acquire);
        let before = self.table(current);
        let (opened, window) = (Nanos(before.head.get(OPENED)), Nanos(before.head.get(WINDOW)));
        if at < opened.saturating_add(window) {
            return;
        }
        // The new table is written where no worker reads: each has two tables, used in turn.
        let number = (current >> 8) + 1;
        let table = &self.tables[part.worker][(number & 1) as usize];
        // A worker that still reads the old content of this table, and meets a new value in it,
        // must then see that the table is no longer current: `read` and `renew` look again after
        // reading.
        fence(Ordering::Release);
        let rate = self.rate.load(Ordering::Relaxed);
        let window = Self::window_at(BitRate(rate));
        // The budget: what the wire could send since the last window was opened. Of a pause it
        // counts at most as long as grants may stay unused, and of an idle wire no more than one
        // window.
        let contended = before.head.get(CONTENDED) != 0;
        let unused = self.patience.0.max(window.0.saturating_mul(UNUSED));
        // Without open demands the wire was idle for some of the time, which cannot be saved.
        let longest = if contended { unused } else { window.0 };
        let passed = at.saturating_sub(opened).0.min(longest);
        let earned =
            u128::from(rate) * u128::from(passed) * UNIT + u128::from(before.head.get(CARRY));
        // Rounding is carried over, and so is what the last filling could not divide evenly.
        let budget =
            u64::try_from(earned / BYTE).unwrap_or(u64::MAX).saturating_add(before.head.get(SPARE));
        // No worker holds more unused grants of a class than this, however long it stands still.
        let most = u128::from(rate) * u128::from(unused) * UNIT / BYTE;
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        let mut level = 0;
        let left = self.divide(part, before, table, budget, most, &mut level);
        // Demands that stay open mean that packets wait: then every byte is granted and the rest is
        // kept. Otherwise the rest is every worker's in equal parts, for what arrives in the
        // window.
        let contended = part.by_class[..self.classes].iter().any(|(_, demand)| *demand > 0);
        table.head.set(OPENED, at.0);
        table.head.set(WINDOW, window.0);
        table.head.set(POT, if contended { 0 } else { left / self.workers as u64 });
        table.head.set(SPARE, if contended { left } else { 0 });
        table.head.set(CARRY, (earned % BYTE) as u64);
        table.head.set(CONTENDED, u64::from(contended));
        // Elastic flows were also sent bytes without a grant (`Told::Free`). FB counts what a flow
        // that always waits would have got, so it grows by the most that any worker gave one flow
        // that way.
        let mut free = 0;
        for worker in 0..self.workers {
            let told = self.told(worker, Told::Free);
            free = free.max(told.wrapping_sub(before.free.get(worker)));
            table.free.set(worker, told);
        }
        level += free;
        if part.sharing == Sharing::Flows {
            // FB is kept in whole bytes and a fraction of 2^-16: the fraction carries into the
            // bytes.
            let part_before = before.head.get(LEVEL_PART) + level % (1 << 16);
            table.head.set(LEVEL, before.head.get(LEVEL) + (level >> 16) + (part_before >> 16));
            table.head.set(LEVEL_PART, part_before % (1 << 16));
            // D = C·W/M: what a worker may send with priority before it has a grant.
            let ahead =
                u128::from(rate) * u128::from(window.0) * UNIT / BYTE / self.workers as u128;
            table.head.set(AHEAD, u64::try_from(ahead).unwrap_or(u64::MAX));
            // The link was busy for as long as it takes to send what went out since the last
            // window.
            let sent = self.all_told(Told::Sent);
            let busy = self.time_of(sent.wrapping_sub(before.head.get(SENT)));
            table.head.set(BUSY, before.head.get(BUSY).saturating_add(busy));
            table.head.set(SENT, sent);
        } else {
            [LEVEL, LEVEL_PART, BUSY, SENT]
                .iter()
                .for_each(|at| table.head.set(*at, before.head.get(*at)));
        }
        let new = number << 8 | part.worker as u64;
        // If another worker was faster, its table counts and this one is forgotten.
        let _ = self.current.compare_exchange(current, new, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// What `part` may send in the present window, which is a new one if the last is over at `at`.
    #[inline(never)] // it is once in a window that one is over
    pub(super) fn renew(&self, part: &mut Part, at: Nanos) {
        self.open(part, at);
        loop {
            let current = self.current.load(Ordering::Acquire);
            let table = self.table(current);
            let row = part.worker * self.classes;
            for (class, column) in part.columns.iter_mut().enumerate() {
                column.credit = table.granted.get(row + class).wrapping_sub(column.sent) as i64;
            }
            part.look_for_grants();
            let pot = table.head.get(POT);
            if part.sharing == Sharing::Flows {
                part.ahead = i64::try_from(table.head.get(AHEAD)).unwrap_or(i64::MAX);
                part.level = Bytes(table.head.get(LEVEL));
                part.contended = table.head.get(CONTENDED) != 0;
            }
            let until = table.head.get(OPENED).saturating_add(table.head.get(WINDOW));
            fence(Ordering::Acquire);
            if self.current.load(Ordering::Relaxed) == current {
                part.until = Nanos(until);
                if part.seen != current >> 8 {
                    part.seen = current >> 8;
                    part.pot =
                        i64::try_from(pot).unwrap_or(i64::MAX).saturating_add(part.pot.min(0));
                }
                return;
            }
        }
    }
}
