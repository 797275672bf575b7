//! Everything the router counts, as plain data: what `ctl show` prints and what samples are made of.
//!
//! All counters run from the start of the router and never go back; rates and interval delays are differences of two
//! snapshots. Times are nanoseconds of `CLOCK_MONOTONIC`, so stamps of processes on one machine compare.

mod cluster;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

mod admission;

pub use crate::mirror::RefusedNeighbours;
pub use admission::{AdmissionSnapshot, FlowSnapshot, UserSnapshot};
pub use cluster::{
    BalancerSnapshot, ClusterLinkSnapshot, ClusterQueueSnapshot, ClusterSnapshot, ForwarderSnapshot,
};

/// Drops by the stable name of their reason; reasons never met are left out.
pub type Drops = BTreeMap<String, u64>;

/// All counters of a router at one instant between two bursts.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Snapshot {
    /// When it was taken: `CLOCK_MONOTONIC`, ns.
    pub time_ns: u64,
    /// The router's name from its configuration.
    pub router: String,
    /// How long the router has been running, ns.
    pub uptime_ns: u64,
    /// The seed of its flow hash and flow tables: in its configuration it makes another start choose the same.
    #[serde(default)]
    pub seed: u64,
    /// Routes in the forwarding table.
    pub routes: u64,
    /// Neighbours known, in whatever state.
    pub neighbours: u64,
    /// Requests for neighbours that the kernel refused; `None`: it refused none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused_neighbours: Option<RefusedNeighbours>,
    /// Tables and rules.
    #[serde(default)]
    pub routing: RoutingSnapshot,
    /// Frame buffers.
    pub buffers: BufferSnapshot,
    /// Ports in the order of the configuration.
    pub ports: Vec<PortSnapshot>,
    /// Outgoing links in the order of the ports: one per port.
    pub links: Vec<LinkSnapshot>,
    /// Where the worker's cycles went; `None`: not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cycles: Option<CycleSnapshot>,
    /// The services in the order of the configuration.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub services: Vec<ServiceSnapshot>,
    /// FairDrop; `None`: not configured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fairdrop: Option<FairDropSnapshot>,
    /// The cluster that this router is a forwarder of; `None`: it is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<ClusterSnapshot>,
    /// What the router does as a balancer; `None`: it is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub balancer: Option<BalancerSnapshot>,
    /// What ports counted that the configuration has no more, so that sums over all ports and links never go back; `None`: none has been removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub removed: Option<RemovedSnapshot>,
    /// Of several workers each one's counters; the others are then their sums.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub workers: Vec<Snapshot>,
}

/// The kernel's policy routing as the router follows it.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct RoutingSnapshot {
    /// Whether rules are asked for each packet; else the table `main` says everything, with the routes of `local` in it.
    pub by_rules: bool,
    /// The rules of the kernel in their order, in the words of `ip rule`.
    pub rules: Vec<String>,
    /// The tables that have routes, and `main`, by number.
    pub tables: Vec<TableSnapshot>,
    /// What of the kernel's routing is not followed, of all that was met since the start.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_followed: Vec<String>,
}

/// A routing table.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct TableSnapshot {
    /// Its number.
    pub id: u32,
    /// Its name in `/etc/iproute2/rt_tables`, or the number.
    pub name: String,
    /// Prefixes that have a route.
    pub routes: u64,
}

/// The sums over the ports that were removed while the router ran, and over their links. They hold nothing.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct RemovedSnapshot {
    /// How many.
    pub ports: u64,
    /// Their counters; without names.
    pub port: PortSnapshot,
    /// Those of their links, classes by name.
    pub link: LinkSnapshot,
}

/// Where the worker's cycles went. Idle polls are nobody's.
///
/// `busy = other + sum over classes of (cycles + refused_cycles)`, up to the rounding of what bursts share.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct CycleSnapshot {
    /// What cycles are read from, in words.
    pub source: String,
    /// Cycles per second.
    pub hertz: u64,
    /// Cycles of all rounds that received or sent something.
    pub busy: u64,
    /// Of them, those that belong to no class.
    pub other: u64,
    /// By stage. Stages of single packets are measured on a sample.
    pub stages: Vec<StageCycles>,
    /// By class of traffic, with their parts of fetching and sending.
    pub classes: Vec<ClassCycles>,
}

/// Cycles of one stage: `cycles / packets` is what a packet takes there.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct StageCycles {
    /// `fetch`, `look-ahead`, `judge`, `route`, `service`, `schedule`, `transmit`.
    pub stage: String,
    /// Packets measured.
    pub packets: u64,
    /// Their cycles.
    pub cycles: u64,
}

