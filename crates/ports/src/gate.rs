//! Closes an interface for what the kernel forwards, also when the router is dead: a link that
//! forwarders share is sent to by schedule or not at all.
//!
//! A BPF classifier at the interface's egress drops what came in by an interface of this machine.
//! What the machine itself sends passes (its own connections, ARP, ICMP errors), and so do frames
//! of packet and AF_XDP sockets, which do not pass the egress hook. It hangs on the clsact qdisc,
//! so it stays with the interface until [`open`] or until the interface is deleted; neither a file
//! nor a process holds it. Closing again replaces it without a gap.

use crate::bpf::{Assembler, If, Program, ProgramKind, Reg, Width};
use crate::error::PortError;
use crate::guard::filter;
use crate::interface::Control;

/// `TC_ACT_UNSPEC`: go on with the next program; and `TC_ACT_SHOT`.
const PASS: i32 = -1;
const DROP: i32 = 2;
/// Offset in `__sk_buff`: the interface a frame came in by; 0: it was made here.
const INGRESS_IFINDEX: i16 = 36;

/// Closes an interface of the calling thread's namespace.
///
/// # Errors
/// There is no such interface, the process lacks CAP_BPF and CAP_NET_ADMIN, or the kernel has no
/// clsact qdisc.
pub fn close(interface: &str) -> Result<(), PortError> {
    let control = Control::open()?;
    let ifindex = control.interface(interface)?.index;
    Program::load(ProgramKind::SchedCls, "evenkeel_gate", &assemble(), 0)
        .and_then(|program| filter::close(ifindex, &program))
        .map_err(|error| control.unless_gone(interface, ifindex, error))
}

/// Opens it: the kernel forwards by it again. Whether it was closed.
///
/// # Errors
/// There is no such interface, or the process lacks CAP_NET_ADMIN.
pub fn open(interface: &str) -> Result<bool, PortError> {
    let control = Control::open()?;
    let ifindex = control.interface(interface)?.index;
    filter::open(ifindex).map_err(|error| {
        let what = format!("opening {interface} for what the kernel forwards");
        control.unless_gone(interface, ifindex, PortError::from_io(what, error))
    })
}

fn assemble() -> Vec<u64> {
    let (r0, r1, r2) = (Reg(0), Reg(1), Reg(2));
    let mut asm = Assembler::default();
    let pass = asm.label();
    asm.load(Width::B4, r2, r1, INGRESS_IFINDEX).jump_if(r2, If::Equal, 0, pass);
    asm.set(r0, DROP).exit();
    asm.place(pass);
    asm.set(r0, PASS).exit();
    asm.finish()
}
