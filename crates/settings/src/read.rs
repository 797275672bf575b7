//! Reads TOML by a declaration ([`evenkeel_core::settings::schema`]): every key is looked up,
//! converted, checked against its range, and defaults are filled in. Whatever is wrong is
//! collected, never the first error only.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use evenkeel_core::Prefix;
use evenkeel_core::{BitRate, Bytes, Nanos};

use crate::diagnostic::{Diagnostic, Diagnostics, Span};
use crate::scalar::scalar;
use crate::tree::{Data, KeyValue, SpannedValue, Table, document, single};
use evenkeel_core::settings::schema::{Key, Kind, Presence, Section};

/// Reads one text: knows its lines and collects its errors.
#[derive(Debug)]
pub struct Reader {
    file: String,
    /// Offsets at which lines begin.
    lines: Vec<usize>,
    errors: Vec<Diagnostic>,
    /// Lines that are not TOML.
    broken: BTreeSet<usize>,
    /// While a default is read: where the table stands that it is for.
    stand_in: Option<Span>,
}

/// A value, converted and checked.
#[derive(Clone, Debug)]
pub enum Value {
    /// Text, name, path or word of a choice.
    Text(String),
    /// Switch.
    Switch(bool),
    /// Whole number.
    Integer(u64),
    /// Number.
    Number(f64),
    /// Time.
    Time(Nanos),
    /// Rate.
    Rate(BitRate),
    /// Size.
    Size(Bytes),
    /// Prefix.
    Prefix(Prefix),
    /// Range of ports.
    Ports(RangeInclusive<u16>),
    /// List.
    List(Vec<Item>),
    /// Table.
    Table(Fields),
    /// Values by class, as they stand; `None` stands for all classes.
    ByClass(Vec<(Option<String>, Item)>),
    /// Something that another reader knows.
    Foreign(SpannedValue),
}

/// A value and where it stands.
#[derive(Clone, Debug)]
pub struct Item {
    /// The value.
    pub value: Value,
    /// Where it stands; for a default, where its table stands.
    pub at: Span,
}

/// A table that was read by its declaration. Keys that were left out have their default, if they
/// have one.
#[derive(Clone, Debug)]
pub struct Fields {
    /// Where the table stands.
    pub at: Span,
    /// The path of the table, `link.discipline`; empty for the file.
    pub path: String,
    /// Which variant it is, where there are several.
    pub kind: Option<&'static str>,
    /// Whether nothing was wrong with it when it was read.
    pub sound: bool,
    items: BTreeMap<&'static str, Item>,
    /// Keys that stand in the file, also if their values are wrong.
    given: Vec<&'static str>,
}

/// Parses TOML. Syntax errors go to the reader; what could be understood is returned, so that its
/// errors can be told too.
#[must_use]
pub fn parse_toml(text: &str, file: &str) -> (Table, Reader) {
    let mut lines = vec![0];
    lines.extend(text.match_indices('\n').map(|(at, _)| at + 1));
    let mut reader = Reader {
        file: file.to_owned(),
        lines,
        errors: Vec::new(),
        broken: BTreeSet::new(),
        stand_in: None,
    };
    let (table, errors) = document(text);
    for (at, message) in errors {
        if reader.broken.insert(reader.line(&at)) {
            reader.fail(&at, "", message);
        }
    }
    (table, reader)
}

/// The name that was probably meant: differs in few letters, or only in case and in `-` for `_`.
#[must_use]
pub fn nearest<'n>(name: &str, valid: impl IntoIterator<Item = &'n str>) -> Option<&'n str> {
    let plain = |text: &str| text.to_lowercase().replace('-', "_");
    let wanted = plain(name);
    let distance = |candidate: &str| strsim::damerau_levenshtein(&wanted, &plain(candidate));
    let length = wanted.chars().count();
    valid
        .into_iter()
        .map(|candidate| (distance(candidate), candidate))
        .filter(|(distance, _)| *distance <= (length / 3).max(1) && *distance < length)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// ` did you mean "x"?`, or the list of what there is.
#[must_use]
pub fn suggest(name: &str, valid: &[&str]) -> String {
    match nearest(name, valid.iter().copied()) {
        Some(near) => format!("did you mean {near:?}?"),
        None if valid.is_empty() => "there are none".to_owned(),
        None => format!("there are: {}", valid.join(", ")),
    }
}

