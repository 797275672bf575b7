//! The names of routing tables, where iproute2 has them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use evenkeel_net::policy::{DEFAULT_TABLE, LOCAL_TABLE, MAIN_TABLE, TableId};

/// Folders with a file `rt_tables` and further ones in `rt_tables.d`; what is read later counts.
const FOLDERS: [&str; 3] = ["/usr/share/iproute2", "/usr/lib/iproute2", "/etc/iproute2"];

/// Names of tables by number.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct TableNames(BTreeMap<TableId, String>);

impl Default for TableNames {
    /// Those that every kernel has.
    fn default() -> Self {
        let names = [(LOCAL_TABLE, "local"), (MAIN_TABLE, "main"), (DEFAULT_TABLE, "default")];
        Self(names.map(|(table, name)| (table, name.to_owned())).into())
    }
}

impl TableNames {
    /// Reads the system's. A file that cannot be read has no names.
    #[must_use]
    pub fn of_system() -> Self {
        let mut names = Self::default();
        for file in FOLDERS.iter().flat_map(|folder| files(Path::new(folder))) {
            if let Ok(text) = std::fs::read_to_string(file) {
                names.add(&text);
            }
        }
        names
    }

    /// Takes the names of a file in: a number, decimal or with `0x`, and a name on each line; what
    /// follows `#` is a comment. Lines that are none of that are left out, as iproute2 does.
    pub fn add(&mut self, text: &str) {
        for line in text.lines() {
            let line = line.split('#').next().unwrap_or_default();
            let mut words = line.split_whitespace();
            let (Some(number), Some(name)) = (words.next(), words.next()) else { continue };
            let parsed = match number.strip_prefix("0x") {
                Some(digits) => TableId::from_str_radix(digits, 16),
                None => number.parse(),
            };
            // Zero stands for no table.
            if let Ok(table) = parsed
                && table != 0
            {
                self.0.insert(table, name.to_owned());
            }
        }
    }

    /// The name of a table, or its number in digits.
    #[must_use]
    pub fn name(&self, table: TableId) -> String {
        self.0.get(&table).cloned().unwrap_or_else(|| table.to_string())
    }

    /// All of them.
    #[must_use]
    pub fn all(&self) -> &BTreeMap<TableId, String> {
        &self.0
    }
}

/// `rt_tables` of a folder, then `rt_tables.d/*.conf` by name.
fn files(folder: &Path) -> Vec<PathBuf> {
    let more = std::fs::read_dir(folder.join("rt_tables.d")).into_iter().flatten();
    let mut more: Vec<PathBuf> = more.filter_map(|entry| Some(entry.ok()?.path())).collect();
    more.retain(|file| file.extension().is_some_and(|extension| extension == "conf"));
    more.sort();
    std::iter::once(folder.join("rt_tables")).chain(more).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_iproute2_writes_them() {
        let mut names = TableNames::default();
        names.add(
            "#\n# reserved values\n255\tlocal\n0\tunspec\n100 red # of the customers\n0x65 \
                   blue\nnonsense\n-1 x\n102\n",
        );
        let told: Vec<String> =
            [255, 254, 253, 100, 101, 102].map(|table| names.name(table)).into();
        assert_eq!(told, ["local", "main", "default", "red", "blue", "102"]);
        assert_eq!(names.all().len(), 5);
        // The file of an administrator has the last word.
        names.add("100 crimson");
        assert_eq!(names.name(100), "crimson");
    }
}
