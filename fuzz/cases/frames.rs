//! The whole pipeline: frames from nowhere enter three ports, and whatever happens to them, nothing
//! disappears and no buffer is lost. The harness is that of the router's tests.

use evenkeel_core::Nanos;
use evenkeel_net::checksum;

use crate::common::{Bed, host_mac, router_mac};

const RULES: &str = r#"
[[service]]
name = "list"
work = { kind = "acl", rules = [{ action = "deny", protocol = "udp", destination_port = "7-9" }] }
[[class]]
name = "rest"
[[class]]
name = "some"
service = "list"
match = [{ protocol = "udp" }, { dscp = [10, 46] }]
"#;

/// Makes right what a fuzzer cannot guess: stations, and the checksum of an IPv4 header.
fn repair(port: usize, how: u8, frame: &mut [u8]) {
    if how & 1 == 0 && frame.len() >= 12 {
        frame[..6].copy_from_slice(&router_mac(port).0);
        frame[6..12].copy_from_slice(&host_mac(port).0);
    }
    if how & 2 == 0 && frame.len() >= 34 && frame[12..14] == [8, 0] {
        let end = 14 + usize::from(frame[14] & 0x0f) * 4;
        if let Some(header) = frame.get_mut(14..end).filter(|header| header.len() >= 20) {
            header[10..12].fill(0);
            let sum = checksum::sum(header).checksum();
            header[10..12].copy_from_slice(&sum.to_be_bytes());
        }
    }
}

/// Frames, each behind the number of its port, what is repaired, and its length.
pub(super) fn run(bytes: &[u8]) {
    let mut bed = Bed::new(3, RULES);
    let mut rest = bytes;
    for _ in 0..128 {
        let [port, how, high, low, more @ ..] = rest else { break };
        let length = usize::from(*high & 0x1f) << 8 | usize::from(*low);
        let (frame, after) = more.split_at(more.len().min(length));
        rest = after;
        let (port, mut frame) = (usize::from(port % 3), frame.to_vec());
        // A destination behind one of the ports.
        if how & 4 == 0 && frame.len() >= 34 && frame[12..14] == [8, 0] {
            frame[30..33].copy_from_slice(&[10, 0, how >> 6]);
        }
        repair(port, *how, &mut frame);
        if !frame.is_empty() {
            bed.inject(port, &frame);
        }
        if how & 8 == 0 {
            bed.round();
        }
    }
    bed.round();
    bed.pass(Nanos::from_secs(5));
    bed.snapshot();
}
