//! Policy routing: several forwarding tables, and the rules that choose among them.
//!
//! As Linux has it (`ip-rule(8)`, `fib_rules_lookup` and its callers in `net/core/fib_rules.c`,
//! `net/ipv4/fib_rules.c`, `net/ipv6/fib6_rules.c`): the rules of a packet's family are gone
//! through in their order. The first whose selector matches acts: it refuses, goes on further down,
//! or looks into a table. What the table says is final, unless it has no way, its route is a
//! [`RouteKind::Throw`](crate::fib::RouteKind), or the rule suppresses routes with so short a
//! prefix; then the next rule is asked.
//!
//! As long as there are no rules but the kernel's own, one table says everything: a look-up costs
//! what a look-up in [`Fib`] costs, and a comparison.
//!
//! Complexity: with rules, one comparison of a selector for each rule gone through and one look-up
//! for each table asked. No allocation.

use core::net::IpAddr;

use evenkeel_core::FlowKey;

use crate::fib::{Decision, Fib, NextHop, Route, Routes};
use crate::frame::{Fragment, Headers};
use crate::{PortIndex, Prefix};

/// The number of a routing table, as the kernel counts them.
pub type TableId = u32;
/// The table of the machine's own addresses.
pub const LOCAL_TABLE: TableId = 255;
/// The table of everything else, in which routes are unless it is said otherwise.
pub const MAIN_TABLE: TableId = 254;
/// The table that is asked last; empty unless somebody fills it.
pub const DEFAULT_TABLE: TableId = 253;

/// Routes whose tree takes more than the nearer caches have: from which on it is worth its time to
/// [read ahead](PolicyTables::read_ahead).
pub const LARGE_TABLE: usize = 20_000;

/// Where a packet comes from.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Origin {
    /// A port that it was received by.
    Port(PortIndex),
    /// This machine, because of a packet that came by this port: an answer, or what carries it on
    /// in a tunnel.
    Host(PortIndex),
}

/// What rules ask of a packet.
#[derive(Clone, Copy, Debug)]
pub struct LookupKey {
    /// Addresses, protocol and ports. Ports are zero where the packet has none or is a fragment, as
    /// the kernel has it.
    pub flow: FlowKey,
    /// Differentiated services code point, 0 to 63.
    pub dscp: u8,
    /// Where it comes from.
    pub origin: Origin,
}

impl LookupKey {
    /// A packet with these headers.
    #[must_use]
    pub fn new(headers: &Headers, origin: Origin) -> Self {
        let mut flow = headers.flow;
        if headers.fragment != Fragment::No {
            (flow.source_port, flow.destination_port) = (0, 0);
        }
        Self { flow, dscp: headers.dscp, origin }
    }
}

/// Port numbers that a rule selects.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct PortMatch {
    /// The first of them, or the bits looked for.
    pub start: u16,
    /// The last of them.
    pub end: u16,
    /// The bits that are compared with `start`; zero: all numbers from `start` to `end` match.
    pub mask: u16,
}

impl PortMatch {
    const fn matches(self, port: u16) -> bool {
        if self.mask != 0 {
            (port ^ self.start) & self.mask == 0
        } else {
            self.start <= port && port <= self.end
        }
    }
}

/// Where a rule wants packets to come from.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Incoming {
    /// From anywhere.
    Any,
    /// One of these ports.
    Ports(Vec<PortIndex>),
    /// This machine itself (Linux: `iif lo`).
    Host,
}

/// The packets that a rule is for. What is `None` matches all.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Selector {
    /// Source addresses.
    pub from: Option<Prefix>,
    /// Destination addresses.
    pub to: Option<Prefix>,
    /// Where they come from.
    pub incoming: Incoming,
    /// IP protocol.
    pub protocol: Option<u8>,
    /// Source ports.
    pub source_port: Option<PortMatch>,
    /// Destination ports.
    pub destination_port: Option<PortMatch>,
    /// Differentiated services code point, and which of its six bits are compared.
    pub dscp: Option<(u8, u8)>,
    /// All packets but these.
    pub inverted: bool,
}

impl Default for Selector {
    fn default() -> Self {
        Self {
            from: None,
            to: None,
            incoming: Incoming::Any,
            protocol: None,
            source_port: None,
            destination_port: None,
            dscp: None,
            inverted: false,
        }
    }
}

