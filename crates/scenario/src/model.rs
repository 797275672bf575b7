//! What a scenario says, with types: every default filled in, every name resolved.

use std::path::PathBuf;

use evenkeel_config::{Change, DisciplineConfig, LinuxConfig, RouterConfig};
use evenkeel_core::{BitRate, Bytes, Nanos, words};
use evenkeel_settings::read::suggest;
use thiserror::Error;

use crate::core_model::CoreModel;
use crate::expr::Expr;
use crate::subscribers::{Party, Subscribers};
use crate::topology::Wire;

/// A whole scenario.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The file it came from; `None` if it came from a text.
    pub path: Option<PathBuf>,
    /// Its name, path-like: `lct/fig4`.
    pub name: String,
    /// One line for headings.
    pub title: String,
    /// What it reproduces; may be empty.
    pub source: String,
    /// What the reader must know; may be empty.
    pub notes: String,
    /// The published entry it refers to.
    pub published: Option<Published>,
    /// Seed of everything random.
    pub seed: u64,
    /// Sampling window.
    pub sample: Nanos,
    /// Left out at the head of each step when its numbers are formed.
    pub settle: Nanos,
    /// How long it runs.
    pub duration: Nanos,
    /// By how much times were multiplied ([`Scenario::scaled`]); 1 as loaded.
    pub time_scale: f64,
    /// Name of the ablation applied ([`Scenario::with_ablation`]).
    pub without: Option<String>,
    /// The hosts.
    pub hosts: Vec<Host>,
    /// The routers.
    pub routers: Vec<Router>,
    /// What joins them.
    pub wires: Vec<Wire>,
    /// People behind hosts.
    pub subscribers: Vec<Subscribers>,
    /// One polled core in place of hosts, routers, wires and traffic.
    pub core: Option<CoreModel>,
    /// Who sends what to whom.
    pub traffic: Vec<Traffic>,
    /// Timed changes in order of time. The first is at 0 (named `start` unless the file names a
    /// step at 0).
    pub steps: Vec<Step>,
    /// The claims.
    pub expectations: Vec<Expectation>,
    /// Mechanisms that can be switched off, and what must fail then.
    pub ablations: Vec<Ablation>,
}

/// A `[[host]]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Host {
    /// Its name.
    pub name: String,
}

/// A `[[router]]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Router {
    /// Its name.
    pub name: String,
    /// Its configuration. One port per wire, named after the node at the other end; so is the
    /// interface. `router.name` is the router's name here.
    pub config: RouterConfig,
}

impl Router {
    /// Whether its kernel forwards, because a link of it has a queueing discipline of Linux.
    #[must_use]
    pub fn is_kernel(&self) -> bool {
        self.config.links.iter().any(|link| linux_of(&link.discipline).is_some())
    }
}

/// The queueing discipline of Linux that a link has, if it has one.
#[must_use]
pub const fn linux_of(discipline: &DisciplineConfig) -> Option<&LinuxConfig> {
    match discipline {
        DisciplineConfig::Linux(linux) => Some(linux),
        _ => None,
    }
}

/// A `[[traffic]]`: one flow.
#[derive(Clone, Debug, PartialEq)]
pub struct Traffic {
    /// Its name.
    pub name: String,
    /// The host that sends.
    pub from: String,
    /// The host that receives.
    pub to: String,
    /// When packets come.
    pub kind: TrafficKind,
    /// What makes the packets.
    pub tool: Tool,
    /// Bits of IP packets per second (while on, for on-off). Zero for kinds that are not told
    /// theirs ([`TrafficKind::has_rate`]).
    pub rate: BitRate,
    /// Length of each IP packet; of a full segment, for [`TrafficKind::Tcp`].
    pub size: Bytes,
    /// Random part of the spacing of constant-rate packets, 0 to 1.
    pub jitter: f64,
    /// The class it falls into at every router on its path, as the class rules say; if the file
    /// says a class too, it is this one.
    pub class: Option<String>,
    /// First packet not before.
    pub start: Nanos,
    /// Last packet before.
    pub stop: Nanos,
    /// Whether it runs over IPv6.
    pub ipv6: bool,
    /// DSCP of its packets, 0 to 63.
    pub dscp: u8,
    /// UDP (or, for iperf3, TCP) destination port; unique per destination host.
    pub port: u16,
    /// UDP source port.
    pub source_port: u16,
    /// How many flows alike it stands for, each with `rate` and its own ports.
    pub flows: u32,
    /// The people whose flows they are, in turn; `None`: the hosts' own.
    pub party: Option<Party>,
    /// The capture file of [`TrafficKind::Replay`].
    pub recording: Option<PathBuf>,
    /// Whether it is TCP: [`TrafficKind::Tcp`], [`TrafficKind::TcpFlows`], or `tool = "iperf3"`
    /// told so (then `rate` is an upper limit).
    pub tcp: bool,
    /// Where it stands: `file:line`, for messages.
    pub place: String,
}

