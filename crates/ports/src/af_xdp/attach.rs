//! What opening an interface takes: checks, the program, and a socket for each queue.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use super::hook::{Hook, Site};
use super::options::AfXdpOptions;
use super::pieces;
use super::queue::Queue;
use super::shared::{Sockets, XdpPart};
use super::socket::{Patience, XdpSocket};
use crate::error::PortError;
use crate::ethtool::queues;
use crate::interface::{Control, Interface};
use crate::pool::Umem;
use crate::sys::{Poller, limit_of_locked_memory, may_lock_beyond_limit};

/// What a port has of an interface.
pub(super) struct Attached {
    pub(super) hook: Option<Hook>,
    pub(super) sockets: Arc<Sockets>,
    pub(super) queues: Vec<Queue>,
    pub(super) ring: u32,
    pub(super) joined: Option<Poller>,
}

/// The receive queues of a port, of so many.
pub(super) fn numbers(part: Option<&XdpPart>, queues: u32) -> Vec<u32> {
    match part {
        Some(part) => part.queues(queues).collect(),
        None => (0..queues).collect(),
    }
}

/// What a port asks of an interface that has just been looked up.
pub(super) struct Wanted<'a> {
    pub(super) name: &'a str,
    pub(super) control: &'a Control,
    pub(super) interface: &'a Interface,
    pub(super) options: &'a AfXdpOptions,
    pub(super) umem: &'a Umem,
    /// Addresses of this machine.
    pub(super) local: &'a [IpAddr],
    /// Of one of several workers.
    pub(super) part: Option<&'a XdpPart>,
    /// Whether to wait for what the kernel has not yet let go of: a worker must not.
    pub(super) patience: Patience,
}

impl Wanted<'_> {
    /// Takes the interface into use; it may vanish meanwhile.
    ///
    /// # Errors
    /// What stands in the way, with the remedy; [`PortError::NoInterface`] whatever failed if the
    /// interface is gone afterwards.
    pub(super) fn attach(&self) -> Result<Attached, PortError> {
        self.take()
            .map_err(|error| self.control.unless_gone(self.name, self.interface.index, error))
    }

    /// The program, unless it is another worker's, and a socket for every receive queue of this
    /// port.
    fn take(&self) -> Result<Attached, PortError> {
        let &Self { name, control, interface, options, umem, local, part, patience } = self;
        // Asked first: without such sockets there is no map for them either, and that would be a
        // stranger message.
        XdpSocket::create(name)?;
        let longest = |pieces| pieces::longest_mtu(umem.buffer(), pieces);
        let too_long = |refused: Option<io::Error>| PortError::MtuTooLong {
            interface: name.to_owned(),
            mtu: interface.mtu,
            longest: longest(refused.is_none()),
            refused,
        };
        if interface.mtu > longest(true) {
            return Err(too_long(None));
        }
        let has = queues(control, name)?;
        if let Some(wanted) = options.queues.filter(|wanted| *wanted != has.receive) {
            return Err(PortError::QueueCount {
                interface: name.to_owned(),
                has: has.receive,
                wanted,
            });
        }
        let (hook, sockets) = match part {
            Some(part) if !part.leads() => {
                let common = part.common.get().filter(|sockets| sockets.ifindex == interface.index);
                (None, common.ok_or_else(|| PortError::NotAttached(name.to_owned()))?)
            }
            _ => {
                if let Some(part) = part {
                    part.check(name, has)?;
                    lockable(name, umem, has.receive)?;
                }
                let (queues, workers) = (has.receive, part.map_or(1, |part| part.workers));
                let site =
                    Site { interface, queues, workers, pieces: interface.mtu > longest(false) };
                let (hook, sockets) = Hook::attach(name, &site, local, options, patience)?;
                (Some(hook), Arc::new(sockets))
            }
        };
        let numbers = numbers(part, sockets.queues);
        let ring = options.ring_of(numbers.len());
        let fits = || {
            let pieces = pieces::buffers_of(interface.mtu, umem.buffer());
            pieces <= pieces::most_without_copy(interface.index)
        };
        let how = (sockets.native && (!sockets.pieces || fits()), sockets.pieces);
        let mut queues = Vec::with_capacity(numbers.len());
        for number in numbers {
            let at = (interface.index, number);
            let socket = XdpSocket::open(umem, name, at, ring, how, patience);
            let socket = socket.map_err(|error| match error {
                PortError::Unsupported { source, .. } if how.1 => too_long(Some(source)),
                error => error,
            })?;
            let mut queue = Queue::new(socket, umem.buffers());
            if options.busy_poll {
                queue.socket.prefer_busy_poll(name, true)?;
                queue.look_for_napi();
            }
            queues.push(queue);
        }
        let joined = join(name, &queues)?;
        if let Some(part) = part.filter(|part| part.leads()) {
            part.common.put(Some(Arc::clone(&sockets)));
        }
        Ok(Attached { hook, sockets, queues, ring, joined })
    }
}

/// What becomes readable with any of several queues; `None`: there is one.
pub(super) fn join(name: &str, queues: &[Queue]) -> Result<Option<Poller>, PortError> {
    if queues.len() < 2 {
        return Ok(None);
    }
    let failed = |error| PortError::from_io(format!("joining the queues of {name}"), error);
    let joined = Poller::new().map_err(failed)?;
    for (number, queue) in queues.iter().enumerate() {
        joined.add(queue.socket.fd(), number as u64).map_err(failed)?;
    }
    Ok(Some(joined))
}

/// Whether every worker can lock its buffers for its queues of an interface. The first worker asks
/// for all: what it begins the others cannot give up.
fn lockable(name: &str, umem: &Umem, queues: u32) -> Result<(), PortError> {
    let bytes = umem.len() as u64;
    let beyond = |limit: &u64| bytes.saturating_mul(u64::from(queues)) > *limit;
    match limit_of_locked_memory().filter(beyond) {
        Some(limit) if !may_lock_beyond_limit() => {
            Err(PortError::LockedMemory { interface: name.to_owned(), bytes, limit: Some(limit) })
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::FramePool;

    #[test]
    fn an_interface_that_vanishes_while_it_is_opened_is_told_as_missing() {
        if !evenkeel_netns::testing::available("an interface that vanishes") {
            return;
        }
        let control = Control::open().unwrap();
        let pool = FramePool::new(256);
        // As it was looked up, but no interface has that number now.
        let gone =
            Interface { index: i32::MAX as u32, mac: [2, 0, 0, 0, 0, 1], mtu: 1500, running: true };
        let attached = Wanted {
            name: "lo",
            control: &control,
            interface: &gone,
            options: &AfXdpOptions::default(),
            umem: &pool.umem(),
            local: &[],
            part: None,
            patience: Patience::None,
        }
        .attach();
        let error = attached.err().map(|error| error.to_string()).unwrap_or_default();
        assert_eq!(error, "interface lo does not exist here; `ip link` lists those that do");
    }
}
