//! One side of an inline interface as a port: a packet socket that receives super-frames, which are
//! kept whole or cut, and one that sends with our mark, by the interface's ordinary way.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use evenkeel_core::{Nanos, Reason};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use super::inbox::{Inbox, Received};
use super::program;
use crate::af_packet::device::{Device, bind};
use crate::af_packet::{join_fanout, refuse_all};
use crate::error::PortError;
use crate::interface::Interface;
use crate::parcel::{Kind, Parcel};
use crate::pool::{Frame, FramePool};
use crate::port::{Port, PortCounters, PortState, RxFrame};
use crate::segment::{Segments, VnetHeader};
use crate::super_frame::{alloc_whole, single};
use crate::sys::{DayClock, Stamps, set_option, set_send_buffer};

/// Bytes of frames that the kernel holds for us: a second of 100 Mbit/s.
const RECEIVE_BUFFER: libc::c_int = 16 << 20;
/// Bytes that the driver may hold before sending blocks.
const SEND_BUFFER: u32 = 4 << 20;
/// Which side of the interface a port is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Side {
    /// The interface itself: what arrives there is received, what is sent leaves there.
    Wire,
    /// Our end of the pair: what the kernel sends by the interface is received, what is sent
    /// arrives on the interface.
    Kernel,
    /// An interface between which and another one every frame passes: all that arrives there is
    /// received, what is sent leaves there.
    Bridge,
}

/// A side of an inline interface. It receives nothing but what
/// [`Inline`](super::Inline)'s programs have taken out of the kernel's way.
#[derive(Debug)]
pub struct InlinePort {
    device: Device,
    day: DayClock,
    side: Side,
    receiver: OwnedFd,
    sender: OwnedFd,
    inbox: Inbox,
    /// Segments of the inbox's front frame that have been handed over.
    segment: usize,
    /// A frame with its tag put back.
    scratch: Vec<u8>,
    /// The longest super-frame that is handed over whole, bytes on the wire.
    longest: usize,
    /// The group of sockets that share what is received.
    fanout: Option<u8>,
}

impl InlinePort {
    /// Opens a side of `interface`, or of our end of its pair, in the network namespace of the
    /// calling thread. `fanout`: it shares what is received with others of this number, as
    /// [packet sockets](crate::af_packet::AfPacketOptions) do.
    ///
    /// # Errors
    /// There is no such interface, it is not Ethernet, or the process lacks CAP_NET_RAW and
    /// CAP_NET_ADMIN.
    pub fn open(interface: &str, side: Side, fanout: Option<u8>) -> Result<Self, PortError> {
        let open = |found: &Interface| open_sockets(interface, found.index, side, fanout);
        let (device, (receiver, sender)) = Device::open(interface, open)?;
        Ok(Self::of(device, side, fanout, (receiver, sender)))
    }

    fn of(
        device: Device,
        side: Side,
        fanout: Option<u8>,
        (receiver, sender): (OwnedFd, OwnedFd),
    ) -> Self {
        let (inbox, scratch) = (Inbox::new(), Vec::new());
        let (day, segment, longest) = (DayClock::default(), 0, 0);
        Self { device, day, side, receiver, sender, inbox, segment, scratch, longest, fanout }
    }

    /// The side of another process, with its sockets, in the network namespace of the calling
    /// thread.
    ///
    /// # Errors
    /// The sockets are not bound to that interface, or are of another kind.
    pub fn adopt(
        interface: &str,
        side: Side,
        fanout: Option<u8>,
        parcel: &mut Parcel,
    ) -> Result<Self, PortError> {
        parcel.expect(Kind::Inline)?;
        if parcel.take()? != side as u64 {
            return Err(PortError::NotPassed("it is another side of the interface"));
        }
        let (receiver, sender) = (parcel.take_file()?, parcel.take_file()?);
        let (device, ()) = Device::of(interface, receiver.as_fd())?;
        Ok(Self::of(device, side, fanout, (receiver, sender)))
    }

