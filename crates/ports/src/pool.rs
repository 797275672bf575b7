//! Frame buffers: one region, cut into buffers of one size, and handles to them.
//!
//! A [`Frame`] is not `Clone` and is consumed by [`FramePool::release`], so a buffer cannot be
//! freed twice. A handle that is dropped instead of released leaks its buffer; nothing breaks, and
//! [`FramePool::in_use`] shows it. Every buffer has headroom before the frame, so that headers can
//! be put in front without moving the frame.
//!
//! Taking and releasing a buffer is O(1) and allocates nothing; the buffer released last is taken
//! first, because it is the one still in the cache.

mod frame;
mod passed;

use frame::DESCRIBED;
pub use frame::Frame;
pub use passed::Known;

use std::collections::VecDeque;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::mapping::Mapping;

/// Room before the frame in a fresh buffer, bytes.
pub const HEADROOM: usize = 128;
/// Size of a buffer unless configured, bytes, headroom included: frames of up to 1920 bytes.
pub const DEFAULT_BUFFER: usize = 2048;
/// The smallest buffer: headroom and the shortest Ethernet frame.
pub const MIN_BUFFER: usize = 256;
/// The largest buffer, bytes.
pub const MAX_BUFFER: usize = 65_536;

/// Bytes of what the kernel says of a frame: `struct virtio_net_hdr`.
pub(crate) const DESCRIPTION: usize = 10;

/// Copies a frame to a place of the same length. Short frames are copied without a call, which
/// would take four times as long.
#[inline]
pub(crate) fn copy(from: &[u8], to: &mut [u8]) {
    const HALF: usize = 32;
    match (from.first_chunk::<HALF>(), from.last_chunk::<HALF>()) {
        (Some(first), Some(last)) if from.len() <= 2 * HALF => {
            to[..HALF].copy_from_slice(first);
            to[from.len() - HALF..].copy_from_slice(last);
        }
        _ => to.copy_from_slice(from),
    }
}

static NEXT_POOL: AtomicU32 = AtomicU32::new(0);

/// The memory of all buffers. The kernel may write into those that are lent to it, so there is
/// never a reference to the whole: only to pieces that belong to one frame.
#[derive(Debug)]
struct Region {
    memory: Arc<Mapping>,
    /// Bytes used; the mapping has at least one.
    length: usize,
    /// By which another process can map it.
    file: Option<Arc<OwnedFd>>,
}

impl Region {
    fn of(length: usize) -> Self {
        let memory = Mapping::anonymous(length.max(1)).unwrap_or_else(|_| {
            std::alloc::handle_alloc_error(
                std::alloc::Layout::array::<u8>(length.max(1))
                    .expect("less than half the address space"),
            )
        });
        Self { memory: Arc::new(memory), length, file: None }
    }

    fn slice(&self, start: usize, length: usize) -> &[u8] {
        assert!(start + length <= self.length, "outside of the region");
        // SAFETY: inside the mapping, as just checked, and initialised, since the kernel gives
        // zeroed pages. A piece is asked for only by whoever holds the frame whose buffer it lies
        // in, and such a buffer is not lent to the kernel.
        unsafe { std::slice::from_raw_parts(self.memory.start().add(start), length) }
    }

    fn slice_mut(&mut self, start: usize, length: usize) -> &mut [u8] {
        assert!(start + length <= self.length, "outside of the region");
        // SAFETY: as in `slice`; `&mut self` keeps every other piece from being borrowed meanwhile.
        unsafe { std::slice::from_raw_parts_mut(self.memory.start().add(start), length) }
    }

    /// Two pieces that have nothing in common: one to be read, one to be written.
    fn two(&mut self, from: usize, read: usize, to: usize, write: usize) -> (&[u8], &mut [u8]) {
        assert!(from + read <= to || to + write <= from, "pieces that overlap");
        let end = (from + read).max(to + write);
        assert!(end <= self.length, "outside of the region");
        // SAFETY: both lie in the mapping and do not overlap, as just checked, and are initialised;
        // `&mut self` keeps every other piece from being borrowed meanwhile.
        unsafe {
            (
                std::slice::from_raw_parts(self.memory.start().add(from), read),
                std::slice::from_raw_parts_mut(self.memory.start().add(to), write),
            )
        }
    }

    /// Asks the processor for the line of the cache at `at`, which lies in the region.
    #[inline]
    fn prefetch(&self, at: usize) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: inside the mapping, as the caller has checked; a prefetch reads nothing that the
        // program sees.
        unsafe {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            _mm_prefetch::<_MM_HINT_T0>(self.memory.start().add(at).cast::<i8>());
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = at;
    }

