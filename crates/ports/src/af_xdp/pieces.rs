//! Frames longer than a buffer: they come and go in pieces, each with a descriptor and a buffer of
//! its own, and all but the last say that the frame goes on (`XDP_USE_SG`, Linux 6.6).
//!
//! Only a port whose MTU is beyond a buffer asks for that; the bursts of others are compiled
//! without it. Long frames are copied: what came in pieces into a row of buffers, as packet sockets
//! give them, so that whoever forwards them sees no difference and the buffers of the pieces are
//! free at once; and from there into as many buffers as it takes to send them. A frame is taken
//! from the receive ring as a whole, and put into the transmit ring as a whole, or not at all: so
//! nothing is held between two bursts.

use evenkeel_core::Reason;

use super::options::FRAME_OVERHEAD;
use super::queue::Queue;
use crate::netlink::{Message, NetlinkSocket, attributes, generic};
use crate::pool::{Frame, FramePool};

/// What the kernel keeps free before a frame that it receives, bytes of each buffer.
const KERNEL_HEADROOM: usize = 256;
/// Pieces of a frame that every kernel sends: so many parts fit its own buffers at least
/// (`MAX_SKB_FRAGS`).
pub(super) const MOST: usize = 17;
/// Of a device, in the family `netdev`: its number.
const IFINDEX: u16 = 1;
/// No interface has a longer MTU.
const LONGEST_MTU: usize = 65_535;

/// The longest MTU with buffers of so many bytes, 2048 or 4096: where a frame has to fit one, or
/// may have several (Linux 6.6, and a driver that does it).
#[must_use]
pub fn longest_mtu(buffer: usize, in_pieces: bool) -> u32 {
    let frame = if in_pieces { MOST * buffer } else { buffer - KERNEL_HEADROOM };
    (frame - FRAME_OVERHEAD).min(LONGEST_MTU) as u32
}

/// From how many buffers the driver of an interface sends a frame without a copy; 0: it sends none,
/// or does not say. With a copy every frame is sent.
pub(super) fn most_without_copy(ifindex: u32) -> usize {
    const MOST_SEGMENTS: u16 = 4;
    of_device(ifindex, MOST_SEGMENTS).unwrap_or(0) as usize
}

/// In how many buffers of so many bytes the longest frame of an MTU is sent.
#[must_use]
pub const fn buffers_of(mtu: u32, buffer: usize) -> usize {
    (mtu as usize + FRAME_OVERHEAD).div_ceil(buffer)
}

/// A number that the kernel knows of a device, of the family `netdev`.
fn of_device(ifindex: u32, attribute: u16) -> Option<u32> {
    const GET: u8 = 1;
    let mut netlink = NetlinkSocket::open_to(libc::NETLINK_GENERIC as isize).ok()?;
    let family = netlink.family("netdev").ok()?;
    let message = Message::new(family, 0, &generic(GET));
    let answer = netlink.request(message.attribute(IFINDEX, &ifindex.to_ne_bytes())).ok()?;
    let mut all = answer.iter().flat_map(|body| attributes(body.get(4..).unwrap_or_default()));
    let (_, value) = all.find(|(kind, _)| *kind == attribute)?;
    value.first_chunk().map(|four| u32::from_ne_bytes(*four))
}

/// Whether another piece of the frame follows this one.
pub(super) const fn goes_on(piece: &libc::xdp_desc) -> bool {
    piece.options & libc::XDP_PKT_CONTD != 0
}

/// What follows the first piece of a frame.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rest {
    pub(super) pieces: u32,
    bytes: usize,
    /// The ring is full, and the frame has not ended: it never will in this ring.
    endless: bool,
}

impl Queue {
    /// The other pieces of the frame whose first one was just fetched. `None`: the last one is not
    /// there yet, and the first one is to be fetched again when it is.
    #[inline(never)]
    pub(super) fn rest(&mut self) -> Option<Rest> {
        let rx = &mut self.socket.rx;
        let mut rest = Rest::default();
        loop {
            match rx.peek(rest.pieces) {
                Some(piece) => {
                    rest.pieces += 1;
                    rest.bytes += piece.len as usize;
                    if !goes_on(&piece) {
                        return Some(rest);
                    }
                }
                None if rest.pieces + 1 < rx.size() => {
                    rx.put_back();
                    return None;
                }
                None => return Some(Rest { endless: true, ..rest }),
            }
        }
    }

    /// Whether a piece belongs to a frame that did not end within the ring, whose beginning has
    /// been dropped.
    pub(super) const fn is_left_over(&mut self, piece: &libc::xdp_desc) -> bool {
        let left_over = self.endless;
        self.endless = left_over && goes_on(piece);
        left_over
    }

