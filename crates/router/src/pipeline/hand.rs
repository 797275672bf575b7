//! A worker's end of the way to the first worker.

use std::sync::Arc;

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
}

impl Hand {
    pub(super) fn new(shares: &WorkerShares) -> Self {
        Self {
            handing: Arc::clone(shares.handing()),
            takes: shares.worker() == OWNER,
            pending: Batch::default(),
            commands: 0,
        }
    }

    /// A command was carried out.
    pub(super) fn changed(&mut self) {
        self.commands += 1;
    }
}
