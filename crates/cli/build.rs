//! Tells the command which commit it is built from, for the provenance of results.

use std::path::Path;
use std::process::Command;

fn main() {
    // Without git, as from an archive, nothing is told.
    let told =
        Command::new("git").args(["describe", "--always", "--dirty", "--abbrev=12"]).output();
    let commit = told.ok().filter(|said| said.status.success());
    let commit = commit.and_then(|said| String::from_utf8(said.stdout).ok());
    println!("cargo::rustc-env=EVENKEEL_COMMIT={}", commit.unwrap_or_default().trim());
    // Whether something differs from the commit is told, too.
    println!("cargo::rerun-if-changed=../../crates");
    // It names the branch, and what is written with each commit.
    let head = Path::new("../../.git/logs/HEAD");
    if head.exists() {
        println!("cargo::rerun-if-changed={}", head.display());
    }
}
