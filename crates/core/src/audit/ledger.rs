//! What the audit knows of packets. Bytes of classes it reads off the link's meters when it looks;
//! of each packet it adds what those do not have: bytes on the wire, in all, and by class or
//! sampled flow only where a discipline promises something about these.

use alloc::vec;
use alloc::vec::Vec;

use super::flows::Flows;
use crate::measure::{ClassMeter, Qostat};
use crate::packet::Packet;

/// In what a discipline counts the shares that it promises.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Unit {
    /// Bytes of IP packets.
    Ip,
    /// Bytes on the wire.
    Wire,
}

/// Bytes since the start. What waits, in discipline and ring, is what was offered less what was
/// sent and lost.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Account {
    /// Given to the discipline.
    pub(super) offered: u64,
    /// Left the wire.
    pub(super) sent: u64,
    /// Dropped after they were offered.
    pub(super) lost: u64,
    /// What waited when a packet was last lost, that one included.
    pub(super) full: u64,
}

impl Account {
    pub(super) fn waits(&self) -> u64 {
        self.offered.saturating_sub(self.sent).saturating_sub(self.lost)
    }

    fn lose(&mut self, length: u64) {
        self.full = self.waits();
        self.lost += length;
    }

    /// What was added after `earlier`.
    pub(super) fn since(&self, earlier: &Self) -> Self {
        Self {
            offered: self.offered.saturating_sub(earlier.offered),
            sent: self.sent.saturating_sub(earlier.sent),
            lost: self.lost.saturating_sub(earlier.lost),
            full: self.full,
        }
    }
}

/// The sums of a link.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Ledger {
    /// By class, bytes on the wire, if a discipline counts by those.
    wire: Option<Vec<Account>>,
    /// By class, IP bytes that waited when a packet was last lost.
    full: Vec<u64>,
    /// Bytes on the wire that left.
    pub(super) sent: u64,
    /// How often the link was empty of packets.
    pub(super) emptied: u64,
    /// The longest packet that left, bytes on the wire.
    pub(super) longest: u64,
    pub(super) flows: Flows,
}

/// Packets of a class that came and neither left nor were dropped.
pub(super) fn held(meter: &ClassMeter) -> u64 {
    let gone = meter.sent_packets + meter.dropped_packets();
    meter.in_packets.saturating_sub(gone)
}

/// The entry of a packet's class; the first is that of classes that do not exist.
fn of_class<'a, T, P: Packet>(all: &'a mut [T], packet: &P) -> &'a mut T {
    let at = packet.class().index();
    &mut all[if at < all.len() { at } else { 0 }]
}

impl Ledger {
    pub(super) fn new(classes: u16) -> Self {
        Self {
            wire: None,
            full: vec![0; usize::from(classes.max(1))],
            sent: 0,
            emptied: 0,
            longest: 0,
            flows: Flows::default(),
        }
    }

    /// Counts by this from now on.
    pub(super) fn count_by(&mut self, unit: Unit) {
        match unit {
            Unit::Ip => self.wire = None,
            Unit::Wire if self.wire.is_none() => {
                self.wire = Some(vec![Account::default(); self.full.len()]);
            }
            Unit::Wire => {}
        }
    }

    /// The sums of each class.
    pub(super) fn read(&mut self, qostat: &Qostat, into: &mut Vec<Account>) {
        into.clear();
        let meters = qostat.classes().iter();
        if let Some(wire) = &mut self.wire {
            for (account, meter) in wire.iter_mut().zip(meters) {
                // What waited when counting began was not counted when it came.
                if held(meter) == 0 || account.sent + account.lost > account.offered {
                    account.offered = account.sent + account.lost;
                }
                into.push(*account);
            }
            return;
        }
        into.extend(meters.zip(&self.full).map(|(meter, full)| {
            let (offered, sent) = (meter.in_bytes.0, meter.sent_bytes.0);
            let lost = offered.saturating_sub(sent).saturating_sub(meter.held_bytes().0);
            Account { offered, sent, lost, full: *full }
        }));
    }

    /// A packet was given to the discipline.
    #[inline]
    pub(crate) fn came<P: Packet>(&mut self, packet: &P) {
        if let Some(wire) = &mut self.wire {
            of_class(wire, packet).offered += packet.wire_len().0;
        }
        self.flows.came(packet);
    }

    /// The discipline gave a packet.
    #[inline]
    pub(crate) fn given<P: Packet>(&mut self, packet: &P) {
        self.flows.given(packet);
    }

    /// A packet left the wire.
    #[inline]
    pub(crate) fn sent<P: Packet>(&mut self, packet: &P) {
        let length = packet.wire_len().0;
        self.sent += length;
        self.longest = self.longest.max(length);
        if let Some(wire) = &mut self.wire {
            of_class(wire, packet).sent += length;
        }
    }

    /// The link became empty.
    #[inline]
    pub(crate) fn emptied(&mut self) {
        self.emptied += 1;
    }

    /// A packet is dropped after it came, which the meters have not been told yet.
    pub(crate) fn lost<P: Packet>(&mut self, packet: &P, qostat: &Qostat) {
        *of_class(&mut self.full, packet) = qostat.class(packet.class()).held_bytes().0;
        if let Some(wire) = &mut self.wire {
            of_class(wire, packet).lose(packet.wire_len().0);
        }
        self.flows.lost(packet);
    }
}