/// A path of keys with one more key.
#[must_use]
pub fn join(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

impl Reader {
    /// Where something stands: `file:line`; empty in a text that is not of a file.
    #[must_use]
    pub fn place(&self, at: &Span) -> String {
        if self.file.is_empty() {
            String::new()
        } else {
            format!("{}:{}", self.file, self.line(at))
        }
    }

    fn line(&self, at: &Span) -> usize {
        let start = self.stand_in.as_ref().unwrap_or(at).start;
        self.lines.partition_point(|line| *line <= start)
    }

    /// Takes note of an error.
    pub fn fail(&mut self, at: &Span, key: impl Into<String>, message: impl Into<String>) {
        self.errors.push(Diagnostic {
            file: self.file.clone(),
            line: self.line(at),
            key: key.into(),
            message: message.into(),
        });
    }

    /// Takes note of an error in the value of a key of `table`.
    pub fn fail_at(&mut self, table: &Fields, key: &str, message: impl Into<String>) {
        self.fail(&table.span(key), table.path_of(key), message);
    }

    /// The folder that the file lies in: where the names of files in it begin.
    #[must_use]
    pub fn folder(&self) -> std::path::PathBuf {
        std::path::Path::new(&self.file).parent().map(std::path::Path::to_owned).unwrap_or_default()
    }

    /// Takes note of errors of another file.
    pub fn adopt(&mut self, errors: Diagnostics) {
        self.errors.extend(errors.0);
    }

    /// Whether nothing was wrong so far with these top-level keys, nor with the syntax.
    #[must_use]
    pub fn is_clean_in(&self, keys: &[&str]) -> bool {
        self.errors.iter().all(|error| {
            let first = error.key.split('.').next().unwrap_or_default();
            error.file == self.file && !first.is_empty() && !keys.contains(&first)
        })
    }

    /// Ends the reading: the result if nothing was wrong, else all errors in order of their lines.
    ///
    /// # Errors
    /// All that was noted.
    pub fn finish<T>(mut self, result: Option<T>) -> Result<T, Diagnostics> {
        match result {
            Some(result) if self.errors.is_empty() => Ok(result),
            _ => {
                if self.errors.is_empty() {
                    self.fail(&(0..0), "", "the file cannot be understood");
                }
                let foreign = |error: &Diagnostic| error.file != self.file;
                // What else is wrong with a line that is not TOML follows from that.
                let broken = self.broken;
                self.errors.retain(|error| {
                    foreign(error) || error.key.is_empty() || !broken.contains(&error.line)
                });
                self.errors.sort_by_key(|error| (foreign(error), error.line));
                self.errors.dedup();
                Err(Diagnostics(self.errors))
            }
        }
    }

    /// Reads a table by its declaration.
    pub fn table(
        &mut self,
        section: &'static Section,
        table: &Table,
        at: Span,
        path: &str,
    ) -> Fields {
        self.table_of(section, table, at, path, None)
    }

    fn table_of(
        &mut self,
        section: &'static Section,
        table: &Table,
        at: Span,
        path: &str,
        variant: Option<(&'static str, Variants)>,
    ) -> Fields {
        let at = self.stand_in.clone().unwrap_or(at);
        let kind = variant.map(|(kind, _)| kind);
        let errors = self.errors.len();
        let (items, given) = (BTreeMap::new(), Vec::new());
        let mut fields = Fields { at, path: path.to_owned(), kind, sound: true, items, given };
        let mut meant = Vec::new();
        for entry in &table.entries {
            let Some(key) = section.key(&entry.name) else {
                if variant.is_none() || entry.name != "kind" {
                    meant.extend(self.unknown_key(section, entry, path, variant));
                }
                continue;
            };
            fields.given.push(key.name);
            if let Some(item) = self.value(&key.kind, &entry.value, &join(path, key.name)) {
                fields.items.insert(key.name, item);
            }
        }
        for key in section.keys() {
            if !fields.items.contains_key(key.name) {
                self.absent(key, &mut fields, meant.contains(&key.name));
            }
        }
        fields.sound = self.errors.len() == errors;
        fields
    }

    /// Says what is wrong with a key, and returns the key that was probably meant.
    fn unknown_key(
        &mut self,
        section: &'static Section,
        entry: &KeyValue,
        path: &str,
        variant: Option<(&'static str, Variants)>,
    ) -> Option<&'static str> {
        let names = || section.keys().map(|key| key.name);
        let (kind, variants) = variant.unwrap_or(("", &[]));
        let owners: Vec<&str> = variants
            .iter()
            .filter(|(_, other)| other.key(&entry.name).is_some())
            .map(|(kind, _)| *kind)
            .collect();
        let near = nearest(&entry.name, names());
        let message = if !owners.is_empty() {
            format!("{kind} has no such knob; it is one of {}", owners.join(", "))
        } else if let Some(near) = near {
            format!("unknown key; did you mean `{near}`?")
        } else {
            format!("unknown key; valid keys: {}", names().collect::<Vec<_>>().join(", "))
        };
        self.fail(&entry.at, join(path, &entry.name), message);
        near
    }

    /// A key has no usable value: the default takes its place, or it is missed.
    fn absent(&mut self, key: &'static Key, fields: &mut Fields, misspelt: bool) {
        match key.presence {
            Presence::Default(_) | Presence::Made(_) => {
                let text = key.presence.default_text().unwrap_or_default();
                let path = join(&fields.path, key.name);
                let before = self.stand_in.replace(fields.at.clone());
                let item = match &single(&text) {
                    Ok(value) => self.value(&key.kind, value, &path),
                    Err(error) => {
                        self.fail(&fields.at, path, format!("its default is no TOML: {error}"));
                        None
                    }
                };
                self.stand_in = before;
                fields.items.extend(item.map(|item| (key.name, item)));
            }
            Presence::Required if !misspelt && !fields.given.contains(&key.name) => {
                let message = format!("this required key is missing: {}", key.kind.expected());
                self.fail(&fields.at.clone(), join(&fields.path, key.name), message);
            }
            Presence::Required | Presence::Optional(_) => {}
        }
    }

    /// Reads a value by its declaration; `None` if it is wrong, which is noted.
    pub fn value(&mut self, kind: &Kind, value: &SpannedValue, path: &str) -> Option<Item> {
        let at = self.stand_in.clone().unwrap_or_else(|| value.at.clone());
        let value = match kind {
            Kind::List(of) => match &value.data {
                Data::List(items) if items.is_empty() => {
                    self.fail(&at, path, format!("the list is empty; expected {}", of.expected()));
                    return None;
                }
                Data::List(items) => {
                    let read: Vec<_> = items.iter().map(|one| self.value(of, one, path)).collect();
                    Value::List(read.into_iter().flatten().collect())
                }
                _ => Value::List(vec![self.value(of, value, path)?]),
            },
            Kind::Table(section) => {
                let table = self.as_table(kind, value, path)?;
                Value::Table(self.table(section, table, at.clone(), path))
            }
            Kind::Tables { section, min, max } => {
                self.tables(kind, section, *min..=*max, value, path)?
            }
            Kind::Variants(variants) => self.variant(kind, variants, value, path)?,
            Kind::ByClass(of, default) => match &value.data {
                Data::Table(table) => {
                    let before = self.stand_in.replace(at.clone());
                    let others = default
                        .default_text()
                        .and_then(|text| single(&text).ok())
                        .and_then(|default| self.value(of, &default, path));
                    self.stand_in = before;
                    let mut items: Vec<_> = others.map(|item| (None, item)).into_iter().collect();
                    for KeyValue { name, value, .. } in &table.entries {
                        let item = self.value(of, value, &join(path, name));
                        items.extend(item.map(|item| (Some(name.clone()), item)));
                    }
                    Value::ByClass(items)
                }
                _ => Value::ByClass(vec![(None, self.value(of, value, path)?)]),
            },
            Kind::Foreign(_) => Value::Foreign(value.clone()),
            scalar_kind => match scalar(scalar_kind, &value.data) {
                Ok(value) => value,
                Err(error) => {
                    self.fail(&at, path, error.to_string());
                    return None;
                }
            },
        };
        Some(Item { value, at })
    }

    fn as_table<'v>(
        &mut self,
        kind: &Kind,
        value: &'v SpannedValue,
        path: &str,
    ) -> Option<&'v Table> {
        match &value.data {
            Data::Table(table) => Some(table),
            _ => {
                self.wrong_type(kind, value, path);
                None
            }
        }
    }

    fn wrong_type(&mut self, kind: &Kind, value: &SpannedValue, path: &str) {
        let message = format!("expected {}, found {}", kind.expected(), value.data.found());
        self.fail(&value.at, path, message);
    }

    fn tables(
        &mut self,
        kind: &Kind,
        section: &'static Section,
        count: RangeInclusive<usize>,
        value: &SpannedValue,
        path: &str,
    ) -> Option<Value> {
        let Data::List(array) = &value.data else {
            self.wrong_type(kind, value, path);
            return None;
        };
        if !count.contains(&array.len()) {
            let message = format!("{} of them; valid: {}", array.len(), kind.range());
            self.fail(&value.at, path, message);
        }
        let mut items = Vec::new();
        for one in array {
            match &one.data {
                Data::Table(table) => {
                    let fields = self.table(section, table, one.at.clone(), path);
                    items.push(Item { at: fields.at.clone(), value: Value::Table(fields) });
                }
                _ => self.wrong_type(kind, one, path),
            }
        }
        Some(Value::List(items))
    }

    fn variant(
        &mut self,
        kind: &Kind,
        variants: Variants,
        value: &SpannedValue,
        path: &str,
    ) -> Option<Value> {
        let table = self.as_table(kind, value, path)?;
        let Some(name) = table.get("kind") else {
            let message = format!("this required key is missing: {}", kind.range());
            self.fail(&value.at, join(path, "kind"), message);
            return None;
        };
        let chosen =
            name.data.as_text().and_then(|name| variants.iter().find(|(kind, _)| *kind == name));
        let Some((chosen, section)) = chosen else {
            let names: Vec<_> = variants.iter().map(|(kind, _)| *kind).collect();
            let hint = suggest(name.data.as_text().unwrap_or(""), &names);
            let message = format!("{} is not a kind; {hint}", name.data.found());
            self.fail(&name.at, join(path, "kind"), message);
            return None;
        };
        Some(Value::Table(self.table_of(
            section,
            table,
            value.at.clone(),
            path,
            Some((chosen, variants)),
        )))
    }
}

