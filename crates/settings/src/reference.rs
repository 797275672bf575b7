//! The reference of a format as Markdown, from the same tables that read it.

use std::fmt::Write as _;

use evenkeel_core::settings::schema::{Change, Kind, Presence, Section};

/// A page from tables of keys.
#[must_use]
pub fn markdown(title: &str, intro: &str, sections: &[&Section]) -> String {
    let mut page = format!(
        "# {title}\n\n<!-- Generated from the table of keys; a test compares. Update: \
         UPDATE_DOCS=1 cargo test reference -->\n\n\
         {intro}\n{UNITS}"
    );
    for section in sections {
        section_markdown(&mut page, section);
    }
    page
}

const UNITS: &str = "\
Units stand in the text and are never guessed: rates in `bit/s`, `kbit/s`, `Mbit/s`, `Gbit/s` \
(powers of ten), times in `ns`, `us`, \
`ms`, `s`, sizes in `B`, `KiB`, `MiB`, `GiB` (powers of 1024). Decimals are allowed: \
`\"4.5us\"`.\n";

fn section_markdown(page: &mut String, section: &Section) {
    // Writing to a String cannot fail.
    let _ = write!(page, "\n## `{}`\n\n{}\n\n", section.heading, section.doc);
    page.push_str("| key | type | valid | default | meaning |\n|---|---|---|---|---|\n");
    for key in section.keys() {
        let default = match (key.presence, &key.kind) {
            (Presence::Required, _) => "**required**".to_owned(),
            (Presence::Optional(words), _) => words.to_owned(),
            (_, Kind::Table(_)) => "its defaults".to_owned(),
            (presence, _) => format!("`{}`", presence.default_text().unwrap_or_default()),
        };
        let mut meaning = key.doc.to_owned();
        match key.change {
            Change::Live => meaning.push_str(" Changes live."),
            Change::Fixed => meaning.push_str(" Fixed while the router runs."),
            Change::Reload => meaning.push_str(" Changes by reload."),
            Change::Untold => {}
        }
        if let Some((other, words)) = key.with {
            let words: Vec<_> = words.iter().map(|word| format!("`\"{word}\"`")).collect();
            let _ = write!(meaning, " Only with `{other}` = {}.", words.join(" or "));
        }
        if let Some(rival) = key.instead_of {
            let _ = write!(meaning, " Not together with `{rival}`.");
        }
        if let Kind::Choice(words) = key.kind {
            for (word, what) in words {
                let _ = write!(meaning, "<br>`\"{word}\"`: {}.", what.trim_end_matches('.'));
            }
        }
        let cells =
            [format!("`{}`", key.name), key.kind.shape(), key.kind.range(), default, meaning];
        let cells = cells.map(|cell| cell.replace('|', "\\|"));
        let _ = writeln!(page, "| {} |", cells.join(" | "));
    }
}
