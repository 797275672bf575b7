//! What a world hands over: the samples of one run, and what was run.
//!
//! These types are also the form on disk ([`crate::saved`]): a field that is renamed is a new
//! version of that format.

use std::ops::{Deref, DerefMut};

use evenkeel_core::counters;
use evenkeel_core::measure::ClassCounters;
use evenkeel_scenario::{FlowMetric, SubscriberMetric};
use serde::{Deserialize, Serialize};

/// One run of one scenario in one world: everything the report needs to know.
///
/// Times are seconds since the start of the run, after any time scaling.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Run {
    /// Short name that tells this run from others in the same report: `LCT-UC`, or `no X_DELAY` for
    /// a run with a mechanism switched off. Empty when the report holds one run.
    pub name: String,
    /// Which world made it: `lab`, `sim`. Printed only.
    pub world: String,
    /// Length of a sampling window, seconds.
    pub sample_s: f64,
    /// Left out at the head of each step when its numbers are formed, seconds.
    pub settle_s: f64,
    /// When the run ended, seconds.
    pub duration_s: f64,
    /// The steps in order of time, as they were really applied; the first at 0.
    pub steps: Vec<StepMark>,
    /// What sends to what through what.
    pub topology: Topology,
    /// Offered rates, weights, X, ring…: printed as a table, grouped.
    pub parameters: Vec<Parameter>,
    /// One row per link, class and window.
    pub samples: Vec<Sample>,
    /// One row per link and window.
    pub calls: Vec<CallsSample>,
    /// What each direction of each wire with a rate, delay, jitter, loss or reordering has done,
    /// from the start to the end.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub wires: Vec<WireTotals>,
    /// What the routers' audits found in the whole run, one row for each link, core or cluster.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub audits: Vec<AuditRow>,
    /// One row per flow, in order of their beginning; empty where they were not followed. In files
    /// of their own, not in the saved result.
    #[serde(skip)]
    pub flows: Vec<FlowRow>,
    /// One row per subscriber, link and step, where routers have trees of them. In files of their
    /// own, not in the saved result.
    #[serde(skip)]
    pub subscribers: Vec<SubscriberRow>,
    /// What TCP senders thought of their way, window by window, where that was asked for. In files
    /// of their own, not in the saved result.
    #[serde(skip)]
    pub connections: Vec<ConnectionRow>,
    /// Sentences the reader must know to judge the numbers: "the router, not the kernel, forwarded
    /// 1 002 311 packets".
    pub notes: Vec<String>,
    /// What makes the numbers doubtful: a source that fell behind its schedule, packets that nobody
    /// can account for. Pages show it above everything else.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// A step as it was applied.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct StepMark {
    /// Its name.
    pub name: String,
    /// When it was applied, seconds.
    pub at_s: f64,
    /// What it changed, for people: `x_delay class3 10 us`.
    pub changes: Vec<String>,
}

/// A line of the table of parameters.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Parameter {
    /// Heading under which it stands: `traffic`, `link sink`.
    pub group: String,
    /// What it is: `ring`, `offered a`.
    pub name: String,
    /// Its value with its unit.
    pub value: String,
}

/// Nodes and wires, for the drawing.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Topology {
    /// Hosts and routers.
    pub nodes: Vec<TopologyNode>,
    /// What joins them.
    pub wires: Vec<Wire>,
}

/// A host or a router.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct TopologyNode {
    /// Its name.
    pub name: String,
    /// Whether it is a router.
    pub router: bool,
    /// Lines under the name: `LCT-UC, queue 50`, `sends class1, 100 Mbit/s`.
    pub labels: Vec<String>,
}

/// A wire between two nodes.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Wire {
    /// The nodes' names.
    pub ends: [String; 2],
    /// Beside the wire: `100 Mbit/s, ring 128`.
    pub label: String,
}

/// What one direction of a wire has done to packets: `sent` = `arrived` + `held` + `lost` +
/// `overflowed`.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct WireTotals {
    /// The node at which the direction begins.
    pub from: String,
    /// The node at which it ends.
    pub to: String,
    /// Packets sent into it.
    pub sent: u64,
    /// Packets that came out of it.
    pub arrived: u64,
    /// Packets still on their way.
    pub held: u64,
    /// Packets lost at random.
    pub lost: u64,
    /// Packets that met a full queue.
    pub overflowed: u64,
    /// Packets that took no delay and so overtook others (among `arrived` and `held`).
    pub overtaking: u64,
}

