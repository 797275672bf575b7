//! The program at the interface's driver: transit traffic to our sockets, all else to the kernel.
//!
//! ```text
//! a protocol of the router itself (exchange frames of a cluster) -> ours
//! not addressed to this station (broadcast, multicast, others)   -> pass
//! tag of a VLAN                                                  -> pass
//! tag that says a priority only: look behind it (one)
//! neither IPv4 nor IPv6                                          -> pass
//! destination multicast, limited broadcast, IPv6 link-local      -> pass
//! destination in the map of local addresses                      -> pass
//! the worker that has its receive queue does not beat            -> pass
//! else: stamp it, and to the socket of its receive queue; no socket there -> pass
//! ```
//!
//! "Pass" is the way into the kernel's stack, which answers, or forwards. So whatever we do not
//! take, and everything once the process has ended and its link with it, goes the kernel's way.
//!
//! The stamp is our monotonic clock, put before the frame as metadata: [`STAMP`] bytes,
//! the clock and the clock combined with a constant, by which leftovers of an earlier frame are
//! told apart where a driver knows no metadata. It costs the sender's CPU two calls, and a cache
//! line that goes from one CPU to the other; so a port that is polled all the time asks for some
//! stamps only.

use super::options::OwnFrames;
use crate::bpf::{Assembler, FP, If, Label, Map, Reg, Width};
use crate::classify::{self, LOAD_XDP, LocalAddresses, MAP_LOOKUP, half};
use crate::heartbeat::{Heartbeat, KTIME_GET_NS, read_clock};

const XDP_PASS: i32 = 2;

/// Offset of the destination in an IPv4 packet without a tag, and where a header without options
/// ends.
const DESTINATION: i16 = 14 + 16;
const END: i32 = 14 + 20;

const REDIRECT_MAP: i32 = 51;
const ADJUST_META: i32 = 54;

/// Offsets in `xdp_md`.
const DATA: i16 = 0;
const DATA_END: i16 = 4;
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

/// Which frames get a stamp: all of them, or with a map that counts them on each CPU one in so
/// many, a power of two.
pub(super) type Stamped<'a> = Option<(&'a Map, u32)>;

/// Where the key into the counting map lies on the stack, below what `classify` keeps there.
const COUNTER_KEY: i16 = -40;

/// Whose heartbeat is looked at, and by how many workers the queues are divided; `None`: nobody's.
pub(super) type Alive<'a> = Option<(&'a Heartbeat, u32)>;

/// `station` holds the port's hardware address, `local` what the machine itself receives, `sockets`
/// ours by receive queue.
pub(super) fn assemble(
    station: &Map,
    local: &LocalAddresses,
    sockets: &Map,
    stamped: Stamped<'_>,
    alive: Alive<'_>,
    own: Option<OwnFrames>,
) -> Vec<u64> {
    let (r0, r1, r2, r3, frame) = (Reg(0), Reg(1), Reg(2), Reg(3), Reg(6));
    let mut asm = Assembler::default();
    let pass = asm.label();
    let unusual = asm.label();
    let ours = asm.label();
    let unstamped = asm.label();

    asm.copy(frame, r1);
    untagged_ipv4(&mut asm, station, local, unusual, pass);
    asm.jump(ours);
    asm.place(unusual);
    if let Some(own) = own {
        classify::protocol(&mut asm, own.vlan, own.ethertype, LOAD_XDP, ours);
        if own.vlan > 0 {
            // Its tag may have been taken away before.
            classify::protocol(&mut asm, 0, own.ethertype, LOAD_XDP, ours);
        }
    }
    classify::addressed_to(&mut asm, station, LOAD_XDP, pass);
    classify::transit(&mut asm, local, LOAD_XDP, pass);
    asm.place(ours);

    if let Some((heart, workers)) = alive {
        asm.load(Width::B4, r2, frame, RX_QUEUE);
        heart.owner_beats(&mut asm, r2, workers, pass);
    }
    if let Some((counter, every)) = stamped {
        asm.store(Width::B4, FP, COUNTER_KEY, 0)
            .map(r1, counter)
            .copy(r2, FP)
            .add(r2, COUNTER_KEY.into());
        asm.call(MAP_LOOKUP).jump_if(r0, If::Equal, 0, unstamped);
        asm.load(Width::B4, r1, r0, 0).copy(r2, r1).add(r2, 1).store_register(Width::B4, r0, 0, r2);
        asm.and(r1, every as i32 - 1).jump_if(r1, If::NotEqual, 0, unstamped);
    }
    asm.copy(r1, frame).set(r2, -(STAMP as i32)).call(ADJUST_META);
    asm.jump_if(r0, If::NotEqual, 0, unstamped);
    read_clock(&mut asm, KTIME_GET_NS);
    asm.load(Width::B4, r1, frame, DATA_META).load(Width::B4, r2, frame, DATA);
    asm.copy(r3, r1).add(r3, STAMP as i32).jump_if_register(r3, If::Greater, r2, unstamped);
    asm.store_register(Width::B8, r1, 0, r0).exclusive_or(r0, SIGNATURE).store_register(
        Width::B8,
        r1,
        8,
        r0,
    );
    asm.place(unstamped);
    asm.load(Width::B4, r2, frame, RX_QUEUE).map(r1, sockets).set(r3, XDP_PASS).call(REDIRECT_MAP);
    asm.exit();

    asm.place(pass);
    asm.set(r0, XDP_PASS).exit();
    asm.finish()
}

/// The same decision for an IPv4 packet without a tag, which most are, read where it lies: each
/// copy that a helper makes costs as much as all of this. Goes on if the packet is in transit, to
/// `unusual` with anything else that may be, and to `pass` with what is not.
fn untagged_ipv4(
    asm: &mut Assembler,
    station: &Map,
    local: &LocalAddresses,
    unusual: Label,
    pass: Label,
) {
    let (r1, r2, r3, r4, r5, frame) = (Reg(1), Reg(2), Reg(3), Reg(4), Reg(5), Reg(6));
    let unicast = asm.label();
    asm.load(Width::B4, r2, frame, DATA).load(Width::B4, r3, frame, DATA_END);
    asm.copy(r1, r2).add(r1, END).jump_if_register(r1, If::Greater, r3, unusual);
    asm.load(Width::B2, r4, r2, 12).jump_if(r4, If::NotEqual, half([0x08, 0x00]), unusual);
    asm.map_value(r1, station);
    // In halves: some machines read a word only where a word may lie.
    for at in [0, 2, 4] {
        asm.load(Width::B2, r4, r2, at).load(Width::B2, r5, r1, at);
        asm.jump_if_register(r4, If::NotEqual, r5, pass);
    }
    asm.load(Width::B1, r4, r2, DESTINATION).and(r4, 0xf0).jump_if(r4, If::Equal, 0xe0, pass);
    asm.load(Width::B2, r4, r2, DESTINATION).jump_if(r4, If::NotEqual, 0xffff, unicast);
    asm.load(Width::B2, r4, r2, DESTINATION + 2).jump_if(r4, If::Equal, 0xffff, pass);
    asm.place(unicast);
    asm.load(Width::B4, r4, r2, DESTINATION);
    classify::foreign_ipv4(asm, local, r4, pass);
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
