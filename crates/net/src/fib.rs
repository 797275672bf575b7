//! The forwarding table: longest-prefix match for IPv4 and IPv6, with metrics and weighted
//! multipath.
//!
//! Filled from the kernel's routing tables by whoever mirrors them; read once per packet. Several
//! routes may be known for one prefix; the best is used and the next best steps in when it is
//! removed. As in Linux, whose local table is asked before its main table, a route to the machine
//! itself beats any other of the same prefix; then the lowest metric wins.
//!
//! The table of the whole Internet leads to a few hundred next hops. What the routes of a prefix
//! say is kept once for all prefixes that agree in it, so a prefix costs some twenty bytes.
//!
//! Complexity: a look-up reads at most 4 nodes (IPv4) or 23 (IPv6) of a tree bitmap, and the routes
//! of one prefix; it allocates nothing. Insertion and removal touch one path of the tree: about a
//! microsecond, between two look-ups of their owner.

use core::net::IpAddr;

use crate::prefix_map::PrefixMap;
use crate::{PortIndex, Prefix};

/// One way to a destination.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct NextHop {
    /// The port to send from.
    pub port: PortIndex,
    /// The router to send to; `None` where the destination is on the port's own link. It may be of
    /// the other family (RFC 8950).
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

/// The next hops of a route, at least one. Flows are spread by hash in proportion to the weights; a
/// flow keeps its next hop as long as the set does not change (hash threshold of RFC 2992, with
/// weights).
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct NextHops {
    hops: Box<[NextHop]>,
    /// For each hop the upper end (exclusive) of its share of the hashes, out of 2^32; the last is
    /// 2^32.
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
        // The upper half: the lower bits choose buckets in tables, and the two choices must not
        // depend on each other.
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

/// What a route says about its destinations, with the next hops where it forwards.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
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
    /// It leaves by an interface that is no port: the kernel's to forward.
    Elsewhere,
    /// This table knows no way: go on with the next rule (Linux: `throw`).
    Throw,
}

/// The MTU of a route that has none of its own: that of its port holds.
pub const NO_ROUTE_MTU: u32 = u32::MAX;

/// A route of the table.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Route {
    /// What it says.
    pub kind: RouteKind,
    /// Preference among routes of one prefix: the lowest wins.
    pub metric: u32,
    /// The longest IP packet that it takes, bytes, where that is less than its port's MTU;
    /// [`NO_ROUTE_MTU`] for no bound of its own.
    pub mtu: u32,
}

/// The order of the routes of one prefix, and the name of a route among them: there is at most one
/// of each precedence.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Precedence {
    /// Whether it is of the main table; routes to the machine itself (local, broadcast, multicast)
    /// go first.
    pub main: bool,
    /// The route's metric.
    pub metric: u32,
}

impl Route {
    /// A route with one next hop.
    #[must_use]
    pub fn via(next_hop: NextHop, metric: u32) -> Self {
        let hops = NextHops::new(vec![next_hop]).expect("there is one next hop");
        Self { metric, ..Self::of(RouteKind::Unicast(hops)) }
    }

    /// A route of metric 0 with no MTU of its own.
    #[must_use]
    pub const fn of(kind: RouteKind) -> Self {
        Self { kind, metric: 0, mtu: NO_ROUTE_MTU }
    }

    /// Its place among the routes of one prefix.
    #[must_use]
    pub const fn precedence(&self) -> Precedence {
        let main =
            !matches!(self.kind, RouteKind::Local | RouteKind::Broadcast | RouteKind::Multicast);
        Precedence { main, metric: self.metric }
    }
}

/// What to do with a packet.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[must_use]
pub enum Decision {
    /// Send it from `port` to `next_hop`, which is the destination itself on a connected network.
    Forward {
        /// The port to send from.
        port: PortIndex,
        /// Whose Ethernet address to send it to.
        next_hop: IpAddr,
        /// The longest IP packet that the route takes, bytes; [`NO_ROUTE_MTU`]: as long as the port
        /// takes.
        mtu: u32,
    },
    /// It is for the machine itself.
    Local,
    /// It is for all stations of a connected network: give it to the host, never forward it
    /// (RFC 2644).
    Broadcast,
    /// It is for a group: give it to the host.
    Multicast,
    /// Drop it, say nothing.
    Blackhole,
    /// Drop it, answer "host unreachable" (IPv4) or "no route" (IPv6).
    Unreachable,
    /// Drop it, answer "administratively prohibited".
    Prohibit,
    /// Give it to the kernel, which forwards it by an interface that is no port.
    Elsewhere,
}

/// The routes of one prefix.
#[derive(Clone, Eq, Hash, PartialEq)]
pub(crate) struct Routes {
    /// What the best of them says: the common look-up ends here.
    active: Active,
    /// Its MTU.
    mtu: u32,
    /// Best first; never empty in the table.
    all: Vec<Route>,
}

#[derive(Clone, Eq, Hash, PartialEq)]
enum Active {
    Only(NextHop),
    Several(NextHops),
    Fixed(Decision),
    Nothing,
}

impl Routes {
    /// None yet.
    const fn new() -> Self {
        Self { active: Active::Nothing, mtu: NO_ROUTE_MTU, all: Vec::new() }
    }