/// Cycles of one class of traffic.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct ClassCycles {
    /// Name from the configuration.
    pub name: String,
    /// Packets handed to a link.
    pub packets: u64,
    /// Their cycles.
    pub cycles: u64,
    /// Packets dropped before any link.
    pub refused_packets: u64,
    /// Their cycles.
    pub refused_cycles: u64,
}

/// One service.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct ServiceSnapshot {
    /// Name from the configuration.
    pub name: String,
    /// `esp`, `acl`, `spin`.
    pub kind: String,
    /// Packets that went through.
    pub packets: u64,
    /// Packets that did not.
    pub refused: u64,
    /// Rules that packets were compared with (`acl`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rules_visited: Option<u64>,
    /// Last sequence number (`esp`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sequence: Option<u64>,
}

/// What FairDrop does.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct FairDropSnapshot {
    /// Whether it drops.
    pub on: bool,
    /// Its knobs as they are now: key, value as in the configuration.
    pub settings: Vec<(String, String)>,
    /// Packets of flows that found no place in the table.
    pub unplaced: u64,
    /// Flows that wait in the shadow system for cycles.
    pub backlogged: u64,
    /// Its threshold for a flow of weight 1, cycles; `None` while nothing is refused.
    pub threshold: Option<u64>,
    /// The water level: millionths of the core that a flow of weight 1 may use.
    pub level_ppm: u64,
    /// Busy cycles for every cycle that the costs of the classes explain.
    pub scale: f64,
    /// Measurements that were absurd and were clamped.
    pub absurd: u64,
    /// What a packet is believed to cost, cycles: `forwarding`, then the services.
    pub costs: Vec<(String, u64)>,
    /// By class of traffic.
    pub classes: Vec<FairDropClass>,
    /// Links with a rate.
    pub links: Vec<FairDropLink>,
}

/// FairDrop and one class of traffic.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct FairDropClass {
    /// Name from the configuration.
    pub name: String,
    /// Packets judged.
    pub judged: u64,
    /// Refused because their flows had their share of cycles.
    pub refused_cpu: u64,
    /// Refused because their flows had their share of a link's bits.
    pub refused_bandwidth: u64,
}

/// FairDrop and one link.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct FairDropLink {
    /// The index of its port.
    pub port: u16,
    /// Packets judged.
    pub judged: u64,
    /// Packets refused.
    pub refused: u64,
    /// Packets of flows that found no place in the table.
    pub unplaced: u64,
    /// Flows that wait in the shadow system.
    pub backlogged: u64,
    /// What waits there, bytes on the wire.
    pub backlog_bytes: u64,
}

/// Frame buffers of the pool.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct BufferSnapshot {
    /// How many there are.
    pub total: u64,
    /// How many are free.
    pub free: u64,
    /// How many the kernel has, of ports that share them with it.
    #[serde(default)]
    pub lent: u64,
}

/// One port.
///
/// Conservation, at every instant: `rx_packets = to_host + exchange_received + forwarded + waiting + sum(dropped)`, where `forwarded`
/// counts packets handed to an outgoing link. Answers and fragments made here are `originated`, and per router:
/// `sum(forwarded) - fragmented + sum(originated) = sum over links and classes of in_packets`.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct PortSnapshot {
    /// Name in the configuration.
    pub name: String,
    /// Interface name.
    pub interface: String,
    /// Whether it can be used now.
    pub up: bool,
    /// Its MAC address, `aa:bb:cc:dd:ee:ff`.
    pub mac: String,
    /// Longest IP packet it sends, bytes.
    pub mtu: u32,
    /// Frames received.
    pub rx_packets: u64,
    /// Bytes of frames received (from the Ethernet header, without frame check sequence).
    pub rx_bytes: u64,
    /// Frames sent.
    pub tx_packets: u64,
    /// Bytes of frames sent.
    pub tx_bytes: u64,
    /// Received frames left to the kernel: its own addresses, multicast, ARP, what is not IP.
    pub to_host: u64,
    /// Received frames of the cluster's exchange; a part of neither `to_host` nor `forwarded`.
    #[serde(default)]
    pub exchange_received: u64,
    /// Frames of the cluster's exchange sent here, which no link knows of.
    #[serde(default)]
    pub exchange_sent: u64,
    /// Received packets handed to an outgoing link.
    pub forwarded: u64,
    /// Received packets that were cut into fragments (they count in `forwarded` too).
    pub fragmented: u64,
    /// Packets made here because of packets received here (ICMP answers and fragments) and handed to an outgoing link.
    pub originated: u64,
    /// Packets made here that wait for a neighbour to answer.
    #[serde(default)]
    pub originated_waiting: u64,
    /// Packets made here that did not get to an outgoing link, by reason.
    #[serde(default)]
    pub originated_dropped: Drops,
    /// ICMP answers sent because of packets received here.
    pub answered: u64,
    /// ICMP answers not sent because of the rate limit.
    pub answers_limited: u64,
    /// Received packets that wait for a neighbour to answer.
    pub waiting: u64,
    /// Received packets dropped before any link, by reason.
    pub dropped: Drops,
    /// Frames that the kernel lost because the receive ring was full (they are not in `rx_packets`).
    pub ring_loss: u64,
    /// Frames that wait in the transmit queue of the port, behind the link.
    pub tx_waiting: u64,
    /// Frames that left a link but that the port could not send, by reason.
    pub tx_dropped: Drops,
    /// How frames are exchanged with the kernel, in words.
    #[serde(default)]
    pub io: String,
    /// What keeps the kernel from forwarding a second copy: `link` (a TCX program), `filter` (a classic filter), `xdp` (what we take never gets
    /// to the kernel), empty for none.
    #[serde(default)]
    pub guard: String,
    /// Frames that it has kept from the kernel since it was attached.
    #[serde(default)]
    pub guarded: u64,
}