    /// Hands over the front frame of the inbox, or as many of its segments as `most` allows.
    /// Returns how many, dropped ones included.
    fn hand_over(
        &mut self,
        pool: &mut FramePool,
        stamps: &mut Stamps<'_>,
        out: &mut Vec<RxFrame>,
        most: usize,
    ) -> usize {
        let Some(received) = self.inbox.front() else { return 0 };
        let arrival = received.stamp.map_or(stamps.now(), |stamp| stamps.arrival(stamp));
        if self.device.kernel_forwarded(arrival) {
            self.inbox.advance();
            return 1;
        }
        let counters = &mut self.device.counters;
        if received.cut {
            counters.drop_one(Reason::FrameTooLong);
            self.inbox.advance();
            return 1;
        }
        let (frame, header) = with_tag(&received, &mut self.scratch);
        let segments = header.is_super().then(|| Segments::of(header, frame)).transpose();
        let Ok(segments) = segments else {
            // Nothing can be told of its segments but that there are some.
            counters.drop_one(Reason::FrameTooLong);
            self.inbox.advance();
            return 1;
        };
        if self.segment == 0
            && let Some(whole) = whole(pool, header, segments.as_ref(), frame, self.longest)
        {
            counters.rx_frames += 1;
            counters.rx_bytes += whole.cut_len() as u64;
            counters.rx_more += u64::from(whole.segments() - 1);
            out.push(RxFrame::new(whole, arrival));
            self.inbox.advance();
            return 1;
        }
        if self.segment == 0 && segments.is_some() {
            counters.cut += 1;
        }
        let count = segments.as_ref().map_or(1, Segments::count);
        let mut handed = 0;
        while self.segment < count && handed < most {
            let at = self.segment;
            self.segment += 1;
            handed += 1;
            match single(pool, frame, segments.as_ref(), at, header) {
                Ok(copied) => {
                    counters.rx_frames += 1;
                    counters.rx_bytes += copied.len() as u64;
                    out.push(RxFrame::new(copied, arrival));
                }
                Err(reason) => counters.drop_one(reason),
            }
        }
        if self.segment >= count {
            self.segment = 0;
            self.inbox.advance();
        }
        handed
    }
}

/// A frame with the tag that the kernel has taken out. Most have none, and stay where they are.
fn with_tag<'a>(received: &Received<'a>, scratch: &'a mut Vec<u8>) -> (&'a [u8], VnetHeader) {
    let Some(tag) = received.tag else { return (received.bytes, received.header) };
    scratch.clear();
    // It goes between the addresses and the type.
    let (addresses, rest) = received.bytes.split_at(received.bytes.len().min(12));
    for part in [addresses, &tag, rest] {
        scratch.extend_from_slice(part);
    }
    (scratch, received.header.moved(tag.len() as u16))
}

/// A super-frame as it is, if it may stay so.
fn whole(
    pool: &mut FramePool,
    header: VnetHeader,
    segments: Option<&Segments>,
    frame: &[u8],
    longest: usize,
) -> Option<Frame> {
    let whole = alloc_whole(pool, header, segments, frame, longest)?;
    pool.bytes_mut(&whole).copy_from_slice(frame);
    Some(whole)
}

fn open_sockets(
    name: &str,
    ifindex: u32,
    side: Side,
    fanout: Option<u8>,
) -> Result<(OwnedFd, OwnedFd), PortError> {
    let failed = |what: &str| {
        let what = format!("{what} for interface {name}");
        move |error: io::Error| PortError::from_io(what, error)
    };
    let open = || {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        socket_with(AddressFamily::PACKET, SocketType::RAW, flags, None)
            .map_err(|error| failed("opening a packet socket")(error.into()))
    };
    let receiver = open()?;
    let fd = receiver.as_fd();
    for (option, what) in [
        (libc::PACKET_IGNORE_OUTGOING, "ignoring outgoing frames"),
        (libc::PACKET_VNET_HDR, "receiving super-frames"),
        (libc::PACKET_AUXDATA, "receiving VLAN tags"),
    ] {
        set_option(fd, libc::SOL_PACKET, option, &1).map_err(failed(what))?;
    }
    set_option(fd, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, &1)
        .map_err(failed("asking for receive stamps"))?;
    set_option(fd, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, &RECEIVE_BUFFER)
        .map_err(failed("setting the receive buffer"))?;
    if side == Side::Bridge {
        receive_all(fd, ifindex).map_err(failed("receiving what is for others"))?;
    }
    let filter = match side {
        Side::Wire => Some(program::received()),
        Side::Kernel => Some(program::redirected()),
        Side::Bridge => None,
    };
    let filter_it = || match &filter {
        Some(filter) => attach_filter(fd, filter).map_err(failed("attaching a filter")),
        None => Ok(()),
    };
    let bind_it = || bind(fd, ifindex, libc::ETH_P_ALL).map_err(failed("binding a packet socket"));
    if let Some(number) = fanout {
        // Between binding and joining it would receive what the group has already.
        refuse_all(fd).map_err(failed("refusing frames before the group is joined"))?;
        bind_it()?;
        join_fanout(fd, ifindex, number).map_err(failed("joining the fanout group"))?;
        if filter.is_none() {
            set_option(fd, libc::SOL_SOCKET, libc::SO_DETACH_FILTER, &0)
                .map_err(failed("detaching a filter"))?;
        }
        filter_it()?;
    } else {
        filter_it()?;
        bind_it()?;
    }

    let sender = open()?;
    let fd = sender.as_fd();
    set_option(fd, libc::SOL_PACKET, libc::PACKET_VNET_HDR, &1)
        .map_err(failed("sending super-frames"))?;
    set_option(fd, libc::SOL_SOCKET, libc::SO_MARK, &program::OURS)
        .map_err(failed("marking what is sent"))?;
    set_send_buffer(&sender, SEND_BUFFER).map_err(failed("setting the send buffer"))?;
    // Protocol 0: it receives nothing.
    bind(fd, ifindex, 0).map_err(failed("binding a packet socket"))?;
    Ok((receiver, sender))
}

