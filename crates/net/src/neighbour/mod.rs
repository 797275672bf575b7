//! Who has which Ethernet address: next hops, and the packets that wait for their answers.
//!
//! The kernel resolves; this table mirrors what it knows and says whom to ask it for. Packets to a
//! next hop that is not known yet wait in a bounded room, first in first out per neighbour, until
//! the kernel answers, gives up, or [`WaitConfig::timeout`] passes. `H` is whatever the caller
//! holds of a packet: a frame handle, an index.
//!
//! ```
//! use evenkeel_core::Nanos;
//! use evenkeel_net::neighbour::{Known, NeighbourTable, Resolution, WaitConfig};
//! use evenkeel_net::{MacAddr, PortIndex};
//!
//! let mut table = NeighbourTable::new(WaitConfig::default(), 1)?;
//! let (port, address) = (PortIndex(0), "192.0.2.7".parse()?);
//! assert_eq!(table.resolve(Nanos(0), port, address, "packet"), Resolution::Wait);
//!
//! let mut asked = Vec::new();
//! table.drain_asks(|port, address| asked.push((port, address)));
//! assert_eq!(asked, [(port, address)]);
//!
//! let mac: MacAddr = "02:00:00:00:00:07".parse()?;
//! let mut released = Vec::new();
//! table.learn(port, address, Known { mac, stale: false }, |packet| released.push(packet));
//! assert_eq!(released, ["packet"]);
//! assert_eq!(table.mac(port, address), Some(mac));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod slots;
mod waiting;

use core::fmt;
use core::net::IpAddr;
use std::collections::HashMap;

use evenkeel_core::Nanos;

use self::slots::{Slots, Status};
use self::waiting::WaitingRoom;
use crate::hash::SeededState;
use crate::{MacAddr, PortIndex};

/// What is known of a neighbour.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum NeighbourState {
    /// Asked for; no answer yet.
    Incomplete,
    /// Known and confirmed.
    Reachable,
    /// Known, not confirmed lately. It is used; the kernel should confirm it if it is.
    Stale,
    /// It did not answer. Packets to it are refused until [`WaitConfig::retry`] has passed.
    Failed,
}

/// What the kernel says about a neighbour it knows.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Known {
    /// Its Ethernet address.
    pub mac: MacAddr,
    /// Whether the kernel would like to hear that it is used, to confirm it: its state `STALE`. All
    /// other states with an address (`REACHABLE`, `DELAY`, `PROBE`, `NOARP`, `PERMANENT`) need
    /// nothing.
    pub stale: bool,
}

/// Bounds of the waiting room.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct WaitConfig {
    /// Most packets that wait for one neighbour, 1 to 65536.
    pub per_neighbour: u32,
    /// Most packets that wait in all, 1 to 65536.
    pub total: u32,
    /// Most neighbours that are unresolved (asked for, or failed) at a time, 1 to 65536.
    pub unresolved: u32,
    /// How long a packet waits for an answer at most: 1 ms to 60 s.
    pub timeout: Nanos,
    /// How long a neighbour that failed is not asked for again: 1 ms to 60 s.
    pub retry: Nanos,
}

impl Default for WaitConfig {
    /// 16 packets per neighbour, 256 in all, 1024 unresolved neighbours, 3 s (three requests a
    /// second apart), 1 s.
    fn default() -> Self {
        Self {
            per_neighbour: 16,
            total: 256,
            unresolved: 1024,
            timeout: Nanos::from_secs(3),
            retry: Nanos::from_secs(1),
        }
    }
}

/// A bound of the waiting room is out of range.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct WaitConfigError {
    /// The field's name.
    pub what: &'static str,
    /// The value asked for.
    pub value: u64,
    /// The smallest valid value.
    pub min: u64,
    /// The largest valid value.
    pub max: u64,
}

impl fmt::Display for WaitConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, value, min, max } = self;
        write!(f, "{what} {value} is out of range: {min} to {max}")
    }
}

impl core::error::Error for WaitConfigError {}

