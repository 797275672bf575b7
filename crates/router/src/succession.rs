//! Workers that take the place of others while the router runs: for changes of ports, classes, workers, buffers, and of how frames are exchanged.
//!
//! ```text
//!  heirs:   pipelines, tables, what can be opened beside ──▶ ready ─ ─ ─ ─ ─▶ open what was closed ─▶ take over ──▶ rounds
//!  old:     rounds ─────────────────────────────────────────▶ read the last, close, end
//!                                                             └── nobody forwards: effective blocked time ──┘
//! ```
//!
//! Everything that can fail comes before anything changes, except for AF_XDP sockets that must be closed before others can be opened on the same queues:
//! if those cannot be had, the old workers, which have lost nothing else, go on. What the kernel does meanwhile with what comes in:
//!
//! | a port | what comes while nobody forwards |
//! |---|---|
//! | stays as it is ([`Fate::Kept`]) | waits in its ring |
//! | packet sockets before and after ([`Fate::Beside`]) | waits in the ring of the new socket, which has been open for a while: by its stamp each frame is forwarded once |
//! | AF_XDP before or after ([`Fate::Anew`]) | is forwarded by the kernel: a queue without a socket is its own |

use std::sync::Arc;
use std::sync::mpsc::Receiver;

use evenkeel_config::{Io, Mode, PortConfig, RouterConfig};
use evenkeel_core::Nanos;
use evenkeel_ports::af_xdp::XdpCommon;
use evenkeel_ports::{Port, Umem, sys};

use crate::command::CommandError;
use crate::pipeline::{BURST, Buffers};
use crate::prepare::{Draft, discard_until};
use crate::start::Options;
use crate::worker::{Attachment, Worker, guard_of};

/// What becomes of a port of the new configuration.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Fate {
    /// Its socket goes on.
    Kept,
    /// A second socket is opened beside the old one.
    Beside,
    /// Its socket is opened when the old one is closed.
    Anew,
    /// There was none.
    New,
}

/// What becomes of a port of the old configuration.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Farewell {
    /// Nothing.
    Stays,
    /// What has come so far is read; its socket and what guards its interface are still needed.
    Read,
    /// What has come so far is read; the kernel gets the interface back.
    Close,
}

/// A worker that takes the place of others.
pub(crate) struct Heir {
    /// By port of the new configuration.
    pub(crate) fates: Arc<[Fate]>,
    /// The memory of the buffers that it will have; `None`: its own.
    pub(crate) umem: Option<Umem>,
    pub(crate) orders: Receiver<HeirOrder>,
}

/// What an heir is told, in this order.
pub(crate) enum HeirOrder {
    /// The old sockets are closed: open the ports that wait for that.
    Open,
    /// Take over, and forward.
    Inherit(Estate),
}

/// What an heir takes over.
pub(crate) struct Estate {
    /// Workers whose place it takes, the first one first.
    pub(crate) workers: Vec<Worker>,
    /// Frames that came before have been forwarded by them.
    pub(crate) cut: Nanos,
    pub(crate) buffers: Buffers,
}

/// How one configuration follows another.
pub(crate) struct Plan {
    pub(crate) buffers: Buffers,
    pub(crate) fates: Arc<[Fate]>,
    /// By port of the old configuration.
    pub(crate) farewells: Arc<[Farewell]>,
    /// By port of the new one: where it was in the old one.
    pub(crate) places: Vec<Option<usize>>,
}

/// How a change is carried out.
pub(crate) enum Way {
    /// By every worker, between two bursts.
    InPlace,
    /// By workers that take the place of the present ones.
    Succession(Plan),
}

impl Way {
    /// How a router becomes another one.
    ///
    /// # Errors
    /// What differs cannot change while it runs.
    pub(crate) fn between(old: &RouterConfig, new: &RouterConfig) -> Result<Self, CommandError> {
        let restart = |key: &str, why| Err(CommandError::NeedsRestart { what: key.to_owned(), why });
        let fixed = |section: &evenkeel_config::RouterSection| evenkeel_config::RouterSection {
            hairpin: evenkeel_config::Hairpin::Forward,
            ..section.clone()
        };
        let ports = |config: &RouterConfig| -> Vec<(String, String, Io)> {
            let port = |port: &PortConfig| (port.name.clone(), port.interface.clone(), config.io_of(port));
            config.ports.iter().map(port).collect()
        };
        if fixed(&old.router) == fixed(&new.router)
            && ports(old) == ports(new)
            && old.class_names() == new.class_names()
            && old.flows.lists == new.flows.lists
        {
            return Ok(Self::InPlace);
        }
        if old.router.seed != new.router.seed {
            return restart("router.seed", "packets that wait are queued by hashes with it");
        }
        if old.router.control != new.router.control {
            return restart("router.control", "whoever asked for the change is answered there");
        }
        for (key, before, after) in [
            ("cluster", old.cluster.is_some(), new.cluster.is_some()),
            ("balancer", old.balancer.is_some(), new.balancer.is_some()),
        ] {
            if before || after {
                let why = "its members know this router by its ports, and its counters of frames go on with one worker only";
                return restart(key, why);
            }
        }
        Ok(Self::Succession(Plan::between(old, new)))
    }
}

