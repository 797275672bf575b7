//! A Linux interface as a port: AF_XDP, with the buffers of the [`FramePool`] shared with the kernel.
//!
//! A frame that arrives is copied once, from the driver into a buffer of the pool (not at all where the driver can write there itself), is
//! forwarded where it lies, and is sent from there. What this back end takes care of:
//!
//! - which frames are ours and which the kernel's: the program in the driver (`program.rs`) decides before a packet exists for the kernel,
//!   so no [guard](crate::guard) is needed, and when this process ends, however it does, the kernel gets all frames again and forwards them;
//! - the kernel's arrival stamps, as metadata before each frame;
//! - transport checksums that a veth host has left out (`checksum.rs`);
//! - native or generic mode, without or with a copy: the best that the driver takes, and [`AfXdpPort::mode`] says which;
//! - several receive queues: a socket for each, all in one port, or divided among the ports of several workers (`shared.rs`);
//! - an interface that vanishes makes the port [`PortState::Gone`], and [`Port::reopen`] finds it again by name.
//!
//! **Buffers.** Those in the fill and transmit rings belong to the kernel; [`FramePool::in_use`] counts them,
//! [`Port::lent`] tells how many they are. `in_use = held by frames + lent` at all times. After [`Port::reopen`] the kernel has none until the next
//! burst.

mod checksum;
mod program;
mod ring;
mod shared;
mod socket;

use std::collections::VecDeque;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::Arc;

use evenkeel_core::{Nanos, Reason};

use crate::bpf::{AttachType, Link, Map, MapKind, Program, ProgramKind};
use crate::classify::LocalAddresses;
use crate::error::PortError;
use crate::ethtool::{driver, queues};
use crate::interface::{Control, Interface};
use crate::pool::{Frame, FramePool, Umem};
use crate::port::{Port, PortCounters, PortState, RxFrame, vlan_of};
use crate::sys::{Poller, take_error};
use shared::Sockets;
pub use shared::{XdpCommon, XdpPart};
use socket::{XdpSocket, patiently};

/// What the kernel keeps free before a frame that it receives, bytes of each buffer.
const KERNEL_HEADROOM: usize = 256;
/// Ethernet header and one VLAN tag.
const FRAME_OVERHEAD: usize = 18;
/// How often a port whose link is down looks at it.
const LOOK_EVERY: Nanos = Nanos(1_000_000);
/// How far a stamp may lie in the past before it is taken for a leftover.
const STAMP_CREDIBLE: Nanos = Nanos(10_000_000_000);
/// How long frames that the kernel would not take are left alone.
const RETRY_SEND: Nanos = Nanos(50_000);
/// System calls that one burst may take to be sent.
const KICKS: u32 = 16;

/// `XDP_FLAGS_DRV_MODE` and `XDP_FLAGS_SKB_MODE`.
const NATIVE: u32 = 4;
const GENERIC: u32 = 2;

/// How an interface is opened.
#[derive(Clone, Copy, Debug)]
pub struct AfXdpOptions {
    /// Slots of each ring, per receive queue; a power of two, 64..=16384. A port lends the kernel up to twice as many buffers per queue.
    pub ring: u32,
    /// How many buffers wait in the rings of all receive queues of this port together, at most: with several queues rings are shortened to fit, but not below 64 slots.
    /// `None`: `ring` for each, whatever that leaves in the pool for anything else.
    pub buffers: Option<usize>,
    /// Only the driver's own hook, with an error where the driver has none. Otherwise the generic hook is the second choice.
    pub native_only: bool,
    /// How many receive queues the interface is expected to have; an error if it has another number. `None`: however many there are.
    pub queues: Option<u32>,
    /// The kernel stamps one in so many frames; a power of two, 1..=64. The others count as arrived with the stamped one before them, or when their
    /// queue was last found empty, whichever is later: as good as a stamp for a port that is asked all the time, and cheaper for the sender.
    pub stamp_every: u32,
}

impl Default for AfXdpOptions {
    fn default() -> Self {
        Self { ring: 2048, buffers: None, native_only: false, queues: None, stamp_every: 1 }
    }
}