/// What a router was told to deliver, held against what it delivered while it ran.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct AuditRow {
    /// The router.
    pub router: String,
    /// What was audited: a link by its port's name, `core`, `cluster`.
    pub of: String,
    /// How much was judged: seconds of a link, seconds of overload of a core, windows of a cluster.
    pub judged: f64,
    /// `s` or `windows`.
    pub unit: String,
    /// Promises broken.
    pub violations: u64,
    /// The same by the cause.
    pub by_cause: Vec<(String, u64)>,
    /// The promise that came nearest to its bound, and how much of that it used, as a part of one.
    pub nearest: Option<(String, f64)>,
    /// The last violation in words.
    pub last: Option<String>,
}

/// A flow from its beginning to its end: a TCP connection, or what a source sends by UDP.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FlowRow {
    /// The `[[traffic]]` that it belongs to.
    pub traffic: String,
    /// Its number among those of its traffic, from 0.
    pub flow: u64,
    /// `tcp` or `udp`.
    pub transport: String,
    /// Address and port that it comes from.
    pub source: String,
    /// Address and port that it goes to.
    pub destination: String,
    /// Its beginning, seconds since the start of the run.
    pub start_s: f64,
    /// When all that it had to carry was acknowledged, seconds; `None`: not within the run, or
    /// nothing was asked for.
    pub end_s: Option<f64>,
    /// The end of its time: of the flow, of its traffic or of the run, whichever came first.
    pub until_s: f64,
    /// Payload that it had to carry, bytes; `None`: as much as fits.
    pub asked_bytes: Option<u64>,
    /// Payload delivered, each byte once.
    pub delivered_bytes: u64,
    /// Packets with payload sent, those sent again included; `None` where nobody told.
    pub sent_packets: Option<u64>,
    /// With UDP: packets that had not arrived at the end of the run; with TCP: segments sent again.
    pub lost_packets: u64,
    /// Retransmission time-outs; `None` with UDP, and where nobody told.
    pub timeouts: Option<u64>,
    /// Mean of the round-trip times that its sender measured, of the handshake on, microseconds; in
    /// the lab of what the kernel made of them. `None` with UDP, and before there was one.
    pub rtt_us: Option<f64>,
}

/// What the sender of a TCP connection thought of its way at the end of a window.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ConnectionRow {
    /// The `[[traffic]]` that it belongs to.
    pub traffic: String,
    /// Its number among those of its traffic, from 0, as that of its [`FlowRow`].
    pub flow: u64,
    /// When, seconds since the start of the run.
    pub t_s: f64,
    /// Congestion window, bytes.
    pub cwnd_bytes: u64,
    /// Smoothed round-trip time (RFC 6298), microseconds; `None`: not measured yet.
    pub rtt_us: Option<f64>,
    /// Segments sent again since its beginning.
    pub retransmitted: u64,
}

impl FlowRow {
    /// Flow completion time, seconds.
    #[must_use]
    pub fn completion_s(&self) -> Option<f64> {
        Some(self.end_s? - self.start_s)
    }

    /// Delivered payload over the flow's time, bits per second (RFC 2647, section 3.17); `None` for
    /// a flow that took no time.
    #[must_use]
    pub fn goodput_bps(&self) -> Option<f64> {
        let seconds = self.until_s - self.start_s;
        (seconds > 0.0).then(|| self.delivered_bytes as f64 * 8.0 / seconds)
    }

    /// What expectations ask of it, in the units of theirs: infinite is the completion time of a
    /// flow that was not done; `None`: it has no such number.
    #[must_use]
    pub fn value(&self, metric: FlowMetric) -> Option<f64> {
        match metric {
            FlowMetric::Fct => {
                self.asked_bytes?;
                Some(self.completion_s().map_or(f64::INFINITY, |seconds| seconds * 1e6))
            }
            FlowMetric::Goodput => self.goodput_bps(),
            FlowMetric::Bytes => Some(self.delivered_bytes as f64),
            FlowMetric::Loss => {
                let sent = self.sent_packets.filter(|sent| *sent > 0)?;
                Some(self.lost_packets as f64 / sent as f64)
            }
            FlowMetric::Timeouts => self.timeouts.map(|timeouts| timeouts as f64),
            FlowMetric::Rtt => self.rtt_us,
            FlowMetric::Rpm => self.rtt_us.filter(|rtt| *rtt > 0.0).map(|rtt| 60e6 / rtt),
        }
    }
}

