//! What ports on packet sockets have in common: the interface, its state, sending, counting.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd};

use evenkeel_core::{Nanos, Reason};

use super::transmit::{Batch, Stop};
use crate::error::PortError;
use crate::interface::{Control, Interface};
use crate::pool::{Frame, FramePool};
use crate::port::{PortCounters, PortState};
use crate::sys::take_error;

/// How often a port that receives nothing looks whether its interface is still there.
const LOOK_EVERY: Nanos = Nanos(1_000_000);

/// An interface that a packet socket is bound to.
#[derive(Debug)]
pub(crate) struct Device {
    pub(crate) name: String,
    // Belongs to the port's namespace, whichever the calling thread is in later.
    control: Control,
    pub(crate) interface: Interface,
    pub(crate) state: PortState,
    looked: Nanos,
    /// The kernel has forwarded what came then.
    pub(crate) passed_by: Option<Range<Nanos>>,
    batch: Batch,
    pub(crate) counters: PortCounters,
}

impl Device {
    /// Finds an interface of the calling thread's namespace, and opens what `open` opens on it.
    pub(crate) fn open<T>(
        name: &str,
        open: impl FnOnce(&Interface) -> Result<T, PortError>,
    ) -> Result<(Self, T), PortError> {
        let control = Control::open()?;
        let interface = control.interface(name)?;
        let opened =
            open(&interface).map_err(|error| control.unless_gone(name, interface.index, error))?;
        let device = Self {
            name: name.to_owned(),
            control,
            interface,
            state: state_of(&interface),
            looked: Nanos::ZERO,
            passed_by: None,
            batch: Batch::new(),
            counters: PortCounters::default(),
        };
        Ok((device, opened))
    }

    /// The same for sockets of another process, of which `receiver` is bound to the interface.
    pub(crate) fn of(name: &str, receiver: BorrowedFd<'_>) -> Result<(Self, ()), PortError> {
        Self::open(name, |found| {
            if bound_to(receiver) == Some(found.index) {
                return Ok(());
            }
            Err(PortError::NotPassed("its socket is not bound to the interface"))
        })
    }

    /// Looks for the interface again if it has vanished, or if `socket` was taken from it; if it is
    /// there, opens what `open` opens on it. `None`: it had never been away.
    pub(crate) fn reopen<T>(
        &mut self,
        socket: BorrowedFd<'_>,
        open: impl FnOnce(&Interface) -> Result<T, PortError>,
    ) -> Result<Option<T>, PortError> {
        take_error(socket);
        self.look(socket);
        if self.state != PortState::Gone {
            return Ok(None);
        }
        self.read_loss(socket);
        let (found, opened) = Self::open(&self.name, open)?;
        self.control = found.control;
        self.interface = found.interface;
        self.state = found.state;
        Ok(Some(opened))
    }

    /// Looks at the interface as it is now, by its number. It may have been renamed; the port's
    /// name stays. An interface that left the namespace may come back with the number it had: the
    /// kernel has taken the socket from it for good, whatever its number is now.
    fn look(&mut self, socket: BorrowedFd<'_>) {
        if bound_to(socket) != Some(self.interface.index) {
            self.state = PortState::Gone;
            return;
        }
        let found = self
            .control
            .name_of(self.interface.index)
            .and_then(|name| self.control.interface(&name).ok())
            .filter(|found| found.index == self.interface.index);
        match found {
            Some(found) => {
                self.interface = found;
                self.state = state_of(&found);
            }
            None => self.state = PortState::Gone,
        }
    }

    /// Whether the kernel has forwarded a frame with this stamp, because the router gave no sign of
    /// life: it is counted, and not to be forwarded again.
    #[inline]
    pub(crate) fn kernel_forwarded(&mut self, arrival: Nanos) -> bool {
        let Some(span) = &self.passed_by else { return false };
        let forwarded = span.contains(&arrival);
        if forwarded {
            self.counters.drop_one(Reason::KernelForwarded);
        } else if arrival >= span.end {
            self.passed_by = None;
        }
        forwarded
    }

