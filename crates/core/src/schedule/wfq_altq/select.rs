//! Which queue takes a packet: by its class, or by one of ALTQ's hashes.

use core::net::IpAddr;

use crate::packet::FlowKey;
use crate::words;

words! {
    /// How a packet finds its queue. Hashed flows may share one; IPv6 is hashed by its flow label,
    /// except by source port.
    pub enum QueueSelect {
        /// One queue for each class; queue 0 where there is none.
        #[default]
        Class = "class",
        /// By a hash of the destination address.
        HashDestination = "hash-destination",
        /// By a hash of the source address.
        HashSource = "hash-source",
        /// By a hash of the source port.
        HashSourcePort = "hash-source-port",
        /// By a hash of addresses, ports and protocol.
        HashFull = "hash-full",
    }
}

impl QueueSelect {
    /// The hash of `flow` before it is taken modulo the number of queues; `None`: by class.
    #[must_use]
    pub fn hash(self, flow: &FlowKey) -> Option<u32> {
        let address = |address: IpAddr| match address {
            IpAddr::V4(v4) => u32::from_le_bytes(v4.octets()),
            IpAddr::V6(_) => u32::from_le_bytes(flow.flow_label.to_be_bytes()),
        };
        let fold = |v: u32| v ^ v >> 8 ^ v >> 16 ^ v >> 24;
        let port = |port: u16| u32::from(u16::from_le_bytes(port.to_be_bytes()));
        Some(match self {
            Self::Class => return None,
            Self::HashDestination => fold(address(flow.destination)),
            Self::HashSource => fold(address(flow.source)),
            Self::HashSourcePort => {
                let v = port(flow.source_port);
                v ^ v >> 8
            }
            Self::HashFull if flow.destination.is_ipv6() => fold(address(flow.destination)),
            Self::HashFull => {
                let a = address(flow.destination) ^ address(flow.source);
                let b =
                    port(flow.destination_port) ^ port(flow.source_port) ^ u32::from(flow.protocol);
                fold(a) ^ b ^ b >> 8
            }
        })
    }
}
