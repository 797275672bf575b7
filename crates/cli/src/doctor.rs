//! `evenkeel doctor`: what decides on this machine whether shaping can work, each finding with what
//! to do about it.

use std::fmt::Write as _;
use std::path::Path;

use evenkeel_doctor::{Finding, Level, Line, examine, usual_interfaces};
use evenkeel_ports::sys;
use evenkeel_router::Disciplines;
use serde_json::json;

use crate::args::DoctorArgs;
use crate::check;
use crate::failure::{Failure, Outcome};
use crate::out::{print, print_json};

/// Columns of the text beside a finding's level and topic.
const WIDTH: usize = 74;
const MARGIN: usize = 26;

pub(crate) fn doctor(args: &DoctorArgs, disciplines: &Disciplines) -> Outcome {
    let usual = Path::new(crate::init::OF_THE_SERVICE);
    let file = args.file.as_deref().or_else(|| std::fs::File::open(usual).ok().map(|_| usual));
    let config = file.map(|file| check::load(file, disciplines)).transpose()?;
    let lines = config.as_ref().map(Line::of).unwrap_or_default();
    let look = || {
        let named = match (&args.interfaces[..], &lines[..]) {
            ([], []) => usual_interfaces(),
            ([], lines) => lines.iter().map(|line| line.interface.clone()).collect(),
            (named, _) => named.to_vec(),
        };
        examine(&named, &lines)
    };
    let found = match &args.netns {
        Some(name) => sys::in_netns(name, look).map_err(|error| {
            Failure::new(3, format!("entering network namespace {name}: {error}"))
        })?,
        None => look(),
    };
    if args.json {
        print_json(&json!(
            found
                .iter()
                .map(|finding| json!({
                    "level": finding.level.to_string().to_lowercase(),
                    "about": finding.about, "topic": finding.topic, "what": finding.what,
                    "remedy": finding.remedy,
                }))
                .collect::<Vec<_>>()
        ))?;
    } else {
        print(&told(&found, file, args.quiet))?;
    }
    Ok(u8::from(found.iter().any(|finding| finding.level == Level::Bad)))
}

fn told(found: &[Finding], file: Option<&Path>, quiet: bool) -> String {
    let mut text = String::new();
    if let Some(file) = file {
        let _ = writeln!(text, "as {} wants it\n", file.display());
    }
    let shown = |finding: &&Finding| !quiet || finding.level != Level::Fine;
    let mut about = "";
    for finding in found.iter().filter(shown) {
        if finding.about != about {
            let gap = if about.is_empty() { "" } else { "\n" };
            about = &finding.about;
            let _ = writeln!(text, "{gap}{about}");
        }
        let head = format!("  {:<7}{:<17}", finding.level, finding.topic);
        wrapped(&mut text, &head, &finding.what);
        if let Some(remedy) = &finding.remedy {
            wrapped(&mut text, &" ".repeat(MARGIN), &format!("-> {remedy}"));
        }
    }
    let count = |level| found.iter().filter(|finding| finding.level == level).count();
    let _ = writeln!(
        text,
        "\n{} bad, {} to mind, {} could not be seen, {} as they should be",
        count(Level::Bad),
        count(Level::Mind),
        count(Level::Unseen),
        count(Level::Fine)
    );
    text
}

/// A head, and words beside it in lines that a terminal shows.
fn wrapped(text: &mut String, head: &str, words: &str) {
    let mut line = format!("{head:<MARGIN$}");
    let mut used = 0;
    for word in words.split(' ') {
        let length = word.chars().count() + 1;
        if used > 0 && used + length > WIDTH {
            text.push_str(line.trim_end());
            text.push('\n');
            (line, used) = (" ".repeat(MARGIN), 0);
        }
        line.push_str(word);
        line.push(' ');
        used += length;
    }
    text.push_str(line.trim_end());
    text.push('\n');
}
