//! Gives the kernel packets that it is to forward itself.
//!
//! What arrives at a routed port the kernel does not forward: the guard, or the AF_XDP program,
//! keeps it from it. A packet whose route leaves by an interface that is no port (a tunnel, ppp, a
//! container's bridge) goes back to it: sent on the interface it came by, with a mark, by which a
//! program at the egress puts it on that interface's receive path. So the kernel sees it as it
//! arrived: filters, connection tracking, `rp_filter` and rules are asked as without a router.
//!
//! ```text
//! egress of eth0    marked: to the ingress of eth0 · else next
//! ingress of eth0   marked: mark := 0, next        (the guard's first step)
//! packet sockets    marked: not received
//! ```

use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use crate::af_packet::device::bind;
use crate::af_packet::transmit::{Batch, Stop};
use crate::bpf::{Assembler, AttachType, If, Link, Program, ProgramKind, Reg, Width};
use crate::error::PortError;
use crate::interface::Control;
use crate::parcel::{Kind, Parcel};
use crate::pool::{Frame, FramePool};
use crate::port::{Port, PortWrapper};
use crate::sys::{set_option, set_send_buffer};

/// On packets that the kernel is to forward.
pub(crate) const HANDED_OVER: u32 = 0x656b_0003;

/// `TCX_NEXT`.
const NEXT: i32 = -1;
const REDIRECT: i32 = 23;
const REDIRECT_INGRESS: i32 = 1;
/// Offset in `__sk_buff`.
const MARK: i16 = 8;
const SEND_BUFFER: u32 = 4 << 20;

/// Lets a frame of ours go on, as if it had never had a mark. `frame` has the address of the
/// `__sk_buff`.
pub(crate) fn unmark(asm: &mut Assembler, frame: Reg) {
    let other = asm.label();
    let (r0, r2) = (Reg(0), Reg(2));
    asm.load(Width::B4, r2, frame, MARK).jump_if(r2, If::NotEqual, HANDED_OVER as i32, other);
    asm.set(r2, 0).store_register(Width::B4, frame, MARK, r2);
    asm.set(r0, NEXT).exit();
    asm.place(other);
}

fn at_ingress() -> Vec<u64> {
    let mut asm = Assembler::default();
    asm.copy(Reg(6), Reg(1));
    unmark(&mut asm, Reg(6));
    asm.set(Reg(0), NEXT).exit();
    asm.finish()
}

fn at_egress(ifindex: u32) -> Vec<u64> {
    let (r0, r1, r2) = (Reg(0), Reg(1), Reg(2));
    let mut asm = Assembler::default();
    let other = asm.label();
    asm.load(Width::B4, r2, r1, MARK).jump_if(r2, If::NotEqual, HANDED_OVER as i32, other);
    asm.set(r1, ifindex as i32).set(r2, REDIRECT_INGRESS).call(REDIRECT).exit();
    asm.place(other);
    asm.set(r0, NEXT).exit();
    asm.finish()
}

/// What a packet needs to get back to the kernel at one interface. The kernel removes the programs
/// with the process.
#[derive(Debug)]
struct Way {
    programs: Vec<Link>,
    socket: OwnedFd,
}

impl Way {
    fn open(interface: &str, guarded: bool) -> Result<Self, PortError> {
        let control = Control::open()?;
        let ifindex = control.interface(interface)?.index;
        let failed = |what: &str| {
            let what = format!("{what} for interface {interface}");
            move |error| PortError::from_io(what, error)
        };
        let link = |code: &[u64], at| {
            Program::load(ProgramKind::SchedCls, "evenkeel_hand", code, 0)?
                .link(ifindex, at, 0)
                .map_err(failed("linking programs that hand packets to the kernel"))
        };
        let mut programs = vec![link(&at_egress(ifindex), AttachType::TcxEgress)?];
        if !guarded {
            programs.push(link(&at_ingress(), AttachType::TcxIngress)?);
        }
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::PACKET, SocketType::RAW, flags, None)
            .map_err(|error| failed("opening a packet socket")(error.into()))?;
        let fd = socket.as_fd();
        set_option(fd, libc::SOL_PACKET, libc::PACKET_VNET_HDR, &1)
            .map_err(failed("sending super-frames"))?;
        set_option(fd, libc::SOL_SOCKET, libc::SO_MARK, &HANDED_OVER)
            .map_err(failed("marking what is sent"))?;
        set_send_buffer(&socket, SEND_BUFFER).map_err(failed("setting the send buffer"))?;
        // Protocol 0: it receives nothing.
        bind(fd, ifindex, 0).map_err(failed("binding a packet socket"))?;
        Ok(Self { programs, socket })
    }
}