/// When packets come.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum TrafficKind {
    /// Constant bit rate.
    Cbr,
    /// Exponential spacing.
    Poisson,
    /// Constant rate during exponential on-times, nothing during exponential off-times.
    OnOff {
        /// Mean on-time.
        mean_on: Nanos,
        /// Mean off-time.
        mean_off: Nanos,
    },
    /// Constant bit rate without jitter, at the rate that keeps the sending host's wire busy.
    Greedy,
    /// Flows that come and go: `rate` is what they offer together.
    Flows {
        /// Mean of their sizes, bytes of IP packets.
        mean_size: Bytes,
        /// How the sizes are distributed.
        sizes: FlowSizes,
        /// Rate of each while it is sent.
        peak: BitRate,
    },
    /// The packets of [`Traffic::recording`], with their lengths and gaps.
    Replay,
    /// TCP connections that come and go: `rate` is the payload they are asked to carry together.
    TcpFlows {
        /// Their congestion control.
        congestion: Congestion,
        /// Whether they are marked instead of dropped.
        ecn: Ecn,
        /// Mean of their payloads.
        mean_size: Bytes,
        /// How the payloads are distributed.
        sizes: FlowSizes,
    },
    /// One direction of a telephone call.
    Call,
    /// One direction of a game.
    Game {
        /// Whether it goes from the server to a player.
        down: bool,
    },
    /// Moving pictures.
    Video {
        /// Frames per second.
        frame_rate: u32,
    },
    /// TCP connections of people who browse or computers that fetch, on and on.
    Users {
        /// Whether they read pages; else they fetch files.
        web: bool,
        /// How many.
        users: u32,
        /// Congestion control of the connections.
        congestion: Congestion,
        /// Whether they are marked instead of dropped.
        ecn: Ecn,
    },
    /// A TCP connection that always has something to send. Its tool is [`Tool::Iperf3`] on real
    /// packets; in virtual time, the simulator's own.
    Tcp {
        /// Its congestion control.
        congestion: Congestion,
        /// Whether it is marked instead of dropped.
        ecn: Ecn,
        /// How much payload it sends; `None`: until it stops.
        bytes: Option<Bytes>,
    },
}

impl TrafficKind {
    /// Whether its packets are those of TCP connections.
    #[must_use]
    pub fn is_tcp(&self) -> bool {
        matches!(self, Self::Tcp { .. }) || self.are_connections()
    }

    /// Whether its packets are those of TCP connections that come and go.
    #[must_use]
    pub fn are_connections(&self) -> bool {
        matches!(self, Self::TcpFlows { .. } | Self::Users { .. })
    }

    /// Whether it is told how fast to send. A recording has its own pace, so have people, and a
    /// connection that always has something to send.
    #[must_use]
    pub fn has_rate(&self) -> bool {
        !matches!(
            self,
            Self::Tcp { .. } | Self::Users { .. } | Self::Replay | Self::Call | Self::Game { .. }
        )
    }
}

/// How the sizes of flows are distributed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FlowSizes {
    /// All alike.
    Fixed,
    /// Pareto with this shape, above 1.
    Pareto(f64),
    /// Lognormal; the standard deviation of the logarithm.
    Lognormal(f64),
}

words! {
    /// Congestion control of a TCP connection: its name in scenarios is that of Linux.
    pub enum Congestion {
        /// RFC 9438.
        #[default]
        Cubic = "cubic",
        /// RFC 5681, with the recovery of RFC 6675.
        Reno = "reno",
        /// RFC 8257: gives way by the part of its bytes that came marked; needs `ecn`. In virtual
        /// time only.
        Dctcp = "dctcp",
        /// BBR as the kernel has it: in the lab only. What it answers to is not published as a
        /// law that a simulated one could be held to.
        Bbr = "bbr",
    }
}

words! {
    /// What the IP headers of a connection's data say of ECN.
    pub enum Ecn {
        /// Nothing: its packets are dropped where others are marked.
        #[default]
        None = "none",
        /// ECT(0), RFC 3168; with `dctcp` RFC 8257.
        Ect0 = "ect0",
        /// ECT(1), L4S, RFC 9331; with `dctcp` only.
        Ect1 = "ect1",
    }
}

