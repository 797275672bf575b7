//! Published entries: `published = "lct.toml#fig4"` names a key of a file in a folder `published/`
//! beside or above the scenario, or, where there is none of that name, of one that this program
//! brings along.

use std::path::{Path, PathBuf};

use evenkeel_config::parse::read_file;
use evenkeel_settings::Diagnostics;
use evenkeel_settings::read::{Fields, Reader, suggest};
use thiserror::Error;

use crate::model::Published;

/// The papers' numbers that this program brings along: name of the file, text.
const BUILT_IN: [(&str, &str); 5] = [
    ("cross_protect.toml", include_str!("../../../scenarios/published/cross_protect.toml")),
    ("distributed_wfq.toml", include_str!("../../../scenarios/published/distributed_wfq.toml")),
    ("fairdrop.toml", include_str!("../../../scenarios/published/fairdrop.toml")),
    ("lct.toml", include_str!("../../../scenarios/published/lct.toml")),
    ("wfq_altq.toml", include_str!("../../../scenarios/published/wfq_altq.toml")),
];

/// Why there is no such published number.
#[derive(Clone, Debug, Error, Eq, PartialEq)]
pub enum PublishedError {
    /// The reference has no `#`.
    #[error("expected \"file.toml#key\"")]
    NoKey,
    /// It names a path.
    #[error("{0:?} is not the plain name of a file in published/")]
    NotPlain(String),
    /// The file is not there.
    #[error("no file published/{0} beside or above the scenario")]
    NoFile(String),
    /// The file cannot be read.
    #[error("{0}")]
    Unreadable(#[from] Diagnostics),
    /// The file is not TOML.
    #[error("published/{file}: {message}")]
    NotToml {
        /// The file.
        file: String,
        /// What the reader of TOML says.
        message: String,
    },
    /// The file has no such entry.
    #[error("published/{file} has no entry {key:?}; {hint}")]
    NoEntry {
        /// The file.
        file: String,
        /// The entry asked for.
        key: String,
        /// Which there are.
        hint: String,
    },
    /// The entry has no such key.
    #[error("nothing published under {key:?}; {hint}")]
    NothingUnder {
        /// The key.
        key: String,
        /// Which there are.
        hint: String,
    },
    /// A path goes on where there is nothing to go into.
    #[error("published.{path}: {key:?} is asked of a {kind}")]
    NotATable {
        /// The whole path.
        path: String,
        /// The key that does not fit.
        key: String,
        /// What is there.
        kind: &'static str,
    },
    /// Brackets without a number.
    #[error("published.{0}: an index is a number in brackets")]
    NoIndex(String),
    /// An index into what is no list.
    #[error("published.{path}: {key:?} is no list")]
    NotAList {
        /// The whole path.
        path: String,
        /// The key.
        key: String,
    },
    /// An index beyond the end of a list.
    #[error("published.{path}: {key:?} has {length} items, from 0 on")]
    Beyond {
        /// The whole path.
        path: String,
        /// The key.
        key: String,
        /// How long the list is.
        length: usize,
    },
    /// What is there is no number.
    #[error("published.{path} is a {kind}, not a number")]
    NotANumber {
        /// The path.
        path: String,
        /// What is there.
        kind: &'static str,
    },
    /// Nothing follows `published.`.
    #[error("a key must follow `published.`")]
    NoPath,
    /// The scenario names no entry.
    #[error("the scenario names no `published` entry")]
    NotNamed,
}

/// The entry that the scenario names, if it names one that is there.
pub(crate) fn load(reader: &mut Reader, fields: &Fields, folder: &Path) -> Option<Published> {
    let name = fields.text("published")?;
    match find(name, folder) {
        Ok(published) => Some(published),
        Err(error) => {
            reader.fail(&fields.span("published"), "published", error.to_string());
            None
        }
    }
}

/// The number that `reference`, `"lct.toml#fig4"`, has at `path`, `weights[1]`; the file is looked
/// for as a scenario in `folder` would.
///
/// # Errors
/// What is not there.
pub fn published_number(folder: &Path, reference: &str, path: &str) -> Result<f64, PublishedError> {
    number(&find(reference, folder)?.entry, path)
}

/// Where a file of published numbers is for a scenario in `folder`; `None`: nowhere but built in.
pub(crate) fn path_of(file: &str, folder: &Path) -> Option<PathBuf> {
    std::path::absolute(folder)
        .unwrap_or_else(|_no_current_folder| folder.to_owned())
        .ancestors()
        .map(|above| above.join("published").join(file))
        .find(|path| path.is_file())
}

fn find(name: &str, folder: &Path) -> Result<Published, PublishedError> {
    let (file, key) = name.split_once('#').ok_or(PublishedError::NoKey)?;
    let plain = !file.is_empty() && !file.starts_with('.') && !file.contains(['/', '\\', '\0']);
    if !plain {
        return Err(PublishedError::NotPlain(file.to_owned()));
    }
    let text = match path_of(file, folder) {
        Some(path) => read_file(&path)?,
        None => BUILT_IN
            .iter()
            .find(|(name, _)| *name == file)
            .map(|(_, text)| (*text).to_owned())
            .ok_or_else(|| PublishedError::NoFile(file.to_owned()))?,
    };
    let table: toml::Table = text.parse().map_err(|error: toml::de::Error| {
        PublishedError::NotToml { file: file.to_owned(), message: error.message().to_owned() }
    })?;
    let keys: Vec<_> = table.keys().map(String::as_str).collect();
    let Some(toml::Value::Table(entry)) = table.get(key) else {
        let (file, hint) = (file.to_owned(), suggest(key, &keys));
        return Err(PublishedError::NoEntry { file, key: key.to_owned(), hint });
    };
    let claim = entry.get("claim").and_then(toml::Value::as_str).map(str::to_owned);
    Ok(Published { file: file.to_owned(), key: key.to_owned(), claim, entry: entry.clone() })
}

/// The number at a path, `weights[1]` or `steps[0].at_s`.
pub(crate) fn number(entry: &toml::Table, path: &str) -> Result<f64, PublishedError> {
    let whole = || path.to_owned();
    let mut here: Option<&toml::Value> = None;
    for part in path.split('.') {
        let (key, indices) = part.split_at(part.find('[').unwrap_or(part.len()));
        let table = match here {
            None => entry,
            Some(toml::Value::Table(table)) => table,
            Some(other) => {
                let (key, kind) = (key.to_owned(), other.type_str());
                return Err(PublishedError::NotATable { path: whole(), key, kind });
            }
        };
        let keys: Vec<_> = table.keys().map(String::as_str).collect();
        let mut value = table.get(key).ok_or_else(|| PublishedError::NothingUnder {
            key: key.to_owned(),
            hint: suggest(key, &keys),
        })?;
        for index in indices.split_terminator(']') {
            let index = index.strip_prefix('[').and_then(|index| index.parse::<usize>().ok());
            let index = index.ok_or_else(|| PublishedError::NoIndex(whole()))?;
            let list = value
                .as_array()
                .ok_or_else(|| PublishedError::NotAList { path: whole(), key: key.to_owned() })?;
            value = list.get(index).ok_or_else(|| PublishedError::Beyond {
                path: whole(),
                key: key.to_owned(),
                length: list.len(),
            })?;
        }
        here = Some(value);
    }
    match here {
        Some(toml::Value::Integer(number)) => Ok(*number as f64),
        Some(toml::Value::Float(number)) if number.is_finite() => Ok(*number),
        Some(other) => Err(PublishedError::NotANumber { path: whole(), kind: other.type_str() }),
        None => Err(PublishedError::NoPath),
    }
}
