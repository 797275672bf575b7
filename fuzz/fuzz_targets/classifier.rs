//! The classifier and its short cuts against the meaning of its rules, and the table of prefixes
//! against a list.
#![no_main]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;

use arbitrary::Arbitrary;
use evenkeel_core::class_map::{ClassMap, DscpSet, Match, Rule};
use evenkeel_core::{Class, FlowKey, Prefix};
use evenkeel_net::prefix_map::PrefixMap;
use libfuzzer_sys::fuzz_target;

/// Few values of each, so that rules and packets meet.
#[derive(Arbitrary, Debug)]
struct Case {
    rules: Vec<RuleBytes>,
    packets: Vec<PacketBytes>,
    routes: Vec<(bool, AddressBytes, u8)>,
}

#[derive(Arbitrary, Debug)]
struct RuleBytes {
    class: u8,
    dscp: Option<u64>,
    source: Option<(AddressBytes, u8)>,
    destination: Option<(AddressBytes, u8)>,
    protocol: Option<bool>,
    ports: [Option<(u8, u8)>; 2],
}

#[derive(Arbitrary, Debug)]
struct PacketBytes {
    source: AddressBytes,
    destination: AddressBytes,
    protocol: bool,
    ports: [u8; 2],
    dscp: u8,
}

#[derive(Arbitrary, Clone, Copy, Debug)]
struct AddressBytes {
    v6: bool,
    bits: [u8; 2],
}

impl AddressBytes {
    fn address(self) -> IpAddr {
        let [high, low] = self.bits;
        if self.v6 {
            IpAddr::V6(Ipv6Addr::new(0x2001, 0, 0, u16::from(high), 0, 0, 0, u16::from(low)))
        } else {
            IpAddr::V4(Ipv4Addr::new(10, high, 0, low))
        }
    }

    fn prefix(self, len: u8) -> Option<Prefix> {
        let address = self.address();
        Prefix::new(address, len % if address.is_ipv4() { 33 } else { 129 })
    }
}

fn protocol(tcp: bool) -> u8 {
    if tcp { 6 } else { 17 }
}

fn rule(bytes: &RuleBytes) -> Rule {
    let prefix = |of: Option<(AddressBytes, u8)>| of.and_then(|(at, len)| at.prefix(len));
    let range = |of: Option<(u8, u8)>| -> Option<RangeInclusive<u16>> {
        of.map(|(from, more)| u16::from(from)..=u16::from(from) + u16::from(more))
    };
    let dscp = |set: u64| (0..64).filter(|dscp| set >> dscp & 1 == 1).collect::<DscpSet>();
    let matching = Match {
        dscp: bytes.dscp.map(dscp),
        source: prefix(bytes.source),
        destination: prefix(bytes.destination),
        protocol: bytes.protocol.map(protocol),
        source_port: range(bytes.ports[0]),
        destination_port: range(bytes.ports[1]),
    };
    Rule { matching, class: Class(u16::from(bytes.class)) }
}

fuzz_target!(|case: Case| {
    let rules: Vec<Rule> = case.rules.iter().take(64).map(rule).collect();
    let map = ClassMap::new(&rules);
    let valid = rules.iter().enumerate().all(|(at, rule)| rule.matching.check(at).is_ok());
    assert_eq!(map.is_ok(), valid);

    let mut table = PrefixMap::<usize>::default();
    let mut list: Vec<(Prefix, usize)> = Vec::new();
    for (number, (add, at, len)) in case.routes.into_iter().take(256).enumerate() {
        let Some(prefix) = at.prefix(len) else { continue };
        list.retain(|(known, _)| *known != prefix);
        if add {
            table.insert(prefix, number);
            list.push((prefix, number));
        } else {
            table.remove(prefix);
        }
    }
    for packet in &case.packets {
        // No packet has addresses of both families.
        let mut source = packet.source;
        source.v6 = packet.destination.v6;
        let (source, destination) = (source.address(), packet.destination.address());
        let holds = list.iter().filter(|(prefix, _)| prefix.contains(destination));
        let longest = holds.max_by_key(|(prefix, _)| prefix.len()).map(|(_, number)| number);
        assert_eq!(table.longest(destination), longest, "{destination}");

        let Ok(map) = &map else { continue };
        let flow = FlowKey {
            source,
            destination,
            protocol: protocol(packet.protocol),
            source_port: packet.ports[0].into(),
            destination_port: packet.ports[1].into(),
            flow_label: 0,
        };
        let dscp = packet.dscp & 63;
        let first = rules.iter().find(|rule| rule.matching.holds(&flow, dscp));
        assert_eq!(map.classify(&flow, dscp), first.map_or(Class(0), |rule| rule.class));
    }
});
