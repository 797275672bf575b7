//! A parsed TOML text as an owned tree that knows where everything stands.

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::diagnostic::{Span, ValueError};

/// A value and where it stands.
#[derive(Clone, Debug, PartialEq)]
pub struct SpannedValue {
    /// Where.
    pub at: Span,
    /// What.
    pub data: Data,
}

/// What a value is.
#[derive(Clone, Debug, PartialEq)]
pub enum Data {
    /// `"text"`.
    Text(String),
    /// `12`.
    Integer(i128),
    /// `1.5`.
    Number(f64),
    /// `true`.
    Switch(bool),
    /// A date or time of day.
    Date(String),
    /// `[ ]`, or tables under `[[ ]]`.
    List(Vec<SpannedValue>),
    /// `{ }`, or a table under `[ ]`.
    Table(Table),
}

/// A table; entries in the order of the text.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table {
    /// Its keys and values.
    pub entries: Vec<KeyValue>,
}

/// A key and its value.
#[derive(Clone, Debug, PartialEq)]
pub struct KeyValue {
    /// The key.
    pub name: String,
    /// Where the key stands.
    pub at: Span,
    /// The value.
    pub value: SpannedValue,
}

impl Table {
    /// The value of a key.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&SpannedValue> {
        self.entries.iter().find(|entry| entry.name == name).map(|entry| &entry.value)
    }
}

/// A text as a tree, with the errors of its syntax. What could be understood is there also if there
/// are errors.
#[must_use]
pub fn document(text: &str) -> (Table, Vec<(Span, String)>) {
    let (table, errors) = DeTable::parse_recoverable(text);
    let errors = errors
        .into_iter()
        .map(|error| (error.span().unwrap_or(0..0), error.message().trim().to_owned()))
        .collect();
    (table_of(table.get_ref()), errors)
}

/// The text of one value as a tree.
///
/// # Errors
/// It is not the text of one TOML value; says why.
pub fn single(text: &str) -> Result<SpannedValue, ValueError> {
    DeValue::parse(text)
        .map(|value| node(&value))
        .map_err(|error| ValueError(error.message().trim().to_owned()))
}

fn table_of(table: &DeTable<'_>) -> Table {
    let mut entries: Vec<_> = table
        .iter()
        .map(|(name, value)| KeyValue {
            name: name.get_ref().to_string(),
            at: name.span(),
            value: node(value),
        })
        .collect();
    entries.sort_by_key(|entry| entry.at.start);
    Table { entries }
}

fn node(value: &Spanned<DeValue<'_>>) -> SpannedValue {
    let data = match value.get_ref() {
        DeValue::String(text) => Data::Text(text.to_string()),
        // Beyond 128 bits no key of ours has a range: the largest number stands for them all.
        DeValue::Integer(number) => Data::Integer(
            i128::from_str_radix(number.as_str(), number.radix())
                .unwrap_or(if number.as_str().starts_with('-') { i128::MIN } else { i128::MAX }),
        ),
        DeValue::Float(number) => Data::Number(number.as_str().parse().unwrap_or(f64::NAN)),
        DeValue::Boolean(switch) => Data::Switch(*switch),
        DeValue::Datetime(date) => Data::Date(date.to_string()),
        DeValue::Array(array) => Data::List(array.iter().map(node).collect()),
        DeValue::Table(table) => Data::Table(table_of(table)),
    };
    SpannedValue { at: value.span(), data }
}

impl Data {
    /// What stands there, for messages.
    #[must_use]
    pub fn found(&self) -> String {
        match self {
            Self::Text(text) => format!("{text:?}"),
            Self::Integer(number) => format!("the whole number {number}"),
            Self::Number(number) => format!("the number {number}"),
            Self::Switch(switch) => format!("`{switch}`"),
            Self::Date(date) => format!("the date or time {date}"),
            Self::List(_) => "a list".to_owned(),
            Self::Table(_) => "a table".to_owned(),
        }
    }

    /// The text, if it is one.
    #[must_use]
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The value as the control protocol and the command line write it: TOML on one line, a text
    /// without its quotes.
    #[must_use]
    pub fn plain(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            other => other.inline(),
        }
    }

    /// The value as TOML on one line.
    #[must_use]
    pub fn inline(&self) -> String {
        match self {
            Self::Text(text) => toml::Value::String(text.clone()).to_string(),
            Self::Integer(number) => number.to_string(),
            Self::Number(number) => format!("{number:?}"),
            Self::Switch(switch) => switch.to_string(),
            Self::Date(date) => date.clone(),
            Self::List(items) => {
                let items: Vec<_> = items.iter().map(|item| item.data.inline()).collect();
                format!("[{}]", items.join(", "))
            }
            Self::Table(table) => {
                let entries: Vec<_> = table
                    .entries
                    .iter()
                    .map(|entry| {
                        format!("{} = {}", key_text(&entry.name), entry.value.data.inline())
                    })
                    .collect();
                if entries.is_empty() {
                    "{}".to_owned()
                } else {
                    format!("{{ {} }}", entries.join(", "))
                }
            }
        }
    }
}

fn key_text(name: &str) -> String {
    let bare =
        !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_');
    if bare { name.to_owned() } else { toml::Value::String(name.to_owned()).to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_is_read_back() {
        let text = "{ kind = \"lct\", x_delay = { \"a b\" = \"10us\" }, list = [1, 2.5, true], \
                    nothing = {} }";
        let tree = single(text).unwrap();
        assert_eq!(tree.data.inline(), text);
        assert_eq!(single("\"10us\"").unwrap().data.plain(), "10us");
    }

    #[test]
    fn a_text_with_errors_still_gives_what_is_right() {
        let (table, errors) = document("a = 1\nb = = 2\nc = 3\n");
        assert!(!errors.is_empty());
        assert_eq!(table.get("c").map(|node| &node.data), Some(&Data::Integer(3)));
    }
}
