//! The forwarding table: longest-prefix match for IPv4 and IPv6, with metrics and weighted multipath.
//!
//! Filled from the kernel's routing tables by whoever mirrors them; read once per packet. Several routes may be known
//! for one prefix; the best is used and the next best steps in when it is removed. As in Linux, whose local table is asked
//! before its main table, a route to the machine itself beats any other of the same prefix; then the lowest metric wins.
//!
//! Complexity: a look-up reads at most 6 nodes (IPv4) or 22 (IPv6) of a tree bitmap, and the routes of one prefix; it allocates
//! nothing. Insertion and removal touch one path of the tree.

use core::net::IpAddr;

use crate::lpm::Lpm;
use crate::{PortIndex, Prefix};

/// One way to a destination.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct NextHop {
    /// The port to send from.
    pub port: PortIndex,
    /// The router to send to; `None` where the destination is on the port's own link. It may be of the other family (RFC 8950).
    pub gateway: Option<IpAddr>,
    /// Share of the flows, relative to the other next hops. 0 counts as 1.
    pub weight: u16,
}

impl NextHop {
    /// Through a router, weight 1.
    #[must_use]
    pub const fn gateway(port: PortIndex, gateway: IpAddr) -> Self {
        Self { port, gateway: Some(gateway), weight: 1 }
    }

    /// Straight to the destination on the port's own link, weight 1.
    #[must_use]
    pub const fn connected(port: PortIndex) -> Self {
        Self { port, gateway: None, weight: 1 }
    }
}

/// The next hops of a route, at least one. Flows are spread by hash in proportion to the weights; a flow keeps its next hop
/// as long as the set does not change (hash threshold of RFC 2992, with weights).
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct NextHops {
    hops: Box<[NextHop]>,
    /// For each hop the upper end (exclusive) of its share of the hashes, out of 2^32; the last is 2^32.
    bounds: Box<[u64]>,
}

impl NextHops {
    /// `None` if there are none. O(n).
    #[must_use]
    pub fn new(hops: Vec<NextHop>) -> Option<Self> {
        let weight = |hop: &NextHop| u64::from(hop.weight.max(1));
        let total: u64 = hops.iter().map(weight).sum();
        if total == 0 {
            return None;
        }
        let mut below = 0;
        let bounds = hops
            .iter()
            .map(|hop| {
                below += weight(hop);
                (u128::from(below) * (1 << 32)).div_ceil(u128::from(total)) as u64
            })
            .collect();
        Some(Self { hops: hops.into(), bounds })
    }

    /// The next hop for a flow. O(n) in the number of next hops; constant for one.
    #[inline]
    #[must_use]
    pub fn select(&self, flow_hash: u64) -> &NextHop {
        if let [only] = &*self.hops {
            return only;
        }
        // The upper half: the lower bits choose buckets in tables, and the two choices must not depend on each other.
        let point = flow_hash >> 32;
        let chosen = self.bounds.iter().position(|bound| point < *bound).unwrap_or(0);
        &self.hops[chosen]
    }

    /// All of them, in the order given.
    #[must_use]
    pub fn as_slice(&self) -> &[NextHop] {
        &self.hops
    }
}

/// What a route says about its destinations.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum RouteKind {
    /// Forward.
    Unicast(NextHops),
    /// One of the machine's own addresses, or anything else that only the host can see to.
    Local,
    /// A broadcast address of a connected network.
    Broadcast,
    /// A group: belongs to the host.
    Multicast,
    /// Drop, say nothing.
    Blackhole,
    /// Drop, answer "host unreachable" (IPv4) or "no route" (IPv6).
    Unreachable,
    /// Drop, answer "administratively prohibited".
    Prohibit,
}

/// A route of the table.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Route {
    /// What it says.
    pub kind: RouteKind,
    /// Preference among routes of one prefix: the lowest wins.
    pub metric: u32,
}

/// The order of the routes of one prefix, and the name of a route among them: there is at most one of each precedence.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Precedence {
    /// Whether it is of the main table; routes to the machine itself (local, broadcast, multicast) go first.
    pub main: bool,
    /// The route's metric.
    pub metric: u32,
}

impl Route {
    /// A route with one next hop.
    #[must_use]
    pub fn via(next_hop: NextHop, metric: u32) -> Self {
        let hops = NextHops::new(vec![next_hop]).expect("there is one next hop");
        Self { kind: RouteKind::Unicast(hops), metric }
    }

    /// A route without next hops. Metric 0.
    #[must_use]
    pub const fn of(kind: RouteKind) -> Self {
        Self { kind, metric: 0 }
    }

