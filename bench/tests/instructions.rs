//! Instructions per packet do not creep back: they are counted, so whatever else the machine does
//! is not seen, and held to those in `bench/instructions.txt`, within 5 % both ways.
//!
//! Of the build of the tests, not of a release: `evenkeel-bench instructions` counts those. Another
//! compiler makes other code, so there is nothing to hold it to; so does a build with other
//! settings than `make test` has, see [`BUILD`]. `UPDATE_DOCS=1` writes the file.

use std::path::Path;
use std::process::Command;

/// Incremental builds have some 10 % more instructions, crates built in pieces some percent.
const BUILD: [(&str, &str); 2] =
    [("CARGO_INCREMENTAL", "0"), ("CARGO_PROFILE_DEV_CODEGEN_UNITS", "1")];

fn text_of(command: &mut Command) -> Option<String> {
    let output = command.output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).trim_end().to_owned())
}

#[test]
fn instructions_per_packet_are_those_of_the_file() {
    for (name, value) in BUILD {
        if std::env::var_os(name).is_none_or(|is| is != value) {
            println!("not judged: another build is other code: {name}={value}");
            return;
        }
    }
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("instructions.txt");
    let known = std::fs::read_to_string(&file).unwrap();
    let (head, rows) = known.split_once("\n\n").unwrap();
    let compiler =
        text_of(Command::new(std::env::var("RUSTC").unwrap_or("rustc".into())).arg("--version"));
    let of_file = head.lines().last().unwrap();
    let update = std::env::var_os("UPDATE_DOCS").is_some();
    if !update && compiler.as_deref() != Some(of_file) {
        println!("not judged: {compiler:?} makes other code than {of_file}");
        return;
    }
    let cases: Vec<&str> =
        rows.lines().map(|row| row.trim_start().split_once("  ").unwrap().1).collect();
    let counted =
        text_of(Command::new(env!("CARGO_BIN_EXE_evenkeel-bench")).arg("count").args(&cases));
    let Some(counted) = counted else {
        println!("skipped: valgrind is missing (Debian package valgrind; make setup installs it)");
        assert!(std::env::var_os("EVENKEEL_NO_SKIP").is_none(), "nothing may be skipped");
        return;
    };
    if update {
        let about = head.rsplit_once('\n').unwrap().0;
        let text = format!("{about}\n{}\n\n{counted}\n", compiler.unwrap());
        std::fs::write(&file, text).unwrap();
        return;
    }
    let number = |row: &str| row.trim_start().split_once(' ').unwrap().0.parse::<f64>().unwrap();
    let of = |case: &str| {
        let row = counted
            .lines()
            .find(|row| row.trim_start().split_once("  ").is_some_and(|of| of.1 == case));
        number(row.unwrap_or_else(|| panic!("{case} is counted")))
    };
    // An AQM that judges each packet has a price. (Turns by hosts first cost 1.6 times as much, and
    // were to cost 1.3.)
    let ratio = of("flows:pdrr+aqm:4096") / of("flows:pdrr:4096");
    assert!(ratio <= 1.15, "with the AQM {ratio:.2} times what PDRR alone takes, at most 1.15");
    for (now, then) in counted.lines().zip(rows.lines()) {
        let change = number(now) / number(then) - 1.0;
        assert!(
            change.abs() < 0.05,
            "{now}, where {then} were: {:+.1} %. If it has to be, UPDATE_DOCS=1 takes it over.",
            100.0 * change
        );
    }
}
