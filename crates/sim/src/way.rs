//! The way of a flow's packets: the wire that they leave by, and the addresses that they carry.

use std::net::{IpAddr, SocketAddr};

use evenkeel_scenario::{Scenario, Traffic};

use crate::error::{SimError, TrafficError};
use crate::header;
use crate::router::mac;
use crate::source::Addresses;

/// How a host reaches another: direction of a wire, and addresses of what it sends.
pub(crate) fn way(
    scenario: &Scenario,
    traffic: &Traffic,
    back: bool,
) -> Result<(u32, Addresses), SimError> {
    let lost = || TrafficError::Unreachable.of(traffic);
    let (from, to) = if back { (&traffic.to, &traffic.from) } else { (&traffic.from, &traffic.to) };
    let path = scenario.path_between(from, to).ok_or_else(lost)?;
    let next = path.get(1).ok_or_else(lost)?;
    let found = scenario.wires.iter().enumerate().find_map(|(number, wire)| {
        let (_, far) = wire.from_node(from)?;
        (far.node == *next).then_some((number, usize::from(wire.ends[0].node != *from)))
    });
    let (wire, near) = found.ok_or_else(lost)?;
    let address = |host: &str| scenario.address(host, traffic.ipv6).ok_or_else(lost);
    let sender = SocketAddr::new(address(&traffic.from)?, traffic.source_port);
    let receiver = SocketAddr::new(address(&traffic.to)?, traffic.port);
    let (source, destination) = if back { (receiver, sender) } else { (sender, receiver) };
    let ethernet = header::ethernet(mac(wire, 1 - near), mac(wire, near), traffic.ipv6);
    let addresses = Addresses { ethernet, source, destination, dscp: traffic.dscp };
    Ok(((2 * wire + near) as u32, addresses))
}

/// What tells hosts apart when conversations are looked for: a number that no two hosts of a
/// scenario share, within one family.
pub(crate) fn address_key(address: IpAddr) -> u32 {
    match address {
        IpAddr::V4(a) => a.to_bits(),
        IpAddr::V6(a) => u32::from(a.segments()[1]) << 16 | u32::from(a.segments()[7]),
    }
}