    /// Its place among the routes of one prefix.
    #[must_use]
    pub const fn precedence(&self) -> Precedence {
        let main = !matches!(self.kind, RouteKind::Local | RouteKind::Broadcast | RouteKind::Multicast);
        Precedence { main, metric: self.metric }
    }
}

/// What to do with a packet.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[must_use]
pub enum Decision {
    /// Send it from `port` to `next_hop`, which is the destination itself on a connected network.
    Forward {
        /// The port to send from.
        port: PortIndex,
        /// Whose Ethernet address to send it to.
        next_hop: IpAddr,
    },
    /// It is for the machine itself.
    Local,
    /// It is for all stations of a connected network: give it to the host, never forward it (RFC 2644).
    Broadcast,
    /// It is for a group: give it to the host.
    Multicast,
    /// Drop it, say nothing.
    Blackhole,
    /// Drop it, answer "host unreachable" (IPv4) or "no route" (IPv6).
    Unreachable,
    /// Drop it, answer "administratively prohibited".
    Prohibit,
}

/// The routes of one prefix.
#[derive(Clone)]
struct Routes {
    /// What the best of them says: the common look-up ends here.
    active: Active,
    /// Best first; never empty.
    all: Vec<Route>,
}

#[derive(Clone)]
enum Active {
    Only(NextHop),
    Several(NextHops),
    Fixed(Decision),
}

impl Routes {
    /// None yet.
    const fn new() -> Self {
        Self { active: Active::Fixed(Decision::Blackhole), all: Vec::new() }
    }

    /// To be called after every change of `all`.
    fn choose(&mut self) {
        let Some(best) = self.all.first() else {
            return;
        };
        self.active = match &best.kind {
            RouteKind::Unicast(hops) => match hops.as_slice() {
                [only] => Active::Only(*only),
                _ => Active::Several(hops.clone()),
            },
            RouteKind::Local => Active::Fixed(Decision::Local),
            RouteKind::Broadcast => Active::Fixed(Decision::Broadcast),
            RouteKind::Multicast => Active::Fixed(Decision::Multicast),
            RouteKind::Blackhole => Active::Fixed(Decision::Blackhole),
            RouteKind::Unreachable => Active::Fixed(Decision::Unreachable),
            RouteKind::Prohibit => Active::Fixed(Decision::Prohibit),
        };
    }

    /// The next hop of a flow, or what else to do.
    #[inline]
    fn select(&self, flow_hash: u64) -> Result<NextHop, Decision> {
        match &self.active {
            Active::Only(hop) => Ok(*hop),
            Active::Several(hops) => Ok(*hops.select(flow_hash)),
            Active::Fixed(decision) => Err(*decision),
        }
    }
}

/// The forwarding table.
#[derive(Clone, Default)]
pub struct Fib {
    v4: Lpm<u32>,
    v6: Lpm<u128>,
    /// By the number that the tree of the family has for their prefix.
    prefixes: Vec<Routes>,
    /// Numbers that are not used.
    free: Vec<u32>,
    routes: usize,
}

impl Fib {
    /// A table without routes.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a route. One with the same prefix and precedence is replaced and given back.
    pub fn insert(&mut self, prefix: Prefix, route: Route) -> Option<Route> {
        let number = self.number(prefix).unwrap_or_else(|| self.add(prefix));
        let routes = &mut self.prefixes[number as usize];
        let replaced = match routes.all.binary_search_by_key(&route.precedence(), Route::precedence) {
            Ok(at) => Some(core::mem::replace(&mut routes.all[at], route)),
            Err(at) => {
                routes.all.insert(at, route);
                self.routes += 1;
                None
            }
        };
        routes.choose();
        replaced
    }

    /// Removes the route with this prefix and precedence and gives it back; the next best becomes active.
    pub fn remove(&mut self, prefix: Prefix, precedence: Precedence) -> Option<Route> {
        let number = self.number(prefix)?;
        let routes = &mut self.prefixes[number as usize];
        let at = routes.all.binary_search_by_key(&precedence, Route::precedence).ok()?;
        let removed = routes.all.remove(at);
        routes.choose();
        self.routes -= 1;
        if routes.all.is_empty() {
            self.forget(prefix);
        }
        Some(removed)
    }

    /// The number of a prefix that has routes.
    fn number(&self, prefix: Prefix) -> Option<u32> {
        match prefix.address() {
            IpAddr::V4(a) => self.v4.get(a.to_bits(), prefix.len()),
            IpAddr::V6(a) => self.v6.get(a.to_bits(), prefix.len()),
        }
    }