impl AfXdpOptions {
    /// Slots of each ring with so many queues.
    fn ring_of(&self, queues: usize) -> u32 {
        let each = self.buffers.map_or(usize::MAX, |all| all / queues.max(1));
        let fits = 1 << each.clamp(64, self.ring as usize).ilog2();
        self.ring.min(fits)
    }

    fn check(&self) -> Result<(), PortError> {
        for (knob, value, valid, range) in [
            ("ring", self.ring, 64..=16_384, "a power of two, 64 to 16384"),
            ("stamp_every", self.stamp_every, 1..=64, "a power of two, 1 to 64"),
        ] {
            if !(value.is_power_of_two() && valid.contains(&value)) {
                return Err(PortError::OutOfRange { knob, value: u64::from(value), range });
            }
        }
        Ok(())
    }
}

/// What the driver took.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct XdpMode {
    /// The program runs in the driver; else in the generic hook behind it.
    pub native: bool,
    /// The driver reads and writes the buffers itself; else the kernel copies each frame once.
    pub zero_copy: bool,
    /// Receive queues of this port, a socket for each.
    pub queues: u32,
    /// Receive queues of the interface: more if other workers' ports have the rest.
    pub of: u32,
}

impl std::fmt::Display for XdpMode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let hook = if self.native { "native" } else { "generic" };
        let copy = if self.zero_copy { "zero-copy" } else { "copy" };
        write!(f, "AF_XDP, {hook}, {copy}, {}", self.queues)?;
        if self.queues < self.of {
            write!(f, " of {}", self.of)?;
        }
        write!(f, " receive queue{}", if self.of == 1 { "" } else { "s" })
    }
}

/// A Linux interface.
#[derive(Debug)]
pub struct AfXdpPort {
    name: String,
    options: AfXdpOptions,
    umem: Umem,
    // Belongs to the port's namespace, whichever the calling thread is in later.
    control: Control,
    interface: Interface,
    state: PortState,
    looked: Nanos,
    /// Senders may leave checksums to hardware that is not there.
    checksums: bool,
    /// Of the only worker, or the first one.
    hook: Option<Hook>,
    sockets: Arc<Sockets>,
    /// Among several workers.
    part: Option<XdpPart>,
    queues: Vec<Queue>,
    /// Slots of each ring.
    ring: u32,
    /// Joins the descriptors of several queues.
    joined: Option<Poller>,
    /// Buffers of sockets that are closed, to be given back with the next burst.
    orphans: Vec<u32>,
    /// Frames lie in the transmit ring that the kernel would not take at once.
    unsent: bool,
    /// The time of the last burst received.
    last_call: Nanos,
    local: Vec<IpAddr>,
    /// Losses of sockets that are closed.
    lost_before: u64,
    counters: PortCounters,
    /// No frames are wanted any more: see [`Port::stop_receiving`].
    stopped: bool,
}

/// The program at work, and what it looks into. Dropping it gives the kernel all frames again.
#[derive(Debug)]
struct Hook {
    _link: Link,
    station: Map,
    local: LocalAddresses,
}

impl Hook {
    fn attach(
        name: &str,
        interface: &Interface,
        queues: u32,
        local: &[IpAddr],
        options: &AfXdpOptions,
    ) -> Result<(Self, Sockets), PortError> {
        let station = Map::create(MapKind::Array, 4, 8, 1, 0)?;
        set_station(&station, interface.mac)?;
        let local = LocalAddresses::create(local)?;
        let sockets = Map::create(MapKind::XskMap, 4, 4, queues, 0)?;
        let sampled = options.stamp_every > 1;
        let counter = sampled.then(|| Map::create(MapKind::PerCpuArray, 4, 8, 1, 0)).transpose()?;
        let stamped = counter.as_ref().map(|counter| (counter, options.stamp_every));
        let code = program::assemble(&station, local.map(), &sockets, stamped);
        let program = Program::load(ProgramKind::Xdp, "evenkeel_xdp", &code, 0)?;
        let taken = |error: &io::Error| matches!(error.raw_os_error(), Some(libc::EBUSY | libc::EEXIST));
        let (link, native) = match patiently(|| program.link(interface.index, AttachType::Xdp, NATIVE)) {
            Ok(link) => (link, true),
            Err(error) if taken(&error) => return Err(PortError::XdpTaken(name.to_owned())),
            Err(error) if options.native_only => {
                let what = format!("running an XDP program in the driver of {name}");
                return Err(PortError::Unsupported { what, source: error });
            }
            Err(_) => match program.link(interface.index, AttachType::Xdp, GENERIC) {
                Ok(link) => (link, false),
                Err(error) if taken(&error) => return Err(PortError::XdpTaken(name.to_owned())),
                Err(error) => {
                    return Err(PortError::from_io(format!("attaching an XDP program to {name}"), error));
                }
            },
        };
        let sockets = Sockets { map: sockets, ifindex: interface.index, queues, native };
        Ok((Self { _link: link, station, local }, sockets))
    }
}