words! {
    /// What makes the packets of a flow.
    pub enum Tool {
        /// The project's own source.
        #[default]
        Evenkeel = "evenkeel",
        /// iperf3, on real packets only.
        Iperf3 = "iperf3",
        /// D-ITG, on real packets only.
        DItg = "d-itg",
    }
}

/// A `[[step]]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// Its name, unique.
    pub name: String,
    /// When.
    pub at: Nanos,
    /// Wires that go down, as indices into [`Scenario::wires`]: then every router has the routes
    /// that are left.
    pub down: Vec<usize>,
    /// Wires that come up again.
    pub up: Vec<usize>,
    /// What changes, in order, after that.
    pub set: Vec<SetChange>,
}

impl Step {
    /// Whether wires go down or come up.
    #[must_use]
    pub fn changes_layout(&self) -> bool {
        !self.down.is_empty() || !self.up.is_empty()
    }
}

/// One change of a step: as text, for the control protocol, and as a value.
#[derive(Clone, Debug, PartialEq)]
pub struct SetChange {
    /// The router.
    pub router: String,
    /// The link: its port's name.
    pub link: String,
    /// The knob's name.
    pub knob: String,
    /// The class it concerns.
    pub class: Option<String>,
    /// The value as [`evenkeel_config::parse_change`] reads it.
    pub value: String,
    /// The value itself.
    pub change: Change,
}

/// An `[[expect]]`.
#[derive(Clone, Debug)]
pub struct Expectation {
    /// Its name, unique.
    pub name: String,
    /// The sentence it stands for.
    pub claim: String,
    /// The expression as written.
    pub that: String,
    /// The expression, names resolved.
    pub expr: Expr,
    /// The worlds it is meant for.
    pub worlds: Vec<World>,
    /// False: a published claim that is known not to be reproduced; judged and reported as such,
    /// fails nothing.
    pub reproduced: bool,
    /// Why, and whatever else the reader must know; may be empty.
    pub note: String,
}

words! {
    /// Where a scenario can run.
    pub enum World {
        /// Real packets.
        #[default]
        Lab = "lab",
        /// Virtual time.
        Sim = "sim",
    }
}

/// A `[[without]]`: a mechanism switched off.
#[derive(Clone, Debug, PartialEq)]
pub struct Ablation {
    /// Its name, unique.
    pub name: String,
    /// The overrides.
    pub set: Vec<AblationChange>,
    /// Expectations that must fail under it.
    pub fails: Vec<String>,
    /// Expectations that must fail under it or cannot be measured.
    pub unmeasured: Vec<String>,
}

/// An override of an ablation.
#[derive(Clone, Debug, PartialEq)]
pub struct AblationChange {
    /// What changes.
    pub set: SetChange,
    /// The step in which it changes; `None`: from the start, and no later step changes the same
    /// knob back.
    pub at: Option<String>,
}

/// A published entry: `published = "lct.toml#fig4"`.
#[derive(Clone, Debug, PartialEq)]
pub struct Published {
    /// The file, relative to a folder `published/` beside or above the scenario.
    pub file: String,
    /// The key in it.
    pub key: String,
    /// The entry's `claim`, if it has one.
    pub claim: Option<String>,
    /// The entry, for the report.
    pub entry: toml::Table,
}

/// A scenario has no such name or cannot be changed so.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum ScenarioError {
    /// The time scale is not a positive number, or leaves nothing of the sampling window.
    #[error("time scale {scale} is out of range: {why}")]
    TimeScale {
        /// What was asked for.
        scale: f64,
        /// What would be valid.
        why: String,
    },
    /// There is no such ablation.
    #[error("no [[without]] named {name:?}; {known}")]
    NoSuchAblation {
        /// The name asked for.
        name: String,
        /// The nearest name, or those there are.
        known: String,
    },
}

impl ScenarioError {
    /// There is no ablation `name`; these there are.
    pub fn no_such_ablation<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Self {
        let known = suggest(name, &known.collect::<Vec<_>>());
        Self::NoSuchAblation { name: name.to_owned(), known }
    }
}

impl Scenario {
    /// The router with this name.
    #[must_use]
    pub fn router(&self, name: &str) -> Option<&Router> {
        self.routers.iter().find(|router| router.name == name)
    }

    /// The step with this name: its index.
    #[must_use]
    pub fn step(&self, name: &str) -> Option<usize> {
        self.steps.iter().position(|step| step.name == name)
    }

    /// When the step with this index ends: at the next step, or at the end of the run.
    #[must_use]
    pub fn step_end(&self, index: usize) -> Nanos {
        self.steps.get(index + 1).map_or(self.duration, |next| next.at)
    }
}
