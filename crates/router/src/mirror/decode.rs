//! From netlink messages to facts about the kernel: pure, no socket.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use evenkeel_net::{MacAddr, Prefix};
use netlink_packet_core::{
    NLM_F_DUMP_INTR, NLM_F_REPLACE, NetlinkBuffer, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::AddressFamily;
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use netlink_packet_route::link::{
    InfoData, InfoVrf, LinkAttribute, LinkFlags, LinkInfo, LinkMessage,
};
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourMessage, NeighbourState as KernelState,
};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteFlags, RouteMessage, RouteMetric, RouteNextHop,
    RouteNextHopFlags, RouteType, RouteVia,
};

use super::rules::{self, KernelRule};

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
    /// The interface that it is a part of: a bridge, or the device of a routing domain (VRF).
    pub master: Option<IfIndex>,
    /// If it is the device of a routing domain: the table of that domain.
    pub vrf_table: Option<u32>,
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

/// What the kernel does with packets that match a route: the type of a route message (`RTN_*`), as
/// netlink carries it. [`RouteKind`](evenkeel_net::fib::RouteKind) is what the fast path's table
/// has of it, with the next hops.
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
    /// Leaves them to the next rule.
    Throw,
}

/// One entry of one of the kernel's tables.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct KernelRoute {
    /// Destinations.
    pub prefix: Prefix,
    /// 255 local, 254 main, 253 default, others as somebody chose.
    pub table: u32,
    /// Smaller wins.
    pub metric: u32,
    /// What happens.
    pub kind: KernelRouteKind,
    /// Its own MTU, bytes. A lock (`mtu lock`) keeps path MTU discovery from changing it, which is
    /// about the machine's own packets: those in transit it bounds with or without.
    pub mtu: Option<u32>,
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

/// Something that the kernel does with packets in transit and this router does not.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum NotFollowed {
    /// Rules that ask for a mark of the kernel's packet filter.
    RuleMark,
    /// Rules that suppress routes by the group of their interface.
    RuleInterfaceGroup,
    /// Rules that ask for something else than is known here.
    RuleSelector,
    /// Routes for one type of service.
    RouteTos,
    /// Routes for some source addresses.
    RouteSource,
    /// Routes that put packets into a tunnel, or labels before them.
    RouteEncapsulation,
    /// Routes of other types.
    RouteType,
}

impl std::fmt::Display for NotFollowed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::RuleMark => "rules by firewall mark (packets have none here: as with mark 0)",
            Self::RuleInterfaceGroup => "suppress_ifgroup of rules (nothing is suppressed by it)",
            Self::RuleSelector => {
                "rules with a selector that is not known here (they match nothing)"
            }
            Self::RouteTos => "routes by type of service (left out)",
            Self::RouteSource => "routes by source address (left out)",
            Self::RouteEncapsulation => "routes into tunnels, `encap` (as unreachable)",
            Self::RouteType => "routes of type nat and the like (left out)",
        })
    }
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
    /// A rule is there.
    Rule(KernelRule),
    /// A rule is gone: which one is seen when all are read again.
    RuleGone,
    /// Something that is not followed.
    NotFollowed(NotFollowed),
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

/// Decodes a datagram of netlink messages. What does not concern a router (other families, cloned
/// routes) gives no fact. Returns how many messages could not be decoded.
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
                fact(message.payload, replace, facts);
            }
            Err(_) => undecodable += 1,
        }
        // Messages are aligned to four bytes; the last one need not be padded.
        let aligned = length.next_multiple_of(4).max(4);
        rest = rest.get(aligned..).unwrap_or_default();
    }
    undecodable
}

