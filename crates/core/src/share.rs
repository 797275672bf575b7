//! One outgoing link shared by the workers of a router, without a lock: who may send how much of which class.
//!
//! Each worker has queues and a wire of its own. What must be common is the rate and the shares of the classes. So
//! time is cut into windows; in each, every worker and class is *granted* bytes, and sends no more than that. A grant is computed by
//! whichever worker first finds that the window is over, from what all of them say they have waiting; nobody ever waits for
//! anybody.
//!
//! Source: the link-side half of "Implementation of WFQ in a Distributed Open Software Router" (Khan, Sahoo, Manjunath), with weights by
//! rule C: the share of a class is the link's, however its packets fall on workers. What the paper's exchange
//! of frames needs and memory does not is left out: a forwarder there serves one link at a time, hence its stable matching, and hears of
//! the others once per cycle, hence tags that everybody computes alike. Workers can send on every link in every window, so what remains is to
//! divide the bytes of a window: weighted max-min over classes, which is what WFQ gives in the fluid limit, then max-min over the workers of a class.
//!
//! | symbol | field | unit |
//! |---|---|---|
//! | C, the rate | `rate` | bit/s |
//! | W, the window | `Table::window` | ns |
//! | w_k | `Scratch::weights` | – |
//! | T_mk, sent and waiting | `Cells::target` | 2^-16 bytes on the wire, modulo 2^64 |
//! | S_mk, sent against a grant | `Cells::sent` | 2^-16 bytes on the wire, modulo 2^64 |
//! | G_mk, granted since the start | `Table::granted` | 2^-16 bytes on the wire, modulo 2^64 |
//! | P, for whatever comes | `Table::pot` | 2^-16 bytes on the wire |
//!
//! **What is computed.** The demand of a worker and class is T − G, and never more than keeps G − S within what the link sends in a few windows or in the
//! patience, whichever is longer: a worker that stands still does not hoard. The bytes C·W are filled into the demands of the classes by weight, and those of a class
//! into its workers alike. What nobody demands is every worker's in equal parts, for whatever arrives before the window is over; then it is lost, as time on a
//! wire is. Grants that a queue no longer needs, because its packets were dropped, are taken back.
//!
//! **Publishing.** A worker stores T when a packet comes and S when it goes, into cells of its own; each is a whole statement, so no two need to fit together. A new
//! table is written where nobody reads, and one compare-and-swap makes it the current one: the loser's is forgotten. Who reads his row checks
//! afterwards that the table is still current, and reads again if not; then somebody else has made progress.
//!
//! **Bound.** What a worker sends of a class follows its grants within the largest packet; grants follow the weights within 2^-16 bytes per
//! class and window while demands last. A packet that meets an empty queue may wait for a window before it is granted anything.
//! The sum over workers exceeds C by no more than a largest packet per worker and class, and by what stalled workers still had.
//!
//! **Cost.** Two stores per packet. A window costs whoever opens it M·K reads of others' cells and at most K² steps.
//!
//! Not implemented: grants by flow or by tag, groups of workers.

use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering, fence};

use crate::units::{BitRate, Nanos};

/// Fractions of a byte that are counted.
const UNIT: u128 = 1 << 16;
/// Bit-nanoseconds in a byte.
const BYTE: u128 = 8_000_000_000;
/// The shortest window: below, opening windows costs more than a few percent of a worker.
const SHORTEST: Nanos = Nanos::from_micros(50);
/// A window takes at least this many bytes, eight long frames: else most windows would grant fractions of a packet.
const LEAST_BYTES: u128 = 8 * 1538;
/// For how many windows grants may go unused, at least.
const UNUSED: u64 = 4;
/// The most workers.
pub const MAX_WORKERS: usize = 64;

/// As many cells as lie together in two cache lines, which processors fetch in pairs: workers' cells do not share them.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Line([AtomicU64; 16]);

/// A row of cells with lines of its own.
#[derive(Debug)]
struct Row(Vec<Line>);

impl Row {
    fn new(cells: usize) -> Self {
        Self((0..cells.div_ceil(16)).map(|_| Line::default()).collect())
    }

    fn get(&self, at: usize) -> u64 {
        self.0[at / 16].0[at % 16].load(Ordering::Relaxed)
    }

    fn set(&self, at: usize, value: u64) {
        self.0[at / 16].0[at % 16].store(value, Ordering::Relaxed);
    }
}

/// The grants of one window. Columns of `head`: see the constants.
#[derive(Debug)]
struct Table {
    head: Row,
    /// By worker and class.
    granted: Row,
}

