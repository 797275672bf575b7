//! Published entries: `published = "lct.toml#fig4"` names a key of a file in a folder `published/`
//! beside or above the scenario, or, where there is none of that name, of one that this program
//! brings along.

use std::path::Path;

use evenkeel_config::parse::read_file;
use evenkeel_settings::read::{Fields, Reader, suggest};

use crate::model::Published;

/// The papers' numbers that this program brings along: name of the file, text.
const BUILT_IN: [(&str, &str); 5] = [
    ("cross_protect.toml", include_str!("../../../scenarios/published/cross_protect.toml")),
    ("distributed_wfq.toml", include_str!("../../../scenarios/published/distributed_wfq.toml")),
    ("fairdrop.toml", include_str!("../../../scenarios/published/fairdrop.toml")),
    ("lct.toml", include_str!("../../../scenarios/published/lct.toml")),
    ("wfq_altq.toml", include_str!("../../../scenarios/published/wfq_altq.toml")),
];

/// The entry that the scenario names, if it names one that is there.
pub(crate) fn load(reader: &mut Reader, fields: &Fields, folder: &Path) -> Option<Published> {
    let name = fields.text("published")?;
    match find(name, folder) {
        Ok(published) => Some(published),
        Err(message) => {
            reader.fail(&fields.span("published"), "published", message);
            None
        }
    }
}

/// The number that `reference`, `"lct.toml#fig4"`, has at `path`, `weights[1]`; the file is looked
/// for as a scenario in `folder` would.
///
/// # Errors
/// What is not there, in words.
pub fn published_number(folder: &Path, reference: &str, path: &str) -> Result<f64, String> {
    number(&find(reference, folder)?.entry, path)
}

fn find(name: &str, folder: &Path) -> Result<Published, String> {
    let (file, key) = name.split_once('#').ok_or("expected \"file.toml#key\"")?;
    let plain = !file.is_empty() && !file.starts_with('.') && !file.contains(['/', '\\', '\0']);
    if !plain {
        return Err(format!("{file:?} is not the plain name of a file in published/"));
    }
    let path = std::path::absolute(folder)
        .unwrap_or_else(|_no_current_folder| folder.to_owned())
        .ancestors()
        .map(|above| above.join("published").join(file))
        .find(|path| path.is_file());
    let text = match path {
        Some(path) => read_file(&path).map_err(|errors| errors.to_string())?,
        None => BUILT_IN
            .iter()
            .find(|(name, _)| *name == file)
            .map(|(_, text)| (*text).to_owned())
            .ok_or_else(|| format!("no file published/{file} beside or above the scenario"))?,
    };
    let table: toml::Table = text
        .parse()
        .map_err(|error: toml::de::Error| format!("published/{file}: {}", error.message()))?;
    let keys: Vec<_> = table.keys().map(String::as_str).collect();
    let Some(toml::Value::Table(entry)) = table.get(key) else {
        return Err(format!("published/{file} has no entry {key:?}; {}", suggest(key, &keys)));
    };
    let claim = entry.get("claim").and_then(toml::Value::as_str).map(str::to_owned);
    Ok(Published { file: file.to_owned(), key: key.to_owned(), claim, entry: entry.clone() })
}

/// The number at a path, `weights[1]` or `steps[0].at_s`.
pub(crate) fn number(entry: &toml::Table, path: &str) -> Result<f64, String> {
    let mut here: Option<&toml::Value> = None;
    for part in path.split('.') {
        let (key, indices) = part.split_at(part.find('[').unwrap_or(part.len()));
        let table = match here {
            None => entry,
            Some(toml::Value::Table(table)) => table,
            Some(other) => {
                return Err(format!(
                    "published.{path}: {key:?} is asked of a {}",
                    other.type_str()
                ));
            }
        };
        let keys: Vec<_> = table.keys().map(String::as_str).collect();
        let mut value = table
            .get(key)
            .ok_or_else(|| format!("nothing published under {key:?}; {}", suggest(key, &keys)))?;
        for index in indices.split_terminator(']') {
            let index = index.strip_prefix('[').and_then(|index| index.parse::<usize>().ok());
            let index = index
                .ok_or_else(|| format!("published.{path}: an index is a number in brackets"))?;
            let list =
                value.as_array().ok_or_else(|| format!("published.{path}: {key:?} is no list"))?;
            value = list.get(index).ok_or_else(|| {
                format!("published.{path}: {key:?} has {} items, from 0 on", list.len())
            })?;
        }
        here = Some(value);
    }
    match here {
        Some(toml::Value::Integer(number)) => Ok(*number as f64),
        Some(toml::Value::Float(number)) if number.is_finite() => Ok(*number),
        Some(other) => Err(format!("published.{path} is a {}, not a number", other.type_str())),
        None => Err("a key must follow `published.`".to_owned()),
    }
}