fn fact(payload: NetlinkPayload<RouteNetlinkMessage>, replace: bool, facts: &mut Vec<Fact>) {
    use RouteNetlinkMessage as M;
    let fact = match payload {
        NetlinkPayload::Done(_) => Some(Fact::Done),
        NetlinkPayload::Error(error) => Some(Fact::Answer(error.code.map_or(0, |code| code.get()))),
        NetlinkPayload::Overrun(_) => Some(Fact::Overrun),
        NetlinkPayload::InnerMessage(message) => match message {
            M::NewLink(message) => link(&message).map(Fact::Link),
            M::DelLink(message) => Some(Fact::LinkGone(message.header.index)),
            M::NewAddress(message) => address(&message).map(Fact::Address),
            M::DelAddress(message) => address(&message).map(Fact::AddressGone),
            M::NewRoute(message) => {
                let (route, not_followed) = route(&message);
                facts.extend(not_followed.map(Fact::NotFollowed));
                route.map(|route| Fact::Route { route, replace })
            }
            M::DelRoute(message) => route(&message).0.map(Fact::RouteGone),
            M::NewRule(message) => rules::rule(&message).map(Fact::Rule),
            M::DelRule(_) => Some(Fact::RuleGone),
            M::NewNeighbour(message) => neighbour(&message),
            M::DelNeighbour(message) => neighbour_address(&message)
                .map(|ip| Fact::NeighbourGone(message.header.ifindex, ip)),
            _ => None,
        },
        _ => None,
    };
    facts.extend(fact);
}

fn link(message: &LinkMessage) -> Option<KernelLink> {
    // Bridges tell of their ports in a family of their own: the same interface seen from elsewhere.
    if message.header.interface_family != AddressFamily::Unspec {
        return None;
    }
    let mut name = None;
    let mut mac = MacAddr::default();
    let mut mtu = 1500;
    let (mut master, mut vrf_table) = (None, None);
    for attribute in &message.attributes {
        match attribute {
            LinkAttribute::IfName(text) => name = Some(text.clone()),
            LinkAttribute::Address(bytes) => mac = bytes.as_slice().try_into().map_or(mac, MacAddr),
            LinkAttribute::Mtu(bytes) => mtu = *bytes,
            LinkAttribute::Controller(index) => master = (*index != 0).then_some(*index),
            LinkAttribute::LinkInfo(infos) => {
                vrf_table = infos.iter().find_map(|info| match info {
                    LinkInfo::Data(InfoData::Vrf(domain)) => {
                        domain.iter().find_map(|info| match info {
                            InfoVrf::TableId(table) => Some(*table),
                            _ => None,
                        })
                    }
                    _ => None,
                });
            }
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
        master,
        vrf_table,
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
    // On point-to-point interfaces "address" is the other end's; "local" is always ours where it is
    // given.
    let address = local.or(peer)?;
    Some(KernelAddress {
        index: message.header.index,
        address,
        prefix_len: message.header.prefix_len,
    })
}

/// A route, if it concerns a router and can be followed; and what of it is not followed.
fn route(message: &RouteMessage) -> (Option<KernelRoute>, Option<NotFollowed>) {
    let header = &message.header;
    let unspecified = match header.address_family {
        AddressFamily::Inet => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        AddressFamily::Inet6 => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        _ => return (None, None),
    };
    if header.flags.contains(RouteFlags::Cloned) {
        return (None, None);
    }
    if header.tos != 0 {
        return (None, Some(NotFollowed::RouteTos));
    }
    if header.source_prefix_length != 0 {
        return (None, Some(NotFollowed::RouteSource));
    }
    let mut kind = match header.kind {
        RouteType::Unicast => KernelRouteKind::Unicast,
        RouteType::Local | RouteType::Anycast => KernelRouteKind::Local,
        RouteType::Broadcast => KernelRouteKind::Broadcast,
        RouteType::Multicast => KernelRouteKind::Multicast,
        RouteType::BlackHole => KernelRouteKind::Blackhole,
        RouteType::Unreachable => KernelRouteKind::Unreachable,
        RouteType::Prohibit => KernelRouteKind::Prohibit,
        RouteType::Throw => KernelRouteKind::Throw,
        _ => return (None, Some(NotFollowed::RouteType)),
    };
    let mut table = u32::from(header.table);
    let mut metric = 0;
    let mut destination = unspecified;
    let mut single = KernelNextHop { index: 0, gateway: None, weight: 1 };
    let mut several = Vec::new();
    let (mut mtu, mut encapsulates) = (None, false);
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Table(id) => table = *id,
            RouteAttribute::Priority(priority) => metric = *priority,
            RouteAttribute::Destination(address) => match route_address(address) {
                Some(address) => destination = address,
                None => return (None, None),
            },
            RouteAttribute::Metrics(metrics) => mtu = route_mtu(metrics),
            RouteAttribute::Encap(_) => encapsulates = true,
            RouteAttribute::Oif(index) => single.index = *index,
            RouteAttribute::Gateway(address) => single.gateway = route_address(address),
            RouteAttribute::Via(via) => single.gateway = via_address(via),
            RouteAttribute::MultiPath(hops) => {
                let into_tunnel = |hop: &RouteNextHop| {
                    hop.attributes.iter().any(|a| matches!(a, RouteAttribute::Encap(_)))
                };
                encapsulates |= hops.iter().any(into_tunnel);
                several.extend(hops.iter().filter_map(next_hop));
            }
            _ => {}
        }
    }
    if encapsulates {
        // Forwarded as they are, packets would arrive where they do not belong.
        kind = KernelRouteKind::Unreachable;
    }
    let dead = header.flags.intersects(RouteFlags::Dead | RouteFlags::Linkdown);
    let mut next_hops = several;
    if single.index != 0 && !dead && kind == KernelRouteKind::Unicast {
        next_hops.push(single);
    }
    if kind != KernelRouteKind::Unicast {
        next_hops.clear();
    }
    let prefix = Prefix::new(destination, header.destination_prefix_length);
    let route = prefix.map(|prefix| KernelRoute { prefix, table, metric, kind, mtu, next_hops });
    (route, encapsulates.then_some(NotFollowed::RouteEncapsulation))
}

