//! Frames from nowhere: parsed, rewritten, fragmented. What was accepted must stay consistent
//! through all of it.
#![no_main]

use evenkeel_core::Reason;
use evenkeel_net::frame::{self, Headers, IpVersion, Parsed};
use evenkeel_net::{checksum, fragment, rewrite};
use libfuzzer_sys::fuzz_target;

/// Makes the header checksum right, where there is an IPv4 header: a fuzzer cannot guess it.
fn repair(bytes: &mut [u8]) {
    let Some(l3) =
        (0..=2).map(|tags| 14 + 4 * tags).find(|l3| bytes.get(l3 - 2..*l3) == Some(&[8, 0]))
    else {
        return;
    };
    let Some(first) = bytes.get(l3) else {
        return;
    };
    let end = l3 + usize::from(first & 0x0f) * 4;
    if let Some(header) = bytes.get_mut(l3..end)
        && header.len() >= 20
    {
        header[10..12].fill(0);
        let sum = checksum::sum(header).checksum();
        header[10..12].copy_from_slice(&sum.to_be_bytes());
    }
}

fn accepted(bytes: &[u8]) -> Option<Headers> {
    match frame::parse(bytes) {
        Ok(Parsed::Ip(headers)) => Some(headers),
        _ => None,
    }
}

fuzz_target!(|input: (u16, &[u8])| {
    let (mtu, bytes) = input;
    let _ = frame::parse(bytes);
    let mut bytes = bytes.to_vec();
    repair(&mut bytes);
    let Some(headers) = accepted(&bytes) else {
        return;
    };
    assert!(headers.l3 < headers.l4 && usize::from(headers.l4) <= headers.frame_len());
    bytes.truncate(headers.frame_len());
    assert_eq!(accepted(&bytes), Some(headers), "padding does not matter");
    let one_less = &bytes[..bytes.len() - 1];
    assert!(frame::parse(one_less).is_err(), "one byte less than promised");

    let mut changed = headers;
    match rewrite::decrement_ttl(&mut bytes, &mut changed) {
        Ok(ttl) => assert_eq!((ttl, accepted(&bytes)), (headers.ttl - 1, Some(changed))),
        Err(reason) => assert!(reason == Reason::TtlExpired && headers.ttl <= 1),
    }
    rewrite::set_dscp(&mut bytes, &mut changed, mtu as u8).expect("the header is there");
    let parsed = accepted(&bytes).expect("still right");
    assert_eq!((parsed.dscp, parsed.ecn), (mtu as u8 & 0x3f, headers.ecn));

    checksum::complete_l4(&mut bytes, &changed).expect("the packet is there");
    let mut offset = None;
    let result = fragment::fragment_ipv4(&bytes, &changed, mtu.into(), |piece| {
        let mut copy = vec![0; piece.frame_len()];
        assert_eq!(piece.write_into(&mut copy), Some(copy.len()));
        let h = accepted(&copy).expect("a fragment is a packet");
        assert!(h.ip_len <= mtu.into());
        if changed.version == IpVersion::V4 {
            let l3 = usize::from(h.l3);
            let here = usize::from(u16::from_be_bytes([copy[l3 + 6], copy[l3 + 7]]) & 0x1fff) * 8;
            assert_eq!(*offset.get_or_insert(here), here, "no gap, no overlap");
            offset = Some(here + piece.payload.len());
        }
        Ok(())
    });
    assert!(result.is_ok() || changed.ip_len > mtu.into());
});
