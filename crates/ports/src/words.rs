//! A few words that programs in the kernel and this process share: counters and flags.

use std::sync::atomic::AtomicU64;

use crate::bpf::{MMAPABLE, Map, MapKind};
use crate::error::PortError;
use crate::mapping::Mapping;

/// The kernel gives whole pages; the value is at the start of the first.
const PAGE: usize = 4096;

/// The one value of a map, mapped into memory.
#[derive(Debug)]
pub(crate) struct Words {
    map: Map,
    memory: Mapping,
}

impl Words {
    /// Words of `size` bytes together.
    pub(crate) fn create(size: u32) -> Result<Self, PortError> {
        let map = Map::create(MapKind::Array, 4, size, 1, MMAPABLE)?;
        let memory = Mapping::shared(map.as_fd(), PAGE, 0, false)
            .map_err(|error| PortError::from_io("mapping a BPF map", error))?;
        Ok(Self { map, memory })
    }

    /// For programs that use them.
    pub(crate) const fn map(&self) -> &Map {
        &self.map
    }

    /// The word at this offset.
    pub(crate) fn word(&self, offset: i16) -> &AtomicU64 {
        assert!(offset >= 0 && (offset as usize) + 8 <= PAGE && offset % 8 == 0);
        // SAFETY: aligned and inside the mapping, which lives as long as `self`; the kernel side
        // accesses the word only whole, by an atomic or an aligned load.
        unsafe { AtomicU64::from_ptr(self.memory.start().add(offset as usize).cast()) }
    }
}
