//! Asking the processor to read ahead, so that many waits for memory become one.
//!
//! This is the only file of the core with unsafe code: one instruction that reads nothing as far as
//! the program can tell. It changes no value, no flag and no memory, and cannot fault whatever the
//! address is. Reading the memory itself instead, as safe code can, makes the processor wait once
//! so many reads are under way that no further instruction fits in.
//!
//! Implemented for x86-64; elsewhere nothing is read ahead, and nothing else changes.

/// Bytes that the processor reads at a time.
const LINE: usize = 64;

/// Reads ahead element `index` of `slice`, all its lines; an `index` beyond the slice is as good as
/// none.
#[inline(always)]
pub(crate) fn element<T>(slice: &[T], index: usize) {
    // Chosen without a branch, which would wait for `index`. The search for a page that is not
    // mapped would take time too.
    existing(slice, if index < slice.len() { index } else { 0 });
}

/// The same of an `index` that is not beyond the slice: one that is does no harm either, but takes
/// time.
#[inline(always)]
pub fn existing<T>(slice: &[T], index: usize) {
    let first = slice.as_ptr().wrapping_add(index).cast::<u8>();
    let mut offset = 0;
    while offset < size_of::<T>() {
        line(first.wrapping_add(offset));
        offset += LINE;
    }
    // Elements that do not begin at lines may end in one more.
    if !align_of::<T>().is_multiple_of(LINE.min(size_of::<T>().next_power_of_two())) {
        line(first.wrapping_add(size_of::<T>() - 1));
    }
}

#[inline(always)]
#[cfg(target_arch = "x86_64")]
#[expect(unsafe_code, reason = "the instruction has no safe form")]
fn line(address: *const u8) {
    use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    // SAFETY: the instruction is a hint. It accesses nothing in the sense of the language and
    // ignores addresses that are not mapped; all x86-64 processors have it.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) }
}

#[inline(always)]
#[cfg(not(target_arch = "x86_64"))]
fn line(_address: *const u8) {}

#[cfg(test)]
mod tests {
    #[test]
    fn it_accepts_any_index_and_any_size() {
        let words = [1u64, 2, 3];
        for index in [0, 2, 3, usize::MAX / 8, usize::MAX] {
            super::element(&words, index);
            super::element(&[[0u8; 200]; 2], index);
            super::element(&[(); 2], index);
            super::element::<u64>(&[], index);
            super::existing(&words, index);
        }
        assert_eq!(words, [1, 2, 3]);
    }
}
