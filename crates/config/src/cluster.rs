//! `[cluster]` and `[balancer]`: the roles of a router in a cluster.

use std::fmt;
use std::net::IpAddr;

use evenkeel_cluster::config::{MAX_CLASSES, MAX_NODES};
use evenkeel_cluster::{ClusterConfig, ExchangeKey};
use evenkeel_core::settings::{Held, Kind, Value};
use evenkeel_core::{BitRate, Nanos, settings, words};

use crate::model::{Io, Mode, PortConfig};
use crate::parse::Unique;
use crate::tables::NAME;
use evenkeel_settings::read::{Fields, Reader, suggest};
use evenkeel_settings::settings_of;

settings! {
    /// This router is a forwarder of a cluster: what goes to the cluster's links waits in a queue
    /// for each link and class, and is sent when the cycle grants it. All of it but `node`, `port`,
    /// `limit` and `link.port` must be the same on all forwarders; frames of a node with other
    /// settings are refused. What changes by reload is in force when all members have it. See
    /// docs/cluster-live.md.
    pub struct ClusterSection: "[cluster]" {
        /// The id of this forwarder.
        fixed node: u16 = 0, is required;
        /// The port of the exchange frames. `io = "auto"` means `"af-packet"` there; `"af-xdp"`
        /// needs `key` or `vlan = 0`.
        fixed port_name as port: String = String::new(), written NAME, is required;
        /// Whether the worker precedes ordinary threads of the machine (SCHED_RR), so that it
        /// answers in time when processors are wanted elsewhere. Needs CAP_SYS_NICE or
        /// `LimitRTPRIO`; not with `mode = "busy"`, which the kernel would stop for 50 ms of each
        /// second.
        fixed realtime: bool = true;
        /// What a queue holds; more is dropped as `queue_full`.
        reload limit: u32 = 1_000, in 1..=1_000_000, counting "packets";
        /// The outgoing links, in the same order on all forwarders.
        fixed links as link: Vec<ClusterLink> = Vec::new(), in 1..=MAX_NODES, is required;
    }
    parts {
        /// What all members must agree upon.
        config: ClusterConfig,
    }
    plain {
        /// The port's index.
        port: u16 = 0;
    }
}

settings! {
    /// An outgoing link of the cluster: what is sent by `port` to one of `next_hops`.
    pub struct ClusterLink: "[[cluster.link]]" {
        /// Its name.
        fixed name: String = String::new(), written NAME, is required;
        /// The port of this forwarder that leads to it; several links may share one.
        fixed port_name as port: String = String::new(), written NAME, is required;
        /// Its rate. Links of one cluster may differ; announce enough (`l`) for the fastest.
        fixed rate: Option<BitRate> = None, in 1_000..=1_000_000_000_000_u64,
            absent "`rate` of the cluster";
        /// The addresses of the routers behind it.
        fixed next_hops: Vec<IpAddr> = Vec::new(), absent "all that no other link of the port \
                                                           names";
    }
    plain {
        /// The port's index.
        port: u16 = 0;
    }
}

settings! {
    /// This router is a balancer: every flow that comes to its Ethernet address goes on to one
    /// forwarder, by nothing but another destination address of the frame. Packets for the machine
    /// itself stay. See docs/cluster-live.md.
    pub struct BalancerSection: "[balancer]" {
        /// The port that the forwarders are behind. `io = "auto"` means `"af-packet"` there;
        /// `"af-xdp"` needs `key` or `vlan = 0`.
        fixed port_name as port: String = String::new(), written NAME, is required;
        /// Seed of the flow hash and of the table; the same on all balancers of a router.
        fixed seed: u64 = 1;
        /// Flows that each worker remembers, 16 bytes each; rounded up to a power of two.
        fixed flows: u32 = 65_536, in 4..=1 << 24, counting "flows";
        /// Whether the worker precedes ordinary threads of the machine (SCHED_RR), so that it
        /// answers in time when processors are wanted elsewhere. Needs CAP_SYS_NICE or
        /// `LimitRTPRIO`; not with `mode = "busy"`, which the kernel would stop for 50 ms of each
        /// second.
        fixed realtime: bool = true;
        /// A flow that was silent for so long may be forgotten.
        fixed idle: Nanos = Nanos::from_secs(60), in 1_000_000..=86_400_000_000_000_u64;
        /// The VLAN of the forwarders' exchange frames, by which the balancer knows who lives: as
        /// `cluster.vlan` there; 0: untagged.
        fixed vlan: u16 = 3_001, in 0..=4_094;
        /// The key of those frames: as `cluster.key` there.
        fixed key: Option<ExchangeKey> = None, absent "not authenticated";
        /// A forwarder whose exchange frames have been silent for so long gets nothing, as long as
        /// others are heard: forwarders say something each 10 ms.
        reload silence: Nanos = Nanos::from_millis(50), in 20_000_000..=60_000_000_000_u64;
        /// The forwarders; the same on all balancers of a router.
        reload forwarders as forwarder: Vec<BalancerForwarder> = Vec::new(), in 1..=MAX_NODES,
            is required;
    }
    plain {
        /// The port's index.
        port: u16 = 0;
    }
}