/// Also what is addressed to other stations, for as long as the socket lives.
fn receive_all(fd: BorrowedFd<'_>, ifindex: u32) -> io::Result<()> {
    let request = libc::packet_mreq {
        mr_ifindex: ifindex as libc::c_int,
        mr_type: libc::PACKET_MR_PROMISC as libc::c_ushort,
        mr_alen: 0,
        mr_address: [0; 8],
    };
    set_option(fd, libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, &request)
}

fn attach_filter(fd: BorrowedFd<'_>, filter: &[libc::sock_filter]) -> io::Result<()> {
    let program = libc::sock_fprog {
        len: filter.len() as libc::c_ushort,
        filter: filter.as_ptr().cast_mut(),
    };
    set_option(fd, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program)
}

impl Port for InlinePort {
    fn name(&self) -> &str {
        &self.device.name
    }

    fn io(&self) -> String {
        match self.side {
            Side::Wire => "inline, between the interface and the kernel".to_owned(),
            Side::Kernel => "inline, between the kernel and the interface".to_owned(),
            Side::Bridge => "bridge, packet socket with super-frames".to_owned(),
        }
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.receiver.as_fd())
    }

    fn held(&self) -> usize {
        self.inbox.held()
    }

    fn pass_on(&mut self, parcel: &mut Parcel) -> Result<(), PortError> {
        parcel.begin(Kind::Inline);
        parcel.put(self.side as u64);
        parcel.put_file(self.receiver.as_fd())?;
        parcel.put_file(self.sender.as_fd())
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

    /// On the wire's side frames come twice until the programs are attached.
    fn kernel_has_copy(&self) -> bool {
        self.side != Side::Kernel
    }

    /// The kernel tells readiness once per frame it hands over: what lies in the inbox must be
    /// asked for.
    fn next_due(&self) -> Option<Nanos> {
        (self.inbox.held() > 0).then_some(Nanos::ZERO)
    }

    fn rx_burst(
        &mut self,
        pool: &mut FramePool,
        now: Nanos,
        out: &mut Vec<RxFrame>,
        max: usize,
    ) -> usize {
        let mut day = self.day;
        let mut stamps = day.until(now);
        let before = out.len();
        let mut taken = 0;
        while taken < max && self.inbox.fill(self.receiver.as_fd()) {
            taken += self.hand_over(pool, &mut stamps, out, max - taken).max(1);
        }
        self.day = day;
        self.device.received(taken > 0, now, self.receiver.as_fd());
        out.len() - before
    }

    fn tx_burst(&mut self, pool: &mut FramePool, frames: &mut VecDeque<Frame>) -> usize {
        self.device.send(self.sender.as_fd(), self.receiver.as_fd(), pool, frames, true)
    }

    fn takes_whole(&self) -> bool {
        true
    }

    fn keep_whole(&mut self, longest: usize) {
        self.longest = longest;
    }

    /// What came by the pair was redirected to us, and the kernel has not sent it.
    fn passed_by(&mut self, span: Range<Nanos>) {
        if self.side != Side::Kernel {
            self.device.passed_by = Some(span);
        }
    }

    fn counters(&mut self) -> PortCounters {
        self.device.read_loss(self.receiver.as_fd());
        self.device.counters
    }

    fn reopen(&mut self) -> Result<bool, PortError> {
        let Self { device, side, receiver, fanout, .. } = self;
        let name = device.name.clone();
        let open = |found: &Interface| open_sockets(&name, found.index, *side, *fanout);
        let Some((receiver, sender)) = device.reopen(receiver.as_fd(), open)? else {
            return Ok(false);
        };
        (self.receiver, self.sender) = (receiver, sender);
        Ok(true)
    }
}
