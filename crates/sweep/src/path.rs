//! Paths into a scenario: `router[r1].config.link[sink].ring.slots`.

use thiserror::Error;
use toml::{Table, Value};

/// Why a value cannot be put where a path says.
#[derive(Debug, Error)]
pub enum PathError {
    /// There is no path.
    #[error("the path is empty")]
    Empty,
    /// Two dots, or a bracket without a key.
    #[error("{path:?}: a key is missing before {before:?}")]
    NoKey {
        /// The path.
        path: String,
        /// What comes then.
        before: String,
    },
    /// A bracket is not closed.
    #[error("{0:?}: `]` is missing")]
    NoBracket(String),
    /// It ends too early.
    #[error("{0:?} ends with a dot")]
    EndsWithDot(String),
    /// Something follows a bracket at once.
    #[error("{path:?}: expected `.` before {before:?}")]
    NoDot {
        /// The path.
        path: String,
        /// What comes then.
        before: String,
    },
    /// It ends at an item of a list.
    #[error("{0:?} names a whole table; say which key of it")]
    WholeTable(String),
    /// A list on the way, and not said which item.
    #[error("{path:?}: {key} is a list; say which: {key}[name]")]
    WhichItem {
        /// The path.
        path: String,
        /// The list.
        key: String,
    },
    /// An item of what is no list.
    #[error("{path:?}: {key} is no list")]
    NoList {
        /// The path.
        path: String,
        /// What is no list.
        key: String,
    },
    /// A key of what is no table.
    #[error("{path:?}: {key} is a {kind}, not a table")]
    NoTable {
        /// The path.
        path: String,
        /// What is no table.
        key: String,
        /// What it is.
        kind: &'static str,
    },
    /// A list without this item.
    #[error("{path:?}: there is no {item:?}; there are: {known}")]
    NoItem {
        /// The path.
        path: String,
        /// The item asked for.
        item: String,
        /// The items there are.
        known: String,
    },
}

/// One part of a path: a key, and which of a list is meant.
struct Part<'p> {
    key: &'p str,
    item: Option<&'p str>,
}

fn parts(path: &str) -> Result<Vec<Part<'_>>, PathError> {
    let mut parts = Vec::new();
    let mut rest = path;
    while !rest.is_empty() {
        let end = rest.find(['.', '[']).unwrap_or(rest.len());
        let (key, after) = rest.split_at(end);
        if key.is_empty() {
            return Err(PathError::NoKey { path: path.to_owned(), before: rest.to_owned() });
        }
        let (item, after) = match after.strip_prefix('[') {
            None => (None, after),
            Some(inside) => {
                let (item, after) =
                    inside.split_once(']').ok_or_else(|| PathError::NoBracket(path.to_owned()))?;
                (Some(item), after)
            }
        };
        parts.push(Part { key, item });
        rest = match after.strip_prefix('.') {
            Some("") => return Err(PathError::EndsWithDot(path.to_owned())),
            Some(next) => next,
            None if after.is_empty() => "",
            None => {
                return Err(PathError::NoDot { path: path.to_owned(), before: after.to_owned() });
            }
        };
    }
    if parts.is_empty() { Err(PathError::Empty) } else { Ok(parts) }
}

/// Puts `value` where `path` says. Tables on the way are made; items of lists are not.
pub(crate) fn put(table: &mut Table, path: &str, value: Value) -> Result<(), PathError> {
    let parts = parts(path)?;
    let Some((last, way)) = parts.split_last() else { return Err(PathError::Empty) };
    if last.item.is_some() {
        return Err(PathError::WholeTable(path.to_owned()));
    }
    let mut here = table;
    for part in way {
        let (path, key) = (path.to_owned(), part.key.to_owned());
        let entry = here.entry(part.key).or_insert_with(|| Value::Table(Table::new()));
        here = match (entry, part.item) {
            (Value::Table(table), None) => table,
            (Value::Array(items), Some(item)) => pick(items, item, &path)?,
            (Value::Array(_), None) => return Err(PathError::WhichItem { path, key }),
            (_, Some(_)) => return Err(PathError::NoList { path, key }),
            (other, None) => return Err(PathError::NoTable { path, key, kind: other.type_str() }),
        };
    }
    here.insert(last.key.to_owned(), value);
    Ok(())
}

