//! `[cluster]` and `[balancer]`: the roles of a router in a cluster.

use std::net::IpAddr;

use evenkeel_core::{BitRate, Bytes, Nanos};

use crate::discipline::by_class;
use crate::model::{Io, PortConfig};
use crate::parse::Unique;
use crate::tables::cluster::MAX_CLASSES;
use evenkeel_settings::read::{Fields, Item, Reader, Value, suggest};

/// `[cluster]`: what a forwarder is told. What each value means and its range: the reference.
#[derive(Clone, Eq, PartialEq)]
pub struct ClusterSection {
    /// This forwarder.
    pub node: u16,
    /// All forwarders, ascending.
    pub members: Vec<u16>,
    /// The port of the exchange frames: an index into the ports.
    pub port: u16,
    /// Their VLAN; `None`: untagged.
    pub vlan: Option<u16>,
    /// Key of their authentication.
    pub key: Option<[u8; 16]>,
    /// How much is decided with one exchange.
    pub variant: ClusterVariant,
    /// What a weight is of.
    pub rule: ClusterRule,
    /// Weights by class.
    pub weights: Vec<u16>,
    /// Forwarders propose, not links.
    pub forwarders_propose: bool,
    /// A second pass of the matching.
    pub second_pass: bool,
    /// Bytes per round; 0: one packet.
    pub round_bytes: u32,
    /// What to do about a frame that did not come.
    pub missing: ClusterMissing,
    /// Bound on the time of a broadcast.
    pub t_br: Nanos,
    /// The master waits for twice that.
    pub long_wait: bool,
    /// Go on when all were heard.
    pub early_close: bool,
    /// Shortest cycle.
    pub min_cycle: Nanos,
    /// Rate of each link.
    pub rate: BitRate,
    /// Bytes on the wire beyond the IP length.
    pub overhead: u16,
    /// Shortest time of a packet.
    pub per_packet: Nanos,
    /// Time of a round's decision.
    pub decision: Nanos,
    /// Time between rounds.
    pub guard: Nanos,
    /// What a class is owed at most.
    pub max_lag: Bytes,
    /// Cycles between checksums.
    pub checksum_every: u16,
    /// Cycles until a silent member counts as empty.
    pub lost_after: u16,
    /// Longest payload of an exchange frame.
    pub mtu: u16,
    /// Seed of the ties.
    pub seed: u64,
    /// Packets that a queue holds.
    pub limit: u32,
    /// The outgoing links.
    pub links: Vec<ClusterLink>,
}

impl std::fmt::Debug for ClusterSection {
    /// Without the key.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { node, members, port, vlan, variant, rule, weights, links, .. } = self;
        write!(
            f,
            "ClusterSection {{ node {node} of {members:?}, port {port}, vlan {vlan:?}, {variant:?}, {rule:?}, weights {weights:?}, {links:?}, .. }}"
        )
    }
}

/// `cluster.variant` with its `l` and `p`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ClusterVariant {
    /// S-DS.
    Single,
    /// M-DS.
    Multiple {
        /// Packets announced.
        l: u16,
        /// Extra rounds.
        p: u16,
    },
    /// L-DS.
    Lazy {
        /// Length of a burst in packets of 64 bytes.
        l: u16,
    },
    /// P-DS.
    Pipelined {
        /// Packets announced.
        l: u16,
        /// Extra rounds.
        p: u16,
    },
}

/// `cluster.rule`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ClusterRule {
    /// A: per queue.
    PerQueue,
    /// B: per class.
    PerClass,
    /// C: divided.
    Divided,
}

/// `cluster.missing`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ClusterMissing {
    /// Use what was last heard.
    Stale,
    /// Send nothing if it matters.
    Abstain,
    /// Use the next record.
    Next,
}

/// A `[[cluster.link]]`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ClusterLink {
    /// Its name.
    pub name: String,
    /// The port that leads to it: an index into the ports.
    pub port: u16,
    /// The routers behind it; empty: all that no other link of the port names.
    pub next_hops: Vec<IpAddr>,
}

/// `[balancer]`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct BalancerSection {
    /// The port of the forwarders: an index into the ports.
    pub port: u16,
    /// Seed of hash and table.
    pub seed: u64,
    /// Flows that are remembered.
    pub flows: u32,
    /// How long at least.
    pub idle: Nanos,
    /// The forwarders.
    pub forwarders: Vec<BalancerForwarder>,
}

