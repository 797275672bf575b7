//! Wires, addresses and routes: all follow from the order of the wires in the file.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::model::Scenario;

/// A `[[wire]]`: an Ethernet link between two nodes with its own subnets.
#[derive(Clone, Debug, PartialEq)]
pub struct Wire {
    /// Both ends, in the order of the file.
    pub ends: [End; 2],
    /// Length of the IPv4 prefix.
    pub prefix4: u8,
    /// Length of the IPv6 prefix: 64.
    pub prefix6: u8,
    /// Largest IP packet, bytes.
    pub mtu: u16,
}

/// One end of a wire.
#[derive(Clone, Debug, PartialEq)]
pub struct End {
    /// The node.
    pub node: String,
    /// The network interface in the node, named after the node at the other end; for routers also the port's name.
    pub interface: String,
    /// Its IPv4 address.
    pub v4: Ipv4Addr,
    /// Its IPv6 address.
    pub v6: Ipv6Addr,
}

/// An interface of a node.
#[derive(Clone, Debug, PartialEq)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// The wire: an index into [`Scenario::wires`].
    pub wire: usize,
    /// The node at the other end.
    pub peer: String,
    /// Its IPv4 address.
    pub v4: Ipv4Addr,
    /// Length of the IPv4 prefix.
    pub prefix4: u8,
    /// Its IPv6 address.
    pub v6: Ipv6Addr,
    /// Length of the IPv6 prefix.
    pub prefix6: u8,
    /// Largest IP packet, bytes.
    pub mtu: u16,
}

/// A route that a node needs besides those to its own subnets.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Route {
    /// Network address of the destination.
    pub destination: IpAddr,
    /// Length of its prefix.
    pub prefix: u8,
    /// The next hop.
    pub via: IpAddr,
    /// The interface that leads there.
    pub interface: String,
}

impl Scenario {
    /// The interfaces of a node, in the order of the wires.
    #[must_use]
    pub fn interfaces(&self, node: &str) -> Vec<Interface> {
        let _ = node;
        todo!()
    }

    /// The routes a node needs to reach every subnet that is not its own: shortest paths through routers, the first wire of the file
    /// among equals.
    #[must_use]
    pub fn routes(&self, node: &str) -> Vec<Route> {
        let _ = node;
        todo!()
    }

    /// The address of a host that traffic is sent to: that of its first wire.
    #[must_use]
    pub fn address(&self, host: &str, ipv6: bool) -> Option<IpAddr> {
        let _ = (host, ipv6);
        todo!()
    }

    /// The nodes that packets from one host to another pass, both included; `None` if no path leads there.
    #[must_use]
    pub fn path_between(&self, from: &str, to: &str) -> Option<Vec<String>> {
        let _ = (from, to);
        todo!()
    }
}