    fn copy(&mut self, from: usize, to: usize, length: usize) {
        assert!(
            from + length <= self.length && to + length <= self.length,
            "outside of the region"
        );
        // SAFETY: both inside the mapping; `copy` allows them to overlap.
        unsafe {
            std::ptr::copy(self.memory.start().add(from), self.memory.start().add(to), length);
        };
    }
}

/// The memory of a pool's buffers as the kernel is told of it: where it lies and how long a buffer
/// is. It stays mapped for as long as somebody has this. With it a port can be opened by whoever
/// does not have the pool itself: another thread forwards with that.
#[derive(Clone, Debug)]
pub struct Umem {
    memory: Arc<Mapping>,
    length: usize,
    buffer: usize,
    file: Option<Arc<OwnedFd>>,
}

impl Umem {
    pub(crate) fn start(&self) -> *const u8 {
        self.memory.start()
    }

    /// Bytes.
    pub(crate) const fn len(&self) -> usize {
        self.length
    }

    /// Length of a buffer, bytes.
    pub(crate) const fn buffer(&self) -> usize {
        self.buffer
    }

    pub(crate) const fn buffers(&self) -> usize {
        self.length / self.buffer
    }
}

/// Room for a super-frame: the longest IP packet, with Ethernet header and two tags.
const SUPER_FRAME: usize = HEADROOM + 14 + 8 + 65_535;
/// Super-frames that are kept whole at once; the kernel gives memory as they come, 34 MiB at most.
const SUPER_FRAMES: usize = 512;

/// How many buffers there are with those of super-frames, which a pool of none has not either.
const fn with_rows(buffers: usize, buffer: usize) -> usize {
    if buffers == 0 { 0 } else { buffers + SUPER_FRAMES * SUPER_FRAME.div_ceil(buffer) }
}

/// A region of frame buffers and the list of the free ones. Super-frames that are kept whole lie
/// behind them, each in as many buffers in a row as it may need: so a frame is found in the same
/// way whatever it is.
#[derive(Debug)]
pub struct FramePool {
    region: Region,
    free: Vec<u32>,
    /// The first buffers of the rows for super-frames.
    free_rows: Vec<u32>,
    buffer: usize,
    /// Of single frames; the kernel is told of these only.
    buffers: usize,
    id: u32,
}

impl FramePool {
    /// A pool of `buffers` buffers of [`DEFAULT_BUFFER`] bytes. Allocates the whole region, once.
    #[must_use]
    pub fn new(buffers: usize) -> Self {
        Self::with_buffer_size(buffers, DEFAULT_BUFFER)
    }

    /// A pool of `buffers` buffers for frames of up to `frame` bytes (jumbo frames: 9018), headroom
    /// added.
    ///
    /// # Panics
    /// If `frame` needs a buffer larger than [`MAX_BUFFER`].
    #[must_use]
    pub fn for_frames_of(buffers: usize, frame: usize) -> Self {
        Self::with_buffer_size(buffers, (frame + HEADROOM).next_multiple_of(64).max(MIN_BUFFER))
    }

    /// A pool of `buffers` buffers of `buffer` bytes each, of which [`HEADROOM`] lie before the
    /// frame.
    ///
    /// # Panics
    /// If `buffer` is not within [`MIN_BUFFER`]..=[`MAX_BUFFER`], or there are 2^32 buffers or
    /// more.
    #[must_use]
    pub fn with_buffer_size(buffers: usize, buffer: usize) -> Self {
        Self::over(Region::of, buffers, buffer)
    }

    fn over(region: impl FnOnce(usize) -> Region, buffers: usize, buffer: usize) -> Self {
        assert!((MIN_BUFFER..=MAX_BUFFER).contains(&buffer), "buffer size {buffer} out of range");
        let row = SUPER_FRAME.div_ceil(buffer);
        let all = with_rows(buffers, buffer);
        let end = u32::try_from(all).expect("fewer than 2^32 buffers");
        let last = buffers as u32;
        Self {
            region: region(all * buffer),
            free: (0..last).rev().collect(),
            free_rows: (last..end).step_by(row).rev().collect(),
            buffer,
            buffers,
            id: NEXT_POOL.fetch_add(1, Ordering::Relaxed),
        }
    }

