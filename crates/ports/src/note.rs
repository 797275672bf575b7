//! What was changed at an interface, written down for the next start in case this one is killed.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::error::PortError;
use crate::sys::NetNs;

/// A file that says what an interface was like before.
#[derive(Debug)]
pub(crate) struct Note {
    file: PathBuf,
    /// Its first line: of which interface it speaks.
    stamp: String,
}

impl Note {
    /// The note of what `kind` says (`offloads`) on an interface in the network namespace of the
    /// calling thread, in the directory `runtime`, which is made if missing. Nothing is written
    /// yet.
    ///
    /// # Errors
    /// `runtime` cannot be written.
    pub(crate) fn of(
        kind: &str,
        (interface, ifindex): (&str, u32),
        runtime: &Path,
    ) -> Result<Self, PortError> {
        let written = |error| unwritten(runtime, error);
        fs::create_dir_all(runtime).map_err(written)?;
        let namespace =
            NetNs::current().and_then(|namespace| namespace.inode()).map_err(written)?;
        Ok(Self {
            file: runtime.join(format!("{kind}-{namespace}-{interface}")),
            stamp: format!("boot {} interface {ifindex}", boot()),
        })
    }

    /// The lines that a start which was never stopped has written about this interface, if it has.
    pub(crate) fn recall(&self) -> Option<Vec<String>> {
        let text = fs::read_to_string(&self.file).ok()?;
        let mut lines = text.lines();
        (lines.next() == Some(&self.stamp)).then(|| lines.map(str::to_owned).collect())
    }

    /// Writes the file as a whole or not at all.
    ///
    /// # Errors
    /// The directory cannot be written.
    pub(crate) fn remember<L: AsRef<str>>(
        &self,
        lines: impl IntoIterator<Item = L>,
    ) -> Result<(), PortError> {
        let mut text = format!("{}\n", self.stamp);
        for line in lines {
            text.push_str(line.as_ref());
            text.push('\n');
        }
        let draft = self.file.with_extension("new");
        fs::write(&draft, text)
            .and_then(|()| fs::rename(draft, &self.file))
            .map_err(|error| unwritten(self.file.parent().unwrap_or(&self.file), error))
    }

    /// All is as it was. A file that speaks by now of an interface which took the place of ours
    /// stays.
    pub(crate) fn forget(&self) {
        if self.recall().is_some() {
            let _ = fs::remove_file(&self.file);
        }
    }
}

fn unwritten(runtime: &Path, error: io::Error) -> PortError {
    PortError::from_io(format!("writing to {}", runtime.display()), error)
}

/// Tells this start of the machine from every other: interface numbers begin again with it.
fn boot() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_found_again_unless_it_speaks_of_another_interface() {
        let directory = tempfile::tempdir().unwrap();
        let note = |ifindex| Note::of("offloads", ("eth0", ifindex), directory.path()).unwrap();
        let on = ["rx-gro", "rx-lro"];
        assert_eq!(note(3).recall(), None);
        note(3).remember(on).unwrap();
        assert_eq!(note(3).recall(), Some(on.map(String::from).to_vec()));
        assert_eq!(note(4).recall(), None);
        note(4).forget();
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
        note(3).forget();
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }
}