impl Selector {
    /// Whether a packet is one of them.
    #[must_use]
    pub fn matches(&self, key: &LookupKey) -> bool {
        let flow = &key.flow;
        let incoming = match (&self.incoming, key.origin) {
            (Incoming::Any, _) | (Incoming::Host, Origin::Host(_)) => true,
            (Incoming::Ports(ports), Origin::Port(port)) => ports.contains(&port),
            (Incoming::Host, Origin::Port(_)) | (Incoming::Ports(_), Origin::Host(_)) => false,
        };
        let all = incoming
            && self.from.is_none_or(|prefix| prefix.contains(flow.source))
            && self.to.is_none_or(|prefix| prefix.contains(flow.destination))
            && self.protocol.is_none_or(|protocol| protocol == flow.protocol)
            && self.source_port.is_none_or(|ports| ports.matches(flow.source_port))
            && self.destination_port.is_none_or(|ports| ports.matches(flow.destination_port))
            && self.dscp.is_none_or(|(dscp, mask)| (dscp ^ key.dscp) & mask == 0);
        all != self.inverted
    }
}

/// What a rule does.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Action {
    /// Looks into a table.
    Lookup {
        /// The table.
        table: TableId,
        /// Routes with a prefix of this many bits or fewer do not count.
        suppress: Option<u8>,
    },
    /// Looks into the table of the routing domain (VRF) that the packet's port is in; does not
    /// match ports in none.
    Domain {
        /// By port.
        tables: Vec<(PortIndex, TableId)>,
        /// As for [`Action::Lookup`].
        suppress: Option<u8>,
    },
    /// Goes on with this rule, counted from 0, which is further down; with the next if it is not.
    Goto(usize),
    /// Nothing.
    Nop,
    /// Drops, says nothing.
    Blackhole,
    /// Drops, answers "network unreachable" (IPv4) or "no route" (IPv6).
    Unreachable,
    /// Drops, answers "administratively prohibited".
    Prohibit,
}

/// A rule.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Rule {
    /// For which packets.
    pub selector: Selector,
    /// What it does.
    pub action: Action,
}

/// The rules of both families, in their order.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Rules {
    /// For IPv4.
    pub v4: Vec<Rule>,
    /// For IPv6.
    pub v6: Vec<Rule>,
}

/// What the rules come to.
enum Verdict<'a> {
    /// These routes.
    Routes(&'a Routes),
    /// A rule refuses.
    Refused(Decision),
    /// No table has a way.
    Nothing,
}

/// The forwarding tables and the rules that choose among them.
#[derive(Clone, Debug, Default)]
pub struct PolicyTables {
    main: Fib,
    /// The others that have routes, by number.
    others: Vec<(TableId, Fib)>,
    rules: Option<Box<Rules>>,
}

impl PolicyTables {
    /// No routes, no rules.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The main table, which says everything as long as there are no rules.
    pub fn main_mut(&mut self) -> &mut Fib {
        &mut self.main
    }

    /// A table, if it has routes.
    #[must_use]
    pub fn table(&self, table: TableId) -> Option<&Fib> {
        if table == MAIN_TABLE {
            return Some(&self.main);
        }
        let at = self.others.binary_search_by_key(&table, |(id, _)| *id).ok()?;
        Some(&self.others[at].1)
    }

