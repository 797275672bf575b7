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
//! "Pass" hands the frame to the next program, so other people's programs on the interface go on working.

use crate::bpf::{Assembler, FP, If, Label, Map, Reg, Width};

/// `TCX_NEXT` and `TC_ACT_UNSPEC`: go on with the next program, or with the stack.
const PASS: i32 = -1;
/// `TCX_DROP` and `TC_ACT_SHOT`.
const DROP: i32 = 2;

const MAP_LOOKUP: i32 = 1;
const KTIME_GET_NS: i32 = 5;
const SKB_LOAD_BYTES: i32 = 26;

/// Offset of `pkt_type` in `__sk_buff`.
const PACKET_TYPE: i16 = 4;

/// A heartbeat older than this no longer counts, nanoseconds.
pub(super) const HEARTBEAT_VALID: i32 = 1_000_000_000;

/// Offsets in the one value of the state map: when the router was last alive, and what was dropped.
pub(super) const BEAT: i16 = 0;
pub(super) const DROPPED: i16 = 8;
/// Size of that value.
pub(super) const STATE: u32 = 16;

/// The key under which an address stands in the map of local addresses: IPv6, or IPv4 mapped into it.
pub(super) fn key(address: std::net::IpAddr) -> [u8; 16] {
    match address {
        std::net::IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        std::net::IpAddr::V6(v6) => v6.octets(),
    }
}

/// What a load of these bytes of the frame gives.
const fn half(bytes: [u8; 2]) -> i32 {
    u16::from_ne_bytes(bytes) as i32
}

/// Stack: the key at -16, the Ethernet type at -24.
const KEY: i16 = -16;
const TYPE: i16 = -24;

pub(super) fn assemble(local: &Map, state: &Map, heartbeat: bool) -> Vec<u64> {
    let (r0, r1, r2, frame, l3) = (Reg(0), Reg(1), Reg(2), Reg(6), Reg(7));
    let mut asm = Assembler::default();
    let pass = asm.label();
    let tagged = asm.label();
    let known = asm.label();
    let v4 = asm.label();
    let v6 = asm.label();
    let look = asm.label();

    asm.copy(frame, r1);
    asm.load(Width::B4, r2, frame, PACKET_TYPE).jump_if(r2, If::NotEqual, 0, pass);
    fetch_at(&mut asm, 12, TYPE, 2, pass);
    asm.set(l3, 14);
    asm.load(Width::B2, r2, FP, TYPE);
    asm.jump_if(r2, If::Equal, half([0x81, 0x00]), tagged);
    asm.jump_if(r2, If::Equal, half([0x88, 0xa8]), tagged);
    asm.jump(known);
    asm.place(tagged);
    fetch_at(&mut asm, 16, TYPE, 2, pass);
    asm.set(l3, 18);
    asm.load(Width::B2, r2, FP, TYPE);
    asm.place(known);
    asm.jump_if(r2, If::Equal, half([0x08, 0x00]), v4);
    asm.jump_if(r2, If::Equal, half([0x86, 0xdd]), v6);
    asm.jump(pass);

    asm.place(v4);
    asm.store(Width::B8, FP, KEY, 0);
    asm.store(Width::B4, FP, KEY + 8, i32::from_ne_bytes([0, 0, 0xff, 0xff]));
    asm.copy(r2, l3).add(r2, 16);
    fetch(&mut asm, KEY + 12, 4, pass);
    asm.load(Width::B1, r2, FP, KEY + 12).and(r2, 0xf0).jump_if(r2, If::Equal, 0xe0, pass);
    // 255.255.255.255 in halves: as a constant of four bytes it would be sign-extended, as a load it is not.
    let unicast = asm.label();
    asm.load(Width::B2, r2, FP, KEY + 12).jump_if(r2, If::NotEqual, 0xffff, unicast);
    asm.load(Width::B2, r2, FP, KEY + 14).jump_if(r2, If::Equal, 0xffff, pass);
    asm.place(unicast);
    asm.jump(look);

    asm.place(v6);
    asm.copy(r2, l3).add(r2, 24);
    fetch(&mut asm, KEY, 16, pass);
    asm.load(Width::B1, r2, FP, KEY).jump_if(r2, If::Equal, 0xff, pass);
    asm.load(Width::B2, r2, FP, KEY).and(r2, half([0xff, 0xc0])).jump_if(
        r2,
        If::Equal,
        half([0xfe, 0x80]),
        pass,
    );

    asm.place(look);
    asm.map(r1, local).copy(r2, FP).add(r2, i32::from(KEY)).call(MAP_LOOKUP);
    asm.jump_if(r0, If::NotEqual, 0, pass);

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

/// Copies `len` bytes at the offset in register 2 to the stack; goes to `otherwise` if the frame ends before them.
fn fetch(asm: &mut Assembler, to: i16, len: i32, otherwise: Label) {
    asm.copy(Reg(1), Reg(6)).copy(Reg(3), FP).add(Reg(3), i32::from(to)).set(Reg(4), len);
    asm.call(SKB_LOAD_BYTES).jump_if(Reg(0), If::NotEqual, 0, otherwise);
}

fn fetch_at(asm: &mut Assembler, offset: i32, to: i16, len: i32, otherwise: Label) {
    asm.set(Reg(2), offset);
    fetch(asm, to, len, otherwise);
}
