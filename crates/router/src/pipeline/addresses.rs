//! The addresses of this machine and of its ports.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};

use evenkeel_net::policy::TableId;
use evenkeel_net::{PortIndex, Prefix};

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Addresses {
    list: Vec<(IpAddr, u8, Option<PortIndex>)>,
    /// Those of the list, each once, in order.
    own: Vec<IpAddr>,
    /// A bit for the last six of each of them, which tells nearly all other addresses apart.
    own_endings: u64,
    /// Addresses that the kernel's routes give to the host, its own and broadcast addresses, and
    /// the tables that say so.
    routed: BTreeSet<(IpAddr, TableId)>,
    /// The Ethernet addresses of the ports that are up.
    ports: Vec<u64>,
    /// A bit for the last six of each of them, which tells nearly all other addresses apart.
    endings: u64,
}

impl Addresses {
    pub(super) fn set(&mut self, entry: (IpAddr, u8, Option<PortIndex>), present: bool) {
        self.list.retain(|known| *known != entry);
        if present {
            self.list.push(entry);
        }
        self.own.clear();
        self.own.extend(self.list.iter().map(|&(address, _, _)| address));
        self.own.sort_unstable();
        self.own.dedup();
        self.own_endings = self.own.iter().fold(0, |endings, own| endings | 1 << ending(*own));
    }

    /// Whether this machine itself has this IP address.
    #[inline]
    pub(super) fn is_own(&self, address: IpAddr) -> bool {
        self.own_endings >> ending(address) & 1 == 1 && self.lists_own(address)
    }

    #[inline(never)] // so that other addresses need not be in memory
    fn lists_own(&self, address: IpAddr) -> bool {
        self.own.binary_search(&address).is_ok()
    }

    pub(super) fn set_routed(&mut self, table: TableId, address: IpAddr, present: bool) {
        if present {
            self.routed.insert((address, table));
        } else {
            self.routed.remove(&(address, table));
        }
    }

    /// Takes the Ethernet addresses of the ports that are up.
    pub(super) fn set_ports(&mut self, addresses: impl Iterator<Item = u64>) {
        self.ports.clear();
        self.ports.extend(addresses);
        self.endings = self.ports.iter().fold(0, |endings, address| endings | 1 << (address % 64));
    }

    /// Whether a port that is up has this Ethernet address.
    #[inline]
    pub(super) fn is_port(&self, address: u64) -> bool {
        self.endings >> (address % 64) & 1 == 1 && self.ports.contains(&address)
    }

    /// The addresses that the kernel receives itself.
    pub(super) fn of_host(&self) -> Vec<IpAddr> {
        let mut all: Vec<IpAddr> = self.list.iter().map(|&(address, _, _)| address).collect();
        all.extend(self.routed.iter().map(|(address, _)| *address));
        all.sort_unstable();
        all.dedup();
        all
    }

    /// The source address of an answer to `sender`, whose packet came in by `port`: that of the
    /// network the sender is in, else another of the port (RFC 1812, 4.3.2.4), else another of this
    /// machine. For IPv4 the last resort is the address of RFC 7600, 3.1 for nodes without one.
    pub(super) fn source_for(&self, port: PortIndex, sender: IpAddr) -> Option<IpAddr> {
        let usable = |&&(address, _, _): &&(IpAddr, u8, Option<PortIndex>)| {
            address.is_ipv4() == sender.is_ipv4()
                && match address {
                    IpAddr::V4(a) => !a.is_loopback(),
                    IpAddr::V6(a) => !a.is_loopback() && !a.is_unicast_link_local(),
                }
        };
        // Smaller is better.
        let rank = |&&(address, len, on): &&(IpAddr, u8, Option<PortIndex>)| {
            let same_net = Prefix::new(address, len).is_some_and(|net| net.contains(sender));
            (on != Some(port), !same_net, on.is_none())
        };
        let best = self.list.iter().filter(usable).min_by_key(rank).map(|&(address, _, _)| address);
        best.or_else(|| sender.is_ipv4().then_some(IpAddr::V4(Ipv4Addr::new(192, 0, 0, 8))))
    }
}

/// The last six bits of an address.
#[inline]
const fn ending(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(a) => a.octets()[3] % 64,
        IpAddr::V6(a) => a.octets()[15] % 64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_come_from_the_address_the_sender_knows() {
        let mut own = Addresses::default();
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let (lan, wan) = (Some(PortIndex(0)), Some(PortIndex(1)));
        for entry in [
            (ip("127.0.0.1"), 8, None),
            (ip("10.0.0.1"), 24, lan),
            (ip("10.0.5.1"), 24, lan),
            (ip("fe80::1"), 64, lan),
            (ip("203.0.113.1"), 24, wan),
            (ip("2001:db8::1"), 64, wan),
        ] {
            own.set(entry, true);
        }
        let source = |port: u16, sender: &str| {
            own.source_for(PortIndex(port), ip(sender)).map(|ip| ip.to_string())
        };
        assert_eq!(source(0, "10.0.5.77").as_deref(), Some("10.0.5.1"), "of the sender's network");
        assert_eq!(source(0, "198.51.100.1").as_deref(), Some("10.0.0.1"), "of the port");
        assert_eq!(
            source(1, "10.0.5.77").as_deref(),
            Some("203.0.113.1"),
            "of the port, not of the network"
        );
        assert_eq!(
            source(0, "2001:db8:9::9").as_deref(),
            Some("2001:db8::1"),
            "link-local is no source for routed answers"
        );
        own.set((ip("2001:db8::1"), 64, wan), false);
        assert_eq!(own.source_for(PortIndex(0), ip("2001:db8:9::9")), None);
        assert_eq!(
            Addresses::default().source_for(PortIndex(0), ip("10.0.0.9")),
            Some(ip("192.0.0.8"))
        );
    }
}
