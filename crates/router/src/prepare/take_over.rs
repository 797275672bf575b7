//! A new worker takes over ports and pipelines of drained ones.

use std::thread;

use evenkeel_core::Nanos;
use evenkeel_ports::{Port, sys};

use super::discard::discard_until;
use super::{Handover, WorkerBuilder};
use crate::attachment::{Attachment, Hold};
use crate::handover::PortTransition;
use crate::worker::Worker;

impl WorkerBuilder<'_> {
    /// Takes over from drained workers. What cannot be had now is tried again until it can, like
    /// an interface that comes back.
    pub(super) fn take_over(
        mut self,
        transitions: &[PortTransition],
        handover: Handover,
    ) -> Worker {
        let Handover { workers, cut, buffers, passed } = handover;
        if let Some(passed) = passed {
            return self.adopt(passed);
        }
        let now = sys::monotonic_now();
        let mut retired = Vec::new();
        for mut old in workers {
            for (at, transition) in transitions.iter().enumerate() {
                let config = &self.worker.config.ports[at];
                let same = |known: &Attachment| {
                    known.name == config.name && known.interface == config.interface
                };
                let Some(place) = old.attachments.iter().position(same) else { continue };
                let attachment = old.attachments.remove(place);
                let port = old.ports.remove(place);
                retired.extend(self.take_port(&mut old, at, *transition, attachment, port));
            }
            for (attachment, mut port) in old.attachments.drain(..).zip(old.ports.drain(..)) {
                old.pipeline.port_closed(&attachment.name, &port.counters());
                retired.push(port);
            }
            let Worker { pipeline, local, .. } = old;
            self.worker.local = local;
            self.worker.pipeline.take_over(now, pipeline, buffers);
        }
        let port = |port: Option<Box<dyn Port>>| port.expect("every port was kept or opened");
        self.worker.ports.extend(self.opened.drain(..).map(port));
        let attachment = |known: Option<Attachment>| known.expect("it belongs to a port");
        self.worker.attachments.extend(self.attachments.drain(..).map(attachment));
        // Built with a ring before, FairDrop can be built with another.
        let _ = self.set_ring();
        for (at, transition) in transitions.iter().enumerate() {
            self.start_port(now, at, *transition, cut);
        }
        self.worker.update_guards();
        // The kernel takes 20 ms and more to close a socket or to unlink a program, and this worker
        // forwards from now on. Where there is no thread for it, it waits.
        let _ = thread::Builder::new().name("close".to_owned()).spawn(move || drop(retired));
        self.worker
    }

    /// Takes a port of an old worker where its socket is kept, else what goes on without it: gives
    /// it back to be closed.
    fn take_port(
        &mut self,
        old: &mut Worker,
        at: usize,
        transition: PortTransition,
        attachment: Attachment,
        mut port: Box<dyn Port>,
    ) -> Option<Box<dyn Port>> {
        if transition == PortTransition::Kept {
            self.opened[at] = Some(port);
            self.attachments[at] =
                Some(Attachment { watched: false, link: self.links[at], ..attachment });
            return None;
        }
        old.pipeline.port_closed(&attachment.name, &port.counters());
        // Claim, tuning and guard are the leader's.
        if old.mirror.leads()
            && let Some(new) = &mut self.attachments[at]
        {
            new.claim = attachment.claim;
            new.tuned = attachment.tuned;
            new.guard = attachment.guard;
            new.in_use = transition == PortTransition::Overlapping && attachment.in_use;
        }
        Some(port)
    }

    /// Begins to forward what a port receives.
    fn start_port(&mut self, now: Nanos, at: usize, transition: PortTransition, cut: Nanos) {
        let worker = &mut self.worker;
        if transition == PortTransition::New && worker.mirror.leads() {
            let attachment = &mut worker.attachments[at];
            let Attachment { attach, own_traffic, interface, .. } = &*attachment;
            match Hold::of(
                &*worker.ports[at],
                (*attach, *own_traffic),
                interface,
                &worker.local,
                worker.beater.heart(),
            ) {
                Ok(guard) => attachment.guard = guard,
                // `recheck_port` tries again and reports it.
                Err(_) => attachment.in_use = false,
            }
        }
        worker.recheck_port(now, at);
        let since = match transition {
            PortTransition::Kept | PortTransition::Passed => return,
            PortTransition::Overlapping => cut,
            // Until it was guarded the kernel has forwarded what it saw.
            PortTransition::New | PortTransition::Reopened => sys::monotonic_now(),
        };
        if worker.ports[at].kernel_has_copy() {
            let frames = discard_until(worker.pipeline.pool_mut(), &mut *worker.ports[at], since);
            worker.pipeline.forward_received(sys::monotonic_now(), at, frames.into_iter());
        }
        if transition == PortTransition::New {
            let Attachment { name, interface, .. } = &worker.attachments[at];
            worker.report(&format!("port {name}: interface {interface} is in use"));
        }
    }
}
