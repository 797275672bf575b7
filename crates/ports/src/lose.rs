//! Loses frames of a VLAN at random, as a bad switch does: a BPF program where frames leave the
//! kernel by an interface.
//!
//! For tests of protocols whose frames may be lost: nothing else on the interface is touched, and
//! it ends with its owner. Needs Linux 6.6.

use crate::bpf::{Assembler, AttachType, If, Link, Program, ProgramKind, Reg, Width};
use crate::error::PortError;
use crate::interface::Control;

/// `TCX_NEXT` and `TCX_DROP`.
const PASS: i32 = -1;
const DROP: i32 = 2;
const GET_PRANDOM_U32: i32 = 7;
/// Offsets in `__sk_buff`: whether a tag was taken out of the frame, and that tag.
const VLAN_PRESENT: i16 = 20;
const VLAN_TCI: i16 = 24;
/// The random number is cut to so many values.
const STEPS: i32 = 1 << 20;

/// A program at work; dropping it detaches it.
#[derive(Debug)]
pub struct Loss {
    _link: Link,
}

impl Loss {
    /// Loses a part of the frames of `vlan` that leave by `interface` of the calling thread's
    /// namespace, each for itself. `part` is 0 to 1, in steps of a millionth.
    ///
    /// # Errors
    /// There is no such interface, the process lacks CAP_BPF and CAP_NET_ADMIN, or the kernel is
    /// older than 6.6.
    pub fn attach(interface: &str, vlan: u16, part: f64) -> Result<Self, PortError> {
        let ifindex = Control::open()?.interface(interface)?.index;
        let least = (part.clamp(0.0, 1.0) * f64::from(STEPS)) as i32;
        let program =
            Program::load(ProgramKind::SchedCls, "evenkeel_lose", &assemble(vlan, least), 0)?;
        let link = program.link(ifindex, AttachType::TcxEgress, 0).map_err(|error| {
            PortError::from_io(format!("linking a program to {interface}"), error)
        })?;
        Ok(Self { _link: link })
    }
}

/// Drops what has the tag and gets a random number below `least`.
fn assemble(vlan: u16, least: i32) -> Vec<u64> {
    let (r0, r1, r2) = (Reg(0), Reg(1), Reg(2));
    let mut asm = Assembler::default();
    let pass = asm.label();
    asm.load(Width::B4, r2, r1, VLAN_PRESENT).jump_if(r2, If::Equal, 0, pass);
    asm.load(Width::B4, r2, r1, VLAN_TCI).and(r2, 0xfff).jump_if(
        r2,
        If::NotEqual,
        i32::from(vlan),
        pass,
    );
    if least > 0 {
        asm.call(GET_PRANDOM_U32).and(r0, STEPS - 1).jump_if(r0, If::Greater, least - 1, pass);
        asm.set(r0, DROP).exit();
    }
    asm.place(pass);
    asm.set(r0, PASS).exit();
    asm.finish()
}