    /// What a pool of `buffers` buffers of `buffer` bytes takes at most, bytes.
    #[must_use]
    pub const fn memory(buffers: usize, buffer: usize) -> u64 {
        let numbers = (buffers + SUPER_FRAMES) * size_of::<u32>();
        (with_rows(buffers, buffer) * buffer + numbers) as u64
    }

    /// Frames that a pool of `buffers` buffers holds at most, super-frames included.
    #[must_use]
    pub const fn most_frames_of(buffers: usize) -> usize {
        if buffers == 0 { 0 } else { buffers + SUPER_FRAMES }
    }

    /// Frames that it holds at most, super-frames included.
    #[must_use]
    pub const fn most_frames(&self) -> usize {
        Self::most_frames_of(self.buffers)
    }

    /// The longest frame a fresh buffer takes, bytes.
    #[must_use]
    pub const fn max_frame(&self) -> usize {
        self.buffer - HEADROOM
    }

    /// How many buffers there are.
    #[must_use]
    pub const fn buffers(&self) -> usize {
        self.buffers
    }

    /// How many buffers are free.
    #[must_use]
    pub fn free(&self) -> usize {
        self.free.len()
    }

    /// How many super-frames there are, each in buffers of its own besides those that
    /// [`buffers`](Self::buffers) counts.
    #[must_use]
    pub fn super_frames(&self) -> usize {
        SUPER_FRAMES - self.free_rows.len()
    }

    /// How many buffers are held by frames, lost ones and those of super-frames included.
    #[must_use]
    pub fn in_use(&self) -> usize {
        self.buffers - self.free.len() + self.super_frames()
    }

    /// Touches every page of the buffers of single frames, so that no later access has to wait for
    /// the kernel to provide one.
    pub fn prefault(&mut self) {
        if self.region.file.is_some() {
            self.region.memory.populate(self.buffers * self.buffer);
            self.region.memory.gather(self.buffers * self.buffer);
            return;
        }
        for page in (0..self.buffers * self.buffer).step_by(4096) {
            let byte = &mut self.region.slice_mut(page, 1)[0];
            // The compiler may not drop a volatile-like round trip through black_box.
            *byte = std::hint::black_box(*byte);
        }
    }

    /// An empty frame, or `None` if no buffer is free.
    pub fn alloc(&mut self) -> Option<Frame> {
        let index = self.free.pop()?;
        Some(self.frame(index, HEADROOM, 0))
    }

    fn frame(&self, index: u32, offset: usize, len: usize) -> Frame {
        Frame {
            index,
            len: len as u32,
            offset: offset as u16,
            pool: self.id,
            flags: 0,
            segments: 1,
            headers: 0,
        }
    }

    /// A super-frame of `length` bytes with what is left over from earlier ones in it, which is
    /// `segments` frames on the wire with `headers` bytes of headers each. `None`: no room.
    pub(crate) fn alloc_super(
        &mut self,
        length: usize,
        segments: u16,
        headers: u16,
    ) -> Option<Frame> {
        if segments == 0 || HEADROOM + length > SUPER_FRAME {
            return None;
        }
        let index = self.free_rows.pop()?;
        Some(Frame { segments, headers, ..self.frame(index, HEADROOM, length) })
    }

    /// Keeps with a frame what the kernel says of it, for whoever sends it.
    pub(crate) fn describe(&mut self, frame: &mut Frame, header: [u8; DESCRIPTION]) {
        let at = self.start(frame) - usize::from(frame.offset);
        if usize::from(frame.offset) >= DESCRIPTION {
            self.region.slice_mut(at, DESCRIPTION).copy_from_slice(&header);
            frame.flags |= DESCRIBED;
        }
    }

    /// What the kernel says of a frame, if that was [kept](Self::describe) with it.
    pub(crate) fn description(&self, frame: &Frame) -> Option<&[u8; DESCRIPTION]> {
        let at = self.start(frame) - usize::from(frame.offset);
        frame.is_described().then(|| self.region.slice(at, DESCRIPTION).first_chunk())?
    }

    /// A frame that holds a copy of `bytes`; `None` if no buffer is free or if `bytes` does not
    /// fit.
    pub fn alloc_from(&mut self, bytes: &[u8]) -> Option<Frame> {
        if bytes.len() > self.max_frame() {
            return None;
        }
        let index = self.free.pop()?;
        let start = index as usize * self.buffer + HEADROOM;
        copy(bytes, self.region.slice_mut(start, bytes.len()));
        Some(self.frame(index, HEADROOM, bytes.len()))
    }

