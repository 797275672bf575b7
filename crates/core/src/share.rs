//! One outgoing link shared by the workers of a router, without a lock: how much each worker may
//! send of each class.
//!
//! Each worker has queues and a wire of its own. What must be common is the rate and the shares of
//! the classes. So time is cut into windows; in each, every worker and class is *granted* bytes,
//! and sends no more than that. The first worker that finds a window over computes the grants of
//! the next, from the backlogs that all workers publish. No worker ever waits for another.
//!
//! Source: the link-side half of "Implementation of WFQ in a Distributed Open Software Router"
//! (Khan, Sahoo, Manjunath), with weights by rule C: the share of a class is the link's, however
//! its packets fall on workers. What the paper's exchange of frames needs and memory does not is
//! left out: a forwarder there serves one link at a time, hence its stable matching, and hears of
//! the others once per cycle, hence tags that every node computes alike. Workers can send on every
//! link in every window, so what remains is to divide the bytes of a window: weighted max-min over
//! classes, which is what WFQ gives in the fluid limit, then max-min over the workers of a class.
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
//! | n_m, elastic flows that wait at a worker | `Cells::flows` | 2^-16 |
//! | FB, sent to each elastic flow that always waits | `Table::level` | bytes on the wire |
//! | D_m, what may be sent with priority ahead of its grant | `Table::ahead` | 2^-16 bytes on the wire |
//!
//! **What is computed.** The demand of a worker and class is T − G, and never more than keeps G − S
//! within what the link sends in a few windows or in the patience, whichever is longer: a worker
//! that stands still does not hoard. The bytes C·W are filled into the demands of the classes by
//! weight, and those of a class into its workers alike. Bytes that are not demanded go to all
//! workers in equal parts, for packets that arrive before the window is over; after that they are
//! lost, as idle time on a wire is. Grants that a queue no longer needs, because its packets were
//! dropped, are taken back.
//!
//! **By flows instead of classes** (see `schedule/shared_flows.rs`): there are two columns. What
//! has priority is granted first, in equal parts of what is there; the rest is filled into the
//! workers' elastic demands by weighted max-min, a worker's weight being the number n of its
//! elastic flows that wait. So each of them gets the same, FB, whatever worker it is on, and FB is
//! what the fair rate of the whole link is measured by. A priority packet does not wait for a
//! grant: a worker sends up to D = C·W/M ahead of it, and gets that much in the next window before
//! any elastic packets.
//!
//! **Publishing.** A worker stores T when a packet comes and S when it goes, into cells of its own;
//! each is a whole statement, so no two need to fit together. A new table is written where no
//! worker reads, and one compare-and-swap makes it the current one: the loser's is dropped. A
//! worker that reads its row checks afterwards that the table is still current, and reads again if
//! not; then another worker has made progress.
//!
//! **Bound.** What a worker sends of a class follows its grants within the largest packet; grants
//! follow the weights within 2^-16 bytes per class and window while demands last. A packet that
//! meets an empty queue may wait for a window before it is granted anything. The sum over workers
//! exceeds C by no more than a largest packet per worker and class, and by what stalled workers
//! still had; by flows also by the sum of all D, the bytes of one window. Elastic flows that always
//! wait get the same within a largest packet per flow and the quantum of their discipline.
//!
//! **Cost.** Two stores per packet, three by flows. The worker that opens a window reads M·K cells
//! of others and takes at most K² steps; by flows at most M².
//!
//! Not implemented: grants by tag, groups of workers.

use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering, fence};

use crate::units::{BitRate, Bytes, Nanos};

/// Fractions of a byte that are counted.
const UNIT: u128 = 1 << 16;
/// Bit-nanoseconds in a byte.
const BYTE: u128 = 8_000_000_000;
/// The shortest window: below, opening windows costs more than a few percent of a worker.
const SHORTEST: Nanos = Nanos::from_micros(50);
/// A window takes at least this many bytes, eight long frames: else most windows would grant
/// fractions of a packet.
const LEAST_BYTES: u128 = 8 * 1538;
/// For how many windows grants may go unused, at least.
const UNUSED: u64 = 4;
/// The most workers.
pub const MAX_WORKERS: usize = 64;

