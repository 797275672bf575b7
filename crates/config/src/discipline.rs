//! `discipline` of a link: read by the declarations that stand beside the disciplines in the core.

use evenkeel_core::schedule::any::ReadSettings;
use evenkeel_core::schedule::{DisciplineConfig, LinuxConfig, OwnConfig};
use evenkeel_core::settings::{Kind, SettingError, Settings};
use evenkeel_settings::read::{Fields, Item, Reader, Value, parse_toml};
use evenkeel_settings::settings_of;
use thiserror::Error;

use crate::change::{ChangeError, concluded};
use crate::tables;

/// An error in the settings of a discipline of the user's own, in the words of its author it.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[error("{0}")]
pub struct OwnError(String);

impl From<String> for OwnError {
    fn from(message: String) -> Self {
        Self(message)
    }
}

impl From<&str> for OwnError {
    fn from(message: &str) -> Self {
        Self(message.to_owned())
    }
}

impl From<SettingError> for OwnError {
    fn from(error: SettingError) -> Self {
        Self(error.to_string())
    }
}

/// The settings of a discipline of the user's own as `T`. Keys that `T` does not know are refused
/// if it says so (`#[serde(deny_unknown_fields)]`).
///
/// # Errors
/// What does not fit.
pub fn own_settings<T: serde::de::DeserializeOwned>(own: &OwnConfig) -> Result<T, OwnError> {
    let refused =
        |error: toml::de::Error| OwnError(format!("settings: {}", error.message().trim()));
    let value = toml::de::ValueDeserializer::parse(&own.settings).map_err(refused)?;
    T::deserialize(value).map_err(refused)
}

/// Reads a discipline from the text of a TOML inline table (`{ kind = "lct", limit = 50 }`) or of a
/// table's body. `classes` are the router's class names in order.
///
/// # Errors
/// Everything that is wrong with it, in one message.
pub fn parse_discipline(text: &str, classes: &[&str]) -> Result<DisciplineConfig, ChangeError> {
    let text = text.trim();
    let inline = text.starts_with('{');
    let body =
        if inline { format!("discipline = {text}") } else { format!("[discipline]\n{text}") };
    let (table, mut reader) = parse_toml(&body, "");
    let kind = Kind::Variants(tables::DISCIPLINES);
    let config = match table.get("discipline") {
        Some(node) => match reader.value(&kind, node, "discipline") {
            Some(Item { value: Value::Table(fields), .. }) => {
                from_fields(&mut reader, &fields, classes)
            }
            _ => None,
        },
        None => None,
    };
    concluded(reader, config)
}

/// A table that was read, for whichever discipline it is of.
struct FromFields<'a> {
    reader: &'a mut Reader,
    fields: &'a Fields,
    classes: &'a [&'a str],
}

impl ReadSettings for FromFields<'_> {
    fn read<S: Settings>(&mut self) -> Option<S> {
        settings_of(self.reader, self.fields, self.classes)
    }
}

/// The discipline that a table says, which was read by its declaration.
pub(crate) fn from_fields(
    reader: &mut Reader,
    fields: &Fields,
    classes: &[&str],
) -> Option<DisciplineConfig> {
    match fields.kind? {
        "own" => own(reader, fields).map(DisciplineConfig::Own),
        LinuxConfig::NAME => linux(reader, fields).map(DisciplineConfig::Linux),
        kind => DisciplineConfig::read(kind, &mut FromFields { reader, fields, classes }),
    }
}

fn own(reader: &mut Reader, fields: &Fields) -> Option<OwnConfig> {
    let own = OwnConfig {
        name: fields.text("name")?.to_owned(),
        settings: fields.foreign("settings")?.data.inline(),
        place: reader.place(&fields.at),
    };
    if let Err(error) = own_settings::<toml::Table>(&own) {
        reader.fail_at(fields, "settings", error.to_string());
        return None;
    }
    Some(own)
}

/// Words that a line of [`LinuxConfig::command`] may begin with, the first one left out.
const FURTHER: [&str; 3] = ["class", "qdisc", "filter"];

fn linux(reader: &mut Reader, fields: &Fields) -> Option<LinuxConfig> {
    let command = fields.text("command")?.to_owned();
    match tc_lines(&command, "") {
        Ok(_) => Some(LinuxConfig { command, place: reader.place(&fields.at) }),
        Err(message) => {
            reader.fail_at(fields, "command", message);
            None
        }
    }
}

/// What [`LinuxConfig::command`] says, as the arguments of one `tc` after the other, for an
/// interface.
///
/// # Errors
/// What does not read as such lines.
pub fn tc_lines(command: &str, interface: &str) -> Result<Vec<Vec<String>>, String> {
    let lines = command.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
    let mut all = Vec::new();
    for line in lines.filter(|line| !line.is_empty()) {
        let mut words: Vec<&str> = line.split_whitespace().collect();
        if words.iter().any(|word| ["dev", "root"].contains(word)) {
            return Err(format!("{line:?}: leave `dev` and `root` out: the link says them"));
        }
        let further = FURTHER.contains(&words[0]);
        if all.is_empty() == further {
            let why = if further {
                "the first line is the root discipline, such as \"htb default 20\""
            } else {
                "further lines begin with `class`, `qdisc` or `filter`"
            };
            return Err(format!("{line:?}: {why}"));
        }
        let object = if further { words.remove(0) } else { "qdisc" };
        let mut arguments = vec![object, "add", "dev", interface];
        if !further {
            arguments.extend(["root", "handle", "1:"]);
        }
        arguments.extend(words);
        all.push(arguments.into_iter().map(str::to_owned).collect());
    }
    if all.is_empty() {
        return Err("it says no discipline; such as \"htb default 20\"".to_owned());
    }
    Ok(all)
}
