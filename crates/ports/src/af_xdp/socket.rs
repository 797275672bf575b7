//! One AF_XDP socket: the pool's memory registered with it, its four rings, bound to one receive
//! queue of an interface.
//!
//! The kernel lets sockets share a registration, but then all of them depend on the one that made
//! it, whose interface may vanish. Here every socket registers the same memory for itself: the
//! pages are the same, so a frame received on one port is sent by another without a copy, and each
//! port lives and dies alone. It costs eight bytes of kernel memory per page and socket.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::xdp::{SocketAddrXdp, SocketAddrXdpFlags, XdpUmemReg, XdpUmemRegFlags};
use rustix::net::{self, AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, sockopt};

use super::ring::{Consumer, Producer, RingKind};
use crate::error::PortError;
use crate::parcel::Parcel;
use crate::pool::Umem;
use crate::sys::{get_option, limit_of_locked_memory, set_option};

/// Frames that one system call may send (`XDP_MAX_TX_SKB_BUDGET`, new kernels; 32 otherwise).
const SEND_BUDGET: libc::c_int = 256;
const MAX_TX_SKB_BUDGET: libc::c_int = 9;
/// Frames that a driver brings in one poll: what it brings in an interrupt.
pub(super) const POLL_BUDGET: u32 = 64;
/// Only calls that wait poll for so long, in microseconds, and ours do not; 0 would be never.
const POLL_FOR: libc::c_int = 1;
const PAUSE: Duration = Duration::from_millis(25);

/// How long to wait for what the kernel gives up late.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Patience {
    /// Who asks comes again.
    None,
    /// A queue stays taken for 100 to 200 ms after the socket that had it was closed, and for
    /// seconds after a kill on a busy machine: the socket goes with the memory of the process, and
    /// then by a worker of the kernel that needs a lock of the whole machine.
    AtStart,
}

impl Patience {
    const fn for_a_queue(self) -> Duration {
        match self {
            Self::None => Duration::ZERO,
            Self::AtStart => Duration::from_secs(5),
        }
    }

    /// A program goes when its descriptor is closed.
    pub(super) const fn for_a_program(self) -> Duration {
        match self {
            Self::None => Duration::ZERO,
            Self::AtStart => Duration::from_secs(1),
        }
    }
}

/// Where one receive queue of an interface hands its frames over.
#[derive(Debug)]
pub(super) struct XdpSocket {
    // The rings are unmapped before their socket is closed.
    pub(super) fill: Producer<u64>,
    pub(super) completion: Consumer<u64>,
    pub(super) rx: Consumer<libc::xdp_desc>,
    pub(super) tx: Producer<libc::xdp_desc>,
    pub(super) zero_copy: bool,
    fd: OwnedFd,
}

impl XdpSocket {
    /// A socket of `ring` slots per ring for a queue of an interface, both by their numbers, with
    /// the buffers of `umem`. `zero_copy`: asked for first. `pieces`: for frames longer than a
    /// buffer.
    ///
    /// # Errors
    /// No AF_XDP in the kernel, too little memory may be locked, the queue is another socket's, or
    /// the driver refuses; frames in pieces are refused as [`PortError::Unsupported`].
    pub(super) fn open(
        umem: &Umem,
        name: &str,
        at: (u32, u32),
        ring: u32,
        (zero_copy, pieces): (bool, bool),
        patience: Patience,
    ) -> Result<Self, PortError> {
        let more =
            if pieces { SocketAddrXdpFlags::XDP_USE_SG } else { SocketAddrXdpFlags::empty() };
        if zero_copy {
            // A bind that was refused leaves the socket half made: each attempt has its own.
            let mode = SocketAddrXdpFlags::XDP_ZEROCOPY | more;
            match Self::attempt(umem, name, at, ring, mode, patience) {
                Err(PortError::Unsupported { .. } | PortError::Io { .. }) => {}
                other => return other,
            }
        }
        Self::attempt(umem, name, at, ring, SocketAddrXdpFlags::XDP_COPY | more, patience)
    }

