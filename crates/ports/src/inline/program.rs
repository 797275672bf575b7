//! The four programs of an inline interface, assembled here.
//!
//! ```text
//! egress of eth0    mark is ours: mark := 0, next · left to the kernel: next
//!                   else count, mark := redirected, redirect to ek0
//! ingress of eth0   mark is ours: mark := 0, next · left to the kernel: next
//!                   else count, drop (the packet socket has its copy)
//! ingress of ek0    mark is ours: redirect to the ingress of eth0 · else drop
//! ingress of ek1    drop (the packet socket has its copy)
//!
//! ingress of a bridged interface    count, drop, whatever it is
//! ```
//!
//! **Left to the kernel** is everything while the router gives no sign of life
//! ([`crate::heartbeat`]): one that hangs is passed by. And always what keeps a link working and is
//! no traffic of anybody's: frames that are neither IP nor PPPoE (ARP, LLDP, STP, 802.1X),
//! neighbour discovery and router advertisements of IPv6; at ingress also frames for other
//! stations, which the kernel drops. The filter of the packet socket ([`received`]) leaves the same
//! frames out.

use crate::bpf::{Assembler, If, Label, Map, Reg, Width};
use crate::heartbeat::{Heartbeat, KTIME_GET_COARSE_NS};
use crate::wrap::HANDED_OVER;

/// On packets that we have sent: they have been through the link.
pub(crate) const OURS: u32 = 0x656b_0001;
/// On packets on their way from the interface's egress to us.
pub(super) const REDIRECTED: u32 = 0x656b_0002;

/// `TCX_NEXT`.
const NEXT: i32 = -1;
/// `TCX_DROP`.
const DROP: i32 = 2;

const REDIRECT: i32 = 23;
const LOAD_BYTES: i32 = 26;
const REDIRECT_INGRESS: i32 = 1;

/// Offsets in `__sk_buff`.
const PACKET_TYPE: i16 = 4;
const MARK: i16 = 8;
const PROTOCOL: i16 = 16;
/// `PACKET_OTHERHOST`: addressed to another station.
const OTHER_HOST: i32 = 3;

/// Offsets in the one value of the state map: what was redirected and taken.
pub(super) const REDIRECTED_FRAMES: i16 = 0;
pub(super) const TAKEN_FRAMES: i16 = 8;
/// Size of that value.
pub(super) const STATE: u32 = 16;

const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
/// Session frames of PPPoE; its discovery is the kernel's.
const PPPOE: u16 = 0x8864;
const VLAN: u16 = 0x8100;
const SERVICE_VLAN: u16 = 0x88a8;
/// What is taken whatever is in it. A tag that is still in the frame stands before another one.
const TAKEN: [u16; 4] = [IPV4, PPPOE, VLAN, SERVICE_VLAN];
const ICMPV6: i32 = 58;
/// Router solicitation to redirect: the messages of neighbour discovery.
const DISCOVERY: [i32; 5] = [133, 134, 135, 136, 137];

/// The frame, as all programs keep it.
const FRAME: Reg = Reg(6);
/// Where the bytes that were read of the frame lie on the stack.
const BYTES: i16 = -8;

/// At the egress of the interface.
pub(super) fn egress(state: &Map, heart: &Heartbeat, to: u32) -> Vec<u64> {
    let (r0, r1, r2) = (Reg(0), Reg(1), Reg(2));
    let mut asm = Assembler::default();
    let kernel = asm.label();
    asm.copy(FRAME, r1);
    unmark(&mut asm);
    // A routed port gives it back to the kernel: by another program, before or behind this one.
    asm.load(Width::B4, r2, FRAME, MARK).jump_if(r2, If::Equal, HANDED_OVER as i32, kernel);
    leave(&mut asm, heart, kernel);
    count(&mut asm, state, REDIRECTED_FRAMES);
    asm.set(r2, REDIRECTED as i32).store_register(Width::B4, FRAME, MARK, r2);
    asm.set(r1, to as i32).set(r2, 0).call(REDIRECT).exit();
    asm.place(kernel);
    asm.set(r0, NEXT).exit();
    asm.finish()
}

