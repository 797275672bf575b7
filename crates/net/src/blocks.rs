//! Small blocks of elements in one vector: what the nodes of a tree point to, by index.

/// Sizes of blocks: a third of their room is free at most when they grow by one.
const SIZES: [u8; 10] = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32];

/// For each number of elements: the place of its size in [`SIZES`].
const CLASS: [u8; 33] = {
    let mut classes = [0; 33];
    let (mut len, mut class) = (1, 0);
    while len < classes.len() {
        if len > SIZES[class] as usize {
            class += 1;
        }
        classes[len] = class as u8;
        len += 1;
    }
    classes
};

/// Blocks of 1 to 32 elements in one vector. One of no elements is nowhere.
#[derive(Clone)]
pub(crate) struct Blocks<T> {
    pub(crate) all: Vec<T>,
    /// Blocks that are not used, by the class of their size.
    free: [Vec<u32>; SIZES.len()],
}

impl<T> Default for Blocks<T> {
    fn default() -> Self {
        Self { all: Vec::new(), free: Default::default() }
    }
}

fn class(len: u32) -> usize {
    usize::from(CLASS[len as usize])
}

impl<T: Copy + Default> Blocks<T> {
    fn take(&mut self, class: usize) -> u32 {
        self.free[class].pop().unwrap_or_else(|| {
            let (start, size) = (self.all.len(), usize::from(SIZES[class]));
            if self.all.capacity() < start + size {
                // By an eighth, not twofold: the table of the whole Internet is what this is for.
                self.all.reserve_exact(size.max(start / 8).max(64));
            }
            self.all.resize(start + size, T::default());
            u32::try_from(start).expect("the prefixes of a table are fewer than 2^31")
        })
    }

    /// Puts `value` before element `rank` of the block of `len` elements at `start`; gives where
    /// the block is now.
    pub(crate) fn insert(&mut self, start: u32, len: u32, rank: usize, value: T) -> u32 {
        let (old, count) = (start as usize, len as usize);
        let moves = len == 0 || class(len) != class(len + 1);
        let start = if moves { self.take(class(len + 1)) } else { start };
        let new = start as usize;
        if moves && len > 0 {
            self.all.copy_within(old..old + rank, new);
            self.free[class(len)].push(old as u32);
        }
        self.all.copy_within(old + rank..old + count, new + rank + 1);
        self.all[new + rank] = value;
        start
    }

    /// Takes element `rank` out of the block of `len` elements at `start`; gives where the block is
    /// now.
    pub(crate) fn remove(&mut self, start: u32, len: u32, rank: usize) -> u32 {
        let (old, left) = (start as usize, len - 1);
        let moves = left == 0 || class(left) != class(len);
        let start = match left {
            0 => 0,
            _ if moves => self.take(class(left)),
            _ => start,
        };
        let new = start as usize;
        if moves {
            self.free[class(len)].push(old as u32);
        }
        if left > 0 {
            self.all.copy_within(old..old + rank, new);
            self.all.copy_within(old + rank + 1..old + len as usize, new + rank);
        }
        start
    }

    /// Bytes of memory that they have.
    pub(crate) fn memory(&self) -> usize {
        let free: usize = self.free.iter().map(Vec::capacity).sum();
        self.all.capacity() * size_of::<T>() + free * 4
    }

    /// Elements that lie in blocks that are not used.
    #[cfg(test)]
    pub(crate) fn unused(&self) -> usize {
        self.free.iter().zip(SIZES).map(|(free, size)| free.len() * usize::from(size)).sum()
    }
}
