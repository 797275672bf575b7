//! What a worker holds of a shared link: its account of what waits and went, and what it may send.

use alloc::vec::Vec;

use super::{ELASTIC, SharedLink, Sharing, Told, URGENT};
use crate::units::{Bytes, Nanos};

/// What a worker holds for a window: memory for computing grants, and what it may send.
#[derive(Debug)]
pub struct Part {
    pub(super) worker: usize,
    pub(super) columns: Vec<Column>,
    /// Of which T or S may not be published yet: a bit for each 64th.
    changed: u64,
    /// Some class may send against its grant.
    pub(super) has_grants: bool,
    pub(super) pot: i64,
    /// When the window of these credits is over.
    pub(super) until: Nanos,
    /// The window that they are of.
    pub(super) seen: u64,
    pub(super) demand: Vec<u64>,
    pub(super) grant: Vec<u64>,
    pub(super) by_class: Vec<(u64, u64)>,
    pub(super) by_worker: Vec<(u64, u64)>,
    pub(super) sharing: Sharing,
    /// D of this window.
    pub(super) ahead: i64,
    /// FB as of this window, and whether any demand was left unmet when it was opened.
    pub(super) level: Bytes,
    pub(super) contended: bool,
    /// What it has told of each [`Told`], or is about to.
    pub(super) all: u64,
    pub(super) priority: u64,
    pub(super) free: u64,
}

/// What a worker holds of a class for a window.
#[derive(Clone, Copy, Debug)]
pub(super) struct Column {
    /// Bytes that it may send now, in units; negative is debt.
    pub(super) credit: i64,
    /// T and S.
    pub(super) target: u64,
    pub(super) sent: u64,
    /// w.
    pub(super) weight: u64,
}

impl SharedLink {
    /// The part of a worker, which goes on where the last part of the same worker ended, with
    /// nothing waiting.
    ///
    /// # Panics
    /// There is no such worker.
    #[must_use]
    pub fn part(&self, worker: usize) -> Part {
        assert!(worker < self.workers, "there are {} workers", self.workers);
        let classes = self.classes;
        let column = |class| {
            let sent = self.cells[worker].0.get(2 * class + 1);
            Column { credit: 0, target: sent, sent, weight: 1 }
        };
        let mut part = Part {
            worker,
            columns: (0..classes).map(column).collect(),
            changed: !0,
            has_grants: false,
            pot: 0,
            until: Nanos::ZERO,
            seen: u64::MAX,
            demand: alloc::vec![0; self.workers * classes],
            grant: alloc::vec![0; self.workers * classes],
            by_class: alloc::vec![(0, 0); classes],
            by_worker: alloc::vec![(0, 0); self.workers],
            sharing: Sharing::Classes,
            ahead: 0,
            level: self.level(),
            contended: false,
            all: self.told(worker, Told::Sent),
            priority: self.told(worker, Told::Priority),
            free: self.told(worker, Told::Free),
        };
        part.publish(self);
        self.tell(worker, Told::Flows, 0);
        part
    }

    /// The part of a worker whose columns go one before the other, as [`SharedLink::part`].
    pub(crate) fn part_by_levels(&self, worker: usize) -> Part {
        Part { sharing: Sharing::Levels, ..self.part(worker) }
    }

    /// The part of a worker whose flows share, as [`SharedLink::part`].
    pub(crate) fn part_by_flows(&self, worker: usize) -> Part {
        Part { sharing: Sharing::Flows, ..self.part(worker) }
    }

    /// The part of a worker whose classes are sent as many packets each, as [`SharedLink::part`].
    pub(crate) fn part_by_packets(&self, worker: usize) -> Part {
        Part { sharing: Sharing::Packets, ..self.part(worker) }
    }
}

impl Part {
    /// The weight that this worker computes a class with.
    pub(crate) fn set_weight(&mut self, class: usize, weight: u32) {
        self.columns[class].weight = u64::from(weight.max(1));
    }

    /// When the present window is over.
    pub(crate) fn until(&self) -> Nanos {
        self.until
    }

    /// How many columns there are.
    pub(crate) fn columns(&self) -> usize {
        self.columns.len()
    }

    /// Whether a packet of `class` may be sent against its grant.
    pub(crate) fn is_granted(&self, class: usize) -> bool {
        self.columns[class].credit > 0
    }

    /// Whether any class has a grant that is not used up. On a link with room to spare hardly
    /// anything waits when a window begins, so there is none for most of the time.
    #[inline]
    pub(crate) fn has_grants(&self) -> bool {
        self.has_grants
    }

    /// Whether a packet of any class may be sent.
    pub(crate) fn may_send_any(&self, now: Nanos) -> bool {
        self.pot > 0 && now < self.until
    }

    /// If the present window is over: opens the next, unless another worker has, and takes its
    /// grants over.
    #[inline]
    pub(crate) fn at(&mut self, link: &SharedLink, now: Nanos) {
        if now >= self.until {
            link.renew(self, now);
        }
    }

    /// T or S of a class has changed.
    #[inline]
    fn column(&mut self, class: usize) -> &mut Column {
        self.changed |= 1 << (class % 64);
        &mut self.columns[class]
    }

    /// Tells the others what has changed since the last time.
    #[inline]
    pub(crate) fn publish(&mut self, link: &SharedLink) {
        let cells = &link.cells[self.worker].0;
        while self.changed != 0 {
            let mut class = self.changed.trailing_zeros() as usize;
            self.changed &= self.changed - 1;
            while let Some(Column { target, sent, .. }) = self.columns.get(class) {
                cells.set(2 * class, *target);
                cells.set(2 * class + 1, *sent);
                class += 64;
            }
        }
    }

