//! Next hops and their Ethernet addresses, packets that wait for them, and what the kernel is
//! asked about them.

use std::net::IpAddr;

use evenkeel_core::Nanos;
use evenkeel_net::neighbour::{Known, NeighbourTable, Resolution, WaitConfig, WaitConfigError};
use evenkeel_net::{MacAddr, PortIndex};

use super::packet::UnroutedPacket;
use crate::mirror::NeighbourRequest;
use crate::mirror::decode::KernelNeighbourState;

/// How often the kernel is asked to confirm neighbours in use that it has not confirmed for a
/// while.
const CONFIRM_EVERY: Nanos = Nanos::SECOND;

/// What has become of packets that waited.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Waited {
    /// Their neighbour is known now.
    Resolved,
    /// Their neighbour does not answer.
    Failed,
    /// Nothing: none were released.
    Unchanged,
}

/// See the module.
pub(super) struct Neighbours {
    table: NeighbourTable<UnroutedPacket>,
    /// A neighbour that the kernel is to be asked for although no packet waits for it: it is on a
    /// second link, for which packets do not wait.
    wanted: Option<NeighbourRequest>,
    confirm_due: Nanos,
    /// Packets that wait no longer; [taken](Self::take_released) by the pipeline.
    released: Vec<UnroutedPacket>,
}

impl Neighbours {
    pub(super) fn new(
        wait: WaitConfig,
        seed: u64,
        now: Nanos,
        capacity: usize,
    ) -> Result<Self, WaitConfigError> {
        Ok(Self {
            table: NeighbourTable::new(wait, seed)?,
            wanted: None,
            confirm_due: now,
            released: Vec::with_capacity(capacity),
        })
    }

    pub(super) fn len(&self) -> usize {
        self.table.len()
    }

    #[inline]
    pub(super) fn mac(&mut self, port: PortIndex, next_hop: IpAddr) -> Option<MacAddr> {
        self.table.mac(port, next_hop)
    }

    /// The same, with whether the kernel holds it for fresh.
    #[inline]
    pub(super) fn known(&mut self, port: PortIndex, next_hop: IpAddr) -> Option<Known> {
        self.table.known(port, next_hop)
    }

    /// The address of a next hop, or a place where the packet waits for it.
    pub(super) fn resolve(
        &mut self,
        now: Nanos,
        port: PortIndex,
        next_hop: IpAddr,
        packet: UnroutedPacket,
    ) -> Resolution<UnroutedPacket> {
        self.table.resolve(now, port, next_hop, packet)
    }

    /// When a neighbour that packets wait for has taken too long.
    pub(super) fn next_deadline(&self) -> Option<Nanos> {
        self.table.next_deadline()
    }

    /// Releases the packets whose neighbours have not answered in time; false: there are none.
    #[inline]
    pub(super) fn expire(&mut self, now: Nanos) -> bool {
        if self.table.next_deadline().is_none_or(|due| due > now) {
            return false;
        }
        self.expire_now(now)
    }

    #[cold]
    fn expire_now(&mut self, now: Nanos) -> bool {
        let released = &mut self.released;
        self.table.expire(now, |_port, _address, packet| released.push(packet));
        true
    }

    /// Takes over what the kernel knows of a neighbour; `None`: nothing.
    pub(super) fn set(
        &mut self,
        now: Nanos,
        port: PortIndex,
        address: IpAddr,
        state: Option<KernelNeighbourState>,
    ) -> Waited {
        let Self { table, released, .. } = self;
        let release = |packet| released.push(packet);
        let known = match state {
            Some(KernelNeighbourState::Reachable(mac)) => Known { mac, stale: false },
            Some(KernelNeighbourState::Stale(mac)) => Known { mac, stale: true },
            Some(KernelNeighbourState::Failed) => {
                table.fail(now, port, address, release);
                return Waited::Failed;
            }
            Some(KernelNeighbourState::Incomplete) => return Waited::Unchanged,
            None => {
                table.remove(port, address);
                return Waited::Unchanged;
            }
        };
        table.learn(port, address, known, release);
        Waited::Resolved
    }

    /// Forgets the neighbours of a port and releases the packets that wait for them.
    pub(super) fn remove_port(&mut self, port: PortIndex) {
        let released = &mut self.released;
        self.table.remove_port(port, |packet| released.push(packet));
    }

    /// Releases all packets that wait.
    pub(super) fn release_all(&mut self) {
        let released = &mut self.released;
        self.table.drain(|packet| released.push(packet));
    }

    /// The packets that wait no longer. The emptied list is [given back](Self::reuse).
    pub(super) fn take_released(&mut self) -> Vec<UnroutedPacket> {
        std::mem::take(&mut self.released)
    }

    pub(super) fn reuse(&mut self, emptied: Vec<UnroutedPacket>) {
        self.released = emptied;
    }

    /// Has the kernel asked for a neighbour that no packet waits for.
    pub(super) fn want(&mut self, request: NeighbourRequest) {
        self.wanted = Some(request);
    }

    /// Names the neighbours that the kernel should be asked for: those that packets wait for, and
    /// now and then those in use that it has not confirmed for a while.
    pub(super) fn drain_requests(&mut self, now: Nanos, mut ask: impl FnMut(NeighbourRequest)) {
        let mut ask = |port: PortIndex, address: IpAddr| ask(NeighbourRequest { port, address });
        if self.table.has_asks() {
            self.table.drain_asks(&mut ask);
        }
        if let Some(NeighbourRequest { port, address }) = self.wanted.take() {
            ask(port, address);
        }
        if now >= self.confirm_due {
            self.table.stale_in_use(&mut ask);
            self.confirm_due = now + CONFIRM_EVERY;
        }
    }
}
