//! The reference of a format as Markdown, from the same tables that read it.

use std::fmt::Write as _;

use evenkeel_core::settings::schema::{Kind, Presence, Section};

/// A page from tables of keys.
#[must_use]
pub fn markdown(title: &str, intro: &str, sections: &[&Section]) -> String {
    let mut page = format!(
        "# {title}\n\n<!-- Generated from the table of keys; a test compares. Update: UPDATE_DOCS=1 cargo test reference -->\n\n\
         {intro}\n{UNITS}"
    );
    for section in sections {
        section_markdown(&mut page, section);
    }
    page
}

const UNITS: &str = "\
Units stand in the text and are never guessed: rates in `bit/s`, `kbit/s`, `Mbit/s`, `Gbit/s` (powers of ten), times in `ns`, `us`, \
`ms`, `s`, sizes in `B`, `KiB`, `MiB`, `GiB` (powers of 1024). Decimals are allowed: `\"4.5us\"`.\n";

fn section_markdown(page: &mut String, section: &Section) {
    // Writing to a String cannot fail.
    let _ = write!(page, "\n## `{}`\n\n{}\n\n", section.heading, section.doc);
    page.push_str("| key | type | valid | default | meaning |\n|---|---|---|---|---|\n");
    for key in section.keys {
        let default = match key.presence {
            Presence::Required => "**required**".to_owned(),
            Presence::Default("{}") => "its defaults".to_owned(),
            Presence::Default(text) => format!("`{text}`"),
            Presence::Optional(words) => words.to_owned(),
        };
        let mut meaning = key.doc.to_owned();
        if let Kind::Choice(words) = key.kind {
            for (word, what) in words {
                let _ = write!(meaning, "<br>`\"{word}\"`: {what}.");
            }
        }
        let cells = [format!("`{}`", key.name), key.kind.shape(), key.kind.range(), default, meaning];
        let cells = cells.map(|cell| cell.replace('|', "\\|"));
        let _ = writeln!(page, "| {} |", cells.join(" | "));
    }
}