    /// A number for a prefix that has none.
    fn add(&mut self, prefix: Prefix) -> u32 {
        let number = self.free.pop().unwrap_or_else(|| {
            self.prefixes.push(Routes::new());
            self.prefixes.len() as u32 - 1
        });
        match prefix.address() {
            IpAddr::V4(a) => self.v4.insert(a.to_bits(), prefix.len(), number),
            IpAddr::V6(a) => self.v6.insert(a.to_bits(), prefix.len(), number),
        }
        number
    }

    /// The last route of a prefix is gone.
    fn forget(&mut self, prefix: Prefix) {
        let number = match prefix.address() {
            IpAddr::V4(a) => self.v4.remove(a.to_bits(), prefix.len()),
            IpAddr::V6(a) => self.v6.remove(a.to_bits(), prefix.len()),
        };
        if let Some(number) = number {
            self.prefixes[number as usize] = Routes::new();
            self.free.push(number);
        }
    }

    /// Puts a whole new set of routes in place of the old one, which is given back so that it can be dropped where time does not
    /// matter.
    #[must_use = "dropping a large table takes time: do it off the packet path"]
    pub fn replace(&mut self, routes: impl IntoIterator<Item = (Prefix, Route)>) -> Self {
        core::mem::replace(self, routes.into_iter().collect())
    }

    /// Keeps only the routes for which `keep` says so. O(n).
    pub fn retain(&mut self, mut keep: impl FnMut(Prefix, &Route) -> bool) {
        let all: Vec<(Prefix, u32)> = self.numbers().collect();
        for (prefix, number) in all {
            let routes = &mut self.prefixes[number as usize];
            let before = routes.all.len();
            routes.all.retain(|route| keep(prefix, route));
            routes.choose();
            self.routes -= before - routes.all.len();
            if routes.all.is_empty() {
                self.forget(prefix);
            }
        }
    }

    /// What to do with a packet to `destination`; `None`: no route leads there. `flow_hash` chooses among several next hops.
    /// No allocation.
    #[inline]
    #[must_use]
    pub fn lookup(&self, destination: IpAddr, flow_hash: u64) -> Option<Decision> {
        let (number, _) = self.longest(destination)?;
        let routes = &self.prefixes[number as usize];
        Some(match routes.select(flow_hash) {
            Ok(hop) => Decision::Forward { port: hop.port, next_hop: hop.gateway.unwrap_or(destination) },
            Err(decision) => decision,
        })
    }

    /// The prefix and route that a look-up of `destination` ends at, for people who ask why.
    #[must_use]
    pub fn explain(&self, destination: IpAddr) -> Option<(Prefix, &Route)> {
        let (number, len) = self.longest(destination)?;
        let route = self.prefixes[number as usize].all.first()?;
        Some((Prefix::new(destination, len)?, route))
    }

    /// The number of the longest prefix that an address lies in, and that prefix's length.
    #[inline]
    fn longest(&self, destination: IpAddr) -> Option<(u32, u8)> {
        match destination {
            IpAddr::V4(a) => self.v4.longest(a.to_bits()),
            IpAddr::V6(a) => self.v6.longest(a.to_bits()),
        }
    }

    /// Every prefix and its number, by family and address.
    fn numbers(&self) -> impl Iterator<Item = (Prefix, u32)> {
        let prefix =
            |address, len| Prefix::new(address, len).expect("the tree keeps lengths that its family has");
        let v4 = self.v4.iter(0).map(move |(bits, len, n)| (prefix(IpAddr::V4(bits.into()), len), n));
        let v6 = self.v6.iter(0).map(move |(bits, len, n)| (prefix(IpAddr::V6(bits.into()), len), n));
        v4.chain(v6)
    }

    /// Every route, by family and prefix, best first within a prefix.
    pub fn iter(&self) -> impl Iterator<Item = (Prefix, &Route)> {
        self.numbers().flat_map(|(prefix, number)| {
            self.prefixes[number as usize].all.iter().map(move |route| (prefix, route))
        })
    }

    /// How many routes there are, inactive ones included.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.routes
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.routes == 0
    }
}

impl FromIterator<(Prefix, Route)> for Fib {
    fn from_iter<I: IntoIterator<Item = (Prefix, Route)>>(routes: I) -> Self {
        let mut fib = Self::new();
        fib.extend(routes);
        fib
    }
}

impl Extend<(Prefix, Route)> for Fib {
    fn extend<I: IntoIterator<Item = (Prefix, Route)>>(&mut self, routes: I) {
        for (prefix, route) in routes {
            self.insert(prefix, route);
        }
    }
}

impl core::fmt::Debug for Fib {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}
