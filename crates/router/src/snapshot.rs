//! Everything the router counts, as plain data: what `ctl show` prints and what samples are made
//! of.
//!
//! All counters run from the start of the router and never go back; rates and interval delays are
//! differences of two snapshots ([`between`](crate::window::between)). How each adds up and what it
//! is between two stands on its line. Times are nanoseconds of `CLOCK_MONOTONIC`, so stamps of
//! processes on one machine compare.

mod admission;
mod audit;
mod cluster;
mod link;
mod nodes;

use std::collections::BTreeMap;
use std::ops::Deref;

use evenkeel_core::counters;
use serde::{Deserialize, Serialize};

pub use crate::mirror::{MirrorFaults, RefusedNeighbours};
pub use admission::{AdmissionSnapshot, BusyFlow, FlowSnapshot, UserSnapshot};
pub use audit::{
    AuditClass, AuditSnapshot, CyclesSnapshot, CyclesViolationSnapshot, LagSnapshot,
    ViolationSnapshot,
};
pub use cluster::{
    BalancerSnapshot, ClusterAuditSnapshot, ClusterLinkSnapshot, ClusterQueueSnapshot,
    ClusterSnapshot, ClusterViolationSnapshot, ForwarderSnapshot,
};
pub use link::{ClassControl, ClassSnapshot, FollowSnapshot, FollowStep, LinkSnapshot};
pub use nodes::{BranchSnapshot, NodeSnapshot, TreeSnapshot};

/// Drops by the stable name of their reason; reasons never met are left out.
pub type Drops = BTreeMap<String, u64>;

counters! {
    /// All counters of a router at one instant between two bursts.
    #[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
    pub struct Snapshot {
        /// When it was taken: `CLOCK_MONOTONIC`, ns.
        most time_ns: u64, "ns";
        /// The router's name from its configuration.
        state router: String;
        /// How long the router has been running, ns.
        state uptime_ns: u64, "ns";
        /// The seed of its flow hash and flow tables: in its configuration it makes another start
        /// choose the same.
        #[serde(default)]
        state seed: u64;
        /// Lines of the log that could not be written: nobody read them, or the disk was full.
        #[serde(default)]
        state log_lost: u64, "lines";
        /// Routes in the forwarding table.
        state routes: u64, "routes";
        /// Neighbours known, in whatever state.
        state neighbours: u64, "neighbours";
        /// Requests for neighbours that the kernel refused; `None`: it refused none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        state refused_neighbours: Option<RefusedNeighbours>;
        /// Translated connections (NAT) whose host inside is known, at interfaces that are inline.
        #[serde(default)]
        state translations: u64, "connections";
        /// What went wrong while the kernel's tables were followed; `None`: nothing.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        state mirror_faults: Option<MirrorFaults>;
        /// Tables and rules.
        #[serde(default)]
        state routing: RoutingSnapshot;
        /// Frame buffers.
        part buffers: BufferSnapshot;
        /// Ports in the order of the configuration.
        each ports: Vec<PortSnapshot>;
        /// Outgoing links in the order of the ports: one per port.
        each links: Vec<LinkSnapshot>;
        /// Where the worker's cycles went; `None`: not measured.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        each cycles: Option<CycleSnapshot>;
        /// The services in the order of the configuration.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        each services: Vec<ServiceSnapshot>;
        /// FairDrop; `None`: not configured.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        each fairdrop: Option<FairDropSnapshot>;
        /// The cluster that this router is a forwarder of; `None`: it is none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        each cluster: Option<ClusterSnapshot>;
        /// What the router does as a balancer; `None`: it is none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        each balancer: Option<BalancerSnapshot>;
        /// What ports counted that the configuration has no more, so that sums over all ports and
        /// links never go back; `None`: none has been removed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        each removed: Option<RemovedSnapshot>;
        /// Of several workers each one's counters; the others are then their sums.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        state workers: Vec<Snapshot>;
    }
}

/// The kernel's policy routing as the router follows it.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct RoutingSnapshot {
    /// Whether rules are asked for each packet; else the table `main` says everything, with the
    /// routes of `local` in it.
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

counters! {
    /// The sums over the ports that were removed while the router ran, and over their links. They
    /// hold nothing.
    #[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
    pub struct RemovedSnapshot {
        /// How many.
        count ports: u64, "ports";
        /// Their counters; without names.
        part port: PortSnapshot;
        /// Those of their links, classes by name.
        part link: LinkSnapshot;
    }
}

