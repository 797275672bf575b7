//! Packets that a discipline of flows takes in with priority go before all others: what bounds
//! their delay.
//!
//! By the discipline's own meters, so that a packet costs nothing: what it took in with priority,
//! less what of that waits, has gone. These bytes and all others are two levels of a
//! [`Fluid`]: the lag of the upper one is what went before priority packets although they waited.
//! So a priority packet waits no longer than those before it, the lag's bound, and what the ring
//! holds take on the wire.

use super::fluid::Fluid;
use super::ledger::Account;
use crate::schedule::Meters;

/// The lag of priority packets.
#[derive(Clone, Debug)]
pub(super) struct Order {
    /// Whether the accounts are those of the look before.
    begun: bool,
    fluid: Fluid,
    /// With priority, and all others.
    accounts: [Account; 2],
    /// The most that a step has moved, bytes.
    coarse: u64,
}

/// What a look has found.
#[derive(Clone, Copy, Debug)]
pub(super) struct Behind {
    /// By how many bytes priority packets are behind.
    pub(super) lag: f64,
    /// What a look once in a step cannot tell.
    pub(super) within: u64,
    /// Their part of what should have left since the fluid began, and of what did, millionths.
    pub(super) parts: (u32, u32),
}

impl Default for Order {
    fn default() -> Self {
        let fluid = Fluid::new([(1, 1.0), (0, 1.0)].into_iter());
        Self { begun: false, fluid, accounts: [Account::default(); 2], coarse: 0 }
    }
}

impl Order {
    /// The fluid begins anew, with what waits at the next look.
    pub(super) fn begin(&mut self) {
        self.begun = false;
    }

    /// `sent` is what has left the wire, bytes. `None` where the discipline has no priority.
    pub(super) fn look(&mut self, meters: &Meters, sent: u64, blind: bool) -> Option<Behind> {
        let (taken, waits) = (meters.priority_bytes?.0, meters.priority_backlog?.0);
        let others = meters.backlog.bytes.0.saturating_sub(waits);
        let [urgent, rest] = &mut self.accounts;
        let before = [*urgent, *rest];
        *urgent = Account { offered: taken, sent: taken.saturating_sub(waits), ..*urgent };
        // What is in the ring has left the discipline and not the wire: this falls behind by as
        // much for a while, and never goes back.
        let gone = rest.sent.max(sent.saturating_sub(urgent.sent));
        *rest = Account { offered: gone + others, sent: gone, ..*rest };
        let moved = [0, 1].map(|at| self.accounts[at].since(&before[at]));
        let capacity = moved.iter().map(|moved| moved.sent).sum::<u64>();
        if !core::mem::replace(&mut self.begun, true) || blind {
            self.fluid.align(&self.accounts);
            self.coarse = 0;
            return None;
        }
        self.coarse = self.coarse.max(capacity);
        self.fluid.step(capacity as f64, &moved, &self.accounts);
        let lag = self.fluid.shares[0].lag;
        Some(Behind { lag, within: 2 * self.coarse, parts: self.fluid.parts(0) })
    }
}
