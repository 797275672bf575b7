//! The kernel's rules of policy routing (`ip rule`): decoded, told in words, and made ready for the
//! pipeline. Pure, no socket.
//!
//! What the kernel asks of a forwarded packet is known here, with two exceptions that its packet
//! filter and its tunnels decide: such a packet has no mark (`fwmark`) and no tunnel key, as it
//! would have in a kernel without such filters. It belongs to user 0 and leaves by no interface
//! yet, so a rule for some users is for all packets or for none, and one for an outgoing interface
//! for none.
//!
//! Packets of this machine itself (ICMP answers) come from `lo`; those because of a packet from a
//! routing domain (VRF) stay in that domain.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use evenkeel_net::policy::{
    Action, DEFAULT_TABLE, Incoming, LOCAL_TABLE, MAIN_TABLE, PortMatch, Rule, Rules, Selector,
    TableId,
};
use evenkeel_net::{PortIndex, Prefix};
use netlink_packet_core::Nla as _;
use netlink_packet_route::AddressFamily;
use netlink_packet_route::rule::{
    RuleAction, RuleAttribute, RuleFlags, RuleMessage, RulePortRange,
};

use super::decode::NotFollowed;
use super::names::TableNames;

/// Attributes of Linux 6.13 and later (`linux/fib_rules.h`).
const FRA_DSCP: u16 = 25;
const FRA_SPORT_MASK: u16 = 28;
const FRA_DPORT_MASK: u16 = 29;
const FRA_DSCP_MASK: u16 = 30;

/// What a rule of the kernel does.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum KernelAction {
    /// Looks into a table.
    Lookup(TableId),
    /// Looks into the table of the packet's routing domain.
    Domain,
    /// Goes on with the first rule of this priority.
    Goto(u32),
    /// Nothing.
    Nop,
    /// Drops in silence.
    Blackhole,
    /// Drops, answers "network unreachable".
    Unreachable,
    /// Drops, answers "administratively prohibited".
    Prohibit,
}

/// A rule of the kernel.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct KernelRule {
    /// Of IPv4; else of IPv6.
    pub v4: bool,
    /// Smaller is asked first.
    pub priority: u32,
    /// For all packets but those that it names (`not`).
    pub inverted: bool,
    /// Source addresses.
    pub from: Option<Prefix>,
    /// Destination addresses.
    pub to: Option<Prefix>,
    /// The interface that packets come by.
    pub iif: Option<String>,
    /// The interface that packets leave by, of this machine's own packets.
    pub oif: Option<String>,
    /// IP protocol.
    pub protocol: Option<u8>,
    /// Source ports.
    pub source_port: Option<PortMatch>,
    /// Destination ports.
    pub destination_port: Option<PortMatch>,
    /// Differentiated services code point, and which of its bits are compared.
    pub dscp: Option<(u8, u8)>,
    /// Mark of the packet filter, and which of its bits are compared.
    pub mark: Option<(u32, u32)>,
    /// Users: the first and the last.
    pub users: Option<(u32, u32)>,
    /// Key of the tunnel that it came by.
    pub tunnel: Option<u64>,
    /// What it does.
    pub action: KernelAction,
    /// Routes with a prefix of so many bits or fewer do not count.
    pub suppress: Option<u8>,
    /// Routes by interfaces of this group do not count.
    pub suppress_group: Option<u32>,
    /// It has a selector that is not known here.
    pub unknown: bool,
}

impl KernelRule {
    /// A rule for all packets of a family.
    #[must_use]
    pub const fn all(v4: bool, priority: u32, action: KernelAction) -> Self {
        Self {
            v4,
            priority,
            inverted: false,
            from: None,
            to: None,
            iif: None,
            oif: None,
            protocol: None,
            source_port: None,
            destination_port: None,
            dscp: None,
            mark: None,
            users: None,
            tunnel: None,
            action,
            suppress: None,
            suppress_group: None,
            unknown: false,
        }
    }

    /// What of it is not followed.
    pub(super) fn not_followed(&self) -> impl Iterator<Item = NotFollowed> {
        let mark = self.mark.is_some().then_some(NotFollowed::RuleMark);
        let group = self.suppress_group.is_some().then_some(NotFollowed::RuleInterfaceGroup);
        let unknown = self.unknown.then_some(NotFollowed::RuleSelector);
        [mark, group, unknown].into_iter().flatten()
    }