    /// To be called after every change of `all`.
    fn choose(&mut self) {
        let Some(best) = self.all.first() else {
            return;
        };
        self.mtu = best.mtu;
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
            RouteKind::Elsewhere => Active::Fixed(Decision::Elsewhere),
            RouteKind::Throw => Active::Nothing,
        };
    }

    /// What to do with a packet of a flow; `None`: this table does not say.
    #[inline]
    pub(crate) fn decide(&self, destination: IpAddr, flow_hash: u64) -> Option<Decision> {
        let hop = match &self.active {
            Active::Only(hop) => hop,
            Active::Several(hops) => hops.select(flow_hash),
            Active::Fixed(decision) => return Some(*decision),
            Active::Nothing => return None,
        };
        Some(Decision::Forward {
            port: hop.port,
            next_hop: hop.gateway.unwrap_or(destination),
            mtu: self.mtu,
        })
    }

    /// Whether it says that packets are dropped: such an answer is final, whatever a rule
    /// suppresses.
    pub(crate) const fn refuses(&self) -> bool {
        matches!(
            self.active,
            Active::Fixed(Decision::Blackhole | Decision::Unreachable | Decision::Prohibit)
        )
    }

    /// Whether it leaves the decision to the next table.
    pub(crate) const fn throws(&self) -> bool {
        matches!(self.active, Active::Nothing)
    }

    /// The next hops among which a flow's hash chooses; empty where there is no choice.
    pub(crate) fn choices(&self) -> &[NextHop] {
        match &self.active {
            Active::Several(hops) => hops.as_slice(),
            _ => &[],
        }
    }
}

/// The forwarding table.
#[derive(Clone, Default)]
pub struct Fib {
    prefixes: PrefixMap<Routes>,
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
        let mut routes = self.prefixes.get(prefix).cloned().unwrap_or(Routes::new());
        let replaced = match routes.all.binary_search_by_key(&route.precedence(), Route::precedence)
        {
            Ok(at) => Some(core::mem::replace(&mut routes.all[at], route)),
            Err(at) => {
                routes.all.insert(at, route);
                self.routes += 1;
                None
            }
        };
        self.put(prefix, routes);
        replaced
    }

    /// Removes the route with this prefix and precedence and gives it back; the next best becomes
    /// active.
    pub fn remove(&mut self, prefix: Prefix, precedence: Precedence) -> Option<Route> {
        let known = self.prefixes.get(prefix)?;
        let at = known.all.binary_search_by_key(&precedence, Route::precedence).ok()?;
        let mut routes = known.clone();
        let removed = routes.all.remove(at);
        self.routes -= 1;
        self.put(prefix, routes);
        Some(removed)
    }

    /// Makes `route` the only one of a prefix; `None`: there is none any more.
    pub fn set(&mut self, prefix: Prefix, route: Option<Route>) {
        self.routes -= self.prefixes.get(prefix).map_or(0, |routes| routes.all.len());
        self.routes += usize::from(route.is_some());
        let all = route.into_iter().collect();
        self.put(prefix, Routes { all, ..Routes::new() });
    }

    fn put(&mut self, prefix: Prefix, mut routes: Routes) {
        if routes.all.is_empty() {
            self.prefixes.remove(prefix);
            return;
        }
        routes.choose();
        self.prefixes.insert(prefix, routes);
    }

    /// Puts a whole new set of routes in place of the old one, which is given back so that it can
    /// be dropped where time does not matter.
    #[must_use = "dropping a large table takes time: do it off the packet path"]
    pub fn replace(&mut self, routes: impl IntoIterator<Item = (Prefix, Route)>) -> Self {
        core::mem::replace(self, routes.into_iter().collect())
    }

    /// Keeps only the routes for which `keep` says so. O(n).
    pub fn retain(&mut self, mut keep: impl FnMut(Prefix, &Route) -> bool) {
        let mut changed = Vec::new();
        for (prefix, routes) in self.prefixes.iter() {
            let mut left = routes.clone();
            left.all.retain(|route| keep(prefix, route));
            if left.all.len() < routes.all.len() {
                self.routes -= routes.all.len() - left.all.len();
                changed.push((prefix, left));
            }
        }
        for (prefix, routes) in changed {
            self.put(prefix, routes);
        }
    }

    /// What to do with a packet to `destination`; `None`: no route of this table leads there.
    /// `flow_hash` chooses among several next hops. No allocation.
    #[inline(always)] // or the decision is written to memory, and the address twice
    #[must_use]
    pub fn lookup(&self, destination: IpAddr, flow_hash: u64) -> Option<Decision> {
        self.prefixes.longest(destination)?.decide(destination, flow_hash)
    }

    /// The routes that a look-up of `destination` ends at, and the length of their prefix.
    pub(crate) fn longest(&self, destination: IpAddr) -> Option<(u8, &Routes)> {
        self.prefixes
            .longest_with_prefix(destination)
            .map(|(prefix, routes)| (prefix.len(), routes))
    }

    /// Reads what the look-ups of a burst of destinations will read, side by side: worth its time
    /// where the table is larger than the cache.
    pub fn read_ahead(&self, destinations: &[IpAddr]) {
        self.prefixes.read_ahead(destinations);
    }

    /// The next hops among which a look-up of `destination` chooses by hash; empty where there is
    /// no choice.
    #[must_use]
    pub fn choices(&self, destination: IpAddr) -> &[NextHop] {
        self.prefixes.longest(destination).map_or(&[], Routes::choices)
    }

    /// The prefix and route that a look-up of `destination` ends at, for people who ask why.
    #[must_use]
    pub fn explain(&self, destination: IpAddr) -> Option<(Prefix, &Route)> {
        let (prefix, routes) = self.prefixes.longest_with_prefix(destination)?;
        Some((prefix, routes.all.first()?))
    }

    /// Every route, by family and prefix, best first within a prefix.
    pub fn iter(&self) -> impl Iterator<Item = (Prefix, &Route)> {
        self.prefixes
            .iter()
            .flat_map(|(prefix, routes)| routes.all.iter().map(move |route| (prefix, route)))
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

    /// Bytes of memory that it has, but for the lists of routes, which are shared by all prefixes
    /// that agree.
    #[must_use]
    pub fn memory(&self) -> usize {
        self.prefixes.memory()
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