const OPENED: usize = 0;
const WINDOW: usize = 1;
const POT: usize = 2;
/// What the division of the budget left, in bit-nanoseconds times 2^16 divided by a byte's.
const CARRY: usize = 3;
/// What the filling left, in units.
const SPARE: usize = 4;
const CONTENDED: usize = 5;

/// What a worker says of itself: `target` and `sent` of each class, alternating.
#[derive(Debug)]
struct Cells(Row);

/// The common part of a link.
#[derive(Debug)]
pub struct SharedLink {
    workers: usize,
    classes: usize,
    patience: Nanos,
    /// 0: none, everybody sends what he has.
    rate: AtomicU64,
    cells: Vec<Cells>,
    /// Two of each worker: the one that may be current, and the one it writes next.
    tables: Vec<[Table; 2]>,
    /// The number of the window, times 256, plus the worker whose table it is.
    current: AtomicU64,
}

/// What a worker holds for a window: memory for computing grants, and what it may send.
#[derive(Debug)]
pub struct Part {
    worker: usize,
    /// Bytes that each class may send now, in units; negative is debt.
    credit: Vec<i64>,
    pot: i64,
    /// When the window of these credits is over.
    until: Nanos,
    /// The window that they are of.
    seen: u64,
    target: Vec<u64>,
    sent: Vec<u64>,
    weights: Vec<u64>,
    demand: Vec<u64>,
    grant: Vec<u64>,
    by_class: Vec<(u64, u64)>,
}

impl SharedLink {
    /// A link without a rate, of `classes` columns, for 1 to [`MAX_WORKERS`] workers. `patience`: for how long a worker that does not come still gets its share.
    #[must_use]
    pub fn new(workers: usize, classes: usize, patience: Nanos) -> Self {
        let workers = workers.clamp(1, MAX_WORKERS);
        let classes = classes.max(1);
        let table = || Table { head: Row::new(6), granted: Row::new(workers * classes) };
        Self {
            workers,
            classes,
            patience,
            rate: AtomicU64::new(0),
            cells: (0..workers).map(|_| Cells(Row::new(2 * classes))).collect(),
            tables: (0..workers).map(|_| [table(), table()]).collect(),
            current: AtomicU64::new(0),
        }
    }

    /// How many classes it tells apart.
    #[must_use]
    pub fn classes(&self) -> usize {
        self.classes
    }

    /// How many workers share it.
    #[must_use]
    pub fn workers(&self) -> usize {
        self.workers
    }

    /// Changes the rate, from the next window on.
    pub fn set_rate(&self, rate: Option<BitRate>) {
        self.rate.store(rate.map_or(0, |rate| rate.0), Ordering::Relaxed);
    }

    /// Whether grants bind: the link has a rate.
    #[must_use]
    pub fn is_paced(&self) -> bool {
        self.rate.load(Ordering::Relaxed) != 0
    }

    /// How long a window lasts at `rate`: 50 µs, or as long as eight frames of 1538 bytes take.
    #[must_use]
    pub fn window_at(rate: BitRate) -> Nanos {
        let bytes = (LEAST_BYTES * BYTE).div_ceil(u128::from(rate.0.max(1)));
        Nanos(u64::try_from(bytes).unwrap_or(u64::MAX)).max(SHORTEST)
    }

    /// The part of a worker, which goes on where the last part of the same worker ended, with nothing waiting.
    ///
    /// # Panics
    /// There is no such worker.
    #[must_use]
    pub fn part(&self, worker: usize) -> Part {
        assert!(worker < self.workers, "there are {} workers", self.workers);
        let classes = self.classes;
        let sent: Vec<u64> = (0..classes).map(|class| self.cells[worker].0.get(2 * class + 1)).collect();
        let part = Part {
            worker,
            credit: alloc::vec![0; classes],
            pot: 0,
            until: Nanos::ZERO,
            seen: u64::MAX,
            target: sent.clone(),
            sent,
            weights: alloc::vec![1; classes],
            demand: alloc::vec![0; self.workers * classes],
            grant: alloc::vec![0; self.workers * classes],
            by_class: alloc::vec![(0, 0); classes.max(self.workers)],
        };
        (0..classes).for_each(|class| self.publish_target(&part, class));
        part
    }

    fn publish_target(&self, part: &Part, class: usize) {
        self.cells[part.worker].0.set(2 * class, part.target[class]);
    }

    fn publish_sent(&self, part: &Part, class: usize) {
        self.cells[part.worker].0.set(2 * class + 1, part.sent[class]);
    }

    fn table(&self, current: u64) -> &Table {
        let (window, worker) = (current >> 8, (current & 0xff) as usize);
        &self.tables[worker][(window & 1) as usize]
    }

