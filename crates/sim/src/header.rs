//! The headers of packets that hosts send, and what a receiving host reads of them.

use std::net::{IpAddr, SocketAddr};

use evenkeel_core::Nanos;
use evenkeel_net::{MacAddr, checksum};
use evenkeel_world::payload::{self, Stamp};

use crate::host::Outgoing;
use crate::port::{ETHERNET, FRAME_HEAD, SimFrame};

const UDP: u8 = 17;
const TCP: u8 = 6;
const UDP_HEADER: usize = 8;
const HOP_LIMIT: u8 = 64;

/// An Ethernet header.
pub(crate) fn ethernet(to: MacAddr, from: MacAddr, ipv6: bool) -> [u8; ETHERNET] {
    let mut header = [0; ETHERNET];
    header[..6].copy_from_slice(&to.0);
    header[6..12].copy_from_slice(&from.0);
    header[12..].copy_from_slice(if ipv6 { &[0x86, 0xdd] } else { &[0x08, 0x00] });
    header
}

/// A frame with a UDP packet of `ip_len` bytes and room for a stamp: where that goes, too.
pub(crate) fn udp(
    ethernet: [u8; ETHERNET],
    source: SocketAddr,
    destination: SocketAddr,
    dscp: u8,
    ip_len: u32,
) -> (SimFrame, usize) {
    let mut bytes = [0; FRAME_HEAD];
    bytes[..ETHERNET].copy_from_slice(&ethernet);
    let ip = &mut bytes[ETHERNET..];
    let udp = match (source.ip(), destination.ip()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let mut header = [0; 20];
            header[0] = 0x45;
            header[1] = dscp << 2;
            header[2..4].copy_from_slice(&(ip_len as u16).to_be_bytes());
            // Not to be fragmented, as Linux sends UDP.
            header[6] = 0x40;
            header[8] = HOP_LIMIT;
            header[9] = UDP;
            header[12..16].copy_from_slice(&from.octets());
            header[16..20].copy_from_slice(&to.octets());
            let sum = checksum::sum_20(&header).checksum();
            header[10..12].copy_from_slice(&sum.to_be_bytes());
            ip[..20].copy_from_slice(&header);
            20
        }
        (from, to) => {
            let class = u32::from(dscp) << 22;
            ip[..4].copy_from_slice(&(0x6000_0000 | class).to_be_bytes());
            ip[4..6].copy_from_slice(&((ip_len - 40) as u16).to_be_bytes());
            ip[6] = UDP;
            ip[7] = HOP_LIMIT;
            ip[8..24].copy_from_slice(&octets(from));
            ip[24..40].copy_from_slice(&octets(to));
            40
        }
    };
    let header = &mut ip[udp..udp + UDP_HEADER];
    header[..2].copy_from_slice(&source.port().to_be_bytes());
    header[2..4].copy_from_slice(&destination.port().to_be_bytes());
    header[4..6].copy_from_slice(&((ip_len as usize - udp) as u16).to_be_bytes());
    let stamp = ETHERNET + udp + UDP_HEADER;
    let head = (stamp + payload::LENGTH) as u16;
    (SimFrame { bytes, head, len: ip_len + ETHERNET as u32 }, stamp)
}

fn octets(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(a) => a.to_ipv6_mapped().octets(),
        IpAddr::V6(a) => a.octets(),
    }
}

/// A frame with an endpoint's packet; stamped if it carries enough payload.
pub(crate) fn framed(
    ethernet: [u8; ETHERNET],
    &Outgoing { head, head_len, ip_len }: &Outgoing,
    traffic: u32,
    now: Nanos,
) -> SimFrame {
    let mut bytes = [0; FRAME_HEAD];
    bytes[..ETHERNET].copy_from_slice(&ethernet);
    bytes[ETHERNET..].copy_from_slice(&head);
    let head = ETHERNET as u16 + u16::from(head_len);
    let mut frame = SimFrame { bytes, head, len: ip_len + ETHERNET as u32 };
    if let Some(at) = read(&frame).and_then(|packet| packet.stamp_at) {
        Stamp { flow: traffic, seq: 0, at: now }.write(&mut frame.bytes[at..]);
        frame.head = frame.head.max((at + payload::LENGTH) as u16);
    }
    frame
}

/// What a receiving host reads of a frame.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Read {
    /// Whether it is TCP rather than UDP.
    pub(crate) tcp: bool,
    pub(crate) ipv6: bool,
    /// What tells its sender from others: see [`crate::network::address_key`].
    pub(crate) remote: u32,
    pub(crate) source_port: u16,
    pub(crate) destination_port: u16,
    /// Where its stamp is, if there is room for one.
    pub(crate) stamp_at: Option<usize>,
    /// Length of the IP packet.
    pub(crate) ip_len: u32,
}

impl Read {
    /// The stamp of the frame that was read.
    pub(crate) fn stamp(&self, frame: &SimFrame) -> Option<Stamp> {
        Stamp::read(&frame.bytes[self.stamp_at?..])
    }
}

/// Reads a frame that a host of the simulation made; `None` for whatever else (answers of routers,
/// fragments).
pub(crate) fn read(frame: &SimFrame) -> Option<Read> {
    let bytes = &frame.bytes;
    let ipv6 = match bytes[12..14] {
        [0x08, 0x00] => false,
        [0x86, 0xdd] => true,
        _ => return None,
    };
    let (protocol, l4) = if ipv6 {
        (bytes[ETHERNET + 6], ETHERNET + 40)
    } else {
        (bytes[ETHERNET + 9], ETHERNET + usize::from(bytes[ETHERNET] & 0xf) * 4)
    };
    let offset_of_fragment = !ipv6 && (bytes[ETHERNET + 6] & 0x3f, bytes[ETHERNET + 7]) != (0, 0);
    if offset_of_fragment || l4 + 14 > bytes.len() {
        return None;
    }
    let header = match protocol {
        UDP => UDP_HEADER,
        TCP => usize::from(bytes[l4 + 12] >> 4) * 4,
        _ => return None,
    };
    let at = l4 + header;
    let room = at + payload::LENGTH <= FRAME_HEAD.min(frame.len as usize);
    let pair = |at: usize| u32::from(u16::from_be_bytes([bytes[at], bytes[at + 1]]));
    let remote = if ipv6 {
        pair(ETHERNET + 10) << 16 | pair(ETHERNET + 22)
    } else {
        pair(ETHERNET + 12) << 16 | pair(ETHERNET + 14)
    };
    let port = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
    Some(Read {
        tcp: protocol == TCP,
        ipv6,
        remote,
        source_port: port(l4),
        destination_port: port(l4 + 2),
        stamp_at: room.then_some(at),
        ip_len: frame.len - ETHERNET as u32,
    })
}
