//! Frames of a cluster from nowhere: whatever is accepted has a member, a body within the state,
//! and is refused one byte shorter.
#![no_main]

use evenkeel_cluster::frame::{FrameKind, Parser, state_bytes};
use evenkeel_cluster::{ClusterConfig, Variant, Version};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (bool, u8, &[u8])| {
    let (first, l, bytes) = input;
    let mut config = ClusterConfig::new(3, 3, &[1, 2, 3]);
    config.set_variant(Variant::Multiple, u16::from(l % 20) + 1, 0);
    config.framing.version = if first { Version::V1 } else { Version::V2 };
    let parser = Parser::new(&config);
    // What a fuzzer cannot guess is given to it.
    let mut frame = vec![0xff; 6];
    frame.extend([2, 0, 0, 0, 0, 1, 0x81, 0, 0xeb, 0xb9, 0x88, if first { 0xb5 } else { 0xb6 }]);
    frame.extend(bytes);
    if !first && frame.len() >= 46 {
        frame[42..46].copy_from_slice(&config.hash().to_be_bytes());
    }
    if let Ok(parsed) = parser.parse(&frame, None) {
        assert!(parsed.member < 3);
        if parsed.header.kind == FrameKind::State {
            assert!(parsed.offset + parsed.body.len() <= state_bytes(&config));
        }
        if frame.len() > 64 {
            assert!(parser.parse(&frame[..frame.len() - 1], None).is_err());
        }
    }
});
