//! F17: what the fuzzers have found, and what they start from, file by file: each is a case that
//! must pass for ever.

use std::fs;
use std::panic::catch_unwind;
use std::path::Path;

#[path = "../../../../fuzz/cases/captures.rs"]
mod captures;
#[path = "../../../../fuzz/cases/frames.rs"]
mod frames;
#[path = "../../../../fuzz/cases/tables.rs"]
mod tables;

pub(crate) fn replay(target: &str, run: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let mut count = 0;
    for file in fs::read_dir(&folder).unwrap().flatten() {
        let bytes = fs::read(file.path()).unwrap();
        let name = file.file_name();
        assert!(catch_unwind(|| run(&bytes)).is_ok(), "{target}: {}", name.to_string_lossy());
        count += 1;
    }
    assert!(count >= 8, "{count} files in {}", folder.display());
}

#[test]
fn f17_frames_of_the_corpus_pass_and_nothing_disappears() {
    replay("pipeline", frames::run);
}

#[test]
fn f17_tables_of_the_corpus_pass_and_nothing_disappears() {
    replay("tables", tables::run);
}

#[test]
fn f17_captures_of_the_corpus_are_read_to_their_end() {
    replay("captures", captures::run);
}