    /// A frame of the first piece and the rest. All their buffers are free afterwards.
    ///
    /// # Errors
    /// It is longer than `longest`: the interface has no such frames, so it is one that has lost
    /// its end, and another one. Or there is no room for it.
    #[inline(never)]
    pub(super) fn join(
        &mut self,
        pool: &mut FramePool,
        buffer: usize,
        first: Frame,
        rest: Rest,
        longest: usize,
    ) -> Result<Frame, Reason> {
        self.endless = rest.endless;
        let length = first.len() + rest.bytes;
        let whole = if rest.endless || length > longest {
            Err(Reason::FrameTooLong)
        } else {
            pool.alloc_for(length).ok_or(Reason::NoBuffer)
        };
        let (mut piece, mut at, mut left) = (first, 0, rest.pieces);
        loop {
            if let Ok(whole) = &whole {
                let (from, to) = pool.two(&piece, whole);
                to[at..at + from.len()].copy_from_slice(from);
                at += from.len();
            }
            pool.release(piece);
            let next = (left > 0).then(|| self.socket.rx.next()).flatten();
            let Some(next) = next else { break };
            left -= 1;
            (piece, _) = self.adopt(pool, buffer, next);
        }
        whole
    }

    /// Puts a frame that is no longer than `longest`, and lies in a row of buffers, into the
    /// transmit ring: as pieces that have a buffer each, `most` of them at most. Gives how many;
    /// the frame stays. `sends`: whether the kernel has frames to send, whose buffers come back.
    ///
    /// # Errors
    /// There is no room for all of it: `None`, if there may be later. Or why it is never sent.
    #[cold]
    #[inline(never)]
    pub(super) fn push_long(
        &mut self,
        pool: &mut FramePool,
        buffer: usize,
        frame: &Frame,
        (longest, most): (usize, usize),
        sends: bool,
    ) -> Result<u32, Option<Reason>> {
        let length = frame.len();
        let pieces = length.div_ceil(buffer);
        if length > longest || pieces > most || frame.segments() > 1 {
            return Err(Some(Reason::PortRefused));
        }
        if (self.socket.tx.room(pieces as u32) as usize) < pieces {
            return Err(None);
        }
        if pool.free() < pieces {
            // Frames that wait behind this one may hold all other buffers.
            return Err((!sends).then_some(Reason::NoBuffer));
        }
        for begin in (0..length).step_by(buffer) {
            let end = length.min(begin + buffer);
            let Some(index) = pool.lend_part(frame, begin..end) else { break };
            self.socket.tx.push(libc::xdp_desc {
                addr: u64::from(index) * buffer as u64,
                len: (end - begin) as u32,
                options: if end < length { libc::XDP_PKT_CONTD } else { 0 },
            });
            self.lend(index);
        }
        Ok(pieces as u32)
    }
}

#[cfg(test)]
mod tests {
    use evenkeel_core::Nanos;
    use evenkeel_netns::testing::{TestNet, available};

    use super::super::{AfXdpOptions, AfXdpPort};
    use super::*;
    use crate::port::Port;
    use crate::sys::in_netns;

    const BUFFER: usize = 2048;
    const MTU: u32 = 9000;
    const RING: u32 = 64;

    #[test]
    fn an_mtu_is_limited_by_a_buffer_or_by_how_many_a_frame_may_have() {
        let of = |buffer| (longest_mtu(buffer, false), longest_mtu(buffer, true));
        assert_eq!((of(2048), of(4096)), ((1774, 34_798), (3822, 65_535)));
    }

    /// A port that receives what a test writes into its ring.
    struct Fed {
        net: TestNet,
        port: AfXdpPort,
        pool: FramePool,
        /// Buffers that the ring has had.
        used: Vec<u32>,
    }

    impl Fed {
        fn new(test: &str, stamp_every: u32) -> Option<Self> {
            if !available(test) {
                return None;
            }
            let net = TestNet::new(&["a", "b"]);
            net.wire(("a", "va"), ("b", "vb"));
            net.hush("a", "va");
            net.hush("b", "vb");
            net.ip("b", &format!("link set vb mtu {MTU}"));
            let mut pool = FramePool::with_buffer_size(512, BUFFER);
            let options = AfXdpOptions { ring: RING, stamp_every, ..AfXdpOptions::default() };
            let open = || AfXdpPort::open("vb", options, &mut pool, &[]);
            let port = in_netns(&net.name("b"), open).unwrap().unwrap();
            Some(Self { net, port, pool, used: Vec::new() })
        }

        /// Writes pieces of so many bytes, each of which has one value; the last one ends a frame,
        /// or not.
        fn feed(&mut self, pieces: &[(u8, usize)], ends: bool) {
            for (at, (value, len)) in pieces.iter().enumerate() {
                let unused = self.port.lent_buffers().find(|index| !self.used.contains(index));
                let queue = &mut self.port.queues[0];
                let index = unused.unwrap_or_else(|| {
                    let index = self.pool.lend().unwrap();
                    queue.lend(index);
                    queue.filled += 1;
                    index
                });
                self.used.push(index);
                let frame = self.pool.adopt(index, KERNEL_HEADROOM, *len).unwrap();
                self.pool.bytes_mut(&frame).fill(*value);
                let addr = u64::from(index) * BUFFER as u64 + KERNEL_HEADROOM as u64;
                let last = ends && at + 1 == pieces.len();
                let options = if last { 0 } else { libc::XDP_PKT_CONTD };
                queue.socket.rx.write(&[libc::xdp_desc { addr, len: *len as u32, options }]);
            }
        }

