//! One interface served by the ports of several workers: one program, and the receive queues
//! divided among them.
//!
//! The first worker's port attaches the program; it and the others put sockets of their own into
//! the program's map, each for every n-th queue. So which worker gets a frame is decided by whoever
//! chooses the queue: the hash of the hardware, or of the sender of a veth. The workers share
//! nothing per frame. A queue whose worker has no socket (yet, or any more) is the kernel's, which
//! forwards what comes there.

use std::os::fd::AsRawFd;
use std::sync::{Arc, Mutex};

use super::socket::XdpSocket;
use crate::bpf::Map;
use crate::error::PortError;
use crate::ethtool::Queues;
use crate::sys::lock;

/// Where the program at an interface finds the socket of a receive queue.
#[derive(Debug)]
pub(super) struct Sockets {
    pub(super) map: Map,
    /// The number of the interface that the program is at.
    pub(super) ifindex: u32,
    /// Receive queues of the interface.
    pub(super) queues: u32,
    /// The program runs in the driver.
    pub(super) native: bool,
    /// Frames longer than a buffer come in pieces.
    pub(super) pieces: bool,
}

impl Sockets {
    pub(super) fn seat(&self, name: &str, queue: u32, socket: &XdpSocket) -> Result<(), PortError> {
        let fd = socket.fd().as_raw_fd().to_ne_bytes();
        self.map.insert(&queue.to_ne_bytes(), &fd).map_err(|error| {
            PortError::from_io(format!("giving queue {queue} of {name} its socket"), error)
        })
    }
}

/// What the ports of several workers at one interface have in common. Clones are the same. Locked
/// when a port is opened, never for a frame.
#[derive(Clone, Debug, Default)]
pub struct XdpCommon(Arc<Mutex<Option<Arc<Sockets>>>>);

impl XdpCommon {
    /// Whether the first worker's port has its program at the interface.
    #[must_use]
    pub fn is_attached(&self) -> bool {
        self.get().is_some()
    }

    pub(super) fn get(&self) -> Option<Arc<Sockets>> {
        lock(&self.0).clone()
    }

    pub(super) fn put(&self, sockets: Option<Arc<Sockets>>) {
        *lock(&self.0) = sockets;
    }
}

/// Which of the workers that share an interface a port is for. Worker 0 opens its port first.
#[derive(Clone, Debug)]
pub struct XdpPart {
    /// The worker's number, from 0.
    pub worker: u32,
    /// How many there are; more than `worker`.
    pub workers: u32,
    /// What they have in common.
    pub common: XdpCommon,
}

impl XdpPart {
    pub(super) fn leads(&self) -> bool {
        self.worker == 0
    }

    /// Whether there are queues for all workers: a worker sends by its first one, so it is one that
    /// can send too.
    pub(super) fn check(&self, name: &str, queues: Queues) -> Result<(), PortError> {
        let has = queues.receive.min(queues.transmit);
        if has < self.workers {
            return Err(PortError::FewQueues {
                interface: name.to_owned(),
                has,
                workers: self.workers,
            });
        }
        Ok(())
    }

    /// The receive queues of this worker.
    pub(super) fn queues(&self, count: u32) -> impl Iterator<Item = u32> + use<> {
        (self.worker..count).step_by(self.workers.max(1) as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_are_divided_without_a_rest_and_without_two_owners() {
        for (workers, count) in [(1, 1), (2, 4), (3, 4), (4, 4), (2, 5)] {
            let part = |worker| XdpPart { worker, workers, common: XdpCommon::default() };
            let mut all: Vec<u32> =
                (0..workers).flat_map(|worker| part(worker).queues(count)).collect();
            all.sort_unstable();
            assert_eq!(all, (0..count).collect::<Vec<_>>(), "{workers} workers");
            assert!((0..workers).all(|worker| part(worker).queues(count).next() == Some(worker)));
        }
        let part = XdpPart { worker: 1, workers: 2, common: XdpCommon::default() };
        part.check("eth0", Queues { receive: 2, transmit: 2 }).unwrap();
        let error = part.check("eth0", Queues { receive: 4, transmit: 1 }).unwrap_err();
        assert!(matches!(error, PortError::FewQueues { has: 1, workers: 2, .. }), "{error}");
    }
}
