//! The files that a scenario is made of.

use std::io;
use std::path::{Path, PathBuf};

use toml::{Table, Value};

use crate::published;

/// The scenario itself, then the files that it names and that are there: published numbers,
/// routers, recordings; each once, as absolute paths. What is wrong with any of them, loading says.
///
/// # Errors
/// The scenario cannot be read.
pub fn inputs(scenario: &Path) -> io::Result<Vec<PathBuf>> {
    let text = std::fs::read_to_string(scenario)?;
    let file: Table = text.parse().unwrap_or_default();
    let scenario = scenario.canonicalize()?;
    let folder = scenario.parent().unwrap_or(Path::new("/"));
    let listed = |key: &str| {
        let tables = file.get(key).and_then(Value::as_array).into_iter().flatten();
        tables.filter_map(|table| table.get("file")?.as_str()).map(|name| folder.join(name))
    };
    let mut named: Vec<PathBuf> = listed("router").chain(listed("traffic")).collect();
    let entry = file.get("published").and_then(Value::as_str);
    let entry = entry.and_then(|name| name.split_once('#'));
    named.extend(entry.and_then(|(name, _)| published::path_of(name, folder)));
    let mut all = vec![scenario.clone()];
    for path in named.into_iter().filter_map(|path| path.canonicalize().ok()) {
        if !all.contains(&path) {
            all.push(path);
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_that_a_scenario_names_and_that_is_there_is_found_once() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name).canonicalize().unwrap();
        std::fs::create_dir_all(folder.path().join("a/published")).unwrap();
        for name in ["r.toml", "a/x.pcap", "a/published/n.toml"] {
            std::fs::write(folder.path().join(name), "").unwrap();
        }
        let text = "published = \"n.toml#one\"\nrouter = [{ file = \"../r.toml\" }]\ntraffic = [\
                    { file = \"x.pcap\" }, { file = \"x.pcap\" }, { file = \"gone\" }]\n";
        std::fs::write(folder.path().join("a/s.toml"), text).unwrap();
        let found = inputs(&folder.path().join("a/s.toml")).unwrap();
        let wanted = ["a/s.toml", "r.toml", "a/x.pcap", "a/published/n.toml"].map(at);
        assert_eq!(found, wanted);
        assert!(inputs(&folder.path().join("none.toml")).is_err());
    }
}