/// At the ingress of the interface.
pub(super) fn ingress(state: &Map, heart: &Heartbeat) -> Vec<u64> {
    let (r0, r1, r2) = (Reg(0), Reg(1), Reg(2));
    let mut asm = Assembler::default();
    let kernel = asm.label();
    asm.copy(FRAME, r1);
    unmark(&mut asm);
    asm.load(Width::B4, r2, FRAME, PACKET_TYPE).jump_if(r2, If::Equal, OTHER_HOST, kernel);
    leave(&mut asm, heart, kernel);
    count(&mut asm, state, TAKEN_FRAMES);
    asm.set(r0, DROP).exit();
    asm.place(kernel);
    asm.set(r0, NEXT).exit();
    asm.finish()
}

/// At the ingress of an interface that is bridged.
pub(super) fn bridged(state: &Map, heart: &Heartbeat) -> Vec<u64> {
    let mut asm = Assembler::default();
    let kernel = asm.label();
    asm.copy(FRAME, Reg(1));
    heart.all_beat(&mut asm, KTIME_GET_COARSE_NS, kernel);
    count(&mut asm, state, TAKEN_FRAMES);
    asm.set(Reg(0), DROP).exit();
    asm.place(kernel);
    asm.set(Reg(0), NEXT).exit();
    asm.finish()
}

/// At the ingress of the kernel's end of the pair: what we have sent has arrived on the interface.
pub(super) fn inject(to: u32) -> Vec<u64> {
    let (r0, r1, r2) = (Reg(0), Reg(1), Reg(2));
    let mut asm = Assembler::default();
    let stranger = asm.label();
    asm.load(Width::B4, r2, r1, MARK).jump_if(r2, If::NotEqual, OURS as i32, stranger);
    asm.set(r1, to as i32).set(r2, REDIRECT_INGRESS).call(REDIRECT).exit();
    asm.place(stranger);
    asm.set(r0, DROP).exit();
    asm.finish()
}

/// At the ingress of our end of the pair.
pub(super) fn sink() -> Vec<u64> {
    let mut asm = Assembler::default();
    asm.set(Reg(0), DROP).exit();
    asm.finish()
}

/// Lets a frame of ours go on, as if it had never had a mark.
fn unmark(asm: &mut Assembler) {
    let other = asm.label();
    asm.load(Width::B4, Reg(2), FRAME, MARK).jump_if(Reg(2), If::NotEqual, OURS as i32, other);
    asm.set(Reg(2), 0).store_register(Width::B4, FRAME, MARK, Reg(2));
    asm.set(Reg(0), NEXT).exit();
    asm.place(other);
}

/// Goes to `kernel` with a frame that is left to the kernel.
fn leave(asm: &mut Assembler, heart: &Heartbeat, kernel: Label) {
    let r2 = Reg(2);
    heart.all_beat(asm, KTIME_GET_COARSE_NS, kernel);
    let (v6, ours) = (asm.label(), asm.label());
    let kind = |kind: u16| i32::from(kind.to_be());
    asm.load(Width::B4, r2, FRAME, PROTOCOL);
    asm.jump_if(r2, If::Equal, kind(IPV6), v6);
    for taken in TAKEN {
        asm.jump_if(r2, If::Equal, kind(taken), ours);
    }
    asm.jump(kernel);
    asm.place(v6);
    // A frame that ends before these bytes is the link's to judge.
    load_byte(asm, 14 + 6, ours);
    asm.jump_if(r2, If::NotEqual, ICMPV6, ours);
    load_byte(asm, 14 + 40, ours);
    for message in DISCOVERY {
        asm.jump_if(r2, If::Equal, message, kernel);
    }
    asm.place(ours);
}