fn set_station(map: &Map, mac: [u8; 6]) -> Result<(), PortError> {
    let mut value = [0; 8];
    value[..6].copy_from_slice(&mac);
    map.insert(&0u32.to_ne_bytes(), &value)
        .map_err(|error| PortError::from_io("telling an XDP program the hardware address", error))
}

/// A receive queue and the socket that serves it.
#[derive(Debug)]
struct Queue {
    socket: XdpSocket,
    /// Which buffers the kernel has, a bit for each.
    lent: Vec<u64>,
    /// How many of them are in the fill ring or hold frames not yet fetched.
    filled: u32,
    /// How many of them are to be sent.
    sending: u32,
    /// What has not been fetched yet came after this, as far as known.
    since: Nanos,
    /// The program knows the socket: frames of the queue come to it, and no longer to the kernel.
    seated: bool,
}

impl Queue {
    fn lend(&mut self, index: u32) {
        self.lent[index as usize / 64] |= 1 << (index % 64);
    }

    /// Has the program hand over what comes by queue `number`.
    fn seat(&mut self, sockets: &Sockets, name: &str, number: u32) -> Result<(), PortError> {
        if !self.seated {
            sockets.seat(name, number, &self.socket)?;
            self.seated = true;
        }
        Ok(())
    }

    fn returned(&mut self, index: u32) {
        self.lent[index as usize / 64] &= !(1 << (index % 64));
    }

    /// Gives the kernel buffers to receive into, as many as the ring takes.
    fn refill(&mut self, pool: &mut FramePool, buffer: usize, ring: u32) {
        let wanted = ring - self.filled;
        // Exchanging cache lines for every few frames costs more than a ring that is a little less full.
        if wanted < ring / 8 {
            return;
        }
        let room = self.socket.fill.room(wanted).min(wanted);
        let mut given = 0;
        while given < room
            && let Some(index) = pool.lend()
        {
            self.socket.fill.push(u64::from(index) * buffer as u64);
            self.lend(index);
            given += 1;
        }
        if given > 0 {
            self.filled += given;
            self.socket.fill.publish();
            if self.socket.fill.wants_wakeup() {
                self.socket.refilled();
            }
        }
    }

    /// Takes back the buffers of frames that have been sent.
    fn reclaim(&mut self, pool: &mut FramePool, buffer: usize) {
        if self.sending == 0 {
            return;
        }
        let mut taken = 0;
        while let Some(address) = self.socket.completion.next() {
            let index = (address / buffer as u64) as u32;
            self.returned(index);
            pool.returned(index);
            taken += 1;
        }
        if taken > 0 {
            self.sending -= taken;
            self.socket.completion.release();
        }
    }
}

impl AfXdpPort {
    /// Opens `interface` in the network namespace of the calling thread, with the buffers of `pool`, which every later call must be given too.
    /// `local` are the addresses that the machine itself receives: see [`Port::set_local`]. The interface need not be up.
    ///
    /// # Errors
    /// There is no such interface, or another XDP program is there; an option is out of range, or the interface has another number of
    /// queues; its MTU does not fit the buffers, or these are not 2048 or 4096 bytes; no AF_XDP in this kernel; too little memory may
    /// be locked; or the process lacks CAP_NET_ADMIN, CAP_NET_RAW and CAP_BPF.
    pub fn open(
        interface: &str,
        options: AfXdpOptions,
        pool: &mut FramePool,
        local: &[IpAddr],
    ) -> Result<Self, PortError> {
        let mut port = Self::open_beside(interface, options, pool.umem(), local, None)?;
        port.begin(pool)?;
        Ok(port)
    }