/// One of several next hops, if it can be used now.
fn next_hop(hop: &RouteNextHop) -> Option<KernelNextHop> {
    let usable = !hop.flags.intersects(RouteNextHopFlags::Dead | RouteNextHopFlags::Linkdown);
    usable.then(|| KernelNextHop {
        index: hop.interface_index,
        gateway: hop.attributes.iter().find_map(|attribute| match attribute {
            RouteAttribute::Gateway(address) => route_address(address),
            RouteAttribute::Via(via) => via_address(via),
            _ => None,
        }),
        weight: u16::from(hop.hops) + 1,
    })
}

fn route_mtu(metrics: &[RouteMetric]) -> Option<u32> {
    metrics.iter().find_map(|metric| match metric {
        RouteMetric::Mtu(bytes) => Some(*bytes).filter(|bytes| *bytes != 0),
        _ => None,
    })
}

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
        NeighbourAttribute::LinkLayerAddress(bytes) => {
            bytes.as_slice().try_into().ok().map(MacAddr)
        }
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
        (KernelState::Incomplete | KernelState::Probe, None) | (KernelState::Incomplete, _) => {
            S::Incomplete
        }
        _ => return Some(Fact::NeighbourGone(index, address)),
    };
    Some(Fact::Neighbour(KernelNeighbour { index, address, state }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_net::policy::MAIN_TABLE;
    use netlink_packet_core::NetlinkHeader;
    use netlink_packet_route::link::InfoKind;
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
            address_family: if net.address().is_ipv4() {
                AddressFamily::Inet
            } else {
                AddressFamily::Inet6
            },
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
                    mtu: None,
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
            hop.attributes =
                vec![RouteAttribute::Gateway(gateway.parse::<IpAddr>().unwrap().into())];
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
    fn tables_are_told_apart_and_cloned_routes_say_nothing() {
        let other =
            route_message("10.0.0.0/8", vec![RouteAttribute::Oif(1), RouteAttribute::Table(1_000)]);
        let mut cloned = route_message("10.0.0.0/8", vec![RouteAttribute::Oif(1)]);
        cloned.header.flags = RouteFlags::Cloned;
        let mut datagram = bytes(RouteNetlinkMessage::NewRoute(other), 0);
        datagram.extend(bytes(RouteNetlinkMessage::NewRoute(cloned), 0));
        let facts = decoded(&datagram);
        assert!(
            matches!(facts.as_slice(), [Fact::Route { route, .. }] if route.table == 1_000),
            "{facts:?}"
        );
    }

    #[test]
    fn what_is_not_followed_is_told() {
        let told = |change: &dyn Fn(&mut RouteMessage)| {
            let mut message = route_message("10.0.0.0/8", vec![RouteAttribute::Oif(1)]);
            change(&mut message);
            decoded(&bytes(RouteNetlinkMessage::NewRoute(message), 0))
        };
        assert_eq!(
            told(&|route| route.header.tos = 0x10),
            [Fact::NotFollowed(NotFollowed::RouteTos)]
        );
        let of_source = told(&|route| route.header.source_prefix_length = 8);
        assert_eq!(of_source, [Fact::NotFollowed(NotFollowed::RouteSource)]);
        let nat = told(&|route| route.header.kind = RouteType::Nat);
        assert_eq!(nat, [Fact::NotFollowed(NotFollowed::RouteType)]);
        // Packets that should get a label must not leave without: nor by a shorter prefix.
        let labelled = told(&|route| route.attributes.push(RouteAttribute::Encap(Vec::new())));
        let [Fact::NotFollowed(NotFollowed::RouteEncapsulation), Fact::Route { route, .. }] =
            labelled.as_slice()
        else {
            panic!("{labelled:?}")
        };
        assert_eq!((route.kind, route.next_hops.len()), (KernelRouteKind::Unreachable, 0));
    }

    #[test]
    fn the_mtu_of_a_route_and_its_lock() {
        let mtu = |metrics: Vec<RouteMetric>| {
            let message = route_message(
                "10.0.0.0/8",
                vec![RouteAttribute::Oif(1), RouteAttribute::Metrics(metrics)],
            );
            let facts = decoded(&bytes(RouteNetlinkMessage::NewRoute(message), 0));
            let [Fact::Route { route, .. }] = facts.as_slice() else { panic!("{facts:?}") };
            route.mtu
        };
        assert_eq!(mtu(vec![RouteMetric::Mtu(1_300)]), Some(1_300));
        assert_eq!(mtu(vec![RouteMetric::Lock(1 << 2), RouteMetric::Mtu(1_300)]), Some(1_300));
        assert_eq!(mtu(vec![RouteMetric::Mtu(0)]), None);
        assert_eq!(mtu(vec![RouteMetric::Hoplimit(3)]), None);
    }

    #[test]
    fn a_routing_domain_and_its_ports() {
        let link = |index, attributes| {
            let mut message = LinkMessage::default();
            message.header.index = index;
            message.attributes = attributes;
            let facts = decoded(&bytes(RouteNetlinkMessage::NewLink(message), 0));
            let [Fact::Link(link)] = facts.as_slice() else { panic!("{facts:?}") };
            (link.master, link.vrf_table)
        };
        let name = |name: &str| LinkAttribute::IfName(name.to_owned());
        let vrf = LinkAttribute::LinkInfo(vec![
            LinkInfo::Kind(InfoKind::Vrf),
            LinkInfo::Data(InfoData::Vrf(vec![InfoVrf::TableId(1_001)])),
        ]);
        assert_eq!(link(5, vec![name("red"), vrf]), (None, Some(1_001)));
        assert_eq!(link(6, vec![name("eth0"), LinkAttribute::Controller(5)]), (Some(5), None));
        let bridge = LinkAttribute::LinkInfo(vec![LinkInfo::Kind(InfoKind::Bridge)]);
        assert_eq!(link(7, vec![name("br0"), bridge]), (None, None));
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
        assert_eq!(
            state(message(KernelState::Reachable, Some(mac.clone()))),
            Some(S::Reachable(known))
        );
        assert_eq!(
            state(message(KernelState::Delay, Some(mac.clone()))),
            Some(S::Reachable(known))
        );
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
