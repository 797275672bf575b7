//! Answers to frames from nowhere: valid, bounded, back to the sender, and never answered
//! themselves.
#![no_main]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use evenkeel_net::checksum;
use evenkeel_net::frame::{self, Parsed};
use evenkeel_net::icmp::{self, IcmpError, MAX_ANSWER_LEN, MAX_V4_ANSWER, MAX_V6_ANSWER, NoAnswer};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u8, u16, &[u8])| {
    let (which, room, bytes) = input;
    let mut bytes = bytes.to_vec();
    // IPv4's header checksum cannot be guessed.
    if let Some(header) = bytes.get_mut(14..34)
        && header[0] == 0x45
    {
        header[10..12].fill(0);
        let sum = checksum::sum(header).checksum();
        header[10..12].copy_from_slice(&sum.to_be_bytes());
    }
    let Ok(Parsed::Ip(headers)) = frame::parse(&bytes) else {
        return;
    };
    let error = match which % 5 {
        0 => IcmpError::TimeExceeded,
        1 => IcmpError::TooBig { mtu: u32::from(room) << (which >> 4) },
        2 => IcmpError::NoRoute,
        3 => IcmpError::HostUnreachable,
        _ => IcmpError::AdminProhibited,
    };
    let (source, most) = match headers.flow.source {
        IpAddr::V4(_) => (IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), MAX_V4_ANSWER),
        IpAddr::V6(_) => {
            (IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1)), MAX_V6_ANSWER)
        }
    };
    let mut out = vec![0; MAX_ANSWER_LEN];
    let room = usize::from(room).min(out.len());
    let in_little_room = icmp::answer(&bytes, &headers, error, source, &mut out[..room]);
    match icmp::answer(&bytes, &headers, error, source, &mut out) {
        Ok(len) => {
            let expected = if room < len { Err(NoAnswer::BufferTooShort) } else { Ok(len) };
            assert_eq!(in_little_room, expected);
            let Ok(Parsed::Ip(answer)) = frame::parse(&out[..len]) else {
                panic!("an answer is a packet");
            };
            assert!(len == answer.frame_len() && answer.ip_len as usize <= most);
            assert_eq!(
                (answer.flow.source, answer.flow.destination),
                (source, headers.flow.source)
            );
            let again = icmp::answer(&out[..len], &answer, error, source, &mut [0; MAX_ANSWER_LEN]);
            assert!(matches!(again, Err(NoAnswer::ToIcmpError | NoAnswer::ToGroup)));
        }
        Err(reason) => {
            assert_eq!(in_little_room, Err(reason));
            assert_ne!(reason, NoAnswer::BufferTooShort);
        }
    }
});
