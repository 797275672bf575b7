//! Where in a file something stands that turned out to be wrong only when it was tried.

use crate::tree::{Data, KeyValue, Table, document};

/// The line, from 1, of a key of a table: `key_line(text, "router", None, "seed")`; with `name`, of
/// the table of that name among those of `[[table]]`. Without the key, the line of the table.
/// `None`: the text has no such table.
#[must_use]
pub fn key_line(text: &str, table: &str, name: Option<&str>, key: &str) -> Option<usize> {
    let (file, _errors) = document(text);
    let entry = file.entries.iter().find(|entry| entry.name == table)?;
    let named = |table: &&Table| {
        name.is_none_or(|name| table.get("name").and_then(|node| node.data.as_text()) == Some(name))
    };
    let (inside, at) = match &entry.value.data {
        Data::Table(inside) => (inside, entry.at.start),
        Data::List(tables) => tables.iter().find_map(|node| match &node.data {
            Data::Table(inside) if named(&inside) => Some((inside, node.at.start)),
            _ => None,
        })?,
        _ => return Some(line(text, entry.at.start)),
    };
    let key = |entry: &&KeyValue| entry.name == key;
    Some(line(text, inside.entries.iter().find(key).map_or(at, |entry| entry.at.start)))
}

fn line(text: &str, at: usize) -> usize {
    text.bytes().take(at).filter(|byte| *byte == b'\n').count() + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_found_where_they_stand() {
        let text = "[[port]]\nname = \"a\"\ninterface = \"x\"\n[[port]]\nname = \"b\"\n# what it \
                    is on\ninterface = \"x\"\n[router]\nseed = 1\n";
        assert_eq!(key_line(text, "router", None, "seed"), Some(9));
        assert_eq!(key_line(text, "router", None, "workers"), Some(8));
        assert_eq!(key_line(text, "port", Some("b"), "interface"), Some(7));
        assert_eq!(key_line(text, "port", Some("b"), "io"), Some(4));
        assert_eq!(key_line(text, "port", Some("c"), "io"), None);
        assert_eq!(key_line(text, "cluster", None, "node"), None);
    }
}