counters! {
    /// Where the worker's cycles went. Idle polls are nobody's.
    ///
    /// `busy = other + sum over classes of (cycles + refused_cycles)`, up to the rounding of what
    /// bursts share.
    #[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
    pub struct CycleSnapshot {
        /// What cycles are read from, in words.
        state source: String;
        /// Cycles per second.
        state hertz: u64, "cycles/s";
        /// Cycles of all rounds that received or sent something.
        count busy: u64, "cycles";
        /// Of them, those that belong to no class.
        count other: u64, "cycles";
        /// By stage. Stages of single packets are measured on a sample.
        each stages: Vec<StageCycles>;
        /// By class of traffic, with their parts of fetching and sending.
        each classes: Vec<ClassCycles>;
    }
}

counters! {
    /// Cycles of one stage: `cycles / packets` is what a packet takes there.
    #[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
    pub struct StageCycles {
        /// `fetch`, `look-ahead`, `judge`, `route`, `service`, `schedule`, `transmit`.
        key stage: String;
        /// Packets measured.
        count packets: u64, "packets";
        /// Their cycles.
        count cycles: u64, "cycles";
    }
}

counters! {
    /// Cycles of one class of traffic.
    #[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
    pub struct ClassCycles {
        /// Name from the configuration.
        key name: String;
        /// Packets handed to a link.
        count packets: u64, "packets";
        /// Their cycles.
        count cycles: u64, "cycles";
        /// Packets dropped before any link.
        count refused_packets: u64, "packets";
        /// Their cycles.
        count refused_cycles: u64, "cycles";
    }
}

counters! {
    /// One service.
    #[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
    pub struct ServiceSnapshot {
        /// Name from the configuration.
        key name: String;
        /// `esp`, `acl`, `spin`.
        state kind: String;
        /// Packets that went through.
        count packets: u64, "packets";
        /// Packets that did not.
        count refused: u64, "packets";
        /// Rules that packets were compared with (`acl`).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        part rules_visited: Option<u64>, "rules";
        /// Last sequence number (`esp`).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        state sequence: Option<u64>;
    }
}

counters! {
    /// What FairDrop does.
    #[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
    pub struct FairDropSnapshot {
        /// Whether it drops.
        state on: bool;
        /// Its knobs as they are now: key, value as in the configuration.
        state settings: Vec<(String, String)>;
        /// Packets of flows that found no place in the table.
        count unplaced: u64, "packets";
        /// Flows that wait in the shadow system for cycles.
        gauge backlogged: u64, "flows";
        /// Its threshold for a flow of weight 1, cycles; `None` while nothing is refused.
        state threshold: Option<u64>, "cycles";
        /// The water level: millionths of the core that a flow of weight 1 may use.
        state level_ppm: u64, "ppm";
        /// Busy cycles for every cycle that the costs of the classes explain.
        state scale: f64;
        /// Whether its flows had their shares of the core.
        #[serde(default)]
        part cycles: CyclesSnapshot;
        /// Measurements that were absurd and were clamped.
        count absurd: u64, "measurements";
        /// What a packet is believed to cost, cycles: `forwarding`, then the services.
        state costs: Vec<(String, u64)>, "cycles";
        /// By class of traffic.
        each classes: Vec<FairDropClass>;
        /// Links with a rate.
        each links: Vec<FairDropLink>;
    }
}

counters! {
    /// FairDrop and one class of traffic.
    #[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
    pub struct FairDropClass {
        /// Name from the configuration.
        key name: String;
        /// Packets judged.
        count judged: u64, "packets";
        /// Refused because their flows had their share of cycles.
        count refused_cpu: u64, "packets";
        /// Refused because their flows had their share of a link's bits.
        count refused_bandwidth: u64, "packets";
    }
}

counters! {
    /// FairDrop and one link.
    #[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
    pub struct FairDropLink {
        /// The index of its port.
        key port: u16;
        /// Packets judged.
        count judged: u64, "packets";
        /// Packets refused.
        count refused: u64, "packets";
        /// Packets of flows that found no place in the table.
        count unplaced: u64, "packets";
        /// Flows that wait in the shadow system.
        gauge backlogged: u64, "flows";
        /// What waits there, bytes on the wire.
        gauge backlog_bytes: u64, "bytes";
    }
}

counters! {
    /// Frame buffers of the pool.
    #[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
    pub struct BufferSnapshot {
        /// How many there are.
        gauge total: u64, "buffers";
        /// How many are free.
        gauge free: u64, "buffers";
        /// How many the kernel has, of ports that share them with it.
        #[serde(default)]
        gauge lent: u64, "buffers";
        /// How many super-frames are held; each lies in buffers of its own, which `total` does not
        /// count.
        #[serde(default)]
        gauge super_frames: u64, "frames";
    }
}