/// A `[[balancer.forwarder]]`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct BalancerForwarder {
    /// Its id.
    pub id: u16,
    /// Its Ethernet address.
    pub mac: [u8; 6],
    /// Its part of new flows, 1 to 256.
    pub weight: u16,
    /// What it gets.
    pub state: ForwarderState,
}

/// What a forwarder gets from a balancer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ForwarderState {
    /// New flows and those it has.
    Active,
    /// Those it has.
    Draining,
    /// Nothing.
    Out,
}

impl ForwarderState {
    /// The word of files and commands.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Draining => "draining",
            Self::Out => "out",
        }
    }

    /// What a word stands for.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Active, Self::Draining, Self::Out].into_iter().find(|state| state.name() == name)
    }
}

fn port_of(reader: &mut Reader, fields: &Fields, ports: &[PortConfig]) -> Option<u16> {
    let name = fields.text("port")?;
    let at = ports.iter().position(|port| port.name == name);
    if at.is_none() {
        let names: Vec<_> = ports.iter().map(|port| port.name.as_str()).collect();
        let message = format!("no port {name:?}; {}", suggest(name, &names));
        reader.fail(&fields.span("port"), fields.path_of("port"), message);
    }
    at.and_then(|at| u16::try_from(at).ok())
}

fn small(fields: &Fields, key: &str) -> Option<u16> {
    u16::try_from(fields.integer(key)?).ok()
}

/// Reads `[cluster]`; `None` after an error that the reader has taken note of. `io` is the router's.
pub(crate) fn cluster_of(
    reader: &mut Reader,
    fields: &Fields,
    ports: &[PortConfig],
    classes: &[&str],
    io: Io,
) -> Option<ClusterSection> {
    let members = members_of(reader, fields)?;
    let node = small(fields, "node")?;
    if !members.contains(&node) {
        reader.fail(&fields.span("node"), fields.path_of("node"), format!("{node} is not among the members"));
    }
    if classes.len() > MAX_CLASSES {
        let message = format!("{} classes: a cluster has at most {MAX_CLASSES}", classes.len());
        reader.fail(&fields.at, fields.path.clone(), message);
    }
    let whole = |value: &Value| match value {
        Value::Integer(value) => u16::try_from(*value).ok(),
        _ => None,
    };
    let weights = by_class(reader, fields, "weight", classes, whole)?;
    let port = port_of(reader, fields, ports)?;
    if ports[usize::from(port)].io.unwrap_or(io) == Io::AfXdp {
        let message = "its port has io = \"af-xdp\", which leaves broadcasts to the kernel; valid: \"af-packet\" or \"auto\"";
        reader.fail(&fields.span("port"), fields.path_of("port"), message);
    }
    let key = match fields.text("key") {
        Some(text) => Some(key_of(text).or_else(|| {
            // What it is instead is not repeated: messages end up in logs.
            reader.fail(&fields.span("key"), fields.path_of("key"), "it must be 32 hexadecimal digits");
            None
        })?),
        None => None,
    };
    let (l, p) = (small(fields, "l")?, small(fields, "p")?);
    let variant = match fields.text("variant")? {
        "s-ds" => ClusterVariant::Single,
        "m-ds" => ClusterVariant::Multiple { l, p },
        "l-ds" => ClusterVariant::Lazy { l },
        _ => ClusterVariant::Pipelined { l, p },
    };
    let links = links_of(reader, fields, ports)?;
    Some(ClusterSection {
        node,
        members,
        port,
        vlan: small(fields, "vlan").filter(|vlan| *vlan > 0),
        key,
        variant,
        rule: match fields.text("rule")? {
            "a" => ClusterRule::PerQueue,
            "c" => ClusterRule::Divided,
            _ => ClusterRule::PerClass,
        },
        weights,
        forwarders_propose: fields.text("proposer")? == "forwarders",
        second_pass: fields.switch("second_pass")?,
        round_bytes: u32::try_from(fields.size("round_bytes")?.0).ok()?,
        missing: match fields.text("missing")? {
            "stale" => ClusterMissing::Stale,
            "next" => ClusterMissing::Next,
            _ => ClusterMissing::Abstain,
        },
        t_br: fields.time("t_br")?,
        long_wait: fields.switch("long_wait")?,
        early_close: fields.switch("early_close")?,
        min_cycle: fields.time("min_cycle")?,
        rate: fields.rate("rate")?,
        overhead: small(fields, "overhead")?,
        per_packet: fields.time("per_packet")?,
        decision: fields.time("decision")?,
        guard: fields.time("guard")?,
        max_lag: fields.size("max_lag")?,
        checksum_every: small(fields, "checksum_every")?,
        lost_after: small(fields, "lost_after")?,
        mtu: small(fields, "mtu")?,
        seed: fields.integer("seed")?,
        limit: u32::try_from(fields.integer("limit")?).ok()?,
        links,
    })
}

