//! `docs/write-a-discipline.md` is what stands here, and its commands do what it says.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The blocks of the guide by what follows the three back ticks; those of one file in one piece.
fn blocks() -> BTreeMap<String, String> {
    let guide = std::fs::read_to_string(root().join("docs/write-a-discipline.md")).unwrap();
    let mut blocks = BTreeMap::<String, String>::new();
    for (number, part) in guide.split("```").enumerate().filter(|(number, _)| number % 2 == 1) {
        let (info, text) = part.split_once('\n').unwrap_or_else(|| panic!("part {number}: {part}"));
        let block = blocks.entry(info.to_owned()).or_default();
        if !block.is_empty() {
            block.push('\n');
        }
        block.push_str(text);
    }
    blocks
}

/// Runs the program as the guide does, results elsewhere.
fn run(arguments: &[&str], folder: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_own-discipline"));
    command.current_dir(root()).args(arguments);
    if matches!(arguments[0], "sim" | "lab") {
        command.arg("--out").arg(Path::new(env!("CARGO_TARGET_TMPDIR")).join(folder));
    }
    command.output().unwrap()
}

fn text(output: &Output) -> String {
    let [out, error] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    format!("{}\n{out}{error}", output.status)
}

#[test]
fn the_guide_shows_the_files_that_are_compiled() {
    let blocks = blocks();
    let mut files = 0;
    for (info, shown) in &blocks {
        let Some((_, file)) = info.split_once(" title=") else { continue };
        let file = file.trim_matches('"');
        let real =
            std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).unwrap();
        assert!(*shown == real, "docs/write-a-discipline.md does not show {file} as it is");
        files += 1;
    }
    assert_eq!(files, 3);
}

#[test]
fn the_commands_of_the_guide_work() {
    let mut worlds = Vec::new();
    for line in blocks()["sh"].lines() {
        let arguments: Vec<_> =
            line.strip_prefix("cargo run -p own-discipline -- ").unwrap().split(' ').collect();
        let output = run(&arguments, "guide");
        let is_root =
            std::os::unix::fs::MetadataExt::uid(&std::fs::metadata("/proc/self").unwrap()) == 0;
        if arguments[0] == "lab" && output.status.code() == Some(3) && !is_root {
            println!("skipped: {line}: {}", text(&output));
            continue;
        }
        assert!(output.status.success(), "{line}: {}", text(&output));
        worlds.push(arguments[0].to_owned());
    }
    assert!(worlds.starts_with(&["scenario", "sim", "sim"].map(String::from)), "{worlds:?}");
}

#[test]
fn it_is_the_own_discipline_that_runs() {
    let output = run(&["sim", "examples/own-discipline/strict.toml", "--json"], "summary");
    assert!(output.status.success(), "{}", text(&output));
    assert!(text(&output).contains("strict-priority"), "{}", text(&output));
}

#[test]
fn what_does_not_fit_is_refused_with_its_line() {
    let good =
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("strict.toml")).unwrap();
    let line =
        1 + good.lines().position(|line| line.contains("[router.config.link.discipline]")).unwrap();
    for (from, to, message) in [
        (
            "\"voice\", \"video\"",
            "\"voice\", \"vido\"",
            "no class \"vido\"; did you mean \"video\"?",
        ),
        ("\"voice\", \"video\"", "\"voice\", \"voice\"", "\"voice\" is there twice"),
        ("limit = 50", "limit = 0", "limit: 0 is out of range; valid: 1 to 65536 packets"),
        ("limit = 50", "limt = 50", "unknown field `limt`"),
        (
            "name = \"strict-priority\"\nsettings",
            "name = \"strict\"\nsettings",
            "there are: strict-priority",
        ),
    ] {
        assert!(good.contains(from));
        let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("wrong.toml");
        std::fs::write(&file, good.replace(from, to)).unwrap();
        let file = file.to_str().unwrap();
        for command in [["scenario", "check"].as_slice(), &["sim"], &["lab"]] {
            let output = run(&[command, &[file]].concat(), "wrong");
            assert_eq!(output.status.code(), Some(2), "{}", text(&output));
            let text = text(&output);
            assert!(
                text.contains(&format!("{file}:{line}: discipline: ")) && text.contains(message),
                "{text}"
            );
        }
    }
}
