//! docs/attacks.md names the tests that keep mended what attacks have broken: they must be there.

use std::fs;
use std::path::Path;

#[test]
fn every_test_that_the_page_names_is_there() {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = fs::read_to_string(top.join("docs/attacks.md")).unwrap();
    let rows: Vec<(&str, &str)> = page
        .lines()
        .filter_map(|line| line.strip_prefix("| ")?.split_once(" |"))
        .filter(|(what, _)| what.len() < 4 && what.ends_with(|c: char| c.is_ascii_digit()))
        .collect();
    assert!((1..=17).all(|n| rows.iter().any(|(what, _)| *what == format!("F{n}"))), "{rows:?}");
    for (what, row) in rows {
        let named: Vec<(&str, &str)> =
            row.split('`').filter_map(|word| word.split_once(".rs::")).collect();
        assert!(!named.is_empty(), "{what} names no test");
        for (file, test) in named {
            let code = fs::read_to_string(top.join(format!("{file}.rs"))).unwrap();
            let lines: Vec<&str> = code.lines().map(str::trim).collect();
            let at = lines.iter().position(|line| line.starts_with(&format!("fn {test}(")));
            let at = at.unwrap_or_else(|| panic!("{what}: {file}.rs has no {test}"));
            let is_test = lines[..at].iter().rev().take(6).any(|line| *line == "#[test]");
            // Suites are compiled once for each kind of port, each function of them a test.
            assert!(is_test || file.ends_with("suite"), "{what}: {test} is no test");
        }
    }
}