impl Plan {
    fn between(old: &RouterConfig, new: &RouterConfig) -> Self {
        let of_buffers =
            |config: &RouterConfig| (config.router.workers, config.router.buffers, config.router.buffer_size);
        let kept = of_buffers(old) == of_buffers(new);
        let place = |port: &PortConfig| {
            let same = |known: &PortConfig| known.name == port.name && known.interface == port.interface;
            old.ports.iter().position(same)
        };
        let places: Vec<Option<usize>> = new.ports.iter().map(place).collect();
        let fate = |(port, place): (&PortConfig, &Option<usize>)| {
            let Some(place) = *place else { return Fate::New };
            let (before, after) = (old.io_of(&old.ports[place]), new.io_of(port));
            // How often an AF_XDP program stamps frames depends on the mode.
            let busy = |config: &RouterConfig| config.router.mode == Mode::Busy;
            let same_stamps = busy(old) == busy(new) || after == Io::AfPacket;
            if kept && before == after && same_stamps {
                Fate::Kept
            } else if before == Io::AfPacket && after == Io::AfPacket {
                Fate::Beside
            } else {
                Fate::Anew
            }
        };
        let fates: Arc<[Fate]> = new.ports.iter().zip(&places).map(fate).collect();
        let farewell = |at: usize| match places.iter().position(|place| *place == Some(at)) {
            Some(to) if fates[to] == Fate::Kept => Farewell::Stays,
            Some(to) if fates[to] == Fate::Beside => Farewell::Read,
            _ => Farewell::Close,
        };
        let farewells = (0..old.ports.len()).map(farewell).collect();
        let buffers = if kept { Buffers::Kept } else { Buffers::Copied };
        Self { buffers, farewells, fates, places }
    }

    /// What the workers' AF_XDP ports have in common: as before, where they go on.
    pub(crate) fn stations(&self, old: &[XdpCommon]) -> Arc<[XdpCommon]> {
        let station = |(fate, place): (&Fate, &Option<usize>)| match place {
            Some(place) if *fate == Fate::Kept => old[*place].clone(),
            _ => XdpCommon::default(),
        };
        self.fates.iter().zip(&self.places).map(station).collect()
    }

    /// A port that is captured and whose socket would be another one: the file would begin again.
    pub(crate) fn captured<'a>(&self, options: &Options, config: &'a RouterConfig) -> Option<&'a str> {
        let mut ports = config.ports.iter().zip(&*self.fates);
        let captured = |(port, fate): &(&PortConfig, &Fate)| {
            matches!(fate, Fate::Beside | Fate::Anew) && options.captures.contains_key(&port.name)
        };
        ports.find(captured).map(|(port, _)| port.name.as_str())
    }

    /// The groups of the workers' packet sockets: others where two of them are open side by side.
    pub(crate) fn groups(&self, old: &[u8]) -> Arc<[u8]> {
        let group = |(fate, place): (&Fate, &Option<usize>)| match place {
            Some(place) if *fate == Fate::Kept => old[*place],
            Some(place) => old[*place] ^ 1,
            None => 0,
        };
        self.fates.iter().zip(&self.places).map(group).collect()
    }
}

impl Worker {
    /// The last that this worker does: what its ports have received until `cut` goes its way, and what others are to open is closed.
    pub(crate) fn say_farewell(&mut self, farewells: &[Farewell], cut: Nanos) {
        let leads = self.following.leads();
        let mut frames = Vec::with_capacity(BURST);
        for (at, farewell) in farewells.iter().enumerate().filter(|(_, what)| **what != Farewell::Stays) {
            if *farewell == Farewell::Close {
                self.ports[at].stop_receiving();
            }
            loop {
                let now = sys::monotonic_now();
                let pool = self.pipeline.pool_mut();
                let received = self.ports[at].rx_burst(pool, now, &mut frames, BURST);
                let later = frames.partition_point(|frame| frame.arrival < cut);
                frames.drain(later..).for_each(|received| pool.release(received.frame));
                let all = later < received || received == 0;
                self.pipeline.receive_last(now, at, frames.drain(..));
                if all {
                    break;
                }
                // What has left its link makes room.
                self.pipeline.round_of(now, &mut self.ports, []);
            }
            self.pipeline.round_of(sys::monotonic_now(), &mut self.ports, []);
        }
        for (at, _) in farewells.iter().enumerate().filter(|(_, what)| **what == Farewell::Close) {
            self.unwatch(at);
            self.ports[at].close(self.pipeline.pool_mut());
            if leads {
                // The kernel forwards what comes from now on. Offloads of packet sockets have a program where that of AF_XDP goes.
                let attachment = &mut self.attachments[at];
                (attachment.guard, attachment.offloads, attachment.in_use) = (None, None, false);
            }
            self.say_guarded(at, false);
        }
    }

