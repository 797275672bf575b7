//! From netlink messages to facts about the kernel: pure, no socket.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use evenkeel_net::{MacAddr, Prefix};
use netlink_packet_core::{NLM_F_DUMP_INTR, NLM_F_REPLACE, NetlinkBuffer, NetlinkMessage, NetlinkPayload};
use netlink_packet_route::AddressFamily;
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkMessage};
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourMessage, NeighbourState as KernelState,
};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteFlags, RouteMessage, RouteNextHopFlags, RouteType, RouteVia,
};

/// An interface index of the kernel. Zero: none.
pub type IfIndex = u32;

/// An interface as the kernel describes it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct KernelLink {
    /// The kernel's index; a re-created interface has another.
    pub index: IfIndex,
    /// Its name.
    pub name: String,
    /// Its Ethernet address; zeros if it has none.
    pub mac: MacAddr,
    /// Longest IP packet, bytes.
    pub mtu: u32,
    /// Administratively up and with carrier.
    pub up: bool,
    /// Administratively up: the kernel keeps the routes behind it.
    pub enabled: bool,
}

/// An address of this machine.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct KernelAddress {
    /// The interface it is on.
    pub index: IfIndex,
    /// The address.
    pub address: IpAddr,
    /// Length of the prefix of its network.
    pub prefix_len: u8,
}

/// Where a route leads.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct KernelNextHop {
    /// The interface.
    pub index: IfIndex,
    /// The router to hand packets to; none for networks that are directly connected.
    pub gateway: Option<IpAddr>,
    /// Its share among several, 1 to 256.
    pub weight: u16,
}

/// What the kernel does with packets that match a route.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum KernelRouteKind {
    /// Sends them on.
    Unicast,
    /// Takes them itself.
    Local,
    /// Takes them itself, and others on the segment do too.
    Broadcast,
    /// Multicast.
    Multicast,
    /// Drops them in silence.
    Blackhole,
    /// Drops them and says that the host cannot be reached.
    Unreachable,
    /// Drops them and says that it is forbidden.
    Prohibit,
}

/// One entry of one of the kernel's tables.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct KernelRoute {
    /// Destinations.
    pub prefix: Prefix,
    /// 255 local, 254 main.
    pub table: u32,
    /// Smaller wins.
    pub metric: u32,
    /// What happens.
    pub kind: KernelRouteKind,
    /// Where to, for [`KernelRouteKind::Unicast`]; only next hops that can be used now.
    pub next_hops: Vec<KernelNextHop>,
}

/// How far the kernel has come with a neighbour.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum KernelNeighbourState {
    /// Its MAC address is known and recently confirmed, or fixed.
    Reachable(MacAddr),
    /// Its MAC address is known but has not been confirmed for a while.
    Stale(MacAddr),
    /// The kernel is asking for it.
    Incomplete,
    /// It did not answer.
    Failed,
}

/// A neighbour.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct KernelNeighbour {
    /// The interface it is on.
    pub index: IfIndex,
    /// Its address.
    pub address: IpAddr,
    /// What is known of it.
    pub state: KernelNeighbourState,
}

/// One message of the kernel.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Fact {
    /// An interface is there, or has changed.
    Link(KernelLink),
    /// An interface is gone.
    LinkGone(IfIndex),
    /// An address is there.
    Address(KernelAddress),
    /// An address is gone.
    AddressGone(KernelAddress),
    /// A route is there; with `replace`, instead of those of the same prefix, table and metric.
    Route {
        /// The route.
        route: KernelRoute,
        /// Whether it replaces.
        replace: bool,
    },
    /// A route is gone.
    RouteGone(KernelRoute),
    /// A neighbour is there, or has changed.
    Neighbour(KernelNeighbour),
    /// A neighbour has been forgotten.
    NeighbourGone(IfIndex, IpAddr),
    /// The end of a dump.
    Done,
    /// The answer to a request: 0 or a negative errno.
    Answer(i32),
    /// The kernel lost messages.
    Overrun,
    /// A dump was interrupted by a change: it is inconsistent.
    Interrupted,
}

