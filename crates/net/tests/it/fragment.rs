//! Fragments put together again are the packet.

use evenkeel_core::Reason;
use evenkeel_net::fragment::fragment_ipv4;
use evenkeel_net::frame::{Fragment, Headers};
use proptest::prelude::*;
use smoltcp::wire::Ipv4Packet;

use crate::common::{Recipe, headers, recipe_v4};

/// All fragments as frames.
fn fragments(frame: &[u8], headers: &Headers, mtu: u32) -> Result<Vec<Vec<u8>>, Reason> {
    let mut frames = Vec::new();
    let count = fragment_ipv4(frame, headers, mtu, |piece| {
        let mut buffer = vec![0; piece.frame_len() + 3];
        assert_eq!(piece.write_into(&mut buffer[..piece.frame_len() - 1]), None);
        let len = piece.write_into(&mut buffer).expect("it fits");
        buffer.truncate(len);
        frames.push(buffer);
        Ok(())
    })?;
    assert_eq!(count as usize, frames.len());
    Ok(frames)
}

/// The IP payloads at their offsets; `None` if there are gaps, overlaps, or a wrong end.
fn reassemble(frames: &[Vec<u8>]) -> Option<Vec<u8>> {
    let mut payload = Vec::new();
    for (i, frame) in frames.iter().enumerate() {
        let h = headers(frame);
        let ip = Ipv4Packet::new_checked(&frame[usize::from(h.l3)..]).ok()?;
        if usize::from(ip.frag_offset()) != payload.len()
            || ip.more_frags() != (i + 1 < frames.len())
        {
            return None;
        }
        payload.extend_from_slice(ip.payload());
    }
    Some(payload)
}

fn big() -> Recipe {
    Recipe {
        payload: (0..=255).cycle().take(3000).collect(),
        ..Recipe::udp("10.0.0.2", "10.1.0.2")
    }
}

#[test]
fn the_classic_case() {
    // 3028 bytes over a 1500-byte link: 1480 + 1480 + 48 bytes of payload.
    let (frame, h) = big().parsed();
    let frames = fragments(&frame, &h, 1500).unwrap();
    let shape: Vec<_> = frames.iter().map(|f| headers(f)).map(|h| (h.ip_len, h.fragment)).collect();
    assert_eq!(shape, [(1500, Fragment::First), (1500, Fragment::Later), (68, Fragment::Later)]);
    assert_eq!(reassemble(&frames).unwrap(), &frame[34..]);
    // One byte more than a multiple of 8 is not used.
    let frames = fragments(&frame, &h, 1499).unwrap();
    assert_eq!(headers(&frames[0]).ip_len, 1492);
    assert_eq!(reassemble(&frames).unwrap(), &frame[34..]);
}

#[test]
fn what_must_not_be_fragmented() {
    let (frame, h) = Recipe { dont_fragment: true, ..big() }.parsed();
    assert_eq!(fragments(&frame, &h, 1500), Err(Reason::TooBig));
    assert_eq!(fragments(&frame, &h, h.ip_len).map(|f| f.len()), Ok(1), "fits exactly");
    let (frame, h) =
        Recipe { payload: vec![0; 3000], ..Recipe::udp("2001:db8::2", "2001:db8:1::2") }.parsed();
    assert_eq!(fragments(&frame, &h, 1500), Err(Reason::TooBig));
    let (frame, h) = big().parsed();
    for mtu in 0..28 {
        assert_eq!(fragments(&frame, &h, mtu), Err(Reason::TooBig), "no room at {mtu}");
    }
    assert_eq!(fragments(&frame, &h, 28).map(|f| f.len()), Ok(376));
    assert_eq!(fragments(&frame[..100], &h, 1500), Err(Reason::Truncated));
}

#[test]
fn packets_that_fit_lose_only_their_padding() {
    let (frame, h) =
        Recipe { padding: 20, dont_fragment: true, ..Recipe::udp("10.0.0.2", "10.1.0.2") }.parsed();
    assert_eq!(fragments(&frame, &h, 1500).unwrap(), [frame[..h.frame_len()].to_vec()]);
}

