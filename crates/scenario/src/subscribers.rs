//! People behind hosts, each with an address of its own.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use evenkeel_core::Prefix;

/// Most people behind a host: an address each, of a /16.
pub const MOST: u32 = 65_534;
/// Most hosts with people: a /16 each, of 100.64.0.0/10 (RFC 6598).
pub const MOST_GROUPS: u16 = 64;

/// A `[[subscribers]]`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Subscribers {
    /// The name of the node that they are behind.
    pub name: String,
    /// The list that it belongs to.
    pub list: String,
    /// The host that stands for them, and which of those with people it is, from 0; `None`: there
    /// are none.
    pub host: Option<(String, u16)>,
    /// How many they are.
    pub count: u32,
}

impl Subscribers {
    /// The name of one of them, from 0.
    #[must_use]
    pub fn name_of(&self, member: u32) -> String {
        format!("{}-{}", self.name, member + 1)
    }

    /// The networks of their addresses, of both families; `None`: there are none.
    #[must_use]
    pub fn networks(&self) -> Option<[Prefix; 2]> {
        let (_, group) = self.host.as_ref()?;
        let [v4, v6] = [false, true].map(|ipv6| network(*group, ipv6));
        Some([Prefix::new(v4, 16)?, Prefix::new(v6, 64)?])
    }

    /// The address of one of them, from 0, in either family.
    #[must_use]
    pub fn addresses_of(&self, member: u32) -> Option<[IpAddr; 2]> {
        let (_, group) = self.host.as_ref()?;
        Some([false, true].map(|ipv6| address(*group, member, ipv6)))
    }
}

fn network(group: u16, ipv6: bool) -> IpAddr {
    if ipv6 {
        Ipv6Addr::new(0xfd00, 0x8000 | group, 0, 0, 0, 0, 0, 0).into()
    } else {
        Ipv4Addr::new(100, 64 + group as u8, 0, 0).into()
    }
}

fn address(group: u16, member: u32, ipv6: bool) -> IpAddr {
    let number = member + 1;
    match network(group, ipv6) {
        IpAddr::V4(network) => Ipv4Addr::from_bits(network.to_bits() + number).into(),
        IpAddr::V6(network) => Ipv6Addr::from_bits(network.to_bits() + u128::from(number)).into(),
    }
}

/// Those of a `[[subscribers]]` who take part in a `[[traffic]]`: its flows are dealt out to them
/// in turn.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Party {
    /// What the `[[traffic]]` calls them: all of those, or one.
    pub named: String,
    /// Whether they send; else they receive.
    pub sends: bool,
    /// Which of those with people they are of.
    group: u16,
    /// Who they are, ascending; not empty.
    members: Arc<[u32]>,
    ipv6: bool,
}

impl Party {
    /// Of group number `group` a part, at least one: others for another `traffic`.
    pub(crate) fn new(group: u16, count: u32, part: f64, traffic: u16) -> Self {
        let wanted = ((f64::from(count) * part).round() as usize).clamp(1, count as usize);
        let mut members: Vec<u32> = (0..count).collect();
        if wanted < members.len() {
            members.sort_by_key(|member| mixed(u64::from(traffic) << 32 | u64::from(*member)));
            members.truncate(wanted);
            members.sort_unstable();
        }
        Self { named: String::new(), sends: false, group, members: members.into(), ipv6: false }
    }

    /// One of them.
    pub(crate) fn only(group: u16, member: u32) -> Self {
        Self { named: String::new(), sends: false, group, members: [member].into(), ipv6: false }
    }

    /// The same at one end of flows of a family.
    pub(crate) fn at(self, named: &str, sends: bool, ipv6: bool) -> Self {
        Self { named: named.to_owned(), sends, ipv6, ..self }
    }

    /// Who they are, for people: `18 of hill`.
    #[must_use]
    pub fn told(&self) -> String {
        match self.members.len() {
            1 => self.named.clone(),
            many => format!("{many} of {}", self.named),
        }
    }

    /// How many they are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// There is always somebody.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Their end of flow number `flow`.
    #[must_use]
    pub fn address(&self, flow: u64) -> IpAddr {
        let at = (flow % self.members.len() as u64) as usize;
        address(self.group, self.members[at], self.ipv6)
    }

    /// Source and destination of flow number `flow` between these hosts.
    #[must_use]
    pub fn ends(&self, flow: u64, (source, destination): (IpAddr, IpAddr)) -> (IpAddr, IpAddr) {
        let own = self.address(flow);
        if self.sends { (own, destination) } else { (source, own) }
    }
}

/// A number that looks random, for each number another one (splitmix64).
fn mixed(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