    /// A packet came to wait. This, and what follows, is to be [published](Self::publish).
    #[inline]
    pub(crate) fn came(&mut self, class: usize, bytes: u64) {
        let column = self.column(class);
        column.target = column.target.wrapping_add(bytes << 16);
    }

    /// A packet left the backlog without using a grant: dropped, or sent from the pot.
    #[inline]
    pub(crate) fn gone(&mut self, class: usize, bytes: u64) {
        let column = self.column(class);
        column.target = column.target.wrapping_sub(bytes << 16);
    }

    /// What waits in a column, in bytes on the wire.
    #[inline]
    pub(crate) fn waits(&mut self, column: usize, bytes: u64) {
        let column = self.column(column);
        column.target = column.sent.wrapping_add(bytes << 16);
    }

    /// A packet of `class` is sent: against the grant of `granted`, which asks for it again if it
    /// is another's, or from the pot if that has none left.
    #[inline(always)] // a call costs half of it
    pub(crate) fn sent(&mut self, class: usize, granted: usize, bytes: u64) {
        let units = bytes << 16;
        if self.columns[granted].credit <= 0 {
            self.pot -= units as i64;
            self.gone(class, bytes);
            return;
        }
        if granted != class {
            self.gone(class, bytes);
            self.came(granted, bytes);
        }
        let column = self.column(granted);
        column.credit -= units as i64;
        column.sent = column.sent.wrapping_add(units);
        if column.credit <= 0 {
            self.look_for_grants();
        }
    }

    pub(super) fn look_for_grants(&mut self) {
        self.has_grants = self.columns.iter().any(|column| column.credit > 0);
    }
}

/// What a worker does whose flows share.
impl Part {
    /// FB as of the present window.
    pub(crate) fn level(&self) -> Bytes {
        self.level
    }

    /// Whether demand exceeded the window's bytes when it was opened.
    pub(crate) fn is_contended(&self) -> bool {
        self.contended
    }

    /// What is left of what may be sent ahead of grants with priority; what is overdrawn beyond is
    /// taken from what elastic packets may send now.
    fn overdrawn(&self) -> i64 {
        self.columns[URGENT].credit.saturating_add(self.ahead)
    }

    /// Whether a packet with priority may go.
    pub(crate) fn may_send_urgent(&self, now: Nanos) -> bool {
        let ahead = self.overdrawn();
        ahead > 0
            || ahead.saturating_add(self.columns[ELASTIC].credit.max(0)) > 0
            || self.may_send_any(now)
    }

    /// Whether a packet may go where none goes ahead of grants: on those of either column.
    pub(crate) fn may_send_either(&self, now: Nanos) -> bool {
        self.columns[URGENT].credit.saturating_add(self.columns[ELASTIC].credit) > 0
            || self.may_send_any(now)
    }

    /// Whether an elastic packet may go.
    pub(crate) fn may_send_elastic(&self, now: Nanos) -> bool {
        self.columns[ELASTIC].credit.saturating_add(self.overdrawn().min(0)) > 0
            || self.may_send_any(now)
    }

    /// A packet of a column is sent, while elastic flows of so much `weight` wait; the caller says
    /// what [waits](Self::waits) then, and [publishes](Self::publish_flows) it.
    #[inline]
    pub(crate) fn sent_by_flow(&mut self, at: usize, bytes: u64, weight: u64, now: Nanos) {
        let units = bytes << 16;
        self.all = self.all.wrapping_add(units);
        if self.columns[at].credit <= 0 && self.may_send_any(now) {
            self.pot -= units as i64;
            if at == ELASTIC {
                self.free = self.free.wrapping_add((units << 16) / weight.max(1 << 16));
            }
            return;
        }
        let column = &mut self.columns[at];
        column.credit -= units as i64;
        column.sent = column.sent.wrapping_add(units);
    }

    /// So many bytes were taken in with priority.
    #[inline]
    pub(crate) fn came_with_priority(&mut self, bytes: Bytes) {
        self.priority = self.priority.wrapping_add(bytes.0);
    }

    /// Tells the others what waits, in bytes on the wire by column, of how much `weight` the
    /// elastic flows are, and what was sent.
    pub(crate) fn publish_flows(&mut self, link: &SharedLink, waiting: [Bytes; 2], weight: u64) {
        for (column, bytes) in [URGENT, ELASTIC].into_iter().zip(waiting) {
            self.waits(column, bytes.0);
        }
        self.publish(link);
        for (what, value) in [
            (Told::Sent, self.all),
            (Told::Priority, self.priority),
            (Told::Free, self.free),
            (Told::Flows, weight),
        ] {
            link.tell(self.worker, what, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_came_of_any_class_is_told_and_nothing_where_nothing_changed() {
        let link = SharedLink::new(2, 130, Nanos::ZERO);
        let mut part = link.part(1);
        let cells = &link.cells[1].0;
        for class in [0, 1, 63, 64, 65, 128, 129] {
            part.came(class, 100);
            part.publish(&link);
            assert_eq!(cells.get(2 * class), 100 << 16, "{class}");
            part.gone(class, 30);
            part.publish(&link);
            assert_eq!(cells.get(2 * class), 70 << 16, "{class}");
        }
        cells.set(2, 7);
        part.came(2, 1);
        part.publish(&link);
        assert_eq!(cells.get(2), 7);
    }
}