    /// As [`AfXdpPort::open`], for one of several workers, each with a pool of its own: this port has every `workers`-th receive queue, and sends by the first
    /// of them. The first worker's port opens before the others, and takes the program with it when it is dropped: then the kernel has all queues.
    ///
    /// # Errors
    /// As [`AfXdpPort::open`]; also [`PortError::FewQueues`], and [`PortError::NotAttached`] from a worker that is not the first one.
    pub fn open_part(
        interface: &str,
        options: AfXdpOptions,
        pool: &mut FramePool,
        local: &[IpAddr],
        part: XdpPart,
    ) -> Result<Self, PortError> {
        let mut port = Self::open_beside(interface, options, pool.umem(), local, Some(part))?;
        port.begin(pool)?;
        Ok(port)
    }

    /// Opens a port with the memory of a pool that another thread works with. Until the first burst, which must come with that pool, the kernel goes on receiving
    /// what comes by the interface: it has no buffers of ours yet. `part`: see [`AfXdpPort::open_part`]; `None`: for the only worker.
    ///
    /// # Errors
    /// As [`AfXdpPort::open`] and [`AfXdpPort::open_part`].
    pub fn open_beside(
        interface: &str,
        options: AfXdpOptions,
        umem: Umem,
        local: &[IpAddr],
        part: Option<XdpPart>,
    ) -> Result<Self, PortError> {
        options.check()?;
        if !matches!(umem.buffer(), 2048 | 4096) {
            let range = "2048 or 4096 bytes with AF_XDP";
            return Err(PortError::OutOfRange { knob: "buffer_size", value: umem.buffer() as u64, range });
        }
        let control = Control::open()?;
        let found = control.interface(interface)?;
        let Attached { hook, sockets, queues, ring, joined } =
            attach(interface, &control, &found, &options, &umem, local, part.as_ref())?;
        Ok(Self {
            name: interface.to_owned(),
            checksums: driver(&control, interface)? == "veth",
            options,
            umem,
            control,
            interface: found,
            state: state_of(&found),
            looked: Nanos::ZERO,
            hook,
            sockets,
            part,
            queues,
            ring,
            joined,
            orphans: Vec::new(),
            unsent: false,
            last_call: Nanos::ZERO,
            local: local.to_vec(),
            lost_before: 0,
            counters: PortCounters::default(),
            stopped: false,
        })
    }

    /// Lends the kernel buffers to receive into, and then has it hand over what comes.
    fn begin(&mut self, pool: &mut FramePool) -> Result<(), PortError> {
        for (queue, number) in self.queues.iter_mut().zip(numbers(self.part.as_ref(), self.sockets.queues)) {
            queue.refill(pool, self.umem.buffer(), self.ring);
            queue.seat(&self.sockets, &self.name, number)?;
        }
        Ok(())
    }

    /// What the driver took.
    #[must_use]
    pub fn mode(&self) -> XdpMode {
        XdpMode {
            native: self.sockets.native,
            zero_copy: self.queues.iter().all(|queue| queue.socket.zero_copy),
            queues: self.queues.len() as u32,
            of: self.sockets.queues,
        }
    }

    /// Looks at the interface as it is now, by its number. It may have been renamed; the port's name stays.
    fn look(&mut self) {
        if self.queues.is_empty() {
            // Closed: whatever the interface is like, this port has nothing of it.
            self.state = PortState::Gone;
            return;
        }
        let found = self
            .control
            .name_of(self.interface.index)
            .and_then(|name| self.control.interface(&name).ok())
            .filter(|found| found.index == self.interface.index);
        let Some(found) = found else {
            self.state = PortState::Gone;
            if let Some(part) = self.part.as_ref().filter(|part| part.leads()) {
                part.common.put(None);
            }
            return;
        };
        let moved = found.mac != self.interface.mac;
        if moved && self.hook.as_ref().is_some_and(|hook| set_station(&hook.station, found.mac).is_err()) {
            // Frames to the new address go to the kernel, which forwards them.
            self.state = PortState::Down;
            return;
        }
        self.interface = found;
        self.state = state_of(&found);
    }

