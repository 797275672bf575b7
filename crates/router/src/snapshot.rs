//! Everything the router counts, as plain data: what `ctl show` prints and what samples are made of.
//!
//! All counters run from the start of the router and never go back; rates and interval delays are differences of two
//! snapshots. Times are nanoseconds of `CLOCK_MONOTONIC`, so stamps of processes on one machine compare.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

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
    /// Routes in the forwarding table.
    pub routes: u64,
    /// Neighbours known, in whatever state.
    pub neighbours: u64,
    /// Frame buffers.
    pub buffers: BufferSnapshot,
    /// Ports in the order of the configuration.
    pub ports: Vec<PortSnapshot>,
    /// Outgoing links in the order of the ports: one per port.
    pub links: Vec<LinkSnapshot>,
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
/// Conservation, at every instant: `rx_packets = to_host + forwarded + waiting + sum(dropped)`, where `forwarded`
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
