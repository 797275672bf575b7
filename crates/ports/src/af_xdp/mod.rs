//! A Linux interface as a port: AF_XDP, with the buffers of the [`FramePool`] shared with the
//! kernel.
//!
//! A frame that arrives is copied once, from the driver into a buffer of the pool (not at all where
//! the driver can write there itself), is forwarded where it lies, and is sent from there. What
//! this back end takes care of:
//!
//! - which frames are ours and which the kernel's: the program in the driver (`program.rs`,
//!   `hook.rs`) decides before a packet exists for the kernel, so no [guard](crate::guard) is
//!   needed, and when this process ends, however it does, the kernel gets all frames again and
//!   forwards them;
//! - the kernel's arrival stamps, as metadata before each frame;
//! - transport checksums that a veth host has left out (`checksum.rs`);
//! - native or generic mode, without or with a copy: the best that the driver takes, and
//!   [`AfXdpPort::mode`] says which;
//! - what opening takes and what may stand in its way (`attach.rs`), and bursts (`bursts.rs`),
//!   queue by queue (`queue.rs`);
//! - several receive queues: a socket for each, all in one port, or divided among the ports of
//!   several workers (`shared.rs`);
//! - frames longer than a buffer (`pieces.rs`);
//! - an interface that vanishes makes the port [`PortState::Gone`], and [`Port::reopen`] finds it
//!   again by name.
//!
//! **Buffers.** Those in the fill and transmit rings belong to the kernel; [`FramePool::in_use`]
//! counts them, [`Port::lent`] tells how many they are. `in_use = held by frames + lent` at all
//! times. After [`Port::reopen`] the kernel has none until the next burst.

mod attach;
mod bursts;
mod checksum;
mod hook;
mod options;
mod pieces;
mod program;
mod queue;
mod ring;
mod shared;
mod socket;

use std::collections::VecDeque;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use evenkeel_core::Nanos;

use crate::error::PortError;
use crate::ethtool::driver;
use crate::interface::{Control, Interface};
use crate::parcel::{Kind, Parcel};
use crate::pool::{Frame, FramePool, Umem};
use crate::port::{Port, PortCounters, PortState, RxFrame, RxWaiting};
use crate::sys::{Poller, take_error};
use attach::{Attached, Wanted, numbers};
use hook::Hook;
pub use options::{AfXdpOptions, OwnFrames, XdpMode};
pub use pieces::{buffers_of, longest_mtu};
use queue::Queue;
use shared::Sockets;
pub use shared::{XdpCommon, XdpPart};
use socket::Patience;

/// How long frames that the kernel would not take are left alone.
const RETRY_SEND: Nanos = Nanos(50_000);

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
    /// Frames may be longer than a buffer.
    pieces: bool,
    /// Which of them is asked first by the next burst.
    first: usize,
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

impl AfXdpPort {
    /// Opens `interface` in the network namespace of the calling thread, with the buffers of
    /// `pool`, which every later call must be given too. `local` are the addresses that the machine
    /// itself receives: see [`Port::set_local`]. The interface need not be up.
    ///
    /// # Errors
    /// There is no such interface, or another XDP program is there; an option is out of range, or
    /// the interface has another number of queues; its MTU does not fit the buffers, or these are
    /// not 2048 or 4096 bytes; no AF_XDP in this kernel; too little memory may be locked; or the
    /// process lacks CAP_NET_ADMIN, CAP_NET_RAW and CAP_BPF.
    pub fn open(
        interface: &str,
        options: AfXdpOptions,
        pool: &mut FramePool,
        local: &[IpAddr],
    ) -> Result<Self, PortError> {
        let mut port = Self::open_beside(interface, options, pool.umem(), local, None)?;
        port.begin(pool).map_err(|error| port.unless_gone(error))?;
        Ok(port)
    }

