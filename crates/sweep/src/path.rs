//! Paths into a scenario: `router[r1].config.link[sink].ring.slots`.

use toml::{Table, Value};

/// One part of a path: a key, and which of a list is meant.
struct Part<'p> {
    key: &'p str,
    item: Option<&'p str>,
}

fn parts(path: &str) -> Result<Vec<Part<'_>>, String> {
    let mut parts = Vec::new();
    let mut rest = path;
    while !rest.is_empty() {
        let end = rest.find(['.', '[']).unwrap_or(rest.len());
        let (key, after) = rest.split_at(end);
        if key.is_empty() {
            return Err(format!("{path:?}: a key is missing before {rest:?}"));
        }
        let (item, after) = match after.strip_prefix('[') {
            None => (None, after),
            Some(inside) => {
                let (item, after) =
                    inside.split_once(']').ok_or_else(|| format!("{path:?}: `]` is missing"))?;
                (Some(item), after)
            }
        };
        parts.push(Part { key, item });
        rest = match after.strip_prefix('.') {
            Some("") => return Err(format!("{path:?} ends with a dot")),
            Some(next) => next,
            None if after.is_empty() => "",
            None => return Err(format!("{path:?}: expected `.` before {after:?}")),
        };
    }
    if parts.is_empty() { Err("the path is empty".to_owned()) } else { Ok(parts) }
}

/// Puts `value` where `path` says. Tables on the way are made; items of lists are not.
pub(crate) fn put(table: &mut Table, path: &str, value: Value) -> Result<(), String> {
    let parts = parts(path)?;
    let Some((last, way)) = parts.split_last() else { return Err("the path is empty".to_owned()) };
    if last.item.is_some() {
        return Err(format!("{path:?} names a whole table; say which key of it"));
    }
    let mut here = table;
    for part in way {
        let entry = here.entry(part.key).or_insert_with(|| Value::Table(Table::new()));
        here = match (entry, part.item) {
            (Value::Table(table), None) => table,
            (Value::Array(items), Some(item)) => pick(items, item, path)?,
            (Value::Array(_), None) => {
                return Err(format!("{path:?}: {} is a list; say which: {}[name]", part.key, part.key));
            }
            (_, Some(_)) => return Err(format!("{path:?}: {} is no list", part.key)),
            (other, None) => {
                return Err(format!("{path:?}: {} is a {}, not a table", part.key, other.type_str()));
            }
        };
    }
    here.insert(last.key.to_owned(), value);
    Ok(())
}

/// The table in a list with this name, port, or (if it is a number) index.
fn pick<'t>(items: &'t mut [Value], item: &str, path: &str) -> Result<&'t mut Table, String> {
    let name = |value: &Value| -> Option<String> {
        let table = value.as_table()?;
        ["name", "port"].iter().find_map(|key| table.get(*key)?.as_str()).map(str::to_owned)
    };
    let known: Vec<String> = items.iter().filter_map(name).collect();
    let at = items
        .iter()
        .position(|value| name(value).as_deref() == Some(item))
        .or_else(|| item.parse().ok().filter(|index| *index < items.len()));
    let table = at.and_then(|at| items[at].as_table_mut());
    table.ok_or_else(|| format!("{path:?}: there is no {item:?}; there are: {}", known.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scenario() -> Table {
        "[[router]]\nname = \"r1\"\n[[router.config.link]]\nport = \"sink\"\nlimit = 5\n".parse().unwrap()
    }

    #[test]
    fn values_are_put_where_the_path_says() {
        let mut table = scenario();
        put(&mut table, "router[r1].config.link[sink].limit", Value::Integer(7)).unwrap();
        put(&mut table, "router[0].config.link[sink].ring.slots", Value::Integer(4)).unwrap();
        put(&mut table, "duration", Value::String("5s".to_owned())).unwrap();
        let link = &table["router"][0]["config"]["link"][0];
        assert_eq!(link["limit"].as_integer(), Some(7));
        assert_eq!(link["ring"]["slots"].as_integer(), Some(4));
        assert_eq!(table["duration"].as_str(), Some("5s"));
    }

    #[test]
    fn wrong_paths_say_what_there_is() {
        let refused = |path: &str| put(&mut scenario(), path, Value::Integer(1)).unwrap_err();
        assert!(refused("router[r2].x").ends_with("there is no \"r2\"; there are: r1"));
        assert!(refused("router.config").contains("router is a list; say which: router[name]"));
        assert!(refused("router[r1].name.x").contains("name is a string, not a table"));
        assert!(refused("router[r1").contains("`]` is missing"));
        assert!(refused("router[r1]").contains("say which key of it"));
        assert!(refused("").contains("empty"));
        assert!(refused("a..b").contains("a key is missing"));
        assert!(refused("a.").contains("ends with a dot"));
    }
}