    fn lost(&self) -> u64 {
        self.lost_before + self.queues.iter().map(|queue| queue.socket.lost()).sum::<u64>()
    }

    /// Closes the socket of a queue. The kernel has none of its buffers any more then.
    fn orphan(&mut self, old: Queue) {
        let lent = old.lent.clone();
        drop(old);
        for (word, bits) in lent.into_iter().enumerate() {
            self.orphans.extend((0..64).filter(|bit| bits >> bit & 1 == 1).map(|bit| word as u32 * 64 + bit));
        }
    }

    /// Makes the kernel send what lies in the transmit ring, as far as it takes it now.
    fn kick(&mut self) {
        let socket = &mut self.queues[0].socket;
        let mut dead = false;
        for _ in 0..KICKS {
            if socket.tx.waiting() == 0 {
                self.unsent = false;
                return;
            }
            if !socket.tx.wants_wakeup() {
                break;
            }
            match socket.kick().map_err(|error| error.raw_os_error()) {
                // One call sends a part, or the driver is busy.
                Ok(()) | Err(Some(libc::EAGAIN | libc::EBUSY)) => {}
                Err(Some(libc::ENOBUFS)) => break,
                Err(_) => {
                    dead = true;
                    break;
                }
            }
        }
        self.unsent = true;
        if dead {
            self.look();
        }
    }
}

const fn state_of(interface: &Interface) -> PortState {
    if interface.running { PortState::Up } else { PortState::Down }
}

/// What a port has of an interface.
struct Attached {
    hook: Option<Hook>,
    sockets: Arc<Sockets>,
    queues: Vec<Queue>,
    ring: u32,
    joined: Option<Poller>,
}

/// The receive queues of a port, of so many.
fn numbers(part: Option<&XdpPart>, queues: u32) -> Vec<u32> {
    match part {
        Some(part) => part.queues(queues).collect(),
        None => (0..queues).collect(),
    }
}

/// The program, unless it is another worker's, and a socket for every receive queue of this port.
fn attach(
    name: &str,
    control: &Control,
    interface: &Interface,
    options: &AfXdpOptions,
    umem: &Umem,
    local: &[IpAddr],
    part: Option<&XdpPart>,
) -> Result<Attached, PortError> {
    let longest = umem.buffer() - KERNEL_HEADROOM;
    if interface.mtu as usize + FRAME_OVERHEAD > longest {
        return Err(PortError::MtuTooLong {
            interface: name.to_owned(),
            mtu: interface.mtu,
            longest: (longest - FRAME_OVERHEAD) as u32,
        });
    }
    let has = queues(control, name)?;
    if let Some(wanted) = options.queues.filter(|wanted| *wanted != has.receive) {
        return Err(PortError::QueueCount { interface: name.to_owned(), has: has.receive, wanted });
    }
    let (hook, sockets) = match part {
        Some(part) if !part.leads() => {
            let common = part.common.get().filter(|sockets| sockets.ifindex == interface.index);
            (None, common.ok_or_else(|| PortError::NotAttached(name.to_owned()))?)
        }
        _ => {
            part.map_or(Ok(()), |part| part.check(name, has))?;
            let (hook, sockets) = Hook::attach(name, interface, has.receive, local, options)?;
            (Some(hook), Arc::new(sockets))
        }
    };
    let numbers = numbers(part, sockets.queues);
    let ring = options.ring_of(numbers.len());
    let mut queues = Vec::with_capacity(numbers.len());
    for number in numbers {
        let socket = XdpSocket::open(umem, name, interface.index, number, ring, sockets.native)?;
        let lent = vec![0; umem.buffers().div_ceil(64)];
        queues.push(Queue { socket, lent, filled: 0, sending: 0, since: Nanos::ZERO, seated: false });
    }
    let joined = if queues.len() > 1 {
        let what = || format!("joining the queues of {name}");
        let joined = Poller::new().map_err(|error| PortError::from_io(what(), error))?;
        for (number, queue) in queues.iter().enumerate() {
            joined
                .add(queue.socket.fd().as_raw_fd(), number as u64)
                .map_err(|error| PortError::from_io(what(), error))?;
        }
        Some(joined)
    } else {
        None
    };
    if let Some(part) = part.filter(|part| part.leads()) {
        part.common.put(Some(Arc::clone(&sockets)));
    }
    Ok(Attached { hook, sockets, queues, ring, joined })
}