#[test]
fn options_with_the_copy_bit_go_into_every_fragment() {
    // No-operation, record route (7, not copied), router alert (148, copied), stream identifier
    // (136, copied).
    let options = vec![1, 7, 7, 4, 0, 0, 0, 0, 148, 4, 0, 0, 136, 4, 0xab, 0xcd];
    let (frame, h) = Recipe { options: options.clone(), ..big() }.parsed();
    let frames = fragments(&frame, &h, 1500).unwrap();
    assert_eq!(&frames[0][34..50], options);
    for later in &frames[1..] {
        let h = headers(later);
        assert_eq!(&later[34..usize::from(h.l4)], &options[8..]);
        assert!(h.ip_len <= 1500);
    }
    assert_eq!(reassemble(&frames).unwrap(), &frame[usize::from(h.l4)..]);

    // What is copied is padded to a multiple of 4; what stands behind the end of options is none.
    let options = vec![130, 3, 9, 0, 148, 4, 0, 0];
    let (frame, h) = Recipe { options, ..big() }.parsed();
    let frames = fragments(&frame, &h, 1500).unwrap();
    assert_eq!(&frames[1][34..usize::from(headers(&frames[1]).l4)], [130, 3, 9, 0]);
    assert_eq!(reassemble(&frames).unwrap(), &frame[usize::from(h.l4)..]);
}

#[test]
fn malformed_options_are_not_guessed_at() {
    for options in [vec![7, 1, 0, 0], vec![7, 5, 0, 0], vec![1, 1, 1, 148]] {
        let (frame, h) = Recipe { options, ..big() }.parsed();
        assert_eq!(fragments(&frame, &h, 1500), Err(Reason::BadHeaderLength));
        assert_eq!(fragments(&frame, &h, 5000).map(|f| f.len()), Ok(1), "no need to look at them");
    }
}

#[test]
fn a_refusing_sink_ends_it() {
    let (frame, h) = big().parsed();
    let mut room = 2;
    let result = fragment_ipv4(&frame, &h, 576, |_| {
        room -= 1;
        if room == 0 { Err(Reason::NoBuffer) } else { Ok(()) }
    });
    assert_eq!((result, room), (Err(Reason::NoBuffer), 0));
}

#[test]
fn the_ping_of_death_is_not_passed_on() {
    let (mut frame, _) = big().parsed();
    frame[20..22].copy_from_slice(&0x1fff_u16.to_be_bytes());
    frame[24..26].fill(0);
    let sum = evenkeel_net::checksum::sum(&frame[14..34]).checksum();
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    assert_eq!(fragments(&frame, &headers(&frame), 1500), Err(Reason::BadTotalLength));
}

proptest! {
    /// Also through a second, narrower link: fragments of fragments.
    #[test]
    fn any_packet_survives_two_narrow_links(recipe in recipe_v4(), wide in 100_u32..2000,
        narrow in 68_u32..1000) {
        let recipe = Recipe { dont_fragment: false, ..recipe };
        let (frame, h) = recipe.parsed();
        let first = fragments(&frame, &h, wide).unwrap();
        let mut second = Vec::new();
        for piece in &first {
            prop_assert!(headers(piece).ip_len <= wide);
            prop_assert_eq!(headers(piece).vlan, h.vlan);
            for smaller in fragments(piece, &headers(piece), narrow).unwrap() {
                prop_assert!(headers(&smaller).ip_len <= narrow);
                second.push(smaller);
            }
        }
        let payload = frame[usize::from(h.l4)..h.frame_len()].to_vec();
        prop_assert_eq!(reassemble(&first), Some(payload.clone()));
        prop_assert_eq!(reassemble(&second), Some(payload));
        for piece in second {
            let p = headers(&piece);
            prop_assert_eq!((p.flow.source, p.flow.destination),
                (h.flow.source, h.flow.destination));
            prop_assert_eq!((p.ttl, p.dscp, p.protocol), (h.ttl, h.dscp, h.protocol));
            let ip = Ipv4Packet::new_unchecked(&piece[usize::from(p.l3)..]);
            prop_assert_eq!(ip.ident(), 0x1234);
        }
    }
}
