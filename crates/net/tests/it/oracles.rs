//! Two other parsers must agree with ours on every valid frame: etherparse and smoltcp.

use std::net::IpAddr;

use crate::common::{Recipe, Transport, recipe, recipe_v4};
use etherparse::{NetSlice, SlicedPacket, TransportSlice, VlanSlice};
use evenkeel_net::frame::{self, Fragment, Headers, IpVersion, Parsed};
use proptest::prelude::*;
use smoltcp::wire::{
    EthernetFrame, EthernetProtocol, Ipv4Packet, Ipv6ExtHeader, Ipv6Packet, TcpPacket, UdpPacket,
};

/// What a parser can say about the transport: protocol and ports.
type Flow = (u8, u16, u16);

fn by_etherparse(frame: &[u8], h: &Headers) -> Result<Flow, TestCaseError> {
    let packet = SlicedPacket::from_ethernet(frame).expect("etherparse made it");
    let outer = packet.vlan().map(|vlan| match vlan {
        VlanSlice::SingleVlan(one) => one.vlan_identifier().value(),
        VlanSlice::DoubleVlan(two) => two.outer.vlan_identifier().value(),
    });
    prop_assert_eq!(h.vlan, outer);
    match packet.net.as_ref().expect("an IP packet") {
        NetSlice::Ipv4(ip) => {
            let header = ip.header();
            prop_assert_eq!(h.version, IpVersion::V4);
            prop_assert_eq!(h.flow.source, IpAddr::V4(header.source_addr()));
            prop_assert_eq!(h.flow.destination, IpAddr::V4(header.destination_addr()));
            prop_assert_eq!(h.ip_len, u32::from(header.total_len()));
            prop_assert_eq!(h.ttl, header.ttl());
            prop_assert_eq!(h.dscp, header.dcp().value());
            prop_assert_eq!(h.ecn, header.ecn().value());
            prop_assert_eq!(h.dont_fragment, header.dont_fragment());
            prop_assert_eq!(usize::from(h.l4 - h.l3), header.slice().len());
        }
        NetSlice::Ipv6(ip) => {
            let header = ip.header();
            prop_assert_eq!(h.version, IpVersion::V6);
            prop_assert_eq!(h.flow.source, IpAddr::V6(header.source_addr()));
            prop_assert_eq!(h.flow.destination, IpAddr::V6(header.destination_addr()));
            prop_assert_eq!(h.ip_len, u32::from(header.payload_length()) + 40);
            prop_assert_eq!(h.ttl, header.hop_limit());
            prop_assert_eq!(h.dscp, header.dscp().value());
            prop_assert_eq!(h.ecn, header.ecn().value());
            prop_assert_eq!(h.flow.flow_label, header.flow_label().value());
            prop_assert_eq!(usize::from(h.l4 - h.l3), 40 + ip.extensions().slice().len());
        }
        NetSlice::Arp(_) => prop_assert!(false, "not ARP"),
    }
    let payload = packet.ip_payload().expect("an IP packet");
    prop_assert_eq!(&frame[usize::from(h.l4)..h.frame_len()], payload.payload);
    let (source, destination) = match &packet.transport {
        Some(TransportSlice::Udp(udp)) => (udp.source_port(), udp.destination_port()),
        Some(TransportSlice::Tcp(tcp)) => (tcp.source_port(), tcp.destination_port()),
        _ => (0, 0),
    };
    Ok((payload.ip_number.0, source, destination))
}

