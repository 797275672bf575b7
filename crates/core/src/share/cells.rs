//! Words that a worker writes and the others read.

use alloc::vec::Vec;
#[cfg(not(loom))]
use core::sync::atomic::{AtomicU64, Ordering};
#[cfg(loom)]
use loom::sync::atomic::{AtomicU64, Ordering};

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

    pub(super) fn cell(&self, at: usize) -> &AtomicU64 {
        &self.0[at / 16].0[at % 16]
    }

    pub(crate) fn get(&self, at: usize) -> u64 {
        self.cell(at).load(Ordering::Relaxed)
    }

    pub(crate) fn set(&self, at: usize, value: u64) {
        self.cell(at).store(value, Ordering::Relaxed);
    }
}

/// What the workers of a link have in common of classes that are held.
#[derive(Debug)]
pub(super) struct Held {
    /// From when on each class may be served.
    pub(super) due: Row,
    /// By worker, in lines of its own: the mean length on the wire of what waits of each class, or
    /// 0 if nothing does.
    pub(super) lengths: Vec<Row>,
    /// The same of when it last sent a packet of each class.
    pub(super) turns: Vec<Row>,
}

impl Held {
    pub(super) fn new(workers: usize, classes: usize) -> Self {
        let rows = || (0..workers).map(|_| Row::new(classes)).collect();
        Self { due: Row::new(classes), lengths: rows(), turns: rows() }
    }
}

/// What the workers of a link have in common while it is closed to new flows.
#[derive(Debug)]
pub(super) struct Closed {
    /// Of the clearings of their lists.
    pub(super) clearings: Row,
    /// By worker, in lines of its own: of flows that left its list.
    pub(super) workers: Vec<Row>,
}

impl Closed {
    pub(super) fn new(workers: usize) -> Self {
        Self { clearings: Row::new(2), workers: (0..workers).map(|_| Row::new(2)).collect() }
    }
}