settings! {
    /// A forwarder.
    #[derive(Copy)]
    pub struct BalancerForwarder: "[[balancer.forwarder]]" {
        /// Its id, as `cluster.node` there.
        reload id: u16 = 0, is required;
        /// Its Ethernet address.
        reload mac: StationAddress = StationAddress([0; 6]), is required;
        /// Its part of the new flows in relation to others.
        reload weight: u16 = 256, in 1..=256;
        /// What it gets: `evenkeel ctl balancer ID STATE`.
        live state: ForwarderState = ForwarderState::Active;
    }
}

words! {
    /// What a forwarder gets from a balancer.
    pub enum ForwarderState {
        /// New flows and those it has.
        #[default]
        Active = "active",
        /// Those it has.
        Draining = "draining",
        /// Nothing: its flows go to others.
        Out = "out",
    }
}

/// An Ethernet address of a station, not of a group.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct StationAddress(pub [u8; 6]);

impl fmt::Display for StationAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, last] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{last:02x}")
    }
}

impl Held for StationAddress {
    const KIND: Kind =
        Kind::Form("the Ethernet address of a station such as \"02:00:00:00:00:01\"", |text| {
            Self::from_text(text).is_some()
        });

    fn to_value(&self) -> Value {
        Value::Text(self.to_string())
    }

    fn from_value(value: &Value) -> Option<Self> {
        match value {
            Value::Text(text) => Self::from_text(text),
            _ => None,
        }
    }
}

impl StationAddress {
    fn from_text(text: &str) -> Option<Self> {
        let mut mac = [0; 6];
        let mut parts = text.split([':', '-']);
        for byte in &mut mac {
            let part = parts.next().filter(|part| part.len() == 2)?;
            *byte = u8::from_str_radix(part, 16).ok()?;
        }
        let is_station = parts.next().is_none() && mac[0] & 1 == 0 && mac != [0; 6];
        is_station.then_some(Self(mac))
    }
}

/// The index of the port that `port` of a table names.
fn port_of(reader: &mut Reader, fields: &Fields, ports: &[PortConfig]) -> Option<u16> {
    let name = fields.text("port")?;
    let at = ports.iter().position(|port| port.name == name);
    if at.is_none() {
        let names: Vec<_> = ports.iter().map(|port| port.name.as_str()).collect();
        let message = format!("no port {name:?}; {}", suggest(name, &names));
        reader.fail_at(fields, "port", message);
    }
    at.and_then(|at| u16::try_from(at).ok())
}

/// A thread that polls all the time cannot precede the others.
pub(crate) fn check_realtime(reader: &mut Reader, fields: &Fields, realtime: bool, mode: Mode) {
    if realtime && mode == Mode::Busy {
        let message = "mode = \"busy\" excludes realtime = true, the default of a cluster's roles: \
                       the kernel stops real-time threads that never sleep for 50 ms of each \
                       second; set realtime = false, or another mode";
        reader.fail_at(fields, "realtime", message);
    }
}

/// What AF_XDP hears of a frame does not tell its VLAN where the interface has taken the tag away:
/// a cluster in another one could be heard.
fn check_hears(
    reader: &mut Reader,
    fields: &Fields,
    (port, io): (&PortConfig, Io),
    (vlan, key): (u16, Option<ExchangeKey>),
) {
    if port.io.unwrap_or(io) == Io::AfXdp && vlan > 0 && key.is_none() {
        let message = "its port has io = \"af-xdp\", which does not always tell the VLAN of a \
                       frame; valid: with key = \"…\", or vlan = 0, or io = \"af-packet\"";
        reader.fail_at(fields, "port", message);
    }
}