/// The variants of a table: name and declaration.
type Variants = &'static [(&'static str, &'static Section)];

impl Fields {
    /// Whether the key stands in the file.
    #[must_use]
    pub fn given(&self, key: &str) -> bool {
        self.given.contains(&key)
    }

    /// What a key holds, as given or by default.
    #[must_use]
    pub fn item(&self, key: &str) -> Option<&Item> {
        self.items.get(key)
    }

    /// Where the key's value stands; for a default, where the table does.
    #[must_use]
    pub fn span(&self, key: &str) -> Span {
        self.items.get(key).map_or_else(|| self.at.clone(), |item| item.at.clone())
    }

    /// The path of a key of this table.
    #[must_use]
    pub fn path_of(&self, key: &str) -> String {
        join(&self.path, key)
    }

    /// Keys and what they hold, as given or by default.
    pub fn entries(&self) -> impl Iterator<Item = (&'static str, &Value)> {
        self.items.iter().map(|(key, item)| (*key, &item.value))
    }

    fn get(&self, key: &str) -> Option<&Value> {
        self.items.get(key).map(|item| &item.value)
    }

    /// A list; empty if the key was left out.
    #[must_use]
    pub fn list(&self, key: &str) -> &[Item] {
        match self.get(key) {
            Some(Value::List(items)) => items,
            _ => &[],
        }
    }