    /// In the words of `ip rule`.
    #[must_use]
    pub fn words(&self, names: &TableNames) -> String {
        let mut text = format!("{} {}:", if self.v4 { "IPv4" } else { "IPv6" }, self.priority);
        if self.inverted {
            text += " not";
        }
        // Writing to a String cannot fail.
        let _ = match self.from {
            Some(prefix) => write!(text, " from {prefix}"),
            None => write!(text, " from all"),
        };
        let mut add = |what: &str, value: Option<String>| {
            if let Some(value) = value {
                let _ = write!(text, " {what} {value}");
            }
        };
        let ports = |ports: PortMatch| match ports.mask {
            0 | u16::MAX if ports.start == ports.end => ports.start.to_string(),
            0 | u16::MAX => format!("{}-{}", ports.start, ports.end),
            mask => format!("{}/{mask:#x}", ports.start),
        };
        add("to", self.to.map(|prefix| prefix.to_string()));
        add("dscp", self.dscp.map(|(dscp, mask)| format!("{dscp:#x}/{mask:#x}")));
        add("fwmark", self.mark.map(|(mark, mask)| format!("{mark:#x}/{mask:#x}")));
        add("iif", self.iif.clone());
        add("oif", self.oif.clone());
        add("ipproto", self.protocol.map(|protocol| protocol.to_string()));
        add("sport", self.source_port.map(ports));
        add("dport", self.destination_port.map(ports));
        add("uidrange", self.users.map(|(first, last)| format!("{first}-{last}")));
        add("tun_id", self.tunnel.map(|key| key.to_string()));
        add("(and more)", self.unknown.then(String::new));
        let table = |table| Some(names.name(table));
        match self.action {
            KernelAction::Lookup(id) => add("lookup", table(id)),
            KernelAction::Domain => add("lookup", Some("[l3mdev-table]".to_owned())),
            KernelAction::Goto(priority) => add("goto", Some(priority.to_string())),
            KernelAction::Nop => add("nop", Some(String::new())),
            KernelAction::Blackhole => add("blackhole", Some(String::new())),
            KernelAction::Unreachable => add("unreachable", Some(String::new())),
            KernelAction::Prohibit => add("prohibit", Some(String::new())),
        }
        add("suppress_prefixlength", self.suppress.map(|len| len.to_string()));
        add("suppress_ifgroup", self.suppress_group.map(|group| group.to_string()));
        text.truncate(text.trim_end().len());
        text
    }
}

