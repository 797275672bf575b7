//! A Linux interface as a port: AF_PACKET with a memory-mapped receive ring, and `sendmmsg` to
//! send.
//!
//! Works with every driver and on every kernel. What it takes care of:
//!
//! - frames that the machine itself sends, ours included, are not received;
//! - a VLAN tag that the kernel has taken out of the frame is put back;
//! - a frame whose transport checksum its sender (a veth host) has left to the hardware is marked;
//! - a frame longer than a slot or a buffer is dropped and counted, never cut; with
//!   [`AfPacketOptions::whole`] it is received, too, and super-frames are kept whole or cut as the
//!   kernel would cut them;
//! - the kernel's receive stamps become times of CLOCK_MONOTONIC;
//! - an interface that vanishes makes the port [`PortState::Gone`], and [`Port::reopen`] finds it
//!   again by name.
//!
//! The kernel's own stack receives every frame too: see [`crate::guard`]. Super-frames: see
//! [`crate::offload`].

pub(crate) mod device;
mod ring;
pub(crate) mod transmit;
mod whole;

use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use evenkeel_core::{Nanos, Reason};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use crate::error::PortError;
use crate::inline::OURS;
use crate::interface::Interface;
use crate::parcel::{Kind, Parcel};
use crate::pool::{Frame, FramePool};
use crate::port::{Port, PortCounters, PortState, RxFrame, RxWaiting};
use crate::sys::{DayClock, set_option, set_send_buffer};
use crate::wrap::HANDED_OVER;
use device::{Device, bind};
use ring::{Ring, Waiting};
use whole::{Taken, Unpacker, describe, discard, is_plain};

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
    /// Mark what is sent, so that [`OwnTraffic`](crate::inline::OwnTraffic) at the same interface
    /// lets it pass, and takes the mark off.
    pub marked: bool,
    /// Receive and send super-frames, and frames that are longer than a slot.
    pub whole: bool,
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
            marked: false,
            whole: false,
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

/// Distinguishes the numbers of our fanout groups from those that other programs take at random or
/// from 1 upwards.
const FANOUT_GROUPS: u32 = 0x4556;

const PACKET_COPY_THRESH: libc::c_int = 7;

/// Bytes of frames longer than a slot that the kernel holds for us.
const LONG_FRAMES: libc::c_int = 32 << 20;

/// `PACKET_FANOUT_FLAG_IGNORE_OUTGOING`.
const FANOUT_IGNORE_OUTGOING: u32 = 0x4000;

/// A Linux interface.
#[derive(Debug)]
pub struct AfPacketPort {
    device: Device,
    day: DayClock,
    options: AfPacketOptions,
    // The ring is unmapped before its socket is closed.
    ring: Ring,
    socket: OwnedFd,
    /// Of a port with super-frames.
    unpacker: Option<Box<Unpacker>>,
}

impl AfPacketPort {
    /// Opens `interface` in the network namespace of the calling thread. It need not be up.
    ///
    /// # Errors
    /// There is no such interface, it is not Ethernet, an option is out of range, or the process
    /// lacks CAP_NET_RAW.
    pub fn open(interface: &str, options: AfPacketOptions) -> Result<Self, PortError> {
        options.check()?;
        let open = |found: &Interface| open_socket(interface, found.index, &options);
        let (device, (socket, ring)) = Device::open(interface, open)?;
        let unpacker = options.whole.then(|| Box::new(Unpacker::new()));
        let day = DayClock::default();
        Ok(Self { device, day, options, ring, socket, unpacker })
    }

    /// The port of another process, with its socket and its ring, in the network namespace of the
    /// calling thread. `options`: what it was opened with; how long its ring is it tells itself.
    ///
    /// # Errors
    /// The socket is not bound to that interface, or is of another kind.
    pub fn adopt(
        interface: &str,
        options: AfPacketOptions,
        parcel: &mut Parcel,
    ) -> Result<Self, PortError> {
        parcel.expect(Kind::AfPacket)?;
        if (parcel.take()? != 0) != options.whole {
            return Err(PortError::NotPassed("super-frames are received by one of the two only"));
        }
        let socket = parcel.take_file()?;
        let (device, ()) = Device::of(interface, socket.as_fd())?;
        let ring = Ring::adopt(socket.as_fd(), parcel)?;
        let unpacker = options.whole.then(|| Box::new(Unpacker::new()));
        let day = DayClock::default();
        Ok(Self { device, day, options, ring, socket, unpacker })
    }