counters! {
    /// What the pipeline counts at a port. A line more here is a counter more in `ctl show --json`
    /// and in the reference.
    #[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
    pub struct PortCounts {
        /// Frames received.
        count rx_packets: u64, "frames";
        /// Bytes of frames received (from the Ethernet header, without frame check sequence); of a
        /// super-frame those of its segments.
        count rx_bytes: u64, "bytes";
        /// What the frames received are on the wire: each, or each segment of a super-frame.
        #[serde(default)]
        count rx_segments: u64, "segments";
        /// Received frames left to the kernel: its own addresses, multicast, ARP, what is not IP.
        count to_host: u64, "frames";
        /// Of these, packets that the kernel was given back to forward: their route leaves by an
        /// interface that is no port.
        #[serde(default)]
        count elsewhere: u64, "packets";
        /// Of these, those that the kernel did not take.
        #[serde(default)]
        count elsewhere_lost: u64, "packets";
        /// Received frames of the cluster's exchange; a part of neither `to_host` nor `forwarded`.
        #[serde(default)]
        count exchange_received: u64, "frames";
        /// Frames of the cluster's exchange sent here, which no link knows of.
        #[serde(default)]
        count exchange_sent: u64, "frames";
        /// Frames that leave by this port and have waited in the link of another one (`also`).
        #[serde(default)]
        count from_others: u64, "frames";
        /// Frames that have waited in this port's link and leave by another one.
        #[serde(default)]
        count by_others: u64, "frames";
        /// Packets for this port's link, which is another worker's, handed on to that.
        #[serde(default)]
        count handed_on: u64, "packets";
        /// Packets for this port's link that other workers have handed on.
        #[serde(default)]
        count handed_in: u64, "packets";
        /// Of those handed on, packets for which there was no room.
        #[serde(default)]
        count handed_lost: u64, "packets";
        /// Received packets handed to an outgoing link.
        count forwarded: u64, "packets";
        /// Received packets that were cut into fragments (they count in `forwarded` too).
        count fragmented: u64, "packets";
        /// Packets made here because of packets received here (ICMP answers and fragments) and
        /// handed to an outgoing link.
        count originated: u64, "packets";
        /// Packets made here that wait for a neighbour to answer.
        #[serde(default)]
        gauge originated_waiting: u64, "packets";
        /// ICMP answers sent because of packets received here.
        count answered: u64, "answers";
        /// ICMP answers not sent because of the rate limit.
        count answers_limited: u64, "answers";
        /// Received packets that wait for a neighbour to answer.
        gauge waiting: u64, "packets";
    }
}

counters! {
    /// One port.
    ///
    /// Conservation, at every instant: `rx_packets = to_host + exchange_received + forwarded +
    /// waiting + sum(dropped)`, where `forwarded` counts packets handed to an outgoing link.
    /// Answers and fragments made here are `originated`, and per router: `sum(forwarded) -
    /// fragmented + sum(originated) = sum over links and classes of in_packets`.
    #[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
    pub struct PortSnapshot {
        /// Name in the configuration.
        key name: String;
        /// Interface name.
        state interface: String;
        /// Whether it can be used now.
        least up: bool;
        /// Its MAC address, `aa:bb:cc:dd:ee:ff`.
        state mac: String;
        /// Longest IP packet it sends, bytes.
        state mtu: u32, "bytes";
        /// What the pipeline counts at it.
        #[serde(flatten)]
        part counts: PortCounts;
        /// Frames sent.
        count tx_packets: u64, "frames";
        /// Bytes of frames sent; of a super-frame those of its segments.
        count tx_bytes: u64, "bytes";
        /// What the frames sent are on the wire: each, or each segment of a super-frame.
        #[serde(default)]
        count tx_segments: u64, "segments";
        /// Super-frames that were cut when they were received: the link they leave by is too slow
        /// for them (`split_above`), or there was no room to keep them whole.
        #[serde(default)]
        count cut: u64, "super-frames";
        /// Packets made here that did not get to an outgoing link, by reason.
        #[serde(default)]
        part originated_dropped: Drops, "packets";
        /// Received packets dropped before any link, by reason.
        part dropped: Drops, "packets";
        /// Frames that the kernel lost because the receive ring was full (they are not in
        /// `rx_packets`).
        count ring_loss: u64, "frames";
        /// Frames that wait in the transmit queue of the port, behind the link.
        gauge tx_waiting: u64, "frames";
        /// Frames that left a link but that the port could not send, by reason.
        part tx_dropped: Drops, "frames";
        /// How frames are exchanged with the kernel, in words.
        #[serde(default)]
        state io: String;
        /// What keeps the kernel from forwarding a second copy: `link` (a TCX program), `filter` (a
        /// classic filter), `xdp` (what we take never gets to the kernel), empty for none.
        #[serde(default)]
        state guard: String;
        /// Frames that it has kept from the kernel since it was attached.
        #[serde(default)]
        state guarded: u64, "frames";
    }
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

/// The counts are read like fields of the snapshot.
impl Deref for PortSnapshot {
    type Target = PortCounts;

    fn deref(&self) -> &PortCounts {
        &self.counts
    }
}
