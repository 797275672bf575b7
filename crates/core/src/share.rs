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
//! | w_k | `Part::weights` | – |
//! | T_mk, sent and waiting | `Cells::target` | 2^-16 bytes on the wire, modulo 2^64 |
//! | S_mk, sent against a grant | `Cells::sent` | 2^-16 bytes on the wire, modulo 2^64 |
//! | G_mk, granted since the start | `Table::granted` | 2^-16 bytes on the wire, modulo 2^64 |
//! | P, for whatever comes | `Table::pot` | 2^-16 bytes on the wire |
//! | n_m, elastic flows, or hosts, that wait at a worker | `Told::Flows` | 2^-16 |
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
//! **By levels instead of weights**, the bytes of a window are filled into the columns one after
//! the other: none gets any while one before it is left wanting.
//!
//! **By packets instead of bytes** a class weighs as much as what waits of it is long on average,
//! so that all classes that want more are sent as many packets (`schedule/lct.rs`, whose classes
//! may be held besides: `held.rs`).
//!
//! **By flows instead of classes** (see `schedule/shared_flows.rs`): there are two columns. What
//! has priority is granted first, in equal parts of what is there; the rest is filled into the
//! workers' elastic demands by weighted max-min, a worker's weight being the number n of its
//! elastic flows that wait. So each of them gets the same, FB, whatever worker it is on, and FB is
//! what the fair rate of the whole link is measured by. A priority packet does not wait for a
//! grant: a worker sends up to D = C·W/M ahead of it, and gets that much in the next window before
//! any elastic packets. Where hosts share, n is the sum of its parts of them (`hosts.rs`).
//!
//! **Publishing.** A worker stores T when packets have come and S when they have gone, once for a
//! burst, into cells of its own; each is a whole statement, so no two need to fit together. A new
//! table is written where no worker reads, and one compare-and-swap makes it the current one: the
//! loser's is dropped. A worker that reads its row checks afterwards that the table is still
//! current, and reads again if not; then another worker has made progress.
//!
//! **Bound.** What a worker sends of a class follows its grants within the largest packet; grants
//! follow the weights within 2^-16 bytes per class and window while demands last. A packet that
//! meets an empty queue may wait for a window before it is granted anything. The sum over workers
//! exceeds C by no more than a largest packet per worker and class, and by what stalled workers
//! still had; by flows also by the sum of all D, the bytes of one window. Elastic flows that always
//! wait get the same within a largest packet per flow and the quantum of their discipline.
//!
//! **Cost.** Two stores per burst and class of which packets came or went, eight by flows. The
//! worker that opens a window reads M·K cells of others and takes at most K² steps; by flows at
//! most M².
//!
//! Not implemented: grants by tag, groups of workers.

mod cells;
mod closed;
pub(crate) mod counts;
mod divide;
mod held;
pub(crate) mod hosts;
#[cfg(test)]
#[cfg(loom)]
mod interleaved;
mod part;
mod users;
pub mod wake;
mod window;
mod young;

pub use part::Part;
pub use users::Users;
pub(crate) use young::LetIn;

use alloc::vec::Vec;
#[cfg(not(loom))]
use core::sync::atomic::{AtomicU64, Ordering, fence};
#[cfg(loom)]
use loom::sync::atomic::{AtomicU64, Ordering, fence};

use crate::units::{BitRate, Bytes, Nanos};
pub(crate) use cells::Row;
use cells::{Closed, Held};
use hosts::Hosts;

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
    /// See [`LetIn`], and when that was said.
    Young,
    Coming,
    Guests,
    Likely,
    LetInAt,
    /// When its admission last opened the link by ECCM.
    Opened,
}

const TOLD: usize = 11;

/// The column of what goes first, where flows share.
pub(crate) const URGENT: usize = 0;
/// The column of the others.
pub(crate) const ELASTIC: usize = 1;

/// How a worker divides the bytes of a window.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Sharing {
    /// By weights of classes, then workers alike.
    Classes,
    /// In the order of the columns, then workers alike.
    Levels,
    /// As many packets of each class, then workers alike: a class weighs as much as its packets are
    /// long.
    Packets,
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
    /// Elastic flows that wait; where hosts share, hosts of which some do.
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
    held: Held,
    closed: Closed,
    hosts: Hosts,
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
            held: Held::new(workers, classes),
            closed: Closed::new(workers),
            hosts: Hosts::new(),
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

    /// For how long a packet may wait for a grant at `rate` without a queue that stands: until the
    /// window is over in which it came, and then the next. Without a rate, no time.
    pub(crate) fn grants_take(rate: Option<BitRate>) -> Nanos {
        rate.map_or(Nanos::ZERO, |rate| Self::window_at(rate) * 2)
    }

    #[inline]
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
            // Parts of hosts are rounded down.
            elastic_flows: (self.all_told(Told::Flows).saturating_add(1 << 15) >> 16) as u32,
            busy: Nanos(busy.saturating_add(self.time_of(since))),
        }
    }

    /// What other workers than that of `part` are due, in 2^-16.
    pub(crate) fn weight_elsewhere(&self, part: &Part) -> u64 {
        self.all_told(Told::Flows).wrapping_sub(self.told(part.worker, Told::Flows))
    }

    fn table(&self, current: u64) -> &Table {
        let (window, worker) = (current >> 8, (current & 0xff) as usize);
        &self.tables[worker][(window & 1) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_is_eight_long_frames_and_never_below_50_us() {
        assert_eq!(SharedLink::window_at(BitRate(10_000_000)), Nanos(9_843_200));
        assert_eq!(SharedLink::window_at(BitRate(100_000_000_000)), SHORTEST);
    }
}
