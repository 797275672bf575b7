//! IP under other headers: sessions of PPPoE (RFC 2516) and labels of MPLS (RFC 3032), behind VLAN
//! tags.
//!
//! A router does not forward such frames, but who passes them on whole can still tell their flows
//! apart.

use crate::access::{PPPOE_SESSION, behind_tags};
use crate::frame::{ETHERNET_HEADER, Headers, ethertype, parse_at};

/// MPLS, unicast.
const MPLS: u16 = 0x8847;
/// Header of PPPoE.
const PPPOE_HEADER: usize = 6;
/// Protocols of PPP.
const PPP_IPV4: u16 = 0x0021;
const PPP_IPV6: u16 = 0x0057;
/// Most labels that are followed.
const MAX_LABELS: usize = 8;

/// The headers of an IP packet that a frame carries behind tags, in a PPPoE session or below MPLS
/// labels; `None` if it carries none, or a broken one.
#[must_use]
pub fn parse_below(frame: &[u8]) -> Option<Headers> {
    let half = |at: usize| Some(u16::from_be_bytes(*frame.get(at..)?.first_chunk()?));
    let (kind, at) = behind_tags(frame, |_vlan| {})?;
    match kind {
        PPPOE_SESSION => {
            // Version and type 1, code 0: data.
            let is_data = half(at)? == 0x1100;
            let protocol = half(at + PPPOE_HEADER)?;
            let is_ip = protocol == PPP_IPV4 || protocol == PPP_IPV6;
            (is_data && is_ip).then_some(at + PPPOE_HEADER + 2)
        }
        MPLS => (0..MAX_LABELS).find_map(|label| {
            let last = frame.get(at + 4 * label + 2)? & 1 == 1;
            last.then_some(at + 4 * (label + 1))
        }),
        // The way of a router takes no tagged frame.
        ethertype::IPV4 | ethertype::IPV6 if at > ETHERNET_HEADER => Some(at),
        _ => None,
    }
    .and_then(|l3| parse_at(frame, l3).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A UDP packet of 10.0.0.1 to 10.0.0.2, port 7 to port 9, behind these headers.
    fn behind(headers: &[u8]) -> Vec<u8> {
        let mut ip = vec![0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
        let sum: u32 =
            ip.chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
        let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
        ip[10..12].copy_from_slice(&sum.to_be_bytes());
        let mut frame = vec![0; 12];
        frame.extend_from_slice(headers);
        frame.extend_from_slice(&ip);
        frame.extend_from_slice(&[0, 7, 0, 9, 0, 8, 0, 0]);
        frame
    }

    #[test]
    fn flows_are_told_apart_under_every_header() {
        let tags = [0x88, 0xa8, 0, 7, 0x81, 0, 0, 8];
        let session = [0x88, 0x64, 0x11, 0, 0, 1, 0, 30, 0, 0x21];
        let labels = [0x88, 0x47, 0, 0, 0x10, 64, 0, 0, 0x21, 64];
        for headers in [
            session.to_vec(),
            labels.to_vec(),
            [&tags[4..], &[8, 0]].concat(),
            [&tags[..], &[8, 0]].concat(),
            [&tags[..], &session].concat(),
            [&tags[4..], &labels].concat(),
        ] {
            let frame = behind(&headers);
            let found = parse_below(&frame).unwrap_or_else(|| panic!("{headers:x?}"));
            assert_eq!((found.flow.source_port, found.flow.destination_port), (7, 9));
            assert_eq!(usize::from(found.l3), 12 + headers.len());
            // Cut anywhere, it is none, and nothing is read behind the end.
            for length in 0..frame.len() {
                assert!(parse_below(&frame[..length]).is_none(), "{headers:x?} cut to {length}");
            }
        }
    }

    #[test]
    fn what_is_no_data_of_a_session_has_no_flow() {
        for headers in [
            // Discovery, link control, a session's end, three tags, no last label.
            &[0x88, 0x63, 0x11, 9, 0, 0, 0, 30, 0, 0x21][..],
            &[0x88, 0x64, 0x11, 0, 0, 1, 0, 30, 0xc0, 0x21],
            &[0x88, 0x64, 0x11, 0xa7, 0, 1, 0, 30, 0, 0x21],
            &[0x81, 0, 0, 1, 0x81, 0, 0, 1, 0x81, 0, 0, 1, 8, 0],
            &[0x88, 0x47, 0, 0, 0, 64],
        ] {
            assert!(parse_below(&behind(headers)).is_none(), "{headers:x?}");
        }
    }
}
