//! How a running router becomes another configuration: in place, or by a handover to new workers.
//!
//! A handover is for changes of ports, classes, workers and buffers, and of how frames are
//! exchanged.
//!
//! ```text
//!  new workers: build pipelines, open what can be opened beside ─▶ ready ─ ─ ─ ▶ open the rest ─▶ take over ─▶ rounds
//!  old workers: rounds ──────────────────────────────────────────▶ drain, close, end
//!                                                                  └── no worker forwards: blocked time ──┘
//! ```
//!
//! Everything that can fail comes before anything changes. One exception: AF_XDP sockets must be
//! closed before others can be opened on the same queues. If those cannot be opened, the old
//! workers, which have lost nothing else, go on. What the kernel does meanwhile with packets that
//! come in:
//!
//! | a port | packets that come while no worker forwards |
//! |---|---|
//! | keeps its socket ([`PortTransition::Kept`]) | wait in its ring |
//! | packet sockets before and after ([`PortTransition::Overlapping`]) | wait in the ring of the new socket, which was opened before; stamps tell who forwards a frame |
//! | AF_XDP before or after ([`PortTransition::Reopened`]) | are forwarded by the kernel: it has the queues without a socket |

use std::sync::Arc;

use evenkeel_config::{
    Attach, Hairpin, Io, Mode, PortConfig, RouterConfig, RouterSection, fixed_change,
};
use evenkeel_ports::af_xdp::XdpCommon;

use crate::error::CommandError;
use crate::options::Options;
use crate::pipeline::Buffers;

/// How a port of the new configuration gets its socket.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum PortTransition {
    /// It keeps the old one.
    Kept,
    /// A second socket is opened while the old one is still open.
    Overlapping,
    /// A socket is opened after the old one is closed.
    Reopened,
    /// The port is new, and so is its socket.
    New,
    /// It gets that of another process, see [`crate::passing`].
    Passed,
}

/// What the old workers do with a port of the old configuration.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum PortDrain {
    /// Nothing: socket and ring go to the new workers.
    Keep,
    /// Forward what its ring holds. Socket, guard and offloads are still needed.
    Drain,
    /// Forward what its ring holds, then give the interface back to the kernel.
    Close,
    /// Forward what the port itself holds: its ring goes to another process as it is.
    PassOn,
}

/// What differs between the workers before and after a handover.
pub(crate) struct HandoverPlan {
    pub(crate) buffers: Buffers,
    /// By port of the new configuration.
    pub(crate) transitions: Arc<[PortTransition]>,
    /// By port of the old configuration.
    pub(crate) drains: Arc<[PortDrain]>,
    /// By port of the new configuration, its index in the old one.
    old_ports: Vec<Option<usize>>,
}

/// How a reload is carried out.
pub(crate) enum ReloadPlan {
    /// By every worker, between two bursts.
    InPlace,
    /// By new workers that take over from the present ones.
    Handover(HandoverPlan),
}

impl ReloadPlan {
    /// The way from one configuration to another.
    ///
    /// # Errors
    /// What differs cannot change while the router runs.
    pub(crate) fn between(
        old: &RouterConfig,
        new: &RouterConfig,
        options: &Options,
    ) -> Result<Self, CommandError> {
        let restart =
            |key: &str, why| Err(CommandError::NeedsRestart { what: key.to_owned(), why });
        if let Some(what) = fixed_change(old, new) {
            return Err(CommandError::fixed(what));
        }
        if lives_in_one_pipeline(old, new) {
            return Ok(Self::InPlace);
        }
        for (key, before, after) in [
            ("cluster", old.cluster.is_some(), new.cluster.is_some()),
            ("balancer", old.balancer.is_some(), new.balancer.is_some()),
        ] {
            if before || after {
                let why = "its members know this router by its ports, and its counters of frames \
                           go on with one worker only";
                return restart(key, why);
            }
        }
        if !inline_ports(old).eq(inline_ports(new)) {
            let why = "what the kernel does with the packets of an interface changes with it";
            return restart("port.attach", why);
        }
        Ok(Self::Handover(HandoverPlan::between(old, new, options)))
    }
}

/// Name and interface of the ports that are attached inline.
fn inline_ports(config: &RouterConfig) -> impl Iterator<Item = (&str, &str)> {
    let inline = |port: &&PortConfig| port.attach() != Attach::Route;
    let ports = config.ports.iter().filter(inline);
    ports.map(|port| (port.name.as_str(), port.interface.as_str()))
}

/// Whether a pipeline built for `old` can become one for `new`.
fn lives_in_one_pipeline(old: &RouterConfig, new: &RouterConfig) -> bool {
    // Of `[router]` a pipeline can change nothing but this.
    let without_hairpin =
        |section: &RouterSection| RouterSection { hairpin: Hairpin::Forward, ..section.clone() };
    without_hairpin(&old.router) == without_hairpin(&new.router)
        && sockets(old).eq(sockets(new))
        && old.class_names() == new.class_names()
        && (0..new.ports.len()).all(|at| old.link_of(at) == new.link_of(at))
        && old.flows.lists == new.flows.lists
        && one_workers(old).zip(one_workers(new)).all(|(has, wants)| has || !wants)
}