    /// The tables of a list; empty if the key was left out.
    pub fn tables(&self, key: &str) -> impl Iterator<Item = &Fields> {
        self.list(key).iter().filter_map(|item| match &item.value {
            Value::Table(fields) => Some(fields),
            _ => None,
        })
    }

    /// The table that is the value of a key; with `at`, that one of several.
    #[must_use]
    pub fn nested(&self, key: &str, at: Option<usize>) -> Option<&Self> {
        at.map_or_else(|| self.table(key), |at| self.tables(key).nth(at))
    }

    /// The texts of a list; empty if the key was left out.
    pub fn texts(&self, key: &str) -> impl Iterator<Item = (&str, &Span)> {
        self.list(key).iter().filter_map(|item| match &item.value {
            Value::Text(text) => Some((text.as_str(), &item.at)),
            _ => None,
        })
    }
}

macro_rules! getters {
    ($($(#[doc = $doc:literal])+ $name:ident: $variant:ident -> $kind:ty, $map:expr;)+) => {
        impl Fields {
            $(
                $(#[doc = $doc])+
                /// `None` if it was left out and has no default, or was wrong.
                #[must_use]
                pub fn $name(&self, key: &str) -> Option<$kind> {
                    match self.get(key) {
                        Some(Value::$variant(value)) => Some($map(value)),
                        _ => None,
                    }
                }
            )+
        }
    };
}

getters! {
    /// A text, name, path or word.
    text: Text -> &str, String::as_str;
    /// A switch.
    switch: Switch -> bool, |v: &bool| *v;
    /// A whole number.
    integer: Integer -> u64, |v: &u64| *v;
    /// A number.
    number: Number -> f64, |v: &f64| *v;
    /// A time.
    time: Time -> Nanos, |v: &Nanos| *v;
    /// A rate.
    rate: Rate -> BitRate, |v: &BitRate| *v;
    /// A size.
    size: Size -> Bytes, |v: &Bytes| *v;
    /// A prefix.
    prefix: Prefix -> Prefix, |v: &Prefix| *v;
    /// A range of ports.
    ports: Ports -> RangeInclusive<u16>, RangeInclusive::clone;
    /// A table.
    table: Table -> &Self, |v| v;
    /// Values by class.
    by_class: ByClass -> &[(Option<String>, Item)], Vec::as_slice;
    /// Something that another reader knows.
    foreign: Foreign -> &SpannedValue, |v| v;
}