    /// The socket of another process, bound as it is, with its rings of `ring` slots.
    pub(super) fn adopt(ring: u32, parcel: &mut Parcel) -> Result<Self, PortError> {
        let zero_copy = parcel.take()? != 0;
        let fd = parcel.take_file()?;
        Ok(Self {
            fill: Producer::adopt(fd.as_fd(), RingKind::Fill, ring)?,
            completion: Consumer::adopt(fd.as_fd(), RingKind::Completion, ring)?,
            rx: Consumer::adopt(fd.as_fd(), RingKind::Rx, ring)?,
            tx: Producer::adopt(fd.as_fd(), RingKind::Tx, ring)?,
            zero_copy,
            fd,
        })
    }

    pub(super) fn pass_on(&self, parcel: &mut Parcel) -> Result<(), PortError> {
        parcel.put(u64::from(self.zero_copy));
        parcel.put_file(self.fd.as_fd())
    }

    /// A socket that is nothing yet, for interface `name`.
    ///
    /// # Errors
    /// No AF_XDP in the kernel, or the process lacks CAP_NET_RAW.
    pub(super) fn create(name: &str) -> Result<OwnedFd, PortError> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        net::socket_with(AddressFamily::XDP, SocketType::RAW, flags, None).map_err(|error| {
            match error {
                Errno::AFNOSUPPORT => {
                    PortError::NoXdpSockets { interface: name.to_owned(), source: error.into() }
                }
                _ => PortError::from_io(
                    format!("opening an AF_XDP socket for interface {name}"),
                    error.into(),
                ),
            }
        })
    }

    fn attempt(
        umem: &Umem,
        name: &str,
        (ifindex, queue): (u32, u32),
        ring: u32,
        mode: SocketAddrXdpFlags,
        patience: Patience,
    ) -> Result<Self, PortError> {
        let failed = |what: &str| {
            let what = format!("{what} for interface {name}");
            move |error: io::Error| PortError::from_io(what, error)
        };
        let fd = Self::create(name)?;
        register(&fd, umem).map_err(|error| match error.raw_os_error() {
            Some(libc::ENOBUFS | libc::ENOMEM | libc::EPERM) => PortError::LockedMemory {
                interface: name.to_owned(),
                bytes: umem.len() as u64,
                limit: limit_of_locked_memory(),
            },
            _ => failed("registering the frame buffers")(error),
        })?;
        let (fill, completion) = (
            Producer::create(fd.as_fd(), RingKind::Fill, ring)?,
            Consumer::create(fd.as_fd(), RingKind::Completion, ring)?,
        );
        let (rx, tx) = (
            Consumer::create(fd.as_fd(), RingKind::Rx, ring)?,
            Producer::create(fd.as_fd(), RingKind::Tx, ring)?,
        );
        let address =
            SocketAddrXdp::new(mode | SocketAddrXdpFlags::XDP_USE_NEED_WAKEUP, ifindex, queue);
        let bound = patiently(patience.for_a_queue(), || Ok(net::bind(&fd, &address)?));
        bound.map_err(|error| match error.raw_os_error() {
            Some(libc::EBUSY) => PortError::QueueTaken { interface: name.to_owned(), queue },
            // The answer to a flag that it does not know.
            Some(libc::EINVAL) if mode.contains(SocketAddrXdpFlags::XDP_USE_SG) => {
                PortError::Unsupported { what: "frames in pieces".to_owned(), source: error }
            }
            _ => failed(&format!("binding an AF_XDP socket to queue {queue}"))(error),
        })?;
        // Older kernels send 32 frames per call; that works too.
        let _ = set_option(fd.as_fd(), libc::SOL_XDP, MAX_TX_SKB_BUDGET, &SEND_BUDGET);
        Ok(Self {
            fill,
            completion,
            rx,
            tx,
            zero_copy: mode.contains(SocketAddrXdpFlags::XDP_ZEROCOPY),
            fd,
        })
    }

    /// Whether [`XdpSocket::poll`] does the driver's work from now on.
    ///
    /// # Errors
    /// The kernel is older than Linux 5.11 or has no busy polling, or the process lacks
    /// CAP_NET_ADMIN.
    pub(super) fn prefer_busy_poll(&self, name: &str, prefer: bool) -> Result<(), PortError> {
        let on = libc::c_int::from(prefer);
        for (option, value) in [
            (libc::SO_PREFER_BUSY_POLL, on),
            (libc::SO_BUSY_POLL, on * POLL_FOR),
            (libc::SO_BUSY_POLL_BUDGET, POLL_BUDGET as libc::c_int),
        ] {
            set_option(self.fd.as_fd(), libc::SOL_SOCKET, option, &value).map_err(|error| {
                PortError::from_io(format!("busy polling of interface {name}"), error)
            })?;
        }
        Ok(())
    }

    /// Whether a frame has told which instance of NAPI it came by.
    pub(super) fn knows_napi(&self) -> bool {
        let id = get_option(self.fd.as_fd(), libc::SOL_SOCKET, libc::SO_INCOMING_NAPI_ID);
        id.is_ok_and(|id| id > 0)
    }

    pub(super) fn fd(&self) -> &OwnedFd {
        &self.fd
    }

    /// Makes the kernel send what is in the transmit ring, as far as it can now.
    pub(super) fn kick(&self) -> io::Result<()> {
        net::send(&self.fd, &[], SendFlags::DONTWAIT)?;
        Ok(())
    }

    /// Whether it still belongs to an interface. The kernel takes it away for good when the
    /// interface leaves the namespace, and then refuses to be woken.
    pub(super) fn is_bound(&self) -> bool {
        !matches!(self.kick(), Err(error) if error.raw_os_error() == Some(libc::ENXIO))
    }

    /// Makes the driver bring what it has, if the socket [prefers](Self::prefer_busy_poll) that,
    /// and look at the fill ring, if it had run out of buffers.
    pub(super) fn poll(&self) {
        // What it returns is looked at by the next burst.
        let _ = net::recv(&self.fd, &mut [0; 0], RecvFlags::DONTWAIT);
    }

    /// Frames that found no free buffer or no slot in the receive ring, since the socket was
    /// opened.
    pub(super) fn lost(&self) -> u64 {
        // A frame that finds no buffer is counted as dropped or, by drivers without a copy, as an
        // empty descriptor.
        sockopt::xdp_statistics(&self.fd)
            .map_or(0, |statistics| statistics.rx_dropped + statistics.rx_ring_full.unwrap_or(0))
    }
}

fn register(fd: &OwnedFd, umem: &Umem) -> io::Result<()> {
    let registration = XdpUmemReg {
        addr: umem.start() as u64,
        len: umem.len() as u64,
        chunk_size: umem.buffer() as u32,
        headroom: 0,
        flags: XdpUmemRegFlags::empty(),
        tx_metadata_len: 0,
    };
    // The kernel pins the pages; `umem` keeps them from being unmapped while a port has it.
    Ok(sockopt::set_xdp_umem_reg(fd, registration)?)
}

/// Tries again, for at most so long, while the kernel has not yet let go of what was closed: queues
/// and programs are given up by workers of its own, which a loaded machine keeps waiting.
pub(super) fn patiently<T>(
    at_most: Duration,
    mut attempt: impl FnMut() -> io::Result<T>,
) -> io::Result<T> {
    let begin = Instant::now();
    loop {
        match attempt() {
            Err(error)
                if error.raw_os_error() == Some(libc::EBUSY) && begin.elapsed() < at_most =>
            {
                std::thread::sleep(PAUSE);
            }
            result => return result,
        }
    }
}