    /// Takes its ports back after a farewell that came to nothing.
    pub(crate) fn go_on(&mut self) {
        let now = sys::monotonic_now();
        for attachment in &mut self.attachments {
            attachment.retry = Some(now);
        }
    }
}

impl Draft<'_> {
    /// Takes over from those who have said farewell. What cannot be had now is tried again until it can, as of an interface that comes back.
    pub(crate) fn inherit(mut self, fates: &[Fate], estate: Estate) -> Worker {
        let Estate { workers, cut, buffers } = estate;
        let now = sys::monotonic_now();
        let leads = self.worker.following.leads();
        for mut old in workers {
            for (at, fate) in fates.iter().enumerate() {
                let config = &self.worker.config.ports[at];
                let same =
                    |known: &Attachment| known.name == config.name && known.interface == config.interface;
                let Some(place) = old.attachments.iter().position(same) else { continue };
                // Whatever of the old one is not taken goes with it.
                let attachment = old.attachments.remove(place);
                let port = old.ports.remove(place);
                self.take(&mut old, at, *fate, attachment, port);
            }
            for (attachment, mut port) in old.attachments.drain(..).zip(old.ports.drain(..)) {
                old.pipeline.named_port_leaves(&attachment.name, &port.counters());
            }
            let Worker { pipeline, local, .. } = old;
            self.worker.local = local;
            self.worker.pipeline.inherit(now, pipeline, buffers);
        }
        let port = |port: Option<Box<dyn Port>>| port.expect("every port was kept or opened");
        self.worker.ports.extend(self.opened.drain(..).map(port));
        let attachment = |attachment: Option<Attachment>| attachment.expect("it belongs to a port");
        self.worker.attachments.extend(self.attachments.drain(..).map(attachment));
        // Built with a ring before, FairDrop can be built with another.
        let _ = self.set_ring();
        for (at, fate) in fates.iter().enumerate() {
            self.begin_port(now, at, *fate, cut, leads);
        }
        self.worker.tell_guards();
        self.worker
    }

    /// A port of an old worker, if it goes on; else what is kept of it.
    fn take(
        &mut self,
        old: &mut Worker,
        at: usize,
        fate: Fate,
        attachment: Attachment,
        mut port: Box<dyn Port>,
    ) {
        if fate == Fate::Kept {
            self.opened[at] = Some(port);
            self.attachments[at] = Some(Attachment { watched: None, link: self.links[at], ..attachment });
            return;
        }
        old.pipeline.named_port_leaves(&attachment.name, &port.counters());
        // Claim, offloads and guard are the first worker's.
        if old.following.leads()
            && let Some(mine) = &mut self.attachments[at]
        {
            mine.claim = attachment.claim;
            mine.offloads = attachment.offloads;
            mine.guard = attachment.guard;
            mine.in_use = fate == Fate::Beside && attachment.in_use;
        }
    }

    /// Makes the first use of a port.
    fn begin_port(&mut self, now: Nanos, at: usize, fate: Fate, cut: Nanos, leads: bool) {
        let worker = &mut self.worker;
        if fate == Fate::New && leads {
            let attachment = &mut worker.attachments[at];
            match guard_of(&*worker.ports[at], &attachment.interface, &worker.local) {
                Ok(guard) => attachment.guard = guard,
                // Looked at again below, and said then.
                Err(_) => attachment.in_use = false,
            }
        }
        worker.look_again(now, at);
        let since = match fate {
            Fate::Kept => return,
            Fate::Beside => cut,
            // Until it was guarded the kernel has forwarded, where it saw anything.
            Fate::New | Fate::Anew => sys::monotonic_now(),
        };
        if worker.ports[at].kernel_has_copy() {
            let frames = discard_until(worker.pipeline.pool_mut(), &mut *worker.ports[at], since);
            worker.pipeline.receive_last(sys::monotonic_now(), at, frames.into_iter());
        }
        if fate == Fate::New {
            let text = format!(
                "port {}: interface {} is in use",
                worker.attachments[at].name, worker.attachments[at].interface
            );
            worker.say(&text);
        }
    }
}
