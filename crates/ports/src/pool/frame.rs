//! The handle to a buffer.

/// A handle to a buffer that holds one frame, from the Ethernet header on, without the frame check
/// sequence.
#[derive(Debug)]
#[must_use = "a frame that is dropped instead of released leaks its buffer"]
pub struct Frame {
    /// Of its first buffer: a super-frame takes several.
    pub(super) index: u32,
    pub(super) len: u32,
    pub(super) offset: u16,
    pub(super) pool: u32,
    /// [`PARTIAL`], [`DESCRIBED`]: in one byte, which nothing that copies a frame looks at.
    pub(super) flags: u8,
    pub(super) segments: u16,
    /// Bytes of headers that each segment has.
    pub(super) headers: u16,
}

/// See [`Frame::partial_checksum`].
const PARTIAL: u8 = 1;
/// The kernel's header of the frame lies at the start of its buffer.
pub(super) const DESCRIBED: u8 = 2;

impl Frame {
    /// No frame: what is left where one was taken from. No pool has it, so its use panics.
    pub const NOTHING: Self = Self {
        index: u32::MAX,
        len: 0,
        offset: 0,
        pool: u32::MAX,
        flags: 0,
        segments: 1,
        headers: 0,
    };

    /// How many frames it is on the wire: one, but for a super-frame that is kept whole.
    #[must_use]
    pub const fn segments(&self) -> u16 {
        self.segments
    }

    /// Length of the frames that it is on the wire together, bytes: each segment has the headers.
    #[must_use]
    pub const fn cut_len(&self) -> usize {
        self.len as usize + (self.segments as usize - 1) * self.headers as usize
    }

    /// Length of the headers up to the data, bytes; 0 of a frame that is no super-frame.
    #[must_use]
    pub const fn segment_headers(&self) -> usize {
        self.headers as usize
    }

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

    /// Whether the kernel's header of the frame is kept with it: a port that
    /// [takes](crate::Port::takes_whole) super-frames tells the kernel by it what is left to do.
    #[must_use]
    pub const fn is_described(&self) -> bool {
        self.flags & DESCRIBED != 0
    }

    /// Whether the sender left the transport checksum for the hardware to complete: the field holds
    /// only the sum over the pseudo header, and whoever sends the frame on must complete it.
    #[must_use]
    pub const fn partial_checksum(&self) -> bool {
        self.flags & PARTIAL != 0
    }

    /// Whether it is one frame on the wire, as it lies there.
    #[inline]
    #[must_use]
    pub const fn is_plain(&self) -> bool {
        !self.partial_checksum() && self.segments == 1
    }

    /// Cuts the frame to `len` bytes; one that is shorter stays as it is.
    #[inline]
    pub fn trim(&mut self, len: usize) {
        self.len = self.len.min(u32::try_from(len).unwrap_or(u32::MAX));
    }

    /// Sets what [`Frame::partial_checksum`] tells.
    pub const fn set_partial_checksum(&mut self, partial: bool) {
        // What the kernel said of it holds no longer, if it is complete.
        self.flags = if partial { self.flags | PARTIAL } else { 0 };
    }
}