/// As many cells as lie together in two cache lines, which processors fetch in pairs: workers'
/// cells do not share them.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Line([AtomicU64; 16]);

/// A row of cells with lines of its own.
#[derive(Debug)]
pub(crate) struct Row(Vec<Line>);

impl Row {
    pub(crate) fn new(cells: usize) -> Self {
        Self((0..cells.div_ceil(16)).map(|_| Line::default()).collect())
    }

    pub(crate) fn get(&self, at: usize) -> u64 {
        self.0[at / 16].0[at % 16].load(Ordering::Relaxed)
    }

    pub(crate) fn set(&self, at: usize, value: u64) {
        self.0[at / 16].0[at % 16].store(value, Ordering::Relaxed);
    }
}

/// The grants of one window. Columns of `head`: see the constants.
#[derive(Debug)]
struct Table {
    head: Row,
    /// By worker and class.
    granted: Row,
    /// By worker, [`Told::Free`] when the window was opened.
    free: Row,
}

const OPENED: usize = 0;
const WINDOW: usize = 1;
const POT: usize = 2;
/// What the division of the budget left, in bit-nanoseconds times 2^16 divided by a byte's.
const CARRY: usize = 3;
/// What the filling left, in units.
const SPARE: usize = 4;
const CONTENDED: usize = 5;
/// FB: whole bytes, and what is beyond them in 2^-16.
const LEVEL: usize = 6;
const LEVEL_PART: usize = 7;
/// D.
const AHEAD: usize = 8;
/// For how long the link was busy, and what all had sent then, in units.
const BUSY: usize = 9;
const SENT: usize = 10;
const HEAD: usize = 11;

/// What a worker says of itself: `target` and `sent` of each column, alternating, then, where flows
/// share, what [`Told`] names.
#[derive(Debug)]
struct Cells(Row);

/// What a worker says of itself besides its columns.
#[derive(Clone, Copy)]
enum Told {
    /// n.
    Flows,
    /// All that it sent, on whatever grant, in units.
    Sent,
    /// Bytes taken in with priority.
    Priority,
    /// Bytes of the first packets of flows that it admitted.
    First,
    /// Bytes that each of its elastic flows was sent without a grant, in 2^-16 bytes on the wire.
    Free,
}

const TOLD: usize = 5;

/// The column of what goes first, where flows share.
pub(crate) const URGENT: usize = 0;
/// The column of the others.
pub(crate) const ELASTIC: usize = 1;

/// How a worker divides the bytes of a window.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Sharing {
    /// By weights of classes, then workers alike.
    Classes,
    /// What is urgent first, then by the workers' elastic flows.
    Flows,
}

/// What all workers of a link together were measured to have done. Monotone, but for the idle time,
/// which may fall by what was sent ahead.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Together {
    /// FB: bytes on the wire that an elastic flow that always has packets was sent.
    pub fair_bytes: Bytes,
    /// Bytes on the wire taken in with priority.
    pub priority_bytes: Bytes,
    /// Elastic flows that wait.
    pub elastic_flows: u32,
    /// For how long the link was busy.
    pub busy: Nanos,
}

/// The common part of a link.
#[derive(Debug)]
pub struct SharedLink {
    workers: usize,
    classes: usize,
    patience: Nanos,
    /// 0: unlimited, every worker sends its backlog.
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
    by_worker: Vec<(u64, u64)>,
    sharing: Sharing,
    /// D of this window.
    ahead: i64,
    /// FB as of this window, and whether any demand was left unmet when it was opened.
    level: Bytes,
    contended: bool,
    /// What it has told last of each [`Told`].
    flows: u64,
    all: u64,
    priority: u64,
    free: u64,
}