/// Decodes a datagram of netlink messages. What does not concern a router (other families, cloned routes, tables besides
/// local and main, routes by type of service) gives no fact. Returns how many messages could not be decoded.
pub fn decode(datagram: &[u8], facts: &mut Vec<Fact>) -> usize {
    let mut rest = datagram;
    let mut undecodable = 0;
    while !rest.is_empty() {
        let Ok(header) = NetlinkBuffer::new_checked(rest) else {
            return undecodable + 1;
        };
        let length = header.length() as usize;
        if header.flags() & NLM_F_DUMP_INTR != 0 {
            facts.push(Fact::Interrupted);
        }
        match NetlinkMessage::<RouteNetlinkMessage>::deserialize(&rest[..length]) {
            Ok(message) => {
                let replace = message.header.flags & NLM_F_REPLACE != 0;
                facts.extend(fact(message.payload, replace));
            }
            Err(_) => undecodable += 1,
        }
        // Messages are aligned to four bytes; the last one need not be padded.
        let aligned = length.next_multiple_of(4).max(4);
        rest = rest.get(aligned..).unwrap_or_default();
    }
    undecodable
}

fn fact(payload: NetlinkPayload<RouteNetlinkMessage>, replace: bool) -> Option<Fact> {
    use RouteNetlinkMessage as M;
    match payload {
        NetlinkPayload::Done(_) => Some(Fact::Done),
        NetlinkPayload::Error(error) => Some(Fact::Answer(error.code.map_or(0, |code| code.get()))),
        NetlinkPayload::Overrun(_) => Some(Fact::Overrun),
        NetlinkPayload::InnerMessage(message) => match message {
            M::NewLink(message) => link(&message).map(Fact::Link),
            M::DelLink(message) => Some(Fact::LinkGone(message.header.index)),
            M::NewAddress(message) => address(&message).map(Fact::Address),
            M::DelAddress(message) => address(&message).map(Fact::AddressGone),
            M::NewRoute(message) => route(&message).map(|route| Fact::Route { route, replace }),
            M::DelRoute(message) => route(&message).map(Fact::RouteGone),
            M::NewNeighbour(message) => neighbour(&message),
            M::DelNeighbour(message) => {
                neighbour_address(&message).map(|ip| Fact::NeighbourGone(message.header.ifindex, ip))
            }
            _ => None,
        },
        _ => None,
    }
}

fn link(message: &LinkMessage) -> Option<KernelLink> {
    // Bridges tell of their ports in a family of their own: the same interface seen from elsewhere.
    if message.header.interface_family != AddressFamily::Unspec {
        return None;
    }
    let mut name = None;
    let mut mac = MacAddr::default();
    let mut mtu = 1500;
    for attribute in &message.attributes {
        match attribute {
            LinkAttribute::IfName(text) => name = Some(text.clone()),
            LinkAttribute::Address(bytes) => mac = bytes.as_slice().try_into().map_or(mac, MacAddr),
            LinkAttribute::Mtu(bytes) => mtu = *bytes,
            _ => {}
        }
    }
    let flags = message.header.flags;
    Some(KernelLink {
        index: message.header.index,
        name: name?,
        mac,
        mtu,
        up: flags.contains(LinkFlags::Up | LinkFlags::LowerUp),
        enabled: flags.contains(LinkFlags::Up),
    })
}

fn address(message: &AddressMessage) -> Option<KernelAddress> {
    let (mut local, mut peer) = (None, None);
    for attribute in &message.attributes {
        match attribute {
            AddressAttribute::Local(ip) => local = Some(*ip),
            AddressAttribute::Address(ip) => peer = Some(*ip),
            _ => {}
        }
    }
    // On point-to-point interfaces "address" is the other end's; "local" is always ours where it is given.
    let address = local.or(peer)?;
    Some(KernelAddress { index: message.header.index, address, prefix_len: message.header.prefix_len })
}

