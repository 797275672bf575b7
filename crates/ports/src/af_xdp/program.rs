//! The program at the interface's driver: transit traffic to our sockets, all else to the kernel.
//!
//! ```text
//! not addressed to this station (broadcast, multicast, others)   -> pass
//! 802.1Q or 802.1ad tag in the frame: look behind it (one)
//! neither IPv4 nor IPv6                                          -> pass
//! destination multicast, limited broadcast, IPv6 link-local      -> pass
//! destination in the map of local addresses                      -> pass
//! else: stamp it, and to the socket of its receive queue; no socket there -> pass
//! ```
//!
//! "Pass" is the way into the kernel's stack, which answers, or forwards. So whatever we do not take, and everything once the process has
//! ended and its link with it, goes the kernel's way.
//!
//! The stamp is the kernel's monotonic clock, put before the frame as metadata: [`STAMP`] bytes, the clock and the clock combined with
//! a constant, by which leftovers of an earlier frame are told apart where a driver knows no metadata.

use crate::bpf::{Assembler, If, Map, Reg, Width};
use crate::classify::{self, LOAD_XDP};

const XDP_PASS: i32 = 2;

const KTIME_GET_NS: i32 = 5;
const REDIRECT_MAP: i32 = 51;
const ADJUST_META: i32 = 54;

/// Offsets in `xdp_md`.
const DATA: i16 = 0;
const DATA_META: i16 = 8;
const RX_QUEUE: i16 = 16;

/// Length of the stamp before a frame, bytes.
pub(super) const STAMP: usize = 16;
const SIGNATURE: i32 = 0x65_76_6b_6c;

/// The stamp in the metadata of a frame, nanoseconds of CLOCK_MONOTONIC; `None` if there is none.
pub(super) fn stamp(metadata: &[u8]) -> Option<u64> {
    let (clock, check) = metadata.split_at_checked(8)?;
    let clock = u64::from_ne_bytes(clock.try_into().ok()?);
    let check = u64::from_ne_bytes(check.get(..8)?.try_into().ok()?);
    (clock ^ check == SIGNATURE as u64).then_some(clock)
}

/// `station` holds the port's hardware address, `local` what the machine itself receives, `sockets` ours by receive queue.
pub(super) fn assemble(station: &Map, local: &Map, sockets: &Map) -> Vec<u64> {
    let (r0, r1, r2, r3, frame) = (Reg(0), Reg(1), Reg(2), Reg(3), Reg(6));
    let mut asm = Assembler::default();
    let pass = asm.label();
    let unstamped = asm.label();

    asm.copy(frame, r1);
    classify::addressed_to(&mut asm, station, LOAD_XDP, pass);
    classify::transit(&mut asm, local, LOAD_XDP, pass);

    asm.copy(r1, frame).set(r2, -(STAMP as i32)).call(ADJUST_META);
    asm.jump_if(r0, If::NotEqual, 0, unstamped);
    asm.call(KTIME_GET_NS);
    asm.load(Width::B4, r1, frame, DATA_META).load(Width::B4, r2, frame, DATA);
    asm.copy(r3, r1).add(r3, STAMP as i32).jump_if_register(r3, If::Greater, r2, unstamped);
    asm.store_register(Width::B8, r1, 0, r0).exclusive_or(r0, SIGNATURE).store_register(Width::B8, r1, 8, r0);
    asm.place(unstamped);
    asm.load(Width::B4, r2, frame, RX_QUEUE).map(r1, sockets).set(r3, XDP_PASS).call(REDIRECT_MAP);
    asm.exit();

    asm.place(pass);
    asm.set(r0, XDP_PASS).exit();
    asm.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_is_told_from_leftovers() {
        let clock = 0x0123_4567_89ab_cdefu64;
        let mut metadata = [0; STAMP];
        metadata[..8].copy_from_slice(&clock.to_ne_bytes());
        metadata[8..].copy_from_slice(&(clock ^ SIGNATURE as u64).to_ne_bytes());
        assert_eq!(stamp(&metadata), Some(clock));
        metadata[3] ^= 1;
        assert_eq!(stamp(&metadata), None);
        assert_eq!(stamp(&[0; STAMP]), None);
        assert_eq!(stamp(&metadata[..15]), None);
    }
}
