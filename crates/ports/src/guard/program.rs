//! The guard's program, assembled here.
//!
//! ```text
//! not addressed to this station (broadcast, multicast, others)   -> pass
//! 802.1Q or 802.1ad tag in the frame: look behind it (one)
//! neither IPv4 nor IPv6                                          -> pass
//! destination multicast, limited broadcast, IPv6 link-local      -> pass
//! destination in the map of local addresses                      -> pass
//! filter only: last heartbeat older than one second              -> pass
//! else count it                                                  -> drop
//! ```
//!
//! "Pass" hands the frame to the next program, so other people's programs on the interface go on
//! working.

use crate::bpf::{Assembler, If, Map, Reg, Width};
use crate::classify::{self, LOAD_SKB};

/// `TCX_NEXT` and `TC_ACT_UNSPEC`: go on with the next program, or with the stack.
const PASS: i32 = -1;
/// `TCX_DROP` and `TC_ACT_SHOT`.
const DROP: i32 = 2;

const KTIME_GET_NS: i32 = 5;

/// Offset of `pkt_type` in `__sk_buff`.
const PACKET_TYPE: i16 = 4;

/// A heartbeat older than this no longer counts, nanoseconds.
pub(super) const HEARTBEAT_VALID: i32 = 1_000_000_000;

/// Offsets in the one value of the state map: when the router was last alive, and what was dropped.
pub(super) const BEAT: i16 = 0;
pub(super) const DROPPED: i16 = 8;
/// Size of that value.
pub(super) const STATE: u32 = 16;

pub(super) fn assemble(local: &Map, state: &Map, heartbeat: bool) -> Vec<u64> {
    let (r0, r1, r2, frame) = (Reg(0), Reg(1), Reg(2), Reg(6));
    let mut asm = Assembler::default();
    let pass = asm.label();

    asm.copy(frame, r1);
    asm.load(Width::B4, r2, frame, PACKET_TYPE).jump_if(r2, If::NotEqual, 0, pass);
    classify::transit(&mut asm, local, LOAD_SKB, pass);

    if heartbeat {
        // The beat is read before the clock, so that the difference is never negative.
        let beat = Reg(8);
        asm.map_value(r1, state).load(Width::B8, beat, r1, BEAT).call(KTIME_GET_NS);
        asm.subtract(r0, beat).jump_if(r0, If::Greater, HEARTBEAT_VALID, pass);
    }
    asm.map_value(r1, state).set(r2, 1).atomic_add(r1, DROPPED, r2);
    asm.set(r0, DROP).exit();
    asm.place(pass);
    asm.set(r0, PASS).exit();
    asm.finish()
}