/// What an item of a list is called: its name, its port, or the two ends of a wire.
fn name_of(value: &Value) -> Option<String> {
    let table = value.as_table()?;
    let name = ["name", "port"].iter().find_map(|key| table.get(*key)?.as_str());
    name.map(str::to_owned).or_else(|| {
        let ends: Option<Vec<_>> =
            table.get("ends")?.as_array()?.iter().map(Value::as_str).collect();
        Some(ends?.join("/"))
    })
}

/// The table in a list with this name, port, ends (in either order), or (if it is a number) index.
fn pick<'t>(items: &'t mut [Value], item: &str, path: &str) -> Result<&'t mut Table, PathError> {
    let turned = item.split_once('/').map(|(a, b)| format!("{b}/{a}"));
    let is_meant = |value: &Value| {
        name_of(value).is_some_and(|name| name == item || turned.as_deref() == Some(&name))
    };
    let at = (items.iter().position(is_meant))
        .or_else(|| item.parse().ok().filter(|index| *index < items.len()));
    let known: Vec<String> = items.iter().filter_map(name_of).collect();
    let table = at.and_then(|at| items[at].as_table_mut());
    table.ok_or_else(|| PathError::NoItem {
        path: path.to_owned(),
        item: item.to_owned(),
        known: known.join(", "),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scenario() -> Table {
        "[[router]]\nname = \"r1\"\n[[router.config.link]]\nport = \"sink\"\nlimit = 5\n\
         [[wire]]\nends = [\"h1\", \"r1\"]\n[[wire]]\nends = [\"r1\", \"sink\"]\n"
            .parse()
            .unwrap()
    }

    #[test]
    fn values_are_put_where_the_path_says() {
        let mut table = scenario();
        put(&mut table, "router[r1].config.link[sink].limit", Value::Integer(7)).unwrap();
        put(&mut table, "router[0].config.link[sink].ring.slots", Value::Integer(4)).unwrap();
        put(&mut table, "wire[r1/sink].rate", Value::Integer(3)).unwrap();
        put(&mut table, "wire[r1/h1].rate", Value::Integer(2)).unwrap();
        put(&mut table, "duration", Value::String("5s".to_owned())).unwrap();
        let link = &table["router"][0]["config"]["link"][0];
        assert_eq!(link["limit"].as_integer(), Some(7));
        assert_eq!(link["ring"]["slots"].as_integer(), Some(4));
        assert_eq!(table["wire"][1]["rate"].as_integer(), Some(3));
        assert_eq!(table["wire"][0]["rate"].as_integer(), Some(2));
        assert_eq!(table["duration"].as_str(), Some("5s"));
    }

    #[test]
    fn wrong_paths_say_what_there_is() {
        let refused =
            |path: &str| put(&mut scenario(), path, Value::Integer(1)).unwrap_err().to_string();
        assert!(refused("router[r2].x").ends_with("there is no \"r2\"; there are: r1"));
        assert!(refused("wire[h1/sink].rate").ends_with("there are: h1/r1, r1/sink"));
        assert!(refused("router.config").contains("router is a list; say which: router[name]"));
        assert!(refused("router[r1].name.x").contains("name is a string, not a table"));
        assert!(refused("router[r1").contains("`]` is missing"));
        assert!(refused("router[r1]").contains("say which key of it"));
        assert!(refused("").contains("empty"));
        assert!(refused("a..b").contains("a key is missing"));
        assert!(refused("a.").contains("ends with a dot"));
    }
}
