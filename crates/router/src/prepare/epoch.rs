//! The epoch of a cluster's forwarder: another number for each of its lives, kept in a file over
//! restarts so that a clock that is behind does not give one again.

use std::io::Write as _;
use std::path::Path;
use std::{fs, io};

/// The epoch of this life: microseconds since 1970, or one more than the last life's if the clock
/// has not got that far. What is wrong with the file or the clock is reported; the router goes on
/// by its clock, because the others believe no epoch without an answer to their challenge.
pub(super) fn next(file: &Path, clock: u64, report: impl Fn(&str)) -> u64 {
    let shown = file.display();
    let last = match fs::read_to_string(file) {
        Ok(text) => text.trim().parse::<u64>().ok().or_else(|| {
            report(&format!("cluster: {shown} holds no number; the epoch is that of the clock"));
            None
        }),
        Err(error) => {
            if error.kind() != io::ErrorKind::NotFound {
                report(&format!(
                    "cluster: {shown} cannot be read: {error}; the epoch is that of the clock"
                ));
            }
            None
        }
    };
    let epoch = last.map_or(clock, |last| clock.max(last.saturating_add(1)));
    if epoch > clock {
        let behind = (epoch - clock).div_ceil(1_000_000);
        report(&format!(
            "cluster: this machine's clock is {behind} s behind this forwarder's last start; its \
             epochs go on from the one in {shown}"
        ));
    }
    if let Err(error) = store(file, epoch) {
        report(&format!(
            "cluster: {shown} cannot be written: {error}; after a restart with a clock that is \
             behind, an epoch may come again"
        ));
    }
    epoch
}

/// Whole or not at all, and on the disk before it is used.
fn store(file: &Path, epoch: u64) -> io::Result<()> {
    if let Some(folder) = file.parent() {
        fs::create_dir_all(folder)?;
    }
    let new = file.with_extension("new");
    let mut out = fs::File::create(&new)?;
    writeln!(out, "{epoch}")?;
    out.sync_all()?;
    fs::rename(&new, file)
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::next;

    #[test]
    fn epochs_go_on_over_restarts_whatever_the_clock_says() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("state/cluster-epoch-1");
        let said = RefCell::new(Vec::new());
        let report = |text: &str| said.borrow_mut().push(text.to_owned());
        assert_eq!(next(&file, 5_000_000, report), 5_000_000);
        assert_eq!(next(&file, 6_000_000, report), 6_000_000);
        assert!(said.borrow().is_empty(), "{said:?}");
        // An hour behind, twice.
        assert_eq!(next(&file, 1_000_000, report), 6_000_001);
        assert_eq!(next(&file, 1_000_001, report), 6_000_002);
        assert!(said.borrow()[0].contains("clock is 6 s behind"), "{said:?}");
        assert_eq!(said.borrow().len(), 2, "once for each start: {said:?}");
        std::fs::write(&file, "nonsense").unwrap();
        assert_eq!(next(&file, 9, report), 9);
        assert!(said.borrow()[2].contains("holds no number"), "{said:?}");
        // A folder that cannot be: said, and the clock is all there is.
        let file = file.join("below-a-file");
        assert_eq!(next(&file, 7, report), 7);
        assert!(said.borrow().last().unwrap().contains("cannot be written"), "{said:?}");
    }
}
