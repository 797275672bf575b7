//! A Linux interface as a port: AF_PACKET with a memory-mapped receive ring, and `sendmmsg` to
//! send.
//!
//! Works with every driver and on every kernel. What it takes care of:
//!
//! - frames that the machine itself sends, ours included, are not received;
//! - a VLAN tag that the kernel has taken out of the frame is put back;
//! - a frame whose transport checksum its sender (a veth host) has left to the hardware is marked;
//! - a frame longer than a slot or a buffer is dropped and counted, never cut;
//! - the kernel's receive stamps become times of CLOCK_MONOTONIC;
//! - an interface that vanishes makes the port [`PortState::Gone`], and [`Port::reopen`] finds it
//!   again by name.
//!
//! The kernel's own stack receives every frame too: see [`crate::guard`]. Super-frames: see
//! [`crate::offload`].

mod ring;
mod transmit;

use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use evenkeel_core::{Nanos, Reason};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use crate::error::PortError;
use crate::interface::{Control, Interface};
use crate::pool::{Frame, FramePool};
use crate::port::{Port, PortCounters, PortState, RxFrame, RxWaiting, vlan_of};
use crate::sys::{realtime_minus_monotonic, set_option, set_send_buffer, take_error};
use ring::Ring;
use transmit::{Batch, Stop};

/// How a Linux interface is opened.
#[derive(Clone, Copy, Debug)]
pub struct AfPacketOptions {
    /// Frames the receive ring holds, 64..=65536; rounded up to whole blocks of 64 KiB. Each slot
    /// takes 2 KiB or, for longer frames, the next power of two.
    pub ring_frames: u32,
    /// The longest frame that is received whole, bytes, Ethernet header included, a tag that the
    /// driver takes out not, 1518..=65000.
    pub max_frame: u32,
    /// Also receive what is addressed to other stations.
    pub promiscuous: bool,
    /// Hand frames to the driver past the interface's queueing discipline.
    pub qdisc_bypass: bool,
    /// Size of the socket's send buffer, bytes, 65536..=1073741823: what the driver may hold before
    /// sending blocks.
    pub send_buffer: u32,
    /// Share what is received with the other ports of this namespace that were opened on the same
    /// interface with the same number, by the kernel's symmetric hash of addresses and ports: both
    /// directions of a flow come by one of them, and fragments by their addresses. At most 256. The
    /// number tells two groups at one interface apart, of which each receives everything: 0 or 1.
    pub fanout: Option<u8>,
}

impl Default for AfPacketOptions {
    fn default() -> Self {
        Self {
            ring_frames: 4096,
            max_frame: 1920,
            promiscuous: false,
            qdisc_bypass: false,
            send_buffer: 4 << 20,
            fanout: None,
        }
    }
}

impl AfPacketOptions {
    fn check(&self) -> Result<(), PortError> {
        let range = |knob, value: u32, valid: std::ops::RangeInclusive<u32>, range| {
            if valid.contains(&value) {
                Ok(())
            } else {
                Err(PortError::OutOfRange { knob, value: u64::from(value), range })
            }
        };
        range("ring_frames", self.ring_frames, 64..=65_536, "64 to 65536")?;
        range("max_frame", self.max_frame, 1518..=65_000, "1518 to 65000 bytes")?;
        range("send_buffer", self.send_buffer, 65_536..=0x3fff_ffff, "65536 to 1073741823 bytes")
    }
}

/// How often a port that receives nothing looks whether its interface is still there.
const LOOK_EVERY: Nanos = Nanos(1_000_000);

/// Distinguishes the numbers of our fanout groups from those that other programs take at random or
/// from 1 upwards.
const FANOUT_GROUPS: u32 = 0x4556;

/// `PACKET_FANOUT_FLAG_IGNORE_OUTGOING`.
const FANOUT_IGNORE_OUTGOING: u32 = 0x4000;

/// How far a receive stamp may lie in the past before it is taken for nonsense (the clock was set).
const STAMP_CREDIBLE: Nanos = Nanos(10_000_000_000);

/// A Linux interface.
#[derive(Debug)]
pub struct AfPacketPort {
    name: String,
    options: AfPacketOptions,
    // The ring is unmapped before its socket is closed.
    ring: Ring,
    socket: OwnedFd,
    // Belongs to the port's namespace, whichever the calling thread is in later.
    control: Control,
    interface: Interface,
    state: PortState,
    looked: Nanos,
    /// The kernel has forwarded what came then.
    passed_by: Option<Range<Nanos>>,
    batch: Batch,
    counters: PortCounters,
}