/// What a subscriber, or a node that others are behind, had on one link in one step.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SubscriberRow {
    /// The step.
    pub step: String,
    /// When counting began, seconds since the start of the run.
    pub from_s: f64,
    /// When it ended.
    pub until_s: f64,
    /// The router.
    pub router: String,
    /// The link: its port's name.
    pub link: String,
    /// Its name in the list.
    pub name: String,
    /// The name of what it is behind.
    pub parent: String,
    /// Whether it is a subscriber; else others are behind it.
    pub subscriber: bool,
    /// The most it may have, bit/s on the wire; `None`: as much as what it is behind.
    pub cap_bps: Option<u64>,
    /// What it had, bit/s on the wire.
    pub rate_bps: f64,
    /// What it should have had (`tree_filling`), bit/s on the wire; `None`: no bound is known.
    pub share_bps: Option<f64>,
    /// Whether something of it waited at nine of ten window ends at least.
    pub greedy: bool,
    /// Packets sent.
    pub sent_packets: u64,
    /// Packets dropped.
    pub dropped: u64,
    /// Packets marked.
    pub marked: u64,
    /// Half of its packets waited no longer, microseconds: the end of a bucket, each of which is
    /// twice as long as the one before; `None`: there were none.
    pub wait_p50_us: Option<f64>,
    /// 99 of 100 of them.
    pub wait_p99_us: Option<f64>,
}

impl SubscriberRow {
    /// What expectations ask of it, in the units of theirs; `None`: it has no such number.
    #[must_use]
    pub fn value(&self, metric: SubscriberMetric) -> Option<f64> {
        let part = |of: u64, all: u64| (all > 0).then(|| of as f64 / all as f64);
        match metric {
            SubscriberMetric::Rate => Some(self.rate_bps),
            SubscriberMetric::Share => self.share_bps,
            SubscriberMetric::ShareError => {
                let share = self.share_bps.filter(|share| *share > 0.0)?;
                Some((self.rate_bps - share).abs() / share)
            }
            SubscriberMetric::CapUse => Some(self.rate_bps / self.cap_bps? as f64),
            SubscriberMetric::Loss => part(self.dropped, self.dropped + self.sent_packets),
            SubscriberMetric::Marked => part(self.marked, self.sent_packets),
            SubscriberMetric::WaitP50 => self.wait_p50_us,
            SubscriberMetric::WaitP99 => self.wait_p99_us,
        }
    }
}

counters! {
    /// Delays of the packets of one class in one window: exact count, sum and maximum, and their
    /// distribution.
    #[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
    pub struct Delays {
        /// Packets measured.
        count count: u64, "packets";
        /// Sum of their delays, nanoseconds.
        count sum_ns: u64, "ns";
        /// The largest, nanoseconds.
        most max_ns: u64, "ns";
        /// Their distribution: (lowest delay of the bucket in ns, packets), ascending, as the
        /// router's snapshots and `evenkeel_core::measure::Histogram` give it.
        buckets buckets: Vec<(u64, u64)>, "ns";
    }
}