    /// As [`AfXdpPort::open`], for one of several workers, each with a pool of its own: this port
    /// has every `workers`-th receive queue, and sends by the first of them. The first worker's
    /// port opens before the others, and takes the program with it when it is dropped: then the
    /// kernel has all queues.
    ///
    /// # Errors
    /// As [`AfXdpPort::open`]; also [`PortError::FewQueues`], and [`PortError::NotAttached`] from a
    /// worker that is not the first one.
    pub fn open_part(
        interface: &str,
        options: AfXdpOptions,
        pool: &mut FramePool,
        local: &[IpAddr],
        part: XdpPart,
    ) -> Result<Self, PortError> {
        let mut port = Self::open_beside(interface, options, pool.umem(), local, Some(part))?;
        port.begin(pool).map_err(|error| port.unless_gone(error))?;
        Ok(port)
    }

    /// Opens a port with the memory of a pool that another thread works with. Until the first
    /// burst, which must come with that pool, the kernel goes on receiving what comes by the
    /// interface: it has no buffers of ours yet. `part`: see [`AfXdpPort::open_part`]; `None`: for
    /// the only worker.
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
            return Err(PortError::OutOfRange {
                knob: "buffer_size",
                value: umem.buffer() as u64,
                range,
            });
        }
        let control = Control::open()?;
        let found = control.interface(interface)?;
        let attached = Wanted {
            name: interface,
            control: &control,
            interface: &found,
            options: &options,
            umem: &umem,
            local,
            part: part.as_ref(),
            patience: Patience::AtStart,
        }
        .attach()?;
        Self::of(interface, (control, found), attached, (options, umem, local, part))
    }

    /// The port of an interface that has been taken into use.
    fn of(
        name: &str,
        (control, interface): (Control, Interface),
        attached: Attached,
        (options, umem, local, part): (AfXdpOptions, Umem, &[IpAddr], Option<XdpPart>),
    ) -> Result<Self, PortError> {
        let Attached { hook, sockets, queues, ring, joined } = attached;
        Ok(Self {
            name: name.to_owned(),
            checksums: driver(&control, name)? == "veth",
            options,
            umem,
            control,
            interface,
            state: state_of(&interface),
            looked: Nanos::ZERO,
            hook,
            pieces: sockets.pieces,
            sockets,
            part,
            queues,
            first: 0,
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

    /// The port of another process, with its sockets and their rings, in the network namespace of
    /// the calling thread. `umem`: the memory of the pool that is [of that
    /// process](FramePool::of_passed), which is to be told [which buffers](Self::lent_buffers) the
    /// kernel has. `part`: as [`AfXdpPort::open_part`]; the first worker's port comes first.
    ///
    /// # Errors
    /// Something else was passed on, or the kernel does not give the rings again (Linux 6.4).
    pub fn adopt(
        interface: &str,
        options: AfXdpOptions,
        umem: Umem,
        local: &[IpAddr],
        part: Option<XdpPart>,
        parcel: &mut Parcel,
    ) -> Result<Self, PortError> {
        parcel.expect(Kind::AfXdp)?;
        options.check()?;
        let control = Control::open()?;
        let found = control.interface(interface)?;
        let (ring, count, unsent) = (parcel.take()? as u32, parcel.take()?, parcel.take()? != 0);
        let queues = (0..count).map(|_| Queue::of_passed(ring, umem.buffers(), parcel));
        let mut queues = queues.collect::<Result<Vec<_>, _>>()?;
        for queue in &mut queues {
            // The other process may have done otherwise.
            queue.socket.prefer_busy_poll(interface, options.busy_poll)?;
            if options.busy_poll {
                queue.look_for_napi();
            }
        }
        let (hook, sockets) = match &part {
            Some(part) if !part.leads() => {
                let common = part.common.get();
                (None, common.ok_or_else(|| PortError::NotAttached(interface.to_owned()))?)
            }
            part => {
                let workers = part.as_ref().map_or(1, |part| part.workers);
                let (hook, sockets) = Hook::adopt(&found, workers, local, &options, parcel)?;
                (Some(hook), Arc::new(sockets))
            }
        };
        if let Some(part) = part.as_ref().filter(|part| part.leads()) {
            part.common.put(Some(Arc::clone(&sockets)));
        }
        let joined = attach::join(interface, &queues)?;
        let attached = Attached { hook, sockets, queues, ring, joined };
        let more = (options, umem, local, part);
        Ok(Self { unsent, ..Self::of(interface, (control, found), attached, more)? })
    }

    /// Whether the next port in a parcel is one of these.
    #[must_use]
    pub fn is_next(parcel: &Parcel) -> bool {
        parcel.is_next(Kind::AfXdp)
    }

    /// The numbers of the buffers that the kernel has.
    pub fn lent_buffers(&self) -> impl Iterator<Item = u32> {
        self.queues.iter().flat_map(Queue::lent_buffers)
    }

    /// Lends the kernel buffers to receive into, and then has it hand over what comes.
    fn begin(&mut self, pool: &mut FramePool) -> Result<(), PortError> {
        for (queue, number) in
            self.queues.iter_mut().zip(numbers(self.part.as_ref(), self.sockets.queues))
        {
            queue.refill(pool, self.umem.buffer(), self.ring);
            queue.seat(&self.sockets, &self.name, number)?;
        }
        Ok(())
    }

    fn unless_gone(&self, error: PortError) -> PortError {
        self.control.unless_gone(&self.name, self.interface.index, error)
    }

    /// What the driver took.
    #[must_use]
    pub fn mode(&self) -> XdpMode {
        XdpMode {
            native: self.sockets.native,
            pieces: self.pieces,
            zero_copy: self.queues.iter().all(|queue| queue.socket.zero_copy),
            polls: self.options.busy_poll.then(|| self.knows_napi()),
            queues: self.queues.len() as u32,
            of: self.sockets.queues,
        }
    }

    /// Looks at the interface as it is now, by its number. It may have been renamed; the port's
    /// name stays.
    fn look(&mut self) {
        if self.queues.is_empty() {
            // Closed: whatever the interface is like, this port has nothing of it.
            self.state = PortState::Gone;
            return;
        }
        // An interface that left the namespace may come back with the number it had: the kernel
        // has taken sockets and program from it for good.
        let bound = self.queues.iter().all(|queue| queue.socket.is_bound());
        let found = self
            .control
            .name_of(self.interface.index)
            .and_then(|name| self.control.interface(&name).ok())
            .filter(|found| bound && found.index == self.interface.index);
        let Some(found) = found else {
            self.state = PortState::Gone;
            // The program would go with the interface wherever it went, and keep packets from
            // whoever has it now, us included.
            self.hook = None;
            if let Some(part) = self.part.as_ref().filter(|part| part.leads()) {
                part.common.put(None);
            }
            return;
        };
        let moved = found.mac != self.interface.mac;
        if moved && self.hook.as_ref().is_some_and(|hook| hook.set_station(found.mac).is_err()) {
            // Frames to the new address go to the kernel, which forwards them.
            self.state = PortState::Down;
            return;
        }
        self.interface = found;
        self.state = state_of(&found);
        self.follow_program();
    }

    /// The first worker may have put another program there since: an interface that leaves twice in
    /// a moment has several, with one number. The next burst gives the sockets to the one there is.
    fn follow_program(&mut self) {
        let others = self.part.as_ref().filter(|part| !part.leads());
        let there = others.and_then(|part| part.common.get());
        if let Some(there) = there.filter(|there| there.ifindex == self.interface.index)
            && !Arc::ptr_eq(&there, &self.sockets)
        {
            self.sockets = there;
            self.queues.iter_mut().for_each(|queue| queue.seated = false);
        }
    }

    fn lost(&self) -> u64 {
        self.lost_before + self.queues.iter().map(|queue| queue.socket.lost()).sum::<u64>()
    }

    /// Whether frames are longer by now than the buffers that each may have.
    fn is_outgrown(&self) -> bool {
        self.interface.mtu > longest_mtu(self.umem.buffer(), self.pieces)
    }

    /// Gives the kernel the interface back. The pool gets the buffers that it had with the next
    /// burst.
    fn give_up(&mut self) {
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
        (self.unsent, self.state) = (false, PortState::Gone);
    }

    /// Closes the socket of a queue. The kernel has none of its buffers any more then.
    fn orphan(&mut self, old: Queue) {
        self.orphans.extend(old.close());
    }
}

const fn state_of(interface: &Interface) -> PortState {
    if interface.running { PortState::Up } else { PortState::Down }
}

impl Port for AfXdpPort {
    fn name(&self) -> &str {
        &self.name
    }

    fn io(&self) -> String {
        self.mode().to_string()
    }

    fn pass_on(&mut self, parcel: &mut Parcel) -> Result<(), PortError> {
        if self.state == PortState::Gone {
            return Err(PortError::NotPassed("an interface is missing"));
        }
        parcel.begin(Kind::AfXdp);
        parcel.put(self.ring.into());
        parcel.put(self.queues.len() as u64);
        parcel.put(self.unsent.into());
        self.queues.iter().try_for_each(|queue| queue.pass_on(parcel))?;
        self.hook.iter().try_for_each(|hook| hook.pass_on(&self.sockets, parcel))
    }

    fn lent(&self) -> usize {
        self.queues.iter().map(Queue::lent).sum::<usize>() + self.orphans.len()
    }

    fn rx_burst(
        &mut self,
        pool: &mut FramePool,
        now: Nanos,
        out: &mut Vec<RxFrame>,
        max: usize,
    ) -> usize {
        if self.pieces {
            self.receive::<true>(pool, now, out, max)
        } else {
            self.receive::<false>(pool, now, out, max)
        }
    }

    fn tx_burst(&mut self, pool: &mut FramePool, frames: &mut VecDeque<Frame>) -> usize {
        self.send(pool, frames)
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(match &self.joined {
            Some(joined) => joined.as_fd(),
            None => self.queues.first()?.socket.fd().as_fd(),
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

    fn rx_waiting(&self) -> Option<RxWaiting> {
        let waiting = self.queues.iter().map(|queue| queue.socket.rx.waiting());
        let (frames, fullest) =
            waiting.fold((0, 0), |(sum, most), frames| (sum + frames, most.max(frames)));
        Some(RxWaiting { frames, fullest: fullest * self.queues.len() as u32 })
    }

    fn rx_ring(&self) -> Option<u32> {
        Some(self.ring * self.queues.len() as u32)
    }

    fn kernel_has_copy(&self) -> bool {
        false
    }

    fn knows_napi(&self) -> bool {
        self.queues.iter().any(|queue| queue.napi == Some(true))
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
        for (queue, number) in
            self.queues.iter_mut().zip(numbers(self.part.as_ref(), self.sockets.queues))
        {
            if std::mem::take(&mut queue.seated) {
                // What comes by a queue that is not in the map is the kernel's. One that is gone
                // with its interface is in no map.
                let _ = self.sockets.map.remove(&number.to_ne_bytes());
            }
        }
    }

    fn close(&mut self, pool: &mut FramePool) {
        self.give_up();
        for index in self.orphans.drain(..) {
            pool.returned(index);
        }
    }

    fn reopen(&mut self) -> Result<bool, PortError> {
        for queue in &self.queues {
            take_error(queue.socket.fd().as_fd());
        }
        self.look();
        if self.state != PortState::Gone && self.is_outgrown() {
            // Its sockets and its program are for shorter frames for good.
            self.give_up();
        }
        self.stopped = false;
        if self.state != PortState::Gone {
            return Ok(false);
        }
        let control = Control::open()?;
        let found = control.interface(&self.name)?;
        let part = self.part.as_ref();
        if let Some(part) = part.filter(|part| !part.leads())
            && part.common.get().is_some_and(|common| {
                Arc::ptr_eq(&common, &self.sockets) && common.pieces == self.pieces
            })
        {
            // The first worker has yet to see that the interface is a new one, or has another MTU.
            return Err(PortError::NotAttached(self.name.clone()));
        }
        let Attached { hook, sockets, queues, ring, joined } = Wanted {
            name: &self.name,
            control: &control,
            interface: &found,
            options: &self.options,
            umem: &self.umem,
            local: &self.local,
            part,
            patience: Patience::None,
        }
        .attach()?;
        self.lost_before = self.lost();
        self.hook = hook;
        self.pieces = sockets.pieces;
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