/// What became of a packet whose next hop was looked up.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[must_use]
pub enum Resolution<H> {
    /// Send it to this address.
    Mac(MacAddr, H),
    /// It waits; the neighbour is asked for.
    Wait,
    /// There is no room to wait, though the neighbour is asked for unless too many are: drop it as
    /// [`Reason::NeighbourWaitFull`](evenkeel_core::Reason::NeighbourWaitFull).
    WaitFull(H),
    /// The neighbour did not answer lately: drop it as
    /// [`Reason::HostUnreachable`](evenkeel_core::Reason::HostUnreachable) and say so to its
    /// sender.
    Unreachable(H),
}

/// A neighbour as people see it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct NeighbourView {
    /// The port it is behind.
    pub port: PortIndex,
    /// Its IP address.
    pub address: IpAddr,
    /// What is known of it.
    pub state: NeighbourState,
    /// Its Ethernet address, if known.
    pub mac: Option<MacAddr>,
    /// How many packets wait for it.
    pub waiting: u32,
}

/// What a neighbour is found by: its port, and its address as an IPv6 one (no neighbour on a link
/// has an IPv4-mapped IPv6 address of its own, so nothing collides).
type Key = (u128, u16);

fn key(port: PortIndex, address: IpAddr) -> Key {
    let bits = match address {
        IpAddr::V4(a) => a.to_ipv6_mapped().to_bits(),
        IpAddr::V6(a) => a.to_bits(),
    };
    (bits, port.0)
}

/// Neighbours by port and IP address.
///
/// Contract: times given are monotonic. Every packet given to `resolve` comes back exactly once: in
/// its result, through a `release` of another call, or through [`drain`](Self::drain). Look-ups and
/// waiting take constant time and do not allocate; what the kernel tells may.
pub struct NeighbourTable<H> {
    config: WaitConfig,
    index: HashMap<Key, u32, SeededState>,
    slots: Slots,
    room: WaitingRoom<H>,
    /// Slots of neighbours to ask for; each at most once.
    asks: Vec<u32>,
    /// The slot that was found last: many packets go to the same neighbour. It need not be that of
    /// a neighbour any more.
    last: u32,
}

impl<H> NeighbourTable<H> {
    /// An empty table. `seed` is for its hash: the addresses in it come from packets.
    ///
    /// # Errors
    /// [`WaitConfigError`] names the first bound that is out of range.
    pub fn new(config: WaitConfig, seed: u64) -> Result<Self, WaitConfigError> {
        const MAX: u64 = 65_536;
        let (shortest, longest) = (Nanos::from_millis(1).0, Nanos::from_secs(60).0);
        for (what, value, min, max) in [
            ("per_neighbour", config.per_neighbour.into(), 1, MAX),
            ("total", config.total.into(), 1, MAX),
            ("unresolved", config.unresolved.into(), 1, MAX),
            ("timeout", config.timeout.0, shortest, longest),
            ("retry", config.retry.0, shortest, longest),
        ] {
            if !(min..=max).contains(&value) {
                return Err(WaitConfigError { what, value, min, max });
            }
        }
        let capacity = config.unresolved as usize;
        Ok(Self {
            config,
            index: HashMap::with_capacity_and_hasher(2 * capacity, SeededState::new(seed)),
            slots: Slots::new(config.unresolved),
            room: WaitingRoom::new(config.total),
            asks: Vec::with_capacity(capacity),
            last: 0,
        })
    }

    /// The Ethernet address of a neighbour, if it is known; it is marked as used.
    #[inline]
    pub fn mac(&mut self, port: PortIndex, address: IpAddr) -> Option<MacAddr> {
        self.known(port, address).map(|known| known.mac)
    }

    /// What is known of a neighbour; it is marked as used.
    #[inline]
    pub fn known(&mut self, port: PortIndex, address: IpAddr) -> Option<Known> {
        if let Some(slot) = self.slots.find(self.last)
            && slot.address == address
            && slot.port == port
            && let Status::Known(known) = slot.status
        {
            slot.used = true;
            return Some(known);
        }
        let at = *self.index.get(&key(port, address))?;
        let slot = self.slots.get_mut(at);
        let Status::Known(known) = slot.status else {
            return None;
        };
        slot.used = true;
        self.last = at;
        Some(known)
    }