impl Port for AfXdpPort {
    fn name(&self) -> &str {
        &self.name
    }

    fn io(&self) -> String {
        self.mode().to_string()
    }

    fn lent(&self) -> usize {
        let lent = |queue: &Queue| queue.lent.iter().map(|word| word.count_ones() as usize).sum::<usize>();
        self.queues.iter().map(lent).sum::<usize>() + self.orphans.len()
    }

    /// With several queues the frames of one call are in order of arrival, but a frame left for the next call may have come earlier.
    fn rx_burst(&mut self, pool: &mut FramePool, now: Nanos, out: &mut Vec<RxFrame>, max: usize) -> usize {
        let first = out.len();
        let buffer = self.umem.buffer();
        let oldest = now.saturating_sub(STAMP_CREDIBLE);
        let sampled = self.options.stamp_every > 1;
        self.last_call = now;
        for index in self.orphans.drain(..) {
            pool.returned(index);
        }
        if self.unsent {
            self.kick();
        }
        for queue in &mut self.queues {
            let mut taken = 0;
            while out.len() - first < max
                && let Some(received) = queue.socket.rx.next()
            {
                taken += 1;
                let (index, offset) =
                    (received.addr / buffer as u64, (received.addr % buffer as u64) as usize);
                queue.returned(index as u32);
                let Some(mut frame) = pool.adopt(index as u32, offset, received.len as usize) else {
                    unreachable!("the kernel writes inside the buffers it was given");
                };
                let stamp = pool.before(&frame, program::STAMP).and_then(program::stamp).map(Nanos);
                let stamp = stamp.filter(|stamp| *stamp >= oldest);
                let arrival = if sampled {
                    // The next frame here may come without one, and must not be given this one's.
                    if let (Some(_), Some(bytes)) = (stamp, pool.before_mut(&frame, program::STAMP)) {
                        bytes.fill(0);
                    }
                    queue.since = stamp.map_or(queue.since, |stamp| stamp.max(queue.since)).min(now);
                    queue.since
                } else {
                    stamp.map_or(now, |stamp| stamp.min(now))
                };
                let bytes = pool.bytes(&frame);
                let vlan = vlan_of(bytes);
                frame.set_partial_checksum(self.checksums && checksum::is_partial(bytes));
                self.counters.rx_frames += 1;
                self.counters.rx_bytes += u64::from(received.len);
                out.push(RxFrame { frame, arrival, vlan });
            }
            if taken > 0 {
                queue.filled -= taken;
                queue.socket.rx.release();
            }
            if out.len() - first < max {
                queue.since = now;
            }
            queue.reclaim(pool, buffer);
            queue.refill(pool, buffer, self.ring);
        }
        if !self.stopped && self.queues.iter().any(|queue| !queue.seated) {
            // Refused, the kernel goes on receiving, and it is tried again with the next burst.
            let _ = self.begin(pool);
        }
        let received = out.len() - first;
        if self.queues.len() > 1 {
            out[first..].sort_by_key(|frame| frame.arrival);
        }
        if received > 0 {
            self.state = PortState::Up;
        } else if now >= self.looked + LOOK_EVERY {
            self.looked = now;
            let failed = self.queues.iter().any(|queue| take_error(queue.socket.fd().as_fd()));
            // A link that is not up has to be looked at again: no frame and no error tells that it is back.
            if failed || self.state == PortState::Down {
                self.look();
            }
        }
        received
    }