fn route(message: &RouteMessage) -> Option<KernelRoute> {
    let header = &message.header;
    let unspecified = match header.address_family {
        AddressFamily::Inet => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        AddressFamily::Inet6 => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        _ => return None,
    };
    if header.flags.contains(RouteFlags::Cloned) || header.tos != 0 || header.source_prefix_length != 0 {
        return None;
    }
    let kind = match header.kind {
        RouteType::Unicast => KernelRouteKind::Unicast,
        RouteType::Local | RouteType::Anycast => KernelRouteKind::Local,
        RouteType::Broadcast => KernelRouteKind::Broadcast,
        RouteType::Multicast => KernelRouteKind::Multicast,
        RouteType::BlackHole => KernelRouteKind::Blackhole,
        RouteType::Unreachable => KernelRouteKind::Unreachable,
        RouteType::Prohibit => KernelRouteKind::Prohibit,
        _ => return None,
    };
    let mut table = u32::from(header.table);
    let mut metric = 0;
    let mut destination = unspecified;
    let mut single = KernelNextHop { index: 0, gateway: None, weight: 1 };
    let mut several = Vec::new();
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Table(id) => table = *id,
            RouteAttribute::Priority(priority) => metric = *priority,
            RouteAttribute::Destination(address) => destination = route_address(address)?,
            RouteAttribute::Oif(index) => single.index = *index,
            RouteAttribute::Gateway(address) => single.gateway = route_address(address),
            RouteAttribute::Via(via) => single.gateway = via_address(via),
            RouteAttribute::MultiPath(hops) => {
                for hop in hops {
                    if !hop.flags.intersects(RouteNextHopFlags::Dead | RouteNextHopFlags::Linkdown) {
                        several.push(KernelNextHop {
                            index: hop.interface_index,
                            gateway: hop.attributes.iter().find_map(|attribute| match attribute {
                                RouteAttribute::Gateway(address) => route_address(address),
                                RouteAttribute::Via(via) => via_address(via),
                                _ => None,
                            }),
                            weight: u16::from(hop.hops) + 1,
                        });
                    }
                }
            }
            _ => {}
        }
    }
    if !matches!(table, LOCAL_TABLE | MAIN_TABLE) {
        return None;
    }
    let dead = header.flags.intersects(RouteFlags::Dead | RouteFlags::Linkdown);
    let mut next_hops = several;
    if single.index != 0 && !dead && kind == KernelRouteKind::Unicast {
        next_hops.push(single);
    }
    if kind != KernelRouteKind::Unicast {
        next_hops.clear();
    }
    let prefix = Prefix::new(destination, header.destination_prefix_length)?;
    Some(KernelRoute { prefix, table, metric, kind, next_hops })
}

/// The kernel's table of its own addresses.
pub const LOCAL_TABLE: u32 = 255;
/// The kernel's table of everything else.
pub const MAIN_TABLE: u32 = 254;

fn route_address(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(ip) => Some(IpAddr::V4(*ip)),
        RouteAddress::Inet6(ip) => Some(IpAddr::V6(*ip)),
        _ => None,
    }
}

fn via_address(via: &RouteVia) -> Option<IpAddr> {
    match via {
        RouteVia::Inet(ip) => Some(IpAddr::V4(*ip)),
        RouteVia::Inet6(ip) => Some(IpAddr::V6(*ip)),
        _ => None,
    }
}

fn neighbour_address(message: &NeighbourMessage) -> Option<IpAddr> {
    if !matches!(message.header.family, AddressFamily::Inet | AddressFamily::Inet6) {
        return None;
    }
    message.attributes.iter().find_map(|attribute| match attribute {
        NeighbourAttribute::Destination(NeighbourAddress::Inet(ip)) => Some(IpAddr::V4(*ip)),
        NeighbourAttribute::Destination(NeighbourAddress::Inet6(ip)) => Some(IpAddr::V6(*ip)),
        _ => None,
    })
}

