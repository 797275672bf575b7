//! Frames of other pools, and pools in the hands of another process.

use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;

use super::{DESCRIPTION, Frame, FramePool, Region, Umem, with_rows};
use crate::error::PortError;
use crate::mapping::Mapping;
use crate::parcel::Parcel;

impl Region {
    /// Memory that another process can map, too, where the kernel has such.
    fn in_file(length: usize) -> Self {
        match Mapping::in_file(length.max(1)) {
            Ok((memory, file)) => {
                Self { memory: Arc::new(memory), length, file: Some(Arc::new(file)) }
            }
            Err(_) => Self::of(length),
        }
    }
}

impl Umem {
    /// Whether another process can map it.
    #[must_use]
    pub fn is_shareable(&self) -> bool {
        self.file.is_some()
    }

    /// Puts the memory into a parcel, for a process whose pool it [becomes](FramePool::of_passed);
    /// false: it cannot be mapped by another one.
    ///
    /// # Errors
    /// The process may have no more descriptors.
    pub fn pass_on(&self, parcel: &mut Parcel) -> Result<bool, PortError> {
        let Some(file) = &self.file else { return Ok(false) };
        parcel.put(self.buffers() as u64);
        parcel.put(self.buffer as u64);
        parcel.put_file(file.as_fd())?;
        Ok(true)
    }
}

/// What is known of a frame but its bytes, for who copies it into another pool.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    segments: u16,
    headers: u16,
    partial_checksum: bool,
    description: Option<[u8; DESCRIPTION]>,
}

impl FramePool {
    /// The same, in memory that a process which goes on with the buffers can map, too.
    ///
    /// # Panics
    /// As [`with_buffer_size`](Self::with_buffer_size).
    #[must_use]
    pub fn shareable(buffers: usize, buffer: usize) -> Self {
        Self::over(Region::in_file, buffers, buffer)
    }

    /// The pool of another process, whose memory was [passed on](Umem::pass_on) by that. No buffer
    /// is free until this process is [told](Self::begin) which are: the other one still has them.
    ///
    /// # Errors
    /// It has other sizes, or something else was passed on.
    pub fn of_passed(
        buffers: usize,
        buffer: usize,
        parcel: &mut Parcel,
    ) -> Result<Self, PortError> {
        let (theirs, size) = (parcel.take()?, parcel.take()?);
        let file = parcel.take_file()?;
        if (theirs, size) != (buffers as u64, buffer as u64) {
            return Err(PortError::NotPassed("it has other buffers"));
        }
        let length = with_rows(buffers, buffer) * buffer;
        // Beyond the end of a file there is no memory.
        if file_length(&file) < length as u64 {
            return Err(PortError::NotPassed("its buffers are too few"));
        }
        let memory = Mapping::of_file(file.as_fd(), length)
            .map_err(|error| PortError::from_io("mapping the buffers", error))?;
        let region = Region { memory: Arc::new(memory), length, file: Some(Arc::new(file)) };
        region.memory.populate(buffers * buffer);
        let mut pool = Self::over(|_length| region, buffers, buffer);
        pool.free.clear();
        Ok(pool)
    }

    /// The pool that was adopted is this process's from now on: all buffers are free but those that
    /// the kernel has.
    pub fn begin(&mut self, lent: impl Iterator<Item = u32>) {
        let mut free = vec![true; self.buffers];
        for index in lent {
            if let Some(free) = free.get_mut(index as usize) {
                *free = false;
            }
        }
        let free = (0..self.buffers as u32).rev().filter(|index| free[*index as usize]);
        self.free = free.collect();
    }

    /// A frame of another pool, copied into this one, with all that is known of it; `None` if there
    /// is no room for it.
    pub fn copy_from(&mut self, other: &Self, frame: &Frame) -> Option<Frame> {
        self.alloc_known(&other.known(frame), other.bytes(frame))
    }

    /// All that is known of a frame but its bytes.
    #[must_use]
    pub fn known(&self, frame: &Frame) -> Known {
        Known {
            segments: frame.segments,
            headers: frame.headers,
            partial_checksum: frame.partial_checksum(),
            description: self.description(frame).copied(),
        }
    }

    /// A frame of these bytes, of which this is known; `None` if there is no room for it.
    pub fn alloc_known(&mut self, known: &Known, bytes: &[u8]) -> Option<Frame> {
        let mut frame = if known.segments == 1 && bytes.len() <= self.max_frame() {
            self.alloc_from(bytes)?
        } else {
            let frame = self.alloc_super(bytes.len(), known.segments, known.headers)?;
            self.bytes_mut(&frame).copy_from_slice(bytes);
            frame
        };
        frame.set_partial_checksum(known.partial_checksum);
        if let Some(description) = known.description {
            self.describe(&mut frame, description);
        }
        Some(frame)
    }

    /// Puts a frame with all that is known of it into a parcel for another process; it stays here.
    pub fn pass_on(&self, frame: &Frame, parcel: &mut Parcel) {
        let Known { segments, headers, partial_checksum, description } = self.known(frame);
        parcel.put(u64::from(segments) | u64::from(headers) << 16);
        parcel.put(u64::from(partial_checksum));
        parcel.put_bytes(description.as_ref().map_or(&[][..], |header| &header[..]));
        parcel.put_bytes(self.bytes(frame));
    }

    /// The next frame of a parcel, copied into this pool; `None` if there is no room for it.
    ///
    /// # Errors
    /// There is none in the parcel.
    pub fn take_passed(&mut self, parcel: &mut Parcel) -> Result<Option<Frame>, PortError> {
        let word = parcel.take()?;
        let (segments, headers) = (word as u16, (word >> 16) as u16);
        let partial_checksum = parcel.take()? != 0;
        let description = parcel.take_bytes()?.try_into().ok();
        let known = Known { segments, headers, partial_checksum, description };
        Ok(self.alloc_known(&known, parcel.take_bytes()?))
    }
}

fn file_length(file: &OwnedFd) -> u64 {
    let file = file.try_clone().map(std::fs::File::from);
    file.and_then(|file| file.metadata()).map_or(0, |known| known.len())
}
