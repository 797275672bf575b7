//! Capture files as schedules: when which flow sent how much.
//!
//! Public traces are cut behind the headers, begin with the IP packet, have stamps of nanoseconds,
//! and checksums that the hardware was to fill in. All of that is read: lengths are those that the
//! IP headers say. What cannot be read is left out, counted and told.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};

use evenkeel_core::Bytes;
use evenkeel_ports::PortError;
use evenkeel_ports::pcap::{Capture, Captured, DataLink};
use evenkeel_traffic::Recorded;

use crate::payload::SHORTEST;

/// Why a capture gives no schedule.
#[derive(Debug, thiserror::Error)]
pub enum RecordingError {
    /// It cannot be read, or is no capture.
    #[error(transparent)]
    Capture(#[from] PortError),
    /// It holds no IP packet that could be sent.
    #[error("{file} holds no IP packets: {0}", file = .1.display())]
    NoPackets(String, PathBuf),
}

/// What a capture comes to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Recording {
    /// Its IP packets, in the order of the file.
    pub packets: Vec<Recorded>,
    /// Flows that they are of: by addresses, protocol and ports, fragments by addresses.
    pub flows: u64,
    /// What is not among them.
    pub left_out: LeftOut,
}

/// Packets of a capture that are not sent, and those that are sent otherwise.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct LeftOut {
    /// Neither IPv4 nor IPv6, or captured from something that is not known.
    pub not_ip: u64,
    /// Cut before the length of the IP packet, or with an impossible one.
    pub unreadable: u64,
    /// Shorter than a stamp needs: sent, but longer.
    pub filled_up: u64,
}

impl Recording {
    /// What was read and what was left out, as a sentence.
    #[must_use]
    pub fn told(&self, file: &Path) -> String {
        let LeftOut { not_ip, unreadable, filled_up } = self.left_out;
        let mut text =
            format!("{}: {} packets of {} flows", file.display(), self.packets.len(), self.flows);
        for (count, what) in [
            (not_ip, "left out as not IP"),
            (unreadable, "left out as cut within their headers or malformed"),
            (filled_up, "filled up to the 72 bytes that a stamp needs"),
        ] {
            if count > 0 {
                text += &format!(", {count} {what}");
            }
        }
        text
    }
}

/// Reads a capture. Times are those since 1970.
///
/// # Errors
/// It cannot be read, is no capture, is broken somewhere, or holds no IP packet.
pub fn read(path: &Path) -> Result<Recording, RecordingError> {
    let mut capture = Capture::open(path)?;
    let mut recording = Recording::default();
    let mut flows: HashMap<Key, u64> = HashMap::new();
    while let Some(captured) = capture.read()? {
        let left_out = &mut recording.left_out;
        let Some(before) = before_ip(captured.link, &captured.bytes) else {
            left_out.not_ip += 1;
            continue;
        };
        let Some((ip_len, key)) = packet(&captured, before) else {
            left_out.unreadable += 1;
            continue;
        };
        left_out.filled_up += u64::from(ip_len < SHORTEST);
        let next = flows.len() as u64;
        let flow = *flows.entry(key).or_insert(next);
        recording.packets.push(Recorded { at: captured.stamp, ip_len, flow });
    }
    recording.flows = flows.len() as u64;
    if recording.packets.is_empty() {
        let told = recording.told(path);
        return Err(RecordingError::NoPackets(told, path.to_owned()));
    }
    Ok(recording)
}

/// What tells flows apart: addresses, protocol, ports.
type Key = (IpAddr, IpAddr, u8, [u8; 4]);

fn two(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..at + 2).map(|two| u16::from_be_bytes([two[0], two[1]]))
}

const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;

/// How many bytes stand before the IP packet; `None` if it is none.
fn before_ip(link: DataLink, bytes: &[u8]) -> Option<usize> {
    let is_ip = |kind: u16| kind == IPV4 || kind == IPV6;
    match link {
        DataLink::ETHERNET => {
            let mut at = 12;
            // Tags of VLANs, inner and outer.
            while matches!(two(bytes, at)?, 0x8100 | 0x88a8 | 0x9100) {
                at += 4;
            }
            match two(bytes, at)? {
                // PPPoE: its header, then the protocol of PPP.
                0x8864 => matches!(two(bytes, at + 8)?, 0x0021 | 0x0057).then_some(at + 10),
                kind => is_ip(kind).then_some(at + 2),
            }
        }
        DataLink::RAW | DataLink::IPV4 | DataLink::IPV6 => Some(0),
        DataLink::LINUX_SLL => is_ip(two(bytes, 14)?).then_some(16),
        DataLink::LINUX_SLL2 => is_ip(two(bytes, 0)?).then_some(20),
        // A number of the system that captured it stands there, in its byte order.
        DataLink::NULL | DataLink::LOOP => Some(4),
        _ => None,
    }
    .filter(|before| matches!(bytes.get(*before).map(|first| first >> 4), Some(4 | 6)))
}