/// Decodes a rule. `None`: of another family than IPv4 and IPv6.
pub(super) fn rule(message: &RuleMessage) -> Option<KernelRule> {
    let header = &message.header;
    let (v4, any) = match header.family {
        AddressFamily::Inet => (true, IpAddr::V4(Ipv4Addr::UNSPECIFIED)),
        AddressFamily::Inet6 => (false, IpAddr::V6(Ipv6Addr::UNSPECIFIED)),
        _ => return None,
    };
    let mut rule = KernelRule::all(v4, 0, KernelAction::Nop);
    rule.inverted = header.flags.contains(RuleFlags::Invert);
    if header.tos != 0 {
        // The kernel looks at three of the bits of IPv4's type of service, at all six of IPv6's
        // traffic class.
        rule.dscp = Some((header.tos >> 2, if v4 { 0x07 } else { 0x3f }));
    }
    let (mut from, mut to, mut table, mut target) = (any, any, TableId::from(header.table), None);
    let (mut mark, mut mask, mut domain) = (None, None, false);
    let (mut source_mask, mut destination_mask, mut dscp_mask) = (0, 0, None);
    let ports =
        |range: &RulePortRange| Some(PortMatch { start: range.start, end: range.end, mask: 0 });
    for attribute in &message.attributes {
        match attribute {
            RuleAttribute::Source(address) => from = *address,
            RuleAttribute::Destination(address) => to = *address,
            RuleAttribute::Iifname(name) => rule.iif = Some(name.clone()),
            RuleAttribute::Oifname(name) => rule.oif = Some(name.clone()),
            RuleAttribute::Priority(priority) => rule.priority = *priority,
            RuleAttribute::Table(id) => table = *id,
            RuleAttribute::Goto(priority) => target = Some(*priority),
            RuleAttribute::FwMark(bits) => mark = Some(*bits),
            RuleAttribute::FwMask(bits) => mask = Some(*bits),
            RuleAttribute::TunId(key) => rule.tunnel = Some(*key).filter(|key| *key != 0),
            RuleAttribute::SuppressPrefixLen(len) => rule.suppress = u8::try_from(*len).ok(),
            RuleAttribute::SuppressIfGroup(group) => {
                rule.suppress_group = Some(*group).filter(|group| *group != u32::MAX);
            }
            RuleAttribute::L3MDev(on) => domain = *on,
            RuleAttribute::UidRange(range) => rule.users = Some((range.start, range.end)),
            RuleAttribute::IpProtocol(protocol) => {
                rule.protocol = Some(u8::from(*protocol)).filter(|protocol| *protocol != 0);
            }
            RuleAttribute::SourcePortRange(range) => rule.source_port = ports(range),
            RuleAttribute::DestinationPortRange(range) => rule.destination_port = ports(range),
            RuleAttribute::Other(other) => {
                let mut bytes = vec![0; other.value_len()];
                other.emit_value(&mut bytes);
                let word = || bytes.first_chunk().map(|bytes| u16::from_ne_bytes(*bytes));
                match (other.kind(), bytes.first().copied()) {
                    (FRA_DSCP, Some(dscp)) => rule.dscp = Some((dscp, 0x3f)),
                    (FRA_DSCP_MASK, Some(mask)) => dscp_mask = Some(mask),
                    (FRA_SPORT_MASK, _) => source_mask = word().unwrap_or(0),
                    (FRA_DPORT_MASK, _) => destination_mask = word().unwrap_or(0),
                    // Padding.
                    (18, _) => {}
                    _ => rule.unknown = true,
                }
            }
            // Who made it, and what only counts (realms).
            _ => {}
        }
    }
    rule.from = Prefix::new(from, header.src_len).filter(|prefix| prefix.len() > 0);
    rule.to = Prefix::new(to, header.dst_len).filter(|prefix| prefix.len() > 0);
    if mark.is_some() || mask.is_some() {
        rule.mark = Some((mark.unwrap_or(0), mask.unwrap_or(u32::MAX)));
    }
    for (ports, mask) in
        [(&mut rule.source_port, source_mask), (&mut rule.destination_port, destination_mask)]
    {
        if let Some(ports) = ports {
            ports.mask = mask;
        }
    }
    if let (Some((_, mask)), Some(given)) = (&mut rule.dscp, dscp_mask) {
        *mask = given;
    }
    let table = if domain { KernelAction::Domain } else { KernelAction::Lookup(table) };
    rule.action = action(header.action, table, target);
    Some(rule)
}

/// What a rule does: looks into its `table`, or goes on with that of priority `target`, or neither.
fn action(action: RuleAction, table: KernelAction, target: Option<u32>) -> KernelAction {
    match action {
        RuleAction::ToTable => table,
        RuleAction::Goto => KernelAction::Goto(target.unwrap_or(0)),
        RuleAction::Nop => KernelAction::Nop,
        RuleAction::Unreachable => KernelAction::Unreachable,
        RuleAction::Prohibit => KernelAction::Prohibit,
        _ => KernelAction::Blackhole,
    }
}

/// What rules ask of a port: its interface, and the routing domain (VRF) that it is in.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct PortPlace {
    pub(super) port: PortIndex,
    pub(super) interface: String,
    /// Name of the domain's device, and its table.
    pub(super) domain: Option<(String, TableId)>,
}

