//! The page that leads to all others.

use super::page;
use super::text::{escape, paragraphs};

/// A page of a set, as the index shows it.
#[derive(Clone, Debug, Default)]
pub struct IndexEntry {
    /// The file, relative to the index.
    pub file: String,
    /// `lct/fig4`: entries with the same first part stand together.
    pub name: String,
    /// Heading.
    pub title: String,
    /// Where it was published; may be empty.
    pub source: String,
    /// The published claim, or what there is to see; may be empty.
    pub claim: String,
    /// For each world: its label and whether all came out as expected.
    pub worlds: Vec<(String, bool)>,
    /// A small figure, SVG; may be empty.
    pub figure: String,
}

/// What a first part of names stands for.
fn heading(part: &str) -> &str {
    match part {
        "wfq-altq" => "How unfair can weighted fair queuing be?",
        "lct" => "An effective scheduler for IP routers: LCT-UC",
        "cross-protect" => "The cross-protect router: flow-aware admission",
        "cross-protect-lab" => "The cross-protect router in short, for real packets too",
        "fairdrop" => "FairDrop: sharing a core's cycles",
        "demo" => "The demo: one load, four disciplines",
        "maps" => "Maps over many simulations",
        other => other,
    }
}

/// The index of a set of pages; `intro` holds paragraphs of plain text.
#[must_use]
pub fn index(title: &str, intro: &str, entries: &[IndexEntry]) -> String {
    let mut html = format!(
        "<header>\n<p class=\"kicker\">Evenkeel</p>\n<h1>{}</h1>\n<div \
         class=\"notes\">{}</div>\n</header>\n",
        escape(title),
        paragraphs(intro)
    );
    let mut parts: Vec<&str> = Vec::new();
    for entry in entries {
        let part = entry.name.split('/').next().unwrap_or_default();
        if !parts.contains(&part) {
            parts.push(part);
        }
    }
    for part in parts {
        html += &format!("<section>\n<h2>{}</h2>\n<div class=\"cards\">\n", escape(heading(part)));
        for entry in entries.iter().filter(|entry| entry.name.split('/').next() == Some(part)) {
            html += &card(entry);
        }
        html += "</div>\n</section>\n";
    }
    html += &format!("<footer>Evenkeel {}</footer>\n", env!("CARGO_PKG_VERSION"));
    page(&escape(title), &html)
}

fn card(entry: &IndexEntry) -> String {
    let mut html = format!(
        "<a class=\"card{}\" href=\"{}\"><h3>{}</h3><p class=\"source\">{}</p>{}",
        // A map needs the whole width to be read.
        if entry.worlds.is_empty() { " whole" } else { "" },
        escape(&entry.file),
        escape(&entry.title),
        escape(if entry.source.is_empty() { &entry.name } else { &entry.source }),
        entry.figure
    );
    if !entry.claim.is_empty() {
        html += &format!("<p class=\"worldline\">{}</p>", escape(&entry.claim));
    }
    for (label, good) in &entry.worlds {
        let (class, words) =
            if *good { ("good", "✓ as expected") } else { ("bad", "✗ not as expected") };
        html += &format!(
            "<p class=\"worldline\">{}: <span class=\"badge {class}\">{words}</span></p>",
            escape(label)
        );
    }
    html + "</a>\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_stand_under_their_paper_and_say_how_they_came_out() {
        let entry = |name: &str, good: bool| IndexEntry {
            file: format!("{}.html", name.replace('/', "-")),
            name: name.to_owned(),
            title: format!("<{name}>"),
            worlds: vec![("simulation".to_owned(), good)],
            ..IndexEntry::default()
        };
        let page = index(
            "All",
            "Two.\n\nParagraphs.",
            &[entry("lct/a", true), entry("x/b", false), entry("lct/c", true)],
        );
        assert_eq!(page.matches("<h2>").count(), 2);
        assert_eq!(
            (page.matches("✓ as expected").count(), page.matches("✗ not as expected").count()),
            (2, 1)
        );
        assert!(page.contains("href=\"lct-a.html\"") && page.contains("&lt;lct/a&gt;"));
        assert!(page.find("lct-c.html") < page.find("x-b.html"));
    }
}
