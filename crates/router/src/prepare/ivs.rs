//! IVs of ESP that no life of this router has used or will use again: two packets with the same IV
//! and key give both away.
//!
//! A file holds the first IV that no life has had a right to. A life takes its part of them, has
//! that on the disk, and only then encrypts: a crash loses what it had not used. Where the clock
//! has gone further (nanoseconds since 1970) the part begins there, so that a file that was lost
//! or restored from a copy does no harm by itself. The clock alone is not enough: a machine
//! without a battery, or a restored one, lives through the same time again.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::ops::Range;
use std::path::Path;

/// IVs for one life: at ten million packets each second, enough for 325 days. 50,000 lives without
/// a clock use up all there are.
const PART: u64 = 1 << 48;

/// The IVs of this life.
///
/// # Errors
/// The file cannot be read, or does not say what it should, or cannot be written: no IV is safe
/// then.
pub(super) fn reserve(file: &Path, clock: u64) -> io::Result<Range<u64>> {
    let used = match fs::read_to_string(file) {
        Ok(text) => text.trim().parse::<u64>().map_err(io::Error::other)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
        Err(error) => return Err(error),
    };
    let start = clock.max(used);
    let end = start.saturating_add(PART);
    store(file, end)?;
    Ok(start..end)
}

/// Whole or not at all, and on the disk, with the folder that names it.
fn store(file: &Path, end: u64) -> io::Result<()> {
    let folder = file.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder)?;
    let new = file.with_extension("new");
    let mut out = File::create(&new)?;
    writeln!(out, "{end}")?;
    out.sync_all()?;
    fs::rename(&new, file)?;
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A clock that began again gave the IVs of the life before: 200,000 of 200,000 were used
    /// twice.
    #[test]
    fn no_two_lives_share_an_iv_whatever_the_clock_says() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("state/esp-ivs");
        let mut lives: Vec<Range<u64>> = Vec::new();
        for clock in [1_700_000_000, 1_700_000_000, 0, 1 << 60, 5, (1 << 60) + 7] {
            let life = reserve(&file, clock).unwrap();
            assert_eq!(life.end - life.start, PART);
            assert!(lives.iter().all(|other| other.end <= life.start), "{lives:?} {life:?}");
            lives.push(life);
        }
        assert_eq!(lives[3].start, 1 << 60, "the clock, where it has gone further");
        // Used up, or not to be known: none rather than one twice.
        assert!(reserve(&file, u64::MAX).unwrap().is_empty());
        fs::write(&file, "nonsense").unwrap();
        assert!(reserve(&file, 1).is_err());
        assert!(reserve(&file.join("below-a-file"), 1).is_err());
    }
}