/// Makes the rules ready for the pipeline, for these ports. `None`: they are the kernel's own and
/// no others, so that the tables local and main, taken together, say everything.
/// `default_is_empty`: the table `default` has no routes.
pub(super) fn compile(
    rules: &[KernelRule],
    ports: &[PortPlace],
    default_is_empty: bool,
) -> Option<Rules> {
    let family =
        |v4: bool| -> Vec<&KernelRule> { rules.iter().filter(|rule| rule.v4 == v4).collect() };
    let families = [family(true), family(false)];
    let usual = |rules: &Vec<&KernelRule>| {
        let mut left = rules.iter().filter(|rule| {
            let asks_nothing =
                default_is_empty && rule.action == KernelAction::Lookup(DEFAULT_TABLE);
            !asks_nothing && ready(rule, rules, ports).selector.is_some()
        });
        let plain = |rule: Option<&&KernelRule>, table| {
            rule.is_some_and(|rule| {
                **rule == KernelRule::all(rule.v4, rule.priority, KernelAction::Lookup(table))
            })
        };
        plain(left.next(), LOCAL_TABLE) && plain(left.next(), MAIN_TABLE) && left.next().is_none()
    };
    if families.iter().all(usual) {
        return None;
    }
    let [v4, v6] = families.map(|rules| {
        let made = |rule: &&KernelRule| {
            let Ready { selector, action } = ready(rule, &rules, ports);
            match selector {
                Some(selector) => Rule { selector, action },
                // It keeps its place, so that others can be counted.
                None => Rule { selector: Selector::default(), action: Action::Nop },
            }
        };
        rules.iter().map(made).collect()
    });
    Some(Rules { v4, v6 })
}

/// A rule for the pipeline.
struct Ready {
    /// `None`: no packet here can match it.
    selector: Option<Selector>,
    action: Action,
}

fn ready(rule: &KernelRule, family: &[&KernelRule], ports: &[PortPlace]) -> Ready {
    // What is the same for all packets here.
    let mark = rule.mark.is_none_or(|(mark, mask)| mark & mask == 0);
    let user = rule.users.is_none_or(|(first, _)| first == 0);
    let possible = mark && user && rule.tunnel.is_none() && rule.oif.is_none();
    let incoming = match rule.iif.as_deref() {
        None => Some(Incoming::Any),
        Some("lo") => Some(Incoming::Host),
        Some(name) => {
            let is_meant = |place: &&PortPlace| {
                place.interface == name
                    || place.domain.as_ref().is_some_and(|(domain, _)| domain == name)
            };
            let meant: Vec<PortIndex> =
                ports.iter().filter(is_meant).map(|place| place.port).collect();
            (!meant.is_empty()).then_some(Incoming::Ports(meant))
        }
    };
    let domains: Vec<(PortIndex, TableId)> =
        ports.iter().filter_map(|place| Some((place.port, place.domain.as_ref()?.1))).collect();
    let no_domain = rule.action == KernelAction::Domain && domains.is_empty();
    let selector = match incoming {
        Some(incoming) if possible => Some(Selector {
            from: rule.from,
            to: rule.to,
            incoming,
            protocol: rule.protocol,
            source_port: rule.source_port,
            destination_port: rule.destination_port,
            dscp: rule.dscp,
            inverted: rule.inverted,
        }),
        // It names no packet: all others, then.
        _ if rule.inverted => Some(Selector::default()),
        _ => None,
    };
    let action = match rule.action {
        KernelAction::Lookup(table) => Action::Lookup { table, suppress: rule.suppress },
        KernelAction::Domain => Action::Domain { tables: domains, suppress: rule.suppress },
        KernelAction::Goto(priority) => {
            let target = family.iter().position(|other| other.priority == priority);
            target.map_or(Action::Nop, Action::Goto)
        }
        KernelAction::Nop => Action::Nop,
        KernelAction::Blackhole => Action::Blackhole,
        KernelAction::Unreachable => Action::Unreachable,
        KernelAction::Prohibit => Action::Prohibit,
    };
    Ready { selector: selector.filter(|_| !rule.unknown && !no_domain), action }
}

