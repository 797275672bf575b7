//! What a worker does with its interfaces: look at them again after a change, guard them, and
//! drain them for a handover.

use evenkeel_core::Nanos;
use evenkeel_net::PortIndex;
use evenkeel_ports::{PortError, sys};

use super::Worker;
use crate::attachment::{Attachment, Hold, Tuned, settle};
use crate::handover::PortDrain;
use crate::pipeline::{BURST, LinkState};
use crate::prepare::reverse_path_of;

/// How long an interface that could not be taken into use is left alone.
const RETRY_USE: Nanos = Nanos::SECOND;
/// How long a follower leaves an interface alone that the leader has not made ready.
const RETRY_FOLLOW: Nanos = Nanos::from_millis(5);
/// How often to try again what the kernel has not yet given up, and for how long without a word.
const RETRY_TAKEN: Nanos = Nanos::from_millis(25);
const LATE: Nanos = Nanos::from_secs(5);

impl Worker {
    /// Tells guards and ports which addresses are the kernel's.
    pub(crate) fn update_guards(&mut self) {
        let local = self.pipeline.host_addresses();
        // A withdrawn route may have been a copy of an address that stays.
        if local == self.local {
            return;
        }
        self.local = local;
        let mut refused = None;
        for (attachment, port) in self.attachments.iter_mut().zip(&mut self.ports) {
            let told =
                attachment.guard.as_mut().map_or(Ok(()), |guard| guard.set_local(&self.local));
            if let Err(error) = told.and_then(|()| port.set_local(&self.local)) {
                refused = Some(error);
            }
        }
        if let Some(error) = refused {
            self.report(&format!(
                "the kernel may not receive packets for all of its addresses: {error}"
            ));
        }
    }

    pub(super) fn interface_changed(
        &mut self,
        now: Nanos,
        port: PortIndex,
        link: Option<LinkState>,
    ) {
        let at = port.index();
        let was = std::mem::replace(&mut self.attachments[at].link, link);
        if let (Some(was), Some(is)) = (was, link)
            && was.up != is.up
            // Our own pair comes up with the router.
            && !(is.up && self.attachments[at].attach.is_of_pair())
        {
            let Attachment { name, interface, .. } = &self.attachments[at];
            let word = if is.up { "up" } else { "down" };
            self.report(&format!("port {name}: interface {interface} is {word}"));
        }
        if link.is_some() {
            self.recheck_port(now, at);
            return;
        }
        self.pipeline.set_link(now, port, None);
        let attachment = &mut self.attachments[at];
        let text = format!(
            "port {}: interface {} is gone; the others go on",
            attachment.name, attachment.interface
        );
        attachment.guard = None;
        attachment.tuned = Tuned::default();
        attachment.in_use = false;
        attachment.retry = None;
        self.publish_guarded(at, false);
        self.unwatch(at);
        // The port itself notices that its interface is gone; what it says is what we know.
        let _ = self.ports[at].reopen();
        self.report(&text);
    }

    /// Looks at the interface of a port again, and takes it (back) into use. A port whose interface
    /// cannot be guarded is down for us: the kernel forwards what comes in there, and we must not
    /// do it too.
    pub(crate) fn recheck_port(&mut self, now: Nanos, at: usize) {
        self.attachments[at].retry = None;
        if !self.mirror.leads() && !self.guarded.is(at) {
            self.attachments[at].retry = Some(now + RETRY_FOLLOW);
            return;
        }
        let result = self.take_into_use(at);
        self.publish_guarded(at, result.is_ok());
        let attachment = &mut self.attachments[at];
        let port = PortIndex(at as u16);
        let (text, link) = match result {
            Ok(was_out) => {
                let text = format!(
                    "port {}: interface {} is in use again",
                    attachment.name, attachment.interface
                );
                attachment.taken = None;
                (was_out.then_some(text), attachment.link)
            }
            // The mirror will tell when it is back.
            Err(PortError::NoInterface(_)) => return,
            // The first worker is about to.
            Err(PortError::NotAttached(_)) => {
                attachment.retry = Some(now + RETRY_FOLLOW);
                return;
            }
            // What it had before it came back may be given up late, which is not worth a word.
            Err(PortError::QueueTaken { .. } | PortError::XdpTaken(_))
                if now < *attachment.taken.get_or_insert(now) + LATE =>
            {
                attachment.retry = Some(now + RETRY_TAKEN);
                return;
            }
            Err(error) => {
                attachment.retry = Some(now + RETRY_USE);
                let text =
                    format!("port {}: {error}; trying again each {RETRY_USE}", attachment.name);
                (Some(text), attachment.link.map(|link| LinkState { up: false, ..link }))
            }
        };
        self.pipeline.set_link(now, port, link);
        self.pipeline.set_reverse_path(port, reverse_path_of(&self.config, at));
        if let Some(text) = text {
            self.report(&text);
        }
    }