/// Reads one byte of the frame into register 2; goes to `otherwise` if the frame ends before it.
fn load_byte(asm: &mut Assembler, at: i32, otherwise: Label) {
    let (r0, r1, r2, r3, r4) = (Reg(0), Reg(1), Reg(2), Reg(3), Reg(4));
    asm.copy(r1, FRAME).set(r2, at).copy(r3, crate::bpf::FP).add(r3, i32::from(BYTES)).set(r4, 1);
    asm.call(LOAD_BYTES).jump_if(r0, If::NotEqual, 0, otherwise);
    asm.load(Width::B1, r2, crate::bpf::FP, BYTES);
}

fn count(asm: &mut Assembler, state: &Map, at: i16) {
    asm.map_value(Reg(1), state).set(Reg(2), 1).atomic_add(Reg(1), at, Reg(2));
}

/// Where a step of a filter goes.
#[derive(Clone, Copy, Eq, PartialEq)]
enum To {
    Next,
    Take,
    Refuse,
}

/// A filter of a packet socket, in classic BPF: steps with where they go, behind them the two ends.
#[derive(Default)]
struct Filter(Vec<(libc::sock_filter, To, To)>);

impl Filter {
    fn step(&mut self, code: u32, k: u32, then: To, otherwise: To) -> &mut Self {
        let step = libc::sock_filter { code: code as u16, jt: 0, jf: 0, k };
        self.0.push((step, then, otherwise));
        self
    }

    /// Loads what the kernel knows of the frame: one of `SKF_AD_*`.
    fn known(&mut self, what: libc::c_int) -> &mut Self {
        let load = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
        self.step(load, (libc::SKF_AD_OFF + what) as u32, To::Next, To::Next)
    }

    /// Loads the byte at this offset of the IP header; a frame that ends before it is refused.
    fn byte(&mut self, at: i32) -> &mut Self {
        let load = libc::BPF_LD | libc::BPF_B | libc::BPF_ABS;
        self.step(load, (libc::SKF_NET_OFF + at) as u32, To::Next, To::Next)
    }

    /// Compares what was loaded.
    fn equal(&mut self, value: u32, then: To, otherwise: To) -> &mut Self {
        self.step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, value, then, otherwise)
    }

    fn finish(&self) -> Vec<libc::sock_filter> {
        let (take, refuse) = (self.0.len(), self.0.len() + 1);
        let resolved = self.0.iter().enumerate().map(|(at, (step, then, otherwise))| {
            let distance = |to: To| match to {
                To::Next => 0,
                To::Take => (take - at - 1) as u8,
                To::Refuse => (refuse - at - 1) as u8,
            };
            libc::sock_filter { jt: distance(*then), jf: distance(*otherwise), ..*step }
        });
        let end =
            |k| libc::sock_filter { code: (libc::BPF_RET | libc::BPF_K) as u16, jt: 0, jf: 0, k };
        resolved.chain([end(u32::MAX), end(0)]).collect()
    }
}

/// What the packet socket of the interface receives: what [`ingress`] drops.
pub(super) fn received() -> Vec<libc::sock_filter> {
    let mut filter = Filter::default();
    filter.known(libc::SKF_AD_MARK).equal(OURS, To::Refuse, To::Next);
    filter.known(libc::SKF_AD_PKTTYPE).equal(OTHER_HOST as u32, To::Refuse, To::Next);
    filter.known(libc::SKF_AD_PROTOCOL);
    for taken in TAKEN {
        filter.equal(u32::from(taken), To::Take, To::Next);
    }
    filter.equal(u32::from(IPV6), To::Next, To::Refuse);
    filter.byte(6).equal(ICMPV6 as u32, To::Next, To::Take);
    filter.byte(40);
    for message in DISCOVERY {
        filter.equal(message as u32, To::Refuse, To::Next);
    }
    filter.finish()
}

/// What the packet socket of our end of the pair receives: what [`egress`] has redirected.
pub(super) fn redirected() -> Vec<libc::sock_filter> {
    let mut filter = Filter::default();
    filter.known(libc::SKF_AD_MARK).equal(REDIRECTED, To::Take, To::Refuse);
    filter.finish()
}