        /// What a burst gives: the first and the last byte of each frame, its length, its arrival.
        fn burst(&mut self, now: Nanos) -> Vec<(u8, u8, usize, Nanos)> {
            let mut out = Vec::new();
            self.port.rx_burst(&mut self.pool, now, &mut out, 32);
            let told = |rx: crate::RxFrame| {
                let bytes = self.pool.bytes(&rx.frame);
                let told = (bytes[0], bytes[bytes.len() - 1], bytes.len(), rx.arrival);
                self.pool.release(rx.frame);
                told
            };
            let all = out.into_iter().map(told).collect();
            assert_eq!(self.pool.in_use(), self.port.lent(), "every buffer is somewhere");
            all
        }

        fn dropped(&mut self) -> (u64, u64) {
            let counters = self.port.counters();
            let all: u64 = counters.dropped.iter().sum();
            (counters.dropped_for(Reason::FrameTooLong), all)
        }
    }

    #[test]
    fn a_frame_whose_end_is_not_there_yet_waits_in_the_ring() {
        let Some(mut fed) = Fed::new("a frame without its end", 8) else { return };
        assert_eq!(fed.burst(Nanos(1_000)), []);
        fed.feed(&[(1, 1792), (2, 1792)], false);
        let lent = fed.port.lent();
        assert_eq!(fed.burst(Nanos(2_000)), []);
        assert_eq!(fed.port.lent(), lent);
        fed.feed(&[(3, 100)], true);
        fed.feed(&[(4, 60)], true);
        // It may have come before the burst that found only its beginning.
        let (at, now) = (Nanos(1_000), Nanos(3_000));
        assert_eq!(fed.burst(now), [(1, 3, 3684, at), (4, 4, 60, at)]);
        assert_eq!(fed.port.lent(), lent - 4);
        assert_eq!(fed.dropped(), (0, 0));
    }

    #[test]
    fn a_frame_that_lost_its_end_to_another_one_is_dropped_with_it() {
        let Some(mut fed) = Fed::new("a frame that lost its end", 1) else { return };
        let now = Nanos(1);
        // As long as the interface has frames.
        fed.feed(&[(1, 1792), (2, 1792), (3, 1792), (4, 1792), (5, 1792), (6, 58)], true);
        fed.feed(&[(7, 60)], true);
        assert_eq!(fed.burst(now), [(1, 6, 9018, now), (7, 7, 60, now)]);
        let lent = fed.port.lent();
        fed.feed(&[(1, 1792), (2, 1792), (3, 1792), (4, 1792), (5, 1792), (6, 59)], true);
        fed.feed(&[(8, 60)], true);
        assert_eq!(fed.burst(now), [(8, 8, 60, now)]);
        assert_eq!((fed.port.lent(), fed.dropped()), (lent - 7, (1, 1)));
    }

    #[test]
    fn a_frame_that_has_no_end_in_a_full_ring_is_dropped_up_to_its_end() {
        let Some(mut fed) = Fed::new("a frame without any end", 1) else { return };
        let now = Nanos(1);
        fed.feed(&[(1, 60); RING as usize - 1], false);
        assert_eq!(fed.burst(now), [], "it may end with the last slot");
        assert_eq!(fed.dropped(), (0, 0));
        fed.feed(&[(2, 60)], false);
        assert_eq!(fed.burst(now), []);
        assert_eq!(fed.dropped(), (1, 1));
        fed.feed(&[(3, 60), (4, 60), (5, 60)], true);
        fed.feed(&[(6, 60)], true);
        fed.feed(&[(7, 60), (8, 60)], true);
        assert_eq!(fed.burst(now), [(6, 6, 60, now), (7, 8, 120, now)]);
        assert_eq!(fed.dropped(), (1, 1), "one frame, however many pieces");
    }

    #[test]
    fn a_driver_is_asked_of_how_many_buffers_it_sends_a_frame_without_a_copy() {
        let Some(fed) = Fed::new("most pieces of a driver", 1) else { return };
        let index = fed.port.interface.index;
        let ask = || (of_device(index, IFINDEX), most_without_copy(index));
        let (number, most) = in_netns(&fed.net.name("b"), ask).unwrap();
        assert_eq!((number, most), (Some(index), 0), "veth sends none without a copy");
        assert_eq!(
            (buffers_of(MTU, 2048), buffers_of(MTU, 4096), buffers_of(4078, 2048)),
            (5, 3, 2)
        );
    }
}
