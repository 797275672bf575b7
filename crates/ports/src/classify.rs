//! The part of our BPF programs that tells transit traffic from what the kernel itself must see:
//! the same at the ingress of the stack ([`crate::guard`]) and in the driver ([`crate::af_xdp`]).

use std::collections::BTreeSet;
use std::io;
use std::net::IpAddr;

use crate::bpf::{Assembler, FP, If, Label, Map, MapKind, Reg, Width};
use crate::error::PortError;

/// The most addresses that a program knows as local.
pub const MAX_LOCAL: usize = 4096;

/// The helper that copies bytes of the frame, for programs on socket buffers; takes the same
/// arguments as [`LOAD_XDP`].
pub(crate) const LOAD_SKB: i32 = 26;
/// That for programs in the driver (kernel 5.18).
pub(crate) const LOAD_XDP: i32 = 189;

pub(crate) const MAP_LOOKUP: i32 = 1;

/// The program's argument is kept here.
const FRAME: Reg = Reg(6);
const L3: Reg = Reg(7);

/// Stack: the key at -16, the Ethernet type at -24, the destination at -32.
const KEY: i16 = -16;
const TYPE: i16 = -24;
const STATION: i16 = -32;

/// Bits of a place in the sieve.
const SIEVE_BITS: u32 = 12;
/// 2^32 divided by the golden ratio: neighbouring addresses get distant places.
const GOLDEN: u32 = 0x9e37_79b9;

/// A byte for each place of an address; zero where no local one has its place.
type Sieve = [u8; 1 << SIEVE_BITS];

/// The addresses that the machine itself receives, as maps that programs look into.
///
/// Nearly no frame in transit has the place of a local address. To find that out in the sieve is a
/// load; to look for the whole address, a call that costs more than the rest of a program.
#[derive(Debug)]
pub(crate) struct LocalAddresses {
    sieve: Map,
    map: Map,
    known: BTreeSet<[u8; 16]>,
}

impl LocalAddresses {
    pub(crate) fn create(addresses: &[IpAddr]) -> Result<Self, PortError> {
        let sieve = Map::create(MapKind::Array, 4, size_of::<Sieve>() as u32, 1, 0)?;
        let map = Map::create(MapKind::Hash, 16, 1, MAX_LOCAL as u32, 0)?;
        let mut this = Self { sieve, map, known: BTreeSet::new() };
        this.set(addresses)?;
        Ok(this)
    }

    /// Makes the map hold exactly `addresses`; one that is in the old and in the new set is known
    /// throughout.
    pub(crate) fn set(&mut self, addresses: &[IpAddr]) -> Result<(), PortError> {
        let wanted: BTreeSet<_> = addresses.iter().map(|address| key(*address)).collect();
        if wanted.len() > MAX_LOCAL {
            return Err(PortError::OutOfRange {
                knob: "number of local addresses",
                value: wanted.len() as u64,
                range: "0 to 4096",
            });
        }
        let failed = |error| PortError::from_io("telling a BPF program a local address", error);
        // The sieve lets all of both sets through while the other map changes.
        self.sift(self.known.union(&wanted)).map_err(failed)?;
        // Both sets may fit and their union not.
        let crowded = self.known.union(&wanted).count() > MAX_LOCAL;
        for pass in if crowded { [false, true] } else { [true, false] } {
            if pass {
                for key in wanted.difference(&self.known) {
                    self.map.insert(key, &[1]).map_err(failed)?;
                }
            } else {
                for key in self.known.difference(&wanted) {
                    match self.map.remove(key) {
                        Err(error) if error.raw_os_error() != Some(libc::ENOENT) => {
                            return Err(failed(error));
                        }
                        _ => {}
                    }
                }
            }
        }
        self.sift(wanted.iter()).map_err(failed)?;
        self.known = wanted;
        Ok(())
    }

