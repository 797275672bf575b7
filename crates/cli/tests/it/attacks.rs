//! docs/attacks.md names the tests that keep mended what attacks have broken: they must be there.

use std::fs;
use std::path::Path;

#[test]
fn every_test_that_the_page_names_is_there() {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = fs::read_to_string(top.join("docs/attacks.md")).unwrap();
    for number in 1..=17 {
        let row = page.lines().find(|line| line.starts_with(&format!("| F{number} |")));
        let named: Vec<(&str, &str)> =
            row.unwrap().split('`').filter_map(|word| word.split_once(".rs::")).collect();
        assert!(!named.is_empty(), "F{number} names no test");
        for (file, test) in named {
            let code = fs::read_to_string(top.join(format!("{file}.rs"))).unwrap();
            let lines: Vec<&str> = code.lines().map(str::trim).collect();
            let at = lines.iter().position(|line| line.starts_with(&format!("fn {test}(")));
            let at = at.unwrap_or_else(|| panic!("F{number}: {file}.rs has no {test}"));
            let is_test = lines[..at].iter().rev().take(6).any(|line| *line == "#[test]");
            // Suites are compiled once for each kind of port, each function of them a test.
            assert!(is_test || file.ends_with("suite"), "F{number}: {test} is no test");
        }
    }
}