    /// True if the port was out of use.
    fn take_into_use(&mut self, at: usize) -> Result<bool, PortError> {
        let attachment = &self.attachments[at];
        let was_out = !attachment.in_use;
        let renewed = self.ports[at].reopen()?;
        if renewed || !attachment.watched {
            let interface = attachment.interface.clone();
            self.watch(at).map_err(|source| PortError::Io {
                what: format!("watching {interface}"),
                source,
            })?;
        }
        let attachment = &mut self.attachments[at];
        if renewed || was_out {
            // The old ones belong to an interface that is no more.
            attachment.guard = None;
            attachment.tuned = Tuned::default();
            attachment.in_use = false;
            if self.mirror.leads() {
                let Attachment { attach, own_traffic, interface, .. } = attachment;
                let port = &*self.ports[at];
                let (busy_poll, folder) = (self.config.router.busy_poll, &self.runtime_dir);
                let tuned =
                    Tuned::of(port, &self.config.ports[at], busy_poll, folder, self.report)?;
                let how = (*attach, *own_traffic);
                attachment.guard =
                    Hold::of(port, how, interface, &self.local, self.beater.heart())?;
                attachment.tuned = tuned;
                settle(&self.config, at)?;
            }
            attachment.in_use = true;
            if self.mirror.leads() {
                self.guarded.took();
            }
        } else {
            attachment.tuned.renew();
        }
        Ok(was_out)
    }

    /// The first worker tells the others whether they may use an interface.
    pub(crate) fn publish_guarded(&self, at: usize, guarded: bool) {
        if self.mirror.leads() {
            self.guarded.set(at, guarded);
        }
    }

    /// Forwards what the ports have received until `cut`, and closes those that others open.
    pub(super) fn drain_ports(&mut self, drains: &[PortDrain], cut: Nanos) {
        for (at, drain) in drains.iter().enumerate() {
            match drain {
                PortDrain::Keep => continue,
                PortDrain::Drain => {}
                PortDrain::Close => self.ports[at].stop_receiving(),
                PortDrain::PassOn => {
                    self.forward_held(at);
                    continue;
                }
            }
            self.drain_port(at, cut);
        }
        for (at, drain) in drains.iter().enumerate() {
            if *drain == PortDrain::Close {
                self.close_port(at);
            }
        }
    }

    fn drain_port(&mut self, at: usize, cut: Nanos) {
        let mut frames = Vec::with_capacity(BURST);
        loop {
            let now = sys::monotonic_now();
            let pool = self.pipeline.pool_mut();
            let received = self.ports[at].rx_burst(pool, now, &mut frames, BURST);
            // Later frames are in the ring of the new socket, too.
            let later = frames.partition_point(|frame| frame.arrival < cut);
            frames.drain(later..).for_each(|received| pool.release(received.frame));
            let all = later < received || received == 0;
            self.pipeline.forward_received(now, at, frames.drain(..));
            if all {
                break;
            }
            // What leaves the links makes room for the next burst.
            self.pipeline.round_of(now, &mut self.ports, []);
        }
        self.pipeline.round_of(sys::monotonic_now(), &mut self.ports, []);
    }

    /// Forwards what a port has taken from the kernel, and no more.
    fn forward_held(&mut self, at: usize) {
        let mut frames = Vec::with_capacity(BURST);
        loop {
            let held = self.ports[at].held();
            if held == 0 {
                break;
            }
            let now = sys::monotonic_now();
            let pool = self.pipeline.pool_mut();
            self.ports[at].rx_burst(pool, now, &mut frames, held);
            self.pipeline.forward_received(now, at, frames.drain(..));
        }
        self.pipeline.round_of(sys::monotonic_now(), &mut self.ports, []);
    }

    fn close_port(&mut self, at: usize) {
        self.unwatch(at);
        self.ports[at].close(self.pipeline.pool_mut());
        if self.mirror.leads() {
            // The kernel forwards what comes from now on. Offloads of packet sockets have a
            // program where that of AF_XDP goes.
            let attachment = &mut self.attachments[at];
            (attachment.guard, attachment.in_use) = (None, false);
            attachment.tuned = Tuned::default();
        }
        self.publish_guarded(at, false);
    }

    /// Takes the ports back after a handover that failed.
    pub(crate) fn resume(&mut self) {
        let now = sys::monotonic_now();
        for attachment in &mut self.attachments {
            attachment.retry = Some(now);
        }
    }
}
