//! A worker's end of the way to the first worker.

use std::sync::Arc;

use evenkeel_core::schedule::tree::UNKNOWN;

use super::sharing::WorkerShares;
use crate::handing::{Answer, Batch, Handed, Handing, OWNER};

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
            pending: shares.handing().first(),
            commands: 0,
        }
    }

    /// Puts a packet to those that are pending, or, if they are full, behind them; `false`: there
    /// is no room for it.
    pub(super) fn put(&mut self, packet: Handed, bytes: &[u8]) -> bool {
        self.try_put(packet, bytes) || {
            self.flush();
            self.try_put(packet, bytes)
        }
    }

    fn try_put(&mut self, mut packet: Handed, bytes: &[u8]) -> bool {
        if self.pending.packets().next().is_none() {
            self.pending.commands = self.commands;
        } else if self.pending.commands != self.commands
            && let Some(packet) = &mut packet.packet
        {
            // The place is another list's.
            packet.subscriber = UNKNOWN;
        }
        self.pending.put(packet, bytes)
    }

    /// A stamp that has come back goes with the packets.
    pub(super) fn tell(&mut self, answer: Answer) {
        self.pending.tell(answer);
    }

    /// What is pending is on its way, if there is another batch to go on with.
    pub(super) fn flush(&mut self) {
        self.pending = self.handing.put(std::mem::take(&mut self.pending));
    }

    /// A command was carried out.
    pub(super) fn changed(&mut self) {
        self.commands += 1;
    }
}
