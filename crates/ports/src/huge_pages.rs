//! Tables of many megabytes in pages of 2 MiB: what is looked up at random in them waits for a
//! line, and not for the translation of its address as well.
//!
//! What a process has allocated is found in `/proc/self/maps`, so that tables need no memory of
//! their own kind. Each large piece is asked to be kept in huge pages from now on, and gathered
//! into them at once (`MADV_COLLAPSE`, Linux 6.1; older kernels gather it in the background).
//! Where an administrator wants no huge pages (`transparent_hugepage/enabled` is `never`) nothing
//! is asked. Speed alone depends on it: what cannot be had is left out without a word.

use std::fs;
use std::ops::Range;

/// Bytes of a huge page.
const HUGE: usize = 2 << 20;
/// What administrators want.
const ENABLED: &str = "/sys/kernel/mm/transparent_hugepage/enabled";

/// The whole huge pages of a private anonymous mapping that can be read and written, from a line of
/// `/proc/self/maps`; `None`: another mapping, or a small one.
fn gathered(line: &str) -> Option<Range<usize>> {
    let mut words = line.split_ascii_whitespace();
    let (from, to) = words.next()?.split_once('-')?;
    let [access, _offset, _device, inode] = [(); 4].map(|()| words.next());
    let is_ours =
        access? == "rw-p" && inode? == "0" && matches!(words.next(), None | Some("[heap]"));
    let [from, to] = [from, to].map(|at| usize::from_str_radix(at, 16).ok());
    let (from, to) = (from?.next_multiple_of(HUGE), to? / HUGE * HUGE);
    (is_ours && from < to).then_some(from..to)
}

/// Gathers what the process has allocated by now.
pub fn gather() {
    if fs::read_to_string(ENABLED).map_or(true, |wanted| wanted.contains("[never]")) {
        return;
    }
    let Ok(maps) = fs::read_to_string("/proc/self/maps") else { return };
    for Range { start, end } in maps.lines().filter_map(gathered) {
        for advice in [libc::MADV_HUGEPAGE, libc::MADV_COLLAPSE] {
            // SAFETY: neither changes what the memory holds, nor whether it may be accessed; of an
            // address that is not mapped any more the kernel says so.
            let _ = unsafe {
                libc::madvise(std::ptr::without_provenance_mut(start), end - start, advice)
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_large_private_memory_is_gathered() {
        let huge =
            |line: &str| gathered(line).map(|range| (range.start / HUGE, range.len() / HUGE));
        assert_eq!(huge("00400000-00a00000 rw-p 00000000 00:00 0"), Some((2, 3)));
        assert_eq!(huge("00401000-00a00000 rw-p 00000000 00:00 0   [heap]"), Some((3, 2)));
        for other in [
            "00401000-00700000 rw-p 00000000 00:00 0",
            "00400000-00a00000 r--p 00000000 00:00 0",
            "00400000-00a00000 rw-s 00000000 00:00 0",
            "00400000-00a00000 rw-p 00000000 08:01 77 /some/file",
            "00400000-00a00000 rw-p 00000000 00:00 0 [stack]",
            "",
            "400000 rw-p",
        ] {
            assert_eq!(huge(other), None, "{other}");
        }
    }

    /// Bytes of the mapping with this address that lie in huge pages.
    fn huge_bytes(address: usize) -> usize {
        let smaps = fs::read_to_string("/proc/self/smaps").unwrap();
        let mut inside = false;
        for line in smaps.lines() {
            if let Some((from, rest)) = line.split_once('-')
                && let Ok(from) = usize::from_str_radix(from, 16)
                && let Ok(to) = usize::from_str_radix(rest.split(' ').next().unwrap(), 16)
            {
                inside = (from..to).contains(&address);
            } else if inside && let Some(size) = line.strip_prefix("AnonHugePages:") {
                return size.trim().trim_end_matches(" kB").parse::<usize>().unwrap() << 10;
            }
        }
        0
    }

    #[test]
    fn what_was_allocated_lies_in_huge_pages_and_holds_what_it_held() {
        let table: Vec<u64> = (0..4 << 20).collect();
        gather();
        assert!(table.iter().copied().eq(0..4 << 20));
        let wanted = fs::read_to_string(ENABLED).is_ok_and(|wanted| !wanted.contains("[never]"));
        let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
        let [major, minor] = [0, 1].map(|at| release.split('.').nth(at).unwrap().parse().unwrap());
        if !wanted || (major, minor) < (6, 1) {
            println!("skipped: {ENABLED} is never, or Linux is older than 6.1");
            return;
        }
        let huge = huge_bytes(table.as_ptr() as usize + HUGE);
        assert!(huge >= 24 << 20, "{huge} of {} bytes", table.len() * 8);
    }
}
