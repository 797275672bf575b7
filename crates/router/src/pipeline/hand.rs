//! A worker's end of the way to the first worker.

use std::sync::Arc;

use super::names::Names;
use super::sharing::WorkerShares;
use crate::handing::{Batch, Handing, OWNER};

/// A worker's end of it.
#[derive(Debug)]
pub(super) struct Hand {
    pub(super) handing: Arc<Handing>,
    /// It is the first worker's end.
    pub(super) takes: bool,
    pub(super) pending: Batch,
    /// Commands that this worker has carried out.
    pub(super) commands: u64,
    /// All workers have the same ports and classes.
    pub(super) names: Option<Names>,
}

impl Hand {
    pub(super) fn new(shares: &WorkerShares, classes: usize, ports: usize) -> Self {
        Self {
            handing: Arc::clone(shares.handing()),
            takes: shares.worker() == OWNER,
            pending: Batch::default(),
            commands: 0,
            names: Some(Names::own(classes, ports)),
        }
    }

    /// A command was carried out.
    pub(super) fn changed(&mut self) {
        self.commands += 1;
    }
}
