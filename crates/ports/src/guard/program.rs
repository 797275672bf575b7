//! The guard's program, assembled here.
//!
//! ```text
//! given back by the router to be forwarded by the kernel         -> pass, without its mark
//! not addressed to this station (broadcast, multicast, others)   -> pass
//! tag of a VLAN, in the frame or taken out of it                 -> pass
//! tag that says a priority only: look behind it (one)
//! neither IPv4 nor IPv6                                          -> pass
//! destination multicast, limited broadcast, IPv6 link-local      -> pass
//! destination in the map of local addresses                      -> pass
//! a worker of the router has not beaten lately (heartbeat)         -> pass
//! else count it                                                  -> drop
//! ```
//!
//! "Pass" hands the frame to the next program, so other people's programs on the interface go on
//! working.

use crate::bpf::{Assembler, If, Map, Reg, Width};
use crate::classify::{self, LOAD_SKB, LocalAddresses};
use crate::heartbeat::Heartbeat;
use crate::wrap;

/// `TCX_NEXT` and `TC_ACT_UNSPEC`: go on with the next program, or with the stack.
const PASS: i32 = -1;
/// `TCX_DROP` and `TC_ACT_SHOT`.
const DROP: i32 = 2;

/// Offsets of `pkt_type` and `vlan_tci` in `__sk_buff`.
const PACKET_TYPE: i16 = 4;
const VLAN_TCI: i16 = 24;

/// Offset in the one value of the state map: what was dropped.
pub(super) const DROPPED: i16 = 0;
/// Size of that value.
pub(super) const STATE: u32 = 8;

/// `clock`: the helper that tells the time.
pub(super) fn assemble(
    local: &LocalAddresses,
    state: &Map,
    heart: &Heartbeat,
    clock: i32,
) -> Vec<u64> {
    let (r0, r1, r2, frame) = (Reg(0), Reg(1), Reg(2), Reg(6));
    let mut asm = Assembler::default();
    let pass = asm.label();

    asm.copy(frame, r1);
    wrap::unmark(&mut asm, frame);
    asm.load(Width::B4, r2, frame, PACKET_TYPE).jump_if(r2, If::NotEqual, 0, pass);
    // Where the kernel has taken the tag out; without one this is 0.
    asm.load(Width::B4, r2, frame, VLAN_TCI).and(r2, 0x0fff).jump_if(r2, If::NotEqual, 0, pass);
    classify::transit(&mut asm, local, LOAD_SKB, pass);

    heart.all_beat(&mut asm, clock, pass);
    asm.map_value(r1, state).set(r2, 1).atomic_add(r1, DROPPED, r2);
    asm.set(r0, DROP).exit();
    asm.place(pass);
    asm.set(r0, PASS).exit();
    asm.finish()
}