    /// All tables that have routes, and the main table, by number.
    pub fn tables<'a>(&'a self) -> impl Iterator<Item = (TableId, &'a Fib)> {
        let place = self.others.partition_point(|(id, _)| *id < MAIN_TABLE);
        let (below, above) = self.others.split_at(place);
        let main = core::iter::once((MAIN_TABLE, &self.main));
        let named = |(id, fib): &'a (TableId, Fib)| (*id, fib);
        below.iter().map(named).chain(main).chain(above.iter().map(named))
    }

    /// Makes `route` the only one of a prefix in a table; `None`: there is none any more. A table
    /// that loses its last route gives its memory back.
    pub fn set(&mut self, table: TableId, prefix: Prefix, route: Option<Route>) {
        if table == MAIN_TABLE {
            return self.main.set(prefix, route);
        }
        match self.others.binary_search_by_key(&table, |(id, _)| *id) {
            Ok(at) => {
                self.others[at].1.set(prefix, route);
                if self.others[at].1.is_empty() {
                    self.others.remove(at);
                }
            }
            Err(at) => {
                if route.is_some() {
                    let mut fib = Fib::new();
                    fib.set(prefix, route);
                    self.others.insert(at, (table, fib));
                }
            }
        }
    }

    /// The rules from now on; `None`: the main table says everything.
    pub fn set_rules(&mut self, rules: Option<Rules>) {
        self.rules = rules.map(Box::new);
    }

    /// Whether rules are asked.
    #[must_use]
    pub const fn has_rules(&self) -> bool {
        self.rules.is_some()
    }

    /// What to do with a packet to `destination`; `None`: no route leads there. `flow_hash` chooses
    /// among several next hops; `key` is only called where there are rules.
    #[inline]
    #[must_use]
    pub fn lookup(
        &self,
        destination: IpAddr,
        flow_hash: u64,
        key: impl FnOnce() -> LookupKey,
    ) -> Option<Decision> {
        match &self.rules {
            None => self.main.lookup(destination, flow_hash),
            Some(rules) => self.lookup_by_rules(rules, &key(), destination, flow_hash),
        }
    }

    #[cold]
    fn lookup_by_rules(
        &self,
        rules: &Rules,
        key: &LookupKey,
        destination: IpAddr,
        flow_hash: u64,
    ) -> Option<Decision> {
        match self.judge(rules, key, destination) {
            Verdict::Routes(routes) => routes.decide(destination, flow_hash),
            Verdict::Refused(decision) => Some(decision),
            Verdict::Nothing => None,
        }
    }

    /// The next hops among which a look-up chooses by hash; empty where there is no choice.
    #[must_use]
    pub fn choices(&self, destination: IpAddr, key: impl FnOnce() -> LookupKey) -> &[NextHop] {
        let Some(rules) = &self.rules else { return self.main.choices(destination) };
        match self.judge(rules, &key(), destination) {
            Verdict::Routes(routes) => routes.choices(),
            Verdict::Refused(_) | Verdict::Nothing => &[],
        }
    }

    fn judge(&self, rules: &Rules, key: &LookupKey, destination: IpAddr) -> Verdict<'_> {
        let rules = if destination.is_ipv4() { &rules.v4 } else { &rules.v6 };
        let mut at = 0;
        while let Some(rule) = rules.get(at) {
            at += 1;
            if !rule.selector.matches(key) {
                continue;
            }
            let (table, suppress) = match &rule.action {
                Action::Lookup { table, suppress } => (*table, *suppress),
                Action::Domain { tables, suppress } => {
                    let (Origin::Port(port) | Origin::Host(port)) = key.origin;
                    let Some((_, table)) = tables.iter().find(|(of, _)| *of == port) else {
                        continue;
                    };
                    (*table, *suppress)
                }
                Action::Goto(to) => {
                    at = at.max(*to);
                    continue;
                }
                Action::Nop => continue,
                Action::Blackhole => return Verdict::Refused(Decision::Blackhole),
                Action::Prohibit => return Verdict::Refused(Decision::Prohibit),
                // What the kernel answers then is what it answers where there is no route.
                Action::Unreachable => return Verdict::Nothing,
            };
            let Some((len, routes)) = self.table(table).and_then(|fib| fib.longest(destination))
            else {
                continue;
            };
            let suppressed = !routes.refuses() && suppress.is_some_and(|longest| len <= longest);
            if !suppressed && !routes.throws() {
                return Verdict::Routes(routes);
            }
        }
        Verdict::Nothing
    }

    /// Reads what the look-ups of a burst of destinations will read, side by side, in all tables
    /// that are larger than the nearer caches.
    pub fn read_ahead(&self, destinations: &[IpAddr]) {
        for (_, fib) in self.tables().filter(|(_, fib)| fib.len() >= LARGE_TABLE) {
            fib.read_ahead(destinations);
        }
    }

    /// How many routes there are in all tables.
    #[must_use]
    pub fn len(&self) -> usize {
        self.main.len() + self.others.iter().map(|(_, fib)| fib.len()).sum::<usize>()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.main.is_empty() && self.others.is_empty()
    }
}