    /// The kernel's number of the interface.
    #[must_use]
    pub const fn ifindex(&self) -> u32 {
        self.device.interface.index
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
    if options.marked {
        set_option(fd, libc::SOL_SOCKET, libc::SO_MARK, &OURS)
            .map_err(failed("marking what is sent"))?;
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
    if options.whole {
        // Before there is a ring.
        for (option, what) in [
            (libc::PACKET_VNET_HDR, "receiving super-frames"),
            (PACKET_COPY_THRESH, "receiving frames longer than a slot"),
        ] {
            set_option(fd, libc::SOL_PACKET, option, &1).map_err(failed(what))?;
        }
        set_option(fd, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, &LONG_FRAMES)
            .map_err(failed("setting the receive buffer"))?;
    }
    let ring = Ring::create(fd, options.ring_frames, options.max_frame, options.whole)?;
    if options.fanout.is_some() {
        // Between binding and joining it would receive what the group has already.
        refuse_all(fd).map_err(failed("refusing frames before the group is joined"))?;
    } else {
        refuse_handed_over(fd).map_err(failed("attaching a filter"))?;
    }

    bind(fd, ifindex, libc::ETH_P_ALL).map_err(failed("binding a packet socket"))?;
    if let Some(number) = options.fanout {
        join_fanout(fd, ifindex, number).map_err(failed("joining the fanout group"))?;
        refuse_handed_over(fd).map_err(failed("receiving from the fanout group"))?;
    }
    Ok((socket, ring))
}

/// Joins the bound sockets of this number at an interface, which share what it receives.
pub(crate) fn join_fanout(fd: BorrowedFd<'_>, ifindex: u32, number: u8) -> io::Result<()> {
    // A number that all workers know without telling each other, and that a re-created interface
    // does not share with what it was.
    let group = FANOUT_GROUPS ^ (ifindex & 0x7fff) ^ u32::from(number & 1) << 15;
    let value = (libc::PACKET_FANOUT_HASH << 16) | group;
    // What a group ignores is its own option. Older kernels have none: they keep what a member
    // sends from its group, but not what others send.
    let ignoring = value | FANOUT_IGNORE_OUTGOING << 16;
    set_option(fd, libc::SOL_PACKET, libc::PACKET_FANOUT, &ignoring)
        .or_else(|_| set_option(fd, libc::SOL_PACKET, libc::PACKET_FANOUT, &value))
}

/// Attaches a filter that lets nothing pass.
pub(crate) fn refuse_all(fd: BorrowedFd<'_>) -> io::Result<()> {
    filter(fd, [step(libc::BPF_RET | libc::BPF_K, 0, 0)])
}

/// Attaches a filter that lets everything pass but what the kernel was given back.
fn refuse_handed_over(fd: BorrowedFd<'_>) -> io::Result<()> {
    let mark = (libc::SKF_AD_OFF + libc::SKF_AD_MARK) as u32;
    filter(
        fd,
        [
            step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, mark, 0),
            step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, HANDED_OVER, 1),
            step(libc::BPF_RET | libc::BPF_K, u32::MAX, 0),
            step(libc::BPF_RET | libc::BPF_K, 0, 0),
        ],
    )
}

/// A step of a filter; `skip`: how many more it passes over if a comparison holds.
const fn step(code: u32, k: u32, skip: u8) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt: skip, jf: 0, k }
}

fn filter<const N: usize>(fd: BorrowedFd<'_>, mut code: [libc::sock_filter; N]) -> io::Result<()> {
    let program = libc::sock_fprog { len: N as libc::c_ushort, filter: code.as_mut_ptr() };
    // The kernel copies the program, and `code` lives until the call is over.
    set_option(fd, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program)
}

/// Hands over a frame that fits a buffer.
fn single(
    waiting: &Waiting<'_>,
    arrival: Nanos,
    (pool, counters, out): (&mut FramePool, &mut PortCounters, &mut Vec<RxFrame>),
) {
    let Some(mut frame) = pool.alloc() else { return counters.drop_one(Reason::NoBuffer) };
    let tag = waiting.tag.as_ref().map_or(&[][..], |tag| &tag[..]);
    // The tag goes between the addresses and the type.
    let split = if tag.is_empty() { 0 } else { waiting.bytes.len().min(12) };
    let whole = pool.append(&mut frame, &waiting.bytes[..split])
        && pool.append(&mut frame, tag)
        && pool.append(&mut frame, &waiting.bytes[split..]);
    debug_assert!(whole, "the length was compared with what a buffer takes");
    frame.set_partial_checksum(waiting.partial_checksum);
    describe(pool, &mut frame, waiting);
    counters.rx_frames += 1;
    counters.rx_bytes += frame.len() as u64;
    out.push(RxFrame::new(frame, arrival));
}