impl SharedLink {
    /// A link without a rate, of `classes` columns (at least two are made), for 1 to
    /// [`MAX_WORKERS`] workers. `patience`: for how long a worker that does not come still gets its
    /// share.
    #[must_use]
    pub fn new(workers: usize, classes: usize, patience: Nanos) -> Self {
        let workers = workers.clamp(1, MAX_WORKERS);
        // A discipline that shares by flows can come in at any time: it needs two columns.
        let classes = classes.max(2);
        let table = || Table {
            head: Row::new(HEAD),
            granted: Row::new(workers * classes),
            free: Row::new(workers),
        };
        Self {
            workers,
            classes,
            patience,
            rate: AtomicU64::new(0),
            cells: (0..workers).map(|_| Cells(Row::new(2 * classes + TOLD))).collect(),
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

    /// The part of a worker, which goes on where the last part of the same worker ended, with
    /// nothing waiting.
    ///
    /// # Panics
    /// There is no such worker.
    #[must_use]
    pub fn part(&self, worker: usize) -> Part {
        assert!(worker < self.workers, "there are {} workers", self.workers);
        let classes = self.classes;
        let sent: Vec<u64> =
            (0..classes).map(|class| self.cells[worker].0.get(2 * class + 1)).collect();
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
            by_class: alloc::vec![(0, 0); classes],
            by_worker: alloc::vec![(0, 0); self.workers],
            sharing: Sharing::Classes,
            ahead: 0,
            level: self.level(),
            contended: false,
            flows: 0,
            all: self.told(worker, Told::Sent),
            priority: self.told(worker, Told::Priority),
            free: self.told(worker, Told::Free),
        };
        (0..classes).for_each(|class| self.publish_target(&part, class));
        self.tell(worker, Told::Flows, 0);
        part
    }

    /// The part of a worker whose flows share, as [`SharedLink::part`].
    pub(crate) fn part_by_flows(&self, worker: usize) -> Part {
        Part { sharing: Sharing::Flows, ..self.part(worker) }
    }

    fn tell(&self, worker: usize, what: Told, value: u64) {
        self.cells[worker].0.set(2 * self.classes + what as usize, value);
    }

    fn told(&self, worker: usize, what: Told) -> u64 {
        self.cells[worker].0.get(2 * self.classes + what as usize)
    }

    fn all_told(&self, what: Told) -> u64 {
        (0..self.workers).fold(0, |sum, worker| sum.wrapping_add(self.told(worker, what)))
    }

    /// Reads the current table, and again if it was replaced meanwhile.
    fn read<T>(&self, what: impl Fn(&Table) -> T) -> T {
        loop {
            let current = self.current.load(Ordering::Acquire);
            let value = what(self.table(current));
            fence(Ordering::Acquire);
            if self.current.load(Ordering::Relaxed) == current {
                return value;
            }
        }
    }

    fn level(&self) -> Bytes {
        Bytes(self.read(|table| table.head.get(LEVEL)))
    }

    /// For how long the link takes to send `units`; without a rate, no time.
    fn time_of(&self, units: u64) -> u64 {
        let rate = u128::from(self.rate.load(Ordering::Relaxed));
        let bits = u128::from(units) * BYTE;
        bits.checked_div(rate * UNIT).map_or(0, |time| u64::try_from(time).unwrap_or(u64::MAX))
    }

    /// What all workers together have done, by the discipline that shares by flows.
    #[must_use]
    pub fn together(&self) -> Together {
        let [level, busy, sent] =
            self.read(|table| [LEVEL, BUSY, SENT].map(|at| table.head.get(at)));
        // What was sent since the window was opened counts too: the next may be opened long after.
        let since = self.all_told(Told::Sent).wrapping_sub(sent);
        Together {
            fair_bytes: Bytes(level),
            priority_bytes: Bytes(self.all_told(Told::Priority)),
            elastic_flows: (self.all_told(Told::Flows) >> 16) as u32,
            busy: Nanos(busy.saturating_add(self.time_of(since))),
        }
    }

    /// A worker admitted a flow whose first packet is `length` long.
    pub(crate) fn flow_entered(&self, worker: usize, length: Bytes) {
        let before = self.told(worker, Told::First);
        self.tell(worker, Told::First, before.wrapping_add(length.0));
    }

    /// Bytes of first packets of all flows that the other workers admitted, wrapping.
    pub(crate) fn entered_elsewhere(&self, worker: usize) -> u64 {
        self.all_told(Told::First).wrapping_sub(self.told(worker, Told::First))
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

    /// Opens the next window if the present one is over at `at`, and it is not being opened by
    /// another.
    fn open(&self, part: &mut Part, at: Nanos) {
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

    /// Fills `budget` into the demands, and writes the new sums. Returns what is left; `by_class`
    /// has the demands that are. `level` is what an elastic flow got that always waits, in 2^-16
    /// bytes on the wire.
    fn divide(
        &self,
        part: &mut Part,
        before: &Table,
        table: &Table,
        budget: u64,
        most: i64,
        level: &mut u64,
    ) -> u64 {
        let (classes, workers) = (self.classes, self.workers);
        let Part { demand, grant, by_class, weights, by_worker, sharing, .. } = part;
        // 1. Demands: T - G of each worker and class, and their sum by class.
        by_class[..classes]
            .iter_mut()
            .zip(&*weights)
            .for_each(|(class, weight)| *class = (*weight, 0));
        for worker in 0..workers {
            let cells = &self.cells[worker].0;
            for (class, (_, asked)) in by_class[..classes].iter_mut().enumerate() {
                let at = worker * classes + class;
                let (target, sent) = (cells.get(2 * class), cells.get(2 * class + 1));
                let granted = before.granted.get(at);
                // Below zero: packets were dropped that had been granted bytes. The grant is taken
                // back.
                let wanted = target.wrapping_sub(granted) as i64;
                let granted = if wanted < 0 { target } else { granted };
                // Grants that are not used yet (G - S) leave less room for new ones.
                let room = most.saturating_sub(granted.wrapping_sub(sent) as i64);
                demand[at] = wanted.min(room).max(0) as u64;
                *asked = asked.saturating_add(demand[at]);
                grant[at] = granted;
            }
        }
        // 2. The budget is filled into the classes; `by_class` keeps the demand that stays open.
        let mut left = budget;
        if *sharing == Sharing::Flows {
            // In the order of the columns: first priority, then elastic. Further columns hold at
            // most what a discipline by class has overdrawn before.
            for (_, asked) in &mut by_class[..classes] {
                let met = (*asked).min(left);
                *asked -= met;
                left -= met;
            }
        } else if by_class[..classes].iter().any(|(_, demand)| *demand > 0) {
            left = fill(&mut by_class[..classes], budget);
        }
        // 3. What each class got is filled into its workers; what cannot be divided is left.
        let mut rest = left;
        for (class, (_, open)) in by_class[..classes].iter().enumerate() {
            if *sharing == Sharing::Flows && class == ELASTIC {
                let demands = || (0..workers).map(|worker| demand[worker * classes + ELASTIC]);
                // By weighted max-min: a worker weighs as much as it has elastic flows that wait.
                for (worker, (asks, entry)) in demands().zip(by_worker.iter_mut()).enumerate() {
                    // At least one: a worker that has just begun has not told its flows yet.
                    *entry = (self.told(worker, Told::Flows).max(1 << 16), asks);
                }
                let budget = demands().fold(0, u64::saturating_add) - *open;
                rest += fill(by_worker, budget);
                for (worker, (asks, (weight, open))) in demands().zip(by_worker.iter()).enumerate()
                {
                    // A flow of this worker got this much; the largest of them is what FB grows by.
                    let gets = asks - *open;
                    *level = (*level).max(((u128::from(gets) << 16) / u128::from(*weight)) as u64);
                    let at = worker * classes + ELASTIC;
                    grant[at] = grant[at].wrapping_add(gets);
                }
                continue;
            }
            let all: u64 =
                (0..workers).map(|w| demand[w * classes + class]).fold(0, u64::saturating_add);
            let mut budget = all - *open;
            // Max-min over the workers of the class: each round gives all that still demand the
            // same, until the bytes are used up or too few to go round.
            let mut thirsty =
                (0..workers).filter(|w| demand[w * classes + class] > 0).count() as u64;
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
                part.credit[class] =
                    table.granted.get(row + class).wrapping_sub(part.sent[class]) as i64;
            }
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

    /// If the present window is over: opens the next, unless another worker has, and takes its
    /// grants over.
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

    /// A packet left the backlog without using a grant: dropped, or sent from the pot.
    pub(crate) fn gone(&mut self, link: &SharedLink, class: usize, bytes: u64) {
        self.target[class] = self.target[class].wrapping_sub(bytes << 16);
        link.publish_target(self, class);
    }

    /// A packet is sent: against the grant of its class, or else from the pot.
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
        self.credit[URGENT].saturating_add(self.ahead)
    }

    /// Whether a packet with priority may go.
    pub(crate) fn may_send_urgent(&self, now: Nanos) -> bool {
        let ahead = self.overdrawn();
        ahead > 0 || ahead.saturating_add(self.credit[ELASTIC].max(0)) > 0 || self.may_send_any(now)
    }

    /// Whether an elastic packet may go.
    pub(crate) fn may_send_elastic(&self, now: Nanos) -> bool {
        self.credit[ELASTIC].saturating_add(self.overdrawn().min(0)) > 0 || self.may_send_any(now)
    }

    /// What waits in a column, in bytes on the wire.
    pub(crate) fn waits(&mut self, link: &SharedLink, column: usize, bytes: u64) {
        self.target[column] = self.sent[column].wrapping_add(bytes << 16);
        link.publish_target(self, column);
    }

    /// A packet of a column is sent; the caller says what waits then.
    pub(crate) fn sent_by_flow(
        &mut self,
        link: &SharedLink,
        column: usize,
        bytes: u64,
        now: Nanos,
    ) {
        let units = bytes << 16;
        self.all = self.all.wrapping_add(units);
        link.tell(self.worker, Told::Sent, self.all);
        if self.credit[column] <= 0 && self.may_send_any(now) {
            self.pot -= units as i64;
            if column == ELASTIC {
                self.free = self.free.wrapping_add((units << 16) / self.flows.max(1 << 16));
                link.tell(self.worker, Told::Free, self.free);
            }
            return;
        }
        self.credit[column] -= units as i64;
        self.sent[column] = self.sent[column].wrapping_add(units);
        link.publish_sent(self, column);
    }

    /// How many elastic flows wait, in 2^-16.
    pub(crate) fn tell_flows(&mut self, link: &SharedLink, weight: u64) {
        if weight != self.flows {
            self.flows = weight;
            link.tell(self.worker, Told::Flows, weight);
        }
    }

    /// All bytes that were taken in with priority.
    pub(crate) fn tell_priority(&mut self, link: &SharedLink, more: Bytes) {
        self.priority = self.priority.wrapping_add(more.0);
        link.tell(self.worker, Told::Priority, self.priority);
    }
}

/// Fills `budget` into demands `(weight, demand)` by weighted max-min, leaves in each what is not
/// met, and returns what of the budget is left: less than one unit for each demand if some is not
/// met.
fn fill(demands: &mut [(u64, u64)], budget: u64) -> u64 {
    let mut left = budget;
    loop {
        let weights: u64 =
            demands.iter().filter(|(_, demand)| *demand > 0).map(|(weight, _)| weight).sum();
        if weights == 0 {
            return left;
        }
        let part =
            |weight: u64| (u128::from(left) * u128::from(weight) / u128::from(weights)) as u64;
        // Those that need less than their part get what they need, and the others share the rest
        // anew.
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