    /// A second frame with the same contents and flags; `None` if no buffer is free, or if it is a
    /// super-frame.
    pub fn duplicate(&mut self, frame: &Frame) -> Option<Frame> {
        let source = self.start(frame);
        if frame.is_described() || self.is_super(frame) {
            return None;
        }
        let copy = Frame { index: self.free.pop()?, ..*frame };
        let target = self.start(&copy);
        self.region.copy(source, target, frame.len as usize);
        Some(copy)
    }

    /// Whether the frame belongs to this pool.
    #[must_use]
    pub fn owns(&self, frame: &Frame) -> bool {
        frame.pool == self.id
    }

    /// Gives the buffer back.
    ///
    /// # Panics
    /// If the frame belongs to another pool.
    #[inline]
    pub fn release(&mut self, frame: Frame) {
        self.take_back(&frame);
    }

    /// Gives the buffers of the first `count` frames back, of those that there are.
    ///
    /// # Panics
    /// If one belongs to another pool.
    pub fn release_first(&mut self, frames: &mut VecDeque<Frame>, count: usize) {
        let count = count.min(frames.len());
        frames.range(..count).for_each(|frame| self.take_back(frame));
        frames.drain(..count);
    }

    /// Gives the buffer of a frame back that nobody has from now on.
    #[inline]
    pub(crate) fn take_back(&mut self, frame: &Frame) {
        assert_eq!(frame.pool, self.id, "a frame returned to a pool it was not taken from");
        if self.is_super(frame) {
            self.free_rows.push(frame.index);
        } else {
            self.free.push(frame.index);
        }
    }

    /// The frame's bytes.
    ///
    /// # Panics
    /// If the frame belongs to another pool.
    #[must_use]
    pub fn bytes(&self, frame: &Frame) -> &[u8] {
        let start = self.start(frame);
        self.region.slice(start, frame.len as usize)
    }

    /// Begins to read where the frame's headers are, without waiting for it: for all frames of a
    /// burst before the first is looked at. What another core has written, as receiving kernels do,
    /// takes a hundred nanoseconds to come otherwise.
    #[inline]
    pub fn prefetch(&self, frame: &Frame) {
        // Of another pool's frame it would fetch in vain, and that is all.
        let start = self.place(frame);
        if start < self.region.length {
            self.region.prefetch(start);
        }
    }

    /// The bytes of one frame, to be read, and of another one, to be written.
    pub(crate) fn two(&mut self, read: &Frame, write: &Frame) -> (&[u8], &mut [u8]) {
        let (from, to) = (self.start(read), self.start(write));
        self.region.two(from, read.len as usize, to, write.len as usize)
    }

    /// The frame's bytes, to be changed.
    ///
    /// # Panics
    /// If the frame belongs to another pool.
    pub fn bytes_mut(&mut self, frame: &Frame) -> &mut [u8] {
        let start = self.start(frame);
        self.region.slice_mut(start, frame.len as usize)
    }

    /// Puts `bytes` behind the frame. False, and nothing changed, if the buffer has no room for
    /// them.
    #[must_use]
    pub fn append(&mut self, frame: &mut Frame, bytes: &[u8]) -> bool {
        match self.extend(frame, bytes.len()) {
            Some(tail) => {
                tail.copy_from_slice(bytes);
                true
            }
            None => false,
        }
    }

    /// Makes the frame `more` bytes longer and gives those bytes, whose contents are left over from
    /// earlier frames. `None`, and nothing changed, if the buffer has no room for them.
    pub fn extend(&mut self, frame: &mut Frame, more: usize) -> Option<&mut [u8]> {
        let start = self.start(frame);
        let (old, offset) = (frame.len as usize, usize::from(frame.offset));
        let buffer = if self.is_super(frame) { SUPER_FRAME } else { self.buffer };
        if more > buffer - offset - old {
            return None;
        }
        frame.len += more as u32;
        Some(self.region.slice_mut(start + old, more))
    }

    /// Puts `bytes` before the frame, into the headroom. False, and nothing changed, if there is no
    /// room.
    #[must_use]
    pub fn prepend(&mut self, frame: &mut Frame, bytes: &[u8]) -> bool {
        if bytes.len() > usize::from(frame.offset) {
            return false;
        }
        frame.offset -= bytes.len() as u16;
        frame.len += bytes.len() as u32;
        let start = self.start(frame);
        self.region.slice_mut(start, bytes.len()).copy_from_slice(bytes);
        true
    }