    fn tx_burst(&mut self, pool: &mut FramePool, frames: &mut VecDeque<Frame>) -> usize {
        if self.state == PortState::Gone {
            return 0;
        }
        let buffer = self.umem.buffer();
        let longest = self.interface.mtu as usize + FRAME_OVERHEAD;
        let queue = &mut self.queues[0];
        queue.reclaim(pool, buffer);
        let mut room = queue.socket.tx.room(frames.len() as u32);
        let (mut taken, mut pushed) = (0, 0);
        while room > 0
            && let Some(frame) = frames.pop_front()
        {
            taken += 1;
            if frame.len() > longest {
                self.counters.drop_one(Reason::PortRefused);
                pool.release(frame);
                continue;
            }
            let len = frame.len() as u32;
            let (index, start) = pool.lend_frame(frame);
            queue.socket.tx.push(libc::xdp_desc { addr: start as u64, len, options: 0 });
            queue.lend(index);
            self.counters.tx_frames += 1;
            self.counters.tx_bytes += u64::from(len);
            pushed += 1;
            room -= 1;
        }
        if pushed > 0 {
            queue.sending += pushed;
            queue.socket.tx.publish();
        }
        if pushed > 0 || self.unsent {
            self.kick();
            self.queues[0].reclaim(pool, buffer);
        }
        if !frames.is_empty() {
            self.counters.tx_blocked += 1;
        }
        taken
    }

    fn fd(&self) -> Option<RawFd> {
        Some(match &self.joined {
            Some(joined) => joined.as_fd().as_raw_fd(),
            None => self.queues.first()?.socket.fd().as_raw_fd(),
        })
    }

    fn state(&self) -> PortState {
        self.state
    }

    fn mac(&self) -> [u8; 6] {
        self.interface.mac
    }

    fn mtu(&self) -> u32 {
        self.interface.mtu
    }

    fn counters(&mut self) -> PortCounters {
        self.counters.ring_loss = self.lost();
        self.counters
    }

    fn next_due(&self) -> Option<Nanos> {
        self.unsent.then(|| self.last_call + RETRY_SEND)
    }

    fn kernel_has_copy(&self) -> bool {
        false
    }

    fn set_local(&mut self, addresses: &[IpAddr]) -> Result<(), PortError> {
        if let Some(hook) = &mut self.hook {
            hook.local.set(addresses)?;
        }
        self.local.clear();
        self.local.extend_from_slice(addresses);
        Ok(())
    }

    fn stop_receiving(&mut self) {
        self.stopped = true;
        for (queue, number) in self.queues.iter_mut().zip(numbers(self.part.as_ref(), self.sockets.queues)) {
            if std::mem::take(&mut queue.seated) {
                // What comes by a queue that is not in the map is the kernel's. One that is gone with its interface is in no map.
                let _ = self.sockets.map.remove(&number.to_ne_bytes());
            }
        }
    }

    fn close(&mut self, pool: &mut FramePool) {
        self.stop_receiving();
        if self.unsent {
            self.kick();
        }
        self.lost_before = self.lost();
        if let Some(part) = self.part.as_ref().filter(|part| part.leads()) {
            part.common.put(None);
        }
        (self.hook, self.joined) = (None, None);
        for old in std::mem::take(&mut self.queues) {
            self.orphan(old);
        }
        for index in self.orphans.drain(..) {
            pool.returned(index);
        }
        (self.unsent, self.state) = (false, PortState::Gone);
    }

    fn reopen(&mut self) -> Result<bool, PortError> {
        self.stopped = false;
        for queue in &self.queues {
            take_error(queue.socket.fd().as_fd());
        }
        self.look();
        if self.state != PortState::Gone {
            return Ok(false);
        }
        let control = Control::open()?;
        let found = control.interface(&self.name)?;
        let part = self.part.as_ref();
        let Attached { hook, sockets, queues, ring, joined } =
            attach(&self.name, &control, &found, &self.options, &self.umem, &self.local, part)?;
        self.lost_before = self.lost();
        self.hook = hook;
        self.sockets = sockets;
        self.ring = ring;
        self.joined = joined;
        for old in std::mem::replace(&mut self.queues, queues) {
            self.orphan(old);
        }
        self.unsent = false;
        self.checksums = driver(&control, &self.name)? == "veth";
        self.control = control;
        self.interface = found;
        self.state = state_of(&found);
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rings_of_several_queues_leave_buffers_in_the_pool() {
        let of = |buffers, queues| AfXdpOptions { buffers, ..AfXdpOptions::default() }.ring_of(queues);
        assert_eq!((of(None, 16), of(Some(2048), 1), of(Some(100_000), 4)), (2048, 2048, 2048));
        assert_eq!(
            (of(Some(2048), 2), of(Some(2048), 3), of(Some(100), 4), of(Some(0), 0)),
            (1024, 512, 64, 64)
        );
    }
}
