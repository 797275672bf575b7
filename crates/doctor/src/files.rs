//! Reading `/proc` and `/sys`, or a folder that stands for them.

use std::fs;
use std::path::PathBuf;

/// Where files are looked for.
#[derive(Clone, Debug)]
pub(crate) struct Files {
    root: PathBuf,
}

impl Files {
    pub(crate) fn of_this_machine() -> Self {
        Self { root: "/".into() }
    }

    #[cfg(test)]
    pub(crate) fn below(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.join(name.trim_start_matches('/'))
    }

    /// A file without the white space around; `None`: it is not there, or not for us.
    pub(crate) fn text(&self, name: &str) -> Option<String> {
        Some(fs::read_to_string(self.path(name)).ok()?.trim().to_owned())
    }

    pub(crate) fn number<T: std::str::FromStr>(&self, name: &str) -> Option<T> {
        self.text(name)?.parse().ok()
    }

    /// The names in a folder, in order.
    pub(crate) fn names(&self, folder: &str) -> Vec<String> {
        let entries = fs::read_dir(self.path(folder)).into_iter().flatten().flatten();
        let mut names: Vec<_> =
            entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }
}