/// A port that gives packets back to the kernel.
#[derive(Debug)]
pub struct HandOver<P> {
    inner: P,
    interface: String,
    way: Option<Way>,
    batch: Batch,
}

impl<P: Port> HandOver<P> {
    /// Around the port of `interface`, in the network namespace of the calling thread. Where it
    /// cannot be done (kernels before 6.6), the port is given back with the reason.
    ///
    /// # Errors
    /// The kernel has no TCX, or the process lacks CAP_BPF and CAP_NET_ADMIN.
    pub fn new(inner: P, interface: &str) -> Result<Self, (P, PortError)> {
        match Way::open(interface, inner.kernel_has_copy()) {
            Ok(way) => {
                let interface = interface.to_owned();
                Ok(Self { inner, interface, way: Some(way), batch: Batch::new() })
            }
            Err(error) => Err((inner, error)),
        }
    }
}

impl<P: Port> HandOver<P> {
    /// Whether the port that was taken out of the parcel last had such a wrapper.
    #[must_use]
    pub fn is_next(parcel: &Parcel) -> bool {
        parcel.is_next(Kind::HandOver)
    }

    /// Around the port that was [passed on](Port::pass_on) with such a wrapper: `inner`. Its
    /// programs do the same whose ever they are.
    ///
    /// # Errors
    /// Something else was passed on.
    pub fn adopt(inner: P, interface: &str, parcel: &mut Parcel) -> Result<Self, PortError> {
        parcel.expect(Kind::HandOver)?;
        let way = match parcel.take()? {
            0 => None,
            programs => {
                let programs: Result<_, _> = (0..programs).map(|_| Link::adopt(parcel)).collect();
                Some(Way { programs: programs?, socket: parcel.take_file()? })
            }
        };
        Ok(Self { inner, interface: interface.to_owned(), way, batch: Batch::new() })
    }
}

impl<P: Port> PortWrapper for HandOver<P> {
    type Inner = P;

    fn pass_on(&mut self, parcel: &mut Parcel) -> Result<(), PortError> {
        self.inner.pass_on(parcel)?;
        parcel.begin(Kind::HandOver);
        let Some(way) = &self.way else {
            parcel.put(0);
            return Ok(());
        };
        parcel.put(way.programs.len() as u64);
        way.programs.iter().try_for_each(|program| program.pass_on(parcel))?;
        parcel.put_file(way.socket.as_fd())
    }

    fn inner(&self) -> &P {
        &self.inner
    }

    fn inner_mut(&mut self) -> &mut P {
        &mut self.inner
    }

    fn hands_over(&self) -> bool {
        self.way.is_some()
    }

    fn hand_over(&mut self, pool: &mut FramePool, frames: &mut VecDeque<Frame>) -> usize {
        let mut lost = 0;
        while !frames.is_empty() {
            let (sent, stop) = match &self.way {
                Some(way) => self.batch.send(way.socket.as_fd(), pool, frames, true),
                None => (0, Stop::Dead),
            };
            pool.release_first(frames, sent);
            if !matches!(stop, Stop::Empty)
                && let Some(frame) = frames.pop_front()
            {
                // There is nothing to wait for: the kernel takes what it receives.
                pool.release(frame);
                lost += 1;
            }
        }
        lost
    }

    fn reopen(&mut self) -> Result<bool, PortError> {
        let renewed = self.inner.reopen();
        if !matches!(renewed, Ok(false)) {
            // The programs were those of an interface that is gone.
            self.way = None;
        }
        if matches!(renewed, Ok(true)) {
            self.way = Way::open(&self.interface, self.inner.kernel_has_copy()).ok();
        }
        renewed
    }
}