    /// Opens the next window if the present one is over at `at`, and it is not being opened by another.
    fn open(&self, part: &mut Part, at: Nanos) {
        let current = self.current.load(Ordering::Acquire);
        let before = self.table(current);
        let (opened, window) = (Nanos(before.head.get(OPENED)), Nanos(before.head.get(WINDOW)));
        if at < opened.saturating_add(window) {
            return;
        }
        let number = (current >> 8) + 1;
        let table = &self.tables[part.worker][(number & 1) as usize];
        // Whoever still reads an old content of this table, and sees something new in it, must see that the table is no longer current.
        fence(Ordering::Release);
        let rate = self.rate.load(Ordering::Relaxed);
        let window = Self::window_at(BitRate(rate));
        let contended = before.head.get(CONTENDED) != 0;
        let unused = self.patience.0.max(window.0.saturating_mul(UNUSED));
        // A wire that nobody waited for has not saved its time.
        let longest = if contended { unused } else { window.0 };
        let passed = at.saturating_sub(opened).0.min(longest);
        let earned = u128::from(rate) * u128::from(passed) * UNIT + u128::from(before.head.get(CARRY));
        let budget = u64::try_from(earned / BYTE).unwrap_or(u64::MAX).saturating_add(before.head.get(SPARE));
        let most = u128::from(rate) * u128::from(unused) * UNIT / BYTE;
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        let left = self.divide(part, before, table, budget, most);
        let contended = part.by_class[..self.classes].iter().any(|(_, demand)| *demand > 0);
        table.head.set(OPENED, at.0);
        table.head.set(WINDOW, window.0);
        table.head.set(POT, if contended { 0 } else { left / self.workers as u64 });
        table.head.set(SPARE, if contended { left } else { 0 });
        table.head.set(CARRY, (earned % BYTE) as u64);
        table.head.set(CONTENDED, u64::from(contended));
        let new = number << 8 | part.worker as u64;
        // Somebody else may have been faster: then his table counts.
        let _ = self.current.compare_exchange(current, new, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// Fills `budget` into the demands, and writes the new sums. Returns what is left; `by_class` has the demands that are.
    fn divide(&self, part: &mut Part, before: &Table, table: &Table, budget: u64, most: i64) -> u64 {
        let (classes, workers) = (self.classes, self.workers);
        let Part { demand, grant, by_class, weights, .. } = part;
        by_class[..classes].iter_mut().zip(&*weights).for_each(|(class, weight)| *class = (*weight, 0));
        for worker in 0..workers {
            let cells = &self.cells[worker].0;
            for (class, (_, asked)) in by_class[..classes].iter_mut().enumerate() {
                let at = worker * classes + class;
                let (target, sent) = (cells.get(2 * class), cells.get(2 * class + 1));
                let granted = before.granted.get(at);
                let wanted = target.wrapping_sub(granted) as i64;
                let granted = if wanted < 0 { target } else { granted };
                let room = most.saturating_sub(granted.wrapping_sub(sent) as i64);
                demand[at] = wanted.min(room).max(0) as u64;
                *asked = asked.saturating_add(demand[at]);
                grant[at] = granted;
            }
        }
        let mut left = budget;
        if by_class[..classes].iter().any(|(_, demand)| *demand > 0) {
            left = fill(&mut by_class[..classes], budget);
        }
        let mut rest = left;
        for (class, (_, open)) in by_class[..classes].iter().enumerate() {
            let all: u64 = (0..workers).map(|w| demand[w * classes + class]).fold(0, u64::saturating_add);
            let mut budget = all - *open;
            // Max-min over the workers of the class: the level rises until it has used its bytes.
            let mut thirsty = (0..workers).filter(|w| demand[w * classes + class] > 0).count() as u64;
            while budget > 0 && thirsty > 0 {
                let level = budget / thirsty;
                if level == 0 {
                    break;
                }
                for worker in 0..workers {
                    let at = worker * classes + class;
                    let gets = demand[at].min(level);
                    if gets == 0 {
                        continue;
                    }
                    demand[at] -= gets;
                    grant[at] = grant[at].wrapping_add(gets);
                    budget -= gets;
                    thirsty -= u64::from(demand[at] == 0);
                }
            }
            rest += budget;
        }
        grant.iter().enumerate().for_each(|(at, granted)| table.granted.set(at, *granted));
        rest
    }

    /// What `part` may send in the present window, which is a new one if the last is over at `at`.
    fn renew(&self, part: &mut Part, at: Nanos) {
        self.open(part, at);
        loop {
            let current = self.current.load(Ordering::Acquire);
            let table = self.table(current);
            let row = part.worker * self.classes;
            for class in 0..self.classes {
                part.credit[class] = table.granted.get(row + class).wrapping_sub(part.sent[class]) as i64;
            }
            let pot = table.head.get(POT);
            let until = table.head.get(OPENED).saturating_add(table.head.get(WINDOW));
            fence(Ordering::Acquire);
            if self.current.load(Ordering::Relaxed) == current {
                part.until = Nanos(until);
                if part.seen != current >> 8 {
                    part.seen = current >> 8;
                    part.pot = i64::try_from(pot).unwrap_or(i64::MAX).saturating_add(part.pot.min(0));
                }
                return;
            }
        }
    }
}

impl Part {
    /// The weight that this worker computes a class with.
    pub(crate) fn set_weight(&mut self, class: usize, weight: u32) {
        self.weights[class] = u64::from(weight.max(1));
    }

    /// When the present window is over.
    pub(crate) fn until(&self) -> Nanos {
        self.until
    }

    /// Whether a packet of `class` may be sent against its grant.
    pub(crate) fn is_granted(&self, class: usize) -> bool {
        self.credit[class] > 0
    }

    /// Whether a packet of any class may be sent.
    pub(crate) fn may_send_any(&self, now: Nanos) -> bool {
        self.pot > 0 && now < self.until
    }

    /// Takes over the grants of a new window, and opens it if nobody has, if the present one is over.
    pub(crate) fn at(&mut self, link: &SharedLink, now: Nanos) {
        if now >= self.until {
            link.renew(self, now);
        }
    }

    /// A packet came to wait.
    pub(crate) fn came(&mut self, link: &SharedLink, class: usize, bytes: u64) {
        self.target[class] = self.target[class].wrapping_add(bytes << 16);
        link.publish_target(self, class);
    }

    /// A packet that waited is gone without having been sent on anybody's grant.
    pub(crate) fn gone(&mut self, link: &SharedLink, class: usize, bytes: u64) {
        self.target[class] = self.target[class].wrapping_sub(bytes << 16);
        link.publish_target(self, class);
    }

    /// A packet is sent: against the grant of its class, or else from what is everybody's.
    pub(crate) fn sent(&mut self, link: &SharedLink, class: usize, bytes: u64) {
        let units = (bytes << 16) as i64;
        if self.credit[class] > 0 {
            self.credit[class] -= units;
            self.sent[class] = self.sent[class].wrapping_add(units as u64);
            link.publish_sent(self, class);
        } else {
            self.pot -= units;
            self.gone(link, class, bytes);
        }
    }
}

/// Fills `budget` into demands `(weight, demand)` by weighted max-min, leaves in each what is not met, and returns what of the budget is left: less
/// than one unit for each demand if some is not met.
fn fill(demands: &mut [(u64, u64)], budget: u64) -> u64 {
    let mut left = budget;
    loop {
        let weights: u64 = demands.iter().filter(|(_, demand)| *demand > 0).map(|(weight, _)| weight).sum();
        if weights == 0 {
            return left;
        }
        let part = |weight: u64| (u128::from(left) * u128::from(weight) / u128::from(weights)) as u64;
        // Those that need less than their part get what they need, and the others share the rest anew.
        let mut met = 0;
        for (weight, demand) in demands.iter_mut() {
            if *demand > 0 && *demand <= part(*weight) {
                met += *demand;
                *demand = 0;
            }
        }
        if met == 0 {
            let mut given = 0;
            for (weight, demand) in demands.iter_mut().filter(|(_, demand)| *demand > 0) {
                let gets = part(*weight);
                *demand -= gets;
                given += gets;
            }
            return left - given;
        }
        left -= met;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budgets_are_filled_by_weight_up_to_the_demands() {
        let mut demands = [(1, 1_000), (2, 1_000), (1, 50), (7, 0)];
        assert_eq!(fill(&mut demands, 950), 0);
        assert_eq!(demands, [(1, 700), (2, 400), (1, 0), (7, 0)]);
        let mut demands = [(3, 10), (1, 5)];
        assert_eq!(fill(&mut demands, 100), 85);
        assert_eq!(demands, [(3, 0), (1, 0)]);
    }

    #[test]
    fn a_window_is_eight_long_frames_and_never_below_50_us() {
        assert_eq!(SharedLink::window_at(BitRate(10_000_000)), Nanos(9_843_200));
        assert_eq!(SharedLink::window_at(BitRate(100_000_000_000)), SHORTEST);
    }
}
