//! Super-frames in buffers: kept whole, or cut into single frames.

use evenkeel_core::Reason;

use crate::pool::{Frame, FramePool};
use crate::segment::{Segments, VnetHeader};

/// What a frame takes of the wire beside its bytes: check sequence, preamble and gap.
const AROUND: usize = 24;

/// A frame, or segment `at` of a super-frame, in a buffer of its own.
pub(crate) fn single(
    pool: &mut FramePool,
    frame: &[u8],
    segments: Option<&Segments>,
    at: usize,
    header: VnetHeader,
) -> Result<Frame, Reason> {
    let length = segments.map_or(frame.len(), |all| all.len(at));
    let mut copied = pool.alloc_for(length).ok_or(Reason::NoBuffer)?;
    let bytes = pool.bytes_mut(&copied);
    match segments {
        Some(all) => all.write(frame, at, bytes),
        None => bytes.copy_from_slice(frame),
    }
    if segments.is_none() {
        say_checksum(pool, &mut copied, header);
    }
    Ok(copied)
}

/// Keeps with a single frame whether its sender left the checksum to the device, and where.
pub(crate) fn say_checksum(pool: &mut FramePool, frame: &mut Frame, header: VnetHeader) {
    if header.needs_checksum() {
        // Whoever receives it at last, or the device, completes it.
        frame.set_partial_checksum(true);
        pool.describe(frame, header.write(0));
    }
}

/// A frame for a super-frame that is to be kept as it is, if it takes the wire at most `longest`
/// bytes; its contents are left over from earlier ones. `head`: as much of it as holds its headers.
/// Only TCP and UDP whose checksum is left to the device, without a tag before IP, in no tunnel:
/// what else there is, the device that it leaves by may not be able to cut.
pub(crate) fn alloc_whole(
    pool: &mut FramePool,
    header: VnetHeader,
    segments: Option<&Segments>,
    head: &[u8],
    longest: usize,
) -> Option<Frame> {
    let is_known = |segments: &&Segments| !is_tagged(head) && !segments.is_tunnelled();
    let segments = segments.filter(is_known).filter(|_| header.needs_checksum())?;
    let (count, headers) = (segments.count(), segments.headers());
    if segments.frame_len() + (count - 1) * headers + count * AROUND > longest {
        return None;
    }
    let headers = u16::try_from(headers).ok()?;
    let length = segments.frame_len();
    let mut whole = pool.alloc_super(length, u16::try_from(count).ok()?, headers)?;
    whole.set_partial_checksum(true);
    pool.describe(&mut whole, header.write(headers));
    Some(whole)
}

/// Whether a VLAN tag follows the addresses.
fn is_tagged(frame: &[u8]) -> bool {
    matches!(frame.get(12..14), Some([0x81, 0x00] | [0x88, 0xa8]))
}

impl FramePool {
    /// A frame of `length` bytes with what is left over from earlier ones in it, also one that is
    /// longer than a buffer; `None`: no room.
    pub fn alloc_for(&mut self, length: usize) -> Option<Frame> {
        if length > self.max_frame() {
            return self.alloc_super(length, 1, 0);
        }
        let mut frame = self.alloc()?;
        let _ = self.extend(&mut frame, length);
        Some(frame)
    }

    /// Length of the longest segment of a super-frame, of any other frame its own, bytes.
    #[must_use]
    pub fn longest_segment(&self, frame: &Frame) -> usize {
        match self.description(frame) {
            Some(header) if frame.segments() > 1 => {
                let data = usize::from(VnetHeader::read(header).size());
                frame.len().min(frame.segment_headers() + data)
            }
            _ => frame.len(),
        }
    }

    /// Segment `at` of a super-frame, with its headers as they are now, in a buffer of its own.
    ///
    /// # Errors
    /// No buffer is free, or it is no super-frame that can be cut.
    pub fn segment(&mut self, frame: &Frame, at: u16) -> Result<Frame, Reason> {
        let header = self.description(frame).map(VnetHeader::read).ok_or(Reason::FrameTooLong)?;
        let segments = Segments::of(header, self.bytes(frame)).ok();
        let segments = segments.filter(|segments| usize::from(at) < segments.count());
        let segments = segments.ok_or(Reason::FrameTooLong)?;
        let single = self.alloc_for(segments.len(at.into())).ok_or(Reason::NoBuffer)?;
        let (whole, out) = self.two(frame, &single);
        segments.write(whole, at.into(), out);
        Ok(single)
    }
}
