//! Opening the ports of a worker.

use std::sync::Arc;

use evenkeel_config::{Attach, Io, Mode, PortConfig};
use evenkeel_ports::af_packet::{AfPacketOptions, AfPacketPort};
use evenkeel_ports::af_xdp::{AfXdpOptions, AfXdpPort, OwnFrames, XdpPart};
use evenkeel_ports::inline::{self, InlinePort, Side};
use evenkeel_ports::wrap::{HandOver, LatePort, PcapTap, PcapTapOptions};
use evenkeel_ports::{Port, PortError};

use super::{WorkerBuilder, capture_of, port_error, xdp_error};
use crate::attachment::{Attachment, Hold, Tuned};
use crate::error::StartError;
use crate::handover::PortTransition;
use crate::worker::Worker;

/// Which side of its interface an inline port is; `None`: it is routed.
pub(super) const fn side_of(attach: Attach) -> Option<Side> {
    match attach {
        Attach::Route => None,
        Attach::InlineWire => Some(Side::Wire),
        Attach::InlineKernel | Attach::RouteKernel => Some(Side::Kernel),
        Attach::Bridge => Some(Side::Bridge),
    }
}

impl WorkerBuilder<'_> {
    /// Opens a port; the leader makes its interface ready too. `transition`: how it takes over
    /// from another port; `None`: it does not.
    pub(super) fn open(
        &mut self,
        at: usize,
        transition: Option<PortTransition>,
    ) -> Result<(), StartError> {
        let port = self.worker.config.ports[at].clone();
        let error = |error| port_error(&port.name, error);
        if port.attach() == Attach::Route && self.worker.mirror.leads() {
            inline::check_alone(&port.interface).map_err(error)?;
        }
        let (opened, in_use) = match self.open_device(at, &port) {
            Err(StartError::MissingInterface { .. }) if port.optional => {
                (self.late(at, &port), false)
            }
            opened => (self.with_kernel(&port, opened?), true),
        };
        let (mut tuned, mut guard) = (Tuned::default(), None);
        let is_new = matches!(transition, None | Some(PortTransition::New));
        // A port that takes over gets guard and tuning from the old one.
        if self.worker.mirror.leads() && is_new && in_use {
            let (attach, interface) = (port.attach(), port.interface.as_str());
            tuned = self.tuned(&*opened, &port).map_err(error)?;
            let Worker { local, beater, .. } = &self.worker;
            let how = (attach, port.own_traffic);
            guard = Hold::of(&*opened, how, interface, local, beater.heart()).map_err(error)?;
            if transition.is_some() {
                // It can be guarded. Until this worker receives, the kernel forwards.
                guard = None;
            }
        }
        self.opened[at] = Some(match self.options.captures.get(&port.name) {
            Some(file) => {
                let file = capture_of(file, self.number);
                Box::new(PcapTap::create(opened, &file, PcapTapOptions::default()).map_err(error)?)
            }
            None => opened,
        });
        let attachment = self.attachment(at, &port);
        self.attachments[at] = Some(Attachment { guard, tuned, in_use, ..attachment });
        Ok(())
    }

    /// Makes the interface of a port ready.
    pub(super) fn tuned(&self, opened: &dyn Port, port: &PortConfig) -> Result<Tuned, PortError> {
        let busy_poll = self.worker.config.router.busy_poll;
        Tuned::of(opened, port, busy_poll, &self.options.runtime_dir, self.options.report)
    }

    /// What is held of the interface of a port that is not in use.
    pub(super) fn attachment(&mut self, at: usize, port: &PortConfig) -> Attachment {
        Attachment {
            name: port.name.clone(),
            attach: port.attach(),
            own_traffic: port.own_traffic,
            interface: port.interface.clone(),
            claim: self.claims[at].take(),
            watched: false,
            guard: None,
            tuned: Tuned::default(),
            in_use: false,
            link: self.links[at],
            retry: None,
            taken: None,
        }
    }

    /// The port to an interface that is missing.
    pub(super) fn late(&mut self, at: usize, port: &PortConfig) -> Box<dyn Port> {
        if let Some(report) = self.options.report
            && self.number == 0
        {
            report(&format!(
                "port {}: interface {} is missing: it is used as soon as it is there",
                port.name, port.interface
            ));
        }
        let (interface, options) = (port.interface.clone(), self.packet_options(at));
        let open = move || {
            let opened = AfPacketPort::open(&interface, options)?;
            Ok(match HandOver::new(opened, &interface) {
                Ok(opened) => Box::new(opened) as Box<dyn Port>,
                // What an older kernel cannot do was said of the other ports.
                Err((opened, _)) => Box::new(opened),
            })
        };
        Box::new(LatePort::new(&port.interface, Box::new(open)))
    }

    /// The group of the packet sockets of a port, if there are other workers.
    pub(super) fn fanout(&self, at: usize) -> Option<u8> {
        self.xdp_parts[at].is_some().then(|| self.fanout_groups[at])
    }

    /// How the packet sockets of a port are opened.
    pub(super) fn packet_options(&mut self, at: usize) -> AfPacketOptions {
        // What fits a buffer, and no more: slots are powers of two, and a slot twice as long as
        // need be doubles the memory that frames pass through.
        let max_frame = (self.worker.pipeline.pool_mut().max_frame() as u32).min(65_000);
        let fanout = self.fanout(at);
        let marked = self.worker.config.ports[at].own_traffic;
        AfPacketOptions { max_frame, fanout, marked, whole: true, ..AfPacketOptions::default() }
    }

    /// The port as the configuration wants it: an AF_XDP socket or a packet socket.
    fn open_device(&mut self, at: usize, port: &PortConfig) -> Result<Box<dyn Port>, StartError> {
        if let Some(side) = side_of(port.attach()) {
            return match InlinePort::open(&port.interface, side, self.fanout(at)) {
                Ok(opened) => Ok(Box::new(opened)),
                Err(error) => Err(port_error(&port.name, error)),
            };
        }
        let part = self.xdp_parts[at].clone();
        let io = self.options.io_here(&self.worker.config, port);
        self.say_why(port, io);
        // All workers do as the leader does: a queue without a socket is the kernel's.
        let follows = part.as_ref().is_some_and(|part| part.worker > 0);
        let xdp = match &part {
            Some(part) if follows => part.common.is_attached(),
            _ => io != Io::AfPacket,
        };
        if xdp {
            let falls_back = io == Io::Auto && !follows;
            match self.open_xdp(port, part) {
                Ok(opened) => return Ok(Box::new(opened)),
                Err(error) if falls_back && !error.is_of_the_interface() => {
                    if let Some(report) = self.options.report {
                        let why = format!("packet sockets instead of AF_XDP: {error}");
                        report(&format!("port {}: {why}", port.name));
                    }
                }
                Err(error) => return Err(xdp_error(&port.name, error)),
            }
        }
        let options = self.packet_options(at);
        match AfPacketPort::open(&port.interface, options) {
            Ok(opened) => Ok(Box::new(opened)),
            Err(error) => Err(port_error(&port.name, error)),
        }
    }

    /// How the AF_XDP sockets of a port are opened.
    pub(super) fn xdp_options(&mut self, port: &PortConfig) -> AfXdpOptions {
        let Worker { pipeline, config, beater, .. } = &mut self.worker;
        // Half of the buffers wait for frames, the others hold them.
        let buffers = Some(pipeline.pool_mut().buffers() / 2 / config.ports.len().max(1));
        // A worker that asks all the time needs few stamps to know when a frame has come.
        let polled = config.router.mode == Mode::Busy;
        let stamp_every = if polled { AfXdpOptions::STAMP_WHEN_POLLED } else { 1 };
        let heart = Some(Arc::clone(beater.heart()));
        let own = config.exchange_at(port).map(|(vlan, ethertype)| OwnFrames { vlan, ethertype });
        let busy_poll = config.router.busy_poll.is_some();
        AfXdpOptions { buffers, stamp_every, busy_poll, heart, own, ..AfXdpOptions::default() }
    }

    fn open_xdp(
        &mut self,
        port: &PortConfig,
        part: Option<XdpPart>,
    ) -> Result<AfXdpPort, PortError> {
        let options = self.xdp_options(port);
        let Worker { pipeline, local, .. } = &mut self.worker;
        let pool = pipeline.pool_mut();
        let interface = &port.interface;
        match (&self.umem, part) {
            (Some(umem), part) => {
                AfXdpPort::open_beside(interface, options, umem.clone(), local, part)
            }
            (None, Some(part)) => AfXdpPort::open_part(interface, options, pool, local, part),
            (None, None) => AfXdpPort::open(interface, options, pool, local),
        }
    }
}