/// By link, whether of several workers the first one has it for all. What it has once it may keep:
/// that is right for every link.
fn one_workers(config: &RouterConfig) -> impl Iterator<Item = bool> {
    let several = config.router.workers > 1;
    config.unshared_links().into_iter().map(move |part| several && part.is_some())
}

/// Name, interface, kind of socket and attachment of each port.
fn sockets(config: &RouterConfig) -> impl Iterator<Item = (&str, &str, Io, Attach)> {
    let socket = |port: &PortConfig| config.io_of(port);
    let ports = config.ports.iter();
    ports
        .map(move |port| (port.name.as_str(), port.interface.as_str(), socket(port), port.attach()))
}

/// Whether both have workers with the same frame buffers.
fn same_buffers(old: &RouterConfig, new: &RouterConfig) -> bool {
    let of = |config: &RouterConfig| {
        let section = &config.router;
        (section.workers, section.buffers, section.buffer_size)
    };
    of(old) == of(new)
}

impl HandoverPlan {
    fn between(old: &RouterConfig, new: &RouterConfig, options: &Options) -> Self {
        let kept = same_buffers(old, new);
        let old_port = |port: &PortConfig| {
            let same =
                |known: &PortConfig| known.name == port.name && known.interface == port.interface;
            old.ports.iter().position(same)
        };
        let old_ports: Vec<Option<usize>> = new.ports.iter().map(old_port).collect();
        // How often an AF_XDP program stamps frames depends on the mode.
        let of_xdp = |section: &RouterSection| (section.mode == Mode::Busy, section.busy_poll);
        let same_for_xdp = of_xdp(&old.router) == of_xdp(&new.router);
        let transition = |(port, old_port): (&PortConfig, &Option<usize>)| {
            let Some(old_port) = *old_port else { return PortTransition::New };
            let before = options.io_of(old, &old.ports[old_port]);
            let after = options.io_of(new, port);
            if kept && before == after && (same_for_xdp || after == Io::AfPacket) {
                PortTransition::Kept
            } else if before == Io::AfPacket && after == Io::AfPacket {
                PortTransition::Overlapping
            } else {
                PortTransition::Reopened
            }
        };
        let transitions: Arc<[_]> = new.ports.iter().zip(&old_ports).map(transition).collect();
        let drain = |at: usize| {
            let new_port = old_ports.iter().position(|old_port| *old_port == Some(at));
            match new_port.map(|to| transitions[to]) {
                Some(PortTransition::Kept) => PortDrain::Keep,
                Some(PortTransition::Overlapping) => PortDrain::Drain,
                Some(PortTransition::Reopened | PortTransition::New | PortTransition::Passed)
                | None => PortDrain::Close,
            }
        };
        let drains = (0..old.ports.len()).map(drain).collect();
        let buffers = if kept { Buffers::Kept } else { Buffers::Copied };
        Self { buffers, drains, transitions, old_ports }
    }

    /// A start with the ports of another process.
    pub(crate) fn of_passed(ports: usize) -> Self {
        Self {
            buffers: Buffers::Copied,
            drains: Arc::default(),
            transitions: vec![PortTransition::Passed; ports].into(),
            old_ports: vec![None; ports],
        }
    }

    /// Each port of the new configuration: how it gets its socket, and its index in the old one.
    fn ports(&self) -> impl Iterator<Item = (PortTransition, Option<usize>)> {
        self.transitions.iter().copied().zip(self.old_ports.iter().copied())
    }

    /// By port, what the workers' AF_XDP ports have in common: as before, where sockets are kept.
    pub(crate) fn xdp_common(&self, old: &[XdpCommon]) -> Arc<[XdpCommon]> {
        let common = |port: (PortTransition, Option<usize>)| match port {
            (PortTransition::Kept, Some(at)) => old[at].clone(),
            _ => XdpCommon::default(),
        };
        self.ports().map(common).collect()
    }

    /// By port, the fanout group of the workers' packet sockets: another one where an old and a
    /// new socket are open at the same time.
    pub(crate) fn fanout_groups(&self, old: &[u8]) -> Arc<[u8]> {
        let group = |port: (PortTransition, Option<usize>)| match port {
            (PortTransition::Kept, Some(at)) => old[at],
            (_, Some(at)) => old[at] ^ 1,
            (_, None) => 0,
        };
        self.ports().map(group).collect()
    }

    /// A port among those that are captured whose socket would be another one: its file would
    /// begin again.
    pub(crate) fn captured<'a>(
        &self,
        is_captured: impl Fn(&str) -> bool,
        config: &'a RouterConfig,
    ) -> Option<&'a str> {
        let another = [PortTransition::Overlapping, PortTransition::Reopened];
        let mut ports = config.ports.iter().zip(&*self.transitions);
        ports
            .find(|(port, transition)| another.contains(transition) && is_captured(&port.name))
            .map(|(port, _)| port.name.as_str())
    }
}