    /// Takes `count` bytes away from the front; at most the whole frame.
    pub fn strip(&self, frame: &mut Frame, count: usize) {
        let count = count.min(frame.len as usize);
        frame.offset += count as u16;
        frame.len -= count as u32;
    }

    /// The memory of the buffers, for ports that share it with the kernel.
    #[must_use]
    pub fn umem(&self) -> Umem {
        Umem {
            memory: Arc::clone(&self.region.memory),
            length: self.buffers * self.buffer,
            buffer: self.buffer,
            file: self.region.file.clone(),
        }
    }

    /// Whether its buffers lie in this memory.
    #[must_use]
    pub fn is_in(&self, umem: &Umem) -> bool {
        Arc::ptr_eq(&self.region.memory, &umem.memory)
    }

    /// A free buffer for the kernel to write into, by number. Until [`FramePool::returned`] or
    /// [`FramePool::adopt`] no frame refers to it.
    pub(crate) fn lend(&mut self) -> Option<u32> {
        self.free.pop()
    }

    /// A buffer that was lent comes back without contents.
    pub(crate) fn returned(&mut self, index: u32) {
        debug_assert!((index as usize) < self.buffers);
        self.free.push(index);
    }

    /// The frame that the kernel has written into a lent buffer. `None`, and the buffer is still
    /// lent, if it cannot lie there.
    pub(crate) fn adopt(&self, index: u32, offset: usize, len: usize) -> Option<Frame> {
        let fits = (index as usize) < self.buffers && offset + len <= self.buffer;
        fits.then(|| self.frame(index, offset, len))
    }

    /// Lends the kernel the buffer of a frame that it is to send: number, and where in the region
    /// the frame begins.
    ///
    /// # Panics
    /// If the frame belongs to another pool, or is a super-frame: the kernel was not told of those.
    pub(crate) fn lend_frame(&self, frame: Frame) -> (u32, usize) {
        assert!(!self.is_super(&frame), "a super-frame cannot be lent");
        (frame.index, self.start(&frame))
    }

    /// Lends the kernel a copy of a part of a frame, which it is to send: the number of the buffer
    /// that holds it from its start on. `None`: no buffer is free.
    pub(crate) fn lend_part(&mut self, frame: &Frame, part: Range<usize>) -> Option<u32> {
        assert!(part.end <= frame.len() && part.len() <= self.buffer, "a part in one buffer");
        let from = self.start(frame) + part.start;
        let index = self.free.pop()?;
        self.region.copy(from, index as usize * self.buffer, part.len());
        Some(index)
    }

    /// The `count` bytes before the frame, in the same buffer: metadata that the kernel may have
    /// put there.
    #[inline]
    pub(crate) fn before(&self, frame: &Frame, count: usize) -> Option<&[u8]> {
        (usize::from(frame.offset) >= count)
            .then(|| self.region.slice(self.start(frame) - count, count))
    }

    /// The same, to be changed.
    #[inline]
    pub(crate) fn before_mut(&mut self, frame: &Frame, count: usize) -> Option<&mut [u8]> {
        let start = self.start(frame);
        (usize::from(frame.offset) >= count).then(|| self.region.slice_mut(start - count, count))
    }

    fn start(&self, frame: &Frame) -> usize {
        assert_eq!(frame.pool, self.id, "a frame of another pool");
        self.place(frame)
    }

    const fn place(&self, frame: &Frame) -> usize {
        frame.index as usize * self.buffer + frame.offset as usize
    }

