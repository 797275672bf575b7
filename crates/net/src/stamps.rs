//! What a packet carries that its receiver sends back: the time stamps of TCP (RFC 7323, 3), the
//! sequence numbers of its data (RFC 9293), and the numbers of ICMP's echo (RFC 792, RFC 4443). For
//! whoever measures round trips by packets that pass.

use core::net::IpAddr;

use evenkeel_core::FlowKey;

use crate::below::parse_below;
use crate::frame::{self, Fragment, Headers, Parsed};

const TCP: u8 = 6;
const ICMP: u8 = 1;
const ICMPV6: u8 = 58;
/// Header of TCP without options.
const TCP_HEADER: usize = 20;
/// Most options that are looked at: a segment has room for 40 bytes of them.
const MOST_OPTIONS: usize = 40;

/// What comes back, and what has come back, in a packet.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Stamps {
    /// The flow, as this packet carries it; of an echo without ports.
    pub flow: FlowKey,
    /// What its receiver will echo.
    pub own: Option<u32>,
    /// What its sender echoes.
    pub echo: Option<u32>,
    /// Bytes of data of TCP.
    pub data: u32,
    /// The sequence number after the last of them, which its receiver acknowledges; `None`: it has
    /// none.
    pub end: Option<u32>,
    /// The sequence number up to which its sender has received everything.
    pub acknowledged: Option<u32>,
}

impl Stamps {
    /// Those of a frame; `None`: it carries none.
    #[must_use]
    pub fn of(frame: &[u8]) -> Option<Self> {
        // Most packets that carry none are told by their first bytes.
        if let [
            _,
            _,
            _,
            _,
            _,
            _,
            _,
            _,
            _,
            _,
            _,
            _,
            8,
            0,
            0x45,
            _,
            _,
            _,
            _,
            _,
            _,
            _,
            _,
            protocol,
            ..,
        ] = frame
            && !matches!(*protocol, TCP | ICMP)
        {
            return None;
        }
        let headers = match frame::parse(frame) {
            Ok(Parsed::Ip(headers)) if headers.is_untagged() => headers,
            Ok(_) => parse_below(frame)?,
            Err(_) => return None,
        };
        if headers.fragment != Fragment::No {
            return None;
        }
        let l4 = frame.get(usize::from(headers.l4)..)?;
        match headers.protocol {
            TCP => Self::of_tcp(&headers, l4),
            ICMP | ICMPV6 => Self::of_echo(&headers, l4),
            _ => None,
        }
    }

    /// The flow as both directions have it: the lesser end is the source.
    #[must_use]
    pub fn both_ways(&self) -> FlowKey {
        let FlowKey { source, destination, source_port, destination_port, .. } = self.flow;
        let flow = FlowKey { flow_label: 0, ..self.flow };
        if (source, source_port) <= (destination, destination_port) {
            return flow;
        }
        FlowKey {
            source: destination,
            destination: source,
            source_port: destination_port,
            destination_port: source_port,
            ..flow
        }
    }

    /// A host as a flow of its own.
    #[must_use]
    pub const fn host(address: IpAddr) -> FlowKey {
        FlowKey {
            source: address,
            destination: address,
            protocol: 0,
            source_port: 0,
            destination_port: 0,
            flow_label: 0,
        }
    }

    fn of_tcp(headers: &Headers, tcp: &[u8]) -> Option<Self> {
        const ACK: u8 = 0x10;
        let (fixed, _) = tcp.split_first_chunk::<TCP_HEADER>()?;
        let header = usize::from(fixed[12] >> 4) * 4;
        let mut options = tcp.get(TCP_HEADER..header)?;
        let before = u32::from(headers.l4 - headers.l3) + header as u32;
        let data = headers.ip_len.saturating_sub(before);
        let number = |at: usize| u32::from_be_bytes([0, 1, 2, 3].map(|byte| fixed[at + byte]));
        let end = (data > 0).then(|| number(4).wrapping_add(data));
        let is_ack = fixed[13] & ACK != 0;
        for _ in 0..MOST_OPTIONS {
            let length = match options {
                [] | [0, ..] => return None,
                [1, ..] => 1,
                [8, 10, own0, own1, own2, own3, echo0, echo1, echo2, echo3, ..] => {
                    let own = u32::from_be_bytes([*own0, *own1, *own2, *own3]);
                    let echo = u32::from_be_bytes([*echo0, *echo1, *echo2, *echo3]);
                    // Without ACK the field is not valid (RFC 7323, 3.2).
                    let (echo, acknowledged) = (is_ack.then_some(echo), is_ack.then(|| number(8)));
                    return Some(Self {
                        flow: headers.flow,
                        own: Some(own),
                        echo,
                        data,
                        end,
                        acknowledged,
                    });
                }
                [_, length, ..] => usize::from(*length).max(2),
                [_] => return None,
            };
            options = options.get(length..)?;
        }
        None
    }