/// Length and flow of the IP packet that begins there; `None` if too little of it was kept, or it
/// says what cannot be.
fn packet(captured: &Captured, before: usize) -> Option<(Bytes, Key)> {
    let ip = captured.bytes.get(before..)?;
    // Of a super-frame the header may say 0; what was captured knows better.
    let whole = (captured.original as usize).checked_sub(before)?;
    if ip.first()? >> 4 == 4 { packet_v4(ip, whole) } else { packet_v6(ip, whole) }
}

fn packet_v4(ip: &[u8], whole: usize) -> Option<(Bytes, Key)> {
    let header = usize::from(ip.first()? & 0x0f) * 4;
    let addresses: &[u8; 8] = ip.get(12..20)?.first_chunk()?;
    let length = match usize::from(two(ip, 2)?) {
        0 => whole,
        said => said,
    };
    if header < 20 || length < header {
        return None;
    }
    let [a, b, c, d, e, f, g, h] = *addresses;
    let (source, destination) = (Ipv4Addr::new(a, b, c, d), Ipv4Addr::new(e, f, g, h));
    // More fragments, or an offset.
    let is_fragment = two(ip, 6)? & 0x3fff != 0;
    let protocol = ip[9];
    let ports = if is_fragment { [0; 4] } else { ports(ip, header, protocol) };
    Some((Bytes(length as u64), (source.into(), destination.into(), protocol, ports)))
}

fn packet_v6(ip: &[u8], whole: usize) -> Option<(Bytes, Key)> {
    const HEADER: usize = 40;
    let address = |at: usize| {
        let bytes: [u8; 16] = ip.get(at..at + 16)?.try_into().ok()?;
        Some(IpAddr::from(Ipv6Addr::from(bytes)))
    };
    let (source, destination) = (address(8)?, address(24)?);
    let length = match usize::from(two(ip, 4)?) {
        0 => whole,
        said => HEADER + said,
    };
    if length < HEADER {
        return None;
    }
    let (mut protocol, mut at) = (ip[6], HEADER);
    // Hop-by-hop, routing and destination options.
    while let 0 | 43 | 60 = protocol {
        let (Some(next), Some(eights)) = (ip.get(at), ip.get(at + 1)) else { break };
        protocol = *next;
        at += 8 * (usize::from(*eights) + 1);
    }
    let ports = ports(ip, at, protocol);
    Some((Bytes(length as u64), (source, destination, protocol, ports)))
}