fn members_of(reader: &mut Reader, fields: &Fields) -> Option<Vec<u16>> {
    let id = |Item { value, .. }: &Item| match value {
        Value::Integer(id) => u16::try_from(*id).ok(),
        _ => None,
    };
    let members: Vec<u16> = fields.list("members").iter().filter_map(id).collect();
    let problem = if members.len() != members.len().clamp(1, 64) {
        format!("{} members; valid: 1 to 64", members.len())
    } else if let Some(pair) = members.windows(2).find(|pair| pair[0] >= pair[1]) {
        format!("{} is not above {}: ids must ascend", pair[1], pair[0])
    } else {
        return Some(members);
    };
    reader.fail(&fields.span("members"), fields.path_of("members"), problem);
    None
}

fn links_of(reader: &mut Reader, fields: &Fields, ports: &[PortConfig]) -> Option<Vec<ClusterLink>> {
    let mut names = Unique::new("cluster link");
    let mut links: Vec<ClusterLink> = Vec::new();
    for link in fields.tables("link") {
        names.check(reader, link, "name");
        let port = port_of(reader, link, ports)?;
        let mut next_hops = Vec::new();
        for item in link.list("next_hops") {
            let Value::Prefix(prefix) = &item.value else { continue };
            if !prefix.is_host() {
                let message = format!("{prefix} is a network: a next hop is one address");
                reader.fail(&item.at, link.path_of("next_hops"), message);
            }
            if links.iter().any(|other| other.port == port && other.next_hops.contains(&prefix.address())) {
                let message = format!("{} is behind another link already", prefix.address());
                reader.fail(&item.at, link.path_of("next_hops"), message);
            }
            next_hops.push(prefix.address());
        }
        if next_hops.is_empty() && links.iter().any(|other| other.port == port && other.next_hops.is_empty())
        {
            let message = "two links of one port without next hops: name those of one at least";
            reader.fail(&link.span("port"), link.path_of("port"), message);
        }
        links.push(ClusterLink { name: link.text("name")?.to_owned(), port, next_hops });
    }
    (!links.is_empty()).then_some(links)
}

/// Reads `[balancer]`; `None` after an error that the reader has taken note of.
pub(crate) fn balancer_of(
    reader: &mut Reader,
    fields: &Fields,
    ports: &[PortConfig],
) -> Option<BalancerSection> {
    let port = port_of(reader, fields, ports);
    let mut forwarders: Vec<BalancerForwarder> = Vec::new();
    for forwarder in fields.tables("forwarder") {
        let (Some(id), Some(text)) = (small(forwarder, "id"), forwarder.text("mac")) else { continue };
        let mac = mac_of(text);
        if mac.is_none() {
            let message = format!("{text:?} is no Ethernet address of a station: expected 02:00:00:00:00:01");
            reader.fail(&forwarder.span("mac"), forwarder.path_of("mac"), message);
        }
        if forwarders.iter().any(|other| other.id == id) {
            let message = format!("forwarder {id} is there twice");
            reader.fail(&forwarder.span("id"), forwarder.path_of("id"), message);
        }
        let state = ForwarderState::from_name(forwarder.text("state")?)?;
        forwarders.push(BalancerForwarder { id, mac: mac?, weight: small(forwarder, "weight")?, state });
    }
    if !forwarders.is_empty() && forwarders.iter().all(|one| one.state == ForwarderState::Out) {
        reader.fail(&fields.span("forwarder"), fields.path_of("forwarder"), "all forwarders are out");
    }
    Some(BalancerSection {
        port: port?,
        seed: fields.integer("seed")?,
        flows: u32::try_from(fields.integer("flows")?).ok()?,
        idle: fields.time("idle")?,
        forwarders,
    })
}

fn key_of(text: &str) -> Option<[u8; 16]> {
    let mut key = [0; 16];
    if text.len() != 32 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    for (at, byte) in key.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16).ok()?;
    }
    Some(key)
}

/// An address of a station, not of a group.
pub(crate) fn mac_of(text: &str) -> Option<[u8; 6]> {
    let mut mac = [0; 6];
    let mut parts = text.split([':', '-']);
    for byte in &mut mac {
        let part = parts.next().filter(|part| part.len() == 2)?;
        *byte = u8::from_str_radix(part, 16).ok()?;
    }
    (parts.next().is_none() && mac[0] & 1 == 0 && mac != [0; 6]).then_some(mac)
}
