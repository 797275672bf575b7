//! docs/tutorial.md does what it says: its commands are run in their order, its additions made.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use evenkeel_netns::testing::{available, has_tool};

const PAGE: &str = include_str!("../../../../docs/tutorial.md");
const TEST: &str = "the_tutorial_does_what_it_says";

/// The blocks of code of the page: language, text.
fn blocks() -> Vec<(&'static str, &'static str)> {
    let mut blocks = Vec::new();
    let mut rest = PAGE;
    while let Some((_, after)) = rest.split_once("\n```") {
        let (language, after) = after.split_once('\n').expect("a block has lines");
        let (text, after) = after.split_once("\n```").expect("a block ends");
        blocks.push((language, text));
        rest = after;
    }
    blocks
}

/// Runs a command of the page as a shell would, with the program that was built here.
fn run(folder: &Path, line: &str) {
    let program = Path::new(env!("CARGO_BIN_EXE_evenkeel"));
    let own = program.parent().expect("it is in a folder");
    let path = std::env::var("PATH").unwrap_or_default();
    let mut shell = Command::new("sh");
    shell.current_dir(folder).args(["-c", line]).stdin(Stdio::null());
    let output = shell.env("PATH", format!("{}:{path}", own.display())).output().unwrap();
    let said = [&output.stdout[..], &output.stderr].map(String::from_utf8_lossy).concat();
    assert!(output.status.success(), "{line}: {}\n{said}", output.status);
}

#[test]
fn the_tutorial_does_what_it_says() {
    let folder = tempfile::tempdir().unwrap();
    let real = available(TEST) && has_tool(TEST, "iperf3", "iperf3");
    let (mut commands, mut additions) = (0, 0);
    for (language, text) in blocks() {
        match language {
            "sh" => {
                for line in text.lines() {
                    match line.strip_prefix("sudo ") {
                        Some(line) if real => run(folder.path(), line),
                        Some(_) => {}
                        None => run(folder.path(), line),
                    }
                    commands += 1;
                }
            }
            "toml" => {
                let file = folder.path().join("call.toml");
                let mut file = OpenOptions::new().append(true).open(file).unwrap();
                writeln!(file, "\n{text}").unwrap();
                additions += 1;
            }
            other => panic!("a block of {other}: what shall be done with it?"),
        }
    }
    assert_eq!((commands, additions), (17, 1));
    for page in ["fair", "both", "charts", "again/again"] {
        let page = folder.path().join("out").join(page).join("index.html");
        let text = fs::read_to_string(&page).unwrap_or_default();
        assert!(text.contains("<figure") || text.contains("href="), "{}", page.display());
    }
}