/// Reads `[cluster]`; `None` after an error that the reader has taken note of.
pub(crate) fn cluster_of(
    reader: &mut Reader,
    fields: &Fields,
    ports: &[PortConfig],
    classes: &[&str],
    io: Io,
) -> Option<ClusterSection> {
    let mut section: ClusterSection = settings_of(reader, fields, classes)?;
    check_members(reader, fields, &section);
    if classes.len() > MAX_CLASSES {
        let message = format!("{} classes: a cluster has at most {MAX_CLASSES}", classes.len());
        reader.fail(&fields.at, fields.path.clone(), message);
    }
    section.port = port_of(reader, fields, ports)?;
    let framing = (section.config.framing.vlan, section.config.framing.key);
    check_hears(reader, fields, (&ports[usize::from(section.port)], io), framing);
    check_links(reader, fields, ports, &mut section.links)?;
    section.config = section.config.reduced();
    section.config.links = section.links.len();
    if section.links.iter().any(|link| link.rate.is_some()) {
        let rate = |link: &ClusterLink| link.rate.unwrap_or(section.config.timing.rate);
        section.config.rates = section.links.iter().map(rate).collect();
    }
    check_forwarder_rate(reader, fields, &section.config);
    section.config.classes = u16::try_from(classes.len()).ok()?;
    Some(section)
}

fn check_members(reader: &mut Reader, fields: &Fields, section: &ClusterSection) {
    let members = &section.config.members;
    if members.len() != members.len().clamp(1, MAX_NODES) {
        let message = format!("{} members; valid: 1 to {MAX_NODES}", members.len());
        reader.fail_at(fields, "members", message);
    } else if let Some(pair) = members.windows(2).find(|pair| pair[0] >= pair[1]) {
        let message = format!("{} is not above {}: ids must ascend", pair[1].0, pair[0].0);
        reader.fail_at(fields, "members", message);
    } else if members.iter().all(|member| member.0 != section.node) {
        let message = format!("{} is not among the members", section.node);
        reader.fail_at(fields, "node", message);
    }
}

/// A forwarder must be able to serve each link.
fn check_forwarder_rate(reader: &mut Reader, fields: &Fields, config: &ClusterConfig) {
    let fastest = config.link_rates().max().unwrap_or_default();
    if let Some(rate) = config.forwarder_rate.filter(|rate| *rate < fastest) {
        let message = format!(
            "{rate} is less than the {fastest} of the fastest link, which no forwarder could \
             serve; valid: {fastest} to 1 Tbit/s"
        );
        reader.fail_at(fields, "forwarder_rate", message);
    }
}

/// Finds the ports of the links, and what two of them have both.
fn check_links(
    reader: &mut Reader,
    cluster: &Fields,
    ports: &[PortConfig],
    links: &mut [ClusterLink],
) -> Option<()> {
    let mut names = Unique::new("cluster link");
    for (at, fields) in cluster.tables("link").enumerate() {
        names.check(reader, fields, "name");
        let (before, from) = links.split_at_mut(at);
        let link = from.first_mut()?;
        link.port = port_of(reader, fields, ports)?;
        let mut others = before.iter().filter(|other| other.port == link.port);
        let hop = |hop: &&IpAddr| others.clone().any(|other| other.next_hops.contains(hop));
        for twice in link.next_hops.iter().filter(hop) {
            reader.fail_at(fields, "next_hops", format!("{twice} is behind another link already"));
        }
        if link.next_hops.is_empty() && others.any(|other| other.next_hops.is_empty()) {
            let message = "two links of one port without next hops: name those of one at least";
            reader.fail_at(fields, "port", message);
        }
    }
    Some(())
}

/// Reads `[balancer]`; `None` after an error that the reader has taken note of.
pub(crate) fn balancer_of(
    reader: &mut Reader,
    fields: &Fields,
    ports: &[PortConfig],
    io: Io,
) -> Option<BalancerSection> {
    let port = port_of(reader, fields, ports);
    let mut section: BalancerSection = settings_of(reader, fields, &[])?;
    for (at, forwarder) in fields.tables("forwarder").enumerate() {
        let id = section.forwarders.get(at)?.id;
        if section.forwarders[..at].iter().any(|other| other.id == id) {
            reader.fail_at(forwarder, "id", format!("forwarder {id} is there twice"));
        }
    }
    if section.forwarders.iter().all(|one| one.state == ForwarderState::Out) {
        reader.fail_at(fields, "forwarder", "all forwarders are out");
    }
    section.port = port?;
    let framing = (section.vlan, section.key);
    check_hears(reader, fields, (&ports[usize::from(section.port)], io), framing);
    Some(section)
}
