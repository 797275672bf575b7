//! Who shares what a subscriber has before its flows do: its hosts, or classes of traffic.
//!
//! A flow's quantum is its part of a round: that of its group (the host or class that it is of),
//! divided by the group's flows that wait. So groups share, by weight, whatever many flows they
//! have, and within each its flows. As a flow with a small quantum is passed by until it has
//! gathered enough for a packet, none is below [`LEAST`]: a host of more than some hundred flows
//! gets more than another.

use super::turns::UNIT;
use crate::flow_table::{EntryId, PackedFlow};
use crate::packet::Packet;
use crate::schedule::hosts::Hosts;
use crate::settings::{PerClass, SettingError};
use crate::units::Weight;

/// The smallest quantum of a flow, in sixteenths of a byte.
const LEAST: i32 = 16 * UNIT;
/// A whole part.
const ONE: u64 = 1 << 16;

/// Who shares what a subscriber has.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Within {
    /// Its flows.
    #[default]
    Flows,
    /// Its hosts, and within each its flows.
    Hosts {
        /// They are who sends: on the way from the subscribers.
        send: bool,
    },
    /// Classes by weight, and within each the flows.
    Classes(PerClass<Weight>),
}

impl Within {
    /// Upper bound of how many groups so many flows have.
    pub(super) fn groups(&self, flows: u32) -> u32 {
        if *self == Self::Flows { 0 } else { flows }
    }
}

/// The groups of all subscribers. With each what its weight is of the largest one's.
#[derive(Clone, Debug)]
pub(super) struct Groups {
    within: Within,
    heaviest: u64,
    hosts: Hosts<u32>,
}

impl Groups {
    /// `None` where flows share.
    pub(super) fn new(
        within: &Within,
        flows: u32,
        seed: u64,
        classes: u16,
    ) -> Result<Option<Self>, SettingError> {
        let heaviest = match within {
            Within::Flows => return Ok(None),
            Within::Hosts { .. } => 1,
            Within::Classes(weights) => {
                weights.first(classes.into()).map(|weight| weight.0).max().unwrap_or(1).max(1)
            }
        };
        let hosts = Hosts::groups(flows, seed, ONE as u32)?;
        Ok(Some(Self { within: within.clone(), heaviest: heaviest.into(), hosts }))
    }

    /// A flow of a subscriber comes into use.
    pub(super) fn begin(&mut self, flow: EntryId, leaf: u32, packet: &impl Packet) {
        let (key, part) = match &self.within {
            Within::Flows => return,
            Within::Hosts { send } => (packet.packed_flow().host(*send).of_subscriber(leaf), ONE),
            Within::Classes(weights) => {
                let class = packet.class();
                let weight = u64::from(weights.get(class.index()).0);
                (PackedFlow::v4(leaf.into(), class.0.into(), u8::MAX), weight * ONE / self.heaviest)
            }
        };
        let group = self.hosts.join(flow, key);
        *self.hosts.get_mut(group) = part as u32;
    }

    /// A flow is not in use any more.
    pub(super) fn end(&mut self, flow: EntryId) {
        self.hosts.end(flow);
    }

    /// A flow has its first packet; whether it is the first of its group.
    pub(super) fn fills(&mut self, flow: EntryId) -> bool {
        self.hosts.waits(flow, true);
        self.hosts.siblings(flow) == 1
    }

    /// A flow has lost its last packet; whether it was the last of its group.
    pub(super) fn empties(&mut self, flow: EntryId) -> bool {
        let last = self.hosts.siblings(flow) == 1;
        self.hosts.waits(flow, false);
        last
    }

    /// With how many flows, itself among them, a flow shares what its group gets.
    #[inline]
    pub(super) fn siblings(&self, flow: EntryId) -> u32 {
        self.hosts.siblings(flow)
    }

    /// What a flow gets in each round, in which the largest group gets `whole`.
    #[inline]
    pub(super) fn quantum(&self, flow: EntryId, whole: i32) -> i32 {
        let part = u64::from(self.hosts.own_of(flow));
        let group = (u64::from(whole.unsigned_abs()) * part) >> 16;
        ((group / u64::from(self.siblings(flow))) as i32).max(LEAST)
    }
}