    /// Finds the Ethernet address for `item`'s next hop, or lets `item` wait for it.
    pub fn resolve(
        &mut self,
        now: Nanos,
        port: PortIndex,
        address: IpAddr,
        item: H,
    ) -> Resolution<H> {
        let key = key(port, address);
        let at = match self.index.get(&key) {
            Some(&at) => at,
            None => {
                if !self.make_unresolved_room() {
                    return Resolution::WaitFull(item);
                }
                let at = self.slots.add(port, address);
                self.index.insert(key, at);
                self.start(now, at);
                at
            }
        };
        match self.slots.get(at).status {
            Status::Known(known) => {
                self.slots.get_mut(at).used = true;
                return Resolution::Mac(known.mac, item);
            }
            Status::Failed(until) if now < until => return Resolution::Unreachable(item),
            Status::Failed(_) => self.start(now, at),
            Status::Incomplete(_) | Status::Free => {}
        }
        let line = &mut self.slots.get_mut(at).waiting;
        if line.len() >= self.config.per_neighbour {
            return Resolution::WaitFull(item);
        }
        match self.room.push(line, item) {
            Ok(()) => Resolution::Wait,
            Err(item) => Resolution::WaitFull(item),
        }
    }

    /// The kernel knows this neighbour. Packets that waited for it are released in order of
    /// arrival.
    pub fn learn(
        &mut self,
        port: PortIndex,
        address: IpAddr,
        known: Known,
        release: impl FnMut(H),
    ) {
        let key = key(port, address);
        let at = match self.index.get(&key) {
            Some(&at) => at,
            None => {
                let at = self.slots.add(port, address);
                self.index.insert(key, at);
                at
            }
        };
        self.slots.set(at, Status::Known(known));
        self.release(at, release);
        // So that the next unresolved neighbours find their memory ready when a packet asks for
        // them.
        let more = self.config.unresolved.saturating_sub(self.slots.unresolved());
        self.slots.reserve(more);
        self.index.reserve(more as usize);
        self.asks.reserve((self.slots.len() + more) as usize - self.asks.len());
    }

    /// The kernel asked and nobody answered. Packets that waited are released, to be dropped as
    /// unreachable. A neighbour that no packet ever needed is not noted.
    pub fn fail(&mut self, now: Nanos, port: PortIndex, address: IpAddr, release: impl FnMut(H)) {
        let Some(&at) = self.index.get(&key(port, address)) else {
            return;
        };
        let status = self.slots.get(at).status;
        match status {
            Status::Failed(_) => return,
            Status::Known(_) if !self.make_unresolved_room() => self.forget(at),
            Status::Known(_) | Status::Incomplete(_) | Status::Free => {
                self.slots.set(at, Status::Failed(now + self.config.retry));
            }
        }
        self.release(at, release);
    }

    /// The kernel has forgotten this neighbour. If packets wait for it, it is asked for again and
    /// they go on waiting, not longer than they would have.
    pub fn remove(&mut self, port: PortIndex, address: IpAddr) {
        let Some(&at) = self.index.get(&key(port, address)) else {
            return;
        };
        if matches!(self.slots.get(at).status, Status::Incomplete(_)) {
            self.ask(at);
        } else {
            self.forget(at);
        }
    }

    /// The port is gone, and all neighbours behind it. Packets that waited are released. O(all
    /// neighbours).
    pub fn remove_port(&mut self, port: PortIndex, mut release: impl FnMut(H)) {
        for at in 0..self.slots.len() {
            let slot = self.slots.get(at);
            if slot.port == port && slot.status != Status::Free {
                self.forget(at);
                self.release(at, &mut release);
            }
        }
    }

    /// Does what is due at `now`: neighbours that did not answer in time have failed, and their
    /// packets are released, to be dropped as unreachable; those that failed a while ago are
    /// forgotten. O(what is due).
    pub fn expire(&mut self, now: Nanos, mut release: impl FnMut(PortIndex, IpAddr, H)) {
        while let Some(at) = self.slots.oldest_failed() {
            if !matches!(self.slots.get(at).status, Status::Failed(until) if until <= now) {
                break;
            }
            self.forget(at);
        }
        while let Some(at) = self.slots.oldest_incomplete() {
            if !matches!(self.slots.get(at).status, Status::Incomplete(until) if until <= now) {
                break;
            }
            self.slots.set(at, Status::Failed(now + self.config.retry));
            let (port, address) = (self.slots.get(at).port, self.slots.get(at).address);
            self.release(at, |item| release(port, address, item));
        }
    }