/// The rules as they are told to the worker.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct MirroredRules {
    /// `None`: the table main, which has the routes of local too, says everything.
    pub rules: Option<Rules>,
    /// All rules of the kernel, in the words of `ip rule`.
    pub words: Vec<String>,
    /// The names of tables.
    pub names: BTreeMap<TableId, String>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use netlink_packet_core::{DefaultNla, Emitable as _, Parseable as _};
    use netlink_packet_route::rule::{RuleHeader, RuleUidRange};

    /// What is decoded of the bytes that the kernel would send.
    fn decoded(header: RuleHeader, attributes: Vec<RuleAttribute>) -> KernelRule {
        let mut message = RuleMessage::default();
        (message.header, message.attributes) = (header, attributes);
        let mut bytes = vec![0; message.buffer_len()];
        message.emit(&mut bytes);
        rule(&RuleMessage::parse(&bytes).unwrap()).unwrap()
    }

    fn header(action: RuleAction) -> RuleHeader {
        RuleHeader { family: AddressFamily::Inet, action, table: 254, ..RuleHeader::default() }
    }

    fn other(kind: u16, value: &[u8]) -> RuleAttribute {
        RuleAttribute::Other(DefaultNla::new(kind, value.to_vec()))
    }

    fn place(port: u16, interface: &str, domain: Option<(&str, TableId)>) -> PortPlace {
        let domain = domain.map(|(name, table)| (name.to_owned(), table));
        PortPlace { port: PortIndex(port), interface: interface.to_owned(), domain }
    }

    fn usual() -> Vec<KernelRule> {
        let lookup =
            |v4, priority, table| KernelRule::all(v4, priority, KernelAction::Lookup(table));
        vec![
            lookup(true, 0, LOCAL_TABLE),
            lookup(true, 32_766, MAIN_TABLE),
            lookup(true, 32_767, DEFAULT_TABLE),
            lookup(false, 0, LOCAL_TABLE),
            lookup(false, 32_766, MAIN_TABLE),
        ]
    }

    #[test]
    fn a_rule_with_all_that_it_can_ask_for() {
        let mut head = header(RuleAction::ToTable);
        (head.src_len, head.dst_len, head.tos) = (24, 16, 0x10);
        head.flags = RuleFlags::Invert;
        let made = decoded(
            head,
            vec![
                RuleAttribute::Priority(100),
                RuleAttribute::Source("10.1.0.0".parse().unwrap()),
                RuleAttribute::Destination("10.9.0.0".parse().unwrap()),
                RuleAttribute::Iifname("lan".to_owned()),
                RuleAttribute::IpProtocol(17.into()),
                RuleAttribute::SourcePortRange(RulePortRange { start: 1, end: 9 }),
                RuleAttribute::DestinationPortRange(RulePortRange { start: 53, end: 53 }),
                other(FRA_DPORT_MASK, &u16::MAX.to_ne_bytes()),
                RuleAttribute::Table(1_000),
                RuleAttribute::SuppressPrefixLen(8),
                RuleAttribute::SuppressIfGroup(u32::MAX),
            ],
        );
        let expected = KernelRule {
            inverted: true,
            from: "10.1.0.0/24".parse().ok(),
            to: "10.9.0.0/16".parse().ok(),
            iif: Some("lan".to_owned()),
            protocol: Some(17),
            source_port: Some(PortMatch { start: 1, end: 9, mask: 0 }),
            destination_port: Some(PortMatch { start: 53, end: 53, mask: u16::MAX }),
            dscp: Some((4, 7)),
            suppress: Some(8),
            ..KernelRule::all(true, 100, KernelAction::Lookup(1_000))
        };
        assert_eq!(made, expected);
        assert_eq!(made.not_followed().count(), 0);
        let mut names = TableNames::default();
        names.add("1000 red");
        assert_eq!(
            made.words(&names),
            "IPv4 100: not from 10.1.0.0/24 to 10.9.0.0/16 dscp 0x4/0x7 iif lan ipproto 17 sport \
             1-9 dport 53 lookup red suppress_prefixlength 8"
        );
    }

    #[test]
    fn code_points_are_told_whole_and_by_mask() {
        let dscp = |attributes| decoded(header(RuleAction::ToTable), attributes).dscp;
        assert_eq!(dscp(vec![other(FRA_DSCP, &[46])]), Some((46, 0x3f)));
        assert_eq!(
            dscp(vec![other(FRA_DSCP, &[46]), other(FRA_DSCP_MASK, &[0x38])]),
            Some((46, 0x38))
        );
        assert_eq!(dscp(vec![]), None);
        let v6 =
            RuleHeader { family: AddressFamily::Inet6, tos: 0xb8, ..header(RuleAction::ToTable) };
        assert_eq!(decoded(v6, vec![]).dscp, Some((46, 0x3f)), "of IPv6 all bits count");
    }

    #[test]
    fn actions() {
        let action = |action, attributes| decoded(header(action), attributes).action;
        use KernelAction as K;
        assert_eq!(
            action(RuleAction::ToTable, vec![]),
            K::Lookup(254),
            "an old kernel's table is in the header"
        );
        assert_eq!(action(RuleAction::ToTable, vec![RuleAttribute::L3MDev(true)]), K::Domain);
        assert_eq!(action(RuleAction::Goto, vec![RuleAttribute::Goto(200)]), K::Goto(200));
        assert_eq!(action(RuleAction::Nop, vec![]), K::Nop);
        assert_eq!(action(RuleAction::Blackhole, vec![]), K::Blackhole);
        assert_eq!(action(RuleAction::Unreachable, vec![]), K::Unreachable);
        assert_eq!(action(RuleAction::Prohibit, vec![]), K::Prohibit);
    }

    #[test]
    fn the_kernels_own_rules_need_nobody_to_be_asked() {
        let ports = [place(0, "lan", None), place(1, "wan", None)];
        assert_eq!(compile(&usual(), &ports, true), None);
        assert!(compile(&usual(), &ports, false).is_some(), "the table default has routes");
        let without_main: Vec<_> =
            usual().into_iter().filter(|rule| rule.priority != 32_766).collect();
        assert!(compile(&without_main, &ports, true).is_some());
        let with = |rule: KernelRule| {
            let mut rules = usual();
            rules.insert(1, rule);
            compile(&rules, &ports, true)
        };
        let red = |name: &str| KernelRule {
            iif: Some(name.to_owned()),
            ..KernelRule::all(true, 100, KernelAction::Lookup(100))
        };
        assert!(with(red("lan")).is_some());
        // What can match no packet here changes nothing: another interface, a mark, an outgoing
        // interface, users besides the first.
        assert_eq!(with(red("other")), None);
        let all = || KernelRule::all(true, 100, KernelAction::Lookup(100));
        assert_eq!(with(KernelRule { mark: Some((5, u32::MAX)), ..all() }), None);
        assert_eq!(with(KernelRule { oif: Some("wan".to_owned()), ..all() }), None);
        assert_eq!(with(KernelRule { users: Some((5, 9)), ..all() }), None);
        assert_eq!(with(KernelRule { unknown: true, ..all() }), None);
        assert_eq!(
            with(KernelRule::all(true, 1_000, KernelAction::Domain)),
            None,
            "no port is in a domain"
        );
        // And what names no packet here is, turned round, for all.
        for rule in [
            KernelRule { mark: Some((51_820, u32::MAX)), ..all() },
            KernelRule { users: Some((5, 9)), ..all() },
        ] {
            let rules = with(KernelRule { inverted: true, ..rule }).unwrap();
            assert_eq!(rules.v4[1].selector, Selector::default());
        }
    }

    #[test]
    fn a_port_in_a_routing_domain_is_meant_by_its_name_and_by_that_of_the_domain() {
        let ports = [place(0, "lan", Some(("red", 1_001))), place(1, "wan", None)];
        let mut rules = usual();
        rules.insert(1, KernelRule::all(true, 1_000, KernelAction::Domain));
        let iif = |name: &str| KernelRule {
            iif: Some(name.to_owned()),
            ..KernelRule::all(true, 2_000, KernelAction::Goto(32_767))
        };
        rules.insert(2, iif("red"));
        rules.insert(3, iif("wan"));
        let made = compile(&rules, &ports, true).unwrap();
        let domain = Action::Domain { tables: vec![(PortIndex(0), 1_001)], suppress: None };
        assert_eq!(made.v4[1], Rule { selector: Selector::default(), action: domain });
        assert_eq!(made.v4[2].selector.incoming, Incoming::Ports(vec![PortIndex(0)]));
        assert_eq!(made.v4[3].selector.incoming, Incoming::Ports(vec![PortIndex(1)]));
        assert_eq!(made.v4[3].action, Action::Goto(5), "the place of the rule with that priority");
    }

    #[test]
    fn what_is_not_known_of_a_packet_is_told() {
        let what = |attribute| {
            let rule = decoded(header(RuleAction::ToTable), vec![attribute]);
            rule.not_followed().collect::<Vec<_>>()
        };
        assert_eq!(what(RuleAttribute::FwMark(5)), [NotFollowed::RuleMark]);
        assert_eq!(what(RuleAttribute::SuppressIfGroup(3)), [NotFollowed::RuleInterfaceGroup]);
        assert_eq!(what(other(26, &[0; 4])), [NotFollowed::RuleSelector], "a flow label");
        assert_eq!(what(RuleAttribute::UidRange(RuleUidRange { start: 0, end: 0 })), []);
    }
}