    fn of_echo(headers: &Headers, icmp: &[u8]) -> Option<Self> {
        let (head, _) = icmp.split_first_chunk::<8>()?;
        let number = u32::from_be_bytes([head[4], head[5], head[6], head[7]]);
        let (own, echo) = match (headers.protocol, head[0], head[1]) {
            (ICMP, 8, 0) | (ICMPV6, 128, 0) => (Some(number), None),
            (ICMP, 0, 0) | (ICMPV6, 129, 0) => (None, Some(number)),
            _ => return None,
        };
        let flow = FlowKey { source_port: 0, destination_port: 0, ..headers.flow };
        Some(Self { flow, own, echo, data: 0, end: None, acknowledged: None })
    }
}

#[cfg(test)]
mod tests {
    use etherparse::PacketBuilder;

    use super::*;

    fn tcp(options: &[u8], ack: bool) -> Vec<u8> {
        let ip = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4([10, 0, 0, 1], [10, 0, 0, 9], 64);
        let tcp = ip.tcp(5_000, 80, 1, 1_000).options_raw(options).unwrap();
        let tcp = if ack { tcp.ack(7) } else { tcp };
        let mut frame = Vec::new();
        tcp.write(&mut frame, &[1, 2, 3]).unwrap();
        frame
    }

    #[test]
    fn time_stamps_are_found_among_options() {
        let stamps = [8, 10, 0, 0, 1, 0, 0, 0, 2, 0];
        for before in [&[1, 1][..], &[2, 4, 5, 180, 1, 1], &[5, 10, 0, 0, 0, 1, 0, 0, 0, 2, 1, 1]] {
            let frame = tcp(&[before, &stamps].concat(), true);
            let found = Stamps::of(&frame).unwrap();
            assert_eq!((found.own, found.echo), (Some(256), Some(512)), "{before:?}");
            // Three bytes from number 1 on.
            assert_eq!(
                (found.data, found.end, found.acknowledged),
                (3, Some(4), Some(7)),
                "{before:?}"
            );
            assert_eq!((found.flow.source_port, found.flow.destination_port), (5_000, 80));
            for cut in 0..frame.len() - 3 {
                // Whatever is cut, nothing is read that is not there.
                let _ = Stamps::of(&frame[..cut]);
            }
        }
        assert_eq!(Stamps::of(&tcp(&[&[1, 1], &stamps[..]].concat(), false)).unwrap().echo, None);
        for none in [&[][..], &[0, 8, 10, 0], &[1, 1, 1, 1], &[3, 0, 0, 0], &[8, 9, 0, 0, 0, 0]] {
            assert_eq!(Stamps::of(&tcp(none, true)), None, "{none:?}");
        }
    }

    #[test]
    fn echoes_have_numbers_and_both_ways_are_one_flow() {
        let echo = |request: bool| {
            let [from, to] = if request { [1, 9] } else { [9, 1] };
            let ip =
                PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4([10, 0, 0, from], [10, 0, 0, to], 64);
            let mut frame = Vec::new();
            let icmp =
                if request { ip.icmpv4_echo_request(7, 3) } else { ip.icmpv4_echo_reply(7, 3) };
            icmp.write(&mut frame, &[0; 8]).unwrap();
            Stamps::of(&frame).unwrap()
        };
        let (asks, answers) = (echo(true), echo(false));
        assert_eq!((asks.own, asks.echo), (Some(0x0007_0003), None));
        assert_eq!((answers.own, answers.echo), (None, Some(0x0007_0003)));
        assert_eq!(asks.both_ways(), answers.both_ways());
        let frame = tcp(&[1, 1, 8, 10, 0, 0, 1, 0, 0, 0, 2, 0], true);
        let there = Stamps::of(&frame).unwrap();
        let (source, destination) = (there.flow.destination, there.flow.source);
        let back = Stamps {
            flow: FlowKey {
                source,
                destination,
                source_port: 80,
                destination_port: 5_000,
                ..there.flow
            },
            ..there
        };
        assert_eq!(there.both_ways(), back.both_ways());
    }
}