impl AfPacketPort {
    /// Opens `interface` in the network namespace of the calling thread. It need not be up.
    ///
    /// # Errors
    /// There is no such interface, it is not Ethernet, an option is out of range, or the process
    /// lacks CAP_NET_RAW.
    pub fn open(interface: &str, options: AfPacketOptions) -> Result<Self, PortError> {
        options.check()?;
        let control = Control::open()?;
        let found = control.interface(interface)?;
        let (socket, ring) = open_socket(interface, found.index, &options)
            .map_err(|error| control.unless_gone(interface, found.index, error))?;
        Ok(Self {
            name: interface.to_owned(),
            options,
            ring,
            socket,
            control,
            interface: found,
            state: if found.running { PortState::Up } else { PortState::Down },
            looked: Nanos::ZERO,
            passed_by: None,
            batch: Batch::new(),
            counters: PortCounters::default(),
        })
    }

    /// The kernel's number of the interface.
    #[must_use]
    pub const fn ifindex(&self) -> u32 {
        self.interface.index
    }

    /// Looks at the interface as it is now, by its number. It may have been renamed; the port's
    /// name stays. An interface that left the namespace may come back with the number it had: the
    /// kernel has taken the socket from it for good, whatever its number is now.
    fn look(&mut self) {
        if bound_to(self.socket.as_fd()) != Some(self.interface.index) {
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
                self.state = if found.running { PortState::Up } else { PortState::Down };
            }
            None => self.state = PortState::Gone,
        }
    }

    /// Reads how many frames the ring had no room for; the kernel starts again at zero with each
    /// reading.
    fn read_loss(&mut self) {
        let mut statistics = libc::tpacket_stats { tp_packets: 0, tp_drops: 0 };
        let mut length = size_of::<libc::tpacket_stats>() as libc::socklen_t;
        // SAFETY: `statistics` and `length` are writable and fit each other.
        let result = unsafe {
            libc::getsockopt(
                self.socket.as_raw_fd(),
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
}

/// Makes the socket, its ring, and binds it. Until it is bound it receives nothing, so nothing
/// strange can be in the ring.
fn open_socket(
    name: &str,
    ifindex: u32,
    options: &AfPacketOptions,
) -> Result<(OwnedFd, Ring), PortError> {
    let failed = |what: &str| {
        let what = format!("{what} for interface {name}");
        move |error: io::Error| PortError::from_io(what, error)
    };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::PACKET, SocketType::RAW, flags, None)
        .map_err(|error| failed("opening a packet socket")(error.into()))?;
    let fd = socket.as_fd();
    set_option(fd, libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, &1)
        .map_err(failed("ignoring outgoing frames"))?;
    if options.qdisc_bypass {
        set_option(fd, libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, &1)
            .map_err(failed("bypassing the queueing discipline"))?;
    }
    set_send_buffer(&socket, options.send_buffer).map_err(failed("setting the send buffer"))?;
    if options.promiscuous {
        let membership = libc::packet_mreq {
            mr_ifindex: ifindex as libc::c_int,
            mr_type: libc::PACKET_MR_PROMISC as libc::c_ushort,
            mr_alen: 0,
            mr_address: [0; 8],
        };
        set_option(fd, libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, &membership)
            .map_err(failed("becoming promiscuous"))?;
    }
    let ring = Ring::create(fd, options.ring_frames, options.max_frame)?;
    if options.fanout.is_some() {
        // Between binding and joining it would receive what the group has already.
        refuse_all(fd).map_err(failed("refusing frames before the group is joined"))?;
    }

    // SAFETY: sockaddr_ll is plain data.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as libc::c_ushort;
    address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
    address.sll_ifindex = ifindex as libc::c_int;
    let length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: `address` is readable for `length` bytes.
    let result = unsafe { libc::bind(fd.as_raw_fd(), (&raw const address).cast(), length) };
    if result < 0 {
        return Err(failed("binding a packet socket")(io::Error::last_os_error()));
    }
    if let Some(number) = options.fanout {
        // A number that all workers know without telling each other, and that a re-created
        // interface does not share with what it was.
        let group = FANOUT_GROUPS ^ (ifindex & 0x7fff) ^ u32::from(number & 1) << 15;
        let value = (libc::PACKET_FANOUT_HASH << 16) | group;
        // What a group ignores is its own option. Older kernels have none: they keep what a member
        // sends from its group, but not what others send.
        set_option(
            fd,
            libc::SOL_PACKET,
            libc::PACKET_FANOUT,
            &(value | FANOUT_IGNORE_OUTGOING << 16),
        )
        .or_else(|_| set_option(fd, libc::SOL_PACKET, libc::PACKET_FANOUT, &value))
        .map_err(failed("joining the fanout group"))?;
        set_option(fd, libc::SOL_SOCKET, libc::SO_DETACH_FILTER, &0)
            .map_err(failed("receiving from the fanout group"))?;
    }
    Ok((socket, ring))
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

/// Attaches a filter that lets nothing pass.
fn refuse_all(fd: BorrowedFd<'_>) -> io::Result<()> {
    let mut code =
        [libc::sock_filter { code: (libc::BPF_RET | libc::BPF_K) as u16, jt: 0, jf: 0, k: 0 }];
    let program = libc::sock_fprog { len: 1, filter: code.as_mut_ptr() };
    // The kernel copies the program, and `code` lives until the call is over.
    set_option(fd, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program)
}

impl Port for AfPacketPort {
    fn name(&self) -> &str {
        &self.name
    }

    fn io(&self) -> String {
        "AF_PACKET".to_owned()
    }

    fn rx_burst(
        &mut self,
        pool: &mut FramePool,
        now: Nanos,
        out: &mut Vec<RxFrame>,
        max: usize,
    ) -> usize {
        let (mut received, mut seen, mut losing) = (0, 0, false);
        let mut offset = None;
        let oldest = now.saturating_sub(STAMP_CREDIBLE);
        while seen < max {
            let Some(waiting) = self.ring.front() else { break };
            seen += 1;
            losing |= waiting.losing;
            let offset = *offset.get_or_insert_with(realtime_minus_monotonic);
            let stamp = Nanos((waiting.stamp - offset).max(0) as u64).min(now);
            if let Some(span) = &self.passed_by {
                if span.contains(&stamp) {
                    self.counters.drop_one(Reason::KernelForwarded);
                    self.ring.advance();
                    continue;
                }
                if stamp >= span.end {
                    self.passed_by = None;
                }
            }
            let tag = waiting.tag.as_ref().map_or(&[][..], |tag| &tag[..]);
            if waiting.cut || waiting.bytes.len() + tag.len() > pool.max_frame() {
                self.counters.drop_one(Reason::FrameTooLong);
            } else if let Some(mut frame) = pool.alloc() {
                // The tag goes between the addresses and the type.
                let split = if tag.is_empty() { 0 } else { waiting.bytes.len().min(12) };
                let whole = pool.append(&mut frame, &waiting.bytes[..split])
                    && pool.append(&mut frame, tag)
                    && pool.append(&mut frame, &waiting.bytes[split..]);
                debug_assert!(whole, "the length was compared with what a buffer takes");
                frame.set_partial_checksum(waiting.partial_checksum);
                let vlan = vlan_of(pool.bytes(&frame));
                self.counters.rx_frames += 1;
                self.counters.rx_bytes += frame.len() as u64;
                let arrival = if stamp < oldest { now } else { stamp };
                out.push(RxFrame { frame, arrival, vlan });
                received += 1;
            } else {
                self.counters.drop_one(Reason::NoBuffer);
            }
            self.ring.advance();
        }
        if losing {
            self.read_loss();
        }
        if seen > 0 {
            self.state = PortState::Up;
        } else if now >= self.looked + LOOK_EVERY {
            self.looked = now;
            // A link that is not up has to be looked at again: no frame and no error tells that it
            // is back.
            if take_error(self.socket.as_fd()) || self.state == PortState::Down {
                self.look();
            }
        }
        received
    }

    fn tx_burst(&mut self, pool: &mut FramePool, frames: &mut VecDeque<Frame>) -> usize {
        let mut taken = 0;
        while !frames.is_empty() && self.state != PortState::Gone {
            let (sent, stop) = self.batch.send(self.socket.as_fd(), pool, frames);
            for frame in frames.drain(..sent) {
                self.counters.tx_frames += 1;
                self.counters.tx_bytes += frame.len() as u64;
                pool.release(frame);
            }
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
                    self.look();
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

    fn passed_by(&mut self, span: Range<Nanos>) {
        self.passed_by = Some(span);
    }

    fn rx_waiting(&self) -> Option<RxWaiting> {
        Some(RxWaiting::one(self.ring.waiting()))
    }

    fn rx_ring(&self) -> Option<u32> {
        Some(self.ring.frames())
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.as_fd())
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
        self.read_loss();
        self.counters
    }

    fn reopen(&mut self) -> Result<bool, PortError> {
        take_error(self.socket.as_fd());
        self.look();
        if self.state != PortState::Gone {
            return Ok(false);
        }
        let control = Control::open()?;
        let found = control.interface(&self.name)?;
        self.read_loss();
        let (socket, ring) = open_socket(&self.name, found.index, &self.options)
            .map_err(|error| control.unless_gone(&self.name, found.index, error))?;
        self.ring = ring;
        self.socket = socket;
        self.control = control;
        self.interface = found;
        self.state = if found.running { PortState::Up } else { PortState::Down };
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_out_of_range_name_the_range() {
        for options in [
            AfPacketOptions { ring_frames: 63, ..Default::default() },
            AfPacketOptions { max_frame: 65_001, ..Default::default() },
            AfPacketOptions { send_buffer: 0, ..Default::default() },
        ] {
            let error = AfPacketPort::open("lo", options).unwrap_err().to_string();
            assert!(error.contains("out of range"), "{error}");
        }
        let missing = AfPacketPort::open("no-such-if", AfPacketOptions::default()).unwrap_err();
        assert!(matches!(missing, PortError::NoInterface(_)), "{missing}");
    }
}