counters! {
    /// What one class did on one link in one sampling window. Counts are packets in the window, not
    /// rates.
    #[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
    pub struct Sample {
        /// End of the window, seconds.
        state t_s: f64, "s";
        /// Its length, seconds: real, not nominal.
        count window_s: f64, "s";
        /// The router.
        key router: String;
        /// The link (its port's name).
        key link: String;
        /// The class.
        key class: String;
        /// Packets the sources of this class sent; `None` where nobody counted.
        count offered: Option<u64>, "packets";
        /// What the link counted of it in the window; in files each counter by the name of its
        /// column.
        #[serde(flatten, with = "crate::counted")]
        part counts: ClassCounters;
        /// Packets dropped on the link, by reason; reasons with zero left out.
        part dropped: Vec<(String, u64)>, "packets";
        /// Packets queued at the end of the window.
        gauge qlen: u64, "packets";
        /// Packets queued, added up over the window: `None` where nobody did.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        count queue_us: Option<u64>, "packets x us";
        /// The most packets queued at once from the start of the run to the end of the window.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        most queue_most: Option<u64>, "packets";
        /// Transit delay: arrival in the router to leaving the queue (QoStat 4.2a).
        part transit: Delays;
        /// Delay from sending host to receiving host; `None` where nobody measured it.
        each end_to_end: Option<Delays>;
        /// Bytes (IP length) that the sink received; `None` where nobody counted.
        count goodput_bytes: Option<u64>, "bytes";
        /// What the link's dynamic control saw at the end of the window; `None` on links without.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        each control: Option<ControlSample>;
        /// What the class took of its router's cycles; `None` where they are not measured.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        each cycles: Option<CycleSample>;
        /// How long the flows waited that got through for the first time in this window; `None`
        /// where nobody looked.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        each acceptance: Option<Delays>;
        /// Flows that had sent packets and of which nothing had got through at the end of the
        /// window; `None` where nobody looked.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        gauge waiting: Option<u64>, "flows";
        /// What water filling would have given it on a polled core; `None` elsewhere.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        each core: Option<CoreSample>;
    }
}

/// The counts are read and written like fields of the sample.
impl Deref for Sample {
    type Target = ClassCounters;

    fn deref(&self) -> &ClassCounters {
        &self.counts
    }
}

impl DerefMut for Sample {
    fn deref_mut(&mut self) -> &mut ClassCounters {
        &mut self.counts
    }
}

counters! {
    /// Cycles of a core in one window, polling and refusing left out.
    #[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
    pub struct CoreSample {
        /// What max-min water filling gives the class, of what arrived in the window.
        count fair_cycles: f64, "cycles";
        /// Flows of the class.
        #[serde(default)]
        state flows: u32, "flows";
        /// The squares of the cycles of each of its flows, added up.
        #[serde(default)]
        count squares: f64;
    }
}

counters! {
    /// Cycles of a class in one window, of the whole router.
    #[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
    pub struct CycleSample {
        /// Cycles of packets that were handed to a link.
        count spent: u64, "cycles";
        /// How many those were.
        count passed: u64, "packets";
        /// Packets refused by FairDrop or by a service.
        count refused: u64, "packets";
        /// Their cycles.
        count refused_cycles: u64, "cycles";
        /// Cycles of the router in a second.
        state hertz: u64, "cycles/s";
    }
}

counters! {
    /// What the dynamic control of a link sees of a class, and what it makes of it.
    #[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
    pub struct ControlSample {
        /// Congestion index for delay: 0 is normal, 1 the degradation threshold.
        gauge ci_delay: f64;
        /// Congestion index for loss.
        gauge ci_loss: f64;
        /// X_DELAY, microseconds.
        gauge x_delay_us: f64, "us";
    }
}

counters! {
    /// Scheduler calls on one link in one window, by how many queues had packets just before the
    /// call.
    #[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
    pub struct CallsSample {
        /// End of the window, seconds.
        state t_s: f64, "s";
        /// Its length, seconds.
        count window_s: f64, "s";
        /// The router.
        key router: String;
        /// The link.
        key link: String;
        /// Calls that found every queue empty.
        count none: u64, "calls";
        /// Calls that found one queue with packets.
        count one: u64, "calls";
        /// Calls that found several.
        count many: u64, "calls";
        /// What the link's admission saw and did; `None` on links without.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        each admission: Option<AdmissionSample>;
    }
}

counters! {
    /// What the admission of a link saw at the end of a window, and whom it refused in it.
    #[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
    pub struct AdmissionSample {
        /// The fair rate of its latest estimate, bit/s.
        gauge fair_rate_bps: f64, "bit/s";
        /// The priority load of its latest estimate, as a part of the link's rate.
        gauge priority_load: f64;
        /// Whether it took the link for congested.
        most congested: bool;
        /// Flows on its list of protected flows.
        gauge protected: u64, "flows";
        /// Those of them that are streaming.
        gauge streaming: u64, "flows";
        /// Packets that it refused in the window.
        count refused: u64, "packets";
    }
}