    /// Makes the sieve let these keys through.
    fn sift<'a>(&self, keys: impl Iterator<Item = &'a [u8; 16]>) -> io::Result<()> {
        let mut sieve: Sieve = [0; 1 << SIEVE_BITS];
        for [.., a, b, c, d] in keys {
            let end = u32::from_ne_bytes([*a, *b, *c, *d]);
            sieve[(end.wrapping_mul(GOLDEN) >> (32 - SIEVE_BITS)) as usize] = 1;
        }
        self.sieve.insert(&0u32.to_ne_bytes(), &sieve)
    }
}

/// The key under which an address stands in the map of local addresses: IPv6, or IPv4 mapped into
/// it.
fn key(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

/// What a load of these bytes of the frame gives.
pub(crate) const fn half(bytes: [u8; 2]) -> i32 {
    u16::from_ne_bytes(bytes) as i32
}

/// Goes on if the frame is addressed to the station whose hardware address begins the value of
/// `station`; else to `otherwise`. The program's argument is in register 6; 7 is used.
pub(crate) fn addressed_to(asm: &mut Assembler, station: &Map, load: i32, otherwise: Label) {
    let (r1, r2, r3) = (Reg(1), Reg(2), Reg(3));
    fetch_at(asm, load, 0, STATION, 6, otherwise);
    asm.map_value(r1, station);
    asm.load(Width::B4, r2, FP, STATION).load(Width::B4, r3, r1, 0);
    asm.jump_if_register(r2, If::NotEqual, r3, otherwise);
    asm.load(Width::B2, r2, FP, STATION + 4).load(Width::B2, r3, r1, 4);
    asm.jump_if_register(r2, If::NotEqual, r3, otherwise);
}

/// Goes to `found` if the frame has the tag of this VLAN (0: none) and this Ethertype or the one
/// after it; else on. The program's argument is in register 6.
pub(crate) fn protocol(asm: &mut Assembler, vlan: u16, ethertype: u16, load: i32, found: Label) {
    let r2 = Reg(2);
    let other = asm.label();
    let mut at = 12;
    if vlan > 0 {
        fetch_at(asm, load, at, TYPE, 4, other);
        asm.load(Width::B2, r2, FP, TYPE);
        asm.jump_if(r2, If::NotEqual, half([0x81, 0x00]), other);
        asm.load(Width::B2, r2, FP, TYPE + 2).and(r2, half([0x0f, 0xff]));
        asm.jump_if(r2, If::NotEqual, half(vlan.to_be_bytes()), other);
        at += 4;
    }
    fetch_at(asm, load, at, TYPE, 2, other);
    asm.load(Width::B2, r2, FP, TYPE);
    for kind in [ethertype, ethertype.wrapping_add(1)] {
        asm.jump_if(r2, If::Equal, half(kind.to_be_bytes()), found);
    }
    asm.place(other);
}

/// Goes on if the frame is an IP packet that is not for the machine itself; else to `otherwise`.
/// The program's argument is in register 6; 7 is used.
pub(crate) fn transit(asm: &mut Assembler, local: &LocalAddresses, load: i32, otherwise: Label) {
    let r2 = Reg(2);
    let tagged = asm.label();
    let known = asm.label();
    let v4 = asm.label();
    let v6 = asm.label();
    let look = asm.label();

    fetch_at(asm, load, 12, TYPE, 2, otherwise);
    asm.set(L3, 14);
    asm.load(Width::B2, r2, FP, TYPE);
    asm.jump_if(r2, If::Equal, half([0x81, 0x00]), tagged);
    asm.jump_if(r2, If::Equal, half([0x88, 0xa8]), tagged);
    asm.jump(known);
    asm.place(tagged);
    // One that only says a priority. The frames of another VLAN are the kernel's.
    fetch_at(asm, load, 14, TYPE, 2, otherwise);
    asm.load(Width::B2, r2, FP, TYPE).and(r2, half([0x0f, 0xff]));
    asm.jump_if(r2, If::NotEqual, 0, otherwise);
    fetch_at(asm, load, 16, TYPE, 2, otherwise);
    asm.set(L3, 18);
    asm.load(Width::B2, r2, FP, TYPE);
    asm.place(known);
    asm.jump_if(r2, If::Equal, half([0x08, 0x00]), v4);
    asm.jump_if(r2, If::Equal, half([0x86, 0xdd]), v6);
    asm.jump(otherwise);

    asm.place(v4);
    map_prefix(asm);
    asm.copy(r2, L3).add(r2, 16);
    fetch(asm, load, KEY + 12, 4, otherwise);
    asm.load(Width::B1, r2, FP, KEY + 12).and(r2, 0xf0).jump_if(r2, If::Equal, 0xe0, otherwise);
    // 255.255.255.255 in halves: as a constant of four bytes it would be sign-extended, as a load
    // it is not.
    let unicast = asm.label();
    asm.load(Width::B2, r2, FP, KEY + 12).jump_if(r2, If::NotEqual, 0xffff, unicast);
    asm.load(Width::B2, r2, FP, KEY + 14).jump_if(r2, If::Equal, 0xffff, otherwise);
    asm.place(unicast);
    asm.jump(look);

    asm.place(v6);
    asm.copy(r2, L3).add(r2, 24);
    fetch(asm, load, KEY, 16, otherwise);
    asm.load(Width::B1, r2, FP, KEY).jump_if(r2, If::Equal, 0xff, otherwise);
    asm.load(Width::B2, r2, FP, KEY).and(r2, half([0xff, 0xc0])).jump_if(
        r2,
        If::Equal,
        half([0xfe, 0x80]),
        otherwise,
    );

    asm.place(look);
    let foreign = asm.label();
    asm.load(Width::B4, r2, FP, KEY + 12);
    sift(asm, local, r2, foreign);
    find(asm, local, otherwise);
    asm.place(foreign);
}

/// Goes on if the IPv4 address in `address`, as it lies in a packet, is not the machine's own; else
/// to `otherwise`. Registers 0 to 5 are lost.
pub(crate) fn foreign_ipv4(
    asm: &mut Assembler,
    local: &LocalAddresses,
    address: Reg,
    otherwise: Label,
) {
    let foreign = asm.label();
    sift(asm, local, address, foreign);
    map_prefix(asm);
    asm.store_register(Width::B4, FP, KEY + 12, address);
    find(asm, local, otherwise);
    asm.place(foreign);
}

/// What every key of an IPv4 address begins with.
fn map_prefix(asm: &mut Assembler) {
    asm.store(Width::B8, FP, KEY, 0);
    asm.store(Width::B4, FP, KEY + 8, i32::from_ne_bytes([0, 0, 0xff, 0xff]));
}

/// Goes to `foreign` if no local address ends in the four bytes in `end`, as they lie in a packet.
/// `end`, which is neither register 1 nor 3, stays; these two are lost.
fn sift(asm: &mut Assembler, local: &LocalAddresses, end: Reg, foreign: Label) {
    let (r1, r3) = (Reg(1), Reg(3));
    asm.copy(r3, end).multiply_word(r3, GOLDEN as i32).shift_word_right(r3, 32 - SIEVE_BITS as i32);
    asm.map_value(r1, &local.sieve).add_register(r1, r3).load(Width::B1, r3, r1, 0);
    asm.jump_if(r3, If::Equal, 0, foreign);
}

/// Goes to `found` if the key on the stack is a local address. Registers 0 to 5 are lost.
fn find(asm: &mut Assembler, local: &LocalAddresses, found: Label) {
    asm.map(Reg(1), &local.map).copy(Reg(2), FP).add(Reg(2), i32::from(KEY)).call(MAP_LOOKUP);
    asm.jump_if(Reg(0), If::NotEqual, 0, found);
}

/// Copies `len` bytes at the offset in register 2 to the stack; goes to `otherwise` if the frame
/// ends before them.
fn fetch(asm: &mut Assembler, load: i32, to: i16, len: i32, otherwise: Label) {
    asm.copy(Reg(1), FRAME).copy(Reg(3), FP).add(Reg(3), i32::from(to)).set(Reg(4), len);
    asm.call(load).jump_if(Reg(0), If::NotEqual, 0, otherwise);
}

fn fetch_at(asm: &mut Assembler, load: i32, offset: i32, to: i16, len: i32, otherwise: Label) {
    asm.set(Reg(2), offset);
    fetch(asm, load, to, len, otherwise);
}