impl Port for AfPacketPort {
    fn name(&self) -> &str {
        &self.device.name
    }

    fn held(&self) -> usize {
        self.unpacker.as_ref().map_or(0, |unpacker| usize::from(unpacker.holds()))
    }

    fn pass_on(&mut self, parcel: &mut Parcel) -> Result<(), PortError> {
        parcel.begin(Kind::AfPacket);
        parcel.put(u64::from(self.options.whole));
        parcel.put_file(self.socket.as_fd())?;
        self.ring.pass_on(parcel);
        Ok(())
    }

    fn io(&self) -> String {
        let with = if self.options.whole { " with super-frames" } else { "" };
        format!("AF_PACKET{with}")
    }

    fn rx_burst(
        &mut self,
        pool: &mut FramePool,
        now: Nanos,
        out: &mut Vec<RxFrame>,
        max: usize,
    ) -> usize {
        let (before, mut seen, mut losing) = (out.len(), 0, false);
        let Self { device, day, ring, socket, unpacker, .. } = self;
        let mut stamps = day.until(now);
        let longest = pool.max_frame();
        while seen < max {
            if let Some(unpacker) = unpacker.as_mut().filter(|unpacker| unpacker.holds()) {
                seen += unpacker.hand_over((pool, &mut device.counters, out), max - seen);
                continue;
            }
            let Some(waiting) = ring.front() else { break };
            losing |= waiting.losing;
            let arrival = stamps.arrival(waiting.stamp);
            let tag = waiting.tag.as_ref().map_or(0, |tag| tag.len());
            if device.kernel_forwarded(arrival) {
                if waiting.queued {
                    discard(socket.as_fd());
                }
                seen += 1;
            } else if is_plain(&waiting, longest - tag) {
                seen += 1;
                single(&waiting, arrival, (pool, &mut device.counters, out));
            } else if let Some(unpacker) = unpacker {
                let to = (&mut *pool, &mut device.counters, &mut *out);
                match unpacker.take(&waiting, socket.as_fd(), to, arrival) {
                    Taken::Done => seen += 1,
                    Taken::Cut => {}
                }
            } else {
                device.counters.drop_one(Reason::FrameTooLong);
                seen += 1;
            }
            ring.advance();
        }
        if losing {
            device.read_loss(socket.as_fd());
        }
        device.received(seen > 0, now, socket.as_fd());
        out.len() - before
    }

    fn tx_burst(&mut self, pool: &mut FramePool, frames: &mut VecDeque<Frame>) -> usize {
        let socket = self.socket.as_fd();
        self.device.send(socket, socket, pool, frames, self.options.whole)
    }

    fn passed_by(&mut self, span: Range<Nanos>) {
        self.device.passed_by = Some(span);
    }

    fn rx_waiting(&self) -> Option<RxWaiting> {
        Some(RxWaiting::one(self.ring.waiting()))
    }

    fn rx_ring(&self) -> Option<u32> {
        Some(self.ring.frames())
    }

    fn takes_whole(&self) -> bool {
        self.options.whole
    }

    fn keep_whole(&mut self, longest: usize) {
        if let Some(unpacker) = &mut self.unpacker {
            unpacker.longest = longest;
        }
    }

    fn next_due(&self) -> Option<Nanos> {
        let held = self.unpacker.as_ref().is_some_and(|unpacker| unpacker.holds());
        held.then_some(Nanos::ZERO)
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.as_fd())
    }

    fn state(&self) -> PortState {
        self.device.state
    }

    fn mac(&self) -> [u8; 6] {
        self.device.interface.mac
    }

    fn mtu(&self) -> u32 {
        self.device.interface.mtu
    }

    fn counters(&mut self) -> PortCounters {
        self.device.read_loss(self.socket.as_fd());
        self.device.counters
    }

    fn reopen(&mut self) -> Result<bool, PortError> {
        let Self { device, options, socket, .. } = self;
        let name = device.name.clone();
        let open = |found: &Interface| open_socket(&name, found.index, options);
        let Some((socket, ring)) = device.reopen(socket.as_fd(), open)? else { return Ok(false) };
        (self.ring, self.socket) = (ring, socket);
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
