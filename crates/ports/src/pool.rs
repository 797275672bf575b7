//! Frame buffers: one region, cut into buffers of one size, and handles to them.
//!
//! A [`Frame`] is not `Clone` and is consumed by [`FramePool::release`], so a buffer cannot be
//! freed twice. A handle that is dropped instead of released leaks its buffer; nothing breaks, and
//! [`FramePool::in_use`] shows it. Every buffer has headroom before the frame, so that headers can
//! be put in front without moving the frame.
//!
//! Taking and releasing a buffer is O(1) and allocates nothing; the buffer released last is taken
//! first, because it is the one still in the cache.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use crate::mapping::Mapping;

/// Room before the frame in a fresh buffer, bytes.
pub const HEADROOM: usize = 128;
/// Size of a buffer unless configured, bytes, headroom included: frames of up to 1920 bytes.
pub const DEFAULT_BUFFER: usize = 2048;
/// The smallest buffer: headroom and the shortest Ethernet frame.
pub const MIN_BUFFER: usize = 256;
/// The largest buffer, bytes.
pub const MAX_BUFFER: usize = 65_536;

static NEXT_POOL: AtomicU16 = AtomicU16::new(0);

/// A handle to a buffer that holds one frame, from the Ethernet header on, without the frame check
/// sequence.
#[derive(Debug)]
#[must_use = "a frame that is dropped instead of released leaks its buffer"]
pub struct Frame {
    index: u32,
    len: u32,
    offset: u16,
    pool: u16,
    partial_checksum: bool,
}

impl Frame {
    /// Length of the frame, bytes.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether the frame holds nothing.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether the sender left the transport checksum for the hardware to complete: the field holds
    /// only the sum over the pseudo header, and whoever sends the frame on must complete it.
    #[must_use]
    pub const fn partial_checksum(&self) -> bool {
        self.partial_checksum
    }

    /// Sets what [`Frame::partial_checksum`] tells.
    pub const fn set_partial_checksum(&mut self, partial: bool) {
        self.partial_checksum = partial;
    }
}

/// The memory of all buffers. The kernel may write into those that are lent to it, so there is
/// never a reference to the whole: only to pieces that belong to one frame.
#[derive(Debug)]
struct Region {
    memory: Arc<Mapping>,
    /// Bytes used; the mapping has at least one.
    length: usize,
}

impl Region {
    fn of(length: usize) -> Self {
        let memory = Mapping::anonymous(length.max(1)).unwrap_or_else(|_| {
            std::alloc::handle_alloc_error(
                std::alloc::Layout::array::<u8>(length.max(1))
                    .expect("less than half the address space"),
            )
        });
        Self { memory: Arc::new(memory), length }
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

/// A region of frame buffers and the list of the free ones.
#[derive(Debug)]
pub struct FramePool {
    region: Region,
    free: Vec<u32>,
    buffer: usize,
    buffers: usize,
    id: u16,
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
        assert!((MIN_BUFFER..=MAX_BUFFER).contains(&buffer), "buffer size {buffer} out of range");
        let last = u32::try_from(buffers).expect("fewer than 2^32 buffers");
        Self {
            region: Region::of(buffers * buffer),
            free: (0..last).rev().collect(),
            buffer,
            buffers,
            id: NEXT_POOL.fetch_add(1, Ordering::Relaxed),
        }
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

    /// How many buffers are held by frames, lost ones included.
    #[must_use]
    pub fn in_use(&self) -> usize {
        self.buffers - self.free.len()
    }

    /// Touches every page of the region, so that no later access has to wait for the kernel to
    /// provide one.
    pub fn prefault(&mut self) {
        for page in (0..self.region.length).step_by(4096) {
            let byte = &mut self.region.slice_mut(page, 1)[0];
            // The compiler may not drop a volatile-like round trip through black_box.
            *byte = std::hint::black_box(*byte);
        }
    }

    /// An empty frame, or `None` if no buffer is free.
    pub fn alloc(&mut self) -> Option<Frame> {
        let index = self.free.pop()?;
        Some(Frame {
            index,
            len: 0,
            offset: HEADROOM as u16,
            pool: self.id,
            partial_checksum: false,
        })
    }

    /// A frame that holds a copy of `bytes`; `None` if no buffer is free or if `bytes` does not
    /// fit.
    pub fn alloc_from(&mut self, bytes: &[u8]) -> Option<Frame> {
        if bytes.len() > self.max_frame() {
            return None;
        }
        let mut frame = self.alloc()?;
        frame.len = bytes.len() as u32;
        self.bytes_mut(&frame).copy_from_slice(bytes);
        Some(frame)
    }

    /// A second frame with the same contents and flags; `None` if no buffer is free.
    pub fn duplicate(&mut self, frame: &Frame) -> Option<Frame> {
        let source = self.start(frame);
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
    pub fn release(&mut self, frame: Frame) {
        assert_eq!(frame.pool, self.id, "a frame returned to a pool it was not taken from");
        self.free.push(frame.index);
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
        let start = self.start(frame);
        if start < self.region.length {
            self.region.prefetch(start);
        }
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
        if more > self.buffer - offset - old {
            return None;
        }
        frame.len += more as u32;
        Some(self.region.slice_mut(start + old, more))
    }

    /// Cuts the frame to `len` bytes; a frame that is shorter stays as it is.
    pub fn trim(&self, frame: &mut Frame, len: usize) {
        frame.len = frame.len.min(u32::try_from(len).unwrap_or(u32::MAX));
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
            length: self.region.length,
            buffer: self.buffer,
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
        fits.then_some(Frame {
            index,
            len: len as u32,
            offset: offset as u16,
            pool: self.id,
            partial_checksum: false,
        })
    }

    /// Lends the kernel the buffer of a frame that it is to send: number, and where in the region
    /// the frame begins.
    ///
    /// # Panics
    /// If the frame belongs to another pool.
    pub(crate) fn lend_frame(&self, frame: Frame) -> (u32, usize) {
        (frame.index, self.start(&frame))
    }

    /// The `count` bytes before the frame, in the same buffer: metadata that the kernel may have
    /// put there.
    pub(crate) fn before(&self, frame: &Frame, count: usize) -> Option<&[u8]> {
        (usize::from(frame.offset) >= count)
            .then(|| self.region.slice(self.start(frame) - count, count))
    }

    /// The same, to be changed.
    pub(crate) fn before_mut(&mut self, frame: &Frame, count: usize) -> Option<&mut [u8]> {
        let start = self.start(frame);
        (usize::from(frame.offset) >= count).then(|| self.region.slice_mut(start - count, count))
    }

    fn start(&self, frame: &Frame) -> usize {
        assert_eq!(frame.pool, self.id, "a frame of another pool");
        frame.index as usize * self.buffer + usize::from(frame.offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        pool.trim(&mut frame, 6);
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
    #[should_panic(expected = "not taken from")]
    fn a_frame_of_another_pool_is_refused() {
        let (mut a, mut b) = (FramePool::new(1), FramePool::new(1));
        let frame = a.alloc().unwrap();
        b.release(frame);
    }
}