    /// After each attempt to receive: whether something came.
    pub(crate) fn received(&mut self, some: bool, now: Nanos, socket: BorrowedFd<'_>) {
        if some {
            self.state = PortState::Up;
        } else if now >= self.looked + LOOK_EVERY {
            self.looked = now;
            // A link that is not up has to be looked at again: no frame and no error tells that it
            // is back.
            if take_error(socket) || self.state == PortState::Down {
                self.look(socket);
            }
        }
    }

    /// Reads how many frames the kernel had no room for; it starts again at zero with each reading.
    pub(crate) fn read_loss(&mut self, socket: BorrowedFd<'_>) {
        let mut statistics = libc::tpacket_stats { tp_packets: 0, tp_drops: 0 };
        let mut length = size_of::<libc::tpacket_stats>() as libc::socklen_t;
        // SAFETY: `statistics` and `length` are writable and fit each other.
        let result = unsafe {
            libc::getsockopt(
                socket.as_raw_fd(),
                libc::SOL_PACKET,
                libc::PACKET_STATISTICS,
                (&raw mut statistics).cast(),
                &raw mut length,
            )
        };
        if result == 0 {
            self.counters.ring_loss += u64::from(statistics.tp_drops);
        }
    }

    /// Sends frames as [`Port::tx_burst`](crate::Port::tx_burst) says. `receiver` is the socket
    /// that tells whether the interface is still there. `described`: the socket wants the kernel's
    /// header before each frame.
    pub(crate) fn send(
        &mut self,
        socket: BorrowedFd<'_>,
        receiver: BorrowedFd<'_>,
        pool: &mut FramePool,
        frames: &mut VecDeque<Frame>,
        described: bool,
    ) -> usize {
        let mut taken = 0;
        while !frames.is_empty() && self.state != PortState::Gone {
            let (sent, stop) = self.batch.send(socket, pool, frames, described);
            for frame in frames.range(..sent) {
                self.counters.tx_frames += 1;
                self.counters.tx_bytes += frame.cut_len() as u64;
                self.counters.tx_more += u64::from(frame.segments() - 1);
            }
            pool.release_first(frames, sent);
            taken += sent;
            match stop {
                Stop::Empty => {}
                Stop::Full => {
                    self.counters.tx_blocked += 1;
                    break;
                }
                Stop::Refused => {
                    if let Some(frame) = frames.pop_front() {
                        self.counters.drop_one(Reason::PortRefused);
                        pool.release(frame);
                        taken += 1;
                    }
                }
                Stop::Dead => {
                    self.look(receiver);
                    if self.state == PortState::Up {
                        // Came back between the two calls: a later call will find out.
                        self.state = PortState::Down;
                    }
                    self.counters.tx_blocked += 1;
                    break;
                }
            }
        }
        taken
    }
}

fn state_of(interface: &Interface) -> PortState {
    if interface.running { PortState::Up } else { PortState::Down }
}

/// Binds a packet socket to an interface. `protocol`: what it receives, host byte order; 0:
/// nothing.
pub(crate) fn bind(fd: BorrowedFd<'_>, ifindex: u32, protocol: libc::c_int) -> io::Result<()> {
    // SAFETY: sockaddr_ll is plain data.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as libc::c_ushort;
    address.sll_protocol = (protocol as u16).to_be();
    address.sll_ifindex = ifindex as libc::c_int;
    let length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: `address` is readable for `length` bytes.
    let result = unsafe { libc::bind(fd.as_raw_fd(), (&raw const address).cast(), length) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// The number of the interface that a packet socket receives from; the kernel makes it -1 when the
/// interface leaves the namespace.
fn bound_to(socket: BorrowedFd<'_>) -> Option<u32> {
    // SAFETY: sockaddr_ll is plain data.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    let mut length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: `address` is writable for `length` bytes.
    let result = unsafe {
        libc::getsockname(socket.as_raw_fd(), (&raw mut address).cast(), &raw mut length)
    };
    if result == 0 { u32::try_from(address.sll_ifindex).ok() } else { None }
}