fn neighbour(message: &NeighbourMessage) -> Option<Fact> {
    let address = neighbour_address(message)?;
    let index = message.header.ifindex;
    let mac = message.attributes.iter().find_map(|attribute| match attribute {
        NeighbourAttribute::LinkLayerAddress(bytes) => bytes.as_slice().try_into().ok().map(MacAddr),
        _ => None,
    });
    use KernelNeighbourState as S;
    let state = match (message.header.state, mac) {
        (
            KernelState::Reachable
            | KernelState::Permanent
            | KernelState::Noarp
            | KernelState::Delay
            | KernelState::Probe,
            Some(mac),
        ) => S::Reachable(mac),
        (KernelState::Stale, Some(mac)) => S::Stale(mac),
        (KernelState::Failed, _) => S::Failed,
        (KernelState::Incomplete | KernelState::Probe, None) | (KernelState::Incomplete, _) => S::Incomplete,
        _ => return Some(Fact::NeighbourGone(index, address)),
    };
    Some(Fact::Neighbour(KernelNeighbour { index, address, state }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use netlink_packet_core::NetlinkHeader;
    use netlink_packet_route::neighbour::NeighbourHeader;
    use netlink_packet_route::route::{RouteHeader, RouteNextHop};

    fn bytes(message: RouteNetlinkMessage, flags: u16) -> Vec<u8> {
        let mut header = NetlinkHeader::default();
        header.flags = flags;
        let mut message = NetlinkMessage::new(header, NetlinkPayload::from(message));
        message.finalize();
        let mut buffer = vec![0; message.buffer_len().next_multiple_of(4)];
        message.serialize(&mut buffer);
        buffer
    }

    fn route_message(prefix: &str, attributes: Vec<RouteAttribute>) -> RouteMessage {
        let net: Prefix = prefix.parse().unwrap();
        let mut message = RouteMessage::default();
        message.header = RouteHeader {
            address_family: if net.address().is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 },
            destination_prefix_length: net.len(),
            table: MAIN_TABLE as u8,
            kind: RouteType::Unicast,
            ..RouteHeader::default()
        };
        message.attributes = attributes;
        message.attributes.push(RouteAttribute::Destination(net.address().into()));
        message
    }

    fn decoded(datagram: &[u8]) -> Vec<Fact> {
        let mut facts = Vec::new();
        assert_eq!(decode(datagram, &mut facts), 0);
        facts
    }

    #[test]
    fn a_route_by_gateway_with_replace() {
        let gateway: IpAddr = "10.0.0.2".parse().unwrap();
        let message = route_message(
            "10.9.0.0/16",
            vec![
                RouteAttribute::Oif(7),
                RouteAttribute::Gateway(gateway.into()),
                RouteAttribute::Priority(20),
            ],
        );
        let facts = decoded(&bytes(RouteNetlinkMessage::NewRoute(message), NLM_F_REPLACE));
        assert_eq!(
            facts,
            vec![Fact::Route {
                route: KernelRoute {
                    prefix: "10.9.0.0/16".parse().unwrap(),
                    table: MAIN_TABLE,
                    metric: 20,
                    kind: KernelRouteKind::Unicast,
                    next_hops: vec![KernelNextHop { index: 7, gateway: Some(gateway), weight: 1 }],
                },
                replace: true
            }]
        );
    }

    #[test]
    fn multipath_leaves_dead_next_hops_out_and_keeps_weights() {
        let hop = |index, flags, hops, gateway: &str| {
            let mut hop = RouteNextHop::default();
            hop.interface_index = index;
            hop.flags = flags;
            hop.hops = hops;
            hop.attributes = vec![RouteAttribute::Gateway(gateway.parse::<IpAddr>().unwrap().into())];
            hop
        };
        let message = route_message(
            "2001:db8:9::/48",
            vec![RouteAttribute::MultiPath(vec![
                hop(3, RouteNextHopFlags::empty(), 2, "fe80::2"),
                hop(4, RouteNextHopFlags::Dead, 0, "fe80::3"),
                hop(5, RouteNextHopFlags::Linkdown, 0, "fe80::4"),
                hop(6, RouteNextHopFlags::Onlink, 0, "fe80::5"),
            ])],
        );
        let facts = decoded(&bytes(RouteNetlinkMessage::NewRoute(message), 0));
        let [Fact::Route { route, replace: false }] = facts.as_slice() else { panic!("{facts:?}") };
        assert_eq!(
            route.next_hops,
            vec![
                KernelNextHop { index: 3, gateway: Some("fe80::2".parse().unwrap()), weight: 3 },
                KernelNextHop { index: 6, gateway: Some("fe80::5".parse().unwrap()), weight: 1 },
            ]
        );
    }

    #[test]
    fn other_tables_and_cloned_routes_say_nothing() {
        let other = route_message("10.0.0.0/8", vec![RouteAttribute::Oif(1), RouteAttribute::Table(100)]);
        let mut cloned = route_message("10.0.0.0/8", vec![RouteAttribute::Oif(1)]);
        cloned.header.flags = RouteFlags::Cloned;
        let mut datagram = bytes(RouteNetlinkMessage::NewRoute(other), 0);
        datagram.extend(bytes(RouteNetlinkMessage::NewRoute(cloned), 0));
        assert_eq!(decoded(&datagram), vec![]);
    }

    #[test]
    fn a_refusing_route_has_no_next_hops() {
        let mut message = route_message("10.0.0.0/8", vec![RouteAttribute::Oif(1)]);
        message.header.kind = RouteType::Prohibit;
        let facts = decoded(&bytes(RouteNetlinkMessage::DelRoute(message), 0));
        let [Fact::RouteGone(route)] = facts.as_slice() else { panic!("{facts:?}") };
        assert_eq!((route.kind, route.next_hops.len()), (KernelRouteKind::Prohibit, 0));
    }

    #[test]
    fn neighbour_states() {
        let mac = vec![2, 0, 0, 0, 0, 9];
        let ip: IpAddr = "10.0.0.9".parse().unwrap();
        let message = |state, mac: Option<Vec<u8>>| {
            let mut message = NeighbourMessage::default();
            message.header = NeighbourHeader {
                family: AddressFamily::Inet,
                ifindex: 4,
                state,
                ..NeighbourHeader::default()
            };
            message.attributes = vec![NeighbourAttribute::Destination(ip.into())];
            message.attributes.extend(mac.map(NeighbourAttribute::LinkLayerAddress));
            bytes(RouteNetlinkMessage::NewNeighbour(message), 0)
        };
        let state = |datagram: Vec<u8>| match decoded(&datagram).as_slice() {
            [Fact::Neighbour(neighbour)] => Some(neighbour.state),
            [Fact::NeighbourGone(4, address)] if *address == ip => None,
            other => panic!("{other:?}"),
        };
        let known = MacAddr([2, 0, 0, 0, 0, 9]);
        use KernelNeighbourState as S;
        assert_eq!(state(message(KernelState::Reachable, Some(mac.clone()))), Some(S::Reachable(known)));
        assert_eq!(state(message(KernelState::Delay, Some(mac.clone()))), Some(S::Reachable(known)));
        assert_eq!(state(message(KernelState::Stale, Some(mac))), Some(S::Stale(known)));
        assert_eq!(state(message(KernelState::Incomplete, None)), Some(S::Incomplete));
        assert_eq!(state(message(KernelState::Failed, None)), Some(S::Failed));
        assert_eq!(state(message(KernelState::None, None)), None);
    }

    #[test]
    fn truncated_datagrams_are_counted_not_panicked_on() {
        let message = route_message("10.9.0.0/16", vec![RouteAttribute::Oif(7)]);
        let datagram = bytes(RouteNetlinkMessage::NewRoute(message), 0);
        for end in 1..datagram.len() {
            let mut facts = Vec::new();
            assert_eq!(decode(&datagram[..end], &mut facts), 1, "cut at {end}");
            assert_eq!(facts, vec![]);
        }
    }
}