fn by_smoltcp(frame: &[u8], h: &Headers) -> Result<Flow, TestCaseError> {
    let mut ethertype;
    let mut packet;
    {
        let frame = EthernetFrame::new_checked(frame).expect("a whole header");
        ethertype = u16::from(frame.ethertype());
        packet = frame.payload();
    }
    // smoltcp knows no tags.
    while ethertype == 0x8100 || ethertype == 0x88a8 {
        ethertype = u16::from_be_bytes([packet[2], packet[3]]);
        packet = &packet[4..];
    }
    let (protocol, transport) = match EthernetProtocol::from(ethertype) {
        EthernetProtocol::Ipv4 => {
            let ip = Ipv4Packet::new_checked(packet).expect("valid");
            prop_assert!(ip.verify_checksum());
            prop_assert_eq!(h.flow.source, IpAddr::V4(ip.src_addr()));
            prop_assert_eq!(h.flow.destination, IpAddr::V4(ip.dst_addr()));
            prop_assert_eq!(h.ttl, ip.hop_limit());
            prop_assert_eq!(h.dscp, ip.dscp());
            prop_assert_eq!(h.dont_fragment, ip.dont_frag());
            prop_assert_eq!(h.ip_len, u32::from(ip.total_len()));
            (u8::from(ip.next_header()), ip.payload())
        }
        EthernetProtocol::Ipv6 => {
            let ip = Ipv6Packet::new_checked(packet).expect("valid");
            prop_assert_eq!(h.flow.source, IpAddr::V6(ip.src_addr()));
            prop_assert_eq!(h.flow.destination, IpAddr::V6(ip.dst_addr()));
            prop_assert_eq!(h.ttl, ip.hop_limit());
            prop_assert_eq!(h.dscp << 2 | h.ecn, ip.traffic_class());
            prop_assert_eq!(h.flow.flow_label, ip.flow_label());
            prop_assert_eq!(h.ip_len as usize, ip.total_len());
            let mut next = u8::from(ip.next_header());
            let mut rest = ip.payload();
            while matches!(next, 0 | 44 | 60) {
                let header = Ipv6ExtHeader::new_checked(rest).expect("valid");
                let size = if next == 44 { 8 } else { 8 + usize::from(header.header_len()) * 8 };
                next = u8::from(header.next_header());
                rest = &rest[size..];
            }
            (next, rest)
        }
        other => panic!("not IP: {other}"),
    };
    prop_assert_eq!(&frame[usize::from(h.l4)..h.frame_len()], transport);
    let ports = match protocol {
        17 => {
            let udp = UdpPacket::new_checked(transport).expect("valid");
            (udp.src_port(), udp.dst_port())
        }
        6 => {
            let tcp = TcpPacket::new_checked(transport).expect("valid");
            (tcp.src_port(), tcp.dst_port())
        }
        _ => (0, 0),
    };
    Ok((protocol, ports.0, ports.1))
}

fn by_recipe(recipe: &Recipe) -> Flow {
    match (recipe.transport, recipe.source.is_ipv4()) {
        (Transport::Udp(s, d), _) => (17, s, d),
        (Transport::Tcp(s, d), _) => (6, s, d),
        (Transport::Echo(_), true) => (1, 0, 0),
        (Transport::Echo(_), false) => (58, 0, 0),
    }
}

proptest! {
    #[test]
    fn three_parsers_agree(recipe in recipe()) {
        let frame = recipe.build();
        let Ok(Parsed::Ip(h)) = frame::parse(&frame) else {
            return Err(TestCaseError::fail(format!("refused: {:?}", frame::parse(&frame))));
        };
        let untagged = h.vlan.is_none().then_some(h.flow.destination);
        prop_assert_eq!(frame::destination_ip(&frame), untagged);
        let flow = (h.protocol, h.flow.source_port, h.flow.destination_port);
        prop_assert_eq!(flow, by_recipe(&recipe));
        prop_assert_eq!(flow, by_etherparse(&frame, &h)?);
        prop_assert_eq!(flow, by_smoltcp(&frame, &h)?);
        prop_assert_eq!(h.protocol, h.flow.protocol);
        prop_assert_eq!(h.fragment, Fragment::No);
        prop_assert_eq!(h.frame_len() + recipe.padding, frame.len());
        prop_assert_eq!(h.check_transit(), Ok(()));
        prop_assert!(!h.link_group);
    }

    /// Over damaged IPv4 headers too: what smoltcp takes for a checked packet we take, and nothing
    /// else.
    #[test]
    fn damaged_ipv4_headers_are_judged_alike(recipe in recipe_v4(), at in 0_usize..20,
        value in any::<u8>()) {
        let mut frame = recipe.build();
        let ip = 14 + 4 * recipe.vlans.len();
        frame[ip + at] = value;
        let ours = frame::parse(&frame);
        let theirs = Ipv4Packet::new_checked(&frame[ip..])
            .is_ok_and(|ip| ip.version() == 4 && ip.header_len() >= 20 && ip.verify_checksum());
        prop_assert_eq!(ours.is_ok(), theirs, "{:?}", ours);
    }
}