    /// When to call [`expire`](Self::expire) next; `None` if nothing is unresolved. Constant time.
    #[must_use]
    #[inline]
    pub fn next_deadline(&self) -> Option<Nanos> {
        if self.slots.unresolved() == 0 { None } else { self.first_deadline() }
    }

    /// When the first of those that are unresolved falls due.
    fn first_deadline(&self) -> Option<Nanos> {
        let due = |at: u32| match self.slots.get(at).status {
            Status::Incomplete(until) | Status::Failed(until) => Some(until),
            Status::Known(_) | Status::Free => None,
        };
        let incomplete = self.slots.oldest_incomplete().and_then(due);
        let failed = self.slots.oldest_failed().and_then(due);
        incomplete.into_iter().chain(failed).min()
    }

    /// Whether [`drain_asks`](Self::drain_asks) has something to say.
    #[must_use]
    pub const fn has_asks(&self) -> bool {
        !self.asks.is_empty()
    }

    /// Names the neighbours that the kernel must be asked for now, each once.
    pub fn drain_asks(&mut self, mut ask: impl FnMut(PortIndex, IpAddr)) {
        for at in self.asks.drain(..) {
            let slot = self.slots.get_mut(at);
            slot.in_asks = false;
            if matches!(slot.status, Status::Incomplete(_)) {
                ask(slot.port, slot.address);
            }
        }
    }

    /// Names the stale neighbours that packets used since the last call, so that the kernel can
    /// confirm them, and clears all marks. O(all neighbours): call it about once a second.
    pub fn stale_in_use(&mut self, mut visit: impl FnMut(PortIndex, IpAddr)) {
        for slot in self.slots.iter_mut() {
            let used = core::mem::take(&mut slot.used);
            if used && matches!(slot.status, Status::Known(Known { stale: true, .. })) {
                visit(slot.port, slot.address);
            }
        }
    }

    /// Hands over every packet that waits: the router stops. The neighbours stay.
    pub fn drain(&mut self, mut release: impl FnMut(H)) {
        for at in 0..self.slots.len() {
            self.release(at, &mut release);
        }
    }

    /// What is known of a neighbour. `None`: nothing, and nobody asked.
    #[must_use]
    pub fn state(&self, port: PortIndex, address: IpAddr) -> Option<NeighbourState> {
        let at = *self.index.get(&key(port, address))?;
        self.slots.get(at).status.state()
    }

    /// All neighbours, in no order.
    pub fn iter(&self) -> impl Iterator<Item = NeighbourView> {
        self.slots.iter().filter_map(|(_, slot)| {
            let mac = match slot.status {
                Status::Known(known) => Some(known.mac),
                _ => None,
            };
            let (port, address) = (slot.port, slot.address);
            slot.status.state().map(|state| NeighbourView {
                port,
                address,
                state,
                mac,
                waiting: slot.waiting.len(),
            })
        })
    }

    /// How many neighbours there are, unresolved ones included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    /// How many packets wait.
    #[must_use]
    pub const fn waiting(&self) -> u32 {
        self.room.len()
    }

    /// Makes sure that one more neighbour may be unresolved, if need be by forgetting the one that
    /// failed first.
    fn make_unresolved_room(&mut self) -> bool {
        if self.slots.unresolved() < self.config.unresolved {
            return true;
        }
        let oldest = self.slots.oldest_failed();
        if let Some(at) = oldest {
            self.forget(at);
        }
        oldest.is_some()
    }

    /// Begins to wait for an answer.
    fn start(&mut self, now: Nanos, at: u32) {
        self.slots.set(at, Status::Incomplete(now + self.config.timeout));
        self.ask(at);
    }

    fn ask(&mut self, at: u32) {
        let slot = self.slots.get_mut(at);
        if !core::mem::replace(&mut slot.in_asks, true) {
            self.asks.push(at);
        }
    }

    fn forget(&mut self, at: u32) {
        let slot = self.slots.get(at);
        self.index.remove(&key(slot.port, slot.address));
        self.slots.set(at, Status::Free);
    }

    fn release(&mut self, at: u32, mut release: impl FnMut(H)) {
        while let Some(item) = self.room.pop(&mut self.slots.get_mut(at).waiting) {
            release(item);
        }
    }
}
