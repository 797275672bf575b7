//! Cutting of super-frames, whatever the frame and whatever the kernel says of it: nothing panics,
//! no byte is lost or sent twice, and what is made has right numbers and checksums. Of a file with
//! the kernel's header and the frame; whoever takes it in has the module as `crate::segment`.
use crate::segment::{HEADER, Segments, VnetHeader};

/// More segments than the kernel ever puts into one.
const MOST: usize = 4096;

pub fn run(bytes: &[u8]) {
    let Some((raw, frame)) = bytes.split_first_chunk::<HEADER>() else { return };
    let header = VnetHeader::read(raw);
    let Ok(segments) = Segments::of(header, frame) else { return };
    assert_eq!(segments.frame_len(), frame.len());
    if segments.count() > MOST {
        return;
    }
    let headers = segments.headers();
    // The kernel says where the transport header begins if it has left the checksum to us.
    let behind = !header.needs_checksum() || u16::from_ne_bytes([raw[6], raw[7]]) == 34;
    // And never calls TCP what is not.
    let tcp = matches!(raw[1] & 0x7f, 1 | 4);
    let protocol = if tcp { 6 } else { 17 };
    let ipv4 = frame[12..15] == [8, 0, 0x45] && frame[23] == protocol;
    let is_plain = ipv4
        && behind
        && !segments.is_tunnelled()
        && frame.len() < 0x1_0000
        && headers >= if tcp { 54 } else { 42 };
    let (mut data, mut out) = (Vec::new(), Vec::new());
    for at in 0..segments.count() {
        out.resize(segments.len(at), 0xaa);
        segments.write(frame, at, &mut out);
        let own = &out[headers..];
        assert!(own.len() <= usize::from(header.size()), "longer than was asked for");
        assert!(at == 0 || !own.is_empty(), "a segment without data");
        data.extend_from_slice(own);
        if is_plain {
            check(&out, frame, at * usize::from(header.size()));
        }
    }
    assert_eq!(data, frame[headers..], "the data are those of the super-frame");
}

/// Headers of an IPv4 segment without options: what a receiver looks at.
fn check(segment: &[u8], of: &[u8], offset: usize) {
    let half = |at: usize| u16::from_be_bytes([segment[at], segment[at + 1]]);
    let word = |bytes: &[u8]| u32::from_be_bytes([bytes[38], bytes[39], bytes[40], bytes[41]]);
    assert_eq!(usize::from(half(16)), (segment.len() - 14) & 0xffff, "total length");
    assert_eq!(sum(&segment[14..34]), 0xffff, "checksum of the header");
    let tcp = of[23] == 6;
    if tcp {
        assert_eq!(word(segment).wrapping_sub(word(of)), offset as u32, "sequence number");
    } else {
        assert_eq!(usize::from(half(38)), (segment.len() - 34) & 0xffff, "length");
    }
    let mut covered = segment[26..34].to_vec();
    covered.extend_from_slice(&[0, of[23]]);
    covered.extend_from_slice(&((segment.len() - 34) as u16).to_be_bytes());
    covered.extend_from_slice(&segment[34..]);
    // UDP sends a sum of 0 as 0xffff, which adds nothing either.
    assert_eq!(sum(&covered), 0xffff, "checksum of the data");
}

/// Sum in one's complement, word by word.
fn sum(bytes: &[u8]) -> u16 {
    let words = bytes
        .chunks(2)
        .map(|pair| u32::from(pair[0]) << 8 | pair.get(1).map_or(0, |b| u32::from(*b)));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    sum as u16
}