    /// Whether the frame lies in a row of buffers.
    pub(crate) const fn is_super(&self, frame: &Frame) -> bool {
        frame.index as usize >= self.buffers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_of_any_length_are_copied_and_nothing_else() {
        let bytes: Vec<u8> = (1..=200).collect();
        for length in 0..bytes.len() {
            let mut to = [0; 200];
            copy(&bytes[..length], &mut to[..length]);
            assert_eq!((&to[..length], &to[length..]), (&bytes[..length], &[0; 200][length..]));
        }
    }

    /// One stands where a pool was taken away, in a moment when memory may be short.
    #[test]
    fn a_pool_of_nothing_takes_nothing() {
        let mut none = FramePool::new(0);
        assert_eq!((none.region.length, FramePool::memory(0, 2_048) < 4_096), (0, true));
        assert!(none.alloc().is_none() && none.alloc_super(9_000, 6, 54).is_none());
    }

    #[test]
    fn buffers_come_back_and_none_is_handed_out_twice() {
        let mut pool = FramePool::new(3);
        let frames: Vec<_> = (0..3u8).map(|i| pool.alloc_from(&[i; 60]).unwrap()).collect();
        assert!(pool.alloc().is_none());
        assert_eq!((pool.free(), pool.in_use()), (0, 3));
        for (i, frame) in frames.iter().enumerate() {
            assert_eq!(pool.bytes(frame), [i as u8; 60]);
        }
        for frame in frames {
            pool.release(frame);
        }
        assert_eq!((pool.free(), pool.in_use()), (3, 0));
    }

    #[test]
    fn a_frame_grows_and_shrinks_at_both_ends() {
        let mut pool = FramePool::with_buffer_size(1, 256);
        let mut frame = pool.alloc_from(b"middle").unwrap();
        assert!(pool.prepend(&mut frame, b"before "));
        assert!(pool.append(&mut frame, b" after"));
        assert_eq!(pool.bytes(&frame), b"before middle after");
        pool.strip(&mut frame, 7);
        frame.trim(6);
        assert_eq!(pool.bytes(&frame), b"middle");
        assert!(!pool.prepend(&mut frame, &[0; HEADROOM + 1]));
        assert!(!pool.append(&mut frame, &[0; 123]));
        assert!(pool.append(&mut frame, &[0; 122]));
        assert_eq!(frame.len(), pool.max_frame());
        assert!(pool.alloc_from(&[0; 129]).is_none());
        pool.strip(&mut frame, 1000);
        assert!(frame.is_empty());
        pool.release(frame);
    }

    #[test]
    fn the_whole_of_the_largest_buffer_can_be_used() {
        let mut pool = FramePool::with_buffer_size(2, MAX_BUFFER);
        let mut frame = pool.alloc_from(&vec![7; MAX_BUFFER - HEADROOM]).unwrap();
        assert!(pool.prepend(&mut frame, &[8; HEADROOM]));
        assert_eq!(frame.len(), MAX_BUFFER);
        pool.strip(&mut frame, MAX_BUFFER - 1);
        assert_eq!(pool.bytes(&frame), [7]);
        pool.release(frame);
    }

    #[test]
    fn a_copy_has_contents_and_flags() {
        let mut pool = FramePool::new(2);
        let mut frame = pool.alloc_from(b"abc").unwrap();
        frame.set_partial_checksum(true);
        let copy = pool.duplicate(&frame).unwrap();
        pool.bytes_mut(&frame)[0] = b'x';
        assert_eq!(pool.bytes(&copy), b"abc");
        assert!(copy.partial_checksum());
        assert!(pool.duplicate(&frame).is_none());
        pool.release(frame);
        pool.release(copy);
    }

    #[test]
    fn super_frames_have_buffers_of_their_own_and_move_with_all_that_is_known_of_them() {
        let mut pool = FramePool::new(1);
        let small = pool.alloc_from(b"small").unwrap();
        let mut whole = pool.alloc_super(60_054, 42, 54).unwrap();
        pool.bytes_mut(&whole).fill(7);
        pool.describe(&mut whole, [9; DESCRIPTION]);
        assert_eq!((whole.segments(), whole.cut_len()), (42, 60_054 + 41 * 54));
        assert_eq!((small.segments(), small.cut_len()), (1, 5));
        assert!(pool.duplicate(&whole).is_none() && pool.alloc().is_none());
        let mut other = FramePool::new(1);
        let copy = other.copy_from(&pool, &whole).unwrap();
        assert_eq!((copy.segments(), copy.cut_len()), (42, whole.cut_len()));
        assert_eq!(other.bytes(&copy), pool.bytes(&whole));
        assert_eq!(other.description(&copy), Some(&[9; DESCRIPTION]));
        assert_eq!((pool.in_use(), other.in_use()), (2, 1));
        pool.release(whole);
        assert_eq!(pool.bytes(&small), b"small");
        pool.release(small);
        other.release(copy);
        assert_eq!((pool.in_use(), other.in_use(), pool.free()), (0, 0, 1));
        let all: Vec<_> = std::iter::from_fn(|| pool.alloc_super(100, 2, 54)).collect();
        assert_eq!(all.len(), SUPER_FRAMES);
        assert!(pool.alloc_super(100, 2, 54).is_none());
        all.into_iter().for_each(|frame| pool.release(frame));
    }

    #[test]
    #[should_panic(expected = "not taken from")]
    fn a_frame_of_another_pool_is_refused() {
        let (mut a, mut b) = (FramePool::new(1), FramePool::new(1));
        let frame = a.alloc().unwrap();
        b.release(frame);
    }
}
