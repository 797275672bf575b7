//! Valid frames made by another implementation (etherparse), with what they were made from.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use etherparse::{
    IpFragOffset, IpHeaders, IpNumber, Ipv4Extensions, Ipv4Header, Ipv4Options, Ipv6Extensions,
    Ipv6FlowLabel, Ipv6FragmentHeader, Ipv6Header, Ipv6RawExtHeader, PacketBuilder, VlanId,
};
use evenkeel_net::frame::{self, Headers, Parsed};
use proptest::prelude::*;

/// What stands behind the IP header.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Transport {
    Udp(u16, u16),
    Tcp(u16, u16),
    Echo(u16),
}

/// What a frame is made from.
#[derive(Clone, Debug)]
pub(crate) struct Recipe {
    pub(crate) vlans: Vec<u16>,
    pub(crate) source: IpAddr,
    pub(crate) destination: IpAddr,
    pub(crate) dscp: u8,
    pub(crate) ecn: u8,
    pub(crate) ttl: u8,
    pub(crate) flow_label: u32,
    pub(crate) dont_fragment: bool,
    /// IPv4 options, a multiple of 4 bytes.
    pub(crate) options: Vec<u8>,
    /// Sizes of IPv6 hop-by-hop and destination options, in units of 8 bytes beyond the first.
    pub(crate) extensions: [Option<u8>; 2],
    /// An IPv6 fragment header that says "whole".
    pub(crate) atomic_fragment: bool,
    pub(crate) transport: Transport,
    pub(crate) payload: Vec<u8>,
    /// Bytes of Ethernet padding behind the packet.
    pub(crate) padding: usize,
}

pub(crate) const SOURCE_MAC: [u8; 6] = [0x02, 0, 0, 0, 0, 0x0a];
pub(crate) const DESTINATION_MAC: [u8; 6] = [0x02, 0, 0, 0, 0, 0x01];

impl Recipe {
    /// A small UDP packet.
    pub(crate) fn udp(source: &str, destination: &str) -> Self {
        Self {
            vlans: Vec::new(),
            source: source.parse().unwrap(),
            destination: destination.parse().unwrap(),
            dscp: 0,
            ecn: 0,
            ttl: 64,
            flow_label: 0,
            dont_fragment: false,
            options: Vec::new(),
            extensions: [None; 2],
            atomic_fragment: false,
            transport: Transport::Udp(5000, 6000),
            payload: b"twelve bytes".to_vec(),
            padding: 0,
        }
    }

    /// The frame.
    pub(crate) fn build(&self) -> Vec<u8> {
        let builder = PacketBuilder::ethernet2(SOURCE_MAC, DESTINATION_MAC);
        let ip = self.ip_headers();
        let id = |vlan: u16| VlanId::try_new(vlan).unwrap();
        let step = match *self.vlans {
            [] => builder.ip(ip),
            [one] => builder.single_vlan(id(one)).ip(ip),
            [outer, inner] => builder.double_vlan(id(outer), id(inner)).ip(ip),
            _ => unreachable!("at most two tags"),
        };
        let mut frame = Vec::new();
        match (self.transport, self.source.is_ipv4()) {
            (Transport::Udp(source, destination), _) => {
                step.udp(source, destination).write(&mut frame, &self.payload).unwrap();
            }
            (Transport::Tcp(source, destination), _) => {
                step.tcp(source, destination, 7, 512).write(&mut frame, &self.payload).unwrap();
            }
            (Transport::Echo(id), true) => {
                step.icmpv4_echo_request(id, 1).write(&mut frame, &self.payload).unwrap();
            }
            (Transport::Echo(id), false) => {
                step.icmpv6_echo_request(id, 1).write(&mut frame, &self.payload).unwrap();
            }
        }
        frame.resize(frame.len() + self.padding, 0xee);
        frame
    }

    /// The frame and what this crate says of it.
    pub(crate) fn parsed(&self) -> (Vec<u8>, Headers) {
        let frame = self.build();
        let headers = headers(&frame);
        (frame, headers)
    }

