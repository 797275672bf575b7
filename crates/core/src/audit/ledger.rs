//! What the audit knows of packets. Bytes of classes it reads off the link's meters when it looks;
//! of each packet it adds what those do not have: bytes on the wire, in all, and by class or
//! sampled flow only where a discipline promises something about these.

use alloc::vec;
use alloc::vec::Vec;

use super::flows::Flows;
use crate::measure::{ClassMeter, Qostat};
use crate::packet::Packet;
use crate::units::Bytes;

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
    /// Of that, what no server whose queue is as long could have taken in: see [`Runs`].
    pub(super) in_vain: u64,
    /// What waited when a packet was last lost, that one included.
    pub(super) full: u64,
    /// Nothing waited in the discipline at some time between the last two looks.
    pub(super) paused: bool,
}

/// What is lost of a class between two looks, run by run: a run is what comes while no packet of
/// the class is given, so that nothing makes room for it.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
struct Runs {
    /// The least that waited in the discipline since the last look, IP bytes: a queue that stands,
    /// and not one that a burst before has filled.
    stands: u64,
    /// Lost during this run, IP bytes.
    lost: u64,
    /// Runs in which something was lost.
    count: u64,
    /// Lost in all of them, in the promise's unit.
    all: u64,
    /// Of that, what a server would have had room for that had sent before a run what stood.
    fits: u64,
    /// What was lost up to the last look that no server would have had room for.
    in_vain: u64,
}

impl Runs {
    /// A packet is given, and so much is left.
    #[inline]
    fn gives(&mut self, waits: Bytes) {
        self.stands = self.stands.min(waits.0);
        self.lost = 0;
    }

    /// A packet is lost; in the promise's unit it counts as `counted`.
    fn loses(&mut self, length: u64, counted: u64) {
        self.count += u64::from(self.lost == 0);
        self.lost += length;
        self.all += counted;
        if self.lost <= self.stands {
            self.fits += counted;
        }
    }

    /// The audit looks, while so much waits: what of an account stands here.
    fn look(&mut self, waits: Bytes, account: Account) -> Account {
        let fits = self.fits.min(self.count * self.stands);
        let (in_vain, paused) = (self.in_vain + self.all - fits, self.stands == 0);
        *self = Self { stands: waits.0, in_vain, ..Self::default() };
        Account { in_vain, paused, ..account }
    }
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
            in_vain: self.in_vain.saturating_sub(earlier.in_vain),
            full: self.full,
            paused: self.paused,
        }
    }
}

/// The sums of a link.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Ledger {
    /// By class, bytes on the wire, if a discipline counts by those.
    wire: Option<Vec<Account>>,
    /// By class, if a discipline promises something about classes, and so nothing about flows.
    runs: Option<Vec<Runs>>,
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
            runs: None,
            full: vec![0; usize::from(classes.max(1))],
            sent: 0,
            emptied: 0,
            longest: 0,
            flows: Flows::default(),
        }
    }

    /// Counts by this from now on; `classes`: what is lost of each in vain, too.
    pub(super) fn count_by(&mut self, unit: Unit, classes: bool) {
        self.runs = classes.then(|| vec![Runs::default(); self.full.len()]);
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
        let mut runs = self.runs.iter_mut().flatten();
        let mut complete = |meter: &ClassMeter, account| match runs.next() {
            Some(runs) => runs.look(meter.queue.bytes, account),
            None => account,
        };
        let meters = qostat.classes().iter();
        if let Some(wire) = &mut self.wire {
            for (account, meter) in wire.iter_mut().zip(meters) {
                // What waited when counting began was not counted when it came.
                if held(meter) == 0 || account.sent + account.lost > account.offered {
                    account.offered = account.sent + account.lost;
                }
                into.push(complete(meter, *account));
            }
            return;
        }
        into.extend(meters.zip(&self.full).map(|(meter, full)| {
            let (offered, sent) = (meter.in_bytes.0, meter.sent_bytes.0);
            let lost = offered.saturating_sub(sent).saturating_sub(meter.held_bytes().0);
            complete(meter, Account { offered, sent, lost, full: *full, ..Account::default() })
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

    /// The discipline gave a packet, as the meters have been told.
    #[inline]
    pub(crate) fn given<P: Packet>(&mut self, packet: &P, qostat: &Qostat) {
        if self.flows.watches() {
            self.flows.given(packet);
        } else if let Some(runs) = &mut self.runs {
            of_class(runs, packet).gives(qostat.class(packet.class()).queue.bytes);
        }
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
        if let Some(runs) = &mut self.runs {
            let counted = if self.wire.is_some() { packet.wire_len() } else { packet.ip_len() };
            of_class(runs, packet).loses(packet.ip_len().0, counted.0);
        }
        self.flows.lost(packet);
    }
}
