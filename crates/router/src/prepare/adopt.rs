//! A worker goes on with what a worker of another process had: see [`crate::passing`].

use evenkeel_core::Nanos;
use evenkeel_ports::af_packet::AfPacketPort;
use evenkeel_ports::af_xdp::AfXdpPort;
use evenkeel_ports::inline::InlinePort;
use evenkeel_ports::parcel::Parcel;
use evenkeel_ports::wrap::HandOver;
use evenkeel_ports::{Port, PortError, sys};

use super::WorkerBuilder;
use super::open::side_of;
use crate::attachment::{Hold, Tuned, settle};
use crate::claim::Claim;
use crate::worker::{PassedPort, Worker};

impl WorkerBuilder<'_> {
    /// Goes on with what a parcel holds. What cannot be had is tried again until it can, like an
    /// interface that comes back.
    pub(super) fn adopt(mut self, mut passed: Parcel) -> Worker {
        // Programs that take the place of the old ones look at once whether somebody lives.
        self.worker.beater.beat(sys::monotonic_now());
        let silent_since = passed.take().map_or(Nanos::MAX, Nanos);
        let mut whole = Ok(());
        for at in 0..self.opened.len() {
            if whole.is_ok() {
                whole = self.adopt_port(at, &mut passed);
            }
            let port = self.worker.config.ports[at].clone();
            if self.opened[at].is_none() {
                self.opened[at] = Some(self.late(at, &port));
            }
            if self.attachments[at].is_none() {
                self.attachments[at] = Some(self.attachment(at, &port));
            }
        }
        self.worker.ports.extend(self.opened.drain(..).flatten());
        self.worker.attachments.extend(self.attachments.drain(..).flatten());
        // The other process has no frame any more.
        self.worker.pipeline.pool_mut().begin(self.lent.drain(..));
        // Built with a ring before, FairDrop can be built with another.
        let _ = self.set_ring();
        let now = sys::monotonic_now();
        let whole = whole.and_then(|()| self.worker.pipeline.take_passed(now, &mut passed));
        if let Err(error) = whole {
            self.worker.report(&format!("not all could be taken over: {error}"));
        }
        self.precede();
        for at in 0..self.worker.ports.len() {
            self.worker.recheck_port(now, at);
        }
        if silent_since < now {
            // Nobody was there for so long that the programs let the kernel forward.
            self.worker.ports.iter_mut().for_each(|port| port.passed_by(silent_since..now));
        }
        self.worker
    }

    /// The port that exchanges frames as that of the other process did.
    fn adopt_device(
        &mut self,
        at: usize,
        interface: &str,
        passed: &mut Parcel,
    ) -> Result<Box<dyn Port>, PortError> {
        if !AfXdpPort::is_next(passed) {
            let options = self.packet_options(at);
            return Ok(Box::new(AfPacketPort::adopt(interface, options, passed)?));
        }
        let port = self.worker.config.ports[at].clone();
        let (options, part) = (self.xdp_options(&port), self.xdp_parts[at].clone());
        let Worker { pipeline, local, .. } = &mut self.worker;
        let umem = pipeline.pool_mut().umem();
        let opened = AfXdpPort::adopt(interface, options, umem, local, part, passed)?;
        self.lent.extend(opened.lent_buffers());
        Ok(Box::new(opened))
    }

    fn adopt_port(&mut self, at: usize, passed: &mut Parcel) -> Result<(), PortError> {
        let port = self.worker.config.ports[at].clone();
        let has = PassedPort::take(passed)?;
        if has.claim {
            self.claims[at] = Some(Claim::adopt(passed)?);
        }
        self.attachments[at] = Some(self.attachment(at, &port));
        if !has.port {
            return Ok(());
        }
        let interface = port.interface.as_str();
        let opened: Box<dyn Port> = match side_of(port.attach()) {
            Some(side) => {
                let fanout = self.fanout(at);
                Box::new(InlinePort::adopt(interface, side, fanout, passed)?)
            }
            None => {
                let opened = self.adopt_device(at, interface, passed)?;
                if HandOver::<Box<dyn Port>>::is_next(passed) {
                    Box::new(HandOver::adopt(opened, interface, passed)?)
                } else {
                    opened
                }
            }
        };
        let tuned = match self.worker.mirror.leads() {
            true => self.tuned(&*opened, &port)?,
            false => Tuned::default(),
        };
        let opened = self.opened[at].insert(opened);
        if let Some(attachment) = &mut self.attachments[at] {
            let Worker { local, beater, config, .. } = &self.worker;
            attachment.tuned = tuned;
            if has.hold {
                let how = (port.attach(), port.own_traffic);
                let heart = beater.heart();
                let hold = Hold::adopt(&**opened, how, interface, local, heart, passed)?;
                attachment.guard = Some(hold);
                settle(config, at)?;
            }
            attachment.in_use = true;
        }
        Ok(())
    }
}
