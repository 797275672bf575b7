//! Lists as CSV: a line of names of columns, then a line for each subscriber or node.

use csv::{ReaderBuilder, StringRecord, Trim};
use evenkeel_settings::read::nearest;

use super::list::{FoundBy, Role, SubscriberList, Texts};
use super::{Faults, wrong};

/// The columns that a list can have.
const COLUMNS: [&str; 11] = [
    "name", "parent", "prefixes", "macs", "vlans", "sessions", "down", "up", "min_down", "min_up",
    "weight",
];

/// Which line something is in. Asked in the order of the text.
struct Lines<'t> {
    text: &'t [u8],
    /// Up to here lines have been counted.
    at: usize,
    line: usize,
}

impl Lines<'_> {
    /// The line of a record that the reader came to at `byte`: what it skips first is none of it.
    fn of(&mut self, byte: u64) -> usize {
        let rest = |at: usize| self.text.get(at..).unwrap_or_default();
        let mut begin = usize::try_from(byte).unwrap_or(usize::MAX).min(self.text.len());
        loop {
            match rest(begin) {
                [b'\r' | b'\n', ..] => begin += 1,
                [b'#', remark @ ..] => {
                    let end = remark.iter().position(|byte| *byte == b'\n');
                    begin += 1 + end.unwrap_or(remark.len());
                }
                _ => break,
            }
        }
        let passed = self.text.get(self.at..begin).unwrap_or_default();
        self.line += passed.iter().filter(|byte| **byte == b'\n').count();
        self.at = self.at.max(begin);
        self.line
    }
}

/// The rows of a text, by the names of their columns.
pub(super) struct Rows {
    pub(super) columns: Vec<String>,
    pub(super) rows: Vec<(usize, StringRecord)>,
}

impl Rows {
    /// What a text holds. Lines with too few or too many fields are told.
    pub(super) fn of(text: &str, faults: &mut Faults) -> Self {
        let mut reader = ReaderBuilder::new()
            .has_headers(true)
            .flexible(true)
            .trim(Trim::All)
            .comment(Some(b'#'))
            .from_reader(text.as_bytes());
        let columns: Vec<String> = match reader.headers() {
            Ok(header) => header.iter().map(str::to_owned).collect(),
            Err(error) => {
                faults.tell(1, "", error.to_string());
                Vec::new()
            }
        };
        let mut rows = Vec::new();
        let mut lines = Lines { text: text.as_bytes(), at: 0, line: 1 };
        for record in reader.records() {
            let record = match record {
                Ok(record) => record,
                Err(error) => {
                    let line = error.position().map_or(0, |at| lines.of(at.byte()));
                    faults.tell(line, "", error.to_string());
                    continue;
                }
            };
            let line = record.position().map_or(0, |at| lines.of(at.byte()));
            if record.len() != columns.len() {
                let message = format!(
                    "{} fields for {} columns: is the file whole, and a name with a comma in \
                     quotes?",
                    record.len(),
                    columns.len()
                );
                faults.tell(line, "", message);
                continue;
            }
            rows.push((line, record));
        }
        Self { columns, rows }
    }

    /// The field of a row in the column of this name.
    pub(super) fn field<'r>(&self, row: &'r StringRecord, column: &str) -> &'r str {
        let at = self.columns.iter().position(|known| known == column);
        at.and_then(|at| row.get(at)).unwrap_or("")
    }
}

/// Adds what a text says to a list. `role`: what all its lines are.
pub(super) fn read(text: &str, role: Option<Role>, list: &mut SubscriberList, faults: &mut Faults) {
    let rows = Rows::of(text, faults);
    for column in &rows.columns {
        if !COLUMNS.contains(&column.as_str()) {
            let near = nearest(column, COLUMNS);
            let remedy = near.map_or_else(
                || format!("no such column; there are: {}", COLUMNS.join(", ")),
                |near| format!("no such column; did you mean {near:?}?"),
            );
            faults.tell(1, "", wrong(column, remedy));
        }
    }
    if !rows.columns.iter().any(|column| column == "name") {
        return faults.tell(1, "name", "the column is missing");
    }
    for (line, row) in &rows.rows {
        let field = |column: &str| rows.field(row, column);
        let found = FoundBy::read(|column| field(column).to_owned(), *line, role, faults);
        let texts = Texts {
            line: *line,
            name: field("name"),
            parent: field("parent"),
            down: field("down"),
            up: field("up"),
            min_down: field("min_down"),
            min_up: field("min_up"),
            weight: field("weight"),
        };
        list.entries.push(texts.entry(found, role, faults));
    }
}