/// The ports of protocols that have such, as far as they were kept.
fn ports(ip: &[u8], at: usize, protocol: u8) -> [u8; 4] {
    // TCP, UDP, DCCP, SCTP, UDP-Lite.
    let has = matches!(protocol, 6 | 17 | 33 | 132 | 136);
    let kept = ip.get(at..at + 4).and_then(|four| four.first_chunk().copied());
    kept.filter(|_| has).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_core::Nanos;

    /// A pcap of these packets, of a link type, with a magic number.
    fn pcap(magic: u32, link: u32, packets: &[(u32, Vec<u8>, u32)]) -> Vec<u8> {
        let mut file = Vec::new();
        for word in [magic, 0x0004_0002, 0, 0, 96, link] {
            file.extend(word.to_le_bytes());
        }
        for (fraction, bytes, original) in packets {
            for word in [1_000, *fraction, bytes.len() as u32, *original] {
                file.extend(word.to_le_bytes());
            }
            file.extend(bytes);
        }
        file
    }

    /// The first `kept` bytes of an IPv4 packet of UDP, without a checksum.
    fn udp(length: u16, source_port: u16, kept: usize) -> Vec<u8> {
        let mut ip = vec![0x45, 0];
        ip.extend(length.to_be_bytes());
        ip.extend([0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        ip.extend(source_port.to_be_bytes());
        ip.extend([0x13, 0x89]);
        ip.resize(kept.max(24), 0);
        ip.truncate(kept);
        ip
    }

    fn ethernet(packet: &[u8]) -> Vec<u8> {
        let mut frame = vec![0; 12];
        frame.extend([8, 0]);
        frame.extend(packet);
        frame
    }

    fn of(bytes: &[u8]) -> Result<Recording, RecordingError> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.pcap");
        std::fs::write(&path, bytes).unwrap();
        read(&path)
    }

    const MICROS: u32 = 0xa1b2_c3d4;
    const NANOS: u32 = 0xa1b2_3c4d;

    fn told(recording: &Recording) -> Vec<(u64, u64)> {
        recording.packets.iter().map(|packet| (packet.ip_len.0, packet.flow)).collect()
    }

    #[test]
    fn times_lengths_and_flows_of_ip_packets_are_read() {
        let recording = of(&crate::fixture::capture(&[(500, 100), (2_500, 300)])).unwrap();
        assert_eq!(told(&recording), [(100, 0), (300, 0)]);
        let gap = recording.packets[1].at - recording.packets[0].at;
        assert_eq!((gap, recording.left_out.not_ip), (Nanos::from_millis(2), 1), "ARP is none");
        let flows = [(0, udp(500, 1, 28), 500), (7, udp(500, 2, 28), 500), (9, udp(90, 1, 28), 90)];
        let recording = of(&pcap(NANOS, 101, &flows)).unwrap();
        assert_eq!(told(&recording), [(500, 0), (500, 1), (90, 0)]);
        assert_eq!(recording.packets[1].at - recording.packets[0].at, Nanos(7), "nanoseconds");
        assert_eq!(recording.flows, 2);
    }

    #[test]
    fn what_public_traces_are_is_read_and_what_is_left_out_is_told() {
        let packets = [
            // Cut behind the headers, and longer than the file says packets can be.
            (0, ethernet(&udp(1_500, 1, 28)), 1_514),
            // A super-frame, whose header says nothing.
            (1, ethernet(&udp(0, 1, 28)), 3_014),
            // Cut within the header.
            (2, ethernet(&udp(1_500, 1, 15)), 1_514),
            (3, ethernet(&udp(40, 1, 28)), 54),
            (4, vec![0; 42], 42),
        ];
        let recording = of(&pcap(MICROS, 1, &packets)).unwrap();
        assert_eq!(told(&recording), [(1_500, 0), (3_000, 0), (40, 0)]);
        let left_out = LeftOut { not_ip: 1, unreadable: 1, filled_up: 1 };
        assert_eq!(recording.left_out, left_out);
        let text = recording.told(Path::new("x.pcap"));
        assert!(text.starts_with("x.pcap: 3 packets of 1 flows, 1 left out as not IP"), "{text}");

        let tagged = |tag: &[u8]| {
            let mut frame = vec![0; 12];
            frame.extend(tag);
            frame.extend(udp(100, 1, 28));
            frame
        };
        let packets = [
            (0, tagged(&[0x81, 0, 0, 5, 8, 0]), 118),
            (1, tagged(&[0x88, 0xa8, 0, 5, 0x81, 0, 0, 6, 8, 0]), 122),
            (2, tagged(&[0x88, 0x64, 0x11, 0, 0, 1, 0, 102, 0, 0x21]), 122),
        ];
        assert_eq!(told(&of(&pcap(MICROS, 1, &packets)).unwrap()), [(100, 0); 3]);
    }

    #[test]
    fn other_links_are_read_and_unknown_ones_told() {
        let mut cooked = vec![0; 14];
        cooked.extend([8, 0]);
        cooked.extend(udp(100, 1, 28));
        let mut cooked2 = vec![8, 0];
        cooked2.resize(20, 0);
        cooked2.extend(udp(100, 1, 28));
        let mut null = vec![2, 0, 0, 0];
        null.extend(udp(100, 1, 28));
        for (link, bytes) in [(113, cooked), (276, cooked2), (0, null), (228, udp(100, 1, 28))] {
            let recording = of(&pcap(MICROS, link, &[(0, bytes, 200)])).unwrap();
            assert_eq!(told(&recording), [(100, 0)], "link type {link}");
        }
        let error = of(&pcap(MICROS, 105, &[(0, udp(100, 1, 28), 100)])).unwrap_err().to_string();
        assert!(error.contains("holds no IP packets") && error.contains("1 left out"), "{error}");
    }

    #[test]
    fn ipv6_is_told_apart_behind_its_extension_headers() {
        let of_port = |port: u8| {
            let mut ip = vec![0x60, 0, 0, 0, 0, 60, 0, 64];
            ip.extend([1; 32]);
            // Hop-by-hop options of 8 bytes, then UDP.
            ip.extend([17, 0, 0, 0, 0, 0, 0, 0]);
            ip.extend([0, port, 0, 9]);
            (0, ip, 100)
        };
        let recording = of(&pcap(MICROS, 101, &[of_port(1), of_port(2), of_port(1)])).unwrap();
        assert_eq!(told(&recording), [(100, 0), (100, 1), (100, 0)]);
    }

    #[test]
    fn a_capture_cut_at_any_byte_is_refused_or_read_up_to_there_and_never_panics() {
        let packets = [(0, ethernet(&udp(500, 1, 28)), 514), (9, ethernet(&udp(500, 2, 28)), 514)];
        let whole = pcap(MICROS, 1, &packets);
        let record = 16 + 14 + 28;
        for length in 0..whole.len() {
            let between = length == 24 + record;
            let read = of(&whole[..length]);
            assert_eq!(read.is_ok(), between, "{length} bytes: {read:?}");
        }
    }
}
