//! Whose a packet is that carries the address of a gateway: the host behind the translation (NAT).
//!
//! Packets at the outer side of a gateway have its address, whichever host they are of. A
//! discipline that shares by hosts would see one. What the
//! [kernel tells](crate::mirror::MirrorEvent::Translation) of its connections says which host it
//! is; the packet is scheduled, admitted and shown as if it had that one's address, and leaves as
//! it is. Rules of classes are held against the packet as it is.
//!
//! Of a connection that is not (yet) known the gateway's address counts: of each the first packet
//! or two.

use std::net::{IpAddr, Ipv4Addr};

use evenkeel_config::{Attach, RouterConfig};
use evenkeel_core::FlowKey;
use evenkeel_core::flow_table::{FlowTable, PackedFlow};
use evenkeel_core::settings::SettingError;

/// Connections that can be known at once; each is two flows.
const CONNECTIONS: u32 = 65_536;

/// The address that belongs into a flow instead of the gateway's.
#[derive(Clone, Copy, Debug)]
struct Inside {
    address: Ipv4Addr,
    /// It is the source: the flow goes out.
    sends: bool,
}

/// See the module.
pub(crate) struct Translations(Option<FlowTable<Inside>>);

/// Whether some packets may be translated on their way: an interface is attached inline.
pub(crate) fn wanted(config: &RouterConfig) -> bool {
    config.ports.iter().any(|port| port.attach() == Attach::InlineWire)
}

impl Translations {
    pub(super) fn new(config: &RouterConfig, seed: u64) -> Result<Self, SettingError> {
        wanted(config).then(|| FlowTable::new(2 * CONNECTIONS, seed)).transpose().map(Self)
    }

    /// What they allocate, bytes.
    pub(crate) fn memory(config: &RouterConfig) -> u64 {
        let entry = FlowTable::<Inside>::BYTES_PER_ENTRY as u64;
        if wanted(config) { u64::from(2 * CONNECTIONS) * entry } else { 0 }
    }

    /// Connections that are known.
    pub(super) fn len(&self) -> u64 {
        self.0.as_ref().map_or(0, |known| u64::from(known.len() / 2))
    }

    /// Nothing is known any more.
    pub(super) fn forget(&mut self) {
        if let Some(known) = &mut self.0 {
            known.clear();
        }
    }

    /// A connection whose packets come in as `flow` is of this host; `None`: it is no more. Where
    /// there is no room for it, it keeps the gateway's address.
    pub(super) fn learn(
        &mut self,
        flow: &FlowKey,
        inside: Option<Ipv4Addr>,
        hash: impl Fn(&FlowKey) -> u64,
    ) {
        let Some(known) = &mut self.0 else { return };
        let out = FlowKey {
            source: flow.destination,
            destination: flow.source,
            source_port: flow.destination_port,
            destination_port: flow.source_port,
            ..*flow
        };
        for (flow, sends) in [(flow, false), (&out, true)] {
            let (hash, key) = (hash(flow), PackedFlow::new(flow));
            let place = known.find(hash, &key);
            let inside = inside.map(|address| Inside { address, sends });
            match (place, inside) {
                (Some(id), Some(inside)) => *known.value_mut(id) = inside,
                (Some(id), None) => drop(known.remove(id)),
                (None, Some(inside)) => drop(known.insert(hash, key, inside)),
                (None, None) => {}
            }
        }
    }

    /// The flow as it is on the inner side, if its connection is translated.
    #[inline]
    pub(super) fn inner(&self, hash: u64, flow: &PackedFlow) -> Option<FlowKey> {
        let known = self.0.as_ref().filter(|known| !known.is_empty())?;
        let Inside { address, sends } = *known.value(known.find(hash, flow)?);
        let flow = flow.unpack();
        let address = IpAddr::V4(address);
        Some(match sends {
            true => FlowKey { source: address, ..flow },
            false => FlowKey { destination: address, ..flow },
        })
    }
}
