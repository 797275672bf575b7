//! By which way a frame comes to a subscriber: its stations, its VLANs (IEEE 802.1Q and 802.1ad)
//! and its session of PPPoE (RFC 2516).

use crate::MacAddr;
use crate::frame::{self, ETHERNET_HEADER, MAX_VLAN_TAGS, VLAN_TAG, ethertype};

/// A frame of a PPPoE session.
pub(crate) const PPPOE_SESSION: u16 = 0x8864;

/// What stands in a frame before its packet.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Access {
    /// The station that the frame is for.
    pub destination: MacAddr,
    /// The station that has sent it.
    pub source: MacAddr,
    /// The VLANs of its tags, the outer one first; 0: there is none.
    pub vlans: [u16; MAX_VLAN_TAGS],
    /// The session whose data it carries.
    pub session: Option<u16>,
}

impl Access {
    /// Reads a frame; `None` if it ends before its Ethernet header does.
    #[must_use]
    pub fn of(frame: &[u8]) -> Option<Self> {
        let (destination, source) = (frame::destination_mac(frame)?, frame::source_mac(frame)?);
        let mut vlans = [0; MAX_VLAN_TAGS];
        let mut count = 0;
        let (kind, at) = behind_tags(frame, |vlan| {
            // A tag of VLAN 0 says a priority alone (802.1Q, 6.9).
            if vlan != 0 {
                vlans[count] = vlan;
                count += 1;
            }
        })?;
        // Version and type 1, code 0: data.
        let session = match frame.get(at..at + 4) {
            Some([0x11, 0, high, low]) if kind == PPPOE_SESSION => {
                Some(u16::from_be_bytes([*high, *low]))
            }
            _ => None,
        };
        Some(Self { destination, source, vlans, session })
    }
}

/// The Ethernet type behind the tags of a frame, and where what it names begins. `vlan` is told the
/// VLAN of each tag.
pub(crate) fn behind_tags(frame: &[u8], mut vlan: impl FnMut(u16)) -> Option<(u16, usize)> {
    let half = |at: usize| Some(u16::from_be_bytes(*frame.get(at..)?.first_chunk()?));
    let mut at = ETHERNET_HEADER;
    let mut kind = half(at - 2)?;
    for _ in 0..MAX_VLAN_TAGS {
        if kind != ethertype::VLAN && kind != ethertype::SERVICE_VLAN {
            break;
        }
        vlan(half(at)? & 0x0fff);
        at += VLAN_TAG;
        kind = half(at - 2)?;
    }
    Some((kind, at))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(behind_stations: &[u8]) -> Option<Access> {
        let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
        frame.extend_from_slice(behind_stations);
        Access::of(&frame)
    }

    #[test]
    fn tags_sessions_and_stations_are_read() {
        let outer = [0x88, 0xa8, 0xe0, 7];
        let inner = [0x81, 0, 0x0f, 0xff];
        let none = [0x81, 0, 0x20, 0];
        let session = [0x88, 0x64, 0x11, 0, 1, 2, 0, 30, 0, 0x21, 0x45];
        for (bytes, vlans, told) in [
            (vec![8, 0], [0, 0], None),
            (session.to_vec(), [0, 0], Some(258)),
            ([&outer[..], &[8, 0]].concat(), [7, 0], None),
            ([&outer[..], &inner, &[8, 0]].concat(), [7, 4_095], None),
            ([&none[..], &outer, &session].concat(), [7, 0], Some(258)),
            // A third tag is not looked behind.
            ([&outer[..], &inner, &outer, &session].concat(), [7, 4_095], None),
        ] {
            let access = of(&bytes).unwrap();
            assert_eq!((access.vlans, access.session), (vlans, told), "{bytes:x?}");
            assert_eq!(access.destination, MacAddr([2, 0, 0, 0, 0, 1]));
            assert_eq!(access.source, MacAddr([2, 0, 0, 0, 0, 2]));
        }
        // Discovery, another version, no data; cut, in the session's number and in a tag.
        for bytes in [
            &[0x88, 0x63, 0x11, 0, 1, 2, 0, 30][..],
            &[0x88, 0x64, 0x21, 0, 1, 2, 0, 30],
            &[0x88, 0x64, 0x11, 0x09, 1, 2, 0, 30],
            &session[..5],
        ] {
            assert_eq!(of(bytes).unwrap().session, None, "{bytes:x?}");
        }
        assert_eq!((of(&outer[..3]), of(&[0x88])), (None, None));
    }
}