    fn ip_headers(&self) -> IpHeaders {
        match (self.source, self.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                let header = Ipv4Header {
                    dscp: self.dscp.try_into().unwrap(),
                    ecn: self.ecn.try_into().unwrap(),
                    identification: 0x1234,
                    dont_fragment: self.dont_fragment,
                    fragment_offset: IpFragOffset::ZERO,
                    time_to_live: self.ttl,
                    source: source.octets(),
                    destination: destination.octets(),
                    options: Ipv4Options::try_from(&self.options[..]).unwrap(),
                    ..Ipv4Header::default()
                };
                IpHeaders::Ipv4(header, Ipv4Extensions::default())
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                let header = Ipv6Header {
                    traffic_class: self.dscp << 2 | self.ecn,
                    flow_label: Ipv6FlowLabel::try_new(self.flow_label).unwrap(),
                    hop_limit: self.ttl,
                    source: source.octets(),
                    destination: destination.octets(),
                    ..Ipv6Header::default()
                };
                let raw = |units: u8| {
                    // One PadN option over the whole header.
                    let mut payload = vec![0; usize::from(units) * 8 + 6];
                    payload[0] = 1;
                    payload[1] = payload.len() as u8 - 2;
                    Ipv6RawExtHeader::new_raw(IpNumber::UDP, &payload).unwrap()
                };
                let extensions = Ipv6Extensions {
                    hop_by_hop_options: self.extensions[0].map(raw),
                    destination_options: self.extensions[1].map(raw),
                    fragment: self.atomic_fragment.then(|| {
                        Ipv6FragmentHeader::new(IpNumber::UDP, IpFragOffset::ZERO, false, 99)
                    }),
                    ..Ipv6Extensions::default()
                };
                IpHeaders::Ipv6(header, extensions)
            }
            _ => unreachable!("one family"),
        }
    }
}

/// What this crate says of a frame that holds an IP packet.
pub(crate) fn headers(frame: &[u8]) -> Headers {
    match frame::parse(frame) {
        Ok(Parsed::Ip(headers)) => headers,
        other => panic!("not an IP packet: {other:?}"),
    }
}

/// Unicast addresses that may be forwarded.
fn addresses() -> impl Strategy<Value = (IpAddr, IpAddr)> {
    let v4 = || (1_u8..=126, any::<[u8; 3]>()).prop_map(|(a, [b, c, d])| Ipv4Addr::new(a, b, c, d));
    let v6 = || {
        (0x2000_u16..=0x3fff, any::<[u16; 7]>())
            .prop_map(|(a, [b, c, d, e, f, g, h])| Ipv6Addr::new(a, b, c, d, e, f, g, h))
    };
    prop_oneof![
        (v4(), v4()).prop_map(|(s, d)| (s.into(), d.into())),
        (v6(), v6()).prop_map(|(s, d)| (s.into(), d.into())),
    ]
}

fn options() -> impl Strategy<Value = Vec<u8>> {
    let option = prop_oneof![
        Just(vec![1]),
        (prop::sample::select(vec![7_u8, 68, 130, 131, 137, 148]), 0_usize..6).prop_map(
            |(kind, data)| {
                let mut option = vec![kind, data as u8 + 2];
                option.resize(data + 2, 0xaa);
                option
            }
        ),
    ];
    prop::collection::vec(option, 0..5).prop_map(|options| {
        let mut bytes = options.concat();
        bytes.truncate(40);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    })
}

/// Any valid frame of a unicast packet.
pub(crate) fn recipe() -> impl Strategy<Value = Recipe> {
    let transport = prop_oneof![
        any::<(u16, u16)>().prop_map(|(s, d)| Transport::Udp(s, d)),
        any::<(u16, u16)>().prop_map(|(s, d)| Transport::Tcp(s, d)),
        any::<u16>().prop_map(Transport::Echo),
    ];
    let ip = (addresses(), 0_u8..64, 0_u8..4, any::<u8>(), 0_u32..1 << 20, any::<bool>());
    let extras = (
        prop::collection::vec(0_u16..4096, 0..=2),
        options(),
        [prop::option::of(0_u8..4), prop::option::of(0_u8..4)],
        any::<bool>(),
    );
    (ip, extras, transport, prop::collection::vec(any::<u8>(), 0..3000), 0_usize..50).prop_map(
        |(ip, (vlans, options, extensions, atomic_fragment), transport, payload, padding)| {
            let ((source, destination), dscp, ecn, ttl, flow_label, dont_fragment) = ip;
            Recipe {
                vlans,
                source,
                destination,
                dscp,
                ecn,
                ttl,
                flow_label,
                dont_fragment,
                options,
                extensions,
                atomic_fragment,
                transport,
                payload,
                padding,
            }
        },
    )
}

/// Any valid frame of a unicast IPv4 packet.
pub(crate) fn recipe_v4() -> impl Strategy<Value = Recipe> {
    recipe().prop_map(|mut recipe| {
        let narrow = |address: IpAddr| match address {
            IpAddr::V6(a) => {
                let [.., b, c, d] = a.octets();
                Ipv4Addr::new(10, b, c, d).into()
            }
            v4 => v4,
        };
        recipe.source = narrow(recipe.source);
        recipe.destination = narrow(recipe.destination);
        recipe
    })
}