/// One outgoing link.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct LinkSnapshot {
    /// The port it belongs to.
    pub port: String,
    /// The discipline's name as in configuration files.
    pub discipline: String,
    /// Rate of the paced wire, bit/s; `None` if unpaced.
    pub rate_bps: Option<u64>,
    /// Slots of the transmit ring.
    pub ring_slots: u32,
    /// Packets in the transmit ring.
    pub in_ring: u64,
    /// Packets queued in the discipline.
    pub queued: u64,
    /// Scheduler calls that found no, one and several queues busy.
    pub calls: [u64; 3],
    /// Who may enter; `None`: everybody.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub admission: Option<AdmissionSnapshot>,
    /// Classes in the order of the configuration.
    pub classes: Vec<ClassSnapshot>,
}

/// One class of one outgoing link: what QoStat reads.
///
/// Conservation: `in_packets = sent_packets + sum(dropped) + queued + in the ring`.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct ClassSnapshot {
    /// Name from the configuration.
    pub name: String,
    /// Packets offered to the link.
    pub in_packets: u64,
    /// Their IP bytes.
    pub in_bytes: u64,
    /// Packets taken out of the discipline.
    pub out_packets: u64,
    /// Their IP bytes.
    pub out_bytes: u64,
    /// Packets that left the wire.
    pub sent_packets: u64,
    /// Their IP bytes.
    pub sent_bytes: u64,
    /// Drops by reason.
    pub dropped: Drops,
    /// Packets queued now.
    pub queued_packets: u64,
    /// Their IP bytes.
    pub queued_bytes: u64,
    /// Sum of transit delays (arrival to dequeue) of the packets in `out_packets`, ns.
    pub delay_sum_ns: u64,
    /// Largest transit delay since the start, ns.
    pub delay_max_ns: u64,
    /// Transit delays: (lowest delay of the bucket in ns, packets), ascending, buckets without packets left out.
    pub delay_buckets: Vec<(u64, u64)>,
    /// What the link's control sees of it; `None` on links without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control: Option<ClassControl>,
}

/// What the dynamic control of a link sees of a class, and what it makes of it.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct ClassControl {
    /// Congestion index for delay: 0 is normal, 1 the degradation threshold, at most 4. Of its last traffic if it has none now.
    pub ci_delay: f64,
    /// Congestion index for loss.
    pub ci_loss: f64,
    /// X_DELAY that it has, without the dither, ns.
    pub x_delay_ns: u64,
    /// Its queue limit; `None` if limits are not controlled.
    pub limit: Option<u32>,
}

impl Snapshot {
    /// The link of `port`.
    #[must_use]
    pub fn link(&self, port: &str) -> Option<&LinkSnapshot> {
        self.links.iter().find(|link| link.port == port)
    }

    /// The port called `name`.
    #[must_use]
    pub fn port(&self, name: &str) -> Option<&PortSnapshot> {
        self.ports.iter().find(|port| port.name == name)
    }
}

impl LinkSnapshot {
    /// The class called `name`.
    #[must_use]
    pub fn class(&self, name: &str) -> Option<&ClassSnapshot> {
        self.classes.iter().find(|class| class.name == name)
    }
}
